//! Paths to destinations.

use super::{TrafficClass, UdpSourcePort};
use crate::{context::Gid, error::Error, link::PortCaps};
use mlx5_uapi::verbs;

/// The GRH fields of a path (`struct ibv_global_route`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GlobalRoute {
    /// Destination GID.
    pub dgid: Gid,
    /// Flow label, at most 20 bits. On RoCE v2 it determines the [`UdpSourcePort`]; with zero the
    /// port is random.
    pub flow_label: u32,
    /// Index of the source GID in the port's GID table.
    pub sgid_index: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Traffic class: see [`TrafficClass`].
    pub traffic_class: u8,
}

impl GlobalRoute {
    /// Creates a route with hop limit 64, flow label 0 and traffic class 0.
    pub const fn new(dgid: Gid, sgid_index: u8) -> Self {
        Self { dgid, flow_label: 0, sgid_index, hop_limit: 64, traffic_class: 0 }
    }

    /// Returns the route with a traffic class by name. See [`TrafficClass`].
    ///
    /// ```
    /// use mlx5::{AhAttr, Dscp, Ecn, Gid, GlobalRoute, TrafficClass, UdpSourcePort};
    /// use std::net::Ipv4Addr;
    ///
    /// let route = GlobalRoute::new(Gid::from(Ipv4Addr::new(10, 0, 0, 2)), 3)
    ///     .with_traffic_class(TrafficClass::new(Dscp::AF31, Ecn::Ect0))
    ///     .with_udp_source_port(UdpSourcePort::MIN);
    /// let path = AhAttr::infiniband(1, 0).with_grh(route);
    /// ```
    #[must_use]
    pub const fn with_traffic_class(self, class: TrafficClass) -> Self {
        Self { traffic_class: class.number(), ..self }
    }

    /// Returns the route with a flow label that results in this UDP source port, on RoCE v2.
    #[must_use]
    pub const fn with_udp_source_port(self, port: UdpSourcePort) -> Self {
        Self { flow_label: port.flow_label(), ..self }
    }
}

/// A path to a destination (`struct ibv_ah_attr`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AhAttr {
    /// Local port, counted from 1.
    pub port_num: u8,
    /// Destination LID, on InfiniBand. Nonzero unless the path has a GRH.
    pub dlid: u16,
    /// Service level: at most 15 on InfiniBand. On Ethernet the priority: at most 7.
    pub sl: u8,
    /// Low bits of the source LID, on InfiniBand, if the port's LMC is not zero. At most 7 bits.
    pub src_path_bits: u8,
    /// Rate limit as a value of `enum ibv_rate`; zero for the port's rate.
    pub static_rate: u8,
    /// GRH fields. Required on Ethernet, and if
    /// [`PortAttr::grh_required`](crate::PortAttr::grh_required) is set.
    pub grh: Option<GlobalRoute>,
}

const FLOW_LABEL_MASK: u32 = 0xf_ffff;

impl AhAttr {
    /// Creates a path inside an InfiniBand subnet.
    pub const fn infiniband(port_num: u8, dlid: u16) -> Self {
        Self { port_num, dlid, sl: 0, src_path_bits: 0, static_rate: 0, grh: None }
    }

    /// Creates a RoCE path.
    pub const fn roce(port_num: u8, dgid: Gid, sgid_index: u8) -> Self {
        Self::infiniband(port_num, 0).with_grh(GlobalRoute::new(dgid, sgid_index))
    }

    /// Returns the path with a GRH.
    pub const fn with_grh(self, grh: GlobalRoute) -> Self {
        Self { grh: Some(grh), ..self }
    }

