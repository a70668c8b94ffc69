//! Send and receive rings, typed builders, per-request records and the NOP scan.
