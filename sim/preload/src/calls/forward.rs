//! Passes system calls on a device to the simulated kernel.

use std::collections::BTreeSet;
use std::ffi::{c_int, c_ulong, c_void};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::{Mutex, PoisonError};

use mlx5_sim::kernel::{makes_descriptor, takes_descriptor};
use mlx5_uapi::ioctl::{AttrId, IoctlAttr, IoctlHeader, Method, RDMA_VERBS_IOCTL, attr};
use mlx5_uapi::names::NamedCall;
use mlx5_uapi::rdma_cm::{self, CommandId};
use mlx5_uapi::write_cmd::WriteCommand;
use mlx5_uapi::{CmFile, Errno};

use super::events;
use crate::account::Call;
use crate::descriptors::{Device, Entry};
use crate::door::Door;
use crate::inside::Inside;
use crate::next::failed;
use crate::{notes, say};

/// `NETLINK_RDMA` of `linux/netlink.h`.
const NETLINK_RDMA: c_int = 20;

/// The longest call that is accepted: the kernel takes a page.
const LONGEST: usize = 4096;

/// An ioctl.
///
/// # Safety
/// The argument is valid for the request.
pub(crate) unsafe fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> Option<c_int> {
    let _call = Call::begin();
    // The kernel reads only the low 32 bits of a request.
    let request = request as u32;
    let Some((door, entry)) = Door::find(fd) else {
        if request == RDMA_VERBS_IOCTL && Door::if_open().is_some() {
            say!("a verbs call on descriptor {fd}, which this process did not open");
        }
        return None;
    };
    let _inside = Inside::enter();
    let answer = match &entry {
        Entry::Device(device) if request == RDMA_VERBS_IOCTL => {
            // SAFETY: the caller promises that the argument of this request is a verbs call.
            unsafe { verbs(door, device, argument.cast()) }
        }
        Entry::Device(device) => {
            say!("{}: ioctl {request:#010x} is none of a verbs device", device.name);
            Err(Errno::ENOTTY)
        }
        Entry::Events(_) | Entry::Channel(_) => Err(Errno::ENOTTY),
    };
    Some(match answer {
        Ok(()) => 0,
        Err(errno) => failed(errno),
    })
}

/// A copy of a verbs call.
struct Copied {
    /// Header and attributes; words, so that they are aligned.
    words: Vec<u64>,
}

impl Copied {
    /// # Safety
    /// The header can be read, and its length after it.
    unsafe fn new(from: *const IoctlHeader) -> Option<Self> {
        // SAFETY: the caller promises that the header can be read.
        let head = unsafe { from.read() };
        let length = usize::from(head.length);
        let counted =
            size_of::<IoctlHeader>() + usize::from(head.num_attrs) * size_of::<IoctlAttr>();
        if length != counted || length > LONGEST {
            return None;
        }
        let mut words = vec![0_u64; length / size_of::<u64>()];
        // SAFETY: the caller promises that the header's length can be read, and `words` has room
        // for it.
        unsafe {
            std::ptr::copy_nonoverlapping(from.cast::<u8>(), words.as_mut_ptr().cast(), length);
        }
        Some(Self { words })
    }

    fn header(&mut self) -> *mut IoctlHeader {
        self.words.as_mut_ptr().cast()
    }

    fn method(&mut self) -> Method {
        // SAFETY: the words begin with a header.
        Method::of(unsafe { &*self.header() })
    }

    fn named(&self) -> Option<NamedCall> {
        NamedCall::read(&self.words)
    }

    fn attrs(&mut self) -> &mut [IoctlAttr] {
        // SAFETY: the number of attributes after the header was checked against the length of the
        // words.
        unsafe { &mut *IoctlHeader::attributes(self.header()) }
    }

    fn find(&mut self, id: AttrId) -> Option<&mut IoctlAttr> {
        self.attrs().iter_mut().find(|attribute| attribute.attr_id == id.0)
    }
}

/// # Safety
/// As for `RDMA_VERBS_IOCTL`.
unsafe fn verbs(door: &Door, device: &Device, header: *mut IoctlHeader) -> Result<(), Errno> {
    if header.is_null() {
        return Err(Errno::EFAULT);
    }
    // SAFETY: the header is not null, and the caller promises that it is a verbs call of its
    // length.
    let Some(mut call) = (unsafe { Copied::new(header) }) else { return Err(Errno::EINVAL) };
    let method = call.method();
    let command = call.named().and_then(|call| call.command());
    let mut replaced = Vec::new();
    for attribute in call.attrs() {
        let id = AttrId(attribute.attr_id);
        if takes_descriptor(method, id)
            && let Ok(fd) = RawFd::try_from(attribute.data as i64)
            && let Some((Entry::Events(events), _)) = own(door, fd)
        {
            replaced.push((id, attribute.data));
            attribute.data = events.as_fd().as_raw_fd() as u64;
        }
    }
    notes::before(&door.tree, device, &call.words);
    // SAFETY: the copy has the same attributes, and the memory that they point to is valid by the
    // caller's promise.
    let mut answer = unsafe { device.file.ioctl(call.header()) };
    for (id, data) in replaced {
        if let Some(attribute) = call.find(id) {
            attribute.data = data;
        }
    }
    if answer.is_ok() {
        // SAFETY: the call was answered, so that its outputs were written.
        answer = unsafe { hand_out(door, device, &mut call, command) };
        notes::after(&door.tree, device, &call.words);
    }
    // SAFETY: the caller's header and attributes have the length of the copy.
    unsafe {
        let from = call.words.as_ptr().cast::<u8>();
        let length = size_of_val(call.words.as_slice());
        std::ptr::copy_nonoverlapping(from, header.cast::<u8>(), length);
    }
    tell(door, device, &call, answer);
    answer
}

