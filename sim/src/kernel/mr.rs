//! Memory regions and windows.

use mlx5_prm::cmd::CommandInput;
use mlx5_prm::cmd::mkey::{CreateMkeyIn, MkeyAccessMode, MkeyContext};
use mlx5_uapi::Errno;
use mlx5_uapi::ioctl::attr;
use mlx5_uapi::verbs::{AccessFlags, MwType, ReregFlags};
use mlx5_uapi::write_cmd::{AllocMw, AllocMwResp, RegMr, RegMrResp, ReregMr, ReregMrResp};

use crate::kernel::current::is_mapped;
use crate::kernel::decode::Request;
use crate::kernel::file::{OpenFile, State};
use crate::kernel::hca::Hca;
use crate::kernel::memory::pages;
use crate::kernel::objects::mr::destroy_key;
use crate::kernel::objects::{Body, Mr, Mw};
use crate::kernel::write_call::WriteCall;

/// Low bits of a translation entry: the device may read and write the page.
const ENTRY_RIGHTS: u64 = 0b11;
/// A key of any queue pair.
const ANY_QP: u32 = 0xff_ffff;
/// Logarithms of the pages in a region's page list. The larger one is for regions that are large,
/// and aligned alike in both address spaces.
const LOG_PAGE: u32 = 12;
const LOG_LARGE_PAGE: u32 = 21;
/// Access flags that older kernels may ignore.
const OPTIONAL_FLAGS: u32 = 0x3ff0_0000;
/// Octwords of translation entries of a window: its own, and those that fill the line.
const WINDOW_OCTWORDS: u32 = 4;
/// Entries of a page table in an octword.
const ENTRIES_IN_OCTWORD: usize = 2;

/// Checks access flags as `ib_check_mr_access` does; there is no on-demand paging.
fn check_access(flags: u32) -> Result<AccessFlags, Errno> {
    let known = AccessFlags::from_bits_truncate(flags);
    let remote_writes = AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_ATOMIC;
    if flags & !(AccessFlags::all().bits() | OPTIONAL_FLAGS) != 0
        || known.intersects(remote_writes) && !known.contains(AccessFlags::LOCAL_WRITE)
        || known.contains(AccessFlags::ON_DEMAND)
    {
        return Err(Errno::EINVAL);
    }
    Ok(known)
}

/// Checks that an address range is valid, and mapped.
fn check_range(start: u64, length: u64, iova: u64) -> Result<(), Errno> {
    let page = (1 << LOG_PAGE) - 1;
    if start & page != iova & page
        || length == 0
        || start.checked_add(length).is_none()
        || iova.checked_add(length).is_none()
    {
        return Err(Errno::EINVAL);
    }
    if is_mapped(start, length) { Ok(()) } else { Err(Errno::EFAULT) }
}

fn set_rights(mkc: &mut MkeyContext, access: AccessFlags) {
    let relaxed = access.contains(AccessFlags::RELAXED_ORDERING);
    mkc.set_lr(true)
        .set_lw(access.contains(AccessFlags::LOCAL_WRITE))
        .set_rr(access.contains(AccessFlags::REMOTE_READ))
        .set_rw(access.contains(AccessFlags::REMOTE_WRITE))
        .set_a(access.contains(AccessFlags::REMOTE_ATOMIC))
        .set_relaxed_ordering_write(relaxed)
        .set_relaxed_ordering_read(relaxed);
}

/// Makes the key of a region whose other fields are set.
fn create_key(hca: &Hca, uid: u32, pdn: u32, mr: &Mr) -> Result<u32, Errno> {
    let large = 1 << LOG_LARGE_PAGE;
    let alike = mr.start % large == mr.iova % large;
    let log_page = if mr.length >= large && alike { LOG_LARGE_PAGE } else { LOG_PAGE };
    let (mut list, _) = pages(mr.start, mr.length, log_page);
    for page in &mut list {
        *page |= ENTRY_RIGHTS;
    }
    let octwords = list.len().div_ceil(ENTRIES_IN_OCTWORD);
    list.resize(octwords * ENTRIES_IN_OCTWORD, 0);
    let tag = hca.key_tag();
    let mut input = CreateMkeyIn::request();
    input.set_uid(uid).set_pg_access(true).set_translations_octword_actual_size(octwords as u32);
    input
        .mkc_mut()
        .set_access_mode(MkeyAccessMode::MTT)
        .set_umr_en(true)
        .set_qpn(ANY_QP)
        .set_mkey_7_0(tag.into())
        .set_pd(pdn)
        .set_start_addr(mr.iova)
        .set_len(mr.length)
        .set_translations_octword_size(octwords as u32)
        .set_log_page_size(log_page);
    set_rights(input.mkc_mut(), mr.access);
    let out = hca.command_with(&input, &list)?;
    Ok(out.mkey_index() << 8 | u32::from(tag))
}

