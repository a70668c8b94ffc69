//! The machine of this process: its start and its end.

use std::ffi::c_int;
use std::os::fd::RawFd;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Once, OnceLock};

use mlx5_sim::settings::{Settings, VARIABLE};

use crate::descriptors::{self, Descriptors, Entry};
use crate::inside::Inside;
use crate::machine::Machine;
use crate::mappings::{self, Mappings};
use crate::tree::Tree;
use crate::{inherited, say};

/// The simulated machine, and the parts of it that the program has open.
pub(crate) struct Door {
    pub(crate) machine: Machine,
    pub(crate) tree: Tree,
    pub(crate) descriptors: Descriptors,
    pub(crate) mappings: Mappings,
    pub(crate) trace: bool,
    /// The process that it belongs to. A child of vfork(2) runs in its parent's memory, and finds
    /// no door: it closes its own copies of the parent's descriptors.
    pid: u32,
}

/// `None` inside if the settings or the machine do not allow a door.
type Slot = OnceLock<Option<Door>>;

/// This process's door. A child does not use its parent's: the threads of that, and perhaps the
/// holders of its locks, do not exist in the child.
static SLOT: AtomicPtr<Slot> = AtomicPtr::new(ptr::null_mut());

fn slot() -> &'static Slot {
    let found = SLOT.load(Ordering::Acquire);
    // SAFETY: a slot in `SLOT` was leaked below, and is never freed.
    if let Some(slot) = unsafe { found.as_ref() } {
        return slot;
    }
    let new = Box::into_raw(Box::new(Slot::new()));
    let placed = SLOT.compare_exchange(ptr::null_mut(), new, Ordering::AcqRel, Ordering::Acquire);
    match placed {
        // SAFETY: the slot was leaked, and is never freed once it stands there.
        Ok(_) => unsafe { &*new },
        Err(other) => {
            // SAFETY: no other thread has seen the new one: the exchange failed.
            drop(unsafe { Box::from_raw(new) });
            // SAFETY: another thread leaked it.
            unsafe { &*other }
        }
    }
}

impl Door {
    /// The door if it is open; `None` for the library's own calls.
    pub(crate) fn if_open() -> Option<&'static Self> {
        if Inside::is_entered() { None } else { Self::there() }
    }

    fn there() -> Option<&'static Self> {
        Self::of_any_process().filter(|door| door.is_of_this_process())
    }

    fn of_any_process() -> Option<&'static Self> {
        let slot = SLOT.load(Ordering::Acquire);
        // SAFETY: a slot in `SLOT` was leaked, and is never freed.
        unsafe { slot.as_ref() }?.get()?.as_ref()
    }

    fn is_of_this_process(&self) -> bool {
        self.pid == std::process::id()
    }

    /// The door, which is opened if it was not; `None` for the library's own calls.
    pub(crate) fn open() -> Option<&'static Self> {
        if Inside::is_entered() {
            return None;
        }
        let _inside = Inside::enter();
        slot().get_or_init(Self::make).as_ref().filter(|door| door.is_of_this_process())
    }

    /// The door, and the file behind a descriptor of the program, if it is the machine's.
    pub(crate) fn find(fd: RawFd) -> Option<(&'static Self, Entry)> {
        if !descriptors::may_be_ours(fd) {
            return None;
        }
        let door = if inherited::waits() { Self::open() } else { Self::if_open() }?;
        Some((door, door.descriptors.get(fd)?))
    }

    /// The violations by drivers of this process that were not reported yet.
    pub(crate) fn violations() -> Vec<String> {
        let Some(door) = Self::if_open() else { return Vec::new() };
        let _inside = Inside::enter();
        door.machine.violations()
    }

    fn make() -> Option<Self> {
        let settings: Settings = match std::env::var(VARIABLE).unwrap_or_default().parse() {
            Ok(settings) => settings,
            Err(error) => {
                say!("{VARIABLE}: {error}");
                // SAFETY: ends the process without running its exit handlers.
                unsafe { libc::_exit(2) }
            }
        };
        let trace = settings.trace;
        let machine = machine(settings)?;
        register();
        let tree = machine.sysfs().map_err(Into::into).and_then(|entries| Tree::write(&entries));
        match tree {
            Ok(tree) => {
                let descriptors = Descriptors::default();
                inherited::take(&machine, &descriptors);
                let (mappings, pid) = (Mappings::default(), std::process::id());
                Some(Self { machine, tree, descriptors, mappings, trace, pid })
            }
            Err(error) => {
                say!("cannot write the device tree: {error}");
                None
            }
        }
    }
}

