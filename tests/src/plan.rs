//! The plan of a run on a real device: the riskiest cases first, and the time that it takes.

use crate::bed::DEADLINE;
use crate::case::Need;
use std::time::Duration;

/// Time that a card waits for an acknowledgement before it sends again. A ConnectX-6 was measured
/// to act on every shorter timeout as on 16, which it makes twice as long as it says
/// (docs/SILICON.md).
pub(crate) const ACK_WAIT: Duration = Duration::from_micros(536_871);
/// Tries of a request, with the largest retry count.
const TRIES: u32 = 8;
/// The longest time until a card has given up a peer that is gone. The measured card took 3.7 s.
pub(crate) const GIVE_UP: Duration = ACK_WAIT.saturating_mul(TRIES);
const _: () = assert!(DEADLINE.as_millis() >= 4 * GIVE_UP.as_millis());

/// The largest number of acknowledgement timeouts in a case with `TIMEOUTS`.
const MOST_TIMEOUTS: u32 = 12;
/// Time of a case without timeouts. Most have a few pauses of 20 ms, and some have a hundred.
const USUAL: Duration = Duration::from_millis(150);

/// Needs that a real device does not meet.
pub(crate) const SIMULATED: Need = Need::SIMULATOR.union(Need::STEP).union(Need::DIRTY);
/// The reason why a real device skips such cases.
pub(crate) const SIMULATED_ALONE: &str = "needs controls that only a simulated device has";

/// Cases that may fail on a first card.
pub(crate) struct Risk {
    /// The files of the cases.
    files: &'static [&'static str],
    /// The reason why they may fail.
    why: &'static str,
    /// The thing that only a card shows.
    shows: &'static str,
}

/// The order of the cases on a real device, and the checklist in docs/HARDWARE.md.
pub(crate) const RISKS: &[Risk] = &[
    Risk {
        files: &["operations"],
        why: "every other case needs what these do; if they fail, read nothing into the others",
        shows: "whether a card takes the WQEs and doorbells, and whether its CQEs are understood",
    },
    Risk {
        files: &["signatures"],
        why: "two public records contradict the driver",
        shows: "the byte order of CRC-32, and the values and the offset of a signature error",
    },
    Risk {
        files: &["pipelining", "pipelined_keys"],
        why: "no public record shows at which request a card stops, nor that it skips such NOPs",
        shows: "where a queue drains after a signature error, and whether cancelled requests of \
                several blocks are skipped",
    },
    Risk {
        files: &["cqe_forms", "rings"],
        why: "of compressed completions two bytes are on record",
        shows: "the layout of compressed completions, and when a card compresses",
    },
    Risk {
        files: &["doorbells", "threads"],
        why: "no simulated bus combines or tears stores",
        shows: "doorbells on write-combining memory, also of several threads",
    },
    Risk {
        files: &["mkeys", "windows"],
        why: "no public record says when a card checks the rights of a key below another",
        shows: "whether rights count at the configuration of a key or at the access",
    },
    Risk {
        files: &["retries"],
        why: "the shortest timeout was measured on one card, on RoCE",
        shows: "how long a card waits for a peer that is gone, and how often it tries",
    },
    Risk {
        files: &["flush", "protection", "states"],
        why: "some codes of failed requests are recorded once, and some not at all",
        shows: "status and vendor code of each failure, and how many packets of it were written",
    },
    Risk {
        files: &["tag_list", "tag_messages", "tag_phases"],
        why: "no public record shows the completions of matched tags",
        shows: "how a card counts tags, and which completions it writes for them",
    },
    Risk {
        files: &["striding", "ethernet_queue", "segments", "packets", "rough_frames"],
        why: "errors among strides, and frames that are cut, are known from other drivers alone",
        shows: "strides of a failed receive, and the headers that a card demands of a frame",
    },
    Risk {
        files: &["steering", "scaling"],
        why: "firmware has limits of its own for flow rules",
        shows: "which rules a card takes, and which packets reach a rule first",
    },
    Risk {
        files: &["overruns", "completion_queues", "events"],
        why: "a card overruns a queue at a time of its own",
        shows: "when a card reports a full completion queue, and as which event",
    },
    Risk {
        files: &["devices"],
        why: "limits differ by model, firmware and board",
        shows: "the limits and capabilities of this card",
    },
];

/// The position of a case in the run, by its name: the row of [`RISKS`], or after all of them.
pub(crate) fn rank(case: &str) -> usize {
    let file = case.split("::").next().unwrap_or(case);
    RISKS.iter().position(|risk| risk.files.contains(&file)).unwrap_or(RISKS.len())
}

/// The line of the report for a failure of a case that may fail on a first card.
pub(crate) fn known_risk(case: &str) -> Option<String> {
    let risk = RISKS.get(rank(case))?;
    Some(format!("known risk: {}. It shows {}", risk.why, risk.shows))
}

/// The time that a case takes on a real device.
fn time(need: Need) -> Duration {
    if need.contains(Need::TIMEOUTS) { USUAL + ACK_WAIT * MOST_TIMEOUTS } else { USUAL }
}

/// Number of cases with these needs that a real device can run, and the time that they take.
fn estimate(needs: impl Iterator<Item = Need>) -> (usize, Duration) {
    let real = needs.filter(|need| !need.intersects(SIMULATED));
    real.fold((0, Duration::ZERO), |(count, sum), need| (count + 1, sum + time(need)))
}

