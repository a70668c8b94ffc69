//! Event queue entries (EQEs).

use crate::fields::{codes, layouts};

layouts! {
    /// An event queue entry. `mlx5_ifc_eqe_bits`; `struct mlx5_eqe`, `device.h`.
    ///
    /// `event_type` determines the layout of `event_data`; the overlays are its layouts.
    pub struct Eqe [0x200] {
        event_type, set_event_type: 0x8, 8;
        event_sub_type, set_event_sub_type: 0x18, 8;
        event_data, event_data_mut: 0x100 => [u8; 28];
        signature, set_signature: 0x1f0, 8;
        owner, set_owner: 0x1ff, 1;
    }
    overlay {
        completion, completion_mut: 0x100 => EqeCompletion;
        qp_srq, qp_srq_mut: 0x100 => EqeQpSrq;
        cq_error, cq_error_mut: 0x100 => EqeCqError;
        command, command_mut: 0x100 => EqeCommand;
        port, port_mut: 0x100 => EqePort;
        page_request, page_request_mut: 0x100 => EqePageRequest;
        wqe_page_fault, wqe_page_fault_mut: 0x100 => EqeWqePageFault;
        rdma_page_fault, rdma_page_fault_mut: 0x100 => EqeRdmaPageFault;
        dct, dct_mut: 0x100 => EqeDct;
        vport_change, vport_change_mut: 0x100 => EqeVportChange;
    }

    /// `COMP`. `struct mlx5_eqe_comp`, `device.h`.
    pub struct EqeCompletion [0xe0] {
        cqn, set_cqn: 0xc8, 24;
    }

    /// Events of a QP, an SRQ or a raw queue. `struct mlx5_eqe_qp_srq`, `device.h`.
    pub struct EqeQpSrq [0xe0] {
        /// An [`EventQueueType`], for QP events.
        queue_type, set_queue_type: 0xa0, 8;
        qp_srq_n, set_qp_srq_n: 0xc8, 24;
    }

    /// `CQ_ERROR`. `struct mlx5_eqe_cq_err`, `device.h`.
    pub struct EqeCqError [0xe0] {
        cqn, set_cqn: 0x8, 24;
        /// A [`CqErrorSyndrome`].
        syndrome, set_syndrome: 0x58, 8;
    }

    /// `CMD`: a bit for each command queue entry whose command has completed.
    /// `struct mlx5_eqe_cmd`, `device.h`.
    pub struct EqeCommand [0xe0] {
        vector, set_vector: 0x0, 32;
    }

    /// `PORT_CHANGE`; the sub-type is a [`PortChange`]. `struct mlx5_eqe_port_state`, `device.h`.
    pub struct EqePort [0xe0] {
        port, set_port: 0x40, 4;
    }

    /// `PAGE_REQUEST`. `struct mlx5_eqe_page_req`, `device.h`.
    pub struct EqePageRequest [0xe0] {
        ec_function, set_ec_function: 0x0, 16;
        func_id, set_func_id: 0x10, 16;
        num_pages, set_num_pages: 0x20, 32;
    }

    /// `PAGE_FAULT` of sub-type WQE. `struct mlx5_eqe_page_fault`, `device.h`.
    pub struct EqeWqePageFault [0xe0] {
        bytes_committed, set_bytes_committed: 0x0, 32;
        wqe_index, set_wqe_index: 0x30, 16;
        packet_length, set_packet_length: 0x50, 16;
        token, set_token: 0x60, 32;
        page_fault_type, set_page_fault_type: 0xc5, 3;
        wq_number, set_wq_number: 0xc8, 24;
    }

    /// `PAGE_FAULT` of sub-type RDMA. `struct mlx5_eqe_page_fault`, `device.h`.
    pub struct EqeRdmaPageFault [0xe0] {
        bytes_committed, set_bytes_committed: 0x0, 32;
        r_key, set_r_key: 0x20, 32;
        packet_length, set_packet_length: 0x50, 16;
        rdma_op_len, set_rdma_op_len: 0x60, 32;
        rdma_va, set_rdma_va: 0x80, 64;
        page_fault_type, set_page_fault_type: 0xc5, 3;
        token, set_token: 0xc8, 24;
    }

    /// `DCT_DRAINED` and `DCT_KEY_VIOLATION`. `struct mlx5_eqe_dct`, `device.h`.
    pub struct EqeDct [0xe0] {
        dctn, set_dctn: 0xc8, 24;
    }

    /// `NIC_VPORT_CHANGE`. `struct mlx5_eqe_vport_change`, `device.h`.
    pub struct EqeVportChange [0xe0] {
        vport_num, set_vport_num: 0x10, 16;
    }
}

