//! Dynamically connected targets (DCTs).

use super::commands;
use crate::fields::layouts;

layouts! {
    /// A DC target's context.
    ///
    /// `mlx5_ifc_dctc_bits`.
    pub struct DctContext [0x200] {
        state, set_state: 0x4, 4;
        user_index, set_user_index: 0x28, 24;
        cqn, set_cqn: 0x48, 24;
        counter_set_id, set_counter_set_id: 0x60, 8;
        atomic_mode, set_atomic_mode: 0x68, 4;
        rre, set_rre: 0x6c, 1;
        rwe, set_rwe: 0x6d, 1;
        rae, set_rae: 0x6e, 1;
        atomic_like_write_en, set_atomic_like_write_en: 0x6f, 1;
        latency_sensitive, set_latency_sensitive: 0x70, 1;
        rlky, set_rlky: 0x71, 1;
        free_ar, set_free_ar: 0x72, 1;
        cs_res, set_cs_res: 0x88, 8;
        min_rnr_nak, set_min_rnr_nak: 0x93, 5;
        srqn_xrqn, set_srqn_xrqn: 0xa8, 24;
        pd, set_pd: 0xc8, 24;
        tclass, set_tclass: 0xe0, 8;
        flow_label, set_flow_label: 0xec, 20;
        dc_access_key, set_dc_access_key: 0x100, 64;
        mtu, set_mtu: 0x145, 3;
        port, set_port: 0x148, 8;
        pkey_index, set_pkey_index: 0x150, 16;
        my_addr_index, set_my_addr_index: 0x168, 8;
        hop_limit, set_hop_limit: 0x178, 8;
        dc_access_key_violation_count, set_dc_access_key_violation_count: 0x180, 32;
        dei_cfi, set_dei_cfi: 0x1b4, 1;
        eth_prio, set_eth_prio: 0x1b5, 3;
        ecn, set_ecn: 0x1b8, 2;
        dscp, set_dscp: 0x1ba, 6;
        ece, set_ece: 0x1e0, 32;
    }

    /// Input of CREATE_DCT.
    ///
    /// `mlx5_ifc_create_dct_in_bits`.
    pub struct CreateDctIn [0x400] {
        opcode, set_opcode: 0x0, 16;
        uid, set_uid: 0x10, 16;
        op_mod, set_op_mod: 0x30, 16;
        dctc, dctc_mut: 0x80 => DctContext;
    }

    /// Output of CREATE_DCT.
    ///
    /// `mlx5_ifc_create_dct_out_bits`.
    pub struct CreateDctOut [0x80] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
        dctn, set_dctn: 0x48, 24;
        ece, set_ece: 0x60, 32;
    }

    /// Input of DESTROY_DCT.
    ///
    /// `mlx5_ifc_destroy_dct_in_bits`.
    pub struct DestroyDctIn [0x80] {
        opcode, set_opcode: 0x0, 16;
        uid, set_uid: 0x10, 16;
        op_mod, set_op_mod: 0x30, 16;
        dctn, set_dctn: 0x48, 24;
    }

    /// Output of DESTROY_DCT.
    ///
    /// `mlx5_ifc_destroy_dct_out_bits`.
    pub struct DestroyDctOut [0x80] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
    }

    /// Input of DRAIN_DCT.
    ///
    /// `mlx5_ifc_drain_dct_in_bits`.
    pub struct DrainDctIn [0x80] {
        opcode, set_opcode: 0x0, 16;
        uid, set_uid: 0x10, 16;
        op_mod, set_op_mod: 0x30, 16;
        dctn, set_dctn: 0x48, 24;
    }

    /// Output of DRAIN_DCT.
    ///
    /// `mlx5_ifc_drain_dct_out_bits`.
    pub struct DrainDctOut [0x80] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
    }

    /// Input of QUERY_DCT.
    ///
    /// `mlx5_ifc_query_dct_in_bits`.
    pub struct QueryDctIn [0x80] {
        opcode, set_opcode: 0x0, 16;
        op_mod, set_op_mod: 0x30, 16;
        dctn, set_dctn: 0x48, 24;
    }

    /// Output of QUERY_DCT.
    ///
    /// `mlx5_ifc_query_dct_out_bits`.
    pub struct QueryDctOut [0x400] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
        dctc, dctc_mut: 0x80 => DctContext;
    }
}

commands! {
    CREATE_DCT: CreateDctIn => CreateDctOut;
    DESTROY_DCT: DestroyDctIn => DestroyDctOut;
    DRAIN_DCT: DrainDctIn => DrainDctOut;
    QUERY_DCT: QueryDctIn => QueryDctOut;
}
