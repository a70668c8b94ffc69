//! The cases of the shared library that `peer/` is compiled to.

use crate::beside::{Mode, ROUND, Round};
use crate::machine::Settle;
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::NonNull;
use std::time::Instant;

/// `struct bench_case` of `peer/bench.h`.
#[repr(C)]
struct Case {
    name: *const c_char,
    who: *const c_char,
    function: *const c_char,
    operations: u32,
    extended: u32,
    prepare: unsafe extern "C" fn(*mut c_void, u64, u32),
    calls: unsafe extern "C" fn(*mut c_void, u64, u32),
    finish: unsafe extern "C" fn(*mut c_void, u32),
}

type OpenPeer =
    unsafe extern "C" fn(*const c_char, c_int, c_int, settle: Option<Settle>) -> *mut c_void;
type OpenFloor = unsafe extern "C" fn() -> *mut c_void;

/// The loaded library. It stays for good.
pub(crate) struct Library(NonNull<c_void>);

impl Library {
    pub(crate) fn load(path: &str) -> Result<Self, String> {
        let path = CString::new(path).map_err(|error| error.to_string())?;
        // SAFETY: the library is the project's own; what it does when it is loaded, any program
        // that uses libibverbs does.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        NonNull::new(handle).map(Self).ok_or_else(|| {
            // SAFETY: the failed call left a text, which stays until the next one.
            let text = unsafe { CStr::from_ptr(libc::dlerror()) };
            format!("cannot load the peer: {}", text.to_string_lossy())
        })
    }

    fn symbol(&self, name: &CStr) -> Result<NonNull<c_void>, String> {
        // SAFETY: the library is loaded.
        let symbol = unsafe { libc::dlsym(self.0.as_ptr(), name.as_ptr()) };
        NonNull::new(symbol).ok_or_else(|| format!("the peer has no {}", name.to_string_lossy()))
    }

    fn cases(&self, cases: &CStr, count: &CStr) -> Result<&'static [Case], String> {
        let (cases, count) = (self.symbol(cases)?, self.symbol(count)?);
        // SAFETY: the library declares them so, and stays.
        Ok(unsafe {
            std::slice::from_raw_parts(
                cases.as_ptr().cast(),
                *count.cast::<u32>().as_ref() as usize,
            )
        })
    }

    /// Functions that do the operations.
    pub(crate) fn functions(&self) -> Result<Vec<String>, String> {
        let peer = self.cases(c"peer_cases", c"peer_case_count")?;
        let floor = self.cases(c"floor_cases", c"floor_case_count")?;
        Ok(peer.iter().chain(floor).map(|case| text(case.function)).collect())
    }

    /// The cases of rdma-core's provider on the device called `device`.
    pub(crate) fn peer(&self, device: &str, settle: Option<Settle>) -> Result<Vec<Round>, String> {
        let device = CString::new(device).map_err(|error| error.to_string())?;
        let open = self.symbol(c"peer_open")?;
        // SAFETY: the library declares it so.
        let open = unsafe { std::mem::transmute::<NonNull<c_void>, OpenPeer>(open) };
        let mut rounds = Vec::new();
        for (single, mode) in [(0, Mode::Default), (1, Mode::SingleThreaded)] {
            let mut states = HashMap::new();
            for case in self.cases(c"peer_cases", c"peer_case_count")? {
                let extended = c_int::from(case.extended != 0);
                let state = *states.entry(extended).or_insert_with(|| {
                    // SAFETY: the name ends in zero; the function copies what it needs of it.
                    unsafe { open(device.as_ptr(), single, extended, settle) }
                });
                rounds.push(round(case, mode, state));
            }
        }
        Ok(rounds)
    }

    /// The bare stores and fences.
    pub(crate) fn floor(&self) -> Result<Vec<Round>, String> {
        let open = self.symbol(c"floor_open")?;
        // SAFETY: the library declares it so.
        let open = unsafe { std::mem::transmute::<NonNull<c_void>, OpenFloor>(open) };
        // SAFETY: the function takes nothing.
        let state = unsafe { open() };
        let cases = self.cases(c"floor_cases", c"floor_case_count")?;
        Ok(cases.iter().map(|case| round(case, Mode::Single, state)).collect())
    }

    /// Callgrind counts from here.
    pub(crate) fn begin(&self) -> Result<(), String> {
        let begin = self.symbol(c"callgrind_begin")?;
        // SAFETY: the library declares it so.
        unsafe { std::mem::transmute::<NonNull<c_void>, unsafe extern "C" fn()>(begin)() };
        Ok(())
    }

    /// Callgrind writes down what it counted, under a name.
    pub(crate) fn end(&self, name: &str) -> Result<(), String> {
        let end = self.symbol(c"callgrind_end")?;
        let name = CString::new(name).map_err(|error| error.to_string())?;
        type End = unsafe extern "C" fn(*const c_char);
        // SAFETY: the library declares it so, and copies the name.
        unsafe { std::mem::transmute::<NonNull<c_void>, End>(end)(name.as_ptr()) };
        Ok(())
    }
}

fn text(of: *const c_char) -> String {
    // SAFETY: the library's texts are constants.
    unsafe { CStr::from_ptr(of) }.to_string_lossy().into_owned()
}

fn round(case: &'static Case, mode: Mode, state: *mut c_void) -> Round {
    let calls = (ROUND / u64::from(case.operations)) as u32;
    Round {
        case: text(case.name),
        who: text(case.who),
        mode,
        run: Box::new(move |first| {
            // SAFETY: the state was made for this case, and stays; one round runs at a time.
            unsafe {
                (case.prepare)(state, first, calls);
                let start = Instant::now();
                (case.calls)(state, first, calls);
                let nanoseconds = start.elapsed().as_nanos() as u64;
                (case.finish)(state, calls);
                nanoseconds
            }
        }),
    }
}
