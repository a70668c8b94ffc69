//! Tag matching against a model of two lists: of waiting receives, and of waiting messages.
//!
//! The case is the software half of a message-passing library. It keeps the two lists, gives a
//! prefix of the receives to the device, and handles the messages that the device did not expect.
//! Completions show the order in which messages arrived; the lists then say which receive each
//! message belongs to. The device, or the software after it, must have chosen the same one.

use super::tag_rig::{BUFFERS, RigOptions, TagRig, eager};
use crate::prelude::*;
use mlx5::{OpsWr, TagAdd, TagHandle, TmMessage};
use std::collections::VecDeque;

pub(crate) const CASES: &[Case] = cases![
    tm_every_message_goes_to_the_receive_that_matching_order_demands: STEP | SERIAL | TAG_MATCHING,
];

/// Least number of steps; the case runs until the 16-bit counters have wrapped.
const STEPS: u32 = 100_000;
const WRAPPED: u32 = 1 << 16;
const SENDERS: usize = 2;
/// Tags that the device holds: few, so that the list is often full.
const TAGS: u32 = 7;
/// Operations that can be outstanding.
const OPS: u32 = 16;
/// Requests for unexpected messages.
const REQUESTS: u64 = 32;
/// Bytes of a receive's buffer, and the number of buffers.
const BUFFER: usize = 1024;
const SLOTS: u64 = 128;
/// Longest data of a rendezvous, and of an eager message.
const LONGEST: usize = 700;
/// Offsets in a sender's memory: data of rendezvous, messages, and room for the ends of rendezvous.
const DATA: usize = 0;
const MESSAGES: usize = 64 << 10;
const ENDS: usize = 192 << 10;
/// Messages of a sender that may be outstanding.
const UNDER_WAY: usize = 32;

/// A sequence of numbers from a seed.
struct Random(u64);

impl Random {
    fn next(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % below
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    /// Software holds it: the device's list is full, or will be.
    Software,
    /// The device holds it.
    Device(TagHandle),
    /// The device was asked to remove it.
    Leaving,
}

/// A waiting receive.
#[derive(Clone, Copy, Debug)]
struct Receive {
    id: u64,
    tag: u64,
    mask: u64,
    place: Place,
}

/// A message: its sender, its number among the sender's messages, and its form.
#[derive(Clone, Copy, Debug)]
struct Message {
    sender: usize,
    number: u32,
    tag: u64,
    length: usize,
    rendezvous: bool,
}

/// The seed of a message's content.
fn seed(sender: usize, number: u32) -> u64 {
    u64::from(number) << 8 | sender as u64
}

struct Library<'a> {
    bed: &'a Bed,
    rig: TagRig,
    /// Completions that were polled and are not handled yet.
    inbox: VecDeque<OwnedCompletion>,
    random: Random,
    /// Waiting receives, in the order of posting.
    posted: Vec<Receive>,
    /// Waiting messages, in the order of arrival.
    unexpected: Vec<Message>,
    /// Receives that matched in the device and whose data is not there yet.
    arriving: Vec<(u64, Message)>,
    /// Messages of each sender that were sent and not yet matched or listed.
    sent: [VecDeque<Message>; SENDERS],
    sent_count: [u32; SENDERS],
    under_way: [usize; SENDERS],
    /// Number of unexpected messages that software handled, and the count that the device knows.
    handled: u32,
    reported: u32,
    receives: u64,
    free_slots: Vec<u64>,
    stale: Vec<TagHandle>,
    requests: u64,
    operations: u32,
    delivered: u32,
    by_device: u32,
    cancelled: u32,
    too_late: u32,
}

impl<'a> Library<'a> {
    fn new(bed: &'a Bed, seed: u64) -> Result<Self, Failed> {
        let options = RigOptions {
            senders: SENDERS,
            tags: TAGS,
            ops: OPS,
            requests: REQUESTS as u32,
            keep_send_queue: false,
            ..RigOptions::default()
        };
        let mut rig = TagRig::new(bed, options)?;
        rig.post_requests(0..REQUESTS);
        for end in &mut rig.senders {
            for n in 0..UNDER_WAY as u64 {
                let at = ENDS + n as usize * 64;
                end.recv(n, at..at + 64);
            }
        }
        Ok(Self {
            bed,
            rig,
            inbox: VecDeque::new(),
            random: Random(seed),
            posted: Vec::new(),
            unexpected: Vec::new(),
            arriving: Vec::new(),
            sent: [const { VecDeque::new() }; SENDERS],
            sent_count: [0; SENDERS],
            under_way: [0; SENDERS],
            handled: 0,
            reported: 0,
            receives: 0,
            free_slots: (0..SLOTS).collect(),
            stale: Vec::new(),
            requests: REQUESTS,
            operations: 0,
            delivered: 0,
            by_device: 0,
            cancelled: 0,
            too_late: 0,
        })
    }

