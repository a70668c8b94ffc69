//! Encoding of one ioctl, on the stack.

use core::marker::PhantomData;
use std::os::fd::RawFd;

use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::{
    Errno,
    ioctl::{AttrFlags, AttrId, IoctlAttr, IoctlHeader, Method, RDMA_DRIVER_MLX5, attr},
    kernel::DeviceFile,
};

/// The most attributes in a call. QP_CREATE has the most: 15, and two of the driver.
const CAPACITY: usize = 20;

/// Limit of the repetitions of a system call after `EINTR`: more than any burst of signals needs,
/// but bounded, because a kernel (or a stand-in for one) could return `EINTR` each time.
pub const MAX_EINTR_RETRIES: u32 = 1000;

const NO_ATTR: IoctlAttr =
    IoctlAttr { attr_id: 0, len: 0, flags: 0, elem_id: 0, reserved: 0, data: 0 };

/// An ioctl under construction. `'a` is the lifetime of the buffers that it points to.
///
/// Every attribute is mandatory unless [`Call::optional`] follows: a kernel that does not know a
/// mandatory attribute refuses the call, instead of ignoring the attribute.
#[derive(Debug)]
pub struct Call<'a> {
    frame: Frame,
    count: usize,
    malformed: bool,
    buffers: PhantomData<&'a mut [u8]>,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Frame {
    header: IoctlHeader,
    attrs: [IoctlAttr; CAPACITY],
}

const _: () = assert!(core::mem::offset_of!(Frame, attrs) == size_of::<IoctlHeader>());

/// The attributes of a call after the kernel has written to them.
#[derive(Clone, Debug)]
pub struct Reply {
    attrs: [IoctlAttr; CAPACITY],
    count: usize,
}

impl<'a> Call<'a> {
    /// Creates a call of `method`, without attributes.
    pub fn new(method: Method) -> Self {
        let header = IoctlHeader {
            length: 0,
            object_id: method.object,
            method_id: method.id,
            num_attrs: 0,
            reserved1: 0,
            driver_id: RDMA_DRIVER_MLX5,
            reserved2: 0,
        };
        Self {
            frame: Frame { header, attrs: [NO_ATTR; CAPACITY] },
            count: 0,
            malformed: false,
            buffers: PhantomData,
        }
    }

    fn push(&mut self, id: AttrId, len: usize, data: u64) -> &mut Self {
        match (self.frame.attrs.get_mut(self.count), u16::try_from(len)) {
            (Some(slot), Ok(len)) => {
                let flags = AttrFlags::MANDATORY.bits();
                *slot = IoctlAttr { attr_id: id.0, len, flags, data, ..NO_ATTR };
                self.count += 1;
            }
            _ => self.malformed = true,
        }
        self
    }

    /// Makes the last attribute optional: a kernel that does not know it ignores it.
    pub fn optional(&mut self) -> &mut Self {
        if let Some(last) = self.count.checked_sub(1) {
            self.frame.attrs[last].flags &= !AttrFlags::MANDATORY.bits();
        }
        self
    }

    /// Adds an input structure.
    pub fn input<T: IntoBytes + Immutable + ?Sized>(
        &mut self,
        id: AttrId,
        value: &'a T,
    ) -> &mut Self {
        self.input_bytes(id, value.as_bytes())
    }

    /// Adds input bytes. Up to eight are stored in the attribute itself, because the kernel does
    /// not take an address for them.
    pub fn input_bytes(&mut self, id: AttrId, bytes: &'a [u8]) -> &mut Self {
        let data = if bytes.len() <= 8 {
            let mut inline = [0; 8];
            inline[..bytes.len()].copy_from_slice(bytes);
            u64::from_ne_bytes(inline)
        } else {
            address(bytes.as_ptr())
        };
        self.push(id, bytes.len(), data)
    }

    /// Adds a 32-bit input.
    pub fn input_u32(&mut self, id: AttrId, value: u32) -> &mut Self {
        let mut inline = [0; 8];
        inline[..4].copy_from_slice(&value.to_ne_bytes());
        self.push(id, 4, u64::from_ne_bytes(inline))
    }

