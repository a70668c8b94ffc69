//! The process that serves the machine.

use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use mlx5_sim::Simulator;
use mlx5_sim::kernel::{ProcessCmFile, ProcessFile, SharedPages, SysfsEntry};
use mlx5_sim::processes::Process;
use mlx5_sim::settings::Settings;
use mlx5_uapi::names::NamedCall;
use mlx5_uapi::rdma_cm::{CommandId, Header};
use mlx5_uapi::{Access, Errno, EventFile, Mapping};
use nix::fcntl::{Flock, FlockArg};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, accept4, bind, getsockopt, listen,
    socket, sockopt,
};
use zerocopy::FromBytes;

use crate::message::{self, Ask, LONGEST, Message, VERSION, to_bytes, to_words};

/// Processes that may wait to be let in.
const BACKLOG: i32 = 128;
/// Wait of a host without a free descriptor before it accepts processes again.
const SHORT_OF_DESCRIPTORS: Duration = Duration::from_millis(10);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Says something on standard error.
macro_rules! say {
    ($($argument:tt)*) => {
        mlx5_sim::diagnostics::say("mlx5-sim-wire", format_args!($($argument)*))
    };
}

/// The host of a machine, at its socket.
pub struct Host {
    shared: Arc<Shared>,
    listener: OwnedFd,
}

struct Shared {
    place: Place,
    simulator: Simulator,
    settings: String,
    trace: bool,
    clients: Mutex<BTreeMap<u64, Arc<Client>>>,
    next: AtomicU64,
    /// Violations by drivers.
    violations: Mutex<Vec<String>>,
    /// Whether to end as soon as no program is connected.
    leaving: AtomicBool,
    /// Raised when a process has gone, or the host is to end.
    gone: EventFd,
}

/// The socket's place in the file system.
struct Place {
    path: PathBuf,
    /// Held as long as the place is this host's.
    lock: Mutex<Option<Flock<File>>>,
}

impl Place {
    /// Removes the socket: programs that start now find no machine. The host keeps the lock of the
    /// place.
    fn close(&self) -> io::Result<()> {
        let held = lock(&self.lock);
        if held.as_ref().is_some_and(|file| is_at(file, &lock_of(&self.path))) {
            return remove_if_there(&self.path);
        }
        Ok(())
    }

    /// Removes socket and lock, once: then another host may serve here.
    fn release(&self) {
        let mut held = lock(&self.lock);
        let Some(file) = held.take() else { return };
        let own = lock_of(&self.path);
        if is_at(&file, &own) {
            // If one cannot be removed, the next host does it.
            let _ = remove_if_there(&self.path);
            let _ = remove_if_there(&own);
        }
    }
}

