//! The types of fields, and the macros that declare structures and constants.

pub use core::ffi::{c_char, c_int, c_uint, c_void};
pub use libc::{
    pthread_cond_t as PthreadCond, pthread_mutex_t as PthreadMutex, timespec as Timespec,
};

/// Two bytes in network order.
pub type Be16 = u16;
/// Four bytes in network order.
pub type Be32 = u32;
/// Eight bytes in network order.
pub type Be64 = u64;

/// A structure's name, size, and the names and offsets of its fields.
pub type Layout = (&'static str, usize, &'static [(&'static str, usize)]);

/// A constant's name and value.
pub type Constant = (&'static str, i64);

/// C structures and unions: each with its size, and each field after its offset. Both are checked
/// on x86-64 (on other machines pthread's types have other sizes). A structure without a size has
/// no name in C: it is a field's type.
macro_rules! abi {
    ($($kind:tt $name:ident $([$size:literal])? { $($($offset:literal)? $field:ident: $ty:ty,)* })*) => {
        $(
            #[repr(C)]
            #[derive(Clone, Copy)]
            pub $kind $name { $(pub $field: $ty,)* }

            #[cfg(target_arch = "x86_64")]
            const _: () = {
                $(assert!(core::mem::size_of::<$name>() == $size);)?
                $($(assert!(core::mem::offset_of!($name, $field) == $offset);)?)*
            };
        )*

        /// The layouts of this file, for comparison with the header.
        pub(super) const LAYOUTS: &[$crate::abi::types::Layout] = &[
            $((
                stringify!($name),
                [$($size,)? 0][0],
                &[$($((stringify!($field), $offset),)?)*],
            ),)*
        ];
    };
}
pub(crate) use abi;

/// The members of enumerations, in the type that a field of them has.
macro_rules! constants {
    ($($ty:ident { $($name:ident = $value:literal;)* })*) => {
        $($(pub const $name: $ty = $value;)*)*

        /// The constants of this file, for comparison with the header.
        pub(in crate::abi) const CONSTANTS: &[$crate::abi::types::Constant] =
            &[$($((stringify!($name), $value),)*)*];
    };
}
pub(crate) use constants;

/// Structures that the header declares without fields.
macro_rules! opaque {
    ($($name:ident)*) => {
        $(
            #[repr(C)]
            pub struct $name {
                _private: [u8; 0],
            }
        )*
    };
}
pub(crate) use opaque;
