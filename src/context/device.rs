//! Finding and opening devices.

use crate::{
    context::{Context, Gid, Guid, Inner},
    error::{Error, ErrorKind},
    link::{Devx, Link},
};
use mlx5_uapi::{
    DeviceFile, Errno, Kernel, LinuxKernel,
    sysfs::{self, DeviceInfo, NodeType, PciFunction, Skipped},
};
use std::{fmt, net::IpAddr, sync::Arc};

/// Lists the mlx5 devices (`ibv_get_device_list`).
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

/// Lists the mlx5 devices of `kernel`, for example a simulated one.
///
/// An invalid node in sysfs does not hide the others; [`skipped_devices_on`] reports it.
pub fn devices_on(kernel: Arc<dyn Kernel>) -> Result<Vec<Device>, Error> {
    let found = scan(&*kernel)?.devices.into_iter().filter(|info| info.is_mlx5);
    Ok(found.map(|info| Device { kernel: Arc::clone(&kernel), info }).collect())
}

/// Lists the nodes in sysfs that [`devices`] skipped, with the reason: an attribute that cannot be
/// read or is invalid. They may belong to any driver.
pub fn skipped_devices() -> Result<Vec<Skipped>, Error> {
    skipped_devices_on(&LinuxKernel::new())
}

/// Lists the nodes in sysfs of `kernel` that [`devices_on`] skipped.
pub fn skipped_devices_on(kernel: &dyn Kernel) -> Result<Vec<Skipped>, Error> {
    Ok(scan(kernel)?.skipped)
}

pub(super) fn scan(kernel: &dyn Kernel) -> Result<sysfs::Scan, Error> {
    sysfs::scan(kernel).map_err(|errno| Error::kernel("get_device_list", errno))
}

/// Opens the device with this name; without a name, the first device.
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

/// The version of RoCE of a GID.
enum RoceVersion {
    V1,
    V2,
}

/// A device that can be opened.
#[derive(Clone)]
pub struct Device {
    pub(super) kernel: Arc<dyn Kernel>,
    pub(super) info: DeviceInfo,
}

impl Device {
    /// Finds the device that has an IP address, as a GID of one of its RoCE ports.
    ///
    /// If there are several, RoCE v2 comes before v1, then the first device. [`Context::find_ip`]
    /// then finds port and GID. An address on InfiniBand belongs to an IPoIB interface and is not
    /// found: see [`Context::net_interfaces`].
    ///
    /// ```no_run
    /// use mlx5::Device;
    /// use std::net::Ipv4Addr;
    ///
    /// let ip = Ipv4Addr::new(192, 168, 0, 1);
    /// let context = Device::for_ip(ip)?.open()?;
    /// let gid = context.find_ip(ip)?;
    /// println!("{} port {} GID {}", context.name(), gid.port_num, gid.gid_index);
    /// # Ok::<(), mlx5::Error>(())
    /// ```
    pub fn for_ip(ip: impl Into<IpAddr>) -> Result<Self, Error> {
        Self::for_ip_on(Arc::new(LinuxKernel::new()), ip)
    }

    /// Finds the device of `kernel` that has an IP address. See [`Device::for_ip`].
    ///
    /// ```
    /// # use mlx5_sim::{PortConfig, SimConfig, Simulator};
    /// # let simulator = Simulator::new(SimConfig::new().ports([PortConfig::ROCE]));
    /// # let context = mlx5::devices_on(simulator.kernel())?[0].open()?;
    /// # let ip = context.gid_table()?[0].gid.ip();
    /// let device = mlx5::Device::for_ip_on(simulator.kernel(), ip)?;
    /// assert_eq!(device.name(), "mlx5_0");
    /// # Ok::<(), mlx5::Error>(())
    /// ```
    pub fn for_ip_on(kernel: Arc<dyn Kernel>, ip: impl Into<IpAddr>) -> Result<Self, Error> {
        const VERB: &str = "for_ip";
        let ip = ip.into();
        let gid = Gid::from(ip).to_bytes();
        let mut second = None;
        for device in devices_on(Arc::clone(&kernel))? {
            match device.roce_version(gid) {
                // A device that was removed meanwhile has no address.
                Ok(None) | Err(Errno::ENOENT | Errno::ENODEV) => {}
                Ok(Some(RoceVersion::V2)) => return Ok(device),
                Ok(Some(RoceVersion::V1)) => second = second.or(Some(device)),
                Err(errno) => return Err(Error::kernel(VERB, errno)),
            }
        }
        second.ok_or_else(|| {
            let cause = format!(
                "no RoCE port of an mlx5 device has the address {ip}: see `ip address`; an address \
                 on InfiniBand is not a GID"
            );
            Error::new(VERB, ErrorKind::NotFound, cause)
        })
    }

    /// Returns the highest RoCE version with which any port has this GID.
    fn roce_version(&self, gid: [u8; 16]) -> Result<Option<RoceVersion>, Errno> {
        let (kernel, name) = (&*self.kernel, self.name());
        let mut found = None;
        for port in sysfs::ports(kernel, name)? {
            for (index, own) in sysfs::gids(kernel, name, port)? {
                // An entry without a network interface is of InfiniBand.
                if own != gid || sysfs::gid_interface(kernel, name, port, index).is_err() {
                    continue;
                }
                if sysfs::is_roce_v2(kernel, name, port, index) {
                    return Ok(Some(RoceVersion::V2));
                }
                found = Some(RoceVersion::V1);
            }
        }
        Ok(found)
    }

    /// Returns its name, such as `mlx5_0`.
    pub fn name(&self) -> &str {
        &self.info.name
    }

    /// Returns the name of its node in `/dev/infiniband`, such as `uverbs0`.
    pub fn uverbs(&self) -> &str {
        &self.info.uverbs
    }

