//! The names that documents use exist: functions, types, tests, files, options, kernel attributes.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Pages that a tool writes from what it has measured.
const GENERATED: [&str; 2] = ["BENCHMARKS.md", "CONFORMANCE.md"];

/// Names of other projects, and names that the changelog says are gone.
const ELSEWHERE: &[&str] = &[
    // Linux, rdma-core, DPDK, UCX, MPI, libfabric: functions, fields and variables.
    "IBV_DRIVERS",
    "IBV_SHOW_WARNINGS",
    "MLX5_CQE_OWNER_MASK",
    "MLX5_DEBUG_MASK",
    "MLX5_FREEZE_ON_ERROR_CQE",
    "MLX5_LOCAL_CPUS",
    "MLX5_NUM_LOW_LAT_UUARS",
    "MLX5_POST_SEND_PREFER_BF",
    "MLX5_RWQ_SIGNATURE",
    "MLX5_SCATTER_TO_CQE",
    "MLX5_SRQ_SIGNATURE",
    "MLX5_TOTAL_UUARS",
    "MPI_Finalize",
    "RDMAV_DRIVERS",
    "bf_page",
    "cap_ipc_lock",
    "cap_net_raw",
    "compile_test",
    "cons_index",
    "cur_post",
    "devx_is_general_cmd",
    "devx_is_obj_create_cmd",
    "dv_flow_en",
    "fi_info",
    "fi_pingpong",
    "ibv_reg_mr_ex",
    "mana_driver",
    "mlnx_qos",
    "mlx5_cq_clean",
    "mlx5_mprq_prepare",
    "mlx5_rx_burst_mprq_vec",
    "mlx5_tx_error_cqe_handle",
    "mlx5_uar_info",
    "mlx5_wq_overflow",
    "mlx5e_dump_error_cqe",
    "mlx5e_notify_hw",
    "mlx5e_poll_tx_cq",
    "mlx5e_tx_reporter_err_cqe_recover",
    "mlx5e_xmit_xdp_doorbell",
    "mmio_flush_writes",
    "nvme_driver",
    "ofi_rxd",
    "per_mkey",
    "smp_affinity_list",
    "spawn_blocking",
    "sw_sq_counter",
    "test_mkey_sig_pipelining_bad",
    "test_post_send",
    "test_query_gid_table_fallback",
    "transparent_hugepage",
    "wqe_head",
    // Gone.
    "clock_mhz",
    "post_while",
    "push_fast",
    "push_with",
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tree")
}

/// The files of a folder and below, without build outputs and hidden folders other than CI's.
fn files(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("target");
        if !path.is_dir() {
            into.push(path);
        } else if name == ".ci" || name == ".github" || !name.starts_with('.') && name != "target" {
            files(&path, into);
        }
    }
}

/// The words of a text that may be names.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.split(move |c: char| !is_part(c)).filter(|word| !word.is_empty())
}

/// Whether a word in code signs is a name, rather than one of a language: `snake_case`,
/// `CamelCase`. One that ends with an underscore begins several names, and one that starts with it
/// ends some.
fn is_name(word: &str) -> bool {
    let camel = word
        .as_bytes()
        .windows(2)
        .any(|two| two[0].is_ascii_lowercase() && two[1].is_ascii_uppercase());
    let is_part = word.ends_with('_') || word.starts_with(|c: char| c == '_' || c.is_ascii_digit());
    !is_part && (word.contains('_') || camel)
}

/// The names in the code signs of a document, each with its line; blocks of code are left out.
fn names(document: &str) -> Vec<(usize, &str)> {
    let mut block = false;
    let mut names = Vec::new();
    for (number, line) in (1..).zip(document.lines()) {
        if line.trim_start().starts_with("```") {
            block = !block;
        } else if !block {
            let spans = line.split('`').skip(1).step_by(2);
            names.extend(
                spans.flat_map(words).filter(|word| is_name(word)).map(|word| (number, word)),
            );
        }
    }
    names
}

#[test]
fn every_name_in_a_document_exists() {
    let mut all = Vec::new();
    files(root(), &mut all);
    let (documents, others): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|path| path.extension().is_some_and(|kind| kind == "md"));
    let mut known = BTreeSet::new();
    for path in others.iter().filter(|path| !path.ends_with("documents/identifiers.rs")) {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("");
        known.extend(words(name).map(str::to_owned));
        let is_data = name.ends_with(".json");
        if let Ok(text) = fs::read_to_string(path)
            && !is_data
        {
            known.extend(words(&text).map(str::to_owned));
        }
    }
    let (mut unknown, mut count) = (Vec::new(), 0);
    let mut used = BTreeSet::new();
    for path in documents {
        if GENERATED.iter().any(|name| path.ends_with(name)) {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        for (line, name) in names(&text) {
            count += 1;
            if known.contains(name) {
                continue;
            }
            if let Some(elsewhere) = ELSEWHERE.iter().find(|other| **other == name) {
                used.insert(*elsewhere);
                continue;
            }
            let path = path.strip_prefix(root()).unwrap().display();
            unknown.push(format!("  {path}:{line}: {name}"));
        }
    }
    let unused: Vec<_> = ELSEWHERE.iter().filter(|name| !used.contains(**name)).collect();
    assert!(count > 1000, "the documents have more than {count} names");
    assert!(unknown.is_empty(), "no such name in the tree:\n{}", unknown.join("\n"));
    assert!(unused.is_empty(), "no document needs these names of other projects: {unused:?}");
}

#[test]
fn names_are_found_in_code_signs_alone() {
    let page = "A `post_send` of `QueuePair::wr_start`, `all` in `tm_a_*`.\n```\nnot_this\n```\nnor_this `SQ`\n";
    let found: Vec<_> = names(page).into_iter().map(|(_, name)| name).collect();
    assert_eq!(found, ["post_send", "QueuePair", "wr_start"]);
}
