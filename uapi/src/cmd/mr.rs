//! Memory regions.

use std::os::fd::RawFd;

use super::destroy;
use crate::{
    Errno,
    call::Call,
    ioctl::{attr, method},
    kernel::DeviceFile,
    verbs::{AccessFlags, Advice, ReregFlags, Sge},
    write_cmd::{RegMr, RegMrResp, ReregMr, ReregMrResp, WriteCommand, exchange},
};

/// The arguments of a registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registration {
    /// Handle of the protection domain.
    pub pd: u32,
    /// Address of the first byte in this process. Zero, with a `length` of `u64::MAX` and
    /// `ON_DEMAND`, stands for the whole address space.
    pub start: u64,
    /// Length in bytes.
    pub length: u64,
    /// Address of the first byte for the device. Its offset in the page is that of `start`.
    pub hca_va: u64,
    /// Access rights.
    pub access: AccessFlags,
}

/// A memory region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mr {
    /// The kernel's handle.
    pub handle: u32,
    /// Local key.
    pub lkey: u32,
    /// Remote key.
    pub rkey: u32,
}

/// The response of QUERY_MR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MrInfo {
    /// Local key.
    pub lkey: u32,
    /// Remote key.
    pub rkey: u32,
    /// Length in bytes.
    pub length: u64,
    /// Address of the first byte for the device.
    pub iova: u64,
}

/// Registers memory (REG_MR).
///
/// # Safety
/// From now on the device may access the memory, and write it for this process or its peers if
/// `access` allows it, until [`dereg`] succeeds or `file` is closed.
pub unsafe fn reg(file: &dyn DeviceFile, what: &Registration) -> Result<Mr, Errno> {
    let request = RegMr {
        response: 0,
        start: what.start,
        length: what.length,
        hca_va: what.hca_va,
        pd_handle: what.pd,
        access_flags: what.access.bits(),
    };
    let answer: RegMrResp = exchange(file, WriteCommand::REG_MR, &request)?;
    Ok(Mr { handle: answer.mr_handle, lkey: answer.lkey, rkey: answer.rkey })
}

/// Changes the parts of a region that `flags` selects (REREG_MR). Returns its new lkey and rkey.
///
/// # Safety
/// As for [`reg`]. After a failure the device may have access to the old memory, the new memory, or
/// none.
pub unsafe fn rereg(
    file: &dyn DeviceFile,
    handle: u32,
    flags: ReregFlags,
    what: &Registration,
) -> Result<(u32, u32), Errno> {
    let request = ReregMr {
        response: 0,
        mr_handle: handle,
        flags: flags.bits(),
        start: what.start,
        length: what.length,
        hca_va: what.hca_va,
        pd_handle: what.pd,
        access_flags: what.access.bits(),
    };
    let answer: ReregMrResp = exchange(file, WriteCommand::REREG_MR, &request)?;
    Ok((answer.lkey, answer.rkey))
}

/// Deregisters memory (MR_DESTROY). `EBUSY` while memory windows are bound to the region.
pub fn dereg(file: &dyn DeviceFile, handle: u32) -> Result<(), Errno> {
    destroy(file, method::MR_DESTROY, attr::destroy_mr::HANDLE, handle)
}

/// Registers `length` bytes of a dma-buf from `offset` on (REG_DMABUF_MR). For the device they
/// start at `iova`. Requires Linux 5.12; an older kernel ignores the descriptor.
///
/// # Safety
/// If this descriptor refers to a file, the caller may use that file.
pub unsafe fn reg_dmabuf(
    file: &dyn DeviceFile,
    pd: u32,
    dmabuf: RawFd,
    offset: u64,
    length: u64,
    iova: u64,
    access: AccessFlags,
) -> Result<Mr, Errno> {
    use attr::reg_dmabuf_mr as id;
    let (mut lkey, mut rkey) = (0_u32, 0_u32);
    let reply = Call::new(method::REG_DMABUF_MR)
        .new_handle(id::HANDLE)
        .output(id::RESP_LKEY, &mut lkey)
        .output(id::RESP_RKEY, &mut rkey)
        .handle(id::PD_HANDLE, pd)
        .input_u64(id::OFFSET, offset)
        .input_u64(id::LENGTH, length)
        .input_u64(id::IOVA, iova)
        // This descriptor, unlike others, is a plain 32-bit input.
        .input_u32(id::FD, dmabuf as u32)
        .input_u32(id::ACCESS_FLAGS, access.bits())
        .make(file)?;
    Ok(Mr { handle: reply.handle(id::HANDLE), lkey, rkey })
}

/// Registers `length` bytes of on-device memory from `offset` on (DM_MR_REG). `access` must include
/// `ZERO_BASED`.
pub fn reg_dm(
    file: &dyn DeviceFile,
    pd: u32,
    dm: u32,
    offset: u64,
    length: u64,
    access: AccessFlags,
) -> Result<Mr, Errno> {
    use attr::reg_dm_mr as id;
    let (mut lkey, mut rkey) = (0_u32, 0_u32);
    let reply = Call::new(method::DM_MR_REG)
        .new_handle(id::HANDLE)
        .output(id::RESP_LKEY, &mut lkey)
        .output(id::RESP_RKEY, &mut rkey)
        .handle(id::PD_HANDLE, pd)
        .handle(id::DM_HANDLE, dm)
        .input_u64(id::OFFSET, offset)
        .input_u64(id::LENGTH, length)
        .input_u32(id::ACCESS_FLAGS, access.bits())
        .make(file)?;
    Ok(Mr { handle: reply.handle(id::HANDLE), lkey, rkey })
}

/// Advises that pages of on-demand regions will soon be used (ADVISE_MR). With `flush`, waits for
/// them.
pub fn advise(
    file: &dyn DeviceFile,
    pd: u32,
    advice: Advice,
    flush: bool,
    ranges: &[Sge],
) -> Result<(), Errno> {
    use attr::advise_mr as id;
    Call::new(method::ADVISE_MR)
        .handle(id::PD_HANDLE, pd)
        .input_u64(id::ADVICE, u64::from(advice.raw()))
        .input_u32(id::FLAGS, u32::from(flush))
        .input(id::SGE_LIST, ranges)
        .make(file)
        .map(drop)
}

/// Queries a region (QUERY_MR).
pub fn query(file: &dyn DeviceFile, handle: u32) -> Result<MrInfo, Errno> {
    use attr::query_mr as id;
    let mut info = MrInfo { lkey: 0, rkey: 0, length: 0, iova: 0 };
    Call::new(method::QUERY_MR)
        .handle(id::HANDLE, handle)
        .output(id::RESP_LKEY, &mut info.lkey)
        .output(id::RESP_RKEY, &mut info.rkey)
        .output(id::RESP_LENGTH, &mut info.length)
        .output(id::RESP_IOVA, &mut info.iova)
        .optional()
        .make(file)?;
    Ok(info)
}
