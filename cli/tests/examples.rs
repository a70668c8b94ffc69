//! Each example of `--help`, as it stands there, typed by a user whose home is empty.

mod common;

use common::{Ended, mlx5, there_is};
use std::collections::BTreeSet;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const COMMANDS: [&str; 13] = [
    "",
    "list",
    "info",
    "doctor",
    "pingpong",
    "perf",
    "cancel",
    "capture",
    "dump",
    "explain",
    "trace",
    "completions",
    "man",
];

/// Examples that are not run, by how they begin, and why.
const LEFT_OUT: [(&str, &str); 9] = [
    ("mlx5 doctor ", "it tells of the machine, which may lack a device"),
    ("mlx5 doctor -d mlx5_1", "of a second device"),
    ("dmesg ", "of a kernel that has reported an error"),
    ("mlx5 trace -- ib_write_bw", "of a program with a device; the tests of trace have their own"),
    ("mlx5 trace 4711", "of a process"),
    ("mlx5 trace --queues -- ./server", "of a user's program"),
    ("mlx5 trace --errors --duration 60 4711", "of a process"),
    ("mlx5 trace --summary -- ./client", "of a user's program"),
    ("mlx5 trace --json -o trace.json -- ./client", "of a user's program"),
];

/// Parts of examples that need another program.
const NEEDS: [(&str, &str); 4] =
    [("| jq ", "jq"), ("| tcpdump ", "tcpdump"), ("xxd ", "xxd"), ("man mlx5-", "man")];

/// A home with the command where `cargo install` puts it.
struct Home(PathBuf);

impl Home {
    fn new() -> Self {
        let home = std::env::temp_dir().join(format!("mlx5-examples-{}", std::process::id()));
        let bin = home.join(".cargo/bin");
        std::fs::create_dir_all(&bin).expect("a folder");
        symlink(env!("CARGO_BIN_EXE_mlx5"), bin.join("mlx5")).expect("a link");
        // Files of the examples of `mlx5 dump`.
        std::fs::write(home.join("rq.hex"), "00000040 00001234 00007e00 00002000").expect("a file");
        let line = "Local protection on mlx5_0:1/IB (synd 0x4 vend 0x51 hw_synd 0/2)";
        std::fs::write(home.join("ucx.log"), line).expect("a file");
        std::fs::write(home.join("ring.bin"), [0; 64]).expect("a file");
        Self(home)
    }

    /// Runs a line in the home.
    fn types(&self, line: &str) {
        let path = std::env::var("PATH").unwrap_or_default();
        let output = Command::new("sh")
            .args(["-c", line])
            .current_dir(&self.0)
            .env("HOME", &self.0)
            .env("PATH", format!("{}:{path}", self.0.join(".cargo/bin").display()))
            .env_remove("MANPATH")
            .env("MANPAGER", "cat")
            .stdin(Stdio::null())
            .ended();
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{line}: {}\n{err}", output.status);
        assert!(!err.contains("panicked") && !err.contains("mlx5: "), "{line}: {err}");
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The commands behind "Examples", without what is said of them.
fn examples(help: &str) -> Vec<String> {
    let behind = help.lines().skip_while(|line| !line.starts_with("Examples"));
    let shown = behind.skip(1).take_while(|line| line.is_empty() || line.starts_with("  "));
    let typed = |line: &str| {
        let line = line.strip_prefix("  ").filter(|line| !line.starts_with(' '))?;
        // A remark comes behind two blanks, or behind the name of a file.
        let line = line.split("  ").next().unwrap_or_default();
        let end = line.find(".svg ").map_or(line.len(), |at| at + 4);
        (!line.is_empty()).then(|| line[..end].to_owned())
    };
    shown.filter_map(typed).collect()
}

/// The same with fewer rounds: the test does not compare times.
fn shortened(line: &str) -> String {
    if line.contains("--duration") {
        return line
            .replace("--duration 10", "--duration 0.02")
            .replace("--duration 5", "--duration 0.1");
    }
    match line.strip_prefix("mlx5 perf") {
        Some(rest) => format!("mlx5 perf -n 10{rest}"),
        None => line.to_owned(),
    }
}

#[test]
fn each_example_works_as_it_stands() {
    let home = Home::new();
    let (mut run, mut left_out) = (0, BTreeSet::new());
    for name in COMMANDS {
        let examples = examples(&mlx5(&format!("{name} --help")).done());
        // These two say what they do by their options.
        assert!(!examples.is_empty() || ["list", "info"].contains(&name), "{name}");
        for line in examples {
            let is_left_out = |(begin, _): &&(&str, &str)| {
                format!("{line} ").starts_with(*begin) && !line.contains("--sim")
            };
            if let Some((begin, _)) = LEFT_OUT.iter().rev().find(is_left_out) {
                left_out.insert(*begin);
                continue;
            }
            let lacks = |(part, program): &(&str, &str)| {
                line.contains(part) && !there_is(program, "MLX5_NEED_SHELLS")
            };
            if NEEDS.iter().any(lacks) {
                continue;
            }
            home.types(&shortened(&line));
            run += 1;
        }
    }
    assert!(run >= 30, "only {run} examples were found");
    let all: BTreeSet<&str> = LEFT_OUT.iter().map(|(begin, _)| *begin).collect();
    assert_eq!(left_out, all, "examples that are not there any more");
    for shell in [
        ".local/share/bash-completion/completions/mlx5",
        ".zfunc/_mlx5",
        ".config/fish/completions/mlx5.fish",
    ] {
        assert!(Path::new(&home.0).join(shell).exists(), "{shell}");
    }
}
