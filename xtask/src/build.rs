//! Builds parts of the workspace and finds the results.

use std::env;
use std::io::{self, BufRead, BufReader, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use serde_json::Value;

use crate::failure::Failure;

/// Profile of a build.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Profile {
    /// Builds fast.
    Dev,
    /// Runs fast.
    Release,
    /// Runs fast, with every check of `Dev`.
    Checked,
}

/// Builds a package; returns the path of its shared library.
pub(crate) fn shared_library(package: &str, profile: Profile) -> Result<PathBuf, Failure> {
    build(package, "--lib", profile)?
        .iter()
        .filter(|message| {
            let kinds = message["target"]["kind"].as_array();
            kinds.is_some_and(|kinds| kinds.iter().any(|kind| kind == "cdylib"))
        })
        .filter(|message| message["target"]["name"] == package.replace('-', "_"))
        .flat_map(|message| message["filenames"].as_array().cloned().unwrap_or_default())
        .filter_map(|name| name.as_str().map(PathBuf::from))
        .find(|name| name.extension().is_some_and(|extension| extension == "so"))
        .ok_or_else(|| Failure::NotBuilt(format!("the shared library of {package}")))
}

/// Builds a package in one of the workspace's profiles; returns the path of its archive.
pub(crate) fn archive(package: &str, profile: &str) -> Result<PathBuf, Failure> {
    let mut command = cargo(package, "--lib", Profile::Dev);
    command.args(["--profile", profile]).env("CARGO_INCREMENTAL", "0");
    archive_among(&artifacts(command)?, package)
}

/// Path of a package's archive among the artifacts.
pub(crate) fn archive_among(artifacts: &[Value], package: &str) -> Result<PathBuf, Failure> {
    artifacts
        .iter()
        .filter(|message| message["target"]["name"] == package.replace('-', "_"))
        .flat_map(|message| message["filenames"].as_array().cloned().unwrap_or_default())
        .filter_map(|name| name.as_str().map(PathBuf::from))
        .find(|name| name.extension().is_some_and(|extension| extension == "a"))
        .ok_or_else(|| Failure::NotBuilt(format!("the archive of {package}")))
}

/// Builds a package; returns the path of its program.
pub(crate) fn program(package: &str, profile: Profile) -> Result<PathBuf, Failure> {
    executable(&build(package, "--bins", profile)?)
        .ok_or_else(|| Failure::NotBuilt(format!("the program of {package}")))
}

/// Builds a package's program so that it runs on any Linux of this architecture: it needs no
/// library, not even C's. Returns the program's path.
pub(crate) fn self_contained(package: &str, target_of: &str) -> Result<PathBuf, Failure> {
    let target = self_contained_target()?;
    let variable = format!("CARGO_TARGET_{}_RUSTFLAGS", target.replace('-', "_").to_uppercase());
    let mut command = cargo(package, target_of, Profile::Release);
    command.args(["--target", &target]).env(variable, "-Ctarget-feature=+crt-static");
    // Symbols stay, so that a panic on another machine has a readable trace; line tables do not.
    command.env("CARGO_PROFILE_RELEASE_STRIP", "debuginfo");
    executable(&artifacts(command)?)
        .ok_or_else(|| Failure::NotBuilt(format!("the self-contained program of {package}")))
}

/// The musl target of this machine's architecture if the toolchain has it, else this machine's own
/// target, whose C library can be linked statically as well.
fn self_contained_target() -> Result<String, Failure> {
    let host = host()?;
    let musl = host.replace("-gnu", "-musl");
    let folder = rustc(&["--print", "target-libdir", "--target", &musl]);
    Ok(if folder.is_ok_and(|folder| Path::new(&folder).is_dir()) { musl } else { host })
}

/// This machine's target.
pub(crate) fn host() -> Result<String, Failure> {
    let version = rustc(&["-vV"])?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned)
        .ok_or_else(|| Failure::Output { program: "rustc -vV".into(), what: "no host".to_owned() })
}

/// Folder of the toolchain's files for this machine's target.
pub(crate) fn own_folder() -> Result<PathBuf, Failure> {
    let libraries = PathBuf::from(rustc(&["--print", "target-libdir"])?);
    Ok(libraries.parent().unwrap_or(&libraries).to_owned())
}

/// Output of the compiler, without the line's end.
pub(crate) fn rustc(arguments: &[&str]) -> Result<String, Failure> {
    Ok(says(Command::new("rustc").args(arguments))?.trim_end().to_owned())
}

