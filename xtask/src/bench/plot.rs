//! Bars, drawn.

use std::fmt::Write as _;

use super::{Measured, Row};

/// Whose bars there are: heading, colour, whether a row is one of theirs.
type Series = (&'static str, &'static str, fn(&Row) -> bool);

const SERIES: [Series; 4] = [
    ("floor", "#b8b8b8", |row| row.who == "floor"),
    ("mlx5", "#0b7a75", |row| row.who == "mlx5" && row.mode == "single"),
    ("C, default", "#d1495b", |row| row.is_peer() && row.mode == "default"),
    ("C, one thread", "#edae49", |row| row.is_peer() && row.mode == "single_threaded"),
];

const WIDTH: f64 = 960.0;
const LEFT: f64 = 50.0;
const PANEL: f64 = 230.0;
const TOP: f64 = 50.0;
const GAP: f64 = 70.0;

/// Two panels: instructions, and nanoseconds, of the better of each one's ways.
pub(super) fn svg(measured: &Measured) -> String {
    let height = TOP + 2.0 * (PANEL + GAP);
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
    panel(&mut svg, measured, TOP, "instructions of an operation", |row| row.instructions);
    let second = TOP + PANEL + GAP;
    panel(&mut svg, measured, second, "nanoseconds of an operation", |row| {
        row.nanoseconds.unwrap_or(f64::NAN)
    });
    svg + "</svg>\n"
}

/// The cases that go on one scale: those of a few hundred instructions, that the peer has, too.
fn plotted(measured: &Measured) -> Vec<&str> {
    const MOST: f64 = 1000.0;
    let fits = |case: &&str| {
        let mut rows = measured.rows.iter().filter(|row| row.case == *case);
        rows.clone().any(Row::is_peer) && rows.all(|row| row.instructions < MOST)
    };
    measured.cases().into_iter().filter(fits).collect()
}

fn panel(svg: &mut String, measured: &Measured, top: f64, heading: &str, value: fn(&Row) -> f64) {
    let cases = plotted(measured);
    let rows = measured.rows.iter().filter(|row| cases.contains(&row.case.as_str()));
    let most = rows.map(value).fold(1.0, f64::max);
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
            "<path d=\"M{LEFT} {y:.1}H{}\" stroke=\"#dddddd\"/>\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{mark}</text>",
            WIDTH - 10.0,
            LEFT - 6.0,
            y + 4.0
        );
        mark += step;
    }
    let group = (WIDTH - LEFT - 10.0) / cases.len().max(1) as f64;
    let width = group * 0.8 / SERIES.len() as f64;
    for (i, case) in cases.iter().enumerate() {
        let left = LEFT + group * (i as f64 + 0.1);
        for (k, (_, colour, is_theirs)) in SERIES.iter().enumerate() {
            let theirs = measured.rows.iter().filter(|row| row.case == *case && is_theirs(row));
            let Some(best) = theirs.map(value).min_by(f64::total_cmp) else { continue };
            let x = left + width * k as f64;
            let _ = writeln!(
                svg,
                "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{colour}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" font-size=\"8\" text-anchor=\"middle\">{best:.0}</text>",
                bottom - best * scale,
                width - 1.0,
                best * scale,
                x + width / 2.0,
                bottom - best * scale - 2.0
            );
        }
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\" font-size=\"10\">{case}</text>",
            left + group * 0.4,
            bottom + 15.0
        );
    }
}

/// A distance of marks that makes three to eight of them.
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
