//! Doorbell registers in UAR pages.

use crate::{CompletionQueueRecord, Lock, QueuePairRecord, barrier};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use mlx5_prm::doorbell::{BLUEFLAME_UNIT, completion_queue_record as cq};

/// A BlueFlame register that several send queues share. It has two halves, used in turn.
pub struct SharedBlueFlame(Lock<Half>);

/// The half to use next.
struct Half(NonNull<u8>);

// SAFETY: an address; what is stored there is ordered by the lock.
unsafe impl Send for Half {}

impl SharedBlueFlame {
    /// Takes the register that starts at `register`.
    pub fn new(register: NonNull<u8>) -> Self {
        Self(Lock::new(Half(register)))
    }

    /// # Safety
    /// As for [`SendRegister::ring`].
    #[inline(never)]
    unsafe fn write(&self, toggle: usize, wqe: NonNull<u8>, copy: u32) {
        // SAFETY: handed down; the lock is held.
        self.with(|half| unsafe { write_half(half, toggle, wqe, copy) });
    }

    fn with<R>(&self, ring: impl FnOnce(&mut NonNull<u8>) -> R) -> R {
        ring(&mut self.0.lock().0)
    }
}

/// Where a send queue rings its doorbell.
pub struct SendRegister {
    /// The half of the register to use next.
    half: NonNull<u8>,
    /// What to add, exclusive or, to go to the other half.
    toggle: usize,
    /// The longest WQE that is copied to the register; zero where only doorbells are rung.
    blueflame_blocks: u32,
    /// The same, where nobody else rings the register.
    own_blueflame_blocks: u32,
    /// Set when others ring the same BlueFlame register.
    shared: Option<NonNull<SharedBlueFlame>>,
}

// SAFETY: the register belongs to this value alone, or is reached under the lock of `shared`.
unsafe impl Send for SendRegister {}

impl SendRegister {
    /// A BlueFlame register of the queue's own, `size` bytes in two halves.
    ///
    /// # Safety
    /// `register` points to a BlueFlame register of that size, aligned to it, in a mapped UAR page;
    /// it is mapped as long as the value lives, and nobody else writes to it.
    pub const unsafe fn blueflame(register: NonNull<u8>, size: usize) -> Self {
        let half = size / 2;
        Self {
            half: register,
            toggle: half,
            blueflame_blocks: (half / BLUEFLAME_UNIT) as u32,
            own_blueflame_blocks: (half / BLUEFLAME_UNIT) as u32,
            shared: None,
        }
    }

    /// A BlueFlame register which other queues ring too.
    ///
    /// # Safety
    /// As for [`SendRegister::blueflame`], but for `shared` and everyone who goes through it;
    /// `shared` lives as long as the value.
    pub const unsafe fn shared_blueflame(shared: NonNull<SharedBlueFlame>, size: usize) -> Self {
        let half = size / 2;
        Self {
            half: NonNull::dangling(),
            toggle: half,
            blueflame_blocks: (half / BLUEFLAME_UNIT) as u32,
            own_blueflame_blocks: 0,
            shared: Some(shared),
        }
    }

    /// A plain doorbell. Several queues may ring the same one: a doorbell is one 8-byte store, and
    /// needs no lock.
    ///
    /// # Safety
    /// `register` points to a doorbell register, aligned to 8, in a UAR page that is mapped as long
    /// as the value lives.
    pub const unsafe fn doorbell(register: NonNull<u8>) -> Self {
        Self {
            half: register,
            toggle: 0,
            blueflame_blocks: 0,
            own_blueflame_blocks: 0,
            shared: None,
        }
    }

    /// The longest WQE, in 64-byte blocks, that is copied to the register; zero for none.
    pub const fn blueflame_blocks(&self) -> u32 {
        self.blueflame_blocks
    }

    /// The same, where the register is this queue's own; zero where it is not.
    #[inline(always)]
    pub const fn own_blueflame_blocks(&self) -> u32 {
        self.own_blueflame_blocks
    }

