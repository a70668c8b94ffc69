//! Requests to callgrind, made by instructions that do nothing where no valgrind interprets them
//! (valgrind.h, "magic" sequences; callgrind.h, request numbers).

use std::ffi::CStr;

/// `VG_USERREQ__ZERO_STATS`.
const ZERO_STATS: usize = 0x4354_0001;
/// `VG_USERREQ__DUMP_STATS_AT`.
const DUMP_STATS_AT: usize = 0x4354_0003;

/// `VG_USERREQ__START_INSTRUMENTATION` and `VG_USERREQ__STOP_INSTRUMENTATION`.
const START: usize = 0x4354_0004;
const STOP: usize = 0x4354_0005;

/// Looks at every instruction from here, which takes long.
pub(crate) fn look() {
    request(START, 0);
}

/// Looks away again.
pub(crate) fn look_away() {
    request(STOP, 0);
}

/// Counts from here.
pub(crate) fn begin() {
    request(ZERO_STATS, 0);
}

/// Writes down what was counted, under a name.
pub(crate) fn end(name: &CStr) {
    request(DUMP_STATS_AT, name.as_ptr().expose_provenance());
}

/// Makes a request with one argument.
fn request(number: usize, argument: usize) {
    let request = [number, argument, 0, 0, 0, 0];
    #[cfg(target_arch = "x86_64")]
    // SAFETY: to a processor, four rotations that cancel out and an exchange of a register with
    // itself; to valgrind, a request that reads what `request` holds and answers in `rdx`.
    unsafe {
        std::arch::asm!(
            "rol rdi, 3",
            "rol rdi, 13",
            "rol rdi, 61",
            "rol rdi, 51",
            "xchg rbx, rbx",
            in("rax") request.as_ptr(),
            inout("rdx") 0_usize => _,
            inout("rdi") 0_usize => _,
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above, with `x12`, `x10`, `x4` and `x3`.
    unsafe {
        std::arch::asm!(
            "ror x12, x12, #3",
            "ror x12, x12, #13",
            "ror x12, x12, #51",
            "ror x12, x12, #61",
            "orr x10, x10, x10",
            in("x4") request.as_ptr(),
            inout("x3") 0_usize => _,
        );
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = request;
}
