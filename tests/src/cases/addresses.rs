//! Address handles: the destinations of datagrams.

use crate::prelude::*;
use mlx5::{
    AhAttr, ConnectOptions, Data, ErrorKind, Gid, GlobalRoute, OwnedCompletion as Owned, Received,
    SendWr, UdAddress,
};

pub(crate) const CASES: &[Case] = cases![
    an_infiniband_path_is_a_lid_or_a_lid_and_a_gid: INFINIBAND,
    a_roce_path_gets_the_next_hops_mac_from_the_kernel: SIMULATOR | ROCE,
    a_flow_label_chooses_the_source_port_of_roce: ROCE,
    paths_that_cannot_be_are_refused_by_name: INFINIBAND,
    ethernet_needs_a_global_route: ROCE,
    unassigned_address_is_refused_by_the_kernel: SIMULATOR | ROCE,
    an_answer_finds_its_way_back_over_infiniband: INFINIBAND,
    an_answer_finds_its_way_back_over_roce: ROCE,
    datagram_to_a_group_reports_no_return_path: INFINIBAND,
    forty_bytes_that_are_no_header_are_refused: ROCE,
    a_handle_may_go_before_its_datagram: STEP,
    a_handle_keeps_its_domain,
    handles_are_destroyed_one_by_one: SIMULATOR | ROCE,
];

/// Bit 30: there is a GRH.
const GRH: u32 = 1 << 30;

fn an_infiniband_path_is_a_lid_or_a_lid_and_a_gid(bed: &Bed) -> Outcome {
    let context = bed.context();
    let pd = context.alloc_pd()?;
    let path = AhAttr { sl: 3, src_path_bits: 1, ..AhAttr::infiniband(bed.port(), 0x1234) };
    let ah = pd.create_ah(&path)?;
    assert_eq!(ah.path(), &path);
    assert_eq!((ah.vector().rlid.get(), ah.vector().stat_rate_sl), (0x1234, 3));
    assert_eq!((ah.vector().fl_mlid, ah.vector().grh_gid_fl.get()), (1, 0));
    let gid = context.query_gid(bed.port(), 0)?.gid;
    let route = GlobalRoute { flow_label: 0x77, traffic_class: 5, ..GlobalRoute::new(gid, 0) };
    let global = pd.create_ah(&path.with_grh(route))?;
    assert_eq!(global.vector().grh_gid_fl.get(), GRH | 0x77);
    assert_eq!((global.vector().hop_limit, global.vector().tclass), (64, 5));
    assert_eq!(global.vector().rgid, gid.to_bytes());
    Ok(())
}

fn a_roce_path_gets_the_next_hops_mac_from_the_kernel(bed: &Bed) -> Outcome {
    let context = bed.context();
    let pd = context.alloc_pd()?;
    for entry in context.gid_table()? {
        let ah = pd.create_ah(&AhAttr::roce(bed.port(), entry.gid, entry.gid_index as u8))?;
        let engine = bed.simulator().fabric().lock();
        let mac = engine.resolve_mac(&entry.gid.to_bytes()).ok_or("no port has it")?;
        assert_eq!(ah.vector().rmac, mac);
        assert_eq!(ah.vector().grh_gid_fl.get() >> 20, entry.gid_index, "and no GRH bit");
        assert_eq!(ah.vector().rgid, entry.gid.to_bytes());
        let v2 = entry.gid_type == mlx5::GidType::RoceV2;
        assert_eq!(ah.vector().rlid.get() >= 0xc000, v2, "a source port, of version 2 alone");
    }
    Ok(())
}

fn a_flow_label_chooses_the_source_port_of_roce(bed: &Bed) -> Outcome {
    let context = bed.context();
    let pd = context.alloc_pd()?;
    let port = context.local_port(bed.port(), None)?;
    assert_eq!(port.gid_type, mlx5::GidType::RoceV2);
    let source = |flow_label| -> Result<u16, Failed> {
        let route = GlobalRoute { flow_label, ..GlobalRoute::new(port.gid, port.gid_index) };
        let path = AhAttr::roce(bed.port(), port.gid, port.gid_index).with_grh(route);
        Ok(pd.create_ah(&path)?.vector().rlid.get())
    };
    assert_eq!(source(0x12345)?, source(0x12345)?);
    assert_ne!(source(0x12345)?, source(0x12346)?);
    for flow_label in [1, 0x3fff, 0x4000, 0xf_ffff] {
        assert!(source(flow_label)? >= 0xc000);
    }
    Ok(())
}

#[track_caller]
fn invalid<T>(result: Result<T, mlx5::Error>, hint: &str) {
    let error = result.err().expect("refused");
    assert_eq!((error.kind(), error.errno()), (ErrorKind::InvalidArgument, None), "{error}");
    assert!(error.to_string().contains(hint), "{error}");
}

