//! One ioctl, encoded on the stack.

use core::marker::PhantomData;
use std::os::fd::RawFd;

use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::{
    Errno,
    ioctl::{AttrFlags, AttrId, IoctlAttr, IoctlHeader, Method, RDMA_DRIVER_MLX5, attr},
    kernel::DeviceFile,
};

/// QP_CREATE has the most attributes: 15, and the driver's two.
const CAPACITY: usize = 20;

/// How often a system call that a signal interrupts is made again: more often than any burst of
/// signals takes, and not without end, for what answers `EINTR` may do so for ever.
pub const MOST_INTERRUPTIONS: u32 = 1000;

const NO_ATTR: IoctlAttr =
    IoctlAttr { attr_id: 0, len: 0, flags: 0, elem_id: 0, reserved: 0, data: 0 };

/// A call in the making. `'a` is how long the buffers that it points to are borrowed.
///
/// Every attribute is mandatory unless said otherwise: a kernel that does not know it refuses the
/// call rather than leaving the attribute out.
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

/// What the kernel wrote into the attributes themselves.
#[derive(Clone, Debug)]
pub struct Reply {
    attrs: [IoctlAttr; CAPACITY],
    count: usize,
}

impl<'a> Call<'a> {
    /// A call of `method` without attributes.
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

    /// Marks the attribute that was added last as one which an older kernel may overlook.
    pub fn optional(&mut self) -> &mut Self {
        if let Some(last) = self.count.checked_sub(1) {
            self.frame.attrs[last].flags &= !AttrFlags::MANDATORY.bits();
        }
        self
    }

    /// An input structure.
    pub fn input<T: IntoBytes + Immutable + ?Sized>(
        &mut self,
        id: AttrId,
        value: &'a T,
    ) -> &mut Self {
        self.input_bytes(id, value.as_bytes())
    }

    /// Input bytes. Up to eight travel in the attribute itself: the kernel takes no address then.
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

    /// A 32-bit input.
    pub fn input_u32(&mut self, id: AttrId, value: u32) -> &mut Self {
        let mut inline = [0; 8];
        inline[..4].copy_from_slice(&value.to_ne_bytes());
        self.push(id, 4, u64::from_ne_bytes(inline))
    }

    /// A 64-bit input; also what the kernel calls a constant or an enumeration passed by value.
    pub fn input_u64(&mut self, id: AttrId, value: u64) -> &mut Self {
        self.push(id, 8, value)
    }

    /// An enum attribute: the member, and the input bytes that belong to it.
    pub fn input_enum(&mut self, id: AttrId, elem: u8, bytes: &'a [u8]) -> &mut Self {
        let before = self.count;
        self.input_bytes(id, bytes);
        if self.count > before {
            self.frame.attrs[before].elem_id = elem;
        }
        self
    }

