//! Completion queues.

use super::commands;
use crate::fields::{codes, layouts};

layouts! {
    /// A completion queue's context.
    ///
    /// `mlx5_ifc_cqc_bits`.
    pub struct CqContext [0x200] {
        status, set_status: 0x0, 4;
        dbr_umem_valid, set_dbr_umem_valid: 0x6, 1;
        apu_cq, set_apu_cq: 0x7, 1;
        cqe_sz, set_cqe_sz: 0x8, 3;
        cc, set_cc: 0xb, 1;
        scqe_break_moderation_en, set_scqe_break_moderation_en: 0xd, 1;
        oi, set_oi: 0xe, 1;
        cq_period_mode, set_cq_period_mode: 0xf, 2;
        cqe_comp_en, set_cqe_comp_en: 0x11, 1;
        mini_cqe_res_format, set_mini_cqe_res_format: 0x12, 2;
        st, set_st: 0x14, 4;
        cqe_compression_layout, set_cqe_compression_layout: 0x1e, 2;
        dbr_umem_id, set_dbr_umem_id: 0x20, 32;
        page_offset, set_page_offset: 0x54, 6;
        log_cq_size, set_log_cq_size: 0x63, 5;
        uar_page, set_uar_page: 0x68, 24;
        cq_period, set_cq_period: 0x84, 12;
        cq_max_count, set_cq_max_count: 0x90, 16;
        c_eqn_or_apu_element, set_c_eqn_or_apu_element: 0xa0, 32;
        log_page_size, set_log_page_size: 0xc3, 5;
        last_notified_index, set_last_notified_index: 0x108, 24;
        last_solicit_index, set_last_solicit_index: 0x128, 24;
        consumer_counter, set_consumer_counter: 0x148, 24;
        producer_counter, set_producer_counter: 0x168, 24;
        dbr_addr, set_dbr_addr: 0x1c0, 64;
    }

    /// Input of CREATE_CQ.
    ///
    /// `mlx5_ifc_create_cq_in_bits`. Followed by 64-bit addresses (`pas`).
    pub struct CreateCqIn [0x880] {
        opcode, set_opcode: 0x0, 16;
        uid, set_uid: 0x10, 16;
        op_mod, set_op_mod: 0x30, 16;
        cqc, cqc_mut: 0x80 => CqContext;
        cq_umem_offset, set_cq_umem_offset: 0x280, 64;
        cq_umem_id, set_cq_umem_id: 0x2c0, 32;
        cq_umem_valid, set_cq_umem_valid: 0x2e0, 1;
    }

    /// Output of CREATE_CQ.
    ///
    /// `mlx5_ifc_create_cq_out_bits`.
    pub struct CreateCqOut [0x80] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
        cqn, set_cqn: 0x48, 24;
    }

    /// Input of DESTROY_CQ.
    ///
    /// `mlx5_ifc_destroy_cq_in_bits`.
    pub struct DestroyCqIn [0x80] {
        opcode, set_opcode: 0x0, 16;
        uid, set_uid: 0x10, 16;
        op_mod, set_op_mod: 0x30, 16;
        cqn, set_cqn: 0x48, 24;
    }

    /// Output of DESTROY_CQ.
    ///
    /// `mlx5_ifc_destroy_cq_out_bits`.
    pub struct DestroyCqOut [0x80] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
    }

    /// Input of QUERY_CQ.
    ///
    /// `mlx5_ifc_query_cq_in_bits`.
    pub struct QueryCqIn [0x80] {
        opcode, set_opcode: 0x0, 16;
        op_mod, set_op_mod: 0x30, 16;
        cqn, set_cqn: 0x48, 24;
    }

    /// Output of QUERY_CQ.
    ///
    /// `mlx5_ifc_query_cq_out_bits`. Followed by 64-bit addresses (`pas`).
    pub struct QueryCqOut [0x880] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
        cqc, cqc_mut: 0x80 => CqContext;
    }

    /// Input of MODIFY_CQ.
    ///
    /// `mlx5_ifc_modify_cq_in_bits`. Followed by 64-bit addresses (`pas`).
    pub struct ModifyCqIn [0x880] {
        opcode, set_opcode: 0x0, 16;
        uid, set_uid: 0x10, 16;
        op_mod, set_op_mod: 0x30, 16;
        cqn, set_cqn: 0x48, 24;
        modify_field_select, set_modify_field_select: 0x60, 32;
        cqc, cqc_mut: 0x80 => CqContext;
        cq_umem_valid, set_cq_umem_valid: 0x2e0, 1;
    }
    overlay {
        resize_field_select, set_resize_field_select: 0x60, 32;
    }

    /// Output of MODIFY_CQ.
    ///
    /// `mlx5_ifc_modify_cq_out_bits`.
    pub struct ModifyCqOut [0x80] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
    }
}

