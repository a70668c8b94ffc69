//! The ConnectX device's words: layouts of WQE segments, CQEs, doorbell records and commands.
//!
//! Data only: this crate makes no system call, allocates nothing and decides nothing. The provider
//! and the simulated device both read it, and share nothing else. Every layout is big-endian, as
//! on the wire, and has its size and offsets asserted at compile time against the section of
//! `mlx5_ifc.h` / `qp.h` / `cq.h` (Linux, `include/linux/mlx5/`) or of the Programmer's Reference
//! Manual that it names.
#![no_std]

pub mod cmd;
pub mod cqe;
pub mod doorbell;
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
