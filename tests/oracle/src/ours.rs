//! The script through this provider, in process.

use mlx5::transport::{Rc, Uc, Ud};
use mlx5::{
    AccessFlags, AckTimeout, AddressHandle, AhAttr, CompletionQueue, Context, DoorbellChoice, Gid,
    GlobalRoute, MemoryRegion, Mtu, OpenOptions, ProtectionDomain, Psn, QpAttributes, QpNumber,
    QueuePair, QueuePairTransport, QueueState, ReceiveWr, RetryCount, RnrTimer, SharedReceiveQueue,
    devices_on,
};
use mlx5_prm::cqe::CqeOpcode;
use mlx5_prm::wqe::BLOCK;
use mlx5_sim::Simulator;
use mlx5_uapi::ioctl::{attr, method};

use crate::event::{Call, Event, Made, Outcome, Post};
use crate::failure::Failure;
use crate::memory::{CompletionRing, Memory, Registers, SendRing, scatter_list};
use crate::poster::{Poster, sges};
use crate::script::{Command, Init, Path, Receive, Request, Rtr, Rts, Sizes, Transport};
use crate::table::Door;
use crate::watch::Watch;

/// Bytes of a UAR page.
const PAGE: usize = 4096;

/// The current queue pair. Its fields are dropped in this order.
struct Queue {
    transport: Transport,
    builder: bool,
    choice: DoorbellChoice,
    qp: Option<Box<dyn Poster>>,
    srq: Option<SharedReceiveQueue>,
    ahs: Vec<AddressHandle>,
    paths: Vec<AhAttr>,
    _mr: Option<MemoryRegion>,
    cq: Option<CompletionQueue>,
    pd: ProtectionDomain,
    context: Context,
    filler: Option<Request>,
    completions: CompletionRing,
    user_index: u32,
    ring: SendRing,
    receive_ring: Memory,
    stride: usize,
    record: Memory,
    registers: Registers,
    shared_ring: Memory,
    shared_stride: usize,
    shared_record: Memory,
    /// The request that the device takes next from the shared receive queue.
    shared_next: u16,
    shared_posted: Vec<u16>,
    /// Blocks reported so far, and the first block of the last request.
    head: u16,
    last: u16,
    received: u16,
    receives_done: u16,
}

/// Runs scripts.
pub(crate) struct Ours {
    watch: Watch,
    device: mlx5::Device,
    door: Door,
    queue: Option<Queue>,
    events: Vec<Event>,
    /// Field only to keep the machine alive.
    _simulator: Simulator,
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

pub(crate) fn address_at(bytes: &[u8], at: usize) -> usize {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes")) as usize
}

/// The driver's input in the last call of a method.
pub(crate) fn driver_input(calls: &[Call], of: mlx5_uapi::ioctl::Method) -> Result<&[u8], Failure> {
    let call = calls.iter().rev().find(|call| (call.object, call.method) == (of.object, of.id));
    let input = call.and_then(|call| call.inputs.get(&attr::uhw::IN.0));
    input.map(Vec::as_slice).ok_or(Failure::Missing("a driver's request"))
}

impl Ours {
    /// Starts on the first device of a machine.
    pub(crate) fn new(simulator: Simulator, door: Door) -> Result<Self, Failure> {
        let watch = Watch::default();
        let device = devices_on(watch.kernel(simulator.kernel()))?.into_iter().next();
        let device = device.ok_or(Failure::Missing("a device"))?;
        Ok(Self { watch, device, door, queue: None, events: Vec::new(), _simulator: simulator })
    }

    /// Runs a script, and returns the events.
    pub(crate) fn run(mut self, commands: &[Command]) -> Result<Vec<Event>, Failure> {
        for command in commands {
            self.command(command)?;
        }
        self.queue = None;
        Ok(self.events)
    }

    fn queue(&mut self) -> Result<&mut Queue, Failure> {
        self.queue.as_mut().ok_or(Failure::Missing("a queue"))
    }

    /// Moves the calls since the last time into the events.
    fn report_calls(&mut self) -> Vec<Call> {
        let calls = self.watch.take();
        self.events.extend(calls.iter().cloned().map(Event::Call));
        calls
    }

