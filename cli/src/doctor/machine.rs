//! Checks of the machine, by its kernel's files.

use super::Finding;
use mlx5::OLDEST_KERNEL;
use nix::errno::Errno;
use nix::unistd::{AccessFlags, access};
use std::fs;
use std::path::{Path, PathBuf};

/// A machine, by its `/proc`, `/sys` and `/dev`.
pub(super) struct Machine {
    pub(super) root: PathBuf,
}

/// PCI's number of the vendor (`PCI_VENDOR_ID_MELLANOX`), and its class of network controllers.
const VENDOR: &str = "0x15b3";
const NETWORK: &str = "0x02";
/// Kernel modules that the device needs.
const MODULES: [&str; 3] = ["mlx5_core", "mlx5_ib", "ib_uverbs"];
/// The bits of `CapEff` (`linux/capability.h`).
const CAP_NET_RAW: u32 = 13;
const CAP_IPC_LOCK: u32 = 14;
/// The remedy for a node that cannot be opened.
const OPEN: &str = "join the group that `ls -l /dev/infiniband` shows, for example rdma; `chmod 666 \
                    /dev/infiniband/*` holds until the next boot";
/// Less than this is soon used up by queues and a few regions.
const ENOUGH: u64 = 64 << 20;

impl Machine {
    /// A file's text, without the end of its line.
    fn text(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.root.join(path)).ok().map(|text| text.trim_end().to_owned())
    }

    fn has(&self, path: &str) -> bool {
        self.root.join(path).exists()
    }

    /// The names in a folder, in order.
    fn names(&self, path: &str) -> Vec<String> {
        let entries = fs::read_dir(self.root.join(path)).into_iter().flatten().flatten();
        let mut names: Vec<_> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    pub(super) fn check(&self) -> Vec<Finding> {
        let functions = self.functions();
        let mut findings = vec![self.kernel()];
        findings.extend(self.hardware(&functions));
        if !functions.is_empty() {
            findings.push(self.modules());
        }
        findings.extend([self.nodes(), self.locked_memory(), self.raw_packets()]);
        findings
    }

    fn kernel(&self) -> Finding {
        let Some(release) = self.text("proc/sys/kernel/osrelease") else {
            return Finding::warning("the kernel's release is not known", "is /proc mounted?");
        };
        let number = |text: &str| -> Option<(u32, u32)> {
            let mut parts = text.split(|c: char| !c.is_ascii_digit());
            Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
        };
        match (number(&release), number(OLDEST_KERNEL)) {
            (Some(is), Some(oldest)) if is < oldest => Finding::failure(
                format!("kernel {release}: calls are missing"),
                format!("run Linux {OLDEST_KERNEL} or newer"),
            ),
            _ => Finding::fine(format!("kernel {release}")),
        }
    }

    /// Network functions of the vendor, each with its driver.
    fn functions(&self) -> Vec<(String, Option<String>)> {
        const DEVICES: &str = "sys/bus/pci/devices";
        let mut functions = Vec::new();
        for name in self.names(DEVICES) {
            let of = |file: &str| self.text(&format!("{DEVICES}/{name}/{file}"));
            let is_network = of("class").is_some_and(|class| class.starts_with(NETWORK));
            if is_network && of("vendor").as_deref() == Some(VENDOR) {
                let driver = fs::read_link(self.root.join(DEVICES).join(&name).join("driver"));
                let driver = driver.ok().and_then(|link| {
                    link.file_name().map(|name| name.to_string_lossy().into_owned())
                });
                functions.push((name, driver));
            }
        }
        functions
    }

    fn hardware(&self, functions: &[(String, Option<String>)]) -> Vec<Finding> {
        if functions.is_empty() {
            let text = "no NVIDIA/Mellanox network function on the PCI bus";
            let remedy =
                "to work without one, use the simulated device: --sim, or mlx5-sim in tests";
            return vec![Finding::warning(text, remedy)];
        }
        let of = |(name, driver): &(String, Option<String>)| match driver.as_deref() {
            Some("mlx5_core") => Finding::fine(format!("{name} is driven by mlx5_core")),
            Some(other) => Finding::failure(
                format!("{name} is driven by {other}"),
                format!(
                    "give it back: echo {name} > /sys/bus/pci/drivers/{other}/unbind, then echo \
                     {name} > /sys/bus/pci/drivers/mlx5_core/bind"
                ),
            ),
            None => Finding::failure(
                format!("{name} has no driver"),
                "`modprobe mlx5_core`; if that fails, `dmesg | grep mlx5` says why",
            ),
        };
        functions.iter().map(of).collect()
    }

    fn modules(&self) -> Finding {
        let is_missing = |name: &&&str| !self.has(&format!("sys/module/{name}"));
        let missing: Vec<&str> = MODULES.iter().filter(is_missing).copied().collect();
        match missing[..] {
            [] => Finding::fine(format!("modules {} are loaded", MODULES.join(", "))),
            _ => Finding::failure(
                format!("not loaded: {}", missing.join(", ")),
                format!("`modprobe -a {}`", missing.join(" ")),
            ),
        }
    }

    fn nodes(&self) -> Finding {
        self.nodes_that(|node| access(node, AccessFlags::R_OK | AccessFlags::W_OK))
    }

    /// The nodes, by whether this user may read and write each of them.
    fn nodes_that(&self, opens: impl Fn(&Path) -> Result<(), Errno>) -> Finding {
        const FOLDER: &str = "dev/infiniband";
        let nodes = self.names(FOLDER);
        let (devices, closed): (Vec<&String>, Vec<&String>) = nodes
            .iter()
            .filter(|name| name.starts_with("uverbs"))
            .partition(|name| opens(&self.root.join(FOLDER).join(name)).is_ok());
        if devices.is_empty() && closed.is_empty() {
            return Finding::warning(
                "no /dev/infiniband/uverbs*: no program here reaches an RDMA device",
                "`modprobe ib_uverbs`; in a container, pass --device=/dev/infiniband",
            );
        }
        if let Some(name) = closed.first() {
            let text = format!("this user cannot open /dev/infiniband/{name}");
            let text = match closed.len() {
                1 => text,
                several => format!("{text}, and {} more", several - 1),
            };
            // With one readable node a program still has a device.
            let found = if devices.is_empty() { Finding::failure } else { Finding::warning };
            return found(text, OPEN.to_owned());
        }
        let manager = self.root.join(FOLDER).join("rdma_cm");
        if !nodes.iter().any(|name| name == "rdma_cm") {
            return Finding::warning(
                "no /dev/infiniband/rdma_cm: programs cannot connect by address (rdma_cm)",
                "`modprobe rdma_ucm`",
            );
        }
        if opens(&manager).is_err() {
            return Finding::warning(
                "this user cannot open /dev/infiniband/rdma_cm: programs cannot connect by address",
                OPEN,
            );
        }
        Finding::fine(format!("/dev/infiniband has {}", nodes.join(", ")))
    }

    fn has_capability(&self, bit: u32) -> bool {
        let status = self.text("proc/self/status").unwrap_or_default();
        let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        mask.is_some_and(|mask| mask >> bit & 1 != 0)
    }

    fn locked_memory(&self) -> Finding {
        let limits = self.text("proc/self/limits").unwrap_or_default();
        let line = limits.lines().find_map(|line| line.strip_prefix("Max locked memory"));
        let soft = line.and_then(|line| line.split_whitespace().next());
        let remedy = "raise it: `ulimit -l unlimited`, memlock in /etc/security/limits.conf, \
                      LimitMEMLOCK=infinity in a systemd unit, --ulimit memlock=-1 of a container";
        match soft.map(|soft| (soft, soft.parse::<u64>())) {
            _ if self.has_capability(CAP_IPC_LOCK) => {
                Finding::fine("locked memory: no limit (CAP_IPC_LOCK)")
            }
            Some(("unlimited", _)) => Finding::fine("locked memory: no limit"),
            Some((_, Ok(bytes))) if bytes >= ENOUGH => {
                Finding::fine(format!("locked memory: at most {} MiB", bytes >> 20))
            }
            Some((_, Ok(bytes))) => Finding::warning(
                format!(
                    "locked memory: at most {} KiB, which queues and regions share",
                    bytes >> 10
                ),
                remedy,
            ),
            _ => Finding::warning("the limit of locked memory is not known", remedy),
        }
    }

    fn raw_packets(&self) -> Finding {
        match self.has_capability(CAP_NET_RAW) {
            true => Finding::fine("raw packets and flow rules are allowed (CAP_NET_RAW)"),
            false => Finding::fine("without CAP_NET_RAW: no raw packets, no flow rules"),
        }
    }

    /// The maximum transmission unit of a network interface.
    pub(super) fn mtu(&self, interface: &str) -> Option<u32> {
        self.text(&format!("sys/class/net/{interface}/mtu"))?.parse().ok()
    }

    /// The VLAN of a network interface, if it is one.
    pub(super) fn vlan(&self, interface: &str) -> Option<u16> {
        let text = self.text(&format!("proc/net/vlan/{interface}"))?;
        let (_, rest) = text.split_once("VID: ")?;
        rest.split_whitespace().next()?.parse().ok()
    }

    /// The processors of a NUMA node, and whether this process may run on one of them.
    pub(super) fn processors(&self, node: u32) -> Option<(String, bool)> {
        let list = self.text(&format!("sys/devices/system/node/node{node}/cpulist"))?;
        let status = self.text("proc/self/status")?;
        let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
        let allowed = ranges(allowed)?;
        let meets = ranges(&list)?
            .iter()
            .any(|node| allowed.iter().any(|allowed| node.0 <= allowed.1 && allowed.0 <= node.1));
        Some((list, meets))
    }
}

