//! A device file that has memory and UAR pages, and nothing else.

use mlx5_uapi::{
    Access, DeviceFile, Errno, EventFile, Mapping, MemoryRequest,
    ioctl::{AttrId, IoctlAttr, IoctlHeader, Method, attr, method},
    mlx5::UarType,
    page_size,
};
use std::{
    alloc::{Layout, alloc_zeroed, dealloc},
    os::fd::RawFd,
    ptr::NonNull,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
};

/// Gives memory and UAR pages, unless told not to, and counts them.
#[derive(Default)]
pub(crate) struct Memory {
    live: Arc<AtomicUsize>,
    refuse: AtomicBool,
    uars: AtomicUsize,
    blueflame_left: AtomicUsize,
}

impl Memory {
    /// Mappings that were not dropped.
    pub(crate) fn live(&self) -> usize {
        self.live.load(Relaxed)
    }

    /// UAR pages that were not given back.
    pub(crate) fn uars(&self) -> usize {
        self.uars.load(Relaxed)
    }

    pub(crate) fn refuse(&self, refuse: bool) {
        self.refuse.store(refuse, Relaxed);
    }

    /// How many BlueFlame pages it still has.
    pub(crate) fn set_blueflame_pages(&self, pages: usize) {
        self.blueflame_left.store(pages, Relaxed);
    }

    fn alloc_uar(&self, attrs: &mut [IoctlAttr]) -> Result<(), Errno> {
        use attr::uar_alloc as id;
        if find(attrs, id::TYPE).data == u64::from(UarType::BlueFlame.raw()) {
            let taken =
                self.blueflame_left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1));
            taken.map_err(|_| Errno::ENOMEM)?;
        }
        let number = self.uars.fetch_add(1, Relaxed) as u64;
        find(attrs, id::HANDLE).data = number;
        answer(attrs, id::MMAP_OFFSET, &(number * 4096).to_ne_bytes());
        answer(attrs, id::MMAP_LENGTH, &4096_u32.to_ne_bytes());
        answer(attrs, id::PAGE_ID, &(0x100 + number as u32).to_ne_bytes());
        Ok(())
    }
}

fn find(attrs: &mut [IoctlAttr], id: AttrId) -> &mut IoctlAttr {
    attrs.iter_mut().find(|attr| attr.attr_id == id.0).expect("the attribute is there")
}

fn answer(attrs: &mut [IoctlAttr], id: AttrId, bytes: &[u8]) {
    let attr = find(attrs, id);
    assert_eq!(usize::from(attr.len), bytes.len());
    let to = std::ptr::with_exposed_provenance_mut(attr.data as usize);
    // SAFETY: an output is an address that is writable for its length.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
}

struct Block {
    ptr: NonNull<u8>,
    layout: Layout,
    live: Arc<AtomicUsize>,
}

// SAFETY: owns its memory, and touches it only to free it.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

impl Drop for Block {
    fn drop(&mut self) {
        self.live.fetch_sub(1, Relaxed);
        // SAFETY: allocated with this layout, and freed once.
        unsafe { dealloc(self.ptr.as_ptr(), self.layout) };
    }
}

impl DeviceFile for Memory {
    unsafe fn ioctl(&self, header: *mut IoctlHeader) -> Result<(), Errno> {
        // SAFETY: the caller's contract is that of `attributes`, and nobody else has the frame.
        let (head, attrs) = unsafe { (*header, &mut *IoctlHeader::attributes(header)) };
        match Method::of(&head) {
            method::UAR_ALLOC => self.alloc_uar(attrs),
            method::UAR_DESTROY => {
                self.uars.fetch_sub(1, Relaxed);
                Ok(())
            }
            _ => Err(Errno::ENOTTY),
        }
    }

    fn map(&self, _: u64, len: usize, _: Access) -> Result<Mapping, Errno> {
        self.allocate(&MemoryRequest::new(len))
    }

    fn allocate(&self, request: &MemoryRequest) -> Result<Mapping, Errno> {
        if self.refuse.load(Relaxed) {
            return Err(Errno::ENOMEM);
        }
        let page = page_size();
        let len = request.len.next_multiple_of(page);
        let layout = Layout::from_size_align(len, request.align.max(page)).unwrap();
        // SAFETY: the length is not zero.
        let ptr = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(Errno::ENOMEM)?;
        self.live.fetch_add(1, Relaxed);
        let owner = Box::new(Block { ptr, layout, live: Arc::clone(&self.live) });
        // SAFETY: the block is nobody else's, and lives until `owner` is dropped.
        Ok(unsafe { Mapping::new(ptr, len, owner) })
    }

    fn event_file(&self, _: RawFd) -> Result<Box<dyn EventFile>, Errno> {
        Err(Errno::ENOTTY)
    }
}
