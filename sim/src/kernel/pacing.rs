//! Entries of the table of rate limits for programs' own send queues.

use mlx5_prm::cmd::ethernet::{PpRateLimitContext, SetPpRateLimitIn};
use mlx5_uapi::Errno;
use mlx5_uapi::ioctl::attr;

use crate::kernel::decode::Request;
use crate::kernel::file::{OpenFile, State};
use crate::kernel::hca::Hca;
use crate::kernel::objects::{Body, RateEntry};
use crate::kernel::{lock, rates};

/// Bytes of a limit as the device has it.
pub(crate) const LIMIT: usize = size_of::<PpRateLimitContext>();

/// Whether the device has entries that belong to a user context.
pub(crate) fn is_offered(hca: &Hca) -> bool {
    let caps = rates::caps();
    hca.caps.qos() && caps.packet_pacing() && caps.packet_pacing_uid()
}

/// Allocates an entry for a program's own queues.
pub(crate) fn alloc(
    file: &OpenFile,
    state: &mut State,
    request: &mut Request<'_>,
) -> Result<(), Errno> {
    use attr::pp_alloc as id;
    /// `MLX5_IB_UAPI_PP_ALLOC_FLAGS_DEDICATED_INDEX`.
    const DEDICATED: u64 = 1 << 0;
    let uid = state.context()?.uid;
    if uid == 0 {
        return Err(Errno::EINVAL);
    }
    let limit = request.structure(id::CTX)?;
    let flags = request.number(id::FLAGS)?;
    if flags & !DEDICATED != 0 {
        return Err(Errno::EINVAL);
    }
    let set = |input: &SetPpRateLimitIn| file.hca.command(input).map(drop);
    let index = lock(&file.hca.rates).add(limit, uid, flags & DEDICATED != 0, set)?;
    let handle = state.objects.add(Body::Rate(RateEntry { index }), &[]);
    request.made(id::HANDLE, handle.into());
    request.answer(id::INDEX, &(index as u16))
}
