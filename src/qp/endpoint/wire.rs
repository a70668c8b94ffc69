//! The binary form of an endpoint.

use super::{Endpoint, EndpointError, TRANSPORTS};
use crate::context::Gid;
use crate::qp::attributes::{Psn, QpNumber};
use mlx5_uapi::verbs::{GidType, Mtu, QpType};
use std::mem::offset_of;
use zerocopy::byteorder::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

const MAGIC: [u8; 4] = *b"mlx5";
const VERSION: u8 = 1;

/// Numbers are big-endian. Enumerations use the kernel's numbers.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Wire {
    magic: [u8; 4],
    version: u8,
    transport: u8,
    gid_type: u8,
    mtu: u8,
    qp_num: U32,
    psn: U32,
    qkey: U32,
    lid: U16,
    gid_index: u8,
    rd_atomic: u8,
    gid: [u8; 16],
    reserved: [u8; 20],
    /// [`crc32`] of all bytes before it.
    checksum: U32,
}

const _: () = {
    assert!(size_of::<Wire>() == 64);
    assert!(offset_of!(Wire, qp_num) == 8);
    assert!(offset_of!(Wire, gid) == 24);
    assert!(offset_of!(Wire, checksum) == 60);
};

impl Endpoint {
    /// Returns the binary form.
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut wire = Wire {
            magic: MAGIC,
            version: VERSION,
            transport: self.transport.raw(),
            gid_type: self.gid_type.raw() as u8,
            mtu: self.mtu.raw(),
            qp_num: self.qp_num.get().into(),
            psn: self.psn.get().into(),
            qkey: self.qkey.unwrap_or(0).into(),
            lid: self.lid.into(),
            gid_index: self.gid_index,
            rd_atomic: self.rd_atomic,
            gid: self.gid.to_bytes(),
            reserved: [0; 20],
            checksum: U32::ZERO,
        };
        wire.checksum = wire.sum().into();
        zerocopy::transmute!(wire)
    }

    /// Decodes the binary form, which must be all of `bytes`.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, EndpointError> {
        let wire = Wire::read_from_bytes(bytes)
            .map_err(|_| EndpointError::Length { bytes: bytes.len() })?;
        if wire.magic != MAGIC {
            return Err(EndpointError::NotAnEndpoint);
        }
        // Checked before the checksum, whose place may differ in another version.
        if wire.version != VERSION {
            return Err(EndpointError::Version { version: wire.version.into() });
        }
        if wire.checksum.get() != wire.sum() {
            return Err(EndpointError::Checksum);
        }
        let bad = |field| EndpointError::Value { field };
        if wire.reserved != [0; 20] {
            return Err(bad("reserved"));
        }
        let transport = QpType::from_raw(wire.transport)
            .filter(|transport| TRANSPORTS.iter().any(|row| row.0 == *transport))
            .ok_or(bad("transport"))?;
        let qkey = wire.qkey.get();
        if transport != QpType::Ud && qkey != 0 {
            return Err(bad("qkey"));
        }
        Self {
            transport,
            qp_num: QpNumber::new(wire.qp_num.get()).map_err(|_| bad("qpn"))?,
            psn: Psn::new(wire.psn.get()).map_err(|_| bad("psn"))?,
            qkey: (transport == QpType::Ud).then_some(qkey),
            lid: wire.lid.get(),
            gid: Gid::from_bytes(wire.gid),
            gid_type: GidType::from_raw(wire.gid_type.into()).ok_or(bad("gid_type"))?,
            gid_index: wire.gid_index,
            mtu: Mtu::from_raw(wire.mtu).ok_or(bad("mtu"))?,
            rd_atomic: wire.rd_atomic,
        }
        .validated()
    }
}

impl Wire {
    fn sum(&self) -> u32 {
        crc32(&self.as_bytes()[..offset_of!(Self, checksum)])
    }
}

/// CRC-32 of IEEE 802.3.
pub(super) fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            let feedback = if crc & 1 == 1 { 0xedb8_8320 } else { 0 };
            crc = (crc >> 1) ^ feedback;
        }
    }
    !crc
}
