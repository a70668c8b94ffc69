//! Work queues, tables, hash queue pairs, flow rules and counters: the requests to the kernel,
//! their order, and the arguments that are refused before.

use super::*;
use crate::flow::{
    CounterValues, Ethernet, FlowRule, Gre, HeaderFields, Ipv4, Ipv6, MatchFields, Mpls, Ports,
    Rule, Vxlan,
};
use crate::testing::{Altered, AlteredCall};
use crate::transport::RawPacket;
use mlx5_uapi::ioctl::{AttrId, attr, method};
use mlx5_uapi::mlx5::{CreateQpRss, CreateWq, QueryDeviceResp};
use mlx5_uapi::verbs::{WqAttrMask, WqState};
use mlx5_uapi::write_cmd::{CreateFlow, ExQueryDeviceResp, ModifyWq, WriteCommand};
use std::collections::BTreeMap;
use std::mem::offset_of;
use std::sync::{Arc, Barrier, Mutex, MutexGuard};
use std::time::Instant;
use zerocopy::FromBytes;

/// An object of the kernel: its kind, and the objects that it uses.
type Object = (&'static str, Vec<u32>);

/// A kernel that has these objects, each used by others, but does nothing with them.
#[derive(Default)]
struct Objects {
    live: BTreeMap<u32, Object>,
    next: u32,
    /// The requests that made objects, and their drivers' requests.
    asked: Vec<(&'static str, Vec<u8>, Vec<u8>)>,
    modified: Vec<(u32, u32)>,
    /// Flags of work queues that were set, and those that changed.
    flags: Vec<(u32, u32)>,
    /// Fails the next creation.
    refuses: Option<Errno>,
    /// Fails the next change or destruction.
    holds: Option<Errno>,
    /// Called while the next change is made.
    meanwhile: Option<Box<dyn FnOnce() + Send>>,
    /// Fails the next reading of counters.
    unread: Option<Errno>,
}

impl Objects {
    fn make(&mut self, kind: &'static str, uses: Vec<u32>) -> Result<u32, Errno> {
        if let Some(errno) = self.refuses.take() {
            return Err(errno);
        }
        assert!(uses.iter().all(|used| self.live.contains_key(used)), "{kind} uses {uses:?}");
        self.next += 1;
        let handle = 0x7000 + self.next;
        self.live.insert(handle, (kind, uses));
        Ok(handle)
    }

    fn destroy(&mut self, kind: &'static str, handle: u32) -> Result<(), Errno> {
        assert_eq!(self.live.get(&handle).expect("it is alive").0, kind);
        if let Some(errno) = self.holds.take() {
            return Err(errno);
        }
        if self.live.values().any(|(_, uses)| uses.contains(&handle)) {
            return Err(Errno::EBUSY);
        }
        self.live.remove(&handle);
        Ok(())
    }

    fn kinds(&self) -> Vec<&'static str> {
        self.live.values().map(|(kind, _)| *kind).collect()
    }
}

#[derive(Clone, Copy)]
struct Says {
    raw_packet_caps: u32,
    table_size: u32,
    hash_fields: u64,
    toeplitz: bool,
    flows: bool,
}

const ABLE: Says = Says {
    raw_packet_caps: 0b1111,
    table_size: 128,
    hash_fields: 0x8000_00ff,
    toeplitz: true,
    flows: true,
};
const RAW_TYPE: u32 = 1 << 8;
const MANAGED_FLOW_STEERING: u32 = 1 << 29;

struct Bed {
    context: Context,
    objects: Arc<Mutex<Objects>>,
}

impl Bed {
    fn new(simulator: &Simulator, says: Says) -> Self {
        let objects = Arc::new(Mutex::new(Objects::default()));
        let kernel = Arc::clone(&objects);
        let altered = Altered::new(simulator.kernel(), move |call| {
            let mut kernel = kernel.lock().unwrap();
            answer(call, &mut kernel, says)
        });
        let context = devices_on(altered).unwrap()[0].open().unwrap();
        Self { context, objects }
    }

    fn objects(&self) -> MutexGuard<'_, Objects> {
        self.objects.lock().unwrap()
    }

    /// The request of the last object that was made, and the driver's.
    fn asked(&self) -> (&'static str, Vec<u8>, Vec<u8>) {
        self.objects().asked.last().unwrap().clone()
    }

    fn queues(&self) -> (ProtectionDomain, CompletionQueue) {
        (self.context.alloc_pd().unwrap(), self.context.create_cq(16).build().unwrap())
    }
}

fn number(call: &AlteredCall<'_>, id: AttrId) -> u32 {
    call.number(id).unwrap() as u32
}

