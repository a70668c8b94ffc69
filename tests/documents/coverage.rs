//! Each promise in `proofs.txt` names tests or typed errors that exist, and the pages made of it
//! are up to date.

mod pages;

use pages::{Page, Section, UNTESTED};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &str) -> Result<String, String> {
    std::fs::read_to_string(root().join(path)).map_err(|error| format!("{path}: {error}"))
}

/// The folder of each kind of tests.
const KINDS: [(&str, &str); 8] = [
    ("driver/", "src/"),
    ("wqe/", "wqe/src/"),
    ("rings/", "wqe/tests/rings/"),
    ("cases/", "tests/src/cases/"),
    ("loom/", "cq/tests/loom/"),
    ("polling/", "cq/tests/polling/"),
    ("sim/", "sim/src/engine/tests/"),
    ("compile_fail/", "tests/compile_fail/"),
];

/// Checks that the thing a cell names exists.
fn check(reference: &str) -> Result<(), String> {
    if let Some(variant) = reference.strip_prefix("PostError::") {
        let there = variants("PostError")?.contains(variant);
        return if there { Ok(()) } else { Err(format!("there is no {reference}")) };
    }
    if let Some(reason) = reference.strip_prefix(UNTESTED) {
        return if reason.is_empty() {
            Err("untested without a reason".to_owned())
        } else {
            Ok(())
        };
    }
    if let Some((file, text)) = reference.strip_prefix("said/").and_then(|at| at.split_once("::")) {
        let there = read(file)?.contains(text);
        return if there { Ok(()) } else { Err(format!("{file} does not say: {text}")) };
    }
    if let Some(function) = reference.strip_prefix("asm/") {
        // `asm/post::sge`: a function whose machine code `cargo xtask asm` checks.
        let there = read("xtask/src/asm.rs")?.contains(&format!("    {function} passes "));
        return if there { Ok(()) } else { Err(format!("xtask asm does not check {function}")) };
    }
    if let Some(test) = reference.strip_prefix("order/") {
        let there = read("wqe/tests/order/main.rs")?.contains(&format!("fn {test}("));
        return if there { Ok(()) } else { Err(format!("there is no test {reference}")) };
    }
    let (file, test) = match reference.split_once("::") {
        Some((file, test)) => (file, Some(test)),
        None => (reference, None),
    };
    let place = KINDS.iter().find_map(|(kind, place)| Some((place, file.strip_prefix(kind)?)));
    let (place, name) = place.ok_or_else(|| format!("what kind of test is {reference}?"))?;
    let text = read(&format!("{place}{name}.rs"))?;
    match test {
        None if file.starts_with("compile_fail/") => Ok(()),
        None => Err(format!("{reference} names no test")),
        Some(test) if !text.contains(&format!("fn {test}(")) => {
            Err(format!("there is no test {reference}"))
        }
        // A case runs only if the table of its file has it.
        Some(test) if file.starts_with("cases/") && text.matches(test).count() < 2 => {
            Err(format!("{reference} is in no table"))
        }
        Some(_) => Ok(()),
    }
}

/// The variants of an enum in the errors of requests.
fn variants(name: &str) -> Result<BTreeSet<String>, String> {
    let text = read("wqe/src/request/error.rs")?;
    let start = text.find(&format!("pub enum {name} {{")).ok_or("no such enum")?;
    let body = &text[start..];
    let body = &body[..body.find("\n}").ok_or("the enum has no end")?];
    let variant = |line: &str| {
        let line = line.strip_prefix("    ")?;
        let end = line.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(line.len());
        line.starts_with(|c: char| c.is_ascii_uppercase()).then(|| line[..end].to_owned())
    };
    Ok(body.lines().skip(1).filter_map(variant).collect())
}

/// The operations of the one table that declares them.
fn operations() -> Result<BTreeSet<String>, String> {
    let text = read("wqe/src/request/operation.rs")?;
    let table = text.rfind("operations! {").ok_or("there is no table of operations")?;
    let name = |line: &str| {
        let (name, rest) = line.trim().split_once(", ")?;
        rest.contains(": remote ").then(|| name.to_owned())
    };
    Ok(text[table..].lines().filter_map(name).collect())
}

