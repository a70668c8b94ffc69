//! Finding and opening devices.

use crate::{
    context::{Context, Devx, Inner},
    error::{Error, ErrorKind},
};
use mlx5_uapi::{
    Kernel, LinuxKernel,
    sysfs::{self, DeviceInfo, NodeType, PciFunction, Skipped},
};
use std::{fmt, sync::Arc};

/// An EUI-64, the name of a device or of a system.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Guid(pub u64);

impl fmt::Display for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = |shift| (self.0 >> shift) as u16;
        write!(f, "{:04x}:{:04x}:{:04x}:{:04x}", part(48), part(32), part(16), part(0))
    }
}

impl fmt::Debug for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<[u8; 8]> for Guid {
    fn from(bytes: [u8; 8]) -> Self {
        Self(u64::from_be_bytes(bytes))
    }
}

/// The devices that this driver can drive (`ibv_get_device_list`).
///
/// ```no_run
/// for device in mlx5::devices()? {
///     println!("{} {}", device.name(), device.guid());
/// }
/// # Ok::<(), mlx5::Error>(())
/// ```
pub fn devices() -> Result<Vec<Device>, Error> {
    devices_on(Arc::new(LinuxKernel::new()))
}

/// The devices of another kernel than the running one: a simulated one, say.
///
/// A node in sysfs that makes no sense hides no other; [`skipped_devices_on`] tells which it is.
pub fn devices_on(kernel: Arc<dyn Kernel>) -> Result<Vec<Device>, Error> {
    let found = scan(&*kernel)?.devices.into_iter().filter(|info| info.is_mlx5);
    Ok(found.map(|info| Device { kernel: Arc::clone(&kernel), info }).collect())
}

/// The nodes in sysfs that [`devices`] passed over, and why: an attribute cannot be read, or says what
/// it cannot say. They may be of any driver.
pub fn skipped_devices() -> Result<Vec<Skipped>, Error> {
    skipped_devices_on(&LinuxKernel::new())
}

/// The same of another kernel than the running one.
pub fn skipped_devices_on(kernel: &dyn Kernel) -> Result<Vec<Skipped>, Error> {
    Ok(scan(kernel)?.skipped)
}

fn scan(kernel: &dyn Kernel) -> Result<sysfs::Scan, Error> {
    sysfs::scan(kernel).map_err(|errno| Error::kernel("get_device_list", errno))
}

/// Opens the device of this name; without a name the first there is.
pub fn open(name: Option<&str>) -> Result<Context, Error> {
    let kernel = Arc::new(LinuxKernel::new());
    let devices = devices_on(Arc::clone(&kernel) as Arc<dyn Kernel>)?;
    let found = devices.iter().find(|device| name.is_none_or(|name| name == device.name()));
    match found {
        Some(device) => device.open(),
        None => Err(not_found(name, &skipped_devices_on(&*kernel)?)),
    }
}

fn not_found(name: Option<&str>, skipped: &[Skipped]) -> Error {
    let mut cause = match name {
        Some(name) => format!("there is no mlx5 device named {name}"),
        None => "there is no mlx5 device, or ib_uverbs is not loaded".to_owned(),
    };
    for node in skipped {
        cause += &format!("; {node}");
    }
    Error::new("open_device", ErrorKind::NotFound, cause)
}

/// A device that can be opened.
#[derive(Clone)]
pub struct Device {
    kernel: Arc<dyn Kernel>,
    info: DeviceInfo,
}

impl Device {
    /// Its name: `mlx5_0`.
    pub fn name(&self) -> &str {
        &self.info.name
    }

    /// Name of its node in `/dev/infiniband`: `uverbs0`.
    pub fn uverbs(&self) -> &str {
        &self.info.uverbs
    }

    /// Its GUID.
    pub fn guid(&self) -> Guid {
        Guid(self.info.node_guid)
    }

    /// The GUID of the system that it is part of.
    pub fn sys_image_guid(&self) -> Guid {
        Guid(self.info.sys_image_guid)
    }

    /// What it is on its network.
    pub fn node_type(&self) -> NodeType {
        self.info.node_type
    }

    /// Its PCI function; that of the parent for a subfunction.
    pub fn pci(&self) -> Option<&PciFunction> {
        self.info.pci.as_ref()
    }

    /// The part's name: `ConnectX-7`.
    pub fn part(&self) -> Option<&'static str> {
        self.info.pci.as_ref().and_then(PciFunction::mlx5_part)
    }

    /// The NUMA node that it is near to.
    pub fn numa_node(&self) -> Option<u32> {
        self.info.numa_node
    }

    /// Version of its firmware; empty if not told.
    pub fn fw_version(&self) -> &str {
        &self.info.fw_version
    }

    /// Its board id (PSID); empty if not told.
    pub fn board_id(&self) -> &str {
        &self.info.board_id
    }

    /// Opens it, with the options' defaults (`ibv_open_device`).
    pub fn open(&self) -> Result<Context, Error> {
        self.open_with(&OpenOptions::new())
    }

    /// Opens it.
    pub fn open_with(&self, options: &OpenOptions) -> Result<Context, Error> {
        let inner = Inner::open(Arc::clone(&self.kernel), &self.info, options)?;
        Ok(Context { inner })
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Device").field(&self.info).finish()
    }
}

/// How to open a device. No environment variable is read, here or elsewhere.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use]
pub struct OpenOptions {
    pub(crate) devx: Devx,
    pub(crate) blueflame: bool,
    pub(crate) max_blueflame_pages: u32,
}

impl OpenOptions {
    /// DEVX if granted, BlueFlame if there, up to 256 BlueFlame pages.
    pub const fn new() -> Self {
        Self { devx: Devx::Auto, blueflame: true, max_blueflame_pages: 256 }
    }

    /// Whether to use DEVX.
    pub const fn devx(self, devx: Devx) -> Self {
        Self { devx, ..self }
    }

    /// Whether to use BlueFlame. Without, all queues ring plain doorbells.
    pub const fn blueflame(self, blueflame: bool) -> Self {
        Self { blueflame, ..self }
    }

    /// The most BlueFlame pages to ask for; each has registers for two queues, but one register is
    /// shared by all queues that come too late for one of their own.
    pub const fn max_blueflame_pages(self, pages: u32) -> Self {
        Self { max_blueflame_pages: pages, ..self }
    }
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_finds_no_device_is_told_what_was_passed_over() {
        let node = Skipped {
            uverbs: "uverbs7".into(),
            path: "class/infiniband_verbs/uverbs7/dev".into(),
            why: sysfs::SkipReason::Malformed("231".into()),
        };
        let error = not_found(Some("mlx5_7"), &[node]);
        assert_eq!(error.kind(), ErrorKind::NotFound);
        let text = error.to_string();
        assert!(text.contains("mlx5_7") && text.contains("uverbs7/dev has \"231\""), "{text}");
    }

    #[test]
    fn a_guid_is_told_in_four_groups() {
        let guid = Guid::from([0x00, 0x02, 0xc9, 0x03, 0, 0x1a, 0xbc, 0xde]);
        assert_eq!(guid.to_string(), "0002:c903:001a:bcde");
        assert_eq!(guid, Guid(0x0002_c903_001a_bcde));
    }
}
