//! Instruction counts and timings of the hot paths.
