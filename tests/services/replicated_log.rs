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
    let again = [(); 2].map(|()| Process::start("replicated_log", &["--seed", seed]).succeed());
    assert_eq!(again[0], again[1], "with all that happens, and when");
    let (happened, last) = again[0].rsplit_once('\n').expect("what happened");
    assert_eq!(last, format!("seed {seed}: entry {entry} was committed and is lost"));
    // The new leader's log ends before the entry that was committed.
    assert!(
        happened.contains(&format!("  old leader  entry {entry} is in a second log")),
        "{happened}"
    );
    let (_, leads) = happened.rsplit_once("  new leader  leads with ").expect("a new leader");
    assert!(!leads.ends_with(&format!(" {entry}")), "{leads}");
}