    /// [`SendRegister::ring`] with a WQE for a BlueFlame register of the queue's own.
    ///
    /// # Safety
    /// As for [`SendRegister::ring`]; `copy` is at least one, and at most
    /// [`SendRegister::own_blueflame_blocks`].
    #[inline(always)]
    pub unsafe fn ring_blueflame(
        &mut self,
        record: QueuePairRecord,
        counter: u16,
        wqe: NonNull<u8>,
        copy: u32,
    ) {
        barrier::to_device();
        record.set_send(counter);
        barrier::write_combining_start();
        // SAFETY: handed down. Most WQEs are of one block.
        unsafe {
            if copy == 1 {
                copy_block(self.half, wqe);
            } else {
                copy_blocks(self.half, wqe, copy);
            }
        }
        barrier::write_combining_flush();
        self.half = other_half(self.half, self.toggle);
    }

    /// Tells the device of `record`'s new counter, after the WQEs that it counts were stored.
    ///
    /// `wqe` is the last WQE in its ring. With `copy` blocks the WQE itself goes to the register
    /// and saves the device the read; `copy` of zero rings the doorbell with its first 8 bytes.
    ///
    /// The order, and why: the WQEs must be there when the device sees the record, and the record
    /// when it sees the register, for it may act on either. The copy is flushed before the register
    /// can be written again. Halves are used in turn, so that the CPU cannot merge two copies.
    ///
    /// # Safety
    /// `wqe` points to `max(copy, 1)` readable blocks, aligned to 64, of the ring that `record`
    /// counts; `copy` is at most [`SendRegister::blueflame_blocks`].
    #[inline(always)]
    pub unsafe fn ring(
        &mut self,
        record: QueuePairRecord,
        counter: u16,
        wqe: NonNull<u8>,
        copy: u32,
    ) {
        barrier::to_device();
        record.set_send(counter);
        if let Some(shared) = self.shared {
            // SAFETY: handed down; it lives as long as `self` by the contract of `shared_blueflame`.
            return unsafe { shared.as_ref().write(self.toggle, wqe, copy) };
        }
        // SAFETY: handed down; the register is this queue's own, or is a plain doorbell.
        unsafe { write_half(&mut self.half, self.toggle, wqe, copy) }
    }

    /// [`SendRegister::ring`] for a WQE that crosses the end of its ring: `first` blocks lie at
    /// `wqe`, the others at `rest`.
    ///
    /// # Safety
    /// As for [`SendRegister::ring`], `first` and `copy - first` blocks being readable at the two
    /// places; `first` is less than `copy`.
    #[cold]
    pub unsafe fn ring_wrapped(
        &mut self,
        record: QueuePairRecord,
        counter: u16,
        wqe: NonNull<u8>,
        first: u32,
        rest: NonNull<u8>,
        copy: u32,
    ) {
        barrier::to_device();
        record.set_send(counter);
        let toggle = self.toggle;
        let write = |half: &mut NonNull<u8>| {
            barrier::write_combining_start();
            // SAFETY: lengths by the contract; the half holds `copy` blocks.
            unsafe {
                copy_blocks(*half, wqe, first);
                copy_blocks(half.byte_add(first as usize * BLUEFLAME_UNIT), rest, copy - first);
            }
            barrier::write_combining_flush();
            *half = other_half(*half, toggle);
        };
        match self.shared {
            // SAFETY: lives as long as `self` by the contract of `shared_blueflame`.
            Some(shared) => unsafe { shared.as_ref() }.with(write),
            None => write(&mut self.half),
        }
    }
}

/// # Safety
/// As for [`SendRegister::ring`]; nobody else writes to the register meanwhile, unless `copy` is
/// zero.
#[inline(always)]
unsafe fn write_half(half: &mut NonNull<u8>, toggle: usize, wqe: NonNull<u8>, copy: u32) {
    barrier::write_combining_start();
    match copy {
        // SAFETY: the first 8 bytes of a WQE, and a doorbell register.
        0 => unsafe { ring_doorbell(*half, wqe.cast().read()) },
        // SAFETY: handed down. Most WQEs are of one block.
        1 => unsafe { copy_block(*half, wqe) },
        // SAFETY: handed down.
        _ => unsafe { copy_blocks(*half, wqe, copy) },
    }
    barrier::write_combining_flush();
    *half = other_half(*half, toggle);
}

