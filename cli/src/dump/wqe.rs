//! Taking work requests apart: those of send queues, of receive queues and of shared ones.

use crate::dump::item::Item;
use crate::dump::layout::{named, read};
use crate::dump::umr;
use mlx5_prm::ethernet::{
    EthernetSegment, LEGACY_MULTI_PACKET, checksum_flags, insert, parser_flags, segment_units,
};
use mlx5_prm::wqe::{
    AddressVector, AtomicSegment, BLOCK, ControlSegment, DataSegment, EXTENDED_UD_AV, INLINE,
    INVALID_LKEY, MAX_UNITS, Opcode, RemoteAddressSegment, SrqNextSegment, UNIT, control_flags,
};
use std::mem::{offset_of, size_of};

/// The segment that a transport puts before the data of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Addressing {
    /// RC and UC: the connection knows the receiver.
    Connected,
    /// UD: an address vector follows the control segment.
    Datagram,
    /// Raw packets: an Ethernet segment follows, with headers.
    Ethernet,
}

/// Whether `bytes` start with what may be a send request.
pub(crate) fn looks_like_send(bytes: &[u8]) -> bool {
    read::<ControlSegment>(bytes, 0).is_some_and(|control| {
        let units = control.units();
        control.opcode().is_some()
            && units > 0
            && units * UNIT <= bytes.len().next_multiple_of(BLOCK)
    })
}

/// The length in the ring of the send request at the start of `bytes`.
fn send_length(bytes: &[u8]) -> usize {
    let units = read::<ControlSegment>(bytes, 0).map_or(0, |control| control.units());
    (units * UNIT).next_multiple_of(BLOCK).max(BLOCK)
}

/// The requests of a ring, one after the other, and the byte at which each begins.
pub(super) fn ring(bytes: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = bytes.get(at..).filter(|rest| !rest.is_empty())?;
        let start = at;
        at += send_length(rest).min(rest.len());
        Some((start, &bytes[start..at]))
    })
}

/// The index in the control segment with which `bytes` start.
pub(super) fn index(bytes: &[u8]) -> Option<u16> {
    read::<ControlSegment>(bytes, 0).map(|control| control.index())
}

/// Whether `bytes` are a list of page addresses: numbers of eight bytes, each a page above the one
/// before it, with the same low bits.
pub(super) fn is_translation(bytes: &[u8]) -> bool {
    const PAGE: u64 = 4096;
    let numbers =
        bytes.chunks_exact(8).map(|one| one.iter().fold(0, |n, b| n << 8 | u64::from(*b)));
    let numbers: Vec<u64> = numbers.collect();
    let step = |two: &[u64]| two[1].checked_sub(two[0]);
    let first = numbers.get(..2).and_then(step).filter(|first| *first > 0 && first % PAGE == 0);
    first.is_some() && numbers.windows(2).all(|two| step(two) == first)
}

