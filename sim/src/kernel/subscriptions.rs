//! Subscriptions of user space to the device's events (DEVX): to those of objects that its commands
//! made, and to those of ports.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use mlx5_prm::cmd::CommandOpcode;
use mlx5_prm::event::{EventQueueType, EventType};
use mlx5_uapi::mlx5::DevxAsyncEventHdr;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use zerocopy::IntoBytes;

use crate::engine::Event;
use crate::kernel::event_queue::{EventQueue, Reported};

/// An object as events name it: a type that distinguishes kinds of queue, and a number.
type Named = (EventQueueType, u32);

/// The way in which a subscriber gets an event.
#[derive(Clone, Debug)]
pub(crate) enum Notice {
    /// By a record: the cookie, and the event unless that is left out. A record without the event
    /// waits at most once.
    Record { cookie: u64, omits_event: bool },
    /// By an eventfd. The file only keeps the subscription.
    EventFd(Arc<OwnedFd>),
}

#[derive(Debug)]
pub(crate) struct Subscription {
    pub(crate) kind: EventType,
    /// The object: the command that made it, and its number. `None` for events without an object.
    pub(crate) object: Option<(CommandOpcode, u32)>,
    pub(crate) file: Arc<EventQueue>,
    pub(crate) notice: Notice,
}

/// A subscription, and the identity of its records in the file.
#[derive(Debug)]
struct Kept {
    subscription: Subscription,
    records: Reported,
}

/// The subscriptions to a device's events, in their order.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions {
    all: Vec<Kept>,
}

impl Subscriptions {
    pub(crate) fn add(&mut self, subscription: Subscription) {
        self.all.push(Kept { subscription, records: Reported::default() });
    }

    /// Ends the subscriptions of a file that is gone.
    pub(crate) fn end_file(&mut self, file: &Arc<EventQueue>) {
        self.all.retain(|kept| !Arc::ptr_eq(&kept.subscription.file, file));
    }

    /// Ends the subscriptions to an object that is gone. Records that wait to be read stay.
    pub(crate) fn end_object(&mut self, made_by: CommandOpcode, number: u32) {
        self.all.retain(|kept| kept.subscription.object != Some((made_by, number)));
    }

    /// Delivers an event to its subscribers.
    pub(crate) fn deliver(&self, event: Event) {
        if self.all.is_empty() {
            return;
        }
        let Some(entry) = event.entry() else { return };
        let (kind, about) = (EventType(entry.event_type()), named(event));
        for Kept { subscription, records } in &self.all {
            if subscription.kind != kind || subscription.object.map(name) != about {
                continue;
            }
            match &subscription.notice {
                Notice::EventFd(fd) => signal(fd),
                Notice::Record { cookie, omits_event } => {
                    let header = DevxAsyncEventHdr { cookie: *cookie };
                    if *omits_event {
                        subscription.file.push_once(header.as_bytes(), records);
                    } else {
                        let record = [header.as_bytes(), entry.as_bytes()].concat();
                        subscription.file.push(&record, None);
                    }
                }
            }
        }
    }
}

/// Whether a kind of event can be subscribed to, with an object or without. These are the kinds of
/// a device without a list of its own (`event_cap`).
pub(crate) fn is_offered(kind: EventType, of_object: bool) -> bool {
    if !of_object {
        return kind == EventType::PORT_CHANGE;
    }
    matches!(
        kind,
        EventType::COMP
            | EventType::PATH_MIG
            | EventType::COMM_EST
            | EventType::SQ_DRAINED
            | EventType::CQ_ERROR
            | EventType::WQ_CATAS_ERROR
            | EventType::PATH_MIG_FAILED
            | EventType::WQ_INVAL_REQ_ERROR
            | EventType::WQ_ACCESS_ERROR
            | EventType::SRQ_CATAS_ERROR
            | EventType::SRQ_LAST_WQE
            | EventType::SRQ_RQ_LIMIT
            | EventType::XRQ_ERROR
            | EventType::DCT_DRAINED
            | EventType::DCT_KEY_VIOLATION
    )
}

/// The name of an object in events. All but Ethernet queues have type 0; among those, each number
/// names one object in events of one kind.
fn name((made_by, number): (CommandOpcode, u32)) -> Named {
    let queue = match made_by {
        CommandOpcode::CREATE_RQ => EventQueueType::RQ,
        CommandOpcode::CREATE_SQ => EventQueueType::SQ,
        _ => EventQueueType::QP,
    };
    (queue, number)
}

/// The object that an event is about.
fn named(event: Event) -> Option<Named> {
    Some(match event {
        Event::Completion { cqn, .. } | Event::CqError { cqn, .. } => (EventQueueType::QP, cqn),
        Event::Qp { qpn, .. } => (EventQueueType::QP, qpn),
        Event::WorkQueue { number, receive: true, .. } => (EventQueueType::RQ, number),
        Event::WorkQueue { number, receive: false, .. } => (EventQueueType::SQ, number),
        Event::Srq { srqn, .. } => (EventQueueType::QP, srqn),
        Event::Port { .. } | Event::DeviceFatal => return None,
    })
}

/// Adds one to an eventfd. A full one already wakes its reader, and must not block the device.
fn signal(fd: &OwnedFd) {
    let mut room = [PollFd::new(fd.as_fd(), PollFlags::POLLOUT)];
    if poll(&mut room, PollTimeout::ZERO) == Ok(1) {
        // It was writable just now, so that it is full only if another writer filled it meanwhile.
        let _ = nix::unistd::write(fd, &1_u64.to_ne_bytes());
    }
}

#[cfg(test)]
mod tests {
    use mlx5_uapi::Errno;

    use super::*;

    const FATAL: EventType = EventType::WQ_CATAS_ERROR;

    /// The cookies of the records that wait in a file.
    fn heard(file: &EventQueue) -> Vec<u8> {
        let mut record = [0; 128];
        std::iter::from_fn(|| file.read(&mut record).ok().map(|_| record[0])).collect()
    }

    #[test]
    fn numbers_of_different_queues_are_told_apart_until_their_objects_end() {
        let file = EventQueue::new(Errno::EINVAL).expect("eventfd");
        let mut subscriptions = Subscriptions::default();
        let makers = [CommandOpcode::CREATE_QP, CommandOpcode::CREATE_RQ, CommandOpcode::CREATE_SQ];
        for (cookie, made_by) in (1..).zip(makers) {
            subscriptions.add(Subscription {
                kind: FATAL,
                object: Some((made_by, 7)),
                file: Arc::clone(&file),
                notice: Notice::Record { cookie, omits_event: false },
            });
        }
        let queue = |receive| Event::WorkQueue { number: 7, receive, kind: FATAL };
        let tell = |subscriptions: &Subscriptions| {
            for event in [queue(false), queue(true), Event::Qp { qpn: 7, kind: FATAL }] {
                subscriptions.deliver(event);
            }
            // Neither another kind, nor another number.
            subscriptions.deliver(Event::Qp { qpn: 7, kind: EventType::COMM_EST });
            subscriptions.deliver(Event::Qp { qpn: 8, kind: FATAL });
            subscriptions.deliver(Event::DeviceFatal);
        };
        tell(&subscriptions);
        assert_eq!(heard(&file), [3, 2, 1]);
        subscriptions.end_object(CommandOpcode::CREATE_RQ, 7);
        tell(&subscriptions);
        assert_eq!(heard(&file), [3, 1]);
        subscriptions.end_file(&file);
        tell(&subscriptions);
        assert_eq!(heard(&file), []);
    }
}
