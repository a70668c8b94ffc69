//! Polling in steps, and sleeping, with events in between.

use super::states::{Bed, Pair};
use super::*;
use crate::testing::{Altered, AlteredCall};
use crate::transport::Rc;
use mlx5_prm::cmd::CommandOpcode;
use mlx5_sim::Fault;
use mlx5_uapi::ioctl::{attr, method};
use mlx5_uapi::wait::wait_readable;
use mlx5_wqe::SendFlags;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// Posts requests that complete on both sides.
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

/// While an asynchronous event is unread, a sleeping thread queries the device for an overrun.
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

/// A queue pair that writes to another one's memory, and completes on a queue of four.
struct Writer {
    simulator: Simulator,
    near: QueuePair<Rc>,
    _far: QueuePair<Rc>,
    memory: MemoryRegion,
    posted: u64,
    /// Number of queries of completion queues that reached the device.
    asked: Arc<AtomicUsize>,
}

/// Whether a call queries a completion queue in the device.
fn asks(call: &mut AlteredCall<'_>) -> bool {
    call.method == method::DEVX_OBJ_QUERY
        && call.input(attr::devx_obj_query::CMD_IN)[..2]
            == (CommandOpcode::QUERY_CQ.0 as u16).to_be_bytes()
}

impl Writer {
    fn new() -> (Self, Context, CompletionQueue) {
        Self::on(3, None)
    }

    /// Makes a writer on a queue of this capacity, with or without compression.
    fn on(entries: u32, compression: Option<CqeCompression>) -> (Self, Context, CompletionQueue) {
        let simulator = Simulator::new(infiniband());
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&asked);
        let kernel = Altered::new(simulator.kernel(), move |call| {
            counted.fetch_add(usize::from(asks(call)), Relaxed);
            call.pass()
        });
        let context = devices_on(kernel).unwrap().remove(0).open().unwrap();
        let pd = context.alloc_pd().unwrap();
        let builder = context.create_cq(entries);
        let builder = match compression {
            Some(format) => builder.compression(format),
            None => builder,
        };
        let cq = builder.build().unwrap();
        let other = context.create_cq(3).build().unwrap();
        assert_eq!(cq.capacity(), entries);
        let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let memory = pd.memory(4096).access(rights).register().unwrap();
        let make = |cq| pd.create_qp::<Rc>(cq, cq).max_inline_data(8).build().unwrap();
        let (mut near, mut far) = (make(&cq), make(&other));
        let (port, psn) = (context.local_port(1, None).unwrap(), Psn::default());
        let options = ConnectOptions::default();
        let (here, there) =
            (near.endpoint(&port, psn, &options), far.endpoint(&port, psn, &options));
        near.connect(&port, psn, &there, &options).unwrap();
        far.connect(&port, psn, &here, &options).unwrap();
        (Self { simulator, near, _far: far, memory, posted: 0, asked }, context, cq)
    }

    /// Posts writes, and lets the device complete them.
    fn write(&mut self, count: u64) {
        let to = self.memory.remote(0..8).unwrap();
        for _ in 0..count {
            let wr_id = self.posted;
            let write = |batch: &mut Batch<'_, Rc>| {
                batch.wr(wr_id, SendFlags::SIGNALED).rdma_write(to).inline_data(b"8 bytes!");
            };
            self.near.post(write).unwrap();
            self.posted += 1;
        }
        self.simulator.run_until_idle();
    }
}

/// The device stops at a queue of four that is never consumed.
#[test]
fn completions_of_leaked_iterators_are_published_by_the_next_poll_of_any_form() {
    type Form = fn(&mut CompletionQueue) -> usize;
    let leaks: [Form; 3] = [
        |cq| {
            let mut completions = cq.completions().unwrap();
            let count = std::iter::from_fn(|| completions.next().map(drop)).count();
            std::mem::forget(completions);
            count
        },
        |cq| {
            let mut completions = cq.completions().unwrap().into_iter();
            let count = completions.by_ref().count();
            std::mem::forget(completions);
            count
        },
        // One completion is left.
        |cq| {
            let mut completions = cq.completions().unwrap();
            let found = usize::from(completions.next().is_some());
            std::mem::forget(completions);
            found
        },
    ];
    let polls: [Form; 6] = [
        |cq| cq.poll(16, |_| {}).unwrap(),
        |cq| cq.poll_fast(16, |_, _| {}).0,
        |cq| usize::from(!cq.poll_nothing()),
        |cq| cq.try_poll(16, |_| Ok::<_, PollError>(())).unwrap(),
        |cq| cq.completions().unwrap().finish().unwrap(),
        |cq| cq.poll_into(&mut [OwnedCompletion::default(); 4]).unwrap(),
    ];
    for (number, leak) in leaks.iter().enumerate() {
        // No other poll happens in between.
        let (mut writer, _context, mut cq) = Writer::new();
        for round in 0..40 {
            writer.write(1);
            assert_eq!(leak(&mut cq), 1, "leak {number}, round {round}");
        }
        // The iterator has passed all written completions, and a poll finds nothing.
        for (form, poll) in polls.iter().enumerate() {
            let (mut writer, _context, mut cq) = Writer::new();
            writer.write(1);
            assert_eq!(leak(&mut cq), 1);
            assert_eq!(cq.inner.published(), 0);
            assert_eq!(poll(&mut cq), 0, "leak {number}, poll {form}");
            assert_eq!(cq.inner.published(), 1, "leak {number}, poll {form}");
        }
    }
    let (mut writer, _context, cq) = Writer::new();
    let shared = cq.into_shared();
    for round in 0..40 {
        writer.write(1);
        assert_eq!(leaks[0](&mut shared.lock()), 1, "round {round}");
    }
    writer.write(1);
    leaks[0](&mut shared.lock());
    assert_eq!(shared.poll(16, |_| {}), Ok(0));
    assert_eq!(shared.lock().inner.published(), 41);
}

