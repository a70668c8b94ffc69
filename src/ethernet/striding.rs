//! Packets that share receives: each takes some strides of the memory of one.

use super::buffers::{Buffers, FreeList, GiveBack, Slot};
use super::mode::{Inbound, invalid};
use super::store::Store;
use super::{Count, EthernetError, EthernetQueue, VERB};
use crate::cq::{CompletionQueue, PollError};
use crate::error::Error;
use crate::flow::{FlowRule, Rule};
use crate::pools::QueuePairRecords;
use crate::rss::{HashQueuePair, WorkQueue};
use mlx5_cq::{StridePoll, Strides, WorkCompletion};
use mlx5_prm::ethernet::striding::{BYTES_MASK, FILLER, STRIDES_MASK, STRIDES_SHIFT};
use std::cell::Cell;
use std::fmt;

/// Several packets share a receive ([`EthernetQueueBuilder::striding`](super::EthernetQueueBuilder::striding)):
/// small packets take little memory, and the queue posts one request for many of them.
///
/// The device puts one packet behind the other into the memory of a receive, each at the start of a stride.
/// A receive is posted again when the last of its packets is gone: one packet that is kept for long keeps
/// all of it, so a program copies those.
///
/// The packets come to a [work queue](crate::WorkQueue); the queue pair only sends.
pub struct Striding {
    receives: Box<[Receive]>,
    /// Receives that are to be posted.
    ready: FreeList,
    /// Buffers for frames, by the first stride of each.
    frames: FreeList,
    /// The first stride of the first frame.
    frames_from: u32,
    /// Bytes of a frame.
    frame_size: u32,
    /// Base-two logarithm of the strides of a receive.
    log_strides: u32,
}

/// A receive: posted, and then used up by packets until the last of them is gone.
#[derive(Default)]
struct Receive {
    /// Packets of it that somebody has, and one if the device has it.
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

/// The strides of receives, as a program asks for them.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Shape {
    pub(super) stride: u32,
    pub(super) strides: u32,
    pub(super) spares: Option<u32>,
}

/// What the memory of a queue is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Layout {
    /// Receives that wait for packets.
    pub(super) posted: u32,
    /// All of them.
    receives: u32,
    log_strides: u32,
    /// Strides of a frame, and bytes.
    frame_strides: u32,
    frame_size: u32,
    frames: u32,
    /// All strides.
    pub(super) slots: u32,
}

/// The most strides of a queue, and bytes of its memory.
const MOST_STRIDES: u64 = 1 << 24;
const MOST_BYTES: u64 = 1 << 36;

impl Shape {
    /// Lays out memory for so many strides that wait for packets, and so many frames of a size.
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
        let slots = receives * u64::from(strides) + u64::from(frames) * u64::from(frame_strides);
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
            log_strides: strides.trailing_zeros(),
            frame_strides,
            frame_size: frame_strides * stride,
            frames,
            slots: slots as u32,
        })
    }
}

/// What receives the packets of a striding queue.
pub struct Receiver {
    // Dropped first: it leads packets to the work queue.
    pub(super) spread: HashQueuePair,
    pub(super) work_queue: WorkQueue,
    /// Receives that wait for packets, as long as there are enough.
    pub(super) posted: u32,
}

impl fmt::Debug for Receiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").field("work_queue", &self.work_queue).finish_non_exhaustive()
    }
}

/// Completions of packets, with their strides.
pub struct Cursor<'q>(StridePoll<'q, QueuePairRecords>);

impl fmt::Debug for Cursor<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Striding {
    pub(super) fn new(layout: &Layout) -> Self {
        let Layout { receives, log_strides, frame_strides, frame_size, frames, .. } = *layout;
        let frames_from = receives << log_strides;
        let starts = |number: u32| frames_from + number * frame_strides;
        Self {
            receives: (0..receives).map(|_| Receive::default()).collect(),
            ready: FreeList::new(0..receives),
            frames: FreeList::of((0..frames).map(starts)),
            frames_from,
            frame_size,
            log_strides,
        }
    }

    /// Strides of a receive.
    #[inline(always)]
    const fn strides(&self) -> u32 {
        1 << self.log_strides
    }

    /// The slot and the length of a packet, from the strides that its completion tells. They were retired
    /// there: nobody had them before, and with the last ones the device lets go of the receive. `None` if
    /// strides were skipped, or the packet is longer than they are.
    #[inline(always)]
    fn packet(&self, number: u32, strides: (u16, u32), buffers: &Buffers) -> Option<(Slot, u32)> {
        let (first, bytes) = (u32::from(strides.0), strides.1);
        let count = bytes >> STRIDES_SHIFT & STRIDES_MASK;
        // With the bit of a filler it is longer than any packet.
        let length = bytes & (FILLER | BYTES_MASK);
        let receive = self.receives.get(number as usize)?;
        if length > count << buffers.log_size() {
            return None;
        }
        let is_last = first + count == self.strides();
        receive.held.set(receive.held.get() + 1 - u32::from(is_last));
        Some((Slot::from_number((number << self.log_strides) + first), length))
    }

