//! Raw packet queue pairs: the requests to the kernel, and the contents of the rings.

use super::*;
use crate::testing::Altered;
use crate::transport::{RawPacket, Rc};
use mlx5_uapi::ioctl::{attr, method};
use mlx5_uapi::mlx5::ModifyQp as DriverModifyQp;
use mlx5_uapi::mlx5::{AllocUcontextResp, CreateQp, QpFlags, QueryDeviceResp};
use mlx5_uapi::page_size;
use mlx5_uapi::verbs::{QpCap, QpCreateFlags};
use mlx5_uapi::write_cmd::{ExModifyQp, ExQueryDeviceResp, ModifyQp, WriteCommand};
use mlx5_wqe::{QueueState, SendFlags};
use std::mem::offset_of;
use std::sync::{Arc, Mutex};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

const HANDLE: u32 = 0x7777;
const NUMBER: u32 = 0x00_1234;

/// A kernel with raw packet queue pairs that do nothing: it records the calls on them.
#[derive(Default)]
struct Kernel {
    created: Mutex<Vec<(u64, QpCreateFlags, QpCap, CreateQp)>>,
    modified: Mutex<Vec<(u32, u8, u8, u32)>>,
    /// The burst limits in changes that have them.
    bursts: Mutex<Vec<(u32, u16)>>,
    destroyed: Mutex<usize>,
    /// Refuses the next creation.
    refuses: Mutex<Option<Errno>>,
}

/// The device's properties.
#[derive(Clone, Copy)]
struct Says {
    raw_packet_caps: u32,
    max_tso: u32,
    inline_mode: u8,
    rates: (u32, u32, u8),
}

const ABLE: Says =
    Says { raw_packet_caps: 0b111, max_tso: 1 << 18, inline_mode: 1, rates: (10, 1000, 1) };
const RAW_TYPE: u32 = 1 << 8;

fn context(simulator: &Simulator, says: Says) -> (Context, Arc<Kernel>) {
    let noted = Arc::new(Kernel::default());
    let kernel = Arc::clone(&noted);
    let altered = Altered::new(simulator.kernel(), move |call| {
        use attr::create_qp as id;
        match call.method {
            method::QP_CREATE if call.number(id::TYPE) == Some(8) => {
                if let Some(errno) = kernel.refuses.lock().unwrap().take() {
                    return Err(errno);
                }
                let flags = call.number(id::FLAGS).unwrap_or(0) as u32;
                let driver = CreateQp::read_from_bytes(call.input(attr::uhw::IN)).unwrap();
                let cap = QpCap::read_from_bytes(call.input(id::CAP)).unwrap();
                let user_handle = call.number(id::USER_HANDLE).unwrap();
                let flags = QpCreateFlags::from_bits_retain(flags);
                kernel.created.lock().unwrap().push((user_handle, flags, cap, driver));
                call.output(id::RESP_QP_NUM).copy_from_slice(&NUMBER.to_ne_bytes());
                call.made(id::HANDLE, HANDLE);
                Ok(())
            }
            method::QP_DESTROY
                if call.number(attr::destroy_qp::HANDLE) == Some(u64::from(HANDLE)) =>
            {
                *kernel.destroyed.lock().unwrap() += 1;
                call.output(attr::destroy_qp::RESP).fill(0);
                Ok(())
            }
            method::GET_CONTEXT => {
                call.pass()?;
                let at = offset_of!(AllocUcontextResp, eth_min_inline);
                call.output(attr::uhw::OUT)[at] = says.inline_mode;
                Ok(())
            }
            method::INVOKE_WRITE => {
                let command = call.number(attr::invoke_write::WRITE_CMD).unwrap() as u32;
                let put = |to: &mut [u8], at: usize, value: u32| {
                    to[at..][..4].copy_from_slice(&value.to_ne_bytes());
                };
                match WriteCommand(command) {
                    WriteCommand::MODIFY_QP | WriteCommand::MODIFY_QP_EX => {
                        let request = call.input(attr::invoke_write::CORE_IN);
                        let (base, _) = ModifyQp::read_from_prefix(request).unwrap();
                        if base.qp_handle != HANDLE {
                            return call.pass();
                        }
                        let rate = ExModifyQp::read_from_prefix(request)
                            .map_or(0, |(request, _)| request.rate_limit);
                        let note = (base.attr_mask, base.qp_state, base.port_num, rate);
                        kernel.modified.lock().unwrap().push(note);
                        if WriteCommand(command) == WriteCommand::MODIFY_QP_EX {
                            let driver = call.input(attr::uhw::IN);
                            let driver = DriverModifyQp::read_from_bytes(driver).unwrap();
                            let burst = driver.burst_info;
                            let note = (burst.max_burst_sz, burst.typical_pkt_sz);
                            kernel.bursts.lock().unwrap().push(note);
                        }
                        Ok(())
                    }
                    WriteCommand::QUERY_DEVICE_EX => {
                        call.pass()?;
                        let core = call.output(attr::invoke_write::CORE_OUT);
                        let at = offset_of!(ExQueryDeviceResp, raw_packet_caps);
                        put(core, at, says.raw_packet_caps);
                        let driver = call.output(attr::uhw::OUT);
                        put(driver, offset_of!(QueryDeviceResp, tso_caps.max_tso), says.max_tso);
                        let at = offset_of!(QueryDeviceResp, tso_caps.supported_qpts);
                        put(driver, at, RAW_TYPE);
                        let at = offset_of!(QueryDeviceResp, packet_pacing_caps);
                        put(driver, at, says.rates.0);
                        put(driver, at + 4, says.rates.1);
                        put(driver, at + 8, if says.rates.1 == 0 { 0 } else { RAW_TYPE });
                        driver[at + 12] = says.rates.2;
                        Ok(())
                    }
                    _ => call.pass(),
                }
            }
            _ => call.pass(),
        }
    });
    (devices_on(altered).unwrap()[0].open().unwrap(), noted)
}

