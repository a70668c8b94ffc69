//! Messages that a peer writes into a region: a ring of them, and slots of which the last counts.
//!
//! The peer writes a message together with a number, by one RDMA write. The reader sees by the
//! number that the message is complete. Three things make that order hold:
//!
//! * The writing device sends the bytes of a request in ascending order, and the reading device
//!   places them so: on a reliable or unreliable connection, without out-of-order placement
//!   (`MLX5DV_QP_CREATE_OOO_DP`, which this driver does not offer). The InfiniBand specification
//!   leaves the order inside of a request open (o9-20); ConnectX keeps it, as programs that poll
//!   memory rely on. That is not proven on silicon by this project.
//! * PCI Express keeps the order of writes, unless their relaxed-ordering attribute is set. So a
//!   region with `RELAXED_ORDERING` is refused.
//! * The processor loads the number first and the message after it. On x86-64 loads are performed
//!   in program order. On aarch64 they are not: an acquire load orders later loads after it, and
//!   `barrier::from_device` (`dmb oshld`, as Linux' `dma_rmb`) does so for what a device outside of
//!   the inner shareable domain wrote. Both are used: the acquire load for the compiler and for
//!   peers that are threads of this machine, the barrier for the device.

use super::{Access, MemoryRegion, Plain, mr::copy::Words};
use crate::error::{Error, ErrorKind};
use mlx5_doorbell::barrier;
use mlx5_wqe::{RemoteAddress, RemoteSlice};
use std::{
    borrow::Borrow,
    fmt,
    marker::PhantomData,
    sync::atomic::{AtomicU64, Ordering::Acquire},
};
use zerocopy::{FromBytes, Immutable, IntoBytes, Unaligned};

/// A message of a [`MessageRing`] as it lies in memory: the message and its number. The writer posts
/// [`MessageFrame::as_bytes`] by one RDMA write.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, Unaligned)]
#[repr(C, packed)]
pub struct MessageFrame<T> {
    value: T,
    /// One more than the number of messages before it, little-endian; 0 in an empty slot.
    number: [u8; 8],
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

/// Bytes of a number.
const NUMBER: usize = size_of::<u64>();

/// Bytes of a message, which keep the numbers behind aligned.
const fn message_size<T>() -> usize {
    let size = size_of::<T>();
    assert!(size > 0 && size.is_multiple_of(NUMBER), "a message takes a multiple of 8 bytes");
    size
}

/// Returns the memory of a region that peers write messages to, and how many `stride` bytes fit.
fn messages<'a>(
    operation: &'static str,
    region: &'a MemoryRegion,
    stride: usize,
) -> Result<(Words<'a>, usize), Error> {
    let wrong = |what: String| Err(Error::invalid(operation, what));
    let words = region.own(operation, 0, region.len())?;
    if !region.access().contains(Access::REMOTE_WRITE) {
        return wrong("no peer may write the region: register it with REMOTE_WRITE".into());
    }
    if region.access().contains(Access::RELAXED_ORDERING) {
        return wrong(
            "RELAXED_ORDERING lets a number arrive before its message: register the region without"
                .into(),
        );
    }
    if words.as_words().is_none() {
        return wrong("the memory does not start at a multiple of 8 bytes".into());
    }
    match region.len() / stride {
        0 => wrong(format!("a region of {} bytes has no room for {stride} bytes", region.len())),
        count => Ok((words, count)),
    }
}

/// Loads a number that a device writes. Later loads are performed after it.
fn load(word: &AtomicU64) -> u64 {
    let number = u64::from_le(word.load(Acquire));
    barrier::from_device();
    number
}

/// Messages that one peer writes into a region, read in order.
///
/// The peer has a [`MessageRingWriter`] on [`MessageRing::remote_slice`]. It must not write more
/// messages than there are slots beyond those that were taken, so the reader tells it
/// [`MessageRing::taken`] from time to time, for example in its replies. A message `T` takes a
/// multiple of 8 bytes. `pd.memory_of::<MessageFrame<T>>(slots)` is a region for so many.
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
/// # let (port, psn, options) = (context.local_port(1, None)?, Psn::default(), ConnectOptions::default());
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
/// The writer's message must be one RDMA write on a reliable or unreliable connection. The number
/// lies behind the message, and is loaded before it, with a barrier for the device in between.
pub struct MessageRing<T, R = MemoryRegion> {
    region: R,
    slots: usize,
    taken: u64,
    message: PhantomData<fn() -> T>,
}

