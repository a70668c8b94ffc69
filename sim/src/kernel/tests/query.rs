//! Discovery, and queries of the device.

use mlx5_uapi::cmd::query;
use mlx5_uapi::mlx5::{ClockInfo, MmapCommand};
use mlx5_uapi::verbs::{GidType, LinkLayer, Mtu, PortState};
use mlx5_uapi::{Access, Errno, page_size, sysfs};

use super::rig::{Session, open};
use crate::{Fault, Model, PortConfig, SimConfig, Simulator};

#[test]
fn devices_are_found_through_sysfs() {
    let config = SimConfig::new().devices(2).model(Model::ConnectX6Dx).step(true);
    let sim = Simulator::new(config.ports([PortConfig::INFINIBAND, PortConfig::ROCE]));
    let kernel = sim.kernel();
    let devices = sysfs::devices(&*kernel).expect("sysfs");
    let names: Vec<_> = devices.iter().map(|info| (&*info.uverbs, &*info.name)).collect();
    assert_eq!(names, [("uverbs0", "mlx5_0"), ("uverbs1", "mlx5_1")]);
    let info = &devices[1];
    assert!(info.is_mlx5);
    assert_eq!((info.dev, info.abi_version, info.numa_node), ((231, 193), 1, None));
    assert_eq!(info.fw_version, "22.43.2026");
    assert_eq!(info.board_id, "MT_0000000359");
    assert_eq!(info.hca_type, "MT4125");
    let pci = info.pci.as_ref().expect("a PCI function");
    assert_eq!((&*pci.address, pci.vendor, pci.device), ("0000:04:00.0", 0x15b3, 0x101d));
    assert_eq!(pci.mlx5_part(), Some("ConnectX-6 Dx"));
    assert_ne!(info.node_guid, devices[0].node_guid);
    assert_eq!(info.node_guid, sim.fabric().lock().device(1).system_guid());
    assert_eq!(sysfs::pkey(&*kernel, "mlx5_0", 1, 0), Ok(0xffff));
    assert_eq!(sysfs::pkey(&*kernel, "mlx5_0", 1, 1), Ok(0));
    assert_eq!(sysfs::pkey(&*kernel, "mlx5_0", 2, 1), Err(Errno::ENOENT));
    assert_eq!(kernel.sysfs_list("class/infiniband").expect("a class"), ["mlx5_0", "mlx5_1"]);
    assert_eq!(kernel.sysfs_list("class/infiniband/mlx5_0/ports").expect("ports"), ["1", "2"]);
}

#[test]
fn an_infiniband_port_has_a_lid_and_one_gid() {
    let session = Session::new();
    let port = query::port(&*session.file, 1).expect("a port").legacy_resp;
    assert_eq!(port.state, PortState::Active.raw());
    assert_eq!(port.link_layer, LinkLayer::InfiniBand.raw());
    assert_eq!((port.lid, port.sm_lid), (1, 1));
    assert_eq!((port.active_mtu, port.max_msg_sz), (Mtu::Mtu4096.raw(), 1 << 30));
    assert_eq!((port.gid_tbl_len, port.pkey_tbl_len), (8, 128));
    let gids = query::gid_table(&*session.file, 256).expect("GIDs");
    assert_eq!(gids.len(), 1);
    assert_eq!(gids[0].gid[..2], [0xfe, 0x80]);
    assert_eq!(gids[0].gid_type, GidType::InfiniBand.raw());
    assert_eq!(query::port(&*session.file, 2).map(drop), Err(Errno::EINVAL));
    assert_eq!(query::gid_entry(&*session.file, 1, 5).map(drop), Err(Errno::ENODATA));
    assert_eq!(query::gid_entry(&*session.file, 1, 256).map(drop), Err(Errno::EINVAL));
}

#[test]
fn a_roce_port_has_gids_of_both_versions() {
    let session = Session::with(SimConfig::new().ports([PortConfig::ROCE]));
    let port = query::port(&*session.file, 1).expect("a port").legacy_resp;
    assert_eq!(port.link_layer, LinkLayer::Ethernet.raw());
    assert_eq!((port.lid, port.flags, port.active_mtu), (0, 1, Mtu::Mtu1024.raw()));
    let gids = query::gid_table(&*session.file, 256).expect("GIDs");
    let kinds: Vec<_> = gids.iter().map(|gid| (gid.gid_index, gid.gid_type)).collect();
    assert_eq!(kinds, [(0, 1), (1, 2), (2, 1), (3, 2)]);
    assert_eq!(gids[3].gid[..12], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]);
    assert_ne!(gids[3].netdev_ifindex, 0);
    let entry = query::gid_entry(&*session.file, 1, 3).expect("a GID");
    assert_eq!((entry.gid, entry.gid_type), (gids[3].gid, GidType::RoceV2.raw()));
    assert_eq!(query::gid_table(&*session.file, 3).map(drop), Err(Errno::EINVAL));
}

#[test]
fn the_clock_page_tells_its_period_in_jiffies() {
    let session = Session::new();
    let offset = MmapCommand::ClockInfo.offset(0, page_size());
    let page = session.file.map(offset, page_size(), Access::Read).expect("a page");
    // SAFETY: the page is longer than that, aligned, and updated by this thread alone.
    let info = unsafe { page.as_ptr().cast::<ClockInfo>().read_volatile() };
    assert_eq!(info.sign & 1, 0);
    let nanoseconds = ((info.mask / 3) * u64::from(info.mult)) >> info.shift;
    // 250 a second; user space gets no message about it.
    assert_eq!(info.overflow_period, nanoseconds / 4_000_000);
}

#[test]
fn a_port_of_a_failed_device_does_not_answer() {
    for port in [PortConfig::INFINIBAND, PortConfig::ROCE] {
        let session = Session::with(SimConfig::new().ports([port]));
        query::port(&*session.file, 1).expect("a port");
        session.sim.inject(0, Fault::Fatal);
        assert_eq!(query::port(&*session.file, 1).map(drop), Err(Errno::EIO), "{port:?}");
    }
}

#[test]
fn the_device_tells_its_limits() {
    let sim = Simulator::new(SimConfig::new().step(true));
    let file = open(&sim, 0).expect("a context");
    let (core, driver) = query::device(&*file).expect("a device");
    assert_eq!(core.response_length, 304);
    assert_eq!(driver.response_length, 104);
    assert_eq!(core.base.vendor_part_id, 0x1021);
    assert_eq!(core.base.fw_ver, 28 << 32 | 43 << 16 | 2026);
    assert_eq!(u64::from_be_bytes(core.base.node_guid), {
        sim.fabric().lock().device(0).system_guid()
    });
    assert_eq!((core.base.max_qp_wr, core.base.max_cqe), (1 << 15, (1 << 22) - 1));
    assert_eq!(core.base.max_sge, 30);
    assert_eq!(core.base.phys_port_cnt, 1);
    assert_eq!(core.hca_core_clock, 1_000_000);
}
