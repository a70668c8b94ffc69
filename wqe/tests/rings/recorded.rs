//! Random requests of every operation, compared with what was recorded: answers, doorbells, and
//! each byte that a device would read.
//!
//! The former send queue had the same results except for needless fences: it remembered a key of a
//! batch that was not posted. A change that is meant to alter bytes or answers needs new digests,
//! which a failing test prints.

use crate::bed::{Bed, REGISTER, Spec};
use crate::by_hand::{Given, Kind, list_form, pattern, sges};
use crate::extras::ExtraKind;
use mlx5_wqe::{
    BsfUpdate, Change, ChangeObserver, ConfigureMkey, ConfiguresMkeys, Finished, ListTransport,
    MkeyAccess, MkeyLayout, MkeyRequest, MkeyUpdate, PsvUpdate, QueueState, RawPacket, Rc,
    RequestHandle, Segmented, SendFlags, SendLayout, SendOps, SendWr, Sge, SigningUpdate, Uc, Ud,
    VlanTag, XrcSend,
};
use std::collections::HashMap;
use std::fmt::Write;
use std::mem::forget;
use std::sync::{Arc, Mutex};

/// Numbers that look random (xorshift).
struct Dice {
    state: u64,
    /// Most requests are unsignaled.
    rarely_signals: bool,
}

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state >> 20) as usize % sides
    }

    fn flags(&mut self) -> SendFlags {
        let mut flags = SendFlags::empty();
        let signaled = if self.rarely_signals { self.roll(8) == 0 } else { self.roll(3) != 0 };
        flags.set(SendFlags::SIGNALED, signaled);
        flags.set(SendFlags::FENCE, self.roll(20) == 0);
        flags.set(SendFlags::SOLICITED, self.roll(20) == 0);
        flags.set(SendFlags::IP_CSUM, self.roll(60) == 0);
        flags
    }
}

/// The ends of the changes of a key, by number.
#[derive(Default)]
struct Key(Mutex<Vec<&'static str>>);

impl Key {
    fn end(&self, change: u64, end: &'static str) {
        self.0.lock().unwrap()[change as usize] = end;
    }
}

impl ChangeObserver for Key {
    fn undo(&self, change: u64) {
        self.end(change, "undone");
    }

    fn settle(&self, change: u64) {
        self.end(change, "settled");
    }

    fn mark_unknown(&self, change: u64) {
        self.end(change, "lost");
    }
}

#[derive(Clone, Copy)]
struct Configure<'a> {
    key: &'a Arc<Key>,
    list: &'a [Sge],
    psvs: usize,
    rights: bool,
}

impl ConfigureMkey for Configure<'_> {
    fn configure<'q, T: ConfiguresMkeys>(self, request: MkeyRequest<'q, T>) -> Finished<'q> {
        let layout = match MkeyLayout::List(self.list).sized() {
            Ok(layout) => layout,
            Err(error) => return request.refuse(error),
        };
        let psv = |index| Some(PsvUpdate { index, transient_signature: 0x0102_0304 });
        let psvs = [psv(1).filter(|_| self.psvs > 1), psv(2).filter(|_| self.psvs > 0)];
        let signing = SigningUpdate { bsf: BsfUpdate::Disable, error_count: Some(3), psvs };
        let update = MkeyUpdate {
            capacity: 9,
            access: self.rights.then_some(MkeyAccess::REMOTE_READ),
            layout: Some(layout),
            signing: (self.psvs != 3).then_some(&signing),
        };
        request.build(update, || {
            let mut ends = self.key.0.lock().unwrap();
            ends.push("pending");
            (0x1234_5600, Change::new(Arc::clone(self.key), ends.len() as u64 - 1))
        })
    }
}

