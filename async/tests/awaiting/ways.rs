//! The ways to run a pump, with the device on its own thread.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use mlx5::{AsyncEvent, SendFlags};
use mlx5_async::{Pump, PumpError, Readable};
use mlx5_sim::{Fault, SimConfig};

use crate::rig::{Queue, Rig};

const NONE: SendFlags = SendFlags::empty();
/// Far longer than any test takes: it separates a task that was not woken from a slow machine.
const LIMIT: Duration = Duration::from_secs(120);

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// A minimal executor.
fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let deadline = Instant::now() + LIMIT;
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        thread::park_timeout(LIMIT);
        assert!(Instant::now() < deadline, "the task was not woken");
    }
}

/// Sends messages to itself, first one after the other, so that the pump sleeps between them; then
/// many at a time.
async fn traffic(qp: &Queue<u64>, rounds: u64) {
    let mut receives = qp.receives();
    for number in 0..rounds {
        qp.post_recv(number, Default::default()).await.unwrap();
        let send = qp.submit(number, NONE, |wr| wr.send().inline_data(&[]));
        assert_eq!(send.await.unwrap().await.unwrap().keep, number);
        assert_eq!(receives.next().await.unwrap().unwrap().keep, number);
    }
    for _ in 0..rounds / 16 {
        let mut requests = Vec::new();
        for number in 0..16 {
            qp.post_recv(number, Default::default()).await.unwrap();
            let send = qp.submit(number, NONE, |wr| wr.send().inline_data(&[]));
            requests.push(send.await.unwrap());
        }
        for (request, number) in requests.into_iter().zip(0..) {
            assert_eq!(request.await.unwrap().keep, number);
        }
        for number in 0..16 {
            assert_eq!(receives.next().await.unwrap().unwrap().keep, number);
        }
    }
}

fn with_thread(run: impl FnOnce(Pump) -> Result<(), PumpError> + Send + 'static) {
    let mut rig = Rig::new(SimConfig::new());
    let pump = rig.pump.take().unwrap();
    let pump = thread::spawn(move || run(pump));
    let clients: Vec<_> = (0..3)
        .map(|_| {
            let qp: Queue<u64> = rig.hub.adopt(rig.loopback()).unwrap();
            thread::spawn(move || block_on(traffic(&qp, 200)))
        })
        .collect();
    clients.into_iter().for_each(|client| client.join().unwrap());
    rig.hub.shutdown();
    pump.join().unwrap().unwrap();
}

#[test]
fn a_thread_that_sleeps_serves_any_executor() {
    with_thread(Pump::run);
}

#[test]
fn a_thread_that_spins_serves_any_executor() {
    with_thread(Pump::spin);
}

#[test]
fn a_pump_that_spins_reads_the_events_of_the_device() {
    let mut rig = Rig::new(SimConfig::new());
    let pump = rig.pump.take().unwrap();
    let mut events = rig.hub.device_events();
    let pump = thread::spawn(move || pump.spin());
    rig.simulator.set_port_active(0, 1, false);
    assert_eq!(block_on(events.next()), Some(AsyncEvent::PortError(1)));
    rig.hub.shutdown();
    pump.join().unwrap().unwrap();
}

#[test]
fn a_sleeping_pump_hears_of_the_shutdown() {
    let mut rig = Rig::new(SimConfig::new());
    let pump = rig.pump.take().unwrap();
    let pump = thread::spawn(move || pump.run());
    let qp: Queue<u64> = rig.hub.adopt(rig.loopback()).unwrap();
    block_on(traffic(&qp, 2));
    rig.hub.shutdown();
    pump.join().unwrap().unwrap();
    drop(qp);
}

