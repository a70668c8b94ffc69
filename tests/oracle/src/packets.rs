//! Packets, through both providers: queue pairs for them and the packets that they send, work
//! queues, tables, hashes, rules and counters.
//!
//! `peer/packets.h` has the commands of the script. This driver runs them by its own interface, and
//! by C's, in the same C program.

use std::path::Path;

use mlx5::flow::{FlowCounters, FlowRule};
use mlx5::transport::RawPacket;
use mlx5::{
    CompletionQueue, Context, Data, DoorbellChoice, HashKey, HashQueuePair, IndirectionTable,
    Operation, ProtectionDomain, QueuePair, ReceiveWr, Segmented, SendFlags, SendWr, Sge,
    WorkQueue, devices_on,
};
use mlx5_prm::cqe::CqeOpcode;
use mlx5_prm::ethernet::L2_INLINE;
use mlx5_prm::wqe::{BLOCK, UNIT};
use mlx5_sim::Simulator;
use mlx5_uapi::ioctl::method;

use crate::compare::{Comparison, compare as compare_events};
use crate::event::{Event, Made, Outcome, Post};
use crate::failure::Failure;
use crate::memory::{CompletionRing, Memory, Registers, SendRing, scatter_list};
use crate::ours::{address_at, driver_input, u32_at};
use crate::packets::table::{
    LKEY, Packet, Piece, Queue, Receive, Request, Section, Step, Work, receive_sges,
};
use crate::peer::Peer;
use crate::watch::Watch;

mod table;

/// The seed of the random words.
const SEED: u64 = 0x5eed_0007;
/// The sizes of a send queue, in blocks and otherwise.
const BLOCKS: u32 = 64;
const RECEIVES: u32 = 16;
const SEND_SGES: u32 = 4;
const RECV_SGES: u32 = 2;
const INLINE: u32 = 64;
const COMPLETIONS: u32 = 255;
/// Bytes of a UAR page.
const PAGE: usize = 4096;

/// The address of packets, in the requests of both sides.
const PACKETS: u64 = 0x7f56_0000_0000;

/// The bytes of packets, as the C program has them in memory.
fn bytes((at, length): Piece) -> impl Iterator<Item = u8> {
    (at..at + length).map(|at| (at * 7 + (at >> 8)) as u8)
}

fn sges(list: &[Piece]) -> Vec<Sge> {
    let entry = |&(at, length): &Piece| Sge { addr: PACKETS + u64::from(at), length, lkey: LKEY };
    list.iter().map(entry).collect()
}

/// The script for the C program.
fn script(section: &Section) -> Vec<String> {
    let Section { name, queue, steps, .. } = section;
    let api = if queue.is_some_and(|queue| queue.builder) { "builder" } else { "list" };
    let mut script = vec![format!("queue {name} raw {api}"), format!("cq {COMPLETIONS:x} 0")];
    if let Some(Queue { header, strips, scatters_fcs, own, .. }) = queue {
        let flags = u32::from(*scatters_fcs) << 8 | u32::from(*strips) << 9;
        script.push(format!("packets {header:x} {flags:x} {own:x}"));
        script.push(format!("qp {BLOCKS:x} {RECEIVES:x} {SEND_SGES:x} {RECV_SGES:x} {INLINE:x} 0"));
        script.push("ready".into());
    }
    script.extend(steps.iter().map(ToString::to_string));
    script
}

fn flags(letters: &str) -> SendFlags {
    let flag = |letter| match letter {
        'S' => SendFlags::SIGNALED,
        'C' => SendFlags::IP_CSUM,
        _ => SendFlags::empty(),
    };
    letters.chars().map(flag).collect()
}

/// The first bytes of a packet, and the rest of its pieces.
fn split(list: &[Piece]) -> Option<([u8; L2_INLINE], Vec<Piece>)> {
    let first: Vec<u8> = list.iter().flat_map(|piece| bytes(*piece)).take(L2_INLINE).collect();
    let mut left = L2_INLINE as u32;
    let rest = list.iter().map(|&(at, length)| {
        let copied = left.min(length);
        left -= copied;
        (at + copied, length - copied)
    });
    let rest = rest.filter(|(_, length)| *length != 0).collect();
    Some((first.try_into().ok()?, rest))
}

/// A queue pair and its memory.
struct Pair {
    qp: QueuePair<RawPacket>,
    builder: bool,
    needs_header: bool,
    ring: SendRing,
    receive_ring: Memory,
    stride: usize,
    record: Memory,
    registers: Registers,
    user_index: u32,
    head: u16,
    last: u16,
    received: u16,
    receives_done: u16,
}

