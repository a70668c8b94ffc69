//! Event files, and the way of a device's events to them.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};

use mlx5_prm::event::{EventType as DeviceEvent, PortChange};
use mlx5_uapi::Errno;
use mlx5_uapi::verbs::{AsyncEventDesc, CompEventDesc, EventType};
use nix::sys::eventfd::{EfdFlags, EventFd};
use zerocopy::IntoBytes;

use crate::config::LinkLayer;
use crate::engine::Event;
use crate::kernel::lock;

/// Events of one object that were read: what its destruction reports.
pub(crate) type Reported = Arc<AtomicU32>;

#[derive(Debug)]
struct Pending {
    record: Vec<u8>,
    /// Counts its reading; also names the object that it is about.
    reported: Option<Reported>,
}

#[derive(Debug, Default)]
struct Queued {
    events: VecDeque<Pending>,
    /// Nothing will be added; when empty, reads fail.
    closed: bool,
}

/// A completion channel or asynchronous event file: records, and a descriptor that is readable
/// while there are some.
#[derive(Debug)]
pub(crate) struct EventQueue {
    signal: EventFd,
    queued: Mutex<Queued>,
}

impl EventQueue {
    pub(crate) fn new() -> Result<Arc<Self>, Errno> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let signal = EventFd::from_value_and_flags(0, flags)?;
        Ok(Arc::new(Self { signal, queued: Mutex::default() }))
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.signal.as_fd().as_raw_fd()
    }

    /// The descriptor follows the queue: it is readable when a read would not answer EAGAIN.
    fn signal(&self, queued: &Queued) {
        // An eventfd that cannot be written is full, and one that cannot be read is empty: both
        // are what was wanted.
        if queued.closed || !queued.events.is_empty() {
            let _ = self.signal.write(1);
        } else {
            let _ = self.signal.read();
        }
    }

    pub(crate) fn push(&self, record: &[u8], reported: Option<&Reported>) {
        let mut queued = lock(&self.queued);
        if !queued.closed {
            let reported = reported.cloned();
            queued.events.push_back(Pending { record: record.to_vec(), reported });
            self.signal(&queued);
        }
    }

    /// Forgets the waiting events of an object that is gone.
    fn forget(&self, object: &Reported) {
        let mut queued = lock(&self.queued);
        queued.events.retain(|event| {
            !event.reported.as_ref().is_some_and(|reported| Arc::ptr_eq(reported, object))
        });
        self.signal(&queued);
    }

    /// Ends the queue. What waits of objects went with them; what still waits tells of the device.
    pub(crate) fn close(&self) {
        let mut queued = lock(&self.queued);
        queued.closed = true;
        self.signal(&queued);
    }

    pub(crate) fn read(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        let mut queued = lock(&self.queued);
        let Some(event) = queued.events.front() else {
            return Err(if queued.closed { Errno::EIO } else { Errno::EAGAIN });
        };
        let length = event.record.len();
        // One event at a time, as the kernel does; an event that does not fit stays.
        buffer.get_mut(..length).ok_or(Errno::EINVAL)?.copy_from_slice(&event.record);
        if let Some(reported) = &event.reported {
            reported.fetch_add(1, Ordering::AcqRel);
        }
        queued.events.pop_front();
        self.signal(&queued);
        Ok(length)
    }
}

impl AsFd for EventQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.signal.as_fd()
    }
}

/// Where one kind of an object's events goes.
#[derive(Clone, Debug)]
pub(crate) struct Subscription {
    queue: Arc<EventQueue>,
    user_handle: u64,
    reported: Reported,
}

impl Subscription {
    /// `None` without a queue: such events are lost.
    pub(crate) fn new(queue: Option<Arc<EventQueue>>, user_handle: u64) -> Option<Self> {
        queue.map(|queue| Self { queue, user_handle, reported: Reported::default() })
    }

    fn completion(&self) {
        let record = CompEventDesc { cq_handle: self.user_handle };
        self.queue.push(record.as_bytes(), Some(&self.reported));
    }

    fn asynchronous(&self, event: EventType) {
        let record = async_record(self.user_handle, event);
        self.queue.push(record.as_bytes(), Some(&self.reported));
    }

    /// Events that were read so far; the others are dropped.
    pub(crate) fn end(&self) -> u32 {
        self.queue.forget(&self.reported);
        self.reported.load(Ordering::Acquire)
    }
}

