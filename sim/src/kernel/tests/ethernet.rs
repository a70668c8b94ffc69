//! Raw packet queue pairs, work queues and flow rules, by their calls.

use mlx5_prm::cmd::ethernet::PpRateLimitContext;
use mlx5_prm::cqe::CqeOpcode;
use mlx5_prm::ethernet::EthernetSegment;
use mlx5_prm::wqe::Opcode;
use mlx5_uapi::cmd::{context, counters, devx, flow, matcher, qp, wq};
use mlx5_uapi::flow::{
    CounterKind, DropAction, EthFilter, EthSpec, FlowFlags, FlowType, HandleAction, Ipv4Filter,
    Ipv4Spec, Ipv6Spec, MatchCriteria, MatcherFlowFlags, MatcherType, PortFilter, PortSpec,
    SpecHeader, SpecKind, TableType, TagAction,
};
use mlx5_uapi::mlx5::{
    self, AllocUcontextReqV2, CreateQpRss, FlowCountersDesc, RxHashFields, RxHashFunctions,
};
use mlx5_uapi::verbs::{QpAttrMask, QpState, QpType, WqFlags, WqState};
use mlx5_uapi::{Errno, sysfs};
use zerocopy::{Immutable, IntoBytes};

use super::rig::{Memory, Region, Session, TestCq, TestQp, data, init, request, rtr, rts, to};
use crate::engine::{QpState as EngineState, RateLimit};
use crate::frame::samples::{GROUP, ethernet, plain, tcp4, udp4};
use crate::{PortConfig, SimConfig, Simulator};

/// Two programs on one device, so that frames come back.
struct Bench {
    sim: Simulator,
    one: Session,
    two: Session,
}

fn config() -> SimConfig {
    SimConfig::new().ports([PortConfig::ROCE]).raw_packets(true).step(true)
}

impl Bench {
    fn new() -> Self {
        let sim = Simulator::new(config());
        let one = Session::on(&sim, 0).expect("a session");
        let two = Session::on(&sim, 0).expect("a session");
        Self { sim, one, two }
    }

    fn missed(&self) -> u64 {
        self.sim.fabric().lock().device(0).frame_counts().missed
    }
}

fn ready(session: &Session, qp: &TestQp) {
    session.modify(&init(qp)).expect("INIT");
    session.modify(&rtr(qp, 0, session.path())).expect("RTR");
    session.modify(&rts(qp)).expect("RTS");
}

fn send(session: &Session, qp: &mut TestQp, region: &Region, frame: &[u8]) {
    region.memory.write(0, frame);
    let segment = EthernetSegment::default();
    let entry = data(region, 0, frame.len() as u32);
    let wqe = qp.wqe(Opcode::Send, &[segment.as_bytes(), entry.as_bytes()]);
    session.post(qp, &wqe);
}

fn spec<T: IntoBytes + Immutable>(spec: &T) -> Vec<u8> {
    spec.as_bytes().to_vec()
}

fn to_group() -> Vec<u8> {
    spec(&EthSpec {
        header: SpecHeader::new(SpecKind::Eth, false, size_of::<EthSpec>()),
        value: EthFilter { dst_mac: GROUP, ..EthFilter::default() },
        mask: EthFilter { dst_mac: [0xff; 6], ..EthFilter::default() },
    })
}

fn from_host(last: u8) -> Vec<u8> {
    spec(&Ipv4Spec {
        header: SpecHeader::new(SpecKind::Ipv4, false, size_of::<Ipv4Spec>()),
        value: Ipv4Filter { src_ip: [192, 0, 2, last], ..Ipv4Filter::default() },
        mask: Ipv4Filter { src_ip: [255; 4], ..Ipv4Filter::default() },
    })
}

fn to_port(kind: SpecKind, port: u16) -> Vec<u8> {
    spec(&PortSpec {
        header: SpecHeader::new(kind, false, size_of::<PortSpec>()),
        value: PortFilter { dst_port: port.to_be_bytes(), src_port: [0; 2] },
        mask: PortFilter { dst_port: [255; 2], src_port: [0; 2] },
    })
}

fn tag(tag_id: u32) -> Vec<u8> {
    let header = SpecHeader::new(SpecKind::ActionTag, false, size_of::<TagAction>());
    spec(&TagAction { header, tag_id, reserved1: 0 })
}

fn dropping() -> Vec<u8> {
    spec(&DropAction { header: SpecHeader::new(SpecKind::ActionDrop, false, 8) })
}

fn rule(session: &Session, qp: &TestQp, specs: &[Vec<u8>]) -> Result<u32, Errno> {
    rule_of(session, qp.qp.handle, FlowType::Normal, 0, FlowFlags::empty(), specs)
}

