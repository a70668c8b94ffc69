//! Memory: mkeys, PSVs, page faults, on-device memory.

use super::commands;
use crate::fields::{codes, layouts};

layouts! {
    /// A memory key's context.
    ///
    /// `mlx5_ifc_mkc_bits`.
    pub struct MkeyContext [0x200] {
        free, set_free: 0x1, 1;
        access_mode_4_2, set_access_mode_4_2: 0x3, 3;
        relaxed_ordering_write, set_relaxed_ordering_write: 0xd, 1;
        small_fence_on_rdma_read_response, set_small_fence_on_rdma_read_response: 0xf, 1;
        umr_en, set_umr_en: 0x10, 1;
        a, set_a: 0x11, 1;
        rw, set_rw: 0x12, 1;
        rr, set_rr: 0x13, 1;
        lw, set_lw: 0x14, 1;
        lr, set_lr: 0x15, 1;
        access_mode_1_0, set_access_mode_1_0: 0x16, 2;
        ma_translation_mode, set_ma_translation_mode: 0x1a, 2;
        qpn, set_qpn: 0x20, 24;
        mkey_7_0, set_mkey_7_0: 0x38, 8;
        length64, set_length64: 0x60, 1;
        bsf_en, set_bsf_en: 0x61, 1;
        sync_umr, set_sync_umr: 0x62, 1;
        expected_sigerr_count, set_expected_sigerr_count: 0x65, 1;
        en_rinval, set_en_rinval: 0x67, 1;
        pd, set_pd: 0x68, 24;
        start_addr, set_start_addr: 0x80, 64;
        len, set_len: 0xc0, 64;
        bsf_octword_size, set_bsf_octword_size: 0x100, 32;
        translations_octword_size, set_translations_octword_size: 0x1a0, 32;
        relaxed_ordering_read, set_relaxed_ordering_read: 0x1d9, 1;
        log_page_size, set_log_page_size: 0x1db, 5;
    }

    /// Input of CREATE_MKEY.
    ///
    /// `mlx5_ifc_create_mkey_in_bits`. Followed by translation entries (`klm_pas_mtt`), counted in
    /// octwords of 16 bytes.
    pub struct CreateMkeyIn [0x880] {
        opcode, set_opcode: 0x0, 16;
        uid, set_uid: 0x10, 16;
        op_mod, set_op_mod: 0x30, 16;
        pg_access, set_pg_access: 0x60, 1;
        mkey_umem_valid, set_mkey_umem_valid: 0x61, 1;
        mkc, mkc_mut: 0x80 => MkeyContext;
        translations_octword_actual_size, set_translations_octword_actual_size: 0x300, 32;
    }

    /// Output of CREATE_MKEY.
    ///
    /// `mlx5_ifc_create_mkey_out_bits`.
    pub struct CreateMkeyOut [0x80] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
        mkey_index, set_mkey_index: 0x48, 24;
    }

    /// Input of QUERY_MKEY.
    ///
    /// `mlx5_ifc_query_mkey_in_bits`.
    pub struct QueryMkeyIn [0x80] {
        opcode, set_opcode: 0x0, 16;
        op_mod, set_op_mod: 0x30, 16;
        mkey_index, set_mkey_index: 0x48, 24;
        pg_access, set_pg_access: 0x60, 1;
    }

    /// Output of QUERY_MKEY.
    ///
    /// `mlx5_ifc_query_mkey_out_bits`.
    pub struct QueryMkeyOut [0x980] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
        mkc, mkc_mut: 0x80 => MkeyContext;
        bsf0_klm0_pas_mtt0_1, bsf0_klm0_pas_mtt0_1_mut: 0x880 => [u8; 16];
        bsf1_klm1_pas_mtt2_3, bsf1_klm1_pas_mtt2_3_mut: 0x900 => [u8; 16];
    }

    /// Input of DESTROY_MKEY.
    ///
    /// `mlx5_ifc_destroy_mkey_in_bits`.
    pub struct DestroyMkeyIn [0x80] {
        opcode, set_opcode: 0x0, 16;
        uid, set_uid: 0x10, 16;
        op_mod, set_op_mod: 0x30, 16;
        mkey_index, set_mkey_index: 0x48, 24;
    }

    /// Output of DESTROY_MKEY.
    ///
    /// `mlx5_ifc_destroy_mkey_out_bits`.
    pub struct DestroyMkeyOut [0x80] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
    }

    /// Input of CREATE_PSV.
    ///
    /// `mlx5_ifc_create_psv_in_bits`.
    pub struct CreatePsvIn [0x80] {
        opcode, set_opcode: 0x0, 16;
        op_mod, set_op_mod: 0x30, 16;
        num_psv, set_num_psv: 0x40, 4;
        pd, set_pd: 0x48, 24;
    }

    /// Output of CREATE_PSV.
    ///
    /// `mlx5_ifc_create_psv_out_bits`.
    pub struct CreatePsvOut [0x100] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
        psv0_index, set_psv0_index: 0x88, 24;
        psv1_index, set_psv1_index: 0xa8, 24;
        psv2_index, set_psv2_index: 0xc8, 24;
        psv3_index, set_psv3_index: 0xe8, 24;
    }

    /// Input of DESTROY_PSV.
    ///
    /// `mlx5_ifc_destroy_psv_in_bits`.
    pub struct DestroyPsvIn [0x80] {
        opcode, set_opcode: 0x0, 16;
        op_mod, set_op_mod: 0x30, 16;
        psvn, set_psvn: 0x48, 24;
    }

    /// Output of DESTROY_PSV.
    ///
    /// `mlx5_ifc_destroy_psv_out_bits`.
    pub struct DestroyPsvOut [0x80] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
    }

    /// Input of PAGE_FAULT_RESUME.
    ///
    /// `mlx5_ifc_page_fault_resume_in_bits`.
    pub struct PageFaultResumeIn [0x80] {
        opcode, set_opcode: 0x0, 16;
        op_mod, set_op_mod: 0x30, 16;
        error, set_error: 0x40, 1;
        page_fault_type, set_page_fault_type: 0x45, 3;
        wq_number, set_wq_number: 0x48, 24;
        token, set_token: 0x68, 24;
    }

    /// Output of PAGE_FAULT_RESUME.
    ///
    /// `mlx5_ifc_page_fault_resume_out_bits`.
    pub struct PageFaultResumeOut [0x80] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
    }

    /// Input of ALLOC_MEMIC.
    ///
    /// `mlx5_ifc_alloc_memic_in_bits`.
    pub struct AllocMemicIn [0x100] {
        opcode, set_opcode: 0x0, 16;
        op_mod, set_op_mod: 0x30, 16;
        log_memic_addr_alignment, set_log_memic_addr_alignment: 0x78, 8;
        range_start_addr, set_range_start_addr: 0x80, 64;
        range_size, set_range_size: 0xc0, 32;
        memic_size, set_memic_size: 0xe0, 32;
    }

    /// Output of ALLOC_MEMIC.
    ///
    /// `mlx5_ifc_alloc_memic_out_bits`.
    pub struct AllocMemicOut [0x80] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
        memic_start_addr, set_memic_start_addr: 0x40, 64;
    }

    /// Input of DEALLOC_MEMIC.
    ///
    /// `mlx5_ifc_dealloc_memic_in_bits`.
    pub struct DeallocMemicIn [0x100] {
        opcode, set_opcode: 0x0, 16;
        op_mod, set_op_mod: 0x30, 16;
        memic_start_addr, set_memic_start_addr: 0x80, 64;
        memic_size, set_memic_size: 0xc0, 32;
    }

    /// Output of DEALLOC_MEMIC.
    ///
    /// `mlx5_ifc_dealloc_memic_out_bits`.
    pub struct DeallocMemicOut [0x80] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
    }
}

