//! The environment variables of C's libraries that programs rely on.

use crate::refusal::{Refusal, Verb};
use mlx5::{CqeSize, HugePages};
use std::env;
use std::sync::OnceLock;

/// The environment's settings for the queues of a context, read when it is opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Environment {
    /// `MLX5_SINGLE_THREADED=1`: the program promises to use one thread, so no lock is taken.
    pub(crate) locks: bool,
    /// `MLX5_SHUT_UP_BF`: no BlueFlame, only doorbells.
    pub(crate) blueflame: bool,
}

impl Environment {
    pub(crate) fn read() -> Self {
        Self {
            locks: env::var_os("MLX5_SINGLE_THREADED").is_none_or(|value| value != "1"),
            blueflame: !says("MLX5_SHUT_UP_BF"),
        }
    }
}

/// The size of CQEs, from `MLX5_CQE_SIZE` when a completion queue is created.
pub(crate) fn cqe_size() -> Verb<CqeSize> {
    match env::var("MLX5_CQE_SIZE") {
        Err(_) => Ok(CqeSize::Bytes64),
        Ok(value) => match value.trim().parse() {
            Ok(64_u32) => Ok(CqeSize::Bytes64),
            Ok(128) => Ok(CqeSize::Bytes128),
            _ => Err(Refusal::INVALID),
        },
    }
}

/// Whether send requests are signed: if `MLX5_QP_SIGNATURE` is set to any value when a queue pair
/// is created. Only for a queue pair without a receive queue of its own: which bytes the signatures
/// of receive requests cover is not documented.
pub(crate) fn signed_requests() -> bool {
    env::var_os("MLX5_QP_SIGNATURE").is_some()
}

/// The pages of a queue's memory, from `MLX_CQ_ALLOC_TYPE`, `MLX_QP_ALLOC_TYPE`,
/// `MLX_SRQ_ALLOC_TYPE` and `MLX_RWQ_ALLOC_TYPE` when it is created. C also has contiguous memory
/// from a separate driver; here that is ordinary memory.
pub(crate) fn pages(variable: &str) -> HugePages {
    let Some(value) = env::var_os(variable) else { return HugePages::None };
    let is = |name: &str| value.eq_ignore_ascii_case(name);
    if is("HUGE") {
        HugePages::TwoMiB
    } else if is("PREFER_HUGE") || is("ALL") {
        HugePages::Prefer
    } else {
        HugePages::None
    }
}

/// Whether objects of a removed device count as destroyed: from `RDMAV_ALLOW_DISASSOC_DESTROY`, or
/// its former name, read once.
pub(crate) fn ends_with_device() -> bool {
    static ENDS: OnceLock<bool> = OnceLock::new();
    const NAMES: [&str; 2] = ["RDMAV_ALLOW_DISASSOC_DESTROY", "MLX4_DEVICE_FATAL_CLEANUP"];
    *ENDS.get_or_init(|| NAMES.into_iter().any(says))
}

/// Whether a boolean variable is on.
pub(crate) fn says(variable: &str) -> bool {
    env::var_os(variable).is_some_and(|value| value != "0")
}
