//! Queue pairs: creation, destruction, query and all state transitions.

use super::commands;
use crate::fields::{codes, layouts};

layouts! {
    /// An address path (primary or alternate).
    ///
    /// `mlx5_ifc_ads_bits`.
    pub struct AddressPath [0x160] {
        fl, set_fl: 0x0, 1;
        free_ar, set_free_ar: 0x1, 1;
        pkey_index, set_pkey_index: 0x10, 16;
        grh, set_grh: 0x28, 1;
        mlid, set_mlid: 0x29, 7;
        rlid, set_rlid: 0x30, 16;
        ack_timeout, set_ack_timeout: 0x40, 5;
        src_addr_index, set_src_addr_index: 0x48, 8;
        stat_rate, set_stat_rate: 0x54, 4;
        hop_limit, set_hop_limit: 0x58, 8;
        tclass, set_tclass: 0x64, 8;
        flow_label, set_flow_label: 0x6c, 20;
        rgid_rip, rgid_rip_mut: 0x80 => [u8; 16];
        f_dscp, set_f_dscp: 0x104, 1;
        f_ecn, set_f_ecn: 0x105, 1;
        f_eth_prio, set_f_eth_prio: 0x107, 1;
        ecn, set_ecn: 0x108, 2;
        dscp, set_dscp: 0x10a, 6;
        udp_sport, set_udp_sport: 0x110, 16;
        dei_cfi, set_dei_cfi: 0x120, 1;
        eth_prio, set_eth_prio: 0x121, 3;
        sl, set_sl: 0x124, 4;
        vhca_port_num, set_vhca_port_num: 0x128, 8;
        rmac_47_32, set_rmac_47_32: 0x130, 16;
        rmac_31_0, set_rmac_31_0: 0x140, 32;
    }

    /// A queue pair's context.
    ///
    /// `mlx5_ifc_qpc_bits`.
    pub struct QpContext [0x740] {
        state, set_state: 0x0, 4;
        lag_tx_port_affinity, set_lag_tx_port_affinity: 0x4, 4;
        st, set_st: 0x8, 8;
        isolate_vl_tc, set_isolate_vl_tc: 0x12, 1;
        pm_state, set_pm_state: 0x13, 2;
        req_e2e_credit_mode, set_req_e2e_credit_mode: 0x16, 2;
        offload_type, set_offload_type: 0x18, 4;
        end_padding_mode, set_end_padding_mode: 0x1c, 2;
        wq_signature, set_wq_signature: 0x20, 1;
        block_lb_mc, set_block_lb_mc: 0x21, 1;
        atomic_like_write_en, set_atomic_like_write_en: 0x22, 1;
        latency_sensitive, set_latency_sensitive: 0x23, 1;
        drain_sigerr, set_drain_sigerr: 0x25, 1;
        pd, set_pd: 0x28, 24;
        mtu, set_mtu: 0x40, 3;
        log_msg_max, set_log_msg_max: 0x43, 5;
        log_rq_size, set_log_rq_size: 0x49, 4;
        log_rq_stride, set_log_rq_stride: 0x4d, 3;
        no_sq, set_no_sq: 0x50, 1;
        log_sq_size, set_log_sq_size: 0x51, 4;
        ts_format, set_ts_format: 0x58, 2;
        data_in_order, set_data_in_order: 0x5a, 1;
        rlky, set_rlky: 0x5b, 1;
        ulp_stateless_offload_mode, set_ulp_stateless_offload_mode: 0x5c, 4;
        counter_set_id, set_counter_set_id: 0x60, 8;
        uar_page, set_uar_page: 0x68, 24;
        user_index, set_user_index: 0x88, 24;
        log_page_size, set_log_page_size: 0xa3, 5;
        remote_qpn, set_remote_qpn: 0xa8, 24;
        primary_address_path, primary_address_path_mut: 0xc0 => AddressPath;
        secondary_address_path, secondary_address_path_mut: 0x220 => AddressPath;
        log_ack_req_freq, set_log_ack_req_freq: 0x380, 4;
        log_sra_max, set_log_sra_max: 0x388, 3;
        retry_count, set_retry_count: 0x38d, 3;
        rnr_retry, set_rnr_retry: 0x390, 3;
        fre, set_fre: 0x394, 1;
        cur_rnr_retry, set_cur_rnr_retry: 0x395, 3;
        cur_retry_count, set_cur_retry_count: 0x398, 3;
        next_send_psn, set_next_send_psn: 0x3c8, 24;
        log_num_dci_stream_channels, set_log_num_dci_stream_channels: 0x3e3, 5;
        cqn_snd, set_cqn_snd: 0x3e8, 24;
        log_num_dci_errored_streams, set_log_num_dci_errored_streams: 0x403, 5;
        deth_sqpn, set_deth_sqpn: 0x408, 24;
        last_acked_psn, set_last_acked_psn: 0x448, 24;
        ssn, set_ssn: 0x468, 24;
        log_rra_max, set_log_rra_max: 0x488, 3;
        atomic_mode, set_atomic_mode: 0x48c, 4;
        rre, set_rre: 0x490, 1;
        rwe, set_rwe: 0x491, 1;
        rae, set_rae: 0x492, 1;
        page_offset, set_page_offset: 0x494, 6;
        cd_slave_receive, set_cd_slave_receive: 0x49d, 1;
        cd_slave_send, set_cd_slave_send: 0x49e, 1;
        cd_master, set_cd_master: 0x49f, 1;
        min_rnr_nak, set_min_rnr_nak: 0x4a3, 5;
        next_rcv_psn, set_next_rcv_psn: 0x4a8, 24;
        xrcd, set_xrcd: 0x4c8, 24;
        cqn_rcv, set_cqn_rcv: 0x4e8, 24;
        dbr_addr, set_dbr_addr: 0x500, 64;
        q_key, set_q_key: 0x540, 32;
        rq_type, set_rq_type: 0x565, 3;
        srqn_rmpn_xrqn, set_srqn_rmpn_xrqn: 0x568, 24;
        rmsn, set_rmsn: 0x588, 24;
        hw_sq_wqebb_counter, set_hw_sq_wqebb_counter: 0x5a0, 16;
        sw_sq_wqebb_counter, set_sw_sq_wqebb_counter: 0x5b0, 16;
        hw_rq_counter, set_hw_rq_counter: 0x5c0, 32;
        sw_rq_counter, set_sw_rq_counter: 0x5e0, 32;
        cgs, set_cgs: 0x62f, 1;
        cs_req, set_cs_req: 0x630, 8;
        cs_res, set_cs_res: 0x638, 8;
        dc_access_key, set_dc_access_key: 0x640, 64;
        dbr_umem_valid, set_dbr_umem_valid: 0x683, 1;
        dbr_umem_id, set_dbr_umem_id: 0x720, 32;
    }

    /// Input of CREATE_QP.
    ///
    /// `mlx5_ifc_create_qp_in_bits`. Followed by 64-bit addresses (`pas`).
    pub struct CreateQpIn [0x880] {
        opcode, set_opcode: 0x0, 16;
        uid, set_uid: 0x10, 16;
        op_mod, set_op_mod: 0x30, 16;
        input_qpn, set_input_qpn: 0x48, 24;
        opt_param_mask, set_opt_param_mask: 0x80, 32;
        ece, set_ece: 0xa0, 32;
        qpc, qpc_mut: 0xc0 => QpContext;
        wq_umem_offset, set_wq_umem_offset: 0x800, 64;
        wq_umem_id, set_wq_umem_id: 0x840, 32;
        wq_umem_valid, set_wq_umem_valid: 0x860, 1;
    }

    /// Output of CREATE_QP.
    ///
    /// `mlx5_ifc_create_qp_out_bits`.
    pub struct CreateQpOut [0x80] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
        qpn, set_qpn: 0x48, 24;
        ece, set_ece: 0x60, 32;
    }

    /// Input of DESTROY_QP.
    ///
    /// `mlx5_ifc_destroy_qp_in_bits`.
    pub struct DestroyQpIn [0x80] {
        opcode, set_opcode: 0x0, 16;
        uid, set_uid: 0x10, 16;
        op_mod, set_op_mod: 0x30, 16;
        qpn, set_qpn: 0x48, 24;
    }

    /// Output of DESTROY_QP.
    ///
    /// `mlx5_ifc_destroy_qp_out_bits`.
    pub struct DestroyQpOut [0x80] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
    }

    /// Input of QUERY_QP.
    ///
    /// `mlx5_ifc_query_qp_in_bits`.
    pub struct QueryQpIn [0x80] {
        opcode, set_opcode: 0x0, 16;
        op_mod, set_op_mod: 0x30, 16;
        qpn, set_qpn: 0x48, 24;
    }

    /// Output of QUERY_QP.
    ///
    /// `mlx5_ifc_query_qp_out_bits`. Followed by 64-bit addresses (`pas`).
    pub struct QueryQpOut [0x880] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
        opt_param_mask, set_opt_param_mask: 0x80, 32;
        ece, set_ece: 0xa0, 32;
        qpc, qpc_mut: 0xc0 => QpContext;
    }

    /// Input of RST2INIT_QP.
    ///
    /// `mlx5_ifc_rst2init_qp_in_bits`.
    pub struct Rst2InitQpIn [0x880] {
        opcode, set_opcode: 0x0, 16;
        uid, set_uid: 0x10, 16;
        op_mod, set_op_mod: 0x30, 16;
        qpn, set_qpn: 0x48, 24;
        opt_param_mask, set_opt_param_mask: 0x80, 32;
        ece, set_ece: 0xa0, 32;
        qpc, qpc_mut: 0xc0 => QpContext;
    }

    /// Output of RST2INIT_QP.
    ///
    /// `mlx5_ifc_rst2init_qp_out_bits`.
    pub struct Rst2InitQpOut [0x80] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
        ece, set_ece: 0x60, 32;
    }

    /// Input of INIT2INIT_QP.
    ///
    /// `mlx5_ifc_init2init_qp_in_bits`.
    pub struct Init2InitQpIn [0x880] {
        opcode, set_opcode: 0x0, 16;
        uid, set_uid: 0x10, 16;
        op_mod, set_op_mod: 0x30, 16;
        qpn, set_qpn: 0x48, 24;
        opt_param_mask, set_opt_param_mask: 0x80, 32;
        ece, set_ece: 0xa0, 32;
        qpc, qpc_mut: 0xc0 => QpContext;
    }

    /// Output of INIT2INIT_QP.
    ///
    /// `mlx5_ifc_init2init_qp_out_bits`.
    pub struct Init2InitQpOut [0x80] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
        ece, set_ece: 0x60, 32;
    }

    /// Input of INIT2RTR_QP.
    ///
    /// `mlx5_ifc_init2rtr_qp_in_bits`.
    pub struct Init2RtrQpIn [0x880] {
        opcode, set_opcode: 0x0, 16;
        uid, set_uid: 0x10, 16;
        op_mod, set_op_mod: 0x30, 16;
        qpn, set_qpn: 0x48, 24;
        opt_param_mask, set_opt_param_mask: 0x80, 32;
        ece, set_ece: 0xa0, 32;
        qpc, qpc_mut: 0xc0 => QpContext;
    }

    /// Output of INIT2RTR_QP.
    ///
    /// `mlx5_ifc_init2rtr_qp_out_bits`.
    pub struct Init2RtrQpOut [0x80] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
        ece, set_ece: 0x60, 32;
    }

    /// Input of RTR2RTS_QP.
    ///
    /// `mlx5_ifc_rtr2rts_qp_in_bits`.
    pub struct Rtr2RtsQpIn [0x880] {
        opcode, set_opcode: 0x0, 16;
        uid, set_uid: 0x10, 16;
        op_mod, set_op_mod: 0x30, 16;
        qpn, set_qpn: 0x48, 24;
        opt_param_mask, set_opt_param_mask: 0x80, 32;
        ece, set_ece: 0xa0, 32;
        qpc, qpc_mut: 0xc0 => QpContext;
    }

    /// Output of RTR2RTS_QP.
    ///
    /// `mlx5_ifc_rtr2rts_qp_out_bits`.
    pub struct Rtr2RtsQpOut [0x80] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
        ece, set_ece: 0x60, 32;
    }

    /// Input of RTS2RTS_QP.
    ///
    /// `mlx5_ifc_rts2rts_qp_in_bits`.
    pub struct Rts2RtsQpIn [0x880] {
        opcode, set_opcode: 0x0, 16;
        uid, set_uid: 0x10, 16;
        op_mod, set_op_mod: 0x30, 16;
        qpn, set_qpn: 0x48, 24;
        opt_param_mask, set_opt_param_mask: 0x80, 32;
        ece, set_ece: 0xa0, 32;
        qpc, qpc_mut: 0xc0 => QpContext;
    }

    /// Output of RTS2RTS_QP.
    ///
    /// `mlx5_ifc_rts2rts_qp_out_bits`.
    pub struct Rts2RtsQpOut [0x80] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
        ece, set_ece: 0x60, 32;
    }

    /// Input of SQERR2RTS_QP.
    ///
    /// `mlx5_ifc_sqerr2rts_qp_in_bits`.
    pub struct Sqerr2RtsQpIn [0x880] {
        opcode, set_opcode: 0x0, 16;
        uid, set_uid: 0x10, 16;
        op_mod, set_op_mod: 0x30, 16;
        qpn, set_qpn: 0x48, 24;
        opt_param_mask, set_opt_param_mask: 0x80, 32;
        qpc, qpc_mut: 0xc0 => QpContext;
    }

    /// Output of SQERR2RTS_QP.
    ///
    /// `mlx5_ifc_sqerr2rts_qp_out_bits`.
    pub struct Sqerr2RtsQpOut [0x80] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
    }

    /// Input of SQD_RTS_QP.
    ///
    /// `mlx5_ifc_sqd2rts_qp_in_bits`.
    pub struct Sqd2RtsQpIn [0x880] {
        opcode, set_opcode: 0x0, 16;
        uid, set_uid: 0x10, 16;
        op_mod, set_op_mod: 0x30, 16;
        qpn, set_qpn: 0x48, 24;
        opt_param_mask, set_opt_param_mask: 0x80, 32;
        qpc, qpc_mut: 0xc0 => QpContext;
    }

    /// Output of SQD_RTS_QP.
    ///
    /// `mlx5_ifc_sqd2rts_qp_out_bits`.
    pub struct Sqd2RtsQpOut [0x80] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
    }

    /// Input of TO_ERR_QP.
    ///
    /// `mlx5_ifc_qp_2err_in_bits`.
    pub struct Qp2ErrIn [0x80] {
        opcode, set_opcode: 0x0, 16;
        uid, set_uid: 0x10, 16;
        op_mod, set_op_mod: 0x30, 16;
        qpn, set_qpn: 0x48, 24;
    }

    /// Output of TO_ERR_QP.
    ///
    /// `mlx5_ifc_qp_2err_out_bits`.
    pub struct Qp2ErrOut [0x80] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
    }

    /// Input of TO_RST_QP.
    ///
    /// `mlx5_ifc_qp_2rst_in_bits`.
    pub struct Qp2RstIn [0x80] {
        opcode, set_opcode: 0x0, 16;
        uid, set_uid: 0x10, 16;
        op_mod, set_op_mod: 0x30, 16;
        qpn, set_qpn: 0x48, 24;
    }

    /// Output of TO_RST_QP.
    ///
    /// `mlx5_ifc_qp_2rst_out_bits`.
    pub struct Qp2RstOut [0x80] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
    }
}

