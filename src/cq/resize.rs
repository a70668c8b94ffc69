//! Resizing completion queues.

use super::builder::MAX_ENTRIES;
use super::{CompletionQueue, abi, entries_for};
use crate::error::{Error, ErrorKind};
use crate::pools::QueueBuffer;
use mlx5_cq::RingBuffer;
use mlx5_uapi::cmd::cq as command;

const VERB: &str = "resize_cq";

impl CompletionQueue {
    /// Resizes the queue to hold at least `entries` completions, more or fewer than before
    /// (`ibv_resize_cq`). Completions that were not polled are kept, in order. The device refuses a
    /// size that is too small for them. Other limits are those of [`Context::create_cq`].
    ///
    /// [`Context::create_cq`]: crate::Context::create_cq
    ///
    /// ```no_run
    /// # fn f(cq: &mut mlx5::CompletionQueue) -> Result<(), mlx5::Error> {
    /// cq.resize(4 * cq.capacity())?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn resize(&mut self, entries: u32) -> Result<(), Error> {
        let inner = &*self.inner;
        let context = &inner.context;
        context.check(VERB)?;
        let handle = inner.live(VERB)?;
        if inner.attention.is_handed_over() {
            return Err(Error::busy(VERB, "the queue's memory was handed over"));
        }
        let max = context.max_cqe().min(MAX_ENTRIES);
        let Some(wanted) = entries_for(entries, max) else {
            let what = format!("{entries} CQEs requested; the device supports 1 to {max}");
            return Err(Error::invalid(VERB, what));
        };
        if wanted == inner.state.size() {
            return Ok(());
        }
        let stride = inner.state.ring_buffer().stride;
        let log_size = wanted.trailing_zeros();
        let buffer = QueueBuffer::new(&context.buffers, stride << log_size, &inner.memory)?;
        let to = RingBuffer { start: buffer.as_non_null(), log_size, stride };
        // The firmware computes the unpolled CQEs from the doorbell record.
        self.ring.publish();
        // The queue may have been full at its other size: the next empty poll looks for an overrun.
        self.empty_at = self.ring.consumer().wrapping_sub(2 * MAX_ENTRIES);
        self.ring.look_after(1);
        // SAFETY: the buffer is new and has the given size.
        unsafe { to.clear_from(self.ring.consumer()) };
        let driver = abi::ResizeCq {
            buf_addr: buffer.addr(),
            cqe_size: stride as u16,
            ..abi::ResizeCq::default()
        };
        // From here on the device may write to the new buffer. No thread may look for the last
        // completion of a queue before all completions are in one buffer.
        let mut current = inner.buffer();
        let resized = context.run(VERB, |file| {
            // SAFETY: the buffer lives until the queue is destroyed or resized again, or longer.
            unsafe { command::resize(file, handle, wanted - 1, &driver) }
        });
        if let Err(error) = resized {
            // The resize CQE in the old buffer shows whether the device uses the new one.
            // SAFETY: the new buffer was cleared above; the lock keeps other threads from looking.
            if error.in_doubt() && unsafe { self.ring.moved_to(to) } {
                *current = Some(buffer);
                return Ok(());
            }
            if error.in_doubt() {
                buffer.keep();
            }
            return Err(error);
        }
        // SAFETY: the new buffer was cleared above; the lock keeps other threads from looking.
        match unsafe { self.ring.move_to(to) } {
            Ok(()) => {
                // The device no longer uses the old buffer, which is freed here.
                *current = Some(buffer);
                Ok(())
            }
            Err(corruption) => {
                buffer.keep();
                Err(Error::new(VERB, ErrorKind::Kernel, corruption.to_string()))
            }
        }
    }
}
