//! A program's session with a kernel or firmware whose results are mutated.

use crate::kernel::{MutatingKernel, Mutator};
use crate::numbers::Numbers;
use mlx5::transport::{Rc, Ud};
use mlx5::window::TypeTwo;
use mlx5::{
    Access, ConnectOptions, Context, Device, Error, Kernel, Psn, QueuePair, ReceiveWr, SendFlags,
    devices_on,
};
use mlx5_sim::{SimConfig, Simulator};
use std::sync::Arc;

/// The first device of a kernel.
pub(crate) fn device(kernel: Arc<dyn Kernel>) -> Result<Device, Error> {
    Ok(devices_on(kernel)?.remove(0))
}

/// Connects two queue pairs of one context.
pub(crate) fn connect(
    context: &Context,
    one: &mut QueuePair<Rc>,
    other: &mut QueuePair<Rc>,
) -> Result<(), Error> {
    let (port, options, psn) =
        (context.local_port(1, None)?, ConnectOptions::default(), Psn::default());
    let (here, there) = (one.endpoint(&port, psn, &options), other.endpoint(&port, psn, &options));
    one.connect(&port, psn, &there, &options)?;
    other.connect(&port, psn, &here, &options)
}

pub(crate) fn fuzz_kernel(numbers: &mut Numbers) {
    fuzz(numbers, false);
}

pub(crate) fn fuzz_firmware(numbers: &mut Numbers) {
    fuzz(numbers, true);
}

fn fuzz(numbers: &mut Numbers, firmware: bool) {
    let simulator = Simulator::new(SimConfig::new().step(true));
    let one_in = numbers.pick(&[2, 5, 20]);
    let mutator = Mutator { numbers: Numbers::new(numbers.next()), firmware, one_in };
    let kernel = Arc::new(MutatingKernel::new(simulator.kernel(), mutator));
    let Ok(device) = device(kernel) else { return };
    // Any result may at most cause an error.
    for _ in 0..4 {
        let _ = session(&device, &simulator);
    }
}

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn session(device: &Device, simulator: &Simulator) -> Outcome {
    let context = device.open()?;
    let _ = context.query_device();
    let _ = context.query_port(1);
    let _ = context.gid_table();
    let _ = context.query_pkey(1, 0);
    let pd = context.alloc_pd()?;
    let access = Access::LOCAL_WRITE
        | Access::REMOTE_WRITE
        | Access::REMOTE_READ
        | Access::REMOTE_ATOMIC
        | Access::MW_BIND;
    let mr = pd.memory(8192).access(access).register()?;
    let channel = context.create_comp_channel()?;
    let mut cq = context.create_cq(64).channel(&channel).build()?;
    let mut srq = pd.create_srq(16).limit(1).build()?;
    let _ = srq.query();
    let domain = context.open_xrcd();
    if let Ok(domain) = &domain {
        let _ = pd.create_srq(4).xrc(domain, &cq).build();
        let _ = domain.create_target();
    }
    let _ = context.alloc_td();
    let mut one = pd.create_qp::<Rc>(&cq, &cq).max_inline_data(64).build()?;
    let mut other = pd.create_qp::<Rc>(&cq, &cq).srq(&srq).build()?;
    let datagram = pd.create_qp::<Ud>(&cq, &cq).build();
    connect(&context, &mut one, &mut other)?;
    srq.post_recv(&[ReceiveWr { wr_id: 1, sges: &[mr.sge(0..64)?] }])?;
    let window = pd.alloc_mw::<TypeTwo>();
    let mut batch = one.wr_start();
    batch.wr(2, SendFlags::SIGNALED).send().inline_data(b"a message");
    batch.wr(3, SendFlags::SIGNALED).rdma_write(mr.remote(4096..)?).sge(mr.sge(0..1024)?);
    if let Ok(mut window) = window
        && let Ok(binding) = window.binding(&mr, 0..64, Access::REMOTE_READ)
    {
        batch.wr(4, SendFlags::SIGNALED).bind_mw(binding);
    }
    batch.complete()?;
    for _ in 0..256 {
        if !simulator.step() {
            break;
        }
    }
    let _ = cq.poll(16, |completion| _ = completion.to_owned());
    let _ = (one.query(), one.drained().map(drop), other.query());
    drop(datagram);
    let _ = mr.reregister().memory(4096).apply();
    Ok(())
}