/// Removes a file, unless it is gone already.
fn remove_if_there(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Ends a host from another thread.
#[derive(Clone)]
pub struct Leave {
    shared: Arc<Shared>,
}

impl Leave {
    /// Lets it end once no program is connected.
    pub fn leave(&self) {
        self.shared.leaving.store(true, Ordering::Release);
        self.shared.ring();
    }

    /// Removes the socket: programs that come now find no machine. Those that are connected are
    /// served.
    pub fn close(&self) -> io::Result<()> {
        self.shared.place.close()
    }

    /// Gives up the socket's place before the process ends: then another host may serve there.
    pub fn release(&self) {
        self.shared.place.release();
    }

    /// Returns the numbers of the processes that are connected.
    pub(crate) fn connected(&self) -> Vec<i32> {
        lock(&self.shared.clients).values().map(|client| client.process.pid()).collect()
    }

    /// Writes the violations of the device model to standard error before the process ends, also
    /// while programs are connected. Returns their number.
    pub fn violations(&self) -> usize {
        self.shared.say_violations();
        lock(&self.shared.violations).len()
    }
}

/// A process that is connected.
struct Client {
    number: u64,
    process: Arc<Process>,
    files: Mutex<Handles<ProcessFile>>,
    channels: Mutex<Handles<Arc<ProcessCmFile>>>,
}

/// Objects by number. Numbers are not reused.
struct Handles<T> {
    things: BTreeMap<u64, T>,
    next: u64,
}

impl<T> Default for Handles<T> {
    fn default() -> Self {
        Self { things: BTreeMap::new(), next: 1 }
    }
}

impl<T> Handles<T> {
    fn add(&mut self, thing: T) -> u64 {
        let number = self.next;
        self.next += 1;
        self.things.insert(number, thing);
        number
    }

    fn get(&self, number: u64) -> Result<&T, Errno> {
        self.things.get(&number).ok_or(Errno::EBADF)
    }
}

/// Returns the file that is locked while a machine is served at this socket.
pub fn lock_of(socket: &Path) -> PathBuf {
    let mut name = socket.as_os_str().to_owned();
    name.push(".lock");
    name.into()
}

/// Whether the file is the one at the path, which by now may be another process's.
fn is_at(file: &File, path: &Path) -> bool {
    let identity = |of: Metadata| (of.dev(), of.ino());
    let one = file.metadata().map(identity);
    let other = std::fs::symlink_metadata(path).map(identity);
    one.is_ok_and(|one| other.is_ok_and(|other| one == other))
}

impl Host {
    /// Starts the machine that the settings describe, at the socket that they name. Returns `None`
    /// if a machine is served there already.
    pub fn bind(path: &Path, settings: &Settings) -> io::Result<Option<Self>> {
        let place = lock_of(path);
        let lock = loop {
            let file = File::options().create(true).append(true).open(&place)?;
            match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                // A host that ended has removed it in between.
                Ok(lock) if !is_at(&lock, &place) => {}
                Ok(lock) => break lock,
                Err((_, Errno::EWOULDBLOCK)) => return Ok(None),
                Err((_, errno)) => return Err(errno.into()),
            }
        };
        // The host that had the lock has ended, and its socket does not answer.
        remove_if_there(path)?;
        let machine = settings.machine.clone().unwrap_or_default();
        let simulator = Simulator::for_processes(machine)?;
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let listener = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)?;
        bind(listener.as_raw_fd(), &UnixAddr::new(path)?)?;
        listen(&listener, Backlog::new(BACKLOG)?)?;
        let gone = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        let shared = Shared {
            place: Place { path: path.to_owned(), lock: Mutex::new(Some(lock)) },
            simulator,
            settings: settings.about_machine.clone(),
            trace: settings.trace,
            clients: Mutex::default(),
            next: AtomicU64::new(1),
            violations: Mutex::default(),
            leaving: AtomicBool::new(false),
            gone,
        };
        let shared = Arc::new(shared);
        Ok(Some(Self { shared, listener }))
    }

    /// The machine itself.
    #[must_use]
    pub fn simulator(&self) -> &Simulator {
        &self.shared.simulator
    }

    /// Returns a handle that ends it from another thread.
    #[must_use]
    pub fn leave(&self) -> Leave {
        Leave { shared: Arc::clone(&self.shared) }
    }

    /// Serves until no program has been connected for `linger`, or forever. Returns the number of
    /// violations.
    pub fn serve(self, linger: Option<Duration>) -> io::Result<usize> {
        let mut short = false;
        loop {
            let idle = lock(&self.shared.clients).is_empty();
            if idle && self.shared.leaving.load(Ordering::Acquire) {
                break;
            }
            let timeout = match linger {
                Some(linger) if idle => PollTimeout::try_from(linger).unwrap_or(PollTimeout::MAX),
                _ => PollTimeout::NONE,
            };
            let wanted = [self.listener.as_fd(), self.shared.gone.as_fd()];
            let mut wanted = wanted.map(|fd| PollFd::new(fd, PollFlags::POLLIN));
            match poll(&mut wanted, timeout) {
                Ok(0) if lock(&self.shared.clients).is_empty() => break,
                Ok(_) | Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno.into()),
            }
            // It is empty if another thread has read it.
            let _ = self.shared.gone.read();
            self.accept(&mut short)?;
        }
        // A program that starts now finds no machine, and starts its own. One that connected before
        // is served, unless it needs a descriptor and none will be free.
        self.shared.place.close()?;
        loop {
            self.accept(&mut short)?;
            if lock(&self.shared.clients).is_empty() {
                break;
            }
            if short {
                continue;
            }
            let mut wanted = [PollFd::new(self.shared.gone.as_fd(), PollFlags::POLLIN)];
            match poll(&mut wanted, PollTimeout::NONE) {
                Ok(_) | Err(Errno::EINTR) => _ = self.shared.gone.read(),
                Err(errno) => return Err(errno.into()),
            }
        }
        self.shared.say_violations();
        self.shared.place.release();
        Ok(lock(&self.shared.violations).len())
    }

    /// Accepts all waiting processes. Sets `short` if one cannot be accepted for want of
    /// descriptors.
    fn accept(&self, short: &mut bool) -> io::Result<()> {
        loop {
            let socket = match accept4(self.listener.as_raw_fd(), SockFlag::SOCK_CLOEXEC) {
                // SAFETY: the kernel has just made the descriptor for this process.
                Ok(fd) => unsafe { <OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(fd) },
                Err(Errno::EAGAIN) => {
                    *short = false;
                    return Ok(());
                }
                Err(Errno::EINTR | Errno::ECONNABORTED) => continue,
                // The waiting process is accepted once another has gone.
                Err(errno @ (Errno::EMFILE | Errno::ENFILE | Errno::ENOBUFS | Errno::ENOMEM)) => {
                    // The listener stays readable, so that this error repeats.
                    if !std::mem::replace(short, true) {
                        say!("no process is let in: {errno}");
                    }
                    thread::sleep(SHORT_OF_DESCRIPTORS);
                    return Ok(());
                }
                Err(errno) => return Err(errno.into()),
            };
            let pid = getsockopt(&socket, sockopt::PeerCredentials)?.pid();
            let process = match self.shared.simulator.add_process(pid) {
                Ok(process) => process,
                Err(errno) => {
                    say!("process {pid}: not let in: {errno}");
                    refuse(socket, errno);
                    continue;
                }
            };
            let number = self.shared.next.fetch_add(1, Ordering::Relaxed);
            let client = Arc::new(Client {
                number,
                process,
                files: Mutex::default(),
                channels: Mutex::default(),
            });
            lock(&self.shared.clients).insert(number, Arc::clone(&client));
            let shared = Arc::clone(&self.shared);
            let served = thread::Builder::new().name(format!("pid {pid}")).spawn(move || {
                let connection = Connection::new(&shared, client);
                connection.serve(&socket);
            });
            if let Err(error) = served {
                say!("process {pid}: not let in: {error}");
                lock(&self.shared.clients).remove(&number);
            }
        }
    }
}

