//! Work queues and their indirection tables, for receive-side scaling.

use std::os::fd::{AsRawFd, BorrowedFd};

use zerocopy::{FromZeros, IntoBytes};

use super::destroy as destroy_object;
use crate::{
    Errno,
    call::Call,
    ioctl::{attr, method},
    kernel::DeviceFile,
    mlx5,
    verbs::{WqAttrMask, WqFlags, WqState, WqType},
    write_cmd::{
        CreateRwqIndTable, CreateRwqIndTableResp, ModifyWq, Nothing, WriteCommand, exchange_bytes,
        exchange_with_driver,
    },
};

/// The arguments of WQ_CREATE. Handles are those of the kernel.
#[derive(Clone, Copy, Debug)]
pub struct CreateWq<'a> {
    /// Protection domain.
    pub pd: u32,
    /// Completion queue.
    pub cq: u32,
    /// Value that identifies the queue in its events.
    pub user_handle: u64,
    /// The number of receive requests.
    pub max_wr: u32,
    /// The number of scatter/gather entries of each.
    pub max_sge: u32,
    /// Flags.
    pub flags: WqFlags,
    /// Event file for its asynchronous events.
    pub async_events: Option<BorrowedFd<'a>>,
    /// The driver's request.
    pub driver: mlx5::CreateWq,
}

/// A work queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wq {
    /// The kernel's handle.
    pub handle: u32,
    /// The device's number.
    pub wq_num: u32,
    /// The number of receive requests allocated.
    pub max_wr: u32,
    /// The number of scatter/gather entries allocated.
    pub max_sge: u32,
}

/// Creates a receive work queue (WQ_CREATE), in state [`WqState::Reset`].
///
/// # Safety
/// From now on the device may read and write the ring and the doorbell record that `what.driver`
/// names, until [`destroy`] succeeds or `file` is closed.
pub unsafe fn create(file: &dyn DeviceFile, what: &CreateWq<'_>) -> Result<Wq, Errno> {
    use attr::create_wq as id;
    let (mut max_wr, mut max_sge, mut wq_num) = (0_u32, 0_u32, 0_u32);
    let mut driver = mlx5::LengthResp::new_zeroed();
    let mut call = Call::new(method::WQ_CREATE);
    call.new_handle(id::HANDLE)
        .handle(id::PD_HANDLE, what.pd)
        .handle(id::CQ_HANDLE, what.cq)
        .input_u64(id::USER_HANDLE, what.user_handle)
        .input_u64(id::TYPE, u64::from(WqType::Rq.raw()))
        .input_u32(id::MAX_WR, what.max_wr)
        .input_u32(id::MAX_SGE, what.max_sge)
        .input_u32(id::FLAGS, what.flags.bits());
    if let Some(events) = what.async_events {
        call.fd(id::EVENT_FD, events.as_raw_fd());
    }
    let reply = call
        .output(id::RESP_MAX_WR, &mut max_wr)
        .output(id::RESP_MAX_SGE, &mut max_sge)
        .output(id::RESP_WQ_NUM, &mut wq_num)
        .driver_input(&what.driver)
        .driver_output(&mut driver)
        .make(file)?;
    Ok(Wq { handle: reply.handle(id::HANDLE), wq_num, max_wr, max_sge })
}

/// Destroys a work queue (WQ_DESTROY). `EBUSY` while a table has it.
///
/// Returns the number of asynchronous events that the kernel ever reported for it. Before the user
/// handle may be freed, all of them must have been read.
pub fn destroy(file: &dyn DeviceFile, handle: u32) -> Result<u32, Errno> {
    use attr::destroy_wq as id;
    let mut events = 0_u32;
    Call::new(method::WQ_DESTROY)
        .output(id::RESP, &mut events)
        .handle(id::HANDLE, handle)
        .make(file)?;
    Ok(events)
}

/// Changes the state of a work queue, or flags of it, or both (MODIFY_WQ). The kernel passes `from`
/// to the device as the current state. Without `from` it passes the state that it remembers, which
/// is wrong for a queue that failed by itself.
pub fn modify(
    file: &dyn DeviceFile,
    handle: u32,
    (from, to): (Option<WqState>, Option<WqState>),
    flags: Option<(WqFlags, WqFlags)>,
) -> Result<(), Errno> {
    let mut request = ModifyWq { wq_handle: handle, ..ModifyWq::default() };
    let mut mask = WqAttrMask::empty();
    if let Some(from) = from {
        mask |= WqAttrMask::CUR_STATE;
        request.curr_wq_state = from.raw();
    }
    if let Some(to) = to {
        mask |= WqAttrMask::STATE;
        request.wq_state = to.raw();
    }
    if let Some((value, changed)) = flags {
        mask |= WqAttrMask::FLAGS;
        (request.flags, request.flags_mask) = (value.bits(), changed.bits());
    }
    request.attr_mask = mask.bits();
    let driver = mlx5::ModifyWq::default();
    exchange_with_driver::<_, Nothing, _, Nothing>(
        file,
        WriteCommand::MODIFY_WQ_EX,
        &request,
        &driver,
    )
    .map(drop)
}

/// A table of work queues, over which the packets of a QP are spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndTable {
    /// The kernel's handle.
    pub handle: u32,
    /// The device's number.
    pub number: u32,
}

/// Creates an indirection table of these work queues, whose number must be a power of two
/// (CREATE_RWQ_IND_TBL). A queue may be in it several times. `EINVAL`, without a call, for another
/// number.
pub fn create_ind_table(file: &dyn DeviceFile, queues: &[u32]) -> Result<IndTable, Errno> {
    if !queues.len().is_power_of_two() {
        return Err(Errno::EINVAL);
    }
    let head = CreateRwqIndTable { comp_mask: 0, log_ind_tbl_size: queues.len().ilog2() };
    let mut request = [head.as_bytes(), queues.as_bytes()].concat();
    request.resize(request.len().next_multiple_of(8), 0);
    let mut answer = CreateRwqIndTableResp::new_zeroed();
    let mut driver = mlx5::LengthResp::new_zeroed();
    exchange_bytes(
        file,
        WriteCommand::CREATE_RWQ_IND_TBL_EX,
        &request,
        answer.as_mut_bytes(),
        &[],
        driver.as_mut_bytes(),
    )?;
    Ok(IndTable { handle: answer.ind_tbl_handle, number: answer.ind_tbl_num })
}

/// Destroys an indirection table (RWQ_IND_TBL_DESTROY). `EBUSY` while a QP uses it.
pub fn destroy_ind_table(file: &dyn DeviceFile, handle: u32) -> Result<(), Errno> {
    destroy_object(file, method::RWQ_IND_TBL_DESTROY, attr::destroy_rwq_ind_tbl::HANDLE, handle)
}
