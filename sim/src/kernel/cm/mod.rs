//! The connection manager: `/dev/infiniband/rdma_cm`, as in `ucma.c`, `cma.c` and `cm.c` of the
//! kernel.
//!
//! There is one for the machine. Messages do not go over the simulated wire as datagrams: they
//! arrive at the other end at once, if both ports are up, or are lost. The states of an identifier,
//! the events, the room for private data and the time limits are the kernel's.
//!
//! ```text
//! commands      the commands of a channel
//! connect       messages between both ends, and time limits
//! multicast     groups
//! attributes    paths, and the attributes of queue pairs
//! state         identifiers and timers
//! network       ports and addresses           channel  event channels
//! address       addresses of IP and InfiniBand
//! ```

mod address;
mod attributes;
mod channel;
mod commands;
mod connect;
mod multicast;
mod network;
mod state;

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use mlx5_uapi::rdma_cm::{CommandId, Header};
use mlx5_uapi::{CmFile, Errno};
use zerocopy::FromBytes;

use crate::engine::DeviceId;
use crate::fabric::Fabric;
use crate::kernel::calls::Calls;
use crate::kernel::cm::channel::Channel;
use crate::kernel::cm::commands::Call;
use crate::kernel::cm::connect::Ends;
use crate::kernel::cm::network::Network;
use crate::kernel::cm::state::{State, Table};
use crate::kernel::current::Current;
use crate::kernel::lock;
use crate::processes::Process;

pub use crate::kernel::cm::state::{CmCounts, CmMessage};

/// No timer runs.
const NEVER: u64 = u64::MAX;

/// The connection manager of a machine.
#[derive(Debug)]
pub(crate) struct Manager {
    table: Mutex<Table>,
    network: Network,
    calls: Arc<Calls>,
    channels: AtomicUsize,
    /// When the first timer is due.
    due: AtomicU64,
    pid: u32,
}

impl Manager {
    pub(crate) fn new(fabric: &Fabric, calls: &Arc<Calls>) -> Arc<Self> {
        let config = fabric.config();
        let manager = Arc::new(Self {
            table: Mutex::new(Table::new(config.cm, config.step)),
            network: Network::new(fabric),
            calls: Arc::clone(calls),
            channels: AtomicUsize::new(0),
            due: AtomicU64::new(NEVER),
            pid: std::process::id(),
        });
        let chore = Arc::downgrade(&manager);
        fabric.set_chore(Box::new(move || {
            chore.upgrade().is_some_and(|manager| manager.look_at_timers())
        }));
        manager
    }

    /// Calls `work` with the table and the network.
    fn with<T>(&self, work: impl FnOnce(&mut Table, &Network) -> T) -> T {
        let mut table = lock(&self.table);
        let result = work(&mut table, &self.network);
        let due = table.timers.first().map_or(NEVER, |(due, _)| *due);
        if self.due.swap(due, Ordering::AcqRel) == NEVER && due != NEVER {
            self.network.wake();
        }
        result
    }

    /// Handles the first timer if it is due at `by`; returns whether it was.
    fn expire(&self, by: u64) -> bool {
        self.with(|table, network| {
            let Some((id, wait)) = table.due(by) else { return false };
            Ends { table, network }.expired(id, wait);
            true
        })
    }

    /// Handles the timers that are due; returns whether another one runs.
    fn look_at_timers(&self) -> bool {
        if self.due.load(Ordering::Acquire) == NEVER {
            return false;
        }
        let now = lock(&self.table).clock.now();
        while self.expire(now) {}
        self.due.load(Ordering::Acquire) != NEVER
    }

    /// Advances time to the next timer, and handles it; returns whether there was one.
    pub(crate) fn pass_time(&self) -> bool {
        self.expire(NEVER)
    }

    /// Loses the next `count` messages of a kind.
    pub(crate) fn lose(&self, message: CmMessage, count: u32) {
        lock(&self.table).losing.insert(message, count);
    }

    pub(crate) fn counts(&self) -> CmCounts {
        let table = lock(&self.table);
        CmCounts {
            channels: self.channels.load(Ordering::Acquire),
            ids: table.ids.len(),
            listeners: table.ids.values().filter(|id| id.state == State::Listen).count(),
            groups: table.groups.len(),
            services: table.ids.values().filter(|id| id.service.is_some()).count(),
        }
    }