fn async_record(element: u64, event: EventType) -> AsyncEventDesc {
    AsyncEventDesc { element, event_type: event.raw(), reserved: 0 }
}

/// What the device's numbers mean to those who wait for events.
#[derive(Debug, Default)]
pub(crate) struct Routes {
    pub(crate) completions: BTreeMap<u32, Subscription>,
    pub(crate) cqs: BTreeMap<u32, Subscription>,
    /// A target of extended connections has a subscription for each of its handles.
    qps: BTreeMap<u32, Vec<Subscription>>,
    pub(crate) srqs: BTreeMap<u32, Subscription>,
    pub(crate) wqs: BTreeMap<u32, Subscription>,
    /// Asynchronous files, which all hear of ports and of the device.
    listeners: Vec<Weak<EventQueue>>,
    link_layers: Vec<LinkLayer>,
}

/// Takes a device's events to the files that wait for them.
#[derive(Debug, Default)]
pub(crate) struct EventHub {
    pub(crate) routes: Mutex<Routes>,
}

impl EventHub {
    pub(crate) fn new(link_layers: Vec<LinkLayer>) -> Arc<Self> {
        Arc::new(Self { routes: Mutex::new(Routes { link_layers, ..Routes::default() }) })
    }

    /// Adds an asynchronous file.
    pub(crate) fn listen(&self, queue: &Arc<EventQueue>) {
        let mut routes = lock(&self.routes);
        routes.listeners.retain(|listener| listener.strong_count() > 0);
        routes.listeners.push(Arc::downgrade(queue));
    }

    /// Brings one event of the device. Called with the fabric locked.
    pub(crate) fn deliver(&self, event: Event) {
        let routes = lock(&self.routes);
        match event {
            Event::Completion { cqn, .. } => {
                if let Some(route) = routes.completions.get(&cqn) {
                    route.completion();
                }
            }
            Event::CqError { cqn, .. } => {
                if let Some(route) = routes.cqs.get(&cqn) {
                    route.asynchronous(EventType::CqError);
                }
            }
            Event::Qp { qpn, kind } => {
                routes.tell_qp(qpn, kind);
            }
            Event::WorkQueue { number, kind, .. } => {
                // A work queue is a queue alone, or one of a raw packet queue pair.
                if let Some(route) = routes.wqs.get(&number) {
                    route.asynchronous(EventType::WqFatal);
                } else {
                    routes.tell_qp(number, kind);
                }
            }
            Event::Srq { srqn, kind } => {
                if let (Some(route), Some(event)) = (routes.srqs.get(&srqn), srq_event(kind)) {
                    route.asynchronous(event);
                }
            }
            Event::Port { port, change } => {
                let link_layer = usize::from(port)
                    .checked_sub(1)
                    .and_then(|index| routes.link_layers.get(index).copied());
                if link_layer.is_some()
                    && let Some(event) = port_event(change)
                {
                    routes.tell_all(port.into(), event);
                }
            }
            Event::DeviceFatal => routes.tell_all(0, EventType::DeviceFatal),
        }
    }
}

impl Routes {
    /// Brings the events of a queue pair to one more subscription.
    pub(crate) fn add_qp(&mut self, number: u32, route: &Subscription) {
        self.qps.entry(number).or_default().push(route.clone());
    }

    /// Forgets all subscriptions to a queue pair that is gone.
    pub(crate) fn end_qp(&mut self, number: u32) {
        self.qps.remove(&number);
    }

    /// Brings it no more of them.
    pub(crate) fn forget_qp(&mut self, number: u32, route: &Subscription) {
        let Some(routes) = self.qps.get_mut(&number) else { return };
        routes.retain(|other| !Arc::ptr_eq(&other.reported, &route.reported));
        if routes.is_empty() {
            self.qps.remove(&number);
        }
    }

    fn tell_qp(&self, number: u32, kind: DeviceEvent) {
        let Some(event) = qp_event(kind) else { return };
        for route in self.qps.get(&number).into_iter().flatten() {
            route.asynchronous(event);
        }
    }

    fn tell_all(&self, element: u64, event: EventType) {
        let record = async_record(element, event);
        for listener in self.listeners.iter().filter_map(Weak::upgrade) {
            listener.push(record.as_bytes(), None);
        }
    }
}

