//! Requests that give a key without signatures a list, compared with bytes put together by hand.

use crate::bed::{Bed, Spec};
use crate::by_hand::{QPN, Wqe, least, sges};
use mlx5_wqe::{
    Change, ChangeObserver, ConfigureMkey, ConfiguresMkeys, Finished, MAX_MKEY_ENTRIES, MkeyAccess,
    MkeyLayout, MkeyRequest, MkeyUpdate, PostError, QueueState, Rc, SendFlags, Sge,
};
use std::sync::{Arc, Mutex};

const SIGNALED: SendFlags = SendFlags::SIGNALED;
const FENCE: SendFlags = SendFlags::FENCE;

/// The key, with a variant of its own.
const KEY: u32 = 0x1234_5678;

/// The changes that ended, each with whether its request was executed.
#[derive(Default)]
struct Ended(Mutex<Vec<(u64, bool)>>);

impl ChangeObserver for Ended {
    fn undo(&self, change: u64) {
        self.0.lock().unwrap().push((change, false));
    }

    fn settle(&self, change: u64) {
        self.0.lock().unwrap().push((change, true));
    }

    /// Ignores the changes that were outstanding when the queue was dropped.
    fn mark_unknown(&self, _: u64) {}
}

/// A key and its list.
struct Listed<'a> {
    pieces: &'a [Sge],
    capacity: u32,
    access: Option<MkeyAccess>,
    changes: Mutex<u64>,
    ended: Arc<Ended>,
}

impl<'a> Listed<'a> {
    fn new(pieces: &'a [Sge]) -> Self {
        let (changes, ended) = (Mutex::default(), Arc::default());
        Self { pieces, capacity: 64, access: None, changes, ended }
    }

    /// The request by hand, with no access rights.
    fn by_hand(&self, index: u16, control: u8) -> Wqe {
        let entries = self.pieces.len().next_multiple_of(4);
        // Inline entries, and the mask of the changed parts: free, key, length.
        let mut umr = vec![0x80, 0, 0, 0, 0, entries as u8, 0, 0];
        umr.extend((1_u64 << 29 | 1 << 13 | 1).to_be_bytes());
        umr.resize(48, 0);
        let length: u64 = self.pieces.iter().map(|sge| u64::from(sge.length)).sum();
        let mut context = vec![0, 0, 0, 0, 0xff, 0xff, 0xff, KEY as u8];
        context.resize(24, 0);
        context.extend(length.to_be_bytes());
        context.resize(64, 0);
        let wqe = Wqe::control(0x25, index, control, KEY.to_be_bytes()).with(&umr).with(&context);
        let wqe = self.pieces.iter().fold(wqe, |wqe, &sge| wqe.sge(sge));
        (self.pieces.len()..entries).fold(wqe, |wqe, _| wqe.with(&[0; 16]))
    }
}

impl ConfigureMkey for &Listed<'_> {
    fn configure<'q, T: ConfiguresMkeys>(self, request: MkeyRequest<'q, T>) -> Finished<'q> {
        let layout = match MkeyLayout::List(self.pieces).sized() {
            Ok(layout) => Some(layout),
            Err(error) => return request.refuse(error),
        };
        let (capacity, access) = (self.capacity, self.access);
        let update = MkeyUpdate { capacity, access, layout, signing: None };
        request.build(update, || {
            let mut changes = self.changes.lock().unwrap();
            *changes += 1;
            (KEY, Change::new(Arc::clone(&self.ended), *changes))
        })
    }
}

/// A ring of 16 blocks, whose largest message takes one.
const SMALL: Spec = Spec {
    requests: 16,
    sges: 2,
    inline: 0,
    signal_all: false,
    atomics: true,
    blueflame: 512,
    max_message: 1 << 30,
};

fn blocks_of(pieces: usize) -> u32 {
    2 + pieces.div_ceil(4) as u32
}

fn configure(bed: &mut Bed<Rc>, flags: SendFlags, key: &Listed<'_>) -> Result<(), PostError> {
    let mut batch = bed.queue.wr_start();
    batch.wr(5, flags).mkey_configure(key);
    batch.complete().map_err(|refused| {
        assert_eq!(refused.index(), 0);
        refused.error()
    })
}

