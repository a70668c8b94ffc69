//! Runs of entries that a completion queue keeps back, to write them compressed.
//!
//! Entries that differ only in what a mini entry holds are kept back until one comes that does not
//! fit, the run is as long as it may be, nothing else is left to do, or its time is over. A run is
//! written as its title and arrays of mini entries, in as many places of the ring as it has
//! entries: the arrays in the second, the ninth, the seventeenth and so on, nothing in the others.
//! The title is written last, so that whoever sees it sees the whole run.

use mlx5_prm::cqe::{
    APP_TAG_MATCHING, Cqe, CqeOpcode, DESCRIPTOR, FORMAT_SHIFT, Format, MINI_CQES, MiniCqe,
    MiniFormat, OPCODE_SHIFT, OWNER,
};
use zerocopy::{FromZeros, IntoBytes};

use crate::engine::Device;
use crate::engine::cq::Cq;

/// The most entries of a run (`cqe_compression_max_num`).
pub(crate) const LONGEST_RUN: u16 = 64;
/// How long an entry is kept back at most, in nanoseconds.
const LONGEST_WAIT_NS: u64 = 16_000;

/// Entries that are kept back.
#[derive(Debug, Default)]
pub(crate) struct Run {
    entries: Vec<Cqe>,
    /// How many there are up to the last urgent one.
    urgent: usize,
    since_ns: u64,
}

impl Run {
    pub(crate) fn len(&self) -> u32 {
        self.entries.len() as u32
    }

    /// Whether `entry` may follow.
    fn takes(&self, entry: &Cqe, format: MiniFormat) -> bool {
        let Some(title) = self.entries.first() else { return true };
        let count = self.entries.len() as u16;
        let consecutive = title.wqe_counter.get().wrapping_add(count) == entry.wqe_counter.get();
        count < LONGEST_RUN
            && (is_request(title) || consecutive)
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
fn may_join(entry: &Cqe) -> bool {
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

/// What the entries of a run share.
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

/// What an entry does not share.
fn mini(entry: &Cqe, format: MiniFormat) -> MiniCqe {
    let unique = if is_request(entry) {
        u32::from(entry.wqe_counter.get()) << MiniCqe::COUNTER_SHIFT
            | entry.sop_drop_qpn.get() >> 24 << MiniCqe::OPCODE_SHIFT
    } else if format == MiniFormat::Hash {
        entry.rss_hash_result.get()
    } else {
        // No receive queue here has strides.
        u32::from(entry.check_sum.get()) << MiniCqe::COUNTER_SHIFT
    };
    MiniCqe { unique: unique.into(), byte_count: entry.byte_count }
}

impl Device {
    /// Takes an entry for a compressing queue; `None` if it is to be written as it is.
    pub(crate) fn keep_back(
        &mut self,
        cqn: u32,
        entry: &[u8; DESCRIPTOR],
        urgent: bool,
    ) -> Option<()> {
        let format = self.cqs.get(cqn)?.config.compression?;
        let entry: Cqe = zerocopy::transmute!(*entry);
        let joins = may_join(&entry);
        let now_ns = self.now_ns;
        if !joins || !self.cqs.get(cqn)?.run.takes(&entry, format) {
            self.write_run(cqn);
        }
        if !joins {
            return None;
        }
        let run = &mut self.cqs.get_mut(cqn)?.run;
        if run.entries.is_empty() {
            run.since_ns = now_ns;
        }
        run.entries.push(entry);
        if urgent {
            run.urgent = run.entries.len();
        }
        self.runs.insert(cqn);
        Some(())
    }

    /// Writes what a queue keeps back.
    pub(crate) fn write_run(&mut self, cqn: u32) {
        self.runs.remove(&cqn);
        let Some(cq) = self.cqs.get_mut(cqn) else { return };
        let run = std::mem::take(&mut cq.run);
        let Some(format) = cq.config.compression else { return };
        let Some(title) = run.entries.first() else { return };
        let mut title = *title;
        if run.entries.len() > 1 {
            let written = write_arrays(&*self.dma, cq, &run.entries, format);
            if let Err(fault) = written {
                return self.cannot_write(cqn, fault);
            }
            title.op_own |= (Format::Compressed as u8) << FORMAT_SHIFT;
            title.byte_count.set(run.len());
        }
        self.put(cqn, zerocopy::transmute!(title), &[], run.len(), run.urgent as u32);
    }

    /// Writes the runs whose time is over, or all; says whether there were any.
    pub(crate) fn write_runs(&mut self, all: bool) -> bool {
        let now_ns = self.now_ns;
        let due = |cqn: &u32| {
            let since = self.cqs.get(*cqn).map_or(0, |cq| cq.run.since_ns);
            all || now_ns.saturating_sub(since) >= LONGEST_WAIT_NS
        };
        let due: Vec<u32> = self.runs.iter().copied().filter(|cqn| due(cqn)).collect();
        due.iter().for_each(|cqn| self.write_run(*cqn));
        !due.is_empty()
    }
}

fn write_arrays(
    dma: &dyn crate::dma::Dma,
    cq: &Cq,
    entries: &[Cqe],
    format: MiniFormat,
) -> Result<(), crate::dma::DmaFault> {
    for (number, entries) in entries.chunks(MINI_CQES).enumerate() {
        let mut array = [MiniCqe::new_zeroed(); MINI_CQES];
        for (place, entry) in array.iter_mut().zip(entries) {
            *place = mini(entry, format);
        }
        let place = match number {
            0 => 1,
            number => (number * MINI_CQES) as u32,
        };
        let (offset, _) = cq.place(cq.produced.wrapping_add(place));
        cq.config.buffer.write(dma, offset, array.as_bytes())?;
    }
    Ok(())
}