fn queues(context: &Context) -> (ProtectionDomain, CompletionQueue) {
    (context.alloc_pd().unwrap(), context.create_cq(16).build().unwrap())
}

#[test]
fn each_queue_has_pages_of_its_own_and_one_record_counts_both() {
    let simulator = Simulator::new(roce());
    let (context, kernel) = context(&simulator, ABLE);
    let (pd, cq) = queues(&context);
    for (sends, receives) in [(64, 64), (1, 3), (300, 5), (8, 1000), (4, 0)] {
        let build = pd.create_qp::<RawPacket>(&cq, &cq).max_send_wr(sends).max_recv_wr(receives);
        let qp = build.vlan_stripping(true).scatter_fcs(true).build().unwrap();
        let (_, flags, cap, driver) = kernel.created.lock().unwrap().pop().unwrap();
        assert_eq!(flags, QpCreateFlags::CVLAN_STRIPPING | QpCreateFlags::SCATTER_FCS);
        assert_eq!(cap.max_recv_wr, qp.caps().max_recv_wr);
        let receive_bytes = u64::from(driver.rq_wqe_count) << driver.rq_wqe_shift;
        let page = page_size() as u64;
        assert_eq!(driver.buf_addr % page, 0);
        assert_eq!(driver.sq_buf_addr % page, 0);
        assert!(driver.sq_buf_addr >= driver.buf_addr + receive_bytes, "behind the receives");
        assert_eq!(driver.sq_wqe_count, qp.caps().send_blocks);
        assert_eq!(driver.rq_wqe_count, if receives == 0 { 0 } else { qp.caps().max_recv_wr });
        let raw = qp.raw_parts().unwrap();
        assert_eq!(raw.send.start.as_ptr().addr() as u64, driver.sq_buf_addr);
        assert_eq!(raw.receive.start.as_ptr().addr() as u64, driver.buf_addr);
        assert_eq!(raw.record.as_ptr().addr() as u64, driver.db_addr);
        assert_eq!(qp.qp_num(), NUMBER);
        qp.destroy().unwrap();
    }
    assert_eq!(*kernel.destroyed.lock().unwrap(), 5);
}

#[test]
fn a_queue_pair_of_connections_names_one_buffer() {
    let simulator = Simulator::new(roce());
    let context = open(&simulator);
    let (pd, cq) = queues(&context);
    let qp = pd.create_qp::<crate::transport::Rc>(&cq, &cq).build().unwrap();
    let raw = qp.raw_parts().unwrap();
    let caps = qp.caps();
    let bytes = caps.max_recv_wr as usize * raw.receive.stride as usize;
    assert_eq!(raw.send.start, raw.receive.start.map_addr(|addr| addr.checked_add(bytes).unwrap()));
}

