//! Posting requests from C's lists.

use super::{Address, CTransport, QpObject, QpOf};
use crate::abi::*;
use crate::ah::AhObject;
use crate::mw::binding;
use mlx5::{
    Data, InlineSges, ListError, Operation, PostError, ReceiveWr, RemoteAddress, SendFlags, SendWr,
    Sge, UdAddress, UnsupportedOperation,
};

/// `enum ibv_send_flags` without `INLINE`, as the provider has them.
const FLAGS: [SendFlags; 32] = {
    let mut table = [SendFlags::empty(); 32];
    let mut flags = 0;
    while flags < table.len() {
        let mut to = SendFlags::empty();
        if flags & IBV_SEND_FENCE as usize != 0 {
            to = to.union(SendFlags::FENCE);
        }
        if flags & IBV_SEND_SIGNALED as usize != 0 {
            to = to.union(SendFlags::SIGNALED);
        }
        if flags & IBV_SEND_SOLICITED as usize != 0 {
            to = to.union(SendFlags::SOLICITED);
        }
        if flags & IBV_SEND_IP_CSUM as usize != 0 {
            to = to.union(SendFlags::IP_CSUM);
        }
        table[flags] = to;
        flags += 1;
    }
    table
};

/// The provider's flags.
#[inline(always)]
pub(crate) fn flags(flags: c_uint) -> SendFlags {
    FLAGS[flags as usize % FLAGS.len()]
}

/// C's list of SGEs: the same structure.
///
/// # Safety
/// `list` has `count` entries.
#[inline(always)]
pub(crate) unsafe fn sges<'a>(list: *const ibv_sge, count: c_int) -> &'a [Sge] {
    const _: () = assert!(size_of::<ibv_sge>() == size_of::<Sge>());
    if count <= 0 {
        return &[];
    }
    // SAFETY: by the contract; both structures have the same fields at the same offsets.
    unsafe { std::slice::from_raw_parts(list.cast(), count as usize) }
}

/// The operation of a request.
///
/// # Safety
/// `wr` is a request as C makes them.
#[inline(always)]
unsafe fn operation(wr: &ibv_send_wr) -> Operation {
    // SAFETY: the opcode says which member of each union the caller has set.
    unsafe {
        let rdma = || RemoteAddress { addr: wr.wr.rdma.remote_addr, rkey: wr.wr.rdma.rkey };
        let atomic = || RemoteAddress { addr: wr.wr.atomic.remote_addr, rkey: wr.wr.atomic.rkey };
        let immediate = || wr.imm.imm_data.to_ne_bytes();
        match wr.opcode {
            IBV_WR_RDMA_WRITE => Operation::RdmaWrite(rdma()),
            IBV_WR_RDMA_WRITE_WITH_IMM => Operation::RdmaWriteImm(rdma(), immediate()),
            IBV_WR_SEND => Operation::Send,
            IBV_WR_SEND_WITH_IMM => Operation::SendImm(immediate()),
            IBV_WR_RDMA_READ => Operation::RdmaRead(rdma()),
            IBV_WR_ATOMIC_CMP_AND_SWP => Operation::CompareSwap {
                remote: atomic(),
                compare: wr.wr.atomic.compare_add,
                swap: wr.wr.atomic.swap,
            },
            IBV_WR_ATOMIC_FETCH_AND_ADD => {
                Operation::FetchAdd { remote: atomic(), add: wr.wr.atomic.compare_add }
            }
            IBV_WR_BIND_MW => {
                let bind = &wr.ext.bind_mw;
                Operation::BindWindow(binding(bind.mw, bind.rkey, &bind.bind_info))
            }
            IBV_WR_LOCAL_INV => Operation::LocalInvalidate(wr.imm.invalidate_rkey),
            IBV_WR_SEND_WITH_INV => Operation::SendInvalidate(wr.imm.invalidate_rkey),
            IBV_WR_TSO => Operation::Unsupported(UnsupportedOperation::Tso),
            IBV_WR_ATOMIC_WRITE => Operation::Unsupported(UnsupportedOperation::AtomicWrite),
            // Also for numbers that are no operation.
            _ => Operation::Unsupported(UnsupportedOperation::Flush),
        }
    }
}

