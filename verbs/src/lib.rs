//! The C ABI of libibverbs and libmlx5, over the mlx5 provider.
//!
//! [`abi`] declares what the headers of rdma-core promise to programs that were compiled with them:
//! structures, function tables, constants.

#![cfg(target_pointer_width = "64")]

pub mod abi;
