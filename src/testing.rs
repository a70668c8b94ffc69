//! A device file with memory and UAR pages only, a kernel that alters the calls of another, and a
//! device that acts between two steps of the driver.

use mlx5_uapi::{
    Access, AllocateError, CmFile, DeviceFile, Errno, EventFile, Kernel, Mapping, MemoryRequest,
    ioctl::{AttrId, IoctlAttr, IoctlHeader, Method, attr, method},
    mlx5::UarType,
    page_size,
};
use std::{
    alloc::{Layout, alloc_zeroed, dealloc},
    cell::RefCell,
    os::fd::RawFd,
    ptr::NonNull,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
};

/// Allocates and counts memory and UAR pages; can be set to refuse.
#[derive(Default)]
pub(crate) struct Memory {
    live: Arc<AtomicUsize>,
    refuse: AtomicBool,
    uars: AtomicUsize,
    blueflame_left: AtomicUsize,
}

impl Memory {
    /// Number of mappings that were not dropped.
    pub(crate) fn live(&self) -> usize {
        self.live.load(Relaxed)
    }

    /// Number of UAR pages that were not freed.
    pub(crate) fn uars(&self) -> usize {
        self.uars.load(Relaxed)
    }

    pub(crate) fn refuse(&self, refuse: bool) {
        self.refuse.store(refuse, Relaxed);
    }

    /// Sets the number of BlueFlame pages left.
    pub(crate) fn set_blueflame_pages(&self, pages: usize) {
        self.blueflame_left.store(pages, Relaxed);
    }

    #[allow(deprecated, reason = "the new name, `try_update`, is younger than the oldest compiler")]
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
    // SAFETY: the caller of `ioctl` guarantees that an output address is writable for its length.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
}

struct Block {
    ptr: NonNull<u8>,
    layout: Layout,
    live: Arc<AtomicUsize>,
}

// SAFETY: a block owns its memory and accesses it only to free it.
unsafe impl Send for Block {}
// SAFETY: a shared reference to a block accesses no memory.
unsafe impl Sync for Block {}

impl Drop for Block {
    fn drop(&mut self) {
        self.live.fetch_sub(1, Relaxed);
        // SAFETY: the memory was allocated with this layout and is freed once.
        unsafe { dealloc(self.ptr.as_ptr(), self.layout) };
    }
}

impl DeviceFile for Memory {
    unsafe fn ioctl(&self, header: *mut IoctlHeader) -> Result<(), Errno> {
        // SAFETY: the caller of `ioctl` promises a valid frame, as `attributes` requires, and
        // nothing else accesses it.
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
        Ok(self.allocate(&MemoryRequest::new(len))?)
    }

    fn allocate(&self, request: &MemoryRequest) -> Result<Mapping, AllocateError> {
        if self.refuse.load(Relaxed) {
            return Err(Errno::ENOMEM.into());
        }
        let page = page_size();
        let len = request.len.next_multiple_of(page);
        let layout = Layout::from_size_align(len, request.align.max(page)).unwrap();
        // SAFETY: the size of the layout is not zero.
        let ptr = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(Errno::ENOMEM)?;
        self.live.fetch_add(1, Relaxed);
        let owner = Box::new(Block { ptr, layout, live: Arc::clone(&self.live) });
        // SAFETY: the block owns the bytes, and lives until `owner` is dropped.
        Ok(unsafe { Mapping::new(ptr, len, owner) })
    }

    unsafe fn event_file(&self, _: RawFd) -> Result<Box<dyn EventFile>, Errno> {
        Err(Errno::ENOTTY)
    }
}

/// Handles a call: may refuse it, pass it on, and change the answer.
type Alter = dyn Fn(&mut AlteredCall<'_>) -> Result<(), Errno> + Send + Sync;

/// A call on its way to another kernel.
pub(crate) struct AlteredCall<'a> {
    pub(crate) method: Method,
    header: *mut IoctlHeader,
    file: &'a dyn DeviceFile,
}

impl AlteredCall<'_> {
    /// Passes the call on to the other kernel.
    pub(crate) fn pass(&mut self) -> Result<(), Errno> {
        // SAFETY: `header` is that of the current call, which the caller of `DeviceFile::ioctl`
        // promised to be valid.
        unsafe { self.file.ioctl(self.header) }
    }

    /// Returns the input of an attribute, which must be longer than eight bytes.
    pub(crate) fn input(&mut self, id: AttrId) -> &[u8] {
        let (start, len) = self.memory_of(id);
        assert!(len > size_of::<u64>(), "a shorter one stands in the attribute itself");
        // SAFETY: an input address is readable for its length during the call.
        unsafe { std::slice::from_raw_parts(start, len) }
    }

    /// Returns the value in an attribute itself: a handle, or an input of at most eight bytes.
    pub(crate) fn number(&self, id: AttrId) -> Option<u64> {
        // SAFETY: the caller of `DeviceFile::ioctl` promised a valid `header`, and nothing else
        // accesses the frame.
        let attrs = unsafe { &*IoctlHeader::attributes(self.header) };
        attrs.iter().find(|attr| attr.attr_id == id.0).map(|attr| attr.data)
    }

    /// Answers with the handle of a new object.
    pub(crate) fn made(&mut self, id: AttrId, handle: u32) {
        // SAFETY: the caller of `DeviceFile::ioctl` promised a valid `header`, and nothing else
        // accesses the frame.
        let attrs = unsafe { &mut *IoctlHeader::attributes(self.header) };
        find(attrs, id).data = handle.into();
    }

    /// Returns the output of an attribute.
    pub(crate) fn output(&mut self, id: AttrId) -> &mut [u8] {
        let (start, len) = self.memory_of(id);
        // SAFETY: an output address is writable for its length during the call.
        unsafe { std::slice::from_raw_parts_mut(start, len) }
    }

    fn memory_of(&mut self, id: AttrId) -> (*mut u8, usize) {
        // SAFETY: the caller of `DeviceFile::ioctl` promised a valid `header`, and nothing else
        // accesses the frame.
        let attrs = unsafe { &mut *IoctlHeader::attributes(self.header) };
        let attr = find(attrs, id);
        (std::ptr::with_exposed_provenance_mut(attr.data as usize), attr.len.into())
    }
}

