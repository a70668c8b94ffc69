//! Pages that trap the first store, to examine memory as a device would at that moment.

use nix::libc::{c_int, c_void, siginfo_t};
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use std::num::NonZeroUsize;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

pub(crate) const PAGE: usize = 4096;

/// A page of its own mapping.
pub(crate) struct Page(NonNull<c_void>);

impl Page {
    pub(crate) fn new() -> Self {
        let length = NonZeroUsize::new(PAGE).unwrap();
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping.
        Self(unsafe { mmap_anonymous(None, length, access, MapFlags::MAP_PRIVATE) }.unwrap())
    }

    pub(crate) fn at(&self, offset: usize) -> NonNull<u8> {
        assert!(offset < PAGE);
        // SAFETY: inside the page.
        unsafe { self.0.cast::<u8>().byte_add(offset) }
    }

    pub(crate) fn read(&self) -> [u8; PAGE] {
        // SAFETY: a readable page; nothing writes to it meanwhile.
        unsafe { self.0.cast::<[u8; PAGE]>().read_volatile() }
    }

    fn protect(&self, access: ProtFlags) {
        // SAFETY: the page is this value's.
        unsafe { mprotect(self.0, PAGE, access) }.unwrap();
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: the page is this value's.
        unsafe { munmap(self.0, PAGE) }.unwrap();
    }
}

/// What happens at the first store to a page: the number of the page, before the store is done.
type Look<'a> = dyn FnMut(usize) + 'a;

struct Watch<'a> {
    pages: &'a [&'a Page],
    look: &'a mut Look<'a>,
}

static WATCH: AtomicPtr<Watch<'static>> = AtomicPtr::new(null_mut());
static TURN: Mutex<()> = Mutex::new(());

/// Only one watch at a time: signals are the whole process's.
pub(crate) fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `act`, and calls `look` when it is about to store to one of `pages` for the first time.
pub(crate) fn watch<'a>(
    _turn: &MutexGuard<'static, ()>,
    pages: &'a [&'a Page],
    look: &'a mut Look<'a>,
    act: impl FnOnce(),
) {
    let flags = SaFlags::SA_SIGINFO;
    let action = SigAction::new(SigHandler::SigAction(on_fault), flags, SigSet::empty());
    // SAFETY: the handler does nothing that a handler may not do, as said there.
    let before = unsafe { sigaction(Signal::SIGSEGV, &action) }.unwrap();
    let mut watch = Watch { pages, look };
    WATCH.store((&raw mut watch).cast(), Ordering::SeqCst);
    pages.iter().for_each(|page| page.protect(ProtFlags::PROT_READ));
    act();
    pages.iter().for_each(|page| page.protect(ProtFlags::PROT_READ | ProtFlags::PROT_WRITE));
    WATCH.store(null_mut(), Ordering::SeqCst);
    // SAFETY: as it was before.
    unsafe { sigaction(Signal::SIGSEGV, &before) }.unwrap();
}

/// The fault is a store in this thread, at a place that the test chose; the code that stores holds
/// no lock and is in no call, so that what `look` does (reading memory, calling into atomics) is
/// what any code may do there.
extern "C" fn on_fault(_: c_int, info: *mut siginfo_t, _: *mut c_void) {
    let watch = WATCH.load(Ordering::SeqCst);
    // SAFETY: the kernel's own.
    let address = unsafe { (*info).si_addr() } as usize;
    // SAFETY: set for as long as the watched action runs, in this thread.
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
