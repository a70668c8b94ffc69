//! `cargo xtask package`: builds the packages as a registry would get them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::Failure;

/// Make the packages as a registry would get them, and build and run a program that depends on
/// nothing else
///
/// Dependencies in this workspace are taken from the packaged files, all others from the registry.
/// The program opens a simulated device, and posts and polls.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {}

/// Packages for users.
pub(crate) const PUBLISHED: [&str; 14] = [
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

/// Packages that no program depends on: a command, and a library to preload.
pub(crate) const ALONE: [&str; 2] = ["mlx5-cli", "mlx5-sim-preload"];

/// A user's program.
const PROGRAM: &str = include_str!("package/consumer.rs");

pub(crate) fn run(_: &Arguments) -> Result<(), Failure> {
    let target = Path::new("target/packages");
    let consumer = target.join("consumer");
    // Cargo would also find files of an earlier version.
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
        manifest += &match *name {
            // The feature that a service with tokio uses.
            "mlx5-async" => {
                format!("{name} = {{ version = \"{version}\", features = [\"tokio\"] }}\n")
            }
            _ => format!("{name} = \"{version}\"\n"),
        };
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
        // Otherwise Cargo takes it for a member of the workspace above it.
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
    for file in ["LICENSE-MIT", "LICENSE-APACHE", "README.md"] {
        if !package.join(file).is_file() {
            let what = format!("no {file} in {}", package.display());
            return Err(Failure::Output { program: "cargo package".into(), what });
        }
    }
    for field in
        ["description = ", "license = ", "rust-version = ", "readme = ", "documentation = "]
    {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build;
    use serde_json::Value;
    use std::collections::BTreeSet;

    /// The categories of crates.io that fit a package of this workspace; the registry refuses
    /// unknown ones.
    const CATEGORIES: [&str; 10] = [
        "asynchronous",
        "command-line-utilities",
        "development-tools::testing",
        "emulators",
        "external-ffi-bindings",
        "hardware-support",
        "network-programming",
        "no-std",
        "os::linux-apis",
        "simulation",
    ];

    /// Cargo's metadata of this workspace's packages.
    fn packages() -> Vec<Value> {
        let mut command = Command::new(env!("CARGO"));
        command.args(["metadata", "--no-deps", "--offline", "--quiet", "--format-version=1"]);
        let metadata = build::says(&mut command).expect("cargo metadata");
        let metadata: Value = serde_json::from_str(&metadata).expect("JSON");
        metadata["packages"].as_array().expect("packages").clone()
    }

    fn texts(list: &Value) -> Vec<&str> {
        list.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
    }

    #[test]
    fn published_packages_are_the_packed_ones() {
        let packages = packages();
        let may = packages.iter().filter(|package| package["publish"].is_null());
        let may: BTreeSet<&str> = may.filter_map(|package| package["name"].as_str()).collect();
        assert_eq!(may, BTreeSet::from(PUBLISHED));
    }

    #[test]
    fn published_packages_have_the_fields_that_a_registry_shows() {
        for package in packages().iter().filter(|package| package["publish"].is_null()) {
            let name = package["name"].as_str().expect("a name");
            for field in ["description", "license", "rust_version", "readme"] {
                let says = package[field].as_str().is_some_and(|text| !text.is_empty());
                assert!(says, "{name} has no {field}");
            }
            let pages = package["documentation"].as_str();
            assert_eq!(pages, Some(&*format!("https://docs.rs/{name}")), "{name}");
            let keywords = texts(&package["keywords"]);
            assert!((1..=5).contains(&keywords.len()), "{name} has keywords {keywords:?}");
            assert!(keywords.iter().all(|word| word.len() <= 20), "{name}: {keywords:?}");
            let categories = texts(&package["categories"]);
            assert!((1..=5).contains(&categories.len()), "{name} has categories {categories:?}");
            let known = categories.iter().all(|category| CATEGORIES.contains(category));
            assert!(known, "{name} has categories {categories:?}");
            let targets = texts(&package["metadata"]["docs"]["rs"]["targets"]);
            assert_eq!(targets.len(), 2, "{name} does not say for what docs.rs builds it");
        }
    }

    #[test]
    fn published_dependencies_have_versions_and_test_dependencies_have_paths() {
        for package in packages().iter().filter(|package| package["publish"].is_null()) {
            let name = package["name"].as_str().expect("a name");
            for dependency in package["dependencies"].as_array().expect("a list") {
                if dependency["path"].is_null() {
                    continue;
                }
                let is_for_tests = dependency["kind"] == "dev";
                let has_version = dependency["req"] != "*";
                let of = &dependency["name"];
                assert_eq!(has_version, !is_for_tests, "{name} on {of}");
            }
        }
    }

    #[test]
    fn every_feature_is_explained_in_the_documentation() {
        for package in packages().iter().filter(|package| package["publish"].is_null()) {
            let manifest = package["manifest_path"].as_str().expect("a path");
            let library = Path::new(manifest).with_file_name("src").join("lib.rs");
            for feature in package["features"].as_object().expect("a table").keys() {
                let text = fs::read_to_string(&library).expect("a library");
                let explained = format!("feature `{feature}`");
                let mut lines = text.lines().filter(|line| line.starts_with("//!"));
                assert!(lines.any(|line| line.contains(&explained)), "{manifest}: {explained}");
                let all = &package["metadata"]["docs"]["rs"]["all-features"];
                assert!(feature == "watch" || *all == true, "docs.rs shows no {feature}");
            }
        }
    }
}
