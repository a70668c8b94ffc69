//! Finding and opening devices, and their attributes.

use super::altered_kernel::{AlteredKernel, Overrides};
use crate::prelude::*;
use mlx5::{
    CancelError, Device, Devx, Errno, ErrorKind, Gid, GidType, Guid, LinkLayer, Mtu, NodeType,
    OLDEST_KERNEL, OpenOptions, PortState, devices_on,
};
use mlx5_sim::engine;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

pub(crate) const CASES: &[Case] = cases![
    every_device_of_the_machine_is_listed_in_the_order_of_its_node: SIMULATOR,
    device_reports_its_part_its_firmware_and_its_place: SIMULATOR,
    devices_of_other_drivers_are_not_listed: SIMULATOR,
    a_machine_without_rdma_has_no_devices: SIMULATOR,
    a_device_can_be_opened_twice,
    an_old_kernel_is_refused_by_name_of_the_oldest_that_will_do: SIMULATOR,
    a_node_that_may_not_be_opened_says_why: SIMULATOR,
    completions_without_user_index_are_refused_at_open: SIMULATOR,
    a_device_without_devx_works_but_cannot_say_where_it_drained: SIMULATOR,
    devx_can_be_demanded_or_declined: SIMULATOR,
    device_reports_its_limits: SIMULATOR,
    port_reports_link_state_and_addresses: SIMULATOR,
    the_gid_table_has_every_address_and_its_type: SIMULATOR,
    a_gid_is_found_by_value_and_type: SIMULATOR,
    a_device_and_its_port_are_found_by_ip_address: SIMULATOR,
    of_several_devices_that_is_found_which_has_the_address: SIMULATOR,
    an_address_that_no_roce_port_has_is_not_found: SIMULATOR,
    a_port_names_its_network_interfaces: SIMULATOR,
    the_partition_key_table_is_read_place_by_place: EVERY_MODEL | SIMULATOR,
    ports_and_places_that_are_not_there_are_named,
];

fn every_device_of_the_machine_is_listed_in_the_order_of_its_node(bed: &Bed) -> Outcome {
    let bed = bed.configured(|config| config.devices(3))?;
    let listed = devices_on(bed.simulator().kernel())?;
    let names: Vec<&str> = listed.iter().map(Device::name).collect();
    assert_eq!(names, ["mlx5_0", "mlx5_1", "mlx5_2"]);
    let nodes: Vec<&str> = listed.iter().map(Device::uverbs).collect();
    assert_eq!(nodes, ["uverbs0", "uverbs1", "uverbs2"]);
    for (id, device) in listed.iter().enumerate() {
        let guid = bed.simulator().fabric().lock().device(id).system_guid();
        assert_eq!((device.guid(), device.sys_image_guid()), (Guid(guid), Guid(guid)));
        assert_eq!(device.open()?.name(), device.name());
    }
    Ok(())
}

fn device_reports_its_part_its_firmware_and_its_place(bed: &Bed) -> Outcome {
    for model in Model::ALL {
        let bed = bed.configured(|config| config.model(model))?;
        let device = bed.device();
        assert_eq!(device.part(), Some(model.name()));
        let [major, minor, patch] = model.firmware_version();
        assert_eq!(device.fw_version(), format!("{major}.{minor}.{patch:04}"));
        assert_eq!(device.board_id(), model.board_id());
        assert_eq!(device.node_type(), NodeType::ChannelAdapter);
        let pci = device.pci().ok_or("no PCI function")?;
        assert_eq!((pci.vendor, pci.device), (0x15b3, model.pci_device_id()));
        assert!(pci.address.ends_with(".0"), "{}", pci.address);
        let attr = device.open()?.query_device();
        assert_eq!(attr.fw_ver, device.fw_version());
        assert_eq!((attr.vendor_part_id, attr.node_guid), (pci.device.into(), device.guid()));
    }
    Ok(())
}

