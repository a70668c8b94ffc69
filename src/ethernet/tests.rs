//! Queues of packets that fail, or whose device misbehaves.

use super::*;
use crate::testing::{Altered, AlteredCall, stepping, with_steps};
use mlx5_prm::cqe::{CqeOpcode, Syndrome};
use mlx5_sim::engine::QpState;
use mlx5_sim::{Fault, PortConfig, SimConfig, Simulator};
use mlx5_uapi::Errno;
use mlx5_uapi::ioctl::{attr, method};
use mlx5_uapi::write_cmd::WriteCommand;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use zerocopy::IntoBytes;

#[test]
fn a_restart_that_fails_twice_gives_each_buffer_back_once() {
    let simulator = Simulator::new(SimConfig::new().ports([PortConfig::ROCE]).raw_packets(true));
    let context = crate::devices_on(simulator.kernel()).unwrap().remove(0).open().unwrap();
    let builder = context.create_ethernet_queue(1).receives(8).frames(4).sends(8).burst(8);
    let mut queue = builder.build().unwrap();
    let with_device = queue.qp().caps().max_recv_wr - queue.qp().free_receives();
    let all = queue.free_buffers() + with_device as usize;
    let mut frames: Vec<Frame> = (0..4).map(|_| queue.frame().unwrap()).collect();
    simulator.inject(0, Fault::OverrunCq(queue.recv_cq.cqn()));
    let events = context.async_events();
    assert!(events.next().unwrap().is_some(), "the device reports the overrun");
    for _ in 0..2 {
        queue.restart().expect_err("a completion queue that has overrun");
    }
    let mut seen: BTreeSet<*const u8> = frames.iter().map(|frame| frame.as_ptr()).collect();
    while let Some(frame) = queue.frame() {
        assert!(seen.insert(frame.as_ptr()), "a buffer was given out twice");
        frames.push(frame);
    }
    assert_eq!(frames.len(), all);
}

/// Whether a call changes the state of a queue pair.
fn modifies_queue_pair(call: &AlteredCall<'_>) -> bool {
    let write = match call.method {
        method::INVOKE_WRITE => call.number(attr::invoke_write::WRITE_CMD),
        _ => None,
    };
    let modifies = [WriteCommand::MODIFY_QP, WriteCommand::MODIFY_QP_EX];
    modifies.iter().any(|command| write == Some(command.0.into()))
}

/// A queue that posts nothing must not wait: the next call returns the error.
#[test]
fn a_queue_whose_restart_failed_does_not_sleep() {
    let simulator = Simulator::new(SimConfig::new().ports([PortConfig::ROCE]).raw_packets(true));
    let (fails, changes) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let (failing, changed) = (Arc::clone(&fails), Arc::clone(&changes));
    let altered = Altered::new(simulator.kernel(), move |call| {
        if modifies_queue_pair(call)
            // The first modification resets it.
            && failing.load(Relaxed) && changed.fetch_add(1, Relaxed) != 0
        {
            return Err(Errno::ENOMEM);
        }
        call.pass()
    });
    let context = crate::devices_on(altered).unwrap().remove(0).open().unwrap();
    let channel = context.create_comp_channel().unwrap();
    let builder = context.create_ethernet_queue(1).receives(8).frames(4).sends(8);
    let mut queue = builder.channel(&channel).build().unwrap();
    fails.store(true, Relaxed);
    queue.restart().expect_err("it leaves RESET no more");
    assert_eq!(changes.load(Relaxed), 2);
    // Without a limit the test would hang if the queue waited.
    assert!(queue.wait(Some(Duration::from_secs(10))).unwrap(), "there is something to report");
    assert!(!queue.arm().unwrap(), "no event comes");
    let error = queue.receive(|mut packets| assert!(packets.next().is_none())).unwrap_err();
    assert!(matches!(error, EthernetError::Post(_)), "{error}");
    fails.store(false, Relaxed);
    queue.restart().unwrap();
    queue.receive(|mut packets| assert!(packets.next().is_none())).unwrap();
    assert!(!queue.wait(Some(Duration::from_millis(1))).unwrap());
}

/// A device that does nothing until the test steps it.
fn stepped() -> Simulator {
    Simulator::new(SimConfig::new().ports([PortConfig::ROCE]).raw_packets(true).step(true))
}

/// Lets the device complete a packet of 60 bytes, in the receive with this counter.
fn complete_receive(simulator: &Simulator, queue: &EthernetQueue, counter: u16) {
    let mut engine = simulator.fabric().lock();
    let device = engine.device_mut(0);
    let number = queue.qp.qp_num();
    let mut entry = device.completion(number, CqeOpcode::ResponderSend, 0, counter);
    entry.byte_count.set(60);
    let bytes = entry.as_bytes().try_into().unwrap();
    assert!(device.inject_completion(queue.recv_cq.cqn(), bytes, &[]));
}