/// However it ends, its files go.
impl Drop for Host {
    fn drop(&mut self) {
        self.shared.place.release();
    }
}

/// Answers the first question of a process that is refused.
fn refuse(socket: OwnedFd, errno: Errno) {
    let answer = move || {
        let _ = message::receive(socket.as_raw_fd());
        let _ = message::send(socket.as_raw_fd(), &Message::failure(errno), None);
    };
    // Without a thread the process finds that the host hung up.
    let _ = thread::Builder::new().name("refused".to_owned()).spawn(answer);
}

impl Shared {
    fn ring(&self) {
        // A full counter is already readable.
        let _ = self.gone.write(1);
    }

    fn say_violations(&self) {
        // Both steps under one lock: another question must not see the violations between them.
        let mut violations = lock(&self.violations);
        for violation in self.simulator.take_violations() {
            say!("violation: {violation:?}");
            violations.push(format!("{violation:?}"));
        }
    }
}

/// The state of one process, from its connection to its end.
struct Connection<'a> {
    shared: &'a Shared,
    client: Arc<Client>,
    events: Handles<Box<dyn EventFile>>,
    mappings: Handles<Mapping>,
}

impl Drop for Connection<'_> {
    fn drop(&mut self) {
        self.events.things.clear();
        self.mappings.things.clear();
        let files = std::mem::take(&mut lock(&self.client.files).things);
        drop(files);
        let channels = std::mem::take(&mut lock(&self.client.channels).things);
        drop(channels);
        self.shared.say_violations();
        lock(&self.shared.clients).remove(&self.client.number);
        self.shared.ring();
    }
}

