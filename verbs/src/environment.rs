//! The variables of C's libraries that programs rely on.

use crate::refusal::{Refusal, Verb};
use mlx5::{CqeSize, HugePages};
use std::env;
use std::sync::OnceLock;

/// What the environment says of the queues of a context that is opened.
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

/// The size of CQEs, as `MLX5_CQE_SIZE` says when a completion queue is created.
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

/// Whether send requests are signed, as `MLX5_QP_SIGNATURE` says, whatever its value, when a queue pair is
/// created. Only where the queue pair has no receive queue of its own: which bytes the signatures of its
/// requests cover is not documented.
pub(crate) fn signed_requests() -> bool {
    env::var_os("MLX5_QP_SIGNATURE").is_some()
}

/// The pages of the memory of a queue, as `MLX_CQ_ALLOC_TYPE`, `MLX_QP_ALLOC_TYPE`, `MLX_SRQ_ALLOC_TYPE` and
/// `MLX_RWQ_ALLOC_TYPE` say when it is created. C also knows memory that is contiguous by a driver of its
/// own; that is ordinary memory here.
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

/// Whether objects of a device that was pulled out count as destroyed, as `RDMAV_ALLOW_DISASSOC_DESTROY`, or
/// the name that it had before, says when it is first asked.
pub(crate) fn ends_with_device() -> bool {
    static ENDS: OnceLock<bool> = OnceLock::new();
    const NAMES: [&str; 2] = ["RDMAV_ALLOW_DISASSOC_DESTROY", "MLX4_DEVICE_FATAL_CLEANUP"];
    *ENDS.get_or_init(|| NAMES.into_iter().any(says))
}

/// Whether a variable that is on or off is on.
pub(crate) fn says(variable: &str) -> bool {
    env::var_os(variable).is_some_and(|value| value != "0")
}
