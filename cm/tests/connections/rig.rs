//! Shared parts of the tests: a machine, and the objects of one end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use mlx5::transport::Rc;
use mlx5::{
    CompletionQueue, Device, Kernel, MemoryRegion, ProtectionDomain, QueuePair, ReceiveWr,
    SendFlags,
};
use mlx5_cm::{
    Connection, ConnectionFailed, Error, EventChannel, EventKind, Id, Listener, PortSpace,
    connect_on,
};
use mlx5_sim::{CmConfig, CmCounts, PortConfig, SimConfig, Simulator};

pub(crate) const ADDRESS: &str = "10.0.0.1:7471";
/// Time limit of every wait, far longer than any takes.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

pub(crate) fn address() -> SocketAddr {
    ADDRESS.parse().expect("an address")
}

/// A machine whose connection manager retries soon.
pub(crate) struct Machine {
    pub(crate) simulator: Simulator,
}

impl Machine {
    /// The manager gives up only after the test has: the system may not run the threads for a long
    /// time.
    pub(crate) fn new(port: PortConfig) -> Self {
        Self::with_retries(port, 10_000)
    }

    /// A machine that gives up soon, for tests without an answer.
    pub(crate) fn impatient() -> Self {
        Self::with_retries(PortConfig::ROCE, 3)
    }

    /// A machine in virtual time, which stands still.
    pub(crate) fn stepped() -> Self {
        Self { simulator: Simulator::new(Self::config(PortConfig::ROCE, 3).step(true)) }
    }

    /// A machine with a configuration.
    pub(crate) fn of(config: SimConfig) -> Self {
        Self { simulator: Simulator::new(config) }
    }

    fn with_retries(port: PortConfig, retries: u32) -> Self {
        Self { simulator: Simulator::new(Self::config(port, retries)) }
    }

    pub(crate) fn config(port: PortConfig, retries: u32) -> SimConfig {
        let cm = CmConfig { response_ms: 20, retries, timewait_ms: 1 };
        SimConfig::new().ports([port]).cm(cm)
    }

    pub(crate) fn roce() -> Self {
        Self::new(PortConfig::ROCE)
    }

    pub(crate) fn kernel(&self) -> Arc<dyn Kernel> {
        self.simulator.kernel()
    }

    pub(crate) fn channel(&self) -> EventChannel {
        EventChannel::open_on(self.kernel()).expect("a channel")
    }

    pub(crate) fn listener(&self) -> Listener {
        Listener::bind_on(self.kernel(), ADDRESS).expect("a listener")
    }

    pub(crate) fn device(&self) -> Device {
        mlx5::devices_on(self.kernel()).expect("devices").remove(0)
    }

    /// Connects an end of this thread to one that a listener accepts in another.
    pub(crate) fn connected(&self) -> [(Connection, Objects); 2] {
        let mut listener = self.listener();
        thread::scope(|scope| {
            let server = scope.spawn(move || {
                let request = listener.next(Some(LIMIT)).expect("a request");
                let (objects, mut qp) = Objects::new(&request.device().expect("a device"));
                request.init(&mut qp).expect("INIT");
                objects.post(&mut qp);
                let accepted = request.timeout(LIMIT).accept(qp, b"welcome");
                (accepted.expect("accepted"), objects)
            });
            let client = self.client(b"hello").expect("connected");
            [client, server.join().expect("the server")]
        })
    }

    /// Connects to the listener.
    pub(crate) fn client(&self, data: &[u8]) -> Result<(Connection, Objects), Failed> {
        let peer = connect_on(self.kernel(), ADDRESS).map_err(Failed::Unresolved)?;
        let (objects, mut qp) = Objects::new(&peer.device().expect("a device"));
        peer.init(&mut qp).expect("INIT");
        objects.post(&mut qp);
        let connection = peer.timeout(LIMIT).connect(qp, data).map_err(Failed::Refused)?;
        Ok((connection, objects))
    }

    /// Checks that no object is left, and that no driver violated the device's rules.
    #[track_caller]
    pub(crate) fn end(self) {
        assert_eq!(self.simulator.cm_counts(), CmCounts::default());
        for device in 0..self.simulator.config().devices {
            assert_eq!(self.simulator.object_counts(device), Default::default());
        }
        assert_eq!(self.simulator.violations(), []);
    }
}

