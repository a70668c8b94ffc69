//! Completion queues.

use crate::buffer::QueueBuffer;
use crate::channel::CompletionChannel;
use crate::context::{Context, Inner, WatchId, Watched};
use crate::error::Error;
use crate::event::{CqId, EventCounter};
use crate::records::RecordSlot;
use crate::uar::CqUar;
use crate::user_index::{QueuePairRecords, UserIndex};
use mlx5_cq::{
    Attention, Corruption, DepartedReceive, Departures, Next, OwnedCompletion, Places, Ring,
    RingId, RingParts, RingState, WorkCompletion,
};
use mlx5_doorbell::CompletionQueueRecord;
use mlx5_uapi::cmd::cq as command;
use mlx5_uapi::mlx5::CreateCqFlags;
use mlx5_uapi::verbs::CqFlags;
use mlx5_uapi::{HugePages, mlx5 as abi};
use std::fmt;
use std::sync::Arc;

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
    const fn bytes(self) -> usize {
        match self {
            Self::Bytes64 => 64,
            Self::Bytes128 => 128,
        }
    }
}

/// Why a completion queue cannot be polled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum PollError {
    /// The queue holds something that no honest device writes. Nothing more can be read from it.
    Corrupt(Corruption),
    /// The device is gone, and what it wrote was read.
    DeviceGone,
    /// The queue belongs to the process that this one was forked from.
    Forked,
}

impl fmt::Display for PollError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Corrupt(corruption) => write!(f, "completion queue corrupt: {corruption}"),
            Self::DeviceGone => f.write_str("the device is gone"),
            Self::Forked => {
                f.write_str("the completion queue belongs to the parent of this process")
            }
        }
    }
}

impl std::error::Error for PollError {}