/// The sysfs files of a device with another driver.
fn foreign(node: &str, name: &str, driver: &str, abi: &str) -> Vec<(String, String)> {
    let verbs = format!("class/infiniband_verbs/{node}");
    let base = format!("class/infiniband/{name}");
    [
        (format!("{verbs}/ibdev"), name),
        (format!("{verbs}/dev"), "231:300"),
        (format!("{verbs}/abi_version"), abi),
        (format!("{base}/node_type"), "1: CA"),
        (format!("{base}/device/modalias"), "pci:v00001AF4d00001041sv0000sd0000bc00sc00i00"),
        (format!("{base}/device/driver"), driver),
    ]
    .map(|(path, contents)| (path, format!("{contents}\n")))
    .to_vec()
}

fn devices_of_other_drivers_are_not_listed(bed: &Bed) -> Outcome {
    let mut sysfs = foreign("uverbs7", "rxe0", "../../bus/pci/drivers/rdma_rxe", "1");
    sysfs.extend(foreign("uverbs8", "irdma0", "../../bus/pci/drivers/irdma", "5"));
    let (kernel, _) = AlteredKernel::before(
        bed.simulator().kernel(),
        Overrides { sysfs, ..Overrides::default() },
    );
    let names: Vec<String> =
        devices_on(kernel)?.iter().map(|device| device.name().to_owned()).collect();
    assert_eq!(names, ["mlx5_0"]);
    Ok(())
}

fn a_machine_without_rdma_has_no_devices(bed: &Bed) -> Outcome {
    let none = Simulator::new(bed.config().clone().devices(0));
    assert!(devices_on(none.kernel())?.is_empty());
    Ok(())
}

fn a_device_can_be_opened_twice(bed: &Bed) -> Outcome {
    let (one, other) = (bed.device().open()?, bed.device().open()?);
    assert_ne!(one, other);
    let domains = (one.alloc_pd()?, other.alloc_pd()?);
    assert_ne!(domains.0.pdn(), domains.1.pdn());
    drop((one, domains.0));
    other.query_port(bed.port())?;
    Ok(())
}

fn an_old_kernel_is_refused_by_name_of_the_oldest_that_will_do(bed: &Bed) -> Outcome {
    let old = Overrides { calls: Some(Box::new(|_| Some(Errno::ENOTTY))), ..Overrides::default() };
    let (kernel, _) = AlteredKernel::before(bed.simulator().kernel(), old);
    let error = devices_on(kernel)?[0].open().expect_err("no ioctl, no driver");
    assert_eq!(error.kind(), ErrorKind::KernelTooOld);
    assert!(error.to_string().contains(OLDEST_KERNEL), "{error}");
    Ok(())
}

fn a_node_that_may_not_be_opened_says_why(bed: &Bed) -> Outcome {
    for (errno, kind, hint) in [
        (Errno::EACCES, ErrorKind::PermissionDenied, "/dev/infiniband"),
        (Errno::EPERM, ErrorKind::PermissionDenied, "namespace"),
        (Errno::ENOENT, ErrorKind::NotFound, "container"),
        (Errno::ENXIO, ErrorKind::NotFound, "another device"),
        (Errno::EMFILE, ErrorKind::ResourceLimit, "RLIMIT_NOFILE"),
    ] {
        let overrides = Overrides { open: Some(errno), ..Overrides::default() };
        let (kernel, _) = AlteredKernel::before(bed.simulator().kernel(), overrides);
        let error = devices_on(kernel)?[0].open().expect_err("the node cannot be opened");
        assert_eq!((error.kind(), error.errno()), (kind, Some(errno)));
        assert!(error.to_string().contains(hint), "{error}");
    }
    Ok(())
}

fn completions_without_user_index_are_refused_at_open(bed: &Bed) -> Outcome {
    let bed = bed.configured(|config| config.cqe_version(0))?;
    let error = bed.device().open().expect_err("this driver needs user indexes");
    assert_eq!(error.kind(), ErrorKind::NotSupported);
    assert!(error.to_string().contains("user index"), "{error}");
    Ok(())
}