fn paths_that_cannot_be_are_refused_by_name(bed: &Bed) -> Outcome {
    let pd = bed.context().alloc_pd()?;
    let path = AhAttr::infiniband(bed.port(), 5);
    let route = GlobalRoute::new("fe80::1".parse().map_err(|_| "an address")?, 0);
    invalid(pd.create_ah(&AhAttr { port_num: 9, ..path }), "port 9");
    invalid(pd.create_ah(&AhAttr { dlid: 0, ..path }), "neither a LID nor a GID");
    invalid(pd.create_ah(&AhAttr { sl: 16, ..path }), "service level");
    invalid(pd.create_ah(&AhAttr { src_path_bits: 128, ..path }), "path bits");
    let label = GlobalRoute { flow_label: 1 << 20, ..route };
    invalid(pd.create_ah(&path.with_grh(label)), "flow label");
    let nowhere = GlobalRoute { dgid: Gid::default(), ..route };
    invalid(pd.create_ah(&path.with_grh(nowhere)), "GID is zero");
    Ok(())
}

fn ethernet_needs_a_global_route(bed: &Bed) -> Outcome {
    let pd = bed.context().alloc_pd()?;
    invalid(pd.create_ah(&AhAttr::infiniband(bed.port(), 5)), "Ethernet");
    Ok(())
}

fn unassigned_address_is_refused_by_the_kernel(bed: &Bed) -> Outcome {
    let pd = bed.context().alloc_pd()?;
    let unassigned: Gid = "::ffff:10.99.99.99".parse().map_err(|_| "an address")?;
    let error = pd.create_ah(&AhAttr::roce(bed.port(), unassigned, 3)).expect_err("no port has it");
    assert_eq!(error.errno(), Some(mlx5::Errno::EHOSTUNREACH));
    let own = pd.context().query_gid(bed.port(), 0)?.gid;
    assert!(pd.create_ah(&AhAttr::roce(bed.port(), own, 200)).is_err(), "an empty place");
    Ok(())
}

/// The facts that a receiver has about the sender of a datagram.
fn source<'a>(completion: &Owned, header: &'a [u8; 40]) -> Received<'a> {
    let completion = completion.as_completion();
    Received {
        slid: completion.slid().unwrap_or_default(),
        sl: completion.service_level().unwrap_or_default(),
        dlid_path_bits: completion.dlid_path_bits().unwrap_or_default(),
        grh: completion.has_grh().unwrap_or_default().then_some(header),
    }
}

/// Sends a datagram to `peer` along `path`.
fn send(from: &mut End<Ud>, path: &AhAttr, peer: (u32, u32), seed: u64) -> Outcome {
    let ah = from.pd.create_ah(path)?;
    fill(&from.mr, 0, seed, 64)?;
    let sges = [from.mr.sge(0..64)?];
    let address = Some(UdAddress { vector: ah.vector(), qp_num: peer.0, qkey: peer.1 });
    let operation = mlx5::Operation::Send;
    let (data, flags) = (Data::Sges(&sges), SendFlags::SIGNALED);
    from.qp.post_send(&[SendWr { wr_id: seed, flags, operation, data, address, ..SendWr::default() }])?;
    Ok(())
}

/// Sends a datagram along `path`, and an answer back the same way.
fn there_and_back(bed: &Bed, pair: &mut Pair<Ud>, path: &AhAttr) -> Outcome {
    let Pair { a, b } = pair;
    let qkey = ConnectOptions::default().qkey;
    b.recv(1, 0..104);
    send(a, path, (b.qp.qp_num(), qkey), 10)?;
    bed.poll_good(&mut a.send_cq, 1);
    let arrived = bed.poll_good(b.recv_cq(), 1)[0];
    verify(&b.mr, 40, 10, 64);
    let mut header = [0; 40];
    b.mr.read_at(0, &mut header)?;
    let received = source(&arrived, &header);
    assert_eq!(received.grh.is_some(), path.grh.is_some());
    let back = b.pd.create_ah_from_received(bed.port(), &received)?;
    if let (Some(there), Some(back)) = (path.grh, back.path().grh) {
        assert_eq!(back.dgid, a.context.query_gid(bed.port(), there.sgid_index.into())?.gid);
        assert_eq!(back.traffic_class, there.traffic_class);
    }
    let sender = arrived.as_completion().src_qp().ok_or("a datagram has a sender")?;
    assert_eq!(sender, a.qp.qp_num());
    a.recv(2, 0..104);
    let path = *back.path();
    drop(back);
    send(b, &path, (sender, qkey), 20)?;
    bed.poll_good(&mut b.send_cq, 1);
    bed.poll_good(a.recv_cq(), 1);
    verify(&a.mr, 40, 20, 64);
    Ok(())
}

fn an_answer_finds_its_way_back_over_infiniband(bed: &Bed) -> Outcome {
    let mut pair = bed.pair::<Ud>(&PairOptions::default())?;
    let by_lid = AhAttr { sl: 2, ..AhAttr::infiniband(bed.port(), pair.b.port.lid) };
    there_and_back(bed, &mut pair, &by_lid)?;
    let route = GlobalRoute {
        traffic_class: 9,
        flow_label: 0x321,
        ..GlobalRoute::new(pair.b.port.gid, pair.a.port.gid_index)
    };
    there_and_back(bed, &mut pair, &by_lid.with_grh(route))
}

