//! The builder of completion queues.

use super::{CompletionQueue, CqInner, Handle, PollError};
use crate::context::Context;
use crate::cq::CompletionChannel;
use crate::error::{Error, ErrorKind};
use crate::link::{CqId, Watched};
use crate::pools::{MemorySource, QueueBuffer, RecordSlot, UserIndex, memory_options};
use mlx5_cq::{
    Attention, Deferred, Ring, RingBuffer, RingId, RingParts, RingState, SkippedReceive,
};
use mlx5_doorbell::CompletionQueueRecord;
use mlx5_prm::cqe::MiniFormat;
use mlx5_uapi::cmd::cq as command;
use mlx5_uapi::mlx5 as abi;
use mlx5_uapi::mlx5::{CqeCompFormat, CreateCqFlags, QueryDeviceFlags, UcontextRespMask};
use mlx5_uapi::verbs::CqFlags;
use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::{Arc, Mutex};

/// Size of a CQE.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum CqeSize {
    /// 64 bytes.
    #[default]
    Bytes64,
    /// 128 bytes: room for up to 64 bytes of inline data.
    Bytes128,
}

impl CqeSize {
    pub(super) const fn bytes(self) -> usize {
        match self {
            Self::Bytes64 => 64,
            Self::Bytes128 => 128,
        }
    }
}

/// The unit of completion timestamps.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum Timestamps {
    /// Cycles of the device's clock. [`crate::Clock`] converts them to real time.
    #[default]
    Cycles,
    /// Real time, as [`crate::real_time_ns`] reads it.
    RealTime,
}

const VERB: &str = "create_cq";

/// The options of a new completion queue. See [`Context::create_cq`].
#[must_use = "a builder makes nothing until `build` is called"]
pub struct CompletionQueueBuilder<'a> {
    context: &'a Context,
    entries: u32,
    cqe_size: CqeSize,
    comp_vector: u32,
    channel: Option<&'a CompletionChannel>,
    memory: MemorySource,
    ignore_overrun: bool,
    compression: Option<MiniFormat>,
    padding: bool,
    timestamps: Timestamps,
    consumed: u32,
    checks: bool,
}

impl fmt::Debug for CompletionQueueBuilder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompletionQueueBuilder")
            .field("entries", &self.entries)
            .field("cqe_size", &self.cqe_size)
            .field("comp_vector", &self.comp_vector)
            .field("channel", &self.channel.is_some())
            .field("huge_pages", &self.memory.huge_pages)
            .field("numa_node", &self.memory.numa_node)
            .field("ignore_overrun", &self.ignore_overrun)
            .field("compression", &self.compression)
            .field("timestamps", &self.timestamps)
            .finish_non_exhaustive()
    }
}

impl Context {
    /// Starts building a completion queue for at least `entries` CQEs (`ibv_create_cq`). `entries`
    /// is at least 1 and at most what the device supports, or 2²³ − 1 if that is less.
    pub fn create_cq(&self, entries: u32) -> CompletionQueueBuilder<'_> {
        CompletionQueueBuilder {
            context: self,
            entries,
            cqe_size: CqeSize::default(),
            comp_vector: 0,
            channel: None,
            memory: MemorySource::default(),
            ignore_overrun: false,
            compression: None,
            padding: false,
            timestamps: Timestamps::default(),
            consumed: 0,
            checks: true,
        }
    }
}

impl<'a> CompletionQueueBuilder<'a> {
    /// Size of a CQE. Default: [`CqeSize::Bytes64`].
    pub fn cqe_size(mut self, size: CqeSize) -> Self {
        self.cqe_size = size;
        self
    }

    /// The completion vector that raises events. Default: 0. `build` refuses a number that is not
    /// below [`Context::num_comp_vectors`].
    pub fn comp_vector(mut self, vector: u32) -> Self {
        self.comp_vector = vector;
        self
    }

    /// The channel that delivers events. Default: none; [`CompletionQueue::arm`] and
    /// [`CompletionQueue::wait`] need one. `build` refuses one of another context.
    pub fn channel(mut self, channel: &'a CompletionChannel) -> Self {
        self.channel = Some(channel);
        self
    }

    memory_options!("the buffer", memory);

    /// Lets the device overwrite CQEs that were not polled, instead of failing the queue, so that
    /// it need not check. Default: false. For programs in which an overrun cannot happen. If one
    /// happens nevertheless, lost completions of sends are retired with the next one. A lost
    /// completion of a receive is never reported, and the room of that receive and of those after
    /// it is lost.
    pub fn ignore_overrun(mut self, ignore: bool) -> Self {
        self.ignore_overrun = ignore;
        self
    }

