//! Logs why a call was refused, with `VERBS_LOG_LEVEL=4`, to standard error or to `VERBS_LOG_FILE`.

use std::env;
use std::fmt::Display;
use std::fs::{File, OpenOptions};
use std::io::{Write, stderr};
use std::sync::OnceLock;

/// `VERBS_LOG_DEBUG`, of rdma-core's levels.
const DEBUG: u32 = 4;

/// The destination of the log.
enum Log {
    Nowhere,
    Stderr,
    File(File),
}

impl Log {
    fn open() -> Self {
        let level = env::var("VERBS_LOG_LEVEL").ok().and_then(|level| level.parse().ok());
        if level.is_none_or(|level: u32| level < DEBUG) {
            return Self::Nowhere;
        }
        let Some(path) = env::var_os("VERBS_LOG_FILE") else { return Self::Stderr };
        let file = OpenOptions::new().create(true).append(true).open(path);
        file.map_or(Self::Stderr, Self::File)
    }
}

/// Logs why a call was refused, if the log is on.
#[cold]
pub(crate) fn refused(why: &impl Display) {
    static LOG: OnceLock<Log> = OnceLock::new();
    // A failed write is ignored: the call has its errno.
    let _ = match LOG.get_or_init(Log::open) {
        Log::Nowhere => Ok(()),
        Log::Stderr => writeln!(stderr(), "libibverbs: {why}"),
        Log::File(file) => writeln!(&*file, "libibverbs: {why}"),
    };
}
