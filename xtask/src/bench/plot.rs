//! Bar charts of the results.

use std::fmt::Write as _;

use super::{CANNOT, Measured, OVER_OURS, Row};

/// A series of bars: heading, colour, and a predicate for its rows.
type Series = (&'static str, &'static str, fn(&Row) -> bool);

/// Prefixes of the names in the memory chart, and the series whose colour each has.
const HOLDERS: [(&str, usize); 3] = [("mlx5", 1), (OVER_OURS, 3), ("rdma-core", 4)];

const SERIES: [Series; 7] = [
    ("floor", "#b8b8b8", |row| row.who == "floor"),
    ("mlx5", "#0b7a75", |row| row.who == "mlx5" && row.mode == "single"),
    ("by hand", "#3d5a80", |row| row.who == "by-hand"),
    ("C API, ours", "#7fc8a9", |row| row.who.starts_with(OVER_OURS) && row.mode == "default"),
    ("C, default", "#d1495b", |row| row.is_peer() && row.mode == "default"),
    ("C, one thread", "#edae49", |row| row.is_peer() && row.mode == "single_threaded"),
    ("UCX", "#8e6c8a", |row| row.who == "ucx"),
];

/// The plot of instructions alone, and its cases.
pub(super) const HOT_PATHS: &str = "benchmarks-hot-paths.svg";
const HOT: [&str; 6] =
    ["post_inline8", "post_sge", "batch16_inline8", "poll1", "poll16", "empty_poll"];

const WIDTH: f64 = 1440.0;
const LEFT: f64 = 50.0;
const PANEL: f64 = 230.0;
const TOP: f64 = 50.0;
const GAP: f64 = 70.0;

/// Instructions of the hot paths, which do not depend on the machine, for the best way of each
/// series.
pub(super) fn hot_paths(measured: &Measured) -> String {
    let mut svg = beginning(TOP + PANEL + GAP);
    let cases = HOT.to_vec();
    panel(&mut svg, measured, &cases, TOP, "instructions of an operation", |row| row.instructions);
    svg + "</svg>\n"
}

/// Instructions and nanoseconds for the best way of each series, and the memory of queues.
pub(super) fn svg(measured: &Measured) -> String {
    let mut svg = beginning(TOP + 3.0 * (PANEL + GAP));
    let cases = plotted(measured);
    panel(&mut svg, measured, &cases, TOP, "instructions of an operation", |row| row.instructions);
    let second = TOP + PANEL + GAP;
    panel(&mut svg, measured, &cases, second, "nanoseconds of an operation", |row| {
        row.nanoseconds.unwrap_or(f64::NAN)
    });
    memory(&mut svg, measured, second + PANEL + GAP);
    svg + "</svg>\n"
}

/// The beginning of a picture, with the legend.
fn beginning(height: f64) -> String {
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n"
    );
    for (i, (heading, colour, _)) in SERIES.iter().enumerate() {
        let x = LEFT + 120.0 * i as f64;
        let _ = writeln!(
            svg,
            "<rect x=\"{x}\" y=\"8\" width=\"12\" height=\"12\" fill=\"{colour}\"/>\
             <text x=\"{}\" y=\"18\">{heading}</text>",
            x + 17.0
        );
    }
    svg
}

/// Cases that share a scale: those of a few hundred instructions that the peer also has or cannot
/// run.
fn plotted(measured: &Measured) -> Vec<&str> {
    const MOST: f64 = 1000.0;
    let fits = |case: &&str| {
        let mut rows = measured.rows.iter().filter(|row| row.case == *case);
        let peers = rows.clone().any(Row::is_peer) || CANNOT.iter().any(|no| no.0.contains(case));
        peers && rows.all(|row| row.instructions < MOST)
    };
    measured.cases().into_iter().filter(fits).collect()
}

/// A panel's heading and its marks up to `most`; returns the length of a bar of one.
fn axis(svg: &mut String, top: f64, right: f64, heading: &str, most: f64) -> f64 {
    let step = nice_step(most);
    let bottom = top + PANEL;
    let scale = PANEL / (most / step).ceil() / step;
    let _ = writeln!(
        svg,
        "<text x=\"{LEFT}\" y=\"{}\" font-weight=\"bold\">{heading}</text>",
        top - 10.0
    );
    let mut mark = 0.0;
    while mark < most + step {
        let y = bottom - mark * scale;
        let _ = writeln!(
            svg,
            "<path d=\"M{LEFT} {y:.1}H{right}\" stroke=\"#dddddd\"/>\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{mark}</text>",
            LEFT - 6.0,
            y + 4.0
        );
        mark += step;
    }
    scale
}