    /// An output structure. Bytes that a shorter answer leaves out keep their value.
    pub fn output<T>(&mut self, id: AttrId, value: &'a mut T) -> &mut Self
    where
        T: FromBytes + IntoBytes + ?Sized,
    {
        self.output_bytes(id, value.as_mut_bytes())
    }

    /// Output bytes.
    pub fn output_bytes(&mut self, id: AttrId, bytes: &'a mut [u8]) -> &mut Self {
        self.push(id, bytes.len(), address(bytes.as_mut_ptr()))
    }

    /// The handle of an object that exists.
    pub fn handle(&mut self, id: AttrId, handle: u32) -> &mut Self {
        self.push(id, 0, u64::from(handle))
    }

    /// Room for the handle of the object that the call makes; see [`Reply::handle`].
    pub fn new_handle(&mut self, id: AttrId) -> &mut Self {
        self.push(id, 0, 0)
    }

    /// A descriptor that exists. It goes as a signed 64-bit number.
    pub fn fd(&mut self, id: AttrId, fd: RawFd) -> &mut Self {
        self.push(id, 0, i64::from(fd) as u64)
    }

    /// Room for the descriptor that the call makes; see [`Reply::fd`].
    pub fn new_fd(&mut self, id: AttrId) -> &mut Self {
        self.push(id, 0, 0)
    }

    /// The driver's request.
    pub fn driver_input<T: IntoBytes + Immutable + ?Sized>(&mut self, value: &'a T) -> &mut Self {
        self.input(attr::uhw::IN, value)
    }

    /// The driver's response.
    pub fn driver_output<T>(&mut self, value: &'a mut T) -> &mut Self
    where
        T: FromBytes + IntoBytes + ?Sized,
    {
        self.output(attr::uhw::OUT, value)
    }

    /// Makes the call, and again when a signal interrupts it, [`MOST_INTERRUPTIONS`] times at most:
    /// then it is `EINTR`.
    ///
    /// `EINVAL` without a call if an attribute is longer than the 65535 bytes that it can say.
    ///
    /// # Safety
    /// The attributes are those of the method, outputs where the kernel writes; and memory that an
    /// input names by address (to be registered, as a queue, in a firmware command) is free for the
    /// device to use as the call says, until it is told otherwise.
    pub unsafe fn run(&mut self, file: &dyn DeviceFile) -> Result<Reply, Errno> {
        self.make(file)
    }

    /// [`Self::run`] for the functions of this crate: those whose requests can name memory are
    /// unsafe themselves, with a contract of their own.
    pub(crate) fn make(&mut self, file: &dyn DeviceFile) -> Result<Reply, Errno> {
        if self.malformed {
            return Err(Errno::EINVAL);
        }
        self.frame.header.num_attrs = self.count as u16;
        self.frame.header.length =
            (size_of::<IoctlHeader>() + self.count * size_of::<IoctlAttr>()) as u16;
        let mut interruptions = 0;
        loop {
            // The kernel writes into the attributes: an interrupted call starts from a fresh copy.
            let mut frame = self.frame;
            // SAFETY: the pointer covers the whole frame; `num_attrs` attributes of it are filled
            // in and `length` covers them. Each address in them comes from a slice that `'a`
            // keeps borrowed while `self` lives, exclusively for outputs, with that slice's length.
            match unsafe { file.ioctl((&raw mut frame).cast::<IoctlHeader>()) } {
                Ok(()) => return Ok(Reply { attrs: frame.attrs, count: self.count }),
                Err(Errno::EINTR) if interruptions < MOST_INTERRUPTIONS => interruptions += 1,
                Err(errno) => return Err(errno),
            }
        }
    }
}

impl Reply {
    fn attr(&self, id: AttrId) -> Option<&IoctlAttr> {
        self.attrs[..self.count].iter().find(|attr| attr.attr_id == id.0)
    }

    /// The handle of the new object; zero if the call had no such attribute.
    pub fn handle(&self, id: AttrId) -> u32 {
        self.attr(id).map_or(0, |attr| attr.data as u32)
    }

    /// The new descriptor; -1 if the call had no such attribute.
    pub fn fd(&self, id: AttrId) -> RawFd {
        self.attr(id).map_or(-1, |attr| attr.data as RawFd)
    }

    /// Whether the kernel says that it wrote this output.
    pub fn written(&self, id: AttrId) -> bool {
        let valid = AttrFlags::VALID_OUTPUT.bits();
        self.attr(id).is_some_and(|attr| attr.flags & valid != 0)
    }
}

fn address(ptr: *const u8) -> u64 {
    // The kernel reaches the buffer through this number.
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
    fn what_a_short_answer_leaves_out_keeps_its_value() {
        let file = Script::new().then(|call| {
            call.answer(A, &[1; 4]);
            Ok(())
        });
        let mut bytes = [0xee_u8; 8];
        Call::new(method::QUERY_PORT).output_bytes(A, &mut bytes).make(&file).unwrap();
        assert_eq!(bytes, [1, 1, 1, 1, 0xee, 0xee, 0xee, 0xee]);
    }

    #[test]
    fn an_output_that_the_kernel_did_not_write_is_told() {
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
        let times = MOST_INTERRUPTIONS as usize;
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
    fn what_cannot_be_encoded_reaches_no_kernel() {
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
