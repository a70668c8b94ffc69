//! The pump: it passes completions to the tasks that wait for them.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::hint;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mlx5::{AsyncEvents, CompletionChannel, CompletionQueue, Errno, PollError};
use mlx5_uapi::wait::{Timer, WaitSet, wait_readable};

use crate::error::Ended;
use crate::registry::{Name, Queue, Registry, Route};
use crate::wakes::Wakes;

/// Completions that one step polls.
const TURN: usize = 64;
/// Default time that a pump waits for the device after the hub is shut down.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
/// Turns between two checks of the device's events while a pump does not sleep, because it spins or
/// finds completions in every turn.
const LOOK_EVERY: u32 = if cfg!(test) { 4 } else { 1 << 12 };

/// Passes completions to the tasks that wait for them. Each hub has one pump, which runs in one of
/// these ways:
///
/// * `drive`, with the feature `tokio`: a task, which sleeps while nothing completes.
/// * [`Pump::run`]: a thread, which sleeps while nothing completes. It serves any executor.
/// * [`Pump::spin`]: a thread that polls without a pause and wakes the tasks. It has the lowest
///   latency, and needs a processor of its own.
/// * [`Pump::step`] and the pump's descriptor, for the event loop of another runtime.
///
/// It ends after [`Hub::shutdown`](crate::Hub::shutdown), when everything has completed, or with
/// [`PumpError::TimedOut`] if that takes too long. If it is dropped before, every request that has
/// not completed fails with [`Ended::NoPump`].
pub struct Pump {
    cq: CompletionQueue,
    channel: CompletionChannel,
    events: AsyncEvents,
    /// Starts when the hub is shut down.
    timer: Timer,
    /// The descriptors above, and the registry's.
    set: WaitSet,
    registry: Arc<Registry>,
    routes: Routes,
    /// Queue pairs to drain, and the number of completions that may have been queued before theirs.
    draining: Option<(Vec<u32>, usize)>,
    wakes: Wakes,
    /// Turns until the next check of the events, even if every turn finds completions; zero after
    /// the pump waited for its descriptor.
    until_look: u32,
    shutdown_timeout: Duration,
    /// Time at which the pump ends even if requests are posted; set once the hub is shut down.
    end_at: Option<Instant>,
    ended: bool,
}

/// The caller's next step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// There may be more completions: call [`Pump::step`] again.
    Again,
    /// Everything was polled, and the next completion makes the descriptor readable: wait for it,
    /// and call [`Pump::step`] again.
    Wait,
    /// The hub was shut down, and everything has completed.
    Stopped,
}

/// The pump's cache of queues. Numbers are not reused soon, so the last entry is valid while no
/// queue was removed. It keeps a shared receive queue for one turn only: its last handle destroys
/// the queue, whatever the pump does.
#[derive(Default)]
struct Routes {
    known: HashMap<u32, Queue>,
    last: Option<(u32, Arc<dyn Route>)>,
    /// The shared receive queues of this turn: none may be destroyed during a poll.
    receives: Vec<Arc<dyn Route>>,
    removed: u64,
}

impl Routes {
    fn get(&mut self, registry: &Registry, number: u32) -> Option<&Arc<dyn Route>> {
        if self.last.as_ref().is_none_or(|(last, _)| *last != number) {
            let queue = match self.known.entry(number) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(place) => place.insert(registry.get(number)?),
            };
            let route = queue.route()?;
            if matches!(queue, Queue::Receives(..)) {
                self.receives.push(Arc::clone(&route));
            }
            self.last = Some((number, route));
        }
        self.last.as_ref().map(|(_, route)| route)
    }

    /// Clears the cache if a queue was removed.
    fn refresh(&mut self, removed: u64) {
        if self.removed != removed {
            *self = Self { removed, ..Self::default() };
        }
    }

    fn end_turn(&mut self) {
        if !self.receives.is_empty() {
            self.last = None;
            self.receives.clear();
        }
    }
}

impl Pump {
    pub(crate) fn new(
        context: &mlx5::Context,
        channel: CompletionChannel,
        cq: CompletionQueue,
    ) -> Result<Self, PumpError> {
        let failed = |errno: Errno| PumpError::Wait(errno.into());
        let registry = Arc::new(Registry::new().map_err(PumpError::Wait)?);
        let events = context.async_events();
        let timer = Timer::new().map_err(failed)?;
        let set = WaitSet::new().map_err(failed)?;
        for fd in [channel.as_fd(), events.as_fd(), registry.nudge_fd(), timer.as_fd()] {
            set.add(fd).map_err(failed)?;
        }
        let (routes, wakes) = (Routes::default(), Wakes::with_capacity(4 * TURN));
        Ok(Self {
            cq,
            channel,
            events,
            timer,
            set,
            registry,
            routes,
            draining: None,
            wakes,
            until_look: 0,
            shutdown_timeout: DEFAULT_TIMEOUT,
            end_at: None,
            ended: false,
        })
    }

