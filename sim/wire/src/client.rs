//! A process's end of the socket.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::fmt;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mlx5_sim::kernel::{SysfsEntry, takes_descriptor};
use mlx5_uapi::ioctl::{AttrId, IoctlAttr, IoctlHeader, Method};
use mlx5_uapi::rdma_cm;
use mlx5_uapi::{
    Access, AllocateError, CmFile, DeviceFile, Errno, EventFile, Kernel, Mapping, MemoryRequest,
    real,
};
use nix::libc;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap, munmap};
use nix::sys::signal::{Signal, raise};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, UnixAddr, connect, getsockopt, setsockopt, socket, sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike};

use crate::message::{self, Ask, Message, to_bytes, to_words};
use crate::unreached::Unreached;

/// The value that the host reads from a process before it lets it in. Memory rarely has it by
/// chance.
const SEEN: u64 = 0x6d6c_7835_7369_6d77;
/// Time limit for a host to let a process in.
const LIMIT: Duration = Duration::from_secs(20);
/// The longest call: the kernel takes one page.
const LONGEST_CALL: usize = 4096;

struct Line {
    socket: OwnedFd,
    /// The host's number of each event file that has a descriptor here.
    events: Mutex<BTreeMap<RawFd, RawFd>>,
    /// One question at a time.
    turn: Mutex<()>,
    /// A forked child must not use its parent's socket.
    pid: u32,
    /// Questions until the process is killed; 0 means never.
    left: AtomicU64,
}

impl Line {
    #[allow(deprecated, reason = "the new name, `try_update`, is younger than the oldest compiler")]
    fn ask(&self, ask: Ask, numbers: &[u64], bytes: &[u8]) -> Result<Message, Errno> {
        if self.pid != std::process::id() {
            return Err(Errno::EIO);
        }
        let counts = |left: u64| left.checked_sub(1);
        if self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, counts) == Ok(1) {
            // Nothing of the program runs after that.
            raise(Signal::SIGKILL)?;
        }
        let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let socket = self.socket.as_raw_fd();
        // If the host is gone, so is the device.
        let cause = |errno| match errno {
            // The socket has a time limit until the host lets this process in.
            Errno::EAGAIN => Errno::ETIMEDOUT,
            Errno::EMFILE => Errno::EMFILE,
            _ => Errno::EIO,
        };
        message::send(socket, &Message::ask(ask, numbers, bytes), None).map_err(cause)?;
        let answer = message::receive(socket).map_err(cause)?.ok_or(Errno::EIO)?;
        drop(turn);
        Ok(answer)
    }

    /// Asks a question whose answer is an errno or success.
    fn ask_well(&self, ask: Ask, numbers: &[u64], bytes: &[u8]) -> Result<Message, Errno> {
        let answer = self.ask(ask, numbers, bytes)?;
        match answer.head {
            0 => Ok(answer),
            errno => Err(Errno::from_raw(errno as i32)),
        }
    }

    fn events(&self) -> MutexGuard<'_, BTreeMap<RawFd, RawFd>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the descriptors in a call by the host's numbers. Returns the original words and
    /// their positions.
    fn translate(&self, words: &mut [u64]) -> Vec<(usize, u64)> {
        let header = size_of::<IoctlHeader>() / size_of::<u64>();
        let attribute = size_of::<IoctlAttr>() / size_of::<u64>();
        let Some(head) = words.get(..header) else { return Vec::new() };
        // Length, object, method and number of attributes.
        let named = Method { object: (head[0] >> 16) as u16, id: (head[0] >> 32) as u16 };
        let mut replaced = Vec::new();
        let events = self.events();
        for first in (header..words.len().saturating_sub(attribute - 1)).step_by(attribute) {
            let place = first + attribute - 1;
            if takes_descriptor(named, AttrId(words[first] as u16))
                && let Ok(fd) = RawFd::try_from(words[place] as i64)
                && let Some(number) = events.get(&fd)
            {
                replaced.push((place, words[place]));
                words[place] = *number as u64;
            }
        }
        replaced
    }

    /// Reports the end of an object, which cannot fail.
    fn report(&self, ask: Ask, number: u64) {
        // If the host is gone, so are its objects.
        let _ = self.ask(ask, &[number], &[]);
    }
}

/// Allows a process to reach this one's memory. A kernel without such a restriction fails the call,
/// which does no harm.
fn allow(pid: i32) {
    let pid = match pid {
        // It is outside of this process's PID namespace, and has no number here.
        0 => libc::PR_SET_PTRACER_ANY,
        _ => pid.unsigned_abs() as libc::c_ulong,
    };
    // SAFETY: the call takes a number, and changes nothing in memory.
    unsafe { libc::prctl(libc::PR_SET_PTRACER, pid, 0, 0, 0) };
}

