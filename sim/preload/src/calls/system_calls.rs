//! System calls that a program makes by number, with syscall(2). Replacements of mmap(2) in a
//! program, such as the memory hooks of UCX, call the kernel in this way.

use std::ffi::{c_int, c_long, c_ulong, c_void};

use super::{events, files, forward, memory};
use crate::ending;

/// Executes a call if it is about the machine.
///
/// # Safety
/// The words are valid arguments of the call.
pub(crate) unsafe fn by_number(number: c_long, words: [c_long; 6]) -> Option<c_long> {
    let [first, second, third, _, fifth, sixth] = words;
    let fd = first as c_int;
    let pointer = |word: c_long| word as *mut c_void;
    // SAFETY: the caller promises that the words are valid arguments of this system call.
    unsafe {
        match number {
            libc::SYS_mmap => memory::map(second as usize, third as c_int, fifth as c_int, sixth)
                .map(|address| address as c_long),
            libc::SYS_munmap => memory::unmap(pointer(first), second as usize).map(c_long::from),
            libc::SYS_ioctl => {
                forward::ioctl(fd, second as c_ulong, pointer(third)).map(c_long::from)
            }
            libc::SYS_read => {
                events::read(fd, pointer(second), third as usize).map(|length| length as c_long)
            }
            libc::SYS_write => {
                forward::write(fd, pointer(second), third as usize).map(|length| length as c_long)
            }
            libc::SYS_close => files::close(fd).map(c_long::from),
            libc::SYS_exit_group => ending::end_at_once(fd),
            _ => None,
        }
    }
}
