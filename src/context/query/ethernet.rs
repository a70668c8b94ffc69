//! A device's support for raw Ethernet packets.

use crate::context::Inner;
use crate::error::Error;
use mlx5_prm::ethernet::InlineMode;
use mlx5_uapi::mlx5::{
    InlineMode as KernelInlineMode, MultiPacketSend, RxHashFields, RxHashFunctions, TunnelOffloads,
};
use mlx5_uapi::verbs::{DeviceCapFlags, QpType, RawPacketCaps};

/// A device's support for raw Ethernet packets (`raw_packet_caps`, `tso_caps`, `rss_caps` and
/// others of `struct ibv_device_attr_ex` and `struct mlx5dv_context`). All fields are zero on a
/// device without an Ethernet port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct EthernetCaps {
    /// Checksums, VLAN stripping, frame check sequence, packets that wait for a receive.
    pub packets: RawPacketCaps,
    /// Maximum length of a packet that the device cuts into segments; zero without TSO.
    pub max_tso: u32,
    /// The headers that the device needs in the request of each packet.
    pub inline_mode: InlineMode,
    /// Whether flow rules are supported.
    pub flow_rules: bool,
    /// The header fields that a receive hash can cover.
    pub hash_fields: RxHashFields,
    /// The hash functions.
    pub hash_functions: RxHashFunctions,
    /// Maximum number of receive work queues.
    pub max_work_queues: u32,
    /// Maximum number of indirection tables.
    pub max_indirection_tables: u32,
    /// Maximum number of entries of an indirection table.
    pub max_indirection_table_size: u32,
    /// Rate limits of a send queue in kb/s: minimum and maximum. Zero without packet pacing.
    pub rate_limits: (u32, u32),
    /// Whether a rate limit can include a maximum burst.
    pub bursts: bool,
    /// Requests that send several packets.
    pub multi_packet_send: MultiPacketSend,
    /// Tunnels for whose inner packets checksums and hashes work.
    pub tunnels: TunnelOffloads,
    /// Work queues whose requests hold several packets; `None` without them.
    ///
    /// Also `None` if the device did not answer: building a queue with strides then returns the
    /// error.
    pub striding: Option<StridingCaps>,
}

/// The possible requests of a striding work queue
/// ([`WorkQueueBuilder::striding`](crate::WorkQueueBuilder::striding)).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct StridingCaps {
    /// Size of a stride in bytes: minimum and maximum, powers of two.
    pub stride: (u32, u32),
    /// Number of strides of a request: minimum and maximum, powers of two.
    pub strides: (u32, u32),
    /// Minimum size of a request in bytes: the size of a stride times the number of strides. 16 KiB
    /// without DEVX, and on a device that does not report it.
    pub least: u32,
}

impl StridingCaps {
    /// Returns the fewest strides of `stride` bytes that a request can have. `None` if a stride
    /// cannot have this size.
    ///
    /// ```no_run
    /// # fn f(context: &mlx5::Context) -> Result<(), Box<dyn std::error::Error>> {
    /// let builder = context.create_ethernet_queue(1).receives(4096);
    /// let caps = context.query_device().ethernet.striding.ok_or("no strides")?;
    /// let strides = caps.fewest_strides(256).ok_or("no strides of 256 bytes")?;
    /// let queue = builder.striding(256, strides).build()?;
    /// # let _ = queue;
    /// # Ok(())
    /// # }
    /// ```
    pub fn fewest_strides(&self, stride: u32) -> Option<u32> {
        let strides = self.strides.0.max(self.least.checked_div(stride)?);
        self.takes(stride, strides).then_some(strides)
    }

    /// Whether a request can have `strides` strides of `stride` bytes.
    pub fn takes(&self, stride: u32, strides: u32) -> bool {
        let fits =
            |value: u32, (least, most)| value.is_power_of_two() && (least..=most).contains(&value);
        fits(stride, self.stride)
            && fits(strides, self.strides)
            && u64::from(stride) * u64::from(strides) >= u64::from(self.least)
    }