/// Answers calls on the objects, and passes all others on.
fn answer(call: &mut AlteredCall<'_>, kernel: &mut Objects, says: Says) -> Result<(), Errno> {
    match call.method {
        method::WQ_CREATE => {
            use attr::create_wq as id;
            let driver = call.input(attr::uhw::IN).to_vec();
            kernel.asked.push(("wq", number(call, id::FLAGS).to_ne_bytes().to_vec(), driver));
            let handle = kernel.make("wq", vec![])?;
            for (id, value) in [(id::RESP_MAX_WR, 64), (id::RESP_MAX_SGE, 1)] {
                call.output(id).copy_from_slice(&u32::to_ne_bytes(value));
            }
            call.output(id::RESP_WQ_NUM).copy_from_slice(&(handle + 1).to_ne_bytes());
            call.made(id::HANDLE, handle);
            Ok(())
        }
        method::WQ_DESTROY => kernel.destroy("wq", number(call, attr::destroy_wq::HANDLE)),
        method::RWQ_IND_TBL_DESTROY => {
            kernel.destroy("table", number(call, attr::destroy_rwq_ind_tbl::HANDLE))
        }
        method::QP_CREATE if call.number(attr::create_qp::TYPE) == Some(8) => {
            use attr::create_qp as id;
            let table = call.number(id::IND_TABLE_HANDLE).map(|handle| handle as u32);
            let driver = call.input(attr::uhw::IN).to_vec();
            kernel.asked.push(("qp", vec![], driver));
            let handle = kernel.make("qp", table.into_iter().collect())?;
            call.made(id::HANDLE, handle);
            Ok(())
        }
        method::QP_DESTROY if number(call, attr::destroy_qp::HANDLE) >= 0x7000 => {
            kernel.destroy("qp", number(call, attr::destroy_qp::HANDLE))
        }
        method::FLOW_DESTROY => kernel.destroy("flow", number(call, attr::destroy_flow::HANDLE)),
        method::FLOW_MATCHER_CREATE => {
            use attr::create_flow_matcher as id;
            let asked = vec![number(call, id::MATCH_CRITERIA) as u8];
            kernel.asked.push(("matcher", call.input(id::MATCH_MASK).to_vec(), asked));
            let handle = kernel.make("matcher", vec![])?;
            call.made(id::CREATE_HANDLE, handle);
            Ok(())
        }
        method::FLOW_MATCHER_DESTROY => {
            kernel.destroy("matcher", number(call, attr::destroy_flow_matcher::HANDLE))
        }
        method::MLX5_CREATE_FLOW => {
            use attr::create_matcher_flow as id;
            let uses = [id::MATCHER, id::DEST_QP].map(|id| call.number(id).map(|one| one as u32));
            kernel.asked.push(("flow", call.input(id::MATCH_VALUE).to_vec(), vec![]));
            let handle = kernel.make("flow", uses.into_iter().flatten().collect())?;
            call.made(id::HANDLE, handle);
            Ok(())
        }
        method::COUNTERS_CREATE => {
            let handle = kernel.make("counters", vec![])?;
            call.made(attr::create_counters::HANDLE, handle);
            Ok(())
        }
        method::COUNTERS_DESTROY => {
            kernel.destroy("counters", number(call, attr::destroy_counters::HANDLE))
        }
        method::COUNTERS_READ => {
            if let Some(errno) = kernel.unread.take() {
                return Err(errno);
            }
            let values: Vec<u8> = [7_u64, 448].iter().flat_map(|v| v.to_ne_bytes()).collect();
            call.output(attr::read_counters::BUFF).copy_from_slice(&values);
            Ok(())
        }
        method::INVOKE_WRITE => written(call, kernel, says),
        _ => call.pass(),
    }
}

fn written(call: &mut AlteredCall<'_>, kernel: &mut Objects, says: Says) -> Result<(), Errno> {
    use attr::invoke_write as id;
    match WriteCommand(number(call, id::WRITE_CMD)) {
        WriteCommand::MODIFY_WQ_EX => {
            let request = ModifyWq::read_from_bytes(call.input(id::CORE_IN)).unwrap();
            if let Some(run) = kernel.meanwhile.take() {
                run();
            }
            if let Some(errno) = kernel.holds.take() {
                return Err(errno);
            }
            if request.attr_mask == WqAttrMask::FLAGS.bits() {
                kernel.flags.push((request.flags, request.flags_mask));
                return Ok(());
            }
            kernel.modified.push((request.wq_handle, request.wq_state));
            Ok(())
        }
        WriteCommand::CREATE_RWQ_IND_TBL_EX => {
            let request = call.input(id::CORE_IN).to_vec();
            let words: Vec<u32> = request
                .chunks(4)
                .map(|word| u32::from_ne_bytes(word.try_into().unwrap()))
                .collect();
            let handle = kernel.make("table", words[2..][..1 << words[1]].to_vec())?;
            let answer = call.output(id::CORE_OUT);
            answer[8..12].copy_from_slice(&handle.to_ne_bytes());
            answer[12..16].copy_from_slice(&0x55_u32.to_ne_bytes());
            Ok(())
        }
        WriteCommand::CREATE_FLOW_EX => {
            let request = call.input(id::CORE_IN).to_vec();
            let driver = match call.number(attr::uhw::IN) {
                Some(_) => call.input(attr::uhw::IN).to_vec(),
                None => vec![],
            };
            let (head, specs) = CreateFlow::read_from_prefix(&request).unwrap();
            let mut uses = vec![head.qp_handle];
            let mut at = 0;
            while at < specs.len() {
                let word = |at: usize| u32::from_ne_bytes(specs[at..][..4].try_into().unwrap());
                if word(at) == 0x1003 {
                    uses.push(word(at + 8));
                }
                at += usize::from(u16::from_ne_bytes(specs[at + 4..][..2].try_into().unwrap()));
            }
            kernel.asked.push(("flow", request, driver));
            let handle = kernel.make("flow", uses)?;
            let mut answer = [0; 8];
            answer[4..].copy_from_slice(&handle.to_ne_bytes());
            call.output(id::CORE_OUT).copy_from_slice(&answer);
            Ok(())
        }
        WriteCommand::MODIFY_QP | WriteCommand::MODIFY_QP_EX => Ok(()),
        WriteCommand::QUERY_DEVICE_EX => {
            call.pass()?;
            let put = |to: &mut [u8], at: usize, value: u32| {
                to[at..][..4].copy_from_slice(&value.to_ne_bytes());
            };
            let core = call.output(id::CORE_OUT);
            put(core, offset_of!(ExQueryDeviceResp, raw_packet_caps), says.raw_packet_caps);
            let at = offset_of!(ExQueryDeviceResp, rss_caps);
            put(core, at, RAW_TYPE);
            put(core, at + 4, 16);
            put(core, at + 8, says.table_size);
            let at = offset_of!(ExQueryDeviceResp, base.device_cap_flags);
            let flags = if says.flows { MANAGED_FLOW_STEERING } else { 0 };
            put(core, at, flags);
            put(core, offset_of!(ExQueryDeviceResp, device_cap_flags_ex), flags);
            let driver = call.output(attr::uhw::OUT);
            let at = offset_of!(QueryDeviceResp, rss_caps);
            driver[at..][..8].copy_from_slice(&says.hash_fields.to_ne_bytes());
            driver[at + 8] = says.toeplitz.into();
            Ok(())
        }
        _ => call.pass(),
    }
}

