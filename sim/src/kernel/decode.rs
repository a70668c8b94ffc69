//! Decodes a call as the kernel's uverbs core does.

use mlx5_uapi::Errno;
use mlx5_uapi::ioctl::{AttrFlags, AttrId, IoctlAttr, IoctlHeader, Method, RDMA_DRIVER_MLX5, attr};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::kernel::current;

/// Longest call: the kernel takes one page.
const LONGEST: usize = 4096;
/// The most input bytes that an attribute itself has in place of an address.
const INLINE: usize = 8;

/// The form of an attribute.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Shape {
    /// Input, with its least and most bytes.
    In(usize, usize),
    /// Output, with the least and the most bytes of its buffer.
    Out(usize, usize),
    /// A choice, with the most bytes of data that go with it.
    Choice(usize),
    /// The handle of an object of this kind.
    Handle(u16),
    /// The handle of an object of any kind.
    AnyHandle,
    /// A handle that the call makes.
    NewHandle,
    /// A descriptor.
    Fd,
    /// A descriptor that the call makes.
    NewFd,
}

/// An attribute of a method.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spec {
    pub(crate) id: AttrId,
    pub(crate) shape: Shape,
    pub(crate) mandatory: bool,
}

impl Spec {
    pub(crate) const fn new(id: AttrId, shape: Shape) -> Self {
        Self { id, shape, mandatory: true }
    }

    pub(crate) const fn optional(id: AttrId, shape: Shape) -> Self {
        Self { id, shape, mandatory: false }
    }
}

/// An attribute whose length is the caller's choice.
pub(crate) const ANY_LENGTH: usize = u16::MAX as usize;

/// The driver's request and response. Methods that have them take any length.
pub(crate) const DRIVER: [Spec; 2] = [
    Spec::optional(attr::uhw::IN, Shape::In(0, ANY_LENGTH)),
    Spec::optional(attr::uhw::OUT, Shape::Out(0, ANY_LENGTH)),
];

/// A well-formed call.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    attrs: &'a mut [IoctlAttr],
}

/// The method and attributes behind a header.
///
/// # Safety
/// The caller keeps the promises of [`DeviceFile::ioctl`](mlx5_uapi::DeviceFile::ioctl), and
/// nothing else uses the attributes or the memory that they point to during `'a`.
pub(crate) unsafe fn open<'a>(header: *mut IoctlHeader) -> Result<(Method, Request<'a>), Errno> {
    if header.is_null() {
        return Err(Errno::EFAULT);
    }
    // SAFETY: the caller promises that the header can be read, and that its number of attributes
    // follow.
    let (head, attrs) = unsafe { (*header, &mut *IoctlHeader::attributes(header)) };
    let length = size_of::<IoctlHeader>() + size_of_val::<[IoctlAttr]>(attrs);
    if usize::from(head.length) != length || length > LONGEST {
        return Err(Errno::EINVAL);
    }
    if head.reserved1 != 0 || head.reserved2 != 0 {
        return Err(Errno::EPROTONOSUPPORT);
    }
    if head.driver_id != RDMA_DRIVER_MLX5 {
        return Err(Errno::EINVAL);
    }
    Ok((Method::of(&head), Request { attrs }))
}

