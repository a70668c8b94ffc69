//! GIDs: addresses of ports.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

/// A GID, 16 bytes in network byte order (`union ibv_gid`). On RoCE it is an IP address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Gid([u8; 16]);

impl Gid {
    /// Creates a GID from its bytes.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Returns its bytes.
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0
    }

    /// Whether it is an IPv4-mapped IPv6 address, `::ffff:a.b.c.d`.
    pub fn is_ipv4_mapped(self) -> bool {
        self.ipv4().is_some()
    }

    /// Returns the IPv4 address of an IPv4-mapped GID.
    pub fn ipv4(self) -> Option<Ipv4Addr> {
        Ipv6Addr::from(self.0).to_ipv4_mapped()
    }

    /// Returns the IP address of a RoCE GID: IPv4 if it is IPv4-mapped.
    pub fn ip(self) -> IpAddr {
        self.ipv4().map_or_else(|| IpAddr::V6(self.into()), IpAddr::V4)
    }

    /// Whether it is a multicast GID: of IPv6, or an IPv4-mapped multicast address, the form that
    /// RoCE v2 uses for IPv4 groups.
    pub const fn is_multicast(self) -> bool {
        const MAPPED: u128 = 0xffff;
        let is_mapped = u128::from_be_bytes(self.0) >> 32 == MAPPED;
        self.0[0] == 0xff || is_mapped && self.0[12] & 0xf0 == 0xe0
    }

    /// Whether it is a link-local GID.
    pub const fn is_link_local(self) -> bool {
        self.0[0] == 0xfe && self.0[1] & 0xc0 == 0x80
    }

    /// Whether it is all zeros, as in an empty entry of a GID table.
    pub const fn is_zero(self) -> bool {
        u128::from_be_bytes(self.0) == 0
    }

    /// Returns the first eight bytes.
    pub const fn subnet_prefix(self) -> u64 {
        (u128::from_be_bytes(self.0) >> 64) as u64
    }

    /// Returns the last eight bytes. On InfiniBand they are the port's GUID.
    pub const fn interface_id(self) -> u64 {
        u128::from_be_bytes(self.0) as u64
    }
}

impl From<Ipv6Addr> for Gid {
    fn from(address: Ipv6Addr) -> Self {
        Self(address.octets())
    }
}

impl From<Ipv4Addr> for Gid {
    fn from(address: Ipv4Addr) -> Self {
        address.to_ipv6_mapped().into()
    }
}

/// An IPv4 address becomes an IPv4-mapped GID.
///
/// ```
/// use mlx5::Gid;
/// use std::net::IpAddr;
///
/// let ip: IpAddr = "192.168.0.1".parse()?;
/// let gid = Gid::from(ip);
/// assert_eq!(gid.to_string(), "::ffff:192.168.0.1");
/// assert_eq!(gid.ip(), ip);
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
impl From<IpAddr> for Gid {
    fn from(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => address.into(),
            IpAddr::V6(address) => address.into(),
        }
    }
}

impl From<Gid> for Ipv6Addr {
    fn from(gid: Gid) -> Self {
        gid.0.into()
    }
}

impl FromStr for Gid {
    type Err = std::net::AddrParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse::<Ipv6Addr>().map(Self::from)
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&Ipv6Addr::from(self.0), f)
    }
}

impl fmt::Debug for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gid_reads_and_writes_as_an_ipv6_address() {
        let gid: Gid = "fe80::2:c903:1a:bcde".parse().unwrap();
        assert_eq!(gid.to_string(), "fe80::2:c903:1a:bcde");
        assert_eq!(gid.subnet_prefix(), 0xfe80_0000_0000_0000);
        assert_eq!(gid.interface_id(), 0x0002_c903_001a_bcde);
        assert!(gid.is_link_local() && !gid.is_multicast() && !gid.is_ipv4_mapped());
        for other in ["febf::1", "fec0::1", "fd80::1", "80fe::1"] {
            let gid: Gid = other.parse().unwrap();
            assert_eq!(gid.is_link_local(), other == "febf::1", "{other}");
        }
        assert!("192.168.0.1".parse::<Gid>().is_err());
        assert!("fe80:".parse::<Gid>().is_err());
    }

    #[test]
    fn an_ipv4_mapped_gid_is_recognised() {
        let gid = Gid::from(Ipv4Addr::new(192, 168, 0, 1));
        assert_eq!(gid.to_string(), "::ffff:192.168.0.1");
        assert_eq!(gid.ipv4(), Some(Ipv4Addr::new(192, 168, 0, 1)));
        assert!(Gid::default().is_zero() && Gid::default().ipv4().is_none());
        assert!("ff0e::1".parse::<Gid>().unwrap().is_multicast());
        assert!(Gid::from(Ipv4Addr::new(239, 1, 2, 3)).is_multicast());
        assert!(!Gid::from(Ipv4Addr::new(10, 1, 2, 3)).is_multicast());
    }
}
