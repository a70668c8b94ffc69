//! Random sessions: a program posts, polls, resets, destroys and resizes, and a device completes at
//! random, within the limits of the manual. It completes receives of a shared queue in any order of
//! the queue pairs that took them, fails in the middle, and writes more while the program is inside
//! of a verb.
//!
//! The model has, for each completion queue, the completions that were written and not polled. A
//! poll must return exactly these, in this order; the completions of a queue pair vanish when it is
//! reset or destroyed.

use crate::bed::*;
use crate::header::*;
use crate::random::Random;
use mlx5_prm::cmd::CommandInput;
use mlx5_prm::cmd::qp::{QueryQpIn, QueryQpOut};
use mlx5_prm::cqe::{Cqe, CqeOpcode, ErrorCqe, OPCODE_SHIFT, Syndrome};
use mlx5_prm::fields::{FromBytes, IntoBytes};
use mlx5_prm::wqe::Opcode;
use mlx5_sim::engine::QpState;
use mlx5_sim::{Fault, Simulator};
use mlx5_verbs::abi::mlx5dv::MLX5DV_RES_TYPE_SRQ;
use mlx5_verbs::abi::*;
use mlx5_verbs::{cq, domain, dv, qp, srq};
use std::collections::VecDeque;
use std::env;
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, MutexGuard};

/// Number of sessions in `cargo test`; the environment may ask for more.
const SESSIONS: u64 = 200;
const STEPS: usize = 250;
const QPS: usize = 4;
const DEPTH: usize = 16;

/// A completion that the device wrote.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Written {
    qpn: u32,
    wr_id: u64,
    status: c_uint,
}

/// A queue pair in the device.
struct Served {
    qpn: u32,
    /// The completion queues of sends and of receives.
    lanes: [usize; 2],
    shares: bool,
    /// Waiting requests: `wr_id`, and whether it is signaled.
    sends: VecDeque<(u64, bool)>,
    receives: VecDeque<u64>,
    /// Receives that it took from the shared queue: `wr_id` and index.
    taken: VecDeque<(u64, u16)>,
    /// Number of requests that it has completed.
    done: [u16; 2],
    failed: bool,
}

/// The shared receive queue in memory, from which the device reads.
struct Ring {
    start: usize,
    record: usize,
    next: u16,
    taken: u16,
}

impl Ring {
    /// The next receive of the list: `wr_id` and index. The test uses the `wr_id` as address.
    fn take(&mut self) -> Option<(u64, u16)> {
        let word = |at: usize| c!(std::ptr::with_exposed_provenance::<u32>(at).read_volatile());
        let posted = u32::from_be(word(self.record)) as u16;
        if posted == self.taken {
            return None;
        }
        let (index, start) = (self.next, self.start + 32 * usize::from(self.next));
        self.next = u32::from_be(word(start)) as u16;
        self.taken = self.taken.wrapping_add(1);
        let address = u64::from(u32::from_be(word(start + 24))) << 32
            | u64::from(u32::from_be(word(start + 28)));
        Some((address, index))
    }
}

/// The device: it takes random steps and records its completions.
struct Device {
    random: Random,
    served: Vec<Served>,
    ring: Ring,
    /// The numbers of the completion queues, and the completions written there.
    numbers: Vec<u32>,
    written: Vec<VecDeque<Written>>,
    /// Number of completions that vanished with their queue pair, and that were written during
    /// verbs.
    vanished: usize,
    late: usize,
}

type Shared = Arc<Mutex<Device>>;

fn lock(device: &Shared) -> MutexGuard<'_, Device> {
    device.lock().expect("no panic")
}

