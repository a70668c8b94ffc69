//! The requests that complete, and the entries that complete them, with random content from a seed.

use std::fmt;
use std::mem::offset_of;

use mlx5::OpsFlags;
use mlx5_prm::cqe::{
    APP_TAG_MATCHING, Cqe, CqeOpcode, DESCRIPTOR, ErrorCqe, FORMAT_SHIFT, Format, INLINE_32,
    INLINE_64, OPCODE_SHIFT, SOLICITED, Syndrome, TagEvent, TagListCqe,
};
use mlx5_prm::wqe::Opcode;
use zerocopy::IntoBytes;

/// Bytes of the longest entry.
pub(super) const ENTRY: usize = 2 * DESCRIPTOR;

/// Entries of each kind.
const EACH: usize = 16;
/// Packets of each queue: enough for every type of header and every bit of the checksums.
const PACKETS: usize = 256;
/// Rounds of operations on the list of tags.
const ROUNDS: usize = 96;

/// Pseudo-random numbers (xorshift).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() >> 33) as usize % end
    }

    fn one_in(&mut self, of: usize) -> bool {
        self.below(of) == 0
    }
}

/// The API by which the C program asks rdma-core for completions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Api {
    /// `ibv_poll_cq`.
    List,
    /// `ibv_start_poll` and its like.
    Extended,
}

/// The queue that a completion belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Target {
    Rc,
    Ud,
    /// A queue pair with a shared receive queue.
    Shared,
    /// A shared receive queue of an XRC domain.
    Extended,
    /// A queue with a list of tags.
    Tags,
    /// A queue pair of packets.
    Packets,
    /// A work queue of packets.
    Work,
}

impl Target {
    const fn name(self) -> &'static str {
        match self {
            Self::Rc => "rc",
            Self::Ud => "ud",
            Self::Shared => "srq",
            Self::Extended => "xrc",
            Self::Tags => "tm",
            Self::Packets => "raw",
            Self::Work => "wq",
        }
    }
}

/// A request that completes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sent {
    Send,
    SendImm,
    SendInvalidate,
    Write,
    WriteImm,
    Read,
    CompareSwap,
    FetchAdd,
    LocalInvalidate,
    BindWindow,
    Mkey,
    SignedMkey,
    Raw,
    /// A packet that the device segments.
    Cut,
}

impl Sent {
    const ALL: [Self; 13] = [
        Self::Send,
        Self::SendImm,
        Self::SendInvalidate,
        Self::Write,
        Self::WriteImm,
        Self::Read,
        Self::CompareSwap,
        Self::FetchAdd,
        Self::LocalInvalidate,
        Self::BindWindow,
        Self::Mkey,
        Self::SignedMkey,
        Self::Raw,
    ];

    /// The C program's name of the request, and the opcode that the device found.
    const fn facts(self) -> (&'static str, Opcode) {
        match self {
            Self::Send => ("send", Opcode::Send),
            Self::SendImm => ("send_imm", Opcode::SendImm),
            Self::SendInvalidate => ("send_inv", Opcode::SendInvalidate),
            Self::Write => ("write", Opcode::RdmaWrite),
            Self::WriteImm => ("write_imm", Opcode::RdmaWriteImm),
            Self::Read => ("read", Opcode::RdmaRead),
            Self::CompareSwap => ("cs", Opcode::AtomicCs),
            Self::FetchAdd => ("fa", Opcode::AtomicFa),
            Self::LocalInvalidate => ("local_inv", Opcode::Umr),
            Self::BindWindow => ("bind_mw", Opcode::Umr),
            Self::Mkey => ("mkey", Opcode::Umr),
            Self::SignedMkey => ("mkey_sig", Opcode::SetPsv),
            Self::Raw => ("raw", Opcode::Nop),
            Self::Cut => ("tso", Opcode::Tso),
        }
    }

    /// Whether the request has an answer, which the entry can hold.
    pub(super) const fn is_answered(self) -> bool {
        matches!(self, Self::Read | Self::CompareSwap | Self::FetchAdd)
    }
}

