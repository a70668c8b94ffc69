//! Creates and destroys queues.

use mlx5::transport::Rc;
use mlx5::{CompletionQueue, Error, ProtectionDomain};

#[inline(never)]
pub fn create_destroy_qp(
    pd: &ProtectionDomain,
    cq: &CompletionQueue,
    depth: u32,
) -> Result<(), Error> {
    let qp = pd
        .create_qp::<Rc>(cq, cq)
        .max_send_wr(depth)
        .max_recv_wr(depth)
        .max_inline_data(28)
        .build()?;
    qp.destroy().map(drop).map_err(Into::into)
}
