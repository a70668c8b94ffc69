//! The in-process door: a small uverbs and mlx5_ib in front of the firmware.
//!
//! It takes the same calls as the kernel's device file, checks them as the kernel does, and turns
//! them into commands of the [firmware](crate::firmware). UAR pages are plain memory in which the
//! engine looks for doorbells; all other memory that a driver and a device share belongs to the
//! driver.

mod bar;
mod buffer;
mod calls;
mod clock;
mod clock_map;
mod cm;
mod context;
mod cq;
mod current;
mod decode;
mod device_file;
mod devx;
mod devx_files;
mod dm;
mod event_queue;
mod events;
mod file;
mod flow;
mod hca;
mod interface;
mod known;
mod loopback;
mod mailbox;
mod memory;
mod methods;
mod mr;
mod objects;
mod pacing;
mod path;
mod qp;
mod qp_modify;
mod qp_states;
mod query;
mod rates;
mod raw_qp;
mod rings;
mod rules;
mod signal;
mod simple;
mod specs;
mod srq;
mod steered;
mod subscriptions;
mod sysfs;
mod uar;
mod uctx;
mod uevents;
mod wq;
mod write;
mod write_call;
mod xrcd;

#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mlx5_uapi::{CmFile, DeviceFile, Errno, EventFile, Kernel};

use crate::config::SimConfig;
use crate::dma::Dma;
use crate::engine::fault::{Fault, Violation};
use crate::engine::{DeviceId, DrainAt, Error, QpSnapshot};
use crate::fabric::Fabric;
use crate::firmware::Counts;
use crate::kernel::bar::Bar;
use crate::kernel::calls::Calls;
use crate::kernel::cm::{Manager, SimCmFile};
use crate::kernel::device_file::SimFile;
use crate::kernel::file::OpenFile;
use crate::kernel::hca::Hca;
use crate::kernel::sysfs::Tree;
use crate::kernel::uevents::Uevents;
use crate::processes::{Process, Processes};

pub use crate::kernel::bar::SharedPages;
pub use crate::kernel::cm::{CmCounts, CmMessage, ProcessCmFile};
pub use crate::kernel::device_file::ProcessFile;
pub use crate::kernel::methods::{makes_descriptor, takes_descriptor};
pub use crate::kernel::sysfs::SysfsEntry;

/// Locks a mutex, poisoned or not: each change is one step, so that the data is consistent even
/// after a panic.
fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Shared {
    fabric: Fabric,
    hcas: Mutex<Vec<Arc<Hca>>>,
    uevents: Uevents,
    bar: Bar,
    calls: Arc<Calls>,
    cm: Arc<Manager>,
    /// Shared state for other processes, if the machine has any.
    others: Option<Others>,
}

struct Others {
    processes: Processes,
    pages: Arc<SharedPages>,
}

/// A simulated machine: devices on one fabric, and the kernel that drives them.
///
/// Clones are handles of the same machine. It ends, with its thread, when its last handle, kernel,
/// open file and mapping is dropped.
#[derive(Clone)]
pub struct Simulator {
    shared: Arc<Shared>,
}

impl std::fmt::Debug for Simulator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Simulator").field("fabric", &self.shared.fabric).finish_non_exhaustive()
    }
}

impl Simulator {
    /// Starts the machine.
    ///
    /// # Panics
    /// If the process has no memory or thread left for it.
    #[must_use]
    pub fn new(mut config: SimConfig) -> Self {
        let absent = take_absent(&mut config);
        let machine = Self::start(Fabric::new(config), Bar::Private, None)
            .expect("the driver of a new device starts");
        machine.without_devices(absent)
    }

    /// Starts a machine for the drivers of several processes. This process must be allowed to
    /// access their memory, as a debugger is.
    pub fn for_processes(mut config: SimConfig) -> Result<Self, Errno> {
        let absent = take_absent(&mut config);
        let processes = Processes::default();
        let pages = SharedPages::new()?;
        let dma: Arc<dyn Dma> = Arc::new(processes.clone());
        let bar = Bar::Shared(Arc::clone(&pages));
        let fabric = Fabric::for_processes(config, &dma);
        let machine = Self::start(fabric, bar, Some(Others { processes, pages }))?;
        Ok(machine.without_devices(absent))
    }

