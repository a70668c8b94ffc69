//! Files of DEVX: events of the device, to which user space subscribes, and answers to queries in
//! the background.

use std::os::fd::RawFd;
use std::sync::Arc;

use mlx5_prm::event::EventType;
use mlx5_uapi::Errno;
use mlx5_uapi::cmd::devx::EventFileFlags;
use mlx5_uapi::ioctl::attr;

use crate::kernel::current;
use crate::kernel::decode::Request;
use crate::kernel::devx::{OnObject, checked, uid};
use crate::kernel::file::{Channel, OpenFile, State};
use crate::kernel::lock;
use crate::kernel::subscriptions::{Notice, Subscription, is_offered};

/// Events in one call.
const MOST_EVENTS: usize = 16;
/// Bytes of answers that wait in a file.
const MOST_WAITING: usize = 1 << 20;
/// Bytes before an answer: the number of its query.
const HEADER: usize = size_of::<u64>();

/// Makes a file for answers.
pub(crate) fn alloc_answers(
    _file: &OpenFile,
    state: &mut State,
    request: &mut Request<'_>,
) -> Result<(), Errno> {
    let queue = state.add_channel(Channel::DevxAnswers)?;
    request.made(attr::devx_async_cmd_fd_alloc::HANDLE, queue.number());
    Ok(())
}

/// Makes a file for events.
pub(crate) fn alloc_events(
    _file: &OpenFile,
    state: &mut State,
    request: &mut Request<'_>,
) -> Result<(), Errno> {
    use attr::devx_async_event_fd_alloc as id;
    let flags = EventFileFlags::from_bits(request.number_u32(id::FLAGS)?).ok_or(Errno::EINVAL)?;
    let omits_event = flags.contains(EventFileFlags::OMIT_DATA);
    let queue = state.add_channel(Channel::DevxEvents { omits_event })?;
    request.made(id::HANDLE, queue.number());
    Ok(())
}

/// Subscribes a file or an eventfd to events of an object, or of the device's ports.
pub(crate) fn subscribe(
    file: &OpenFile,
    state: &mut State,
    request: &mut Request<'_>,
) -> Result<(), Errno> {
    use attr::devx_subscribe_event as id;
    let (queue, omits_event) =
        state.devx_events(request.object(id::FD_HANDLE).ok_or(Errno::EINVAL)?)?;
    uid(state)?;
    let object = match request.handle_if_any(id::OBJ_HANDLE)? {
        Some(handle) => {
            let object = state.objects.devx(handle)?;
            Some((object.kind.create, object.number))
        }
        None => None,
    };
    let redirected = request.has(id::FD_NUM);
    if redirected && request.has(id::COOKIE) {
        return Err(Errno::EINVAL);
    }
    let numbers = request.input(id::TYPE_NUM_LIST)?;
    let (numbers, []) = numbers.as_chunks::<2>() else { return Err(Errno::EINVAL) };
    if numbers.len() > MOST_EVENTS {
        return Err(Errno::EINVAL);
    }
    let kinds: Vec<_> =
        numbers.iter().map(|number| EventType(u16::from_ne_bytes(*number).into())).collect();
    if !kinds.iter().all(|kind| is_offered(*kind, object.is_some())) {
        return Err(Errno::EINVAL);
    }
    let notice = if redirected {
        let fd = request.number_u32(id::FD_NUM)?.cast_signed() as RawFd;
        Notice::EventFd(Arc::new(current::event_fd(fd)?))
    } else {
        Notice::Record { cookie: request.number(id::COOKIE)?, omits_event }
    };
    let mut routes = lock(&file.hca.hub.routes);
    for kind in kinds {
        let (file, notice) = (Arc::clone(&queue), notice.clone());
        routes.devx.add(Subscription { kind, object, file, notice });
    }
    Ok(())
}

/// A query of an object whose answer goes to a file, whatever its status. The firmware answers at
/// once here.
pub(crate) fn obj_query(
    file: &OpenFile,
    state: &mut State,
    request: &mut Request<'_>,
) -> Result<(), Errno> {
    use attr::devx_obj_query_async as id;
    let length = u16::try_from(request.number(id::OUT_LEN)?).map_err(|_| Errno::EINVAL)?;
    let how = OnObject { changes: false, handle: id::HANDLE, input: id::CMD_IN };
    let input = checked(state, request, &how)?;
    let answers =
        state.channel(request.object(id::FD).ok_or(Errno::EINVAL)?, Channel::DevxAnswers)?;
    if answers.waiting(HEADER) + usize::from(length) > MOST_WAITING {
        return Err(Errno::EAGAIN);
    }
    let mut record = request.number(id::WR_ID)?.to_ne_bytes().to_vec();
    record.resize(HEADER + usize::from(length), 0);
    // The answer has the status.
    let _ = file.hca.execute(&input, &mut record[HEADER..]);
    answers.push(&record, None);
    Ok(())
}
