//! Distributions of the times of single operations.

use std::fmt::Write as _;

use serde_json::{Value, json};

/// Percentiles in the benchmark's output; the last is the maximum.
const PERCENTILES: [&str; 6] = ["p50", "p90", "p99", "p99.9", "p99.99", "worst"];

/// State of the device during the measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Device {
    Works,
    StandsStill,
}

impl Device {
    const fn name(self) -> &'static str {
        match self {
            Self::Works => "works",
            Self::StandsStill => "stands still",
        }
    }
}

/// The distribution of one operation.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Latency {
    case: String,
    who: String,
    mode: String,
    device: Device,
    samples: u64,
    percentiles: [f64; PERCENTILES.len()],
    /// Likely causes of the times above p99.9, with the number of each.
    causes: Vec<(String, u64)>,
}

/// Parses the output of the benchmark. Returns `None` if it cannot be parsed.
pub(super) fn read(text: &str, device: Device) -> Option<Vec<Latency>> {
    let mut all: Vec<Latency> = Vec::new();
    for line in text.lines() {
        match line.split('\t').collect::<Vec<_>>()[..] {
            ["latency", case, who, mode, samples, ref rest @ ..] => {
                let numbers: Result<Vec<f64>, _> = rest.iter().map(|one| one.parse()).collect();
                all.push(Latency {
                    case: case.to_owned(),
                    who: who.to_owned(),
                    mode: mode.to_owned(),
                    device,
                    samples: samples.parse().ok()?,
                    percentiles: numbers.ok()?.try_into().ok()?,
                    causes: Vec::new(),
                });
            }
            ["cause", .., count, cause] => {
                let count = count.parse().ok()?;
                all.last_mut()?.causes.push((cause.to_owned(), count));
            }
            _ => {}
        }
    }
    Some(all).filter(|all| !all.is_empty())
}

pub(super) fn json(all: &[Latency]) -> impl Iterator<Item = Value> + '_ {
    all.iter().map(|one| {
        let mut value = json!({
            "case": format!("latency_{}", one.case),
            "who": one.who,
            "mode": one.mode,
            "device": one.device.name(),
            "samples": one.samples,
        });
        for (name, time) in PERCENTILES.iter().zip(one.percentiles) {
            value[*name] = json!(time);
        }
        for (cause, count) in one.causes.iter().filter(|(_, count)| *count != 0) {
            value["tail"][cause] = json!(count);
        }
        value
    })
}

impl Latency {
    /// Shares of the causes in the tail, largest first.
    fn blamed(&self) -> String {
        let all: u64 = self.causes.iter().map(|(_, count)| count).sum();
        let mut causes: Vec<_> = self.causes.iter().filter(|(_, count)| *count != 0).collect();
        causes.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let share =
            |(cause, count): &&(String, u64)| format!("{cause} {}%", count * 100 / all.max(1));
        causes.iter().map(share).collect::<Vec<_>>().join(", ")
    }
}

pub(super) fn markdown(text: &mut String, all: &[Latency]) {
    if all.is_empty() {
        return;
    }
    text.push_str(ABOVE);
    let _ = writeln!(
        text,
        "| case | implementation | mode | device | {} | above p99.9 |\n|---|---|---|---|{}---|",
        PERCENTILES.join(" | "),
        "--:|".repeat(PERCENTILES.len())
    );
    for one in all {
        let times: Vec<_> = one.percentiles.iter().map(|time| format!("{time:.0}")).collect();
        let _ = writeln!(
            text,
            "| `{}` | {} | {} | {} | {} | {} |",
            one.case,
            one.who,
            one.mode,
            one.device.name(),
            times.join(" | "),
            one.blamed()
        );
    }
    for (case, file) in PLOTS {
        let _ = write!(text, "\n![Percentiles of {case}]({file})\n");
    }
}

const ABOVE: &str = "
## Latency

Nanoseconds of single operations, read from the processor's counter before and after each, pinned to
one core; the simulated device works on another core at the same time, or stands still. The row
`nothing` is two reads of the counter, which every time includes: what is in its tail too, the
machine does. The last column says what the kernel saw of the longest: a *page fault*, *another
thread* or an *interrupt* in the same round of 64 operations; that it was the *first of a round*,
after the device had worked, with cold caches; a *slow path*, if it is at the place of the ring where
at least a tenth of the longest are; or none of these (*other*): a cache line that the device had
taken, if there are fewer where the device stands still, or the machine below the kernel.

";

/// The case and the file of each plot.
pub(super) const PLOTS: [(&str, &str); 2] =
    [("post_inline8", "benchmarks-latency-post.svg"), ("poll1", "benchmarks-latency-poll.svg")];

