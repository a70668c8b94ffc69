//! Device pages in the program's memory.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use mlx5_uapi::mlx5::MmapCommand;
use mlx5_uapi::{Access, Errno, Mapping, page_size};

use crate::descriptors::{Entry, failed, find};
use crate::door::{Door, Inside};
use crate::say;

/// Pages mapped. Most calls of munmap are about other memory.
static MAPPED: AtomicUsize = AtomicUsize::new(0);

/// In a child process nothing is mapped.
pub(crate) fn forget() {
    MAPPED.store(0, Ordering::Release);
}

/// The mapped pages by address. One page may be mapped several times at the same place.
#[derive(Default)]
pub(crate) struct Mappings {
    pages: Mutex<BTreeMap<usize, Vec<Mapping>>>,
}

impl Mappings {
    fn add(&self, mapping: Mapping) -> *mut c_void {
        let address = mapping.as_ptr();
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        pages.entry(address as usize).or_default().push(mapping);
        MAPPED.fetch_add(1, Ordering::AcqRel);
        address.cast()
    }

    fn take(&self, address: usize) -> Option<Mapping> {
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        let there = pages.get_mut(&address)?;
        let mapping = there.pop();
        if there.is_empty() {
            pages.remove(&address);
        }
        MAPPED.fetch_sub(1, Ordering::AcqRel);
        mapping
    }
}

/// Maps a page of a device.
pub(crate) fn map(length: usize, rights: c_int, fd: c_int, offset: i64) -> Option<*mut c_void> {
    if fd < 0 {
        return None;
    }
    let (door, entry) = find(fd)?;
    let _inside = Inside::enter();
    let answer = match &entry {
        Entry::Events(_) => Err(Errno::ENODEV),
        Entry::Device(device) => {
            let access = if rights & libc::PROT_WRITE == 0 { Access::Read } else { Access::Write };
            let answer = u64::try_from(offset)
                .map_err(|_| Errno::EINVAL)
                .and_then(|offset| device.file.map(offset, length, access));
            if door.trace || answer.is_err() {
                let what = page_name(offset);
                match answer.as_ref().err() {
                    None => say!("{}: mmap of {length} bytes, {what}", device.name),
                    Some(errno) => say!("{}: mmap of {length} bytes, {what}: {errno}", device.name),
                }
            }
            answer
        }
    };
    Some(match answer {
        Ok(mapping) => door.mappings.add(mapping),
        Err(errno) => {
            failed(errno);
            libc::MAP_FAILED
        }
    })
}

/// What an offset is of, for messages.
fn page_name(offset: i64) -> String {
    let kind = u64::try_from(offset).ok().and_then(|offset| MmapCommand::of(offset, page_size()));
    match kind {
        Some(kind) => format!("{kind:?} at {offset:#x}"),
        None => format!("at {offset:#x}"),
    }
}

/// Ends the mapping of a page.
pub(crate) fn unmap(address: *mut c_void, _length: usize) -> Option<c_int> {
    if MAPPED.load(Ordering::Acquire) == 0 {
        return None;
    }
    let door = Door::if_open()?;
    let _inside = Inside::enter();
    let mapping = door.mappings.take(address as usize)?;
    drop(mapping);
    Some(0)
}
