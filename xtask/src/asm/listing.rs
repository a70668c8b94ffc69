//! The machine code of a function, without the parts that change from build to build.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::process::Command;

use crate::build::says;
use crate::failure::Failure;

/// The programs that print the machine code of an architecture, and the syntax of their output.
pub(crate) struct Binutils {
    /// Returns a command that runs the program of this name.
    command: Box<dyn Fn(&str) -> Command>,
    /// Options of objdump.
    syntax: &'static [&'static str],
    /// Start of a comment.
    comment: &'static str,
}

impl Binutils {
    /// Programs for this machine's own code.
    pub(super) fn own() -> Self {
        let command = Box::new(|name: &str| Command::new(name));
        if cfg!(target_arch = "x86_64") {
            Self { command, syntax: &["-M", "intel"], comment: "#" }
        } else {
            Self { command, syntax: &[], comment: "//" }
        }
    }

    /// Programs for aarch64, which `command` runs.
    pub(crate) fn aarch64(command: impl Fn(&str) -> Command + 'static) -> Self {
        Self { command: Box::new(command), syntax: &[], comment: "//" }
    }

    fn says(&self, program: &str, arguments: &[&str]) -> Result<String, Failure> {
        says((self.command)(program).args(arguments))
    }
}

/// Names for the addresses of a program.
pub(crate) struct Names {
    /// Symbols, in the linker's form.
    symbols: Vec<String>,
    /// Targets of the words of the global offset table.
    table: HashMap<u64, String>,
}

impl Names {
    pub(crate) fn of(binutils: &Binutils, program: &Path) -> Result<Self, Failure> {
        let path = program.to_string_lossy();
        let mut at: HashMap<u64, String> = HashMap::new();
        let mut symbols = Vec::new();
        for line in binutils.says("nm", &[&path])?.lines() {
            if let [address, _, name] = line.split_whitespace().collect::<Vec<_>>()[..]
                && let Ok(address) = u64::from_str_radix(address, 16)
            {
                at.insert(address, readable(name));
                symbols.push(name.to_owned());
            }
        }
        let mut table = HashMap::new();
        for line in binutils.says("objdump", &["--dynamic-reloc", &path])?.lines() {
            if let [word, _, value] = line.split_whitespace().collect::<Vec<_>>()[..]
                && let Ok(word) = u64::from_str_radix(word, 16)
            {
                let target = value.strip_prefix("*ABS*+0x");
                let target = target.and_then(|value| u64::from_str_radix(value, 16).ok());
                let name = target.and_then(|target| at.get(&target).cloned());
                table.insert(word, name.unwrap_or_else(|| value.to_owned()));
            }
        }
        Ok(Self { symbols, table })
    }

    /// Symbols of the functions whose path is `path` or ends in it.
    fn symbols(&self, path: &[&str]) -> impl Iterator<Item = &str> {
        let part = mangled(path);
        let is_it = move |symbol: &&String| ends_path(symbol, &part);
        self.symbols.iter().filter(is_it).map(String::as_str)
    }
}

/// Whether `part` is the end of a symbol's path. In legacy names a hash follows; in current ones
/// (`_R…`) no further name follows, which would start with a digit or a disambiguator.
fn ends_path(symbol: &str, part: &str) -> bool {
    let legacy = |rest: &str| rest.starts_with("17h");
    let today = |rest: &str| !rest.starts_with(|next: char| next.is_ascii_digit() || next == 's');
    let mut at = symbol.match_indices(part).map(|(at, _)| &symbol[at + part.len()..]);
    if symbol.starts_with("_R") { at.any(today) } else { at.any(legacy) }
}

/// A path in the form that symbols contain.
pub(crate) fn mangled(path: &[&str]) -> String {
    path.iter().map(|name| format!("{}{name}", name.len())).collect()
}

/// A symbol without the hash at its end.
fn readable(symbol: &str) -> String {
    match symbol.rfind("17h") {
        Some(hash) if symbol.starts_with("_ZN") => symbol[..hash].to_owned(),
        _ => symbol.to_owned(),
    }
}

/// An instruction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Instruction {
    /// Text, with names for addresses.
    pub(crate) text: String,
    /// Index of the instruction in this function that it may jump to.
    pub(crate) jump: Option<usize>,
}

/// The machine code of a function.
pub(crate) struct Listing(pub(crate) Vec<Instruction>);

impl Listing {
    /// The listing of the function with a path in a program.
    pub(crate) fn of(
        binutils: &Binutils,
        program: &Path,
        names: &Names,
        path: &[&str],
    ) -> Result<Self, Failure> {
        Ok(Self::all_of(binutils, program, names, path)?.swap_remove(0))
    }

