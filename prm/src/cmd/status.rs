//! Command status codes.

use crate::fields::codes;

codes! {
    /// `status` of an output. `MLX5_CMD_STAT_*`, `device.h`.
    pub struct CommandStatus {
        OK = 0x00;
        INT_ERR = 0x01;
        BAD_OP_ERR = 0x02;
        BAD_PARAM_ERR = 0x03;
        BAD_SYS_STATE_ERR = 0x04;
        BAD_RES_ERR = 0x05;
        RES_BUSY = 0x06;
        LIM_ERR = 0x08;
        BAD_RES_STATE_ERR = 0x09;
        IX_ERR = 0x0a;
        NO_RES_ERR = 0x0f;
        BAD_QP_STATE_ERR = 0x10;
        BAD_PKT_ERR = 0x30;
        BAD_SIZE_OUTS_CQES_ERR = 0x40;
        BAD_INP_LEN_ERR = 0x50;
        BAD_OUTP_LEN_ERR = 0x51;
    }
}

impl CommandStatus {
    /// Returns whether the command succeeded.
    #[must_use]
    pub const fn is_ok(self) -> bool {
        self.0 == Self::OK.0
    }

    /// Returns a description of the status.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::OK => "done",
            Self::INT_ERR => "internal error of the firmware",
            Self::BAD_OP_ERR => "no such command or modifier",
            Self::BAD_PARAM_ERR => "a parameter is not supported or not valid",
            Self::BAD_SYS_STATE_ERR => "the device is not in a state for this command",
            Self::BAD_RES_ERR => "no such resource",
            Self::RES_BUSY => "the resource is in use",
            Self::LIM_ERR => "a limit of the device is exceeded",
            Self::BAD_RES_STATE_ERR => "the resource is not in a state for this command",
            Self::IX_ERR => "an index is out of range",
            Self::NO_RES_ERR => "out of resources",
            Self::BAD_QP_STATE_ERR => "the QP is not in a state for this command",
            Self::BAD_PKT_ERR => "a MAD is malformed and was dropped",
            Self::BAD_SIZE_OUTS_CQES_ERR => "more completions outstanding than the new size holds",
            Self::BAD_INP_LEN_ERR => "the input is too short or too long",
            Self::BAD_OUTP_LEN_ERR => "the output is too short",
            _ => "unknown status",
        }
    }
}

impl core::fmt::Display for CommandStatus {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} ({:#x})", self.text(), self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_named_status_has_a_text() {
        for status in CommandStatus::ALL {
            assert_ne!(status.text(), "unknown status", "{status:?}");
        }
    }
}