#[test]
fn an_infiniband_port_takes_no_flow_rules_whatever_its_flag_says() {
    let simulator = Simulator::new(SimConfig::new());
    let device = crate::devices_on(simulator.kernel()).unwrap().remove(0);
    let told = device.open().unwrap().query_device();
    assert!(told.device_cap_flags.contains(DeviceCapFlags::MANAGED_FLOW_STEERING));
    assert!(!told.ethernet.flow_rules);
}

#[test]
fn a_work_queue_has_a_ring_a_record_and_an_index() {
    let simulator = Simulator::new(roce());
    let bed = Bed::new(&simulator, ABLE);
    let (pd, mut cq) = bed.queues();
    let builder = pd.create_wq(&cq).max_wr(100).max_sge(2).user_tag(5);
    let mut queue = builder.vlan_stripping(true).scatter_fcs(true).build().unwrap();
    let (_, flags, driver) = bed.asked();
    assert_eq!(flags, 0b11_u32.to_ne_bytes());
    let driver = CreateWq::read_from_bytes(&driver).unwrap();
    assert_eq!((driver.rq_wqe_count, driver.rq_wqe_shift, driver.comp_mask), (128, 5, 0));
    assert_eq!((queue.capacity(), queue.max_sge()), (128, 2));

    let sge = Sge { addr: 0x1000, length: 1514, lkey: 7 };
    let refused = queue.recv(1, sge).unwrap_err();
    assert_eq!(refused, PostError::State(QueueState::Reset), "it is not started");
    queue.start().unwrap();
    queue.recv(1, sge).unwrap();
    let at = |address: u64, length| {
        let start = std::ptr::with_exposed_provenance::<u8>(address as usize);
        // SAFETY: ring and record are the queue's, and nothing writes to them meanwhile.
        unsafe { std::slice::from_raw_parts(start, length) }
    };
    assert_eq!(at(driver.db_addr, 4), 1_u32.to_be_bytes());
    assert_eq!(at(driver.buf_addr, 8), [0, 0, 5, 0xea, 0, 0, 0, 7]);

    // A completion of a packet, as the device would write it.
    let ring = cq.hand_over().unwrap().cqes;
    let mut cqe = [0; 64];
    cqe[32..36].copy_from_slice(&driver.user_index.to_be_bytes());
    cqe[44..48].copy_from_slice(&64_u32.to_be_bytes());
    cqe[63] = 2 << 4;
    // SAFETY: the first CQE of the ring, to which nothing else writes.
    unsafe { ring.start.as_ptr().copy_from_nonoverlapping(cqe.as_ptr(), 64) };
    let mut seen = vec![];
    cq.poll(4, |completion| seen.push((completion.wr_id(), completion.user_tag()))).unwrap();
    assert_eq!(seen, [(1, 5)]);

    queue.to_error().unwrap();
    assert!(queue.start().unwrap_err().to_string().contains("`reset` it before"));
    let handle = queue.kernel_handle().unwrap();
    assert_eq!(bed.objects().modified, [(handle, 1), (handle, 2)]);
    assert_eq!(queue.state(), WqState::Error);
    queue.destroy().unwrap();
    assert_eq!(bed.objects().kinds(), [""; 0]);
    assert_eq!(bed.context.leaked(), 0);
}

/// The kernel of this test derives the number of a work queue from its handle.
#[test]
fn objects_report_the_kernels_handles_and_the_devices_numbers() {
    let simulator = Simulator::new(roce());
    let bed = Bed::new(&simulator, ABLE);
    let (pd, cq) = bed.queues();
    let queues = [(); 2].map(|()| pd.create_wq(&cq).build().unwrap());
    let table = bed.context.create_indirection_table(&queues).unwrap();
    let qp = pd.create_hash_qp(&table).fields(RxHashFields::SRC_IPV4).build().unwrap();
    let kind = |handle| Some(bed.objects().live.get(&handle?)?.0);
    for queue in &queues {
        let handle = queue.kernel_handle();
        assert_eq!((kind(handle), queue.wq_num()), (Some("wq"), handle.unwrap() + 1));
    }
    assert_eq!((kind(table.kernel_handle()), table.number()), (Some("table"), 0x55));
    assert_eq!(kind(qp.kernel_handle()), Some("qp"));
}

