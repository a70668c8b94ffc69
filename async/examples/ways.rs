//! What a request costs, by the way in which the pump runs: nanoseconds from before it is posted until
//! its task has the result, one at a time and sixteen at a time.
//!
//! The device is simulated, by a thread of this process: compare the rows with each other and with the
//! first one, which polls without this package. Of silicon they say nothing.
//!
//! Run it with `cargo run --release -p mlx5-async --features tokio --example ways`.

#![forbid(unsafe_code)]

use std::error::Error;
use std::future::Future;
use std::hint::black_box;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Instant;

use mlx5::{
    Access, ConnectOptions, MemoryRegion, ProtectionDomain, Psn, QueuePair, QueuePairBuilder,
    SendFlags, transport::Rc,
};
use mlx5_async::{AsyncQueuePair, Hub, Pump};
use mlx5_sim::{SimConfig, Simulator};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Requests that are measured at a time; the median of so many is told.
const REQUESTS: u32 = 400;
const SAMPLES: usize = 21;
const DEPTH: u32 = 16;

struct Bed {
    pd: ProtectionDomain,
    memory: MemoryRegion,
    _simulator: Simulator,
}

impl Bed {
    fn new() -> Result<Self> {
        let simulator = Simulator::new(SimConfig::new());
        let pd = mlx5::devices_on(simulator.kernel())?.remove(0).open()?.alloc_pd()?;
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let memory = pd.memory(4096).access(access).register()?;
        Ok(Self { pd, memory, _simulator: simulator })
    }

    /// Connected to itself.
    fn connect(&self, builder: QueuePairBuilder<'_, Rc>) -> Result<QueuePair<Rc>> {
        let mut qp = builder.build()?;
        let (port, psn) = (self.pd.context().local_port(1, None)?, Psn::default());
        let options = ConnectOptions::default();
        let own = qp.endpoint(&port, psn, &options);
        qp.connect(&port, psn, &own, &options)?;
        Ok(qp)
    }
}

fn median(mut sample: impl FnMut() -> Result<()>) -> Result<f64> {
    let mut times = Vec::with_capacity(SAMPLES);
    for _ in 0..SAMPLES {
        let start = Instant::now();
        sample()?;
        times.push(start.elapsed().as_secs_f64() * 1e9 / f64::from(REQUESTS));
    }
    times.sort_by(f64::total_cmp);
    Ok(times[SAMPLES / 2])
}

fn tell(way: &str, [one, many]: [f64; 2]) {
    println!("| {way} | {one:.0} | {many:.0} |");
}

/// Posts and polls, without this package.
fn by_hand() -> Result<()> {
    let bed = Bed::new()?;
    let mut cq = bed.pd.context().create_cq(64).build()?;
    let mut qp = bed.connect(bed.pd.create_qp::<Rc>(&cq, &cq))?;
    let (to, sge) = (bed.memory.remote(2048..)?, bed.memory.sge(..64)?);
    let mut measure = |depth: u32| {
        median(|| {
            for _ in 0..REQUESTS / depth {
                for number in 0..depth {
                    qp.post(|batch| {
                        let wr = batch.wr(number.into(), SendFlags::SIGNALED);
                        wr.rdma_write(black_box(to)).sge(black_box(sge));
                    })?;
                }
                let mut done = 0;
                while done < depth {
                    done += cq
                        .try_poll(16, |wc| Ok::<_, Box<dyn Error + Send + Sync>>(wc.status()?))?
                        as u32;
                    if done < depth {
                        thread::yield_now();
                    }
                }
            }
            Ok(())
        })
    };
    tell("polled by hand", [measure(1)?, measure(DEPTH)?]);
    Ok(())
}

async fn some(bed: &Bed, qp: &AsyncQueuePair<Rc, u32>, depth: u32) -> Result<()> {
    let (to, sge) = (bed.memory.remote(2048..)?, bed.memory.sge(..64)?);
    let mut requests = Vec::with_capacity(depth as usize);
    for _ in 0..REQUESTS / depth {
        for number in 0..depth {
            let build = |wr: mlx5::Wr<'_, '_, Rc>| wr.rdma_write(black_box(to)).sge(black_box(sge));
            requests.push(qp.submit(number, SendFlags::empty(), build).await?);
        }
        for request in requests.drain(..) {
            request.await?;
        }
    }
    Ok(())
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

fn by_thread(
    way: &str,
    run: fn(Pump) -> std::result::Result<(), mlx5_async::PumpError>,
) -> Result<()> {
    let bed = Bed::new()?;
    let (hub, pump) = Hub::new(&bed.pd.context(), 256)?;
    let pump = thread::spawn(move || run(pump));
    let qp = hub.adopt(bed.connect(hub.create_qp(&bed.pd))?)?;
    let measure = |depth| median(|| block_on(some(&bed, &qp, depth)));
    tell(way, [measure(1)?, measure(DEPTH)?]);
    hub.shutdown();
    Ok(pump.join().map_err(|_| "the pump panicked")??)
}

#[cfg(feature = "tokio")]
fn by_task(way: &str, runtime: &tokio::runtime::Runtime) -> Result<()> {
    let bed = Bed::new()?;
    let (hub, pump) = Hub::new(&bed.pd.context(), 256)?;
    let pump = runtime.spawn(pump.drive());
    let qp = hub.adopt(bed.connect(hub.create_qp(&bed.pd))?)?;
    let measure = |depth| median(|| runtime.block_on(some(&bed, &qp, depth)));
    tell(way, [measure(1)?, measure(DEPTH)?]);
    hub.shutdown();
    Ok(runtime.block_on(pump)??)
}

fn main() -> Result<()> {
    println!("| | one at a time, ns | sixteen at a time, ns a request |\n|---|--:|--:|");
    by_hand()?;
    by_thread("`spin`, a thread", Pump::spin)?;
    by_thread("`run`, a thread", Pump::run)?;
    #[cfg(feature = "tokio")]
    {
        use tokio::runtime::Builder;
        let current = Builder::new_current_thread().enable_io().build()?;
        by_task("`drive`, a task of the same thread", &current)?;
        let several = Builder::new_multi_thread().worker_threads(2).enable_io().build()?;
        by_task("`drive`, a task of another thread", &several)?;
    }
    Ok(())
}