/// Stores a doorbell. Others may store theirs to the same register at the same time: it is one store
/// of eight bytes, which none of them tears, and atomic, lest two of them be a data race.
///
/// # Safety
/// `register` is eight bytes of a UAR page, aligned to 8, to which nobody stores but atomically.
#[inline(always)]
unsafe fn ring_doorbell(register: NonNull<u8>, doorbell: u64) {
    // SAFETY: handed down.
    unsafe { register.cast::<AtomicU64>().as_ref() }.store(doorbell, Relaxed);
}

/// The other half of a register. Both lie in one page at an offset of at least
/// [`mlx5_prm::doorbell::BLUEFLAME`], so that neither is at address zero.
#[inline(always)]
fn other_half(half: NonNull<u8>, toggle: usize) -> NonNull<u8> {
    let other = half.as_ptr().map_addr(|address| address ^ toggle);
    // SAFETY: not null, as said above.
    unsafe { NonNull::new_unchecked(other) }
}

/// Copies whole blocks in ascending order, with stores as wide as the baseline has.
///
/// # Safety
/// `from` has `blocks` readable blocks and `to` as many writable ones, both aligned to 64.
#[inline(never)]
unsafe fn copy_blocks(to: NonNull<u8>, from: NonNull<u8>, blocks: u32) {
    let mut offset = 0;
    loop {
        // SAFETY: block `offset / 64` is within both, by the contract.
        unsafe { copy_block(to.byte_add(offset), from.byte_add(offset)) };
        offset += BLUEFLAME_UNIT;
        if offset >= blocks as usize * BLUEFLAME_UNIT {
            break;
        }
    }
}

/// # Safety
/// Both point to 64 bytes, aligned to 64.
#[inline(always)]
unsafe fn copy_block(to: NonNull<u8>, from: NonNull<u8>) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: 64 bytes at both, aligned to 16; SSE2 is part of the baseline. The barriers on either
    // side keep the compiler from dropping or moving the stores.
    unsafe {
        use core::arch::x86_64::{__m128i, _mm_load_si128, _mm_store_si128};
        let (to, from) = (to.cast::<__m128i>().as_ptr(), from.cast::<__m128i>().as_ptr());
        let words = [
            _mm_load_si128(from),
            _mm_load_si128(from.add(1)),
            _mm_load_si128(from.add(2)),
            _mm_load_si128(from.add(3)),
        ];
        _mm_store_si128(to, words[0]);
        _mm_store_si128(to.add(1), words[1]);
        _mm_store_si128(to.add(2), words[2]);
        _mm_store_si128(to.add(3), words[3]);
    }
    #[cfg(any(not(target_arch = "x86_64"), miri))]
    for word in 0..BLUEFLAME_UNIT / 8 {
        // SAFETY: 64 bytes at both, aligned to 8.
        unsafe {
            let value = from.cast::<u64>().add(word).read();
            to.cast::<u64>().add(word).write_volatile(value);
        }
    }
}

/// Where a completion queue is armed.
#[derive(Clone, Copy)]
pub struct CompletionQueueRegister(NonNull<u8>);

// SAFETY: an address to which only whole doorbells are stored, atomically.
unsafe impl Send for CompletionQueueRegister {}
// SAFETY: as above.
unsafe impl Sync for CompletionQueueRegister {}

impl CompletionQueueRegister {
    /// Takes the register at `register`. Several queues may share it.
    ///
    /// # Safety
    /// `register` points to a completion queue doorbell, aligned to 8, in a UAR page that is mapped
    /// as long as the value or a copy of it is used.
    pub const unsafe fn new(register: NonNull<u8>) -> Self {
        Self(register)
    }

