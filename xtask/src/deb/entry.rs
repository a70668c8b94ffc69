//! What `dpkg-deb --contents` says of a package: an entry a line, as tar lists archives.

/// A file, folder or link of a package.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Entry {
    /// As `-rwxr-xr-x`; the first letter is `d` of a folder and `l` of a link.
    pub(super) mode: String,
    pub(super) owner: String,
    pub(super) size: u64,
    /// Without the `./` in front, and without the `/` behind a folder.
    pub(super) path: String,
}

impl Entry {
    /// Reads the list; none if a line is not as expected.
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

    /// What it takes in KiB, as Debian counts.
    pub(super) fn kilobytes(&self) -> u64 {
        if self.is_file() { self.size.div_ceil(1024) } else { 1 }
    }
}
