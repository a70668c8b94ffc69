//! The records of what real cards have printed in public, in `tests/silicon`: the command takes
//! each text as it was pasted, and must say what the record expects.

use super::*;
use crate::args::{Cli, Command};
use clap::Parser;
use serde_json::Value;

/// The kinds of records that are errors or dumps.
const KINDS: [&str; 7] = [
    "error_cqe",
    "kernel_line",
    "ucx_line",
    "libmlx5_line",
    "dpdk_line",
    "firmware_syndrome",
    "wqe",
];

/// Records of these kinds that report no error, and why the command finds nothing in them.
const WITHOUT_ERROR: [(&str, &str); 4] = [
    ("ucx-5749-bfregs", "debug lines of registers that were given out"),
    ("ucx-5749-create", "debug lines of objects that were made"),
    ("ucx-2464-bf", "addresses that a program printed"),
    ("caps-bf1-testpmd", "the description of a device"),
];

/// Expectations in prose: the record has their words in `says`.
const PROSE: [&str; 11] = [
    "meaning",
    "verdict",
    "try",
    "event",
    "health",
    "needs",
    "cq_event",
    "pci",
    "pci_gone",
    "uar",
    "responder_event",
];

/// Expectations of other things than what the command says.
const OF_OTHERS: [(&str, &str); 12] = [
    ("xor_of_64", "of the bytes: the test of tests/silicon has it"),
    ("stamp", "of the form of the text"),
    ("entries", "the command shows the first buffer"),
    ("timeout_s_apart", "of the times in the log"),
    ("wqe_index_by_counter", "of the line before the dump: a note says that the index differs"),
    ("max_qp_created", "of the experiment"),
    ("max_qp_reported", "of the experiment"),
    ("qpc_words", "of the command's parameters"),
    ("log_page_offset_pas", "of the command's parameters"),
    ("vendor_part_id", "of the device"),
    ("hw_ver", "of the device"),
    ("errno", "the text has its words"),
];

/// Numbers: the name in the records, and the field that has it.
const NUMBERS: [(&str, &str); 41] = [
    ("syndrome", "syndrome"),
    ("vendor_syndrome", "vendor_err_synd"),
    ("hw_syndrome", "hw_err_synd"),
    ("hw_syndrome_type", "hw_synd_type"),
    ("qpn", "qpn"),
    ("wqe_counter", "wqe_counter"),
    ("signature", "signature"),
    ("owner", "owner"),
    ("solicited", "se"),
    ("format", "format"),
    ("cqn", "cqn"),
    ("ci", "ci"),
    ("sqn", "queue_number"),
    ("rqn", "queue_number"),
    ("srqn_or_user_index", "srqn_uidx"),
    ("wr_id", "wr_id"),
    ("port", "port"),
    ("length", "length"),
    ("lkey", "lkey"),
    ("rkey", "rkey"),
    ("rqpn", "remote_qpn"),
    ("inline", "inline"),
    ("inline_length", "inline"),
    ("wq_ci", "wq_ci"),
    ("cq_ci", "cq_ci"),
    ("op_mod", "op_mod"),
    ("opmod", "opmod"),
    ("uid", "uid"),
    ("number", "health"),
    ("ext_synd", "ext_synd"),
    ("hw_id", "hw_id"),
    ("irisc_index", "irisc_index"),
    ("fw_ver_raw", "fw_ver_raw"),
    ("cq_event_syndrome", "cq_syndrome"),
    ("wqe_index", "wqe_index"),
    ("ds", "ds"),
    ("mkey", "imm"),
    ("xlt_octowords", "klm_octowords"),
    ("translation_entries", "page"),
    ("inline_header", "inline_hdr_sz"),
    ("byte_count", "byte_count"),
];

/// Texts: the name in the records, and the field whose value it is.
const TEXTS: [(&str, &str); 5] = [
    ("device", "device"),
    ("link", "link"),
    ("fw_ver", "fw_ver"),
    ("command", "command"),
    ("err", "err"),
];

/// The fields, the title and the notes of one item of the answer.
struct Said(Value);

