//! The device as a whole: initialization and teardown, interface version, pages, adapter.

use super::commands;
use crate::U32;
use crate::fields::{codes, layouts};

layouts! {
    /// Vendor of the adapter, and its board (`psid`).
    ///
    /// `mlx5_ifc_query_adapter_param_block_bits`.
    pub struct AdapterParams [0x800] {
        ieee_vendor_id, set_ieee_vendor_id: 0xc8, 24;
        vsd_vendor_id, set_vsd_vendor_id: 0xf0, 16;
        vsd, vsd_mut: 0x100 => [u8; 208];
        vsd_contd_psid, vsd_contd_psid_mut: 0x780 => [u8; 16];
    }

    /// Input of QUERY_ADAPTER.
    ///
    /// `mlx5_ifc_query_adapter_in_bits`.
    pub struct QueryAdapterIn [0x80] {
        opcode, set_opcode: 0x0, 16;
        op_mod, set_op_mod: 0x30, 16;
    }

    /// Output of QUERY_ADAPTER.
    ///
    /// `mlx5_ifc_query_adapter_out_bits`.
    pub struct QueryAdapterOut [0x880] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
        query_adapter_struct, query_adapter_struct_mut: 0x80 => AdapterParams;
    }

    /// Input of INIT_HCA.
    ///
    /// `mlx5_ifc_init_hca_in_bits`.
    pub struct InitHcaIn [0x100] {
        opcode, set_opcode: 0x0, 16;
        op_mod, set_op_mod: 0x30, 16;
        sw_vhca_id, set_sw_vhca_id: 0x62, 14;
        sw_owner_id, sw_owner_id_mut: 0x80 => [U32; 4];
    }

    /// Output of INIT_HCA.
    ///
    /// `mlx5_ifc_init_hca_out_bits`.
    pub struct InitHcaOut [0x80] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
    }

    /// Input of TEARDOWN_HCA.
    ///
    /// `mlx5_ifc_teardown_hca_in_bits`.
    pub struct TeardownHcaIn [0x80] {
        opcode, set_opcode: 0x0, 16;
        op_mod, set_op_mod: 0x30, 16;
        profile, set_profile: 0x50, 16;
    }

    /// Output of TEARDOWN_HCA.
    ///
    /// `mlx5_ifc_teardown_hca_out_bits`.
    pub struct TeardownHcaOut [0x80] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
        state, set_state: 0x7f, 1;
    }

    /// Input of ENABLE_HCA.
    ///
    /// `mlx5_ifc_enable_hca_in_bits`.
    pub struct EnableHcaIn [0x80] {
        opcode, set_opcode: 0x0, 16;
        op_mod, set_op_mod: 0x30, 16;
        embedded_cpu_function, set_embedded_cpu_function: 0x40, 1;
        function_id, set_function_id: 0x50, 16;
    }

    /// Output of ENABLE_HCA.
    ///
    /// `mlx5_ifc_enable_hca_out_bits`.
    pub struct EnableHcaOut [0x60] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
    }

    /// Input of DISABLE_HCA.
    ///
    /// `mlx5_ifc_disable_hca_in_bits`.
    pub struct DisableHcaIn [0x80] {
        opcode, set_opcode: 0x0, 16;
        op_mod, set_op_mod: 0x30, 16;
        embedded_cpu_function, set_embedded_cpu_function: 0x40, 1;
        function_id, set_function_id: 0x50, 16;
    }

    /// Output of DISABLE_HCA.
    ///
    /// `mlx5_ifc_disable_hca_out_bits`.
    pub struct DisableHcaOut [0x60] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
    }

    /// Input of QUERY_PAGES.
    ///
    /// `mlx5_ifc_query_pages_in_bits`.
    pub struct QueryPagesIn [0x80] {
        opcode, set_opcode: 0x0, 16;
        op_mod, set_op_mod: 0x30, 16;
        embedded_cpu_function, set_embedded_cpu_function: 0x40, 1;
        function_id, set_function_id: 0x50, 16;
    }

    /// Output of QUERY_PAGES.
    ///
    /// `mlx5_ifc_query_pages_out_bits`.
    pub struct QueryPagesOut [0x80] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
        embedded_cpu_function, set_embedded_cpu_function: 0x40, 1;
        function_id, set_function_id: 0x50, 16;
        num_pages, set_num_pages: 0x60, 32;
    }

    /// Input of MANAGE_PAGES.
    ///
    /// `mlx5_ifc_manage_pages_in_bits`. Followed by 64-bit addresses (`pas`).
    pub struct ManagePagesIn [0x80] {
        opcode, set_opcode: 0x0, 16;
        op_mod, set_op_mod: 0x30, 16;
        embedded_cpu_function, set_embedded_cpu_function: 0x40, 1;
        function_id, set_function_id: 0x50, 16;
        input_num_entries, set_input_num_entries: 0x60, 32;
    }

    /// Output of MANAGE_PAGES.
    ///
    /// `mlx5_ifc_manage_pages_out_bits`. Followed by 64-bit addresses (`pas`).
    pub struct ManagePagesOut [0x80] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
        output_num_entries, set_output_num_entries: 0x40, 32;
    }

    /// Input of QUERY_ISSI.
    ///
    /// `mlx5_ifc_query_issi_in_bits`.
    pub struct QueryIssiIn [0x80] {
        opcode, set_opcode: 0x0, 16;
        op_mod, set_op_mod: 0x30, 16;
    }

    /// Output of QUERY_ISSI.
    ///
    /// `mlx5_ifc_query_issi_out_bits`.
    pub struct QueryIssiOut [0x380] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
        current_issi, set_current_issi: 0x50, 16;
        supported_issi_dw0, set_supported_issi_dw0: 0x360, 32;
    }

    /// Input of SET_ISSI.
    ///
    /// `mlx5_ifc_set_issi_in_bits`.
    pub struct SetIssiIn [0x80] {
        opcode, set_opcode: 0x0, 16;
        op_mod, set_op_mod: 0x30, 16;
        current_issi, set_current_issi: 0x50, 16;
    }

    /// Output of SET_ISSI.
    ///
    /// `mlx5_ifc_set_issi_out_bits`.
    pub struct SetIssiOut [0x80] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
    }

    /// Input of SET_DRIVER_VERSION.
    ///
    /// `mlx5_ifc_set_driver_version_in_bits`.
    pub struct SetDriverVersionIn [0x280] {
        opcode, set_opcode: 0x0, 16;
        op_mod, set_op_mod: 0x30, 16;
        driver_version, driver_version_mut: 0x80 => [u8; 64];
    }

    /// Output of SET_DRIVER_VERSION.
    ///
    /// `mlx5_ifc_set_driver_version_out_bits`.
    pub struct SetDriverVersionOut [0x80] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
    }

    /// Input of QUERY_SPECIAL_CONTEXTS.
    ///
    /// `mlx5_ifc_query_special_contexts_in_bits`.
    pub struct QuerySpecialContextsIn [0x80] {
        opcode, set_opcode: 0x0, 16;
        op_mod, set_op_mod: 0x30, 16;
    }

    /// Output of QUERY_SPECIAL_CONTEXTS.
    ///
    /// `mlx5_ifc_query_special_contexts_out_bits`.
    pub struct QuerySpecialContextsOut [0x100] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
        dump_fill_mkey, set_dump_fill_mkey: 0x40, 32;
        resd_lkey, set_resd_lkey: 0x60, 32;
        null_mkey, set_null_mkey: 0x80, 32;
    }

    /// Input of NOP.
    ///
    /// `mlx5_ifc_nop_in_bits`.
    pub struct NopIn [0x80] {
        opcode, set_opcode: 0x0, 16;
        op_mod, set_op_mod: 0x30, 16;
    }

    /// Output of NOP.
    ///
    /// `mlx5_ifc_nop_out_bits`.
    pub struct NopOut [0x80] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
    }
}