#[test]
fn a_work_queue_whose_change_is_refused_is_as_it_was() {
    let simulator = Simulator::new(roce());
    let bed = Bed::new(&simulator, ABLE);
    let (pd, cq) = bed.queues();
    let mut queue = pd.create_wq(&cq).build().unwrap();
    queue.start().unwrap();
    let sge = Sge { addr: 0x1000, length: 1514, lkey: 7 };
    bed.objects().holds = Some(Errno::ENOMEM);
    queue.reset().unwrap_err();
    assert_eq!(queue.state(), WqState::Ready);
    queue.recv(1, sge).unwrap();
    bed.objects().holds = Some(Errno::EBUSY);
    queue.withdraw().unwrap_err();
    queue.recv(2, sge).unwrap();
    queue.withdraw().unwrap();
    assert_eq!(queue.recv(3, sge), Err(PostError::State(QueueState::Reset)));
    assert_eq!(bed.objects().kinds(), [""; 0]);
}

/// The device may reset its counters before the call returns.
#[test]
fn a_purge_beside_a_reset_of_a_work_queue_waits_for_its_end() {
    let simulator = Simulator::new(roce());
    let bed = Bed::new(&simulator, ABLE);
    let (pd, mut cq) = bed.queues();
    let mut queue = pd.create_wq(&cq).build().unwrap();
    let target = queue.target();
    target.purge(&mut cq).unwrap();
    queue.start().unwrap();
    target.purge(&mut cq).unwrap_err();
    let (said, heard) = std::sync::mpsc::channel();
    bed.objects().meanwhile = Some(Box::new(move || {
        std::thread::spawn(move || said.send(target.purge(&mut cq).is_ok()).unwrap());
    }));
    queue.reset().unwrap();
    assert_eq!(heard.recv(), Ok(true));
}

#[test]
fn vlan_tags_are_stripped_from_now_on_or_no_longer() {
    let simulator = Simulator::new(roce());
    let bed = Bed::new(&simulator, ABLE);
    let (pd, cq) = bed.queues();
    let mut queue = pd.create_wq(&cq).build().unwrap();
    queue.set_vlan_stripping(true).unwrap();
    queue.set_vlan_stripping(false).unwrap();
    assert_eq!(bed.objects().flags, [(1, 1), (0, 1)]);
}

#[test]
fn objects_go_in_the_order_in_which_they_use_each_other_however_they_are_dropped() {
    let simulator = Simulator::new(roce());
    for order in 0..4 {
        let bed = Bed::new(&simulator, ABLE);
        let (pd, cq) = bed.queues();
        let queues = [(); 4].map(|()| pd.create_wq(&cq).build().unwrap());
        let table = bed.context.create_indirection_table(&queues).unwrap();
        let qp = pd.create_hash_qp(&table).fields(RxHashFields::SRC_IPV4).build().unwrap();
        let counters = bed.context.create_flow_counters().unwrap();
        let rule = Rule::new().ethernet(Ethernet::new()).count(&counters);
        let flow = qp.attach(1, &rule).unwrap();
        let kinds = ["wq", "wq", "wq", "wq", "table", "qp", "counters", "flow"];
        assert_eq!(bed.objects().kinds(), kinds);
        match order {
            0 => {
                drop((queues, table, qp, counters, rule));
                assert_eq!(bed.objects().kinds(), kinds, "the rule keeps all");
                drop(flow);
            }
            1 => drop((flow, rule, counters, qp, table, queues)),
            2 => {
                let [first, second, third, fourth] = queues;
                let refused = first.destroy().unwrap_err();
                assert_eq!(refused.error().kind(), ErrorKind::Busy);
                let refused = table.destroy().unwrap_err();
                assert_eq!(refused.error().kind(), ErrorKind::Busy);
                let refused = qp.destroy().unwrap_err();
                assert_eq!(refused.error().kind(), ErrorKind::Busy);
                let refused = counters.destroy().unwrap_err();
                assert_eq!(refused.error().kind(), ErrorKind::Busy);
                flow.destroy().unwrap();
                drop((second, third, fourth, rule));
            }
            _ => {
                flow.destroy().unwrap();
                qp.destroy().unwrap();
                table.destroy().unwrap();
                for queue in queues {
                    queue.destroy().unwrap();
                }
                counters.destroy().unwrap();
                drop(rule);
            }
        }
        assert_eq!(bed.objects().kinds(), [""; 0], "order {order}");
        assert_eq!(bed.context.leaked(), 0);
    }
}

#[test]
fn a_hash_names_its_fields_and_its_key() {
    let simulator = Simulator::new(roce());
    let bed = Bed::new(&simulator, ABLE);
    let (pd, cq) = bed.queues();
    let queues = [(); 2].map(|()| pd.create_wq(&cq).build().unwrap());
    let table = bed.context.create_indirection_table(&queues).unwrap();
    assert_eq!((table.len(), table.number()), (2, 0x55));
    let fields = RxHashFields::SRC_IPV6 | RxHashFields::DST_PORT_UDP;
    let key = HashKey(std::array::from_fn(|at| at as u8 + 1));
    for (unicast, multicast, flags) in [(true, false, 1 << 6), (false, true, 1 << 7)] {
        let qp = pd.create_hash_qp(&table).fields(fields).self_loopback(unicast, multicast);
        drop(qp.build().unwrap());
        assert_eq!(CreateQpRss::read_from_bytes(&bed.asked().2).unwrap().flags, flags);
    }
    let qp = pd.create_hash_qp(&table).fields(fields).key(key).self_loopback(true, true);
    drop(qp.build().unwrap());
    let hash = CreateQpRss::read_from_bytes(&bed.asked().2).unwrap();
    assert_eq!((hash.rx_hash_fields_mask, hash.rx_hash_function), (1 << 2 | 1 << 7, 1));
    assert_eq!((hash.rx_key_len, hash.comp_mask, hash.flags), (40, 0, 1 << 6 | 1 << 7));
    assert_eq!(hash.rx_hash_key[..40], key.0);
    assert_eq!(hash.rx_hash_key[40..], [0; 88]);
}

