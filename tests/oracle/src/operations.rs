//! The rarer operations of a send queue, through both providers: memory keys that requests
//! configure, atomics, invalidations, and requests that the caller has put together.
//!
//! `peer/operations.h` has the commands of the script. The kernel's numbers differ between the
//! sides, so keys and signature variables are compared by the order in which they appear.

use std::fmt::Write as _;
use std::mem::offset_of;

use mlx5::mkey::{Mkey, SignatureErrorKind};
use mlx5::transport::{Rc, XrcSend};
use mlx5::{
    AccessFlags, AckTimeout, AhAttr, CompletionQueue, DoorbellChoice, Mtu, ProtectionDomain, Psn,
    QpAttributes, QpNumber, QueuePair, QueuePairTransport, QueueState, RetryCount, RnrTimer,
    devices_on,
};
use mlx5_prm::cqe::{CqeOpcode, OPCODE_SHIFT};
use mlx5_prm::signature::SignatureErrorCqe;
use mlx5_prm::wqe::BLOCK;
use mlx5_sim::Simulator;
use mlx5_uapi::ioctl::method;

use crate::compare::{Comparison, compare as compare_events};
use crate::event::{Event, Made, Outcome, Post};
use crate::failure::Failure;
use crate::memory::{CompletionRing, Memory, Registers, SendRing};
use crate::operations::carrier::{Carrier, Side, Windows, list};
use crate::operations::table::{BadSignature, KEYS, Section};
use crate::ours::{address_at, driver_input, u32_at};
use crate::peer::Peer;
use crate::watch::Watch;

mod carrier;
mod normal;
mod table;

/// The sizes of the queue pair.
const REQUESTS: u32 = 16;
const SGES: u32 = 8;
/// rdma-core lets a request have as many translation entries as fit into the room for inline data,
/// beside the signature.
const INLINE: u32 = 512;
const COMPLETIONS: u32 = 255;
/// Bytes of a UAR page.
const PAGE: usize = 4096;

/// The script for the C program.
fn script(section: &Section) -> Vec<String> {
    let mut script = vec![
        format!("queue {} {} builder", section.name, if section.extended { "xrc" } else { "rc" }),
        format!("cq {COMPLETIONS:x} 0"),
        format!("ah 5 0 0 0 0 {:032x} 0 0 0 0", 0),
        format!("dvqp {REQUESTS:x} {SGES:x} {INLINE:x}"),
        "init 1 0 0 0".to_owned(),
        "rtr 3 11 0 0 c 0".to_owned(),
        "rts 0 e 7 7 0".to_owned(),
    ];
    let mut keys = format!("keys {:x}", KEYS.len());
    for (entries, signed) in KEYS {
        _ = write!(keys, " {entries:x} {}", u8::from(signed));
    }
    if !section.extended {
        script.extend([keys, "windows".to_owned()]);
    }
    for (number, batch) in section.batches.iter().enumerate() {
        script.extend(batch.found.iter().map(ToString::to_string));
        let api = if batch.builder { "builder" } else { "list" };
        script.push(format!("dvpost {number} {api} {:x}", batch.lines.len()));
        script.extend(batch.lines.iter().map(ToString::to_string));
        if batch.drains() {
            script.push("drain".to_owned());
        }
    }
    if !section.cancels.is_empty() {
        script.push("sqd".to_owned());
    }
    script.extend(section.cancels.iter().map(|wr_id| format!("cancel {wr_id:x}")));
    script.push("keys 0".to_owned());
    script
}

fn create<T: QueuePairTransport>(
    pd: &ProtectionDomain,
    cq: &CompletionQueue,
    requests: u32,
) -> Result<QueuePair<T>, mlx5::Error> {
    pd.create_qp::<T>(cq, cq)
        .max_send_wr(requests)
        .max_recv_wr(1)
        .max_send_sge(SGES)
        .max_recv_sge(1)
        .max_inline_data(INLINE)
        .doorbell(DoorbellChoice::BlueFlame)
        .build()
}

