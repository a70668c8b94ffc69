//! Client requests to callgrind: instruction sequences that have no effect unless valgrind
//! interprets them (valgrind.h, "magic" sequences; callgrind.h, request numbers).

use std::ffi::CStr;

/// `VG_USERREQ__ZERO_STATS`.
const ZERO_STATS: usize = 0x4354_0001;
/// `VG_USERREQ__DUMP_STATS_AT`.
const DUMP_STATS_AT: usize = 0x4354_0003;

/// `VG_USERREQ__START_INSTRUMENTATION` and `VG_USERREQ__STOP_INSTRUMENTATION`.
const START: usize = 0x4354_0004;
const STOP: usize = 0x4354_0005;

/// Starts the instrumentation, which is slow.
pub(crate) fn look() {
    request(START, 0);
}

/// Stops the instrumentation.
pub(crate) fn look_away() {
    request(STOP, 0);
}

/// Starts a count from zero.
pub(crate) fn begin() {
    request(ZERO_STATS, 0);
}

/// Writes the counts to a file, under a name.
pub(crate) fn end(name: &CStr) {
    request(DUMP_STATS_AT, name.as_ptr().expose_provenance());
}

/// Makes a request with one argument.
fn request(number: usize, argument: usize) {
    let request = [number, argument, 0, 0, 0, 0];
    #[cfg(target_arch = "x86_64")]
    // SAFETY: on a processor the sequence is four rotations that cancel out and an exchange of a
    // register with itself. Valgrind reads `request`, which outlives the statement, and returns the
    // answer in `rdx`, which is an output.
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
    // SAFETY: on a processor the sequence is four rotations of `x12` that cancel out and an `orr`
    // of `x10` with itself. Valgrind reads `request`, which outlives the statement, from `x4`, and
    // returns the answer in `x3`, which is an output.
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