/// Path of the program among the artifacts.
pub(crate) fn executable(artifacts: &[Value]) -> Option<PathBuf> {
    artifacts.iter().find_map(|message| message["executable"].as_str().map(PathBuf::from))
}

/// Builds the `targets` of a package; returns Cargo's messages.
fn build(package: &str, targets: &str, profile: Profile) -> Result<Vec<Value>, Failure> {
    artifacts(cargo(package, targets, profile))
}

/// A command that builds the `targets` of a package in the release profile.
pub(crate) fn release(package: &str, targets: &str) -> Command {
    cargo(package, targets, Profile::Release)
}

/// A command that builds the `targets` of a package.
fn cargo(package: &str, targets: &str, profile: Profile) -> Command {
    let cargo = env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", targets, "--package", package]);
    command.arg("--message-format=json-render-diagnostics");
    match profile {
        Profile::Dev => &mut command,
        // As published, whatever the environment sets.
        Profile::Release => command.arg("--release").env("CARGO_INCREMENTAL", "0"),
        Profile::Checked => command.args(["--profile", "checked"]),
    };
    command
}

/// Runs a build command; returns Cargo's messages about all artifacts. The progress goes to the
/// user, since a build may take minutes; a build that is up to date prints nothing.
pub(crate) fn artifacts(mut command: Command) -> Result<Vec<Value>, Failure> {
    let cargo = command.get_program().to_string_lossy().into_owned();
    let failed = |error| Failure::Run { program: cargo.clone(), error };
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let colours = ["CARGO_TERM_COLOR", "NO_COLOR"].map(env::var_os).iter().all(Option::is_none);
    if colours && io::stderr().is_terminal() {
        command.env("CARGO_TERM_COLOR", "always");
    }
    let mut child = command.spawn().map_err(failed)?;
    // Reads both pipes at once, so that neither fills up while this waits for the other.
    let said = child.stderr.take().map(|said| thread::spawn(|| progress(said, io::stderr())));
    let output = child.wait_with_output().map_err(failed)?;
    if let Some(said) = said {
        said.join().expect("copying does not panic").map_err(failed)?;
    }
    if !output.status.success() {
        return Err(Failure::Status { program: cargo, status: output.status });
    }
    let messages = String::from_utf8_lossy(&output.stdout);
    Ok(messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|message| message["reason"] == "compiler-artifact")
        .collect())
}

/// Copies Cargo's output, except for the line that ends every build.
fn progress(said: impl Read, mut to: impl Write) -> io::Result<()> {
    let mut said = BufReader::new(said);
    let mut line = Vec::new();
    while said.read_until(b'\n', &mut line)? > 0 {
        let text = String::from_utf8_lossy(&line);
        if !(text.contains("Finished") && text.contains("target(s) in")) {
            to.write_all(&line)?;
        }
        line.clear();
    }
    Ok(())
}

/// Runs a program that must succeed. Its output goes to the user.
pub(crate) fn succeeds(command: &mut Command) -> Result<(), Failure> {
    let program = command.get_program().to_string_lossy().into_owned();
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Failure::Status { program, status }),
        Err(error) => Err(Failure::Run { program, error }),
    }
}

/// Output of a program.
pub(crate) fn says(command: &mut Command) -> Result<String, Failure> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output =
        command.output().map_err(|error| Failure::Run { program: program.clone(), error })?;
    if !output.status.success() {
        return Err(Failure::Status { program, status: output.status });
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(said: &str) -> String {
        let mut printed = Vec::new();
        progress(said.as_bytes(), &mut printed).expect("memory takes all");
        String::from_utf8(printed).expect("text")
    }

    #[test]
    fn up_to_date_build_prints_nothing() {
        assert_eq!(printed("    Finished `release` profile [optimized] target(s) in 0.08s\n"), "");
        let coloured = "\x1b[1m\x1b[92m    Finished\x1b[0m `dev` profile target(s) in 1m 02s\n";
        assert_eq!(printed(coloured), "");
    }

    #[test]
    fn build_prints_compiled_packages_and_errors() {
        let said =
            "   Compiling mlx5-sim v0.1.0\nerror: expected one of\n --> Finished.rs:1\nno end";
        assert_eq!(printed(said), said);
    }

    #[test]
    fn messages_of_a_build_are_separate_from_its_outputs() {
        let mut command = Command::new("sh");
        command.args(["-c", r#"echo 'words' >&2; echo '{"reason":"compiler-artifact","n":1}'"#]);
        let built = artifacts(command).expect("it succeeds");
        assert_eq!(built, [serde_json::json!({"reason": "compiler-artifact", "n": 1})]);
    }
}