fn rule_of(
    session: &Session,
    qp: u32,
    kind: FlowType,
    priority: u16,
    flags: FlowFlags,
    specs: &[Vec<u8>],
) -> Result<u32, Errno> {
    let what = flow::CreateFlow {
        qp,
        kind,
        priority,
        port: 1,
        flags,
        spec_count: specs.len() as u8,
        specs: &specs.concat(),
        counters: None,
    };
    flow::create(&*session.file, &what)
}

/// A sender in one program, a receiver with one buffer after another in the other.
struct Pair {
    cq: TestCq,
    qp: TestQp,
    sent: Region,
    far_cq: TestCq,
    far: TestQp,
    received: Region,
}

impl Pair {
    fn new(bench: &Bench) -> Self {
        let cq = bench.one.cq();
        let qp = bench.one.qp(QpType::RawPacket, &cq);
        ready(&bench.one, &qp);
        let far_cq = bench.two.cq();
        let far = bench.two.qp(QpType::RawPacket, &far_cq);
        ready(&bench.two, &far);
        let (sent, received) = (bench.one.region(4096), bench.two.region(4096));
        Self { cq, qp, sent, far_cq, far, received }
    }

    /// Sends a frame; its completion at the other side, if it came.
    fn send(&mut self, bench: &Bench, frame: &[u8]) -> Option<mlx5_prm::cqe::Cqe> {
        self.far.receive(&self.received, 2048);
        send(&bench.one, &mut self.qp, &self.sent, frame);
        assert_eq!(self.cq.expect().0, CqeOpcode::Requester);
        let (opcode, cqe) = self.far_cq.poll()?;
        assert_eq!(opcode, CqeOpcode::ResponderSend);
        assert_eq!(self.received.memory.read(0, frame.len()), frame);
        Some(cqe)
    }
}

#[test]
fn a_frame_goes_from_one_program_to_the_other_where_a_rule_leads_it() {
    let bench = Bench::new();
    let mut pair = Pair::new(&bench);
    assert!(pair.send(&bench, &udp4(&[1; 60])).is_none());
    assert_eq!(bench.missed(), 1);
    let one = rule(&bench.two, &pair.far, &[to_group(), tag(0xa_bcde)]).expect("a rule");
    let cqe = pair.send(&bench, &udp4(&[2; 60])).expect("a frame");
    assert_eq!(cqe.sop_drop_qpn.get(), 0xa_bcde);
    assert_eq!(cqe.srqn_uidx.get(), 0x77);
    flow::destroy(&*bench.two.file, one).expect("a rule");
    assert!(pair.send(&bench, &udp4(&[3; 60])).is_none());
    assert_eq!(bench.sim.violations(), []);
}

#[test]
fn frames_come_back_only_while_two_programs_are_there() {
    let sim = Simulator::new(config());
    let one = Session::on(&sim, 0).expect("a session");
    let off = |sim: &Simulator| sim.fabric().lock().device(0).vport().no_multicast_loopback;
    assert!(off(&sim));
    let two = Session::on(&sim, 0).expect("a session");
    assert!(!off(&sim));
    drop(two);
    assert!(off(&sim));
    drop(one);
}

/// The interface of a kernel listens to its own address and to broadcasts.
#[test]
fn a_program_on_a_virtual_function_gets_what_the_kernels_interface_listens_to() {
    let sim = Simulator::new(config().devices(2).vport_filter(true));
    let (one, two) = (Session::on(&sim, 0), Session::on(&sim, 1));
    let bench = Bench { sim, one: one.expect("a session"), two: two.expect("a session") };
    let mut pair = Pair::new(&bench);
    rule_of(&bench.two, pair.far.qp.handle, FlowType::AllDefault, 0, FlowFlags::empty(), &[])
        .expect("a rule for all that no other takes");
    let own = bench.sim.fabric().lock().device(1).port(1).expect("a port").mac;
    let heard = [own, [0xff; 6], GROUP, [0x02, 0, 0, 0, 0, 0x77]]
        .map(|mac| pair.send(&bench, &ethernet(mac, 0x88b5, &[1; 60])).is_some());
    assert_eq!(heard, [true, true, false, false]);
    assert_eq!(bench.sim.fabric().lock().device(1).frame_counts().filtered, 2);
    assert_eq!(bench.sim.violations(), []);
}

