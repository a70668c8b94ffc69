//! The oracle's report.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::Path;

use crate::compare::{Comparison, Difference};
use crate::faults;
use crate::known::KnownDifferences;

/// Marks around the oracle's section in a document.
const START: &str = "<!-- begin oracle: written by `cargo xtask oracle --document` -->";
const END: &str = "<!-- end oracle -->";
/// Unexpected differences that are shown of each kind.
const SHOWN: usize = 3;

/// The results of all comparisons.
pub(crate) struct Report {
    known: KnownDifferences,
    /// Number of comparisons without an unexpected difference, by kind.
    passed: BTreeMap<&'static str, usize>,
    failed: usize,
    unexpected: BTreeMap<String, Vec<Difference>>,
    /// Known differences that were not met.
    stale: Vec<String>,
}

impl Report {
    pub(crate) fn new(known: KnownDifferences) -> Self {
        Self {
            known,
            passed: BTreeMap::new(),
            failed: 0,
            unexpected: BTreeMap::new(),
            stale: Vec::new(),
        }
    }

    /// Adds a comparison.
    pub(crate) fn add(&mut self, comparison: &Comparison) {
        let mut good = true;
        for difference in &comparison.differences {
            if !self.known.allow(difference) {
                good = false;
                let list = self.unexpected.entry(difference.id.clone()).or_default();
                list.push(difference.clone());
            }
        }
        if good {
            *self.passed.entry(comparison.kind).or_default() += 1;
        } else {
            self.failed += 1;
        }
    }

    /// Finds known differences that did not occur.
    pub(crate) fn finish(&mut self) {
        let unmet = self.known.0.iter().filter(|known| known.met == 0);
        self.stale = unmet.map(|known| known.id.clone()).collect();
        self.failed += self.stale.len();
    }

    pub(crate) fn is_good(&self) -> bool {
        self.failed == 0
    }

    fn passed(&self) -> usize {
        self.passed.values().sum()
    }

    /// The section of the document.
    fn section(&self) -> String {
        let count = |kind| self.passed.get(kind).copied().unwrap_or_default();
        let mut text = format!(
            "{START}\n## Oracle\n\n\
             `cargo xtask oracle` posts one table of requests (`tests/oracle/requests.txt`) through \
             rdma-core's provider and\nthrough this driver, each on a simulated device that executes \
             nothing, and compares the 16-byte units of every\nWQE, doorbell records, doorbells or \
             BlueFlame bytes with the half of the register, and the kernel calls.\nCompletions are \
             synthetic, so rings and 16-bit counters wrap.\n\n\
             Raw packets (`tests/oracle/src/packets`) are compared twice: with this driver's own \
             interface, and with its libibverbs in\nthe same C program: packets that are sent, cut and \
             received, work queues, tables, hashes, rules of every kind, matchers\nand counters. Not \
             compared is what rdma-core does not have: packets with a VLAN tag that the device \
             inserts, several packets\nin a request, and the hash of a received packet.\n\n\
             Completions are compared field by field: both sides read the same CQE, with random values \
             (their seed is printed)\nin all fields that the device writes, for every operation, kind \
             of receive, error code and form (64 and 128 bytes,\nwith and without inline data) and \
             for tag matching, on both links. `ibv_poll_cq`, the extended readers and this\ndriver \
             must agree. Compressed CQEs are not compared, because rdma-core's provider does not \
             decode them (see\n`cq/tests/polling/compressed.rs`). Neither are failures of a command \
             queue pair, for which it reads memory that\nit never wrote.\n\n\
             | compared | passed | failed |\n|---|---:|---:|\n\
             | send lists | {} | |\n| receive lists | {} | |\n| queues created | {} | |\n\
             | kernel calls | {} | |\n| tag list operations | {} | |\n\
             | completions | {} | |\n| faults of rdma-core | {} | |\n| **all** | **{}** | **{}** |\n\n\
             Each difference is listed here. Any other one fails the oracle, and so does a listed one \
             that does not occur.\n\n\
             | difference | times | rdma-core | ours | reason |\n|---|---:|---|---|---|\n",
            count("post"),
            count("receive"),
            count("queue"),
            count("call"),
            count("tag operation"),
            count("completion"),
            count("fault"),
            self.passed(),
            self.failed,
        );
        for known in &self.known.0 {
            let value = |value: &str| match value {
                "*" => "–".to_owned(),
                value => format!("`{value}`"),
            };
            text += &format!(
                "| `{}` | {} | {} | {} | {} |\n",
                known.id,
                known.met,
                value(&known.peer),
                value(&known.ours),
                known.reason
            );
        }
        text + "\n" + &faults::document() + END + "\n"
    }

    /// Replaces the section in a document.
    pub(crate) fn write(&self, document: &Path) -> io::Result<()> {
        let before = match std::fs::read_to_string(document) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => "# Conformance\n\n".into(),
            Err(error) => return Err(error),
        };
        let section = self.section();
        let after = match (before.find(START), before.find(END)) {
            (Some(start), Some(end)) => {
                let rest = before[end + END.len()..].trim_start_matches('\n');
                let gap = if rest.is_empty() { "" } else { "\n" };
                format!("{}{section}{gap}{rest}", &before[..start])
            }
            _ => format!("{}\n\n{section}", before.trim_end()),
        };
        std::fs::write(document, after)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (id, list) in &self.unexpected {
            writeln!(f, "{id}: {} times", list.len())?;
            for Difference { place, peer, ours, .. } in list.iter().take(SHOWN) {
                writeln!(f, "  {place}\n    rdma-core: {peer}\n    ours:      {ours}")?;
            }
        }
        for id in &self.stale {
            writeln!(f, "{id}: known, but not met")?;
        }
        let known: usize = self.known.0.iter().map(|known| known.met).sum();
        writeln!(f, "{} passed, {} failed ({known} known differences)", self.passed(), self.failed)
    }
}
