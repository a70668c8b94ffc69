//! Structures that `infiniband/mlx5dv.h` declares without fields.

use crate::abi::types::opaque;

opaque! {
    mlx5dv_crypto_login_obj
    mlx5dv_dek
    mlx5dv_devx_obj
    mlx5dv_dr_action
    mlx5dv_dr_domain
    mlx5dv_dr_matcher
    mlx5dv_dr_rule
    mlx5dv_dr_table
    mlx5dv_flow_matcher
    mlx5dv_sched_leaf
    mlx5dv_sched_node
}