#[test]
fn the_states_are_those_of_two_queues() {
    let bench = Bench::new();
    let mut pair = Pair::new(&bench);
    let state = |qp: &TestQp| {
        let answer = qp::query(&*bench.two.file, qp.qp.handle, QpAttrMask::STATE);
        QpState::from_raw(answer.expect("a QP").qp_state).expect("a state")
    };
    assert_eq!(state(&pair.far), QpState::Rts);
    pair.far.receive(&pair.received, 2048);
    bench.two.modify(&to(&pair.far, QpState::Err)).expect("ERR");
    bench.sim.run_until_idle();
    assert_eq!(pair.far_cq.expect().0, CqeOpcode::ResponderError);
    assert_eq!(state(&pair.far), QpState::Err);
    bench.two.modify(&to(&pair.far, QpState::Reset)).expect("RESET");
    // RESET leads to INIT with a port, and to nothing else.
    assert_eq!(bench.two.modify(&to(&pair.far, QpState::Rtr)), Err(Errno::EINVAL));
    assert_eq!(bench.two.modify(&to(&pair.far, QpState::Init)), Err(Errno::EINVAL));
    bench.two.modify(&init(&pair.far)).expect("INIT");
    assert_eq!(state(&pair.far), QpState::Init);
    // A query finds the state of a send queue that failed by itself.
    send(&bench.one, &mut pair.qp, &pair.sent, &[0; 10]);
    assert_eq!(pair.cq.expect().0, CqeOpcode::RequesterError);
    let answer = qp::query(&*bench.one.file, pair.qp.qp.handle, QpAttrMask::STATE);
    assert_eq!(answer.expect("a QP").qp_state, QpState::Sqe.raw());
}

/// The driver names the states that it remembers to the device, which knows better, and asks only
/// when it is queried.
#[test]
fn a_send_queue_that_failed_is_reset_once_the_driver_was_queried() {
    let bench = Bench::new();
    let mut pair = Pair::new(&bench);
    let query = |qp: &TestQp| {
        let answer = qp::query(&*bench.one.file, qp.qp.handle, QpAttrMask::STATE);
        answer.map(|answer| QpState::from_raw(answer.qp_state).expect("a state"))
    };
    let fail = |pair: &mut Pair| {
        send(&bench.one, &mut pair.qp, &pair.sent, &[0; 10]);
        assert_eq!(pair.cq.expect().0, CqeOpcode::RequesterError);
    };
    for end in [QpState::Reset, QpState::Err] {
        fail(&mut pair);
        assert_eq!(query(&pair.qp), Ok(QpState::Sqe));
        bench.one.modify(&to(&pair.qp, end)).expect("a state that it was asked for");
        if end == QpState::Err {
            assert_eq!(query(&pair.qp), Ok(QpState::Err));
            bench.one.modify(&to(&pair.qp, QpState::Reset)).expect("RESET");
        }
        pair.qp.start_over();
        ready(&bench.one, &pair.qp);
        fail(&mut pair);
        // The receive queue obeys, the send queue does not, and there is no such state.
        assert_eq!(bench.one.modify(&to(&pair.qp, end)), Err(Errno::EINVAL));
        assert_eq!(query(&pair.qp).is_ok(), end == QpState::Err);
        bench.one.modify(&to(&pair.qp, QpState::Reset)).expect("RESET");
        pair.qp.start_over();
        ready(&bench.one, &pair.qp);
    }
}

/// The driver takes the state from the program, and remembers one if it names none.
#[test]
fn a_work_queue_that_failed_is_reset_by_its_state() {
    let bench = Bench::new();
    let queue = work_queue(&bench.two);
    let modify = |from, to| wq::modify(&*bench.two.file, queue.wq.handle, (from, Some(to)), None);
    let (reset, ready, error) = (WqState::Reset, WqState::Ready, WqState::Error);
    for end in [reset, error] {
        modify(None, ready).expect("ready");
        let mut engine = bench.sim.fabric().lock();
        let rqn = queue.wq.wq_num;
        engine.device_mut(0).set_queue_state(rqn, EngineState::Error).expect("a queue");
        drop(engine);
        assert_eq!(modify(None, end), Err(Errno::EINVAL));
        assert_eq!(modify(Some(ready), end), Err(Errno::EINVAL));
        assert_eq!(modify(Some(error), ready), Err(Errno::EINVAL));
        modify(Some(error), end).expect("from the state that it is in");
        modify(None, reset).expect("from the state that is remembered");
        assert_eq!(modify(None, error), Err(Errno::EINVAL));
    }
}

#[test]
fn without_the_right_there_are_no_raw_packets() {
    let session = Session::with(config().net_raw(false));
    let cq = session.cq();
    assert_eq!(session.try_qp(QpType::RawPacket, &cq, None).err(), Some(Errno::EPERM));
    let ud = session.qp(QpType::Ud, &cq);
    assert_eq!(rule(&session, &ud, &[to_group()]), Err(Errno::EPERM));
    let what = matcher::CreateMatcher {
        kind: MatcherType::Normal,
        priority: 0,
        mask: &[0; 64],
        criteria: MatchCriteria::OUTER,
        flags: FlowFlags::empty(),
        table: TableType::NicRx,
    };
    assert_eq!(matcher::create(&*session.file, &what), Err(Errno::EPERM));
}

#[test]
fn neither_infiniband_nor_a_machine_without_them_has_raw_packets() {
    let without = SimConfig::new().ports([PortConfig::ROCE]);
    for config in [SimConfig::new().raw_packets(true), without] {
        let session = Session::with(config);
        let cq = session.cq();
        assert_eq!(session.try_qp(QpType::RawPacket, &cq, None).err(), Some(Errno::EOPNOTSUPP));
    }
}