    /// Arms queue `cqn`: the completion after the first `consumer` ones, or the next solicited
    /// one, causes an event. `sequence` differs from the last arm's once its event was taken.
    ///
    /// The record goes first: the device reads it when the doorbell tells it to.
    pub fn arm(
        self,
        record: CompletionQueueRecord,
        cqn: u32,
        consumer: u32,
        sequence: u32,
        solicited_only: bool,
    ) {
        let command = if solicited_only { cq::ARM_SOLICITED } else { cq::ARM_NEXT };
        let word =
            (sequence & 3) << cq::ARM_SEQUENCE_SHIFT | command | consumer & cq::CONSUMER_MASK;
        record.set_arm(word);
        barrier::write_combining_start();
        let doorbell = u64::from(word) << 32 | u64::from(cqn);
        // SAFETY: valid and aligned by the contract of `new`.
        unsafe { ring_doorbell(self.0, doorbell.to_be()) };
        barrier::write_combining_flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(align(4096))]
    struct Page([u8; 4096]);

    fn page() -> Box<Page> {
        Box::new(Page([0; 4096]))
    }

    fn pointer(page: &mut Page, offset: usize) -> NonNull<u8> {
        NonNull::new(&raw mut page.0[offset]).unwrap()
    }

    struct Bed {
        uar: Box<Page>,
        ring: Box<Page>,
        record: Box<Page>,
    }

    impl Bed {
        fn new() -> Self {
            let mut ring = page();
            ring.0.iter_mut().enumerate().for_each(|(i, b)| *b = (i / 64 * 3 + i) as u8);
            Self { uar: page(), ring, record: page() }
        }
        fn record(&mut self) -> QueuePairRecord {
            // SAFETY: eight aligned bytes of a page that the test bed keeps.
            unsafe { QueuePairRecord::new(pointer(&mut self.record, 0)) }
        }
    }

    #[test]
    fn blueflame_copies_the_wqe_and_uses_the_halves_in_turn() {
        let mut bed = Bed::new();
        let record = bed.record();
        // SAFETY: a 512-byte register inside the page.
        let mut register = unsafe { SendRegister::blueflame(pointer(&mut bed.uar, 0x800), 512) };
        assert_eq!(register.blueflame_blocks(), 4);
        let wqe = pointer(&mut bed.ring, 128);
        // SAFETY: blocks 2 and 3 of the ring page.
        unsafe { register.ring(record, 0x1234, wqe, 2) };
        assert_eq!(bed.uar.0[0x800..0x880], bed.ring.0[128..256]);
        assert_eq!(bed.uar.0[0x880..], [0; 4096 - 0x880]);
        assert_eq!(bed.record.0[..8], [0, 0, 0, 0, 0, 0, 0x12, 0x34]);
        // SAFETY: as above.
        unsafe { register.ring(record, 0x1235, wqe, 1) };
        assert_eq!(bed.uar.0[0x900..0x940], bed.ring.0[128..192]);
        // SAFETY: as above.
        unsafe { register.ring(record, 0x1236, pointer(&mut bed.ring, 0), 1) };
        assert_eq!(bed.uar.0[0x800..0x840], bed.ring.0[..64], "the first half again");
    }

    #[test]
    fn a_doorbell_is_the_first_eight_bytes_of_the_wqe() {
        let mut bed = Bed::new();
        let record = bed.record();
        // SAFETY: an aligned register inside the page.
        let mut register = unsafe { SendRegister::doorbell(pointer(&mut bed.uar, 0x800)) };
        assert_eq!(register.blueflame_blocks(), 0);
        // SAFETY: block 1 of the ring page.
        unsafe { register.ring(record, 7, pointer(&mut bed.ring, 64), 0) };
        assert_eq!(bed.uar.0[0x800..0x808], bed.ring.0[64..72]);
        assert_eq!(bed.uar.0[0x808..], [0; 4096 - 0x808]);
    }

    #[test]
    fn a_wqe_across_the_end_of_its_ring_arrives_whole() {
        let mut bed = Bed::new();
        let record = bed.record();
        // SAFETY: a 512-byte register inside the page.
        let mut register = unsafe { SendRegister::blueflame(pointer(&mut bed.uar, 0x800), 512) };
        let (last, first) = (pointer(&mut bed.ring, 4032), pointer(&mut bed.ring, 0));
        // SAFETY: the last block and the first two of the ring page.
        unsafe { register.ring_wrapped(record, 9, last, 1, first, 3) };
        assert_eq!(bed.uar.0[0x800..0x840], bed.ring.0[4032..]);
        assert_eq!(bed.uar.0[0x840..0x8c0], bed.ring.0[..128]);
    }

