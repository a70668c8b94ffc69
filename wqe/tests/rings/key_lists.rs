//! Requests that give a key without signatures a list: those of the usual way have the bytes, the record,
//! the doorbell and the refusals of any other configuration.

use crate::bed::{Bed, Spec};
use crate::by_hand::{QPN, least, sges};
use mlx5_wqe::operation::Send;
use mlx5_wqe::{
    Change, ChangeObserver, Completed, ConfigureMkey, ConfiguresMkeys, Finished, ListOwner,
    MAX_MKEY_ENTRIES, MkeyAccess, MkeyLayout, MkeyRequest, MkeyUpdate, PostError, QueueState, Rc,
    SendFlags, Sge, Steps, StepsState,
};
use std::cell::{Cell, RefCell};
use std::sync::{Arc, Mutex};

const SIGNALED: SendFlags = SendFlags::SIGNALED;
const FENCE: SendFlags = SendFlags::FENCE;

/// The key, with a variant of its own.
const KEY: u32 = 0x1234_5678;

/// What became of changes: whether they were executed.
#[derive(Default)]
struct Told(Mutex<Vec<(u64, bool)>>);

impl ChangeObserver for Told {
    fn undo(&self, change: u64) {
        self.0.lock().unwrap().push((change, false));
    }

    fn settle(&self, change: u64) {
        self.0.lock().unwrap().push((change, true));
    }

    /// Those that were posted when the queue went.
    fn mark_unknown(&self, _: u64) {}
}

/// A key and the list that it is given.
struct Listed<'a> {
    pieces: &'a [Sge],
    capacity: u32,
    access: Option<MkeyAccess>,
    /// Whether the usual way is tried, and whether the owner agrees to it.
    tried: bool,
    agrees: bool,
    /// Whether the usual way was taken.
    usual: Cell<bool>,
    /// The lengths that the owner was told.
    lengths: RefCell<Vec<u64>>,
    told: Arc<Told>,
}

impl<'a> Listed<'a> {
    fn new(pieces: &'a [Sge], tried: bool) -> Self {
        Self {
            pieces,
            capacity: 64,
            access: None,
            tried,
            agrees: true,
            usual: Cell::new(false),
            lengths: RefCell::default(),
            told: Arc::default(),
        }
    }

    fn changed(&self, length: u64) -> (u32, Change) {
        let mut lengths = self.lengths.borrow_mut();
        lengths.push(length);
        (KEY, Change::new(Arc::clone(&self.told), lengths.len() as u64))
    }
}

impl ListOwner for &Listed<'_> {
    fn change(&self, length: u64) -> Option<(u32, Change)> {
        self.agrees.then(|| self.changed(length))
    }
}

impl ConfigureMkey for &Listed<'_> {
    fn add<'q, T: ConfiguresMkeys>(self, mut request: MkeyRequest<'q, T>) -> Finished<'q> {
        if self.tried {
            match request.build_list(self.capacity, self.access, self.pieces, &self) {
                Ok(finished) => {
                    self.usual.set(true);
                    return finished;
                }
                Err(back) => request = back,
            }
        }
        self.usual.set(false);
        request.configure(self)
    }

    fn configure<'q, T: ConfiguresMkeys>(self, request: MkeyRequest<'q, T>) -> Finished<'q> {
        let layout = match MkeyLayout::List(self.pieces).sized() {
            Ok(layout) => layout,
            Err(error) => return request.refuse(error),
        };
        let (capacity, access) = (self.capacity, self.access);
        let update = MkeyUpdate { capacity, access, layout: Some(layout), signing: None };
        request.build(update, || self.changed(layout.length()))
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

/// Two queues: one has the usual way, the other one never takes it.
struct Pair {
    spec: Spec,
    usual: Bed<Rc>,
    other: Bed<Rc>,
}

fn blocks_of(pieces: usize) -> u32 {
    2 + pieces.div_ceil(4) as u32
}

impl Pair {
    /// Both at the same block, with something in every byte of the rings.
    fn new(spec: Spec, start: u32) -> Self {
        let bed = || {
            let mut bed = Bed::<Rc>::new(spec);
            bed.ring.write(0, &vec![0xb7; bed.layout.bytes()]);
            bed.advance_to(start);
            bed
        };
        Self { spec, usual: bed(), other: bed() }
    }

    fn each(&mut self) -> [&mut Bed<Rc>; 2] {
        [&mut self.usual, &mut self.other]
    }

