//! Records of what real cards have printed in public, and what a decoder must read in them.
//!
//! `records/KIND.json` has them: the lines as they were pasted, with masked names and addresses
//! (`masked`), the public source, and what they say (`expect`).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use mlx5_prm::cqe::{CqeOpcode, ErrorCqe};
use serde_json::Value;
use zerocopy::FromBytes;

mod models;
mod situations;

/// All records, by the file that they are in.
fn records() -> BTreeMap<String, Vec<Value>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("silicon/records");
    let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let read = |path: std::path::PathBuf| {
        let kind = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let text = fs::read_to_string(&path).unwrap();
        (kind, serde_json::from_str(&text).unwrap_or_else(|error| panic!("{path:?}: {error}")))
    };
    files.map(read).collect()
}

fn text<'r>(record: &'r Value, field: &str) -> &'r str {
    record[field].as_str().unwrap_or_else(|| panic!("no {field} in {record}"))
}

/// A number of a record: a JSON number, or text with the prefix 0x.
fn number(record: &Value, field: &str) -> u64 {
    let value = &record["expect"][field];
    let hex = |text: &str| u64::from_str_radix(text.strip_prefix("0x")?, 16).ok();
    value.as_u64().or_else(|| hex(value.as_str()?)).unwrap_or_else(|| {
        panic!("{}: {field} is no number: {value}", text(record, "id"));
    })
}

/// The bytes of a CQE, if the record has all 64.
fn cqe(record: &Value) -> Option<[u8; 64]> {
    let rows = record["bytes"].as_array()?;
    let digits: String = rows.iter().map(|row| row.as_str().unwrap_or("")).collect();
    let byte = |at: usize| u8::from_str_radix(digits.get(2 * at..2 * at + 2)?, 16).ok();
    let bytes: Option<Vec<u8>> = (0..64).map(byte).collect();
    (digits.len() == 128).then_some(bytes?.try_into().ok()?)
}

#[test]
fn records_are_many_of_many_sources_and_each_has_one_name() {
    let records = records();
    let all: Vec<_> = records.values().flatten().collect();
    let ids: BTreeSet<_> = all.iter().map(|record| text(record, "id")).collect();
    assert_eq!(ids.len(), all.len(), "an id stands twice");
    let mut sources: BTreeMap<&str, usize> = BTreeMap::new();
    for (kind, of_kind) in &records {
        for record in of_kind {
            assert_eq!(text(record, "kind"), kind, "{}", text(record, "id"));
            assert!(text(record, "source").starts_with("https://"), "{}", text(record, "id"));
            assert!(!record["text"].as_array().unwrap().is_empty(), "{}", text(record, "id"));
            *sources.entry(text(record, "source")).or_default() += 1;
        }
    }
    assert!(all.len() >= 100 && records.len() >= 12 && sources.len() >= 60);
    assert!(sources.values().all(|count| *count <= 3), "a source has more than three records");
}

#[test]
fn error_cqe_of_each_record_is_read_as_its_paste_says() {
    let records = records();
    let mut read = 0;
    for record in &records["error_cqe"] {
        let id = text(record, "id");
        let Some(bytes) = cqe(record) else { continue };
        // The bytes are those of the paste, however it groups them.
        let digits = |text: &str| {
            let text: String = text.chars().filter(char::is_ascii_hexdigit).collect();
            text.to_ascii_lowercase()
        };
        let pasted: String = record["text"]
            .as_array()
            .unwrap()
            .iter()
            .map(|line| digits(line.as_str().unwrap()))
            .collect();
        let last: String = bytes[56..].iter().map(|byte| format!("{byte:02x}")).collect();
        assert!(pasted.contains(&last), "{id}: the paste lacks {last}");

        let error = ErrorCqe::read_from_bytes(&bytes).unwrap();
        let opcode = match CqeOpcode::from_bits(error.op_own >> 4) {
            Some(CqeOpcode::RequesterError) => "REQ_ERR",
            Some(CqeOpcode::ResponderError) => "RESP_ERR",
            other => panic!("{id}: {other:?} is no error"),
        };
        assert_eq!(opcode, record["expect"]["cqe_opcode"], "{id}");
        let read_fields = [
            ("syndrome", u64::from(error.syndrome)),
            ("vendor_syndrome", error.vendor_err_synd.into()),
            ("qpn", (error.s_wqe_opcode_qpn.get() & 0xff_ffff).into()),
            ("wqe_counter", error.wqe_counter.get().into()),
            ("signature", error.signature.into()),
            ("owner", (error.op_own & 1).into()),
            ("solicited", (error.op_own >> 1 & 1).into()),
            ("format", (error.op_own >> 2 & 3).into()),
            ("hw_syndrome", error.hw_err_synd.into()),
            ("hw_syndrome_type", error.hw_synd_type.into()),
            ("xor_of_64", bytes.iter().fold(0, |all, byte| all ^ byte).into()),
        ];
        for (field, value) in read_fields {
            assert_eq!(value, number(record, field), "{id}: {field}");
        }
        read += 1;
    }
    assert!(read >= 30, "only {read} error CQEs have all bytes");
}

#[test]
fn each_record_and_each_case_that_the_page_names_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("../docs/SILICON.md")).unwrap();
    let records = records();
    let ids: BTreeSet<_> = records.values().flatten().map(|record| text(record, "id")).collect();
    let (mut named, mut cases) = (0, 0);
    for name in page.split('`').skip(1).step_by(2) {
        let is_word = |part: &str| {
            !part.is_empty() && part.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit())
        };
        if name.contains('-') && name.split('-').all(is_word) {
            assert!(ids.contains(name), "the page names no record: {name}");
            named += 1;
        } else if let Some((module, case)) = name.split_once("::") {
            let path = root.join(format!("src/cases/{module}.rs"));
            let source = fs::read_to_string(&path).unwrap_or_else(|_| panic!("no cases {module}"));
            let function = format!("fn {case}(");
            assert!(case == "*" || source.contains(&function), "no case {name}");
            cases += 1;
        }
    }
    assert!(named >= 30 && cases >= 15, "{named} records and {cases} cases");
}
