//! Replacements of libc's functions, for the machine's files, paths and memory.

pub(crate) mod events;
pub(crate) mod files;
pub(crate) mod forward;
pub(crate) mod memory;
pub(crate) mod paths;
pub(crate) mod system_calls;