commands! {
    CREATE_QP: CreateQpIn => CreateQpOut;
    DESTROY_QP: DestroyQpIn => DestroyQpOut;
    QUERY_QP: QueryQpIn => QueryQpOut;
    RST2INIT_QP: Rst2InitQpIn => Rst2InitQpOut;
    INIT2INIT_QP: Init2InitQpIn => Init2InitQpOut;
    INIT2RTR_QP: Init2RtrQpIn => Init2RtrQpOut;
    RTR2RTS_QP: Rtr2RtsQpIn => Rtr2RtsQpOut;
    RTS2RTS_QP: Rts2RtsQpIn => Rts2RtsQpOut;
    SQERR2RTS_QP: Sqerr2RtsQpIn => Sqerr2RtsQpOut;
    SQD_RTS_QP: Sqd2RtsQpIn => Sqd2RtsQpOut;
    TO_ERR_QP: Qp2ErrIn => Qp2ErrOut;
    TO_RST_QP: Qp2RstIn => Qp2RstOut;
}

codes! {
    /// `QpContext::state`. `MLX5_QP_STATE_*`, `qp.h`.
    pub struct QpState {
        RST = 0;
        INIT = 1;
        RTR = 2;
        RTS = 3;
        SQER = 4;
        /// Drained: the send queue has finished what it began.
        SQD = 5;
        ERR = 6;
        /// Draining: sends are still outstanding.
        SQ_DRAINING = 7;
        SUSPENDED = 9;
    }

    /// `QpContext::st`: the service type. `MLX5_QP_ST_*`, `qp.h`.
    pub struct ServiceType {
        RC = 0x0;
        UC = 0x1;
        UD = 0x2;
        XRC = 0x3;
        MLX = 0x4;
        DCI = 0x5;
        DCT = 0x6;
        QP0 = 0x7;
        QP1 = 0x8;
        RAW_ETHERTYPE = 0x9;
        RAW_IPV6 = 0xa;
        SNIFFER = 0xb;
        REG_UMR = 0xc;
        PTP_1588 = 0xd;
        SYNC_UMR = 0xe;
    }

    /// `QpContext::pm_state`: path migration. `MLX5_QPC_PM_STATE_*`, `mlx5_ifc.h`.
    pub struct PathMigrationState {
        ARMED = 0;
        REARM = 1;
        MIGRATED = 3;
    }

    /// `QpContext::mtu`. `MLX5_QPC_MTU_*`, `mlx5_ifc.h`.
    pub struct QpMtu {
        BYTES_256 = 1;
        BYTES_512 = 2;
        BYTES_1024 = 3;
        BYTES_2048 = 4;
        BYTES_4096 = 5;
        RAW_ETHERNET = 7;
    }

    /// `QpContext::rq_type`: the source of receive WQEs. `MLX5_NON_ZERO_RQ` and others, `qp.h`.
    pub struct RqType {
        /// The QP's own receive queue.
        NON_ZERO_RQ = 0;
        SRQ = 1;
        CRQ = 2;
        ZERO_LENGTH_RQ = 3;
    }

    /// `QpContext::offload_type`. `MLX5_QPC_OFFLOAD_TYPE_*`, `mlx5_ifc.h`.
    pub struct OffloadType {
        NONE = 0;
        /// The device itself reads the data of a rendezvous.
        RNDV = 1;
    }

    /// `QpContext::atomic_mode`. `MLX5_QPC_ATOMIC_MODE_*`, `mlx5_ifc.h`.
    pub struct AtomicMode {
        IB_SPEC = 1;
        ONLY_8B = 2;
        UP_TO_8B = 3;
        UP_TO_16B = 4;
        UP_TO_32B = 5;
        UP_TO_64B = 6;
        UP_TO_128B = 7;
        UP_TO_256B = 8;
    }

    /// `QpContext::ts_format`: the clock of timestamps. `MLX5_TIMESTAMP_FORMAT_*`, `mlx5_ifc.h`.
    pub struct TimestampFormat {
        FREE_RUNNING = 0;
        DEFAULT = 1;
        REAL_TIME = 2;
    }

    /// `HcaCap::sq_ts_format`, `HcaCap::rq_ts_format`, `RoceCaps::qp_ts_format`: the supported
    /// timestamp formats. `MLX5_TIMESTAMP_FORMAT_CAP_*`, `mlx5_ifc.h`.
    pub struct TimestampFormatCap {
        FREE_RUNNING = 0;
        REAL_TIME = 1;
        FREE_RUNNING_AND_REAL_TIME = 2;
    }

    /// `QpContext::cs_req`: scatter of small responses to CQEs. `MLX5_QPC_CS_REQ_*`.
    pub struct ScatterToCqeRequester {
        DISABLE = 0x0;
        UP_TO_32B = 0x11;
        UP_TO_64B = 0x22;
    }

    /// `QpContext::cs_res`: scatter of small receives to CQEs. `MLX5_QPC_CS_RES_*`.
    pub struct ScatterToCqeResponder {
        DISABLE = 0x0;
        UP_TO_32B = 0x1;
        UP_TO_64B = 0x2;
    }
}

