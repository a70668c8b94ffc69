//! A key that is configured while earlier requests may not be executed yet. One of them may be
//! cancelled, and a device that reported an error reports no other until it is re-armed. No bad
//! block may look good in either case.

use super::pipelining::{BLOCK, BLOCKS, DATA, Target, block, options, protection};
use crate::prelude::*;
use mlx5::mkey::{Configure, Mkey, MkeyAccess, SignatureErrorKind};
use mlx5::{AsyncEvent, MkeyRefusal};

pub(crate) const CASES: &[Case] = cases![
    a_kept_signature_finds_errors_again_after_one: DEVX | PIPELINING,
    configuration_after_a_cancelled_one_rearms_the_key: DEVX | PIPELINING,
    signature_stays_known_when_the_request_that_set_it_is_cancelled: DEVX | PIPELINING,
    an_aborted_configuration_takes_nothing_from_the_next_one: DEVX | PIPELINING,
    a_key_that_could_turn_out_too_long_is_not_signed: DEVX | PIPELINING,
    a_layout_too_long_for_the_signature_that_is_kept_is_refused: DEVX | PIPELINING,
    transfers_after_an_unreported_error_are_unchecked: DEVX | PIPELINING,
    a_key_that_was_configured_long_ago_may_be_the_one_with_the_error: DEVX | PIPELINING,
    without_pipelining_too_nothing_unknown_looks_good: DEVX | SIGNATURES,
    a_transfer_that_is_cancelled_with_its_configuration_is_in_no_doubt: DEVX | PIPELINING,
    one_transfer_at_a_time_is_in_no_doubt: DEVX | PIPELINING,
];

/// The parts of a key that a request configures; the others stay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Says {
    Layout,
    Signature,
    Both,
    Access,
}

impl Says {
    fn of<'a>(self, key: &'a Mkey, pieces: &'a [Sge]) -> Configure<'a> {
        match self {
            Self::Layout => key.configure().layout_list(pieces),
            Self::Signature => key.configure().signature(&protection()),
            Self::Both => key.configure().layout_list(pieces).signature(&protection()),
            Self::Access => key.configure().access(MkeyAccess::LOCAL_WRITE),
        }
    }
}

/// Writes the blocks of the first end's memory: two for each transfer, one of them bad if the
/// element is `true`.
fn fill(target: &Target<'_>, bad: &[bool]) -> Outcome {
    for (i, bad) in bad.iter().enumerate() {
        let mut bytes = [block(0, i as u16), block(1, 7)].concat();
        bytes[BLOCK] ^= u8::from(*bad);
        target.pair.a.mr.write_at(i * BLOCK * BLOCKS, &bytes)?;
    }
    Ok(())
}

/// The actions of a request.
#[derive(Clone, Copy)]
enum Does {
    /// Configures a key of the target for a transfer.
    Configure(usize, Says, usize),
    /// Transfers the memory of the key.
    Write(usize),
    /// Sends its identifier to the other side, with a fence.
    Respond,
}

/// Posts requests, in one batch.
fn post(target: &mut Target<'_>, requests: &[(u64, Does)]) -> Outcome {
    let Pair { a, b } = &mut target.pair;
    let mut batch = a.qp.wr_start();
    for (wr_id, does) in requests {
        match *does {
            Does::Configure(key, says, transfer) => {
                let at = transfer * BLOCK * BLOCKS;
                let pieces = [a.mr.sge(at..at + BLOCK * BLOCKS)?];
                let update = says.of(&target.keys[key], &pieces);
                batch.wr(*wr_id, SendFlags::empty()).mkey_configure(update);
            }
            Does::Write(key) => {
                let to = b.mr.remote(0..)?;
                let sge = target.keys[key].sge(0, DATA as u32);
                batch.wr(*wr_id, SendFlags::empty()).rdma_write(to).sge(sge);
            }
            Does::Respond => {
                let flags = SendFlags::SIGNALED | SendFlags::FENCE;
                batch.wr(*wr_id, flags).send().inline_data(&wr_id.to_ne_bytes());
            }
        }
    }
    Ok(batch.complete()?)
}

