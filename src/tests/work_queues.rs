//! Work queues whose change of state fails in doubt, and purges by another thread meanwhile.

use super::*;
use crate::testing::Altered;
use mlx5_sim::engine::QpState;
use mlx5_uapi::Errno;
use mlx5_uapi::ioctl::{attr, method};
use mlx5_uapi::verbs::WqState;
use mlx5_uapi::write_cmd::{ModifyWq, WriteCommand};
use mlx5_wqe::{PostError, QueueState};
use std::fs;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use zerocopy::FromBytes;

fn packets() -> Simulator {
    Simulator::new(roce().raw_packets(true))
}

fn recv(queue: &mut WorkQueue) -> Result<(), PostError> {
    queue.recv(1, Sge::default())
}

#[test]
fn nothing_is_posted_to_a_work_queue_whose_reset_is_in_doubt() {
    let simulator = packets();
    let context = open(&simulator);
    let (pd, mut cq) = (context.alloc_pd().unwrap(), context.create_cq(16).build().unwrap());
    let mut queue = pd.create_wq(&cq).max_wr(4).build().unwrap();
    let done = || simulator.fail_call_late(1, Errno::EFAULT);
    let not_done = || simulator.fail_call(1, Errno::EFAULT);
    for (fail, from_error) in
        [(&done as &dyn Fn(), false), (&done, true), (&not_done, false), (&not_done, true)]
    {
        queue.start().unwrap();
        recv(&mut queue).unwrap();
        if from_error {
            queue.to_error().unwrap();
        }
        fail();
        assert!(queue.reset().unwrap_err().in_doubt());
        assert_eq!(recv(&mut queue), Err(PostError::State(QueueState::Reset)));
        // The device may still write completions.
        assert_eq!(queue.purge(&mut cq).unwrap_err().kind(), ErrorKind::InvalidArgument);
        queue.start().unwrap_err();
        queue.reset().unwrap();
        assert_eq!(queue.state(), WqState::Reset);
        queue.purge(&mut cq).unwrap();
        queue.start().unwrap();
        assert_eq!(queue.free(), 4, "what was posted before is forgotten");
        recv(&mut queue).unwrap();
        queue.reset().unwrap();
    }
    // A refusal changes nothing.
    queue.start().unwrap();
    simulator.fail_call(1, Errno::ENOMEM);
    assert!(!queue.reset().unwrap_err().in_doubt());
    assert_eq!(queue.state(), WqState::Ready);
    recv(&mut queue).unwrap();
    drop((queue, cq, pd, context));
    assert_clean(&simulator);
}

#[test]
fn a_work_queue_whose_start_is_in_doubt_is_started_again() {
    let simulator = packets();
    let context = open(&simulator);
    let (pd, mut cq) = (context.alloc_pd().unwrap(), context.create_cq(16).build().unwrap());
    let mut queue = pd.create_wq(&cq).build().unwrap();
    simulator.fail_call_late(1, Errno::EFAULT);
    assert!(queue.start().unwrap_err().in_doubt());
    assert_eq!(recv(&mut queue), Err(PostError::State(QueueState::Reset)));
    assert_eq!(queue.purge(&mut cq).unwrap_err().kind(), ErrorKind::InvalidArgument);
    queue.start().unwrap();
    recv(&mut queue).unwrap();
    // The kernel refused, so nothing was done: the queue is in its former state.
    queue.reset().unwrap();
    simulator.fail_call(1, Errno::ENOMEM);
    queue.start().unwrap_err();
    assert_eq!(queue.purge(&mut cq), Ok(0));
}

