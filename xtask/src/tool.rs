//! Programs of the registry that tasks use, installed into the user's cache.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::failure::Failure;

/// A program of the registry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tool {
    /// Name of the program and of its package.
    pub(crate) name: &'static str,
    /// Fixed version: another one may print other messages.
    pub(crate) version: &'static str,
    /// Folder of the cache in which it is kept.
    pub(crate) cache: &'static str,
}

impl Tool {
    /// Path of the program, which is installed first if it is not there.
    pub(crate) fn installed(self) -> Result<PathBuf, Failure> {
        let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
        let cache = cache.or_else(home).unwrap_or_else(std::env::temp_dir);
        let folder = cache.join(self.cache).join(self.version);
        let program = folder.join("bin").join(self.name);
        if program.is_file() {
            return Ok(program);
        }
        eprintln!("installing {} {} into {}", self.name, self.version, folder.display());
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(cargo);
        // The debug profile builds fast, and a task runs the program once.
        command.args(["install", "--quiet", "--locked", "--debug", self.name]);
        command.args(["--version", self.version]).arg("--root").arg(&folder);
        // Debug information would fill the cache.
        command.env("CARGO_PROFILE_DEV_DEBUG", "0");
        output(command)?;
        Ok(program)
    }
}

/// Output of a program, if it succeeds.
pub(crate) fn output(mut command: Command) -> Result<Vec<u8>, Failure> {
    let program = command.get_program().to_string_lossy().into_owned();
    command.stdin(Stdio::null()).stderr(Stdio::inherit());
    match command.output() {
        Ok(output) if output.status.success() => Ok(output.stdout),
        Ok(output) => Err(Failure::Status { program, status: output.status }),
        Err(error) => Err(Failure::Run { program, error }),
    }
}
