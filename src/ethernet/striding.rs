//! Packets that share receives: each takes some strides of a receive's memory.

use super::buffers::{Buffers, FreeList, GiveBack, Slot};
use super::mode::{Inbound, invalid};
use super::outgoing::Outgoing;
use super::store::Store;
use super::{Count, EthernetError, EthernetQueue, VERB};
use crate::cq::CompletionQueue;
use crate::error::Error;
use crate::flow::{FlowRule, Rule};
use crate::pools::QueuePairRecords;
use crate::rss::{HashQueuePair, WorkQueue};
use mlx5_cq::{FoundStrides, StrideNotice, StridePoll, Strides, WorkCompletion};
use mlx5_prm::ethernet::striding::{BYTES_MASK, FILLER, STRIDES_SHIFT};
use mlx5_prm::wqe::MAX_SGE_LENGTH;
use mlx5_wqe::Sge;
use std::cell::Cell;
use std::fmt;

/// Several packets share a receive
/// ([`EthernetQueueBuilder::striding`](super::EthernetQueueBuilder::striding)): small packets take
/// little memory, and the queue posts one request for many of them.
///
/// The device writes packets one after the other into the memory of a receive, each at the start of
/// a stride. The queue posts a receive again when the last of its packets is gone. One packet that
/// is kept for long holds all of the receive's memory, so a program should copy such packets.
///
/// The packets arrive on a [work queue](crate::WorkQueue); the queue pair only sends.
pub struct Striding {
    receives: Box<[Receive]>,
    /// Receives that are ready to be posted, each named by its first stride.
    ready: FreeList,
    /// Buffers for frames, each named by its first stride.
    frames: FreeList,
    /// Size of a frame in bytes.
    frame_size: u32,
    /// Address of the first receive. The others follow, and then the frames.
    start: usize,
    /// State of a burst: the receive whose last strides were taken, and the number of completions
    /// without a packet.
    ended: Cell<Option<usize>>,
    bad: Cell<u32>,
    /// Base-two logarithms of the bytes of a stride and of a receive.
    log_stride: u32,
    log_receive: u32,
}

/// A receive: posted, and then used up by packets until the last of them is gone.
#[derive(Default)]
struct Receive {
    /// Number of packets that were kept or are being sent, plus one while the device has the
    /// receive and until the end of the burst in which its last strides were taken. Packets of a
    /// burst are looked at one at a time, and need no count.
    held: Cell<u32>,
}

impl fmt::Debug for Striding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Striding")
            .field("receives", &self.receives.len())
            .field("ready", &self.ready.len())
            .field("frames", &self.frames.len())
            .finish_non_exhaustive()
    }
}

/// The number and size of strides that the program asks for.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Shape {
    pub(super) stride: u32,
    pub(super) strides: u32,
    pub(super) spares: Option<u32>,
}

/// The layout of a queue's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Layout {
    /// Number of receives that wait for packets.
    pub(super) posted: u32,
    /// Number of all receives.
    receives: u32,
    /// Base-two logarithms of the bytes of a stride, and of the strides of a receive.
    log_stride: u32,
    log_strides: u32,
    /// Strides of a frame, its bytes, and the number of frames.
    frame_strides: u32,
    frame_size: u32,
    frames: u32,
    /// Number of all strides.
    pub(super) slots: u32,
}

/// Maximum number of strides of a queue, and of bytes of its memory.
const MOST_STRIDES: u64 = 1 << 24;
const MOST_BYTES: u64 = 1 << 36;
/// Base-two logarithm of the maximum size of a stride: the maximum length of a packet.
const LOG_LONGEST: u32 = STRIDES_SHIFT;

impl Shape {
    /// Lays out memory for `waiting` strides that wait for packets, and for `frames` frames.
    pub(super) fn layout(
        &self,
        waiting: u32,
        frames: u32,
        frame_size: u32,
    ) -> Result<Layout, Error> {
        let Self { stride, strides, spares } = *self;
        if !stride.is_power_of_two() || !strides.is_power_of_two() {
            let what = format!("{strides} strides of {stride} bytes: both are powers of two");
            return Err(Error::invalid(VERB, what));
        }
        let posted = waiting.div_ceil(strides).max(2);
        let receives = u64::from(posted) + u64::from(spares.unwrap_or(posted));
        let frame_strides = frame_size.div_ceil(stride);
        if u64::from(stride) * u64::from(strides) > u64::from(MAX_SGE_LENGTH) {
            let what = format!(
                "{strides} strides of {stride} bytes: {MAX_SGE_LENGTH} bytes at most in a receive"
            );
            return Err(Error::invalid(VERB, what));
        }
        let slots = receives * u64::from(strides) + u64::from(frames) * u64::from(frame_strides);
        if stride.ilog2() > LOG_LONGEST {
            let what = format!("strides of {stride} bytes: {} at most", 1 << LOG_LONGEST);
            return Err(Error::invalid(VERB, what));
        }
        if slots > MOST_STRIDES || slots * u64::from(stride) > MOST_BYTES {
            let what = format!(
                "{slots} strides of {stride} bytes: {MOST_STRIDES} strides and {} GiB at most",
                MOST_BYTES >> 30
            );
            return Err(Error::invalid(VERB, what));
        }
        Ok(Layout {
            posted,
            receives: receives as u32,
            log_stride: stride.trailing_zeros(),
            log_strides: strides.trailing_zeros(),
            frame_strides,
            frame_size: frame_strides * stride,
            frames,
            slots: slots as u32,
        })
    }
}

/// The receiving side of a striding queue.
pub struct Receiver {
    // Dropped first: it steers packets to the work queue.
    pub(super) spread: HashQueuePair,
    pub(super) work_queue: WorkQueue,
    /// Number of receives that wait for packets, as long as there are enough.
    pub(super) posted: u32,
}

impl fmt::Debug for Receiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").field("work_queue", &self.work_queue).finish_non_exhaustive()
    }
}

