//! `cargo xtask pictures`: draws the output of the `mlx5` command as pictures of a terminal.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::build::{Profile, program, says, shared_library};
use crate::debian::cache::make;
use crate::failure::Failure;

/// Redraw the pictures of the README: `mlx5 perf` and `mlx5 trace` on a simulated device
///
/// They show a measurement and a trace of this run, so numbers differ from run to run; the layout
/// does not.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Directory for the pictures
    #[arg(long, value_name = "DIRECTORY", default_value = "docs")]
    out: PathBuf,
}

/// A picture: its file, the typed command, and the arguments of `mlx5`.
struct Picture {
    file: &'static str,
    typed: &'static str,
    words: &'static [&'static str],
    /// Whether the preload library supplies the device; otherwise the command simulates one itself.
    preloaded: bool,
    /// If the output is longer, how many lines to show from its start and from its end.
    shown: (usize, usize),
}

const PICTURES: [Picture; 2] = [
    Picture {
        file: "mlx5-perf.svg",
        typed: "mlx5 perf --sim --op write --sizes 8..64k",
        words: &["perf", "--sim", "--op", "write", "--sizes", "8..64k"],
        preloaded: false,
        shown: (30, 0),
    },
    Picture {
        file: "mlx5-trace.svg",
        typed: "mlx5 trace -o trace.log -- mlx5 dump --live > dump.log; cat trace.log",
        words: &["trace", "-o", OUTPUT, "--", PROGRAM, "dump", "--live"],
        preloaded: true,
        shown: (50, 0),
    },
];

/// A word that stands for the path of the built `mlx5` command.
const PROGRAM: &str = "mlx5";
/// A word that stands for a file, into which the command writes the text to show.
const OUTPUT: &str = "trace.log";

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    make(&arguments.out)?;
    let command = program("mlx5-cli", Profile::Release)?;
    let library = shared_library("mlx5-sim-preload", Profile::Release)?;
    for picture in &PICTURES {
        let text = printed(&command, &library, picture)?;
        if let Some(median) = slowest_median(&text).filter(|median| *median > QUIET) {
            let what = format!(
                "it measured a median of {median} µs, where a quiet machine has less than {QUIET}: \
                 the machine is busy; run it alone"
            );
            return Err(Failure::Output { program: picture.typed.to_owned(), what });
        }
        let svg = drawn(picture.typed, &text, picture.shown);
        let path = arguments.out.join(picture.file);
        fs::write(&path, svg).map_err(|error| Failure::File { path: path.clone(), error })?;
        println!("{}", path.display());
    }
    Ok(())
}

/// Limit for a median latency, in microseconds. A longer one would show the load of the machine,
/// not the speed of the driver.
const QUIET: f64 = 200.0;

/// The longest median latency in the table of `mlx5 perf`, in microseconds. `None` if `text` has no
/// such table.
fn slowest_median(text: &str) -> Option<f64> {
    let mut lines = text.lines().skip_while(|line| !line.starts_with("bytes "));
    let names = columns(lines.next()?);
    let place = names.iter().position(|name| *name == "50 %")?;
    let medians = lines.filter_map(|line| columns(line).get(place)?.parse::<f64>().ok());
    medians.max_by(f64::total_cmp)
}

/// The cells of a row, which are separated by two or more spaces.
fn columns(row: &str) -> Vec<&str> {
    row.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect()
}

/// Runs the command of a picture on a simulated device, and returns the text to show.
fn printed(command: &Path, library: &Path, picture: &Picture) -> Result<String, Failure> {
    let written = std::env::temp_dir().join(format!("mlx5-picture-{}", std::process::id()));
    let mut run = Command::new(command);
    for word in picture.words {
        run.arg(match *word {
            PROGRAM => command.as_os_str(),
            OUTPUT => written.as_os_str(),
            word => word.as_ref(),
        });
    }
    if picture.preloaded {
        run.env("LD_PRELOAD", library).env("MLX5_SIM", "");
    }
    let said = says(&mut run)?;
    if !picture.words.contains(&OUTPUT) {
        return Ok(said);
    }
    let text = fs::read_to_string(&written);
    let _ = fs::remove_file(&written);
    text.map_err(|error| Failure::File { path: written, error })
}

const FONT: f64 = 13.0;
/// Width of a character of the monospaced font. The picture states the length of each line, so that
/// a line has the same length in every viewer.
const ADVANCE: f64 = 7.8;
const LINE: f64 = 18.0;
const MARGIN: f64 = 16.0;
const BAR: f64 = 28.0;
/// Limit for the length of a line, in characters. Longer lines are cut, because a narrow page would
/// shrink a wider picture until its text cannot be read.
const WIDEST: usize = 120;

