//! Posting requests from C's lists.

use super::flags::{flags, flags_of};
use super::packet::{self, cuts, segmented, tso_request};
use super::{Address, CTransport, QpObject, QpOf};
use crate::abi::*;
use crate::ah::AhObject;
use crate::mw::binding;
use crate::request::{only, receive_errno, receives, refused, sges, single_receive};
use mlx5::mkey::MkeyRefusal;
use mlx5::operation::{self, SendOperation};
use mlx5::{
    Batch, Data, InlineSges, Operation, PostError, RemoteAddress, SendFlags, SendWr, UdAddress,
    UnsupportedOperation,
};

/// The parts of a request besides its memory, in C's form.
impl ibv_send_wr {
    #[inline(always)]
    unsafe fn remote(&self) -> RemoteAddress {
        // SAFETY: the caller has set that member of the union.
        unsafe { RemoteAddress { addr: self.wr.rdma.remote_addr, rkey: self.wr.rdma.rkey } }
    }

    #[inline(always)]
    unsafe fn atomic_remote(&self) -> RemoteAddress {
        // SAFETY: the caller has set that member of the union.
        unsafe { RemoteAddress { addr: self.wr.atomic.remote_addr, rkey: self.wr.atomic.rkey } }
    }

    #[inline(always)]
    unsafe fn immediate(&self) -> [u8; 4] {
        // SAFETY: both members of the union are numbers.
        unsafe { self.imm.imm_data }.to_ne_bytes()
    }

    /// The receiver, on a transport whose requests name it.
    #[inline(always)]
    pub(super) unsafe fn address<'a, T: CTransport>(&self) -> Option<UdAddress<'a>> {
        // A constant of the transport.
        if T::ADDRESS != Address::Datagram {
            return None;
        }
        // SAFETY: the caller has set that member of the union; the address handle exists.
        unsafe {
            let ud = self.wr.ud;
            let vector = &AhObject::of(ud.ah).vector;
            Some(UdAddress { vector, qp_num: ud.remote_qpn, qkey: ud.remote_qkey })
        }
    }

    #[inline(always)]
    unsafe fn srqn<T: CTransport>(&self) -> Option<u32> {
        // SAFETY: the union has one member.
        (T::ADDRESS == Address::Srq).then_some(unsafe { self.qp_type.xrc.remote_srqn })
    }
}

/// An operation of most requests, for which there is code of its own.
pub(super) trait Common: SendOperation {
    /// The operation of a request.
    ///
    /// # Safety
    /// The request is one of this operation, as C makes them.
    unsafe fn of(wr: &ibv_send_wr) -> Operation;
}

/// Those operations, a line each.
macro_rules! common {
    ($($opcode:ident $operation:ident |$wr:pat_param| $of:expr;)*) => {
        $(impl Common for operation::$operation {
            #[inline(always)]
            unsafe fn of($wr: &ibv_send_wr) -> Operation {
                // SAFETY: the caller promises a request of this operation: the program has set
                // these members of the unions.
                #[allow(unused_unsafe, reason = "some read none")]
                unsafe { $of }
            }
        })*

        /// Adds a request to a batch, if its operation is one of these. Returns whether it is. The
        /// operation is a constant in the code of each.
        ///
        /// # Safety
        /// `wr` is a request as C makes them, for a queue pair of transport `T`; its data, if
        /// inline, is readable until the call returns.
        #[inline(always)]
        unsafe fn add_common<T: CTransport>(
            batch: &mut Batch<'_, T>,
            wr: &ibv_send_wr,
            data: Data<'_>,
        ) -> bool {
            // SAFETY: `wr` is a request for transport `T` by the caller's promise, and its opcode
            // is that of the operation.
            unsafe {
                match wr.opcode {
                    $($opcode => {
                        let address = wr.address::<T>();
                        batch.push(&request::<T, operation::$operation>(wr, data, address));
                        true
                    })*
                    _ => false,
                }
            }
        }

        /// The operation of a request, and the flags that it may have.
        ///
        /// # Safety
        /// `wr` is a request as C makes them.
        unsafe fn any_operation(wr: &ibv_send_wr) -> (Operation, SendFlags) {
            // SAFETY: `wr` is a request by the caller's promise, and its opcode is that of the
            // operation.
            unsafe {
                match wr.opcode {
                    $($opcode => (operation::$operation::of(wr), operation::$operation::FLAGS),)*
                    _ => rare_operation(wr),
                }
            }
        }

        /// A table by opcode: `$each` for these operations, and `$other` for all others.
        macro_rules! by_opcode {
            ($each:ident, $other:expr) => {{
                let mut all = [$other; 16];
                $(all[$opcode as usize] = $each::<T, mlx5::operation::$operation>;)*
                all
            }};
        }
    };
}

