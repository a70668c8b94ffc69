//! Batches of a queue of any transport.

use crate::request::batch_error::BatchError;
use crate::request::transport::{RawPacket, Rc, Uc, Ud, XrcSend};
use crate::send::batch::Batch;
use crate::send::cancel::RequestHandle;
use crate::send::list::{ListTransport, SendWr};
use crate::send::queue::{Position, SendQueue};

/// The transports, a variant each.
macro_rules! any_batch {
    ($($transport:ident),+) => {
        /// A [`Batch`] of a queue pair of any transport.
        #[derive(Debug)]
        #[must_use = "a batch that is dropped posts nothing"]
        pub enum AnyBatch<'q> {
            $(
                #[doc = concat!("Of transport [`", stringify!($transport), "`].")]
                $transport(Batch<'q, $transport>),
            )+
        }

        $(impl<'q> From<Batch<'q, $transport>> for AnyBatch<'q> {
            #[inline]
            fn from(batch: Batch<'q, $transport>) -> Self {
                Self::$transport(batch)
            }
        })+
    };
}

any_batch!(Rc, Uc, Ud, XrcSend, RawPacket);

/// Evaluates `$body` with the batch inside `$any`.
macro_rules! of_any {
    ($any:expr, $batch:ident => $body:expr) => {
        match $any {
            AnyBatch::Rc($batch) => $body,
            AnyBatch::Uc($batch) => $body,
            AnyBatch::Ud($batch) => $body,
            AnyBatch::XrcSend($batch) => $body,
            AnyBatch::RawPacket($batch) => $body,
        }
    };
}

impl AnyBatch<'_> {
    /// See [`Batch::push`]. A reliable connection takes one comparison more than [`Batch::push`].
    #[inline(always)]
    pub fn push(&mut self, wr: &SendWr<'_>) {
        match self {
            Self::Rc(batch) => batch.push(wr),
            Self::Uc(batch) => batch.at = push(batch.queue, batch.at, wr),
            Self::Ud(batch) => batch.at = push(batch.queue, batch.at, wr),
            Self::XrcSend(batch) => batch.at = push(batch.queue, batch.at, wr),
            Self::RawPacket(batch) => batch.at = push(batch.queue, batch.at, wr),
        }
    }

    /// See [`Batch::handle`].
    pub fn handle(&mut self) -> RequestHandle {
        of_any!(self, batch => batch.handle())
    }

    /// See [`Batch::len`].
    pub fn len(&self) -> usize {
        of_any!(self, batch => batch.len())
    }

    /// See [`Batch::is_empty`].
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// See [`Batch::complete`].
    #[inline(always)]
    pub fn complete(self) -> Result<(), BatchError> {
        of_any!(self, batch => batch.complete())
    }

    /// See [`Batch::abort`].
    pub fn abort(self) {
        drop(self);
    }
}

/// [`Batch::push`], out of line: inlined for each transport it would fill a page.
#[inline(never)]
fn push<T: ListTransport>(queue: &mut SendQueue<T>, at: Position, wr: &SendWr<'_>) -> Position {
    let mut batch = Batch { queue, at };
    batch.push(wr);
    batch.pause()
}
