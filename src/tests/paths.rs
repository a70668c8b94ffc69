use super::*;
use std::net::Ipv6Addr;

fn domain(config: SimConfig) -> (Simulator, Context, ProtectionDomain) {
    let simulator = Simulator::new(config);
    let context = open(&simulator);
    let pd = context.alloc_pd().unwrap();
    (simulator, context, pd)
}

#[test]
fn on_infiniband_a_handle_needs_no_kernel() {
    let (simulator, _context, pd) = domain(infiniband());
    let calls = simulator.calls();
    let ah = pd.create_ah(&AhAttr::infiniband(1, 3)).unwrap();
    assert_eq!(ah.vector().rlid.get(), 3);
    assert_eq!(ah.path().dlid, 3);
    ah.destroy().unwrap();
    assert_eq!(simulator.calls(), calls);
}

#[test]
fn on_roce_the_kernel_resolves_the_mac() {
    let (simulator, context, pd) = domain(roce());
    let entry = context.query_gid(1, 0).unwrap();
    let ah = pd.create_ah(&AhAttr::roce(1, entry.gid, 0)).unwrap();
    assert_ne!(ah.vector().rmac, [0; 6]);
    assert_eq!(ah.vector().rgid, entry.gid.to_bytes());
    ah.destroy().unwrap();
    drop((context, pd));
    assert_clean(&simulator);
}

#[test]
fn on_roce_v2_the_flow_label_makes_the_udp_port() {
    let (_simulator, context, pd) = domain(roce());
    let table = context.gid_table().unwrap();
    for entry in table {
        let mut route = GlobalRoute::new(entry.gid, entry.gid_index as u8);
        route.flow_label = 0x00123;
        let ah = pd.create_ah(&AhAttr::infiniband(1, 0).with_grh(route)).unwrap();
        match entry.gid_type {
            GidType::RoceV2 => assert_eq!(ah.vector().rlid.get(), 0xc123),
            _ => assert_eq!(ah.vector().rlid.get(), 0),
        }
    }
}

#[test]
fn a_path_that_cannot_be_is_refused_before_the_kernel_is_asked() {
    let (simulator, _context, pd) = domain(roce());
    let calls = simulator.calls();
    for path in [AhAttr::infiniband(1, 3), AhAttr::infiniband(2, 3), AhAttr::infiniband(0, 3)] {
        let error = pd.create_ah(&path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    }
    assert_eq!(simulator.calls(), calls);
    let unassigned: Gid = Ipv6Addr::LOCALHOST.into();
    assert!(
        pd.create_ah(&AhAttr::roce(1, unassigned, 255)).is_err(),
        "an empty place of the table"
    );
}

/// A GRH or an IPv6 header, as the device writes it before a datagram sent to `own`.
fn header(next_header: u8, own: Gid, sender: Gid) -> [u8; 40] {
    let mut bytes = [0; 40];
    bytes[0] = 0x60;
    bytes[6] = next_header;
    bytes[7] = 64;
    bytes[8..24].copy_from_slice(&sender.to_bytes());
    bytes[24..].copy_from_slice(&own.to_bytes());
    bytes
}

#[test]
fn datagram_reports_its_return_path() {
    let (_simulator, context, pd) = domain(infiniband());
    let own = context.query_gid(1, 0).unwrap().gid;
    let sender: Gid = "fe80::5".parse().unwrap();
    let local = Received { slid: 9, sl: 2, dlid_path_bits: 0, grh: None };
    let ah = pd.create_ah_from_received(1, &local).unwrap();
    assert_eq!(*ah.path(), AhAttr { sl: 2, ..AhAttr::infiniband(1, 9) });

    let bytes = header(0x1b, own, sender);
    let global = Received { grh: Some(&bytes), ..local };
    let ah = pd.create_ah_from_received(1, &global).unwrap();
    let route = ah.path().grh.unwrap();
    assert_eq!((route.dgid, route.sgid_index, route.hop_limit), (sender, 0, 64));

    let group = header(0x1b, "ff0e::1".parse().unwrap(), sender);
    let error =
        pd.create_ah_from_received(1, &Received { grh: Some(&group), ..local }).unwrap_err();
    assert!(error.to_string().contains("group"), "{error}");
    let stranger = header(0x1b, "fe80::77".parse().unwrap(), sender);
    let error =
        pd.create_ah_from_received(1, &Received { grh: Some(&stranger), ..local }).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

#[test]
fn on_roce_the_way_back_leaves_from_the_gid_that_was_met() {
    let (_simulator, context, pd) = domain(roce());
    let v2 = |entry: &GidEntry| entry.gid_type == GidType::RoceV2 && !entry.gid.is_ipv4_mapped();
    let table = context.gid_table().unwrap();
    let own = table.iter().find(|entry| v2(entry)).expect("an IPv6 address");
    let bytes = header(17, own.gid, own.gid);
    let received = Received { slid: 0, sl: 0, dlid_path_bits: 0, grh: Some(&bytes) };
    let ah = pd.create_ah_from_received(1, &received).unwrap();
    assert_eq!(u32::from(ah.path().grh.unwrap().sgid_index), own.gid_index);
}

/// An InfiniBand GID belongs to no network interface.
#[test]
fn a_gid_says_which_network_interface_it_belongs_to() {
    for (config, has) in [(infiniband(), false), (roce(), true)] {
        let (_simulator, context, _pd) = domain(config);
        let table = context.gid_table().unwrap();
        assert!(table.iter().all(|entry| entry.netdev_ifindex.is_some() == has), "{table:?}");
        assert!(table.iter().all(|entry| entry.netdev_ifindex != Some(0)));
    }
}
