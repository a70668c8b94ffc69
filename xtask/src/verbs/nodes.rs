//! Writes the linker's version script, which gives each symbol its version.

use std::collections::BTreeSet;

use mlx5_verbs_symbols::Symbol;

/// The version script for `symbols`. Everything else stays local to the library: Rust's runtime,
/// and the symbols of unwanted nodes. Those nodes are in the script because the archive names them.
pub(super) fn script<'a>(
    symbols: impl IntoIterator<Item = &'a Symbol>,
    wanted: impl Fn(&str) -> bool,
) -> String {
    let mut nodes: Vec<(&str, Vec<&str>)> = Vec::new();
    for symbol in symbols {
        match nodes.iter_mut().find(|node| node.0 == symbol.node) {
            Some((_, names)) => names.push(symbol.name),
            None => nodes.push((symbol.node, vec![symbol.name])),
        }
    }
    let mut script = String::new();
    for (index, (node, names)) in nodes.iter().enumerate() {
        let names: String = names.iter().map(|name| format!("    {name};\n")).collect();
        let scope = if wanted(node) { "global" } else { "local" };
        // One wildcard covers all nodes.
        let rest = if index == 0 { "  local:\n    *;\n" } else { "" };
        script += &format!("{node} {{\n  {scope}:\n{names}{rest}}};\n");
    }
    script
}

/// A version script with the wanted nodes of `symbols`, and no symbols in them.
pub(super) fn empty<'a>(
    symbols: impl IntoIterator<Item = &'a Symbol>,
    wanted: impl Fn(&str) -> bool,
) -> String {
    let nodes: BTreeSet<&str> = symbols.into_iter().map(|symbol| symbol.node).collect();
    nodes.into_iter().filter(|node| wanted(node)).map(|node| format!("{node} {{ }};\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::{empty, script};
    use mlx5_verbs_symbols::{Kind, Symbol};

    fn symbol(name: &'static str, node: &'static str) -> Symbol {
        Symbol { name, node, default: true, kind: Kind::Function("f") }
    }

    #[test]
    fn a_name_is_listed_in_each_of_its_nodes_and_everything_else_is_local() {
        let symbols = [symbol("a", "N_1"), symbol("b", "N_1"), symbol("a", "N_2")];
        let text = "N_1 {\n  global:\n    a;\n    b;\n  local:\n    *;\n};\n\
                    N_2 {\n  global:\n    a;\n};\n";
        assert_eq!(script(&symbols, |_| true), text);
    }

    #[test]
    fn symbols_of_a_node_that_is_not_wanted_are_local() {
        let symbols = [symbol("a", "N_1"), symbol("b", "M_1")];
        let text = "N_1 {\n  local:\n    a;\n  local:\n    *;\n};\nM_1 {\n  global:\n    b;\n};\n";
        assert_eq!(script(&symbols, |node| node.starts_with('M')), text);
    }

    #[test]
    fn a_library_of_names_has_each_wanted_node_once() {
        let symbols = [symbol("a", "N_1"), symbol("b", "M_1"), symbol("c", "N_1")];
        assert_eq!(empty(&symbols, |node| node.starts_with('N')), "N_1 { };\n");
    }
}
