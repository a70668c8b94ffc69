//! Flow tables: their groups and entries, what an entry matches, and counters.

use super::commands;
use crate::fields::{codes, layouts};

layouts! {
    /// The fields of a packet's headers from Ethernet to the transport.
    ///
    /// `mlx5_ifc_fte_match_set_lyr_2_4_bits`. An IPv4 address lies in the last four bytes.
    pub struct MatchHeaders [0x200] {
        smac_47_16, set_smac_47_16: 0x0, 32;
        smac_15_0, set_smac_15_0: 0x20, 16;
        ethertype, set_ethertype: 0x30, 16;
        dmac_47_16, set_dmac_47_16: 0x40, 32;
        dmac_15_0, set_dmac_15_0: 0x60, 16;
        first_prio, set_first_prio: 0x70, 3;
        first_cfi, set_first_cfi: 0x73, 1;
        first_vid, set_first_vid: 0x74, 12;
        ip_protocol, set_ip_protocol: 0x80, 8;
        ip_dscp, set_ip_dscp: 0x88, 6;
        ip_ecn, set_ip_ecn: 0x8e, 2;
        cvlan_tag, set_cvlan_tag: 0x90, 1;
        svlan_tag, set_svlan_tag: 0x91, 1;
        frag, set_frag: 0x92, 1;
        ip_version, set_ip_version: 0x93, 4;
        tcp_flags, set_tcp_flags: 0x97, 9;
        tcp_sport, set_tcp_sport: 0xa0, 16;
        tcp_dport, set_tcp_dport: 0xb0, 16;
        ipv4_ihl, set_ipv4_ihl: 0xd0, 4;
        ttl_hoplimit, set_ttl_hoplimit: 0xd8, 8;
        udp_sport, set_udp_sport: 0xe0, 16;
        udp_dport, set_udp_dport: 0xf0, 16;
        src_ipv4_src_ipv6, src_ipv4_src_ipv6_mut: 0x100 => [u8; 16];
        dst_ipv4_dst_ipv6, dst_ipv4_dst_ipv6_mut: 0x180 => [u8; 16];
    }

    /// Further fields to match. `mlx5_ifc_fte_match_set_misc_bits`.
    pub struct MatchMisc [0x200] {
        gre_c_present, set_gre_c_present: 0x0, 1;
        gre_k_present, set_gre_k_present: 0x2, 1;
        gre_s_present, set_gre_s_present: 0x3, 1;
        source_sqn, set_source_sqn: 0x8, 24;
        source_port, set_source_port: 0x30, 16;
        outer_second_prio, set_outer_second_prio: 0x40, 3;
        outer_second_cfi, set_outer_second_cfi: 0x43, 1;
        outer_second_vid, set_outer_second_vid: 0x44, 12;
        inner_second_prio, set_inner_second_prio: 0x50, 3;
        inner_second_cfi, set_inner_second_cfi: 0x53, 1;
        inner_second_vid, set_inner_second_vid: 0x54, 12;
        outer_second_cvlan_tag, set_outer_second_cvlan_tag: 0x60, 1;
        inner_second_cvlan_tag, set_inner_second_cvlan_tag: 0x61, 1;
        outer_second_svlan_tag, set_outer_second_svlan_tag: 0x62, 1;
        inner_second_svlan_tag, set_inner_second_svlan_tag: 0x63, 1;
        gre_protocol, set_gre_protocol: 0x70, 16;
        gre_key, set_gre_key: 0x80, 32;
        vxlan_vni, set_vxlan_vni: 0xa0, 24;
        bth_opcode, set_bth_opcode: 0xb8, 8;
        geneve_vni, set_geneve_vni: 0xc0, 24;
        geneve_oam, set_geneve_oam: 0xdf, 1;
        outer_ipv6_flow_label, set_outer_ipv6_flow_label: 0xec, 20;
        inner_ipv6_flow_label, set_inner_ipv6_flow_label: 0x10c, 20;
        geneve_opt_len, set_geneve_opt_len: 0x12a, 6;
        geneve_protocol_type, set_geneve_protocol_type: 0x130, 16;
        bth_dst_qp, set_bth_dst_qp: 0x148, 24;
        inner_esp_spi, set_inner_esp_spi: 0x160, 32;
        outer_esp_spi, set_outer_esp_spi: 0x180, 32;
    }

    /// A label of MPLS. `mlx5_ifc_fte_match_mpls_bits`.
    pub struct MatchMpls [0x20] {
        mpls_label, set_mpls_label: 0x0, 20;
        mpls_exp, set_mpls_exp: 0x14, 3;
        mpls_s_bos, set_mpls_s_bos: 0x17, 1;
        mpls_ttl, set_mpls_ttl: 0x18, 8;
    }

    /// Labels of MPLS, and registers. `mlx5_ifc_fte_match_set_misc2_bits`.
    pub struct MatchMisc2 [0x200] {
        outer_first_mpls, outer_first_mpls_mut: 0x0 => MatchMpls;
        inner_first_mpls, inner_first_mpls_mut: 0x20 => MatchMpls;
        outer_first_mpls_over_gre, outer_first_mpls_over_gre_mut: 0x40 => MatchMpls;
        outer_first_mpls_over_udp, outer_first_mpls_over_udp_mut: 0x60 => MatchMpls;
        metadata_reg_c_0, set_metadata_reg_c_0: 0x160, 32;
        metadata_reg_a, set_metadata_reg_a: 0x180, 32;
    }

    /// All that an entry can match, as values or as a mask. `mlx5_ifc_fte_match_param_bits`.
    pub struct MatchParameters [0x1000] {
        outer_headers, outer_headers_mut: 0x0 => MatchHeaders;
        misc_parameters, misc_parameters_mut: 0x200 => MatchMisc;
        inner_headers, inner_headers_mut: 0x400 => MatchHeaders;
        misc_parameters_2, misc_parameters_2_mut: 0x600 => MatchMisc2;
        misc_parameters_3, misc_parameters_3_mut: 0x800 => [u8; 64];
        misc_parameters_4, misc_parameters_4_mut: 0xa00 => [u8; 64];
        misc_parameters_5, misc_parameters_5_mut: 0xc00 => [u8; 64];
    }

    /// A flow table. `mlx5_ifc_flow_table_context_bits`.
    pub struct FlowTableContext [0x140] {
        reformat_en, set_reformat_en: 0x0, 1;
        decap_en, set_decap_en: 0x1, 1;
        sw_owner, set_sw_owner: 0x2, 1;
        termination_table, set_termination_table: 0x3, 1;
        /// A [`TableMiss`].
        table_miss_action, set_table_miss_action: 0x4, 4;
        level, set_level: 0x8, 8;
        log_size, set_log_size: 0x18, 8;
        table_miss_id, set_table_miss_id: 0x28, 24;
        lag_master_next_table_id, set_lag_master_next_table_id: 0x48, 24;
    }

    /// Input of CREATE_FLOW_TABLE. `mlx5_ifc_create_flow_table_in_bits`.
    pub struct CreateFlowTableIn [0x200] {
        opcode, set_opcode: 0x0, 16;
        uid, set_uid: 0x10, 16;
        op_mod, set_op_mod: 0x30, 16;
        other_vport, set_other_vport: 0x40, 1;
        vport_number, set_vport_number: 0x50, 16;
        /// A [`FlowTableType`].
        table_type, set_table_type: 0x80, 8;
        flow_table_context, flow_table_context_mut: 0xc0 => FlowTableContext;
    }

    /// Output of CREATE_FLOW_TABLE. `mlx5_ifc_create_flow_table_out_bits`.
    pub struct CreateFlowTableOut [0x80] {
        status, set_status: 0x0, 8;
        icm_address_63_40, set_icm_address_63_40: 0x8, 24;
        syndrome, set_syndrome: 0x20, 32;
        icm_address_39_32, set_icm_address_39_32: 0x40, 8;
        table_id, set_table_id: 0x48, 24;
        icm_address_31_0, set_icm_address_31_0: 0x60, 32;
    }

    /// Input of MODIFY_FLOW_TABLE. `mlx5_ifc_modify_flow_table_in_bits`.
    pub struct ModifyFlowTableIn [0x200] {
        opcode, set_opcode: 0x0, 16;
        op_mod, set_op_mod: 0x30, 16;
        other_vport, set_other_vport: 0x40, 1;
        vport_number, set_vport_number: 0x50, 16;
        /// The fields that change: the table of a miss in the low bit.
        modify_field_select, set_modify_field_select: 0x70, 16;
        table_type, set_table_type: 0x80, 8;
        table_id, set_table_id: 0xa8, 24;
        flow_table_context, flow_table_context_mut: 0xc0 => FlowTableContext;
    }

    /// Output of MODIFY_FLOW_TABLE. `mlx5_ifc_modify_flow_table_out_bits`.
    pub struct ModifyFlowTableOut [0x80] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
    }

    /// Input of SET_FLOW_TABLE_ROOT. `mlx5_ifc_set_flow_table_root_in_bits`.
    pub struct SetFlowTableRootIn [0x200] {
        opcode, set_opcode: 0x0, 16;
        /// 1 disconnects the root.
        op_mod, set_op_mod: 0x30, 16;
        other_vport, set_other_vport: 0x40, 1;
        vport_number, set_vport_number: 0x50, 16;
        table_type, set_table_type: 0x80, 8;
        table_id, set_table_id: 0xa8, 24;
        underlay_qpn, set_underlay_qpn: 0xc8, 24;
    }

    /// Output of SET_FLOW_TABLE_ROOT. `mlx5_ifc_set_flow_table_root_out_bits`.
    pub struct SetFlowTableRootOut [0x80] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
    }

    /// Input of DESTROY_FLOW_TABLE. `mlx5_ifc_destroy_flow_table_in_bits`.
    pub struct DestroyFlowTableIn [0x200] {
        opcode, set_opcode: 0x0, 16;
        op_mod, set_op_mod: 0x30, 16;
        table_type, set_table_type: 0x80, 8;
        table_id, set_table_id: 0xa8, 24;
    }

    /// Output of DESTROY_FLOW_TABLE. `mlx5_ifc_destroy_flow_table_out_bits`.
    pub struct DestroyFlowTableOut [0x80] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
    }

    /// Input of CREATE_FLOW_GROUP. `mlx5_ifc_create_flow_group_in_bits`.
    pub struct CreateFlowGroupIn [0x2000] {
        opcode, set_opcode: 0x0, 16;
        op_mod, set_op_mod: 0x30, 16;
        other_vport, set_other_vport: 0x40, 1;
        vport_number, set_vport_number: 0x50, 16;
        table_type, set_table_type: 0x80, 8;
        group_type, set_group_type: 0x8c, 4;
        table_id, set_table_id: 0xa8, 24;
        start_flow_index, set_start_flow_index: 0xe0, 32;
        end_flow_index, set_end_flow_index: 0x120, 32;
        /// Bits of [`match_criteria`].
        match_criteria_enable, set_match_criteria_enable: 0x1f8, 8;
        match_criteria, match_criteria_mut: 0x200 => MatchParameters;
    }

    /// Output of CREATE_FLOW_GROUP. `mlx5_ifc_create_flow_group_out_bits`.
    pub struct CreateFlowGroupOut [0x80] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
        group_id, set_group_id: 0x48, 24;
    }

    /// Input of DESTROY_FLOW_GROUP. `mlx5_ifc_destroy_flow_group_in_bits`.
    pub struct DestroyFlowGroupIn [0x200] {
        opcode, set_opcode: 0x0, 16;
        op_mod, set_op_mod: 0x30, 16;
        table_type, set_table_type: 0x80, 8;
        table_id, set_table_id: 0xa8, 24;
        group_id, set_group_id: 0xc0, 32;
    }

    /// Output of DESTROY_FLOW_GROUP. `mlx5_ifc_destroy_flow_group_out_bits`.
    pub struct DestroyFlowGroupOut [0x80] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
    }

    /// The destination of an entry's packets. `mlx5_ifc_dest_format_struct_bits`; a counter has its
    /// number in the whole first dword (`mlx5_ifc_flow_counter_list_bits`).
    pub struct FlowDestination [0x40] {
        /// A [`DestinationType`].
        destination_type, set_destination_type: 0x0, 8;
        destination_id, set_destination_id: 0x8, 24;
        destination_eswitch_owner_vhca_id_valid,
            set_destination_eswitch_owner_vhca_id_valid: 0x20, 1;
    }
    overlay {
        flow_counter_id, set_flow_counter_id: 0x0, 32;
    }

    /// An entry of a flow table. `mlx5_ifc_flow_context_bits`. Followed by its destinations and
    /// then its counters, each a [`FlowDestination`].
    pub struct FlowContext [0x1800] {
        group_id, set_group_id: 0x20, 32;
        flow_tag, set_flow_tag: 0x48, 24;
        /// Bits of [`flow_action`].
        action, set_action: 0x70, 16;
        extended_destination, set_extended_destination: 0x80, 1;
        destination_list_size, set_destination_list_size: 0x88, 24;
        flow_counter_list_size, set_flow_counter_list_size: 0xa8, 24;
        packet_reformat_id, set_packet_reformat_id: 0xc0, 32;
        modify_header_id, set_modify_header_id: 0xe0, 32;
        match_value, match_value_mut: 0x200 => MatchParameters;
    }

    /// Input of SET_FLOW_TABLE_ENTRY. `mlx5_ifc_set_fte_in_bits`. Followed by the destinations and
    /// counters of the entry.
    pub struct SetFlowTableEntryIn [0x1a00] {
        opcode, set_opcode: 0x0, 16;
        /// 1 changes an entry that is there.
        op_mod, set_op_mod: 0x30, 16;
        other_vport, set_other_vport: 0x40, 1;
        vport_number, set_vport_number: 0x50, 16;
        table_type, set_table_type: 0x80, 8;
        table_id, set_table_id: 0xa8, 24;
        ignore_flow_level, set_ignore_flow_level: 0xc0, 1;
        /// Bits of [`modify_entry`].
        modify_enable_mask, set_modify_enable_mask: 0xd8, 8;
        flow_index, set_flow_index: 0x100, 32;
        flow_context, flow_context_mut: 0x200 => FlowContext;
    }

    /// Output of SET_FLOW_TABLE_ENTRY. `mlx5_ifc_set_fte_out_bits`.
    pub struct SetFlowTableEntryOut [0x80] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
    }

    /// Input of DELETE_FLOW_TABLE_ENTRY. `mlx5_ifc_delete_fte_in_bits`.
    pub struct DeleteFlowTableEntryIn [0x200] {
        opcode, set_opcode: 0x0, 16;
        op_mod, set_op_mod: 0x30, 16;
        table_type, set_table_type: 0x80, 8;
        table_id, set_table_id: 0xa8, 24;
        flow_index, set_flow_index: 0x100, 32;
    }

    /// Output of DELETE_FLOW_TABLE_ENTRY. `mlx5_ifc_delete_fte_out_bits`.
    pub struct DeleteFlowTableEntryOut [0x80] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
    }

    /// Input of ALLOC_FLOW_COUNTER. `mlx5_ifc_alloc_flow_counter_in_bits`.
    pub struct AllocFlowCounterIn [0x80] {
        opcode, set_opcode: 0x0, 16;
        op_mod, set_op_mod: 0x30, 16;
        flow_counter_bulk, set_flow_counter_bulk: 0x78, 8;
    }

    /// Output of ALLOC_FLOW_COUNTER. `mlx5_ifc_alloc_flow_counter_out_bits`.
    pub struct AllocFlowCounterOut [0x80] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
        flow_counter_id, set_flow_counter_id: 0x40, 32;
    }

    /// Input of DEALLOC_FLOW_COUNTER. `mlx5_ifc_dealloc_flow_counter_in_bits`.
    pub struct DeallocFlowCounterIn [0x80] {
        opcode, set_opcode: 0x0, 16;
        op_mod, set_op_mod: 0x30, 16;
        flow_counter_id, set_flow_counter_id: 0x40, 32;
    }

    /// Output of DEALLOC_FLOW_COUNTER. `mlx5_ifc_dealloc_flow_counter_out_bits`.
    pub struct DeallocFlowCounterOut [0x80] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
    }

    /// Input of QUERY_FLOW_COUNTER. `mlx5_ifc_query_flow_counter_in_bits`.
    pub struct QueryFlowCounterIn [0x100] {
        opcode, set_opcode: 0x0, 16;
        op_mod, set_op_mod: 0x30, 16;
        clear, set_clear: 0xc0, 1;
        num_of_counters, set_num_of_counters: 0xd0, 16;
        flow_counter_id, set_flow_counter_id: 0xe0, 32;
    }

    /// Output of QUERY_FLOW_COUNTER. `mlx5_ifc_query_flow_counter_out_bits`. Followed by a
    /// [`TrafficCounter`] for each counter.
    pub struct QueryFlowCounterOut [0x80] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
    }

    /// The counts of a counter. `mlx5_ifc_traffic_counter_bits`.
    pub struct TrafficCounter [0x80] {
        packets, set_packets: 0x0, 64;
        octets, set_octets: 0x40, 64;
    }
}

