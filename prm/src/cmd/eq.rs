//! Event queues.

use super::commands;
use crate::U64;
use crate::fields::{codes, layouts};

layouts! {
    /// An event queue's context.
    ///
    /// `mlx5_ifc_eqc_bits`.
    pub struct EqContext [0x200] {
        status, set_status: 0x0, 4;
        ec, set_ec: 0xd, 1;
        oi, set_oi: 0xe, 1;
        st, set_st: 0x14, 4;
        page_offset, set_page_offset: 0x54, 6;
        log_eq_size, set_log_eq_size: 0x63, 5;
        uar_page, set_uar_page: 0x68, 24;
        intr, set_intr: 0xb4, 12;
        log_page_size, set_log_page_size: 0xc3, 5;
        consumer_counter, set_consumer_counter: 0x148, 24;
        producer_counter, set_producer_counter: 0x168, 24;
    }

    /// Input of CREATE_EQ.
    ///
    /// `mlx5_ifc_create_eq_in_bits`. Followed by 64-bit addresses (`pas`).
    pub struct CreateEqIn [0x880] {
        opcode, set_opcode: 0x0, 16;
        uid, set_uid: 0x10, 16;
        op_mod, set_op_mod: 0x30, 16;
        eqc, eqc_mut: 0x80 => EqContext;
        event_bitmask, event_bitmask_mut: 0x2c0 => [U64; 4];
    }

    /// Output of CREATE_EQ.
    ///
    /// `mlx5_ifc_create_eq_out_bits`.
    pub struct CreateEqOut [0x80] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
        eq_number, set_eq_number: 0x58, 8;
    }

    /// Input of DESTROY_EQ.
    ///
    /// `mlx5_ifc_destroy_eq_in_bits`.
    pub struct DestroyEqIn [0x80] {
        opcode, set_opcode: 0x0, 16;
        op_mod, set_op_mod: 0x30, 16;
        eq_number, set_eq_number: 0x58, 8;
    }

    /// Output of DESTROY_EQ.
    ///
    /// `mlx5_ifc_destroy_eq_out_bits`.
    pub struct DestroyEqOut [0x80] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
    }

    /// Input of QUERY_EQ.
    ///
    /// `mlx5_ifc_query_eq_in_bits`.
    pub struct QueryEqIn [0x80] {
        opcode, set_opcode: 0x0, 16;
        op_mod, set_op_mod: 0x30, 16;
        eq_number, set_eq_number: 0x58, 8;
    }

    /// Output of QUERY_EQ.
    ///
    /// `mlx5_ifc_query_eq_out_bits`. Followed by 64-bit addresses (`pas`).
    pub struct QueryEqOut [0x880] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
        eqc, eqc_mut: 0x80 => EqContext;
        event_bitmask, set_event_bitmask: 0x2c0, 64;
    }
}

commands! {
    CREATE_EQ: CreateEqIn => CreateEqOut;
    DESTROY_EQ: DestroyEqIn => DestroyEqOut;
    QUERY_EQ: QueryEqIn => QueryEqOut;
}

codes! {
    /// `EqContext::status`. `MLX5_EQC_STATUS_*`, `mlx5_ifc.h`.
    pub struct EqStatus {
        OK = 0x0;
        WRITE_FAILURE = 0xa;
    }

    /// `EqContext::st`: whether an EQE raises an interrupt. `MLX5_EQC_ST_*`, `mlx5_ifc.h`.
    pub struct EqArmState {
        ARMED = 0x9;
        FIRED = 0xa;
    }
}
