//! Checks that the functions behind the symbols have the parameters and results that C's headers
//! declare. A symbol is a jump, so no compiler checks both sides.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use mlx5_verbs_symbols::{Kind, symbols};
use syn::{FnArg, Item, ReturnType, Type};

use super::in_file;
use crate::failure::Failure;

/// Headers of Debian's libibverbs-dev that declare the functions.
const HEADERS: [&str; 2] = ["infiniband/verbs.h", "infiniband/mlx5dv.h"];

/// Way in which a parameter or a result is passed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Passed {
    Nothing,
    Pointer,
    /// An integer of this size in bytes.
    Number(u8),
}

/// Parameters and result of a function.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Signature {
    takes: Vec<Passed>,
    returns: Passed,
}

/// Faults of our functions, compared with the declarations in a folder's headers.
pub(super) fn differing(folder: &Path) -> Result<Vec<String>, Failure> {
    let mut text = String::new();
    for path in HEADERS.map(|name| folder.join(name)).into_iter().filter(|path| path.exists()) {
        text += &fs::read_to_string(&path).map_err(in_file(&path))?;
        text.push(';');
    }
    let text = plain(&text);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("verbs").join("src");
    let mut functions = BTreeMap::new();
    read(&root, "", &mut functions)?;
    let (mut faults, mut compared) = (Vec::new(), 0);
    for symbol in symbols().filter(|symbol| symbol.default) {
        let Kind::Function(path) = symbol.kind else { continue };
        let path: String = path.split_whitespace().collect();
        let (Some(c), Some(ours)) = (declared(&text, symbol.name), functions.get(&path)) else {
            continue;
        };
        compared += 1;
        faults.extend(compare(symbol.name, &path, c, ours));
    }
    println!("{compared} functions, as C's headers in {} declare them", folder.display());
    Ok(faults)
}

/// The fault of a function, if it has one. A function that refuses reads no parameter, and its
/// result may be wider.
fn compare(
    name: &str,
    path: &str,
    c: Result<Signature, String>,
    ours: &Result<Signature, String>,
) -> Option<String> {
    let (c, ours) = match (c, ours) {
        (Ok(c), Ok(ours)) => (c, ours),
        (Err(unknown), _) => return Some(format!("{name}: C's {unknown} is a type unknown here")),
        (_, Err(unknown)) => return Some(format!("{path}: {unknown} is a type unknown here")),
    };
    let refuses = path.starts_with("refuse::");
    let same = if refuses { wide_enough(ours.returns, c.returns) } else { c == *ours };
    (!same).then(|| format!("{path} is {ours:?}, but {name} is {c:?}"))
}

/// Whether a caller that expects another type reads the result correctly: the lower bytes of an
/// integer are an integer.
fn wide_enough(ours: Passed, expected: Passed) -> bool {
    match (ours, expected) {
        (Passed::Number(ours), Passed::Number(expected)) => ours >= expected,
        _ => ours == expected,
    }
}

/// A header without comments and preprocessor lines.
fn plain(header: &str) -> String {
    let mut text = String::new();
    let mut rest = header;
    while let Some((before, comment)) = rest.split_once("/*") {
        text += before;
        rest = comment.split_once("*/").map_or("", |(_, after)| after);
    }
    text += rest;
    let joined = text.replace("\\\n", " ");
    let lines = joined.lines().filter(|line| !line.trim_start().starts_with('#'));
    lines.collect::<Vec<_>>().join(" ")
}

/// Declaration of a function in a header; fails on an unknown type.
fn declared(text: &str, name: &str) -> Option<Result<Signature, String>> {
    text.match_indices(name).find_map(|(at, _)| {
        let before = &text[..at];
        let after = &text[at + name.len()..];
        let (takes, after) = after.trim_start().strip_prefix('(')?.split_once(')')?;
        let own = before.ends_with(|c: char| c.is_whitespace() || c == '*');
        // Skips a definition, which is a function of the header itself, and a call.
        if !own || !after.trim_start().starts_with([';', '_']) {
            return None;
        }
        let begins = before.rfind([';', '{', '}']).map_or(0, |at| at + 1);
        let returns = before[begins..].trim();
        let called = returns.contains(['=', '(']) && !returns.contains("__attribute");
        if returns.is_empty() || returns.starts_with("return") || called {
            return None;
        }
        let takes: Result<Vec<_>, _> = takes.split(',').map(passed_in_c).collect();
        Some(takes.and_then(|takes| {
            let takes = takes.into_iter().filter(|passed| *passed != Passed::Nothing).collect();
            Ok(Signature { takes, returns: passed_in_c(returns)? })
        }))
    })
}

/// The way in which C passes a declared parameter.
fn passed_in_c(declaration: &str) -> Result<Passed, String> {
    if declaration.contains(['*', '[']) {
        return Ok(Passed::Pointer);
    }
    let words = declaration.split_whitespace();
    let width = words.clone().find_map(|word| match word {
        "bool" | "char" | "uint8_t" => Some(1),
        "uint16_t" | "__be16" => Some(2),
        "int" | "unsigned" | "enum" | "uint32_t" | "__be32" => Some(4),
        "uint64_t" | "size_t" | "ssize_t" | "off_t" | "long" | "__be64" => Some(8),
        _ => None,
    });
    match width {
        Some(width) => Ok(Passed::Number(width)),
        None if words.eq(["void"]) => Ok(Passed::Nothing),
        None => Err(declaration.trim().to_owned()),
    }
}

