//! The simulated device in each recorded situation: it says what the recorded device said.

use std::num::NonZeroUsize;
use std::ptr::NonNull;

use mlx5::flow::{Ethernet, Rule};
use mlx5::transport::{RawPacket, Rc};
use mlx5::{
    Access, AccessFlags, AsyncEvent, CompletionQueue, ConnectOptions, Context, MemoryRegion, Mtu,
    ProtectionDomain, Psn, QpAttributes, QueuePair, QueueState, RawWqe, ReceiveWr, RemoteAddress,
    RetryCount, SendFlags, Sge, devices_on,
};
use mlx5_prm::cqe::{CqeOpcode, ErrorCqe, SOLICITED};
use mlx5_prm::ethernet::{EthernetSegment, InlineMode};
use mlx5_prm::umr::{MkeyContextSegment, UmrControlSegment, umr_flags};
use mlx5_prm::wqe::{ControlSegment, DataSegment, Opcode, control_flags};
use mlx5_sim::{PortConfig, SimConfig, Simulator};
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use serde_json::Value;
use zerocopy::{FromBytes, IntoBytes};

use crate::{records, text};

/// A situation: brings a device into it, and answers the errors that one of its queues then has.
type Situation = fn() -> Vec<ErrorCqe>;

/// Records, each with the place in `expect` that has the codes, the situation, and which of its
/// errors they are.
const SITUATIONS: &[(&str, &str, Situation, usize)] = &[
    // A gather.
    ("ucx-6414", "", gather_with_a_key_that_is_none, 0),
    ("fr-vendor-cx5", "/rows/1", gather_with_a_key_that_is_none, 0),
    ("spdk-961", "", gather_with_a_released_key, 0),
    ("ucx-4727", "", gather_with_a_released_key, 0),
    ("spdk-500", "", gather_past_the_region, 0),
    ("spdk-507", "", gather_past_the_region, 0),
    ("nccl-1905", "", gather_past_the_region, 0),
    ("fr-vendor-cx5", "/rows/0", gather_past_the_region, 0),
    ("warp17-81a", "", packet_past_the_region, 0),
    ("warp17-81b", "", packet_past_the_region, 0),
    ("nccl-tests-24", "", gather_from_memory_that_does_not_answer, 0),
    ("ucx-3564", "", gather_from_memory_that_does_not_answer, 0),
    ("ucx-7774", "", gather_from_memory_that_does_not_answer, 0),
    ("ucx-9515", "", gather_from_memory_that_does_not_answer, 0),
    ("ucx-7863", "", gather_from_memory_that_does_not_answer, 0),
    ("nccl-214a", "", gather_from_memory_that_does_not_answer, 0),
    ("nccl-707", "", gather_from_memory_that_does_not_answer, 0),
    ("nccl-928", "", gather_from_memory_that_does_not_answer, 0),
    ("perftest-173", "", gather_from_memory_that_does_not_answer, 0),
    // A scatter.
    ("fr-vendor-cx5", "/rows/2", read_into_memory_that_may_not_be_written, 0),
    ("ucx-7801", "", receive_with_a_key_that_is_none, 0),
    ("ucx-9167-before", "", receive_with_a_key_that_is_none, 0),
    ("ucx-9167-after", "", receive_with_a_key_that_is_none, 0),
    ("lore-shampo-resv", "", packet_received_with_a_released_key, 0),
    ("lore-nvme-iommu-1", "", receive_into_memory_that_does_not_answer, 0),
    ("lore-nvme-iommu-2", "", receive_into_memory_that_does_not_answer, 0),
    // Refusals of the peer.
    ("lore-dust-li", "", write_with_a_key_that_the_peer_lacks, 0),
    ("lore-nfs-113", "", write_with_a_key_that_the_peer_lacks, 0),
    ("lore-nfs-146", "", write_with_a_key_that_the_peer_lacks, 0),
    ("lore-nfs-108", "", write_with_a_key_that_the_peer_lacks, 0),
    ("ucx-1569", "", write_with_a_key_that_the_peer_lacks, 0),
    ("spdk-1387", "", write_with_a_key_that_the_peer_lacks, 0),
    ("ucx-1834", "", write_with_a_key_that_the_peer_lacks, 0),
    ("ucx-2915", "", write_with_a_key_that_the_peer_lacks, 0),
    ("fr-vendor-cx5", "/rows/4", write_with_a_key_that_the_peer_lacks, 0),
    ("fr-gin-collapsed", "/bad_key/0", write_with_a_key_that_the_peer_lacks, 0),
    ("fr-gin-collapsed", "/bad_key/1", write_with_a_key_that_the_peer_lacks, 1),
    ("libfabric-4283", "", read_with_a_key_that_the_peer_lacks, 0),
    ("spdk-264a", "", read_with_a_key_that_the_peer_lacks, 0),
    ("spdk-264b", "", read_with_a_key_that_the_peer_lacks, 0),
    ("ucx-9306", "", read_with_a_key_that_the_peer_lacks, 0),
    ("ompi-1241", "", atomic_with_a_key_that_the_peer_lacks, 0),
    ("ucx-1770", "", read_that_the_peer_does_not_grant, 0),
    ("ucx-1770-arm", "", read_that_the_peer_does_not_grant, 0),
    ("nccl-1710", "/requester", read_that_the_peer_does_not_grant, 0),
    ("fr-vendor-cx5", "/rows/3", write_that_the_peer_does_not_grant, 0),
    ("charm-2532-cqe", "", send_to_a_peer_with_another_mtu, 0),
    ("charm-2532-frontera", "", send_to_a_peer_with_another_mtu, 0),
    ("ucx-5472a", "", read_of_memory_that_does_not_answer, 0),
    ("ucx-10755", "", read_of_memory_that_does_not_answer, 0),
    ("nccl-214b", "", read_of_memory_that_does_not_answer, 0),
    // A peer that does not answer.
    ("lore-retry-cx7", "", peer_that_is_gone, 0),
    ("nccl-1405", "", peer_that_is_gone, 0),
    ("nccl-1664", "", peer_that_is_gone, 0),
    ("nccl-1814", "", peer_that_is_gone, 0),
    ("nccl-426", "", peer_that_is_gone, 0),
    ("nccl-1698", "", peer_that_is_gone, 0),
    ("ucx-6871a", "", peer_that_is_gone, 0),
    ("ucx-6871b", "", peer_that_is_gone, 0),
    ("ucx-6871c", "", peer_that_is_gone, 0),
    ("ucx-1880", "", peer_that_is_gone, 0),
    ("ucx-2973", "", peer_that_is_gone, 0),
    ("dlsm-7", "/first", peer_that_is_gone, 0),
    ("dlsm-7", "/then", peer_that_is_gone, 1),
    ("fr-gin-collapsed", "/peer_queue_in_error/0", peer_that_is_gone, 0),
    ("fr-gin-collapsed", "/peer_queue_in_error/1", peer_that_is_gone, 1),
    // Flushed requests.
    ("derecho-141", "", peer_that_is_gone, 1),
    ("nccl-1737", "", peer_that_is_gone, 1),
    ("nccl-1524", "", receives_of_a_queue_that_refused, 0),
    ("nvme-cli-3268", "", receives_of_a_queue_that_modify_ended, 0),
    ("fr-gin-collapsed", "/own_queue_to_error/0", sends_of_a_queue_that_modify_ended, 0),
    ("fr-gin-collapsed", "/own_queue_to_error/1", sends_of_a_queue_that_modify_ended, 1),
    ("lore-xsk-icosq-flush", "", request_that_is_none, 1),
    // Requests that the device does not take.
    ("lore-xsk-icosq-bad", "", request_that_is_none, 0),
    ("ucx-1151", "", request_that_is_none, 0),
    ("netdev-umr-align", "", umr_with_a_list_that_is_not_aligned, 0),
    ("lore-odp-revoked", "", umr_of_a_key_that_is_gone, 0),
    ("lore-odp-unaligned", "", umr_of_a_key_that_is_too_small, 0),
    ("dpdk-caladan-28", "", packet_with_a_key_that_is_none, 0),
    ("lore-cx4lx-inline", "", packet_without_the_headers_that_the_device_demands, 0),
];