#[test]
fn it_needs_a_port_and_three_steps() {
    let simulator = Simulator::new(roce());
    let (context, kernel) = context(&simulator, ABLE);
    let (pd, cq) = queues(&context);
    let mut qp = pd.create_qp::<RawPacket>(&cq, &cq).build().unwrap();
    qp.activate(1).unwrap();
    assert_eq!(qp.state(), QueueState::ReadyToSend);
    // State; the first change also has the port.
    let steps = [(1 | 1 << 5, 1, 1, 0), (1, 2, 0, 0), (1, 3, 0, 0)];
    assert_eq!(*kernel.modified.lock().unwrap(), steps);
    qp.reset().unwrap();
    qp.modify(&QpAttributes::new().qp_state(QueueState::Init).port_num(1)).unwrap();
    qp.activate(1).unwrap();
    let wrong = qp.modify(&QpAttributes::new().qp_state(QueueState::ReadyToSend).pkey_index(0));
    assert!(wrong.unwrap_err().to_string().contains("raw packet queue pair, RTS to RTS"));
}

#[test]
fn a_packet_is_written_to_the_send_ring_behind_the_receives() {
    let simulator = Simulator::new(roce());
    let (context, _kernel) = context(&simulator, ABLE);
    let (pd, cq) = queues(&context);
    let build = pd.create_qp::<RawPacket>(&cq, &cq).max_tso_header(64);
    let mut qp = build.max_inline_data(60).build().unwrap();
    let frame = Sge { addr: 0x1000, length: 60, lkey: 7 };
    let refused = qp.post(|batch| batch.wr(1, SendFlags::SIGNALED).send().sge(frame));
    assert_eq!(refused.unwrap_err().error(), PostError::State(QueueState::Reset));
    qp.activate(1).unwrap();
    qp.post(|batch| {
        batch.wr(1, SendFlags::SIGNALED | SendFlags::IP_CSUM).send().sge(frame);
        let packet = Segmented { header: &[5; 54], mss: 1000, payload: &[frame] };
        batch.wr(2, SendFlags::SIGNALED).send_tso(packet);
    })
    .unwrap();
    let ring = qp.send_ring();
    assert_eq!(ring[3], 0x0a);
    assert_eq!(ring[5..7], [NUMBER.to_be_bytes()[2], NUMBER.to_be_bytes()[3]]);
    assert_eq!(ring[20], 0xc0, "checksums");
    assert_eq!(ring[32..48], [0, 0, 0, 60, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0x10, 0]);
    assert_eq!((ring[64 + 3], ring[64 + 20]), (0x0e, 0));
    assert_eq!(ring[64 + 22..64 + 24], 1000_u16.to_be_bytes());
    assert_eq!(ring[64 + 28..64 + 30], [0, 54]);

    // The list form, and a collection of any transport.
    let mut any = AnyQueuePair::from(qp);
    let wr = SendWr { data: Data::Sges(&[frame]), ..SendWr::default() };
    any.post_send(&[wr]).unwrap();
    let error = any.drained().unwrap_err();
    assert!(error.to_string().contains("not a queue pair to ask"), "{error}");
}