/// Waits for the queue to drain, and polls at least `awaited` completions. Returns each identifier,
/// and whether the request was cancelled.
fn drained(target: &mut Target<'_>, awaited: usize) -> Result<Vec<(u64, bool)>, Failed> {
    let mut event = None;
    target.bed.until("the drained queue", || {
        event = target.pair.a.context.async_events().next().expect("an event");
        event.is_some()
    });
    assert_eq!(event, Some(AsyncEvent::SqDrained(target.pair.a.qp.id())));
    target.completions(awaited)
}

/// All errors of the key, until it has no more.
fn reported_errors(key: &Mkey) -> Result<Vec<SignatureErrorKind>, Failed> {
    let mut found = Vec::new();
    while let Some(error) = key.check()? {
        found.push(error.kind);
        assert!(found.len() < 10, "it has an end");
    }
    assert_eq!(key.errors(), 0);
    Ok(found)
}

const GUARD: SignatureErrorKind = SignatureErrorKind::Guard;
const UNCHECKED: SignatureErrorKind = SignatureErrorKind::Unchecked;

/// Cancels these requests, and resumes the queue.
fn cancel(target: &mut Target<'_>, wr_ids: &[u64]) -> Outcome {
    let qp = &mut target.pair.a.qp;
    let drained = qp.drained()?;
    for wr_id in wr_ids {
        assert_eq!(qp.cancel(&drained, *wr_id)?.count(), 1, "{wr_id}");
    }
    Ok(qp.resume()?)
}

/// A key with an error that the caller has seen. Its queue is drained, before the response 1.
fn with_an_error(bed: &Bed) -> Result<Target<'_>, Failed> {
    let mut target = Target::new(bed, options())?;
    fill(&target, &[true, true])?;
    let requests =
        [(0, Does::Configure(0, Says::Both, 0)), (0, Does::Write(0)), (1, Does::Respond)];
    post(&mut target, &requests)?;
    assert_eq!(drained(&mut target, 0)?, []);
    assert_eq!(reported_errors(&target.keys[0])?, [GUARD]);
    Ok(target)
}

fn a_kept_signature_finds_errors_again_after_one(bed: &Bed) -> Outcome {
    for says in [Says::Layout, Says::Access, Says::Signature] {
        let mut target = with_an_error(bed)?;
        cancel(&mut target, &[1])?;
        target.completions(1)?;
        let requests =
            [(0, Does::Configure(0, says, 0)), (0, Does::Write(0)), (2, Does::Respond)];
        post(&mut target, &requests)?;
        assert_eq!(drained(&mut target, 0)?, [], "{says:?}");
        assert_eq!(reported_errors(&target.keys[0])?, [GUARD], "{says:?}");
        cancel(&mut target, &[2])?;
        assert_eq!(target.completions(1)?, [(2, true)]);
        assert!(target.inbox(0)?.is_empty());
    }
    Ok(())
}

fn configuration_after_a_cancelled_one_rearms_the_key(bed: &Bed) -> Outcome {
    for first in [Says::Layout, Says::Signature, Says::Both] {
        for second in [Says::Layout, Says::Access, Says::Signature, Says::Both] {
            let mut target = with_an_error(bed)?;
            // The first request would re-arm the key, but it is cancelled.
            let requests = [
                (10, Does::Configure(0, first, 1)),
                (11, Does::Configure(0, second, 1)),
                (12, Does::Write(0)),
                (13, Does::Respond),
            ];
            post(&mut target, &requests)?;
            cancel(&mut target, &[1, 10])?;
            assert_eq!(drained(&mut target, 1)?, [(1, true)], "{first:?}, {second:?}");
            assert_eq!(reported_errors(&target.keys[0])?, [GUARD], "{first:?}, {second:?}");
            cancel(&mut target, &[13])?;
            assert_eq!(target.completions(1)?, [(13, true)]);
            assert!(target.inbox(0)?.is_empty());
        }
    }
    Ok(())
}

