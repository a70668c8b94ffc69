//! Fetches the data of a rendezvous that matched, and reports that to the sender.

use mlx5_prm::cqe::{CqeOpcode, TagEvent};
use mlx5_prm::wqe::{RemoteAddressSegment, TagMatchingHeader, TagMessage};
use zerocopy::IntoBytes;

use crate::engine::send::Outcome;
use crate::engine::state::receive::Entry;
use crate::engine::state::tag_message::Rendezvous;
use crate::engine::wqe::Request;
use crate::engine::{DeviceId, Engine};

impl Rendezvous {
    /// The read with which the device fetches the data.
    fn read(&self) -> Request {
        let remote = RemoteAddressSegment {
            address: self.wanted.va,
            rkey: self.wanted.rkey,
            ..RemoteAddressSegment::default()
        };
        let length = u64::from(self.wanted.len.get());
        let entry = self.buffer.map(|buffer| Entry { length, ..buffer });
        Request::read(self.pd, remote, entry, length)
    }

    /// The message to the sender: the sender's own request, marked as finished.
    fn finish(&self) -> Request {
        let header = TagMatchingHeader { opcode: TagMessage::Finished as u8, ..self.header };
        Request::message([header.as_bytes(), self.wanted.as_bytes()].concat())
    }
}

impl Engine {
    /// Continues with the first rendezvous of a queue pair in RTS. Returns whether anything
    /// changed.
    pub(crate) fn rendezvous_one(&mut self, device: DeviceId, qpn: u32) -> bool {
        let Some(qp) = self.devices[device].qps.get(qpn) else { return false };
        let Some(rendezvous) = qp.rendezvous.front().copied() else { return false };
        let before = (qp.packets_done, qp.wait, qp.rnr_retries);
        let outcome = match rendezvous.fetched {
            false if rendezvous.wanted.len.get() == 0 => Outcome::Done(0),
            false => self.read(device, qpn, &rendezvous.read()),
            true => {
                let transport = qp.config.transport;
                self.send_message(device, qpn, transport, &rendezvous.finish())
            }
        };
        let this = &mut self.devices[device];
        let Some(qp) = this.qps.get_mut(qpn) else { return true };
        match outcome {
            Outcome::Done(bytes) => {
                qp.packets_done = 0;
                if rendezvous.fetched {
                    qp.rendezvous.pop_front();
                    return true;
                }
                if let Some(first) = qp.rendezvous.front_mut() {
                    first.fetched = true;
                }
                let mut cqe = this.entry(qpn, CqeOpcode::ResponderSend, 0, 0);
                cqe.byte_count.set(bytes as u32);
                let Rendezvous { srqn, place, .. } = rendezvous;
                this.complete_tagged(srqn, cqe, TagEvent::Expected, place);
                true
            }
            Outcome::Failed(..) => {
                // None of the driver's requests failed, so an event reports the error; rendezvous
                // that are not fetched are cancelled.
                this.fail_qp(qpn, Some(mlx5_prm::event::EventType::WQ_CATAS_ERROR));
                true
            }
            Outcome::Later => (qp.packets_done, qp.wait, qp.rnr_retries) != before,
        }
    }
}
