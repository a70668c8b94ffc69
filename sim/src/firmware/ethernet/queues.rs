//! Send and receive queues.

use mlx5_prm::cmd::ethernet::{
    CreateRqIn, CreateRqOut, CreateSqIn, CreateSqOut, DestroyRqIn, DestroySqIn, ModifyRqIn,
    ModifySqIn, QueryRqIn, QueryRqOut, QuerySqIn, QuerySqOut, QueueState, SetPpRateLimitIn,
    modify_rq, modify_sq,
};
use mlx5_prm::cmd::qp::TimestampFormat;
use mlx5_prm::cmd::srq::{WorkQueue, WorkQueueType};

use crate::engine::{
    CompletionConfig, Device, Error, QpConfig, QpState, RateLimit, ReceiveQueueConfig, Registers,
    RingConfig, SendQueueConfig, Strides, Transport,
};
use crate::firmware::umem::{Part, Queue};
use crate::firmware::{Answer, Failure, Firmware, buffer, syndrome};
use crate::model::Capabilities;

/// `ReceiveQueueContext::mem_rq_type`: the queue has WQEs of its own.
const INLINE_MEMORY: u32 = 0;
/// `uid` of the kernel's own objects.
const KERNEL: u32 = 0;

/// A queue's state in the form of contexts.
fn state_of(device: &Device, number: u32) -> Result<QueueState, Failure> {
    let now = device.query_qp(number).ok_or(Error::NotFound)?;
    Ok(match now.state {
        QpState::Reset | QpState::Init => QueueState::RST,
        QpState::SqError | QpState::Error => QueueState::ERR,
        _ => QueueState::RDY,
    })
}

/// Moves a queue from one state to another. The command names both, and is refused if the queue is
/// not in the first: mlx5e names ERR to bring back a queue that failed (`mlx5e_health_sq_to_ready`,
/// `mlx5e_rq_to_ready`), and so does DPDK (`mlx5_txq_devx_modify`).
fn change_state(device: &mut Device, number: u32, from: u32, to: u32) -> Answer {
    let is = state_of(device, number)?;
    if is.0 != from {
        return Err(Failure::state(syndrome::TRANSITION));
    }
    let state = match (is, QueueState(to)) {
        (QueueState::RST | QueueState::RDY, QueueState::RDY) => QpState::Rts,
        (_, QueueState::RST) => QpState::Reset,
        (_, QueueState::ERR) => QpState::Error,
        _ => return Err(Failure::state(syndrome::TRANSITION)),
    };
    if is.0 != to {
        device.set_queue_state(number, state)?;
    }
    Ok(())
}

/// The least bytes of a receive with strides, as a logarithm, for devices that do not report one;
/// DPDK assumes this value (`MLX5_MPRQ_LOG_MIN_STRIDE_WQE_SIZE`).
const LOG_STRIDING_BYTES: u32 = 14;

/// The strides that packets share in the WQEs of a receive queue; none in a cyclic one.
fn strides(wq: &WorkQueue, has: &Capabilities) -> Result<Option<Strides>, Failure> {
    let linked = match WorkQueueType(wq.wq_type()) {
        WorkQueueType::CYCLIC => return Ok(None),
        WorkQueueType::CYCLIC_STRIDING_RQ => false,
        WorkQueueType::LINKED_LIST_STRIDING_RQ => true,
        _ => return Err(Failure::param(syndrome::RECEIVE_QUEUE)),
    };
    let log_bytes = Strides::LOG_BYTES.start() + wq.log_wqe_stride_size();
    // The numbers from 10 on are negative.
    let log_count = match wq.log_wqe_num_of_strides() {
        number @ 10.. => Strides::LOG_COUNT_BASE + number - 16,
        number => Strides::LOG_COUNT_BASE + number,
    };
    let fewest =
        if has.few_strides { *Strides::LOG_COUNT.start() } else { Strides::LOG_COUNT_BASE };
    let least = match has.log_striding_bytes {
        0 => LOG_STRIDING_BYTES,
        least => least.into(),
    };
    if !Strides::LOG_BYTES.contains(&log_bytes)
        || !(fewest..=*Strides::LOG_COUNT.end()).contains(&log_count)
        || log_bytes + log_count < least
    {
        return Err(Failure::param(syndrome::RECEIVE_QUEUE));
    }
    let (log_bytes, log_count) = (log_bytes as u8, log_count as u8);
    Ok(Some(Strides { log_bytes, log_count, shifted: wq.two_byte_shift_en(), linked }))
}

