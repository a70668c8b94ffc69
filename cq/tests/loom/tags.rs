//! A tag list: its owner adds and removes tags while a poller handles their completions.

use crate::{Memory, model, send_queue, wait};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use loom::thread;
use mlx5_prm::cqe::TagEvent;
use mlx5_wqe::tag_matching::{OpsWr, TagAdd, TagCompletion, TagHandle, TagList, TagRecords};
use mlx5_wqe::{PostError, SendRecords, SharedReceiveRecords};

/// A list, its shared half, and its memory.
struct Bed {
    list: TagList,
    // The crate's own reference count is not loom's, so the pollers' copies are dropped first.
    records: std::sync::Arc<TagRecords>,
    _commands: Box<SendRecords>,
    _memory: Memory,
}

impl Bed {
    fn new(tags: u32, operations: u32) -> Self {
        let memory = Memory::new();
        let commands = Box::new(SendRecords::new(operations));
        let queue = send_queue(&memory, operations, &commands);
        let receives = std::sync::Arc::new(SharedReceiveRecords::new(2));
        let records = std::sync::Arc::new(TagRecords::new(tags, operations, receives));
        let shared = std::sync::Arc::clone(&records);
        let list = TagList::new(queue, shared, 1);
        Self { list, records, _commands: commands, _memory: memory }
    }

    fn poller(&self) -> Poller {
        Poller(std::sync::Arc::clone(&self.records))
    }

    /// Adds tag `number`, which identifies its message and its operation.
    fn add(&mut self, number: u64, signaled: bool) -> Result<TagHandle, PostError> {
        let add = TagAdd { recv_wr_id: 100 + number, sges: &[], tag: number, mask: !0 };
        let wr = OpsWr::add(200 + number, add);
        let mut list = [if signaled { wr.signaled() } else { wr }];
        self.list.post(&mut list).map_err(|refused| refused.error())?;
        Ok(list[0].handle.expect("a tag that was added has a handle"))
    }

    fn remove(&mut self, wr_id: u64, tag: TagHandle) -> Result<(), PostError> {
        let mut list = [OpsWr::del(wr_id, tag).signaled()];
        self.list.post(&mut list).map_err(|refused| refused.error())
    }

    /// Checks that exactly as many tags can be added as the list has places: none was lost, and
    /// none was freed twice.
    fn assert_all_free(&mut self) {
        let mut places = Vec::new();
        for number in 0..u64::from(self.list.max_num_tags()) {
            places.push(self.add(50 + number, false).expect("a place was lost").place());
        }
        assert!(matches!(self.add(60, false), Err(PostError::TagListFull { .. })));
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), self.list.max_num_tags() as usize, "one place, two tags");
    }
}

/// Handles the device's reports about a list.
struct Poller(std::sync::Arc<TagRecords>);

impl Poller {
    fn take_report(&self, event: TagEvent, place: u16, success: bool) -> Option<u64> {
        match self.0.complete(event, place, 0, success, 0)? {
            TagCompletion::Completion { wr_id, needs_sync } => {
                assert!(!needs_sync);
                Some(wr_id)
            }
            TagCompletion::Unasked => Some(0),
        }
    }
}

/// The poller gets the identifier that each tag was added with, whatever its slot held before.
#[test]
fn a_match_is_about_the_tag_that_was_added() {
    model(2, || {
        const TAGS: u64 = 3;
        // One tag at a time, on two slots, which alternate.
        let mut bed = Bed::new(1, 2);
        let poller = bed.poller();
        let polling = thread::spawn(move || {
            for number in 0..TAGS {
                let added = wait(|| poller.take_report(TagEvent::Append, 0, true));
                assert_eq!(added, 200 + number);
                let place = (number % 2) as u16;
                assert_eq!(
                    poller.take_report(TagEvent::ConsumedMessage, place, true),
                    Some(100 + number)
                );
                assert_eq!(poller.take_report(TagEvent::ConsumedMessage, place, true), None);
            }
        });
        let mut names: Vec<TagHandle> = Vec::new();
        for number in 0..TAGS {
            let tag = wait(|| match bed.add(number, true) {
                Ok(tag) => Some(tag),
                Err(PostError::TagListFull { .. } | PostError::QueueFull { .. }) => None,
                Err(error) => panic!("{error}"),
            });
            assert!(!names.contains(&tag), "{tag:?} is the name of an earlier tag");
            names.push(tag);
        }
        polling.join().unwrap();
        for tag in names {
            assert_eq!(bed.remove(9, tag), Err(PostError::StaleTag));
        }
        bed.assert_all_free();
    });
}

/// The owner reuses slots in the order in which they were freed, each with a new handle. As soon as
/// it sees that a slot is free, it sees which one, and its former handle.
#[test]
fn a_place_that_was_given_back_has_a_new_name() {
    model(3, || {
        let mut bed = Bed::new(2, 8);
        let mut names = vec![bed.add(0, false).unwrap(), bed.add(1, false).unwrap()];
        let poller = bed.poller();
        // Orders nothing. But loom explores the orders of its own loads and stores, and not those
        // of a counter that its writer has read before.
        let done = Arc::new(AtomicUsize::new(0));
        let polling = {
            let done = Arc::clone(&done);
            thread::spawn(move || {
                // The second tag's slot is freed before the first one's.
                assert_eq!(poller.take_report(TagEvent::ConsumedMessage, 1, true), Some(101));
                done.store(1, Relaxed);
                assert_eq!(poller.take_report(TagEvent::ConsumedMessage, 0, true), Some(100));
                done.store(2, Relaxed);
            })
        };
        // Waiting here would synchronise more than the counter does, so the test tries once.
        for (number, place) in [(2, 2), (3, 1)] {
            done.load(Relaxed);
            match bed.add(number, false) {
                Ok(tag) => {
                    assert_eq!(tag.place(), place);
                    assert!(!names.contains(&tag), "{tag:?} is the name of an earlier tag");
                    names.push(tag);
                }
                Err(PostError::TagListFull { max: 2 }) => break,
                Err(error) => panic!("{error}"),
            }
        }
        polling.join().unwrap();
        let poller = bed.poller();
        for (number, tag) in names.iter().enumerate().skip(2) {
            let reported = poller.take_report(TagEvent::ConsumedMessage, tag.place(), true);
            assert_eq!(reported, Some(100 + number as u64));
        }
        bed.assert_all_free();
    });
}

