//! Runs the script through rdma-core's provider, in a C program on the preload door.

use std::fmt::Display;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command as Process, Stdio};

use crate::event::{Call, Event, Made, Outcome, Post, Rung};
use crate::failure::Failure;

/// The C program, and the library that gives it a device.
pub(crate) struct Peer<'a> {
    pub(crate) program: &'a Path,
    pub(crate) library: &'a Path,
    /// The description of the device, in the form that the library takes.
    pub(crate) machine: String,
    /// Without BlueFlame.
    pub(crate) plain: bool,
    /// The folder of the libraries, if they are not rdma-core's.
    pub(crate) folder: Option<PathBuf>,
}

impl Peer<'_> {
    /// Runs a script, and returns the events.
    pub(crate) fn run(&self, commands: &[impl Display]) -> Result<Vec<Event>, Failure> {
        let mut process = Process::new(self.program);
        process.env("LD_PRELOAD", self.library).env("MLX5_SIM", &self.machine);
        // rdma-core's cancel reads heads of blocks that it never writes. Fresh memory that is
        // filled with a value that no head has makes these misses repeatable.
        process.env("MALLOC_PERTURB_", "90");
        for (name, _) in std::env::vars_os() {
            // A setting that the user made for other programs would change this one's output.
            if name.to_string_lossy().starts_with("MLX5_") && name != "MLX5_SIM" {
                process.env_remove(name);
            }
        }
        if self.plain {
            process.env("MLX5_SHUT_UP_BF", "1");
        }
        if let Some(folder) = &self.folder {
            process.env("LD_LIBRARY_PATH", folder);
        }
        let mut child = process.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut input = child.stdin.take().ok_or(Failure::Missing("the C program's input"))?;
        let script: String = commands.iter().map(|command| format!("{command}\n")).collect();
        // The program answers while it reads, so a thread writes to it.
        let writer = std::thread::spawn(move || input.write_all(script.as_bytes()));
        let output = child.wait_with_output()?;
        // If the program ended early, its status says more than the failed write.
        let written = writer.join();
        if !output.status.success() {
            return Err(Failure::Peer(output.status));
        }
        if !matches!(written, Ok(Ok(()))) {
            return Err(Failure::Missing("a reader of the whole script"));
        }
        Reader { lines: String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned) }.read()
    }
}

struct Reader<I> {
    lines: I,
}

fn hex(text: &str) -> Option<Vec<u8>> {
    let byte = |at| text.get(at..at + 2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
    (0..text.len()).step_by(2).map(byte).collect()
}

fn number(word: Option<&str>) -> Option<u32> {
    u32::from_str_radix(word?, 16).ok()
}

impl<I: Iterator<Item = String>> Reader<I> {
    fn read(mut self) -> Result<Vec<Event>, Failure> {
        let mut events = Vec::new();
        while let Some(line) = self.lines.next() {
            if line == "end" {
                return Ok(events);
            }
            let event = self.event(&line)?;
            events.push(event.ok_or(Failure::Said(line))?);
        }
        Err(Failure::Missing("the end of what the C program said"))
    }

    fn event(&mut self, line: &str) -> Result<Option<Event>, Failure> {
        let mut words = line.split_whitespace();
        let kind = words.next();
        let rest: Vec<_> = words.collect();
        let at = |index: usize| number(rest.get(index).copied());
        Ok(match kind {
            Some("queue") => rest.first().map(|name| Event::Queue((*name).to_owned())),
            Some("call") => self.call(rest.first().copied().unwrap_or_default())?.map(Event::Call),
            Some("made") => (|| {
                let (qpn, blocks) = (at(0)?, at(1)?);
                let (receives, stride) = (at(2)?, at(3)?);
                let stride = if receives == 0 { 0 } else { stride };
                Some(Event::Made(Made { qpn, blocks, receives, stride }))
            })(),
            Some("srq") => (|| Some(Event::Shared { requests: at(0)?, entries: at(1)? }))(),
            Some("post") => {
                let label = rest.first().map(|label| (*label).to_owned());
                label.zip(self.post()?).map(|(label, post)| Event::Post(label, post))
            }
            Some("recv" | "srecv") => {
                let label = rest.first().map(|label| (*label).to_owned());
                label.zip(self.post()?).map(|(label, post)| Event::Receive(label, post))
            }
            Some("overfull") => {
                let untouched = self.lines.next().is_some_and(|line| line == "ring untouched");
                self.lines.next().map(|_| Event::Overfull { untouched })
            }
            _ => None,
        })
    }

    fn call(&mut self, method: &str) -> Result<Option<Call>, Failure> {
        fn parse(text: &str) -> Option<u16> {
            u16::from_str_radix(text, 16).ok()
        }
        let Some((object, method)) = method.split_once('/') else { return Ok(None) };
        let (Some(object), Some(method)) = (parse(object), parse(method)) else { return Ok(None) };
        let mut call = Call { object, method, ..Call::default() };
        for line in self.lines.by_ref() {
            let mut words = line.split_whitespace();
            match (words.next(), words.next(), words.next()) {
                (Some("done"), ..) => return Ok(Some(call)),
                (Some("attr"), Some(id), Some(bytes)) => {
                    let (Some(id), Some(bytes)) = (parse(id), hex(bytes)) else {
                        return Err(Failure::Said(line));
                    };
                    call.inputs.insert(id, bytes);
                }
                _ => return Err(Failure::Said(line)),
            }
        }
        Ok(None)
    }

    fn post(&mut self) -> Result<Option<Post>, Failure> {
        let mut post = Post::default();
        for line in self.lines.by_ref() {
            let words: Vec<_> = line.split_whitespace().collect();
            let understood = match words[..] {
                ["done"] => return Ok(Some(post)),
                ["result", "posted"] => Some(()),
                ["result", "refused", index] => {
                    number(Some(index)).map(|index| post.outcome = Outcome::Refused(index))
                }
                ["record", bytes] => hex(bytes).map(|bytes| post.record = bytes),
                ["register", "none"] => Some(()),
                ["register", offset, bytes] => {
                    number(Some(offset)).zip(hex(bytes)).map(|(offset, bytes)| {
                        post.rung = Some(Rung { offset: offset as usize, bytes });
                    })
                }
                ["wqe" | "rwqe" | "swqe", bytes] => hex(bytes).map(|bytes| post.wqes.push(bytes)),
                _ => None,
            };
            understood.ok_or(Failure::Said(line))?;
        }
        Ok(None)
    }
}
