//! Raw packet queue pairs: bringing them to RTS, limiting their rate.

use super::{ControlHalf, QpAttributes, QueuePair};
use crate::context::Context;
use crate::error::{Error, ErrorKind};
use mlx5_uapi::cmd::qp as command;
use mlx5_uapi::mlx5::{BurstInfo, ModifyQp};
use mlx5_uapi::verbs::QpType;
use mlx5_wqe::QueueState;
use mlx5_wqe::transport::RawPacket;
use std::sync::Arc;

/// A limit on the rate at which a send queue sends (`struct ibv_qp_rate_limit_attr`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct RateLimit {
    /// In kb/s; zero for none.
    pub rate: u32,
    /// The most bytes that are sent at line rate; zero for the device's default.
    pub max_burst: u32,
    /// The usual size of a packet, which makes bursts more exact; zero if not known.
    pub typical_packet: u16,
}

impl QueuePair<RawPacket> {
    /// Brings the queue pair from RESET to RTS, on a port.
    ///
    /// It receives the packets of its flow rules: a queue pair without rule receives none.
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
    /// A limit beyond what the device has ([`EthernetCaps`](crate::EthernetCaps)) is refused.
    pub fn set_rate_limit(&mut self, limit: RateLimit) -> Result<(), Error> {
        self.control.set_rate_limit(limit)
    }
}

impl ControlHalf {
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
                0 => "the device has no packet pacing".into(),
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
