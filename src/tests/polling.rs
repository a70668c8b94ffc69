//! Polling in steps, and sleeping, where something happens in between.

use super::states::{Bed, Pair};
use super::*;
use mlx5_sim::Fault;
use mlx5_uapi::wait::wait_readable;
use mlx5_wqe::SendFlags;
use std::os::fd::AsFd;
use std::time::Duration;

/// Posts what completes on both sides.
fn exchange(pair: &mut Pair, wr_ids: std::ops::Range<u64>) {
    pair.receive(wr_ids.clone().map(|wr_id| wr_id + 100));
    pair.send(wr_ids, SendFlags::SIGNALED);
}

#[test]
fn a_cursor_goes_on_when_a_queue_pair_is_destroyed_meanwhile() {
    let bed = Bed::new();
    let (mut one, mut other) = (bed.pair(None), bed.pair(None));
    exchange(&mut one, 0..2);
    bed.wait_for(4);
    exchange(&mut other, 5..7);
    bed.wait_for(8);
    let mut cursor = bed.cq.into_cursor();
    let first = cursor.start().unwrap().map(|completion| completion.wr_id());
    assert!(first.is_some());
    drop(one);
    let mut rest: Vec<u64> = Vec::new();
    while let Some(completion) = cursor.next() {
        rest.push(completion.wr_id());
    }
    rest.sort_unstable();
    assert_eq!(rest, [5, 6, 105, 106]);
    assert_eq!(cursor.end(), 5);
}

#[test]
fn a_poll_that_finds_corruption_first_fails_and_one_that_finds_it_later_does_not() {
    for good in [0, 1] {
        let mut bed = Bed::new();
        let mut pair = bed.pair(None);
        pair.far.post_recv(&[ReceiveWr { wr_id: 9, sges: &[] }; 2]).unwrap();
        pair.send(0..good, SendFlags::SIGNALED);
        bed.wait_for(2 * good as usize);
        // An opcode that no CQE has.
        let patch = vec![(63, 7 << 4)];
        bed.simulator.inject(0, Fault::CorruptCqe { cqn: Some(bed.cq.cqn()), patch });
        pair.send([3], SendFlags::SIGNALED);
        bed.wait_for(2 * good as usize + 2);
        let corrupt = Err(PollError::Corrupt(Corruption::Opcode(7)));
        if good != 0 {
            assert_eq!(bed.cq.try_poll(16, |_| Ok::<_, PollError>(())), Ok(2));
        }
        assert_eq!(bed.cq.try_poll(16, |_| Ok::<_, PollError>(())), corrupt);
    }
    let bed = Bed::new();
    let mut pair = bed.pair(None);
    let patch = vec![(63, 7 << 4)];
    bed.simulator.inject(0, Fault::CorruptCqe { cqn: Some(bed.cq.cqn()), patch });
    exchange(&mut pair, 0..1);
    bed.wait_for(2);
    let mut cq = bed.cq;
    let mut completions = cq.completions().unwrap();
    assert!(completions.next().is_none());
    assert_eq!(completions.finish(), Err(PollError::Corrupt(Corruption::Opcode(7))));
}

/// While an asynchronous event is unread, who sleeps asks the device whether the queue overran.
#[test]
fn a_queue_that_is_sound_is_not_taken_for_one_that_overran() {
    let bed = Bed::new();
    let channel = bed.context.create_comp_channel().unwrap();
    let mut cq = bed.context.create_cq(4).channel(&channel).build().unwrap();
    let events = bed.context.async_events();
    bed.simulator.set_port_active(0, 1, false);
    assert!(wait_readable(events.as_fd(), None).unwrap());
    assert_eq!(cq.wait(false, Some(Duration::from_millis(20))), Ok(false));
    assert_eq!(cq.poll(1, |_| panic!("nothing was posted")), Ok(0));
    assert!(matches!(events.next(), Ok(Some(AsyncEvent::PortError(1)))));
}
