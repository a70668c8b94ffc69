//! The typed builder (`ibv_wr_*`): a batch of requests, each finished by its data setter.

use crate::build::{Cursor, Parts};
use crate::cancel::RequestHandle;
use crate::data::{Inline as InlineBytes, InlineList};
use crate::error::{BatchError, PostError};
use crate::operation::{self, Inline, SendFlags, SendOperation, Supports};
use crate::segment::Datagram;
use crate::send::SendQueue;
use crate::sge::{RemoteAddress, Sge};
use crate::transport::Transport;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;
use mlx5_prm::U32;
use mlx5_prm::wqe::AddressVector;

/// A batch of requests under construction. It is posted whole by [`Batch::complete`], or, when one
/// of its requests was refused or when it is dropped, not at all.
#[must_use = "a batch that is dropped posts nothing"]
pub struct Batch<'q, T: Transport> {
    queue: &'q mut SendQueue<T>,
    /// Whether posting is allowed.
    open: bool,
    /// Where the queue stands.
    start: Cursor,
    /// How far the batch has come.
    cursor: Cursor,
    /// Requests that were added to it, refused ones too. Of a batch of one, the compiler knows that.
    added: u32,
    /// Where the last of them stands, if it was built there without a closer look.
    last: Option<NonNull<u8>>,
}

impl<'q, T: Transport> Batch<'q, T> {
    #[inline(always)]
    pub(crate) fn new(queue: &'q mut SendQueue<T>) -> Self {
        let (start, open) = (queue.here(), queue.gate.may_send());
        Self { queue, open, start, cursor: start, added: 0, last: None }
    }

    /// Starts a request; what it does is said next.
    #[inline(always)]
    pub fn wr(&mut self, wr_id: u64, flags: SendFlags) -> Wr<'_, 'q, T> {
        Wr { batch: self, wr_id, flags }
    }

    /// How many requests the batch holds.
    pub fn len(&self) -> usize {
        self.cursor.since(self.start).1.saturating_sub(self.queue.more_wqes) as usize
    }

    /// Names the request that is added next, if it is posted: it can be cancelled by that.
    pub fn handle(&self) -> RequestHandle {
        RequestHandle { sequence: self.cursor.sequence, life: self.queue.life }
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Posts the batch (`ibv_wr_complete`): all of it, or, if a request was refused, nothing.
    #[inline(always)]
    pub fn complete(self) -> Result<(), BatchError> {
        let single = if self.added == 1 { self.last } else { None };
        let (queue, start, cursor) = self.into_parts();
        queue.complete(start, cursor, single)
    }

    /// Discards the batch (`ibv_wr_abort`), as dropping it does.
    pub fn abort(self) {
        drop(self);
    }

    /// Takes the batch apart, so that it is not dropped.
    #[inline(always)]
    fn into_parts(self) -> (&'q mut SendQueue<T>, Cursor, Cursor) {
        let this = ManuallyDrop::new(self);
        // SAFETY: read once; what it is read from is never used again.
        (unsafe { core::ptr::read(&this.queue) }, this.start, this.cursor)
    }

    /// The first error, if there is one.
    #[inline(always)]
    pub(crate) fn error(&self) -> Option<BatchError> {
        self.queue.error()
    }

    /// Posts what was built before the first error.
    pub(crate) fn complete_good(self) -> Result<(), BatchError> {
        let (queue, _, cursor) = self.into_parts();
        queue.complete_good(cursor)
    }

    /// Adds a request that is built by `push`, which never happens in a place without a closer look.
    pub(crate) fn push_aside(&mut self, push: impl FnOnce(&mut SendQueue<T>, Cursor) -> Cursor) {
        self.added = self.added.wrapping_add(1);
        self.cursor = push(self.queue, self.cursor);
        self.last = None;
    }

    /// Refuses the request that is under construction, and so the batch.
    pub(crate) fn refuse(&mut self, error: PostError) {
        self.queue.refuse(self.cursor, error);
    }
}

impl<T: Transport> Drop for Batch<'_, T> {
    fn drop(&mut self) {
        self.queue.abort();
    }
}

/// A request that has its identifier and flags; an operation comes next.
#[must_use = "a request is part of the batch once its data is set"]
pub struct Wr<'b, 'q, T: Transport> {
    pub(crate) batch: &'b mut Batch<'q, T>,
    pub(crate) wr_id: u64,
    pub(crate) flags: SendFlags,
}

