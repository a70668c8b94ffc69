//! Copies to and from memory that the device and other threads access concurrently.

use std::{
    marker::PhantomData,
    ptr::NonNull,
    sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed},
};

const WORD: usize = size_of::<u64>();

/// Memory that is accessed only by atomic loads and stores: of whole aligned words, and of the
/// single bytes before the first and after the last word. So concurrent copies are no data races,
/// whatever their ranges: each byte is always accessed in the same size.
pub(in crate::memory) struct Words<'a> {
    start: NonNull<u8>,
    /// Number of bytes before the first aligned word.
    head: usize,
    /// Number of bytes in aligned words, from `head` on.
    body: usize,
    len: usize,
    memory: PhantomData<&'a [AtomicU8]>,
}

impl<'a> Words<'a> {
    /// # Safety
    /// The `len` bytes are mapped for `'a`, and this process accesses them only through this type
    /// during that time, or by atomic loads and stores of the aligned words.
    pub(super) unsafe fn new(start: NonNull<u8>, len: usize) -> Self {
        let head = start.as_ptr().align_offset(WORD).min(len);
        let body = (len - head) / WORD * WORD;
        Self { start, head, body, len, memory: PhantomData }
    }

    /// Returns the aligned words, if the memory starts with one.
    pub(in crate::memory) fn as_words(&self) -> Option<&'a [AtomicU64]> {
        if self.head != 0 {
            return None;
        }
        // SAFETY: the caller of `new` promised that the memory is mapped, and that its aligned
        // words are accessed only by atomics of this size. With `head == 0` it starts with an
        // aligned word.
        Some(unsafe { std::slice::from_raw_parts(self.start.cast().as_ptr(), self.body / WORD) })
    }

    /// Returns the word that contains a byte of the body.
    fn word(&self, offset: usize) -> &AtomicU64 {
        let at = offset.wrapping_sub(self.head);
        assert!(at < self.body, "outside the memory");
        // SAFETY: the offset is checked above. From `head` on the memory is aligned, and the caller
        // of `new` promised that it is mapped.
        unsafe { self.start.add(self.head + at / WORD * WORD).cast().as_ref() }
    }

    /// Returns a byte outside the body.
    fn byte(&self, offset: usize) -> &AtomicU8 {
        assert!(
            offset < self.len && offset.wrapping_sub(self.head) >= self.body,
            "outside the memory"
        );
        // SAFETY: the offset is checked above, and the caller of `new` promised that the memory is
        // mapped.
        unsafe { self.start.add(offset).cast().as_ref() }
    }

    /// Splits `len` bytes from `offset` on: returns the number of single bytes, and of bytes in
    /// words after them. The rest are single bytes again.
    fn split(&self, offset: usize, len: usize) -> [usize; 2] {
        let before = self.head.saturating_sub(offset).min(len);
        let end = self.head + self.body;
        let inside = end.saturating_sub(offset + before).min(len - before);
        [before, inside]
    }

    /// Copies bytes out, from `offset` on.
    pub(in crate::memory) fn read(&self, offset: usize, to: &mut [u8]) {
        let [before, inside] = self.split(offset, to.len());
        let (head, rest) = to.split_at_mut(before);
        let (body, tail) = rest.split_at_mut(inside);
        for (at, byte) in (offset..).zip(head) {
            *byte = self.byte(at).load(Relaxed);
        }
        self.read_words(offset + before, body);
        for (at, byte) in (offset + before + inside..).zip(tail) {
            *byte = self.byte(at).load(Relaxed);
        }
    }

    fn read_words(&self, offset: usize, to: &mut [u8]) {
        let from = offset.wrapping_sub(self.head) % WORD;
        let (head, body) = to.split_at_mut(head_len(from, to.len()));
        let mut at = offset;
        if !head.is_empty() {
            let bytes = self.word(at).load(Relaxed).to_ne_bytes();
            head.copy_from_slice(&bytes[from..from + head.len()]);
            at += head.len();
        }
        let mut words = body.chunks_exact_mut(WORD);
        for chunk in &mut words {
            chunk.copy_from_slice(&self.word(at).load(Relaxed).to_ne_bytes());
            at += WORD;
        }
        let tail = words.into_remainder();
        if !tail.is_empty() {
            let bytes = self.word(at).load(Relaxed).to_ne_bytes();
            tail.copy_from_slice(&bytes[..tail.len()]);
        }
    }

    /// Copies bytes in, from `offset` on. Other bytes of the first and the last word keep what the
    /// device or other threads write to them meanwhile.
    pub(in crate::memory) fn write(&self, offset: usize, from: &[u8]) {
        let [before, inside] = self.split(offset, from.len());
        let (head, rest) = from.split_at(before);
        let (body, tail) = rest.split_at(inside);
        for (at, byte) in (offset..).zip(head) {
            self.byte(at).store(*byte, Relaxed);
        }
        self.write_words(offset + before, body);
        for (at, byte) in (offset + before + inside..).zip(tail) {
            self.byte(at).store(*byte, Relaxed);
        }
    }

    fn write_words(&self, offset: usize, from: &[u8]) {
        let first = offset.wrapping_sub(self.head) % WORD;
        let (head, body) = from.split_at(head_len(first, from.len()));
        let mut at = offset;
        if !head.is_empty() {
            self.merge(at, first, head);
            at += head.len();
        }
        let mut words = body.chunks_exact(WORD);
        for chunk in &mut words {
            let mut bytes = [0; WORD];
            bytes.copy_from_slice(chunk);
            self.word(at).store(u64::from_ne_bytes(bytes), Relaxed);
            at += WORD;
        }
        let tail = words.remainder();
        if !tail.is_empty() {
            self.merge(at, 0, tail);
        }
    }

    #[allow(deprecated, reason = "the new name, `try_update`, is younger than the oldest compiler")]
    fn merge(&self, offset: usize, at: usize, part: &[u8]) {
        let merged = |old: u64| {
            let mut bytes = old.to_ne_bytes();
            bytes[at..at + part.len()].copy_from_slice(part);
            Some(u64::from_ne_bytes(bytes))
        };
        let _ = self.word(offset).fetch_update(Relaxed, Relaxed, merged);
    }
}