#[test]
fn the_first_priority_wins_and_rules_for_the_same_packets_share() {
    let bench = Bench::new();
    let mut pair = Pair::new(&bench);
    let late = [from_host(1), tag(2)];
    rule_of(&bench.two, pair.far.qp.handle, FlowType::Normal, 5, FlowFlags::empty(), &late)
        .expect("a rule");
    assert_eq!(pair.send(&bench, &udp4(&[1; 60])).expect("a frame").sop_drop_qpn.get(), 2);
    let early = rule_of(
        &bench.two,
        pair.far.qp.handle,
        FlowType::Normal,
        3,
        FlowFlags::empty(),
        &[from_host(1), to_port(SpecKind::Udp, 2222), tag(1)],
    )
    .expect("a rule");
    assert_eq!(pair.send(&bench, &udp4(&[1; 60])).expect("a frame").sop_drop_qpn.get(), 1);
    assert_eq!(pair.send(&bench, &tcp4(&[1; 60])).expect("a frame").sop_drop_qpn.get(), 2);
    flow::destroy(&*bench.two.file, early).expect("a rule");
    assert_eq!(pair.send(&bench, &udp4(&[1; 60])).expect("a frame").sop_drop_qpn.get(), 2);
    // The same packets once more, for a queue pair of a third program: both have a copy.
    let third = Session::on(&bench.sim, 0).expect("a session");
    let (mut cq, into) = (third.cq(), third.region(4096));
    let mut qp = third.qp(QpType::RawPacket, &cq);
    ready(&third, &qp);
    qp.receive(&into, 2048);
    let add = |session, handle: u32, specs: &[Vec<u8>]| {
        rule_of(session, handle, FlowType::Normal, 5, FlowFlags::empty(), specs)
    };
    assert_eq!(add(&third, qp.qp.handle, &[from_host(1), tag(3)]), Err(Errno::EEXIST));
    let specs = [from_host(1), dropping()];
    assert_eq!(add(&third, qp.qp.handle, &specs), Err(Errno::EEXIST));
    add(&third, qp.qp.handle, &late).expect("a rule");
    assert!(pair.send(&bench, &udp4(&[1; 60])).is_some());
    assert_eq!(cq.expect().0, CqeOpcode::ResponderSend);
}

#[test]
fn a_rule_that_lets_go_on_copies_and_one_that_drops_hides() {
    let bench = Bench::new();
    let mut pair = Pair::new(&bench);
    let handle = pair.far.qp.handle;
    let goes_on = FlowFlags::DONT_TRAP;
    let first = [from_host(1), tag(1)];
    rule_of(&bench.two, handle, FlowType::Normal, 2, goes_on, &first).expect("a rule");
    let default = rule_of(&bench.two, handle, FlowType::AllDefault, 0, FlowFlags::empty(), &[])
        .expect("a rule");
    pair.far.receive(&pair.received, 2048);
    pair.send(&bench, &udp4(&[1; 60])).expect("a frame");
    assert_eq!(pair.far_cq.expect().0, CqeOpcode::ResponderSend, "a copy");
    flow::destroy(&*bench.two.file, default).expect("a rule");
    pair.send(&bench, &udp4(&[1; 60])).expect("a frame");
    assert!(pair.far_cq.poll().is_none());
    let specs = [from_host(1), dropping()];
    rule_of(&bench.two, handle, FlowType::Normal, 1, FlowFlags::empty(), &specs).expect("a rule");
    assert!(pair.send(&bench, &udp4(&[1; 60])).is_none());
}

#[test]
fn a_sniffer_gets_what_its_port_sends_and_what_it_receives() {
    let bench = Bench::new();
    let mut pair = Pair::new(&bench);
    let before = bench.sim.object_counts(0).ethernet;
    let third = Session::on(&bench.sim, 0).expect("a session");
    let (mut cq, into) = (third.cq(), third.region(4096));
    let mut qp = third.qp(QpType::RawPacket, &cq);
    ready(&third, &qp);
    let none = FlowFlags::empty();
    let sniffs = |qp: &TestQp| rule_of(&third, qp.qp.handle, FlowType::Sniffer, 0, none, &[]);
    let rule = sniffs(&qp).expect("a rule");
    for frame in [udp4(&[1; 60]), udp4(&[2; 60])] {
        for _ in 0..3 {
            qp.receive(&into, 2048);
        }
        // No other queue takes it; its group comes back to the port.
        assert!(pair.send(&bench, &frame).is_none());
        for _ in 0..2 {
            assert_eq!(cq.expect().0, CqeOpcode::ResponderSend);
            assert_eq!(into.memory.read(0, frame.len()), frame);
        }
        assert!(cq.poll().is_none());
    }
    // Other sniffers share the entries.
    let second = sniffs(&qp).expect("a rule");
    flow::destroy(&*third.file, rule).expect("a rule");
    assert!(pair.send(&bench, &udp4(&[3; 60])).is_none());
    for _ in 0..2 {
        assert_eq!(cq.expect().0, CqeOpcode::ResponderSend);
    }
    flow::destroy(&*third.file, second).expect("a rule");
    assert!(pair.send(&bench, &udp4(&[4; 60])).is_none());
    assert!(cq.poll().is_none());
    drop((qp, cq, into));
    drop(third);
    assert_eq!(bench.sim.object_counts(0).ethernet, before);
}

