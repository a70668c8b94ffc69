//! Measures the cost of a request for each way to run the pump: nanoseconds from before it is
//! posted until its task has the result, one at a time and sixteen at a time. Every way is measured
//! in turn, back and forth, many times: a row has the medians of its times, and of the ratio of its
//! times to those that polling without this package took in the same turn.
//!
//! The device is simulated, by a thread of this process: compare the rows with each other and with
//! the first one. They say nothing about silicon.
//!
//! Run it with `cargo run --release -p mlx5-async --features tokio --example ways`. With `count
//! hand` or `count pump` after `--` it does a thousand requests without a second thread, so that
//! callgrind can count the instructions of `posts` and `takes`: those of this package and of the
//! driver, and none of the device.

#![forbid(unsafe_code)]

use std::error::Error;
use std::future::Future;
use std::hint::{black_box, spin_loop};
use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Instant;

use mlx5::{
    Access, ConnectOptions, MemoryRegion, ProtectionDomain, Psn, QueuePair, QueuePairBuilder,
    SendFlags, transport::Rc,
};
use mlx5_async::{AsyncQueuePair, Hub, Pump, Step};
use mlx5_sim::{SimConfig, Simulator};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Requests in a sample, and number of samples.
const REQUESTS: u32 = 400;
const SAMPLES: usize = 41;
const DEPTHS: [u32; 2] = [1, 16];
/// Requests before the first sample.
const WARM_UP: u32 = 64;
/// Requests whose instructions are counted.
const COUNTED: u32 = 1000;

struct Bed {
    pd: ProtectionDomain,
    memory: MemoryRegion,
    simulator: Simulator,
}

impl Bed {
    fn new() -> Result<Self> {
        Self::on(Simulator::new(SimConfig::new()))
    }

    fn on(simulator: Simulator) -> Result<Self> {
        let pd = mlx5::devices_on(simulator.kernel())?.remove(0).open()?.alloc_pd()?;
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let memory = pd.memory(4096).access(access).register()?;
        Ok(Self { pd, memory, simulator })
    }

    /// Connects a queue pair to itself.
    fn connect(&self, builder: QueuePairBuilder<'_, Rc>) -> Result<QueuePair<Rc>> {
        let mut qp = builder.build()?;
        let (port, psn) = (self.pd.context().local_port(1, None)?, Psn::default());
        let options = ConnectOptions::default();
        let own = qp.endpoint(&port, psn, &options);
        qp.connect(&port, psn, &own, &options)?;
        Ok(qp)
    }
}

/// Nanoseconds per request.
type Sample = [f64; DEPTHS.len()];

/// Times `work` for each depth: `work` gets the number of requests, and how many of them are
/// outstanding at a time.
fn timed(mut work: impl FnMut(u32, u32) -> Result<()>) -> Result<Sample> {
    let mut sample = [0.0; DEPTHS.len()];
    for (time, depth) in sample.iter_mut().zip(DEPTHS) {
        work(WARM_UP, depth)?;
        let start = Instant::now();
        work(REQUESTS, depth)?;
        *time = start.elapsed().as_secs_f64() * 1e9 / f64::from(REQUESTS);
    }
    Ok(sample)
}

/// Posts and polls, without this package.
fn by_hand() -> Result<Sample> {
    let bed = Bed::new()?;
    let mut cq = bed.pd.context().create_cq(64).build()?;
    let mut qp = bed.connect(bed.pd.create_qp::<Rc>(&cq, &cq))?;
    let (to, sge) = (bed.memory.remote(2048..)?, bed.memory.sge(..64)?);
    timed(|requests, depth| {
        for _ in 0..requests / depth {
            for number in 0..depth {
                qp.post(|batch| {
                    let wr = batch.wr(number.into(), SendFlags::SIGNALED);
                    wr.rdma_write(black_box(to)).sge(black_box(sge));
                })?;
            }
            let mut done = 0;
            while done < depth {
                done += cq.try_poll(16, |wc| Ok::<_, Box<dyn Error + Send + Sync>>(wc.status()?))?
                    as u32;
                if done < depth {
                    // As in `Pump::spin`: yielding would wait for other threads on this processor.
                    spin_loop();
                }
            }
        }
        Ok(())
    })
}

