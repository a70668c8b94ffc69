//! A send queue of eight blocks in ordinary memory, for tests that look at its fields.

use super::layout::SendLayout;
use super::queue::{SendParts, SendQueue};
use super::records::SendRecords;
use crate::{Gate, QueueState, Rc};
use alloc::boxed::Box;
use core::ptr::NonNull;
use mlx5_doorbell::{QueuePairRecord, SendRegister};

/// The blocks of the ring. Each request takes one.
pub(crate) const BLOCKS: u32 = 8;

#[repr(C, align(64))]
struct Memory {
    ring: [u8; 64 * BLOCKS as usize],
    register: [u8; 512],
    /// The doorbell record, and 64 bytes after it the gate.
    words: [u8; 128],
}

/// The memory of a queue. Nothing reads what is posted.
pub(crate) struct Bed {
    memory: NonNull<Memory>,
    records: NonNull<SendRecords>,
}

impl Bed {
    pub(crate) fn new() -> Self {
        let memory =
            Memory { ring: [0; 64 * BLOCKS as usize], register: [0; 512], words: [0; 128] };
        Self {
            memory: NonNull::from(Box::leak(Box::new(memory))),
            records: NonNull::from(Box::leak(Box::new(SendRecords::new(BLOCKS)))),
        }
    }

    pub(crate) fn records(&self) -> &SendRecords {
        // SAFETY: it lives as long as `self`, and only shared references to it are made.
        unsafe { self.records.as_ref() }
    }

    pub(crate) fn ring(&self) -> NonNull<u8> {
        self.memory.cast()
    }

    /// The doorbell record.
    pub(crate) fn words(&self) -> NonNull<u8> {
        // SAFETY: a field of the allocation.
        unsafe { self.memory.byte_add(core::mem::offset_of!(Memory, words)).cast() }
    }

    /// Makes a queue in state RTS, all of whose requests are signaled.
    ///
    /// # Safety
    ///
    /// It is not used after `self` was dropped, and there is one at a time.
    pub(crate) unsafe fn queue(&self) -> SendQueue<Rc> {
        let layout = SendLayout::new::<Rc>(BLOCKS, 1, 0).unwrap();
        assert_eq!((layout.blocks, layout.max_request_blocks), (BLOCKS, 1));
        // SAFETY: each pointer is to its own part of the memory, which is aligned to 64 and
        // outlives the queue, as the caller promises.
        unsafe {
            let gate = Gate::new(self.words().byte_add(64).cast());
            gate.set_state(QueueState::ReadyToSend);
            let register = self.memory.byte_add(core::mem::offset_of!(Memory, register));
            SendQueue::new(SendParts {
                ring: self.ring(),
                layout,
                qpn: 1,
                max_message: 1 << 30,
                signal_all: true,
                atomics: true,
                gate,
                record: QueuePairRecord::new(self.words()),
                register: SendRegister::doorbell(register.cast()),
                records: self.records,
            })
        }
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        // SAFETY: both came from boxes, and no queue is used any more.
        unsafe {
            drop(Box::from_raw(self.memory.as_ptr()));
            drop(Box::from_raw(self.records.as_ptr()));
        }
    }
}
