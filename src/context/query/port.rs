//! Port properties.

use crate::link::PortCaps;
use mlx5_uapi::verbs::{LinkLayer, Mtu, PortState, QueryPortRespEx};
use std::fmt;

/// Returns the payload size in bytes of a packet at this MTU.
pub const fn mtu_bytes(mtu: Mtu) -> u32 {
    128 << mtu.raw()
}

/// One speed per line: the kernel's bit, name, Mbit/s per lane.
macro_rules! speeds {
    ($($name:ident = $bit:literal, $text:literal, $mbps:literal;)*) => {
        /// Speed of one lane of a link (`IB_SPEED_*`).
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum LinkSpeed { $(#[doc = $text] $name,)* }

        impl LinkSpeed {
            const fn from_raw(raw: u32) -> Option<Self> {
                match raw { $($bit => Some(Self::$name),)* _ => None }
            }

            /// Returns the speed of a lane in Mbit/s.
            pub const fn lane_mbps(self) -> u32 {
                match self { $(Self::$name => $mbps,)* }
            }
        }

        impl fmt::Display for LinkSpeed {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Self::$name => $text,)* })
            }
        }
    };
}

speeds! {
    Sdr = 1, "SDR", 2_500;
    Ddr = 2, "DDR", 5_000;
    Qdr = 4, "QDR", 10_000;
    Fdr10 = 8, "FDR10", 10_000;
    Fdr = 16, "FDR", 14_000;
    Edr = 32, "EDR", 25_000;
    Hdr = 64, "HDR", 50_000;
    Ndr = 128, "NDR", 100_000;
    Xdr = 256, "XDR", 200_000;
}

/// One physical state per line: number, name, text.
macro_rules! physical_states {
    ($($name:ident = $raw:literal, $text:literal;)*) => {
        /// Physical state of a port (`IB_PORT_PHYS_STATE_*`).
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum PhysicalState {
            $(#[doc = $text] $name,)*
            /// Unknown.
            Unknown,
        }

        impl PhysicalState {
            const fn from_raw(raw: u8) -> Self {
                match raw { $($raw => Self::$name,)* _ => Self::Unknown }
            }
        }

        impl fmt::Display for PhysicalState {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Self::$name => $text,)* Self::Unknown => "unknown" })
            }
        }
    };
}

physical_states! {
    Sleep = 1, "sleep";
    Polling = 2, "polling";
    Disabled = 3, "disabled";
    Training = 4, "port configuration training";
    LinkUp = 5, "link up";
    LinkErrorRecovery = 6, "link error recovery";
    PhyTest = 7, "phy test";
}

/// Properties of a port (`struct ibv_port_attr`).
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct PortAttr {
    /// Logical state.
    pub state: PortState,
    /// Physical state.
    pub phys_state: PhysicalState,
    /// Link layer. Ethernet means RoCE.
    pub link_layer: LinkLayer,
    /// Maximum MTU of the port, if known.
    pub max_mtu: Option<Mtu>,
    /// Active MTU, if known.
    pub active_mtu: Option<Mtu>,
    /// LID, on InfiniBand.
    pub lid: u16,
    /// LMC: the number of low LID bits that the port may choose itself.
    pub lmc: u8,
    /// LID of the subnet manager.
    pub sm_lid: u16,
    /// Service level to the subnet manager.
    pub sm_sl: u8,
    /// Maximum message size in bytes.
    pub max_msg_sz: u32,
    /// Number of entries of the GID table.
    pub gid_tbl_len: u32,
    /// Number of entries of the P_Key table.
    pub pkey_tbl_len: u16,
    /// Whether every path needs a GRH (`IBV_QPF_GRH_REQUIRED`).
    pub grh_required: bool,
    /// Number of lanes of the link, if known.
    pub active_width: Option<u32>,
    /// Speed of a lane, if known.
    pub active_speed: Option<LinkSpeed>,
    /// Capability bits (`IBV_PORT_*`).
    pub port_cap_flags: u32,
    /// More capability bits.
    pub port_cap_flags2: u16,
    /// Number of virtual lanes, in the kernel's encoding.
    pub max_vl_num: u8,
    /// Subnet timeout (maximum propagation delay), in the kernel's encoding.
    pub subnet_timeout: u8,
    /// Type of initialization performed.
    pub init_type_reply: u8,
    /// Number of packets with a bad P_Key.
    pub bad_pkey_cntr: u32,
    /// Number of packets with a bad Q_Key.
    pub qkey_viol_cntr: u32,
}

