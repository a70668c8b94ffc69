//! The device's capabilities: QUERY_HCA_CAP, and other queries of the device itself.

use mlx5_prm::cmd::CommandStatus;
use mlx5_prm::cmd::caps::{
    AtomicCaps, CapGroup, CapMode, HcaCap, PortType, QueryHcaCapIn, QueryHcaCapOut, RoceCaps,
};
use mlx5_prm::cmd::hca::{QueryAdapterOut, QueryIssiOut, SetIssiIn};
use mlx5_prm::cmd::qp::TimestampFormatCap;

use crate::config::{LinkLayer, SimConfig};
use crate::engine::{
    DEEPEST, Device, LARGEST_GID_TABLE, LOG_RQ_TABLE, LONGEST_RUN, LONGEST_WAIT_US,
};
use crate::firmware::ethernet::{self, vport};
use crate::firmware::memic::Memic;
use crate::firmware::{Answer, Failure, syndrome};

/// IEEE's number for Mellanox.
const IEEE_VENDOR: u32 = 0x00_02c9;
/// PCI's number for Mellanox.
const PCI_VENDOR: u32 = 0x15b3;
/// The interface step sequence that the firmware speaks, besides 0.
const ISSI: u32 = 1;
/// Compare-and-swap and fetch-and-add, both also with masks, in `atomic_operations`.
const ATOMIC_OPERATIONS: u32 = 0b1111;
/// Operands of four (with masks) and eight bytes, in `atomic_size_qp`.
const ATOMIC_SIZES: u32 = 1 << 2 | 1 << 3;
/// Operands of atomic operations of PCI that reach the host's memory, in `*_pci_atomic`: of four
/// (bit 0), eight (bit 1) and sixteen bytes (bit 2).
const PCI_FETCH_ADD: u32 = 0b011;
const PCI_SWAP: u32 = 0b010;
const PCI_COMPARE_SWAP: u32 = 0b111;
/// The UDP port of RoCE version 2, and the range of its source ports.
const ROCE_V2_PORT: u32 = 4791;
const ROCE_V2_SOURCE_PORTS: (u32, u32) = (0xc000, 0xffff);
/// RoCE version 1 and version 2 (bits of `roce_version`).
const ROCE_VERSIONS: u32 = 0b101;
/// GRH, IPv4 and IPv6 (bits of `l3_type`).
const ROCE_L3_TYPES: u32 = 0b111;
/// Bytes of a send WQE of a dynamically connected queue pair.
const DC_WQE: u32 = 256;
/// Base-two logarithm of the tables that packets are spread by.
const LOG_TABLES: u32 = 20;
/// Base-two logarithm of the send queues, of the receive queues, and of what send queues send for.
const LOG_QUEUES: u32 = 23;
/// Entries for `gid_table_size` 0 and `pkey_table_size` 0; each step doubles them.
const SMALLEST_GID_TABLE: u32 = 8;
const SMALLEST_PKEY_TABLE: u32 = 128;
/// The largest step of `gid_table_size`.
const LARGEST_GID_STEP: u32 = (LARGEST_GID_TABLE / SMALLEST_GID_TABLE).ilog2();

/// Logarithm of a number, rounded down.
fn log(number: u32) -> u32 {
    number.max(1).ilog2()
}

/// Step of a table whose smallest size is step 0.
fn step(entries: u32, smallest: u32) -> u32 {
    log(entries.next_power_of_two()).saturating_sub(log(smallest))
}

pub(super) fn query(
    device: &Device,
    memic: &Memic,
    set: Option<&HcaCap>,
    input: &QueryHcaCapIn,
    out: &mut QueryHcaCapOut,
) -> Answer {
    let (group, mode) = CapGroup::from_op_mod(input.op_mod());
    let config = device.config();
    match group {
        CapGroup::GENERAL if mode == CapMode::CURRENT && set.is_some() => {
            *out.hca_cap_mut() = set.copied().unwrap_or_default();
        }
        CapGroup::GENERAL => {
            general(config, out.hca_cap_mut());
            out.hca_cap_mut().set_device_memory(memic.exists());
        }
        CapGroup::DEV_MEM => memic.caps(out.device_mem_caps_mut()),
        CapGroup::ATOMIC => atomic(out.atomic_caps_mut()),
        CapGroup::ETHERNET_OFFLOADS if has_ethernet(config) => {
            ethernet::caps(config, out.ethernet_caps_mut())
        }
        CapGroup::FLOW_TABLE if has_ethernet(config) => {
            ethernet::flow_table_caps(out.flow_table_caps_mut());
        }
        CapGroup::ROCE if has_ethernet(config) => roce(config, out.roce_caps_mut()),
        CapGroup::QOS if has_ethernet(config) => ethernet::qos_caps(out.qos_caps_mut()),
        CapGroup::GENERAL_2 if has_ethernet(config) => {
            let least = config.capabilities.log_striding_bytes;
            out.hca_cap_2_mut().set_log_min_stride_wqe_sz(least.into());
        }
        // There is on-demand paging of nothing, and no steering of flows: zeros.
        CapGroup::ODP | CapGroup::FLOW_TABLE | CapGroup::GENERAL_2 | CapGroup::QOS => {}
        _ => return Err(Failure::new(CommandStatus::BAD_OP_ERR, syndrome::UNKNOWN_MODIFIER)),
    }
    Ok(())
}

