//! Runs a machine: QEMU, the process that serves its devices, and their output.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use super::guest::{Guest, Link};
use super::initramfs;
use super::record::{self, Ended, Event, Reader, Record};
use crate::debian::cache::{in_file, make};
use crate::failure::Failure;

/// Time limit for the devices to be ready.
const SERVED: Duration = Duration::from_secs(30);
/// Time limit for a process to end once nothing needs it.
const GRACE: Duration = Duration::from_secs(20);

/// The guest's memory; the host supplies only the pages in use. The largest completion queue, which
/// rdma-core's tests create, takes half a gigabyte.
const MEMORY: &str = "1536M";

/// Names of the logs in the folder.
pub(super) const SERIAL: &str = "serial.log";
const RESULTS: &str = "results.log";
const DEVICE: &str = "device.log";
/// Capture of the frames on the wire.
pub(super) const CAPTURE: &str = "wire.pcap";
/// Standard error of QEMU, and of the process that serves the devices.
pub(super) const QEMU: &str = "qemu.log";
pub(super) const SERVER: &str = "server.log";

impl Guest<'_> {
    /// Starts the machine and follows it until it ends.
    pub(super) fn run(
        &self,
        mut progress: impl FnMut(&Event, Duration),
    ) -> Result<Record, Failure> {
        make(self.folder)?;
        for name in [SERIAL, RESULTS, DEVICE, CAPTURE] {
            let path = self.folder.join(name);
            if path.exists() {
                fs::remove_file(&path).map_err(in_file(&path))?;
            }
        }
        let sockets = Sockets::new(self.hcas)?;
        let modules = self.parts.kernel.modules(&self.parts.tools, self.link == Link::Eth)?;
        let initrd = sockets.folder.join("initrd");
        fs::write(&initrd, initramfs::build(self, &modules)?).map_err(in_file(&initrd))?;

        let begun = Instant::now();
        let served = if self.hcas > 0 { Some(self.serve(&sockets)?) } else { None };
        let said = (!self.shell).then(|| self.folder.join(QEMU));
        let mut qemu = Running::start(&self.qemu(&sockets, &initrd), said.as_deref())?;
        let mut record = Record::default();
        let mut marks = Vec::new();
        if self.shell {
            record.machine = qemu.end(None)?;
        } else {
            let results = self.folder.join(RESULTS);
            let mut kept = File::create(&results).map_err(in_file(&results))?;
            let mut reader = Reader::default();
            loop {
                let left = self.limit.saturating_sub(begun.elapsed());
                let Ok(line) = qemu.lines.recv_timeout(left) else { break };
                kept.write_all(&line).map_err(in_file(&results))?;
                for event in reader.take(&line) {
                    if let Event::Begin(name) = &event {
                        marks.push((self.logged(), name.clone()));
                    }
                    progress(&event, begun.elapsed());
                    record.note(event, begun.elapsed());
                }
            }
            let left = self.limit.saturating_sub(begun.elapsed());
            record.machine = qemu.end(Some(left))?;
            let log = self.folder.join(SERIAL);
            let bytes = fs::read(&log).map_err(in_file(&log))?;
            record.log = String::from_utf8_lossy(&bytes).into_owned();
        }
        if let Some(mut served) = served {
            record.device = Some(served.end(Some(GRACE))?);
            let log = self.folder.join(DEVICE);
            let log = fs::read_to_string(&log).map_err(in_file(&log))?;
            record.problems = record::problems(&log, &marks);
        }
        record.elapsed = begun.elapsed();
        Ok(record)
    }

    /// Current length of the devices' log.
    fn logged(&self) -> usize {
        fs::metadata(self.folder.join(DEVICE)).map_or(0, |metadata| metadata.len() as usize)
    }

    /// Starts the process that serves the devices.
    fn serve(&self, sockets: &Sockets) -> Result<Running, Failure> {
        let mut command = Command::new(self.device);
        for path in &sockets.paths {
            command.arg("--socket").arg(path);
        }
        command.args(["--once", "--link", self.link.name()]);
        command.args(["--sim", self.receives.setting(), "--log"]);
        command.arg(self.folder.join(DEVICE));
        if self.link == Link::Eth {
            command.arg("--capture").arg(self.folder.join(CAPTURE));
        }
        let running = Running::start(&command, Some(&self.folder.join(SERVER)))?;
        match running.lines.recv_timeout(SERVED) {
            Ok(line) if line == b"ready\n" => Ok(running),
            _ => {
                let said = self.folder.join(SERVER);
                let words = fs::read_to_string(&said).unwrap_or_default();
                let program = self.device.display();
                Err(Failure::Vm(format!("{program} is not ready to serve: {}", words.trim())))
            }
        }
    }

    fn qemu(&self, sockets: &Sockets, initrd: &Path) -> Command {
        let mut command = self.parts.tools.qemu();
        command.args(["-M", "q35,memory-backend=mem", "-m", MEMORY]);
        // The process that serves the devices accesses the guest's memory.
        command.arg("-object");
        command.arg(format!("memory-backend-memfd,id=mem,share=on,size={MEMORY}"));
        command.args(["-accel", "tcg", "-nodefaults", "-display", "none", "-no-reboot"]);
        command.arg("-kernel").arg(&self.parts.kernel.image).arg("-initrd").arg(initrd);
        // On a busy host the kernel measures the TSC wrongly, and all its clocks run wrong from
        // then on. The HPET reports its own frequency.
        command.args([
            "-append",
            "console=ttyS0 ignore_loglevel rdinit=/init panic=-1 random.trust_cpu=on \
             mitigations=off nokaslr tsc=unstable clocksource=hpet",
        ]);
        for (index, path) in sockets.paths.iter().enumerate() {
            command.arg("-device");
            command.arg(format!("pcie-root-port,id=rp{index},chassis={0},slot={0}", index + 1));
            command.arg("-device").arg(format!(
                r#"{{"driver":"vfio-user-pci","bus":"rp{index}","socket":{{"type":"unix","path":"{}"}}}}"#,
                path.display()
            ));
        }
        if self.shell {
            command.args(["-serial", "mon:stdio"]);
        } else {
            let mut file = std::ffi::OsString::from("file:");
            file.push(self.folder.join(SERIAL));
            command.arg("-serial").arg(file).args(["-serial", "stdio"]);
        }
        command
    }
}

