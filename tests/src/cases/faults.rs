//! Calls that fail, one by one, and devices that disappear.

mod sessions;

use crate::case::Need;
use crate::prelude::*;
use mlx5::{AsyncEvent, Data, Device, Errno, ErrorKind, PollError};
use mlx5_sim::Simulator;
use sessions::SESSIONS;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub(crate) const CASES: &[Case] = cases![
    any_call_may_run_out_of_memory: SIMULATOR | ROCE,
    any_call_may_be_refused: SIMULATOR | ROCE,
    any_call_may_fail_in_the_firmware: SIMULATOR | ROCE,
    any_call_may_be_interrupted: SIMULATOR | ROCE,
    any_call_may_find_the_device_gone: SIMULATOR | ROCE,
    any_two_calls_in_a_row_may_fail: SIMULATOR | ROCE,
    any_answer_may_not_be_handed_out: SIMULATOR | ROCE,
    any_call_may_be_done_after_the_firmware_was_given_up: SIMULATOR | ROCE,
    any_call_may_be_done_and_called_failed: SIMULATOR | ROCE,
    removal_under_load_is_reported_to_every_thread: SIMULATOR,
    a_poller_finds_out_by_itself_that_the_device_is_gone: SIMULATOR,
    fatal_error_under_load_is_reported_to_every_thread: SIMULATOR,
    a_device_that_was_pulled_out_is_not_listed_any_more: SIMULATOR,
];

/// Fails each call of each session in turn, and `more` calls after it.
fn sweep(bed: &Bed, errno: Errno, more: u64) -> Outcome {
    sweep_with(bed, errno, more, Simulator::fail_call)
}

/// Fails each call of each session in turn, after the kernel has carried it out.
///
/// An object that the call made then exists, and uses memory although no program has its handle; an
/// object that it destroyed is gone, and will be destroyed again. Memory that the device may use
/// stays allocated until the context closes.
fn sweep_late(bed: &Bed, errno: Errno) -> Outcome {
    sweep_with(bed, errno, 0, Simulator::fail_call_late)
}

fn sweep_with(
    bed: &Bed,
    errno: Errno,
    more: u64,
    fail: impl Fn(&Simulator, u64, Errno),
) -> Outcome {
    let simulator = bed.simulator();
    let device = bed.device();
    let there = Need::of_simulated(bed.config());
    for (number, (session, noticed, need)) in SESSIONS.iter().enumerate() {
        if need.lacking(there).is_some() {
            continue;
        }
        let mut failed = 0;
        for call in 1.. {
            let before = simulator.calls();
            for next in 0..=more {
                fail(simulator, call + next, errno);
            }
            let outcome = session(device, bed);
            let made = simulator.calls() - before;
            simulator.fail_no_call();
            let what = || format!("session {number}, call {call}, {errno:?}: {outcome:?}");
            assert_eq!(simulator.object_counts(0), Default::default(), "{}", what());
            assert_eq!(simulator.take_violations(), [], "{}", what());
            if made < call {
                // No call failed, so the session has no more calls.
                outcome?;
                break;
            }
            failed += u64::from(outcome.is_err());
        }
        if errno != Errno::EINTR {
            assert!(failed >= *noticed, "session {number} had only {failed} failed calls");
        }
    }
    Ok(())
}

fn any_call_may_run_out_of_memory(bed: &Bed) -> Outcome {
    sweep(bed, Errno::ENOMEM, 0)
}

fn any_call_may_be_refused(bed: &Bed) -> Outcome {
    sweep(bed, Errno::EINVAL, 0)
}

fn any_call_may_fail_in_the_firmware(bed: &Bed) -> Outcome {
    sweep(bed, Errno::EIO, 0)
}

fn any_call_may_be_interrupted(bed: &Bed) -> Outcome {
    sweep(bed, Errno::EINTR, 0)
}

fn any_call_may_find_the_device_gone(bed: &Bed) -> Outcome {
    sweep(bed, Errno::ENODEV, 0)
}

fn any_two_calls_in_a_row_may_fail(bed: &Bed) -> Outcome {
    sweep(bed, Errno::EBUSY, 1)
}

fn any_answer_may_not_be_handed_out(bed: &Bed) -> Outcome {
    sweep_late(bed, Errno::EFAULT)
}

fn any_call_may_be_done_after_the_firmware_was_given_up(bed: &Bed) -> Outcome {
    sweep_late(bed, Errno::ETIMEDOUT)
}

fn any_call_may_be_done_and_called_failed(bed: &Bed) -> Outcome {
    sweep_late(bed, Errno::EIO)
}

/// Time limit for every thread to notice that the device is gone.
const DEADLINE: Duration = Duration::from_secs(15);

/// The threads that wait for an event meanwhile.
#[derive(Clone, Copy, Default)]
struct Waiters {
    asynchronous: bool,
    /// A channel ends with its device; a fatal error does not wake it before that.
    channel: bool,
}

