//! Checks of mailboxes of commands without a typed layout.

use mlx5_prm::cmd::CommandStatus;

use crate::firmware::{Answer, Failure, syndrome};

/// Bytes of an input or output that carries one number.
pub(super) const SHORT: usize = 16;

/// Checks that an input has `at_least` bytes, and that the output has room for one number.
pub(super) fn long_enough(input: &[u8], at_least: usize, output: &[u8]) -> Answer {
    if input.len() < at_least {
        return Err(Failure::new(CommandStatus::BAD_INP_LEN_ERR, syndrome::SHORT_INPUT));
    }
    if output.len() < SHORT {
        return Err(Failure::new(CommandStatus::BAD_OUTP_LEN_ERR, syndrome::SHORT_OUTPUT));
    }
    Ok(())
}
