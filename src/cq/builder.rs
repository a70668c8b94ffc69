//! How a completion queue is made.

use super::{CompletionQueue, CqInner, PollError};
use crate::context::Context;
use crate::cq::CompletionChannel;
use crate::error::Error;
use crate::link::{CqId, Watched};
use crate::pools::{QueueAllocator, QueueBuffer, RecordSlot, UserIndex};
use mlx5_cq::{Attention, DepartedReceive, Departures, Places, Ring, RingId, RingParts, RingState};
use mlx5_doorbell::CompletionQueueRecord;
use mlx5_prm::cqe::MiniFormat;
use mlx5_uapi::cmd::cq as command;
use mlx5_uapi::mlx5::{CqeCompFormat, CreateCqFlags, QueryDeviceFlags, UcontextRespMask};
use mlx5_uapi::verbs::CqFlags;
use mlx5_uapi::{HugePages, mlx5 as abi};
use std::sync::{Arc, Mutex};

/// Bytes of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum CqeSize {
    /// 64 bytes.
    #[default]
    Bytes64,
    /// 128 bytes: room for up to 64 bytes of a message.
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

/// What the timestamps of completions count.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum Timestamps {
    /// Cycles of the device's clock. [`crate::Clock`] says which time of day that was.
    #[default]
    Cycles,
    /// The time of day, as [`crate::real_time_ns`] reads it.
    RealTime,
}

const VERB: &str = "create_cq";

/// How a completion queue is to be made. See [`Context::create_cq`].
#[must_use = "a builder makes nothing until `build` is called"]
pub struct CompletionQueueBuilder<'a> {
    context: &'a Context,
    entries: u32,
    cqe_size: CqeSize,
    comp_vector: u32,
    channel: Option<&'a CompletionChannel>,
    huge_pages: HugePages,
    allocator: Option<Arc<dyn QueueAllocator>>,
    ignore_overrun: bool,
    compression: Option<MiniFormat>,
    padding: bool,
    timestamps: Timestamps,
    consumed: u32,
}

impl Context {
    /// Starts to make a completion queue for at least `entries` entries (`ibv_create_cq`).
    pub fn create_cq(&self, entries: u32) -> CompletionQueueBuilder<'_> {
        CompletionQueueBuilder {
            context: self,
            entries,
            cqe_size: CqeSize::default(),
            comp_vector: 0,
            channel: None,
            huge_pages: HugePages::None,
            allocator: None,
            ignore_overrun: false,
            compression: None,
            padding: false,
            timestamps: Timestamps::default(),
            consumed: 0,
        }
    }
}

impl<'a> CompletionQueueBuilder<'a> {
    /// Bytes of an entry.
    pub fn cqe_size(mut self, size: CqeSize) -> Self {
        self.cqe_size = size;
        self
    }

    /// Which of the context's completion vectors raises events, less than
    /// [`Context::num_comp_vectors`].
    pub fn comp_vector(mut self, vector: u32) -> Self {
        self.comp_vector = vector;
        self
    }

    /// The channel through which events are delivered.
    pub fn channel(mut self, channel: &'a CompletionChannel) -> Self {
        self.channel = Some(channel);
        self
    }

    /// Whether the buffer is to be made of huge pages.
    pub fn huge_pages(mut self, huge_pages: HugePages) -> Self {
        self.huge_pages = huge_pages;
        self
    }

    /// Who gives the buffer its memory, also when the queue is resized.
    pub fn allocator(mut self, allocator: &Arc<dyn QueueAllocator>) -> Self {
        self.allocator = Some(Arc::clone(allocator));
        self
    }

    /// Lets the device write entries over others that were not polled, instead of failing the
    /// queue. For those who know that it cannot happen: the device then skips the check. If it
    /// happens nonetheless, sends are passed with the next one that is found. Of a receive that was
    /// written over nothing is told, and neither it nor those behind it make room any more.
    pub fn ignore_overrun(mut self, ignore: bool) -> Self {
        self.ignore_overrun = ignore;
        self
    }

    /// Lets the device compress completions that differ in little: less is written over the bus, and
    /// more has to be worked out when they are polled. What receives then keep of their own is for
    /// `format` to say; the rest, the time among it, is known of the first of a run only.
    ///
    /// Which formats the device has, and whether for entries of 128 bytes, is in
    /// [`crate::CompletionCaps`].
    pub fn compression(mut self, format: MiniFormat) -> Self {
        self.compression = Some(format);
        self
    }

    /// Lets the device write all of an entry of 128 bytes, so that the host need not read what it
    /// had there before.
    pub fn padding(mut self, padding: bool) -> Self {
        self.padding = padding;
        self
    }

    /// What the timestamps of completions count. Queue pairs take that of the queues on which they
    /// complete, which must be the same.
    pub fn timestamps(mut self, timestamps: Timestamps) -> Self {
        self.timestamps = timestamps;
        self
    }

    /// Makes the queue as one from which so many completions were polled. The device has to be told
    /// so too, which only a simulated one can be: tests need not poll for hours to see counters
    /// wrap.
    #[doc(hidden)]
    pub fn consumed(mut self, completions: u32) -> Self {
        self.consumed = completions;
        self
    }

