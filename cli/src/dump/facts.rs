//! Facts about a failure: from the bytes of a completion, or from the words of a line.

use super::known;
use mlx5_prm::cqe::{CqeOpcode, ErrorCqe, OPCODE_SHIFT};
use mlx5_prm::zerocopy::FromBytes;

/// The facts in a line: names and values, each name once.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Facts(Vec<(&'static str, Value)>);

/// A number or a text in a line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Value {
    Number(u64),
    Text(String),
}

impl Facts {
    /// Adds a fact, unless there is one of this name.
    pub(crate) fn add(&mut self, name: &'static str, value: Value) {
        if name != "_" && self.get(name).is_none() {
            self.0.push((name, value));
        }
    }

    /// Adds a number, unless there is a fact of this name.
    pub(crate) fn set(&mut self, name: &'static str, number: impl Into<u64>) {
        self.add(name, Value::Number(number.into()));
    }

    /// Adds what `others` has and this lacks.
    pub(crate) fn join(&mut self, others: &Self) {
        for (name, value) in &others.0 {
            self.add(name, value.clone());
        }
    }

    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        match self.get(name)? {
            Value::Number(number) => Some(*number),
            Value::Text(_) => None,
        }
    }

    /// A number of eight bits, as a CQE has them.
    pub(crate) fn byte(&self, name: &str) -> Option<u8> {
        self.number(name)?.try_into().ok()
    }

    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        match self.get(name)? {
            Value::Number(_) => None,
            Value::Text(text) => Some(text),
        }
    }

    /// Whether no name has two values.
    pub(crate) fn agrees(&self, other: &Self) -> bool {
        self.0.iter().all(|(name, value)| other.get(name).is_none_or(|same| same == value))
    }

    fn get(&self, wanted: &str) -> Option<&Value> {
        self.0.iter().find(|(name, _)| *name == wanted).map(|(_, value)| value)
    }
}

/// Adds the facts in a completion of something that failed.
pub(super) fn read(bytes: &[u8], facts: &mut Facts) {
    let Ok((_, error)) = ErrorCqe::read_from_suffix(bytes) else { return };
    let opcode = CqeOpcode::from_bits(error.op_own >> OPCODE_SHIFT);
    let sent = match opcode {
        Some(CqeOpcode::RequesterError) => true,
        Some(CqeOpcode::ResponderError) => false,
        _ => return,
    };
    facts.set("cqe_opcode", error.op_own >> OPCODE_SHIFT);
    facts.set("syndrome", error.syndrome);
    facts.set("vendor", error.vendor_err_synd);
    facts.set("hw", error.hw_err_synd);
    facts.set("hw_type", error.hw_synd_type);
    // Of a receive of packets it is no number of a queue.
    if sent {
        facts.set("qpn", error.s_wqe_opcode_qpn.get() & 0xff_ffff);
    }
}

/// Adds the syndrome that belongs to a status or its text.
pub(super) fn complete(facts: &mut Facts) {
    let of_number = facts.number("status_number").and_then(known::status_of_number);
    let of_text = || known::status_of_text(facts.text("status_text")?);
    if let Some(status) = of_number.or_else(of_text) {
        facts.set("syndrome", status.syndrome as u8);
    }
    let side = facts.text("side").map(str::to_ascii_lowercase);
    let opcode = match (side.as_deref(), facts.text("sent"), facts.text("queue")) {
        (Some("responder"), ..) | (_, Some("RECV"), _) | (.., Some("SRQ")) => {
            CqeOpcode::ResponderError
        }
        (Some("requestor" | "requester"), ..) => CqeOpcode::RequesterError,
        _ => return,
    };
    facts.set("cqe_opcode", opcode as u8);
}
