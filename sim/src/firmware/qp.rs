//! Queue pairs: creation, end, and query.

use mlx5_prm::cmd::qp::{
    CreateQpIn, CreateQpOut, DestroyQpIn, OffloadType, QpContext, QueryQpIn, QueryQpOut, RqType,
    ScatterToCqeRequester, ScatterToCqeResponder, ServiceType, TimestampFormat,
};
use mlx5_prm::cqe::{INLINE_32, INLINE_64};

use crate::engine::{CompletionConfig, Device, Error, Management, QpConfig, RingConfig, Transport};
use crate::firmware::umem::{Part, Queue};
use crate::firmware::{Answer, Failure, Firmware, buffer, syndrome};

/// The smallest receive stride as a logarithm: a context's 0.
const LOG_SMALLEST_STRIDE: u32 = 4;
/// Logarithm of a send block's bytes.
const LOG_BLOCK: u8 = 6;

/// A queue pair's context, as commands have set it so far.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) context: QpContext,
    pub(crate) transport: Transport,
    /// The context at creation, to which RESET returns.
    pub(crate) created: QpContext,
}

fn transport(context: &QpContext) -> Result<Transport, Failure> {
    match ServiceType(context.st()) {
        ServiceType::RC => Ok(Transport::Rc),
        ServiceType::UC => Ok(Transport::Uc),
        ServiceType::UD | ServiceType::QP0 | ServiceType::QP1 => Ok(Transport::Ud),
        ServiceType::REG_UMR => Ok(Transport::Umr),
        ServiceType::XRC if context.no_sq() => Ok(Transport::XrcReceive),
        ServiceType::XRC => Ok(Transport::XrcSend),
        _ => Err(Failure::param(syndrome::TRANSPORT)),
    }
}

/// The form of the completions.
fn completion(device: &Device, context: &QpContext) -> Result<CompletionConfig, Failure> {
    let inline_answers = match ScatterToCqeRequester(context.cs_req()) {
        ScatterToCqeRequester::DISABLE => 0,
        ScatterToCqeRequester::UP_TO_32B => INLINE_32,
        ScatterToCqeRequester::UP_TO_64B => INLINE_64,
        _ => return Err(Failure::param(syndrome::INVALID_VALUE)),
    };
    let inline_receives = match ScatterToCqeResponder(context.cs_res()) {
        ScatterToCqeResponder::DISABLE => 0,
        ScatterToCqeResponder::UP_TO_32B => INLINE_32,
        ScatterToCqeResponder::UP_TO_64B => INLINE_64,
        _ => return Err(Failure::param(syndrome::INVALID_VALUE)),
    };
    let real_time = TimestampFormat(context.ts_format()) == TimestampFormat::REAL_TIME;
    if real_time && !device.config().capabilities.real_time {
        return Err(Failure::param(syndrome::INVALID_VALUE));
    }
    Ok(CompletionConfig { inline_answers, inline_receives, real_time })
}