    /// Sets how long the pump waits, after [`Hub::shutdown`](crate::Hub::shutdown), until the
    /// device has completed the posted requests. Default: [`DEFAULT_TIMEOUT`].
    ///
    /// After that the pump ends with [`PumpError::TimedOut`], and each request fails with
    /// [`Ended::TimedOut`]. Its kept value stays until the queue pair is destroyed, with the last
    /// handle: until then the device may use its memory.
    #[must_use]
    pub fn shutdown_timeout(mut self, timeout: Duration) -> Self {
        self.shutdown_timeout = timeout;
        self
    }

    pub(crate) fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    /// Polls up to 64 completions and passes them to the tasks that wait for them. If there are
    /// none, arms the completion queue and polls once more.
    ///
    /// After an error the pump has ended: each request that has not completed fails.
    pub fn step(&mut self) -> Result<Step, PumpError> {
        self.look()?;
        // Drains requested during another drain start in the next turn: the nudge for them may have
        // been consumed already.
        if self.turn()? > 0 || self.registry.has_draining() {
            return Ok(Step::Again);
        }
        if self.has_stopped()? {
            return Ok(Step::Stopped);
        }
        self.arm()
    }

    /// Whether the hub was shut down and everything has completed. Fails if that takes too long.
    /// The caller has just polled and found no completion.
    fn has_stopped(&mut self) -> Result<bool, PumpError> {
        if !self.registry.is_stopping() {
            return Ok(false);
        }
        if !self.registry.has_pairs() {
            self.end(Ended::Closed);
            return Ok(true);
        }
        let now = Instant::now();
        match self.end_at {
            Some(end) if now >= end => {
                self.end(Ended::TimedOut);
                return Err(PumpError::TimedOut(self.shutdown_timeout));
            }
            Some(_) => {}
            None => {
                // No limit if the time is too far away.
                self.end_at = now.checked_add(self.shutdown_timeout);
                if let Err(errno) = self.timer.set(self.shutdown_timeout) {
                    self.end(Ended::NoPump);
                    return Err(PumpError::Wait(errno.into()));
                }
            }
        }
        Ok(false)
    }

    /// Arms the completion queue, and polls once more: a completion that arrived before need not
    /// generate an event.
    fn arm(&mut self) -> Result<Step, PumpError> {
        if let Err(error) = self.cq.arm(false) {
            return Err(self.fail(error));
        }
        if self.cq.is_ready() {
            return Ok(Step::Again);
        }
        // Only now: each later completion generates an event, and so another step.
        self.registry.take_discarded(&mut self.wakes);
        self.until_look = 0;
        Ok(Step::Wait)
    }

    /// Polls completions and passes them to the tasks that wait for them.
    fn turn(&mut self) -> Result<usize, PumpError> {
        let Self { cq, registry, routes, wakes, .. } = self;
        routes.refresh(registry.removed());
        // Start the drain before polling, so that the poll finds the messages that the queue pairs
        // received.
        if self.draining.is_none()
            && let Some(numbers) = registry.take_draining()
        {
            self.draining = Some((numbers, cq.capacity() as usize));
        }
        let polled = cq.poll(TURN, |completion| {
            let name = Name::of(completion.wr_id());
            let over = routes.get(registry, name.queue).and_then(|route| {
                let over = route.complete(name, &completion, wakes)?;
                Some(over.then(|| route.completions()))
            });
            match over {
                None => registry.note_stray(),
                Some(None) => {}
                Some(Some(completions)) => registry.remove(name.queue, completions),
            }
        });
        wakes.wake();
        routes.end_turn();
        let polled = polled.map_err(|error| self.lost(error))?;
        self.drain(polled);
        Ok(polled)
    }

