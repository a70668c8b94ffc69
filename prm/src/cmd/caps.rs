//! Capabilities: QUERY_HCA_CAP, SET_HCA_CAP and their capability groups.

use super::commands;
use crate::fields::{codes, layouts};

layouts! {
    /// General capabilities (group `GENERAL`).
    ///
    /// `mlx5_ifc_cmd_hca_cap_bits`.
    pub struct HcaCap [0x800] {
        shared_object_to_user_object_allowed, set_shared_object_to_user_object_allowed: 0x10, 1;
        vhca_resource_manager, set_vhca_resource_manager: 0x1f, 1;
        hca_cap_2, set_hca_cap_2: 0x20, 1;
        create_lag_when_not_master_up, set_create_lag_when_not_master_up: 0x21, 1;
        dtor, set_dtor: 0x22, 1;
        event_on_vhca_state_teardown_request, set_event_on_vhca_state_teardown_request: 0x23, 1;
        event_on_vhca_state_in_use, set_event_on_vhca_state_in_use: 0x24, 1;
        event_on_vhca_state_active, set_event_on_vhca_state_active: 0x25, 1;
        event_on_vhca_state_allocated, set_event_on_vhca_state_allocated: 0x26, 1;
        event_on_vhca_state_invalid, set_event_on_vhca_state_invalid: 0x27, 1;
        vhca_id, set_vhca_id: 0x30, 16;
        qp_data_in_order, set_qp_data_in_order: 0x62, 1;
        log_max_srq_sz, set_log_max_srq_sz: 0x80, 8;
        log_max_qp_sz, set_log_max_qp_sz: 0x88, 8;
        event_cap, set_event_cap: 0x90, 1;
        isolate_vl_tc_new, set_isolate_vl_tc_new: 0x93, 1;
        prio_tag_required, set_prio_tag_required: 0x98, 1;
        log_max_qp, set_log_max_qp: 0x9b, 5;
        ece_support, set_ece_support: 0xa3, 1;
        reg_c_preserve, set_reg_c_preserve: 0xa9, 1;
        log_max_srq, set_log_max_srq: 0xab, 5;
        uplink_follow, set_uplink_follow: 0xb1, 1;
        ts_cqe_to_dest_cqn, set_ts_cqe_to_dest_cqn: 0xb2, 1;
        shampo, set_shampo: 0xba, 1;
        max_sgl_for_optimized_performance, set_max_sgl_for_optimized_performance: 0xc0, 8;
        log_max_cq_sz, set_log_max_cq_sz: 0xc8, 8;
        relaxed_ordering_write_umr, set_relaxed_ordering_write_umr: 0xd0, 1;
        relaxed_ordering_read_umr, set_relaxed_ordering_read_umr: 0xd1, 1;
        virtio_net_device_emualtion_manager, set_virtio_net_device_emualtion_manager: 0xd9, 1;
        virtio_blk_device_emualtion_manager, set_virtio_blk_device_emualtion_manager: 0xda, 1;
        log_max_cq, set_log_max_cq: 0xdb, 5;
        log_max_eq_sz, set_log_max_eq_sz: 0xe0, 8;
        relaxed_ordering_write, set_relaxed_ordering_write: 0xe8, 1;
        relaxed_ordering_read, set_relaxed_ordering_read: 0xe9, 1;
        log_max_mkey, set_log_max_mkey: 0xea, 6;
        dump_fill_mkey, set_dump_fill_mkey: 0xf8, 1;
        fast_teardown, set_fast_teardown: 0xfb, 1;
        log_max_eq, set_log_max_eq: 0xfc, 4;
        max_indirection, set_max_indirection: 0x100, 8;
        fixed_buffer_size, set_fixed_buffer_size: 0x108, 1;
        log_max_mrw_sz, set_log_max_mrw_sz: 0x109, 7;
        force_teardown, set_force_teardown: 0x110, 1;
        log_max_bsf_list_size, set_log_max_bsf_list_size: 0x112, 6;
        umr_extended_translation_offset, set_umr_extended_translation_offset: 0x118, 1;
        null_mkey, set_null_mkey: 0x119, 1;
        log_max_klm_list_size, set_log_max_klm_list_size: 0x11a, 6;
        log_max_ra_req_dc, set_log_max_ra_req_dc: 0x12a, 6;
        eth_wqe_too_small, set_eth_wqe_too_small: 0x132, 1;
        vnic_env_cq_overrun, set_vnic_env_cq_overrun: 0x139, 1;
        log_max_ra_res_dc, set_log_max_ra_res_dc: 0x13a, 6;
        release_all_pages, set_release_all_pages: 0x145, 1;
        must_not_use, set_must_not_use: 0x146, 1;
        sig_crc64_xp10, set_sig_crc64_xp10: 0x147, 1;
        sig_crc32c, set_sig_crc32c: 0x148, 1;
        roce_accl, set_roce_accl: 0x149, 1;
        log_max_ra_req_qp, set_log_max_ra_req_qp: 0x14a, 6;
        log_max_ra_res_qp, set_log_max_ra_res_qp: 0x15a, 6;
        end_pad, set_end_pad: 0x160, 1;
        cc_query_allowed, set_cc_query_allowed: 0x161, 1;
        cc_modify_allowed, set_cc_modify_allowed: 0x162, 1;
        start_pad, set_start_pad: 0x163, 1;
        cache_line_128byte, set_cache_line_128byte: 0x164, 1;
        rts2rts_qp_counters_set_id, set_rts2rts_qp_counters_set_id: 0x169, 1;
        vnic_env_int_rq_oob, set_vnic_env_int_rq_oob: 0x16c, 1;
        sbcam_reg, set_sbcam_reg: 0x16d, 1;
        qcam_reg, set_qcam_reg: 0x16f, 1;
        gid_table_size, set_gid_table_size: 0x170, 16;
        out_of_seq_cnt, set_out_of_seq_cnt: 0x180, 1;
        vport_counters, set_vport_counters: 0x181, 1;
        retransmission_q_counters, set_retransmission_q_counters: 0x182, 1;
        debug, set_debug: 0x183, 1;
        modify_rq_counter_set_id, set_modify_rq_counter_set_id: 0x184, 1;
        rq_delay_drop, set_rq_delay_drop: 0x185, 1;
        max_qp_cnt, set_max_qp_cnt: 0x186, 10;
        pkey_table_size, set_pkey_table_size: 0x190, 16;
        vport_group_manager, set_vport_group_manager: 0x1a0, 1;
        vhca_group_manager, set_vhca_group_manager: 0x1a1, 1;
        ib_virt, set_ib_virt: 0x1a2, 1;
        eth_virt, set_eth_virt: 0x1a3, 1;
        vnic_env_queue_counters, set_vnic_env_queue_counters: 0x1a4, 1;
        ets, set_ets: 0x1a5, 1;
        nic_flow_table, set_nic_flow_table: 0x1a6, 1;
        eswitch_manager, set_eswitch_manager: 0x1a7, 1;
        device_memory, set_device_memory: 0x1a8, 1;
        mcam_reg, set_mcam_reg: 0x1a9, 1;
        pcam_reg, set_pcam_reg: 0x1aa, 1;
        local_ca_ack_delay, set_local_ca_ack_delay: 0x1ab, 5;
        port_module_event, set_port_module_event: 0x1b0, 1;
        enhanced_error_q_counters, set_enhanced_error_q_counters: 0x1b1, 1;
        ports_check, set_ports_check: 0x1b2, 1;
        disable_link_up, set_disable_link_up: 0x1b4, 1;
        beacon_led, set_beacon_led: 0x1b5, 1;
        port_type, set_port_type: 0x1b6, 2;
        num_ports, set_num_ports: 0x1b8, 8;
        pps, set_pps: 0x1c1, 1;
        pps_modify, set_pps_modify: 0x1c2, 1;
        log_max_msg, set_log_max_msg: 0x1c3, 5;
        max_tc, set_max_tc: 0x1cc, 4;
        temp_warn_event, set_temp_warn_event: 0x1d0, 1;
        dcbx, set_dcbx: 0x1d1, 1;
        general_notification_event, set_general_notification_event: 0x1d2, 1;
        fpga, set_fpga: 0x1d5, 1;
        rol_s, set_rol_s: 0x1d6, 1;
        rol_g, set_rol_g: 0x1d7, 1;
        wol_s, set_wol_s: 0x1d9, 1;
        wol_g, set_wol_g: 0x1da, 1;
        wol_a, set_wol_a: 0x1db, 1;
        wol_b, set_wol_b: 0x1dc, 1;
        wol_m, set_wol_m: 0x1dd, 1;
        wol_u, set_wol_u: 0x1de, 1;
        wol_p, set_wol_p: 0x1df, 1;
        stat_rate_support, set_stat_rate_support: 0x1e0, 16;
        sig_block_4048, set_sig_block_4048: 0x1f0, 1;
        pci_sync_for_fw_update_event, set_pci_sync_for_fw_update_event: 0x1f1, 1;
        init2_lag_tx_port_affinity, set_init2_lag_tx_port_affinity: 0x1f8, 1;
        cqe_version, set_cqe_version: 0x1fc, 4;
        compact_address_vector, set_compact_address_vector: 0x200, 1;
        striding_rq, set_striding_rq: 0x201, 1;
        ipoib_enhanced_offloads, set_ipoib_enhanced_offloads: 0x203, 1;
        ipoib_basic_offloads, set_ipoib_basic_offloads: 0x204, 1;
        repeated_block_disabled, set_repeated_block_disabled: 0x206, 1;
        umr_modify_entity_size_disabled, set_umr_modify_entity_size_disabled: 0x207, 1;
        umr_modify_atomic_disabled, set_umr_modify_atomic_disabled: 0x208, 1;
        umr_indirect_mkey_disabled, set_umr_indirect_mkey_disabled: 0x209, 1;
        umr_fence, set_umr_fence: 0x20a, 2;
        dc_req_scat_data_cqe, set_dc_req_scat_data_cqe: 0x20c, 1;
        drain_sigerr, set_drain_sigerr: 0x20f, 1;
        cmdif_checksum, set_cmdif_checksum: 0x210, 2;
        sigerr_cqe, set_sigerr_cqe: 0x212, 1;
        wq_signature, set_wq_signature: 0x214, 1;
        sctr_data_cqe, set_sctr_data_cqe: 0x215, 1;
        sho, set_sho: 0x217, 1;
        tph, set_tph: 0x218, 1;
        rf, set_rf: 0x219, 1;
        dct, set_dct: 0x21a, 1;
        qos, set_qos: 0x21b, 1;
        eth_net_offloads, set_eth_net_offloads: 0x21c, 1;
        roce, set_roce: 0x21d, 1;
        atomic, set_atomic: 0x21e, 1;
        cq_oi, set_cq_oi: 0x220, 1;
        cq_resize, set_cq_resize: 0x221, 1;
        cq_moderation, set_cq_moderation: 0x222, 1;
        cq_eq_remap, set_cq_eq_remap: 0x226, 1;
        pg, set_pg: 0x227, 1;
        block_lb_mc, set_block_lb_mc: 0x228, 1;
        scqe_break_moderation, set_scqe_break_moderation: 0x22a, 1;
        cq_period_start_from_cqe, set_cq_period_start_from_cqe: 0x22b, 1;
        cd, set_cd: 0x22c, 1;
        apm, set_apm: 0x22e, 1;
        vector_calc, set_vector_calc: 0x22f, 1;
        umr_ptr_rlky, set_umr_ptr_rlky: 0x230, 1;
        imaicl, set_imaicl: 0x231, 1;
        qp_packet_based, set_qp_packet_based: 0x232, 1;
        qkv, set_qkv: 0x236, 1;
        pkv, set_pkv: 0x237, 1;
        set_deth_sqpn, set_set_deth_sqpn: 0x238, 1;
        xrc, set_xrc: 0x23c, 1;
        ud, set_ud: 0x23d, 1;
        uc, set_uc: 0x23e, 1;
        rc, set_rc: 0x23f, 1;
        uar_4k, set_uar_4k: 0x240, 1;
        fl_rc_qp_when_roce_disabled, set_fl_rc_qp_when_roce_disabled: 0x248, 1;
        regexp_params, set_regexp_params: 0x249, 1;
        uar_sz, set_uar_sz: 0x24a, 6;
        port_selection_cap, set_port_selection_cap: 0x250, 1;
        umem_uid_0, set_umem_uid_0: 0x252, 1;
        log_pg_sz, set_log_pg_sz: 0x258, 8;
        bf, set_bf: 0x260, 1;
        driver_version, set_driver_version: 0x261, 1;
        pad_tx_eth_packet, set_pad_tx_eth_packet: 0x262, 1;
        mkey_by_name, set_mkey_by_name: 0x266, 1;
        log_bf_reg_size, set_log_bf_reg_size: 0x26b, 5;
        lag_dct, set_lag_dct: 0x276, 2;
        lag_tx_port_affinity, set_lag_tx_port_affinity: 0x278, 1;
        lag_native_fdb_selection, set_lag_native_fdb_selection: 0x279, 1;
        lag_master, set_lag_master: 0x27b, 1;
        num_lag_ports, set_num_lag_ports: 0x27c, 4;
        max_wqe_sz_sq, set_max_wqe_sz_sq: 0x290, 16;
        max_wqe_sz_rq, set_max_wqe_sz_rq: 0x2b0, 16;
        max_flow_counter_31_16, set_max_flow_counter_31_16: 0x2c0, 16;
        max_wqe_sz_sq_dc, set_max_wqe_sz_sq_dc: 0x2d0, 16;
        max_qp_mcg, set_max_qp_mcg: 0x2e7, 25;
        flow_counter_bulk_alloc, set_flow_counter_bulk_alloc: 0x310, 8;
        log_max_mcg, set_log_max_mcg: 0x318, 8;
        log_max_transport_domain, set_log_max_transport_domain: 0x323, 5;
        log_max_pd, set_log_max_pd: 0x32b, 5;
        log_max_xrcd, set_log_max_xrcd: 0x33b, 5;
        nic_receive_steering_discard, set_nic_receive_steering_discard: 0x340, 1;
        receive_discard_vport_down, set_receive_discard_vport_down: 0x341, 1;
        transmit_discard_vport_down, set_transmit_discard_vport_down: 0x342, 1;
        eq_overrun_count, set_eq_overrun_count: 0x343, 1;
        invalid_command_count, set_invalid_command_count: 0x345, 1;
        quota_exceeded_count, set_quota_exceeded_count: 0x346, 1;
        log_max_flow_counter_bulk, set_log_max_flow_counter_bulk: 0x348, 8;
        max_flow_counter_15_0, set_max_flow_counter_15_0: 0x350, 16;
        log_max_rq, set_log_max_rq: 0x363, 5;
        log_max_sq, set_log_max_sq: 0x36b, 5;
        log_max_tir, set_log_max_tir: 0x373, 5;
        log_max_tis, set_log_max_tis: 0x37b, 5;
        basic_cyclic_rcv_wqe, set_basic_cyclic_rcv_wqe: 0x380, 1;
        log_max_rmp, set_log_max_rmp: 0x383, 5;
        log_max_rqt, set_log_max_rqt: 0x38b, 5;
        log_max_rqt_size, set_log_max_rqt_size: 0x393, 5;
        log_max_tis_per_sq, set_log_max_tis_per_sq: 0x39b, 5;
        ext_stride_num_range, set_ext_stride_num_range: 0x3a0, 1;
        roce_rw_supported, set_roce_rw_supported: 0x3a1, 1;
        log_max_current_uc_list_wr_supported, set_log_max_current_uc_list_wr_supported: 0x3a2, 1;
        log_max_stride_sz_rq, set_log_max_stride_sz_rq: 0x3a3, 5;
        log_min_stride_sz_rq, set_log_min_stride_sz_rq: 0x3ab, 5;
        log_max_stride_sz_sq, set_log_max_stride_sz_sq: 0x3b3, 5;
        log_min_stride_sz_sq, set_log_min_stride_sz_sq: 0x3bb, 5;
        hairpin, set_hairpin: 0x3c0, 1;
        log_max_hairpin_queues, set_log_max_hairpin_queues: 0x3c3, 5;
        log_max_hairpin_wq_data_sz, set_log_max_hairpin_wq_data_sz: 0x3cb, 5;
        log_max_hairpin_num_packets, set_log_max_hairpin_num_packets: 0x3d3, 5;
        log_max_wq_sz, set_log_max_wq_sz: 0x3db, 5;
        nic_vport_change_event, set_nic_vport_change_event: 0x3e0, 1;
        disable_local_lb_uc, set_disable_local_lb_uc: 0x3e1, 1;
        disable_local_lb_mc, set_disable_local_lb_mc: 0x3e2, 1;
        log_min_hairpin_wq_data_sz, set_log_min_hairpin_wq_data_sz: 0x3e3, 5;
        vhca_state, set_vhca_state: 0x3ea, 1;
        log_max_vlan_list, set_log_max_vlan_list: 0x3eb, 5;
        log_max_current_mc_list, set_log_max_current_mc_list: 0x3f3, 5;
        log_max_current_uc_list, set_log_max_current_uc_list: 0x3fb, 5;
        general_obj_types, set_general_obj_types: 0x400, 64;
        sq_ts_format, set_sq_ts_format: 0x440, 2;
        rq_ts_format, set_rq_ts_format: 0x442, 2;
        steering_format_version, set_steering_format_version: 0x444, 4;
        create_qp_start_hint, set_create_qp_start_hint: 0x448, 24;
        ats, set_ats: 0x461, 1;
        log_max_uctx, set_log_max_uctx: 0x463, 5;
        ipsec_offload, set_ipsec_offload: 0x46a, 1;
        log_max_umem, set_log_max_umem: 0x46b, 5;
        max_num_eqs, set_max_num_eqs: 0x470, 16;
        sigerr_domain_and_sig_type, set_sigerr_domain_and_sig_type: 0x480, 1;
        tls_tx, set_tls_tx: 0x481, 1;
        tls_rx, set_tls_rx: 0x482, 1;
        log_max_l2_table, set_log_max_l2_table: 0x483, 5;
        log_uar_page_sz, set_log_uar_page_sz: 0x490, 16;
        device_frequency_mhz, set_device_frequency_mhz: 0x4c0, 32;
        device_frequency_khz, set_device_frequency_khz: 0x4e0, 32;
        num_of_uars_per_page, set_num_of_uars_per_page: 0x520, 32;
        flex_parser_protocols, set_flex_parser_protocols: 0x540, 32;
        max_geneve_tlv_options, set_max_geneve_tlv_options: 0x560, 8;
        max_geneve_tlv_option_data_len, set_max_geneve_tlv_option_data_len: 0x56b, 5;
        adv_virtualization, set_adv_virtualization: 0x579, 1;
        log_max_dci_stream_channels, set_log_max_dci_stream_channels: 0x58b, 5;
        log_max_dci_errored_streams, set_log_max_dci_errored_streams: 0x593, 5;
        enhanced_cqe_compression, set_enhanced_cqe_compression: 0x5b0, 1;
        log_max_dek, set_log_max_dek: 0x5b3, 5;
        mini_cqe_resp_stride_index, set_mini_cqe_resp_stride_index: 0x5bc, 1;
        cqe_128_always, set_cqe_128_always: 0x5bd, 1;
        cqe_compression_128, set_cqe_compression_128: 0x5be, 1;
        cqe_compression, set_cqe_compression: 0x5bf, 1;
        cqe_compression_timeout, set_cqe_compression_timeout: 0x5c0, 16;
        cqe_compression_max_num, set_cqe_compression_max_num: 0x5d0, 16;
        flex_parser_id_gtpu_dw_0, set_flex_parser_id_gtpu_dw_0: 0x5e8, 4;
        tag_matching, set_tag_matching: 0x5f0, 1;
        rndv_offload_rc, set_rndv_offload_rc: 0x5f1, 1;
        rndv_offload_dc, set_rndv_offload_dc: 0x5f2, 1;
        log_tag_matching_list_sz, set_log_tag_matching_list_sz: 0x5f3, 5;
        log_max_xrq, set_log_max_xrq: 0x5fb, 5;
        affiliate_nic_vport_criteria, set_affiliate_nic_vport_criteria: 0x600, 8;
        native_port_num, set_native_port_num: 0x608, 8;
        num_vhca_ports, set_num_vhca_ports: 0x610, 8;
        flex_parser_id_gtpu_teid, set_flex_parser_id_gtpu_teid: 0x618, 4;
        sw_owner_id, set_sw_owner_id: 0x61e, 1;
        max_num_of_monitor_counters, set_max_num_of_monitor_counters: 0x620, 16;
        num_ppcnt_monitor_counters, set_num_ppcnt_monitor_counters: 0x630, 16;
        max_num_sf, set_max_num_sf: 0x640, 16;
        num_q_monitor_counters, set_num_q_monitor_counters: 0x650, 16;
        sf, set_sf: 0x680, 1;
        sf_set_partition, set_sf_set_partition: 0x681, 1;
        log_max_sf, set_log_max_sf: 0x683, 5;
        apu, set_apu: 0x688, 1;
        migration, set_migration: 0x68d, 1;
        log_min_sf_size, set_log_min_sf_size: 0x690, 8;
        max_num_sf_partitions, set_max_num_sf_partitions: 0x698, 8;
        uctx_cap, set_uctx_cap: 0x6a0, 32;
        flex_parser_id_geneve_tlv_option_0, set_flex_parser_id_geneve_tlv_option_0: 0x6c4, 4;
        flex_parser_id_icmp_dw1, set_flex_parser_id_icmp_dw1: 0x6c8, 4;
        flex_parser_id_icmp_dw0, set_flex_parser_id_icmp_dw0: 0x6cc, 4;
        flex_parser_id_icmpv6_dw1, set_flex_parser_id_icmpv6_dw1: 0x6d0, 4;
        flex_parser_id_icmpv6_dw0, set_flex_parser_id_icmpv6_dw0: 0x6d4, 4;
        flex_parser_id_outer_first_mpls_over_gre,
            set_flex_parser_id_outer_first_mpls_over_gre: 0x6d8, 4;
        flex_parser_id_outer_first_mpls_over_udp_label,
            set_flex_parser_id_outer_first_mpls_over_udp_label: 0x6dc, 4;
        max_num_match_definer, set_max_num_match_definer: 0x6e0, 16;
        sf_base_id, set_sf_base_id: 0x6f0, 16;
        flex_parser_id_gtpu_dw_2, set_flex_parser_id_gtpu_dw_2: 0x700, 4;
        flex_parser_id_gtpu_first_ext_dw_0, set_flex_parser_id_gtpu_first_ext_dw_0: 0x704, 4;
        num_total_dynamic_vf_msix, set_num_total_dynamic_vf_msix: 0x708, 24;
        dynamic_msix_table_size, set_dynamic_msix_table_size: 0x734, 12;
        min_dynamic_vf_msix_table_size, set_min_dynamic_vf_msix_table_size: 0x74c, 4;
        max_dynamic_vf_msix_table_size, set_max_dynamic_vf_msix_table_size: 0x754, 12;
        vhca_tunnel_commands, set_vhca_tunnel_commands: 0x780, 64;
        match_definer_format_supported, set_match_definer_format_supported: 0x7c0, 64;
    }

    /// More general capabilities (group `GENERAL_2`).
    ///
    /// `mlx5_ifc_cmd_hca_cap_2_bits`.
    pub struct HcaCap2 [0x800] {
        max_reformat_insert_size, set_max_reformat_insert_size: 0xa0, 8;
        max_reformat_insert_offset, set_max_reformat_insert_offset: 0xa8, 8;
        max_reformat_remove_size, set_max_reformat_remove_size: 0xb0, 8;
        max_reformat_remove_offset, set_max_reformat_remove_offset: 0xb8, 8;
        log_min_stride_wqe_sz, set_log_min_stride_wqe_sz: 0xc3, 5;
        log_min_mkey_entity_size, set_log_min_mkey_entity_size: 0x1ab, 5;
        sw_vhca_id_valid, set_sw_vhca_id_valid: 0x221, 1;
        sw_vhca_id, set_sw_vhca_id: 0x222, 14;
        ts_cqe_metadata_size2wqe_counter, set_ts_cqe_metadata_size2wqe_counter: 0x24b, 5;
    }

    /// The operations that a transport supports on memory with on-demand paging (ODP).
    ///
    /// `mlx5_ifc_odp_per_transport_service_cap_bits`.
    pub struct OdpTransportCaps [0x20] {
        send, set_send: 0x0, 1;
        receive, set_receive: 0x1, 1;
        write, set_write: 0x2, 1;
        read, set_read: 0x3, 1;
        atomic, set_atomic: 0x4, 1;
        srq_receive, set_srq_receive: 0x5, 1;
    }

    /// On-demand paging (group `ODP`).
    ///
    /// `mlx5_ifc_odp_cap_bits`.
    pub struct OdpCaps [0x800] {
        sig, set_sig: 0x40, 1;
        rc_odp_caps, rc_odp_caps_mut: 0x80 => OdpTransportCaps;
        uc_odp_caps, uc_odp_caps_mut: 0xa0 => OdpTransportCaps;
        ud_odp_caps, ud_odp_caps_mut: 0xc0 => OdpTransportCaps;
        xrc_odp_caps, xrc_odp_caps_mut: 0xe0 => OdpTransportCaps;
        dc_odp_caps, dc_odp_caps_mut: 0x100 => OdpTransportCaps;
    }

    /// Atomic operations (group `ATOMIC`).
    ///
    /// `mlx5_ifc_atomic_caps_bits`.
    pub struct AtomicCaps [0x800] {
        atomic_req_8b_endianness_mode, set_atomic_req_8b_endianness_mode: 0x40, 2;
        supported_atomic_req_8b_endianness_mode_1,
            set_supported_atomic_req_8b_endianness_mode_1: 0x46, 1;
        atomic_operations, set_atomic_operations: 0x90, 16;
        atomic_size_qp, set_atomic_size_qp: 0xb0, 16;
        atomic_size_dc, set_atomic_size_dc: 0xd0, 16;
        fetch_add_pci_atomic, set_fetch_add_pci_atomic: 0x280, 16;
        swap_pci_atomic, set_swap_pci_atomic: 0x290, 16;
        compare_swap_pci_atomic, set_compare_swap_pci_atomic: 0x2a0, 16;
    }

    /// RoCE (group `ROCE`).
    ///
    /// `mlx5_ifc_roce_cap_bits`.
    pub struct RoceCaps [0x800] {
        roce_apm, set_roce_apm: 0x0, 1;
        sw_r_roce_src_udp_port, set_sw_r_roce_src_udp_port: 0x4, 1;
        fl_rc_qp_when_roce_disabled, set_fl_rc_qp_when_roce_disabled: 0x5, 1;
        fl_rc_qp_when_roce_enabled, set_fl_rc_qp_when_roce_enabled: 0x6, 1;
        qp_ts_format, set_qp_ts_format: 0x1e, 2;
        l3_type, set_l3_type: 0x8c, 4;
        roce_version, set_roce_version: 0x98, 8;
        r_roce_dest_udp_port, set_r_roce_dest_udp_port: 0xb0, 16;
        r_roce_max_src_udp_port, set_r_roce_max_src_udp_port: 0xc0, 16;
        r_roce_min_src_udp_port, set_r_roce_min_src_udp_port: 0xd0, 16;
        roce_address_table_size, set_roce_address_table_size: 0xf0, 16;
    }

    /// On-device memory (group `DEV_MEM`).
    ///
    /// `mlx5_ifc_device_mem_cap_bits`.
    pub struct DeviceMemCaps [0x800] {
        memic, set_memic: 0x0, 1;
        log_min_memic_alloc_size, set_log_min_memic_alloc_size: 0x2b, 5;
        log_max_memic_addr_alignment, set_log_max_memic_addr_alignment: 0x38, 8;
        memic_bar_start_addr, set_memic_bar_start_addr: 0x40, 64;
        memic_bar_size, set_memic_bar_size: 0x80, 32;
        max_memic_size, set_max_memic_size: 0xa0, 32;
        steering_sw_icm_start_address, set_steering_sw_icm_start_address: 0xc0, 64;
        log_header_modify_sw_icm_size, set_log_header_modify_sw_icm_size: 0x108, 8;
        log_sw_icm_alloc_granularity, set_log_sw_icm_alloc_granularity: 0x112, 6;
        log_steering_sw_icm_size, set_log_steering_sw_icm_size: 0x118, 8;
        log_header_modify_pattern_sw_icm_size, set_log_header_modify_pattern_sw_icm_size: 0x138, 8;
        header_modify_sw_icm_start_address, set_header_modify_sw_icm_start_address: 0x140, 64;
        header_modify_pattern_sw_icm_start_address,
            set_header_modify_pattern_sw_icm_start_address: 0x1c0, 64;
        memic_operations, set_memic_operations: 0x200, 32;
    }

    /// Input of QUERY_HCA_CAP.
    ///
    /// `mlx5_ifc_query_hca_cap_in_bits`.
    pub struct QueryHcaCapIn [0x80] {
        opcode, set_opcode: 0x0, 16;
        op_mod, set_op_mod: 0x30, 16;
        other_function, set_other_function: 0x40, 1;
        function_id, set_function_id: 0x50, 16;
    }

    /// Output of QUERY_HCA_CAP.
    ///
    /// `mlx5_ifc_query_hca_cap_out_bits`.
    pub struct QueryHcaCapOut [0x8080] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
        capability, capability_mut: 0x80 => [u8; 4096];
    }
    overlay {
        hca_cap, hca_cap_mut: 0x80 => HcaCap;
        hca_cap_2, hca_cap_2_mut: 0x80 => HcaCap2;
        odp_caps, odp_caps_mut: 0x80 => OdpCaps;
        atomic_caps, atomic_caps_mut: 0x80 => AtomicCaps;
        roce_caps, roce_caps_mut: 0x80 => RoceCaps;
        ethernet_caps, ethernet_caps_mut: 0x80 => super::ethernet::EthernetCaps;
        flow_table_caps, flow_table_caps_mut: 0x80 => super::ethernet::FlowTableCaps;
        qos_caps, qos_caps_mut: 0x80 => super::ethernet::QosCaps;
        device_mem_caps, device_mem_caps_mut: 0x80 => DeviceMemCaps;
    }

    /// Input of SET_HCA_CAP.
    ///
    /// `mlx5_ifc_set_hca_cap_in_bits`.
    pub struct SetHcaCapIn [0x8080] {
        opcode, set_opcode: 0x0, 16;
        op_mod, set_op_mod: 0x30, 16;
        other_function, set_other_function: 0x40, 1;
        function_id, set_function_id: 0x50, 16;
        capability, capability_mut: 0x80 => [u8; 4096];
    }
    overlay {
        hca_cap, hca_cap_mut: 0x80 => HcaCap;
        hca_cap_2, hca_cap_2_mut: 0x80 => HcaCap2;
        odp_caps, odp_caps_mut: 0x80 => OdpCaps;
        atomic_caps, atomic_caps_mut: 0x80 => AtomicCaps;
        roce_caps, roce_caps_mut: 0x80 => RoceCaps;
        device_mem_caps, device_mem_caps_mut: 0x80 => DeviceMemCaps;
    }

    /// Output of SET_HCA_CAP.
    ///
    /// `mlx5_ifc_set_hca_cap_out_bits`.
    pub struct SetHcaCapOut [0x80] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
    }
}

