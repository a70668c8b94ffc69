//! Packets: raw queue pairs, flow rules, counters, work queues and tables of them.

use crate::bed::*;
use crate::header::*;
use mlx5_sim::{PortConfig, SimConfig};
use mlx5_verbs::abi::*;
use mlx5_verbs::{cq, qp};
use std::ptr::null_mut;

fn bed() -> Bed {
    Bed::with(SimConfig::new().ports([PortConfig::ROCE]).raw_packets(true))
}

/// A group address: the device sends frames to a single address to the wire.
const THERE: [u8; 6] = [0x01, 0x50, 0x56, 0x19, 0x20, 0xa7];
const FRAME: usize = 64;

/// A frame, at the start of the memory.
fn write_frame(bed: &Bed) {
    let mut frame = [0x5a; FRAME];
    frame[..6].copy_from_slice(&THERE);
    frame[6..12].copy_from_slice(&[0x24, 0x8a, 0x07, 0xa5, 0x28, 0xc8]);
    frame[12..14].copy_from_slice(&0x88b5_u16.to_be_bytes());
    bed.memory.write(0, &frame);
}

fn become_state(qp: *mut ibv_qp, state: c_uint) {
    let mut attr: ibv_qp_attr = blank();
    (attr.qp_state, attr.port_num) = (state, 1);
    modify(qp, &mut attr, IBV_QP_STATE | if state == IBV_QPS_INIT { IBV_QP_PORT } else { 0 });
}

fn activate(qp: *mut ibv_qp) {
    [IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS].into_iter().for_each(|to| become_state(qp, to));
}

fn raw(bed: &Bed, context: *mut ibv_context, pd: *mut ibv_pd, cq: *mut ibv_cq) -> *mut ibv_qp {
    let mut init: ibv_qp_init_attr_ex = blank();
    (init.send_cq, init.recv_cq, init.pd) = (cq, cq, pd);
    init.cap = bed.qp_init(IBV_QPT_RAW_PACKET, cq).cap;
    init.cap.max_recv_sge = 1;
    (init.qp_type, init.comp_mask) = (IBV_QPT_RAW_PACKET, IBV_QP_INIT_ATTR_PD);
    let qp = made(create_qp_ex(context, &mut init));
    activate(qp);
    qp
}

/// A separate context that sends: a device delivers a context's own packets to it only if other
/// contexts have it open, too.
struct Sender {
    context: *mut ibv_context,
    pd: *mut ibv_pd,
    mr: *mut ibv_mr,
    cq: *mut ibv_cq,
    qp: *mut ibv_qp,
}

impl Sender {
    fn new(bed: &Bed) -> Self {
        write_frame(bed);
        let context = made(c!(mlx5_verbs::open::open_device(bed.device)));
        let pd = made(c!(mlx5_verbs::pd::alloc_pd(context)));
        let mr = made(c!(mlx5_verbs::mr::reg_mr(pd, bed.memory.start.cast(), 4096, 0)));
        let cq = made(c!(cq::create_cq(context, 16, null_mut(), null_mut(), 0)));
        let qp = raw(bed, context, pd, cq);
        Self { context, pd, mr, cq, qp }
    }

    fn send(&self, bed: &Bed) {
        let sge = ibv_sge { lkey: c!((*self.mr).lkey), ..bed.sge(0, FRAME as u32) };
        send(self.qp, 1, sge);
        bed.run();
        assert_eq!(outcomes(self.cq), [(1, IBV_WC_SUCCESS)]);
    }

    fn close(self) {
        ok(c!(qp::create::destroy_qp(self.qp)));
        ok(c!(cq::destroy_cq(self.cq)));
        ok(c!(mlx5_verbs::mr::dereg_mr(self.mr)));
        ok(c!(mlx5_verbs::domain::dealloc_pd(self.pd)));
        ok(c!(mlx5_verbs::close::close_device(self.context)));
    }
}

/// A rule for the frames of an address, and an optional action. The parts follow each other without
/// padding.
#[repr(C, packed(4))]
struct Rule {
    attr: ibv_flow_attr,
    eth: ibv_flow_spec_eth,
    count: ibv_flow_spec_counter_action,
}

