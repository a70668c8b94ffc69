//! `cargo xtask package`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::Failure;

/// Make the packages as a registry would get them, and build and run a program that has nothing but them
///
/// Packages of this workspace are found in what was packed, all others in the registry. The program opens a
/// simulated device, and posts and polls.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {}

/// The packages that are for users.
const PUBLISHED: [&str; 14] = [
    "mlx5",
    "mlx5-async",
    "mlx5-cli",
    "mlx5-cm",
    "mlx5-cq",
    "mlx5-doorbell",
    "mlx5-prm",
    "mlx5-sim",
    "mlx5-sim-preload",
    "mlx5-sim-wire",
    "mlx5-uapi",
    "mlx5-verbs",
    "mlx5-verbs-symbols",
    "mlx5-wqe",
];

/// Those on which no program depends: a command, and a library to preload.
const ALONE: [&str; 2] = ["mlx5-cli", "mlx5-sim-preload"];

/// The program of a user.
const PROGRAM: &str = include_str!("package/consumer.rs");

pub(crate) fn run(_: &Arguments) -> Result<(), Failure> {
    let target = Path::new("target/packages");
    let consumer = target.join("consumer");
    // What is left of another version would be found as well.
    for old in [target.join("package"), consumer.clone()] {
        if old.exists() {
            fs::remove_dir_all(&old).map_err(in_file(&old))?;
        }
    }
    let mut pack = Command::new(env!("CARGO"));
    pack.args(["package", "--no-verify", "--allow-dirty", "--quiet", "--target-dir"]).arg(target);
    pack.args(PUBLISHED.iter().flat_map(|name| ["--package", name]));
    succeed("cargo package", &mut pack)?;

    let packages = consumer.join("packages");
    fs::create_dir_all(&packages).map_err(in_file(&packages))?;
    let mut manifest = String::from(
        "[package]\nname = \"consumer\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[workspace]\nexclude = [\"packages\"]\n\n\
         [dependencies]\n",
    );
    let version = env!("CARGO_PKG_VERSION");
    for name in PUBLISHED.iter().filter(|name| !ALONE.contains(name)) {
        manifest += &format!("{name} = \"{version}\"\n");
    }
    manifest += "\n[patch.crates-io]\n";
    for name in PUBLISHED {
        let packed = target.join("package").join(format!("{name}-{version}.crate"));
        let mut unpack = Command::new("tar");
        unpack.arg("--extract").arg("--file").arg(&packed).arg("--directory").arg(&packages);
        succeed("tar", &mut unpack)?;
        manifest += &format!("{name} = {{ path = \"packages/{name}-{version}\" }}\n");
        check(&packages.join(format!("{name}-{version}")))?;
    }
    write(&consumer.join("Cargo.toml"), &manifest)?;
    let source = consumer.join("src");
    fs::create_dir_all(&source).map_err(in_file(&source))?;
    write(&source.join("main.rs"), PROGRAM)?;
    // The versions that this workspace was tested with.
    fs::copy("Cargo.lock", consumer.join("Cargo.lock")).map_err(in_file(&consumer))?;
    let mut build = Command::new(env!("CARGO"));
    build.args(["run", "--quiet"]).current_dir(&consumer);
    succeed("the program of a user", &mut build)?;
    for name in ALONE {
        // Or cargo takes it for a part of the workspace above it.
        let own = packages.join(format!("{name}-{version}/Cargo.toml"));
        let text = fs::read_to_string(&own).map_err(in_file(&own))?;
        write(&own, &format!("{text}\n[workspace]\n"))?;
        let mut build = Command::new(env!("CARGO"));
        build.args(["check", "--quiet", "--package", name, "--target-dir", "target"]);
        build.current_dir(&consumer);
        build.arg("--manifest-path").arg(format!("packages/{name}-{version}/Cargo.toml"));
        let configured = PUBLISHED
            .iter()
            .map(|of| format!("patch.crates-io.{of}.path=\"packages/{of}-{version}\""));
        for patch in configured {
            build.arg("--config").arg(patch);
        }
        succeed(name, &mut build)?;
    }
    println!("{} packages; a program builds from them and runs", PUBLISHED.len());
    Ok(())
}

/// A registry refuses a package without these.
fn check(package: &Path) -> Result<(), Failure> {
    let path = package.join("Cargo.toml");
    let manifest = fs::read_to_string(&path).map_err(in_file(&path))?;
    for field in ["description = ", "license = ", "rust-version = "] {
        if !manifest.contains(field) {
            let what = format!("no line \"{field}\" in {}", path.display());
            return Err(Failure::Output { program: "cargo package".into(), what });
        }
    }
    Ok(())
}

fn succeed(program: &str, command: &mut Command) -> Result<(), Failure> {
    match command.status() {
        Err(error) => Err(Failure::Run { program: program.into(), error }),
        Ok(status) if !status.success() => Err(Failure::Status { program: program.into(), status }),
        Ok(_) => Ok(()),
    }
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    fs::write(path, text).map_err(in_file(path))
}

fn in_file(path: &Path) -> impl FnOnce(std::io::Error) -> Failure {
    let path = PathBuf::from(path);
    move |error| Failure::File { path, error }
}
