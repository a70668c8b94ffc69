//! Writing completions, and raising events.

use mlx5_prm::cqe::{
    Cqe, CqeOpcode, DESCRIPTOR, ErrorCqe, FORMAT_SHIFT, Format, INLINE_32, INLINE_64, OPCODE_SHIFT,
    OWNER, SOLICITED,
};
use mlx5_prm::ethernet::striding;
use mlx5_prm::event::{CqErrorSyndrome, EventType};
use mlx5_prm::wqe::Opcode;
use zerocopy::{FromZeros, IntoBytes};

use crate::dma::DmaFault;
use crate::engine::atomic::is_atomic;
use crate::engine::state::codes::Code;
use crate::engine::state::cq::Due;
use crate::engine::state::qp::Qp;
use crate::engine::{Device, Event};

/// Offset of the last byte of a descriptor, which has the ownership bit.
const OP_OWN: usize = DESCRIPTOR - 1;

/// Offset of its signature.
const SIGNATURE: usize = OP_OWN - 1;

/// User index of a queue that has none.
const NO_USER_INDEX: u32 = 0xff_ffff;

/// The value of `srqn_uidx` for a queue: its user index, if it has one.
pub(crate) fn srqn_or_index(cqe_version: u8, srqn: u32, user_index: u32) -> u32 {
    let index = user_index & NO_USER_INDEX;
    if cqe_version == 0 || index == NO_USER_INDEX { srqn } else { index }
}

impl Device {
    /// The value of `srqn_uidx` for a queue pair, as a requester or a receiver.
    fn srqn_or_index(&self, qpn: u32, receive: bool) -> u32 {
        let Some(qp) = self.qps.get(qpn) else { return 0 };
        let version = self.config.cqe_version;
        if receive && let Some((_, index)) = self.extended_receiver(qpn) {
            return srqn_or_index(version, qp.named_srq.unwrap_or(0), index);
        }
        srqn_or_index(version, qp.config.srq.unwrap_or(0), qp.config.user_index)
    }

    /// An entry without error, with the fields that every entry has.
    pub(crate) fn entry(&self, qpn: u32, opcode: CqeOpcode, send_opcode: u8, wqe: u16) -> Cqe {
        let mut cqe = Cqe::new_zeroed();
        let receive = !matches!(opcode, CqeOpcode::Requester | CqeOpcode::RequesterError);
        cqe.srqn_uidx.set(self.srqn_or_index(qpn, receive));
        let real_time = self.qps.get(qpn).is_some_and(|qp| qp.config.completion.real_time);
        cqe.timestamp.set(if real_time { self.real_time() } else { self.clock() });
        cqe.sop_drop_qpn.set(u32::from(send_opcode) << 24 | qpn);
        cqe.wqe_counter.set(wqe);
        cqe.op_own = (opcode as u8) << OPCODE_SHIFT;
        cqe
    }

    /// Reports a failed request or receive.
    pub(crate) fn complete_error(
        &mut self,
        qpn: u32,
        opcode: CqeOpcode,
        send_opcode: u8,
        wqe: u16,
        code: Code,
    ) {
        self.complete_error_of(qpn, opcode, send_opcode, wqe, code, 0);
    }

    /// Like [`Device::complete_error`], for a packet that took `strides` strides of its receive.
    pub(crate) fn complete_error_of(
        &mut self,
        qpn: u32,
        opcode: CqeOpcode,
        send_opcode: u8,
        wqe: u16,
        code: Code,
        strides: u32,
    ) {
        let mut cqe = ErrorCqe::new_zeroed();
        let receive = opcode == CqeOpcode::ResponderError;
        cqe.srqn_uidx.set(self.srqn_or_index(qpn, receive));
        cqe.hw_err_synd = code.hardware;
        cqe.hw_synd_type = code.kind;
        cqe.vendor_err_synd = code.vendor;
        cqe.syndrome = code.syndrome as u8;
        cqe.s_wqe_opcode_qpn.set(u32::from(send_opcode) << 24 | qpn);
        cqe.wqe_counter.set(wqe);
        cqe.op_own = (opcode as u8) << OPCODE_SHIFT;
        let atomic = Opcode::from_bits(send_opcode).is_some_and(is_atomic);
        if code.is_solicited() && !atomic {
            cqe.op_own |= SOLICITED;
        }
        if receive && self.ethernet.rqs.get(&qpn).is_some_and(|rq| rq.strides.is_some()) {
            // The counter of other entries is a stride, so this field names the WQE.
            cqe.wqe_id.set(wqe);
            cqe.byte_count.set(strides << striding::STRIDES_SHIFT);
        }
        self.complete(qpn, receive, zerocopy::transmute!(cqe), &[], true);
    }