#[test]
fn a_completion_of_a_receive_is_found_by_the_user_index_and_has_the_flow_tag() {
    let simulator = Simulator::new(roce());
    let (context, kernel) = context(&simulator, ABLE);
    let (pd, mut cq) = queues(&context);
    let mut qp = pd.create_qp::<RawPacket>(&cq, &cq).user_tag(0xface).build().unwrap();
    qp.activate(1).unwrap();
    qp.recv(42, Sge { addr: 0x2000, length: 1514, lkey: 7 }).unwrap();
    let (.., driver) = *kernel.created.lock().unwrap().last().unwrap();
    let ring = cq.hand_over().unwrap().cqes;
    let mut cqe = mlx5_prm::cqe::Cqe::new_zeroed();
    cqe.srqn_uidx.set(driver.uidx);
    cqe.byte_count.set(64);
    (cqe.hds_ip_ext, cqe.l4_l3_hdr_type) = (0b111, 2 << 4 | 2 << 2 | 1);
    cqe.vlan_info.set(0x123);
    cqe.sop_drop_qpn.set(0x55);
    cqe.timestamp.set(99);
    // A send received; the first lap.
    cqe.op_own = 2 << 4;
    let bytes = cqe.as_bytes();
    // SAFETY: the first CQE of the ring, to which nothing else writes.
    unsafe { ring.start.as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    let mut seen = 0;
    cq.poll(4, |completion| {
        seen += 1;
        assert_eq!((completion.wr_id(), completion.user_tag()), (42, 0xface));
        assert_eq!((completion.status(), completion.byte_len()), (Ok(()), Some(64)));
        assert_eq!((completion.flow_tag(), completion.timestamp()), (Some(0x55), Some(99)));
        let headers = completion.packet_headers().unwrap();
        assert_eq!(headers.transport(), Some(TransportHeader::Udp));
        assert_eq!((headers.vlan(), completion.checksum_ok()), (Some(0x123), Some(true)));
    })
    .unwrap();
    assert_eq!(seen, 1);
}

#[test]
fn a_device_that_needs_the_header_inline_says_so_when_it_is_missing() {
    let simulator = Simulator::new(roce());
    // L2, and values that libmlx5 treats as L2: no answer, and more than L2.
    for inline_mode in [0, 2, 3, 4] {
        let (context, _kernel) = context(&simulator, Says { inline_mode, ..ABLE });
        let (pd, cq) = queues(&context);
        let mut qp = pd.create_qp::<RawPacket>(&cq, &cq).build().unwrap();
        qp.activate(1).unwrap();
        let frame = Sge { addr: 0x1000, length: 42, lkey: 7 };
        let refused = qp.post(|batch| batch.wr(1, SendFlags::SIGNALED).send().sge(frame));
        assert_eq!(refused.unwrap_err().error(), PostError::InlineHeaderMissing);
        qp.post(|batch| {
            batch.wr(1, SendFlags::SIGNALED).send().inline_header(&[9; 18]).sge(frame);
        })
        .unwrap();
        assert_eq!(qp.send_ring()[28..48], [&[0, 18][..], &[9; 18]].concat());
    }
}

/// A simulated device supports raw packets only on request, and the kernel's answer alone does not
/// say so.
#[test]
fn a_device_without_raw_packets_says_what_was_forgotten() {
    let simulator = Simulator::new(SimConfig::new().ports([PortConfig::ROCE]));
    let context = devices_on(simulator.kernel()).unwrap().remove(0).open().unwrap();
    let (pd, cq) = queues(&context);
    let errors = [
        pd.create_qp::<RawPacket>(&cq, &cq).build().map(drop).unwrap_err(),
        pd.create_wq(&cq).build().map(drop).unwrap_err(),
        context.create_ethernet_queue(1).build().map(drop).unwrap_err(),
        context.create_matcher(crate::flow::MatchFields::new()).build().map(drop).unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::NotSupported, "{error}");
        let text = error.to_string();
        assert!(text.contains("raw packets") && text.contains("raw_packets(true)"), "{text}");
    }
    // The error for a process without the capability names it.
    let denied = Error::kernel("create_qp", Errno::EPERM).to_string();
    assert!(denied.contains("CAP_NET_RAW for raw packets"), "{denied}");
}

#[test]
fn missing_capability_is_refused_by_name_without_a_call() {
    let simulator = Simulator::new(roce());
    let none = Says { raw_packet_caps: 0, max_tso: 0, rates: (0, 0, 0), ..ABLE };
    let (context, kernel) = context(&simulator, none);
    let (pd, cq) = queues(&context);
    let qp = || pd.create_qp::<RawPacket>(&cq, &cq);
    let srq = pd.create_srq(4).build().unwrap();
    for (builder, text, kind) in [
        (qp().vlan_stripping(true), "tags: omit `vlan_stripping`", ErrorKind::NotSupported),
        (qp().scatter_fcs(true), "sequence: omit `scatter_fcs`", ErrorKind::NotSupported),
        (qp().max_tso_header(64), "(TSO): omit `max_tso_header`", ErrorKind::NotSupported),
        (qp().send_ops(SendOps::RDMA_READ), "RawPacket does not have", ErrorKind::NotSupported),
        (qp().srq(&srq), "no shared receive queue", ErrorKind::InvalidArgument),
        (qp().max_recv_wr(0).wqe_signature(true), "cannot be signed", ErrorKind::InvalidArgument),
        (qp().block_multicast_loopback(true), "self_loopback", ErrorKind::InvalidArgument),
    ] {
        let error = builder.build().unwrap_err();
        assert!(error.to_string().contains(text), "{error}");
        assert_eq!(error.kind(), kind, "{error}");
    }
    assert!(kernel.created.lock().unwrap().is_empty());
    let mut made = qp().build().unwrap();
    made.activate(1).unwrap();
    let error = made.set_rate_limit(RateLimit { rate: 100, ..Default::default() }).unwrap_err();
    assert!(error.to_string().contains("no packet pacing"), "{error}");
    assert_eq!(error.kind(), ErrorKind::NotSupported);
}

