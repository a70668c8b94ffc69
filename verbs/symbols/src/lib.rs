//! The symbols of libibverbs and libmlx5, with their version nodes, and the function of
//! `mlx5-verbs` for each: a table, no code, so that `xtask`, which links the library, needs no
//! driver for it.
//!
//! A table is a macro that passes its lines to another one. A group of lines belongs to one node; a
//! name that C has in several nodes is in a group of each:
//!
//! ```text
//! default "IBVERBS_1.1" {
//!     ibv_alloc_pd => pd::alloc_pd,
//! }
//! hidden "IBVERBS_1.0" {
//!     ibv_alloc_pd => refuse::null,
//! }
//! ```
//!
//! Programs that are linked now get a `default` one (`name@@NODE`); a `hidden` one (`name@NODE`) is
//! for programs that were linked when it was the default. The function after the arrow is a path in
//! `mlx5-verbs`. It must have the C function's parameters and result, or be one of `refuse` with
//! the same result: `cargo xtask verbs --check` compares with the headers, because the compiler
//! cannot.

#![no_std]

#[macro_use]
mod libibverbs;
#[macro_use]
mod libmlx5;
#[macro_use]
mod old;
#[macro_use]
mod private;
#[macro_use]
mod steering;

#[cfg(test)]
mod tests;

/// Passes the lines of every table to a macro, one table at a time.
#[macro_export]
macro_rules! functions {
    ($($then:tt)+) => {
        $crate::libibverbs! { $($then)+ }
        $crate::private! { $($then)+ }
        $crate::old! { $($then)+ }
        $crate::libmlx5! { $($then)+ }
        $crate::steering! { $($then)+ }
    };
}

/// The data symbols: each a name, its node, and its number of zero bytes.
#[macro_export]
macro_rules! data {
    ($($then:tt)+) => {
        $($then)+! {
            // C's library sets it from `RDMAV_ALLOW_DISASSOC_DESTROY`; the providers of other
            // vendors read it.
            verbs_allow_disassociate_destroy "IBVERBS_PRIVATE_34" 1
        }
    };
}

/// A symbol in one of its nodes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Symbol {
    /// C's name.
    pub name: &'static str,
    /// Its version.
    pub node: &'static str,
    /// Whether programs that are linked now get this one.
    pub default: bool,
    /// Its kind.
    pub kind: Kind,
}

/// The kind of a symbol.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// A function, which jumps to this path in `mlx5-verbs`.
    Function(&'static str),
    /// Data with this number of bytes.
    Data(u64),
}

macro_rules! functions_listed {
    ($($kind:ident $node:literal { $($name:ident => $($to:ident)::+,)* })*) => {
        &[$($(Symbol {
            name: stringify!($name),
            node: $node,
            default: functions_listed!($kind),
            kind: Kind::Function(stringify!($($to)::+)),
        },)*)*]
    };
    (default) => { true };
    (hidden) => { false };
}

macro_rules! data_listed {
    ($($name:ident $node:literal $size:literal)*) => {
        &[$(Symbol { name: stringify!($name), node: $node, default: true, kind: Kind::Data($size) },)*]
    };
}

/// Every table, and the data.
const TABLES: [&[Symbol]; 6] = [
    libibverbs!(functions_listed),
    private!(functions_listed),
    old!(functions_listed),
    libmlx5!(functions_listed),
    steering!(functions_listed),
    data!(data_listed),
];

/// Every symbol, in each of its nodes.
pub fn symbols() -> impl Iterator<Item = &'static Symbol> {
    TABLES.into_iter().flatten()
}

/// The symbols that the libraries of Debian's rdma-core export on x86-64: a line for each, with its
/// library, name and node, `@@` before a node that is the default, and the size of data.
pub const DEBIAN: [(&str, &str); 2] =
    [("44.0", include_str!("../lists/44.0")), ("56.1", include_str!("../lists/56.1"))];