codes! {
    /// `Eqe::event_type`. `enum mlx5_event`, `device.h`.
    pub struct EventType {
        COMP = 0x00;
        PATH_MIG = 0x01;
        COMM_EST = 0x02;
        SQ_DRAINED = 0x03;
        CQ_ERROR = 0x04;
        WQ_CATAS_ERROR = 0x05;
        PATH_MIG_FAILED = 0x07;
        INTERNAL_ERROR = 0x08;
        PORT_CHANGE = 0x09;
        CMD = 0x0a;
        PAGE_REQUEST = 0x0b;
        PAGE_FAULT = 0x0c;
        NIC_VPORT_CHANGE = 0x0d;
        ESW_FUNCTIONS_CHANGED = 0x0e;
        VHCA_STATE_CHANGE = 0x0f;
        WQ_INVAL_REQ_ERROR = 0x10;
        WQ_ACCESS_ERROR = 0x11;
        SRQ_CATAS_ERROR = 0x12;
        SRQ_LAST_WQE = 0x13;
        SRQ_RQ_LIMIT = 0x14;
        GPIO_EVENT = 0x15;
        PORT_MODULE_EVENT = 0x16;
        TEMP_WARN_EVENT = 0x17;
        XRQ_ERROR = 0x18;
        REMOTE_CONFIG = 0x19;
        DB_BF_CONGESTION = 0x1a;
        STALL_EVENT = 0x1b;
        DCT_DRAINED = 0x1c;
        DCT_KEY_VIOLATION = 0x1d;
        FPGA_ERROR = 0x20;
        FPGA_QP_ERROR = 0x21;
        GENERAL_EVENT = 0x22;
        MONITOR_COUNTER = 0x24;
        PPS_EVENT = 0x25;
        DEVICE_TRACER = 0x26;
        OBJECT_CHANGE = 0x27;
    }

    /// `EqeQpSrq::queue_type`. `MLX5_EVENT_QUEUE_TYPE_*`, `device.h`.
    pub struct EventQueueType {
        QP = 0;
        RQ = 1;
        SQ = 2;
        DCT = 6;
    }

    /// `EqeCqError::syndrome`. `mlx5_ifc_cq_error_bits`.
    pub struct CqErrorSyndrome {
        CQ_OVERRUN = 1;
        CQ_ACCESS_VIOLATION_ERROR = 2;
    }

    /// Sub-type of `PORT_CHANGE`. `MLX5_PORT_CHANGE_SUBTYPE_*`, `device.h`.
    pub struct PortChange {
        DOWN = 1;
        ACTIVE = 4;
        INITIALIZED = 5;
        LID = 6;
        PKEY = 7;
        GUID = 8;
        CLIENT_REREG = 9;
    }

    /// Sub-type of `PAGE_FAULT`. `MLX5_PFAULT_SUBTYPE_*`, `device.h`.
    pub struct PageFaultSubtype {
        WQE = 0;
        RDMA = 1;
    }
}

impl EventType {
    /// Returns the bit of the event in the first 64 bits of the `event_bitmask` of CREATE_EQ.
    #[must_use]
    pub const fn mask(self) -> u64 {
        1 << (self.0 & 63)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_64_bytes_with_its_owner_in_the_last_bit() {
        let mut eqe = Eqe::default();
        eqe.set_event_type(EventType::SRQ_RQ_LIMIT.0).set_owner(true).set_signature(0x7e);
        eqe.qp_srq_mut().set_qp_srq_n(0x12_3456);
        let bytes = eqe.as_bytes();
        assert_eq!(bytes[..4], [0, 0x14, 0, 0]);
        assert_eq!(bytes[0x20 + 24..0x20 + 28], [0, 0x12, 0x34, 0x56]);
        assert_eq!(bytes[60..], [0, 0, 0x7e, 1]);
        assert_eq!(Eqe::BYTES, 64);
    }

    #[test]
    fn a_cq_error_names_its_cq_first() {
        let mut eqe = Eqe::default();
        eqe.cq_error_mut().set_cqn(9).set_syndrome(CqErrorSyndrome::CQ_OVERRUN.0);
        assert_eq!(eqe.event_data()[..12], [0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 1]);
    }
}