#[test]
fn impossible_hash_is_refused_by_name_without_a_call() {
    use RxHashFields as Fields;
    let simulator = Simulator::new(roce());
    let bed = Bed::new(&simulator, ABLE);
    let other = Bed::new(&simulator, ABLE);
    let (pd, cq) = bed.queues();
    let (other_pd, other_cq) = other.queues();
    let queues = [(); 3].map(|()| pd.create_wq(&cq).build().unwrap());
    let foreign = other_pd.create_wq(&other_cq).build().unwrap();
    let create = |list: &[&WorkQueue]| bed.context.create_indirection_table(list.iter().copied());
    for (list, text) in [
        (&[][..], "0 entries: a table has a power of two"),
        (&[&queues[0], &queues[1], &queues[2]], "3 entries"),
        (&[&queues[0]; 256], "256 entries; the device supports at most 128"),
        (&[&foreign], "a different context"),
    ] {
        let error = create(list).unwrap_err();
        assert!(error.to_string().contains(text), "{error}");
    }
    assert!(
        pd.create_wq(&other_cq).build().unwrap_err().to_string().contains("different contexts")
    );
    create(&[&queues[0]; 128]).unwrap();
    let table = create(&[&queues[0], &queues[0]]).unwrap();
    let one = create(&[&queues[0]]).unwrap();
    let made = bed.objects().next;
    for (fields, text) in [
        (Fields::SRC_IPV4 | Fields::DST_IPV6, "IPv4 or IPv6, not both"),
        (Fields::SRC_PORT_TCP | Fields::DST_PORT_UDP, "TCP or UDP, not both"),
        (Fields::empty(), "a table of one entry"),
        (Fields::SRC_IPV4 | Fields::INNER, "needs `tunnel_offloads`"),
        (Fields::SRC_IPV4 | Fields::IPSEC_SPI, "the device does not hash IPSEC_SPI"),
    ] {
        let error = pd.create_hash_qp(&table).fields(fields).build().unwrap_err();
        assert!(error.to_string().contains(text), "{error}");
    }
    assert!(other_pd.create_hash_qp(&table).build().is_err());
    assert_eq!(bed.objects().next, made, "nothing was made");
    pd.create_hash_qp(&one).build().unwrap();
    let inner = Fields::SRC_IPV4 | Fields::INNER;
    pd.create_hash_qp(&table).fields(inner).tunnel_offloads(true).build().unwrap();

    let bed = Bed::new(&simulator, Says { toeplitz: false, ..ABLE });
    let (pd, cq) = bed.queues();
    let queue = pd.create_wq(&cq).build().unwrap();
    let table = bed.context.create_indirection_table([&queue]).unwrap();
    let error = pd.create_hash_qp(&table).fields(Fields::SRC_IPV4).build().unwrap_err();
    assert!(error.to_string().contains("computes no Toeplitz hash"), "{error}");

    let none = Says { raw_packet_caps: 0, table_size: 0, ..ABLE };
    let bed = Bed::new(&simulator, none);
    let (pd, cq) = bed.queues();
    for (builder, text) in [
        (pd.create_wq(&cq).vlan_stripping(true), "cannot strip VLAN tags"),
        (pd.create_wq(&cq).scatter_fcs(true), "frame check sequence"),
        (pd.create_wq(&cq).delay_drop(true), "drops packets without a receive"),
        (pd.create_wq(&cq).max_wr(1 << 20), "do not fit"),
    ] {
        let error = builder.build().unwrap_err();
        assert!(error.to_string().contains(text), "{error}");
    }
    let queue = pd.create_wq(&cq).build().unwrap();
    let error = bed.context.create_indirection_table([&queue]).unwrap_err();
    assert!(error.to_string().contains("has no indirection tables"), "{error}");
}

/// The specifications of the last rule, as (kind, value, mask) of a header and (kind, rest) of an
/// action.
fn specs(request: &[u8]) -> Vec<(u32, Vec<u8>, Vec<u8>)> {
    let (head, mut rest) = CreateFlow::read_from_prefix(request).unwrap();
    assert_eq!(usize::from(head.flow_attr.size), rest.len());
    let mut specs = vec![];
    while !rest.is_empty() {
        let kind = u32::from_ne_bytes(rest[..4].try_into().unwrap());
        let size = usize::from(u16::from_ne_bytes(rest[4..6].try_into().unwrap()));
        assert_eq!(rest[6..8], [0, 0]);
        let body = &rest[8..size];
        let half = if kind >= 0x1000 { body.len() } else { body.len() / 2 };
        specs.push((kind, body[..half].to_vec(), body[half..].to_vec()));
        rest = &rest[size..];
    }
    assert_eq!(usize::from(head.flow_attr.num_of_specs), specs.len());
    specs
}

