//! Wrapping counters of a ring, which tests through the public API would take too long to reach.

use super::*;
use crate::queue::{Sent, SentRequest};
use mlx5_prm::cqe::MiniFormat;

/// A queue that accepts every counter. It is not zero-sized, because the table stores its address.
struct Any(#[expect(dead_code, reason = "for its size")] u64);

impl Queue for Any {
    fn retire_send(&self, counter: u16, _: bool) -> Option<Sent> {
        self.retire_next_send(counter).map(Sent::Request)
    }

    fn retire_next_send(&self, counter: u16) -> Option<SentRequest> {
        Some(SentRequest { wr_id: counter.into(), opcode: 0x0a })
    }

    fn retire_receive(&self, _: u16) -> Option<u64> {
        None
    }
}

const ENTRIES: usize = 4;

#[repr(C, align(64))]
struct Memory {
    entries: [[u8; 64]; ENTRIES],
    words: [u32; 4],
}

/// Returns a ring with consumer index `start`, its buffer, and its words.
///
/// # Safety
/// Memory and queue outlive the ring, and nothing else uses them meanwhile except through the
/// returned buffer.
unsafe fn ring_at(
    start: u32,
    format: Option<MiniFormat>,
    memory: NonNull<Memory>,
    queue: NonNull<Any>,
) -> (Ring<Any>, RingBuffer, NonNull<u8>) {
    // SAFETY: the caller promises that `memory` outlives the ring; buffer and words are parts of
    // it.
    unsafe {
        let buffer = NonNull::new_unchecked(&raw mut (*memory.as_ptr()).entries).cast();
        let words: NonNull<u8> = NonNull::new_unchecked(&raw mut (*memory.as_ptr()).words).cast();
        let ring_buffer = RingBuffer { start: buffer, log_size: 2, stride: 64 };
        let table = Arc::new(UserIndexTable::default());
        table.set(1, queue, [RingId(1); 2]);
        let state =
            RingState::new(ring_buffer, CompletionQueueRecord::new(words)).compressed(format);
        let mut ring = Ring::new(RingParts {
            queues: table,
            state: Arc::new(state),
            attention: Attention::new(words.byte_add(8).cast()),
            id: RingId(1),
        });
        ring_buffer.clear_from(start);
        ring.consumer = start;
        ring.find_position();
        ring.publish();
        (ring, ring_buffer, words)
    }
}

/// Compressed runs work across the wrap of the consumer index, wherever they start.
#[test]
fn runs_go_on_where_the_consumer_counter_wraps() {
    for start in [(1 << 24) - 5, (1 << 31) - 6, u32::MAX - 6] {
        let queue = Any(0);
        let mut memory = Memory { entries: [[0; 64]; ENTRIES], words: [0; 4] };
        // SAFETY: both outlive the ring, and are used only through what `ring_at` returns.
        let (mut ring, ring_buffer, _) = unsafe {
            ring_at(start, Some(MiniFormat::Hash), (&mut memory).into(), (&queue).into())
        };
        let entries = ring_buffer.start;
        let store = |index: u32, entry: [u8; 64]| {
            // SAFETY: the CQE is inside the memory.
            unsafe {
                entries.cast::<[u8; 64]>().add(index as usize % ENTRIES).write_volatile(entry)
            };
        };
        let mut first = start;
        for turn in 0..9u32 {
            let count = 2 + turn % 3;
            let mut array = [0; 64];
            for (place, mini) in array.chunks_mut(8).take(count as usize).enumerate() {
                mini[..2].copy_from_slice(&(turn as u16 * 8 + place as u16).to_be_bytes());
            }
            store(first.wrapping_add(1), array);
            let mut title = [0; 64];
            title[35] = 1;
            title[44..48].copy_from_slice(&count.to_be_bytes());
            title[63] = 3 << 2 | ring_buffer.owner(first);
            store(first, title);
            let end = first.wrapping_add(count);
            for place in 0..count {
                assert_eq!(ring.state.end_of(1), Some(end));
                let wr_id = ring.next().map(|completion| completion.wr_id());
                assert_eq!(wr_id, Some(u64::from(turn * 8 + place)));
            }
            assert!(ring.next().is_none());
            ring.publish();
            assert_eq!((ring.consumer(), ring.state.consumed()), (end, end));
            first = end;
        }
        assert_eq!(ring.corruption(), None);
    }
}

/// The consumer index has 32 bits, of which the device reads 24. The ownership bit alternates
/// across the wrap of either.
#[test]
fn the_ring_goes_on_where_the_consumer_counter_wraps() {
    for start in [(1 << 24) - 6, (1 << 31) - 6, u32::MAX - 5] {
        let queue = Any(0);
        let mut memory = Memory { entries: [[0; 64]; ENTRIES], words: [0; 4] };
        // SAFETY: both outlive the ring, and are used only through what `ring_at` returns.
        let (mut ring, ring_buffer, words) =
            unsafe { ring_at(start, None, (&mut memory).into(), (&queue).into()) };
        let entries = ring_buffer.start;
        let write = |index: u32, user_index: u8| {
            let mut entry = [0; 64];
            entry[35] = user_index;
            entry[60..62].copy_from_slice(&(index as u16).to_be_bytes());
            entry[63] = (index / ENTRIES as u32 % 2) as u8;
            // SAFETY: the CQE is inside the memory.
            unsafe {
                entries.cast::<[u8; 64]>().add(index as usize % ENTRIES).write_volatile(entry)
            };
        };
        for old in 1..=ENTRIES as u32 {
            write(start.wrapping_sub(old), 9);
        }
        for turn in 0..6u32 {
            let next = start.wrapping_add(turn * 2);
            assert!(!ring.has_next() && ring.next().is_none());
            assert_eq!(ring.state.end_of(9), None);
            write(next, 1);
            write(next.wrapping_add(1), 1);
            assert_eq!(ring.state.end_of(1), Some(next.wrapping_add(2)));
            for index in [next, next.wrapping_add(1)] {
                let wr_id = ring.next().map(|completion| completion.wr_id());
                assert_eq!(wr_id, Some(u64::from(index as u16)));
            }
            ring.publish();
            assert_eq!(ring.state.consumed(), next.wrapping_add(2));
            // SAFETY: the consumer index is the first of the words in the memory.
            let published = u32::from_be(unsafe { words.cast::<u32>().read_volatile() });
            assert_eq!(published, next.wrapping_add(2) & 0xff_ffff);
        }
        assert_eq!(ring.corruption(), None);
    }
}

/// The device may change a title after the ring has read it. The run uses the title as it was read.
#[test]
fn a_title_that_changes_while_its_run_starts_is_what_it_was() {
    let queue = Any(0);
    for changed in 0..=u8::MAX {
        let mut memory = Memory { entries: [[0; 64]; ENTRIES], words: [0; 4] };
        // SAFETY: both outlive the ring, and are used only through what `ring_at` returns.
        let (mut ring, ring_buffer, _) =
            unsafe { ring_at(0, Some(MiniFormat::Hash), (&mut memory).into(), (&queue).into()) };
        let mut title = [0; 64];
        (title[35], title[47], title[63]) = (1, 3, changed);
        // SAFETY: the CQE is inside the memory.
        unsafe { ring_buffer.start.cast::<[u8; 64]>().write_volatile(title) };
        let found = 2 << OPCODE_SHIFT | 3 << 2;
        ring.run.start(&ring.state, 0, found).expect("a run of three");
        assert_eq!(ring.run.title(), (2, 1, 0), "{changed:#x}");
        let first = ring.run.expand(&ring.state).expect("two of three").expect("compression");
        // SAFETY: two CQEs of the run were expanded, and their end mark after them.
        let last = |entry: usize| unsafe { first.byte_add(entry * 64 + 63).read() };
        assert_eq!([last(0), last(1)], [2 << OPCODE_SHIFT; 2]);
        assert!(crate::state::is_title(last(2)), "{changed:#x}");
    }
}

/// The last CQE of a run is expanded alone, and nothing after it.
#[test]
fn nothing_is_expanded_behind_the_end_of_a_run() {
    let queue = Any(0);
    let mut memory = Memory { entries: [[0; 64]; ENTRIES], words: [0; 4] };
    // SAFETY: both outlive the ring, and are used only through what `ring_at` returns.
    let (mut ring, ring_buffer, _) =
        unsafe { ring_at(0, Some(MiniFormat::Hash), (&mut memory).into(), (&queue).into()) };
    let mut title = [0; 64];
    (title[35], title[47], title[63]) = (1, 3, 3 << 2);
    // SAFETY: the CQE is inside the memory.
    unsafe { ring_buffer.start.cast::<[u8; 64]>().write_volatile(title) };
    ring.run.start(&ring.state, 0, 3 << 2).expect("a run of three");
    for _ in 0..2 {
        assert!(matches!(ring.run.expand(&ring.state), Ok(Some(_))));
    }
    for _ in 0..2 {
        assert_eq!(ring.run.expand(&ring.state), Err(3));
    }
}
