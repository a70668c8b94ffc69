//! Signature pipelining, as a storage target uses it: transfers of signed blocks, and after them
//! the responses, fenced. A block with a bad signature stops the queue before the responses. The
//! target cancels the responses of failed transfers, and sends others instead.

use crate::prelude::*;
use mlx5::mkey::{
    BlockSize, Domain, Escape, Guard, Mkey, Seed, Side, Signature, SignatureBlock,
    SignatureErrorKind, T10Dif,
};
use mlx5::{AsyncEvent, CancelMode};

pub(crate) const CASES: &[Case] = cases![
    good_transfers_go_through_with_their_responses: DEVX | SIGNATURES | PIPELINING,
    a_bad_block_stops_the_queue_before_its_response: DEVX | SIGNATURES | PIPELINING,
    several_transfers_fail_in_one_drain_and_only_their_responses_are_cancelled: DEVX | SIGNATURES | PIPELINING,
    drains_follow_each_other_lap_after_lap: DEVX | SIGNATURES | PIPELINING,
    without_pipelining_the_response_goes_out_whatever_the_block: DEVX | SIGNATURES,
    the_queue_drains_again_after_a_reset: DEVX | SIGNATURES | PIPELINING,
];

pub(super) const BLOCK: usize = 520;
pub(super) const BLOCKS: usize = 2;
pub(super) const DATA: usize = 512 * BLOCKS;
/// Transfers outstanding at once, and the offset to which their responses go.
const DEPTH: usize = 4;
const INBOX: usize = DEPTH * DATA;
/// Identifiers of responses, and of those that report a failure.
const RESPONSE: u64 = 100;
const FAILURE: u64 = 200;

pub(super) fn options() -> PairOptions {
    PairOptions::default().mkey_entries(4).memory(64 << 10).pipelining(true).recv_wr(64)
}

pub(super) fn protection() -> SignatureBlock {
    SignatureBlock::new().memory(Domain {
        signature: Signature::T10Dif(T10Dif {
            guard: Guard::IpChecksum,
            seed: Seed::Zeros,
            application_tag: 0,
            reference_tag: 0,
            increment_reference_tag: true,
            escape: Escape::None,
        }),
        block_size: BlockSize::B512,
    })
}

/// A block and its eight bytes; its data is zero except for the first two bytes.
pub(super) fn block(index: u32, first: u16) -> Vec<u8> {
    let mut block = vec![0; BLOCK];
    block[..2].copy_from_slice(&first.to_be_bytes());
    block[512..514].copy_from_slice(&(!first).to_be_bytes());
    block[516..].copy_from_slice(&index.to_be_bytes());
    block
}

pub(super) struct Target<'a> {
    pub(super) bed: &'a Bed,
    pub(super) pair: Pair<Rc>,
    pub(super) keys: Vec<Mkey>,
    received: u64,
}

impl<'a> Target<'a> {
    pub(super) fn new(bed: &'a Bed, options: PairOptions) -> Result<Self, Failed> {
        let pair = bed.pair::<Rc>(&options)?;
        let keys: Result<_, _> =
            (0..DEPTH).map(|_| pair.a.pd.create_mkey(4).block_signature().build()).collect();
        let mut target = Self { bed, pair, keys: keys?, received: 0 };
        target.refill();
        Ok(target)
    }

    fn refill(&mut self) {
        while self.pair.b.qp.free_receives() > 0 {
            let at = INBOX + (self.received as usize % 64) * 8;
            self.pair.b.recv(self.received, at..at + 8);
            self.received += 1;
        }
    }

