//! Flow rules, matchers and counters of a file.

use mlx5_prm::cmd::CommandInput;
use mlx5_prm::cmd::flow::{DeallocFlowCounterIn, MatchParameters};
use mlx5_uapi::Errno;
use mlx5_uapi::flow::{CounterKind, MatcherType};

use crate::kernel::hca::Hca;
use crate::kernel::steered::RuleId;

/// A rule, which may have entries in several tables.
#[derive(Debug)]
pub(crate) struct Flow {
    pub(crate) rules: Vec<RuleId>,
}

impl Flow {
    pub(crate) fn end(&mut self, hca: &Hca) -> Result<(), Errno> {
        while let Some(rule) = self.rules.last() {
            hca.rules.remove(hca, *rule)?;
            self.rules.pop();
        }
        Ok(())
    }
}

/// The fields that rules compare.
#[derive(Debug)]
pub(crate) struct Matcher {
    pub(crate) kind: MatcherType,
    pub(crate) priority: u8,
    pub(crate) criteria: u8,
    pub(crate) mask: Box<MatchParameters>,
}

/// Counters, and the meaning of the values that are read.
#[derive(Debug)]
pub(crate) struct Counters {
    pub(crate) counter: Option<u32>,
    pub(crate) described: Vec<(CounterKind, u32)>,
}

impl Counters {
    pub(crate) fn end(&mut self, hca: &Hca) -> Result<(), Errno> {
        let Some(counter) = self.counter else { return Ok(()) };
        let mut input = DeallocFlowCounterIn::request();
        input.set_flow_counter_id(counter);
        hca.command(&input)?;
        self.counter = None;
        Ok(())
    }
}
