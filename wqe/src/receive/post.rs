//! Posting receive requests, to either kind of queue.

use crate::gate::Gate;
use crate::request::batch_error::ListError;
use crate::request::data::{write_sge, write_sges};
use crate::request::error::PostError;
use crate::request::sge::Sge;
use core::ptr::NonNull;
use mlx5_prm::wqe::{DataSegment, MAX_SGE_LENGTH, UNIT};

/// A receive request (`struct ibv_recv_wr`).
#[derive(Clone, Copy, Debug)]
pub struct ReceiveWr<'a> {
    /// Returned with the completion.
    pub wr_id: u64,
    /// The buffers for the message, filled in order. May be empty, for a message without data or an
    /// RDMA write with immediate data.
    pub sges: &'a [Sge],
}

/// There is no room for a request.
pub(crate) const FULL: PostError = PostError::QueueFull { free: 0, needed: 1 };

/// A queue of receive requests. [`Post::recv`] posts a single request with one buffer, by a fast
/// path with an out-of-line slow path; [`Post::post_all`] posts everything else.
pub(super) trait Post: Sized {
    /// A place in the ring, to which the next request goes. `publish` passes it to the queue.
    type Place: Copy;

    fn gate(&self) -> &Gate;

    /// Returns the place after the last published request.
    fn place(&self) -> Self::Place;

    /// Writes a request with one buffer at a place, and returns the next place. If the place is not
    /// known to be free, or the buffer is not [usual](is_usual), writes nothing and returns `None`.
    fn add_usual(&mut self, at: Self::Place, wr_id: u64, sge: &Sge) -> Option<Self::Place>;

    /// Writes any request at `at`, and advances `at` to the next place. If the request is refused,
    /// `at` is still the place after the last request that was written.
    fn add_any(&mut self, at: &mut Self::Place, wr_id: u64, sges: &[Sge]) -> Result<(), PostError>;

    /// Publishes the requests before a place to the poller, then to the device.
    fn publish(&mut self, at: Self::Place);

    /// Posts a request with one buffer. If it is refused or needs a further check, does nothing and
    /// returns false.
    #[inline(always)]
    fn recv_usual(&mut self, wr_id: u64, sge: &Sge) -> bool {
        if self.gate().may_receive()
            && let Some(next) = self.add_usual(self.place(), wr_id, sge)
        {
            self.publish(next);
            return true;
        }
        false
    }

    /// Posts a request with one buffer.
    #[inline]
    fn recv(&mut self, wr_id: u64, sge: Sge) -> Result<(), PostError> {
        if self.recv_usual(wr_id, &sge) { Ok(()) } else { self.recv_rest(wr_id, sge) }
    }

    #[cold]
    #[inline(never)]
    fn recv_rest(&mut self, wr_id: u64, sge: Sge) -> Result<(), PostError> {
        if !self.gate().may_receive() {
            return Err(self.gate().refusal().into());
        }
        let mut at = self.place();
        self.add_any(&mut at, wr_id, &[sge])?;
        self.publish(at);
        Ok(())
    }

