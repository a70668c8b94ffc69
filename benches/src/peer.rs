//! Runs the cases of the shared libraries that are compiled from `peer/`.

use crate::latency;
use crate::machine::{Drain, Machine, Settle};
use crate::memory::{self, Holding};
use crate::round::{Mode, Round, time};
use std::cell::OnceCell;
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
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
    /// Leaked, because the library's objects refer to it and are never destroyed.
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
    /// Absent if there is `timed`.
    call: Option<unsafe extern "C" fn(*mut c_void, u64, u32)>,
    finish: unsafe extern "C" fn(*mut c_void, u32),
    timed: Option<unsafe extern "C" fn(*mut c_void, u64, u32) -> u64>,
}

type MemoryOpen = unsafe extern "C" fn(*const PeerMachine) -> *mut c_void;
type MemoryMake = unsafe extern "C" fn(*mut c_void, into: *mut *mut c_void, count: u32);

/// `peer/memory.c`: functions that create a state, and queue pairs and completion queues on it.
struct MemoryCases {
    who: String,
    open: MemoryOpen,
    qps: MemoryMake,
    cqs: MemoryMake,
}

type ThreadsOpen = unsafe extern "C" fn(*const PeerMachine, depth: u32) -> *mut c_void;
type ThreadsPost = unsafe extern "C" fn(*mut c_void, first: u64, count: u32);
type ThreadsPoll = unsafe extern "C" fn(*mut c_void, count: u32);

/// `peer/threads.c`: functions that create queues, post to them, and poll.
#[derive(Clone, Copy)]
struct ThreadCases {
    open: ThreadsOpen,
    post: ThreadsPost,
    poll: ThreadsPoll,
}

/// Queues that any thread may use. They are never destroyed.
#[derive(Clone, Copy)]
pub(crate) struct ThreadQueues {
    state: NonNull<c_void>,
    cases: ThreadCases,
}

// SAFETY: `post` and `poll` of the library lock the queue, as libibverbs does, so any thread may
// call them. The state is never freed.
unsafe impl Send for ThreadQueues {}

impl ThreadQueues {
    /// Posts `count` requests, one by one.
    pub(crate) fn post(&self, first: u64, count: u32) {
        // SAFETY: `state` comes from `open` of the same cases, and is never freed.
        unsafe { (self.cases.post)(self.state.as_ptr(), first, count) };
    }

    /// Polls one by one until there were `count` completions.
    pub(crate) fn poll(&self, count: u32) {
        // SAFETY: `state` comes from `open` of the same cases, and is never freed.
        unsafe { (self.cases.poll)(self.state.as_ptr(), count) };
    }
}

/// A loaded library. It is never unloaded.
pub(crate) struct Library {
    cases: Vec<&'static Case>,
    /// Present in the libraries that use libibverbs.
    memory: Option<MemoryCases>,
    threads: Option<ThreadCases>,
}

