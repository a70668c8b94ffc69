//! Sending frames: batches, and returning buffers after they were sent.

use super::buffers::{Buffers, GiveBack, Slot};
use super::frame::Frame;
use super::headers::{MOST_INLINE, inline_header};
use super::mode::Mode;
use super::outgoing::{InFlight, Taken};
use super::{Count, EthernetError, EthernetQueue};
use crate::qp::QueuePair;
use mlx5_prm::ethernet::{HEADER, InlineMode};
use mlx5_wqe::transport::RawPacket;
use mlx5_wqe::{Batch, BatchError, SendFlags, Sge, VlanTag};
use std::sync::Arc;

/// A frame shorter than this is padded with zeros if its first bytes go into the request. The
/// device would pad it, too: the wire carries no shorter frame.
const SHORTEST_ON_WIRE: u32 = 60;

/// The most packets of a request.
pub(super) const PACKETS: usize = 30;

/// Options for sending frames.
#[derive(Clone, Copy, Debug)]
pub(super) struct SendOptions {
    /// Of every request.
    pub(super) flags: SendFlags,
    /// The headers of each frame that go into its request.
    pub(super) inline: InlineMode,
    /// A request may send several.
    pub(super) multi_packet: bool,
}

impl SendOptions {
    /// The device reports the last request of a batch, and with it all of them.
    #[inline(always)]
    fn flags_of(&self, is_last: bool) -> SendFlags {
        if is_last { self.flags | SendFlags::SIGNALED } else { self.flags }
    }
}

/// A frame to be sent: its buffer, its bytes, and the tag to insert.
struct Outbound {
    slot: Slot,
    length: u32,
    tag: Option<VlanTag>,
}

/// A batch that frames are added to.
struct Posting<'a, 'q> {
    batch: Batch<'q, RawPacket>,
    in_flight: &'a mut InFlight,
    options: SendOptions,
    /// Packets that one request will send, of those in flight the last.
    run: [Sge; PACKETS],
    count: usize,
}

impl<'a, 'q> Posting<'a, 'q> {
    #[inline(always)]
    fn new(
        qp: &'q mut QueuePair<RawPacket>,
        in_flight: &'a mut InFlight,
        options: SendOptions,
    ) -> Self {
        let run = [Sge::default(); PACKETS];
        Self { batch: qp.wr_start(), in_flight, options, run, count: 0 }
    }

    /// Adds a frame to the current run, and to the frames in flight. The frame has at least a
    /// header.
    #[inline(always)]
    fn add_to_run(&mut self, frame: Frame, own: &Arc<Buffers>) {
        // Only now is it known that the full run is not the last one.
        if self.count == PACKETS {
            self.end_run(false);
        }
        let length = frame.len() as u32;
        let (buffers, slot) = frame.into_parts();
        if let Some(place) = self.run.get_mut(self.count) {
            *place = buffers.sge(slot.address(), length);
            self.count += 1;
        }
        let home = (!Arc::ptr_eq(&buffers, own)).then_some(buffers);
        self.in_flight.push(slot, home);
    }

    /// Adds a frame by a request of its own.
    #[inline(never)]
    fn add_frame(&mut self, frame: Frame, own: &Arc<Buffers>, is_last: bool) {
        let (length, tag) = (frame.len() as u32, frame.tag());
        let (buffers, slot) = frame.into_parts();
        let home = (!Arc::ptr_eq(&buffers, own)).then(|| Arc::clone(&buffers));
        self.add_alone(&buffers, home, Outbound { slot, length, tag }, is_last);
    }

    /// Adds a frame of these buffers with a request of its own, and adds it to the frames in
    /// flight. The frame has at least a header.
    #[inline(never)]
    fn add_alone(
        &mut self,
        buffers: &Buffers,
        home: Option<Arc<Buffers>>,
        mut frame: Outbound,
        is_last: bool,
    ) {
        self.end_run(false);
        let Outbound { ref slot, length, tag } = frame;
        let sge = buffers.sge(slot.address(), length);
        let (wr_id, flags) = (self.in_flight.put() + 1, self.options.flags_of(is_last));
        if self.options.inline != InlineMode::None {
            self.add_inline((wr_id, flags), buffers, &mut frame);
        } else {
            let request = self.batch.wr(wr_id, flags).send();
            match tag {
                None => request.sge(sge),
                Some(tag) => request.insert_vlan(tag).sge(sge),
            }
        }
        self.in_flight.push(frame.slot, home);
    }

