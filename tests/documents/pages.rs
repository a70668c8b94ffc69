//! `proofs.txt`, and the pages that are made of it.

use std::fmt::Write as _;

/// A page of the documentation.
pub(crate) struct Page {
    pub(crate) file: String,
    title: String,
    parts: Vec<Part>,
}

enum Part {
    Text(String),
    Section(Section),
}

pub(crate) struct Section {
    pub(crate) name: String,
    columns: Vec<String>,
    pub(crate) rows: Vec<Row>,
    /// Text after the table.
    text: Vec<String>,
}

pub(crate) struct Row {
    pub(crate) name: String,
    /// One cell for each column after the first: the proofs.
    pub(crate) cells: Vec<Vec<String>>,
}

impl Page {
    pub(crate) fn sections(&self) -> impl Iterator<Item = &Section> {
        self.parts.iter().filter_map(|part| match part {
            Part::Section(section) => Some(section),
            Part::Text(_) => None,
        })
    }

    fn last_section(&mut self) -> Option<&mut Section> {
        match self.parts.last_mut() {
            Some(Part::Section(section)) => Some(section),
            _ => None,
        }
    }
}

/// Reads the pages out of the text of `proofs.txt`.
pub(crate) fn parse(text: &str) -> Result<Vec<Page>, String> {
    let mut pages: Vec<Page> = Vec::new();
    let mut column = 0;
    for (number, line) in text.lines().enumerate() {
        let wrong = |what: &str| format!("proofs.txt, line {}: {what}: {line}", number + 1);
        let rest = line.trim();
        if rest.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(head) = line.strip_prefix("= ") {
            let (file, title) = head.split_once(" | ").ok_or_else(|| wrong("no title"))?;
            let (file, title) = (file.to_owned(), title.to_owned());
            pages.push(Page { file, title, parts: Vec::new() });
            continue;
        }
        let page = pages.last_mut().ok_or_else(|| wrong("before any page"))?;
        if let Some(name) = line.strip_prefix("== ") {
            let (name, columns) = (name.to_owned(), Vec::new());
            let section = Section { name, columns, rows: Vec::new(), text: Vec::new() };
            page.parts.push(Part::Section(section));
        } else if let Some(text) = line.strip_prefix('>') {
            let text = text.strip_prefix(' ').unwrap_or(text).to_owned();
            match page.last_section() {
                Some(section) => section.text.push(text),
                None => page.parts.push(Part::Text(text)),
            }
        } else {
            let section = page.last_section().ok_or_else(|| wrong("before any section"))?;
            if let Some(columns) = line.strip_prefix("columns ") {
                section.columns = columns.split(" | ").map(str::to_owned).collect();
            } else if let Some(name) = line.strip_prefix("- ") {
                let cells = vec![Vec::new(); section.columns.len() - 1];
                section.rows.push(Row { name: name.to_owned(), cells });
                column = 0;
            } else if let Some(name) = rest.strip_suffix(':') {
                let found = section.columns.iter().skip(1).position(|column| column == name);
                column = found.ok_or_else(|| wrong("no such column"))?;
            } else {
                let row = section.rows.last_mut().ok_or_else(|| wrong("before any row"))?;
                row.cells[column].push(rest.to_owned());
            }
        }
    }
    Ok(pages)
}

/// Whether a proof is a refusal: of a post, or of the compiler.
fn refuses(proof: &str) -> bool {
    proof.starts_with("PostError::") || proof.starts_with("compile_fail/")
}

/// Starts a cell that gives the reason why there is no test.
pub(crate) const UNTESTED: &str = "untested: ";

/// The page, in Markdown.
pub(crate) fn render(page: &Page) -> String {
    let mut out = format!("# {}\n\n", page.title);
    let mut notes: Vec<&[String]> = Vec::new();
    for part in &page.parts {
        match part {
            Part::Text(text) => _ = writeln!(out, "{text}"),
            Part::Section(section) => render_section(&mut out, section, &mut notes),
        }
    }
    out.push_str("\n## Tests\n\n");
    for (number, note) in notes.iter().enumerate() {
        let mut line = format!("[^{}]:", number + 1);
        for proof in *note {
            if line.len() + proof.len() > 110 && !line.ends_with(':') {
                _ = writeln!(out, "{line}");
                line = "   ".to_owned();
            }
            _ = write!(line, " `{proof}`");
        }
        _ = writeln!(out, "{line}");
    }
    out
}

fn render_section<'a>(out: &mut String, section: &'a Section, notes: &mut Vec<&'a [String]>) {
    _ = writeln!(out, "\n## {}\n", section.name);
    _ = writeln!(out, "| {} |", section.columns.join(" | "));
    _ = writeln!(out, "|---{}|", "|:-:".repeat(section.columns.len() - 1));
    for row in &section.rows {
        _ = write!(out, "| {} |", row.name);
        for cell in &row.cells {
            let mark = match cell.first() {
                None => {
                    out.push_str(" – |");
                    continue;
                }
                Some(first) if refuses(first) => "refused",
                Some(first) if first.starts_with(UNTESTED) => "untested",
                Some(_) => "✓",
            };
            let number = notes.iter().position(|note| note == cell).unwrap_or_else(|| {
                notes.push(cell);
                notes.len() - 1
            });
            _ = write!(out, " {mark}[^{}] |", number + 1);
        }
        out.push('\n');
    }
    if !section.text.is_empty() {
        _ = writeln!(out, "\n{}", section.text.join("\n"));
    }
}
