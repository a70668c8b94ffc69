//! Building parts of the workspace, and finding what was built.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::failure::Failure;

/// How to build.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Profile {
    /// Quick to build.
    Dev,
    /// Quick to run.
    Release,
}

/// Builds a package, and answers where its shared library is.
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

/// Builds a package, and answers where its program is.
pub(crate) fn program(package: &str, profile: Profile) -> Result<PathBuf, Failure> {
    build(package, "--bins", profile)?
        .iter()
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
        .ok_or_else(|| Failure::NotBuilt(format!("the program of {package}")))
}

/// Builds what `targets` names of a package, and answers what cargo says of each.
fn build(package: &str, targets: &str, profile: Profile) -> Result<Vec<Value>, Failure> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let mut command = Command::new(&cargo);
    command.args(["build", "--quiet", targets, "--package", package]);
    command.arg("--message-format=json-render-diagnostics");
    if profile == Profile::Release {
        command.arg("--release");
    }
    command.stderr(Stdio::inherit());
    let output =
        command.output().map_err(|error| Failure::Run { program: cargo.clone(), error })?;
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
