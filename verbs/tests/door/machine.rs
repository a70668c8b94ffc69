//! A simulated kernel in the form that the library needs: its event files are pipes from which
//! `read` takes events.

use mlx5_sim::{SimConfig, Simulator};
use mlx5_uapi::ioctl::{IoctlAttr, IoctlHeader};
use mlx5_uapi::{
    Access, AllocateError, CmFile, DeviceFile, Errno, EventFile, Kernel, Mapping, MemoryRequest,
};
use std::fs::File;
use std::io::{PipeWriter, Write, pipe};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use std::thread;
use std::time::Duration;
use std::{env, fs};

/// Number of machines made so far, the seed of the next one.
static MACHINES: AtomicU64 = AtomicU64::new(1);

/// Time limit of the tests.
const LIMIT: Duration = Duration::from_secs(90);

/// Whether a debugger is attached, which may stop the tests at any time.
fn is_traced() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().any(|line| line.starts_with("TracerPid:") && !line.ends_with("\t0"))
}

/// Ends the process if a test waits forever: nothing else can end a verb that waits for an
/// acknowledgement.
fn end_a_process_that_waits() {
    loop {
        let before = MACHINES.load(Relaxed);
        thread::sleep(LIMIT);
        if MACHINES.load(Relaxed) == before && !is_traced() {
            eprintln!("a test has waited for {LIMIT:?}: see which one has no result");
            std::process::exit(101);
        }
    }
}

/// A machine whose devices run only when the test steps them.
pub(crate) struct Machine {
    pub(crate) sim: Arc<Simulator>,
    sources: Sources,
    before: Before,
}

/// Runs before each call of the kernel.
type Before = Arc<Mutex<Box<dyn FnMut() + Send>>>;

impl Machine {
    /// The seed makes the GUIDs: each machine of this process has its own.
    pub(crate) fn new(config: SimConfig) -> Self {
        static WATCHED: Once = Once::new();
        WATCHED.call_once(|| {
            // The limit of all programs with tests: see docs/TESTING.md.
            if env::var_os("MLX5_TEST_MINUTES").is_none_or(|minutes| minutes != "0") {
                thread::spawn(end_a_process_that_waits);
            }
        });
        let config = config.step(true).seed(MACHINES.fetch_add(1, Relaxed));
        let before: Before = Arc::new(Mutex::new(Box::new(|| ())));
        Self { sim: Arc::new(Simulator::new(config)), sources: Sources::default(), before }
    }

    pub(crate) fn kernel(&self) -> Arc<dyn Kernel> {
        let (sources, before) = (self.sources.clone(), Arc::clone(&self.before));
        Arc::new(PipedKernel { kernel: self.sim.kernel(), sources, before })
    }

    /// Sets a function that runs before each later call of the kernel, while the program is inside
    /// of a verb.
    pub(crate) fn before_each_call(&self, does: impl FnMut() + Send + 'static) {
        *self.before.lock().expect("no panic") = Box::new(does);
    }

    /// Runs the devices until they are idle, and moves the events to their pipes.
    pub(crate) fn run(&self) {
        while self.sim.run_until_idle() + self.sources.bring() != 0 {}
    }

    /// Lets the devices do one piece of work. Returns whether there was any.
    pub(crate) fn step(&self) -> bool {
        let worked = self.sim.step();
        self.sources.bring() != 0 || worked
    }

    /// Moves events to their pipes.
    pub(crate) fn bring_events(&self) {
        self.sources.bring();
    }
}

/// An event file of the simulated kernel, and the pipe that its events go to.
struct Source {
    from: Box<dyn EventFile>,
    /// The descriptor that programs have for the file.
    read_by: RawFd,
    to: PipeWriter,
}

/// All descriptors of event files are at least this large.
const LOWEST: RawFd = 512;

/// All open event files, each with its own number.
#[derive(Clone, Default)]
struct Sources(Arc<Mutex<Open>>);

/// The files that are open, and the number of the next one.
#[derive(Default)]
struct Open {
    next: u64,
    files: Vec<(u64, Source)>,
}