    /// Posts a list.
    #[inline]
    fn post_list(&mut self, list: &[ReceiveWr<'_>]) -> Result<(), ListError> {
        match list {
            [ReceiveWr { wr_id, sges: [sge] }] if self.recv_usual(*wr_id, sge) => Ok(()),
            _ => self.post_list_rest(list),
        }
    }

    #[inline(never)]
    fn post_list_rest(&mut self, list: &[ReceiveWr<'_>]) -> Result<(), ListError> {
        self.post_all(list, |wr| (wr.wr_id, wr.sges)).map(drop)
    }

    /// Posts requests up to the first bad one; `parts` returns the identifier and the buffers of
    /// each. Returns the number of requests, or the index of the bad one and its error.
    #[inline(always)]
    fn post_all<W>(
        &mut self,
        requests: impl IntoIterator<Item = W>,
        parts: impl Fn(&W) -> (u64, &[Sge]),
    ) -> Result<usize, ListError> {
        if !self.gate().may_receive() {
            return Err(ListError::new(0, self.gate().refusal().into()));
        }
        let mut requests = requests.into_iter();
        let mut added = Added { at: self.place(), queue: self, count: 0 };
        while let Some(request) = requests.find(|request| !added.add_usual(parts(request))) {
            // `add_any` gets the address of a copy, so that `added.at` can stay in registers.
            let ((wr_id, sges), mut at) = (parts(&request), added.at);
            let result = added.queue.add_any(&mut at, wr_id, sges);
            added.at = at;
            if let Err(error) = result {
                return Err(ListError::new(added.count, error));
            }
            added.count += 1;
        }
        Ok(added.count as usize)
    }
}

/// Requests that were written. Dropping it publishes them, also if an iterator panics: the records
/// of a shared queue already say that the device holds them.
struct Added<'q, Q: Post> {
    queue: &'q mut Q,
    at: Q::Place,
    count: u32,
}

impl<Q: Post> Added<'_, Q> {
    /// Adds a request with one buffer, if it needs no further check. Returns whether it was added.
    #[inline]
    fn add_usual(&mut self, (wr_id, sges): (u64, &[Sge])) -> bool {
        let [sge] = sges else { return false };
        let Some(next) = self.queue.add_usual(self.at, wr_id, sge) else { return false };
        (self.at, self.count) = (next, self.count + 1);
        true
    }
}

impl<Q: Post> Drop for Added<'_, Q> {
    #[inline]
    fn drop(&mut self) {
        if self.count != 0 {
            self.queue.publish(self.at);
        }
    }
}

/// Whether a single SGE needs no further check: it is neither empty nor too long.
#[inline]
pub(super) fn is_usual(sge: &Sge) -> bool {
    sge.length.wrapping_sub(1) < MAX_SGE_LENGTH
}

/// Writes a scatter list of one usual SGE, with an end mark if it is shorter than the WQE.
///
/// # Safety
/// `at` has room for `max_sge` SGEs, at least one.
#[inline(always)]
pub(super) unsafe fn write_fast(at: NonNull<u8>, sge: &Sge, max_sge: u32) {
    // SAFETY: the caller promises room for `max_sge` SGEs, at least one. The end mark takes the
    // place of the second SGE, if there is room for one.
    unsafe {
        if max_sge > 1 {
            at.byte_add(UNIT).cast().write(DataSegment::END);
        }
        write_sge(at, *sge);
    }
}

/// Checks and writes any scatter list, with an end mark if it is shorter than the WQE.
///
/// # Safety
/// As for [`write_fast`].
#[inline]
pub(crate) unsafe fn write_scatter(
    at: NonNull<u8>,
    sges: &[Sge],
    max_sge: u32,
) -> Result<(), PostError> {
    match sges {
        [sge] if is_usual(sge) => {
            // SAFETY: the caller promises room for `max_sge` SGEs, at least one.
            unsafe { write_fast(at, sge, max_sge) };
            Ok(())
        }
        // SAFETY: the caller promises room for `max_sge` SGEs, at least one.
        _ => unsafe { write_list(at, sges, max_sge) },
    }
}

/// # Safety
/// As for [`write_fast`].
#[inline(never)]
unsafe fn write_list(at: NonNull<u8>, sges: &[Sge], max_sge: u32) -> Result<(), PostError> {
    // A scatter list may be longer than any message, so only the length of each SGE is checked.
    // SAFETY: the caller promises room for `max_sge` SGEs. If fewer were written, there is room for
    // the end mark.
    unsafe {
        let units = write_sges(at, sges, max_sge, None)?;
        if units < max_sge as usize {
            at.byte_add(units * UNIT).cast().write(DataSegment::END);
        }
    }
    Ok(())
}
