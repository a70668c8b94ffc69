//! DEVX, and what goes with it.
//!
//! `infiniband/mlx5dv.h`.

use super::*;
use crate::abi::*;

abi! {
    struct mlx5dv_devx [4] {
        0 handle: u32,
    }

    struct mlx5dv_devx_umem [4] {
        0 umem_id: u32,
    }

    struct mlx5dv_devx_umem_in [48] {
        0 addr: *mut c_void,
        8 size: usize,
        16 access: u32,
        24 pgsz_bitmap: u64,
        32 comp_mask: u64,
        40 dmabuf_fd: c_int,
    }

    struct mlx5dv_devx_uar [40] {
        0 reg_addr: *mut c_void,
        8 base_addr: *mut c_void,
        16 page_id: u32,
        24 mmap_off: i64,
        32 comp_mask: u64,
    }

    struct mlx5dv_var [24] {
        0 page_id: u32,
        4 length: u32,
        8 mmap_off: i64,
        16 comp_mask: u64,
    }

    struct mlx5dv_export_sizes [12] {
        0 var_attrs_size: u32,
        4 devx_umem_attrs_size: u32,
        8 devx_obj_attrs_size: u32,
    }

    struct mlx5dv_devx_cmd_comp [4] {
        0 fd: c_int,
    }

    struct mlx5dv_devx_event_channel [4] {
        0 fd: c_int,
    }

    struct mlx5dv_pp [2] {
        0 index: u16,
    }

    struct mlx5dv_sched_attr [32] {
        0 parent: *mut mlx5dv_sched_node,
        8 flags: u32,
        12 bw_share: u32,
        16 max_avg_bw: u32,
        24 comp_mask: u64,
    }

    struct mlx5dv_devx_msi_vector [8] {
        0 vector: c_int,
        4 fd: c_int,
    }

    struct mlx5dv_devx_eq [8] {
        0 vaddr: *mut c_void,
    }
}
