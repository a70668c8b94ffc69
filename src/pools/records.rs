//! Doorbell records, and the words that stop posting and polling, in 64-byte slots of pages that
//! the kernel zeroes in a forked child (`MADV_WIPEONFORK`).

use super::buffer::{QueueAllocator, RecordMemory};
use super::map::map;
use crate::{
    error::{Error, ErrorKind},
    link::Link,
};
use mlx5_uapi::{AllocateError, DeviceFile, Errno, Mapping, MemoryRequest, page_size};
use std::{
    mem::ManuallyDrop,
    ptr::NonNull,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

/// Length of a slot: one cache line, so that no two queues share one.
const SLOT: usize = 64;
/// Offset of the word in its slot, after the doorbell record.
const WORD: usize = 8;
const SECOND_WORD: usize = 12;

/// A page of slots.
struct Page {
    mapping: Mapping,
    /// One bit per slot, set if it is free.
    free: Vec<u64>,
    /// Whether some slot is never reused, because the device may still read it.
    kept: bool,
}

impl Page {
    fn new(mapping: Mapping) -> Self {
        let slots = mapping.len() / SLOT;
        let free = (0..slots.div_ceil(64))
            .map(|word| match slots - word * 64 {
                rest @ ..64 => (1 << rest) - 1,
                _ => u64::MAX,
            })
            .collect();
        Self { mapping, free, kept: false }
    }

    /// Takes the lowest free slot.
    fn take(&mut self) -> Option<usize> {
        let word = self.free.iter().position(|word| *word != 0)?;
        let bit = self.free[word].trailing_zeros() as usize;
        self.free[word] &= !(1 << bit);
        Some(word * 64 + bit)
    }

    fn give_back(&mut self, slot: usize) {
        self.free[slot / 64] |= 1 << (slot % 64);
    }
}

/// A slot in use.
#[derive(Clone, Copy)]
struct Place {
    page: usize,
    slot: usize,
    start: NonNull<u8>,
}

/// Pages of slots.
struct Slots {
    pages: Mutex<Vec<Page>>,
    /// A word that is nonzero in the process that opened the device and zero in its children.
    alive: NonNull<AtomicU32>,
}

// SAFETY: `alive` is the address of a word in a page that the value owns; it is accessed only
// atomically.
unsafe impl Send for Slots {}
// SAFETY: `alive` is accessed only atomically, and a mutex protects the pages.
unsafe impl Sync for Slots {}

impl Slots {
    fn new(file: &dyn DeviceFile) -> Result<Self, AllocateError> {
        let pages = Mutex::new(Vec::new());
        let alive = take(&mut lock(&pages), file)?.start.cast();
        // SAFETY: `alive` is an aligned word of a slot that is never freed.
        let word: &AtomicU32 = unsafe { alive.as_ref() };
        word.store(1, Relaxed);
        Ok(Self { pages, alive })
    }

    /// Whether this is a forked child, in which the pages are zeroed.
    #[inline]
    fn wiped(&self) -> bool {
        // SAFETY: the slot is never freed, and the page is mapped as long as `self` lives.
        unsafe { self.alive.as_ref() }.load(Relaxed) == 0
    }

    /// Takes the pages that the device may still read. The others are freed on drop.
    fn take_kept(&mut self) -> Vec<Mapping> {
        let pages = self.pages.get_mut().unwrap_or_else(PoisonError::into_inner);
        pages.extract_if(.., |page| page.kept).map(|page| page.mapping).collect()
    }

    /// Drops the pages without unmapping them, in a child process, where the ranges may hold other
    /// mappings.
    fn forget_mappings(&mut self) {
        let pages = self.pages.get_mut().unwrap_or_else(PoisonError::into_inner);
        pages.drain(..).for_each(|page| page.mapping.leak());
    }
}

/// The slots of a context.
pub(crate) struct Records {
    slots: Slots,
    link: Arc<Link>,
}

impl Records {
    /// Allocates the first page.
    pub(crate) fn new(link: &Arc<Link>) -> Result<Arc<Self>, AllocateError> {
        let slots = Slots::new(&*link.file)?;
        Ok(Arc::new(Self { slots, link: Arc::clone(link) }))
    }

    /// Whether this is a forked child, in which the pages are zeroed.
    #[inline]
    pub(crate) fn wiped(&self) -> bool {
        self.slots.wiped()
    }

    fn pages(&self) -> MutexGuard<'_, Vec<Page>> {
        lock(&self.slots.pages)
    }
}

impl Drop for Records {
    fn drop(&mut self) {
        if self.link.forked() {
            self.slots.forget_mappings();
        } else {
            self.slots.take_kept().into_iter().for_each(|page| self.link.keep_page(page));
        }
    }
}

fn lock(pages: &Mutex<Vec<Page>>) -> MutexGuard<'_, Vec<Page>> {
    pages.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes a zeroed slot, from a new page if no page has a free one.