commands! {
    CREATE_MKEY: CreateMkeyIn => CreateMkeyOut;
    QUERY_MKEY: QueryMkeyIn => QueryMkeyOut;
    DESTROY_MKEY: DestroyMkeyIn => DestroyMkeyOut;
    CREATE_PSV: CreatePsvIn => CreatePsvOut;
    DESTROY_PSV: DestroyPsvIn => DestroyPsvOut;
    PAGE_FAULT_RESUME: PageFaultResumeIn => PageFaultResumeOut;
    ALLOC_MEMIC: AllocMemicIn => AllocMemicOut;
    DEALLOC_MEMIC: DeallocMemicIn => DeallocMemicOut;
}

codes! {
    /// Access mode of an mkey, from `access_mode_4_2` and `access_mode_1_0`.
    /// `MLX5_MKC_ACCESS_MODE_*`.
    pub struct MkeyAccessMode {
        /// Physical addresses, without translation.
        PA = 0;
        /// A table of page addresses.
        MTT = 1;
        /// A list of (key, address, length) entries of any length.
        KLMS = 2;
        /// A list of (key, address) entries of one fixed length.
        KSM = 3;
        SW_ICM = 4;
        /// On-device memory.
        MEMIC = 5;
    }
}

impl MkeyContext {
    /// Returns the access mode from its two fields.
    #[must_use]
    pub fn access_mode(&self) -> MkeyAccessMode {
        MkeyAccessMode(self.access_mode_4_2() << 2 | self.access_mode_1_0())
    }

    /// Stores the access mode in its two fields.
    pub fn set_access_mode(&mut self, mode: MkeyAccessMode) -> &mut Self {
        self.set_access_mode_4_2(mode.0 >> 2).set_access_mode_1_0(mode.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mkey_context_has_its_fields_where_the_manual_draws_them() {
        let mut mkc = MkeyContext::default();
        mkc.set_access_mode(MkeyAccessMode::MEMIC).set_lr(true).set_lw(true).set_umr_en(true);
        mkc.set_qpn(0xff_ffff).set_mkey_7_0(0x42).set_length64(true).set_pd(0x01_0203);
        mkc.set_start_addr(0x1122_3344_5566_7788).set_len(1 << 40).set_log_page_size(12);
        let bytes = mkc.as_bytes();
        assert_eq!(bytes[..4], [0b0000_0100, 0, 0b1000_1101, 0]);
        assert_eq!(bytes[4..8], [0xff, 0xff, 0xff, 0x42]);
        assert_eq!(bytes[12..16], [0x80, 1, 2, 3]);
        assert_eq!(bytes[16..24], 0x1122_3344_5566_7788u64.to_be_bytes());
        assert_eq!(bytes[24..32], (1u64 << 40).to_be_bytes());
        assert_eq!(bytes[59], 12);
        assert_eq!(mkc.access_mode(), MkeyAccessMode::MEMIC);
        assert_eq!(MkeyContext::BYTES, 64);
    }
}
