//! The objects that steer a received packet to a queue, and a sent one to its domain: TIRs, TISes,
//! and tables of receive queues.

use super::commands;
use crate::fields::{codes, layouts};

layouts! {
    /// The fields of a packet that a hash covers. `mlx5_ifc_rx_hash_field_select_bits`.
    pub struct HashFields [0x20] {
        /// IPv6 (`MLX5_L3_PROT_TYPE_IPV6`); zero is IPv4.
        l3_prot_type, set_l3_prot_type: 0x0, 1;
        /// UDP (`MLX5_L4_PROT_TYPE_UDP`); zero is TCP.
        l4_prot_type, set_l4_prot_type: 0x1, 1;
        /// Bits of [`hash_fields`].
        selected_fields, set_selected_fields: 0x2, 30;
    }

    /// A transport interface for receiving. `mlx5_ifc_tirc_bits`.
    pub struct TirContext [0x780] {
        /// A [`TirDispatch`].
        disp_type, set_disp_type: 0x20, 4;
        tls_en, set_tls_en: 0x24, 1;
        lro_timeout_period_usecs, set_lro_timeout_period_usecs: 0x84, 16;
        /// The kinds of packets that are merged (`lro_enable_mask`): IPv4, IPv6.
        packet_merge_mask, set_packet_merge_mask: 0x94, 4;
        lro_max_ip_payload_size, set_lro_max_ip_payload_size: 0x98, 8;
        inline_rqn, set_inline_rqn: 0xe8, 24;
        rx_hash_symmetric, set_rx_hash_symmetric: 0x100, 1;
        tunneled_offload_en, set_tunneled_offload_en: 0x102, 1;
        indirect_table, set_indirect_table: 0x108, 24;
        /// A [`HashFunction`].
        rx_hash_fn, set_rx_hash_fn: 0x120, 4;
        /// Bits of [`self_lb_block`].
        self_lb_block, set_self_lb_block: 0x126, 2;
        transport_domain, set_transport_domain: 0x128, 24;
        rx_hash_toeplitz_key, rx_hash_toeplitz_key_mut: 0x140 => [u8; 40];
        rx_hash_field_selector_outer, rx_hash_field_selector_outer_mut: 0x280 => HashFields;
        rx_hash_field_selector_inner, rx_hash_field_selector_inner_mut: 0x2a0 => HashFields;
    }

    /// Input of CREATE_TIR. `mlx5_ifc_create_tir_in_bits`.
    pub struct CreateTirIn [0x880] {
        opcode, set_opcode: 0x0, 16;
        uid, set_uid: 0x10, 16;
        op_mod, set_op_mod: 0x30, 16;
        ctx, ctx_mut: 0x100 => TirContext;
    }

    /// Output of CREATE_TIR. `mlx5_ifc_create_tir_out_bits`.
    pub struct CreateTirOut [0x80] {
        status, set_status: 0x0, 8;
        icm_address_63_40, set_icm_address_63_40: 0x8, 24;
        syndrome, set_syndrome: 0x20, 32;
        icm_address_39_32, set_icm_address_39_32: 0x40, 8;
        tirn, set_tirn: 0x48, 24;
        icm_address_31_0, set_icm_address_31_0: 0x60, 32;
    }

    /// Input of MODIFY_TIR. `mlx5_ifc_modify_tir_in_bits`.
    pub struct ModifyTirIn [0x880] {
        opcode, set_opcode: 0x0, 16;
        uid, set_uid: 0x10, 16;
        op_mod, set_op_mod: 0x30, 16;
        tirn, set_tirn: 0x48, 24;
        /// The fields that change: `mlx5_ifc_modify_tir_bitmask_bits`.
        select_self_lb_en, set_select_self_lb_en: 0xbb, 1;
        select_hash, set_select_hash: 0xbd, 1;
        select_packet_merge, set_select_packet_merge: 0xbf, 1;
        ctx, ctx_mut: 0x100 => TirContext;
    }

    /// Output of MODIFY_TIR. `mlx5_ifc_modify_tir_out_bits`.
    pub struct ModifyTirOut [0x80] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
    }

    /// Input of QUERY_TIR. `mlx5_ifc_query_tir_in_bits`.
    pub struct QueryTirIn [0x80] {
        opcode, set_opcode: 0x0, 16;
        op_mod, set_op_mod: 0x30, 16;
        tirn, set_tirn: 0x48, 24;
    }

    /// Output of QUERY_TIR. `mlx5_ifc_query_tir_out_bits`.
    pub struct QueryTirOut [0x880] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
        tir_context, tir_context_mut: 0x100 => TirContext;
    }

    /// Input of DESTROY_TIR. `mlx5_ifc_destroy_tir_in_bits`.
    pub struct DestroyTirIn [0x80] {
        opcode, set_opcode: 0x0, 16;
        uid, set_uid: 0x10, 16;
        op_mod, set_op_mod: 0x30, 16;
        tirn, set_tirn: 0x48, 24;
    }

    /// Output of DESTROY_TIR. `mlx5_ifc_destroy_tir_out_bits`.
    pub struct DestroyTirOut [0x80] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
    }

    /// A transport interface for sending. `mlx5_ifc_tisc_bits`.
    pub struct TisContext [0x500] {
        strict_lag_tx_port_affinity, set_strict_lag_tx_port_affinity: 0x0, 1;
        tls_en, set_tls_en: 0x1, 1;
        lag_tx_port_affinity, set_lag_tx_port_affinity: 0x4, 4;
        prio, set_prio: 0xc, 4;
        transport_domain, set_transport_domain: 0x128, 24;
        underlay_qpn, set_underlay_qpn: 0x148, 24;
        pd, set_pd: 0x168, 24;
    }

    /// Input of CREATE_TIS. `mlx5_ifc_create_tis_in_bits`.
    pub struct CreateTisIn [0x600] {
        opcode, set_opcode: 0x0, 16;
        uid, set_uid: 0x10, 16;
        op_mod, set_op_mod: 0x30, 16;
        ctx, ctx_mut: 0x100 => TisContext;
    }

    /// Output of CREATE_TIS. `mlx5_ifc_create_tis_out_bits`.
    pub struct CreateTisOut [0x80] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
        tisn, set_tisn: 0x48, 24;
    }

    /// Input of MODIFY_TIS. `mlx5_ifc_modify_tis_in_bits`.
    pub struct ModifyTisIn [0x600] {
        opcode, set_opcode: 0x0, 16;
        uid, set_uid: 0x10, 16;
        op_mod, set_op_mod: 0x30, 16;
        tisn, set_tisn: 0x48, 24;
        /// The fields that change: `mlx5_ifc_modify_tis_bitmask_bits`.
        select_lag_tx_port_affinity, set_select_lag_tx_port_affinity: 0xbd, 1;
        select_prio, set_select_prio: 0xbf, 1;
        ctx, ctx_mut: 0x100 => TisContext;
    }

    /// Output of MODIFY_TIS. `mlx5_ifc_modify_tis_out_bits`.
    pub struct ModifyTisOut [0x80] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
    }

    /// Input of QUERY_TIS. `mlx5_ifc_query_tis_in_bits`.
    pub struct QueryTisIn [0x80] {
        opcode, set_opcode: 0x0, 16;
        op_mod, set_op_mod: 0x30, 16;
        tisn, set_tisn: 0x48, 24;
    }

    /// Output of QUERY_TIS. `mlx5_ifc_query_tis_out_bits`.
    pub struct QueryTisOut [0x600] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
        tis_context, tis_context_mut: 0x100 => TisContext;
    }

    /// Input of DESTROY_TIS. `mlx5_ifc_destroy_tis_in_bits`.
    pub struct DestroyTisIn [0x80] {
        opcode, set_opcode: 0x0, 16;
        uid, set_uid: 0x10, 16;
        op_mod, set_op_mod: 0x30, 16;
        tisn, set_tisn: 0x48, 24;
    }

    /// Output of DESTROY_TIS. `mlx5_ifc_destroy_tis_out_bits`.
    pub struct DestroyTisOut [0x80] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
    }

    /// A table of receive queues. `mlx5_ifc_rqtc_bits`. Followed by the numbers of the queues, 32
    /// bits each.
    pub struct RqtContext [0x780] {
        list_q_type, set_list_q_type: 0xa5, 3;
        rqt_max_size, set_rqt_max_size: 0xb0, 16;
        rqt_actual_size, set_rqt_actual_size: 0xd0, 16;
    }

    /// Input of CREATE_RQT. `mlx5_ifc_create_rqt_in_bits`. Followed by the numbers of the queues.
    pub struct CreateRqtIn [0x880] {
        opcode, set_opcode: 0x0, 16;
        uid, set_uid: 0x10, 16;
        op_mod, set_op_mod: 0x30, 16;
        rqt_context, rqt_context_mut: 0x100 => RqtContext;
    }

    /// Output of CREATE_RQT. `mlx5_ifc_create_rqt_out_bits`.
    pub struct CreateRqtOut [0x80] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
        rqtn, set_rqtn: 0x48, 24;
    }

    /// Input of MODIFY_RQT. `mlx5_ifc_modify_rqt_in_bits`. Followed by the numbers of the queues.
    pub struct ModifyRqtIn [0x880] {
        opcode, set_opcode: 0x0, 16;
        uid, set_uid: 0x10, 16;
        op_mod, set_op_mod: 0x30, 16;
        rqtn, set_rqtn: 0x48, 24;
        /// The fields that change: `mlx5_ifc_rqt_bitmask_bits`.
        select_rqn_list, set_select_rqn_list: 0xbf, 1;
        rqt_context, rqt_context_mut: 0x100 => RqtContext;
    }

    /// Output of MODIFY_RQT. `mlx5_ifc_modify_rqt_out_bits`.
    pub struct ModifyRqtOut [0x80] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
    }

    /// Input of QUERY_RQT. `mlx5_ifc_query_rqt_in_bits`.
    pub struct QueryRqtIn [0x80] {
        opcode, set_opcode: 0x0, 16;
        op_mod, set_op_mod: 0x30, 16;
        rqtn, set_rqtn: 0x48, 24;
    }

    /// Output of QUERY_RQT. `mlx5_ifc_query_rqt_out_bits`. Followed by the numbers of the queues.
    pub struct QueryRqtOut [0x880] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
        rqt_context, rqt_context_mut: 0x100 => RqtContext;
    }

    /// Input of DESTROY_RQT. `mlx5_ifc_destroy_rqt_in_bits`.
    pub struct DestroyRqtIn [0x80] {
        opcode, set_opcode: 0x0, 16;
        uid, set_uid: 0x10, 16;
        op_mod, set_op_mod: 0x30, 16;
        rqtn, set_rqtn: 0x48, 24;
    }

    /// Output of DESTROY_RQT. `mlx5_ifc_destroy_rqt_out_bits`.
    pub struct DestroyRqtOut [0x80] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
    }
}

