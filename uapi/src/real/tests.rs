use std::{
    io::Write,
    os::{fd::IntoRawFd, unix::fs::symlink},
    process,
    sync::atomic::{AtomicU32, Ordering},
};

use nix::{
    libc,
    sys::signal::Signal,
    sys::wait::{WaitStatus, waitpid},
    unistd::{ForkResult, fork},
};

use super::*;
use crate::{ProbeError, cmd::context, sysfs};

/// A directory that is removed at the end of the test.
struct TempDir(PathBuf);

impl TempDir {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("mlx5-uapi-{}-{number}", process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn link(&self, path: &str, target: &str) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(target, path).unwrap();
    }

    fn kernel(&self) -> LinuxKernel {
        LinuxKernel::with_roots(self.0.join("sys"), self.0.join("dev"))
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Adds the node `uverbs<n>` and its device to a sysfs tree, in the kernel's layout.
fn add_device(tree: &TempDir, n: u32, name: &str, pci: &str, modalias: &str) {
    let node = format!("sys/class/infiniband_verbs/uverbs{n}");
    tree.write(&format!("{node}/ibdev"), &format!("{name}\n"));
    tree.write(&format!("{node}/dev"), &format!("231:{}\n", 192 + n));
    tree.write(&format!("{node}/abi_version"), "1\n");
    let device = format!("sys/devices/{pci}/infiniband/{name}");
    tree.write(&format!("{device}/node_type"), "1: CA\n");
    tree.write(&format!("{device}/node_guid"), "0002:c903:00a1:b2c3\n");
    tree.write(&format!("{device}/sys_image_guid"), "0002:c903:00a1:b2c0\n");
    tree.write(&format!("{device}/fw_ver"), "16.35.2000\n");
    tree.write(&format!("{device}/board_id"), "MT_0000000008\n");
    tree.write(&format!("{device}/hca_type"), "MT4121\n");
    tree.write(&format!("{device}/ports/1/pkeys/0"), "0xffff\n");
    tree.link(
        &format!("{device}/device"),
        &format!("../../../{}", pci.rsplit('/').next().unwrap()),
    );
    tree.write(&format!("sys/devices/{pci}/modalias"), modalias);
    tree.write(&format!("sys/devices/{pci}/numa_node"), "-1\n");
    tree.link(
        &format!("sys/class/infiniband/{name}"),
        &format!("../../devices/{pci}/infiniband/{name}"),
    );
}

const CX5: &str = "pci:v000015B3d00001019sv000015B3sd00000008bc02sc07i00\n";

#[test]
fn a_device_is_found_with_all_that_sysfs_says_of_it() {
    let tree = TempDir::new();
    tree.write("sys/class/infiniband_verbs/abi_version", "6\n");
    add_device(&tree, 0, "mlx5_0", "pci0000:00/0000:03:00.0", CX5);
    tree.write("sys/devices/pci0000:00/0000:03:00.0/numa_node", "1\n");
    let found = sysfs::devices(&tree.kernel()).unwrap();
    let expected = sysfs::DeviceInfo {
        uverbs: "uverbs0".into(),
        name: "mlx5_0".into(),
        dev: (231, 192),
        abi_version: 1,
        node_type: sysfs::NodeType::ChannelAdapter,
        node_guid: 0x0002_c903_00a1_b2c3,
        sys_image_guid: 0x0002_c903_00a1_b2c0,
        fw_version: "16.35.2000".into(),
        board_id: "MT_0000000008".into(),
        hca_type: "MT4121".into(),
        pci: Some(sysfs::PciFunction {
            address: "0000:03:00.0".into(),
            vendor: 0x15b3,
            device: 0x1019,
        }),
        numa_node: Some(1),
        is_mlx5: true,
    };
    assert_eq!(found, [expected]);
    assert_eq!(found[0].pci.as_ref().unwrap().mlx5_part(), Some("ConnectX-5 Ex"));
    assert_eq!(sysfs::pkey(&tree.kernel(), "mlx5_0", 1, 0), Ok(0xffff));
    assert_eq!(sysfs::pkey(&tree.kernel(), "mlx5_0", 1, 9), Err(Errno::ENOENT));
}

#[test]
fn devices_are_sorted_by_number_and_other_drivers_devices_are_marked() {
    let tree = TempDir::new();
    add_device(&tree, 10, "mlx5_1", "pci0000:00/0000:04:00.0", CX5);
    let mlx4 = "pci:v000015B3d00001007sv000015B3sd00000000bc02sc00i00\n";
    add_device(&tree, 2, "mlx4_0", "pci0000:00/0000:05:00.0", mlx4);
    let found = sysfs::devices(&tree.kernel()).unwrap();
    let names: Vec<_> = found.iter().map(|info| (info.name.as_str(), info.is_mlx5)).collect();
    assert_eq!(names, [("mlx4_0", false), ("mlx5_1", true)]);
    assert_eq!(found[0].numa_node, None);
}

#[test]
fn malformed_node_hides_no_other_and_is_reported() {
    let tree = TempDir::new();
    for n in 0..6 {
        add_device(&tree, n, &format!("mlx5_{n}"), &format!("pci0000:00/0000:0{n}:00.0"), CX5);
    }
    let node = |n: u32, leaf: &str| format!("class/infiniband_verbs/uverbs{n}/{leaf}");
    let at = |n, leaf: &str| format!("sys/{}", node(n, leaf));
    tree.write(&at(0, "dev"), "231-192\n");
    // A directory in place of an attribute.
    fs::remove_file(tree.0.join(at(1, "ibdev"))).unwrap();
    fs::create_dir(tree.0.join(at(1, "ibdev"))).unwrap();
    tree.write(&at(3, "ibdev"), "\n");
    fs::remove_file(tree.0.join(at(4, "dev"))).unwrap();
    tree.write(&at(5, "ibdev"), "../../etc\n");
    let found = sysfs::scan(&tree.kernel()).unwrap();
    let names: Vec<_> = found.devices.iter().map(|info| info.name.as_str()).collect();
    assert_eq!(names, ["mlx5_2"]);
    let skipped = |n: u32, leaf, why| sysfs::Skipped {
        uverbs: format!("uverbs{n}"),
        path: node(n, leaf),
        why,
    };
    let (unreadable, malformed) =
        (sysfs::SkipReason::Unreadable, |text: &str| sysfs::SkipReason::Malformed(text.to_owned()));
    let expected = [
        skipped(0, "dev", malformed("231-192")),
        skipped(1, "ibdev", unreadable(Errno::EISDIR)),
        skipped(3, "ibdev", malformed("")),
        skipped(4, "dev", unreadable(Errno::ENOENT)),
        skipped(5, "ibdev", malformed("../../etc")),
    ];
    assert_eq!(found.skipped, expected);
    let text = found.skipped[0].to_string();
    assert!(text.contains("uverbs0") && text.contains("/sys/class/infiniband_verbs/uverbs0/dev"));
    assert_eq!(sysfs::devices(&tree.kernel()).unwrap(), found.devices);
}

#[test]
fn a_part_newer_than_the_table_is_known_by_its_driver() {
    let tree = TempDir::new();
    let future = "pci:v000015B3d0000FFFFsv000015B3sd00000000bc02sc00i00\n";
    add_device(&tree, 0, "mlx5_0", "pci0000:00/0000:03:00.0", future);
    tree.link("sys/devices/pci0000:00/0000:03:00.0/driver", "../../../bus/pci/drivers/mlx5_core");
    let found = sysfs::devices(&tree.kernel()).unwrap();
    assert!(found[0].is_mlx5);
    assert_eq!(found[0].pci.as_ref().unwrap().mlx5_part(), None);
}

#[test]
fn a_subfunction_has_the_pci_function_of_its_parent() {
    let tree = TempDir::new();
    let parent = "pci0000:00/0000:03:00.0";
    add_device(&tree, 0, "mlx5_2", &format!("{parent}/mlx5_core.sf.4"), "auxiliary:mlx5_core.sf\n");
    tree.write(&format!("sys/devices/{parent}/vendor"), "0x15b3\n");
    tree.write(&format!("sys/devices/{parent}/device"), "0xa2dc\n");
    let info = sysfs::devices(&tree.kernel()).unwrap().remove(0);
    assert!(info.is_mlx5);
    let pci = info.pci.unwrap();
    assert_eq!((pci.vendor, pci.device), (0x15b3, 0xa2dc));
    assert_eq!(pci.address, "0000:03:00.0");
}

#[test]
fn a_driver_abi_of_another_version_is_not_ours() {
    let tree = TempDir::new();
    add_device(&tree, 0, "mlx5_0", "pci0000:00/0000:03:00.0", CX5);
    tree.write("sys/class/infiniband_verbs/uverbs0/abi_version", "2\n");
    assert!(!sysfs::devices(&tree.kernel()).unwrap()[0].is_mlx5);
    tree.write("sys/class/infiniband_verbs/abi_version", "7\n");
    assert_eq!(sysfs::devices(&tree.kernel()), Err(Errno::EPROTONOSUPPORT));
}

#[test]
fn without_rdma_there_are_no_devices() {
    let tree = TempDir::new();
    assert_eq!(sysfs::devices(&tree.kernel()), Ok(Vec::new()));
}

#[test]
fn a_device_that_has_just_gone_is_left_out() {
    let tree = TempDir::new();
    add_device(&tree, 0, "mlx5_0", "pci0000:00/0000:03:00.0", CX5);
    fs::create_dir_all(tree.0.join("sys/class/infiniband_verbs/uverbs1")).unwrap();
    assert_eq!(sysfs::devices(&tree.kernel()).unwrap().len(), 1);
}

#[test]
fn only_the_character_device_that_sysfs_names_is_opened() {
    let tree = TempDir::new();
    tree.write("dev/infiniband/uverbs0", "");
    tree.link("dev/infiniband/uverbs1", "/dev/null");
    let kernel = tree.kernel();
    let errno = |node: &str, dev| kernel.open(node, dev).err();
    assert_eq!(errno("uverbs0", (1, 3)), Some(Errno::ENXIO));
    assert_eq!(errno("uverbs1", (231, 192)), Some(Errno::ENXIO));
    assert_eq!(errno("uverbs1", (1, 3)), None);
    assert_eq!(errno("uverbs2", (1, 3)), Some(Errno::ENOENT));
    assert_eq!(errno("../null", (1, 3)), Some(Errno::EINVAL));
}

#[test]
fn a_file_without_the_ioctl_is_too_old() {
    let null = open_dev("/dev/null", (1, 3));
    assert_eq!(context::probe(&*null), Err(ProbeError::TooOld));
}

fn open_dev(target: &str, dev: (u32, u32)) -> Arc<dyn DeviceFile> {
    let tree = TempDir::new();
    tree.link("dev/infiniband/uverbs0", target);
    tree.kernel().open("uverbs0", dev).unwrap()
}

#[test]
fn pages_of_the_device_are_mapped_for_reading_or_writing() {
    // A shared mapping of /dev/zero is new, zeroed memory.
    let zero = open_dev("/dev/zero", (1, 5));
    let page = page_size();
    let map = zero.map(0, page, Access::Write).unwrap();
    assert_eq!(map.len(), page);
    // SAFETY: the mapping covers a page that nothing else uses.
    unsafe {
        map.as_ptr().write_volatile(5);
        assert_eq!(map.as_ptr().read_volatile(), 5);
    }
    let map = zero.map(0, page, Access::Read).unwrap();
    // SAFETY: the mapping covers a page that nothing else uses.
    assert_eq!(unsafe { map.as_ptr().read_volatile() }, 0);
    assert_eq!(zero.map(0, 0, Access::Read).err(), Some(Errno::EINVAL));
    let null = open_dev("/dev/null", (1, 3));
    assert_eq!(null.map(0, page, Access::Write).err(), Some(Errno::ENODEV));
}

/// The mapping of a device page needs `MADV_DONTFORK`, which not every emulated kernel supports.
#[test]
fn the_kernel_keeps_a_mapping_from_children() {
    let map = MmapOptions::new().len(page_size()).map_anon().unwrap();
    map.advise(Advice::DontFork).map_err(errno).unwrap();
}

fn bytes(map: &Mapping) -> &[u8] {
    // SAFETY: the mapping has that length, and no device uses it.
    unsafe { core::slice::from_raw_parts(map.as_ptr(), map.len()) }
}

#[test]
fn memory_is_zeroed_whole_pages_and_aligned() {
    for (len, align) in [(1, 1), (page_size(), 64), (3 * page_size() + 1, 1 << 16), (64, 1 << 21)] {
        let map = allocate(&MemoryRequest::new(len).align(align)).unwrap();
        assert_eq!(map.as_ptr().addr() % align.max(page_size()), 0);
        assert_eq!(map.len(), len.next_multiple_of(page_size()));
        assert!(bytes(&map).iter().all(|byte| *byte == 0));
        // SAFETY: the address is that of the last byte of the mapping.
        unsafe { map.as_ptr().add(map.len() - 1).write(1) };
    }
}

#[test]
fn preferred_huge_pages_are_no_condition() {
    let request = MemoryRequest::new(100).huge(HugePages::Prefer);
    let map = allocate(&request).unwrap();
    assert!(map.len() >= 100);
    assert!(bytes(&map).iter().all(|byte| *byte == 0));
}

#[test]
fn memory_that_cannot_be_is_refused() {
    let failed = |request| allocate(&request).err().map(|error| (error.step, error.errno));
    let map = |errno| Some((AllocateStep::Map, errno));
    assert_eq!(failed(MemoryRequest::new(0)), map(Errno::EINVAL));
    assert_eq!(failed(MemoryRequest::new(1).align(3)), map(Errno::EINVAL));
    assert_eq!(failed(MemoryRequest::new(usize::MAX)), map(Errno::ENOMEM));
    let giant = MemoryRequest::new(1 << 46).huge(HugePages::TwoMiB);
    let step = AllocateStep::MapHuge { page_bits: 21 };
    assert_eq!(failed(giant), Some((step, Errno::ENOMEM)));
    for node in [1000, 1024, u32::MAX] {
        let step = AllocateStep::Bind { node };
        let error = failed(MemoryRequest::new(1).numa_node(Some(node))).expect("no such node");
        assert_eq!(error.0, step);
        assert!([Errno::EINVAL, Errno::ENOSYS].contains(&error.1), "{}", error.1);
    }
    assert!(allocate(&MemoryRequest::new(isize::MAX as usize)).is_err());
}

#[test]
fn a_child_finds_zeros_and_the_parent_its_data() {
    let map = allocate(&MemoryRequest::new(1)).unwrap();
    // SAFETY: the mapping has a first byte, and nothing else uses it.
    unsafe { map.as_ptr().write_volatile(0x5a) };
    // SAFETY: the child only reads a byte and exits.
    match unsafe { fork() }.unwrap() {
        ForkResult::Child => {
            // SAFETY: the pages are mapped in the child, too.
            let byte = unsafe { map.as_ptr().read_volatile() };
            // SAFETY: `_exit` may be called after a fork; it runs no exit handlers of the parent.
            unsafe { libc::_exit(i32::from(byte)) }
        }
        ForkResult::Parent { child } => {
            assert_eq!(waitpid(child, None), Ok(WaitStatus::Exited(child, 0)));
        }
    }
    // SAFETY: the mapping has a first byte, and nothing else in this process uses it.
    assert_eq!(unsafe { map.as_ptr().read_volatile() }, 0x5a);
}

/// Huge pages are kept from children in this way. The test uses an ordinary page, because the
/// machine may have no huge pages.
#[test]
fn memory_that_is_kept_from_a_child_ends_it_by_a_fault() {
    let mut map = MmapOptions::new().len(page_size()).map_anon().unwrap();
    if keep_from_children(&mut map, true).is_err() {
        println!("SKIP: this kernel has no MADV_DONTFORK, as some emulators");
        return;
    }
    // SAFETY: the child only reads a byte and exits.
    match unsafe { fork() }.unwrap() {
        ForkResult::Child => {
            // SAFETY: if the page is absent from the child, the access raises a signal, which ends
            // the child here.
            let byte = unsafe { map.as_ptr().read_volatile() };
            // SAFETY: `_exit` may be called after a fork; it runs no exit handlers of the parent.
            unsafe { libc::_exit(i32::from(byte)) }
        }
        ForkResult::Parent { child } => {
            let ended = waitpid(child, None).unwrap();
            assert!(matches!(ended, WaitStatus::Signaled(_, Signal::SIGSEGV, _)), "{ended:?}");
        }
    }
}

#[test]
fn a_leaked_mapping_stays_and_a_dropped_one_ends() {
    struct Owner(Arc<AtomicU32>);
    impl Drop for Owner {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let drops = Arc::new(AtomicU32::new(0));
    let mapping = || {
        let byte = NonNull::<u8>::dangling();
        // SAFETY: the length is zero, so no byte needs to be mapped.
        unsafe { Mapping::new(byte, 0, Box::new(Owner(drops.clone()))) }
    };
    mapping().leak();
    assert_eq!(drops.load(Ordering::Relaxed), 0);
    drop(mapping());
    assert_eq!(drops.load(Ordering::Relaxed), 1);
}

#[test]
fn an_event_file_never_blocks_and_can_be_waited_for() {
    let null = open_dev("/dev/null", (1, 3));
    let (reader, mut writer) = std::io::pipe().unwrap();
    // SAFETY: the descriptor is open and nothing else owns it, like a descriptor that an ioctl has
    // created.
    let events = unsafe { null.event_file(reader.into_raw_fd()) }.unwrap();
    let mut buf = [0; 8];
    assert_eq!(events.read(&mut buf), Err(Errno::EAGAIN));
    writer.write_all(&[1, 2, 3]).unwrap();
    assert_eq!(crate::wait::wait_readable(events.as_fd(), None), Ok(true));
    assert_eq!(events.read(&mut buf), Ok(3));
    assert_eq!(buf[..3], [1, 2, 3]);
    // SAFETY: there is no such descriptor, so nothing else owns it.
    assert_eq!(unsafe { null.event_file(-1) }.err(), Some(Errno::EBADF));
}

#[test]
fn uevents_of_the_kernel_alone_are_accepted() {
    use crate::{uevent::Uevent, wait::wait_readable};
    use nix::sys::socket::{MsgFlags, NetlinkAddr, getsockname, sendto};
    use std::time::Duration;

    let kernel = LinuxKernel::new();
    let events = kernel.uevents().unwrap();
    let mut message = [0; crate::uevent::LONGEST];
    // Discard events of other devices of this machine, which may change at any time.
    while events.read(&mut message).is_ok() {}

    // A message that another socket sends, with all fields of a message from the kernel.
    let own: NetlinkAddr = getsockname(events.as_fd().as_raw_fd()).unwrap();
    let forged = b"add@/x\0ACTION=add\0DEVPATH=/x/forged\0SUBSYSTEM=net\0";
    let other = kernel.uevents().unwrap();
    let to = NetlinkAddr::new(own.pid(), 0);
    sendto(other.as_fd().as_raw_fd(), forged, &to, MsgFlags::empty()).unwrap();

    // Only the superuser can make the kernel send an event.
    let asked = fs::write("/sys/class/net/lo/uevent", "add").is_ok();
    let mut found = false;
    let deadline = std::time::Instant::now() + Duration::from_secs(10);
    while asked && !found && std::time::Instant::now() < deadline {
        if wait_readable(events.as_fd(), Some(Duration::from_secs(1))) == Ok(true)
            && let Ok(len) = events.read(&mut message)
            && let Some(event) = Uevent::parse(&message[..len])
        {
            assert_ne!(event.name(), "forged");
            found |= (event.action, event.subsystem, event.name()) == ("add", "net", "lo");
        }
    }
    assert_eq!(found, asked);
    loop {
        match events.read(&mut message) {
            Ok(len) => {
                assert!(
                    Uevent::parse(&message[..len]).is_none_or(|event| event.name() != "forged")
                );
            }
            Err(errno) => break assert_eq!(errno, Errno::EAGAIN),
        }
    }
}