#[test]
fn a_matcher_for_other_packets_than_those_that_match_has_no_rules() {
    let bench = Bench::new();
    let pair = Pair::new(&bench);
    for kind in [MatcherType::Sniffer, MatcherType::AllDefault, MatcherType::McDefault] {
        let what = matcher::CreateMatcher {
            kind,
            priority: 0,
            mask: &[0; 64],
            criteria: MatchCriteria::empty(),
            flags: FlowFlags::empty(),
            table: TableType::NicRx,
        };
        let made = matcher::create(&*bench.two.file, &what).expect("a matcher");
        let rule = matcher::CreateRule {
            matcher: made,
            value: &[0; 64],
            destination: Some(matcher::Destination::Qp(pair.far.qp.handle)),
            tag: None,
            actions: &[],
            counter: None,
        };
        let refused = matcher::create_rule(&*bench.two.file, &rule);
        assert_eq!(refused, Err(Errno::EOPNOTSUPP), "{kind:?}");
        matcher::destroy(&*bench.two.file, made).expect("a matcher");
    }
}

#[test]
fn specifications_that_lie_or_contradict_are_refused() {
    let bench = Bench::new();
    let pair = Pair::new(&bench);
    let add = |specs: &[Vec<u8>]| rule(&bench.two, &pair.far, specs);
    let mut long = to_group();
    long[4..6].copy_from_slice(&41u16.to_ne_bytes());
    let mut short = to_group();
    short[4..6].copy_from_slice(&7u16.to_ne_bytes());
    let six = Ipv6Spec {
        header: SpecHeader::new(SpecKind::Ipv6, false, size_of::<Ipv6Spec>()),
        ..Ipv6Spec::default()
    };
    let mut ttl = from_host(1);
    ttl[30] = 0xff;
    assert_eq!(add(&[long]), Err(Errno::EINVAL));
    assert_eq!(add(&[short]), Err(Errno::EINVAL));
    assert_eq!(add(&[from_host(1), spec(&six)]), Err(Errno::EINVAL));
    assert_eq!(add(&[to_port(SpecKind::Tcp, 1), to_port(SpecKind::Udp, 1)]), Err(Errno::EINVAL));
    assert_eq!(add(&[tag(1 << 24)]), Err(Errno::EINVAL));
    assert_eq!(add(&[ttl]), Err(Errno::EOPNOTSUPP));
    assert_eq!(add(&vec![tag(1); 11]), Err(Errno::EINVAL));
    let of = |kind, priority, flags, specs: &[Vec<u8>]| {
        rule_of(&bench.two, pair.far.qp.handle, kind, priority, flags, specs)
    };
    let none = FlowFlags::empty();
    assert_eq!(of(FlowType::Normal, 16, none, &[to_group()]), Err(Errno::ENOMEM));
    assert_eq!(of(FlowType::Normal, 0, FlowFlags::EGRESS, &[]), Err(Errno::EOPNOTSUPP));
    assert_eq!(of(FlowType::AllDefault, 0, FlowFlags::DONT_TRAP, &[]), Err(Errno::EINVAL));
    assert_eq!(bench.sim.object_counts(0).ethernet, 4, "a TIS and a TIR of either");
}

/// `struct ibv_flow_spec_ipv4` has two addresses, and no more.
#[test]
fn a_header_may_be_shorter_or_longer_than_the_kernel_has_it() {
    let bench = Bench::new();
    let mut pair = Pair::new(&bench);
    let whole = from_host(1);
    let (value, mask) = (&whole[8..16], &whole[20..28]);
    let sized = |parts: &[&[u8]]| {
        let mut spec = [&[&whole[..8]], parts].concat().concat();
        let size = spec.len() as u16;
        spec[4..6].copy_from_slice(&size.to_ne_bytes());
        spec
    };
    let short = rule(&bench.two, &pair.far, &[sized(&[value, mask])]).expect("a rule");
    assert!(pair.send(&bench, &udp4(&[1; 60])).is_some());
    flow::destroy(&*bench.two.file, short).expect("a rule");
    let long = sized(&[&whole[8..20], &[0; 4], &whole[20..], &[0; 4]]);
    rule(&bench.two, &pair.far, &[long]).expect("a rule");
    let unknown = sized(&[&whole[8..20], &[0; 4], &whole[20..], &[0, 0, 1, 0]]);
    assert_eq!(rule(&bench.two, &pair.far, &[unknown]), Err(Errno::EINVAL));
}

