//! Cases for two hosts. Both run a case at once; `first` differs between them.

use super::{Far, Host, HostCase};
use crate::prelude::*;
use mlx5::{AckTimeout, CompletionChannel, ConnectOptions, Data, RetryCount, mtu_bytes};
use std::time::Duration;

macro_rules! host_cases {
    ($($case:ident),* $(,)?) => {
        &[$( HostCase { name: concat!("hosts::", stringify!($case)), run: $case } ),*]
    };
}

pub(crate) const CASES: &[HostCase] = host_cases![
    rc_carries_every_operation_both_ways,
    uc_carries_every_operation_both_ways,
    ud_carries_datagrams_both_ways,
    both_hosts_send_at_once,
    many_connections_work_side_by_side,
    a_send_waits_for_a_receive_that_comes_late,
    a_sleeping_receiver_is_woken,
    a_wrong_key_is_refused_by_the_other_host,
    a_queue_pair_that_is_gone_does_not_answer,
];

/// Time limit of a sleeping receiver.
const WAKE: Duration = Duration::from_secs(20);

/// Offset from which messages are sent; they go to this offset plus half of the memory.
const SOURCE: usize = 0;

/// Sends messages of every operation and of many sizes, one after the other, each way.
fn every_operation<T: Traffic>(host: &mut Host<'_>) -> Outcome {
    let options = PairOptions::default().memory(1 << 18);
    let mut far = host.far::<T>(&options)?;
    let mtu = mtu_bytes(far.end.port.active_mtu) as usize;
    let all = [1, 64, 1000, mtu - 1, mtu, mtu + 1, 3 * mtu, 64 << 10];
    let sizes = all.into_iter().filter(|size| T::GRH == 0 || *size <= mtu);
    for (round, size) in sizes.enumerate() {
        for (index, &op) in T::OPS.iter().enumerate() {
            for first_acts in [true, false] {
                let seed = ((round << 8 | index << 1) as u64) << 8 | u64::from(first_acts);
                if first_acts == host.first {
                    act(host, &mut far, op, size, seed)?;
                } else {
                    suffer(host, &mut far, op, size, seed)?;
                }
            }
        }
    }
    Ok(())
}

/// Posts a request once the other host is ready for it.
fn act<T: Traffic>(
    host: &mut Host<'_>,
    far: &mut Far<T>,
    op: Op,
    size: usize,
    seed: u64,
) -> Outcome {
    let Far { end, remote, .. } = far;
    let half = end.mr.len() / 2;
    if op != Op::Read {
        fill(&end.mr, SOURCE, seed, size)?;
    }
    host.meet()?;
    let (local, there) = match op {
        Op::Read => (half, SOURCE),
        _ => (SOURCE, half),
    };
    let sges = [end.mr.sge(local..local + size)?];
    let remote = RemoteAddress { addr: remote.addr + there as u64, ..*remote };
    let post = Post::new(op, seed, Data::Sges(&sges));
    let form = Form::ALL[(seed >> 8) as usize % 2];
    end.post(form, post.remote(remote).immediate((seed as u32).to_be_bytes()))?;
    let done = host.bed.poll_good(&mut end.send_cq, 1);
    assert_eq!(wr_ids(&done), [seed]);
    if op == Op::Read {
        verify(&end.mr, half, seed, size);
    }
    host.meet()
}

