//! Requests that configure keys: each has several WQEs and changes the driver's view of the key.

use crate::bed::{Bed, Spec};
use mlx5_prm::wqe::Opcode;
use mlx5_wqe::{
    BsfUpdate, Change, ChangeObserver, ConfigureMkey, ConfiguresMkeys, DrainPoint, Finished,
    MkeyLayout, MkeyRequest, MkeyUpdate, Mode, PendingRequest, PsvUpdate, Rc, Retired, SendFlags,
    Sge, SigningUpdate,
};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

const SIGNALED: SendFlags = SendFlags::SIGNALED;

/// The end of a change, with its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Undone(u64),
    Settled(u64),
    Lost(u64),
}

/// A key created for signatures, and the calls that its observer received.
#[derive(Default)]
pub(crate) struct Key {
    told: Arc<Told>,
    next: Mutex<u64>,
}

#[derive(Default)]
struct Told(Mutex<Vec<Fate>>);

impl ChangeObserver for Told {
    fn undo(&self, change: u64) {
        self.0.lock().unwrap().push(Fate::Undone(change));
    }

    fn settle(&self, change: u64) {
        self.0.lock().unwrap().push(Fate::Settled(change));
    }

    fn mark_unknown(&self, change: u64) {
        self.0.lock().unwrap().push(Fate::Lost(change));
    }
}

impl Key {
    fn told(&self) -> Vec<Fate> {
        std::mem::take(&mut *self.told.0.lock().unwrap())
    }
}

/// Blocks of the WQEs of a request that configures the key: a UMR, and two that set variables.
pub(crate) const PARTS: [u16; 3] = [3, 1, 1];
pub(crate) const BLOCKS: u16 = 5;

impl ConfigureMkey for &Key {
    fn configure<'q, T: ConfiguresMkeys>(self, request: MkeyRequest<'q, T>) -> Finished<'q> {
        let piece = [Sge { addr: 0x1000, length: 512, lkey: 7 }];
        let psv = |index| Some(PsvUpdate { index, transient_signature: 0 });
        let signing =
            SigningUpdate { bsf: BsfUpdate::Keep, error_count: None, psvs: [psv(1), psv(2)] };
        let update = MkeyUpdate {
            capacity: 4,
            access: None,
            layout: Some(MkeyLayout::List(&piece).sized().unwrap()),
            signing: Some(&signing),
        };
        request.build(update, || {
            let mut next = self.next.lock().unwrap();
            *next += 1;
            (0x1200, Change::new(Arc::clone(&self.told), *next))
        })
    }
}

pub(crate) fn bed() -> Bed<Rc> {
    Bed::new(Spec { requests: 32, sges: 2, ..Spec::default() })
}

/// Configures the key, and returns where the request starts.
fn configure(bed: &mut Bed<Rc>, key: &Key, wr_id: u64, flags: SendFlags) -> u16 {
    let first = bed.queue.producer();
    let mut batch = bed.queue.wr_start();
    batch.wr(wr_id, flags).mkey_configure(key);
    batch.complete().unwrap();
    assert_eq!(bed.queue.producer(), first.wrapping_add(BLOCKS));
    first
}

fn send(bed: &mut Bed<Rc>, wr_id: u64) -> u16 {
    let first = bed.queue.producer();
    let mut batch = bed.queue.wr_start();
    batch.wr(wr_id, SIGNALED).send().sge_list(&[]);
    batch.complete().unwrap();
    first
}

/// Completes the request that ends before block `behind`, with an error or without.
fn completes(bed: &Bed<Rc>, behind: u16, failed: bool) {
    let told = bed.records.retire_any(behind.wrapping_sub(1), failed);
    assert!(matches!(told, Some(Retired::Request(_))), "{told:?}");
}

#[test]
fn a_batch_counts_requests_not_their_wqes() {
    let (mut bed, key) = (bed(), Key::default());
    let mut batch = bed.queue.wr_start();
    assert!(batch.is_empty());
    for count in 1..4 {
        batch.wr(count, SIGNALED).mkey_configure(&key);
        assert_eq!(batch.len(), 2 * count as usize - 1);
        batch.wr(count, SIGNALED).send().sge_list(&[]);
        assert_eq!(batch.len(), 2 * count as usize);
    }
    // The index of the bad request counts requests, too.
    batch.wr(9, SIGNALED).send().sge_list(&[Sge { addr: 0, length: 1 << 31, lkey: 0 }]);
    assert_eq!(batch.complete().unwrap_err().index(), 6);
    let mut batch = bed.queue.wr_start();
    batch.wr(1, SIGNALED).mkey_configure(&key);
    assert_eq!(batch.len(), 1);
}

/// The proof that the queue is drained before the WQE at `block`.
fn drained(bed: &Bed<Rc>, block: u16) -> DrainPoint {
    bed.queue.drain_point(block).unwrap()
}

