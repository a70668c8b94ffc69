//! Registered pages and forked children. A process sets its handling of forks once, so each test
//! runs in its own process.

use crate::bed::*;
use crate::header::*;
use mlx5_verbs::abi::*;
use mlx5_verbs::{fork, mr};
use std::process::Command;
use std::ptr::null_mut;
use std::{env, fs};

/// Whether this is the process of a test. If not, runs the test in its own process.
fn is_own_process(test: &str) -> bool {
    const NAME: &str = "MLX5_DOOR_PROCESS";
    if env::var_os(NAME).is_some() {
        return true;
    }
    let test = format!("forked::{test}");
    let program = env::current_exe().expect("the path of the tests");
    let mut run = Command::new(program);
    run.args(["--exact", &test, "--nocapture"]).env(NAME, "1");
    run.env_remove("RDMAV_FORK_SAFE").env_remove("IBV_FORK_SAFE");
    let output = Waiting::begin(move || run.output()).end().expect("a process");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
    false
}

/// Whether the kernel keeps the page at an address from children.
fn is_kept(address: u64) -> bool {
    let maps = fs::read_to_string("/proc/self/smaps").expect("the mappings of this process");
    let holds = |line: &str| {
        let (start, end) = line.split(' ').next()?.split_once('-')?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        Some((number(start)?..number(end)?).contains(&address))
    };
    let mut lines = maps.lines().skip_while(|line| holds(line) != Some(true));
    let flags = lines.find(|line| line.starts_with("VmFlags:")).expect("flags of a mapping");
    flags.split(' ').any(|flag| flag == "dc")
}

#[test]
fn registered_pages_are_kept_from_children_until_they_are_deregistered() {
    if !is_own_process("registered_pages_are_kept_from_children_until_they_are_deregistered") {
        return;
    }
    ok(fork::fork_init());
    if fork::is_fork_initialized() == IBV_FORK_UNNEEDED {
        println!("this kernel copies such pages for children");
        return;
    }
    assert_eq!(fork::is_fork_initialized(), IBV_FORK_ENABLED);
    let bed = Bed::new();
    assert!(is_kept(bed.memory.address()));
    let pages = Pages::new(8192);
    let (first, second) = (pages.address(), pages.address() + 4096);
    let rights = IBV_ACCESS_LOCAL_WRITE as c_int;
    let [one, other] = [0; 2].map(|_| made(c!(mr::reg_mr(bed.pd, pages.start.cast(), 64, rights))));
    assert!(is_kept(first) && !is_kept(second));
    ok(c!(mr::dereg_mr(one)));
    assert!(is_kept(first), "it is registered still");
    let change = IBV_REREG_MR_CHANGE_TRANSLATION as c_int;
    let moved = pages.start.wrapping_add(4096).cast();
    ok(c!(mr::rereg_mr(other, change, null_mut(), moved, 64, 0)));
    assert!(!is_kept(first) && is_kept(second));
    ok(c!(mr::dereg_mr(other)));
    assert!(!is_kept(second));
    // If the kernel refuses, nothing stays kept.
    let remote = IBV_ACCESS_REMOTE_WRITE as c_int;
    not_made(c!(mr::reg_mr(bed.pd, pages.start.cast(), 64, remote)), libc::EINVAL);
    assert!(!is_kept(first));
    bed.end();
}

#[test]
fn a_program_that_has_registered_memory_says_too_late_that_it_forks() {
    if !is_own_process("a_program_that_has_registered_memory_says_too_late_that_it_forks") {
        return;
    }
    if fork::is_fork_initialized() == IBV_FORK_UNNEEDED {
        println!("this kernel copies such pages for children");
        return;
    }
    assert_eq!(fork::is_fork_initialized(), IBV_FORK_DISABLED);
    let bed = Bed::new();
    assert_eq!(fork::fork_init(), libc::EINVAL);
    assert_eq!(fork::is_fork_initialized(), IBV_FORK_DISABLED);
    assert!(!is_kept(bed.memory.address()));
    bed.end();
}