    /// Lets the device compress similar completions: it writes less over the bus, but polling takes
    /// more work. Default: no compression. `format` selects the field that each compressed receive
    /// has of its own; the other fields, including the timestamp, are known only for the first
    /// completion of a run.
    ///
    /// The CQEs of a run become free all at once, when its last completion was polled. A program
    /// that posts requests again before it has polled a whole run needs room for both: as many more
    /// entries as the longest run has ([`max_compressed`](crate::CompletionCaps::max_compressed)).
    /// Otherwise the queue may overrun.
    ///
    /// [`crate::CompletionCaps`] has the formats that the device supports, and whether 128-byte
    /// CQEs can be compressed. `build` refuses others with
    /// [`ErrorKind::NotSupported`](crate::ErrorKind::NotSupported).
    pub fn compression(mut self, format: MiniFormat) -> Self {
        self.compression = Some(format);
        self
    }

    /// Lets the device write all 128 bytes of a CQE, so that the host need not read the cache line
    /// first. Default: false. `build` refuses it without [`CqeSize::Bytes128`], and on a device
    /// that does not support it.
    pub fn padding(mut self, padding: bool) -> Self {
        self.padding = padding;
        self
    }

    /// The unit of the timestamps. Default: [`Timestamps::Cycles`]. `build` refuses
    /// [`Timestamps::RealTime`] if the device or the kernel does not support it. Both completion
    /// queues of a queue pair must have the same unit.
    pub fn timestamps(mut self, timestamps: Timestamps) -> Self {
        self.timestamps = timestamps;
        self
    }

    /// Whether empty polls occasionally check that the device is still there (each million polls)
    /// and that the queue did not overrun (when as many completed as the queue holds). A check is a
    /// system call and, with DEVX while an asynchronous event is unread, a firmware command.
    /// Default: true. Without checks, no poll makes a system call, and polls fail for either reason
    /// only after the program has read an asynchronous event about it, or another call has failed.
    pub fn checks(mut self, checks: bool) -> Self {
        self.checks = checks;
        self
    }

    /// Creates the queue with this consumer index. The device must start there too, which only a
    /// simulated one can: tests see counters wrap without polling for hours.
    #[doc(hidden)]
    pub fn consumed(mut self, completions: u32) -> Self {
        self.consumed = completions;
        self
    }

    /// Returns the driver part of the request, after checking that the device supports it.
    fn driver(&self) -> Result<abi::CreateCq, Error> {
        let context = &self.context.inner;
        let unsupported = |what| Err(Error::not_supported(VERB, what));
        let mut flags = CreateCqFlags::UAR_PAGE_INDEX;
        if self.padding {
            if self.cqe_size != CqeSize::Bytes128 {
                let what = "padding requires 128-byte CQEs";
                return Err(Error::invalid(VERB, what.into()));
            }
            flags |= CreateCqFlags::CQE_128B_PAD;
        }
        let driver = &context.caps.driver;
        let can = QueryDeviceFlags::from_bits_retain(driver.flags);
        if self.padding && !can.contains(QueryDeviceFlags::CQE_128B_PAD) {
            return unsupported("the device does not pad entries: omit `padding`");
        }
        if self.timestamps == Timestamps::RealTime {
            if !context.kernel_can(UcontextRespMask::REAL_TIME_TS) {
                return unsupported(
                    "the device, or its driver in the kernel, does not tell the time of day: choose \
                     other `timestamps`",
                );
            }
            flags |= CreateCqFlags::REAL_TIME_TS;
        }
        let format = self.compression.map(|format| match format {
            MiniFormat::Hash => CqeCompFormat::HASH,
            MiniFormat::Checksum => CqeCompFormat::CSUM,
            MiniFormat::ChecksumStride => CqeCompFormat::CSUM_STRIDX,
        });
        if let (Some(asked), Some(format)) = (self.compression, format) {
            let formats = CqeCompFormat::from_bits_retain(driver.cqe_comp_caps.supported_format);
            if !formats.contains(format) {
                let what = format!(
                    "the device does not compress completions in the format {asked:?}: omit \
                     `compression`, or choose another"
                );
                return Err(Error::new(VERB, ErrorKind::NotSupported, what));
            }
            if self.cqe_size == CqeSize::Bytes128 && !can.contains(QueryDeviceFlags::CQE_128B_COMP)
            {
                return unsupported(
                    "the device does not compress entries of 128 bytes: omit `compression`, or \
                     `cqe_size`",
                );
            }
        }
        Ok(abi::CreateCq {
            cqe_size: self.cqe_size.bytes() as u32,
            cqe_comp_en: format.is_some().into(),
            cqe_comp_res_format: format.map_or(0, |format| format.bits() as u8),
            flags: flags.bits(),
            ..abi::CreateCq::default()
        })
    }

