//! Tag matching: operations on the list of tags of a shared receive queue.

use super::{Queue, SrqObject};
use crate::abi::*;
use crate::request::{receive_errno, sges};
use mlx5::{OpsFlags, OpsWr, PostError, TagAdd, TagHandle, TagMatchingQueue, TagOperation};

/// The tags of a queue by C's handles: their places in the list.
pub(crate) struct Tags {
    pub(crate) queue: TagMatchingQueue,
    pub(super) handles: Vec<Option<TagHandle>>,
}

impl Tags {
    pub(super) fn new(queue: TagMatchingQueue) -> Self {
        Self { queue, handles: Vec::new() }
    }

    /// Posts one operation.
    ///
    /// # Safety
    /// As for [`post_srq_ops`].
    unsafe fn post(&mut self, wr: &mut ibv_ops_wr) -> Result<(), c_int> {
        let operation = match wr.opcode {
            IBV_WR_TAG_ADD => TagOperation::Add(TagAdd {
                recv_wr_id: wr.tm.add.recv_wr_id,
                // SAFETY: the caller promises that the operation's SGEs are readable.
                sges: unsafe { sges(wr.tm.add.sg_list, wr.tm.add.num_sge) },
                tag: wr.tm.add.tag,
                mask: wr.tm.add.mask,
            }),
            IBV_WR_TAG_DEL => {
                let place = wr.tm.handle as usize;
                TagOperation::Del(self.handles.get(place).copied().flatten().ok_or(libc::EINVAL)?)
            }
            IBV_WR_TAG_SYNC => TagOperation::Sync,
            _ => return Err(libc::EINVAL),
        };
        let mut list = [OpsWr {
            wr_id: wr.wr_id,
            flags: OpsFlags::from_bits_truncate(wr.flags as u32),
            unexpected_cnt: wr.tm.unexpected_cnt,
            operation,
            handle: None,
        }];
        self.queue.post_srq_ops(&mut list).map_err(|refused| match refused.error() {
            PostError::TagListFull { .. } => libc::ENOMEM,
            PostError::StaleTag | PostError::ForeignTag => libc::EINVAL,
            error => receive_errno(error),
        })?;
        if let Some(handle) = list[0].handle {
            let place = usize::from(handle.place());
            if self.handles.len() <= place {
                self.handles.resize(place + 1, None);
            }
            self.handles[place] = Some(handle);
            wr.tm.handle = place as u32;
        }
        Ok(())
    }
}

/// The operation of `ibv_post_srq_ops`.
///
/// # Safety
/// `srq` was not destroyed; `wr` is a list of operations; `bad_wr` is writable.
pub unsafe extern "C" fn post_srq_ops(
    srq: *mut ibv_srq,
    wr: *mut ibv_ops_wr,
    bad_wr: *mut *mut ibv_ops_wr,
) -> c_int {
    // SAFETY: the caller promises that `srq` was not destroyed.
    let this = unsafe { SrqObject::of(srq) };
    this.with(|queue| {
        let mut next = wr;
        while !next.is_null() {
            let posted = match queue {
                Queue::Tags(tags) => {
                    // SAFETY: the caller promises that each entry of the list is an operation;
                    // `next` is not NULL here.
                    unsafe { tags.post(&mut *next) }
                }
                Queue::Plain(_) => Err(libc::EINVAL),
            };
            if let Err(number) = posted {
                // SAFETY: the caller promises that `bad_wr` is writable.
                unsafe { bad_wr.write(next) };
                return number;
            }
            // SAFETY: the caller promises that each entry of the list is an operation; `next` is
            // not NULL here.
            next = unsafe { (*next).next };
        }
        0
    })
}