common! {
    IBV_WR_RDMA_WRITE RdmaWrite |wr| Operation::RdmaWrite(wr.remote());
    IBV_WR_SEND Send |_| Operation::Send;
    IBV_WR_SEND_WITH_IMM SendImm |wr| Operation::SendImm(wr.immediate());
    IBV_WR_RDMA_WRITE_WITH_IMM RdmaWriteImm
        |wr| Operation::RdmaWriteImm(wr.remote(), wr.immediate());
    IBV_WR_RDMA_READ RdmaRead |wr| Operation::RdmaRead(wr.remote());
    IBV_WR_ATOMIC_CMP_AND_SWP CompareSwap |wr| Operation::CompareSwap {
        remote: wr.atomic_remote(),
        compare: wr.wr.atomic.compare_add,
        swap: wr.wr.atomic.swap,
    };
    IBV_WR_ATOMIC_FETCH_AND_ADD FetchAdd |wr| Operation::FetchAdd {
        remote: wr.atomic_remote(),
        add: wr.wr.atomic.compare_add,
    };
}
pub(super) use by_opcode;

/// The provider's request.
///
/// # Safety
/// `wr` is a request of this operation, as C makes them, for a queue pair of transport `T`. Its
/// address handle is not used: `address` is the receiver.
#[inline(always)]
pub(super) unsafe fn request<'a, T: CTransport, O: Common>(
    wr: &ibv_send_wr,
    data: Data<'a>,
    address: Option<UdAddress<'a>>,
) -> SendWr<'a> {
    // SAFETY: the caller promises a request of operation `O`, so the members that it reads are set.
    unsafe {
        SendWr {
            wr_id: wr.wr_id,
            flags: flags_of::<T, O>(wr.send_flags),
            operation: O::of(wr),
            data,
            address,
            xrc_srqn: wr.srqn::<T>(),
        }
    }
}

/// [`any_operation`] of the others.
///
/// # Safety
/// `wr` is a request as C makes them.
unsafe fn rare_operation(wr: &ibv_send_wr) -> (Operation, SendFlags) {
    // SAFETY: the opcode says which member of each union the caller has set.
    unsafe {
        match wr.opcode {
            IBV_WR_BIND_MW => {
                let bind = &wr.ext.bind_mw;
                let binding = binding(bind.mw, bind.rkey, &bind.bind_info);
                (Operation::BindWindow(binding), operation::BindWindow::FLAGS)
            }
            IBV_WR_LOCAL_INV => {
                let rkey = wr.imm.invalidate_rkey;
                (Operation::LocalInvalidate(rkey), operation::LocalInvalidate::FLAGS)
            }
            IBV_WR_SEND_WITH_INV => {
                let rkey = wr.imm.invalidate_rkey;
                (Operation::SendInvalidate(rkey), operation::SendInvalidate::FLAGS)
            }
            opcode => {
                let which = match opcode {
                    IBV_WR_TSO => UnsupportedOperation::Tso,
                    IBV_WR_ATOMIC_WRITE => UnsupportedOperation::AtomicWrite,
                    // Also for numbers that are no operation.
                    _ => UnsupportedOperation::Flush,
                };
                (Operation::Unsupported(which), SendFlags::empty())
            }
        }
    }
}

/// The provider's request, of any operation, with its data in the provider's form.
///
/// # Safety
/// `wr` is a request as C makes them, for a queue pair of transport `T`. Its address handle is not
/// used: `address` is the receiver.
pub(super) unsafe fn any_request<'a, T: CTransport>(
    wr: &ibv_send_wr,
    data: Data<'a>,
    address: Option<UdAddress<'a>>,
) -> SendWr<'a> {
    // SAFETY: the caller promises a request for transport `T`, so the members that its opcode names
    // are set.
    unsafe {
        let (operation, allowed) = any_operation(wr);
        let bare = matches!(operation, Operation::BindWindow(_) | Operation::LocalInvalidate(_));
        SendWr {
            wr_id: wr.wr_id,
            flags: flags::<T>(wr.send_flags, allowed),
            operation,
            data: if bare { Data::default() } else { data },
            address,
            xrc_srqn: wr.srqn::<T>(),
        }
    }
}

/// The data of a request of a list.
///
/// # Safety
/// `wr` is a request as C makes them; the bytes of inline data are readable as long as the value is
/// used.
unsafe fn listed_data<'a>(wr: &'a ibv_send_wr) -> Data<'a> {
    // SAFETY: the caller promises that `wr` is a request, so `sg_list` has `num_sge` entries, and
    // that inline bytes are readable.
    unsafe {
        let list = sges(wr.sg_list, wr.num_sge);
        if wr.send_flags & IBV_SEND_INLINE == 0 {
            Data::Sges(list)
        } else {
            Data::InlineAt(InlineSges::new(list))
        }
    }
}