fn completion(device: &Device, format: u32) -> Result<CompletionConfig, Failure> {
    let real_time = TimestampFormat(format) == TimestampFormat::REAL_TIME;
    if real_time && !device.config().capabilities.real_time {
        return Err(Failure::param(syndrome::INVALID_VALUE));
    }
    Ok(CompletionConfig { real_time, ..CompletionConfig::default() })
}

impl Firmware {
    /// The configuration of a queue's ring, and the user memories that it lies in.
    fn ring(
        &self,
        wq: &WorkQueue,
        uid: u32,
        tail: &[u8],
        context: (u32, u32, CompletionConfig),
    ) -> Result<(QpConfig, [Option<Part>; 2]), Failure> {
        let ring = RingConfig {
            offset: 0,
            log_size: wq.log_wq_sz() as u8,
            log_stride: wq.log_wq_stride() as u8,
        };
        let part = |valid: bool, umem, offset| valid.then_some(Part { uid, umem, offset });
        let pages = part(wq.wq_umem_valid(), wq.wq_umem_id(), wq.wq_umem_offset());
        let record = part(wq.dbr_umem_valid(), wq.dbr_umem_id(), wq.dbr_addr());
        let (cqn, user_index, completion) = context;
        let config = QpConfig {
            transport: Transport::Ethernet,
            pd: wq.pd(),
            send_cq: cqn,
            recv_cq: cqn,
            srq: None,
            xrcd: None,
            user_index,
            buffer: self.queue_buffer(pages, ring.bytes(), || {
                buffer::queue(tail, wq.log_wq_pg_sz(), wq.page_offset(), ring.bytes())
            })?,
            sq: Some(ring),
            rq: None,
            record: self.queue_record(record, wq.dbr_addr())?,
            uar: wq.uar_page(),
            block_multicast_loopback: false,
            completion,
            signed: wq.wq_signature(),
            rendezvous: false,
        };
        Ok((config, [pages, record]))
    }

    pub(crate) fn create_sq(
        &mut self,
        device: &mut Device,
        input: &CreateSqIn,
        tail: &[u8],
        out: &mut CreateSqOut,
    ) -> Answer {
        let mut context = *input.ctx();
        if WorkQueueType(context.wq().wq_type()) != WorkQueueType::CYCLIC {
            return Err(Failure::param(syndrome::RECEIVE_QUEUE));
        }
        let registers = match (context.reg_umr(), input.uid()) {
            (false, _) => Registers::Nothing,
            (true, _) if !device.config().striding => {
                return Err(Failure::param(syndrome::INVALID_VALUE));
            }
            (true, KERNEL) => Registers::Pages,
            (true, _) => Registers::Keys,
        };
        let completion = completion(device, context.ts_format())?;
        let common = (context.cqn(), context.user_index(), completion);
        let (ring, parts) = self.ring(context.wq(), input.uid(), tail, common)?;
        let config = SendQueueConfig {
            tis: if context.tis_lst_sz() == 0 { 0 } else { context.tis_num_0() },
            rate: context.packet_pacing_rate_limit_index() as u16,
            registers,
        };
        let sqn = device.create_sq(ring, config)?;
        self.umems.lend(Queue::Qp(sqn), parts);
        context.set_state(QueueState::RST.0);
        self.ethernet.sqs.insert(sqn, context);
        out.set_sqn(sqn);
        Ok(())
    }

    pub(crate) fn modify_sq(&mut self, device: &mut Device, input: &ModifySqIn) -> Answer {
        let context = self.ethernet.sqs.get_mut(&input.sqn()).ok_or(Error::NotFound)?;
        let (wanted, sqn) = (input.ctx(), input.sqn());
        change_state(device, sqn, input.sq_state(), wanted.state())?;
        // A queue that starts again has no rate limit.
        if QueueState(wanted.state()) == QueueState::RST {
            device.limit_sq(sqn, 0)?;
            context.set_packet_pacing_rate_limit_index(0);
        } else if input.modify_bitmask() & modify_sq::PACKET_PACING_RATE_LIMIT_INDEX != 0 {
            let index = wanted.packet_pacing_rate_limit_index();
            device.limit_sq(sqn, index as u16)?;
            context.set_packet_pacing_rate_limit_index(index);
        }
        Ok(())
    }

    pub(crate) fn set_pp_rate_limit(device: &mut Device, input: &SetPpRateLimitIn) -> Answer {
        let context = input.ctx();
        let limit = RateLimit {
            rate: context.rate_limit(),
            burst: context.burst_upper_bound(),
            typical_packet: context.typical_packet_size() as u16,
        };
        let limit = (limit.rate != 0).then_some(limit);
        Ok(device.set_rate_limit(input.rate_limit_index() as u16, limit)?)
    }

