//! Datagrams: addresses, headers, groups.

use crate::prelude::*;
use mlx5::{AhAttr, ConnectOptions, Data, Gid, GlobalRoute, LinkLayer, Received, mtu_bytes};

pub(crate) const CASES: &[Case] = cases![
    without_a_global_route_the_first_forty_bytes_are_left_free: INFINIBAND,
    with_a_global_route_the_first_forty_bytes_hold_it: INFINIBAND,
    on_ethernet_the_first_forty_bytes_end_with_the_ip_header: ROCE,
    a_receiver_answers_by_what_it_received_on_infiniband: INFINIBAND,
    a_receiver_answers_by_what_it_received_on_ethernet: ROCE,
    a_datagram_with_another_qkey_is_not_received,
    datagram_without_receiver_is_sent_and_lost,
    a_datagram_without_a_receive_is_lost,
    a_datagram_longer_than_the_mtu_fails_at_its_sender,
    an_address_handle_may_go_once_the_request_is_posted,
    one_sender_reaches_many_receivers,
    a_group_on_infiniband_receives_what_is_sent_to_it: INFINIBAND,
    a_group_on_ethernet_receives_what_is_sent_to_it: ROCE,
    queue_pair_that_left_a_group_receives_nothing_more: INFINIBAND,
    a_gid_that_names_no_group_is_refused,
];

/// The connect options of a path with a global route and distinctive values.
fn colourful() -> ConnectOptions {
    ConnectOptions::default().traffic_class(0x5a).flow_label(0xabcde).hop_limit(33)
}

/// Sends one datagram from `a` to `b`, and returns the 40 bytes before it.
fn send_one(bed: &Bed, a: &mut End<Ud>, b: &mut End<Ud>) -> Result<[u8; 40], Failed> {
    b.mr.write_at(0, &[0xaa; 128])?;
    b.recv(1, 0..128);
    a.post(Form::Typed, Post::new(Op::Send, 2, Data::Inline(&[b"datagram"])))?;
    bed.poll_good(&mut a.send_cq, 1);
    bed.until("a datagram", || {
        let mut byte = [0];
        b.mr.read_at(40, &mut byte).is_ok() && byte != [0xaa]
    });
    crate::pattern::expect_bytes(&b.mr, 40, b"datagram");
    let mut header = [0; 40];
    b.mr.read_at(0, &mut header)?;
    Ok(header)
}

fn without_a_global_route_the_first_forty_bytes_are_left_free(bed: &Bed) -> Outcome {
    let Pair { mut a, mut b } = bed.pair::<Ud>(&PairOptions::default())?;
    if a.port.grh_required {
        return Err("the port has a global route before every datagram".into());
    }
    send_one(bed, &mut a, &mut b)?;
    let received = bed.poll_good(b.recv_cq(), 1)[0];
    let received = received.as_completion();
    assert_eq!(received.has_grh(), Some(false));
    assert_eq!(received.byte_len(), Some(48));
    assert_eq!(received.slid(), Some(a.port.lid));
    Ok(())
}

fn with_a_global_route_the_first_forty_bytes_hold_it(bed: &Bed) -> Outcome {
    let Pair { mut a, mut b } = bed.pair::<Ud>(&PairOptions::default())?;
    let route = GlobalRoute {
        dgid: b.port.gid,
        flow_label: 0xabcde,
        sgid_index: a.port.gid_index,
        hop_limit: 33,
        traffic_class: 0x5a,
    };
    let path = AhAttr::infiniband(a.port.port_num, b.port.lid).with_grh(route);
    a.peer.as_mut().ok_or("a peer")?.ah = a.pd.create_ah(&path)?;
    let header = send_one(bed, &mut a, &mut b)?;
    let received = bed.poll_good(b.recv_cq(), 1)[0];
    assert_eq!(received.as_completion().has_grh(), Some(true));
    assert_eq!(header[..4], (6_u32 << 28 | 0x5a << 20 | 0xabcde).to_be_bytes());
    assert_eq!(header[6], 0x1b);
    assert_eq!(header[7], 33);
    assert_eq!(header[8..24], a.port.gid.to_bytes());
    assert_eq!(header[24..], b.port.gid.to_bytes());
    Ok(())
}

