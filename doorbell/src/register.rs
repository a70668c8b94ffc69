//! Doorbell registers and BlueFlame registers in UAR pages.

use crate::{CompletionQueueRecord, Lock, QueuePairRecord, barrier};
use core::fmt;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use mlx5_prm::doorbell::{BLUEFLAME_UNIT, completion_queue_record as cq};

/// A BlueFlame register that several send queues share. A lock serialises them. Its two halves are
/// used in turn.
pub struct SharedBlueFlame(Lock<Half>);

/// The half of the register to write next.
struct Half(NonNull<u8>);

// SAFETY: the value is an address, valid in every thread; the lock around it orders the stores to
// it.
unsafe impl Send for Half {}

impl SharedBlueFlame {
    /// Creates the shared register at address `register`.
    pub fn new(register: NonNull<u8>) -> Self {
        Self(Lock::new(Half(register)))
    }

    /// # Safety
    /// As for [`SendRegister::ring`], with the register at `self`.
    #[inline(never)]
    unsafe fn write(&self, toggle: usize, wqe: NonNull<u8>, copy: u32) {
        // SAFETY: the caller promises readable blocks and a valid register; the lock excludes other
        // writers.
        self.with(|half| unsafe { write_half(half, toggle, wqe, copy) });
    }

    fn with<R>(&self, ring: impl FnOnce(&mut NonNull<u8>) -> R) -> R {
        ring(&mut self.0.lock().0)
    }
}

impl fmt::Debug for SharedBlueFlame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedBlueFlame").finish_non_exhaustive()
    }
}

/// The register with which a send queue rings its doorbell: its own BlueFlame register, a shared
/// one, or a plain doorbell.
pub struct SendRegister {
    /// The half of the register to write next. If other queues use the register too, the address of
    /// its [`SharedBlueFlame`].
    half: NonNull<u8>,
    /// XOR mask between the addresses of the two halves; zero for a plain doorbell.
    toggle: usize,
    /// The longest WQE, in basic blocks, that is copied to the register; zero for a plain doorbell.
    blueflame_blocks: u32,
    /// As `blueflame_blocks`, but zero if other queues use the register too.
    own_blueflame_blocks: u32,
}

impl fmt::Debug for SendRegister {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendRegister")
            .field("blueflame_blocks", &self.blueflame_blocks)
            .field("shared", &self.shared().is_some())
            .finish_non_exhaustive()
    }
}

// SAFETY: a BlueFlame register belongs to this value alone or is written under the lock of
// a `SharedBlueFlame`. A plain doorbell takes only whole, atomic 8-byte stores, from any thread.
unsafe impl Send for SendRegister {}

impl SendRegister {
    /// Creates a BlueFlame register of `size` bytes, in two halves, that only this queue uses.
    ///
    /// # Safety
    /// `register` points to a BlueFlame register of `size` bytes, aligned to `size`, in a mapped
    /// UAR page. It stays mapped as long as the value lives, and nothing else writes to it.
    pub const unsafe fn blueflame(register: NonNull<u8>, size: usize) -> Self {
        let half = size / 2;
        Self {
            half: register,
            toggle: half,
            blueflame_blocks: (half / BLUEFLAME_UNIT) as u32,
            own_blueflame_blocks: (half / BLUEFLAME_UNIT) as u32,
        }
    }

    /// Creates a BlueFlame register of `size` bytes that other queues use too.
    ///
    /// # Safety
    /// The register of `shared` meets the contract of [`SendRegister::blueflame`], except that
    /// everything that goes through `shared` may write to it. `shared` lives as long as the value.
    pub const unsafe fn shared_blueflame(shared: NonNull<SharedBlueFlame>, size: usize) -> Self {
        let half = size / 2;
        Self {
            half: shared.cast(),
            toggle: half,
            blueflame_blocks: (half / BLUEFLAME_UNIT) as u32,
            own_blueflame_blocks: 0,
        }
    }

    /// Creates a plain doorbell. Several queues may use the same register without a lock, because a
    /// doorbell is one atomic 8-byte store.
    ///
    /// # Safety
    /// `register` points to a doorbell register, aligned to 8, in a UAR page that stays mapped as
    /// long as the value lives.
    pub const unsafe fn doorbell(register: NonNull<u8>) -> Self {
        Self { half: register, toggle: 0, blueflame_blocks: 0, own_blueflame_blocks: 0 }
    }

