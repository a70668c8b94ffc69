//! The start of most tests: an open device, registered memory, queues, connected queue pairs.

use crate::header::*;
use crate::machine::Machine;
use mlx5_sim::SimConfig;
use mlx5_verbs::abi::*;
use mlx5_verbs::{close, cq, device, event, mr, open, pd, qp, query, srq};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::{self, null_mut};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Bytes of registered memory. Requests send from its first half and receive into its second.
pub(crate) const LENGTH: usize = 1 << 16;
pub(crate) const HALF: u64 = 1 << 15;
const PAGE: usize = 4096;

pub(crate) const ALL_ACCESS: c_int = (IBV_ACCESS_LOCAL_WRITE
    | IBV_ACCESS_REMOTE_WRITE
    | IBV_ACCESS_REMOTE_READ
    | IBV_ACCESS_REMOTE_ATOMIC
    | IBV_ACCESS_MW_BIND) as c_int;

/// A call that returns zero.
#[track_caller]
pub(crate) fn ok(answer: c_int) {
    assert_eq!(answer, 0, "errno {}", errno());
}

/// A call that returns an object.
#[track_caller]
pub(crate) fn made<T>(object: *mut T) -> *mut T {
    assert!(!object.is_null(), "errno {}", errno());
    object
}

/// A call that returns no object, and sets this errno.
#[track_caller]
pub(crate) fn not_made<T>(object: *mut T, expected: c_int) {
    let found = errno();
    assert!(object.is_null(), "an object was made");
    assert_eq!(found, expected);
}

/// Memory of whole pages.
pub(crate) struct Pages {
    pub(crate) start: *mut u8,
    layout: Layout,
}

impl Pages {
    pub(crate) fn new(length: usize) -> Self {
        let layout = Layout::from_size_align(length, PAGE).expect("a layout");
        // SAFETY: the layout is not empty.
        let start = unsafe { alloc_zeroed(layout) };
        if start.is_null() {
            handle_alloc_error(layout);
        }
        Self { start, layout }
    }

    pub(crate) fn address(&self) -> u64 {
        self.start.expose_provenance() as u64
    }

    pub(crate) fn write(&self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= self.layout.size());
        c!(self.start.add(at).copy_from(bytes.as_ptr(), bytes.len()));
    }

    pub(crate) fn read<const N: usize>(&self, at: usize) -> [u8; N] {
        assert!(at + N <= self.layout.size());
        let mut bytes = [0; N];
        for (place, byte) in bytes.iter_mut().enumerate() {
            *byte = c!(self.start.add(at + place).read_volatile());
        }
        bytes
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the memory was allocated with this layout.
        unsafe { dealloc(self.start, self.layout) };
    }
}

/// An open device with a protection domain and registered memory. At its end, no object may be
/// left, and the device must have seen no fault of its driver.
pub(crate) struct Bed {
    pub(crate) machine: Machine,
    pub(crate) device: *mut ibv_device,
    pub(crate) context: *mut ibv_context,
    pub(crate) pd: *mut ibv_pd,
    pub(crate) mr: *mut ibv_mr,
    pub(crate) memory: Pages,
    pub(crate) port: ibv_port_attr,
    /// Objects that the test leaves; [`Bed::end`] destroys them, latest first.
    left: Vec<Box<dyn FnOnce()>>,
}

impl Bed {
    pub(crate) fn new() -> Self {
        Self::with(SimConfig::new())
    }

    pub(crate) fn with(config: SimConfig) -> Self {
        let machine = Machine::new(config);
        let list = made(c!(device::get_device_list_on(machine.kernel(), null_mut())));
        let device = c!(*list);
        let context = made(c!(open::open_device(device)));
        c!(device::free_device_list(list));
        let pd = made(c!(pd::alloc_pd(context)));
        let memory = Pages::new(LENGTH);
        let mr = made(c!(mr::reg_mr(pd, memory.start.cast(), LENGTH, ALL_ACCESS)));
        let mut port: ibv_port_attr = blank();
        ok(query_port(context, 1, &mut port, size_of::<ibv_port_attr>()));
        Self { machine, device, context, pd, mr, memory, port, left: Vec::new() }
    }

