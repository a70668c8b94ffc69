//! Detecting a fork, without a system call where the kernel allows it.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::{process, sync::OnceLock};

use crate::{
    kernel::{Mapping, MemoryRequest},
    real,
};

/// The process in which this value was created.
///
/// A child of `fork` is detected by a page that the kernel wipes in the child (Linux 4.14), or, if
/// the kernel cannot do that, by its process ID.
#[derive(Clone, Copy, Debug)]
pub struct Origin {
    /// Holds the ID of the process, or zero in a child; `None` if the kernel does not wipe pages.
    here: Option<&'static AtomicU32>,
    id: u32,
}

impl Origin {
    /// Returns this process.
    pub fn here() -> Self {
        static PAGE: OnceLock<Option<Mapping>> = OnceLock::new();
        let id = process::id();
        let page = PAGE.get_or_init(|| real::wiped_in_children(&MemoryRequest::new(1)).ok());
        let here = page.as_ref().map(|page| {
            // SAFETY: the page stays mapped, because it is in a static that is never written again.
            // It is aligned, and is used only as this atomic number.
            let word: &'static AtomicU32 = unsafe { page.as_non_null().cast().as_ref() };
            word.store(id, Relaxed);
            word
        });
        Self { here, id }
    }

    /// Returns whether this process is a child of the one in which the value was created.
    #[inline]
    pub fn left(&self) -> bool {
        let id = match self.here {
            Some(here) => here.load(Relaxed),
            None => process::id(),
        };
        id != self.id
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_where_it_was_made() {
        let (first, second) = (Origin::here(), Origin::here());
        assert!(!first.left() && !second.left());
        assert!(Origin { here: None, id: first.id + 1 }.left());
        assert!(!Origin { here: None, id: first.id }.left());
    }

    #[test]
    fn a_child_knows_and_is_an_origin_of_its_own() {
        let origin = Origin::here();
        // SAFETY: the child uses nothing that another thread of the parent could hold, and exits.
        match unsafe { nix::unistd::fork() }.expect("fork") {
            nix::unistd::ForkResult::Child => {
                let left = origin.left();
                let again = Origin::here();
                let good = left && !again.left() && origin.left();
                // SAFETY: ends the child, without running the parent's exit handlers.
                unsafe { nix::libc::_exit(if good { 0 } else { 1 }) }
            }
            nix::unistd::ForkResult::Parent { child } => {
                let status = nix::sys::wait::waitpid(child, None).expect("waitpid");
                assert_eq!(status, nix::sys::wait::WaitStatus::Exited(child, 0));
                assert!(!origin.left());
            }
        }
    }
}
