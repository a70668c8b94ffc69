//! Connected queue pairs: both ends in this process, or one here and one in another process.

mod ends;
mod exchange;
mod ibv;
mod message;
mod patience;
mod pattern;
mod peer;
mod receiver;
mod responder;
mod run;
mod sender;
mod side;
#[cfg(test)]
mod tests;

pub(crate) use ends::{EndArgs, Initiator, Session};
pub(crate) use exchange::parse_address;
pub(crate) use ibv::{Foreign, program};
pub(crate) use message::{Kind, Phase};
pub(crate) use patience::Patience;
pub(crate) use pattern::pattern;
pub(crate) use run::{Flow, Goal, Rate, latency, rate};
pub(crate) use sender::Pace;
pub(crate) use side::{ATOMIC, Shape, datagram_limit};

use clap::ValueEnum;
use mlx5::CompletionOpcode;
use mlx5_prm::wqe::Opcode;
use std::borrow::Cow;

/// Transport of the queue pairs.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Transport {
    /// Reliable connection
    Rc,
    /// Unreliable connection
    Uc,
    /// Unreliable datagram
    Ud,
}

impl Transport {
    /// Every transport, with its name on the command line.
    const NAMES: [(Self, &str); 3] = [(Self::Rc, "rc"), (Self::Uc, "uc"), (Self::Ud, "ud")];

    pub(crate) fn name(self) -> &'static str {
        Self::NAMES[self as usize].1
    }

    fn from_name(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|row| row.1 == name).map(|row| row.0)
    }
}

/// The operation.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Op {
    /// Send; the other side posts receives
    Send,
    /// RDMA write into the other side's memory
    Write,
    /// RDMA read from the other side's memory
    Read,
    /// Atomic fetch and add of 8 bytes in the other side's memory
    FetchAdd,
    /// Atomic compare and swap of 8 bytes in the other side's memory
    CompareSwap,
}

/// The name of what was posted, as in what `mlx5 dump` and `mlx5 trace` print.
pub(crate) fn posted_as(opcode: CompletionOpcode) -> Cow<'static, str> {
    let opcode = match opcode {
        CompletionOpcode::Send => Opcode::Send,
        CompletionOpcode::RdmaWrite => Opcode::RdmaWrite,
        CompletionOpcode::RdmaRead => Opcode::RdmaRead,
        CompletionOpcode::CompareSwap => Opcode::AtomicCs,
        CompletionOpcode::FetchAdd => Opcode::AtomicFa,
        // Both are requests that change a key.
        CompletionOpcode::BindWindow | CompletionOpcode::LocalInvalidate => Opcode::Umr,
        CompletionOpcode::Tso => Opcode::Tso,
        CompletionOpcode::Other(opcode) => opcode,
        CompletionOpcode::Unnamed(code) => return format!("opcode {code:#04x}").into(),
        // All other completions are of receives.
        _ => return "RECV".into(),
    };
    opcode.name().into()
}

impl Op {
    /// Every operation, with its name on the command line.
    pub(crate) const NAMES: [(Self, &str); 5] = [
        (Self::Send, "send"),
        (Self::Write, "write"),
        (Self::Read, "read"),
        (Self::FetchAdd, "fetch-add"),
        (Self::CompareSwap, "compare-swap"),
    ];

    pub(crate) fn name(self) -> &'static str {
        Self::NAMES[self as usize].1
    }

    fn from_name(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|row| row.1 == name).map(|row| row.0)
    }

    /// The transports that support it.
    pub(crate) fn transports(self) -> &'static [Transport] {
        match self {
            Self::Send => &[Transport::Rc, Transport::Uc, Transport::Ud],
            Self::Write => &[Transport::Rc, Transport::Uc],
            Self::Read | Self::FetchAdd | Self::CompareSwap => &[Transport::Rc],
        }
    }

    /// Whether it is an atomic.
    pub(crate) fn is_atomic(self) -> bool {
        matches!(self, Self::FetchAdd | Self::CompareSwap)
    }

    /// Whether data comes back instead of going out.
    pub(crate) fn returns(self) -> bool {
        self == Self::Read || self.is_atomic()
    }
}