#[test]
fn each_header_is_in_network_order_with_its_mask() {
    let simulator = Simulator::new(roce());
    let bed = Bed::new(&simulator, ABLE);
    let (pd, cq) = bed.queues();
    let qp = pd.create_qp::<RawPacket>(&cq, &cq).build().unwrap();
    let mac = [1, 2, 3, 4, 5, 6];
    let (ip4, ip6) = ([192, 0, 2, 1], [0xfd; 16]);
    let eth = Ethernet::new().dst_mac(mac).src_mac_masked(mac, [0xff, 0, 0, 0, 0, 0]);
    let rule = Rule::new()
        .ethernet(eth.ether_type(0x0800).vlan_tag_masked(0x0123, 0x0fff))
        .ipv4(Ipv4::new().dst_ip(ip4).src_ip_masked(ip4, [255, 255, 255, 0]).proto(17).tos(4))
        .udp(Ports::new().dst_port(4789).src_port_masked(0x1234, 0xff00))
        .vxlan(Vxlan::new().tunnel_id(0xab_cdef))
        .ethernet(Ethernet::new())
        .ipv6(Ipv6::new().dst_ip(ip6).flow_label(0xfff_ffff).next_hdr(6).traffic_class(1))
        .tcp(Ports::new().src_port(80));
    let _flow = qp.attach(1, &rule.clone().priority(9).dont_trap()).unwrap();
    let request = bed.asked().1;
    let (head, _) = CreateFlow::read_from_prefix(&request).unwrap();
    let attr = head.flow_attr;
    assert_eq!((attr.kind, attr.priority, attr.port, attr.flags), (0, 9, 1, 2));
    assert_eq!(head.qp_handle, qp.control.kernel_handle().unwrap());
    let found = specs(&request);
    let bytes = |parts: &[&[u8]]| parts.concat();
    let expected: Vec<(u32, Vec<u8>, Vec<u8>)> = vec![
        (
            0x20,
            bytes(&[&mac, &mac, &[8, 0], &[0x01, 0x23]]),
            bytes(&[&[0xff; 6], &[0xff, 0, 0, 0, 0, 0], &[0xff; 2], &[0x0f, 0xff]]),
        ),
        (
            0x30,
            bytes(&[&ip4, &ip4, &[17, 4, 0, 0]]),
            bytes(&[&[255, 255, 255, 0], &[255; 4], &[255, 255, 0, 0]]),
        ),
        (0x41, vec![0x12, 0xb5, 0x12, 0x34], vec![0xff, 0xff, 0xff, 0]),
        (0x50, vec![0, 0xab, 0xcd, 0xef], vec![0, 0xff, 0xff, 0xff]),
        (0x120, vec![0; 16], vec![0; 16]),
        (
            0x131,
            bytes(&[&[0; 16], &ip6, &[0, 0x0f, 0xff, 0xff], &[6, 1, 0, 0]]),
            bytes(&[&[0; 16], &[0xff; 16], &[0, 0x0f, 0xff, 0xff], &[0xff, 0xff, 0, 0]]),
        ),
        (0x140, vec![0, 0, 0, 80], vec![0, 0, 0xff, 0xff]),
    ];
    assert_eq!(found, expected);

    let tunnels = Rule::new()
        .gre(Gre::new().protocol(0x6558).key(0x0102_0304).c_ks_res0_ver_masked(0x2000, 0x2000))
        .mpls(Mpls::new().label_masked(0x1234_5000, 0xffff_f000));
    let _second = qp.attach(1, &tunnels).unwrap();
    assert_eq!(
        specs(&bed.asked().1),
        [
            (
                0x51,
                vec![0x20, 0, 0x65, 0x58, 1, 2, 3, 4],
                vec![0x20, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]
            ),
            (0x60, vec![0x12, 0x34, 0x50, 0], vec![0xff, 0xff, 0xf0, 0]),
        ]
    );

    let inside = Rule::new()
        .udp(Ports::new())
        .vxlan(Vxlan::new())
        .ethernet(Ethernet::new())
        .mpls(Mpls::new().label(7));
    let _third = qp.attach(1, &inside).unwrap();
    let kinds: Vec<u32> = specs(&bed.asked().1).iter().map(|(kind, ..)| *kind).collect();
    assert_eq!(kinds, [0x41, 0x50, 0x120, 0x160]);
}

#[test]
fn actions_follow_the_headers() {
    let simulator = Simulator::new(roce());
    let bed = Bed::new(&simulator, ABLE);
    let (pd, cq) = bed.queues();
    let qp = pd.create_qp::<RawPacket>(&cq, &cq).build().unwrap();
    let counters = bed.context.create_flow_counters().unwrap();
    assert_eq!(counters.read().unwrap(), Default::default(), "no rule uses them yet");
    let tagged = Rule::new().tag(0xff_ffff).count(&counters).ethernet(Ethernet::new());
    let _first = qp.attach(1, &tagged).unwrap();
    let (_, request, driver) = bed.asked();
    let kinds: Vec<u32> = specs(&request).iter().map(|(kind, ..)| *kind).collect();
    assert_eq!(kinds, [0x20, 0x1000, 0x1003]);
    assert_eq!(specs(&request)[1].1, [0xff, 0xff, 0xff, 0, 0, 0, 0, 0]);
    assert_eq!((driver.len(), driver[0]), (24, 1), "the first rule says what is counted");
    let _second = qp.attach(1, &Rule::all_default().count(&counters)).unwrap();
    assert_eq!(bed.asked().2, [], "and no other one");
    let values = counters.read().unwrap();
    assert_eq!((values.packets, values.bytes), (7, 448));

    let _drop = qp.attach(1, &Rule::new().drop_packets()).unwrap();
    assert_eq!(specs(&bed.asked().1), [(0x1001, vec![], vec![])]);
    for (rule, kind) in [
        (Rule::new(), 0_u32),
        (Rule::all_default(), 1),
        (Rule::multicast_default(), 2),
        (Rule::sniffer(), 3),
    ] {
        let _flow = qp.attach(1, &rule).unwrap();
        assert_eq!(bed.asked().1[8..12], kind.to_ne_bytes());
    }
}

