//! The little of ELF that is needed: what a program needs to run, and what a module says of itself.
//! Offsets are those of `Elf64_Ehdr`, `Elf64_Phdr`, `Elf64_Shdr` and `Elf64_Dyn` in elf.h.

/// An ELF file of 64 bits and little ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Elf<'a> {
    bytes: &'a [u8],
}

/// A stretch of a file.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    kind: u32,
    address: u64,
    offset: u64,
    size: u64,
    /// A section's name; nothing of a segment.
    name: u64,
}

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_INTERP: u32 = 3;
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;

impl<'a> Elf<'a> {
    /// Looks at a file; nothing if it is no such ELF.
    pub(super) fn new(bytes: &'a [u8]) -> Option<Self> {
        let magic = bytes.len() >= 64 && bytes.starts_with(b"\x7fELF\x02\x01");
        magic.then_some(Self { bytes })
    }

    /// The loader that the program asks for; nothing if it needs none.
    pub(super) fn interpreter(self) -> Option<&'a str> {
        let segment = self.segments().find(|segment| segment.kind == PT_INTERP)?;
        self.text(segment.offset)
    }

    /// The names of the libraries that it needs.
    pub(super) fn needed(self) -> Vec<&'a str> {
        let Some(dynamic) = self.segments().find(|segment| segment.kind == PT_DYNAMIC) else {
            return Vec::new();
        };
        let entries: Vec<(u64, u64)> = (dynamic.offset..dynamic.offset + dynamic.size)
            .step_by(16)
            .filter_map(|at| Some((self.number(at, 8)?, self.number(at + 8, 8)?)))
            .take_while(|entry| entry.0 != 0)
            .collect();
        let strings = entries.iter().find(|entry| entry.0 == DT_STRTAB);
        let Some(strings) = strings.and_then(|&(_, address)| self.in_file(address)) else {
            return Vec::new();
        };
        let needed = entries.iter().filter(|entry| entry.0 == DT_NEEDED);
        needed.filter_map(|&(_, at)| self.text(strings + at)).collect()
    }

    /// What a section holds.
    pub(super) fn section(self, name: &str) -> Option<&'a [u8]> {
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
        let found = (0..count).filter_map(section).find(named)?;
        self.bytes.get(found.offset as usize..(found.offset + found.size) as usize)
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

    /// Where in the file an address is loaded from.
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
        assert!(elf.needed().contains(&"libc.so.6"), "{:?}", elf.needed());
        assert!(elf.interpreter().expect("a loader").contains("ld-linux"));
        assert!(elf.section(".text").is_some_and(|text| !text.is_empty()));
        assert!(elf.section(".nothing").is_none());
    }

    #[test]
    fn what_is_no_elf_is_refused() {
        assert!(Elf::new(b"#!/bin/sh\n").is_none());
    }
}