commands! {
    QUERY_HCA_CAP: QueryHcaCapIn => QueryHcaCapOut;
    SET_HCA_CAP: SetHcaCapIn => SetHcaCapOut;
}

codes! {
    /// A group of capabilities. `enum mlx5_cap_type`, `device.h`.
    pub struct CapGroup {
        GENERAL = 0x00;
        ETHERNET_OFFLOADS = 0x01;
        ODP = 0x02;
        ATOMIC = 0x03;
        ROCE = 0x04;
        IPOIB_OFFLOADS = 0x05;
        IPOIB_ENHANCED_OFFLOADS = 0x06;
        FLOW_TABLE = 0x07;
        ESWITCH_FLOW_TABLE = 0x08;
        ESWITCH = 0x09;
        VECTOR_CALC = 0x0b;
        QOS = 0x0c;
        DEBUG = 0x0d;
        DEV_MEM = 0x0f;
        TLS = 0x11;
        VDPA_EMULATION = 0x13;
        DEV_EVENT = 0x14;
        IPSEC = 0x15;
        DEV_SHAMPO = 0x1d;
        MACSEC = 0x1f;
        GENERAL_2 = 0x20;
        PORT_SELECTION = 0x25;
        ADV_VIRTUALIZATION = 0x26;
    }

    /// Whether a capability's maximum or its current value is meant. `enum mlx5_cap_mode`,
    /// `device.h`.
    pub struct CapMode {
        /// The maximum that the device supports.
        MAX = 0;
        /// The current setting.
        CURRENT = 1;
    }

    /// `HcaCap::port_type`. `MLX5_CAP_PORT_TYPE_*`, `mlx5_ifc.h`.
    pub struct PortType {
        INFINIBAND = 0;
        ETHERNET = 1;
    }
}

