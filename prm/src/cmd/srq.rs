//! Shared receive queues (SRQ, XRC SRQ, XRQ) and the receive memory pools (RMP) behind plain ones.

use super::commands;
use crate::fields::{codes, layouts};

layouts! {
    /// A shared receive queue's context.
    ///
    /// `mlx5_ifc_srqc_bits`.
    pub struct SrqContext [0x200] {
        state, set_state: 0x0, 4;
        log_srq_size, set_log_srq_size: 0x4, 4;
        wq_signature, set_wq_signature: 0x20, 1;
        cont_srq, set_cont_srq: 0x21, 1;
        rlky, set_rlky: 0x23, 1;
        log_rq_stride, set_log_rq_stride: 0x25, 3;
        xrcd, set_xrcd: 0x28, 24;
        page_offset, set_page_offset: 0x40, 6;
        cqn, set_cqn: 0x48, 24;
        log_page_size, set_log_page_size: 0x82, 6;
        pd, set_pd: 0xc8, 24;
        lwm, set_lwm: 0xe0, 16;
        wqe_cnt, set_wqe_cnt: 0xf0, 16;
        dbr_addr, set_dbr_addr: 0x140, 64;
    }

    /// An XRC shared receive queue's context.
    ///
    /// `mlx5_ifc_xrc_srqc_bits`.
    pub struct XrcSrqContext [0x200] {
        state, set_state: 0x0, 4;
        log_xrc_srq_size, set_log_xrc_srq_size: 0x4, 4;
        wq_signature, set_wq_signature: 0x20, 1;
        cont_srq, set_cont_srq: 0x21, 1;
        rlky, set_rlky: 0x23, 1;
        basic_cyclic_rcv_wqe, set_basic_cyclic_rcv_wqe: 0x24, 1;
        log_rq_stride, set_log_rq_stride: 0x25, 3;
        xrcd, set_xrcd: 0x28, 24;
        page_offset, set_page_offset: 0x40, 6;
        dbr_umem_valid, set_dbr_umem_valid: 0x47, 1;
        cqn, set_cqn: 0x48, 24;
        user_index_equal_xrc_srqn, set_user_index_equal_xrc_srqn: 0x80, 1;
        log_page_size, set_log_page_size: 0x82, 6;
        user_index, set_user_index: 0x88, 24;
        pd, set_pd: 0xc8, 24;
        lwm, set_lwm: 0xe0, 16;
        wqe_cnt, set_wqe_cnt: 0xf0, 16;
        db_record_addr_h, set_db_record_addr_h: 0x140, 32;
        db_record_addr_l, set_db_record_addr_l: 0x160, 30;
    }

    /// A work queue, as in the contexts of RMPs and raw queues.
    ///
    /// `mlx5_ifc_wq_bits`. Followed by 64-bit addresses (`pas`).
    pub struct WorkQueue [0x600] {
        wq_type, set_wq_type: 0x0, 4;
        wq_signature, set_wq_signature: 0x4, 1;
        end_padding_mode, set_end_padding_mode: 0x5, 2;
        cd_slave, set_cd_slave: 0x7, 1;
        hds_skip_first_sge, set_hds_skip_first_sge: 0x20, 1;
        log2_hds_buf_size, set_log2_hds_buf_size: 0x21, 3;
        page_offset, set_page_offset: 0x2b, 5;
        lwm, set_lwm: 0x30, 16;
        pd, set_pd: 0x48, 24;
        uar_page, set_uar_page: 0x68, 24;
        dbr_addr, set_dbr_addr: 0x80, 64;
        hw_counter, set_hw_counter: 0xc0, 32;
        sw_counter, set_sw_counter: 0xe0, 32;
        log_wq_stride, set_log_wq_stride: 0x10c, 4;
        log_wq_pg_sz, set_log_wq_pg_sz: 0x113, 5;
        log_wq_sz, set_log_wq_sz: 0x11b, 5;
        dbr_umem_valid, set_dbr_umem_valid: 0x120, 1;
        wq_umem_valid, set_wq_umem_valid: 0x121, 1;
        log_hairpin_num_packets, set_log_hairpin_num_packets: 0x123, 5;
        log_hairpin_data_sz, set_log_hairpin_data_sz: 0x12b, 5;
        log_wqe_num_of_strides, set_log_wqe_num_of_strides: 0x134, 4;
        two_byte_shift_en, set_two_byte_shift_en: 0x138, 1;
        log_wqe_stride_size, set_log_wqe_stride_size: 0x13d, 3;
        dbr_umem_id, set_dbr_umem_id: 0x140, 32;
        wq_umem_id, set_wq_umem_id: 0x160, 32;
        wq_umem_offset, set_wq_umem_offset: 0x180, 64;
        headers_mkey, set_headers_mkey: 0x1c0, 32;
        shampo_enable, set_shampo_enable: 0x1e0, 1;
        log_reservation_size, set_log_reservation_size: 0x1e5, 3;
        log_max_num_of_packets_per_reservation,
            set_log_max_num_of_packets_per_reservation: 0x1ed, 3;
        log_headers_entry_size, set_log_headers_entry_size: 0x1f6, 2;
        log_headers_buffer_entry_num, set_log_headers_buffer_entry_num: 0x1fc, 4;
    }

    /// A receive memory pool's context.
    ///
    /// `mlx5_ifc_rmpc_bits`.
    pub struct RmpContext [0x780] {
        state, set_state: 0x8, 4;
        basic_cyclic_rcv_wqe, set_basic_cyclic_rcv_wqe: 0x20, 1;
        wq, wq_mut: 0x180 => WorkQueue;
    }

    /// The fields that MODIFY_RMP changes.
    ///
    /// `mlx5_ifc_rmp_bitmask_bits`.
    pub struct RmpBitmask [0x40] {
        lwm, set_lwm: 0x3f, 1;
    }

    /// Input of CREATE_SRQ.
    ///
    /// `mlx5_ifc_create_srq_in_bits`. Followed by 64-bit addresses (`pas`).
    pub struct CreateSrqIn [0x880] {
        opcode, set_opcode: 0x0, 16;
        uid, set_uid: 0x10, 16;
        op_mod, set_op_mod: 0x30, 16;
        srqc, srqc_mut: 0x80 => SrqContext;
    }

    /// Output of CREATE_SRQ.
    ///
    /// `mlx5_ifc_create_srq_out_bits`.
    pub struct CreateSrqOut [0x80] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
        srqn, set_srqn: 0x48, 24;
    }

    /// Input of DESTROY_SRQ.
    ///
    /// `mlx5_ifc_destroy_srq_in_bits`.
    pub struct DestroySrqIn [0x80] {
        opcode, set_opcode: 0x0, 16;
        uid, set_uid: 0x10, 16;
        op_mod, set_op_mod: 0x30, 16;
        srqn, set_srqn: 0x48, 24;
    }

    /// Output of DESTROY_SRQ.
    ///
    /// `mlx5_ifc_destroy_srq_out_bits`.
    pub struct DestroySrqOut [0x80] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
    }

    /// Input of QUERY_SRQ.
    ///
    /// `mlx5_ifc_query_srq_in_bits`.
    pub struct QuerySrqIn [0x80] {
        opcode, set_opcode: 0x0, 16;
        op_mod, set_op_mod: 0x30, 16;
        srqn, set_srqn: 0x48, 24;
    }

    /// Output of QUERY_SRQ.
    ///
    /// `mlx5_ifc_query_srq_out_bits`. Followed by 64-bit addresses (`pas`).
    pub struct QuerySrqOut [0x880] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
        srqc, srqc_mut: 0x80 => SrqContext;
    }

    /// Input of ARM_RQ.
    ///
    /// `mlx5_ifc_arm_rq_in_bits`.
    pub struct ArmRqIn [0x80] {
        opcode, set_opcode: 0x0, 16;
        uid, set_uid: 0x10, 16;
        op_mod, set_op_mod: 0x30, 16;
        srq_number, set_srq_number: 0x48, 24;
        lwm, set_lwm: 0x70, 16;
    }

    /// Output of ARM_RQ.
    ///
    /// `mlx5_ifc_arm_rq_out_bits`.
    pub struct ArmRqOut [0x80] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
    }

    /// Input of CREATE_XRC_SRQ.
    ///
    /// `mlx5_ifc_create_xrc_srq_in_bits`. Followed by 64-bit addresses (`pas`).
    pub struct CreateXrcSrqIn [0x880] {
        opcode, set_opcode: 0x0, 16;
        uid, set_uid: 0x10, 16;
        op_mod, set_op_mod: 0x30, 16;
        xrc_srqc, xrc_srqc_mut: 0x80 => XrcSrqContext;
        xrc_srq_umem_valid, set_xrc_srq_umem_valid: 0x2e0, 1;
    }

    /// Output of CREATE_XRC_SRQ.
    ///
    /// `mlx5_ifc_create_xrc_srq_out_bits`.
    pub struct CreateXrcSrqOut [0x80] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
        xrc_srqn, set_xrc_srqn: 0x48, 24;
    }

    /// Input of DESTROY_XRC_SRQ.
    ///
    /// `mlx5_ifc_destroy_xrc_srq_in_bits`.
    pub struct DestroyXrcSrqIn [0x80] {
        opcode, set_opcode: 0x0, 16;
        uid, set_uid: 0x10, 16;
        op_mod, set_op_mod: 0x30, 16;
        xrc_srqn, set_xrc_srqn: 0x48, 24;
    }

    /// Output of DESTROY_XRC_SRQ.
    ///
    /// `mlx5_ifc_destroy_xrc_srq_out_bits`.
    pub struct DestroyXrcSrqOut [0x80] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
    }

    /// Input of QUERY_XRC_SRQ.
    ///
    /// `mlx5_ifc_query_xrc_srq_in_bits`.
    pub struct QueryXrcSrqIn [0x80] {
        opcode, set_opcode: 0x0, 16;
        op_mod, set_op_mod: 0x30, 16;
        xrc_srqn, set_xrc_srqn: 0x48, 24;
    }

    /// Output of QUERY_XRC_SRQ.
    ///
    /// `mlx5_ifc_query_xrc_srq_out_bits`. Followed by 64-bit addresses (`pas`).
    pub struct QueryXrcSrqOut [0x880] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
        xrc_srqc, xrc_srqc_mut: 0x80 => XrcSrqContext;
    }

    /// Input of ARM_XRC_SRQ.
    ///
    /// `mlx5_ifc_arm_xrc_srq_in_bits`.
    pub struct ArmXrcSrqIn [0x80] {
        opcode, set_opcode: 0x0, 16;
        uid, set_uid: 0x10, 16;
        op_mod, set_op_mod: 0x30, 16;
        xrc_srqn, set_xrc_srqn: 0x48, 24;
        lwm, set_lwm: 0x70, 16;
    }

    /// Output of ARM_XRC_SRQ.
    ///
    /// `mlx5_ifc_arm_xrc_srq_out_bits`.
    pub struct ArmXrcSrqOut [0x80] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
    }

    /// Input of CREATE_RMP.
    ///
    /// `mlx5_ifc_create_rmp_in_bits`.
    pub struct CreateRmpIn [0x880] {
        opcode, set_opcode: 0x0, 16;
        uid, set_uid: 0x10, 16;
        op_mod, set_op_mod: 0x30, 16;
        rmpc, rmpc_mut: 0x100 => RmpContext;
    }

    /// Output of CREATE_RMP.
    ///
    /// `mlx5_ifc_create_rmp_out_bits`.
    pub struct CreateRmpOut [0x80] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
        rmpn, set_rmpn: 0x48, 24;
    }

    /// Input of MODIFY_RMP.
    ///
    /// `mlx5_ifc_modify_rmp_in_bits`.
    pub struct ModifyRmpIn [0x880] {
        opcode, set_opcode: 0x0, 16;
        uid, set_uid: 0x10, 16;
        op_mod, set_op_mod: 0x30, 16;
        rmp_state, set_rmp_state: 0x40, 4;
        rmpn, set_rmpn: 0x48, 24;
        bitmask, bitmask_mut: 0x80 => RmpBitmask;
        rmpc, rmpc_mut: 0x100 => RmpContext;
    }

    /// Output of MODIFY_RMP.
    ///
    /// `mlx5_ifc_modify_rmp_out_bits`.
    pub struct ModifyRmpOut [0x80] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
    }

    /// Input of DESTROY_RMP.
    ///
    /// `mlx5_ifc_destroy_rmp_in_bits`.
    pub struct DestroyRmpIn [0x80] {
        opcode, set_opcode: 0x0, 16;
        uid, set_uid: 0x10, 16;
        op_mod, set_op_mod: 0x30, 16;
        rmpn, set_rmpn: 0x48, 24;
    }

    /// Output of DESTROY_RMP.
    ///
    /// `mlx5_ifc_destroy_rmp_out_bits`.
    pub struct DestroyRmpOut [0x80] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
    }

    /// Input of QUERY_RMP.
    ///
    /// `mlx5_ifc_query_rmp_in_bits`.
    pub struct QueryRmpIn [0x80] {
        opcode, set_opcode: 0x0, 16;
        op_mod, set_op_mod: 0x30, 16;
        rmpn, set_rmpn: 0x48, 24;
    }

    /// Output of QUERY_RMP.
    ///
    /// `mlx5_ifc_query_rmp_out_bits`.
    pub struct QueryRmpOut [0x880] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
        rmpc, rmpc_mut: 0x100 => RmpContext;
    }

    /// The part of an XRQ's context that describes its tag list.
    ///
    /// `mlx5_ifc_tag_matching_topology_context_bits`.
    pub struct TagMatchingTopologyContext [0x80] {
        log_matching_list_sz, set_log_matching_list_sz: 0x0, 4;
        append_next_index, set_append_next_index: 0x10, 16;
        sw_phase_cnt, set_sw_phase_cnt: 0x20, 16;
        hw_phase_cnt, set_hw_phase_cnt: 0x30, 16;
    }

    /// Context of an extended receive queue (XRQ).
    ///
    /// `mlx5_ifc_xrqc_bits`.
    pub struct XrqContext [0xa00] {
        state, set_state: 0x0, 4;
        rlkey, set_rlkey: 0x4, 1;
        topology, set_topology: 0x14, 4;
        offload, set_offload: 0x1c, 4;
        user_index, set_user_index: 0x28, 24;
        cqn, set_cqn: 0x48, 24;
        tag_matching_topology_context, tag_matching_topology_context_mut: 0x100 => TagMatchingTopologyContext;
        wq, wq_mut: 0x400 => WorkQueue;
    }

    /// Input of CREATE_XRQ.
    ///
    /// `mlx5_ifc_create_xrq_in_bits`. Followed by 64-bit addresses (`pas`).
    pub struct CreateXrqIn [0xa80] {
        opcode, set_opcode: 0x0, 16;
        uid, set_uid: 0x10, 16;
        op_mod, set_op_mod: 0x30, 16;
        xrqc, xrqc_mut: 0x80 => XrqContext;
    }

    /// Output of CREATE_XRQ.
    ///
    /// `mlx5_ifc_create_xrq_out_bits`.
    pub struct CreateXrqOut [0x80] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
        xrqn, set_xrqn: 0x48, 24;
    }

    /// Input of DESTROY_XRQ.
    ///
    /// `mlx5_ifc_destroy_xrq_in_bits`.
    pub struct DestroyXrqIn [0x80] {
        opcode, set_opcode: 0x0, 16;
        uid, set_uid: 0x10, 16;
        op_mod, set_op_mod: 0x30, 16;
        xrqn, set_xrqn: 0x48, 24;
    }

    /// Output of DESTROY_XRQ.
    ///
    /// `mlx5_ifc_destroy_xrq_out_bits`.
    pub struct DestroyXrqOut [0x80] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
    }

    /// Input of QUERY_XRQ.
    ///
    /// `mlx5_ifc_query_xrq_in_bits`.
    pub struct QueryXrqIn [0x80] {
        opcode, set_opcode: 0x0, 16;
        op_mod, set_op_mod: 0x30, 16;
        xrqn, set_xrqn: 0x48, 24;
    }

    /// Output of QUERY_XRQ.
    ///
    /// `mlx5_ifc_query_xrq_out_bits`. Followed by 64-bit addresses (`pas`).
    pub struct QueryXrqOut [0xa80] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
        xrqc, xrqc_mut: 0x80 => XrqContext;
    }
}

