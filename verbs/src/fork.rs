//! Forked children, and memory that the device uses.
//!
//! A kernel before 5.12 shares such pages with a child, and when the *parent* writes to a page, it
//! gets a copy: then the device and the parent use different pages. A program that forks announces
//! that in advance (`ibv_fork_init`, `RDMAV_FORK_SAFE`), and from then on children do not get
//! registered pages. Newer kernels copy the pages for the child at once, and nothing needs to be
//! done.

use crate::abi::*;
use crate::environment::says;
use crate::netlink;
use crate::refusal::{Refusal, Verb, set_errno, status};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{env, fs, io};

/// The handling of forks.
enum Policy {
    /// None so far.
    None,
    /// None, and memory was registered, so it is too late to change that.
    TooLate,
    /// Registered pages are kept from children.
    Kept(Pages),
}

static POLICY: Mutex<Policy> = Mutex::new(Policy::None);

fn policy() -> MutexGuard<'static, Policy> {
    POLICY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Number of registrations of each page.
struct Pages {
    /// The count from each address to the next. Neighbours may be equal.
    counts: BTreeMap<usize, u32>,
    /// The size of a page of ordinary memory.
    size: usize,
    /// Whether the memory of the program may have larger pages.
    large: bool,
}

impl Pages {
    fn new() -> Self {
        // SAFETY: the call only returns a number.
        let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        let size = usize::try_from(size).unwrap_or(4096);
        Self { counts: BTreeMap::new(), size, large: env::var_os("RDMAV_HUGEPAGES_SAFE").is_some() }
    }

    /// The pages that overlap the range, and their size.
    fn around(&self, address: usize, length: usize) -> (Range<usize>, usize) {
        let size = if self.large { page_size(address).unwrap_or(self.size) } else { self.size };
        let end = address.saturating_add(length);
        (address & !(size - 1)..end.checked_next_multiple_of(size).unwrap_or(end), size)
    }

    /// Number of registrations of the page at an address.
    fn count(&self, at: usize) -> u32 {
        self.counts.range(..=at).next_back().map_or(0, |(_, count)| *count)
    }

    /// Changes the counts of the pages of a range. Returns the parts that no other registration
    /// covered or covers.
    fn change(&mut self, range: &Range<usize>, by: impl Fn(u32) -> u32) -> Vec<Range<usize>> {
        for edge in [range.start, range.end] {
            let count = self.count(edge);
            self.counts.entry(edge).or_insert(count);
        }
        let mut changed: Vec<Range<usize>> = Vec::new();
        let starts: Vec<usize> = self.counts.range(range.clone()).map(|(at, _)| *at).collect();
        let ends = starts.iter().skip(1).copied().chain([range.end]);
        for (start, end) in starts.iter().copied().zip(ends) {
            let count = self.counts.entry(start).or_default();
            let before = *count;
            *count = by(before);
            if (before == 0) != (*count == 0) {
                match changed.last_mut().filter(|last| last.end == start) {
                    Some(last) => last.end = end,
                    None => changed.push(start..end),
                }
            }
        }
        self.forget(range);
        changed
    }

    /// Removes the edges in a range and at its ends at which the count does not change.
    fn forget(&mut self, range: &Range<usize>) {
        let mut before =
            self.counts.range(..range.start).next_back().map_or(0, |(_, count)| *count);
        let edges: Vec<(usize, u32)> =
            self.counts.range(range.start..=range.end).map(|(at, count)| (*at, *count)).collect();
        for (at, count) in edges {
            if count == before {
                self.counts.remove(&at);
            }
            before = count;
        }
    }

    /// Keeps the pages from children.
    fn keep(&mut self, address: usize, length: usize) -> Verb {
        let (range, size) = self.around(address, length);
        let changed = self.change(&range, |count| count.saturating_add(1));
        for (index, part) in changed.iter().enumerate() {
            if let Err(refusal) = advise(part, libc::MADV_DONTFORK) {
                self.change(&range, |count| count.saturating_sub(1));
                // The kernel may have kept some pages of the part that it refused.
                changed[..=index].iter().for_each(|part| give(part, size));
                return Err(refusal);
            }
        }
        Ok(())
    }