fn signature_stays_known_when_the_request_that_set_it_is_cancelled(bed: &Bed) -> Outcome {
    for first in [Says::Both, Says::Signature] {
        let mut target = with_an_error(bed)?;
        // A key that was never signed. The request that would be the first to sign it is cancelled.
        let requests = [
            (10, Does::Configure(1, first, 1)),
            (11, Does::Configure(1, Says::Layout, 1)),
            (12, Does::Write(1)),
            (13, Does::Respond),
        ];
        post(&mut target, &requests)?;
        assert_eq!(target.keys[1].signature(), Some(protection()));
        cancel(&mut target, &[1, 10])?;
        assert_eq!(target.keys[1].signature(), Some(protection()));
        assert_eq!(drained(&mut target, 1)?, [(1, true)]);
        assert_eq!(reported_errors(&target.keys[1])?, [GUARD], "{first:?}");
        cancel(&mut target, &[13])?;
        assert_eq!(target.completions(1)?, [(13, true)]);
        assert!(target.inbox(0)?.is_empty());
    }
    Ok(())
}

fn an_aborted_configuration_takes_nothing_from_the_next_one(bed: &Bed) -> Outcome {
    let mut target = with_an_error(bed)?;
    let pieces = [target.pair.a.mr.sge(0..BLOCK * BLOCKS)?];
    let mut batch = target.pair.a.qp.wr_start();
    batch
        .wr(10, SendFlags::empty())
        .mkey_configure(target.keys[0].configure().layout_list(&pieces));
    batch.abort();
    let requests = [
        (11, Does::Configure(0, Says::Layout, 1)),
        (12, Does::Write(0)),
        (13, Does::Respond),
    ];
    post(&mut target, &requests)?;
    cancel(&mut target, &[1])?;
    assert_eq!(drained(&mut target, 1)?, [(1, true)]);
    assert_eq!(reported_errors(&target.keys[0])?, [GUARD]);
    cancel(&mut target, &[13])?;
    target.completions(1)?;
    assert!(target.inbox(0)?.is_empty());
    Ok(())
}

/// A layout longer than a signed key can have.
fn too_long(target: &Target<'_>) -> Result<[Sge; 4], Failed> {
    let piece = Sge { length: i32::MAX as u32, ..target.pair.a.mr.sge(0..8)? };
    Ok([piece; 4])
}

#[track_caller]
fn refused(result: Result<(), mlx5::BatchError>, index: u32) {
    let error = result.expect_err("refused");
    assert_eq!(
        (error.index(), error.error()),
        (index, PostError::Mkey(MkeyRefusal::TooLong)),
        "{error}"
    );
}

fn a_key_that_could_turn_out_too_long_is_not_signed(bed: &Bed) -> Outcome {
    let mut target = Target::new(bed, options())?;
    let long = too_long(&target)?;
    let Target { pair: Pair { a, .. }, keys, .. } = &mut target;
    let short = [a.mr.sge(0..BLOCK)?];
    let mut batch = a.qp.wr_start();
    batch.wr(0, SendFlags::SIGNALED).mkey_configure(keys[0].configure().layout_list(&long));
    batch.complete()?;
    bed.poll_good(&mut a.send_cq, 1);
    // The first request shortens the key, and may be cancelled; then the second would sign the long
    // layout.
    for says in [Says::Signature, Says::Access] {
        let mut batch = a.qp.wr_start();
        let first = keys[0].configure().layout_list(&short);
        let first = if says == Says::Access { first.signature(&protection()) } else { first };
        batch.wr(0, SendFlags::SIGNALED).mkey_configure(first);
        batch.wr(1, SendFlags::SIGNALED).mkey_configure(says.of(&keys[0], &short));
        refused(batch.complete(), 1);
    }
    // Once the first request is executed, the key is short.
    let mut batch = a.qp.wr_start();
    batch.wr(0, SendFlags::SIGNALED).mkey_configure(keys[0].configure().layout_list(&short));
    batch.complete()?;
    bed.poll_good(&mut a.send_cq, 1);
    let mut batch = a.qp.wr_start();
    batch.wr(1, SendFlags::SIGNALED).mkey_configure(Says::Signature.of(&keys[0], &short));
    batch.complete()?;
    bed.poll_good(&mut a.send_cq, 1);
    Ok(())
}