/// Lets the device write a wrong completion of a frame, so that no completion of sending can be
/// polled any more.
pub(super) fn spoil_sending<M: Mode>(simulator: &Simulator, queue: &mut EthernetQueue<M>) {
    let mut engine = simulator.fabric().lock();
    let device = engine.device_mut(0);
    let entry = device.completion(queue.qp.qp_num(), CqeOpcode::Requester, 0, 77);
    let bytes = entry.as_bytes().try_into().unwrap();
    assert!(device.inject_completion(queue.send_cq.cqn(), bytes, &[]));
    drop(engine);
    assert!(std::iter::repeat_with(|| queue.reap()).take(2).any(|reaped| reaped.is_err()));
    assert_eq!(queue.sending(), 1);
}

#[test]
fn an_error_of_sending_is_one_of_receiving_only_while_no_buffer_can_be_posted() {
    let simulator = stepped();
    let context = crate::devices_on(simulator.kernel()).unwrap().remove(0).open().unwrap();
    let channel = context.create_comp_channel().unwrap();
    let builder = context.create_ethernet_queue(1).receives(2).frames(1).sends(8);
    let mut queue = builder.channel(&channel).build().unwrap();
    let posted = |queue: &EthernetQueue| queue.qp.caps().max_recv_wr - queue.qp.free_receives();
    assert_eq!(posted(&queue), 2);
    let mut frame = queue.frame().unwrap();
    frame.resize(60);
    assert_eq!(queue.send([frame]), Ok(1));
    spoil_sending(&simulator, &mut queue);

    let (mut kept, mut counter) = (Vec::new(), 0);
    let mut keep = |queue: &mut EthernetQueue| {
        complete_receive(&simulator, queue, counter);
        counter += 1;
        queue.receive(|packets| packets.for_each(|packet| kept.push(packet.keep())))
    };
    assert_eq!(keep(&mut queue), Ok(()));
    assert_eq!(posted(&queue), 1);
    assert!(!queue.wait(Some(Duration::ZERO)).unwrap(), "packets may arrive, and none has");
    assert!(matches!(keep(&mut queue), Err(EthernetError::Poll(_))));
    assert_eq!(posted(&queue), 0);
    assert!(queue.wait(Some(Duration::ZERO)).unwrap(), "there is something to report");
    assert!(matches!(queue.receive(|_| ()), Err(EthernetError::Poll(_))));
    // Returned buffers are posted, whatever error sending has.
    kept.pop();
    assert_eq!(queue.receive(|_| ()), Ok(()));
    assert_eq!(posted(&queue), 1);
    assert!(!queue.wait(Some(Duration::ZERO)).unwrap());
    assert!(matches!(queue.send([]), Err(EthernetError::Poll(_))), "sending reports it");
}

/// The device still writes to the receive that it names, which must not become a packet.
#[test]
fn device_that_reports_a_receive_before_its_turn_makes_no_packet() {
    for (counters, good) in
        [(&[0, 1, 2][..], 3), (&[1], 0), (&[0, 1, 3], 2), (&[0, 0], 1), (&[7], 0)]
    {
        let simulator = stepped();
        let context = crate::devices_on(simulator.kernel()).unwrap().remove(0).open().unwrap();
        let builder = context.create_ethernet_queue(1).receives(8).frames(4).sends(8);
        let mut queue = builder.build().unwrap();
        // A program that can reach the queue pair may ask for its raw parts.
        queue.qp().raw_parts().unwrap();
        let all = queue.qp.caps().max_recv_wr - queue.qp.free_receives();
        for counter in counters {
            complete_receive(&simulator, &queue, *counter);
        }
        let mut found = 0;
        queue.receive(|packets| packets.for_each(|_| found += 1)).unwrap();
        assert_eq!(found, good, "{counters:?}");
        let next = queue.receive(|mut packets| packets.next().is_some());
        if good == counters.len() {
            assert_eq!(next, Ok(false));
            continue;
        }
        let error = next.unwrap_err();
        assert!(matches!(error, EthernetError::Poll(PollError::Corrupt(_))), "{error}");
        // The buffers of the others still belong to the device.
        let left = queue.qp.caps().max_recv_wr - queue.qp.free_receives();
        assert_eq!(left as usize + queue.store.mode.free.len(), all as usize + 4, "{counters:?}");
    }
}

