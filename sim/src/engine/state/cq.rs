//! Completion queues: their state, and arming.

use mlx5_prm::cqe::{DESCRIPTOR, MiniFormat};
use mlx5_prm::doorbell::completion_queue_record::{
    ARM, ARM_SEQUENCE_SHIFT, ARM_SOLICITED, CONSUMER, CONSUMER_MASK,
};

use crate::dma::{Buffer, Dma, DmaFault};
use crate::engine::state::compress::Run;

/// Configuration of a completion queue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CqConfig {
    /// Its ring.
    pub buffer: Buffer,
    /// Base-two logarithm of its entries.
    pub log_size: u8,
    /// Bytes of an entry: 64 or 128.
    pub entry_bytes: u8,
    /// Bus address of its doorbell record.
    pub record: u64,
    /// The UAR page on which it is armed.
    pub uar: u32,
    /// The event queue that it reports to.
    pub eqn: u32,
    /// The device does not check for overruns (`oi`).
    pub ignore_overrun: bool,
    /// Entries are compressed (`cqe_comp_en`), with this format for receives.
    pub compression: Option<MiniFormat>,
    /// When an event is due.
    pub moderation: Moderation,
}

/// Event moderation. An armed queue raises its event at once, unless both numbers are set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Moderation {
    /// Number of completions that raise the event.
    pub count: u16,
    /// Microseconds after the first completion that raise the event.
    pub period_us: u16,
}

impl Moderation {
    fn is_off(self) -> bool {
        self.count == 0 || self.period_us == 0
    }
}

/// Value of an arm word that no driver writes: the sequence number has two bits.
pub(crate) const NEVER_ARMED: u32 = 0xf000_0000;

#[derive(Debug)]
pub(crate) struct Cq {
    pub(crate) config: CqConfig,
    /// Entries written since creation.
    pub(crate) produced: u32,
    /// One past the last entry that a solicited-only arm waits for.
    pub(crate) solicited: u32,
    pub(crate) armed: Option<Arm>,
    /// The last arm word that the device saw.
    seen: u32,
    /// The device looked at it, and its doorbell has not rung yet.
    may_ring: bool,
    /// Sequence number of the last arm that caused an event; an arm with the same number is that
    /// one.
    pub(crate) fired: Option<u32>,
    pub(crate) failed: bool,
    /// Entries that it holds back.
    pub(crate) run: Run,
    /// Completions since the queue was armed whose event is not raised yet.
    pub(crate) unreported: u32,
    /// Queue pairs and shared receive queues that report to it.
    pub(crate) users: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Arm {
    pub(crate) sequence: u32,
    pub(crate) solicited_only: bool,
}

/// Time at which an event is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Due {
    Now,
    /// After this number of nanoseconds.
    In(u64),
}

impl Cq {
    pub(crate) fn new(config: CqConfig) -> Self {
        Self {
            config,
            produced: 0,
            solicited: 0,
            armed: None,
            seen: NEVER_ARMED,
            may_ring: false,
            fired: None,
            failed: false,
            run: Run::default(),
            unreported: 0,
            users: 0,
        }
    }

    pub(crate) fn size(&self) -> u32 {
        1 << self.config.log_size
    }

    pub(crate) fn bytes(&self) -> u64 {
        u64::from(self.size()) * u64::from(self.config.entry_bytes)
    }

    /// Whether the ring has no free entry.
    pub(crate) fn is_full(&self, dma: &dyn Dma) -> Result<bool, DmaFault> {
        self.room(dma).map(|room| room == 0)
    }

    /// Number of entries that the ring still has room for, by the consumer index in the record.
    pub(crate) fn room(&self, dma: &dyn Dma) -> Result<u32, DmaFault> {
        let consumer = dma.load_u32(self.config.record + CONSUMER as u64)?;
        let ahead = self.produced.wrapping_add(self.run.len());
        // DPDK counts what it has consumed of a send queue's completions in 16 bits.
        let mask = if self.config.log_size < 16 { u16::MAX.into() } else { CONSUMER_MASK };
        let waiting = ahead.wrapping_sub(consumer) & mask;
        Ok(self.size().saturating_sub(waiting))
    }

    /// Offset of the next entry's descriptor in the buffer, and its owner bit.
    pub(crate) fn next(&self) -> (u64, u8) {
        self.place(self.produced)
    }

    /// The same for any entry, by its free-running number.
    pub(crate) fn place(&self, number: u32) -> (u64, u8) {
        let index = number & (self.size() - 1);
        let entry = u64::from(self.config.entry_bytes);
        let offset = u64::from(index) * entry + entry - DESCRIPTOR as u64;
        (offset, (number >> self.config.log_size & 1) as u8)
    }

    pub(crate) fn arm_word(&self, dma: &dyn Dma) -> Result<u32, DmaFault> {
        dma.load_u32(self.config.record + ARM as u64)
    }

    /// Whether this arm word, after a doorbell (`rang`) or a look at the record, is a new arm of
    /// the driver. One that the device only looked at may ring later.
    pub(crate) fn is_news(&mut self, word: u32, rang: bool) -> bool {
        if word == NEVER_ARMED {
            return false;
        }
        if word != std::mem::replace(&mut self.seen, word) {
            self.may_ring = !rang;
            return true;
        }
        rang && !std::mem::replace(&mut self.may_ring, false)
    }

    /// Handles an arm word and returns whether the event is due at once.
    pub(crate) fn arm(&mut self, word: u32) -> bool {
        let sequence = word >> ARM_SEQUENCE_SHIFT;
        if word == NEVER_ARMED || self.fired == Some(sequence) {
            return false;
        }
        let solicited_only = word & ARM_SOLICITED != 0;
        self.armed = Some(Arm { sequence, solicited_only });
        let consumer = word & CONSUMER_MASK;
        let last = if solicited_only { self.solicited } else { self.produced };
        let ahead = last.wrapping_sub(consumer) & CONSUMER_MASK;
        // An index before the consumer's looks like one that is far ahead.
        let due = ahead != 0 && ahead <= CONSUMER_MASK / 2;
        due && self.fire()
    }

    /// Counts completions, some of them `urgent`, at an armed queue. Returns the time at which its
    /// event is due.
    pub(crate) fn count(&mut self, completions: u32, urgent: bool) -> Option<Due> {
        let arm = self.armed?;
        if arm.solicited_only && !urgent {
            return None;
        }
        let Moderation { count, period_us } = self.config.moderation;
        self.unreported += completions;
        if self.config.moderation.is_off() || self.unreported >= u32::from(count) {
            return self.fire().then_some(Due::Now);
        }
        (self.unreported == completions).then_some(Due::In(u64::from(period_us) * 1000))
    }

    /// Disarms it and returns whether it was armed.
    pub(crate) fn fire(&mut self) -> bool {
        match self.armed.take() {
            Some(arm) => {
                self.fired = Some(arm.sequence);
                self.unreported = 0;
                true
            }
            None => false,
        }
    }
}
