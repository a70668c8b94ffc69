//! The fields that routers use: DSCP and ECN in the traffic class, and the UDP source port of RoCE
//! v2.

use std::{fmt, str::FromStr};

/// One code point per line: number, constant, name, description.
macro_rules! code_points {
    ($($number:literal = $name:ident, $text:literal, $doc:literal;)*) => {
        impl Dscp {
            $(#[doc = $doc] pub const $name: Self = Self($number);)*

            /// The code points that have a name.
            const NAMED: &[(Self, &str)] = &[$((Self::$name, $text),)*];
        }
    };
}

/// A differentiated services code point: the upper six bits of a traffic class. It determines the
/// queue and the drop precedence in routers.
///
/// ```
/// use mlx5::{Dscp, Ecn, TrafficClass};
///
/// assert_eq!(Dscp::AF31.get(), 26);
/// assert_eq!("af31".parse(), Ok(Dscp::AF31));
/// assert_eq!("26".parse(), Ok(Dscp::AF31));
/// assert_eq!(u8::from(TrafficClass::new(Dscp::AF31, Ecn::Ect0)), 26 << 2 | 2);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Dscp(u8);

code_points! {
    0 = CS0, "cs0", "Class selector 0, the default: best effort (RFC 2474).";
    8 = CS1, "cs1", "Class selector 1 (RFC 2474).";
    16 = CS2, "cs2", "Class selector 2 (RFC 2474).";
    24 = CS3, "cs3", "Class selector 3 (RFC 2474).";
    32 = CS4, "cs4", "Class selector 4 (RFC 2474).";
    40 = CS5, "cs5", "Class selector 5 (RFC 2474).";
    48 = CS6, "cs6", "Class selector 6, network control (RFC 2474).";
    56 = CS7, "cs7", "Class selector 7 (RFC 2474).";
    10 = AF11, "af11", "Assured forwarding class 1, low drop precedence (RFC 2597).";
    12 = AF12, "af12", "Assured forwarding class 1, medium drop precedence (RFC 2597).";
    14 = AF13, "af13", "Assured forwarding class 1, high drop precedence (RFC 2597).";
    18 = AF21, "af21", "Assured forwarding class 2, low drop precedence (RFC 2597).";
    20 = AF22, "af22", "Assured forwarding class 2, medium drop precedence (RFC 2597).";
    22 = AF23, "af23", "Assured forwarding class 2, high drop precedence (RFC 2597).";
    26 = AF31, "af31", "Assured forwarding class 3, low drop precedence (RFC 2597).";
    28 = AF32, "af32", "Assured forwarding class 3, medium drop precedence (RFC 2597).";
    30 = AF33, "af33", "Assured forwarding class 3, high drop precedence (RFC 2597).";
    34 = AF41, "af41", "Assured forwarding class 4, low drop precedence (RFC 2597).";
    36 = AF42, "af42", "Assured forwarding class 4, medium drop precedence (RFC 2597).";
    38 = AF43, "af43", "Assured forwarding class 4, high drop precedence (RFC 2597).";
    1 = LE, "le", "Lower effort (RFC 8622).";
    44 = VA, "va", "Voice admit (RFC 5865).";
    46 = EF, "ef", "Expedited forwarding (RFC 3246).";
}

impl Dscp {
    /// Returns the code point with this number, or `None` if it has more than six bits.
    pub const fn new(number: u8) -> Option<Self> {
        if number < 64 { Some(Self(number)) } else { None }
    }

    /// Returns the number.
    pub const fn get(self) -> u8 {
        self.0
    }

    fn name(self) -> Option<&'static str> {
        Self::NAMED.iter().find(|row| row.0 == self).map(|row| row.1)
    }
}

/// Writes the name, or the number of a code point without one.
impl fmt::Display for Dscp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.pad(name),
            None => fmt::Display::fmt(&self.0, f),
        }
    }
}

impl fmt::Debug for Dscp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Dscp({self})")
    }
}

/// Text that is no DSCP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ParseDscpError;