/// A folder for sockets, since their names must be short. Removed on drop.
struct Sockets {
    folder: PathBuf,
    paths: Vec<PathBuf>,
}

impl Sockets {
    fn new(count: u32) -> Result<Self, Failure> {
        let folder = std::env::temp_dir().join(format!("mlx5-vm-{}", std::process::id()));
        make(&folder)?;
        let paths = (0..count).map(|index| folder.join(format!("hca{index}"))).collect();
        Ok(Self { folder, paths })
    }
}

impl Drop for Sockets {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A process that is killed when this is dropped or when the whole program ends.
struct Running {
    program: String,
    child: Child,
    /// Lines of its standard output.
    lines: Receiver<Vec<u8>>,
}

impl Running {
    /// Starts a program. With a file for its standard error, it does not use the terminal.
    fn start(command: &Command, said: Option<&Path>) -> Result<Self, Failure> {
        let program = command.get_program().to_string_lossy().into_owned();
        let mut bound = Command::new("setpriv");
        bound.args(["--pdeathsig", "KILL"]).arg(command.get_program()).args(command.get_args());
        if let Some(said) = said {
            let file = File::create(said).map_err(in_file(said))?;
            bound.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(file);
        }
        let mut child =
            bound.spawn().map_err(|error| Failure::Run { program: program.clone(), error })?;
        let (sender, lines) = mpsc::channel();
        if let Some(out) = child.stdout.take() {
            thread::spawn(move || {
                let mut out = BufReader::new(out);
                let mut line = Vec::new();
                while out.read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
                    // The receiver may be gone. Reading goes on, so that the program does not block
                    // on a full pipe.
                    let _ = sender.send(std::mem::take(&mut line));
                }
            });
        }
        Ok(Self { program, child, lines })
    }

    /// Waits for the end; kills the process if it has not ended within `limit`.
    fn end(&mut self, limit: Option<Duration>) -> Result<Ended, Failure> {
        let failed = |error| Failure::Run { program: self.program.clone(), error };
        let Some(limit) = limit else {
            return self.child.wait().map(Ended::Itself).map_err(failed);
        };
        let begun = Instant::now();
        loop {
            match self.child.try_wait().map_err(failed)? {
                Some(status) => return Ok(Ended::Itself(status)),
                None if begun.elapsed() > limit => break,
                None => thread::sleep(Duration::from_millis(10)),
            }
        }
        self.child.kill().and_then(|()| self.child.wait()).map_err(failed)?;
        Ok(Ended::Stopped)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Neither call has an effect on a process that has ended and was waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
