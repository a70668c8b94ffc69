//! Requests that fail, their errors, and the flush afterwards.

use mlx5_prm::cqe::{CqeOpcode, ErrorCqe, SOLICITED, Syndrome};
use mlx5_prm::event::EventType;
use mlx5_prm::wqe::Opcode;
use zerocopy::IntoBytes;

use super::rig::{Pair, RIGHTS, Rig, Wqe, data, pattern};
use crate::engine::{Access, Event, QpState, RetryCounts, Transport};
use crate::{Fault, PortConfig, SimConfig};

fn failed_write(rig: &Rig, p: &mut Pair, wqe: &Wqe) -> Syndrome {
    let index = p.a.post(wqe);
    rig.run();
    let (wqe, syndrome) = p.cq_a.expect_error();
    assert_eq!(wqe, index);
    assert_eq!(rig.query(&p.a).state, QpState::Error);
    syndrome
}

#[test]
fn a_remote_key_is_checked_for_bounds_rights_domain_and_tag() {
    let rig = Rig::one_device();
    let other_pd = rig.lock().device_mut(0).alloc_pd().expect("a domain");
    let good = rig.region(0, 64);
    let read_only = rig.region_with(0, 64, RIGHTS - Access::REMOTE_WRITE, rig.pds[0]);
    let foreign = rig.region_with(0, 64, RIGHTS, other_pd);
    for (address, key) in [
        (good.at(60), good.key),
        (good.at(0) - 1, good.key),
        (read_only.at(0), read_only.key),
        (foreign.at(0), foreign.key),
        (good.at(0), good.key ^ 1),
        (good.at(0), 0xdead_be00),
    ] {
        let mut p = rig.pair(Transport::Rc);
        let wqe = Wqe::new(Opcode::RdmaWrite).remote(address, key).inline(b"12345");
        assert_eq!(failed_write(&rig, &mut p, &wqe), Syndrome::RemoteAccess);
        assert_eq!(rig.query(&p.b).state, QpState::Error);
        let refused = Event::Qp { qpn: p.b.qpn, kind: EventType::WQ_ACCESS_ERROR };
        assert!(rig.events(0).contains(&refused));
        assert_eq!(good.memory.read(0, 64), [0; 64]);
    }
}

#[test]
fn a_queue_pair_grants_remote_operations_one_by_one() {
    let rig = Rig::one_device();
    let (here, there) = (rig.region(0, 64), rig.region(0, 64));
    let read =
        Wqe::new(Opcode::RdmaRead).remote(there.at(0), there.key).data(here.at(0), 8, here.key);
    let write = Wqe::new(Opcode::RdmaWrite).remote(there.at(0), there.key).inline(b"x");
    let atomic = Wqe::new(Opcode::AtomicFa).remote(there.at(0), there.key).atomic(1, 0).data(
        here.at(0),
        8,
        here.key,
    );
    for (which, wqe) in [read, write, atomic].iter().enumerate() {
        let mut p = rig.pair(Transport::Rc);
        {
            let mut engine = rig.lock();
            let granted = engine.device_mut(0).qp_attributes_mut(p.b.qpn).expect("a QP");
            match which {
                0 => granted.remote_read = false,
                1 => granted.remote_write = false,
                _ => granted.remote_atomic = false,
            }
        }
        assert_eq!(failed_write(&rig, &mut p, wqe), Syndrome::RemoteInvalidRequest);
        assert_eq!(rig.query(&p.b).state, QpState::Error);
        let refused = Event::Qp { qpn: p.b.qpn, kind: EventType::WQ_ACCESS_ERROR };
        assert!(rig.events(0).contains(&refused));
    }
}

#[test]
fn a_write_that_leaves_the_region_is_written_packet_by_packet_up_to_there() {
    let rig = Rig::one_device();
    let mut p = rig.pair(Transport::Rc);
    let (from, to) = (rig.region(0, 1024), rig.region(0, 1024));
    from.memory.write(0, &pattern(1024));
    // Two packets of 256 bytes fit, the third does not.
    let wqe =
        Wqe::new(Opcode::RdmaWrite).remote(to.at(512), to.key).data(from.at(0), 1024, from.key);
    assert_eq!(failed_write(&rig, &mut p, &wqe), Syndrome::RemoteAccess);
    assert_eq!(to.memory.read(512, 512), pattern(1024)[..512]);
    assert_eq!(to.memory.read(0, 512), [0; 512]);
    assert_eq!(rig.query(&p.b).state, QpState::Error);
}