impl fmt::Display for ParseDscpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a DSCP is a name like cs5, af31, ef or le, or a number from 0 to 63")
    }
}

impl std::error::Error for ParseDscpError {}

/// Parses a name, in upper or lower case, or a number.
impl FromStr for Dscp {
    type Err = ParseDscpError;

    fn from_str(text: &str) -> Result<Self, ParseDscpError> {
        let named = Self::NAMED.iter().find(|row| row.1.eq_ignore_ascii_case(text));
        let number = || Self::new(text.parse().ok()?);
        named.map(|row| row.0).or_else(number).ok_or(ParseDscpError)
    }
}

/// Explicit congestion notification (RFC 3168): the lower two bits of a traffic class.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum Ecn {
    /// Routers drop packets when they are congested.
    #[default]
    NotEct = 0,
    /// Routers may mark packets instead, code point 1.
    Ect1 = 1,
    /// Routers may mark packets instead, code point 0. This is the usual one.
    Ect0 = 2,
    /// A router on the path was congested.
    Ce = 3,
}

/// A traffic class: DSCP and ECN.
///
/// [`ConnectOptions`](crate::ConnectOptions) and [`GlobalRoute`](crate::GlobalRoute) take it as a
/// number, or each part by name.
///
/// On RoCE v2 the device takes both parts from an address vector (UD), but only the DSCP of a
/// connected queue pair: the kernel's mlx5_ib passes on no more, and the device marks packets by
/// its own congestion control.
///
/// ```
/// use mlx5::{ConnectOptions, Dscp, Ecn, TrafficClass};
///
/// let options = ConnectOptions::default().dscp(Dscp::EF).ecn(Ecn::Ect0);
/// assert_eq!(options.traffic_class, 46 << 2 | 2);
/// let class = TrafficClass::from(options.traffic_class);
/// assert_eq!((class.dscp, class.ecn), (Dscp::EF, Ecn::Ect0));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct TrafficClass {
    /// The upper six bits.
    pub dscp: Dscp,
    /// The lower two bits.
    pub ecn: Ecn,
}

impl TrafficClass {
    /// Creates a traffic class.
    pub const fn new(dscp: Dscp, ecn: Ecn) -> Self {
        Self { dscp, ecn }
    }

    /// Splits a number.
    pub const fn from_number(number: u8) -> Self {
        let ecn = match number & 3 {
            1 => Ecn::Ect1,
            2 => Ecn::Ect0,
            3 => Ecn::Ce,
            _ => Ecn::NotEct,
        };
        Self { dscp: Dscp(number >> 2), ecn }
    }

    /// Returns the number.
    pub const fn number(self) -> u8 {
        self.dscp.0 << 2 | self.ecn as u8
    }
}

impl From<u8> for TrafficClass {
    fn from(number: u8) -> Self {
        Self::from_number(number)
    }
}

impl From<TrafficClass> for u8 {
    fn from(class: TrafficClass) -> Self {
        class.number()
    }
}

/// The UDP source port of RoCE v2 packets, 0xc000 to 0xffff. Routers and link aggregation use it to
/// spread flows.
///
/// Verbs have no field for it: it follows from the flow label of the path, as
/// `rdma_flow_label_to_udp_sport` of rdma-core computes it. The kernel applies the same rule to
/// connected queue pairs. Setting the port therefore sets a flow label that results in it:
///
/// ```
/// use mlx5::{ConnectOptions, UdpSourcePort};
///
/// let port = UdpSourcePort::new(0xc123).expect("at least 0xc000");
/// let options = ConnectOptions::default().udp_source_port(port);
/// assert_eq!(UdpSourcePort::of_flow_label(options.flow_label), Some(port));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct UdpSourcePort(u16);

impl UdpSourcePort {
    /// The lowest port (`IB_ROCE_UDP_ENCAP_VALID_PORT_MIN`).
    pub const MIN: Self = Self(0xc000);
    /// The highest port.
    pub const MAX: Self = Self(0xffff);

    /// Bits of a flow label that are also in the port.
    const LOW: u32 = 0x3fff;