/// One operation a line: its name, what it is given, its remote side, its immediate data.
macro_rules! builders {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $ty:ty),*) = $operation:ident, $remote:expr, $immediate:expr;)*) => {
        impl<'b, 'q, T: Transport> Wr<'b, 'q, T> {
            $(
                $(#[$doc])*
                #[inline(always)]
                pub fn $name(
                    self,
                    $($arg: $ty),*
                ) -> Request<'b, 'q, T, operation::$operation, T::Start>
                where
                    T: Supports<operation::$operation>,
                {
                    let Self { batch, wr_id, flags } = self;
                    let immediate = U32::from_bytes($immediate);
                    Request { batch, wr_id, flags, immediate, remote: $remote, state: PhantomData }
                }
            )*
        }
    };
}

builders! {
    /// Send (`ibv_wr_send`).
    send() = Send, (), [0; 4];
    /// Send with immediate data (`ibv_wr_send_imm`); the receiver gets the same four bytes.
    send_imm(immediate: [u8; 4]) = SendImm, (), immediate;
    /// RDMA write (`ibv_wr_rdma_write`).
    rdma_write(remote: RemoteAddress) = RdmaWrite, remote, [0; 4];
    /// RDMA write with immediate data (`ibv_wr_rdma_write_imm`).
    rdma_write_imm(remote: RemoteAddress, immediate: [u8; 4]) = RdmaWriteImm, remote, immediate;
    /// RDMA read (`ibv_wr_rdma_read`).
    rdma_read(remote: RemoteAddress) = RdmaRead, remote, [0; 4];
}

/// State of a request that is to be given the receiver's address.
pub enum NeedsAddress {}

/// State of a request that is to be given its data. `A` is the receiver's address, where the
/// transport needs one.
pub struct NeedsData<A = ()>(PhantomData<A>);

/// A request that has its operation.
#[must_use = "a request is part of the batch once its data is set"]
pub struct Request<'b, 'q, T: Transport, O: SendOperation, S> {
    batch: &'b mut Batch<'q, T>,
    wr_id: u64,
    flags: SendFlags,
    immediate: U32,
    remote: O::Remote,
    state: PhantomData<S>,
}

impl<'b, 'q, T: Transport, O: SendOperation> Request<'b, 'q, T, O, NeedsAddress> {
    /// Says who is to receive it (`ibv_wr_set_ud_addr`).
    #[inline(always)]
    pub fn ud_addr<'a>(
        self,
        to: &'a AddressVector,
        qp_num: u32,
        qkey: u32,
    ) -> Addressed<'b, 'q, 'a, T, O> {
        Addressed { request: self, address: Datagram { vector: to, qp_num, qkey } }
    }
}

/// A request that has its operation and its receiver.
#[must_use = "a request is part of the batch once its data is set"]
pub struct Addressed<'b, 'q, 'a, T: Transport, O: SendOperation> {
    request: Request<'b, 'q, T, O, NeedsAddress>,
    address: Datagram<'a>,
}

/// The setters of data, which finish a request; the same for requests with and without an address.
macro_rules! data_setters {
    (($($generics:tt)*) $type:ty, |$this:ident| $request:expr, $address:expr) => {
        impl<$($generics)*> $type {
            #[inline(always)]
            fn finish(self, data: impl crate::data::Data) {
                let $this = self;
                let address = $address;
                let Request { batch, wr_id, flags, immediate, remote, .. } = $request;
                let parts = Parts { wr_id, flags, immediate, address, remote };
                batch.added = batch.added.wrapping_add(1);
                (batch.cursor, batch.last) = batch.queue.push::<O, _, _>(batch.cursor, batch.open, parts, data);
            }

            /// The data is one piece of local memory (`ibv_wr_set_sge`).
            #[inline(always)]
            pub fn sge(self, sge: Sge) {
                self.finish(sge);
            }

            /// The data is a list of pieces of local memory, one after the other
            /// (`ibv_wr_set_sge_list`). An empty list sends nothing but the message.
            #[inline]
            pub fn sge_list(self, sges: &[Sge]) {
                self.finish(sges);
            }

            /// The data is copied into the request (`ibv_wr_set_inline_data`); its memory needs no
            /// registration and is free again when this returns.
            #[inline(always)]
            pub fn inline_data(self, bytes: &[u8])
            where
                O: Inline,
            {
                self.finish(InlineBytes(bytes));
            }

            /// The data is copied into the request from several places, one after the other
            /// (`ibv_wr_set_inline_data_list`).
            #[inline]
            pub fn inline_data_list(self, pieces: &[&[u8]])
            where
                O: Inline,
            {
                self.finish(InlineList(pieces));
            }
        }
    };
}

data_setters!(
    (T: Transport, O: SendOperation) Request<'_, '_, T, O, NeedsData>,
    |this| this, ()
);
data_setters!(
    (T: Transport, O: SendOperation) Addressed<'_, '_, '_, T, O>,
    |this| this.request, this.address
);
