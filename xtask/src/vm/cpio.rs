//! Writes the archive that the kernel unpacks as its first root: cpio in the "newc" form, described
//! in the kernel's Documentation/driver-api/early-userspace/buffer-format.rst.

/// Name of the entry that ends an archive.
const TRAILER: &str = "TRAILER!!!";

const FOLDER: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
const LINK: u32 = 0o120_000;
const CHARACTER_DEVICE: u32 = 0o020_000;

/// An archive under construction.
#[derive(Debug, Default)]
pub(super) struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

impl Archive {
    /// Adds a folder; its parents must be there.
    pub(super) fn folder(&mut self, name: &str) {
        self.entry(name, FOLDER | 0o755, (0, 0), &[]);
    }

    /// Adds a file.
    pub(super) fn file(&mut self, name: &str, content: &[u8]) {
        self.entry(name, FILE | 0o755, (0, 0), content);
    }

    /// Adds a symbolic link.
    pub(super) fn link(&mut self, name: &str, target: &str) {
        self.entry(name, LINK | 0o777, (0, 0), target.as_bytes());
    }

    /// Adds a character device.
    pub(super) fn device(&mut self, name: &str, major: u32, minor: u32) {
        self.entry(name, CHARACTER_DEVICE | 0o600, (major, minor), &[]);
    }

    /// Ends the archive.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.entry(TRAILER, 0, (0, 0), &[]);
        self.bytes
    }

    /// Adds an entry: thirteen numbers of eight hexadecimal digits, the name, and the content, the
    /// last two padded to four bytes.
    fn entry(&mut self, name: &str, mode: u32, device: (u32, u32), content: &[u8]) {
        self.entries += 1;
        let length = u32::try_from(content.len()).expect("a file of less than 4 GiB");
        let named = u32::try_from(name.len() + 1).expect("a short name");
        let numbers = [self.entries, mode, 0, 0, 1, 0, length, 0, 0, device.0, device.1, named, 0];
        self.bytes.extend_from_slice(b"070701");
        for number in numbers {
            self.bytes.extend_from_slice(format!("{number:08X}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.fill();
        self.bytes.extend_from_slice(content);
        self.fill();
    }

    fn fill(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_a_header_a_name_and_content_each_filled_to_four_bytes() {
        let mut archive = Archive::default();
        archive.file("a/b", b"hello");
        let bytes = archive.finish();
        let header = "070701000000010\
                      00081ED000000000000000000000001000000000000000500000000000000000000000000000000\
                      0000000400000000";
        assert_eq!(&bytes[..110], header.as_bytes());
        assert_eq!(&bytes[110..124], b"a/b\0\0\0hello\0\0\0");
        assert!(bytes[124..].starts_with(b"070701"));
        assert!(bytes.len().is_multiple_of(4));
    }
}