    /// Posts a transfer for each element, `true` if its second block is bad, and then the
    /// responses.
    fn post(&mut self, bad: &[bool]) -> Outcome {
        for (i, bad) in bad.iter().enumerate() {
            let mut bytes = [block(0, i as u16), block(1, 7)].concat();
            bytes[BLOCK] ^= u8::from(*bad);
            self.pair.a.mr.write_at(i * BLOCK * BLOCKS, &bytes)?;
        }
        let Pair { a, b } = &mut self.pair;
        let mut batch = a.qp.wr_start();
        for i in 0..bad.len() {
            let at = i * BLOCK * BLOCKS;
            let pieces = [a.mr.sge(at..at + BLOCK * BLOCKS)?];
            let key = self.keys[i].configure().layout_list(&pieces).signature(&protection());
            batch.wr(i as u64, SendFlags::empty()).mkey_configure(key);
            let to = b.mr.remote(i * DATA..)?;
            batch
                .wr(i as u64, SendFlags::empty())
                .rdma_write(to)
                .sge(self.keys[i].sge(0, DATA as u32));
        }
        for i in 0..bad.len() as u64 {
            let flags = SendFlags::SIGNALED | SendFlags::FENCE;
            let response = RESPONSE + i;
            batch.wr(response, flags).send().inline_data(&response.to_ne_bytes());
        }
        Ok(batch.complete()?)
    }

    /// The messages at the other side, of which `awaited` must come.
    pub(super) fn inbox(&mut self, awaited: usize) -> Result<Vec<u64>, Failed> {
        let mut found = Vec::new();
        for one in all(self.bed, self.pair.b.recv_cq(), awaited)? {
            let mut message = [0; 8];
            let slot = one.as_completion().wr_id() as usize % 64;
            self.pair.b.mr.read_at(INBOX + slot * 8, &mut message)?;
            found.push(u64::from_ne_bytes(message));
        }
        self.refill();
        Ok(found)
    }

    /// Completions of responses, of which `awaited` must come: identifier, and whether it was
    /// cancelled.
    pub(super) fn completions(&mut self, awaited: usize) -> Result<Vec<(u64, bool)>, Failed> {
        let found = all(self.bed, &mut self.pair.a.send_cq, awaited)?;
        let reported = found.iter().map(OwnedCompletion::as_completion);
        Ok(reported.map(|one| (one.wr_id(), one.cancelled())).collect())
    }

    /// Waits for the queue to drain, and takes the man page's four steps: polls, checks the keys,
    /// cancels the responses of failed transfers and posts others, resumes. Returns the transfers
    /// that failed.
    fn recover(&mut self, transfers: usize) -> Result<Vec<usize>, Failed> {
        let qp = &self.pair.a.qp;
        let mut event = None;
        self.bed.until("the drained queue", || {
            event = self.pair.a.context.async_events().next().expect("an event");
            event.is_some()
        });
        assert_eq!(event, Some(AsyncEvent::SqDrained(qp.id())));
        assert_eq!(self.completions(0)?, [], "no response was executed");
        let mut failed = Vec::new();
        for (i, key) in self.keys[..transfers].iter().enumerate() {
            if let Some(error) = key.check()? {
                assert_eq!((error.kind, error.side), (SignatureErrorKind::Guard, Side::Memory));
                assert_eq!((error.expected, error.actual), (!7, !0x107).map_low());
                failed.push(i);
            }
        }
        let responses: Vec<u64> = failed.iter().map(|i| RESPONSE + *i as u64).collect();
        let qp = &mut self.pair.a.qp;
        let drained = qp.drained()?;
        let cancelled = qp.cancel_set(&drained, &responses, CancelMode::AllOrNothing)?;
        assert_eq!(cancelled.count(), failed.len());
        for i in &failed {
            let failure = FAILURE + *i as u64;
            let mut batch = qp.wr_start();
            batch.wr(failure, SendFlags::SIGNALED).send().inline_data(&failure.to_ne_bytes());
            batch.complete()?;
        }
        qp.resume()?;
        Ok(failed)
    }

