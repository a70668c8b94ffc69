//! Queues that are made, reset and destroyed by calls.

use super::*;
use mlx5_uapi::queues::{ChangedQp, EndedQueue, MadeCq, MadeQp, MadeSrq, MadeWq};
use std::cell::RefCell;

const CQ_RING: u64 = 0x1000;
const SEND_RING: u64 = 0x2000;
const RECEIVE_RING: u64 = 0x3000;
const SRQ_RING: u64 = 0x4000;
const CQ_RECORD: u64 = 0x10;
const QP_RECORD: u64 = 0x20;
const SRQ_RECORD: u64 = 0x30;
const DEVICE: u64 = 7;

struct Fake(RefCell<Vec<u8>>);

impl Fake {
    fn new() -> Self {
        let fake = Self(vec![0; 0x8000].into());
        for place in 0..8 {
            fake.put(CQ_RING + place * 64 + 63, &[0xf1]);
        }
        fake
    }

    fn put(&self, at: u64, bytes: &[u8]) {
        let at = at as usize;
        self.0.borrow_mut()[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn send(&self, index: u32) {
        let control = [index << 8 | 0x0a, 0x48 << 8 | 1, 8, 0].map(u32::to_be_bytes).concat();
        self.put(SEND_RING + u64::from(index % 8) * 64, &control);
        self.put(QP_RECORD + 4, &(index + 1).to_be_bytes());
    }

    fn complete(&self, index: u32, user_index: u32) {
        let mut cqe = [0; 64];
        cqe[32..36].copy_from_slice(&user_index.to_be_bytes());
        cqe[63] = 0x20 | ((index / 8) & 1) as u8;
        self.put(CQ_RING + u64::from(index % 8) * 64, &cqe);
    }
}

impl CallerMemory for Fake {
    fn read(&self, address: u64, to: &mut [u8]) -> bool {
        let at = address as usize;
        let Some(bytes) = self.0.borrow().get(at..at + to.len()).map(<[u8]>::to_vec) else {
            return false;
        };
        to.copy_from_slice(&bytes);
        true
    }
}

fn cq() -> QueueCall {
    QueueCall::Cq(MadeCq {
        handle: 1,
        number: 0x40,
        ring: CQ_RING,
        record: CQ_RECORD,
        entries: 8,
        entry_size: 64,
        compressed: 0,
    })
}

fn qp() -> QueueCall {
    QueueCall::Qp(MadeQp {
        handle: 2,
        number: 0x48,
        kind: 2,
        send_ring: SEND_RING,
        send_blocks: 8,
        receive_ring: RECEIVE_RING,
        receives: 4,
        receive_size: 16,
        record: QP_RECORD,
        user_index: 0x22,
    })
}

fn srq() -> QueueCall {
    QueueCall::Srq(MadeSrq {
        handle: 3,
        number: 0x50,
        ring: SRQ_RING,
        record: SRQ_RECORD,
        entries: 4,
        entry_size: 32,
        user_index: 0x33,
    })
}

const SEND: Name = Name { kind: Kind::Send, number: 0x48 };
const COMPLETIONS: Name = Name { kind: Kind::Completion, number: 0x40 };

fn all() -> Queues {
    let mut queues = Queues::default();
    let mut reported = Vec::new();
    for call in [cq(), qp(), srq()] {
        queues.apply(DEVICE, &call, &mut reported);
    }
    let made = reported.iter().filter(|event| matches!(event, Event::Made { .. })).count();
    assert_eq!((made, reported.len()), (3, 3), "{reported:?}");
    queues
}

fn look(queues: &mut Queues, fake: &Fake) -> Vec<Event> {
    let mut reported = Vec::new();
    queues.look(fake, &mut reported);
    reported
}

fn apply(queues: &mut Queues, call: QueueCall) -> Vec<Event> {
    let mut reported = Vec::new();
    queues.apply(DEVICE, &call, &mut reported);
    reported
}

/// Which queue each event is of, and its index.
fn places(reported: &[Event]) -> Vec<(Name, u32)> {
    reported
        .iter()
        .filter_map(|event| match event {
            Event::Posted { name, index, .. } | Event::Completed { name, index, .. } => {
                Some((*name, *index))
            }
            _ => None,
        })
        .collect()
}

#[test]
fn a_request_is_told_before_its_completion() {
    let (mut queues, fake) = (all(), Fake::new());
    fake.complete(0, 1);
    fake.send(0);
    assert_eq!(places(&look(&mut queues, &fake)), [(SEND, 0), (COMPLETIONS, 0)]);
    assert_eq!(look(&mut queues, &fake), []);
}

#[test]
fn a_queue_pair_that_was_reset_starts_over_when_it_leaves_reset() {
    let (mut queues, fake) = (all(), Fake::new());
    fake.send(0);
    fake.send(1);
    assert_eq!(places(&look(&mut queues, &fake)).len(), 2);
    let state = |state| QueueCall::State(ChangedQp { handle: 2, state });
    let reset = apply(&mut queues, state(0));
    let about = "RESET".to_owned();
    assert_eq!(reset, [Event::Changed { name: SEND, about }]);
    // The record is zeroed at some time before the next state.
    assert_eq!(look(&mut queues, &fake), []);
    fake.put(QP_RECORD, &[0; 8]);
    assert_eq!(look(&mut queues, &fake), []);
    let _ = apply(&mut queues, state(1));
    fake.send(0);
    assert_eq!(places(&look(&mut queues, &fake)), [(SEND, 0)]);
    // Another state changes nothing.
    let _ = apply(&mut queues, state(1));
    assert_eq!(look(&mut queues, &fake), []);
}

#[test]
fn a_queue_that_was_destroyed_is_not_looked_at() {
    let (mut queues, fake) = (all(), Fake::new());
    let end = |object: u16, handle| QueueCall::End(EndedQueue { object: object.into(), handle });
    // Neither one of another kind with this handle, nor one of another device.
    assert_eq!(apply(&mut queues, end(object::CQ, 2)), []);
    let mut reported = Vec::new();
    queues.apply(DEVICE + 1, &end(object::QP, 2), &mut reported);
    assert_eq!(reported, []);
    assert_eq!(apply(&mut queues, end(object::QP, 2)), [Event::Ended { name: SEND }]);
    fake.send(0);
    fake.complete(0, 1);
    assert_eq!(places(&look(&mut queues, &fake)), [(COMPLETIONS, 0)]);
    assert!(queues.has_device(DEVICE) && !queues.has_device(DEVICE + 1));
    let closed = apply(&mut queues, QueueCall::Closed(Default::default()));
    assert_eq!((closed.len(), queues.is_empty()), (2, true), "{closed:?}");
}

#[test]
fn a_handle_that_is_given_out_again_is_another_queue() {
    let (mut queues, fake) = (all(), Fake::new());
    fake.send(0);
    assert_eq!(places(&look(&mut queues, &fake)).len(), 1);
    let _ = apply(&mut queues, qp());
    // As new, from the start, and once.
    assert_eq!(places(&look(&mut queues, &fake)), [(SEND, 0)]);
}

#[test]
fn a_shared_queue_is_not_followed_after_a_completion_of_its_own() {
    let (mut queues, fake) = (all(), Fake::new());
    let name = Name { kind: Kind::Shared, number: 0x50 };
    let post = |count: u32| fake.put(SRQ_RECORD, &count.to_be_bytes());
    post(1);
    assert_eq!(places(&look(&mut queues, &fake)), [(name, 0)]);
    // Of another queue, and then of this one.
    fake.complete(0, 0x34);
    post(2);
    assert_eq!(places(&look(&mut queues, &fake)), [(name, 0), (COMPLETIONS, 0)]);
    fake.complete(1, 0x33);
    post(3);
    let reported = look(&mut queues, &fake);
    assert_eq!(places(&reported), [(COMPLETIONS, 1)]);
    assert_eq!(reported[0], Event::Hidden { name, count: 1 });
}

/// A work queue whose receives four packets can share, and one whose receives each take one.
fn work_queues() -> [QueueCall; 2] {
    let strided = MadeWq {
        handle: 4,
        number: 0x60,
        ring: RECEIVE_RING,
        record: QP_RECORD,
        entries: 4,
        entry_size: 32,
        user_index: 0x44,
        strides: 4,
        stride_size: 64,
    };
    let plain = MadeWq { handle: 5, number: 0x61, user_index: 0x45, strides: 0, ..strided };
    [QueueCall::Wq(strided), QueueCall::Wq(plain)]
}

#[test]
fn a_queue_pair_without_receives_says_so() {
    let QueueCall::Qp(made) = qp() else { unreachable!("it is one") };
    let none = MadeQp { receives: 0, receive_size: 1, ..made };
    let reported = apply(&mut all(), QueueCall::Qp(none));
    let Some(Event::Made { about, .. }) = reported.first() else { panic!("{reported:?}") };
    assert!(about.ends_with(" send blocks, no receives"), "{about}");
}

#[test]
fn packets_are_known_by_the_queue_that_they_came_to() {
    let (mut queues, fake) = (all(), Fake::new());
    let QueueCall::Qp(connected) = qp() else { unreachable!("it is one") };
    let raw = MadeQp { handle: 6, number: 0x49, kind: 8, user_index: 0x46, ..connected };
    let mut reported = apply(&mut queues, QueueCall::Qp(raw));
    for call in work_queues() {
        reported.extend(apply(&mut queues, call));
    }
    let about = reported.iter().map(|event| match event {
        Event::Made { about, .. } => about.as_str(),
        other => panic!("{other:?}"),
    });
    assert_eq!(
        Vec::from_iter(about),
        [
            "raw packets, 8 send blocks, 4 receives of 16 bytes",
            "4 receives of 32 bytes, each 4 strides of 64 bytes",
            "4 receives of 32 bytes"
        ]
    );
    // The bits above an index are of something else.
    for (index, user_index) in (0..).zip([0x22, 0x44, 0x45, 0x100_0046, 0x47]) {
        fake.complete(index, user_index);
    }
    let came: Vec<Option<Name>> = look(&mut queues, &fake)
        .into_iter()
        .map(|event| match event {
            Event::Completed { packets, .. } => packets,
            other => panic!("{other:?}"),
        })
        .collect();
    let name = |kind, number| Some(Name { kind, number });
    let raw = name(Kind::Receive, 0x49);
    assert_eq!(came, [None, name(Kind::Strides, 0x60), name(Kind::Work, 0x61), raw, None]);
    // Another device has indices of its own.
    let mut queues = all();
    let [strided, _] = work_queues();
    queues.apply(DEVICE + 1, &strided, &mut Vec::new());
    let reported = look(&mut queues, &fake);
    assert!(reported.iter().all(|event| matches!(event, Event::Completed { packets: None, .. })));
}

#[test]
fn completions_are_compressed_as_the_call_says() {
    for (format, compressed) in [
        (0, None),
        (1, Some(MiniFormat::Hash)),
        (2, Some(MiniFormat::Checksum)),
        (4, Some(MiniFormat::ChecksumStride)),
        (3, None),
        (1 << 32, None),
    ] {
        assert_eq!(compression(format), compressed, "{format}");
    }
    let QueueCall::Cq(made) = cq() else { unreachable!("it is one") };
    let reported = apply(&mut Queues::default(), QueueCall::Cq(MadeCq { compressed: 4, ..made }));
    let about = "8 completions of 64 bytes, compressed with checksum and stride index".to_owned();
    assert_eq!(reported, [Event::Made { name: COMPLETIONS, about }]);
}

#[test]
fn what_was_there_before_is_passed() {
    let (mut queues, fake) = (all(), Fake::new());
    fake.send(0);
    fake.send(1);
    fake.complete(0, 1);
    fake.put(CQ_RECORD, &1_u32.to_be_bytes());
    queues.pass(&fake);
    assert_eq!(look(&mut queues, &fake), []);
    fake.send(2);
    fake.complete(1, 1);
    assert_eq!(places(&look(&mut queues, &fake)), [(SEND, 2), (COMPLETIONS, 1)]);
}

#[test]
fn a_ring_that_is_gone_is_told_once_and_the_others_go_on() {
    let (mut queues, fake) = (all(), Fake::new());
    let QueueCall::Cq(other) = cq() else { unreachable!("it is one") };
    let gone = QueueCall::Cq(MadeCq { handle: 9, number: 0x41, record: 0x9000, ..other });
    let _ = apply(&mut queues, gone);
    let name = Name { kind: Kind::Completion, number: 0x41 };
    assert_eq!(look(&mut queues, &fake), [Event::Unreadable { name }]);
    fake.send(0);
    assert_eq!(places(&look(&mut queues, &fake)), [(SEND, 0)]);
}

#[test]
fn a_device_whose_descriptor_was_closed_lives_on_under_a_copy() {
    let (mut queues, mut reported) = (Queues::default(), Vec::new());
    queues.apply(DEVICE, &cq(), &mut reported);
    queues.apply(DEVICE + 1, &qp(), &mut reported);
    queues.renumber(DEVICE, 30);
    assert!(!queues.has_device(DEVICE) && queues.has_device(30) && queues.has_device(DEVICE + 1));
    reported.clear();
    // The file that is closed under the old number is another one.
    queues.apply(DEVICE, &QueueCall::Closed(Default::default()), &mut reported);
    assert_eq!(reported, []);
    queues.apply(30, &QueueCall::Closed(Default::default()), &mut reported);
    assert_eq!(reported, [Event::Ended { name: Name { kind: Kind::Completion, number: 0x40 } }]);
}