/// The file behind a descriptor, for a thread that is inside the library.
fn own(door: &Door, fd: RawFd) -> Option<(Entry, RawFd)> {
    Some((door.descriptors.get(fd)?, fd))
}

/// Gives the program a descriptor of its own for an event file that a call made.
///
/// # Safety
/// The outputs of the call are written.
unsafe fn hand_out(
    door: &Door,
    device: &Device,
    call: &mut Copied,
    command: Option<WriteCommand>,
) -> Result<(), Errno> {
    if let Some(made) = makes_descriptor(call.method()) {
        if let Some(attribute) = call.find(made) {
            // SAFETY: the call has just made the descriptor.
            let fd = unsafe { events::adopt(door, &*device.file, attribute.data as RawFd) }?;
            attribute.data = fd as u64;
        }
    } else if command == Some(WriteCommand::CREATE_COMP_CHANNEL)
        && let Some(attribute) = call.find(attr::invoke_write::CORE_OUT)
    {
        let place = attribute.data as usize as *mut RawFd;
        // SAFETY: the response begins with the descriptor.
        let number = unsafe { place.read_unaligned() };
        // SAFETY: the call has just made the descriptor.
        let fd = unsafe { events::adopt(door, &*device.file, number) }?;
        // SAFETY: the response can be written where it was just read.
        unsafe { place.write_unaligned(fd) };
    }
    Ok(())
}

/// Logs the result of a call: of every call with `trace`, else of those that are unknown here.
fn tell(door: &Door, device: &Device, call: &Copied, answer: Result<(), Errno>) {
    static TOLD: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let Some(call) = call.named() else { return };
    let unknown = matches!(answer, Err(Errno::EPROTONOSUPPORT | Errno::ENOTTY))
        || call.command().is_some() && answer == Err(Errno::EOPNOTSUPP);
    let first = || TOLD.lock().unwrap_or_else(PoisonError::into_inner).insert(call.to_string());
    if door.trace || unknown && first() {
        let Device { name, .. } = device;
        match answer {
            Ok(()) => say!("{name}: {call}"),
            Err(errno) => say!("{name}: {call:#}: {errno}"),
        }
    }
}

/// Commands as write(2) calls. A device refuses them: it has the ioctl, and no program that finds
/// it needs write(2). The connection manager has no other calls.
///
/// # Safety
/// As for write(2); the addresses in a command are valid.
pub(crate) unsafe fn write(fd: c_int, from: *const c_void, length: usize) -> Option<isize> {
    let (door, entry) = Door::find(fd)?;
    let answer = match &entry {
        Entry::Device(device) => {
            let _inside = Inside::enter();
            say!("{}: commands are taken through ioctl, not write", device.name);
            Err(Errno::EINVAL)
        }
        Entry::Events(_) => Err(Errno::EINVAL),
        Entry::Channel(_) if length > LONGEST => Err(Errno::EINVAL),
        Entry::Channel(_) if from.is_null() => Err(Errno::EFAULT),
        Entry::Channel(channel) => {
            let _call = Call::begin();
            let _inside = Inside::enter();
            // SAFETY: the pointer is not null, and the caller promises that `length` bytes can be
            // read.
            let mut call =
                unsafe { std::slice::from_raw_parts(from.cast::<u8>(), length) }.to_vec();
            rdma_cm::replace_channel(&mut call, |fd| match own(door, fd)?.0 {
                Entry::Channel(other) => Some(other.file.as_fd().as_raw_fd()),
                _ => None,
            });
            // SAFETY: the caller promises that the addresses in the command are valid; only
            // descriptors were replaced.
            let answer = unsafe { command(fd, &*channel.file, &call) };
            if door.trace {
                tell_command(&call, answer);
            }
            answer
        }
    };
    Some(match answer {
        Ok(()) => length as isize,
        Err(errno) => failed(errno) as isize,
    })
}

/// A command of the connection manager, which waits for an event as the kernel does.
///
/// # Safety
/// The addresses in the command are valid.
unsafe fn command(fd: RawFd, channel: &dyn CmFile, call: &[u8]) -> Result<(), Errno> {
    let waits = events::waits(fd)?;
    loop {
        // SAFETY: the caller promises that the addresses in the command are valid.
        match unsafe { channel.write(call) } {
            Err(Errno::EAGAIN) if waits => events::wait(channel.as_fd())?,
            answer => return answer,
        }
    }
}

/// Logs the result of a command.
fn tell_command(call: &[u8], answer: Result<(), Errno>) {
    let id = call.first_chunk().and_then(|cmd| CommandId::from_raw(u32::from_ne_bytes(*cmd)));
    match (id, answer) {
        (Some(id), Ok(())) => say!("{}: {id:?}", rdma_cm::NODE),
        (Some(id), Err(errno)) => say!("{}: {id:?}: {errno}", rdma_cm::NODE),
        (None, _) => say!("{}: an unknown command", rdma_cm::NODE),
    }
}

/// The kernel's RDMA netlink knows real devices only. Programs that cannot open it read sysfs
/// instead.
pub(crate) fn socket(domain: c_int, protocol: c_int) -> Option<c_int> {
    let hidden = domain == libc::AF_NETLINK && protocol == NETLINK_RDMA && Door::open().is_some();
    hidden.then(|| failed(Errno::EPROTONOSUPPORT))
}
