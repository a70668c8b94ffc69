//! `mlx5 capture` that is ended by Ctrl-C.

mod common;

use common::{command, interrupted};

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
