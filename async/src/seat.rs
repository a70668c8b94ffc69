//! Queue pairs of a hub that are not connected yet.

use std::fmt;
use std::io::{self, Read, Write};

use mlx5::{
    ConnectOptions, Connected, LocalPort, QueuePair, QueuePairLife, QueuePairTransport, Sge,
};

use crate::error::{Ended, Refused};
use crate::queue_pair::AsyncQueuePair;
use crate::shared::{Handles, Shared};

/// A queue pair with a place in a hub, before it is connected, so that receives for the peer's
/// first messages can be posted.
///
/// ```
/// # use mlx5::{ConnectOptions, Psn, transport::Rc};
/// # use mlx5_async::Hub;
/// # fn f(hub: &Hub, pd: &mlx5::ProtectionDomain, port: &mlx5::LocalPort, peer: &mlx5::Endpoint)
/// #     -> Result<(), Box<dyn std::error::Error>> {
/// let options = ConnectOptions::default();
/// let mut seat = hub.reserve(hub.create_qp::<Rc>(pd).build()?)?;
/// seat.with(|qp| qp.init(port, &options))??;
/// let inbox = pd.allocate(64)?;
/// seat.post_recv((), inbox.whole()?)?;
/// seat.with(|qp| qp.connect(port, Psn::default(), peer, &options))??;
/// let qp = seat.adopt();
/// # let _ = qp;
/// # Ok(())
/// # }
/// ```
///
/// Dropping it closes the queue pair; posted requests keep their values until they are flushed.
#[must_use = "a seat waits for `Seat::adopt`"]
pub struct Seat<T: QueuePairTransport, K> {
    pub(crate) handles: Handles<T, K>,
    /// Another queue pair, which was returned instead of the seat's own.
    other: Option<QueuePair<T>>,
}

impl<T: QueuePairTransport, K> fmt::Debug for Seat<T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seat").field("qp_num", &self.handles.0.qp_num()).finish_non_exhaustive()
    }
}

impl<T: QueuePairTransport, K> Seat<T, K> {
    pub(crate) fn new(handles: Handles<T, K>) -> Self {
        Self { handles, other: None }
    }

    /// Runs `work` on the queue pair. Fails if the queue pair could not be flushed when the hub was
    /// shut down, and was destroyed; and with [`Ended::Elsewhere`] if `work` leaves another queue
    /// pair in its place: see [`Seat::with_owned`].
    ///
    /// Do not reset it with receives posted: a reset forgets them, and they never complete. If a
    /// queue pair is closed in this state, it is destroyed, and they fail with
    /// [`Ended::Destroyed`]; if it was reset and connected again, it waits for them forever.
    pub fn with<R>(&mut self, work: impl FnOnce(&mut QueuePair<T>) -> R) -> Result<R, Ended> {
        self.with_owned(|mut qp| {
            let done = work(&mut qp);
            (qp, done)
        })
    }

    /// Passes the queue pair by value to `work`, for example to a connection manager, and takes it
    /// back. Fails as [`Seat::with`] does.
    ///
    /// If `work` returns another queue pair although that of the seat still exists, the call fails
    /// with [`Ended::Elsewhere`], and the result of `work` is dropped. The seat keeps both: the
    /// next call passes the other queue pair to `work`, which may then return the right one. Posted
    /// requests keep their values until they complete, or until the hub ends.
    pub fn with_owned<R>(
        &mut self,
        work: impl FnOnce(QueuePair<T>) -> (QueuePair<T>, R),
    ) -> Result<R, Ended> {
        let shared = &*self.handles.0;
        let (qp, own) = match (self.other.take(), shared.away()) {
            (_, Some(own)) if own.is_over() => {
                shared.give_back(None, &own);
                return Err(Ended::Destroyed);
            }
            (Some(other), Some(own)) => (other, own),
            _ => {
                let Some(qp) = shared.qp().take() else { return Err(shared.absent()) };
                let own = qp.life();
                (qp, own)
            }
        };
        let mut borrowed = Borrowed { shared, own, qp: None };
        let (qp, done) = work(qp);
        if borrowed.own.is_of(&qp) {
            borrowed.qp = Some(qp);
            return Ok(done);
        }
        if borrowed.own.is_over() {
            return Ok(done);
        }
        // The queue pair may be part of it.
        drop(done);
        self.other = Some(qp);
        drop(borrowed);
        Err(shared.absent())
    }

    /// Posts a receive request, whose completion goes to [`AsyncQueuePair::receives`].
    pub fn post_recv(&self, keep: K, sge: Sge) -> Result<(), Refused<K>> {
        self.handles.0.try_post_recv(keep, sge)
    }

    /// Connects the queue pair to that of a peer at the other end of `stream`, as
    /// [`QueuePair::connect_over`] does, and makes it a queue pair whose requests are awaited. The
    /// hub has it before the peer can send, so no message of the peer is missed. To have receives
    /// for these messages, bring the queue pair to INIT ([`Seat::with`], [`QueuePair::init`]) and
    /// post them before.
    ///
    /// It blocks until the peer has connected.
    ///
    /// # Errors
    /// Those of [`QueuePair::connect_over`]. The queue pair is closed then.
    pub fn connect_over(
        mut self,
        stream: impl Read + Write,
        port: &LocalPort,
        options: &ConnectOptions,
    ) -> io::Result<AsyncQueuePair<T, K>>
    where
        T: Connected,
    {
        let connected = self.with(|qp| qp.connect_over(stream, port, options));
        connected.map_err(io::Error::other)??;
        Ok(self.adopt())
    }

    /// Converts the seat to a queue pair whose requests are awaited.
    pub fn adopt(self) -> AsyncQueuePair<T, K> {
        AsyncQueuePair::new(self.handles)
    }
}

/// A queue pair that is out of its seat. Dropping this records its return or its absence.
struct Borrowed<'a, T: QueuePairTransport, K> {
    shared: &'a Shared<T, K>,
    own: QueuePairLife,
    /// None if it was not returned: `work` panicked, or returned another.
    qp: Option<QueuePair<T>>,
}

impl<T: QueuePairTransport, K> Drop for Borrowed<'_, T, K> {
    fn drop(&mut self) {
        self.shared.give_back(self.qp.take(), &self.own);
    }
}