    /// If `absent`, pulls every device out.
    fn without_devices(self, absent: bool) -> Self {
        let count = if absent { self.config().devices } else { 0 };
        (0..count).for_each(|device| self.remove_device(device));
        self
    }

    fn start(fabric: Fabric, bar: Bar, others: Option<Others>) -> Result<Self, Errno> {
        let count = fabric.config().devices;
        let hcas =
            (0..count).map(|id| interface::start(&fabric, id, &bar)).collect::<Result<_, _>>()?;
        let calls = Arc::default();
        let cm = Manager::new(&fabric, &calls);
        let shared = Shared {
            fabric,
            hcas: Mutex::new(hcas),
            uevents: Uevents::default(),
            bar,
            calls,
            cm,
            others,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Adds a process to a machine that was made for several.
    pub fn add_process(&self, pid: i32) -> Result<Arc<Process>, Errno> {
        self.shared.others.as_ref().ok_or(Errno::EOPNOTSUPP)?.processes.add(pid)
    }

    /// The file of all pages that devices let drivers map, if the machine was made for several
    /// processes.
    #[must_use]
    pub fn shared_pages(&self) -> Option<&SharedPages> {
        self.shared.others.as_ref().map(|others| &*others.pages)
    }

    /// Opens a device for another process: addresses in its calls are that process's own.
    pub fn open_for(
        &self,
        process: &Arc<Process>,
        node: &str,
        dev: (u32, u32),
    ) -> Result<ProcessFile, Errno> {
        Ok(ProcessFile::new(self.shared.open(node, dev)?, process))
    }

    /// Opens a channel of the connection manager for another process: addresses in its calls are
    /// that process's own.
    pub fn open_cm_for(&self, process: &Arc<Process>) -> Result<ProcessCmFile, Errno> {
        Ok(ProcessCmFile::new(self.shared.cm.open()?, process))
    }

    /// The machine's kernel, for a driver.
    #[must_use]
    pub fn kernel(&self) -> Arc<dyn Kernel> {
        Arc::new(SimKernel { shared: Arc::clone(&self.shared) })
    }

    /// The fabric that connects the devices, to reach the engine itself.
    #[must_use]
    pub fn fabric(&self) -> &Fabric {
        &self.shared.fabric
    }

    /// The configuration from which the machine was made.
    #[must_use]
    pub fn config(&self) -> &SimConfig {
        self.shared.fabric.config()
    }

    /// Does one unit of work on any device, at most one WQE; returns whether there was any.
    pub fn step(&self) -> bool {
        self.shared.fabric.step()
    }

    /// Works until nothing is left to do, and returns the number of units.
    pub fn run_until_idle(&self) -> usize {
        self.shared.fabric.run_until_idle()
    }

    /// Works until `time` has passed in virtual time; work that is due later is not done. In step
    /// mode only.
    ///
    /// The connection manager's time limits do not advance with it: see
    /// [`pass_cm_time`](Self::pass_cm_time).
    pub fn run_for(&self, time: Duration) {
        self.shared.fabric.run_for(time);
    }

    /// Age of the machine: in step mode, in virtual time.
    #[must_use]
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.shared.fabric.lock().now_ns())
    }

    /// Cuts the link from one device to another, or mends it, for packets and for messages of the
    /// connection manager. A datagram in flight still arrives; a reliable request in flight is
    /// lost, and sent again until its retries are used up.
    pub fn set_cut(&self, from: DeviceId, to: DeviceId, cut: bool) {
        self.shared.fabric.lock().set_cut(from, to, cut);
    }

    /// Cuts the links between these devices and all others, in both directions.
    pub fn partition(&self, devices: &[DeviceId]) {
        let mut engine = self.shared.fabric.lock();
        for other in 0..engine.devices().len() {
            for device in devices.iter().filter(|_| !devices.contains(&other)) {
                engine.set_cut(*device, other, true);
                engine.set_cut(other, *device, true);
            }
        }
    }

    /// Mends every cut link.
    pub fn mend(&self) {
        self.shared.fabric.lock().mend();
    }

