//! Finds the imports between modules and the circles among them.

use std::collections::{BTreeMap, BTreeSet};

use super::source::{File, Module};

/// The modules that each module imports. A module and its children count as one, so there are no
/// arrows between a module and one below it.
pub(crate) type Arrows = BTreeMap<Module, BTreeSet<Module>>;

/// The arrows between the files of a crate.
pub(crate) fn arrows(files: &BTreeMap<Module, File>) -> Arrows {
    let mut arrows = Arrows::new();
    for (from, file) in files {
        let to = arrows.entry(from.clone()).or_default();
        for name in &file.names {
            if let Some(target) = resolve(files, name, 0)
                && !from.starts_with(&target)
                && !target.starts_with(from)
            {
                to.insert(target);
            }
        }
    }
    arrows
}

/// The file that defines `name`, after following `pub use` where possible.
fn resolve(files: &BTreeMap<Module, File>, name: &[String], depth: usize) -> Option<Module> {
    let length = (0..=name.len()).rev().find(|&length| files.contains_key(&name[..length]))?;
    let (module, rest) = name.split_at(length);
    let Some(first) = rest.first() else { return Some(module.to_vec()) };
    let file = &files[module];
    let on = |from: &Module, rest: &[String]| resolve(files, &[from, rest].concat(), depth + 1);
    if depth < 8 {
        if let Some((_, from)) = file.exports.iter().find(|(name, _)| name == first) {
            // `from` may belong to another crate; then the name is defined here, by the re-export.
            if from[..] != *name && files.contains_key(&from[..1.min(from.len())]) {
                return on(from, &rest[1..]);
            }
        }
        for (_, from) in file.exports.iter().filter(|(name, _)| name == "*") {
            if files
                .get(from)
                .is_some_and(|file| file.exports.iter().any(|(name, _)| name == first))
            {
                return on(from, rest);
            }
        }
    }
    // A `use` of another crate looks like a child of this module.
    Some(module.to_vec())
}

/// Arrows between the children of `parent`; each child stands for all modules below it.
pub(crate) fn between_children(arrows: &Arrows, parent: &[String]) -> Arrows {
    let child = |module: &Module| {
        (module.len() > parent.len() && module.starts_with(parent))
            .then(|| module[..=parent.len()].to_vec())
    };
    let mut between = Arrows::new();
    for (from, to) in arrows {
        let Some(from) = child(from) else { continue };
        let entry = between.entry(from.clone()).or_default();
        entry.extend(to.iter().filter_map(child).filter(|to| *to != from));
    }
    between
}

/// Sets of modules that reach each other.
pub(crate) fn circles(arrows: &Arrows) -> Vec<Vec<Module>> {
    let reach: BTreeMap<_, _> = arrows.keys().map(|from| (from, reachable(arrows, from))).collect();
    let mut found: Vec<Vec<Module>> = Vec::new();
    for from in arrows.keys() {
        if found.iter().any(|circle| circle.contains(from)) || !reach[from].contains(from) {
            continue;
        }
        let both = |to: &&Module| reach.get(to).is_some_and(|back| back.contains(from));
        found.push(reach[from].iter().filter(both).cloned().collect());
    }
    found
}

fn reachable(arrows: &Arrows, from: &Module) -> BTreeSet<Module> {
    let mut reached = BTreeSet::new();
    let mut next: Vec<&Module> = arrows.get(from).into_iter().flatten().collect();
    while let Some(module) = next.pop() {
        if reached.insert(module.clone()) {
            next.extend(arrows.get(module).into_iter().flatten());
        }
    }
    reached
}

/// Layers of modules: each module is above all that it imports.
pub(crate) fn layers(arrows: &Arrows) -> Vec<Vec<Module>> {
    let mut left: BTreeSet<&Module> = arrows.keys().collect();
    let mut layers = Vec::new();
    while !left.is_empty() {
        let stands = |module: &&&Module| {
            let reach = reachable(arrows, module);
            arrows[**module].iter().all(|to| {
                !left.contains(to) || reachable(arrows, to).contains(**module) && reach.contains(to)
            })
        };
        let layer: Vec<Module> =
            left.iter().filter(stands).map(|module| (*module).clone()).collect();
        // Modules of a circle wait for each other, so the rest forms one layer.
        let layer =
            if layer.is_empty() { left.iter().map(|m| (*m).clone()).collect() } else { layer };
        left.retain(|module| !layer.contains(module));
        layers.push(layer);
    }
    layers
}

#[cfg(test)]
mod tests {
    use super::{Arrows, Module, between_children, circles};

    fn module(path: &str) -> Module {
        path.split("::").map(str::to_owned).collect()
    }

    fn graph(arrows: &[(&str, &str)]) -> Arrows {
        let mut graph = Arrows::new();
        for (from, to) in arrows {
            graph.entry(module(from)).or_default().insert(module(to));
            graph.entry(module(to)).or_default();
        }
        graph
    }

    #[test]
    fn circle_is_reported_whole() {
        let graph = graph(&[("a", "b"), ("b", "c"), ("c", "a"), ("d", "a")]);
        assert_eq!(circles(&graph), [[module("a"), module("b"), module("c")]]);
    }

    #[test]
    fn arrows_that_run_down_are_no_circle() {
        assert!(circles(&graph(&[("a", "b"), ("a", "c"), ("b", "c")])).is_empty());
    }

    #[test]
    fn folders_can_make_a_circle_where_files_make_none() {
        let files = graph(&[("a::x", "b::x"), ("b::y", "a::y")]);
        assert!(circles(&files).is_empty());
        assert_eq!(circles(&between_children(&files, &[])), [[module("a"), module("b")]]);
    }
}
