//! The parts of the pcapng format that a capture needs (draft-ietf-opsawg-pcapng): a section, an
//! interface with timestamps in nanoseconds, packets, and statistics.

use std::io::{self, Write};

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const STATISTICS: u32 = 5;
const PACKET: u32 = 6;
/// The number by which a reader finds out the byte order.
const MAGIC: u32 = 0x1a2b_3c4d;
/// `LINKTYPE_ETHERNET`.
const ETHERNET: u16 = 1;

mod option {
    pub(super) const END: u16 = 0;
    pub(super) const APPLICATION: u16 = 4;
    pub(super) const NAME: u16 = 2;
    pub(super) const RESOLUTION: u16 = 9;
    pub(super) const RECEIVED: u16 = 4;
    pub(super) const DROPPED: u16 = 5;
}

/// A block under construction.
struct Block(Vec<u8>);

impl Block {
    fn new(kind: u32) -> Self {
        // The length is filled in at the end.
        Self(Vec::new()).u32(kind).u32(0)
    }

    fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    fn u16(self, value: u16) -> Self {
        self.bytes(&value.to_le_bytes())
    }

    fn u32(self, value: u32) -> Self {
        self.bytes(&value.to_le_bytes())
    }

    /// Pads with zeros to a multiple of four bytes.
    fn padded(mut self) -> Self {
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    fn option(self, code: u16, value: &[u8]) -> Self {
        self.u16(code).u16(value.len() as u16).bytes(value).padded()
    }

    fn write(self, to: &mut impl Write) -> io::Result<()> {
        let length = self.0.len() as u32 + 4;
        let mut block = self.u32(length).0;
        block[4..8].copy_from_slice(&length.to_le_bytes());
        to.write_all(&block)
    }
}

/// A timestamp in nanoseconds, in the format's order: the upper half first.
fn time(block: Block, nanoseconds: u64) -> Block {
    block.u32((nanoseconds >> 32) as u32).u32(nanoseconds as u32)
}

/// Begins a file with one interface, whose packets are truncated to `longest` bytes.
pub(super) fn begin(to: &mut impl Write, interface: &str, longest: u32) -> io::Result<()> {
    let section = Block::new(SECTION).u32(MAGIC).u16(1).u16(0).bytes(&u64::MAX.to_le_bytes());
    let section = section.option(option::APPLICATION, b"mlx5 capture");
    section.option(option::END, &[]).write(to)?;
    let block = Block::new(INTERFACE).u16(ETHERNET).u16(0).u32(longest);
    let block = block.option(option::NAME, interface.as_bytes());
    // Ten to the power of minus nine.
    block.option(option::RESOLUTION, &[9]).option(option::END, &[]).write(to)
}

/// Adds a packet, of which the file keeps `bytes`.
pub(super) fn packet(
    to: &mut impl Write,
    nanoseconds: u64,
    bytes: &[u8],
    whole: u32,
) -> io::Result<()> {
    let block = time(Block::new(PACKET).u32(0), nanoseconds);
    block.u32(bytes.len() as u32).u32(whole).bytes(bytes).padded().write(to)
}

/// Ends the file with the number of received packets, and of those that were dropped.
pub(super) fn end(
    to: &mut impl Write,
    nanoseconds: u64,
    received: u64,
    dropped: u64,
) -> io::Result<()> {
    let block = time(Block::new(STATISTICS).u32(0), nanoseconds);
    let block = block.option(option::RECEIVED, &received.to_le_bytes());
    block.option(option::DROPPED, &dropped.to_le_bytes()).option(option::END, &[]).write(to)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The blocks of a file, as kind and contents, by a reader without further knowledge.
    pub(in crate::capture) fn blocks(mut file: &[u8]) -> Vec<(u32, Vec<u8>)> {
        let mut found = Vec::new();
        let word = |bytes: &[u8], at: usize| {
            u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
        };
        while !file.is_empty() {
            let length = word(file, 4) as usize;
            assert!(length.is_multiple_of(4) && length >= 12, "{length}");
            let (block, rest) = file.split_at(length);
            assert_eq!(word(block, length - 4) as usize, length, "the length stands twice");
            found.push((word(block, 0), block[8..length - 4].to_vec()));
            file = rest;
        }
        found
    }

    #[test]
    fn a_file_in_full() {
        let mut file = Vec::new();
        begin(&mut file, "mlx5_0", 96).expect("memory");
        packet(&mut file, 0x0102_0304_0506_0708, b"hello", 64).expect("memory");
        end(&mut file, 7, 3, 1).expect("memory");
        #[rustfmt::skip]
        let expected: &[(u32, &[u8])] = &[
            (0x0a0d_0d0a, b"\x4d\x3c\x2b\x1a\x01\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff\
                \x04\0\x0c\0mlx5 capture\0\0\0\0"),
            (1, b"\x01\0\0\0\x60\0\0\0\x02\0\x06\0mlx5_0\0\0\x09\0\x01\0\x09\0\0\0\0\0\0\0"),
            (6, b"\0\0\0\0\x04\x03\x02\x01\x08\x07\x06\x05\x05\0\0\0\x40\0\0\0hello\0\0\0"),
            (5, b"\0\0\0\0\0\0\0\0\x07\0\0\0\x04\0\x08\0\x03\0\0\0\0\0\0\0\
                \x05\0\x08\0\x01\0\0\0\0\0\0\0\0\0\0\0"),
        ];
        let found = blocks(&file);
        let found: Vec<_> = found.iter().map(|(kind, body)| (*kind, &body[..])).collect();
        assert_eq!(found, expected);
    }
}
