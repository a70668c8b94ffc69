//! Pages for rings, from chunks that hold many.
//!
//! A ring of a few pages does not get a mapping of its own: mapping and unmapping one costs more
//! than creating a queue, and each mapping takes entries of the TLB. Chunks grow with the number of
//! pages in use. Large chunks are advised to be backed by huge pages.
//!
//! Returned pages are reused, lowest first. A ring that is returned reports which of its bytes were
//! written, and the next owner zeroes only those pages. At most [`IDLE`] bytes of free pages hold
//! memory; the rest is returned to the system.

use super::map::map;
use mlx5_uapi::{
    AllocateError, DeviceFile, HugePages, Mapping, MemoryRequest, page_size, real::discard,
};
use std::{ops::Range, ptr::NonNull};

/// Bytes of free pages that are not returned to the system, because the next ring may take them.
pub(super) const IDLE: usize = 4 << 20;

/// Number of pages of the first chunk; and maximum size of a chunk, unless one request is larger.
const LEAST_PAGES: usize = 16;
const MOST: usize = 16 << 20;

/// From this size on a chunk has at least one whole huge page of 2 MiB, wherever it starts.
const TRANSPARENT: usize = 4 << 20;

/// The common properties of the pages of a chunk: a ring gets pages of its kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Kind {
    pub(super) huge_pages: HugePages,
    /// The requested node.
    pub(super) numa_node: Option<u32>,
    /// Without a requested node: the node of the thread that first touches the pages, which come
    /// from there.
    pub(super) near: u32,
}

impl Kind {
    /// Whether pages can be returned to the system one by one.
    fn is_ordinary(self) -> bool {
        self.huge_pages == HugePages::None
    }

    fn request(self, len: usize) -> MemoryRequest {
        MemoryRequest::new(len)
            .align(page_size())
            .huge(self.huge_pages)
            .numa_node(self.numa_node)
            .transparent_huge(self.is_ordinary() && len >= TRANSPARENT)
    }
}

/// 64 pages, a bit for each.
#[derive(Clone, Default)]
struct Word {
    /// Pages that no ring has.
    free: u64,
    /// Free pages that may hold memory.
    idle: u64,
    /// Free pages that may hold something other than zeros.
    dirty: u64,
}

/// The pages of a chunk.
struct Pages {
    words: Vec<Word>,
    len: usize,
}

impl Pages {
    /// Returns pages that are all free and hold no memory yet.
    fn new(len: usize) -> Self {
        let mut pages = Self { words: vec![Word::default(); len.div_ceil(64)], len };
        pages.give_back(0..len, false);
        pages
    }

    /// The words that a nonempty range touches, and the bits of its pages in each.
    #[inline]
    fn words(Range { start, end }: Range<usize>) -> impl Iterator<Item = (usize, u64)> {
        (start / 64..end.div_ceil(64)).map(move |word| {
            let (from, to) = (start.max(word * 64), end.min(word * 64 + 64));
            // At least one page of the range is in the word.
            (word, u64::MAX >> (64 - (to - from)) << (from % 64))
        })
    }

    /// Takes free pages. Returns how many of them were idle, and which were dirty, as offsets in
    /// the range.
    fn take(&mut self, range: Range<usize>) -> (usize, Dirty) {
        let (mut idle, mut dirty) = (0, Dirty::default());
        for (number, mask) in Self::words(range.clone()) {
            let word = &mut self.words[number];
            idle += (word.idle & mask).count_ones() as usize;
            for run in runs(word.dirty & mask) {
                let at = |bit: usize| number * 64 + bit - range.start;
                dirty.add(at(run.start)..at(run.end));
            }
            word.idle &= !mask;
            word.free &= !mask;
            word.dirty &= !mask;
        }
        (idle, dirty)
    }

    /// Notes that pages were written. The range is not empty.
    fn soil(&mut self, range: Range<usize>) {
        for (word, mask) in Self::words(range) {
            self.words[word].dirty |= mask;
        }
    }

    /// Frees pages; if they may hold memory, marks them as idle, too.
    fn give_back(&mut self, range: Range<usize>, idle: bool) {
        for (word, mask) in Self::words(range) {
            let word = &mut self.words[word];
            word.free |= mask;
            word.idle |= if idle { mask } else { 0 };
        }
    }

    /// Returns the first page of a range that is free, or that is in use; the end if there is none.
    #[inline]
    fn next(&self, range: Range<usize>, free: bool) -> usize {
        let end = range.end;
        Self::words(range)
            .find_map(|(word, mask)| {
                let bits = self.words[word].free ^ if free { 0 } else { u64::MAX };
                let bits = bits & mask;
                (bits != 0).then(|| word * 64 + bits.trailing_zeros() as usize)
            })
            .unwrap_or(end)
    }

