//! The cases of the shared library that `peer/` is compiled to.

use crate::machine::{Drain, Machine, Settle};
use crate::memory::{self, Holding};
use crate::round::{Mode, Round, time};
use std::cell::OnceCell;
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::{NonNull, null_mut};
use std::rc::Rc;

/// `struct bench_machine` of `peer/bench.h`.
#[repr(C)]
struct PeerMachine {
    device: *const c_char,
    settle: Option<Settle>,
    drain: Option<Drain>,
}

impl PeerMachine {
    /// For good, as what the library makes with it.
    fn of(machine: &Machine) -> &'static Self {
        let device = CString::new(machine.device().name()).expect("a name without zero");
        let preloaded = machine.preloaded();
        Box::leak(Box::new(Self {
            device: device.into_raw(),
            settle: preloaded.map(|preloaded| preloaded.settle),
            drain: preloaded.map(|preloaded| preloaded.drain),
        }))
    }
}

type Open = unsafe extern "C" fn(*const PeerMachine, single_threaded: c_int) -> *mut c_void;

/// `struct bench_case` of `peer/bench.h`.
#[repr(C)]
struct Case {
    name: *const c_char,
    who: *const c_char,
    function: *const c_char,
    calls: u32,
    operations: u32,
    open: Open,
    prepare: unsafe extern "C" fn(*mut c_void, u64, u32),
    call: unsafe extern "C" fn(*mut c_void, u64, u32),
    finish: unsafe extern "C" fn(*mut c_void, u32),
}

type MemoryOpen = unsafe extern "C" fn(*const PeerMachine) -> *mut c_void;
type MemoryMake = unsafe extern "C" fn(*mut c_void, into: *mut *mut c_void, count: u32);

/// `peer/memory.c`: what makes a state, and on it queue pairs and completion queues.
struct MemoryCases {
    open: MemoryOpen,
    qps: MemoryMake,
    cqs: MemoryMake,
}

/// The loaded library. It stays for good.
pub(crate) struct Library {
    cases: Vec<&'static Case>,
    memory: MemoryCases,
}

impl Library {
    pub(crate) fn load(path: &str) -> Result<Self, String> {
        let path = CString::new(path).map_err(|error| error.to_string())?;
        // SAFETY: the library is the project's own; what it does when it is loaded, any program
        // that uses libibverbs does.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        let library = NonNull::new(handle).ok_or_else(|| {
            // SAFETY: the failed call left a text, which stays until the next one.
            let text = unsafe { CStr::from_ptr(libc::dlerror()) };
            format!("cannot load the peer: {}", text.to_string_lossy())
        })?;
        // SAFETY: the library is loaded.
        let tables = unsafe { libc::dlsym(library.as_ptr(), c"bench_tables".as_ptr()) };
        let mut tables = NonNull::new(tables).ok_or("the peer has no tables")?.cast();
        let mut cases = Vec::new();
        // SAFETY: the library declares an array of tables that ends with null; a table ends with a
        // case that has no name; all of it stays.
        unsafe {
            while let Some(table) = tables.cast::<Option<NonNull<Case>>>().read() {
                let mut case = table;
                while !case.as_ref().name.is_null() {
                    cases.push(case.as_ref());
                    case = case.add(1);
                }
                tables = tables.cast::<Option<NonNull<Case>>>().add(1).cast::<c_void>();
            }
        }
        // SAFETY: the library declares them so.
        let memory = unsafe {
            MemoryCases {
                open: symbol(library, c"bench_memory_open")?,
                qps: symbol(library, c"bench_memory_qps")?,
                cqs: symbol(library, c"bench_memory_cqs")?,
            }
        };
        Ok(Self { cases, memory })
    }

    /// What one of so many queues holds, kind by kind.
    pub(crate) fn memory(&self, machine: &Machine, count: usize) -> Vec<Holding> {
        let shown = PeerMachine::of(machine);
        // SAFETY: the machine stays.
        let state = unsafe { (self.memory.open)(shown) };
        let kinds = [
            ("memory_qp", "create_qp", self.memory.qps),
            ("memory_cq", "create_cq", self.memory.cqs),
        ];
        let kinds = kinds.into_iter().filter_map(|(case, verb, make)| {
            let each = memory::each(count, |count| {
                let mut made = vec![null_mut(); count];
                // SAFETY: the state was made for this, there is room for so many, and all stay.
                unsafe { make(state, made.as_mut_ptr(), count as u32) };
                made
            })?;
            Some(Holding { case, who: format!("rdma-core-{verb}"), mode: Mode::Default, each })
        });
        kinds.collect()
    }

    /// Functions that do the operations.
    pub(crate) fn functions(&self) -> Vec<String> {
        self.cases.iter().map(|case| text(case.function)).collect()
    }

    /// The cases on the device of `machine`, those that are wanted.
    pub(crate) fn rounds(&self, machine: &Machine, wanted: &dyn Fn(&str) -> bool) -> Vec<Round> {
        let shown = PeerMachine::of(machine);
        let mut states: HashMap<(usize, bool), Rc<OnceCell<*mut c_void>>> = HashMap::new();
        let mut rounds = Vec::new();
        for single in [false, true] {
            for case in &self.cases {
                let (name, who) = (text(case.name), text(case.who));
                let floor = who == "floor";
                // No program can make a real device drain.
                let possible = machine.preloaded().is_some() || !name.starts_with("cancel");
                if !wanted(&name) || !possible || floor && single {
                    continue;
                }
                let mode = match (floor, single) {
                    (true, _) => Mode::Single,
                    (false, false) => Mode::Default,
                    (false, true) => Mode::SingleThreaded,
                };
                let state = states.entry((case.open as usize, single)).or_default();
                rounds.push(round(case, name, who, mode, shown, Rc::clone(state), single));
            }
        }
        rounds
    }
}

/// A function of the library.
///
/// # Safety
/// The library declares it as an `F`, a pointer to a function.
unsafe fn symbol<F>(library: NonNull<c_void>, name: &CStr) -> Result<F, String> {
    const { assert!(size_of::<F>() == size_of::<NonNull<c_void>>()) };
    // SAFETY: the library is loaded.
    let found = NonNull::new(unsafe { libc::dlsym(library.as_ptr(), name.as_ptr()) });
    let found = found.ok_or_else(|| format!("the peer has no {}", name.to_string_lossy()))?;
    // SAFETY: the caller's contract; the sizes are equal.
    Ok(unsafe { std::mem::transmute_copy(&found) })
}

fn text(of: *const c_char) -> String {
    // SAFETY: the library's texts are constants.
    unsafe { CStr::from_ptr(of) }.to_string_lossy().into_owned()
}

fn round(
    case: &'static Case,
    name: String,
    who: String,
    mode: Mode,
    machine: &'static PeerMachine,
    state: Rc<OnceCell<*mut c_void>>,
    single: bool,
) -> Round {
    let calls = case.calls;
    Round {
        case: name,
        who,
        mode,
        operations: u64::from(calls * case.operations),
        run: Box::new(move |first| {
            let state = *state.get_or_init(|| {
                // SAFETY: the machine stays.
                unsafe { (case.open)(machine, single.into()) }
            });
            assert_ne!(state, null_mut(), "the peer opens the device");
            // SAFETY: the state was made for this case, and stays; one round runs at a time.
            unsafe {
                (case.prepare)(state, first, calls);
                let nanoseconds = time(|| (case.call)(state, first, calls));
                (case.finish)(state, calls);
                nanoseconds
            }
        }),
    }
}
