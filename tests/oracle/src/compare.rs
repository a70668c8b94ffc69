//! Compares what happened on both sides.

use std::mem::offset_of;

use mlx5_prm::ethernet::{EthernetSegment, L2_INLINE, segment_units};
use mlx5_prm::umr::{MkeyContextSegment, umr_flags};
use mlx5_prm::wqe::{DataSegment, INLINE, INVALID_LKEY, Opcode, UNIT};
use zerocopy::IntoBytes;

use crate::calls;
use crate::event::{Call, Event, Made, Outcome, Post};

/// The name of the section with an extended connection.
pub(crate) const EXTENDED: &str = "extended";
/// The name of the section with work queues whose packets share requests.
pub(crate) const STRIDES: &str = "strides";

/// Something that is not the same on both sides.
#[derive(Clone, Debug)]
pub(crate) struct Difference {
    /// The kind of difference.
    pub(crate) id: String,
    /// The place of the difference: script, label and so on.
    pub(crate) place: String,
    pub(crate) peer: String,
    pub(crate) ours: String,
}

/// One thing that the oracle compared.
pub(crate) struct Comparison {
    /// The kind of thing.
    pub(crate) kind: &'static str,
    pub(crate) differences: Vec<Difference>,
}

/// The events of one queue.
#[derive(Default)]
struct Section<'a> {
    name: &'a str,
    calls: Vec<&'a Call>,
    made: Made,
    shared: bool,
    others: Vec<&'a Event>,
}

fn sections(events: &[Event]) -> Vec<Section<'_>> {
    let mut sections: Vec<Section<'_>> = Vec::new();
    for event in events {
        if let Event::Queue(name) = event {
            sections.push(Section { name, ..Section::default() });
            continue;
        }
        let Some(section) = sections.last_mut() else { continue };
        match event {
            Event::Call(call) => section.calls.push(call),
            other => {
                if let Event::Made(made) = other {
                    section.made = *made;
                }
                section.shared |= matches!(other, Event::Shared { .. });
                section.others.push(other);
            }
        }
    }
    sections
}

fn hex(bytes: &[u8]) -> String {
    let unit = |unit: &[u8]| unit.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    bytes.chunks(UNIT).map(unit).collect::<Vec<_>>().join(" ")
}

/// A WQE whose queue pair number, which must be its own, is replaced by zero.
fn normal(wqe: &[u8], qpn: u32) -> Vec<u8> {
    let mut wqe = wqe.to_vec();
    if wqe.get(4..7) == Some(&qpn.to_be_bytes()[1..]) {
        wqe[4..7].fill(0);
    }
    wqe
}

/// Opcodes whose requests carry immediate data, or a key in its place.
const WITH_IMMEDIATE: [u8; 4] = [
    Opcode::SendImm as u8,
    Opcode::RdmaWriteImm as u8,
    Opcode::SendInvalidate as u8,
    Opcode::Umr as u8,
];

/// Offset of the control byte: it asks for a completion, and sets the fences.
const CONTROL: usize = 11;

/// The bytes that an atomic compares with: the last ones before the entry for the old value.
fn compare_of(wqe: &[u8]) -> std::ops::Range<usize> {
    let end = wqe.len() - UNIT;
    end - size_of::<u64>()..end
}

/// The unused parts of an invalidated key's context: the request frees the key, and may name any
/// queue pair.
const UNWRITTEN: [std::ops::Range<usize>; 2] = [65..68, 72..128];

/// Whether a WQE invalidates a key: a UMR whose context says that it is free.
fn is_invalidation(wqe: &[u8]) -> bool {
    wqe[3] == Opcode::Umr as u8
        && wqe.len() == UNWRITTEN[1].end
        && wqe[64] == MkeyContextSegment::FREE
}

/// The unused parts of a bound window's context: its mask of changes names rights, owner, start and
/// length only.
const UNBOUND: [std::ops::Range<usize>; 4] = [65..66, 67..68, 72..80, 96..128];

/// Whether a WQE binds a window: a UMR with a translation that counts from an offset.
fn is_binding(wqe: &[u8]) -> bool {
    wqe[3] == Opcode::Umr as u8
        && wqe.len() > UNBOUND[3].end
        && wqe[16] & umr_flags::TRANSLATION_OFFSET != 0
}

/// The unused part of an extended connection's request, after the number of the shared receive
/// queue.
const BEHIND_SRQN: std::ops::Range<usize> = 20..32;

