//! Messages that a peer writes into a region: a ring of messages, and slots with the latest value.
//!
//! The peer writes a message with its number and a check of both, by one RDMA write. No order of
//! the bytes is assumed, because none is promised: the InfiniBand specification leaves the order
//! within a request open (o9-20), firmware may set the relaxed-ordering attribute of every write on
//! the PCI bus (`PCI_WR_ORDERING=force_relax`), adaptive routing may place packets out of order,
//! and a device promises an order only for one queue pair
//! ([`data_in_order`](crate::QueuePair::data_in_order)), while a region takes writes from its whole
//! protection domain. So the reader copies a message, computes the check of its copy, and takes the
//! message only if the check matches the one that arrived. A copy that lacks words, or mixes two
//! messages, has another check.
//!
//! A word is not assumed to arrive whole, either: a number counts only with its check.

use super::{Access, MemoryRegion, Plain, mr::copy::Words};
use crate::error::{Error, ErrorKind};
use mlx5_doorbell::barrier;
use mlx5_wqe::{RemoteAddress, RemoteSlice};
use std::{borrow::Borrow, fmt, marker::PhantomData, sync::atomic::Ordering::Acquire};
use zerocopy::{FromBytes, Immutable, IntoBytes, Unaligned};

/// A message of a [`MessageRing`] as it is laid out in memory: its number, the message, and a check
/// of both. The writer posts [`MessageFrame::as_bytes`] by one RDMA write.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, Unaligned)]
#[repr(C, packed)]
pub struct MessageFrame<T> {
    /// One more than the number of messages before it, little-endian; 0 in an empty slot.
    number: [u8; 8],
    value: T,
    /// The check of both, little-endian.
    check: [u8; 8],
}

impl<T: Plain> MessageFrame<T> {
    /// Returns the bytes to write.
    pub fn as_bytes(&self) -> &[u8] {
        IntoBytes::as_bytes(self)
    }
}

impl<T> fmt::Debug for MessageFrame<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = u64::from_le_bytes(self.number);
        f.debug_struct("MessageFrame").field("number", &number).finish_non_exhaustive()
    }
}

/// Length of a number, and of a check.
const NUMBER: usize = size_of::<u64>();

/// Length of a message with its number and its check: a multiple of 8, which keeps numbers aligned.
const fn stride<T>() -> usize {
    let size = size_of::<T>();
    assert!(size > 0 && size.is_multiple_of(NUMBER), "a message takes a multiple of 8 bytes");
    size + 2 * NUMBER
}

/// Returns the check of a message with its number.
///
/// Each step maps words to words one to one, so messages that differ in one word have different
/// checks. Messages that differ in several words have the same check with a probability of 1 in
/// 2⁶⁴. Peers exchange the value: both sides must compute it in the same way.
fn check<T: Plain>(number: u64, value: &T) -> u64 {
    // An odd number without a pattern: multiplication by it has an inverse.
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let (words, _) = IntoBytes::as_bytes(value).as_chunks::<NUMBER>();
    let mix = |state: u64, word: u64| {
        let mixed = (state ^ word).wrapping_mul(FACTOR);
        mixed ^ mixed >> 32
    };
    words.iter().fold(mix(FACTOR, number), |state, word| mix(state, u64::from_le_bytes(*word)))
}

/// Copies the message of a slot, which starts at byte `start`. Returns it with its number, if its
/// check is right.
fn copy<T: Plain>(
    operation: &'static str,
    words: &Words<'_>,
    start: usize,
) -> Result<Option<(u64, T)>, Error> {
    let slot = words.as_words().and_then(|all| all.get(start / NUMBER..));
    let Some(slot) = slot.and_then(|slot| slot.get(..stride::<T>() / NUMBER)) else {
        return Err(Error::invalid(operation, "the region has other memory than at first".into()));
    };
    let number = u64::from_le(slot[0].load(Acquire));
    let mut value = T::new_zeroed();
    words.read(start + NUMBER, value.as_mut_bytes());
    let arrived = u64::from_le(slot[slot.len() - 1].load(Acquire));
    // The copy is done before the caller informs the peer that the slot is free.
    barrier::from_device();
    Ok((check(number, &value) == arrived).then_some((number, value)))
}