#[test]
fn a_cursor_that_is_never_ended_publishes_when_it_finds_nothing() {
    let (mut writer, _context, cq) = Writer::new();
    let mut cursor = cq.into_cursor();
    writer.write(1);
    assert!(cursor.start().unwrap().is_some());
    for round in 1..40 {
        assert!(cursor.next().is_none());
        writer.write(1);
        assert_eq!(cursor.next().map(|completion| completion.wr_id()), Some(round));
    }
    assert_eq!(cursor.end(), 40);
}

#[test]
fn a_reset_after_completions_were_leaked_needs_one_poll() {
    for purges in [false, true] {
        let (mut writer, _context, mut cq) = Writer::new();
        writer.write(1);
        let mut completions = cq.completions().unwrap();
        assert!(completions.next().is_some());
        std::mem::forget(completions);
        writer.near.reset().unwrap();
        assert_eq!(writer.near.forget().map_err(|error| error.kind()), Err(ErrorKind::Busy));
        if purges {
            assert_eq!(writer.near.purge(&mut cq), Ok(0));
        } else {
            assert_eq!(cq.poll(1, |_| panic!("it was passed")), Ok(0));
        }
        writer.near.forget().unwrap();
    }
}

/// Also for a queue that was not empty before, one that is emptied in several polls, and a
/// compressed one.
#[test]
fn an_overrun_is_reported_by_the_poll_after_the_first_that_finds_nothing() {
    for (before, compression) in
        (0..40).map(|number| (number / 2, (number % 2 == 1).then_some(CqeCompression::Hash)))
    {
        for at_once in [1, 2, 16] {
            let (mut writer, _context, mut cq) = Writer::on(15, compression);
            for _ in 0..before {
                writer.write(1);
                assert_eq!(cq.poll(16, |_| {}), Ok(1));
            }
            writer.write(20);
            let mut count = 0;
            loop {
                match cq.poll(at_once, |_| {}) {
                    Ok(0) => break,
                    polled => count += polled.unwrap(),
                }
            }
            assert_eq!(count, 16);
            let next = cq.poll(at_once, |_| {});
            let context = format!("{at_once} after {before}, {compression:?}");
            assert_eq!(next, Err(PollError::Overrun), "{context}");
        }
    }
}

#[test]
fn a_queue_that_is_emptied_in_time_asks_the_device_nothing() {
    for one_by_one in [false, true] {
        let (mut writer, context, mut cq) = Writer::new();
        // With an unread event, each look for an overrun queries the device.
        writer.simulator.set_port_active(0, 1, false);
        writer.simulator.set_port_active(0, 1, true);
        assert!(wait_readable(context.async_events().as_fd(), None).unwrap());
        for _ in 0..400 {
            writer.write(1);
            if one_by_one {
                assert_eq!(cq.try_poll(16, |_| Ok::<_, PollError>(())), Ok(1));
            } else {
                assert_eq!(cq.poll(16, |_| {}), Ok(1));
            }
            // The next look takes that long.
            for _ in 0..100 {
                assert_eq!(cq.poll(16, |_| {}), Ok(0));
            }
        }
        assert_eq!(writer.asked.load(Relaxed), 0);
    }
}

/// A query follows a million empty polls, whatever completes between them.
#[test]
fn rare_completions_do_not_put_off_the_question_what_became_of_the_queue() {
    for one_by_one in [false, true] {
        let (mut writer, _context, mut cq) = Writer::on(15, None);
        for _ in 0..4 {
            writer.write(1);
            if one_by_one {
                assert_eq!(cq.try_poll(16, |_| Ok::<_, PollError>(())), Ok(1));
            } else {
                assert_eq!(cq.poll(16, |_| {}), Ok(1));
            }
            assert_eq!(writer.asked.load(Relaxed), 0);
            assert!((0..1 << 18).all(|_| cq.poll(16, |_| {}) == Ok(0)));
        }
        assert_eq!(writer.asked.load(Relaxed), 1, "one by one: {one_by_one}");
    }
}

/// The event arrives after the queue was found empty.
#[test]
fn an_overrun_whose_event_is_late_is_reported_soon() {
    for unread in [false, true] {
        let (mut writer, context, mut cq) = Writer::new();
        if unread {
            writer.simulator.set_port_active(0, 1, false);
            assert!(wait_readable(context.async_events().as_fd(), None).unwrap());
            writer.simulator.set_port_active(0, 1, true);
        }
        writer.write(4);
        assert_eq!(cq.poll(16, |_| {}), Ok(4));
        assert_eq!(cq.poll(16, |_| {}), Ok(0));
        writer.simulator.inject(0, Fault::OverrunCq(cq.cqn()));
        let polls = (0..1 << 20).find(|_| cq.poll(16, |_| {}).is_err());
        assert!(polls.unwrap() <= 1 << 12, "{polls:?}");
        assert_eq!(cq.poll(16, |_| {}), Err(PollError::Overrun));
    }
}
