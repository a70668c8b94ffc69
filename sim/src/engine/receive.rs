//! Receive WQEs: taking them, scattering into them, completing them.

use mlx5_prm::event::EventType;
use mlx5_prm::wqe::{DataSegment, INVALID_LKEY, SrqNextSegment, UNIT};
use zerocopy::FromBytes;

use crate::engine::fault::Violation;
use crate::engine::state::mkey::{Access, KeyError, User};
use crate::engine::state::qp::Qp;
use crate::engine::state::receive::{Entry, Receive, Source};
use crate::engine::state::srq::Head;
use crate::engine::{Device, Event};

impl Device {
    /// Receive WQEs that wait in a queue pair's own ring.
    pub(crate) fn own_receives(&mut self, qpn: u32) -> u16 {
        let Some(qp) = self.qps.get(qpn) else { return 0 };
        let Some(ring) = qp.config.rq else { return 0 };
        let executed = qp.rq_consumed;
        match qp.rq_record(&*self.dma) {
            Ok(record) => {
                let waiting = record.wrapping_sub(executed);
                if u32::from(waiting) <= ring.mask() + 1 {
                    return waiting;
                }
                self.violation(Violation::RecordBeyondRing { number: qpn, record, executed });
            }
            Err(fault) => self.memory_violation(fault),
        }
        0
    }

    /// Whether a receive WQE waits for a queue pair.
    pub(crate) fn has_receive(&mut self, qpn: u32) -> bool {
        if self.qps.get(qpn).is_some_and(|qp| qp.held.is_some()) {
            return true;
        }
        match self.qps.get(qpn).and_then(Qp::shared_queue) {
            None => self.own_receives(qpn) > 0,
            Some(srqn) => self
                .srqs
                .get(srqn)
                .is_some_and(|srq| !srq.failed && srq.waiting(&*self.dma).is_ok_and(|n| n > 0)),
        }
    }

    /// Takes the receive WQE that is next for a queue pair, if there is one.
    pub(crate) fn take_receive(&mut self, qpn: u32) -> Option<Receive> {
        let qp = self.qps.get_mut(qpn)?;
        if let Some(held) = qp.held.take() {
            return Some(held);
        }
        match qp.shared_queue() {
            Some(srqn) => self.take_shared(srqn),
            None => self.take_own(qpn),
        }
    }

    /// Whether the WQEs of a queue pair's own ring are a linked list.
    pub(crate) fn has_list(&self, qpn: u32) -> bool {
        let config = self.ethernet.rqs.get(&qpn);
        config.and_then(|rq| rq.strides).is_some_and(|strides| strides.linked)
    }

    /// Skips all receive WQEs that wait in a queue pair's own ring.
    pub(crate) fn skip_own(&mut self, qpn: u32) {
        if let Some(qp) = self.qps.get_mut(qpn)
            && let Ok(record) = qp.rq_record(&*self.dma)
        {
            qp.rq_consumed = record;
        }
    }

    /// Takes the first receive WQE of a queue pair's own ring. It remains the first until it is
    /// retired.
    pub(crate) fn take_own(&mut self, qpn: u32) -> Option<Receive> {
        if self.own_receives(qpn) == 0 {
            return None;
        }
        let qp = self.qps.get(qpn)?;
        let ring = qp.config.rq?;
        let strides = self.ethernet.rqs.get(&qpn).is_some_and(|rq| rq.strides.is_some());
        let linked = self.has_list(qpn);
        let index = match linked {
            true => self.ethernet.heads.get(&qpn).copied().unwrap_or(0),
            false => qp.rq_consumed,
        };
        if linked && u32::from(index) > ring.mask() {
            self.violation(Violation::ReceiveList { rqn: qpn, index });
            self.skip_own(qpn);
            self.fail_qp(qpn, Some(EventType::WQ_CATAS_ERROR));
            return None;
        }
        let offset = ring.offset + (u64::from(u32::from(index) & ring.mask()) << ring.log_stride);
        let mut bytes = vec![0; 1 << ring.log_stride];
        match qp.config.buffer.read(&*self.dma, offset, &mut bytes) {
            Ok(()) => {
                // With strides a WQE begins like one of a list, even if the ring is no list.
                let (source, segments) = match SrqNextSegment::read_from_prefix(&bytes) {
                    Ok((segment, rest)) if linked => {
                        (Source::Linked { next: segment.next_wqe_index.get() }, rest)
                    }
                    Ok((_, rest)) if strides => (Source::Own, rest),
                    _ => (Source::Own, &bytes[..]),
                };
                Some(Receive { source, index, pd: qp.config.pd, entries: entries(segments) })
            }
            Err(fault) => {
                self.memory_violation(fault);
                None
            }
        }
    }