impl Device {
    /// Completes a request, or takes a receive. Returns whether it completed one.
    fn step(&mut self, sim: &Simulator) -> bool {
        if self.served.is_empty() {
            return false;
        }
        let at = self.random.below(self.served.len());
        let qpn = self.served[at].qpn;
        // A queue pair that is reset or destroyed completes nothing, even before its verb returns.
        let alive = sim.query_qp(0, qpn).is_some_and(|qp| qp.state != QpState::Reset);
        if !alive {
            return false;
        }
        let side = self.random.below(2);
        let number = self.numbers[self.served[at].lanes[side]];
        let room = sim.fabric().lock().device(0).cq_room(number);
        // One entry is reserved for the mark of a resize.
        if room.is_none_or(|room| room < 2) {
            return false;
        }
        let fails = self.random.one_in(25);
        let served = &mut self.served[at];
        let (wr_id, counter) = match (side, served.shares) {
            (0, _) => {
                // Unsignaled requests produce no completion, unless they fail.
                while !served.failed && !fails && served.sends.front().is_some_and(|wr| !wr.1) {
                    served.sends.pop_front();
                    served.done[0] = served.done[0].wrapping_add(1);
                }
                let Some((wr_id, _)) = served.sends.pop_front() else { return false };
                (wr_id, served.done[0])
            }
            (_, false) => {
                let Some(wr_id) = served.receives.pop_front() else { return false };
                (wr_id, served.done[1])
            }
            (_, true) => {
                // A failed queue pair takes no more receives.
                if !served.failed && (served.taken.is_empty() || self.random.one_in(2)) {
                    served.taken.extend(self.ring.take());
                    return false;
                }
                let Some(taken) = served.taken.pop_front() else { return false };
                taken
            }
        };
        let failed_before = served.failed;
        let lane = served.lanes[side];
        served.done[side] = served.done[side].wrapping_add(1);
        let (opcode, failure) = match side {
            0 => (CqeOpcode::Requester, CqeOpcode::RequesterError),
            _ => (CqeOpcode::ResponderSend, CqeOpcode::ResponderError),
        };
        let device = sim.fabric();
        let cqe = device.lock().device(0).completion(
            qpn,
            opcode,
            if side == 0 { Opcode::Send as u8 } else { 0 },
            counter,
        );
        let mut status = IBV_WC_SUCCESS;
        let mut entry: [u8; 64] = cqe.as_bytes().try_into().expect("64 bytes");
        let faulted = side == 1 && served.shares && !failed_before && self.random.one_in(12);
        if failed_before || fails || faulted {
            let mut error = ErrorCqe::read_from_bytes(Cqe::as_bytes(&cqe)).expect("64 bytes");
            error.op_own = (failure as u8) << OPCODE_SHIFT | cqe.op_own & 0xf;
            (error.syndrome, status) = match (failed_before, faulted) {
                (true, _) => (Syndrome::WorkRequestFlushed as u8, IBV_WC_WR_FLUSH_ERR),
                (_, true) => (Syndrome::RemoteAborted as u8, IBV_WC_SUCCESS),
                _ => (Syndrome::LocalProtection as u8, IBV_WC_LOC_PROT_ERR),
            };
            error.vendor_err_synd = if faulted { ErrorCqe::PAGE_FAULT } else { 0x51 };
            entry = error.as_bytes().try_into().expect("64 bytes");
            served.failed = failed_before || !faulted;
        }
        assert!(
            device.lock().device_mut(0).inject_completion(number, entry, &[]),
            "there was room"
        );
        // The library posts a receive that had a page fault again, without a completion for the
        // program.
        if !faulted {
            self.written[lane].push_back(Written { qpn, wr_id, status });
        }
        true
    }

    /// The completions of a queue pair vanish when it is reset or destroyed.
    fn vanish(&mut self, qpn: u32) {
        for lane in &mut self.written {
            let before = lane.len();
            lane.retain(|written| written.qpn != qpn);
            self.vanished += before - lane.len();
        }
    }
}

/// Counts of the cases that a session covered.
#[derive(Default, Debug)]
struct Met {
    polled: usize,
    errors: usize,
    vanished: usize,
    late: usize,
    resized: usize,
    events: usize,
    destroyed: usize,
    reset: usize,
}

/// A queue pair in the program.
struct Own {
    qp: *mut ibv_qp,
    shares: bool,
    lanes: [usize; 2],
}

struct Session<'a> {
    bed: Bed,
    device: Shared,
    random: Random,
    parent: *mut ibv_pd,
    srq: *mut ibv_srq,
    cqs: Vec<*mut ibv_cq>,
    own: Vec<Own>,
    next_id: u64,
    met: &'a mut Met,
}

/// The memory of the shared queue and its record, which the session provides.
#[derive(Default)]
struct Provided(Mutex<Vec<(u64, Pages)>>);

unsafe extern "C" fn take(
    _pd: *mut ibv_pd,
    own: *mut c_void,
    size: usize,
    _alignment: usize,
    kind: u64,
) -> *mut c_void {
    let pages = Pages::new(size.next_multiple_of(4096));
    let start = pages.start;
    c!((*own.cast::<Provided>()).0.lock().expect("no panic").push((kind, pages)));
    start.cast()
}