impl Request<'_> {
    /// Checks the attributes against what the method takes.
    pub(crate) fn check<'s>(
        &self,
        specs: impl Iterator<Item = &'s Spec> + Clone,
    ) -> Result<(), Errno> {
        let mut seen = Vec::with_capacity(self.attrs.len());
        for attribute in self.attrs.iter() {
            let Some(spec) = specs.clone().find(|spec| spec.id.0 == attribute.attr_id) else {
                if attribute.flags & AttrFlags::MANDATORY.bits() != 0 {
                    return Err(Errno::EPROTONOSUPPORT);
                }
                continue;
            };
            if seen.contains(&attribute.attr_id) {
                return Err(Errno::EINVAL);
            }
            seen.push(attribute.attr_id);
            check_shape(attribute, spec.shape)?;
        }
        let missing = |spec: &&Spec| spec.mandatory && !seen.contains(&spec.id.0);
        if specs.clone().any(|spec| missing(&spec)) { Err(Errno::EINVAL) } else { Ok(()) }
    }

    fn find(&self, id: AttrId) -> Option<&IoctlAttr> {
        self.attrs.iter().find(|attribute| attribute.attr_id == id.0)
    }

    /// Whether an attribute is there.
    pub(crate) fn has(&self, id: AttrId) -> bool {
        self.find(id).is_some()
    }

    /// Input bytes; none if the attribute is not there.
    pub(crate) fn input(&self, id: AttrId) -> Result<Vec<u8>, Errno> {
        let Some(attribute) = self.find(id) else { return Ok(Vec::new()) };
        let length = usize::from(attribute.len);
        if length <= INLINE {
            return Ok(attribute.data.to_ne_bytes()[..length].to_vec());
        }
        // SAFETY: the caller of `open` promised that an input's address is readable for its length.
        unsafe { current::copy_from(attribute.data, length) }
    }

    /// An input structure, zero where the caller's is shorter.
    pub(crate) fn structure<T: FromBytes + IntoBytes>(&self, id: AttrId) -> Result<T, Errno> {
        Ok(from_short(&self.input(id)?))
    }

    /// A number of four or eight bytes; zero if the attribute is not there.
    pub(crate) fn number(&self, id: AttrId) -> Result<u64, Errno> {
        let bytes = self.input(id)?;
        let mut number = [0; 8];
        number.get_mut(..bytes.len()).ok_or(Errno::EINVAL)?.copy_from_slice(&bytes);
        Ok(u64::from_ne_bytes(number))
    }

    /// A number that has to fit in 32 bits.
    pub(crate) fn number_u32(&self, id: AttrId) -> Result<u32, Errno> {
        u32::try_from(self.number(id)?).map_err(|_| Errno::EINVAL)
    }

    /// A choice, and the bytes that go with it.
    pub(crate) fn choice(&self, id: AttrId) -> Result<(u8, Vec<u8>), Errno> {
        let chosen = self.find(id).ok_or(Errno::EINVAL)?.elem_id;
        Ok((chosen, self.input(id)?))
    }

    /// The handle or descriptor in an attribute.
    pub(crate) fn object(&self, id: AttrId) -> Option<i64> {
        self.find(id).map(|attribute| attribute.data as i64)
    }

    /// A mandatory handle.
    pub(crate) fn handle(&self, id: AttrId) -> Result<u32, Errno> {
        let number = self.object(id).ok_or(Errno::EINVAL)?;
        u32::try_from(number).map_err(|_| Errno::EINVAL)
    }

    /// An optional handle.
    pub(crate) fn handle_if_any(&self, id: AttrId) -> Result<Option<u32>, Errno> {
        self.object(id).map(|_| self.handle(id)).transpose()
    }

    /// Room of an output.
    pub(crate) fn room(&self, id: AttrId) -> usize {
        self.find(id).map_or(0, |attribute| usize::from(attribute.len))
    }

    /// Writes an output, up to the caller's room, if the attribute is there.
    pub(crate) fn answer_bytes(&mut self, id: AttrId, bytes: &[u8]) -> Result<(), Errno> {
        let Some(attribute) = self.attrs.iter_mut().find(|attribute| attribute.attr_id == id.0)
        else {
            return Ok(());
        };
        let length = bytes.len().min(usize::from(attribute.len));
        // SAFETY: the caller of `open` promised that an output's address is writable for its
        // length, and that nothing else uses it; `length` is at most that.
        unsafe { current::copy_to(attribute.data, &bytes[..length]) }?;
        attribute.flags |= AttrFlags::VALID_OUTPUT.bits();
        Ok(())
    }

    /// Writes an output structure; the rest of the caller's room is set to zero.
    pub(crate) fn answer<T: IntoBytes + Immutable>(
        &mut self,
        id: AttrId,
        value: &T,
    ) -> Result<(), Errno> {
        let mut bytes = value.as_bytes().to_vec();
        bytes.resize(bytes.len().max(self.room(id)), 0);
        self.answer_bytes(id, &bytes)
    }

    /// Writes the number of an object that was made.
    pub(crate) fn made(&mut self, id: AttrId, number: u64) {
        if let Some(attribute) = self.attrs.iter_mut().find(|attribute| attribute.attr_id == id.0) {
            attribute.data = number;
        }
    }
}

fn check_shape(attribute: &IoctlAttr, shape: Shape) -> Result<(), Errno> {
    let length = usize::from(attribute.len);
    let good = match shape {
        Shape::In(least, most) | Shape::Out(least, most) => (least..=most).contains(&length),
        Shape::Choice(most) => length <= most,
        Shape::Handle(_) | Shape::AnyHandle | Shape::NewHandle | Shape::Fd | Shape::NewFd => {
            length == 0
        }
    };
    let chosen = matches!(shape, Shape::Choice(_)) || attribute.elem_id == 0;
    if good && chosen && attribute.reserved == 0 { Ok(()) } else { Err(Errno::EINVAL) }
}

/// A structure from bytes that may be shorter or longer.
pub(crate) fn from_short<T: FromBytes + IntoBytes>(bytes: &[u8]) -> T {
    let mut value = T::new_zeroed();
    let known = bytes.len().min(size_of::<T>());
    value.as_mut_bytes()[..known].copy_from_slice(&bytes[..known]);
    value
}

/// Whether the bytes after a known structure are zero, as they must be in a newer caller's request.
pub(crate) fn is_clear_behind(bytes: &[u8], known: usize) -> bool {
    bytes.get(known..).is_none_or(|rest| rest.iter().all(|byte| *byte == 0))
}
