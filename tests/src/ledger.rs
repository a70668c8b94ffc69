//! The ledger: the outcome of each case, and the device.

use crate::bed::Place;
use libtest_mimic::{Completion, Failed};
use mlx5::{Context, LinkLayer};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// The outcome of a case.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// The case passed.
    Pass,
    /// The device cannot run the case, for this reason.
    Skip(String),
    /// The case failed, with this message.
    Fail(String),
}

impl Outcome {
    /// The outcome of a trial.
    pub(crate) fn of(result: &Result<Completion, Failed>) -> Self {
        match result {
            Ok(Completion::Completed) => Self::Pass,
            Ok(Completion::Ignored { reason }) => Self::Skip(reason.clone().unwrap_or_default()),
            Err(failed) => Self::Fail(failed.message().unwrap_or_default().to_owned()),
        }
    }

    /// The name of the outcome, and the reason.
    fn words(&self) -> (&'static str, &str) {
        match self {
            Self::Pass => ("pass", ""),
            Self::Skip(why) => ("skip", why),
            Self::Fail(why) => ("fail", why),
        }
    }
}

/// The outcomes of all cases that were run.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    outcomes: Mutex<BTreeMap<String, Outcome>>,
}

/// The environment of the cases: names and values.
pub(crate) type Facts = Vec<(&'static str, String)>;

impl Ledger {
    /// Records the outcome of a case.
    pub(crate) fn note(&self, case: &str, outcome: Outcome) {
        self.lock().insert(case.to_owned(), outcome);
    }

    /// The outcomes by name of the case.
    pub(crate) fn outcomes(&self) -> BTreeMap<String, Outcome> {
        self.lock().clone()
    }

    /// Writes both forms: `path.json` for programs and `path.md` for people.
    pub(crate) fn write(&self, path: &Path, facts: &Facts) -> Result<(), String> {
        for (extension, text) in [("json", self.json(facts)), ("md", self.markdown(facts))] {
            let path = path.with_extension(extension);
            fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
        }
        Ok(())
    }

    fn json(&self, facts: &Facts) -> String {
        let outcomes = self.lock();
        let cases: Vec<Value> = outcomes
            .iter()
            .map(|(case, outcome)| {
                let (result, reason) = outcome.words();
                json!({"case": case, "result": result, "reason": reason})
            })
            .collect();
        let mut whole = serde_json::Map::new();
        whole.extend(facts.iter().map(|(name, word)| ((*name).to_owned(), json!(word))));
        whole.insert("cases".into(), cases.into());
        let text = serde_json::to_string_pretty(&Value::Object(whole));
        text.expect("it has texts for keys") + "\n"
    }

    fn markdown(&self, facts: &Facts) -> String {
        let outcomes = self.lock();
        let mut text = String::from("# mlx5 conformance\n\n");
        for (name, word) in facts {
            text.push_str(&format!("* {name}: {word}\n"));
        }
        let count = |name| outcomes.values().filter(|outcome| outcome.words().0 == name).count();
        let [pass, fail, skip] = ["pass", "fail", "skip"].map(count);
        text.push_str(&format!("\n**{pass} pass, {fail} fail, {skip} skip**\n\n"));
        text.push_str("| case | result | why |\n|---|---|---|\n");
        for (case, outcome) in outcomes.iter() {
            let (result, why) = outcome.words();
            let why = why.replace('|', "\\|").replace('\n', " ");
            text.push_str(&format!("| `{case}` | {} | {why} |\n", result.to_uppercase()));
        }
        text
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Outcome>> {
        self.outcomes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The environment: devices, firmware, kernel and so on.
pub(crate) fn facts(here: &Place, second: Option<&Place>) -> Result<Facts, String> {
    let context = here.device.open().map_err(|error| error.to_string())?;
    let mut facts = vec![
        ("device", place(here)),
        ("part", here.device.part().unwrap_or("unknown").to_owned()),
        ("firmware", here.device.fw_version().to_owned()),
        ("board", here.device.board_id().to_owned()),
        ("link layer", link(&context, here.port)?),
        ("kernel", kernel()),
        ("suite", env!("CARGO_PKG_VERSION").to_owned()),
    ];
    if let Some(second) = second {
        facts.push(("other end", place(second)));
    }
    Ok(facts)
}

fn place(place: &Place) -> String {
    format!("{}:{}", place.device.name(), place.port)
}

fn link(context: &Context, port: u8) -> Result<String, String> {
    let port = context.query_port(port).map_err(|error| error.to_string())?;
    let layer = if port.link_layer == LinkLayer::Ethernet { "Ethernet" } else { "InfiniBand" };
    Ok(layer.to_owned())
}

fn kernel() -> String {
    let system = nix::sys::utsname::uname();
    system.map(|name| name.release().to_string_lossy().into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_list_every_case_with_its_reason() {
        let ledger = Ledger::default();
        ledger.note("a::holds", Outcome::Pass);
        ledger.note("b::fails", Outcome::Fail("1 | 2\nare not 3".into()));
        ledger.note("c::skips", Outcome::Skip("one port".into()));
        let facts = vec![("device", "mlx5_0:1".to_owned())];
        let json: Value = serde_json::from_str(&ledger.json(&facts)).expect("JSON");
        assert_eq!(json["device"], "mlx5_0:1");
        assert_eq!(json["cases"][1]["result"], "fail");
        assert_eq!(json["cases"][2]["reason"], "one port");
        let text = ledger.markdown(&facts);
        assert!(text.contains("**1 pass, 1 fail, 1 skip**"), "{text}");
        assert!(text.contains("| `b::fails` | FAIL | 1 \\| 2 are not 3 |"), "{text}");
    }
}
