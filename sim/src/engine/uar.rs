//! UAR pages: doorbells, and the queues that they make the device look at.

use mlx5_prm::doorbell::{BLUEFLAME, BLUEFLAME_REGISTERS, CQ_DOORBELL};
use mlx5_prm::wqe::UNIT;

use crate::engine::fault::Violation;
use crate::engine::state::qp::{QpState, Wait};
use crate::engine::state::uar::SendDoorbell;
use crate::engine::{Device, Event};

impl Device {
    /// Bytes of one half of a BlueFlame register.
    pub(crate) fn half_register(&self) -> usize {
        1 << (self.config.log_bf_reg_size.max(7) - 1)
    }

    /// Handles a write to a register as it arrives on the bus: eight bytes, the first in memory the
    /// most significant.
    pub fn doorbell_write(&mut self, uar: u32, offset: usize, value: u64) {
        if offset == CQ_DOORBELL {
            self.ring_cq(uar, value);
        } else if offset >= BLUEFLAME {
            self.blueflame_write(uar, offset, value);
        }
    }

    /// Looks for doorbells in every page that is plain memory.
    pub(crate) fn poll_uars(&mut self) {
        let pages = self.uars.iter().filter_map(|(index, uar)| Some((index, uar.memory?)));
        let rung = pages.flat_map(|(index, page)| self.take_rung(index, page)).collect();
        self.take_doorbells(rung);
    }

    /// Handles the doorbells that were rung in one page, so that a command comes after all
    /// doorbells before it.
    pub(crate) fn catch_up(&mut self, uar: u32) {
        self.give_up_copy(uar);
        if let Some(page) = self.uars.get(uar).and_then(|uar| uar.memory)
            && !self.fatal
        {
            let rung = self.take_rung(uar, page).collect();
            self.take_doorbells(rung);
        }
    }