/// Takes the send request apart with which `bytes` start. Without `addressing` it is guessed.
pub(crate) fn send(bytes: &[u8], addressing: Option<Addressing>) -> Item {
    let Some(control) = read::<ControlSegment>(bytes, 0) else {
        let mut item = Item::new("send request, cut off");
        item.bytes(0, "bytes", bytes);
        return item;
    };
    let units = control.units();
    let opcode = control.opcode();
    let name = match opcode {
        Some(opcode) => opcode.name().to_owned(),
        None => format!("unknown opcode {:#04x}", control.opmod_index_opcode.get() as u8),
    };
    let mut item = Item::new(format!(
        "send request {name}, QP {:#08x}, WQE index {}, {units} units = {} bytes",
        control.qpn(),
        control.index(),
        units * UNIT
    ));
    control_segment(&mut item, &control);
    if units == 0 {
        item.note("ds is 0: the device refuses such a request");
    }
    let end = (units * UNIT).min(bytes.len());
    let mut at = UNIT;
    let guess = guess_addressing(bytes, end, opcode);
    match opcode {
        Some(Opcode::Nop) => {
            if end > at {
                item.note("of a NOP nothing follows; a cancelled request keeps what it had:");
                item.bytes(at, "not looked at", &bytes[at..end]);
            }
            at = end;
        }
        Some(Opcode::Send) if addressing.unwrap_or(guess) == Addressing::Ethernet => {
            if addressing.is_none() {
                item.note("taken for a packet by what follows; --transport decides");
            }
            ethernet(&mut item, bytes, &mut at, end, Packets::One);
            data(&mut item, DATA, bytes, &mut at, end);
        }
        Some(Opcode::Tso) if control.opcode_modifier() == LEGACY_MULTI_PACKET => {
            ethernet(&mut item, bytes, &mut at, end, Packets::Alike);
            data(&mut item, PACKET, bytes, &mut at, end);
        }
        Some(Opcode::Tso) => {
            ethernet(&mut item, bytes, &mut at, end, Packets::Segments);
            data(&mut item, DATA, bytes, &mut at, end);
        }
        Some(Opcode::EnhancedMpw) => {
            ethernet(&mut item, bytes, &mut at, end, Packets::Several);
            data(&mut item, PACKET, bytes, &mut at, end);
        }
        Some(Opcode::Send | Opcode::SendImm) => {
            if addressing.unwrap_or(guess) == Addressing::Datagram {
                if addressing.is_none() {
                    item.note("taken for a datagram by what follows; --transport decides");
                }
                address_vector(&mut item, bytes, &mut at);
            }
            data(&mut item, DATA, bytes, &mut at, end);
        }
        Some(Opcode::SendInvalidate) => data(&mut item, DATA, bytes, &mut at, end),
        Some(Opcode::RdmaWrite | Opcode::RdmaWriteImm | Opcode::RdmaRead) => {
            remote_address(&mut item, bytes, &mut at, end);
            data(&mut item, DATA, bytes, &mut at, end);
        }
        Some(Opcode::AtomicCs | Opcode::AtomicFa) => {
            remote_address(&mut item, bytes, &mut at, end);
            atomic(&mut item, bytes, &mut at, end, opcode == Some(Opcode::AtomicCs));
            data(&mut item, DATA, bytes, &mut at, end);
        }
        Some(Opcode::Umr) => umr::request(&mut item, bytes, &mut at, end),
        Some(Opcode::SetPsv) => umr::set_psv(&mut item, bytes, &mut at, end),
        _ => {}
    }
    if at < end {
        item.segment("segments that are not taken apart");
        item.bytes(at, "bytes", &bytes[at..end]);
    }
    if units * UNIT > bytes.len() {
        item.note(format!("cut off: {} bytes more belong to it", units * UNIT - bytes.len()));
    }
    item
}

fn control_segment(item: &mut Item, control: &ControlSegment) {
    let opcode = control.opmod_index_opcode.get() as u8;
    let meaning = control.opcode().map_or("unknown", Opcode::name);
    item.segment("control segment");
    item.field(0, "opmod", format!("{:#04x}", control.opcode_modifier()), "");
    item.field(1, "wqe_index", control.index(), "block at which it starts");
    item.field(3, "opcode", format!("{opcode:#04x}"), meaning);
    item.field(4, "qpn", format!("{:#08x}", control.qpn()), "");
    item.field(7, "ds", control.units(), format!("16-byte units, of at most {MAX_UNITS}"));
    let signature = format!("{:#04x}", control.signature);
    item.field(offset_of!(ControlSegment, signature), "signature", signature, "");
    let stream = control.dci_stream.get();
    if stream != 0 {
        item.field(offset_of!(ControlSegment, dci_stream), "dci_stream", stream, "");
    }
    let flags = format!("{:#04x}", control.fm_ce_se);
    item.field(offset_of!(ControlSegment, fm_ce_se), "fm_ce_se", flags, reported(control.fm_ce_se));
    let immediate = format!("{:#010x}", control.immediate.get());
    let meaning = match control.opcode() {
        Some(Opcode::SendImm | Opcode::RdmaWriteImm) => "immediate data",
        Some(Opcode::SendInvalidate | Opcode::LocalInvalidate) => "key to invalidate",
        Some(Opcode::Umr) => "mkey",
        _ => "",
    };
    item.field(offset_of!(ControlSegment, immediate), "imm", immediate, meaning);
}

/// Fence, completion and solicited bits, in words.
pub(crate) fn reported(fm_ce_se: u8) -> String {
    let mut words = Vec::new();
    match fm_ce_se & control_flags::FENCE_MASK {
        0 => {}
        control_flags::FENCE => words.push("fence".to_owned()),
        control_flags::SMALL_FENCE => words.push("small fence".to_owned()),
        other => words.push(format!("fence mode {}", other >> 5)),
    }
    match fm_ce_se & control_flags::COMPLETION_MASK {
        0 => words.push("completion only on error".to_owned()),
        control_flags::COMPLETION => words.push("completion".to_owned()),
        other => words.push(format!("completion mode {}", other >> 2)),
    }
    if fm_ce_se & control_flags::SOLICITED != 0 {
        words.push("solicited".to_owned());
    }
    words.join(", ")
}

