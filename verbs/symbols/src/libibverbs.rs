//! The functions of libibverbs that programs call, those that its inline functions call among them.

/// The table of this file.
#[macro_export]
macro_rules! libibverbs {
    ($($then:tt)+) => {
        $($then)+! {
            default "IBVERBS_1.0" {
                ibv_copy_path_rec_from_kern => refuse::nothing,
                ibv_copy_path_rec_to_kern => refuse::nothing,
                ibv_copy_qp_attr_from_kern => refuse::nothing,
                ibv_create_comp_channel => refuse::null,
                ibv_destroy_comp_channel => refuse::error,
                ibv_get_sysfs_path => refuse::null,
                ibv_rate_to_mult => refuse::minus_one,
                ibv_read_sysfs_file => refuse::minus_one,
                mult_to_ibv_rate => refuse::minus_one,
            }

            default "IBVERBS_1.1" {
                ibv_ack_async_event => refuse::nothing,
                ibv_ack_cq_events => refuse::nothing,
                ibv_alloc_pd => refuse::null,
                ibv_attach_mcast => refuse::error,
                ibv_close_device => refuse::error,
                ibv_copy_ah_attr_from_kern => refuse::nothing,
                ibv_create_ah => refuse::null,
                ibv_create_ah_from_wc => refuse::null,
                ibv_create_cq => refuse::null,
                ibv_create_qp => refuse::null,
                ibv_create_srq => refuse::null,
                ibv_dealloc_pd => refuse::error,
                ibv_dereg_mr => refuse::error,
                ibv_destroy_ah => refuse::error,
                ibv_destroy_cq => refuse::error,
                ibv_destroy_qp => refuse::error,
                ibv_destroy_srq => refuse::error,
                ibv_detach_mcast => refuse::error,
                ibv_dofork_range => refuse::error,
                ibv_dontfork_range => refuse::error,
                ibv_event_type_str => refuse::null,
                ibv_fork_init => refuse::error,
                ibv_free_device_list => refuse::nothing,
                ibv_get_async_event => refuse::minus_one,
                ibv_get_cq_event => refuse::minus_one,
                ibv_get_device_guid => refuse::zero,
                ibv_get_device_list => refuse::null,
                ibv_get_device_name => refuse::null,
                ibv_init_ah_from_wc => refuse::minus_one,
                ibv_modify_qp => refuse::error,
                ibv_modify_srq => refuse::error,
                ibv_node_type_str => refuse::null,
                ibv_open_device => refuse::null,
                ibv_port_state_str => refuse::null,
                ibv_query_device => refuse::error,
                ibv_query_gid => refuse::minus_one,
                ibv_query_pkey => refuse::minus_one,
                ibv_query_port => refuse::error,
                ibv_query_qp => refuse::error,
                ibv_query_srq => refuse::error,
                ibv_rate_to_mbps => refuse::minus_one,
                ibv_reg_mr => refuse::null,
                ibv_rereg_mr => refuse::error,
                ibv_resize_cq => refuse::error,
                ibv_resolve_eth_l2_from_gid => refuse::negative_error,
                ibv_wc_status_str => refuse::null,
                mbps_to_ibv_rate => refuse::minus_one,
            }

            default "IBVERBS_1.5" {
                ibv_get_pkey_index => refuse::minus_one,
            }

            default "IBVERBS_1.6" {
                ibv_qp_to_qp_ex => refuse::null,
            }

            default "IBVERBS_1.7" {
                ibv_reg_mr_iova => refuse::null,
            }

            default "IBVERBS_1.8" {
                ibv_reg_mr_iova2 => refuse::null,
            }

            default "IBVERBS_1.9" {
                ibv_get_device_index => refuse::minus_one,
            }

            default "IBVERBS_1.10" {
                ibv_import_device => refuse::null,
                ibv_import_mr => refuse::null,
                ibv_import_pd => refuse::null,
                ibv_query_ece => refuse::error,
                ibv_set_ece => refuse::error,
                ibv_unimport_mr => refuse::nothing,
                ibv_unimport_pd => refuse::nothing,
            }

            default "IBVERBS_1.11" {
                _ibv_query_gid_ex => refuse::error,
                _ibv_query_gid_table => refuse::negative_error,
            }

            default "IBVERBS_1.12" {
                ibv_reg_dmabuf_mr => refuse::null,
            }

            default "IBVERBS_1.13" {
                ibv_import_dm => refuse::null,
                ibv_is_fork_initialized => refuse::zero,
                ibv_unimport_dm => refuse::nothing,
            }

            default "IBVERBS_1.14" {
                ibv_query_qp_data_in_order => refuse::zero,
            }
        }
    };
}