/// Records with codes, of situations that the simulated device is not in, and why.
const NOT_SIMULATED: &[(&str, &str)] = &[
    ("perftest-140", "the model has one failure of PCIe (hardware 0x02), real ones have more"),
    ("libfabric-6733", "the model has one failure of PCIe (hardware 0x02), real ones have more"),
    ("lore-shampo-64k", "the model splits no headers from data; the type byte 0x01 is of that"),
    ("ucx-857", "the device fetched a stale WQE (weak ordering); its contents are unknown"),
    ("ucx-3618", "why the UD request was refused is not in the thread"),
    ("ucx-6808a", "why the UD requests were refused is not in the thread"),
    ("ucx-4176", "a UMR that a peer refuses: not explained in the thread"),
    ("ucx-2433", "on-demand paging, which the model does not have"),
    ("ucx-2706", "on-demand paging, which the model does not have"),
    ("ucx-2481", "on-demand paging, which the model does not have"),
    ("ucx-3453", "on-demand paging, which the model does not have"),
    ("mooncake-3299", "the model's events carry no codes: the kernel reads them by QUERY_QP"),
];

// Bringing devices into situations.

/// One end of a connection.
struct End {
    qp: QueuePair<Rc>,
    send_cq: CompletionQueue,
    recv_cq: CompletionQueue,
    memory: MemoryRegion,
    pd: ProtectionDomain,
    context: Context,
    device: usize,
}

