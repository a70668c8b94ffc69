//! A program that depends on nothing but the packages.

use mlx5::transport::Rc;
use mlx5::{Access, ConnectOptions, Psn, SendFlags};
use mlx5_sim::{SimConfig, Simulator};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let simulator = Simulator::new(SimConfig::new());
    let device = mlx5::devices_on(simulator.kernel())?.remove(0);
    let context = device.open()?;
    let pd = context.alloc_pd()?;
    let mut cq = context.create_cq(16).build()?;
    let mut one = pd.create_qp::<Rc>(&cq, &cq).max_inline_data(64).build()?;
    let mut other = pd.create_qp::<Rc>(&cq, &cq).build()?;
    let access = Access::LOCAL_WRITE.union(Access::REMOTE_WRITE);
    let memory = pd.memory(4096).access(access).register()?;

    let (port, psn, options) =
        (context.local_port(1, None)?, Psn::default(), ConnectOptions::default());
    let (here, there) = (one.endpoint(&port, psn, &options), other.endpoint(&port, psn, &options));
    one.connect(&port, psn, &there, &options)?;
    other.connect(&port, psn, &here, &options)?;

    let mut batch = one.wr_start();
    batch.wr(1, SendFlags::SIGNALED).rdma_write(memory.remote(0..5)?).inline_data(b"hello");
    batch.complete()?;
    let mut polled = Vec::new();
    while cq.poll(16, |completion| polled.push((completion.wr_id(), completion.status().is_ok())))? == 0 {}
    let mut bytes = [0; 5];
    memory.read_at(0, &mut bytes)?;
    assert_eq!((polled, &bytes), (vec![(1, true)], b"hello"));

    // The feature `tokio` can drive a pump in a task.
    let (hub, pump) = mlx5_async::Hub::new(&context, 16)?;
    let task = pump.drive();
    hub.shutdown();
    drop(task);
    Ok(())
}