    /// The blocks of the largest list that is copied to the register.
    fn copied(&self) -> u32 {
        self.spec.blueflame as u32 / 2 / 64
    }

    fn assert_same(&self, what: &str) {
        let (one, other) = (&self.usual, &self.other);
        assert!(one.ring.all() == other.ring.all(), "ring: {what}");
        assert!(one.uar.all() == other.uar.all(), "doorbell: {what}");
        assert_eq!(one.record.all(), other.record.all(), "{what}");
        assert_eq!(one.queue.free_blocks(), other.queue.free_blocks(), "{what}");
        assert_eq!(one.records.in_flight(), other.records.in_flight(), "{what}");
    }

    fn retire(&self, first: u16, what: &str) -> Option<Completed> {
        let [one, other] = [&self.usual, &self.other].map(|bed| bed.retire(first.into()));
        assert_eq!(one, other, "{what}");
        one
    }

    /// Configures `key` by both ways. Says why both refuse, whether the usual way was taken, and whether
    /// the request was posted by the call for one that configures a key.
    fn configure(
        &mut self,
        wr_id: u64,
        flags: SendFlags,
        key: &mut Listed<'_>,
    ) -> (Result<(), PostError>, bool, bool) {
        let what = format!("{} pieces, {flags:?}, at {}", key.pieces.len(), self.usual.producer());
        key.tried = false;
        let mut batch = self.other.queue.wr_start();
        batch.wr(wr_id, flags).mkey_configure(&*key);
        let other = batch.complete().map_err(|refused| (refused.index(), refused.error()));
        key.tried = true;
        let mut state = StepsState::new();
        let mut steps = self.usual.queue.start_steps(&mut state);
        steps.mkey_configure(wr_id, flags, &*key);
        assert_eq!(steps.is_refused(), other.is_err(), "{what}");
        let single = steps.complete_keyed();
        let usual = if single { Ok(()) } else { steps.complete() };
        let usual = usual.map_err(|refused| (refused.index(), refused.error()));
        assert_eq!(usual, other, "{what}");
        let lengths = key.lengths.take();
        assert!(lengths.iter().all(|length| *length == lengths[0]), "{what}");
        if usual.is_err() {
            // What was refused may lie behind what the device reads.
            let bytes = self.other.ring.all();
            self.usual.ring.write(0, &bytes);
        }
        self.assert_same(&what);
        (usual.map_err(|(_, error)| error), key.usual.get(), single)
    }
}

/// A send, which waits for a configuration before it.
fn send(bed: &mut Bed<Rc>) {
    bed.queue.post_send(&[least(7, SIGNALED)]).unwrap();
}

/// Every number of pieces at every place of the ring, by every register.
#[test]
fn a_list_is_built_as_any_configuration_at_every_place_of_the_ring() {
    let list = sges(17);
    let (mut usual_ones, mut wrapped, mut single_ones) = (0, 0, 0);
    for blueflame in [0, 128, 512] {
        for signal_all in [false, true] {
            let spec = Spec { blueflame, signal_all, ..SMALL };
            for start in 0..16 {
                for count in 0..=list.len() {
                    let mut pair = Pair::new(spec, start);
                    let blocks = blocks_of(count);
                    assert_eq!(pair.usual.layout.blocks, 16);
                    assert_eq!(pair.usual.layout.max_request_blocks, 1);
                    let first = pair.usual.queue.producer();
                    let mut key = Listed::new(&list[..count], true);
                    let (done, usual, single) =
                        pair.configure(u64::from(start), SIGNALED, &mut key);
                    let what = format!("{count} pieces at {start}, register of {blueflame}");
                    assert_eq!(done, Ok(()), "{what}");
                    let whole = start + blocks <= 16;
                    assert_eq!(usual, whole, "{what}");
                    assert_eq!(single, whole && blocks <= pair.copied(), "{what}");
                    usual_ones += usize::from(usual);
                    wrapped += usize::from(!usual);
                    single_ones += usize::from(single);
                    // The next one waits for it, and finds the room that it left.
                    pair.each().into_iter().for_each(send);
                    pair.assert_same(&what);
                    let control = pair.usual.at_block(u32::from(first) + blocks, 16)[11];
                    assert_eq!(control & 0xe0, 0x20, "a small fence: {what}");
                    let record = pair.retire(first, &what).unwrap();
                    assert_eq!(u32::from(record.info.blocks()), blocks);
                    assert_eq!((record.wr_id, record.info.signaled()), (u64::from(start), true));
                }
            }
        }
    }
    assert!(usual_ones > 500 && wrapped > 100 && single_ones > 100);
}