const BYTES: usize = 4096;

/// Two ends that are connected as `a` and `b` say, in step mode.
struct Rig {
    a: End,
    b: End,
    machine: Simulator,
}

fn end(machine: &Simulator, device: usize) -> End {
    let devices = devices_on(machine.kernel()).unwrap();
    let context = devices[device].open().unwrap();
    let pd = context.alloc_pd().unwrap();
    let cq = || context.create_cq(64).build().unwrap();
    let (send_cq, recv_cq) = (cq(), cq());
    let builder = pd.create_qp::<Rc>(&send_cq, &recv_cq).max_send_wr(16).max_recv_wr(16);
    let qp = builder.max_inline_data(192).max_send_sge(4).build().unwrap();
    let rights = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
    let memory = pd.memory(BYTES).access(rights | Access::REMOTE_ATOMIC).register().unwrap();
    End { qp, send_cq, recv_cq, memory, pd, context, device }
}

fn rig_with(config: SimConfig, a_has: ConnectOptions, b_has: ConnectOptions) -> Rig {
    let machine = Simulator::new(config.devices(2).step(true).checked_memory(true));
    let (mut a, mut b) = (end(&machine, 0), end(&machine, 1));
    let ports = [&a, &b].map(|end| end.context.local_port(1, None).unwrap());
    let psn = Psn::wrapping(7);
    let of_a = a.qp.endpoint(&ports[0], psn, &ConnectOptions::default());
    let of_b = b.qp.endpoint(&ports[1], psn, &ConnectOptions::default());
    a.qp.connect(&ports[0], psn, &of_b, &a_has).unwrap();
    b.qp.connect(&ports[1], psn, &of_a, &b_has).unwrap();
    Rig { a, b, machine }
}

fn rig() -> Rig {
    rig_with(SimConfig::new(), ConnectOptions::default(), ConnectOptions::default())
}

/// The errors that a queue has had, which the driver reads as well.
fn errors(machine: &Simulator, device: usize, cq: &mut CompletionQueue) -> Vec<ErrorCqe> {
    machine.run_until_idle();
    let cqn = cq.cqn();
    let fabric = machine.fabric().lock();
    let this = fabric.device(device);
    let (count, failed) = this.cq_progress(cqn).unwrap();
    assert!(!failed);
    let entries = (0..count).map(|number| this.cq_entry(cqn, number).unwrap());
    let is_error = |entry: &[u8; 64]| {
        let opcode = CqeOpcode::from_bits(entry[63] >> 4);
        matches!(opcode, Some(CqeOpcode::RequesterError | CqeOpcode::ResponderError))
    };
    let errors: Vec<ErrorCqe> =
        entries.filter(is_error).map(|entry| ErrorCqe::read_from_bytes(&entry).unwrap()).collect();
    drop(fabric);
    let mut told = Vec::new();
    cq.poll(64, |completion| told.extend(completion.status().err())).unwrap();
    let vendors =
        |errors: &[ErrorCqe]| errors.iter().map(|e| e.vendor_err_synd).collect::<Vec<_>>();
    assert_eq!(told.iter().map(|error| error.vendor).collect::<Vec<_>>(), vendors(&errors));
    errors
}

