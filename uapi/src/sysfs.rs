//! Device discovery in sysfs.

use core::fmt;

use crate::{Errno, kernel::Kernel, layout::numbers, mlx5, verbs};

/// PCI vendor id of Mellanox, now NVIDIA.
pub const PCI_VENDOR_MELLANOX: u16 = 0x15b3;

/// PCI device IDs that the mlx5 driver supports, with the product name.
pub const MLX5_PCI_DEVICES: &[(u16, &str)] = &[
    (0x1011, "Connect-IB"),
    (0x1012, "Connect-IB virtual function"),
    (0x1013, "ConnectX-4"),
    (0x1014, "ConnectX-4 virtual function"),
    (0x1015, "ConnectX-4 Lx"),
    (0x1016, "ConnectX-4 Lx virtual function"),
    (0x1017, "ConnectX-5"),
    (0x1018, "ConnectX-5 virtual function"),
    (0x1019, "ConnectX-5 Ex"),
    (0x101a, "ConnectX-5 Ex virtual function"),
    (0x101b, "ConnectX-6"),
    (0x101c, "ConnectX-6 virtual function"),
    (0x101d, "ConnectX-6 Dx"),
    (0x101e, "ConnectX virtual function"),
    (0x101f, "ConnectX-6 Lx"),
    (0x1021, "ConnectX-7"),
    (0x1023, "ConnectX-8"),
    (0x1025, "ConnectX-9"),
    (0x1027, "ConnectX-10"),
    (0x2101, "ConnectX-10 NVLink-C2C"),
    (0xa2d2, "BlueField (ConnectX-5)"),
    (0xa2d3, "BlueField (ConnectX-5) virtual function"),
    (0xa2d6, "BlueField-2 (ConnectX-6 Dx)"),
    (0xa2dc, "BlueField-3 (ConnectX-7)"),
    (0xa2df, "BlueField-4 (ConnectX-8)"),
];

numbers! {
    /// `enum rdma_node_type`.
    pub enum NodeType: u8 {
        ChannelAdapter = 1 => "An InfiniBand or RoCE adapter.",
        Switch = 2 => "An InfiniBand switch.",
        Router = 3 => "An InfiniBand router.",
        Rnic = 4 => "An iWARP adapter.",
        Usnic = 5 => "usNIC.",
        UsnicUdp = 6 => "usNIC over UDP.",
        Unspecified = 7 => "Unspecified.",
    }
}

/// The PCI function of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PciFunction {
    /// Address (domain, bus, device, function): `0000:03:00.0`. Empty if sysfs does not show it.
    pub address: String,
    /// Vendor ID.
    pub vendor: u16,
    /// Device ID.
    pub device: u16,
}

impl PciFunction {
    /// Returns the product name, or `None` if mlx5 does not support the function.
    pub fn mlx5_part(&self) -> Option<&'static str> {
        if self.vendor != PCI_VENDOR_MELLANOX {
            return None;
        }
        MLX5_PCI_DEVICES.iter().find(|(id, _)| *id == self.device).map(|(_, name)| *name)
    }
}

/// An RDMA device with a uverbs node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Name of the node: `uverbs0`.
    pub uverbs: String,
    /// Name of the device: `mlx5_0`.
    pub name: String,
    /// Major and minor number of the node.
    pub dev: (u32, u32),
    /// Version of the driver's ABI.
    pub abi_version: u32,
    /// Kind of device.
    pub node_type: NodeType,
    /// GUID of the device.
    pub node_guid: u64,
    /// GUID of the system image.
    pub sys_image_guid: u64,
    /// Firmware version; empty if sysfs does not show it.
    pub fw_version: String,
    /// Board ID (PSID); empty if sysfs does not show it.
    pub board_id: String,
    /// Adapter type; empty if sysfs does not show it.
    pub hca_type: String,
    /// The PCI function. A subfunction has that of its parent.
    pub pci: Option<PciFunction>,
    /// The closest NUMA node.
    pub numa_node: Option<u32>,
    /// Whether this is an mlx5 device, judged by its driver or its PCI ID, whose ABI version this
    /// crate implements.
    pub is_mlx5: bool,
}

