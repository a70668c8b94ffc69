//! Addresses in the form of the kernel.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use mlx5::Gid;
use mlx5_uapi::rdma_cm::{
    AF_IB, AF_INET, AF_INET6, IbAddress as Layout, Ipv4Address, Ipv6Address, SocketAddress,
};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// An InfiniBand address (`struct sockaddr_ib`), for the port space of service IDs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct IbAddress {
    /// GID; zero for any.
    pub gid: Gid,
    /// Service ID. [`mlx5_uapi::rdma_cm::service_id`] returns the service of a port in a port
    /// space.
    pub service_id: u64,
    /// P_Key.
    pub pkey: u16,
}

/// An IP or InfiniBand address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Address {
    /// IP address and port.
    Ip(SocketAddr),
    /// GID and service ID.
    Ib(IbAddress),
}

impl Address {
    /// Encodes the address; returns the number of bytes that it takes.
    pub(crate) fn encode(&self) -> (SocketAddress, u16) {
        match self {
            Self::Ip(SocketAddr::V4(address)) => padded(&Ipv4Address {
                family: AF_INET,
                port: address.port().to_be_bytes(),
                addr: address.ip().octets(),
                ..Ipv4Address::default()
            }),
            Self::Ip(SocketAddr::V6(address)) => padded(&Ipv6Address {
                family: AF_INET6,
                port: address.port().to_be_bytes(),
                flowinfo: address.flowinfo().to_be_bytes(),
                addr: address.ip().octets(),
                scope_id: address.scope_id(),
            }),
            Self::Ib(address) => padded(&Layout {
                family: AF_IB,
                pkey: address.pkey.to_be_bytes(),
                addr: address.gid.to_bytes(),
                sid: address.service_id.to_be_bytes(),
                sid_mask: u64::MAX.to_be_bytes(),
                ..Layout::default()
            }),
        }
    }

    /// Decodes an address that the kernel returned; `None` for no address.
    pub(crate) fn decode(bytes: &SocketAddress) -> Option<Self> {
        let (family, _) = u16::read_from_prefix(bytes).ok()?;
        Some(match family {
            AF_INET => {
                let (layout, _) = Ipv4Address::read_from_prefix(bytes).ok()?;
                let port = u16::from_be_bytes(layout.port);
                Self::Ip((Ipv4Addr::from(layout.addr), port).into())
            }
            AF_INET6 => {
                let (layout, _) = Ipv6Address::read_from_prefix(bytes).ok()?;
                let port = u16::from_be_bytes(layout.port);
                let flow = u32::from_be_bytes(layout.flowinfo);
                let ip = Ipv6Addr::from(layout.addr);
                Self::Ip(SocketAddrV6::new(ip, port, flow, layout.scope_id).into())
            }
            AF_IB => {
                let (layout, _) = Layout::read_from_prefix(bytes).ok()?;
                Self::Ib(IbAddress {
                    gid: Gid::from_bytes(layout.addr),
                    service_id: u64::from_be_bytes(layout.sid),
                    pkey: u16::from_be_bytes(layout.pkey),
                })
            }
            _ => return None,
        })
    }

    /// Returns the IP address and port, if it is an IP address.
    pub fn ip(&self) -> Option<SocketAddr> {
        match self {
            Self::Ip(address) => Some(*address),
            Self::Ib(_) => None,
        }
    }
}

/// The bytes of an address of one family, followed by zeros, and the length of the address.
fn padded(address: &(impl IntoBytes + Immutable)) -> (SocketAddress, u16) {
    let mut bytes = [0; size_of::<SocketAddress>()];
    let address = address.as_bytes();
    bytes[..address.len()].copy_from_slice(address);
    (bytes, address.len() as u16)
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Self::Ip(address)
    }
}

impl From<IbAddress> for Address {
    fn from(address: IbAddress) -> Self {
        Self::Ib(address)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => address.fmt(f),
            Self::Ib(address) => write!(f, "{} service {:#x}", address.gid, address.service_id),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_decoded_as_it_was_encoded() {
        let ib = IbAddress { gid: Gid::from_bytes([7; 16]), service_id: 0x0106_0001, pkey: 0xffff };
        let ip = |text: &str| Address::from(text.parse::<SocketAddr>().expect("an address"));
        for address in [ip("10.0.0.1:7471"), ip("[fe80::1%3]:9"), Address::from(ib)] {
            let (bytes, size) = address.encode();
            assert_eq!(Address::decode(&bytes), Some(address));
            assert!(bytes[usize::from(size)..].iter().all(|byte| *byte == 0));
        }
        assert_eq!(Address::decode(&[0; 128]), None);
    }
}
