//! Decodes CQEs.

use crate::dump::item::Item;
use crate::dump::known;
use crate::dump::wqe::{Addressing, vlan_tag};
use mlx5_prm::cqe::{
    Cqe, CqeOpcode, DESCRIPTOR, ErrorCqe, FORMAT_MASK, OPCODE_SHIFT, OWNER, SOLICITED, Syndrome,
    hds_ip_ext, l4_l3_hdr_type,
};
use mlx5_prm::ethernet::{
    LRO_SEGMENTS_SHIFT, hash_type, header_type, path_flags, striding, tunnel_flags,
};
use mlx5_prm::wqe::Opcode;
use mlx5_prm::zerocopy::FromBytes;
use std::mem::offset_of;

/// The kind of data that a completion reports.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    Message,
    Packet,
    /// A packet that shares its receive with others.
    Strides,
    /// Strides of a receive that no packet lies in.
    Filler,
}

impl Of {
    /// Bytes of a packet have 16 bits. The bits above them count strides.
    fn packet(cqe: &Cqe) -> Self {
        match cqe.byte_count.get() {
            count if count & striding::FILLER != 0 => Self::Filler,
            count if count >> striding::STRIDES_SHIFT != 0 => Self::Strides,
            _ => Self::Packet,
        }
    }

    fn opcode(self, opcode: CqeOpcode) -> &'static str {
        match self {
            Self::Message => opcode.text(),
            Self::Packet | Self::Strides => "packet received",
            Self::Filler => "strides skipped",
        }
    }
}

/// The label of a completion's counter where receives have strides.
pub(crate) const FIRST_STRIDE: &str = "first stride";

/// Decodes a CQE of 64 bytes, or of 128 with the descriptor in the second half. On Ethernet, what
/// was received is a packet.
pub(crate) fn completion(bytes: &[u8], addressing: Option<Addressing>) -> Item {
    let start = bytes.len().saturating_sub(DESCRIPTOR);
    let descriptor = &bytes[start..];
    let Ok(cqe) = Cqe::read_from_bytes(descriptor) else {
        let mut item = Item::new("completion, cut off");
        item.bytes(0, "bytes", bytes);
        return item;
    };
    let opcode = CqeOpcode::from_bits(cqe.op_own >> OPCODE_SHIFT);
    let of = match opcode {
        Some(CqeOpcode::ResponderSend) if addressing == Some(Addressing::Ethernet) => {
            Of::packet(&cqe)
        }
        _ => Of::Message,
    };
    let number = cqe.sop_drop_qpn.get() & 0xff_ffff;
    let mut item = Item::new(match opcode {
        Some(CqeOpcode::Invalid) => "completion, not written yet".to_owned(),
        Some(opcode) if of == Of::Filler => {
            format!("completion: {}, wqe_counter {}", of.opcode(opcode), cqe.wqe_counter.get())
        }
        Some(opcode) if of != Of::Message => format!(
            "completion: {}, flow tag {number:#08x}, wqe_counter {}",
            of.opcode(opcode),
            cqe.wqe_counter.get()
        ),
        Some(opcode) => format!(
            "completion: {}, QP {:#08x}, wqe_counter {}",
            opcode.text(),
            number,
            cqe.wqe_counter.get()
        ),
        None => format!("completion of unknown opcode {:#x}", cqe.op_own >> OPCODE_SHIFT),
    });
    if start > 0 {
        item.segment("first half, for data");
        item.bytes(0, "data", &bytes[..start]);
    }
    item.segment("descriptor");
    match opcode {
        Some(CqeOpcode::Invalid) => {}
        Some(CqeOpcode::RequesterError | CqeOpcode::ResponderError) => {
            if let Ok(error) = ErrorCqe::read_from_bytes(descriptor) {
                failed(&mut item, start, &error, opcode == Some(CqeOpcode::RequesterError));
            }
        }
        _ if of != Of::Message => packet(&mut item, start, &cqe, of),
        Some(
            CqeOpcode::ResponderWriteImm
            | CqeOpcode::ResponderSend
            | CqeOpcode::ResponderSendImm
            | CqeOpcode::ResponderSendInvalidate,
        ) => received(&mut item, start, &cqe, opcode),
        Some(CqeOpcode::Requester) => requested(&mut item, start, &cqe),
        _ => item.bytes(start, "bytes", &descriptor[..DESCRIPTOR - 8]),
    }
    tail(&mut item, start, &cqe, opcode, of);
    item
}