#[test]
fn a_write_with_immediate_data_is_refused_before_its_receive_is_asked_for() {
    let rig = Rig::one_device();
    let mut p = rig.pair(Transport::Rc);
    let to = rig.region(0, 64);
    let wqe = Wqe::new(Opcode::RdmaWriteImm).remote(to.at(0), to.key ^ 1).inline(b"x");
    assert_eq!(failed_write(&rig, &mut p, &wqe), Syndrome::RemoteAccess);
}

#[test]
fn packets_of_another_size_than_the_receivers_mtu_are_refused() {
    let rig = Rig::one_device();
    let (from, to) = (rig.region(0, 1024), rig.region(0, 1024));
    for (mtu, bytes, fits) in [(512, 1024, false), (512, 256, true), (128, 1024, true)] {
        for transport in [Transport::Rc, Transport::Uc] {
            let mut p = rig.pair(transport);
            rig.lock().device_mut(0).qp_attributes_mut(p.a.qpn).expect("a QP").mtu = mtu;
            p.b.post_receive(&[data(to.at(0), 1024, to.key)]);
            let index = p.a.post(&Wqe::new(Opcode::Send).data(from.at(0), bytes, from.key));
            rig.run();
            let sent = p.cq_a.expect();
            assert_eq!(sent.wqe(), index);
            match (fits, transport) {
                (true, _) => assert_eq!(p.cq_b.expect().bytes(), bytes),
                (false, Transport::Rc) => {
                    assert_eq!(sent.syndrome(), Syndrome::RemoteInvalidRequest);
                    assert_eq!(p.cq_b.expect_error(), (0, Syndrome::WorkRequestFlushed));
                    assert_eq!(rig.query(&p.b).state, QpState::Error);
                }
                (false, _) => {
                    assert_eq!(sent.opcode, CqeOpcode::Requester);
                    p.cq_b.expect_none();
                }
            }
        }
    }
}

#[test]
fn the_first_request_that_modify_flushes_says_so_and_others_do_not() {
    let rig = Rig::one_device();
    let mut p = rig.pair(Transport::Rc);
    let to = rig.region(0, 64);
    rig.lock().device_mut(0).qp_attributes_mut(p.a.qpn).expect("a QP").rnr_retry = 7;
    p.a.post_receive(&[data(to.at(0), 1, to.key)]);
    for _ in 0..3 {
        p.a.post(&Wqe::new(Opcode::Send).inline(b"stuck").unsignaled());
    }
    rig.run();
    rig.set_state(&p.a, QpState::Error);
    p.a.post(&Wqe::new(Opcode::Nop));
    rig.run();
    for (index, vendor) in [(0, 0xf5), (1, 0xf9), (2, 0xf9), (3, 0xf9), (0, 0xf9)] {
        let flushed = p.cq_a.expect();
        assert_eq!((flushed.wqe(), flushed.syndrome()), (index, Syndrome::WorkRequestFlushed));
        assert_eq!(flushed.error.vendor_err_synd, vendor);
    }
    p.cq_a.expect_none();
}

#[test]
fn an_error_entry_is_signed_and_marked_as_solicited() {
    let rig = Rig::one_device();
    let mut p = rig.pair(Transport::Rc);
    let to = rig.region(0, 64);
    let bad = Wqe::new(Opcode::RdmaWrite).remote(to.at(0), 0x100).inline(b"x");
    p.a.post(&Wqe::new(Opcode::Nop));
    p.a.post(&bad);
    rig.run();
    let good = p.cq_a.expect();
    assert_eq!((good.cqe.signature, good.cqe.op_own & SOLICITED), (0, 0));
    let sum = |error: &ErrorCqe| error.as_bytes().iter().fold(0, |sum, byte| sum ^ byte);
    let failed = p.cq_a.expect();
    assert_eq!((sum(&failed.error), failed.error.op_own & SOLICITED), (!1, SOLICITED));

    let mut p = rig.pair(Transport::Rc);
    p.b.post_receive(&[data(to.at(0), 8, to.key ^ 1)]);
    p.a.post(&Wqe::new(Opcode::Send).inline(b"x"));
    rig.run();
    let failed = p.cq_b.expect();
    assert_eq!((sum(&failed.error), failed.error.op_own & SOLICITED), (!0, 0));
}