/// The parts of a row's name that stand in backquotes.
fn quoted(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

fn pages() -> Vec<Page> {
    let text = read("tests/documents/proofs.txt").expect("the proofs");
    pages::parse(&text).expect("pages")
}

fn page(file: &str) -> Page {
    pages().into_iter().find(|page| page.file == file).expect("the page")
}

#[test]
fn each_cell_names_a_test_or_a_refusal_that_exists() {
    for (file, least) in [("COVERAGE.md", 80), ("MANPAGES.md", 120)] {
        let page = page(file);
        let rows: usize = page.sections().map(|section| section.rows.len()).sum();
        assert!(rows >= least, "{file}: only {rows} rows");
        let wrong: Vec<_> = page.sections().flat_map(wrong).collect();
        assert!(wrong.is_empty(), "{file}:\n{}", wrong.join("\n"));
    }
}

/// With `MLX5_WRITE` set, the test writes the pages instead.
#[test]
fn the_pages_are_what_the_proofs_make_of_them() {
    for page in pages() {
        let (path, made) = (format!("docs/{}", page.file), pages::render(&page));
        if std::env::var_os("MLX5_WRITE").is_some() {
            std::fs::write(root().join(&path), made).expect("the page can be written");
        } else {
            let as_made = read(&path).expect("the page") == made;
            assert!(
                as_made,
                "{path} is out of date: MLX5_WRITE=1 cargo test -p mlx5-conformance --test coverage"
            );
        }
    }
}

/// The faults in the cells of a section.
fn wrong(section: &Section) -> Vec<String> {
    let mut wrong = Vec::new();
    for row in &section.rows {
        let what = format!("{}: {}", section.name, row.name);
        for (number, cell) in row.cells.iter().enumerate() {
            if cell.is_empty() {
                wrong.push(format!("{what}: cell {} names nothing", number + 1));
            }
            let errors = cell.iter().filter_map(|proof| check(proof).err());
            wrong.extend(errors.map(|error| format!("{what}: {error}")));
        }
    }
    wrong
}

#[test]
fn each_man_page_has_a_section() {
    let manpages = page("MANPAGES.md");
    for (page, least) in [
        ("ibv_post_send(3)", 29),
        ("ibv_wr_post(3)", 50),
        ("ibv_post_srq_ops(3)", 24),
        ("mlx5dv_qp_cancel_posted_send_wrs(3)", 21),
    ] {
        let mut sections = manpages.sections().filter(|section| section.name == page);
        let statements = sections.next().map_or(0, |section| section.rows.len());
        assert!(statements >= least, "{page} has {statements} rows");
    }
}

#[test]
fn each_operation_and_each_refusal_has_a_row() {
    let coverage = page("COVERAGE.md");
    let first = |name: &str| -> BTreeSet<String> {
        let sections = coverage.sections().filter(|section| section.name == name);
        let rows = sections.flat_map(|section| &section.rows);
        rows.flat_map(|row| quoted(&row.name)).map(str::to_owned).collect()
    };
    assert!(first("Operations").is_superset(&operations().expect("the table of operations")));
    let known = variants("PostError").expect("the errors");
    assert!(known.len() > 20);
    let missing: Vec<_> = known.difference(&first("Errors")).cloned().collect();
    assert!(missing.is_empty(), "errors without a row: {missing:?}");
}

/// The seventeen faults of the C provider's cancel, which docs/CANCEL.md describes.
#[test]
fn each_weakness_is_described_and_has_a_test() {
    let described = read("docs/CANCEL.md").expect("the page");
    let cases = read("tests/src/cases/weaknesses.rs").expect("the cases");
    let order = read("wqe/tests/order/main.rs").expect("the tests of order");
    for number in 1..=17 {
        assert!(described.contains(&format!("\n| {number:02} | ")), "{number} is not described");
        let test = format!("fn c_weakness_{number:02}_");
        assert!(cases.contains(&test) || order.contains(&test), "{number} has no test");
    }
}
