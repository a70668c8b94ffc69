//! Asynchronous events of objects, ports and the device.

use crate::{
    context::{Context, Inner},
    error::Error,
    link::{CqId, QpId, SrqId, WqId, closed, wait_for},
};
use mlx5_uapi::{
    Errno,
    cmd::event,
    verbs::{AsyncEventDesc, EventType},
};
use std::{
    fmt,
    os::fd::{AsFd, BorrowedFd},
    sync::{Arc, Weak},
    time::Duration,
};

/// One event per line: the kernel's name, the variant, the identifier of the object.
macro_rules! events {
    ($($(#[$doc:meta])* $kernel:ident => $name:ident($id:ident);)*) => {
        /// An asynchronous event (`struct ibv_async_event`).
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[non_exhaustive]
        pub enum AsyncEvent {
            $($(#[$doc])* $name(events!(@type $id)),)*
            /// The device failed or was removed. No operation on it succeeds any more.
            DeviceFatal,
            /// An event type that this driver does not know.
            Unknown {
                /// The kernel's number (`enum ib_event_type`).
                event_type: u32,
                /// The object: the identifier of a queue, or a port.
                element: u64,
            },
        }

        impl AsyncEvent {
            fn from_kernel(event: &AsyncEventDesc) -> Self {
                let element = event.element;
                match EventType::from_raw(event.event_type) {
                    $(Some(EventType::$kernel) => Self::$name(events!(@make $id, element)),)*
                    Some(EventType::DeviceFatal) => Self::DeviceFatal,
                    _ => Self::Unknown { event_type: event.event_type, element },
                }
            }
        }
    };
    (@type port) => { u32 };
    (@type $id:ident) => { $id };
    (@make port, $element:ident) => { $element as u32 };
    (@make $id:ident, $element:ident) => { $id($element) };
}

events! {
    /// A completion queue overran, or the device could not write to it. It gets no more CQEs.
    CqError => CqError(CqId);
    /// A queue pair failed and moved to the error state.
    QpFatal => QpFatal(QpId);
    /// The remote side sent an invalid request; the queue pair moved to the error state.
    QpRequestError => QpRequestError(QpId);
    /// The remote side accessed memory without the right to do so; the queue pair moved to the
    /// error state.
    QpAccessError => QpAccessError(QpId);
    /// The first message arrived before the queue pair was moved to RTS.
    CommunicationEstablished => CommunicationEstablished(QpId);
    /// The send queue has drained: everything that it began is complete.
    SqDrained => SqDrained(QpId);
    /// A queue pair moved to its alternate path.
    PathMigrated => PathMigrated(QpId);
    /// A queue pair could not move to its alternate path.
    PathMigrationError => PathMigrationError(QpId);
    /// A queue pair in the error state took its last WQE from its shared receive queue.
    QpLastWqeReached => QpLastWqeReached(QpId);
    /// A shared receive queue failed.
    SrqError => SrqError(SrqId);
    /// A shared receive queue has fewer WQEs left than its limit. The event disarms the limit.
    SrqLimitReached => SrqLimitReached(SrqId);
    /// A work queue failed and moved to the error state.
    WqFatal => WqFatal(WqId);
    /// A port became active.
    PortActive => PortActive(port);
    /// A port went down.
    PortError => PortError(port);
    /// A port's LID changed.
    LidChange => LidChange(port);
    /// A port's P_Key table changed.
    PkeyChange => PkeyChange(port);
    /// A port's subnet manager changed.
    SmChange => SmChange(port);
    /// A port's GID table changed.
    GidChange => GidChange(port);
    /// The subnet manager requests that subscriptions be registered again.
    ClientReregister => ClientReregister(port);
}

const VERB: &str = "get_async_event";

impl Context {
    /// Returns a handle to the context's asynchronous events. All handles read from one file: only
    /// one of them gets each event.
    pub fn async_events(&self) -> AsyncEvents {
        AsyncEvents { context: Arc::clone(&self.inner) }
    }
}

/// The source of asynchronous events (`ibv_get_async_event`). Events need no acknowledgement.
///
/// The descriptor ([`AsFd`]) is readable while an event is pending.
///
/// ```no_run
/// # fn f(context: &mlx5::Context) -> Result<(), mlx5::Error> {
/// use mlx5::AsyncEvent;
/// let events = context.async_events();
/// while let Some(event) = events.wait(None)? {
///     match event {
///         AsyncEvent::SqDrained(qp) => println!("{qp:?}: look for what failed"),
///         AsyncEvent::DeviceFatal => break,
///         other => println!("{other:?}"),
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct AsyncEvents {
    context: Arc<Inner>,
}

impl fmt::Debug for AsyncEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncEvents")
            .field("device", &self.context.info.name)
            .finish_non_exhaustive()
    }
}

impl AsyncEvents {
    /// Returns the next event, if one is pending.
    pub fn next(&self) -> Result<Option<AsyncEvent>, Error> {
        let context = &self.context;
        context.check_process(VERB)?;
        taken(context, event::next_async(&*context.async_file))
    }

    /// Returns the same source for threads that read its file themselves and may block there (the
    /// caller sets the descriptor's flags), while another thread closes the device. It keeps
    /// neither the file nor the device open.
    pub fn detach(&self) -> DetachedEvents {
        DetachedEvents { context: Arc::downgrade(&self.context) }
    }

    /// Waits for the next event, without limit if `timeout` is `None`. Returns `None` on timeout.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<Option<AsyncEvent>, Error> {
        wait_for(&self.context, VERB, self.as_fd(), timeout, || self.next())
    }
}

impl AsFd for AsyncEvents {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.context.async_fd()
    }
}

