//! Shared receive queues in their four forms. Their numbers share one space.

use mlx5_prm::cmd::CommandStatus;
use mlx5_prm::cmd::srq::{
    ArmRqIn, ArmRqTarget, ArmXrcSrqIn, CreateRmpIn, CreateRmpOut, CreateSrqIn, CreateSrqOut,
    CreateXrcSrqIn, CreateXrcSrqOut, CreateXrqIn, CreateXrqOut, ModifyRmpIn, QueryRmpIn,
    QueryRmpOut, QuerySrqIn, QuerySrqOut, QueryXrcSrqIn, QueryXrcSrqOut, QueryXrqIn, QueryXrqOut,
    RmpContext, RmpState, SrqContext, WorkQueue, WorkQueueType, XrcSrqContext, XrqContext,
    XrqOffload, XrqTopology,
};

use crate::engine::{Device, Error, SrqConfig, TagMatchingConfig, XrcConfig};
use crate::firmware::umem::{Part, Queue};
use crate::firmware::{Answer, Failure, Firmware, buffer, syndrome};

/// The smallest stride as a logarithm: a context's 0.
const LOG_SMALLEST_STRIDE: u32 = 4;
/// The user index of a queue whose completions have its number.
const NO_USER_INDEX: u32 = 0xff_ffff;

/// The commands that made a shared receive queue, with its context.
#[derive(Clone, Debug)]
pub(crate) enum Record {
    Srq(SrqContext),
    XrcSrq(XrcSrqContext),
    Rmp(Box<RmpContext>),
    Xrq(Box<XrqContext>),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Srq,
    XrcSrq,
    Rmp,
    Xrq,
}

impl Record {
    fn kind(&self) -> Kind {
        match self {
            Self::Srq(_) => Kind::Srq,
            Self::XrcSrq(_) => Kind::XrcSrq,
            Self::Rmp(_) => Kind::Rmp,
            Self::Xrq(_) => Kind::Xrq,
        }
    }

    /// Its own completion queue.
    pub(crate) fn cqn(&self) -> Option<u32> {
        match self {
            Self::XrcSrq(context) => Some(context.cqn()),
            Self::Xrq(context) => Some(context.cqn()),
            Self::Srq(_) | Self::Rmp(_) => None,
        }
    }
}

/// The common fields of the three kinds of context.
struct Shape {
    pd: u32,
    log_size: u32,
    log_stride: u32,
    log_page_size: u32,
    page_offset: u32,
    record: u64,
    /// Its ring and its record, if in user memory.
    parts: [Option<Part>; 2],
    user_index: u32,
    tag_matching: Option<TagMatchingConfig>,
    xrc: Option<XrcConfig>,
}

/// A work queue's ring and record, if in user memory.
fn parts(queue: &WorkQueue, uid: u32) -> [Option<Part>; 2] {
    let part = |valid: bool, umem, offset| valid.then_some(Part { uid, umem, offset });
    [
        part(queue.wq_umem_valid(), queue.wq_umem_id(), queue.wq_umem_offset()),
        part(queue.dbr_umem_valid(), queue.dbr_umem_id(), queue.dbr_addr()),
    ]
}

impl Firmware {
    fn create(&mut self, device: &mut Device, shape: &Shape, tail: &[u8]) -> Result<u32, Failure> {
        let bytes = 1 << (shape.log_size + shape.log_stride);
        let [ring, record] = shape.parts;
        let config = SrqConfig {
            pd: shape.pd,
            buffer: self.queue_buffer(ring, bytes, || {
                buffer::queue(tail, shape.log_page_size, shape.page_offset, bytes)
            })?,
            log_size: shape.log_size as u8,
            log_stride: shape.log_stride as u8,
            record: self.queue_record(record, shape.record)?,
            user_index: shape.user_index,
            tag_matching: shape.tag_matching,
            xrc: shape.xrc,
        };
        let number = device.create_srq(config)?;
        self.umems.lend(Queue::Shared(number), shape.parts);
        Ok(number)
    }

    fn shared(&self, number: u32, kind: Kind) -> Result<&Record, Failure> {
        let record = self.srqs.get(&number).filter(|record| record.kind() == kind);
        record.ok_or(Error::NotFound.into())
    }