    /// What the driver is told, and whether the device can do it.
    fn driver(&self) -> Result<abi::CreateCq, Error> {
        let context = &self.context.inner;
        let unsupported = |what| Err(Error::not_supported(VERB, what));
        let mut flags = CreateCqFlags::UAR_PAGE_INDEX;
        if self.padding {
            if self.cqe_size != CqeSize::Bytes128 {
                let what = "padding is for entries of 128 bytes";
                return Err(Error::invalid(VERB, what.into()));
            }
            flags |= CreateCqFlags::CQE_128B_PAD;
        }
        let driver = &context.caps.driver;
        let can = QueryDeviceFlags::from_bits_retain(driver.flags);
        if self.padding && !can.contains(QueryDeviceFlags::CQE_128B_PAD) {
            return unsupported("the device does not pad entries");
        }
        if self.timestamps == Timestamps::RealTime {
            if !context.kernel_can(UcontextRespMask::REAL_TIME_TS) {
                return unsupported(
                    "the device, or its driver in the kernel, does not tell the time of day",
                );
            }
            flags |= CreateCqFlags::REAL_TIME_TS;
        }
        let format = self.compression.map(|format| match format {
            MiniFormat::Hash => CqeCompFormat::HASH,
            MiniFormat::Checksum => CqeCompFormat::CSUM,
            MiniFormat::ChecksumStride => CqeCompFormat::CSUM_STRIDX,
        });
        if let Some(format) = format {
            let formats = CqeCompFormat::from_bits_retain(driver.cqe_comp_caps.supported_format);
            if !formats.contains(format) {
                return unsupported("the device does not compress completions in this format");
            }
            if self.cqe_size == CqeSize::Bytes128 && !can.contains(QueryDeviceFlags::CQE_128B_COMP)
            {
                return unsupported("the device does not compress entries of 128 bytes");
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

    /// Makes the queue.
    pub fn build(self) -> Result<CompletionQueue, Error> {
        let context = &self.context.inner;
        context.check(VERB)?;
        let driver = self.driver()?;
        let max = context.max_cqe().min(MAX_ENTRIES);
        let Some(entries) = entries_for(self.entries, max) else {
            let what = format!("{} entries asked for; the device takes 1 to {max}", self.entries);
            return Err(Error::invalid(VERB, what));
        };
        if self.comp_vector >= context.num_comp_vectors() {
            let what = format!(
                "completion vector {} asked for; there are {}",
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
        let buffer = QueueBuffer::new(
            &context.link,
            stride << log_size,
            self.huge_pages,
            self.allocator.as_ref(),
        )?;
        let slot = RecordSlot::new(&context.records)?;
        let uar = context.uars.cq();
        // SAFETY: the slot is kept as long as the queue; nothing else uses the record. The buffer is
        // so large, and is kept as long as the ring's state is used.
        let (record, state) = unsafe {
            let record = CompletionQueueRecord::new(slot.record());
            let places = Places { buffer: buffer.as_non_null(), log_size, stride };
            let state = RingState::new(places, record).compressed(self.compression);
            match self.consumed {
                0 => (record, state),
                consumed => (record, state.starting_at(consumed)),
            }
        };
        let id = context.next_handle_id();
        let request = command::CreateCq {
            // The kernel rounds up past the number that it is told, as we do.
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
        // SAFETY: buffer and record are kept until the queue is destroyed, or the file closed.
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
        // SAFETY: the slot is kept as long as the queue; nothing else uses the word.
        let attention = unsafe { Attention::new(slot.word()) };
        let events = self.channel.map(|channel| channel.register(id));
        let state = Arc::new(state);
        let mut ring = Ring::new(RingParts {
            queues: Arc::clone(&context.user_indexes.table),
            state: Arc::clone(&state),
            attention,
            id: ring_id(id),
        });
        let departures = Arc::new(Departures::default());
        ring.on_departed_receive(give_back(&departures));
        let keys = Arc::clone(&context.signed_keys);
        ring.on_signature_error(Box::new(move |entry| keys.tell(entry)));
        let inner = Arc::new(CqInner {
            watch: context.watch(Watched::Completions(attention, CqId(id))),
            context: Arc::clone(context),
            handle: Some(made.handle),
            cqn: made.cqn,
            id,
            state,
            attention,
            record,
            uar,
            departures,
            buffer: Mutex::new(Some(buffer)),
            huge_pages: self.huge_pages,
            allocator: self.allocator,
            timestamps: self.timestamps,
            slot: Some(slot),
            channel: self.channel.cloned(),
            events,
        });
        Ok(CompletionQueue {
            ring,
            inner,
            until_check: CompletionQueue::ALIVE_CHECK,
            trouble: PollError::DeviceGone,
        })
    }
}

/// The most entries that any queue has, whatever the device says: it is told of 24 bits of the
/// consumer counter, by which a queue that is full must differ from an empty one.
const MAX_ENTRIES: u32 = (1 << 23) - 1;

/// Entries of a queue that is asked to have `entries`, of which the device takes `max`: one more, so
/// that a queue that is full differs from an empty one, and a power of two.
pub(crate) const fn entries_for(entries: u32, max: u32) -> Option<u32> {
    if entries == 0 || entries > max || entries > MAX_ENTRIES {
        return None;
    }
    Some((entries + 1).next_power_of_two())
}

/// What queues call the ring of the completion queue with this id.
pub(crate) const fn ring_id(id: u64) -> RingId {
    RingId(id as u32)
}

/// What a ring does with receives of departed queue pairs: a request that is a shared queue's is
/// free again, though nobody is told of the message.
fn give_back(departures: &Arc<Departures<Arc<UserIndex>>>) -> DepartedReceive {
    let departures = Arc::clone(departures);
    Box::new(move |index, counter| {
        // SAFETY: called while the queue is polled; only its poller releases, or who has the queue
        // while nobody can poll it.
        if let Some(gone) = unsafe { departures.find(|gone| gone.get() == index) } {
            gone.discard_receive(counter);
        }
    })
}