/// Sets the time limit of calls on a socket; zero means no limit.
fn set_limit(socket: &OwnedFd, limit: Duration) -> Result<(), Errno> {
    let limit = TimeVal::microseconds(limit.as_micros() as i64);
    setsockopt(socket, sockopt::SendTimeout, &limit)?;
    setsockopt(socket, sockopt::ReceiveTimeout, &limit)
}

/// A socket that is connected to the host at a path, with a time limit for each call.
fn connected(path: &Path, limit: Duration) -> Result<OwnedFd, Errno> {
    let kind = SockType::SeqPacket;
    let socket = socket(AddressFamily::Unix, kind, SockFlag::SOCK_CLOEXEC, None)?;
    set_limit(&socket, limit)?;
    connect(socket.as_raw_fd(), &UnixAddr::new(path)?)?;
    Ok(socket)
}

/// A connection to a machine that several processes share.
#[derive(Clone)]
pub struct Wire {
    line: Arc<Line>,
    number: u64,
    host: u32,
    settings: String,
    pages: Arc<OwnedFd>,
    /// Violations that were already returned, or reported before this process connected.
    returned: Arc<AtomicU64>,
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wire").field("number", &self.number).finish_non_exhaustive()
    }
}

impl Wire {
    /// Connects to the host that serves at a path, and allows it to reach this process's memory.
    ///
    /// With `MLX5_SIM_WIRE_KILL=N` in its environment the process is killed (`SIGKILL`) instead of
    /// asking the host for the N-th time, which is about its N-th call into the kernel: a test
    /// kills a program at each of its steps.
    ///
    /// Fails if the host does not answer within 20 seconds.
    pub fn connect(path: &Path) -> Result<Self, Unreached> {
        Self::connect_within(path, LIMIT)
    }

    fn connect_within(path: &Path, limit: Duration) -> Result<Self, Unreached> {
        let socket = connected(path, limit).map_err(|errno| Unreached::by_socket(path, errno))?;
        Self::let_in(socket).map_err(|errno| Unreached::by_host(path, errno))
    }

    /// Asks the host to be let in.
    fn let_in(socket: OwnedFd) -> Result<Self, Errno> {
        let host = getsockopt(&socket, sockopt::PeerCredentials)?;
        allow(host.pid());
        let (events, turn) = (Mutex::default(), Mutex::default());
        let left = std::env::var("MLX5_SIM_WIRE_KILL").ok().and_then(|left| left.parse().ok());
        let left = AtomicU64::new(left.unwrap_or(0));
        let line = Line { socket, events, turn, pid: std::process::id(), left };
        // The host reads it to check that it can reach this process's memory.
        let word = SEEN;
        let seen = [message::VERSION, (&raw const word).expose_provenance() as u64, SEEN];
        let hello = line.ask_well(Ask::Hello, &seen, &[])?;
        // Later answers take as long as the machine needs.
        set_limit(&line.socket, Duration::ZERO)?;
        Ok(Self {
            line: Arc::new(line),
            number: hello.numbers[0],
            host: host.pid().unsigned_abs(),
            returned: Arc::new(AtomicU64::new(hello.numbers[1])),
            settings: String::from_utf8_lossy(&hello.bytes).into_owned(),
            pages: Arc::new(hello.file.ok_or(Errno::EPROTO)?),
        })
    }

    /// The machine's settings, in the form of `MLX5_SIM`.
    #[must_use]
    pub fn settings(&self) -> &str {
        &self.settings
    }

    /// The number of the process that serves the machine; 0 if this one cannot know it, as in
    /// another container.
    #[must_use]
    pub fn host(&self) -> u32 {
        self.host
    }