#[test]
fn short_acknowledgement_timeouts_act_as_537_milliseconds() {
    for (timeout, seconds) in [(1, 0.537), (14, 0.537), (16, 0.537), (17, 1.074)] {
        let rig = Rig::new(SimConfig::new().longest_timer_us(u64::MAX / 1000));
        let mut p = rig.pair(Transport::Rc);
        {
            let mut engine = rig.lock();
            let attributes = engine.device_mut(0).qp_attributes_mut(p.a.qpn).expect("a QP");
            (attributes.ack_timeout, attributes.retry_count) = (timeout, 1);
        }
        rig.set_state(&p.b, QpState::Reset);
        let send = Wqe::new(Opcode::Send).inline(b"x");
        assert_eq!(failed_write(&rig, &mut p, &send), Syndrome::RetryExceeded);
        let waited = rig.lock().now_ns() as f64 / 1e9;
        assert!((waited - seconds).abs() < 0.01, "timeout {timeout}: {waited} s");
    }
}

#[test]
fn no_retry_is_seven_on_ethernet_and_none_on_infiniband() {
    for (port, retries) in [(PortConfig::ROCE, 7), (PortConfig::INFINIBAND, 0)] {
        let rig = Rig::new(SimConfig::new().ports([port]).devices(2));
        let mut p = rig.pair_of(Transport::Rc, 0, 1);
        rig.lock().device_mut(0).qp_attributes_mut(p.a.qpn).expect("a QP").retry_count = 0;
        rig.set_state(&p.b, QpState::Reset);
        let send = Wqe::new(Opcode::Send).inline(b"x");
        assert_eq!(failed_write(&rig, &mut p, &send), Syndrome::RetryExceeded);
        assert_eq!(counted(&rig, 0).local_ack_timeout_err, retries);
    }
}

#[test]
fn a_misaligned_atomic_is_an_invalid_request() {
    let rig = Rig::one_device();
    let mut p = rig.pair(Transport::Rc);
    let (here, there) = (rig.region(0, 64), rig.region(0, 64));
    let wqe = Wqe::new(Opcode::AtomicFa).remote(there.at(4), there.key).atomic(1, 0).data(
        here.at(0),
        8,
        here.key,
    );
    assert_eq!(failed_write(&rig, &mut p, &wqe), Syndrome::RemoteInvalidRequest);
}

#[test]
fn a_local_key_is_checked_and_what_went_before_stays_written() {
    let rig = Rig::one_device();
    let mut p = rig.pair(Transport::Rc);
    let (from, to) = (rig.region(0, 300), rig.region(0, 1024));
    from.memory.write(0, &pattern(300));
    // The second packet of 256 bytes exceeds the region.
    let wqe = Wqe::new(Opcode::RdmaWrite)
        .remote(to.at(0), to.key)
        .data(from.at(0), 256, from.key)
        .data(from.at(256), 100, from.key);
    assert_eq!(failed_write(&rig, &mut p, &wqe), Syndrome::LocalProtection);
    assert_eq!(to.memory.read(0, 256), pattern(300)[..256]);
    assert_eq!(to.memory.read(256, 100), [0; 100]);
    assert_eq!(rig.query(&p.b).state, QpState::Rts);
}

#[test]
fn an_answer_goes_only_to_memory_that_may_be_written() {
    let rig = Rig::one_device();
    let mut p = rig.pair(Transport::Rc);
    let there = rig.region(0, 64);
    let here = rig.region_with(0, 64, Access::LOCAL_READ, rig.pds[0]);
    let wqe =
        Wqe::new(Opcode::RdmaRead).remote(there.at(0), there.key).data(here.at(0), 8, here.key);
    assert_eq!(failed_write(&rig, &mut p, &wqe), Syndrome::LocalProtection);
}

