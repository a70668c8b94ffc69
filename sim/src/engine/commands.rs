//! Commands that create, change and destroy a device's objects.

use mlx5_prm::cqe::{DESCRIPTOR, INLINE_32};
use mlx5_prm::doorbell::{RECORD, completion_queue_record};

use crate::dma::Buffer;
use crate::engine::state::cq::{Cq, NEVER_ARMED};
use crate::engine::state::drain::DrainAt;
use crate::engine::state::port::Gid;
use crate::engine::state::qp::{Qp, QpAttributes, QpConfig, QpSnapshot, QpState, Transport, Wait};
use crate::engine::state::srq::Srq;
use crate::engine::state::uar::Uar;
use crate::engine::{CqConfig, Device, Error, MkeyConfig, SrqConfig, TagListSnapshot};

impl Device {
    // Protection domains.

    /// Creates a protection domain.
    pub fn alloc_pd(&mut self) -> Result<u32, Error> {
        self.pds.insert(()).ok_or(Error::Exhausted)
    }

    /// Destroys a protection domain that no object uses.
    pub fn dealloc_pd(&mut self, pd: u32) -> Result<(), Error> {
        self.pds.get(pd).ok_or(Error::NotFound)?;
        let used = self.mkeys.iter().any(|(_, key)| key.pd == pd)
            || self.psvs.values().any(|psv| psv.pd == pd)
            || self
                .qps
                .iter()
                .any(|(_, qp)| qp.config.transport != Transport::XrcReceive && qp.config.pd == pd)
            || self.srqs.iter().any(|(_, srq)| srq.config.pd == pd);
        if used {
            return Err(Error::Busy);
        }
        self.pds.remove(pd);
        Ok(())
    }

    // Memory keys.

    /// Creates a memory key and returns it: index in the upper 24 bits, tag in the low byte.
    pub(crate) fn create_mkey(&mut self, config: MkeyConfig) -> Result<u32, Error> {
        let tag = u32::from(config.tag);
        Ok(self.mkeys.insert(config).ok_or(Error::Exhausted)? << 8 | tag)
    }

    /// A memory key by its index (the key shifted right by 8).
    #[must_use]
    pub fn mkey(&self, index: u32) -> Option<&MkeyConfig> {
        self.mkeys.get(index)
    }

    /// Destroys a memory key, by its index.
    pub fn destroy_mkey(&mut self, index: u32) -> Result<(), Error> {
        self.mkeys.remove(index).map(drop).ok_or(Error::NotFound)
    }

    // UAR pages.

    /// Makes a UAR page. With `memory`, the bus address of a page of plain memory, the engine
    /// looks there for doorbells; without, every write comes through
    /// [`Device::doorbell_write`].
    pub(crate) fn alloc_uar(&mut self, memory: Option<u64>) -> Result<u32, Error> {
        self.uars.insert(Uar::new(memory)).ok_or(Error::Exhausted)
    }

    /// Destroys a UAR page that no queue uses.
    pub fn dealloc_uar(&mut self, uar: u32) -> Result<(), Error> {
        let page = self.uars.get(uar).ok_or(Error::NotFound)?;
        if !page.qps.is_empty() || !page.cqs.is_empty() {
            return Err(Error::Busy);
        }
        self.uars.remove(uar);
        Ok(())
    }

    // Completion queues.

    /// Creates a completion queue and returns its number.
    pub(crate) fn create_cq(&mut self, config: CqConfig) -> Result<u32, Error> {
        if config.log_size > self.config.limits.log_cq_entries {
            return Err(Error::Invalid("more entries than the device allows"));
        }
        if !matches!(config.entry_bytes, 64 | 128) {
            return Err(Error::Invalid("entries of neither 64 nor 128 bytes"));
        }
        if !config.record.is_multiple_of(RECORD as u64) {
            return Err(Error::Invalid("doorbell record not aligned"));
        }
        let uar = config.uar;
        let polled = self.uars.get(uar).ok_or(Error::NotFound)?.memory.is_some();
        let record = config.record;
        let cqn = self.cqs.insert(Cq::new(config)).ok_or(Error::Exhausted)?;
        if polled {
            // On a polled page one arm may overwrite another before the engine looks, and zero is a
            // valid first arm word: only a word that no driver writes distinguishes an empty
            // record.
            let arm = record + completion_queue_record::ARM as u64;
            if let Err(fault) = self.dma.write(arm, &NEVER_ARMED.to_be_bytes()) {
                self.cqs.remove(cqn);
                return Err(fault.into());
            }
        }
        if let Some(page) = self.uars.get_mut(uar) {
            page.cqs.push(cqn);
        }
        Ok(cqn)
    }

    /// The configuration of a completion queue.
    #[must_use]
    pub fn cq(&self, cqn: u32) -> Option<&CqConfig> {
        self.cqs.get(cqn).map(|cq| &cq.config)
    }