    /// Reports to the programs that use a device that its addresses have moved.
    pub(crate) fn addresses_moved(&self, device: DeviceId) {
        self.with(|table, network| Ends { table, network }.addresses_moved(device));
    }

    /// Reports to the programs that use a device that it is gone.
    pub(crate) fn device_gone(&self, device: DeviceId) {
        self.with(|table, network| Ends { table, network }.device_gone(device));
    }

    /// Opens a channel.
    pub(crate) fn open(self: &Arc<Self>) -> Result<Arc<OpenChannel>, Errno> {
        self.calls.enter()?;
        let channel = Arc::new(Channel::new()?);
        self.channels.fetch_add(1, Ordering::AcqRel);
        Ok(Arc::new(OpenChannel { manager: Arc::clone(self), channel }))
    }
}

/// An open file of the manager.
#[derive(Debug)]
pub(crate) struct OpenChannel {
    manager: Arc<Manager>,
    channel: Arc<Channel>,
}

impl OpenChannel {
    /// One call.
    ///
    /// # Safety
    /// As for [`CmFile::write`]; addresses in the call are those of the current process.
    unsafe fn write(&self, call: &[u8]) -> Result<(), Errno> {
        let late = self.manager.calls.enter_work()?;
        let (header, command) = Header::read_from_prefix(call).map_err(|_| Errno::EINVAL)?;
        let id = CommandId::from_raw(header.cmd).ok_or(Errno::EINVAL)?;
        let command = command.get(..header.in_len.into()).ok_or(Errno::EINVAL)?;
        // If the response cannot be written, no identifier is made, and an event stays in the
        // queue.
        if let (Some(errno), CommandId::CreateId | CommandId::GetEvent) = (late, id) {
            return Err(errno);
        }
        self.manager.with(|table, network| {
            let (channel, room) = (&self.channel, header.out_len.into());
            Call { table, network, channel, command, room }.run(id)
        })?;
        late.map_or(Ok(()), Err)
    }
}

impl Drop for OpenChannel {
    fn drop(&mut self) {
        // When a forked child closes the channel, the parent still has it open.
        if self.manager.pid != std::process::id() {
            return;
        }
        self.manager.with(|table, network| {
            let of = |id: &state::Id| Arc::ptr_eq(&id.channel, &self.channel);
            let numbers: Vec<u32> =
                table.ids.iter().filter(|(_, id)| of(id)).map(|(number, _)| *number).collect();
            for number in numbers {
                Ends { table, network }.destroy(number);
            }
        });
        self.manager.channels.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The handle of a channel that a program in this process holds.
pub(crate) struct SimCmFile(pub(crate) Arc<OpenChannel>);

impl AsFd for SimCmFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.channel.as_fd()
    }
}

impl CmFile for SimCmFile {
    unsafe fn write(&self, call: &[u8]) -> Result<(), Errno> {
        let _current = Current::enter(None);
        // SAFETY: the caller promises that the addresses in the call are valid; `enter(None)` makes
        // them this process's.
        unsafe { self.0.write(call) }
    }
}

/// A channel that another process has.
#[derive(Debug)]
pub struct ProcessCmFile {
    open: Arc<OpenChannel>,
    process: Arc<Process>,
}

impl ProcessCmFile {
    pub(crate) fn new(open: Arc<OpenChannel>, process: &Arc<Process>) -> Self {
        Self { open, process: Arc::clone(process) }
    }

    /// The same channel for a process that inherited it.
    #[must_use]
    pub fn inherited_by(&self, process: &Arc<Process>) -> Self {
        Self::new(Arc::clone(&self.open), process)
    }

    /// One call. A bad address is an error.
    pub fn write(&self, call: &[u8]) -> Result<(), Errno> {
        let _current = Current::enter(Some(&self.process));
        // SAFETY: addresses are another process's, which are checked.
        unsafe { self.open.write(call) }
    }
}

impl AsFd for ProcessCmFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.open.channel.as_fd()
    }
}