commands! {
    CREATE_SRQ: CreateSrqIn => CreateSrqOut;
    DESTROY_SRQ: DestroySrqIn => DestroySrqOut;
    QUERY_SRQ: QuerySrqIn => QuerySrqOut;
    ARM_RQ: ArmRqIn => ArmRqOut;
    CREATE_XRC_SRQ: CreateXrcSrqIn => CreateXrcSrqOut;
    DESTROY_XRC_SRQ: DestroyXrcSrqIn => DestroyXrcSrqOut;
    QUERY_XRC_SRQ: QueryXrcSrqIn => QueryXrcSrqOut;
    ARM_XRC_SRQ: ArmXrcSrqIn => ArmXrcSrqOut;
    CREATE_RMP: CreateRmpIn => CreateRmpOut;
    MODIFY_RMP: ModifyRmpIn => ModifyRmpOut;
    DESTROY_RMP: DestroyRmpIn => DestroyRmpOut;
    QUERY_RMP: QueryRmpIn => QueryRmpOut;
    CREATE_XRQ: CreateXrqIn => CreateXrqOut;
    DESTROY_XRQ: DestroyXrqIn => DestroyXrqOut;
    QUERY_XRQ: QueryXrqIn => QueryXrqOut;
}

codes! {
    /// `state` of an SRQ or XRC SRQ. `MLX5_SRQC_STATE_*`, `mlx5_ifc.h`.
    pub struct SrqState {
        GOOD = 0;
        ERROR = 1;
    }

    /// `RmpContext::state`. `MLX5_RMPC_STATE_*`, `mlx5_ifc.h`.
    pub struct RmpState {
        RDY = 1;
        ERR = 3;
    }

    /// `WorkQueue::wq_type`. `MLX5_WQ_TYPE_*`, `mlx5_ifc.h`.
    pub struct WorkQueueType {
        LINKED_LIST = 0;
        CYCLIC = 1;
        LINKED_LIST_STRIDING_RQ = 2;
        CYCLIC_STRIDING_RQ = 3;
    }

    /// `XrqContext::topology`. `MLX5_XRQC_TOPOLOGY_*`, `mlx5_ifc.h`.
    pub struct XrqTopology {
        NO_SPECIAL_TOPOLOGY = 0;
        TAG_MATCHING = 1;
    }

    /// `XrqContext::offload`. `MLX5_XRQC_OFFLOAD_*`, `mlx5_ifc.h`.
    pub struct XrqOffload {
        NONE = 0;
        RNDV = 1;
    }

    /// `ArmRqIn::op_mod`: the kind of queue that `srq_number` names. `MLX5_ARM_RQ_IN_OP_MOD_*`,
    /// `mlx5_ifc.h`.
    pub struct ArmRqTarget {
        SRQ = 1;
        XRQ = 2;
    }
}