    /// Number of entries of a completion queue since creation, and whether it failed.
    #[must_use]
    pub fn cq_progress(&self, cqn: u32) -> Option<(u32, bool)> {
        self.cqs.get(cqn).map(|cq| (cq.produced.wrapping_add(cq.run.len()), cq.failed))
    }

    /// The descriptor of an entry of a completion queue, counted since its creation.
    #[must_use]
    pub fn cq_entry(&self, cqn: u32, number: u32) -> Option<[u8; DESCRIPTOR]> {
        let cq = self.cqs.get(cqn)?;
        let mut bytes = [0; DESCRIPTOR];
        cq.config.buffer.read(&*self.dma, cq.place(number).0, &mut bytes).ok()?;
        Some(bytes)
    }

    /// Makes an unused completion queue continue after `entries` entries, as if its driver had
    /// consumed them. Returns whether there is such a queue. The driver must start there too.
    pub fn set_cq_progress(&mut self, cqn: u32, entries: u32) -> bool {
        match self.cqs.get_mut(cqn) {
            Some(cq) if cq.produced == 0 && cq.run.len() == 0 => {
                (cq.produced, cq.solicited) = (entries, entries);
                true
            }
            _ => false,
        }
    }

    /// Number of entries that a completion queue still has room for.
    #[must_use]
    pub fn cq_room(&self, cqn: u32) -> Option<u32> {
        self.cqs.get(cqn)?.room(&*self.dma).ok()
    }

    /// Replaces a completion queue's ring, as RESIZE_CQ does: the old ring gets one last entry
    /// that says so, and later entries go to the new one.
    pub(crate) fn resize_cq(
        &mut self,
        cqn: u32,
        buffer: Buffer,
        log_size: u8,
    ) -> Result<(), Error> {
        if log_size > self.config.limits.log_cq_entries {
            return Err(Error::Invalid("more entries than the device allows"));
        }
        self.cqs.get(cqn).ok_or(Error::NotFound)?;
        self.write_resize_entry(cqn)?;
        if let Some(cq) = self.cqs.get_mut(cqn) {
            cq.config.buffer = buffer;
            cq.config.log_size = log_size;
        }
        Ok(())
    }

    /// Destroys a completion queue that no queue reports to.
    pub fn destroy_cq(&mut self, cqn: u32) -> Result<(), Error> {
        let cq = self.cqs.get(cqn).ok_or(Error::NotFound)?;
        if cq.users > 0 {
            return Err(Error::Busy);
        }
        let uar = cq.config.uar;
        self.catch_up(uar);
        self.write_run(cqn);
        self.moderated.remove(&cqn);
        self.cqs.remove(cqn);
        if let Some(page) = self.uars.get_mut(uar) {
            page.cqs.retain(|other| *other != cqn);
        }
        Ok(())
    }

    // Shared receive queues.

    /// Creates a shared receive queue and returns its number.
    pub(crate) fn create_srq(&mut self, config: SrqConfig) -> Result<u32, Error> {
        self.pds.get(config.pd).ok_or(Error::NotFound)?;
        if let Some(tags) = config.tag_matching {
            self.cqs.get(tags.cqn).ok_or(Error::NotFound)?;
            if tags.log_list_size > self.config.log_tags() {
                return Err(Error::Invalid("more tags than the device allows"));
            }
        }
        if config.log_size > self.config.limits.log_srq_entries {
            return Err(Error::Invalid("more entries than the device allows"));
        }
        if config.log_stride < 5 || config.log_stride > 12 {
            return Err(Error::Invalid("stride of a shared receive queue"));
        }
        let completes_at =
            [config.tag_matching.map(|tags| tags.cqn), config.xrc.map(|xrc| xrc.cqn)];
        for cqn in completes_at.into_iter().flatten() {
            self.cqs.get(cqn).ok_or(Error::NotFound)?;
        }
        let srqn = self.srqs.insert(Srq::new(config)).ok_or(Error::Exhausted)?;
        for cqn in completes_at.into_iter().flatten() {
            if let Some(cq) = self.cqs.get_mut(cqn) {
                cq.users += 1;
            }
        }
        Ok(srqn)
    }

    /// The tag list of a shared receive queue that has one.
    #[must_use]
    pub fn tag_list(&self, srqn: u32) -> Option<TagListSnapshot> {
        Some(self.srqs.get(srqn)?.tags.as_ref()?.snapshot())
    }

    /// The configuration of a shared receive queue.
    #[must_use]
    pub fn srq(&self, srqn: u32) -> Option<&SrqConfig> {
        self.srqs.get(srqn).map(|srq| &srq.config)
    }

    /// The armed limit of a shared receive queue; zero if it is not armed.
    #[must_use]
    pub fn srq_limit(&self, srqn: u32) -> Option<u16> {
        self.srqs.get(srqn).map(|srq| srq.limit)
    }

