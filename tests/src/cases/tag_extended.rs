//! Tag matching and extended reliable connections (XRC): a tag list belongs to no XRC domain.

use super::tag_rig::{RigOptions, TagRig, eager};
use crate::prelude::*;
use mlx5::transport::XrcSend;
use mlx5::{ConnectOptions, Psn};

pub(crate) const CASES: &[Case] = cases![
    tm_an_extended_connection_reaches_no_list_of_tags: SIMULATOR | TAG_MATCHING,
];

/// An XRC request that names a tag-matching queue fails, whatever XRC domain the target queue pair
/// belongs to, and the queue's tag list stays as it is.
fn tm_an_extended_connection_reaches_no_list_of_tags(bed: &Bed) -> Outcome {
    let mut rig = TagRig::new(bed, RigOptions::default())?;
    rig.post_requests(0..1);
    rig.add(7, 70, 0..64);
    let (options, psn) = (ConnectOptions::default(), Psn::default());
    let port = rig.context.local_port(bed.port(), None)?;
    let domain = rig.context.open_xrcd()?;
    let mut target = domain.create_target()?;

    let context = bed.context();
    let pd = context.alloc_pd()?;
    let mut cq = context.create_cq(16).build()?;
    let mut sender = pd.create_qp::<XrcSend>(&cq, &cq).max_inline_data(64).build()?;
    let here = context.local_port(bed.port(), None)?;
    let at = target.endpoint(&port, psn, &options);
    target.connect(&port, psn, &sender.endpoint(&here, psn, &options), &options)?;
    sender.connect(&here, psn, &at, &options)?;
    let mut batch = sender.wr_start();
    let wr = batch.wr(1, SendFlags::SIGNALED).send().xrc_srqn(rig.queue.srqn());
    wr.inline_data(&eager(7, 0, b"by number"));
    batch.complete()?;
    let failed = bed.poll_one(&mut cq);
    assert_eq!(syndrome(&failed), Some(Syndrome::RemoteInvalidRequest));
    bed.nothing(&mut rig.cq);

    rig.eager(bed, 7, b"by connection");
    let matched = bed.poll_good(&mut rig.cq, 1)[0];
    assert_eq!(matched.as_completion().wr_id(), 70);
    assert_eq!(rig.bytes(0..13), b"by connection");
    Ok(())
}