/// The machine of the settings.
fn machine(settings: Settings) -> Option<Machine> {
    let config = settings.machine?;
    let Some(path) = &settings.wire else {
        return Some(without_signals(|| Machine::start(config)));
    };
    let machine = match Machine::connect(path) {
        Ok(machine) => machine,
        Err(error) => {
            say!("{error}");
            // A program that goes on would find the real machine, or none, and be content.
            // SAFETY: ends the process without running what the program left to be run.
            unsafe { libc::_exit(2) }
        }
    };
    if let Machine::Shared(wire) = &machine
        && !settings.about_machine.is_empty()
        && settings.about_machine != wire.settings()
    {
        say!(
            "the machine at {} is as its first user wanted it: {}",
            path.display(),
            wire.settings()
        );
    }
    Some(machine)
}

/// Works until the machine has nothing left to do, and returns the number of units: with the
/// setting `step` a machine moves in no other way. Programs that want this look the symbol up, so
/// that they also run without this library.
#[unsafe(no_mangle)]
extern "C" fn mlx5_sim_settle() -> usize {
    let _inside = Inside::enter();
    Door::there().map_or(0, |door| door.machine.settle())
}

/// Drains the send queue of a queue pair of the first device, as a signature error does, and
/// returns 0; another number if it cannot. Look this symbol up, as [`mlx5_sim_settle`].
#[unsafe(no_mangle)]
extern "C" fn mlx5_sim_drain(qpn: u32) -> libc::c_int {
    let _inside = Inside::enter();
    let drained = Door::there().is_some_and(|door| door.machine.drain(qpn));
    if drained { 0 } else { -1 }
}

/// Pulls the first device out, and returns 0; another number if another process serves the machine.
/// Look this symbol up, as [`mlx5_sim_settle`].
#[unsafe(no_mangle)]
extern "C" fn mlx5_sim_unplug() -> libc::c_int {
    let _inside = Inside::enter();
    let unplugged = Door::there().is_some_and(|door| door.machine.unplug());
    if unplugged { 0 } else { -1 }
}

/// Blocks all signals during `work`: threads that it starts must leave the program's signals to the
/// program.
fn without_signals<T>(work: impl FnOnce() -> T) -> T {
    let mut all = std::mem::MaybeUninit::uninit();
    let mut before = std::mem::MaybeUninit::uninit();
    // SAFETY: both sets have room, and the first is filled before it is used.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
    }
    let result = work();
    // SAFETY: the set was filled above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut()) };
    result
}

fn register() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: both functions live as long as the library, which is never unloaded.
        let answers: [c_int; 2] =
            unsafe { [libc::pthread_atfork(None, None, Some(forget)), libc::atexit(end)] };
        if answers != [0, 0] {
            say!("cannot hear of forks and of the end: out of memory");
        }
    });
}

/// In a child after a fork.
unsafe extern "C" fn forget() {
    let _inside = Inside::enter();
    let door = Door::of_any_process();
    SLOT.store(ptr::null_mut(), Ordering::Release);
    descriptors::forget_numbers();
    mappings::forget();
    if let Some(door) = door {
        inherited::remember(&door.machine, &door.descriptors);
    }
}

extern "C" fn end() {
    if let Some(door) = Door::if_open() {
        let _inside = Inside::enter();
        door.tree.remove();
    }
}