/// A burst: completions of packets, and the addresses of the packets.
pub struct Cursor<'q> {
    poll: StridePoll<'q, QueuePairRecords>,
    /// Address of the next packet, if its strides follow those of the last one.
    next: usize,
    shape: Bytes,
}

/// Decodes byte counts. The field is the shift from the strides' bits to their length in bytes.
#[derive(Clone, Copy)]
struct Bytes(u32);

impl Bytes {
    /// The bytes of the strides.
    #[inline]
    fn room(self, bytes: u32) -> usize {
        (bytes & !BYTES_MASK) as usize >> self.0
    }

    /// The bytes of the packet.
    #[inline]
    fn length(self, bytes: u32) -> usize {
        (bytes & BYTES_MASK) as usize
    }

    /// Whether the packet is not longer than its strides.
    #[inline]
    fn fits(self, bytes: u32) -> bool {
        self.length(bytes) <= self.room(bytes)
    }
}

/// Passes all packets to `each` that follow each other in one receive.
///
/// A function of its own, so that the loop has all registers.
#[inline(never)]
fn each_behind(cursor: &mut Cursor<'_>, each: &mut impl FnMut(WorkCompletion<'_>, Slot, usize)) {
    let Cursor { ref mut poll, ref mut next, shape } = *cursor;
    let mut at = *next;
    poll.each_behind(
        |bytes| shape.fits(bytes),
        |completion, bytes| {
            each(completion, Slot::at(at), shape.length(bytes));
            at += shape.room(bytes);
        },
    );
    *next = at;
}

/// Passes a packet to `each`. A function of its own, to keep the loop of the fast path small.
#[cold]
#[inline(never)]
fn rarely<'p>(
    each: &mut impl FnMut(WorkCompletion<'p>, Slot, usize),
    (completion, slot, length): (WorkCompletion<'p>, Slot, usize),
) {
    each(completion, slot, length);
}

impl fmt::Debug for Cursor<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.poll.fmt(f)
    }
}

/// Returns the completion with another lifetime.
///
/// # Safety
/// It is not used after the next use of the poll that returned it.
#[inline]
unsafe fn detached<'other>(completion: WorkCompletion<'_>) -> WorkCompletion<'other> {
    // SAFETY: the types differ only in the lifetime, and the caller promises not to use the
    // completion after the next use of its poll.
    unsafe { std::mem::transmute::<WorkCompletion<'_>, WorkCompletion<'other>>(completion) }
}

impl Striding {
    pub(super) fn new(layout: &Layout, start: usize) -> Self {
        let Layout { receives, log_stride, log_strides, frame_strides, frame_size, frames, .. } =
            *layout;
        let log_receive = log_stride + log_strides;
        let place = move |number: u32| start + ((number as usize) << log_receive);
        let frame_bytes = (frame_strides as usize) << log_stride;
        let frame = |number: u32| place(receives) + number as usize * frame_bytes;
        Self {
            receives: (0..receives).map(|_| Receive::default()).collect(),
            ready: FreeList::of((0..receives).map(place)),
            frames: FreeList::of((0..frames).map(frame)),
            frame_size,
            start,
            ended: Cell::new(None),
            bad: Cell::new(0),
            log_stride,
            log_receive,
        }
    }

    /// Which receive a slot is part of. `None` for a frame.
    #[inline]
    fn receive(&self, slot: &Slot) -> Option<&Receive> {
        self.receives.get((slot.address() - self.start) >> self.log_receive)
    }

    /// The first stride of the receive that a slot is part of.
    #[inline]
    fn first(&self, slot: &Slot) -> Slot {
        let before = slot.address() - self.start;
        Slot::at(self.start + (before >> self.log_receive << self.log_receive))
    }

    /// Address of the packet whose strides are the next ones, if the poll knows it.
    #[inline]
    fn next(&self, poll: &StridePoll<'_, QueuePairRecords>) -> usize {
        let (wr_id, stride) = poll.behind();
        wr_id as usize + (usize::from(stride) << self.log_stride)
    }

    /// Finds the packet in strides of the receive at `start`: its slot and its length. If these are
    /// the receive's last strides, the burst holds the receive from now on, and releases the one
    /// that it held.
    #[cold]
    #[inline(never)]
    fn find(&self, start: usize, found: FoundStrides, bad: &Count) -> Option<(Slot, usize)> {
        let FoundStrides { first, bytes, ended } = found;
        let Strides { count, bytes: length, filler, .. } = Strides::new(first, bytes);
        let (before, room) = (usize::from(first), usize::from(count) << self.log_stride);
        if ended && let Some(ended) = self.ended.replace(Some(start)) {
            self.let_go(Slot::at(ended), 1);
        }
        if filler || usize::from(length) > room {
            self.bad.set(self.bad.get() + 1);
            bad.add(u64::from(!filler));
            return None;
        }
        Some((Slot::at(start + (before << self.log_stride)), length.into()))
    }

    /// Takes back the receive at `start`, all of whose strides were taken.
    #[inline(never)]
    fn end_receive(&self, start: usize) {
        self.let_go(Slot::at(start), 1);
    }

    /// Notes which packets of the burst are to be sent: each holds its receive until it has left.
    /// The burst gives back no receive before that.
    #[inline]
    fn hold_outgoing(&self, outgoing: &Outgoing) {
        if !outgoing.is_empty() {
            self.hold_all(outgoing);
        }
    }

    #[inline(never)]
    fn hold_all(&self, outgoing: &Outgoing) {
        let mut packets = outgoing.not_noted();
        while let Some(first) = packets.first() {
            let count = self.run(packets);
            self.hold(&Slot::at(first.get().addr as usize), count as u32);
            packets = &packets[count..];
        }
    }

    /// Counts `count` further packets of a receive as held.
    #[inline]
    fn hold(&self, slot: &Slot, count: u32) {
        if let Some(receive) = self.receive(slot) {
            receive.held.set(receive.held.get() + count);
        }
    }