commands! {
    CREATE_FLOW_TABLE: CreateFlowTableIn => CreateFlowTableOut;
    MODIFY_FLOW_TABLE: ModifyFlowTableIn => ModifyFlowTableOut;
    SET_FLOW_TABLE_ROOT: SetFlowTableRootIn => SetFlowTableRootOut;
    DESTROY_FLOW_TABLE: DestroyFlowTableIn => DestroyFlowTableOut;
    CREATE_FLOW_GROUP: CreateFlowGroupIn => CreateFlowGroupOut;
    DESTROY_FLOW_GROUP: DestroyFlowGroupIn => DestroyFlowGroupOut;
    SET_FLOW_TABLE_ENTRY: SetFlowTableEntryIn => SetFlowTableEntryOut;
    DELETE_FLOW_TABLE_ENTRY: DeleteFlowTableEntryIn => DeleteFlowTableEntryOut;
    ALLOC_FLOW_COUNTER: AllocFlowCounterIn => AllocFlowCounterOut;
    DEALLOC_FLOW_COUNTER: DeallocFlowCounterIn => DeallocFlowCounterOut;
    QUERY_FLOW_COUNTER: QueryFlowCounterIn => QueryFlowCounterOut;
}

/// Bits of `CreateFlowGroupIn::match_criteria_enable`: the parts of [`MatchParameters`] that a
/// group matches. `MLX5_MATCH_*`, `device.h`.
pub mod match_criteria {
    /// The outer headers.
    pub const OUTER_HEADERS: u32 = 1 << 0;
    /// `misc_parameters`.
    pub const MISC_PARAMETERS: u32 = 1 << 1;
    /// The inner headers.
    pub const INNER_HEADERS: u32 = 1 << 2;
    /// `misc_parameters_2`.
    pub const MISC_PARAMETERS_2: u32 = 1 << 3;
    /// `misc_parameters_3`.
    pub const MISC_PARAMETERS_3: u32 = 1 << 4;
    /// `misc_parameters_4`.
    pub const MISC_PARAMETERS_4: u32 = 1 << 5;
    /// `misc_parameters_5`.
    pub const MISC_PARAMETERS_5: u32 = 1 << 6;
}

