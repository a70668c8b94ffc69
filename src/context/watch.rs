//! Devices that arrive and are removed.

use crate::{
    context::device::{Device, scan},
    error::Error,
    link::{deadline_in, wait_until},
};
use mlx5_uapi::{
    Errno, EventFile, Kernel, LinuxKernel,
    process::Origin,
    sysfs::DeviceInfo,
    uevent::{LONGEST, Uevent},
};
use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    os::fd::{AsFd, BorrowedFd},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

const VERB: &str = "watch_devices";

/// A device arrived, was removed, or got another name.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum DeviceEvent {
    /// A device arrived. If udev sets the permissions of its node, opening it may briefly fail with
    /// [`PermissionDenied`](crate::ErrorKind::PermissionDenied).
    Arrived(Device),
    /// A device was removed. Contexts on it detect that separately: see
    /// [`Context::is_gone`](crate::Context::is_gone).
    Removed(Device),
    /// A device got another name, for example by udev's rules shortly after it arrived.
    Renamed {
        /// The former name.
        from: String,
        /// The device, with its new name.
        device: Device,
    },
}

/// Reports mlx5 devices that arrive and are removed, from the kernel's uevents. Needs no
/// permission. The watcher sees the devices of its network namespace, as
/// [`devices`](crate::devices) does.
///
/// The descriptor ([`AsFd`]) is readable when [`DeviceWatcher::next`] may have more to report. One
/// message can report several events, so call `next` until it returns `None` before waiting for the
/// descriptor.
///
/// ```
/// use mlx5::{DeviceEvent, DeviceWatcher};
/// use mlx5_sim::{SimConfig, Simulator};
///
/// let simulator = Simulator::new(SimConfig::new());
/// let watcher = DeviceWatcher::on(simulator.kernel())?;
/// assert_eq!(watcher.devices()[0].name(), "mlx5_0");
///
/// simulator.remove_device(0);
/// match watcher.wait(None)? {
///     Some(DeviceEvent::Removed(device)) => println!("{} is gone", device.name()),
///     other => panic!("{other:?}"),
/// }
/// # Ok::<(), mlx5::Error>(())
/// ```
pub struct DeviceWatcher {
    kernel: Arc<dyn Kernel>,
    uevents: Box<dyn EventFile>,
    state: Mutex<State>,
    origin: Origin,
}

struct State {
    /// The mlx5 devices by node, with the reported changes.
    known: BTreeMap<String, DeviceInfo>,
    /// Changes that a message or a list brought and that are not reported yet. No message is read
    /// before all of them are.
    events: VecDeque<DeviceEvent>,
    /// Whether messages were lost, or could not be followed: the devices must be listed again.
    stale: bool,
}

impl DeviceWatcher {
    /// Watches the devices of this machine.
    pub fn new() -> Result<Self, Error> {
        Self::on(Arc::new(LinuxKernel::new()))
    }

    /// Watches the devices of `kernel`, for example a simulated one.
    pub fn on(kernel: Arc<dyn Kernel>) -> Result<Self, Error> {
        // Before the list, so that no change falls between the two.
        let uevents = kernel.uevents().map_err(|errno| Error::kernel(VERB, errno))?;
        let known = list(&*kernel)?;
        let state = State { known, events: VecDeque::new(), stale: false };
        Ok(Self { kernel, uevents, state: Mutex::new(state), origin: Origin::here() })
    }

    /// Returns the devices as of the reported events: those that the watcher found at its start,
    /// with all changes reported since.
    pub fn devices(&self) -> Vec<Device> {
        let mut infos: Vec<DeviceInfo> = self.state().known.values().cloned().collect();
        infos.sort_by_key(|info| info.dev);
        infos.into_iter().map(|info| self.device(info)).collect()
    }