/// How a completion queue is to be made. See [`Context::create_cq`].
#[must_use = "a builder makes nothing until `build` is called"]
pub struct CompletionQueueBuilder<'a> {
    context: &'a Context,
    entries: u32,
    cqe_size: CqeSize,
    comp_vector: u32,
    channel: Option<&'a CompletionChannel>,
    huge_pages: HugePages,
    ignore_overrun: bool,
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
            ignore_overrun: false,
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

    /// Lets the device write entries over others that were not polled, instead of failing the
    /// queue. For those who know that it cannot happen: the device then skips the check.
    pub fn ignore_overrun(mut self, ignore: bool) -> Self {
        self.ignore_overrun = ignore;
        self
    }

    /// Makes the queue.
    pub fn build(self) -> Result<CompletionQueue, Error> {
        const VERB: &str = "create_cq";
        let context = &self.context.inner;
        context.check(VERB)?;
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
        let buffer = QueueBuffer::new(context, stride << log_size, self.huge_pages)?;
        let slot = RecordSlot::new(context)?;
        let uar = context.cq_uar()?;
        // SAFETY: the slot is kept as long as the queue; nothing else uses the record. The buffer is
        // so large, and is kept as long as the ring's state is used.
        let (record, state) = unsafe {
            let record = CompletionQueueRecord::new(slot.record());
            let places = Places { buffer: buffer.as_non_null(), log_size, stride };
            (record, RingState::new(places, record))
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
                cqe_size: stride as u32,
                flags: CreateCqFlags::UAR_PAGE_INDEX.bits(),
                uar_page_index: uar.page_id as u16,
                ..abi::CreateCq::default()
            },
            uar_index: (uar.page_id > u32::from(u16::MAX)).then_some(uar.page_id),
        };
        // SAFETY: buffer and record are kept until the queue is destroyed, or for ever.
        let made = match unsafe { command::create(&*context.file, &request) } {
            Ok(made) => made,
            Err(errno) => return Err(context.fail(VERB, errno)),
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
            watch: context.watch(Watched::Completions(attention)),
            context: Arc::clone(context),
            handle: Some(made.handle),
            cqn: made.cqn,
            id,
            state,
            attention,
            record,
            uar,
            departures,
            buffer: Some(buffer),
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
const fn ring_id(id: u64) -> RingId {
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

/// The part of a completion queue that queue pairs keep alive.
pub(crate) struct CqInner {
    pub(crate) context: Arc<Inner>,
    handle: Option<u32>,
    cqn: u32,
    id: u64,
    pub(crate) state: Arc<RingState>,
    attention: Attention,
    record: CompletionQueueRecord,
    uar: CqUar,
    departures: Arc<Departures<Arc<UserIndex>>>,
    buffer: Option<QueueBuffer>,
    slot: Option<RecordSlot>,
    channel: Option<CompletionChannel>,
    events: Option<Arc<EventCounter>>,
    watch: WatchId,
}

impl CqInner {
    pub(crate) fn handle(&self) -> Option<u32> {
        self.handle
    }

    /// What queues that complete here call the ring.
    pub(crate) fn ring_id(&self) -> RingId {
        ring_id(self.id)
    }

    /// Keeps `index` until nothing in the queue can name it any more.
    pub(crate) fn depart(&self, index: &Arc<UserIndex>) {
        let end = self.state.end_of(index.get()).unwrap_or_else(|| self.state.consumed());
        self.departures.push(end, Arc::clone(index));
        self.attention.set_departures();
    }

    fn destroy(&mut self) -> Result<(), Error> {
        const VERB: &str = "destroy_cq";
        let Some(handle) = self.handle else { return Ok(()) };
        self.context.run_destroy(VERB, |file| command::destroy(file, handle))?;
        self.handle = None;
        Ok(())
    }
}

impl Drop for CqInner {
    fn drop(&mut self) {
        let destroyed = self.destroy().is_ok();
        self.context.unwatch(self.watch);
        if let Some(channel) = &self.channel {
            channel.unregister(self.id);
        }
        if !destroyed {
            // The device may still write to them, and names the page.
            if let Some(buffer) = self.buffer.take() {
                buffer.leak();
            }
            if let Some(slot) = self.slot.take() {
                slot.leak();
            }
            self.context.leak_cq_uar();
        }
    }
}

/// A completion queue (`struct ibv_cq`). Whoever has it polls it: polling needs `&mut`.
///
/// Queue pairs that complete here keep what they need of it alive; the kernel's object goes when
/// the last of them is gone, too.
pub struct CompletionQueue {
    ring: Ring<QueuePairRecords>,
    pub(crate) inner: Arc<CqInner>,
    /// Empty polls until the next look whether the device is still there.
    until_check: u32,
    /// Why the last poll failed, if one did.
    trouble: PollError,
}

impl CompletionQueue {
    /// Empty polls after which a poller finds out whether the device is still there.
    const ALIVE_CHECK: u32 = 1 << 20;

    /// Hands up to `max` completions to `each` (`ibv_poll_cq`); returns how many there were.
    ///
    /// ```no_run
    /// # fn f(cq: &mut mlx5::CompletionQueue) -> Result<(), Box<dyn std::error::Error>> {
    /// cq.poll(16, |wc| match wc.status() {
    ///     Ok(()) => println!("request {} done", wc.wr_id()),
    ///     Err(error) => println!("request {} failed: {error}", wc.wr_id()),
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn poll(
        &mut self,
        max: usize,
        mut each: impl FnMut(WorkCompletion<'_>),
    ) -> Result<usize, PollError> {
        if self.ring.needs_attention() {
            return self.poll_rest(0, max, each).ok_or(self.trouble);
        }
        let mut count = 0;
        while count < max {
            match self.ring.next_ordinary() {
                Next::Ordinary(completion) => each(completion),
                Next::Other => return self.poll_rest(count, max, each).ok_or(self.trouble),
                Next::None => break,
            }
            count += 1;
        }
        if count == 0 {
            self.found_nothing();
        } else {
            self.ring.publish();
        }
        Ok(count)
    }

    /// Goes on with a poll that met what is not ordinary, after `count` completions. Apart, so that
    /// the ordinary is compiled for what is known of it, and keeps nothing for afterwards. `None` if
    /// there is trouble: an answer in two registers.
    #[inline(never)]
    fn poll_rest(
        &mut self,
        mut count: usize,
        max: usize,
        mut each: impl FnMut(WorkCompletion<'_>),
    ) -> Option<usize> {
        if count == 0 && self.ring.needs_attention() {
            self.attend_or_note()?;
        }
        while count < max {
            let Some(completion) = self.ring.next() else { break };
            each(completion);
            count += 1;
        }
        if count != 0 {
            self.ring.publish();
            return Some(count);
        }
        self.found_nothing();
        if self.ring.needs_attention() {
            // Found just now: it is not to wait for the next poll.
            self.attend_or_note()?;
        }
        Some(0)
    }

    /// Attends to what is out of the ordinary, and keeps what is in the way.
    fn attend_or_note(&mut self) -> Option<()> {
        self.attend().map_err(|trouble| self.trouble = trouble).ok()
    }

    /// Polls one by one: [`Completions::next`] hands out completions that live until the next one.
    ///
    /// ```no_run
    /// # fn f(cq: &mut mlx5::CompletionQueue) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut completions = cq.completions()?;
    /// while let Some(wc) = completions.next() {
    ///     println!("{wc:?}");
    /// }
    /// completions.finish()?;
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn completions(&mut self) -> Result<Completions<'_>, PollError> {
        if self.ring.needs_attention() {
            self.attend()?;
        }
        Ok(Completions { from: self.ring.consumer(), queue: self })
    }

    /// Copies completions into `out`; returns how many.
    #[inline]
    pub fn poll_into(&mut self, out: &mut [OwnedCompletion]) -> Result<usize, PollError> {
        let mut slots = out.iter_mut();
        self.poll(slots.len(), |completion| {
            if let Some(slot) = slots.next() {
                *slot = completion.to_owned();
            }
        })
    }

    /// Lets go of departed queue pairs, for a queue that is never polled does not; but not of what
    /// the next poll may still look at.
    pub(crate) fn release_departures(&self) {
        let last = self.ring.last_queue();
        // Polling needs `&mut`, and a completion queue is not `Sync`: nobody polls meanwhile.
        self.inner
            .departures
            .release_but(self.ring.consumer(), |gone| last == Some(gone.as_non_null()));
    }

    /// What a poll answers that found nothing. Whatever is out of the ordinary, the next one attends
    /// to.
    #[inline(always)]
    fn found_nothing(&mut self) {
        self.until_check -= 1;
        if self.until_check == 0 {
            self.check_alive();
        }
    }

    #[cold]
    #[inline(never)]
    fn check_alive(&mut self) {
        self.until_check = Self::ALIVE_CHECK;
        // What was taken before a panic of whom it was handed to.
        self.ring.publish();
        self.inner.context.check_alive();
    }

    /// Attends to what is out of the ordinary.
    #[cold]
    #[inline(never)]
    fn attend(&mut self) -> Result<(), PollError> {
        let attention = self.inner.attention;
        if attention.is_forked() {
            return Err(PollError::Forked);
        }
        if let Some(corruption) = self.ring.corruption() {
            return Err(PollError::Corrupt(corruption));
        }
        if attention.take_departures() {
            self.ring.forget_queue();
            // Entries of departed queues may have been passed.
            self.ring.publish();
            if self.inner.departures.release(self.ring.consumer()) {
                attention.set_departures();
            }
        }
        if attention.is_gone() && !self.ring.has_next() {
            return Err(PollError::DeviceGone);
        }
        Ok(())
    }

    /// Asks for one event on the channel: at the next completion, or with `solicited_only` at the
    /// next that was sent with [`crate::SendFlags::SOLICITED`] or that failed
    /// (`ibv_req_notify_cq`).
    ///
    /// A completion that came before causes no event: poll once more after arming, and only then
    /// wait.
    pub fn arm(&self, solicited_only: bool) -> Result<(), Error> {
        const VERB: &str = "req_notify_cq";
        self.inner.context.check(VERB)?;
        if self.inner.channel.is_none() {
            let what = "the completion queue has no channel: give it one when it is made";
            return Err(Error::invalid(VERB, what.into()));
        }
        let events = self.inner.events.as_ref().map_or(0, |events| events.read());
        self.inner.uar.register.arm(
            self.inner.record,
            self.inner.cqn,
            self.ring.consumer(),
            events,
            solicited_only,
        );
        Ok(())
    }

    /// Number of the queue in the device.
    pub fn cqn(&self) -> u32 {
        self.inner.cqn
    }

    /// What events call this queue.
    pub fn id(&self) -> CqId {
        CqId(self.inner.id)
    }

    /// How many completions can wait in the queue.
    pub fn capacity(&self) -> u32 {
        self.inner.state.size() - 1
    }

    /// The context that the queue belongs to.
    pub fn context(&self) -> Context {
        Context { inner: Arc::clone(&self.inner.context) }
    }

    /// Destroys the queue (`ibv_destroy_cq`). Fails, and gives it back, while queue pairs complete
    /// here or when the kernel refuses.
    #[expect(clippy::result_large_err, reason = "the queue comes back")]
    pub fn destroy(self) -> Result<(), (Self, Error)> {
        let Self { ring, inner, until_check, trouble } = self;
        let (inner, error) = match Arc::try_unwrap(inner) {
            Ok(mut alone) => match alone.destroy() {
                Ok(()) => return Ok(()),
                Err(error) => (Arc::new(alone), error),
            },
            Err(inner) => (inner, Error::busy("destroy_cq", "queue pairs still complete here")),
        };
        Err((Self { ring, inner, until_check, trouble }, error))
    }
}

/// Completions, one by one. See [`CompletionQueue::completions`].
pub struct Completions<'a> {
    queue: &'a mut CompletionQueue,
    from: u32,
}

impl Completions<'_> {
    /// The next completion, if there is one.
    #[expect(clippy::should_implement_trait, reason = "an iterator cannot lend")]
    #[inline(always)]
    pub fn next(&mut self) -> Option<WorkCompletion<'_>> {
        self.queue.ring.next()
    }

    /// How many there were, or why there were no more.
    pub fn finish(self) -> Result<usize, PollError> {
        let count = self.queue.ring.consumer().wrapping_sub(self.from) as usize;
        if count == 0 && self.queue.ring.needs_attention() {
            self.queue.attend()?;
        }
        Ok(count)
    }
}

impl Drop for Completions<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.queue.ring.consumer() == self.from {
            self.queue.found_nothing();
        } else {
            self.queue.ring.publish();
        }
    }
}