    /// Arms the limit event of a shared receive queue. It is raised when fewer WQEs than this
    /// wait, at once if so already.
    pub fn arm_srq(&mut self, srqn: u32, limit: u16) -> Result<(), Error> {
        self.srqs.get_mut(srqn).ok_or(Error::NotFound)?.limit = limit;
        self.check_srq_limit(srqn);
        Ok(())
    }

    /// Destroys a shared receive queue that no queue pair uses.
    pub fn destroy_srq(&mut self, srqn: u32) -> Result<(), Error> {
        if self.srqs.get(srqn).ok_or(Error::NotFound)?.users > 0 {
            return Err(Error::Busy);
        }
        let Some(srq) = self.srqs.remove(srqn) else { return Ok(()) };
        let (tags, xrc) = (srq.config.tag_matching, srq.config.xrc);
        let completed_at = [tags.map(|tags| tags.cqn), xrc.map(|xrc| xrc.cqn)];
        for cqn in completed_at.into_iter().flatten() {
            if let Some(cq) = self.cqs.get_mut(cqn) {
                cq.users -= 1;
            }
        }
        Ok(())
    }

    // Queue pairs.

    /// Creates a queue pair in state RESET and returns its number.
    pub(crate) fn create_qp(&mut self, config: QpConfig) -> Result<u32, Error> {
        // The receiving side of an extended connection has an XRC domain and no queues of its own.
        // The queue pair with which a driver changes memory keys, and Ethernet queues, are in no
        // protection domain.
        let in_none = matches!(
            config.transport,
            Transport::Umr
                | Transport::XrcReceive
                | Transport::Ethernet
                | Transport::EthernetReceive
        );
        if !in_none {
            self.pds.get(config.pd).ok_or(Error::NotFound)?;
        }
        if config.transport != Transport::XrcReceive {
            self.cqs.get(config.send_cq).ok_or(Error::NotFound)?;
            self.cqs.get(config.recv_cq).ok_or(Error::NotFound)?;
            // A queue that only receives rings no doorbell.
            if config.transport != Transport::EthernetReceive {
                self.uars.get(config.uar).ok_or(Error::NotFound)?;
            }
        } else if config.xrcd.is_none() || config.sq.is_some() || config.rq.is_some() {
            return Err(Error::Invalid("queues of the receiver of an extended connection"));
        }
        // Only entries of 128 bytes have room for as much data.
        let inline = [
            (config.send_cq, config.completion.inline_answers),
            (config.recv_cq, config.completion.inline_receives),
        ];
        let narrow = |cqn| self.cqs.get(cqn).is_some_and(|cq| cq.config.entry_bytes < 128);
        if inline.into_iter().any(|(cqn, bytes)| bytes > INLINE_32 && narrow(cqn)) {
            return Err(Error::Invalid("64 bytes of data in completions of 64 bytes"));
        }
        if let Some(srqn) = config.srq {
            self.srqs.get(srqn).ok_or(Error::NotFound)?;
        }
        let limits = self.config.limits;
        if config.sq.is_some_and(|sq| sq.log_size > limits.log_sq_blocks || sq.log_stride != 6) {
            return Err(Error::Invalid("send queue size"));
        }
        if config.rq.is_some_and(|rq| rq.log_size > limits.log_rq_entries || rq.log_stride < 4) {
            return Err(Error::Invalid("receive queue size"));
        }
        if !config.record.is_multiple_of(RECORD as u64) {
            return Err(Error::Invalid("doorbell record not aligned"));
        }
        let (send_cq, recv_cq, srq, uar) = (config.send_cq, config.recv_cq, config.srq, config.uar);
        let qpn = self.qps.insert(Qp::new(config)).ok_or(Error::Exhausted)?;
        for cqn in [send_cq, recv_cq] {
            if let Some(cq) = self.cqs.get_mut(cqn) {
                cq.users += 1;
            }
        }
        if let Some(srq) = srq.and_then(|srqn| self.srqs.get_mut(srqn)) {
            srq.users += 1;
        }
        if let Some(page) = self.uars.get_mut(uar) {
            page.qps.push(qpn);
        }
        Ok(qpn)
    }

    /// The configuration of a queue pair.
    #[must_use]
    pub fn qp(&self, qpn: u32) -> Option<&QpConfig> {
        self.qps.get(qpn).map(|qp| &qp.config)
    }

    /// A queue pair's attributes.
    #[must_use]
    pub fn qp_attributes(&self, qpn: u32) -> Option<&QpAttributes> {
        self.qps.get(qpn).map(|qp| &qp.attributes)
    }

    /// A queue pair's attributes, to change them. Packet numbers take effect with the transition
    /// to RTR (receive) and RTS (send).
    pub fn qp_attributes_mut(&mut self, qpn: u32) -> Option<&mut QpAttributes> {
        self.qps.get_mut(qpn).map(|qp| &mut qp.attributes)
    }

