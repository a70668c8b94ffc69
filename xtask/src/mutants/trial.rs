//! Builds with bugs, and runs tests until one fails.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::compile::{self, Built};
use super::list::Mutant;
use super::outcomes::{NO_END, Outcome, Outcomes};
use super::plant::{Field, Planted};
use super::suite::{self, Ended, Test};
use super::tree::{Sources, Tree};
use crate::failure::Failure;

/// Time limit of a build with one bug.
const LONGEST_BUILD: Duration = Duration::from_secs(240);

/// Determines the missing outcomes of these mutants, until the deadline.
pub(super) fn run(
    sources: &Sources,
    folder: &Path,
    mutants: &[&Mutant],
    outcomes: &mut Outcomes,
    jobs: usize,
    deadline: Option<Instant>,
) -> Result<(), Failure> {
    let planted = mutants.iter().map(|mutant| mutant.file.as_str()).collect();
    let mut trial = Trial {
        tree: Tree::lay(sources, folder, &planted)?,
        mutants,
        field: Field::new(sources, mutants)?,
        planted: Vec::new(),
        tests: Vec::new(),
        noticed: Mutex::new(HashMap::new()),
        before: mutants
            .iter()
            .map(|mutant| outcomes.noticed_by(mutant).map(str::to_owned))
            .collect(),
        jobs,
        deadline,
    };
    trial.planted = (0..mutants.len()).map(|at| trial.field.planted(at)).collect();
    if !trial.build(outcomes)? {
        println!("the time was over before the first bug could be tried");
        return Ok(());
    }
    trial.choose(outcomes)?;
    trial.alone(outcomes)
}

struct Trial<'a> {
    tree: Tree,
    mutants: &'a [&'a Mutant],
    field: Field<'a>,
    planted: Vec<Planted>,
    tests: Vec<Test>,
    /// Number of times that a test noticed a bug of a function, and of a file.
    noticed: Mutex<HashMap<(usize, String), usize>>,
    /// The tests that noticed the mutants in earlier runs.
    before: Vec<Option<String>>,
    jobs: usize,
    deadline: Option<Instant>,
}

