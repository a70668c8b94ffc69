//! The cores that this process may use, and pinning of threads.

use std::mem::{MaybeUninit, size_of};

/// The cores that this thread may use.
pub(crate) fn usable() -> Vec<usize> {
    let set = affinity();
    // SAFETY: `core` is less than `CPU_SETSIZE`, the number of bits in the set.
    let may = |core: &usize| unsafe { libc::CPU_ISSET(*core, &set) };
    let cores: Vec<usize> = (0..libc::CPU_SETSIZE as usize).filter(may).collect();
    if cores.is_empty() { vec![0] } else { cores }
}

/// Model of the processor, from `/proc/cpuinfo`.
pub(crate) fn model() -> String {
    let said = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = said.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    model.map_or_else(|| "a CPU of unknown model".to_owned(), |(_, model)| model.to_owned())
}

/// Keeps the thread on one core until this is dropped.
pub(crate) struct Pinned(libc::cpu_set_t);

/// Pins this thread to a core.
pub(crate) fn pin(core: usize) -> Pinned {
    let before = affinity();
    // SAFETY: zeros are a valid `cpu_set_t` (the empty set), and `core` comes from [`usable`], so
    // it is less than `CPU_SETSIZE`.
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
    // SAFETY: the kernel writes at most `size_of::<cpu_set_t>()` bytes into `set`, and zeros are a
    // valid set if it writes none.
    unsafe {
        libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), set.as_mut_ptr());
        set.assume_init()
    }
}

/// Ignores an error: a thread that cannot be pinned runs on any core.
fn set(set: &libc::cpu_set_t) {
    // SAFETY: `set` is a reference, so the kernel can read `size_of::<cpu_set_t>()` bytes of it.
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