    /// Adds a 64-bit input, or a value that the kernel calls a constant or an enumeration passed by
    /// value.
    pub fn input_u64(&mut self, id: AttrId, value: u64) -> &mut Self {
        self.push(id, 8, value)
    }

    /// Adds an enum attribute: the member `elem` and its input bytes.
    pub fn input_enum(&mut self, id: AttrId, elem: u8, bytes: &'a [u8]) -> &mut Self {
        let before = self.count;
        self.input_bytes(id, bytes);
        if self.count > before {
            self.frame.attrs[before].elem_id = elem;
        }
        self
    }

    /// Adds an output structure. Bytes beyond a shorter answer keep their value.
    pub fn output<T>(&mut self, id: AttrId, value: &'a mut T) -> &mut Self
    where
        T: FromBytes + IntoBytes + ?Sized,
    {
        self.output_bytes(id, value.as_mut_bytes())
    }

    /// Adds output bytes.
    pub fn output_bytes(&mut self, id: AttrId, bytes: &'a mut [u8]) -> &mut Self {
        self.push(id, bytes.len(), address(bytes.as_mut_ptr()))
    }

    /// Adds the handle of an existing object.
    pub fn handle(&mut self, id: AttrId, handle: u32) -> &mut Self {
        self.push(id, 0, u64::from(handle))
    }

    /// Adds an attribute for the handle of the object that the call creates; see [`Reply::handle`].
    pub fn new_handle(&mut self, id: AttrId) -> &mut Self {
        self.push(id, 0, 0)
    }

    /// Adds an existing file descriptor, which the kernel takes as a signed 64-bit number.
    pub fn fd(&mut self, id: AttrId, fd: RawFd) -> &mut Self {
        self.push(id, 0, i64::from(fd) as u64)
    }

    /// Adds an attribute for the file descriptor that the call creates; see [`Reply::fd`].
    pub fn new_fd(&mut self, id: AttrId) -> &mut Self {
        self.push(id, 0, 0)
    }

    /// Adds the driver's request.
    pub fn driver_input<T: IntoBytes + Immutable + ?Sized>(&mut self, value: &'a T) -> &mut Self {
        self.input(attr::uhw::IN, value)
    }

    /// Adds the driver's response.
    pub fn driver_output<T>(&mut self, value: &'a mut T) -> &mut Self
    where
        T: FromBytes + IntoBytes + ?Sized,
    {
        self.output(attr::uhw::OUT, value)
    }

    /// Makes the call. Repeats it after `EINTR`, at most [`MAX_EINTR_RETRIES`] times.
    ///
    /// # Errors
    /// `EINVAL`, without a call, if an attribute is longer than 65535 bytes (its length has 16
    /// bits) or there are too many attributes; `EINTR` if signals interrupted every attempt; else
    /// the errno of the kernel.
    ///
    /// # Safety
    /// The attributes are those that the method defines, with an output wherever the kernel writes.
    /// Memory that an input names by address (memory to register, a ring, an address in a firmware
    /// command) is free for the device to use as the call defines, until a later call ends that
    /// use.
    pub unsafe fn run(&mut self, file: &dyn DeviceFile) -> Result<Reply, Errno> {
        self.make(file)
    }

    /// [`Self::run`] for this crate's own functions. Those whose requests can name memory are
    /// unsafe themselves and have their own contracts.
    pub(crate) fn make(&mut self, file: &dyn DeviceFile) -> Result<Reply, Errno> {
        if self.malformed {
            return Err(Errno::EINVAL);
        }
        self.frame.header.num_attrs = self.count as u16;
        self.frame.header.length =
            (size_of::<IoctlHeader>() + self.count * size_of::<IoctlAttr>()) as u16;
        let mut interruptions = 0;
        loop {
            // The kernel writes to the attributes, so each attempt starts from a fresh copy.
            let mut frame = self.frame;
            // SAFETY: the pointer covers the whole frame, of which `num_attrs` attributes are
            // initialized, and `length` covers the header and them. Each address in them comes from
            // a slice that stays borrowed for `'a`, which outlives `self` (exclusively if it is an
            // output), and `len` is the length of that slice.
            match unsafe { file.ioctl((&raw mut frame).cast::<IoctlHeader>()) } {
                Ok(()) => return Ok(Reply { attrs: frame.attrs, count: self.count }),
                Err(Errno::EINTR) if interruptions < MAX_EINTR_RETRIES => interruptions += 1,
                Err(errno) => return Err(errno),
            }
        }
    }
}

impl Reply {
    fn attr(&self, id: AttrId) -> Option<&IoctlAttr> {
        self.attrs[..self.count].iter().find(|attr| attr.attr_id == id.0)
    }

    /// Returns the handle of the new object; zero if the call had no such attribute.
    pub fn handle(&self, id: AttrId) -> u32 {
        self.attr(id).map_or(0, |attr| attr.data as u32)
    }

    /// Returns the new file descriptor; -1 if the call had no such attribute.
    pub fn fd(&self, id: AttrId) -> RawFd {
        self.attr(id).map_or(-1, |attr| attr.data as RawFd)
    }

    /// Returns whether the kernel reported that it wrote this output.
    pub fn written(&self, id: AttrId) -> bool {
        let valid = AttrFlags::VALID_OUTPUT.bits();
        self.attr(id).is_some_and(|attr| attr.flags & valid != 0)
    }
}

fn address(ptr: *const u8) -> u64 {
    // The kernel accesses the buffer through this address.
    ptr.expose_provenance() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{fake::Script, ioctl::method};

    const A: AttrId = AttrId(1);
    const B: AttrId = AttrId(2);

    #[test]
    fn up_to_eight_bytes_travel_in_the_attribute() {
        let file = Script::new().then(|call| {
            assert_eq!(call.attr(A).len, 3);
            assert_eq!(call.attr(A).data.to_ne_bytes(), [1, 2, 3, 0, 0, 0, 0, 0]);
            assert_eq!(call.attr(B).len, 8);
            assert_eq!(call.attr(B).data.to_ne_bytes(), [7; 8]);
            Ok(())
        });
        Call::new(method::DEVX_OTHER)
            .input_bytes(A, &[1, 2, 3])
            .input_bytes(B, &[7; 8])
            .make(&file)
            .unwrap();
        file.done();
    }

    #[test]
    fn nine_bytes_travel_by_address() {
        let bytes = [9_u8; 9];
        let address = bytes.as_ptr() as u64;
        let file = Script::new().then(move |call| {
            assert_eq!(call.attr(A).len, 9);
            assert_eq!(call.attr(A).data, address);
            Ok(())
        });
        Call::new(method::DEVX_OTHER).input_bytes(A, &bytes).make(&file).unwrap();
        file.done();
    }

    #[test]
    fn a_short_output_travels_by_address_too() {
        let file = Script::new().then(|call| {
            assert_eq!(call.room(A), 4);
            call.answer(A, &0x0102_0304_u32.to_ne_bytes());
            Ok(())
        });
        let mut value = 0_u32;
        let reply = Call::new(method::DEVX_QUERY_UAR).output(A, &mut value).make(&file).unwrap();
        assert!(reply.written(A));
        assert_eq!(value, 0x0102_0304);
    }

    #[test]
    fn short_answer_keeps_the_values_of_missing_fields() {
        let file = Script::new().then(|call| {
            call.answer(A, &[1; 4]);
            Ok(())
        });
        let mut bytes = [0xee_u8; 8];
        Call::new(method::QUERY_PORT).output_bytes(A, &mut bytes).make(&file).unwrap();
        assert_eq!(bytes, [1, 1, 1, 1, 0xee, 0xee, 0xee, 0xee]);
    }

    #[test]
    fn unwritten_output_is_reported() {
        let file = Script::new().then(|_| Ok(()));
        let mut value = 5_u64;
        let reply = Call::new(method::QUERY_MR).output(A, &mut value).make(&file).unwrap();
        assert!(!reply.written(A));
        assert!(!reply.written(B));
        assert_eq!(value, 5);
    }

    #[test]
    fn handles_and_descriptors_have_no_length() {
        let file = Script::new().then(|call| {
            assert_eq!(call.object(A), 17);
            assert_eq!(call.object(B), -1);
            Ok(())
        });
        Call::new(method::CQ_CREATE).handle(A, 17).fd(B, -1).make(&file).unwrap();
        file.done();
    }

    #[test]
    fn new_handles_and_descriptors_come_back_in_their_attribute() {
        let file = Script::new().then(|call| {
            assert_eq!((call.object(A), call.object(B)), (0, 0));
            call.made(A, 42);
            call.made(B, 6);
            Ok(())
        });
        let reply = Call::new(method::UAR_ALLOC).new_handle(A).new_fd(B).make(&file).unwrap();
        assert_eq!((reply.handle(A), reply.fd(B)), (42, 6));
    }

    #[test]
    fn attributes_are_mandatory_unless_said_otherwise() {
        let file = Script::new().then(|call| {
            assert_eq!(call.attr(A).flags, AttrFlags::MANDATORY.bits());
            assert_eq!(call.attr(B).flags, 0);
            Ok(())
        });
        Call::new(method::QUERY_MR).input_u32(A, 1).input_u32(B, 1).optional().make(&file).unwrap();
        file.done();
    }

    #[test]
    fn an_enum_attribute_names_its_member() {
        let file = Script::new().then(|call| {
            assert_eq!((call.attr(A).elem_id, call.attr(B).elem_id), (0, 3));
            assert_eq!(call.input(B), [4, 5]);
            Ok(())
        });
        Call::new(method::DM_ALLOC).input_u32(A, 1).input_enum(B, 3, &[4, 5]).make(&file).unwrap();
        file.done();
    }

    #[test]
    fn an_interrupted_call_is_made_again_from_the_start() {
        let file = Script::new()
            .then(|call| {
                call.made(A, 99);
                call.answer(B, &[1]);
                Err(Errno::EINTR)
            })
            .then_fail(1, Errno::EINTR)
            .then(|call| {
                assert_eq!(call.object(A), 0);
                assert_eq!(call.attr(B).flags, AttrFlags::MANDATORY.bits());
                call.made(A, 7);
                Ok(())
            });
        let mut value = 0_u8;
        let reply =
            Call::new(method::QP_CREATE).new_handle(A).output(B, &mut value).make(&file).unwrap();
        assert_eq!(reply.handle(A), 7);
        assert!(!reply.written(B));
        file.done();
    }

    #[test]
    fn a_call_that_is_interrupted_for_ever_ends_with_eintr() {
        let times = MAX_EINTR_RETRIES as usize;
        let file = Script::new().then_fail(times, Errno::EINTR).then(|call| {
            call.made(A, 7);
            Ok(())
        });
        let reply = Call::new(method::QP_CREATE).new_handle(A).make(&file).unwrap();
        assert_eq!(reply.handle(A), 7, "as often as that is no failure");
        file.done();
        let file = Script::new().then_fail(times + 1, Errno::EINTR);
        assert_eq!(Call::new(method::QP_CREATE).make(&file).unwrap_err(), Errno::EINTR);
        file.done();
    }

    #[test]
    fn another_errno_is_handed_up() {
        let file = Script::new().then_fail(1, Errno::EACCES);
        let answer = Call::new(method::PD_DESTROY).handle(A, 1).make(&file);
        assert_eq!(answer.unwrap_err(), Errno::EACCES);
    }

    #[test]
    fn unencodable_call_reaches_no_kernel() {
        let file = Script::new();
        let long = vec![0; 65536];
        let answer = Call::new(method::DEVX_OTHER).input_bytes(A, &long).make(&file);
        assert_eq!(answer.unwrap_err(), Errno::EINVAL);

        let mut call = Call::new(method::DEVX_OTHER);
        for _ in 0..=CAPACITY {
            call.handle(A, 1);
        }
        assert_eq!(call.make(&file).unwrap_err(), Errno::EINVAL);
    }
}
