//! `cargo xtask imports`: shows the imports between the modules of each package.

mod graph;
mod source;

use std::collections::BTreeSet;
use std::path::Path;

use crate::failure::Failure;
use graph::Arrows;
use source::Module;

/// Show which modules import which inside a package, and fail on circles
///
/// Arrows point down: no files import each other in a circle, and no folders do. A module and its
/// own children count as one. Tests are left out.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Folders of the packages [default: all that must have no circle]
    packages: Vec<String>,
    /// Print every arrow, not only the layers
    #[arg(long)]
    arrows: bool,
}

/// The driver's packages; they must have no circle.
const DRIVER: [&str; 6] = [".", "uapi", "prm", "doorbell", "wqe", "cq"];

/// The other packages that must have no circle.
const BESIDE_IT: [&str; 15] = [
    "cm",
    "async",
    "verbs",
    "verbs/symbols",
    "verbs/export",
    "cli",
    "benches",
    "tests",
    "tests/oracle",
    "fuzz",
    "sim",
    "sim/pci",
    "sim/wire",
    "sim/preload",
    "xtask",
];

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."));
    let packages: Vec<&str> = match &arguments.packages[..] {
        [] => DRIVER.iter().chain(&BESIDE_IT).copied().collect(),
        named => named.iter().map(String::as_str).collect(),
    };
    let mut circles = Vec::new();
    for package in packages {
        let src = root.join(package).join("src");
        if !src.is_dir() {
            return Err(Failure::Unknown(format!(
                "there is no package {package}; a package is named by its folder, as wqe or sim/wire"
            )));
        }
        let arrows = graph::arrows(&source::read(&src)?);
        let name = if package == "." { "src" } else { package };
        let top = graph::between_children(&arrows, &[]);
        println!("{name}, from the ground up:");
        for (layer, modules) in graph::layers(&top).iter().enumerate() {
            let names: Vec<String> = modules.iter().map(shown).collect();
            println!("  {} {}", layer + 1, names.join(" "));
        }
        if arguments.arrows {
            for (from, to) in &arrows {
                for to in to {
                    println!("  {} -> {}", shown(from), shown(to));
                }
            }
        }
        circles.extend(found(name, &arrows));
    }
    if circles.is_empty() { Ok(()) } else { Err(Failure::Circles(circles)) }
}

/// All circles of files, and of the children of any one module.
fn found(package: &str, arrows: &Arrows) -> Vec<String> {
    let mut found = Vec::new();
    let mut report = |kind: &str, among: &Arrows| {
        for circle in graph::circles(among) {
            let inside = |to: &&Module| circle.contains(to);
            let arrows: Vec<String> = circle
                .iter()
                .flat_map(|from| {
                    let to = among[from].iter().filter(inside);
                    to.map(move |to| format!("{} -> {}", shown(from), shown(to)))
                })
                .collect();
            found.push(format!("{package}, {kind}: {}", arrows.join(", ")));
        }
    };
    report("files", arrows);
    let parents: BTreeSet<&[String]> =
        arrows.keys().filter_map(|module| module.split_last()).map(|(_, parent)| parent).collect();
    for parent in parents {
        report("folders", &graph::between_children(arrows, parent));
    }
    found
}

fn shown(module: &Module) -> String {
    if module.is_empty() { "lib".to_owned() } else { module.join("/") }
}

#[cfg(test)]
mod tests {
    use super::{BESIDE_IT, DRIVER, found, graph, source};
    use std::path::Path;

    fn has_no_circle(package: &str) {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let files = source::read(&root.join(package).join("src")).unwrap();
        let arrows = graph::arrows(&files);
        // A root with one module has no import to read, and neither do tables.
        let read = arrows.len() <= 2
            || package == "verbs/symbols"
            || arrows.values().any(|to| !to.is_empty());
        assert!(read, "{package}: no import was read");
        assert_eq!(found(package, &arrows), Vec::<String>::new());
    }

    #[test]
    fn the_driver_has_no_circle() {
        DRIVER.into_iter().for_each(has_no_circle);
    }

    #[test]
    fn no_package_gets_a_circle_that_has_none() {
        BESIDE_IT.into_iter().for_each(has_no_circle);
    }

    #[test]
    fn every_package_is_looked_at() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let manifest = std::fs::read_to_string(root.join("Cargo.toml")).unwrap();
        let (_, members) = manifest.split_once("members = [").unwrap();
        let (members, _) = members.split_once(']').unwrap();
        let mut looked_at = DRIVER.iter().chain(&BESIDE_IT);
        for member in members.split('"').skip(1).step_by(2) {
            assert!(looked_at.clone().any(|package| *package == member), "{member} is not listed");
        }
        assert!(looked_at.any(|package| *package == "."), "the root's own package");
    }
}
