//! The plot of latencies: over the sizes, or, of one size alone, over the percentiles.

use crate::numbers::{Size, Times};
use crate::perf::Setting;
use crate::perf::measure::{Measurement, Plan};
use crate::perf::report::{operation, place};
use crate::perf::svg::{Chart, Series};

/// The lines over the sizes: quantile, name, colour.
const LINES: [(f64, &str, &str); 4] = [
    (0.999, "99.9 %", "#c2410c"),
    (0.99, "99 %", "#d97706"),
    (0.5, "median", "#1d4ed8"),
    (0.0, "minimum", "#0f766e"),
];

/// Draws the latencies.
pub(crate) fn latency(
    setting: &Setting,
    plan: &Plan,
    results: &[Measurement],
    interrupted: Option<&str>,
) -> String {
    let measured: Vec<(usize, &Times)> =
        results.iter().filter_map(|result| Some((result.size, result.latency.as_ref()?))).collect();
    let title = format!("Latency of {}", operation(plan));
    let amount = plan.latencies.map_or(String::new(), |amount| amount.to_string());
    let messages = match measured.as_slice() {
        [(size, _)] => format!("{amount}, of {} bytes", Size(*size)),
        _ => format!("{amount}, of each size"),
    };
    let mut notes = vec![place(setting), format!("{}; {messages}, one by one", plan.method())];
    notes.extend(interrupted.map(str::to_owned));
    let microseconds = |nanoseconds: u64| nanoseconds.max(1) as f64 / 1000.0;
    match measured.as_slice() {
        [(_, times)] => Chart {
            title,
            notes,
            x: "percentile".to_owned(),
            labels: RUNGS.iter().map(|(_, label)| (*label).to_owned()).collect(),
            y: "latency in µs".to_owned(),
            series: vec![Series {
                name: "latency".to_owned(),
                color: LINES[2].2,
                values: RUNGS.iter().map(|(at, _)| microseconds(times.quantile(*at))).collect(),
            }],
        },
        measured => Chart {
            title,
            notes,
            x: "bytes of a message".to_owned(),
            labels: measured.iter().map(|(size, _)| Size(*size).to_string()).collect(),
            y: "latency in µs".to_owned(),
            series: LINES
                .iter()
                .map(|(at, name, color)| Series {
                    name: (*name).to_owned(),
                    color,
                    values: measured
                        .iter()
                        .map(|(_, times)| microseconds(times.quantile(*at)))
                        .collect(),
                })
                .collect(),
        },
    }
    .draw()
}

/// The percentiles of one size: each leaves out fewer than the one before.
const RUNGS: [(f64, &str); 9] = [
    (0.0, "min"),
    (0.1, "10"),
    (0.25, "25"),
    (0.5, "50"),
    (0.75, "75"),
    (0.9, "90"),
    (0.99, "99"),
    (0.999, "99.9"),
    (1.0, "max"),
];
