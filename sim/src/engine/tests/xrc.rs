//! Extended reliable connections: one connection, any shared receive queue of its domain.

use mlx5_prm::cqe::{CqeOpcode, Syndrome};
use mlx5_prm::wqe::{Opcode, XrcSegment};

use super::rig::{Cq, Qp, RIGHTS, Region, Rig, Srq, Wqe, data, pattern};
use crate::engine::{QpState, Transport, XrcConfig};

const DOMAIN: u32 = 9;

fn wqe(opcode: Opcode, srqn: u32) -> Wqe {
    Wqe::new(opcode).segment(&XrcSegment { srqn: srqn.into(), ..XrcSegment::default() })
}

struct Bench {
    rig: Rig,
    sender: Qp,
    receiver: Qp,
    send_cq: Cq,
    recv_cq: Cq,
    srq: Srq,
    region: Region,
}

impl Bench {
    fn new() -> Self {
        let rig = Rig::one_device();
        let (send_cq, recv_cq) = (rig.cq(0, 4, 64), rig.cq(0, 4, 64));
        let sender = rig.qp(0, Transport::XrcSend, &send_cq, None, 3);
        let receiver = rig.xrc_receiver(0, DOMAIN);
        rig.connect(&sender, &receiver);
        let srq = rig.xrc_srq(0, XrcConfig { xrcd: DOMAIN, cqn: recv_cq.cqn });
        let region = rig.region(0, 4096);
        Self { rig, sender, receiver, send_cq, recv_cq, srq, region }
    }

    #[track_caller]
    fn fails(&mut self, wqe: &Wqe, syndrome: Syndrome) {
        self.sender.post(wqe);
        self.rig.run();
        assert_eq!(self.send_cq.expect_error().1, syndrome);
        assert_eq!(self.rig.query(&self.receiver).state, QpState::Error);
    }
}

#[test]
fn a_send_takes_from_the_queue_that_it_names_and_completes_there() {
    let mut bench = Bench::new();
    let other_cq = bench.rig.cq(0, 4, 64);
    let mut other = bench.rig.xrc_srq(0, XrcConfig { xrcd: DOMAIN, cqn: other_cq.cqn });
    let (region, key) = (bench.region.at(0), bench.region.key);
    bench.srq.write(0, 1, &[data(region, 600, key)]);
    bench.srq.post(1);
    other.write(0, 1, &[data(region + 1024, 64, key)]);
    other.post(1);

    // A message of several packets, and then one to the other queue.
    let from = bench.rig.region(0, 600);
    from.memory.write(0, &pattern(600));
    let long = wqe(Opcode::SendImm, bench.srq.srqn).immediate(7).data(from.at(0), 600, from.key);
    bench.sender.post(&long);
    bench.sender.post(&wqe(Opcode::Send, other.srqn).inline(b"other"));
    bench.rig.run();
    let mut other_cq = other_cq;
    for (cq, srqn, opcode, bytes) in [
        (&mut bench.recv_cq, bench.srq.srqn, CqeOpcode::ResponderSendImm, 600),
        (&mut other_cq, other.srqn, CqeOpcode::ResponderSend, 5),
    ] {
        let receive = cq.expect();
        assert_eq!((receive.opcode, receive.bytes(), receive.wqe()), (opcode, bytes, 0), "{srqn}");
        assert_eq!(receive.cqe.sop_drop_qpn.get() & 0xff_ffff, bench.receiver.qpn);
        assert_eq!(receive.cqe.srqn_uidx.get(), 0x5757, "the shared queue's index");
        cq.expect_none();
    }
    assert_eq!(bench.region.memory.read(0, 600), pattern(600));
    assert_eq!(bench.region.memory.read(1024, 5), b"other");
    assert_eq!(bench.send_cq.expect().opcode, CqeOpcode::Requester);
    assert_eq!(bench.send_cq.expect().opcode, CqeOpcode::Requester);
}