/// Clears the parts of a WQE that the device ignores. Returns their former content.
fn take_out(wqe: &mut [u8], parts: &[std::ops::Range<usize>]) -> String {
    let bytes = parts.iter().map(|part| wqe[part.clone()].to_vec()).collect::<Vec<_>>().concat();
    parts.iter().for_each(|part| wqe[part.clone()].fill(0));
    if bytes.iter().all(|byte| *byte == 0) { "zeros".into() } else { hex(&bytes) }
}

/// The unused bytes of a packet that the device segments, between its headers and the entries.
fn behind_headers(wqe: &[u8]) -> Option<std::ops::Range<usize>> {
    if wqe[3] != Opcode::Tso as u8 {
        return None;
    }
    let at = UNIT + offset_of!(EthernetSegment, inline_size_or_insert);
    let length = u16::from_be_bytes([wqe[at], wqe[at + 1]]);
    let end = UNIT + offset_of!(EthernetSegment, inline_start_or_tag) + usize::from(length);
    Some(end..end.next_multiple_of(UNIT))
}

/// Bytes of a WQE up to its length, and after that.
const LENGTH: usize = 7;

/// Whether the longer WQE is the shorter one, with the packet's first bytes inline and then once
/// more as data.
fn is_header_twice(longer: &[u8], shorter: &[u8]) -> bool {
    let end = UNIT + segment_units(L2_INLINE) * UNIT;
    shorter.len() == end
        && longer.len() == end + UNIT
        && longer[..LENGTH] == shorter[..LENGTH]
        && longer[LENGTH + 1..IMMEDIATE.start] == shorter[LENGTH + 1..IMMEDIATE.start]
        && longer[IMMEDIATE.end..end] == shorter[IMMEDIATE.end..]
}

/// Whether the shorter WQE segments a packet, and lacks the first piece of the payload.
fn is_piece_lost(shorter: &[u8], longer: &[u8]) -> bool {
    let Some(start) = behind_headers(longer).map(|part| part.end) else { return false };
    shorter.len() + UNIT == longer.len()
        && shorter[..LENGTH] == longer[..LENGTH]
        && shorter[LENGTH + 1..start] == longer[LENGTH + 1..start]
        && shorter[start..] == longer[start + UNIT..]
}

/// The bytes of a WQE's immediate data.
const IMMEDIATE: std::ops::Range<usize> = 12..16;

/// A scatter list without its empty entries, which the device would take for 2 GiB.
fn without_empty(list: &[u8], head: usize) -> Vec<u8> {
    let is_empty = |entry: &[u8]| entry[..4] == [0; 4] && entry[4..8] != INVALID_LKEY.to_be_bytes();
    let entries = list[head..].chunks_exact(UNIT).filter(|entry| !is_empty(entry));
    [&list[..head], &entries.flatten().copied().collect::<Vec<_>>()].concat()
}

/// A scatter list without its end mark.
fn without_end(list: &[u8]) -> &[u8] {
    list.strip_suffix(DataSegment::END.as_bytes()).unwrap_or(list)
}

/// Offset of the padding after inline data, in a WQE that ends with it.
fn padding(wqe: &[u8]) -> usize {
    for at in (UNIT..wqe.len()).step_by(UNIT) {
        let word = u32::from_be_bytes(wqe[at..at + 4].try_into().expect("four bytes"));
        let end = at + 4 + (word & !INLINE) as usize;
        if word & INLINE != 0 && end.next_multiple_of(UNIT) == wqe.len() {
            return end;
        }
    }
    wqe.len()
}

/// Two lists of differences, while the comparison runs.
struct Found<'a> {
    place: String,
    prefix: &'a str,
    /// Whether the requests are those of an extended connection.
    extended: bool,
    list: Vec<Difference>,
}

