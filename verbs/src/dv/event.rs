//! Files of DEVX: events of firmware objects, and answers to asynchronous queries.

use super::devx::DevxObject;
use super::{bytes, room};
use crate::abi::mlx5dv::*;
use crate::abi::*;
use crate::context::ContextObject;
use crate::object::boxed;
use crate::refusal::{Refusal, Verb, object, set_errno, status};
use mlx5_uapi::EventFile;
use mlx5_uapi::cmd::devx::{self as command, EventFileFlags, Notice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;

/// A file of answers to queries.
#[repr(C)]
struct AnswersObject {
    c: mlx5dv_devx_cmd_comp,
    file: Arc<dyn EventFile>,
}

/// A file of events.
#[repr(C)]
struct EventsObject {
    c: mlx5dv_devx_event_channel,
    context: *mut ibv_context,
    file: Arc<dyn EventFile>,
}

/// Reads the next event or answer: a header of `header` bytes, and the data after it.
fn next(file: &dyn EventFile, to: &mut [u8], header: usize) -> Verb<usize> {
    let read = file.read(to)?;
    if read < header { Err(Refusal::INVALID) } else { Ok(read) }
}

/// Size of a query's number, and of a subscription's.
const HEADER: usize = size_of::<u64>();

/// `mlx5dv_devx_create_cmd_comp`.
///
/// # Safety
/// `context` is open.
pub unsafe extern "C" fn create_cmd_comp(context: *mut ibv_context) -> *mut mlx5dv_devx_cmd_comp {
    // SAFETY: the caller promises that `context` is open.
    let made = command::alloc_command_file(unsafe { ContextObject::of(context) }.file());
    object(made.map_err(Into::into).map(|file| {
        let file: Arc<dyn EventFile> = file.into();
        boxed(AnswersObject { c: mlx5dv_devx_cmd_comp { fd: file.as_fd().as_raw_fd() }, file })
    }))
}

/// `mlx5dv_devx_destroy_cmd_comp`.
///
/// # Safety
/// `answers` was not destroyed. It is used no more.
pub unsafe extern "C" fn destroy_cmd_comp(answers: *mut mlx5dv_devx_cmd_comp) {
    // SAFETY: the caller promises that `answers` was not destroyed and is used no more;
    // `create_cmd_comp` boxed it.
    drop(unsafe { Box::<AnswersObject>::from_raw(answers.cast()) });
}

/// `mlx5dv_devx_obj_query_async`.
///
/// # Safety
/// `obj` and `answers` were not destroyed, `input` is readable for its length.
pub unsafe extern "C" fn obj_query_async(
    obj: *mut mlx5dv_devx_obj,
    input: *const c_void,
    input_len: usize,
    output_len: usize,
    wr_id: u64,
    answers: *mut mlx5dv_devx_cmd_comp,
) -> c_int {
    // SAFETY: the caller promises that `obj` and `answers` were not destroyed, and that `input` is
    // readable for its length.
    let asked = unsafe {
        let (this, answers) = (DevxObject::of(obj), &*answers.cast::<AnswersObject>());
        let (file, input, output) =
            (this.context().file(), bytes(input, input_len), output_len as u64);
        command::obj_query_async(file, this.handle, input, output, wr_id, answers.file.as_fd())
    };
    status(asked.map_err(Into::into))
}

/// `mlx5dv_devx_get_async_cmd_comp`: waits for an answer unless the descriptor is non-blocking.
///
/// # Safety
/// `answers` was not destroyed, `to` is writable for `to_len` bytes.
pub unsafe extern "C" fn get_async_cmd_comp(
    answers: *mut mlx5dv_devx_cmd_comp,
    to: *mut c_void,
    to_len: usize,
) -> c_int {
    // SAFETY: the caller promises that `answers` was not destroyed and that `to` is writable for
    // `to_len` bytes.
    status(unsafe {
        // Another thread may destroy the object while this one waits.
        let file = Arc::clone(&(*answers.cast::<AnswersObject>()).file);
        next(&*file, room(to, to_len), HEADER).map(drop)
    })
}

/// `mlx5dv_devx_create_event_channel`.
///
/// # Safety
/// `context` is open.
pub unsafe extern "C" fn create_event_channel(
    context: *mut ibv_context,
    flags: c_uint,
) -> *mut mlx5dv_devx_event_channel {
    let flags = EventFileFlags::from_bits_retain(flags);
    // SAFETY: the caller promises that `context` is open.
    let made = command::alloc_event_file(unsafe { ContextObject::of(context) }.file(), flags);
    object(made.map_err(Into::into).map(|file| {
        let file: Arc<dyn EventFile> = file.into();
        let c = mlx5dv_devx_event_channel { fd: file.as_fd().as_raw_fd() };
        boxed(EventsObject { c, context, file })
    }))
}

/// `mlx5dv_devx_destroy_event_channel`.
///
/// # Safety
/// `channel` was not destroyed. It is used no more.
pub unsafe extern "C" fn destroy_event_channel(channel: *mut mlx5dv_devx_event_channel) {
    // SAFETY: the caller promises that `channel` was not destroyed and is used no more;
    // `create_event_channel` boxed it.
    drop(unsafe { Box::<EventsObject>::from_raw(channel.cast()) });
}

unsafe fn subscribe(
    channel: *mut mlx5dv_devx_event_channel,
    obj: *mut mlx5dv_devx_obj,
    types: &[u16],
    notice: Notice<'_>,
) -> Verb {
    // SAFETY: the callers of both functions promise that `channel` and `obj` were not destroyed;
    // `obj` may be NULL.
    unsafe {
        let this = &*channel.cast::<EventsObject>();
        let object = (!obj.is_null()).then(|| DevxObject::of(obj).handle);
        let file = ContextObject::of(this.context).file();
        Ok(command::subscribe(file, this.file.as_fd(), object, types, notice)?)
    }
}

/// `mlx5dv_devx_subscribe_devx_event`: `types_len` is in bytes; without an object, it subscribes to
/// events of the device.
///
/// # Safety
/// `channel` and `obj` were not destroyed; `obj` may be NULL; `types` is readable for its length.
pub unsafe extern "C" fn subscribe_devx_event(
    channel: *mut mlx5dv_devx_event_channel,
    obj: *mut mlx5dv_devx_obj,
    types_len: u16,
    types: *mut u16,
    cookie: u64,
) -> c_int {
    if !usize::from(types_len).is_multiple_of(size_of::<u16>()) {
        return status(Err(Refusal::INVALID));
    }
    // SAFETY: the caller promises that `channel` and `obj` were not destroyed, or `obj` is NULL,
    // and that `types` is readable for its length.
    status(unsafe {
        let types: Vec<u16> = bytes(types.cast(), types_len.into())
            .chunks_exact(size_of::<u16>())
            .map(|pair| u16::from_ne_bytes([pair[0], pair[1]]))
            .collect();
        subscribe(channel, obj, &types, Notice::Cookie(cookie))
    })
}

/// `mlx5dv_devx_subscribe_devx_event_fd`: the eventfd `fd` is signalled.
///
/// # Safety
/// `channel` and `obj` were not destroyed; `obj` may be NULL.
pub unsafe extern "C" fn subscribe_devx_event_fd(
    channel: *mut mlx5dv_devx_event_channel,
    fd: c_int,
    obj: *mut mlx5dv_devx_obj,
    event_type: u16,
) -> c_int {
    if fd < 0 {
        return status(Err(Refusal(libc::EBADF)));
    }
    // SAFETY: the caller promises that `channel` and `obj` were not destroyed, or `obj` is NULL;
    // the kernel checks the descriptor.
    status(unsafe {
        subscribe(channel, obj, &[event_type], Notice::EventFd(BorrowedFd::borrow_raw(fd)))
    })
}

/// `mlx5dv_devx_get_event`: waits for an event unless the descriptor is non-blocking. Returns the
/// number of bytes written, or −1.
///
/// # Safety
/// `channel` was not destroyed, `to` is writable for `to_len` bytes.
pub unsafe extern "C" fn get_event(
    channel: *mut mlx5dv_devx_event_channel,
    to: *mut c_void,
    to_len: usize,
) -> isize {
    // SAFETY: the caller promises that `channel` was not destroyed and that `to` is writable for
    // `to_len` bytes.
    let found = unsafe {
        let file = Arc::clone(&(*channel.cast::<EventsObject>()).file);
        next(&*file, room(to, to_len), HEADER)
    };
    match found {
        Ok(length) => length as isize,
        Err(refusal) => {
            set_errno(refusal.0);
            -1
        }
    }
}
