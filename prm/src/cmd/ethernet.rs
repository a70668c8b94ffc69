//! Ethernet: offloads of a port, its queues and packet steering.

use super::commands;
use super::srq::WorkQueue;
use crate::fields::{codes, layouts};

layouts! {
    /// Ethernet offload capabilities (group `ETHERNET_OFFLOADS`).
    ///
    /// `mlx5_ifc_per_protocol_networking_offload_caps_bits`.
    pub struct EthernetCaps [0x800] {
        csum_cap, set_csum_cap: 0x0, 1;
        vlan_cap, set_vlan_cap: 0x1, 1;
        lro_cap, set_lro_cap: 0x2, 1;
        wqe_vlan_insert, set_wqe_vlan_insert: 0x7, 1;
        self_lb_en_modifiable, set_self_lb_en_modifiable: 0x8, 1;
        max_lso_cap, set_max_lso_cap: 0xb, 5;
        multi_pkt_send_wqe, set_multi_pkt_send_wqe: 0x10, 2;
        /// An [`EthernetInlineMode`].
        wqe_inline_mode, set_wqe_inline_mode: 0x12, 2;
        rss_ind_tbl_cap, set_rss_ind_tbl_cap: 0x14, 4;
        reg_umr_sq, set_reg_umr_sq: 0x18, 1;
        scatter_fcs, set_scatter_fcs: 0x19, 1;
        enhanced_multi_pkt_send_wqe, set_enhanced_multi_pkt_send_wqe: 0x1a, 1;
        swp, set_swp: 0x20, 1;
    }

    /// Capabilities of one kind of flow table. `mlx5_ifc_flow_table_prop_layout_bits`.
    pub struct FlowTableProperties [0x200] {
        ft_support, set_ft_support: 0x0, 1;
        flow_counter, set_flow_counter: 0x2, 1;
        flow_modify_en, set_flow_modify_en: 0x3, 1;
        modify_root, set_modify_root: 0x4, 1;
        identified_miss_table_mode, set_identified_miss_table_mode: 0x5, 1;
        flow_table_modify, set_flow_table_modify: 0x6, 1;
        log_max_ft_size, set_log_max_ft_size: 0x22, 6;
        max_ft_level, set_max_ft_level: 0x38, 8;
        log_max_ft_num, set_log_max_ft_num: 0x78, 8;
        log_max_flow_counter, set_log_max_flow_counter: 0x90, 8;
        log_max_destination, set_log_max_destination: 0x98, 8;
        log_max_flow, set_log_max_flow: 0xb8, 8;
        ft_field_support, ft_field_support_mut: 0x100 => [u8; 16];
        ft_field_bitmask_support, ft_field_bitmask_support_mut: 0x180 => [u8; 16];
    }

    /// Flow table capabilities (group `FLOW_TABLE`). `mlx5_ifc_flow_table_nic_cap_bits`.
    pub struct FlowTableCaps [0xe00] {
        nic_rx_multi_path_tirs, set_nic_rx_multi_path_tirs: 0x0, 1;
        allow_sniffer_and_nic_rx_shared_tir, set_allow_sniffer_and_nic_rx_shared_tir: 0x2, 1;
        nic_receive, nic_receive_mut: 0x200 => FlowTableProperties;
        nic_receive_rdma, nic_receive_rdma_mut: 0x400 => FlowTableProperties;
        nic_receive_sniffer, nic_receive_sniffer_mut: 0x600 => FlowTableProperties;
        nic_transmit, nic_transmit_mut: 0x800 => FlowTableProperties;
        nic_transmit_rdma, nic_transmit_rdma_mut: 0xa00 => FlowTableProperties;
        nic_transmit_sniffer, nic_transmit_sniffer_mut: 0xc00 => FlowTableProperties;
    }

    /// Capabilities of the quality of service (group `QOS`): limits of the rate of send queues.
    /// `mlx5_ifc_qos_cap_bits`.
    pub struct QosCaps [0x800] {
        packet_pacing, set_packet_pacing: 0x0, 1;
        packet_pacing_burst_bound, set_packet_pacing_burst_bound: 0x5, 1;
        packet_pacing_typical_size, set_packet_pacing_typical_size: 0x6, 1;
        packet_pacing_uid, set_packet_pacing_uid: 0xb, 1;
        packet_pacing_max_rate, set_packet_pacing_max_rate: 0x40, 32;
        packet_pacing_min_rate, set_packet_pacing_min_rate: 0x60, 32;
        packet_pacing_rate_table_size, set_packet_pacing_rate_table_size: 0x90, 16;
    }

    /// An entry of the table of rate limits. `mlx5_ifc_set_pp_rate_limit_context_bits`.
    pub struct PpRateLimitContext [0x180] {
        /// In kb/s; zero for none.
        rate_limit, set_rate_limit: 0x0, 32;
        /// Bytes that may leave at line rate.
        burst_upper_bound, set_burst_upper_bound: 0x20, 32;
        typical_packet_size, set_typical_packet_size: 0x50, 16;
    }

    /// Input of SET_PP_RATE_LIMIT. `mlx5_ifc_set_pp_rate_limit_in_bits`.
    pub struct SetPpRateLimitIn [0x200] {
        opcode, set_opcode: 0x0, 16;
        uid, set_uid: 0x10, 16;
        op_mod, set_op_mod: 0x30, 16;
        rate_limit_index, set_rate_limit_index: 0x50, 16;
        ctx, ctx_mut: 0x80 => PpRateLimitContext;
    }

    /// Output of SET_PP_RATE_LIMIT. `mlx5_ifc_set_pp_rate_limit_out_bits`.
    pub struct SetPpRateLimitOut [0x80] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
    }

    /// A send queue of an Ethernet port. `mlx5_ifc_sqc_bits`.
    pub struct SendQueueContext [0x780] {
        rlky, set_rlky: 0x0, 1;
        flush_in_error_en, set_flush_in_error_en: 0x3, 1;
        allow_multi_pkt_send_wqe, set_allow_multi_pkt_send_wqe: 0x4, 1;
        min_wqe_inline_mode, set_min_wqe_inline_mode: 0x5, 3;
        /// A [`QueueState`].
        state, set_state: 0x8, 4;
        reg_umr, set_reg_umr: 0xc, 1;
        allow_swp, set_allow_swp: 0xd, 1;
        /// A [`TimestampFormat`](super::qp::TimestampFormat).
        ts_format, set_ts_format: 0x1a, 2;
        user_index, set_user_index: 0x28, 24;
        cqn, set_cqn: 0x48, 24;
        packet_pacing_rate_limit_index, set_packet_pacing_rate_limit_index: 0xf0, 16;
        tis_lst_sz, set_tis_lst_sz: 0x100, 16;
        tis_num_0, set_tis_num_0: 0x168, 24;
        wq, wq_mut: 0x180 => WorkQueue;
    }

    /// A receive queue of an Ethernet port. `mlx5_ifc_rqc_bits`.
    pub struct ReceiveQueueContext [0x780] {
        rlky, set_rlky: 0x0, 1;
        delay_drop_en, set_delay_drop_en: 0x1, 1;
        scatter_fcs, set_scatter_fcs: 0x2, 1;
        /// VLAN tags are not stripped (`VLAN strip disable`).
        vsd, set_vsd: 0x3, 1;
        mem_rq_type, set_mem_rq_type: 0x4, 4;
        /// A [`QueueState`].
        state, set_state: 0x8, 4;
        flush_in_error_en, set_flush_in_error_en: 0xd, 1;
        /// A [`TimestampFormat`](super::qp::TimestampFormat).
        ts_format, set_ts_format: 0x1a, 2;
        user_index, set_user_index: 0x28, 24;
        cqn, set_cqn: 0x48, 24;
        counter_set_id, set_counter_set_id: 0x60, 8;
        rmpn, set_rmpn: 0x88, 24;
        wq, wq_mut: 0x180 => WorkQueue;
    }

    /// Input of CREATE_SQ. `mlx5_ifc_create_sq_in_bits`. Followed by 64-bit addresses (`pas`).
    pub struct CreateSqIn [0x880] {
        opcode, set_opcode: 0x0, 16;
        uid, set_uid: 0x10, 16;
        op_mod, set_op_mod: 0x30, 16;
        ctx, ctx_mut: 0x100 => SendQueueContext;
    }

    /// Output of CREATE_SQ. `mlx5_ifc_create_sq_out_bits`.
    pub struct CreateSqOut [0x80] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
        sqn, set_sqn: 0x48, 24;
    }

    /// Input of MODIFY_SQ. `mlx5_ifc_modify_sq_in_bits`.
    pub struct ModifySqIn [0x880] {
        opcode, set_opcode: 0x0, 16;
        uid, set_uid: 0x10, 16;
        op_mod, set_op_mod: 0x30, 16;
        sq_state, set_sq_state: 0x40, 4;
        sqn, set_sqn: 0x48, 24;
        /// Bits of [`modify_sq`].
        modify_bitmask, set_modify_bitmask: 0x80, 64;
        ctx, ctx_mut: 0x100 => SendQueueContext;
    }

    /// Output of MODIFY_SQ. `mlx5_ifc_modify_sq_out_bits`.
    pub struct ModifySqOut [0x80] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
    }

    /// Input of DESTROY_SQ. `mlx5_ifc_destroy_sq_in_bits`.
    pub struct DestroySqIn [0x80] {
        opcode, set_opcode: 0x0, 16;
        uid, set_uid: 0x10, 16;
        op_mod, set_op_mod: 0x30, 16;
        sqn, set_sqn: 0x48, 24;
    }

    /// Output of DESTROY_SQ. `mlx5_ifc_destroy_sq_out_bits`.
    pub struct DestroySqOut [0x80] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
    }

    /// Input of QUERY_SQ. `mlx5_ifc_query_sq_in_bits`.
    pub struct QuerySqIn [0x80] {
        opcode, set_opcode: 0x0, 16;
        op_mod, set_op_mod: 0x30, 16;
        sqn, set_sqn: 0x48, 24;
    }

    /// Output of QUERY_SQ. `mlx5_ifc_query_sq_out_bits`.
    pub struct QuerySqOut [0x880] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
        sq_context, sq_context_mut: 0x100 => SendQueueContext;
    }

    /// Input of CREATE_RQ. `mlx5_ifc_create_rq_in_bits`. Followed by 64-bit addresses (`pas`).
    pub struct CreateRqIn [0x880] {
        opcode, set_opcode: 0x0, 16;
        uid, set_uid: 0x10, 16;
        op_mod, set_op_mod: 0x30, 16;
        ctx, ctx_mut: 0x100 => ReceiveQueueContext;
    }

    /// Output of CREATE_RQ. `mlx5_ifc_create_rq_out_bits`.
    pub struct CreateRqOut [0x80] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
        rqn, set_rqn: 0x48, 24;
    }

    /// Input of MODIFY_RQ. `mlx5_ifc_modify_rq_in_bits`.
    pub struct ModifyRqIn [0x880] {
        opcode, set_opcode: 0x0, 16;
        uid, set_uid: 0x10, 16;
        op_mod, set_op_mod: 0x30, 16;
        rq_state, set_rq_state: 0x40, 4;
        rqn, set_rqn: 0x48, 24;
        /// Bits of [`modify_rq`].
        modify_bitmask, set_modify_bitmask: 0x80, 64;
        ctx, ctx_mut: 0x100 => ReceiveQueueContext;
    }

    /// Output of MODIFY_RQ. `mlx5_ifc_modify_rq_out_bits`.
    pub struct ModifyRqOut [0x80] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
    }

    /// Input of DESTROY_RQ. `mlx5_ifc_destroy_rq_in_bits`.
    pub struct DestroyRqIn [0x80] {
        opcode, set_opcode: 0x0, 16;
        uid, set_uid: 0x10, 16;
        op_mod, set_op_mod: 0x30, 16;
        rqn, set_rqn: 0x48, 24;
    }

    /// Output of DESTROY_RQ. `mlx5_ifc_destroy_rq_out_bits`.
    pub struct DestroyRqOut [0x80] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
    }

    /// Input of QUERY_RQ. `mlx5_ifc_query_rq_in_bits`.
    pub struct QueryRqIn [0x80] {
        opcode, set_opcode: 0x0, 16;
        op_mod, set_op_mod: 0x30, 16;
        rqn, set_rqn: 0x48, 24;
    }

    /// Output of QUERY_RQ. `mlx5_ifc_query_rq_out_bits`.
    pub struct QueryRqOut [0x880] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
        rq_context, rq_context_mut: 0x100 => ReceiveQueueContext;
    }

    /// Input of MODIFY_NIC_VPORT_CONTEXT. `mlx5_ifc_modify_nic_vport_context_in_bits`.
    pub struct ModifyNicVportContextIn [0x1000] {
        opcode, set_opcode: 0x0, 16;
        op_mod, set_op_mod: 0x30, 16;
        other_vport, set_other_vport: 0x40, 1;
        vport_number, set_vport_number: 0x50, 16;
        select_disable_uc_local_lb, set_select_disable_uc_local_lb: 0x74, 1;
        select_disable_mc_local_lb, set_select_disable_mc_local_lb: 0x75, 1;
        select_node_guid, set_select_node_guid: 0x76, 1;
        select_port_guid, set_select_port_guid: 0x77, 1;
        select_min_inline, set_select_min_inline: 0x78, 1;
        select_mtu, set_select_mtu: 0x79, 1;
        select_change_event, set_select_change_event: 0x7a, 1;
        select_promisc, set_select_promisc: 0x7b, 1;
        select_permanent_address, set_select_permanent_address: 0x7c, 1;
        select_addresses_list, set_select_addresses_list: 0x7d, 1;
        select_roce_en, set_select_roce_en: 0x7e, 1;
        nic_vport_context, nic_vport_context_mut: 0x800 => super::port::NicVportContext;
    }
    overlay {
        field_select, set_field_select: 0x60, 32;
    }

    /// Output of MODIFY_NIC_VPORT_CONTEXT. `mlx5_ifc_modify_nic_vport_context_out_bits`.
    pub struct ModifyNicVportContextOut [0x80] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
    }
}

