//! DEVX: firmware commands, firmware objects, and memory for them (umems).
//!
//! If the firmware refuses a command, the kernel returns `EREMOTEIO`, with the firmware's status
//! and syndrome in the first eight bytes of the output. Older kernels return another errno and do
//! not write the output. The caller distinguishes them by these bytes.

use std::os::fd::{AsRawFd, BorrowedFd};

use bitflags::bitflags;

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

/// The arguments of DEVX_UMEM_REG.
#[derive(Clone, Copy, Debug)]
pub struct UmemReg<'a> {
    /// First byte of the memory; with `dmabuf`, the offset in it.
    pub addr: u64,
    /// Length in bytes.
    pub len: u64,
    /// The device's access to the memory.
    pub access: AccessFlags,
    /// Page sizes that the device may use.
    pub page_sizes: PageSizes,
    /// The dma-buf that has the memory, if not this process.
    pub dmabuf: Option<BorrowedFd<'a>>,
}

/// The page sizes that the device may use for a umem: a bit for each size in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PageSizes {
    /// The kernel chooses.
    Any,
    /// These. Kernels before 5.11 ignore them.
    Preferred(u64),
    /// These. Kernels before 5.11 refuse the call.
    Only(u64),
}

/// Registers memory for firmware objects (DEVX_UMEM_REG).
///
/// # Safety
/// From now on the device may access the memory, and write it if `what.access` allows it, until
/// [`umem_dereg`] succeeds or `file` is closed.
pub unsafe fn umem_reg(file: &dyn DeviceFile, what: &UmemReg<'_>) -> Result<Umem, Errno> {
    use attr::devx_umem_reg as id;
    let mut number = 0_u32;
    let mut call = Call::new(method::DEVX_UMEM_REG);
    call.new_handle(id::HANDLE)
        .input_u64(id::ADDR, what.addr)
        .input_u64(id::LEN, what.len)
        .input_u32(id::ACCESS, what.access.bits());
    match what.page_sizes {
        PageSizes::Any => {}
        PageSizes::Preferred(sizes) => {
            call.input_u64(id::PGSZ_BITMAP, sizes).optional();
        }
        PageSizes::Only(sizes) => {
            call.input_u64(id::PGSZ_BITMAP, sizes);
        }
    }
    if let Some(dmabuf) = what.dmabuf {
        call.fd(id::DMABUF_FD, dmabuf.as_raw_fd());
    }
    let reply = call.output(id::OUT_ID, &mut number).make(file)?;
    Ok(Umem { handle: reply.handle(id::HANDLE), id: number })
}

/// Deregisters a umem (DEVX_UMEM_DEREG).
pub fn umem_dereg(file: &dyn DeviceFile, handle: u32) -> Result<(), Errno> {
    destroy(file, method::DEVX_UMEM_DEREG, attr::devx_umem_dereg::HANDLE, handle)
}

/// Creates a file for the answers to [`obj_query_async`] (DEVX_ASYNC_CMD_FD_ALLOC). Each answer is
/// the number of its query, eight bytes, and the output of the command.
pub fn alloc_command_file(file: &dyn DeviceFile) -> Result<Box<dyn EventFile>, Errno> {
    use attr::devx_async_cmd_fd_alloc as id;
    let reply = Call::new(method::DEVX_ASYNC_CMD_FD_ALLOC).new_fd(id::HANDLE).make(file)?;
    // SAFETY: this file's ioctl has just created the descriptor; only this function knows it.
    unsafe { file.event_file(reply.fd(id::HANDLE)) }
}

/// Starts a query of an object (DEVX_OBJ_ASYNC_QUERY). Its answer, of up to `out_len` bytes,
/// arrives at `answers` with `number`.
pub fn obj_query_async(
    file: &dyn DeviceFile,
    handle: u32,
    input: &[u8],
    out_len: u64,
    number: u64,
    answers: BorrowedFd<'_>,
) -> Result<(), Errno> {
    use attr::devx_obj_query_async as id;
    Call::new(method::DEVX_OBJ_ASYNC_QUERY)
        .handle(id::HANDLE, handle)
        .input_bytes(id::CMD_IN, input)
        .input_u64(id::OUT_LEN, out_len)
        .input_u64(id::WR_ID, number)
        .fd(id::FD, answers.as_raw_fd())
        .make(file)
        .map(drop)
}

bitflags! {
    /// `enum mlx5_ib_uapi_devx_create_event_channel_flags`.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct EventFileFlags: u32 {
        /// An event consists of its header.
        const OMIT_DATA = 1 << 0;
    }
}

