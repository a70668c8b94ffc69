//! The functions of libc that this library replaces.
//!
//! Functions with a variable number of arguments are declared with their longest list: on x86-64
//! and aarch64 Linux such arguments are in the same registers, and libc reads those that the first
//! arguments call for.

use std::ffi::{c_char, c_int, c_long, c_uint, c_ulong, c_void};

use libc::{DIR, FILE, iovec, mode_t, off_t, off64_t, size_t, ssize_t};

use crate::calls::{events, files, forward, memory, paths, system_calls};
use crate::ending;

type Pointer = *mut c_void;
type Text = *const c_char;
type Stat = libc::stat;
type Stat64 = libc::stat64;
type Statx = libc::statx;

/// One function a line: its declaration, and its difference from libc's.
///
/// * `called here`: this library calls libc's itself, and has it from [`crate::next`].
/// * `unless X`: X answers for libc if it is `Some`.
/// * `redirect P`: the path P may be led elsewhere.
/// * `then X`: X is given libc's answer, and makes the answer.
macro_rules! interpose {
    ($(
        fn $name:ident($($argument:ident: $type:ty),*) -> $answer:ty $(, called $here:ident)?
        $(, unless $instead:expr)? $(, redirect $path:ident)? $(, then $then:expr)?;
    )*) => {
        /// The same functions of libc.
        mod next {
            use super::*;
            $(behind! { $($here)? fn $name($($argument: $type),*) -> $answer; })*
        }

        $(
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name($($argument: $type),*) -> $answer {
                // SAFETY: the caller passes arguments that are valid for libc's function, and the
                // replacements in the list require no more of them; a path is replaced by a path.
                unsafe {
                    $(
                        let instead: Option<$answer> = $instead;
                        if let Some(answer) = instead {
                            return answer;
                        }
                    )?
                    $(
                        let redirected = paths::redirected($path);
                        let $path = redirected.as_ptr();
                    )?
                    let answer = next::$name($($argument),*);
                    $(let answer = ($then)(answer);)?
                    answer
                }
            }
        )*
    };
}

macro_rules! behind {
    (here fn $name:ident $($rest:tt)*) => { pub(super) use crate::next::$name; };
    (fn $($rest:tt)*) => { crate::next::next! { fn $($rest)* } };
}

