//! The functions of libmlx5, without software steering.

/// The table of this file.
#[macro_export]
macro_rules! libmlx5 {
    ($($then:tt)+) => {
        $($then)+! {
            default "MLX5_1.0" {
                mlx5dv_query_device => dv::device::query_device,
            }

            hidden "MLX5_1.0" {
                mlx5dv_init_obj => dv::init::init_obj_compat,
            }

            default "MLX5_1.1" {
                mlx5dv_create_cq => dv::queue::create_cq,
            }

            default "MLX5_1.2" {
                mlx5dv_init_obj => dv::init::init_obj,
                mlx5dv_set_context_attr => dv::device::set_context_attr,
            }

            default "MLX5_1.3" {
                mlx5dv_create_qp => dv::queue::create_qp,
                mlx5dv_create_wq => dv::queue::create_wq,
            }

            default "MLX5_1.4" {
                mlx5dv_get_clock_info => dv::clock::get_clock_info,
            }

            default "MLX5_1.5" {
                mlx5dv_create_flow_action_esp => refuse::null,
            }

            default "MLX5_1.6" {
                mlx5dv_create_flow => dv::matcher::create_flow,
                mlx5dv_create_flow_matcher => dv::matcher::create_flow_matcher,
                mlx5dv_destroy_flow_matcher => dv::matcher::destroy_flow_matcher,
            }

            default "MLX5_1.7" {
                mlx5dv_create_flow_action_modify_header => refuse::null,
                mlx5dv_create_flow_action_packet_reformat => refuse::null,
                mlx5dv_devx_alloc_uar => dv::uar::alloc_uar,
                mlx5dv_devx_free_uar => dv::uar::free_uar,
                mlx5dv_devx_general_cmd => dv::devx::general_cmd,
                mlx5dv_devx_obj_create => dv::devx::obj_create,
                mlx5dv_devx_obj_destroy => dv::devx::obj_destroy,
                mlx5dv_devx_obj_modify => dv::devx::obj_modify,
                mlx5dv_devx_obj_query => dv::devx::obj_query,
                mlx5dv_devx_query_eqn => dv::devx::query_eqn,
                mlx5dv_devx_umem_dereg => dv::umem::umem_dereg,
                mlx5dv_devx_umem_reg => dv::umem::umem_reg,
                mlx5dv_open_device => dv::device::open_device,
            }

            default "MLX5_1.8" {
                mlx5dv_devx_cq_modify => dv::devx::cq_modify,
                mlx5dv_devx_cq_query => dv::devx::cq_query,
                mlx5dv_devx_ind_tbl_modify => dv::devx::ind_tbl_modify,
                mlx5dv_devx_ind_tbl_query => dv::devx::ind_tbl_query,
                mlx5dv_devx_qp_modify => dv::devx::qp_modify,
                mlx5dv_devx_qp_query => dv::devx::qp_query,
                mlx5dv_devx_srq_modify => dv::devx::srq_modify,
                mlx5dv_devx_srq_query => dv::devx::srq_query,
                mlx5dv_devx_wq_modify => dv::devx::wq_modify,
                mlx5dv_devx_wq_query => dv::devx::wq_query,
                mlx5dv_is_supported => dv::device::is_supported,
            }

            default "MLX5_1.9" {
                mlx5dv_devx_create_cmd_comp => dv::event::create_cmd_comp,
                mlx5dv_devx_destroy_cmd_comp => dv::event::destroy_cmd_comp,
                mlx5dv_devx_get_async_cmd_comp => dv::event::get_async_cmd_comp,
                mlx5dv_devx_obj_query_async => dv::event::obj_query_async,
            }

            default "MLX5_1.10" {
                mlx5dv_alloc_dm => dv::memory::alloc_dm,
                mlx5dv_create_mkey => mkey::create_mkey,
                mlx5dv_destroy_mkey => mkey::destroy_mkey,
                mlx5dv_qp_ex_from_ibv_qp_ex => qp::driver::from_ibv_qp_ex,
            }

            default "MLX5_1.11" {
                mlx5dv_devx_create_event_channel => dv::event::create_event_channel,
                mlx5dv_devx_destroy_event_channel => dv::event::destroy_event_channel,
                mlx5dv_devx_get_event => dv::event::get_event,
                mlx5dv_devx_subscribe_devx_event => dv::event::subscribe_devx_event,
                mlx5dv_devx_subscribe_devx_event_fd => dv::event::subscribe_devx_event_fd,
            }

            default "MLX5_1.12" {
                mlx5dv_alloc_var => dv::uar::alloc_var,
                mlx5dv_free_var => dv::uar::free_var,
            }

            default "MLX5_1.13" {
                mlx5dv_pp_alloc => dv::pacing::pp_alloc,
                mlx5dv_pp_free => dv::pacing::pp_free,
            }

            default "MLX5_1.14" {
                mlx5dv_modify_qp_lag_port => refuse::error,
                mlx5dv_query_qp_lag_port => refuse::error,
            }

            default "MLX5_1.17" {
                mlx5dv_modify_qp_sched_elem => refuse::error,
                mlx5dv_modify_qp_udp_sport => refuse::error,
                mlx5dv_sched_leaf_create => refuse::null,
                mlx5dv_sched_leaf_destroy => refuse::error,
                mlx5dv_sched_leaf_modify => refuse::error,
                mlx5dv_sched_node_create => refuse::null,
                mlx5dv_sched_node_destroy => refuse::error,
                mlx5dv_sched_node_modify => refuse::error,
            }

            default "MLX5_1.18" {
                mlx5dv_reserved_qpn_alloc => refuse::error,
                mlx5dv_reserved_qpn_dealloc => refuse::error,
            }

            default "MLX5_1.19" {
                _mlx5dv_query_port => dv::device::query_port,
                mlx5dv_devx_umem_reg_ex => dv::umem::umem_reg_ex,
                mlx5dv_dm_map_op_addr => refuse::null,
            }

            default "MLX5_1.20" {
                _mlx5dv_mkey_check => mkey::mkey_check,
                mlx5dv_map_ah_to_qp => refuse::error,
                mlx5dv_qp_cancel_posted_send_wrs => qp::driver::cancel_posted_send_wrs,
            }

            default "MLX5_1.21" {
                mlx5dv_crypto_login => refuse::error,
                mlx5dv_crypto_login_query_state => refuse::error,
                mlx5dv_crypto_logout => refuse::error,
                mlx5dv_dci_stream_id_reset => refuse::error,
                mlx5dv_dek_create => refuse::null,
                mlx5dv_dek_destroy => refuse::error,
                mlx5dv_dek_query => refuse::error,
                mlx5dv_get_vfio_device_list => refuse::null,
                mlx5dv_vfio_get_events_fd => refuse::minus_one,
                mlx5dv_vfio_process_events => refuse::error,
            }

            default "MLX5_1.23" {
                mlx5dv_devx_alloc_msi_vector => refuse::null,
                mlx5dv_devx_create_eq => refuse::null,
                mlx5dv_devx_destroy_eq => refuse::error,
                mlx5dv_devx_free_msi_vector => refuse::error,
            }

            default "MLX5_1.24" {
                mlx5dv_create_steering_anchor => refuse::null,
                mlx5dv_crypto_login_create => refuse::null,
                mlx5dv_crypto_login_destroy => refuse::error,
                mlx5dv_crypto_login_query => refuse::error,
                mlx5dv_destroy_steering_anchor => refuse::error,
            }

            default "MLX5_1.25" {
                mlx5dv_get_data_direct_sysfs_path => refuse::error,
                mlx5dv_reg_dmabuf_mr => refuse::null,
            }
        }
    };
}