commands! {
    SET_PP_RATE_LIMIT: SetPpRateLimitIn => SetPpRateLimitOut;
    CREATE_SQ: CreateSqIn => CreateSqOut;
    MODIFY_SQ: ModifySqIn => ModifySqOut;
    DESTROY_SQ: DestroySqIn => DestroySqOut;
    QUERY_SQ: QuerySqIn => QuerySqOut;
    CREATE_RQ: CreateRqIn => CreateRqOut;
    MODIFY_RQ: ModifyRqIn => ModifyRqOut;
    DESTROY_RQ: DestroyRqIn => DestroyRqOut;
    QUERY_RQ: QueryRqIn => QueryRqOut;
    MODIFY_NIC_VPORT_CONTEXT: ModifyNicVportContextIn => ModifyNicVportContextOut;
}

/// Bits of `ModifySqIn::modify_bitmask`. `MLX5_MODIFY_SQ_BITMASK_*`, `mlx5_ifc.h`.
pub mod modify_sq {
    /// The index of the rate limit.
    pub const PACKET_PACING_RATE_LIMIT_INDEX: u64 = 1 << 0;
}

/// Bits of `ModifyRqIn::modify_bitmask`. `MLX5_MODIFY_RQ_IN_MODIFY_BITMASK_*`, `mlx5_ifc.h`.
pub mod modify_rq {
    /// Whether VLAN tags are stripped.
    pub const VSD: u64 = 1 << 1;
    /// Whether the frame check sequence is scattered.
    pub const SCATTER_FCS: u64 = 1 << 2;
    /// The counter set.
    pub const RQ_COUNTER_SET_ID: u64 = 1 << 3;
}

codes! {
    /// `SendQueueContext::state`, `ReceiveQueueContext::state`. `MLX5_SQC_STATE_*`,
    /// `MLX5_RQC_STATE_*`, `mlx5_ifc.h`.
    pub struct QueueState {
        RST = 0;
        RDY = 1;
        ERR = 3;
    }

    /// `EthernetCaps::wqe_inline_mode`: the headers of a packet that its WQE must contain inline.
    /// `MLX5_CAP_INLINE_MODE_*`, `device.h`.
    pub struct EthernetInlineMode {
        L2 = 0;
        VPORT_CONTEXT = 1;
        NOT_REQUIRED = 2;
    }
}
