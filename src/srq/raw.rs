//! Shared receive queues that a program drives itself.

use super::SharedReceiveQueue;
use crate::error::Error;
use crate::pools::RawRing;
use std::ptr::NonNull;
use std::sync::PoisonError;

/// A shared receive queue in memory: see [`SharedReceiveQueue::raw_parts`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RawSharedReceiveQueue {
    /// The requests, a power of two: the queue holds one less. Each starts with the number of the
    /// next.
    pub requests: RawRing,
    /// The doorbell record, whose first four bytes are the counter of posted requests.
    pub record: NonNull<u8>,
    /// The free request that the next post fills.
    pub head: u32,
    /// The last of the adjacent free requests that follow it.
    pub tail: u32,
    /// Number of the queue in the device.
    pub srqn: u32,
}

impl SharedReceiveQueue {
    /// Returns the parts of the queue in memory, for a program that posts to it itself
    /// (`mlx5dv_init_obj`). Such a program posts nothing here.
    ///
    /// The pointers are valid until the queue is destroyed. Code that writes through them must
    /// follow the device's rules for shared receive queues.
    pub fn raw_parts(&mut self) -> Result<RawSharedReceiveQueue, Error> {
        const VERB: &str = "init_obj";
        let inner = &self.inner;
        inner.context.check_process(VERB)?;
        let memory = inner.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((buffer, slot)) = &*memory else {
            return Err(Error::invalid(VERB, "the shared receive queue was destroyed".into()));
        };
        let layout = self.ring.layout();
        let (head, tail) = self.ring.free_run();
        Ok(RawSharedReceiveQueue {
            requests: RawRing {
                start: buffer.as_non_null(),
                entries: layout.requests,
                stride: layout.stride,
            },
            record: slot.record(),
            head,
            tail,
            srqn: inner.srqn,
        })
    }

    /// Makes polls report completions of requests without a record, with identifier 0: for a
    /// program that has the [parts](SharedReceiveQueue::raw_parts) and posts itself, but polls
    /// here. Otherwise such a completion is [corruption](crate::PollError::Corrupt).
    pub fn report_unrecorded(&mut self) {
        self.inner.records.lend();
    }
}
