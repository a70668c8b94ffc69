//! Awaiting the events of a completion channel, with tokio.

use mlx5::{CompletionChannel, CqId};
use std::io;
use tokio::io::{Interest, unix::AsyncFd};

/// A completion channel in tokio's `AsyncFd`.
pub(crate) struct AsyncChannel(AsyncFd<CompletionChannel>);

impl AsyncChannel {
    /// Registers the channel's descriptor with the runtime of this task.
    pub(crate) fn new(channel: CompletionChannel) -> io::Result<Self> {
        #[expect(
            deprecated,
            reason = "`AsyncFd` has no other safe constructor. It is deprecated because a type's \
                      descriptor could change or be closed early; that of a channel does neither"
        )]
        Ok(Self(AsyncFd::with_interest(channel, Interest::READABLE)?))
    }

    /// Waits for the next event.
    pub(crate) async fn event(&self) -> io::Result<CqId> {
        loop {
            let mut ready = self.0.readable().await?;
            match self.0.get_ref().get_event()? {
                Some(queue) => return Ok(queue),
                None => ready.clear_ready(),
            }
        }
    }
}