interpose! {
    // Paths.
    fn open(path: Text, flags: c_int, mode: mode_t) -> c_int, called here, redirect path, then files::opened;
    fn open64(path: Text, flags: c_int, mode: mode_t) -> c_int, redirect path, then files::opened;
    fn __open_2(path: Text, flags: c_int) -> c_int, redirect path, then files::opened;
    fn __open64_2(path: Text, flags: c_int) -> c_int, redirect path, then files::opened;
    fn openat(dir: c_int, path: Text, flags: c_int, mode: mode_t) -> c_int, redirect path, then files::opened;
    fn openat64(dir: c_int, path: Text, flags: c_int, mode: mode_t) -> c_int, redirect path, then files::opened;
    fn __openat_2(dir: c_int, path: Text, flags: c_int) -> c_int, redirect path, then files::opened;
    fn __openat64_2(dir: c_int, path: Text, flags: c_int) -> c_int, redirect path, then files::opened;
    fn fopen(path: Text, mode: Text) -> *mut FILE, redirect path;
    fn fopen64(path: Text, mode: Text) -> *mut FILE, redirect path;
    fn opendir(path: Text) -> *mut DIR, redirect path;
    fn scandir(path: Text, names: Pointer, filter: Pointer, order: Pointer) -> c_int, redirect path;
    fn scandir64(path: Text, names: Pointer, filter: Pointer, order: Pointer) -> c_int, redirect path;
    fn access(path: Text, mode: c_int) -> c_int, redirect path;
    fn faccessat(dir: c_int, path: Text, mode: c_int, flags: c_int) -> c_int, redirect path;
    fn readlink(path: Text, to: *mut c_char, room: size_t) -> ssize_t, redirect path, then |length| paths::shown(to, length);
    fn __readlink_chk(path: Text, to: *mut c_char, room: size_t, size: size_t) -> ssize_t, redirect path, then |length| paths::shown(to, length);
    fn readlinkat(dir: c_int, path: Text, to: *mut c_char, room: size_t) -> ssize_t, redirect path, then |length| paths::shown(to, length);
    fn __readlinkat_chk(dir: c_int, path: Text, to: *mut c_char, room: size_t, size: size_t) -> ssize_t, redirect path, then |length| paths::shown(to, length);
    fn realpath(path: Text, to: *mut c_char) -> *mut c_char, redirect path, then paths::shown_whole;
    fn __realpath_chk(path: Text, to: *mut c_char, size: size_t) -> *mut c_char, redirect path, then paths::shown_whole;
    fn canonicalize_file_name(path: Text) -> *mut c_char, redirect path, then paths::shown_whole;

    // The attributes of a file.
    fn stat(path: Text, to: *mut Stat) -> c_int, redirect path, then |answer| paths::described(answer, to);
    fn stat64(path: Text, to: *mut Stat64) -> c_int, redirect path, then |answer| paths::described(answer, to);
    fn lstat(path: Text, to: *mut Stat) -> c_int, redirect path, then |answer| paths::described(answer, to);
    fn lstat64(path: Text, to: *mut Stat64) -> c_int, redirect path, then |answer| paths::described(answer, to);
    fn fstat(fd: c_int, to: *mut Stat) -> c_int, called here, then |answer| paths::described_open(fd, answer, to);
    fn fstat64(fd: c_int, to: *mut Stat64) -> c_int, then |answer| paths::described_open(fd, answer, to);
    fn fstatat(dir: c_int, path: Text, to: *mut Stat, flags: c_int) -> c_int, redirect path, then |answer| paths::described_at(dir, path, answer, to);
    fn fstatat64(dir: c_int, path: Text, to: *mut Stat64, flags: c_int) -> c_int, redirect path, then |answer| paths::described_at(dir, path, answer, to);
    fn statx(dir: c_int, path: Text, flags: c_int, mask: c_uint, to: *mut Statx) -> c_int, redirect path, then |answer| paths::described_at(dir, path, answer, to);
    // The same for older programs; the version is that of the only structure.
    fn __xstat(version: c_int, path: Text, to: *mut Stat) -> c_int, unless { let _ = version; Some(self::stat(path, to)) };
    fn __xstat64(version: c_int, path: Text, to: *mut Stat64) -> c_int, unless { let _ = version; Some(self::stat64(path, to)) };
    fn __lxstat(version: c_int, path: Text, to: *mut Stat) -> c_int, unless { let _ = version; Some(self::lstat(path, to)) };
    fn __lxstat64(version: c_int, path: Text, to: *mut Stat64) -> c_int, unless { let _ = version; Some(self::lstat64(path, to)) };
    fn __fxstat(version: c_int, fd: c_int, to: *mut Stat) -> c_int, unless { let _ = version; Some(self::fstat(fd, to)) };
    fn __fxstat64(version: c_int, fd: c_int, to: *mut Stat64) -> c_int, unless { let _ = version; Some(self::fstat64(fd, to)) };
    fn __fxstatat(version: c_int, dir: c_int, path: Text, to: *mut Stat, flags: c_int) -> c_int, unless { let _ = version; Some(self::fstatat(dir, path, to, flags)) };
    fn __fxstatat64(version: c_int, dir: c_int, path: Text, to: *mut Stat64, flags: c_int) -> c_int, unless { let _ = version; Some(self::fstatat64(dir, path, to, flags)) };

    // Descriptors.
    fn ioctl(fd: c_int, request: c_ulong, argument: Pointer) -> c_int, unless forward::ioctl(fd, request, argument);
    fn read(fd: c_int, to: Pointer, room: size_t) -> ssize_t, unless events::read(fd, to, room);
    fn __read_chk(fd: c_int, to: Pointer, room: size_t, size: size_t) -> ssize_t, unless events::read(fd, to, room);
    fn readv(fd: c_int, to: *const iovec, count: c_int) -> ssize_t, unless events::readv(fd, to, count);
    fn write(fd: c_int, from: *const c_void, length: size_t) -> ssize_t, unless forward::write(fd, from, length);
    fn close(fd: c_int) -> c_int, called here, unless files::close(fd);
    fn dup(fd: c_int) -> c_int, then |new| files::copied(fd, new);
    fn dup2(fd: c_int, new: c_int) -> c_int, then |new| files::copied(fd, new);
    fn dup3(fd: c_int, new: c_int, flags: c_int) -> c_int, called here, then |new| files::copied(fd, new);
    fn fcntl(fd: c_int, command: c_int, argument: Pointer) -> c_int, called here, then |answer| files::controlled(fd, command, answer);
    fn fcntl64(fd: c_int, command: c_int, argument: Pointer) -> c_int, then |answer| files::controlled(fd, command, answer);
    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int, then |answer| files::closed_range(first, last, flags, answer);
    fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int, unless forward::socket(domain, protocol);

    // System calls by number. For a call with fewer arguments the kernel ignores the others.
    fn syscall(number: c_long, a: c_long, b: c_long, c: c_long, d: c_long, e: c_long, f: c_long) -> c_long, unless system_calls::by_number(number, [a, b, c, d, e, f]);

    // Memory.
    fn mmap(address: Pointer, length: size_t, rights: c_int, flags: c_int, fd: c_int, offset: off_t) -> Pointer, unless memory::map(length, rights, fd, offset);
    fn mmap64(address: Pointer, length: size_t, rights: c_int, flags: c_int, fd: c_int, offset: off64_t) -> Pointer, unless memory::map(length, rights, fd, offset);
    fn munmap(address: Pointer, length: size_t) -> c_int, unless memory::unmap(address, length);
}

/// Ends the process without running its exit handlers, so that violations have to be reported here.
#[unsafe(no_mangle)]
unsafe extern "C" fn _exit(status: c_int) -> ! {
    ending::leave(status)
}

/// The same by its name in C.
#[unsafe(no_mangle)]
unsafe extern "C" fn _Exit(status: c_int) -> ! {
    ending::leave(status)
}
