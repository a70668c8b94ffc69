//! `infiniband/mlx5dv.h`.

mod constants;
mod devx;
mod mkey;
mod object;
mod opaque;
mod steering;

use super::types::Layout;
pub use constants::*;
pub use devx::*;
pub use mkey::*;
pub use object::*;
pub use opaque::*;
pub use steering::*;

/// The layouts of each file.
pub(super) const LAYOUTS: [&[Layout]; 4] =
    [devx::LAYOUTS, mkey::LAYOUTS, object::LAYOUTS, steering::LAYOUTS];