    /// Returns the next event, if there is one. Does not wait.
    pub fn next(&self) -> Result<Option<DeviceEvent>, Error> {
        if self.origin.left() {
            return Err(Error::forked(VERB));
        }
        let mut state = self.state();
        let mut message = [0; LONGEST];
        loop {
            if state.stale {
                let now = list(&*self.kernel)?;
                state.stale = false;
                self.compare(&mut state, &now);
            }
            if let Some(event) = state.report() {
                return Ok(Some(event));
            }
            match self.uevents.read(&mut message) {
                Ok(len) => {
                    if let Some(event) = message.get(..len).and_then(Uevent::parse) {
                        self.follow(&mut state, &event)?;
                    }
                }
                Err(Errno::EAGAIN) => return Ok(None),
                Err(Errno::ENOBUFS) => state.stale = true,
                Err(errno) => return Err(Error::kernel(VERB, errno)),
            }
        }
    }

    /// Waits for the next event, without limit if `timeout` is `None`. Returns `None` on timeout.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<Option<DeviceEvent>, Error> {
        let fail = |errno| Error::kernel(VERB, errno);
        wait_until(self.as_fd(), deadline_in(timeout), fail, || self.next())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn device(&self, info: DeviceInfo) -> Device {
        Device { kernel: Arc::clone(&self.kernel), info }
    }

    /// Updates the state from a message.
    fn follow(&self, state: &mut State, event: &Uevent<'_>) -> Result<(), Error> {
        match (event.subsystem, event.action) {
            ("infiniband_verbs", "remove") => {
                if let Some(info) = state.known.get(event.name()) {
                    state.events.push_back(DeviceEvent::Removed(self.device(info.clone())));
                }
            }
            // udev may repeat `add` for a known device. A new name comes with `move`.
            ("infiniband_verbs", "add") | ("infiniband", "move") => {
                // Until the list was read, the message counts as unread.
                state.stale = true;
                let mut now = list(&*self.kernel)?;
                state.stale = false;
                if event.action == "add" {
                    // The messages of other nodes report their changes, in order.
                    now.retain(|node, _| node == event.name());
                    let others = state.known.iter().filter(|(node, _)| *node != event.name());
                    now.extend(others.map(|(node, info)| (node.clone(), info.clone())));
                }
                self.compare(state, &now);
            }
            _ => {}
        }
        Ok(())
    }

    /// Adds the differences between the known devices and those of a list as events.
    fn compare(&self, state: &mut State, now: &BTreeMap<String, DeviceInfo>) {
        let State { known, events, .. } = state;
        let renamed = |former: &DeviceInfo, info: &DeviceInfo| {
            *former == DeviceInfo { name: former.name.clone(), ..info.clone() }
        };
        for (node, former) in known.iter() {
            if !now.get(node).is_some_and(|info| renamed(former, info)) {
                events.push_back(DeviceEvent::Removed(self.device(former.clone())));
            }
        }
        for (node, info) in now {
            let device = self.device(info.clone());
            match known.get(node) {
                Some(former) if former == info => {}
                Some(former) if renamed(former, info) => {
                    events.push_back(DeviceEvent::Renamed { from: former.name.clone(), device });
                }
                _ => events.push_back(DeviceEvent::Arrived(device)),
            }
        }
    }
}

impl State {
    /// Takes the next event, and updates the known devices.
    fn report(&mut self) -> Option<DeviceEvent> {
        let event = self.events.pop_front()?;
        match &event {
            DeviceEvent::Removed(device) => drop(self.known.remove(device.uverbs())),
            DeviceEvent::Arrived(device) | DeviceEvent::Renamed { device, .. } => {
                self.known.insert(device.uverbs().to_owned(), device.info.clone());
            }
        }
        Some(event)
    }
}

/// Lists the mlx5 devices by node.
fn list(kernel: &dyn Kernel) -> Result<BTreeMap<String, DeviceInfo>, Error> {
    let found = scan(kernel)?.devices.into_iter().filter(|info| info.is_mlx5);
    Ok(found.map(|info| (info.uverbs.clone(), info)).collect())
}

impl AsFd for DeviceWatcher {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.uevents.as_fd()
    }
}

impl fmt::Debug for DeviceWatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = f.debug_struct("DeviceWatcher");
        // Does not wait for a thread that looks for devices.
        if let Ok(state) = self.state.try_lock() {
            text.field("known", &state.known.keys()).field("waiting", &state.events.len());
        }
        text.finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