/// Prepares for a request of the other host, and checks the result.
fn suffer<T: Traffic>(
    host: &mut Host<'_>,
    far: &mut Far<T>,
    op: Op,
    size: usize,
    seed: u64,
) -> Outcome {
    let Far { end, qp_num, .. } = far;
    let half = end.mr.len() / 2;
    end.mr.write_at(half, &vec![0; T::GRH + size])?;
    if op == Op::Read {
        fill(&end.mr, SOURCE, seed, size)?;
    }
    if op.is_received() {
        end.recv(seed, if op == Op::WriteImm { 0..0 } else { half..half + T::GRH + size });
    }
    host.meet()?;
    if op.is_received() {
        let received = host.bed.poll_one(end.recv_cq());
        let received = received.as_completion();
        received.status()?;
        assert_eq!((received.wr_id(), received.opcode()), (seed, op.received()));
        assert_eq!(received.byte_len(), Some((T::GRH + size) as u32));
        let immediate = op.has_immediate().then_some((seed as u32).to_be_bytes());
        assert_eq!(received.imm_data(), immediate);
        if T::GRH > 0 {
            assert_eq!(received.src_qp(), Some(*qp_num));
        }
    } else if op == Op::Write {
        // A write has no completion here, and an unreliable one may still be in flight.
        let expected = pattern(seed, size);
        let mut found = vec![0; size];
        host.bed.until("the other host's write", || {
            end.mr.read_at(half, &mut found).is_ok() && found == expected
        });
    }
    if op != Op::Read {
        verify(&end.mr, half + if op.is_received() { T::GRH } else { 0 }, seed, size);
    }
    host.meet()
}

fn rc_carries_every_operation_both_ways(host: &mut Host<'_>) -> Outcome {
    every_operation::<Rc>(host)
}

fn uc_carries_every_operation_both_ways(host: &mut Host<'_>) -> Outcome {
    every_operation::<Uc>(host)
}

fn ud_carries_datagrams_both_ways(host: &mut Host<'_>) -> Outcome {
    every_operation::<Ud>(host)
}

/// Sends `count` messages while the other host does the same, and checks those that arrive.
fn send_and_receive(bed: &Bed, end: &mut End<Rc>, seed: u64, count: u64) -> Outcome {
    for n in 0..count {
        let at = SOURCE + 128 * n as usize;
        let bytes = pattern(seed + n, 128);
        end.mr.write_at(at, &bytes)?;
        let sges = [end.mr.sge(at..at + 128)?];
        end.post(Form::Typed, Post::new(Op::Send, n, Data::Sges(&sges)))?;
    }
    assert!(wr_ids(&bed.poll_good(&mut end.send_cq, count as usize)).into_iter().eq(0..count));
    assert!(wr_ids(&bed.poll_good(end.recv_cq(), count as usize)).into_iter().eq(0..count));
    Ok(())
}

/// Posts receives for `count` messages.
fn receives(end: &mut End<Rc>, count: u64) {
    let half = end.mr.len() / 2;
    for n in 0..count {
        let at = half + 128 * n as usize;
        end.recv(n, at..at + 128);
    }
}

/// The seed of a host's messages, which differs from the other host's.
const fn seed_of(first: bool) -> u64 {
    if first { 1000 } else { 2000 }
}

fn both_hosts_send_at_once(host: &mut Host<'_>) -> Outcome {
    const COUNT: u64 = 48;
    let mut far = host.far::<Rc>(&PairOptions::default())?;
    receives(&mut far.end, COUNT);
    host.meet()?;
    send_and_receive(host.bed, &mut far.end, seed_of(host.first), COUNT)?;
    let half = far.end.mr.len() / 2;
    for n in 0..COUNT {
        verify(&far.end.mr, half + 128 * n as usize, seed_of(!host.first) + n, 128);
    }
    host.meet()
}

fn many_connections_work_side_by_side(host: &mut Host<'_>) -> Outcome {
    const CONNECTIONS: u64 = 8;
    let mut ends = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut far = host.far::<Rc>(&PairOptions::default())?;
        receives(&mut far.end, 4);
        ends.push(far.end);
    }
    host.meet()?;
    for (n, end) in (0..).zip(&mut ends) {
        send_and_receive(host.bed, end, seed_of(host.first) + 10 * n, 4)?;
    }
    for (n, end) in (0..).zip(&ends) {
        let half = end.mr.len() / 2;
        for message in 0..4 {
            let seed = seed_of(!host.first) + 10 * n + message;
            verify(&end.mr, half + 128 * message as usize, seed, 128);
        }
    }
    host.meet()
}