/// The device refuses a frame that is shorter than its header.
#[test]
fn a_packet_is_sent_if_it_has_a_header_and_dropped_and_counted_if_not() {
    for (length, sent, not_sent) in [(13, 0, 1), (14, 1, 0)] {
        let simulator = stepped();
        let context = crate::devices_on(simulator.kernel()).unwrap().remove(0).open().unwrap();
        let builder = context.create_ethernet_queue(1).receives(8).frames(4).sends(8);
        let mut queue = builder.build().unwrap();
        complete_receive(&simulator, &queue, 0);
        let burst = |packets: Packets<'_, Single>| packets.for_each(|p| p.send_resized(length));
        queue.receive(burst).unwrap();
        assert_eq!((queue.sending(), queue.counts().not_sent), (sent, not_sent));
        simulator.run_until_idle();
        assert_eq!(queue.reap(), Ok(sent));
        assert_eq!(queue.counts().failed, 0);
    }
}

/// They are not left to be sent with a later burst.
#[test]
fn packets_of_a_burst_are_dropped_and_counted_where_sending_has_failed() {
    let simulator = stepped();
    let context = crate::devices_on(simulator.kernel()).unwrap().remove(0).open().unwrap();
    let builder = context.create_ethernet_queue(1).receives(8).frames(1).sends(8);
    let mut queue = builder.build().unwrap();
    let mut frame = queue.frame().unwrap();
    frame.resize(60);
    assert_eq!(queue.send([frame]), Ok(1));
    spoil_sending(&simulator, &mut queue);
    let here = |queue: &EthernetQueue| {
        let posted = queue.qp.caps().max_recv_wr - queue.qp.free_receives();
        queue.store.mode.free.len() + posted as usize
    };
    let before = here(&queue);
    for counters in [0..2, 2..3] {
        counters.for_each(|counter| complete_receive(&simulator, &queue, counter));
        let burst = queue.receive(|packets| packets.for_each(|packet| packet.send()));
        assert!(matches!(burst, Err(EthernetError::Poll(_))));
    }
    assert_eq!((queue.counts().not_sent, queue.sending()), (3, 1));
    assert_eq!(here(&queue), before, "their buffers are free again");
}

#[test]
fn frames_that_were_sent_go_home_whether_they_share_requests_or_not() {
    for several in [true, false] {
        let simulator = stepped();
        let context = crate::devices_on(simulator.kernel()).unwrap().remove(0).open().unwrap();
        let builder = || context.create_ethernet_queue(1).receives(8).frames(4).sends(8);
        let mut near = builder().build().unwrap();
        let mut far = builder().beside(&near).multi_packet(several).build().unwrap();
        let mut frames = [near.frame(), near.frame(), far.frame()].map(Option::unwrap);
        frames.iter_mut().for_each(|frame| frame.resize(60));
        assert_eq!(far.send(frames), Ok(3));
        simulator.run_until_idle();
        assert_eq!(far.reap(), Ok(3));
        for queue in [&mut near, &mut far] {
            let all: Vec<Frame> = std::iter::from_fn(|| queue.frame()).collect();
            assert_eq!(all.len(), 4, "several: {several}");
        }
    }
}

/// The device may still read it: its buffer must not be reused.
#[test]
fn a_frame_of_a_queue_that_cannot_be_stopped_does_not_go_home() {
    let (simulator, fails) = (stepped(), Arc::new(AtomicBool::new(false)));
    let failing = Arc::clone(&fails);
    let altered = Altered::new(simulator.kernel(), move |call| {
        if modifies_queue_pair(call) && failing.load(Relaxed) {
            return Err(Errno::ENOMEM);
        }
        call.pass()
    });
    let context = crate::devices_on(altered).unwrap().remove(0).open().unwrap();
    let builder = || context.create_ethernet_queue(1).receives(8).frames(4).sends(8);
    let mut near = builder().build().unwrap();
    for (stops, left) in [(true, 4), (false, 3)] {
        let mut far = builder().beside(&near).build().unwrap();
        let mut frame = near.frame().unwrap();
        frame.resize(60);
        assert_eq!(far.send([frame]), Ok(1));
        fails.store(!stops, Relaxed);
        drop(far);
        fails.store(false, Relaxed);
        let all: Vec<Frame> = std::iter::from_fn(|| near.frame()).collect();
        assert_eq!(all.len(), left);
    }
}

#[test]
fn counts_are_printed_in_words() {
    let counts = Counts { received: 9, bad: 1, sent: 8, failed: 2, not_sent: 3, starved: 4 };
    let expected = "9 received, 1 bad; 8 sent, 2 failed, 3 not sent; starved 4 times";
    assert_eq!(counts.to_string(), expected);
}