/// Posts, polls and waits on all sides, until every thread has learned that the device is gone.
fn under_load(bed: &Bed, end: impl FnOnce(), waiters: Waiters) -> Outcome {
    let options = PairOptions::default().one_context(true);
    let Pair { a, b } = bed.pair::<Rc>(&options)?;
    let context = a.context.clone();
    let channel = context.create_comp_channel()?;
    let announced = context.create_cq(16).channel(&channel).build()?;
    announced.arm(false)?;
    let to = b.mr.remote(..)?;
    let (progress, start) = (AtomicU64::new(0), Instant::now());
    let in_time = |waiter: &str| assert!(start.elapsed() < DEADLINE, "{waiter} was not notified");
    let (mut send, receive, control) = a.qp.split();
    let (mut send_cq, mut recv_cq) = (a.send_cq, a.recv_cq.ok_or("two queues")?);
    std::thread::scope(|scope| -> Outcome {
        let poster = scope.spawn(|| {
            loop {
                let mut batch = send.wr_start();
                batch.wr(1, SendFlags::SIGNALED).rdma_write(to).inline_data(b"again and again");
                match batch.complete().map_err(|refused| refused.error()) {
                    Ok(()) => {}
                    Err(PostError::QueueFull { .. }) => std::thread::yield_now(),
                    Err(error) => return error,
                }
                in_time("the poster");
            }
        });
        let poller = scope.spawn(|| {
            loop {
                match send_cq.poll(16, |_| _ = progress.fetch_add(1, Ordering::Relaxed)) {
                    Ok(_) => in_time("the poller"),
                    Err(error) => return error,
                }
            }
        });
        let idle = scope.spawn(|| {
            loop {
                match recv_cq.poll(16, |_| {}) {
                    Ok(_) => in_time("the idle poller"),
                    Err(error) => return error,
                }
            }
        });
        let waiter = waiters.channel.then(|| scope.spawn(|| channel.wait(Some(DEADLINE))));
        let events = waiters.asynchronous.then(|| {
            scope.spawn(|| {
                let events = context.async_events();
                let reported = events.wait(Some(DEADLINE));
                (reported, events.wait(Some(DEADLINE)))
            })
        });
        while progress.load(Ordering::Relaxed) < 1000 {
            in_time("the device");
            std::thread::yield_now();
        }
        end();
        assert_eq!(poster.join().expect("no panic"), PostError::DeviceGone);
        assert_eq!(poller.join().expect("no panic"), PollError::DeviceGone);
        assert_eq!(idle.join().expect("no panic"), PollError::DeviceGone);
        if let Some(events) = events {
            let (reported, then) = events.join().expect("no panic");
            assert_eq!(reported?, Some(AsyncEvent::DeviceFatal));
            assert_eq!(then.expect_err("no more").kind(), ErrorKind::DeviceGone);
        }
        if let Some(waiter) = waiter {
            let reported = waiter.join().expect("no panic");
            assert_eq!(reported.expect_err("no event").kind(), ErrorKind::DeviceGone);
        }
        Ok(())
    })?;
    assert!(context.is_gone());
    drop((send, receive, control, send_cq, recv_cq, announced, channel, b));
    Ok(())
}

fn removal_under_load_is_reported_to_every_thread(bed: &Bed) -> Outcome {
    let waiters = Waiters { asynchronous: true, channel: true };
    under_load(bed, || bed.simulator().remove_device(0), waiters)
}

fn a_poller_finds_out_by_itself_that_the_device_is_gone(bed: &Bed) -> Outcome {
    under_load(bed, || bed.simulator().remove_device(0), Waiters::default())
}

fn fatal_error_under_load_is_reported_to_every_thread(bed: &Bed) -> Outcome {
    let waiters = Waiters { asynchronous: true, channel: false };
    under_load(bed, || bed.simulator().inject(0, Fault::Fatal), waiters)
}

fn a_device_that_was_pulled_out_is_not_listed_any_more(bed: &Bed) -> Outcome {
    let bed = bed.configured(|config| config.devices(2))?;
    let mut pair = bed.pair::<Rc>(&PairOptions::default())?;
    bed.simulator().remove_device(0);
    let left = bed.devices()?;
    assert_eq!(left.iter().map(Device::name).collect::<Vec<_>>(), ["mlx5_1"]);
    assert!(bed.device().open().is_err());
    // The other device is unaffected.
    left[0].open()?.alloc_pd()?.allocate(64)?;
    let error = pair.a.context.alloc_pd().expect_err("it is gone");
    assert_eq!(error.kind(), ErrorKind::DeviceGone);
    let refused = pair.a.post(Form::Typed, Post::new(Op::Send, 1, Data::Inline(&[b"x"])));
    assert_eq!(refused, Err(PostError::DeviceGone));
    Ok(())
}
