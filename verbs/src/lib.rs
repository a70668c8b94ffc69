//! The C ABI of libibverbs and libmlx5, over the mlx5 provider.
//!
//! [`abi`] declares the ABI of rdma-core's headers: structures, function tables, constants. The
//! other modules have the verbs, each a function, named as in C without `ibv_`. Programs call them
//! through the tables of a context, or by the symbols of the library.

#![cfg(target_pointer_width = "64")]

pub mod abi;

pub mod ah;
mod caps;
mod channels;
pub mod clock;
pub mod close;
mod context;
pub mod counters;
pub mod cq;
pub mod device;
pub mod dm;
pub mod domain;
pub mod dv;
mod dv_state;
pub mod ece;
mod environment;
pub mod event;
pub mod flow;
pub mod fork;
pub mod from_kernel;
pub mod import;
mod kernel;
mod log;
pub mod mkey;
pub mod mr;
pub mod mw;
mod netlink;
mod object;
pub mod open;
mod parent;
pub mod pd;
mod process;
pub mod qp;
pub mod query;
pub mod rates;
mod refusal;
pub mod refuse;
mod request;
mod spare;
mod spin;
pub mod srq;
pub mod sysfs;
pub mod texts;
mod waiting;
pub mod wq;
pub mod xrc;
