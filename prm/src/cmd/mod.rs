//! The command interface: the layouts with which a driver and the firmware talk.
//!
//! Each command has an input layout, which begins like [`CommandInHead`], and an output layout,
//! which begins like [`CommandOutHead`]. [`CommandInput`] pairs the two with an opcode. Types and
//! fields have the names of `mlx5_ifc.h`, with contexts shortened as in the PRM (`qpc`, `cqc`,
//! `mkc`, ...).

use crate::fields::{Layout, layouts};

pub mod alloc;
pub mod caps;
pub mod cq;
pub mod dct;
pub mod eq;
pub mod ethernet;
pub mod flow;
pub mod hca;
pub mod init_seg;
pub mod mkey;
pub mod opcode;
pub mod port;
pub mod qp;
pub mod srq;
pub mod status;
pub mod steering;

pub use opcode::CommandOpcode;
pub use status::CommandStatus;

layouts! {
    /// The common start of every input.
    pub struct CommandInHead [0x40] {
        opcode, set_opcode: 0x0, 16;
        uid, set_uid: 0x10, 16;
        op_mod, set_op_mod: 0x30, 16;
    }

    /// The common start of every output.
    pub struct CommandOutHead [0x40] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
    }
}

/// An input layout, with its opcode and its output layout.
pub trait CommandInput: Layout {
    /// Opcode of the command.
    const OPCODE: CommandOpcode;
    /// Output layout of the command.
    type Output: CommandOutput;

    /// Returns a zeroed input with the opcode set.
    #[must_use]
    fn request() -> Self {
        let mut input = Self::default();
        crate::fields::set_bits(input.as_mut_bytes(), 0, 16, Self::OPCODE.0.into());
        input
    }
}

/// An output layout.
pub trait CommandOutput: Layout {
    /// Returns a zeroed output with `status` set and, for a failure, the firmware's syndrome.
    #[must_use]
    fn reply(status: CommandStatus, syndrome: u32) -> Self {
        let mut output = Self::default();
        crate::fields::set_bits(output.as_mut_bytes(), 0, 8, status.0.into());
        crate::fields::set_bits(output.as_mut_bytes(), 32, 32, syndrome.into());
        output
    }
}

/// Pairs opcodes with their input and output layouts, one command per line.
macro_rules! commands {
    ($($OPCODE:ident: $In:ident => $Out:ident;)*) => {$(
        impl $crate::cmd::CommandInput for $In {
            const OPCODE: $crate::cmd::CommandOpcode = $crate::cmd::CommandOpcode::$OPCODE;
            type Output = $Out;
        }

        impl $crate::cmd::CommandOutput for $Out {}
    )*};
}
pub(crate) use commands;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_carries_its_opcode_and_a_reply_its_status() {
        let input = qp::Rtr2RtsQpIn::request();
        assert_eq!(input.opcode(), CommandOpcode::RTR2RTS_QP.0);
        let head = CommandInHead::from_bytes(input.as_bytes()).unwrap();
        assert_eq!(CommandOpcode(head.opcode()), CommandOpcode::RTR2RTS_QP);

        let output = qp::Rtr2RtsQpOut::reply(CommandStatus::BAD_RES_STATE_ERR, 0xdead_beef);
        assert_eq!(output.as_bytes()[..8], [0x09, 0, 0, 0, 0xde, 0xad, 0xbe, 0xef]);
    }

    #[test]
    fn a_short_input_reads_as_zero_where_it_ends() {
        let input = qp::QueryQpIn::from_short(&[0x05, 0x0b]);
        assert_eq!(CommandOpcode(input.opcode()), CommandOpcode::QUERY_QP);
        assert_eq!(input.qpn(), 0);
    }

    #[test]
    fn debug_prints_only_fields_that_are_set() {
        extern crate std;
        let mut input = alloc::DeallocPdIn::request();
        input.set_pd(0x12);
        assert_eq!(std::format!("{input:?}"), "DeallocPdIn { opcode: 0x801, pd: 0x12, .. }");
        assert_eq!(std::format!("{:?}", CommandOpcode::DEALLOC_PD), "DEALLOC_PD");
        assert_eq!(std::format!("{:?}", CommandOpcode(0xfff)), "CommandOpcode(0xfff)");
    }
}