    /// Gives pages without another registration to children again.
    fn release(&mut self, address: usize, length: usize) {
        let (range, size) = self.around(address, length);
        for part in self.change(&range, |count| count.saturating_sub(1)) {
            give(&part, size);
        }
    }
}

/// Gives pages to children again, if they still exist.
fn give(range: &Range<usize>, size: usize) {
    if advise(range, libc::MADV_DOFORK).is_err() {
        // The program has unmapped some of it already.
        for page in range.clone().step_by(size) {
            let _ = advise(&(page..page.saturating_add(size)), libc::MADV_DOFORK);
        }
    }
}

fn advise(range: &Range<usize>, advice: c_int) -> Verb {
    let address = std::ptr::without_provenance_mut(range.start);
    // SAFETY: this changes the memory of later children, and none of this process.
    match unsafe { libc::madvise(address, range.len(), advice) } {
        0 => Ok(()),
        _ => Err(Refusal(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL))),
    }
}

/// The size of the page at an address, if the kernel reports it.
fn page_size(address: usize) -> Option<usize> {
    page_size_in(&fs::read_to_string("/proc/self/smaps").ok()?, address)
}

fn page_size_in(maps: &str, address: usize) -> Option<usize> {
    let mut lines = maps.lines();
    lines.find(|line| {
        let range = line.split(' ').next().and_then(|range| range.split_once('-'));
        let number = |text| usize::from_str_radix(text, 16).ok();
        let range = range.and_then(|(start, end)| Some(number(start)?..number(end)?));
        range.is_some_and(|range| range.contains(&address))
    })?;
    let size = lines.find_map(|line| line.strip_prefix("KernelPageSize:"))?;
    size.trim().strip_suffix(" kB")?.parse::<usize>().ok()?.checked_mul(1024)
}

fn init() -> Verb {
    let mut policy = policy();
    match *policy {
        Policy::Kept(_) => {}
        _ if netlink::copies_on_fork() => {}
        Policy::TooLate => return Err(Refusal::INVALID),
        Policy::None => *policy = Policy::Kept(Pages::new()),
    }
    Ok(())
}

/// Applies the environment's settings. Programs rely on `RDMAV_FORK_SAFE` and `IBV_FORK_SAFE`.
pub(crate) fn init_by_environment() {
    if says("RDMAV_FORK_SAFE") || says("IBV_FORK_SAFE") {
        // If it is too late, nothing changes, and the process continues, as with C's library.
        let _ = init();
    }
}

/// Memory that is kept from children while this exists, if the program forks.
#[derive(Debug)]
pub(crate) struct Kept {
    address: usize,
    length: usize,
}

impl Kept {
    /// For memory that will be registered.
    pub(crate) fn new(address: usize, length: usize) -> Verb<Self> {
        keep(address, length).map(|()| Self { address, length })
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        release(self.address, self.length);
    }
}

fn keep(address: usize, length: usize) -> Verb {
    match &mut *policy() {
        Policy::Kept(pages) if length > 0 && address != 0 => pages.keep(address, length),
        Policy::Kept(_) => Ok(()),
        policy => {
            *policy = Policy::TooLate;
            Ok(())
        }
    }
}

fn release(address: usize, length: usize) {
    if let Policy::Kept(pages) = &mut *policy()
        && length > 0
        && address != 0
    {
        pages.release(address, length);
    }
}

/// `ibv_fork_init`.
pub extern "C" fn fork_init() -> c_int {
    status(init())
}

/// `ibv_is_fork_initialized`.
pub extern "C" fn is_fork_initialized() -> c_uint {
    if netlink::copies_on_fork() {
        return IBV_FORK_UNNEEDED;
    }
    match *policy() {
        Policy::Kept(_) => IBV_FORK_ENABLED,
        _ => IBV_FORK_DISABLED,
    }
}

/// `ibv_dontfork_range`: zero, or −1 and errno.
pub extern "C" fn dontfork_range(base: *mut c_void, size: usize) -> c_int {
    match keep(base.addr(), size) {
        Ok(()) => 0,
        Err(refusal) => {
            set_errno(refusal.0);
            -1
        }
    }
}

/// `ibv_dofork_range`: zero.
pub extern "C" fn dofork_range(base: *mut c_void, size: usize) -> c_int {
    release(base.addr(), size);
    0
}

#[cfg(test)]
mod tests;