    /// Registers a call for the end.
    pub(crate) fn later(&mut self, does: impl FnOnce() + 'static) {
        self.left.push(Box::new(does));
    }

    pub(crate) fn run(&self) {
        self.machine.run();
    }

    pub(crate) fn sge(&self, at: u64, length: u32) -> ibv_sge {
        ibv_sge { addr: self.memory.address() + at, length, lkey: c!((*self.mr).lkey) }
    }

    /// Creates a completion queue; [`Bed::end`] destroys it.
    pub(crate) fn cq(&mut self, entries: c_int) -> *mut ibv_cq {
        let cq = made(c!(cq::create_cq(self.context, entries, null_mut(), null_mut(), 0)));
        self.later(move || ok(c!(cq::destroy_cq(cq))));
        cq
    }

    /// Creates a channel that answers EAGAIN when no event is pending, and a completion queue on
    /// it; [`Bed::end`] destroys both.
    pub(crate) fn notified_cq(&mut self, entries: c_int) -> (*mut ibv_comp_channel, *mut ibv_cq) {
        let channel = self.channel();
        let cq = made(c!(cq::create_cq(self.context, entries, null_mut(), channel, 0)));
        self.later(move || ok(c!(cq::destroy_cq(cq))));
        (channel, cq)
    }

    pub(crate) fn channel(&mut self) -> *mut ibv_comp_channel {
        let channel = made(c!(cq::channel::create_comp_channel(self.context)));
        never_waits(c!((*channel).fd));
        self.later(move || ok(c!(cq::channel::destroy_comp_channel(channel))));
        channel
    }

    /// Creates a shared receive queue; [`Bed::end`] destroys it.
    pub(crate) fn srq(&mut self, max_wr: u32) -> *mut ibv_srq {
        let mut init: ibv_srq_init_attr = blank();
        init.attr = ibv_srq_attr { max_wr, max_sge: 1, srq_limit: 0 };
        let srq = made(c!(srq::create_srq(self.pd, &mut init)));
        self.later(move || ok(c!(srq::destroy_srq(srq))));
        srq
    }

    /// Returns the attributes of a queue pair with this completion queue.
    pub(crate) fn qp_init(&self, kind: c_uint, cq: *mut ibv_cq) -> ibv_qp_init_attr {
        let mut init: ibv_qp_init_attr = blank();
        init.send_cq = cq;
        init.recv_cq = cq;
        init.qp_type = kind;
        init.cap = ibv_qp_cap {
            max_send_wr: 16,
            max_recv_wr: 16,
            max_send_sge: 2,
            max_recv_sge: 2,
            max_inline_data: 64,
        };
        init
    }

    /// Two connected queue pairs.
    pub(crate) fn pair(&mut self, kind: c_uint) -> Pair {
        self.pair_on(kind, null_mut(), IBV_QP_EX_NONE)
    }

    /// Two connected queue pairs that receive from `srq`, unless it is NULL. The first has the
    /// operations `ops` of `ibv_wr_*`, if any.
    pub(crate) fn pair_on(&mut self, kind: c_uint, srq: *mut ibv_srq, ops: u64) -> Pair {
        let (cq, peer_cq) = (self.cq(64), self.cq(64));
        let mut init = self.qp_init(kind, cq);
        init.srq = srq;
        let qp = if ops == IBV_QP_EX_NONE {
            made(c!(qp::create::create_qp(self.pd, &mut init)))
        } else {
            let mut ex: ibv_qp_init_attr_ex = blank();
            (ex.send_cq, ex.recv_cq, ex.srq) = (cq, cq, srq);
            (ex.cap, ex.qp_type, ex.pd) = (init.cap, kind, self.pd);
            ex.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
            ex.send_ops_flags = ops;
            made(create_qp_ex(self.context, &mut ex))
        };
        (init.send_cq, init.recv_cq) = (peer_cq, peer_cq);
        let peer = made(c!(qp::create::create_qp(self.pd, &mut init)));
        self.connect(qp, peer);
        self.connect(peer, qp);
        self.to_rts(qp);
        self.to_rts(peer);
        Pair { qp, peer, cq, peer_cq }
    }

