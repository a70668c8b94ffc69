//! C's lists of requests, and their common parts.

use crate::abi::*;
use mlx5::{ListError, PostError, ReceiveWr, Sge};

/// C's list of SGEs: the same structure. A negative count is treated as zero.
///
/// # Safety
/// As for [`entries`].
#[inline(always)]
pub(crate) unsafe fn sges<'a>(list: *const ibv_sge, count: c_int) -> &'a [Sge] {
    // SAFETY: the caller promises that `list` has `count` entries.
    unsafe { entries(list, usize::try_from(count).unwrap_or(0)) }
}

/// C's list of SGEs: the same structure.
///
/// # Safety
/// `list` has `count` entries.
#[inline(always)]
pub(crate) unsafe fn entries<'a>(list: *const ibv_sge, count: usize) -> &'a [Sge] {
    const { assert!(size_of::<ibv_sge>() == size_of::<Sge>()) };
    if count == 0 {
        return &[];
    }
    // SAFETY: the caller promises that `list` has `count` entries; both structures have the same
    // fields at the same offsets.
    unsafe { std::slice::from_raw_parts(list.cast(), count) }
}

/// C's number for a refused receive request.
pub(crate) fn receive_errno(error: PostError) -> c_int {
    match error {
        PostError::QueueFull { .. } | PostError::TagListFull { .. } => libc::ENOMEM,
        PostError::DeviceGone => libc::EIO,
        _ => libc::EINVAL,
    }
}

/// A request that names the next one of its list.
pub(crate) trait Linked {
    fn next(&self) -> *mut Self;
}

impl Linked for ibv_send_wr {
    #[inline(always)]
    fn next(&self) -> *mut Self {
        self.next
    }
}

impl Linked for ibv_recv_wr {
    #[inline(always)]
    fn next(&self) -> *mut Self {
        self.next
    }
}

/// The requests of a list.
pub(crate) struct Requests<W>(*mut W);

impl<W> Requests<W> {
    /// # Safety
    /// `list` is NULL or a request, and so is the next entry that each of them names. They exist
    /// while the value is used.
    pub(crate) unsafe fn of(list: *mut W) -> Self {
        Self(list)
    }
}

impl<W: Linked> Iterator for Requests<W> {
    type Item = *mut W;

    #[inline(always)]
    fn next(&mut self) -> Option<*mut W> {
        let this = self.0;
        if this.is_null() {
            return None;
        }
        // SAFETY: the caller of `of` promises that each entry of the list is a request, which
        // exists while this value is used.
        self.0 = unsafe { &*this }.next();
        Some(this)
    }
}

/// Reports to the caller which request was refused, and why.
///
/// # Safety
/// `list` as for [`Requests::of`]; `bad` is writable.
#[cold]
#[inline(never)]
pub(crate) unsafe fn refused<W: Linked>(
    list: *mut W,
    bad: *mut *mut W,
    refused: ListError,
    errno: fn(PostError) -> c_int,
) -> c_int {
    // SAFETY: the caller promises that `list` is a list of requests and that `bad` is writable.
    unsafe { bad.write(Requests::of(list).nth(refused.index() as usize).unwrap_or(list)) };
    errno(refused.error())
}

/// The only request of a list, if it has one SGE.
///
/// # Safety
/// As for [`Requests::of`].
#[inline(always)]
pub(crate) unsafe fn single_receive(list: *mut ibv_recv_wr) -> Option<(u64, Sge)> {
    // SAFETY: the caller promises that `list` is NULL or a request, whose SGEs are readable.
    unsafe {
        let wr = list.as_ref()?;
        (wr.next.is_null() && wr.num_sge == 1).then(|| (wr.wr_id, *wr.sg_list.cast()))
    }
}

/// The error for a list of one request.
pub(crate) fn only(error: PostError) -> ListError {
    ListError::new(0, error)
}

/// The provider's receive requests of a list.
///
/// # Safety
/// As for [`Requests::of`].
#[inline(always)]
pub(crate) unsafe fn receives<'a>(list: *mut ibv_recv_wr) -> impl Iterator<Item = ReceiveWr<'a>> {
    // SAFETY: the caller promises that `list` is NULL or a list of requests, which exist while the
    // iterator is used.
    unsafe { Requests::of(list) }.map(|wr| {
        // SAFETY: the caller promises that each entry of the list is a request, whose SGEs are
        // readable.
        unsafe { ReceiveWr { wr_id: (*wr).wr_id, sges: sges((*wr).sg_list, (*wr).num_sge) } }
    })
}