fn a_device_without_devx_works_but_cannot_say_where_it_drained(bed: &Bed) -> Outcome {
    let bed = bed.configured(|config| config.devx(false))?;
    let mut pair = bed.pair::<Rc>(&PairOptions::default())?;
    assert!(!pair.a.context.has_devx());
    pair.b.recv(1, 0..64);
    fill(&pair.a.mr, 0, 5, 64)?;
    let mut batch = pair.a.qp.wr_start();
    batch.wr(2, SendFlags::SIGNALED).send().sge(pair.a.mr.sge(0..64)?);
    batch.complete()?;
    assert!(bed.poll(&mut pair.a.send_cq, 1)[0].as_completion().is_success());
    assert!(bed.poll(pair.b.recv_cq(), 1)[0].as_completion().is_success());
    verify(&pair.b.mr, 0, 5, 64);
    let Err(CancelError::Query(error)) = pair.a.qp.drained() else {
        panic!("the device cannot be asked");
    };
    assert_eq!(error.kind(), ErrorKind::NoDevx);
    Ok(())
}

fn devx_can_be_demanded_or_declined(bed: &Bed) -> Outcome {
    let declined = bed.device().open_with(&OpenOptions::new().devx(Devx::Off))?;
    assert!(!declined.has_devx());
    let demanded = bed.device().open_with(&OpenOptions::new().devx(Devx::Require))?;
    assert!(demanded.has_devx());
    let without = bed.configured(|config| config.devx(false))?;
    let error = without.device().open_with(&OpenOptions::new().devx(Devx::Require));
    assert_eq!(error.expect_err("there is none").kind(), ErrorKind::NoDevx);
    Ok(())
}

fn device_reports_its_limits(bed: &Bed) -> Outcome {
    let config = bed.simulator().fabric().config().clone();
    let limits = config.limits;
    let attr = bed.context().query_device();
    assert_eq!(u32::from(attr.phys_port_cnt), config.ports.len() as u32);
    assert_eq!((attr.max_qp, attr.max_cq), (limits.qps, limits.cqs));
    assert_eq!((attr.max_srq, attr.max_pd), (limits.srqs, limits.pds));
    assert_eq!(attr.max_cqe, (1 << limits.log_cq_entries) - 1);
    assert_eq!(attr.max_qp_wr, 1 << limits.log_sq_blocks);
    assert_eq!(attr.max_srq_wr, (1 << limits.log_srq_entries) - 1);
    assert_eq!(attr.max_qp_rd_atom, 1 << limits.log_reads);
    assert_eq!(attr.max_qp_init_rd_atom, 1 << limits.log_reads);
    assert_eq!(u32::from(attr.max_pkeys), limits.pkeys);
    assert_eq!(attr.max_mcast_grp, limits.multicast_groups);
    assert_eq!(attr.max_mcast_qp_attach, limits.qps_per_group);
    assert_eq!(attr.queues.max_send_wqebb, 1 << limits.log_sq_blocks);
    // A request counts its units of 16 bytes in six bits.
    assert_eq!(attr.queues.max_sq_desc_sz, limits.sq_wqe_bytes.min(63 * 16));
    assert_eq!(attr.queues.max_rq_desc_sz, limits.rq_wqe_bytes);
    assert_eq!(attr.queues.bf_reg_size, 1 << config.log_bf_reg_size);
    assert_eq!(attr.completions.cqe_version, 1);
    assert_eq!(attr.hca_core_clock, u64::from(config.clock_khz));
    assert!(attr.has_atomics() && !attr.odp.supported);
    assert!(attr.page_size_cap & 4096 != 0);
    Ok(())
}

fn port_reports_link_state_and_addresses(bed: &Bed) -> Outcome {
    let bed =
        bed.configured(|config| config.ports([PortConfig::INFINIBAND, PortConfig::INFINIBAND]))?;
    let context = bed.context();
    assert_eq!(context.num_ports(), 2);
    for number in 1..=2 {
        let port = context.query_port(number)?;
        let engine = bed.simulator().fabric().lock();
        let real = engine.device(0).port(number).ok_or("no such port")?;
        assert_eq!((port.state, port.link_layer), (PortState::Active, LinkLayer::InfiniBand));
        assert!(port.is_active() && !port.grh_required);
        assert_eq!((port.lid, port.lmc, port.sm_lid), (real.lid, real.lmc, real.sm_lid));
        assert_eq!(port.active_mtu, Some(Mtu::Mtu4096));
        assert_eq!(port.gid_tbl_len as usize, real.gids.len());
        assert_eq!(usize::from(port.pkey_tbl_len), real.pkeys.len());
        assert_eq!(port.max_msg_sz, 1 << 30);
        assert!(port.mbps().is_some_and(|speed| speed >= 100_000), "{:?}", port.mbps());
    }
    bed.simulator().fabric().lock().device_mut(0).set_port_active(2, false);
    assert_eq!(context.query_port(2)?.state, PortState::Down);
    assert!(context.query_port(1)?.is_active());

    let roce = bed.configured(|config| config.ports([PortConfig::ROCE]))?;
    let port = roce.context().query_port(1)?;
    assert_eq!((port.link_layer, port.lid), (LinkLayer::Ethernet, 0));
    assert_eq!((port.active_mtu, port.max_mtu), (Some(Mtu::Mtu1024), Some(Mtu::Mtu4096)));
    Ok(())
}