impl Said {
    /// Whether a field of this name has a value and a meaning that fit.
    fn has(&self, name: &str, fits: impl Fn(&str, &str) -> bool) -> bool {
        let fields = self.0["fields"].as_array().expect("fields");
        fields.iter().filter(|field| field["name"] == name).any(|field| {
            fits(field["value"].as_str().expect("text"), field["meaning"].as_str().expect("text"))
        })
    }

    fn says(&self, words: &str) -> bool {
        self.0.to_string().to_lowercase().contains(&words.to_lowercase())
    }

    /// Whether this item says what a record expects under this name.
    fn meets(&self, key: &str, wanted: &Value) -> bool {
        let text = match wanted {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let same = |own: &str| number(own).is_some() && number(own) == number(&text);
        match key {
            "says" => self.says(&text),
            "cqe_opcode" => {
                let code = if text == "REQ_ERR" { 0xd } else { 0xe };
                self.has("opcode", |value, _| number(value) == Some(code))
            }
            "status_number" | "wc_status_line" => self.has("status", |_, meaning| same(meaning)),
            "status" if text.starts_with("IBV") => self.has("status", |value, _| value == text),
            "status" => {
                let code = text.split(['(', ')']).nth(1).and_then(number);
                self.has("status", |value, _| number(value) == code)
            }
            "syndrome_name" => self.has("syndrome", |_, meaning| {
                text.split(' ').all(|word| meaning.to_lowercase().contains(&word.to_lowercase()))
            }),
            "commands" => {
                let (name, opcode) = text.split_once(' ').expect("name and opcode");
                self.meets("command", &name.into()) && self.meets("opcode", &opcode.into())
            }
            "opcode" if text.starts_with("0x") && self.has("command", |_, _| true) => {
                self.has("command", |_, meaning| meaning == format!("opcode {text}"))
            }
            "opcode" => {
                let name = text.split(['(', ')']).find(|part| part.contains('_'));
                let name = name.or(text.split(' ').next()).unwrap_or_default();
                let name = name.replace("SND_INV", "SEND_INVAL");
                ["send_opcode", "opcode"].iter().any(|f| self.has(f, |_, m| m == name))
            }
            "object" => {
                let name = text.split(' ').next().unwrap_or_default();
                self.has("op_mod", |_, meaning| meaning.contains(name))
            }
            "queue" => match text.as_str() {
                "responder" | "receive" => self.says("receive failed"),
                _ => self.has("queue", |_, meaning| meaning == text),
            },
            "flags" => self.has("flags", |_, meaning| meaning == text),
            "umr_flags" => self.has("flags", |value, _| same(value)),
            "mkey_mask" => self.has("mkey_mask", |value, _| value == text),
            "count" => self.says(&format!("{text} lines say the same")),
            "name" => self.says(&text),
            "output" => {
                let digits: String = text.split(' ').collect();
                self.has("bytes", |value, _| value.replace(' ', "") == digits)
            }
            _ => {
                let number = NUMBERS.iter().find(|(name, _)| *name == key);
                let word = TEXTS.iter().find(|(name, _)| *name == key);
                match (number, word) {
                    (Some((_, field)), _) => self.has(field, |value, _| same(value)),
                    (None, Some((_, field))) => self.has(field, |value, _| value == text),
                    (None, None) => panic!("no rule compares {key}"),
                }
            }
        }
    }
}

/// The number with which a text begins.
fn number(text: &str) -> Option<u64> {
    let word = text.split(|c: char| !c.is_ascii_alphanumeric()).next()?;
    match word.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => word.parse().ok(),
    }
}

