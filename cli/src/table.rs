//! Tables and lists on the screen.

use std::io::{self, Write};

/// The alignment of a column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Align {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// A table: each column is as wide as its widest cell.
pub(crate) struct Table {
    align: Vec<Align>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns.
    pub(crate) fn new(columns: &[(&str, Align)]) -> Self {
        let head = columns.iter().map(|(name, _)| (*name).to_owned()).collect();
        Self { align: columns.iter().map(|(_, align)| *align).collect(), rows: vec![head] }
    }

    /// Adds a row; missing cells stay empty.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Writes the table, each line after `indent` spaces and none with spaces at its end.
    pub(crate) fn write(&self, out: &mut impl Write, indent: usize) -> io::Result<()> {
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.align.len()).map(width).collect();
        for row in &self.rows {
            let mut line = " ".repeat(indent);
            for (column, cell) in row.iter().enumerate() {
                let width = widths.get(column).copied().unwrap_or(0);
                let gap = if column == 0 { "" } else { "  " };
                match self.align.get(column) {
                    Some(Align::Right) => line += &format!("{gap}{cell:>width$}"),
                    _ => line += &format!("{gap}{cell:<width$}"),
                }
            }
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// Writes `name: value` with all values in one column.
pub(crate) fn field(
    out: &mut impl Write,
    indent: usize,
    name: &str,
    value: impl std::fmt::Display,
) -> io::Result<()> {
    const VALUES: usize = 34;
    let width = VALUES - indent.min(VALUES);
    writeln!(out, "{:indent$}{:<width$}{value}", "", format!("{name}:"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&[("name", Align::Left), ("number", Align::Right)]);
        table.row(["one".to_owned(), "1".to_owned()]);
        table.row(["thirty-one".to_owned(), "31".to_owned()]);
        table.row(["short".to_owned()]);
        let mut text = Vec::new();
        table.write(&mut text, 1).expect("memory takes all");
        let text = String::from_utf8(text).expect("text");
        let expected = " name        number\n one              1\n thirty-one      31\n short\n";
        assert_eq!(text, expected);
    }
}
