//! The time and memory that the simulated kernel takes of its program. A measurement of a provider
//! subtracts them.

use std::fs::File;
use std::io::Read;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::inside::Inside;

/// Nanoseconds inside calls.
static TIME: AtomicU64 = AtomicU64::new(0);

/// Whether the program has asked for memory: reading the maps takes far longer than a call.
static ASKED: AtomicBool = AtomicBool::new(false);

/// The memory that calls have left allocated since.
static MEMORY: Mutex<Option<Ledger>> = Mutex::new(None);

fn ledger() -> MutexGuard<'static, Option<Ledger>> {
    MEMORY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Bytes that a process holds.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
#[repr(C)]
pub(crate) struct Held {
    /// Bytes on the heap, without large pieces that are mapped separately.
    heap: i64,
    /// Bytes of anonymous mappings.
    mapped: i64,
}

impl Held {
    fn change(self, to: Self, sign: i64) -> Self {
        Self { heap: self.heap + sign * to.heap, mapped: self.mapped + sign * to.mapped }
    }
}

/// The memory that the simulated kernel has taken so far.
#[derive(Default)]
struct Ledger {
    taken: Held,
    /// Room for the kernel's text about this process, so that reading it allocates no memory.
    text: Vec<u8>,
}

impl Ledger {
    /// Longer than any text about a process that is measured.
    const TEXT: usize = 1 << 20;

    fn held(&mut self) -> Held {
        self.text.clear();
        // If the maps cannot be read, no mapping is counted.
        let _ = File::open("/proc/self/maps").and_then(|mut file| file.read_to_end(&mut self.text));
        Held {
            heap: on_heap(),
            mapped: String::from_utf8_lossy(&self.text).lines().map(anonymous).sum(),
        }
    }
}

/// The length of a mapping that is of no file and has no name, from its line in `/proc/self/maps`.
/// Memory without any access rights is reserved, as the allocator does for each thread, and counts
/// as 0.
fn anonymous(line: &str) -> i64 {
    let mut words = line.split_ascii_whitespace();
    let range = words.next().and_then(|range| range.split_once('-'));
    let (rights, inode, name) = (words.next(), words.nth(2), words.next());
    if rights == Some("---p") || inode != Some("0") || name.is_some() {
        return 0;
    }
    let number = |text| i64::from_str_radix(text, 16).ok();
    range.and_then(|(start, end)| Some(number(end)? - number(start)?)).unwrap_or(0)
}

#[cfg(target_env = "gnu")]
fn on_heap() -> i64 {
    // SAFETY: may be called at any time.
    unsafe { libc::mallinfo2() }.uordblks as i64
}

#[cfg(not(target_env = "gnu"))]
fn on_heap() -> i64 {
    0
}

/// A call of the simulated kernel. Its time is counted while this lives.
pub(crate) struct Call {
    start: Instant,
    before: Option<Held>,
}

impl Call {
    pub(crate) fn begin() -> Self {
        let before = ASKED.load(Relaxed).then(|| {
            let _inside = Inside::enter();
            ledger().as_mut().map(Ledger::held)
        });
        let before = before.flatten();
        Self { start: Instant::now(), before }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        TIME.fetch_add(self.start.elapsed().as_nanos() as u64, Relaxed);
        if let Some(before) = self.before
            && let Some(ledger) = ledger().as_mut()
        {
            let _inside = Inside::enter();
            let taken = ledger.held().change(before, -1);
            ledger.taken = ledger.taken.change(taken, 1);
        }
    }
}

/// Nanoseconds that this process has spent in calls of the simulated kernel. Look this symbol up,
/// as [`crate::door::mlx5_sim_settle`].
#[unsafe(no_mangle)]
extern "C" fn mlx5_sim_kernel_time() -> u64 {
    TIME.load(Relaxed)
}

/// Writes the memory of the process, without that which the simulated kernel has taken since the
/// first call. From the first call on, calls into the kernel take long. Look this symbol up, as
/// [`crate::door::mlx5_sim_settle`].
///
/// # Safety
/// `held` must be writable.
#[unsafe(no_mangle)]
unsafe extern "C" fn mlx5_sim_memory(held: *mut Held) {
    let _inside = Inside::enter();
    let mut ledger = ledger();
    let ledger = ledger.get_or_insert_with(|| Ledger {
        text: Vec::with_capacity(Ledger::TEXT),
        ..Ledger::default()
    });
    ASKED.store(true, Relaxed);
    let now = ledger.held();
    // SAFETY: the caller promises that `held` can be written.
    unsafe { held.write(now.change(ledger.taken, -1)) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_memory_of_no_file_and_without_a_name_counts() {
        let length = |line| anonymous(line);
        assert_eq!(length("7f00a000-7f00c000 rw-p 00000000 00:00 0 "), 0x2000);
        assert_eq!(length("7f00a000-7f00c000 rw-p 00000000 00:00 0 [heap]"), 0);
        assert_eq!(length("7f00a000-7f00c000 rw-s 00000000 00:01 17 /memfd:x (deleted)"), 0);
        assert_eq!(length("7f00a000-7f00c000 r--p 00000000 fe:00 99 /lib/x.so"), 0);
        assert_eq!(length("7f00a000-7f00c000 ---p 00000000 00:00 0 "), 0);
        assert_eq!(length("nonsense"), 0);
    }

    #[test]
    fn what_a_call_takes_is_not_the_programs() {
        let ask = || {
            let mut held = Held::default();
            // SAFETY: `held` is a local variable.
            unsafe { mlx5_sim_memory(&mut held) };
            held
        };
        // A piece of this size gets a mapping of its own. Without `black_box` an optimized build
        // would leave it out.
        const LARGE: usize = 16 << 20;
        let piece = || std::hint::black_box(vec![1_u8; LARGE]);
        let before = ask();
        let call = Call::begin();
        let kernel = piece();
        drop(call);
        let program = piece();
        let grown = ask().change(before, -1);
        // Other tests map and unmap little meanwhile.
        let (one, half) = (LARGE as i64, LARGE as i64 / 2);
        assert!((one - half..one + half).contains(&grown.mapped), "{grown:?}");
        drop((kernel, program));
    }

    #[test]
    fn time_inside_calls_is_summed() {
        let before = mlx5_sim_kernel_time();
        let call = Call::begin();
        while call.start.elapsed().as_nanos() < 1000 {}
        drop(call);
        assert!(mlx5_sim_kernel_time() - before >= 1000);
    }
}