/// Another kernel with altered calls. Counts the memory that it allocates.
pub(crate) struct Altered {
    kernel: Arc<dyn Kernel>,
    alter: Arc<Alter>,
    allocated: Arc<AtomicUsize>,
    keep_files: AtomicBool,
    kept: Mutex<Vec<Arc<dyn DeviceFile>>>,
}

impl Altered {
    pub(crate) fn new(
        kernel: Arc<dyn Kernel>,
        alter: impl Fn(&mut AlteredCall<'_>) -> Result<(), Errno> + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            kernel,
            alter: Arc::new(alter),
            allocated: Arc::default(),
            keep_files: AtomicBool::new(false),
            kept: Mutex::default(),
        })
    }

    /// Returns the number of allocated bytes that were not freed.
    pub(crate) fn allocated(&self) -> usize {
        self.allocated.load(Relaxed)
    }

    /// Sets whether files that are opened from now on are kept open.
    pub(crate) fn keep_files(&self, keep: bool) {
        self.keep_files.store(keep, Relaxed);
    }
}

/// A mapping that is counted.
struct Counted {
    mapping: Mapping,
    allocated: Arc<AtomicUsize>,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.allocated.fetch_sub(self.mapping.len(), Relaxed);
    }
}

impl Kernel for Altered {
    fn sysfs_list(&self, path: &str) -> Result<Vec<String>, Errno> {
        self.kernel.sysfs_list(path)
    }

    fn sysfs_read(&self, path: &str) -> Result<String, Errno> {
        self.kernel.sysfs_read(path)
    }

    fn sysfs_link(&self, path: &str) -> Result<String, Errno> {
        self.kernel.sysfs_link(path)
    }

    fn open(&self, node: &str, dev: (u32, u32)) -> Result<Arc<dyn DeviceFile>, Errno> {
        let file = self.kernel.open(node, dev)?;
        let file: Arc<dyn DeviceFile> = Arc::new(AlteredFile {
            file,
            alter: Arc::clone(&self.alter),
            allocated: Arc::clone(&self.allocated),
        });
        if self.keep_files.load(Relaxed) {
            self.kept.lock().expect("no panic").push(Arc::clone(&file));
        }
        Ok(file)
    }

    fn uevents(&self) -> Result<Box<dyn EventFile>, Errno> {
        self.kernel.uevents()
    }

    fn rdma_cm(&self) -> Result<Arc<dyn CmFile>, Errno> {
        self.kernel.rdma_cm()
    }
}

struct AlteredFile {
    file: Arc<dyn DeviceFile>,
    alter: Arc<Alter>,
    allocated: Arc<AtomicUsize>,
}

impl DeviceFile for AlteredFile {
    unsafe fn ioctl(&self, header: *mut IoctlHeader) -> Result<(), Errno> {
        // SAFETY: the caller of `ioctl` promises a valid `header`.
        let method = Method::of(unsafe { &*header });
        (self.alter)(&mut AlteredCall { method, header, file: &*self.file })
    }

    fn map(&self, offset: u64, len: usize, access: Access) -> Result<Mapping, Errno> {
        self.file.map(offset, len, access)
    }

    fn allocate(&self, request: &MemoryRequest) -> Result<Mapping, AllocateError> {
        let mapping = self.file.allocate(request)?;
        let (start, len) = (mapping.as_non_null(), mapping.len());
        self.allocated.fetch_add(len, Relaxed);
        let owner = Box::new(Counted { mapping, allocated: Arc::clone(&self.allocated) });
        // SAFETY: the bytes are those of the mapping, which the owner keeps.
        Ok(unsafe { Mapping::new(start, len, owner) })
    }

    unsafe fn event_file(&self, fd: RawFd) -> Result<Box<dyn EventFile>, Errno> {
        // SAFETY: the caller promises that an ioctl of this file, passed on to `self.file`, created
        // `fd`.
        unsafe { self.file.event_file(fd) }
    }
}

thread_local! {
    /// Called at each step of this thread.
    static STEP: RefCell<Option<Box<dyn FnMut()>>> = const { RefCell::new(None) };
}

/// A point at which a device may write completions that the code has not looked at.
pub(crate) fn step() {
    // Taken out: `act` must not call itself.
    if let Some(mut act) = STEP.take() {
        act();
        STEP.set(Some(act));
    }
}

/// Runs `work` while `act` is called at each [`step`] of this thread.
pub(crate) fn with_steps<R>(act: impl FnMut() + 'static, work: impl FnOnce() -> R) -> R {
    STEP.set(Some(Box::new(act)));
    let result = work();
    STEP.set(None);
    result
}

/// A kernel that takes a step before each call, and one after it.
pub(crate) fn stepping(kernel: Arc<dyn Kernel>) -> Arc<Altered> {
    Altered::new(kernel, |call| {
        step();
        let result = call.pass();
        step();
        result
    })
}
