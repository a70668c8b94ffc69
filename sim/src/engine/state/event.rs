//! Events that a device reports.

use mlx5_prm::event::{Eqe, EventQueueType, EventType, PortChange};

/// An event, before the kernel side makes it an entry of an event queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// An armed completion queue has a completion.
    Completion {
        /// The completion queue.
        cqn: u32,
        /// The event queue that it reports to.
        eqn: u32,
    },
    /// A completion queue failed.
    CqError {
        /// The completion queue.
        cqn: u32,
        /// `mlx5_prm::event::CqErrorSyndrome`.
        syndrome: u8,
    },
    /// Something happened to a queue pair.
    Qp {
        /// The queue pair.
        qpn: u32,
        /// COMM_EST, SQ_DRAINED, WQ_CATAS_ERROR, WQ_INVAL_REQ_ERROR, WQ_ACCESS_ERROR or
        /// SRQ_LAST_WQE.
        kind: EventType,
    },
    /// Something happened to a send or receive queue of Ethernet.
    WorkQueue {
        /// The queue.
        number: u32,
        /// It is a receive queue.
        receive: bool,
        /// WQ_CATAS_ERROR.
        kind: EventType,
    },
    /// Something happened to a shared receive queue.
    Srq {
        /// The shared receive queue.
        srqn: u32,
        /// SRQ_RQ_LIMIT or SRQ_CATAS_ERROR.
        kind: EventType,
    },
    /// A port changed.
    Port {
        /// Its number, from 1.
        port: u8,
        /// The change.
        change: PortChange,
    },
    /// The device is lost.
    DeviceFatal,
}

impl Event {
    /// The event as an entry of an event queue, which adds the owner bit. `None` for a lost device,
    /// which reports the loss in its health buffer.
    pub(crate) fn entry(&self) -> Option<Eqe> {
        let mut entry = Eqe::default();
        match *self {
            Self::Completion { cqn, .. } => {
                entry.set_event_type(EventType::COMP.0).completion_mut().set_cqn(cqn);
            }
            Self::CqError { cqn, syndrome } => {
                let error = entry.set_event_type(EventType::CQ_ERROR.0).cq_error_mut();
                error.set_cqn(cqn).set_syndrome(syndrome.into());
            }
            Self::Qp { qpn, kind } => queue_entry(&mut entry, kind, EventQueueType::QP, qpn),
            Self::WorkQueue { number, receive, kind } => {
                let queue = if receive { EventQueueType::RQ } else { EventQueueType::SQ };
                queue_entry(&mut entry, kind, queue, number);
            }
            // Linux looks for the subscribers of a shared receive queue under type 0.
            Self::Srq { srqn, kind } => queue_entry(&mut entry, kind, EventQueueType::QP, srqn),
            Self::Port { port, change } => {
                let changed = entry.set_event_type(EventType::PORT_CHANGE.0);
                changed.set_event_sub_type(change.0).port_mut().set_port(port.into());
            }
            Self::DeviceFatal => return None,
        }
        Some(entry)
    }
}

fn queue_entry(entry: &mut Eqe, kind: EventType, queue: EventQueueType, number: u32) {
    let about = entry.set_event_type(kind.0).qp_srq_mut();
    about.set_qp_srq_n(number).set_queue_type(queue.0);
}

/// Receives a device's events.
///
/// The engine calls it with the fabric locked, from the thread that runs the engine. It must not
/// call back into the fabric, nor hold a handle of it.
pub trait EventSink: Send {
    /// Takes one event.
    fn event(&mut self, event: Event);
}

impl<F: FnMut(Event) + Send> EventSink for F {
    fn event(&mut self, event: Event) {
        self(event);
    }
}