impl Pair {
    fn build(&mut self, list: &[Request]) -> Outcome {
        let mut batch = self.qp.wr_start();
        for Request { wr_id, flags: letters, packet } in list {
            let wr = batch.wr(*wr_id, flags(letters));
            let whole = |list: &[Piece]| match self.needs_header {
                true => split(list),
                false => Some(([0; L2_INLINE], list.to_vec())),
            };
            match packet {
                Packet::Tso(mss, length, list) => {
                    let header: Vec<u8> = bytes((0, *length)).collect();
                    wr.send_tso(Segmented { header: &header, mss: *mss, payload: &sges(list) });
                }
                Packet::Send(list) => match whole(list) {
                    // The packet is too short for the header, so the caller cannot build this
                    // request.
                    None => return Outcome::Refused(0),
                    Some((header, rest)) if self.needs_header => {
                        wr.send().inline_header(&header).sge_list(&sges(&rest));
                    }
                    Some((_, list)) => wr.send().sge_list(&sges(&list)),
                },
                Packet::Inline(piece) => match whole(&[*piece]) {
                    None => return Outcome::Refused(0),
                    Some((header, rest)) if self.needs_header => {
                        let rest: Vec<u8> = rest.into_iter().flat_map(bytes).collect();
                        wr.send().inline_header(&header).inline_data(&rest);
                    }
                    Some(_) => wr.send().inline_data(&bytes(*piece).collect::<Vec<u8>>()),
                },
            }
        }
        batch.complete().map_or(Outcome::Refused(0), |()| Outcome::Posted)
    }

    fn list(&mut self, list: &[Request]) -> Outcome {
        let entries: Vec<Vec<Sge>> = list
            .iter()
            .map(|request| match &request.packet {
                Packet::Send(list) | Packet::Tso(.., list) => sges(list),
                Packet::Inline(_) => Vec::new(),
            })
            .collect();
        let copied: Vec<Vec<u8>> = list
            .iter()
            .map(|request| match &request.packet {
                Packet::Send(_) => Vec::new(),
                Packet::Tso(_, length, _) => bytes((0, *length)).collect(),
                Packet::Inline(piece) => bytes(*piece).collect(),
            })
            .collect();
        let cut: Vec<_> = list
            .iter()
            .zip(entries.iter().zip(&copied))
            .map(|(request, (payload, header))| match request.packet {
                Packet::Tso(mss, ..) => Segmented { header, mss, payload },
                _ => Segmented { header, mss: 0, payload },
            })
            .collect();
        let inline: Vec<[&[u8]; 1]> = copied.iter().map(|bytes| [&bytes[..]]).collect();
        let wrs: Vec<_> = list
            .iter()
            .enumerate()
            .map(|(n, request)| SendWr {
                wr_id: request.wr_id,
                flags: flags(request.flags),
                operation: match request.packet {
                    Packet::Tso(..) => Operation::Tso,
                    _ => Operation::Send,
                },
                data: match request.packet {
                    Packet::Send(_) => Data::Sges(&entries[n]),
                    Packet::Inline(_) => Data::Inline(&inline[n]),
                    Packet::Tso(..) => Data::Segmented(&cut[n]),
                },
                ..SendWr::default()
            })
            .collect();
        let posted = self.qp.post_send(&wrs);
        posted.map_or_else(|error| Outcome::Refused(error.index()), |()| Outcome::Posted)
    }

    fn post(&mut self, list: &[Request]) -> Post {
        self.registers.poison();
        let outcome = if self.builder { self.build(list) } else { self.list(list) };
        let rung = self.registers.rung();
        self.registers.clear();
        let record = self.record.read(0, 8);
        let end = u16::from_be_bytes([record[6], record[7]]);
        let mut wqes = Vec::new();
        while self.head != end {
            let (wqe, next) = self.ring.request(self.head);
            wqes.push(wqe);
            (self.last, self.head) = (self.head, next);
        }
        Post { outcome, record, rung, wqes }
    }

    fn receive(&mut self, list: &[Receive]) -> Post {
        let outcome = receive(list, |list| self.qp.post_recv(list).map_err(|error| error.index()));
        let record = self.record.read(0, 8);
        let end = u16::from_be_bytes([record[2], record[3]]);
        let mut wqes = Vec::new();
        while self.received != end {
            let at = usize::from(self.received) * self.stride % self.receive_ring.length();
            wqes.push(scatter_list(&self.receive_ring, at, self.stride));
            self.received = self.received.wrapping_add(1);
        }
        Post { outcome, record, rung: None, wqes }
    }
}

