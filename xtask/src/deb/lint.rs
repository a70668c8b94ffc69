//! Checks the package against Debian's policy.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use super::entry::Entry;
use super::{NAME, says};
use crate::debian::cache::{make, remove};
use crate::failure::Failure;

/// Fails with all faults.
pub(super) fn run(package: &Path) -> Result<(), Failure> {
    let dpkg = |what: &str| says(Command::new("dpkg-deb").arg(what).arg(package));
    let control = dpkg("--field")?;
    let list = dpkg("--contents")?;
    let entries = Entry::all(&list).ok_or_else(|| Failure::Output {
        program: "dpkg-deb".into(),
        what: "a list of contents in an unknown form".into(),
    })?;
    let folder = package.with_extension("unpacked");
    remove(&folder)?;
    make(&folder)?;
    says(Command::new("dpkg-deb").arg("--raw-extract").arg(package).arg(&folder))?;
    let sums = folder.join("DEBIAN/md5sums");
    let text = String::from_utf8_lossy(&super::read(&sums)?).into_owned();
    let mut faults = faults(&control, &entries, &text);
    let mut compare = Command::new("md5sum");
    compare.args(["--check", "--strict", "--quiet", "DEBIAN/md5sums"]).current_dir(&folder);
    if let Err(failure) = says(&mut compare) {
        faults.push(format!("sums: {failure}"));
    }
    for entry in entries.iter().filter(|entry| entry.path.ends_with(".gz")) {
        if let Err(failure) = says(Command::new("gzip").arg("--test").arg(folder.join(&entry.path)))
        {
            faults.push(format!("{}: {failure}", entry.path));
        }
    }
    remove(&folder)?;
    if faults.is_empty() {
        println!("{} entries, as Debian's policy wants them", entries.len());
        return Ok(());
    }
    Err(Failure::Package(faults))
}

/// Faults of a package with this control file, these contents and these sums.
fn faults(control: &str, entries: &[Entry], sums: &str) -> Vec<String> {
    let mut faults = of_control(control);
    let size: u64 = entries.iter().map(Entry::kilobytes).sum();
    if field(control, "Installed-Size").and_then(|said| said.parse().ok()) != Some(size) {
        faults.push(format!("its Installed-Size is not {size}"));
    }
    for entry in entries {
        faults.extend(of_entry(entry).into_iter().map(|fault| format!("{}: {fault}", entry.path)));
    }
    let files = entries.iter().filter(|entry| entry.is_file()).map(|entry| &*entry.path);
    let files: BTreeSet<&str> = files.collect();
    let summed: BTreeSet<&str> = sums.lines().filter_map(|line| line.get(34..)).collect();
    let differing = files.symmetric_difference(&summed);
    faults.extend(differing.map(|path| format!("{path}: not both in the package and in md5sums")));
    for (folder, section) in [("usr/bin/", 1), ("usr/sbin/", 8)] {
        for name in files.iter().filter_map(|path| path.strip_prefix(folder)) {
            let page = format!("usr/share/man/man{section}/{name}.{section}.gz");
            if !files.contains(&*page) {
                faults.push(format!("{folder}{name}: there is no {page}"));
            }
        }
    }
    for name in ["copyright", "changelog.gz", "changelog.Debian.gz"] {
        if !files.contains(&*format!("usr/share/doc/{NAME}/{name}")) {
            faults.push(format!("usr/share/doc/{NAME} has no {name}"));
        }
    }
    faults
}

fn of_control(control: &str) -> Vec<String> {
    const FIELDS: [&str; 9] = [
        "Package",
        "Version",
        "Architecture",
        "Maintainer",
        "Installed-Size",
        "Depends",
        "Section",
        "Priority",
        "Description",
    ];
    let missing = FIELDS.into_iter().filter(|name| field(control, name).is_none());
    let mut faults: Vec<String> = missing.map(|name| format!("no field {name}")).collect();
    let is_person = |said: &str| {
        let (name, rest) = said.split_once(" <").unwrap_or_default();
        !name.is_empty() && rest.contains('@') && rest.ends_with('>')
    };
    if !field(control, "Maintainer").is_some_and(is_person) {
        faults.push("its Maintainer is no \"NAME <ADDRESS>\"".into());
    }
    let synopsis = field(control, "Description").unwrap_or_default();
    if synopsis.len() > 80 || synopsis.ends_with('.') || synopsis.starts_with(NAME) {
        faults.push("its synopsis is long, a sentence, or begins with its name".into());
    }
    let (_, extended) = control.split_once("\nDescription:").unwrap_or_default();
    let lines = extended.lines().skip(1);
    if lines.clone().count() == 0 || lines.clone().any(|line| !line.starts_with(' ')) {
        faults.push("its description ends behind the synopsis".into());
    }
    faults.extend(lines.filter(|line| line.len() > 81).map(|line| format!("too long: {line}")));
    faults
}