impl Rig {
    /// The errors in the sender's queue.
    fn sent(&mut self) -> Vec<ErrorCqe> {
        errors(&self.machine, self.a.device, &mut self.a.send_cq)
    }

    /// The errors in the receiver's queue.
    fn received(&mut self) -> Vec<ErrorCqe> {
        errors(&self.machine, self.b.device, &mut self.b.recv_cq)
    }

    /// Posts a request, and one that writes a byte to the other side after it.
    fn post(&mut self, request: impl FnOnce(mlx5::Wr<'_, '_, Rc>, MemoryPlaces)) -> Vec<ErrorCqe> {
        let places = self.places();
        let mut batch = self.a.qp.wr_start();
        request(batch.wr(1, SendFlags::SIGNALED), places);
        batch.wr(2, SendFlags::SIGNALED).rdma_write(places.remote).inline_data(b"x");
        batch.complete().unwrap();
        self.sent()
    }

    fn places(&self) -> MemoryPlaces {
        let here = self.a.memory.sge(..).unwrap();
        MemoryPlaces { here, remote: self.b.memory.remote(..).unwrap() }
    }

    /// Has the other side post a receive.
    fn receive(&mut self, sge: Sge) {
        self.b.qp.post_recv(&[ReceiveWr { wr_id: 5, sges: &[sge] }]).unwrap();
    }

    /// A region that is registered and gone.
    fn released(pd: &ProtectionDomain) -> Sge {
        let region = pd.memory(BYTES).access(Access::LOCAL_WRITE).register().unwrap();
        let sge = region.sge(..).unwrap();
        region.deregister().unwrap();
        sge
    }
}

#[derive(Clone, Copy)]
struct MemoryPlaces {
    here: Sge,
    remote: RemoteAddress,
}

/// A key that no device has.
const NO_KEY: u32 = 0x1234_5678;

/// Memory that is registered and does not answer, as that of a GPU that cannot be reached.
fn silent(pd: &ProtectionDomain) -> MemoryRegion {
    let length = NonZeroUsize::new(BYTES).unwrap();
    let rights = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
    // SAFETY: new memory of its own.
    let start: NonNull<_> =
        unsafe { mmap_anonymous(None, length, rights, MapFlags::MAP_PRIVATE) }.unwrap();
    let access = Access::LOCAL_WRITE | Access::REMOTE_READ;
    // SAFETY: the device is simulated, and reports memory that is not there.
    let region = unsafe { pd.reg_mr(start.as_ptr().cast(), BYTES, access) }.unwrap();
    // SAFETY: nothing refers to the memory but the simulated device, which checks what it reads.
    unsafe { munmap(start, BYTES) }.unwrap();
    region
}

fn gather_with_a_key_that_is_none() -> Vec<ErrorCqe> {
    rig().post(|wr, at| wr.send().sge(Sge { lkey: NO_KEY, ..at.here }))
}

fn gather_with_a_released_key() -> Vec<ErrorCqe> {
    let mut rig = rig();
    let sge = Rig::released(&rig.a.pd);
    rig.post(|wr, _| wr.send().sge(sge))
}

fn gather_past_the_region() -> Vec<ErrorCqe> {
    let mut rig = rig();
    let errors = rig.post(|wr, at| {
        let length = at.here.length + 1;
        wr.rdma_write(at.remote).sge(Sge { length, ..at.here });
    });
    let access = AsyncEvent::QpAccessError(rig.a.qp.id());
    assert_eq!(rig.a.context.async_events().next().unwrap(), Some(access));
    errors
}

