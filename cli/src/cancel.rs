//! `mlx5 cancel`.

use crate::device::{Opened, Port, PortArgs};
use crate::dump::told;
use crate::failure::Failure;
use crate::link::Patience;
use crate::table::{Align, Table};
use mlx5::{
    Access, AsyncEvent, CancelMode, CompletionQueue, ConnectOptions, Drained, MemoryRegion, Psn,
    QueuePair, RemoteAddress, SendFlags, transport,
};
use mlx5_prm::wqe::{BLOCK, ControlSegment, Opcode};
use mlx5_prm::zerocopy::FromBytes;
use mlx5_sim::Simulator;
use mlx5_sim::engine::DrainAt;
use std::collections::BTreeMap;
use std::io::Write;
use std::time::Duration;

/// What the command is for.
pub(crate) const LONG_ABOUT: &str = "\
Shows step by step how posted requests are cancelled.

It posts RDMA writes on a queue pair whose send queue the device drains after a few
of them, shows the ring as the device sees it, cancels some of the requests that
were not executed by their wr_id, shows the ring again, lets the queue go on, and
shows the completions and which of the writes reached their target.

A send queue drains by itself only after a signature error, on a queue pair made for
it. The simulated device drains on command, and so is what this command uses.";

const EXAMPLES: &str = "\
Examples:
  mlx5 cancel                              8 writes, drained after 3, two cancelled
  mlx5 cancel --requests 12 --drain-after 1 --wr-id 4,5,6
  mlx5 cancel --wr-id 2,7 --all-or-nothing 2 is executed already: nothing is cancelled";

/// Options of `mlx5 cancel`.
#[derive(clap::Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// RDMA writes to post; their wr_ids count from 1
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 8,
          value_parser = clap::value_parser!(u16).range(1..=64))]
    requests: u16,
    /// Writes that the device executes before it drains
    #[arg(long, value_name = "COUNT", default_value_t = 3)]
    drain_after: u16,
    /// Requests to cancel [default: 5,7]
    #[arg(short, long = "wr-id", value_name = "ID", value_delimiter = ',')]
    wr_ids: Vec<u64>,
    /// Cancel nothing if any of them is not pending
    #[arg(long)]
    all_or_nothing: bool,
    #[command(flatten)]
    port: PortArgs,
}

/// Bytes that each request writes.
const MESSAGE: usize = 8;
const TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<(), Failure> {
    if args.drain_after > args.requests {
        let cause =
            format!("--drain-after {} is more than --requests {}", args.drain_after, args.requests);
        return Err(Failure::usage(cause).hint("the device drains after some of the requests"));
    }
    let port = args.port.open()?;
    let Some(simulator) = &port.opened.simulator else { return Err(needs(&port.opened)) };
    let wr_ids = if args.wr_ids.is_empty() { vec![5, 7] } else { args.wr_ids.clone() };
    let mut scene = Scene::new(&port, args.requests)?;

    writeln!(
        out,
        "1. {} RDMA writes are posted, with one doorbell; the device drains the send",
        args.requests
    )?;
    writeln!(out, "   queue after {} of them and raises SQ_DRAINED.", args.drain_after)?;
    scene.post(simulator, args)?;
    let drained = scene.qp.drained()?;
    writeln!(out, "   It stands at block {}.\n", drained.block())?;

    writeln!(out, "2. The ring as the device sees it:")?;
    scene.show_ring(out, &drained, args.requests)?;

    let list: Vec<String> = wr_ids.iter().map(u64::to_string).collect();
    let mode = if args.all_or_nothing { CancelMode::AllOrNothing } else { CancelMode::BestEffort };
    writeln!(
        out,
        "\n3. Cancel wr_id {}, {}:",
        list.join(", "),
        match mode {
            CancelMode::AllOrNothing => "all or nothing",
            CancelMode::BestEffort => "as far as they are pending",
        }
    )?;
    match scene.qp.cancel_set(&drained, &wr_ids, mode) {
        Ok(cancelled) => {
            let ids: Vec<String> =
                cancelled.requests().iter().map(|request| request.wr_id.to_string()).collect();
            let ids = if ids.is_empty() { "none".to_owned() } else { ids.join(", ") };
            writeln!(out, "   {} cancelled: {ids}", cancelled.count())?;
        }
        Err(error) => writeln!(out, "   {error}")?,
    }
    writeln!(out, "\n4. The ring now:")?;
    scene.show_ring(out, &drained, args.requests)?;

    writeln!(out, "\n5. The queue goes on, and its requests complete:")?;
    scene.qp.resume()?;
    scene.show_completions(out, args.requests)?;
    writeln!(out, "\n6. What reached its target, in 8 bytes each:")?;
    scene.show_target(out, args.requests)
}

/// What would be needed on hardware.
fn needs(opened: &Opened) -> Failure {
    let devx = match opened.context.has_devx() {
        true => "which this context has",
        false => "which the kernel does not grant here",
    };
    Failure::new(format!(
        "{} is a real device, and drains a send queue only after a signature error: on a queue \
         pair made with signature pipelining, on which a protected transfer failed. Where it \
         stands is asked over DEVX, {devx}. The events and calls are the same: AsyncEvent::SqDrained, \
         QueuePair::drained, cancel, resume",
        opened.device.name()
    ))
    .hint("`mlx5 cancel --sim` shows all of it on the simulated device")
}

/// Two connected queue pairs, and what the one writes into the other's memory.
struct Scene {
    qp: QueuePair<transport::Rc>,
    _peer: QueuePair<transport::Rc>,
    cq: CompletionQueue,
    target: MemoryRegion,
    patience: Patience,
    opened: mlx5::Context,
}

