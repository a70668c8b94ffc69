//! Codes of failed requests and receives.
//!
//! An error entry says why twice: with the syndrome that specifications name, and with numbers of
//! the vendor's that no public document explains. Most numbers here are those that real devices
//! have reported in public for the same cause: `tests/silicon` has the records, and a test brings
//! this device into each recorded situation. The others say "no record".

use mlx5_prm::cqe::Syndrome;

use crate::engine::state::mkey::KeyError;

/// The codes of an error entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Code {
    pub(crate) syndrome: Syndrome,
    /// `vendor_err_synd`.
    pub(crate) vendor: u8,
    /// `hw_err_synd`.
    pub(crate) hardware: u8,
    /// `hw_synd_type`.
    pub(crate) kind: u8,
}

const fn code(syndrome: Syndrome, vendor: u8, hardware: u8) -> Code {
    Code { syndrome, vendor, hardware, kind: 0 }
}

/// No such key, or another tag (`hw_err_synd`).
const NO_KEY: u8 = 0x92;
/// The key is not valid for this queue pair: free, released, of another domain.
const NOT_VALID: u8 = 0x93;
/// Outside the key's region, or without the right.
const OUTSIDE: u8 = 0x9d;
/// The host refused a write.
const NO_WRITE: u8 = 0xa9;
/// The host did not answer a read.
const NO_READ: u8 = 0x02;

impl Code {
    /// A failure that a fault makes.
    pub(crate) const fn forced(syndrome: Syndrome, vendor: u8) -> Self {
        code(syndrome, vendor, 0)
    }

    /// A request's own memory denied a read.
    pub(crate) const fn gather(error: KeyError) -> Self {
        use Syndrome::LocalProtection;
        match error {
            KeyError::Unknown => code(LocalProtection, 0x52, NO_KEY),
            KeyError::Foreign => code(LocalProtection, 0x52, NOT_VALID),
            KeyError::Outside => code(LocalProtection, 0x53, OUTSIDE),
            KeyError::Memory(_) => code(LocalProtection, 0x51, NO_READ),
        }
    }

    /// A receive's memory, or that of an answer, denied a write.
    pub(crate) const fn scatter(error: KeyError) -> Self {
        use Syndrome::LocalProtection;
        match error {
            KeyError::Unknown => code(LocalProtection, 0x32, NO_KEY),
            KeyError::Foreign => code(LocalProtection, 0x32, NOT_VALID),
            KeyError::Outside => code(LocalProtection, 0x33, OUTSIDE),
            KeyError::Memory(_) => code(LocalProtection, 0x56, NO_WRITE),
        }
    }

    /// A request or a receive that never began, in a queue that failed with `hardware`.
    pub(crate) const fn flushed(vendor: u8, hardware: u8) -> Self {
        code(Syndrome::WorkRequestFlushed, vendor, hardware)
    }

    /// Whether the sender's queue pair reports an access error too (`nccl-1905`).
    pub(crate) const fn is_outside(self) -> bool {
        matches!(self.syndrome, Syndrome::LocalProtection) && self.vendor == 0x53
    }

    /// Whether the entry has [`SOLICITED`](mlx5_prm::cqe::SOLICITED) set. Each recorded one has,
    /// but for receives whose key was not valid, and an atomic.
    pub(crate) const fn is_solicited(self) -> bool {
        !matches!(self.syndrome, Syndrome::LocalProtection) || self.vendor != 0x32
    }
}

/// `vendor_err_synd` of the first request that is flushed after MODIFY has moved a queue pair to
/// ERR,
pub(crate) const FLUSHED_FIRST: u8 = 0xf5;
/// and of all others.
pub(crate) const FLUSHED: u8 = 0xf9;

/// The peer did not acknowledge.
pub(crate) const RETRY: Code = code(Syndrome::RetryExceeded, 0x81, 0);
/// The peer had no receive.
pub(crate) const RNR: Code = code(Syndrome::RnrRetryExceeded, 0x87, 0);
/// The peer refused an access.
pub(crate) const ACCESS: Code = code(Syndrome::RemoteAccess, 0x88, 0);
/// The peer could not do it.
pub(crate) const OPERATION: Code = code(Syndrome::RemoteOperation, 0x89, 0);
/// The peer does not take such requests.
pub(crate) const INVALID: Code = code(Syndrome::RemoteInvalidRequest, 0x8a, 0);

/// A WQE that the device does not understand: `lore-xsk-icosq-bad`.
pub(crate) const BAD_WQE: Code = code(Syndrome::LocalQpOperation, 0x68, 0x01);
/// A UMR whose list of translation entries does not end on a boundary: `netdev-umr-align`.
pub(crate) const UNALIGNED_LIST: Code = code(Syndrome::LocalQpOperation, 0x68, 0x86);
/// A frame without the headers that its WQE must contain: a ConnectX-4 Lx, netdev, January 2021.
pub(crate) const INLINE: Code = Code { kind: 0x10, ..code(Syndrome::LocalLength, 0x68, 0x60) };
/// A key that a UMR may not change, in its state: `lore-odp-revoked`.
pub(crate) const UMR_KEY: Code = code(Syndrome::MemoryWindowBind, 0x78, 0x08);
/// A key with fewer translation entries than a UMR brings: `lore-odp-unaligned`.
pub(crate) const UMR_SIZE: Code = code(Syndrome::MemoryWindowBind, 0x78, 0x0f);

/// A change that a UMR may not make, or that the device does not know. No record has the number.
pub(crate) const UMR_REFUSED: Code = code(Syndrome::MemoryWindowBind, 0x78, 0);

// Without a record, from here on: vendor codes of this model's own.

/// A message longer than the device or the receive allows.
pub(crate) const LENGTH: Code = code(Syndrome::LocalLength, 0x50, 0);
/// A queue's memory did not answer.
pub(crate) const NO_MEMORY: Code = code(Syndrome::LocalQpOperation, 0x6b, 0);
/// A signature of a WQE that is not right.
pub(crate) const WQE_SIGNATURE: Code = code(Syndrome::LocalQpOperation, 0x6c, 0);
/// An address vector that leads nowhere.
pub(crate) const VECTOR: Code = code(Syndrome::LocalQpOperation, 0x6d, 0);
/// A frame that is too short.
pub(crate) const SHORT_FRAME: Code = code(Syndrome::LocalQpOperation, 0x70, 0);
/// A packet that cannot be cut in segments.
pub(crate) const SEGMENTS: Code = code(Syndrome::LocalQpOperation, 0x72, 0);
/// A packet that is too long to be cut in segments.
pub(crate) const LONG_PACKET: Code = code(Syndrome::LocalLength, 0x73, 0);
/// A request with several packets where headers are demanded.
pub(crate) const MULTI: Code = code(Syndrome::LocalQpOperation, 0x74, 0);
/// A receive of a shared queue that met a page fault of on-demand memory (mlx5_ib, the C provider).
pub(crate) const PAGE_FAULT: Code =
    code(Syndrome::RemoteAborted, mlx5_prm::cqe::ErrorCqe::PAGE_FAULT, 0);