impl PortAttr {
    /// Converts the kernel's answer. Unknown numbers become `None` or a default.
    pub(crate) fn from_kernel(answer: &QueryPortRespEx) -> Self {
        let (caps, port) = (PortCaps::of(answer), &answer.legacy_resp);
        let speed = match answer.active_speed_ex {
            0 => u32::from(port.active_speed),
            extended => extended,
        };
        Self {
            state: PortState::from_raw(port.state).unwrap_or(PortState::Nop),
            phys_state: PhysicalState::from_raw(port.phys_state),
            link_layer: match caps.ethernet {
                true => LinkLayer::Ethernet,
                false => LinkLayer::InfiniBand,
            },
            max_mtu: Mtu::from_raw(port.max_mtu),
            active_mtu: Mtu::from_raw(port.active_mtu),
            lid: port.lid,
            lmc: port.lmc,
            sm_lid: port.sm_lid,
            sm_sl: port.sm_sl,
            max_msg_sz: caps.max_msg_sz,
            gid_tbl_len: port.gid_tbl_len,
            pkey_tbl_len: port.pkey_tbl_len,
            grh_required: caps.grh_required,
            active_width: match port.active_width {
                1 => Some(1),
                2 => Some(4),
                4 => Some(8),
                8 => Some(12),
                16 => Some(2),
                _ => None,
            },
            active_speed: LinkSpeed::from_raw(speed),
            port_cap_flags: port.port_cap_flags,
            port_cap_flags2: answer.port_cap_flags2,
            max_vl_num: port.max_vl_num,
            subnet_timeout: port.subnet_timeout,
            init_type_reply: port.init_type_reply,
            bad_pkey_cntr: port.bad_pkey_cntr,
            qkey_viol_cntr: port.qkey_viol_cntr,
        }
    }

    /// Whether the port carries traffic.
    pub fn is_active(&self) -> bool {
        matches!(self.state, PortState::Active | PortState::ActiveDefer)
    }

    /// Returns the speed of the whole link in Mbit/s, if known.
    pub fn mbps(&self) -> Option<u32> {
        Some(self.active_width? * self.active_speed?.lane_mbps())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mlx5_uapi::verbs::QueryPortResp;

    fn answer() -> QueryPortRespEx {
        let legacy_resp = QueryPortResp {
            state: 4,
            max_mtu: 5,
            active_mtu: 3,
            active_width: 2,
            active_speed: 32,
            phys_state: 5,
            link_layer: 2,
            flags: 1,
            max_msg_sz: 1 << 30,
            gid_tbl_len: 255,
            ..QueryPortResp::default()
        };
        QueryPortRespEx { legacy_resp, ..QueryPortRespEx::default() }
    }

    #[test]
    fn a_port_says_what_it_is() {
        let port = PortAttr::from_kernel(&answer());
        assert!(port.is_active() && port.grh_required);
        assert_eq!(port.link_layer, LinkLayer::Ethernet);
        assert_eq!(port.max_mtu.map(mtu_bytes), Some(4096));
        assert_eq!(port.active_mtu.map(mtu_bytes), Some(1024));
        assert_eq!(port.phys_state.to_string(), "link up");
        assert_eq!(port.mbps(), Some(100_000));
        assert_eq!(port.max_msg_sz, 1 << 30);
    }

    #[test]
    fn newer_speeds_stand_in_a_field_of_their_own() {
        let port = PortAttr::from_kernel(&QueryPortRespEx { active_speed_ex: 256, ..answer() });
        assert_eq!(port.active_speed, Some(LinkSpeed::Xdr));
        assert_eq!(port.mbps(), Some(800_000));
    }

    #[test]
    fn unknown_numbers_count_as_not_reported() {
        let mut odd = answer();
        odd.legacy_resp.active_mtu = 99;
        odd.legacy_resp.active_width = 3;
        odd.legacy_resp.active_speed = 3;
        odd.legacy_resp.link_layer = 0;
        let port = PortAttr::from_kernel(&odd);
        assert_eq!(port.active_mtu, None);
        assert_eq!(port.mbps(), None);
        assert_eq!(port.link_layer, LinkLayer::InfiniBand);
    }
}