/// A queue pair with a ring of `blocks` blocks, so that it wraps where the other side's does.
fn create_of<T: QueuePairTransport>(
    pd: &ProtectionDomain,
    cq: &CompletionQueue,
    blocks: u32,
) -> Result<QueuePair<T>, Failure> {
    for part in 1..=blocks {
        if let Ok(qp) = create(pd, cq, blocks / part)
            && qp.caps().send_blocks == blocks
        {
            return Ok(qp);
        }
    }
    Err(Failure::Missing("a ring of this number of blocks"))
}

fn connect<T: QueuePairTransport>(qp: &mut QueuePair<T>, extended: bool) -> Result<(), Failure> {
    let init = QpAttributes::new().qp_state(QueueState::Init).port_num(1).pkey_index(0);
    qp.modify(&init.qp_access_flags(AccessFlags::from_bits_retain(0)))?;
    let rtr = QpAttributes::new()
        .qp_state(QueueState::ReadyToReceive)
        .ah_attr(AhAttr::infiniband(1, 5))
        .path_mtu(Mtu::from_raw(3).ok_or(Failure::Missing("an MTU"))?)
        .dest_qp_num(QpNumber::new(0x11)?)
        .rq_psn(Psn::new(0)?);
    qp.modify(&match extended {
        true => rtr,
        false => rtr.max_dest_rd_atomic(0).min_rnr_timer(RnrTimer::new(12)?),
    })?;
    let rts = QpAttributes::new()
        .qp_state(QueueState::ReadyToSend)
        .sq_psn(Psn::new(0)?)
        .timeout(AckTimeout::new(14)?)
        .retry_cnt(RetryCount::new(7)?)
        .rnr_retry(RetryCount::new(7)?)
        .max_rd_atomic(0);
    Ok(qp.modify(&rts)?)
}

fn ours<T: Carrier>(
    simulator: &Simulator,
    blocks: u32,
    section: &Section,
) -> Result<Vec<Event>, Failure> {
    let watch = Watch::default();
    let device = devices_on(watch.kernel(simulator.kernel()))?.into_iter().next();
    let context = device.ok_or(Failure::Missing("a device"))?.open()?;
    let pd = context.alloc_pd()?;
    let mut cq = context.create_cq(COMPLETIONS).build()?;
    let driver = driver_input(&watch.take(), method::CQ_CREATE)?.to_vec();
    let entry = u32_at(&driver, 16) as usize;
    let length = (COMPLETIONS as usize + 1) * entry;
    // SAFETY: the completion queue owns its ring and lives as long as this value is used. The
    // driver only reads the ring, by volatile loads.
    let memory = unsafe { Memory::new(address_at(&driver, 0), length) };
    let mut completions = CompletionRing { memory, entry, written: 0 };

    let mut qp = create_of::<T>(&pd, &cq, blocks)?;
    let driver = driver_input(&watch.take(), method::QP_CREATE)?.to_vec();
    let page = watch.page(u32_at(&driver, 36));
    let page = page.ok_or(Failure::Missing("the UAR page of the queue pair"))?;
    let (receives, stride) = (u32_at(&driver, 20), 1_u32 << u32_at(&driver, 24));
    let user_index = u32_at(&driver, 32);
    let start = address_at(&driver, 0) + (receives * stride) as usize;
    // SAFETY: the queue pair owns the ring and the record, and maps the page; it lives as long as
    // they are used. The driver writes them only in calls of this thread.
    let (ring, record, registers) = unsafe {
        (
            SendRing(Memory::new(start, blocks as usize * BLOCK)),
            Memory::new(address_at(&driver, 8), 8),
            Registers(Memory::new(page, PAGE)),
        )
    };
    let stride = if receives == 0 { 0 } else { stride };
    let made = Made { qpn: qp.qp_num(), blocks, receives, stride };
    let mut events = vec![Event::Queue(section.name.into()), Event::Made(made)];
    connect(&mut qp, T::EXTENDED)?;
    let keys = KEYS
        .iter()
        .map(|(entries, signed)| {
            let builder = pd.create_mkey(*entries);
            if *signed { builder.block_signature().build() } else { builder.build() }
        })
        .collect::<Result<_, _>>()?;
    let mut side = Side { keys, windows: Windows::new(&pd)? };

    let mut head = 0;
    for (number, batch) in section.batches.iter().enumerate() {
        if let Some(bad) = &batch.found {
            let key = &side.keys[bad.key];
            let label = found(bad, key, &mut cq, &mut completions)?;
            events.push(Event::Post(label, Post::default()));
        }
        registers.poison();
        let outcome = match batch.builder {
            true if T::build(&mut qp, &mut side, &batch.lines) => Outcome::Posted,
            true => Outcome::Refused(0),
            false => list(&mut qp, &mut side, &batch.lines),
        };
        let rung = registers.rung();
        registers.clear();
        let record = record.read(0, 8);
        let end = u16::from_be_bytes([record[6], record[7]]);
        let (wqes, last) = follow(&ring, head, end);
        head = end;
        events.push(Event::Post(number.to_string(), Post { outcome, record, rung, wqes }));
        if batch.drains() {
            completions.write(CqeOpcode::Requester, user_index, last);
            let mut good = false;
            let count = cq.poll(2, |completion| good = completion.status().is_ok())?;
            if count != 1 || !good {
                return Err(Failure::Missing("a good completion"));
            }
        }
    }
    if section.cancels.is_empty() {
        return Ok(events);
    }
    watch.drain(0);
    let drained = qp.drained().map_err(|_| Failure::Missing("a drained queue"))?;
    for wr_id in &section.cancels {
        let cancelled = qp.cancel(&drained, *wr_id);
        let count = cancelled.map_err(|_| Failure::Missing("a drained queue"))?.count();
        let label = format!("cancel-{wr_id:x}-{count:x}");
        let (record, wqes) = (record.read(0, 8), follow(&ring, 0, head).0);
        events.push(Event::Post(label, Post { record, wqes, ..Post::default() }));
    }
    Ok(events)
}