impl Sources {
    fn lock(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves pending events to the pipes. Returns their number.
    fn bring(&self) -> usize {
        let mut count = 0;
        for (_, source) in &mut self.lock().files {
            let mut record = [0; 512];
            while let Ok(length) = source.from.read(&mut record) {
                source.to.write_all(&record[..length]).expect("a pipe with room");
                count += 1;
            }
        }
        count
    }
}

struct PipedKernel {
    kernel: Arc<dyn Kernel>,
    sources: Sources,
    before: Before,
}

impl Kernel for PipedKernel {
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
        let (sources, before) = (self.sources.clone(), Arc::clone(&self.before));
        Ok(Arc::new(PipedFile { file, sources, before }))
    }

    fn uevents(&self) -> Result<Box<dyn EventFile>, Errno> {
        self.kernel.uevents()
    }

    fn rdma_cm(&self) -> Result<Arc<dyn CmFile>, Errno> {
        self.kernel.rdma_cm()
    }
}

struct PipedFile {
    file: Arc<dyn DeviceFile>,
    sources: Sources,
    before: Before,
}

impl DeviceFile for PipedFile {
    unsafe fn ioctl(&self, header: *mut IoctlHeader) -> Result<(), Errno> {
        // SAFETY: the caller promises that `num_attrs` attributes follow `header`.
        let attrs: &mut [IoctlAttr] = unsafe {
            std::slice::from_raw_parts_mut(header.add(1).cast(), (*header).num_attrs.into())
        };
        let sources = self.sources.lock();
        // Handles and descriptors have length zero, and no handle of an object is as large as these
        // descriptors.
        for attr in attrs.iter_mut().filter(|attr| attr.len == 0) {
            let of = |(_, source): &&(u64, Source)| source.read_by as u64 == attr.data;
            if let Some((_, source)) = sources.files.iter().find(of) {
                attr.data = source.from.as_fd().as_raw_fd() as u64;
            }
        }
        drop(sources);
        (self.before.lock().expect("no panic"))();
        // SAFETY: the caller promises a valid `header` and attributes; they pass on with
        // descriptors replaced.
        unsafe { self.file.ioctl(header) }
    }

    fn map(&self, offset: u64, len: usize, access: Access) -> Result<Mapping, Errno> {
        self.file.map(offset, len, access)
    }

    fn allocate(&self, request: &MemoryRequest) -> Result<Mapping, AllocateError> {
        self.file.allocate(request)
    }

    unsafe fn event_file(&self, fd: RawFd) -> Result<Box<dyn EventFile>, Errno> {
        // SAFETY: the caller promises that an ioctl of this file, which passed on too, created
        // `fd`.
        let from = unsafe { self.file.event_file(fd) }?;
        let (reader, to) = pipe().expect("a pipe");
        // SAFETY: the descriptor is open, and nothing else owns the new one.
        let file = unsafe {
            let read_by = libc::fcntl(reader.as_raw_fd(), libc::F_DUPFD_CLOEXEC, LOWEST);
            assert!(read_by >= 0, "a descriptor");
            File::from_raw_fd(read_by)
        };
        let mut sources = self.sources.lock();
        let number = sources.next;
        sources.next += 1;
        sources.files.push((number, Source { from, read_by: file.as_raw_fd(), to }));
        Ok(Box::new(PipedEvents { number, file, sources: self.sources.clone() }))
    }
}

/// The end of a pipe that a program reads.
struct PipedEvents {
    number: u64,
    file: File,
    sources: Sources,
}

impl AsFd for PipedEvents {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl EventFile for PipedEvents {
    fn read(&self, buf: &mut [u8]) -> Result<usize, Errno> {
        // SAFETY: `buf` is writable for its length.
        let length =
            unsafe { libc::read(self.file.as_raw_fd(), buf.as_mut_ptr().cast(), buf.len()) };
        usize::try_from(length).map_err(|_| Errno::last())
    }
}

impl Drop for PipedEvents {
    fn drop(&mut self) {
        self.sources.lock().files.retain(|(number, _)| *number != self.number);
    }
}
