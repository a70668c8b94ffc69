//! Positions in a source file.

use std::fmt;

/// A line and a column, both counted from one; a column counts characters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Place {
    pub(super) line: usize,
    pub(super) column: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// A source file, with the byte offset of each line.
pub(super) struct Text<'a> {
    text: &'a str,
    lines: Vec<usize>,
}

impl<'a> Text<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        let ends = text.match_indices('\n').map(|(at, _)| at + 1);
        Self { text, lines: std::iter::once(0).chain(ends).collect() }
    }

    /// Byte offset of a place; the end of the text for a place after it.
    pub(super) fn byte(&self, place: Place) -> usize {
        let Some(&start) = self.lines.get(place.line - 1) else { return self.text.len() };
        let line = &self.text[start..];
        line.char_indices().nth(place.column - 1).map_or(self.text.len(), |(at, _)| start + at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_counts_lines_and_characters_from_one() {
        let text = Text::new("ab\nä<c\n");
        let byte = |line, column| text.byte(Place { line, column });
        assert_eq!(byte(1, 1), 0);
        assert_eq!(byte(2, 1), 3);
        assert_eq!(byte(2, 2), 5, "a character of two bytes is one column");
        assert_eq!(byte(9, 1), 8);
    }
}