/// The ranges of a list as `0-3,8`.
fn ranges(list: &str) -> Option<Vec<(u32, u32)>> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some((first.parse().ok()?, last.parse().ok()?))
    };
    list.trim().split(',').filter(|part| !part.is_empty()).map(range).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Level;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// A machine of files.
    struct Files(Machine);

    impl Files {
        fn new(files: &[(&str, &str)]) -> Self {
            static NEXT: AtomicU32 = AtomicU32::new(0);
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let name = format!("mlx5-doctor-{}-{number}", std::process::id());
            let root = std::env::temp_dir().join(name);
            for (path, text) in files {
                let path = root.join(path);
                fs::create_dir_all(path.parent().unwrap_or(Path::new("/"))).expect("a folder");
                fs::write(path, text).expect("a file");
            }
            Self(Machine { root })
        }
    }

    impl Drop for Files {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0.root);
        }
    }

    const LIMITS: &str = "Limit                     Soft Limit           Hard Limit           Units\n\
                          Max locked memory         65536                65536                bytes\n";
    const STATUS: &str = "Name:\tmlx5\nCapEff:\t0000000000000000\nCpus_allowed_list:\t0-3,8\n";

    #[test]
    fn a_function_without_a_driver_is_told_with_what_to_do() {
        let machine = Files::new(&[
            ("sys/bus/pci/devices/0000:01:00.0/vendor", "0x15b3\n"),
            ("sys/bus/pci/devices/0000:01:00.0/class", "0x020700\n"),
            ("sys/bus/pci/devices/0000:02:00.0/vendor", "0x8086\n"),
            ("sys/bus/pci/devices/0000:02:00.0/class", "0x020000\n"),
            ("sys/module/mlx5_core/x", ""),
        ]);
        let functions = machine.0.functions();
        assert_eq!(functions, [("0000:01:00.0".to_owned(), None)]);
        let found = machine.0.hardware(&functions);
        assert!(found[0].level == Level::Failure && found[0].text.contains("has no driver"));
        let modules = machine.0.modules();
        assert_eq!(modules.text, "not loaded: mlx5_ib, ib_uverbs");
        assert_eq!(modules.remedy.as_deref(), Some("`modprobe -a mlx5_ib ib_uverbs`"));
    }

    #[test]
    fn little_locked_memory_is_a_warning_unless_a_capability_lifts_the_limit() {
        let files = [("proc/self/limits", LIMITS), ("proc/self/status", STATUS)];
        let found = Files::new(&files).0.locked_memory();
        assert!(
            found.level == Level::Warning && found.text.contains("at most 64 KiB"),
            "{found:?}"
        );
        let able = STATUS.replace("0000000000000000", "0000000000004000");
        let found = Files::new(&[files[0], ("proc/self/status", &able)]).0.locked_memory();
        assert!(found.level == Level::Fine && found.text.contains("CAP_IPC_LOCK"), "{found:?}");
        let more = LIMITS.replace("65536 ", "unlimited ");
        let found = Files::new(&[("proc/self/limits", &more), files[1]]).0.locked_memory();
        assert_eq!(found, Finding::fine("locked memory: no limit"));
    }

    #[test]
    fn an_old_kernel_is_a_failure() {
        let level =
            |release| Files::new(&[("proc/sys/kernel/osrelease", release)]).0.kernel().level;
        assert_eq!(level("5.4.0-200-generic\n"), Level::Failure);
        assert_eq!(level("5.10.0-28-amd64\n"), Level::Fine);
        assert_eq!(level("6.1.0\n"), Level::Fine);
    }

    #[test]
    fn nodes_that_are_missing_are_told() {
        let found = Files::new(&[("dev/null", "")]).0.nodes();
        assert!(found.text.contains("no /dev/infiniband/uverbs"), "{found:?}");
        let found = Files::new(&[("dev/infiniband/uverbs0", "")]).0.nodes();
        assert!(found.text.contains("no /dev/infiniband/rdma_cm"), "{found:?}");
        let both = [("dev/infiniband/uverbs0", ""), ("dev/infiniband/rdma_cm", "")];
        assert_eq!(Files::new(&both).0.nodes().level, Level::Fine);
    }

    #[test]
    fn nodes_that_this_user_cannot_open_are_told() {
        let all = [
            ("dev/infiniband/rdma_cm", ""),
            ("dev/infiniband/uverbs0", ""),
            ("dev/infiniband/uverbs1", ""),
        ];
        let machine = Files::new(&all);
        let without = |closed: &[&str]| {
            machine.0.nodes_that(|node| match closed.iter().any(|name| node.ends_with(name)) {
                true => Err(Errno::EACCES),
                false => Ok(()),
            })
        };
        assert_eq!(without(&[]).level, Level::Fine);
        let found = without(&["uverbs0", "uverbs1"]);
        assert_eq!(found.text, "this user cannot open /dev/infiniband/uverbs0, and 1 more");
        let remedy = found.remedy.as_deref().unwrap_or_default();
        assert!(found.level == Level::Failure && remedy.contains("join the group"), "{remedy}");
        let found = without(&["uverbs1"]);
        assert_eq!(found.text, "this user cannot open /dev/infiniband/uverbs1");
        assert_eq!(found.level, Level::Warning, "the other one is left");
        let found = without(&["rdma_cm"]);
        assert!(found.level == Level::Warning && found.text.contains("rdma_cm"), "{found:?}");

        // Root may open everything but a node that leads nowhere.
        let folder = machine.0.root.join("dev/infiniband");
        fs::remove_file(folder.join("uverbs0")).expect("a file");
        fs::remove_file(folder.join("uverbs1")).expect("a file");
        std::os::unix::fs::symlink("nowhere", folder.join("uverbs0")).expect("a link");
        assert_eq!(machine.0.nodes().level, Level::Failure);
    }

    #[test]
    fn interfaces_vlans_and_processors_are_read() {
        let machine = Files::new(&[
            ("sys/class/net/eth0.7/mtu", "4200\n"),
            ("proc/net/vlan/eth0.7", "eth0.7  VID: 7\t REORDER_HDR: 1  dev->priv_flags: 1021\n"),
            ("sys/devices/system/node/node0/cpulist", "4-7\n"),
            ("sys/devices/system/node/node1/cpulist", "8-15\n"),
            ("proc/self/status", STATUS),
        ]);
        assert_eq!(machine.0.mtu("eth0.7"), Some(4200));
        assert_eq!((machine.0.vlan("eth0.7"), machine.0.vlan("eth0")), (Some(7), None));
        assert_eq!(machine.0.processors(0), Some(("4-7".to_owned(), false)));
        assert_eq!(machine.0.processors(1), Some(("8-15".to_owned(), true)));
    }
}