    /// Checks the path against the limits of the port; the error names the field.
    pub(crate) fn check(&self, operation: &'static str, caps: &PortCaps) -> Result<(), Error> {
        let wrong = |what: String| Err(Error::invalid(operation, what));
        let max_sl = if caps.ethernet { 7 } else { 15 };
        if self.sl > max_sl {
            return wrong(format!("service level {} is above {max_sl}", self.sl));
        }
        if self.src_path_bits > 0x7f {
            return wrong(format!("source path bits {:#x} exceed 7 bits", self.src_path_bits));
        }
        match &self.grh {
            None if caps.ethernet => {
                wrong("the port is Ethernet: the path needs a global route (a GID)".into())
            }
            None if caps.grh_required => {
                wrong("the port requires a global route (a GID) in every path".into())
            }
            Some(grh) if grh.flow_label > FLOW_LABEL_MASK => {
                wrong(format!("flow label {:#x} has more than 20 bits", grh.flow_label))
            }
            Some(grh) if grh.dgid.is_zero() => wrong("the destination GID is zero".into()),
            None if self.dlid == 0 => wrong("the destination has neither a LID nor a GID".into()),
            _ => Ok(()),
        }
    }

    /// Returns the path in the layout of CREATE_AH.
    pub(crate) fn to_uverbs(self) -> verbs::AhAttr {
        let mut attr = verbs::AhAttr {
            dlid: self.dlid,
            sl: self.sl,
            src_path_bits: self.src_path_bits,
            static_rate: self.static_rate,
            port_num: self.port_num,
            ..verbs::AhAttr::default()
        };
        if let Some(grh) = self.grh {
            attr.is_global = 1;
            attr.grh = verbs::GlobalRoute {
                dgid: grh.dgid.to_bytes(),
                flow_label: grh.flow_label,
                sgid_index: grh.sgid_index,
                hop_limit: grh.hop_limit,
                traffic_class: grh.traffic_class,
                ..verbs::GlobalRoute::default()
            };
        }
        attr
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    const INFINIBAND: PortCaps =
        PortCaps { ethernet: false, grh_required: false, max_msg_sz: 1 << 30 };
    const ETHERNET: PortCaps = PortCaps { ethernet: true, ..INFINIBAND };

    #[test]
    fn an_impossible_path_is_refused_by_field() {
        let refused = |path: AhAttr, caps: &PortCaps| {
            let error = path.check("create_ah", caps).expect_err("refused");
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            error.to_string()
        };
        let lid = AhAttr::infiniband(1, 5);
        let gid = AhAttr::roce(1, "fe80::1".parse().unwrap(), 0);
        assert_eq!(lid.check("create_ah", &INFINIBAND), Ok(()));
        assert_eq!(gid.check("create_ah", &ETHERNET), Ok(()));
        assert!(refused(lid, &ETHERNET).contains("Ethernet"));
        assert!(refused(lid, &PortCaps { grh_required: true, ..INFINIBAND }).contains("requires"));
        assert!(refused(AhAttr { dlid: 0, ..lid }, &INFINIBAND).contains("neither"));
        assert!(refused(AhAttr { sl: 16, ..lid }, &INFINIBAND).contains("service level"));
        assert!(refused(AhAttr { sl: 8, ..gid }, &ETHERNET).contains("above 7"));
        assert!(refused(AhAttr { src_path_bits: 128, ..lid }, &INFINIBAND).contains("bits"));
        let mut label = gid;
        label.grh.as_mut().unwrap().flow_label = 1 << 20;
        assert!(refused(label, &ETHERNET).contains("flow label"));
        assert!(refused(AhAttr::roce(1, Gid::default(), 0), &ETHERNET).contains("GID is zero"));
    }

    #[test]
    fn the_kernel_gets_every_field_of_a_path() {
        let route = GlobalRoute {
            dgid: Gid::from_bytes(*b"0123456789abcdef"),
            flow_label: 0x12345,
            sgid_index: 7,
            hop_limit: 9,
            traffic_class: 11,
        };
        let path = AhAttr { sl: 3, src_path_bits: 2, static_rate: 6, ..AhAttr::infiniband(2, 77) };
        let plain = path.to_uverbs();
        assert_eq!((plain.is_global, plain.dlid, plain.port_num), (0, 77, 2));
        assert_eq!((plain.sl, plain.src_path_bits, plain.static_rate), (3, 2, 6));
        let global = path.with_grh(route).to_uverbs();
        assert_eq!((global.is_global, global.grh.dgid), (1, *b"0123456789abcdef"));
        assert_eq!((global.grh.flow_label, global.grh.sgid_index), (0x12345, 7));
        assert_eq!((global.grh.hop_limit, global.grh.traffic_class), (9, 11));
    }
}
