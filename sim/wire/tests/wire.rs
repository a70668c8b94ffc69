//! A machine that is served, and drivers that reach it through its socket. All are in this process,
//! but to the host each connection is a process of its own: it reaches their memory through the
//! kernel.

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mlx5::transport::Rc;
use mlx5::{
    Access, CompletionQueue, ConnectOptions, Context, LocalPort, MemoryRegion, Psn, QueuePair,
    RemoteAddress, SendFlags, devices_on,
};
use mlx5_sim::Fault;
use mlx5_sim_wire::{Served, Unreached, Wire};
use mlx5_uapi::cmd::{context, mr, pd};
use mlx5_uapi::mlx5::{AllocUcontextReqV2, LibCaps, UcontextFlags};
use mlx5_uapi::verbs::AccessFlags;
use mlx5_uapi::{Errno, Kernel, sysfs};

type Outcome = Result<(), Box<dyn Error>>;

/// The longest that anything may take.
const DEADLINE: Duration = Duration::from_secs(30);

/// A machine that this process serves.
struct Machine(Served);

impl Machine {
    fn serve(name: &str, settings: &str) -> Result<Self, Box<dyn Error>> {
        let name = format!("mlx5-wire-{}-{name}", std::process::id());
        Ok(Self(Served::start_at(name, &settings.parse()?)?))
    }

    fn connect(&self) -> Result<Arc<Wire>, Unreached> {
        Wire::connect(self.0.socket()).map(Arc::new)
    }

    fn open(&self) -> Result<Context, Box<dyn Error>> {
        let devices = devices_on(self.connect()?)?;
        Ok(devices.first().ok_or("no device")?.open()?)
    }

    /// Waits until no process is connected. No object may be left, and no violation reported.
    fn end(self) -> Outcome {
        let simulator = self.0.simulator().clone();
        assert_eq!(self.0.end()?, 0, "standard error has the violations");
        assert_eq!(simulator.object_counts(0), Default::default());
        Ok(())
    }
}

/// A queue pair with its objects, on a connection of its own.
struct End {
    qp: QueuePair<Rc>,
    cq: CompletionQueue,
    memory: MemoryRegion,
    port: LocalPort,
}

const REMOTE: Access = Access::LOCAL_WRITE
    .union(Access::REMOTE_READ)
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_ATOMIC);

impl End {
    fn new(context: &Context) -> Result<Self, Box<dyn Error>> {
        let cq = context.create_cq(16).build()?;
        let pd = context.alloc_pd()?;
        let qp = pd.create_qp::<Rc>(&cq, &cq).build()?;
        let memory = pd.memory(4096).access(REMOTE).register()?;
        Ok(Self { qp, cq, memory, port: context.local_port(1, None)? })
    }

    fn connect(one: &mut Self, other: &mut Self) -> Outcome {
        let options = ConnectOptions::default();
        let psn = Psn::default();
        let first = one.qp.endpoint(&one.port, psn, &options);
        let second = other.qp.endpoint(&other.port, psn, &options);
        one.qp.connect(&one.port, psn, &second, &options)?;
        other.qp.connect(&other.port, psn, &first, &options)?;
        Ok(())
    }

    fn word(&self, at: usize) -> Result<u64, Box<dyn Error>> {
        let mut bytes = [0; 8];
        self.memory.read_at(at, &mut bytes)?;
        Ok(u64::from_ne_bytes(bytes))
    }

    fn remote(&self, at: usize) -> Result<RemoteAddress, Box<dyn Error>> {
        Ok(self.memory.remote(at..at + 8)?)
    }

    /// Waits for one completion.
    fn completed(&mut self) -> Result<u64, Box<dyn Error>> {
        let begun = Instant::now();
        let mut found = None;
        while found.is_none() {
            assert!(begun.elapsed() < DEADLINE, "nothing completes");
            self.cq.poll(1, |done| found = Some(done.status().map(|()| done.wr_id())))?;
            std::thread::yield_now();
        }
        Ok(found.ok_or("no completion")??)
    }
}