impl Library {
    pub(crate) fn load(path: &Path) -> Result<Self, String> {
        let path = CString::new(path.as_os_str().as_bytes()).map_err(|error| error.to_string())?;
        // SAFETY: `path` ends with zero, and the library is the project's own: its initializers are
        // those of any program that uses libibverbs.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        let library = NonNull::new(handle).ok_or_else(|| {
            // SAFETY: after a failed `dlopen`, `dlerror` returns a text that stays valid until the
            // next call of this thread, and it is copied before.
            let text = unsafe { CStr::from_ptr(libc::dlerror()) };
            format!("cannot load the peer: {}", text.to_string_lossy())
        })?;
        // SAFETY: `library` is a handle that `dlopen` returned and that is never closed.
        let tables = unsafe { libc::dlsym(library.as_ptr(), c"bench_tables".as_ptr()) };
        let mut tables = NonNull::new(tables).ok_or("the peer has no tables")?.cast();
        let mut cases = Vec::new();
        // SAFETY: `bench_tables` of `peer/bench.h` is an array of pointers to tables that ends with
        // null, and a table is an array of `Case` that ends with one without a name. The library is
        // never unloaded, so all of it stays valid.
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
        // SAFETY: `peer/memory.c` declares the functions with these types, and `bench_memory_who`
        // is a constant.
        let memory = unsafe {
            let who: Option<NonNull<c_void>> = symbol(library, c"bench_memory_who");
            who.map(|who| {
                let all = symbol(library, c"bench_memory_open")
                    .zip(symbol(library, c"bench_memory_qps"))
                    .zip(symbol(library, c"bench_memory_cqs"));
                let ((open, qps), cqs) = all.ok_or("the peer has no part of memory.c")?;
                Ok::<_, &str>(MemoryCases { who: text(who.as_ptr().cast()), open, qps, cqs })
            })
        };
        // SAFETY: `peer/threads.c` declares the functions with these types.
        let threads = unsafe {
            let all = symbol(library, c"bench_threads_open")
                .zip(symbol(library, c"bench_threads_post"))
                .zip(symbol(library, c"bench_threads_poll"));
            all.map(|((open, post), poll)| ThreadCases { open, post, poll })
        };
        Ok(Self { cases, memory: memory.transpose()?, threads })
    }

    /// Name of the library's provider, if threads can use its queues.
    pub(crate) fn with_threads(&self) -> Option<&str> {
        let memory = self.memory.as_ref().filter(|_| self.threads.is_some())?;
        Some(memory.who.trim_end_matches('-'))
    }

    /// Queues for threads; the library must have some.
    pub(crate) fn queues(&self, machine: &Machine, depth: u32) -> ThreadQueues {
        let cases = self.threads.expect("queues that threads may use");
        // SAFETY: `PeerMachine::of` returns a machine that is never freed.
        let state = unsafe { (cases.open)(PeerMachine::of(machine), depth) };
        ThreadQueues { state: NonNull::new(state).expect("the peer opens the device"), cases }
    }

    /// Memory of one of `count` queues, by kind.
    pub(crate) fn memory(&self, machine: &Machine, count: usize) -> Vec<Holding> {
        let Some(memory) = &self.memory else { return Vec::new() };
        let shown = PeerMachine::of(machine);
        // SAFETY: `PeerMachine::of` returns a machine that is never freed.
        let state = unsafe { (memory.open)(shown) };
        let kinds =
            [("memory_qp", "create_qp", memory.qps), ("memory_cq", "create_cq", memory.cqs)];
        let kinds = kinds.into_iter().filter_map(|(case, verb, make)| {
            let each = memory::each(count, |count| {
                let mut made = vec![null_mut(); count];
                // SAFETY: `state` comes from `open` of the same cases, and `made` has room for
                // `count` pointers.
                unsafe { make(state, made.as_mut_ptr(), count as u32) };
                made
            })?;
            Some(Holding { case, who: format!("{}{verb}", memory.who), mode: Mode::Default, each })
        });
        kinds.collect()
    }

    /// Functions that perform the operations.
    pub(crate) fn functions(&self) -> Vec<String> {
        self.cases.iter().map(|case| text(case.function)).collect()
    }

    /// The wanted cases on the device of `machine`.
    pub(crate) fn rounds(&self, machine: &Machine, wanted: &dyn Fn(&str) -> bool) -> Vec<Round> {
        let shown = PeerMachine::of(machine);
        let mut states: HashMap<(usize, bool), Rc<OnceCell<*mut c_void>>> = HashMap::new();
        let mut rounds = Vec::new();
        for single in [false, true] {
            for case in &self.cases {
                let (name, who) = (text(case.name), text(case.who));
                // The other ways have no locks that could be switched off.
                let locks = who.starts_with("rdma-core-") || who.starts_with("mlx5-verbs-");
                if !wanted(&name) || !machine.can(&name) || !locks && single {
                    continue;
                }
                let mode = match (locks, single) {
                    (false, _) => Mode::Single,
                    (true, false) => Mode::Default,
                    (true, true) => Mode::SingleThreaded,
                };
                let state = states.entry((case.open as usize, single)).or_default();
                rounds.push(round(case, name, who, mode, shown, Rc::clone(state), single));
            }
        }
        rounds
    }
}

/// A function or constant of the library, if it has one of that name.
///
/// # Safety
/// The symbol must be a function that the library declares as an `F`, or a constant if `F` is a
/// data pointer.
unsafe fn symbol<F>(library: NonNull<c_void>, name: &CStr) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<NonNull<c_void>>()) };
    // SAFETY: `library` is a handle that `dlopen` returned and that is never closed.
    let found = NonNull::new(unsafe { libc::dlsym(library.as_ptr(), name.as_ptr()) })?;
    // SAFETY: the caller promises that the symbol's address is an `F`; the sizes are equal, checked
    // at compile time above.
    Some(unsafe { std::mem::transmute_copy(&found) })
}

fn text(of: *const c_char) -> String {
    // SAFETY: the library's texts are constants that end with zero, and the library is never
    // unloaded.
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
                // SAFETY: `machine` has the lifetime `'static`.
                unsafe { (case.open)(machine, single.into()) }
            });
            assert_ne!(state, null_mut(), "the peer opens the device");
            // SAFETY: `state` comes from `open` of this case, is never freed, and no other round
            // runs at the same time.
            unsafe {
                (case.prepare)(state, first, calls);
                let nanoseconds = match (case.timed, case.call) {
                    (Some(timed), _) => timed(state, first, calls),
                    (None, Some(call)) if latency::is_sampled() => {
                        latency::sample(calls as usize, |k| {
                            call(state, first + k as u64, 1);
                            true
                        });
                        0
                    }
                    (None, Some(call)) => time(|| call(state, first, calls)),
                    (None, None) => panic!("{} has no function", text(case.name)),
                };
                (case.finish)(state, calls);
                nanoseconds
            }
        }),
    }
}
