//! Each `unsafe` block, function, trait and implementation of the driver says why it is sound: a
//! `SAFETY:` comment, or a `# Safety` section that says what a caller must ensure.
//!
//! Clippy checks public functions, and blocks outside macros. This test reads the source, so it
//! also sees private functions and the bodies of macros.

use std::fs;
use std::path::{Path, PathBuf};

/// The driver's packages, by folder.
const DRIVER: [&str; 6] = [".", "uapi", "prm", "doorbell", "wqe", "cq"];

/// A part of a source file: names and signs as they are, literals as `""`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Token<'a> {
    Code(&'a str),
    Comment(&'a str),
}

/// Splits a source file into tokens, each with its line. White space is left out.
fn tokens(text: &str) -> Vec<(usize, Token<'_>)> {
    let (mut tokens, mut at, mut line) = (Vec::new(), 0, 1);
    while let Some(first) = text[at..].chars().next() {
        let rest = &text[at..];
        let (length, token) = if rest.starts_with("//") {
            let length = rest.find('\n').unwrap_or(rest.len());
            (length, Some(Token::Comment(&rest[..length])))
        } else if rest.starts_with("/*") {
            let length = rest.find("*/").map_or(rest.len(), |end| end + 2);
            (length, Some(Token::Comment(&rest[..length])))
        } else if let Some(length) = literal(rest) {
            (length, Some(Token::Code("\"\"")))
        } else if first.is_alphanumeric() || first == '_' {
            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
            let length = end.unwrap_or(rest.len());
            (length, Some(Token::Code(&rest[..length])))
        } else {
            let length = first.len_utf8();
            (length, (!first.is_whitespace()).then_some(Token::Code(&rest[..length])))
        };
        if let Some(token) = token {
            tokens.push((line, token));
        }
        line += rest[..length].matches('\n').count();
        at += length;
    }
    tokens
}

/// The length of the string or character literal that `text` starts with. `None` for a lifetime.
fn literal(text: &str) -> Option<usize> {
    let prefix = ["br", "cr", "r", "b", "c", ""].into_iter().find(|prefix| {
        let rest = text.strip_prefix(prefix).map(|rest| rest.trim_start_matches('#'));
        rest.is_some_and(|rest| rest.starts_with('"'))
    });
    if let Some(prefix) = prefix {
        let raw = prefix.ends_with('r');
        let hashes = text[prefix.len()..].find('"')?;
        if !raw && hashes > 0 {
            return None;
        }
        let start = prefix.len() + hashes + 1;
        let end = format!("\"{}", "#".repeat(hashes));
        let closed = |at: &usize| {
            let before = &text[start..start + at];
            raw || (before.len() - before.trim_end_matches('\\').len()).is_multiple_of(2)
        };
        let at = text[start..].match_indices(&end).map(|(at, _)| at).find(closed);
        return Some(at.map_or(text.len(), |at| start + at + end.len()));
    }
    let body = text.strip_prefix("b'").or_else(|| text.strip_prefix('\''))?;
    let open = text.len() - body.len();
    let first = body.chars().next()?;
    if first == '\\' {
        let escaped = 1 + body[1..].chars().next()?.len_utf8();
        return Some(open + escaped + body[escaped..].find('\'')? + 1);
    }
    let close = first.len_utf8();
    body[close..].starts_with('\'').then_some(open + close + 1)
}

/// The `unsafe` items of a file: how many there are, and those without a note, as `line: what`.
fn check(text: &str) -> (usize, Vec<String>) {
    let tokens = tokens(text);
    let (mut count, mut missing) = (0, Vec::new());
    for (at, (line, token)) in tokens.iter().enumerate() {
        if *token != Token::Code("unsafe") {
            continue;
        }
        let Some(what) = item(&tokens[at + 1..]) else { continue };
        count += 1;
        // A method of a trait implementation has the trait's contract.
        let inherits = what.starts_with("fn ") && implements_a_trait(&tokens[..at]);
        if !inherits && !is_explained(&tokens[..at]) {
            missing.push(format!("{line}: unsafe {what}"));
        }
    }
    (count, missing)
}

/// The item that `unsafe` begins, from the tokens after it. `None` for a type and for an attribute.
fn item(behind: &[(usize, Token<'_>)]) -> Option<String> {
    let mut code = behind.iter().filter_map(|(_, token)| match token {
        Token::Code(code) => Some(*code),
        Token::Comment(_) => None,
    });
    let mut word = code.next()?;
    while matches!(word, "extern" | "\"\"") {
        word = code.next()?;
    }
    let name = code.next()?;
    match word {
        "{" => Some("block".to_owned()),
        "fn" if name == "(" => None,
        "fn" | "trait" => Some(format!("{word} {name}")),
        "impl" => Some("impl".to_owned()),
        _ => None,
    }
}

/// Whether the statement or item whose first tokens are the last of `before` has a note.
fn is_explained(before: &[(usize, Token<'_>)]) -> bool {
    let mut closed = 0_usize;
    // The code after the current token.
    let mut next = "unsafe";
    for (_, token) in before.iter().rev() {
        match *token {
            Token::Comment(text) => {
                if closed == 0 && (text.contains("SAFETY:") || text.contains("# Safety")) {
                    return true;
                }
                continue;
            }
            Token::Code("}") if closed == 0 && starts_a_statement(next) => return false,
            Token::Code("}" | ")" | "]") => closed += 1,
            Token::Code("(" | "[") => closed = closed.saturating_sub(1),
            Token::Code("{") if closed == 0 => return false,
            Token::Code("{") => closed -= 1,
            Token::Code(";") if closed == 0 => return false,
            Token::Code(_) => {}
        }
        if let Token::Code(code) = *token {
            next = code;
        }
    }
    false
}

/// Whether code after a closing brace begins a statement, a match arm or an item.
fn starts_a_statement(code: &str) -> bool {
    let is_word = code.starts_with(|c: char| c.is_alphanumeric() || c == '_');
    code == "#" || is_word && !matches!(code, "else" | "as")
}

/// Whether the braces around the end of `before` are those of `impl … for …`.
fn implements_a_trait(before: &[(usize, Token<'_>)]) -> bool {
    let mut closed = 0_usize;
    let mut is_for = false;
    let mut inside = true;
    for (_, token) in before.iter().rev() {
        match token {
            Token::Code("}") => {
                if !inside && closed == 0 {
                    return false;
                }
                closed += 1;
            }
            Token::Code("{") if closed == 0 && inside => inside = false,
            Token::Code("{") if closed == 0 => return false,
            Token::Code("{") => closed -= 1,
            Token::Code("for") if !inside && closed == 0 => is_for = true,
            Token::Code("impl") if !inside && closed == 0 => return is_for,
            Token::Code(";") if !inside && closed == 0 => return false,
            _ => {}
        }
    }
    false
}

/// The Rust files in a folder and below.
fn sources(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap_or_else(|error| panic!("{folder:?}: {error}")) {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

#[test]
fn every_unsafe_item_of_the_driver_says_why_it_is_sound() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut missing = Vec::new();
    for package in DRIVER {
        let mut files = Vec::new();
        sources(&root.join(package).join("src"), &mut files);
        files.sort();
        let mut count = 0;
        for file in files {
            let (found, without) = check(&fs::read_to_string(&file).unwrap());
            count += found;
            let name = file.strip_prefix(root).unwrap().display().to_string();
            missing.extend(without.iter().map(|what| format!("{name}:{what}")));
        }
        println!("{package}: {count} unsafe items");
        // Only the layouts of `prm` need none.
        assert!(count > 0 || package == "prm", "{package}: nothing was read");
    }
    assert!(missing.is_empty(), "without a SAFETY note:\n  {}", missing.join("\n  "));
}

#[test]
fn an_item_without_a_note_is_named() {
    let text = "\
        fn f() {\n\
        let a = unsafe { g() };\n\
        // SAFETY: of the next one.\n\
        let b = (unsafe { g() }, unsafe { g() });\n\
        unsafe { g() }\n\
        }\n\
        unsafe fn g() {}\n\
        /// # Safety\n\
        /// None.\n\
        #[inline]\n\
        pub unsafe fn h() {}\n\
        unsafe impl Send for T {}\n\
        // SAFETY: no fields.\n\
        unsafe impl Sync for T {}\n\
        unsafe trait U {}\n";
    let (count, missing) = check(text);
    assert_eq!(count, 9);
    assert_eq!(
        missing,
        [
            "2: unsafe block",
            "5: unsafe block",
            "7: unsafe fn g",
            "12: unsafe impl",
            "15: unsafe trait U",
        ]
    );
}

#[test]
fn comments_strings_types_and_attributes_are_not_items() {
    let text = "\
        // unsafe { }\n\
        /* unsafe { } */\n\
        const A: &str = \"unsafe { \\\" unsafe { }\";\n\
        const B: &str = r#\"unsafe { \" }\"#;\n\
        const C: (char, char, u8) = ('\"', '\\'', b'\\\\');\n\
        type F<'a> = unsafe extern \"C\" fn(&'a u8);\n\
        #[unsafe(no_mangle)]\n\
        fn f() {}\n";
    assert_eq!(check(text), (0, Vec::new()));
}

#[test]
fn a_note_in_a_string_or_before_another_statement_does_not_count() {
    let text = "\
        fn f() {\n\
        // SAFETY: of the first.\n\
        unsafe { g() };\n\
        unsafe { g() };\n\
        h(\"SAFETY: no\", unsafe { g() });\n\
        }\n";
    assert_eq!(check(text), (3, vec!["4: unsafe block".into(), "5: unsafe block".into()]));
}

#[test]
fn a_method_of_a_trait_implementation_keeps_the_contract_of_the_trait() {
    let text = "\
        impl<T> A for B<T> where T: C {\n\
        fn f() {}\n\
        unsafe fn g() {}\n\
        }\n\
        impl B<u8> {\n\
        unsafe fn h() {}\n\
        }\n";
    assert_eq!(check(text), (2, vec!["6: unsafe fn h".into()]));
}
