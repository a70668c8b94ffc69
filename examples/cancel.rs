//! Cancels posted requests.
//!
//! A drained send queue stands still in front of a request. The requests from there on can be
//! cancelled by wr_id: they become NOPs. When the queue resumes they complete in order, marked as
//! cancelled, and move no data.
//!
//! On hardware a queue drains after a signature error. The simulated device drains on command, so
//! this example always uses it.
//!
//! Run it with `cargo run --example cancel`.

mod common;

use common::Done;
use mlx5::{Access, AsyncEvent, ConnectOptions, Psn, SendFlags, transport::Rc};
use mlx5_sim::engine::DrainAt;
use std::process::ExitCode;
use std::time::Duration;

const REQUESTS: u64 = 8;
/// Requests that are executed before the queue drains.
const EXECUTED: u32 = 3;

fn main() -> ExitCode {
    common::start("Cancels requests of a drained send queue, on a simulated device.", run)
}

fn run() -> Done {
    let setup = common::simulated()?;
    let simulator = setup.simulator.as_ref().ok_or("the device is not simulated")?;
    let pd = setup.context.alloc_pd()?;
    let mut cq = setup.context.create_cq(REQUESTS as u32).build()?;
    let mut qp = pd.create_qp::<Rc>(&cq, &cq).max_inline_data(8).build()?;
    let mut peer = pd.create_qp::<Rc>(&cq, &cq).build()?;
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let target = pd.memory(REQUESTS as usize * 8).access(access).register()?;

    let (options, psn) = (ConnectOptions::default(), Psn::default());
    let here = qp.endpoint(&setup.port, psn, &options);
    let there = peer.endpoint(&setup.port, psn, &options);
    qp.connect(&setup.port, psn, &there, &options)?;
    peer.connect(&setup.port, psn, &here, &options)?;

    // Takes the place of the signature error.
    simulator
        .drain_qp(0, qp.qp_num(), DrainAt::After(EXECUTED))
        .map_err(|error| format!("the device does not drain: {error:?}"))?;

    let mut batch = qp.wr_start();
    for wr_id in 1..=REQUESTS {
        let place = target.remote((wr_id as usize - 1) * 8..)?;
        batch.wr(wr_id, SendFlags::SIGNALED).rdma_write(place).inline_data(&wr_id.to_le_bytes());
    }
    batch.complete()?;
    println!("posted {REQUESTS} writes");

    let events = setup.context.async_events();
    let event = events.wait(Some(Duration::from_secs(10)))?;
    assert_eq!(event, Some(AsyncEvent::SqDrained(qp.id())));

    // The device reports its position in the queue. The cancel needs this proof.
    let drained = qp.drained()?;
    let pending: Vec<u64> = qp.pending(&drained)?.map(|request| request.wr_id).collect();
    println!("the queue drained; pending are {pending:?}");

    let cancelled = qp.cancel(&drained, 5)?;
    println!("cancelled wr_id 5: {} request", cancelled.count());
    let cancelled = qp.cancel_where(&drained, |request| request.wr_id > 6)?;
    println!("cancelled all above 6: {} requests", cancelled.count());
    let nothing = qp.cancel(&drained, 1)?;
    println!("cancelled wr_id 1, which is executed: {} requests", nothing.count());

    qp.resume()?;
    let mut completed = 0;
    while completed < REQUESTS as usize {
        completed += cq.poll(REQUESTS as usize, |completion| {
            let word = match (completion.status(), completion.cancelled()) {
                (Ok(()), true) => "cancelled".to_owned(),
                (Ok(()), false) => "done".to_owned(),
                (Err(error), _) => error.to_string(),
            };
            println!("  {} {word}", completion.wr_id());
        })?;
        std::thread::yield_now();
    }

    let mut bytes = [0; REQUESTS as usize * 8];
    target.read_at(0, &mut bytes)?;
    let written: Vec<u8> =
        bytes.chunks(8).map(|word| word[0]).filter(|first| *first != 0).collect();
    println!("written were {written:?}");
    Ok(())
}