    fn command(&mut self, command: &Command) -> Result<(), Failure> {
        match command {
            Command::Queue { name, transport, builder, shared_door } => {
                self.queue = None;
                self.watch.take();
                self.events.push(Event::Queue(name.clone()));
                let context = self.device.open_with(&OpenOptions::new())?;
                let pd = context.alloc_pd()?;
                let choice = match self.door {
                    Door::Plain => DoorbellChoice::Doorbell,
                    _ if *shared_door => DoorbellChoice::SharedBlueFlame,
                    _ => DoorbellChoice::BlueFlame,
                };
                self.queue = Some(Queue::new(*transport, *builder, choice, context, pd));
                self.report_calls();
            }
            Command::Cq { entries, vector } => {
                let queue = self.queue()?;
                let cq = queue.context.create_cq(*entries).comp_vector(*vector).build()?;
                queue.cq = Some(cq);
                let calls = self.report_calls();
                let driver = driver_input(&calls, method::CQ_CREATE)?;
                let entry = u32_at(driver, 16) as usize;
                let length = (*entries as usize + 1).next_power_of_two() * entry;
                // SAFETY: the completion queue owns its ring, and `Queue` keeps it. The driver only
                // reads the ring, by volatile loads.
                let memory = unsafe { Memory::new(address_at(driver, 0), length) };
                self.queue()?.completions = CompletionRing { memory, entry, written: 0 };
            }
            Command::Mr { bytes, access } => {
                let queue = self.queue()?;
                let access = AccessFlags::from_bits_retain(*access);
                queue._mr = Some(queue.pd.memory(*bytes).access(access).register()?);
                self.report_calls();
            }
            Command::Ah(path) => {
                let queue = self.queue()?;
                let attr = ah_attr(path);
                if queue.transport == Transport::Ud {
                    queue.ahs.push(queue.pd.create_ah(&attr)?);
                }
                queue.paths.push(attr);
                self.report_calls();
            }
            Command::Srq { requests, entries } => self.make_srq(*requests, *entries)?,
            Command::Qp(sizes) => self.make_qp(sizes)?,
            Command::Init(init) => {
                let queue = self.queue()?;
                let attributes = to_init(queue.transport, init);
                queue.qp()?.modify(&attributes)?;
                self.report_calls();
            }
            Command::Rtr(rtr) => {
                let queue = self.queue()?;
                let attributes = to_rtr(queue.transport, rtr, &queue.paths)?;
                queue.qp()?.modify(&attributes)?;
                self.report_calls();
            }
            Command::Rts(rts) => {
                let queue = self.queue()?;
                let attributes = to_rts(queue.transport, rts)?;
                queue.qp()?.modify(&attributes)?;
                self.report_calls();
            }
            Command::Filler(request) => self.queue()?.filler = Some(request.clone()),
            Command::Post(label, list) => {
                let post = self.queue()?.post(list)?;
                self.events.push(Event::Post(label.clone(), post));
            }
            Command::Drain => self.queue()?.drain()?,
            Command::Fill { count, times } => self.queue()?.fill(*count, *times)?,
            Command::Overfull => {
                let untouched = self.queue()?.overfill()?;
                self.events.push(Event::Overfull { untouched });
            }
            Command::Recv(label, list) => {
                let post = self.queue()?.post_recv(list)?;
                self.events.push(Event::Receive(label.clone(), post));
            }
            Command::ReceiveDrain => self.queue()?.drain_receives()?,
            Command::ReceiveFill { count, times } => {
                let list = vec![Receive { wr_id: 0, entries: Vec::new() }; *count as usize];
                for _ in 0..*times {
                    self.queue()?.post_recv(&list)?;
                    self.queue()?.drain_receives()?;
                }
            }
            Command::SharedRecv(label, list) => {
                let post = self.queue()?.post_shared(list)?;
                self.events.push(Event::Receive(label.clone(), post));
            }
            Command::SharedDrain(order) => {
                for which in order {
                    let queue = self.queue()?;
                    let index = queue.shared_posted.remove(*which);
                    queue.complete(CqeOpcode::ResponderSend, index)?;
                }
            }
        }
        Ok(())
    }

    fn make_srq(&mut self, requests: u32, entries: u32) -> Result<(), Failure> {
        let queue = self.queue()?;
        let srq = queue.pd.create_srq(requests).max_sge(entries).build()?;
        let (requests, entries) = (srq.capacity(), srq.max_sge());
        queue.srq = Some(srq);
        let calls = self.report_calls();
        self.events.push(Event::Shared { requests, entries });
        let driver = driver_input(&calls, method::SRQ_CREATE)?.to_vec();
        let queue = self.queue()?;
        queue.shared_stride = (entries as usize + 1) * 16;
        let length = queue.shared_stride * (requests as usize + 1);
        // SAFETY: the queue owns the ring and the record, and `Queue` keeps it. The driver writes
        // them only in calls of this thread.
        unsafe {
            queue.shared_ring = Memory::new(address_at(&driver, 0), length);
            queue.shared_record = Memory::new(address_at(&driver, 8), 4);
        }
        Ok(())
    }