impl<'a> Connection<'a> {
    fn new(shared: &'a Shared, client: Arc<Client>) -> Self {
        Self { shared, client, events: Handles::default(), mappings: Handles::default() }
    }

    fn serve(mut self, socket: &OwnedFd) {
        let socket = socket.as_raw_fd();
        while let Ok(Some(question)) = message::receive(socket) {
            let ask = Ask::from_raw(question.head);
            let answer = match ask {
                Some(Ask::Events) => self.event_file(socket, &question.numbers),
                Some(Ask::Hello) => self.hello(socket, &question.numbers),
                Some(ask @ (Ask::OpenCm | Ask::InheritCm)) => {
                    self.channel(socket, ask, &question.numbers)
                }
                Some(ask) => {
                    let asked = self.shared.trace.then(|| described(ask, &question));
                    let answer = self.answer(ask, question);
                    let answer = answer.unwrap_or_else(Message::failure);
                    if let Some(asked) = asked {
                        let pid = self.client.process.pid();
                        match answer.head as i32 {
                            0 => say!("process {pid}: {asked}"),
                            errno => say!("process {pid}: {asked}: {}", Errno::from_raw(errno)),
                        }
                    }
                    message::send(socket, &answer, None)
                }
                None => message::send(socket, &Message::failure(Errno::ENOSYS), None),
            };
            if answer.is_err() {
                break;
            }
        }
    }

    fn hello(&self, socket: i32, numbers: &[u64]) -> Result<(), Errno> {
        let pages = match self.let_in(numbers) {
            Ok(pages) => pages,
            Err(errno) => {
                say!("process {}: not let in: {errno}", self.client.process.pid());
                return message::send(socket, &Message::failure(errno), None);
            }
        };
        self.shared.say_violations();
        let so_far = lock(&self.shared.violations).len() as u64;
        let answer = Message::numbers(&[self.client.number, so_far]);
        let answer = answer.with(self.shared.settings.clone().into_bytes());
        message::send(socket, &answer, Some(pages.as_fd()))
    }

    /// The file of pages, for a process of the same version whose memory can be reached.
    fn let_in(&self, numbers: &[u64]) -> Result<&SharedPages, Errno> {
        let pages = self.shared.simulator.shared_pages();
        let pages = pages.filter(|_| numbers[0] == VERSION).ok_or(Errno::EPROTO)?;
        let mut word = [0; 8];
        self.client.process.read(numbers[1], &mut word)?;
        if u64::from_ne_bytes(word) == numbers[2] { Ok(pages) } else { Err(Errno::EFAULT) }
    }

    fn event_file(&mut self, socket: i32, numbers: &[u64]) -> Result<(), Errno> {
        let found = {
            let files = lock(&self.client.files);
            files.get(numbers[0]).and_then(|file| file.event_file(numbers[1] as i32))
        };
        match found {
            Ok(file) => {
                let number = self.events.add(file);
                let file = self.events.get(number)?;
                message::send(socket, &Message::numbers(&[number]), Some(file.as_fd()))
            }
            Err(errno) => message::send(socket, &Message::failure(errno), None),
        }
    }