    /// The whole sysfs tree, sorted by path. Paths are relative to `/sys`, and follow links: the
    /// files of a link's target are listed below the link.
    pub fn sysfs(&self) -> Result<Vec<(String, SysfsEntry)>, Errno> {
        Ok(self.shared.tree("")?.into_entries())
    }

    fn hca(&self, device: DeviceId) -> Arc<Hca> {
        Arc::clone(&lock(&self.shared.hcas)[device])
    }

    /// Makes a queue pair in RTS drain its send queue, as a signature error does with
    /// `drain_sigerr`: at the given place its state becomes SQD, and the device raises SQ_DRAINED.
    /// With [`DrainAt::Now`] also an idle queue drains.
    pub fn drain_qp(&self, device: DeviceId, qpn: u32, at: DrainAt) -> Result<(), Error> {
        self.shared.fabric.lock().device_mut(device).drain_qp(qpn, at)
    }

    /// A queue pair's state and counters, as the device has them.
    #[must_use]
    pub fn query_qp(&self, device: DeviceId, qpn: u32) -> Option<QpSnapshot> {
        self.shared.fabric.lock().device(device).query_qp(qpn)
    }

    /// Changes a port's link, which raises the event.
    pub fn set_port_active(&self, device: DeviceId, port: u8, active: bool) {
        self.shared.fabric.lock().device_mut(device).set_port_active(port, active);
    }

    /// Rewrites the page that relates a device's clock to the time of day. The driver does so by
    /// itself before the clock has advanced too far.
    pub fn update_clock_info(&self, device: DeviceId) {
        self.hca(device).clocks.update();
    }

    /// Injects a fault into a device. [`Fault::Remove`] is [`Simulator::remove_device`].
    pub fn inject(&self, device: DeviceId, fault: Fault) {
        if fault == Fault::Remove {
            self.remove_device(device);
        } else {
            self.shared.fabric.lock().device_mut(device).inject(fault);
        }
    }

    /// Pulls a device out. Files that are open on it lose their objects, get DEVICE_FATAL on their
    /// asynchronous file, and return EIO from then on, as event files do once they are empty. Only
    /// the core's destructors still work: they free the handles of objects that have ended. UAR
    /// pages stay mapped, without effect.
    pub fn remove_device(&self, device: DeviceId) {
        self.shared.fabric.lock().device_mut(device).inject(Fault::Remove);
        let hca = self.hca(device);
        hca.disassociate();
        self.shared.cm.device_gone(device);
        self.shared.uevents.tell("remove", &hca);
    }

    /// Plugs a device in that was pulled out. It has no object of before, but the same names,
    /// numbers and addresses. Files that were open on it stay without a device.
    ///
    /// # Panics
    /// If the device is there, or the process has no memory left for it.
    pub fn insert_device(&self, device: DeviceId) {
        let former = self.hca(device);
        assert!(former.is_removed(), "device {device} is there");
        former.replace();
        self.shared.fabric.lock().device_mut(device).reset();
        let hca = interface::start(&self.shared.fabric, device, &self.shared.bar)
            .expect("the driver of a new device starts");
        lock(&self.shared.hcas)[device] = Arc::clone(&hca);
        self.shared.uevents.tell("add", &hca);
    }

    /// Reports to the programs that use a device for connections that its addresses have moved to
    /// another one (`RDMA_CM_EVENT_ADDR_CHANGE`), as the kernel does when the active interface of a
    /// bond changes. Their identifiers stay bound to the device.
    pub fn move_cm_addresses(&self, device: DeviceId) {
        self.shared.cm.addresses_moved(device);
    }

    /// Loses the next `count` messages of a kind that the connection manager sends.
    pub fn lose_cm_messages(&self, message: CmMessage, count: u32) {
        self.shared.cm.lose(message, count);
    }

    /// Advances the connection manager's time to its next timer; returns whether there was one. In
    /// step mode its time advances in no other way.
    pub fn pass_cm_time(&self) -> bool {
        self.shared.cm.pass_time()
    }

    /// Numbers of the objects that programs have made in the connection manager.
    #[must_use]
    pub fn cm_counts(&self) -> CmCounts {
        self.shared.cm.counts()
    }