/// Every number of pieces at every place of the ring, by every register.
#[test]
fn a_list_has_the_bytes_by_hand_at_every_place_of_the_ring() {
    let list = sges(17);
    for (blueflame, signal_all) in [(0, false), (128, true), (512, false)] {
        for (start, count) in (0..16).flat_map(|start| (0..=17).map(move |count| (start, count))) {
            let mut bed = Bed::<Rc>::new(Spec { blueflame, signal_all, ..SMALL });
            bed.ring.write(0, &vec![0xb7; bed.layout.bytes()]);
            bed.advance_to(start);
            let (first, uar) = (bed.queue.producer(), bed.uar.all());
            let key = Listed::new(&list[..count]);
            configure(&mut bed, SIGNALED, &key).unwrap();
            bed.assert_rang_alone(first.into(), &key.by_hand(first, 8), &uar);
            // The next one waits for it.
            bed.queue.post_send(&[least(7, SIGNALED)]).unwrap();
            let control = bed.at_block(u32::from(first) + blocks_of(count), 16)[11];
            assert_eq!(control & 0xe0, 0x20, "a small fence");
            let record = bed.retire(first.into()).unwrap();
            assert_eq!(u32::from(record.info.blocks()), blocks_of(count));
            assert_eq!((record.wr_id, record.info.signaled()), (5, true));
        }
    }
}

#[test]
fn a_list_with_rights_sets_them() {
    let list = sges(6);
    let access = MkeyAccess::LOCAL_WRITE | MkeyAccess::REMOTE_READ;
    let mut bed = Bed::<Rc>::new(Spec::default());
    let key = Listed { access: Some(access), ..Listed::new(&list) };
    configure(&mut bed, SIGNALED, &key).unwrap();
    let found = bed.at_block(0, 256);
    assert_eq!(found[4..8], (QPN << 8 | 16).to_be_bytes());
    let mask = u64::from_be_bytes(found[24..32].try_into().unwrap());
    assert_ne!(mask & (0x1f << 17 | 1 << 14), 0);
    assert_eq!(found[64 + 2], access.bits());
}

/// A list never overwrites requests in flight: one without room is refused.
#[test]
fn a_list_takes_no_more_than_the_room_that_is_left() {
    let list = sges(12);
    let mut refused = 0;
    for flags in [SendFlags::empty(), SIGNALED] {
        for (count, free, start) in [0, 1, 4, 12].into_iter().flat_map(|count| {
            (1..8).flat_map(move |free| [0, 5, 15].map(|start| (count, free, start)))
        }) {
            let mut bed = Bed::<Rc>::new(SMALL);
            bed.advance_to(start);
            while bed.queue.free_blocks() > free {
                bed.queue.post_send(&[least(1, SIGNALED)]).unwrap();
            }
            let oldest = u32::from(bed.queue.producer()) + free;
            let others = bed.at_block(oldest, (16 - free) as usize * 64);
            let done = configure(&mut bed, flags, &Listed::new(&list[..count]));
            let needed = blocks_of(count);
            let expected =
                if needed <= free { Ok(()) } else { Err(PostError::QueueFull { free, needed }) };
            assert_eq!(done, expected);
            assert_eq!(bed.at_block(oldest, others.len()), others);
            refused += usize::from(done.is_err());
        }
    }
    assert!(refused > 20, "{refused}");
}

/// Unsignaled lists cannot fill the queue.
#[test]
fn a_run_of_unsignaled_lists_leaves_room_for_one_that_is_signaled() {
    let list = sges(4);
    for count in [0, 4] {
        let mut bed = Bed::<Rc>::new(SMALL);
        let key = Listed::new(&list[..count]);
        let mut posted = 0;
        while configure(&mut bed, SendFlags::empty(), &key).is_ok() {
            posted += blocks_of(count);
        }
        assert!((1..=blocks_of(count)).contains(&bed.queue.free_blocks()));
        bed.queue.post_send(&[least(7, SIGNALED)]).unwrap();
        assert!(bed.retire(posted).is_some());
        assert_eq!(bed.queue.free_blocks(), 16);
    }
}

/// A configuration takes two flags: completion and fence.
#[test]
fn a_list_takes_the_flags_of_a_configuration() {
    let list = sges(3);
    for flags in (0..=SendFlags::all().bits()).filter_map(SendFlags::from_bits) {
        let mut bed = Bed::<Rc>::new(Spec::default());
        let key = Listed::new(&list);
        let refused = flags.difference(SIGNALED | FENCE);
        // The second request waits for the first, unless it has a fence of its own.
        for fence in [0, 0x20] {
            let first = bed.queue.producer();
            let done = configure(&mut bed, flags, &key);
            if !refused.is_empty() {
                assert_eq!(done, Err(PostError::Flags { refused }));
                continue;
            }
            assert_eq!(done, Ok(()));
            let fence = if flags.contains(FENCE) { FENCE.bits() } else { fence };
            let control = flags.bits() | fence;
            key.by_hand(first, control).assert_eq(&bed.at_block(first.into(), 192));
        }
    }
}

