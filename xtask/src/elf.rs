//! Reads the parts of ELF files that tasks need: a program's loader and libraries, a library's
//! symbols, and a module's sections.
//!
//! Offsets are those of `Elf64_Ehdr`, `Elf64_Phdr`, `Elf64_Shdr`, `Elf64_Dyn`, `Elf64_Sym`,
//! `Elf64_Verdef` and `Elf64_Verneed` in elf.h.

/// A 64-bit little-endian ELF file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Elf<'a> {
    bytes: &'a [u8],
}

/// A section or segment in a file.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    kind: u32,
    address: u64,
    offset: u64,
    size: u64,
    /// Name of a section; zero for a segment.
    name: u64,
}

/// EM_X86_64 and EM_AARCH64.
const MACHINE: u64 = if cfg!(target_arch = "aarch64") { 183 } else { 62 };
const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_INTERP: u32 = 3;
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;
const DT_SONAME: u64 = 14;
const DT_FLAGS_1: u64 = 0x6fff_fffb;
const DF_1_NODELETE: u64 = 8;
const SHN_UNDEF: u64 = 0;
const SHN_ABS: u64 = 0xfff1;
const STB_LOCAL: u64 = 0;
const STT_OBJECT: u64 = 1;
/// Bit of a symbol's version that is not the default for linking.
const VERSYM_HIDDEN: u64 = 0x8000;

/// A symbol that other objects can use.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Export {
    pub(crate) name: String,
    /// Its version; empty if it has none.
    pub(crate) node: String,
    /// Whether the linker takes this version by default.
    pub(crate) default: bool,
    /// Size of data; `None` for a function.
    pub(crate) data: Option<u64>,
}

impl<'a> Elf<'a> {
    /// Opens a file; `None` if it is not such an ELF file.
    pub(crate) fn new(bytes: &'a [u8]) -> Option<Self> {
        let magic = bytes.len() >= 64 && bytes.starts_with(b"\x7fELF\x02\x01");
        magic.then_some(Self { bytes })
    }

    /// Whether it is for the architecture of this program.
    pub(crate) fn is_of_this_architecture(self) -> bool {
        self.number(18, 2) == Some(MACHINE)
    }

