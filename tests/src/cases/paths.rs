//! Traffic between devices and ports, and the order of requests.

use crate::pair::connect_ends;
use crate::prelude::*;
use mlx5::{ConnectOptions, Data, Mtu};

pub(crate) const CASES: &[Case] = cases![
    two_devices_of_a_fabric_reach_each_other: SIMULATOR,
    two_devices_on_ethernet_reach_each_other: SIMULATOR | ROCE,
    a_connection_within_one_context_works_as_any: EVERY_MODEL,
    two_ports_of_a_device_reach_each_other: TWO_PORTS,
    every_path_mtu_carries_messages_of_many_packets,
    a_fenced_request_waits_for_the_reads_before_it,
    requests_are_executed_and_reported_in_the_order_of_posting,
    both_sides_send_at_the_same_time,
    the_device_touches_only_memory_that_it_was_given: STEP,
    a_stepped_device_executes_one_request_at_a_time: STEP,
    a_sender_does_not_hear_itself_where_it_asks_for_that: INFINIBAND,
];

fn every_operation(bed: &Bed, pair: &mut Pair<Rc>) -> Outcome {
    let Pair { a, b } = pair;
    for (n, &op) in Rc::OPS.iter().enumerate() {
        let seed = n as u64;
        let from = if op == Op::Read { &b.mr } else { &a.mr };
        fill(from, 0, seed, 9000)?;
        if op.is_received() {
            b.recv(1, 20_000..20_000 + 9000);
        }
        let sges = [a.mr.sge(if op == Op::Read { 20_000..29_000 } else { 0..9000 })?];
        let remote = b.mr.remote(if op == Op::Read { 0 } else { 20_000 }..)?;
        a.post(Form::ALL[n % 2], Post::new(op, seed, Data::Sges(&sges)).remote(remote))?;
        bed.poll_good(&mut a.send_cq, 1);
        if op.is_received() {
            bed.poll_good(b.recv_cq(), 1);
        }
        verify(if op == Op::Read { &a.mr } else { &b.mr }, 20_000, seed, 9000);
    }
    Ok(())
}

fn two_devices(bed: &Bed) -> Outcome {
    let bed = bed.configured(|config| config.devices(2))?;
    let devices = bed.devices()?;
    assert_eq!(devices.len(), 2);
    let options = PairOptions::default();
    let mut a = bed.end_in::<Rc>(&devices[0].open()?, &options)?;
    let mut b = bed.end_in::<Rc>(&devices[1].open()?, &options)?;
    assert_ne!(a.context.name(), b.context.name());
    connect_ends(&mut a, &mut b, &options)?;
    every_operation(&bed, &mut Pair { a, b })?;
    let mut a = bed.end_in::<Ud>(&devices[0].open()?, &options)?;
    let mut b = bed.end_in::<Ud>(&devices[1].open()?, &options)?;
    connect_ends(&mut a, &mut b, &options)?;
    b.recv(1, 0..128);
    a.post(Form::Typed, Post::new(Op::Send, 2, Data::Inline(&[b"over there"])))?;
    bed.poll_good(&mut a.send_cq, 1);
    bed.poll_good(b.recv_cq(), 1);
    crate::pattern::expect_bytes(&b.mr, 40, b"over there");
    Ok(())
}

fn two_devices_of_a_fabric_reach_each_other(bed: &Bed) -> Outcome {
    two_devices(bed)
}

fn two_devices_on_ethernet_reach_each_other(bed: &Bed) -> Outcome {
    two_devices(bed)
}

fn a_connection_within_one_context_works_as_any(bed: &Bed) -> Outcome {
    let mut pair = bed.pair::<Rc>(&PairOptions::default().one_context(true))?;
    every_operation(bed, &mut pair)
}