    /// A queue pair's state and counters.
    #[must_use]
    pub fn query_qp(&self, qpn: u32) -> Option<QpSnapshot> {
        let qp = self.qps.get(qpn)?;
        Some(QpSnapshot {
            state: qp.state,
            hw_sq_wqebb_counter: qp.sq_executed,
            sw_sq_wqebb_counter: qp.sq_posted,
            hw_rq_counter: qp.rq_consumed,
            sw_rq_counter: qp.rq_record(&*self.dma).unwrap_or(qp.rq_consumed),
            next_send_psn: qp.send_psn,
            next_rcv_psn: qp.receive_psn,
        })
    }

    /// Destroys a queue pair in any state; it has no completions afterwards.
    pub fn destroy_qp(&mut self, qpn: u32) -> Result<(), Error> {
        if self.groups.values().any(|members| members.contains(&qpn)) {
            return Err(Error::Busy);
        }
        let uar = self.qps.get(qpn).ok_or(Error::NotFound)?.config.uar;
        self.catch_up(uar);
        self.cancel_tagged(qpn);
        let qp = self.qps.remove(qpn).ok_or(Error::NotFound)?;
        for cqn in [qp.config.send_cq, qp.config.recv_cq] {
            self.write_run(cqn);
            if let Some(cq) = self.cqs.get_mut(cqn) {
                cq.users -= 1;
            }
        }
        if let Some(srq) = qp.config.srq.and_then(|srqn| self.srqs.get_mut(srqn)) {
            srq.users -= 1;
        }
        if let Some(page) = self.uars.get_mut(qp.config.uar) {
            page.qps.retain(|other| *other != qpn);
        }
        self.watched.remove(&qpn);
        self.management.remove(&qpn);
        Ok(())
    }

    /// Moves a queue pair to a state. The caller has checked that the transition is one of the
    /// verbs' and has set the attributes; RESET and ERROR are reached from everywhere.
    pub fn set_qp_state(&mut self, qpn: u32, state: QpState) -> Result<(), Error> {
        if state == QpState::Reset {
            let uar = self.qps.get(qpn).ok_or(Error::NotFound)?.config.uar;
            self.catch_up(uar);
            self.cancel_tagged(qpn);
            let config = &self.qps.get(qpn).ok_or(Error::NotFound)?.config;
            for cqn in [config.send_cq, config.recv_cq] {
                self.write_run(cqn);
            }
        }
        let qp = self.qps.get_mut(qpn).ok_or(Error::NotFound)?;
        let notify = qp.attributes.notify_drained;
        match state {
            QpState::Reset => {
                qp.reset();
                self.watched.remove(&qpn);
            }
            QpState::Rtr => {
                qp.state = state;
                qp.receive_psn = qp.attributes.rq_psn;
            }
            QpState::Rts => {
                // A drained or failed send queue continues at its current WQE.
                if qp.state == QpState::Rtr {
                    qp.send_psn = qp.attributes.sq_psn;
                    qp.established = true;
                }
                qp.state = state;
                qp.drain = None;
                // The request that waited may have been replaced.
                qp.wait = Wait::No;
                qp.arrival = None;
                if !self.config.exact_doorbells {
                    self.rescan_qp(qpn);
                }
                self.wake(qpn);
            }
            QpState::Error => self.end_qp(qpn),
            QpState::SqDrained | QpState::SqDraining => self.stop_sq(qpn, DrainAt::Now, notify)?,
            QpState::Init | QpState::SqError => qp.state = state,
        }
        Ok(())
    }

    // Multicast groups.

    /// Attaches a datagram queue pair to a multicast group.
    pub fn attach_multicast(&mut self, qpn: u32, gid: Gid) -> Result<(), Error> {
        self.qps.get(qpn).ok_or(Error::NotFound)?;
        let limits = self.config.limits;
        if !self.groups.contains_key(&gid) && self.groups.len() >= limits.multicast_groups as usize
        {
            return Err(Error::Exhausted);
        }
        let members = self.groups.entry(gid).or_default();
        if !members.contains(&qpn) {
            if members.len() >= limits.qps_per_group as usize {
                return Err(Error::Exhausted);
            }
            members.push(qpn);
        }
        Ok(())
    }

    /// Detaches a queue pair from a multicast group.
    pub fn detach_multicast(&mut self, qpn: u32, gid: &Gid) -> Result<(), Error> {
        let members = self.groups.get_mut(gid).ok_or(Error::NotFound)?;
        let at = members.iter().position(|member| *member == qpn).ok_or(Error::NotFound)?;
        members.remove(at);
        if members.is_empty() {
            self.groups.remove(gid);
        }
        Ok(())
    }
}