fn on_ethernet_the_first_forty_bytes_end_with_the_ip_header(bed: &Bed) -> Outcome {
    let options = PairOptions::default().connect(Some(colourful()));
    let Pair { mut a, mut b } = bed.pair::<Ud>(&options)?;
    let header = send_one(bed, &mut a, &mut b)?;
    let received = bed.poll_good(b.recv_cq(), 1)[0];
    assert_eq!(received.as_completion().has_grh(), Some(true));
    if let (Some(from), Some(to)) = (a.port.gid.ipv4(), b.port.gid.ipv4()) {
        assert_eq!(header[20], 0x45);
        assert_eq!(header[21], 0x5a);
        assert_eq!(header[28], 33);
        assert_eq!(header[32..36], from.octets());
        assert_eq!(header[36..], to.octets());
    } else {
        assert_eq!(header[0] >> 4, 6);
        assert_eq!(header[8..24], a.port.gid.to_bytes());
        assert_eq!(header[24..], b.port.gid.to_bytes());
    }
    Ok(())
}

fn answers(bed: &Bed) -> Outcome {
    let Pair { mut a, mut b } = bed.pair::<Ud>(&PairOptions::default())?;
    let header = send_one(bed, &mut a, &mut b)?;
    let received = bed.poll_good(b.recv_cq(), 1)[0];
    let received = received.as_completion();
    let known = Received {
        slid: received.slid().ok_or("a source LID")?,
        sl: if b.port.link_layer == LinkLayer::Ethernet {
            0
        } else {
            received.service_level().ok_or("a service level")?
        },
        dlid_path_bits: received.dlid_path_bits().ok_or("path bits")?,
        grh: (received.has_grh() == Some(true)).then_some(&header),
    };
    let peer = b.peer.as_mut().ok_or("a peer")?;
    peer.ah = b.pd.create_ah_from_received(b.port.port_num, &known)?;
    peer.qp_num = received.src_qp().ok_or("a source")?;
    send_one(bed, &mut b, &mut a)?;
    assert_eq!(bed.poll_good(a.recv_cq(), 1)[0].as_completion().src_qp(), Some(b.qp.qp_num()));
    Ok(())
}

fn a_receiver_answers_by_what_it_received_on_infiniband(bed: &Bed) -> Outcome {
    answers(bed)
}

fn a_receiver_answers_by_what_it_received_on_ethernet(bed: &Bed) -> Outcome {
    answers(bed)
}

fn a_datagram_with_another_qkey_is_not_received(bed: &Bed) -> Outcome {
    let Pair { mut a, mut b } = bed.pair::<Ud>(&PairOptions::default())?;
    b.recv(1, 0..128);
    let right = a.peer.as_mut().ok_or("a peer")?;
    right.qkey ^= 1;
    a.post(Form::Typed, Post::new(Op::Send, 2, Data::Inline(&[b"wrong"])))?;
    bed.poll_good(&mut a.send_cq, 1);
    bed.nothing(b.recv_cq());
    a.peer.as_mut().ok_or("a peer")?.qkey ^= 1;
    a.post(Form::List, Post::new(Op::Send, 3, Data::Inline(&[b"right"])))?;
    bed.poll_good(b.recv_cq(), 1);
    crate::pattern::expect_bytes(&b.mr, 40, b"right");
    Ok(())
}

fn datagram_without_receiver_is_sent_and_lost(bed: &Bed) -> Outcome {
    let Pair { mut a, mut b } = bed.pair::<Ud>(&PairOptions::default())?;
    b.recv(1, 0..128);
    let peer = a.peer.as_mut().ok_or("a peer")?;
    peer.qp_num = 0xabcdef;
    for form in Form::ALL {
        a.post(form, Post::new(Op::Send, 2, Data::Inline(&[b"hello?"])))?;
        bed.poll_good(&mut a.send_cq, 1);
    }
    bed.nothing(b.recv_cq());
    Ok(())
}

