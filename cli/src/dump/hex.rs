//! Reads bytes from the text that `xxd`, `hexdump -C`, `od -tx1`, debuggers and C sources print.

/// The bytes in `text`, or the line that has none.
pub(crate) fn parse(text: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let at = |problem| format!("line {}: {problem}", index + 1);
        bytes.extend(parse_line(line).map_err(at)?);
    }
    Ok(bytes)
}

fn parse_line(line: &str) -> Result<Vec<u8>, String> {
    let line = without_comment(line).trim();
    if line == "*" {
        return Err(
            "`*` stands for lines that were left out: print all, with `od -v` or `hexdump -v`"
                .into(),
        );
    }
    let (offset, line) = split_offset(line);
    // The bytes as text follow on the right, after a bar or a gap.
    let line = line.split('|').next().unwrap_or_default();
    let line = if offset { line.trim_start().split("  ").next().unwrap_or_default() } else { line };
    let words: Vec<&str> = words(line).collect();
    let offset = !offset && words.len() > 1 && is_offset(words[0], &words[1..]);
    let mut bytes = Vec::new();
    for word in &words[usize::from(offset)..] {
        bytes.extend(parse_word(word)?);
    }
    Ok(bytes)
}

fn without_comment(line: &str) -> &str {
    let end = ["//", "#", "/*"].iter().filter_map(|mark| line.find(mark)).min();
    &line[..end.unwrap_or(line.len())]
}

/// `00000010: ` before the bytes; `hexdump -C` has no colon, but two spaces.
fn split_offset(line: &str) -> (bool, &str) {
    let is_hex = |text: &str| {
        let text = text.strip_prefix("0x").unwrap_or(text);
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    if let Some((offset, rest)) = line.split_once(':')
        && is_hex(offset)
    {
        return (true, rest);
    }
    match line.split_once("  ") {
        Some((offset, rest)) if offset.len() >= 7 && is_hex(offset) && line.contains('|') => {
            // Between the halves of a line there are two spaces, too; the bar ends the bytes.
            (false, rest)
        }
        _ => (false, line),
    }
}

/// An offset without any mark, as `od` writes it, stands before bytes of two digits.
fn is_offset(first: &str, rest: &[&str]) -> bool {
    first.len() >= 6 && !first.starts_with("0x") && rest.iter().all(|word| word.len() == 2)
}

fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| c.is_whitespace() || ",;{}()\"'".contains(c))
        .flat_map(|word| word.split("\\x"))
        .filter(|word| !word.is_empty())
}

fn parse_word(word: &str) -> Result<Vec<u8>, String> {
    let digits = word.strip_prefix("0x").or(word.strip_prefix("0X")).unwrap_or(word);
    let odd = digits.len() % 2 == 1;
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(format!("{word:?} is not hexadecimal"));
    }
    // A lone digit is a byte; in a longer number a digit was lost.
    if odd && digits.len() > 1 {
        return Err(format!("{word:?} has an odd number of digits"));
    }
    let digits = if odd { format!("0{digits}") } else { digits.to_owned() };
    let pairs = (0..digits.len()).step_by(2);
    Ok(pairs.filter_map(|at| u8::from_str_radix(&digits[at..at + 2], 16).ok()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: [u8; 16] = [0, 0, 5, 0x0a, 0, 1, 0xa2, 3, 0, 0, 0, 8, 0xde, 0xad, 0xbe, 0xef];

    #[test]
    fn every_usual_way_to_write_bytes_is_read() {
        for text in [
            "0000050a0001a20300000008deadbeef",
            "00 00 05 0a 00 01 a2 03 00 00 00 08 de ad be ef",
            "0x0000050a 0x0001a203 0x00000008 0xdeadbeef",
            "0000050a 0001a203 00000008 deadbeef",
            "{ 0x0, 0x00, 5, 0x0a, 0, 1, 0xa2, 3, 0, 0, 0, 8, 0xde, 0xad, 0xbe, 0xef }; // a WQE",
            r#""\x00\x00\x05\x0a\x00\x01\xa2\x03\x00\x00\x00\x08\xde\xad\xbe\xef""#,
            "00000000: 0000 050a 0001 a203 0000 0008 dead beef  ................",
            "00000000: 0000 050a 0001 a203 0000 0008 dead beef  12 ab 34 beef..",
            "00000000  00 00 05 0a 00 01 a2 03  00 00 00 08 de ad be ef  |12 ab 34 beef..|",
            "0000000 00 00 05 0a 00 01 a2 03 00 00 00 08 de ad be ef",
            "0x10: 0000050a 0001a203\n\n0x18: 00000008 deadbeef",
        ] {
            assert_eq!(parse(text).as_deref(), Ok(&BYTES[..]), "{text}");
        }
    }

    #[test]
    fn lines_that_were_left_out_are_asked_for() {
        let reported = parse("0000000 00 00\n*\n0000020 00 00\n").unwrap_err();
        assert!(reported.starts_with("line 2: ") && reported.contains("od -v"), "{reported}");
    }

    #[test]
    fn what_is_not_hexadecimal_is_named() {
        assert_eq!(parse("00 11\n22 xy"), Err("line 2: \"xy\" is not hexadecimal".into()));
        assert!(parse("123").unwrap_err().contains("odd number"));
        assert_eq!(parse(""), Ok(Vec::new()));
    }
}