fn a_send_waits_for_a_receive_that_comes_late(host: &mut Host<'_>) -> Outcome {
    let mut far = host.far::<Rc>(&PairOptions::default())?;
    if host.first {
        fill(&far.end.mr, 0, 5, 64)?;
        let sges = [far.end.mr.sge(0..64)?];
        far.end.post(Form::Typed, Post::new(Op::Send, 7, Data::Sges(&sges)))?;
        host.meet()?;
        assert_eq!(wr_ids(&host.bed.poll_good(&mut far.end.send_cq, 1)), [7]);
    } else {
        // Wait until the other host has posted the request.
        host.meet()?;
        far.end.recv(8, 64..128);
        assert_eq!(wr_ids(&host.bed.poll_good(far.end.recv_cq(), 1)), [8]);
        verify(&far.end.mr, 64, 5, 64);
    }
    host.meet()
}

/// An end whose receives complete on a queue with a channel.
fn announced(bed: &Bed) -> Result<(CompletionChannel, End<Rc>), Failed> {
    let options = PairOptions::default();
    let mut end = bed.end::<Rc>(&options)?;
    let channel = end.context.create_comp_channel()?;
    let cq = end.context.create_cq(16).channel(&channel).build()?;
    end.qp = end.pd.create_qp::<Rc>(&end.send_cq, &cq).build()?;
    end.recv_cq = Some(cq);
    Ok((channel, end))
}

fn a_sleeping_receiver_is_woken(host: &mut Host<'_>) -> Outcome {
    let (channel, end) = announced(host.bed)?;
    let Far { mut end, .. } = host.connected(end, &PairOptions::default())?;
    if host.first {
        fill(&end.mr, 0, 6, 64)?;
        host.meet()?;
        let sges = [end.mr.sge(0..64)?];
        end.post(Form::Typed, Post::new(Op::Send, 1, Data::Sges(&sges)))?;
        host.bed.poll_good(&mut end.send_cq, 1);
    } else {
        end.recv(2, 0..64);
        end.recv_cq().arm(false)?;
        host.meet()?;
        let event = channel.wait(Some(WAKE))?;
        assert!(event.is_some(), "the channel says nothing within {WAKE:?}");
        assert_eq!(wr_ids(&host.bed.poll_good(end.recv_cq(), 1)), [2]);
        verify(&end.mr, 0, 6, 64);
    }
    host.meet()
}

fn a_wrong_key_is_refused_by_the_other_host(host: &mut Host<'_>) -> Outcome {
    let mut far = host.far::<Rc>(&PairOptions::default())?;
    if host.first {
        let sges = [far.end.mr.sge(0..64)?];
        let wrong = RemoteAddress { rkey: far.remote.rkey ^ 0x5555_5500, ..far.remote };
        far.end.post(Form::Typed, Post::new(Op::Write, 1, Data::Sges(&sges)).remote(wrong))?;
        let failed = host.bed.poll_one(&mut far.end.send_cq);
        assert_eq!(crate::bed::syndrome(&failed), Some(Syndrome::RemoteAccess));
    }
    host.meet()?;
    untouched(&far.end.mr, 0..64);
    Ok(())
}

fn a_queue_pair_that_is_gone_does_not_answer(host: &mut Host<'_>) -> Outcome {
    let connect =
        ConnectOptions::default().timeout(AckTimeout::new(10)?).retry_cnt(RetryCount::new(1)?);
    let mut far = host.far::<Rc>(&PairOptions::default().connect(Some(connect)))?;
    if host.first {
        // Wait until the other host has destroyed its end.
        host.meet()?;
        let sges = [far.end.mr.sge(0..64)?];
        far.end.post(Form::Typed, Post::new(Op::Send, 1, Data::Sges(&sges)))?;
        let failed = host.bed.poll_one(&mut far.end.send_cq);
        assert_eq!(crate::bed::syndrome(&failed), Some(Syndrome::RetryExceeded));
    } else {
        drop(far);
        host.meet()?;
    }
    host.meet()
}
