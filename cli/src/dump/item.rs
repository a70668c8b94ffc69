//! A decoded structure.

use serde_json::{Value, json};
use std::fmt::Display;
use std::io::{self, Write};

/// A decoded WQE or CQE.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Item {
    /// One line that describes it.
    pub(crate) title: String,
    rows: Vec<Row>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Row {
    Segment(String),
    /// A field, at a byte unless it comes from a line of text.
    Field {
        at: Option<usize>,
        name: &'static str,
        value: String,
        meaning: String,
    },
    Note(String),
}

/// A field of an item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Field<'a> {
    pub(crate) segment: &'a str,
    pub(crate) name: &'a str,
    pub(crate) value: &'a str,
    pub(crate) meaning: &'a str,
}

impl Item {
    /// An item without fields.
    pub(crate) fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), rows: Vec::new() }
    }

    /// Begins a segment.
    pub(crate) fn segment(&mut self, name: impl Into<String>) {
        self.rows.push(Row::Segment(name.into()));
    }

    /// Adds the field at byte `at`.
    pub(crate) fn field(
        &mut self,
        at: usize,
        name: &'static str,
        value: impl Display,
        meaning: impl Into<String>,
    ) {
        self.add(Some(at), name, value, meaning);
    }

    /// Adds a value that lies at no byte.
    pub(crate) fn say(
        &mut self,
        name: &'static str,
        value: impl Display,
        meaning: impl Into<String>,
    ) {
        self.add(None, name, value, meaning);
    }

    /// Adds a text, which may be long.
    pub(crate) fn text(&mut self, name: &'static str, text: impl Display) {
        self.say(name, text, "");
    }

    fn add(
        &mut self,
        at: Option<usize>,
        name: &'static str,
        value: impl Display,
        meaning: impl Into<String>,
    ) {
        self.rows.push(Row::Field { at, name, value: value.to_string(), meaning: meaning.into() });
    }

    /// Adds a note.
    pub(crate) fn note(&mut self, text: impl Into<String>) {
        self.rows.push(Row::Note(text.into()));
    }

    /// Adds raw bytes, 16 per line, with their text.
    pub(crate) fn bytes(&mut self, at: usize, name: &'static str, bytes: &[u8]) {
        for (index, line) in bytes.chunks(16).enumerate() {
            let hex: Vec<String> = line.iter().map(|byte| format!("{byte:02x}")).collect();
            let text = line.iter().map(|byte| match byte {
                b' '..=b'~' => *byte as char,
                _ => '.',
            });
            let name = if index == 0 { name } else { "" };
            self.field(
                at + 16 * index,
                name,
                hex.join(" "),
                format!("|{}|", String::from_iter(text)),
            );
        }
    }

    /// Every field, with the segment that it is in, its value and what that means.
    pub(crate) fn fields(&self) -> impl Iterator<Item = Field<'_>> {
        let mut segment = "";
        self.rows.iter().filter_map(move |row| match row {
            Row::Segment(name) => {
                segment = name;
                None
            }
            Row::Field { name, value, meaning, .. } => {
                Some(Field { segment, name, value, meaning })
            }
            Row::Note(_) => None,
        })
    }

    /// The value that is shown of a field, for tests.
    #[cfg(test)]
    pub(crate) fn value(&self, wanted: &str) -> Option<(usize, &str, &str)> {
        self.rows.iter().find_map(|row| match row {
            Row::Field { at, name, value, meaning } if *name == wanted => {
                Some((at.unwrap_or_default(), value.as_str(), meaning.as_str()))
            }
            _ => None,
        })
    }

    /// The names of the parts, for tests.
    #[cfg(test)]
    pub(crate) fn segments(&self) -> Vec<&str> {
        let names = self.rows.iter().filter_map(|row| match row {
            Row::Segment(name) => Some(name.as_str()),
            _ => None,
        });
        names.collect()
    }

    /// All notes, for tests.
    #[cfg(test)]
    pub(crate) fn notes(&self) -> String {
        let notes = self.rows.iter().filter_map(|row| match row {
            Row::Note(text) => Some(text.as_str()),
            _ => None,
        });
        notes.collect()
    }

    /// The item for programs.
    pub(super) fn to_json(&self) -> Value {
        let mut segment = "";
        let (mut fields, mut notes) = (Vec::new(), Vec::new());
        for row in &self.rows {
            match row {
                Row::Segment(name) => segment = name,
                Row::Field { at, name, value, meaning } => fields.push(json!({
                    "segment": segment,
                    "at": at,
                    "name": name,
                    "value": value,
                    "meaning": meaning,
                })),
                Row::Note(text) => notes.push(text),
            }
        }
        json!({ "title": self.title, "fields": fields, "notes": notes })
    }

    /// Prints the item.
    pub(crate) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "{}", self.title)?;
        self.write_fields(out)
    }

    /// Prints the item without its title.
    pub(crate) fn write_fields(&self, out: &mut impl Write) -> io::Result<()> {
        for row in &self.rows {
            let line = match row {
                Row::Segment(name) => format!("  {name}"),
                Row::Field { at, name, value, meaning } => {
                    let at = at.map_or_else(String::new, |at| format!("{at:#04x}"));
                    // A text is its own meaning.
                    let rest = match meaning.is_empty() && value.len() > VALUE {
                        true => wrapped(value, 26),
                        false => format!("{value:<VALUE$} {}", wrapped(meaning, 46)),
                    };
                    format!("    {at:<4}  {name:<15} {rest}")
                }
                Row::Note(text) => format!("    note: {text}"),
            };
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// The width of a value.
const VALUE: usize = 19;

/// A text of lines that end within 100 columns and begin at column `indent`.
fn wrapped(text: &str, indent: usize) -> String {
    let (mut lines, mut line) = (Vec::new(), String::new());
    for word in text.split(' ') {
        if !line.is_empty() && indent + line.chars().count() + 1 + word.chars().count() > 100 {
            lines.push(std::mem::take(&mut line));
        } else if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push(line);
    lines.join(&format!("\n{:indent$}", ""))
}
