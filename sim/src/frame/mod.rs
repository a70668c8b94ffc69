//! Ethernet frames: their headers, checksums, hashes, and changes on the way. Nothing here depends
//! on a device.

pub(crate) mod checksum;
pub(crate) mod headers;
pub(crate) mod matching;
pub(crate) mod segment;
pub(crate) mod tag;
pub(crate) mod toeplitz;

#[cfg(test)]
pub(crate) mod samples;