pub(crate) fn reg(
    file: &OpenFile,
    state: &mut State,
    call: &mut WriteCall<'_, '_>,
) -> Result<(), Errno> {
    let uid = state.context()?.uid;
    let request: RegMr = call.request();
    let pdn = state.objects.pdn(request.pd_handle)?;
    let access = check_access(request.access_flags)?;
    check_range(request.start, request.length, request.hca_va)?;
    let mut mr = Mr {
        key: 0,
        start: request.start,
        length: request.length,
        iova: request.hca_va,
        access,
        pd: request.pd_handle,
    };
    mr.key = create_key(&file.hca, uid, pdn, &mr)?;
    let handle = state.objects.add(Body::Mr(mr), &[mr.pd]);
    call.respond(&RegMrResp { mr_handle: handle, lkey: mr.key, rkey: mr.key })
}

/// Changes rights and domain under the same key; other memory gets another key. If it fails, the
/// old region is unchanged.
pub(crate) fn rereg(
    file: &OpenFile,
    state: &mut State,
    call: &mut WriteCall<'_, '_>,
) -> Result<(), Errno> {
    let uid = state.context()?.uid;
    let request: ReregMr = call.request();
    let flags = ReregFlags::from_bits(request.flags).filter(|flags| !flags.is_empty());
    let flags = flags.ok_or(Errno::EINVAL)?;
    let old = *state.objects.mr(request.mr_handle)?;
    if old.access.contains(AccessFlags::ZERO_BASED) {
        // The address range of device memory cannot change.
        return Err(Errno::EINVAL);
    }
    let mut mr = old;
    if flags.contains(ReregFlags::TRANSLATION) {
        check_range(request.start, request.length, request.hca_va)?;
        (mr.start, mr.length, mr.iova) = (request.start, request.length, request.hca_va);
    }
    if flags.contains(ReregFlags::ACCESS) {
        mr.access = check_access(request.access_flags)?;
    }
    if flags.contains(ReregFlags::PD) {
        mr.pd = request.pd_handle;
    }
    let pdn = state.objects.pdn(mr.pd)?;
    if !state.objects.is_free(request.mr_handle) {
        return Err(Errno::EBUSY);
    }
    if flags.contains(ReregFlags::TRANSLATION) {
        mr.key = create_key(&file.hca, uid, pdn, &mr)?;
        if let Err(errno) = destroy_key(&file.hca, old.key) {
            destroy_key(&file.hca, mr.key)?;
            return Err(errno);
        }
    } else {
        file.hca.change_mkey(mr.key >> 8, |mkc| {
            mkc.set_pd(pdn);
            set_rights(mkc, mr.access);
        })?;
    }
    *state.objects.mr_mut(request.mr_handle)? = mr;
    state.objects.adopt(request.mr_handle, old.pd, mr.pd);
    call.respond(&ReregMrResp { lkey: mr.key, rkey: mr.key })
}

pub(crate) fn query(
    _file: &OpenFile,
    state: &mut State,
    request: &mut Request<'_>,
) -> Result<(), Errno> {
    use attr::query_mr as id;
    let mr = *state.objects.mr(request.handle(id::HANDLE)?)?;
    request.answer(id::RESP_LKEY, &mr.key)?;
    request.answer(id::RESP_RKEY, &mr.key)?;
    request.answer(id::RESP_LENGTH, &mr.length)?;
    request.answer(id::RESP_IOVA, &mr.iova)
}

/// Rights that a region of device memory can have.
const DEVICE_MEMORY_RIGHTS: AccessFlags = AccessFlags::LOCAL_WRITE
    .union(AccessFlags::REMOTE_READ)
    .union(AccessFlags::REMOTE_WRITE)
    .union(AccessFlags::REMOTE_ATOMIC)
    .union(AccessFlags::ZERO_BASED);

