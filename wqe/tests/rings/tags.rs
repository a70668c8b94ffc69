//! Operations on a tag list, as written for the device.

use crate::bed::{Bed, REGISTER, Spec};
use mlx5_wqe::tag_matching::{OpsWr, TagList, TagRecords};
use mlx5_wqe::{Rc, SharedReceiveRecords};
use std::sync::Arc;

/// A single operation is copied to the register. Of several none is: the device would execute the
/// copied last one before it has fetched the others.
#[test]
fn one_operation_goes_to_the_register_and_of_several_only_the_doorbell() {
    let spec = Spec { requests: 16, ..Spec::default() };
    let half = spec.blueflame / 2;
    let Bed { queue, layout, ring, uar, record: _record, gate: _gate, .. } = Bed::<Rc>::new(spec);
    let receives = Arc::new(SharedReceiveRecords::new(4));
    let records = Arc::new(TagRecords::new(15, layout.blocks, receives));
    let mut list = TagList::new(queue, records, 1);
    let mut expected = uar.all();
    list.post(&mut [OpsWr::sync(1, 0)]).unwrap();
    expected[REGISTER..REGISTER + 64].copy_from_slice(&ring.read(0, 64));
    assert!(uar.all() == expected, "the whole operation");
    list.post(&mut [OpsWr::sync(2, 0), OpsWr::sync(3, 0)]).unwrap();
    expected[REGISTER + half..REGISTER + half + 8].copy_from_slice(&ring.read(2 * 64, 8));
    assert!(uar.all() == expected, "the first eight bytes of the last one");
}
