//! Layouts of the ConnectX interface: WQE segments, CQEs, EQEs, doorbell records and commands.
//!
//! The crate holds data only: it makes no system call, does not allocate and has no policy. The
//! driver and the simulated device both use it; `mlx5-uapi` is the only other crate that they
//! share. Every layout is big-endian, as the device defines it. Its size and offsets are asserted
//! at compile time against the section of `mlx5_ifc.h`, `qp.h` or `cq.h` (Linux,
//! `include/linux/mlx5/`) or of the Programmer's Reference Manual (PRM) that its documentation
//! names.
#![no_std]
#![deny(missing_debug_implementations)]

pub mod cmd;
pub mod cqe;
pub mod doorbell;
pub mod ethernet;
pub mod event;
pub mod fields;
pub mod signature;
pub mod umr;
pub mod wqe;

pub use zerocopy;
pub use zerocopy::byteorder::big_endian::{U16, U32, U64};

/// Asserts at compile time the size of a layout and the offsets of its fields.
macro_rules! assert_layout {
    ($ty:ty, $size:expr $(, $field:ident @ $offset:expr)* $(,)?) => {
        const _: () = {
            assert!(core::mem::size_of::<$ty>() == $size);
            $(assert!(core::mem::offset_of!($ty, $field) == $offset);)*
        };
    };
}
pub(crate) use assert_layout;
