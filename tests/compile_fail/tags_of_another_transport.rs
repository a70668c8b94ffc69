//! Messages are matched with tags on reliable connections; extended ones have no place for a list.

use mlx5::transport::{Uc, XrcSend};
use mlx5::{CompletionQueue, ProtectionDomain, TagMatchingQueue};

fn make(pd: &ProtectionDomain, cq: &CompletionQueue, queue: &TagMatchingQueue) {
    let _ = pd.create_qp::<XrcSend>(cq, cq).tm_srq(queue);
    let _ = pd.create_qp::<Uc>(cq, cq).tm_srq(queue);
    let domain = pd.context().open_xrcd().unwrap();
    let _ = pd.create_tm_srq(cq, 16).xrc(&domain, cq);
}

fn main() {}