impl Found<'_> {
    fn add(&mut self, what: &str, peer: impl Into<String>, ours: impl Into<String>) {
        let id = format!("{}/{what}", self.prefix);
        let place = self.place.clone();
        self.list.push(Difference { id, place, peer: peer.into(), ours: ours.into() });
    }

    fn outcome(&mut self, peer: Outcome, ours: Outcome) {
        let text = |outcome| match outcome {
            Outcome::Posted => "posted".to_owned(),
            Outcome::Refused(index) => format!("refused from {index} on"),
        };
        if peer != ours {
            self.add("outcome", text(peer), text(ours));
        }
    }

    /// Compares the requests: WQEs of a send queue, or scatter lists after `head` bytes.
    fn wqes(&mut self, peer: (&Post, u32), ours: (&Post, u32), sends: bool, head: usize) {
        let (a, b) = (&peer.0.wqes, &ours.0.wqes);
        if a.len() != b.len() {
            return self.add("count", a.len().to_string(), b.len().to_string());
        }
        for (a, b) in a.iter().zip(b) {
            if !sends {
                if a != b {
                    let empty = without_end(&without_empty(a, head)) == without_end(b);
                    let unlinked = a.get(..UNIT) == b.get(UNIT..2 * UNIT);
                    let what = match (empty, unlinked) {
                        (true, _) => "empty-entry",
                        (false, true) => "no-link",
                        (false, false) => "wqe",
                    };
                    self.add(what, hex(a), hex(b));
                }
                continue;
            }
            let (mut a, mut b) = (normal(a, peer.1), normal(b, ours.1));
            if let Some(part) = behind_headers(&a).filter(|part| a[part.clone()] != b[part.clone()])
            {
                let part = [part];
                let (peer, ours) = (take_out(&mut a, &part), take_out(&mut b, &part));
                self.add("behind-headers", peer, ours);
            }
            if a.len() != b.len() {
                let what = match () {
                    () if is_header_twice(&a, &b) => "header-twice",
                    () if is_piece_lost(&a, &b) => "lost-piece",
                    () => "wqe",
                };
                self.add(what, hex(&a), hex(&b));
                continue;
            }
            if a[IMMEDIATE] != b[IMMEDIATE] && !WITH_IMMEDIATE.contains(&a[3]) {
                self.add("no-immediate", hex(&a[IMMEDIATE]), hex(&b[IMMEDIATE]));
                b[IMMEDIATE].copy_from_slice(&a[IMMEDIATE]);
            }
            if a[3] == Opcode::AtomicFa as u8 && a[compare_of(&a)] != b[compare_of(&b)] {
                let place = compare_of(&a);
                self.add("fetch-add-compare", hex(&a[place.clone()]), hex(&b[place.clone()]));
                b[place.clone()].copy_from_slice(&a[place]);
            }
            // Requests that the caller has put together do nothing.
            if a[3] == Opcode::Nop as u8 && a[CONTROL] != b[CONTROL] {
                self.add("raw-flags", hex(&a[CONTROL..=CONTROL]), hex(&b[CONTROL..=CONTROL]));
                b[CONTROL] = a[CONTROL];
            }
            let unwritten = [
                ("invalidation-context", is_invalidation as fn(&[u8]) -> bool, &UNWRITTEN[..]),
                ("binding-context", is_binding, &UNBOUND),
            ];
            for (name, is, parts) in unwritten {
                if is(&a) && is(&b) {
                    let (peer, ours) = (take_out(&mut a, parts), take_out(&mut b, parts));
                    if peer != ours {
                        self.add(name, peer, ours);
                    }
                }
            }
            if self.extended {
                let part = [BEHIND_SRQN];
                let (peer, ours) = (take_out(&mut a, &part), take_out(&mut b, &part));
                if peer != ours {
                    self.add("behind-srqn", peer, ours);
                }
            }
            let end = padding(&a);
            if a[end..] != b[end..] {
                self.add("padding", hex(&a[end..]), hex(&b[end..]));
                a.truncate(end);
                b.truncate(end);
            }
            if a != b {
                self.add("wqe", hex(&a), hex(&b));
            }
        }
    }

    /// Compares the doorbell: its place, and the number of bytes written, which must be those of
    /// the last request.
    fn register(&mut self, peer: &Post, ours: &Post) {
        for (post, side) in [(peer, "rdma-core's"), (ours, "ours")] {
            let Some(rung) = &post.rung else { continue };
            let Some(last) = post.wqes.last() else {
                self.add("register", side, "rung, but nothing is announced");
                continue;
            };
            let length = last.len().min(rung.bytes.len());
            let whole = rung.bytes.len() == 8 || rung.bytes.len() >= last.len();
            if rung.bytes[..length] != last[..length] || !whole {
                self.add("content", format!("{side}: {}", hex(&rung.bytes)), hex(last));
            }
        }
        let text = |post: &Post| match &post.rung {
            None => "not rung".to_owned(),
            Some(rung) => format!("{} bytes at {:#x}", rung.bytes.len(), rung.offset),
        };
        let (a, b) = (text(peer), text(ours));
        if a != b {
            let one_unit = ours.wqes.last().is_some_and(|wqe| wqe.len() == UNIT);
            self.add(if one_unit { "one-unit" } else { "register" }, a, b);
        }
    }
}

