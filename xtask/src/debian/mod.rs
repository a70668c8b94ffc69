//! Debian's packages, unpacked into the user's cache: nothing is installed.

pub(crate) mod apt;
pub(crate) mod cache;
pub(crate) mod root;
