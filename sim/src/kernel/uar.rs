//! UAR pages: plain memory in which the engine looks for doorbells.

use std::sync::Arc;

use mlx5_uapi::ioctl::attr;
use mlx5_uapi::mlx5::UarType;
use mlx5_uapi::{Errno, Mapping};

use crate::kernel::decode::Request;
use crate::kernel::file::{OpenFile, State};
use crate::kernel::objects::uar::{PAGE, UarPage};
use crate::kernel::objects::{Body, Objects, UarObject};

fn free_entry(objects: &Objects) -> u32 {
    let used: Vec<u32> = objects
        .of_kind(mlx5_uapi::ioctl::object::UAR)
        .into_iter()
        .filter_map(|handle| objects.uar(handle).ok().map(|uar| uar.entry))
        .collect();
    (0..).find(|entry| !used.contains(entry)).unwrap_or(0)
}

pub(crate) fn alloc(
    file: &OpenFile,
    state: &mut State,
    request: &mut Request<'_>,
) -> Result<(), Errno> {
    use attr::uar_alloc as id;
    let kind = u8::try_from(request.number(id::TYPE)?).ok().and_then(UarType::from_raw);
    match kind.ok_or(Errno::EOPNOTSUPP)? {
        UarType::BlueFlame if !file.hca.caps.bf() => return Err(Errno::EOPNOTSUPP),
        UarType::BlueFlame | UarType::NonCached => {}
    }
    let memory = file.hca.bar.map(PAGE)?;
    let index = file.hca.alloc_uar(memory.address())?;
    let page = Arc::new(UarPage { hca: Arc::clone(&file.hca), index, memory: Some(memory) });
    let uar = UarObject { page, entry: free_entry(&state.objects) };
    let offset = uar.mmap_offset();
    let handle = state.objects.add(Body::Uar(uar), &[]);
    request.made(id::HANDLE, handle.into());
    request.answer(id::MMAP_OFFSET, &offset)?;
    request.answer(id::MMAP_LENGTH, &(PAGE as u32))?;
    request.answer(id::PAGE_ID, &index)
}

/// The owner of a mapping: it holds the page and the file.
struct Mapped {
    _page: Arc<UarPage>,
    _file: Arc<OpenFile>,
}

/// Maps a page once more.
pub(crate) fn map(
    file: &Arc<OpenFile>,
    page: Arc<UarPage>,
    length: usize,
) -> Result<Mapping, Errno> {
    let memory = page.memory.as_ref().ok_or(Errno::EINVAL)?;
    if length != PAGE {
        return Err(Errno::EINVAL);
    }
    let start = memory.as_non_null();
    let owner = Mapped { _page: page, _file: Arc::clone(file) };
    // SAFETY: `owner` holds the page, which stays mapped while it lives. All mappings of the page
    // share its memory, as those of a device page do, and no code makes references to it.
    Ok(unsafe { Mapping::new(start, length, Box::new(owner)) })
}
