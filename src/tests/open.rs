use super::*;
use crate::mkey::SignatureCaps;
use crate::testing::Altered;
use crate::transport::Rc;
use mlx5_sim::Model;
use mlx5_uapi::ioctl::{attr, method};
use mlx5_uapi::mlx5::{AllocUcontextResp, UcontextRespMask};
use std::mem::offset_of;
use std::sync::Arc;

#[test]
fn device_is_listed_with_its_attributes_from_sysfs() {
    let simulator = Simulator::new(infiniband().model(Model::ConnectX6).devices(2));
    let devices = devices_on(simulator.kernel()).unwrap();
    let names: Vec<&str> = devices.iter().map(Device::name).collect();
    assert_eq!(names, ["mlx5_0", "mlx5_1"]);
    let first = &devices[0];
    assert_eq!(first.uverbs(), "uverbs0");
    assert_eq!(first.part(), Some("ConnectX-6"));
    assert_eq!(first.node_type(), NodeType::ChannelAdapter);
    assert_eq!(first.pci().unwrap().address, "0000:03:00.0");
    assert_ne!(first.guid(), devices[1].guid());
    assert!(!first.fw_version().is_empty() && !first.board_id().is_empty());
}

#[test]
fn a_context_knows_its_device() {
    let simulator = Simulator::new(infiniband().devices(2));
    let context = devices_on(simulator.kernel()).unwrap()[1].open().unwrap();
    let device = context.device();
    assert_eq!((device.name(), device.guid()), ("mlx5_1", context.query_device().node_guid));
    // It is opened independently of the context, and reads the kernel's present answer.
    let again = device.open().unwrap();
    assert_ne!(again, context);
    assert_eq!(again.name(), "mlx5_1");
    assert_eq!(device.hw_counter(1, "local_ack_timeout_err"), Some(0));
    drop((context, again));
    assert_eq!(simulator.violations(), []);
}

#[test]
fn a_context_says_what_the_device_can() {
    let simulator = Simulator::new(infiniband().ports([PortConfig::INFINIBAND; 2]));
    let context = open(&simulator);
    assert_eq!((context.name(), context.num_ports()), ("mlx5_0", 2));
    assert!(context.has_devx() && context.num_comp_vectors() > 0);
    let attr = context.query_device();
    assert_eq!(attr.node_guid, device(&simulator).guid());
    assert_eq!(attr.vendor_id, 0x2c9, "the OUI of Mellanox");
    assert_eq!(attr.fw_ver, device(&simulator).fw_version());
    assert_eq!(attr.queues.bf_reg_size, 512);
    assert_eq!(attr.completions.cqe_version, 1);
    assert!(attr.max_qp > 0 && attr.max_cqe > 0 && attr.max_sge > 0);
}

#[test]
fn ports_gids_and_pkeys_can_be_asked_for() {
    let simulator = Simulator::new(infiniband());
    let context = open(&simulator);
    let port = context.query_port(1).unwrap();
    assert!(port.is_active());
    assert_eq!(port.link_layer, LinkLayer::InfiniBand);
    assert_ne!(port.lid, 0);
    let table = context.gid_table().unwrap();
    let first = context.query_gid(1, 0).unwrap();
    assert_eq!(table.iter().find(|entry| entry.gid_index == 0), Some(&first));
    assert_eq!(context.find_gid(1, first.gid, first.gid_type), Ok(0));
    assert_eq!(context.query_pkey(1, 0), Ok(0xffff));

    let missing = Gid::from_bytes([7; 16]);
    let error = context.find_gid(1, missing, GidType::InfiniBand).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert_eq!(context.query_pkey(1, 60_000).unwrap_err().kind(), ErrorKind::NotFound);
    for error in [
        context.query_port(0).map(drop).unwrap_err(),
        context.query_port(2).map(drop).unwrap_err(),
        context.query_gid(2, 0).map(drop).unwrap_err(),
        context.query_pkey(2, 0).map(drop).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains("has port 1 alone"), "{error}");
    }
}

