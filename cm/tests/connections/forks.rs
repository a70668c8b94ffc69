//! A forked child: what it drops or calls does nothing to its parent's connections. And a kernel of
//! another version.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use mlx5::{Errno, Kernel, QueueState};
use mlx5_cm::{ErrorKind, EventChannel, Listener, connect_on};
use mlx5_uapi::kernel::{CmFile, DeviceFile, EventFile};
use nix::libc::_exit;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};

use crate::rig::{ADDRESS, LIMIT, Machine, Objects};

/// How a child ends that made a call on a channel of its parent's.
const CALLED: i32 = 3;

/// A kernel whose channels no child may call, and which may have another version.
struct Watched {
    kernel: Arc<dyn Kernel>,
    version: Option<&'static str>,
}

struct WatchedFile {
    file: Arc<dyn CmFile>,
    process: u32,
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
        self.kernel.open(node, dev)
    }

    fn uevents(&self) -> Result<Box<dyn EventFile>, Errno> {
        self.kernel.uevents()
    }

    fn rdma_cm(&self) -> Result<Arc<dyn CmFile>, Errno> {
        Ok(Arc::new(WatchedFile { file: self.kernel.rdma_cm()?, process: std::process::id() }))
    }
}

impl AsFd for WatchedFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl CmFile for WatchedFile {
    unsafe fn write(&self, call: &[u8]) -> Result<(), Errno> {
        if std::process::id() != self.process {
            // SAFETY: ends the child here and now, and with it whatever went wrong.
            unsafe { _exit(CALLED) }
        }
        // SAFETY: the caller's contract.
        unsafe { self.file.write(call) }
    }
}

/// Runs `child` in a child process, which ends with it.
fn in_child(child: impl FnOnce()) -> WaitStatus {
    // SAFETY: the child takes no lock that another thread of this process may hold but those of the
    // allocator, which a fork leaves usable, and of the standard library's standard error, if it
    // fails.
    match unsafe { fork() }.expect("a fork") {
        ForkResult::Parent { child } => waitpid(child, None).expect("a child that ends"),
        ForkResult::Child => {
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child));
            // SAFETY: ends the child here and now: nothing else of the parent's is dropped.
            unsafe { _exit(i32::from(done.is_err())) }
        }
    }
}

#[test]
fn a_child_that_drops_everything_ends_no_connection_of_its_parent() {
    let machine = Machine::roce();
    let kernel: Arc<dyn Kernel> = Arc::new(Watched { kernel: machine.kernel(), version: None });
    let mut listener = Listener::bind_on(Arc::clone(&kernel), ADDRESS).expect("a listener");
    let [mut client, server] = std::thread::scope(|scope| {
        let server = scope.spawn(|| {
            let request = listener.next(Some(LIMIT)).expect("a request");
            let (objects, qp) = Objects::new(&request.device().expect("a device"));
            (request.timeout(LIMIT).accept(qp, b"").expect("accepted"), objects)
        });
        let peer = connect_on(Arc::clone(&kernel), ADDRESS).expect("resolved");
        let (objects, qp) = Objects::new(&peer.device().expect("a device"));
        let client = peer.timeout(LIMIT).connect(qp, b"").expect("connected");
        [Some((client, objects)), Some(server.join().expect("the server"))]
    });
    let (server, server_objects) = server.expect("a connection");
    let mut watched = Some(server.watched().expect("a thread"));
    let mut listener = Some(listener);
    let ended = in_child(|| {
        let (mut connection, _objects) = client.take().expect("a connection");
        let forked = |error: mlx5_cm::Error| assert_eq!(error.kind(), ErrorKind::Forked, "{error}");
        forked(connection.has_ended().map(drop).expect_err("the parent's"));
        forked(connection.disconnect().expect_err("the parent's"));
        forked(connection.id().device().map(drop).expect_err("the parent's"));
        forked(listener.as_mut().map(|listener| listener.next(None)).map_or_else(
            || panic!("a listener"),
            |next| next.map(drop).expect_err("the parent's"),
        ));
        drop((connection, watched.take(), listener.take()));
    });
    assert!(matches!(ended, WaitStatus::Exited(_, 0)), "{ended:?}");
    assert!(!watched.as_ref().expect("the parent's").has_ended());
    let (mut connection, objects) = client.take().expect("a connection");
    assert!(!connection.has_ended().expect("no error"));
    assert_eq!(connection.qp().state(), QueueState::ReadyToSend);
    drop((connection, objects, watched, server_objects, listener));
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
