//! Objects without a context: PD, UAR, XRC domain, transport domain, counter set.

use super::commands;
use crate::fields::layouts;

layouts! {
    /// Input of ALLOC_PD.
    ///
    /// `mlx5_ifc_alloc_pd_in_bits`.
    pub struct AllocPdIn [0x80] {
        opcode, set_opcode: 0x0, 16;
        uid, set_uid: 0x10, 16;
        op_mod, set_op_mod: 0x30, 16;
    }

    /// Output of ALLOC_PD.
    ///
    /// `mlx5_ifc_alloc_pd_out_bits`.
    pub struct AllocPdOut [0x80] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
        pd, set_pd: 0x48, 24;
    }

    /// Input of DEALLOC_PD.
    ///
    /// `mlx5_ifc_dealloc_pd_in_bits`.
    pub struct DeallocPdIn [0x80] {
        opcode, set_opcode: 0x0, 16;
        uid, set_uid: 0x10, 16;
        op_mod, set_op_mod: 0x30, 16;
        pd, set_pd: 0x48, 24;
    }

    /// Output of DEALLOC_PD.
    ///
    /// `mlx5_ifc_dealloc_pd_out_bits`.
    pub struct DeallocPdOut [0x80] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
    }

    /// Input of ALLOC_UAR.
    ///
    /// `mlx5_ifc_alloc_uar_in_bits`.
    pub struct AllocUarIn [0x80] {
        opcode, set_opcode: 0x0, 16;
        uid, set_uid: 0x10, 16;
        op_mod, set_op_mod: 0x30, 16;
    }

    /// Output of ALLOC_UAR.
    ///
    /// `mlx5_ifc_alloc_uar_out_bits`.
    pub struct AllocUarOut [0x80] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
        uar, set_uar: 0x48, 24;
    }

    /// Input of DEALLOC_UAR.
    ///
    /// `mlx5_ifc_dealloc_uar_in_bits`.
    pub struct DeallocUarIn [0x80] {
        opcode, set_opcode: 0x0, 16;
        uid, set_uid: 0x10, 16;
        op_mod, set_op_mod: 0x30, 16;
        uar, set_uar: 0x48, 24;
    }

    /// Output of DEALLOC_UAR.
    ///
    /// `mlx5_ifc_dealloc_uar_out_bits`.
    pub struct DeallocUarOut [0x80] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
    }

    /// Input of ALLOC_XRCD.
    ///
    /// `mlx5_ifc_alloc_xrcd_in_bits`.
    pub struct AllocXrcdIn [0x80] {
        opcode, set_opcode: 0x0, 16;
        uid, set_uid: 0x10, 16;
        op_mod, set_op_mod: 0x30, 16;
    }

    /// Output of ALLOC_XRCD.
    ///
    /// `mlx5_ifc_alloc_xrcd_out_bits`.
    pub struct AllocXrcdOut [0x80] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
        xrcd, set_xrcd: 0x48, 24;
    }

    /// Input of DEALLOC_XRCD.
    ///
    /// `mlx5_ifc_dealloc_xrcd_in_bits`.
    pub struct DeallocXrcdIn [0x80] {
        opcode, set_opcode: 0x0, 16;
        uid, set_uid: 0x10, 16;
        op_mod, set_op_mod: 0x30, 16;
        xrcd, set_xrcd: 0x48, 24;
    }

    /// Output of DEALLOC_XRCD.
    ///
    /// `mlx5_ifc_dealloc_xrcd_out_bits`.
    pub struct DeallocXrcdOut [0x80] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
    }

    /// Input of ALLOC_TRANSPORT_DOMAIN.
    ///
    /// `mlx5_ifc_alloc_transport_domain_in_bits`.
    pub struct AllocTransportDomainIn [0x80] {
        opcode, set_opcode: 0x0, 16;
        uid, set_uid: 0x10, 16;
        op_mod, set_op_mod: 0x30, 16;
    }

    /// Output of ALLOC_TRANSPORT_DOMAIN.
    ///
    /// `mlx5_ifc_alloc_transport_domain_out_bits`.
    pub struct AllocTransportDomainOut [0x80] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
        transport_domain, set_transport_domain: 0x48, 24;
    }

    /// Input of DEALLOC_TRANSPORT_DOMAIN.
    ///
    /// `mlx5_ifc_dealloc_transport_domain_in_bits`.
    pub struct DeallocTransportDomainIn [0x80] {
        opcode, set_opcode: 0x0, 16;
        uid, set_uid: 0x10, 16;
        op_mod, set_op_mod: 0x30, 16;
        transport_domain, set_transport_domain: 0x48, 24;
    }

    /// Output of DEALLOC_TRANSPORT_DOMAIN.
    ///
    /// `mlx5_ifc_dealloc_transport_domain_out_bits`.
    pub struct DeallocTransportDomainOut [0x80] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
    }

    /// Input of ALLOC_Q_COUNTER.
    ///
    /// `mlx5_ifc_alloc_q_counter_in_bits`.
    pub struct AllocQCounterIn [0x80] {
        opcode, set_opcode: 0x0, 16;
        uid, set_uid: 0x10, 16;
        op_mod, set_op_mod: 0x30, 16;
    }

    /// Output of ALLOC_Q_COUNTER.
    ///
    /// `mlx5_ifc_alloc_q_counter_out_bits`.
    pub struct AllocQCounterOut [0x80] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
        counter_set_id, set_counter_set_id: 0x58, 8;
    }

    /// Input of DEALLOC_Q_COUNTER.
    ///
    /// `mlx5_ifc_dealloc_q_counter_in_bits`.
    pub struct DeallocQCounterIn [0x80] {
        opcode, set_opcode: 0x0, 16;
        op_mod, set_op_mod: 0x30, 16;
        counter_set_id, set_counter_set_id: 0x58, 8;
    }

    /// Output of DEALLOC_Q_COUNTER.
    ///
    /// `mlx5_ifc_dealloc_q_counter_out_bits`.
    pub struct DeallocQCounterOut [0x80] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
    }

    /// Input of QUERY_Q_COUNTER.
    ///
    /// `mlx5_ifc_query_q_counter_in_bits`.
    pub struct QueryQCounterIn [0x100] {
        opcode, set_opcode: 0x0, 16;
        op_mod, set_op_mod: 0x30, 16;
        clear, set_clear: 0xc0, 1;
        counter_set_id, set_counter_set_id: 0xf8, 8;
    }

    /// Output of QUERY_Q_COUNTER.
    ///
    /// `mlx5_ifc_query_q_counter_out_bits`.
    pub struct QueryQCounterOut [0x800] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
        rx_write_requests, set_rx_write_requests: 0x80, 32;
        rx_read_requests, set_rx_read_requests: 0xc0, 32;
        rx_atomic_requests, set_rx_atomic_requests: 0x100, 32;
        rx_dct_connect, set_rx_dct_connect: 0x140, 32;
        out_of_buffer, set_out_of_buffer: 0x180, 32;
        out_of_sequence, set_out_of_sequence: 0x1c0, 32;
        duplicate_request, set_duplicate_request: 0x200, 32;
        rnr_nak_retry_err, set_rnr_nak_retry_err: 0x240, 32;
        packet_seq_err, set_packet_seq_err: 0x280, 32;
        implied_nak_seq_err, set_implied_nak_seq_err: 0x2c0, 32;
        local_ack_timeout_err, set_local_ack_timeout_err: 0x300, 32;
        resp_local_length_error, set_resp_local_length_error: 0x3c0, 32;
        req_local_length_error, set_req_local_length_error: 0x3e0, 32;
        resp_local_qp_error, set_resp_local_qp_error: 0x400, 32;
        local_operation_error, set_local_operation_error: 0x420, 32;
        resp_local_protection, set_resp_local_protection: 0x440, 32;
        req_local_protection, set_req_local_protection: 0x460, 32;
        resp_cqe_error, set_resp_cqe_error: 0x480, 32;
        req_cqe_error, set_req_cqe_error: 0x4a0, 32;
        req_mw_binding, set_req_mw_binding: 0x4c0, 32;
        req_bad_response, set_req_bad_response: 0x4e0, 32;
        req_remote_invalid_request, set_req_remote_invalid_request: 0x500, 32;
        resp_remote_invalid_request, set_resp_remote_invalid_request: 0x520, 32;
        req_remote_access_errors, set_req_remote_access_errors: 0x540, 32;
        resp_remote_access_errors, set_resp_remote_access_errors: 0x560, 32;
        req_remote_operation_errors, set_req_remote_operation_errors: 0x580, 32;
        req_transport_retries_exceeded, set_req_transport_retries_exceeded: 0x5a0, 32;
        cq_overflow, set_cq_overflow: 0x5c0, 32;
        resp_cqe_flush_error, set_resp_cqe_flush_error: 0x5e0, 32;
        req_cqe_flush_error, set_req_cqe_flush_error: 0x600, 32;
        roce_adp_retrans, set_roce_adp_retrans: 0x640, 32;
        roce_adp_retrans_to, set_roce_adp_retrans_to: 0x660, 32;
        roce_slow_restart, set_roce_slow_restart: 0x680, 32;
        roce_slow_restart_cnps, set_roce_slow_restart_cnps: 0x6a0, 32;
        roce_slow_restart_trans, set_roce_slow_restart_trans: 0x6c0, 32;
    }
}

commands! {
    ALLOC_PD: AllocPdIn => AllocPdOut;
    DEALLOC_PD: DeallocPdIn => DeallocPdOut;
    ALLOC_UAR: AllocUarIn => AllocUarOut;
    DEALLOC_UAR: DeallocUarIn => DeallocUarOut;
    ALLOC_XRCD: AllocXrcdIn => AllocXrcdOut;
    DEALLOC_XRCD: DeallocXrcdIn => DeallocXrcdOut;
    ALLOC_TRANSPORT_DOMAIN: AllocTransportDomainIn => AllocTransportDomainOut;
    DEALLOC_TRANSPORT_DOMAIN: DeallocTransportDomainIn => DeallocTransportDomainOut;
    ALLOC_Q_COUNTER: AllocQCounterIn => AllocQCounterOut;
    DEALLOC_Q_COUNTER: DeallocQCounterIn => DeallocQCounterOut;
    QUERY_Q_COUNTER: QueryQCounterIn => QueryQCounterOut;
}
