//! The replicated log whose bug is found by trying seeds.

use crate::machine::Process;

#[test]
fn a_seed_shows_the_bug_and_shows_it_again() {
    let said = Process::start("replicated_log", &[]).succeed();
    assert!(said.contains("the correct protocol: no committed entry is lost"), "{said}");
    let (_, seed) = said.rsplit_once("--seed ").expect("how to run it again");
    let found = format!("seed {seed} loses entry ");
    let (_, entry) = said.split_once(&found).expect("the seed that shows the bug");
    let (entry, _) = entry.split_once(',').expect("an entry");
    for _ in 0..2 {
        let again = Process::start("replicated_log", &["--seed", seed]).succeed();
        assert_eq!(again, format!("seed {seed}: entry {entry} was committed and is lost"));
    }
}

#[test]
fn what_it_does_not_understand_is_told_the_usage() {
    let (success, said) = Process::start("replicated_log", &["--sead", "7"]).end();
    assert!(!success && said.contains("usage: replicated_log"), "{said}");
}
