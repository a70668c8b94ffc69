//! Which descriptors are the simulated machine's.

use std::collections::HashMap;
use std::ffi::{CString, c_int, c_uint};
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use mlx5_uapi::{DeviceFile, Errno};

use crate::door::{Door, Inside};
use crate::events::Events;
use crate::exports::next;
use crate::machine::Opened;
use crate::paths::Description;
use crate::{inherited, say};

/// An open device.
pub(crate) struct Device {
    /// The name of its node.
    pub(crate) name: String,
    pub(crate) file: Arc<dyn DeviceFile>,
    /// By which a child process can inherit it.
    pub(crate) number: Option<u64>,
}

impl Device {
    pub(crate) fn new(name: String, (file, number): Opened) -> Self {
        Self { name, file, number }
    }
}

/// What a descriptor stands for. Copies of a descriptor share it.
#[derive(Clone)]
pub(crate) enum Entry {
    Device(Arc<Device>),
    Events(Arc<Events>),
}

/// Numbers below this have a bit that says whether they might be the machine's; larger ones are
/// always looked for.
const MARKED: usize = 1 << 16;

/// Most calls of a program are about other files, and shall pay for one load only.
static MARKS: [AtomicU64; MARKED / 64] = [const { AtomicU64::new(0) }; MARKED / 64];

fn mark(fd: RawFd) -> Option<(&'static AtomicU64, u64)> {
    let fd = usize::try_from(fd).ok().filter(|fd| *fd < MARKED)?;
    Some((&MARKS[fd / 64], 1 << (fd % 64)))
}

fn may_be_ours(fd: RawFd) -> bool {
    mark(fd).is_none_or(|(word, bit)| word.load(Ordering::Acquire) & bit != 0)
}

/// Forgets all numbers, in a child process.
pub(crate) fn forget_numbers() {
    for word in &MARKS {
        word.store(0, Ordering::Release);
    }
}

/// Says that a descriptor might be the machine's.
pub(crate) fn expect(fd: RawFd) {
    if let Some((word, bit)) = mark(fd) {
        word.fetch_or(bit, Ordering::AcqRel);
    }
}

/// Whether a descriptor might still be the machine's.
pub(crate) fn is_expected(fd: RawFd) -> bool {
    may_be_ours(fd)
}

fn unmark(fd: RawFd) {
    if let Some((word, bit)) = mark(fd) {
        word.fetch_and(!bit, Ordering::AcqRel);
    }
}

/// The descriptors of a machine.
#[derive(Default)]
pub(crate) struct Descriptors {
    entries: RwLock<HashMap<RawFd, Entry>>,
}

impl Descriptors {
    /// What a descriptor stands for.
    pub(crate) fn get(&self, fd: RawFd) -> Option<Entry> {
        self.entries.read().unwrap_or_else(PoisonError::into_inner).get(&fd).cloned()
    }

    /// Adds a descriptor. What it stood for before goes, for it was closed where nobody saw it.
    pub(crate) fn add(&self, fd: RawFd, entry: Entry) {
        let before = self.entries.write().unwrap_or_else(PoisonError::into_inner).insert(fd, entry);
        expect(fd);
        drop(before);
    }

    /// Takes a descriptor out; what it stood for ends when the answer is dropped.
    fn take(&self, fd: RawFd) -> Option<Entry> {
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        let entry = entries.remove(&fd);
        unmark(fd);
        entry
    }

    /// All of them, unless somebody is changing them.
    pub(crate) fn try_all(&self) -> Option<Vec<(RawFd, Entry)>> {
        let entries = self.entries.try_read().ok()?;
        Some(entries.iter().map(|(fd, entry)| (*fd, entry.clone())).collect())
    }

    fn numbers(&self) -> Vec<RawFd> {
        self.entries.read().unwrap_or_else(PoisonError::into_inner).keys().copied().collect()
    }
}

/// What a descriptor of the program stands for, if it is the machine's.
pub(crate) fn find(fd: RawFd) -> Option<(&'static Door, Entry)> {
    if !may_be_ours(fd) {
        return None;
    }
    let door = if inherited::waits() { Door::open() } else { Door::if_open() }?;
    Some((door, door.descriptors.get(fd)?))
}

/// Makes the answer of a libc function that failed.
pub(crate) fn failed(errno: Errno) -> c_int {
    errno.set();
    -1
}

/// The setting of UCX for what takes the place of mmap(2), and the value with which that calls libc's
/// own function. What maps could be refused then; what ends a mapping is seen when it is too late.
const HOOKS: &str = "UCX_MEM_MMAP_HOOK_MODE";
const PAST_THE_LIBRARY: &str = "reloc";