fn take(pages: &mut Vec<Page>, file: &dyn DeviceFile) -> Result<Place, AllocateError> {
    let found = pages.iter_mut().enumerate().find_map(|(i, page)| Some((i, page.take()?)));
    let (page, slot) = match found {
        Some(found) => found,
        None => {
            let mut page = Page::new(map(file, &MemoryRequest::new(page_size()))?);
            let slot = page.take().ok_or(Errno::ENOMEM)?;
            pages.push(page);
            (pages.len() - 1, slot)
        }
    };
    // SAFETY: the slot lies inside its page.
    let start = unsafe { pages[page].mapping.as_non_null().byte_add(slot * SLOT) };
    for word in 0..SLOT / 4 {
        // SAFETY: the word lies inside the slot, which no other queue uses. The stores are atomic,
        // so that a late reader of the slot's previous owner is harmless.
        unsafe { start.cast::<AtomicU32>().add(word).as_ref() }.store(0, Relaxed);
    }
    Ok(Place { page, slot, start })
}

/// A doorbell record and the words beside it. Dropping it frees the slot for the next queue.
pub(crate) struct RecordSlot {
    records: Arc<Records>,
    place: Place,
    /// The doorbell record, if it is outside the slot.
    provided: Option<Provided>,
}

/// A doorbell record of an allocator.
struct Provided {
    allocator: Arc<dyn QueueAllocator>,
    record: NonNull<u8>,
}

impl Provided {
    /// Requests a record, and zeroes it. `None` if the driver must use its own.
    fn new(allocator: &Arc<dyn QueueAllocator>) -> Result<Option<Self>, Error> {
        let record = match allocator.allocate_record() {
            RecordMemory::Driver => return Ok(None),
            RecordMemory::At(record) => record,
            RecordMemory::Unavailable => {
                let cause = "the queue allocator has no memory for a doorbell record";
                return Err(Error::new(OPERATION, ErrorKind::OutOfMemory, cause.to_owned()));
            }
        };
        let provided = Self { allocator: Arc::clone(allocator), record };
        if !record.cast::<u64>().is_aligned() {
            provided.free();
            let cause = format!("the queue allocator returned {record:p}, not aligned to 8 bytes");
            return Err(Error::invalid(OPERATION, cause));
        }
        // SAFETY: an implementation of [`QueueAllocator`] promises that the eight bytes are
        // writable and that nothing else uses them; their alignment was checked.
        unsafe { record.cast::<u64>().write(0) };
        Ok(Some(provided))
    }

    fn free(self) {
        // SAFETY: `allocate_record` of this allocator returned it, and the call consumes the value.
        unsafe { self.allocator.free_record(self.record) };
    }
}

const OPERATION: &str = "allocate a doorbell record";

// SAFETY: the slot's address lies in a page of `records`, which is Send and Sync; the record's
// address is only passed to the allocator, which is both as well. Neither is dereferenced here;
// code that does is responsible for the access.
unsafe impl Send for RecordSlot {}
// SAFETY: neither the slot nor the record is dereferenced here; code that does is responsible for
// the access.
unsafe impl Sync for RecordSlot {}

impl RecordSlot {
    /// Takes a zeroed slot, and a record from the allocator if it provides one.
    pub(crate) fn new(
        records: &Arc<Records>,
        allocator: Option<&Arc<dyn QueueAllocator>>,
    ) -> Result<Self, Error> {
        let link = &records.link;
        let place = take(&mut records.pages(), &*link.file)
            .map_err(|error| Error::allocate(OPERATION, page_size(), error))?;
        let mut slot = Self { records: Arc::clone(records), place, provided: None };
        if let Some(allocator) = allocator {
            slot.provided = Provided::new(allocator)?;
        }
        Ok(slot)
    }

    /// Returns the doorbell record, eight bytes.
    pub(crate) fn record(&self) -> NonNull<u8> {
        self.provided.as_ref().map_or(self.place.start, |provided| provided.record)
    }

    /// Returns the first word, which is zero in a child process.
    pub(crate) fn word(&self) -> NonNull<u32> {
        // SAFETY: the offset is inside the slot.
        unsafe { self.place.start.byte_add(WORD) }.cast()
    }

    /// Returns the second word, which is zero in a child process.
    pub(crate) fn second_word(&self) -> NonNull<u32> {
        // SAFETY: the offset is inside the slot.
        unsafe { self.place.start.byte_add(SECOND_WORD) }.cast()
    }

    /// Returns the address of the doorbell record, for the kernel.
    pub(crate) fn addr(&self) -> u64 {
        self.record().as_ptr().expose_provenance() as u64
    }

    /// Takes the slot out of use forever: the device may still read it. A record of an allocator is
    /// never returned.
    pub(crate) fn keep(self) {
        let this = ManuallyDrop::new(self);
        // SAFETY: `this.records` is not used again and `this` is never dropped, so this moves the
        // `Arc`.
        let records = unsafe { std::ptr::read(&this.records) };
        if !records.link.forked() {
            records.pages()[this.place.page].kept = true;
        }
    }
}

