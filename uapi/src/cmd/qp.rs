//! Queue pairs.

use std::os::fd::{AsRawFd, BorrowedFd};

use zerocopy::FromZeros;

use crate::{
    Errno,
    call::Call,
    ioctl::{attr, method},
    kernel::DeviceFile,
    mlx5,
    verbs::{QpAttrMask, QpCap, QpCreateFlags, QpType},
    write_cmd::{
        CreateQpResp, ExModifyQp, ExModifyQpResp, Mcast, ModifyQp, Nothing, OpenQp, QueryQp,
        QueryQpResp, WriteCommand, exchange, exchange_with_driver,
    },
};

/// The arguments of QP_CREATE. Handles are those of the kernel.
#[derive(Clone, Copy, Debug)]
pub struct CreateQp<'a> {
    /// Type.
    pub qp_type: QpType,
    /// Protection domain; required for every type but [`QpType::XrcTgt`].
    pub pd: Option<u32>,
    /// XRC domain, for [`QpType::XrcTgt`].
    pub xrcd: Option<u32>,
    /// CQ of the send queue.
    pub send_cq: Option<u32>,
    /// CQ of the receive queue.
    pub recv_cq: Option<u32>,
    /// Shared receive queue.
    pub srq: Option<u32>,
    /// Value that identifies the QP in its events.
    pub user_handle: u64,
    /// Requested sizes.
    pub cap: QpCap,
    /// Flags.
    pub flags: QpCreateFlags,
    /// The source QP number of its packets, if not its own.
    pub source_qpn: Option<u32>,
    /// Event file for its asynchronous events.
    pub async_events: Option<BorrowedFd<'a>>,
    /// The driver's request.
    pub driver: mlx5::CreateQp,
}

/// A queue pair.
#[derive(Clone, Copy, Debug)]
pub struct Qp {
    /// The kernel's handle.
    pub handle: u32,
    /// The device's number (QPN). A DCT has none before it is in RTR.
    pub qp_num: u32,
    /// Allocated sizes.
    pub cap: QpCap,
    /// The driver's response.
    pub driver: mlx5::CreateQpResp,
}

/// Creates a queue pair (QP_CREATE).
///
/// # Safety
/// From now on the device may read and write the rings and the doorbell record that `what.driver`
/// names, until [`destroy`] succeeds or `file` is closed.
pub unsafe fn create(file: &dyn DeviceFile, what: &CreateQp<'_>) -> Result<Qp, Errno> {
    use attr::create_qp as id;
    let mut qp_num = 0_u32;
    let mut cap = what.cap;
    let mut driver = mlx5::CreateQpResp::new_zeroed();
    let mut call = Call::new(method::QP_CREATE);
    for (attr, handle) in [
        (id::XRCD_HANDLE, what.xrcd),
        (id::PD_HANDLE, what.pd),
        (id::SEND_CQ_HANDLE, what.send_cq),
        (id::RECV_CQ_HANDLE, what.recv_cq),
        (id::SRQ_HANDLE, what.srq),
    ] {
        if let Some(handle) = handle {
            call.handle(attr, handle);
        }
    }
    call.new_handle(id::HANDLE)
        .input_u64(id::TYPE, u64::from(what.qp_type.raw()))
        .input_u64(id::USER_HANDLE, what.user_handle)
        .input(id::CAP, &what.cap);
    if let Some(events) = what.async_events {
        call.fd(id::EVENT_FD, events.as_raw_fd());
    }
    if let Some(qpn) = what.source_qpn {
        call.input_u32(id::SOURCE_QPN, qpn);
    }
    if !what.flags.is_empty() {
        call.input_u32(id::FLAGS, what.flags.bits());
    }
    let reply = call
        .output(id::RESP_CAP, &mut cap)
        .output(id::RESP_QP_NUM, &mut qp_num)
        .driver_input(&what.driver)
        .driver_output(&mut driver)
        .make(file)?;
    Ok(Qp { handle: reply.handle(id::HANDLE), qp_num, cap, driver })
}

/// The arguments of QP_CREATE for a raw packet QP without queues, which spreads the packets of its
/// flow rules over the work queues of a table. Handles are those of the kernel.
#[derive(Clone, Copy, Debug)]
pub struct CreateHashQp<'a> {
    /// Protection domain.
    pub pd: u32,
    /// Indirection table.
    pub ind_table: u32,
    /// Value that identifies the QP in its events.
    pub user_handle: u64,
    /// Event file for its asynchronous events.
    pub async_events: Option<BorrowedFd<'a>>,
    /// The driver's request: the hash.
    pub driver: mlx5::CreateQpRss,
}