/// The signature of a request covers all of it.
#[test]
fn a_list_on_a_signed_queue_is_signed() {
    let list = sges(5);
    for count in 0..=list.len() {
        let mut bed = Bed::<Rc>::new(Spec::default());
        bed.queue.sign_requests();
        configure(&mut bed, SIGNALED, &Listed::new(&list[..count])).unwrap();
        let bytes = bed.at_block(0, blocks_of(count) as usize * 64);
        assert_eq!(bytes.into_iter().fold(0, |sum, byte| sum ^ byte), 0xff, "{count} pieces");
    }
}

#[test]
fn a_list_that_is_refused_names_its_fault_and_posts_nothing() {
    let mut list = sges(MAX_MKEY_ENTRIES + 1);
    let mut bed = Bed::<Rc>::new(Spec { requests: 64, ..Spec::default() });
    let before = bed.uar.all();
    let (given, max) = (MAX_MKEY_ENTRIES as u32 + 1, MAX_MKEY_ENTRIES as u32);
    let many = PostError::TooManyMkeyEntries { given, max };
    assert_eq!(configure(&mut bed, SIGNALED, &Listed::new(&list)), Err(many));
    let key = Listed { capacity: 5, ..Listed::new(&list[..6]) };
    let many = PostError::TooManyMkeyEntries { given: 6, max: 5 };
    assert_eq!(configure(&mut bed, SIGNALED, &key), Err(many));
    list[3].length = u32::MAX;
    let long = PostError::SgeTooLong { index: 3, length: u32::MAX };
    assert_eq!(configure(&mut bed, SIGNALED, &Listed::new(&list[..6])), Err(long));
    assert!(bed.uar.all() == before);
    assert_eq!((bed.producer(), bed.records.in_flight()), (0, 0));
    // The longest entry is good, and so is the largest number of entries.
    list[3].length = u32::MAX >> 1;
    configure(&mut bed, SIGNALED, &Listed::new(&list[..MAX_MKEY_ENTRIES])).unwrap();
    let key = Listed { capacity: 5, ..Listed::new(&list[..5]) };
    configure(&mut bed, SIGNALED, &key).unwrap();
}

/// A queue that may not send takes no list, and posts none that it took before.
#[test]
fn a_list_is_not_posted_after_the_gate_shut() {
    let list = sges(20);
    for count in [2, 20] {
        let mut bed = Bed::<Rc>::new(Spec::default());
        let (ring, uar, key) = (bed.ring.all(), bed.uar.all(), Listed::new(&list[..count]));
        bed.gate.gate.set_state(QueueState::Init);
        let state = Err(PostError::State(QueueState::Init));
        assert_eq!(configure(&mut bed, SIGNALED, &key), state);
        assert!(bed.ring.all() == ring && key.ended.0.lock().unwrap().is_empty());
        // The gate shuts between the two calls.
        bed.gate.gate.set_state(QueueState::ReadyToSend);
        let mut batch = bed.queue.wr_start();
        batch.wr(1, SIGNALED).mkey_configure(&key);
        assert!(!batch.is_refused());
        bed.gate.gate.set_state(QueueState::Reset);
        let refused = batch.complete().unwrap_err();
        assert_eq!((refused.index(), refused.error()), (0, PostError::State(QueueState::Reset)));
        assert_eq!((bed.producer(), bed.records.in_flight()), (0, 0));
        assert!(bed.uar.all() == uar);
        assert_eq!(*key.ended.0.lock().unwrap(), [(1, false)]);
    }
}

/// The observer learns the ends of its changes in order.
#[test]
fn a_list_that_completed_is_settled_by_the_next_one() {
    let list = sges(2);
    let mut bed = Bed::<Rc>::new(Spec::default());
    let key = Listed::new(&list);
    for number in 1..40 {
        let first = bed.queue.producer();
        configure(&mut bed, SIGNALED, &key).unwrap();
        let expected: Vec<_> = (1..number).map(|change| (change, true)).collect();
        assert_eq!(*key.ended.0.lock().unwrap(), expected);
        assert!(bed.retire(first.into()).is_some());
    }
}