    fn make_qp(&mut self, sizes: &Sizes) -> Result<(), Failure> {
        // A second context finds the number of requests for which the driver grants this many
        // blocks, so that the trials do not appear among the calls.
        let aside = self.device.open()?;
        let (pd, cq) = (aside.alloc_pd()?, aside.create_cq(16).build()?);
        let transport = self.queue()?.transport;
        let mut found = None;
        for part in 1..=sizes.blocks {
            let asked = sizes.blocks / part;
            let blocks = match transport {
                Transport::Rc => create::<Rc>(&pd, &cq, None, sizes, asked, DoorbellChoice::Auto)
                    .map(|qp| qp.caps().send_blocks),
                Transport::Uc => create::<Uc>(&pd, &cq, None, sizes, asked, DoorbellChoice::Auto)
                    .map(|qp| qp.caps().send_blocks),
                Transport::Ud => create::<Ud>(&pd, &cq, None, sizes, asked, DoorbellChoice::Auto)
                    .map(|qp| qp.caps().send_blocks),
            };
            if blocks.is_ok_and(|blocks| blocks == sizes.blocks) {
                found = Some(asked);
                break;
            }
        }
        let asked = found.ok_or(Failure::Missing("a ring of this number of blocks"))?;
        self.watch.take();
        let queue = self.queue()?;
        let cq = queue.cq.as_ref().ok_or(Failure::Missing("a completion queue"))?;
        let (pd, srq, choice) = (&queue.pd, queue.srq.as_ref(), queue.choice);
        let qp: Box<dyn Poster> = match transport {
            Transport::Rc => Box::new(create::<Rc>(pd, cq, srq, sizes, asked, choice)?),
            Transport::Uc => Box::new(create::<Uc>(pd, cq, srq, sizes, asked, choice)?),
            Transport::Ud => Box::new(create::<Ud>(pd, cq, srq, sizes, asked, choice)?),
        };
        let qpn = qp.qp_num();
        queue.qp = Some(qp);
        let calls = self.report_calls();
        let driver = driver_input(&calls, method::QP_CREATE)?.to_vec();
        let page = self.watch.page(u32_at(&driver, 36));
        let page = page.ok_or(Failure::Missing("the UAR page of the queue pair"))?;
        let (blocks, receives) = (u32_at(&driver, 16), u32_at(&driver, 20));
        let stride = 1_usize << u32_at(&driver, 24);
        let queue = self.queue()?;
        queue.user_index = u32_at(&driver, 32);
        queue.stride = stride;
        let start = address_at(&driver, 0);
        let receive_bytes = receives as usize * stride;
        // SAFETY: the queue pair owns the rings and the record, and maps the page; `Queue` keeps
        // it. The driver writes them only in calls of this thread.
        unsafe {
            queue.receive_ring = Memory::new(start, receive_bytes);
            queue.ring = SendRing(Memory::new(start + receive_bytes, blocks as usize * BLOCK));
            queue.record = Memory::new(address_at(&driver, 8), 8);
            queue.registers = Registers(Memory::new(page, PAGE));
        }
        let stride = if receives == 0 { 0 } else { stride as u32 };
        self.events.push(Event::Made(Made { qpn, blocks, receives, stride }));
        Ok(())
    }
}

fn create<T: QueuePairTransport>(
    pd: &ProtectionDomain,
    cq: &CompletionQueue,
    srq: Option<&SharedReceiveQueue>,
    sizes: &Sizes,
    requests: u32,
    choice: DoorbellChoice,
) -> Result<QueuePair<T>, mlx5::Error> {
    let mut builder = pd
        .create_qp::<T>(cq, cq)
        .max_send_wr(requests)
        .max_recv_wr(sizes.receives)
        .max_send_sge(sizes.send_sges)
        .max_recv_sge(sizes.recv_sges)
        .max_inline_data(sizes.inline)
        .signal_all(sizes.signal_all)
        .doorbell(choice);
    if let Some(srq) = srq {
        builder = builder.srq(srq);
    }
    builder.build()
}

fn ah_attr(path: &Path) -> AhAttr {
    let attr = AhAttr {
        sl: path.sl,
        src_path_bits: path.bits,
        static_rate: path.rate,
        ..AhAttr::infiniband(1, path.dlid)
    };
    if !path.global {
        return attr;
    }
    attr.with_grh(GlobalRoute {
        dgid: Gid::from_bytes(path.gid),
        flow_label: path.flow,
        sgid_index: path.sgid,
        hop_limit: path.hop,
        traffic_class: path.tclass,
    })
}

fn to_init(transport: Transport, init: &Init) -> QpAttributes {
    let attributes =
        QpAttributes::new().qp_state(QueueState::Init).port_num(init.port).pkey_index(init.pkey);
    match transport {
        Transport::Ud => attributes.qkey(init.qkey),
        _ => attributes.qp_access_flags(AccessFlags::from_bits_retain(init.access)),
    }
}

fn to_rtr(transport: Transport, rtr: &Rtr, paths: &[AhAttr]) -> Result<QpAttributes, Failure> {
    let attributes = QpAttributes::new().qp_state(QueueState::ReadyToReceive);
    if transport == Transport::Ud {
        return Ok(attributes);
    }
    let attributes = attributes
        .ah_attr(paths[rtr.path])
        .path_mtu(Mtu::from_raw(rtr.mtu).ok_or(Failure::Missing("an MTU"))?)
        .dest_qp_num(QpNumber::new(rtr.dest)?)
        .rq_psn(Psn::new(rtr.psn)?);
    Ok(match transport {
        Transport::Rc => {
            attributes.max_dest_rd_atomic(rtr.reads).min_rnr_timer(RnrTimer::new(rtr.rnr)?)
        }
        _ => attributes,
    })
}

fn to_rts(transport: Transport, rts: &Rts) -> Result<QpAttributes, Failure> {
    let attributes =
        QpAttributes::new().qp_state(QueueState::ReadyToSend).sq_psn(Psn::new(rts.psn)?);
    Ok(match transport {
        Transport::Rc => attributes
            .timeout(AckTimeout::new(rts.timeout)?)
            .retry_cnt(RetryCount::new(rts.retry)?)
            .rnr_retry(RetryCount::new(rts.rnr)?)
            .max_rd_atomic(rts.reads),
        _ => attributes,
    })
}

impl Queue {
    fn new(
        transport: Transport,
        builder: bool,
        choice: DoorbellChoice,
        context: Context,
        pd: ProtectionDomain,
    ) -> Self {
        Self {
            transport,
            builder,
            choice,
            qp: None,
            srq: None,
            ahs: Vec::new(),
            paths: Vec::new(),
            _mr: None,
            cq: None,
            pd,
            context,
            filler: None,
            completions: CompletionRing::default(),
            user_index: 0,
            ring: SendRing::default(),
            receive_ring: Memory::default(),
            stride: 0,
            record: Memory::default(),
            registers: Registers::default(),
            shared_ring: Memory::default(),
            shared_stride: 0,
            shared_record: Memory::default(),
            shared_next: 0,
            shared_posted: Vec::new(),
            head: 0,
            last: 0,
            received: 0,
            receives_done: 0,
        }
    }

