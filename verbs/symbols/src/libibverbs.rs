//! The functions of libibverbs that programs call, those that its inline functions call among them.

/// The table of this file.
#[macro_export]
macro_rules! libibverbs {
    ($($then:tt)+) => {
        $($then)+! {
            default "IBVERBS_1.0" {
                ibv_copy_path_rec_from_kern => from_kernel::copy_path_rec_from_kern,
                ibv_copy_path_rec_to_kern => from_kernel::copy_path_rec_to_kern,
                ibv_copy_qp_attr_from_kern => from_kernel::copy_qp_attr_from_kern,
                ibv_create_comp_channel => cq::channel::create_comp_channel,
                ibv_destroy_comp_channel => cq::channel::destroy_comp_channel,
                ibv_get_sysfs_path => sysfs::get_sysfs_path,
                ibv_rate_to_mult => rates::rate_to_mult,
                ibv_read_sysfs_file => sysfs::read_sysfs_file,
                mult_to_ibv_rate => rates::mult_to_rate,
            }

            default "IBVERBS_1.1" {
                ibv_ack_async_event => event::ack_async_event,
                ibv_ack_cq_events => cq::channel::ack_cq_events,
                ibv_alloc_pd => pd::alloc_pd,
                ibv_attach_mcast => qp::multicast::attach_mcast,
                ibv_close_device => close::close_device,
                ibv_copy_ah_attr_from_kern => from_kernel::copy_ah_attr_from_kern,
                ibv_create_ah => ah::create_ah,
                ibv_create_ah_from_wc => ah::create_ah_from_wc,
                ibv_create_cq => cq::create_cq,
                ibv_create_qp => qp::create::create_qp,
                ibv_create_srq => srq::create_srq,
                ibv_dealloc_pd => domain::dealloc_pd,
                ibv_dereg_mr => mr::dereg_mr,
                ibv_destroy_ah => ah::destroy_ah,
                ibv_destroy_cq => cq::destroy_cq,
                ibv_destroy_qp => qp::create::destroy_qp,
                ibv_destroy_srq => srq::destroy_srq,
                ibv_detach_mcast => qp::multicast::detach_mcast,
                ibv_dofork_range => fork::dofork_range,
                ibv_dontfork_range => fork::dontfork_range,
                ibv_event_type_str => texts::event_type_str,
                ibv_fork_init => fork::fork_init,
                ibv_free_device_list => device::free_device_list,
                ibv_get_async_event => event::get_async_event,
                ibv_get_cq_event => cq::channel::get_cq_event,
                ibv_get_device_guid => device::get_device_guid,
                ibv_get_device_list => device::get_device_list,
                ibv_get_device_name => device::get_device_name,
                ibv_init_ah_from_wc => ah::init_ah_from_wc,
                ibv_modify_qp => qp::modify::modify_qp,
                ibv_modify_srq => srq::modify_srq,
                ibv_node_type_str => texts::node_type_str,
                ibv_open_device => open::open_device,
                ibv_port_state_str => texts::port_state_str,
                ibv_query_device => query::query_device,
                ibv_query_gid => query::query_gid,
                ibv_query_pkey => query::query_pkey,
                ibv_query_port => query::query_port_compat,
                ibv_query_qp => qp::modify::query_qp,
                ibv_query_srq => srq::query_srq,
                ibv_rate_to_mbps => rates::rate_to_mbps,
                ibv_reg_mr => mr::reg_mr,
                ibv_rereg_mr => mr::rereg_mr,
                ibv_resize_cq => cq::resize_cq,
                ibv_resolve_eth_l2_from_gid => refuse::negative_error,
                ibv_wc_status_str => texts::wc_status_str,
                mbps_to_ibv_rate => rates::mbps_to_rate,
            }

            default "IBVERBS_1.5" {
                ibv_get_pkey_index => query::get_pkey_index,
            }

            default "IBVERBS_1.6" {
                ibv_qp_to_qp_ex => qp::extended::qp_to_qp_ex,
            }

            default "IBVERBS_1.7" {
                ibv_reg_mr_iova => mr::reg_mr_iova,
            }

            default "IBVERBS_1.8" {
                ibv_reg_mr_iova2 => mr::reg_mr_iova2,
            }

            default "IBVERBS_1.9" {
                ibv_get_device_index => device::get_device_index,
            }

            default "IBVERBS_1.10" {
                ibv_import_device => import::import_device,
                ibv_import_mr => import::import_mr,
                ibv_import_pd => import::import_pd,
                ibv_query_ece => ece::query_ece,
                ibv_set_ece => ece::set_ece,
                ibv_unimport_mr => import::unimport_mr,
                ibv_unimport_pd => import::unimport_pd,
            }

            default "IBVERBS_1.11" {
                _ibv_query_gid_ex => query::query_gid_ex,
                _ibv_query_gid_table => query::query_gid_table,
            }

            default "IBVERBS_1.12" {
                ibv_reg_dmabuf_mr => mr::reg_dmabuf_mr,
            }

            default "IBVERBS_1.13" {
                ibv_import_dm => import::import_dm,
                ibv_is_fork_initialized => fork::is_fork_initialized,
                ibv_unimport_dm => import::unimport_dm,
            }

            default "IBVERBS_1.14" {
                ibv_query_qp_data_in_order => qp::modify::query_qp_data_in_order,
            }
        }
    };
}