#[test]
fn processes_write_read_and_add_to_each_others_memory() -> Outcome {
    let machine = Machine::serve("operations", "")?;
    let (here, there) = (machine.open()?, machine.open()?);
    let (mut one, mut other) = (End::new(&here)?, End::new(&there)?);
    End::connect(&mut one, &mut other)?;
    one.memory.write_at(0, &7_u64.to_ne_bytes())?;
    let (from, result) = (one.memory.sge(..8)?, one.memory.sge(64..72)?);
    let remote = other.remote(128)?;
    for (wr_id, expected) in [(0, 0), (1, 7), (2, 7), (3, 10)] {
        let mut batch = one.qp.wr_start();
        let request = batch.wr(wr_id, SendFlags::SIGNALED);
        match wr_id {
            0 => request.rdma_write(remote).sge(from),
            1 => request.rdma_read(remote).sge(result),
            _ => request.atomic_fetch_add(remote, 3).sge_list(&[result]),
        };
        batch.complete()?;
        assert_eq!(one.completed()?, wr_id);
        assert_eq!(one.word(64)?, expected);
    }
    assert_eq!(other.word(128)?, 13);
    drop((one, other));
    drop((here, there));
    machine.end()
}

#[test]
fn an_address_that_is_not_mapped_is_a_fault() -> Outcome {
    let machine = Machine::serve("fault", "")?;
    let wire = machine.connect()?;
    let device = sysfs::devices(&*wire)?.swap_remove(0);
    let file = wire.open(&device.uverbs, device.dev)?;
    context::get_context(
        &*file,
        &AllocUcontextReqV2 {
            total_num_bfregs: 16,
            num_low_latency_bfregs: 4,
            flags: UcontextFlags::DEVX.bits(),
            lib_caps: (LibCaps::UAR_4K | LibCaps::DYN_UAR).bits(),
            ..AllocUcontextReqV2::default()
        },
    )?;
    let pd = pd::alloc(&*file)?;
    let page = vec![0_u8; 3 * 4096];
    let registration = |start, length| mr::Registration {
        pd: pd.handle,
        start,
        length,
        hca_va: start,
        access: AccessFlags::LOCAL_WRITE,
    };
    // SAFETY: no request writes there, and the page outlives the file.
    let good = unsafe { mr::reg(&*file, &registration(page.as_ptr() as u64, 100)) }?;
    for (start, length) in [(0x1000, 1), (page.as_ptr() as u64, 1 << 46), (u64::MAX - 4095, 10)] {
        // SAFETY: no request writes to these ranges.
        let refused = unsafe { mr::reg(&*file, &registration(start, length)) };
        assert_eq!(refused, Err(Errno::EFAULT), "{start:#x}");
    }
    assert_eq!(machine.0.simulator().object_counts(0).mkeys, 1);
    mr::dereg(&*file, good.handle)?;
    drop((file, wire));
    machine.end()
}

#[test]
fn a_file_that_closes_takes_its_objects_along_and_no_others() -> Outcome {
    let machine = Machine::serve("leaves", "")?;
    let (stays, goes) = (machine.open()?, machine.open()?);
    let (mut one, mut other) = (End::new(&stays)?, End::new(&stays)?);
    let third = End::new(&goes)?;
    assert_eq!(machine.0.simulator().object_counts(0).qps, 3);
    drop((third, goes));
    assert_eq!(machine.0.simulator().object_counts(0).qps, 2);
    End::connect(&mut one, &mut other)?;
    drop((one, other, stays));
    machine.end()
}

#[test]
fn a_device_that_is_pulled_out_is_gone_for_every_process() -> Outcome {
    let machine = Machine::serve("removed", "")?;
    let (here, there) = (machine.open()?, machine.open()?);
    machine.0.simulator().inject(0, Fault::Remove);
    for context in [&here, &there] {
        assert!(context.alloc_pd().is_err());
    }
    drop((here, there));
    machine.end()
}

#[test]
fn without_a_host_there_is_nothing_to_connect_to() {
    let wire = Wire::connect(&std::env::temp_dir().join("mlx5-wire-nobody"));
    let error = wire.expect_err("no machine");
    assert_eq!(error.errno(), Errno::ENOENT);
    assert!(error.to_string().contains("no simulated machine is served at"), "{error}");
}