unsafe extern "C" fn give_back(
    _pd: *mut ibv_pd,
    own: *mut c_void,
    memory: *mut c_void,
    _kind: u64,
) {
    let mut all = c!((*own.cast::<Provided>()).0.lock().expect("no panic"));
    all.retain(|(_, pages)| pages.start != memory.cast());
}

impl<'a> Session<'a> {
    fn new(seed: u64, provided: &Provided, met: &'a mut Met) -> Self {
        let mut random = Random::of(seed);
        let mut bed = Bed::new();
        // The session writes all completions itself.
        bed.machine.sim.inject(0, Fault::Stall);
        let mut attr: ibv_parent_domain_init_attr = blank();
        attr.pd = bed.pd;
        attr.comp_mask =
            IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
        attr.alloc = Some(take);
        attr.r#free = Some(give_back);
        attr.pd_context = std::ptr::from_ref(provided).cast_mut().cast();
        let parent = made(alloc_parent_domain(bed.context, &mut attr));
        let mut wanted: ibv_srq_init_attr = blank();
        wanted.attr = ibv_srq_attr { max_wr: 12, max_sge: 1, srq_limit: 0 };
        let srq = made(c!(srq::create_srq(parent, &mut wanted)));
        let place = |of_srq: bool| {
            let all = provided.0.lock().expect("no panic");
            let found = all.iter().find(|(kind, _)| (*kind == MLX5DV_RES_TYPE_SRQ) == of_srq);
            found.expect("its memory").1.address() as usize
        };
        let ring = Ring { start: place(true), record: place(false), next: 0, taken: 0 };
        let channel = bed.channel();
        let mut numbers = Vec::new();
        let cqs: Vec<_> = (0..2 + random.below(2))
            .map(|_| {
                let cq = made(c!(cq::create_cq(bed.context, 100, null_mut(), channel, 0)));
                numbers.push(number_of(&bed, cq));
                cq
            })
            .collect();
        let written = vec![VecDeque::new(); cqs.len()];
        let device = Device {
            random: Random::of(!seed),
            served: Vec::new(),
            ring,
            numbers,
            written,
            vanished: 0,
            late: 0,
        };
        let device = Arc::new(Mutex::new(device));
        let (does, sim) = (Arc::clone(&device), Arc::clone(&bed.machine.sim));
        bed.machine.before_each_call(move || {
            let Ok(mut device) = does.try_lock() else { return };
            for _ in 0..device.random.below(5) {
                device.late += usize::from(device.step(&sim));
            }
        });
        let own = Vec::new();
        let mut session = Self { bed, device, random, parent, srq, cqs, own, next_id: 1, met };
        (0..QPS).for_each(|_| session.create());
        session
    }

    fn create(&mut self) {
        let lanes = [0; 2].map(|_| self.random.below(self.cqs.len()));
        let shares = self.random.one_in(2);
        let mut init = self.bed.qp_init(IBV_QPT_RC, self.cqs[lanes[0]]);
        init.recv_cq = self.cqs[lanes[1]];
        init.cap.max_send_sge = 1;
        init.cap.max_inline_data = 0;
        if shares {
            init.srq = self.srq;
        }
        let qp = made(c!(qp::create::create_qp(self.bed.pd, &mut init)));
        self.start(qp, lanes, shares);
        self.own.push(Own { qp, shares, lanes });
    }

    /// Brings a queue pair to RTS, and adds it to the device's.
    fn start(&mut self, qp: *mut ibv_qp, lanes: [usize; 2], shares: bool) {
        self.bed.connect(qp, qp);
        self.bed.to_rts(qp);
        lock(&self.device).served.push(Served {
            qpn: c!((*qp).qp_num),
            lanes,
            shares,
            sends: VecDeque::new(),
            receives: VecDeque::new(),
            taken: VecDeque::new(),
            done: [0; 2],
            failed: false,
        });
    }

    fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    fn any(&mut self) -> usize {
        self.random.below(self.own.len())
    }

