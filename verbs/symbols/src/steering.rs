//! Software steering of libmlx5 (`mlx5dv_dr_*`), which this library refuses.

/// The table of this file.
#[macro_export]
macro_rules! steering {
    ($($then:tt)+) => {
        $($then)+! {
            default "MLX5_1.10" {
                mlx5dv_dr_action_create_dest_ibv_qp => refuse::null,
                mlx5dv_dr_action_create_dest_table => refuse::null,
                mlx5dv_dr_action_create_dest_vport => refuse::null,
                mlx5dv_dr_action_create_drop => refuse::null,
                mlx5dv_dr_action_create_flow_counter => refuse::null,
                mlx5dv_dr_action_create_modify_header => refuse::null,
                mlx5dv_dr_action_create_packet_reformat => refuse::null,
                mlx5dv_dr_action_create_tag => refuse::null,
                mlx5dv_dr_action_destroy => refuse::error,
                mlx5dv_dr_domain_create => refuse::null,
                mlx5dv_dr_domain_destroy => refuse::error,
                mlx5dv_dr_domain_sync => refuse::error,
                mlx5dv_dr_matcher_create => refuse::null,
                mlx5dv_dr_matcher_destroy => refuse::error,
                mlx5dv_dr_rule_create => refuse::null,
                mlx5dv_dr_rule_destroy => refuse::error,
                mlx5dv_dr_table_create => refuse::null,
                mlx5dv_dr_table_destroy => refuse::error,
            }

            default "MLX5_1.12" {
                mlx5dv_dr_action_create_flow_meter => refuse::null,
                mlx5dv_dr_action_modify_flow_meter => refuse::error,
                mlx5dv_dump_dr_domain => refuse::negative_error,
                mlx5dv_dump_dr_matcher => refuse::negative_error,
                mlx5dv_dump_dr_rule => refuse::negative_error,
                mlx5dv_dump_dr_table => refuse::negative_error,
            }

            default "MLX5_1.14" {
                mlx5dv_dr_action_create_default_miss => refuse::null,
                mlx5dv_dr_domain_set_reclaim_device_memory => refuse::nothing,
            }

            default "MLX5_1.15" {
                mlx5dv_dr_action_create_dest_devx_tir => refuse::null,
            }

            default "MLX5_1.16" {
                mlx5dv_dr_action_create_dest_array => refuse::null,
                mlx5dv_dr_action_create_flow_sampler => refuse::null,
            }

            default "MLX5_1.17" {
                mlx5dv_dr_action_create_aso => refuse::null,
                mlx5dv_dr_action_create_pop_vlan => refuse::null,
                mlx5dv_dr_action_create_push_vlan => refuse::null,
                mlx5dv_dr_action_modify_aso => refuse::error,
            }

            default "MLX5_1.20" {
                mlx5dv_dr_domain_allow_duplicate_rules => refuse::nothing,
            }

            default "MLX5_1.21" {
                mlx5dv_dr_action_create_dest_ib_port => refuse::null,
                mlx5dv_dr_matcher_set_layout => refuse::error,
            }

            default "MLX5_1.22" {
                mlx5dv_dr_aso_other_domain_link => refuse::error,
                mlx5dv_dr_aso_other_domain_unlink => refuse::error,
            }

            default "MLX5_1.24" {
                mlx5dv_dr_action_create_dest_root_table => refuse::null,
            }
        }
    };
}
