//! Finds the programs that users name.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::{env, fs};

use crate::failure::Failure;

/// The file that a shell would run for a program of this name.
pub(crate) fn found(program: &Path) -> Option<PathBuf> {
    if program.components().count() > 1 {
        return Some(program.to_owned()).filter(|path| path.is_file());
    }
    let folders = env::var_os("PATH")?;
    env::split_paths(&folders).map(|folder| folder.join(program)).find(|path| can_run(path))
}

fn can_run(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

/// Fails if there is no such program, with the command that installs it.
pub(crate) fn is_there(program: &OsStr) -> Result<(), Failure> {
    if found(Path::new(program)).is_some() {
        return Ok(());
    }
    let name = program.to_string_lossy();
    Err(Failure::Unknown(match package(&name) {
        _ if name.contains('/') => format!("there is no program {name}"),
        Some(package) => format!("there is no program {name} in PATH: apt-get install {package}"),
        None => {
            format!("there is no program {name} in PATH; give the path of one that is elsewhere")
        }
    }))
}

/// Debian's package of one of the RDMA programs.
fn package(name: &str) -> Option<&'static str> {
    const CONNECTED: [&str; 13] = [
        "cmtime",
        "mckey",
        "rcopy",
        "rdma_client",
        "rdma_server",
        "rdma_xclient",
        "rdma_xserver",
        "riostream",
        "rping",
        "rstream",
        "ucmatose",
        "udaddy",
        "udpong",
    ];
    let starts = |prefix| name.starts_with(prefix);
    match name {
        _ if starts("ibv_") => Some("ibverbs-utils"),
        _ if starts("ib_") || starts("raw_ethernet_") => Some("perftest"),
        _ if starts("ucx_") => Some("ucx-utils"),
        _ if CONNECTED.contains(&name) => Some("rdmacm-utils"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(program: &str) -> String {
        is_there(OsStr::new(program)).expect_err("there is no such program").to_string()
    }

    #[test]
    fn a_program_is_found_by_name_and_by_path() {
        assert!(found(Path::new("sh")).expect("a shell").ends_with("sh"));
        is_there(OsStr::new("sh")).expect("a shell");
        is_there(OsStr::new("/proc/self/exe")).expect("this program");
    }

    #[test]
    fn file_that_is_no_program_is_not_found() {
        for path in ["/proc", "/nowhere/sh"] {
            assert_eq!(found(Path::new(path)), None, "{path}");
        }
        assert!(!can_run(Path::new("/proc/self/status")));
    }

    #[test]
    fn error_of_a_missing_program_names_its_package() {
        for (program, package) in [
            ("ibv_nothing", "ibverbs-utils"),
            ("ib_nothing_bw", "perftest"),
            ("raw_ethernet_nothing", "perftest"),
            ("ucx_nothing", "ucx-utils"),
        ] {
            let text = format!("there is no program {program} in PATH: apt-get install {package}");
            assert_eq!(refused(program), text);
        }
        assert_eq!(package("rping"), Some("rdmacm-utils"));
        assert!(refused("no-such-program").ends_with("give the path of one that is elsewhere"));
        assert_eq!(refused("/nowhere/ibv_devinfo"), "there is no program /nowhere/ibv_devinfo");
    }
}