    pub(super) fn create_srq(
        &mut self,
        device: &mut Device,
        input: &CreateSrqIn,
        tail: &[u8],
        out: &mut CreateSrqOut,
    ) -> Answer {
        let context = *input.srqc();
        let shape = Shape {
            pd: context.pd(),
            log_size: context.log_srq_size(),
            log_stride: context.log_rq_stride() + LOG_SMALLEST_STRIDE,
            log_page_size: context.log_page_size(),
            page_offset: context.page_offset(),
            record: context.dbr_addr(),
            parts: [None; 2],
            user_index: NO_USER_INDEX,
            tag_matching: None,
            xrc: None,
        };
        let number = self.create(device, &shape, tail)?;
        self.srqs.insert(number, Record::Srq(context));
        out.set_srqn(number);
        Ok(())
    }

    pub(super) fn create_xrc_srq(
        &mut self,
        device: &mut Device,
        input: &CreateXrcSrqIn,
        tail: &[u8],
        out: &mut CreateXrcSrqOut,
    ) -> Answer {
        let context = *input.xrc_srqc();
        if !self.xrcds.used.contains(&context.xrcd()) || device.cq(context.cqn()).is_none() {
            return Err(Error::NotFound.into());
        }
        // These queues must lie in the pages of the command.
        if input.xrc_srq_umem_valid() || context.dbr_umem_valid() {
            return Err(Failure::param(syndrome::INVALID_VALUE));
        }
        let low = u64::from(context.db_record_addr_l()) << 2;
        let shape = Shape {
            pd: context.pd(),
            log_size: context.log_xrc_srq_size(),
            log_stride: context.log_rq_stride() + LOG_SMALLEST_STRIDE,
            log_page_size: context.log_page_size(),
            page_offset: context.page_offset(),
            record: u64::from(context.db_record_addr_h()) << 32 | low,
            parts: [None; 2],
            user_index: context.user_index(),
            tag_matching: None,
            xrc: Some(XrcConfig { xrcd: context.xrcd(), cqn: context.cqn() }),
        };
        let number = self.create(device, &shape, tail)?;
        self.srqs.insert(number, Record::XrcSrq(context));
        out.set_xrc_srqn(number);
        Ok(())
    }

    pub(super) fn create_rmp(
        &mut self,
        device: &mut Device,
        input: &CreateRmpIn,
        tail: &[u8],
        out: &mut CreateRmpOut,
    ) -> Answer {
        let context = *input.rmpc();
        let queue = context.wq();
        if WorkQueueType(queue.wq_type()) != WorkQueueType::LINKED_LIST
            || RmpState(context.state()) != RmpState::RDY
        {
            return Err(Failure::param(syndrome::INVALID_VALUE));
        }
        let shape = Shape {
            pd: queue.pd(),
            log_size: queue.log_wq_sz(),
            log_stride: queue.log_wq_stride(),
            log_page_size: queue.log_wq_pg_sz(),
            page_offset: queue.page_offset(),
            record: queue.dbr_addr(),
            parts: parts(queue, input.uid()),
            user_index: NO_USER_INDEX,
            tag_matching: None,
            xrc: None,
        };
        let number = self.create(device, &shape, tail)?;
        self.srqs.insert(number, Record::Rmp(Box::new(context)));
        out.set_rmpn(number);
        Ok(())
    }

    pub(super) fn create_xrq(
        &mut self,
        device: &mut Device,
        input: &CreateXrqIn,
        tail: &[u8],
        out: &mut CreateXrqOut,
    ) -> Answer {
        let context = *input.xrqc();
        let queue = context.wq();
        let log_list_size = context.tag_matching_topology_context().log_matching_list_sz();
        // Such queues are supported for tag matching only.
        if WorkQueueType(queue.wq_type()) != WorkQueueType::LINKED_LIST
            || XrqTopology(context.topology()) != XrqTopology::TAG_MATCHING
            || log_list_size == 0
        {
            return Err(Failure::param(syndrome::INVALID_VALUE));
        }
        let shape = Shape {
            pd: queue.pd(),
            log_size: queue.log_wq_sz(),
            log_stride: queue.log_wq_stride(),
            log_page_size: queue.log_wq_pg_sz(),
            page_offset: queue.page_offset(),
            record: queue.dbr_addr(),
            parts: parts(queue, input.uid()),
            user_index: context.user_index(),
            xrc: None,
            tag_matching: Some(TagMatchingConfig {
                cqn: context.cqn(),
                log_list_size: log_list_size as u8,
                rendezvous: XrqOffload(context.offload()) == XrqOffload::RNDV,
            }),
        };
        let number = self.create(device, &shape, tail)?;
        self.srqs.insert(number, Record::Xrq(Box::new(context)));
        out.set_xrqn(number);
        Ok(())
    }

