//! Decoded requests and completions, as text and as JSON.

use super::Item;
use serde_json::{Value, json};
use std::io::{self, Write};

/// A request or a completion.
pub(crate) struct Entry {
    /// The byte at which it begins, if it is one of a ring.
    pub(super) at: Option<usize>,
    /// The line at which it begins, if it was found in a text.
    pub(super) line: Option<usize>,
    /// Bytes.
    pub(super) length: usize,
    /// The decoded form; `None` for zeros.
    pub(super) item: Option<Item>,
}

/// Entries with a blank line between them.
pub(super) fn write(out: &mut impl Write, entries: &[Entry]) -> io::Result<()> {
    for (index, entry) in entries.iter().enumerate() {
        if index > 0 {
            writeln!(out)?;
        }
        match (entry.at, entry.line) {
            (Some(at), _) => write!(out, "{at:#06x}: ")?,
            (None, Some(line)) => write!(out, "line {line}: ")?,
            (None, None) => {}
        }
        match &entry.item {
            Some(item) => item.write(out)?,
            None => writeln!(out, "{} bytes of zeros, no request", entry.length)?,
        }
    }
    Ok(())
}

/// The same for programs.
pub(super) fn to_json(entries: &[Entry]) -> Vec<Value> {
    let document = |entry: &Entry| {
        let mut document = entry.item.as_ref().map_or_else(|| json!({}), Item::to_json);
        document["at"] = json!(entry.at);
        document["bytes"] = json!(entry.length);
        if let Some(line) = entry.line {
            document["line"] = json!(line);
        }
        document
    };
    entries.iter().map(document).collect()
}
