//! Finds C's libraries where programs would find ours by themselves: the Debian package's switch
//! has selected ours for the whole system, or `LD_LIBRARY_PATH` names them.

use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::{env, fs};

use super::{LIBIBVERBS, LIBMLX5, in_file, point, with_library};
use crate::elf::Elf;
use crate::failure::Failure;

/// Lets a program find C's libraries, even where it would find ours by itself.
pub(crate) fn with_c_library(command: &mut Command) -> Result<(), Failure> {
    if let Some(folder) = c_folder()? {
        with_library(command, &folder);
    }
    Ok(())
}

/// A folder with nothing but C's libraries, if programs would find ours by themselves. C's own
/// folder also has other libraries, which a program may need from elsewhere.
pub(crate) fn c_folder() -> Result<Option<PathBuf>, Failure> {
    let folders = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let known = known(found(folders.as_ref(), &cached()));
    let Some((ours, others)) = after_ours(&known) else { return Ok(None) };
    let Some(theirs) = others.iter().find(|path| path.with_file_name(LIBMLX5).exists()) else {
        return Err(Failure::NotTaken(format!(
            "programs find this project's libraries here, by {}, and rdma-core's are not there: apt-get \
             install libibverbs1 ibverbs-providers, or give --provider rust where the task has it",
            ours.display()
        )));
    };
    let place = env::current_exe().map_err(in_file(Path::new("/proc/self/exe")))?;
    let folder = place.with_file_name("rdma-core");
    fs::create_dir_all(&folder).map_err(in_file(&folder))?;
    // Some programs load the libraries themselves, by the names without a number.
    for (name, library) in [
        (LIBIBVERBS, LIBIBVERBS),
        (LIBMLX5, LIBMLX5),
        ("libibverbs.so", LIBIBVERBS),
        ("libmlx5.so", LIBMLX5),
    ] {
        // Another task may do the same now. Renaming never leaves a link missing or incomplete.
        let partial = folder.join(format!("{name}.{}", process::id()));
        point(&partial, theirs.with_file_name(library))?;
        let path = folder.join(name);
        fs::rename(&partial, &path).map_err(in_file(&path))?;
    }
    Ok(Some(folder))
}

/// Contents of the loader's cache; empty if there is none.
fn cached() -> String {
    let listed = Command::new("/sbin/ldconfig").arg("-p").output();
    listed.map_or_else(
        |_| String::new(),
        |listed| String::from_utf8_lossy(&listed.stdout).into_owned(),
    )
}

/// All libibverbs that the loader knows, in its order: first the folders of `LD_LIBRARY_PATH`, then
/// its cache.
fn found(folders: &Path, cached: &str) -> Vec<PathBuf> {
    let folders = env::split_paths(folders).filter(|folder| !folder.as_os_str().is_empty());
    let cached = cached.lines().filter_map(|line| {
        let (name, path) = line.trim().split_once(" => ")?;
        name.starts_with(&format!("{LIBIBVERBS} (")).then(|| PathBuf::from(path))
    });
    folders.map(|folder| folder.join(LIBIBVERBS)).chain(cached).collect()
}

/// If the first of these libraries is ours: that one, and the ones that are not.
fn after_ours(known: &[(PathBuf, bool)]) -> Option<(&Path, Vec<&Path>)> {
    let [(first, true), others @ ..] = known else { return None };
    let theirs = others.iter().filter(|(_, ours)| !ours);
    Some((first, theirs.map(|(path, _)| path.as_path()).collect()))
}

/// The libraries that the loader does not skip, and whether each is ours.
fn known(found: Vec<PathBuf>) -> Vec<(PathBuf, bool)> {
    let known = found.into_iter().filter_map(|path| {
        let ours = is_ours(&fs::read(&path).ok()?)?;
        Some((path, ours))
    });
    known.collect()
}

/// Whether a libibverbs is ours, which is a libmlx5 as well; `None` for a file that the loader
/// skips.
pub(super) fn is_ours(library: &[u8]) -> Option<bool> {
    let elf = Elf::new(library).filter(|elf| elf.is_of_this_architecture())?;
    Some(elf.nodes()?.iter().any(|(_, node)| node.starts_with("MLX5_")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CACHED: &str = "3 libs found in cache `/etc/ld.so.cache'\n\
        \tlibibverbs.so.1 (libc6,x86-64) => /usr/lib/mlx5/libibverbs.so.1\n\
        \tlibibverbs.so.1 (libc6,x86-64) => /lib/libibverbs.so.1\n\
        \tlibibverbs.so (libc6,x86-64) => /lib/libibverbs.so\n";

    #[test]
    fn the_loader_takes_folders_of_the_environment_before_its_cache() {
        let in_cache = ["/usr/lib/mlx5/libibverbs.so.1", "/lib/libibverbs.so.1"].map(PathBuf::from);
        assert_eq!(found(Path::new(""), CACHED), in_cache);
        let all = found(Path::new("/a::/b"), CACHED);
        assert_eq!(all[..2], ["/a/libibverbs.so.1", "/b/libibverbs.so.1"].map(PathBuf::from));
        assert_eq!(all[2..], in_cache);
    }

    #[test]
    fn c_libraries_are_looked_for_only_behind_ours() {
        let libraries = |ours: &[bool]| -> Vec<(PathBuf, bool)> {
            ours.iter().zip('a'..).map(|(ours, name)| (format!("/{name}").into(), *ours)).collect()
        };
        for found_by_itself in [&[][..], &[false], &[false, true]] {
            assert_eq!(after_ours(&libraries(found_by_itself)), None, "{found_by_itself:?}");
        }
        let known = libraries(&[true, true, false, false]);
        let theirs = vec![Path::new("/c"), Path::new("/d")];
        assert_eq!(after_ours(&known), Some((Path::new("/a"), theirs)));
        assert_eq!(after_ours(&libraries(&[true])), Some((Path::new("/a"), vec![])));
    }

    #[test]
    fn a_library_that_no_program_can_take_is_passed_over() {
        let folder = env::temp_dir().join(format!("mlx5-theirs-{}", process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let text = folder.join("text");
        fs::write(&text, "no library").expect("a file");
        assert_eq!(known(vec![folder.join("missing"), text]), []);
        fs::remove_dir_all(&folder).expect("the folder");
    }

    #[test]
    fn the_c_library_here_is_not_ours() {
        let here = known(found(Path::new(""), &cached()));
        let Some((path, ours)) = here.iter().find(|(path, _)| !path.starts_with("/usr/lib/mlx5"))
        else {
            println!("skipped: C's libibverbs is not installed");
            return;
        };
        assert!(!ours, "{}", path.display());
    }
}
