//! Registered memory in equal buffers, and the owner of each buffer.
//!
//! A [`Slot`] is the right to use a buffer. Each buffer has exactly one. It is on the list of free
//! buffers, with the device (as the identifier of a receive), with a packet or a frame, with a
//! frame that is being sent, or on the stack of buffers of dropped frames.
//!
//! If packets share a receive ([`Striding`](super::Striding)), a buffer is a stride. A slot is then
//! the right to all strides of a packet, and names the first one; the other strides have no slot.

use crate::error::Error;
use crate::memory::{MemoryRegion, ProtectionDomain};
use mlx5_uapi::HugePages;
use mlx5_wqe::Sge;
use std::cell::Cell;
use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};

/// The exclusive right to use a buffer: its address. There is never a second slot for the buffer.
#[derive(PartialEq, Eq, Debug)]
pub struct Slot(usize);

impl Slot {
    /// The identifier of a receive or a record that has the buffer from here on.
    #[inline]
    pub(super) fn into_address(self) -> usize {
        self.0
    }

    /// The right that [`Slot::into_address`] gave up. Each address is taken back once.
    #[inline]
    pub(super) const fn at(address: usize) -> Self {
        Self(address)
    }

    /// Address of the buffer.
    #[inline]
    pub(super) const fn address(&self) -> usize {
        self.0
    }
}

/// Takes buffers back.
pub trait GiveBack {
    /// Whether a slot may stand for several packets.
    const SHARES: bool;
    /// Takes a buffer back.
    fn give_back(&self, slot: Slot);
    /// Takes back the buffers of `count` packets, of which `slot` is the first, and which [can be
    /// given back together](GiveBack::run).
    fn give_back_run(&self, slot: Slot, count: u32);
    /// Number of leading packets of a burst that can be given back together.
    fn run(&self, packets: &[Cell<Sge>]) -> usize;
}

/// No buffer: the end of the stack.
const NONE: u32 = u32::MAX;

/// The buffers of a queue. Frames hold references to them.
pub struct Buffers {
    start: NonNull<u8>,
    lkey: u32,
    /// Base-two logarithm of the bytes of a buffer.
    log_size: u32,
    /// Top of the stack of returned buffers. Any thread may push.
    returned: AtomicU32,
    /// For each buffer on the stack, the next one below it.
    below: Box<[AtomicU32]>,
    region: MemoryRegion,
}

impl fmt::Debug for Buffers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffers")
            .field("count", &self.below.len())
            .field("bytes", &self.size())
            .finish_non_exhaustive()
    }
}

// SAFETY: only the owner of a buffer's slot accesses its bytes, and each buffer has one slot. The
// other fields are atomic or never change.
unsafe impl Send for Buffers {}
// SAFETY: a shared reference accesses a buffer's bytes only with its slot, of which there is one.
// The other fields are atomic or never change.
unsafe impl Sync for Buffers {}

impl Buffers {
    /// Allocates and registers `count` buffers of `size` bytes, a power of two.
    pub(super) fn new(
        pd: &ProtectionDomain,
        (count, size): (u32, u32),
        numa_node: Option<u32>,
        huge_pages: HugePages,
    ) -> Result<Self, Error> {
        let memory = pd.memory(count as usize * size as usize).align(size as usize);
        let region = memory.numa_node(numa_node).huge_pages(huge_pages).register()?;
        let start = region.as_ptr().and_then(NonNull::new);
        let start = start.ok_or_else(|| Error::invalid("reg_mr", "no memory".into()))?;
        Ok(Self {
            start,
            lkey: region.lkey(),
            log_size: size.trailing_zeros(),
            returned: AtomicU32::new(NONE),
            below: (0..count).map(|_| AtomicU32::new(NONE)).collect(),
            region,
        })
    }

    /// The protection domain of the memory. Frames may be sent only on queues of the same domain.
    pub(super) fn pd(&self) -> &ProtectionDomain {
        self.region.pd()
    }

    /// Bytes of a buffer.
    #[inline]
    pub(super) const fn size(&self) -> u32 {
        1 << self.log_size
    }

    /// The key of the memory.
    pub(super) const fn lkey(&self) -> u32 {
        self.lkey
    }

    /// The address of the first buffer. The others follow.
    #[inline]
    pub(super) fn start(&self) -> usize {
        self.start.addr().get()
    }

    /// Addresses of the buffers with these numbers.
    pub(super) fn addresses(&self, numbers: Range<u32>) -> impl Iterator<Item = usize> {
        let (start, log_size) = (self.start(), self.log_size);
        numbers.map(move |number| start + ((number as usize) << log_size))
    }

    /// The first byte of a buffer.
    #[inline]
    fn bytes(&self, slot: &Slot) -> *mut u8 {
        self.start.as_ptr().with_addr(slot.0)
    }

    /// The first `length` bytes of a buffer.
    ///
    /// # Safety
    /// The slot is of one of these buffers and not with the device, and the right to `length`
    /// bytes.
    #[inline]
    pub(super) unsafe fn slice<'s>(&'s self, slot: &'s Slot, length: usize) -> &'s [u8] {
        // SAFETY: the bytes are in the region, which was zeroed at allocation. The caller promises
        // that the slot is not with the device, which writes to the buffer only while a receive has
        // the slot (to strides, until their completion). No other queue can write to it: the
        // protection domain has only queues of this module.
        unsafe { std::slice::from_raw_parts(self.bytes(slot), length) }
    }