/// The provider's request.
///
/// # Safety
/// `wr` is a request as C makes them, for a queue pair of transport `T`.
#[inline(always)]
unsafe fn request<'a, T: CTransport>(wr: &'a ibv_send_wr) -> SendWr<'a> {
    // SAFETY: by the contract. The bytes of inline data are readable until the call returns.
    unsafe {
        let list = sges(wr.sg_list, wr.num_sge);
        SendWr {
            wr_id: wr.wr_id,
            flags: flags(wr.send_flags),
            operation: operation(wr),
            data: if wr.send_flags & IBV_SEND_INLINE == 0 {
                Data::Sges(list)
            } else {
                Data::InlineAt(InlineSges::new(list))
            },
            // Constants of the transport.
            address: (T::ADDRESS == Address::Datagram).then(|| {
                let ud = wr.wr.ud;
                let vector = AhObject::of(ud.ah).handle.vector();
                UdAddress { vector, qp_num: ud.remote_qpn, qkey: ud.remote_qkey }
            }),
            xrc_srqn: (T::ADDRESS == Address::Srq).then_some(wr.qp_type.xrc.remote_srqn),
        }
    }
}

/// C's number for a refusal.
pub(crate) fn errno(error: PostError) -> c_int {
    match error {
        PostError::QueueFull { .. }
        | PostError::UnsignaledRun
        | PostError::TooManySges { .. }
        | PostError::InlineTooLong { .. }
        | PostError::TagListFull { .. } => libc::ENOMEM,
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
    /// `list` is NULL or a request; so is what each of them names as the next. They are there as
    /// long as the value is used.
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
        // SAFETY: by the contract of `of`.
        self.0 = unsafe { &*this }.next();
        Some(this)
    }
}

/// Tells the caller which request was refused, and why.
///
/// # Safety
/// `list` as for [`Requests::of`]; `bad` is writable.
#[cold]
#[inline(never)]
pub(crate) unsafe fn refused<W: Linked>(
    list: *mut W,
    bad: *mut *mut W,
    ListError { index, error }: ListError,
) -> c_int {
    // SAFETY: by the contract.
    unsafe { bad.write(Requests::of(list).nth(index as usize).unwrap_or(list)) };
    errno(error)
}

/// Posts to a queue pair of transport `T`.
pub(super) unsafe fn post_send_to<T: CTransport>(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad_wr: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: by the contract of `post_send`.
    let this = unsafe { QpOf::<T>::of(qp) };
    this.head.send_lock.lock();
    // SAFETY: the lock is held; by the contract of `post_send` for the requests.
    let posted =
        unsafe { this.send().post_send_iter(Requests::of(wr).map(|wr| request::<T>(&*wr))) };
    this.head.send_lock.unlock();
    match posted {
        Ok(_) => 0,
        // SAFETY: by the contract of `post_send`.
        Err(error) => unsafe { refused(wr, bad_wr, error) },
    }
}

/// The operation behind `ibv_post_send`.
///
/// # Safety
/// `qp` was not destroyed; `wr` is a list of requests; `bad_wr` is writable.
pub unsafe extern "C" fn post_send(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad_wr: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: by the contract; the function is that of the queue pair's transport.
    unsafe { (QpObject::of(qp).functions.post_send)(qp, wr, bad_wr) }
}

/// The provider's receive requests of a list.
///
/// # Safety
/// As for [`Requests::of`].
#[inline(always)]
pub(crate) unsafe fn receives<'a>(list: *mut ibv_recv_wr) -> impl Iterator<Item = ReceiveWr<'a>> {
    // SAFETY: by the contract.
    unsafe { Requests::of(list) }.map(|wr| {
        // SAFETY: by the contract.
        unsafe { ReceiveWr { wr_id: (*wr).wr_id, sges: sges((*wr).sg_list, (*wr).num_sge) } }
    })
}

/// The operation behind `ibv_post_recv`.
///
/// # Safety
/// `qp` was not destroyed; `wr` is a list of requests; `bad_wr` is writable.
pub unsafe extern "C" fn post_recv(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: by the contract.
    let this = unsafe { QpObject::of(qp) };
    let posted = this.with_receive(|half| match half {
        // SAFETY: by the contract.
        Some(half) => half.post_recv_iter(unsafe { receives(wr) }),
        None if wr.is_null() => Ok(0),
        None => Err(ListError { index: 0, error: PostError::Unsupported }),
    });
    match posted {
        Ok(_) => 0,
        // SAFETY: by the contract.
        Err(error) => unsafe { refused(wr, bad_wr, error) },
    }
}
