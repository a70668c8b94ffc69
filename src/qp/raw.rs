//! Queue pairs that a program drives itself.

use super::objects::PacketObjects;
use super::{ControlHalf, QueuePair, QueuePairTransport};
use crate::error::Error;
use crate::pools::{RawRegister, RawRing};
use mlx5_prm::wqe::BLOCK;
use std::ptr::NonNull;
use std::sync::{PoisonError, atomic::Ordering::Relaxed};

/// A queue pair in memory: see [`QueuePair::raw_parts`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RawQueuePair {
    /// The send queue, in basic blocks.
    pub send: RawRing,
    /// The receive queue. It has no entries if the queue pair has none of its own.
    pub receive: RawRing,
    /// The doorbell record: the receive counter and the send counter, four bytes each.
    pub record: NonNull<u8>,
    /// The doorbell register of the send queue.
    pub register: RawRegister,
    /// Numbers of the device's objects of a raw packet queue pair.
    pub packet: PacketObjects,
}

impl ControlHalf {
    /// Returns the parts of the queue pair in memory. See [`QueuePair::raw_parts`].
    pub fn raw_parts(&self) -> Result<RawQueuePair, Error> {
        const VERB: &str = "init_obj";
        let inner = &self.inner;
        inner.context.check_process(VERB)?;
        let memory = inner.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((buffer, slot, uar)) = &*memory else {
            return Err(Error::invalid(VERB, "the queue pair was destroyed".into()));
        };
        inner.has_other_writer.store(true, Relaxed);
        let layout = inner.receive_layout;
        // SAFETY: the buffer holds both rings, the send ring from this offset on.
        let send = unsafe { buffer.as_non_null().byte_add(inner.send_offset) };
        let (entries, stride) = (inner.caps.send_blocks, BLOCK as u32);
        Ok(RawQueuePair {
            send: RawRing { start: send, entries, stride },
            receive: RawRing {
                start: buffer.as_non_null(),
                entries: layout.requests,
                stride: layout.stride,
            },
            record: slot.record(),
            register: uar.raw(),
            packet: inner.packet,
        })
    }

    /// Makes polls report completions of requests without a record, with identifier 0: for a
    /// program that has the [parts](QueuePair::raw_parts) and posts itself, but polls here.
    /// Otherwise such a completion is [corruption](crate::PollError::Corrupt).
    pub fn report_unrecorded(&mut self) {
        self.inner.index.records().lent.store(true, Relaxed);
    }
}

impl<T: QueuePairTransport> QueuePair<T> {
    /// Returns the parts of the queue pair in memory, for a program that posts to it itself
    /// (`mlx5dv_init_obj`). Such a program posts nothing here, and also polls the completion queue
    /// itself: see [`CompletionQueue::hand_over`](crate::CompletionQueue::hand_over). State changes
    /// still go through this crate. When the queue pair leaves RESET after a reset, its doorbell
    /// record is zero.
    ///
    /// The pointers are valid until the queue pair is destroyed. Code that writes through them must
    /// follow the device's rules for queue pairs.
    pub fn raw_parts(&self) -> Result<RawQueuePair, Error> {
        self.control.raw_parts()
    }
}
