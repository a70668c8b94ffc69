//! The sysfs tree of the devices.

use std::collections::BTreeMap;

use mlx5_uapi::Errno;
use mlx5_uapi::rdma_cm;
use mlx5_uapi::verbs::{ABI_VERSION, GidType};

use crate::config::LinkLayer;
use crate::kernel::hca::Hca;

/// Major number of uverbs devices, and the minor number of the first.
const MAJOR: u32 = 231;
const FIRST_MINOR: u32 = 192;
/// Major number of miscellaneous devices, and the minor number of the connection manager.
const MISC: u32 = 10;
const CM_MINOR: u32 = 58;
/// PCI's number for the vendor.
const PCI_VENDOR: u16 = 0x15b3;
/// PCI bus of the first device.
const FIRST_BUS: usize = 3;

/// An entry of the sysfs tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SysfsEntry {
    /// A file with these contents.
    File(String),
    /// A symbolic link to this target.
    Link(String),
}

/// Files and links, by path.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    files: BTreeMap<String, String>,
    links: BTreeMap<String, String>,
    /// The path that is looked up. The tree has at least the entries below it and on the way to it.
    around: String,
}

/// The address of a device's PCI function.
fn pci(hca: &Hca) -> String {
    format!("0000:{:02x}:00.0", FIRST_BUS + hca.id)
}

/// The path of a device's PCI function.
pub(crate) fn function(hca: &Hca) -> String {
    format!("devices/pci0000:00/0000:00:{:02x}.0/{}", hca.id + 1, pci(hca))
}

/// A device's name.
pub(crate) fn name(hca: &Hca) -> String {
    format!("mlx5_{}", hca.id)
}

/// The name of a device's node.
pub(crate) fn node(hca: &Hca) -> String {
    format!("uverbs{}", hca.id)
}

/// The numbers of a device's node.
pub(crate) fn numbers(hca: &Hca) -> (u32, u32) {
    (MAJOR, FIRST_MINOR + hca.id as u32)
}

/// The name of a port's network interface.
fn interface(hca: &Hca, port: u8) -> Result<String, Errno> {
    let kind = match hca.port_facts(port)?.link_layer {
        LinkLayer::InfiniBand => "ib",
        LinkLayer::Ethernet => "eth",
    };
    Ok(format!("{kind}{}", hca.interface(port)))
}