    fn post_send(&mut self) {
        let (at, wr_id, signaled) = (self.any(), self.id(), !self.random.one_in(3));
        let qp = self.own[at].qp;
        let mut sge = self.bed.sge(0, 8);
        let mut wr = send_wr(wr_id, IBV_WR_SEND);
        (wr.sg_list, wr.num_sge) = (&mut sge, 1);
        wr.send_flags = if signaled { IBV_SEND_SIGNALED } else { 0 };
        let mut device = lock(&self.device);
        let served = device.served.iter_mut().find(|of| of.qpn == c!((*qp).qp_num)).expect("it is");
        if served.sends.len() < DEPTH && post_one(qp, &mut wr) == 0 {
            served.sends.push_back((wr_id, signaled));
        }
    }

    fn post_receive(&mut self) {
        let (at, wr_id) = (self.any(), self.id());
        let Own { qp, shares, .. } = self.own[at];
        if shares {
            // The device knows the receive by its address, which is its `wr_id`.
            let sge = ibv_sge { addr: wr_id, ..self.bed.sge(0, 8) };
            let answer = receive_shared(self.srq, wr_id, sge);
            assert!([0, libc::ENOMEM].contains(&answer));
            return;
        }
        let mut device = lock(&self.device);
        let served = device.served.iter_mut().find(|of| of.qpn == c!((*qp).qp_num)).expect("it is");
        if receive(qp, wr_id, self.bed.sge(0, 8)) == 0 {
            served.receives.push_back(wr_id);
        }
    }

    fn poll(&mut self) {
        let lane = self.random.below(self.cqs.len());
        let asked = 1 + self.random.below(6);
        let mut wc: [ibv_wc; 6] = blank();
        let found = poll_cq(self.cqs[lane], asked as c_int, wc.as_mut_ptr());
        let found = usize::try_from(found).expect("a queue without error");
        let mut device = lock(&self.device);
        let expected = device.written[lane].len().min(asked);
        let meant: Vec<_> = device.written[lane].drain(..expected).collect();
        let came: Vec<_> = wc[..found.min(asked)]
            .iter()
            .map(|wc| Written { qpn: wc.qp_num, wr_id: wc.wr_id, status: wc.status })
            .collect();
        assert_eq!(came, meant);
        self.met.polled += found;
        self.met.errors += came.iter().filter(|wc| wc.status != IBV_WC_SUCCESS).count();
    }

    /// Removes the queue pair from the device's, with its completions.
    fn end(&mut self, qpn: u32) {
        let mut device = lock(&self.device);
        device.served.retain(|served| served.qpn != qpn);
        device.vanish(qpn);
    }

    /// Completes the receives that a queue pair took from the shared queue before it is destroyed:
    /// a device loses none.
    fn complete_taken(&mut self, qpn: u32) {
        for _ in 0..100_000 {
            let mut device = lock(&self.device);
            let Some(served) = device.served.iter_mut().find(|of| of.qpn == qpn) else { return };
            if served.taken.is_empty() {
                // A failed queue pair takes no more.
                served.failed = true;
                return;
            }
            served.failed = true;
            device.step(&self.bed.machine.sim);
            drop(device);
            if self.random.one_in(8) {
                (0..4).for_each(|_| self.poll());
            }
        }
        panic!("the device completes what was taken");
    }

    fn acknowledge_all(&mut self) {
        while let Some(event) = self.bed.async_event() {
            acknowledge(event);
            self.met.events += 1;
        }
    }

    fn destroy(&mut self) {
        let at = self.any();
        let Own { qp, .. } = self.own.swap_remove(at);
        let qpn = c!((*qp).qp_num);
        self.complete_taken(qpn);
        self.acknowledge_all();
        let handed = Handed(qp);
        ok(c!(qp::create::destroy_qp(handed.get())));
        self.end(qpn);
        self.met.destroyed += 1;
    }

    fn reset(&mut self) {
        let at = self.any();
        let Own { qp, lanes, shares } = self.own[at];
        let qpn = c!((*qp).qp_num);
        self.complete_taken(qpn);
        to_state(qp, IBV_QPS_RESET);
        self.end(qpn);
        self.start(qp, lanes, shares);
        self.met.reset += 1;
    }

    fn fail(&mut self) {
        let at = self.any();
        let qp = self.own[at].qp;
        to_state(qp, IBV_QPS_ERR);
        let mut device = lock(&self.device);
        let served = device.served.iter_mut().find(|of| of.qpn == c!((*qp).qp_num)).expect("it is");
        served.failed = true;
    }

