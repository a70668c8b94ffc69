//! The test bed of a case: a device of its own, and ways to wait for it.

use crate::failed::{Failed, Outcome};
use mlx5::{
    CompletionErrorKind, CompletionQueue, Context, CqeSize, Device, OwnedCompletion, PollError,
    Syndrome, devices_on,
};
use mlx5_sim::firmware::Counts;
use mlx5_sim::{SimConfig, Simulator};
use std::cell::Cell;
use std::time::{Duration, Instant};

/// Time limit of every wait: several times as long as a card takes to give up a peer.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);
/// Time that a real device gets to finish, when neither a completion nor an event would report the
/// end.
const QUIET: Duration = Duration::from_millis(20);

/// A port of a device.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) device: Device,
    pub(crate) port: u8,
}

/// A device, with the options that cases may read.
pub(crate) struct Bed {
    device: Device,
    /// The port to use.
    port: u8,
    /// The other end of each pair, if it is on another device or port.
    other: Option<Place>,
    simulator: Option<Simulator>,
    config: SimConfig,
    cqe_size: CqeSize,
    /// Whether [`Bed::verdict`] looks for violations and objects left over.
    clean: Cell<bool>,
    /// Whether a case made the bed for itself.
    own: Cell<bool>,
    /// Acknowledgement timeouts within [`Bed::settle`].
    settled: Cell<u32>,
}

impl Bed {
    /// A simulated fabric of its own.
    pub(crate) fn simulated(config: SimConfig, cqe_size: CqeSize) -> Result<Self, Failed> {
        let simulator = Simulator::new(config.clone());
        let device = devices_on(simulator.kernel())?
            .into_iter()
            .next()
            .ok_or_else(|| Failed::new("the simulated fabric has no device"))?;
        Ok(Self {
            device,
            port: 1,
            other: None,
            simulator: Some(simulator),
            config,
            cqe_size,
            clean: Cell::new(true),
            own: Cell::new(false),
            settled: Cell::new(0),
        })
    }

    /// A bed on another device of the same simulated fabric. The verdict of this bed covers it.
    pub(crate) fn on_device(&self, index: usize) -> Self {
        let devices = self.devices().expect("the fabric lists its devices");
        Self {
            device: devices[index].clone(),
            port: self.port,
            other: None,
            simulator: self.simulator.clone(),
            config: self.config.clone(),
            cqe_size: self.cqe_size,
            clean: Cell::new(false),
            own: Cell::new(false),
            settled: Cell::new(0),
        }
    }

    /// A real device; the other end of each pair is at `other`, or on the same port.
    pub(crate) fn real(here: Place, other: Option<Place>) -> Self {
        Self {
            device: here.device,
            port: here.port,
            other,
            simulator: None,
            config: SimConfig::new(),
            cqe_size: CqeSize::default(),
            clean: Cell::new(true),
            own: Cell::new(false),
            settled: Cell::new(0),
        }
    }

    /// Another bed, with a fabric of its own; `change` changes this bed's configuration for it.
    pub(crate) fn configured(
        &self,
        change: impl FnOnce(SimConfig) -> SimConfig,
    ) -> Result<Self, Failed> {
        assert!(self.is_simulated(), "needs a simulator: the case must say so");
        let bed = Self::simulated(change(self.config.clone()), self.cqe_size)?;
        bed.clean.set(self.clean.get());
        bed.own.set(true);
        Ok(bed)
    }

    /// The device.
    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    /// Every device of the fabric; of a real one, this device alone.
    pub(crate) fn devices(&self) -> Result<Vec<Device>, Failed> {
        match &self.simulator {
            Some(simulator) => Ok(devices_on(simulator.kernel())?),
            None => Ok(vec![self.device.clone()]),
        }
    }

    /// Opens the device once more.
    #[track_caller]
    pub(crate) fn context(&self) -> Context {
        self.device.open().unwrap_or_else(|error| panic!("{error}"))
    }

    /// The port to use.
    pub(crate) fn port(&self) -> u8 {
        self.port
    }