/// The line about cases with these needs that the suite prints before it runs them.
pub(crate) fn announcement(needs: impl Iterator<Item = Need>) -> String {
    let (count, time) = estimate(needs);
    format!(
        "{count} cases, the riskiest first; one after the other they take about {} min {} s",
        time.as_secs() / 60,
        time.as_secs() % 60
    )
}

/// Checks that a case which ran on the simulated device needs no more time on a real one than the
/// plan says. `timeouts` counts its acknowledgement timeouts, `settled` those of them that passed
/// while the case waited for all work to be done.
pub(crate) fn check(need: Need, timeouts: u32, settled: u32) -> Result<(), String> {
    if need.intersects(SIMULATED) {
        return Ok(());
    }
    let most = if need.contains(Need::TIMEOUTS) { MOST_TIMEOUTS } else { 0 };
    if settled > 0 {
        return Err(format!(
            "{settled} acknowledgement timeouts passed in `settle`, which ends after 20 ms on a \
             real device: wait for the completions instead"
        ));
    }
    if timeouts > most {
        return Err(format!(
            "{timeouts} acknowledgement timeouts take a card {:?}, and the plan has room for \
             {most}: give the case TIMEOUTS, or fewer retries",
            ACK_WAIT * timeouts
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file_of(name: &str) -> &str {
        name.split_once("cases::").map_or(name, |(_, name)| name).split("::").next().unwrap_or("")
    }

    #[test]
    fn each_file_of_a_risk_has_a_case_that_a_real_device_runs() {
        let mut seen = Vec::new();
        for file in RISKS.iter().flat_map(|risk| risk.files) {
            let runs = crate::cases::all()
                .any(|case| file_of(case.name) == *file && !case.need.intersects(SIMULATED));
            assert!(runs, "no case of {file} runs on a real device");
            assert!(!seen.contains(file), "{file} is in two rows");
            seen.push(*file);
        }
    }

    #[test]
    fn riskiest_cases_come_first_and_the_others_keep_their_order() {
        let mut names = [
            "memory::b",
            "retries::a",
            "signatures::z",
            "addresses::a",
            "operations::z",
            "pipelined_keys::a",
            "operations::a",
        ];
        names.sort_by_key(|name| rank(name));
        let sorted = [
            "operations::z",
            "operations::a",
            "signatures::z",
            "pipelined_keys::a",
            "retries::a",
            "memory::b",
            "addresses::a",
        ];
        assert_eq!(names, sorted);
    }

    #[test]
    fn estimate_counts_timeouts_and_leaves_out_cases_of_the_simulated_device() {
        let needs = [Need::empty(), Need::TIMEOUTS, Need::SIMULATOR, Need::STEP | Need::TIMEOUTS];
        let (count, time) = estimate(needs.into_iter());
        assert_eq!((count, time), (2, USUAL * 2 + ACK_WAIT * MOST_TIMEOUTS));
        let line = announcement(std::iter::repeat_n(Need::TIMEOUTS, 10));
        let expected =
            "10 cases, the riskiest first; one after the other they take about 1 min 5 s";
        assert_eq!(line, expected);
    }

    #[test]
    fn each_case_that_waits_for_timeouts_is_in_the_estimate() {
        let all = crate::cases::all().map(|case| case.need);
        let (count, time) = estimate(all);
        let waits = crate::cases::all().filter(|case| case.need.contains(Need::TIMEOUTS)).count();
        assert!(waits > 0, "some cases wait for timeouts");
        let waits = u32::try_from(waits).expect("few");
        let count = u32::try_from(count).expect("few");
        assert_eq!(time, USUAL * count + ACK_WAIT * MOST_TIMEOUTS * waits);
    }

    #[test]
    fn case_that_outlasts_its_plan_fails_on_the_simulated_device() {
        assert_eq!(check(Need::empty(), 0, 0), Ok(()));
        assert_eq!(check(Need::TIMEOUTS, MOST_TIMEOUTS, 0), Ok(()));
        assert_eq!(check(Need::SIMULATOR, 100, 100), Ok(()));
        let undeclared = check(Need::empty(), 1, 0).expect_err("no room");
        assert!(undeclared.contains("give the case TIMEOUTS"), "{undeclared}");
        assert!(check(Need::TIMEOUTS, MOST_TIMEOUTS + 1, 0).is_err());
        let settled = check(Need::TIMEOUTS, 1, 1).expect_err("20 ms are too short");
        assert!(settled.contains("wait for the completions"), "{settled}");
    }

    #[test]
    fn checklist_of_the_document_is_the_table() {
        let mut table = String::from("| | cases | why they may fail | only a card shows |\n");
        table.push_str("|---|---|---|---|\n");
        for (number, risk) in (1..).zip(RISKS) {
            let files: Vec<_> = risk.files.iter().map(|file| format!("`{file}`")).collect();
            let (files, Risk { why, shows, .. }) = (files.join(", "), risk);
            table.push_str(&format!("| {number} | {files} | {why} | {shows} |\n"));
        }
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/HARDWARE.md");
        let document = std::fs::read_to_string(path).expect("the document");
        assert!(document.contains(&table), "docs/HARDWARE.md must have:\n{table}");
    }
}