#[test]
fn a_zero_byte_count_means_two_gibibytes() {
    let rig = Rig::one_device();
    let mut p = rig.pair(Transport::Rc);
    let region = rig.region(0, 64);
    let wqe = Wqe::new(Opcode::RdmaWrite).remote(region.at(0), region.key).data(
        region.at(0),
        0,
        region.key,
    );
    assert_eq!(failed_write(&rig, &mut p, &wqe), Syndrome::LocalLength);
}

#[test]
fn wqes_that_hardware_does_not_understand_are_rejected() {
    let rig = Rig::one_device();
    let to = rig.region(0, 64);
    let inline_too_long = {
        let mut segment = [0; 16];
        segment[..4].copy_from_slice(&(13u32 | 1 << 31).to_be_bytes());
        Wqe::new(Opcode::Send).segment(&segment)
    };
    for wqe in [
        Wqe::raw(0x3f),
        Wqe::new(Opcode::Umr),
        Wqe::new(Opcode::RdmaWrite),
        Wqe::new(Opcode::AtomicCs).remote(to.at(0), to.key).atomic(0, 0).data(to.at(0), 4, to.key),
        inline_too_long,
    ] {
        let mut p = rig.pair(Transport::Rc);
        assert_eq!(failed_write(&rig, &mut p, &wqe), Syndrome::LocalQpOperation);
    }
    // Reads exist on reliable connections only.
    let mut p = rig.pair(Transport::Uc);
    p.a.post(&Wqe::new(Opcode::RdmaRead).remote(to.at(0), to.key).data(to.at(0), 4, to.key));
    rig.run();
    assert_eq!(p.cq_a.expect_error().1, Syndrome::LocalQpOperation);
    assert_eq!(rig.query(&p.a).state, QpState::SqError);
}

#[test]
fn a_failed_queue_flushes_every_request_once_in_order() {
    let rig = Rig::one_device();
    let mut p = rig.pair(Transport::Rc);
    let to = rig.region(0, 64);
    let write = Wqe::new(Opcode::RdmaWrite).remote(to.at(0), to.key).inline(b"x");
    let bad = Wqe::new(Opcode::RdmaWrite).remote(to.at(0), 0x100).inline(b"x").unsignaled();
    for n in 0..3 {
        p.a.post_receive(&[data(to.at(n), 1, to.key)]);
    }
    let posted = [
        p.a.post(&write.clone().unsignaled()),
        p.a.post(&bad),
        p.a.post(&write.clone().unsignaled()),
        p.a.post(&Wqe::new(Opcode::Nop).pad(5).unsignaled()),
        p.a.post(&write),
    ];
    rig.run();
    assert_eq!(p.cq_a.expect_error(), (posted[1], Syndrome::RemoteAccess));
    for index in &posted[2..] {
        let flushed = p.cq_a.expect();
        assert_eq!(flushed.opcode, CqeOpcode::RequesterError);
        assert_eq!((flushed.wqe(), flushed.syndrome()), (*index, Syndrome::WorkRequestFlushed));
        assert_eq!(flushed.error.vendor_err_synd, 0xf9);
    }
    for index in 0..3 {
        let flushed = p.cq_a.expect();
        assert_eq!(flushed.opcode, CqeOpcode::ResponderError);
        assert_eq!((flushed.wqe(), flushed.syndrome()), (index, Syndrome::WorkRequestFlushed));
    }
    p.cq_a.expect_none();

    // Requests that are posted later are flushed, too; a receive rings no doorbell.
    let late = p.a.post(&write);
    p.a.post_receive(&[data(to.at(0), 1, to.key)]);
    rig.run();
    assert_eq!(p.cq_a.expect_error(), (late, Syndrome::WorkRequestFlushed));
    assert_eq!(p.cq_a.expect_error(), (3, Syndrome::WorkRequestFlushed));
    p.cq_a.expect_none();
}