    /// Takes back `count` packets of a receive that were held.
    #[inline(always)]
    fn let_go(&self, slot: Slot, count: u32) {
        let Some(receive) = self.receive(&slot) else { return self.frames.push(slot) };
        let held = receive.held.get() - count;
        receive.held.set(held);
        if held == 0 {
            self.ready.push(self.first(&slot));
        }
    }

    /// Posts ready receives, at most `missing`, and returns how many are still missing.
    #[inline(always)]
    fn post(
        &self,
        buffers: &Buffers,
        queue: &mut WorkQueue,
        mut missing: u32,
    ) -> Result<u32, EthernetError> {
        while missing != 0
            && let Some(slot) = self.ready.pop()
        {
            let sge = buffers.sge(slot.address(), 1 << self.log_receive);
            if let Err(error) = queue.recv(sge.addr, sge) {
                self.ready.push(slot);
                return Err(EthernetError::Post(error));
            }
            if let Some(receive) = self.receive(&slot) {
                receive.held.set(1);
            }
            missing -= 1;
        }
        Ok(missing)
    }
}

impl Cursor<'_> {
    /// Looks for the next packet, off the fast path.
    ///
    /// # Safety
    /// The caller does not use the completion after the next use of the cursor.
    #[inline(always)]
    unsafe fn find<'other>(
        &mut self,
        store: &Store<Striding>,
    ) -> Option<(WorkCompletion<'other>, Slot, usize)> {
        let Store { mode, counters, outgoing, .. } = store;
        while self.poll.has_next() {
            mode.hold_outgoing(outgoing);
            let note = |notice| {
                let (wr_id, ended) = match notice {
                    StrideNotice::Ended(wr_id) => (wr_id, true),
                    StrideNotice::Failed { wr_id, ended } => {
                        counters.bad.add(1);
                        (wr_id, ended)
                    }
                };
                if ended {
                    mode.let_go(Slot::at(wr_id as usize), 1);
                }
            };
            let found = self.poll.find(note).map(|(completion, strides)| {
                // SAFETY: the caller promises not to use the completion after the next use of the
                // cursor, which owns the poll.
                (unsafe { detached(completion) }, strides)
            });
            // Also if nothing was found: the poll may have reached the next receive.
            self.next = mode.next(&self.poll);
            let (completion, strides) = found?;
            let start = completion.wr_id() as usize;
            if let Some((slot, length)) = mode.find(start, strides, &counters.bad) {
                return Some((completion, slot, length));
            }
            if strides.bytes & FILLER != 0 {
                // Skipped strides do not count toward the burst: a packet may follow them.
                self.poll.allow_another();
            }
        }
        None
    }
}

impl GiveBack for Striding {
    const SHARES: bool = true;

    #[inline]
    fn give_back(&self, slot: Slot) {
        self.let_go(slot, 1);
    }

    #[inline]
    fn give_back_run(&self, slot: Slot, count: u32) {
        self.let_go(slot, count);
    }

    /// The packets in the same receive as the first one. The packets of a burst are in the order of
    /// their receives, and no receive occurs twice: none is posted again before the burst is over.
    #[inline(always)]
    fn run(&self, packets: &[Cell<Sge>]) -> usize {
        let Some(first) = packets.first() else { return 0 };
        let start = self.first(&Slot::at(first.get().addr as usize));
        let inside = |sge: &Cell<Sge>| {
            (sge.get().addr as usize).wrapping_sub(start.address()) >> self.log_receive == 0
        };
        match packets.last() {
            Some(last) if inside(last) => packets.len(),
            _ => partition(packets, inside),
        }
    }
}

/// Number of leading packets that are inside.
#[cold]
#[inline(never)]
fn partition(packets: &[Cell<Sge>], inside: impl Fn(&Cell<Sge>) -> bool) -> usize {
    packets.partition_point(inside)
}

impl Inbound for Striding {
    type Receiver = Receiver;
    type Cursor<'q> = Cursor<'q>;

    #[inline(always)]
    fn cursor<'q>(cq: &'q mut CompletionQueue, store: &Store<Self>, burst: u32) -> Cursor<'q> {
        // SAFETY: a burst borrows the queue, which alone polls its completion queue, and `Burst`
        // ends the poll even if the cursor is leaked.
        let poll = unsafe { cq.poll_strides(burst) };
        let mode = &store.mode;
        let (next, shape) = (mode.next(&poll), Bytes(STRIDES_SHIFT - mode.log_stride));
        Cursor { poll, next, shape }
    }

    #[inline(always)]
    unsafe fn next<'other>(
        store: &Store<Self>,
        cursor: &mut Self::Cursor<'_>,
    ) -> Option<(WorkCompletion<'other>, Slot, usize)> {
        let shape = cursor.shape;
        match cursor.poll.next_behind(|bytes| shape.fits(bytes)) {
            Some((completion, bytes)) => {
                let at = cursor.next;
                cursor.next += shape.room(bytes);
                // SAFETY: the caller promises not to use the completion after the next use of the
                // cursor.
                Some((unsafe { detached(completion) }, Slot::at(at), shape.length(bytes)))
            }
            // SAFETY: the caller promises not to use the completion after the next use of the
            // cursor.
            None => unsafe { cursor.find(store) },
        }
    }

    #[inline(always)]
    fn for_each(
        store: &Store<Self>,
        mut cursor: Self::Cursor<'_>,
        mut each: impl FnMut(WorkCompletion<'_>, Slot, usize),
    ) {
        loop {
            each_behind(&mut cursor, &mut each);
            // SAFETY: `rarely` consumes the completion before the next use of the cursor.
            let Some(found) = (unsafe { cursor.find(store) }) else { return };
            rarely(&mut each, found);
        }
    }

    #[inline(always)]
    fn end(queue: &mut EthernetQueue<Self>) {
        let Store { mode, counters, outgoing, .. } = &queue.store;
        mode.hold_outgoing(outgoing);
        let (count, ended) = queue.recv_cq.end_strides();
        counters.received.add(u64::from(count - mode.bad.take()));
        if let Some(wr_id) = ended {
            mode.end_receive(wr_id as usize);
        }
        if let Some(start) = mode.ended.take() {
            mode.end_receive(start);
        }
    }

    /// The burst has the receive.
    #[inline]
    fn drop_packet(&self, _: Slot) {}

    #[inline]
    fn keep_packet(&self, slot: &Slot) {
        self.hold(slot, 1);
    }

    fn take(&self, _buffers: &Buffers) -> Option<(Slot, u32)> {
        Some((self.frames.pop()?, self.frame_size))
    }

    /// Its strides, of which the last one may be full in part.
    #[inline]
    fn room(&self, buffers: &Buffers, length: u32) -> u32 {
        let size = buffers.size();
        (length + size - 1) & !(size - 1)
    }

    fn free(&self) -> usize {
        self.frames.len()
    }

    #[inline(always)]
    fn refill(queue: &mut EthernetQueue<Self>) -> Result<(), EthernetError> {
        let Receiver { work_queue, posted, .. } = &queue.receiver;
        let missing = posted.saturating_sub(work_queue.posted());
        if missing == 0 {
            return Ok(());
        }
        queue.post_receives(missing)
    }

    /// With one posted receive, only a few strides may be left in it. The device drops each packet
    /// that needs more, without an event.
    fn is_starved(queue: &EthernetQueue<Self>) -> bool {
        queue.receiver.work_queue.posted() < 2
    }

    fn attach(queue: &EthernetQueue<Self>, rule: &Rule) -> Result<FlowRule, Error> {
        queue.receiver.spread.attach(queue.port, rule)
    }

    fn restart(queue: &mut EthernetQueue<Self>) -> Result<(), Error> {
        // Counts frames that were sent. An error does not matter: the queue is reset.
        let _ = queue.reap();
        queue.qp.reset()?;
        let EthernetQueue { qp, send_cq, in_flight, store, .. } = queue;
        let (_, polled) = qp.forget_unfinished([send_cq], |_, _| {})?;
        store.drop_outgoing();
        store.counters.failed.add(in_flight.retire(in_flight.put(), &store.mode));
        polled.map_err(invalid)?;
        queue.qp.activate(queue.port)
    }
}