    fn qp(&mut self) -> Result<&mut dyn Poster, Failure> {
        Ok(&mut **self.qp.as_mut().ok_or(Failure::Missing("a queue pair"))?)
    }

    fn send(&mut self, list: &[Request]) -> Result<Outcome, Failure> {
        let builder = self.builder;
        let qp = self.qp.as_mut().ok_or(Failure::Missing("a queue pair"))?;
        Ok(qp.post(list, builder, &self.ahs))
    }

    fn counter(record: &Memory, at: usize) -> u16 {
        let bytes = record.read(at, 4);
        u16::from_be_bytes([bytes[2], bytes[3]])
    }

    /// The requests that the record has announced since the last time.
    fn follow(&mut self) -> Vec<Vec<u8>> {
        let end = Self::counter(&self.record, 4);
        let mut wqes = Vec::new();
        while self.head != end {
            let (wqe, next) = self.ring.request(self.head);
            wqes.push(wqe);
            self.last = self.head;
            self.head = next;
        }
        wqes
    }

    fn post(&mut self, list: &[Request]) -> Result<Post, Failure> {
        self.registers.poison();
        let outcome = self.send(list)?;
        let rung = self.registers.rung();
        self.registers.clear();
        let record = self.record.read(0, 8);
        Ok(Post { outcome, record, rung, wqes: self.follow() })
    }