#[test]
fn a_reset_queue_pair_starts_anew() {
    let rig = Rig::one_device();
    let mut p = rig.pair(Transport::Rc);
    let to = rig.region(0, 64);
    failed_write(&rig, &mut p, &Wqe::new(Opcode::RdmaWrite).remote(0, 0).inline(b"x"));
    for qp in [&mut p.a, &mut p.b] {
        rig.set_state(qp, QpState::Reset);
        qp.posted = 0;
        qp.write_record(0);
    }
    rig.connect(&p.a, &p.b);
    p.a.post(&Wqe::new(Opcode::RdmaWrite).remote(to.at(0), to.key).inline(b"again"));
    rig.run();
    assert_eq!(p.cq_a.expect().opcode, CqeOpcode::Requester);
    assert_eq!(to.memory.read(0, 5), b"again");
}

#[test]
fn a_short_receive_fails_both_sides() {
    let rig = Rig::one_device();
    let mut p = rig.pair(Transport::Rc);
    let to = rig.region(0, 64);
    p.b.post_receive(&[data(to.at(0), 4, to.key)]);
    p.b.post_receive(&[data(to.at(0), 4, to.key)]);
    let send = Wqe::new(Opcode::Send).inline(b"hello");
    assert_eq!(failed_write(&rig, &mut p, &send), Syndrome::RemoteInvalidRequest);
    assert_eq!(p.cq_b.expect_error(), (0, Syndrome::LocalLength));
    assert_eq!(p.cq_b.expect_error(), (1, Syndrome::WorkRequestFlushed));
    p.cq_b.expect_none();
}

#[test]
fn a_receive_with_a_bad_key_fails_both_sides() {
    let rig = Rig::one_device();
    let mut p = rig.pair(Transport::Rc);
    let to = rig.region(0, 64);
    p.b.post_receive(&[data(to.at(0), 64, to.key ^ 1)]);
    let send = Wqe::new(Opcode::Send).inline(b"hello");
    assert_eq!(failed_write(&rig, &mut p, &send), Syndrome::RemoteOperation);
    assert_eq!(p.cq_b.expect_error(), (0, Syndrome::LocalProtection));
}

#[test]
fn a_receiver_that_is_not_ready_is_tried_again() {
    let rig = Rig::one_device();
    let mut p = rig.pair(Transport::Rc);
    let to = rig.region(0, 64);
    p.a.post(&Wqe::new(Opcode::Send).inline(b"late"));
    assert!(rig.fabric.step());
    p.cq_a.expect_none();
    p.b.post_receive(&[data(to.at(0), 64, to.key)]);
    rig.run();
    assert_eq!(p.cq_a.expect().opcode, CqeOpcode::Requester);
    assert_eq!(p.cq_b.expect().bytes(), 4);
}

#[test]
fn receiver_not_ready_ends_after_the_retry_count() {
    let rig = Rig::one_device();
    let mut p = rig.pair(Transport::Rc);
    let send = Wqe::new(Opcode::Send).inline(b"x");
    assert_eq!(failed_write(&rig, &mut p, &send), Syndrome::RnrRetryExceeded);
}

#[test]
fn seven_rnr_retries_are_without_end() {
    let rig = Rig::one_device();
    let mut p = rig.pair(Transport::Rc);
    let to = rig.region(0, 64);
    rig.lock().device_mut(0).qp_attributes_mut(p.a.qpn).expect("a QP").rnr_retry = 7;
    p.a.post(&Wqe::new(Opcode::RdmaWriteImm).remote(to.at(0), to.key).inline(b"x"));
    rig.run();
    rig.run();
    p.cq_a.expect_none();
    p.b.post_receive(&[]);
    rig.run();
    assert_eq!(p.cq_a.expect().opcode, CqeOpcode::Requester);
    assert_eq!(p.cq_b.expect().opcode, CqeOpcode::ResponderWriteImm);
}

