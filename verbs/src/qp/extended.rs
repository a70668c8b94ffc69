//! Posting by `ibv_wr_*`: a batch that is built by several calls, with the send lock held from the
//! first to the last.
//!
//! `ibv_wr_*`, which names an operation, writes the head of a usual request to the ring, and the
//! setter of data finishes it. Other requests, and those that name a receiver, are kept in C's form
//! until all of them is known.

use super::building::{
    Pending, Qp, drop_batch, keep_inline, keep_sges, open, request, start_batch,
};
use super::flags::flags_of;
use super::packet::cuts;
use super::post::{Common, by_opcode};
use super::{Address, CTransport, QpObject, QpOf};
use crate::abi::*;
use crate::ah::AhObject;
use crate::refusal::Refusal;
use crate::request::entries;
use mlx5::operation::{self, Inline};
use mlx5::{Data, InlineSges, RemoteAddress, SendOps, Sge};

/// `ibv_wr_start`: the lock stays held until [`wr_complete`] or [`wr_abort`].
unsafe extern "C" fn wr_start<T: CTransport>(qp: Qp) {
    // SAFETY: the program passes a queue pair that exists, and its functions are those of transport
    // `T`.
    unsafe {
        if QpOf::<T>::of(qp.cast()).head.send_lock.try_lock() {
            start::<T>(qp);
        } else {
            start_when_free::<T>(qp);
        }
    }
}

/// [`wr_start`] while another thread has the lock.
#[cold]
#[inline(never)]
unsafe extern "C" fn start_when_free<T: CTransport>(qp: Qp) {
    // SAFETY: the program passes a queue pair that exists, and its functions are those of
    // transport `T`.
    unsafe {
        QpOf::<T>::of(qp.cast()).head.send_lock.lock();
        start::<T>(qp);
    }
}

/// # Safety
/// The send lock is held.
#[inline(always)]
unsafe fn start<T: CTransport>(qp: Qp) {
    // SAFETY: the caller promises that this thread holds the send lock.
    unsafe {
        start_batch(QpOf::<T>::of(qp.cast()));
    }
}

/// Lets the send lock go that was held since the batch was started.
///
/// # Safety
/// As for [`open`].
#[inline(always)]
unsafe fn release<T: CTransport>(qp: Qp) {
    // SAFETY: the caller promises that this thread has started a batch, so it holds the send lock.
    unsafe { QpOf::<T>::of(qp.cast()) }.head.send_lock.unlock();
}

/// `ibv_wr_complete`: all of the batch is posted, or nothing.
unsafe extern "C" fn wr_complete<T: CTransport>(qp: Qp) -> c_int {
    // SAFETY: the program started a batch on this queue pair. It is not used once the lock is
    // released.
    unsafe {
        let batch = open::<T>(qp);
        if batch.is_pending() {
            // Its last request has no data.
            wr_abort::<T>(qp);
            return libc::EINVAL;
        }
        let done = match batch.complete() {
            Ok(()) => 0,
            Err(refused) => open::<T>(qp).kept.errno(refused),
        };
        release::<T>(qp);
        done
    }
}

/// `ibv_wr_abort`: nothing is posted.
unsafe extern "C" fn wr_abort<T: CTransport>(qp: Qp) {
    // SAFETY: the program started a batch on this queue pair. It is not used once the lock is
    // released.
    unsafe {
        drop_batch::<T>(qp);
        release::<T>(qp);
    }
}

/// Starts a request of operation `O` by writing its head. Returns false, and does nothing, if it
/// has to be kept until its data is known.
///
/// # Safety
/// As for [`open`].
#[inline(always)]
unsafe fn head<T: CTransport, O: Inline>(qp: Qp, immediate: Be32, remote: O::Remote) -> bool {
    // SAFETY: the caller promises that this thread has started a batch on this queue pair.
    unsafe {
        let flags = flags_of::<T, O>((*qp).wr_flags);
        open::<T>(qp).begin::<O>((*qp).wr_id, flags, immediate.to_ne_bytes(), remote)
    }
}

/// The functions that name an operation whose data follows, a line each: its arguments, its opcode,
/// what is set of the request in C's form, and the head that may be written instead, if it has one.
macro_rules! operations {
    ($($name:ident($($argument:ident: $ty:ty),*) $opcode:ident
        $(, head $operation:ident $immediate:expr, $remote:expr)?, |$wr:ident| $set:expr;)*
    ) => {$(
        unsafe extern "C" fn $name<T: CTransport>(qp: Qp, $($argument: $ty),*) {
            // SAFETY: the program started a batch on this queue pair.
            unsafe {
                $(if head::<T, operation::$operation>(qp, $immediate, $remote) {
                    return;
                })?
                let $wr = request::<T>(qp, $opcode);
                $set
            }
        }
    )*};
}

