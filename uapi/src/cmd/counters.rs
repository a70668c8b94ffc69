//! Counters, in which flow rules count packets.

use super::destroy as destroy_object;
use crate::{
    Errno,
    call::Call,
    ioctl::{attr, method},
    kernel::DeviceFile,
};

/// Creates counters (COUNTERS_CREATE) and returns their handle.
pub fn create(file: &dyn DeviceFile) -> Result<u32, Errno> {
    use attr::create_counters as id;
    let reply = Call::new(method::COUNTERS_CREATE).new_handle(id::HANDLE).make(file)?;
    Ok(reply.handle(id::HANDLE))
}

/// Destroys counters (COUNTERS_DESTROY). `EBUSY` while a rule uses them.
pub fn destroy(file: &dyn DeviceFile, handle: u32) -> Result<(), Errno> {
    destroy_object(file, method::COUNTERS_DESTROY, attr::destroy_counters::HANDLE, handle)
}

/// Reads counters (COUNTERS_READ). `EINVAL` if no rule uses them, or if a value that the rule
/// described lies beyond `values`. With `cached` the driver may return its last values.
pub fn read(
    file: &dyn DeviceFile,
    handle: u32,
    values: &mut [u64],
    cached: bool,
) -> Result<(), Errno> {
    use attr::read_counters as id;
    Call::new(method::COUNTERS_READ)
        .handle(id::HANDLE, handle)
        .output(id::BUFF, values)
        .input_u32(id::FLAGS, u32::from(cached))
        .make(file)
        .map(drop)
}