    /// The device and port of a pair's other end.
    pub(crate) fn other(&self) -> Place {
        let here = || Place { device: self.device.clone(), port: self.port };
        self.other.clone().unwrap_or_else(here)
    }

    /// The size of entries that completion queues shall have.
    pub(crate) fn cqe_size(&self) -> CqeSize {
        self.cqe_size
    }

    /// Whether the device is simulated.
    pub(crate) fn is_simulated(&self) -> bool {
        self.simulator.is_some()
    }

    /// The simulator.
    #[track_caller]
    pub(crate) fn simulator(&self) -> &Simulator {
        self.simulator.as_ref().expect("needs a simulator: the case must say so")
    }

    /// The configuration of the fabric.
    pub(crate) fn config(&self) -> &SimConfig {
        &self.config
    }

    /// From now on the case itself checks what it leaves.
    pub(crate) fn leave_dirty(&self) {
        self.clean.set(false);
    }

    /// Does one unit of the simulated device's work, and returns whether there was any. A real
    /// device works by itself.
    pub(crate) fn step(&self) -> bool {
        self.simulator.as_ref().is_some_and(Simulator::step)
    }

    /// Number of acknowledgement timeouts of the simulated devices. On a card each one lasts
    /// `ACK_WAIT` of the plan at least.
    pub(crate) fn ack_timeouts(&self) -> u32 {
        let Some(simulator) = &self.simulator else { return 0 };
        let fabric = simulator.fabric().lock();
        (0..self.config.devices)
            .flat_map(|device| (1..=2).map(move |port| (device, port)))
            .map(|(device, port)| fabric.device(device).retry_counts(port).local_ack_timeout_err)
            .sum()
    }

    /// The part of [`Bed::ack_timeouts`] that passed within [`Bed::settle`].
    pub(crate) fn settled_timeouts(&self) -> u32 {
        self.settled.get()
    }

    /// Lets the device work a little, and returns whether more can come.
    fn advance(&self) -> bool {
        let moved = self.step();
        if !moved {
            std::thread::yield_now();
        }
        moved || !(self.is_simulated() && self.config.step)
    }

    /// Makes the simulated device count from `consumed` at a new completion queue, as the queue
    /// does.
    pub(crate) fn count_on(&self, cq: &CompletionQueue, consumed: u32) {
        if consumed != 0 {
            let mut fabric = self.simulator().fabric().lock();
            assert!(fabric.device_mut(0).set_cq_progress(cq.cqn(), consumed), "a new queue");
        }
    }

    /// Waits until all work is done. Only a simulated device knows when that is; a real one gets 20
    /// ms, which prove nothing. Use [`Bed::until`] or [`Bed::poll`] to wait for what must come,
    /// unless it has to wait in a queue together with more.
    pub(crate) fn settle(&self) {
        match &self.simulator {
            Some(simulator) => {
                let before = self.ack_timeouts();
                simulator.run_until_idle();
                self.settled.set(self.settled.get() + self.ack_timeouts() - before);
            }
            None => {
                let start = Instant::now();
                while start.elapsed() < QUIET {
                    std::thread::yield_now();
                }
            }
        }
    }

    /// Waits until `done` returns true.
    ///
    /// # Panics If it does not in time, or if a stepped device has no more work before.
    #[track_caller]
    pub(crate) fn until(&self, what: &str, mut done: impl FnMut() -> bool) {
        let start = Instant::now();
        while !done() {
            if !self.advance() {
                assert!(done(), "the device stands still, but not yet: {what}");
                return;
            }
            assert!(start.elapsed() < DEADLINE, "not in time: {what}");
        }
    }

    /// Waits for the next `count` completions.
    ///
    /// If they do not come in time; the message lists those that came.
    #[track_caller]
    pub(crate) fn poll(&self, cq: &mut CompletionQueue, count: usize) -> Vec<OwnedCompletion> {
        let start = Instant::now();
        let mut found = Vec::with_capacity(count);
        let mut idle = false;
        while found.len() < count {
            let polled = cq
                .poll(count - found.len(), |completion| found.push(completion.to_owned()))
                .unwrap_or_else(|error| panic!("{error}, after {found:?}"));
            if polled == 0 {
                assert!(
                    !idle && start.elapsed() < DEADLINE,
                    "{} of {count} completions came: {found:?}",
                    found.len()
                );
                idle = !self.advance();
            }
        }
        found
    }