#[test]
fn counters_count_what_a_rule_takes() {
    let bench = Bench::new();
    let mut pair = Pair::new(&bench);
    let handle = counters::create(&*bench.two.file).expect("counters");
    let count = HandleAction {
        header: SpecHeader::new(SpecKind::ActionCount, false, size_of::<HandleAction>()),
        handle,
        reserved1: 0,
    };
    let described = [
        FlowCountersDesc { description: CounterKind::Bytes.raw(), index: 1 },
        FlowCountersDesc { description: CounterKind::Packets.raw(), index: 0 },
    ];
    let mut values = [0; 2];
    let read = |values: &mut [u64]| counters::read(&*bench.two.file, handle, values, false);
    assert_eq!(read(&mut values), Err(Errno::EINVAL), "nothing counts with them");
    let specs = [to_group(), spec(&count)].concat();
    let what = flow::CreateFlow {
        qp: pair.far.qp.handle,
        kind: FlowType::Normal,
        priority: 0,
        port: 1,
        flags: FlowFlags::empty(),
        spec_count: 2,
        specs: &specs,
        counters: Some(&described),
    };
    let other = rule(&bench.two, &pair.far, &[to_group()]).expect("a rule");
    let refused = flow::create(&*bench.two.file, &what);
    assert_eq!(refused, Err(Errno::EEXIST), "the same packets");
    flow::destroy(&*bench.two.file, other).expect("a rule");
    let rule = flow::create(&*bench.two.file, &what).expect("a rule, with the same descriptions");
    pair.send(&bench, &plain(100)).expect("a frame");
    pair.send(&bench, &plain(60)).expect("a frame");
    read(&mut values).expect("counters");
    assert_eq!(values, [2, 160]);
    assert_eq!(read(&mut values[..1]), Err(Errno::EINVAL), "a value is beyond");
    assert_eq!(counters::destroy(&*bench.two.file, handle), Err(Errno::EBUSY));
    flow::destroy(&*bench.two.file, rule).expect("a rule");
    counters::destroy(&*bench.two.file, handle).expect("counters");
}

#[test]
fn a_matcher_leads_by_the_devices_own_parameters() {
    let bench = Bench::new();
    let mut pair = Pair::new(&bench);
    let mut mask = [0; 64];
    mask[8..14].fill(0xff);
    let mut value = [0; 64];
    value[8..14].copy_from_slice(&GROUP);
    let what = matcher::CreateMatcher {
        kind: MatcherType::Normal,
        priority: 1,
        mask: &mask,
        criteria: MatchCriteria::OUTER,
        flags: FlowFlags::empty(),
        table: TableType::NicRx,
    };
    let made = matcher::create(&*bench.two.file, &what).expect("a matcher");
    let create = |destination, tag| {
        let rule = matcher::CreateRule {
            matcher: made,
            value: &value,
            destination: Some(destination),
            tag,
            actions: &[],
            counter: None,
        };
        matcher::create_rule(&*bench.two.file, &rule)
    };
    let qp = matcher::Destination::Qp(pair.far.qp.handle);
    assert_eq!(create(qp, Some(1 << 24)), Err(Errno::EINVAL));
    let rule = create(qp, Some(9)).expect("a rule");
    assert_eq!(pair.send(&bench, &plain(90)).expect("a frame").sop_drop_qpn.get(), 9);
    assert_eq!(matcher::destroy(&*bench.two.file, made), Err(Errno::EBUSY));
    flow::destroy(&*bench.two.file, rule).expect("a rule");
    let drop = matcher::Destination::Flags(MatcherFlowFlags::DROP);
    create(drop, None).expect("a rule");
    let before = bench.missed();
    assert!(pair.send(&bench, &plain(90)).is_none());
    assert_eq!(bench.missed(), before, "it was dropped, not missed");
}

/// A work queue with one buffer.
struct TestWq {
    wq: wq::Wq,
    cq: TestCq,
    memory: Memory,
    region: Region,
}

fn work_queue(session: &Session) -> TestWq {
    let (cq, memory, region) =
        (session.cq(), Memory::new(&*session.file, 4096).expect("memory"), session.region(4096));
    let what = wq::CreateWq {
        pd: session.pd.handle,
        cq: cq.cq.handle,
        user_handle: 0,
        max_wr: 4,
        max_sge: 1,
        flags: WqFlags::CVLAN_STRIPPING,
        async_events: None,
        driver: mlx5::CreateWq {
            buf_addr: memory.at(0),
            db_addr: memory.at(2048),
            rq_wqe_count: 4,
            rq_wqe_shift: 4,
            user_index: 0x99,
            ..mlx5::CreateWq::default()
        },
    };
    // SAFETY: the memory lives as long as the queue.
    let wq = unsafe { wq::create(&*session.file, &what) }.expect("a WQ");
    for slot in 0..4 {
        memory.write(slot * 16, data(&region, 0, 2048).as_bytes());
    }
    memory.write(2048, &4u32.to_be_bytes());
    TestWq { wq, cq, memory, region }
}