    /// Adds the request of a run, if there is one.
    #[inline(never)]
    fn end_run(&mut self, is_last: bool) {
        if self.count == 0 {
            return;
        }
        let (count, flags) = (std::mem::take(&mut self.count), self.options.flags_of(is_last));
        let request = self.batch.wr(self.in_flight.put(), flags);
        match &self.run[..count] {
            [one] => request.send().sge(*one),
            several => request.send_packets(several),
        }
    }

    /// Adds a frame whose first bytes are in the request.
    #[cold]
    fn add_inline(
        &mut self,
        (wr_id, flags): (u64, SendFlags),
        buffers: &Buffers,
        frame: &mut Outbound,
    ) {
        let shown = frame.length.max(SHORTEST_ON_WIRE.min(buffers.size()));
        // SAFETY: the buffer is one of these, and `frame` owns its slot; `shown` is at most its
        // capacity.
        let bytes = unsafe { buffers.slice_mut(&mut frame.slot, shown as usize) };
        bytes[frame.length as usize..].fill(0);
        let mut header = [0; MOST_INLINE];
        let (header, taken) = inline_header(bytes, frame.tag, self.options.inline, &mut header);
        let sge = buffers.sge(frame.slot.address(), shown);
        let rest = Sge { addr: sge.addr + taken as u64, length: shown - taken as u32, ..sge };
        self.batch.wr(wr_id, flags).send().inline_headers(header, &[rest]);
    }

    /// Posts it all.
    #[inline(always)]
    fn complete(mut self) -> Result<(), BatchError> {
        self.end_run(true);
        self.batch.complete()
    }
}

/// A frame held back for a request of its own, until it is known whether it is the last one. It
/// stays a frame while the iterator yields the next one: if that panics, it is not sent.
struct Alone<'a> {
    frame: Option<Frame>,
    not_sent: &'a Count,
}

impl Drop for Alone<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.frame.is_some() {
            self.not_sent.add(1);
        }
    }
}

/// Whether a frame can be sent: it has a header, and lies in these buffers or in memory of the same
/// protection domain.
#[inline(always)]
fn can_be_sent(frame: &Frame, buffers: &Arc<Buffers>) -> bool {
    let known = Arc::ptr_eq(frame.buffers(), buffers) || frame.buffers().pd() == buffers.pd();
    known && frame.len() >= HEADER
}

/// Sends packets of the queue's own buffers, several per request, in a batch.
#[inline(always)]
fn send_packets(
    qp: &mut QueuePair<RawPacket>,
    (in_flight, mode): (&mut InFlight, &impl GiveBack),
    options: SendOptions,
    mut packets: Taken<'_>,
) -> Result<(), BatchError> {
    let mut batch = qp.wr_start();
    let mut put = in_flight.put();
    in_flight.extend(&packets, mode);
    while packets.len() != 0 {
        let now = packets.split(PACKETS);
        put += now.len() as u64;
        let request = batch.wr(put, options.flags_of(packets.len() == 0));
        match now.sges() {
            [one] => request.send().sge(one.get()),
            several => request.send_packets_in(several),
        }
    }
    batch.complete()
}

