use super::*;

const ROWS: [&str; 4] = [
    "00000000: 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00",
    "00000010: 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00",
    "00000020: 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00",
    "00000030: 00 00 00 00 00 00 88 13 08 00 01 a2 00 05 00 d2",
];

/// The dump of the kernel, each line with this prefix.
fn log(prefix: &str) -> String {
    let head = "infiniband rocep8s0f0: dump_cqe:272:(pid 0): dump error cqe";
    let lines = std::iter::once(head).chain(ROWS);
    lines.map(|line| format!("{prefix}{line}\n")).collect()
}

fn is_the_failure(found: &Found) -> bool {
    let number = |name| found.facts.number(name);
    matches!(&found.what, What::Completion(bytes) if bytes.len() == DESCRIPTOR)
        && (number("syndrome"), number("vendor")) == (Some(0x13), Some(0x88))
        && number("qpn") == Some(0x1a2)
}

#[test]
fn prefixes_of_all_logs_are_passed_over() {
    for prefix in [
        "",
        "[ 1234.567890] ",
        "[Wed Jul 29 14:40:27 2026] ",
        "Feb 21 09:02:00 host-1 kernel: ",
        "2026-02-21T09:02:00+0100 host-1 kernel: ",
        "<4>[  12.3] ",
        "kern  :warn  : [  12.3] cqe_dump: ",
        "    ",
        "> > ",
        "[1,30]<stderr>:",
        "+",
    ] {
        let found = read(&log(prefix));
        assert_eq!(found.len(), 1, "{prefix}");
        assert!(is_the_failure(&found[0]), "{prefix}: {:?}", found[0].what);
        assert_eq!(found[0].line, 2, "{prefix}");
    }
}

#[test]
fn lines_between_the_rows_of_a_dump_do_not_part_it() {
    let mut text = log("[ 1.0] ");
    for row in ROWS {
        text = text.replace(row, &format!("{row}\n[ 1.1] usb 1-1: new device number 4"));
    }
    let found = read(&text);
    assert!(found.len() == 1 && is_the_failure(&found[0]));
    let far = text.replace("number 4\n", &"number 4\n[ 1.2] something else\n".repeat(9));
    assert!(!read(&far).iter().any(is_the_failure), "rows that are far apart are of one dump");
}

#[test]
fn dumps_one_after_the_other_are_two() {
    let text = log("").repeat(2);
    assert_eq!(read(&text).iter().filter(|found| is_the_failure(found)).count(), 2);
    let words = "\
        mlx5: host: got completion with error:\n\
        00000000 00000000 00000000 00000000\n00000000 00000000 00000000 00000000\n\
        00000001 00000000 00000000 00000000\n00000000 00008813 080001a2 000500d2[host:1] more\n";
    assert_eq!(read(&words.repeat(3)).iter().filter(|found| is_the_failure(found)).count(), 3);
}

#[test]
fn rows_of_unannounced_bytes_count_only_if_they_are_a_failure() {
    let rows = ROWS.join("\n");
    assert!(read(&format!("a line\n{rows}\n")).iter().all(is_the_failure));
    assert_eq!(read(&format!("a line\n{rows}\n")).len(), 1);
    let good = rows.replace("00 d2", "00 02");
    assert!(read(&format!("a line\n{good}\n")).is_empty());
    // All rows count where their kind is said.
    assert_eq!(bytes(&format!("a line\n{good}\n")).len(), DESCRIPTOR);
    assert_eq!(bytes(&format!("{good} 00\n")).len(), DESCRIPTOR, "a row has 16 bytes");
}

#[test]
fn a_ring_of_completions_shows_those_that_failed() {
    let good = ROWS[3].replace("d2", "02");
    let mut text = "MLX5 Error CQ: at [0x7f6a], len=128\n".to_owned();
    for (index, row) in ROWS[..3].iter().chain([&good.as_str()]).chain(&ROWS).enumerate() {
        text += &format!("{:08x}{} | ....\n", 16 * index, &row[8..]);
    }
    let found = read(&text);
    assert!(found.len() == 1 && is_the_failure(&found[0]), "{}", found.len());
}

#[test]
fn a_line_and_the_dump_that_say_the_same_are_one_and_others_are_not() {
    let line = "mlx5_core 0000:08:00.0 eth2: Error cqe on cqn 0x40b, ci 0x0, qn 0x1a2, \
        opcode 0xd, syndrome 0x13, vendor syndrome 0x88\n";
    let found = read(&format!("{line}{}", ROWS.join("\n")));
    assert!(found.len() == 1 && is_the_failure(&found[0]));
    assert_eq!(found[0].facts.number("cqn"), Some(0x40b));
    let other = line.replace("0x88", "0x89");
    assert_eq!(read(&format!("{other}{}", ROWS.join("\n"))).len(), 2);
    let repeated = read(&line.repeat(5));
    assert_eq!((repeated.len(), repeated[0].count), (1, 5));
}

#[test]
fn an_output_of_a_command_has_what_its_input_says() {
    let dump = |slot: u32, direction: &str, bytes: &str| {
        format!(
            "mlx5_core 0000:02:00.0: dump_command:851:(pid 1): cmd[{slot}]: dump command data \
             CREATE_QP(0x500) {direction}\ncmd[{slot}]: 000: {bytes}\n\n"
        )
    };
    let text = dump(0, "INPUT", "05000002 00000000 00000000 00000000")
        + &dump(1, "INPUT", "05000007 00000000 00000000 00000000")
        + &dump(0, "OUTPUT", "05000000 0065b500 00000000 00000000");
    let found = read(&text);
    assert_eq!(found.len(), 3);
    let number = |name| found[2].facts.number(name);
    assert_eq!((number("uid"), number("status")), (Some(2), Some(5)));
    assert_eq!(number("fw_syndrome"), Some(0x65b500));
}

#[test]
fn a_text_without_errors_has_none() {
    for text in ["", "\n", "hello", "cqn 0x1 syndrome", "{ }", "日本語 (synd 0x4 vend", "0x"] {
        assert!(read(text).is_empty(), "{text}");
    }
}
