//! The cores that this process may use, and threads that stay on one.

use std::mem::{MaybeUninit, size_of};

/// The cores that this thread may use.
pub(crate) fn usable() -> Vec<usize> {
    let set = affinity();
    // SAFETY: every number is below the size of the set.
    let may = |core: &usize| unsafe { libc::CPU_ISSET(*core, &set) };
    let cores: Vec<usize> = (0..libc::CPU_SETSIZE as usize).filter(may).collect();
    if cores.is_empty() { vec![0] } else { cores }
}

/// What this machine says that its processor is.
pub(crate) fn model() -> String {
    let said = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = said.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    model.map_or_else(|| "a CPU of unknown model".to_owned(), |(_, model)| model.to_owned())
}

/// A thread that stays on one core until this is dropped.
pub(crate) struct Pinned(libc::cpu_set_t);

/// Keeps this thread on a core.
pub(crate) fn pin(core: usize) -> Pinned {
    let before = affinity();
    // SAFETY: a set of zeros is an empty one, and the number is one of a set.
    let one = unsafe {
        let mut one: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(core, &mut one);
        one
    };
    set(&one);
    Pinned(before)
}

impl Drop for Pinned {
    fn drop(&mut self) {
        set(&self.0);
    }
}

fn affinity() -> libc::cpu_set_t {
    let mut set = MaybeUninit::zeroed();
    // SAFETY: there is room for a set, and a set of zeros is an empty one.
    unsafe {
        libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), set.as_mut_ptr());
        set.assume_init()
    }
}

/// A thread that cannot be kept there runs where it may.
fn set(set: &libc::cpu_set_t) {
    // SAFETY: the set is valid.
    unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), set) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_thread_may_use_one_core_and_then_all_again() {
        let before = usable();
        let pinned = pin(before[0]);
        assert_eq!(usable(), [before[0]]);
        drop(pinned);
        assert_eq!(usable(), before);
    }
}