/// The result of [`scan`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scan {
    /// The devices with a uverbs node, in ascending order of the node number.
    pub devices: Vec<DeviceInfo>,
    /// The nodes whose attributes could not be read or parsed, in the same order.
    pub skipped: Vec<Skipped>,
}

/// A uverbs node that [`scan`] skipped because it could not identify the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// Name of the node: `uverbs0`.
    pub uverbs: String,
    /// The attribute at fault, relative to `/sys`: `class/infiniband_verbs/uverbs0/dev`.
    pub path: String,
    /// The reason.
    pub why: SkipReason,
}

/// The reason why a uverbs node was skipped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SkipReason {
    /// The attribute could not be read.
    Unreadable(Errno),
    /// The attribute has this content, which is not valid.
    Malformed(String),
}

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { uverbs, path, why } = self;
        match why {
            SkipReason::Unreadable(errno) => {
                write!(f, "{uverbs} was skipped: /sys/{path} cannot be read ({errno})")
            }
            SkipReason::Malformed(text) => {
                write!(f, "{uverbs} was skipped: /sys/{path} has {text:?}")
            }
        }
    }
}

/// Returns the devices that [`scan`] finds.
pub fn devices(kernel: &dyn Kernel) -> Result<Vec<DeviceInfo>, Errno> {
    scan(kernel).map(|scan| scan.devices)
}

/// Finds the RDMA devices with a uverbs node.
///
/// Returns none if the kernel has no RDMA support loaded. A device that disappears during the scan
/// is left out. A node with an unreadable or malformed attribute is skipped; the others are still
/// returned.
///
/// # Errors
/// `EPROTONOSUPPORT` if the ABI version of uverbs is not the one that this crate implements.
pub fn scan(kernel: &dyn Kernel) -> Result<Scan, Errno> {
    const CLASS: &str = "class/infiniband_verbs";
    let names = match kernel.sysfs_list(CLASS) {
        Ok(names) => names,
        Err(Errno::ENOENT) => return Ok(Scan::default()),
        Err(errno) => return Err(errno),
    };
    if let Ok(text) = kernel.sysfs_read(&format!("{CLASS}/abi_version"))
        && text.trim().parse() != Ok(verbs::ABI_VERSION)
    {
        return Err(Errno::EPROTONOSUPPORT);
    }
    let mut numbered: Vec<(u32, String)> = names
        .into_iter()
        .filter_map(|name| Some((name.strip_prefix("uverbs")?.parse().ok()?, name)))
        .collect();
    numbered.sort();
    let mut found = Scan::default();
    for (_, uverbs) in numbered {
        let node = format!("{CLASS}/{uverbs}");
        match device(kernel, &node, &uverbs) {
            Ok(info) => found.devices.push(info),
            // A missing attribute means that the device is gone, unless its node is still there.
            Err(Failed { why: SkipReason::Unreadable(Errno::ENOENT | Errno::ENODEV), .. })
                if kernel.sysfs_list(&node).is_err() => {}
            Err(Failed { path, why }) => found.skipped.push(Skipped { uverbs, path, why }),
        }
    }
    Ok(found)
}

/// The attribute because of which a node is skipped.
struct Failed {
    path: String,
    why: SkipReason,
}