fn kind(kind: engine::GidType) -> GidType {
    match kind {
        engine::GidType::Ib => GidType::InfiniBand,
        engine::GidType::RoceV1 => GidType::RoceV1,
        engine::GidType::RoceV2 => GidType::RoceV2,
    }
}

fn the_gid_table_has_every_address_and_its_type(bed: &Bed) -> Outcome {
    for ports in [
        vec![PortConfig::INFINIBAND],
        vec![PortConfig::ROCE],
        vec![PortConfig::ROCE, PortConfig::ROCE],
    ] {
        let bed = bed.configured(|config| config.ports(ports))?;
        let context = bed.context();
        let mut expected = Vec::new();
        for (port, number) in bed.simulator().fabric().lock().device(0).ports().iter().zip(1..) {
            for (index, entry) in port.gids.iter().enumerate() {
                if let Some(entry) = entry {
                    let gid = Gid::from_bytes(entry.gid);
                    expected.push((number, index as u32, gid, kind(entry.kind)));
                }
            }
        }
        let row = |e: &mlx5::GidEntry| (e.port_num, e.gid_index, e.gid, e.gid_type);
        let table = context.gid_table()?;
        assert_eq!(table.iter().map(row).collect::<Vec<_>>(), expected);
        for entry in &table {
            let single = context.query_gid(entry.port_num as u8, entry.gid_index)?;
            assert_eq!(row(&single), row(entry));
        }
    }
    Ok(())
}

fn a_gid_is_found_by_value_and_type(bed: &Bed) -> Outcome {
    let bed = bed.configured(|config| config.ports([PortConfig::ROCE]))?;
    let context = bed.context();
    for entry in context.gid_table()? {
        assert_eq!(context.find_gid(1, entry.gid, entry.gid_type)?, entry.gid_index);
        let wrong = context.find_gid(1, entry.gid, GidType::InfiniBand);
        assert_eq!(wrong.expect_err("another type").kind(), ErrorKind::NotFound);
    }
    Ok(())
}

/// The IP addresses of a device.
fn addresses(context: &mlx5::Context) -> Result<Vec<IpAddr>, mlx5::Error> {
    let mut ips: Vec<IpAddr> = context.gid_table()?.iter().map(|entry| entry.gid.ip()).collect();
    ips.sort();
    ips.dedup();
    Ok(ips)
}

fn a_device_and_its_port_are_found_by_ip_address(bed: &Bed) -> Outcome {
    let bed = bed.configured(|config| config.ports([PortConfig::ROCE, PortConfig::ROCE]))?;
    let context = bed.context();
    let ips = addresses(&context)?;
    assert!(ips.iter().any(IpAddr::is_ipv4) && ips.iter().any(IpAddr::is_ipv6), "{ips:?}");
    for ip in ips {
        let device = Device::for_ip_on(bed.simulator().kernel(), ip)?;
        assert_eq!(device.name(), context.name());
        let found = context.find_ip(ip)?;
        assert_eq!((found.gid, found.gid.ip()), (Gid::from(ip), ip));
        // RoCE v1 entries have the same address.
        assert_eq!(found.gid_type, GidType::RoceV2);
        let port = context.local_port(found.port_num as u8, Some(found.gid_index as u8))?;
        assert_eq!((port.gid, port.gid_type), (found.gid, found.gid_type));
    }
    Ok(())
}

