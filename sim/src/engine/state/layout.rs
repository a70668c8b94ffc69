//! Layouts of indirect keys: lists of pieces of other keys, and interleaved ones.

use mlx5_prm::umr::{Klm, RepeatBlock, RepeatEntry};

/// Bytes of an entry.
pub(crate) const ENTRY: usize = size_of::<Klm>();

/// The translation entries of an indirect key, as the device holds them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Layout {
    entries: Vec<[u8; ENTRY]>,
    /// Length of every entry, in place of its own length (KSM); `None` if each entry has its own
    /// (KLM).
    entry_length: Option<u64>,
}

/// A range of another key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Range {
    pub(crate) key: u32,
    pub(crate) address: u64,
    pub(crate) length: u64,
}

impl Layout {
    /// A layout of pieces of individual lengths.
    pub(crate) fn list(entries: &[u8]) -> Self {
        Self { entries: entries.as_chunks().0.to_vec(), entry_length: None }
    }

    /// A layout of pieces of one length.
    pub(crate) fn uniform(entries: &[u8], length: u64) -> Self {
        Self { entry_length: Some(length), ..Self::list(entries) }
    }

    /// Replaces entries from an index on.
    pub(crate) fn set(&mut self, first: usize, entries: &[u8]) {
        let new = entries.as_chunks::<ENTRY>().0;
        let end = first + new.len();
        if self.entries.len() < end {
            self.entries.resize(end, [0; ENTRY]);
        }
        self.entries[first..end].copy_from_slice(new);
    }

    /// Translates a range of the key to ranges of other keys; `None` if the entries end before the
    /// range does or contradict each other.
    pub(crate) fn ranges(&self, offset: u64, length: u64) -> Option<Vec<Range>> {
        if length == 0 {
            return Some(Vec::new());
        }
        let head: RepeatBlock = zerocopy::transmute!(*self.entries.first()?);
        if self.entry_length.is_none() && head.op.get() == RepeatBlock::OP {
            self.interleaved(&head, offset, length)
        } else {
            self.listed(offset, length)
        }
    }

    fn listed(&self, offset: u64, length: u64) -> Option<Vec<Range>> {
        let pieces = self.entries.iter().map(|entry| {
            let klm: Klm = zerocopy::transmute!(*entry);
            Range {
                key: klm.mkey.get(),
                address: klm.address.get(),
                length: self.entry_length.unwrap_or(klm.byte_count.get().into()),
            }
        });
        cut(pieces, offset, length)
    }

    fn interleaved(&self, head: &RepeatBlock, offset: u64, length: u64) -> Option<Vec<Range>> {
        let entries = self.entries.get(1..=usize::from(head.num_entries.get()))?;
        let entries: Vec<RepeatEntry> =
            entries.iter().map(|entry| zerocopy::transmute!(*entry)).collect();
        let bytes = |entry: &RepeatEntry| u64::from(entry.byte_count.get());
        let round_bytes: u64 = entries.iter().map(bytes).sum();
        if round_bytes == 0 || round_bytes != u64::from(head.byte_count.get()) {
            return None;
        }
        let rounds = offset / round_bytes..u64::from(head.repeat_count.get());
        let pieces = rounds.flat_map(|round| {
            entries.iter().map(move |entry| Range {
                key: entry.mkey.get(),
                address: entry.address.get().wrapping_add(round * u64::from(entry.stride.get())),
                length: bytes(entry),
            })
        });
        cut(pieces, offset % round_bytes, length)
    }
}

/// The part of a sequence of pieces from `offset` on; `None` if they end too early.
fn cut(
    pieces: impl Iterator<Item = Range>,
    mut offset: u64,
    mut length: u64,
) -> Option<Vec<Range>> {
    let mut ranges = Vec::new();
    for piece in pieces {
        if offset >= piece.length {
            offset -= piece.length;
            continue;
        }
        let now = length.min(piece.length - offset);
        ranges.push(Range { address: piece.address.wrapping_add(offset), length: now, ..piece });
        (offset, length) = (0, length - now);
        if length == 0 {
            return Some(ranges);
        }
    }
    None
}