    pub(crate) fn to_init(&self, qp: *mut ibv_qp) {
        let mut attr: ibv_qp_attr = blank();
        attr.qp_state = IBV_QPS_INIT;
        attr.port_num = 1;
        attr.qkey = QKEY;
        let kind = c!((*qp).qp_type);
        attr.qp_access_flags = match kind {
            IBV_QPT_UC => IBV_ACCESS_REMOTE_WRITE,
            _ => IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
        };
        let last = if kind == IBV_QPT_UD { IBV_QP_QKEY } else { IBV_QP_ACCESS_FLAGS };
        modify(qp, &mut attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | last);
    }

    pub(crate) fn path(&self) -> ibv_ah_attr {
        let mut attr: ibv_ah_attr = blank();
        (attr.dlid, attr.port_num) = (self.port.lid, 1);
        attr.is_global = u8::from(self.port.link_layer == IBV_LINK_LAYER_ETHERNET as u8);
        ok(c!(query::query_gid(self.context, 1, 0, &mut attr.grh.dgid)));
        attr.grh.hop_limit = 1;
        attr
    }

    /// Brings a queue pair from RESET to RTR, towards another.
    pub(crate) fn connect(&self, qp: *mut ibv_qp, peer: *mut ibv_qp) {
        self.to_init(qp);
        let mut attr: ibv_qp_attr = blank();
        attr.qp_state = IBV_QPS_RTR;
        attr.path_mtu = IBV_MTU_1024;
        attr.dest_qp_num = c!((*peer).qp_num);
        (attr.max_dest_rd_atomic, attr.min_rnr_timer) = (4, 12);
        attr.ah_attr = self.path();
        let connected =
            IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
        let mask = match c!((*qp).qp_type) {
            IBV_QPT_UD => IBV_QP_STATE,
            IBV_QPT_UC => connected,
            _ => connected | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
        };
        modify(qp, &mut attr, mask);
    }

    pub(crate) fn to_rts(&self, qp: *mut ibv_qp) {
        let mut attr: ibv_qp_attr = blank();
        attr.qp_state = IBV_QPS_RTS;
        (attr.timeout, attr.retry_cnt, attr.rnr_retry, attr.max_rd_atomic) = (14, 7, 7, 4);
        let reliable =
            IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
        let is_reliable = [IBV_QPT_RC, IBV_QPT_XRC_SEND].contains(&c!((*qp).qp_type));
        let more = if is_reliable { reliable } else { 0 };
        modify(qp, &mut attr, IBV_QP_STATE | IBV_QP_SQ_PSN | more);
    }

    /// Returns the next pending asynchronous event.
    pub(crate) fn async_event(&self) -> Option<ibv_async_event> {
        self.machine.bring_events();
        never_waits(c!((*self.context).async_fd));
        let mut event = blank();
        match c!(event::get_async_event(self.context, &mut event)) {
            0 => Some(event),
            _ => {
                assert_eq!(errno(), libc::EAGAIN);
                None
            }
        }
    }

    /// Destroys the objects that the test left, closes the device, and checks that nothing is left
    /// and that there was no fault.
    pub(crate) fn end(mut self) {
        self.destroy_left();
        ok(c!(mr::dereg_mr(self.mr)));
        ok(c!(mlx5_verbs::domain::dealloc_pd(self.pd)));
        ok(c!(close::close_device(self.context)));
        self.is_clean();
    }

    pub(crate) fn destroy_left(&mut self) {
        while let Some(destroy) = self.left.pop() {
            destroy();
        }
    }

    /// Checks that the device has no object left, and that its driver made no fault.
    pub(crate) fn is_clean(&self) {
        let left = self.machine.sim.object_counts(0);
        assert_eq!(left, Default::default(), "objects that are left");
        assert_eq!(self.machine.sim.violations(), []);
    }
}

