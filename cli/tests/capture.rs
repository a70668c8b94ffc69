//! `mlx5 capture` that is ended by Ctrl-C, and the file that another program reads.

mod common;

use common::{Ended, command, interrupted, mlx5, there_is};
use std::process::{Command, Stdio};

/// The kinds of the blocks of a pcapng file, of which no byte is left over.
fn kinds(mut file: &[u8]) -> Vec<u32> {
    let mut kinds = Vec::new();
    while !file.is_empty() {
        let word = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().expect("a word"));
        kinds.push(word(0));
        file = &file[word(4) as usize..];
    }
    kinds
}

#[test]
fn an_interrupt_leaves_a_whole_file_with_its_statistics() {
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("mlx5-capture-{}.pcapng", std::process::id()));
    let name = path.to_str().expect("a path of text");
    // More packets than there will ever be.
    let words = ["capture", "--sim", "-n", "18446744073709551615", "--snap", "64", "-w", name];
    let run = interrupted(command(&words), "capturing");
    let file = std::fs::read(&path);
    let _ = std::fs::remove_file(&path);
    assert_eq!(run.code, Some(0), "{}", run.err);
    assert!(run.err.contains(" packets captured, "), "{}", run.err);
    let kinds = kinds(&file.expect("a file"));
    // A section, an interface, packets, and statistics at the end.
    assert_eq!(kinds[..2], [0x0a0d_0d0a, 1]);
    assert_eq!(kinds.last(), Some(&5));
    assert!(kinds[2..kinds.len() - 1].iter().all(|kind| *kind == 6));
}

/// A line of tcpdump with `-tt --nano -e`: the time in nanoseconds, and the rest.
fn timed(line: &str) -> (u64, &str) {
    let (time, rest) = line.split_once(' ').expect("a time");
    let (seconds, nanoseconds) = time.split_once('.').expect("a point");
    assert_eq!(nanoseconds.len(), 9, "{line}");
    let number = |text: &str| text.parse::<u64>().expect("a number");
    (number(seconds) * 1_000_000_000 + number(nanoseconds), rest)
}

/// With `MLX5_NEED_TCPDUMP` it must be there.
#[test]
fn tcpdump_reads_a_capture() {
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("mlx5-tcpdump-{}.pcapng", std::process::id()));
    mlx5(&format!("capture --sim -n 12 --snap 70 -w {}", path.display())).done();
    let file = std::fs::File::open(&path).expect("a file");
    let _ = std::fs::remove_file(&path);
    if !there_is("tcpdump", "MLX5_NEED_TCPDUMP") {
        return;
    }
    // As behind `mlx5 capture |`.
    let words = ["-r", "-", "-tt", "--nano", "-e", "-n"];
    let output = Command::new("tcpdump").args(words).stdin(Stdio::from(file)).ended();
    let reported = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{reported}");
    assert!(reported.contains("(Ethernet), snapshot length 70"), "{reported}");
    let out = String::from_utf8(output.stdout).expect("text");
    let lines: Vec<(u64, &str)> = out.lines().map(timed).collect();
    assert_eq!(lines.len(), 12, "{out}");
    // The simulated clock begins in 2024.
    assert!(lines[0].0 > 1_704_067_200_000_000_000, "{out}");
    assert!(lines.is_sorted_by(|one, next| one.0 <= next.0), "{out}");
    // Packets that this device sends to the group come back to it: each is copied as it leaves, and
    // as it arrives.
    let (sent, arrived): (Vec<_>, Vec<_>) = lines.chunks(2).map(|pair| (pair[0], pair[1])).unzip();
    assert!(sent.is_sorted_by(|one, next| one.0 < next.0), "{out}");
    assert_eq!(
        sent.iter().map(|line| line.1).collect::<Vec<_>>(),
        arrived.iter().map(|line| line.1).collect::<Vec<_>>()
    );
    for (number, (_, line)) in sent.iter().enumerate() {
        let bytes = "packet  of a simulated network".len() + number.to_string().len();
        let ends = "02:00:00:00:00:01 > 01:00:5e:00:02:01, ethertype IPv4 (0x0800)";
        let packet = format!(
            "{ends}, length {}: 192.0.2.1.12345 > 224.0.2.1.12346: UDP, length {bytes}",
            42 + bytes
        );
        assert_eq!(*line, packet);
    }
}