impl Drop for RecordSlot {
    fn drop(&mut self) {
        // After a fork, a thread that does not exist in the child may hold the lock.
        if !self.records.link.forked() {
            self.records.pages()[self.place.page].give_back(self.place.slot);
            // Freed without holding the lock.
            if let Some(provided) = self.provided.take() {
                provided.free();
            }
        }
        // The record and the allocator belong to the parent.
        let _parents = ManuallyDrop::new(self.provided.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Memory;

    #[test]
    fn slots_do_not_overlap_and_come_zeroed() {
        let file = Memory::default();
        let mut pages = Vec::new();
        let slots = page_size() / SLOT;
        let taken: Vec<Place> = (0..slots + 1).map(|_| take(&mut pages, &file).unwrap()).collect();
        assert_eq!(pages.len(), 2, "one slot more than a page has");
        let mut starts: Vec<usize> = taken.iter().map(|place| place.start.addr().get()).collect();
        starts.sort_unstable();
        starts.dedup();
        assert_eq!(starts.len(), slots + 1);
        assert!(starts.iter().all(|start| start % SLOT == 0));

        let used = taken[3];
        // SAFETY: the slot lies in a page that `pages` keeps mapped.
        unsafe { used.start.write_bytes(0xff, SLOT) };
        pages[used.page].give_back(used.slot);
        let again = take(&mut pages, &file).unwrap();
        assert_eq!(again.start, used.start, "the lowest free slot is used first");
        // SAFETY: the slot lies in a page that `pages` keeps mapped.
        let bytes = unsafe { again.start.cast::<[u8; SLOT]>().read() };
        assert_eq!(bytes, [0; SLOT]);
    }

    /// Provides a record that is not zeroed, `skip` bytes after an aligned address, and counts
    /// returned ones.
    struct Recording {
        words: Box<[u64; 2]>,
        skip: usize,
        back: AtomicU32,
    }

    // SAFETY: the record lies in the value's own words, which nothing else uses.
    unsafe impl QueueAllocator for Recording {
        fn allocate(&self, _: usize, _: usize) -> Option<NonNull<u8>> {
            None
        }

        unsafe fn free(&self, _: NonNull<u8>, _: usize) {}

        fn allocate_record(&self) -> RecordMemory {
            let start = NonNull::from(&*self.words).cast::<u8>();
            // SAFETY: the offset is inside the words.
            RecordMemory::At(unsafe { start.byte_add(self.skip) })
        }

        unsafe fn free_record(&self, _: NonNull<u8>) {
            self.back.fetch_add(1, Relaxed);
        }
    }

    #[test]
    fn a_provided_record_is_zeroed_and_given_back_once_and_a_misaligned_one_is_refused() {
        let make = |skip| {
            Arc::new(Recording { words: Box::new([u64::MAX; 2]), skip, back: AtomicU32::new(0) })
        };
        let good = make(0);
        let provided = Provided::new(&(Arc::clone(&good) as Arc<dyn QueueAllocator>));
        let provided = provided.ok().flatten().expect("a record");
        // SAFETY: the record is the first of the words, which live as long as `good`.
        assert_eq!(unsafe { provided.record.cast::<u64>().read() }, 0);
        assert_eq!(good.back.load(Relaxed), 0);
        provided.free();
        assert_eq!(good.back.load(Relaxed), 1);
        let bad = make(4);
        let refused = Provided::new(&(Arc::clone(&bad) as Arc<dyn QueueAllocator>)).err();
        assert!(refused.is_some_and(|error| error.to_string().contains("not aligned")));
        assert_eq!(bad.back.load(Relaxed), 1);
    }

    #[test]
    fn fork_word_has_a_page_of_its_own() {
        let file = Memory::default();
        let records = Slots::new(&file).unwrap();
        assert!(!records.wiped());
        let other = take(&mut lock(&records.pages), &file).unwrap();
        assert_ne!(other.start, records.alive.cast());
        // SAFETY: an aligned word of a mapped page. The store has the effect of a fork on the
        // child.
        unsafe { records.alive.as_ref() }.store(0, Relaxed);
        assert!(records.wiped());
    }

    #[test]
    fn a_failed_allocation_takes_nothing() {
        let file = Memory::default();
        file.refuse(true);
        let mut pages = Vec::new();
        assert_eq!(take(&mut pages, &file).err().map(Errno::from), Some(Errno::ENOMEM));
        file.refuse(false);
        assert_eq!(take(&mut pages, &file).unwrap().slot, 0);
    }

    #[test]
    fn pages_go_with_the_pool_but_for_those_that_the_device_may_still_read() {
        let file = Memory::default();
        for kept in [false, true] {
            let mut records = Slots::new(&file).unwrap();
            lock(&records.pages)[0].kept = kept;
            assert_eq!(file.live(), 1);
            let outlive = records.take_kept();
            drop(records);
            assert_eq!(file.live(), usize::from(kept));
            drop(outlive);
            assert_eq!(file.live(), 0);
        }
    }
}