/// Creates a QP with an indirection table (QP_CREATE). It has no number and no state.
pub fn create_hash(file: &dyn DeviceFile, what: &CreateHashQp<'_>) -> Result<Qp, Errno> {
    use attr::create_qp as id;
    let (mut qp_num, mut cap) = (0_u32, QpCap::new_zeroed());
    let asked = cap;
    let mut driver = mlx5::CreateQpResp::new_zeroed();
    let mut call = Call::new(method::QP_CREATE);
    call.handle(id::PD_HANDLE, what.pd)
        .handle(id::IND_TABLE_HANDLE, what.ind_table)
        .new_handle(id::HANDLE)
        .input_u64(id::TYPE, u64::from(QpType::RawPacket.raw()))
        .input_u64(id::USER_HANDLE, what.user_handle)
        .input(id::CAP, &asked);
    if let Some(events) = what.async_events {
        call.fd(id::EVENT_FD, events.as_raw_fd());
    }
    let reply = call
        .output(id::RESP_CAP, &mut cap)
        .output(id::RESP_QP_NUM, &mut qp_num)
        .driver_input(&what.driver)
        .driver_output(&mut driver)
        .make(file)?;
    Ok(Qp { handle: reply.handle(id::HANDLE), qp_num, cap, driver })
}

/// Destroys a queue pair (QP_DESTROY). `EBUSY` while it is in a multicast group.
///
/// Returns the number of asynchronous events that the kernel ever reported for it. Before the user
/// handle may be freed, all of them must have been read.
pub fn destroy(file: &dyn DeviceFile, handle: u32) -> Result<u32, Errno> {
    use attr::destroy_qp as id;
    let mut events = 0_u32;
    Call::new(method::QP_DESTROY)
        .output(id::RESP, &mut events)
        .handle(id::HANDLE, handle)
        .make(file)?;
    Ok(events)
}

/// Modifies a queue pair (MODIFY_QP).
pub fn modify(file: &dyn DeviceFile, request: &ModifyQp) -> Result<(), Errno> {
    exchange::<_, Nothing>(file, WriteCommand::MODIFY_QP, request).map(drop)
}

/// Modifies a queue pair with the extended MODIFY_QP, which has a driver request and response: rate
/// limit, ECE, the number of a DCT.
pub fn modify_ex(
    file: &dyn DeviceFile,
    request: &ExModifyQp,
    driver: &mlx5::ModifyQp,
) -> Result<mlx5::ModifyQpResp, Errno> {
    let (_, answer): (ExModifyQpResp, mlx5::ModifyQpResp) =
        exchange_with_driver(file, WriteCommand::MODIFY_QP_EX, request, driver)?;
    Ok(answer)
}

/// Queries a queue pair (QUERY_QP).
pub fn query(file: &dyn DeviceFile, handle: u32, mask: QpAttrMask) -> Result<QueryQpResp, Errno> {
    let request = QueryQp { response: 0, qp_handle: handle, attr_mask: mask.bits() };
    exchange(file, WriteCommand::QUERY_QP, &request)
}

/// Opens an XRC target QP of the domain `xrcd` (OPEN_QP). Returns another handle of it, and its
/// number.
pub fn open(
    file: &dyn DeviceFile,
    xrcd: u32,
    qp_num: u32,
    user_handle: u64,
) -> Result<(u32, u32), Errno> {
    let request = OpenQp {
        user_handle,
        pd_handle: xrcd,
        qpn: qp_num,
        qp_type: QpType::XrcTgt.raw(),
        ..OpenQp::default()
    };
    let answer: CreateQpResp = exchange(file, WriteCommand::OPEN_QP, &request)?;
    Ok((answer.qp_handle, answer.qpn))
}

/// Attaches a queue pair to a multicast group (ATTACH_MCAST), so that it receives the group's
/// packets.
pub fn attach_mcast(
    file: &dyn DeviceFile,
    handle: u32,
    gid: [u8; 16],
    mlid: u16,
) -> Result<(), Errno> {
    mcast(file, WriteCommand::ATTACH_MCAST, handle, gid, mlid)
}

/// Detaches a queue pair from a multicast group (DETACH_MCAST).
pub fn detach_mcast(
    file: &dyn DeviceFile,
    handle: u32,
    gid: [u8; 16],
    mlid: u16,
) -> Result<(), Errno> {
    mcast(file, WriteCommand::DETACH_MCAST, handle, gid, mlid)
}

fn mcast(
    file: &dyn DeviceFile,
    command: WriteCommand,
    qp_handle: u32,
    gid: [u8; 16],
    mlid: u16,
) -> Result<(), Errno> {
    let request = Mcast { gid, qp_handle, mlid, reserved: 0 };
    exchange::<_, Nothing>(file, command, &request).map(drop)
}
