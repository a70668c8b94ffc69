//! Copies to and from memory that the device and other threads access concurrently.

use std::{
    marker::PhantomData,
    ptr::NonNull,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

const WORD: usize = size_of::<u64>();

/// Memory that is only accessed by atomic loads and stores of whole words. Concurrent copies are
/// therefore no data races, whatever their ranges are.
pub(super) struct Words<'a> {
    start: NonNull<AtomicU64>,
    words: usize,
    memory: PhantomData<&'a [AtomicU64]>,
}

impl Words<'_> {
    /// # Safety
    /// `start` and `len` are multiples of 8. The `len` bytes are mapped for `'a`, and this process
    /// accesses them only through this type during that time.
    pub(super) unsafe fn new(start: NonNull<u8>, len: usize) -> Self {
        Self { start: start.cast(), words: len / WORD, memory: PhantomData }
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        assert!(index < self.words, "outside the memory");
        // SAFETY: the index is checked above; by the contract of `new` the memory is aligned and
        // mapped.
        unsafe { self.start.add(index).as_ref() }
    }

    /// Copies bytes out, from `offset` on.
    pub(super) fn read(&self, offset: usize, to: &mut [u8]) {
        let (head, body) = to.split_at_mut(head_len(offset, to.len()));
        let mut index = offset / WORD;
        if !head.is_empty() {
            let bytes = self.word(index).load(Relaxed).to_ne_bytes();
            let from = offset % WORD;
            head.copy_from_slice(&bytes[from..from + head.len()]);
            index += 1;
        }
        let mut words = body.chunks_exact_mut(WORD);
        for chunk in &mut words {
            chunk.copy_from_slice(&self.word(index).load(Relaxed).to_ne_bytes());
            index += 1;
        }
        let tail = words.into_remainder();
        if !tail.is_empty() {
            let bytes = self.word(index).load(Relaxed).to_ne_bytes();
            tail.copy_from_slice(&bytes[..tail.len()]);
        }
    }

    /// Copies bytes in, from `offset` on. The other bytes of the first and the last word keep what
    /// the device or other threads write to them meanwhile.
    pub(super) fn write(&self, offset: usize, from: &[u8]) {
        let (head, body) = from.split_at(head_len(offset, from.len()));
        let mut index = offset / WORD;
        if !head.is_empty() {
            self.merge(index, offset % WORD, head);
            index += 1;
        }
        let mut words = body.chunks_exact(WORD);
        for chunk in &mut words {
            let mut bytes = [0; WORD];
            bytes.copy_from_slice(chunk);
            self.word(index).store(u64::from_ne_bytes(bytes), Relaxed);
            index += 1;
        }
        let tail = words.remainder();
        if !tail.is_empty() {
            self.merge(index, 0, tail);
        }
    }

    fn merge(&self, index: usize, at: usize, part: &[u8]) {
        let merged = |old: u64| {
            let mut bytes = old.to_ne_bytes();
            bytes[at..at + part.len()].copy_from_slice(part);
            Some(u64::from_ne_bytes(bytes))
        };
        let _ = self.word(index).fetch_update(Relaxed, Relaxed, merged);
    }
}

/// Returns how many of the `len` bytes at `offset` lie in a word that begins before `offset`.
fn head_len(offset: usize, len: usize) -> usize {
    match offset % WORD {
        0 => 0,
        used => (WORD - used).min(len),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(memory: &mut [u64]) -> Words<'_> {
        let len = size_of_val(memory);
        let start = NonNull::from(memory).cast();
        // SAFETY: the slice is aligned, and borrowed for as long as the words are used.
        unsafe { Words::new(start, len) }
    }

    #[test]
    fn every_range_is_copied_and_nothing_beside_it() {
        const LEN: usize = 40;
        for offset in 0..LEN {
            for len in 0..=LEN - offset {
                let mut memory = [u64::from_ne_bytes([0xee; 8]); LEN / 8];
                let data: Vec<u8> = (1..=len as u8).collect();
                let words = words(&mut memory);
                words.write(offset, &data);
                let mut back = vec![0; len];
                words.read(offset, &mut back);
                assert_eq!(back, data, "{len} bytes at {offset}");
                let mut all = [0; LEN];
                words.read(0, &mut all);
                let mut expected = [0xee; LEN];
                expected[offset..offset + len].copy_from_slice(&data);
                assert_eq!(all, expected, "{len} bytes at {offset}");
            }
        }
    }

    #[test]
    #[should_panic(expected = "outside the memory")]
    fn the_end_is_minded_whatever_the_caller_checked() {
        words(&mut [0; 2]).write(12, &[0; 8]);
    }
}