/// Draws a terminal with the typed command and its output `text`.
fn drawn(typed: &str, text: &str, (first, last): (usize, usize)) -> String {
    let all: Vec<&str> = text.lines().map(str::trim_end).collect();
    let mut lines = vec![format!("$ {typed}")];
    if all.len() > first + last + 1 {
        lines.extend(all[..first].iter().map(|line| (*line).to_owned()));
        lines.push("…".to_owned());
        lines.extend(all[all.len() - last..].iter().map(|line| (*line).to_owned()));
    } else {
        lines.extend(all.iter().map(|line| (*line).to_owned()));
    }
    for line in lines.iter_mut().filter(|line| line.chars().count() > WIDEST) {
        *line = line.chars().take(WIDEST - 1).chain(['…']).collect();
    }
    let columns = lines.iter().map(|line| line.chars().count()).max().unwrap_or(0);
    let width = columns as f64 * ADVANCE + 2.0 * MARGIN;
    let height = BAR + lines.len() as f64 * LINE + 2.0 * MARGIN;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.1} {height:.1}\" \
         font-family=\"ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace\" \
         font-size=\"{FONT}\">\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#1e2127\"/>\n"
    );
    for (place, colour) in ["#e06c75", "#e5c07b", "#98c379"].into_iter().enumerate() {
        let x = MARGIN + 4.0 + 18.0 * place as f64;
        let _ = writeln!(svg, "<circle cx=\"{x:.1}\" cy=\"16\" r=\"5\" fill=\"{colour}\"/>");
    }
    for (place, line) in lines.iter().enumerate().filter(|(_, line)| !line.is_empty()) {
        let y = BAR + MARGIN + LINE * (place as f64 + 0.7);
        let colour = colour(place, line);
        let length = line.chars().count() as f64 * ADVANCE;
        let _ = writeln!(
            svg,
            "<text x=\"{MARGIN}\" y=\"{y:.1}\" fill=\"{colour}\" textLength=\"{length:.1}\" \
             xml:space=\"preserve\">{}</text>",
            escaped(line)
        );
    }
    svg + "</svg>\n"
}

/// The colour of a line. The typed command, failures, lines about completion queues, and lines
/// about other objects that are created, changed or destroyed have a colour each. Requests and all
/// other lines have the default colour.
fn colour(place: usize, line: &str) -> &'static str {
    match line {
        _ if place == 0 => "#ffffff",
        line if line.contains(" failed") => "#e06c75",
        line if line.contains("  cq  0x") => "#98c379",
        line if line.contains("  made: ") || line.contains("  now: ") => "#7f848e",
        line if line.ends_with("destroyed") => "#7f848e",
        _ => "#d7dae0",
    }
}

/// Escapes a text for XML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_has_every_line_and_the_same_layout_each_time() {
        let text = "size <B>  a & b\n\n       8      12\n";
        let svg = drawn("mlx5 perf", text, (10, 0));
        assert_eq!(svg, drawn("mlx5 perf", text, (10, 0)));
        assert_eq!(svg.matches("<text ").count(), 3, "{svg}");
        assert!(svg.contains(">$ mlx5 perf</text>"), "{svg}");
        assert!(svg.contains(">size &lt;B&gt;  a &amp; b</text>"), "{svg}");
        // The longest line determines the width, and the number of lines the height.
        assert!(svg.contains("viewBox=\"0 0 156.8 132.0\""), "{svg}");
    }

    #[test]
    fn long_bar_is_cut_visibly() {
        let text: String = (0..100).map(|line| format!("line {line}\n")).collect();
        let svg = drawn("mlx5", &text, (3, 2));
        for line in ["line 0", "line 2", "…", "line 98", "line 99"] {
            assert!(svg.contains(&format!(">{line}</text>")), "{line}");
        }
        assert!(!svg.contains(">line 3</text>") && !svg.contains(">line 97</text>"));

        let svg = drawn("mlx5", &"x".repeat(300), (3, 2));
        assert!(svg.contains(&format!(">{}…</text>", "x".repeat(WIDEST - 1))), "{svg}");
        assert!(width(&svg) <= 1000.0, "{svg}");
    }

    fn width(svg: &str) -> f64 {
        let (_, rest) = svg.split_once("viewBox=\"0 0 ").expect("a size");
        rest.split(' ').next().and_then(|width| width.parse().ok()).expect("a width")
    }

    #[test]
    fn the_pictures_that_there_are_can_be_read() {
        for Picture { file, .. } in &PICTURES {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(file);
            let svg = fs::read_to_string(path).expect("a picture");
            assert!(width(&svg) <= 1000.0, "{file} is too wide");
        }
    }

    #[test]
    fn results_of_a_busy_machine_are_marked() {
        let table = "RC write on mlx5_0\nbytes    min  50 %   90 %\n    8  56.10  7590  12607\n   \
                     1k   9.61  12.5  8561\n";
        assert_eq!(slowest_median(table), Some(7590.0));
        assert_eq!(slowest_median("  1.106461  cq  0x000400  made: 64 completions\n"), None);
    }
}