operations! {
    wr_send() IBV_WR_SEND, head Send 0, (), |_wr| {};
    wr_send_imm(imm_data: Be32) IBV_WR_SEND_WITH_IMM, head SendImm imm_data, (),
        |wr| wr.imm.imm_data = imm_data;
    wr_send_inv(invalidate_rkey: u32) IBV_WR_SEND_WITH_INV,
        head SendInvalidate invalidate_rkey.to_be(), (),
        |wr| wr.imm.invalidate_rkey = invalidate_rkey;
    wr_rdma_write(rkey: u32, remote_addr: u64) IBV_WR_RDMA_WRITE,
        head RdmaWrite 0, RemoteAddress { addr: remote_addr, rkey },
        |wr| wr.wr.rdma = ibv_send_wr_wr_rdma { remote_addr, rkey };
    wr_rdma_write_imm(rkey: u32, remote_addr: u64, imm_data: Be32) IBV_WR_RDMA_WRITE_WITH_IMM,
        head RdmaWriteImm imm_data, RemoteAddress { addr: remote_addr, rkey },
        |wr| {
            wr.wr.rdma = ibv_send_wr_wr_rdma { remote_addr, rkey };
            wr.imm.imm_data = imm_data;
        };
    wr_rdma_read(rkey: u32, remote_addr: u64) IBV_WR_RDMA_READ,
        |wr| wr.wr.rdma = ibv_send_wr_wr_rdma { remote_addr, rkey };
    wr_atomic_cmp_swp(rkey: u32, remote_addr: u64, compare_add: u64, swap: u64)
        IBV_WR_ATOMIC_CMP_AND_SWP,
        |wr| wr.wr.atomic = ibv_send_wr_wr_atomic { remote_addr, compare_add, swap, rkey };
    wr_atomic_fetch_add(rkey: u32, remote_addr: u64, compare_add: u64) IBV_WR_ATOMIC_FETCH_AND_ADD,
        |wr| wr.wr.atomic = ibv_send_wr_wr_atomic { remote_addr, compare_add, swap: 0, rkey };
}

/// `ibv_wr_bind_mw`: has no data, so it is added at once.
unsafe extern "C" fn wr_bind_mw<T: CTransport>(
    qp: Qp,
    mw: *mut ibv_mw,
    rkey: u32,
    bind_info: *const ibv_mw_bind_info,
) {
    // SAFETY: the program started a batch; window and description exist.
    unsafe {
        let wr = request::<T>(qp, IBV_WR_BIND_MW);
        wr.ext.bind_mw = ibv_send_wr_u1_bind_mw { mw, rkey, bind_info: *bind_info };
        open::<T>(qp).finish(Data::default());
    }
}

/// `ibv_wr_local_inv`: has no data, so it is added at once.
unsafe extern "C" fn wr_local_inv<T: CTransport>(qp: Qp, invalidate_rkey: u32) {
    // SAFETY: the program started a batch on this queue pair. The request has no data.
    unsafe {
        request::<T>(qp, IBV_WR_LOCAL_INV).imm.invalidate_rkey = invalidate_rkey;
        open::<T>(qp).finish(Data::default());
    }
}

/// `ibv_wr_send_tso`: the headers are copied, as the program's own may be gone when the payload is
/// set.
unsafe extern "C" fn wr_send_tso<T: CTransport>(qp: Qp, hdr: *mut c_void, hdr_sz: u16, mss: u16) {
    // SAFETY: the program started a batch, and `hdr_sz` bytes are readable at `hdr`.
    unsafe {
        request::<T>(qp, IBV_WR_TSO);
        let mut open = open::<T>(qp);
        if !open.keep_headers(hdr.cast_const().cast(), hdr_sz, mss) {
            open.refuse(Refusal::INVALID);
        }
    }
}

/// `ibv_wr_set_ud_addr`.
unsafe extern "C" fn wr_set_ud_addr<T: CTransport>(
    qp: Qp,
    ah: *mut ibv_ah,
    remote_qpn: u32,
    remote_qkey: u32,
) {
    // SAFETY: the program started a batch; the address handle exists.
    unsafe {
        let mut open = open::<T>(qp);
        open.kept.vector = AhObject::of(ah).vector;
        let ah = std::ptr::null_mut();
        open.kept.wr.wr.ud = ibv_send_wr_wr_ud { ah, remote_qpn, remote_qkey };
        open.addressed();
    }
}

/// `ibv_wr_set_xrc_srqn`.
unsafe extern "C" fn wr_set_xrc_srqn<T: CTransport>(qp: Qp, remote_srqn: u32) {
    // SAFETY: the program started a batch on this queue pair.
    unsafe {
        let mut open = open::<T>(qp);
        open.kept.wr.qp_type.xrc.remote_srqn = remote_srqn;
        open.addressed();
    }
}

