//! IP and InfiniBand addresses, in the form that programs give them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use mlx5_uapi::Errno;
use mlx5_uapi::rdma_cm::{
    AF_IB, AF_INET, AF_INET6, IbAddress, Ipv4Address, Ipv6Address, PortSpace, service_id,
};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::engine::Gid;

/// The bits of a service ID that are a port.
const PORT_BITS: u64 = 0xffff;

/// An address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Address {
    Ip(SocketAddr),
    Ib { gid: Gid, pkey: [u8; 2], service: u64, mask: u64 },
}

impl Address {
    /// Reads an address; `None` for no family.
    pub(super) fn read(bytes: &[u8]) -> Result<Option<Self>, Errno> {
        let (family, _) = u16::read_from_prefix(bytes).map_err(|_| Errno::EINVAL)?;
        Ok(Some(match family {
            0 => return Ok(None),
            AF_INET => {
                let (ip, _) = Ipv4Address::read_from_prefix(bytes).map_err(|_| Errno::EINVAL)?;
                Self::Ip((Ipv4Addr::from(ip.addr), u16::from_be_bytes(ip.port)).into())
            }
            AF_INET6 => {
                let (ip, _) = Ipv6Address::read_from_prefix(bytes).map_err(|_| Errno::EINVAL)?;
                let (addr, port) = (ip.addr.into(), u16::from_be_bytes(ip.port));
                Self::Ip(SocketAddrV6::new(addr, port, 0, ip.scope_id).into())
            }
            AF_IB => {
                let (ib, _) = IbAddress::read_from_prefix(bytes).map_err(|_| Errno::EINVAL)?;
                Self::Ib {
                    gid: ib.addr,
                    pkey: ib.pkey,
                    service: u64::from_be_bytes(ib.sid),
                    mask: u64::from_be_bytes(ib.sid_mask),
                }
            }
            _ => return Err(Errno::EAFNOSUPPORT),
        }))
    }

    /// Bytes of the C library's structure.
    pub(super) fn size(&self) -> usize {
        match self {
            Self::Ip(SocketAddr::V4(_)) => size_of::<Ipv4Address>(),
            Self::Ip(SocketAddr::V6(_)) => size_of::<Ipv6Address>(),
            Self::Ib { .. } => size_of::<IbAddress>(),
        }
    }

