//! Errors of decoding and of connecting endpoints.

use super::{GID_TYPES, name};
use crate::qp::transitions::transport_name;
use mlx5_uapi::verbs::{GidType, LinkLayer, QpType};
use std::error::Error;
use std::fmt;

/// The reason that text or bytes are not an endpoint.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum EndpointError {
    /// The wrong number of bytes.
    Length {
        /// The number of bytes.
        bytes: usize,
    },
    /// The start is not that of an endpoint.
    NotAnEndpoint,
    /// An endpoint in the form of another version.
    Version {
        /// The version.
        version: u32,
    },
    /// The checksum is wrong.
    Checksum,
    /// An unknown word in the text.
    UnknownWord {
        /// The word.
        word: String,
    },
    /// A field is missing in the text.
    Missing {
        /// The field.
        field: &'static str,
    },
    /// A field occurs twice in the text.
    Twice {
        /// The field.
        field: &'static str,
    },
    /// A field has an invalid value.
    Value {
        /// The field.
        field: &'static str,
    },
    /// A field's value contradicts the others.
    Contradiction {
        /// The field.
        field: &'static str,
    },
}

impl fmt::Display for EndpointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length { bytes } => {
                write!(f, "an endpoint has {} bytes, not {bytes}", super::Endpoint::BYTES)
            }
            Self::NotAnEndpoint => f.write_str("this is not an mlx5 endpoint"),
            Self::Version { version } => write!(
                f,
                "the endpoint is of version {version}; use the same release on both sides"
            ),
            Self::Checksum => f.write_str("the endpoint's checksum is wrong: it was damaged"),
            Self::UnknownWord { word } => write!(f, "the endpoint has an unknown word {word:?}"),
            Self::Missing { field } => {
                write!(f, "the endpoint has no {field}: the text is incomplete")
            }
            Self::Twice { field } => write!(f, "the endpoint has {field} twice"),
            Self::Value { field } => write!(f, "the endpoint's {field} is out of range"),
            Self::Contradiction { field } => {
                write!(f, "the endpoint's {field} contradicts its transport or GID type")
            }
        }
    }
}

impl Error for EndpointError {}

/// The reason that two sides cannot be connected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ConnectError {
    /// The transport has no connections.
    NotConnected {
        /// The transport.
        transport: QpType,
    },
    /// The transports do not match.
    Transport {
        /// This side's.
        local: QpType,
        /// The peer's.
        remote: QpType,
    },
    /// One side is InfiniBand, the other Ethernet.
    LinkLayer {
        /// This side's.
        local: LinkLayer,
        /// The peer's.
        remote: LinkLayer,
    },
    /// The versions of RoCE differ.
    GidType {
        /// This side's.
        local: GidType,
        /// The peer's.
        remote: GidType,
    },
    /// The path requires a global route, but this side's GID is zero.
    NoLocalGid,
    /// The path requires a global route, but the peer's GID is zero.
    NoRemoteGid,
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotConnected { transport } => {
                write!(f, "{} queue pairs are not connected to a peer", transport_name(*transport))
            }
            Self::Transport { local, remote } => {
                let (local, remote) = (transport_name(*local), transport_name(*remote));
                write!(f, "this queue pair is {local} and the peer's is {remote}")
            }
            Self::LinkLayer { local, remote } => {
                write!(f, "this port's link is {local:?} and the peer's is {remote:?}")
            }
            Self::GidType { local, remote } => {
                let (local, remote) = (name(&GID_TYPES, *local), name(&GID_TYPES, *remote));
                write!(
                    f,
                    "this side's GID is {local} and the peer's is {remote}; choose GID indices of \
                     the same type"
                )
            }
            Self::NoLocalGid => f.write_str(
                "the path needs a global route, but this side's GID is zero: choose another GID \
                 index, or give the port an address",
            ),
            Self::NoRemoteGid => f.write_str(
                "the path needs a global route, but the peer's GID is zero: choose another GID \
                 index there, or give its port an address",
            ),
        }
    }
}

impl Error for ConnectError {}