/// A function that sets the data of a request.
type SetSge = unsafe extern "C" fn(Qp, u32, u64, u32);
type SetInline = unsafe extern "C" fn(Qp, *mut c_void, usize);

/// Setters of data by the opcode of the request: one that is compiled for its operation, or one for
/// all.
struct Setters<T>(T);

impl<T: CTransport> Setters<T> {
    const SGE: &'static [SetSge; 16] = &by_opcode!(sge_of, any_sge::<T> as SetSge);
    const INLINE: &'static [SetInline; 16] = &by_opcode!(inline_of, any_inline::<T> as SetInline);
}

/// `ibv_wr_set_sge`.
unsafe extern "C" fn wr_set_sge<T: CTransport>(qp: Qp, lkey: u32, addr: u64, length: u32) {
    // SAFETY: the program started a batch on this queue pair.
    unsafe {
        let mut open = open::<T>(qp);
        match *open.pending {
            Pending::Begun(begun) => {
                open.add(|batch| batch.finish_sge(begun, Sge { addr, length, lkey }));
            }
            _ => Setters::<T>::SGE[open.kept.wr.opcode as usize % 16](qp, lkey, addr, length),
        }
    }
}

/// [`wr_set_sge`] for one operation.
unsafe extern "C" fn sge_of<T: CTransport, O: Common>(qp: Qp, lkey: u32, addr: u64, length: u32) {
    let sge = Sge { addr, length, lkey };
    let data = Data::Sges(std::slice::from_ref(&sge));
    // SAFETY: the program started a batch on this queue pair.
    unsafe {
        if !open::<T>(qp).finish_as::<O>(data) {
            any_sge::<T>(qp, lkey, addr, length);
        }
    }
}

/// [`wr_set_sge`] for any request.
#[inline(never)]
unsafe extern "C" fn any_sge<T: CTransport>(qp: Qp, lkey: u32, addr: u64, length: u32) {
    let sge = Sge { addr, length, lkey };
    // SAFETY: the program started a batch on this queue pair.
    unsafe { set_sges::<T>(qp, &[sge]) };
}

#[inline(always)]
unsafe fn set_sges<T: CTransport>(qp: Qp, list: &[Sge]) {
    // SAFETY: the callers have started a batch on this queue pair.
    unsafe {
        let mut open = open::<T>(qp);
        match *open.pending {
            Pending::Begun(begun) => open.add(|batch| batch.finish_sges(begun, list)),
            _ => open.set(Data::Sges(list), |room| keep_sges(list, room)),
        }
    }
}

/// `ibv_wr_set_sge_list`.
unsafe extern "C" fn wr_set_sge_list<T: CTransport>(qp: Qp, num_sge: usize, list: *const ibv_sge) {
    // SAFETY: the caller of `ibv_wr_set_sge_list` has started a batch, and passes `num_sge`
    // entries.
    unsafe { set_sges::<T>(qp, entries(list, num_sge)) };
}

/// Inline data of a length that every queue pair refuses.
const TOO_LONG: Sge = Sge { addr: 0, length: u32::MAX, lkey: 0 };

/// Sets inline data.
///
/// # Safety
/// As for [`Open::set`]; the pieces are readable, unless they are longer than the queue pair takes.
#[inline(always)]
unsafe fn set_inline<T: CTransport>(qp: Qp, pieces: &[Sge]) {
    // SAFETY: the caller promises that a batch was started, and that the pieces are readable,
    // unless they are longer than the queue pair takes.
    unsafe {
        let (mut open, data) = (open::<T>(qp), InlineSges::new(pieces));
        match *open.pending {
            Pending::Begun(begun) => open.add(|batch| batch.finish_inline(begun, data)),
            _ => open.set(Data::InlineAt(data), |room| keep_inline(pieces, room)),
        }
    }
}

/// Bytes of the program, as a piece of inline data.
#[inline(always)]
fn piece(addr: *mut c_void, length: usize) -> Sge {
    let addr = addr.expose_provenance() as u64;
    // More than any queue pair takes is refused, whatever it is.
    Sge { addr, length: u32::try_from(length).unwrap_or(u32::MAX), lkey: 0 }
}

/// `ibv_wr_set_inline_data`.
unsafe extern "C" fn wr_set_inline_data<T: CTransport>(qp: Qp, addr: *mut c_void, length: usize) {
    // SAFETY: the program started a batch, and `length` bytes are readable at `addr`.
    unsafe {
        let mut open = open::<T>(qp);
        match *open.pending {
            Pending::Begun(begun) => {
                let pieces = [piece(addr, length)];
                let data = InlineSges::new(&pieces);
                open.add(|batch| batch.finish_inline(begun, data));
            }
            _ => Setters::<T>::INLINE[open.kept.wr.opcode as usize % 16](qp, addr, length),
        }
    }
}