/// The bytes of a request, by hand.
#[test]
fn a_list_has_these_bytes() {
    let list = sges(6);
    let access = MkeyAccess::LOCAL_WRITE | MkeyAccess::REMOTE_READ;
    for access in [None, Some(access)] {
        let mut pair = Pair::new(Spec { requests: 32, ..Spec::default() }, 3);
        let mut key = Listed { access, ..Listed::new(&list, true) };
        assert_eq!(pair.configure(1, SIGNALED, &mut key), (Ok(()), true, true));
        let found = pair.usual.at_block(3, 256);
        let mut control = vec![0, 0, 3, 0x25];
        control.extend((QPN << 8 | 16).to_be_bytes());
        control.extend([0, 0, 0, 8]);
        control.extend(KEY.to_be_bytes());
        assert_eq!(found[..16], control);
        // Inline entries, eight of them.
        assert_eq!((found[16], &found[20..22]), (0x80, &[0, 8][..]));
        let rights = if access.is_some() { 0x1f << 17 | 1 << 14 } else { 0 };
        let mask = u64::from_be_bytes(found[24..32].try_into().unwrap());
        assert_eq!(mask & rights != 0, access.is_some());
        let length: u64 = list.iter().map(|sge| u64::from(sge.length)).sum();
        assert_eq!(found[64 + 16..64 + 24], [0; 8], "no start address");
        assert_eq!(found[64 + 24..64 + 32], length.to_be_bytes());
        assert_eq!(found[64 + 4 + 3], KEY as u8);
        for (at, sge) in list.iter().enumerate() {
            let entry = &found[128 + 16 * at..][..16];
            let bytes = [sge.length.to_be_bytes(), sge.lkey.to_be_bytes()].concat();
            assert_eq!(entry[..8], bytes);
            assert_eq!(entry[8..], sge.addr.to_be_bytes());
        }
        assert_eq!(found[128 + 6 * 16..], [0; 32], "the entries are padded");
        assert_eq!(pair.usual.at_block(7, 64), [0xb7; 64], "nothing behind it is written");
    }
}

/// A queue on which so many blocks are free.
fn with_free(spec: Spec, start: u32, free: u32, flags: SendFlags) -> Pair {
    let mut pair = Pair::new(spec, start);
    for bed in pair.each() {
        while bed.queue.free_blocks() > free {
            bed.queue.post_send(&[least(1, flags)]).unwrap();
            bed.rings += 1;
        }
    }
    pair
}

/// Requests in flight are never overwritten; what has no room is refused, and so is what would leave none
/// behind unsignaled ones.
#[test]
fn a_list_takes_no_more_than_the_room_that_is_left() {
    let list = sges(12);
    let (mut refused, mut close) = (0, 0);
    for (sges, most) in [(2, 1), (9, 3)] {
        for flags in [SendFlags::empty(), SIGNALED] {
            for count in [0, 1, 4, 12] {
                let blocks = blocks_of(count);
                for free in blocks.saturating_sub(1)..=blocks + most + 1 {
                    for start in [0, 5, 15] {
                        let spec = Spec { requests: 16 / most, sges, ..Spec::default() };
                        let mut pair = with_free(spec, start, free, SIGNALED);
                        assert_eq!(pair.usual.layout.max_request_blocks, most);
                        let size = pair.usual.layout.blocks;
                        let head = u32::from(pair.usual.queue.producer()) % size;
                        let whole = head + blocks <= size;
                        let mut key = Listed::new(&list[..count], true);
                        let (done, usual, single) = pair.configure(3, flags, &mut key);
                        let what =
                            format!("{count} pieces, {free} free blocks, {flags:?}, {start}");
                        assert_eq!(done.is_ok(), blocks <= free, "{what}: {done:?}");
                        assert_eq!(usual, whole && blocks + most <= free, "{what}");
                        assert_eq!(single, whole && done.is_ok() && blocks <= 4, "{what}");
                        refused += usize::from(done.is_err());
                        close += usize::from(done.is_ok() && !usual);
                    }
                }
            }
        }
    }
    assert!(refused > 20 && close > 20, "{refused} {close}");
}