    /// Fails the `k`-th call to the kernel from now, the next one being the first, with `errno` and
    /// without any effect. Counted calls are `open`, `ioctl`, `map`, `allocate`, `event_file`, and
    /// `write` to the connection manager; reads of sysfs are not.
    pub fn fail_call(&self, k: u64, errno: Errno) {
        self.shared.calls.fail(k, errno, false);
    }

    /// The same after the call has done its work, as if its answer could not be written: its
    /// objects exist, but the caller does not know them. This is stricter than a kernel, which
    /// undoes its work if it can. It applies to an `ioctl`, and to a `write` to the connection
    /// manager, which undoes a new identifier and leaves an event in its queue; the other calls
    /// fail without any effect.
    pub fn fail_call_late(&self, k: u64, errno: Errno) {
        self.shared.calls.fail(k, errno, true);
    }

    /// Cancels all planned failures of calls.
    pub fn fail_no_call(&self) {
        self.shared.calls.fail_none();
    }

    /// Calls made to the kernel so far.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.shared.calls.made()
    }

    /// Numbers of the objects of a device that programs made through device files.
    #[must_use]
    pub fn object_counts(&self, device: DeviceId) -> Counts {
        self.hca(device).counts()
    }

    /// The violations by drivers of all devices.
    #[must_use]
    pub fn violations(&self) -> Vec<Violation> {
        let engine = self.shared.fabric.lock();
        engine.devices().iter().flat_map(|device| device.violations().iter().cloned()).collect()
    }

    /// Takes the violations by drivers of all devices, and starts a new list. Accesses to the
    /// memory of a process that has ended are no violations, and are left out.
    pub fn take_violations(&self) -> Vec<Violation> {
        let mut engine = self.shared.fabric.lock();
        let count = engine.devices().len();
        let all = (0..count).flat_map(|id| engine.device_mut(id).take_violations());
        let gone = |violation: &Violation| match (violation, &self.shared.others) {
            (Violation::Memory { address, .. }, Some(others)) => others.processes.is_gone(*address),
            _ => false,
        };
        all.filter(|violation| !gone(violation)).collect()
    }
}

/// Whether the devices are to be pulled out from the start. Removes that fault from the
/// configuration: the kernel pulls devices out once they have started.
fn take_absent(config: &mut SimConfig) -> bool {
    let before = config.faults.len();
    config.faults.retain(|fault| *fault != Fault::Remove);
    config.faults.len() != before
}

impl Shared {
    fn present(&self) -> Vec<Arc<Hca>> {
        lock(&self.hcas).iter().filter(|hca| !hca.is_removed()).map(Arc::clone).collect()
    }

    /// The part of the sysfs tree that a path needs.
    fn tree(&self, path: &str) -> Result<Tree, Errno> {
        Tree::new(self.present().iter().map(AsRef::as_ref), path)
    }

    fn open(&self, node: &str, dev: (u32, u32)) -> Result<Arc<OpenFile>, Errno> {
        self.calls.enter()?;
        let present = self.present();
        let hca = present.iter().find(|hca| sysfs::node(hca) == node).ok_or(Errno::ENOENT)?;
        if sysfs::numbers(hca) != dev {
            return Err(Errno::ENXIO);
        }
        Ok(OpenFile::new(hca, &self.calls))
    }
}

/// The kernel of a simulated machine.
struct SimKernel {
    shared: Arc<Shared>,
}

impl Kernel for SimKernel {
    fn sysfs_list(&self, path: &str) -> Result<Vec<String>, Errno> {
        self.shared.tree(path)?.list(path)
    }

    fn sysfs_read(&self, path: &str) -> Result<String, Errno> {
        self.shared.tree(path)?.read(path)
    }

    fn sysfs_link(&self, path: &str) -> Result<String, Errno> {
        self.shared.tree(path)?.target(path)
    }

    fn open(&self, node: &str, dev: (u32, u32)) -> Result<Arc<dyn DeviceFile>, Errno> {
        Ok(Arc::new(SimFile(self.shared.open(node, dev)?)))
    }

    fn uevents(&self) -> Result<Box<dyn EventFile>, Errno> {
        Ok(Box::new(self.shared.uevents.watch()?))
    }

    fn rdma_cm(&self) -> Result<Arc<dyn CmFile>, Errno> {
        Ok(Arc::new(SimCmFile(self.shared.cm.open()?)))
    }
}
