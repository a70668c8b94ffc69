//! WQEs that the caller has put together.

use core::fmt;
use core::mem::offset_of;
use mlx5_prm::wqe::{ControlSegment, MAX_UNITS, UNIT};

/// A WQE as the caller has put it together (`mlx5dv_wr_raw_wqe`): from the control segment on, as
/// many 16-byte units as that says. Posting it fills in the block index and the queue pair's number,
/// adds the request's flags to those that it has, and a small fence where one is due.
#[derive(Clone, Copy, Debug)]
pub struct RawWqe<'a>(&'a [u8]);

/// Why bytes are no WQE.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum RawWqeError {
    /// Not a whole number of units, none, or more than a WQE can have.
    Length {
        /// How many bytes were given.
        bytes: usize,
    },
    /// The control segment says another length.
    Units {
        /// The units that it says.
        said: usize,
        /// The units that were given.
        given: usize,
    },
    /// An opcode that no device has.
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
    /// Takes `bytes` for a WQE, if their length is what they say.
    ///
    /// # Safety
    /// Wherever the WQE is posted, it does nothing that a request of the safe operations could not
    /// do: above all, it names no memory that is not registered for it, rewrites no memory key that
    /// other memory is reached by, and its completion, if it asks for one, is one entry that names it.
    pub unsafe fn new(bytes: &'a [u8]) -> Result<Self, RawWqeError> {
        let given = bytes.len() / UNIT;
        if !bytes.len().is_multiple_of(UNIT) || !(1..=MAX_UNITS).contains(&given) {
            return Err(RawWqeError::Length { bytes: bytes.len() });
        }
        let this = Self(bytes);
        let said = usize::from(bytes[offset_of!(ControlSegment, qpn_ds) + 3] & 0x3f);
        if said != given {
            return Err(RawWqeError::Units { said, given });
        }
        if this.opcode() >= 1 << 6 {
            return Err(RawWqeError::Opcode(this.opcode()));
        }
        Ok(this)
    }

    /// What it asks the device for.
    pub const fn opcode(self) -> u8 {
        self.0[offset_of!(ControlSegment, opmod_index_opcode) + 3]
    }

    pub(crate) const fn modifier(self) -> u8 {
        self.0[offset_of!(ControlSegment, opmod_index_opcode)]
    }

    /// Its `fm_ce_se` byte.
    pub(crate) const fn control(self) -> u8 {
        self.0[offset_of!(ControlSegment, fm_ce_se)]
    }

    pub(crate) const fn bytes(self) -> &'a [u8] {
        self.0
    }
}