impl<M: Mode> EthernetQueue<M> {
    /// Sends frames, in order and with one doorbell, as long as the send queue has room. Returns
    /// the number of frames that it took from the iterator. It takes none after the last one that
    /// has room, so that `frames.by_ref()` can send the rest later.
    ///
    /// A frame's buffer returns once the frame was sent: see [`EthernetQueue::reap`]. Frames of
    /// another queue can be sent if one of the queues was made
    /// [beside](super::EthernetQueueBuilder::beside) the other. A frame that cannot be sent,
    /// because it is shorter than an Ethernet header or belongs to any other queue, is dropped and
    /// counted ([`Counts::not_sent`](super::Counts::not_sent)).
    ///
    /// If it fails with [`EthernetError::Post`], it sent none of the frames that it took: they are
    /// dropped, and counted likewise. If it fails with [`EthernetError::Poll`], it took none from
    /// the iterator.
    pub fn send(
        &mut self,
        frames: impl IntoIterator<Item = Frame>,
    ) -> Result<usize, EthernetError> {
        self.reap()?;
        let Self { qp, store, in_flight, options, .. } = self;
        let store = &*store;
        let (mut room, mut taken, mut frames) = (in_flight.room(), 0, frames.into_iter());
        let mut posting = Posting::new(qp, in_flight, *options);
        let mut alone = Alone { frame: None, not_sent: &store.counters.not_sent };
        while room != 0 {
            let Some(frame) = frames.next() else { break };
            taken += 1;
            if !can_be_sent(&frame, &store.buffers) {
                store.counters.not_sent.add(1);
                continue;
            }
            room -= 1;
            if let Some(before) = alone.frame.take() {
                posting.add_frame(before, &store.buffers, false);
            }
            if options.multi_packet && frame.tag().is_none() {
                posting.add_to_run(frame, &store.buffers);
            } else {
                alone.frame = Some(frame);
            }
        }
        if let Some(last) = alone.frame.take() {
            posting.add_frame(last, &store.buffers, true);
        }
        drop(alone);
        let posted = posting.complete();
        self.posted(posted)?;
        Ok(taken)
    }

    /// Sends the packets of a burst that are to be sent, as far as there is room.
    pub(super) fn send_outgoing(&mut self) -> Result<(), EthernetError> {
        if let Err(error) = self.reap() {
            self.store.drop_outgoing();
            return Err(error);
        }
        let Self { qp, store, in_flight, options, .. } = self;
        let store = &*store;
        let mut rest = store.outgoing.take();
        let mut packets = rest.split(in_flight.room());
        let posted = if options.multi_packet {
            send_packets(qp, (in_flight, &store.mode), *options, packets)
        } else {
            let mut posting = Posting::new(qp, in_flight, *options);
            while let Some((slot, length)) = packets.next() {
                let outbound = Outbound { slot, length, tag: None };
                posting.add_alone(&store.buffers, None, outbound, packets.len() == 0);
            }
            posting.complete()
        };
        rest.for_each(|(slot, _)| store.not_sent(slot));
        self.posted(posted)
    }

    /// After a batch: if it was refused, its frames are given back.
    fn posted(&mut self, posted: Result<(), BatchError>) -> Result<(), EthernetError> {
        match posted {
            Ok(()) => {
                self.in_flight.note_posted();
                Ok(())
            }
            Err(refused) => {
                self.undo_unposted();
                Err(EthernetError::Post(refused.error()))
            }
        }
    }

    /// Gives back frames of a batch that was not posted.
    #[inline(always)]
    fn undo_unposted(&mut self) {
        let count = self.in_flight.undo_unposted(&self.store.mode);
        self.store.counters.not_sent.add(count);
    }

    /// Gives back the buffers of frames that were sent, and returns their number. Sending and
    /// receiving do this, too.
    pub fn reap(&mut self) -> Result<usize, EthernetError> {
        // Of a batch whose frames came from an iterator that panicked.
        self.undo_unposted();
        if self.in_flight.len() == 0 {
            return Ok(0);
        }
        let Self { send_cq, in_flight, store, .. } = self;
        let mut count = 0;
        let polled = send_cq.poll(usize::MAX, |completion| {
            let gone = in_flight.retire(completion.wr_id(), &store.mode);
            count += gone;
            match completion.status() {
                Ok(()) => store.counters.sent.add(gone),
                // It is unknown which of them were sent.
                Err(_) => store.counters.failed.add(gone),
            }
        });
        polled.map_err(EthernetError::Poll)?;
        Ok(count as usize)
    }
}