/// A removal and a message race for a tag, and one of them wins. The tag's slot is freed once, when
/// neither can report it any more.
#[test]
fn a_removal_and_a_message_give_one_place_back_once() {
    for message in [&[TagEvent::ConsumedMessage][..], &[TagEvent::Consumed, TagEvent::Expected]] {
        model(3, move || {
            let mut bed = Bed::new(1, 4);
            let tag = bed.add(1, false).unwrap();
            let poller = bed.poller();
            let polling = thread::spawn(move || {
                for &event in message {
                    assert_eq!(poller.take_report(event, tag.place(), true), Some(101));
                }
                // No correct device reports it again.
                assert_eq!(poller.take_report(message[0], tag.place(), true), None);
                poller
            });
            let removal = bed.remove(2, tag);
            let poller = polling.join().unwrap();
            if removal.is_ok() {
                let full = bed.add(4, false);
                assert_eq!(full, Err(PostError::TagListFull { max: 1 }), "the removal is to come");
            }
            // The device reports that the message won, in any case.
            let reported = poller.take_report(TagEvent::Remove, tag.place(), false);
            match removal {
                Ok(()) => assert_eq!(reported, Some(2)),
                Err(PostError::StaleTag) => assert_eq!(reported, None),
                Err(error) => panic!("{error}"),
            }
            assert_eq!(bed.remove(3, tag), Err(PostError::StaleTag));
            bed.assert_all_free();
        });
    }
}

/// The device removes a tag before a message comes. The owner may use the slot once the poller has
/// handled the report, and never gets it twice.
#[test]
fn a_removal_that_comes_in_time_gives_the_place_back_once() {
    model(3, || {
        let mut bed = Bed::new(1, 4);
        let tag = bed.add(1, false).unwrap();
        let poller = bed.poller();
        let polling = thread::spawn(move || {
            let reported = wait(|| poller.take_report(TagEvent::Remove, tag.place(), true));
            assert_eq!(reported, 2);
            assert_eq!(poller.take_report(TagEvent::ConsumedMessage, tag.place(), true), None);
        });
        bed.remove(2, tag).unwrap();
        assert_eq!(bed.remove(3, tag), Err(PostError::StaleTag));
        let next = wait(|| match bed.add(4, false) {
            Ok(tag) => Some(tag),
            Err(PostError::TagListFull { max: 1 }) => None,
            Err(error) => panic!("{error}"),
        });
        polling.join().unwrap();
        assert_ne!(next, tag);
        let poller = bed.poller();
        assert_eq!(poller.take_report(TagEvent::ConsumedMessage, next.place(), true), Some(104));
        bed.assert_all_free();
    });
}

/// Operations without a completion free their room with the next one that completes, and only then
/// are their records used again.
#[test]
fn a_record_is_used_again_when_it_was_read() {
    model(2, || {
        let mut bed = Bed::new(4, 4);
        let poller = bed.poller();
        let reported = Arc::new(AtomicUsize::new(0));
        let polling = {
            let reported = Arc::clone(&reported);
            thread::spawn(move || {
                for wr_id in [201, 203] {
                    assert_eq!(wait(|| poller.take_report(TagEvent::Append, 0, true)), wr_id);
                    reported.fetch_add(1, Relaxed);
                }
            })
        };
        for number in 0..4 {
            bed.add(number, number % 2 == 1).unwrap();
        }
        let sync = wait(|| match bed.list.post(&mut [OpsWr::sync(300, 0).signaled()]) {
            Ok(()) => Some(()),
            Err(refused) if matches!(refused.error(), PostError::QueueFull { .. }) => None,
            Err(error) => panic!("{error}"),
        });
        assert_eq!(sync, ());
        polling.join().unwrap();
        assert_eq!(reported.load(Relaxed), 2);
        assert_eq!(bed.poller().take_report(TagEvent::Noop, 0, true), Some(300));
    });
}

/// A tag whose addition fails was never on the list: only the failure frees its slot.
#[test]
fn a_tag_that_fails_to_be_added_gives_its_place_back() {
    model(3, || {
        let mut bed = Bed::new(1, 4);
        let poller = bed.poller();
        let polling = thread::spawn(move || {
            let (wr_id, _) = wait(|| poller.0.fail(0));
            assert_eq!(wr_id, 201);
            assert_eq!(poller.0.fail(0), None);
        });
        let tag = bed.add(1, true).unwrap();
        let next = wait(|| match bed.add(2, true) {
            Ok(tag) => Some(tag),
            Err(PostError::TagListFull { max: 1 }) => None,
            Err(error) => panic!("{error}"),
        });
        polling.join().unwrap();
        assert_eq!(bed.remove(3, tag), Err(PostError::StaleTag));
        let poller = bed.poller();
        assert_eq!(poller.take_report(TagEvent::Append, 0, true), Some(202));
        assert_eq!(poller.take_report(TagEvent::ConsumedMessage, next.place(), true), Some(102));
        bed.assert_all_free();
    });
}