/// Acknowledges an event, for the object that it is about.
#[track_caller]
pub(crate) fn acknowledge(mut event: ibv_async_event) {
    let (element, kind) = (event.element, event.event_type);
    let counted = || {
        c!(match kind {
            IBV_EVENT_CQ_ERR => (*element.cq).async_events_completed,
            IBV_EVENT_SRQ_ERR | IBV_EVENT_SRQ_LIMIT_REACHED => (*element.srq).events_completed,
            IBV_EVENT_WQ_FATAL => (*element.wq).events_completed,
            IBV_EVENT_QP_FATAL
            | IBV_EVENT_QP_REQ_ERR
            | IBV_EVENT_QP_ACCESS_ERR
            | IBV_EVENT_COMM_EST
            | IBV_EVENT_SQ_DRAINED
            | IBV_EVENT_PATH_MIG
            | IBV_EVENT_PATH_MIG_ERR
            | IBV_EVENT_QP_LAST_WQE_REACHED => (*element.qp).events_completed,
            other => panic!("event {other} is about no object"),
        })
    };
    let before = counted();
    c!(event::ack_async_event(&mut event));
    assert_eq!(counted(), before + 1, "event {kind}");
}

/// No operation of `ibv_wr_*`.
pub(crate) const IBV_QP_EX_NONE: u64 = 0;
pub(crate) const QKEY: u32 = 0x1111_1111;

/// Makes reads of a descriptor answer EAGAIN when nothing is pending, as programs do.
pub(crate) fn never_waits(fd: c_int) {
    // SAFETY: the descriptor is open.
    ok(unsafe { libc::fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK) });
}

#[track_caller]
pub(crate) fn modify(qp: *mut ibv_qp, attr: &mut ibv_qp_attr, mask: c_uint) {
    ok(c!(qp::modify::modify_qp(qp, attr, mask as c_int)));
}

/// Brings a queue pair to a state that needs no other attribute.
#[track_caller]
pub(crate) fn to_state(qp: *mut ibv_qp, state: c_uint) {
    let mut attr: ibv_qp_attr = blank();
    attr.qp_state = state;
    modify(qp, &mut attr, IBV_QP_STATE);
}

/// Returns the state that the kernel reports.
pub(crate) fn state_of(qp: *mut ibv_qp) -> c_uint {
    let (mut attr, mut init) = (blank::<ibv_qp_attr>(), blank());
    ok(c!(qp::modify::query_qp(qp, &mut attr, IBV_QP_STATE as c_int, &mut init)));
    attr.qp_state
}

/// Two connected queue pairs. [`Bed::end`] destroys their completion queues.
#[derive(Clone, Copy)]
pub(crate) struct Pair {
    pub(crate) qp: *mut ibv_qp,
    pub(crate) peer: *mut ibv_qp,
    pub(crate) cq: *mut ibv_cq,
    pub(crate) peer_cq: *mut ibv_cq,
}

impl Pair {
    pub(crate) fn destroy(self) {
        ok(c!(qp::create::destroy_qp(self.qp)));
        ok(c!(qp::create::destroy_qp(self.peer)));
    }
}

/// A request with this operation, without data.
pub(crate) fn send_wr(wr_id: u64, opcode: c_uint) -> ibv_send_wr {
    let mut wr: ibv_send_wr = blank();
    (wr.wr_id, wr.opcode, wr.send_flags) = (wr_id, opcode, IBV_SEND_SIGNALED);
    wr
}

/// Posts one request. Returns the result of the call.
pub(crate) fn post_one(qp: *mut ibv_qp, wr: &mut ibv_send_wr) -> c_int {
    let mut bad = null_mut();
    let answer = post_send(qp, wr, &mut bad);
    assert_eq!(bad, if answer == 0 { null_mut() } else { ptr::from_mut(wr) });
    answer
}

/// Posts a message with these bytes.
#[track_caller]
pub(crate) fn send(qp: *mut ibv_qp, wr_id: u64, mut sge: ibv_sge) {
    let mut wr = send_wr(wr_id, IBV_WR_SEND);
    (wr.sg_list, wr.num_sge) = (&mut sge, 1);
    ok(post_one(qp, &mut wr));
}

