//! What a device reports on its own.

use mlx5_prm::event::{EventType, PortChange};

/// An event, before it becomes an entry of an event queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// An armed completion queue has a completion.
    Completion {
        /// The completion queue.
        cqn: u32,
        /// The event queue that it reports to.
        eqn: u32,
    },
    /// A completion queue broke.
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
        /// How.
        change: PortChange,
    },
    /// The device is lost.
    DeviceFatal,
}

/// Who takes a device's events.
///
/// It is called with the fabric locked, from whatever thread runs the engine: it must not call
/// back into the fabric, nor hold a handle of it.
pub trait EventSink: Send {
    /// Takes one event.
    fn event(&mut self, event: Event);
}

impl<F: FnMut(Event) + Send> EventSink for F {
    fn event(&mut self, event: Event) {
        self(event);
    }
}
