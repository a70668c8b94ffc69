//! Raw packet queue pairs: bringing them to RTS, and limiting their rate.

use super::{ControlHalf, PacketObjects, QpAttributes, QueuePair};
use crate::context::Context;
use crate::error::{Error, ErrorKind};
use mlx5_prm::cmd::CommandInput;
use mlx5_prm::cmd::ethernet::{
    ModifySqIn, ModifySqOut, QueryRqIn, QueryRqOut, QuerySqIn, QuerySqOut,
    QueueState as DeviceState,
};
use mlx5_uapi::cmd::qp as command;
use mlx5_uapi::mlx5::{BurstInfo, ModifyQp};
use mlx5_uapi::verbs::QpType;
use mlx5_wqe::QueueState;
use mlx5_wqe::transport::RawPacket;
use std::sync::Arc;

/// A limit on the rate at which a send queue sends (`struct ibv_qp_rate_limit_attr`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct RateLimit {
    /// In kb/s; zero for no limit.
    pub rate: u32,
    /// Maximum number of bytes that are sent at line rate; zero for the device's default.
    pub max_burst: u32,
    /// The usual size of a packet, which makes bursts more exact; zero if unknown.
    pub typical_packet: u16,
}

impl QueuePair<RawPacket> {
    /// Brings the queue pair from RESET to RTS, on a port.
    ///
    /// It receives the packets that its flow rules match: without a rule it receives none.
    pub fn activate(&mut self, port_num: u8) -> Result<(), Error> {
        let to = |state| QpAttributes::new().qp_state(state);
        if self.state() == QueueState::Reset {
            self.modify(&to(QueueState::Init).port_num(port_num))?;
        }
        self.modify(&to(QueueState::ReadyToReceive))?;
        self.modify(&to(QueueState::ReadyToSend))
    }

    /// Limits the rate of the send queue (`ibv_modify_qp_rate_limit`), in state RTS.
    ///
    /// A limit that the device does not support ([`EthernetCaps`](crate::EthernetCaps)) is refused.
    pub fn set_rate_limit(&mut self, limit: RateLimit) -> Result<(), Error> {
        self.control.set_rate_limit(limit)
    }
}

impl ControlHalf {
    /// Makes the kernel query the states of the send and receive queue of a raw packet queue pair.
    ///
    /// With each change the kernel passes the states that it remembers to the device, which refuses
    /// wrong ones; a queue that failed has not notified the kernel. The kernel queries the device
    /// when the queue pair is queried. The change that follows reports any other error.
    #[cold]
    pub(super) fn refresh_packet_states(&self) {
        // Some combinations of states match no state of the queue pair: the kernel then refuses the
        // query, and logs a warning. So the send queue is moved to the receive queue's state if
        // that one failed alone.
        if let Ok((receive, send)) = self.packet_states()
            && receive != DeviceState::RDY
            && send != receive
        {
            let _ = self.move_send_queue(send, receive);
        }
        let _ = self.query();
    }

    /// Returns the states of receive queue and send queue in the device. Needs DEVX, and both
    /// queues.
    fn packet_states(&self) -> Result<(DeviceState, DeviceState), Error> {
        const VERB: &str = "query_qp (DEVX)";
        let (inner, handle) = (&self.inner, self.inner.live_handle(VERB)?);
        let PacketObjects { rqn, sqn, .. } = inner.packet;
        if rqn == 0 || sqn == 0 {
            return Err(Error::new(VERB, ErrorKind::NotSupported, "it lacks a queue"));
        }
        let (mut query, mut answer) = (QueryRqIn::request(), QueryRqOut::default());
        query.set_rqn(rqn);
        inner.context.devx_query(VERB, handle, query.as_bytes(), answer.as_bytes_mut())?;
        let receive = DeviceState(answer.rq_context().state());
        let (mut query, mut answer) = (QuerySqIn::request(), QuerySqOut::default());
        query.set_sqn(sqn);
        inner.context.devx_query(VERB, handle, query.as_bytes(), answer.as_bytes_mut())?;
        Ok((receive, DeviceState(answer.sq_context().state())))
    }

    /// Moves the send queue to another state, in the device.
    fn move_send_queue(&self, from: DeviceState, to: DeviceState) -> Result<(), Error> {
        const VERB: &str = "modify_qp (DEVX)";
        let (inner, handle) = (&self.inner, self.inner.live_handle(VERB)?);
        let (mut change, mut answer) = (ModifySqIn::request(), ModifySqOut::default());
        change.set_sqn(inner.packet.sqn).set_sq_state(from.0).ctx_mut().set_state(to.0);
        // SAFETY: the command names the queue pair's own send queue and no memory.
        unsafe { inner.context.devx_modify(VERB, handle, change.as_bytes(), answer.as_bytes_mut()) }
    }

    /// See [`QueuePair::set_rate_limit`](QueuePair::<RawPacket>::set_rate_limit). Other transports
    /// have no rate limit.
    pub fn set_rate_limit(&mut self, limit: RateLimit) -> Result<(), Error> {
        const VERB: &str = "modify_qp_rate_limit";
        let inner = Arc::clone(&self.inner);
        inner.context.check(VERB)?;
        if inner.qp_type != QpType::RawPacket {
            let what = "only queue pairs of raw packets have a rate limit";
            return Err(Error::invalid(VERB, what.into()));
        }
        if self.state() != QueueState::ReadyToSend {
            let what = format!(
                "a rate limit is set in state RTS, not in {}: call `activate` before",
                self.state().name()
            );
            return Err(Error::invalid(VERB, what));
        }
        let caps = Context { inner: Arc::clone(&inner.context) }.query_device().ethernet;
        let (least, most) = caps.rate_limits;
        if limit.rate != 0 && !(least..=most).contains(&limit.rate) {
            let what = match most {
                0 => "the device has no packet pacing: a `rate` of 0 is without limit".into(),
                _ => format!("a rate of {} kb/s; the device has {least} to {most}", limit.rate),
            };
            let kind = if most == 0 { ErrorKind::NotSupported } else { ErrorKind::InvalidArgument };
            return Err(Error::new(VERB, kind, what));
        }
        if (limit.max_burst != 0 || limit.typical_packet != 0) && !caps.bursts {
            let what =
                "the device does not limit bursts: leave `max_burst` and `typical_packet` zero";
            return Err(Error::new(VERB, ErrorKind::NotSupported, what));
        }
        let attributes =
            QpAttributes::new().qp_state(QueueState::ReadyToSend).rate_limit(limit.rate);
        let request = attributes.encode(inner.live_handle(VERB)?);
        let driver = ModifyQp {
            burst_info: BurstInfo {
                max_burst_sz: limit.max_burst,
                typical_pkt_sz: limit.typical_packet,
                reserved: 0,
            },
            ..ModifyQp::default()
        };
        inner.context.run(VERB, |file| command::modify_ex(file, &request, &driver)).map(drop)
    }
}
