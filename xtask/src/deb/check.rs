//! Checks that the package installs in a minimal Debian, switches the libraries, and leaves no
//! files when it is removed.

use std::path::Path;

use super::bare::Bare;
use super::{LIBRARIES, NAME, SWITCH};
use crate::failure::Failure;

/// File that the switch writes.
const ENTRY: &str = "etc/ld.so.conf.d/000-mlx5-verbs.conf";
/// Programs: one needs symbols of both libraries, the other belongs to rdma-core.
const PROGRAMS: [&str; 2] = ["/usr/bin/ib_write_bw", "/usr/bin/ibv_devinfo"];
const COMMAND: &str = "/usr/bin/mlx5";
const NAMES: [&str; 2] = ["libibverbs.so.1", "libmlx5.so.1"];
/// Names that programs look up first if they load the libraries themselves. Of C's packages only
/// the development packages have them, and a minimal Debian does not.
const LINKS: [&str; 2] = ["libibverbs.so", "libmlx5.so"];

/// The libraries that programs find.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Get {
    C,
    Rust,
}

/// Fails at the first fault.
pub(super) fn run(package: &Path) -> Result<(), Failure> {
    let bare = Bare::lay(&package.with_file_name("bare"))?;
    let before = bare.paths()?;
    let path = package.display().to_string();
    bare.dpkg(&["--install", &path])?;
    // The command runs with the package's dependencies.
    bare.run(&[COMMAND, "pingpong", "--sim", "--iters", "10"])?;
    expect(&bare, Get::C, "the package is installed")?;

    let installed = bare.paths()?;
    let switch = |to: &str| bare.run(&[SWITCH, to]);
    switch("rust")?;
    expect(&bare, Get::Rust, "switched to rust")?;
    switch("rust")?;
    expect(&bare, Get::Rust, "switched to rust twice")?;
    switch("c")?;
    expect(&bare, Get::C, "switched to c")?;
    same(&installed, &bare.paths()?, "the switch to c")?;

    switch("rust")?;
    bare.dpkg(&["--install", &path])?;
    expect(&bare, Get::Rust, "installed again")?;
    bare.dpkg(&["--purge", NAME])?;
    expect(&bare, Get::C, "the package is removed")?;
    same(&before, &bare.paths()?, "the removal")?;

    bare.dpkg(&["--install", &path])?;
    half_a_switch_is_refused(&bare)?;

    let refused = [vec!["sideways"], vec![], vec!["--root"]];
    for words in refused {
        let status = bare.output(&[&[SWITCH], &words[..]].concat())?.status;
        if status.code() != Some(2) {
            return Err(wrong(format!("{SWITCH} {words:?} ended with {status}")));
        }
    }
    println!("installs in a bare Debian, switches to these libraries and back, and leaves nothing");
    Ok(())
}

/// Fails unless the loader takes these libraries, and the switch reports the same.
fn expect(bare: &Bare, get: Get, when: &str) -> Result<(), Failure> {
    let own = |name: &str| format!("/{LIBRARIES}/{name}");
    let wrong_when = |what: &str| wrong(format!("when {when}, {what}"));
    if bare.has(ENTRY) != (get == Get::Rust) {
        return Err(wrong_when(&format!("/{ENTRY} is not as it should be")));
    }
    // Libraries that the loader would load for a program.
    let listed = bare.run(&[&loader()?, "--list", PROGRAMS[0]])?;
    for name in NAMES {
        let lines: Vec<&str> =
            listed.lines().filter(|line| line.trim_start().starts_with(name)).collect();
        let [line] = lines[..] else {
            return Err(wrong_when(&format!("{} has not one {name}:\n{listed}", PROGRAMS[0])));
        };
        if line.contains(&own(name)) != (get == Get::Rust) || line.contains("not found") {
            return Err(wrong_when(&format!("the loader has {}", line.trim())));
        }
    }
    // The programs run: the loader finds every symbol, and there is no device.
    for (program, argument, says) in
        [(PROGRAMS[0], "--version", "Version"), (PROGRAMS[1], "-v", "IB device")]
    {
        let output = bare.output(&["/usr/bin/env", "LD_BIND_NOW=1", program, argument])?;
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        if !said.contains(says) {
            return Err(wrong_when(&format!("{program} says: {said}")));
        }
    }
    if !bare.has(&format!("usr/sbin/{SWITCH}")) {
        return Ok(());
    }
    let status = bare.run(&[SWITCH, "status"])?;
    for name in NAMES {
        let is_own = status.contains(&format!("{name}: rust: {}\n", own(name)));
        let is_c = status.contains(&format!("{name}: c: /"));
        if (is_own, is_c) != (get == Get::Rust, get == Get::C) {
            return Err(wrong_when(&format!("{SWITCH} status says:\n{status}")));
        }
    }
    for name in LINKS {
        let is_own = status.contains(&format!("{name}: rust: {}\n", own(name)));
        let is_there = status.contains(&format!("{name}: "));
        if (is_own, is_there) != (get == Get::Rust, get == Get::Rust) {
            return Err(wrong_when(&format!("{SWITCH} status says:\n{status}")));
        }
    }
    Ok(())
}

/// A folder that the loader searches first has one of C's libraries: no program may get that one
/// together with the other one of ours.
fn half_a_switch_is_refused(bare: &Bare) -> Result<(), Failure> {
    const LAY: &str = "mkdir -p /opt/first && cp -L /usr/lib/*-linux-gnu/libmlx5.so.1 /opt/first/ \
                       && echo /opt/first >/etc/ld.so.conf.d/000-a.conf";
    bare.run(&["/bin/sh", "-c", LAY])?;
    let output = bare.output(&[SWITCH, "rust"])?;
    let said = String::from_utf8_lossy(&output.stderr);
    let named = said.contains("takes /opt/first/libmlx5.so.1 as libmlx5.so.1");
    if output.status.code() != Some(1) || !named || bare.has(ENTRY) {
        return Err(wrong(format!(
            "{SWITCH} rust before another libmlx5: {}, {said}",
            output.status
        )));
    }
    bare.run(&[
        "/bin/sh",
        "-c",
        "rm -r /opt/first /etc/ld.so.conf.d/000-a.conf && /sbin/ldconfig",
    ])?;
    expect(bare, Get::C, "half a switch is refused")
}

/// Fails if the two lists of paths differ.
fn same(before: &[String], after: &[String], what: &str) -> Result<(), Failure> {
    let lost = before.iter().filter(|path| !after.contains(path));
    let left = after.iter().filter(|path| !before.contains(path));
    let differing: Vec<&str> = lost.chain(left).map(String::as_str).collect();
    if differing.is_empty() {
        return Ok(());
    }
    Err(wrong(format!("{what} loses or leaves {}", differing.join(", "))))
}

/// Path of the dynamic loader in every Debian of this architecture.
fn loader() -> Result<String, Failure> {
    match std::env::consts::ARCH {
        "x86_64" => Ok("/lib64/ld-linux-x86-64.so.2".into()),
        "aarch64" => Ok("/lib/ld-linux-aarch64.so.1".into()),
        other => Err(wrong(format!("the loader of {other} is not known"))),
    }
}

fn wrong(what: String) -> Failure {
    Failure::Package(vec![what])
}