fn hash(mask: RxHashFields) -> CreateQpRss {
    let mut key = [0; 128];
    key[..40].copy_from_slice(&std::array::from_fn::<u8, 40, _>(|n| (n * 53 + 7) as u8));
    CreateQpRss {
        rx_hash_fields_mask: mask.bits(),
        rx_hash_function: RxHashFunctions::TOEPLITZ.bits(),
        rx_key_len: 40,
        rx_hash_key: key,
        ..CreateQpRss::default()
    }
}

#[test]
fn a_hash_queue_pair_spreads_packets_over_work_queues() {
    let bench = Bench::new();
    let mut pair = Pair::new(&bench);
    let session = &bench.two;
    let mut queues = [0; 4].map(|_: u32| work_queue(session));
    for queue in &queues {
        wq::modify(&*session.file, queue.wq.handle, (None, Some(WqState::Ready)), None)
            .expect("ready");
    }
    let handles = [0, 1, 2, 3].map(|n: usize| queues[n].wq.handle);
    let table = wq::create_ind_table(&*session.file, &handles).expect("a table");
    let create = |driver| {
        let what = qp::CreateHashQp {
            pd: session.pd.handle,
            ind_table: table.handle,
            user_handle: 0,
            async_events: None,
            driver,
        };
        qp::create_hash(&*session.file, &what)
    };
    use RxHashFields as Fields;
    let refused = [
        (hash(Fields::SRC_IPV4 | Fields::DST_IPV6), Errno::EINVAL),
        (hash(Fields::SRC_PORT_TCP | Fields::DST_PORT_UDP), Errno::EINVAL),
        (hash(Fields::empty()), Errno::EINVAL),
        (hash(Fields::SRC_IPV4 | Fields::INNER), Errno::EOPNOTSUPP),
        (CreateQpRss { rx_key_len: 39, ..hash(Fields::SRC_IPV4) }, Errno::EINVAL),
        (CreateQpRss { rx_hash_function: 2, ..hash(Fields::SRC_IPV4) }, Errno::EOPNOTSUPP),
    ];
    for (driver, errno) in refused {
        assert_eq!(create(driver).err(), Some(errno));
    }
    let spread = create(hash(Fields::SRC_IPV4 | Fields::SRC_PORT_UDP)).expect("a QP");
    assert_eq!(spread.qp_num, 0);
    let state = qp::query(&*session.file, spread.handle, QpAttrMask::STATE);
    assert_eq!(state.err(), Some(Errno::EOPNOTSUPP));
    assert_eq!(wq::destroy(&*session.file, handles[0]), Err(Errno::EBUSY));
    rule_of(session, spread.handle, FlowType::Normal, 0, FlowFlags::empty(), &[to_group()])
        .expect("a rule");
    let mut reached = [0; 4];
    for port in 0..8u16 {
        let mut frame = udp4(&[7; 60]);
        frame[34..36].copy_from_slice(&(1000 + port * 77).to_be_bytes());
        send(&bench.one, &mut pair.qp, &pair.sent, &frame);
        let hit = queues.iter_mut().zip(0..).find_map(|(queue, n)| Some((n, queue.cq.poll()?)));
        let (n, (opcode, cqe)) = hit.expect("a queue got it");
        assert_eq!((opcode, cqe.srqn_uidx.get()), (CqeOpcode::ResponderSend, 0x99));
        let hash: u32 = cqe.rss_hash_result.get();
        assert_eq!(hash & 3, n, "the hash chooses the queue");
        let queue: &TestWq = &queues[n as usize];
        assert_eq!(queue.region.memory.read(0, frame.len()), frame);
        reached[n as usize] += 1;
    }
    assert!(reached.iter().filter(|count| **count > 0).count() > 1, "{reached:?}");
    // The memory of a ring is the queue's until it ends.
    assert_eq!(queues[0].memory.read(2048, 4), 4u32.to_be_bytes());
}

/// An entry of the table of rate limits.
fn limit(kilobits: u32) -> Vec<u8> {
    let mut limit = PpRateLimitContext::default();
    limit.set_rate_limit(kilobits);
    limit.as_bytes().to_vec()
}

impl Bench {
    /// The rate that the device has at an index.
    fn rate(&self, index: u16) -> Option<u32> {
        let fabric = self.sim.fabric().lock();
        fabric.device(0).ethernet.rates.get(&index).map(|limit| limit.rate)
    }
}

/// Asks for an entry that may be shared.
fn pace(session: &Session, kilobits: u32) -> Result<devx::PacketPacing, Errno> {
    devx::alloc_pp(&*session.file, &limit(kilobits), 0)
}

