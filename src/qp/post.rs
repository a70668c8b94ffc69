//! Posting to a queue pair and to its halves.

use super::{QueuePair, QueuePairTransport, ReceiveHalf, SendHalf};
use mlx5_wqe::{
    Batch, BatchError, ListError, ListTransport, Position, PostError, ReceiveWr, SendWr, Sge,
};
use std::borrow::Borrow;

/// Why a queue pair that uses a shared receive queue takes no receive request.
pub(super) const NO_RECEIVES: ListError = ListError::new(0, PostError::Unsupported);

impl<T: QueuePairTransport> QueuePair<T> {
    /// Starts a batch of requests (`ibv_wr_start`). Nothing reaches the device before
    /// [`Batch::complete`]. Dropping the batch aborts it.
    ///
    /// ```no_run
    /// # use mlx5::{QueuePair, RemoteAddress, SendFlags, Sge, transport::Rc};
    /// # fn f(qp: &mut QueuePair<Rc>, to: RemoteAddress, sge: Sge) -> Result<(), mlx5::BatchError> {
    /// let mut batch = qp.wr_start();
    /// batch.wr(1, SendFlags::empty()).rdma_write(to).sge(sge);
    /// batch.wr(2, SendFlags::SIGNALED).send_imm(*b"done").inline_data(b"hello");
    /// batch.complete()
    /// # }
    /// ```
    ///
    /// A future that holds a batch across an `.await` can be sent to another thread, if it holds
    /// the queue pair by value or by `&mut`. [`QueuePair::post`] has no batch left when it returns.
    #[inline(always)]
    pub fn wr_start(&mut self) -> Batch<'_, T> {
        self.send.wr_start()
    }

    /// Starts to load the memory that the next post of send requests uses, without waiting. Changes
    /// nothing.
    ///
    /// For a program that posts on thousands of queue pairs and knows which one comes next: the
    /// memory that a post uses is then not in a cache. Call it some posts ahead.
    ///
    /// ```no_run
    /// # use mlx5::{BatchError, QueuePair, RemoteAddress, SendFlags, transport::Rc};
    /// # fn f(qps: &mut [QueuePair<Rc>], to: RemoteAddress) -> Result<(), BatchError> {
    /// for at in 0..qps.len() {
    ///     if let Some(later) = qps.get(at + 4) {
    ///         later.prefetch();
    ///     }
    ///     qps[at].post(|batch| {
    ///         batch.wr(0, SendFlags::SIGNALED).rdma_write(to).inline_data(b"hello");
    ///     })?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[inline(always)]
    pub fn prefetch(&self) {
        self.send.prefetch();
    }

    /// Posts the requests that `build` adds to a batch (`ibv_wr_start` to `ibv_wr_complete`): all
    /// of them, or nothing if a request was refused or `build` panics.
    ///
    /// ```no_run
    /// # use mlx5::{QueuePair, RemoteAddress, SendFlags, Sge, transport::Rc};
    /// # fn f(qp: &mut QueuePair<Rc>, to: RemoteAddress, sge: Sge) -> Result<(), mlx5::BatchError> {
    /// qp.post(|batch| {
    ///     batch.wr(1, SendFlags::empty()).rdma_write(to).sge(sge);
    ///     batch.wr(2, SendFlags::SIGNALED).send_imm(*b"done").inline_data(b"hello");
    /// })
    /// # }
    /// ```
    #[inline]
    pub fn post(&mut self, build: impl FnOnce(&mut Batch<'_, T>)) -> Result<(), BatchError> {
        self.send.post(build)
    }

    /// As [`QueuePair::post`], but `build` may fail. Its error is returned, and nothing is posted
    /// then. Returns what `build` returned, if the batch was posted.
    ///
    /// ```no_run
    /// # use mlx5::{MemoryRegion, QueuePair, RemoteAddress, SendFlags, transport::Rc};
    /// # use std::error::Error;
    /// # fn f(qp: &mut QueuePair<Rc>, to: RemoteAddress, memory: &MemoryRegion)
    /// #     -> Result<(), Box<dyn Error>> {
    /// // The range may lie outside the region.
    /// let handle = qp.try_post(|batch| {
    ///     let sge = memory.sge(0..64)?;
    ///     let handle = batch.handle();
    ///     batch.wr(1, SendFlags::SIGNALED).rdma_write(to).sge(sge);
    ///     Ok::<_, Box<dyn Error>>(handle)
    /// })?;
    /// # let _ = handle;
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn try_post<R, E: From<BatchError>>(
        &mut self,
        build: impl FnOnce(&mut Batch<'_, T>) -> Result<R, E>,
    ) -> Result<R, E> {
        self.send.try_post(build)
    }

    /// Posts a list of requests (`ibv_post_send`). Requests before the first bad one are posted,
    /// with one doorbell. The error has the index of the bad request and what is wrong with it.
    ///
    /// ```no_run
    /// # use mlx5::{Data, Operation, PostError, QueuePair, SendFlags, SendWr, Sge, transport::Rc};
    /// # fn f(qp: &mut QueuePair<Rc>, sges: &[Sge]) {
    /// let wr = SendWr { wr_id: 1, data: Data::Sges(sges), ..SendWr::default() };
    /// let last = SendWr { flags: SendFlags::SIGNALED, operation: Operation::SendImm(*b"last"), ..wr };
    /// match qp.post_send(&[wr, last]) {
    ///     Ok(()) => {}
    ///     Err(refused) if matches!(refused.error(), PostError::QueueFull { .. }) => {
    ///         println!("{} posted; the rest when something has completed", refused.index());
    ///     }
    ///     Err(refused) => println!("request {}: {}", refused.index(), refused.error()),
    /// }
    /// # }
    /// ```
    #[inline]
    pub fn post_send(&mut self, list: &[SendWr<'_>]) -> Result<(), ListError>
    where
        T: ListTransport,
    {
        self.send.post_send(list)
    }

    /// Posts the requests that an iterator yields, with one doorbell, and returns their number.
    /// Requests before the first bad one are posted, and nothing is taken from the iterator after
    /// it. The error has the index of the bad request and what is wrong with it. If the iterator
    /// panics, nothing is posted.
    ///
    /// The iterator yields requests or references to them. A program that has its requests in
    /// another form, as the linked list of `ibv_post_send`, posts them without a list in between.
    ///
    /// ```no_run
    /// # use mlx5::{Data, ListError, Operation, QueuePair, RemoteAddress, SendFlags, SendWr, Sge};
    /// # use mlx5::transport::Rc;
    /// struct Piece { local: Sge, to: RemoteAddress }
    ///
    /// # fn f(qp: &mut QueuePair<Rc>, pieces: &[Piece]) -> Result<(), ListError> {
    /// let posted = qp.post_send_iter(pieces.iter().zip(0..).map(|(piece, wr_id)| SendWr {
    ///     wr_id,
    ///     flags: SendFlags::SIGNALED,
    ///     operation: Operation::RdmaWrite(piece.to),
    ///     data: Data::Sges(std::slice::from_ref(&piece.local)),
    ///     ..SendWr::default()
    /// }))?;
    /// assert_eq!(posted, pieces.len());
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn post_send_iter<'a, W: Borrow<SendWr<'a>>>(
        &mut self,
        requests: impl IntoIterator<Item = W>,
    ) -> Result<usize, ListError>
    where
        T: ListTransport,
    {
        self.send.post_send_iter(requests)
    }

    /// Posts a list of receive requests (`ibv_post_recv`). Requests before the first bad one are
    /// posted. Refused if the queue pair uses a shared receive queue.
    #[inline(always)]
    pub fn post_recv(&mut self, list: &[ReceiveWr<'_>]) -> Result<(), ListError> {
        match &mut self.receive {
            Some(receive) => receive.post_recv(list),
            None if list.is_empty() => Ok(()),
            None => Err(NO_RECEIVES),
        }
    }

    /// Posts the receive requests that an iterator yields and returns their number. Requests before
    /// the first bad one are posted, also if the iterator panics; nothing is taken from it after a
    /// bad one. Refused if the queue pair uses a shared receive queue.
    ///
    /// ```no_run
    /// # use mlx5::{MemoryRegion, QueuePair, ReceiveWr, Sge, transport::Rc};
    /// # fn f(qp: &mut QueuePair<Rc>, buffers: &[Sge]) -> Result<(), mlx5::ListError> {
    /// qp.post_recv_iter(buffers.chunks(1).zip(0..).map(|(sges, wr_id)| ReceiveWr { wr_id, sges }))?;
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn post_recv_iter<'a, W: Borrow<ReceiveWr<'a>>>(
        &mut self,
        requests: impl IntoIterator<Item = W>,
    ) -> Result<usize, ListError> {
        match &mut self.receive {
            Some(receive) => receive.post_recv_iter(requests),
            None if requests.into_iter().next().is_none() => Ok(0),
            None => Err(NO_RECEIVES),
        }
    }

    /// Posts one receive request with one buffer. Refused if the queue pair uses a shared receive
    /// queue.
    ///
    /// [`Sge::default()`] stands for no buffer: for a message without data, and for an RDMA write
    /// with immediate data, which takes a receive request but puts its data elsewhere.
    ///
    /// ```no_run
    /// # use mlx5::{MemoryRegion, QueuePair, Sge, transport::Rc};
    /// # fn f(qp: &mut QueuePair<Rc>, memory: &MemoryRegion) -> Result<(), Box<dyn std::error::Error>> {
    /// qp.recv(7, memory.sge(0..4096)?)?;
    /// qp.recv(8, Sge::default())?;
    /// # Ok(())
    /// # }
    /// ```
    #[inline(always)]
    pub fn recv(&mut self, wr_id: u64, sge: Sge) -> Result<(), PostError> {
        match &mut self.receive {
            Some(receive) => receive.recv(wr_id, sge),
            None => Err(PostError::Unsupported),
        }
    }

    /// Posts one receive request for each identifier and buffer that an iterator yields, with one
    /// doorbell, and returns their number. Requests before the first bad one are posted, also if
    /// the iterator panics; nothing is taken from it after a bad one. Refused if the queue pair
    /// uses a shared receive queue.
    ///
    /// ```no_run
    /// # use mlx5::{MemoryRegion, QueuePair, transport::Rc};
    /// # fn f(qp: &mut QueuePair<Rc>, memory: &MemoryRegion) -> Result<(), Box<dyn std::error::Error>> {
    /// let buffers = (0..32).map(|n| memory.sge(n * 2048..(n + 1) * 2048));
    /// let buffers = buffers.collect::<Result<Vec<_>, _>>()?;
    /// qp.recv_each((0..).zip(buffers))?;
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn recv_each(
        &mut self,
        requests: impl IntoIterator<Item = (u64, Sge)>,
    ) -> Result<usize, ListError> {
        match &mut self.receive {
            Some(receive) => receive.recv_each(requests),
            None if requests.into_iter().next().is_none() => Ok(0),
            None => Err(ListError::new(0, PostError::Unsupported)),
        }
    }

    /// Returns the number of free 64-byte blocks of the send queue.
    pub fn free_send_blocks(&self) -> u32 {
        self.send.free_blocks()
    }

    /// Returns how many receive requests can be posted now.
    pub fn free_receives(&self) -> u32 {
        self.receive.as_ref().map_or(0, ReceiveHalf::free)
    }
}

impl<T: QueuePairTransport> SendHalf<T> {
    /// Starts a batch of requests (`ibv_wr_start`). Nothing reaches the device before
    /// [`Batch::complete`]. Dropping the batch aborts it.
    #[inline(always)]
    pub fn wr_start(&mut self) -> Batch<'_, T> {
        self.queue.wr_start()
    }

    /// Starts to load the memory that the next post uses. See [`QueuePair::prefetch`].
    #[inline(always)]
    pub fn prefetch(&self) {
        self.queue.prefetch();
    }

    /// Posts the requests that `build` adds to a batch. See [`QueuePair::post`].
    #[inline]
    pub fn post(&mut self, build: impl FnOnce(&mut Batch<'_, T>)) -> Result<(), BatchError> {
        let mut batch = self.wr_start();
        build(&mut batch);
        batch.complete()
    }

    /// As [`SendHalf::post`], but `build` may fail. See [`QueuePair::try_post`].
    #[inline]
    pub fn try_post<R, E: From<BatchError>>(
        &mut self,
        build: impl FnOnce(&mut Batch<'_, T>) -> Result<R, E>,
    ) -> Result<R, E> {
        let mut batch = self.wr_start();
        let built = build(&mut batch)?;
        batch.complete()?;
        Ok(built)
    }

    /// Posts a list of requests (`ibv_post_send`). Requests before the first bad one are posted.
    #[inline]
    pub fn post_send(&mut self, list: &[SendWr<'_>]) -> Result<(), ListError>
    where
        T: ListTransport,
    {
        self.queue.post_send(list)
    }

    /// Posts the requests that `requests` yields. See [`QueuePair::post_send_iter`].
    #[inline]
    pub fn post_send_iter<'a, W: Borrow<SendWr<'a>>>(
        &mut self,
        requests: impl IntoIterator<Item = W>,
    ) -> Result<usize, ListError>
    where
        T: ListTransport,
    {
        self.queue.post_send_iter(requests)
    }

    /// Goes on with a batch that was [paused](Batch::pause) at `at`.
    ///
    /// # Safety
    /// The batch is of this value. Since it was paused, nothing but reading used the value.
    #[inline(always)]
    pub unsafe fn resume(&mut self, at: Position) -> Batch<'_, T> {
        // SAFETY: the caller promises that the batch is of this queue, which was only read since
        // the pause.
        unsafe { self.queue.resume(at) }
    }

    /// Returns the number of free 64-byte blocks.
    pub fn free_blocks(&self) -> u32 {
        self.queue.free_blocks()
    }

    /// Number of the queue pair.
    pub fn qp_num(&self) -> u32 {
        self.inner.qp_num
    }
}

impl ReceiveHalf {
    /// Posts a list of receive requests (`ibv_post_recv`). Requests before the first bad one are
    /// posted.
    #[inline(always)]
    pub fn post_recv(&mut self, list: &[ReceiveWr<'_>]) -> Result<(), ListError> {
        self.queue.post_recv(list)
    }

    /// Posts the receive requests that `requests` yields. See [`QueuePair::post_recv_iter`].
    #[inline]
    pub fn post_recv_iter<'a, W: Borrow<ReceiveWr<'a>>>(
        &mut self,
        requests: impl IntoIterator<Item = W>,
    ) -> Result<usize, ListError> {
        self.queue.post_recv_iter(requests)
    }

    /// Posts one receive request for each identifier and buffer. See [`QueuePair::recv_each`].
    #[inline]
    pub fn recv_each(
        &mut self,
        requests: impl IntoIterator<Item = (u64, Sge)>,
    ) -> Result<usize, ListError> {
        self.queue.recv_each(requests)
    }

    /// Posts one receive request with one buffer. See [`QueuePair::recv`].
    #[inline(always)]
    pub fn recv(&mut self, wr_id: u64, sge: Sge) -> Result<(), PostError> {
        self.queue.recv(wr_id, sge)
    }

    /// Returns how many requests can be posted now.
    pub fn free(&self) -> u32 {
        self.queue.free()
    }

    /// Number of the queue pair.
    pub fn qp_num(&self) -> u32 {
        self.inner.qp_num
    }
}