#[test]
fn reads_writes_and_atomics_reach_the_memory_of_the_queues_owner() {
    let mut bench = Bench::new();
    let (at, key, srqn) = (bench.region.at(0), bench.region.key, bench.srq.srqn);
    bench.sender.post(&wqe(Opcode::RdmaWrite, srqn).remote(at, key).inline(&5u64.to_ne_bytes()));
    let add = wqe(Opcode::AtomicFa, srqn).remote(at, key).atomic(3, 0).data(at + 64, 8, key);
    bench.sender.post(&add);
    bench.sender.post(&wqe(Opcode::RdmaRead, srqn).remote(at, key).data(at + 128, 8, key));
    bench.rig.run();
    for _ in 0..3 {
        assert_eq!(bench.send_cq.expect().opcode, CqeOpcode::Requester);
    }
    assert_eq!(bench.region.memory.read(64, 8), 5u64.to_ne_bytes());
    assert_eq!(bench.region.memory.read(128, 8), 8u64.to_ne_bytes());

    let pd = bench.rig.lock().device_mut(0).alloc_pd().expect("a domain");
    let foreign = bench.rig.region_with(0, 64, RIGHTS, pd);
    let write = wqe(Opcode::RdmaWrite, srqn).remote(foreign.at(0), foreign.key).inline(b"x");
    bench.fails(&write, Syndrome::RemoteAccess);
}

#[test]
fn a_message_for_a_queue_that_is_not_in_the_domain_is_an_invalid_request() {
    let cases: [fn(&Bench) -> Option<Srq>; 4] = [
        |_| None,
        |bench| Some(bench.rig.srq(0)),
        // A queue with a tag list has no XRC domain: `mlx5_ifc_xrqc_bits` has no field for one.
        |bench| Some(bench.rig.tm_srq(0, &bench.recv_cq)),
        |bench| {
            let config = XrcConfig { xrcd: DOMAIN + 1, cqn: bench.recv_cq.cqn };
            Some(bench.rig.xrc_srq(0, config))
        },
    ];
    for (case, other) in cases.iter().enumerate() {
        for opcode in [Opcode::Send, Opcode::RdmaWrite, Opcode::RdmaRead] {
            let mut bench = Bench::new();
            let other = other(&bench);
            let srqn = other.as_ref().map_or(0xdead, |srq| srq.srqn);
            let mut request = wqe(opcode, srqn);
            if opcode != Opcode::Send {
                request = request.remote(bench.region.at(0), bench.region.key);
            }
            let request = request.data(bench.region.at(64), 8, bench.region.key);
            bench.fails(&request, Syndrome::RemoteInvalidRequest);
            assert_eq!(bench.region.memory.read(0, 128), [0; 128], "{case}");
        }
    }
}

#[test]
fn a_sender_waits_for_the_named_queue_to_have_a_receive() {
    let mut bench = Bench::new();
    bench.rig.lock().device_mut(0).qp_attributes_mut(bench.sender.qpn).expect("a QP").rnr_retry = 7;
    bench.sender.post(&wqe(Opcode::Send, bench.srq.srqn).inline(b"late"));
    bench.rig.run();
    bench.send_cq.expect_none();
    bench.srq.write(0, 1, &[data(bench.region.at(0), 64, bench.region.key)]);
    bench.srq.post(1);
    bench.rig.run();
    assert_eq!(bench.recv_cq.expect().bytes(), 4);
    assert_eq!(bench.send_cq.expect().opcode, CqeOpcode::Requester);
}

#[test]
fn the_receiving_side_sends_nothing_and_the_sending_side_takes_nothing() {
    let bench = Bench::new();
    let mut rc = bench.rig.pair(Transport::Rc);
    bench.rig.lock().device_mut(0).qp_attributes_mut(rc.a.qpn).expect("a QP").remote_qpn =
        bench.sender.qpn;
    rc.a.post(&Wqe::new(Opcode::Send).inline(b"?"));
    bench.rig.run();
    assert_eq!(rc.cq_a.expect_error().1, Syndrome::RetryExceeded);
    assert_eq!(bench.rig.query(&bench.sender).state, QpState::Rts);
}