    /// Returns the port with this number, or `None` below 0xc000.
    pub const fn new(port: u16) -> Option<Self> {
        if port >= Self::MIN.0 { Some(Self(port)) } else { None }
    }

    /// Returns the number.
    pub const fn get(self) -> u16 {
        self.0
    }

    /// Returns the port of packets with this flow label: equal labels give equal ports, so that
    /// routers keep the packets of a flow in order. `None` for zero: an address handle then uses a
    /// random port, and a connected queue pair one that depends on its own and its peer's number.
    pub const fn of_flow_label(flow_label: u32) -> Option<Self> {
        match flow_label & 0xf_ffff {
            0 => None,
            label => Some(Self(Self::MIN.0 | (label & Self::LOW ^ label >> 14) as u16)),
        }
    }

    /// Returns a nonzero flow label that results in this port.
    pub const fn flow_label(self) -> u32 {
        match self.0 as u32 & Self::LOW {
            // Label 0 selects no port, so use a label whose halves cancel out.
            0 => 1 << 14 | 1,
            low => low,
        }
    }
}

impl fmt::Display for UdpSourcePort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_point_survives_its_text() {
        for number in 0..64 {
            let dscp = Dscp::new(number).unwrap();
            assert_eq!(dscp.to_string().parse(), Ok(dscp));
            assert_eq!(number.to_string().parse(), Ok(dscp));
        }
        assert_eq!("EF".parse(), Ok(Dscp::EF));
        assert_eq!(
            (Dscp::AF31.to_string(), format!("{:?}", Dscp::CS0)),
            ("af31".into(), "Dscp(cs0)".into())
        );
        let refused = "ef1".parse::<Dscp>().unwrap_err().to_string();
        assert!(refused.contains("a number from 0 to 63"), "{refused}");
        assert_eq!(UdpSourcePort::MIN.to_string(), "49152");
        assert_eq!(Dscp::new(64), None);
        for wrong in ["64", "-1", "af14", "", "256"] {
            assert_eq!(wrong.parse::<Dscp>(), Err(ParseDscpError), "{wrong}");
        }
    }

    #[test]
    fn names_have_the_numbers_of_the_rfcs() {
        for class in 0..8 {
            assert_eq!(format!("cs{class}").parse(), Ok(Dscp(class * 8)));
        }
        for class in 1..5 {
            for precedence in 1..4 {
                let dscp = Dscp(class * 8 + precedence * 2);
                assert_eq!(format!("af{class}{precedence}").parse(), Ok(dscp));
            }
        }
        assert_eq!((Dscp::LE.get(), Dscp::VA.get(), Dscp::EF.get()), (1, 44, 46));
        assert_eq!(Dscp::NAMED.len(), 8 + 12 + 3);
    }

    #[test]
    fn a_traffic_class_is_its_two_parts() {
        for number in 0..=255 {
            let class = TrafficClass::from(number);
            assert_eq!((class.dscp.get(), class.ecn as u8), (number >> 2, number & 3));
            assert_eq!(u8::from(class), number);
        }
    }

    #[test]
    fn the_port_of_a_flow_label_is_that_of_rdma_core() {
        let port = |label| UdpSourcePort::of_flow_label(label).map(UdpSourcePort::get);
        assert_eq!(port(0x00001), Some(0xc001));
        assert_eq!(port(0x04000), Some(0xc001), "high bits are folded in");
        assert_eq!(port(0xfffff), Some(0xc000 | (0x3fff ^ 0x3f)));
        assert_eq!(port(0x03fff), Some(0xffff));
        assert_eq!(port(0), None);
        assert_eq!(port(0x10_0000), None, "a label has 20 bits");
    }

    #[test]
    fn every_port_has_a_flow_label_that_leads_to_it() {
        for number in 0..=u16::MAX {
            let port = UdpSourcePort::new(number);
            assert_eq!(port.is_some(), number >= 0xc000);
            if let Some(port) = port {
                let label = port.flow_label();
                assert!(label != 0 && label < 1 << 20);
                assert_eq!(UdpSourcePort::of_flow_label(label), Some(port));
            }
        }
    }
}
