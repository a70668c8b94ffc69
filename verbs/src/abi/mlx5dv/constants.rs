//! The enumerations of `infiniband/mlx5dv.h`.

use crate::abi::types::{c_uint, constants};

constants! {
    u64 {
        // The driver's number, and that of the purpose.
        MLX5DV_RES_TYPE_QP = 0x1_0000_0001;
        MLX5DV_RES_TYPE_RWQ = 0x1_0000_0002;
        MLX5DV_RES_TYPE_DBR = 0x1_0000_0003;
        MLX5DV_RES_TYPE_SRQ = 0x1_0000_0004;
        MLX5DV_RES_TYPE_CQ = 0x1_0000_0005;
    }

    c_uint {
        // enum mlx5dv_context_comp_mask
        MLX5DV_CONTEXT_MASK_CQE_COMPRESION = 1;
        MLX5DV_CONTEXT_MASK_SWP = 2;
        MLX5DV_CONTEXT_MASK_STRIDING_RQ = 4;
        MLX5DV_CONTEXT_MASK_TUNNEL_OFFLOADS = 8;
        MLX5DV_CONTEXT_MASK_DYN_BFREGS = 16;
        MLX5DV_CONTEXT_MASK_CLOCK_INFO_UPDATE = 32;
        MLX5DV_CONTEXT_MASK_FLOW_ACTION_FLAGS = 64;
        MLX5DV_CONTEXT_MASK_DC_ODP_CAPS = 128;
        MLX5DV_CONTEXT_MASK_HCA_CORE_CLOCK = 256;
        MLX5DV_CONTEXT_MASK_NUM_LAG_PORTS = 512;
        MLX5DV_CONTEXT_MASK_SIGNATURE_OFFLOAD = 1024;
        MLX5DV_CONTEXT_MASK_DCI_STREAMS = 2048;
        MLX5DV_CONTEXT_MASK_WR_MEMCPY_LENGTH = 4096;
        MLX5DV_CONTEXT_MASK_CRYPTO_OFFLOAD = 8192;
        MLX5DV_CONTEXT_MASK_MAX_DC_RD_ATOM = 16384;
        MLX5DV_CONTEXT_MASK_REG_C0 = 32768;
        MLX5DV_CONTEXT_MASK_OOO_RECV_WRS = 65536;
    }

    c_uint {
        // enum mlx5dv_tunnel_offloads
        MLX5DV_RAW_PACKET_CAP_TUNNELED_OFFLOAD_VXLAN = 1;
        MLX5DV_RAW_PACKET_CAP_TUNNELED_OFFLOAD_GRE = 2;
        MLX5DV_RAW_PACKET_CAP_TUNNELED_OFFLOAD_GENEVE = 4;
        MLX5DV_RAW_PACKET_CAP_TUNNELED_OFFLOAD_CW_MPLS_OVER_GRE = 8;
        MLX5DV_RAW_PACKET_CAP_TUNNELED_OFFLOAD_CW_MPLS_OVER_UDP = 16;
    }

    c_uint {
        // enum mlx5dv_flow_action_cap_flags
        MLX5DV_FLOW_ACTION_FLAGS_ESP_AES_GCM = 1;
        MLX5DV_FLOW_ACTION_FLAGS_ESP_AES_GCM_REQ_METADATA = 2;
        MLX5DV_FLOW_ACTION_FLAGS_ESP_AES_GCM_SPI_STEERING = 4;
        MLX5DV_FLOW_ACTION_FLAGS_ESP_AES_GCM_FULL_OFFLOAD = 8;
        MLX5DV_FLOW_ACTION_FLAGS_ESP_AES_GCM_TX_IV_IS_ESN = 16;
    }

    c_uint {
        // enum mlx5dv_sig_type
        MLX5DV_SIG_TYPE_T10DIF = 0;
        MLX5DV_SIG_TYPE_CRC = 1;
    }

    c_uint {
        // enum mlx5dv_sig_prot_caps
        MLX5DV_SIG_PROT_CAP_T10DIF = 1;
        MLX5DV_SIG_PROT_CAP_CRC = 2;
    }

    c_uint {
        // enum mlx5dv_sig_t10dif_bg_type
        MLX5DV_SIG_T10DIF_CRC = 0;
        MLX5DV_SIG_T10DIF_CSUM = 1;
    }

    c_uint {
        // enum mlx5dv_sig_t10dif_bg_caps
        MLX5DV_SIG_T10DIF_BG_CAP_CRC = 1;
        MLX5DV_SIG_T10DIF_BG_CAP_CSUM = 2;
    }

    c_uint {
        // enum mlx5dv_sig_crc_type
        MLX5DV_SIG_CRC_TYPE_CRC32 = 0;
        MLX5DV_SIG_CRC_TYPE_CRC32C = 1;
        MLX5DV_SIG_CRC_TYPE_CRC64_XP10 = 2;
    }

    c_uint {
        // enum mlx5dv_sig_crc_type_caps
        MLX5DV_SIG_CRC_TYPE_CAP_CRC32 = 1;
        MLX5DV_SIG_CRC_TYPE_CAP_CRC32C = 2;
        MLX5DV_SIG_CRC_TYPE_CAP_CRC64_XP10 = 4;
    }

    c_uint {
        // enum mlx5dv_block_size
        MLX5DV_BLOCK_SIZE_512 = 0;
        MLX5DV_BLOCK_SIZE_520 = 1;
        MLX5DV_BLOCK_SIZE_4048 = 2;
        MLX5DV_BLOCK_SIZE_4096 = 3;
        MLX5DV_BLOCK_SIZE_4160 = 4;
    }

    c_uint {
        // enum mlx5dv_block_size_caps
        MLX5DV_BLOCK_SIZE_CAP_512 = 1;
        MLX5DV_BLOCK_SIZE_CAP_520 = 2;
        MLX5DV_BLOCK_SIZE_CAP_4048 = 4;
        MLX5DV_BLOCK_SIZE_CAP_4096 = 8;
        MLX5DV_BLOCK_SIZE_CAP_4160 = 16;
    }

    c_uint {
        // enum mlx5dv_crypto_engines_caps
        MLX5DV_CRYPTO_ENGINES_CAP_AES_XTS = 1;
        MLX5DV_CRYPTO_ENGINES_CAP_AES_XTS_SINGLE_BLOCK = 2;
        MLX5DV_CRYPTO_ENGINES_CAP_AES_XTS_MULTI_BLOCK = 4;
    }

    c_uint {
        // enum mlx5dv_crypto_wrapped_import_method_caps
        MLX5DV_CRYPTO_WRAPPED_IMPORT_METHOD_CAP_AES_XTS = 1;
    }

    c_uint {
        // enum mlx5dv_crypto_caps_flags
        MLX5DV_CRYPTO_CAPS_CRYPTO = 1;
        MLX5DV_CRYPTO_CAPS_WRAPPED_CRYPTO_OPERATIONAL = 2;
        MLX5DV_CRYPTO_CAPS_WRAPPED_CRYPTO_GOING_TO_COMMISSIONING = 4;
    }

    c_uint {
        // enum mlx5dv_context_flags
        MLX5DV_CONTEXT_FLAGS_CQE_V1 = 1;
        MLX5DV_CONTEXT_FLAGS_OBSOLETE = 2;
        MLX5DV_CONTEXT_FLAGS_MPW_ALLOWED = 4;
        MLX5DV_CONTEXT_FLAGS_ENHANCED_MPW = 8;
        MLX5DV_CONTEXT_FLAGS_CQE_128B_COMP = 16;
        MLX5DV_CONTEXT_FLAGS_CQE_128B_PAD = 32;
        MLX5DV_CONTEXT_FLAGS_PACKET_BASED_CREDIT_MODE = 64;
        MLX5DV_CONTEXT_FLAGS_REAL_TIME_TS = 128;
        MLX5DV_CONTEXT_FLAGS_BLUEFLAME = 256;
    }

    c_uint {
        // enum mlx5dv_cq_init_attr_mask
        MLX5DV_CQ_INIT_ATTR_MASK_COMPRESSED_CQE = 1;
        MLX5DV_CQ_INIT_ATTR_MASK_FLAGS = 2;
        MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE = 4;
    }

    c_uint {
        // enum mlx5dv_cq_init_attr_flags
        MLX5DV_CQ_INIT_ATTR_FLAGS_CQE_PAD = 1;
        MLX5DV_CQ_INIT_ATTR_FLAGS_RESERVED = 2;
    }

    c_uint {
        // enum mlx5dv_qp_create_flags
        MLX5DV_QP_CREATE_TUNNEL_OFFLOADS = 1;
        MLX5DV_QP_CREATE_TIR_ALLOW_SELF_LOOPBACK_UC = 2;
        MLX5DV_QP_CREATE_TIR_ALLOW_SELF_LOOPBACK_MC = 4;
        MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE = 8;
        MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE = 16;
        MLX5DV_QP_CREATE_PACKET_BASED_CREDIT_MODE = 32;
        MLX5DV_QP_CREATE_SIG_PIPELINING = 64;
        MLX5DV_QP_CREATE_OOO_DP = 128;
    }

    c_uint {
        // enum mlx5dv_mkey_init_attr_flags
        MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT = 1;
        MLX5DV_MKEY_INIT_ATTR_FLAGS_BLOCK_SIGNATURE = 2;
        MLX5DV_MKEY_INIT_ATTR_FLAGS_CRYPTO = 4;
        MLX5DV_MKEY_INIT_ATTR_FLAGS_UPDATE_TAG = 8;
        MLX5DV_MKEY_INIT_ATTR_FLAGS_REMOTE_INVALIDATE = 16;
    }

    c_uint {
        // enum mlx5dv_qp_init_attr_mask
        MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS = 1;
        MLX5DV_QP_INIT_ATTR_MASK_DC = 2;
        MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS = 4;
        MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS = 8;
    }

    c_uint {
        // enum mlx5dv_dc_type
        MLX5DV_DCTYPE_DCT = 1;
        MLX5DV_DCTYPE_DCI = 2;
    }

    c_uint {
        // enum mlx5dv_qp_create_send_ops_flags
        MLX5DV_QP_EX_WITH_MR_INTERLEAVED = 1;
        MLX5DV_QP_EX_WITH_MR_LIST = 2;
        MLX5DV_QP_EX_WITH_MKEY_CONFIGURE = 4;
        MLX5DV_QP_EX_WITH_RAW_WQE = 8;
        MLX5DV_QP_EX_WITH_MEMCPY = 16;
    }

    c_uint {
        // enum mlx5dv_sig_t10dif_flags
        MLX5DV_SIG_T10DIF_FLAG_REF_REMAP = 1;
        MLX5DV_SIG_T10DIF_FLAG_APP_ESCAPE = 2;
        MLX5DV_SIG_T10DIF_FLAG_APP_REF_ESCAPE = 4;
    }

    c_uint {
        // enum mlx5dv_sig_mask
        MLX5DV_SIG_MASK_T10DIF_GUARD = 192;
        MLX5DV_SIG_MASK_T10DIF_APPTAG = 48;
        MLX5DV_SIG_MASK_T10DIF_REFTAG = 15;
        MLX5DV_SIG_MASK_CRC32 = 240;
        MLX5DV_SIG_MASK_CRC32C = 240;
        MLX5DV_SIG_MASK_CRC64_XP10 = 255;
    }

    c_uint {
        // enum mlx5dv_sig_block_attr_flags
        MLX5DV_SIG_BLOCK_ATTR_FLAG_COPY_MASK = 1;
    }

    c_uint {
        // enum mlx5dv_crypto_standard
        MLX5DV_CRYPTO_STANDARD_AES_XTS = 0;
    }

    c_uint {
        // enum mlx5dv_signature_crypto_order
        MLX5DV_SIGNATURE_CRYPTO_ORDER_SIGNATURE_AFTER_CRYPTO_ON_TX = 0;
        MLX5DV_SIGNATURE_CRYPTO_ORDER_SIGNATURE_BEFORE_CRYPTO_ON_TX = 1;
    }

    c_uint {
        // enum mlx5dv_mkey_conf_flags
        MLX5DV_MKEY_CONF_FLAG_RESET_SIG_ATTR = 1;
    }

    c_uint {
        // enum mlx5dv_wc_opcode
        MLX5DV_WC_UMR = 135;
        MLX5DV_WC_RAW_WQE = 136;
        MLX5DV_WC_MEMCPY = 137;
    }

    c_uint {
        // enum mlx5dv_mkey_err_type
        MLX5DV_MKEY_NO_ERR = 0;
        MLX5DV_MKEY_SIG_BLOCK_BAD_GUARD = 1;
        MLX5DV_MKEY_SIG_BLOCK_BAD_REFTAG = 2;
        MLX5DV_MKEY_SIG_BLOCK_BAD_APPTAG = 3;
    }

    c_uint {
        // enum mlx5dv_crypto_login_state
        MLX5DV_CRYPTO_LOGIN_STATE_VALID = 0;
        MLX5DV_CRYPTO_LOGIN_STATE_NO_LOGIN = 1;
        MLX5DV_CRYPTO_LOGIN_STATE_INVALID = 2;
    }

    c_uint {
        // enum mlx5dv_crypto_key_size
        MLX5DV_CRYPTO_KEY_SIZE_128 = 0;
        MLX5DV_CRYPTO_KEY_SIZE_256 = 1;
    }

    c_uint {
        // enum mlx5dv_crypto_key_purpose
        MLX5DV_CRYPTO_KEY_PURPOSE_AES_XTS = 0;
    }

    c_uint {
        // enum mlx5dv_dek_state
        MLX5DV_DEK_STATE_READY = 0;
        MLX5DV_DEK_STATE_ERROR = 1;
    }

    c_uint {
        // enum mlx5dv_dek_init_attr_mask
        MLX5DV_DEK_INIT_ATTR_CRYPTO_LOGIN = 1;
    }

    c_uint {
        // enum mlx5dv_flow_action_esp_mask
        MLX5DV_FLOW_ACTION_ESP_MASK_FLAGS = 1;
    }

    c_uint {
        // enum mlx5dv_flow_matcher_attr_mask
        MLX5DV_FLOW_MATCHER_MASK_FT_TYPE = 1;
        MLX5DV_FLOW_MATCHER_MASK_IB_PORT = 2;
    }

    c_uint {
        // enum mlx5dv_flow_action_type
        MLX5DV_FLOW_ACTION_DEST_IBV_QP = 0;
        MLX5DV_FLOW_ACTION_DROP = 1;
        MLX5DV_FLOW_ACTION_IBV_COUNTER = 2;
        MLX5DV_FLOW_ACTION_IBV_FLOW_ACTION = 3;
        MLX5DV_FLOW_ACTION_TAG = 4;
        MLX5DV_FLOW_ACTION_DEST_DEVX = 5;
        MLX5DV_FLOW_ACTION_COUNTERS_DEVX = 6;
        MLX5DV_FLOW_ACTION_DEFAULT_MISS = 7;
        MLX5DV_FLOW_ACTION_COUNTERS_DEVX_WITH_OFFSET = 8;
    }

    c_uint {
        // enum mlx5dv_qp_comp_mask
        MLX5DV_QP_MASK_UAR_MMAP_OFFSET = 1;
        MLX5DV_QP_MASK_RAW_QP_HANDLES = 2;
        MLX5DV_QP_MASK_RAW_QP_TIR_ADDR = 4;
    }

    c_uint {
        // enum mlx5dv_srq_comp_mask
        MLX5DV_SRQ_MASK_SRQN = 1;
    }

    c_uint {
        // enum mlx5dv_dm_comp_mask
        MLX5DV_DM_MASK_REMOTE_VA = 1;
    }

    c_uint {
        // enum mlx5dv_obj_type
        MLX5DV_OBJ_QP = 1;
        MLX5DV_OBJ_CQ = 2;
        MLX5DV_OBJ_SRQ = 4;
        MLX5DV_OBJ_RWQ = 8;
        MLX5DV_OBJ_DM = 16;
        MLX5DV_OBJ_AH = 32;
        MLX5DV_OBJ_PD = 64;
        MLX5DV_OBJ_DEVX = 128;
    }

    c_uint {
        // enum mlx5dv_wq_init_attr_mask
        MLX5DV_WQ_INIT_ATTR_MASK_STRIDING_RQ = 1;
    }

    c_uint {
        // enum mlx5dv_cqe_comp_res_format
        MLX5DV_CQE_RES_FORMAT_HASH = 1;
        MLX5DV_CQE_RES_FORMAT_CSUM = 2;
        MLX5DV_CQE_RES_FORMAT_CSUM_STRIDX = 4;
    }

    c_uint {
        // enum mlx5dv_sw_parsing_offloads
        MLX5DV_SW_PARSING = 1;
        MLX5DV_SW_PARSING_CSUM = 2;
        MLX5DV_SW_PARSING_LSO = 4;
    }

    c_uint {
        // enum mlx5dv_set_ctx_attr_type
        MLX5DV_CTX_ATTR_BUF_ALLOCATORS = 1;
    }

    c_uint {
        // enum mlx5dv_context_attr_flags
        MLX5DV_CONTEXT_FLAGS_DEVX = 1;
    }

    c_uint {
        // enum mlx5dv_context_attr_comp_mask
        MLX5DV_CONTEXT_ATTR_MASK_FD_ARRAY = 1;
    }

    c_uint {
        // enum mlx5dv_vfio_context_attr_flags
        MLX5DV_VFIO_CTX_FLAGS_INIT_LINK_DOWN = 1;
    }

    c_uint {
        // enum mlx5dv_devx_umem_in_mask
        MLX5DV_UMEM_MASK_DMABUF = 1;
    }

    c_uint {
        // enum mlx5dv_dr_domain_type
        MLX5DV_DR_DOMAIN_TYPE_NIC_RX = 0;
        MLX5DV_DR_DOMAIN_TYPE_NIC_TX = 1;
        MLX5DV_DR_DOMAIN_TYPE_FDB = 2;
    }

    c_uint {
        // enum mlx5dv_dr_domain_sync_flags
        MLX5DV_DR_DOMAIN_SYNC_FLAGS_SW = 1;
        MLX5DV_DR_DOMAIN_SYNC_FLAGS_HW = 2;
        MLX5DV_DR_DOMAIN_SYNC_FLAGS_MEM = 4;
    }

    c_uint {
        // enum mlx5dv_dr_matcher_layout_flags
        MLX5DV_DR_MATCHER_LAYOUT_RESIZABLE = 1;
        MLX5DV_DR_MATCHER_LAYOUT_NUM_RULE = 2;
    }

    c_uint {
        // enum mlx5dv_dr_action_flags
        MLX5DV_DR_ACTION_FLAGS_ROOT_LEVEL = 1;
    }

    c_uint {
        // enum mlx5dv_dr_action_dest_type
        MLX5DV_DR_ACTION_DEST = 0;
        MLX5DV_DR_ACTION_DEST_REFORMAT = 1;
    }

    c_uint {
        // enum mlx5dv_dr_action_aso_first_hit_flags
        MLX5DV_DR_ACTION_FLAGS_ASO_FIRST_HIT_SET = 1;
    }

    c_uint {
        // enum mlx5dv_dr_action_aso_flow_meter_flags
        MLX5DV_DR_ACTION_FLAGS_ASO_FLOW_METER_RED = 1;
        MLX5DV_DR_ACTION_FLAGS_ASO_FLOW_METER_YELLOW = 2;
        MLX5DV_DR_ACTION_FLAGS_ASO_FLOW_METER_GREEN = 4;
        MLX5DV_DR_ACTION_FLAGS_ASO_FLOW_METER_UNDEFINED = 8;
    }

    c_uint {
        // enum mlx5dv_dr_action_aso_ct_flags
        MLX5DV_DR_ACTION_FLAGS_ASO_CT_DIRECTION_INITIATOR = 1;
        MLX5DV_DR_ACTION_FLAGS_ASO_CT_DIRECTION_RESPONDER = 2;
    }

    c_uint {
        // enum mlx5dv_sched_elem_attr_flags
        MLX5DV_SCHED_ELEM_ATTR_FLAGS_BW_SHARE = 1;
        MLX5DV_SCHED_ELEM_ATTR_FLAGS_MAX_AVG_BW = 2;
    }
}