    /// Returns the number of idle pages.
    fn idle(&self) -> usize {
        self.words.iter().map(|word| word.idle.count_ones() as usize).sum()
    }
}

/// Returns the runs of ones in a word.
fn runs(mut bits: u64) -> impl Iterator<Item = Range<usize>> {
    std::iter::from_fn(move || {
        (bits != 0).then(|| {
            let start = bits.trailing_zeros();
            let end = start + (bits >> start).trailing_ones();
            // No bit below `end` is left.
            bits &= u64::MAX.checked_shl(end).unwrap_or(0);
            start as usize..end as usize
        })
    })
}

/// Pages to be zeroed: all dirty pages, in at most two pieces. A queue pair writes the start of
/// each of two rings.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(super) struct Dirty([Range<usize>; 2]);

impl Dirty {
    /// Adds pages after those that it has.
    fn add(&mut self, pages: Range<usize>) {
        let Self([first, second]) = self;
        if (*first).is_empty() {
            *first = pages;
        } else if (*second).is_empty() && first.end == pages.start {
            first.end = pages.end;
        } else if (*second).is_empty() {
            *second = pages;
        } else {
            // Includes the pages between the pieces.
            second.end = pages.end;
        }
    }

    /// Sets the bytes of these pages to zero.
    ///
    /// # Safety
    /// `start` is the start of the range, whose pages are mapped and which nothing else uses.
    pub(super) unsafe fn zero(&self, start: NonNull<u8>) {
        for Range { start: first, end } in &self.0 {
            let (offset, len) = (first * page_size(), (end - first) * page_size());
            // SAFETY: the caller promises that the pages from `start` on are mapped, and that
            // nothing else uses them.
            unsafe { start.byte_add(offset).write_bytes(0, len) };
        }
    }
}

/// A mapping whose pages are given to rings.
struct Chunk {
    kind: Kind,
    mapping: Mapping,
    pages: Pages,
    /// Number of pages that rings have.
    in_use: usize,
    /// No page below this is free.
    lowest: usize,
    /// Whether some page is never reused, because the device may still use it. Such a page stays in
    /// use.
    kept: bool,
}

impl Chunk {
    fn new(kind: Kind, mapping: Mapping) -> Self {
        let pages = mapping.len() / page_size();
        Self { kind, mapping, pages: Pages::new(pages), in_use: 0, lowest: 0, kept: false }
    }

    /// Returns the lowest run of `pages` free pages.
    fn find(&self, pages: usize) -> Option<usize> {
        let end = self.pages.len;
        if pages > end - self.in_use {
            return None;
        }
        let mut at = self.lowest;
        while at + pages <= end {
            let first = self.pages.next(at..end, true);
            if first + pages > end {
                return None;
            }
            let taken = self.pages.next(first..first + pages, false);
            if taken - first == pages {
                return Some(first);
            }
            at = taken + 1;
        }
        None
    }
}

/// The pages of a ring.
#[derive(Debug)]
pub(super) struct Run {
    chunk: usize,
    first: usize,
    pages: usize,
    start: NonNull<u8>,
}

impl Run {
    /// Returns the first byte.
    pub(super) fn start(&self) -> NonNull<u8> {
        self.start
    }

    fn range(&self) -> Range<usize> {
        self.first..self.first + self.pages
    }

    fn len(&self) -> usize {
        self.pages * page_size()
    }
}

/// Pages for rings.
#[derive(Default)]
pub(super) struct Arena {
    /// A chunk never moves; the entry of an unmapped chunk is reused.
    chunks: Vec<Option<Chunk>>,
    /// Number of idle pages in all chunks.
    idle: usize,
}

impl Arena {
    /// Takes pages for `len` bytes. The caller must zero the dirty ones; the rest is zero.
    pub(super) fn take(
        &mut self,
        file: &dyn DeviceFile,
        kind: Kind,
        len: usize,
    ) -> Result<(Run, Dirty), AllocateError> {
        let pages = len.div_ceil(page_size());
        let found = self.chunks.iter().enumerate().find_map(|(number, chunk)| {
            let chunk = chunk.as_ref().filter(|chunk| chunk.kind == kind)?;
            Some((number, chunk.find(pages)?))
        });
        let (number, first) = match found {
            Some(found) => found,
            None => (self.grow(file, kind, pages * page_size())?, 0),
        };
        let Some(chunk) = &mut self.chunks[number] else { unreachable!("it was there just now") };
        let range = first..first + pages;
        let (idle, dirty) = chunk.pages.take(range.clone());
        self.idle -= idle;
        chunk.in_use += pages;
        if chunk.lowest == first {
            chunk.lowest = range.end;
        }
        // SAFETY: the page is one of the chunk's, so its offset is inside the mapping.
        let start = unsafe { chunk.mapping.as_non_null().byte_add(first * page_size()) };
        Ok((Run { chunk: number, first, pages, start }, dirty))
    }