    /// Takes note of strides without a packet.
    #[cold]
    #[inline(never)]
    fn no_packet(&self, number: u32, strides: Strides, bad: &Count) {
        if u32::from(strides.first) + u32::from(strides.count) == self.strides() {
            self.fail(number);
        }
        if !strides.filler {
            bad.add(1);
        }
    }

    /// Takes a receive back that the device ended.
    #[cold]
    fn fail(&self, number: u32) {
        if let Some(receive) = self.receives.get(number as usize) {
            self.let_go(number, receive);
        }
    }

    /// Takes back what somebody had of a receive.
    #[inline(always)]
    fn let_go(&self, number: u32, receive: &Receive) {
        let held = receive.held.get() - 1;
        receive.held.set(held);
        if held == 0 {
            self.ready.push(Slot::from_number(number));
        }
    }

    /// Posts what is ready, as far as so many receives are missing, and returns how many those are still.
    fn post(
        &self,
        buffers: &Buffers,
        queue: &mut WorkQueue,
        mut missing: u32,
    ) -> Result<u32, EthernetError> {
        while missing != 0
            && let Some(slot) = self.ready.pop()
        {
            let number = slot.number();
            let bytes = self.strides() * buffers.size();
            let sge = buffers.sge(number << self.log_strides, bytes);
            if let Err(error) = queue.recv(number.into(), sge) {
                self.ready.push(slot);
                return Err(EthernetError::Post(error));
            }
            let receive = &self.receives[number as usize];
            receive.held.set(1);
            missing -= 1;
        }
        Ok(missing)
    }
}

impl GiveBack for Striding {
    #[inline(always)]
    fn give_back(&self, slot: Slot) {
        if slot.number() >= self.frames_from {
            return self.frames.push(slot);
        }
        let number = slot.into_number() >> self.log_strides;
        if let Some(receive) = self.receives.get(number as usize) {
            self.let_go(number, receive);
        }
    }
}

impl Inbound for Striding {
    type Receiver = Receiver;
    type Cursor<'q> = Cursor<'q>;

    #[inline(always)]
    fn cursor(cq: &mut CompletionQueue) -> Result<Self::Cursor<'_>, PollError> {
        Ok(Cursor(cq.poll_strides()?))
    }

    #[inline(always)]
    unsafe fn next<'other>(
        store: &Store<Self>,
        cursor: &mut Self::Cursor<'_>,
        left: &mut usize,
    ) -> Option<(WorkCompletion<'other>, Slot, u32)> {
        let Store { mode, buffers, counters, .. } = store;
        loop {
            *left = left.checked_sub(1)?;
            let failed = |wr_id| {
                mode.fail(wr_id as u32);
                counters.bad.add(1);
            };
            let (completion, first, bytes) = cursor.0.next(failed)?;
            let number = completion.wr_id() as u32;
            if let Some((slot, length)) = mode.packet(number, (first, bytes), buffers) {
                // SAFETY: the types differ in their lifetime alone, for which the caller answers.
                let completion = unsafe {
                    std::mem::transmute::<WorkCompletion<'_>, WorkCompletion<'other>>(completion)
                };
                return Some((completion, slot, length));
            }
            // Strides that were skipped are none of the burst: a packet may wait behind them.
            *left += usize::from(bytes & FILLER != 0);
            mode.no_packet(number, Strides::new(first, bytes), &counters.bad);
        }
    }

    fn take(&self, _buffers: &Buffers) -> Option<(Slot, u32)> {
        Some((self.frames.pop()?, self.frame_size))
    }

    /// Its strides, of which the last one may be full in part.
    #[inline(always)]
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
        let missing = posted - (work_queue.capacity() - work_queue.free()).min(*posted);
        if missing == 0 {
            return Ok(());
        }
        queue.post_receives(missing)
    }

    fn is_starved(queue: &EthernetQueue<Self>) -> bool {
        let work_queue = &queue.receiver.work_queue;
        work_queue.free() == work_queue.capacity()
    }

    fn attach(queue: &EthernetQueue<Self>, rule: &Rule) -> Result<FlowRule, Error> {
        queue.receiver.spread.attach(queue.port, rule)
    }

    fn restart(queue: &mut EthernetQueue<Self>) -> Result<(), Error> {
        // What was sent is told of as such; an error here is one of the queue that ends.
        let _ = queue.reap();
        queue.qp.reset()?;
        let EthernetQueue { qp, send_cq, in_flight, store, .. } = queue;
        let sent = send_cq.poll(usize::MAX, |_| {});
        store.drop_outgoing();
        store.counters.failed.add(in_flight.retire(in_flight.put(), &store.mode));
        let forgotten = qp.forget();
        sent.map_err(invalid)?;
        forgotten?;
        queue.qp.activate(queue.port)
    }
}