impl EthernetQueue<Striding> {
    /// Posts as many of the `missing` receives as are ready.
    #[inline(never)]
    fn post_receives(&mut self, missing: u32) -> Result<(), EthernetError> {
        if self.receiver.work_queue.is_stopped() {
            // The device would flush each receive that is posted.
            return Err(EthernetError::Stopped);
        }
        let mut reaped = Ok(());
        if self.store.mode.ready.len() < missing as usize {
            self.store.take_returned();
            reaped = self.reap().map(drop);
        }
        let Self { receiver, store, .. } = self;
        let left = store.mode.post(&store.buffers, &mut receiver.work_queue, missing)?;
        if left != 0 {
            store.counters.starved.add(1);
        }
        self.unless_starved(reaped)
    }
}

#[cfg(test)]
mod hostile;

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::ethernet::tests::{fail_sending, sends, spoil_sending};
    use crate::ethernet::{Counts, EthernetError};
    use mlx5_prm::cqe::{Cqe, CqeOpcode, ErrorCqe, Syndrome};
    use mlx5_prm::ethernet::striding::{FILLER, STRIDES_SHIFT};
    use mlx5_sim::{PortConfig, SimConfig, Simulator};
    use std::time::Duration;
    use zerocopy::IntoBytes;

    fn simulator() -> Simulator {
        Simulator::new(SimConfig::new().ports([PortConfig::ROCE]).raw_packets(true).step(true))
    }

    /// A queue of three receives of eight strides of 64 bytes.
    fn queue(simulator: &Simulator) -> EthernetQueue<Striding> {
        let context = crate::devices_on(simulator.kernel()).unwrap().remove(0).open().unwrap();
        let builder = context.create_ethernet_queue(1).receives(16).frames(1).sends(8);
        builder.striding(64, 8).spares(1).build().unwrap()
    }

    /// Writes completions of strides, and counts the strides as a device does.
    pub(in crate::ethernet) struct Completer {
        simulator: Simulator,
        rqn: u32,
        cqn: u32,
        /// The request that it fills, and how many of its strides are taken.
        pub(in crate::ethernet) request: u16,
        pub(in crate::ethernet) taken: u32,
        strides: u32,
    }

    impl Completer {
        pub(in crate::ethernet) fn new(
            simulator: &Simulator,
            queue: &EthernetQueue<Striding>,
        ) -> Self {
            let mode = &queue.store.mode;
            Self {
                simulator: simulator.clone(),
                rqn: queue.receiver.work_queue.wq_num(),
                cqn: queue.recv_cq.cqn(),
                request: 0,
                taken: 0,
                strides: 1 << (mode.log_receive - mode.log_stride),
            }
        }

        /// Completes strides. `change` may alter the completion.
        pub(super) fn complete_by(
            &mut self,
            opcode: CqeOpcode,
            (first, count, rest): (u16, u32, u32),
            change: impl FnOnce(&mut Cqe),
        ) {
            assert!(self.try_complete(opcode, (first, count, rest), change));
        }

        /// Like [`Completer::complete_by`], unless the completion queue is full. Returns whether it
        /// wrote the completion.
        pub(in crate::ethernet) fn try_complete(
            &mut self,
            opcode: CqeOpcode,
            (first, count, rest): (u16, u32, u32),
            change: impl FnOnce(&mut Cqe),
        ) -> bool {
            let mut engine = self.simulator.fabric().lock();
            let device = engine.device_mut(0);
            let mut entry = device.completion(self.rqn, opcode, 0, first);
            entry.byte_count.set(count << STRIDES_SHIFT | rest);
            entry.wqe_id.set(self.request);
            change(&mut entry);
            let bytes = entry.as_bytes().try_into().unwrap();
            if !device.inject_completion(self.cqn, bytes, &[]) {
                return false;
            }
            self.taken += count;
            if self.taken >= self.strides {
                (self.request, self.taken) = (self.request.wrapping_add(1), 0);
            }
            true
        }

        /// Completes a packet, or strides that were skipped.
        pub(super) fn complete(&mut self, first: u16, count: u32, rest: u32) {
            self.complete_by(CqeOpcode::ResponderSend, (first, count, rest), |_| {});
        }

        /// Completes a packet with an error.
        pub(super) fn fail(&mut self, syndrome: Syndrome, first: u16, count: u32) {
            self.complete_by(CqeOpcode::ResponderError, (first, count, 0), |entry| {
                let mut error: ErrorCqe = zerocopy::transmute!(*entry);
                error.syndrome = syndrome as u8;
                *entry = zerocopy::transmute!(error);
            });
        }
    }

    /// Receives a burst, and returns the lengths of its packets.
    fn lengths(queue: &mut EthernetQueue<Striding>) -> Result<Vec<usize>, EthernetError> {
        let mut found = Vec::new();
        queue.receive(|packets| packets.for_each(|packet| found.push(packet.len())))?;
        Ok(found)
    }

    #[test]
    fn device_that_reports_impossible_strides_makes_no_packet() {
        // Beyond the end, no strides, and strides before those that are taken.
        for (first, count) in [(0, 9), (8, 1), (7, 2), (u16::MAX, 1), (3, 0), (2, 1), (0, 8)] {
            let simulator = simulator();
            let mut queue = queue(&simulator);
            let mut device = Completer::new(&simulator, &queue);
            device.complete(0, 3, 130);
            assert_eq!(lengths(&mut queue).unwrap(), [130]);
            device.complete(first, count, 60);
            assert!(lengths(&mut queue).unwrap().is_empty(), "{count} from {first} on");
            let error = lengths(&mut queue).expect_err("what cannot be");
            assert!(matches!(error, EthernetError::Poll(_)), "{error}");
            assert_eq!(queue.counts().received, 1);
        }
    }

    /// The receives are posted from the last one down.
    #[test]
    fn a_packet_that_comes_during_a_burst_that_has_found_none_lies_in_its_receive() {
        let simulator = simulator();
        let context = crate::devices_on(simulator.kernel()).unwrap().remove(0).open().unwrap();
        let builder = context.create_ethernet_queue(1).receives(32).frames(0).sends(8);
        let mut queue = builder.striding(64, 8).spares(0).build().unwrap();
        let mut device = Completer::new(&simulator, &queue);
        let (start, log_receive) = (queue.store.mode.start, queue.store.mode.log_receive);
        device.fail(Syndrome::LocalLength, 0, 8);
        let mut place = None;
        let burst = queue.receive(|mut packets| {
            assert!(packets.next().is_none(), "the first receive has failed");
            device.complete(0, 1, 60);
            let packet = packets.next().expect("a packet of the second receive");
            place = Some((packet.as_ptr().addr() - start) >> log_receive);
        });
        burst.unwrap();
        assert_eq!(place, Some(2));
    }

    #[test]
    fn an_error_of_sending_is_one_of_receiving_only_while_no_receive_can_be_posted() {
        let simulator = simulator();
        let context = crate::devices_on(simulator.kernel()).unwrap().remove(0).open().unwrap();
        let channel = context.create_comp_channel().unwrap();
        let builder = context.create_ethernet_queue(1).receives(24).frames(1).sends(8);
        let builder = builder.channel(&channel).striding(64, 8).spares(0);
        let mut queue = builder.build().unwrap();
        let mut frame = queue.frame().unwrap();
        frame.resize(60);
        assert_eq!(queue.send([frame]), Ok(1));
        spoil_sending(&simulator, &mut queue);

        // The program holds one receive of three.
        let (mut kept, mut device) = (Vec::new(), Completer::new(&simulator, &queue));
        let mut keep = |queue: &mut EthernetQueue<Striding>| {
            device.complete(device.taken as u16, 4, 60);
            queue.receive(|packets| packets.for_each(|packet| kept.push(packet.keep())))
        };
        for _ in 0..2 {
            assert_eq!(keep(&mut queue), Ok(()));
        }
        assert_eq!(queue.receiver.work_queue.posted(), 2);
        assert!(!queue.wait(Some(Duration::ZERO)).unwrap(), "packets may arrive, and none has");
        assert_eq!(queue.receive(|_| ()), Ok(()));
        // Now it holds two: the one that is left is not enough.
        assert_eq!(keep(&mut queue), Ok(()));
        assert!(matches!(keep(&mut queue), Err(EthernetError::Poll(_))));
        assert_eq!(queue.receiver.work_queue.posted(), 1);
        assert!(queue.wait(Some(Duration::ZERO)).unwrap(), "there is something to report");
        assert!(matches!(queue.receive(|_| ()), Err(EthernetError::Poll(_))));
        // Returned buffers are posted, whatever error sending has.
        kept.clear();
        assert_eq!(queue.receive(|_| ()), Ok(()));
        assert_eq!(queue.receiver.work_queue.posted(), 3);
        assert!(!queue.wait(Some(Duration::ZERO)).unwrap());
        assert!(matches!(queue.send([]), Err(EthernetError::Poll(_))), "sending reports it");
    }

    #[test]
    fn a_receive_of_fewer_bytes_than_the_device_wants_is_refused_by_name() {
        // The device's capability, whether it can be queried, and the fewest strides that follow.
        for (log_bytes, devx, least) in
            [(9, true, 512), (0, true, 16384), (9, false, 16384), (11, true, 2048)]
        {
            let config = SimConfig::new().ports([PortConfig::ROCE]).raw_packets(true).devx(devx);
            let has =
                mlx5_sim::Capabilities { log_striding_bytes: log_bytes, ..config.capabilities };
            let simulator = Simulator::new(config.capabilities(has));
            let context = crate::devices_on(simulator.kernel()).unwrap().remove(0).open().unwrap();
            let caps = context.query_device().ethernet.striding.unwrap();
            assert_eq!((caps.least, caps.fewest_strides(64)), (least, Some(least / 64)));
            assert_eq!((caps.fewest_strides(4096), caps.fewest_strides(96)), (Some(8), None));
            let queue = |strides| {
                context.create_ethernet_queue(1).receives(1).striding(64, strides).build()
            };
            queue(least / 64).expect("enough bytes");
            if least > 512 {
                let error = queue(least / 128).expect_err("too few bytes");
                assert_eq!(error.kind(), crate::ErrorKind::InvalidArgument);
                let wanted = format!("and {least} bytes at least in a receive");
                assert!(error.to_string().contains(&wanted), "{error}");
            }
        }
    }

    #[test]
    fn only_a_packet_takes_strides() {
        use CqeOpcode::{ResponderSendImm, ResponderSendInvalidate, ResponderWriteImm};
        for opcode in [ResponderSendImm, ResponderSendInvalidate, ResponderWriteImm] {
            let simulator = simulator();
            let mut queue = queue(&simulator);
            let mut device = Completer::new(&simulator, &queue);
            device.complete(0, 1, 60);
            device.complete_by(opcode, (1, 1, 60), |_| {});
            assert_eq!(lengths(&mut queue).unwrap(), [60]);
            let error = lengths(&mut queue).expect_err("what cannot be");
            assert!(matches!(error, EthernetError::Poll(_)), "{error}");
        }
    }

    #[test]
    fn a_packet_longer_than_its_strides_is_counted_and_harms_no_other() {
        let simulator = simulator();
        let mut queue = queue(&simulator);
        let mut device = Completer::new(&simulator, &queue);
        for _ in 0..9 {
            device.complete(0, 1, 65);
            device.complete(1, 2, 128);
            device.complete(3, 2, 0xffff);
            device.complete(5, 1, FILLER);
            device.complete(6, 2, 129);
            assert_eq!(lengths(&mut queue).unwrap(), [128]);
        }
        assert_eq!(queue.counts(), Counts { received: 9, bad: 27, ..Counts::default() });
    }

    /// The kernel does not know that the send queue failed.
    #[test]
    fn a_queue_whose_sending_failed_is_restarted() {
        let simulator = simulator();
        let mut queue = queue(&simulator);
        for _ in 0..3 {
            fail_sending(&simulator, &mut queue);
            queue.restart().unwrap();
            assert!(sends(&simulator, &mut queue));
        }
    }

    #[test]
    #[expect(clippy::forget_non_drop, reason = "a program may, and the queue ends the burst")]
    fn bursts_that_are_leaked_do_not_fill_the_completion_queue() {
        let simulator = simulator();
        let mut queue = queue(&simulator);
        let mut device = Completer::new(&simulator, &queue);
        let rounds = 3 * queue.recv_cq.capacity() as u16;
        for counter in 0..rounds {
            device.complete(counter % 8, 1, 60);
            let found = queue.receive(|mut packets| {
                let found = packets.next().is_some();
                std::mem::forget(packets);
                found
            });
            assert_eq!(found, Ok(true), "{counter} of {rounds}");
        }
    }

    /// Receives a burst, and returns the receive and the stride of each packet.
    fn places(queue: &mut EthernetQueue<Striding>) -> Result<Vec<(usize, usize)>, EthernetError> {
        let (start, stride, receive) =
            (queue.store.mode.start, queue.store.mode.log_stride, queue.store.mode.log_receive);
        let mut found = Vec::new();
        queue.receive(|packets| {
            packets.for_each(|packet| {
                let place = packet.as_ptr().addr() - start;
                let inside = place & ((1 << receive) - 1);
                found.push((place >> receive, inside >> stride));
            });
        })?;
        Ok(found)
    }

    /// Linux' mlx5e and DPDK's PMD behave the same way: the device continues in the receive, after
    /// the packet's strides.
    #[test]
    fn a_packet_that_failed_takes_its_strides_and_the_device_goes_on_in_the_receive() {
        for (syndrome, count) in
            [(Syndrome::LocalLength, 1), (Syndrome::RemoteAborted, 3), (Syndrome::LocalLength, 0)]
        {
            let simulator = simulator();
            let mut queue = queue(&simulator);
            let mut device = Completer::new(&simulator, &queue);
            device.complete(0, 1, 60);
            device.complete(1, 1, 60);
            let before = places(&mut queue).unwrap();
            let receive = before[0].0;
            assert_eq!(before, [(receive, 0), (receive, 1)]);
            device.fail(syndrome, 2, count);
            let posted = queue.receiver.work_queue.posted();
            assert_eq!(places(&mut queue), Ok(vec![]));
            assert_eq!(queue.receiver.work_queue.posted(), posted, "it is the device's");
            assert_eq!(queue.store.mode.receives[receive].held.get(), 1);
            let next = 2 + count as usize;
            device.complete(next as u16, 8 - next as u32, 60);
            assert_eq!(places(&mut queue), Ok(vec![(receive, next)]));
            assert_eq!((queue.counts().received, queue.counts().bad), (3, 1));
            assert_eq!(queue.store.mode.receives[receive].held.get(), 1, "it is posted again");
            // The next receive is another one.
            device.complete(0, 1, 60);
            assert_ne!(places(&mut queue).unwrap(), [(receive, 0)]);
        }
    }

    #[test]
    fn a_packet_that_failed_with_the_last_strides_ends_the_receive() {
        let simulator = simulator();
        let mut queue = queue(&simulator);
        let mut device = Completer::new(&simulator, &queue);
        device.complete(0, 6, 60);
        device.fail(Syndrome::LocalLength, 6, 2);
        device.complete(0, 1, 60);
        let places = places(&mut queue).unwrap();
        assert_eq!((places[0].1, places[1].1), (0, 0));
        assert_ne!(places[0].0, places[1].0);
        assert_eq!((queue.receiver.work_queue.posted(), queue.store.mode.ready.len()), (2, 1));
    }

    #[test]
    fn queue_that_an_error_stopped_posts_no_receives_and_says_so() {
        use Syndrome::{LocalProtection, LocalQpOperation, WorkRequestFlushed};
        for syndrome in [LocalProtection, LocalQpOperation, WorkRequestFlushed] {
            let simulator = simulator();
            // The device may flush the failed request too, or not.
            for flushed in [&[1][..], &[0, 1]] {
                let mut queue = queue(&simulator);
                let mut device = Completer::new(&simulator, &queue);
                device.complete(0, 1, 60);
                assert_eq!(lengths(&mut queue), Ok(vec![60]));
                device.fail(syndrome, 1, 0);
                assert_eq!(places(&mut queue), Err(EthernetError::Stopped));
                for (number, &request) in (1..).zip(flushed) {
                    let posted = queue.receiver.work_queue.posted();
                    let all = posted as usize + queue.store.mode.ready.len();
                    assert_eq!((posted, all), (2 - number, 3), "{syndrome:?}");
                    (device.request, device.taken) = (request, 0);
                    device.fail(WorkRequestFlushed, 0, 0);
                    assert_eq!(places(&mut queue), Err(EthernetError::Stopped));
                    assert_eq!(queue.counts().bad, 1 + u64::from(number));
                }
                assert_eq!(queue.receiver.work_queue.posted(), 0);
                assert!(queue.wait(Some(Duration::ZERO)).unwrap(), "there is something to report");
                assert!(sends(&simulator, &mut queue), "it sends");
            }
        }
    }

    /// Memory of any other receive may be the device's or the program's.
    #[test]
    fn a_completion_of_another_receive_is_corrupt_whatever_it_is_of() {
        for (opcode, count, first) in [
            (CqeOpcode::ResponderSend, 1, 60),
            (CqeOpcode::ResponderSend, 1, FILLER),
            (CqeOpcode::ResponderError, 1, 0),
        ] {
            for known in [false, true] {
                for request in [1, 2, 3, u16::MAX] {
                    let simulator = simulator();
                    let mut queue = queue(&simulator);
                    let mut device = Completer::new(&simulator, &queue);
                    if known {
                        device.complete(0, 1, 60);
                        assert_eq!(lengths(&mut queue), Ok(vec![60]));
                    }
                    device.request = request;
                    device.complete_by(opcode, (known.into(), count, first), |_| {});
                    assert_eq!(lengths(&mut queue), Ok(vec![]));
                    let error = lengths(&mut queue).expect_err("another receive");
                    assert!(matches!(error, EthernetError::Poll(_)), "{error}");
                }
            }
        }
    }

    /// mlx5e and DPDK count them, and ignore their reported position.
    #[test]
    fn strides_that_were_skipped_count_wherever_they_are_said_to_be() {
        for first in [0, 2, 3, 7, 8, u16::MAX] {
            let simulator = simulator();
            let mut queue = queue(&simulator);
            let mut device = Completer::new(&simulator, &queue);
            device.complete(0, 3, 60);
            device.complete(first, 2, FILLER);
            device.complete(5, 2, 60);
            device.complete(first, 1, FILLER);
            device.complete(0, 1, 60);
            let found = places(&mut queue).unwrap();
            let strides = Vec::from_iter(found.iter().map(|place| place.1));
            assert_eq!(strides, [0, 5, 0], "skipped from {first} on");
            assert_eq!(found[0].0, found[1].0);
            assert_ne!(found[1].0, found[2].0);
            assert_eq!(queue.counts(), Counts { received: 3, ..Counts::default() });
        }
    }

    /// Numbers from a seed (xorshift64).
    struct Random(u64);

    impl Random {
        fn below(&mut self, bound: u64) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            self.0 % bound
        }
    }

    /// A queue whose packets are dropped, kept and sent at random, and the holder of each packet.
    struct Traffic {
        simulator: Simulator,
        queue: EthernetQueue<Striding>,
        random: Random,
        device: Completer,
        /// The receives of packets that were sent; the last ones are still being sent.
        sent: Vec<usize>,
        kept: Vec<(usize, crate::ethernet::Frame)>,
    }

    impl Traffic {
        const STRIDES: u32 = 16;

        fn new(seed: u64) -> Self {
            let simulator = simulator();
            let context = crate::devices_on(simulator.kernel()).unwrap().remove(0).open().unwrap();
            let builder = context.create_ethernet_queue(1).receives(48).frames(1).sends(64);
            let queue = builder.burst(64).striding(64, Self::STRIDES).spares(2).build().unwrap();
            let (random, device) = (Random(seed), Completer::new(&simulator, &queue));
            Self { simulator, queue, random, device, sent: Vec::new(), kept: Vec::new() }
        }

        fn receive_of(queue: &EthernetQueue<Striding>, address: usize) -> usize {
            (address - queue.store.mode.start) >> queue.store.mode.log_receive
        }

        /// Lets the device complete some packets, if there are strides.
        fn complete_packets(&mut self) {
            let Self { queue, random, device, .. } = self;
            let mut left = queue.receiver.work_queue.posted() * Self::STRIDES - device.taken;
            for _ in 0..random.below(48) {
                let room = Self::STRIDES - device.taken;
                let count = (1 + random.below(3) as u32).min(room).min(left);
                if count == 0 {
                    return;
                }
                device.complete(device.taken as u16, count, 14 + count * 50);
                left -= count;
            }
        }

        /// Takes a burst, of which it may leave some packets, one by one or all at once. Returns
        /// how many there were.
        fn burst(&mut self) -> usize {
            let Self { queue, random, sent, kept, .. } = self;
            let (start, log) = (queue.store.mode.start, queue.store.mode.log_receive);
            let room = queue.in_flight.room();
            let mut outgoing = Vec::new();
            let one_by_one = random.below(2) == 0;
            let (most, mut count) = (1 + random.below(64), 0);
            let mut each = |packet: crate::ethernet::Packet<'_, Striding>, random: &mut Random| {
                let receive = (packet.as_ptr().addr() - start) >> log;
                count += 1;
                match random.below(8) {
                    0 => kept.push((receive, packet.keep())),
                    1..6 => {
                        outgoing.push(receive);
                        packet.send();
                    }
                    _ => drop(packet),
                }
            };
            let burst = queue.receive(|mut packets| {
                if !one_by_one {
                    return packets.for_each(|packet| each(packet, random));
                }
                for _ in 0..most {
                    let Some(packet) = packets.next() else { return };
                    each(packet, random);
                }
            });
            burst.unwrap();
            assert!(outgoing.len() <= room || queue.counts().not_sent != 0);
            let before = sent.len() as u64;
            sent.extend(outgoing);
            sent.truncate(before as usize + (sent.len() - before as usize).min(room));
            count
        }

        /// No packet of a ready receive is held, and each receive has one place.
        fn check(&mut self) {
            let Self { queue, sent, kept, .. } = self;
            let in_flight = &sent[sent.len() - queue.sending()..];
            let mode = &queue.store.mode;
            let mut ready = Vec::new();
            while let Some(slot) = mode.ready.pop() {
                ready.push(slot);
            }
            for slot in ready.into_iter().rev() {
                let receive = Self::receive_of(queue, slot.address());
                assert!(!in_flight.contains(&receive), "a packet of receive {receive} is sent");
                assert!(kept.iter().all(|kept| kept.0 != receive), "one of {receive} is kept");
                assert_eq!(mode.receives[receive].held.get(), 0);
                mode.ready.push(slot);
            }
            for (number, receive) in mode.receives.iter().enumerate() {
                let of = in_flight.iter().filter(|&&sent| sent == number).count();
                let of = of + kept.iter().filter(|kept| kept.0 == number).count();
                let posted = receive.held.get() - of as u32;
                assert!(posted <= 1, "receive {number}: {of} packets, {posted} besides");
            }
        }
    }

    #[test]
    fn no_receive_is_posted_again_before_its_packets_are_sent_and_dropped() {
        for seed in 1..=40 {
            println!("seed {seed}");
            let mut traffic = Traffic::new(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed));
            for _ in 0..120 {
                traffic.complete_packets();
                while traffic.burst() != 0 {
                    traffic.check();
                }
                for _ in 0..traffic.random.below(4) {
                    traffic.simulator.step();
                }
                let kept = traffic.random.below(1 + traffic.kept.len() as u64) as usize;
                traffic.kept.drain(..kept);
                traffic.queue.store.take_returned();
                traffic.queue.reap().unwrap();
                traffic.check();
            }
            assert!(traffic.sent.len() > 500, "only {} packets were sent", traffic.sent.len());
            traffic.kept.clear();
            traffic.simulator.run_until_idle();
            traffic.queue.reap().unwrap();
            traffic.queue.store.take_returned();
            traffic.check();
            assert_eq!(traffic.queue.sending(), 0);
            let Traffic { queue, .. } = traffic;
            let whole = queue.receiver.work_queue.posted() as usize + queue.store.mode.ready.len();
            assert_eq!(whole, queue.store.mode.receives.len());
        }
    }

    /// The driver knows that its strides are the next ones of the receive.
    #[test]
    fn a_packet_behind_another_one_is_found_on_the_fast_path() {
        let simulator = simulator();
        let mut queue = queue(&simulator);
        let mut device = Completer::new(&simulator, &queue);
        (0..3).for_each(|first| device.complete(first, 1, 60));
        // SAFETY: nothing else uses the completion queue.
        let mut poll = unsafe { queue.recv_cq.poll_strides(9) };
        assert!(poll.next_behind(|_| true).is_none(), "no queue is known yet");
        assert!(poll.find(|_| {}).is_some());
        for _ in 0..2 {
            assert!(poll.next_behind(|_| true).is_some());
        }
        assert!(poll.next_behind(|_| true).is_none());
    }

    #[test]
    fn packets_that_follow_each_other_in_one_receive_are_given_back_at_once() {
        let shape = Shape { stride: 64, strides: 8, spares: None };
        let mode = Striding::new(&shape.layout(17, 0, 64).unwrap(), 1 << 20);
        let packet =
            |stride: &u64| Cell::new(Sge { addr: (1 << 20) + 64 * stride, ..Sge::default() });
        for (strides, run) in [
            (&[][..], 0),
            (&[3], 1),
            (&[8, 9, 15], 3),
            (&[9, 15, 16], 2),
            (&[7, 8, 9], 1),
            (&[20, 2, 3], 1),
        ] {
            let packets = Vec::from_iter(strides.iter().map(packet));
            assert_eq!(mode.run(&packets), run, "{strides:?}");
        }
    }

    #[test]
    fn memory_is_laid_out_in_strides_or_refused() {
        let shape = |stride, strides, spares| Shape { stride, strides, spares };
        let layout = shape(64, 8, None).layout(17, 3, 512).unwrap();
        assert_eq!((layout.posted, layout.receives, layout.slots), (3, 6, 48 + 24));
        let mode = Striding::new(&layout, 1 << 20);
        let starts = std::iter::from_fn(|| mode.frames.pop().map(Slot::into_address));
        let starts = Vec::from_iter(starts.map(|address| (address - (1 << 20)) / 64));
        assert_eq!(starts, [64, 56, 48]);
        let layout = shape(2048, 8, Some(0)).layout(0, 1, 64).unwrap();
        assert_eq!((layout.posted, layout.slots, layout.frame_size), (2, 17, 2048));
        // The limits of bytes and of strides.
        for (stride, strides, slots) in [(1 << 16, 1 << 10, 1 << 20), (64, 1 << 12, 1 << 24)] {
            let layout = shape(stride, strides, None).layout(slots / 2, 0, 64).unwrap();
            assert_eq!(layout.slots, slots);
            shape(stride, strides, None).layout(slots / 2, 1, 64).expect_err("one more");
        }
        for (shape, waiting) in [
            (shape(96, 8, None), 1),
            (shape(64, 0, None), 1),
            (shape(64, 8, Some(u32::MAX)), 1),
            (shape(64, 1 << 16, None), u32::MAX),
            (shape(8192, 1 << 16, None), 1 << 23),
            (shape(1 << 17, 8, None), 1),
        ] {
            shape.layout(waiting, 1, 64).expect_err("impossible");
        }
    }
}
