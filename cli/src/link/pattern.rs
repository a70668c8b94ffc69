//! The contents of messages.

/// A pattern that differs between messages and between the words of one message.
pub(crate) fn pattern(index: u64, size: usize) -> Vec<u8> {
    let words = size.div_ceil(8) as u64;
    let word = |at: u64| ((index << 32) + at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    let mut bytes: Vec<u8> = (0..words).flat_map(word).collect();
    bytes.truncate(size);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_messages_are_alike() {
        assert_eq!(pattern(0, 13).len(), 13);
        assert_eq!(pattern(3, 0), Vec::<u8>::new());
        assert_ne!(pattern(0, 8), pattern(1, 8));
        let one = pattern(7, 64);
        assert_ne!(one[..8], one[8..16]);
        assert_eq!(one, pattern(7, 64));
    }
}