    /// The register, if other queues use it too.
    #[inline]
    fn shared(&self) -> Option<&SharedBlueFlame> {
        // SAFETY: only `shared_blueflame` makes a value whose numbers differ: its address is that
        // of a `SharedBlueFlame`, which outlives the value.
        (self.own_blueflame_blocks != self.blueflame_blocks)
            .then(|| unsafe { self.half.cast::<SharedBlueFlame>().as_ref() })
    }

    /// The longest WQE, in 64-byte basic blocks, that is copied to the register; zero if none is.
    pub const fn blueflame_blocks(&self) -> u32 {
        self.blueflame_blocks
    }

    /// As [`SendRegister::blueflame_blocks`], but zero if other queues use the register too.
    #[inline]
    pub const fn own_blueflame_blocks(&self) -> u32 {
        self.own_blueflame_blocks
    }

    /// [`SendRegister::ring`] for a BlueFlame register that only this queue uses. Up to `UNROLLED`
    /// blocks, which is at most three, are copied without a call.
    ///
    /// # Safety
    /// As for [`SendRegister::ring`]. `copy` is at least one, and at most
    /// [`SendRegister::own_blueflame_blocks`].
    #[inline(always)]
    pub unsafe fn ring_blueflame<const UNROLLED: u32>(
        &mut self,
        record: QueuePairRecord,
        counter: u16,
        wqe: NonNull<u8>,
        copy: u32,
    ) {
        barrier::to_device();
        record.set_send(counter);
        barrier::write_combining_start();
        // SAFETY: the caller promises readable blocks and a valid record. `copy` is not zero, so
        // this is a BlueFlame register of this queue alone. One block is the common case.
        unsafe {
            match copy {
                1 => copy_block(self.half, wqe),
                2 if UNROLLED >= 2 => {
                    copy_block(self.half, wqe);
                    copy_block(self.half.byte_add(BLUEFLAME_UNIT), wqe.byte_add(BLUEFLAME_UNIT));
                }
                3 if UNROLLED >= 3 => {
                    copy_block(self.half, wqe);
                    for at in [BLUEFLAME_UNIT, 2 * BLUEFLAME_UNIT] {
                        copy_block(self.half.byte_add(at), wqe.byte_add(at));
                    }
                }
                _ => copy_blocks(self.half, wqe, copy),
            }
        }
        barrier::write_combining_flush();
        self.half = other_half(self.half, self.toggle);
    }

    /// Stores `counter` to `record` and rings the doorbell. The caller has stored the WQEs before.
    ///
    /// `wqe` is the last WQE posted, in its ring. With `copy` blocks, the WQE itself is copied to
    /// the register, which saves the device from reading it; with zero, the doorbell is the first 8
    /// bytes of the WQE.
    ///
    /// The device may act on the record or on the register, whichever it sees first, so it must see
    /// the WQEs before the record, and the record before the register. The copy is flushed before
    /// the register can be written again. The halves are used in turn, so that the CPU cannot merge
    /// two copies.
    ///
    /// # Safety
    /// `wqe` points to `max(copy, 1)` readable blocks, aligned to 64, of the ring that `record`
    /// counts. `copy` is at most [`SendRegister::blueflame_blocks`].
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
        if let Some(shared) = self.shared() {
            // SAFETY: the caller promises `max(copy, 1)` readable blocks at `wqe`, and `copy` is at
            // most what the register takes.
            return unsafe { shared.write(self.toggle, wqe, copy) };
        }
        // SAFETY: the caller promises `max(copy, 1)` readable blocks at `wqe`; the register is this
        // queue's own or a plain doorbell.
        unsafe { write_half(&mut self.half, self.toggle, wqe, copy) }
    }

    /// [`SendRegister::ring`] for a WQE that wraps at the end of the ring: its first `first` blocks
    /// are at `wqe`, the others at `rest`.
    ///
    /// # Safety
    /// As for [`SendRegister::ring`], with `first` readable blocks at `wqe` and `copy - first` at
    /// `rest`. `first` is less than `copy`.
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
            // SAFETY: the caller promises `first` and `copy - first` readable blocks, and the half
            // holds `copy` blocks.
            unsafe {
                copy_blocks(*half, wqe, first);
                copy_blocks(half.byte_add(first as usize * BLUEFLAME_UNIT), rest, copy - first);
            }
            barrier::write_combining_flush();
            *half = other_half(*half, toggle);
        };
        match self.shared() {
            Some(shared) => shared.with(write),
            None => write(&mut self.half),
        }
    }
}