fn gather_from_memory_that_does_not_answer() -> Vec<ErrorCqe> {
    let mut rig = rig();
    let silent = silent(&rig.a.pd);
    let sge = silent.sge(..).unwrap();
    rig.post(|wr, at| wr.rdma_write(at.remote).sge(sge))
}

fn read_into_memory_that_may_not_be_written() -> Vec<ErrorCqe> {
    let mut rig = rig();
    let constant = rig.a.pd.memory(BYTES).access(Access::empty()).register().unwrap();
    let sge = constant.sge(..).unwrap();
    rig.post(|wr, at| wr.rdma_read(at.remote).sge(sge))
}

/// Sends a message to a receive with this entry.
fn received_with(mut rig: Rig, sge: Sge) -> Vec<ErrorCqe> {
    rig.receive(sge);
    rig.post(|wr, _| wr.send().inline_data(b"message"));
    rig.received()
}

fn receive_with_a_key_that_is_none() -> Vec<ErrorCqe> {
    let rig = rig();
    let sge = rig.b.memory.sge(..).unwrap();
    received_with(rig, Sge { lkey: NO_KEY, ..sge })
}

fn receive_into_memory_that_does_not_answer() -> Vec<ErrorCqe> {
    let rig = rig();
    let silent = silent(&rig.b.pd);
    let sge = silent.sge(..).unwrap();
    received_with(rig, sge)
}

fn write_with_a_key_that_the_peer_lacks() -> Vec<ErrorCqe> {
    rig().post(|wr, at| {
        wr.rdma_write(RemoteAddress { rkey: NO_KEY, ..at.remote }).inline_data(b"x");
    })
}

fn read_with_a_key_that_the_peer_lacks() -> Vec<ErrorCqe> {
    rig().post(|wr, at| {
        wr.rdma_read(RemoteAddress { rkey: NO_KEY, ..at.remote }).sge(at.here);
    })
}

fn atomic_with_a_key_that_the_peer_lacks() -> Vec<ErrorCqe> {
    rig().post(|wr, at| {
        let remote = RemoteAddress { rkey: NO_KEY, ..at.remote };
        wr.atomic_cmp_swp(remote, 1, 2).sge(Sge { length: 8, ..at.here });
    })
}

/// A connection whose second end grants nothing.
fn ungranted(request: impl FnOnce(mlx5::Wr<'_, '_, Rc>, MemoryPlaces)) -> Vec<ErrorCqe> {
    let options = ConnectOptions::default();
    let none = options.access_flags(Some(AccessFlags::LOCAL_WRITE));
    let mut rig = rig_with(SimConfig::new(), options, none);
    let errors = rig.post(request);
    let access = AsyncEvent::QpAccessError(rig.b.qp.id());
    let events = rig.b.context.async_events();
    assert!((0..4).any(|_| events.next().unwrap() == Some(access)));
    errors
}

fn read_that_the_peer_does_not_grant() -> Vec<ErrorCqe> {
    ungranted(|wr, at| wr.rdma_read(at.remote).sge(at.here))
}

fn write_that_the_peer_does_not_grant() -> Vec<ErrorCqe> {
    ungranted(|wr, at| wr.rdma_write(at.remote).inline_data(b"x"))
}

fn send_to_a_peer_with_another_mtu() -> Vec<ErrorCqe> {
    let options = ConnectOptions::default();
    let mut rig = rig_with(SimConfig::new(), options.path_mtu(Some(Mtu::Mtu512)), options);
    let sge = rig.b.memory.sge(..).unwrap();
    rig.receive(sge);
    rig.post(|wr, at| wr.send().sge(at.here))
}

fn read_of_memory_that_does_not_answer() -> Vec<ErrorCqe> {
    let mut rig = rig();
    let silent = silent(&rig.b.pd);
    let remote = silent.remote(..).unwrap();
    rig.post(|wr, at| wr.rdma_read(remote).sge(at.here))
}

fn peer_that_is_gone() -> Vec<ErrorCqe> {
    let mut rig = rig();
    rig.b.qp.modify(&QpAttributes::new().qp_state(QueueState::Error)).unwrap();
    rig.post(|wr, at| wr.rdma_write(at.remote).inline_data(b"x"))
}