/// The lines of a plot: heading, colour, ways, and mode.
const LINES: [(&str, &str, &[&str], &str); 7] = [
    ("nothing", "#dddddd", &["clock"], "single"),
    ("floor", "#b8b8b8", &["floor"], "single"),
    ("by hand", "#3d5a80", &["by-hand"], "single"),
    ("mlx5", "#0b7a75", &["mlx5"], "single"),
    ("UCX", "#8e6c8a", &["ucx"], "single"),
    ("C", "#d1495b", &["rdma-core-post_send", "rdma-core-poll_cq"], "default"),
    ("C API, ours", "#7fc8a9", &["mlx5-verbs-post_send", "mlx5-verbs-poll_cq"], "default"),
];

/// The percentiles of a case while the device works, on a logarithmic scale.
pub(super) fn svg(all: &[Latency], case: &str) -> String {
    const WIDTH: f64 = 720.0;
    const HEIGHT: f64 = 380.0;
    const LEFT: f64 = 60.0;
    const TOP: f64 = 60.0;
    const RIGHT: f64 = 20.0;
    const BOTTOM: f64 = 30.0;
    // From 10 nanoseconds to 10 milliseconds.
    const DECADES: f64 = 6.0;
    let y = |time: f64| {
        let share = (time.max(10.0).log10() - 1.0) / DECADES;
        TOP + (HEIGHT - TOP - BOTTOM) * (1.0 - share.min(1.0))
    };
    let step = (WIDTH - LEFT - RIGHT) / (PERCENTILES.len() - 1) as f64;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#ffffff\"/>\n\
         <text x=\"{LEFT}\" y=\"18\" font-weight=\"bold\">{case}: nanoseconds that so many do not exceed</text>\n"
    );
    let marks = ["10", "100", "1 µs", "10 µs", "100 µs", "1 ms", "10 ms"];
    for (i, mark) in marks.iter().enumerate() {
        let at = y(10_f64.powi(i as i32 + 1));
        let _ = writeln!(
            svg,
            "<path d=\"M{LEFT} {at:.1}H{}\" stroke=\"#dddddd\"/><text x=\"{}\" y=\"{:.1}\" \
             text-anchor=\"end\">{mark}</text>",
            WIDTH - RIGHT,
            LEFT - 6.0,
            at + 4.0
        );
    }
    for (i, name) in PERCENTILES.iter().enumerate() {
        let x = LEFT + step * i as f64;
        let _ = writeln!(
            svg,
            "<text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{name}</text>",
            HEIGHT - 10.0
        );
    }
    for (i, (heading, colour, whos, mode)) in LINES.iter().enumerate() {
        let is_it = |one: &&Latency| {
            one.device == Device::Works
                && whos.contains(&one.who.as_str())
                && one.mode == *mode
                && (one.case == case || one.who == "clock")
        };
        let Some(one) = all.iter().find(is_it) else { continue };
        let x = LEFT + 90.0 * i as f64;
        let points = one.percentiles.iter().enumerate();
        let points =
            points.map(|(k, time)| format!("{:.1},{:.1}", LEFT + step * k as f64, y(*time)));
        let _ = writeln!(
            svg,
            "<rect x=\"{x}\" y=\"30\" width=\"12\" height=\"12\" fill=\"{colour}\"/>\
             <text x=\"{}\" y=\"40\">{heading}</text>\
             <polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
            x + 17.0,
            points.collect::<Vec<_>>().join(" ")
        );
    }
    svg + "</svg>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
latency\tpoll1\tmlx5\tsingle\t1000\t20.0\t30.0\t40.0\t50.0\t60.0\t70000.0
cause\tpoll1\tmlx5\tsingle\t1\tinterrupt
cause\tpoll1\tmlx5\tsingle\t3\tslow path
cause\tpoll1\tmlx5\tsingle\t0\tother
";

    #[test]
    fn a_distribution_has_its_percentiles_and_what_the_longest_are_blamed_on() {
        let all = read(TEXT, Device::Works).expect("readable");
        assert_eq!(all[0].percentiles, [20.0, 30.0, 40.0, 50.0, 60.0, 70_000.0]);
        assert_eq!(all[0].blamed(), "slow path 75%, interrupt 25%");
        let value = json(&all).next().expect("a row");
        assert_eq!((&value["p99.9"], &value["tail"]["slow path"]), (&json!(50.0), &json!(3)));
        let plot = svg(&all, "poll1");
        assert_eq!(plot.matches("<polyline").count(), 1);
        assert_eq!(svg(&all, "post_inline8").matches("<polyline").count(), 0);
    }

    #[test]
    fn a_line_with_other_percentiles_is_not_readable() {
        assert_eq!(read("latency\tpoll1\tmlx5\tsingle\t1000\t20.0\n", Device::Works), None);
        assert_eq!(read("", Device::Works), None);
    }
}