/// A post, in short.
fn summary(post: &Post) -> String {
    let outcome = match post.outcome {
        Outcome::Posted => "posted".to_owned(),
        Outcome::Refused(index) => format!("refused from request {index} on"),
    };
    let rung = match (&post.rung, post.wqes.last()) {
        (None, _) => "not rung".to_owned(),
        (Some(rung), Some(last)) => {
            let length = last.len().min(rung.bytes.len());
            match rung.bytes[..length] == last[..length] {
                true => "rung with the last".to_owned(),
                false => format!("rung with {}", hex(&rung.bytes[..rung.bytes.len().min(UNIT)])),
            }
        }
        (Some(_), None) => "rung".to_owned(),
    };
    format!("{outcome}; {} announced; {rung}", post.wqes.len())
}

fn compare_events(section: (&Section<'_>, &Section<'_>), peer: &Event, ours: &Event) -> Comparison {
    let (a, b) = section;
    let prefix = match peer {
        Event::Post(..) => "post",
        Event::Receive(..) if a.shared => "shared",
        Event::Receive(..) if a.name == STRIDES => "strides",
        Event::Receive(..) => "receive",
        Event::Overfull { .. } => "overfull",
        _ => "sizes",
    };
    let mut found =
        Found { place: a.name.to_owned(), prefix, extended: a.name == EXTENDED, list: Vec::new() };
    let kind = match (peer, ours) {
        (Event::Made(peer), Event::Made(ours)) => {
            let text = |made: &Made| {
                let Made { blocks, receives, stride, .. } = made;
                format!("{blocks} blocks, {receives} receives of {stride} bytes")
            };
            if text(peer) != text(ours) {
                found.add("queue-pair", text(peer), text(ours));
            }
            "queue"
        }
        (
            Event::Shared { requests: peer_requests, entries: peer_entries },
            Event::Shared { requests, entries },
        ) => {
            let text = |requests, entries| format!("{requests} requests of {entries} entries");
            let (peer, ours) = (text(peer_requests, peer_entries), text(requests, entries));
            if peer != ours {
                found.add("shared", peer, ours);
            }
            "queue"
        }
        (Event::Post(label, peer), Event::Post(own, ours)) if label == own => {
            found.place = format!("{} {label}", a.name);
            let (of_peer, of_ours) = (summary(peer), summary(ours));
            if let Some(odd) = a.name.strip_prefix("odd/")
                && of_peer != of_ours
            {
                found.prefix = "odd";
                found.add(odd, of_peer, of_ours);
                let list = found.list;
                return Comparison { kind: "post", differences: list };
            }
            found.outcome(peer.outcome, ours.outcome);
            if peer.record != ours.record {
                found.add("record", hex(&peer.record), hex(&ours.record));
            }
            found.wqes((peer, a.made.qpn), (ours, b.made.qpn), true, 0);
            found.register(peer, ours);
            "post"
        }
        (Event::Receive(label, peer), Event::Receive(own, ours)) if label == own => {
            found.place = format!("{} {label}", a.name);
            found.outcome(peer.outcome, ours.outcome);
            if peer.record != ours.record {
                found.add("record", hex(&peer.record), hex(&ours.record));
            }
            let head = if a.shared { UNIT } else { 0 };
            found.wqes((peer, 0), (ours, 0), false, head);
            "receive"
        }
        (Event::Overfull { untouched: peer }, Event::Overfull { untouched: ours }) => {
            let text = |untouched: bool| if untouched { "untouched" } else { "changed" };
            if peer != ours {
                found.add("ring", text(*peer), text(*ours));
            }
            "post"
        }
        _ => {
            found.add("order", format!("{peer:?}"), format!("{ours:?}"));
            "post"
        }
    };
    Comparison { kind, differences: found.list }
}

