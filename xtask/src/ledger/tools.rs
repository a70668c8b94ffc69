//! Programs that query devices: rdma-core's, and ours for comparison.

use std::path::Path;

use super::door::{DEVICE, Door, Link};
use super::rows::{Outcome, Reason, Row};
use super::suites;
use crate::build::{self, Profile};
use crate::failure::Failure;
use crate::provider::Provider;

/// Time limit of a tool.
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
        let mut trouble = ended.trouble.or_else(|| missing.map(|word| format!("says no {word}")));
        if trouble.is_none() && door.provider == Provider::Rust && !program.is_absolute() {
            let c = door.over(Provider::C);
            let theirs = c.run(link, Path::new("/"), SECONDS, program, arguments)?;
            trouble = theirs.trouble.or_else(|| first_difference(&theirs.stdout, &ended.stdout));
        }
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

/// A line of a tool's output over C's library, the same line over ours, and the reason for the
/// difference.
const DIFFERENCES: [(&str, &str, &str); 1] = [(
    "atomic_cap: ATOMIC_HCA (1)",
    "atomic_cap: ATOMIC_GLOB (2)",
    "C's library reports it from release 47 on",
)];

/// The first line of a tool's output that differs between C's library and ours without a known
/// reason.
fn first_difference(theirs: &str, ours: &str) -> Option<String> {
    // Differences in column width do not count.
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let (mut left, mut right) = (theirs.lines().map(words), ours.lines().map(words));
    loop {
        let (theirs, ours) = match (left.next(), right.next()) {
            (None, None) => return None,
            (theirs, ours) => (theirs.unwrap_or_default(), ours.unwrap_or_default()),
        };
        let has_reason = DIFFERENCES.iter().any(|(c, own, _)| theirs == *c && ours == *own);
        if theirs != ours && !has_reason {
            return Some(format!("says \"{ours}\", and over C's library \"{theirs}\""));
        }
    }
}

/// Transports of UCX, and the text that it prints for an endpoint that has one. Its memory hooks
/// keep their defaults: they patch mmap(2), and make the system call by its number.
const UCX: [(&str, &str); 4] = [
    ("rc_v", "rc_verbs/mlx5_0:1"),
    ("rc_x", "rc_mlx5/mlx5_0:1"),
    ("ud_v", "ud_verbs/mlx5_0:1"),
    ("ud_x", "ud_mlx5/mlx5_0:1"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unexplained_difference_is_reported() {
        let said = "hca_id:\tmlx5_0\n\tatomic_cap:\t\tATOMIC_HCA (1)\n";
        let global = said.replace("HCA (1)", "GLOB (2)");
        assert_eq!(first_difference(said, said), None);
        assert_eq!(first_difference(said, &global), None);
        assert!(first_difference(&global, said).is_some());
        assert!(first_difference(said, &said.replace("mlx5_0", "mlx5_1")).is_some());
        assert!(first_difference(said, &format!("{said}more\n")).is_some());
        assert!(first_difference(said, "hca_id: mlx5_0\n").is_some());
    }
}