    /// This process's number, by which a child can inherit from it.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The descriptor that a forked child should close: while any process has it open, the host
    /// takes this one to be alive.
    #[must_use]
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.line.socket.as_fd()
    }

    /// The whole sysfs tree, sorted by path.
    pub fn sysfs(&self) -> Result<Vec<(String, SysfsEntry)>, Errno> {
        let mut entries = Vec::new();
        loop {
            let answer = self.line.ask_well(Ask::Sysfs, &[entries.len() as u64], &[])?;
            if answer.numbers[0] == 0 {
                return Ok(entries);
            }
            let text = String::from_utf8(answer.bytes).map_err(|_| Errno::EPROTO)?;
            let mut parts = text.split('\0');
            for _ in 0..answer.numbers[0] {
                let mut next = || parts.next().map(str::to_owned).ok_or(Errno::EPROTO);
                let (kind, path, value) = (next()?, next()?, next()?);
                let entry = match &*kind {
                    "link" => SysfsEntry::Link(value),
                    _ => SysfsEntry::File(value),
                };
                entries.push((path, entry));
            }
        }
    }

    /// Opens a device.
    pub fn open_file(&self, node: &str, dev: (u32, u32)) -> Result<WireFile, Errno> {
        let numbers = [dev.0.into(), dev.1.into()];
        let answer = self.line.ask_well(Ask::Open, &numbers, node.as_bytes())?;
        Ok(WireFile { wire: self.clone(), number: answer.numbers[0] })
    }

    /// Opens a device that another process has open under a number, for a child that inherited it.
    pub fn inherit(&self, process: u64, file: u64) -> Result<WireFile, Errno> {
        let answer = self.line.ask_well(Ask::Inherit, &[process, file], &[])?;
        Ok(WireFile { wire: self.clone(), number: answer.numbers[0] })
    }

    /// Opens a channel of the connection manager.
    pub fn open_cm(&self) -> Result<WireCmFile, Errno> {
        self.channel(Ask::OpenCm, &[])
    }

    /// Opens a channel that another process has open under a number, for a child that inherited it.
    pub fn inherit_cm(&self, process: u64, channel: u64) -> Result<WireCmFile, Errno> {
        self.channel(Ask::InheritCm, &[process, channel])
    }

    fn channel(&self, ask: Ask, numbers: &[u64]) -> Result<WireCmFile, Errno> {
        let answer = self.line.ask_well(ask, numbers, &[])?;
        let signal = answer.file.ok_or(Errno::EPROTO)?;
        let line = Arc::clone(&self.line);
        line.events().insert(signal.as_raw_fd(), answer.numbers[1] as RawFd);
        Ok(WireCmFile { line, number: answer.numbers[0], signal })
    }

    /// Works until the machine has nothing left to do, and returns the number of units.
    #[must_use]
    pub fn settle(&self) -> usize {
        self.line.ask_well(Ask::Settle, &[], &[]).map_or(0, |answer| answer.numbers[0] as usize)
    }

    /// The violations by drivers of the machine, in this process or another, since the last call or
    /// since this process connected.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        let from = self.returned.load(Ordering::Acquire);
        let Ok(answer) = self.line.ask_well(Ask::Violations, &[from], &[]) else {
            return Vec::new();
        };
        self.returned.store(answer.numbers[0], Ordering::Release);
        String::from_utf8_lossy(&answer.bytes).lines().map(str::to_owned).collect()
    }
}

impl Kernel for Wire {
    fn sysfs_list(&self, path: &str) -> Result<Vec<String>, Errno> {
        let below = format!("{path}/");
        let entries = self.sysfs()?;
        let rests = entries.iter().filter_map(|(path, _)| path.strip_prefix(&*below));
        let mut names: Vec<String> =
            rests.filter_map(|rest| rest.split('/').next()).map(str::to_owned).collect();
        names.sort();
        names.dedup();
        if names.is_empty() { Err(Errno::ENOENT) } else { Ok(names) }
    }

    fn sysfs_read(&self, path: &str) -> Result<String, Errno> {
        match self.sysfs()?.into_iter().find(|(at, _)| at == path) {
            Some((_, SysfsEntry::File(contents))) => Ok(contents),
            Some(_) => Err(Errno::EISDIR),
            None => Err(Errno::ENOENT),
        }
    }

    fn sysfs_link(&self, path: &str) -> Result<String, Errno> {
        match self.sysfs()?.into_iter().find(|(at, _)| at == path) {
            Some((_, SysfsEntry::Link(target))) => Ok(target),
            Some(_) => Err(Errno::EINVAL),
            None => Err(Errno::ENOENT),
        }
    }

    fn open(&self, node: &str, dev: (u32, u32)) -> Result<Arc<dyn DeviceFile>, Errno> {
        Ok(Arc::new(self.open_file(node, dev)?))
    }

    /// The devices of a shared machine appear and disappear only with the process that serves it.
    fn uevents(&self) -> Result<Box<dyn EventFile>, Errno> {
        Ok(Box::new(HostEnd::new(&self.line)?))
    }

    fn rdma_cm(&self) -> Result<Arc<dyn CmFile>, Errno> {
        Ok(Arc::new(self.open_cm()?))
    }
}