fn two_ports_of_a_device_reach_each_other(bed: &Bed) -> Outcome {
    let options = PairOptions::default();
    let (mut a, mut b) = (bed.end::<Rc>(&options)?, bed.end::<Rc>(&options)?);
    b.port = b.context.local_port(2, None)?;
    assert_ne!((a.port.lid, a.port.gid), (b.port.lid, b.port.gid));
    connect_ends(&mut a, &mut b, &options)?;
    every_operation(bed, &mut Pair { a, b })
}

fn every_path_mtu_carries_messages_of_many_packets(bed: &Bed) -> Outcome {
    for mtu in [Mtu::Mtu256, Mtu::Mtu512, Mtu::Mtu1024, Mtu::Mtu2048, Mtu::Mtu4096] {
        let connect = ConnectOptions::default().path_mtu(Some(mtu));
        let mut pair = bed.pair::<Rc>(&PairOptions::default().connect(Some(connect)))?;
        let granted = pair.a.qp.query()?.path_mtu.ok_or("a path MTU")?;
        assert_eq!(granted, mtu.min(pair.a.port.active_mtu));
        every_operation(bed, &mut pair)?;
    }
    Ok(())
}

fn a_fenced_request_waits_for_the_reads_before_it(bed: &Bed) -> Outcome {
    let Pair { mut a, b } = bed.pair::<Rc>(&PairOptions::default())?;
    // The fenced write sends the data of the read before it.
    for round in 0..30 {
        fill(&b.mr, 0, round, 3000)?;
        let sges = [a.mr.sge(0..3000)?];
        let read = Post::new(Op::Read, 1, Data::Sges(&sges)).remote(b.mr.remote(0..)?);
        let flags = SendFlags::SIGNALED | SendFlags::FENCE;
        let write = Post::new(Op::Write, 2, Data::Sges(&sges)).remote(b.mr.remote(8192..)?);
        a.post_all(Form::ALL[round as usize % 2], &[read, write.flags(flags)])?;
        assert_eq!(wr_ids(&bed.poll_good(&mut a.send_cq, 2)), [1, 2]);
        verify(&b.mr, 8192, round, 3000);
    }
    Ok(())
}

fn requests_are_executed_and_reported_in_the_order_of_posting(bed: &Bed) -> Outcome {
    let Pair { mut a, mut b } = bed.pair::<Rc>(&PairOptions::default().recv_wr(16))?;
    for round in 0..20_u64 {
        // All writes go to the same address: the last one wins, and the send after them shows that
        // it has arrived.
        b.recv(round, 1024..1088);
        let bytes: Vec<_> = (0..16_u64).map(|n| (round * 100 + n).to_le_bytes()).collect();
        let pieces: Vec<_> = bytes.iter().map(|bytes| [&bytes[..]]).collect();
        let remote = b.mr.remote(0..)?;
        let mut posts: Vec<_> = pieces
            .iter()
            .zip(0..)
            .map(|(piece, n)| Post::new(Op::Write, n, Data::Inline(piece)).remote(remote))
            .collect();
        posts.push(Post::new(Op::Send, 16, Data::Inline(&[b"there"])));
        a.post_all(Form::ALL[round as usize % 2], &posts)?;
        bed.poll_good(b.recv_cq(), 1);
        crate::pattern::expect_bytes(&b.mr, 0, &(round * 100 + 15).to_le_bytes());
        assert!(wr_ids(&bed.poll_good(&mut a.send_cq, 17)).into_iter().eq(0..17));
    }
    Ok(())
}

fn both_sides_send_at_the_same_time(bed: &Bed) -> Outcome {
    let Pair { mut a, mut b } = bed.pair::<Rc>(&PairOptions::default())?;
    for round in 0..10_u64 {
        for end in [&mut a, &mut b] {
            for n in 0..32 {
                end.recv(n, n as usize * 64..n as usize * 64 + 64);
            }
        }
        for n in 0..32 {
            for (end, seed) in [(&mut a, 1000 + round + n), (&mut b, 2000 + round + n)] {
                let bytes = pattern(seed, 50);
                let pieces = [&bytes[..]];
                end.post(Form::Typed, Post::new(Op::Send, n, Data::Inline(&pieces)))?;
            }
        }
        for (end, base) in [(&mut a, 2000), (&mut b, 1000)] {
            assert!(wr_ids(&bed.poll_good(&mut end.send_cq, 32)).into_iter().eq(0..32));
            assert!(wr_ids(&bed.poll_good(end.recv_cq(), 32)).into_iter().eq(0..32));
            for n in 0..32 {
                verify(&end.mr, n * 64, base + round + n as u64, 50);
            }
        }
    }
    Ok(())
}