/// A transport, with a way to add one random request to a batch.
trait Recorded: ListTransport {
    fn add(
        batch: &mut mlx5_wqe::Batch<'_, Self>,
        wr_id: u64,
        dice: &mut Dice,
        key: &Arc<Key>,
        named: bool,
    ) where
        Self: Sized;
    /// Number of units before the data of a request whose data may be inline; `None` for others.
    fn before_inline(opcode: u8) -> Option<usize>;
    fn list(queue: &mut mlx5_wqe::SendQueue<Self>, wr_id: u64, dice: &mut Dice) -> String
    where
        Self: Sized;
    fn prepare(_: &mut mlx5_wqe::SendQueue<Self>, _: &SendLayout, _: u64)
    where
        Self: Sized,
    {
    }
}

fn random_list(dice: &mut Dice) -> Vec<Sge> {
    let mut list = sges(dice.roll(8));
    for sge in &mut list {
        sge.length = match dice.roll(20) {
            0 => 0,
            1 => 1 << 31,
            2 => 1 << 20,
            _ => sge.length,
        };
    }
    list
}

/// Calls `$use` with random data.
macro_rules! given {
    ($dice:ident, $inline:expr, |$given:ident| $use:expr) => {{
        let (list, bytes) = (random_list($dice), pattern($dice.roll(150)));
        let cut = $dice.roll(bytes.len() + 1);
        let pieces = [&bytes[..cut], &[], &bytes[cut..]];
        let $given = match $dice.roll(if $inline { 5 } else { 3 }) {
            0 => Given::List(&list),
            1 | 2 => Given::Sge(sges(4)[$dice.roll(4)]),
            3 => Given::Inline(&bytes),
            _ => Given::Pieces(&pieces),
        };
        $use
    }};
}

macro_rules! recorded {
    ($transport:ident, $address:literal, |$batch:ident, $wr_id:ident, $flags:ident, $dice:ident, $key:ident| $keyed:expr) => {
        impl Recorded for $transport {
            fn add(
                $batch: &mut mlx5_wqe::Batch<'_, Self>,
                $wr_id: u64,
                $dice: &mut Dice,
                $key: &Arc<Key>,
                named: bool,
            ) {
                let $flags = $dice.flags();
                let extras = <Self as ExtraKind>::EXTRAS;
                match $dice.roll(12) {
                    0 if !extras.is_empty() => {
                        let extra = extras[$dice.roll(extras.len())];
                        Self::build_extra($batch, $wr_id, $flags, extra, $wr_id);
                    }
                    1 => $keyed,
                    how => {
                        let op = Self::OPS[$dice.roll(Self::OPS.len())];
                        let inline = op.code() != 0x10;
                        given!($dice, inline, |given| if how < 7 || named {
                            Self::build($batch, $wr_id, $flags, op, given);
                        } else {
                            let mut room = Default::default();
                            $batch.push(&list_form($wr_id, $flags, op, given, &mut room));
                        });
                    }
                }
            }

            fn before_inline(opcode: u8) -> Option<usize> {
                match opcode {
                    0x0a | 0x0b | 0x01 => Some(1 + $address),
                    0x08 | 0x09 => Some(2 + $address),
                    _ => None,
                }
            }

            fn list(queue: &mut mlx5_wqe::SendQueue<Self>, wr_id: u64, dice: &mut Dice) -> String {
                let (bytes, list) = (pattern(70), random_list(dice));
                let mut rooms: [_; 6] = std::array::from_fn(|_| Default::default());
                let mut wrs = Vec::new();
                for (room, wr_id) in rooms.iter_mut().zip(wr_id..).take(dice.roll(7)) {
                    let op = Self::OPS[dice.roll(Self::OPS.len())];
                    let given = match dice.roll(3) {
                        0 if op.code() != 0x10 => Given::Inline(&bytes[..dice.roll(70)]),
                        1 => Given::List(&list),
                        _ => Given::Sge(sges(1)[0]),
                    };
                    wrs.push(list_form(wr_id, dice.flags(), op, given, room));
                }
                format!("{:?}", queue.post_send(&wrs))
            }
        }
    };
}

