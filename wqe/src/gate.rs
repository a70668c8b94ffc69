//! The word that says whether a queue may be used.

use core::ptr::NonNull;
use core::sync::atomic::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};

/// State of a queue pair as far as its owner halves must know it (`enum ib_qp_state`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum QueueState {
    /// Reset.
    Reset = 0,
    /// Initialised: receives may be posted.
    Init = 1,
    /// Ready to receive.
    ReadyToReceive = 2,
    /// Ready to send.
    ReadyToSend = 3,
    /// The send queue is drained or draining.
    SendQueueDrained = 4,
    /// The send queue is in error.
    SendQueueError = 5,
    /// In error: what is posted is flushed.
    Error = 6,
}

impl QueueState {
    /// Every state.
    pub const ALL: [Self; 7] = [
        Self::Reset,
        Self::Init,
        Self::ReadyToReceive,
        Self::ReadyToSend,
        Self::SendQueueDrained,
        Self::SendQueueError,
        Self::Error,
    ];

    /// The state with this number.
    pub const fn from_bits(bits: u8) -> Option<Self> {
        if (bits as usize) < Self::ALL.len() { Some(Self::ALL[bits as usize]) } else { None }
    }

    /// The state's usual short name.
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

/// Why a gate is shut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Shut {
    /// The process was forked: the memory of the gate was wiped in the child.
    Forked,
    /// The device is gone.
    DeviceGone,
    /// There is no queue, but one of the device's own.
    Absent,
    /// The queue's state does not allow it.
    State(QueueState),
}

/// A word in memory that a fork wipes. One load tells the owner whether it may post: in the right
/// state, on a device that is still there, in the process that made the queue.
#[derive(Clone, Copy)]
pub struct Gate(NonNull<AtomicU32>);

// SAFETY: an address; all access through it is atomic.
unsafe impl Send for Gate {}
// SAFETY: as above.
unsafe impl Sync for Gate {}

impl Gate {
    const SEND: u32 = 1;
    const RECEIVE: u32 = 2;
    const GONE: u32 = 4;
    /// Set where there is no queue, but one of the device's own.
    const ABSENT: u32 = 16;
    /// Set in every live gate, so that a live one is never zero, as a wiped one is.
    const LIVE: u32 = 8;
    const STATE_SHIFT: u32 = 8;

    /// Takes the word at `word`, and shuts it.
    ///
    /// # Safety
    /// `word` is valid, aligned and used for nothing else as long as the value or a copy of it is.
    pub unsafe fn new(word: NonNull<u32>) -> Self {
        let gate = Self(word.cast());
        gate.word().store(Self::LIVE, Release);
        gate
    }

    /// Takes the word at `word`, and shuts it for good: the device has the queue.
    ///
    /// # Safety
    /// As for [`Gate::new`].
    pub unsafe fn shut(word: NonNull<u32>) -> Self {
        let gate = Self(word.cast());
        gate.word().store(Self::LIVE | Self::ABSENT, Release);
        gate
    }

    #[inline(always)]
    fn word(&self) -> &AtomicU32 {
        // SAFETY: valid and aligned by the contract of `new`.
        unsafe { self.0.as_ref() }
    }

    /// Lets pass what `state` allows, unless the device is gone or the process was forked.
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

    /// Shuts the gate for good: the device is gone.
    pub fn set_gone(self) {
        let _ = self
            .word()
            .fetch_update(Release, Relaxed, |old| (old != 0).then_some(Self::LIVE | Self::GONE));
    }

    /// The state that was set last, where it still means anything.
    pub fn state(self) -> Option<QueueState> {
        let word = self.word().load(Acquire);
        if word == 0 || word & Self::GONE != 0 {
            return None;
        }
        QueueState::from_bits((word >> Self::STATE_SHIFT) as u8)
    }

    #[inline(always)]
    pub(crate) fn may_send(&self) -> bool {
        self.word().load(Relaxed) & Self::SEND != 0
    }

    #[inline(always)]
    pub(crate) fn may_receive(&self) -> bool {
        self.word().load(Relaxed) & Self::RECEIVE != 0
    }

    #[cold]
    pub(crate) fn why(&self) -> Shut {
        let word = self.word().load(Acquire);
        if word == 0 {
            Shut::Forked
        } else if word & Self::GONE != 0 {
            Shut::DeviceGone
        } else if word & Self::ABSENT != 0 {
            Shut::Absent
        } else {
            let state = QueueState::from_bits((word >> Self::STATE_SHIFT) as u8);
            Shut::State(state.unwrap_or(QueueState::Reset))
        }
    }
}
