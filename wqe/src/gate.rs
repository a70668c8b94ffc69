//! The word that says whether a queue may be posted to.

use core::fmt;
use core::ptr::NonNull;
use core::sync::atomic::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};

/// State of a queue pair, as seen by its owner halves (`enum ib_qp_state`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum QueueState {
    /// Reset.
    Reset = 0,
    /// Initialised: receives can be posted.
    Init = 1,
    /// Ready to receive.
    ReadyToReceive = 2,
    /// Ready to send.
    ReadyToSend = 3,
    /// The send queue is drained or draining.
    SendQueueDrained = 4,
    /// The send queue is in error.
    SendQueueError = 5,
    /// In error: the device flushes all posted requests.
    Error = 6,
}

impl QueueState {
    /// All states.
    pub const ALL: [Self; 7] = [
        Self::Reset,
        Self::Init,
        Self::ReadyToReceive,
        Self::ReadyToSend,
        Self::SendQueueDrained,
        Self::SendQueueError,
        Self::Error,
    ];

    /// Returns the state with this number.
    pub const fn from_bits(bits: u8) -> Option<Self> {
        if (bits as usize) < Self::ALL.len() { Some(Self::ALL[bits as usize]) } else { None }
    }

    /// Returns the usual short name of the state.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reset => "RESET",
            Self::Init => "INIT",
            Self::ReadyToReceive => "RTR",
            Self::ReadyToSend => "RTS",
            Self::SendQueueDrained => "SQD",
            Self::SendQueueError => "SQE",
            Self::Error => "ERR",
        }
    }
}

/// Why a gate refuses posting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    /// The process was forked: the child sees the gate's memory zeroed.
    Forked,
    /// The device is gone.
    DeviceGone,
    /// This queue does not exist, or the device itself uses it.
    Absent,
    /// The queue's state does not allow it.
    State(QueueState),
}

/// A word in memory that is zeroed in a forked child. By one load the owner knows whether it may
/// post: the state allows it, the device is not gone, and this process created the queue.
#[derive(Clone, Copy)]
pub struct Gate(NonNull<AtomicU32>);

// SAFETY: a gate is an address, and all access through it is atomic.
unsafe impl Send for Gate {}
// SAFETY: all access through a shared gate is atomic.
unsafe impl Sync for Gate {}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Gate").field(&format_args!("{}", self.name())).finish()
    }
}

impl Gate {
    const SEND: u32 = 1;
    const RECEIVE: u32 = 2;
    const GONE: u32 = 4;
    /// Set if the queue does not exist, or the device itself uses it.
    const ABSENT: u32 = 16;
    /// Set in every live gate: only the gate of a forked child is zero.
    const LIVE: u32 = 8;
    const STATE_SHIFT: u32 = 8;

    /// Makes the word at `word` a gate that refuses posting.
    ///
    /// # Safety
    /// `word` is valid and aligned, and used for nothing else, for as long as the value or a copy
    /// of it exists.
    pub unsafe fn new(word: NonNull<u32>) -> Self {
        let gate = Self(word.cast());
        gate.word().store(Self::LIVE, Release);
        gate
    }

    /// Makes the word at `word` a gate that always refuses posting: the device itself uses the
    /// queue.
    ///
    /// # Safety
    /// As for [`Gate::new`].
    pub unsafe fn shut(word: NonNull<u32>) -> Self {
        let gate = Self(word.cast());
        gate.word().store(Self::LIVE | Self::ABSENT, Release);
        gate
    }

    #[inline]
    fn word(&self) -> &AtomicU32 {
        // SAFETY: the caller of `new` or `shut` promised that the word is valid and aligned for as
        // long as a copy of the gate exists.
        unsafe { self.0.as_ref() }
    }

    /// Allows what `state` allows. Has no effect if the device is gone or the process was forked.
    #[allow(deprecated, reason = "the new name, `try_update`, is younger than the oldest compiler")]
    pub fn set_state(self, state: QueueState) {
        use QueueState::*;
        let may = match state {
            Reset => 0,
            Init | ReadyToReceive => Self::RECEIVE,
            ReadyToSend | SendQueueDrained | SendQueueError | Error => Self::RECEIVE | Self::SEND,
        };
        let word = Self::LIVE | may | u32::from(state as u8) << Self::STATE_SHIFT;
        let _ = self.word().fetch_update(Release, Relaxed, |old| {
            (old != 0 && old & Self::GONE == 0).then_some(word)
        });
    }

    /// Refuses posting from now on: the device is gone.
    #[allow(deprecated, reason = "the new name, `try_update`, is younger than the oldest compiler")]
    pub fn set_gone(self) {
        let _ = self
            .word()
            .fetch_update(Release, Relaxed, |old| (old != 0).then_some(Self::LIVE | Self::GONE));
    }

    /// Returns the state that was set last. `None` if the process was forked or the device is gone.
    pub fn state(self) -> Option<QueueState> {
        let word = self.word().load(Acquire);
        if word == 0 || word & Self::GONE != 0 {
            return None;
        }
        QueueState::from_bits((word >> Self::STATE_SHIFT) as u8)
    }

    /// Returns the name of the state that was set last, or why nothing can be posted.
    pub fn name(self) -> &'static str {
        match self.refusal() {
            Refusal::Forked => "forked",
            Refusal::DeviceGone => "device gone",
            Refusal::Absent => "absent",
            Refusal::State(state) => state.name(),
        }
    }

    /// Whether this is a forked child of the process that made the gate.
    pub(crate) fn is_forked(self) -> bool {
        self.word().load(Relaxed) == 0
    }

    #[inline]
    pub(crate) fn may_send(&self) -> bool {
        self.word().load(Relaxed) & Self::SEND != 0
    }

    #[inline]
    pub(crate) fn may_receive(&self) -> bool {
        self.word().load(Relaxed) & Self::RECEIVE != 0
    }

    #[cold]
    pub(crate) fn refusal(&self) -> Refusal {
        let word = self.word().load(Acquire);
        if word == 0 {
            Refusal::Forked
        } else if word & Self::GONE != 0 {
            Refusal::DeviceGone
        } else if word & Self::ABSENT != 0 {
            Refusal::Absent
        } else {
            let state = QueueState::from_bits((word >> Self::STATE_SHIFT) as u8);
            Refusal::State(state.unwrap_or(QueueState::Reset))
        }
    }
}
