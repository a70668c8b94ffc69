//! The operations that the benchmark counts and times.
//!
//! They are a library of their own, so that how they are compiled does not depend on what else the
//! benchmark has.

pub mod operations;