/// An event file without events. It is readable, and fails, once the host has hung up.
struct HostEnd {
    /// Watches the socket only for its end, as answers make it readable, too.
    set: Epoll,
    /// Keeps the socket open.
    _line: Arc<Line>,
}

impl HostEnd {
    fn new(line: &Arc<Line>) -> Result<Self, Errno> {
        let set = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        set.add(line.socket.as_fd(), EpollEvent::new(EpollFlags::EPOLLRDHUP, 0))?;
        Ok(Self { set, _line: Arc::clone(line) })
    }
}

impl AsFd for HostEnd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.set.0.as_fd()
    }
}

impl EventFile for HostEnd {
    fn read(&self, _: &mut [u8]) -> Result<usize, Errno> {
        match self.set.wait(&mut [EpollEvent::empty()], EpollTimeout::ZERO)? {
            0 => Err(Errno::EAGAIN),
            _ => Err(Errno::ENODEV),
        }
    }
}

/// An open device of a shared machine.
pub struct WireFile {
    wire: Wire,
    number: u64,
}

impl fmt::Debug for WireFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WireFile").field("number", &self.number).finish_non_exhaustive()
    }
}

impl Drop for WireFile {
    fn drop(&mut self) {
        self.wire.line.report(Ask::Close, self.number);
    }
}

impl WireFile {
    /// The number by which a child can inherit it.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }
}

impl DeviceFile for WireFile {
    unsafe fn ioctl(&self, header: *mut IoctlHeader) -> Result<(), Errno> {
        // SAFETY: the caller promises that the header can be read.
        let length = usize::from(unsafe { (*header).length });
        if length < size_of::<IoctlHeader>() || length > LONGEST_CALL {
            return Err(Errno::EINVAL);
        }
        let mut words = vec![0_u64; length.div_ceil(8)];
        // SAFETY: the caller promises that the header's length covers the header and its
        // attributes; `words` is at least that long.
        unsafe {
            std::ptr::copy_nonoverlapping(header.cast(), words.as_mut_ptr().cast::<u8>(), length);
        }
        let named = self.wire.line.translate(&mut words);
        let answer = self.wire.line.ask(Ask::Call, &[self.number], &to_bytes(&words))?;
        let mut words = to_words(&answer.bytes);
        for (place, data) in named {
            if let Some(word) = words.get_mut(place) {
                *word = data;
            }
        }
        if size_of_val(words.as_slice()) >= length {
            // SAFETY: the caller promises that `length` bytes at `header` are writable, and `words`
            // has that many.
            unsafe {
                std::ptr::copy_nonoverlapping(words.as_ptr().cast::<u8>(), header.cast(), length);
            }
        }
        match answer.head {
            0 => Ok(()),
            errno => Err(Errno::from_raw(errno as i32)),
        }
    }

    fn map(&self, offset: u64, len: usize, access: Access) -> Result<Mapping, Errno> {
        let writes = u64::from(access == Access::Write);
        let line = &self.wire.line;
        let answer = line.ask_well(Ask::Map, &[self.number, offset, len as u64, writes], &[])?;
        let [number, place, ..] = answer.numbers;
        let pages = Pages::map(&self.wire.pages, place, len, access);
        let pages = pages.inspect_err(|_| line.report(Ask::Unmap, number))?;
        let start = pages.start.cast();
        let owner = Mapped { _pages: pages, line: Arc::clone(line), number };
        // SAFETY: the owner keeps `len` bytes mapped at that place; it is the only mapping of the
        // pages in this process that is given out here.
        Ok(unsafe { Mapping::new(start, len, Box::new(owner)) })
    }

    fn allocate(&self, request: &MemoryRequest) -> Result<Mapping, AllocateError> {
        real::allocate(request)
    }

    /// Any number is valid: the host looks it up.
    unsafe fn event_file(&self, fd: RawFd) -> Result<Box<dyn EventFile>, Errno> {
        let numbers = [self.number, i64::from(fd) as u64];
        let answer = self.wire.line.ask_well(Ask::Events, &numbers, &[])?;
        let signal = answer.file.ok_or(Errno::EPROTO)?;
        let line = Arc::clone(&self.wire.line);
        line.events().insert(signal.as_raw_fd(), fd);
        Ok(Box::new(WireEvents { line, number: answer.numbers[0], signal }))
    }
}

/// Pages of the host that are mapped here.
struct Pages {
    start: NonNull<c_void>,
    length: usize,
}

// SAFETY: the address range belongs to this value alone.
unsafe impl Send for Pages {}
// SAFETY: sharing it gives out the address only.
unsafe impl Sync for Pages {}

