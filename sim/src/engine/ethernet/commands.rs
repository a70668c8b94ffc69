//! Commands that create, change and destroy Ethernet queues and transport interfaces.

use crate::engine::state::ethernet::flow::FlowTarget;
use crate::engine::state::ethernet::{
    FrameCounts, RateLimit, ReceiveQueueConfig, SendQueueConfig, TirConfig, TirTarget, TisConfig,
    Vport,
};
use crate::engine::{Device, Error, QpConfig, QpState, Transport};

/// The most queues that a table has.
pub(crate) const LOG_RQ_TABLE: u32 = 11;

impl Device {
    /// Creates a send queue in state RESET and returns its number.
    pub(crate) fn create_sq(
        &mut self,
        ring: QpConfig,
        config: SendQueueConfig,
    ) -> Result<u32, Error> {
        if config.tis != 0 {
            self.ethernet.tises.get(config.tis).ok_or(Error::NotFound)?;
        }
        self.check_rate(config.rate)?;
        let sqn = self.create_qp(QpConfig { transport: Transport::Ethernet, ..ring })?;
        self.ethernet.sqs.insert(sqn, config);
        Ok(sqn)
    }

    /// Destroys a send queue.
    pub fn destroy_sq(&mut self, sqn: u32) -> Result<(), Error> {
        self.ethernet.sqs.get(&sqn).ok_or(Error::NotFound)?;
        self.destroy_qp(sqn)?;
        self.ethernet.sqs.remove(&sqn);
        self.ethernet.paced.remove(&sqn);
        Ok(())
    }

    /// Sets or removes an entry of the table of rate limits. Send queues with that entry continue
    /// with the new limit.
    pub fn set_rate_limit(&mut self, index: u16, limit: Option<RateLimit>) -> Result<(), Error> {
        if !(1..RateLimit::TABLE).contains(&index) {
            return Err(Error::Invalid("index of a rate limit"));
        }
        match limit {
            Some(limit) if !RateLimit::RATES.contains(&limit.rate) => {
                return Err(Error::Invalid("rate"));
            }
            Some(limit) => self.ethernet.rates.insert(index, limit),
            None => self.ethernet.rates.remove(&index),
        };
        let limited = self.ethernet.sqs.iter().filter(|(_, sq)| sq.rate == index);
        for sqn in limited.map(|(sqn, _)| *sqn).collect::<Vec<_>>() {
            self.pace_anew(sqn);
        }
        Ok(())
    }

    fn check_rate(&self, index: u16) -> Result<(), Error> {
        let there = index == 0 || self.ethernet.rates.contains_key(&index);
        if there { Ok(()) } else { Err(Error::NotFound) }
    }

    /// Sets the rate limit of a send queue to an entry of the table; zero for none.
    pub fn limit_sq(&mut self, sqn: u32, index: u16) -> Result<(), Error> {
        self.check_rate(index)?;
        self.ethernet.sqs.get_mut(&sqn).ok_or(Error::NotFound)?.rate = index;
        self.pace_anew(sqn);
        Ok(())
    }

    /// The rate limit of a send queue.
    #[must_use]
    pub fn rate_limit(&self, sqn: u32) -> Option<RateLimit> {
        self.ethernet.rate_limit(sqn)
    }

    /// Creates a receive queue in state RESET and returns its number.
    pub(crate) fn create_rq(
        &mut self,
        ring: QpConfig,
        config: ReceiveQueueConfig,
    ) -> Result<u32, Error> {
        let rqn = self.create_qp(QpConfig { transport: Transport::EthernetReceive, ..ring })?;
        self.ethernet.rqs.insert(rqn, config);
        Ok(rqn)
    }

    /// The settings of a receive queue, to change them.
    pub fn rq_mut(&mut self, rqn: u32) -> Option<&mut ReceiveQueueConfig> {
        self.ethernet.rqs.get_mut(&rqn)
    }

    /// Destroys a receive queue that no interface or table leads to.
    pub fn destroy_rq(&mut self, rqn: u32) -> Result<(), Error> {
        self.ethernet.rqs.get(&rqn).ok_or(Error::NotFound)?;
        if self.ethernet.leads_to(rqn) {
            return Err(Error::Busy);
        }
        self.destroy_qp(rqn)?;
        self.ethernet.taken.remove(&rqn);
        self.ethernet.heads.remove(&rqn);
        self.ethernet.rqs.remove(&rqn);
        Ok(())
    }

    /// Moves a send or receive queue to RESET, READY or ERROR.
    pub fn set_queue_state(&mut self, number: u32, state: QpState) -> Result<(), Error> {
        let queue = self.qps.get(number).filter(|qp| qp.is_ethernet()).ok_or(Error::NotFound)?;
        let ready = match queue.config.transport {
            Transport::Ethernet => QpState::Rts,
            _ => QpState::Rtr,
        };
        if matches!(state, QpState::Reset | QpState::Error) {
            self.ethernet.taken.remove(&number);
        }
        // An error keeps the head: waiting WQEs are flushed in the order of the list.
        if state == QpState::Reset {
            self.ethernet.heads.remove(&number);
        }
        match state {
            QpState::Rts | QpState::Rtr => self.set_qp_state(number, ready),
            state => self.set_qp_state(number, state),
        }
    }

