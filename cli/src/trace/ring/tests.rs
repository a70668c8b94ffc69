//! Rings in memory that a test writes as a program and a device do, also between two reads.

use super::*;
use mlx5_prm::wqe::Opcode;
use std::cell::{Cell, RefCell};

const RING: u64 = 0x1000;
const RECORD: u64 = 0x800;

type Change = Box<dyn Fn(&Fake)>;

/// Memory from address 0.
struct Fake {
    bytes: RefCell<Vec<u8>>,
    /// A change of the memory before the read of this number.
    change: RefCell<Option<(usize, Change)>>,
    reads: Cell<usize>,
}

impl Fake {
    fn new() -> Self {
        Self { bytes: vec![0; 0x10000].into(), change: None.into(), reads: Cell::new(0) }
    }

    fn put(&self, at: u64, bytes: &[u8]) {
        let at = at as usize;
        self.bytes.borrow_mut()[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn record(&self, word: usize, value: u32) {
        self.put(RECORD + word as u64, &value.to_be_bytes());
    }

    /// Changes something before the `number`th read from now on.
    fn before(&self, number: usize, change: impl Fn(&Self) + 'static) {
        *self.change.borrow_mut() = Some((self.reads.get() + number, Box::new(change)));
    }
}

impl CallerMemory for Fake {
    fn read(&self, address: u64, to: &mut [u8]) -> bool {
        self.reads.set(self.reads.get() + 1);
        let due = self.change.borrow().as_ref().is_some_and(|(at, _)| *at == self.reads.get());
        if due && let Some((_, change)) = self.change.take() {
            change(self);
        }
        let at = address as usize;
        match self.bytes.borrow().get(at..at + to.len()) {
            Some(bytes) => to.copy_from_slice(bytes),
            None => return false,
        }
        true
    }
}

fn place(entries: u64, entry_size: u64) -> Place {
    Place { ring: RING, record: RECORD, entries, entry_size }.checked().expect("a good place")
}

/// Posts a send request of `blocks` blocks to a ring of 8, block by block so that it may wrap.
fn post_send(fake: &Fake, index: u16, blocks: u16) {
    let control = ControlSegment {
        opmod_index_opcode: (u32::from(index) << 8 | Opcode::Send as u32).into(),
        qpn_ds: ((0x48 << 8) | (u32::from(blocks) * 4)).into(),
        ..ControlSegment::default()
    };
    for block in 0..blocks {
        let at = RING + u64::from(index.wrapping_add(block) % 8) * BLOCK as u64;
        fake.put(at, &[0xee; BLOCK]);
        if block == 0 {
            fake.put(at, control.as_bytes());
        }
    }
    let record = queue_pair_record::SEND;
    fake.record(record, u32::from(index.wrapping_add(blocks)));
}

fn indices(moved: &Moved) -> Vec<u32> {
    moved.entries.iter().map(|(index, _)| *index).collect()
}

#[test]
fn send_requests_are_seen_once_also_around_the_end_of_the_ring() {
    let fake = Fake::new();
    let mut ring = SendRing::new(place(8, 64));
    assert_eq!(ring.look(&fake), Ok(Moved::default()));
    post_send(&fake, 0, 1);
    post_send(&fake, 1, 2);
    post_send(&fake, 3, 4);
    let moved = ring.look(&fake).expect("readable");
    assert_eq!((indices(&moved), moved.lost), (vec![0, 1, 3], 0));
    let lengths: Vec<usize> = moved.entries.iter().map(|(_, bytes)| bytes.len()).collect();
    assert_eq!(lengths, [64, 128, 256]);
    assert_eq!(ring.look(&fake), Ok(Moved::default()));
    post_send(&fake, 7, 3);
    let moved = ring.look(&fake).expect("readable");
    assert_eq!((indices(&moved), moved.entries[0].1.len(), moved.lost), (vec![7], 192, 0));
    assert_eq!(moved.entries[0].1[BLOCK..], [0xee; 2 * BLOCK]);
}

#[test]
fn indices_of_sends_go_on_past_16_bits() {
    let fake = Fake::new();
    let mut ring = SendRing::new(place(8, 64));
    fake.record(queue_pair_record::SEND, 0xfffe);
    ring.pass(&fake).expect("readable");
    post_send(&fake, 0xfffe, 1);
    post_send(&fake, 0xffff, 2);
    let moved = ring.look(&fake).expect("readable");
    assert_eq!((indices(&moved), moved.lost), (vec![0xfffe, 0xffff], 0));
}

#[test]
fn overwritten_send_requests_are_counted_and_the_rest_is_found_again() {
    let fake = Fake::new();
    let mut ring = SendRing::new(place(8, 64));
    // 6 requests of two blocks: the first two are gone, the third is whole.
    for index in (0..12).step_by(2) {
        post_send(&fake, index, 2);
    }
    let moved = ring.look(&fake).expect("readable");
    assert_eq!((indices(&moved), moved.lost), (vec![4, 6, 8, 10], 4));
    // One of three blocks, of which the first was overwritten.
    let mut ring = SendRing::new(place(8, 64));
    let fake = Fake::new();
    post_send(&fake, 0, 3);
    post_send(&fake, 3, 5);
    post_send(&fake, 8, 1);
    let moved = ring.look(&fake).expect("readable");
    assert_eq!((indices(&moved), moved.lost), (vec![3, 8], 3));
}

#[test]
fn what_is_overwritten_while_it_is_read_is_lost() {
    let fake = Fake::new();
    let mut ring = SendRing::new(place(8, 64));
    for index in 0..8 {
        post_send(&fake, index, 1);
    }
    // The record, the ring, the record again.
    fake.before(3, |fake| post_send(fake, 8, 2));
    let moved = ring.look(&fake).expect("readable");
    assert_eq!((indices(&moved), moved.lost), (vec![2, 3, 4, 5, 6, 7], 2));
    let moved = ring.look(&fake).expect("readable");
    assert_eq!((indices(&moved), moved.lost), (vec![8], 0));
}

fn post_receives(fake: &Fake, from: u16, count: u16) {
    for index in from..from + count {
        fake.put(RING + u64::from(index % 4) * 32, &[index as u8; 32]);
    }
    fake.record(queue_pair_record::RECEIVE, u32::from(from + count));
}

#[test]
fn receives_are_seen_once_and_those_overwritten_are_counted() {
    let fake = Fake::new();
    let mut ring = ReceiveRing::new(place(4, 32));
    post_receives(&fake, 0, 3);
    let moved = ring.look(&fake).expect("readable");
    assert_eq!((indices(&moved), moved.lost), (vec![0, 1, 2], 0));
    assert_eq!(moved.entries[2].1, [2; 32]);
    post_receives(&fake, 3, 6);
    let moved = ring.look(&fake).expect("readable");
    assert_eq!((indices(&moved), moved.lost), (vec![5, 6, 7, 8], 2));
    assert_eq!(moved.entries[0].1, [5; 32]);
    post_receives(&fake, 9, 3);
    fake.before(3, |fake| post_receives(fake, 12, 3));
    let moved = ring.look(&fake).expect("readable");
    assert_eq!((indices(&moved), moved.lost), (vec![11], 2));
    ring.start_over();
    post_receives(&fake, 0, 1);
    assert_eq!(indices(&ring.look(&fake).expect("readable")), [0]);
}

#[test]
fn a_shared_queue_is_followed_along_its_list() {
    let fake = Fake::new();
    let link = |at: u64, next: u16| {
        let segment = SrqNextSegment { next_wqe_index: next.into(), ..SrqNextSegment::default() };
        fake.put(RING + at * 32, segment.as_bytes());
    };
    let mut ring = SharedRing::new(place(8, 32));
    link(0, 5);
    link(5, 2);
    fake.record(queue_pair_record::RECEIVE, 2);
    assert_eq!(indices(&ring.look(&fake).expect("readable")), [0, 5]);
    fake.record(queue_pair_record::RECEIVE, 3);
    assert_eq!(indices(&ring.look(&fake).expect("readable")), [2]);
    // Once one has completed, its place may be anywhere.
    ring.completed();
    fake.record(queue_pair_record::RECEIVE, 5);
    let moved = ring.look(&fake).expect("readable");
    assert_eq!((indices(&moved), moved.hidden, moved.lost), (vec![], 2, 0));
}

/// Writes the completion of an index, as a device does, into a ring of 4.
fn complete(fake: &Fake, index: u32) {
    let lap = ((index / 4) & 1) as u8;
    let mut cqe = [index as u8; DESCRIPTOR];
    cqe[DESCRIPTOR - 1] = (CqeOpcode::Requester as u8) << OPCODE_SHIFT | lap;
    fake.put(RING + u64::from(index % 4) * DESCRIPTOR as u64, &cqe);
}

fn empty_ring(fake: &Fake) {
    for place in 0..4 {
        let at = RING + place * DESCRIPTOR as u64 + DESCRIPTOR as u64 - 1;
        fake.put(at, &[(CqeOpcode::Invalid as u8) << OPCODE_SHIFT | OWNER]);
    }
}

fn consumed(fake: &Fake, index: u32) {
    fake.record(completion_queue_record::CONSUMER, index & 0xff_ffff);
}

/// No queue has strides.
fn no_strides(_: u32) -> bool {
    false
}

#[test]
fn completions_are_seen_once_in_every_lap() {
    let fake = Fake::new();
    empty_ring(&fake);
    let mut ring = CompletionRing::new(place(4, 64), None);
    assert_eq!(ring.look(&fake, &no_strides), Ok(Moved::default()));
    for lap in 0..5 {
        for index in lap * 4..lap * 4 + 4 {
            complete(&fake, index);
            let moved = ring.look(&fake, &no_strides).expect("readable");
            assert_eq!((indices(&moved), moved.lost), (vec![index], 0));
            assert_eq!(moved.entries[0].1[0], index as u8);
            assert_eq!(ring.look(&fake, &no_strides), Ok(Moved::default()), "{index}");
            consumed(&fake, index + 1);
        }
    }
}

#[test]
fn completions_that_were_overwritten_are_counted_and_the_rest_is_shown() {
    let fake = Fake::new();
    empty_ring(&fake);
    let mut ring = CompletionRing::new(place(4, 64), None);
    // 0 to 6 were written and passed, 7 and 8 wait: 5 to 8 are there.
    for index in 0..9 {
        complete(&fake, index);
    }
    consumed(&fake, 7);
    let moved = ring.look(&fake, &no_strides).expect("readable");
    assert_eq!((indices(&moved), moved.lost), (vec![5, 6, 7, 8], 5));
    // Two laps later the owner bits are those of before.
    for index in 9..17 {
        complete(&fake, index);
    }
    consumed(&fake, 17);
    let moved = ring.look(&fake, &no_strides).expect("readable");
    assert_eq!((indices(&moved), moved.lost), (vec![13, 14, 15, 16], 4));
}

#[test]
fn a_completion_is_taken_whole_though_its_mark_is_read_last() {
    let fake = Fake::new();
    empty_ring(&fake);
    let mut ring = CompletionRing::new(place(4, 64), None);
    // In the first read the mark is there, and the rest is not.
    let mark = (CqeOpcode::Requester as u8) << OPCODE_SHIFT;
    fake.put(RING + DESCRIPTOR as u64 - 1, &[mark]);
    fake.before(3, |fake| complete(fake, 0));
    complete(&fake, 0);
    fake.put(RING, &[0xff; 8]);
    let moved = ring.look(&fake, &no_strides).expect("readable");
    assert_eq!(moved.entries[0].1[..8], [0; 8]);
}

#[test]
fn a_device_that_laps_the_reader_is_not_believed() {
    let fake = Fake::new();
    empty_ring(&fake);
    let mut ring = CompletionRing::new(place(4, 64), None);
    complete(&fake, 0);
    // Between the two reads of the ring two whole laps go by.
    fake.before(3, |fake| {
        for index in 1..9 {
            complete(fake, index);
        }
        consumed(fake, 9);
    });
    let moved = ring.look(&fake, &no_strides).expect("readable");
    assert_eq!((indices(&moved), moved.lost), (vec![5, 6, 7, 8], 5));
}

#[test]
fn the_consumer_index_has_24_bits() {
    let fake = Fake::new();
    empty_ring(&fake);
    // Of the lap before.
    complete(&fake, 0xff_fffd);
    let mut ring = CompletionRing::new(place(4, 64), None);
    // The bits above the index are not part of it.
    fake.record(completion_queue_record::CONSUMER, 0x11ff_fffe);
    ring.pass(&fake).expect("readable");
    for index in [0xff_fffe_u32, 0xff_ffff] {
        complete(&fake, index);
    }
    complete(&fake, 0x100_0000);
    let moved = ring.look(&fake, &no_strides).expect("readable");
    assert_eq!((indices(&moved), moved.lost), (vec![0xff_fffe, 0xff_ffff, 0x100_0000], 0));
    consumed(&fake, 0x100_0001);
    assert_eq!(ring.look(&fake, &no_strides), Ok(Moved::default()));
}

#[test]
fn a_ring_of_another_size_goes_on_with_the_same_index() {
    let fake = Fake::new();
    empty_ring(&fake);
    let mut ring = CompletionRing::new(place(4, 64), None);
    for index in 0..3 {
        complete(&fake, index);
    }
    assert_eq!(indices(&ring.look(&fake, &no_strides).expect("readable")), [0, 1, 2]);
    consumed(&fake, 3);
    ring.resize(Place { ring: RING + 0x1000, record: 0, entries: 8, entry_size: 64 });
    let mut cqe = [9; DESCRIPTOR];
    cqe[DESCRIPTOR - 1] = (CqeOpcode::Requester as u8) << OPCODE_SHIFT;
    let unwritten = [(CqeOpcode::Invalid as u8) << OPCODE_SHIFT | OWNER];
    for place in 0..8 {
        fake.put(RING + 0x1000 + place * 64 + 63, &unwritten);
    }
    fake.put(RING + 0x1000 + 3 * 64, &cqe);
    assert_eq!(indices(&ring.look(&fake, &no_strides).expect("readable")), [3]);
}

#[test]
fn a_compressed_run_is_taken_apart() {
    let fake = Fake::new();
    for place in 0..16 {
        let at = RING + place * 64 + 63;
        fake.put(at, &[(CqeOpcode::Invalid as u8) << OPCODE_SHIFT | OWNER]);
    }
    let mut ring = CompletionRing::new(place(16, 64), Some(MiniFormat::Hash));
    let mut title = Cqe::read_from_bytes(&[0; DESCRIPTOR]).expect("a descriptor");
    title.op_own = (CqeOpcode::Requester as u8) << OPCODE_SHIFT | FORMAT_MASK;
    title.byte_count = 10.into();
    title.sop_drop_qpn = 0x48.into();
    fake.put(RING, title.as_bytes());
    for reported in 0..10_u32 {
        let slot = if reported < 8 { 1 } else { 8 };
        let opcode = Opcode::RdmaWrite as u32;
        let mini = MiniCqe {
            unique: ((reported + 100) << MiniCqe::COUNTER_SHIFT | opcode << MiniCqe::OPCODE_SHIFT)
                .into(),
            byte_count: reported.into(),
        };
        fake.put(RING + slot * 64 + u64::from(reported % 8) * 8, mini.as_bytes());
    }
    let moved = ring.look(&fake, &no_strides).expect("readable");
    assert_eq!(indices(&moved), (0..10).collect::<Vec<_>>());
    for (reported, bytes) in &moved.entries {
        let cqe = Cqe::read_from_bytes(bytes).expect("a descriptor");
        assert_eq!(u32::from(cqe.wqe_counter.get()), reported + 100);
        assert_eq!(cqe.byte_count.get(), *reported);
        assert_eq!(cqe.sop_drop_qpn.get(), (Opcode::RdmaWrite as u32) << 24 | 0x48);
        assert_eq!(cqe.op_own & FORMAT_MASK, 0);
    }
    // Behind it the ring goes on.
    let mut cqe = [7; DESCRIPTOR];
    cqe[DESCRIPTOR - 1] = (CqeOpcode::Requester as u8) << OPCODE_SHIFT;
    fake.put(RING + 10 * 64, &cqe);
    assert_eq!(indices(&ring.look(&fake, &no_strides).expect("readable")), [10]);
}

/// A run of ten packets in an empty ring of 16, whose queue has this user index. Each says eight
/// bytes, by hand from the PRM: two of a checksum and two of a stride, or four of a hash; strides,
/// and length.
fn run_of_packets(format: MiniFormat, minis: &[[u8; 8]; 10]) -> (Fake, CompletionRing) {
    let fake = Fake::new();
    for place in 0..16 {
        fake.put(RING + place * 64 + 63, &[0xf1]);
    }
    let mut title = [0; DESCRIPTOR];
    title[32..36].copy_from_slice(&0x33_u32.to_be_bytes());
    title[44..48].copy_from_slice(&10_u32.to_be_bytes());
    title[60..62].copy_from_slice(&500_u16.to_be_bytes());
    title[63] = 0x2c;
    fake.put(RING, &title);
    for (reported, mini) in (0..).zip(minis) {
        let slot = if reported < 8 { 1 } else { 8 };
        fake.put(RING + slot * 64 + reported % 8 * 8, mini);
    }
    (fake, CompletionRing::new(place(16, 64), Some(format)))
}

/// Index, counter and the number of strides of each, and the number of lost ones.
fn counters(moved: &Moved) -> (Vec<(u32, u16, u16)>, u64) {
    let reported = moved.entries.iter().map(|(index, bytes)| {
        let half = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        (*index, half(60), half(44))
    });
    (reported.collect(), moved.lost)
}

#[test]
fn strides_of_a_run_are_told_or_follow_each_other() {
    // Two strides each, but three of the third; the first ones as the device reports them.
    let taken = |reported: u8| if reported == 2 { 3 } else { 2 };
    let minis: [[u8; 8]; 10] = std::array::from_fn(|reported| {
        [0xbe, reported as u8, 0x01, 7 * reported as u8, 0, taken(reported as u8), 0, 60]
    });
    let strides = |index| index == 0x33;
    let indices = 0..10_u32;
    let reported: Vec<_> =
        indices.clone().map(|at| (at, 0x100 + 7 * at as u16, taken(at as u8).into())).collect();
    let follow = [500, 502, 504, 507, 509, 511, 513, 515, 517, 519];
    let following: Vec<_> =
        indices.clone().map(|at| (at, follow[at as usize], taken(at as u8).into())).collect();
    let counted: Vec<_> = indices.map(|at| (at, 500 + at as u16, taken(at as u8).into())).collect();
    for (format, of_strides, of_others) in [
        (MiniFormat::ChecksumStride, &reported, &counted),
        (MiniFormat::Checksum, &following, &counted),
        (MiniFormat::Hash, &following, &counted),
    ] {
        let (fake, mut ring) = run_of_packets(format, &minis);
        let moved = ring.look(&fake, &strides).expect("readable");
        assert_eq!(counters(&moved), (of_strides.clone(), 0), "{format:?}");
        // The hash or the checksum is its own, and no field marks it as compressed.
        for (reported, (_, bytes)) in (0..).zip(&moved.entries) {
            let (hash, sum): ([u8; 4], [u8; 2]) = match format {
                MiniFormat::Hash => ([0xbe, reported, 0x01, 7 * reported], [0, 0]),
                _ => ([0; 4], [0xbe, reported]),
            };
            assert_eq!((&bytes[12..16], &bytes[20..22]), (&hash[..], &sum[..]), "{format:?}");
            assert_eq!((bytes[47], bytes[63]), (60, 0x20));
        }
        let (fake, mut ring) = run_of_packets(format, &minis);
        let moved = ring.look(&fake, &no_strides).expect("readable");
        assert_eq!(counters(&moved), (of_others.clone(), 0), "{format:?}");
    }
}

#[test]
fn of_a_run_that_was_passed_the_ends_of_whole_arrays_are_lost() {
    let minis = std::array::from_fn(|_| [0, 0, 0, 0, 0, 1, 0, 60]);
    let (fake, mut ring) = run_of_packets(MiniFormat::Checksum, &minis);
    // As a program that passes it marks all places but the title's.
    for place in 1..10 {
        fake.put(RING + place * 64 + 63, &[0xf0]);
    }
    consumed(&fake, 10);
    let moved = ring.look(&fake, &|_| true).expect("readable");
    let (reported, lost) = counters(&moved);
    assert_eq!(
        reported.iter().map(|(index, ..)| *index).collect::<Vec<_>>(),
        [0, 1, 2, 3, 4, 5, 6, 8, 9]
    );
    assert_eq!((reported[7].1, lost), (508, 1));
}

#[test]
fn places_that_no_kernel_makes_are_refused() {
    let good = Place { ring: RING, record: RECORD, entries: 8, entry_size: 64 };
    assert!(good.checked().is_some());
    for bad in [
        Place { entries: 0, ..good },
        Place { entries: 6, ..good },
        Place { entries: 1 << 40, ..good },
        Place { entry_size: 0, ..good },
        Place { entry_size: 1 << 60, ..good },
        Place { entries: 1, entry_size: 1 << 29, ..good },
        Place { entries: 1 << 23, ..good },
        Place { ring: u64::MAX - 10, ..good },
    ] {
        assert_eq!(bad.checked(), None, "{bad:?}");
    }
    for (entry_size, known) in [(16, false), (32, false), (64, true), (128, true), (256, false)] {
        let place = Place { entry_size, ..good };
        assert_eq!(place.checked_completions().is_some(), known, "{entry_size}");
    }
}

#[test]
fn a_ring_that_is_gone_is_told() {
    let fake = Fake::new();
    post_send(&fake, 0, 1);
    let gone = Place { ring: 0x20000, record: RECORD, entries: 8, entry_size: 64 };
    assert_eq!(SendRing::new(gone).look(&fake), Err(Unreadable));
    assert_eq!(CompletionRing::new(gone, None).look(&fake, &no_strides), Err(Unreadable));
    let gone = Place { ring: RING, record: 0x20000, entries: 8, entry_size: 64 };
    assert_eq!(ReceiveRing::new(gone).look(&fake), Err(Unreadable));
}
