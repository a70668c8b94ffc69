//! `mlx5 man`: the manual pages.

use crate::failure::Failure;
use clap::{Command, ValueHint};
use clap_mangen::Man;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// `--help`.
pub(crate) const LONG_ABOUT: &str = "\
Writes the man pages, mlx5.1 and one of each command, into a folder.";

const EXAMPLES: &str = "\
Examples:
  mlx5 man ~/.cargo/share/man/man1
  man mlx5-perf

man(1) looks beside each folder of PATH: for ~/.cargo/bin, where `cargo install` puts the
command, into ~/.cargo/share/man. `manpath` shows where else.";

/// Options of `mlx5 man`.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The folder; made if it is not there
    #[arg(value_hint = ValueHint::DirPath)]
    folder: PathBuf,
}

pub(crate) fn run(args: &Args, command: Command, out: &mut impl Write) -> Result<(), Failure> {
    let folder = &args.folder;
    fs::create_dir_all(folder).map_err(|error| failed(folder, &error))?;
    // `mlx5 help` has the same text as the pages.
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let mut write = |name: &str, command: Command| -> Result<(), Failure> {
        let path = folder.join(format!("{name}.1"));
        let text = page(name, command)?;
        fs::write(&path, text).map_err(|error| failed(&path, &error))?;
        Ok(writeln!(out, "{}", path.display())?)
    };
    let commands: Vec<Command> = command.get_subcommands().cloned().collect();
    write("mlx5", command)?;
    for command in commands {
        write(&format!("mlx5-{}", command.get_name()), command)?;
    }
    Ok(())
}

fn failed(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(format!("cannot write {}: {error}", path.display()))
}

/// A page. The text after the options in `--help` has sections of its own, and its lines stay as
/// they are.
fn page(name: &str, mut command: Command) -> Result<Vec<u8>, Failure> {
    let mut text = Vec::new();
    let usage = command.render_usage().to_string();
    let behind = command.get_after_long_help().or(command.get_after_help());
    let behind = behind.map(ToString::to_string).unwrap_or_default();
    let has_commands = command.has_subcommands();
    let man = Man::new(command).title(name).source(concat!("mlx5 ", env!("CARGO_PKG_VERSION")));
    let man = man.manual("ConnectX commands");
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    writeln!(text, ".SH SYNOPSIS")?;
    as_it_stands(&mut text, usage.lines().map(|line| line.trim_start_matches("Usage:").trim()))?;
    man.render_description_section(&mut text)?;
    man.render_options_section(&mut text)?;
    if has_commands {
        man.render_subcommands_section(&mut text)?;
    }
    let mut section = "";
    for block in behind.split("\n\n") {
        let title = title(block);
        if title != section {
            section = title;
            writeln!(text, ".SH \"{title}\"")?;
        } else {
            writeln!(text, ".PP")?;
        }
        let said = block.lines().take_while(|line| !line.starts_with("  "));
        let said = said.map(|line| line.trim_start_matches("Exit status: "));
        for line in said.filter(|line| *line != "Examples:") {
            writeln!(text, "{}", escaped(line))?;
        }
        as_it_stands(&mut text, block.lines().skip_while(|line| !line.starts_with("  ")))?;
    }
    Ok(text)
}

/// The section that a block of text belongs into.
fn title(block: &str) -> &'static str {
    if block.starts_with("Exit status: ") {
        "EXIT STATUS"
    } else if block.lines().any(|line| line.starts_with("  ")) {
        "EXAMPLES"
    } else {
        "NOTES"
    }
}

/// Lines that roff must not fill.
fn as_it_stands<'a>(
    text: &mut Vec<u8>,
    lines: impl Iterator<Item = &'a str>,
) -> Result<(), Failure> {
    let mut lines = lines.peekable();
    if lines.peek().is_none() {
        return Ok(());
    }
    writeln!(text, ".nf")?;
    for line in lines {
        writeln!(text, "{}", escaped(line))?;
    }
    Ok(writeln!(text, ".fi")?)
}

/// A line of text for roff: no request, and hyphens that can be copied.
fn escaped(line: &str) -> String {
    let line = line.replace('\\', "\\e").replace('-', "\\-");
    match line.starts_with(['.', '\'']) {
        true => format!("\\&{line}"),
        false => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_of_a_text_is_a_request() {
        assert_eq!(escaped(".nf of a \\ - text"), "\\&.nf of a \\e \\- text");
        assert_eq!(escaped("'quoted'"), "\\&'quoted'");
    }
}