fn qp_event(kind: DeviceEvent) -> Option<EventType> {
    Some(match kind {
        DeviceEvent::COMM_EST => EventType::CommunicationEstablished,
        DeviceEvent::SQ_DRAINED => EventType::SqDrained,
        DeviceEvent::SRQ_LAST_WQE => EventType::QpLastWqeReached,
        DeviceEvent::WQ_CATAS_ERROR => EventType::QpFatal,
        DeviceEvent::WQ_INVAL_REQ_ERROR => EventType::QpRequestError,
        DeviceEvent::WQ_ACCESS_ERROR => EventType::QpAccessError,
        DeviceEvent::PATH_MIG => EventType::PathMigrated,
        DeviceEvent::PATH_MIG_FAILED => EventType::PathMigrationError,
        _ => return None,
    })
}

fn srq_event(kind: DeviceEvent) -> Option<EventType> {
    Some(match kind {
        DeviceEvent::SRQ_RQ_LIMIT => EventType::SrqLimitReached,
        DeviceEvent::SRQ_CATAS_ERROR => EventType::SrqError,
        _ => return None,
    })
}

fn port_event(change: PortChange) -> Option<EventType> {
    Some(match change {
        PortChange::ACTIVE => EventType::PortActive,
        PortChange::DOWN | PortChange::INITIALIZED => EventType::PortError,
        PortChange::LID => EventType::LidChange,
        PortChange::PKEY => EventType::PkeyChange,
        PortChange::GUID => EventType::GidChange,
        PortChange::CLIENT_REREG => EventType::ClientReregister,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readable(queue: &EventQueue) -> bool {
        let none = Some(std::time::Duration::ZERO);
        mlx5_uapi::wait::wait_readable(queue.as_fd(), none).expect("poll")
    }

    #[test]
    fn the_descriptor_is_readable_exactly_while_events_wait() {
        let queue = EventQueue::new().expect("eventfd");
        let route = Subscription::new(Some(Arc::clone(&queue)), 7).expect("queue");
        assert!(!readable(&queue));
        route.completion();
        route.completion();
        let mut record = [0; 8];
        assert_eq!(queue.read(&mut record[..7]), Err(Errno::EINVAL));
        assert_eq!(queue.read(&mut record), Ok(8));
        assert!(readable(&queue));
        assert_eq!(queue.read(&mut record), Ok(8));
        assert!(!readable(&queue));
        assert_eq!(queue.read(&mut record), Err(Errno::EAGAIN));
        assert_eq!(u64::from_ne_bytes(record), 7);
    }

    #[test]
    fn every_handle_of_a_queue_pair_hears_of_it_until_it_is_destroyed() {
        let queue = EventQueue::new().expect("eventfd");
        let route = |name| Subscription::new(Some(Arc::clone(&queue)), name).expect("queue");
        let (one, other) = (route(1), route(2));
        let hub = EventHub::new(Vec::new());
        lock(&hub.routes).add_qp(7, &one);
        lock(&hub.routes).add_qp(7, &other);
        let told = || {
            hub.deliver(Event::Qp { qpn: 7, kind: DeviceEvent::COMM_EST });
            let mut record = [0; 16];
            std::iter::from_fn(|| queue.read(&mut record).ok().map(|_| record[0]))
                .collect::<Vec<_>>()
        };
        assert_eq!(told(), [1, 2]);
        lock(&hub.routes).forget_qp(7, &one);
        assert_eq!(told(), [2]);
        lock(&hub.routes).forget_qp(7, &other);
        assert_eq!((told(), lock(&hub.routes).qps.len()), (vec![], 0));
    }

    #[test]
    fn an_ended_object_reports_what_was_read_and_takes_the_rest_along() {
        let queue = EventQueue::new().expect("eventfd");
        let one = Subscription::new(Some(Arc::clone(&queue)), 1).expect("queue");
        let other = Subscription::new(Some(Arc::clone(&queue)), 2).expect("queue");
        one.completion();
        one.completion();
        other.completion();
        let mut record = [0; 8];
        queue.read(&mut record).expect("an event");
        assert_eq!(one.end(), 1);
        queue.read(&mut record).expect("the other's event");
        assert_eq!(u64::from_ne_bytes(record), 2);
        assert_eq!(queue.read(&mut record), Err(Errno::EAGAIN));
        assert!(!readable(&queue));
        assert_eq!(other.end(), 1);
    }

    #[test]
    fn a_closed_queue_is_readable_and_fails() {
        let queue = EventQueue::new().expect("eventfd");
        queue.close();
        assert!(readable(&queue));
        assert_eq!(queue.read(&mut [0; 16]), Err(Errno::EIO));
        assert!(readable(&queue));
    }
}