    /// The first `length` bytes of a buffer, mutably.
    ///
    /// # Safety
    /// The slot is of one of these buffers, is not with the device, and is the right to `length`
    /// bytes.
    #[inline(always)]
    pub(super) unsafe fn slice_mut<'s>(
        &'s self,
        slot: &'s mut Slot,
        length: usize,
    ) -> &'s mut [u8] {
        // SAFETY: as the caller promises, the slot is not with the device, so that nothing writes
        // to the `length` bytes, which are in the region. `slot` is borrowed exclusively, and is
        // the only slot.
        unsafe { std::slice::from_raw_parts_mut(self.bytes(slot), length) }
    }

    /// The first bytes of the buffer at an address, as a request names them.
    #[inline]
    pub(super) fn sge(&self, address: usize, length: u32) -> Sge {
        Sge { addr: address as u64, length, lkey: self.lkey }
    }

    /// Gives a buffer back, from any thread.
    pub(super) fn give_back(&self, slot: Slot) {
        let number = (slot.into_address() - self.start()) >> self.log_size;
        let below = &self.below[number];
        let number = number as u32;
        let mut top = self.returned.load(Relaxed);
        loop {
            below.store(top, Relaxed);
            // Release: the next user of the buffer sees what was done with it. The owner takes the
            // whole stack and never a single buffer, so a top that did not change means an
            // unchanged stack (no ABA).
            match self.returned.compare_exchange_weak(top, number, Release, Relaxed) {
                Ok(_) => return,
                Err(now) => top = now,
            }
        }
    }

    /// Passes all returned buffers to `each`.
    #[inline]
    pub(super) fn take_returned(&self, mut each: impl FnMut(Slot)) {
        if self.returned.load(Relaxed) == NONE {
            return;
        }
        let mut number = self.returned.swap(NONE, Acquire);
        while number != NONE {
            let below = self.below[number as usize].load(Relaxed);
            each(Slot(self.start() + ((number as usize) << self.log_size)));
            number = below;
        }
    }
}

/// Free buffers, which only the queue's owner takes. The list has room for all.
pub(super) struct FreeList {
    addresses: Box<[Cell<usize>]>,
    count: Cell<usize>,
}

impl fmt::Debug for FreeList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FreeList").field("count", &self.count).finish_non_exhaustive()
    }
}

impl FreeList {
    /// Returns a list of the buffers at these addresses.
    pub(super) fn of(addresses: impl Iterator<Item = usize>) -> Self {
        let addresses: Box<[_]> = addresses.map(Cell::new).collect();
        Self { count: Cell::new(addresses.len()), addresses }
    }

    /// Number of buffers in the list.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.count.get()
    }

    #[inline]
    pub(super) fn push(&self, slot: Slot) {
        let count = self.count.get();
        self.addresses[count].set(slot.into_address());
        self.count.set(count + 1);
    }

    #[inline]
    pub(super) fn pop(&self) -> Option<Slot> {
        let count = self.count.get().checked_sub(1)?;
        self.count.set(count);
        Some(Slot(self.addresses[count].get()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mlx5_sim::{SimConfig, Simulator};

    fn buffers(count: u32) -> (Buffers, FreeList) {
        let simulator = Simulator::new(SimConfig::new());
        let context = crate::devices_on(simulator.kernel()).unwrap()[0].open().unwrap();
        let pd = context.alloc_pd().unwrap();
        let buffers = Buffers::new(&pd, (count, 2048), None, HugePages::None).unwrap();
        let free = FreeList::of(buffers.addresses(0..count));
        (buffers, free)
    }

    #[test]
    fn every_buffer_is_handed_out_once() {
        let (buffers, free) = buffers(8);
        let slots: Vec<Slot> = std::iter::from_fn(|| free.pop()).collect();
        let mut starts: Vec<_> = slots.iter().map(|slot| buffers.bytes(slot).addr()).collect();
        starts.sort_unstable();
        starts.dedup();
        assert_eq!((slots.len(), starts.len(), free.len()), (8, 8, 0));
        assert!(starts.windows(2).all(|pair| pair[1] - pair[0] == 2048));
    }

    #[test]
    fn buffers_returned_by_threads_come_back_once() {
        let (buffers, free) = buffers(64);
        let mut slots: Vec<Slot> = std::iter::from_fn(|| free.pop()).collect();
        std::thread::scope(|scope| {
            while !slots.is_empty() {
                let some = slots.split_off(slots.len() - 16);
                let buffers = &buffers;
                scope.spawn(move || some.into_iter().for_each(|slot| buffers.give_back(slot)));
            }
        });
        buffers.take_returned(|slot| free.push(slot));
        let mut addresses: Vec<usize> =
            std::iter::from_fn(|| free.pop()).map(Slot::into_address).collect();
        addresses.sort_unstable();
        assert_eq!(addresses, buffers.addresses(0..64).collect::<Vec<_>>());
        buffers.take_returned(|slot| free.push(slot));
        assert_eq!(free.len(), 0);
    }
}
