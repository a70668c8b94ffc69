//! Commands for completion queues, and for the event queues to which they report.

use mlx5_prm::cmd::CommandStatus;
use mlx5_prm::cmd::cq::{
    CqContext, CqStatus, CqeSize, CreateCqIn, CreateCqOut, DestroyCqIn, ModifyCqFields, ModifyCqIn,
    ModifyCqMode, QueryCqIn, QueryCqOut, ResizeCqFields,
};
use mlx5_prm::cmd::eq::{CreateEqIn, CreateEqOut, DestroyEqIn, QueryEqIn, QueryEqOut};
use mlx5_prm::cqe::MiniFormat;
use mlx5_prm::doorbell::completion_queue_record::{CONSUMER, CONSUMER_MASK};
use mlx5_prm::fields::addresses;

use crate::dma::Buffer;
use crate::engine::{CqConfig, Device, Error, Moderation};
use crate::firmware::umem::{Part, Queue};
use crate::firmware::{Answer, EventQueue, Failure, Firmware, buffer, syndrome};

/// Number of event queues that a device supports.
const EQS: u32 = 128;

fn entry_bytes(context: &CqContext) -> Result<u8, Failure> {
    match CqeSize(context.cqe_sz()) {
        CqeSize::BYTES_64 => Ok(64),
        CqeSize::BYTES_128 | CqeSize::BYTES_128_PADDED => Ok(128),
        _ => Err(Failure::param(syndrome::ENTRY_SIZE)),
    }
}

fn ring(context: &CqContext, tail: &[u8]) -> Result<Buffer, Failure> {
    let bytes = u64::from(entry_bytes(context)?) << context.log_cq_size();
    buffer::queue(tail, context.log_page_size(), context.page_offset(), bytes)
}

/// The format of mini CQEs for receives; `None` if the queue does not compress CQEs.
fn compression(context: &CqContext) -> Result<Option<MiniFormat>, Failure> {
    let format = MiniFormat::from_bits(context.mini_cqe_res_format() as u8);
    match context.cqe_comp_en() {
        false => Ok(None),
        true => format.map(Some).ok_or(Failure::param(syndrome::INVALID_VALUE)),
    }
}

fn moderation(context: &CqContext) -> Moderation {
    Moderation { count: context.cq_max_count() as u16, period_us: context.cq_period() as u16 }
}

impl Firmware {
    pub(super) fn create_cq(
        &mut self,
        device: &mut Device,
        input: &CreateCqIn,
        tail: &[u8],
        out: &mut CreateCqOut,
    ) -> Answer {
        let context = *input.cqc();
        let eqn = context.c_eqn_or_apu_element();
        if !self.eqs.contains_key(&eqn) {
            return Err(Failure::resource(syndrome::NO_SUCH_EQ));
        }
        let part =
            |valid: bool, umem, offset| valid.then_some(Part { uid: input.uid(), umem, offset });
        let entries = part(input.cq_umem_valid(), input.cq_umem_id(), input.cq_umem_offset());
        let record = part(context.dbr_umem_valid(), context.dbr_umem_id(), context.dbr_addr());
        let bytes = u64::from(entry_bytes(&context)?) << context.log_cq_size();
        let cqn = device.create_cq(CqConfig {
            buffer: self.queue_buffer(entries, bytes, || ring(&context, tail))?,
            log_size: context.log_cq_size() as u8,
            entry_bytes: entry_bytes(&context)?,
            record: self.queue_record(record, context.dbr_addr())?,
            uar: context.uar_page(),
            eqn,
            ignore_overrun: context.oi(),
            compression: compression(&context)?,
            moderation: moderation(&context),
        })?;
        self.cqs.insert(cqn, context);
        self.umems.lend(Queue::Cq(cqn), [entries, record]);
        out.set_cqn(cqn);
        Ok(())
    }

    pub(super) fn destroy_cq(&mut self, device: &mut Device, input: &DestroyCqIn) -> Answer {
        let cqn = input.cqn();
        if self.srqs.values().any(|srq| srq.cqn() == Some(cqn)) {
            return Err(Error::Busy.into());
        }
        device.destroy_cq(cqn)?;
        self.cqs.remove(&cqn);
        self.umems.take_back(Queue::Cq(cqn));
        Ok(())
    }

    pub(super) fn query_cq(
        &mut self,
        device: &mut Device,
        input: &QueryCqIn,
        out: &mut QueryCqOut,
    ) -> Answer {
        let context = self.cqs.get(&input.cqn()).ok_or(Error::NotFound)?;
        let (produced, failed) = device.cq_progress(input.cqn()).ok_or(Error::NotFound)?;
        let record = device.cq(input.cqn()).ok_or(Error::NotFound)?.record;
        let consumed = device.dma().load_u32(record + CONSUMER as u64);
        let status = if failed { CqStatus::OVERFLOW } else { CqStatus::OK };
        *out.cqc_mut() = *context;
        out.cqc_mut()
            .set_status(status.0)
            .set_producer_counter(produced)
            .set_consumer_counter(consumed.unwrap_or(0));
        Ok(())
    }

