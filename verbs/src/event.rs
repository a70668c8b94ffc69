//! Asynchronous events.

use crate::abi::*;
use crate::close;
use crate::context::{ContextObject, Objects, acknowledge};
use crate::kernel;
use crate::refusal::{Refusal, Verb, zero_or_minus_one};
use mlx5::{AsyncEvent, Errno};
use mlx5_uapi::cmd::event;
use std::os::fd::{AsFd, AsRawFd};

/// Converts an event to C's form; none if its object was destroyed.
fn to_c(objects: &Objects, event: AsyncEvent) -> Option<ibv_async_event> {
    use AsyncEvent as Event;
    let qp = |qp| Some(ibv_async_event_element { qp: objects.qps.deliver(&qp)? });
    let port = |port_num| Some(ibv_async_event_element { port_num: port_num as c_int });
    let (event_type, element) = match event {
        Event::CqError(cq) => {
            (IBV_EVENT_CQ_ERR, Some(ibv_async_event_element { cq: objects.cqs.deliver(&cq)? }))
        }
        Event::QpFatal(id) => (IBV_EVENT_QP_FATAL, qp(id)),
        Event::QpRequestError(id) => (IBV_EVENT_QP_REQ_ERR, qp(id)),
        Event::QpAccessError(id) => (IBV_EVENT_QP_ACCESS_ERR, qp(id)),
        Event::CommunicationEstablished(id) => (IBV_EVENT_COMM_EST, qp(id)),
        Event::SqDrained(id) => (IBV_EVENT_SQ_DRAINED, qp(id)),
        Event::PathMigrated(id) => (IBV_EVENT_PATH_MIG, qp(id)),
        Event::PathMigrationError(id) => (IBV_EVENT_PATH_MIG_ERR, qp(id)),
        Event::QpLastWqeReached(id) => (IBV_EVENT_QP_LAST_WQE_REACHED, qp(id)),
        Event::SrqError(id) => {
            (IBV_EVENT_SRQ_ERR, Some(ibv_async_event_element { srq: objects.srqs.deliver(&id)? }))
        }
        Event::SrqLimitReached(id) => (
            IBV_EVENT_SRQ_LIMIT_REACHED,
            Some(ibv_async_event_element { srq: objects.srqs.deliver(&id)? }),
        ),
        Event::WqFatal(id) => {
            (IBV_EVENT_WQ_FATAL, Some(ibv_async_event_element { wq: objects.wqs.deliver(&id)? }))
        }
        Event::PortActive(number) => (IBV_EVENT_PORT_ACTIVE, port(number)),
        Event::PortError(number) => (IBV_EVENT_PORT_ERR, port(number)),
        Event::LidChange(number) => (IBV_EVENT_LID_CHANGE, port(number)),
        Event::PkeyChange(number) => (IBV_EVENT_PKEY_CHANGE, port(number)),
        Event::SmChange(number) => (IBV_EVENT_SM_CHANGE, port(number)),
        Event::GidChange(number) => (IBV_EVENT_GID_CHANGE, port(number)),
        Event::ClientReregister(number) => (IBV_EVENT_CLIENT_REREGISTER, port(number)),
        Event::DeviceFatal => (IBV_EVENT_DEVICE_FATAL, port(0)),
        Event::Unknown { event_type, element } => (event_type, port(element as u32)),
        _ => return None,
    };
    Some(ibv_async_event { element: element?, event_type })
}

/// Returns the next event. Another thread may close the device while this one waits, so the
/// function uses nothing of the context after waiting.
///
/// # Safety
/// As for [`get_async_event`].
unsafe fn next(context: *mut ibv_context) -> Verb<ibv_async_event> {
    let (fd, events) = {
        // SAFETY: the caller promises that `context` is open.
        let context = unsafe { ContextObject::of(context) };
        let of = context.context.async_events();
        of.detach().check()?;
        (of.as_fd().as_raw_fd(), context.watched.events(&context.objects, &of))
    };
    loop {
        // The thread may be cancelled here: it holds only numbers.
        let read = event::async_by(|to| kernel::read(fd, to));
        let Some(events) = events.find() else {
            return Err(read.err().unwrap_or(Errno::EBADF).into());
        };
        let event = events.of.take(read)?.ok_or(Refusal(libc::EAGAIN))?;
        if let Some(event) = to_c(&events.objects, event) {
            return Ok(event);
        }
    }
}

/// `ibv_get_async_event`: waits for one unless the descriptor is non-blocking.
///
/// # Safety
/// `context` is open, `event` writable.
pub unsafe extern "C" fn get_async_event(
    context: *mut ibv_context,
    event: *mut ibv_async_event,
) -> c_int {
    // SAFETY: the caller promises that `context` is open.
    let found = unsafe { next(context) };
    // The device may have been closed while this thread handled the event.
    close::again();
    // SAFETY: the caller promises that `event` is writable.
    zero_or_minus_one(found.map(|found| unsafe { event.write(found) }))
}

/// `ibv_ack_async_event`.
///
/// # Safety
/// `event` is from [`get_async_event`], and was not acknowledged.
pub unsafe extern "C" fn ack_async_event(event: *mut ibv_async_event) {
    // SAFETY: the caller promises that `event` was not acknowledged, so its object still exists.
    unsafe {
        let element = (*event).element;
        match (*event).event_type {
            IBV_EVENT_CQ_ERR => {
                let cq = element.cq;
                let (mutex, cond) = (&raw mut (*cq).mutex, &raw mut (*cq).cond);
                acknowledge(mutex, cond, &raw mut (*cq).async_events_completed, 1);
            }
            IBV_EVENT_QP_FATAL
            | IBV_EVENT_QP_REQ_ERR
            | IBV_EVENT_QP_ACCESS_ERR
            | IBV_EVENT_COMM_EST
            | IBV_EVENT_SQ_DRAINED
            | IBV_EVENT_PATH_MIG
            | IBV_EVENT_PATH_MIG_ERR
            | IBV_EVENT_QP_LAST_WQE_REACHED => {
                let qp = element.qp;
                let (mutex, cond) = (&raw mut (*qp).mutex, &raw mut (*qp).cond);
                acknowledge(mutex, cond, &raw mut (*qp).events_completed, 1);
            }
            IBV_EVENT_SRQ_ERR | IBV_EVENT_SRQ_LIMIT_REACHED => {
                let srq = element.srq;
                let (mutex, cond) = (&raw mut (*srq).mutex, &raw mut (*srq).cond);
                acknowledge(mutex, cond, &raw mut (*srq).events_completed, 1);
            }
            IBV_EVENT_WQ_FATAL => {
                let wq = element.wq;
                let (mutex, cond) = (&raw mut (*wq).mutex, &raw mut (*wq).cond);
                acknowledge(mutex, cond, &raw mut (*wq).events_completed, 1);
            }
            _ => {}
        }
    }
}