fn of_several_devices_that_is_found_which_has_the_address(bed: &Bed) -> Outcome {
    let bed = bed.configured(|config| config.ports([PortConfig::ROCE]).devices(3))?;
    let kernel = bed.simulator().kernel();
    for device in devices_on(Arc::clone(&kernel))? {
        for ip in addresses(&device.open()?)? {
            let found = Device::for_ip_on(Arc::clone(&kernel), ip)?;
            assert_eq!(found.name(), device.name(), "{ip}");
        }
    }
    Ok(())
}

fn an_address_that_no_roce_port_has_is_not_found(bed: &Bed) -> Outcome {
    let roce = bed.configured(|config| config.ports([PortConfig::ROCE]))?;
    let ip = Ipv4Addr::new(203, 0, 113, 77);
    let error = Device::for_ip_on(roce.simulator().kernel(), ip).expect_err("no port has it");
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("203.0.113.77"), "{error}");
    let error = roce.context().find_ip(ip).expect_err("no port has it");
    assert_eq!(error.kind(), ErrorKind::NotFound);

    // A GID on InfiniBand is no IP address, although it looks like one.
    let infiniband = bed.configured(|config| config.ports([PortConfig::INFINIBAND]))?;
    let ip = infiniband.context().query_gid(1, 0)?.gid.ip();
    for result in [
        Device::for_ip_on(infiniband.simulator().kernel(), ip).map(drop),
        infiniband.context().find_ip(ip).map(drop),
    ] {
        assert_eq!(result.expect_err("it is no IP address").kind(), ErrorKind::NotFound);
    }
    Ok(())
}

fn a_port_names_its_network_interfaces(bed: &Bed) -> Outcome {
    let bed = bed
        .configured(|config| config.ports([PortConfig::ROCE, PortConfig::INFINIBAND]).devices(2))?;
    let mut all = Vec::new();
    for device in devices_on(bed.simulator().kernel())? {
        let context = device.open()?;
        let (ethernet, infiniband) = (context.net_interfaces(1)?, context.net_interfaces(2)?);
        assert_eq!((ethernet.len(), infiniband.len()), (1, 1));
        assert!(ethernet[0].starts_with("eth") && infiniband[0].starts_with("ib"));
        for entry in context.gid_table()? {
            let name = context.net_interface(&entry)?;
            let of_its_port = if entry.port_num == 1 { Some(&ethernet[0]) } else { None };
            assert_eq!(name.as_ref(), of_its_port);
        }
        all.extend(ethernet.into_iter().chain(infiniband));
        let error = context.net_interfaces(3).expect_err("there are two ports");
        assert!(error.to_string().contains("port 3"), "{error}");
    }
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 4, "each port has its own: {all:?}");
    Ok(())
}

fn the_partition_key_table_is_read_place_by_place(bed: &Bed) -> Outcome {
    let context = bed.context();
    let port = context.query_port(1)?;
    let beyond = u32::from(port.pkey_tbl_len);
    // A RoCE port has only the default key.
    let roce = port.link_layer == LinkLayer::Ethernet;
    assert!(if roce { beyond == 1 } else { beyond > 1 }, "{beyond} keys");
    assert_eq!(context.query_pkey(1, 0)?, 0xffff);
    for index in 1..beyond {
        assert_eq!(context.query_pkey(1, index)?, 0);
    }
    let error = context.query_pkey(1, beyond).expect_err("there is no such place");
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains(&beyond.to_string()), "{error}");
    Ok(())
}

fn ports_and_places_that_are_not_there_are_named(bed: &Bed) -> Outcome {
    let context = bed.context();
    let beyond = context.num_ports() as u8 + 1;
    for port in [0, beyond, 255] {
        for error in [
            context.query_port(port).err(),
            context.query_gid(port, 0).err(),
            context.query_pkey(port, 0).err(),
            context.local_port(port, None).err(),
            context.find_gid(port, Gid::default(), GidType::RoceV2).err(),
        ] {
            let error = error.ok_or("there is no such port")?;
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
            assert!(error.to_string().contains(&format!("port {port}")), "{error}");
        }
    }
    let port = bed.port();
    let places = context.query_port(port)?.gid_tbl_len;
    assert!(context.query_gid(port, places).is_err());
    assert!(context.local_port(port, Some(254)).is_err(), "an empty place");
    Ok(())
}