    /// Returns its node GUID.
    pub fn guid(&self) -> Guid {
        Guid(self.info.node_guid)
    }

    /// Returns the GUID of the system that it is part of.
    pub fn sys_image_guid(&self) -> Guid {
        Guid(self.info.sys_image_guid)
    }

    /// Returns its node type.
    pub fn node_type(&self) -> NodeType {
        self.info.node_type
    }

    /// Returns its PCI function; for a subfunction that of its parent.
    pub fn pci(&self) -> Option<&PciFunction> {
        self.info.pci.as_ref()
    }

    /// Returns the name of the part, such as `ConnectX-7`.
    pub fn part(&self) -> Option<&'static str> {
        self.info.pci.as_ref().and_then(PciFunction::mlx5_part)
    }

    /// Returns the NUMA node to which it is local.
    pub fn numa_node(&self) -> Option<u32> {
        self.info.numa_node
    }

    /// Reads a hardware counter of a port, by its name in the `hw_counters` of sysfs, such as
    /// `out_of_buffer`, the packets that were dropped for lack of a receive. It counts for all
    /// programs, since the driver was loaded. `None` if the kernel has no such counter.
    pub fn hw_counter(&self, port: u8, name: &str) -> Option<u64> {
        let path = format!("class/infiniband/{}/ports/{port}/hw_counters/{name}", self.info.name);
        self.kernel.sysfs_read(&path).ok()?.trim().parse().ok()
    }

    /// Returns its firmware version; empty if unknown.
    pub fn fw_version(&self) -> &str {
        &self.info.fw_version
    }

    /// Returns its board ID (PSID); empty if unknown.
    pub fn board_id(&self) -> &str {
        &self.info.board_id
    }

    /// Opens the device with default options (`ibv_open_device`).
    pub fn open(&self) -> Result<Context, Error> {
        self.open_with(&OpenOptions::new())
    }

    /// Opens the device with `options`.
    pub fn open_with(&self, options: &OpenOptions) -> Result<Context, Error> {
        let inner = Inner::open(Arc::clone(&self.kernel), &self.info, options)?;
        Ok(Context { inner })
    }

    /// Joins a context of the device that is already open, in this or another process
    /// (`ibv_import_device`): `file` is its open file, for example from [`LinuxKernel::adopt`].
    /// Objects of the other part are imported by [`Context::import_pd`],
    /// [`ProtectionDomain::import_mr`] and [`Context::import_dm`]; objects that are created here
    /// are destroyed when the last part has closed its file.
    ///
    /// ```no_run
    /// use mlx5::{LinuxKernel, OpenOptions};
    /// use std::os::fd::OwnedFd;
    ///
    /// # fn f(received: OwnedFd, pd_handle: u32) -> Result<(), Box<dyn std::error::Error>> {
    /// // The descriptor came from another process, with the number of one of its domains.
    /// let number = LinuxKernel::node_number(&received)?;
    /// let file = LinuxKernel::adopt(received);
    /// let devices = mlx5::devices()?;
    /// let device = devices.iter().find(|device| device.dev() == number).ok_or("which device?")?;
    /// let context = device.import(file, &OpenOptions::new())?;
    /// // SAFETY: the other process has no queue of packets in that domain.
    /// let pd = unsafe { context.import_pd(pd_handle) }?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// [`LinuxKernel::adopt`]: mlx5_uapi::LinuxKernel::adopt
    /// [`ProtectionDomain::import_mr`]: crate::ProtectionDomain::import_mr
    pub fn import(
        &self,
        file: Arc<dyn DeviceFile>,
        options: &OpenOptions,
    ) -> Result<Context, Error> {
        let link = Link::import(Arc::clone(&self.kernel), &self.info, file)?;
        Ok(Context { inner: Inner::on(link, options)? })
    }

    /// Returns major and minor number of the device node.
    pub fn dev(&self) -> (u32, u32) {
        self.info.dev
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Device").field(&self.info).finish()
    }
}

/// Options for opening a device. The crate reads no environment variables, here or elsewhere.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use]
pub struct OpenOptions {
    pub(crate) devx: Devx,
    pub(crate) blueflame: bool,
    pub(crate) max_blueflame_pages: u32,
}

impl OpenOptions {
    /// Returns the defaults: DEVX if granted, BlueFlame if supported, at most 256 BlueFlame pages.
    pub const fn new() -> Self {
        Self { devx: Devx::Auto, blueflame: true, max_blueflame_pages: 256 }
    }

    /// Whether to use DEVX. Default: [`Devx::Auto`]. With [`Devx::Require`], opening fails with
    /// [`ErrorKind::NoDevx`] if the kernel does not grant it.
    pub const fn devx(self, devx: Devx) -> Self {
        Self { devx, ..self }
    }

    /// Whether to use BlueFlame. Default: `true`. With `false`, or on a device without it, all
    /// queues ring plain doorbells; thread domains, and queues that require BlueFlame
    /// ([`DoorbellChoice`](crate::DoorbellChoice)), cannot be created.
    pub const fn blueflame(self, blueflame: bool) -> Self {
        Self { blueflame, ..self }
    }

    /// Maximum number of BlueFlame pages to allocate. Default: 256. Any number is allowed; the
    /// kernel may grant fewer. 0 is the same as `blueflame(false)`.
    ///
    /// A page has two registers. The second register of the first page is set apart for sharing.
    /// When no register is left, the next 16 queues share that one, and later queues ring plain
    /// doorbells; see [`DoorbellChoice`](crate::DoorbellChoice) to choose otherwise.
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
    fn error_without_device_names_the_devices_passed_over() {
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
}
