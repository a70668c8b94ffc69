//! The private data of messages.

use std::fmt;
use std::ops::Deref;

use mlx5_uapi::rdma_cm::MAX_PRIVATE_DATA;

/// The private data of a message: as many bytes as the message has room for, so zeros follow the
/// peer's bytes. Encode the length in the data.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PrivateData {
    bytes: [u8; MAX_PRIVATE_DATA],
    len: u8,
}

impl PrivateData {
    pub(crate) fn new(bytes: [u8; MAX_PRIVATE_DATA], len: u8) -> Self {
        Self { bytes, len }
    }
}

impl Default for PrivateData {
    fn default() -> Self {
        Self { bytes: [0; MAX_PRIVATE_DATA], len: 0 }
    }
}

impl Deref for PrivateData {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len.into()]
    }
}

impl fmt::Debug for PrivateData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Leave out the zeros at the end.
        let end = self.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        write!(f, "b\"{}\"", self[..end].escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_data_is_shown_without_the_zeros_at_its_end() {
        let mut bytes = [0; MAX_PRIVATE_DATA];
        bytes[..3].copy_from_slice(b"a\0b");
        assert_eq!(format!("{:?}", PrivateData::new(bytes, 56)), "b\"a\\x00b\"");
    }
}