/// Shows a field of a layout at its own offset.
macro_rules! field {
    ($item:ident, $start:ident, $layout:ident . $field:ident, $name:literal, $value:expr, $meaning:expr) => {
        $item.field($start + offset_of!($layout, $field), $name, $value, $meaning)
    };
}

fn requested(item: &mut Item, start: usize, cqe: &Cqe) {
    user_index(item, start + offset_of!(Cqe, srqn_uidx), cqe.srqn_uidx.get());
    common(item, start, cqe);
    let word = cqe.sop_drop_qpn.get();
    send_opcode(item, start + offset_of!(Cqe, sop_drop_qpn), word);
}

fn received(item: &mut Item, start: usize, cqe: &Cqe, opcode: Option<CqeOpcode>) {
    let bits = cqe.flags_rqpn.get();
    let immediate = cqe.imm_inval_pkey.get();
    field!(item, start, Cqe.ml_path, "ml_path", format!("{:#04x}", cqe.ml_path), "");
    field!(item, start, Cqe.slid, "slid", format!("{:#06x}", cqe.slid.get()), "the sender's LID");
    field!(
        item,
        start,
        Cqe.flags_rqpn,
        "grh",
        bits >> 28 & 3,
        match bits >> 28 & 3 {
            0 => "none",
            _ => "in the first 40 bytes of a datagram's buffer",
        }
    );
    field!(item, start, Cqe.flags_rqpn, "sl", bits >> 24 & 0xf, "");
    let sender = format!("{:#08x}", bits & 0xff_ffff);
    field!(item, start, Cqe.flags_rqpn, "rqpn", sender, "the sender's queue pair");
    user_index(item, start + offset_of!(Cqe, srqn_uidx), cqe.srqn_uidx.get());
    let meaning = match opcode {
        Some(CqeOpcode::ResponderSendInvalidate) => "the key that was invalidated",
        Some(CqeOpcode::ResponderSend) => "the low half is the P_Key's index",
        _ => "immediate data",
    };
    field!(
        item,
        start,
        Cqe.imm_inval_pkey,
        "imm_inval_pkey",
        format!("{immediate:#010x}"),
        meaning
    );
    common(item, start, cqe);
}

fn packet(item: &mut Item, start: usize, cqe: &Cqe, of: Of) {
    let tunneled = cqe.head[0] & tunnel_flags::TUNNELED != 0;
    let meaning = if tunneled { "checksums and types are of the inner headers" } else { "" };
    field!(item, start, Cqe.head, "tunneled", u8::from(tunneled), meaning);
    if of != Of::Packet {
        let meaning = "index of the receive request";
        field!(item, start, Cqe.wqe_id, "wqe_id", cqe.wqe_id.get(), meaning);
    }
    let hash = format!("{:#010x}", cqe.rss_hash_result.get());
    field!(item, start, Cqe.rss_hash_result, "rss_hash_result", hash, "");
    let kind = format!("{:#04x}", cqe.rss_hash_type);
    field!(item, start, Cqe.rss_hash_type, "rss_hash_type", kind, hashed(cqe.rss_hash_type));
    let meaning = match cqe.ml_path & path_flags::CONGESTION {
        0 => "",
        _ => "congestion was experienced",
    };
    field!(item, start, Cqe.ml_path, "ml_path", format!("{:#04x}", cqe.ml_path), meaning);
    let sum = format!("{:#06x}", cqe.check_sum.get());
    field!(item, start, Cqe.check_sum, "check_sum", sum, "from the IP header to the end");
    let checks = format!("{:#04x}", cqe.hds_ip_ext);
    let types = cqe.l4_l3_hdr_type;
    field!(item, start, Cqe.hds_ip_ext, "hds_ip_ext", checks, verdict(cqe.hds_ip_ext, types));
    let kinds = format!("{types:#04x}");
    field!(item, start, Cqe.l4_l3_hdr_type, "l4_l3_hdr_type", kinds, headers(types));
    if types & l4_l3_hdr_type::VLAN_STRIPPED != 0 {
        vlan_tag(item, start + offset_of!(Cqe, vlan_info), cqe.vlan_info.get());
    }
    let joined = cqe.srqn_uidx.get() >> LRO_SEGMENTS_SHIFT;
    if joined != 0 {
        let meaning = "segments that were joined";
        field!(item, start, Cqe.srqn_uidx, "lro_num_seg", joined, meaning);
    }
    user_index(item, start + offset_of!(Cqe, srqn_uidx) + 1, cqe.srqn_uidx.get());
    let count = cqe.byte_count.get();
    if of == Of::Packet {
        field!(item, start, Cqe.byte_count, "byte_count", count, "");
    } else {
        let strides = count >> striding::STRIDES_SHIFT & striding::STRIDES_MASK;
        let meaning = match of {
            Of::Filler => "that no packet lies in",
            _ => "that the packet takes",
        };
        field!(item, start, Cqe.byte_count, "strides", strides, meaning);
        let at = start + offset_of!(Cqe, byte_count) + 2;
        item.field(at, "byte_count", count & striding::BYTES_MASK, "");
    }
    time(item, start, cqe);
}

