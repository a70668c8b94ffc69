//! Pages that trap the first store, so that a test can examine memory as a device would see it at
//! that moment.

use nix::libc::{c_int, c_void, siginfo_t};
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use std::num::NonZeroUsize;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

pub(crate) const PAGE: usize = 4096;

/// A page with a mapping of its own.
pub(crate) struct Page(NonNull<c_void>);

impl Page {
    pub(crate) fn new() -> Self {
        let length = NonZeroUsize::new(PAGE).unwrap();
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: the kernel chooses the address of the new mapping.
        Self(unsafe { mmap_anonymous(None, length, access, MapFlags::MAP_PRIVATE) }.unwrap())
    }

    pub(crate) fn at(&self, offset: usize) -> NonNull<u8> {
        assert!(offset < PAGE);
        // SAFETY: `offset` is inside the page, checked above.
        unsafe { self.0.cast::<u8>().byte_add(offset) }
    }

    pub(crate) fn read(&self) -> [u8; PAGE] {
        // SAFETY: the page is always readable, and nothing writes to it meanwhile.
        unsafe { self.0.cast::<[u8; PAGE]>().read_volatile() }
    }

    fn protect(&self, access: ProtFlags) {
        // SAFETY: this value owns the page.
        unsafe { mprotect(self.0, PAGE, access) }.unwrap();
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: this value owns the page, and is gone after this.
        unsafe { munmap(self.0, PAGE) }.unwrap();
    }
}

/// Called at the first store to a page, with the page's number, before the store is done.
type Look<'a> = dyn FnMut(usize) + 'a;

struct Watch<'a> {
    pages: &'a [&'a Page],
    look: &'a mut Look<'a>,
}

static WATCH: AtomicPtr<Watch<'static>> = AtomicPtr::new(null_mut());
static TURN: Mutex<()> = Mutex::new(());

/// Waits for the turn of this thread: a signal handler belongs to the whole process, so there is
/// only one watch at a time.
pub(crate) fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `act`. Calls `look` when `act` is about to store to one of `pages` for the first time.
pub(crate) fn watch<'a>(
    _turn: &MutexGuard<'static, ()>,
    pages: &'a [&'a Page],
    look: &'a mut Look<'a>,
    act: impl FnOnce(),
) {
    let flags = SaFlags::SA_SIGINFO;
    let action = SigAction::new(SigHandler::SigAction(on_fault), flags, SigSet::empty());
    // SAFETY: the handler runs only at a store that the test provokes, outside of locks and calls,
    // so it may do what any code may do there.
    let before = unsafe { sigaction(Signal::SIGSEGV, &action) }.unwrap();
    let mut watch = Watch { pages, look };
    WATCH.store((&raw mut watch).cast(), Ordering::SeqCst);
    pages.iter().for_each(|page| page.protect(ProtFlags::PROT_READ));
    act();
    pages.iter().for_each(|page| page.protect(ProtFlags::PROT_READ | ProtFlags::PROT_WRITE));
    WATCH.store(null_mut(), Ordering::SeqCst);
    // SAFETY: this restores the former action.
    unsafe { sigaction(Signal::SIGSEGV, &before) }.unwrap();
}

/// Handles the fault. It is a store in this thread, at a place that the test chose. The code that
/// stores holds no lock and is in no call, so `look` may do what any code may do there: it reads
/// memory and calls into atomics.
extern "C" fn on_fault(_: c_int, info: *mut siginfo_t, _: *mut c_void) {
    let watch = WATCH.load(Ordering::SeqCst);
    // SAFETY: the kernel passes a valid pointer.
    let address = unsafe { (*info).si_addr() } as usize;
    // SAFETY: the pointer is null, or that of the watch on this thread's stack, which lives for as
    // long as the watched action runs.
    if let Some(watch) = unsafe { watch.as_mut() } {
        let hit = |page: &&Page| address.wrapping_sub(page.0.as_ptr() as usize) < PAGE;
        if let Some(number) = watch.pages.iter().position(hit) {
            (watch.look)(number);
            watch.pages[number].protect(ProtFlags::PROT_READ | ProtFlags::PROT_WRITE);
            return;
        }
    }
    std::process::abort();
}