fn rule(counters: *mut ibv_counters) -> Rule {
    let mut rule: Rule = blank();
    let attr = &mut rule.attr;
    (attr.r#type, attr.size, attr.port) = (IBV_FLOW_ATTR_NORMAL, size_of::<Rule>() as u16, 1);
    attr.num_of_specs = if counters.is_null() { 1 } else { 2 };
    rule.eth.r#type = IBV_FLOW_SPEC_ETH;
    rule.eth.size = size_of::<ibv_flow_spec_eth>() as u16;
    rule.eth.val.dst_mac = THERE;
    rule.eth.mask.dst_mac = [0xff; 6];
    rule.count.r#type = IBV_FLOW_SPEC_ACTION_COUNT;
    rule.count.size = size_of::<ibv_flow_spec_counter_action>() as u16;
    rule.count.counters = counters;
    rule
}

#[test]
fn a_rule_brings_its_packets_to_a_queue_pair_until_it_is_destroyed() {
    let mut bed = bed();
    let sender = Sender::new(&bed);
    let cq = bed.cq(16);
    let qp = raw(&bed, bed.context, bed.pd, cq);
    for wr_id in 0..2 {
        ok(receive(qp, wr_id, bed.sge(HALF, 2048)));
    }
    sender.send(&bed);
    assert_eq!(poll(cq).len(), 0, "there is no rule");
    let mut wanted = rule(null_mut());
    let flow = made(create_flow(qp, &raw mut wanted.attr));
    sender.send(&bed);
    let came = poll(cq);
    assert_eq!(came.len(), 1);
    let wc = came[0];
    assert_eq!((wc.wr_id, wc.status, wc.byte_len), (0, IBV_WC_SUCCESS, FRAME as u32));
    assert_eq!(bed.memory.read::<FRAME>(HALF as usize), bed.memory.read(0));
    ok(destroy_flow(flow));
    sender.send(&bed);
    assert_eq!(poll(cq).len(), 0, "the rule is gone");
    // Attributes that form no rule.
    wanted.eth.r#type = 0x77;
    not_made(create_flow(qp, &raw mut wanted.attr), libc::EINVAL);
    wanted.eth.r#type = IBV_FLOW_SPEC_ETH;
    wanted.eth.size = 12;
    not_made(create_flow(qp, &raw mut wanted.attr), libc::EINVAL);
    ok(c!(qp::create::destroy_qp(qp)));
    sender.close();
    bed.end();
}

#[test]
fn counters_count_what_their_rule_brings_and_go_after_it() {
    let mut bed = bed();
    let sender = Sender::new(&bed);
    let cq = bed.cq(16);
    let qp = raw(&bed, bed.context, bed.pd, cq);
    let mut none: ibv_counters_init_attr = blank();
    let counters = made(create_counters(bed.context, &mut none));
    let attach = |counter_desc, index| {
        let mut attr = ibv_counter_attach_attr { counter_desc, index, comp_mask: 0 };
        attach_counters(counters, &mut attr, null_mut())
    };
    ok(attach(IBV_COUNTER_PACKETS, 1));
    ok(attach(IBV_COUNTER_BYTES, 0));
    assert_eq!(attach(17, 2), libc::EOPNOTSUPP);
    let mut wanted = rule(counters);
    let flow = made(create_flow(qp, &raw mut wanted.attr));
    assert_eq!(attach(IBV_COUNTER_PACKETS, 2), libc::EBUSY, "a rule counts");
    for wr_id in 0..3 {
        ok(receive(qp, wr_id, bed.sge(HALF, 2048)));
        sender.send(&bed);
    }
    let mut values = [0; 2];
    ok(read_counters(counters, values.as_mut_ptr(), 2, 0));
    assert_eq!(values, [3 * FRAME as u64, 3]);
    assert_eq!(read_counters(counters, null_mut(), 2, 0), libc::EINVAL);
    assert_eq!(read_counters(counters, values.as_mut_ptr(), 2, 8), libc::EINVAL);
    assert_eq!(destroy_counters(counters), libc::EBUSY);
    ok(destroy_flow(flow));
    ok(destroy_counters(counters));
    none.comp_mask = 1;
    not_made(create_counters(bed.context, &mut none), libc::EOPNOTSUPP);
    ok(c!(qp::create::destroy_qp(qp)));
    sender.close();
    bed.end();
}

fn wq_init(bed: &Bed, cq: *mut ibv_cq) -> ibv_wq_init_attr {
    let mut init: ibv_wq_init_attr = blank();
    (init.wq_type, init.max_wr, init.max_sge) = (IBV_WQT_RQ, 8, 1);
    (init.pd, init.cq) = (bed.pd, cq);
    init
}

fn set_wq(wq: *mut ibv_wq, wq_state: c_uint) -> c_int {
    let mut attr: ibv_wq_attr = blank();
    (attr.attr_mask, attr.wq_state) = (IBV_WQ_ATTR_STATE, wq_state);
    modify_wq(wq, &mut attr)
}

fn post_wq(wq: *mut ibv_wq, wr_id: u64, mut sge: ibv_sge) -> c_int {
    let mut wr = ibv_recv_wr { wr_id, next: null_mut(), sg_list: &mut sge, num_sge: 1 };
    let mut bad = null_mut();
    c!(((*wq).post_recv.unwrap())(wq, &mut wr, &mut bad))
}

#[test]
fn a_table_of_work_queues_spreads_the_packets_of_its_queue_pair() {
    let mut bed = bed();
    let sender = Sender::new(&bed);
    let cq = bed.cq(32);
    let mut init = wq_init(&bed, cq);
    let queues = [0; 2].map(|_| made(create_wq(bed.context, &mut init)));
    assert!(init.max_wr >= 8 && init.max_sge >= 1);
    for wq in queues {
        assert_eq!(c!((*wq).state), IBV_WQS_RESET);
        ok(set_wq(wq, IBV_WQS_RDY));
        assert_eq!(c!((*wq).state), IBV_WQS_RDY);
        for wr_id in 0..2 {
            ok(post_wq(wq, wr_id, bed.sge(HALF, 2048)));
        }
    }
    let mut list = queues;
    let mut wanted: ibv_rwq_ind_table_init_attr = blank();
    (wanted.log_ind_tbl_size, wanted.ind_tbl) = (1, list.as_mut_ptr());
    let table = made(create_rwq_ind_table(bed.context, &mut wanted));
    assert_eq!(destroy_wq(queues[0]), libc::EBUSY, "a table has it");
    let mut key = [7_u8; 40];
    let mut hash: ibv_qp_init_attr_ex = blank();
    hash.qp_type = IBV_QPT_RAW_PACKET;
    hash.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH;
    (hash.pd, hash.rwq_ind_tbl) = (bed.pd, table);
    hash.rx_hash_conf = ibv_rx_hash_conf {
        rx_hash_function: IBV_RX_HASH_FUNC_TOEPLITZ as u8,
        rx_hash_key_len: 40,
        rx_hash_key: key.as_mut_ptr(),
        rx_hash_fields_mask: (IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV4).into(),
    };
    let qp = made(create_qp_ex(bed.context, &mut hash));
    assert_eq!(destroy_rwq_ind_table(table), libc::EBUSY, "a queue pair has it");
    let mut to_there = rule(null_mut());
    let flow = made(create_flow(qp, &raw mut to_there.attr));
    sender.send(&bed);
    assert_eq!(outcomes(cq), [(0, IBV_WC_SUCCESS)]);
    ok(destroy_flow(flow));
    ok(c!(qp::create::destroy_qp(qp)));
    ok(destroy_rwq_ind_table(table));
    queues.into_iter().for_each(|wq| ok(destroy_wq(wq)));
    wanted.comp_mask = 1;
    not_made(create_rwq_ind_table(bed.context, &mut wanted), libc::EINVAL);
    (wanted.comp_mask, wanted.log_ind_tbl_size) = (0, 40);
    not_made(create_rwq_ind_table(bed.context, &mut wanted), libc::EINVAL);
    sender.close();
    bed.end();
}

#[test]
fn a_work_queue_that_starts_over_has_all_its_room_and_no_completion_from_before() {
    let mut bed = bed();
    let cq = bed.cq(32);
    let mut init = wq_init(&bed, cq);
    let wq = made(create_wq(bed.context, &mut init));
    for _ in 0..3 {
        ok(set_wq(wq, IBV_WQS_RDY));
        let posted = (0..).take_while(|wr_id| post_wq(wq, *wr_id, bed.sge(HALF, 64)) == 0).count();
        assert!(posted >= 8, "{posted}");
        assert_eq!(post_wq(wq, 99, bed.sge(HALF, 64)), libc::ENOMEM);
        ok(set_wq(wq, IBV_WQS_ERR));
        bed.run();
        ok(set_wq(wq, IBV_WQS_RESET));
        ok(set_wq(wq, IBV_WQS_RDY));
        assert_eq!(poll(cq).len(), 0);
        ok(set_wq(wq, IBV_WQS_RESET));
    }
    ok(destroy_wq(wq));
    bed.end();
}

#[test]
fn invalid_work_queue_and_invalid_change_are_refused() {
    let mut bed = bed();
    let cq = bed.cq(32);
    let refused = |change: &dyn Fn(&mut ibv_wq_init_attr), expected| {
        let mut init = wq_init(&bed, cq);
        change(&mut init);
        not_made(create_wq(bed.context, &mut init), expected);
    };
    refused(&|init| init.wq_type = 5, libc::EINVAL);
    refused(&|init| init.max_wr = 0, libc::EINVAL);
    refused(&|init| init.pd = null_mut(), libc::EINVAL);
    refused(&|init| init.cq = null_mut(), libc::EINVAL);
    refused(&|init| init.comp_mask = 1 << 9, libc::EINVAL);
    let mut init = wq_init(&bed, cq);
    let wq = made(create_wq(bed.context, &mut init));
    let mut attr: ibv_wq_attr = blank();
    assert_eq!(modify_wq(wq, &mut attr), libc::EINVAL, "nothing is changed");
    attr.attr_mask = 1 << 9;
    assert_eq!(modify_wq(wq, &mut attr), libc::EINVAL);
    assert_eq!(set_wq(wq, 77), libc::EINVAL);
    (attr.attr_mask, attr.curr_wq_state) =
        (IBV_WQ_ATTR_STATE | IBV_WQ_ATTR_CURR_STATE, IBV_WQS_RDY);
    attr.wq_state = IBV_WQS_RDY;
    assert_eq!(modify_wq(wq, &mut attr), libc::EINVAL, "it is in another state");
    assert_eq!(c!((*wq).state), IBV_WQS_RESET);
    ok(destroy_wq(wq));
    bed.end();
}