/// Guesses the segment after the control segment of a SEND.
///
/// An extended address vector has its mark, and a reserved word that is zero, where a gather entry
/// has the upper half of an address and its key. An Ethernet segment begins with zeros, its segment
/// size is zero, and its headers end within the request; a gather entry has its length there.
fn guess_addressing(bytes: &[u8], end: usize, opcode: Option<Opcode>) -> Addressing {
    let vector = read::<AddressVector>(&bytes[..end], UNIT);
    let marked = vector.is_some_and(|vector| {
        vector.dqp_dct.get() & EXTENDED_UD_AV != 0
            && vector.dc_key_low.get() == 0
            && vector.reserved.get() == 0
    });
    let segment = read::<EthernetSegment>(&bytes[..end], UNIT);
    let packet = segment.filter(|_| opcode == Some(Opcode::Send)).is_some_and(|segment| {
        let size = segment.inline_size_or_insert.get();
        let headers = if size & insert::VLAN != 0 { 0 } else { size.into() };
        bytes[UNIT..UNIT + size_of::<u32>()] == [0; 4]
            && segment.swp_flags == 0
            && segment.mss.get() == 0
            && UNIT + segment_units(headers) * UNIT <= end
    });
    match (marked, packet) {
        (true, _) => Addressing::Datagram,
        (false, true) => Addressing::Ethernet,
        (false, false) => Addressing::Connected,
    }
}

fn address_vector(item: &mut Item, bytes: &[u8], at: &mut usize) {
    item.segment("address vector");
    let base = *at;
    *at += size_of::<AddressVector>();
    let Some(vector) = read::<AddressVector>(bytes, base) else {
        return item.note("cut off");
    };
    macro_rules! field {
        ($field:ident, $name:literal, $value:expr, $meaning:expr) => {
            item.field(base + offset_of!(AddressVector, $field), $name, $value, $meaning)
        };
    }
    let destination = vector.dqp_dct.get();
    let route = vector.grh_gid_fl.get();
    let gid_index = route >> AddressVector::GID_INDEX_SHIFT & 0xff;
    let extended = if destination & EXTENDED_UD_AV != 0 { "extended form" } else { "" };
    field!(qkey, "qkey", format!("{:#010x}", vector.qkey.get()), "");
    field!(dqp_dct, "dqp", format!("{:#08x}", destination & 0xff_ffff), extended);
    field!(stat_rate_sl, "stat_rate", vector.stat_rate_sl >> 4, "");
    field!(stat_rate_sl, "sl", vector.stat_rate_sl & 0xf, "on Ethernet the priority, times 2");
    field!(fl_mlid, "fl_mlid", format!("{:#04x}", vector.fl_mlid), "");
    let rlid = vector.rlid.get();
    field!(rlid, "rlid", format!("{rlid:#06x}"), format!("on RoCE v2 the UDP source port, {rlid}"));
    let mac: Vec<String> = vector.rmac.iter().map(|byte| format!("{byte:02x}")).collect();
    field!(rmac, "rmac", mac.join(":"), "");
    field!(tclass, "tclass", vector.tclass, "");
    field!(hop_limit, "hop_limit", vector.hop_limit, "");
    let grh = if route & AddressVector::GRH != 0 { "GRH present" } else { "" };
    field!(grh_gid_fl, "sgid_index", gid_index, grh);
    let flow_label = route & AddressVector::FLOW_LABEL_MASK;
    field!(grh_gid_fl, "flow_label", format!("{flow_label:#07x}"), "");
    field!(rgid, "rgid", mlx5::Gid::from_bytes(vector.rgid), "");
}

/// The packets of one request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Packets {
    One,
    /// One, cut into segments.
    Segments,
    /// Several of equal length.
    Alike,
    /// Several.
    Several,
}

impl Packets {
    /// The label of the segment size of such a request.
    fn size(self) -> &'static str {
        match self {
            Self::One | Self::Several => "",
            Self::Segments => "bytes of a segment, headers apart",
            Self::Alike => "bytes of each packet",
        }
    }
}

