//! Objects that threads share without the standard library's locks. `cargo xtask tsan` looks for
//! data races here.
//!
//! There is no test harness. A harness passes results between threads through the standard library,
//! which is built without ThreadSanitizer, so the sanitizer would report them as races. It does
//! know that a thread ends before it is joined.

use std::ptr::NonNull;
use std::sync::Barrier;
use std::thread;

use mlx5_doorbell::{
    CompletionQueueRecord, CompletionQueueRegister, Lock, QueuePairRecord, SendRegister,
};

const THREADS: usize = 4;

fn main() {
    let tests: [(&str, fn()); 2] = [
        (
            "one_thread_at_a_time_has_the_value_of_a_lock",
            one_thread_at_a_time_has_the_value_of_a_lock,
        ),
        ("threads_ring_one_register_without_a_lock", threads_ring_one_register_without_a_lock),
    ];
    for (name, test) in tests {
        test();
        println!("test {name} ... ok");
    }
}

/// Runs `work` on each thread, with the thread's number, and joins them all.
fn on_threads(work: impl Fn(u8) + Sync) {
    let work = &work;
    thread::scope(|scope| {
        let threads: Vec<_> =
            (0..THREADS as u8).map(|number| scope.spawn(move || work(number))).collect();
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    });
}

fn one_thread_at_a_time_has_the_value_of_a_lock() {
    const TIMES: usize = 2000;
    let lock = Lock::new((0, 0));
    on_threads(|_| {
        for _ in 0..TIMES {
            let mut both = lock.lock();
            both.0 += 1;
            assert_eq!(both.0, both.1 + 1, "another thread was in the section");
            both.1 += 1;
        }
    });
    assert_eq!(lock.into_inner(), (THREADS * TIMES, THREADS * TIMES));
}

#[repr(C, align(4096))]
struct Page([u8; 4096]);

impl Page {
    fn at(&mut self, offset: usize) -> NonNull<u8> {
        NonNull::from(&mut self.0[offset..]).cast()
    }
}

/// Any number of threads may arm queues and ring plain doorbells through one register, without a
/// lock. In the end the register holds a whole doorbell of one thread.
fn threads_ring_one_register_without_a_lock() {
    const TIMES: u32 = 500;
    let mut uar = Page([0; 4096]);
    let (arm_at, send_at) = (uar.at(0x20), uar.at(0x800));
    // SAFETY: the register is aligned and inside the page, which outlives the threads.
    let arm = unsafe { CompletionQueueRegister::new(arm_at) };
    // SAFETY: the register is aligned and inside the page, which outlives the threads.
    let senders = [(); THREADS].map(|()| Lock::new(unsafe { SendRegister::doorbell(send_at) }));
    let barrier = Barrier::new(THREADS);
    on_threads(|number| {
        // Every byte of this thread's doorbells is its number.
        let (mut ring, mut records) = (Page([number; 4096]), Page([0; 4096]));
        // SAFETY: both are aligned and inside their pages, eight bytes each, which nothing else
        // uses.
        let (record, armed) = unsafe {
            (QueuePairRecord::new(records.at(0)), CompletionQueueRecord::new(records.at(64)))
        };
        let wqe = ring.at(0);
        let mut sender = senders[usize::from(number)].lock();
        barrier.wait();
        for turn in 0..TIMES {
            arm.arm(armed, number.into(), turn, 0, false);
            // SAFETY: block 0 of the ring page is readable.
            unsafe { sender.ring(record, turn as u16, wqe, 0) };
        }
    });
    let [send, arm] = [0x800, 0x20].map(|at| uar.0[at..at + 8].to_vec());
    assert!(usize::from(send[0]) < THREADS && send.iter().all(|byte| *byte == send[0]));
    let last = (TIMES - 1).to_be_bytes();
    assert_eq!((&arm[..4], &arm[4..7]), (&last[..], &[0; 3][..]), "of one thread, and the last");
    assert!(usize::from(arm[7]) < THREADS);
}
