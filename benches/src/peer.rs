//! The cases of the shared libraries that `peer/` is compiled to.

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
    who: String,
    open: MemoryOpen,
    qps: MemoryMake,
    cqs: MemoryMake,
}

type ThreadsOpen = unsafe extern "C" fn(*const PeerMachine, depth: u32) -> *mut c_void;
type ThreadsPost = unsafe extern "C" fn(*mut c_void, first: u64, count: u32);
type ThreadsPoll = unsafe extern "C" fn(*mut c_void, count: u32);

/// `peer/threads.c`: what makes queues, posts to them, and polls.
#[derive(Clone, Copy)]
struct ThreadCases {
    open: ThreadsOpen,
    post: ThreadsPost,
    poll: ThreadsPoll,
}

/// Queues that any thread may use. They stay for good.
#[derive(Clone, Copy)]
pub(crate) struct ThreadQueues {
    state: NonNull<c_void>,
    cases: ThreadCases,
}

// SAFETY: the library takes a lock for each call, as libibverbs does.
unsafe impl Send for ThreadQueues {}

impl ThreadQueues {
    /// Posts so many requests, one by one.
    pub(crate) fn post(&self, first: u64, count: u32) {
        // SAFETY: the state was made for this, and stays.
        unsafe { (self.cases.post)(self.state.as_ptr(), first, count) };
    }

    /// Polls one by one until there were so many completions.
    pub(crate) fn poll(&self, count: u32) {
        // SAFETY: the state was made for this, and stays.
        unsafe { (self.cases.poll)(self.state.as_ptr(), count) };
    }
}

/// The loaded library. It stays for good.
pub(crate) struct Library {
    cases: Vec<&'static Case>,
    /// Of libibverbs; others have none.
    memory: Option<MemoryCases>,
    threads: Option<ThreadCases>,
}

impl Library {
    pub(crate) fn load(path: &Path) -> Result<Self, String> {
        let path = CString::new(path.as_os_str().as_bytes()).map_err(|error| error.to_string())?;
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
            let who: Option<NonNull<c_void>> = symbol(library, c"bench_memory_who");
            who.map(|who| {
                let all = symbol(library, c"bench_memory_open")
                    .zip(symbol(library, c"bench_memory_qps"))
                    .zip(symbol(library, c"bench_memory_cqs"));
                let ((open, qps), cqs) = all.ok_or("the peer has no part of memory.c")?;
                Ok::<_, &str>(MemoryCases { who: text(who.as_ptr().cast()), open, qps, cqs })
            })
        };
        // SAFETY: the library declares them so.
        let threads = unsafe {
            let all = symbol(library, c"bench_threads_open")
                .zip(symbol(library, c"bench_threads_post"))
                .zip(symbol(library, c"bench_threads_poll"));
            all.map(|((open, post), poll)| ThreadCases { open, post, poll })
        };
        Ok(Self { cases, memory: memory.transpose()?, threads })
    }

    /// Who does it, if threads can.
    pub(crate) fn with_threads(&self) -> Option<&str> {
        let memory = self.memory.as_ref().filter(|_| self.threads.is_some())?;
        Some(memory.who.trim_end_matches('-'))
    }

    /// Queues for threads; there have to be some.
    pub(crate) fn queues(&self, machine: &Machine, depth: u32) -> ThreadQueues {
        let cases = self.threads.expect("queues that threads may use");
        // SAFETY: the machine stays.
        let state = unsafe { (cases.open)(PeerMachine::of(machine), depth) };
        ThreadQueues { state: NonNull::new(state).expect("the peer opens the device"), cases }
    }

    /// What one of so many queues holds, kind by kind.
    pub(crate) fn memory(&self, machine: &Machine, count: usize) -> Vec<Holding> {
        let Some(memory) = &self.memory else { return Vec::new() };
        let shown = PeerMachine::of(machine);
        // SAFETY: the machine stays.
        let state = unsafe { (memory.open)(shown) };
        let kinds =
            [("memory_qp", "create_qp", memory.qps), ("memory_cq", "create_cq", memory.cqs)];
        let kinds = kinds.into_iter().filter_map(|(case, verb, make)| {
            let each = memory::each(count, |count| {
                let mut made = vec![null_mut(); count];
                // SAFETY: the state was made for this, there is room for so many, and all stay.
                unsafe { make(state, made.as_mut_ptr(), count as u32) };
                made
            })?;
            Some(Holding { case, who: format!("{}{verb}", memory.who), mode: Mode::Default, each })
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
                // Others take no locks that they could be told to leave.
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
/// The library declares it as an `F`, a pointer to a function, or it is a constant, and `F` a pointer.
unsafe fn symbol<F>(library: NonNull<c_void>, name: &CStr) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<NonNull<c_void>>()) };
    // SAFETY: the library is loaded.
    let found = NonNull::new(unsafe { libc::dlsym(library.as_ptr(), name.as_ptr()) })?;
    // SAFETY: the caller's contract; the sizes are equal.
    Some(unsafe { std::mem::transmute_copy(&found) })
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
                let nanoseconds = if latency::is_sampled() {
                    latency::sample(calls as usize, |k| {
                        (case.call)(state, first + k as u64, 1);
                        true
                    });
                    0
                } else {
                    time(|| (case.call)(state, first, calls))
                };
                (case.finish)(state, calls);
                nanoseconds
            }
        }),
    }
}