    fn new(caps: &mlx5_uapi::mlx5::StridingRqCaps, log_least: u32) -> Option<Self> {
        let power = |log: u32| 1_u32.checked_shl(log);
        Some(Self {
            stride: (
                power(caps.min_single_stride_log_num_of_bytes)?,
                power(caps.max_single_stride_log_num_of_bytes)?,
            ),
            strides: (
                power(caps.min_single_wqe_log_num_of_strides)?,
                power(caps.max_single_wqe_log_num_of_strides)?,
            ),
            least: power(log_least)?,
        })
    }
}

impl EthernetCaps {
    /// Queries the device, on behalf of `operation`, for the possible requests with strides, which
    /// may fail.
    pub(crate) fn striding(
        context: &Inner,
        operation: &'static str,
    ) -> Result<Option<StridingCaps>, Error> {
        let caps = &context.caps.driver.striding_rq_caps;
        if caps.supported_qpts & 1 << QpType::RawPacket.raw() == 0 {
            return Ok(None);
        }
        Ok(StridingCaps::new(caps, context.log_striding_bytes(operation)?))
    }

    pub(crate) fn new(context: &Inner) -> Self {
        let (device, driver) = (&context.caps.device, &context.caps.driver);
        let has = |types: u32| types & 1 << QpType::RawPacket.raw() != 0;
        let (tso, rss, pacing) = (driver.tso_caps, driver.rss_caps, driver.packet_pacing_caps);
        let limits = has(pacing.supported_qpts);
        let flags = device.device_cap_flags_ex | u64::from(device.base.device_cap_flags);
        let tables = has(device.rss_caps.supported_qpts);
        Self {
            packets: RawPacketCaps::from_bits_retain(device.raw_packet_caps),
            max_tso: if has(tso.supported_qpts) { tso.max_tso } else { 0 },
            inline_mode: inline_mode(context.limits.eth_min_inline),
            // Kernels set the flag for InfiniBand ports too, which have no packets for rules.
            flow_rules: (tables || device.raw_packet_caps != 0)
                && DeviceCapFlags::from_bits_retain(flags)
                    .contains(DeviceCapFlags::MANAGED_FLOW_STEERING),
            hash_fields: RxHashFields::from_bits_retain(rss.rx_hash_fields_mask),
            hash_functions: RxHashFunctions::from_bits_retain(rss.rx_hash_function),
            max_work_queues: device.max_wq_type_rq,
            max_indirection_tables: match tables {
                true => device.rss_caps.max_rwq_indirection_tables,
                false => 0,
            },
            max_indirection_table_size: match tables {
                true => device.rss_caps.max_rwq_indirection_table_size,
                false => 0,
            },
            rate_limits: match limits {
                true => (pacing.qp_rate_limit_min, pacing.qp_rate_limit_max),
                false => (0, 0),
            },
            bursts: limits && pacing.cap_flags & 1 != 0,
            multi_packet_send: MultiPacketSend::from_bits_retain(
                driver.support_multi_pkt_send_wqes,
            ),
            tunnels: TunnelOffloads::from_bits_retain(driver.tunnel_offloads_caps),
            // The builder of a queue queries again, and returns the error.
            striding: Self::striding(context, "query_device").unwrap_or(None),
        }
    }
}

/// Converts the kernel's number. Like libmlx5, treats anything but "none" as the Ethernet header at
/// least: a kernel that reports nothing has a device that needs it.
fn inline_mode(kernel: u8) -> InlineMode {
    match KernelInlineMode::from_raw(kernel) {
        Some(KernelInlineMode::None) => InlineMode::None,
        Some(KernelInlineMode::Ip) => InlineMode::Ip,
        Some(KernelInlineMode::TcpUdp) => InlineMode::TcpUdp,
        Some(KernelInlineMode::L2 | KernelInlineMode::NotApplicable) | None => InlineMode::L2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inline_mode_is_one_less_than_the_kernels_number() {
        let modes = [InlineMode::L2, InlineMode::None, InlineMode::L2, InlineMode::Ip];
        assert_eq!([0, 1, 2, 3].map(inline_mode), modes);
        assert_eq!(
            [4, 5, 255].map(inline_mode),
            [InlineMode::TcpUdp, InlineMode::L2, InlineMode::L2]
        );
    }
}
