//! Memory on the device.

use std::sync::Arc;

use mlx5_prm::cmd::CommandInput;
use mlx5_prm::cmd::mkey::AllocMemicIn;
use mlx5_uapi::ioctl::{attr, object};
use mlx5_uapi::mlx5::DmType;
use mlx5_uapi::{Errno, Mapping};

use crate::kernel::decode::Request;
use crate::kernel::file::{OpenFile, State};
use crate::kernel::objects::dm::{DevicePages, LOG_PAGE};
use crate::kernel::objects::{Body, Dm, Objects};

/// Logarithm of what sizes are rounded up to, and of the unit of alignments:
/// `MLX5_MEMIC_BASE_ALIGN`.
const LOG_BASE: u32 = 6;

fn free_index(objects: &Objects) -> u32 {
    let dms = objects.of_kind(object::DM).into_iter();
    let used: Vec<u32> =
        dms.filter_map(|handle| objects.dm(handle).ok().map(|dm| dm.index)).collect();
    (0..).find(|index| !used.contains(index)).unwrap_or(0)
}

pub(crate) fn alloc(
    file: &OpenFile,
    state: &mut State,
    request: &mut Request<'_>,
) -> Result<(), Errno> {
    use attr::{alloc_dm as id, mlx5_alloc_dm as mlx5_id};
    let hca = &file.hca;
    if request.number(mlx5_id::REQ_TYPE)? != u64::from(DmType::Memic.raw()) {
        return Err(Errno::EOPNOTSUPP);
    }
    let length = request.number(id::LENGTH)?;
    let log_align = request.number_u32(id::ALIGNMENT)?;
    if length == 0 {
        return Err(Errno::EINVAL);
    }
    if log_align > LOG_PAGE {
        return Err(Errno::EINVAL);
    }
    let bytes = length.checked_next_multiple_of(1 << LOG_BASE).ok_or(Errno::EINVAL)?;
    let count = bytes.div_ceil(1 << LOG_PAGE);
    let first = hca.take_pages(count).ok_or(Errno::ENOMEM)?;
    let start = hca.device_memory.address() + (first << LOG_PAGE);
    let mut input = AllocMemicIn::request();
    input
        .set_log_memic_addr_alignment(log_align.saturating_sub(LOG_BASE))
        .set_range_start_addr(start)
        .set_range_size((count << LOG_PAGE) as u32)
        .set_memic_size(bytes as u32);
    if let Err(errno) = hca.command(&input) {
        hca.give_back_pages(first, count);
        return Err(errno);
    }
    let pages = Arc::new(DevicePages { hca: Arc::clone(hca), first, bytes });
    let index = free_index(&state.objects);
    let handle = state.objects.add(Body::Dm(Dm { pages, length, index }), &[]);
    request.made(id::HANDLE, handle.into());
    // A piece starts on a page: its offset is zero.
    request.answer(mlx5_id::RESP_START_OFFSET, &0u64)?;
    request.answer(mlx5_id::RESP_PAGE_INDEX, &(index as u16))
}

/// Returns a piece's mapping offset and length to a program that imported its handle.
pub(crate) fn query(
    _file: &OpenFile,
    state: &mut State,
    request: &mut Request<'_>,
) -> Result<(), Errno> {
    use attr::query_dm as id;
    let dm = state.objects.dm(request.handle(id::REQ_HANDLE)?)?;
    let (index, length) = (dm.index as u16, dm.length);
    request.answer(id::RESP_START_OFFSET, &0u64)?;
    request.answer(id::RESP_PAGE_INDEX, &index)?;
    request.answer(id::RESP_LENGTH, &length)
}

/// The owner of a mapping: it holds the piece and the file.
struct Mapped {
    _pages: Arc<DevicePages>,
    _file: Arc<OpenFile>,
}

/// Maps a piece.
pub(crate) fn map(
    file: &Arc<OpenFile>,
    pages: Arc<DevicePages>,
    length: usize,
) -> Result<Mapping, Errno> {
    if length as u64 != pages.pages() << LOG_PAGE {
        return Err(Errno::EINVAL);
    }
    let start = file.hca.device_memory.as_non_null();
    // SAFETY: the piece's pages lie inside the device's memory.
    let start = unsafe { start.add((pages.first << LOG_PAGE) as usize) };
    let owner = Mapped { _pages: pages, _file: Arc::clone(file) };
    // SAFETY: `owner` holds the pages. Only other mappings of the same piece share them, and no
    // code makes references to them.
    Ok(unsafe { Mapping::new(start, length, Box::new(owner)) })
}
