//! Device properties.

use crate::context::query::ethernet::EthernetCaps;
use crate::context::{Guid, Inner};
use mlx5_uapi::{
    mlx5::{CqeCompFormat, QueryDeviceFlags},
    verbs::{AtomicCap, DeviceCapFlags},
    write_cmd::TmCaps,
};
use mlx5_wqe::tag_matching::TagRecords;

/// Fields that are copied from the kernel's answer: name, type, meaning.
macro_rules! device_attr {
    ($($name:ident: $type:ty => $doc:literal;)*) => {
        /// Properties of a device (`struct ibv_device_attr_ex`, `struct mlx5dv_context`).
        #[derive(Clone, PartialEq, Eq, Debug)]
        #[non_exhaustive]
        pub struct DeviceAttr {
            /// Firmware version, as text.
            pub fw_ver: String,
            /// Node GUID.
            pub node_guid: Guid,
            /// GUID of the system that the device is part of.
            pub sys_image_guid: Guid,
            /// Capability flags.
            pub device_cap_flags: DeviceCapFlags,
            /// The accesses to which atomics are atomic.
            pub atomic_cap: AtomicCap,
            $(#[doc = $doc] pub $name: $type,)*
            /// Mask of the valid bits of a timestamp.
            pub timestamp_mask: u64,
            /// Frequency of the timestamp clock in kHz.
            pub hca_core_clock: u64,
            /// Maximum size of a device memory allocation in bytes.
            pub max_dm_size: u64,
            /// On-demand paging.
            pub odp: OnDemandCaps,
            /// Limits of queues.
            pub queues: QueueLimits,
            /// Properties of completion queues.
            pub completions: CompletionCaps,
            /// Tag matching.
            pub tag_matching: TagMatchingCaps,
            /// Raw Ethernet packets.
            pub ethernet: EthernetCaps,
        }

        impl DeviceAttr {
            pub(crate) fn new(context: &Inner) -> Self {
                let ex = &context.caps.device;
                let base = &ex.base;
                let flags = match ex.device_cap_flags_ex {
                    0 => u64::from(base.device_cap_flags),
                    extended => extended,
                };
                Self {
                    fw_ver: match context.info.fw_version.as_str() {
                        "" => firmware_version(base.fw_ver),
                        version => version.to_owned(),
                    },
                    node_guid: base.node_guid.into(),
                    sys_image_guid: base.sys_image_guid.into(),
                    device_cap_flags: DeviceCapFlags::from_bits_retain(flags),
                    atomic_cap: AtomicCap::from_raw(base.atomic_cap).unwrap_or(AtomicCap::None),
                    $($name: base.$name,)*
                    timestamp_mask: ex.timestamp_mask,
                    hca_core_clock: ex.hca_core_clock,
                    max_dm_size: ex.max_dm_size,
                    odp: OnDemandCaps::new(context),
                    queues: QueueLimits::new(context),
                    completions: CompletionCaps::new(context),
                    tag_matching: TagMatchingCaps::new(context),
                    ethernet: EthernetCaps::new(context),
                }
            }
        }
    };
}

device_attr! {
    vendor_id: u32 => "Vendor, by its OUI.";
    vendor_part_id: u32 => "PCI device.";
    hw_ver: u32 => "Revision of the hardware.";
    phys_port_cnt: u8 => "Ports.";
    max_mr_size: u64 => "The longest memory region.";
    page_size_cap: u64 => "Page sizes, a bit for each.";
    max_qp: u32 => "Queue pairs.";
    max_qp_wr: u32 => "Requests of a queue.";
    max_sge: u32 => "Scatter or gather entries of a request.";
    max_sge_rd: u32 => "Scatter entries of an RDMA read.";
    max_cq: u32 => "Completion queues.";
    max_cqe: u32 => "Entries of a completion queue.";
    max_mr: u32 => "Memory regions.";
    max_pd: u32 => "Protection domains.";
    max_mw: u32 => "Memory windows.";
    max_ah: u32 => "Address handles.";
    max_srq: u32 => "Shared receive queues.";
    max_srq_wr: u32 => "Requests of one.";
    max_srq_sge: u32 => "Scatter entries of such a request.";
    max_qp_rd_atom: u32 => "Reads and atomics that a queue pair serves at a time.";
    max_qp_init_rd_atom: u32 => "Reads and atomics that a queue pair starts at a time.";
    max_res_rd_atom: u32 => "Reads and atomics that the device serves at a time.";
    max_mcast_grp: u32 => "Multicast groups.";
    max_mcast_qp_attach: u32 => "Queue pairs in a multicast group.";
    max_total_mcast_qp_attach: u32 => "Queue pairs in all of them.";
    max_pkeys: u16 => "P_Keys.";
    local_ca_ack_delay: u8 => "Delay of an acknowledgement, as the kernel encodes it.";
}

impl DeviceAttr {
    /// Whether atomics are atomic at least to other atomics of the same device.
    pub fn has_atomics(&self) -> bool {
        self.atomic_cap != AtomicCap::None
    }
}

/// Formats the kernel's packed number as `major.minor.patch`.
fn firmware_version(raw: u64) -> String {
    format!("{}.{}.{:04}", raw >> 32, raw >> 16 & 0xffff, raw & 0xffff)
}

/// On-demand paging (`struct ibv_odp_caps`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct OnDemandCaps {
    /// Whether on-demand paging is supported.
    pub supported: bool,
    /// Whether one region can cover the whole address space.
    pub implicit: bool,
    /// Operations on RC, as bits: send 1, receive 2, write 4, read 8, atomic 16, SRQ receive 32.
    pub rc: u32,
    /// Operations on UC, in the same bits.
    pub uc: u32,
    /// Operations on UD, in the same bits.
    pub ud: u32,
}