    /// Opens a channel of the connection manager, or inherits one.
    fn channel(&mut self, socket: i32, ask: Ask, numbers: &[u64]) -> Result<(), Errno> {
        match self.open_channel(ask, numbers) {
            Ok(channel) => {
                let there = channel.as_fd().as_raw_fd() as u64;
                let number = lock(&self.client.channels).add(Arc::clone(&channel));
                message::send(socket, &Message::numbers(&[number, there]), Some(channel.as_fd()))
            }
            Err(errno) => message::send(socket, &Message::failure(errno), None),
        }
    }

    fn open_channel(&self, ask: Ask, numbers: &[u64]) -> Result<Arc<ProcessCmFile>, Errno> {
        let process = &self.client.process;
        if ask == Ask::OpenCm {
            return self.shared.simulator.open_cm_for(process).map(Arc::new);
        }
        let parent = lock(&self.shared.clients).get(&numbers[0]).cloned();
        let parent = parent.ok_or(Errno::EBADF)?;
        let channel = lock(&parent.channels).get(numbers[1])?.inherited_by(process);
        Ok(Arc::new(channel))
    }

    fn answer(&mut self, ask: Ask, question: Message) -> Result<Message, Errno> {
        let [first, second, third, fourth] = question.numbers;
        let simulator = &self.shared.simulator;
        let process = &self.client.process;
        Ok(match ask {
            Ask::Open => {
                let node = String::from_utf8(question.bytes).map_err(|_| Errno::EINVAL)?;
                let dev = (first as u32, second as u32);
                let file = simulator.open_for(process, &node, dev)?;
                Message::numbers(&[lock(&self.client.files).add(file)])
            }
            Ask::Inherit => {
                let parent = lock(&self.shared.clients).get(&first).cloned();
                let parent = parent.ok_or(Errno::EBADF)?;
                let file = lock(&parent.files).get(second)?.inherited_by(process);
                Message::numbers(&[lock(&self.client.files).add(file)])
            }
            Ask::Close => {
                let file = lock(&self.client.files).things.remove(&first);
                drop(file);
                Message::default()
            }
            Ask::Call => {
                let mut words = to_words(&question.bytes);
                let files = lock(&self.client.files);
                let done = files.get(first)?.call(&mut words);
                drop(files);
                let answer = done.map_or_else(Message::failure, |()| Message::default());
                answer.with(to_bytes(&words))
            }
            Ask::Map => {
                let length = usize::try_from(third).map_err(|_| Errno::EINVAL)?;
                let access = if fourth == 0 { Access::Read } else { Access::Write };
                let files = lock(&self.client.files);
                let mapping = files.get(first)?.map(second, length, access)?;
                drop(files);
                let pages = simulator.shared_pages().ok_or(Errno::ENODEV)?;
                let place = pages.offset_of(mapping.as_ptr()).ok_or(Errno::ENODEV)?;
                Message::numbers(&[self.mappings.add(mapping), place])
            }
            Ask::Unmap => {
                self.mappings.things.remove(&first);
                Message::default()
            }
            Ask::Read => {
                let room = usize::try_from(second).unwrap_or(LONGEST).min(LONGEST);
                let mut record = vec![0; room];
                let length = self.events.get(first)?.read(&mut record)?;
                record.truncate(length);
                Message::default().with(record)
            }
            Ask::CloseEvents => {
                self.events.things.remove(&first);
                Message::default()
            }
            Ask::Sysfs => {
                let entries = simulator.sysfs()?;
                let from = usize::try_from(first).unwrap_or(usize::MAX);
                let (count, text) = some_of(entries.get(from..).unwrap_or_default());
                Message::numbers(&[count]).with(text.into_bytes())
            }
            Ask::Settle => Message::numbers(&[simulator.run_until_idle() as u64]),
            Ask::Violations => {
                if !simulator.config().step {
                    crate::finish(simulator);
                }
                self.shared.say_violations();
                let violations = lock(&self.shared.violations);
                let from = usize::try_from(first).unwrap_or(usize::MAX);
                let new = violations.get(from..).unwrap_or_default();
                let mut text = new.join("\n");
                // The first violations are enough.
                let end = (0..=LONGEST.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
                text.truncate(end.unwrap_or(0));
                Message::numbers(&[violations.len() as u64]).with(text.into_bytes())
            }
            Ask::CallCm => {
                let channel = Arc::clone(lock(&self.client.channels).get(first)?);
                channel.write(&question.bytes)?;
                Message::default()
            }
            Ask::CloseCm => {
                let channel = lock(&self.client.channels).things.remove(&first);
                drop(channel);
                Message::default()
            }
            Ask::Hello | Ask::Events | Ask::OpenCm | Ask::InheritCm => return Err(Errno::ENOSYS),
        })
    }
}

/// Describes a request for the log.
fn described(ask: Ask, question: &Message) -> String {
    if ask == Ask::CallCm {
        let id = Header::read_from_prefix(&question.bytes).ok();
        let id = id.and_then(|(header, _)| CommandId::from_raw(header.cmd));
        return id.map_or_else(|| format!("{ask:?}"), |id| format!("rdma_cm {id:?}"));
    }
    match NamedCall::read(&to_words(&question.bytes)).filter(|_| ask == Ask::Call) {
        Some(call) => format!("{call:#}"),
        None => format!("{ask:?}"),
    }
}

/// The entries of the tree that fit in a message.
fn some_of(entries: &[(String, SysfsEntry)]) -> (u64, String) {
    let (mut count, mut text) = (0, String::new());
    for (path, entry) in entries {
        let (kind, value) = match entry {
            SysfsEntry::File(contents) => ("file", contents),
            SysfsEntry::Link(target) => ("link", target),
        };
        let line = format!("{kind}\0{path}\0{value}\0");
        if text.len() + line.len() > LONGEST {
            break;
        }
        text.push_str(&line);
        count += 1;
    }
    (count, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mlx5_uapi::ioctl::method;

    #[test]
    fn a_call_is_said_by_its_name_and_anything_else_by_what_it_asks_for() {
        let asked = |bytes: Vec<u8>| Message::numbers(&[1]).with(bytes);
        let mut header = [0_u64; 3];
        header[0] = u64::from(method::CQ_CREATE.object) << 16 | 24;
        let call = asked(to_bytes(&header));
        assert_eq!(described(Ask::Call, &call), "UVERBS_METHOD_CQ_CREATE");
        assert_eq!(described(Ask::Open, &call), "Open");
        assert_eq!(described(Ask::Call, &asked(Vec::new())), "Call");
    }

    fn path_of(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("mlx5-{name}-{}", std::process::id()))
    }

    fn host_at(path: &Path) -> Host {
        let settings = "".parse().expect("settings");
        Host::bind(path, &settings).expect("a host").expect("no other")
    }

    #[test]
    fn host_that_gave_its_place_up_removes_nothing_of_the_next_one() {
        let path = path_of("places");
        let first = host_at(&path);
        let leave = first.leave();
        // Both may find the end at a time.
        leave.close().expect("it is there");
        leave.close().expect("it is gone already");
        assert!(!path.exists() && lock_of(&path).exists());
        let settings = "".parse().expect("settings");
        assert!(Host::bind(&path, &settings).expect("a lock").is_none(), "the place is taken");
        leave.release();
        assert!(!lock_of(&path).exists());
        let second = host_at(&path);
        leave.close().expect("nothing to do");
        leave.release();
        leave.leave();
        assert_eq!(first.serve(None).expect("it ends"), 0);
        assert!(path.exists() && lock_of(&path).exists(), "the second one's files are gone");
        drop(second);
        assert!(!path.exists() && !lock_of(&path).exists());
    }
}