    /// Collects the registers of a page that were written: page, address, offset and value of each.
    fn take_rung(
        &self,
        index: u32,
        page: u64,
    ) -> impl Iterator<Item = (u32, u64, usize, u64)> + use<'_> {
        let half = self.half_register();
        let offsets = (0..2 * BLUEFLAME_REGISTERS).map(move |n| BLUEFLAME + n * half);
        std::iter::once(CQ_DOORBELL).chain(offsets).filter_map(move |offset| {
            match self.dma.take_u64(page + offset as u64) {
                Ok(0) | Err(_) => None,
                Ok(value) => Some((index, page, offset, value)),
            }
        })
    }

    fn take_doorbells(&mut self, rung: Vec<(u32, u64, usize, u64)>) {
        let half = self.half_register();
        for (uar, page, offset, value) in rung {
            if offset == CQ_DOORBELL {
                self.ring_cq(uar, value);
                continue;
            }
            let mut rest = Vec::new();
            if self.config.exact_doorbells {
                // The rest of the register distinguishes a BlueFlame copy from a plain doorbell, if
                // the device clears it after each.
                rest = vec![0; half - 8];
                let at = page + offset as u64 + 8;
                let zeros = vec![0; half - 8];
                if let Err(fault) =
                    self.dma.read(at, &mut rest).and_then(|()| self.dma.write(at, &zeros))
                {
                    self.memory_violation(fault);
                }
            }
            self.ring_sq(uar, value, &rest);
        }
    }

    pub(crate) fn ring_sq(&mut self, uar: u32, value: u64, rest: &[u8]) {
        let doorbell = SendDoorbell::from(value);
        let qpn = doorbell.qpn;
        if !self.config.exact_doorbells {
            // This doorbell may have overwritten another one before the device looked.
            let qps = self.uars.get(uar).map(|page| page.qps.clone()).unwrap_or_default();
            if !qps.contains(&qpn) {
                self.stray_doorbell(uar, qpn);
            }
            for qpn in qps {
                self.rescan_qp(qpn);
            }
            return;
        }
        let Some(qp) = self.qps.get(qpn) else { return self.stray_doorbell(uar, qpn) };
        if qp.config.uar != uar {
            return self.stray_doorbell(uar, qpn);
        }
        if !self.rescan_qp(qpn) {
            return;
        }
        let Some(qp) = self.qps.get(qpn).filter(|qp| qp.heeds_doorbells()) else { return };
        let record = qp.sq_posted;
        let announced = doorbell.end();
        if record.wrapping_sub(announced).cast_signed() < 0 {
            self.violation(Violation::DoorbellBeyondRecord { qpn, announced, record });
            // Real devices go by the register, and do not wait for the record.
            if self.post_until(qpn, announced)
                && let Some(qp) = self.qps.get_mut(qpn)
            {
                qp.ahead = true;
            }
        }
        if rest.iter().any(|byte| *byte != 0) {
            self.compare_blueflame(doorbell, value, rest);
        }
    }

    fn stray_doorbell(&mut self, uar: u32, qpn: u32) {
        let violation = match self.qps.get(qpn) {
            Some(_) => Violation::WrongUar { number: qpn, uar },
            None => Violation::UnknownQp(qpn),
        };
        self.violation(violation);
    }

    fn compare_blueflame(&mut self, doorbell: SendDoorbell, value: u64, rest: &[u8]) {
        let (qpn, index) = (doorbell.qpn, doorbell.index);
        let length = usize::from(doorbell.units) * UNIT;
        let written = value.to_be_bytes().into_iter().chain(rest.iter().copied());
        let mut ring = vec![0; length];
        let Some(qp) = self.qps.get(qpn) else { return };
        if let Err(fault) = qp.read_sq(&*self.dma, index, &mut ring) {
            return self.memory_violation(fault);
        }
        let whole = length <= rest.len() + 8;
        let differs = written.zip(&ring).position(|(written, ring)| written != *ring);
        let byte = differs.or((!whole).then_some(rest.len() + 8));
        if let Some(byte) = byte {
            self.violation(Violation::BlueFlame { qpn, index, byte: byte as u16 });
        }
    }

    fn ring_cq(&mut self, uar: u32, value: u64) {
        let cqn = value as u32 & 0xff_ffff;
        match self.cqs.get(cqn) {
            None => self.violation(Violation::UnknownCq(cqn)),
            Some(cq) if cq.config.uar != uar => {
                self.violation(Violation::WrongUar { number: cqn, uar });
            }
            Some(_) => self.arm_cq(cqn, (value >> 32) as u32, true),
        }
        if !self.config.exact_doorbells {
            let cqs = self.uars.get(uar).map(|page| page.cqs.clone()).unwrap_or_default();
            let polled = self.uars.get(uar).is_some_and(|page| page.memory.is_some());
            for other in cqs.into_iter().filter(|other| polled && *other != cqn) {
                let Some(cq) = self.cqs.get(other) else { continue };
                match cq.arm_word(&*self.dma) {
                    Ok(word) => self.arm_cq(other, word, false),
                    Err(fault) => self.memory_violation(fault),
                }
            }
        }
    }

    /// Handles the arm word of a completion queue after a doorbell (`rang`) or a look at the
    /// record.
    fn arm_cq(&mut self, cqn: u32, word: u32, rang: bool) {
        let Some(cq) = self.cqs.get_mut(cqn) else { return };
        self.arms += u64::from(cq.is_news(word, rang));
        if cq.arm(word) {
            let eqn = cq.config.eqn;
            self.raise(Event::Completion { cqn, eqn });
        }
    }

    /// Reads the send counter of a queue pair again; says whether there is one to go by.
    pub(crate) fn rescan_qp(&mut self, qpn: u32) -> bool {
        let Some(qp) = self.qps.get_mut(qpn) else { return false };
        if !qp.heeds_doorbells() || qp.config.sq.is_none() {
            return false;
        }
        match qp.sq_record(&*self.dma) {
            Ok(record) if qp.ahead && record.wrapping_sub(qp.sq_posted).cast_signed() < 0 => true,
            Ok(record) => {
                qp.ahead = false;
                self.post_until(qpn, record)
            }
            Err(fault) => {
                self.memory_violation(fault);
                false
            }
        }
    }

    /// Makes the blocks before `end` of a send queue wait for execution, if the queue has them.
    fn post_until(&mut self, qpn: u32, end: u16) -> bool {
        let Some(qp) = self.qps.get_mut(qpn) else { return false };
        let Some(ring) = qp.config.sq else { return false };
        let executed = qp.sq_executed;
        if u32::from(end.wrapping_sub(executed)) > ring.mask() + 1 {
            let (number, record) = (qpn, end);
            self.violation(Violation::RecordBeyondRing { number, record, executed });
            return false;
        }
        if end != qp.sq_posted && self.config.takes_time() {
            // Executed blocks need no time.
            qp.posted_at(qp.sq_executed);
            qp.posted.push_back((end, self.now_ns));
        }
        qp.sq_posted = end;
        self.wake(qpn);
        true
    }

    /// Gives a queue pair a turn, if it may have work.
    pub(crate) fn wake(&mut self, qpn: u32) {
        let Some(qp) = self.qps.get_mut(qpn) else { return };
        let runs = match qp.state {
            QpState::Rts | QpState::SqDraining => qp.has_requests() && qp.wait == Wait::No,
            QpState::SqError => qp.sq_waiting() > 0,
            QpState::Error => true,
            _ => false,
        };
        if runs && !qp.queued {
            qp.queued = true;
            self.ready.push_back(qpn);
        }
    }
}
