//! The functions of libibverbs for programs of 2006: the same names with other structures. This
//! library refuses them.

/// The table of this file.
#[macro_export]
macro_rules! old {
    ($($then:tt)+) => {
        $($then)+! {
            hidden "IBVERBS_1.0" {
                ibv_ack_async_event => refuse::nothing,
                ibv_ack_cq_events => refuse::nothing,
                ibv_alloc_pd => refuse::null,
                ibv_attach_mcast => refuse::error,
                ibv_close_device => refuse::error,
                ibv_create_ah => refuse::null,
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
                ibv_free_device_list => refuse::nothing,
                ibv_get_async_event => refuse::minus_one,
                ibv_get_cq_event => refuse::minus_one,
                ibv_get_device_guid => refuse::zero,
                ibv_get_device_list => refuse::null,
                ibv_get_device_name => refuse::null,
                ibv_modify_qp => refuse::error,
                ibv_modify_srq => refuse::error,
                ibv_open_device => refuse::null,
                ibv_query_device => refuse::error,
                ibv_query_gid => refuse::minus_one,
                ibv_query_pkey => refuse::minus_one,
                ibv_query_port => refuse::error,
                ibv_query_qp => refuse::error,
                ibv_query_srq => refuse::error,
                ibv_reg_mr => refuse::null,
                ibv_resize_cq => refuse::error,
            }

            hidden "IBVERBS_1.1" {
                ibv_register_driver => refuse::nothing,
            }
        }
    };
}
