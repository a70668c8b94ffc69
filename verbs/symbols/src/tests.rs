//! Compares the table with the symbols of Debian's libraries.

extern crate std;

use crate::{DEBIAN, Kind, Symbol, symbols};
use std::collections::BTreeSet;
use std::string::String;
use std::vec::Vec;
use std::{format, println};

fn line(symbol: &Symbol) -> String {
    let library = if symbol.node.starts_with("MLX5_") { "libmlx5" } else { "libibverbs" };
    let at = if symbol.default { "@@" } else { "@" };
    let size = match symbol.kind {
        Kind::Function(_) => String::new(),
        Kind::Data(size) => format!(" {size}"),
    };
    format!("{library} {}{at}{}{size}", symbol.name, symbol.node)
}

#[test]
fn the_table_has_what_debians_libraries_have_and_nothing_else() {
    let own: Vec<String> = symbols().map(line).collect();
    let set: BTreeSet<&str> = own.iter().map(String::as_str).collect();
    assert_eq!(set.len(), own.len(), "a symbol is in the table twice");
    let debian: BTreeSet<&str> = DEBIAN.iter().flat_map(|(_, list)| list.lines()).collect();
    println!("{} symbols", debian.len());
    let missing: Vec<_> = debian.difference(&set).collect();
    let besides: Vec<_> = set.difference(&debian).collect();
    assert!(missing.is_empty() && besides.is_empty(), "missing {missing:?}, besides {besides:?}");
}

#[test]
fn a_name_has_one_default_node() {
    for symbol in symbols().filter(|symbol| symbol.default) {
        let defaults = symbols().filter(|other| other.default && other.name == symbol.name);
        assert_eq!(defaults.count(), 1, "{}", symbol.name);
    }
}

/// Functions of libibverbs that programs call and this library refuses.
const REFUSED: [&str; 1] = ["ibv_resolve_eth_l2_from_gid"];

#[test]
fn refusing_symbols_of_libibverbs_are_known() {
    let refuses = |symbol: &&Symbol| match symbol.kind {
        Kind::Function(path) => symbol.default && path.starts_with("refuse"),
        Kind::Data(_) => false,
    };
    let public = symbols().filter(|symbol| symbol.node.starts_with("IBVERBS_1."));
    let mut found: Vec<&str> = public.filter(refuses).map(|symbol| symbol.name).collect();
    found.sort_unstable();
    assert_eq!(found, REFUSED);
}
