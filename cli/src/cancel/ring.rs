//! The ring of a send queue, as the device sees it.

use crate::dump::reported;
use crate::failure::Failure;
use crate::table::{Align, Table};
use mlx5::{Drained, QueuePair, transport::Rc};
use mlx5_prm::wqe::{BLOCK, ControlSegment, Opcode};
use mlx5_prm::zerocopy::FromBytes;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Write;

/// Shows the WQEs of the requests `posted`. The first one starts at the start of the ring, and none
/// wraps. Returns their JSON.
pub(super) fn show(
    out: &mut impl Write,
    qp: &QueuePair<Rc>,
    drained: &Drained,
    posted: &[u64],
) -> Result<Vec<Value>, Failure> {
    let pending: BTreeMap<u16, bool> = qp
        .pending(drained)?
        .map(|request| (request.info.first(), request.info.cancelled()))
        .collect();
    let mut table = Table::new(&[
        ("block", Align::Right),
        ("wr_id", Align::Right),
        ("opcode", Align::Left),
        ("ds", Align::Right),
        ("flags", Align::Left),
        ("control segment", Align::Left),
        ("state", Align::Left),
    ]);
    let ring = qp.send_ring();
    let mut wr_ids = posted.iter();
    let (mut wr_id, mut state) = (0, "");
    let mut block = 0_u16;
    let mut requests = Vec::new();
    loop {
        let bytes = ring.get(usize::from(block) * BLOCK..).unwrap_or_default();
        let Ok((control, _)) = ControlSegment::read_from_prefix(bytes) else { break };
        // A SET_PSV belongs to the UMR before it: together they configure a key.
        if control.opcode() != Some(Opcode::SetPsv) {
            let Some(next) = wr_ids.next() else { break };
            wr_id = *next;
            state = match pending.get(&block) {
                None => "executed",
                Some(false) => "pending",
                Some(true) => "cancelled",
            };
        }
        let hex: Vec<String> = bytes[..size_of::<ControlSegment>()]
            .chunks(4)
            .map(|word| word.iter().map(|byte| format!("{byte:02x}")).collect())
            .collect();
        let here = if block == drained.block() { "  <- the device stopped here" } else { "" };
        let opcode = control.opcode().map_or("unknown", Opcode::name);
        requests.push(json!({
            "block": block,
            "wr_id": wr_id,
            "opcode": opcode,
            "flags": reported(control.fm_ce_se),
            "state": state,
        }));
        table.row([
            block.to_string(),
            wr_id.to_string(),
            opcode.to_owned(),
            control.units().to_string(),
            reported(control.fm_ce_se),
            hex.join(" "),
            format!("{state}{here}"),
        ]);
        block += control.units().div_ceil(4).max(1) as u16;
    }
    table.write(out, 3)?;
    Ok(requests)
}