/// Adds a request of a list to a batch. The batch is passed by value, so that it stays in
/// registers.
///
/// # Safety
/// `wr` is a request as C makes them, for a queue pair of transport `T`.
#[inline(always)]
unsafe fn add_listed<'q, T: CTransport>(
    mut batch: Batch<'q, T>,
    wr: &ibv_send_wr,
    heads: bool,
) -> Batch<'q, T> {
    // SAFETY: the caller promises that `wr` is a request for transport `T`. The bytes of inline
    // data are readable until the call returns.
    unsafe {
        if const { cuts::<T>() } && (heads || wr.opcode == IBV_WR_TSO || wr.num_sge < 1) {
            return add_packet::<T>(batch, wr);
        }
        let list = sges(wr.sg_list, wr.num_sge);
        let is_common = if wr.send_flags & IBV_SEND_INLINE == 0 {
            add_common::<T>(&mut batch, wr, Data::Sges(list))
        } else {
            add_common::<T>(&mut batch, wr, Data::InlineAt(InlineSges::new(list)))
        };
        if is_common { batch } else { add_rare::<T>(batch, wr) }
    }
}

/// [`add_listed`] of an operation that has no code of its own.
///
/// # Safety
/// As for [`add_listed`].
#[inline(never)]
unsafe fn add_rare<'q, T: CTransport>(mut batch: Batch<'q, T>, wr: &ibv_send_wr) -> Batch<'q, T> {
    // SAFETY: the caller promises that `wr` is a request for transport `T`, whose inline bytes are
    // readable until the call returns.
    batch.push(&unsafe { any_request::<T>(wr, listed_data(wr), wr.address::<T>()) });
    batch
}

/// [`add_listed`] of a packet that the device cuts, of one whose first bytes the device needs in
/// the request, and of none.
///
/// # Safety
/// As for [`add_listed`].
#[inline(never)]
unsafe fn add_packet<'q, T: CTransport>(mut batch: Batch<'q, T>, wr: &ibv_send_wr) -> Batch<'q, T> {
    // SAFETY: the caller promises that `wr` is a request for transport `T`, whose headers and
    // inline bytes are readable until the call returns.
    unsafe {
        if wr.opcode == IBV_WR_TSO {
            let packet = segmented(wr, &listed_data(wr));
            batch.push(&tso_request::<T>(wr, packet.as_ref()));
        } else if wr.num_sge < 1 {
            // No packet: what a device does with such a request ends the queue.
            batch.push(&packet::refused());
        } else {
            T::add_headed(&mut batch, wr, &listed_data(wr));
        }
    }
    batch
}

/// C's number for a refused send request.
pub(super) fn send_errno(error: PostError) -> c_int {
    match error {
        PostError::QueueFull { .. }
        | PostError::UnsignaledRun
        | PostError::TooManySges { .. }
        | PostError::TooManyMkeyEntries { .. }
        | PostError::InlineTooLong { .. } => libc::ENOMEM,
        PostError::Mkey(MkeyRefusal::Variant)
        | PostError::NoAtomics
        | PostError::WindowTooLong { .. } => libc::EOPNOTSUPP,
        PostError::DeviceGone => libc::EIO,
        _ => libc::EINVAL,
    }
}

/// C's number for a refused request of a list of sends: it has none for a queue pair that may not
/// send yet, but the room of a queue without SGEs.
pub(super) fn listed_errno(error: PostError) -> c_int {
    match error {
        PostError::State(_) => libc::ENOMEM,
        error => send_errno(error),
    }
}

/// Posts to a queue pair of transport `T`.
pub(super) unsafe fn post_send_to<T: CTransport>(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad_wr: *mut *mut ibv_send_wr,
) -> c_int {
    let mut next = wr;
    // SAFETY: the caller of `post_send` promises an existing queue pair, whose functions are those
    // of transport `T`, a list of requests and a writable `bad_wr`. The lock is held while the
    // queue is used.
    unsafe {
        let this = QpOf::<T>::of(qp);
        this.head.send_lock.lock();
        let mut batch = this.send().wr_start();
        while !next.is_null() && !batch.is_refused() {
            batch = add_listed::<T>(batch, &*next, this.head.heads);
            next = (*next).next;
        }
        let posted = batch.complete_list();
        this.head.send_lock.unlock();
        match posted {
            Ok(()) => 0,
            Err(error) => refused(wr, bad_wr, error, listed_errno),
        }
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
    // SAFETY: the caller promises that `qp` was not destroyed, and its functions are those of its
    // transport.
    unsafe { (QpObject::of(qp).functions.post_send)(qp, wr, bad_wr) }
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
    // SAFETY: the caller promises that `qp` was not destroyed.
    let this = unsafe { QpObject::of(qp) };
    let posted = this.with_receive(|half| match half {
        // SAFETY: the caller promises that `wr` is a list of requests.
        Some(half) => match unsafe { single_receive(wr) } {
            Some((wr_id, sge)) => half.recv(wr_id, sge).map_err(only),
            // SAFETY: the caller promises that `wr` is a list of requests.
            None => half.post_recv_iter(unsafe { receives(wr) }).map(drop),
        },
        None if wr.is_null() => Ok(()),
        // As in C: there is no room, and never will be.
        None => Err(only(PostError::QueueFull { free: 0, needed: 1 })),
    });
    match posted {
        Ok(_) => 0,
        // SAFETY: the caller promises that `wr` is the list with the refused request, and that
        // `bad_wr` is writable.
        Err(error) => unsafe { refused(wr, bad_wr, error, receive_errno) },
    }
}