/// Returns the number of the `len` bytes, starting at byte `used` of a word, that lie in that word;
/// 0 if the word is copied as a whole.
fn head_len(used: usize, len: usize) -> usize {
    match used {
        0 => 0,
        used => (WORD - used).min(len),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_range_is_copied_and_nothing_beside_it() {
        const LEN: usize = 40;
        for skip in 0..WORD {
            for total in 0..=LEN - skip {
                let mut memory = [u64::from_ne_bytes([0xee; 8]); LEN / 8];
                let start: NonNull<u8> = NonNull::from(&mut memory).cast();
                // SAFETY: the bytes are inside the array, which nothing else accesses.
                let words = unsafe { Words::new(start.add(skip), total) };
                assert!(
                    words.head + words.body <= total,
                    "no word reaches beyond {total} at {skip}"
                );
                for offset in 0..=total {
                    for len in [0, 1, 7, 8, 9, total - offset] {
                        if len > total - offset {
                            continue;
                        }
                        words.write(0, &[0xee; LEN][..total]);
                        let data: Vec<u8> = (1..=len as u8).collect();
                        words.write(offset, &data);
                        let mut back = vec![0; len];
                        words.read(offset, &mut back);
                        assert_eq!(back, data, "{len} bytes at {offset}");
                        let mut all = [0; LEN];
                        words.read(0, &mut all[..total]);
                        let mut expected = [0xee; LEN];
                        expected[offset..offset + len].copy_from_slice(&data);
                        assert_eq!(all[..total], expected[..total], "{len} bytes at {offset}");
                    }
                }
                words.write(0, &[0xee; LEN][..total]);
                assert_eq!(memory, [u64::from_ne_bytes([0xee; 8]); LEN / 8], "{total} at {skip}");
            }
        }
    }

    fn words(memory: &mut [u64]) -> Words<'_> {
        let len = size_of_val(memory);
        // SAFETY: the slice is borrowed for as long as the words are used.
        unsafe { Words::new(NonNull::from(memory).cast(), len) }
    }

    #[test]
    fn aligned_words_are_borrowed_from_aligned_memory_alone() {
        let mut memory = [1, 2, 3];
        assert_eq!(words(&mut memory).as_words().map(<[_]>::len), Some(3));
        let start: NonNull<u8> = NonNull::from(&mut memory).cast();
        // SAFETY: the bytes are inside the array, which nothing else accesses.
        let odd = unsafe { Words::new(start.add(1), 20) };
        assert!(odd.as_words().is_none());
        // SAFETY: the bytes are inside the array, which nothing else accesses.
        let short = unsafe { Words::new(start, 23) };
        assert_eq!(short.as_words().map(<[_]>::len), Some(2));
    }

    #[test]
    #[should_panic(expected = "outside the memory")]
    fn the_end_is_minded_whatever_the_caller_checked() {
        words(&mut [0; 2]).write(12, &[0; 8]);
    }
}
