//! The driver's records of queue pairs: their transitions, and the targets of extended connections,
//! which have several handles.

use std::sync::{Arc, Mutex};

use mlx5_uapi::verbs::{AccessFlags, QpState};

/// The record of a queue pair's transitions.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) state: QpState,
    pub(crate) port: u8,
    /// Reads and atomics that the peer may have outstanding, and its rights.
    pub(crate) responder_depth: u8,
    pub(crate) access: AccessFlags,
    pub(crate) remote_qpn: u32,
}

impl Default for Known {
    fn default() -> Self {
        Self {
            state: QpState::Reset,
            port: 0,
            responder_depth: 0,
            access: AccessFlags::empty(),
            remote_qpn: 0,
        }
    }
}

/// A target of extended connections. Every program that has its domain can open it (OPEN_QP).
#[derive(Debug)]
pub(crate) struct Target {
    /// The device's number of its domain.
    pub(crate) xrcd: u32,
    /// The number of its handles.
    pub(crate) users: u32,
    pub(crate) known: Arc<Mutex<Known>>,
}
