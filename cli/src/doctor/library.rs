//! The libibverbs that a program in C would get.

use super::Finding;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const NAME: &str = "libibverbs.so.1";
/// The architecture in the loader cache's lines for libraries of this program's kind.
const ABI: &str = if cfg!(target_arch = "aarch64") { "AArch64" } else { "x86-64" };
/// The file that makes rdma-core's libibverbs load libmlx5.
const DRIVER: &str = "etc/libibverbs.d/mlx5.driver";
/// The program of this project's Debian package that selects one of the libraries for all programs.
const SWITCH: &str = "usr/sbin/mlx5-verbs-switch";

pub(super) fn check(root: &Path) -> Finding {
    let folders = std::env::var_os("LD_LIBRARY_PATH");
    let cached = ["/sbin/ldconfig", "ldconfig"].iter().find_map(|program| {
        let output = Command::new(program).arg("-p").output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    });
    found(root, folders.as_deref(), cached.as_deref().unwrap_or_default())
}

/// Finds the library that the loader takes: from the folders first, else from its cache.
fn found(root: &Path, folders: Option<&OsStr>, cached: &str) -> Finding {
    let mut of_folders = folders.into_iter().flat_map(std::env::split_paths);
    let in_folder = of_folders.find_map(|folder| {
        let path = folder.join(NAME);
        path.exists().then_some(path)
    });
    let in_cache = || {
        // A line is `NAME (libc6,ABI, ...) => PATH`.
        cached.lines().find_map(|line| {
            let (name, path) = line.trim().split_once(" => ")?;
            let abi = name.strip_prefix(NAME)?.trim().strip_prefix('(')?.strip_suffix(')')?;
            let fits = abi.split(',').any(|word| word.trim() == ABI);
            fits.then(|| PathBuf::from(path))
        })
    };
    let switch = root.join(SWITCH).exists();
    let of_all = in_folder.is_none();
    match in_folder.or_else(in_cache) {
        None => Finding::fine("no libibverbs for programs in C; Rust programs need none"),
        Some(path) if is_ours(&path) => Finding::fine(format!(
            "programs in C get this project's (Rust) libibverbs: {}{}",
            path.display(),
            if switch && of_all { "; `mlx5-verbs-switch c` gives them C's" } else { "" }
        )),
        // A library in a folder of its own may look for its drivers anywhere.
        Some(path) if of_all && !root.join(DRIVER).exists() => Finding::warning(
            format!(
                "rdma-core's libibverbs without ibverbs-providers: programs in C find no mlx5 \
                 device: {}",
                path.display()
            ),
            if switch {
                "`apt install ibverbs-providers`, or `mlx5-verbs-switch rust`"
            } else {
                "`apt install ibverbs-providers`, or what your distribution calls it"
            },
        ),
        Some(path) => Finding::fine(format!(
            "programs in C get rdma-core's libibverbs: {}{}",
            path.display(),
            if switch && of_all {
                "; `mlx5-verbs-switch rust` gives them this project's"
            } else {
                ""
            }
        )),
    }
}

/// Our library has the symbols of libmlx5, too: the names of their versions are in the file.
fn is_ours(path: &Path) -> bool {
    const VERSION: &[u8] = b"\0MLX5_1.0\0";
    fs::read(path).is_ok_and(|file| file.windows(VERSION.len()).any(|bytes| bytes == VERSION))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder that goes away with its test.
    struct Root(PathBuf);

    impl Root {
        fn new(name: &str) -> Self {
            let path =
                std::env::temp_dir().join(format!("mlx5-doctor-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).expect("a folder");
            Self(path)
        }

        fn with(&self, file: &str, text: &str) {
            let path = self.0.join(file);
            fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
            fs::write(path, text).expect("a file");
        }
    }

    impl Drop for Root {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn cache() -> String {
        format!("\tlibibverbs.so.1 (libc6,{ABI}) => /nowhere/libibverbs.so.1\n")
    }

    #[test]
    fn a_folder_of_the_environment_comes_before_the_cache() {
        let root = Root::new("ld");
        root.with(DRIVER, "");
        let cache = cache();
        assert!(found(&root.0, None, "").text.starts_with("no libibverbs"));
        let text = found(&root.0, None, &cache).text;
        assert_eq!(text, "programs in C get rdma-core's libibverbs: /nowhere/libibverbs.so.1");

        let whose = || found(&root.0, Some(root.0.as_os_str()), &cache).text;
        root.with(NAME, "\0IBVERBS_1.0\0");
        let before = whose();
        root.with(NAME, "\0IBVERBS_1.0\0MLX5_1.0\0");
        let after = whose();
        assert!(before.starts_with("programs in C get rdma-core's"), "{before}");
        assert!(after.starts_with("programs in C get this project's (Rust)"), "{after}");
    }

    #[test]
    fn a_library_of_another_architecture_is_passed_over() {
        let root = Root::new("abi");
        root.with(DRIVER, "");
        let other = "\tlibibverbs.so.1 (libc6) => /nowhere/i386/libibverbs.so.1\n";
        assert!(found(&root.0, None, other).text.starts_with("no libibverbs"));
        let text = found(&root.0, None, &format!("{other}{}", cache())).text;
        assert!(text.ends_with(": /nowhere/libibverbs.so.1"), "{text}");
    }

    #[test]
    fn one_without_drivers_is_warned_of() {
        let root = Root::new("providers");
        let finding = found(&root.0, None, &cache());
        assert_eq!(finding.level, crate::doctor::Level::Warning);
        assert!(finding.text.contains("without ibverbs-providers"), "{finding:?}");
        let remedy = finding.remedy.expect("what to do");
        assert!(!remedy.contains("mlx5-verbs-switch"), "it is not there: {remedy}");
        root.with(SWITCH, "");
        let remedy = found(&root.0, None, &cache()).remedy.expect("what to do");
        assert!(remedy.ends_with("or `mlx5-verbs-switch rust`"), "{remedy}");
        root.with(DRIVER, "driver mlx5\n");
        let text = found(&root.0, None, &cache()).text;
        assert!(text.ends_with("`mlx5-verbs-switch rust` gives them this project's"), "{text}");
    }
}