/// Registers memory on the device, whose addresses count from zero.
pub(crate) fn reg_dm(
    file: &OpenFile,
    state: &mut State,
    request: &mut Request<'_>,
) -> Result<(), Errno> {
    use attr::reg_dm_mr as id;
    let uid = state.context()?.uid;
    let (pd, dm) = (request.handle(id::PD_HANDLE)?, request.handle(id::DM_HANDLE)?);
    let (offset, length) = (request.number(id::OFFSET)?, request.number(id::LENGTH)?);
    let access = check_access(request.number_u32(id::ACCESS_FLAGS)?)?;
    if !DEVICE_MEMORY_RIGHTS.contains(access) || !access.contains(AccessFlags::ZERO_BASED) {
        return Err(Errno::EINVAL);
    }
    let memory = state.objects.dm(dm)?;
    if offset.checked_add(length).is_none_or(|end| end > memory.length) {
        return Err(Errno::EINVAL);
    }
    let tag = file.hca.key_tag();
    let mut input = CreateMkeyIn::request();
    input.set_uid(uid);
    let mkc = input.mkc_mut();
    mkc.set_access_mode(MkeyAccessMode::MEMIC)
        .set_qpn(ANY_QP)
        .set_mkey_7_0(tag.into())
        .set_pd(state.objects.pdn(pd)?)
        .set_start_addr(memory.pages.address() + offset)
        .set_len(length);
    set_rights(mkc, access);
    let out = file.hca.command(&input)?;
    let key = out.mkey_index() << 8 | u32::from(tag);
    let mr = Mr { key, start: 0, length, iova: 0, access, pd };
    let handle = state.objects.add(Body::Mr(mr), &[pd, dm]);
    request.made(id::HANDLE, handle.into());
    request.answer(id::RESP_LKEY, &key)?;
    request.answer(id::RESP_RKEY, &key)
}

/// Methods for dma-buf and on-demand paging, which the device does not support.
pub(crate) fn unsupported(
    _file: &OpenFile,
    _state: &mut State,
    _request: &mut Request<'_>,
) -> Result<(), Errno> {
    Err(Errno::EOPNOTSUPP)
}

/// A window's key is free until a request binds it.
pub(crate) fn alloc_window(
    file: &OpenFile,
    state: &mut State,
    call: &mut WriteCall<'_, '_>,
) -> Result<(), Errno> {
    let uid = state.context()?.uid;
    let request: AllocMw = call.request();
    let kind = MwType::from_raw(request.mw_type).ok_or(Errno::EINVAL)?;
    let pdn = state.objects.pdn(request.pd_handle)?;
    let tag = file.hca.key_tag();
    let mut input = CreateMkeyIn::request();
    input.set_uid(uid);
    input
        .mkc_mut()
        .set_free(true)
        .set_access_mode(MkeyAccessMode::KLMS)
        .set_lr(true)
        .set_umr_en(true)
        .set_en_rinval(kind == MwType::Type2)
        .set_qpn(ANY_QP)
        .set_mkey_7_0(tag.into())
        .set_pd(pdn)
        .set_translations_octword_size(WINDOW_OCTWORDS);
    let out = file.hca.command(&input)?;
    let key = out.mkey_index() << 8 | u32::from(tag);
    let handle = state.objects.add(Body::Mw(Mw { key }), &[request.pd_handle]);
    call.respond(&AllocMwResp { mw_handle: handle, rkey: key })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remote_writing_needs_local_writing() {
        let remote = AccessFlags::REMOTE_WRITE;
        assert_eq!(check_access(remote.bits()), Err(Errno::EINVAL));
        let both = remote | AccessFlags::LOCAL_WRITE;
        assert_eq!(check_access(both.bits()), Ok(both));
        assert_eq!(check_access(AccessFlags::REMOTE_ATOMIC.bits()), Err(Errno::EINVAL));
        assert!(check_access(0).is_ok());
    }

    #[test]
    fn unknown_flags_are_refused_unless_they_are_optional() {
        assert_eq!(check_access(1 << 15), Err(Errno::EINVAL));
        assert!(check_access(1 << 25).is_ok());
        assert!(check_access(AccessFlags::RELAXED_ORDERING.bits()).is_ok());
        assert_eq!(check_access(AccessFlags::ON_DEMAND.bits()), Err(Errno::EINVAL));
    }
}