/// The kernel is not notified, and passes the former state to the device, which refuses that.
#[test]
fn a_work_queue_that_failed_by_itself_is_reset_and_moved_to_the_error_state() {
    let simulator = packets();
    let context = open(&simulator);
    let (pd, mut cq) = (context.alloc_pd().unwrap(), context.create_cq(16).build().unwrap());
    let mut queue = pd.create_wq(&cq).build().unwrap();
    for round in 0..4 {
        queue.start().unwrap();
        recv(&mut queue).unwrap();
        let failed =
            simulator.fabric().lock().device_mut(0).set_queue_state(queue.wq_num(), QpState::Error);
        failed.unwrap();
        if round % 2 == 1 {
            queue.to_error().unwrap();
            assert_eq!(queue.state(), WqState::Error);
        }
        queue.reset().unwrap();
        queue.purge(&mut cq).unwrap();
    }
    // A refusal for another reason changes nothing.
    queue.start().unwrap();
    for errno in [Errno::EINVAL, Errno::ENOMEM] {
        simulator.fail_call(1, errno);
        queue.reset().unwrap_err();
        assert_eq!(queue.state(), WqState::Ready);
        recv(&mut queue).unwrap();
    }
    queue.reset().unwrap();
}

/// A program that has the parts may have posted to it meanwhile.
#[test]
fn a_work_queue_is_rewound_once_after_each_reset_and_not_before() {
    let simulator = packets();
    let context = open(&simulator);
    let (pd, cq) = (context.alloc_pd().unwrap(), context.create_cq(16).build().unwrap());
    let mut queue = pd.create_wq(&cq).max_wr(4).build().unwrap();
    let record = queue.raw_parts().unwrap().record.cast::<[u8; 4]>();
    // SAFETY: the record is the queue's, and the device does not receive.
    let (read, write) = unsafe {
        (|| record.read_volatile(), |number: u32| record.write_volatile(number.to_be_bytes()))
    };
    write(1);
    queue.rewind().unwrap();
    assert_eq!(read(), [0, 0, 0, 1], "it was not reset");
    queue.start().unwrap();
    queue.reset().unwrap();
    queue.rewind().unwrap();
    assert_eq!(read(), [0; 4]);
    write(2);
    queue.start().unwrap();
    assert_eq!(read(), [0, 0, 0, 2], "it was rewound before");
}

/// Purges `cq` on another thread, and returns as soon as the purge is done or waits.
fn purge_meanwhile(
    target: WorkQueueTarget,
    mut cq: CompletionQueue,
) -> JoinHandle<Result<u32, Error>> {
    let (sender, receiver) = std::sync::mpsc::channel();
    let purges = thread::spawn(move || {
        sender.send(fs::read_link("/proc/thread-self").unwrap()).unwrap();
        target.purge(&mut cq)
    });
    let stat = std::path::Path::new("/proc").join(receiver.recv().unwrap()).join("stat");
    let sleeps = || fs::read_to_string(&stat).is_ok_and(|stat| stat.contains(") S "));
    while !purges.is_finished() && !sleeps() {
        thread::yield_now();
    }
    purges
}

#[test]
fn no_completion_is_purged_once_a_work_queue_is_being_started() {
    let simulator = packets();
    let purger = Arc::new(Mutex::new(None::<(WorkQueueTarget, CompletionQueue)>));
    let purges = Arc::new(Mutex::new(None));
    let (from, to) = (Arc::clone(&purger), Arc::clone(&purges));
    let altered = Altered::new(simulator.kernel(), move |call| {
        use attr::invoke_write as id;
        let command = |command: u64| WriteCommand(command as u32);
        if call.method == method::INVOKE_WRITE
            && call.number(id::WRITE_CMD).map(command) == Some(WriteCommand::MODIFY_WQ_EX)
        {
            let request = ModifyWq::read_from_bytes(call.input(id::CORE_IN)).unwrap();
            assert_eq!(request.wq_state, WqState::Ready.raw());
            let (target, cq) = from.lock().unwrap().take().unwrap();
            *to.lock().unwrap() = Some(purge_meanwhile(target, cq));
        }
        call.pass()
    });
    let context = devices_on(altered).unwrap()[0].open().unwrap();
    let (pd, cq) = (context.alloc_pd().unwrap(), context.create_cq(16).build().unwrap());
    let mut queue = pd.create_wq(&cq).build().unwrap();
    *purger.lock().unwrap() = Some((queue.target(), cq));
    queue.start().unwrap();
    let purged = purges.lock().unwrap().take().unwrap().join().unwrap();
    assert_eq!(purged.unwrap_err().kind(), ErrorKind::InvalidArgument, "the device may write");
}