/// Empties the memory of a region for messages from peers. Returns the number of slots of `stride`
/// bytes.
fn messages(operation: &'static str, region: &MemoryRegion, stride: usize) -> Result<usize, Error> {
    let wrong = |what: String| Err(Error::invalid(operation, what));
    let words = region.own(operation, 0, region.len())?;
    if !region.access().contains(Access::REMOTE_WRITE) {
        return wrong("no peer may write the region: register it with REMOTE_WRITE".into());
    }
    if words.as_words().is_none() {
        return wrong("the memory does not start at a multiple of 8 bytes".into());
    }
    let slots = region.len() / stride;
    if slots == 0 {
        return wrong(format!("a region of {} bytes has no room for {stride} bytes", region.len()));
    }
    // Every word is cleared, because a new message may arrive in any order: with a number that has
    // arrived, the value and the check of an old message of that number would pass for the new one.
    for word in (0..slots * stride).step_by(NUMBER) {
        words.write(word, &[0; NUMBER]);
    }
    Ok(slots)
}

/// Messages that one peer writes into a region, read in order.
///
/// The peer has a [`MessageRingWriter`] on [`MessageRing::remote_slice`]. The peer must not
/// overwrite messages that were not taken, so the reader sends it [`MessageRing::taken`] from time
/// to time, for example in its replies. A message `T` takes a multiple of 8 bytes.
/// `pd.memory_of::<MessageFrame<T>>(slots)` builds a region for `slots` messages.
///
/// ```
/// # use mlx5::{ConnectOptions, Psn, SendFlags, transport::Rc};
/// # use mlx5_sim::{SimConfig, Simulator};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let simulator = Simulator::new(SimConfig::new());
/// # let context = mlx5::devices_on(simulator.kernel())?[0].open()?;
/// # let pd = context.alloc_pd()?;
/// # let mut cq = context.create_cq(16).build()?;
/// # let mut near = pd.create_qp::<Rc>(&cq, &cq).max_inline_data(32).build()?;
/// # let mut far = pd.create_qp::<Rc>(&cq, &cq).build()?;
/// # let (port, psn) = (context.local_port(1, None)?, Psn::default());
/// # let options = ConnectOptions::default();
/// # let (here, there) = (near.endpoint(&port, psn, &options), far.endpoint(&port, psn, &options));
/// # near.connect(&port, psn, &there, &options)?;
/// # far.connect(&port, psn, &here, &options)?;
/// use mlx5::{Access, MessageRing, MessageRingWriter};
///
/// let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
/// let mut ring = MessageRing::<[u64; 2], _>::new(pd.memory(4096).access(rights).register()?)?;
///
/// // The peer, which has got `ring.remote_slice()` as text or bytes:
/// let mut writer = MessageRingWriter::new(ring.remote_slice()?);
/// let (to, frame) = writer.push([7, 8]).expect("an empty ring has room");
/// let mut batch = near.wr_start();
/// batch.wr(1, SendFlags::SIGNALED).rdma_write(to).inline_data(frame.as_bytes());
/// batch.complete()?;
///
/// let message = loop {
///     if let Some(message) = ring.take()? {
///         break message;
///     }
/// };
/// assert_eq!(message, [7, 8]);
/// writer.taken(ring.taken())?;
/// # while cq.poll(1, |_| ())? == 0 {}
/// # Ok(())
/// # }
/// ```
///
/// # Order
/// The writer's message must be one RDMA write on a reliable or unreliable connection. Its bytes
/// may arrive in any order: a message is taken only when its check, which is part of the write,
/// shows that it is complete. So any region works, also one with `RELAXED_ORDERING`.
pub struct MessageRing<T, R = MemoryRegion> {
    region: R,
    slots: usize,
    taken: u64,
    message: PhantomData<fn() -> T>,
}

impl<T: Plain, R: Borrow<MemoryRegion>> MessageRing<T, R> {
    const STRIDE: usize = stride::<T>();

    /// Makes a ring of a region, with as many slots as fit, and empties them. `R` is a reference,
    /// the region itself, or an `Arc` of it.
    ///
    /// # Errors
    /// If no peer may write to the region, if it has foreign memory, or if no slot fits.
    pub fn new(region: R) -> Result<Self, Error> {
        let slots = messages("message ring", region.borrow(), Self::STRIDE)?;
        Ok(Self { region, slots, taken: 0, message: PhantomData })
    }

    /// Returns the region.
    pub fn region(&self) -> &MemoryRegion {
        self.region.borrow()
    }

    /// Returns the number of slots.
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// Returns the number of messages that [`MessageRing::take`] has returned. The writer may reuse
    /// their slots.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Returns the slots, for the peer.
    pub fn remote_slice(&self) -> Result<RemoteSlice<MessageFrame<T>>, Error> {
        Ok(self.region().remote_slice(..self.slots * Self::STRIDE)?.cast()?)
    }

