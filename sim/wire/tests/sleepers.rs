//! Programs that sleep while the process of their machine ends: each wakes, and gets an error.
//! Every wait has a limit.

#[allow(dead_code, reason = "other tests use the rest")]
mod limited;

use std::error::Error;
use std::io::{BufRead, BufReader};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use mlx5::{Context, DeviceWatcher, ErrorKind, PollError, devices_on, transport::Rc};
use mlx5_async::{AsyncQueuePair, Ended, Hub, PumpError, RefusedBecause, Step};
use mlx5_sim_wire::Wire;
use mlx5_uapi::rdma_cm::{self, GetEvent};
use mlx5_uapi::wait::wait_readable;
use mlx5_uapi::{Errno, Kernel};

type Outcome = Result<(), Box<dyn Error>>;

/// The longest that anything may take.
const DEADLINE: Duration = Duration::from_secs(30);

/// A machine that is a process of its own.
struct Machine {
    process: Child,
    socket: PathBuf,
}

impl Machine {
    fn start(name: &str) -> Result<Self, Box<dyn Error>> {
        let socket = std::env::temp_dir().join(format!("mlx5-{name}-{}", std::process::id()));
        let mut command = Command::new(env!("CARGO_BIN_EXE_mlx5-sim-wire"));
        command.arg(&socket).arg("--stay").stdout(Stdio::piped());
        let mut machine = Self { process: command.spawn()?, socket };
        let stdout = machine.process.stdout.take().ok_or("no output")?;
        let ready = limited::within(machine.process.id(), move || {
            let mut line = String::new();
            BufReader::new(stdout).read_line(&mut line).map(|_| line)
        });
        assert_eq!(ready?, "ready\n");
        Ok(machine)
    }

    fn open(&self) -> Result<Context, Box<dyn Error>> {
        let devices = devices_on(Arc::new(Wire::connect(&self.socket)?))?;
        Ok(devices.first().ok_or("no device")?.open()?)
    }

    /// Kills the process, without notice to its programs.
    fn kill(&mut self) -> Outcome {
        self.process.kill()?;
        self.process.wait()?;
        Ok(())
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.kill();
        for file in [mlx5_sim_wire::lock_of(&self.socket), self.socket.clone()] {
            let _ = std::fs::remove_file(file);
        }
    }
}

#[test]
fn pump_that_sleeps_ends_with_an_error_when_the_process_of_the_machine_ends() -> Outcome {
    let mut machine = Machine::start("pump")?;
    let context = machine.open()?;
    let pd = context.alloc_pd()?;
    let (hub, mut pump) = Hub::new(&context, 256)?;
    let mut qp = hub.create_qp::<Rc>(&pd).build()?;
    qp.init(&context.local_port(1, None)?, &Default::default())?;
    let seat = hub.reserve(qp)?;
    seat.post_recv((), Default::default())?;
    let qp: AsyncQueuePair<Rc, ()> = seat.adopt();
    while pump.step()? != Step::Wait {}
    assert_eq!(wait_readable(pump.as_fd(), Some(Duration::ZERO)), Ok(false), "nothing happened");
    machine.kill()?;
    assert_eq!(wait_readable(pump.as_fd(), Some(DEADLINE)), Ok(true), "the pump sleeps on");
    // A thread that runs the pump ends, too.
    let (send, ended) = mpsc::channel();
    std::thread::spawn(move || send.send(pump.run()));
    match ended.recv_timeout(DEADLINE)? {
        Err(PumpError::Poll(PollError::DeviceGone)) => {}
        other => panic!("{other:?}"),
    }
    let refused = qp.try_post((), Default::default(), |wr| wr.send().inline_data(&[]));
    let gone = RefusedBecause::Ended(Ended::Poll(PollError::DeviceGone));
    assert_eq!(refused.map_err(|refused| refused.because), Err(gone));
    Ok(())
}

#[test]
fn thread_that_waits_for_completions_or_events_wakes_when_the_process_of_the_machine_ends()
-> Outcome {
    let mut machine = Machine::start("waits")?;
    let context = machine.open()?;
    let channel = context.create_comp_channel()?;
    let mut cq = context.create_cq(16).channel(&channel).build()?;
    assert_eq!(cq.wait(false, Some(Duration::ZERO)), Ok(false));
    let events = context.async_events();
    machine.kill()?;
    assert_eq!(wait_readable(channel.as_fd(), Some(DEADLINE)), Ok(true));
    assert_eq!(wait_readable(events.as_fd(), Some(DEADLINE)), Ok(true));
    let gone = Err(ErrorKind::DeviceGone);
    assert_eq!(cq.wait(false, Some(DEADLINE)).map_err(|error| error.kind()), gone);
    assert_eq!(events.next().map(drop).map_err(|error| error.kind()), gone.map(drop));
    assert_eq!(cq.poll(1, |_| ()), Err(PollError::DeviceGone));
    assert_eq!(
        context.alloc_pd().map(drop).map_err(|error| error.kind()),
        Err(ErrorKind::DeviceGone)
    );
    Ok(())
}

#[test]
fn channel_of_the_connection_manager_is_readable_when_the_process_of_the_machine_ends() -> Outcome {
    let mut machine = Machine::start("channel")?;
    let wire = Wire::connect(&machine.socket)?;
    let channel = wire.rdma_cm()?;
    let event = || rdma_cm::call(&*channel, GetEvent::default()).map(drop);
    assert_eq!(event(), Err(Errno::EAGAIN));
    assert_eq!(wait_readable(channel.as_fd(), Some(Duration::ZERO)), Ok(false));
    machine.kill()?;
    assert_eq!(wait_readable(channel.as_fd(), Some(DEADLINE)), Ok(true));
    assert_eq!(event(), Err(Errno::EIO));
    Ok(())
}

#[test]
fn watcher_of_devices_fails_when_the_process_of_the_machine_ends() -> Outcome {
    let mut machine = Machine::start("watcher")?;
    let watcher = DeviceWatcher::on(Arc::new(Wire::connect(&machine.socket)?))?;
    assert_eq!(watcher.devices().len(), 1);
    assert_eq!(wait_readable(watcher.as_fd(), Some(Duration::ZERO)), Ok(false));
    assert!(watcher.next()?.is_none());
    let (send, ended) = mpsc::channel();
    std::thread::spawn(move || send.send(watcher.wait(None).map(drop)));
    machine.kill()?;
    let end = ended.recv_timeout(DEADLINE)?;
    assert_eq!(end.map_err(|error| error.kind()), Err(ErrorKind::DeviceGone));
    Ok(())
}
