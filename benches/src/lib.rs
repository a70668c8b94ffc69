//! The operations that the benchmark counts and times.
//!
//! They are a library of their own, so that the compiler's decisions about them do not depend on
//! the rest of the benchmark.

pub mod operations;
