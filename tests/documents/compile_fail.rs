//! Checks that the cases of `tests/compile_fail` do not compile, and that the compiler reports the
//! expected errors.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// The compiler that the `.stderr` files quote.
const COMPILER: &str = "rustc 1.95.";
/// The environment variable that names the folder of cases for `writes_what_the_compiler_says`.
const CASES: &str = "MLX5_COMPILE_FAIL_CASES";

fn cases() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("compile_fail")
}

/// Files of a folder with this extension.
fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let files = fs::read_dir(folder).expect("the folder is there");
    let files = files.map(|file| file.expect("it is a file").path());
    files.filter(|file| file.extension().is_some_and(|found| found == extension)).collect()
}

/// The errors that a compiler found: their codes, or the whole of those that have none.
fn errors(actual: &str) -> BTreeSet<&str> {
    let code = |line| match str::split_once(line, ']') {
        Some((code, _)) if code.starts_with("error[") => code,
        _ => line,
    };
    actual.lines().filter(|line| line.starts_with("error")).map(code).collect()
}

#[test]
fn misuse_does_not_compile() {
    let compiler = env::var_os("RUSTC").unwrap_or_else(|| OsString::from("rustc"));
    let version = Command::new(compiler).arg("--version").output().expect("a compiler").stdout;
    if version.starts_with(COMPILER.as_bytes()) {
        trybuild::TestCases::new().compile_fail("compile_fail/*.rs");
    } else {
        eprintln!(
            "left out: this compiler may have other words; the next test compares the errors"
        );
    }
}

/// Other compilers have other words for the same errors.
#[test]
fn whatever_the_words_the_errors_are_the_same() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("compile_fail");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("a folder");
    for case in files(&cases(), "rs") {
        let name = case.file_name().expect("a name");
        fs::copy(&case, folder.join(name)).expect("a copy");
    }
    let again = Command::new(env::current_exe().expect("this program"))
        .args(["--exact", "writes_what_the_compiler_says", "--ignored", "--nocapture"])
        .env(CASES, &folder)
        .env("TRYBUILD", "overwrite")
        .output()
        .expect("it runs");
    assert!(again.status.success(), "{}", String::from_utf8_lossy(&again.stderr));
    let expected = files(&cases(), "stderr");
    assert!(!expected.is_empty());
    for expected in expected {
        let read = |file: &Path| fs::read_to_string(file).expect("what the compiler says");
        let (actual, ours) = (folder.join(expected.file_name().expect("a name")), read(&expected));
        assert!(!errors(&ours).is_empty(), "{}", expected.display());
        assert_eq!(errors(&read(&actual)), errors(&ours), "{}", expected.display());
    }
}

#[test]
#[ignore = "run by another test"]
fn writes_what_the_compiler_says() {
    let folder = env::var_os(CASES).expect("where the cases are");
    trybuild::TestCases::new().compile_fail(Path::new(&folder).join("*.rs"));
}
