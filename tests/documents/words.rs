//! Comments, documents and texts use plain words.
//!
//! CONTRIBUTING names the words that this test counts. A package may have five of them in 10,000
//! words, or three if it is small: they are right now and then. `EXCEPTIONS` has sentences that
//! need one.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Words that name no subject or no act.
const WORDS: [&str; 14] = [
    "told",
    "tells",
    "whoever",
    "so many",
    "nobody",
    "somebody",
    "come to",
    "gone on",
    "goes home",
    "lent",
    "lend",
    "lends",
    "anew",
    "who",
];

/// Words that open a question. A sentence that opens with one and asks nothing hides its subject.
const OPENINGS: [&str; 3] = ["What", "Where", "How"];

/// Parts of sentences in which such a word is the right one, each with its file.
const EXCEPTIONS: &[(&str, &str)] = &[];

/// The widest line of a comment, in columns.
const WIDEST: usize = 100;

/// Consecutive lines of a comment or document, joined by spaces.
#[derive(Debug)]
struct Paragraph {
    line: usize,
    text: String,
}

/// Joins lines to paragraphs. `None` ends one.
fn join<'a>(lines: impl Iterator<Item = (usize, Option<&'a str>)>) -> Vec<Paragraph> {
    let mut paragraphs: Vec<Paragraph> = Vec::new();
    let mut open = false;
    for (line, text) in lines {
        let text = text.map(str::trim).filter(|text| !text.is_empty());
        match (text, paragraphs.last_mut().filter(|_| open)) {
            (Some(text), Some(paragraph)) if !is_item(text) => {
                paragraph.text.push(' ');
                paragraph.text.push_str(text);
            }
            (Some(text), _) => paragraphs.push(Paragraph { line, text: text.to_owned() }),
            (None, _) => {}
        }
        open = text.is_some();
    }
    paragraphs
}

/// Whether a line begins an item of a list or a row of a table.
fn is_item(line: &str) -> bool {
    line.starts_with(['-', '*', '|'])
        || line.split_once(". ").is_some_and(|(number, _)| number.parse::<u32>().is_ok())
}

/// The comments of a Rust file, without examples.
fn comments(source: &str) -> Vec<Paragraph> {
    let mut example = false;
    join((1..).zip(source.lines()).map(move |(number, line)| {
        let Some(text) = comment(line) else {
            example = false;
            return (number, None);
        };
        if text.trim_start().starts_with("```") {
            example = !example;
            return (number, None);
        }
        (number, (!example).then_some(text))
    }))
}

/// The text of a line that is a comment alone, or that ends with one.
fn comment(line: &str) -> Option<&str> {
    let line = line.trim_start();
    for sign in ["///", "//!", "//"] {
        if let Some(text) = line.strip_prefix(sign) {
            return Some(text);
        }
    }
    let (_, text) = line.split_once(" // ")?;
    (!text.contains('"')).then_some(text)
}

/// The paragraphs of a document, without headings and code.
fn document(text: &str) -> Vec<Paragraph> {
    let mut code = false;
    join((1..).zip(text.lines()).map(move |(number, line)| {
        if line.trim_start().starts_with("```") {
            code = !code;
            return (number, None);
        }
        (number, (!code && !line.starts_with('#')).then_some(line))
    }))
}

/// The sentences that programs print: literals of several words.
fn literals(source: &str) -> Vec<Paragraph> {
    let lines = (1..).zip(source.lines()).filter(|(_, line)| comment(line).is_none());
    let texts = lines.flat_map(|(number, line)| {
        line.split('"').skip(1).step_by(2).map(move |text| (number, text.to_owned()))
    });
    let sentences = texts.filter(|(_, text)| text.split_whitespace().count() > 2);
    sentences.map(|(line, text)| Paragraph { line, text }).collect()
}

/// The words of a paragraph, in lower case, without code and signs.
fn words(text: &str) -> Vec<String> {
    let plain: String = text.split('`').step_by(2).collect::<Vec<_>>().join(" code ");
    // The name of a function or a place in a format is one word.
    let is_part = |c: char| c.is_alphabetic() || matches!(c, '\'' | '_' | '{' | '}');
    let words = plain.split(|c: char| !is_part(c)).filter(|word| !word.is_empty());
    words.map(str::to_lowercase).collect()
}

/// The words of `WORDS` and the openings in a paragraph.
fn found(text: &str) -> Vec<&'static str> {
    let joined = format!(" {} ", words(text).join(" "));
    let of_words = WORDS.iter().flat_map(|word| {
        joined.match_indices(&format!(" {word} ")).map(|_| *word).collect::<Vec<_>>()
    });
    of_words.chain(openings(text)).collect()
}

/// The openings of sentences that are no questions.
fn openings(text: &str) -> impl Iterator<Item = &'static str> {
    let text = text.trim_start_matches(|c: char| !c.is_alphabetic() && c != '`');
    let ends = text.match_indices(['.', '!', '?', ':']).filter(|(at, sign)| {
        text[at + sign.len()..].starts_with(' ') || at + sign.len() == text.len()
    });
    let mut from = 0;
    let mut sentences: Vec<&str> = Vec::new();
    for (at, sign) in ends {
        sentences.push(&text[from..at + sign.len()]);
        from = at + sign.len();
    }
    sentences.push(&text[from..]);
    let opens = |sentence: &str| {
        let first = sentence.split_whitespace().next().unwrap_or("");
        let first = first.trim_end_matches(|c: char| !c.is_alphabetic());
        OPENINGS.into_iter().find(|word| *word == first && !sentence.ends_with('?'))
    };
    sentences.into_iter().filter_map(opens).collect::<Vec<_>>().into_iter()
}