    /// Writes an entry to the send or receive completion queue of a queue pair, and with it a
    /// message that is short enough. One that cannot be written takes the queue pair down.
    pub(crate) fn complete(
        &mut self,
        qpn: u32,
        receive: bool,
        mut entry: [u8; DESCRIPTOR],
        message: &[u8],
        urgent: bool,
    ) {
        let Some(qp) = self.qps.get(qpn) else { return };
        let config = &qp.config;
        let cqn = match receive {
            true => self.extended_receiver(qpn).map_or(config.recv_cq, |(xrc, _)| xrc.cqn),
            false => config.send_cq,
        };
        let limit = config.completion.limit(receive);
        let mut before: &[u8] = &[];
        if !message.is_empty() {
            if limit == INLINE_32 {
                entry[..message.len()].copy_from_slice(message);
                entry[OP_OWN] |= (Format::Inline32 as u8) << FORMAT_SHIFT;
            } else {
                before = message;
                entry[OP_OWN] |= (Format::Inline64 as u8) << FORMAT_SHIFT;
            }
        }
        let strides = receive && self.ethernet.rqs.get(&qpn).is_some_and(|rq| rq.strides.is_some());
        if !self.write_entry(cqn, entry, before, urgent, strides) {
            self.fail_qp(qpn, Some(EventType::WQ_CATAS_ERROR));
        }
    }

    /// An entry without error of a queue pair, for [`Device::inject_completion`].
    #[must_use]
    pub fn completion(&self, qpn: u32, opcode: CqeOpcode, send_opcode: u8, wqe: u16) -> Cqe {
        self.entry(qpn, opcode, send_opcode, wqe)
    }

    /// Makes a completion queue write the entries that it holds back for compression.
    pub fn flush_completions(&mut self, cqn: u32) {
        self.write_run(cqn);
    }

    /// Makes a completion queue take an entry as if a queue pair completed: it is compressed,
    /// counted and reported like any other. A message of up to 32 or 64 bytes goes with it if the
    /// entry's format requires that. Returns whether the queue took it.
    pub fn inject_completion(
        &mut self,
        cqn: u32,
        mut entry: [u8; DESCRIPTOR],
        message: &[u8],
    ) -> bool {
        let error = is_error(&entry);
        let strides = self.completes_strides(cqn, &entry);
        match Format::of(entry[OP_OWN]) {
            Format::Inline32 if message.len() <= INLINE_32 => {
                entry[..message.len()].copy_from_slice(message);
                self.write_entry(cqn, entry, &[], error, false)
            }
            Format::Inline64
                if message.len() <= INLINE_64
                    && self.cqs.get(cqn).is_some_and(|cq| cq.config.entry_bytes == 128) =>
            {
                self.write_entry(cqn, entry, message, error, false)
            }
            Format::Plain if message.is_empty() => {
                self.write_entry(cqn, entry, &[], error, strides)
            }
            _ => false,
        }
    }

    /// Whether an entry names a receive queue with strides that completes on a queue.
    fn completes_strides(&self, cqn: u32, entry: &[u8; DESCRIPTOR]) -> bool {
        let entry: Cqe = zerocopy::transmute!(*entry);
        let index = entry.srqn_uidx.get() & NO_USER_INDEX;
        self.ethernet.rqs.iter().any(|(rqn, rq)| {
            let names =
                |qp: &Qp| qp.config.recv_cq == cqn && qp.config.user_index & NO_USER_INDEX == index;
            rq.strides.is_some() && self.qps.get(*rqn).is_some_and(names)
        })
    }

