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

/// The arguments of CQ_CREATE.
#[derive(Clone, Copy, Debug)]
pub struct CreateCq<'a> {
    /// The number of CQEs requested.
    pub cqe: u32,
    /// Value that identifies the CQ in its events.
    pub user_handle: u64,
    /// Completion channel for its completion events.
    pub comp_channel: Option<BorrowedFd<'a>>,
    /// Completion vector.
    pub comp_vector: u32,
    /// Flags.
    pub flags: CqFlags,
    /// Event file for its asynchronous events.
    pub async_events: Option<BorrowedFd<'a>>,
    /// The driver's request.
    pub driver: mlx5::CreateCq,
    /// UAR page through which to arm the CQ, if its index does not fit the 16 bits in `driver`.
    pub uar_index: Option<u32>,
}

/// A completion queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cq {
    /// The kernel's handle.
    pub handle: u32,
    /// The number of CQEs allocated.
    pub cqe: u32,
    /// The device's number (CQN).
    pub cqn: u32,
}

layout! {
    /// `struct ib_uverbs_destroy_cq_resp`: the number of events that the kernel ever reported for
    /// the CQ. Before the user handle may be freed, all of them must have been read.
    pub struct CqEvents [8] {
        0 comp_events_reported: u32 => "Completion events.",
        4 async_events_reported: u32 => "Asynchronous events.",
    }
}

/// Creates a completion queue (CQ_CREATE).
///
/// # Safety
/// From now on the device may write the ring and access the doorbell record that `what.driver`
/// names, until [`destroy`] succeeds or `file` is closed.
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

/// Destroys a completion queue (CQ_DESTROY). `EBUSY` while queues use it.
pub fn destroy(file: &dyn DeviceFile, handle: u32) -> Result<CqEvents, Errno> {
    use attr::destroy_cq as id;
    let mut events = CqEvents::default();
    Call::new(method::CQ_DESTROY)
        .output(id::RESP, &mut events)
        .handle(id::HANDLE, handle)
        .make(file)?;
    Ok(events)
}

/// Resizes a completion queue (RESIZE_CQ). Returns the number of CQEs allocated.
///
/// # Safety
/// From now on the device may write the new ring. It writes the old ring until it has written a
/// resize CQE there.
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

/// Sets the event moderation (MODIFY_CQ): an event after `count` completions or `period`
/// microseconds.
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