impl Trial<'_> {
    fn is_late(&self) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= Instant::now())
    }

    /// Builds all bugs together, without those that do not compile, and measures the tests. Returns
    /// whether there was time.
    fn build(&mut self, outcomes: &mut Outcomes) -> Result<bool, Failure> {
        let begun = Instant::now();
        for &mutant in self.mutants {
            if let Some(why) = outcomes.did_not_compile(mutant) {
                outcomes.note(mutant, Outcome::Unviable(why))?;
            }
        }
        let compiles = |mutant| !matches!(outcomes.of(mutant), Some(Outcome::Unviable(_)));
        let mut fits: Vec<bool> = std::iter::zip(&self.planted, self.mutants)
            .map(|(planted, &mutant)| *planted != Planted::Alone && compiles(mutant))
            .collect();
        let programs = loop {
            for (name, text) in self.field.planted_files(|at| fits[at]) {
                self.tree.write(name, &text)?;
            }
            let complaints = match compile::tests(&self.tree, None, self.deadline, None)? {
                Built::Programs(programs) => break programs,
                Built::Late => return Ok(false),
                Built::Not(complaints) => complaints,
            };
            let before = fits.iter().filter(|fits| **fits).count();
            for complaint in &complaints {
                for (file, line) in &complaint.lines {
                    match self.field.suspects(file, *line) {
                        &[mutant] if fits[mutant] => {
                            fits[mutant] = false;
                            outcomes.note(
                                self.mutants[mutant],
                                Outcome::Unviable(complaint.what.clone()),
                            )?;
                        }
                        // The line belongs to the choice, not to one body.
                        suspects => {
                            for &suspect in suspects {
                                fits[suspect] = false;
                                self.planted[suspect] = Planted::Alone;
                            }
                        }
                    }
                }
            }
            if fits.iter().filter(|fits| **fits).count() == before {
                let texts = complaints.into_iter().map(|complaint| complaint.text);
                return Err(Failure::Uncompilable(texts.collect()));
            }
        };
        eprintln!("built in {} s", begun.elapsed().as_secs());
        let begun = Instant::now();
        self.tests = suite::measured(&programs, self.tree.built(), self.jobs, self.deadline)?;
        eprintln!("{} tests run in {} s", self.tests.len(), begun.elapsed().as_secs());
        Ok(!self.is_late())
    }

    /// Runs tests with every bug that can be selected at run time.
    fn choose(&self, outcomes: &mut Outcomes) -> Result<(), Failure> {
        let pending: Vec<(usize, u32, bool)> = (0..self.mutants.len())
            .filter(|&at| outcomes.of(self.mutants[at]).is_none())
            .filter_map(|at| match self.planted[at] {
                Planted::Among { function, is_const } => Some((at, function, is_const)),
                Planted::Alone => None,
            })
            .collect();
        let (next, outcomes) = (Mutex::new(pending.iter()), Mutex::new(outcomes));
        suite::in_parallel(self.jobs, |_| {
            loop {
                let Some(&(at, function, is_const)) = next.lock().expect("no panic").next() else {
                    return Ok(());
                };
                let reaching = self.order(at, |test| test.reaches(function));
                let bug = u32::try_from(at + 1).expect("some thousands");
                match self.tried(at, bug, &reaching)? {
                    // The compiler evaluated the function without the bug.
                    Some(Outcome::Missed) if is_const => {}
                    Some(outcome) => {
                        outcomes.lock().expect("no panic").note(self.mutants[at], outcome)?;
                    }
                    None => return Ok(()),
                }
            }
        })
    }

    /// Builds each of the other bugs by itself, and runs all tests.
    fn alone(&self, outcomes: &mut Outcomes) -> Result<(), Failure> {
        for at in 0..self.mutants.len() {
            if outcomes.of(self.mutants[at]).is_some() {
                continue;
            }
            let (name, text) = self.field.file_of(at);
            let kept = self.tree.read(name)?;
            self.tree.write(name, &text)?;
            let outcome = self.tried_alone(at);
            self.tree.write(name, &kept)?;
            match outcome? {
                Some(outcome) => outcomes.note(self.mutants[at], outcome)?,
                None => return Ok(()),
            }
        }
        Ok(())
    }

    /// Builds the tree with one bug, and runs tests until one notices it: first those of its
    /// package, which build quickly, then all.
    fn tried_alone(&self, at: usize) -> Result<Option<Outcome>, Failure> {
        let package = self.mutants[at].file.split("src/").next().unwrap_or_default();
        let folder = self.tree.root().join(package);
        let is_own = |test: &Test| test.program.folder == folder && test.program.target.is_some();
        let own: BTreeSet<&str> = self
            .tests
            .iter()
            .filter(|test| is_own(test))
            .filter_map(|test| test.program.target.as_deref())
            .collect();
        let own: Vec<&str> = own.into_iter().collect();
        if !own.is_empty() {
            match self.built_and_tried(at, Some(&own), &self.order(at, is_own))? {
                Some(Outcome::Missed) => {}
                other => return Ok(other),
            }
        }
        self.built_and_tried(at, None, &self.order(at, |_| true))
    }

    fn built_and_tried(
        &self,
        at: usize,
        targets: Option<&[&str]>,
        order: &[usize],
    ) -> Result<Option<Outcome>, Failure> {
        match compile::tests(&self.tree, targets, self.deadline, Some(LONGEST_BUILD))? {
            Built::Late => Ok(None),
            Built::Not(complaints) => {
                let first = complaints.into_iter().next().map(|complaint| complaint.what);
                Ok(Some(Outcome::Unviable(first.unwrap_or_default())))
            }
            Built::Programs(_) => self.tried(at, 0, order),
        }
    }

    /// Order in which tests run: the one that noticed the bug in an earlier run; those that noticed
    /// most bugs of the same function, and of the same file; then the fast ones.
    fn order(&self, at: usize, wanted: impl Fn(&Test) -> bool) -> Vec<usize> {
        let noticed = self.noticed.lock().expect("no panic");
        let count = |test: usize, place: String| noticed.get(&(test, place)).copied().unwrap_or(0);
        let mut order: Vec<usize> =
            (0..self.tests.len()).filter(|&test| wanted(&self.tests[test])).collect();
        order.sort_by_cached_key(|&test| {
            let function = Reverse(count(test, self.function(at)));
            let before = self.before[at].as_ref() == Some(&self.tests[test].name);
            (
                !before,
                function,
                Reverse(count(test, self.mutants[at].file.clone())),
                self.tests[test].took,
            )
        });
        order
    }

    /// Identifies the function of a mutant.
    fn function(&self, at: usize) -> String {
        format!("{:?}", self.planted[at])
    }

    /// Runs tests with a bug until one notices it; `None` if there is no time for all.
    fn tried(&self, at: usize, bug: u32, order: &[usize]) -> Result<Option<Outcome>, Failure> {
        for &test in order {
            if self.is_late() {
                return Ok(None);
            }
            let noticed = match self.tests[test].run(bug)? {
                Ended::Passed => None,
                Ended::Not => Some(format!("{}{NO_END}", self.tests[test].name)),
                // A single failure may be chance.
                Ended::Failed if self.tests[test].run(bug)? == Ended::Passed => None,
                Ended::Failed => Some(self.tests[test].name.clone()),
            };
            if let Some(by) = noticed {
                let mut noticed = self.noticed.lock().expect("no panic");
                for place in [self.function(at), self.mutants[at].file.clone()] {
                    *noticed.entry((test, place)).or_default() += 1;
                }
                return Ok(Some(Outcome::Caught(by)));
            }
        }
        Ok(Some(Outcome::Missed))
    }
}