/// The source of asynchronous events, without its context. See [`AsyncEvents::detach`].
pub struct DetachedEvents {
    context: Weak<Inner>,
}

impl fmt::Debug for DetachedEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DetachedEvents").finish_non_exhaustive()
    }
}

impl DetachedEvents {
    /// Fails in a forked child, which must not read its parent's file.
    pub fn check(&self) -> Result<(), Error> {
        self.context.upgrade().map_or(Ok(()), |context| context.check_process(VERB))
    }

    /// Converts the result of a read from the file, `Ok(None)` for no event. Once the context is
    /// closed, fails with the kernel's error, or with `EBADF` if there is none.
    pub fn take(
        &self,
        read: Result<Option<AsyncEventDesc>, Errno>,
    ) -> Result<Option<AsyncEvent>, Error> {
        match self.context.upgrade() {
            Some(context) => taken(&context, read),
            None => Err(Error::kernel(VERB, read.err().unwrap_or(Errno::EBADF))),
        }
    }
}

/// Converts the result of a read, after the driver has handled events that concern it.
fn taken(
    context: &Inner,
    read: Result<Option<AsyncEventDesc>, Errno>,
) -> Result<Option<AsyncEvent>, Error> {
    match read {
        Ok(Some(event)) => {
            let event = AsyncEvent::from_kernel(&event);
            match event {
                AsyncEvent::DeviceFatal => context.mark_gone(),
                AsyncEvent::CqError(cq) => context.mark_overrun(cq),
                _ => {}
            }
            Ok(Some(event))
        }
        Ok(None) => {
            // A device that is gone reports no more events.
            context.check(VERB)?;
            Ok(None)
        }
        Err(errno) => Err(closed(context, VERB, errno)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: EventType, element: u64) -> AsyncEvent {
        let event_type = kind.raw();
        AsyncEvent::from_kernel(&AsyncEventDesc {
            element,
            event_type,
            ..AsyncEventDesc::default()
        })
    }

    #[test]
    fn an_event_names_the_object_that_it_is_about() {
        assert_eq!(event(EventType::CqError, 7), AsyncEvent::CqError(CqId(7)));
        assert_eq!(event(EventType::SqDrained, 8), AsyncEvent::SqDrained(QpId(8)));
        assert_eq!(event(EventType::SrqLimitReached, 9), AsyncEvent::SrqLimitReached(SrqId(9)));
        assert_eq!(event(EventType::PortActive, 1), AsyncEvent::PortActive(1));
        assert_eq!(event(EventType::DeviceFatal, 0), AsyncEvent::DeviceFatal);
    }

    #[test]
    fn an_event_of_the_future_is_handed_on_as_it_is() {
        let raw = AsyncEventDesc { element: 5, event_type: 77, ..AsyncEventDesc::default() };
        let unknown = AsyncEvent::Unknown { event_type: 77, element: 5 };
        assert_eq!(AsyncEvent::from_kernel(&raw), unknown);
    }
}
