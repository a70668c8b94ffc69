//! A batch that is leaked, neither posted nor dropped, has no effect on the next one.

use crate::bed::{Bed, Spec};
use crate::by_hand::{REMOTE, sges};
use mlx5_wqe::{
    BatchError, BsfUpdate, Change, ChangeObserver, ConfigureMkey, ConfiguresMkeys, Finished,
    MkeyAccess, MkeyRequest, MkeyUpdate, PostError, PsvUpdate, Rc, SendFlags, SigningUpdate,
};
use std::mem::forget;
use std::sync::{Arc, Mutex};

const SIGNALED: SendFlags = SendFlags::SIGNALED;
/// Bits of a request that waits for the one before it, which rewrites a key.
const SMALL_FENCE: u8 = 0x20;
const FENCE_BITS: u8 = 0xe0;

/// The ends of a key's changes, in order.
#[derive(Default)]
struct Key(Mutex<Vec<(u64, &'static str)>>);

impl Key {
    fn told(&self) -> Vec<(u64, &'static str)> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl ChangeObserver for Key {
    fn undo(&self, change: u64) {
        self.0.lock().unwrap().push((change, "undone"));
    }

    fn settle(&self, change: u64) {
        self.0.lock().unwrap().push((change, "settled"));
    }

    fn mark_unknown(&self, change: u64) {
        self.0.lock().unwrap().push((change, "lost"));
    }
}

/// A configuration with a change of this number. A signed one also sets a variable.
#[derive(Clone, Copy)]
struct Configure<'a> {
    key: &'a Arc<Key>,
    change: u64,
    signed: bool,
}

impl ConfigureMkey for Configure<'_> {
    fn configure<'q, T: ConfiguresMkeys>(self, request: MkeyRequest<'q, T>) -> Finished<'q> {
        let psv = PsvUpdate { index: 5, transient_signature: 0 };
        let signing =
            SigningUpdate { bsf: BsfUpdate::Keep, error_count: None, psvs: [Some(psv), None] };
        let update = MkeyUpdate {
            capacity: 4,
            access: Some(MkeyAccess::REMOTE_READ),
            layout: None,
            signing: self.signed.then_some(&signing),
        };
        let whose = Arc::clone(self.key);
        request.build(update, || (0x1234_5600, Change::new(whose, self.change)))
    }
}

fn bed() -> (Bed<Rc>, Arc<Key>) {
    (Bed::<Rc>::new(Spec { requests: 64, ..Spec::default() }), Arc::default())
}

fn configure(bed: &mut Bed<Rc>, key: &Arc<Key>, change: u64) -> u16 {
    let first = bed.queue.producer();
    let mut batch = bed.queue.wr_start();
    batch.wr(change, SIGNALED).mkey_configure(Configure { key, change, signed: false });
    batch.complete().unwrap();
    first
}

/// Posts a send, and returns the fence bits of its WQE.
fn fence_of_a_send(bed: &mut Bed<Rc>) -> u8 {
    let first = bed.queue.producer();
    let mut batch = bed.queue.wr_start();
    batch.wr(1, SIGNALED).send().sge(sges(1)[0]);
    batch.complete().unwrap();
    bed.at_block(first.into(), 16)[11] & FENCE_BITS
}

#[test]
fn what_a_leaked_batch_was_refused_for_is_not_told_of_the_next_one() {
    let (mut bed, _) = bed();
    let leak = |bed: &mut Bed<Rc>| {
        let mut batch = bed.queue.wr_start();
        batch.wr(1, SIGNALED).send().sge(sges(1)[0]);
        batch.wr(2, SIGNALED).send().sge_list(&sges(20));
        forget(batch);
    };
    for _ in 0..3 {
        leak(&mut bed);
        bed.queue.wr_start().complete().expect("it is empty, and good");
        leak(&mut bed);
        assert_eq!(fence_of_a_send(&mut bed), 0);
        leak(&mut bed);
        let mut batch = bed.queue.wr_start();
        batch.wr(1, SIGNALED).send().sge(sges(1)[0]);
        batch.wr(2, SIGNALED).rdma_write(REMOTE).sge_list(&sges(2));
        assert_eq!(batch.len(), 2);
        batch.complete().expect("both are good");
        // A refusal of the batch as a whole is reported, wherever it occurs.
        let free = bed.queue.free_blocks();
        for good in 0..3 {
            leak(&mut bed);
            let mut batch = bed.queue.wr_start();
            for _ in 0..good {
                batch.wr(1, SIGNALED).nop();
            }
            batch.wr(2, SIGNALED | SendFlags::SOLICITED).rdma_read(REMOTE).sge(sges(1)[0]);
            let error = PostError::Flags { refused: SendFlags::SOLICITED };
            assert_eq!(batch.complete(), Err(BatchError::new(good, error)));
        }
        assert_eq!(bed.queue.free_blocks(), free);
    }
}

#[test]
fn the_fence_behind_a_configuration_stays_whatever_is_leaked_in_between() {
    let (mut bed, key) = bed();
    for leaked in 0..4 {
        configure(&mut bed, &key, 7);
        let mut batch = bed.queue.wr_start();
        match leaked {
            0 => batch.wr(1, SIGNALED).send().sge(sges(1)[0]),
            1 => batch.wr(1, SIGNALED).nop(),
            2 => batch.wr(1, SIGNALED).send().sge_list(&sges(20)),
            _ => {
                batch.wr(1, SIGNALED).send().sge(sges(1)[0]);
                batch.wr(2, SIGNALED).mkey_configure(Configure {
                    key: &key,
                    change: 8,
                    signed: true,
                });
            }
        }
        forget(batch);
        assert_eq!(fence_of_a_send(&mut bed), SMALL_FENCE, "{leaked}");
        // Only the next request waits.
        assert_eq!(fence_of_a_send(&mut bed), 0, "{leaked}");
    }
}

#[test]
fn nobody_waits_for_a_configuration_that_was_leaked() {
    let (mut bed, key) = bed();
    let mut batch = bed.queue.wr_start();
    batch.wr(1, SIGNALED).mkey_configure(Configure { key: &key, change: 1, signed: true });
    assert_eq!(batch.len(), 1);
    forget(batch);
    assert_eq!(fence_of_a_send(&mut bed), 0);
}

#[test]
fn a_change_of_a_leaked_batch_is_undone_and_never_settled() {
    let (mut bed, key) = bed();
    for signed in [false, true] {
        let settled = configure(&mut bed, &key, 1);
        bed.retire(settled.into()).expect("it is outstanding");
        let mut batch = bed.queue.wr_start();
        batch.wr(2, SIGNALED).mkey_configure(Configure { key: &key, change: 2, signed });
        forget(batch);
        assert_eq!(key.told(), [(1, "settled")]);
        // The request in its place completes.
        let first = bed.queue.producer();
        let mut batch = bed.queue.wr_start();
        batch.wr(3, SIGNALED).send().sge(sges(1)[0]);
        assert_eq!(batch.len(), 1);
        batch.complete().unwrap();
        assert_eq!(key.told(), [(2, "undone")]);
        bed.retire(first.into()).expect("it is outstanding");
        let last = configure(&mut bed, &key, 4);
        assert_eq!(key.told(), []);
        bed.retire(last.into()).expect("it is outstanding");
        configure(&mut bed, &key, 5);
        assert_eq!(key.told(), [(4, "settled")]);
        bed.queue.reset();
        assert_eq!(key.told(), [(5, "lost")]);
    }
}