    /// Writes an entry to a completion queue and returns whether it could. `strides`: the entry is
    /// of a receive queue with strides, which are counted from one entry to the next.
    pub(crate) fn write_entry(
        &mut self,
        cqn: u32,
        entry: [u8; DESCRIPTOR],
        before: &[u8],
        urgent: bool,
        strides: bool,
    ) -> bool {
        if let Some(at) = self.faults.overrun_cqs.iter().position(|overrun| *overrun == cqn) {
            self.faults.overrun_cqs.remove(at);
            self.fail_cq(cqn);
        }
        let Some(cq) = self.cqs.get_mut(cqn) else { return false };
        if cq.failed {
            return false;
        }
        if !cq.config.ignore_overrun {
            match cq.is_full(&*self.dma) {
                Ok(false) => {}
                Ok(true) => {
                    self.write_run(cqn);
                    self.fail_cq(cqn);
                    return false;
                }
                Err(fault) => {
                    self.cannot_write(cqn, fault);
                    return false;
                }
            }
        }
        let urgent = urgent || entry[OP_OWN] & SOLICITED != 0;
        if self.keep_back(cqn, &entry, urgent, strides).is_some() {
            return true;
        }
        self.put(cqn, entry, before, 1, urgent.into())
    }

    /// Writes an entry that stands for `count`, the first `urgent` of which end a wait for urgent
    /// ones.
    pub(crate) fn put(
        &mut self,
        cqn: u32,
        mut entry: [u8; DESCRIPTOR],
        before: &[u8],
        count: u32,
        urgent: u32,
    ) -> bool {
        let Some(cq) = self.cqs.get_mut(cqn) else { return false };
        let (offset, owner) = cq.next();
        entry[OP_OWN] = entry[OP_OWN] & !OWNER | owner;
        if is_error(&entry) {
            sign(&mut entry, cq.produced);
        }
        let hostile = &mut self.faults.corrupt_cqes;
        if let Some(at) = hostile.iter().position(|entry| entry.cqn.is_none_or(|n| n == cqn)) {
            for (byte, value) in hostile.remove(at).patch {
                if let Some(slot) = entry.get_mut(usize::from(byte)) {
                    *slot = value;
                }
            }
        }
        // A poller may read the rest as soon as it sees the ownership bit change, so that byte goes
        // last.
        let buffer = &cq.config.buffer;
        let mut written = buffer.write(&*self.dma, offset, &entry[..OP_OWN]);
        if !before.is_empty() {
            let at = offset - INLINE_64 as u64;
            written = written.and_then(|()| buffer.write(&*self.dma, at, before));
        }
        let written = written.and_then(|()| {
            buffer.pieces(offset + OP_OWN as u64, 1, |address, _| {
                self.dma.store_byte(address, entry[OP_OWN])
            })
        });
        if let Err(fault) = written {
            self.cannot_write(cqn, fault);
            return false;
        }
        if urgent > 0 {
            cq.solicited = cq.produced.wrapping_add(urgent);
        }
        cq.produced = cq.produced.wrapping_add(count);
        let eqn = cq.config.eqn;
        match cq.count(count, urgent > 0) {
            Some(Due::Now) => {
                self.moderated.remove(&cqn);
                self.raise(Event::Completion { cqn, eqn });
            }
            Some(Due::In(wait_ns)) => {
                self.moderated.insert(cqn, self.now_ns + wait_ns);
            }
            None => {}
        }
        true
    }

    /// Raises the events that moderation has delayed long enough, and returns whether there were
    /// any.
    pub(crate) fn report_moderated(&mut self) -> bool {
        let now_ns = self.now_ns;
        let due: Vec<u32> =
            self.moderated.iter().filter(|(_, due)| **due <= now_ns).map(|(cqn, _)| *cqn).collect();
        for cqn in &due {
            self.moderated.remove(cqn);
            if let Some(cq) = self.cqs.get_mut(*cqn)
                && cq.fire()
            {
                let eqn = cq.config.eqn;
                self.raise(Event::Completion { cqn: *cqn, eqn });
            }
        }
        !due.is_empty()
    }