    /// Posts transfers, recovers if any is bad, and checks the results.
    fn round(&mut self, bad: &[bool]) -> Outcome {
        self.post(bad)?;
        let expected: Vec<usize> = (0..bad.len()).filter(|i| bad[*i]).collect();
        if !expected.is_empty() {
            assert_eq!(self.recover(bad.len())?, expected);
        }
        let all = RESPONSE..RESPONSE + bad.len() as u64;
        let failed: Vec<u64> = expected.iter().map(|i| *i as u64).collect();
        let good = all.clone().filter(|wr_id| !failed.contains(&(wr_id - RESPONSE)));
        let sent: Vec<u64> = good.chain(failed.iter().map(|i| FAILURE + i)).collect();
        assert_eq!(self.inbox(sent.len())?, sent);
        let reported: Vec<(u64, bool)> = all
            .map(|wr_id| (wr_id, failed.contains(&(wr_id - RESPONSE))))
            .chain(failed.iter().map(|i| (FAILURE + i, false)))
            .collect();
        assert_eq!(self.completions(reported.len())?, reported);
        assert_eq!(self.pair.a.context.async_events().next()?, None);
        Ok(())
    }
}

/// The completions in the queue, of which `awaited` must come.
fn all(bed: &Bed, cq: &mut CompletionQueue, awaited: usize) -> Result<Vec<OwnedCompletion>, Failed> {
    let mut found = bed.poll_good(cq, awaited);
    bed.settle();
    cq.poll(64, |one| {
        assert!(one.is_success());
        found.push(one.to_owned());
    })?;
    Ok(found)
}

/// The low 16 bits of both numbers, as a guard has.
trait MapLow {
    fn map_low(self) -> (u64, u64);
}

impl MapLow for (u64, u64) {
    fn map_low(self) -> (u64, u64) {
        (self.0 & 0xffff, self.1 & 0xffff)
    }
}

fn good_transfers_go_through_with_their_responses(bed: &Bed) -> Outcome {
    let mut target = Target::new(bed, options())?;
    let rounds = if bed.is_simulated() { 30 } else { 5 };
    for _ in 0..rounds {
        target.round(&[false; DEPTH])?;
    }
    let mut first = [9; 2];
    target.pair.b.mr.read_at(3 * DATA, &mut first)?;
    assert_eq!(first, [0, 3], "the data came, without its signatures");
    Ok(())
}

fn a_bad_block_stops_the_queue_before_its_response(bed: &Bed) -> Outcome {
    let mut target = Target::new(bed, options())?;
    target.round(&[true])?;
    target.round(&[false])
}

fn several_transfers_fail_in_one_drain_and_only_their_responses_are_cancelled(
    bed: &Bed,
) -> Outcome {
    let mut target = Target::new(bed, options())?;
    target.round(&[false, true, true, false])?;
    target.round(&[true, true, true, true])?;
    target.round(&[false; 4])
}

fn drains_follow_each_other_lap_after_lap(bed: &Bed) -> Outcome {
    let mut target = Target::new(bed, options())?;
    let laps = if bed.is_simulated() { 64 } else { 16 };
    for lap in 0..laps {
        let bad: Vec<bool> = (0..lap % DEPTH + 1).map(|i| lap >> i & 1 == 1).collect();
        target.round(&bad)?;
    }
    Ok(())
}

fn without_pipelining_the_response_goes_out_whatever_the_block(bed: &Bed) -> Outcome {
    let mut target = Target::new(bed, options().pipelining(false))?;
    target.post(&[true])?;
    assert_eq!(target.inbox(1)?, [RESPONSE]);
    assert_eq!(target.completions(1)?, [(RESPONSE, false)]);
    assert!(target.keys[0].check()?.is_some());
    assert_eq!(target.pair.a.context.async_events().next()?, None);
    Ok(())
}

fn the_queue_drains_again_after_a_reset(bed: &Bed) -> Outcome {
    let mut target = Target::new(bed, options())?;
    target.round(&[true, false])?;
    let (a, b) = (target.pair.a.endpoint(&options()), target.pair.b.endpoint(&options()));
    for end in [&mut target.pair.a, &mut target.pair.b] {
        end.qp.modify(&QpAttributes::new().qp_state(QueueState::Reset))?;
    }
    Rc::wire(&mut target.pair.a, &b, &options())?;
    Rc::wire(&mut target.pair.b, &a, &options())?;
    target.received = 0;
    target.refill();
    target.round(&[false, true])
}
