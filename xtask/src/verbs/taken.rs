//! Checks that a program will use the library that the environment names.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use super::{LIBIBVERBS, LIBMLX5, in_file, with_library};
use crate::elf::Elf;
use crate::failure::Failure;
use crate::program;

/// Fails if `program` cannot use the library in `folder`, with advice. Does not cover a program
/// that loads the library later, or that starts another program.
pub(crate) fn takes(program: &Path, folder: &Path) -> Result<(), Failure> {
    let Some(path) = program::found(program) else { return Ok(()) };
    let bytes = fs::read(&path).map_err(in_file(&path))?;
    // A script needs an interpreter, which this does not check.
    let Some(elf) = Elf::new(&bytes) else { return Ok(()) };
    let name = path.display();
    let refused = |why: String| Err(Failure::NotTaken(format!("{name} {why}")));
    let Some(loader) = elf.interpreter() else {
        return refused(
            "is linked statically: it has its own libibverbs; link it dynamically".into(),
        );
    };
    const SET_USER_OR_GROUP: u32 = 0o6000;
    let mode = fs::metadata(&path).map_err(in_file(&path))?.permissions().mode();
    if mode & SET_USER_OR_GROUP != 0 {
        return refused(
            "changes its user or group, so the loader ignores LD_LIBRARY_PATH; run a copy that does \
             not, as that user"
                .into(),
        );
    }
    let mut command = Command::new(loader);
    command.arg("--list").arg(&path);
    with_library(&mut command, folder);
    let output =
        command.output().map_err(|error| Failure::Run { program: loader.to_owned(), error })?;
    let listed = String::from_utf8_lossy(&output.stdout);
    match elsewhere(&listed, folder) {
        None => Ok(()),
        Some(other) => refused(format!(
            "takes {other} instead, so it names a folder for its libraries (RPATH); remove that, as \
             with patchelf --remove-rpath"
        )),
    }
}

/// Path of a library that the loader takes from another folder, if there is one.
fn elsewhere<'a>(listed: &'a str, folder: &Path) -> Option<&'a str> {
    listed.lines().find_map(|line| {
        let (name, rest) = line.trim().split_once(" => ")?;
        let path = rest.split(" (").next()?;
        let one_of_ours = [LIBIBVERBS, LIBMLX5].contains(&name);
        (one_of_ours && Path::new(path) != folder.join(name)).then_some(path)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::env;

    #[test]
    fn library_from_another_folder_is_reported_and_ours_is_not() {
        let listed = "\tlinux-vdso.so.1 (0x1)\n\tlibibverbs.so.1 => /ours/libibverbs.so.1 (0x2)\n\
                      \tlibmlx5.so.1 => /theirs/libmlx5.so.1 (0x3)\n\tlibc.so.6 => /lib/libc.so.6 (0x4)\n";
        assert_eq!(elsewhere(listed, Path::new("/ours")), Some("/theirs/libmlx5.so.1"));
        let ours = listed.replace("/theirs", "/ours");
        assert_eq!(elsewhere(&ours, Path::new("/ours")), None);
        assert_eq!(elsewhere("\tlibc.so.6 => /lib/libc.so.6 (0x4)\n", Path::new("/ours")), None);
    }

    #[test]
    fn a_program_that_changes_its_user_is_refused() {
        let program = env::temp_dir().join(format!("mlx5-setuid-{}", std::process::id()));
        fs::copy("/proc/self/exe", &program).expect("a copy of this program");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).expect("a mode");
        let answer = takes(&program, Path::new("/nonexistent"));
        fs::remove_file(&program).expect("the copy");
        let Err(Failure::NotTaken(why)) = answer else { panic!("{answer:?}") };
        assert!(why.contains("changes its user"), "{why}");
        takes(Path::new("/proc/self/exe"), Path::new("/nonexistent")).expect("an ordinary program");
    }
}
