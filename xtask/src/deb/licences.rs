//! The dependencies that are linked into the program and the library.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::read;
use crate::build;
use crate::debian::cache::{files, name_of};
use crate::failure::Failure;

/// The two packages whose dependencies count.
const ROOTS: [&str; 2] = ["mlx5-cli", crate::verbs::EXPORT];

/// Prefixes of the names of files with licence terms.
const TERMS: [&str; 5] = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE"];

/// Name, version, licence and terms of each dependency.
pub(super) fn text() -> Result<String, Failure> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let host = build::host()?;
    let mut command = Command::new(cargo);
    command.args(["metadata", "--quiet", "--format-version=1", "--filter-platform", &host]);
    let metadata = build::says(&mut command)?;
    let broken =
        |what: &str| Failure::Output { program: "cargo metadata".into(), what: what.into() };
    let metadata: Value = serde_json::from_str(&metadata).map_err(|_| broken("no JSON"))?;
    let linked = linked(&metadata).ok_or_else(|| broken("no packages"))?;
    let mut text = String::from(
        "The packages that the program and the library are linked from, beside this package's own \
         sources.\n\nThe standard library of Rust (https://www.rust-lang.org): MIT or Apache-2.0.\n",
    );
    for package in linked {
        let field = |name: &str| package[name].as_str().unwrap_or_default();
        _ = write!(text, "\n\n==== {} {}: ", field("name"), field("version"));
        _ = writeln!(text, "{}", field("license"));
        let folder = Path::new(field("manifest_path")).parent().unwrap_or(Path::new("."));
        for path in files(folder)? {
            let name = name_of(&path).to_uppercase();
            if path.is_file() && TERMS.iter().any(|begin| name.starts_with(begin)) {
                let terms = read(&path)?;
                _ = write!(text, "\n-- {}\n\n{}", name_of(&path), String::from_utf8_lossy(&terms));
            }
        }
    }
    Ok(text)
}

/// Dependencies that are linked into the roots, by name. Procedural macros and build dependencies
/// run during the build and are not linked.
fn linked(metadata: &Value) -> Option<Vec<&Value>> {
    let packages: BTreeMap<&str, &Value> = metadata["packages"]
        .as_array()?
        .iter()
        .filter_map(|package| Some((package["id"].as_str()?, package)))
        .collect();
    let nodes: BTreeMap<&str, &Value> = metadata["resolve"]["nodes"]
        .as_array()?
        .iter()
        .filter_map(|node| Some((node["id"].as_str()?, node)))
        .collect();
    let is_root = |package: &Value| {
        let is_own = package["source"].is_null();
        is_own && package["name"].as_str().is_some_and(|name| ROOTS.contains(&name))
    };
    let mut todo: Vec<&str> =
        packages.iter().filter(|(_, package)| is_root(package)).map(|(id, _)| *id).collect();
    let mut seen = BTreeSet::new();
    while let Some(id) = todo.pop() {
        if runs_in_the_compiler(packages.get(id)?) || !seen.insert(id) {
            continue;
        }
        for dependency in nodes.get(id)?["deps"].as_array()? {
            let kinds = dependency["dep_kinds"].as_array()?;
            if kinds.iter().any(|kind| kind["kind"].is_null()) {
                todo.push(dependency["pkg"].as_str()?);
            }
        }
    }
    let mut others: Vec<&Value> = seen.iter().filter_map(|id| packages.get(id).copied()).collect();
    others.retain(|package| !package["source"].is_null());
    others.sort_by_key(|package| (package["name"].as_str(), package["version"].as_str()));
    Some(others)
}

fn runs_in_the_compiler(package: &Value) -> bool {
    let targets = package["targets"].as_array();
    let mut kinds = targets.into_iter().flatten().filter_map(|target| target["kind"].as_array());
    kinds.any(|kinds| kinds.iter().any(|kind| kind == "proc-macro"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn linked_packages_are_listed_without_build_and_test_ones() {
        let package = |id: &str, name: &str, source: Value, kind: &str| json!({ "id": id, "name": name, "source": source, "targets": [{ "kind": [kind] }] });
        let to = |id: &str, kind: Value| json!({ "pkg": id, "dep_kinds": [{ "kind": kind }] });
        let metadata = json!({
            "packages": [
                package("1", "mlx5-cli", Value::Null, "bin"),
                package("2", "own", Value::Null, "lib"),
                package("3", "linked", json!("registry"), "lib"),
                package("4", "derives", json!("registry"), "proc-macro"),
                package("5", "tests", json!("registry"), "lib"),
                package("6", "builds", json!("registry"), "lib"),
                package("7", "apart", json!("registry"), "lib"),
            ],
            "resolve": { "nodes": [
                { "id": "1", "deps": [to("2", Value::Null), to("5", json!("dev")), to("6", json!("build"))] },
                { "id": "2", "deps": [to("3", Value::Null), to("4", Value::Null), to("1", json!("dev"))] },
                { "id": "3", "deps": [] },
                { "id": "4", "deps": [to("7", Value::Null)] },
            ] },
        });
        let names: Vec<_> = linked(&metadata)
            .expect("a graph")
            .iter()
            .map(|package| package["name"].as_str().unwrap_or_default())
            .collect();
        assert_eq!(names, ["linked"]);
    }
}