#[test]
fn lost_packets_are_sent_again_until_the_retry_count() {
    let rig = Rig::one_device();
    let mut p = rig.pair(Transport::Rc);
    let (from, to) = (rig.region(0, 1024), rig.region(0, 1024));
    from.memory.write(0, &pattern(1024));
    let wqe = Wqe::new(Opcode::Send).data(from.at(0), 1024, from.key);
    p.b.post_receive(&[data(to.at(0), 1024, to.key)]);
    rig.lock().device_mut(0).inject(Fault::DropPackets(3));
    p.a.post(&wqe);
    rig.run();
    assert_eq!(p.cq_a.expect().opcode, CqeOpcode::Requester);
    assert_eq!(to.memory.read(0, 1024), pattern(1024));
    p.cq_b.expect();

    rig.lock().device_mut(0).inject(Fault::DropPackets(4));
    let short = Wqe::new(Opcode::Send).inline(b"x");
    assert_eq!(failed_write(&rig, &mut p, &short), Syndrome::RetryExceeded);
}

/// Counts since the last call.
fn counted(rig: &Rig, device: usize) -> RetryCounts {
    let mut engine = rig.lock();
    let counts = engine.device(device).retry_counts(1);
    assert_eq!(engine.device(device).retry_counts(2), RetryCounts::default(), "another port");
    assert_eq!(engine.device(device).retry_counts_of_set(0), counts);
    engine.device_mut(device).clear_retry_counts(0);
    counts
}

#[test]
fn lost_packets_are_counted_by_how_the_loss_was_noticed() {
    let rig = Rig::new(SimConfig::new().devices(2));
    let mut p = rig.pair_of(Transport::Rc, 0, 1);
    let (from, to) = (rig.region(0, 1024), rig.region(1, 1024));
    let none = RetryCounts::default();
    let mut send = |lost, length| {
        p.b.post_receive(&[data(to.at(0), 1024, to.key)]);
        rig.lock().device_mut(0).inject(Fault::DropPackets(lost));
        p.a.post(&Wqe::new(Opcode::Send).data(from.at(0), length, from.key));
        rig.run();
        [counted(&rig, 0), counted(&rig, 1)]
    };
    assert_eq!(send(0, 1024), [none; 2]);
    // Of four packets the last arrives and shows that others are missing.
    let sender = RetryCounts { packet_seq_err: 1, ..none };
    let receiver = RetryCounts { out_of_sequence: 1, ..none };
    assert_eq!(send(3, 1024), [sender, receiver]);
    // After a whole message there is no packet that shows the loss.
    let sender = RetryCounts { local_ack_timeout_err: 1, ..none };
    assert_eq!(send(4, 1024), [sender, none]);
    let sender = RetryCounts { local_ack_timeout_err: 3, ..none };
    assert_eq!(send(3, 1), [sender, none]);
    // The request is not sent again after the last timeout.
    let sender = RetryCounts { req_transport_retries_exceeded: 1, ..sender };
    assert_eq!(send(4, 1), [sender, none]);
}

#[test]
fn a_receiver_that_is_not_ready_is_counted_at_the_sender() {
    let rig = Rig::new(SimConfig::new().devices(2));
    let mut p = rig.pair_of(Transport::Rc, 0, 1);
    let send = Wqe::new(Opcode::Send).inline(b"x");
    assert_eq!(failed_write(&rig, &mut p, &send), Syndrome::RnrRetryExceeded);
    let retries =
        RetryCounts { rnr_nak_retry_err: 2, req_rnr_retries_exceeded: 1, ..Default::default() };
    assert_eq!(counted(&rig, 0), retries);
    assert_eq!(counted(&rig, 1), RetryCounts::default());
}

#[test]
fn a_peer_that_does_not_listen_exceeds_the_retries() {
    let rig = Rig::one_device();
    let send = Wqe::new(Opcode::Send).inline(b"x");
    // A peer that is not connected yet, one that was destroyed, and one with other packet numbers.
    for case in 0..3 {
        let mut p = rig.pair(Transport::Rc);
        match case {
            0 => rig.set_state(&p.b, QpState::Reset),
            1 => rig.lock().device_mut(0).destroy_qp(p.b.qpn).expect("a QP"),
            _ => {
                rig.lock().device_mut(0).qp_attributes_mut(p.b.qpn).expect("a QP").rq_psn = 9;
                rig.set_state(&p.b, QpState::Rtr);
            }
        }
        assert_eq!(failed_write(&rig, &mut p, &send), Syndrome::RetryExceeded);
    }
}

