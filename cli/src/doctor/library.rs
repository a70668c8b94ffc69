//! Which libibverbs a program in C would get.

use super::Finding;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const NAME: &str = "libibverbs.so.1";

pub(super) fn check() -> Finding {
    let folders = std::env::var_os("LD_LIBRARY_PATH");
    let cached = ["/sbin/ldconfig", "ldconfig"].iter().find_map(|program| {
        let output = Command::new(program).arg("-p").output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    });
    found(folders.as_deref(), cached.as_deref().unwrap_or_default())
}

/// What the loader takes: of the folders first, else what its cache has.
fn found(folders: Option<&OsStr>, cached: &str) -> Finding {
    let mut of_folders = folders.into_iter().flat_map(std::env::split_paths);
    let in_folder = of_folders.find_map(|folder| {
        let path = folder.join(NAME);
        path.exists().then_some(path)
    });
    let in_cache = || {
        let line = cached.lines().find(|line| line.trim_start().starts_with(NAME))?;
        line.split_once("=> ").map(|(_, path)| PathBuf::from(path.trim()))
    };
    match in_folder.or_else(in_cache) {
        None => Finding::fine("no libibverbs for programs in C; Rust programs need none"),
        Some(path) => {
            let whose = if is_ours(&path) { "this provider's" } else { "rdma-core's" };
            Finding::fine(format!("programs in C get {whose} libibverbs: {}", path.display()))
        }
    }
}

/// Ours has the symbols of libmlx5, too: the names of their versions are in the file.
fn is_ours(path: &Path) -> bool {
    const VERSION: &[u8] = b"\0MLX5_1.0\0";
    fs::read(path).is_ok_and(|file| file.windows(VERSION.len()).any(|bytes| bytes == VERSION))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_of_the_environment_comes_before_the_cache() {
        let cache = "\tlibibverbs.so.1 (libc6,x86-64) => /nowhere/libibverbs.so.1\n";
        assert!(found(None, "").text.starts_with("no libibverbs"));
        let text = found(None, cache).text;
        assert_eq!(text, "programs in C get rdma-core's libibverbs: /nowhere/libibverbs.so.1");

        let folder = std::env::temp_dir().join(format!("mlx5-doctor-ld-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        fs::write(folder.join(NAME), "\0IBVERBS_1.0\0").expect("a file");
        let whose = || found(Some(folder.as_os_str()), cache).text;
        let before = whose();
        fs::write(folder.join(NAME), "\0IBVERBS_1.0\0MLX5_1.0\0").expect("a file");
        let after = whose();
        fs::remove_dir_all(&folder).expect("the folder");
        assert!(before.starts_with("programs in C get rdma-core's"), "{before}");
        assert!(after.starts_with("programs in C get this provider's"), "{after}");
    }
}