impl Scene {
    fn new(port: &Port, requests: u16) -> Result<Self, Failure> {
        let context = &port.opened.context;
        let pd = context.alloc_pd()?;
        let cq = context.create_cq(u32::from(requests)).build()?;
        let target = pd
            .memory(usize::from(requests) * MESSAGE)
            .access(Access::LOCAL_WRITE | Access::REMOTE_WRITE)
            .register()?;
        let make = || {
            pd.create_qp::<transport::Rc>(&cq, &cq)
                .max_send_wr(requests.into())
                .max_inline_data(MESSAGE as u32)
                .build()
        };
        let (mut qp, mut peer) = (make()?, make()?);
        let options = ConnectOptions::default();
        let psn = Psn::default();
        let here = qp.endpoint(&port.local, psn, &options);
        let there = peer.endpoint(&port.local, psn, &options);
        qp.connect(&port.local, psn, &there, &options)?;
        peer.connect(&port.local, psn, &here, &options)?;
        let patience = Patience::new(TIMEOUT, true);
        Ok(Self { qp, _peer: peer, cq, target, patience, opened: context.clone() })
    }

    /// Posts the requests on a queue that will be drained, and waits until it is.
    fn post(&mut self, simulator: &Simulator, args: &Args) -> Result<(), Failure> {
        let at = DrainAt::After(args.drain_after.into());
        simulator.drain_qp(0, self.qp.qp_num(), at).map_err(|error| {
            Failure::new(format!("the simulated device does not drain: {error:?}"))
        })?;
        let remotes: Vec<RemoteAddress> = (0..usize::from(args.requests))
            .map(|index| self.target.remote(index * MESSAGE..))
            .collect::<Result<_, _>>()?;
        let mut batch = self.qp.wr_start();
        for (wr_id, remote) in (1_u64..).zip(&remotes) {
            let bytes = format!("write {wr_id:>2}");
            batch.wr(wr_id, SendFlags::SIGNALED).rdma_write(*remote).inline_data(bytes.as_bytes());
        }
        batch.complete()?;
        let id = self.qp.id();
        let events = self.opened.async_events();
        loop {
            match events.wait(Some(TIMEOUT))? {
                Some(AsyncEvent::SqDrained(drained)) if drained == id => return Ok(()),
                Some(_) => {}
                None => return Err(self.patience.over("SQ_DRAINED")),
            }
        }
    }

    fn show_ring(
        &self,
        out: &mut impl Write,
        drained: &Drained,
        requests: u16,
    ) -> Result<(), Failure> {
        let pending: BTreeMap<u16, bool> = self
            .qp
            .pending(drained)?
            .map(|request| (request.info.first(), request.info.cancelled()))
            .collect();
        let mut table = Table::new(&[
            ("block", Align::Right),
            ("wr_id", Align::Right),
            ("opcode", Align::Left),
            ("ds", Align::Right),
            ("flags", Align::Left),
            ("control segment", Align::Left),
            ("state", Align::Left),
        ]);
        let ring = self.qp.send_ring();
        let mut block = 0;
        for wr_id in 1..=requests {
            let bytes = ring.get(usize::from(block) * BLOCK..).unwrap_or_default();
            let Ok((control, _)) = ControlSegment::read_from_prefix(bytes) else { break };
            let hex: Vec<String> = bytes[..size_of::<ControlSegment>()]
                .chunks(4)
                .map(|word| word.iter().map(|byte| format!("{byte:02x}")).collect())
                .collect();
            let state = match pending.get(&block) {
                None => "executed",
                Some(false) => "pending",
                Some(true) => "cancelled",
            };
            let here = if block == drained.block() { "  <- the device stands here" } else { "" };
            let opcode = control.opcode().map_or("unknown", Opcode::name);
            table.row([
                block.to_string(),
                wr_id.to_string(),
                opcode.to_owned(),
                control.units().to_string(),
                told(control.fm_ce_se),
                hex.join(" "),
                format!("{state}{here}"),
            ]);
            block += control.units().div_ceil(4) as u16;
        }
        Ok(table.write(out, 3)?)
    }

    fn show_completions(&mut self, out: &mut impl Write, requests: u16) -> Result<(), Failure> {
        let mut table = Table::new(&[
            ("wr_id", Align::Right),
            ("posted as", Align::Left),
            ("status", Align::Left),
            ("", Align::Left),
        ]);
        let mut came = 0;
        self.patience.refresh();
        while came < usize::from(requests) {
            let polled = self.cq.poll(usize::from(requests) - came, |completion| {
                let status = match completion.status() {
                    Ok(()) => "success".to_owned(),
                    Err(error) => error.to_string(),
                };
                table.row([
                    completion.wr_id().to_string(),
                    format!("{:?}", completion.opcode()),
                    status,
                    if completion.cancelled() { "cancelled" } else { "" }.to_owned(),
                ]);
            })?;
            came += polled;
            if polled == 0 {
                self.patience.wait("completions")?;
            }
        }
        Ok(table.write(out, 3)?)
    }

    fn show_target(&self, out: &mut impl Write, requests: u16) -> Result<(), Failure> {
        for index in 0..usize::from(requests) {
            let mut bytes = [0; MESSAGE];
            self.target.read_at(index * MESSAGE, &mut bytes)?;
            let text = match bytes {
                [0, ..] => "untouched".to_owned(),
                bytes => format!("{:?}", String::from_utf8_lossy(&bytes)),
            };
            writeln!(out, "   {:>5}  {text}", index + 1)?;
        }
        Ok(())
    }
}