#[test]
fn an_unreliable_sender_fails_in_its_send_queue_only() {
    let rig = Rig::one_device();
    let mut p = rig.pair(Transport::Uc);
    let to = rig.region(0, 64);
    p.a.post_receive(&[data(to.at(0), 8, to.key)]);
    let bad = p.a.post(&Wqe::new(Opcode::Send).data(to.at(60), 8, to.key));
    let next = p.a.post(&Wqe::new(Opcode::Send).inline(b"x"));
    rig.run();
    assert_eq!(p.cq_a.expect_error(), (bad, Syndrome::LocalProtection));
    assert_eq!(p.cq_a.expect_error(), (next, Syndrome::WorkRequestFlushed));
    p.cq_a.expect_none();
    assert_eq!(rig.query(&p.a).state, QpState::SqError);

    p.b.post(&Wqe::new(Opcode::Send).inline(b"y"));
    rig.run();
    assert_eq!(p.cq_a.expect().opcode, CqeOpcode::ResponderSend);

    rig.set_state(&p.a, QpState::Rts);
    p.a.post(&Wqe::new(Opcode::RdmaWrite).remote(to.at(0), to.key).inline(b"z"));
    rig.run();
    assert_eq!(p.cq_a.expect().opcode, CqeOpcode::Requester);
    assert_eq!(to.memory.read(0, 1), b"z");
}

#[test]
fn unreliable_writes_without_the_right_vanish() {
    let rig = Rig::one_device();
    let mut p = rig.pair(Transport::Uc);
    let to = rig.region(0, 64);
    p.a.post(&Wqe::new(Opcode::RdmaWrite).remote(to.at(63), to.key).inline(b"xx"));
    rig.run();
    assert_eq!(p.cq_a.expect().opcode, CqeOpcode::Requester);
    assert_eq!(rig.query(&p.b).state, QpState::Rts);
    assert_eq!(to.memory.read(0, 64), [0; 64]);
}

#[test]
fn a_forced_syndrome_fails_the_next_request() {
    let rig = Rig::one_device();
    let mut p = rig.pair(Transport::Rc);
    let fault =
        Fault::FailRequest { qpn: Some(p.a.qpn), syndrome: Syndrome::BadResponse, vendor: 0x77 };
    rig.lock().device_mut(0).inject(fault);
    p.a.post(&Wqe::new(Opcode::Nop));
    rig.run();
    let failed = p.cq_a.expect();
    assert_eq!((failed.syndrome(), failed.error.vendor_err_synd), (Syndrome::BadResponse, 0x77));
}

#[test]
fn a_stalled_device_goes_on_and_a_dead_one_does_not() {
    let rig = Rig::one_device();
    let mut p = rig.pair(Transport::Rc);
    rig.lock().device_mut(0).inject(Fault::Stall);
    p.a.post(&Wqe::new(Opcode::Nop));
    assert_eq!(rig.run(), 0);
    rig.lock().device_mut(0).inject(Fault::Resume);
    assert_eq!(rig.run(), 1);
    p.cq_a.expect();

    rig.lock().device_mut(0).inject(Fault::Remove);
    assert_eq!(rig.events(0), [Event::DeviceFatal]);
    assert!(rig.lock().device(0).is_removed());
    p.a.post(&Wqe::new(Opcode::Nop));
    assert_eq!(rig.run(), 0);
    p.cq_a.expect_none();
}

#[test]
fn events_can_be_doubled_and_reordered() {
    let rig = Rig::one_device();
    let p = rig.pair(Transport::Rc);
    rig.lock().device_mut(0).inject(Fault::DuplicateEvents(1));
    rig.lock().device_mut(0).set_port_active(1, false);
    assert_eq!(rig.events(0).len(), 2);
    rig.lock().device_mut(0).inject(Fault::ReorderEvents(2));
    rig.lock().device_mut(0).set_port_active(1, true);
    assert_eq!(rig.events(0), []);
    rig.lock().device_mut(0).drain_qp(p.a.qpn, crate::engine::DrainAt::Now).expect("RTS");
    let events = rig.events(0);
    assert_eq!(events[0], Event::Qp { qpn: p.a.qpn, kind: EventType::SQ_DRAINED });
    assert!(matches!(events[1], Event::Port { port: 1, .. }));
}
