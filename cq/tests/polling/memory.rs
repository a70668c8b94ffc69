//! Heap use of a completion queue: none after creation, and none left after drop.

use crate::bed::{Bed, Entry, Outstanding};
use mlx5_prm::cqe::MiniFormat;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// Counts what each thread allocates.
struct Counting;

#[global_allocator]
static HEAP: Counting = Counting;

thread_local! {
    /// Number of allocations of the thread, and bytes that it has.
    static OF_THREAD: Cell<(usize, isize)> = const { Cell::new((0, 0)) };
}

fn count(allocations: usize, bytes: isize) {
    OF_THREAD.with(|heap| {
        let (before, had) = heap.get();
        heap.set((before + allocations, had + bytes));
    });
}

// SAFETY: the system's allocator does all the work; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(1, layout.size() as isize);
        // SAFETY: the caller's promise for `alloc` is the one that `System` needs.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count(0, -(layout.size() as isize));
        // SAFETY: the caller's promise for `dealloc` is the one that `System` needs, which
        // allocated the memory.
        unsafe { System.dealloc(memory, layout) };
    }
}

fn allocations() -> usize {
    OF_THREAD.get().0
}

fn bytes() -> isize {
    OF_THREAD.get().1
}

#[test]
fn all_that_a_queue_allocates_goes_with_it() {
    let before = bytes();
    let queue = Outstanding::default();
    for index in [5, 5 << 12, 0xff_ffff] {
        let bed = Bed::<Outstanding>::compressed(3, 64, MiniFormat::Hash);
        bed.register(index, &queue);
        assert!(bytes() > before);
        drop(bed);
        assert_eq!(bytes(), before, "a queue with user index {index:#x}");
    }
}

#[test]
fn polling_allocates_nothing() {
    let queue = Outstanding::default();
    let mut bed = Bed::<Outstanding>::new(2, 64);
    bed.register(5, &queue);
    for counter in 0..12 {
        queue.send(counter, 100 + u64::from(counter), 0);
        bed.device.write(Entry::new(0, 5, counter));
        let before = allocations();
        assert_eq!(bed.next_id(), Some(100 + u64::from(counter)));
        assert_eq!(bed.next_id(), None);
        assert_eq!(allocations(), before);
    }
}
