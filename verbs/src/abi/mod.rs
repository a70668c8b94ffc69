//! The ABI of rdma-core's headers, for programs that were compiled with them.
//!
//! Names are C's. The structures are those of release 65: every structure that grew since release
//! 44 grew at its end, or, as [`verbs_context`], at its beginning, so that programs of either find
//! their fields.

// The names and their meaning are the header's.
#![allow(non_camel_case_types, non_snake_case, missing_docs)]

mod caps;
mod constants;
mod context;
mod flow;
pub mod mlx5dv;
mod object;
mod opaque;
mod request;
mod sa;
mod types;
mod wq;

pub use caps::*;
pub use constants::*;
pub use context::*;
pub use flow::*;
pub use object::*;
pub use opaque::*;
pub use request::*;
pub use sa::*;
pub use types::*;
pub use wq::*;

/// Every constant.
pub fn constants() -> impl Iterator<Item = &'static Constant> {
    constants::CONSTANTS.iter().chain(mlx5dv::CONSTANTS)
}

/// Every structure that has a name in C.
pub fn layouts() -> impl Iterator<Item = &'static Layout> {
    let all = [
        caps::LAYOUTS,
        context::LAYOUTS,
        flow::LAYOUTS,
        object::LAYOUTS,
        request::LAYOUTS,
        sa::LAYOUTS,
        wq::LAYOUTS,
        mlx5dv::LAYOUTS[0],
        mlx5dv::LAYOUTS[1],
        mlx5dv::LAYOUTS[2],
        mlx5dv::LAYOUTS[3],
    ];
    all.into_iter().flatten().filter(|(_, size, _)| *size > 0)
}