recorded!(Rc, 0, |batch, wr_id, flags, dice, key| {
    let (list, psvs, rights) = (sges(dice.roll(12)), dice.roll(4), dice.roll(2) == 0);
    batch.wr(wr_id, flags).mkey_configure(Configure { key, list: &list, psvs, rights });
});
recorded!(Uc, 0, |batch, wr_id, flags, _dice, _key| batch.wr(wr_id, flags).local_inv(7));
recorded!(Ud, 3, |batch, wr_id, flags, dice, _key| {
    let (list, send) = (random_list(dice), crate::by_hand::Op::Send);
    Ud::build(batch, wr_id, flags, send, Given::List(&list));
});
recorded!(XrcSend, 1, |batch, wr_id, flags, _dice, _key| batch.wr(wr_id, flags).local_inv(7));

impl Recorded for RawPacket {
    fn add(
        batch: &mut mlx5_wqe::Batch<'_, Self>,
        wr_id: u64,
        dice: &mut Dice,
        _: &Arc<Key>,
        _: bool,
    ) {
        let mut flags = dice.flags();
        flags.set(SendFlags::IP_CSUM, dice.roll(2) == 0);
        if dice.roll(10) != 0 {
            flags.remove(SendFlags::SOLICITED | SendFlags::FENCE);
        }
        let bytes = pattern(160);
        let mut list = random_list(dice);
        list.iter_mut().for_each(|sge| sge.length += dice.roll(14) as u32);
        let wr = batch.wr(wr_id, flags);
        match dice.roll(9) {
            0 => wr.send().sge(Sge { length: 60, ..sges(1)[0] }),
            1 => wr.send().sge_list(&list),
            2 => wr.send().insert_vlan(VlanTag::Service(wr_id as u16)).sge(sges(1)[0]),
            3 => wr.send().inline_header(&[0x17; 18]).sge_list(&list),
            4 => wr.send().inline_headers(&bytes[..dice.roll(100)], &list),
            5 => wr.send_packets(&list),
            6 => wr.send_packets_inline(&[&bytes[..dice.roll(40)], &bytes[..20 + dice.roll(30)]]),
            7 => wr.send_tso(Segmented {
                header: &bytes[..dice.roll(90)],
                mss: dice.roll(6) as u16 * 100,
                payload: &list,
            }),
            _ => {
                let mut wqe = [0x5a; 48];
                wqe[..12].copy_from_slice(&[0, 0, 0, 0x0a, 0, 0, 0, 3, 0, 0, 0, 0]);
                // SAFETY: no device reads the ring.
                wr.raw_wqe(unsafe { mlx5_wqe::RawWqe::new(&wqe) }.unwrap().unnamed());
            }
        }
    }

    fn before_inline(_: u8) -> Option<usize> {
        None
    }

    fn list(queue: &mut mlx5_wqe::SendQueue<Self>, wr_id: u64, dice: &mut Dice) -> String {
        let list = random_list(dice);
        let wr = SendWr {
            wr_id,
            flags: dice.flags(),
            data: mlx5_wqe::Data::Sges(&list),
            ..SendWr::default()
        };
        format!("{:?}", queue.post_send(&[wr, wr]))
    }

    fn prepare(queue: &mut mlx5_wqe::SendQueue<Self>, layout: &SendLayout, seed: u64) {
        queue.take_segmented(layout, 1 << 18);
        if seed % 4 == 3 {
            queue.require_inline_header();
        }
    }
}

/// A queue, and the log of its results.
struct Side<T> {
    bed: Bed<T>,
    key: Arc<Key>,
    handles: HashMap<u64, RequestHandle>,
    wr_id: u64,
    /// Offset of the second half of the register.
    half: usize,
    log: String,
}