#[test]
fn devx_is_used_as_asked() {
    let with = Simulator::new(infiniband());
    let without = Simulator::new(infiniband().devx(false));
    let ask = |simulator: &Simulator, devx| {
        device(simulator).open_with(&OpenOptions::new().devx(devx)).map(|c| c.has_devx())
    };
    assert_eq!(ask(&with, Devx::Auto), Ok(true));
    assert_eq!(ask(&with, Devx::Require), Ok(true));
    assert_eq!(ask(&with, Devx::Off), Ok(false));
    assert_eq!(ask(&without, Devx::Auto), Ok(false));
    let error = ask(&without, Devx::Require).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoDevx);
}

#[test]
fn a_device_without_user_indexes_is_refused_with_the_reason() {
    let simulator = Simulator::new(infiniband().cqe_version(0));
    let error = device(&simulator).open().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotSupported);
    assert!(error.to_string().contains("CQE version 0"), "{error}");
    assert_clean(&simulator);
}

#[test]
fn objects_may_be_dropped_in_any_order() {
    let simulator = Simulator::new(roce());
    let context = open(&simulator);
    let pd = context.alloc_pd().unwrap();
    let region = pd.allocate(100).unwrap();
    let channel = context.create_comp_channel().unwrap();
    let events = context.async_events();
    let gid = context.query_gid(1, 0).unwrap().gid;
    let ah = pd.create_ah(&AhAttr::roce(1, gid, 0)).unwrap();
    drop(context);
    drop(pd);
    drop(channel);
    drop(region);
    drop(ah);
    assert_ne!(simulator.object_counts(0), Simulator::new(roce()).object_counts(0));
    drop(events);
    assert_clean(&simulator);
}

#[test]
fn domain_in_use_is_not_destroyed() {
    let simulator = Simulator::new(infiniband());
    let context = open(&simulator);
    let pd = context.alloc_pd().unwrap();
    let region = pd.allocate(100).unwrap();
    let (pd, error) = pd.destroy().unwrap_err().into_parts();
    assert_eq!(error.kind(), ErrorKind::Busy);
    region.deregister().unwrap();
    pd.destroy().unwrap();
}

#[test]
fn a_register_that_was_given_back_is_used_again() {
    let simulator = Simulator::new(infiniband());
    let options = OpenOptions::new().max_blueflame_pages(1);
    let context = device(&simulator).open_with(&options).unwrap();
    let acquire = |choice| context.inner.uars.acquire(choice).unwrap();
    let own = acquire(DoorbellChoice::Auto);
    assert_eq!(own.mode(), DoorbellMode::BlueFlame);
    assert_eq!(acquire(DoorbellChoice::Auto).mode(), DoorbellMode::SharedBlueFlame);
    let error = context.inner.uars.acquire(DoorbellChoice::BlueFlame).map(drop).unwrap_err();
    assert_eq!((error.operation(), error.kind()), ("alloc_uar", ErrorKind::ResourceLimit));
    assert!(own.register().blueflame_blocks() > 0);
    let page = own.page_id();
    drop(own);
    let again = acquire(DoorbellChoice::BlueFlame);
    assert_eq!((again.mode(), again.page_id()), (DoorbellMode::BlueFlame, page));
    let plain = acquire(DoorbellChoice::Doorbell);
    assert_eq!(plain.mode(), DoorbellMode::Doorbell);
    assert_eq!(plain.register().blueflame_blocks(), 0);
    assert_eq!(plain.page_id(), context.inner.uars.cq().page_id);
}

#[test]
fn without_blueflame_queues_ring_plain_doorbells() {
    let without = Simulator::new(infiniband().blueflame(false));
    let with = Simulator::new(infiniband());
    let contexts =
        [open(&without), device(&with).open_with(&OpenOptions::new().blueflame(false)).unwrap()];
    for context in contexts {
        let uar = context.inner.uars.acquire(DoorbellChoice::Auto).unwrap();
        assert_eq!(uar.mode(), DoorbellMode::Doorbell);
    }
}

