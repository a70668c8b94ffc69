//! System calls on a device, handed to the simulated kernel.

use std::collections::BTreeSet;
use std::ffi::{c_int, c_ulong, c_void};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::{Mutex, PoisonError};

use mlx5_sim_wire::DESCRIPTORS;
use mlx5_uapi::Errno;
use mlx5_uapi::ioctl::{AttrId, IoctlAttr, IoctlHeader, Method, RDMA_VERBS_IOCTL, attr, method};
use mlx5_uapi::names::NamedCall;
use mlx5_uapi::write_cmd::WriteCommand;

use super::events;
use crate::account::Call;
use crate::descriptors::{Device, Entry};
use crate::door::Door;
use crate::inside::Inside;
use crate::next::failed;
use crate::say;

/// `NETLINK_RDMA` of `linux/netlink.h`.
const NETLINK_RDMA: c_int = 20;

/// The longest call that is looked at: the kernel takes a page.
const LONGEST: usize = 4096;

/// An ioctl.
///
/// # Safety
/// The argument is what the request wants.
pub(crate) unsafe fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> Option<c_int> {
    let _call = Call::begin();
    // A request has 32 bits; what stands above them is nobody's.
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
            // SAFETY: the caller's contract.
            unsafe { verbs(door, device, argument.cast()) }
        }
        Entry::Device(device) => {
            say!("{}: ioctl {request:#010x} is none of a verbs device", device.name);
            Err(Errno::ENOTTY)
        }
        Entry::Events(_) => Err(Errno::ENOTTY),
    };
    Some(match answer {
        Ok(()) => 0,
        Err(errno) => failed(errno),
    })
}

/// A verbs call, as it is copied.
struct Copied {
    /// Header and attributes; words, so that they are aligned.
    words: Vec<u64>,
}

impl Copied {
    /// # Safety
    /// The header can be read, and its length after it.
    unsafe fn new(from: *const IoctlHeader) -> Option<Self> {
        // SAFETY: the caller's contract.
        let head = unsafe { from.read() };
        let length = usize::from(head.length);
        let counted =
            size_of::<IoctlHeader>() + usize::from(head.num_attrs) * size_of::<IoctlAttr>();
        if length != counted || length > LONGEST {
            return None;
        }
        let mut words = vec![0_u64; length / size_of::<u64>()];
        // SAFETY: the caller's contract, and there is room for the length.
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
        // SAFETY: so many attributes follow the header, as was checked.
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
    // SAFETY: the caller's contract.
    let Some(mut call) = (unsafe { Copied::new(header) }) else { return Err(Errno::EINVAL) };
    let method = call.method();
    let command = call.named().and_then(|call| call.command());
    let mut replaced = Vec::new();
    for (_, id) in DESCRIPTORS.iter().filter(|(of, _)| *of == method) {
        if let Some(attribute) = call.find(*id)
            && let Ok(fd) = RawFd::try_from(attribute.data as i64)
            && let Some((Entry::Events(events), _)) = own(door, fd)
        {
            replaced.push((*id, attribute.data));
            attribute.data = events.as_fd().as_raw_fd() as u64;
        }
    }
    // SAFETY: the copy has the same attributes, and what they point to is the caller's.
    let mut answer = unsafe { device.file.ioctl(call.header()) };
    for (id, data) in replaced {
        if let Some(attribute) = call.find(id) {
            attribute.data = data;
        }
    }
    if answer.is_ok() {
        // SAFETY: the call was answered, so that its outputs are where they should be.
        answer = unsafe { hand_out(door, device, &mut call, command) };
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

/// What a descriptor stands for, for a thread that is inside.
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
    if call.method() == method::ASYNC_EVENT_ALLOC {
        if let Some(attribute) = call.find(attr::async_event_alloc::FD_HANDLE) {
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
        // SAFETY: as for the read.
        unsafe { place.write_unaligned(fd) };
    }
    Ok(())
}

/// Says what became of a call: every one if that is wanted, else what is not known here.
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

/// Commands as write(2) calls: the device has the ioctl, and no program that finds it needs them.
///
/// # Safety
/// As for write(2).
pub(crate) unsafe fn write(fd: c_int, _from: *const c_void, _length: usize) -> Option<isize> {
    let (_, entry) = Door::find(fd)?;
    if let Entry::Device(device) = &entry {
        let _inside = Inside::enter();
        say!("{}: commands are taken through ioctl, not write", device.name);
    }
    Some(failed(Errno::EINVAL) as isize)
}

/// The kernel's RDMA netlink knows real devices only; programs that miss it look into sysfs.
pub(crate) fn socket(domain: c_int, protocol: c_int) -> Option<c_int> {
    let hidden = domain == libc::AF_NETLINK && protocol == NETLINK_RDMA && Door::open().is_some();
    hidden.then(|| failed(Errno::EPROTONOSUPPORT))
}
