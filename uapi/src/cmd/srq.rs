//! Shared receive queues.

use std::os::fd::{AsRawFd, BorrowedFd};

use zerocopy::FromZeros;

use crate::{
    Errno,
    call::Call,
    ioctl::{attr, method},
    kernel::DeviceFile,
    mlx5,
    verbs::{SrqAttrMask, SrqType},
    write_cmd::{ModifySrq, Nothing, QuerySrq, QuerySrqResp, WriteCommand, exchange},
};

/// The arguments of SRQ_CREATE. Handles are those of the kernel.
#[derive(Clone, Copy, Debug)]
pub struct CreateSrq<'a> {
    /// Type.
    pub srq_type: SrqType,
    /// Protection domain.
    pub pd: u32,
    /// XRC domain, for [`SrqType::Xrc`].
    pub xrcd: Option<u32>,
    /// CQ, for [`SrqType::Xrc`] and [`SrqType::Tm`].
    pub cq: Option<u32>,
    /// Value that identifies the SRQ in its events.
    pub user_handle: u64,
    /// The number of receive requests.
    pub max_wr: u32,
    /// The number of scatter/gather entries of each.
    pub max_sge: u32,
    /// An event is reported when fewer receive requests than this are left.
    pub limit: u32,
    /// The number of tags, for [`SrqType::Tm`].
    pub max_num_tags: u32,
    /// Event file for its asynchronous events.
    pub async_events: Option<BorrowedFd<'a>>,
    /// The driver's request.
    pub driver: mlx5::CreateSrq,
}

/// A shared receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Srq {
    /// The kernel's handle.
    pub handle: u32,
    /// The device's number (SRQN).
    pub srqn: u32,
    /// The number of receive requests allocated.
    pub max_wr: u32,
    /// The number of scatter/gather entries allocated.
    pub max_sge: u32,
}

/// Creates a shared receive queue (SRQ_CREATE).
///
/// # Safety
/// From now on the device may read and write the ring and the doorbell record that `what.driver`
/// names, until [`destroy`] succeeds or `file` is closed.
pub unsafe fn create(file: &dyn DeviceFile, what: &CreateSrq<'_>) -> Result<Srq, Errno> {
    use attr::create_srq as id;
    let (mut max_wr, mut max_sge, mut srq_num) = (0_u32, 0_u32, 0_u32);
    let mut driver = mlx5::CreateSrqResp::new_zeroed();
    let mut call = Call::new(method::SRQ_CREATE);
    if let Some(xrcd) = what.xrcd {
        call.handle(id::XRCD_HANDLE, xrcd).output(id::RESP_SRQ_NUM, &mut srq_num);
    }
    if let Some(cq) = what.cq {
        call.handle(id::CQ_HANDLE, cq);
    }
    if what.srq_type == SrqType::Tm {
        call.input_u32(id::MAX_NUM_TAGS, what.max_num_tags);
    }
    call.new_handle(id::HANDLE)
        .input_u64(id::TYPE, u64::from(what.srq_type.raw()))
        .input_u64(id::USER_HANDLE, what.user_handle)
        .handle(id::PD_HANDLE, what.pd)
        .input_u32(id::MAX_WR, what.max_wr)
        .input_u32(id::MAX_SGE, what.max_sge)
        .input_u32(id::LIMIT, what.limit);
    if let Some(events) = what.async_events {
        call.fd(id::EVENT_FD, events.as_raw_fd());
    }
    let reply = call
        .output(id::RESP_MAX_WR, &mut max_wr)
        .output(id::RESP_MAX_SGE, &mut max_sge)
        .driver_input(&what.driver)
        .driver_output(&mut driver)
        .make(file)?;
    let srqn = if what.xrcd.is_some() { srq_num } else { driver.srqn };
    Ok(Srq { handle: reply.handle(id::HANDLE), srqn, max_wr, max_sge })
}

/// Destroys a shared receive queue (SRQ_DESTROY). `EBUSY` while QPs use it.
///
/// Returns the number of asynchronous events that the kernel ever reported for it. Before the user
/// handle may be freed, all of them must have been read.
pub fn destroy(file: &dyn DeviceFile, handle: u32) -> Result<u32, Errno> {
    use attr::destroy_srq as id;
    let mut events = 0_u32;
    Call::new(method::SRQ_DESTROY)
        .output(id::RESP, &mut events)
        .handle(id::HANDLE, handle)
        .make(file)?;
    Ok(events)
}

/// Modifies the attributes of a shared receive queue that `mask` selects (MODIFY_SRQ).
pub fn modify(
    file: &dyn DeviceFile,
    handle: u32,
    mask: SrqAttrMask,
    max_wr: u32,
    limit: u32,
) -> Result<(), Errno> {
    let request =
        ModifySrq { srq_handle: handle, attr_mask: mask.bits(), max_wr, srq_limit: limit };
    exchange::<_, Nothing>(file, WriteCommand::MODIFY_SRQ, &request).map(drop)
}

/// Queries a shared receive queue (QUERY_SRQ).
pub fn query(file: &dyn DeviceFile, handle: u32) -> Result<QuerySrqResp, Errno> {
    let request = QuerySrq { response: 0, srq_handle: handle, reserved: 0 };
    exchange(file, WriteCommand::QUERY_SRQ, &request)
}