    fn complete(&mut self, opcode: CqeOpcode, counter: u16) -> Result<(), Failure> {
        self.completions.write(opcode, self.user_index, counter);
        let cq = self.cq.as_mut().ok_or(Failure::Missing("a completion queue"))?;
        let mut good = false;
        let count = cq.poll(2, |completion| good = completion.status().is_ok())?;
        if count == 1 && good { Ok(()) } else { Err(Failure::Missing("a good completion")) }
    }

    fn drain(&mut self) -> Result<(), Failure> {
        self.complete(CqeOpcode::Requester, self.last)
    }

    fn fill(&mut self, count: u32, times: u32) -> Result<(), Failure> {
        let filler = self.filler.clone().ok_or(Failure::Missing("a filler"))?;
        let list = vec![filler; count as usize];
        for _ in 0..times {
            if self.send(&list)? != Outcome::Posted {
                return Err(Failure::Missing("room for a filler"));
            }
            self.follow();
            self.drain()?;
        }
        self.registers.clear();
        Ok(())
    }

    fn overfill(&mut self) -> Result<bool, Failure> {
        let mut wr = self.filler.clone().ok_or(Failure::Missing("a filler"))?;
        "-".clone_into(&mut wr.flags);
        let ring = self.ring.0;
        for _ in 0..=ring.length() / BLOCK {
            let before = ring.read(0, ring.length());
            wr.address += 0x1000;
            let outcome = self.send(std::slice::from_ref(&wr))?;
            self.registers.clear();
            if outcome != Outcome::Posted {
                return Ok(before == ring.read(0, ring.length()));
            }
            self.follow();
        }
        Err(Failure::Missing("the end of the ring"))
    }

    fn post_recv(&mut self, list: &[Receive]) -> Result<Post, Failure> {
        let entries: Vec<_> = list.iter().map(|receive| sges(&receive.entries)).collect();
        let wrs: Vec<_> = list
            .iter()
            .zip(&entries)
            .map(|(receive, sges)| ReceiveWr { wr_id: receive.wr_id, sges })
            .collect();
        let outcome = self.qp()?.post_recv(&wrs);
        let end = Self::counter(&self.record, 0);
        let mut wqes = Vec::new();
        while self.received != end {
            let at = usize::from(self.received) * self.stride % self.receive_ring.length();
            wqes.push(scatter_list(&self.receive_ring, at, self.stride));
            self.received = self.received.wrapping_add(1);
        }
        Ok(Post { outcome, record: self.record.read(0, 8), rung: None, wqes })
    }

    fn drain_receives(&mut self) -> Result<(), Failure> {
        while self.receives_done != self.received {
            self.complete(CqeOpcode::ResponderSend, self.receives_done)?;
            self.receives_done = self.receives_done.wrapping_add(1);
        }
        Ok(())
    }

    fn post_shared(&mut self, list: &[Receive]) -> Result<Post, Failure> {
        let entries: Vec<_> = list.iter().map(|receive| sges(&receive.entries)).collect();
        let wrs: Vec<_> = list
            .iter()
            .zip(&entries)
            .map(|(receive, sges)| ReceiveWr { wr_id: receive.wr_id, sges })
            .collect();
        let srq = self.srq.as_mut().ok_or(Failure::Missing("a shared receive queue"))?;
        let (outcome, posted) = match srq.post_recv(&wrs) {
            Ok(()) => (Outcome::Posted, list.len()),
            Err(error) => (Outcome::Refused(error.index()), error.index() as usize),
        };
        let mut wqes = Vec::new();
        for _ in 0..posted {
            let at = usize::from(self.shared_next) * self.shared_stride;
            let mut wqe = self.shared_ring.read(at, 16);
            let next = u16::from_be_bytes([wqe[2], wqe[3]]);
            // The sides may link the requests in different order; the comparison only needs an
            // intact list.
            wqe[2..4].fill(0);
            wqe.extend(scatter_list(&self.shared_ring, at + 16, self.shared_stride - 16));
            wqes.push(wqe);
            self.shared_posted.push(self.shared_next);
            self.shared_next = next;
        }
        Ok(Post { outcome, record: self.shared_record.read(0, 4), rung: None, wqes })
    }
}