bitflags::bitflags! {
    /// `opt_param_mask`: the optional fields of a transition. `enum mlx5_qp_optpar`, `qp.h`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct OptParamMask: u32 {
        /// The alternate address path.
        const ALT_ADDR_PATH = 1 << 0;
        /// Remote read enable.
        const RRE = 1 << 1;
        /// Remote atomic enable.
        const RAE = 1 << 2;
        /// Remote write enable.
        const RWE = 1 << 3;
        /// `primary_address_path.pkey_index`.
        const PKEY_INDEX = 1 << 4;
        /// `q_key`.
        const Q_KEY = 1 << 5;
        /// `min_rnr_nak`.
        const RNR_TIMEOUT = 1 << 6;
        /// The primary address path.
        const PRIMARY_ADDR_PATH = 1 << 7;
        /// `log_sra_max`.
        const SRA_MAX = 1 << 8;
        /// `log_rra_max`.
        const RRA_MAX = 1 << 9;
        /// `pm_state`.
        const PM_STATE = 1 << 10;
        /// `drain_sigerr`, from INIT to INIT.
        const DRAIN_SIGERR = 1 << 11;
        /// `retry_count`.
        const RETRY_COUNT = 1 << 12;
        /// `rnr_retry`.
        const RNR_RETRY = 1 << 13;
        /// `primary_address_path.ack_timeout`.
        const ACK_TIMEOUT = 1 << 14;
        /// `lag_tx_port_affinity`.
        const LAG_TX_AFF = 1 << 15;
        /// `primary_address_path.vhca_port_num`.
        const PRI_PORT = 1 << 16;
        /// `srqn_rmpn_xrqn`.
        const SRQN = 1 << 18;
        /// `cqn_rcv`.
        const CQN_RCV = 1 << 19;
        /// DC handshake.
        const DC_HS = 1 << 20;
        /// `dc_access_key`.
        const DC_KEY = 1 << 21;
        /// `counter_set_id`.
        const COUNTER_SET_ID = 1 << 25;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::CommandInput;
    use crate::fields::get_bits;

    #[test]
    fn a_qp_context_has_its_fields_where_the_manual_draws_them() {
        let mut qpc = QpContext::default();
        qpc.set_state(QpState::RTS.0).set_st(ServiceType::XRC.0);
        qpc.set_pd(0x12_3456).set_mtu(QpMtu::BYTES_4096.0).set_log_msg_max(30);
        qpc.set_remote_qpn(0xab_cdef).set_dbr_addr(0x1000_2000_3000_4000);
        let dword = |at: usize| get_bits(qpc.as_bytes(), at * 32, 32) as u32;
        assert_eq!(dword(0), 3 << 28 | 3 << 16);
        assert_eq!(dword(1), 0x12_3456);
        assert_eq!(dword(2), 5 << 29 | 30 << 24);
        assert_eq!(dword(5), 0xab_cdef);
        assert_eq!((dword(0x28), dword(0x29)), (0x1000_2000, 0x3000_4000));
        assert_eq!(QpContext::BYTES, 232);
    }

    #[test]
    fn a_context_nested_in_a_command_is_the_command_s_own_bytes() {
        let mut input = Init2RtrQpIn::request();
        input.set_qpn(7);
        input.qpc_mut().primary_address_path_mut().set_rlid(0x55aa);
        let path = 0x0c0 / 8 + 0x0c0 / 8;
        assert_eq!(input.as_bytes()[path + 6..path + 8], [0x55, 0xaa]);
        assert_eq!(input.as_bytes()[..2], [0x05, 0x03]);
        assert_eq!(input.as_bytes()[8..12], [0, 0, 0, 7]);
    }
}