/// The headers that were hashed.
fn hashed(kind: u8) -> String {
    let network = match kind >> hash_type::IP_SHIFT & hash_type::MASK {
        hash_type::IPV4 => Some("IPv4 addresses"),
        hash_type::IPV6 => Some("IPv6 addresses"),
        _ => None,
    };
    let transport = match kind >> hash_type::L4_SHIFT & hash_type::MASK {
        hash_type::TCP => Some("TCP ports"),
        hash_type::UDP => Some("UDP ports"),
        hash_type::SPI => Some("SPI"),
        _ => None,
    };
    list([network, transport])
}

/// The headers of a packet.
fn headers(types: u8) -> String {
    let network = match types >> header_type::L3_SHIFT & header_type::L3_MASK {
        header_type::L3_IPV4 => Some("IPv4"),
        header_type::L3_IPV6 => Some("IPv6"),
        _ => None,
    };
    let transport = match types >> header_type::L4_SHIFT & header_type::L4_MASK {
        header_type::L4_TCP => Some("TCP"),
        header_type::L4_UDP => Some("UDP"),
        header_type::L4_TCP_EMPTY_ACK => Some("TCP, an empty acknowledgement"),
        header_type::L4_TCP_ACK => Some("TCP, an acknowledgement"),
        _ => None,
    };
    list([network, transport])
}

/// Which of the headers that the device knows are right. Nothing of a packet without.
fn verdict(checks: u8, types: u8) -> String {
    let known = |shift, mask| types >> shift & mask != 0;
    let mut words = Vec::new();
    for (is_known, ok, name) in [
        (known(header_type::L3_SHIFT, header_type::L3_MASK), hds_ip_ext::L3_OK, "IP"),
        (known(header_type::L4_SHIFT, header_type::L4_MASK), hds_ip_ext::L4_OK, "TCP or UDP"),
    ] {
        match (is_known, checks & ok != 0) {
            (true, true) => words.push(format!("{name} right")),
            (true, false) => words.push(format!("{name} wrong")),
            (false, _) => {}
        }
    }
    words.join(", ")
}