    /// Creates a transport interface for sending.
    pub fn create_tis(&mut self, config: TisConfig) -> Result<u32, Error> {
        self.ethernet.tises.insert(config).ok_or(Error::Exhausted)
    }

    /// A transport interface for sending, to change it.
    pub fn tis_mut(&mut self, tisn: u32) -> Option<&mut TisConfig> {
        self.ethernet.tises.get_mut(tisn)
    }

    /// Destroys a transport interface that no queue uses.
    pub fn destroy_tis(&mut self, tisn: u32) -> Result<(), Error> {
        self.ethernet.tises.get(tisn).ok_or(Error::NotFound)?;
        if self.ethernet.sqs.values().any(|sq| sq.tis == tisn) {
            return Err(Error::Busy);
        }
        self.ethernet.tises.remove(tisn);
        Ok(())
    }

    fn check_target(&self, target: TirTarget) -> Result<(), Error> {
        let there = match target {
            TirTarget::Queue(rqn) => self.ethernet.rqs.contains_key(&rqn),
            TirTarget::Table(rqtn) => self.ethernet.rqts.get(rqtn).is_some(),
        };
        if there { Ok(()) } else { Err(Error::NotFound) }
    }

    /// Creates a transport interface for receiving.
    pub fn create_tir(&mut self, config: TirConfig) -> Result<u32, Error> {
        self.check_target(config.target)?;
        self.ethernet.tirs.insert(config).ok_or(Error::Exhausted)
    }

    /// A transport interface for receiving, to change it.
    pub fn tir_mut(&mut self, tirn: u32) -> Option<&mut TirConfig> {
        self.ethernet.tirs.get_mut(tirn)
    }

    /// Destroys a transport interface to which no rule leads.
    pub fn destroy_tir(&mut self, tirn: u32) -> Result<(), Error> {
        self.ethernet.tirs.get(tirn).ok_or(Error::NotFound)?;
        if self.ethernet.steering.leads_to(FlowTarget::Tir(tirn)) {
            return Err(Error::Busy);
        }
        self.ethernet.tirs.remove(tirn);
        Ok(())
    }

    fn check_queues(&self, queues: &[u32]) -> Result<(), Error> {
        if queues.is_empty() || !queues.len().is_power_of_two() || queues.len() > 1 << LOG_RQ_TABLE
        {
            return Err(Error::Invalid("size of a table of receive queues"));
        }
        let there = queues.iter().all(|rqn| self.ethernet.rqs.contains_key(rqn));
        if there { Ok(()) } else { Err(Error::NotFound) }
    }

    /// Creates a table of receive queues.
    pub fn create_rqt(&mut self, queues: Vec<u32>) -> Result<u32, Error> {
        self.check_queues(&queues)?;
        self.ethernet.rqts.insert(queues).ok_or(Error::Exhausted)
    }

    /// Replaces the queues of a table.
    pub fn set_rqt(&mut self, rqtn: u32, queues: Vec<u32>) -> Result<(), Error> {
        self.check_queues(&queues)?;
        *self.ethernet.rqts.get_mut(rqtn).ok_or(Error::NotFound)? = queues;
        Ok(())
    }

    /// The queues of a table.
    #[must_use]
    pub fn rqt(&self, rqtn: u32) -> Option<&[u32]> {
        self.ethernet.rqts.get(rqtn).map(Vec::as_slice)
    }

    /// Destroys a table that no transport interface uses.
    pub fn destroy_rqt(&mut self, rqtn: u32) -> Result<(), Error> {
        self.ethernet.rqts.get(rqtn).ok_or(Error::NotFound)?;
        if self.ethernet.tirs.iter().any(|(_, tir)| tir.target == TirTarget::Table(rqtn)) {
            return Err(Error::Busy);
        }
        self.ethernet.rqts.remove(rqtn);
        Ok(())
    }

    /// The settings of the function's virtual port.
    #[must_use]
    pub fn vport(&self) -> &Vport {
        &self.ethernet.vport
    }

    /// The same, to change them.
    pub fn vport_mut(&mut self) -> &mut Vport {
        &mut self.ethernet.vport
    }

    /// Counts of frames by their fate.
    #[must_use]
    pub fn frame_counts(&self) -> FrameCounts {
        self.ethernet.counts
    }

    /// Frames that found no buffer in the queues of a counter set.
    #[must_use]
    pub fn out_of_buffer(&self, counter_set: u8) -> u32 {
        self.ethernet.out_of_buffer.get(&counter_set).copied().unwrap_or(0)
    }

    /// Resets a counter set to zero.
    pub fn clear_out_of_buffer(&mut self, counter_set: u8) {
        self.ethernet.out_of_buffer.remove(&counter_set);
    }

    /// Number of Ethernet objects other than queues.
    #[must_use]
    pub fn ethernet_objects(&self) -> usize {
        let ethernet = &self.ethernet;
        ethernet.tises.len() + ethernet.tirs.len() + ethernet.rqts.len()
    }
}