impl<T: Recorded> Side<T> {
    fn new(seed: u64) -> Self {
        let (requests, entries, inline) =
            [(4, 1, 28), (8, 4, 60), (16, 6, 100), (64, 2, 28)][seed as usize % 4];
        let spec = Spec {
            requests,
            sges: entries,
            inline,
            signal_all: seed.is_multiple_of(3),
            atomics: !seed.is_multiple_of(5),
            blueflame: [512, 0, 128][seed as usize % 3],
            ..Spec::default()
        };
        let layout =
            SendLayout::with_tso::<T>(requests, entries, inline, SendOps::empty(), 60).unwrap();
        let mut bed = Bed::with_layout(spec, layout);
        T::prepare(&mut bed.queue, &layout, seed);
        if seed.is_multiple_of(7) {
            bed.queue.sign_requests();
        }
        let handles = HashMap::new();
        let half = spec.blueflame / 2;
        Self { bed, key: Arc::default(), handles, wr_id: 0, half, log: String::new() }
    }

    /// Fills all blocks without a request in flight with the same byte.
    fn clear(&self) {
        let Bed { queue, layout, ring, .. } = &self.bed;
        for block in (u32::from(queue.producer())..).take(queue.free_blocks() as usize) {
            ring.write((block % layout.blocks) as usize * 64, &[0xb7; 64]);
        }
    }

    fn oldest(&self) -> u32 {
        let used = self.bed.layout.blocks - self.bed.queue.free_blocks();
        u32::from(self.bed.queue.producer()).wrapping_sub(used)
    }

    /// The WQEs in flight: first block, bytes.
    fn wqes(&self) -> Vec<(u32, Vec<u8>)> {
        let (mut at, mut wqes) = (self.oldest(), Vec::new());
        while at as u16 != self.bed.queue.producer() {
            let units = usize::from(self.bed.at_block(at, 16)[7] & 0x3f);
            let mut bytes = self.bed.at_block(at, units * 16);
            // A cancelled request may have had inline data, and then its padding is unknown.
            if bytes[3] == 0 {
                bytes.truncate(16);
                bytes[8] = 0;
            }
            if let Some(before) = T::before_inline(bytes[3])
                && bytes.get(before * 16).is_some_and(|first| first & 0x80 != 0)
            {
                let word = bytes[before * 16..][..4].try_into().unwrap();
                let end = before * 16 + 4 + (u32::from_be_bytes(word) & 0x7fff_ffff) as usize;
                bytes[end..].fill(0);
                // The signature covers the padding, too.
                bytes[8] = 0;
            }
            wqes.push((at, bytes));
            at += units.div_ceil(4) as u32;
        }
        wqes
    }

    fn batch(&mut self, dice: &mut Dice) {
        let first = self.wr_id;
        let mut batch = self.bed.queue.wr_start();
        for _ in 0..[0, 1, 1, 1, 2, 3, 5][dice.roll(7)] {
            self.wr_id += 1;
            let named = dice.roll(6) == 0;
            if named {
                self.handles.insert(self.wr_id, batch.handle());
            }
            T::add(&mut batch, self.wr_id, dice, &self.key, named);
        }
        let length = batch.len();
        let end = match dice.roll(12) {
            0 => {
                batch.abort();
                "aborted".into()
            }
            1 => {
                forget(batch);
                "leaked".into()
            }
            _ => format!("{:?}", batch.complete()),
        };
        writeln!(self.log, "batch {first} {length} {end}").unwrap();
    }