/// [`wr_set_inline_data`] for one operation.
unsafe extern "C" fn inline_of<T: CTransport, O: Common>(qp: Qp, addr: *mut c_void, length: usize) {
    let piece = piece(addr, length);
    // SAFETY: the program started a batch, and `length` bytes are readable at `addr`.
    unsafe {
        let data = Data::InlineAt(InlineSges::new(std::slice::from_ref(&piece)));
        if !open::<T>(qp).finish_as::<O>(data) {
            any_inline::<T>(qp, addr, length);
        }
    }
}

/// [`wr_set_inline_data`] for any request.
#[inline(never)]
unsafe extern "C" fn any_inline<T: CTransport>(qp: Qp, addr: *mut c_void, length: usize) {
    // SAFETY: the program started a batch, and `length` bytes are readable at `addr`.
    unsafe { set_inline::<T>(qp, &[piece(addr, length)]) };
}

/// `ibv_wr_set_inline_data_list`.
unsafe extern "C" fn wr_set_inline_data_list<T: CTransport>(
    qp: Qp,
    num_buf: usize,
    buf_list: *const ibv_data_buf,
) {
    // The length of a buffer starts where that of an SGE is, and its high half, which is zero, lies
    // where the key is, which is not used.
    const {
        assert!(cfg!(target_endian = "little"));
        assert!(size_of::<ibv_data_buf>() == size_of::<ibv_sge>());
    }
    // SAFETY: the caller of `ibv_wr_set_inline_data_list` has started a batch, and passes `num_buf`
    // entries, whose bytes are readable.
    unsafe {
        let pieces = entries(buf_list.cast(), num_buf);
        // A length of more than 32 bits. The first bytes of a packet are read before lengths are
        // looked at.
        let long = pieces.iter().find(|piece| piece.lkey != 0);
        let long = long.map(|piece| Sge { addr: piece.addr, ..TOO_LONG });
        let pieces = long.as_ref().map_or(pieces, std::slice::from_ref);
        if const { cuts::<T>() } && QpObject::of(qp.cast()).is_beyond_inline(pieces) {
            // C's library has another number here than for other queue pairs.
            return open::<T>(qp).refuse(Refusal::INVALID);
        }
        set_inline::<T>(qp, pieces);
    }
}

/// The operations that C has a bit for.
const NAMED: SendOps = SendOps::from_bits_truncate(2 * IBV_QP_EX_WITH_ATOMIC_WRITE as u64 - 1);

/// The operations that a queue pair of this transport can be asked for.
pub(super) fn supported<T: CTransport>() -> SendOps {
    SendOps::of::<T>().intersection(NAMED)
}

/// Fills in the functions of a queue pair: as in C, all that its transport has, whatever was asked
/// for. Those of other operations stay NULL.
pub(super) fn fill<T: CTransport>(c: &mut ibv_qp_ex) {
    let has = supported::<T>();
    macro_rules! operations {
        ($($operation:ident $slot:ident;)*) => {
            $(if has.contains(SendOps::$operation) { c.$slot = Some($slot::<T>); })*
        };
    }
    operations! {
        SEND wr_send;
        SEND_IMM wr_send_imm;
        SEND_INV wr_send_inv;
        RDMA_WRITE wr_rdma_write;
        RDMA_WRITE_IMM wr_rdma_write_imm;
        RDMA_READ wr_rdma_read;
        COMPARE_SWAP wr_atomic_cmp_swp;
        FETCH_ADD wr_atomic_fetch_add;
        BIND_MW wr_bind_mw;
        LOCAL_INV wr_local_inv;
        TSO wr_send_tso;
    }
    match T::ADDRESS {
        Address::Nothing => {}
        Address::Datagram => c.wr_set_ud_addr = Some(wr_set_ud_addr::<T>),
        Address::Srq => c.wr_set_xrc_srqn = Some(wr_set_xrc_srqn::<T>),
    }
    c.wr_set_sge = Some(wr_set_sge::<T>);
    c.wr_set_sge_list = Some(wr_set_sge_list::<T>);
    c.wr_set_inline_data = Some(wr_set_inline_data::<T>);
    c.wr_set_inline_data_list = Some(wr_set_inline_data_list::<T>);
    c.wr_start = Some(wr_start::<T>);
    c.wr_complete = Some(wr_complete::<T>);
    c.wr_abort = Some(wr_abort::<T>);
}

/// `ibv_qp_to_qp_ex`: NULL unless the queue pair was made with send operations.
///
/// # Safety
/// `qp` was not destroyed.
pub unsafe extern "C" fn qp_to_qp_ex(qp: *mut ibv_qp) -> *mut ibv_qp_ex {
    // SAFETY: the caller promises that `qp` was not destroyed.
    if unsafe { QpObject::of(qp) }.extended { qp.cast() } else { std::ptr::null_mut() }
}
