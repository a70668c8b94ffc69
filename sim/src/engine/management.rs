//! Management queue pairs: QP0 and QP1 of a port.
//!
//! A driver gets other numbers for them when it creates them; on the wire they have these.

use crate::engine::state::management::Management;
use crate::engine::state::qp::Qp;
use crate::engine::{Device, Error};

impl Device {
    /// Makes a queue pair a management queue pair, which sends and receives management datagrams.
    pub(crate) fn set_management(&mut self, qpn: u32, which: Management) -> Result<(), Error> {
        self.qps.get(qpn).ok_or(Error::NotFound)?;
        self.management.insert(qpn, which);
        Ok(())
    }

    /// The number of a queue pair on the wire.
    pub(crate) fn wire_number(&self, qpn: u32) -> u32 {
        self.management.get(&qpn).map_or(qpn, |which| *which as u32)
    }

    /// The queue pair of a port that receives datagrams to a number.
    pub(crate) fn datagram_target(&self, port: u8, number: u32) -> Option<u32> {
        let at_port = |qpn: &u32| self.qps.get(*qpn).is_some_and(|qp| qp.attributes.port == port);
        if number > Management::General as u32 {
            return Some(number).filter(at_port);
        }
        let receives = |qpn: &u32| self.qps.get(*qpn).is_some_and(Qp::receives);
        let named = self.management.iter().filter(|(_, which)| **which as u32 == number);
        named.map(|(qpn, _)| *qpn).find(|qpn| at_port(qpn) && receives(qpn))
    }

    /// The partition that the completion of a datagram reports: the index of the key. At a
    /// management queue pair, whose driver finds the index itself, it is the key.
    pub(crate) fn told_partition(&self, qpn: u32) -> u32 {
        let Some(qp) = self.qps.get(qpn) else { return 0 };
        let index = qp.attributes.pkey_index;
        if !self.management.contains_key(&qpn) {
            return index.into();
        }
        let port = self.port(qp.attributes.port);
        port.and_then(|port| port.pkeys.get(usize::from(index))).map_or(0, |key| (*key).into())
    }
}