    /// Notifies the queue pairs to drain once every completion that was queued before has been
    /// polled: the completion queue is empty, or as many completions were polled as it holds.
    fn drain(&mut self, polled: usize) {
        let Some((_, left)) = &mut self.draining else { return };
        *left = left.saturating_sub(polled);
        if polled > 0 && *left > 0 {
            return;
        }
        for number in self.draining.take().into_iter().flat_map(|(numbers, _)| numbers) {
            if let Some(route) = self.registry.get(number).and_then(|queue| queue.route()) {
                route.note_drained(&mut self.wakes);
            }
        }
        // Destroy the queue pairs that are over.
        self.routes.refresh(self.registry.removed());
        self.wakes.wake();
    }

    /// Reads the events, if their turn has come.
    fn look(&mut self) -> Result<(), PumpError> {
        match self.until_look.checked_sub(1) {
            Some(left) => self.until_look = left,
            None => {
                self.until_look = LOOK_EVERY;
                self.registry.take_discarded(&mut self.wakes);
                self.take_events()?;
            }
        }
        Ok(())
    }

    /// Reads the events that made the descriptor readable.
    fn take_events(&mut self) -> Result<(), PumpError> {
        self.registry.take_nudge();
        let mut read = || -> Result<(), mlx5::Error> {
            while let Some(event) = self.events.next()? {
                let mut events = self.registry.events();
                if events.streams > 0 {
                    events.pending.push_back(event);
                }
                events.waiting.wake(&mut self.wakes);
                drop(events);
                self.wakes.wake();
            }
            while self.channel.get_event()?.is_some() {}
            Ok(())
        };
        match read() {
            Ok(()) => Ok(()),
            // The completion queue returns the remaining completions, and then the reason.
            Err(_) if self.cq.is_ready() => Ok(()),
            Err(error) => Err(self.fail(error)),
        }
    }

    fn lost(&mut self, error: PollError) -> PumpError {
        self.end(Ended::Poll(error));
        PumpError::Poll(error)
    }

    fn fail(&mut self, error: mlx5::Error) -> PumpError {
        self.end(Ended::NoPump);
        PumpError::Driver(error)
    }

    fn end(&mut self, end: Ended) {
        if !std::mem::replace(&mut self.ended, true) {
            self.routes = Routes::default();
            self.registry.end(end);
        }
    }

    /// Runs until the hub is shut down. Sleeps while nothing completes.
    pub fn run(mut self) -> Result<(), PumpError> {
        loop {
            match self.step()? {
                Step::Again => {}
                Step::Stopped => return Ok(()),
                Step::Wait => {
                    wait_readable(self.set.as_fd(), None)
                        .map_err(|errno| PumpError::Wait(errno.into()))?;
                }
            }
        }
    }

    /// Runs until the hub is shut down, and polls without a pause.
    pub fn spin(mut self) -> Result<(), PumpError> {
        loop {
            self.look()?;
            if self.turn()? > 0 {
                continue;
            }
            if self.has_stopped()? {
                return Ok(());
            }
            hint::spin_loop();
        }
    }
}

/// Readable while [`Pump::step`] has work, after it has returned [`Step::Wait`].
impl AsFd for Pump {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.set.as_fd()
    }
}

impl Drop for Pump {
    fn drop(&mut self) {
        self.end(Ended::NoPump);
    }
}

impl fmt::Debug for Pump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pump")
            .field("cq", &self.cq)
            .field("shutdown_timeout", &self.shutdown_timeout)
            .finish_non_exhaustive()
    }
}

/// The reason why a hub could not be created, or why its pump ended other than by
/// [`Hub::shutdown`](crate::Hub::shutdown).
#[derive(Debug)]
#[non_exhaustive]
pub enum PumpError {
    /// The completion queue cannot be polled any more.
    Poll(PollError),
    /// A call of the driver failed.
    Driver(mlx5::Error),
    /// The descriptor cannot be waited for.
    Wait(io::Error),
    /// When the hub was shut down, the device did not complete the posted requests within this
    /// time. See [`Pump::shutdown_timeout`].
    TimedOut(Duration),
}

impl fmt::Display for PumpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Poll(error) => error.fmt(f),
            Self::Driver(error) => error.fmt(f),
            Self::Wait(error) => write!(
                f,
                "the pump cannot wait for its descriptors: {error}; if the process has too many \
                 open files, raise RLIMIT_NOFILE"
            ),
            Self::TimedOut(limit) => write!(
                f,
                "the hub was shut down, and the device did not complete within {limit:?} what was \
                 posted: drop the queue pairs, which makes it forget them, or set a longer \
                 `shutdown_timeout`"
            ),
        }
    }
}

impl std::error::Error for PumpError {}

#[cfg(test)]
mod tests;