/// Bits of `FlowContext::action`. `MLX5_FLOW_CONTEXT_ACTION_*`, `mlx5_ifc.h`.
pub mod flow_action {
    /// The packet passes.
    pub const ALLOW: u32 = 1 << 0;
    /// The packet is dropped.
    pub const DROP: u32 = 1 << 1;
    /// The packet goes to the destinations.
    pub const FWD_DEST: u32 = 1 << 2;
    /// The counters count it.
    pub const COUNT: u32 = 1 << 3;
}

/// Bits of `SetFlowTableEntryIn::modify_enable_mask`. `MLX5_SET_FTE_MODIFY_ENABLE_MASK_*`,
/// `device.h`.
pub mod modify_entry {
    /// The action.
    pub const ACTION: u32 = 1 << 0;
    /// The flow tag.
    pub const FLOW_TAG: u32 = 1 << 1;
    /// The destinations.
    pub const DESTINATION_LIST: u32 = 1 << 2;
    /// The counters.
    pub const FLOW_COUNTERS: u32 = 1 << 3;
}

/// Bit of `ModifyFlowTableIn::modify_field_select`: the table of a miss.
pub const MODIFY_MISS_TABLE: u32 = 1 << 0;

codes! {
    /// The type of a flow table. `enum fs_flow_table_type`, `fs_core.h`.
    pub struct FlowTableType {
        NIC_RX = 0x0;
        NIC_TX = 0x1;
        SNIFFER_RX = 0x5;
        SNIFFER_TX = 0x6;
        RDMA_RX = 0x7;
        RDMA_TX = 0x8;
    }

    /// `FlowTableContext::table_miss_action`. `MLX5_FLOW_TABLE_MISS_ACTION_*`, `mlx5_ifc.h`.
    pub struct TableMiss {
        DEFAULT = 0;
        FORWARD = 1;
    }

    /// `FlowDestination::destination_type`. `MLX5_IFC_FLOW_DESTINATION_TYPE_*`, `mlx5_ifc.h`.
    pub struct DestinationType {
        VPORT = 0;
        FLOW_TABLE = 1;
        TIR = 2;
    }
}
