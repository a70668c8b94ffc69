//! Finds the modules of its own crate that a source file names.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::failure::Failure;

/// A module's path below the crate: `["qp", "builder"]`. The crate's root has none.
pub(crate) type Module = Vec<String>;

/// The names in one file.
#[derive(Debug, Default)]
pub(crate) struct File {
    /// Paths below the crate that the file names, with `use` trees flattened.
    pub(crate) names: Vec<Module>,
    /// Names that the file exports: the last segment, and the path it comes from. A glob has the
    /// name `*`.
    pub(crate) exports: Vec<(String, Module)>,
}

/// Reads all modules of the crate in `src`, without tests.
pub(crate) fn read(src: &Path) -> Result<BTreeMap<Module, File>, Failure> {
    let mut files = BTreeMap::new();
    collect(src, &Module::new(), &mut files)?;
    Ok(files)
}

fn collect(
    folder: &Path,
    parent: &Module,
    files: &mut BTreeMap<Module, File>,
) -> Result<(), Failure> {
    let failed = |path: &Path| {
        let path = path.to_path_buf();
        move |error| Failure::File { path, error }
    };
    for entry in fs::read_dir(folder).map_err(failed(folder))? {
        let path = entry.map_err(failed(folder))?.path();
        let Some(stem) = path.file_stem().and_then(|stem| stem.to_str()) else { continue };
        if matches!(stem, "tests" | "testing") {
            continue;
        }
        let mut module = parent.clone();
        if path.is_dir() {
            module.push(stem.to_owned());
            collect(&path, &module, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            if !matches!(stem, "lib" | "main" | "mod") {
                module.push(stem.to_owned());
            }
            let text = fs::read_to_string(&path).map_err(failed(&path))?;
            files.insert(module.clone(), parse(&module, &text));
        }
    }
    Ok(())
}

fn parse(module: &Module, text: &str) -> File {
    let tokens = tokens(text);
    let mut file = File::default();
    let mut at = 0;
    while at < tokens.len() {
        match tokens[at].as_str() {
            // A file's tests may import more than the file.
            "#" if starts(&tokens[at..], &["#", "[", "cfg", "(", "test", ")", "]"]) => {
                at = skip_item(&tokens, at + 7);
            }
            "use" => {
                let public = at > 0 && matches!(tokens[at - 1].as_str(), "pub" | ")");
                let end = end_of_use(&tokens, at + 1);
                let mut paths = Vec::new();
                flatten(&tokens[at + 1..end], &mut 0, &Module::new(), &mut paths);
                for (path, name) in paths {
                    let Some(below) = below_crate(module, &path, true) else { continue };
                    if public {
                        file.exports.push((name, below.clone()));
                    }
                    file.names.push(below);
                }
                at = end;
            }
            "crate" | "super" => {
                // `pub(crate)`, `pub(super)` and `pub(in crate::a)` import nothing.
                let visibility = at > 0 && tokens[at - 1] == "in";
                let mut path = vec![tokens[at].clone()];
                while starts(&tokens[at + 1..], &["::"])
                    && tokens.get(at + 2).is_some_and(|token| is_name(token))
                {
                    path.push(tokens[at + 2].clone());
                    at += 2;
                }
                if path.len() > 1 && !visibility {
                    file.names.extend(below_crate(module, &path, false));
                }
                at += 1;
            }
            _ => at += 1,
        }
    }
    file
}

/// The path below the crate that `path` means in `module`, if it belongs to this crate.
fn below_crate(module: &Module, path: &[String], in_use: bool) -> Option<Module> {
    let first = path.first()?;
    match first.as_str() {
        "crate" => Some(path[1..].to_vec()),
        "self" => Some([module, &path[1..]].concat()),
        "super" => {
            let ups = path.iter().take_while(|segment| *segment == "super").count();
            let above = module.len().checked_sub(ups)?;
            Some([&module[..above], &path[ups..]].concat())
        }
        // A child, or another crate. The caller finds no module for the latter.
        _ if in_use => Some([module, path].concat()),
        _ => None,
    }
}

fn starts(tokens: &[String], with: &[&str]) -> bool {
    tokens.len() >= with.len() && tokens.iter().zip(with).all(|(token, with)| token == with)
}

fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

fn end_of_use(tokens: &[String], from: usize) -> usize {
    (from..tokens.len()).find(|&at| tokens[at] == ";").unwrap_or(tokens.len())
}

/// Index after the item at `at`, which ends with its block or its semicolon.
fn skip_item(tokens: &[String], mut at: usize) -> usize {
    let mut depth = 0_usize;
    while let Some(token) = tokens.get(at) {
        at += 1;
        match token.as_str() {
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" => {
                depth = depth.saturating_sub(1);
                if depth == 0 && token == "}" {
                    break;
                }
            }
            ";" if depth == 0 => break,
            _ => {}
        }
    }
    at
}