/// Reads the functions for C in a folder and its subfolders, by their paths.
fn read(
    folder: &Path,
    module: &str,
    functions: &mut BTreeMap<String, Result<Signature, String>>,
) -> Result<(), Failure> {
    for entry in fs::read_dir(folder).map_err(in_file(folder))? {
        let path = entry.map_err(in_file(folder))?.path();
        let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        let inside = match stem {
            "mod" | "lib" => module.to_owned(),
            _ => format!("{module}{stem}::"),
        };
        if path.is_dir() {
            read(&path, &inside, functions)?;
            continue;
        }
        let text = fs::read_to_string(&path).map_err(in_file(&path))?;
        let file = syn::parse_file(&text).map_err(|error| Failure::Output {
            program: path.display().to_string(),
            what: error.to_string(),
        })?;
        for item in file.items {
            if let Item::Fn(function) = item
                && function.sig.abi.is_some()
            {
                functions
                    .insert(format!("{inside}{}", function.sig.ident), signature(&function.sig));
            }
        }
    }
    Ok(())
}

fn signature(signature: &syn::Signature) -> Result<Signature, String> {
    let takes = signature.inputs.iter().map(|input| match input {
        FnArg::Typed(input) => passed_in_rust(&input.ty),
        FnArg::Receiver(_) => Err("self".to_owned()),
    });
    let returns = match &signature.output {
        ReturnType::Default => Passed::Nothing,
        ReturnType::Type(_, ty) => passed_in_rust(ty)?,
    };
    Ok(Signature { takes: takes.collect::<Result<_, _>>()?, returns })
}

/// The way in which Rust passes a type to C.
fn passed_in_rust(ty: &Type) -> Result<Passed, String> {
    let name = match ty {
        Type::Ptr(_) => return Ok(Passed::Pointer),
        Type::Path(path) => path.path.segments.last().map(|segment| segment.ident.to_string()),
        _ => None,
    };
    let name = name.unwrap_or_default();
    Ok(match name.as_str() {
        "Option" => Passed::Pointer,
        "bool" | "c_char" | "u8" => Passed::Number(1),
        "u16" | "Be16" => Passed::Number(2),
        "c_int" | "c_uint" | "i32" | "u32" | "Be32" => Passed::Number(4),
        "u64" | "i64" | "usize" | "isize" | "Be64" => Passed::Number(8),
        _ => return Err(name),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "/* int ibv_a(int); */\n#define ibv_b(x) \\\n  ibv_a(x)\n\
        struct ibv_c { int x; };\nstatic inline int ibv_d(int x)\n{ return ibv_a(x, 0); }\n\
        int ibv_a(struct ibv_c *c, uint8_t port,\n  enum ibv_e e, uint64_t n);\n\
        struct ibv_c *ibv_f(void);\nvoid ibv_g(union ibv_gid gid);\n\
        int __attribute__((const)) ibv_h(enum ibv_e e);\n";

    fn in_rust(text: &str) -> Result<Signature, String> {
        signature(&syn::parse_str(text).expect("a signature"))
    }

    #[test]
    fn declaration_is_distinguished_from_definition_call_and_comment() {
        let text = plain(HEADER);
        let number = |width| Passed::Number(width);
        let a = Signature {
            takes: vec![Passed::Pointer, number(1), number(4), number(8)],
            returns: number(4),
        };
        assert_eq!(declared(&text, "ibv_a"), Some(Ok(a)));
        assert_eq!(declared(&text, "ibv_b"), None);
        assert_eq!(declared(&text, "ibv_d"), None);
        let f = Signature { takes: Vec::new(), returns: Passed::Pointer };
        assert_eq!(declared(&text, "ibv_f"), Some(Ok(f)));
        assert_eq!(declared(&text, "ibv_g"), Some(Err("union ibv_gid gid".to_owned())));
        let h = Signature { takes: vec![number(4)], returns: number(4) };
        assert_eq!(declared(&text, "ibv_h"), Some(Ok(h)));
    }

    #[test]
    fn missing_parameter_and_parameter_of_another_width_are_reported() {
        let text = plain(HEADER);
        let is_reported = |ours: &str| {
            let c = declared(&text, "ibv_a").expect("a declaration");
            compare("ibv_a", "a::a", c, &in_rust(ours)).is_some()
        };
        assert!(!is_reported("fn a(c: *mut ibv_c, port: u8, e: c_uint, n: u64) -> c_int"));
        assert!(is_reported("fn a(c: *mut ibv_c, port: u8, e: c_uint, n: u32) -> c_int"));
        assert!(is_reported("fn a(c: *mut ibv_c, port: u8, e: c_uint) -> c_int"));
        assert!(is_reported("fn a(c: *mut ibv_c, port: u8, e: c_uint, n: u64)"));
        assert!(is_reported("fn a(c: *mut ibv_c, port: u8, e: c_uint, n: u64) -> *mut c_void"));
        assert!(is_reported("fn a(c: ibv_c, port: u8, e: c_uint, n: u64) -> c_int"));
    }

    #[test]
    fn a_refusal_needs_the_result_only() {
        let text = plain(HEADER);
        let is_reported = |name: &str, ours: &str| {
            let c = declared(&text, name).expect("a declaration");
            compare(name, "refuse::a", c, &in_rust(ours)).is_some()
        };
        assert!(!is_reported("ibv_a", "fn a() -> c_int"));
        assert!(!is_reported("ibv_a", "fn a() -> isize"));
        assert!(is_reported("ibv_a", "fn a()"));
        assert!(is_reported("ibv_f", "fn a() -> c_int"));
        assert!(!is_reported("ibv_f", "fn a() -> *mut c_void"));
    }
}
