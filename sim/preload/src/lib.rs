//! The preload door: a shared library that shows the simulated ConnectX to unmodified programs.
//!
//! With this library in `LD_PRELOAD`, a dynamically linked program finds simulated devices in
//! `/sys/class/infiniband*` and `/dev/infiniband`, and [`mlx5_sim`] answers its system calls on
//! them inside the program. The rest of the program is unchanged. No device and no rights are
//! needed, and the machine's real devices are hidden.
//!
//! # How
//! The sysfs tree is written to a temporary directory, and libc's functions with a path are
//! redirected there, so that descriptors, directory streams and links in it are real ones. The
//! device nodes are empty files in it that look like character devices; their descriptors are known
//! by number. Event files are epoll descriptors that watch the simulator's own, so that `poll`,
//! `O_NONBLOCK` and the like work without further help.
//!
//! System calls that a program makes without libc are not seen, nor those that libc makes inside. A
//! library that patches mmap(2) and makes the call by its number, as UCX does, comes here. The
//! kernel refuses a call of libc's own function, for the descriptor of a node is open for writing
//! only. With `UCX_MEM_MMAP_HOOK_MODE=reloc` no device can be opened, and a line says which setting
//! helps.
//!
//! # Violations
//! The violations of a process's drivers are reported when the process ends by itself, and its exit
//! status is then 70 unless it is that of a failure anyway. In a program of several processes that
//! `cargo xtask with-sim` started, the first one fails for all of them.
//!
//! # Processes
//! Each process has a machine of its own, which starts when it first looks for a device. A child
//! process starts one of its own, and the files that it inherited from its parent do nothing.
//!
//! With the setting `wire=`, processes share the machine that `mlx5-sim-wire` serves at that
//! socket: their queue pairs reach each other, and a child has the devices open that its parent
//! had.
//!
//! # Settings
//! `MLX5_SIM` configures the machine, see [`Settings`].

mod account;
mod calls;
mod descriptors;
mod door;
mod ending;
mod exports;
mod inherited;
mod inside;
mod machine;
mod mappings;
mod next;
mod notes;
mod tree;

pub use mlx5_sim::settings::{Settings, SettingsError};

/// Prints a line to standard error, where users look for errors.
macro_rules! say {
    ($($argument:tt)*) => { mlx5_sim::diagnostics::say("mlx5-sim", format_args!($($argument)*)) };
}
use say;