/// The general capabilities in the current mode: what the driver's own checks need too.
pub(crate) fn general_caps(config: &SimConfig) -> HcaCap {
    let mut cap = HcaCap::default();
    general(config, &mut cap);
    cap
}

fn has_ethernet(config: &SimConfig) -> bool {
    config.ports.iter().any(|port| port.link_layer == LinkLayer::Ethernet)
}

/// The times that completions can have.
fn timestamps(config: &SimConfig) -> TimestampFormatCap {
    match config.capabilities.real_time {
        true => TimestampFormatCap::FREE_RUNNING_AND_REAL_TIME,
        false => TimestampFormatCap::FREE_RUNNING,
    }
}

fn general(config: &SimConfig, cap: &mut HcaCap) {
    let (limits, has) = (&config.limits, &config.capabilities);
    let (ethernet, log_tags) = (has_ethernet(config), config.log_tags());
    // Numbers and sizes of objects.
    cap.set_log_max_qp(log(limits.qps))
        .set_log_max_qp_sz(limits.log_sq_blocks.into())
        .set_log_max_cq(log(limits.cqs))
        .set_log_max_cq_sz(limits.log_cq_entries.into())
        .set_log_max_srq(log(limits.srqs))
        .set_log_max_srq_sz(limits.log_srq_entries.into())
        .set_log_max_rmp(log(limits.srqs))
        .set_log_max_mkey(log(limits.mkeys))
        .set_log_max_pd(log(limits.pds))
        .set_log_max_xrcd(24)
        .set_log_max_transport_domain(16)
        .set_log_max_eq(7)
        .set_max_num_eqs(128)
        .set_log_max_eq_sz(22)
        .set_log_max_mcg(log(limits.multicast_groups))
        .set_max_qp_mcg(limits.qps_per_group)
        .set_max_wqe_sz_sq(limits.sq_wqe_bytes.into())
        .set_max_wqe_sz_rq(limits.rq_wqe_bytes.into())
        .set_max_wqe_sz_sq_dc(DC_WQE)
        .set_log_max_msg(limits.log_message.into())
        .set_log_max_ra_req_qp(limits.log_reads.into())
        .set_log_max_ra_res_qp(limits.log_reads.into())
        .set_log_max_mrw_sz(64)
        .set_log_max_bsf_list_size(16)
        .set_max_indirection(DEEPEST)
        .set_log_max_klm_list_size(16)
        .set_gid_table_size(step(limits.infiniband_gids, SMALLEST_GID_TABLE).min(LARGEST_GID_STEP))
        .set_pkey_table_size(step(limits.pkeys, SMALLEST_PKEY_TABLE));
    // Interfaces.
    cap.set_cqe_version(config.cqe_version.into())
        .set_uar_4k(true)
        .set_uar_sz(log(limits.uars).saturating_sub(8))
        .set_log_uar_page_sz(0)
        .set_num_of_uars_per_page(1)
        .set_log_pg_sz(12)
        .set_bf(config.blueflame)
        .set_log_bf_reg_size(config.log_bf_reg_size.into())
        .set_compact_address_vector(true)
        .set_num_ports(config.ports.len() as u32)
        .set_port_type(if ethernet { PortType::ETHERNET } else { PortType::INFINIBAND }.0)
        .set_ib_virt(!ethernet)
        .set_vport_group_manager(true)
        .set_eth_net_offloads(ethernet)
        .set_qos(ethernet)
        .set_nic_flow_table(ethernet)
        .set_striding_rq(ethernet)
        .set_ext_stride_num_range(ethernet && has.few_strides)
        .set_hca_cap_2(ethernet && has.log_striding_bytes != 0)
        .set_umr_ptr_rlky(ethernet && config.striding)
        .set_log_max_current_uc_list(if ethernet { vport::LOG_UNICAST } else { 0 })
        .set_log_max_current_mc_list(if ethernet { vport::LOG_MULTICAST } else { 0 })
        .set_log_max_vlan_list(if ethernet { vport::LOG_VLANS } else { 0 })
        .set_nic_receive_steering_discard(ethernet)
        .set_disable_local_lb_uc(ethernet)
        .set_disable_local_lb_mc(ethernet)
        .set_log_max_rq(if ethernet { LOG_QUEUES } else { 0 })
        .set_log_max_sq(if ethernet { LOG_QUEUES } else { 0 })
        .set_log_max_tir(if ethernet { ethernet::LOG_OBJECTS } else { 0 })
        .set_log_max_tis(if ethernet { LOG_QUEUES } else { 0 })
        .set_log_max_wq_sz(if ethernet { limits.log_sq_blocks.into() } else { 0 })
        .set_log_max_rqt(if ethernet { LOG_TABLES } else { 0 })
        .set_log_max_rqt_size(if ethernet { LOG_RQ_TABLE } else { 0 })
        .set_roce(ethernet)
        .set_roce_rw_supported(ethernet)
        .set_atomic(true)
        .set_device_frequency_mhz(config.clock_khz / 1000)
        .set_device_frequency_khz(config.clock_khz)
        .set_local_ca_ack_delay(16)
        .set_log_max_uctx(if config.devx { 12 } else { 0 })
        .set_log_max_umem(if config.devx { 16 } else { 0 });
    // Features.
    cap.set_apm(true)
        .set_rc(true)
        .set_uc(true)
        .set_ud(true)
        .set_xrc(true)
        .set_cq_oi(true)
        .set_cq_resize(true)
        .set_cq_moderation(true)
        .set_cq_eq_remap(true)
        .set_block_lb_mc(true)
        .set_pkv(true)
        .set_qkv(true)
        .set_cqe_128_always(true)
        .set_cqe_compression(true)
        .set_cqe_compression_128(true)
        .set_mini_cqe_resp_stride_index(true)
        .set_cqe_compression_max_num(LONGEST_RUN.into())
        .set_cqe_compression_timeout(LONGEST_WAIT_US)
        .set_sctr_data_cqe(true)
        .set_sq_ts_format(timestamps(config).0)
        .set_rq_ts_format(timestamps(config).0)
        .set_tag_matching(log_tags > 0)
        .set_rndv_offload_rc(log_tags > 0)
        .set_log_tag_matching_list_sz(log_tags.into())
        .set_log_max_xrq(if log_tags > 0 { log(limits.srqs) } else { 0 })
        .set_drain_sigerr(has.drain_sigerr)
        .set_qp_data_in_order(has.data_in_order)
        .set_sigerr_cqe(true)
        .set_sho(true)
        .set_sigerr_domain_and_sig_type(has.block_signatures)
        .set_sig_block_4048(has.block_4048)
        .set_sig_crc32c(has.crc32c)
        .set_sig_crc64_xp10(has.crc64_xp10)
        .set_imaicl(true)
        .set_cache_line_128byte(false)
        .set_relaxed_ordering_write(true)
        .set_relaxed_ordering_read(true)
        // A UMR may change all that a key can be created with: mlx5_ib infers the one from the
        // other.
        .set_relaxed_ordering_write_umr(true)
        .set_relaxed_ordering_read_umr(true)
        .set_umr_modify_entity_size_disabled(true);
}