fn a_datagram_without_a_receive_is_lost(bed: &Bed) -> Outcome {
    let Pair { mut a, mut b } = bed.pair::<Ud>(&PairOptions::default())?;
    a.post(Form::Typed, Post::new(Op::Send, 1, Data::Inline(&[b"too early"])))?;
    bed.poll_good(&mut a.send_cq, 1);
    bed.settle();
    b.recv(2, 0..128);
    bed.nothing(b.recv_cq());
    a.post(Form::Typed, Post::new(Op::Send, 3, Data::Inline(&[b"in time"])))?;
    bed.poll_good(b.recv_cq(), 1);
    crate::pattern::expect_bytes(&b.mr, 40, b"in time");
    Ok(())
}

fn a_datagram_longer_than_the_mtu_fails_at_its_sender(bed: &Bed) -> Outcome {
    let Pair { mut a, mut b } = bed.pair::<Ud>(&PairOptions::default())?;
    let mtu = mtu_bytes(a.port.active_mtu) as usize;
    b.recv(1, 0..mtu + 128);
    let sges = [a.mr.sge(0..mtu + 1)?];
    a.post(Form::Typed, Post::new(Op::Send, 2, Data::Sges(&sges)))?;
    let failed = bed.poll_one(&mut a.send_cq);
    assert_eq!(syndrome(&failed), Some(Syndrome::LocalLength));
    bed.nothing(b.recv_cq());
    Ok(())
}

fn an_address_handle_may_go_once_the_request_is_posted(bed: &Bed) -> Outcome {
    let Pair { mut a, mut b } = bed.pair::<Ud>(&PairOptions::default())?;
    let remote = b.endpoint(&PairOptions::default());
    for n in 0..20 {
        b.recv(n, 0..128);
        let ah = a.pd.create_ah_to(&a.port, &remote, &ConnectOptions::default())?;
        a.peer.as_mut().ok_or("a peer")?.ah = ah;
        a.post(Form::ALL[n as usize % 2], Post::new(Op::Send, n, Data::Inline(&[b"bye"])))?;
        let ah = a.pd.create_ah_to(&a.port, &remote, &ConnectOptions::default())?;
        std::mem::replace(&mut a.peer.as_mut().ok_or("a peer")?.ah, ah).destroy()?;
        bed.poll_good(&mut a.send_cq, 1);
        assert_eq!(wr_ids(&bed.poll_good(b.recv_cq(), 1)), [n]);
    }
    Ok(())
}

fn one_sender_reaches_many_receivers(bed: &Bed) -> Outcome {
    let options = PairOptions::default();
    let Pair { mut a, b } = bed.pair::<Ud>(&options)?;
    let mut receivers = vec![b];
    for _ in 0..9 {
        let mut more = bed.end::<Ud>(&options)?;
        let to = a.endpoint(&options);
        Ud::wire(&mut more, &to, &options)?;
        receivers.push(more);
    }
    for receiver in &mut receivers {
        receiver.recv(1, 0..128);
    }
    // One batch, ten addresses.
    let addresses: Vec<_> = receivers
        .iter()
        .map(|to| a.pd.create_ah_to(&a.port, &to.endpoint(&options), &ConnectOptions::default()))
        .collect::<Result<_, _>>()?;
    let mut batch = a.qp.wr_start();
    for (n, (to, ah)) in receivers.iter().zip(&addresses).enumerate() {
        let request = batch.wr(n as u64, SendFlags::SIGNALED).send();
        let request = request.ud_addr(ah.vector(), to.qp.qp_num(), 0x1111_1111);
        request.inline_data(&[n as u8; 16]);
    }
    batch.complete()?;
    drop(addresses);
    let done = bed.poll_good(&mut a.send_cq, 10);
    assert!(wr_ids(&done).into_iter().eq(0..10));
    for (n, receiver) in receivers.iter_mut().enumerate() {
        bed.poll_good(receiver.recv_cq(), 1);
        crate::pattern::expect_bytes(&receiver.mr, 40, &[n as u8; 16]);
    }
    Ok(())
}

/// The number by which a group is addressed.
const MULTICAST_QPN: u32 = 0xff_ffff;

