//! `cargo xtask crates`: checks that the packages can be published, in addition to `cargo xtask
//! package`.

use std::path::Path;
use std::process::Command;

use crate::build;
use crate::failure::Failure;
use crate::package::{ALONE, PUBLISHED};
use crate::tool::Tool;

/// Check the licences, sources and known faults of the dependencies, and the packages' versions
///
/// cargo-deny reports a dependency whose licence deny.toml does not allow, that is there twice,
/// does not come from the registry, was withdrawn, or has a known fault. If the list of known
/// faults cannot be fetched, the task says so and leaves them out. cargo-semver-checks reports if a
/// library's interface has changed since a commit in a way that its version does not allow.
///
/// Installs both tools into the cache, which takes minutes.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: Option<Check>,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Check {
    /// Check only the dependencies
    Deny,
    /// Check only the interfaces
    Semver {
        /// Compare with this commit [default: the newest tag v*]
        #[arg(long, value_name = "COMMIT")]
        base: Option<String>,
        /// Check only these packages [default: every published library]
        #[arg(long, short, value_name = "NAME")]
        package: Vec<String>,
    },
}

const DENY: Tool = Tool { name: "cargo-deny", version: "0.20.2", cache: "mlx5-deny" };
const SEMVER: Tool =
    Tool { name: "cargo-semver-checks", version: "0.51.0", cache: "mlx5-semver-checks" };

/// Runs the task.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    match &arguments.what {
        Some(Check::Deny) => deny(),
        Some(Check::Semver { base, package }) => {
            let base = match base {
                Some(base) => Some(base.clone()),
                None => newest_tag(Path::new("."))?,
            };
            // Without a release, the subcommand alone would check nothing and pass, so it is an
            // error.
            let base = base.ok_or_else(|| Failure::Unknown(NO_BASE.to_owned()))?;
            semver(&base, package)
        }
        None => {
            deny()?;
            match newest_tag(Path::new("."))? {
                Some(tag) => semver(&tag, &[]),
                None => {
                    println!("interfaces are left out: {NO_BASE}");
                    Ok(())
                }
            }
        }
    }
}

fn deny() -> Result<(), Failure> {
    let program = DENY.installed()?;
    let deny = |words: &[&str]| {
        let mut command = Command::new(&program);
        command.args(["--workspace", "--locked"]).args(words);
        build::succeeds(&mut command)
    };
    deny(&["check", "--hide-inclusion-graph", "bans", "licenses", "sources"])?;
    match deny(&["fetch", "db"]) {
        Ok(()) => deny(&["check", "--hide-inclusion-graph", "--disable-fetch", "advisories"]),
        Err(Failure::Status { .. }) => {
            println!("known faults are left out: their list cannot be fetched from here");
            Ok(())
        }
        Err(other) => Err(other),
    }
}

/// Message before the first release.
const NO_BASE: &str = "no version is released (there is no tag v*), so there is no interface to keep; \
                       `cargo xtask crates semver --base COMMIT` compares with a commit";

fn semver(base: &str, packages: &[String]) -> Result<(), Failure> {
    is_commit(Path::new("."), base)?;
    let program = SEMVER.installed()?;
    let mut command = Command::new(program);
    command.args(["semver-checks", "check-release", "--baseline-rev", base]);
    let libraries = PUBLISHED.iter().copied().filter(|name| !ALONE.contains(name));
    match packages {
        [] => command.args(libraries.flat_map(|name| ["--package", name])),
        some => command.args(some.iter().flat_map(|name| ["--package", name])),
    };
    build::succeeds(&mut command)
}

/// Fails if a repository has no such commit. This comes first because installing the tool takes
/// minutes.
fn is_commit(repository: &Path, name: &str) -> Result<(), Failure> {
    let mut command = Command::new("git");
    command.args(["rev-parse", "--quiet", "--verify", &format!("{name}^{{commit}}")]);
    match build::says(command.current_dir(repository)) {
        Err(Failure::Status { .. }) => Err(Failure::Unknown(format!(
            "there is no commit {name}; git log --oneline has those that there are"
        ))),
        other => other.map(drop),
    }
}

/// The tag of a repository's newest release, if it has one.
fn newest_tag(repository: &Path) -> Result<Option<String>, Failure> {
    let mut command = Command::new("git");
    // A pre-release (a version with a suffix) sorts before the version itself.
    command.args(["-c", "versionsort.suffix=-", "tag", "--list", "v*", "--sort=-version:refname"]);
    command.current_dir(repository);
    Ok(build::says(&mut command)?.lines().next().map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_newest_tag_is_that_of_the_highest_version() {
        let folder = std::env::temp_dir().join(format!("mlx5-tags-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let git = |words: &[&str]| {
            let mut command = Command::new("git");
            command.args(["-c", "user.name=nobody", "-c", "user.email=nobody@nowhere"]);
            build::succeeds(command.args(words).current_dir(&folder)).expect("git");
        };
        git(&["init", "--quiet"]);
        assert!(is_commit(&folder, "HEAD").is_err());
        git(&["commit", "--quiet", "--allow-empty", "--message=first"]);
        is_commit(&folder, "HEAD").expect("the first");
        let missing = is_commit(&folder, "v9").expect_err("there is no such tag").to_string();
        assert!(missing.starts_with("there is no commit v9"), "{missing}");
        for (tags, newest) in [
            (&["release"][..], None),
            (&["v0.9.0", "v0.10.0-rc.1"], Some("v0.10.0-rc.1")),
            (&["v0.10.0", "v0.10.0-rc.2", "v0.2.0"], Some("v0.10.0")),
        ] {
            for tag in tags {
                git(&["tag", tag]);
            }
            assert_eq!(newest_tag(&folder).expect("git").as_deref(), newest, "{tags:?}");
        }
        fs::remove_dir_all(&folder).expect("the folder");
    }
}