    /// Takes the next message, if it has arrived completely. A message with a wrong check counts as
    /// not arrived.
    ///
    /// # Errors
    /// If the peer wrote more messages than there were free slots, so that some are lost, or wrote
    /// a message of another number.
    pub fn take(&mut self) -> Result<Option<T>, Error> {
        const WHAT: &str = "message ring";
        let region = self.region();
        let words = region.own(WHAT, 0, region.len())?;
        let (slots, wanted) = (self.slots as u64, self.taken + 1);
        let slot = self.taken % slots;
        let Some((found, value)) = copy(WHAT, &words, slot as usize * Self::STRIDE)? else {
            return Ok(None);
        };
        if found == wanted {
            self.taken += 1;
            return Ok(Some(value));
        }
        // The number of the previous lap; 0 at the start.
        if found == wanted.saturating_sub(slots) {
            return Ok(None);
        }
        let cause = format!(
            "slot {slot} has number {found} instead of {wanted}: the peer wrote more messages than \
             were free, or something else"
        );
        Err(Error::new(WHAT, ErrorKind::WrongState, cause))
    }
}

impl<T, R: Borrow<MemoryRegion>> fmt::Debug for MessageRing<T, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MessageRing")
            .field("slots", &self.slots)
            .field("taken", &self.taken)
            .field("region", self.region.borrow())
            .finish()
    }
}

/// The peer's side of a [`MessageRing`]: numbers each message, and returns the address to write it
/// to.
pub struct MessageRingWriter<T> {
    slots: RemoteSlice<MessageFrame<T>>,
    written: u64,
    taken: u64,
}

impl<T: Plain> MessageRingWriter<T> {
    /// Makes the writer of an empty ring. A ring has only one writer.
    pub fn new(slots: RemoteSlice<MessageFrame<T>>) -> Self {
        const { assert!(size_of::<MessageFrame<T>>() == stride::<T>()) };
        Self { slots, written: 0, taken: 0 }
    }

    /// Returns the number of messages for which there is room.
    pub fn room(&self) -> usize {
        self.slots.len() - (self.written - self.taken) as usize
    }

    /// Returns the number of messages written.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Returns the next message with its number, and the address to write it to, or `None` if the
    /// ring is full. It must be posted, by one RDMA write: the reader waits for it.
    pub fn push(&mut self, value: T) -> Option<(RemoteAddress, MessageFrame<T>)> {
        if self.room() == 0 {
            return None;
        }
        let to = self.slots.at((self.written % self.slots.len() as u64) as usize).ok()?;
        self.written += 1;
        let check = check(self.written, &value).to_le_bytes();
        Some((to, MessageFrame { number: self.written.to_le_bytes(), value, check }))
    }

    /// Notes the number of messages that the reader has taken. Their slots are free again. A number
    /// below an earlier one has no effect.
    ///
    /// # Errors
    /// If fewer messages were written.
    pub fn taken(&mut self, taken: u64) -> Result<(), Error> {
        if taken > self.written {
            let what = format!("{taken} messages cannot be taken: {} were written", self.written);
            return Err(Error::invalid("message ring", what));
        }
        self.taken = self.taken.max(taken);
        Ok(())
    }
}

impl<T> fmt::Debug for MessageRingWriter<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MessageRingWriter")
            .field("slots", &self.slots)
            .field("written", &self.written)
            .field("taken", &self.taken)
            .finish()
    }
}

/// A value of [`MessageSlots`] as it is laid out in memory: its version, the value, and a check of
/// both. The writer posts [`SlotFrame::as_bytes`] by one RDMA write.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, Unaligned)]
#[repr(C, packed)]
pub struct SlotFrame<T> {
    /// Little-endian; 0 in an empty slot.
    version: [u8; 8],
    value: T,
    /// The check of both, little-endian.
    check: [u8; 8],
}

impl<T: Plain> SlotFrame<T> {
    /// Returns the bytes to write.
    pub fn as_bytes(&self) -> &[u8] {
        IntoBytes::as_bytes(self)
    }
}

impl<T> fmt::Debug for SlotFrame<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = u64::from_le_bytes(self.version);
        f.debug_struct("SlotFrame").field("version", &version).finish_non_exhaustive()
    }
}

