//! Fetches rdma-core's headers of the later of the two releases whose symbols the library has.

use std::path::PathBuf;

use crate::debian::apt::Apt;
use crate::debian::cache::{Cache, remove};
use crate::failure::Failure;

/// The suite of Debian that has release 56.
const SUITE: &str = "trixie";
const PACKAGE: &str = "libibverbs-dev";

/// Folder of the headers. They are fetched, not installed. If Debian's packages cannot be fetched,
/// prints that and returns `None`.
pub(super) fn newer() -> Result<Option<PathBuf>, Failure> {
    let cache = Cache::open("mlx5-headers")?;
    let part = cache.part(SUITE, |folder| {
        let lists = folder.join("apt");
        Apt::new(&lists, &[SUITE])?.unpack_one(None, PACKAGE, folder)?;
        remove(&lists)
    });
    match part {
        Ok(folder) => Ok(Some(folder.join("usr/include"))),
        Err(why @ (Failure::Unfetched(_) | Failure::Missing(_) | Failure::Run { .. })) => {
            println!("left out, programs of {SUITE}'s headers: {why}");
            Ok(None)
        }
        Err(why) => Err(why),
    }
}