fn a_layout_too_long_for_the_signature_that_is_kept_is_refused(bed: &Bed) -> Outcome {
    let mut target = Target::new(bed, options())?;
    let long = too_long(&target)?;
    let Target { pair: Pair { a, .. }, keys, .. } = &mut target;
    let short = [a.mr.sge(0..BLOCK)?];
    let mut batch = a.qp.wr_start();
    batch.wr(0, SendFlags::SIGNALED).mkey_configure(Says::Both.of(&keys[0], &short));
    batch.complete()?;
    bed.poll_good(&mut a.send_cq, 1);
    for _ in 0..2 {
        let mut batch = a.qp.wr_start();
        batch.wr(0, SendFlags::SIGNALED).mkey_configure(Says::Layout.of(&keys[0], &long));
        refused(batch.complete(), 0);
        assert_eq!(keys[0].length(), Some(BLOCK as u64));
    }
    // Without the signature, any length is allowed.
    let mut batch = a.qp.wr_start();
    let plain = keys[0].configure().layout_list(&long).reset_signature();
    batch.wr(0, SendFlags::SIGNALED).mkey_configure(plain);
    batch.complete()?;
    bed.poll_good(&mut a.send_cq, 1);
    Ok(())
}

/// `count` bad transfers through one key. Each has its own configuration and a response, which
/// follows its transfer or all of them.
fn bad_transfers(count: usize, responses_last: bool) -> Vec<(u64, Does)> {
    let (mut requests, mut behind) = (Vec::new(), Vec::new());
    for i in 0..count {
        requests.push((0, Does::Configure(0, Says::Both, i)));
        requests.push((0, Does::Write(0)));
        let response = (100 + i as u64, Does::Respond);
        if responses_last { behind.push(response) } else { requests.push(response) }
    }
    requests.extend(behind);
    requests
}

fn transfers_after_an_unreported_error_are_unchecked(
    bed: &Bed,
) -> Outcome {
    for (count, responses_last) in [(2, false), (2, true), (3, false), (3, true)] {
        let mut target = Target::new(bed, options())?;
        fill(&target, &[true; 3])?;
        post(&mut target, &bad_transfers(count, responses_last))?;
        assert_eq!(drained(&mut target, 0)?, []);
        assert_eq!(target.keys[0].errors(), count as u64);
        let expected: Vec<_> =
            [GUARD].into_iter().chain(std::iter::repeat_n(UNCHECKED, count - 1)).collect();
        assert_eq!(reported_errors(&target.keys[0])?, expected);
        let responses: Vec<u64> = (0..count as u64).map(|i| 100 + i).collect();
        cancel(&mut target, &responses)?;
        let all: Vec<_> = responses.iter().map(|wr_id| (*wr_id, true)).collect();
        assert_eq!(target.completions(count)?, all);
        assert!(target.inbox(0)?.is_empty(), "no response went out");
        // A request that re-arms the key lets it find the next error.
        post(&mut target, &bad_transfers(1, true))?;
        assert_eq!(drained(&mut target, 0)?, []);
        assert_eq!(reported_errors(&target.keys[0])?, [GUARD]);
        cancel(&mut target, &[100])?;
        target.completions(1)?;
        assert!(target.inbox(0)?.is_empty());
    }
    Ok(())
}

