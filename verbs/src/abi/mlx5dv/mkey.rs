//! Memory keys, signatures, and the extended send interface.
//!
//! `infiniband/mlx5dv.h`.

use super::*;
use crate::abi::*;

abi! {
    struct mlx5dv_sig_caps [16] {
        0 block_size: u64,
        8 block_prot: u32,
        12 t10dif_bg: u16,
        14 crc_type: u16,
    }

    struct mlx5dv_crypto_caps [12] {
        0 failed_selftests: u16,
        2 crypto_engines: u8,
        3 wrapped_import_method: u8,
        4 log_max_num_deks: u8,
        8 flags: u32,
    }

    struct mlx5dv_mkey_init_attr [16] {
        0 pd: *mut ibv_pd,
        8 create_flags: u32,
        12 max_entries: u16,
    }

    struct mlx5dv_mkey [8] {
        0 lkey: u32,
        4 rkey: u32,
    }

    struct mlx5dv_mr_interleaved [24] {
        0 addr: u64,
        8 bytes_count: u32,
        12 bytes_skip: u32,
        16 lkey: u32,
    }

    struct mlx5dv_sig_t10dif [16] {
        0 bg_type: c_uint,
        4 bg: u16,
        6 app_tag: u16,
        8 ref_tag: u32,
        12 flags: u16,
    }

    struct mlx5dv_sig_crc [16] {
        0 r#type: c_uint,
        8 seed: u64,
    }

    union mlx5dv_sig_block_domain_sig {
        dif: *mut mlx5dv_sig_t10dif,
        crc: *mut mlx5dv_sig_crc,
    }

    struct mlx5dv_sig_block_domain [32] {
        0 sig_type: c_uint,
        8 sig: mlx5dv_sig_block_domain_sig,
        16 block_size: c_uint,
        24 comp_mask: u64,
    }

    struct mlx5dv_sig_block_attr [32] {
        0 mem: *mut mlx5dv_sig_block_domain,
        8 wire: *mut mlx5dv_sig_block_domain,
        16 flags: u32,
        20 check_mask: u8,
        21 copy_mask: u8,
        24 comp_mask: u64,
    }

    struct mlx5dv_crypto_attr [56] {
        0 crypto_standard: c_uint,
        4 encrypt_on_tx: bool,
        8 signature_crypto_order: c_uint,
        12 data_unit_size: c_uint,
        16 initial_tweak: [c_char; 16],
        32 dek: *mut mlx5dv_dek,
        40 keytag: [c_char; 8],
        48 comp_mask: u64,
    }

    struct mlx5dv_mkey_conf_attr [16] {
        0 conf_flags: u32,
        8 comp_mask: u64,
    }

    struct mlx5dv_qp_ex [104] {
        0 comp_mask: u64,
        8 wr_set_dc_addr: Option<unsafe extern "C" fn(
            mqp: *mut mlx5dv_qp_ex, ah: *mut ibv_ah, remote_dctn: u32, remote_dc_key: u64,
        )>,
        16 wr_mr_interleaved: Option<unsafe extern "C" fn(
            mqp: *mut mlx5dv_qp_ex, mkey: *mut mlx5dv_mkey, access_flags: u32, repeat_count: u32,
            num_interleaved: u16, data: *mut mlx5dv_mr_interleaved,
        )>,
        24 wr_mr_list: Option<unsafe extern "C" fn(
            mqp: *mut mlx5dv_qp_ex, mkey: *mut mlx5dv_mkey, access_flags: u32, num_sges: u16,
            sge: *mut ibv_sge,
        )>,
        32 wr_mkey_configure: Option<unsafe extern "C" fn(
            mqp: *mut mlx5dv_qp_ex, mkey: *mut mlx5dv_mkey, num_setters: u8,
            attr: *mut mlx5dv_mkey_conf_attr,
        )>,
        40 wr_set_mkey_access_flags: Option<unsafe extern "C" fn(
            mqp: *mut mlx5dv_qp_ex, access_flags: u32,
        )>,
        48 wr_set_mkey_layout_list: Option<unsafe extern "C" fn(
            mqp: *mut mlx5dv_qp_ex, num_sges: u16, sge: *const ibv_sge,
        )>,
        56 wr_set_mkey_layout_interleaved: Option<unsafe extern "C" fn(
            mqp: *mut mlx5dv_qp_ex, repeat_count: u32, num_interleaved: u16,
            data: *const mlx5dv_mr_interleaved,
        )>,
        64 wr_set_mkey_sig_block: Option<unsafe extern "C" fn(
            mqp: *mut mlx5dv_qp_ex, attr: *const mlx5dv_sig_block_attr,
        )>,
        72 wr_raw_wqe: Option<unsafe extern "C" fn(mqp: *mut mlx5dv_qp_ex, wqe: *const c_void)>,
        80 wr_set_dc_addr_stream: Option<unsafe extern "C" fn(
            mqp: *mut mlx5dv_qp_ex, ah: *mut ibv_ah, remote_dctn: u32, remote_dc_key: u64,
            stream_id: u16,
        )>,
        88 wr_memcpy: Option<unsafe extern "C" fn(
            mqp: *mut mlx5dv_qp_ex, dest_lkey: u32, dest_addr: u64, src_lkey: u32, src_addr: u64,
            length: usize,
        )>,
        96 wr_set_mkey_crypto: Option<unsafe extern "C" fn(
            mqp: *mut mlx5dv_qp_ex, attr: *const mlx5dv_crypto_attr,
        )>,
    }

    struct mlx5dv_sig_err [24] {
        0 actual_value: u64,
        8 expected_value: u64,
        16 offset: u64,
    }

    union mlx5dv_mkey_err_err {
        sig: mlx5dv_sig_err,
    }

    struct mlx5dv_mkey_err [32] {
        0 err_type: c_uint,
        8 err: mlx5dv_mkey_err_err,
    }

    struct mlx5dv_crypto_login_attr [64] {
        0 credential_id: u32,
        4 import_kek_id: u32,
        8 credential: [c_char; 48],
        56 comp_mask: u64,
    }

    struct mlx5dv_crypto_login_attr_ex [32] {
        0 credential_id: u32,
        4 import_kek_id: u32,
        8 credential: *mut c_void,
        16 credential_len: usize,
        24 comp_mask: u64,
    }

    struct mlx5dv_crypto_login_query_attr [16] {
        0 state: c_uint,
        8 comp_mask: u64,
    }

    struct mlx5dv_dek_init_attr [176] {
        0 key_size: c_uint,
        4 has_keytag: bool,
        8 key_purpose: c_uint,
        16 pd: *mut ibv_pd,
        24 opaque: [c_char; 8],
        32 key: [c_char; 128],
        160 comp_mask: u64,
        168 crypto_login: *mut mlx5dv_crypto_login_obj,
    }

    struct mlx5dv_dek_attr [24] {
        0 state: c_uint,
        4 opaque: [c_char; 8],
        16 comp_mask: u64,
    }
}
