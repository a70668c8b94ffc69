//! Posting receive requests, to either kind of queue.

use crate::gate::Gate;
use crate::receive::queue::ReceiveWr;
use crate::request::batch_error::ListError;
use crate::request::data::{write_sge, write_sges};
use crate::request::error::PostError;
use crate::request::sge::Sge;
use core::ptr::NonNull;
use mlx5_prm::wqe::{DataSegment, MAX_SGE_LENGTH, UNIT};

/// There is no room for a request.
pub(crate) const FULL: PostError = PostError::QueueFull { free: 0, needed: 1 };

/// A queue of receive requests. A single one with one buffer is posted by [`Post::recv`], which has
/// a fast path and a cold rest, and everything else by [`Post::post_all`].
pub(super) trait Post: Sized {
    /// Where in the ring the next request goes. The queue learns it when requests are published.
    type Place: Copy;

    fn gate(&self) -> &Gate;

    /// Returns the place after the last published request.
    fn place(&self) -> Self::Place;

    /// Writes a request with one buffer at a place, and returns the next one. `None`, and nothing
    /// is written, if the place is not known to be free, or the buffer is not [usual](is_usual).
    fn add_usual(&mut self, at: Self::Place, wr_id: u64, sge: &Sge) -> Option<Self::Place>;

    /// Writes any request at a place, which becomes the next one. If the request is refused, the
    /// place is still that after the last one that was written.
    fn add_any(&mut self, at: &mut Self::Place, wr_id: u64, sges: &[Sge]) -> Result<(), PostError>;

    /// Shows the requests before a place to the poller, then to the device.
    fn publish(&mut self, at: Self::Place);

    /// Posts a request with one buffer. Returns false, and does nothing, if it is refused or needs
    /// a further check.
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

    /// Posts requests, of which `parts` returns identifiers and buffers, up to the first bad one.
    /// Returns their number, or the index of the bad one and what is wrong with it.
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
            // A copy, so that the other one stays in registers.
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
/// say that the device holds them.
struct Added<'q, Q: Post> {
    queue: &'q mut Q,
    at: Q::Place,
    count: u32,
}

impl<Q: Post> Added<'_, Q> {
    /// Adds a request with one buffer, if there is nothing else to check. Returns whether it did.
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
pub(super) unsafe fn write_usual(at: NonNull<u8>, sge: &Sge, max_sge: u32) {
    // SAFETY: by the contract; the end mark takes the place of the second SGE.
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
/// As for [`write_usual`].
#[inline]
pub(crate) unsafe fn write_scatter(
    at: NonNull<u8>,
    sges: &[Sge],
    max_sge: u32,
) -> Result<(), PostError> {
    match sges {
        [sge] if is_usual(sge) => {
            // SAFETY: by the contract.
            unsafe { write_usual(at, sge, max_sge) };
            Ok(())
        }
        // SAFETY: by the contract.
        _ => unsafe { write_list(at, sges, max_sge) },
    }
}

/// # Safety
/// As for [`write_usual`].
#[inline(never)]
unsafe fn write_list(at: NonNull<u8>, sges: &[Sge], max_sge: u32) -> Result<(), PostError> {
    // SAFETY: by the contract. A scatter list may be longer than any message, so only the length of
    // each SGE is checked. If fewer than `max_sge` SGEs were written, there is room for one more.
    unsafe {
        let units = write_sges(at, sges, max_sge, None)?;
        if units < max_sge as usize {
            at.byte_add(units * UNIT).cast().write(DataSegment::END);
        }
    }
    Ok(())
}