/// # Safety
/// As for [`SendRegister::ring`]. Nothing else writes to the register meanwhile, unless `copy` is
/// zero.
#[inline(always)]
unsafe fn write_half(half: &mut NonNull<u8>, toggle: usize, wqe: NonNull<u8>, copy: u32) {
    barrier::write_combining_start();
    match copy {
        // SAFETY: `wqe` has at least 8 readable bytes; `half` is a doorbell register, aligned to 8.
        0 => unsafe { ring_doorbell(*half, wqe.cast().read()) },
        // SAFETY: the caller promises one readable block at `wqe`, and the half holds it. One block
        // is the common case.
        1 => unsafe { copy_block(*half, wqe) },
        // SAFETY: the caller promises `copy` readable blocks at `wqe`, and the half holds them.
        _ => unsafe { copy_blocks(*half, wqe, copy) },
    }
    barrier::write_combining_flush();
    *half = other_half(*half, toggle);
}

/// Stores a doorbell. Other threads may ring the same register at the same time: the doorbell is
/// one 8-byte store, so it does not tear, and it is atomic, so it is no data race.
///
/// # Safety
/// `register` points to eight bytes of a UAR page, aligned to 8, to which all stores are atomic.
#[inline]
unsafe fn ring_doorbell(register: NonNull<u8>, doorbell: u64) {
    // SAFETY: the caller promises a valid, aligned register, to which all stores are atomic.
    unsafe { register.cast::<AtomicU64>().as_ref() }.store(doorbell, Relaxed);
}

/// Returns the other half of the register. Both halves lie at an offset of at least
/// [`mlx5_prm::doorbell::BLUEFLAME`] in one page, so neither has address zero.
#[inline]
fn other_half(half: NonNull<u8>, toggle: usize) -> NonNull<u8> {
    let other = half.as_ptr().map_addr(|address| address ^ toggle);
    // SAFETY: the address is not zero, as explained above.
    unsafe { NonNull::new_unchecked(other) }
}

/// Copies whole blocks in ascending order.
///
/// # Safety
/// `from` points to `blocks` readable blocks and `to` to as many writable ones, both aligned to 64.
#[inline(never)]
unsafe fn copy_blocks(to: NonNull<u8>, from: NonNull<u8>, blocks: u32) {
    let mut offset = 0;
    loop {
        // SAFETY: `offset / 64` is less than `blocks`, so the block lies within both.
        unsafe { copy_block(to.byte_add(offset), from.byte_add(offset)) };
        offset += BLUEFLAME_UNIT;
        if offset >= blocks as usize * BLUEFLAME_UNIT {
            break;
        }
    }
}

/// Copies one block, with the widest stores of the target's baseline.
///
/// # Safety
/// `from` points to 64 readable bytes and `to` to 64 writable ones, both aligned to 64.
#[inline(always)]
unsafe fn copy_block(to: NonNull<u8>, from: NonNull<u8>) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: the caller promises 64 bytes at both, aligned to 64, hence to 16. The x86-64 baseline
    // includes SSE2. The callers' barriers before and after keep the compiler from removing or
    // moving these stores, which are not volatile.
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
        // SAFETY: the caller promises 64 bytes at both, aligned to 64, hence to 8.
        unsafe {
            let value = from.cast::<u64>().add(word).read();
            to.cast::<u64>().add(word).write_volatile(value);
        }
    }
}

/// The register with which a completion queue is armed.
#[derive(Clone, Copy)]
pub struct CompletionQueueRegister(NonNull<u8>);

// SAFETY: the value is an address that takes only whole 8-byte stores, which are atomic.
unsafe impl Send for CompletionQueueRegister {}
// SAFETY: the value is an address that takes only whole 8-byte stores, which are atomic.
unsafe impl Sync for CompletionQueueRegister {}

impl fmt::Debug for CompletionQueueRegister {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompletionQueueRegister").finish_non_exhaustive()
    }
}

impl CompletionQueueRegister {
    /// Creates the register at address `register`. Several queues may share it.
    ///
    /// # Safety
    /// `register` points to the doorbell of completion queues, aligned to 8, in a UAR page that
    /// stays mapped as long as the value or a copy of it is used.
    pub const unsafe fn new(register: NonNull<u8>) -> Self {
        Self(register)
    }

