//! The symbols of libibverbs and libmlx5, with their version nodes, and the function of `mlx5-verbs` that
//! each goes to: a table, no code. `xtask`, which links the library, so needs no driver to know them.
//!
//! A table is a macro that hands its lines to another one. A group of lines is of one node; a name that C
//! has in several nodes is in a group of each:
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
//! Programs that are linked now take a `default` one (`name@@NODE`); a `hidden` one (`name@NODE`) is for
//! programs that were linked when it was the default. The function behind the arrow is a path in `mlx5-verbs`. It must
//! have the C function's parameters and result, or be one of `refuse` that has the result: `cargo xtask verbs
//! --check` compares with the headers, the compiler cannot.

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

/// Hands the lines of every table to a macro, a table at a time.
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

/// The data: each a name, its node, and how many bytes of zeros it is.
#[macro_export]
macro_rules! data {
    ($($then:tt)+) => {
        $($then)+! {
            // Set by C's library if `RDMAV_ALLOW_DISASSOC_DESTROY` says so, and read by the providers of
            // other vendors.
            verbs_allow_disassociate_destroy "IBVERBS_PRIVATE_34" 1
        }
    };
}

/// A symbol in one of its nodes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Symbol {
    /// What C calls it.
    pub name: &'static str,
    /// Its version.
    pub node: &'static str,
    /// Whether programs that are linked now take this one.
    pub default: bool,
    /// What it is.
    pub kind: Kind,
}

/// What a symbol is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// A function, which goes to that of this path in `mlx5-verbs`.
    Function(&'static str),
    /// So many bytes.
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

/// What the libraries of an rdma-core of Debian's export on x86-64: a line for each symbol, with its
/// library, name and node, `@@` before a node that is the default, and the size of data.
pub const DEBIAN: [(&str, &str); 2] =
    [("44.0", include_str!("../lists/44.0")), ("56.1", include_str!("../lists/56.1"))];