fn atomic(cap: &mut AtomicCaps) {
    cap.set_atomic_req_8b_endianness_mode(1)
        .set_supported_atomic_req_8b_endianness_mode_1(true)
        .set_atomic_operations(ATOMIC_OPERATIONS)
        .set_atomic_size_qp(ATOMIC_SIZES)
        .set_atomic_size_dc(ATOMIC_SIZES)
        .set_fetch_add_pci_atomic(PCI_FETCH_ADD)
        .set_swap_pci_atomic(PCI_SWAP)
        .set_compare_swap_pci_atomic(PCI_COMPARE_SWAP);
}

fn roce(config: &SimConfig, cap: &mut RoceCaps) {
    cap.set_qp_ts_format(timestamps(config).0)
        .set_l3_type(ROCE_L3_TYPES)
        .set_roce_version(ROCE_VERSIONS)
        .set_r_roce_dest_udp_port(ROCE_V2_PORT)
        .set_r_roce_min_src_udp_port(ROCE_V2_SOURCE_PORTS.0)
        .set_r_roce_max_src_udp_port(ROCE_V2_SOURCE_PORTS.1)
        .set_sw_r_roce_src_udp_port(true)
        .set_roce_address_table_size(config.limits.gids);
}

pub(super) fn adapter(device: &Device, out: &mut QueryAdapterOut) -> Answer {
    let adapter = out.query_adapter_struct_mut();
    adapter.set_ieee_vendor_id(IEEE_VENDOR).set_vsd_vendor_id(PCI_VENDOR);
    let board = device.config().model.board_id().as_bytes();
    adapter.vsd_contd_psid_mut()[..board.len()].copy_from_slice(board);
    Ok(())
}

pub(super) fn query_issi(out: &mut QueryIssiOut) -> Answer {
    out.set_current_issi(ISSI).set_supported_issi_dw0(1 << ISSI | 1);
    Ok(())
}

pub(super) fn set_issi(input: &SetIssiIn) -> Answer {
    if input.current_issi() > ISSI {
        return Err(Failure::param(syndrome::INVALID_VALUE));
    }
    Ok(())
}