/// Reads a required attribute.
fn needed<T>(
    kernel: &dyn Kernel,
    path: String,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Result<T, Failed> {
    match trimmed(kernel, &path) {
        Ok(text) => match parse(&text) {
            Some(value) => Ok(value),
            None => Err(Failed { path, why: SkipReason::Malformed(text) }),
        },
        Err(errno) => Err(Failed { path, why: SkipReason::Unreadable(errno) }),
    }
}

fn device(kernel: &dyn Kernel, node: &str, uverbs: &str) -> Result<DeviceInfo, Failed> {
    let name = needed(kernel, format!("{node}/ibdev"), parse_name)?;
    let dev = needed(kernel, format!("{node}/dev"), parse_dev)?;
    let abi_version = number(kernel, &format!("{node}/abi_version")).unwrap_or(0);
    let base = format!("class/infiniband/{name}");
    let attribute = |leaf: &str| trimmed(kernel, &format!("{base}/{leaf}")).unwrap_or_default();
    let modalias = attribute("device/modalias");
    let subfunction = modalias.starts_with("auxiliary:mlx5_core.sf");
    let pci = pci_function(kernel, &base, &modalias, subfunction);
    let bound_to_mlx5 = subfunction
        || kernel
            .sysfs_link(&format!("{base}/device/driver"))
            .is_ok_and(|target| last_component(&target) == "mlx5_core")
        || pci.as_ref().is_some_and(|pci| pci.mlx5_part().is_some());
    Ok(DeviceInfo {
        uverbs: uverbs.to_owned(),
        dev,
        abi_version,
        node_type: node_type(&attribute("node_type")),
        node_guid: parse_guid(&attribute("node_guid")).unwrap_or(0),
        sys_image_guid: parse_guid(&attribute("sys_image_guid")).unwrap_or(0),
        fw_version: attribute("fw_ver"),
        board_id: attribute("board_id"),
        hca_type: attribute("hca_type"),
        numa_node: number(kernel, &format!("{base}/device/numa_node")),
        is_mlx5: bound_to_mlx5 && abi_version == mlx5::ABI_VERSION,
        pci,
        name,
    })
}

/// Returns the P_Key at `index` of a port's table.
pub fn pkey(kernel: &dyn Kernel, device: &str, port: u32, index: u32) -> Result<u16, Errno> {
    let path = format!("class/infiniband/{device}/ports/{port}/pkeys/{index}");
    parse_hex(&trimmed(kernel, &path)?).ok_or(Errno::EPROTO)
}

/// Returns the ports of a device, in ascending order.
pub fn ports(kernel: &dyn Kernel, device: &str) -> Result<Vec<u32>, Errno> {
    let names = kernel.sysfs_list(&format!("class/infiniband/{device}/ports"))?;
    let mut ports: Vec<u32> = names.iter().filter_map(|name| name.parse().ok()).collect();
    ports.sort_unstable();
    Ok(ports)
}

/// Returns the GIDs of a port with their indices, in ascending order, without empty entries.
pub fn gids(kernel: &dyn Kernel, device: &str, port: u32) -> Result<Vec<(u32, [u8; 16])>, Errno> {
    let base = format!("class/infiniband/{device}/ports/{port}/gids");
    let names = kernel.sysfs_list(&base)?;
    let mut gids: Vec<(u32, [u8; 16])> = names
        .iter()
        .filter_map(|name| {
            // The kernel refuses to show some empty entries.
            let gid = parse_gid(&trimmed(kernel, &format!("{base}/{name}")).ok()?)?;
            Some((name.parse().ok()?, gid))
        })
        .filter(|(_, gid)| *gid != [0; 16])
        .collect();
    gids.sort_unstable();
    Ok(gids)
}

/// Whether an entry of a port's GID table is of RoCE v2.
pub fn is_roce_v2(kernel: &dyn Kernel, device: &str, port: u32, index: u32) -> bool {
    let path = format!("class/infiniband/{device}/ports/{port}/gid_attrs/types/{index}");
    trimmed(kernel, &path).is_ok_and(|kind| kind == "RoCE v2")
}

/// Returns the name of the network interface that an entry of a port's GID table belongs to.
/// `ENOENT` or `EINVAL` if it belongs to none.
pub fn gid_interface(
    kernel: &dyn Kernel,
    device: &str,
    port: u32,
    index: u32,
) -> Result<String, Errno> {
    trimmed(kernel, &format!("class/infiniband/{device}/ports/{port}/gid_attrs/ndevs/{index}"))
}

/// Returns the names of the network interfaces that the driver made for a port, sorted. The kernel
/// counts them from 0 in `dev_port`.
pub fn interfaces(kernel: &dyn Kernel, device: &str, port: u32) -> Result<Vec<String>, Errno> {
    let base = format!("class/infiniband/{device}/device/net");
    let names = match kernel.sysfs_list(&base) {
        Err(Errno::ENOENT) => return Ok(Vec::new()),
        names => names?,
    };
    let of_port = |name: &String| {
        number(kernel, &format!("{base}/{name}/dev_port")).and_then(|at| at.checked_add(1))
            == Some(port)
    };
    Ok(names.into_iter().filter(of_port).collect())
}

fn pci_function(
    kernel: &dyn Kernel,
    base: &str,
    modalias: &str,
    subfunction: bool,
) -> Option<PciFunction> {
    // A subfunction is on the auxiliary bus; its parent is the PCI function.
    let below = if subfunction { "device/.." } else { "device" };
    let (vendor, device) = parse_modalias(modalias).or_else(|| {
        let id = |leaf| parse_hex(&trimmed(kernel, &format!("{base}/{below}/{leaf}")).ok()?);
        Some((id("vendor")?, id("device")?))
    })?;
    // The target of the `device` link ends with the PCI function; the target of the class link
    // contains it further up.
    let address = ["/device", ""]
        .iter()
        .filter_map(|leaf| kernel.sysfs_link(&format!("{base}{leaf}")).ok())
        .find_map(|link| link.rsplit('/').find(|part| is_pci_address(part)).map(str::to_owned))
        .unwrap_or_default();
    Some(PciFunction { address, vendor, device })
}

/// Matches `0000:03:00.0`, but not the root `pci0000:00`.
fn is_pci_address(part: &str) -> bool {
    part.matches(':').count() == 2 && part.contains('.')
}

fn trimmed(kernel: &dyn Kernel, path: &str) -> Result<String, Errno> {
    Ok(kernel.sysfs_read(path)?.trim().to_owned())
}

/// Reads a non-negative number. The NUMA node is -1 if there is none.
fn number(kernel: &dyn Kernel, path: &str) -> Option<u32> {
    trimmed(kernel, path).ok()?.parse().ok()
}

fn last_component(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Parses `mlx5_0`: a name of one path component.
fn parse_name(text: &str) -> Option<String> {
    (!text.is_empty() && !text.contains('/') && text != "..").then(|| text.to_owned())
}

/// Parses `231:192`.
fn parse_dev(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// Parses `1: CA`.
fn node_type(text: &str) -> NodeType {
    let number = text.split(':').next().and_then(|number| number.parse().ok());
    number.and_then(NodeType::from_raw).unwrap_or(NodeType::Unspecified)
}

/// Parses `0002:c903:00a1:b2c3`.
fn parse_guid(text: &str) -> Option<u64> {
    let digits: String = text.split(':').collect();
    (digits.len() == 16).then(|| u64::from_str_radix(&digits, 16).ok()).flatten()
}

/// Parses `fe80:0000:0000:0000:0002:c903:00a1:b2c3`.
fn parse_gid(text: &str) -> Option<[u8; 16]> {
    text.parse::<std::net::Ipv6Addr>().ok().map(|gid| gid.octets())
}

/// Parses `0x15b3`.
fn parse_hex(text: &str) -> Option<u16> {
    u16::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

/// Parses vendor and device from `pci:v000015B3d00001017sv...`.
fn parse_modalias(text: &str) -> Option<(u16, u16)> {
    let ids = text.strip_prefix("pci:v")?;
    let (vendor, rest) = ids.split_at_checked(8)?;
    let device = rest.strip_prefix('d')?.get(..8)?;
    let id = |digits| u32::from_str_radix(digits, 16).ok().and_then(|id| u16::try_from(id).ok());
    Some((id(vendor)?, id(device)?))
}