    /// Creates the queue.
    pub fn build(self) -> Result<CompletionQueue, Error> {
        let context = &self.context.inner;
        context.check(VERB)?;
        let driver = self.driver()?;
        let max = context.max_cqe().min(MAX_ENTRIES);
        let Some(entries) = entries_for(self.entries, max) else {
            let what = format!("{} CQEs requested; the device supports 1 to {max}", self.entries);
            return Err(Error::invalid(VERB, what));
        };
        if self.comp_vector >= context.num_comp_vectors() {
            let what = format!(
                "completion vector {} requested; the device has {}",
                self.comp_vector,
                context.num_comp_vectors()
            );
            return Err(Error::invalid(VERB, what));
        }
        if self.channel.is_some_and(|channel| !channel.belongs_to(context)) {
            return Err(Error::invalid(VERB, "the channel belongs to another context".into()));
        }
        let log_size = entries.trailing_zeros();
        let stride = self.cqe_size.bytes();
        let buffer = QueueBuffer::new(&context.buffers, stride << log_size, &self.memory)?;
        let slot = RecordSlot::new(&context.records, self.memory.allocator.as_ref())?;
        let uar = context.uars.cq();
        // SAFETY: the slot lives as long as the queue, and nothing else uses its record. The buffer
        // has the given size, and lives as long as the ring's state is used.
        let (record, state) = unsafe {
            let record = CompletionQueueRecord::new(slot.record());
            let ring_buffer = RingBuffer { start: buffer.as_non_null(), log_size, stride };
            let state = RingState::new(ring_buffer, record).compressed(self.compression);
            match self.consumed {
                0 => (record, state),
                consumed => (record, state.starting_at(consumed)),
            }
        };
        let id = context.next_handle_id();
        let request = command::CreateCq {
            // The kernel rounds up to a power of two greater than this number.
            cqe: (1 << log_size) - 1,
            user_handle: id,
            comp_channel: self.channel.map(CompletionChannel::as_kernel_fd),
            comp_vector: self.comp_vector,
            flags: if self.ignore_overrun { CqFlags::IGNORE_OVERRUN } else { CqFlags::empty() },
            async_events: Some(context.async_fd()),
            driver: abi::CreateCq {
                buf_addr: buffer.addr(),
                db_addr: slot.addr(),
                uar_page_index: uar.page_id as u16,
                ..driver
            },
            uar_index: (uar.page_id > u32::from(u16::MAX)).then_some(uar.page_id),
        };
        // SAFETY: buffer and record live until the queue is destroyed, or until the file is closed.
        let made = match unsafe { command::create(&*context.file, &request) } {
            Ok(made) => made,
            Err(errno) => {
                let error = context.fail(VERB, errno);
                if error.in_doubt() {
                    buffer.keep();
                    slot.keep();
                    context.uars.keep();
                }
                return Err(error);
            }
        };
        // SAFETY: the slot lives as long as the queue, and nothing else uses its word.
        let attention = unsafe { Attention::new(slot.word()) };
        let events = self.channel.map(|channel| channel.register(id));
        let state = Arc::new(state);
        let mut ring = Ring::new(RingParts {
            queues: Arc::clone(&context.user_indexes.table),
            state: Arc::clone(&state),
            attention,
            id: ring_id(id),
        });
        let deferred = Arc::new(Deferred::default());
        ring.on_skipped_receive(give_back(&deferred));
        let keys = Arc::clone(&context.signed_keys);
        ring.on_signature_error(Box::new(move |entry| keys.report(entry)));
        let inner = Arc::new(CqInner {
            watch: context.watch(Watched::Completions(attention, CqId(id))),
            context: Arc::clone(context),
            handle: Handle::new(made.handle),
            cqn: made.cqn,
            id,
            state,
            attention,
            record,
            uar,
            deferred,
            buffer: Mutex::new(Some(buffer)),
            stale: Mutex::default(),
            left: Mutex::default(),
            memory: self.memory,
            timestamps: self.timestamps,
            slot: Some(slot),
            channel: self.channel.cloned(),
            events,
            checks: self.checks,
        });
        ring.look_after(CompletionQueue::ALIVE_CHECK);
        Ok(CompletionQueue {
            empty_at: ring.consumer(),
            ring: ManuallyDrop::new(ring),
            inner,
            until_next: CompletionQueue::ALIVE_CHECK,
            in_vain: false,
            last_error: PollError::DeviceGone,
        })
    }
}

/// Maximum number of CQEs, whatever the device supports. The device reads 24 bits of the consumer
/// index, and a full queue must differ from an empty one.
pub(super) const MAX_ENTRIES: u32 = (1 << 23) - 1;

/// Returns the number of CQEs of a queue with room for `entries`, if the device supports `max`: a
/// power of two, with one more than requested so that a full queue differs from an empty one.
pub(crate) const fn entries_for(entries: u32, max: u32) -> Option<u32> {
    if entries == 0 || entries > max || entries > MAX_ENTRIES {
        return None;
    }
    Some((entries + 1).next_power_of_two())
}

/// Returns the ring identifier of the completion queue with this handle identifier.
pub(crate) const fn ring_id(id: u64) -> RingId {
    RingId(id as u32)
}

/// Returns the function that a ring calls for skipped receives of destroyed queue pairs. A request
/// of a shared receive queue becomes free again, although the message is not reported.
fn give_back(deferred: &Arc<Deferred<Arc<UserIndex>>>) -> SkippedReceive {
    let deferred = Arc::clone(deferred);
    Box::new(move |index, counter| {
        // SAFETY: the ring calls it only during a poll. Values are freed only by the poller, or by
        // the owner of the queue while it cannot be polled.
        if let Some(gone) = unsafe { deferred.find(|gone| gone.get() == index) } {
            gone.discard_receive(counter);
        }
    })
}