/// The device accesses memory through the kernel, which reports unmapped addresses. Memory that is
/// freed while the device uses it is a violation.
fn the_device_touches_only_memory_that_it_was_given(bed: &Bed) -> Outcome {
    let bed = bed.configured(|config| config.checked_memory(true).exact_doorbells(true))?;
    for _ in 0..3 {
        let mut pair = bed.pair::<Rc>(&PairOptions::default())?;
        every_operation(&bed, &mut pair)?;
        let Pair { mut a, b } = pair;
        a.recv(1, 0..64);
        // Requests are pending when all objects are dropped.
        a.post(Form::Typed, Post::new(Op::Send, 1, Data::Inline(&[b"never"])))?;
        bed.settle();
        drop(a.qp);
        drop(b.mr);
        drop(a.mr);
        bed.settle();
        assert_eq!(bed.simulator().violations(), []);
    }
    Ok(())
}

fn a_stepped_device_executes_one_request_at_a_time(bed: &Bed) -> Outcome {
    let Pair { mut a, b } = bed.pair::<Rc>(&PairOptions::default())?;
    let remote = b.mr.remote(0..)?;
    let posts: Vec<_> =
        (0..8).map(|n| Post::new(Op::Write, n, Data::Inline(&[b"x"])).remote(remote)).collect();
    a.post_all(Form::Typed, &posts)?;
    bed.nothing_yet(&mut a.send_cq);
    let mut seen = Vec::new();
    while bed.step() {
        let count = a.send_cq.poll(8, |completion| seen.push(completion.wr_id()))?;
        assert!(count <= 1, "one step, one request");
    }
    assert!(seen.into_iter().eq(0..8));
    Ok(())
}

fn a_sender_does_not_hear_itself_where_it_asks_for_that(bed: &Bed) -> Outcome {
    let group: mlx5::Gid = "ff12:401b:ffff::5".parse().map_err(|_| "a GID")?;
    let connect = ConnectOptions::default();
    for block in [false, true] {
        let End { mut send_cq, port, mr, pd, psn, .. } = bed.end::<Ud>(&PairOptions::default())?;
        let qp = pd.create_qp::<Ud>(&send_cq, &send_cq).block_multicast_loopback(block);
        let mut qp = qp.max_inline_data(32).build()?;
        qp.activate(&port, psn, &connect)?;
        qp.attach_mcast(group, 0xc005)?;
        qp.post_recv(&[ReceiveWr { wr_id: 1, sges: &[mr.sge(0..128)?] }])?;
        let route = mlx5::GlobalRoute::new(group, port.gid_index);
        let path = mlx5::AhAttr::infiniband(port.port_num, 0xc005).with_grh(route);
        let ah = pd.create_ah(&path)?;
        let mut batch = qp.wr_start();
        let request = batch.wr(2, SendFlags::SIGNALED).send();
        request.ud_addr(ah.vector(), 0xff_ffff, connect.qkey).inline_data(b"echo");
        batch.complete()?;
        if block {
            assert_eq!(wr_ids(&bed.poll_good(&mut send_cq, 1)), [2]);
        } else {
            let mut both = wr_ids(&bed.poll_good(&mut send_cq, 2));
            both.sort_unstable();
            assert_eq!(both, [1, 2]);
        }
        bed.nothing(&mut send_cq);
        qp.detach_mcast(group, 0xc005)?;
    }
    Ok(())
}
