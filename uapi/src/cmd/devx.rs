//! DEVX: firmware commands, firmware objects, and memory for them (umems).
//!
//! If the firmware refuses a command, the kernel returns `EREMOTEIO`, with the firmware's status
//! and syndrome in the first eight bytes of the output. Older kernels return another errno and do
//! not write the output. The caller distinguishes them by these bytes.

use std::os::fd::{AsRawFd, BorrowedFd};

use super::destroy;
use crate::{
    Errno,
    call::Call,
    ioctl::{attr, method},
    kernel::{DeviceFile, EventFile},
    verbs::AccessFlags,
};

/// Executes a command that creates no object (DEVX_OTHER).
///
/// # Safety
/// The command may name memory and objects; it must not break any that other code relies on.
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

/// Executes a command that creates an object (DEVX_OBJ_CREATE). Returns the kernel's handle.
///
/// # Safety
/// As for [`general_cmd`].
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

/// Executes a command that modifies an object (DEVX_OBJ_MODIFY): a DEVX object, CQ, QP or SRQ.
///
/// # Safety
/// As for [`general_cmd`].
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

/// Executes a command that queries an object (DEVX_OBJ_QUERY): a DEVX object, CQ, QP or SRQ.
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

/// Destroys a DEVX object (DEVX_OBJ_DESTROY).
pub fn obj_destroy(file: &dyn DeviceFile, handle: u32) -> Result<(), Errno> {
    destroy(file, method::DEVX_OBJ_DESTROY, attr::devx_obj_destroy::HANDLE, handle)
}

/// Returns the device's number of the UAR with index `index` in this context (DEVX_QUERY_UAR).
pub fn query_uar(file: &dyn DeviceFile, index: u32) -> Result<u32, Errno> {
    use attr::devx_query_uar as id;
    let mut page = 0_u32;
    Call::new(method::DEVX_QUERY_UAR)
        .input_u32(id::USER_IDX, index)
        .output(id::DEV_IDX, &mut page)
        .make(file)?;
    Ok(page)
}

/// Returns the number of the event queue of a completion vector (DEVX_QUERY_EQN).
pub fn query_eqn(file: &dyn DeviceFile, vector: u32) -> Result<u32, Errno> {
    use attr::devx_query_eqn as id;
    let mut eqn = 0_u32;
    Call::new(method::DEVX_QUERY_EQN)
        .input_u32(id::USER_VEC, vector)
        .output(id::DEV_EQN, &mut eqn)
        .make(file)?;
    Ok(eqn)
}

/// Memory registered for firmware objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Umem {
    /// The kernel's handle.
    pub handle: u32,
    /// The device's number.
    pub id: u32,
}

/// Registers memory for firmware objects (DEVX_UMEM_REG). `page_sizes` has a bit for each page size
/// that the device may use. With `None` the kernel chooses; kernels before 5.11 accept only that.
///
/// # Safety
/// From now on the device may access the memory, and write it if `access` allows it, until
/// [`umem_dereg`] succeeds or `file` is closed.
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

/// Deregisters a umem (DEVX_UMEM_DEREG).
pub fn umem_dereg(file: &dyn DeviceFile, handle: u32) -> Result<(), Errno> {
    destroy(file, method::DEVX_UMEM_DEREG, attr::devx_umem_dereg::HANDLE, handle)
}

/// Creates a DEVX event file (DEVX_ASYNC_EVENT_FD_ALLOC). Each event starts with a
/// [`crate::mlx5::DevxAsyncEventHdr`]; with `omit_data` the event consists of that header.
pub fn alloc_event_file(
    file: &dyn DeviceFile,
    omit_data: bool,
) -> Result<Box<dyn EventFile>, Errno> {
    use attr::devx_async_event_fd_alloc as id;
    let reply = Call::new(method::DEVX_ASYNC_EVENT_FD_ALLOC)
        .new_fd(id::HANDLE)
        .input_u32(id::FLAGS, u32::from(omit_data))
        .make(file)?;
    // SAFETY: this file's ioctl has just created the descriptor; only this function knows it.
    unsafe { file.event_file(reply.fd(id::HANDLE)) }
}

/// Subscribes to DEVX events (DEVX_SUBSCRIBE_EVENT): events of these types, of `object` or, with
/// `None`, of the whole device, arrive at `events` with `cookie`.
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
