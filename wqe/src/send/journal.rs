//! The journal: what outstanding requests change in the driver's view of memory keys.
//!
//! A request that configures a key changes the driver's view of it: its length and its signature.
//! The change is applied when the request is built. It is undone if the batch is aborted or
//! refused, or if the request is cancelled. It is final once a completion has retired the request.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use core::fmt;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;

/// The owner of a view that requests change. The changes share in it.
pub trait ChangeObserver: Send + Sync {
    /// The request of `change` will never be executed.
    fn undo(&self, change: u64);
    /// The request was executed.
    fn settle(&self, change: u64);
    /// It will never be known whether the request was executed: its queue was reset or destroyed,
    /// or the request failed.
    fn mark_unknown(&self, change: u64);
}

/// As [`ChangeObserver`], but the observer keeps itself alive until its changes have ended: a
/// reference count would take two atomic operations for each change.
///
/// The functions get its address, because it may be gone when they return.
pub trait KeptObserver: Send + Sync {
    /// See [`ChangeObserver::undo`].
    ///
    /// # Safety
    /// `this` has this change, which has not ended. It ends here.
    unsafe fn undo(this: NonNull<Self>, change: u64);

    /// See [`ChangeObserver::settle`]. The numbers of several changes, as they were posted.
    ///
    /// # Safety
    /// `this` has these changes, which have not ended. They end here.
    unsafe fn settle(this: NonNull<Self>, changes: &[u64]);

    /// See [`ChangeObserver::mark_unknown`].
    ///
    /// # Safety
    /// As for [`KeptObserver::undo`].
    unsafe fn mark_unknown(this: NonNull<Self>, change: u64);
}

/// An observer that a change shares in: it has one of its counts.
#[repr(transparent)]
struct Shared<O>(O);

impl<O: ChangeObserver> Shared<O> {
    /// The count of a change.
    ///
    /// # Safety
    /// `this` is what [`Arc::into_raw`] returned for a change, and this is called once for it.
    unsafe fn count(this: NonNull<Self>) -> Arc<O> {
        // SAFETY: by the contract.
        unsafe { Arc::from_raw(this.cast::<O>().as_ptr()) }
    }
}

impl<O: ChangeObserver> KeptObserver for Shared<O> {
    unsafe fn undo(this: NonNull<Self>, change: u64) {
        // SAFETY: a change ends once, by the contract.
        unsafe { Self::count(this) }.undo(change);
    }

    unsafe fn settle(this: NonNull<Self>, changes: &[u64]) {
        for change in changes {
            // SAFETY: as above.
            unsafe { Self::count(this) }.settle(*change);
        }
    }

    unsafe fn mark_unknown(this: NonNull<Self>, change: u64) {
        // SAFETY: as above.
        unsafe { Self::count(this) }.mark_unknown(change);
    }
}

/// The functions of a [`KeptObserver`] whose type is not known.
struct Ends {
    undo: unsafe fn(NonNull<()>, u64),
    settle: unsafe fn(NonNull<()>, &[u64]),
    mark_unknown: unsafe fn(NonNull<()>, u64),
}

struct Of<O>(PhantomData<O>);

impl<O: KeptObserver> Of<O> {
    const ENDS: &'static Ends =
        &Ends { undo: Self::undo, settle: Self::settle, mark_unknown: Self::mark_unknown };

    /// # Safety
    /// As for [`KeptObserver::undo`], with the address of an `O`.
    unsafe fn undo(this: NonNull<()>, change: u64) {
        // SAFETY: by the contract.
        unsafe { O::undo(this.cast(), change) };
    }

    /// # Safety
    /// As for [`KeptObserver::settle`], with the address of an `O`.
    unsafe fn settle(this: NonNull<()>, changes: &[u64]) {
        // SAFETY: by the contract.
        unsafe { O::settle(this.cast(), changes) };
    }

    /// # Safety
    /// As for [`KeptObserver::mark_unknown`], with the address of an `O`.
    unsafe fn mark_unknown(this: NonNull<()>, change: u64) {
        // SAFETY: by the contract.
        unsafe { O::mark_unknown(this.cast(), change) };
    }
}

/// A change that a request makes. Dropping it undoes it.
#[must_use = "dropping a change undoes it"]
pub struct Change {
    observer: NonNull<()>,
    ends: &'static Ends,
    id: u64,
}

// SAFETY: it is an observer's address, its functions and a number; an observer is `Send` and
// `Sync`.
unsafe impl Send for Change {}
// SAFETY: as for `Send`.
unsafe impl Sync for Change {}

