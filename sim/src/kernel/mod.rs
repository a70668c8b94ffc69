//! The in-process door: a small uverbs and mlx5_ib in front of the firmware.
//!
//! It takes the same calls as the kernel's device file, checks them as the kernel does, and turns
//! them into commands of the [firmware](crate::firmware). UAR pages are plain memory in which the
//! engine looks for doorbells; everything else that a driver and a device share is the driver's
//! own memory.

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

/// Locks; what a panicking thread left behind is still consistent, for every change is one step.
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
/// Clones are handles of the same machine. It ends, with its thread, when the last handle, kernel,
/// open file and mapping of it is gone.
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

    /// Starts a machine for the drivers of several processes. This one has to be allowed to reach
    /// their memory, as a debugger is.
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

    /// Pulls every device out, if so.
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

    /// The file that all pages lie in that a device lets drivers map, if the machine was made for
    /// several processes.
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

    /// Opens a channel of the connection manager for another process: addresses in its calls are that
    /// process's own.
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

    /// Does one unit of work, at most one WQE, anywhere; says whether there was any.
    pub fn step(&self) -> bool {
        self.shared.fabric.step()
    }

    /// Works until nothing is left to do, and answers how many units that took.
    pub fn run_until_idle(&self) -> usize {
        self.shared.fabric.run_until_idle()
    }

    /// Works until so much virtual time has passed, and no longer: what is due later is not done. In
    /// step mode only.
    ///
    /// Time limits of the connection manager do not pass with it: see
    /// [`pass_cm_time`](Self::pass_cm_time).
    pub fn run_for(&self, time: Duration) {
        self.shared.fabric.run_for(time);
    }

    /// Age of the machine: in step mode, in virtual time.
    #[must_use]
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.shared.fabric.lock().now_ns())
    }

    /// Cuts the way of packets from one device to another, or mends it. Messages of the connection
    /// manager go the same way. Of what is on its way at that moment, a datagram still arrives; a
    /// reliable request is lost, and sent again until its retries are used up.
    pub fn set_cut(&self, from: DeviceId, to: DeviceId, cut: bool) {
        self.shared.fabric.lock().set_cut(from, to, cut);
    }

    /// Cuts the ways between these devices and all others, in both directions.
    pub fn partition(&self, devices: &[DeviceId]) {
        let mut engine = self.shared.fabric.lock();
        for other in 0..engine.devices().len() {
            for device in devices.iter().filter(|_| !devices.contains(&other)) {
                engine.set_cut(*device, other, true);
                engine.set_cut(other, *device, true);
            }
        }
    }

    /// Mends every way that was cut.
    pub fn mend(&self) {
        self.shared.fabric.lock().mend();
    }

    /// The whole sysfs tree, sorted by path. Paths are relative to `/sys`, and go through links:
    /// what lies behind a link is listed below it.
    pub fn sysfs(&self) -> Result<Vec<(String, SysfsEntry)>, Errno> {
        Ok(self.shared.tree("")?.into_entries())
    }

    fn hca(&self, device: DeviceId) -> Arc<Hca> {
        Arc::clone(&lock(&self.shared.hcas)[device])
    }

    /// Makes a queue pair in RTS drain its send queue, as a signature error makes one with
    /// `drain_sigerr`: at that place its state becomes SQD, and SQ_DRAINED is raised. With
    /// [`DrainAt::Now`], also if it has nothing left to do.
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

    /// Rewrites the page that relates a device's clock to the time of day, as the driver does by
    /// itself before the clock has gone too far.
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
    /// asynchronous file, and answer EIO from then on, as event files do once they are empty; only
    /// the core's destructors go on, which give back the handles of what has ended. UAR pages stay
    /// mapped, and do nothing.
    pub fn remove_device(&self, device: DeviceId) {
        self.shared.fabric.lock().device_mut(device).inject(Fault::Remove);
        let hca = self.hca(device);
        hca.disassociate();
        self.shared.cm.device_gone(device);
        self.shared.uevents.tell("remove", &hca);
    }

    /// Plugs a device in that was pulled out. It has forgotten every object, and has the same
    /// names, numbers and addresses as before. Files that were open on it stay without it.
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

    /// Lets the time pass for the connection manager until its next timer is due; says whether there
    /// was one. In step mode its time passes only so.
    pub fn pass_cm_time(&self) -> bool {
        self.shared.cm.pass_time()
    }

    /// Numbers of the objects that programs have made in the connection manager.
    #[must_use]
    pub fn cm_counts(&self) -> CmCounts {
        self.shared.cm.counts()
    }

    /// Fails the `k`-th call to the kernel from now, the next one being the first, with `errno`
    /// and without any effect. Calls are `open`, `ioctl`, `map`, `allocate`, `event_file`, and `write`
    /// to the connection manager; to look into sysfs is none.
    pub fn fail_call(&self, k: u64, errno: Errno) {
        self.shared.calls.fail(k, errno, false);
    }

    /// The same after the call has done its work, as when its answer cannot be handed out: what it made
    /// is there, and its caller does not know. It is nastier than a kernel, which takes back what it made,
    /// if it can. Only an `ioctl` has such work, and a `write` to the connection manager, which takes back
    /// a new identifier and leaves an event where it is; the other calls fail without any effect.
    pub fn fail_call_late(&self, k: u64, errno: Errno) {
        self.shared.calls.fail(k, errno, true);
    }

    /// Takes back all planned failures of calls.
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

/// Whether the devices are to be pulled out from the start: the kernel does that, with devices that have
/// started.
fn take_absent(config: &mut SimConfig) -> bool {
    let before = config.faults.len();
    config.faults.retain(|fault| *fault != Fault::Remove);
    config.faults.len() != before
}

impl Shared {
    fn present(&self) -> Vec<Arc<Hca>> {
        lock(&self.hcas).iter().filter(|hca| !hca.is_removed()).map(Arc::clone).collect()
    }

    /// The sysfs tree, as far as it concerns a path.
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