/// Unsignaled lists cannot fill the queue.
#[test]
fn a_run_of_unsignaled_lists_leaves_room_for_one_that_is_signaled() {
    let list = sges(4);
    for count in [0, 4] {
        let mut pair = Pair::new(SMALL, 0);
        let mut key = Listed::new(&list[..count], true);
        let mut posted = 0;
        let error = loop {
            match pair.configure(1, SendFlags::empty(), &mut key) {
                (Ok(()), ..) => posted += blocks_of(count),
                (Err(error), ..) => break error,
            }
        };
        let free = pair.usual.queue.free_blocks();
        assert_eq!(posted + free, 16);
        assert!(free >= 1, "{error:?}");
        pair.each().into_iter().for_each(send);
        pair.assert_same("behind the run");
        assert!(pair.retire(posted as u16, "the last one").is_some());
        assert_eq!(pair.usual.queue.free_blocks(), 16);
    }
}

/// Of the flags, a configuration takes a completion and a fence.
#[test]
fn a_list_takes_the_flags_of_a_configuration() {
    let list = sges(3);
    for bits in 0..=SendFlags::all().bits() {
        let flags = SendFlags::from_bits_retain(bits).intersection(SendFlags::all());
        let mut pair = Pair::new(Spec::default(), 0);
        let mut key = Listed::new(&list, true);
        // The second one waits for the first, unless it has a fence of its own.
        for wr_id in 0..2 {
            let (done, usual, single) = pair.configure(wr_id, flags, &mut key);
            let refused = flags.difference(SIGNALED | FENCE);
            let error = PostError::Flags { refused };
            assert_eq!(done, if refused.is_empty() { Ok(()) } else { Err(error) });
            assert_eq!((usual, single), (done.is_ok(), done.is_ok()), "{flags:?}");
        }
    }
}

/// The signature of a request covers all of it.
#[test]
fn a_list_on_a_signed_queue_is_signed() {
    let list = sges(5);
    for count in 0..=list.len() {
        let mut pair = Pair::new(Spec::default(), 0);
        pair.each().into_iter().for_each(|bed| bed.queue.sign_requests());
        let mut key = Listed::new(&list[..count], true);
        let (done, usual, _) = pair.configure(1, SIGNALED, &mut key);
        assert_eq!((done, usual), (Ok(()), false));
        let bytes = pair.usual.at_block(0, blocks_of(count) as usize * 64);
        assert_eq!(bytes.into_iter().fold(0, |sum, byte| sum ^ byte), 0xff, "{count} pieces");
    }
}

/// What is wrong with a list is told as of any configuration, and nothing is posted.
#[test]
fn a_list_that_is_refused_is_told_why() {
    let spec = Spec { requests: 64, ..Spec::default() };
    let mut list = sges(MAX_MKEY_ENTRIES + 1);
    let mut pair = Pair::new(spec, 0);
    let before = pair.usual.uar.all();
    let mut key = Listed::new(&list, true);
    let (given, max) = (MAX_MKEY_ENTRIES as u32 + 1, MAX_MKEY_ENTRIES as u32);
    let many = PostError::TooManyMkeyEntries { given, max };
    assert_eq!(pair.configure(1, SIGNALED, &mut key), (Err(many), false, false));
    let mut key = Listed { capacity: 5, ..Listed::new(&list[..6], true) };
    let many = PostError::TooManyMkeyEntries { given: 6, max: 5 };
    assert_eq!(pair.configure(1, SIGNALED, &mut key), (Err(many), false, false));
    list[3].length = u32::MAX;
    let mut key = Listed::new(&list[..6], true);
    let long = PostError::SgeTooLong { index: 3, length: u32::MAX };
    assert_eq!(pair.configure(1, SIGNALED, &mut key), (Err(long), false, false));
    assert!(pair.usual.uar.all() == before);
    assert_eq!((pair.usual.producer(), pair.usual.records.in_flight()), (0, 0));
    // The longest ones are good, and as many as there can be.
    list[3].length = u32::MAX >> 1;
    let mut key = Listed::new(&list[..MAX_MKEY_ENTRIES], true);
    assert_eq!(pair.configure(1, SIGNALED, &mut key), (Ok(()), true, false));
    let mut key = Listed { capacity: 5, ..Listed::new(&list[..5], true) };
    assert_eq!(pair.configure(1, SIGNALED, &mut key), (Ok(()), true, true));
    // An owner that does not agree has it built in the other way.
    let mut key = Listed { agrees: false, ..Listed::new(&list[..5], true) };
    assert_eq!(pair.configure(1, SIGNALED, &mut key), (Ok(()), false, true));
}