/// The counters of a port that the model has.
fn counters(hca: &Hca, port: u8) -> [(&'static str, u32); 9] {
    let engine = hca.fabric.lock();
    let device = engine.device(hca.id);
    let retries = device.retry_counts(port);
    [
        // User space's queues have no counter set of their own here.
        ("out_of_buffer", device.out_of_buffer(0)),
        ("out_of_sequence", retries.out_of_sequence),
        ("duplicate_request", retries.duplicate_request),
        ("rnr_nak_retry_err", retries.rnr_nak_retry_err),
        ("packet_seq_err", retries.packet_seq_err),
        // An answer to a read arrives whole or not at all.
        ("implied_nak_seq_err", 0),
        ("local_ack_timeout_err", retries.local_ack_timeout_err),
        ("req_transport_retries_exceeded", retries.req_transport_retries_exceeded),
        ("req_rnr_retries_exceeded", retries.req_rnr_retries_exceeded),
    ]
}

fn guid(number: u64) -> String {
    let [a, b, c, d] = [48, 32, 16, 0].map(|shift| number >> shift & 0xffff);
    format!("{a:04x}:{b:04x}:{c:04x}:{d:04x}")
}

fn gid(bytes: [u8; 16]) -> String {
    let (words, _) = bytes.as_chunks::<2>();
    let words: Vec<_> =
        words.iter().map(|word| format!("{:04x}", u16::from_be_bytes(*word))).collect();
    words.join(":")
}

impl Tree {
    /// The tree of the devices that are there, at least the part that a path needs; all of it if
    /// the path is empty. A whole tree takes hundreds of firmware commands, one for each table
    /// entry.
    pub(crate) fn new<'a>(
        devices: impl Iterator<Item = &'a Hca>,
        around: &str,
    ) -> Result<Self, Errno> {
        let around = around.trim_end_matches('/').to_owned();
        let mut tree = Self { around, ..Self::default() };
        tree.file("class/infiniband_verbs/abi_version", ABI_VERSION);
        tree.file(format!("{}/abi_version", rdma_cm::SYSFS), rdma_cm::ABI_VERSION);
        tree.file(format!("{}/dev", rdma_cm::SYSFS), format!("{MISC}:{CM_MINOR}"));
        for hca in devices {
            tree.device(hca)?;
        }
        Ok(tree)
    }

    /// Whether a file, or the files below a directory, are on the way to the path or below it.
    fn concerns(&self, path: &str) -> bool {
        let below = |above: &str, path: &str| {
            path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        self.around.is_empty() || below(&self.around, path) || below(path, &self.around)
    }

    fn file(&mut self, path: impl Into<String>, contents: impl std::fmt::Display) {
        self.files.insert(path.into(), format!("{contents}\n"));
    }

    fn link(&mut self, path: impl Into<String>, target: impl Into<String>) {
        self.links.insert(path.into(), target.into());
    }

    fn device(&mut self, hca: &Hca) -> Result<(), Errno> {
        let config = hca.fabric.config();
        let (name, node) = (name(hca), node(hca));
        let (major, minor) = numbers(hca);
        let pci = pci(hca);
        let above = function(hca);
        let verbs = format!("class/infiniband_verbs/{node}");
        let class = format!("class/infiniband/{name}");
        let device = config.model.pci_device_id();
        let [first, second, third] = config.model.firmware_version();
        let node_guid = hca.fabric.lock().device(hca.id).system_guid();

        self.link(&verbs, format!("../../{above}/infiniband_verbs/{node}"));
        self.file(format!("{verbs}/ibdev"), &name);
        self.file(format!("{verbs}/dev"), format!("{major}:{minor}"));
        self.file(format!("{verbs}/abi_version"), mlx5_uapi::mlx5::ABI_VERSION);
        self.link(&class, format!("../../{above}/infiniband/{name}"));
        self.file(format!("{class}/node_type"), "1: CA");
        self.file(format!("{class}/node_guid"), guid(node_guid));
        self.file(format!("{class}/sys_image_guid"), guid(node_guid));
        self.file(format!("{class}/node_desc"), format!("{} simulated", config.model.name()));
        self.file(format!("{class}/fw_ver"), format!("{first}.{second}.{third:04}"));
        self.file(format!("{class}/hw_rev"), 0);
        self.file(format!("{class}/board_id"), config.model.board_id());
        self.file(format!("{class}/hca_type"), format!("MT{}", 4096 + (device & 0xfff)));
        for base in [&verbs, &class] {
            self.link(format!("{base}/device"), format!("../../../{pci}"));
            let modalias = format!(
                "pci:v{PCI_VENDOR:08X}d{device:08X}sv{PCI_VENDOR:08X}sd00000001bc02sc07i00"
            );
            self.file(format!("{base}/device/modalias"), modalias);
            self.file(format!("{base}/device/vendor"), format!("{PCI_VENDOR:#06x}"));
            self.file(format!("{base}/device/device"), format!("{device:#06x}"));
            self.file(format!("{base}/device/numa_node"), -1);
            let driver = "../../../../bus/pci/drivers/mlx5_core";
            self.link(format!("{base}/device/driver"), driver);
        }
        for port in 1..=hca.ports() {
            let base = format!("{class}/ports/{port}");
            if self.concerns(&base) {
                self.port(hca, port, &base)?;
            }
            for base in [&verbs, &class] {
                let interface = format!("{base}/device/net/{}", interface(hca, port)?);
                self.file(format!("{interface}/dev_port"), port - 1);
                self.file(format!("{interface}/ifindex"), hca.interface(port));
            }
        }
        Ok(())
    }

    fn port(&mut self, hca: &Hca, number: u8, base: &str) -> Result<(), Errno> {
        let facts = hca.port_facts(number)?;
        let (state, physical) = match facts.active {
            true => ("4: ACTIVE", "5: LinkUp"),
            false => ("1: DOWN", "3: Disabled"),
        };
        let link_layer = match facts.link_layer {
            LinkLayer::InfiniBand => "InfiniBand",
            LinkLayer::Ethernet => "Ethernet",
        };
        self.file(format!("{base}/state"), state);
        self.file(format!("{base}/phys_state"), physical);
        self.file(format!("{base}/link_layer"), link_layer);
        self.file(format!("{base}/rate"), "200 Gb/sec (4X HDR)");
        self.file(format!("{base}/lid"), format!("{:#x}", facts.context.lid()));
        self.file(format!("{base}/sm_lid"), format!("{:#x}", facts.context.sm_lid()));
        self.file(format!("{base}/sm_sl"), facts.context.sm_sl());
        self.file(format!("{base}/lid_mask_count"), facts.context.lmc());
        self.file(format!("{base}/cap_mask"), format!("{:#010x}", facts.context.cap_mask1()));
        for (name, count) in counters(hca, number) {
            self.file(format!("{base}/hw_counters/{name}"), count);
        }
        for (index, key) in facts.pkeys.iter().enumerate() {
            self.file(format!("{base}/pkeys/{index}"), format!("{key:#06x}"));
        }
        // Single queries are cheaper for one entry, and dearer for all.
        let all = if self.around.is_empty() { Some(hca.gids(number)?) } else { None };
        for index in 0..facts.gids {
            let place = format!("{base}/gids/{index}");
            let attributes = ["types", "ndevs"].map(|of| format!("{base}/gid_attrs/{of}/{index}"));
            if ![&place, &attributes[0], &attributes[1]].iter().any(|path| self.concerns(path)) {
                continue;
            }
            let entry = match &all {
                Some(all) => all.iter().find(|entry| entry.gid_index as usize == index).copied(),
                None => hca.gid(number, &facts, index)?,
            };
            let Some(entry) = entry else {
                self.file(place, gid([0; 16]));
                continue;
            };
            // The kernel has one name for both of the first kinds.
            let kind = match GidType::from_raw(entry.gid_type) {
                Some(GidType::RoceV2) => "RoCE v2",
                _ => "IB/RoCE v1",
            };
            let [types, ndevs] = attributes;
            self.file(place, gid(entry.gid));
            self.file(types, kind);
            if facts.link_layer == LinkLayer::Ethernet {
                self.file(ndevs, interface(hca, number)?);
            }
        }
        Ok(())
    }

    /// Everything, sorted by path.
    pub(crate) fn into_entries(self) -> Vec<(String, SysfsEntry)> {
        let files = self.files.into_iter().map(|(path, text)| (path, SysfsEntry::File(text)));
        let links = self.links.into_iter().map(|(path, target)| (path, SysfsEntry::Link(target)));
        files.chain(links).collect::<BTreeMap<_, _>>().into_iter().collect()
    }

    /// The contents of a file.
    pub(crate) fn read(&self, path: &str) -> Result<String, Errno> {
        self.files.get(path).cloned().ok_or(Errno::ENOENT)
    }

    /// The target of a link.
    pub(crate) fn target(&self, path: &str) -> Result<String, Errno> {
        let path = path.trim_end_matches('/');
        self.links.get(path).cloned().ok_or_else(|| match self.files.contains_key(path) {
            true => Errno::EINVAL,
            false => Errno::ENOENT,
        })
    }

    /// The names in a directory.
    pub(crate) fn list(&self, path: &str) -> Result<Vec<String>, Errno> {
        let prefix = format!("{}/", path.trim_end_matches('/'));
        let mut names: Vec<String> = self
            .files
            .keys()
            .chain(self.links.keys())
            .filter_map(|path| path.strip_prefix(&prefix)?.split('/').next().map(str::to_owned))
            .collect();
        names.sort();
        names.dedup();
        if names.is_empty() { Err(Errno::ENOENT) } else { Ok(names) }
    }
}
