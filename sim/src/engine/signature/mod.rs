//! Processing of data under keys with signatures: PSVs, their errors, and data transfers.

mod psv;
mod transfer;