impl OnDemandCaps {
    fn new(context: &Inner) -> Self {
        let caps = &context.caps.device.odp_caps;
        Self {
            supported: caps.general_caps & 1 != 0,
            implicit: caps.general_caps & 2 != 0,
            rc: caps.rc_odp_caps,
            uc: caps.uc_odp_caps,
            ud: caps.ud_odp_caps,
        }
    }
}

/// Tag matching (`struct ibv_tm_caps`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct TagMatchingCaps {
    /// Maximum number of tags in a list; zero without tag matching.
    pub max_num_tags: u32,
    /// Maximum number of outstanding list operations.
    pub max_ops: u32,
    /// Maximum number of scatter entries of a tag.
    pub max_sge: u32,
    /// Whether the device fetches the data of a rendezvous that arrives on RC (`IBV_TM_CAP_RC`).
    pub rc: bool,
    /// Maximum size of a rendezvous request in bytes, headers included.
    pub max_rndv_hdr_size: u32,
}

impl TagMatchingCaps {
    const RC: u32 = 1 << 0;

    pub(crate) fn new(context: &Inner) -> Self {
        Self::of(&context.caps.device.tm_caps)
    }

    fn of(caps: &TmCaps) -> Self {
        Self {
            // The device may have more tags than a list can count.
            max_num_tags: caps.max_num_tags.min(TagRecords::MAX_TAGS),
            max_ops: caps.max_ops,
            max_sge: caps.max_sge,
            rc: caps.flags & Self::RC != 0,
            max_rndv_hdr_size: caps.max_rndv_hdr_size,
        }
    }
}

/// Limits of queues and UAR registers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct QueueLimits {
    /// Maximum number of basic blocks in a send queue.
    pub max_send_wqebb: u32,
    /// Maximum size of a send WQE in bytes.
    pub max_sq_desc_sz: u16,
    /// Maximum number of WQEs in a receive queue.
    pub max_recv_wr: u32,
    /// Maximum number of WQEs in a shared receive queue.
    pub max_srq_recv_wr: u32,
    /// Maximum size of a receive WQE in bytes.
    pub max_rq_desc_sz: u16,
    /// Size of a BlueFlame register in bytes, both halves; zero without BlueFlame.
    pub bf_reg_size: u32,
    /// Number of BlueFlame registers that the kernel allocates dynamically.
    pub num_dyn_bfregs: u32,
}

impl QueueLimits {
    fn new(context: &Inner) -> Self {
        let limits = &context.limits;
        Self {
            max_send_wqebb: limits.max_send_wqebb,
            max_sq_desc_sz: limits.max_sq_desc_sz,
            max_recv_wr: limits.max_recv_wr,
            max_srq_recv_wr: limits.max_srq_recv_wr,
            max_rq_desc_sz: limits.max_rq_desc_sz,
            bf_reg_size: limits.bf_reg_size,
            num_dyn_bfregs: limits.num_dyn_bfregs,
        }
    }
}

/// Properties of completion queues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct CompletionCaps {
    /// CQE version.
    pub cqe_version: u8,
    /// Maximum number of completions in one compressed run; zero without compression.
    pub max_compressed: u32,
    /// Supported formats of mini CQEs.
    pub compression_formats: CqeCompFormat,
    /// Whether 128-byte CQEs can be compressed.
    pub compressed_128: bool,
    /// Whether the device can pad short CQE writes to 128 bytes.
    pub padded_128: bool,
    /// Maximum number of completions that moderation combines into one event; zero without
    /// moderation.
    pub max_moderation_count: u16,
    /// Maximum moderation period in microseconds.
    pub max_moderation_period: u16,
}

impl CompletionCaps {
    fn new(context: &Inner) -> Self {
        let driver = &context.caps.driver;
        let flags = QueryDeviceFlags::from_bits_retain(driver.flags);
        let moderation = &context.caps.device.cq_moderation_caps;
        let formats = driver.cqe_comp_caps.supported_format;
        Self {
            cqe_version: context.limits.cqe_version,
            max_compressed: driver.cqe_comp_caps.max_num,
            compression_formats: CqeCompFormat::from_bits_retain(formats),
            compressed_128: flags.contains(QueryDeviceFlags::CQE_128B_COMP),
            padded_128: flags.contains(QueryDeviceFlags::CQE_128B_PAD),
            max_moderation_count: moderation.max_cq_moderation_count,
            max_moderation_period: moderation.max_cq_moderation_period,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mlx5_wqe::SharedReceiveRecords;
    use std::sync::Arc;

    #[test]
    fn a_firmware_version_is_three_numbers() {
        assert_eq!(firmware_version(28 << 32 | 39 << 16 | 1002), "28.39.1002");
        assert_eq!(firmware_version(16 << 32 | 35 << 16 | 52), "16.35.0052");
    }

    /// Every number of tags that is reported can also be requested, whatever the kernel reports.
    #[test]
    fn no_list_is_offered_that_has_more_tags_than_can_be_counted() {
        for (reported, offered) in [(0, 0), (127, 127), (0xffff, 0x7fff), (u32::MAX, 0x7fff)] {
            let caps = TagMatchingCaps::of(&TmCaps { max_num_tags: reported, ..TmCaps::default() });
            assert_eq!(caps.max_num_tags, offered, "{reported}");
        }
        let requests = Arc::new(SharedReceiveRecords::new(1));
        assert_eq!(TagRecords::new(0x7fff, 1, requests).max_tags(), 0x7fff);
    }
}