/// Opens the device if libc has opened its node.
///
/// # Safety
/// The descriptor is the caller's.
pub(crate) unsafe fn opened(fd: c_int) -> c_int {
    let Some(door) = Door::if_open().filter(|_| fd >= 0) else { return fd };
    let _inside = Inside::enter();
    let mut file = std::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: the descriptor is open, and there is room for the answer.
    let file = unsafe {
        if next::fstat(fd, file.as_mut_ptr()) != 0 {
            return fd;
        }
        file.assume_init()
    };
    let Some(node) = file.identity().and_then(|file| door.tree.node_of(file)) else { return fd };
    if std::env::var_os(HOOKS).is_some_and(|mode| mode == PAST_THE_LIBRARY) {
        say!(
            "{}: cannot be opened: with {HOOKS}={PAST_THE_LIBRARY} UCX maps memory past the \
             simulator; set {HOOKS}=bistro or none",
            node.name
        );
        // SAFETY: nobody has seen the descriptor.
        unsafe { next::close(fd) };
        return failed(Errno::EPERM);
    }
    match door.machine.open(&node.name, node.numbers) {
        Ok(opened) => {
            keep_unmapped(fd, &door.tree.place_of(node));
            let device = Device::new(node.name.clone(), opened);
            door.descriptors.add(fd, Entry::Device(Arc::new(device)));
            fd
        }
        Err(errno) => {
            say!("{}: cannot be opened: {errno}", node.name);
            // SAFETY: nobody has seen the descriptor.
            unsafe { next::close(fd) };
            failed(errno)
        }
    }
}

/// Opens the node's file anew in the place of a descriptor, for writing only. A mapping that the
/// kernel is asked for past this library then fails, where the empty file's would be no memory.
fn keep_unmapped(fd: c_int, place: &Path) {
    let Ok(place) = CString::new(place.as_os_str().as_bytes()) else { return };
    // SAFETY: the path is a string of C; the descriptor is the caller's, and the new one nobody has
    // seen. What fails leaves the descriptor as it is.
    unsafe {
        let flags = next::fcntl(fd, libc::F_GETFD, ptr::null_mut());
        let other = next::open(place.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC, 0);
        if other < 0 {
            return;
        }
        let cloexec = if flags & libc::FD_CLOEXEC == 0 { 0 } else { libc::O_CLOEXEC };
        next::dup3(other, fd, cloexec);
        next::close(other);
    }
}

/// Closes a descriptor of the machine.
pub(crate) fn close(fd: c_int) -> Option<c_int> {
    if inherited::waits() && may_be_ours(fd) && fd >= 0 {
        // Nothing is known of it yet, and so it need not be.
        unmark(fd);
        return None;
    }
    let (door, _) = find(fd)?;
    let _inside = Inside::enter();
    // Before the number can be given out anew.
    let entry = door.descriptors.take(fd);
    // SAFETY: the program closes it.
    let answer = unsafe { next::close(fd) };
    drop(entry);
    Some(answer)
}

/// Hears that a descriptor was copied, to `new` unless that is negative.
pub(crate) fn copied(fd: c_int, new: c_int) -> c_int {
    if new < 0 || new == fd {
        return new;
    }
    // The copy may have taken the place of a descriptor of the machine.
    let before = find(new).and_then(|(door, _)| {
        let _inside = Inside::enter();
        door.descriptors.take(new)
    });
    if let Some((door, entry)) = find(fd) {
        let _inside = Inside::enter();
        door.descriptors.add(new, entry);
    }
    if before.is_some() {
        let _inside = Inside::enter();
        drop(before);
    }
    new
}

/// Hears of an fcntl.
pub(crate) fn controlled(fd: c_int, command: c_int, answer: c_int) -> c_int {
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => copied(fd, answer),
        // As the program has opened it.
        libc::F_GETFL if answer >= 0 && matches!(find(fd), Some((_, Entry::Device(_)))) => {
            answer & !libc::O_ACCMODE | libc::O_RDWR
        }
        _ => answer,
    }
}

/// Hears that a range was closed.
pub(crate) fn closed_range(first: c_uint, last: c_uint, flags: c_int, answer: c_int) -> c_int {
    let closed = answer == 0 && flags & libc::CLOSE_RANGE_CLOEXEC as c_int == 0;
    if let Some(door) = Door::if_open().filter(|_| closed) {
        let _inside = Inside::enter();
        let gone = |fd: &RawFd| u32::try_from(*fd).is_ok_and(|fd| (first..=last).contains(&fd));
        for fd in door.descriptors.numbers().into_iter().filter(gone) {
            drop(door.descriptors.take(fd));
        }
    }
    answer
}