/// Lets the device complete every posted receive, and keeps the packets.
fn packets_in_all_receives(simulator: &Simulator, queue: &mut EthernetQueue) -> Vec<Frame> {
    let posted = |queue: &EthernetQueue| queue.qp.caps().max_recv_wr - queue.qp.free_receives();
    // Stops refilling, so that the loop ends.
    queue.receiver.worth_a_doorbell = usize::MAX;
    let (mut found, before) = (Vec::new(), posted(queue));
    let mut keep = |queue: &mut EthernetQueue| {
        queue.receive(|packets| packets.for_each(|packet| found.push(packet.keep()))).unwrap();
    };
    // Packets that arrived before.
    keep(queue);
    let mut counter = (before - posted(queue)) as u16;
    while posted(queue) != 0 {
        complete_receive(simulator, queue, counter);
        counter += 1;
        keep(queue);
    }
    found
}

#[track_caller]
fn places_differ(frames: &[Frame], context: &str) {
    let places: BTreeSet<_> = frames.iter().map(|frame| frame.as_ptr()).collect();
    assert_eq!(places.len(), frames.len(), "{context}: a buffer has two owners");
}

/// No buffer has two owners: each frame and each receive has its own.
#[test]
fn a_completion_at_any_step_of_a_restart_gives_no_buffer_to_two() {
    for receive in [true, false] {
        for completions in [1, 3] {
            let mut at = 0;
            while late_completions(at, completions, receive) {
                at += 1;
            }
            assert!(at > 12, "only {at} steps");
        }
    }
}

/// Restarts a queue while the device completes some receives or sends at one step. Returns false if
/// there are fewer steps.
fn late_completions(at: usize, completions: u16, receive: bool) -> bool {
    let simulator = stepped();
    let kernel = stepping(simulator.kernel());
    let context = crate::devices_on(kernel).unwrap().remove(0).open().unwrap();
    let builder = context.create_ethernet_queue(1).receives(8).frames(8).sends(8);
    let mut queue = builder.multi_packet(false).build().unwrap();
    let all =
        queue.free_buffers() + (queue.qp.caps().max_recv_wr - queue.qp.free_receives()) as usize;
    let sent = (0..4).map(|_| {
        let mut frame = queue.frame().unwrap();
        frame.resize(60);
        frame
    });
    let sent: Vec<Frame> = sent.collect();
    assert_eq!(queue.send(sent), Ok(4));
    let (number, steps) = (queue.qp.qp_num(), Rc::new(Cell::new(0)));
    let cqn = if receive { queue.recv_cq.cqn() } else { queue.send_cq.cqn() };
    let opcode = if receive { CqeOpcode::ResponderSend } else { CqeOpcode::Requester };
    let (device, counted) = (simulator.clone(), Rc::clone(&steps));
    let act = move || {
        if counted.replace(counted.get() + 1) == at {
            let mut engine = device.fabric().lock();
            let device = engine.device_mut(0);
            for counter in 0..completions {
                let mut entry = device.completion(number, opcode, 0, counter);
                entry.byte_count.set(60);
                assert!(device.inject_completion(cqn, entry.as_bytes().try_into().unwrap(), &[]));
            }
        }
    };
    let restarted = with_steps(act, || queue.restart());
    let context = format!("{completions} at step {at}, receive: {receive}");
    let mut frames: Vec<Frame> = std::iter::from_fn(|| queue.frame()).collect();
    if let Err(error) = restarted {
        // Nothing completes late any more.
        let again = queue.restart();
        frames.extend(std::iter::from_fn(|| queue.frame()));
        places_differ(&frames, &context);
        panic!("{context}: {error}, and then {again:?}");
    }
    let packets = packets_in_all_receives(&simulator, &mut queue);
    frames.extend(packets);
    assert_eq!(frames.len(), all, "{context}");
    places_differ(&frames, &context);
    steps.get() > at
}

#[test]
#[expect(clippy::forget_non_drop, reason = "a program may, and the queue ends the burst")]
fn bursts_that_are_leaked_do_not_fill_the_completion_queue() {
    let simulator = stepped();
    let context = crate::devices_on(simulator.kernel()).unwrap().remove(0).open().unwrap();
    let builder = context.create_ethernet_queue(1).receives(8).frames(4).sends(8);
    let mut queue = builder.build().unwrap();
    let rounds = 3 * queue.recv_cq.capacity() as u16;
    for counter in 0..rounds {
        complete_receive(&simulator, &queue, counter);
        let found = queue.receive(|mut packets| {
            let found = packets.next().is_some();
            std::mem::forget(packets);
            found
        });
        assert_eq!(found, Ok(true), "{counter} of {rounds}");
    }
}