fn receives_of_a_queue_that_refused() -> Vec<ErrorCqe> {
    let mut rig = rig();
    let sge = rig.b.memory.sge(..).unwrap();
    rig.receive(sge);
    rig.post(|wr, at| {
        wr.rdma_write(RemoteAddress { rkey: NO_KEY, ..at.remote }).inline_data(b"x");
    });
    rig.received()
}

fn receives_of_a_queue_that_modify_ended() -> Vec<ErrorCqe> {
    let mut rig = rig();
    let sge = rig.b.memory.sge(..).unwrap();
    rig.receive(sge);
    rig.receive(sge);
    rig.b.qp.modify(&QpAttributes::new().qp_state(QueueState::Error)).unwrap();
    rig.received()
}

fn sends_of_a_queue_that_modify_ended() -> Vec<ErrorCqe> {
    let mut rig = rig();
    // There is no receive, and the sender asks again without end.
    rig.post(|wr, _| wr.send().inline_data(b"x"));
    rig.a.qp.modify(&QpAttributes::new().qp_state(QueueState::Error)).unwrap();
    rig.sent()
}

/// A WQE with these bytes behind its control segment.
fn raw(opcode: u8, immediate: u32, body: &[u8]) -> Vec<u8> {
    let units = 1 + body.len() / 16;
    let control = ControlSegment {
        opmod_index_opcode: u32::from(opcode).into(),
        qpn_ds: (units as u32).into(),
        fm_ce_se: control_flags::COMPLETION,
        immediate: immediate.into(),
        ..ControlSegment::default()
    };
    [control.as_bytes(), body].concat()
}

fn posted(rig: &mut Rig, wqe: &[u8]) -> Vec<ErrorCqe> {
    // SAFETY: the simulated device is to refuse it.
    let wqe = unsafe { RawWqe::new(wqe) }.unwrap();
    rig.post(|wr, _| wr.raw_wqe(wqe))
}

fn request_that_is_none() -> Vec<ErrorCqe> {
    posted(&mut rig(), &raw(0x3e, 0, &[0; 16]))
}

/// A UMR with `units` units of translation entries, which names `said` in its length.
fn umr(key: u32, units: usize, said: u16) -> Vec<u8> {
    let control = UmrControlSegment {
        flags: umr_flags::INLINE,
        klm_octowords: said.into(),
        ..UmrControlSegment::default()
    };
    let context = MkeyContextSegment::default();
    let body = [control.as_bytes(), context.as_bytes(), &vec![0; units * 16][..]].concat();
    raw(Opcode::Umr as u8, key, &body)
}

fn umr_with_a_list_that_is_not_aligned() -> Vec<ErrorCqe> {
    let mut rig = rig();
    let key = rig.a.pd.create_mkey(4).build().unwrap();
    posted(&mut rig, &umr(key.lkey(), 4, 2))
}

fn umr_of_a_key_that_is_gone() -> Vec<ErrorCqe> {
    let mut rig = rig();
    let key = rig.a.pd.create_mkey(4).build().unwrap().lkey();
    posted(&mut rig, &umr(key, 4, 4))
}

fn umr_of_a_key_that_is_too_small() -> Vec<ErrorCqe> {
    let mut rig = rig();
    let key = rig.a.pd.create_mkey(4).build().unwrap();
    posted(&mut rig, &umr(key.lkey(), 8, 8))
}

/// Queues for packets.
struct Station {
    qp: QueuePair<RawPacket>,
    send_cq: CompletionQueue,
    recv_cq: CompletionQueue,
    memory: MemoryRegion,
    pd: ProtectionDomain,
}

const GROUP: [u8; 6] = [0x01, 0x50, 0x56, 0x19, 0x20, 0xa7];

fn ethernet_of(config: SimConfig) -> Simulator {
    let config = config.ports([PortConfig::ROCE]).raw_packets(true);
    Simulator::new(config.devices(2).step(true).checked_memory(true))
}