fn an_answer_finds_its_way_back_over_roce(bed: &Bed) -> Outcome {
    let mut pair = bed.pair::<Ud>(&PairOptions::default())?;
    let table = pair.b.context.gid_table()?;
    let one_device = pair.a.context.name() == pair.b.context.name();
    for entry in table.iter().filter(|entry| entry.port_num == u32::from(bed.port())) {
        // A link-local address of another device takes neighbour discovery, so the network
        // interfaces of both devices must reach each other.
        let link_local = entry.gid.to_string().starts_with("fe80:");
        if link_local && !one_device {
            continue;
        }
        // Both versions, with link-local and IPv4 addresses.
        let path = AhAttr::roce(bed.port(), entry.gid, entry.gid_index as u8);
        let route =
            GlobalRoute { traffic_class: 4, ..GlobalRoute::new(entry.gid, entry.gid_index as u8) };
        there_and_back(bed, &mut pair, &path.with_grh(route))?;
    }
    Ok(())
}

fn datagram_to_a_group_reports_no_return_path(bed: &Bed) -> Outcome {
    let mut pair = bed.pair::<Ud>(&PairOptions::default())?;
    let group: Gid = "ff12::77".parse().map_err(|_| "an address")?;
    pair.b.qp.attach_mcast(group, 0xc077)?;
    pair.b.recv(1, 0..104);
    let route = GlobalRoute::new(group, pair.a.port.gid_index);
    let path = AhAttr::infiniband(bed.port(), 0xc077).with_grh(route);
    send(&mut pair.a, &path, (0xff_ffff, ConnectOptions::default().qkey), 30)?;
    bed.poll_good(&mut pair.a.send_cq, 1);
    let arrived = bed.poll_good(pair.b.recv_cq(), 1)[0];
    verify(&pair.b.mr, 40, 30, 64);
    let mut header = [0; 40];
    pair.b.mr.read_at(0, &mut header)?;
    let back = pair.b.pd.create_ah_from_received(bed.port(), &source(&arrived, &header));
    invalid(back, "group");
    pair.b.qp.detach_mcast(group, 0xc077)?;
    Ok(())
}

fn forty_bytes_that_are_no_header_are_refused(bed: &Bed) -> Outcome {
    let pd = bed.context().alloc_pd()?;
    for seed in 0..50 {
        let mut header: [u8; 40] = pattern(seed, 40).try_into().map_err(|_| "forty bytes")?;
        // These bytes start neither an IPv6 header at the front nor an IPv4 header at the end.
        (header[0], header[20]) = (0x10, 0x20);
        let received = Received { slid: 0, sl: 0, dlid_path_bits: 0, grh: Some(&header) };
        invalid(pd.create_ah_from_received(bed.port(), &received), "neither");
    }
    Ok(())
}

fn a_handle_may_go_before_its_datagram(bed: &Bed) -> Outcome {
    for port in [PortConfig::INFINIBAND, PortConfig::ROCE] {
        let bed = bed.configured(|config| config.ports([port]))?;
        let mut pair = bed.pair::<Ud>(&PairOptions::default())?;
        pair.b.recv(1, 0..104);
        fill(&pair.a.mr, 0, 3, 64)?;
        let sges = [pair.a.mr.sge(0..64)?];
        pair.a.post(Form::Typed, Post::new(Op::Send, 1, Data::Sges(&sges)))?;
        let peer = pair.a.peer.take().ok_or("a datagram end has a peer")?;
        peer.ah.destroy()?;
        bed.poll_good(&mut pair.a.send_cq, 1);
        bed.poll_good(pair.b.recv_cq(), 1);
        verify(&pair.b.mr, 40, 3, 64);
    }
    Ok(())
}

fn a_handle_keeps_its_domain(bed: &Bed) -> Outcome {
    let end = bed.end::<Ud>(&PairOptions::default())?;
    let pd = end.context.alloc_pd()?;
    let own = end.endpoint(&PairOptions::default());
    let ah = pd.create_ah_to(&end.port, &own, &ConnectOptions::default())?;
    let (pd, error) = pd.destroy().expect_err("it has a handle").into_parts();
    assert_eq!(error.kind(), ErrorKind::Busy);
    assert_eq!(ah.pd(), &pd);
    ah.destroy()?;
    pd.destroy()?;
    Ok(())
}

fn handles_are_destroyed_one_by_one(bed: &Bed) -> Outcome {
    let end = bed.end::<Ud>(&PairOptions::default())?;
    let own = end.endpoint(&PairOptions::default());
    let mut handles = Vec::new();
    for _ in 0..20 {
        handles.push(end.pd.create_ah_to(&end.port, &own, &ConnectOptions::default())?);
    }
    while let Some(handle) = handles.pop() {
        bed.simulator().fail_call(1, mlx5::Errno::EBUSY);
        let (handle, error) = handle.destroy().expect_err("the kernel refuses").into_parts();
        assert_eq!(error.kind(), ErrorKind::Busy);
        handle.destroy()?;
    }
    Ok(())
}