/// Creates a DEVX event file (DEVX_ASYNC_EVENT_FD_ALLOC). Each event starts with a
/// [`crate::mlx5::DevxAsyncEventHdr`].
pub fn alloc_event_file(
    file: &dyn DeviceFile,
    flags: EventFileFlags,
) -> Result<Box<dyn EventFile>, Errno> {
    use attr::devx_async_event_fd_alloc as id;
    let reply = Call::new(method::DEVX_ASYNC_EVENT_FD_ALLOC)
        .new_fd(id::HANDLE)
        .input_u32(id::FLAGS, flags.bits())
        .make(file)?;
    // SAFETY: this file's ioctl has just created the descriptor; only this function knows it.
    unsafe { file.event_file(reply.fd(id::HANDLE)) }
}

/// The way in which a subscriber learns of an event.
#[derive(Clone, Copy, Debug)]
pub enum Notice<'a> {
    /// The event arrives at the event file, with this cookie.
    Cookie(u64),
    /// This eventfd is signalled. The event file only keeps the subscription.
    EventFd(BorrowedFd<'a>),
}

/// Subscribes to DEVX events (DEVX_SUBSCRIBE_EVENT): events of these types, of `object` or, with
/// `None`, of the whole device.
pub fn subscribe(
    file: &dyn DeviceFile,
    events: BorrowedFd<'_>,
    object: Option<u32>,
    types: &[u16],
    notice: Notice<'_>,
) -> Result<(), Errno> {
    use attr::devx_subscribe_event as id;
    let mut call = Call::new(method::DEVX_SUBSCRIBE_EVENT);
    call.fd(id::FD_HANDLE, events.as_raw_fd());
    if let Some(handle) = object {
        call.handle(id::OBJ_HANDLE, handle);
    }
    call.input(id::TYPE_NUM_LIST, types);
    match notice {
        Notice::Cookie(cookie) => call.input_u64(id::COOKIE, cookie),
        Notice::EventFd(fd) => call.input_u32(id::FD_NUM, fd.as_raw_fd() as u32),
    };
    call.make(file).map(drop)
}

/// A doorbell page of a virtio device that firmware emulates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Var {
    /// The kernel's handle.
    pub handle: u32,
    /// Offset for [`DeviceFile::map`].
    pub mmap_offset: u64,
    /// Length to map, in bytes.
    pub mmap_len: u32,
    /// The device's number of the page.
    pub page_id: u32,
}

/// Allocates a virtio doorbell page (VAR_OBJ_ALLOC).
pub fn alloc_var(file: &dyn DeviceFile) -> Result<Var, Errno> {
    use attr::var_alloc as id;
    let mut var = Var { handle: 0, mmap_offset: 0, mmap_len: 0, page_id: 0 };
    let reply = Call::new(method::VAR_ALLOC)
        .new_handle(id::HANDLE)
        .output(id::MMAP_OFFSET, &mut var.mmap_offset)
        .output(id::MMAP_LENGTH, &mut var.mmap_len)
        .output(id::PAGE_ID, &mut var.page_id)
        .make(file)?;
    var.handle = reply.handle(id::HANDLE);
    Ok(var)
}

/// Frees a virtio doorbell page (VAR_OBJ_DESTROY).
pub fn free_var(file: &dyn DeviceFile, handle: u32) -> Result<(), Errno> {
    destroy(file, method::VAR_DESTROY, attr::var_destroy::HANDLE, handle)
}

/// An entry of the table of send rates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PacketPacing {
    /// The kernel's handle.
    pub handle: u32,
    /// The entry.
    pub index: u16,
}

/// Allocates an entry of the table of send rates (PP_OBJ_ALLOC). `context` is the firmware's
/// description of the rate; bit 0 of `flags` asks for an entry that no other object shares.
pub fn alloc_pp(file: &dyn DeviceFile, context: &[u8], flags: u64) -> Result<PacketPacing, Errno> {
    use attr::pp_alloc as id;
    let mut index = 0_u16;
    let reply = Call::new(method::PP_ALLOC)
        .new_handle(id::HANDLE)
        .input_bytes(id::CTX, context)
        .input_u64(id::FLAGS, flags)
        .output(id::INDEX, &mut index)
        .make(file)?;
    Ok(PacketPacing { handle: reply.handle(id::HANDLE), index })
}

/// Frees an entry of the table of send rates (PP_OBJ_DESTROY).
pub fn free_pp(file: &dyn DeviceFile, handle: u32) -> Result<(), Errno> {
    destroy(file, method::PP_DESTROY, attr::pp_destroy::HANDLE, handle)
}

#[cfg(test)]
mod tests;