fn ethernet() -> Simulator {
    ethernet_of(SimConfig::new())
}

fn station(machine: &Simulator, device: usize) -> Station {
    let context = devices_on(machine.kernel()).unwrap()[device].open().unwrap();
    let pd = context.alloc_pd().unwrap();
    let cq = || context.create_cq(64).build().unwrap();
    let (send_cq, recv_cq) = (cq(), cq());
    let mut qp = pd.create_qp::<RawPacket>(&send_cq, &recv_cq).max_recv_wr(4).build().unwrap();
    qp.activate(1).unwrap();
    let memory = pd.memory(BYTES).register().unwrap();
    memory.write_at(0, &GROUP).unwrap();
    Station { qp, send_cq, recv_cq, memory, pd }
}

fn packet_sent(spoil: impl FnOnce(Sge) -> Sge) -> Vec<ErrorCqe> {
    let machine = ethernet();
    let mut station = station(&machine, 0);
    let sge = spoil(station.memory.sge(..64).unwrap());
    station.qp.post(|batch| batch.wr(1, SendFlags::SIGNALED).send().sge(sge)).unwrap();
    errors(&machine, 0, &mut station.send_cq)
}

fn packet_past_the_region() -> Vec<ErrorCqe> {
    packet_sent(|sge| Sge { addr: sge.addr + BYTES as u64 - 32, ..sge })
}

fn packet_with_a_key_that_is_none() -> Vec<ErrorCqe> {
    packet_sent(|sge| Sge { lkey: NO_KEY, ..sge })
}

/// As a raw WQE, because the driver copies the headers of each packet.
fn packet_without_the_headers_that_the_device_demands() -> Vec<ErrorCqe> {
    let machine = ethernet_of(SimConfig::new().inline_mode(InlineMode::L2));
    let mut station = station(&machine, 0);
    let sge = station.memory.sge(..64).unwrap();
    let data = DataSegment {
        byte_count: sge.length.into(),
        lkey: sge.lkey.into(),
        address: sge.addr.into(),
    };
    let body = [EthernetSegment::default().as_bytes(), data.as_bytes()].concat();
    let wqe = raw(Opcode::Send as u8, 0, &body);
    // SAFETY: the simulated device is to refuse it.
    let wqe = unsafe { RawWqe::new(&wqe) }.unwrap();
    station.qp.post(|batch| batch.wr(1, SendFlags::SIGNALED).raw_wqe(wqe)).unwrap();
    errors(&machine, 0, &mut station.send_cq)
}

fn packet_received_with_a_released_key() -> Vec<ErrorCqe> {
    let machine = ethernet();
    let (mut a, mut b) = (station(&machine, 0), station(&machine, 1));
    let rule = Rule::new().ethernet(Ethernet::new().dst_mac(GROUP));
    let rule = b.qp.attach(1, &rule).unwrap();
    b.qp.recv(1, Rig::released(&b.pd)).unwrap();
    let sge = a.memory.sge(..64).unwrap();
    a.qp.post(|batch| batch.wr(1, SendFlags::SIGNALED).send().sge(sge)).unwrap();
    let errors = errors(&machine, 1, &mut b.recv_cq);
    drop(rule);
    errors
}

// Comparing.

/// A number, or text with the prefix 0x.
fn code(value: &Value) -> Option<u64> {
    let hex = |text: &str| u64::from_str_radix(text.strip_prefix("0x")?, 16).ok();
    value.as_u64().or_else(|| hex(value.as_str()?))
}

/// The syndrome that a status of `enum ibv_wc_status` stands for.
fn syndrome_of(status: u64) -> u64 {
    let syndromes: [(u64, u64); 11] = [
        (1, 0x01),
        (2, 0x02),
        (4, 0x04),
        (5, 0x05),
        (6, 0x06),
        (9, 0x12),
        (10, 0x13),
        (11, 0x14),
        (12, 0x15),
        (13, 0x16),
        (7, 0x10),
    ];
    syndromes.into_iter().find(|(of, _)| *of == status).expect("a status").1
}

