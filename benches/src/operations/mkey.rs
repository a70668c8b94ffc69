//! Configures memory keys.

use mlx5::mkey::{Mkey, MkeyAccess};
use mlx5::transport::Rc;
use mlx5::{BatchError, QueuePair, SendFlags, Sge};

#[inline(never)]
pub fn configure(
    qp: &mut QueuePair<Rc>,
    mkey: &Mkey,
    pieces: &[Sge; 4],
    wr_id: u64,
) -> Result<(), BatchError> {
    let access = MkeyAccess::LOCAL_WRITE | MkeyAccess::REMOTE_READ | MkeyAccess::REMOTE_WRITE;
    let mut batch = qp.wr_start();
    let key = mkey.configure().access(access).layout_list(pieces);
    batch.wr(wr_id, SendFlags::SIGNALED).mkey_configure(key);
    batch.complete()
}