/// An operation on the list of tags.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TagOperation {
    Add,
    /// Of the tag added last.
    Delete,
    Sync,
}

/// The request that is posted before the entry is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Posted {
    Request(Target, Sent),
    Receive(Target),
    Tag {
        operation: TagOperation,
        flags: OpsFlags,
        count: u32,
    },
    /// Nothing: the entry is a message for the tag added last.
    Match,
}

/// A completion.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) api: Api,
    pub(super) posted: Posted,
    pub(super) wr_id: u64,
    /// 128 bytes; a shorter entry is the second half. Each side fills in the queue's number.
    pub(super) entry: Vec<u8>,
}

impl Row {
    fn descriptor(&self) -> &[u8] {
        &self.entry[ENTRY - DESCRIPTOR..]
    }

    /// The entry's opcode.
    pub(super) fn opcode(&self) -> CqeOpcode {
        let code = self.descriptor()[DESCRIPTOR - 1] >> OPCODE_SHIFT;
        CqeOpcode::from_bits(code).unwrap_or(CqeOpcode::Invalid)
    }

    /// The tag-matching event that the entry reports.
    pub(super) fn event(&self) -> Option<TagEvent> {
        let (Posted::Match | Posted::Receive(Target::Tags)) = self.posted else { return None };
        TagEvent::from_bits(self.descriptor()[offset_of!(Cqe, app_op)])
    }

    /// Offset of the part of the entry that the device means for the request's memory.
    pub(super) fn message(&self) -> Option<usize> {
        match self.format() {
            Format::Inline32 => Some(ENTRY - DESCRIPTOR),
            Format::Inline64 => Some(ENTRY - DESCRIPTOR - INLINE_64),
            Format::Plain | Format::Compressed => None,
        }
    }