    pub(super) fn modify_cq(
        &mut self,
        device: &mut Device,
        input: &ModifyCqIn,
        tail: &[u8],
    ) -> Answer {
        let wanted = input.cqc();
        let context = self.cqs.get_mut(&input.cqn()).ok_or(Error::NotFound)?;
        match ModifyCqMode(input.op_mod()) {
            ModifyCqMode::MODIFY => {
                let fields = ModifyCqFields::from_bits(input.modify_field_select())
                    .ok_or(Failure::param(syndrome::INVALID_VALUE))?;
                if fields.contains(ModifyCqFields::C_EQN)
                    && !self.eqs.contains_key(&wanted.c_eqn_or_apu_element())
                {
                    return Err(Failure::resource(syndrome::NO_SUCH_EQ));
                }
                if fields.contains(ModifyCqFields::CQ_PERIOD) {
                    context.set_cq_period(wanted.cq_period());
                }
                if fields.contains(ModifyCqFields::CQ_MAX_COUNT) {
                    context.set_cq_max_count(wanted.cq_max_count());
                }
                if !fields.is_empty() {
                    let cq = device.cqs.get_mut(input.cqn()).ok_or(Error::NotFound)?;
                    let cq = &mut cq.config;
                    cq.moderation = moderation(context);
                    if fields.contains(ModifyCqFields::OI) {
                        context.set_oi(wanted.oi());
                        cq.ignore_overrun = wanted.oi();
                    }
                    if fields.contains(ModifyCqFields::C_EQN) {
                        context.set_c_eqn_or_apu_element(wanted.c_eqn_or_apu_element());
                        cq.eqn = wanted.c_eqn_or_apu_element();
                    }
                }
                Ok(())
            }
            ModifyCqMode::RESIZE => {
                let fields = ResizeCqFields::from_bits(input.resize_field_select())
                    .ok_or(Failure::param(syndrome::INVALID_VALUE))?;
                if !fields.contains(ResizeCqFields::LOG_CQ_SIZE) {
                    return Err(Failure::param(syndrome::INVALID_VALUE));
                }
                let mut next = *context;
                next.set_log_cq_size(wanted.log_cq_size())
                    .set_cqe_sz(wanted.cqe_sz())
                    .set_page_offset(wanted.page_offset())
                    .set_log_page_size(wanted.log_page_size());
                if next.cqe_sz() != context.cqe_sz() {
                    return Err(Failure::param(syndrome::ENTRY_SIZE));
                }
                if input.cq_umem_valid() {
                    return Err(Failure::param(syndrome::INVALID_VALUE));
                }
                let ring = ring(&next, tail)?;
                let record = device.cq(input.cqn()).ok_or(Error::NotFound)?.record;
                let (produced, _) = device.cq_progress(input.cqn()).ok_or(Error::NotFound)?;
                let consumed =
                    device.dma().load_u32(record + CONSUMER as u64).map_err(Error::from)?;
                let waiting = produced.wrapping_sub(consumed) & CONSUMER_MASK;
                // The CQE that announces the resize needs a place in the new ring, too.
                if waiting >= 1 << next.log_cq_size() {
                    return Err(Failure::new(
                        CommandStatus::BAD_SIZE_OUTS_CQES_ERR,
                        syndrome::RING_TOO_SMALL,
                    ));
                }
                device.resize_cq(input.cqn(), ring, next.log_cq_size() as u8)?;
                *context = next;
                Ok(())
            }
            _ => Err(Failure::new(CommandStatus::BAD_OP_ERR, syndrome::UNKNOWN_MODIFIER)),
        }
    }

    pub(super) fn create_eq(
        &mut self,
        input: &CreateEqIn,
        tail: &[u8],
        out: &mut CreateEqOut,
    ) -> Answer {
        let context = *input.eqc();
        let bytes = (mlx5_prm::event::Eqe::BYTES as u64) << context.log_eq_size();
        let ring = buffer::queue(tail, context.log_page_size(), context.page_offset(), bytes)?;
        let number = (1..=EQS).find(|eqn| !self.eqs.contains_key(eqn)).ok_or(Error::Exhausted)?;
        let pages = addresses(tail).iter().map(|page| page.get()).collect();
        let events = input.event_bitmask().map(|mask| mask.get());
        if let Some(rings) = &self.rings {
            rings.add(number, ring, context.log_eq_size(), context.intr(), events);
        }
        self.eqs.insert(number, EventQueue { context, pages, events });
        out.set_eq_number(number);
        Ok(())
    }

    pub(super) fn destroy_eq(&mut self, device: &mut Device, input: &DestroyEqIn) -> Answer {
        let eqn = input.eq_number();
        if !self.eqs.contains_key(&eqn) {
            return Err(Error::NotFound.into());
        }
        if self.cqs.keys().any(|cqn| device.cq(*cqn).is_some_and(|cq| cq.eqn == eqn)) {
            return Err(Error::Busy.into());
        }
        self.eqs.remove(&eqn);
        if let Some(rings) = &self.rings {
            rings.remove(eqn);
        }
        Ok(())
    }

    pub(super) fn query_eq(&mut self, input: &QueryEqIn, out: &mut QueryEqOut) -> Answer {
        let eq = self.eqs.get(&input.eq_number()).ok_or(Error::NotFound)?;
        *out.eqc_mut() = eq.context;
        out.set_event_bitmask(eq.events[0]);
        Ok(())
    }
}