#[test]
fn counter_unreadable_when_its_last_rule_ended_is_an_error_until_another_counts() {
    let simulator = Simulator::new(roce());
    let bed = Bed::new(&simulator, ABLE);
    let (pd, cq) = bed.queues();
    let qp = pd.create_qp::<RawPacket>(&cq, &cq).build().unwrap();
    let counters = bed.context.create_flow_counters().unwrap();
    let attach = || qp.attach(1, &Rule::new().count(&counters)).unwrap();
    let counted = CounterValues { packets: 7, bytes: 448 };
    let (first, last) = (attach(), attach());
    assert_eq!(counters.read(), Ok(counted));
    first.destroy().unwrap();
    bed.objects().unread = Some(Errno::ENOMEM);
    last.destroy().unwrap();
    for _ in 0..2 {
        assert_eq!(counters.read().unwrap_err().kind(), ErrorKind::OutOfMemory);
    }
    let rule = attach();
    assert_eq!(counters.read(), Ok(counted));
    rule.destroy().unwrap();
    assert_eq!(counters.read(), Ok(counted), "as it was when the last rule ended");
}

#[test]
fn a_rule_that_makes_no_sense_is_refused_by_name_without_a_call() {
    let simulator = Simulator::new(roce());
    let bed = Bed::new(&simulator, ABLE);
    let (pd, cq) = bed.queues();
    let qp = pd.create_qp::<RawPacket>(&cq, &cq).build().unwrap();
    let other = Bed::new(&simulator, ABLE);
    let foreign = other.context.create_flow_counters().unwrap();
    let gone = bed.context.create_flow_counters().unwrap();
    let of_gone = Rule::new().count(&gone);
    gone.destroy().unwrap();
    let ten = (0..10).fold(Rule::new(), |rule, _| rule.ethernet(Ethernet::new()));
    drop(qp.attach(1, &ten).unwrap());
    let many = ten.ethernet(Ethernet::new());
    let made = bed.objects().next;
    for (rule, port, text) in [
        (Rule::sniffer().ethernet(Ethernet::new()), 1, "has no headers"),
        (Rule::all_default().tcp(Ports::new()), 1, "has no headers"),
        (Rule::new().tag(0x100_0000), 1, "it has 24 bits"),
        (Rule::new().tag(1).drop_packets(), 1, "no flow tag"),
        (many, 1, "11 headers and actions"),
        (Rule::new().count(&foreign), 1, "different contexts"),
        (of_gone, 1, "counters were destroyed"),
        (Rule::new(), 9, "port 9 does not exist"),
    ] {
        let error = qp.attach(port, &rule).unwrap_err();
        assert!(error.to_string().contains(text), "{error}");
    }
    assert_eq!(bed.objects().next, made, "nothing was made");

    let without = Bed::new(&simulator, Says { flows: false, ..ABLE });
    let (pd, cq) = without.queues();
    let qp = pd.create_qp::<RawPacket>(&cq, &cq).build().unwrap();
    let error = qp.attach(1, &Rule::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotSupported);
    assert!(error.to_string().contains("has no flow rules"), "{error}");
}

#[test]
fn a_rule_keeps_its_matcher_and_its_queue_pair() {
    let simulator = Simulator::new(roce());
    let bed = Bed::new(&simulator, ABLE);
    let (pd, cq) = bed.queues();
    let qp = pd.create_qp::<RawPacket>(&cq, &cq).build().unwrap();
    let mask = MatchFields::new().outer(HeaderFields::new().ttl(0xf0)).second_vlan_id(0xfff);
    let matcher = bed.context.create_matcher(mask).priority(0x0e).build().unwrap();
    let (kind, mask, asked) = bed.asked();
    assert_eq!((kind, mask.len(), mask[27], asked[0]), ("matcher", 512, 0xf0, 0b11));
    let value = MatchFields::new().outer(HeaderFields::new().ttl(0x40));
    let rule = qp.attach_matched(&matcher, &value, None).unwrap();
    assert_eq!(bed.asked().1[27], 0x40);
    let dropping = matcher.drop_packets(&value).unwrap();
    let all = ["qp", "matcher", "flow", "flow"];
    let refused = matcher.destroy().unwrap_err();
    assert_eq!(refused.error().kind(), ErrorKind::Busy);
    drop(refused);
    assert_eq!(bed.objects().kinds(), all);
    drop(qp);
    assert_eq!(bed.objects().kinds(), all);
    drop(rule);
    assert_eq!(bed.objects().kinds(), ["matcher", "flow"]);
    drop(dropping);
    assert!(bed.objects().kinds().is_empty());

    let without = Bed::new(&simulator, Says { flows: false, ..ABLE });
    let error = without.context.create_matcher(MatchFields::new()).build().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotSupported);
    assert!(error.to_string().contains("has no flow rules"), "{error}");
}

