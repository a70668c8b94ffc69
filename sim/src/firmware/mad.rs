//! Management datagrams to the device's own agents: MAD_IFC.

use mlx5_prm::cmd::port::{MadIfcIn, MadIfcOut};

use crate::engine::Device;
use crate::firmware::{Answer, Failure, Firmware, syndrome};

/// Offsets of the method and of the status in a datagram. InfiniBand specification, 13.4.2.
const METHOD: usize = 3;
const STATUS: usize = 4;
/// The bit that distinguishes the method of a response from that of its request.
const RESPONSE: u8 = 0x80;
/// The status of an attribute that the agent does not know (0x0c), after those bits.
const UNSUPPORTED_ATTRIBUTE: [u8; 2] = [0x00, 0x0c];

impl Firmware {
    /// The agents of the simulated port answer every request as an unknown attribute: a driver gets
    /// all that it needs by other commands.
    pub(super) fn mad_ifc(
        &mut self,
        device: &Device,
        input: &MadIfcIn,
        out: &mut MadIfcOut,
    ) -> Answer {
        let port = device.port((input.port() as u8).max(1));
        port.ok_or(Failure::param(syndrome::PORT_NUMBER))?;
        let answer = out.response_mad_packet_mut();
        *answer = *input.mad();
        answer[METHOD] |= RESPONSE;
        answer[STATUS..STATUS + 2].copy_from_slice(&UNSUPPORTED_ATTRIBUTE);
        Ok(())
    }
}
