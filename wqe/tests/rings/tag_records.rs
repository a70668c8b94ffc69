//! The records of a tag list, against a device that reports impossible events.

use crate::bed::{Bed, Spec};
use mlx5_prm::cqe::TagEvent;
use mlx5_prm::wqe::TagOperation as Operation;
use mlx5_wqe::tag_matching::{OpsWr, TagAdd, TagCompletion, TagList, TagRecords};
use mlx5_wqe::{Rc, SharedReceiveRecords};
use std::sync::Arc;

/// A list of tags on plain memory.
struct List {
    list: TagList,
    records: Arc<TagRecords>,
    _memory: [crate::bed::Memory; 3],
    _gate: crate::bed::GateBed,
    _sends: Arc<mlx5_wqe::SendRecords>,
}

fn list() -> List {
    let bed = Bed::<Rc>::new(Spec { requests: 16, ..Spec::default() });
    let receives = Arc::new(SharedReceiveRecords::new(4));
    let records = Arc::new(TagRecords::new(4, bed.layout.blocks, receives));
    let Bed { queue, records: sends, ring, uar, record, gate, .. } = bed;
    let list = TagList::new(queue, Arc::clone(&records), 1);
    List { list, records, _memory: [ring, uar, record], _gate: gate, _sends: sends }
}

const fn told(wr_id: u64) -> Option<TagCompletion> {
    Some(TagCompletion::Completion { wr_id, needs_sync: false })
}

fn add(wr_id: u64) -> OpsWr<'static> {
    OpsWr::add(wr_id, TagAdd { recv_wr_id: wr_id + 100, sges: &[], tag: wr_id, mask: u64::MAX })
}

/// Operations complete in order: when one fails, no earlier one has an outstanding completion.
#[test]
fn an_operation_does_not_fail_before_one_that_is_to_complete() {
    let mut bed = list();
    bed.list
        .post(&mut [OpsWr::sync(1, 0), OpsWr::sync(2, 0).signaled(), OpsWr::sync(3, 0)])
        .unwrap();
    bed.list.post(&mut [add(4)]).unwrap();
    assert_eq!(bed.records.fail(2), None, "the one before it is to complete");
    assert_eq!(bed.records.fail(3), None);
    assert_eq!(bed.records.fail(4), None, "there is none");
    assert_eq!(bed.records.complete(TagEvent::Noop, 0, 0, true, 0), told(2));
    assert_eq!(bed.records.fail(1), None, "it completed");
    assert_eq!(bed.records.fail(3), Some((4, Operation::Append)));
    assert_eq!(bed.records.fail(3), None, "once");
}

/// One message matches a tag. The device reports it by one completion or by two.
#[test]
fn a_tag_is_matched_once() {
    let mut bed = list();
    let mut tags = [add(1), add(2), add(3)];
    bed.list.post(&mut tags).unwrap();
    let places = tags.map(|tag| tag.handle.unwrap().place());
    let tell = |event, place| bed.records.complete(event, place, 0, true, 0);
    assert_eq!(tell(TagEvent::Expected, places[0]), None, "the second word before the first");
    for (turn, event) in
        [TagEvent::Consumed, TagEvent::ConsumedSwRendezvous].into_iter().enumerate()
    {
        let (place, wr_id) = (places[turn], 101 + turn as u64);
        assert_eq!(tell(event, place), told(wr_id));
        assert_eq!(tell(TagEvent::Consumed, place), None, "it is matched");
        assert_eq!(tell(TagEvent::ConsumedSwRendezvous, place), None, "it is matched");
        assert_eq!(tell(TagEvent::ConsumedMessage, place), None, "not the first word");
        assert_eq!(tell(TagEvent::Expected, place), told(wr_id));
        assert_eq!(tell(TagEvent::Expected, place), None, "it is free");
        assert_eq!(tell(TagEvent::Consumed, place), None, "it is free");
    }
    // One completion reports the match and the message.
    assert_eq!(tell(TagEvent::ConsumedMessage, places[2]), told(103));
    assert_eq!(tell(TagEvent::ConsumedMessage, places[2]), None);
    assert_eq!(tell(TagEvent::Consumed, u16::MAX), None, "no such place");
}