    /// The entry's format.
    pub(super) fn format(&self) -> Format {
        Format::of(self.descriptor()[DESCRIPTOR - 1])
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let api = if self.api == Api::List { "list" } else { "ex" };
        match self.posted {
            Posted::Request(target, sent) => {
                write!(f, "send {api} {} {}", target.name(), sent.facts().0)?;
            }
            Posted::Receive(target) => write!(f, "recv {api} {}", target.name())?,
            Posted::Tag { operation, flags, count } => {
                let name = match operation {
                    TagOperation::Add => "add",
                    TagOperation::Delete => "del",
                    TagOperation::Sync => "sync",
                };
                write!(f, "tag {name} {:x} {count:x}", flags.bits())?;
            }
            Posted::Match => f.write_str("match")?,
        }
        write!(f, " {:x} ", self.wr_id)?;
        self.entry.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Rows for one machine.
struct Rows {
    random: Random,
    /// Whether entries have 128 bytes.
    long: bool,
    /// Whether there are queues of packets.
    packets: bool,
    rows: Vec<Row>,
    /// Messages that matched no tag, and how many of them an operation said were handled.
    unexpected: u16,
    handled: u16,
}

impl Rows {
    fn add(&mut self, api: Api, posted: Posted, descriptor: &[u8]) {
        let mut entry: Vec<u8> = (0..DESCRIPTOR).map(|_| self.random.next() as u8).collect();
        entry.extend_from_slice(descriptor);
        let wr_id = self.random.next() << 32 | self.rows.len() as u64;
        self.rows.push(Row { api, posted, wr_id, entry });
    }

    /// An entry with random bits in every field that no other rule sets.
    fn entry(&mut self, opcode: CqeOpcode, format: Format) -> Cqe {
        let random = &mut self.random;
        let bytes: Vec<u8> = (0..DESCRIPTOR).map(|_| random.next() as u8).collect();
        let mut cqe = zerocopy::FromBytes::read_from_bytes(&bytes).expect("a descriptor");
        let Cqe { app, op_own, byte_count, .. } = &mut cqe;
        // The value belongs to something else than tag matching.
        *app &= !APP_TAG_MATCHING;
        let solicited = if random.one_in(3) { SOLICITED } else { 0 };
        *op_own = (opcode as u8) << OPCODE_SHIFT | (format as u8) << FORMAT_SHIFT | solicited;
        let room = match format {
            Format::Inline32 => INLINE_32,
            Format::Inline64 => INLINE_64,
            Format::Plain | Format::Compressed => return cqe,
        };
        byte_count.set(random.below(room + 1) as u32);
        cqe
    }

    /// The formats of this machine's entries.
    fn formats(&self) -> &'static [Format] {
        match self.long {
            true => &[Format::Plain, Format::Inline32, Format::Inline64],
            false => &[Format::Plain, Format::Inline32],
        }
    }

    fn requests(&mut self, api: Api) {
        let formats = self.formats();
        let mut targets = vec![Target::Rc, Target::Ud];
        targets.extend(self.packets.then_some(Target::Packets));
        for target in targets {
            let all = match target {
                Target::Ud => &[Sent::Send, Sent::SendImm][..],
                Target::Packets => &[Sent::Send, Sent::Cut],
                _ => &Sent::ALL,
            };
            for sent in all.iter().copied() {
                let formats = if sent.is_answered() { formats } else { &formats[..1] };
                for format in formats.iter().copied() {
                    for _ in 0..EACH {
                        let mut cqe = self.entry(CqeOpcode::Requester, format);
                        let qpn = cqe.sop_drop_qpn.get() & 0xff_ffff;
                        cqe.sop_drop_qpn.set((sent.facts().1 as u32) << 24 | qpn);
                        if [Sent::CompareSwap, Sent::FetchAdd].contains(&sent) {
                            cqe.byte_count.set(8);
                        }
                        self.add(api, Posted::Request(target, sent), cqe.as_bytes());
                    }
                }
            }
        }
    }

    /// Packets, whose data is never in the entry.
    fn packets(&mut self, api: Api, target: Target) {
        for _ in 0..PACKETS {
            let cqe = self.entry(CqeOpcode::ResponderSend, Format::Plain);
            self.add(api, Posted::Receive(target), cqe.as_bytes());
        }
    }

    fn receives(&mut self, api: Api, target: Target) {
        let opcodes = [
            CqeOpcode::ResponderWriteImm,
            CqeOpcode::ResponderSend,
            CqeOpcode::ResponderSendImm,
            CqeOpcode::ResponderSendInvalidate,
        ];
        for opcode in opcodes {
            for format in self.formats().iter().copied() {
                for _ in 0..EACH {
                    let cqe = self.entry(opcode, format);
                    self.add(api, Posted::Receive(target), cqe.as_bytes());
                }
            }
        }
    }

    /// Every error code, and some codes that do not exist.
    fn failures(&mut self, api: Api, posted: Posted) {
        let opcode = match posted {
            Posted::Request(..) => CqeOpcode::RequesterError,
            _ => CqeOpcode::ResponderError,
        };
        let known = Syndrome::ALL.iter().map(|syndrome| *syndrome as u8);
        for syndrome in known.chain([0, 3, 0x20, 0x21, 0x30, 0xff]) {
            let cqe = self.entry(opcode, Format::Plain);
            let mut cqe: ErrorCqe = zerocopy::transmute!(cqe);
            cqe.syndrome = syndrome;
            // rdma-core takes this vendor syndrome for a page fault of a shared receive queue.
            if cqe.vendor_err_synd == 0x93 {
                cqe.vendor_err_synd = 0;
            }
            self.add(api, posted, cqe.as_bytes());
        }
    }

    fn tag_entry(&mut self, opcode: CqeOpcode, event: TagEvent, inline: bool) -> Cqe {
        let format = if inline { Format::Inline64 } else { Format::Plain };
        let mut cqe = self.entry(opcode, format);
        (cqe.app, cqe.app_op) = (APP_TAG_MATCHING, event as u8);
        cqe
    }

    fn tag_operation(&mut self, operation: TagOperation, success: bool) {
        let event = match operation {
            TagOperation::Add => TagEvent::Append,
            TagOperation::Delete => TagEvent::Remove,
            TagOperation::Sync => TagEvent::Noop,
        };
        let synchronise = operation == TagOperation::Sync || self.random.one_in(3);
        let flags = match synchronise {
            true => OpsFlags::SIGNALED | OpsFlags::TM_SYNC,
            false => OpsFlags::SIGNALED,
        };
        if synchronise {
            let left = usize::from(self.unexpected - self.handled);
            self.handled += self.random.below(left + 1) as u16;
        }
        // The device has counted this number, or more.
        let phase = if self.random.one_in(3) { self.unexpected } else { self.handled };
        let mut cqe = self.tag_entry(CqeOpcode::NoPacket, event, false);
        let head = TagListCqe {
            success: (if success { TagListCqe::SUCCESS } else { 0 }).into(),
            hw_phase_cnt: phase.into(),
            ..TagListCqe::default()
        };
        let mut bytes = cqe.as_mut_bytes().to_vec();
        bytes[..size_of::<TagListCqe>()].copy_from_slice(head.as_bytes());
        let posted = Posted::Tag { operation, flags, count: self.handled.into() };
        self.add(Api::Extended, posted, &bytes);
    }

    fn message(&mut self, event: TagEvent) {
        use TagEvent::*;
        self.unexpected += u16::from(event == Unexpected);
        let opcode = match event {
            Consumed => CqeOpcode::NoPacket,
            ConsumedSwRendezvous | MessageCompletionCanceled => CqeOpcode::ResponderSend,
            _ if self.random.one_in(3) => CqeOpcode::ResponderSendImm,
            _ => CqeOpcode::ResponderSend,
        };
        let holds = matches!(event, Expected | ConsumedMessage | Unexpected | NoTag);
        let inline = self.long && holds && self.random.one_in(3);
        let cqe = self.tag_entry(opcode, event, inline);
        let posted = match event {
            Unexpected | NoTag => Posted::Receive(Target::Tags),
            _ => Posted::Match,
        };
        self.add(Api::Extended, posted, cqe.as_bytes());
    }

    /// Everything that can happen to a tag, one after the other, with messages in between that
    /// match none.
    fn tags(&mut self) {
        use TagEvent::*;
        for round in 0..ROUNDS {
            self.tag_operation(TagOperation::Add, true);
            for _ in 0..self.random.below(3) {
                let event = [Unexpected, NoTag][self.random.below(2)];
                self.message(event);
            }
            match round % 8 {
                0 => self.message(ConsumedMessage),
                1 => self.message(ConsumedMessageSwRendezvous),
                2 => self.message(MessageCompletionCanceled),
                3 => [Consumed, Expected].into_iter().for_each(|event| self.message(event)),
                4 => {
                    [ConsumedSwRendezvous, Expected]
                        .into_iter()
                        .for_each(|event| self.message(event));
                }
                5 => {
                    let events = [Consumed, MessageCompletionCanceled];
                    events.into_iter().for_each(|event| self.message(event));
                }
                6 => self.tag_operation(TagOperation::Delete, true),
                _ => {
                    self.tag_operation(TagOperation::Delete, false);
                    self.message(ConsumedMessage);
                }
            }
            if round % 5 == 0 {
                self.tag_operation(TagOperation::Sync, true);
            }
        }
    }
}

/// All rows of a machine.
pub(super) fn rows(seed: u64, long: bool, tags: bool, packets: bool) -> Vec<Row> {
    let random = Random(seed);
    let mut rows = Rows { random, long, packets, rows: Vec::new(), unexpected: 0, handled: 0 };
    for api in [Api::List, Api::Extended] {
        rows.requests(api);
        let targets = [Target::Rc, Target::Ud, Target::Shared, Target::Extended];
        for target in targets {
            rows.receives(api, target);
            rows.failures(api, Posted::Receive(target));
        }
        for sent in Sent::ALL {
            rows.failures(api, Posted::Request(Target::Rc, sent));
        }
        rows.failures(api, Posted::Request(Target::Ud, Sent::Send));
        if packets {
            for target in [Target::Packets, Target::Work] {
                rows.packets(api, target);
                rows.failures(api, Posted::Receive(target));
            }
            rows.failures(api, Posted::Request(Target::Packets, Sent::Cut));
        }
    }
    if tags {
        rows.tags();
    }
    rows.rows
}