/// The reason why a client is not connected.
#[derive(Debug)]
pub(crate) enum Failed {
    Unresolved(Error),
    Refused(ConnectionFailed),
}

impl Failed {
    pub(crate) fn error(&self) -> &Error {
        match self {
            Self::Unresolved(error) => error,
            Self::Refused(failed) => failed.error(),
        }
    }
}

/// The objects that a queue pair needs.
#[derive(Debug)]
pub(crate) struct Objects {
    pub(crate) pd: ProtectionDomain,
    pub(crate) cq: CompletionQueue,
    pub(crate) memory: MemoryRegion,
}

/// `wr_id` of the receive.
const RECEIVE: u64 = 1;
/// Offset of the messages to send; received messages are before it.
const OUTBOX: usize = 64;

impl Objects {
    pub(crate) fn new(device: &Device) -> (Self, QueuePair<Rc>) {
        let context = device.open().expect("a context");
        let pd = context.alloc_pd().expect("a domain");
        let cq = context.create_cq(16).build().expect("a queue");
        let memory = pd.allocate(2 * OUTBOX).expect("a region");
        let qp = pd.create_qp::<Rc>(&cq, &cq).build().expect("a queue pair");
        (Self { pd, cq, memory }, qp)
    }

    /// As `new`, for a side that may be killed meanwhile.
    pub(crate) fn try_new(device: &Device) -> Result<(Self, QueuePair<Rc>), mlx5::Error> {
        let pd = device.open()?.alloc_pd()?;
        let cq = pd.context().create_cq(16).build()?;
        let memory = pd.allocate(2 * OUTBOX)?;
        let qp = pd.create_qp::<Rc>(&cq, &cq).build()?;
        Ok((Self { pd, cq, memory }, qp))
    }

    /// Creates another queue pair.
    pub(crate) fn queue_pair(&self) -> QueuePair<Rc> {
        self.pd.create_qp::<Rc>(&self.cq, &self.cq).build().expect("a queue pair")
    }

    pub(crate) fn post(&self, qp: &mut QueuePair<Rc>) {
        let sges = [self.memory.sge(..OUTBOX).expect("an entry")];
        qp.post_recv(&[ReceiveWr { wr_id: RECEIVE, sges: &sges }]).expect("posted");
    }

    pub(crate) fn send(&mut self, qp: &mut QueuePair<Rc>, text: &str) {
        self.memory.write_at(OUTBOX, text.as_bytes()).expect("written");
        let mut batch = qp.wr_start();
        let here = self.memory.sge(OUTBOX..OUTBOX + text.len()).expect("an entry");
        batch.wr(2, SendFlags::SIGNALED).send().sge(here);
        batch.complete().expect("posted");
    }

    /// Waits for a message.
    pub(crate) fn receive(&mut self) -> String {
        let start = std::time::Instant::now();
        let mut length = None;
        while length.is_none() {
            let each = |completion: mlx5::WorkCompletion<'_>| {
                completion.status().expect("no error");
                if completion.wr_id() == RECEIVE {
                    length = completion.byte_len();
                }
            };
            self.cq.poll(1, each).expect("polled");
            assert!(start.elapsed() < LIMIT, "no message came");
            thread::yield_now();
        }
        let mut bytes = vec![0; length.unwrap_or(0) as usize];
        self.memory.read_at(0, &mut bytes).expect("read");
        String::from_utf8(bytes).expect("text")
    }
}

/// An identifier of connections, resolved to the address and route of the listener.
#[track_caller]
pub(crate) fn resolved(channel: &EventChannel, space: PortSpace, prepare: impl FnOnce(&Id)) -> Id {
    let id = channel.create_id(space).expect("created");
    prepare(&id);
    id.resolve_addr(None, address(), LIMIT).expect("resolving");
    assert!(matches!(event(channel), EventKind::AddressResolved));
    id.resolve_route(LIMIT).expect("resolving");
    assert!(matches!(event(channel), EventKind::RouteResolved));
    id
}

/// The next event of a channel.
#[track_caller]
pub(crate) fn event(channel: &EventChannel) -> EventKind {
    channel.wait(Some(LIMIT)).expect("no error").expect("an event").kind
}