    /// Fails a completion queue whose memory cannot be accessed.
    pub(crate) fn cannot_write(&mut self, cqn: u32, fault: DmaFault) {
        self.memory_violation(fault);
        self.break_cq(cqn, CqErrorSyndrome::CQ_ACCESS_VIOLATION_ERROR.0 as u8);
    }

    /// Writes the last entry of a ring that is replaced.
    pub(crate) fn write_resize_entry(&mut self, cqn: u32) -> Result<(), super::Error> {
        self.write_run(cqn);
        let cq = self.cqs.get(cqn).ok_or(super::Error::NotFound)?;
        if cq.is_full(&*self.dma)? {
            return Err(super::Error::State("the completion queue has no room for the mark"));
        }
        let mut cqe = Cqe::new_zeroed();
        cqe.op_own = (CqeOpcode::Resize as u8) << OPCODE_SHIFT;
        let entry: [u8; DESCRIPTOR] = zerocopy::transmute!(cqe);
        if self.write_entry(cqn, entry, &[], false, false) {
            Ok(())
        } else {
            Err(super::Error::State("the completion queue has failed"))
        }
    }

    /// Puts a completion queue in the state that an overrun leaves it in.
    pub(crate) fn fail_cq(&mut self, cqn: u32) {
        self.break_cq(cqn, CqErrorSyndrome::CQ_OVERRUN.0 as u8);
    }

    fn break_cq(&mut self, cqn: u32, syndrome: u8) {
        let Some(cq) = self.cqs.get_mut(cqn) else { return };
        if !std::mem::replace(&mut cq.failed, true) {
            self.raise(Event::CqError { cqn, syndrome });
        }
    }

    /// Changes a port's link, and reports it.
    pub fn set_port_active(&mut self, number: u8, active: bool) {
        use mlx5_prm::event::PortChange;
        let Some(port) = self.port_mut(number) else { return };
        if std::mem::replace(&mut port.active, active) != active {
            let change = if active { PortChange::ACTIVE } else { PortChange::DOWN };
            self.raise(Event::Port { port: number, change });
        }
    }

    /// Reports an event. Faults can duplicate and reorder asynchronous events.
    pub(crate) fn raise(&mut self, event: Event) {
        if matches!(event, Event::Completion { .. }) {
            return self.report(event);
        }
        let faults = &mut self.faults;
        if faults.reorder_events > 0 {
            faults.held_events.push(event);
            if faults.held_events.len() < faults.reorder_events as usize {
                return;
            }
            faults.reorder_events = 0;
            for event in std::mem::take(&mut faults.held_events).into_iter().rev() {
                self.report(event);
            }
            return;
        }
        let twice = faults.duplicate_events > 0;
        faults.duplicate_events = faults.duplicate_events.saturating_sub(1);
        self.report(event);
        if twice {
            self.report(event);
        }
    }

    fn report(&mut self, event: Event) {
        if let Some(sink) = &mut self.sink {
            sink.event(event);
        }
    }
}

/// Whether an entry reports a failed request or receive.
fn is_error(entry: &[u8; DESCRIPTOR]) -> bool {
    [CqeOpcode::RequesterError, CqeOpcode::ResponderError]
        .map(|opcode| opcode as u8)
        .contains(&(entry[OP_OWN] >> OPCODE_SHIFT))
}

/// Signs an error entry: the XOR of its bytes is the inverted one of the bytes of its number. So
/// it is in each recorded one whose number is known.
fn sign(entry: &mut [u8; DESCRIPTOR], number: u32) {
    let fold = |bytes: &[u8]| bytes.iter().fold(0, |sum, byte| sum ^ byte);
    entry[SIGNATURE] = 0;
    entry[SIGNATURE] = !fold(&number.to_be_bytes()) ^ fold(entry);
}

/// The bytes of an entry.
pub(crate) fn bytes(cqe: &Cqe) -> [u8; DESCRIPTOR] {
    let mut bytes = [0; DESCRIPTOR];
    bytes.copy_from_slice(cqe.as_bytes());
    bytes
}