/// A device that has executed the first WQE of a request continues with the others.
#[test]
fn the_rest_of_a_request_that_was_begun_is_not_pending() {
    let (mut bed, key) = (bed(), Key::default());
    for start in [0, 30, 31] {
        bed.advance_to(start);
        let mut batch = bed.queue.wr_start();
        let handle = batch.handle();
        batch.wr(1, SIGNALED).mkey_configure(&key);
        batch.complete().unwrap();
        let first = bed.queue.producer().wrapping_sub(BLOCKS);
        let behind = send(&mut bed, 1);
        let parts = [first, first.wrapping_add(PARTS[0]), behind.wrapping_sub(1)];
        let ring = bed.ring.all();
        for part in &parts[1..] {
            let point = drained(&bed, *part);
            let pending: Vec<_> = bed.queue.pending(point).map(|one| one.info.first()).collect();
            assert_eq!(pending, [behind], "drained before the part at {part}");
            // SAFETY: no device reads the ring.
            let by_handle = unsafe { bed.queue.cancel_handle(point, handle) };
            assert_eq!(by_handle.count(), 0);
            let ask = |request: &PendingRequest| {
                assert_eq!(request.info.first(), behind);
                false
            };
            // SAFETY: no device reads the ring.
            assert_eq!(unsafe { bed.queue.cancel_where(point, ask) }.count(), 0);
            assert!(bed.ring.all() == ring);
        }
        // A cancel by identifier also finds only the request after it.
        let point = drained(&bed, parts[1]);
        // SAFETY: no device reads the ring.
        let cancelled = unsafe { bed.queue.cancel(point, 1) };
        assert_eq!(cancelled.requests().len(), 1);
        assert_eq!(cancelled.requests()[0].info.first(), behind);
        let opcodes =
            [parts[0], parts[1], parts[2], behind].map(|at| bed.at_block(at.into(), 4)[3]);
        let psv = Opcode::SetPsv as u8;
        assert_eq!(opcodes, [Opcode::Umr as u8, psv, psv, Opcode::Nop as u8]);
        // SAFETY: no device reads the ring.
        let again = unsafe { bed.queue.cancel_set(point, &[1], Mode::AllOrNothing) };
        assert_eq!(again.unwrap().count(), 0);
        // A queue that drained before the first WQE has the whole request pending.
        let point = drained(&bed, first);
        // SAFETY: no device reads the ring.
        assert_eq!(unsafe { bed.queue.cancel_handle(point, handle) }.count(), 1);
        let opcodes = parts.map(|at| bed.at_block(at.into(), 4)[3]);
        assert_eq!(opcodes, [Opcode::Nop as u8; 3]);
        completes(&bed, bed.queue.producer(), false);
    }
}

#[test]
fn what_completed_is_certain_and_what_was_cancelled_is_undone() {
    let (mut bed, key) = (bed(), Key::default());
    configure(&mut bed, &key, 1, SIGNALED);
    completes(&bed, BLOCKS, false);
    let second = configure(&mut bed, &key, 2, SIGNALED);
    assert_eq!(key.told(), [Fate::Settled(1)]);
    let point = drained(&bed, second);
    // SAFETY: no device reads the ring.
    assert_eq!(unsafe { bed.queue.cancel(point, 2) }.count(), 1);
    assert_eq!(key.told(), [Fate::Undone(2)]);
}

#[test]
fn a_cancelled_request_of_several_wqes_is_described_as_the_pending_one_was() {
    for way in 0..4 {
        let (mut bed, key) = (bed(), Key::default());
        let mut batch = bed.queue.wr_start();
        let handle = batch.handle();
        batch.wr(1, SIGNALED).mkey_configure(&key);
        batch.complete().unwrap();
        send(&mut bed, 1);
        let point = drained(&bed, 0);
        let pending: Vec<_> = bed.queue.pending(point).collect();
        assert_eq!((pending[0].info.blocks(), pending[0].info.signaled()), (BLOCKS, true));
        let mut asked = Vec::new();
        // SAFETY: no device reads the ring.
        let cancelled = unsafe {
            match way {
                0 => bed.queue.cancel(point, 1),
                1 => bed.queue.cancel_set(point, &[1], Mode::AllOrNothing).unwrap(),
                2 => bed.queue.cancel_handle(point, handle),
                _ => bed.queue.cancel_where(point, |request| {
                    asked.push(*request);
                    true
                }),
            }
        };
        let (count, questions) = (if way == 2 { 1 } else { 2 }, if way == 3 { 2 } else { 0 });
        assert_eq!(cancelled.requests(), &pending[..count], "way {way}");
        assert_eq!(asked, pending[..questions]);
    }
}

