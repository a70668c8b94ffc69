//! DEVX: commands to the firmware, objects made by them, and memory lent to them.
//!
//! Where the firmware refuses a command, the kernel answers `EREMOTEIO` and leaves the firmware's
//! status and syndrome in the first eight bytes of the output; older kernels answer an errno of
//! their choice and leave the output alone. The caller tells them apart by those bytes.

use std::os::fd::{AsRawFd, BorrowedFd};

use super::destroy;
use crate::{
    Errno,
    call::Call,
    ioctl::{attr, method},
    kernel::{DeviceFile, EventFile},
    verbs::AccessFlags,
};

/// DEVX_OTHER: a command that makes no object.
///
/// # Safety
/// The command may name memory and objects: it must do no harm to any that others rely on.
pub unsafe fn general_cmd(
    file: &dyn DeviceFile,
    input: &[u8],
    output: &mut [u8],
) -> Result<(), Errno> {
    use attr::devx_other as id;
    Call::new(method::DEVX_OTHER)
        .input_bytes(id::CMD_IN, input)
        .output_bytes(id::CMD_OUT, output)
        .make(file)
        .map(drop)
}

/// DEVX_OBJ_CREATE: a command that makes an object; the kernel's handle.
///
/// # Safety
/// As [`general_cmd`].
pub unsafe fn obj_create(
    file: &dyn DeviceFile,
    input: &[u8],
    output: &mut [u8],
) -> Result<u32, Errno> {
    use attr::devx_obj_create as id;
    let reply = Call::new(method::DEVX_OBJ_CREATE)
        .new_handle(id::HANDLE)
        .input_bytes(id::CMD_IN, input)
        .output_bytes(id::CMD_OUT, output)
        .make(file)?;
    Ok(reply.handle(id::HANDLE))
}

/// DEVX_OBJ_MODIFY. The handle may be of a CQ, QP or SRQ as well as of a DEVX object.
///
/// # Safety
/// As [`general_cmd`].
pub unsafe fn obj_modify(
    file: &dyn DeviceFile,
    handle: u32,
    input: &[u8],
    output: &mut [u8],
) -> Result<(), Errno> {
    use attr::devx_obj_modify as id;
    Call::new(method::DEVX_OBJ_MODIFY)
        .handle(id::HANDLE, handle)
        .input_bytes(id::CMD_IN, input)
        .output_bytes(id::CMD_OUT, output)
        .make(file)
        .map(drop)
}

/// DEVX_OBJ_QUERY. The handle may be of a CQ, QP or SRQ as well as of a DEVX object.
pub fn obj_query(
    file: &dyn DeviceFile,
    handle: u32,
    input: &[u8],
    output: &mut [u8],
) -> Result<(), Errno> {
    use attr::devx_obj_query as id;
    Call::new(method::DEVX_OBJ_QUERY)
        .handle(id::HANDLE, handle)
        .input_bytes(id::CMD_IN, input)
        .output_bytes(id::CMD_OUT, output)
        .make(file)
        .map(drop)
}

/// DEVX_OBJ_DESTROY.
pub fn obj_destroy(file: &dyn DeviceFile, handle: u32) -> Result<(), Errno> {
    destroy(file, method::DEVX_OBJ_DESTROY, attr::devx_obj_destroy::HANDLE, handle)
}

/// DEVX_QUERY_UAR: the device's number of the UAR that the process knows as `index`.
pub fn query_uar(file: &dyn DeviceFile, index: u32) -> Result<u32, Errno> {
    use attr::devx_query_uar as id;
    let mut page = 0_u32;
    Call::new(method::DEVX_QUERY_UAR)
        .input_u32(id::USER_IDX, index)
        .output(id::DEV_IDX, &mut page)
        .make(file)?;
    Ok(page)
}

/// DEVX_QUERY_EQN: the event queue of a completion vector.
pub fn query_eqn(file: &dyn DeviceFile, vector: u32) -> Result<u32, Errno> {
    use attr::devx_query_eqn as id;
    let mut eqn = 0_u32;
    Call::new(method::DEVX_QUERY_EQN)
        .input_u32(id::USER_VEC, vector)
        .output(id::DEV_EQN, &mut eqn)
        .make(file)?;
    Ok(eqn)
}

/// Memory lent to firmware objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Umem {
    /// The kernel's handle.
    pub handle: u32,
    /// The device's number.
    pub id: u32,
}

/// DEVX_UMEM_REG. `page_sizes` has a bit for each page size that the device may use; `None` leaves
/// the choice to the kernel, and is what kernels before 5.11 understand.
///
/// # Safety
/// The device may from now on write the memory as `access` says, until [`umem_dereg`] succeeds or
/// `file` is closed.
pub unsafe fn umem_reg(
    file: &dyn DeviceFile,
    addr: u64,
    len: u64,
    access: AccessFlags,
    page_sizes: Option<u64>,
) -> Result<Umem, Errno> {
    use attr::devx_umem_reg as id;
    let mut number = 0_u32;
    let mut call = Call::new(method::DEVX_UMEM_REG);
    call.new_handle(id::HANDLE)
        .input_u64(id::ADDR, addr)
        .input_u64(id::LEN, len)
        .input_u32(id::ACCESS, access.bits());
    if let Some(sizes) = page_sizes {
        call.input_u64(id::PGSZ_BITMAP, sizes);
    }
    let reply = call.output(id::OUT_ID, &mut number).make(file)?;
    Ok(Umem { handle: reply.handle(id::HANDLE), id: number })
}

/// DEVX_UMEM_DEREG.
pub fn umem_dereg(file: &dyn DeviceFile, handle: u32) -> Result<(), Errno> {
    destroy(file, method::DEVX_UMEM_DEREG, attr::devx_umem_dereg::HANDLE, handle)
}

/// DEVX_ASYNC_EVENT_FD_ALLOC: a file of DEVX events, each behind a
/// [`crate::mlx5::DevxAsyncEventHdr`]; with `omit_data` it is all there is of them.
pub fn alloc_event_file(
    file: &dyn DeviceFile,
    omit_data: bool,
) -> Result<Box<dyn EventFile>, Errno> {
    use attr::devx_async_event_fd_alloc as id;
    let reply = Call::new(method::DEVX_ASYNC_EVENT_FD_ALLOC)
        .new_fd(id::HANDLE)
        .input_u32(id::FLAGS, u32::from(omit_data))
        .make(file)?;
    file.event_file(reply.fd(id::HANDLE))
}

/// DEVX_SUBSCRIBE_EVENT: events of these types, of the object or of the whole device, go to
/// `events` with `cookie`.
pub fn subscribe(
    file: &dyn DeviceFile,
    events: BorrowedFd<'_>,
    object: Option<u32>,
    types: &[u16],
    cookie: u64,
) -> Result<(), Errno> {
    use attr::devx_subscribe_event as id;
    let mut call = Call::new(method::DEVX_SUBSCRIBE_EVENT);
    call.fd(id::FD_HANDLE, events.as_raw_fd());
    if let Some(handle) = object {
        call.handle(id::OBJ_HANDLE, handle);
    }
    call.input(id::TYPE_NUM_LIST, types).input_u64(id::COOKIE, cookie).make(file).map(drop)
}
