//! Mapping and unmapping device pages.

use std::ffi::{c_int, c_void};

use mlx5_uapi::mlx5::MmapCommand;
use mlx5_uapi::{Access, Errno, page_size};

use crate::descriptors::Entry;
use crate::door::Door;
use crate::inside::Inside;
use crate::next::failed;
use crate::{mappings, say};

/// Maps a page of a device.
pub(crate) fn map(length: usize, rights: c_int, fd: c_int, offset: i64) -> Option<*mut c_void> {
    if fd < 0 {
        return None;
    }
    let (door, entry) = Door::find(fd)?;
    let _inside = Inside::enter();
    let answer = match &entry {
        Entry::Events(_) | Entry::Channel(_) => Err(Errno::ENODEV),
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

/// The name of an offset's page, for messages.
fn page_name(offset: i64) -> String {
    let kind = u64::try_from(offset).ok().and_then(|offset| MmapCommand::of(offset, page_size()));
    match kind {
        Some(kind) => format!("{kind:?} at {offset:#x}"),
        None => format!("at {offset:#x}"),
    }
}

/// Ends the mapping of a page.
pub(crate) fn unmap(address: *mut c_void, _length: usize) -> Option<c_int> {
    if !mappings::any() {
        return None;
    }
    let door = Door::if_open()?;
    let _inside = Inside::enter();
    let mapping = door.mappings.take(address as usize)?;
    drop(mapping);
    Some(0)
}
