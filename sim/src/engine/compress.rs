//! Compression of completions: completion queues hold entries back and write them as runs.

use mlx5_prm::cqe::{Cqe, DESCRIPTOR, FORMAT_SHIFT, Format, MINI_CQES, MiniCqe, MiniFormat};
use zerocopy::{FromZeros, IntoBytes};

use crate::dma::{Dma, DmaFault};
use crate::engine::Device;
use crate::engine::state::compress::{Run, may_join, mini};
use crate::engine::state::cq::Cq;

/// The longest time that an entry waits to be compressed, in microseconds:
/// `cqe_compression_timeout` of a ConnectX-6 Dx (`mlx5ctl-caps` in tests/silicon/records).
pub(crate) const LONGEST_WAIT_US: u32 = 2;
/// The same in nanoseconds of this device, which takes about eight times as long as a card for each
/// entry: with the card's time runs would end before they are full.
const LONGEST_WAIT_NS: u64 = LONGEST_WAIT_US as u64 * 8 * 1000;

impl Device {
    /// Adds an entry to the run of a compressing queue; `None` if the caller must write it
    /// uncompressed.
    pub(crate) fn keep_back(
        &mut self,
        cqn: u32,
        entry: &[u8; DESCRIPTOR],
        urgent: bool,
        strides: bool,
    ) -> Option<()> {
        let format = self.cqs.get(cqn)?.config.compression?;
        let entry: Cqe = zerocopy::transmute!(*entry);
        let joins = may_join(&entry);
        let now_ns = self.now_ns;
        let run = &self.cqs.get(cqn)?.run;
        let alike = run.entries.is_empty() || run.strides == strides;
        if !joins || !alike || !run.takes(&entry, format) {
            self.write_run(cqn);
        }
        if !joins {
            return None;
        }
        let run = &mut self.cqs.get_mut(cqn)?.run;
        if run.entries.is_empty() {
            run.since_ns = now_ns;
            run.strides = strides;
        }
        run.entries.push(entry);
        if urgent {
            run.urgent = run.entries.len();
        }
        self.runs.insert(cqn);
        Some(())
    }

    /// Writes the entries that a queue holds back.
    pub(crate) fn write_run(&mut self, cqn: u32) {
        self.runs.remove(&cqn);
        let Some(cq) = self.cqs.get_mut(cqn) else { return };
        let run = std::mem::take(&mut cq.run);
        let Some(format) = cq.config.compression else { return };
        let Some(title) = run.entries.first() else { return };
        let mut title = *title;
        if run.entries.len() > 1 {
            let written = write_arrays(&*self.dma, cq, &run, format);
            if let Err(fault) = written {
                return self.cannot_write(cqn, fault);
            }
            title.op_own |= (Format::Compressed as u8) << FORMAT_SHIFT;
            title.byte_count.set(run.len());
        }
        self.put(cqn, zerocopy::transmute!(title), &[], run.len(), run.urgent as u32);
    }

    /// Writes the runs whose time is over, or all, and returns whether there were any.
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

fn write_arrays(dma: &dyn Dma, cq: &Cq, run: &Run, format: MiniFormat) -> Result<(), DmaFault> {
    for (number, entries) in run.entries.chunks(MINI_CQES).enumerate() {
        let mut array = [MiniCqe::new_zeroed(); MINI_CQES];
        for (place, entry) in array.iter_mut().zip(entries) {
            *place = mini(entry, format, run.strides);
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