/// The bytes of a list of pieces.
#[cfg(test)]
pub(crate) fn entries(pieces: &[Range]) -> Vec<u8> {
    use zerocopy::IntoBytes;
    let klms: Vec<Klm> = pieces
        .iter()
        .map(|piece| Klm {
            byte_count: (piece.length as u32).into(),
            mkey: piece.key.into(),
            address: piece.address.into(),
        })
        .collect();
    klms.as_bytes().to_vec()
}

#[cfg(test)]
mod tests {
    use zerocopy::IntoBytes;

    use super::*;

    fn range(key: u32, address: u64, length: u64) -> Range {
        Range { key, address, length }
    }

    #[test]
    fn a_list_is_one_range_after_another() {
        let list = Layout::list(&entries(&[
            range(0x1000, 0x100, 8),
            range(0x2000, 0x900, 24),
            range(0x3000, 0, 4),
            range(0, 0, 0),
        ]));
        assert_eq!(list.ranges(0, 8), Some(vec![range(0x1000, 0x100, 8)]));
        assert_eq!(
            list.ranges(6, 28),
            Some(vec![range(0x1000, 0x106, 2), range(0x2000, 0x900, 24), range(0x3000, 0, 2)])
        );
        assert_eq!(list.ranges(36, 1), None);
        assert_eq!(list.ranges(30, 7), None);
        assert_eq!(list.ranges(99, 0), Some(vec![]));
    }

    #[test]
    fn a_uniform_list_takes_no_lengths_of_its_entries() {
        let list =
            Layout::uniform(&entries(&[range(0x1000, 0x40, 1), range(0x2000, 0x80, 2)]), 4096);
        assert_eq!(
            list.ranges(4090, 10),
            Some(vec![range(0x1000, 0x40 + 4090, 6), range(0x2000, 0x80, 4)])
        );
    }

    fn interleaved(rounds: u32, byte_count: u32, parts: &[(u16, u16, u32, u64)]) -> Layout {
        let head = RepeatBlock {
            byte_count: byte_count.into(),
            op: RepeatBlock::OP.into(),
            repeat_count: rounds.into(),
            num_entries: (parts.len() as u16).into(),
            ..RepeatBlock::default()
        };
        let mut bytes = head.as_bytes().to_vec();
        for (stride, count, key, address) in parts {
            let entry = RepeatEntry {
                stride: (*stride).into(),
                byte_count: (*count).into(),
                mkey: (*key).into(),
                address: (*address).into(),
            };
            bytes.extend_from_slice(entry.as_bytes());
        }
        Layout::list(&bytes)
    }

    #[test]
    fn an_interleaved_layout_goes_round_with_a_stride_for_each_entry() {
        let layout = interleaved(3, 12, &[(10, 8, 0x1000, 0x100), (4, 4, 0x2000, 0x800)]);
        assert_eq!(
            layout.ranges(6, 20),
            Some(vec![
                range(0x1000, 0x106, 2),
                range(0x2000, 0x800, 4),
                range(0x1000, 0x10a, 8),
                range(0x2000, 0x804, 4),
                range(0x1000, 0x114, 2),
            ])
        );
        assert_eq!(layout.ranges(35, 1), Some(vec![range(0x2000, 0x80b, 1)]));
        assert_eq!(layout.ranges(35, 2), None);
    }

    #[test]
    fn a_repeat_block_that_contradicts_its_entries_leads_nowhere() {
        assert_eq!(interleaved(3, 9, &[(10, 8, 0x1000, 0x100)]).ranges(0, 1), None);
        let mut short = interleaved(3, 16, &[(10, 8, 0x1000, 0), (10, 8, 0x1000, 0)]);
        short.entries.truncate(2);
        assert_eq!(short.ranges(0, 1), None);
    }

    #[test]
    fn entries_can_be_replaced_in_part() {
        let mut list = Layout::default();
        list.set(1, &entries(&[range(0x2000, 0, 4)]));
        list.set(0, &entries(&[range(0x1000, 0, 4)]));
        assert_eq!(list.ranges(0, 8), Some(vec![range(0x1000, 0, 4), range(0x2000, 0, 4)]));
    }
}
