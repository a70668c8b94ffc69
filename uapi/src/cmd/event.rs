//! Event files.

use zerocopy::{FromBytes, IntoBytes};

use crate::{
    Errno,
    call::Call,
    ioctl::{attr, method},
    kernel::{DeviceFile, EventFile},
    verbs::{AsyncEventDesc, CompEventDesc},
    write_cmd::{CreateCompChannelResp, EmptyRequest, WriteCommand, exchange},
};

/// Creates a completion channel (CREATE_COMP_CHANNEL): a file of [`CompEventDesc`]s.
pub fn create_comp_channel(file: &dyn DeviceFile) -> Result<Box<dyn EventFile>, Errno> {
    let answer: CreateCompChannelResp =
        exchange(file, WriteCommand::CREATE_COMP_CHANNEL, &EmptyRequest::default())?;
    // SAFETY: this file's ioctl has just created the descriptor; only this function knows it.
    unsafe { file.event_file(answer.fd as i32) }
}

/// Creates an asynchronous event file (ASYNC_EVENT_ALLOC): a file of [`AsyncEventDesc`]s.
pub fn alloc_async(file: &dyn DeviceFile) -> Result<Box<dyn EventFile>, Errno> {
    use attr::async_event_alloc as id;
    let reply = Call::new(method::ASYNC_EVENT_ALLOC).new_fd(id::FD_HANDLE).make(file)?;
    // SAFETY: this file's ioctl has just created the descriptor; only this function knows it.
    unsafe { file.event_file(reply.fd(id::FD_HANDLE)) }
}

/// Reads the next completion event; `None` if no event is pending. `EIO` after the device is gone.
pub fn next_completion(events: &dyn EventFile) -> Result<Option<CompEventDesc>, Errno> {
    completion_by(|to| events.read(to))
}

/// As [`next_completion`], but reads with `read`, which fills the bytes and returns their number.
pub fn completion_by(
    read: impl FnOnce(&mut [u8]) -> Result<usize, Errno>,
) -> Result<Option<CompEventDesc>, Errno> {
    next(read)
}

/// Reads the next asynchronous event; `None` if no event is pending. `EIO` after the device is
/// gone.
pub fn next_async(events: &dyn EventFile) -> Result<Option<AsyncEventDesc>, Errno> {
    async_by(|to| events.read(to))
}

/// As [`next_async`], but reads with `read`, which fills the bytes and returns their number.
pub fn async_by(
    read: impl FnOnce(&mut [u8]) -> Result<usize, Errno>,
) -> Result<Option<AsyncEventDesc>, Errno> {
    next(read)
}

fn next<T: FromBytes + IntoBytes>(
    read: impl FnOnce(&mut [u8]) -> Result<usize, Errno>,
) -> Result<Option<T>, Errno> {
    let mut event = T::new_zeroed();
    match read(event.as_mut_bytes()) {
        Ok(len) if len == size_of::<T>() => Ok(Some(event)),
        Ok(_) => Err(Errno::EPROTO),
        Err(Errno::EAGAIN) => Ok(None),
        Err(errno) => Err(errno),
    }
}