/// The requests that the closure has already chosen are cancelled, and their changes undone.
#[test]
fn a_cancel_whose_closure_panics_undoes_the_changes_of_the_requests_before() {
    let (mut bed, key) = (bed(), Key::default());
    configure(&mut bed, &key, 1, SIGNALED);
    let second = configure(&mut bed, &key, 2, SIGNALED);
    let point = drained(&bed, 0);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: no device reads the ring.
        unsafe {
            bed.queue.cancel_where(point, |request| {
                assert_eq!(request.wr_id, 1, "a panic at the second");
                true
            })
        };
    }));
    assert!(panicked.is_err());
    assert_eq!(key.told(), [Fate::Undone(1)]);
    let opcodes = [0, second].map(|at| bed.at_block(at.into(), 4)[3]);
    assert_eq!(opcodes, [Opcode::Nop as u8, Opcode::Umr as u8]);
}

/// The device flushes the requests after an error, and does not report which were executed.
#[test]
fn what_was_outstanding_when_a_request_failed_is_lost() {
    // The request itself fails, or the one after it, or the one before it.
    for which in 0..3 {
        let (mut bed, key) = (bed(), Key::default());
        let before = send(&mut bed, 1) + 1;
        let flags = if which == 0 { SIGNALED } else { SendFlags::empty() };
        let behind_key = configure(&mut bed, &key, 2, flags) + BLOCKS;
        let behind = send(&mut bed, 3) + 1;
        match which {
            0 => completes(&bed, behind_key, true),
            1 => completes(&bed, behind, true),
            _ => {
                completes(&bed, before, true);
                // The requests after it are flushed.
                completes(&bed, behind, true);
            }
        }
        configure(&mut bed, &key, 4, SIGNALED);
        assert_eq!(key.told(), [Fate::Lost(1)], "case {which}");
    }
}

#[test]
fn a_queue_that_is_reset_forgets_that_a_request_failed() {
    let (mut bed, key) = (bed(), Key::default());
    configure(&mut bed, &key, 1, SIGNALED);
    completes(&bed, BLOCKS, true);
    bed.queue.reset();
    assert_eq!(key.told(), [Fate::Lost(1)]);
    configure(&mut bed, &key, 2, SIGNALED);
    completes(&bed, BLOCKS, false);
    configure(&mut bed, &key, 3, SIGNALED);
    assert_eq!(key.told(), [Fate::Settled(2)]);
}

#[test]
fn of_a_request_that_fails_in_several_parts_the_first_is_told() {
    let (mut bed, key) = (bed(), Key::default());
    configure(&mut bed, &key, 7, SIGNALED);
    let Some(Retired::Request(told)) = bed.records.retire_any(0, true) else { panic!("the first") };
    assert_eq!(told.wr_id, 7);
    assert_eq!(bed.records.retire_any(PARTS[0], true), Some(Retired::Duplicate));
    assert_eq!(bed.records.retire_any(PARTS[0] + 1, true), Some(Retired::Duplicate));
    let behind = send(&mut bed, 8) + 1;
    completes(&bed, behind, true);
}

/// A request that failed in the middle before a reset does not hide the failure of a later one.
#[test]
fn a_queue_that_is_reset_forgets_which_request_it_told_of() {
    let (mut bed, key) = (bed(), Key::default());
    configure(&mut bed, &key, 7, SIGNALED);
    assert!(matches!(bed.records.retire_any(0, true), Some(Retired::Request(_))));
    bed.queue.reset();
    configure(&mut bed, &key, 8, SIGNALED);
    // The first part was executed, unsignaled.
    match bed.records.retire_any(PARTS[0], true) {
        Some(Retired::Request(told)) => assert_eq!(told.wr_id, 8),
        other => panic!("not told of: {other:?}"),
    }
}

/// Before a queue writes after the first blocks of its ring, it notes that any block may be
/// written, also for a batch that is dropped.
#[test]
fn a_request_behind_the_first_blocks_opens_the_ring() {
    for keyed in [false, true] {
        let mut bed = Bed::<Rc>::new(Spec { requests: 256, ..Spec::default() });
        let (key, blocks) = (Key::default(), bed.layout.blocks);
        let mut opened = false;
        while !opened {
            let first = bed.queue.producer();
            assert_eq!(bed.records.written_blocks(), 64);
            let mut batch = bed.queue.wr_start();
            match keyed {
                true => batch.wr(1, SIGNALED).mkey_configure(&key),
                false => batch.wr(1, SIGNALED).send().sge_list(&crate::by_hand::sges(2)),
            }
            batch.abort();
            opened = bed.records.written_blocks() == blocks;
            let untouched = vec![0; bed.layout.bytes() - 64 * 64];
            assert!(opened || bed.ring.read(64 * 64, untouched.len()) == untouched);
            assert!(opened || first < 64);
            bed.advance();
        }
    }
}