async fn some(bed: &Bed, qp: &AsyncQueuePair<Rc, u32>, count: u32, depth: u32) -> Result<()> {
    let (to, sge) = (bed.memory.remote(2048..)?, bed.memory.sge(..64)?);
    let mut requests = Vec::with_capacity(depth as usize);
    for _ in 0..count / depth {
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

fn by_thread(run: fn(Pump) -> std::result::Result<(), mlx5_async::PumpError>) -> Result<Sample> {
    let bed = Bed::new()?;
    let (hub, pump) = Hub::new(&bed.pd.context(), 256)?;
    let pump = thread::spawn(move || run(pump));
    let qp = hub.adopt(bed.connect(hub.create_qp(&bed.pd))?)?;
    let sample = timed(|count, depth| block_on(some(&bed, &qp, count, depth)))?;
    hub.shutdown();
    pump.join().map_err(|_| "the pump panicked")??;
    Ok(sample)
}

#[cfg(feature = "tokio")]
fn by_task(runtime: &tokio::runtime::Runtime) -> Result<Sample> {
    let bed = Bed::new()?;
    let (hub, pump) = Hub::new(&bed.pd.context(), 256)?;
    let pump = runtime.spawn(pump.drive());
    let qp = hub.adopt(bed.connect(hub.create_qp(&bed.pd))?)?;
    let sample = timed(|count, depth| runtime.block_on(some(&bed, &qp, count, depth)))?;
    hub.shutdown();
    runtime.block_on(pump)??;
    Ok(sample)
}

/// Does requests one after the other in this thread, which also runs the device.
fn count(task: &str) -> Result<()> {
    let bed = Bed::on(Simulator::new(SimConfig::new().step(true)))?;
    let context = bed.pd.context();
    let (to, sge) = (bed.memory.remote(2048..)?, bed.memory.sge(..64)?);
    match task {
        "hand" => {
            let mut cq = context.create_cq(64).build()?;
            let mut qp = bed.connect(bed.pd.create_qp::<Rc>(&cq, &cq))?;
            for number in 0..COUNTED {
                posts(|| {
                    qp.post(|batch| {
                        let wr = batch.wr(number.into(), SendFlags::SIGNALED);
                        wr.rdma_write(black_box(to)).sge(black_box(sge));
                    })
                })?;
                bed.simulator.run_until_idle();
                takes(|| {
                    cq.try_poll(16, |wc| wc.status().map_err(Box::<dyn Error + Send + Sync>::from))
                })?;
            }
        }
        "pump" => {
            let (hub, mut pump) = Hub::new(&context, 256)?;
            let qp = hub.adopt(bed.connect(hub.create_qp(&bed.pd))?)?;
            for number in 0..COUNTED {
                let build =
                    |wr: mlx5::Wr<'_, '_, Rc>| wr.rdma_write(black_box(to)).sge(black_box(sge));
                let request = posts(|| ready(qp.submit(number, SendFlags::empty(), build)))??;
                let mut request = pin!(request);
                let mut task = Context::from_waker(Waker::noop());
                if posts(|| request.as_mut().poll(&mut task)).is_ready() {
                    return Err("the device has not worked yet".into());
                }
                bed.simulator.run_until_idle();
                takes(|| -> Result<()> {
                    while pump.step()? == Step::Again {}
                    ready(request)??;
                    Ok(())
                })?;
            }
        }
        _ => return Err("count hand, or count pump".into()),
    }
    Ok(())
}

/// Returns the result of a future that is ready at once.
fn ready<F: Future>(future: F) -> Result<F::Output> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Ok(output),
        Poll::Pending => Err("it waits".into()),
    }
}

#[inline(never)]
fn posts<R>(work: impl FnOnce() -> R) -> R {
    work()
}

#[inline(never)]
fn takes<R>(work: impl FnOnce() -> R) -> R {
    work()
}

/// A way by its name, and the function that takes a sample of it.
type Way<'a> = (&'a str, Box<dyn Fn() -> Result<Sample> + 'a>);

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments[..] {
        [] => {}
        [first, task] if first == "count" => return count(task),
        _ => return Err("arguments: none, or count hand, or count pump".into()),
    }
    #[cfg(feature = "tokio")]
    let runtimes = {
        use tokio::runtime::Builder;
        [Builder::new_current_thread(), Builder::new_multi_thread()]
            .map(|mut builder| builder.worker_threads(2).enable_io().build())
    };
    let mut ways: Vec<Way<'_>> = vec![
        ("polled by hand", Box::new(by_hand)),
        ("`spin`, a thread", Box::new(|| by_thread(Pump::spin))),
        ("`run`, a thread", Box::new(|| by_thread(Pump::run))),
    ];
    #[cfg(feature = "tokio")]
    for (way, runtime) in
        ["`drive`, a task of the same thread", "`drive`, a task of another thread"]
            .into_iter()
            .zip(&runtimes)
    {
        let runtime = runtime.as_ref().map_err(ToString::to_string)?;
        ways.push((way, Box::new(move || by_task(runtime))));
    }

    let mut samples: Vec<Vec<Sample>> = vec![Vec::new(); ways.len()];
    for turn in 0..SAMPLES {
        for place in 0..ways.len() {
            // Back and forth, so that no way always follows the same one.
            let at = if turn % 2 == 0 { place } else { ways.len() - 1 - place };
            samples[at].push(ways[at].1()?);
        }
    }
    println!("| | one at a time, ns | of by hand | sixteen at a time, ns a request | of by hand |");
    println!("|---|--:|--:|--:|--:|");
    for ((way, _), mine) in ways.iter().zip(&samples) {
        let of = |depth: usize| {
            let times = mine.iter().map(|sample| sample[depth]).collect();
            let pairs = mine.iter().zip(&samples[0]);
            let ratios = pairs.map(|(mine, hand)| mine[depth] / hand[depth]).collect();
            format!("{:.0} | {:.2}", median(times), median(ratios))
        };
        println!("| {way} | {} | {} |", of(0), of(1));
    }
    Ok(())
}
