//! A simulated device that runs only when the test steps it, and an executor that detects a lost
//! wake-up.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};

use mlx5::{
    Access, ConnectOptions, MemoryRegion, ProtectionDomain, Psn, QueuePair, QueuePairBuilder,
    transport::Rc,
};
use mlx5_async::{AsyncQueuePair, Hub, Pump, Step};
use mlx5_sim::{SimConfig, Simulator};

pub(crate) type Queue<K> = AsyncQueuePair<Rc, K>;

pub(crate) struct Rig {
    pub(crate) simulator: Simulator,
    pub(crate) context: mlx5::Context,
    pub(crate) pd: ProtectionDomain,
    pub(crate) hub: Hub,
    pub(crate) pump: Option<Pump>,
    pub(crate) memory: Arc<MemoryRegion>,
}

pub(crate) const REMOTE: Access =
    Access::LOCAL_WRITE.union(Access::REMOTE_WRITE).union(Access::REMOTE_READ);

impl Rig {
    /// A device that runs only in [`Rig::settle`].
    pub(crate) fn stepped() -> Self {
        Self::new(SimConfig::new().step(true))
    }

    pub(crate) fn new(config: SimConfig) -> Self {
        let simulator = Simulator::new(config);
        let context = mlx5::devices_on(simulator.kernel()).unwrap().remove(0).open().unwrap();
        let pd = context.alloc_pd().unwrap();
        let (hub, pump) = Hub::new(&context, 1024).unwrap();
        let memory = Arc::new(pd.memory(1 << 16).access(REMOTE).register().unwrap());
        Self { simulator, context, pd, hub, pump: Some(pump), memory }
    }

    /// A queue pair that is connected to itself.
    pub(crate) fn loopback(&self) -> QueuePair<Rc> {
        self.loopback_with(|builder| builder.max_send_wr(16).max_recv_wr(16))
    }

    pub(crate) fn loopback_with(
        &self,
        options: impl FnOnce(QueuePairBuilder<'_, Rc>) -> QueuePairBuilder<'_, Rc>,
    ) -> QueuePair<Rc> {
        let mut qp = options(self.hub.create_qp::<Rc>(&self.pd)).build().unwrap();
        self.connect_to_itself(&mut qp);
        qp
    }

    pub(crate) fn connect_to_itself(&self, qp: &mut QueuePair<Rc>) {
        let port = self.context.local_port(1, None).unwrap();
        let (psn, options) = (Psn::default(), ConnectOptions::default());
        let own = qp.endpoint(&port, psn, &options);
        qp.connect(&port, psn, &own, &options).unwrap();
    }

    /// Two queue pairs that are connected to each other.
    pub(crate) fn pair(&self) -> [QueuePair<Rc>; 2] {
        let make = |_| self.hub.create_qp::<Rc>(&self.pd).max_inline_data(64).build().unwrap();
        let mut pair = [0, 1].map(make);
        self.connect(&mut pair);
        pair
    }

    pub(crate) fn connect(&self, pair: &mut [QueuePair<Rc>; 2]) {
        let port = self.context.local_port(1, None).unwrap();
        let (psn, options) = (Psn::default(), ConnectOptions::default());
        let ends = [0, 1].map(|of| pair[of].endpoint(&port, psn, &options));
        for (of, end) in [(0, &ends[1]), (1, &ends[0])] {
            pair[of].connect(&port, psn, end, &options).unwrap();
        }
    }

    /// Runs the device and the pump until both are idle.
    pub(crate) fn settle(&mut self) {
        loop {
            let moved = self.simulator.run_until_idle() > 0;
            let Some(pump) = &mut self.pump else { return };
            let mut taken = false;
            loop {
                match pump.step() {
                    Ok(Step::Again) => taken = true,
                    Ok(Step::Wait) => break,
                    Ok(Step::Stopped) | Err(_) => {
                        self.pump = None;
                        return;
                    }
                }
            }
            if !moved && !taken {
                return;
            }
        }
    }

    /// Runs a future. Panics if it sleeps although device and pump are idle: a wake-up was lost.
    pub(crate) fn block_on<F: Future>(&mut self, future: F) -> F::Output {
        let mut future = pin!(future);
        let awake = Arc::new(Flag(AtomicBool::new(true)));
        let waker = Waker::from(Arc::clone(&awake));
        loop {
            if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                return output;
            }
            awake.0.store(false, SeqCst);
            self.settle();
            assert!(awake.0.load(SeqCst), "the task sleeps, and nothing is left to be done");
        }
    }

    /// Number of queue pairs in the device.
    pub(crate) fn queue_pairs(&self) -> u64 {
        self.simulator.object_counts(0).qps as u64
    }
}

pub(crate) struct Flag(AtomicBool);

impl Flag {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self(AtomicBool::new(false)))
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.load(SeqCst)
    }
}

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, SeqCst);
    }
}

/// Polls once.
pub(crate) fn poll<F: Future + Unpin>(future: &mut F, task: &Arc<Flag>) -> Poll<F::Output> {
    let waker = Waker::from(Arc::clone(task));
    std::pin::Pin::new(future).poll(&mut Context::from_waker(&waker))
}