impl<T: Plain, R: Borrow<MemoryRegion>> MessageRing<T, R> {
    const STRIDE: usize = message_size::<T>() + NUMBER;

    /// Makes a region into a ring, with as many slots as fit, and empties them. `R` is a reference,
    /// the region itself, or an `Arc` of it.
    ///
    /// # Errors
    /// If no peer may write the region, it has `RELAXED_ORDERING` or foreign memory, or no slot
    /// fits.
    pub fn new(region: R) -> Result<Self, Error> {
        let (words, slots) = messages("message ring", region.borrow(), Self::STRIDE)?;
        for slot in 0..slots {
            words.write(slot * Self::STRIDE + Self::STRIDE - NUMBER, &[0; NUMBER]);
        }
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

    /// Takes the next message, if it is there.
    ///
    /// # Errors
    /// If the peer wrote more messages than there were free slots, so that some are lost, or wrote
    /// something else.
    pub fn take(&mut self) -> Result<Option<T>, Error> {
        const WHAT: &str = "message ring";
        let region = self.region();
        let words = region.own(WHAT, 0, region.len())?;
        let start = (self.taken % self.slots as u64) as usize * Self::STRIDE;
        let Some(word) =
            words.as_words().and_then(|all| all.get((start + Self::STRIDE) / NUMBER - 1))
        else {
            return Err(Error::invalid(WHAT, "the region has other memory than at first".into()));
        };
        let (found, wanted) = (load(word), self.taken + 1);
        if found != wanted {
            // What lies there from the lap before; 0 from the start.
            if found == wanted.saturating_sub(self.slots as u64) {
                return Ok(None);
            }
            let cause = format!(
                "slot {} has number {found} instead of {wanted}: the peer wrote more messages than \
                 were free, or something else",
                (wanted - 1) % self.slots as u64
            );
            return Err(Error::new(WHAT, ErrorKind::WrongState, cause));
        }
        let mut value = T::new_zeroed();
        words.read(start, value.as_mut_bytes());
        // The copy is done before the caller can tell the peer that the slot is free.
        barrier::from_device();
        // A peer that overran the slot meanwhile may have torn the copy. That is noticed here only
        // once the number behind the message has arrived; a peer that keeps to its room never does.
        if load(word) != wanted {
            let cause = "the peer wrote a message that was not taken yet";
            return Err(Error::new(WHAT, ErrorKind::WrongState, cause));
        }
        self.taken = wanted;
        Ok(Some(value))
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

/// The peer's side of a [`MessageRing`]: says where the next message goes, and numbers it.
pub struct MessageRingWriter<T> {
    slots: RemoteSlice<MessageFrame<T>>,
    written: u64,
    taken: u64,
}

impl<T: Plain> MessageRingWriter<T> {
    /// Makes the writer of an empty ring. There can be one.
    pub fn new(slots: RemoteSlice<MessageFrame<T>>) -> Self {
        const { assert!(size_of::<MessageFrame<T>>() == message_size::<T>() + NUMBER) };
        Self { slots, written: 0, taken: 0 }
    }

    /// Returns how many more messages have room.
    pub fn room(&self) -> usize {
        self.slots.len() - (self.written - self.taken) as usize
    }

    /// Returns the number of messages written.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Returns the next message with its number, and where to write it, or `None` if the ring is
    /// full. It must be posted, by one RDMA write: the reader waits for it.
    pub fn push(&mut self, value: T) -> Option<(RemoteAddress, MessageFrame<T>)> {
        if self.room() == 0 {
            return None;
        }
        let to = self.slots.at((self.written % self.slots.len() as u64) as usize).ok()?;
        self.written += 1;
        Some((to, MessageFrame { value, number: self.written.to_le_bytes() }))
    }

    /// Learns how many messages the reader has taken. Their slots are free again. An older number
    /// than before has no effect.
    ///
    /// # Errors
    /// If there were not so many messages.
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

/// A value of [`MessageSlots`] as it lies in memory: between two copies of its version. The writer
/// posts [`SlotFrame::as_bytes`] by one RDMA write.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, Unaligned)]
#[repr(C, packed)]
pub struct SlotFrame<T> {
    /// The version, little-endian; 0 in an empty slot.
    begin: [u8; 8],
    value: T,
    end: [u8; 8],
}

impl<T: Plain> SlotFrame<T> {
    /// Returns the bytes to write.
    pub fn as_bytes(&self) -> &[u8] {
        IntoBytes::as_bytes(self)
    }
}

impl<T> fmt::Debug for SlotFrame<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = u64::from_le_bytes(self.begin);
        f.debug_struct("SlotFrame").field("version", &version).finish_non_exhaustive()
    }
}

/// Values that peers overwrite at any time; a reader gets a whole one, and the latest.
///
/// Each slot belongs to one peer, which has a [`MessageSlotWriter`] on its part of
/// [`MessageSlots::remote_slice`]. A value `T` takes a multiple of 8 bytes.
/// `pd.memory_of::<SlotFrame<T>>(slots)` is a region for so many.
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
/// As for [`MessageRing`]. The reader loads the version behind the value, the value, and the version
/// before it, in this order. Since the device writes in ascending order, equal versions mean that
/// no write fell into the copy.
pub struct MessageSlots<T, R = MemoryRegion> {
    region: R,
    slots: usize,
    value: PhantomData<fn() -> T>,
}

impl<T: Plain, R: Borrow<MemoryRegion>> MessageSlots<T, R> {
    const STRIDE: usize = message_size::<T>() + 2 * NUMBER;

    /// Makes a region into slots, as many as fit, and empties them. Errors as those of
    /// [`MessageRing::new`].
    pub fn new(region: R) -> Result<Self, Error> {
        let (words, slots) = messages("message slots", region.borrow(), Self::STRIDE)?;
        for slot in 0..slots {
            words.write(slot * Self::STRIDE, &[0; NUMBER]);
            words.write((slot + 1) * Self::STRIDE - NUMBER, &[0; NUMBER]);
        }
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

    /// Returns version and value of a slot; `None` if it is empty, or is being written: read it
    /// again then.
    pub fn read(&self, slot: usize) -> Result<Option<(u64, T)>, Error> {
        const WHAT: &str = "message slots";
        if slot >= self.slots {
            let what = format!("slot {slot} of {} slots", self.slots);
            return Err(Error::invalid(WHAT, what));
        }
        let region = self.region();
        let words = region.own(WHAT, 0, region.len())?;
        let start = slot * Self::STRIDE;
        let frame = words
            .as_words()
            .and_then(|all| all.get(start / NUMBER..(start + Self::STRIDE) / NUMBER));
        let Some([begin, .., end]) = frame else {
            return Err(Error::invalid(WHAT, "the region has other memory than at first".into()));
        };
        let version = load(end);
        let mut value = T::new_zeroed();
        words.read(start + NUMBER, value.as_mut_bytes());
        // The value is loaded before the version in front of it.
        barrier::from_device();
        let complete = version != 0 && load(begin) == version;
        Ok(complete.then_some((version, value)))
    }
}

/// A peer's side of [`MessageSlots`]: says where the values of a slot go, and gives each a version.
pub struct MessageSlotWriter<T> {
    slot: RemoteAddress,
    version: u64,
    value: PhantomData<fn() -> T>,
}

impl<T: Plain> MessageSlotWriter<T> {
    /// Makes the writer of a slot. There can be one of each.
    ///
    /// # Errors
    /// If there is no such slot.
    pub fn new(slots: RemoteSlice<SlotFrame<T>>, slot: usize) -> Result<Self, Error> {
        const { assert!(size_of::<SlotFrame<T>>() == message_size::<T>() + 2 * NUMBER) };
        Ok(Self { slot: slots.at(slot)?, version: 0, value: PhantomData })
    }

    /// Returns the version of the last value; 0 before the first.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Returns a value between its versions, and where to write it, by one RDMA write.
    pub fn push(&mut self, value: T) -> (RemoteAddress, SlotFrame<T>) {
        self.version += 1;
        let version = self.version.to_le_bytes();
        (self.slot, SlotFrame { begin: version, value, end: version })
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
