//! Delivers a device's events to the files that wait for them.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, Weak};

use mlx5_prm::event::{EventType as DeviceEvent, PortChange};
use mlx5_uapi::verbs::{AsyncEventDesc, CompEventDesc, EventType};
use zerocopy::IntoBytes;

use crate::config::LinkLayer;
use crate::engine::Event;
use crate::kernel::event_queue::{EventQueue, Reported};
use crate::kernel::lock;
use crate::kernel::subscriptions::Subscriptions;

/// Destination of one kind of an object's events.
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

/// The destinations of events, by the device's numbers of their objects.
#[derive(Debug, Default)]
pub(crate) struct Routes {
    pub(crate) completions: BTreeMap<u32, Subscription>,
    pub(crate) cqs: BTreeMap<u32, Subscription>,
    /// A target of extended connections has a subscription for each of its handles.
    qps: BTreeMap<u32, Vec<Subscription>>,
    pub(crate) srqs: BTreeMap<u32, Subscription>,
    pub(crate) wqs: BTreeMap<u32, Subscription>,
    /// Asynchronous files. All get the events of ports and of the device.
    listeners: Vec<Weak<EventQueue>>,
    link_layers: Vec<LinkLayer>,
    /// Subscriptions of user space to the device's own events.
    pub(crate) devx: Subscriptions,
}

/// Delivers a device's events to the files that wait for them.
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

    /// Delivers one event of the device. Called with the fabric locked.
    pub(crate) fn deliver(&self, event: Event) {
        let routes = lock(&self.routes);
        routes.devx.deliver(event);
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
                // A work queue is an object of its own, or one of a raw packet queue pair.
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
    /// Adds a subscription to the events of a queue pair.
    pub(crate) fn add_qp(&mut self, number: u32, route: &Subscription) {
        self.qps.entry(number).or_default().push(route.clone());
    }

    /// Removes all subscriptions to a queue pair that is gone.
    pub(crate) fn end_qp(&mut self, number: u32) {
        self.qps.remove(&number);
    }

    /// Removes a subscription to the events of a queue pair.
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
    use std::os::fd::AsFd;

    use mlx5_uapi::Errno;

    use super::*;

    fn readable(queue: &EventQueue) -> bool {
        let none = Some(std::time::Duration::ZERO);
        mlx5_uapi::wait::wait_readable(queue.as_fd(), none).expect("poll")
    }

    #[test]
    fn the_descriptor_is_readable_exactly_while_events_wait() {
        let queue = EventQueue::new(Errno::EINVAL).expect("a pipe");
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
        let queue = EventQueue::new(Errno::EINVAL).expect("a pipe");
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
        let queue = EventQueue::new(Errno::EINVAL).expect("a pipe");
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
}
