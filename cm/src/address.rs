//! Addresses, as the kernel takes them.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use mlx5::Gid;
use mlx5_uapi::rdma_cm::{AF_IB, IbAddress as Layout, SocketAddress};
use zerocopy::{FromBytes, IntoBytes};

const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;

/// An address of InfiniBand (`struct sockaddr_ib`), for the port space of service IDs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct IbAddress {
    /// GID; zero for any.
    pub gid: Gid,
    /// Service ID. With a port space and a port in it, as
    /// [`mlx5_uapi::rdma_cm::service_id`] returns, it is the service of that port.
    pub service_id: u64,
    /// P_Key.
    pub pkey: u16,
}

/// An address: of IP, or of InfiniBand.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Address {
    /// IP address and port.
    Ip(SocketAddr),
    /// GID and service ID.
    Ib(IbAddress),
}

impl Address {
    /// Encodes the address; returns how many bytes count.
    pub(crate) fn encode(&self) -> (SocketAddress, u16) {
        let mut bytes = [0; size_of::<SocketAddress>()];
        match self {
            Self::Ip(SocketAddr::V4(address)) => {
                bytes[..2].copy_from_slice(&AF_INET.to_ne_bytes());
                bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
                bytes[4..8].copy_from_slice(&address.ip().octets());
                (bytes, 16)
            }
            Self::Ip(SocketAddr::V6(address)) => {
                bytes[..2].copy_from_slice(&AF_INET6.to_ne_bytes());
                bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
                bytes[4..8].copy_from_slice(&address.flowinfo().to_be_bytes());
                bytes[8..24].copy_from_slice(&address.ip().octets());
                bytes[24..28].copy_from_slice(&address.scope_id().to_ne_bytes());
                (bytes, 28)
            }
            Self::Ib(address) => {
                let layout = Layout {
                    family: AF_IB,
                    pkey: address.pkey.to_be_bytes(),
                    addr: address.gid.to_bytes(),
                    sid: address.service_id.to_be_bytes(),
                    sid_mask: u64::MAX.to_be_bytes(),
                    ..Layout::default()
                };
                bytes[..size_of::<Layout>()].copy_from_slice(layout.as_bytes());
                (bytes, size_of::<Layout>() as u16)
            }
        }
    }

    /// Decodes what the kernel returned; `None` for no address.
    pub(crate) fn decode(bytes: &SocketAddress) -> Option<Self> {
        let port = u16::from_be_bytes([bytes[2], bytes[3]]);
        Some(match u16::from_ne_bytes([bytes[0], bytes[1]]) {
            AF_INET => {
                let ip = Ipv4Addr::new(bytes[4], bytes[5], bytes[6], bytes[7]);
                Self::Ip((ip, port).into())
            }
            AF_INET6 => {
                let (ip, _) = <[u8; 16]>::read_from_prefix(&bytes[8..]).ok()?;
                let flow = u32::from_be_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
                let scope = u32::from_ne_bytes([bytes[24], bytes[25], bytes[26], bytes[27]]);
                Self::Ip(SocketAddrV6::new(Ipv6Addr::from(ip), port, flow, scope).into())
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

    /// Returns the IP address and port, if it is one of IP.
    pub fn ip(&self) -> Option<SocketAddr> {
        match self {
            Self::Ip(address) => Some(*address),
            Self::Ib(_) => None,
        }
    }
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