impl EthernetQueue<Striding> {
    /// Posts as many receives as are missing, if there are some.
    #[inline(never)]
    fn post_receives(&mut self, missing: u32) -> Result<(), EthernetError> {
        if self.store.mode.ready.len() < missing as usize {
            self.store.take_returned();
            self.reap()?;
        }
        let Self { receiver, store, .. } = self;
        let left = store.mode.post(&store.buffers, &mut receiver.work_queue, missing)?;
        if left != 0 {
            store.counters.starved.add(1);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ethernet::{Counts, EthernetError};
    use mlx5_prm::cqe::CqeOpcode;
    use mlx5_prm::ethernet::striding::{FILLER, STRIDES_SHIFT};
    use mlx5_sim::{PortConfig, SimConfig, Simulator};
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

    /// Has the device tell of strides, by a completion with this opcode.
    fn tell_by(
        simulator: &Simulator,
        queue: &EthernetQueue<Striding>,
        opcode: CqeOpcode,
        (first, count, rest): (u16, u32, u32),
    ) {
        let mut engine = simulator.fabric().lock();
        let device = engine.device_mut(0);
        let rqn = queue.receiver.work_queue.wq_num();
        let mut entry = device.completion(rqn, opcode, 0, first);
        entry.byte_count.set(count << STRIDES_SHIFT | rest);
        let bytes = entry.as_bytes().try_into().unwrap();
        assert!(device.inject_completion(queue.recv_cq.cqn(), bytes, &[]));
    }

    fn tell(
        simulator: &Simulator,
        queue: &EthernetQueue<Striding>,
        first: u16,
        count: u32,
        rest: u32,
    ) {
        tell_by(simulator, queue, CqeOpcode::ResponderSend, (first, count, rest));
    }

    /// The lengths of the packets that there are.
    fn lengths(queue: &mut EthernetQueue<Striding>) -> Result<Vec<usize>, EthernetError> {
        let mut found = Vec::new();
        queue.receive(|packets| packets.for_each(|packet| found.push(packet.len())))?;
        Ok(found)
    }

    #[test]
    fn a_device_that_tells_of_impossible_strides_makes_no_packet() {
        // Beyond the end, none, before those that are taken.
        for (first, count) in [(0, 9), (8, 1), (7, 2), (u16::MAX, 1), (3, 0), (2, 1), (0, 8)] {
            let simulator = simulator();
            let mut queue = queue(&simulator);
            tell(&simulator, &queue, 0, 3, 130);
            assert_eq!(lengths(&mut queue).unwrap(), [130]);
            tell(&simulator, &queue, first, count, 60);
            assert!(lengths(&mut queue).unwrap().is_empty(), "{count} from {first} on");
            let error = lengths(&mut queue).expect_err("what cannot be");
            assert!(matches!(error, EthernetError::Poll(_)), "{error}");
            assert_eq!(queue.counts().received, 1);
        }
    }

    #[test]
    fn only_a_packet_takes_strides() {
        use CqeOpcode::{ResponderSendImm, ResponderSendInvalidate, ResponderWriteImm};
        for opcode in [ResponderSendImm, ResponderSendInvalidate, ResponderWriteImm] {
            let simulator = simulator();
            let mut queue = queue(&simulator);
            tell(&simulator, &queue, 0, 1, 60);
            tell_by(&simulator, &queue, opcode, (1, 1, 60));
            assert_eq!(lengths(&mut queue).unwrap(), [60]);
            let error = lengths(&mut queue).expect_err("what cannot be");
            assert!(matches!(error, EthernetError::Poll(_)), "{error}");
        }
    }

    #[test]
    fn a_packet_longer_than_its_strides_is_counted_and_harms_no_other() {
        let simulator = simulator();
        let mut queue = queue(&simulator);
        for _ in 0..9 {
            tell(&simulator, &queue, 0, 1, 65);
            tell(&simulator, &queue, 1, 2, 128);
            tell(&simulator, &queue, 3, 2, 0xffff);
            tell(&simulator, &queue, 5, 1, FILLER);
            tell(&simulator, &queue, 6, 2, 129);
            assert_eq!(lengths(&mut queue).unwrap(), [128]);
        }
        assert_eq!(queue.counts(), Counts { received: 9, bad: 27, ..Counts::default() });
    }

    #[test]
    fn memory_is_laid_out_in_strides_or_refused() {
        let shape = |stride, strides, spares| Shape { stride, strides, spares };
        let layout = shape(64, 8, None).layout(17, 3, 512).unwrap();
        assert_eq!((layout.posted, layout.receives, layout.slots), (3, 6, 48 + 24));
        let mode = Striding::new(&layout);
        let starts: Vec<u32> =
            std::iter::from_fn(|| mode.frames.pop().map(Slot::into_number)).collect();
        assert_eq!(starts, [64, 56, 48]);
        let layout = shape(2048, 8, Some(0)).layout(0, 1, 64).unwrap();
        assert_eq!((layout.posted, layout.slots, layout.frame_size), (2, 17, 2048));
        for (shape, waiting) in [
            (shape(96, 8, None), 1),
            (shape(64, 0, None), 1),
            (shape(64, 8, Some(u32::MAX)), 1),
            (shape(64, 1 << 16, None), u32::MAX),
            (shape(8192, 1 << 16, None), 1 << 23),
        ] {
            shape.layout(waiting, 1, 64).expect_err("impossible");
        }
    }
}