impl Pages {
    fn map(file: &OwnedFd, place: u64, length: usize, access: Access) -> Result<Self, Errno> {
        let size = NonZeroUsize::new(length).ok_or(Errno::EINVAL)?;
        let rights = match access {
            Access::Read => ProtFlags::PROT_READ,
            Access::Write => ProtFlags::PROT_READ | ProtFlags::PROT_WRITE,
        };
        let place = i64::try_from(place).map_err(|_| Errno::EPROTO)?;
        // SAFETY: a new mapping, at an address of the kernel's choice, touches no memory in use.
        let start = unsafe { mmap(None, size, rights, MapFlags::MAP_SHARED, file, place) }?;
        let pages = Self { start, length };
        // A child's doorbell would count as the parent's.
        // SAFETY: the range is the new mapping; the advice changes nothing in this process.
        unsafe { madvise(start, length, MmapAdvise::MADV_DONTFORK) }?;
        Ok(pages)
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the range is this mapping, and its only user is the driver's `Mapping`, which is
        // being dropped.
        let _ = unsafe { munmap(self.start, self.length) };
    }
}

/// The owner of a mapping. The pages are dropped first: after the report the host may give them to
/// another process.
struct Mapped {
    _pages: Pages,
    line: Arc<Line>,
    number: u64,
}

impl Drop for Mapped {
    fn drop(&mut self) {
        self.line.report(Ask::Unmap, self.number);
    }
}

/// An event file of a shared machine.
struct WireEvents {
    line: Arc<Line>,
    number: u64,
    signal: OwnedFd,
}

impl AsFd for WireEvents {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.signal.as_fd()
    }
}

impl EventFile for WireEvents {
    fn read(&self, buf: &mut [u8]) -> Result<usize, Errno> {
        let answer = self.line.ask_well(Ask::Read, &[self.number, buf.len() as u64], &[])?;
        let to = buf.get_mut(..answer.bytes.len()).ok_or(Errno::EPROTO)?;
        to.copy_from_slice(&answer.bytes);
        Ok(answer.bytes.len())
    }
}

impl Drop for WireEvents {
    fn drop(&mut self) {
        self.line.events().remove(&self.signal.as_raw_fd());
        self.line.report(Ask::CloseEvents, self.number);
    }
}

/// A channel of the connection manager of a shared machine.
pub struct WireCmFile {
    line: Arc<Line>,
    number: u64,
    signal: OwnedFd,
}

impl fmt::Debug for WireCmFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WireCmFile").field("number", &self.number).finish_non_exhaustive()
    }
}

impl WireCmFile {
    /// The number by which a child can inherit it.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }
}

impl AsFd for WireCmFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.signal.as_fd()
    }
}

impl CmFile for WireCmFile {
    unsafe fn write(&self, call: &[u8]) -> Result<(), Errno> {
        let mut call = call.to_vec();
        rdma_cm::replace_channel(&mut call, |fd| self.line.events().get(&fd).copied());
        self.line.ask_well(Ask::CallCm, &[self.number], &call).map(drop)
    }
}

impl Drop for WireCmFile {
    fn drop(&mut self) {
        self.line.events().remove(&self.signal.as_raw_fd());
        self.line.report(Ask::CloseCm, self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::socket::{Backlog, bind, listen};

    #[test]
    fn host_that_never_answers_is_named_after_the_limit() {
        let name = format!("mlx5-silent-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let kind = SockType::SeqPacket;
        let host = socket(AddressFamily::Unix, kind, SockFlag::SOCK_CLOEXEC, None).unwrap();
        bind(host.as_raw_fd(), &UnixAddr::new(&path).unwrap()).unwrap();
        // The first one is queued and not answered; then the queue is full.
        listen(&host, Backlog::new(0).unwrap()).unwrap();
        let limit = Duration::from_millis(10);
        let mut queued = Vec::new();
        let mut refused = Wire::connect_within(&path, limit).unwrap_err();
        assert_eq!(refused.errno(), Errno::ETIMEDOUT);
        assert!(!refused.is_absent());
        assert!(refused.to_string().contains("does not answer"), "{refused}");
        while refused.errno() != Errno::EAGAIN {
            assert!(queued.len() < 100, "the queue has no end");
            queued.extend(connected(&path, limit));
            refused = Wire::connect_within(&path, limit).unwrap_err();
        }
        assert!(refused.to_string().contains("does not answer"), "{refused}");
        std::fs::remove_file(&path).unwrap();
    }
}