fn ethernet(item: &mut Item, bytes: &[u8], at: &mut usize, end: usize, packets: Packets) {
    item.segment("Ethernet segment");
    let base = *at;
    let Some(segment) = read::<EthernetSegment>(&bytes[..end], base) else {
        item.bytes(base, "bytes", bytes.get(base..end).unwrap_or_default());
        *at = end;
        return item.note("cut off");
    };
    macro_rules! field {
        ($field:ident, $name:literal, $value:expr, $meaning:expr) => {
            item.field(base + offset_of!(EthernetSegment, $field), $name, $value, $meaning)
        };
    }
    macro_rules! parser {
        ($($field:ident)*) => { $( if segment.$field != 0 {
            let bytes = 2 * u32::from(segment.$field);
            item.field(
                base + offset_of!(EthernetSegment, $field),
                stringify!($field),
                segment.$field,
                format!("it is at byte {bytes}"),
            );
        } )* };
    }
    parser!(swp_outer_l4_offset swp_outer_l3_offset swp_inner_l4_offset swp_inner_l3_offset);
    let sums = named(
        segment.cs_flags,
        &[
            (checksum_flags::L3, "IP"),
            (checksum_flags::L4, "TCP or UDP"),
            (checksum_flags::L3_INNER, "inner IP"),
            (checksum_flags::L4_INNER, "inner TCP or UDP"),
        ],
    );
    let meaning = match sums.as_str() {
        "" => "no checksums".to_owned(),
        sums => format!("checksums: {sums}"),
    };
    field!(cs_flags, "cs_flags", format!("{:#04x}", segment.cs_flags), meaning);
    if segment.swp_flags != 0 {
        let kinds = named(
            segment.swp_flags,
            &[
                (parser_flags::OUTER_L3_IPV6, "outer IPv6"),
                (parser_flags::OUTER_L4_UDP, "outer UDP"),
                (parser_flags::INNER_L3_IPV6, "inner IPv6"),
                (parser_flags::INNER_L4_UDP, "inner UDP"),
            ],
        );
        field!(swp_flags, "swp_flags", format!("{:#04x}", segment.swp_flags), kinds);
    }
    field!(mss, "mss", segment.mss.get(), packets.size());
    let metadata = segment.flow_table_metadata.get();
    if metadata != 0 {
        let meaning = "what flow rules match";
        field!(flow_table_metadata, "flow_table_metadata", format!("{metadata:#010x}"), meaning);
    }
    let inline = segment.inline_size_or_insert.get();
    // Kinds of tags to insert have a bit that no size has.
    if inline & insert::VLAN != 0 {
        let kind = match inline & insert::SERVICE {
            0 => "a VLAN tag, 0x8100",
            _ => "a service VLAN tag, 0x88a8",
        };
        field!(inline_size_or_insert, "insert", format!("{inline:#06x}"), kind);
        let tag = u16::from_be_bytes(segment.inline_start_or_tag);
        vlan_tag(item, base + offset_of!(EthernetSegment, inline_start_or_tag), tag);
        *at = base + UNIT;
        return;
    }
    let size = usize::from(inline);
    field!(inline_size_or_insert, "inline_hdr_sz", size, "bytes of the packet's headers");
    let start = base + offset_of!(EthernetSegment, inline_start_or_tag);
    item.bytes(start, "inline_hdr", &bytes[start..(start + size).min(end)]);
    let behind = base + segment_units(size) * UNIT;
    if behind > end {
        item.note("the headers are longer than the request");
    }
    *at = behind.min(end);
}

/// The fields of a VLAN tag.
pub(crate) fn vlan_tag(item: &mut Item, at: usize, tag: u16) {
    item.field(at, "vlan_pcp", tag >> 13, "priority");
    item.field(at, "vlan_dei", tag >> 12 & 1, "");
    item.field(at, "vlan_id", tag & 0xfff, "");
}

fn remote_address(item: &mut Item, bytes: &[u8], at: &mut usize, end: usize) {
    if *at >= end {
        return;
    }
    item.segment("remote address segment");
    let base = *at;
    *at += UNIT;
    let Some(segment) = read::<RemoteAddressSegment>(bytes, base) else {
        return item.note("cut off");
    };
    item.field(base, "raddr", format!("{:#018x}", segment.address.get()), "");
    let rkey = format!("{:#010x}", segment.rkey.get());
    item.field(base + offset_of!(RemoteAddressSegment, rkey), "rkey", rkey, "");
}

fn atomic(item: &mut Item, bytes: &[u8], at: &mut usize, end: usize, swaps: bool) {
    if *at >= end {
        return;
    }
    item.segment("atomic segment");
    let base = *at;
    *at += UNIT;
    let Some(segment) = read::<AtomicSegment>(bytes, base) else {
        return item.note("cut off");
    };
    let name = if swaps { "swap" } else { "add" };
    item.field(base, name, format!("{:#018x}", segment.swap_or_add.get()), "");
    if swaps {
        let compare = format!("{:#018x}", segment.compare.get());
        item.field(base + offset_of!(AtomicSegment, compare), "compare", compare, "");
    }
}