fn compare_calls(a: &Section<'_>, b: &Section<'_>, out: &mut Vec<Comparison>) {
    let mut names: Vec<_> =
        a.calls.iter().chain(&b.calls).filter_map(|call| calls::name(call)).collect();
    names.sort_unstable();
    names.dedup();
    for name in names {
        let of = |section: &Section<'_>| -> Vec<Call> {
            let named = section.calls.iter().filter(|call| calls::name(call) == Some(name));
            named.map(|call| (*call).clone()).collect()
        };
        let (peer, ours) = (of(a), of(b));
        let difference = |what: String, peer: String, ours: String| {
            let (id, place) = (format!("call/{name}/{what}"), a.name.to_owned());
            Difference { id, place, peer, ours }
        };
        if peer.len() != ours.len() {
            let (peer, ours) = (peer.len().to_string(), ours.len().to_string());
            let differences = vec![difference("count".into(), peer, ours)];
            out.push(Comparison { kind: "call", differences });
        }
        for (peer, ours) in peer.iter().zip(&ours) {
            let differences = calls::compare(peer, ours)
                .into_iter()
                .map(|(field, peer, ours)| difference(field, peer, ours))
                .collect();
            out.push(Comparison { kind: "call", differences });
        }
    }
}

/// Compares what happened on both sides, event by event.
pub(crate) fn compare(peer: &[Event], ours: &[Event]) -> Vec<Comparison> {
    let (peer, ours) = (sections(peer), sections(ours));
    let mut out = Vec::new();
    let mut length = |what: &str, place: &str, peer: usize, ours: usize| {
        if peer != ours {
            let (id, place) = (format!("order/{what}"), place.to_owned());
            let (peer, ours) = (peer.to_string(), ours.to_string());
            let differences = vec![Difference { id, place, peer, ours }];
            out.push(Comparison { kind: "post", differences });
        }
    };
    length("queues", "all", peer.len(), ours.len());
    for (a, b) in peer.iter().zip(&ours) {
        length("events", a.name, a.others.len(), b.others.len());
    }
    for (a, b) in peer.iter().zip(&ours) {
        compare_calls(a, b, &mut out);
        out.extend(a.others.iter().zip(&b.others).map(|(x, y)| compare_events((a, b), x, y)));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Rung;

    fn post(wqe: &[u8], rung: &[u8]) -> Post {
        Post {
            record: vec![0, 0, 0, 0, 0, 0, 0, 1],
            rung: Some(Rung { offset: 0, bytes: rung.to_vec() }),
            wqes: vec![wqe.to_vec()],
            ..Post::default()
        }
    }

    fn ids(peer: Post, ours: Post) -> Vec<String> {
        let events = |post, qpn| {
            let made = Made { qpn, blocks: 4, receives: 0, stride: 0 };
            vec![Event::Queue("q".into()), Event::Made(made), Event::Post("p".into(), post)]
        };
        let found = compare(&events(peer, 5), &events(ours, 6));
        found.into_iter().flat_map(|one| one.differences).map(|one| one.id).collect()
    }

    /// A WQE of queue pair `qpn` with three bytes of inline data, and `pad` after them.
    fn wqe(qpn: u8, data: u8, pad: u8) -> Vec<u8> {
        let mut wqe = vec![0, 0, 0, 0x0a, 0, 0, qpn, 2, 0, 0, 0, 8, 0, 0, 0, 0];
        wqe.extend([0x80, 0, 0, 3, data, data, data]);
        wqe.resize(32, pad);
        wqe
    }

    #[test]
    fn the_same_request_of_either_queue_pair_is_no_difference() {
        let (a, b) = (wqe(5, 1, 0), wqe(6, 1, 0));
        assert_eq!(ids(post(&a, &a), post(&b, &b)), [""; 0]);
    }

    #[test]
    fn each_difference_has_its_name() {
        let same = wqe(5, 1, 0);
        for (ours, expected) in
            [(wqe(6, 2, 0), "post/wqe"), (wqe(6, 1, 9), "post/padding"), (wqe(7, 1, 0), "post/wqe")]
        {
            assert_eq!(ids(post(&same, &same), post(&ours, &ours)), [expected]);
        }
        let ours = wqe(6, 1, 0);
        assert_eq!(ids(post(&same, &same), post(&ours, &ours[..8])), ["post/register"]);
        let mut torn = ours.clone();
        torn[20] = 0xff;
        assert_eq!(ids(post(&same, &same), post(&ours, &torn)), ["post/content"]);
    }
}