impl CapGroup {
    /// Returns the `op_mod` of QUERY_HCA_CAP for this group and `mode`.
    #[must_use]
    pub const fn op_mod(self, mode: CapMode) -> u32 {
        self.0 << 1 | (mode.0 & 1)
    }

    /// Returns the group and mode that an `op_mod` of QUERY_HCA_CAP selects.
    #[must_use]
    pub const fn from_op_mod(op_mod: u32) -> (Self, CapMode) {
        (Self(op_mod >> 1), CapMode(op_mod & 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn general_capabilities_are_where_the_manual_draws_them() {
        let mut cap = HcaCap::default();
        cap.set_log_max_qp_sz(15).set_log_max_cq_sz(22).set_cqe_version(1).set_num_ports(1);
        cap.set_uar_4k(true).set_log_bf_reg_size(9).set_bf(true).set_max_wqe_sz_sq(1024);
        let bytes = cap.as_bytes();
        assert_eq!(bytes[0x88 / 8], 15);
        assert_eq!(bytes[0xc8 / 8], 22);
        assert_eq!(bytes[0x1f8 / 8], 1);
        assert_eq!(bytes[0x1b8 / 8], 1);
        assert_eq!(bytes[0x240 / 8], 0x80);
        assert_eq!(bytes[0x260 / 8..0x270 / 8], [0x80, 9]);
        assert_eq!(bytes[0x290 / 8..0x2a0 / 8], [0x04, 0x00]);
        assert_eq!(HcaCap::BYTES, 256);
    }

    #[test]
    fn every_group_overlays_the_same_room() {
        let mut out = QueryHcaCapOut::default();
        out.roce_caps_mut().set_roce_version(0x04);
        assert_eq!(out.capability()[0x98 / 8], 0x04);
        assert_eq!(QueryHcaCapOut::BYTES, 16 + 4096);
    }

    #[test]
    fn the_mode_is_the_low_bit_of_op_mod() {
        assert_eq!(CapGroup::ROCE.op_mod(CapMode::CURRENT), 9);
        assert_eq!(CapGroup::from_op_mod(0x40), (CapGroup::GENERAL_2, CapMode::MAX));
    }
}
