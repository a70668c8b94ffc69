//! Decodes CQEs.

use crate::dump::item::Item;
use mlx5_prm::cqe::{
    Cqe, CqeOpcode, DESCRIPTOR, ErrorCqe, FORMAT_MASK, OPCODE_SHIFT, OWNER, SOLICITED, Syndrome,
};
use mlx5_prm::wqe::Opcode;
use mlx5_prm::zerocopy::FromBytes;
use std::mem::offset_of;

/// Decodes a CQE of 64 bytes, or of 128 with the descriptor in the second half.
pub(crate) fn completion(bytes: &[u8]) -> Item {
    let start = bytes.len().saturating_sub(DESCRIPTOR);
    let descriptor = &bytes[start..];
    let Ok(cqe) = Cqe::read_from_bytes(descriptor) else {
        let mut item = Item::new("completion, cut off");
        item.bytes(0, "bytes", bytes);
        return item;
    };
    let opcode = CqeOpcode::from_bits(cqe.op_own >> OPCODE_SHIFT);
    let mut item = Item::new(match opcode {
        Some(CqeOpcode::Invalid) => "completion, not written yet".to_owned(),
        Some(opcode) => format!(
            "completion: {}, QP {:#08x}, wqe_counter {}",
            opcode.text(),
            cqe.sop_drop_qpn.get() & 0xff_ffff,
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
        Some(
            CqeOpcode::ResponderWriteImm
            | CqeOpcode::ResponderSend
            | CqeOpcode::ResponderSendImm
            | CqeOpcode::ResponderSendInvalidate,
        ) => received(&mut item, start, &cqe, opcode),
        Some(CqeOpcode::Requester) => requested(&mut item, start, &cqe),
        _ => item.bytes(start, "bytes", &descriptor[..DESCRIPTOR - 8]),
    }
    tail(&mut item, start, &cqe, opcode);
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

fn common(item: &mut Item, start: usize, cqe: &Cqe) {
    field!(item, start, Cqe.byte_count, "byte_count", cqe.byte_count.get(), "");
    let time = cqe.timestamp.get();
    field!(item, start, Cqe.timestamp, "timestamp", time, "cycles of the device's clock");
}

fn failed(item: &mut Item, start: usize, cqe: &ErrorCqe, sent: bool) {
    user_index(item, start + offset_of!(ErrorCqe, srqn_uidx), cqe.srqn_uidx.get());
    let vendor = format!("{:#04x}", cqe.vendor_err_synd);
    field!(
        item,
        start,
        ErrorCqe.vendor_err_synd,
        "vendor_err_synd",
        vendor,
        "the vendor's own code"
    );
    let meaning = Syndrome::from_bits(cqe.syndrome).map_or("unknown", Syndrome::text);
    field!(item, start, ErrorCqe.syndrome, "syndrome", format!("{:#04x}", cqe.syndrome), meaning);
    if sent {
        let word = cqe.s_wqe_opcode_qpn.get();
        send_opcode(item, start + offset_of!(ErrorCqe, s_wqe_opcode_qpn), word);
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
fn tail(item: &mut Item, start: usize, cqe: &Cqe, opcode: Option<CqeOpcode>) {
    let op_own = cqe.op_own;
    if opcode != Some(CqeOpcode::Invalid) {
        let qpn = format!("{:#08x}", cqe.sop_drop_qpn.get() & 0xff_ffff);
        item.field(start + offset_of!(Cqe, sop_drop_qpn) + 1, "qpn", qpn, "");
        let meaning = match opcode {
            Some(CqeOpcode::Requester | CqeOpcode::RequesterError) => "block of the send request",
            _ => "index of the receive request",
        };
        field!(item, start, Cqe.wqe_counter, "wqe_counter", cqe.wqe_counter.get(), meaning);
        field!(item, start, Cqe.signature, "signature", format!("{:#04x}", cqe.signature), "");
    }
    let at = start + offset_of!(Cqe, op_own);
    let code = op_own >> OPCODE_SHIFT;
    item.field(at, "opcode", format!("{code:#x}"), opcode.map_or("unknown", CqeOpcode::text));
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
