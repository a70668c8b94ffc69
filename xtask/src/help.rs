//! Breaks the texts of `--help` into lines that fit a page, which clap does not do.

use clap::Command;

/// Columns of a page.
pub(crate) const WIDTH: usize = 100;
/// Columns that are left beside the name of a task or an option.
const BESIDE: usize = 64;

/// Breaks the texts of a command and its subcommands into lines.
pub(crate) fn broken(mut command: Command) -> Command {
    if let Some(about) = command.get_about() {
        let about = lines(&about.to_string(), BESIDE);
        command = command.about(about);
    }
    if let Some(long) = command.get_long_about() {
        let long = lines(&long.to_string(), WIDTH);
        command = command.long_about(long);
    }
    let command = command.mut_args(|mut argument| {
        if let Some(help) = argument.get_help() {
            let help = lines(&help.to_string(), BESIDE);
            argument = argument.help(help);
        }
        if let Some(long) = argument.get_long_help() {
            let long = lines(&long.to_string(), BESIDE);
            argument = argument.long_help(long);
        }
        argument
    });
    command.mut_subcommands(broken)
}

/// Breaks the text into lines of at most `width` columns; existing line breaks stay.
fn lines(text: &str, width: usize) -> String {
    let mut broken = String::new();
    let mut column = 0;
    for (number, line) in text.lines().enumerate() {
        if number > 0 {
            broken.push('\n');
            column = 0;
        }
        for word in line.split(' ') {
            let length = word.chars().count();
            if column > 0 && column + 1 + length > width {
                broken.push('\n');
                column = 0;
            } else if column > 0 {
                broken.push(' ');
                column += 1;
            }
            broken.push_str(word);
            column += length;
        }
    }
    broken
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_broken_between_words_and_keeps_its_own_lines() {
        assert_eq!(lines("one two three", 7), "one two\nthree");
        assert_eq!(lines("one two three", 8), "one two\nthree");
        assert_eq!(lines("one two three", 13), "one two three");
        assert_eq!(lines("one\n\ntwo three", 9), "one\n\ntwo three");
        assert_eq!(
            lines("of more columns than there are", 4),
            "of\nmore\ncolumns\nthan\nthere\nare"
        );
        assert_eq!(lines("", 4), "");
    }
}