/// A bar with its number above.
fn bar(
    svg: &mut String,
    [x, bottom]: [f64; 2],
    [width, height]: [f64; 2],
    colour: &str,
    value: f64,
) {
    let _ = writeln!(
        svg,
        "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{height:.1}\" fill=\"{colour}\"/>\
         <text x=\"{:.1}\" y=\"{:.1}\" font-size=\"8\" text-anchor=\"middle\">{value:.0}</text>",
        bottom - height,
        width - 1.0,
        x + width / 2.0,
        bottom - height - 2.0
    );
}

/// The label under a group of bars.
fn label(svg: &mut String, middle: f64, bottom: f64, text: &str, line: usize) {
    let _ = writeln!(
        svg,
        "<text x=\"{middle:.1}\" y=\"{:.1}\" text-anchor=\"middle\" font-size=\"10\">{text}</text>",
        bottom + 15.0 + 12.0 * line as f64
    );
}

fn panel(
    svg: &mut String,
    measured: &Measured,
    cases: &[&str],
    top: f64,
    heading: &str,
    value: fn(&Row) -> f64,
) {
    let rows = measured.rows.iter().filter(|row| cases.contains(&row.case.as_str()));
    let most = rows.map(value).fold(1.0, f64::max);
    let bottom = top + PANEL;
    let scale = axis(svg, top, WIDTH - 10.0, heading, most);
    let group = (WIDTH - LEFT - 10.0) / cases.len().max(1) as f64;
    let width = group * 0.8 / SERIES.len() as f64;
    for (i, case) in cases.iter().enumerate() {
        let left = LEFT + group * (i as f64 + 0.1);
        for (k, (_, colour, is_theirs)) in SERIES.iter().enumerate() {
            let theirs = measured.rows.iter().filter(|row| row.case == *case && is_theirs(row));
            let Some(best) = theirs.map(value).min_by(f64::total_cmp) else { continue };
            bar(svg, [left + width * k as f64, bottom], [width, best * scale], colour, best);
        }
        // Names are long, so they alternate between two lines.
        label(svg, left + group * 0.4, bottom, case, i % 2);
    }
}

/// Memory of a queue, in KiB.
fn memory(svg: &mut String, measured: &Measured, top: f64) {
    const KIB: f64 = 1024.0;
    let (group, width) = (150.0, 40.0);
    let mut cases: Vec<&str> = measured.holdings.iter().map(|one| one.case.as_str()).collect();
    cases.sort_unstable();
    cases.dedup();
    let most = measured.holdings.iter().map(|one| one.bytes() / KIB).fold(1.0, f64::max);
    let bottom = top + PANEL;
    let right = LEFT + group * cases.len() as f64;
    let scale = axis(svg, top, right, "KiB of a queue", most);
    for (i, case) in cases.iter().enumerate() {
        let left = LEFT + group * (i as f64 + 0.1);
        for (k, (who, series)) in HOLDERS.iter().enumerate() {
            let theirs =
                measured.holdings.iter().find(|one| one.case == *case && holder(&one.who) == *who);
            let Some(theirs) = theirs else { continue };
            let value = theirs.bytes() / KIB;
            let x = left + width * k as f64;
            bar(svg, [x, bottom], [width, value * scale], SERIES[*series].1, value);
        }
        label(svg, left + width, bottom, case, 0);
    }
}

/// The prefix in [`HOLDERS`] that a name begins with.
fn holder(who: &str) -> &'static str {
    HOLDERS.iter().map(|holder| holder.0).filter(|name| who.starts_with(name)).max().unwrap_or("")
}

/// A distance between marks that gives three to eight marks.
fn nice_step(most: f64) -> f64 {
    let mut step = 1.0;
    loop {
        for factor in [1.0, 2.0, 5.0] {
            if most / (step * factor) <= 8.0 {
                return step * factor;
            }
        }
        step *= 10.0;
    }
}