    /// Listings of all functions with a path, shortest first; at least one.
    pub(crate) fn all_of(
        binutils: &Binutils,
        program: &Path,
        names: &Names,
        path: &[&str],
    ) -> Result<Vec<Self>, Failure> {
        let program = program.to_string_lossy();
        let mut listings = Vec::new();
        for symbol in names.symbols(path) {
            let symbol = format!("--disassemble={symbol}");
            let arguments =
                [&["--no-show-raw-insn", symbol.as_str(), &program], binutils.syntax].concat();
            let text = binutils.says("objdump", &arguments)?;
            listings.push(parse(&text, binutils.comment, &names.table));
        }
        listings.retain(|listing| listing.len() != 0);
        // Sorted by content, since the hashes change.
        listings.sort_by_cached_key(|listing| (listing.len(), listing.to_string()));
        if listings.is_empty() {
            return Err(Failure::NotBuilt(format!("the function {}", path.join("::"))));
        }
        Ok(listings)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

/// Whether an instruction calls, by its name.
pub(super) fn is_call(name: &str) -> bool {
    name.starts_with("call") || name == "bl" || name.starts_with("blr")
}

/// Parses objdump's output for one function: `  address:\tinstruction [# address] [<symbol>]`.
pub(crate) fn parse(text: &str, mark: &str, table: &HashMap<u64, String>) -> Listing {
    let lines: Vec<(u64, &str)> = text
        .lines()
        .filter_map(|line| {
            let (address, instruction) = line.trim_start().split_once(":\t")?;
            Some((u64::from_str_radix(address, 16).ok()?, instruction))
        })
        // Padding up to the next function.
        .filter(|(_, instruction)| !instruction.contains("nop"))
        .collect();
    let instructions = lines.iter().map(|(_, line)| {
        let (code, comment) = line.split_once(mark).unwrap_or((line, ""));
        let words: Vec<&str> = code.split_whitespace().collect();
        let word = comment.split_whitespace().next();
        let word = word.and_then(|word| u64::from_str_radix(word, 16).ok());
        // `<` starts the symbol that contains an address.
        let name = words.iter().find_map(|word| word.strip_prefix('<')?.strip_suffix('>'));
        let target = words.iter().rev().find_map(|word| u64::from_str_radix(word, 16).ok());
        let target = target.filter(|_| name.is_some());
        let jump = target.and_then(|target| {
            lines.iter().position(|(address, _)| *address >= target && !is_call(words[0]))
        });
        let inside = target.is_some_and(|target| {
            lines.first().is_some_and(|first| first.0 <= target)
                && lines.last().is_some_and(|last| target <= last.0)
        });
        let (text, jump) = match (word, name) {
            (Some(word), _) => {
                let to = table.get(&word).cloned().unwrap_or_else(|| "data".into());
                let code = words.join(" ");
                let start = code.find("[rip").unwrap_or(code.len());
                let end = code[start..].find(']').map_or(code.len(), |end| start + end + 1);
                (format!("{}[{to}]{}", &code[..start], &code[end.min(code.len())..]), None)
            }
            (None, Some(_)) if inside && jump.is_some() => (words[0].to_owned(), jump),
            (None, Some(name)) => {
                let name = name.split('+').next().unwrap_or(name);
                (format!("{} {}", words[0], readable(name)), None)
            }
            (None, None) => (words.join(" "), None),
        };
        Instruction { text, jump }
    });
    Listing(instructions.collect())
}

impl fmt::Display for Listing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut targets: Vec<usize> = self.0.iter().filter_map(|line| line.jump).collect();
        targets.sort_unstable();
        targets.dedup();
        let label = |at: usize| targets.binary_search(&at).ok();
        for (at, instruction) in self.0.iter().enumerate() {
            if let Some(label) = label(at) {
                writeln!(f, "{label}:")?;
            }
            match instruction.jump.and_then(label) {
                Some(label) => writeln!(f, "    {} {label}", instruction.text)?,
                None => writeln!(f, "    {}", instruction.text)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "
0000000000001000 <_ZN4crate8function17h0123456789abcdefE>:
    1000:\tpush   rbx
    1001:\tcmp    DWORD PTR [rdi],0x1
    1004:\tjne    1010 <_ZN4crate8function17h0123456789abcdefE+0x10>
    1006:\tmov    rax,QWORD PTR [rip+0x2000]        # 3000 <_DYNAMIC+0x230>
    100d:\tret
    100e:\tnop    DWORD PTR [rax]
    1010:\tcall   QWORD PTR [rip+0x2000]        # 3008 <_DYNAMIC+0x238>
    1016:\tcall   2000 <_ZN4core9panicking5panic17h0123456789abcdefE>
    101b:\tjmp    2400 <_ZN4crate5other17h0123456789abcdefE>
";

    #[test]
    fn a_function_is_found_by_either_kind_of_name() {
        let part = mangled(&["operations", "post", "inline8"]);
        for (symbol, found) in [
            ("_ZN10mlx5_bench10operations4post7inline817h0123456789abcdefE", true),
            ("_ZN10mlx5_bench10operations4post7inline812inner17h0123456789abcdefE", false),
            ("_RNvNtNtCsHASH_10mlx5_bench10operations4post7inline8", true),
            ("_RINvNtNtCsHASH_10mlx5_bench10operations4post7inline8yECs1_4main", true),
            ("_RNvNtNtNtCsHASH_10mlx5_bench10operations4post7inline85inner", false),
        ] {
            assert_eq!(ends_path(symbol, &part), found, "{symbol}");
        }
    }

    #[test]
    fn addresses_and_hashes_give_way_to_names() {
        let table = HashMap::from([(0x3000, "FACTS".to_owned()), (0x3008, "cold".to_owned())]);
        let expected = "    push rbx
    cmp DWORD PTR [rdi],0x1
    jne 0
    mov rax,QWORD PTR [FACTS]
    ret
0:
    call QWORD PTR [cold]
    call _ZN4core9panicking5panic
    jmp _ZN4crate5other
";
        assert_eq!(parse(TEXT, "#", &table).to_string(), expected);
    }
}