commands! {
    QUERY_ADAPTER: QueryAdapterIn => QueryAdapterOut;
    INIT_HCA: InitHcaIn => InitHcaOut;
    TEARDOWN_HCA: TeardownHcaIn => TeardownHcaOut;
    ENABLE_HCA: EnableHcaIn => EnableHcaOut;
    DISABLE_HCA: DisableHcaIn => DisableHcaOut;
    QUERY_PAGES: QueryPagesIn => QueryPagesOut;
    MANAGE_PAGES: ManagePagesIn => ManagePagesOut;
    QUERY_ISSI: QueryIssiIn => QueryIssiOut;
    SET_ISSI: SetIssiIn => SetIssiOut;
    SET_DRIVER_VERSION: SetDriverVersionIn => SetDriverVersionOut;
    QUERY_SPECIAL_CONTEXTS: QuerySpecialContextsIn => QuerySpecialContextsOut;
    NOP: NopIn => NopOut;
}

codes! {
    /// `op_mod` of QUERY_PAGES: the stage that needs the pages. `MLX5_QUERY_PAGES_IN_OP_MOD_*`.
    pub struct QueryPagesMode {
        BOOT = 1;
        INIT = 2;
        REGULAR = 3;
    }

    /// `op_mod` of MANAGE_PAGES. `MLX5_MANAGE_PAGES_IN_OP_MOD_*`, `mlx5_ifc.h`.
    pub struct ManagePagesMode {
        ALLOCATION_FAIL = 0;
        ALLOCATION_SUCCESS = 1;
        HCA_RETURN_PAGES = 2;
    }

    /// `TeardownHcaIn::profile`. `MLX5_TEARDOWN_HCA_IN_PROFILE_*`, `mlx5_ifc.h`.
    pub struct TeardownProfile {
        GRACEFUL_CLOSE = 0;
        FORCE_CLOSE = 1;
        PREPARE_FAST_TEARDOWN = 2;
    }
}
