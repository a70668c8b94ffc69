//! Endpoints: the data that the two sides of a connection exchange, over TCP, in a file, or as text
//! that a user copies.

mod connect;
mod error;
#[cfg(test)]
mod tests;
mod text;
mod wire;

pub use connect::{ConnectOptions, LocalPort};
pub(crate) use connect::{
    datagram_to_rtr, datagram_to_rts, default_gid_index, path_to, remote_rights, to_init, to_rtr,
    to_rts,
};
pub use error::{ConnectError, EndpointError};

use super::attributes::{Psn, QpNumber};
use crate::context::Gid;
use mlx5_uapi::verbs::{GidType, LinkLayer, Mtu, QpType};

/// One side of a connection, or the address of a queue pair for datagrams.
///
/// The text form is one line for people ([`Display`](std::fmt::Display) and
/// [`FromStr`](std::str::FromStr)); the binary form has [`Endpoint::BYTES`] bytes. Both have a
/// version and are the same on every machine.
///
/// [`QueuePair::connect_over`](crate::QueuePair::connect_over) exchanges endpoints over a stream.
/// With any other transport, each side sends its endpoint to the other before it connects, and
/// sends no message before it knows that the other one has connected:
///
/// ```no_run
/// use mlx5::{ConnectOptions, Endpoint, Psn, QueuePair, transport::Rc};
/// use std::io::{BufRead, stdin};
///
/// fn connect(qp: &mut QueuePair<Rc>) -> Result<(), Box<dyn std::error::Error>> {
///     let port = qp.context().local_port(1, None)?;
///     let (psn, options) = (Psn::wrapping(qp.qp_num()), ConnectOptions::default());
///     println!("{}", qp.endpoint(&port, psn, &options));
///     let mut line = String::new();
///     stdin().lock().read_line(&mut line)?;
///     let remote: Endpoint = line.trim().parse()?;
///     qp.connect(&port, psn, &remote, &options)?;
///     Ok(())
/// }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Endpoint {
    /// Transport: RC, UC, UD, or either side of XRC.
    pub transport: QpType,
    /// Number of the queue pair.
    pub qp_num: QpNumber,
    /// The first sequence number that this side sends.
    pub psn: Psn,
    /// The Q_Key that datagrams to this side must carry. UD only.
    pub qkey: Option<u32>,
    /// LID of the port; 0 on Ethernet.
    pub lid: u16,
    /// GID of the port.
    pub gid: Gid,
    /// Type of the GID; it implies the link layer.
    pub gid_type: GidType,
    /// Index of the GID in the port's table, for information.
    pub gid_index: u8,
    /// The maximum packet size of the port.
    pub mtu: Mtu,
    /// Maximum number of reads and atomics that this side can answer at a time.
    pub rd_atomic: u8,
}

impl Endpoint {
    /// Length of the binary form.
    pub const BYTES: usize = size_of::<wire::Wire>();

    /// The first multicast LID.
    const FIRST_MULTICAST_LID: u16 = 0xc000;

    /// Returns the link layer of the port.
    pub const fn link_layer(&self) -> LinkLayer {
        link_layer(self.gid_type)
    }

    /// Refuses fields that no port can have. Both decoders call it last.
    fn validated(self) -> Result<Self, EndpointError> {
        let wrong = |field| Err(EndpointError::Contradiction { field });
        if self.qkey.is_some() != (self.transport == QpType::Ud) {
            return wrong("qkey");
        }
        match self.link_layer() {
            LinkLayer::Ethernet if self.lid != 0 => wrong("lid"),
            LinkLayer::Ethernet if self.gid.is_zero() => wrong("gid"),
            LinkLayer::Ethernet => Ok(self),
            _ if self.lid >= Self::FIRST_MULTICAST_LID => wrong("lid"),
            _ if self.lid == 0 && self.gid.is_zero() => wrong("gid"),
            _ => Ok(self),
        }
    }
}

/// Returns the link layer of a GID type.
const fn link_layer(gid_type: GidType) -> LinkLayer {
    match gid_type {
        GidType::InfiniBand => LinkLayer::InfiniBand,
        GidType::RoceV1 | GidType::RoceV2 => LinkLayer::Ethernet,
    }
}

/// The transports that an endpoint can have, and their names in the text form.
const TRANSPORTS: [(QpType, &str); 5] = [
    (QpType::Rc, "rc"),
    (QpType::Uc, "uc"),
    (QpType::Ud, "ud"),
    (QpType::XrcIni, "xrc-send"),
    (QpType::XrcTgt, "xrc-target"),
];

/// Names of the GID types in the text form.
const GID_TYPES: [(GidType, &str); 3] =
    [(GidType::InfiniBand, "ib"), (GidType::RoceV1, "roce-v1"), (GidType::RoceV2, "roce-v2")];

/// Returns the name of a value.
fn name<T: PartialEq>(names: &[(T, &'static str)], value: T) -> &'static str {
    names.iter().find(|row| row.0 == value).map_or("unsupported", |row| row.1)
}

fn mtu_bytes(mtu: Mtu) -> u32 {
    128 << mtu.raw()
}