/// The expectations that are not met. All that is no list and no object must be said of one thing.
fn missing(all: &[Said], expected: &Value) -> Vec<String> {
    let (mut missing, mut of_one) = (Vec::new(), Vec::new());
    for (key, wanted) in expected.as_object().expect("an object") {
        match wanted {
            _ if PROSE.contains(&key.as_str()) => {
                assert!(!expected["says"].is_null(), "{key} without `says`: {expected}");
            }
            _ if OF_OTHERS.iter().any(|(name, _)| name == key) => {}
            Value::Object(_) => missing.extend(self::missing(all, wanted)),
            Value::Array(list) => {
                for one in list {
                    match one {
                        Value::Object(_) => missing.extend(self::missing(all, one)),
                        _ if all.iter().any(|said| said.meets(key, one)) => {}
                        _ => missing.push(format!("{key}: {one}")),
                    }
                }
            }
            _ => of_one.push((key, wanted)),
        }
    }
    let lacks = |said: &Said| -> Vec<String> {
        let lacks = of_one.iter().filter(|(key, wanted)| !said.meets(key, wanted));
        lacks.map(|(key, wanted)| format!("{key}: {wanted}")).collect()
    };
    let fewest = all.iter().map(lacks).min_by_key(Vec::len).unwrap_or_default();
    missing.extend(fewest);
    missing
}

/// The options of the command without any.
fn plain() -> Args {
    match Cli::parse_from(["mlx5", "dump"]).command {
        Command::Dump(args) => args,
        other => panic!("{other:?}"),
    }
}

fn records(kind: &str) -> Vec<Value> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/silicon/records");
    let text = std::fs::read_to_string(format!("{folder}/{kind}.json")).expect("the records");
    serde_json::from_str(&text).expect("JSON")
}

fn pasted(record: &Value) -> String {
    let lines = record["text"].as_array().expect("lines").iter();
    lines.map(|line| line.as_str().expect("text").to_owned() + "\n").collect()
}

#[test]
fn each_text_from_silicon_is_taken_as_pasted_and_explained_as_its_record_expects() {
    let args = plain();
    let (mut read, mut wrong) = (0, Vec::new());
    for kind in KINDS {
        for record in records(kind) {
            let id = record["id"].as_str().expect("a name");
            let entries = entries(&pasted(&record), &args);
            if WITHOUT_ERROR.iter().any(|(without, _)| *without == id) {
                assert!(entries.is_err(), "{id} says something");
                continue;
            }
            let entries = entries.unwrap_or_else(|failure| panic!("{id}: {}", failure.cause()));
            let items = entries.iter().filter_map(|entry| entry.item.as_ref());
            let said: Vec<Said> = items.map(|item| Said(item.to_json())).collect();
            assert!(!said.is_empty(), "{id}");
            let missing = missing(&said, &record["expect"]);
            if !missing.is_empty() {
                wrong.push(format!("{id}: {}", missing.join(", ")));
            }
            read += 1;
        }
    }
    assert!(wrong.is_empty(), "{} records are not met:\n{}", wrong.len(), wrong.join("\n"));
    assert!(read >= 100, "only {read} records");
}

/// A log is all of it in one: what one text says does not hide another's.
#[test]
fn one_log_of_all_texts_has_what_each_of_them_has() {
    let args = plain();
    let (mut log, mut separate) = (String::new(), 0);
    for kind in KINDS {
        for record in records(kind) {
            let text = pasted(&record);
            separate += entries(&text, &args).map_or(0, |entries| entries.len());
            log += &text;
            // Far enough apart that lines of two texts are not of one dump.
            log += &"a line of something else\n".repeat(30);
        }
    }
    let together = entries(&log, &args).unwrap_or_else(|failure| panic!("{}", failure.cause()));
    let joined = separate - together.len();
    assert!(joined <= separate / 10, "{} of {separate}", together.len());
}

/// People cut their texts anywhere.
#[test]
fn any_part_of_a_text_is_taken() {
    let args = plain();
    let mut answers = 0;
    for kind in KINDS {
        for record in records(kind) {
            let text = pasted(&record);
            for (at, _) in text.char_indices().step_by(11) {
                for part in [&text[..at], &text[at..]] {
                    match entries(part, &args) {
                        Ok(entries) => answers += entries.len(),
                        Err(failure) => assert!(!failure.cause().is_empty()),
                    }
                }
            }
        }
    }
    assert!(answers > 1000, "{answers}");
}