    #[test]
    fn queues_that_share_a_register_go_on_with_the_half_that_follows() {
        let mut bed = Bed::new();
        let record = bed.record();
        let shared = SharedBlueFlame::new(pointer(&mut bed.uar, 0x800));
        // SAFETY: a 512-byte register inside the page; `shared` outlives both.
        let (mut a, mut b) = unsafe {
            (
                SendRegister::shared_blueflame(NonNull::from(&shared), 512),
                SendRegister::shared_blueflame(NonNull::from(&shared), 512),
            )
        };
        let wqe = pointer(&mut bed.ring, 0);
        // SAFETY: block 0 of the ring page.
        unsafe {
            a.ring(record, 1, wqe, 1);
            b.ring(record, 1, wqe.byte_add(64), 1);
        }
        assert_eq!(bed.uar.0[0x800..0x840], bed.ring.0[..64]);
        assert_eq!(bed.uar.0[0x900..0x940], bed.ring.0[64..128]);
    }

    #[test]
    fn arming_writes_record_and_doorbell() {
        let mut bed = Bed::new();
        // SAFETY: aligned places inside pages that the test bed keeps.
        let (record, register) = unsafe {
            (
                CompletionQueueRecord::new(pointer(&mut bed.record, 0)),
                CompletionQueueRegister::new(pointer(&mut bed.uar, 0x20)),
            )
        };
        register.arm(record, 0x123456, 0xff00_0042, 6, true);
        assert_eq!(bed.record.0[..8], [0, 0, 0, 0, 0x21, 0, 0, 0x42]);
        assert_eq!(bed.uar.0[0x20..0x28], [0x21, 0, 0, 0x42, 0, 0x12, 0x34, 0x56]);
        record.set_consumer(0x0100_0003);
        assert_eq!(bed.record.0[..4], [0, 0, 0, 3], "the device reads 24 bits");
    }

    /// Any number of threads may arm queues, and ring plain doorbells, at one register, without a
    /// lock. What stands there is whole, one of theirs. `cargo xtask tsan` looks for data races in it.
    #[test]
    fn threads_ring_one_register_without_a_lock() {
        const THREADS: usize = 4;
        const TIMES: u32 = 500;
        let mut uar = page();
        let (arm, send) = (pointer(&mut uar, 0x20), pointer(&mut uar, 0x800));
        // SAFETY: an aligned register inside the page, which outlives the threads.
        let arm = unsafe { CompletionQueueRegister::new(arm) };
        // SAFETY: as above.
        let senders = [(); THREADS].map(|()| unsafe { SendRegister::doorbell(send) });
        let barrier = std::sync::Barrier::new(THREADS);
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..)
                .zip(senders)
                .map(|(number, mut sender)| {
                    let barrier = &barrier;
                    scope.spawn(move || {
                        let mut bed = Bed::new();
                        // All bytes of its doorbells are this thread's number.
                        let wqe = pointer(&mut bed.ring, 0);
                        bed.ring.0.fill(number);
                        let record = bed.record();
                        // SAFETY: eight bytes of the record's page that nothing else uses.
                        let armed =
                            unsafe { CompletionQueueRecord::new(pointer(&mut bed.record, 64)) };
                        barrier.wait();
                        for turn in 0..TIMES {
                            arm.arm(armed, number.into(), turn, 0, false);
                            // SAFETY: block 0 of the ring page.
                            unsafe { sender.ring(record, turn as u16, wqe, 0) };
                        }
                    })
                })
                .collect();
            threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        });
        let [send, arm] = [0x800, 0x20].map(|at| uar.0[at..at + 8].to_vec());
        assert!(usize::from(send[0]) < THREADS && send.iter().all(|byte| *byte == send[0]));
        let last = (TIMES - 1).to_be_bytes();
        assert_eq!(
            (&arm[..4], &arm[4..7]),
            (&last[..], &[0; 3][..]),
            "of one thread, and the last"
        );
        assert!(usize::from(arm[7]) < THREADS);
    }
}
