//! Parses the output of `dpkg-deb --contents`: one entry per line, in the form of tar.

/// A file, folder or link of a package.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Entry {
    /// Mode, like `-rwxr-xr-x`; the first letter is `d` for a folder and `l` for a link.
    pub(super) mode: String,
    pub(super) owner: String,
    pub(super) size: u64,
    /// Path without the leading `./`, and without the trailing `/` of a folder.
    pub(super) path: String,
}

impl Entry {
    /// Parses the list; `None` if a line is not as expected.
    pub(super) fn all(list: &str) -> Option<Vec<Self>> {
        list.lines().map(Self::new).collect()
    }

    fn new(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace();
        let (mode, owner) = (words.next()?.to_owned(), words.next()?.to_owned());
        let size = words.next()?.parse().ok()?;
        let path = words.nth(2)?.trim_end_matches('/');
        let path = path.strip_prefix("./").unwrap_or(if path == "." { "" } else { path });
        Some(Self { mode, owner, size, path: path.to_owned() })
    }

    pub(super) fn is_file(&self) -> bool {
        self.mode.starts_with('-')
    }

    /// Size in KiB, in Debian's way of counting.
    pub(super) fn kilobytes(&self) -> u64 {
        if self.is_file() { self.size.div_ceil(1024) } else { 1 }
    }
}
