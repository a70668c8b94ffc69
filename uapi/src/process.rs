//! Telling a process from its children, without a system call where the kernel allows it.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::{process, sync::OnceLock};

use crate::{
    kernel::{Mapping, MemoryRequest},
    real,
};

/// The process in which this value was made.
///
/// A child that `fork` makes is told apart by a page which the kernel wipes in it (Linux 4.14);
/// where it cannot, by its number.
#[derive(Clone, Copy, Debug)]
pub struct Origin {
    /// The number of the process that it lies in, or zero in a child; `None` where no page is wiped.
    here: Option<&'static AtomicU32>,
    id: u32,
}

impl Origin {
    /// This process.
    pub fn here() -> Self {
        static PAGE: OnceLock<Option<Mapping>> = OnceLock::new();
        let id = process::id();
        let page = PAGE.get_or_init(|| real::wiped_in_children(&MemoryRequest::new(1)).ok());
        let here = page.as_ref().map(|page| {
            // SAFETY: the page stays mapped, for it is in a static that is never written again, is
            // aligned, and is used as this number alone.
            let word: &'static AtomicU32 = unsafe { page.as_non_null().cast().as_ref() };
            word.store(id, Relaxed);
            word
        });
        Self { here, id }
    }

    /// Whether this process is a child of the one in which the value was made.
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
        // SAFETY: the child touches nothing that another thread of the parent could hold, and ends.
        match unsafe { nix::unistd::fork() }.expect("fork") {
            nix::unistd::ForkResult::Child => {
                let left = origin.left();
                let again = Origin::here();
                let good = left && !again.left() && origin.left();
                // SAFETY: ends the child without running what the parent left to be run.
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