    /// Writes it in the C library's form.
    pub(super) fn write<const N: usize>(&self) -> [u8; N] {
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
                addr: address.ip().octets(),
                scope_id: address.scope_id(),
                ..Ipv6Address::default()
            }),
            Self::Ib { gid, pkey, service, mask } => {
                padded(&ib_address(*gid, *pkey, *service, *mask))
            }
        }
    }

    /// Its GID; that of an IPv4 address is the IPv6-mapped one.
    pub(super) fn gid(&self) -> Gid {
        match self {
            Self::Ip(address) => match address.ip() {
                IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
                IpAddr::V6(ip) => ip.octets(),
            },
            Self::Ib { gid, .. } => *gid,
        }
    }

    /// Whether it stands for all addresses.
    pub(super) fn is_any(&self) -> bool {
        match self {
            Self::Ip(address) => address.ip().is_unspecified(),
            Self::Ib { gid, .. } => *gid == [0; 16],
        }
    }

    /// Whether it is one of IPv4, of IPv6, or neither.
    pub(super) fn is_ipv4(&self) -> bool {
        matches!(self, Self::Ip(SocketAddr::V4(_)))
    }

    pub(super) fn is_ipv6(&self) -> bool {
        matches!(self, Self::Ip(SocketAddr::V6(_)))
    }

    /// Whether both are of one family.
    pub(super) fn is_of_family(&self, other: &Self) -> bool {
        (self.is_ipv4(), self.is_ipv6()) == (other.is_ipv4(), other.is_ipv6())
    }

    /// The service that it names in a port space.
    pub(super) fn service(&self, space: PortSpace) -> u64 {
        match self {
            Self::Ip(address) => service_id(space, address.port()),
            Self::Ib { service, mask, .. } => service & mask,
        }
    }

    /// Whether a port is to be chosen for it.
    pub(super) fn needs_port(&self) -> bool {
        match self {
            Self::Ip(address) => address.port() == 0,
            Self::Ib { service, mask, .. } => service & mask & PORT_BITS == 0,
        }
    }

    /// The same with another port.
    pub(super) fn with_port(mut self, port: u16) -> Self {
        match &mut self {
            Self::Ip(address) => address.set_port(port),
            Self::Ib { service, mask, .. } => {
                *service = *service & !PORT_BITS | u64::from(port);
                *mask |= PORT_BITS;
            }
        }
        self
    }

    /// The wildcard address of the same family.
    pub(super) fn any(&self) -> Self {
        match self {
            Self::Ip(SocketAddr::V4(_)) => Self::Ip((Ipv4Addr::UNSPECIFIED, 0).into()),
            Self::Ip(SocketAddr::V6(_)) => Self::Ip((Ipv6Addr::UNSPECIFIED, 0).into()),
            Self::Ib { pkey, service, mask, .. } => {
                Self::Ib { gid: [0; 16], pkey: *pkey, service: service & !PORT_BITS, mask: *mask }
            }
        }
    }

    /// The same port at the IP address of a GID.
    pub(super) fn at(&self, gid: Gid) -> Self {
        match *self {
            Self::Ip(address) => {
                let ip = Ipv6Addr::from(gid);
                let ip = ip.to_ipv4_mapped().map_or(IpAddr::V6(ip), IpAddr::V4);
                Self::Ip((ip, address.port()).into())
            }
            Self::Ib { pkey, service, mask, .. } => Self::Ib { gid, pkey, service, mask },
        }
    }
}

/// An address, padded with zeros; all zeros if it does not fit.
fn padded<const N: usize>(address: &(impl IntoBytes + Immutable)) -> [u8; N] {
    let mut bytes = [0; N];
    let address = address.as_bytes();
    if let Some(to) = bytes.get_mut(..address.len()) {
        to.copy_from_slice(address);
    }
    bytes
}

/// An address of InfiniBand.
pub(super) fn ib_address(gid: Gid, pkey: [u8; 2], service: u64, mask: u64) -> IbAddress {
    IbAddress {
        family: AF_IB,
        pkey,
        addr: gid,
        sid: service.to_be_bytes(),
        sid_mask: mask.to_be_bytes(),
        ..IbAddress::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_written_as_it_was_read() {
        for text in ["10.0.0.1:7471", "[fe80::1%3]:5", "[::]:0"] {
            let address = Address::Ip(text.parse().expect("an address"));
            let bytes: [u8; 128] = address.write();
            assert_eq!(Address::read(&bytes), Ok(Some(address)), "{text}");
        }
        let address = Address::Ib { gid: [7; 16], pkey: [0xff; 2], service: 0x0106_0007, mask: 9 };
        let bytes: [u8; 128] = address.write();
        assert_eq!(Address::read(&bytes), Ok(Some(address)));
    }

    #[test]
    fn a_family_that_nobody_knows_is_refused_and_none_is_no_address() {
        assert_eq!(Address::read(&[0; 128]), Ok(None));
        assert_eq!(Address::read(&[1, 0, 0, 0]), Err(Errno::EAFNOSUPPORT));
        assert_eq!(Address::read(&[2, 0, 0, 0]), Err(Errno::EINVAL));
    }

    #[test]
    fn a_port_is_part_of_a_service() {
        let address = Address::Ip("10.0.0.1:0".parse().expect("an address"));
        assert!(address.needs_port());
        let address = address.with_port(9);
        assert_eq!(address.service(PortSpace::Tcp), 0x0106_0009);
        assert_eq!(address.at([0; 16]).service(PortSpace::Tcp), 0x0106_0009);
    }
}