fn list<const N: usize>(words: [Option<&str>; N]) -> String {
    words.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn common(item: &mut Item, start: usize, cqe: &Cqe) {
    field!(item, start, Cqe.byte_count, "byte_count", cqe.byte_count.get(), "");
    time(item, start, cqe);
}

fn time(item: &mut Item, start: usize, cqe: &Cqe) {
    let time = cqe.timestamp.get();
    field!(item, start, Cqe.timestamp, "timestamp", time, "cycles of the device's clock");
}

fn failed(item: &mut Item, start: usize, cqe: &ErrorCqe, sent: bool) {
    user_index(item, start + offset_of!(ErrorCqe, srqn_uidx), cqe.srqn_uidx.get());
    let (code, kind) = (cqe.hw_err_synd, format!("{:#04x}", cqe.hw_synd_type));
    let meaning = hardware(code, Some(cqe.vendor_err_synd));
    field!(item, start, ErrorCqe.hw_err_synd, "hw_err_synd", format!("{code:#04x}"), meaning);
    field!(item, start, ErrorCqe.hw_synd_type, "hw_synd_type", kind, "");
    let code = cqe.vendor_err_synd;
    let meaning = vendor(code, Some(cqe.syndrome));
    let code = format!("{code:#04x}");
    field!(item, start, ErrorCqe.vendor_err_synd, "vendor_err_synd", code, meaning);
    let meaning = Syndrome::from_bits(cqe.syndrome).map_or("unknown", Syndrome::text);
    field!(item, start, ErrorCqe.syndrome, "syndrome", format!("{:#04x}", cqe.syndrome), meaning);
    if sent {
        let word = cqe.s_wqe_opcode_qpn.get();
        send_opcode(item, start + offset_of!(ErrorCqe, s_wqe_opcode_qpn), word);
    }
}

/// The known meaning of a vendor code.
pub(super) fn vendor(code: u8, syndrome: Option<u8>) -> &'static str {
    known::vendor(code, syndrome).map_or("not published", |row| row.meaning)
}

/// The known meaning of a hardware syndrome.
pub(super) fn hardware(code: u8, vendor: Option<u8>) -> &'static str {
    match known::hardware(code, vendor) {
        Some(row) => row.meaning,
        None if code == 0 => "",
        None => "not published",
    }
}

fn user_index(item: &mut Item, at: usize, word: u32) {
    let meaning = "the queue's user index, or its SRQ's number";
    item.field(at, "srqn_uidx", format!("{:#08x}", word & 0xff_ffff), meaning);
}

fn send_opcode(item: &mut Item, at: usize, word: u32) {
    let opcode = (word >> 24) as u8;
    let meaning = Opcode::from_bits(opcode).map_or("unknown", Opcode::name);
    item.field(at, "send_opcode", format!("{opcode:#04x}"), meaning);
}

/// The last eight bytes, the same in every CQE.
fn tail(item: &mut Item, start: usize, cqe: &Cqe, opcode: Option<CqeOpcode>, of: Of) {
    let op_own = cqe.op_own;
    if opcode != Some(CqeOpcode::Invalid) {
        let number = format!("{:#08x}", cqe.sop_drop_qpn.get() & 0xff_ffff);
        let name = if of == Of::Message { "qpn" } else { "flow_tag" };
        // Strides that are skipped were taken by no rule.
        if of != Of::Filler {
            item.field(start + offset_of!(Cqe, sop_drop_qpn) + 1, name, number, "");
        }
        let meaning = match opcode {
            Some(CqeOpcode::Requester | CqeOpcode::RequesterError) => "block of the send request",
            _ if matches!(of, Of::Strides | Of::Filler) => FIRST_STRIDE,
            _ => "index of the receive request",
        };
        field!(item, start, Cqe.wqe_counter, "wqe_counter", cqe.wqe_counter.get(), meaning);
        field!(item, start, Cqe.signature, "signature", format!("{:#04x}", cqe.signature), "");
    }
    let at = start + offset_of!(Cqe, op_own);
    let code = op_own >> OPCODE_SHIFT;
    let meaning = opcode.map_or("unknown", |opcode| of.opcode(opcode));
    item.field(at, "opcode", format!("{code:#x}"), meaning);
    let format = (op_own & FORMAT_MASK) >> FORMAT_MASK.trailing_zeros();
    item.field(
        at,
        "format",
        format,
        match format {
            0 => "plain",
            1 => "data inline, up to 32 bytes in the entry",
            2 => "data inline, up to 64 bytes in the first half",
            _ => "compressed: short entries follow",
        },
    );
    let solicited = if op_own & SOLICITED != 0 { "event asked for" } else { "" };
    item.field(at, "se", u8::from(op_own & SOLICITED != 0), solicited);
    item.field(at, "owner", op_own & OWNER, "changes with every lap of the ring");
}

#[cfg(test)]
mod tests;
