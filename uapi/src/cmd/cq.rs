//! Completion queues.

use std::os::fd::{AsRawFd, BorrowedFd};

use zerocopy::FromZeros;

use crate::{
    Errno,
    call::Call,
    ioctl::{attr, method},
    kernel::DeviceFile,
    layout::layout,
    mlx5,
    verbs::CqFlags,
    write_cmd::{
        ExModifyCq, Nothing, ResizeCq, ResizeCqResp, WriteCommand, exchange, exchange_with_driver,
    },
};

/// What CQ_CREATE is told.
#[derive(Clone, Copy, Debug)]
pub struct CreateCq<'a> {
    /// CQEs wanted.
    pub cqe: u32,
    /// Comes back with the CQ's events.
    pub user_handle: u64,
    /// Where its completion events go.
    pub comp_channel: Option<BorrowedFd<'a>>,
    /// Completion vector.
    pub comp_vector: u32,
    /// Flags.
    pub flags: CqFlags,
    /// Where its asynchronous events go.
    pub async_events: Option<BorrowedFd<'a>>,
    /// What the driver is told.
    pub driver: mlx5::CreateCq,
    /// UAR page to arm through, where it does not fit the driver's 16 bits.
    pub uar_index: Option<u32>,
}

/// A completion queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cq {
    /// The kernel's handle.
    pub handle: u32,
    /// CQEs given.
    pub cqe: u32,
    /// The device's number.
    pub cqn: u32,
}

layout! {
    /// `struct ib_uverbs_destroy_cq_resp`: the CQ's events that were ever delivered, which whoever
    /// frees its user handle must have taken.
    pub struct CqEvents [8] {
        0 comp_events_reported: u32 => "Completion events.",
        4 async_events_reported: u32 => "Asynchronous events.",
    }
}

/// CQ_CREATE.
///
/// # Safety
/// The device may from now on write the ring and the doorbell record that `what.driver` names,
/// until [`destroy`] succeeds or `file` is closed.
pub unsafe fn create(file: &dyn DeviceFile, what: &CreateCq<'_>) -> Result<Cq, Errno> {
    use attr::create_cq as id;
    let mut cqe = 0_u32;
    let mut driver = mlx5::CreateCqResp::new_zeroed();
    let mut call = Call::new(method::CQ_CREATE);
    call.new_handle(id::HANDLE)
        .output(id::RESP_CQE, &mut cqe)
        .input_u32(id::CQE, what.cqe)
        .input_u64(id::USER_HANDLE, what.user_handle)
        .input_u32(id::COMP_VECTOR, what.comp_vector);
    if let Some(channel) = what.comp_channel {
        call.fd(id::COMP_CHANNEL, channel.as_raw_fd());
    }
    if let Some(events) = what.async_events {
        call.fd(id::EVENT_FD, events.as_raw_fd());
    }
    if !what.flags.is_empty() {
        call.input_u32(id::FLAGS, what.flags.bits());
    }
    if let Some(index) = what.uar_index {
        call.input_u32(attr::mlx5_create_cq::UAR_INDEX, index);
    }
    let reply = call.driver_input(&what.driver).driver_output(&mut driver).make(file)?;
    Ok(Cq { handle: reply.handle(id::HANDLE), cqe, cqn: driver.cqn })
}

/// CQ_DESTROY. `EBUSY` while queues use it.
pub fn destroy(file: &dyn DeviceFile, handle: u32) -> Result<CqEvents, Errno> {
    use attr::destroy_cq as id;
    let mut events = CqEvents::default();
    Call::new(method::CQ_DESTROY)
        .output(id::RESP, &mut events)
        .handle(id::HANDLE, handle)
        .make(file)?;
    Ok(events)
}

/// RESIZE_CQ; the CQEs given.
///
/// # Safety
/// The device may from now on write the new ring; it writes the old one until it has put a resize
/// CQE there.
pub unsafe fn resize(
    file: &dyn DeviceFile,
    handle: u32,
    cqe: u32,
    driver: &mlx5::ResizeCq,
) -> Result<u32, Errno> {
    let request = ResizeCq { response: 0, cq_handle: handle, cqe };
    let (answer, _): (ResizeCqResp, Nothing) =
        exchange_with_driver(file, WriteCommand::RESIZE_CQ, &request, driver)?;
    Ok(answer.cqe)
}

/// MODIFY_CQ: an event is due after `count` completions or `period` microseconds.
pub fn moderate(file: &dyn DeviceFile, handle: u32, count: u16, period: u16) -> Result<(), Errno> {
    const MODERATION: u32 = 1 << 0;
    let request = ExModifyCq {
        cq_handle: handle,
        attr_mask: MODERATION,
        cq_count: count,
        cq_period: period,
        reserved: 0,
    };
    exchange::<_, Nothing>(file, WriteCommand::MODIFY_CQ_EX, &request).map(drop)
}