fn of_entry(entry: &Entry) -> Vec<String> {
    let mut faults = Vec::new();
    if entry.owner != "root/root" {
        faults.push(format!("it belongs to {}", entry.owner));
    }
    if !["", "usr"].contains(&&*entry.path) && !entry.path.starts_with("usr/") {
        faults.push("it lies outside of /usr".into());
    }
    let is_program = ["usr/bin/", "usr/sbin/"].iter().any(|folder| entry.path.starts_with(folder));
    let mode = match &entry.mode[..1] {
        "d" => "drwxr-xr-x",
        "l" => "lrwxrwxrwx",
        _ if is_program => "-rwxr-xr-x",
        _ => "-rw-r--r--",
    };
    if entry.mode != mode {
        faults.push(format!("its mode is {} and not {mode}", entry.mode));
    }
    if entry.path.starts_with("usr/share/man/") && entry.is_file() && !entry.path.ends_with(".gz") {
        faults.push("it is not compressed".into());
    }
    faults
}

/// The first line of a field.
fn field<'a>(control: &'a str, name: &str) -> Option<&'a str> {
    let line = control.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))?;
    Some(line).filter(|line| !line.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTROL: &str = "Package: mlx5\nVersion: 1-1\nArchitecture: amd64\n\
                           Maintainer: A <a@b.example>\nInstalled-Size: 18\nDepends: libc6\n\
                           Section: net\nPriority: optional\nDescription: a driver\n It drives.\n";
    const LIST: &str = "\
drwxr-xr-x root/root         0 2026-11-23 06:34 ./
drwxr-xr-x root/root         0 2026-11-23 06:34 ./usr/
drwxr-xr-x root/root         0 2026-11-23 06:34 ./usr/bin/
-rwxr-xr-x root/root     10000 2026-11-23 06:34 ./usr/bin/mlx5
-rw-r--r-- root/root        90 2026-11-23 06:34 ./usr/share/doc/mlx5/changelog.Debian.gz
-rw-r--r-- root/root        90 2026-11-23 06:34 ./usr/share/doc/mlx5/changelog.gz
-rw-r--r-- root/root        90 2026-11-23 06:34 ./usr/share/doc/mlx5/copyright
-rw-r--r-- root/root        90 2026-11-23 06:34 ./usr/share/man/man1/mlx5.1.gz
lrwxrwxrwx root/root         0 2026-11-23 06:34 ./usr/lib/mlx5/libmlx5.so.1 -> libibverbs.so.1
";

    /// Faults of a package that differs from a good one by one text in its list or its control
    /// file.
    fn of(old: &str, new: &str) -> Vec<String> {
        let (list, control) = (LIST.replacen(old, new, 1), CONTROL.replacen(old, new, 1));
        assert_eq!(old == new, list == LIST && control == CONTROL, "{old} is not there");
        let sums: String = Entry::all(LIST)
            .expect("a list")
            .iter()
            .filter(|entry| entry.is_file())
            .map(|entry| format!("{}  {}\n", "0".repeat(32), entry.path))
            .collect();
        faults(&control, &Entry::all(&list).expect("a list"), &sums)
    }

    #[test]
    fn a_good_package_has_no_faults() {
        assert_eq!(of("", ""), [""; 0]);
    }

    #[test]
    fn each_fault_is_reported() {
        for (old, new, says) in [
            ("-rwxr-xr-x root/root     1", "-rwsr-xr-x root/root     1", "its mode is -rwsr-xr-x"),
            ("-rwxr-xr-x root/root", "-rwxr-xr-x seed/root", "it belongs to seed/root"),
            ("./usr/bin/mlx5\n", "./etc/mlx5\n", "outside of /usr"),
            ("./usr/bin/mlx5\n", "./usr/bin/other\n", "no usr/share/man/man1/other.1.gz"),
            ("man1/mlx5.1.gz", "man1/mlx5.1", "it is not compressed"),
            ("doc/mlx5/copyright", "doc/mlx5/copying", "no copyright"),
            ("doc/mlx5/copyright", "doc/mlx5/copying", "not both in the package and in md5sums"),
            ("     10000 ", "     10241 ", "Installed-Size is not 19"),
            ("Installed-Size: 18", "Installed-Size: 17", "Installed-Size is not 18"),
            ("Depends: libc6\n", "", "no field Depends"),
            ("A <a@b.example>", "A", "no \"NAME <ADDRESS>\""),
            ("a driver\n", "a driver.\n", "a sentence"),
            (" It drives.\n", "", "ends behind the synopsis"),
        ] {
            let faults = of(old, new);
            assert!(faults.iter().any(|fault| fault.contains(says)), "{new:?}: {faults:?}");
        }
    }
}
