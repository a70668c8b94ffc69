//! Steering: matchers, actions, direct rules. Answered with EOPNOTSUPP; the structures are here for
//! their sizes.
//!
//! `infiniband/mlx5dv.h`.

use super::*;
use crate::abi::*;

abi! {
    struct mlx5dv_flow_action_esp [16] {
        0 comp_mask: u64,
        8 action_flags: u32,
    }

    struct mlx5dv_flow_match_parameters [8] {
        0 match_sz: usize,
        match_buf: [u64; 0],
    }

    struct mlx5dv_flow_matcher_attr [40] {
        0 r#type: c_uint,
        4 flags: u32,
        8 priority: u16,
        10 match_criteria_enable: u8,
        16 match_mask: *mut mlx5dv_flow_match_parameters,
        24 comp_mask: u64,
        32 ft_type: c_uint,
        36 ib_port: u32,
    }

    struct mlx5dv_steering_anchor_attr [16] {
        0 ft_type: c_uint,
        4 priority: u16,
        8 comp_mask: u64,
    }

    struct mlx5dv_steering_anchor [4] {
        0 id: u32,
    }

    struct mlx5dv_flow_action_attr_u0_bulk_obj {
        obj: *mut mlx5dv_devx_obj,
        offset: u32,
    }

    union mlx5dv_flow_action_attr_target {
        qp: *mut ibv_qp,
        counter: *mut ibv_counters,
        action: *mut ibv_flow_action,
        tag_value: u32,
        obj: *mut mlx5dv_devx_obj,
        bulk_obj: mlx5dv_flow_action_attr_u0_bulk_obj,
    }

    struct mlx5dv_flow_action_attr [24] {
        0 r#type: c_uint,
        8 target: mlx5dv_flow_action_attr_target,
    }

    struct mlx5dv_dr_flow_meter_attr [32] {
        0 next_table: *mut mlx5dv_dr_table,
        8 active: u8,
        9 reg_c_index: u8,
        16 flow_meter_parameter_sz: usize,
        24 flow_meter_parameter: *mut c_void,
    }

    struct mlx5dv_dr_flow_sampler_attr [40] {
        0 sample_ratio: u32,
        8 default_next_table: *mut mlx5dv_dr_table,
        16 num_sample_actions: u32,
        24 sample_actions: *mut *mut mlx5dv_dr_action,
        32 action: Be64,
    }

    struct mlx5dv_dr_matcher_layout [8] {
        0 flags: u32,
        4 log_num_of_rules_hint: u32,
    }

    struct mlx5dv_dr_action_dest_reformat [16] {
        0 reformat: *mut mlx5dv_dr_action,
        8 dest: *mut mlx5dv_dr_action,
    }

    union mlx5dv_dr_action_dest_attr_dest {
        dest: *mut mlx5dv_dr_action,
        dest_reformat: *mut mlx5dv_dr_action_dest_reformat,
    }

    struct mlx5dv_dr_action_dest_attr [16] {
        0 r#type: c_uint,
        8 dest: mlx5dv_dr_action_dest_attr_dest,
    }
}