/// The label of a gather or scatter entry, and of inline data.
pub(crate) const DATA: &str = "data segment";
/// The label of an entry of a request that sends several packets: each entry is one.
pub(crate) const PACKET: &str = "packet";

/// Gather or scatter entries and inline data, up to `end`. Each is called `name`.
fn data(item: &mut Item, name: &str, bytes: &[u8], at: &mut usize, end: usize) {
    let mut index = 0;
    while *at < end {
        let base = *at;
        let Some(segment) = read::<DataSegment>(bytes, base) else {
            item.segment(format!("{name} {index}, cut off"));
            item.bytes(base, "bytes", &bytes[base..end]);
            *at = end;
            return;
        };
        let count = segment.byte_count.get();
        if count & INLINE != 0 {
            let length = (count & !INLINE) as usize;
            let start = base + size_of::<u32>();
            let shown = &bytes[start.min(end)..start.saturating_add(length).min(end)];
            item.segment(format!("{name} {index}: inline"));
            item.field(base, "byte_count", format!("{count:#010x}"), format!("inline, {length}"));
            item.bytes(start, "data", shown);
            *at = start.saturating_add(length).next_multiple_of(UNIT).min(end);
        } else {
            item.segment(format!("{name} {index}"));
            entry(item, base, &segment);
            *at = base + UNIT;
        }
        index += 1;
    }
}

fn entry(item: &mut Item, base: usize, segment: &DataSegment) {
    let count = segment.byte_count.get();
    let lkey = segment.lkey.get();
    let ends = count == 0 && lkey == INVALID_LKEY;
    let meaning = match count {
        0 if ends => "",
        0 => "2 GiB",
        _ => "",
    };
    item.field(base, "byte_count", count, meaning);
    let meaning = if ends { "end of the list" } else { "" };
    item.field(base + offset_of!(DataSegment, lkey), "lkey", format!("{lkey:#010x}"), meaning);
    let address = format!("{:#018x}", segment.address.get());
    item.field(base + offset_of!(DataSegment, address), "addr", address, "");
}

/// Takes a receive request apart: all of `bytes`.
pub(crate) fn receive(bytes: &[u8]) -> Item {
    let mut item = Item::new(format!("receive request, {} bytes", bytes.len()));
    scatter(&mut item, bytes, 0);
    item
}

/// Takes a request of a shared receive queue apart: all of `bytes`.
pub(crate) fn shared_receive(bytes: &[u8]) -> Item {
    let mut item = Item::new(format!("shared receive request, {} bytes", bytes.len()));
    let Some(next) = read::<SrqNextSegment>(bytes, 0) else {
        item.bytes(0, "bytes", bytes);
        item.note("cut off");
        return item;
    };
    item.segment("next segment");
    let at = offset_of!(SrqNextSegment, next_wqe_index);
    item.field(at, "next_wqe_index", next.next_wqe_index.get(), "the request after this one");
    let signature = format!("{:#04x}", next.signature);
    item.field(offset_of!(SrqNextSegment, signature), "signature", signature, "");
    scatter(&mut item, bytes, UNIT);
    item
}

/// Takes a receive request apart that several packets share: all of `bytes`.
pub(crate) fn receive_of_strides(bytes: &[u8]) -> Item {
    let mut item = Item::new(format!("receive request of strides, {} bytes", bytes.len()));
    // The device takes the requests in the order of their places, and follows no list.
    let start = size_of::<SrqNextSegment>().min(bytes.len());
    item.segment("next segment, not used");
    item.bytes(0, "bytes", &bytes[..start]);
    scatter(&mut item, bytes, start);
    item
}

/// Scatter entries from `at` on, up to the one that ends the list.
fn scatter(item: &mut Item, bytes: &[u8], mut at: usize) {
    let mut index = 0;
    while let Some(segment) = read::<DataSegment>(bytes, at) {
        item.segment(format!("{DATA} {index}"));
        entry(item, at, &segment);
        if segment.byte_count.get() == 0 && segment.lkey.get() == INVALID_LKEY {
            return;
        }
        at += UNIT;
        index += 1;
    }
    if at < bytes.len() {
        item.bytes(at, "cut off", &bytes[at..]);
    }
}

#[cfg(test)]
mod tests;
