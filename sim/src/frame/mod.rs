//! Ethernet frames: their headers, checksums, hashes, and what is done to them on the way. Nothing here
//! knows a device.

pub(crate) mod checksum;
pub(crate) mod headers;
pub(crate) mod matching;
pub(crate) mod segment;
pub(crate) mod tag;
pub(crate) mod toeplitz;

#[cfg(test)]
pub(crate) mod samples;
