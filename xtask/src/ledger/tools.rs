//! Programs that look at devices: rdma-core's, and ours beside them.

use std::path::Path;

use super::door::{DEVICE, Door, Link};
use super::rows::{Outcome, Reason, Row};
use super::suites;
use crate::build::{self, Profile};
use crate::failure::Failure;

/// The longest that a tool may take.
const SECONDS: u32 = 60;

/// Runs each tool on one link.
pub(super) fn run(door: &Door, link: Link) -> Result<Vec<Row>, Failure> {
    let ours = build::program("mlx5-cli", Profile::Release)?;
    let tools: [(&str, &Path, &[&str], &[&str]); 3] = [
        ("ibv_devices", Path::new("ibv_devices"), &[], &[DEVICE]),
        ("ibv_devinfo -v", Path::new("ibv_devinfo"), &["-v"], &[DEVICE, "PORT_ACTIVE", link.layer]),
        ("mlx5 info", &ours, &["info", "--device", DEVICE], &[DEVICE, link.layer]),
    ];
    let mut rows = Vec::new();
    for (test, program, arguments, said) in tools {
        let ended = door.run(link, Path::new("/"), SECONDS, program, arguments)?;
        let missing = said.iter().find(|word| !ended.stdout.contains(**word));
        let trouble = ended.trouble.or_else(|| missing.map(|word| format!("says no {word}")));
        rows.push(Row {
            suite: suites::TOOLS,
            test: test.to_owned(),
            link: link.name,
            provider: door.provider,
            outcome: if trouble.is_none() { Outcome::Pass } else { Outcome::Fail },
            reason: trouble.map(Reason::Unexplained),
        });
    }
    for transport in UCX {
        let settings = format!("UCX_TLS={}", transport.0);
        let arguments = [&*settings, "ucx_info", "-u", "t", "-e"];
        let ended = door.run(link, Path::new("/"), SECONDS, "env", &arguments)?;
        let missing = !ended.stdout.contains(transport.1);
        let trouble = ended.trouble.or_else(|| missing.then(|| format!("says no {}", transport.1)));
        rows.push(Row {
            suite: suites::UCX,
            test: format!("ucx_info -u t -e, {settings}"),
            link: link.name,
            provider: door.provider,
            outcome: if trouble.is_none() { Outcome::Pass } else { Outcome::Fail },
            reason: trouble.map(Reason::Unexplained),
        });
    }
    Ok(rows)
}

/// Transports of UCX, and what it says of an endpoint that has one. Its memory hooks are as it has
/// them by default: they patch mmap(2), and make the call by its number.
const UCX: [(&str, &str); 4] = [
    ("rc_v", "rc_verbs/mlx5_0:1"),
    ("rc_x", "rc_mlx5/mlx5_0:1"),
    ("ud_v", "ud_verbs/mlx5_0:1"),
    ("ud_x", "ud_mlx5/mlx5_0:1"),
];