    /// The loader that the program requests; `None` if it needs none.
    pub(crate) fn interpreter(self) -> Option<&'a str> {
        let segment = self.segments().find(|segment| segment.kind == PT_INTERP)?;
        self.text(segment.offset)
    }

    /// Names of the libraries that it needs.
    pub(crate) fn needed(self) -> Vec<&'a str> {
        self.dynamic_texts(DT_NEEDED)
    }

    /// The name that programs linked with this library record for it.
    pub(crate) fn soname(self) -> Option<&'a str> {
        self.dynamic_texts(DT_SONAME).first().copied()
    }

    /// Whether the library stays loaded after `dlclose`.
    pub(crate) fn stays(self) -> bool {
        self.dynamic().iter().any(|&(tag, value)| tag == DT_FLAGS_1 && value & DF_1_NODELETE != 0)
    }

    /// Symbols that the library exports, without the names of the versions themselves.
    pub(crate) fn exports(self) -> Option<Vec<Export>> {
        let names = self.span(".dynstr")?;
        let symbols = self.span(".dynsym")?;
        let versions = self.span(".gnu.version")?;
        let nodes = self.nodes()?;
        let mut exports = Vec::new();
        for (index, at) in (symbols.offset..symbols.offset + symbols.size).step_by(24).enumerate() {
            let info = self.number(at + 4, 1)?;
            let section = self.number(at + 6, 2)?;
            if info >> 4 == STB_LOCAL || section == SHN_UNDEF || section == SHN_ABS {
                continue;
            }
            let version = self.number(versions.offset + 2 * index as u64, 2)?;
            let node = nodes.iter().find(|node| node.0 == version & !VERSYM_HIDDEN);
            exports.push(Export {
                name: self.text(names.offset + self.number(at, 4)?)?.to_owned(),
                node: node.map_or(String::new(), |node| node.1.to_owned()),
                default: version & VERSYM_HIDDEN == 0,
                data: if info & 0xf == STT_OBJECT { Some(self.number(at + 16, 8)?) } else { None },
            });
        }
        Some(exports)
    }

    /// Number and name of each version that the library defines. The first entry is the library's
    /// own name and is left out.
    pub(crate) fn nodes(self) -> Option<Vec<(u64, &'a str)>> {
        let names = self.span(".dynstr")?;
        let mut at = self.span(".gnu.version_d")?.offset;
        let mut nodes = Vec::new();
        loop {
            let name = self.number(at + self.number(at + 12, 4)?, 4)?;
            const VER_FLG_BASE: u64 = 1;
            if self.number(at + 2, 2)? & VER_FLG_BASE == 0 {
                nodes.push((self.number(at + 4, 2)?, self.text(names.offset + name)?));
            }
            match self.number(at + 16, 4)? {
                0 => return Some(nodes),
                next => at += next,
            }
        }
    }

    /// Versions of other libraries' symbols that it needs.
    pub(crate) fn needed_nodes(self) -> Option<Vec<&'a str>> {
        let names = self.span(".dynstr")?;
        let mut library = self.span(".gnu.version_r")?.offset;
        let mut nodes = Vec::new();
        loop {
            let mut node = library + self.number(library + 8, 4)?;
            for _ in 0..self.number(library + 2, 2)? {
                nodes.push(self.text(names.offset + self.number(node + 8, 4)?)?);
                node += self.number(node + 12, 4)?;
            }
            match self.number(library + 12, 4)? {
                0 => return Some(nodes),
                next => library += next,
            }
        }
    }

    /// The entries of the dynamic segment.
    fn dynamic(self) -> Vec<(u64, u64)> {
        let Some(dynamic) = self.segments().find(|segment| segment.kind == PT_DYNAMIC) else {
            return Vec::new();
        };
        (dynamic.offset..dynamic.offset + dynamic.size)
            .step_by(16)
            .filter_map(|at| Some((self.number(at, 8)?, self.number(at + 8, 8)?)))
            .take_while(|entry| entry.0 != 0)
            .collect()
    }

    /// Texts that the entries with a tag refer to.
    fn dynamic_texts(self, tag: u64) -> Vec<&'a str> {
        let entries = self.dynamic();
        let strings = entries.iter().find(|entry| entry.0 == DT_STRTAB);
        let Some(strings) = strings.and_then(|&(_, address)| self.in_file(address)) else {
            return Vec::new();
        };
        let tagged = entries.iter().filter(|entry| entry.0 == tag);
        tagged.filter_map(|&(_, at)| self.text(strings + at)).collect()
    }

    /// Contents of a section.
    pub(crate) fn section(self, name: &str) -> Option<&'a [u8]> {
        let found = self.span(name)?;
        self.bytes.get(found.offset as usize..(found.offset + found.size) as usize)
    }

    /// Position of a section.
    fn span(self, name: &str) -> Option<Stretch> {
        let (start, size, count) = (self.number(40, 8)?, self.number(58, 2)?, self.number(60, 2)?);
        let section = |index: u64| {
            let at = start + index * size;
            Some(Stretch {
                name: self.number(at, 4)?,
                kind: self.number(at + 4, 4)? as u32,
                address: self.number(at + 16, 8)?,
                offset: self.number(at + 24, 8)?,
                size: self.number(at + 32, 8)?,
            })
        };
        let names = section(self.number(62, 2)?)?;
        let named = |one: &Stretch| self.text(names.offset + one.name) == Some(name);
        (0..count).filter_map(section).find(named)
    }

    fn segments(self) -> impl Iterator<Item = Stretch> {
        let number = move |at, width| self.number(at, width).unwrap_or(0);
        let (start, size, count) = (number(32, 8), number(54, 2), number(56, 2));
        (0..count).map(move |index| {
            let at = start + index * size;
            let kind = number(at, 4) as u32;
            let (offset, address, size) =
                (number(at + 8, 8), number(at + 16, 8), number(at + 32, 8));
            Stretch { kind, address, offset, size, name: 0 }
        })
    }

    /// Offset in the file of the byte that is loaded at an address.
    fn in_file(self, address: u64) -> Option<u64> {
        let mut loaded = self.segments().filter(|segment| segment.kind == PT_LOAD);
        let segment = loaded.find(|s| (s.address..s.address + s.size).contains(&address))?;
        Some(address - segment.address + segment.offset)
    }

    fn number(self, at: u64, width: usize) -> Option<u64> {
        let bytes = self.bytes.get(at as usize..at as usize + width)?;
        Some(bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte)))
    }

    fn text(self, at: u64) -> Option<&'a str> {
        let bytes = self.bytes.get(at as usize..)?;
        std::str::from_utf8(bytes.split(|&byte| byte == 0).next()?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_test_needs_the_c_library_and_a_loader() {
        let bytes = std::fs::read("/proc/self/exe").expect("this program");
        let elf = Elf::new(&bytes).expect("an ELF");
        assert!(elf.is_of_this_architecture());
        assert!(elf.needed().contains(&"libc.so.6"), "{:?}", elf.needed());
        assert!(elf.interpreter().expect("a loader").contains("ld-linux"));
        assert!(elf.section(".text").is_some_and(|text| !text.is_empty()));
        let nodes = elf.needed_nodes().expect("versions");
        assert!(nodes.contains(&"GLIBC_2.34") && nodes.contains(&"GCC_3.0"), "{nodes:?}");
        assert!(elf.section(".nothing").is_none());
    }

    #[test]
    fn non_elf_file_is_refused() {
        assert!(Elf::new(b"#!/bin/sh\n").is_none());
    }
}