    fn step(&mut self, dice: &mut Dice) {
        self.clear();
        match dice.roll(50) {
            0..24 => self.batch(dice),
            24..30 => {
                let answer = T::list(&mut self.bed.queue, self.wr_id + 1, dice);
                self.wr_id += 6;
                writeln!(self.log, "list {answer}").unwrap();
            }
            30..44 => {
                let failed = dice.roll(30) == 0;
                let wqes = self.wqes();
                let signaled: Vec<_> = wqes.iter().filter(|(_, wqe)| wqe[11] & 8 != 0).collect();
                if let Some((block, _)) = signaled.get(dice.roll(signaled.len().max(1))) {
                    let answer = self.bed.records.retire_any(*block as u16, failed);
                    writeln!(self.log, "retired {answer:?}").unwrap();
                }
            }
            44..47 => {
                let wqes = self.wqes();
                let at = wqes.get(dice.roll(wqes.len() + 1)).map(|(block, _)| *block as u16);
                let at = at.unwrap_or(self.bed.queue.producer());
                let point = self.bed.queue.drain_point(at).unwrap();
                let ids: Vec<_> = self.bed.queue.pending(point).map(|one| one.wr_id).collect();
                let id = ids.get(dice.roll(ids.len() + 1)).copied().unwrap_or(3);
                // SAFETY: no device reads the ring.
                let cancelled = unsafe {
                    match self.handles.get(&id) {
                        Some(handle) => self.bed.queue.cancel_handle(point, *handle),
                        None => self.bed.queue.cancel(point, id),
                    }
                };
                writeln!(self.log, "cancelled {ids:?} {id} {cancelled:?}").unwrap();
            }
            47 | 48 => {
                let gate = self.bed.gate.gate;
                gate.set_state(QueueState::Init);
                self.batch(dice);
                gate.set_state(QueueState::ReadyToSend);
            }
            _ if dice.roll(6) == 0 => {
                self.bed.queue.reset();
                writeln!(self.log, "reset").unwrap();
            }
            _ => {}
        }
        let halves = [0, self.half].map(|half| self.bed.uar.read(REGISTER + half, 8));
        let Bed { queue, records, record, .. } = &self.bed;
        let (producer, free) = (queue.producer(), queue.free_blocks());
        let ids: Vec<_> = records.wr_ids_in_flight().collect();
        writeln!(self.log, "{producer} {free} {:?} {halves:?} {ids:?}", record.all()).unwrap();
        let mut before = None;
        for (block, wqe) in self.wqes() {
            writeln!(self.log, "{block} {wqe:02x?}").unwrap();
            let (opcode, fence) = (wqe[3], wqe[11] & 0xe0);
            match before {
                Some(0x20 | 0x25) => assert_ne!(fence, 0, "block {block} waits for a key"),
                // A cancelled request may have configured a key, and raw requests have fences of
                // their own.
                None | Some(0) => {}
                _ if opcode == 0x2f => {}
                Some(_) => assert_ne!(fence, 0x20, "block {block} waits for nothing"),
            }
            before = Some(opcode);
        }
    }
}

/// FNV-1a.
fn digest(log: &str) -> u64 {
    let step = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    log.as_bytes().iter().fold(0xcbf2_9ce4_8422_2325, step)
}

fn run<T: Recorded>(name: &str, recorded: u64) {
    let (mut all, mut posted) = (String::new(), 0);
    for seed in 1..=if cfg!(miri) { 2 } else { 60_u64 } {
        let state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut dice = Dice { state, rarely_signals: seed % 5 == 1 };
        let mut side = Side::<T>::new(seed);
        for _ in 0..150 {
            side.step(&mut dice);
        }
        posted += side.log.matches(" Ok(())").count();
        let Side { bed, key, log, .. } = side;
        drop(bed);
        writeln!(all, "seed {seed}\n{log}{:?}", key.0.lock().unwrap()).unwrap();
    }
    assert!(cfg!(miri) || posted > 1000, "{posted}");
    let found = digest(&all);
    assert!(cfg!(miri) || found == recorded, "{name}: {found:#x} is not what was recorded");
}

#[test]
fn a_reliable_connection_posts_what_was_recorded() {
    run::<Rc>("Rc", 0xcf94_ad0f_c2e1_bbcf);
}

#[test]
fn an_unreliable_connection_posts_what_was_recorded() {
    run::<Uc>("Uc", 0x9f38_bae5_0722_d301);
}

#[test]
fn a_datagram_queue_posts_what_was_recorded() {
    run::<Ud>("Ud", 0xdb7c_4ed6_4672_c439);
}

#[test]
fn an_extended_connection_posts_what_was_recorded() {
    run::<XrcSend>("XrcSend", 0x36c6_4250_ec39_f0c5);
}

#[test]
fn a_packet_queue_posts_what_was_recorded() {
    run::<RawPacket>("RawPacket", 0x1a2a_399a_bae8_931f);
}