/// A file of the tree, by its path from the root.
struct File {
    path: String,
    text: String,
}

impl File {
    /// The folder that stands for the package.
    fn package(&self) -> &str {
        let (first, rest) = self.path.split_once('/').unwrap_or(("the root", ""));
        if first == "docs" && rest.starts_with("guide/") { "docs/guide" } else { first }
    }

    fn paragraphs(&self) -> Vec<Paragraph> {
        if self.path.ends_with(".md") {
            return document(&self.text);
        }
        let mut all = comments(&self.text);
        if !self.path.contains("tests") && !self.path.contains("testing") {
            all.extend(literals(self.text.split("#[cfg(test)]").next().unwrap_or("")));
        }
        all
    }
}

fn files() -> Vec<File> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tree");
    let mut folders = vec![root.to_owned()];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or(".");
            let is_text = name.ends_with(".rs") || name.ends_with(".md");
            if path.is_dir() && !name.starts_with('.') && name != "target" {
                folders.push(path);
            } else if is_text {
                let text = fs::read_to_string(&path).unwrap();
                files.push(File { path: relative(root, &path), text });
            }
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files
}

fn relative(root: &Path, path: &Path) -> String {
    path.strip_prefix(root).unwrap().to_str().unwrap().to_owned()
}

#[test]
fn no_package_has_more_of_the_words_that_hide_a_subject_than_it_may() {
    let mut packages: BTreeMap<String, (usize, Vec<String>)> = BTreeMap::new();
    for file in files() {
        let (count, hits) = packages.entry(file.package().to_owned()).or_default();
        for Paragraph { line, text } in file.paragraphs() {
            *count += words(&text).len();
            let excepted = |part: &&str| {
                EXCEPTIONS.iter().any(|(path, sentence)| {
                    *path == file.path && text.contains(sentence) && found(sentence).contains(part)
                })
            };
            let all = found(&text).into_iter().filter(|hit| !excepted(hit));
            hits.extend(all.map(|hit| format!("  {}:{line}: \"{hit}\" in: {text}", file.path)));
        }
    }
    let mut faults = Vec::new();
    assert!(packages.len() > 15, "the tree has more packages than {:?}", packages.keys());
    for (package, (words, hits)) in packages {
        let most = (words * 5 / 10_000).max(3);
        println!("{package}: {} in {words} words, at most {most}", hits.len());
        if hits.len() > most {
            faults.push(format!(
                "{package}: {} in {words} words, at most {most}; rewrite these sentences:\n{}",
                hits.len(),
                hits.join("\n")
            ));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn each_exception_is_needed() {
    let files = files();
    for (path, sentence) in EXCEPTIONS {
        assert!(!found(sentence).is_empty(), "nothing to except in {sentence:?}");
        let file = files.iter().find(|file| file.path == *path);
        let is_there =
            |file: &File| file.paragraphs().iter().any(|one| one.text.contains(sentence));
        assert!(file.is_some_and(is_there), "{path} has no {sentence:?}");
    }
}

#[test]
fn no_line_of_a_comment_is_wider_than_100_columns() {
    let mut wide = Vec::new();
    for file in files().iter().filter(|file| file.path.ends_with(".rs")) {
        let mut example = false;
        for (number, line) in (1..).zip(file.text.lines()) {
            let text = comment(line).filter(|_| line.trim_start().starts_with("//"));
            if text.is_some_and(|text| text.trim_start().starts_with("```")) {
                example = !example;
            }
            let is_comment = text.is_some() && !example;
            // A link or a table cannot be cut.
            let fits =
                line.chars().count() <= WIDEST || line.contains("://") || line.contains("| ");
            if is_comment && !fits {
                wide.push(format!("  {}:{number}", file.path));
            }
        }
    }
    assert!(wide.is_empty(), "{} lines are too wide:\n{}", wide.len(), wide.join("\n"));
}

#[test]
fn words_and_openings_are_found_in_comments_documents_and_texts() {
    let of = |text| found(text);
    assert_eq!(of("A program that is told nothing, so many times."), ["told", "so many"]);
    assert_eq!(of("Where it lies. What for? How: like this"), ["Where", "How"]);
    assert_eq!(of("- What a queue holds."), ["What"]);
    assert_eq!(of("The `who` of code, and whole words: whom, untold."), Vec::<&str>::new());
    let source =
        "/// Nobody\n/// waits.\n///\n/// ```\n/// told();\n/// ```\nfn f() {} // somebody\n";
    let texts: Vec<_> = comments(source).into_iter().map(|one| (one.line, one.text)).collect();
    assert_eq!(texts, [(1, "Nobody waits.".to_owned()), (7, "somebody".to_owned())]);
    let page = "# What it is\n\nA page.\n- one\n- two\n\n```sh\ntold\n```\n";
    let texts: Vec<_> = document(page).into_iter().map(|one| one.text).collect();
    assert_eq!(texts, ["A page.", "- one", "- two"]);
    let texts = literals("let text = \"nobody is here\"; // \"told\"\nlet name = \"told\";\n");
    assert_eq!(texts.into_iter().map(|one| one.text).collect::<Vec<_>>(), ["nobody is here"]);
}