/// Posts receives to one of the queues that take them.
fn receive(list: &[Receive], post: impl FnOnce(&[ReceiveWr<'_>]) -> Result<(), u32>) -> Outcome {
    let entries: Vec<_> =
        list.iter().enumerate().map(|(number, lengths)| receive_sges(number, lengths)).collect();
    let wrs: Vec<_> = entries
        .iter()
        .enumerate()
        .map(|(number, sges)| ReceiveWr { wr_id: number as u64, sges })
        .collect();
    post(&wrs).map_or_else(Outcome::Refused, |()| Outcome::Posted)
}

/// A work queue and its memory.
struct Worker {
    queue: WorkQueue,
    ring: Memory,
    stride: usize,
    /// Bytes before the entries of a request.
    head: usize,
    record: Memory,
    user_index: u32,
    received: u16,
    done: u16,
}

impl Worker {
    fn receive(&mut self, list: &[Receive]) -> Post {
        let Self { queue, ring, stride, head, record, received, .. } = self;
        let outcome = receive(list, |list| queue.post_recv(list).map_err(|error| error.index()));
        let record = record.read(0, 8);
        let end = u16::from_be_bytes([record[2], record[3]]);
        let mut wqes = Vec::new();
        while *received != end {
            let at = usize::from(*received) * *stride % ring.length();
            let entries = scatter_list(ring, at + *head, *stride - *head);
            wqes.push([ring.read(at, *head), entries].concat());
            *received = received.wrapping_add(1);
        }
        Post { outcome, record, rung: None, wqes }
    }
}

/// This driver's side of a section. Its fields are dropped in this order.
struct Side {
    rules: Vec<FlowRule>,
    counters: Option<FlowCounters>,
    hash: Option<HashQueuePair>,
    table: Option<IndirectionTable>,
    works: Vec<Worker>,
    pair: Option<Pair>,
    cq: CompletionQueue,
    completions: CompletionRing,
    pd: ProtectionDomain,
    context: Context,
    watch: Watch,
    events: Vec<Event>,
}

impl Side {
    fn new(simulator: &Simulator, name: &str) -> Result<Self, Failure> {
        let watch = Watch::default();
        let device = devices_on(watch.kernel(simulator.kernel()))?.into_iter().next();
        let context = device.ok_or(Failure::Missing("a device"))?.open()?;
        let pd = context.alloc_pd()?;
        let mut events = vec![Event::Queue(name.into())];
        events.extend(watch.take().into_iter().map(Event::Call));
        let cq = context.create_cq(COMPLETIONS).build()?;
        let calls = watch.take();
        let driver = driver_input(&calls, method::CQ_CREATE)?;
        let entry = u32_at(driver, 16) as usize;
        let length = (COMPLETIONS as usize + 1) * entry;
        // SAFETY: the completion queue owns its ring, and `Side` keeps it. The driver only reads
        // the ring, by volatile loads.
        let memory = unsafe { Memory::new(address_at(driver, 0), length) };
        events.extend(calls.into_iter().map(Event::Call));
        Ok(Self {
            rules: Vec::new(),
            counters: None,
            hash: None,
            table: None,
            works: Vec::new(),
            pair: None,
            cq,
            completions: CompletionRing { memory, entry, written: 0 },
            pd,
            context,
            watch,
            events,
        })
    }

    /// Moves the calls since the last time into the events.
    fn report_calls(&mut self) -> Vec<crate::event::Call> {
        let calls = self.watch.take();
        self.events.extend(calls.iter().cloned().map(Event::Call));
        calls
    }

    fn build(&self, queue: &Queue, requests: u32) -> Result<QueuePair<RawPacket>, mlx5::Error> {
        let has = |bit: u32| queue.own & 1 << bit != 0;
        self.pd
            .create_qp::<RawPacket>(&self.cq, &self.cq)
            .max_send_wr(requests)
            .max_recv_wr(RECEIVES)
            .max_send_sge(SEND_SGES)
            .max_recv_sge(RECV_SGES)
            .max_inline_data(INLINE)
            .max_tso_header(queue.header)
            .vlan_stripping(queue.strips)
            .scatter_fcs(queue.scatters_fcs)
            .tunnel_offloads(has(0))
            .self_loopback(has(1), has(2))
            .doorbell(DoorbellChoice::BlueFlame)
            .build()
    }

    fn make(&mut self, queue: &Queue, needs_header: bool) -> Result<(), Failure> {
        // Finds the number of requests for which the driver grants `BLOCKS` blocks.
        let fits = |part: &u32| {
            let made = self.build(queue, BLOCKS / part);
            made.is_ok_and(|qp| qp.caps().send_blocks == BLOCKS)
        };
        let part =
            (1..=BLOCKS).find(fits).ok_or(Failure::Missing("a ring of this number of blocks"))?;
        self.watch.take();
        let mut qp = self.build(queue, BLOCKS / part)?;
        let calls = self.report_calls();
        let driver = driver_input(&calls, method::QP_CREATE)?.to_vec();
        let page = self.watch.page(u32_at(&driver, 36));
        let page = page.ok_or(Failure::Missing("the UAR page of the queue pair"))?;
        let (blocks, receives) = (u32_at(&driver, 16), u32_at(&driver, 20));
        let stride = 1 << u32_at(&driver, 24);
        // SAFETY: the queue pair owns the rings and the record, and maps the page; `Pair` keeps
        // them together. The driver writes them only in calls of this thread.
        let (ring, receive_ring, record, registers) = unsafe {
            (
                SendRing(Memory::new(address_at(&driver, 40), blocks as usize * BLOCK)),
                Memory::new(address_at(&driver, 0), (receives * stride) as usize),
                Memory::new(address_at(&driver, 8), 8),
                Registers(Memory::new(page, PAGE)),
            )
        };
        let made = Made { qpn: qp.qp_num(), blocks, receives, stride };
        self.events.push(Event::Made(made));
        qp.activate(1)?;
        self.report_calls();
        self.pair = Some(Pair {
            qp,
            builder: queue.builder,
            needs_header,
            ring,
            receive_ring,
            stride: stride as usize,
            record,
            registers,
            user_index: u32_at(&driver, 32),
            head: 0,
            last: 0,
            received: 0,
            receives_done: 0,
        });
        Ok(())
    }

    fn pair(&mut self) -> Result<&mut Pair, Failure> {
        self.pair.as_mut().ok_or(Failure::Missing("a queue pair"))
    }

    fn complete(
        &mut self,
        opcode: CqeOpcode,
        user_index: u32,
        counter: u16,
    ) -> Result<(), Failure> {
        self.completions.write(opcode, user_index, counter);
        let mut good = false;
        let count = self.cq.poll(2, |completion| good = completion.status().is_ok())?;
        if count == 1 && good { Ok(()) } else { Err(Failure::Missing("a good completion")) }
    }

    fn work(&mut self, work: &Work) -> Result<(), Failure> {
        let mut builder = self
            .pd
            .create_wq(&self.cq)
            .max_wr(work.requests)
            .max_sge(work.sges)
            .vlan_stripping(work.strips)
            .scatter_fcs(work.scatters_fcs);
        if let Some((stride, strides)) = work.strides {
            builder = builder.striding(1 << stride, 1 << strides);
        }
        let queue = builder.build()?;
        let calls = self.report_calls();
        let driver = driver_input(&calls, method::WQ_CREATE)?;
        let (receives, stride) = (u32_at(driver, 16), 1 << u32_at(driver, 20));
        // SAFETY: the queue owns the ring and the record; `Worker` keeps them together. The driver
        // writes them only in calls of this thread.
        let (ring, record) = unsafe {
            (
                Memory::new(address_at(driver, 0), (receives * stride) as usize),
                Memory::new(address_at(driver, 8), 8),
            )
        };
        let worker = Worker {
            queue,
            ring,
            stride: stride as usize,
            head: if work.strides.is_some() { UNIT } else { 0 },
            record,
            user_index: u32_at(driver, 24),
            received: 0,
            done: 0,
        };
        self.works.push(worker);
        self.events.push(Event::Made(Made { qpn: 0, blocks: 0, receives, stride }));
        Ok(())
    }

    /// Reports whether the driver made a rule or refused it, for whatever reason.
    fn made(&mut self, label: &str, is_made: bool) {
        let outcome = if is_made { Outcome::Posted } else { Outcome::Refused(0) };
        self.report_calls();
        self.events.push(Event::Post(label.into(), Post { outcome, ..Post::default() }));
    }

    fn step(&mut self, step: &Step) -> Result<(), Failure> {
        match step {
            Step::Post(label, list) => {
                let post = self.pair()?.post(list);
                self.events.push(Event::Post(label.clone(), post));
            }
            Step::Drain => {
                let pair = self.pair()?;
                let (index, last) = (pair.user_index, pair.last);
                self.complete(CqeOpcode::Requester, index, last)?;
            }
            Step::Receive(label, list) => {
                let post = self.pair()?.receive(list);
                self.events.push(Event::Receive(label.clone(), post));
            }
            Step::ReceiveDrain => {
                let pair = self.pair()?;
                let (index, end) = (pair.user_index, pair.received);
                let mut at = std::mem::replace(&mut pair.receives_done, end);
                while at != end {
                    self.complete(CqeOpcode::ResponderSend, index, at)?;
                    at = at.wrapping_add(1);
                }
            }
            Step::Work(work) => self.work(work)?,
            Step::State(which, state) => {
                let queue = &mut self.works[*which].queue;
                match state {
                    0 => queue.reset()?,
                    1 => queue.start()?,
                    _ => queue.to_error()?,
                }
                let worker = &mut self.works[*which];
                if *state == 1 {
                    (worker.received, worker.done) = (0, 0);
                }
                self.report_calls();
            }
            Step::Strip(which, is) => {
                self.works[*which].queue.set_vlan_stripping(*is)?;
                self.report_calls();
            }
            Step::WorkReceive(which, label, list) => {
                let post = self.works[*which].receive(list);
                self.events.push(Event::Receive(label.clone(), post));
            }
            Step::WorkDrain(which) => {
                let worker = &mut self.works[*which];
                let (index, end) = (worker.user_index, worker.received);
                let mut at = std::mem::replace(&mut worker.done, end);
                while at != end {
                    self.complete(CqeOpcode::ResponderSend, index, at)?;
                    at = at.wrapping_add(1);
                }
            }
            Step::Table(list) => {
                let queues = list.iter().map(|which| &self.works[*which].queue);
                self.table = Some(self.context.create_indirection_table(queues)?);
                self.report_calls();
            }
            Step::Hash { fields, own, key } => {
                let table = self.table.as_ref().ok_or(Failure::Missing("a table"))?;
                let has = |bit: u32| own & 1 << bit != 0;
                let builder = self.pd.create_hash_qp(table).fields(*fields).key(HashKey(*key));
                let builder = builder.tunnel_offloads(has(0)).self_loopback(has(1), has(2));
                self.hash = Some(builder.build()?);
                self.report_calls();
            }
            Step::Counters => {
                self.counters = Some(self.context.create_flow_counters()?);
                self.report_calls();
            }
            // Counters always count packets first, then bytes.
            Step::Count(..) => self.made("count", true),
            Step::Rule(named) => {
                let mut rule = named.rule.clone();
                if named.counts {
                    rule = rule.count(self.counters.as_ref().ok_or(Failure::Missing("counters"))?);
                }
                let made = match (&self.hash, &self.pair) {
                    (Some(hash), _) => hash.attach(1, &rule),
                    (None, Some(pair)) => pair.qp.attach(1, &rule),
                    (None, None) => return Err(Failure::Missing("a queue pair")),
                };
                self.made(&named.label, made.is_ok());
                self.rules.extend(made);
            }
            Step::Matcher { .. } | Step::Match { .. } => {
                return Err(Failure::Missing(
                    "a matcher of bytes: this driver's interface has fields",
                ));
            }
            Step::Unmake => {
                while self.rules.pop().is_some() {}
                (self.counters, self.hash, self.table) = (None, None, None);
                while self.works.pop().is_some() {}
                self.pair = None;
                self.report_calls();
            }
        }
        Ok(())
    }
}

fn ours(simulator: &Simulator, section: &Section) -> Result<Vec<Event>, Failure> {
    let mut side = Side::new(simulator, &section.name)?;
    if let Some(queue) = &section.queue {
        side.make(queue, section.needs_header)?;
    }
    for step in &section.steps {
        side.step(step)?;
    }
    Ok(std::mem::take(&mut side.events))
}

/// Runs the same on both sides, and compares the memory that they wrote and their calls.
pub(crate) fn compare(
    program: &Path,
    library: &Path,
    verbs: &Path,
    machine: impl Fn(bool) -> Simulator,
) -> Result<Vec<Comparison>, Failure> {
    let mut comparisons = Vec::new();
    for section in table::sections(SEED) {
        let inline = if section.needs_header { "l2" } else { "none" };
        let machine_of_c = format!("step,link=roce,raw=on,inline={inline}");
        let peer = |folder: Option<&Path>| Peer {
            program,
            library,
            folder: folder.map(Path::to_owned),
            machine: machine_of_c.clone(),
            plain: false,
        };
        let script = script(&section);
        let theirs = peer(None).run(&script)?;
        if section.by_own {
            let ours = ours(&machine(section.needs_header), &section)?;
            comparisons.extend(compare_events(&theirs, &ours));
        }
        if section.by_c {
            let ours = peer(Some(verbs)).run(&script)?;
            comparisons.extend(compare_events(&theirs, &ours));
        }
    }
    Ok(comparisons)
}