/// Makes a frame fail: the device moves the send queue to the error state, and does not notify the
/// kernel.
pub(super) fn fail_sending<M: Mode>(simulator: &Simulator, queue: &mut EthernetQueue<M>) {
    let (qpn, syndrome) = (Some(queue.qp.qp_num()), Syndrome::LocalQpOperation);
    simulator.inject(0, Fault::FailRequest { qpn, syndrome, vendor: 0 });
    let (before, mut frame) = (queue.counts().failed, queue.frame().unwrap());
    frame.resize(60);
    assert_eq!(queue.send([frame]), Ok(1));
    simulator.run_until_idle();
    assert_eq!(queue.reap(), Ok(1));
    assert_eq!(queue.counts().failed, before + 1);
}

/// Sends a frame, and returns whether it was sent.
pub(super) fn sends<M: Mode>(simulator: &Simulator, queue: &mut EthernetQueue<M>) -> bool {
    let before = queue.counts().sent;
    let mut frame = queue.frame().unwrap();
    frame.resize(60);
    assert_eq!(queue.send([frame]), Ok(1));
    simulator.run_until_idle();
    queue.reap().unwrap();
    queue.counts().sent == before + 1
}

/// The kernel passes the state that it remembers to the device, which refuses a wrong one. A query
/// fails, and the kernel logs a warning, if the two states that it finds do not fit together.
#[test]
fn a_queue_one_of_whose_halves_failed_unnoticed_is_restarted() {
    for sending in [true, false] {
        let simulator = stepped();
        let kernel = Altered::new(simulator.kernel(), |call| {
            let write = match call.method {
                method::INVOKE_WRITE => call.number(attr::invoke_write::WRITE_CMD),
                _ => None,
            };
            let result = call.pass();
            assert!(write != Some(WriteCommand::QUERY_QP.0.into()) || result.is_ok());
            result
        });
        let context = crate::devices_on(kernel).unwrap().remove(0).open().unwrap();
        let builder = context.create_ethernet_queue(1).receives(8).frames(4).sends(8);
        let mut queue = builder.build().unwrap();
        for _ in 0..3 {
            if sending {
                fail_sending(&simulator, &mut queue);
            } else {
                let rqn = queue.qp.raw_parts().unwrap().packet.rqn;
                let mut engine = simulator.fabric().lock();
                engine.device_mut(0).set_queue_state(rqn, QpState::Error).unwrap();
            }
            queue.restart().unwrap();
            assert!(sends(&simulator, &mut queue));
            complete_receive(&simulator, &queue, 0);
            assert_eq!(queue.receive(|packets| packets.for_each(|packet| drop(packet))), Ok(()));
        }
    }
}

/// Calls return that the queue belongs to the parent; reading the bytes of a frame needs no call.
#[test]
fn child_reads_zeros_in_a_frame_and_neither_receives_nor_sends() {
    let simulator = stepped();
    let context = crate::devices_on(simulator.kernel()).unwrap().remove(0).open().unwrap();
    let mut queue =
        context.create_ethernet_queue(1).receives(8).frames(4).sends(8).build().unwrap();
    let mut frame = queue.frame().unwrap();
    frame.fill(&[0x5a; 60]);
    // SAFETY: the child takes no lock that another thread may hold, except those of the allocator,
    // which a fork leaves usable, and it exits without running the parent's handlers.
    match unsafe { nix::unistd::fork() }.unwrap() {
        nix::unistd::ForkResult::Child => {
            // SAFETY: `alarm` is async-signal-safe. It ends a child that hangs.
            unsafe { nix::libc::alarm(60) };
            let zeros = frame.iter().all(|byte| *byte == 0);
            frame.fill(&[1; 60]);
            let refused = [
                matches!(queue.receive(|_| ()), Err(EthernetError::Poll(PollError::Forked))),
                queue.send([frame]).is_err(),
                queue.restart().is_err(),
            ];
            let wrong = refused.iter().position(|refused| !refused).map_or(0, |at| at as i32 + 2);
            // SAFETY: `_exit` is async-signal-safe, and runs no handler of the parent.
            unsafe { nix::libc::_exit(if zeros { wrong } else { 1 }) }
        }
        nix::unistd::ForkResult::Parent { child } => {
            let ended = nix::sys::wait::waitpid(child, None);
            assert_eq!(ended, Ok(nix::sys::wait::WaitStatus::Exited(child, 0)));
        }
    }
    assert_eq!(frame[..], [0x5a; 60], "the parent has its own");
    assert_eq!(queue.send([frame]), Ok(1));
}