/// Values that peers overwrite at any time; a reader gets the latest complete one.
///
/// Each slot belongs to one peer, which has a [`MessageSlotWriter`] on its part of
/// [`MessageSlots::remote_slice`]. A value `T` takes a multiple of 8 bytes.
/// `pd.memory_of::<SlotFrame<T>>(slots)` builds a region for `slots` values.
///
/// ```
/// # use mlx5_sim::{SimConfig, Simulator};
/// # let simulator = Simulator::new(SimConfig::new());
/// # let pd = mlx5::devices_on(simulator.kernel())?[0].open()?.alloc_pd()?;
/// use mlx5::{Access, MessageSlotWriter, MessageSlots};
///
/// let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
/// let slots = MessageSlots::<[u64; 4], _>::new(pd.memory(4096).access(rights).register()?)?;
/// assert_eq!(slots.read(2)?, None);
///
/// // The peer of slot 2 posts each value by one RDMA write, as with a `MessageRing`.
/// let mut writer = MessageSlotWriter::new(slots.remote_slice()?, 2)?;
/// let (to, frame) = writer.push([7; 4]);
/// # slots.region().write_at((to.addr - slots.region().addr()) as usize, frame.as_bytes())?;
/// assert_eq!(slots.read(2)?, Some((1, [7; 4])));
/// # Ok::<(), mlx5::Error>(())
/// ```
///
/// # Order
/// As for [`MessageRing`], the bytes may arrive in any order. A copy during which the peer wrote
/// has another check.
pub struct MessageSlots<T, R = MemoryRegion> {
    region: R,
    slots: usize,
    value: PhantomData<fn() -> T>,
}

impl<T: Plain, R: Borrow<MemoryRegion>> MessageSlots<T, R> {
    const STRIDE: usize = stride::<T>();

    /// Makes slots of a region, as many as fit, and empties them. Fails like [`MessageRing::new`].
    pub fn new(region: R) -> Result<Self, Error> {
        let slots = messages("message slots", region.borrow(), Self::STRIDE)?;
        Ok(Self { region, slots, value: PhantomData })
    }

    /// Returns the region.
    pub fn region(&self) -> &MemoryRegion {
        self.region.borrow()
    }

    /// Returns the number of slots.
    #[expect(clippy::len_without_is_empty, reason = "there is at least one slot")]
    pub fn len(&self) -> usize {
        self.slots
    }

    /// Returns the slots, for peers.
    pub fn remote_slice(&self) -> Result<RemoteSlice<SlotFrame<T>>, Error> {
        Ok(self.region().remote_slice(..self.slots * Self::STRIDE)?.cast()?)
    }

    /// Returns version and value of a slot. `None` if the slot is empty, or is being written: then
    /// read it again.
    pub fn read(&self, slot: usize) -> Result<Option<(u64, T)>, Error> {
        const WHAT: &str = "message slots";
        if slot >= self.slots {
            let what = format!("slot {slot} of {} slots", self.slots);
            return Err(Error::invalid(WHAT, what));
        }
        let region = self.region();
        let words = region.own(WHAT, 0, region.len())?;
        Ok(copy(WHAT, &words, slot * Self::STRIDE)?.filter(|(version, _)| *version != 0))
    }
}

/// A peer's side of [`MessageSlots`]: gives each value a version, and returns the address of the
/// slot.
pub struct MessageSlotWriter<T> {
    slot: RemoteAddress,
    version: u64,
    value: PhantomData<fn() -> T>,
}

impl<T: Plain> MessageSlotWriter<T> {
    /// Makes the writer of a slot. A slot has only one writer.
    ///
    /// # Errors
    /// If there is no such slot.
    pub fn new(slots: RemoteSlice<SlotFrame<T>>, slot: usize) -> Result<Self, Error> {
        const { assert!(size_of::<SlotFrame<T>>() == stride::<T>()) };
        Ok(Self { slot: slots.at(slot)?, version: 0, value: PhantomData })
    }

    /// Returns the version of the last value; 0 before the first.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Returns a value with its version, and the address to write it to, by one RDMA write.
    pub fn push(&mut self, value: T) -> (RemoteAddress, SlotFrame<T>) {
        self.version += 1;
        let check = check(self.version, &value).to_le_bytes();
        (self.slot, SlotFrame { version: self.version.to_le_bytes(), value, check })
    }
}

impl<T> fmt::Debug for MessageSlotWriter<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MessageSlotWriter")
            .field("slot", &self.slot)
            .field("version", &self.version)
            .finish()
    }
}

impl<T, R: Borrow<MemoryRegion>> fmt::Debug for MessageSlots<T, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MessageSlots")
            .field("slots", &self.slots)
            .field("region", self.region.borrow())
            .finish()
    }
}