/// Makes `a` send to `group`, at multicast LID `mlid` on InfiniBand.
fn address_group(a: &mut End<Ud>, group: Gid, mlid: u16) -> Outcome {
    let dlid = if a.port.link_layer == LinkLayer::Ethernet { 0 } else { mlid };
    let path = AhAttr::infiniband(a.port.port_num, dlid)
        .with_grh(GlobalRoute::new(group, a.port.gid_index));
    let ah = a.pd.create_ah(&path)?;
    let peer = a.peer.as_mut().ok_or("a peer")?;
    peer.ah = ah;
    peer.qp_num = MULTICAST_QPN;
    Ok(())
}

fn group(bed: &Bed, group: &str, mlid: u16) -> Outcome {
    let group: Gid = group.parse().map_err(|_| "a GID")?;
    let options = PairOptions::default();
    let Pair { mut a, b } = bed.pair::<Ud>(&options)?;
    let (mut c, mut outsider) = (bed.end::<Ud>(&options)?, bed.end::<Ud>(&options)?);
    let to = a.endpoint(&options);
    Ud::wire(&mut c, &to, &options)?;
    Ud::wire(&mut outsider, &to, &options)?;
    address_group(&mut a, group, mlid)?;
    let mut members = [b, c];
    for member in &mut members {
        member.qp.attach_mcast(group, mlid)?;
        member.recv(1, 0..128);
    }
    outsider.recv(1, 0..128);
    a.post(Form::Typed, Post::new(Op::SendImm, 2, Data::Inline(&[b"all of you"])).immediate(*b"all!"))?;
    bed.poll_good(&mut a.send_cq, 1);
    for member in &mut members {
        let received = bed.poll_good(member.recv_cq(), 1)[0];
        let received = received.as_completion();
        assert_eq!(received.imm_data(), Some(*b"all!"));
        assert_eq!(received.src_qp(), Some(a.qp.qp_num()));
        assert_eq!(received.has_grh(), Some(true));
        crate::pattern::expect_bytes(&member.mr, 40, b"all of you");
    }
    bed.nothing(outsider.recv_cq());
    bed.nothing(a.recv_cq());
    for member in &members {
        member.qp.detach_mcast(group, mlid)?;
    }
    Ok(())
}

fn a_group_on_infiniband_receives_what_is_sent_to_it(bed: &Bed) -> Outcome {
    group(bed, "ff12:401b:ffff::1:2345", 0xc001)
}

fn a_group_on_ethernet_receives_what_is_sent_to_it(bed: &Bed) -> Outcome {
    group(bed, "ff0e::ffff:e001:203", 0)
}

fn queue_pair_that_left_a_group_receives_nothing_more(bed: &Bed) -> Outcome {
    let gid: Gid = "ff12:401b:ffff::77".parse().map_err(|_| "a GID")?;
    let Pair { mut a, mut b } = bed.pair::<Ud>(&PairOptions::default())?;
    address_group(&mut a, gid, 0xc077)?;
    b.qp.attach_mcast(gid, 0xc077)?;
    b.recv(1, 0..128);
    a.post(Form::Typed, Post::new(Op::Send, 2, Data::Inline(&[b"member"])))?;
    bed.poll_good(b.recv_cq(), 1);
    b.qp.detach_mcast(gid, 0xc077)?;
    b.recv(1, 0..128);
    a.post(Form::Typed, Post::new(Op::Send, 3, Data::Inline(&[b"gone"])))?;
    bed.poll_good(&mut a.send_cq, 2);
    bed.nothing(b.recv_cq());
    b.qp.detach_mcast(gid, 0xc077).expect_err("not a member any more");
    Ok(())
}

fn a_gid_that_names_no_group_is_refused(bed: &Bed) -> Outcome {
    let end = bed.end::<Ud>(&PairOptions::default())?;
    let refused = end.qp.attach_mcast(end.port.gid, 0xc000).expect_err("no group");
    assert_eq!(refused.kind(), mlx5::ErrorKind::InvalidArgument);
    assert!(refused.to_string().contains("multicast"), "{refused}");
    Ok(())
}