    fn buffer(id: u64) -> std::ops::Range<usize> {
        let at = (id % SLOTS) as usize * BUFFER;
        at..at + BUFFER
    }

    /// Posts an operation, if there is room for one.
    fn operate(&mut self, wr: OpsWr<'_>) -> Option<OpsWr<'static>> {
        let mut list = [wr];
        match self.rig.queue.post_srq_ops(&mut list) {
            Ok(()) => {
                self.operations += 1;
                if list[0].flags.contains(mlx5::OpsFlags::TM_SYNC) {
                    self.reported = list[0].unexpected_cnt;
                }
                let operation = mlx5::TagOperation::Sync;
                Some(OpsWr { operation, ..list[0] })
            }
            Err(refused) => {
                let full = matches!(
                    refused.error(),
                    PostError::QueueFull { .. } | PostError::TagListFull { .. }
                );
                assert!(full, "{refused}");
                None
            }
        }
    }

    /// Gives the device as many receives as it takes, the first ones first.
    fn give(&mut self) {
        while let Some(at) = self.posted.iter().position(|one| one.place == Place::Software) {
            let Receive { id, tag, mask, .. } = self.posted[at];
            let sges = self.rig.buffer(Self::buffer(id));
            let add = TagAdd { recv_wr_id: id, sges: &sges, tag, mask };
            let mut wr = OpsWr::add(id, add).synchronised(self.handled);
            if self.random.next(4) == 0 {
                wr = wr.signaled();
            }
            let Some(wr) = self.operate(wr) else { return };
            self.posted[at].place = Place::Device(wr.handle.expect("a handle"));
        }
    }

    /// Posts a receive, or completes it with a waiting message.
    fn receive(&mut self) {
        let Some(slot) = self.free_slots.pop() else { return };
        let id = self.receives * SLOTS + slot;
        self.receives += 1;
        let mask = [u64::MAX, u64::MAX, 0xff00, 0][self.random.next(4) as usize];
        let tag = (self.random.next(2) << 8 | self.random.next(3)) & mask;
        if let Some(at) = self.unexpected.iter().position(|one| one.tag & mask == tag) {
            let message = self.unexpected.remove(at);
            self.deliver(id, message);
            return;
        }
        self.posted.push(Receive { id, tag, mask, place: Place::Software });
        self.give();
    }

    /// A sender sends a message.
    fn send(&mut self) {
        let sender = self.random.next(SENDERS as u64) as usize;
        if self.under_way[sender] == UNDER_WAY {
            return;
        }
        let number = self.sent_count[sender];
        let message = Message {
            sender,
            number,
            tag: self.random.next(2) << 8 | self.random.next(3),
            length: self.random.next(LONGEST as u64 + 1) as usize,
            rendezvous: self.random.next(3) == 0,
        };
        let slot = number as usize % UNDER_WAY;
        let bytes = pattern(seed(sender, number), message.length);
        let (data, at) = (DATA + slot * BUFFER, MESSAGES + slot * BUFFER);
        let request = if message.rendezvous {
            self.rig.senders[sender].mr.write_at(data, &bytes).expect("inside");
            let TmMessage::Rendezvous { data, .. } =
                self.rig.rendezvous(sender, message.tag, data..data + message.length)
            else {
                unreachable!()
            };
            TmMessage::Rendezvous { tag: message.tag, app_ctx: number, data }.to_bytes()
        } else {
            eager(message.tag, number, &bytes)
        };
        let end = &mut self.rig.senders[sender];
        end.mr.write_at(at, &request).expect("inside");
        let sge = end.mr.sge(at..at + request.len()).expect("inside");
        let mut batch = end.qp.wr_start();
        batch.wr(number.into(), SendFlags::SIGNALED).send().sge(sge);
        if batch.complete().is_ok() {
            self.sent_count[sender] += 1;
            self.under_way[sender] += 1;
            self.sent[sender].push_back(message);
        }
    }

    /// Cancels a receive, if it is not too late.
    fn cancel(&mut self) {
        if let Some(stale) = self.stale.pop() {
            match self.rig.queue.del(0, stale, None) {
                Err(PostError::StaleTag | PostError::QueueFull { .. }) => {}
                other => panic!("{stale:?}: {other:?}"),
            }
        }
        if self.posted.is_empty() {
            return;
        }
        let at = self.random.next(self.posted.len() as u64) as usize;
        match self.posted[at] {
            Receive { place: Place::Leaving, .. } => {}
            Receive { id, place: Place::Software, .. } => {
                self.posted.remove(at);
                self.free_slots.push(id % SLOTS);
                self.cancelled += 1;
            }
            Receive { id, place: Place::Device(handle), .. } => {
                if self.operate_on(handle, OpsWr::del(id, handle).signaled()) {
                    self.posted[at].place = Place::Leaving;
                }
            }
        }
    }

    /// Posts a removal. Returns `false` if there is no room, or if the driver refuses: the tag has
    /// matched and its completion is not polled here yet, or the message is arriving.
    fn operate_on(&mut self, handle: TagHandle, wr: OpsWr<'_>) -> bool {
        let done = self.operate(wr).is_some();
        if done && self.stale.len() < 8 {
            self.stale.push(handle);
        }
        done
    }

    /// Gives the device the number of unexpected messages handled.
    fn synchronise(&mut self) {
        if self.reported != self.handled {
            let mut wr = OpsWr::sync(u64::MAX, self.handled);
            if self.random.next(2) == 0 {
                wr = wr.signaled();
            }
            self.operate(wr);
        }
    }

    /// Software has matched a message and a receive.
    fn deliver(&mut self, id: u64, message: Message) {
        self.delivered += 1;
        self.under_way[message.sender] -= 1;
        self.free_slots.push(id % SLOTS);
    }

    /// The next message of a sender has arrived; messages arrive in the order of sending.
    fn arrived(&mut self, qp_num: u32, tag: u64, number: u32) -> Message {
        let sender = self.rig.receivers.iter().position(|qp| qp.qp_num() == qp_num);
        let message = sender.and_then(|sender| self.sent[sender].pop_front()).expect("was sent");
        assert_eq!((message.number, message.tag), (number, tag));
        message
    }

    /// The first receive that a message matches.
    fn first_match(&self, tag: u64) -> Option<usize> {
        self.posted.iter().position(|one| tag & one.mask == one.tag)
    }

    fn poll(&mut self) {
        self.take();
        while let Some(completion) = self.inbox.pop_front() {
            self.completion(&completion);
        }
        for sender in 0..SENDERS {
            let end = &mut self.rig.senders[sender];
            end.send_cq
                .poll(8, |wc| assert!(wc.is_success(), "{wc:?}"))
                .unwrap_or_else(|error| panic!("{error}"));
            let mut ends = Vec::new();
            end.recv_cq()
                .poll(8, |wc| ends.push(wc.wr_id()))
                .unwrap_or_else(|error| panic!("{error}"));
            for slot in ends {
                let at = ENDS + slot as usize * 64;
                let mut bytes = [0; 32];
                end.mr.read_at(at, &mut bytes).expect("inside");
                let finished = TmMessage::parse(&bytes).map(|(head, _)| head);
                assert!(matches!(finished, Some(TmMessage::Finished { .. })), "{finished:?}");
                end.recv(slot, at..at + 64);
            }
        }
    }

    fn completion(&mut self, completion: &OwnedCompletion) {
        let wc = completion.as_completion();
        let id = wc.wr_id();
        match wc.opcode() {
            CompletionOpcode::TmAdd | CompletionOpcode::TmSync => assert!(wc.is_success()),
            CompletionOpcode::TmDel => {
                let at = self.posted.iter().position(|one| one.id == id);
                match wc.status() {
                    Ok(()) => {
                        if let Some(at) = at {
                            self.posted.remove(at);
                            self.free_slots.push(id % SLOTS);
                            self.cancelled += 1;
                        }
                    }
                    Err(error) => {
                        assert_eq!(error.kind, CompletionErrorKind::TagConsumed);
                        assert!(at.is_none(), "the message is reported before");
                        self.too_late += 1;
                    }
                }
                self.give();
            }
            CompletionOpcode::TmReceive if wc.tm_match() => {
                let info = wc.tm_info().expect("of a match");
                let message = self.arrived(wc.qp_num(), info.tag, info.app_ctx);
                let at = self.first_match(message.tag).expect("the device found one");
                assert_eq!(self.posted[at].id, id, "{message:?} belongs to another receive");
                self.posted.remove(at);
                assert_eq!(wc.tm_data_valid(), !message.rendezvous);
                if message.rendezvous {
                    self.arriving.push((id, message));
                } else {
                    self.check(id, message, wc.byte_len());
                }
                self.give();
            }
            CompletionOpcode::TmReceive if wc.tm_data_valid() => {
                let at = self.arriving.iter().position(|one| one.0 == id).expect("matched");
                let (_, message) = self.arriving.remove(at);
                self.check(id, message, wc.byte_len());
                self.give();
            }
            CompletionOpcode::TmReceive => self.was_unexpected(id, wc.qp_num(), wc.byte_len()),
            other => panic!("{other:?}"),
        }
    }

    /// Checks that a message's data is in the buffer of its receive.
    fn check(&mut self, id: u64, message: Message, length: Option<u32>) {
        assert_eq!(length, Some(message.length as u32));
        let at = BUFFERS + Self::buffer(id).start;
        verify(&self.rig.memory, at, seed(message.sender, message.number), message.length);
        self.by_device += 1;
        self.deliver(id, message);
    }

    /// An unexpected message has arrived in a request.
    fn was_unexpected(&mut self, request: u64, qp_num: u32, length: Option<u32>) {
        let bytes = self.rig.request(request, length.expect("a length"));
        let (head, payload) = TmMessage::parse(&bytes).expect("a header");
        let (tag, number) = match head {
            TmMessage::Eager { tag, app_ctx } => (tag, app_ctx),
            TmMessage::Rendezvous { tag, app_ctx, .. } => (tag, app_ctx),
            other => panic!("{other:?}"),
        };
        let message = self.arrived(qp_num, tag, number);
        if !message.rendezvous {
            assert!(payload == pattern(seed(message.sender, number), message.length));
        }
        self.rig.post_requests(request..request + 1);
        self.requests += 1;
        if let Some(at) = self.first_match(tag) {
            let receive = self.posted[at];
            if let Place::Device(handle) = receive.place {
                // The device did not match the tag, because software had not synchronised; so it
                // cannot have matched since.
                let mut tries = 0;
                while !self.operate_on(handle, OpsWr::del(receive.id, handle)) {
                    // Completions of operations, which are in the queue after this one, make room.
                    assert!(tries < 100, "no room for a removal");
                    tries += 1;
                    self.bed.settle();
                    self.take();
                }
            }
            self.posted.retain(|one| one.id != receive.id);
            self.deliver(receive.id, message);
        } else {
            self.unexpected.push(message);
        }
        self.handled += 1;
        self.give();
    }

    /// Polls completions into the inbox.
    fn take(&mut self) {
        let mut found = [OwnedCompletion::default(); 8];
        let count = self.rig.cq.poll_into(&mut found).unwrap_or_else(|error| panic!("{error}"));
        self.inbox.extend(&found[..count]);
    }

    /// Whether a message may be sent now. In every second age, only when the device knows the count
    /// of software, so that it matches most messages; in the others, whenever there is room.
    fn may_send(&self) -> bool {
        let calm = (self.operations / 512).is_multiple_of(2);
        let level = self.reported == self.handled && self.posted.len() > 8;
        self.unexpected.len() < 6 && (!calm || level)
    }

    fn step(&mut self) {
        match self.random.next(16) {
            // Neither list grows for long, so that messages find receives and receives messages.
            0..=3 if self.posted.len() < 14 => self.receive(),
            4..=7 if self.may_send() => self.send(),
            8 => self.cancel(),
            9 | 10 => self.synchronise(),
            11 | 12 => self.poll(),
            _ => {
                for _ in 0..self.random.next(6) {
                    self.bed.step();
                }
            }
        }
    }

    /// Stops sending. Everything arrives, and messages without a receive wait.
    fn finish(&mut self) {
        for _ in 0..20 {
            self.bed.settle();
            for _ in 0..32 {
                self.poll();
            }
            self.synchronise();
        }
    }
}

fn tm_every_message_goes_to_the_receive_that_matching_order_demands(bed: &Bed) -> Outcome {
    let seed = 0x7a9_0001;
    println!("seed {seed:#x}");
    let mut library = Library::new(bed, seed)?;
    let mut steps = 0;
    while steps < STEPS
        || library.operations < WRAPPED
        || library.handled < WRAPPED
        || library.requests < WRAPPED.into()
        || library.receives < WRAPPED.into()
    {
        library.step();
        steps += 1;
        assert!(steps < 40 * STEPS, "too few of something: {}", library.handled);
    }
    library.finish();
    let sent: u32 = library.sent_count.iter().sum();
    let waiting = library.unexpected.len() as u32;
    assert_eq!(library.delivered + waiting, sent, "every message once");
    assert!(library.sent.iter().all(VecDeque::is_empty) && library.arriving.is_empty());
    assert!(library.by_device > STEPS / 20, "{} by the device", library.by_device);
    assert!(library.cancelled > 100 && library.too_late > 10, "{}", library.too_late);
    let posted: Vec<u64> = library.posted.iter().map(|one| one.id).collect();
    for message in &library.unexpected {
        assert!(library.first_match(message.tag).is_none(), "{message:?} and {posted:?}");
    }
    Ok(())
}