/// Calls `post` with one receive request.
fn one_receive(
    wr_id: u64,
    mut sge: ibv_sge,
    post: impl FnOnce(*mut ibv_recv_wr, &mut *mut ibv_recv_wr) -> c_int,
) -> c_int {
    let mut wr = ibv_recv_wr { wr_id, next: null_mut(), sg_list: &mut sge, num_sge: 1 };
    let mut bad = null_mut();
    let answer = post(&mut wr, &mut bad);
    assert_eq!(bad, if answer == 0 { null_mut() } else { ptr::from_mut(&mut wr) });
    answer
}

pub(crate) fn receive(qp: *mut ibv_qp, wr_id: u64, sge: ibv_sge) -> c_int {
    one_receive(wr_id, sge, |wr, bad| post_recv(qp, wr, bad))
}

pub(crate) fn receive_shared(srq: *mut ibv_srq, wr_id: u64, sge: ibv_sge) -> c_int {
    one_receive(wr_id, sge, |wr, bad| post_srq_recv(srq, wr, bad))
}

/// Polls all completions.
#[track_caller]
pub(crate) fn poll(cq: *mut ibv_cq) -> Vec<ibv_wc> {
    let mut found = Vec::new();
    loop {
        let mut wc: [ibv_wc; 4] = blank();
        let count = poll_cq(cq, 4, wc.as_mut_ptr());
        let count = usize::try_from(count).expect("a queue that was not overrun");
        assert!(count <= wc.len());
        found.extend_from_slice(&wc[..count]);
        if count < wc.len() {
            return found;
        }
    }
}

/// The `wr_id` and the status of each completion in the queue.
#[track_caller]
pub(crate) fn outcomes(cq: *mut ibv_cq) -> Vec<(u64, c_uint)> {
    poll(cq).iter().map(|wc| (wc.wr_id, wc.status)).collect()
}

/// A pointer that another thread uses.
pub(crate) struct Handed<T>(pub(crate) *mut T);

// SAFETY: C lets any thread use an object.
unsafe impl<T> Send for Handed<T> {}

impl<T> Handed<T> {
    pub(crate) fn get(&self) -> *mut T {
        self.0
    }
}

/// Time limit of a call that must end.
const LONGEST: Duration = Duration::from_secs(60);

/// A call in its own thread, which may wait.
pub(crate) struct Waiting<R> {
    thread: c_int,
    answer: Receiver<R>,
}

impl<R: Send + 'static> Waiting<R> {
    pub(crate) fn begin(call: impl FnOnce() -> R + Send + 'static) -> Self {
        let (begun, number) = channel();
        let (sender, answer) = channel();
        thread::spawn(move || {
            // SAFETY: the call only returns the number of this thread.
            begun.send(unsafe { libc::gettid() }).expect("the caller waits for it");
            sender.send(call())
        });
        Self { thread: number.recv_timeout(LONGEST).expect("a thread"), answer }
    }

    /// Whether the call waits: its thread sleeps. Fails if it ended instead.
    #[track_caller]
    pub(crate) fn waits(&self) -> bool {
        let status = format!("/proc/self/task/{}/stat", self.thread);
        let deadline = Instant::now() + LONGEST;
        loop {
            assert!(Instant::now() < deadline, "a thread that neither sleeps nor ends");
            // The state follows the name, which is in parentheses.
            let text = std::fs::read_to_string(&status).unwrap_or_default();
            let state = text.rsplit(')').next().and_then(|rest| rest.trim_start().chars().next());
            match state {
                Some('S') => return true,
                None | Some('Z' | 'X') => return false,
                _ => thread::yield_now(),
            }
        }
    }

    /// Returns the result of the call, which must end now.
    #[track_caller]
    pub(crate) fn end(self) -> R {
        self.answer.recv_timeout(LONGEST).expect("the call ends")
    }
}

/// Runs a call that must not wait forever.
#[track_caller]
pub(crate) fn ends<R: Send + 'static>(call: impl FnOnce() -> R + Send + 'static) -> R {
    Waiting::begin(call).end()
}