fn a_key_that_was_configured_long_ago_may_be_the_one_with_the_error(bed: &Bed) -> Outcome {
    let mut target = Target::new(bed, options())?;
    fill(&target, &[true, true])?;
    let Target { pair: Pair { a, .. }, keys, .. } = &mut target;
    let pieces = [a.mr.sge(0..BLOCK * BLOCKS)?];
    let mut batch = a.qp.wr_start();
    batch.wr(0, SendFlags::SIGNALED).mkey_configure(Says::Both.of(&keys[0], &pieces));
    batch.complete()?;
    bed.poll_good(&mut a.send_cq, 1);
    let requests = [
        (0, Does::Write(0)),
        (100, Does::Respond),
        (0, Does::Configure(0, Says::Layout, 1)),
        (0, Does::Write(0)),
        (101, Does::Respond),
    ];
    post(&mut target, &requests)?;
    assert_eq!(drained(&mut target, 0)?, []);
    assert_eq!(reported_errors(&target.keys[0])?, [GUARD, UNCHECKED]);
    cancel(&mut target, &[100, 101])?;
    target.completions(2)?;
    assert!(target.inbox(0)?.is_empty());
    Ok(())
}

fn without_pipelining_too_nothing_unknown_looks_good(bed: &Bed) -> Outcome {
    let mut target = Target::new(bed, options().pipelining(false))?;
    fill(&target, &[true, true])?;
    post(&mut target, &bad_transfers(2, false))?;
    assert_eq!(target.completions(2)?, [(100, false), (101, false)]);
    assert_eq!(reported_errors(&target.keys[0])?, [GUARD, UNCHECKED]);
    Ok(())
}

fn a_transfer_that_is_cancelled_with_its_configuration_is_in_no_doubt(bed: &Bed) -> Outcome {
    let mut target = Target::new(bed, options())?;
    fill(&target, &[true, true])?;
    let requests = [
        (0, Does::Configure(0, Says::Both, 0)),
        (0, Does::Write(0)),
        (100, Does::Respond),
        (200, Does::Configure(0, Says::Both, 1)),
        (201, Does::Write(0)),
        (202, Does::Respond),
    ];
    post(&mut target, &requests)?;
    assert_eq!(drained(&mut target, 0)?, []);
    cancel(&mut target, &[100, 200, 201, 202])?;
    assert_eq!(reported_errors(&target.keys[0])?, [GUARD]);
    target.completions(2)?;
    assert!(target.inbox(0)?.is_empty());
    Ok(())
}

fn one_transfer_at_a_time_is_in_no_doubt(bed: &Bed) -> Outcome {
    let mut target = Target::new(bed, options())?;
    // The key is checked after each transfer, good or bad; or never after good ones.
    for (round, (bad, asked)) in
        [(false, true), (true, true), (true, true), (false, true), (false, false), (true, true)]
            .into_iter()
            .cycle()
            .take(24)
            .enumerate()
    {
        fill(&target, &[bad])?;
        post(&mut target, &bad_transfers(1, true))?;
        if !bad {
            assert_eq!(target.completions(1)?, [(100, false)]);
            if asked {
                assert_eq!(target.keys[0].check()?, None, "round {round}");
            }
            continue;
        }
        assert_eq!(drained(&mut target, 0)?, []);
        let error = target.keys[0].check()?.ok_or("an error")?;
        assert_eq!(error.kind, GUARD, "round {round}");
        // The key was not checked after the transfer before, so that one could be the bad one.
        let unknown = (round % 6 == 5).then_some(UNCHECKED);
        assert_eq!(target.keys[0].check()?.map(|error| error.kind), unknown, "round {round}");
        cancel(&mut target, &[100])?;
        target.completions(1)?;
    }
    Ok(())
}
