//! Programs that look at devices: rdma-core's, and ours beside them.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::door::{DEVICE, Door, Link};
use super::rows::{Outcome, Reason, Row};
use crate::failure::Failure;

/// The longest that a tool may take.
const SECONDS: u32 = 60;

/// Runs each tool on one link.
pub(super) fn run(door: &Door, link: Link) -> Result<Vec<Row>, Failure> {
    let ours = our_command()?;
    let tools: [(&str, &str, &[&str], &[&str]); 3] = [
        ("ibv_devices", "ibv_devices", &[], &[DEVICE]),
        ("ibv_devinfo -v", "ibv_devinfo", &["-v"], &[DEVICE, "PORT_ACTIVE", link.layer]),
        ("mlx5 info", &ours, &["info", "--device", DEVICE], &[DEVICE, link.layer]),
    ];
    let mut rows = Vec::new();
    for (test, program, arguments, said) in tools {
        let ended = door.run(link, Path::new("/"), SECONDS, program, arguments)?;
        let missing = said.iter().find(|word| !ended.stdout.contains(**word));
        let trouble = ended.trouble.or_else(|| missing.map(|word| format!("says no {word}")));
        rows.push(Row {
            suite: "rdma-core tools",
            test: test.to_owned(),
            link: link.name,
            outcome: if trouble.is_none() { Outcome::Pass } else { Outcome::Fail },
            reason: trouble.map(Reason::Unexplained),
        });
    }
    Ok(rows)
}

/// Builds our command, and answers where it is.
fn our_command() -> Result<String, Failure> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let output = Command::new(&cargo)
        .args(["build", "--quiet", "--release", "--package", "mlx5-cli"])
        .arg("--message-format=json-render-diagnostics")
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| Failure::Run { program: cargo.clone(), error })?;
    if !output.status.success() {
        return Err(Failure::Status { program: cargo, status: output.status });
    }
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .find_map(|message| message["executable"].as_str().map(str::to_owned))
        .ok_or_else(|| Failure::NotBuilt("the command of mlx5-cli".to_owned()))
}
