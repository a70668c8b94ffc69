//! The end of a process: reports its drivers' violations, and makes the process fail.
//!
//! `cargo xtask with-sim` names a file in which the processes of a program note that they failed in
//! this way. Its name ends with the number of the first process, which then fails as well.

use std::ffi::{c_int, c_void};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::OnceLock;

use crate::door::Door;
use crate::inside::Inside;
use crate::next::Symbol;
use crate::say;

/// The exit status of a process that would have succeeded without the violation: `EX_SOFTWARE` of
/// `sysexits.h`.
const STATUS: c_int = 70;

/// The environment variable that names the file.
const VARIABLE: &str = "MLX5_SIM_REPORT";

unsafe extern "C" {
    /// A function of glibc that the crate `libc` lacks.
    fn on_exit(function: unsafe extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
}

/// Runs before the program's code, so that its exit handler runs after all those of the program.
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

/// The file in which processes note that they failed, if there is one. It is found at the
/// beginning, as at the end of a forked child the environment may be locked for good.
static REPORT: OnceLock<Option<Report>> = OnceLock::new();

extern "C" fn begin() {
    REPORT.get_or_init(Report::new);
    // SAFETY: the function lives as long as the library, which is never unloaded.
    if unsafe { on_exit(end, ptr::null_mut()) } != 0 {
        say!("cannot hear of the end: out of memory");
    }
}

/// At the end of a process that returned from main or called exit(3).
unsafe extern "C" fn end(status: c_int, _: *mut c_void) {
    let told = status_of(status);
    if told != status {
        // SAFETY: the only exit handler left writes out the streams, as this call does.
        unsafe { libc::fflush(ptr::null_mut()) };
        end_for_good(told)
    }
}

/// For _exit(2).
pub(crate) fn leave(status: c_int) -> ! {
    end_for_good(status_of(status))
}

/// For the system call by number. Returns if there is nothing to change.
pub(crate) fn end_at_once<T>(status: c_int) -> Option<T> {
    let told = status_of(status);
    if told != status {
        end_for_good(told)
    }
    None
}

fn end_for_good(status: c_int) -> ! {
    static SYMBOL: Symbol = Symbol::new(c"_exit");
    type Function = unsafe extern "C" fn(c_int) -> !;
    // SAFETY: the type is libc's declaration of the function.
    let function = unsafe { std::mem::transmute::<*mut c_void, Function>(SYMBOL.address()) };
    // SAFETY: ends the process.
    unsafe { function(status) }
}

/// Reports the violations. Returns the exit status of a process that wants to end with `status`.
fn status_of(status: c_int) -> c_int {
    let violations = Door::violations();
    let _inside = Inside::enter();
    for violation in &violations {
        say!("violation: {violation}");
    }
    let mut failed = !violations.is_empty();
    if let Some(report) = REPORT.get().and_then(Option::as_ref) {
        if failed {
            report.note();
        }
        if report.is_of_the_first() {
            if !failed && report.is_noted() {
                say!("violation in a child process");
                failed = true;
            }
            report.remove();
        }
    }
    if failed && status & 0xff == 0 { STATUS } else { status }
}

/// The file in which processes note violations by drivers.
struct Report(PathBuf);

impl Report {
    fn new() -> Option<Self> {
        std::env::var_os(VARIABLE).map(|path| Self(path.into()))
    }

    fn note(&self) {
        let file = OpenOptions::new().append(true).open(&self.0);
        // It is gone if the first process has ended.
        let _ = file.and_then(|mut file| file.write_all(b"!"));
    }

    fn is_of_the_first(&self) -> bool {
        let number = format!("-{}", std::process::id());
        let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
        name(&self.0).is_some_and(|name| name.ends_with(&number))
    }

    fn is_noted(&self) -> bool {
        fs::metadata(&self.0).is_ok_and(|file| file.len() > 0)
    }

    fn remove(&self) {
        // Another process that cleans up may have removed it.
        let _ = fs::remove_file(&self.0);
    }
}