impl Firmware {
    pub(super) fn create_qp(
        &mut self,
        device: &mut Device,
        input: &CreateQpIn,
        tail: &[u8],
        out: &mut CreateQpOut,
    ) -> Answer {
        let context = *input.qpc();
        let transport = transport(&context)?;
        let number = context.srqn_rmpn_xrqn();
        let xrcd = (transport == Transport::XrcReceive).then_some(context.xrcd());
        if xrcd.is_some_and(|xrcd| !self.xrcds.used.contains(&xrcd)) {
            return Err(Error::NotFound.into());
        }
        let (rq, srq) = match RqType(context.rq_type()) {
            // These never take from a shared receive queue, even if their context names one.
            _ if matches!(transport, Transport::XrcSend | Transport::XrcReceive) => (None, None),
            RqType::NON_ZERO_RQ => {
                let log_stride = (context.log_rq_stride() + LOG_SMALLEST_STRIDE) as u8;
                let log_size = context.log_rq_size() as u8;
                (Some(RingConfig { offset: 0, log_size, log_stride }), None)
            }
            RqType::SRQ => {
                if !self.srqs.contains_key(&number) {
                    return Err(Error::NotFound.into());
                }
                (None, Some(number))
            }
            RqType::ZERO_LENGTH_RQ => (None, None),
            _ => return Err(Failure::param(syndrome::RECEIVE_QUEUE)),
        };
        // The send queue follows the receive queue.
        let receive_bytes = rq.map_or(0, |ring| ring.bytes());
        let log_blocks = context.log_sq_size() as u8;
        let sq = (!context.no_sq()).then_some(RingConfig {
            offset: receive_bytes,
            log_size: log_blocks,
            log_stride: LOG_BLOCK,
        });
        let bytes = receive_bytes + sq.map_or(0, |ring| ring.bytes());
        let page_offset = context.page_offset();
        // Without receives nothing reports to the receive CQ, and drivers may name none.
        let recv_cq = match (rq, srq, context.cqn_rcv()) {
            (None, None, 0) => context.cqn_snd(),
            (_, _, cqn) => cqn,
        };
        let part =
            |valid: bool, umem, offset| valid.then_some(Part { uid: input.uid(), umem, offset });
        let rings = part(input.wq_umem_valid(), input.wq_umem_id(), input.wq_umem_offset())
            .filter(|_| bytes != 0);
        let record = part(context.dbr_umem_valid(), context.dbr_umem_id(), context.dbr_addr())
            .filter(|_| bytes != 0);
        let qpn = device.create_qp(QpConfig {
            transport,
            pd: context.pd(),
            send_cq: context.cqn_snd(),
            recv_cq,
            srq,
            xrcd,
            user_index: context.user_index(),
            buffer: self.queue_buffer(rings, bytes, || {
                buffer::queue(tail, context.log_page_size(), page_offset, bytes)
            })?,
            sq,
            rq,
            record: match bytes {
                0 => context.dbr_addr(),
                _ => self.queue_record(record, context.dbr_addr())?,
            },
            uar: context.uar_page(),
            block_multicast_loopback: context.block_lb_mc(),
            completion: completion(device, &context)?,
            signed: context.wq_signature(),
            rendezvous: OffloadType(context.offload_type()) == OffloadType::RNDV,
        })?;
        match ServiceType(context.st()) {
            ServiceType::QP0 => device.set_management(qpn, Management::Subnet)?,
            ServiceType::QP1 => device.set_management(qpn, Management::General)?,
            _ => {}
        }
        self.qps.insert(qpn, Record { context, transport, created: context });
        self.umems.lend(Queue::Qp(qpn), [rings, record]);
        out.set_qpn(qpn);
        Ok(())
    }

    pub(super) fn destroy_qp(&mut self, device: &mut Device, input: &DestroyQpIn) -> Answer {
        device.destroy_qp(input.qpn())?;
        self.qps.remove(&input.qpn());
        self.umems.take_back(Queue::Qp(input.qpn()));
        Ok(())
    }

    pub(super) fn query_qp(
        &mut self,
        device: &mut Device,
        input: &QueryQpIn,
        out: &mut QueryQpOut,
    ) -> Answer {
        let record = self.qps.get(&input.qpn()).ok_or(Error::NotFound)?;
        let now = device.query_qp(input.qpn()).ok_or(Error::NotFound)?;
        *out.qpc_mut() = record.context;
        out.qpc_mut()
            .set_state(now.state as u32)
            // This device always places data in ascending order; an older one has no such
            // capability.
            .set_data_in_order(device.config().capabilities.data_in_order)
            .set_next_send_psn(now.next_send_psn)
            .set_next_rcv_psn(now.next_rcv_psn)
            .set_hw_sq_wqebb_counter(now.hw_sq_wqebb_counter.into())
            .set_sw_sq_wqebb_counter(now.sw_sq_wqebb_counter.into())
            .set_hw_rq_counter(now.hw_rq_counter.into())
            .set_sw_rq_counter(now.sw_rq_counter.into());
        Ok(())
    }
}