commands! {
    CREATE_TIR: CreateTirIn => CreateTirOut;
    MODIFY_TIR: ModifyTirIn => ModifyTirOut;
    QUERY_TIR: QueryTirIn => QueryTirOut;
    DESTROY_TIR: DestroyTirIn => DestroyTirOut;
    CREATE_TIS: CreateTisIn => CreateTisOut;
    MODIFY_TIS: ModifyTisIn => ModifyTisOut;
    QUERY_TIS: QueryTisIn => QueryTisOut;
    DESTROY_TIS: DestroyTisIn => DestroyTisOut;
    CREATE_RQT: CreateRqtIn => CreateRqtOut;
    MODIFY_RQT: ModifyRqtIn => ModifyRqtOut;
    QUERY_RQT: QueryRqtIn => QueryRqtOut;
    DESTROY_RQT: DestroyRqtIn => DestroyRqtOut;
}

/// Bits of `HashFields::selected_fields`. `MLX5_HASH_FIELD_SEL_*`, `mlx5_ifc.h`.
pub mod hash_fields {
    /// The source address.
    pub const SRC_IP: u32 = 1 << 0;
    /// The destination address.
    pub const DST_IP: u32 = 1 << 1;
    /// The source port.
    pub const L4_SPORT: u32 = 1 << 2;
    /// The destination port.
    pub const L4_DPORT: u32 = 1 << 3;
    /// The index of IPsec's security parameters.
    pub const IPSEC_SPI: u32 = 1 << 4;
}

/// Bits of `TirContext::self_lb_block`. `MLX5_TIRC_SELF_LB_BLOCK_*`, `mlx5_ifc.h`.
///
/// A bit that is set *lets in* frames that the transport domain sent itself, whatever its name
/// says: Linux sets it to test a loopback (`mlx5e_test_loopback_setup`) and for
/// `MLX5_QP_FLAG_TIR_ALLOW_SELF_LB_*`, and clears it when an interface opens.
pub mod self_lb_block {
    /// Unicast frames of the transport domain's own.
    pub const UNICAST: u32 = 1 << 0;
    /// Multicast frames of the transport domain's own.
    pub const MULTICAST: u32 = 1 << 1;
}

codes! {
    /// `TirContext::disp_type`. `MLX5_TIRC_DISP_TYPE_*`, `mlx5_ifc.h`.
    pub struct TirDispatch {
        DIRECT = 0;
        INDIRECT = 1;
    }

    /// `TirContext::rx_hash_fn`. `MLX5_RX_HASH_FN_*`, `mlx5_ifc.h`.
    pub struct HashFunction {
        NONE = 0;
        INVERTED_XOR8 = 1;
        TOEPLITZ = 2;
    }
}