    pub(crate) fn query_sq(
        &mut self,
        device: &Device,
        input: &QuerySqIn,
        out: &mut QuerySqOut,
    ) -> Answer {
        let mut context = *self.ethernet.sqs.get(&input.sqn()).ok_or(Error::NotFound)?;
        context.set_state(state_of(device, input.sqn())?.0);
        if let Some(now) = device.query_qp(input.sqn()) {
            context
                .wq_mut()
                .set_hw_counter(now.hw_sq_wqebb_counter.into())
                .set_sw_counter(now.sw_sq_wqebb_counter.into());
        }
        *out.sq_context_mut() = context;
        Ok(())
    }

    pub(crate) fn destroy_sq(&mut self, device: &mut Device, input: &DestroySqIn) -> Answer {
        device.destroy_sq(input.sqn())?;
        self.ethernet.sqs.remove(&input.sqn());
        self.umems.take_back(Queue::Qp(input.sqn()));
        Ok(())
    }

    pub(crate) fn create_rq(
        &mut self,
        device: &mut Device,
        input: &CreateRqIn,
        tail: &[u8],
        out: &mut CreateRqOut,
    ) -> Answer {
        let mut context = *input.ctx();
        if context.mem_rq_type() != INLINE_MEMORY {
            return Err(Failure::param(syndrome::RECEIVE_QUEUE));
        }
        let strides = strides(context.wq(), &device.config().capabilities)?;
        let completion = completion(device, context.ts_format())?;
        let common = (context.cqn(), context.user_index(), completion);
        let (ring, parts) = self.ring(context.wq(), input.uid(), tail, common)?;
        let ring = QpConfig { sq: None, rq: ring.sq, ..ring };
        let config = ReceiveQueueConfig {
            strides,
            strip_vlan: !context.vsd(),
            scatter_fcs: context.scatter_fcs(),
            counter_set: context.counter_set_id() as u8,
        };
        let rqn = device.create_rq(ring, config)?;
        self.umems.lend(Queue::Qp(rqn), parts);
        context.set_state(QueueState::RST.0);
        self.ethernet.rqs.insert(rqn, context);
        out.set_rqn(rqn);
        Ok(())
    }

    pub(crate) fn modify_rq(&mut self, device: &mut Device, input: &ModifyRqIn) -> Answer {
        let context = self.ethernet.rqs.get_mut(&input.rqn()).ok_or(Error::NotFound)?;
        let (from, to) = (input.rq_state(), input.ctx().state());
        // An empty queue has nothing to flush.
        if QueueState(from) == QueueState::RST && QueueState(to) == QueueState::ERR {
            return Err(Failure::state(syndrome::TRANSITION));
        }
        change_state(device, input.rqn(), from, to)?;
        let config = device.rq_mut(input.rqn()).ok_or(Error::NotFound)?;
        let changes = |field: u64| input.modify_bitmask() & field != 0;
        let wanted = input.ctx();
        if changes(modify_rq::VSD) {
            context.set_vsd(wanted.vsd());
            config.strip_vlan = !wanted.vsd();
        }
        if changes(modify_rq::SCATTER_FCS) {
            context.set_scatter_fcs(wanted.scatter_fcs());
            config.scatter_fcs = wanted.scatter_fcs();
        }
        if changes(modify_rq::RQ_COUNTER_SET_ID) {
            context.set_counter_set_id(wanted.counter_set_id());
            config.counter_set = wanted.counter_set_id() as u8;
        }
        Ok(())
    }

    pub(crate) fn query_rq(
        &mut self,
        device: &Device,
        input: &QueryRqIn,
        out: &mut QueryRqOut,
    ) -> Answer {
        let mut context = *self.ethernet.rqs.get(&input.rqn()).ok_or(Error::NotFound)?;
        context.set_state(state_of(device, input.rqn())?.0);
        if let Some(now) = device.query_qp(input.rqn()) {
            context
                .wq_mut()
                .set_hw_counter(now.hw_rq_counter.into())
                .set_sw_counter(now.sw_rq_counter.into());
        }
        *out.rq_context_mut() = context;
        Ok(())
    }

    pub(crate) fn destroy_rq(&mut self, device: &mut Device, input: &DestroyRqIn) -> Answer {
        device.destroy_rq(input.rqn())?;
        self.ethernet.rqs.remove(&input.rqn());
        self.umems.take_back(Queue::Qp(input.rqn()));
        Ok(())
    }
}