    /// Arms completion queue `cqn`: the next completion after the first `consumer` ones causes an
    /// event, or the next solicited one. `sequence` must differ from that of the last arm once the
    /// event of that arm was read.
    ///
    /// The arm word goes to the record first, because the device reads it when the doorbell
    /// arrives.
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
        // SAFETY: `new`'s caller promises that the register is valid and aligned while the value is
        // used. All stores to it are atomic.
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
            // SAFETY: the page is aligned, has more than eight bytes, and lives as long as the test
            // bed.
            unsafe { QueuePairRecord::new(pointer(&mut self.record, 0)) }
        }
    }

    #[test]
    fn blueflame_copies_the_wqe_and_uses_the_halves_in_turn() {
        let mut bed = Bed::new();
        let record = bed.record();
        // SAFETY: the register is 512 bytes inside the page, which outlives it.
        let mut register = unsafe { SendRegister::blueflame(pointer(&mut bed.uar, 0x800), 512) };
        assert_eq!(register.blueflame_blocks(), 4);
        let wqe = pointer(&mut bed.ring, 128);
        // SAFETY: blocks 2 and 3 of the ring page are readable.
        unsafe { register.ring(record, 0x1234, wqe, 2) };
        assert_eq!(bed.uar.0[0x800..0x880], bed.ring.0[128..256]);
        assert_eq!(bed.uar.0[0x880..], [0; 4096 - 0x880]);
        assert_eq!(bed.record.0[..8], [0, 0, 0, 0, 0, 0, 0x12, 0x34]);
        // SAFETY: block 2 of the ring page is readable.
        unsafe { register.ring(record, 0x1235, wqe, 1) };
        assert_eq!(bed.uar.0[0x900..0x940], bed.ring.0[128..192]);
        // SAFETY: block 0 of the ring page is readable.
        unsafe { register.ring(record, 0x1236, pointer(&mut bed.ring, 0), 1) };
        assert_eq!(bed.uar.0[0x800..0x840], bed.ring.0[..64], "the first half again");
    }

    #[test]
    fn a_doorbell_is_the_first_eight_bytes_of_the_wqe() {
        let mut bed = Bed::new();
        let record = bed.record();
        // SAFETY: the register is aligned and inside the page, which outlives it.
        let mut register = unsafe { SendRegister::doorbell(pointer(&mut bed.uar, 0x800)) };
        assert_eq!(register.blueflame_blocks(), 0);
        // SAFETY: block 1 of the ring page is readable.
        unsafe { register.ring(record, 7, pointer(&mut bed.ring, 64), 0) };
        assert_eq!(bed.uar.0[0x800..0x808], bed.ring.0[64..72]);
        assert_eq!(bed.uar.0[0x808..], [0; 4096 - 0x808]);
    }

    #[test]
    fn a_wqe_across_the_end_of_its_ring_arrives_whole() {
        let mut bed = Bed::new();
        let record = bed.record();
        // SAFETY: the register is 512 bytes inside the page, which outlives it.
        let mut register = unsafe { SendRegister::blueflame(pointer(&mut bed.uar, 0x800), 512) };
        let (last, first) = (pointer(&mut bed.ring, 4032), pointer(&mut bed.ring, 0));
        // SAFETY: the last block and the first two of the ring page are readable.
        unsafe { register.ring_wrapped(record, 9, last, 1, first, 3) };
        assert_eq!(bed.uar.0[0x800..0x840], bed.ring.0[4032..]);
        assert_eq!(bed.uar.0[0x840..0x8c0], bed.ring.0[..128]);
    }

    #[test]
    fn queues_that_share_a_register_go_on_with_the_half_that_follows() {
        let mut bed = Bed::new();
        let record = bed.record();
        let shared = SharedBlueFlame::new(pointer(&mut bed.uar, 0x800));
        // SAFETY: the register is 512 bytes inside the page; the page and `shared` outlive both.
        let (mut a, mut b) = unsafe {
            (
                SendRegister::shared_blueflame(NonNull::from(&shared), 512),
                SendRegister::shared_blueflame(NonNull::from(&shared), 512),
            )
        };
        let wqe = pointer(&mut bed.ring, 0);
        // SAFETY: blocks 0 and 1 of the ring page are readable.
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
        // SAFETY: both addresses are aligned and inside pages of the test bed, which outlives them.
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
}