commands! {
    CREATE_CQ: CreateCqIn => CreateCqOut;
    DESTROY_CQ: DestroyCqIn => DestroyCqOut;
    QUERY_CQ: QueryCqIn => QueryCqOut;
    MODIFY_CQ: ModifyCqIn => ModifyCqOut;
}

codes! {
    /// `CqContext::status`. `MLX5_CQC_STATUS_*`, `mlx5_ifc.h`.
    pub struct CqStatus {
        OK = 0x0;
        OVERFLOW = 0x9;
        WRITE_FAIL = 0xa;
    }

    /// `CqContext::st`: whether a completion causes an event. `MLX5_CQC_ST_*`, `mlx5_ifc.h`.
    pub struct CqArmState {
        SOLICITED_ARMED = 0x6;
        ARMED = 0x9;
        FIRED = 0xa;
        /// `MLX5_CQ_STATE_ALWAYS_ARMED`, `device.h`.
        ALWAYS_ARMED = 0xb;
    }

    /// `CqContext::cqe_sz`. `MLX5_CQC_CQE_SZ_*`, `mlx5_ifc.h`; `enum mlx5_cqe_size`, `cq.h`.
    pub struct CqeSize {
        BYTES_64 = 0;
        BYTES_128 = 1;
        /// 64-byte CQEs, 128 bytes apart.
        BYTES_128_PADDED = 2;
    }

    /// `CqContext::cq_period_mode`. `MLX5_CQ_PERIOD_MODE_*`, `mlx5_ifc.h`.
    pub struct CqPeriodMode {
        START_FROM_EQE = 0;
        START_FROM_CQE = 1;
    }

    /// `op_mod` of MODIFY_CQ. `MLX5_MODIFY_CQ_IN_OP_MOD_*`, `mlx5_ifc.h`.
    pub struct ModifyCqMode {
        MODIFY = 0;
        RESIZE = 1;
    }
}

bitflags::bitflags! {
    /// `modify_field_select` of MODIFY_CQ. `MLX5_MODIFY_FIELD_SELECT_*`, `mlx5_ifc.h`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct ModifyCqFields: u32 {
        /// `cq_period`.
        const CQ_PERIOD = 0x1;
        /// `cq_max_count`.
        const CQ_MAX_COUNT = 0x2;
        /// `oi`.
        const OI = 0x4;
        /// `c_eqn_or_apu_element`.
        const C_EQN = 0x8;
    }

    /// `resize_field_select` of MODIFY_CQ. `MLX5_MODIFY_CQ_MASK_*`, `cq.h`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct ResizeCqFields: u32 {
        /// `log_cq_size`.
        const LOG_CQ_SIZE = 1 << 0;
        /// `page_offset`.
        const PAGE_OFFSET = 1 << 1;
        /// `log_page_size`.
        const LOG_PAGE_SIZE = 1 << 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::CommandInput;

    #[test]
    fn a_cq_context_has_its_fields_where_the_manual_draws_them() {
        let mut cqc = CqContext::default();
        cqc.set_st(CqArmState::FIRED.0).set_oi(true).set_log_cq_size(8).set_uar_page(0x1234);
        cqc.set_c_eqn_or_apu_element(3).set_dbr_addr(0xff00);
        let bytes = cqc.as_bytes();
        assert_eq!(bytes[..4], [0, 0b10, 0x0a, 0]);
        assert_eq!(bytes[12..16], [8, 0, 0x12, 0x34]);
        assert_eq!(bytes[20..24], [0, 0, 0, 3]);
        assert_eq!(bytes[56..], [0, 0, 0, 0, 0, 0, 0xff, 0]);
    }

    #[test]
    fn creation_is_a_head_of_0x110_bytes_followed_by_addresses() {
        let mut mailbox = [0u8; CreateCqIn::BYTES + 16];
        let (input, tail) = CreateCqIn::split_from_mut(&mut mailbox).unwrap();
        *input = CreateCqIn::request();
        crate::fields::addresses_mut(tail)[1].set(0x7000);
        assert_eq!(CreateCqIn::BYTES, 0x110);
        assert_eq!(mailbox[..2], [0x04, 0x00]);
        assert_eq!(mailbox[0x110 + 14..], [0x70, 0]);
        assert!(CreateCqIn::from_bytes(&mailbox[..0x10f]).is_none());
    }
}