impl fmt::Debug for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Change").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Change {
    /// Creates the change that `observer` knows as `id`.
    pub fn new<O: ChangeObserver + 'static>(observer: Arc<O>, id: u64) -> Self {
        // SAFETY: a count's address is not null.
        let observer = unsafe { NonNull::new_unchecked(Arc::into_raw(observer).cast_mut()) };
        Self { observer: observer.cast(), ends: Of::<Shared<O>>::ENDS, id }
    }

    /// Creates the change that `observer` knows as `id`.
    ///
    /// # Safety
    /// The change has not ended, and ends by this value alone. The observer lives until then.
    #[inline]
    pub unsafe fn of_kept<O: KeptObserver + 'static>(observer: NonNull<O>, id: u64) -> Self {
        Self { observer: observer.cast(), ends: Of::<O>::ENDS, id }
    }

    /// Whether the other change is one of the same observer.
    #[inline]
    fn is_beside(&self, other: &Self) -> bool {
        self.observer == other.observer && core::ptr::eq(self.ends, other.ends)
    }

    #[cold]
    fn mark_unknown(self) {
        let this = ManuallyDrop::new(self);
        // SAFETY: the change ends here, as the value is not dropped.
        unsafe { (this.ends.mark_unknown)(this.observer, this.id) };
    }
}

impl Drop for Change {
    fn drop(&mut self) {
        // SAFETY: the maker of the value promised that the change has not ended, and the observer
        // lives.
        unsafe { (self.ends.undo)(self.observer, self.id) };
    }
}

/// Whether a sequence number comes before another one.
#[inline]
const fn is_before(sequence: u32, other: u32) -> bool {
    (sequence.wrapping_sub(other) as i32) < 0
}

/// The changes of a queue's requests that are not known to be executed, in posting order, each with
/// the sequence number of its request. A change that was undone is gone, and its place is empty.
#[derive(Default)]
pub(crate) struct Journal(VecDeque<(u32, Option<Change>)>);

impl Journal {
    /// Adds the change of request `sequence`, the latest one.
    #[inline]
    pub(crate) fn push(&mut self, sequence: u32, change: Change) {
        self.0.push_back((sequence, Some(change)));
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the first change is of a request before `retired`.
    #[inline]
    pub(super) fn starts_before(&self, retired: u32) -> bool {
        self.0.front().is_some_and(|(sequence, _)| is_before(*sequence, retired))
    }

    /// Settles the changes of all requests before `retired`. If `failed`, some of them completed
    /// with an error, so their changes are marked unknown.
    pub(super) fn settle(&mut self, retired: u32, failed: bool) {
        while self.starts_before(retired)
            && let Some((_, change)) = self.0.pop_front()
        {
            match change {
                None => {}
                Some(change) if failed => change.mark_unknown(),
                Some(first) => self.settle_run(first, retired),
            }
        }
    }

    /// Settles `first`, and those after it that are of the same observer.
    fn settle_run(&mut self, first: Change, retired: u32) {
        const MOST: usize = 16;
        let mut ids = [first.id; MOST];
        let mut count = 1;
        let first = ManuallyDrop::new(first);
        while count < MOST
            && let Some((sequence, Some(change))) = self.0.front()
            && is_before(*sequence, retired)
            && change.is_beside(&first)
            && let Some((_, Some(change))) = self.0.pop_front()
        {
            ids[count] = ManuallyDrop::new(change).id;
            count += 1;
        }
        // SAFETY: these changes of the observer end here, as their values are not dropped.
        unsafe { (first.ends.settle)(first.observer, &ids[..count]) };
    }

    /// Whether the last change is of request `sequence` or a later one.
    #[inline]
    pub(super) fn reaches(&self, sequence: u32) -> bool {
        self.0.back().is_some_and(|(at, _)| !is_before(*at, sequence))
    }

    /// Undoes the changes of all requests from `sequence` on, which were never posted.
    pub(super) fn undo_from(&mut self, sequence: u32) {
        // Latest first, so that each change finds the state that it made.
        while self.reaches(sequence) {
            self.0.pop_back();
        }
    }

    /// Undoes the changes of the requests for which `cancelled` returns true.
    pub(crate) fn undo_where(&mut self, cancelled: impl Fn(u32) -> bool) {
        for (sequence, change) in self.0.iter_mut().rev() {
            if change.is_some() && cancelled(*sequence) {
                *change = None;
            }
        }
    }

    /// Marks all remaining changes unknown.
    pub(super) fn mark_unknown(&mut self) {
        while let Some((_, change)) = self.0.pop_front() {
            change.into_iter().for_each(Change::mark_unknown);
        }
    }

    /// Forgets all changes, which never end.
    pub(super) fn forget(&mut self) {
        while let Some((_, change)) = self.0.pop_front() {
            core::mem::forget(change);
        }
    }
}