/// Kernels before 5.10 lack QUERY_GID_ENTRY: a device would open, and the first RoCE path would
/// fail.
#[test]
fn a_kernel_that_is_too_old_is_refused_when_a_device_is_opened() {
    let simulator = Simulator::new(roce());
    let kernel = Altered::new(simulator.kernel(), |call| match call.method {
        method::QUERY_GID_ENTRY => Err(Errno::EPROTONOSUPPORT),
        _ => call.pass(),
    });
    let error = devices_on(kernel).unwrap()[0].open().unwrap_err();
    assert_eq!((error.kind(), error.operation()), (ErrorKind::KernelTooOld, "open_device"));
    assert!(error.to_string().contains(&format!("Linux {OLDEST_KERNEL}")), "{error}");
    assert_clean(&simulator);
}

/// Opens a context on a kernel whose driver does not report `what`.
fn without(simulator: &Simulator, what: UcontextRespMask) -> Context {
    let kernel = Altered::new(simulator.kernel(), move |call| {
        call.pass()?;
        if call.method == method::GET_CONTEXT {
            let answer = call.output(attr::uhw::OUT);
            let mask = &mut answer[offset_of!(AllocUcontextResp, comp_mask)..][..4];
            let reported_bits = u32::from_ne_bytes(mask.try_into().expect("four bytes"));
            mask.copy_from_slice(&(reported_bits & !what.bits()).to_ne_bytes());
        }
        Ok(())
    });
    devices_on(kernel).unwrap()[0].open().unwrap()
}

fn pipelined(context: &Context) -> Result<(), Error> {
    let pd = context.alloc_pd()?;
    let cq = context.create_cq(4).build()?;
    pd.create_qp::<Rc>(&cq, &cq).signature_pipelining().build().map(drop)
}

#[test]
fn error_names_the_kernel_when_the_device_is_capable() {
    let simulator = Simulator::new(infiniband());
    assert_eq!(pipelined(&open(&simulator)), Ok(()));
    let old = without(&simulator, UcontextRespMask::SQD2RTS);
    let error = pipelined(&old).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotSupported);
    let text = error.to_string();
    assert!(text.contains("the kernel") && text.contains("5.13"), "{text}");
    assert!(!text.contains("the device"), "{text}");
    assert!(!old.signature_caps().unwrap().contains(SignatureCaps::PIPELINING));

    let update =
        |context: &Context| context.alloc_pd()?.create_mkey(4).update_tag().build().map(drop);
    assert_eq!(update(&open(&simulator)), Ok(()));
    let error = update(&without(&simulator, UcontextRespMask::MKEY_UPDATE_TAG)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotSupported);
    let text = error.to_string();
    assert!(text.contains("the kernel") && !text.contains("the device"), "{text}");
}

#[test]
fn operation_without_devx_is_refused_by_its_name() {
    let simulator = Simulator::new(infiniband().devx(false));
    let context = open(&simulator);
    let pd = context.alloc_pd().unwrap();
    let error = pipelined(&context).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoDevx);
    assert!(error.operation().starts_with("create_qp"), "{error}");
    assert!(error.to_string().contains("signature pipelining"), "{error}");
    for key in
        [pd.create_mkey(4), pd.create_mkey(4).block_signature(), pd.create_mkey(4).update_tag()]
    {
        let error = key.build().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoDevx, "{error}");
        assert!(error.operation().starts_with("create_mkey"), "{error}");
    }
}

#[test]
fn a_device_is_closed_once_nothing_of_it_is_left() {
    let simulator = Simulator::new(infiniband());
    let context = open(&simulator);
    // SAFETY: the file is not used.
    let file = Arc::downgrade(unsafe { context.device_file() });
    let pd = context.alloc_pd().unwrap();
    let context = context.close().unwrap_err();
    assert!(file.upgrade().is_some() && context.query_port(1).is_ok());
    drop(pd);
    context.close().unwrap();
    assert!(file.upgrade().is_none());
}
