//! A forked child: its calls and drops do not affect its parent's connections. Also a kernel of
//! another version.

use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::sync::Arc;

use mlx5::{Errno, Kernel};
use mlx5_cm::{ErrorKind, EventChannel, Listener, connect_on};
use mlx5_uapi::ioctl::IoctlHeader;
use mlx5_uapi::{Access, AllocateError, CmFile, DeviceFile, EventFile, Mapping, MemoryRequest};
use nix::libc::_exit;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, alarm, fork};

use crate::rig::{ADDRESS, LIMIT, Machine, Objects};

/// Exit code of a child that made a call on a file of its parent.
const CALLED: i32 = 3;

/// A kernel whose files no child may use, and that may have another version.
struct Watched {
    kernel: Arc<dyn Kernel>,
    version: Option<&'static str>,
}

/// A file that only one process may use.
///
/// The simulated machine is in the memory of a process, so a child has a copy of it: the parent
/// does not see the child's calls. The file therefore detects the call itself.
struct WatchedFile<F: ?Sized> {
    file: Arc<F>,
    process: u32,
}

impl<F: ?Sized> WatchedFile<F> {
    fn new(file: Arc<F>) -> Arc<Self> {
        Arc::new(Self { file, process: std::process::id() })
    }

    /// Returns the file for a call, and ends a child that makes one.
    fn call(&self) -> &F {
        if std::process::id() != self.process {
            // SAFETY: `_exit` has no precondition; it ends the child without running any
            // destructor.
            unsafe { _exit(CALLED) }
        }
        &self.file
    }
}

impl Kernel for Watched {
    fn sysfs_list(&self, path: &str) -> Result<Vec<String>, Errno> {
        self.kernel.sysfs_list(path)
    }

    fn sysfs_read(&self, path: &str) -> Result<String, Errno> {
        match self.version {
            Some(version) if path == "class/misc/rdma_cm/abi_version" => Ok(version.to_owned()),
            _ => self.kernel.sysfs_read(path),
        }
    }

    fn sysfs_link(&self, path: &str) -> Result<String, Errno> {
        self.kernel.sysfs_link(path)
    }

    fn open(&self, node: &str, dev: (u32, u32)) -> Result<Arc<dyn DeviceFile>, Errno> {
        Ok(WatchedFile::new(self.kernel.open(node, dev)?))
    }

    fn uevents(&self) -> Result<Box<dyn EventFile>, Errno> {
        self.kernel.uevents()
    }

    fn rdma_cm(&self) -> Result<Arc<dyn CmFile>, Errno> {
        Ok(WatchedFile::new(self.kernel.rdma_cm()?))
    }
}

impl AsFd for WatchedFile<dyn CmFile> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl CmFile for WatchedFile<dyn CmFile> {
    unsafe fn write(&self, call: &[u8]) -> Result<(), Errno> {
        // SAFETY: the caller promises that the addresses in `call` are valid; the call passes on
        // unchanged.
        unsafe { self.call().write(call) }
    }
}

impl DeviceFile for WatchedFile<dyn DeviceFile> {
    unsafe fn ioctl(&self, header: *mut IoctlHeader) -> Result<(), Errno> {
        // SAFETY: the caller promises a valid `header` and attributes; they pass on unchanged.
        unsafe { self.call().ioctl(header) }
    }

    fn map(&self, offset: u64, len: usize, access: Access) -> Result<Mapping, Errno> {
        self.call().map(offset, len, access)
    }

    fn allocate(&self, request: &MemoryRequest) -> Result<Mapping, AllocateError> {
        self.call().allocate(request)
    }

    unsafe fn event_file(&self, fd: RawFd) -> Result<Box<dyn EventFile>, Errno> {
        // SAFETY: the caller promises that an ioctl of this file, which passed on too, created
        // `fd`.
        unsafe { self.call().event_file(fd) }
    }
}

/// Runs `child` in a child process, which ends afterwards. If it hangs, a signal kills it.
fn in_child(child: impl FnOnce()) -> WaitStatus {
    // SAFETY: the child takes no lock that another thread of this process may hold, except for
    // those of the allocator, which a fork leaves usable, and, if it fails, of the standard
    // library's standard error.
    match unsafe { fork() }.expect("a fork") {
        ForkResult::Parent { child } => waitpid(child, None).expect("a child that ends"),
        ForkResult::Child => {
            alarm::set(LIMIT.as_secs() as u32);
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child));
            // SAFETY: `_exit` has no precondition; it ends the child without dropping the parent's
            // objects.
            unsafe { _exit(i32::from(done.is_err())) }
        }
    }
}

#[test]
fn a_child_that_drops_everything_makes_no_call_on_what_its_parent_has() {
    let machine = Machine::roce();
    let kernel: Arc<dyn Kernel> = Arc::new(Watched { kernel: machine.kernel(), version: None });
    let mut listener = Listener::bind_on(Arc::clone(&kernel), ADDRESS).expect("a listener");
    let (client, server) = std::thread::scope(|scope| {
        let server = scope.spawn(|| {
            let request = listener.next(Some(LIMIT)).expect("a request");
            let (objects, qp) = Objects::new(&request.device().expect("a device"));
            (request.timeout(LIMIT).accept(qp, b"").expect("accepted"), objects)
        });
        let peer = connect_on(Arc::clone(&kernel), ADDRESS).expect("resolved");
        let (objects, qp) = Objects::new(&peer.device().expect("a device"));
        let client = peer.timeout(LIMIT).connect(qp, b"").expect("connected");
        ((client, objects), server.join().expect("the server"))
    });
    let (server, theirs) = server;
    let watched = server.watched().expect("a thread");
    let mut everything = Some((client, (watched, theirs), listener));
    let ended = in_child(|| {
        let ((mut connection, ours), server, mut listener) =
            everything.take().expect("it is there");
        let forked = |error: mlx5_cm::Error| assert_eq!(error.kind(), ErrorKind::Forked, "{error}");
        forked(connection.has_ended().map(drop).expect_err("the parent's"));
        forked(connection.disconnect().expect_err("the parent's"));
        forked(connection.id().device().map(drop).expect_err("the parent's"));
        forked(listener.next(None).map(drop).expect_err("the parent's"));
        // The thread that would report the end does not exist here.
        let watched = &server.0;
        forked(watched.wait_ended(None).map(drop).expect_err("the parent's"));
        forked(watched.has_ended().map(drop).expect_err("the parent's"));
        assert!(format!("{watched:?}").contains("Forked"));
        let failed = connection.watched().expect_err("the parent's");
        let (error, connection) = failed.into_parts();
        forked(error);
        drop((connection, ours, server, listener));
    });
    assert!(matches!(ended, WaitStatus::Exited(_, 0)), "{CALLED} stands for a call: {ended:?}");
    drop(everything);
    machine.end();
}

#[test]
fn a_connection_manager_of_another_version_is_not_spoken_to() {
    let machine = Machine::roce();
    let open =
        |version| EventChannel::open_on(Arc::new(Watched { kernel: machine.kernel(), version }));
    for version in ["5\n", "a"] {
        let error = open(Some(version)).expect_err("another version");
        assert_eq!(error.kind(), ErrorKind::NotSupported);
        assert!(error.to_string().contains(version.trim()), "{error}");
    }
    drop(open(Some("4\n")).expect("a channel"));
    machine.end();
}