    fn take_shared(&mut self, srqn: u32) -> Option<Receive> {
        let srq = self.srqs.get_mut(srqn)?;
        if srq.failed {
            return None;
        }
        if let Ok(waiting) = srq.waiting(&*self.dma)
            && u32::from(waiting) >= 1 << srq.config.log_size
        {
            // One WQE of the list is always free.
            let executed = srq.consumed;
            let record = executed.wrapping_add(waiting);
            self.violation(Violation::RecordBeyondRing { number: srqn, record, executed });
            return None;
        }
        let mut bytes = vec![0; 1 << srq.config.log_stride];
        let mut head = srq.head(&*self.dma);
        if self.faults.reorder_receives > 0
            && srq.passed.is_none()
            && let Ok(Head::Wqe { index, next }) = head
            && srq.waiting(&*self.dma).is_ok_and(|waiting| waiting > 1)
        {
            self.faults.reorder_receives -= 1;
            srq.head = next;
            head = srq.head(&*self.dma);
            srq.passed = Some(index);
        }
        let taken = match head {
            Ok(Head::Empty) => return None,
            Ok(Head::Astray(index)) => Err(Violation::SrqList { srqn, index }),
            Ok(Head::Wqe { index, next }) => srq
                .config
                .buffer
                .read(&*self.dma, srq.offset(index), &mut bytes)
                .map(|()| (index, next))
                .map_err(|fault| Violation::Memory {
                    address: fault.address,
                    length: fault.length,
                }),
            Err(fault) => Err(Violation::Memory { address: fault.address, length: fault.length }),
        };
        match taken {
            Ok((index, next)) => {
                srq.head = next;
                srq.passed.take_if(|passed| *passed == index);
                srq.consumed = srq.consumed.wrapping_add(1);
                let pd = srq.config.pd;
                self.check_srq_limit(srqn);
                let entries = entries(&bytes[size_of::<SrqNextSegment>()..]);
                Some(Receive { source: Source::Shared, index, pd, entries })
            }
            Err(violation) => {
                srq.failed = true;
                self.violation(violation);
                self.raise(Event::Srq { srqn, kind: EventType::SRQ_CATAS_ERROR });
                None
            }
        }
    }

    /// Raises the limit event if it is armed and due.
    pub(crate) fn check_srq_limit(&mut self, srqn: u32) {
        let Some(srq) = self.srqs.get_mut(srqn) else { return };
        if srq.limit > 0 && srq.waiting(&*self.dma).is_ok_and(|waiting| waiting < srq.limit) {
            srq.limit = 0;
            self.raise(Event::Srq { srqn, kind: EventType::SRQ_RQ_LIMIT });
        }
    }

    /// Holds a receive WQE for the next packet or the next message.
    pub(crate) fn hold_receive(&mut self, qpn: u32, receive: Receive) {
        if let Some(qp) = self.qps.get_mut(qpn) {
            qp.held = Some(receive);
        }
    }

    /// Ends the use of a receive WQE.
    pub(crate) fn retire_receive(&mut self, qpn: u32, receive: &Receive) {
        let Some(qp) = self.qps.get_mut(qpn) else { return };
        match receive.source {
            Source::Own => qp.rq_consumed = receive.index.wrapping_add(1),
            Source::Linked { next } => {
                qp.rq_consumed = qp.rq_consumed.wrapping_add(1);
                self.ethernet.heads.insert(qpn, next);
            }
            Source::Shared => {}
        }
    }

    /// Writes bytes at an offset of a scatter list that is long enough.
    pub(crate) fn scatter(
        &mut self,
        user: User,
        entries: &[Entry],
        mut offset: u64,
        mut data: &[u8],
    ) -> Result<(), KeyError> {
        for entry in entries {
            if data.is_empty() {
                break;
            }
            if offset >= entry.length {
                offset -= entry.length;
                continue;
            }
            let room = usize::try_from(entry.length - offset).unwrap_or(usize::MAX);
            let (now, later) = data.split_at(room.min(data.len()));
            self.write_key(
                user,
                entry.lkey,
                entry.address.wrapping_add(offset),
                now,
                Access::LOCAL_WRITE,
            )?;
            (offset, data) = (0, later);
        }
        Ok(())
    }
}

/// The scatter entries of a receive WQE, up to the one that ends the list.
fn entries(bytes: &[u8]) -> Vec<Entry> {
    bytes
        .as_chunks::<UNIT>()
        .0
        .iter()
        .filter_map(|unit| DataSegment::ref_from_bytes(unit).ok())
        .take_while(|segment| segment.lkey.get() != INVALID_LKEY)
        .map(Entry::from)
        .collect()
}