/// Collects every path of a `use` tree, with its local name.
fn flatten(tokens: &[String], at: &mut usize, prefix: &Module, paths: &mut Vec<(Module, String)>) {
    let mut path = prefix.clone();
    while let Some(token) = tokens.get(*at) {
        match token.as_str() {
            "::" => *at += 1,
            "{" => {
                *at += 1;
                while tokens.get(*at).is_some_and(|token| token != "}") {
                    flatten(tokens, at, &path, paths);
                    if tokens.get(*at).is_some_and(|token| token == ",") {
                        *at += 1;
                    }
                }
                *at += 1;
                return;
            }
            "," | "}" => break,
            "as" => {
                let name = tokens.get(*at + 1).cloned().unwrap_or_default();
                *at += 2;
                paths.push((path, name));
                return;
            }
            "self" if !path.is_empty() => *at += 1,
            segment => {
                path.push(segment.to_owned());
                *at += 1;
            }
        }
    }
    let name = path.last().cloned().unwrap_or_default();
    if name == "*" {
        path.pop();
    }
    paths.push((path, name));
}

/// Identifiers and punctuation, without comments and literals.
fn tokens(text: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if let Some(length) = string(rest) {
            length
        } else if first.is_alphabetic() || first == '_' {
            let length =
                rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            tokens.push(rest[..length].to_owned());
            length
        } else if rest.starts_with("::") {
            tokens.push("::".to_owned());
            2
        } else {
            if !first.is_whitespace() {
                tokens.push(first.to_string());
            }
            first.len_utf8()
        };
        rest = &rest[length..];
    }
    tokens
}

/// Length of the string or character literal at the start of `text`.
fn string(text: &str) -> Option<usize> {
    let raw = text.strip_prefix('b').unwrap_or(text).strip_prefix('r');
    if let Some(raw) = raw {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        if raw[hashes..].starts_with('"') {
            let end = format!("\"{}", "#".repeat(hashes));
            let start = text.len() - raw.len() + hashes + 1;
            return Some(text[start..].find(&end).map_or(text.len(), |at| start + at + end.len()));
        }
    }
    let quote = text.chars().next().filter(|&c| c == '"' || c == '\'')?;
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == quote => return Some(at + 1),
            // No character literal is that long: the quote starts a lifetime.
            _ if quote == '\'' && at > 1 && !text[1..].starts_with('\\') => return Some(1),
            _ => {}
        }
    }
    Some(1)
}

#[cfg(test)]
mod tests {
    use super::{Module, parse};

    fn names(module: &str, text: &str) -> Vec<String> {
        let module: Module = module.split("::").map(str::to_owned).collect();
        let file = parse(&module, text);
        file.names.iter().map(|name| name.join("::")).collect()
    }

    #[test]
    fn a_use_tree_is_every_path_in_it() {
        let text = "use crate::{a::{self, b as c}, d::*};\nuse super::e;";
        assert_eq!(names("x::y", text), ["a", "a::b", "d", "x::e"]);
    }

    #[test]
    fn a_path_in_code_counts_and_one_in_a_comment_or_a_string_does_not() {
        let text =
            "// crate::no\nfn f<'a>(c: char) { crate::a::b(); \"crate::no\"; '\"'; super::d() }";
        assert_eq!(names("x", text), ["a::b", "d"]);
    }

    #[test]
    fn visibility_is_no_import() {
        assert!(names("x", "pub(crate) struct A; pub(in crate::b) fn c() {}").is_empty());
    }

    #[test]
    fn imports_of_tests_alone_do_not_count() {
        let text = "#[cfg(test)]\nmod tests { use crate::a; }\nuse crate::b;";
        assert_eq!(names("x", text), ["b"]);
    }
}