    fn resize(&mut self) {
        let lane = self.random.below(self.cqs.len());
        let entries = [40, 100, 300][self.random.below(3)];
        let answer = c!(cq::resize_cq(self.cqs[lane], entries));
        // It is too small for the waiting completions.
        assert!([0, libc::EINVAL].contains(&answer), "{answer}");
        self.met.resized += usize::from(answer == 0);
    }

    /// Arms a queue. The device is stalled and does not see it; the queue must continue
    /// nevertheless.
    fn arm(&mut self) {
        let lane = self.random.below(self.cqs.len());
        ok(req_notify_cq(self.cqs[lane], self.random.one_in(2)));
    }

    fn step(&mut self) {
        match self.random.below(40) {
            0..10 => self.post_send(),
            10..18 => self.post_receive(),
            18..27 => {
                for _ in 0..4 {
                    lock(&self.device).step(&self.bed.machine.sim);
                }
            }
            27..34 => self.poll(),
            34 => self.fail(),
            35 => self.reset(),
            36 => self.resize(),
            37 => self.arm(),
            38 => self.acknowledge_all(),
            _ => {
                self.destroy();
                self.create();
            }
        }
    }

    fn finish(mut self) {
        while !self.own.is_empty() {
            self.destroy();
        }
        // The queues are empty, and every receive that was returned to the shared queue has room.
        for _ in 0..self.cqs.len() * 40 {
            self.poll();
        }
        for cq in &self.cqs {
            assert_eq!(poll(*cq).len(), 0);
        }
        let mut outstanding = 0;
        while lock(&self.device).ring.take().is_some() {
            outstanding += 1;
        }
        let mut attr: ibv_srq_attr = blank();
        ok(c!(srq::query_srq(self.srq, &mut attr)));
        let room =
            (0..).take_while(|id| receive_shared(self.srq, *id, self.bed.sge(0, 8)) == 0).count();
        assert_eq!(room + outstanding, attr.max_wr as usize, "receives that are lost");
        let device = lock(&self.device);
        self.met.vanished += device.vanished;
        self.met.late += device.late;
        drop(device);
        self.bed.machine.before_each_call(|| ());
        self.acknowledge_all();
        for cq in self.cqs {
            let handed = Handed(cq);
            ok(c!(cq::destroy_cq(handed.get())));
        }
        ok(c!(srq::destroy_srq(self.srq)));
        ok(c!(domain::dealloc_pd(self.parent)));
        self.bed.end();
    }
}

/// The device's number of a completion queue, read from a queue pair that uses it.
fn number_of(bed: &Bed, cq: *mut ibv_cq) -> u32 {
    let mut init = bed.qp_init(IBV_QPT_RC, cq);
    let qp = made(c!(qp::create::create_qp(bed.pd, &mut init)));
    let mut request = QueryQpIn::request();
    request.set_qpn(c!((*qp).qp_num));
    let mut answer = QueryQpOut::default();
    let (asked, room) = (request.as_bytes(), answer.as_bytes_mut());
    ok(c!(dv::devx::qp_query(
        qp,
        asked.as_ptr().cast(),
        asked.len(),
        room.as_mut_ptr().cast(),
        room.len(),
    )));
    ok(c!(qp::create::destroy_qp(qp)));
    answer.qpc().cqn_snd()
}

fn session(seed: u64, met: &mut Met) {
    println!("MLX5_SEED={seed}");
    let provided = Provided::default();
    let mut session = Session::new(seed, &provided, met);
    for _ in 0..STEPS {
        session.step();
    }
    session.finish();
    assert!(provided.0.lock().expect("no panic").is_empty());
}

/// `MLX5_SEED` repeats one session, `MLX5_SESSIONS` sets the number of sessions.
#[test]
fn every_signaled_request_is_reported_once_or_vanishes_with_its_queue_pair() {
    let mut met = Met::default();
    let number = |name| env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    if let Some(seed) = number("MLX5_SEED") {
        return session(seed, &mut met);
    }
    for seed in 0..number("MLX5_SESSIONS").unwrap_or(SESSIONS) {
        session(seed, &mut met);
    }
    println!("{met:?}");
    let all = [met.polled, met.errors, met.vanished, met.late, met.resized];
    assert!(all.iter().all(|count| *count > 500), "{met:?}");
    assert!([met.events, met.destroyed, met.reset].iter().all(|count| *count > 200), "{met:?}");
}