    pub(super) fn query_xrq(
        &mut self,
        device: &mut Device,
        input: &QueryXrqIn,
        out: &mut QueryXrqOut,
    ) -> Answer {
        let number = input.xrqn();
        if let Record::Xrq(context) = self.shared(number, Kind::Xrq)? {
            *out.xrqc_mut() = **context;
        }
        out.xrqc_mut().wq_mut().set_lwm(device.srq_limit(number).unwrap_or(0).into());
        let now = device.tag_list(number).ok_or(Error::NotFound)?;
        out.xrqc_mut()
            .tag_matching_topology_context_mut()
            .set_append_next_index(now.append_next_index.into())
            .set_sw_phase_cnt(now.sw_phase_cnt.into())
            .set_hw_phase_cnt(now.hw_phase_cnt.into());
        Ok(())
    }

    pub(super) fn destroy_shared(
        &mut self,
        device: &mut Device,
        number: u32,
        kind: Kind,
    ) -> Answer {
        self.shared(number, kind)?;
        device.destroy_srq(number)?;
        self.srqs.remove(&number);
        self.umems.take_back(Queue::Shared(number));
        Ok(())
    }

    pub(super) fn query_srq(
        &mut self,
        device: &mut Device,
        input: &QuerySrqIn,
        out: &mut QuerySrqOut,
    ) -> Answer {
        if let Record::Srq(context) = self.shared(input.srqn(), Kind::Srq)? {
            *out.srqc_mut() = *context;
        }
        out.srqc_mut().set_lwm(device.srq_limit(input.srqn()).unwrap_or(0).into());
        Ok(())
    }

    pub(super) fn query_xrc_srq(
        &mut self,
        device: &mut Device,
        input: &QueryXrcSrqIn,
        out: &mut QueryXrcSrqOut,
    ) -> Answer {
        if let Record::XrcSrq(context) = self.shared(input.xrc_srqn(), Kind::XrcSrq)? {
            *out.xrc_srqc_mut() = *context;
        }
        out.xrc_srqc_mut().set_lwm(device.srq_limit(input.xrc_srqn()).unwrap_or(0).into());
        Ok(())
    }

    pub(super) fn query_rmp(
        &mut self,
        device: &mut Device,
        input: &QueryRmpIn,
        out: &mut QueryRmpOut,
    ) -> Answer {
        if let Record::Rmp(context) = self.shared(input.rmpn(), Kind::Rmp)? {
            *out.rmpc_mut() = **context;
        }
        out.rmpc_mut().wq_mut().set_lwm(device.srq_limit(input.rmpn()).unwrap_or(0).into());
        Ok(())
    }

    pub(super) fn arm_rq(&mut self, device: &mut Device, input: &ArmRqIn) -> Answer {
        let kind = match ArmRqTarget(input.op_mod()) {
            ArmRqTarget::XRQ => Kind::Xrq,
            _ => Kind::Srq,
        };
        self.shared(input.srq_number(), kind)?;
        Ok(device.arm_srq(input.srq_number(), input.lwm() as u16)?)
    }

    pub(super) fn arm_xrc_srq(&mut self, device: &mut Device, input: &ArmXrcSrqIn) -> Answer {
        self.shared(input.xrc_srqn(), Kind::XrcSrq)?;
        Ok(device.arm_srq(input.xrc_srqn(), input.lwm() as u16)?)
    }

    pub(super) fn modify_rmp(&mut self, device: &mut Device, input: &ModifyRmpIn) -> Answer {
        self.shared(input.rmpn(), Kind::Rmp)?;
        if !input.bitmask().lwm() {
            return Err(Failure::new(CommandStatus::BAD_OP_ERR, syndrome::UNKNOWN_MODIFIER));
        }
        Ok(device.arm_srq(input.rmpn(), input.rmpc().wq().lwm() as u16)?)
    }
}