    /// Waits for the next `count` completions, which must all be successful.
    #[track_caller]
    pub(crate) fn poll_good(&self, cq: &mut CompletionQueue, count: usize) -> Vec<OwnedCompletion> {
        let found = self.poll(cq, count);
        for completion in &found {
            let completion = completion.as_completion();
            if let Err(error) = completion.status() {
                panic!("request {} failed: {error}", completion.wr_id());
            }
        }
        found
    }

    /// Waits for the next completion.
    #[track_caller]
    pub(crate) fn poll_one(&self, cq: &mut CompletionQueue) -> OwnedCompletion {
        self.poll(cq, 1)[0]
    }

    /// Polls until the queue returns an error.
    #[track_caller]
    pub(crate) fn poll_err(&self, cq: &mut CompletionQueue) -> PollError {
        let mut error = None;
        self.until("an error of the completion queue", || {
            error = cq.poll(16, |_| {}).err();
            error.is_some()
        });
        error.expect("found")
    }

    /// Checks that a completion queue stays empty until all work is done.
    #[track_caller]
    pub(crate) fn nothing(&self, cq: &mut CompletionQueue) {
        self.settle();
        self.nothing_yet(cq);
    }

    /// Checks that a completion queue is empty now.
    #[track_caller]
    pub(crate) fn nothing_yet(&self, cq: &mut CompletionQueue) {
        let mut found = Vec::new();
        cq.poll(16, |completion| found.push(completion.to_owned()))
            .unwrap_or_else(|error| panic!("{error}"));
        assert!(found.is_empty(), "nothing should come, but there is {found:?}");
    }

    /// The simulated devices' verdict at the end of a case: no driver broke a rule, and no object
    /// is left over.
    pub(crate) fn verdict(&self) -> Outcome {
        let Some(simulator) = self.simulator.as_ref().filter(|_| self.clean.get()) else {
            return Ok(());
        };
        let violations = simulator.violations();
        if !violations.is_empty() {
            return Err(Failed::new(format!("the device saw violations: {violations:?}")));
        }
        for device in 0..self.config.devices {
            let counts = simulator.object_counts(device);
            if counts != Counts::default() {
                return Err(Failed::new(format!("device {device} is left with {counts:?}")));
            }
        }
        Ok(())
    }
}

impl Drop for Bed {
    /// The runner asks for the verdict of the beds that it made. Dropping a bed that a case made
    /// checks its verdict here.
    fn drop(&mut self) {
        if self.own.get()
            && !std::thread::panicking()
            && let Err(verdict) = self.verdict()
        {
            panic!("{verdict}");
        }
    }
}

/// The error of a completion's request, if it failed.
#[track_caller]
pub(crate) fn syndrome(completion: &OwnedCompletion) -> Option<Syndrome> {
    match completion.as_completion().status().err()?.kind {
        CompletionErrorKind::Known(syndrome) => Some(syndrome),
        CompletionErrorKind::Unknown(code) => {
            panic!("a code that the PRM does not have: {code:#x}")
        }
        other => panic!("no failure of a request: {other:?}"),
    }
}

/// The identifiers of completions, in order.
pub(crate) fn wr_ids(completions: &[OwnedCompletion]) -> Vec<u64> {
    completions.iter().map(|completion| completion.as_completion().wr_id()).collect()
}

/// The identifiers of completions, which must all be of flushed requests.
#[track_caller]
pub(crate) fn flushed(completions: &[OwnedCompletion]) -> Vec<u64> {
    for completion in completions {
        assert_eq!(syndrome(completion), Some(Syndrome::WorkRequestFlushed), "{completion:?}");
    }
    wr_ids(completions)
}
