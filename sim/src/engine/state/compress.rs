//! Runs of entries that a completion queue holds back, to write them compressed.
//!
//! The queue holds back entries that differ only in the fields of a mini entry. It writes the run
//! when an entry comes that does not fit, when the run has its greatest length, when the engine has
//! nothing else to do, or when its time is over. A run is its title and arrays of mini entries, in
//! as many places of the ring as it has entries: the arrays in the second, the ninth, the
//! seventeenth and so on, nothing in the others. The queue writes the title last, so a poller that
//! sees the title sees the whole run.

use mlx5_prm::cqe::{
    APP_TAG_MATCHING, Cqe, CqeOpcode, Format, MiniCqe, MiniFormat, OPCODE_SHIFT, OWNER,
};
use mlx5_prm::ethernet::striding;
use zerocopy::IntoBytes;

/// The most entries of a run (`cqe_compression_max_num`).
pub(crate) const LONGEST_RUN: u16 = 64;

/// Entries that the queue holds back.
#[derive(Debug, Default)]
pub(crate) struct Run {
    pub(crate) entries: Vec<Cqe>,
    /// Number of entries up to the last urgent one.
    pub(crate) urgent: usize,
    pub(crate) since_ns: u64,
    /// They are of a receive queue with strides.
    pub(crate) strides: bool,
}

/// The strides that an entry takes.
fn taken(entry: &Cqe) -> u16 {
    (entry.byte_count.get() >> striding::STRIDES_SHIFT & striding::STRIDES_MASK) as u16
}

impl Run {
    pub(crate) fn len(&self) -> u32 {
        self.entries.len() as u32
    }

    /// Whether `entry` may join the run.
    pub(crate) fn takes(&self, entry: &Cqe, format: MiniFormat) -> bool {
        let Some(title) = self.entries.first() else { return true };
        let count = self.entries.len() as u16;
        let expected = match self.strides {
            true => self.entries.iter().map(taken).fold(title.wqe_counter.get(), u16::wrapping_add),
            false => title.wqe_counter.get().wrapping_add(count),
        };
        // With an index of its own, an entry need not follow the one before.
        let told = self.strides && format == MiniFormat::ChecksumStride;
        count < LONGEST_RUN
            && (is_request(title) || told || expected == entry.wqe_counter.get())
            && common(title, format).as_bytes() == common(entry, format).as_bytes()
    }
}

/// The opcode of an entry.
fn opcode(entry: &Cqe) -> Option<CqeOpcode> {
    CqeOpcode::from_bits(entry.op_own >> OPCODE_SHIFT)
}

fn is_request(entry: &Cqe) -> bool {
    opcode(entry) == Some(CqeOpcode::Requester)
}

/// Whether an entry may be part of a run.
pub(crate) fn may_join(entry: &Cqe) -> bool {
    use CqeOpcode::*;
    Format::of(entry.op_own) == Format::Plain
        && entry.app != APP_TAG_MATCHING
        && matches!(
            opcode(entry),
            Some(
                Requester
                    | ResponderWriteImm
                    | ResponderSend
                    | ResponderSendImm
                    | ResponderSendInvalidate
            )
        )
}

/// The fields that the entries of a run share.
fn common(entry: &Cqe, format: MiniFormat) -> Cqe {
    let mut common = *entry;
    common.byte_count.set(0);
    common.timestamp.set(0);
    common.wqe_counter.set(0);
    common.op_own &= !OWNER;
    if is_request(entry) {
        let number = common.sop_drop_qpn.get() & 0xff_ffff;
        common.sop_drop_qpn.set(number);
    } else if format == MiniFormat::Hash {
        common.rss_hash_result.set(0);
    } else {
        common.check_sum.set(0);
    }
    common
}

/// The fields that an entry does not share.
pub(crate) fn mini(entry: &Cqe, format: MiniFormat, strides: bool) -> MiniCqe {
    let unique = if is_request(entry) {
        u32::from(entry.wqe_counter.get()) << MiniCqe::COUNTER_SHIFT
            | entry.sop_drop_qpn.get() >> 24 << MiniCqe::OPCODE_SHIFT
    } else if format == MiniFormat::Hash {
        entry.rss_hash_result.get()
    } else {
        let stride = match strides && format == MiniFormat::ChecksumStride {
            true => entry.wqe_counter.get(),
            false => 0,
        };
        u32::from(entry.check_sum.get()) << MiniCqe::COUNTER_SHIFT | u32::from(stride)
    };
    MiniCqe { unique: unique.into(), byte_count: entry.byte_count }
}