/// Makes the queue find a bad signature. Returns the key's report.
fn found(
    bad: &BadSignature,
    key: &Mkey,
    cq: &mut CompletionQueue,
    completions: &mut CompletionRing,
) -> Result<String, Failure> {
    let mut entry = bad.entry.clone();
    entry[offset_of!(SignatureErrorCqe, mkey)..][..4].copy_from_slice(&key.lkey().to_be_bytes());
    entry.push((CqeOpcode::SignatureError as u8) << OPCODE_SHIFT);
    completions.put(&mut entry);
    if cq.poll(1, |_| ())? != 0 {
        return Err(Failure::Missing("an entry that is no completion"));
    }
    let error = key.check()?.ok_or(Failure::Missing("a bad signature"))?;
    let kind = match error.kind {
        SignatureErrorKind::Guard => "guard",
        SignatureErrorKind::ReferenceTag => "reference",
        SignatureErrorKind::ApplicationTag => "application",
        _ => "other",
    };
    Ok(format!("sigerr-{kind}-{:x}-{:x}-{:x}", error.expected, error.actual, error.offset))
}

/// The requests from one block to another, and the first block of the last request.
fn follow(ring: &SendRing, mut head: u16, end: u16) -> (Vec<Vec<u8>>, u16) {
    let (mut wqes, mut last) = (Vec::new(), head);
    while head != end {
        let (wqe, next) = ring.request(head);
        wqes.push(wqe);
        (last, head) = (head, next);
    }
    (wqes, last)
}

/// Posts the same operations on both sides, and compares the memory that they wrote.
pub(crate) fn compare(peer: &Peer<'_>, simulator: &Simulator) -> Result<Vec<Comparison>, Failure> {
    let mut comparisons = Vec::new();
    for section in table::sections() {
        let mut theirs = peer.run(&script(&section))?;
        theirs.retain(|event| !matches!(event, Event::Call(_)));
        let blocks = theirs.iter().find_map(|event| match event {
            Event::Made(made) => Some(made.blocks),
            _ => None,
        });
        let blocks = blocks.ok_or(Failure::Missing("the C program's queue pair"))?;
        let mut ours = match section.extended {
            true => ours::<XrcSend>(simulator, blocks, &section)?,
            false => ours::<Rc>(simulator, blocks, &section)?,
        };
        normal::normalise(&mut theirs);
        normal::normalise(&mut ours);
        comparisons.extend(compare_events(&theirs, &ours));
    }
    Ok(comparisons)
}
