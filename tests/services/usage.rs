//! Checks the output of each example for `--help` and for unknown arguments.

use crate::machine::Process;
use std::path::Path;

/// Returns the names of the examples: files with a function `main`. Leaves out the examples in
/// `ethernet/`: they test themselves, so Cargo builds them here only as tests.
fn examples() -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let mut names = Vec::new();
    for folder in [root.clone(), root.join("services")] {
        for entry in folder.read_dir().expect("a folder of examples") {
            let path = entry.expect("an entry").path();
            let is_program = path.is_file()
                && std::fs::read_to_string(&path).expect("text").contains("\nfn main()");
            if is_program {
                names.push(path.file_stem().expect("a name").display().to_string());
            }
        }
    }
    assert!(names.len() >= 15, "{names:?}");
    names
}

#[test]
fn every_example_prints_its_usage_on_help() {
    for name in examples() {
        let said = Process::start(&name, &["--help"]).succeed().to_lowercase();
        assert!(said.contains(&format!("usage: {name}")), "{name} said {said}");
    }
}

#[test]
fn every_example_refuses_an_option_that_it_does_not_know_and_says_what_it_takes() {
    for name in examples() {
        let (success, said) = Process::start(&name, &["--sead"]).end();
        let mut lines = said.lines();
        assert!(!success && lines.next().is_some_and(|line| line.starts_with("error: ")), "{said}");
        // After the error, an example prints its usage, or that it runs without arguments.
        let says = said.to_lowercase().contains("usage: ") || said.contains("without arguments");
        assert!(says, "{name} said {said}");
    }
}