/// The claims of a record: names, with the numbers of an entry.
fn claims(at: &Value) -> Vec<(&'static str, u64)> {
    // "5/0xf9 at wqe 77": status or syndrome, and the vendor's code.
    if let Some(text) = at.as_str() {
        let (status, rest) = text.split_once('/').expect("two codes");
        let vendor = rest.split(' ').next().unwrap_or(rest);
        let parse = |text: &str| match text.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).unwrap(),
            None => text.parse().unwrap(),
        };
        return vec![("syndrome", parse(status)), ("vendor_syndrome", parse(vendor))];
    }
    let fields = ["syndrome", "vendor_syndrome", "hw_syndrome", "hw_syndrome_type", "solicited"];
    let mut claims: Vec<_> =
        fields.into_iter().filter_map(|field| Some((field, code(&at[field])?))).collect();
    if let Some(status) = code(&at["status_number"]) {
        claims.push(("syndrome", syndrome_of(status)));
    }
    claims
}

fn read(error: &ErrorCqe, field: &str) -> u64 {
    match field {
        "syndrome" => error.syndrome.into(),
        "vendor_syndrome" => error.vendor_err_synd.into(),
        "hw_syndrome" => error.hw_err_synd.into(),
        "hw_syndrome_type" => error.hw_synd_type.into(),
        _ => u64::from(error.op_own & SOLICITED != 0),
    }
}

/// Whether something in a record has a vendor's code.
fn has_codes(value: &Value) -> bool {
    match value {
        Value::Object(fields) => {
            fields.contains_key("vendor_syndrome") || fields.values().any(has_codes)
        }
        Value::Array(values) => values.iter().any(has_codes),
        _ => false,
    }
}

#[test]
fn the_simulated_device_says_in_each_situation_what_the_recorded_one_said() {
    let records = records();
    let find = |id: &str| {
        let record = records.values().flatten().find(|record| record["id"] == id);
        record.unwrap_or_else(|| panic!("no record {id}"))
    };
    let mut wrong = Vec::new();
    for (id, place, situation, which) in SITUATIONS {
        let claims = claims(find(id)["expect"].pointer(place).expect("a place"));
        assert!(!claims.is_empty(), "{id} claims nothing at {place:?}");
        let errors = situation();
        let Some(error) = errors.get(*which) else {
            wrong.push(format!("{id}: only {} errors", errors.len()));
            continue;
        };
        for (field, recorded) in claims {
            let told = read(error, field);
            if told != recorded {
                wrong.push(format!("{id}{place}: {field} is {told:#x}, not {recorded:#x}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn each_record_with_codes_has_a_situation_or_a_reason_and_few_have_reasons() {
    let records = records();
    let (mut simulated, mut left) = (0, 0);
    for record in records.values().flatten().filter(|record| has_codes(&record["expect"])) {
        let id = text(record, "id");
        let has_situation = SITUATIONS.iter().any(|(of, ..)| *of == id);
        let has_reason = NOT_SIMULATED.iter().any(|(of, _)| *of == id);
        assert!(
            has_situation != has_reason,
            "{id}: situation {has_situation}, reason {has_reason}"
        );
        simulated += usize::from(has_situation);
        left += usize::from(has_reason);
    }
    assert_eq!(left, NOT_SIMULATED.len(), "a reason is of no record with codes");
    assert!(left * 4 <= simulated + left, "{left} of {} have no situation", simulated + left);
}

/// FR: no record's bytes, but 100 trials (`fr-counters`).
#[test]
fn a_receiver_that_is_never_ready_is_reported_as_the_counters_study_says() {
    let options = ConnectOptions::default().rnr_retry(RetryCount::new(1).unwrap());
    let mut rig = rig_with(SimConfig::new(), options, ConnectOptions::default());
    let errors = rig.post(|wr, _| wr.send().inline_data(b"x"));
    let codes = [errors[0].syndrome, errors[0].vendor_err_synd, errors[0].hw_err_synd];
    assert_eq!(codes, [0x16, 0x87, 0]);
    // The peer goes on.
    let state = rig.machine.query_qp(1, rig.b.qp.qp_num()).unwrap().state;
    assert_eq!(format!("{state:?}"), "Rts");
}
