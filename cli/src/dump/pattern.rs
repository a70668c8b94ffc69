//! Patterns of the lines that programs print.
//!
//! A pattern is text, and its case does not matter. A space stands for any blanks, line breaks
//! included, since mails and terminals break lines. `*` stands for anything. `{name}` takes a
//! number, `{name:word}` a word, `{name:text}` all before the rest of the pattern, `{name:rest}`
//! the rest of the line. The name `_` drops its value.

use super::facts::{Facts, Value};
use std::ops::Range;

/// A pattern, read.
pub(crate) struct Pattern(Vec<Part>);

enum Part {
    Literal(&'static str),
    Blanks,
    Anything,
    Number(&'static str),
    Word(&'static str),
    Text(&'static str),
    Rest(&'static str),
}

/// The most bytes that `*` and `{name:text}` stand for.
const FAR: usize = 200;

impl Pattern {
    pub(crate) fn new(text: &'static str) -> Self {
        let (mut parts, mut rest) = (Vec::new(), text);
        while !rest.is_empty() {
            let (part, length) = match rest.as_bytes()[0] {
                b' ' => (Part::Blanks, 1),
                b'*' => (Part::Anything, 1),
                b'{' => {
                    let end = rest.find('}').unwrap_or(rest.len() - 1);
                    let taken = &rest[1..end];
                    let part = match taken.split_once(':') {
                        Some((name, "word")) => Part::Word(name),
                        Some((name, "text")) => Part::Text(name),
                        Some((name, _)) => Part::Rest(name),
                        None => Part::Number(taken),
                    };
                    (part, end + 1)
                }
                _ => {
                    let end = rest.find([' ', '*', '{']).unwrap_or(rest.len());
                    (Part::Literal(&rest[..end]), end)
                }
            };
            parts.push(part);
            rest = &rest[length..];
        }
        Self(parts)
    }

    /// Whether a match can start with this byte. Most bytes of a log start none.
    pub(crate) fn starts(&self, byte: u8) -> bool {
        match self.0.first() {
            Some(Part::Literal(literal)) => literal.as_bytes()[0].eq_ignore_ascii_case(&byte),
            _ => is_word(byte),
        }
    }

    /// Matches at this byte: where the match ends, and what it says.
    pub(crate) fn at(&self, text: &str, at: usize) -> Option<(usize, Facts)> {
        let bytes = text.as_bytes();
        let first = *bytes.get(at)?;
        // A pattern that starts with a word does not start within one.
        if !self.starts(first) || is_word(first) && at > 0 && is_word(bytes[at - 1]) {
            return None;
        }
        let mut taken = Vec::new();
        let end = matched(&self.0, text, at, &mut taken)?;
        let mut facts = Facts::default();
        taken.into_iter().for_each(|(name, value)| facts.add(name, value));
        Some((end, facts))
    }

    /// The first match in a part of the text.
    pub(crate) fn find(&self, text: &str, within: Range<usize>) -> Option<(usize, Facts)> {
        let part = &text[..within.end];
        within.clone().find_map(|at| self.at(part, at))
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_-.".contains(&byte)
}

fn matched(
    parts: &[Part],
    text: &str,
    at: usize,
    taken: &mut Vec<(&'static str, Value)>,
) -> Option<usize> {
    let Some((part, parts)) = parts.split_first() else {
        return Some(at);
    };
    let bytes = text.as_bytes().get(at..)?;
    let mut take = |name, length, value| {
        taken.push((name, value));
        let end = matched(parts, text, at + length, taken);
        if end.is_none() {
            taken.pop();
        }
        end
    };
    match part {
        Part::Literal(literal) => {
            let same = bytes.get(..literal.len())?.eq_ignore_ascii_case(literal.as_bytes());
            same.then(|| matched(parts, text, at + literal.len(), taken))?
        }
        Part::Blanks => {
            // A line of a shell goes on after a backslash.
            let blank = |byte: &u8| byte.is_ascii_whitespace() || *byte == b'\\';
            let count = bytes.iter().take_while(|byte| blank(byte)).count();
            matched(parts, text, at + count, taken)
        }
        Part::Anything => {
            (0..bytes.len().min(FAR)).find_map(|skip| matched(parts, text, at + skip, taken))
        }
        Part::Number(name) => {
            let (number, length) = number(bytes)?;
            take(name, length, Value::Number(number))
        }
        Part::Word(name) => {
            let length = bytes.iter().take_while(|byte| is_word(**byte)).count();
            // Most words are followed by something else.
            if let Some(Part::Literal(next)) = parts.first()
                && bytes.get(length) != next.as_bytes().first()
            {
                return None;
            }
            let word = text.get(at..at + length).filter(|word| !word.is_empty())?;
            take(name, length, Value::Text(word.to_owned()))
        }
        Part::Text(name) => (0..bytes.len().min(FAR)).find_map(|length| {
            let words = text.get(at..at + length)?;
            let value = Value::Text(words.trim_matches([' ', '[']).to_owned());
            take(name, length, value)
        }),
        Part::Rest(name) => {
            let line = text.get(at..)?.lines().next().unwrap_or_default();
            take(name, line.len(), Value::Text(line.trim().to_owned()))
        }
    }
}

/// A number at the start, decimal or after 0x, and its length. Words that begin with digits are
/// none.
fn number(bytes: &[u8]) -> Option<(u64, usize)> {
    let hex = bytes.starts_with(b"0x") || bytes.starts_with(b"0X");
    let (prefix, radix) = if hex { (2, 16) } else { (0, 10) };
    let digit = |byte: &u8| (*byte as char).is_digit(radix);
    let count = bytes[prefix..].iter().take_while(|byte| digit(byte)).count();
    let end = prefix + count;
    let cut = bytes.get(end).is_some_and(|byte| !hex && byte.is_ascii_alphanumeric());
    let digits = str::from_utf8(&bytes[prefix..end]).ok().filter(|_| !cut)?;
    Some((u64::from_str_radix(digits, radix).ok()?, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(pattern: &'static str, text: &str) -> Option<Facts> {
        Pattern::new(pattern).find(text, 0..text.len()).map(|(_, facts)| facts)
    }

    #[test]
    fn numbers_words_and_texts_are_taken() {
        let pattern = "{command:word}({opcode}) failed, status {said:text}({status}), {more:rest}";
        let found =
            facts(pattern, "x: CREATE_QP(0x500) FAILED,\n  status bad one(3), all of it\nno");
        let found = found.expect("a match");
        assert_eq!(found.text("command"), Some("CREATE_QP"));
        assert_eq!((found.number("opcode"), found.number("status")), (Some(0x500), Some(3)));
        assert_eq!((found.text("said"), found.text("more")), (Some("bad one"), Some("all of it")));
        assert_eq!((found.number("said"), found.text("status")), (None, None));
    }

    #[test]
    fn a_word_is_matched_from_its_start_and_a_number_to_its_end() {
        assert_eq!(facts("qpn {qpn}", "rqpn 0x1").and_then(|found| found.number("qpn")), None);
        assert_eq!(facts("qpn {qpn}", "rqpn 1 qpn 2").and_then(|f| f.number("qpn")), Some(2));
        assert_eq!(facts("id {id}", "id 25e14b8"), None);
        assert_eq!(facts("id {id} b", "id 0x1b").and_then(|found| found.number("id")), None);
        assert_eq!(facts("id {id}ve", "id 0x1ven").and_then(|found| found.number("id")), Some(1));
        assert_eq!(facts("id {id}", "id 99999999999999999999"), None);
    }

    #[test]
    fn letters_of_more_bytes_are_no_trouble() {
        assert_eq!(facts("({_:text} end", "(日本語 end"), Some(Facts::default()));
        assert_eq!(facts("a*b{n}", "a日本b1").and_then(|found| found.number("n")), Some(1));
    }

    #[test]
    fn facts_join_if_they_agree() {
        let one = facts("a {a} b {b}", "a 1 b 2").expect("a match");
        let other = facts("b {b} c {c}", "b 2 c 3").expect("a match");
        assert!(one.agrees(&other) && other.agrees(&one));
        assert!(!one.agrees(&facts("b {b}", "b 3").expect("a match")));
        let mut both = one.clone();
        both.join(&other);
        assert_eq!((both.number("a"), both.number("c")), (Some(1), Some(3)));
    }
}