/// A queue that may not send takes no list, and posts none that it took before.
#[test]
fn a_list_is_not_posted_behind_a_gate_that_shut() {
    let list = sges(20);
    for count in [2, 20] {
        let mut pair = Pair::new(Spec::default(), 0);
        pair.each().into_iter().for_each(|bed| bed.gate.gate.set_state(QueueState::Init));
        let before = pair.usual.ring.all();
        let mut key = Listed::new(&list[..count], true);
        let state = Err(PostError::State(QueueState::Init));
        assert_eq!(pair.configure(1, SIGNALED, &mut key), (state, false, false));
        assert!(pair.usual.ring.all() == before && key.told.0.lock().unwrap().is_empty());
        // It shuts between the two calls.
        let Pair { usual: mut bed, .. } = Pair::new(Spec::default(), 0);
        let (uar, mut state) = (bed.uar.all(), StepsState::new());
        let mut steps = bed.queue.start_steps(&mut state);
        steps.mkey_configure(1, SIGNALED, &key);
        assert!(key.usual.get() && !steps.is_refused());
        bed.gate.gate.set_state(QueueState::Reset);
        assert!(!steps.complete_keyed());
        let refused = steps.complete().unwrap_err();
        assert_eq!((refused.index(), refused.error()), (0, PostError::State(QueueState::Reset)));
        assert_eq!((bed.producer(), bed.records.in_flight()), (0, 0));
        assert!(bed.uar.all() == uar);
        assert_eq!(*key.told.0.lock().unwrap(), [(1, false)]);
    }
}

/// What is in a batch by steps.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Step {
    Key,
    Send,
    Refused,
}

/// The call for one request that configures a key posts nothing else.
#[test]
fn a_batch_of_anything_but_one_list_is_not_completed_as_one() {
    let list = sges(3);
    let batches: [(&[Step], bool); 9] = [
        (&[], false),
        (&[Step::Key], true),
        (&[Step::Send], false),
        (&[Step::Refused], false),
        (&[Step::Key, Step::Key], false),
        (&[Step::Key, Step::Send], false),
        (&[Step::Send, Step::Key], false),
        (&[Step::Refused, Step::Key], false),
        (&[Step::Key, Step::Refused], false),
    ];
    for (batch, single) in batches {
        let Pair { usual: mut bed, .. } = Pair::new(Spec::default(), 0);
        let key = Listed::new(&list, true);
        let wrong = Listed { capacity: 2, ..Listed::new(&list, true) };
        let mut state = StepsState::new();
        let mut steps = bed.queue.start_steps(&mut state);
        for step in batch {
            match step {
                Step::Key => steps.mkey_configure(1, SIGNALED, &key),
                Step::Send => push_send(&mut steps),
                Step::Refused => steps.mkey_configure(1, SIGNALED, &wrong),
            }
        }
        let refused = batch.contains(&Step::Refused);
        assert_eq!(steps.is_refused(), refused, "{batch:?}");
        assert_eq!(steps.complete_keyed(), single, "{batch:?}");
        if !single {
            assert_eq!(steps.complete().is_err(), refused, "{batch:?}");
        }
        let expected = if refused { 0 } else { batch.len() };
        assert_eq!(bed.records.in_flight(), expected as u32, "{batch:?}");
    }
}

fn push_send(steps: &mut Steps<'_, Rc>) {
    let sge = sges(1)[0];
    if steps.head::<Send>(1, SIGNALED, [0; 4], ()) {
        assert!(steps.sge(sge));
    } else {
        steps.push_with(|| least(1, SIGNALED));
    }
}

/// The owner learns what became of its changes, in order.
#[test]
fn a_list_that_completed_is_settled_by_the_next_one() {
    let list = sges(2);
    let mut pair = Pair::new(Spec::default(), 0);
    let key = Listed::new(&list, true);
    for wr_id in 1..40 {
        let bed = &mut pair.usual;
        let first = bed.queue.producer();
        let mut state = StepsState::new();
        let mut steps = bed.queue.start_steps(&mut state);
        steps.mkey_configure(wr_id, SIGNALED, &key);
        if !steps.complete_keyed() {
            steps.complete().unwrap();
        }
        let told: Vec<_> = key.told.0.lock().unwrap().clone();
        let expected: Vec<_> = (1..wr_id).map(|change| (change, true)).collect();
        assert_eq!(told, expected);
        assert_eq!(bed.retire(first.into()).map(|done| done.wr_id), Some(wr_id));
    }
}