#[test]
fn options_of_tunnels_and_loopback_are_flags_of_the_driver() {
    let simulator = Simulator::new(roce());
    let (context, kernel) = context(&simulator, ABLE);
    let (pd, cq) = queues(&context);
    let qp = || pd.create_qp::<RawPacket>(&cq, &cq);
    let page = QpFlags::UAR_PAGE_INDEX;
    for (builder, flags) in [
        (qp(), page),
        (qp().scatter_to_cqe(true), page),
        (qp().tunnel_offloads(true), page | QpFlags::TUNNEL_OFFLOADS),
        (qp().self_loopback(true, false), page | QpFlags::TIR_ALLOW_SELF_LB_UC),
        (qp().self_loopback(false, true), page | QpFlags::TIR_ALLOW_SELF_LB_MC),
    ] {
        builder.build().unwrap();
        let (.., driver) = kernel.created.lock().unwrap().pop().unwrap();
        assert_eq!(driver.flags, flags.bits());
    }
}

#[test]
fn a_rate_limit_is_set_in_rts_within_what_the_device_has() {
    let simulator = Simulator::new(roce());
    let (context, kernel) = context(&simulator, ABLE);
    let (pd, cq) = queues(&context);
    let mut qp = pd.create_qp::<RawPacket>(&cq, &cq).build().unwrap();
    let limit = |rate| RateLimit { rate, max_burst: 3000, typical_packet: 64 };
    assert!(qp.set_rate_limit(limit(100)).unwrap_err().to_string().contains("in state RTS"));
    qp.activate(1).unwrap();
    kernel.modified.lock().unwrap().clear();
    for rate in [10, 1000, 0] {
        qp.set_rate_limit(limit(rate)).unwrap();
        let note = kernel.modified.lock().unwrap().pop();
        assert_eq!(note, Some((1 | 1 << 25, 3, 0, rate)));
        assert_eq!(kernel.bursts.lock().unwrap().pop(), Some((3000, 64)));
    }
    for rate in [9, 1001] {
        let error = qp.set_rate_limit(limit(rate)).unwrap_err();
        assert!(error.to_string().contains("the device has 10 to 1000"), "{error}");
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    }
    assert!(kernel.modified.lock().unwrap().is_empty());
    let (_, _, mut connection) = pd.create_qp::<Rc>(&cq, &cq).build().unwrap().split();
    let error = connection.set_rate_limit(limit(100)).unwrap_err();
    assert!(error.to_string().contains("only queue pairs of raw packets"), "{error}");
}

#[test]
fn a_device_that_limits_no_bursts_limits_rates() {
    let simulator = Simulator::new(roce());
    let (context, kernel) = context(&simulator, Says { rates: (10, 1000, 0), ..ABLE });
    let (pd, cq) = queues(&context);
    let mut qp = pd.create_qp::<RawPacket>(&cq, &cq).build().unwrap();
    qp.activate(1).unwrap();
    kernel.modified.lock().unwrap().clear();
    for (max_burst, typical_packet) in [(3000, 0), (0, 64), (3000, 64)] {
        let limit = RateLimit { rate: 100, max_burst, typical_packet };
        let error = qp.set_rate_limit(limit).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotSupported);
        assert!(error.to_string().contains("does not limit bursts"), "{error}");
    }
    assert!(kernel.modified.lock().unwrap().is_empty());
    qp.set_rate_limit(RateLimit { rate: 100, ..Default::default() }).unwrap();
    assert_eq!(kernel.modified.lock().unwrap().len(), 1);
    assert_eq!(kernel.bursts.lock().unwrap().pop(), Some((0, 0)));
}

/// Nothing is left of a queue pair that was not made; after a failure in doubt, its memory is kept.
#[test]
fn without_the_capability_of_the_process_the_kernels_refusal_is_explained() {
    let simulator = Simulator::new(roce());
    let (context, kernel) = context(&simulator, ABLE);
    let (pd, cq) = queues(&context);
    *kernel.refuses.lock().unwrap() = Some(Errno::EPERM);
    let error = pd.create_qp::<RawPacket>(&cq, &cq).build().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
    assert!(error.to_string().contains("CAP_NET_RAW"), "{error}");
    assert_eq!(context.leaked(), 0);
    *kernel.refuses.lock().unwrap() = Some(Errno::EIO);
    let error = pd.create_qp::<RawPacket>(&cq, &cq).build().unwrap_err();
    assert!(error.in_doubt());
    assert_ne!(context.leaked(), 0);
}
