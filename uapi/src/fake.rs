//! A device file that follows a script, to test the encoding of calls.

use std::{
    collections::VecDeque,
    os::fd::{AsFd, BorrowedFd, RawFd},
    sync::Mutex,
};

use crate::{
    AllocateError, Errno,
    ioctl::{AttrFlags, AttrId, IoctlAttr, IoctlHeader, Method, RDMA_DRIVER_MLX5},
    kernel::{Access, DeviceFile, EventFile, Mapping, MemoryRequest},
};

type Step = Box<dyn FnOnce(&mut Received<'_>) -> Result<(), Errno> + Send>;

/// Answers the n-th ioctl with the n-th step; fails the test if there is no such step.
#[derive(Default)]
pub(crate) struct Script {
    steps: Mutex<VecDeque<Step>>,
}

impl Script {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Adds a step.
    pub(crate) fn then(
        self,
        step: impl FnOnce(&mut Received<'_>) -> Result<(), Errno> + Send + 'static,
    ) -> Self {
        self.steps.lock().unwrap().push_back(Box::new(step));
        self
    }

    /// Adds `times` steps that fail.
    pub(crate) fn then_fail(mut self, times: usize, errno: Errno) -> Self {
        for _ in 0..times {
            self = self.then(move |_| Err(errno));
        }
        self
    }

    /// Fails the test if steps are left.
    pub(crate) fn done(&self) {
        assert_eq!(self.steps.lock().unwrap().len(), 0, "steps left");
    }
}

impl DeviceFile for Script {
    unsafe fn ioctl(&self, header: *mut IoctlHeader) -> Result<(), Errno> {
        // SAFETY: the caller's contract includes that of `attributes`, and nothing else accesses
        // the frame during the call.
        let (head, attrs) = unsafe { (*header, &mut *IoctlHeader::attributes(header)) };
        assert_eq!(usize::from(head.length), 24 + 16 * attrs.len());
        assert_eq!(head.driver_id, RDMA_DRIVER_MLX5);
        assert_eq!((head.reserved1, head.reserved2), (0, 0));
        let step = self.steps.lock().unwrap().pop_front().expect("a call too many");
        step(&mut Received { method: Method::of(&head), attrs })
    }

    fn map(&self, _: u64, _: usize, _: Access) -> Result<Mapping, Errno> {
        Err(Errno::ENODEV)
    }

    fn allocate(&self, _: &MemoryRequest) -> Result<Mapping, AllocateError> {
        Err(Errno::ENOMEM.into())
    }

    unsafe fn event_file(&self, fd: RawFd) -> Result<Box<dyn EventFile>, Errno> {
        Ok(Box::new(Numbered { fd }))
    }
}

/// An event file that returns its own number when read.
struct Numbered {
    fd: RawFd,
}

impl AsFd for Numbered {
    fn as_fd(&self) -> BorrowedFd<'_> {
        unreachable!("there is no descriptor")
    }
}

impl EventFile for Numbered {
    fn read(&self, buf: &mut [u8]) -> Result<usize, Errno> {
        let number = self.fd.to_ne_bytes();
        buf[..4].copy_from_slice(&number);
        Ok(buf.len())
    }
}

/// A call as the kernel receives it.
pub(crate) struct Received<'a> {
    pub(crate) method: Method,
    attrs: &'a mut [IoctlAttr],
}

impl Received<'_> {
    pub(crate) fn ids(&self) -> Vec<u16> {
        let mut ids: Vec<u16> = self.attrs.iter().map(|attr| attr.attr_id).collect();
        ids.sort_unstable();
        ids
    }

    pub(crate) fn attr(&self, id: AttrId) -> IoctlAttr {
        *self.attrs.iter().find(|attr| attr.attr_id == id.0).expect("the attribute is there")
    }

    /// Returns the bytes of an input, read from the address that the kernel would use.
    pub(crate) fn input(&self, id: AttrId) -> Vec<u8> {
        let attr = self.attr(id);
        let len = usize::from(attr.len);
        if len <= 8 {
            return attr.data.to_ne_bytes()[..len].to_vec();
        }
        // SAFETY: a longer input is an address that is readable for its length.
        unsafe { core::slice::from_raw_parts(attr.data as usize as *const u8, len) }.to_vec()
    }

    pub(crate) fn u32(&self, id: AttrId) -> u32 {
        u32::from_ne_bytes(self.input(id).try_into().expect("four bytes"))
    }

    pub(crate) fn u64(&self, id: AttrId) -> u64 {
        u64::from_ne_bytes(self.input(id).try_into().expect("eight bytes"))
    }

    /// Returns the number of a handle or descriptor, whose length is zero.
    pub(crate) fn object(&self, id: AttrId) -> i64 {
        let attr = self.attr(id);
        assert_eq!(attr.len, 0);
        attr.data as i64
    }

    /// Returns the size of an output.
    pub(crate) fn room(&self, id: AttrId) -> usize {
        usize::from(self.attr(id).len)
    }

    /// Writes an output, truncated to its size.
    pub(crate) fn answer(&mut self, id: AttrId, bytes: &[u8]) {
        let attr = self.attrs.iter_mut().find(|attr| attr.attr_id == id.0).expect("an output");
        let len = bytes.len().min(usize::from(attr.len));
        // SAFETY: an output is an address that is writable for its length, and `len` is at most
        // that.
        unsafe {
            core::ptr::copy_nonoverlapping(bytes.as_ptr(), attr.data as usize as *mut u8, len)
        }
        attr.flags |= AttrFlags::VALID_OUTPUT.bits();
    }

    /// Writes the number of a new object.
    pub(crate) fn made(&mut self, id: AttrId, number: u64) {
        let attr = self.attrs.iter_mut().find(|attr| attr.attr_id == id.0).expect("a new object");
        attr.data = number;
    }
}