#[test]
fn rate_limits_of_a_program_are_shared_by_its_own_alone() {
    let bench = Bench::new();
    let one = pace(&bench.one, 100).expect("an entry");
    assert_ne!(one.index, 0);
    assert_eq!(bench.rate(one.index), Some(100));
    let again = pace(&bench.one, 100).expect("an entry");
    assert_eq!(again.index, one.index);
    // The rest of the limit is zero where a program says less of it.
    let short = 100_u32.to_be_bytes();
    let third = devx::alloc_pp(&*bench.one.file, &short, 0).expect("an entry");
    assert_eq!(third.index, one.index);

    let dedicated = devx::alloc_pp(&*bench.one.file, &limit(100), 1).expect("an entry");
    let faster = pace(&bench.one, 101).expect("an entry");
    let others = pace(&bench.two, 100).expect("an entry");
    let mut indices = [one.index, dedicated.index, faster.index, others.index];
    indices.sort_unstable();
    assert!(indices.windows(2).all(|pair| pair[0] != pair[1]), "{indices:?}");
    // A dedicated entry is not shared later.
    assert_eq!(pace(&bench.one, 100).map(|entry| entry.index), Ok(one.index));

    // The last user takes the entry out, and no user before it.
    for handle in [one.handle, again.handle, third.handle] {
        devx::free_pp(&*bench.one.file, handle).expect("an entry");
        assert_eq!(bench.rate(one.index), Some(100));
    }
    let Bench { sim, one, two } = bench;
    drop(one);
    let bench = Bench { one: Session::on(&sim, 0).expect("a session"), two, sim };
    for index in indices {
        assert_eq!(bench.rate(index), (index == others.index).then_some(100), "{index}");
    }
    assert_eq!(devx::free_pp(&*bench.one.file, others.handle), Err(Errno::ENOENT));
    // Free entries are used again, from the lowest on.
    assert_eq!(pace(&bench.one, 7).map(|entry| entry.index), Ok(1));
}

#[test]
fn rate_limits_that_no_device_keeps_are_refused() {
    let bench = Bench::new();
    let file = &*bench.one.file;
    let most = *RateLimit::RATES.end();
    for kilobits in [0, most + 1] {
        assert_eq!(pace(&bench.one, kilobits).err(), Some(Errno::EINVAL), "{kilobits}");
    }
    pace(&bench.one, most).expect("an entry");
    assert_eq!(devx::alloc_pp(file, &limit(100), 2).err(), Some(Errno::EINVAL));
    let mut long = limit(100);
    long.push(0);
    assert_eq!(devx::alloc_pp(file, &long, 0).err(), Some(Errno::EINVAL));

    // The table has one entry less than its size: index zero means no limit.
    for _ in 2..RateLimit::TABLE {
        devx::alloc_pp(file, &limit(100), 1).expect("an entry");
    }
    assert_eq!(devx::alloc_pp(file, &limit(100), 1).err(), Some(Errno::ENOSPC));
    assert_eq!(pace(&bench.one, most).map(|entry| entry.index), Ok(1));

    let infiniband = Session::with(SimConfig::new());
    assert_eq!(pace(&infiniband, 100).err(), Some(Errno::EPROTONOSUPPORT));
    // Without DEVX nothing of the program's own can use an entry.
    let kernel = bench.sim.kernel();
    let info = &sysfs::devices(&*kernel).expect("devices")[0];
    let file = kernel.open(&info.uverbs, info.dev).expect("a file");
    let request = AllocUcontextReqV2 { flags: 0, ..request(1) };
    context::get_context(&*file, &request).expect("a context");
    assert_eq!(devx::alloc_pp(&*file, &limit(100), 0).err(), Some(Errno::EINVAL));
}

#[test]
fn what_is_left_ends_with_the_file() {
    let bench = Bench::new();
    let before = bench.sim.object_counts(0);
    let sim = bench.sim.clone();
    let session = Session::on(&sim, 0).expect("a session");
    let queue = work_queue(&session);
    let table = wq::create_ind_table(&*session.file, &[queue.wq.handle]).expect("a table");
    let what = qp::CreateHashQp {
        pd: session.pd.handle,
        ind_table: table.handle,
        user_handle: 0,
        async_events: None,
        driver: hash(RxHashFields::SRC_IPV4),
    };
    let spread = qp::create_hash(&*session.file, &what).expect("a QP");
    let cq = session.cq();
    let raw = session.qp(QpType::RawPacket, &cq);
    for handle in [spread.handle, raw.qp.handle] {
        rule_of(&session, handle, FlowType::Normal, 0, FlowFlags::empty(), &[to_group()])
            .expect("a rule");
    }
    counters::create(&*session.file).expect("counters");
    assert_ne!(sim.object_counts(0), before);
    drop(session);
    assert_eq!(sim.object_counts(0), before);
}