async fn tasks(rig: &mut Rig) {
    let pump = tokio::spawn(rig.pump.take().unwrap().drive());
    let mut clients = Vec::new();
    for _ in 0..8 {
        let qp: Queue<u64> = rig.hub.adopt(rig.loopback()).unwrap();
        clients.push(tokio::spawn(async move { traffic(&qp, 100).await }));
    }
    for client in clients {
        tokio::time::timeout(LIMIT, client).await.expect("the task was not woken").unwrap();
    }
    rig.hub.shutdown();
    pump.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_task_serves_tasks_of_its_own_thread() {
    tasks(&mut Rig::new(SimConfig::new())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_task_serves_tasks_of_other_threads() {
    tasks(&mut Rig::new(SimConfig::new())).await;
}

/// Futures that are dropped at any moment do not disturb other tasks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn abandoned_requests_leave_the_others_intact() {
    let mut rig = Rig::new(SimConfig::new());
    let pump = tokio::spawn(rig.pump.take().unwrap().drive());
    let qp: Queue<u64> = rig.hub.adopt(rig.loopback()).unwrap();
    let (to, sge) = (rig.memory.remote(4096..).unwrap(), rig.memory.sge(..8).unwrap());
    let impatient = qp.clone();
    let impatient = tokio::spawn(async move {
        for number in 0..300_u64 {
            let limit = Duration::from_micros(number % 7 * 10);
            let request = async {
                impatient.submit(u64::MAX, NONE, |wr| wr.rdma_write(to).sge(sge)).await?.await.ok();
                Ok::<_, mlx5_async::Refused<u64>>(())
            };
            let _ = tokio::time::timeout(limit, request).await;
        }
    });
    for number in 0..300 {
        let request = qp.submit(number, NONE, |wr| wr.rdma_write(to).sge(sge)).await.unwrap();
        let done = tokio::time::timeout(LIMIT, request).await.expect("the task was not woken");
        assert_eq!(done.unwrap().keep, number);
    }
    impatient.await.unwrap();
    assert_eq!(rig.hub.strays(), 0);
    rig.hub.shutdown();
    pump.await.unwrap().unwrap();
}

#[tokio::test]
async fn dropped_wait_for_a_descriptor_loses_no_byte() {
    use std::io::{Read, Write};
    let (one, mut other) = std::os::unix::net::UnixStream::pair().unwrap();
    one.set_nonblocking(true).unwrap();
    let mut one = Readable::new(one).unwrap();
    let look = |stream: &mut std::os::unix::net::UnixStream| {
        let mut byte = [0];
        match stream.read(&mut byte) {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(None),
            read => read.map(|_| Some(byte[0])),
        }
    };
    // Dropped before anything arrived: nothing is lost.
    tokio::select! {
        biased;
        _ = one.found(look) => panic!("nothing was sent"),
        () = tokio::task::yield_now() => {}
    }
    other.write_all(&[7]).unwrap();
    assert_eq!(one.found(look).await.unwrap(), 7);
}

/// A pump, and a queue pair with a receive that the device does not complete.
fn withheld() -> (Rig, Pump, Queue<u64>) {
    let mut rig = Rig::new(SimConfig::new());
    let pump = rig.pump.take().unwrap().shutdown_timeout(Duration::from_millis(1));
    let qp: Queue<u64> = rig.hub.adopt(rig.loopback()).unwrap();
    block_on(qp.post_recv(1, Default::default())).unwrap();
    rig.simulator.inject(0, Fault::Stall);
    (rig, pump, qp)
}

#[test]
fn a_thread_is_not_held_up_after_the_shutdown_by_a_device_that_withholds_completions() {
    for run in [Pump::run, Pump::spin] {
        let (rig, pump, qp) = withheld();
        let (done, is_done) = channel();
        thread::spawn(move || done.send(run(pump)));
        rig.hub.shutdown();
        let ended = is_done.recv_timeout(LIMIT).expect("it does not end");
        assert!(matches!(ended, Err(PumpError::TimedOut(_))), "{ended:?}");
        drop(qp);
    }
}

#[tokio::test]
async fn a_task_is_not_held_up_after_the_shutdown_by_a_device_that_withholds_completions() {
    let (rig, pump, qp) = withheld();
    let pump = tokio::spawn(pump.drive());
    rig.hub.shutdown();
    let ended = tokio::time::timeout(LIMIT, pump).await.expect("it does not end").unwrap();
    assert!(matches!(ended, Err(PumpError::TimedOut(_))), "{ended:?}");
    drop(qp);
}