    /// Maps a chunk of at least `len` bytes, in whole pages.
    fn grow(
        &mut self,
        file: &dyn DeviceFile,
        kind: Kind,
        len: usize,
    ) -> Result<usize, AllocateError> {
        let alike = self.chunks.iter().flatten().filter(|chunk| chunk.kind == kind);
        let mapped: usize = alike.map(|chunk| chunk.mapping.len()).sum();
        let most = match kind.huge_pages {
            HugePages::None => MOST,
            // No more huge pages than needed: they are scarce.
            _ => 0,
        };
        let wanted = mapped.max(LEAST_PAGES * page_size()).min(most).max(len);
        let mapping = map(file, &kind.request(wanted)).or_else(|error| {
            // There may be no memory for a larger chunk.
            if wanted > len { map(file, &kind.request(len)) } else { Err(error) }
        })?;
        let chunk = Some(Chunk::new(kind, mapping));
        let number = self.chunks.iter().position(Option::is_none).unwrap_or(self.chunks.len());
        match self.chunks.get_mut(number) {
            Some(place) => *place = chunk,
            None => self.chunks.push(chunk),
        }
        Ok(number)
    }

    /// Takes back pages that nothing uses any more. `written` are the bytes that may have been
    /// written since they were taken. Returns memory to be unmapped.
    pub(super) fn give_back(&mut self, run: Run, written: &[Range<usize>]) -> Option<Mapping> {
        let Some(chunk) = &mut self.chunks[run.chunk] else {
            unreachable!("a chunk stays as long as its runs")
        };
        let kind = chunk.kind;
        let is_full = (self.idle + run.pages) * page_size() > IDLE;
        let stays = kind.is_ordinary() && !is_full;
        chunk.pages.give_back(run.range(), stays);
        for bytes in written {
            let end = bytes.end.div_ceil(page_size()).min(run.pages);
            let start = bytes.start / page_size();
            if !bytes.is_empty() && start < end {
                chunk.pages.soil(run.first + start..run.first + end);
            }
        }
        chunk.in_use -= run.pages;
        chunk.lowest = chunk.lowest.min(run.first);
        if stays {
            self.idle += run.pages;
            return None;
        }
        if chunk.in_use == 0 && !self.is_spare(run.chunk) {
            return self.unmap(run.chunk);
        }
        // A huge page is returned as a whole, with its chunk.
        if kind.is_ordinary() {
            // SAFETY: the pages are ordinary pages of the mapping, and not in use. If the call
            // fails, they stay in the chunk, and those that were written are zeroed later.
            let _ = unsafe { discard(run.start, run.len()) };
        }
        None
    }

    /// Whether the chunk is of huge pages, and the only unused one of its kind.
    fn is_spare(&self, number: usize) -> bool {
        let unused = |chunk: &&Chunk| chunk.in_use == 0;
        let Some(chunk) = self.chunks[number].as_ref().filter(unused) else { return false };
        let alike = |other: &&Chunk| other.kind == chunk.kind && unused(other);
        !chunk.kind.is_ordinary()
            && chunk.mapping.len() <= IDLE
            && self.chunks.iter().flatten().filter(alike).count() == 1
    }

    fn unmap(&mut self, number: usize) -> Option<Mapping> {
        let chunk = self.chunks[number].take()?;
        self.idle -= chunk.pages.idle();
        Some(chunk.mapping)
    }

    /// Takes pages out of use forever, because the device may still use them.
    pub(super) fn keep(&mut self, run: Run) {
        if let Some(chunk) = &mut self.chunks[run.chunk] {
            chunk.kept = true;
        }
    }

    /// Takes all memory: first the chunks of which the device may still use some page, then the
    /// others.
    pub(super) fn take_all(&mut self) -> (Vec<Mapping>, Vec<Mapping>) {
        self.idle = 0;
        let (kept, others): (Vec<_>, Vec<_>) =
            self.chunks.drain(..).flatten().partition(|chunk| chunk.kept);
        let mappings = |chunks: Vec<Chunk>| chunks.into_iter().map(|chunk| chunk.mapping).collect();
        (mappings(kept), mappings(others))
    }
}

#[cfg(test)]
mod tests;