/// The kernel may reuse a freed number at once. The kernel of this test panics on a stale one.
#[test]
fn a_rule_is_made_before_its_matcher_or_its_counters_are_destroyed_or_not_at_all() {
    type Attach<'a> = &'a dyn Fn() -> Result<FlowRule, Error>;
    type Destroy = Box<dyn FnOnce() -> bool + Send>;
    const ROUNDS: u32 = 400;
    let simulator = Simulator::new(roce());
    let bed = Bed::new(&simulator, ABLE);
    let (pd, cq) = bed.queues();
    let qp = pd.create_qp::<RawPacket>(&cq, &cq).build().unwrap();
    // Destroys while a rule is made, a little later each time.
    let beside = |round: u32, attach: Attach<'_>, destroy: Destroy| {
        let begun = Instant::now();
        drop(attach().unwrap());
        let delay = begun.elapsed() * round / ROUNDS;
        let start = Barrier::new(2);
        std::thread::scope(|scope| {
            let destroyed = scope.spawn(|| {
                start.wait();
                let begun = Instant::now();
                while begun.elapsed() < delay {
                    std::hint::spin_loop();
                }
                destroy()
            });
            start.wait();
            let made = attach();
            assert_ne!(made.is_ok(), destroyed.join().expect("no panic"), "{made:?}");
        });
    };
    let value = MatchFields::new();
    for round in 0..ROUNDS {
        let matcher = bed.context.create_matcher(MatchFields::new()).build().unwrap();
        let clone = matcher.clone();
        let destroy = Box::new(move || clone.destroy().is_ok());
        beside(round, &|| qp.attach_matched(&matcher, &value, None), destroy);
        let counters = bed.context.create_flow_counters().unwrap();
        let (rule, clone) = (Rule::new().count(&counters), counters.clone());
        let destroy = Box::new(move || clone.destroy().is_ok());
        beside(round, &|| qp.attach(1, &rule), destroy);
    }
}

#[test]
fn the_kernels_refusal_of_a_rule_has_a_name() {
    let simulator = Simulator::new(roce());
    let bed = Bed::new(&simulator, ABLE);
    let (pd, cq) = bed.queues();
    let qp = pd.create_qp::<RawPacket>(&cq, &cq).build().unwrap();
    for (errno, kind, text) in [
        (Errno::EPERM, ErrorKind::PermissionDenied, "CAP_NET_RAW"),
        (Errno::EEXIST, ErrorKind::AlreadyExists, "there is a rule for the same packets"),
        (Errno::ENOSPC, ErrorKind::ResourceLimit, "the table of flow rules is full"),
    ] {
        bed.objects().refuses = Some(errno);
        let error = qp.attach(1, &Rule::new()).unwrap_err();
        assert_eq!(error.kind(), kind);
        assert!(error.to_string().contains(text), "{error}");
    }
    // Counters whose first rule was refused still need their descriptions.
    let counters = bed.context.create_flow_counters().unwrap();
    bed.objects().refuses = Some(Errno::EEXIST);
    qp.attach(1, &Rule::new().count(&counters)).unwrap_err();
    let _flow = qp.attach(1, &Rule::new().count(&counters)).unwrap();
    assert_eq!(bed.asked().2.len(), 24);
}

#[test]
fn a_rule_that_the_kernel_does_not_end_is_there_still() {
    let simulator = Simulator::new(roce());
    let bed = Bed::new(&simulator, ABLE);
    let (pd, cq) = bed.queues();
    let qp = pd.create_qp::<RawPacket>(&cq, &cq).build().unwrap();
    let flow = qp.attach(1, &Rule::new()).unwrap();
    bed.objects().holds = Some(Errno::EBUSY);
    let refused = flow.destroy().unwrap_err();
    assert_eq!(bed.objects().kinds(), ["qp", "flow"]);
    drop(refused);
    assert_eq!(bed.objects().kinds(), ["qp"]);
}

/// The kernel reads nothing while no rule counts, and drops the counts with the last one.
#[test]
fn counters_keep_their_values_when_the_last_rule_ends() {
    let simulator = Simulator::new(roce());
    let bed = Bed::new(&simulator, ABLE);
    let (pd, cq) = bed.queues();
    let qp = pd.create_qp::<RawPacket>(&cq, &cq).build().unwrap();
    let counters = bed.context.create_flow_counters().unwrap();
    drop(qp.attach(1, &Rule::new().count(&counters)).unwrap());
    let values = counters.read().unwrap();
    assert_eq!((values.packets, values.bytes), (7, 448));
    let _flow = qp.attach(1, &Rule::new().count(&counters)).unwrap();
    assert_eq!(bed.asked().2.len(), 24, "what is counted is said again");
}

#[test]
fn an_infiniband_port_has_no_flow_rules() {
    let simulator = Simulator::new(infiniband());
    let bed = Bed::new(&simulator, ABLE);
    let (pd, cq) = bed.queues();
    let qp = pd.create_qp::<RawPacket>(&cq, &cq).build().unwrap();
    let error = qp.attach(1, &Rule::new()).unwrap_err();
    assert!(error.to_string().contains("not an Ethernet port"), "{error}");
}
