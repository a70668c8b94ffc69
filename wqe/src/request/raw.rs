//! WQEs that the caller builds.

use core::fmt;
use core::mem::offset_of;
use mlx5_prm::wqe::{ControlSegment, MAX_UNITS, UNIT};

/// A WQE built by the caller (`mlx5dv_wr_raw_wqe`): the control segment and what follows, as many
/// 16-byte units as it says. Posting it fills in the block index and the queue pair number, adds
/// the request's flags to its own, and adds a small fence where one is needed.
#[derive(Clone, Copy, Debug)]
pub struct RawWqe<'a> {
    bytes: &'a [u8],
    unnamed: bool,
}

/// Why bytes are not a WQE.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum RawWqeError {
    /// The length is not a whole number of units, is zero, or exceeds the largest WQE.
    Length {
        /// The length given.
        bytes: usize,
    },
    /// The control segment has another length.
    Units {
        /// The units in the control segment.
        said: usize,
        /// The units given.
        given: usize,
    },
    /// An opcode of more than six bits, which no device has.
    Opcode(u8),
}

impl fmt::Display for RawWqeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Length { bytes } => {
                write!(f, "{bytes} bytes are no WQE: it has 1 to {MAX_UNITS} units of {UNIT} bytes")
            }
            Self::Units { said, given } => {
                write!(f, "the control segment says {said} units, but {given} were given")
            }
            Self::Opcode(code) => write!(f, "{code:#04x} is no opcode: it has six bits"),
        }
    }
}

impl core::error::Error for RawWqeError {}

impl<'a> RawWqe<'a> {
    /// Checks the length of `bytes`, a WQE.
    ///
    /// # Safety
    /// Wherever the WQE is posted, it does nothing that a request of the safe operations could not
    /// do. In particular, it names no memory that is not registered for it, rewrites no memory key
    /// through which other memory is accessed, and its completion, if it asks for one, is one CQE
    /// that names it.
    pub unsafe fn new(bytes: &'a [u8]) -> Result<Self, RawWqeError> {
        let given = bytes.len() / UNIT;
        if !bytes.len().is_multiple_of(UNIT) || !(1..=MAX_UNITS).contains(&given) {
            return Err(RawWqeError::Length { bytes: bytes.len() });
        }
        let this = Self { bytes, unnamed: false };
        let said = usize::from(bytes[offset_of!(ControlSegment, qpn_ds) + 3] & 0x3f);
        if said != given {
            return Err(RawWqeError::Units { said, given });
        }
        if this.opcode() >= 1 << 6 {
            return Err(RawWqeError::Opcode(this.opcode()));
        }
        Ok(this)
    }

    /// The opcode that no operation has, and that completions of [`RawWqe::unnamed`] report.
    pub const UNNAMED: u8 = 0x3f;

    /// Has the completion report [`RawWqe::UNNAMED`] instead of the opcode, as libmlx5 does, which
    /// has one word for all requests that the caller built (`MLX5DV_WC_RAW_WQE`).
    #[must_use]
    pub const fn unnamed(self) -> Self {
        Self { unnamed: true, ..self }
    }

    /// Returns the opcode that completions report.
    pub(crate) const fn reported(self) -> u8 {
        if self.unnamed { Self::UNNAMED } else { self.opcode() }
    }

    /// The opcode.
    pub const fn opcode(self) -> u8 {
        self.bytes[offset_of!(ControlSegment, opmod_index_opcode) + 3]
    }

    pub(crate) const fn modifier(self) -> u8 {
        self.bytes[offset_of!(ControlSegment, opmod_index_opcode)]
    }

    /// The `fm_ce_se` byte.
    pub(crate) const fn control(self) -> u8 {
        self.bytes[offset_of!(ControlSegment, fm_ce_se)]
    }

    pub(crate) const fn bytes(self) -> &'a [u8] {
        self.bytes
    }
}
