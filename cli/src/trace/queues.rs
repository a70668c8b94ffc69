//! The queues of a process, from its calls.

use crate::dump::Addressing;
use crate::trace::ring::{
    CompletionRing, Moved, Place, ReceiveRing, SendRing, SharedRing, Unreadable,
};
use mlx5_prm::cqe::{Cqe, DESCRIPTOR, MiniFormat};
use mlx5_prm::wqe::BLOCK;
use mlx5_prm::zerocopy::FromBytes;
use mlx5_uapi::ioctl::object;
use mlx5_uapi::mlx5::CqeCompFormat;
use mlx5_uapi::queues::{CallerMemory, QueueCall};
use mlx5_uapi::verbs::{QpState, QpType};
use std::collections::BTreeMap;

/// The kind of a queue.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Kind {
    Completion,
    Send,
    Receive,
    Shared,
    Work,
    /// A work queue whose receives several packets share.
    Strides,
}

impl Kind {
    /// The word for the object that has the number, and the word for its queue.
    pub(crate) fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Completion => ("cq", ""),
            Self::Send => ("qp", "send"),
            Self::Receive => ("qp", "recv"),
            Self::Shared => ("srq", "recv"),
            Self::Work | Self::Strides => ("wq", "recv"),
        }
    }
}

/// The name of a queue.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Name {
    pub(crate) kind: Kind,
    /// The device's number of the queue pair, completion queue or shared receive queue.
    pub(crate) number: u32,
}

/// An event of a queue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Event {
    /// An object was made; `about` describes it.
    Made { name: Name, about: String },
    /// Its state or its ring changed.
    Changed { name: Name, about: String },
    /// It was destroyed.
    Ended { name: Name },
    /// A request was posted.
    Posted { name: Name, index: u32, bytes: Vec<u8>, addressing: Addressing },
    /// The device wrote a completion. `packets` is the queue of packets that it is of, if it is of
    /// one.
    Completed { name: Name, index: u32, bytes: Vec<u8>, packets: Option<Name> },
    /// Places of the ring were used again before they were seen.
    Lost { name: Name, count: u64 },
    /// Requests were posted at places that cannot be known.
    Hidden { name: Name, count: u64 },
    /// The ring cannot be read any more.
    Unreadable { name: Name },
}

enum Ring {
    Completion(CompletionRing),
    Send(SendRing, Addressing),
    Receive(ReceiveRing),
    Shared(SharedRing, u32),
}

/// A ring, and its object.
struct Queue {
    device: u64,
    object: u16,
    handle: u64,
    name: Name,
    ring: Ring,
    /// Its queue pair is in RESET: the ring stays empty until the queue pair leaves that state.
    resting: bool,
    /// The user index in the completions of its packets.
    packets: Option<u32>,
}

impl Queue {
    fn is(&self, device: u64, object: u16, handle: u64) -> bool {
        (self.device, self.object, self.handle) == (device, object, handle)
    }
}

/// The queues of a process.
#[derive(Default)]
pub(crate) struct Queues {
    all: Vec<Queue>,
}

impl Queues {
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether queues of this device are among them.
    pub(crate) fn has_device(&self, device: u64) -> bool {
        self.all.iter().any(|queue| queue.device == device)
    }

    /// Whether an event is about a queue that has not ended.
    pub(crate) fn is_there(&self, event: &Event) -> bool {
        let name = match event {
            Event::Ended { .. } => return false,
            Event::Made { name, .. } | Event::Changed { name, .. } => name,
            Event::Posted { name, .. } | Event::Completed { name, .. } => name,
            Event::Lost { name, .. } | Event::Hidden { name, .. } => name,
            Event::Unreadable { name } => name,
        };
        let words = name.kind.words().0;
        self.all.iter().any(|q| q.name.number == name.number && q.name.kind.words().0 == words)
    }

    /// Gives a device another number.
    pub(crate) fn renumber(&mut self, device: u64, to: u64) {
        for queue in self.all.iter_mut().filter(|queue| queue.device == device) {
            queue.device = to;
        }
    }

    /// Handles a call of the process.
    pub(crate) fn apply(&mut self, device: u64, call: &QueueCall, reported: &mut Vec<Event>) {
        let mut add = Adding { queues: self, device, reported };
        match call {
            QueueCall::Cq(made) => {
                let place = Place {
                    ring: made.ring,
                    record: made.record,
                    entries: made.entries,
                    entry_size: made.entry_size,
                };
                let compressed = compression(made.compressed);
                let name = Name { kind: Kind::Completion, number: made.number as u32 };
                let more = compressed.map(|format| format!(", compressed with {}", format.text()));
                let about = format!(
                    "{} completions of {} bytes{}",
                    made.entries,
                    made.entry_size,
                    more.unwrap_or_default()
                );
                add.object(object::CQ, made.handle, name, about);
                add.ring(object::CQ, made.handle, name, place, |place| {
                    Ring::Completion(CompletionRing::new(place, compressed))
                });
            }
            QueueCall::Qp(made) => {
                let kind = u8::try_from(made.kind).ok().and_then(QpType::from_raw);
                let addressing = match kind {
                    Some(QpType::Ud) => Addressing::Datagram,
                    Some(QpType::RawPacket) => Addressing::Ethernet,
                    _ => Addressing::Connected,
                };
                let number = made.number as u32;
                let (send, receive) =
                    (Name { kind: Kind::Send, number }, Name { kind: Kind::Receive, number });
                let kind = kind.map_or_else(|| format!("type {:#x}", made.kind), type_name);
                let receives = match made.receives {
                    0 => "no receives".to_owned(),
                    count => format!("{count} receives of {} bytes", made.receive_size),
                };
                let about = format!("{kind}, {} send blocks, {receives}", made.send_blocks);
                add.object(object::QP, made.handle, send, about);
                if made.send_blocks > 0 {
                    let place = Place {
                        ring: made.send_ring,
                        record: made.record,
                        entries: made.send_blocks,
                        entry_size: BLOCK as u64,
                    };
                    add.ring(object::QP, made.handle, send, place, |place| {
                        Ring::Send(SendRing::new(place), addressing)
                    });
                }
                if made.receives > 0 {
                    let place = Place {
                        ring: made.receive_ring,
                        record: made.record,
                        entries: made.receives,
                        entry_size: made.receive_size,
                    };
                    add.ring(object::QP, made.handle, receive, place, |place| {
                        Ring::Receive(ReceiveRing::new(place))
                    });
                    if addressing == Addressing::Ethernet {
                        add.packets(receive, made.user_index);
                    }
                }
            }
            QueueCall::Srq(made) => {
                let place = Place {
                    ring: made.ring,
                    record: made.record,
                    entries: made.entries,
                    entry_size: made.entry_size,
                };
                let name = Name { kind: Kind::Shared, number: made.number as u32 };
                let about = format!("{} receives of {} bytes", made.entries, made.entry_size);
                add.object(object::SRQ, made.handle, name, about);
                let user_index = made.user_index as u32 & INDEX;
                add.ring(object::SRQ, made.handle, name, place, |place| {
                    Ring::Shared(SharedRing::new(place), user_index)
                });
            }
            QueueCall::Wq(made) => {
                let place = Place {
                    ring: made.ring,
                    record: made.record,
                    entries: made.entries,
                    entry_size: made.entry_size,
                };
                let (kind, more) = match made.strides {
                    0 => (Kind::Work, String::new()),
                    count => {
                        let more = format!(", each {count} strides of {} bytes", made.stride_size);
                        (Kind::Strides, more)
                    }
                };
                let name = Name { kind, number: made.number as u32 };
                let about = format!("{} receives of {} bytes{more}", made.entries, made.entry_size);
                add.object(object::WQ, made.handle, name, about);
                add.ring(object::WQ, made.handle, name, place, |place| {
                    Ring::Receive(ReceiveRing::new(place))
                });
                add.packets(name, made.user_index);
            }
            QueueCall::Resized(to) => {
                let place = Place {
                    ring: to.ring,
                    record: 0,
                    entries: to.entries,
                    entry_size: to.entry_size,
                };
                for queue in self.all.iter_mut().filter(|q| q.is(device, object::CQ, to.handle)) {
                    if let (Ring::Completion(ring), Some(place)) =
                        (&mut queue.ring, place.checked_completions())
                    {
                        ring.resize(place);
                        let about = format!("resized to {} completions", to.entries);
                        reported.push(Event::Changed { name: queue.name, about });
                    }
                }
            }
            QueueCall::State(change) => self.state(device, change.handle, change.state, reported),
            QueueCall::End(end) => {
                let object = end.object as u16;
                self.end(|queue| queue.is(device, object, end.handle), reported);
            }
            QueueCall::Closed(_) => self.end(|queue| queue.device == device, reported),
        }
    }

    fn state(&mut self, device: u64, handle: u64, state: u64, reported: &mut Vec<Event>) {
        let state = u8::try_from(state).ok().and_then(QpState::from_raw);
        let mut said = false;
        for queue in self.all.iter_mut().filter(|q| q.is(device, object::QP, handle)) {
            match state {
                Some(QpState::Reset) => queue.resting = true,
                // A queue pair that leaves RESET starts with empty rings.
                Some(QpState::Init) if queue.resting => {
                    queue.resting = false;
                    match &mut queue.ring {
                        Ring::Send(ring, _) => ring.start_over(),
                        Ring::Receive(ring) => ring.start_over(),
                        Ring::Completion(_) | Ring::Shared(..) => {}
                    }
                }
                _ => {}
            }
            if !std::mem::replace(&mut said, true) {
                let about = state.map_or("an unknown state", state_name).to_owned();
                reported.push(Event::Changed { name: queue.name, about });
            }
        }
    }

    fn end(&mut self, is: impl Fn(&Queue) -> bool, reported: &mut Vec<Event>) {
        let mut last = None;
        self.all.retain(|queue| {
            let ended = is(queue);
            // A queue pair with two rings ends once.
            if ended
                && last.replace((queue.object, queue.handle)) != Some((queue.object, queue.handle))
            {
                reported.push(Event::Ended { name: queue.name });
            }
            !ended
        });
    }

    /// Skips the entries that were there before, in every ring.
    pub(crate) fn pass(&mut self, memory: &dyn CallerMemory) {
        for queue in &mut self.all {
            // The next look reports a ring that cannot be read.
            let _ = match &mut queue.ring {
                Ring::Completion(ring) => ring.pass(memory),
                Ring::Send(ring, _) => ring.pass(memory),
                Ring::Receive(ring) => ring.pass(memory),
                Ring::Shared(ring, _) => ring.pass(memory),
            };
        }
    }

    /// Looks at every ring. Completions are read first but reported last, so that the request of
    /// each was reported before it.
    pub(crate) fn look(&mut self, memory: &dyn CallerMemory, reported: &mut Vec<Event>) {
        let mut completions = Vec::new();
        let mut gone = Vec::new();
        let packets: BTreeMap<(u64, u32), Name> = self
            .all
            .iter()
            .filter_map(|queue| Some(((queue.device, queue.packets?), queue.name)))
            .collect();
        for (place, queue) in self.all.iter_mut().enumerate() {
            if let Ring::Completion(ring) = &mut queue.ring {
                let receiver = |index| packets.get(&(queue.device, index & INDEX)).copied();
                let strides =
                    |index| receiver(index).is_some_and(|name| name.kind == Kind::Strides);
                match ring.look(memory, &strides) {
                    Ok(moved) => report(&mut completions, queue.name, moved, |index, bytes| {
                        let packets = user_index(&bytes).and_then(receiver);
                        Event::Completed { name: queue.name, index, bytes, packets }
                    }),
                    Err(Unreadable) => gone.push(place),
                }
            }
        }
        self.receives_completed(&completions);
        for (place, queue) in self.all.iter_mut().enumerate().filter(|(_, queue)| !queue.resting) {
            let (moved, addressing) = match &mut queue.ring {
                Ring::Completion(_) => continue,
                Ring::Send(ring, addressing) => (ring.look(memory), *addressing),
                Ring::Receive(ring) => (ring.look(memory), Addressing::Connected),
                Ring::Shared(ring, _) => (ring.look(memory), Addressing::Connected),
            };
            match moved {
                Ok(moved) => report(reported, queue.name, moved, |index, bytes| Event::Posted {
                    name: queue.name,
                    index,
                    bytes,
                    addressing,
                }),
                Err(Unreadable) => gone.push(place),
            }
        }
        reported.append(&mut completions);
        gone.sort_unstable();
        for place in gone.into_iter().rev() {
            reported.push(Event::Unreadable { name: self.all[place].name });
            self.all.swap_remove(place);
        }
    }

    /// Counts the completed requests of shared receive queues.
    fn receives_completed(&mut self, completions: &[Event]) {
        for event in completions {
            let index = match event {
                Event::Completed { bytes, .. } => match user_index(bytes) {
                    Some(index) => Some(index),
                    None => continue,
                },
                // It may be one of the lost ones.
                Event::Lost { .. } => None,
                _ => continue,
            };
            for queue in &mut self.all {
                if let Ring::Shared(ring, own) = &mut queue.ring
                    && index.is_none_or(|index| index == *own || index == queue.name.number)
                {
                    ring.completed();
                }
            }
        }
    }
}

/// The format of the mini CQEs of receives. `None` without compression.
fn compression(format: u64) -> Option<MiniFormat> {
    match CqeCompFormat::from_bits(u32::try_from(format).ok()?)? {
        CqeCompFormat::HASH => Some(MiniFormat::Hash),
        CqeCompFormat::CSUM => Some(MiniFormat::Checksum),
        CqeCompFormat::CSUM_STRIDX => Some(MiniFormat::ChecksumStride),
        _ => None,
    }
}

/// Bits of a user index.
const INDEX: u32 = 0xff_ffff;

/// The user index of a completion.
fn user_index(bytes: &[u8]) -> Option<u32> {
    let descriptor = bytes.get(bytes.len().checked_sub(DESCRIPTOR)?..)?;
    Some(Cqe::read_from_bytes(descriptor).ok()?.srqn_uidx.get() & INDEX)
}

fn report(
    reported: &mut Vec<Event>,
    name: Name,
    moved: Moved,
    event: impl Fn(u32, Vec<u8>) -> Event,
) {
    if moved.lost > 0 {
        reported.push(Event::Lost { name, count: moved.lost });
    }
    if moved.hidden > 0 {
        reported.push(Event::Hidden { name, count: moved.hidden });
    }
    reported.extend(moved.entries.into_iter().map(|(index, bytes)| event(index, bytes)));
}

/// The parameters of adding queues.
struct Adding<'a> {
    queues: &'a mut Queues,
    device: u64,
    reported: &'a mut Vec<Event>,
}

impl Adding<'_> {
    fn object(&mut self, object: u16, handle: u64, name: Name, about: String) {
        // An object with this handle has ended unseen.
        self.queues.all.retain(|queue| !queue.is(self.device, object, handle));
        self.reported.push(Event::Made { name, about });
    }

    fn ring(
        &mut self,
        object: u16,
        handle: u64,
        name: Name,
        place: Place,
        ring: impl FnOnce(Place) -> Ring,
    ) {
        let device = self.device;
        let place = match name.kind {
            Kind::Completion => place.checked_completions(),
            _ => place.checked(),
        };
        match place.map(ring) {
            Some(ring) => {
                let (resting, packets) = (false, None);
                let queue = Queue { device, object, handle, name, ring, resting, packets };
                self.queues.all.push(queue);
            }
            None => self.reported.push(Event::Unreadable { name }),
        }
    }

    /// The ring that was added last is one of packets, whose completions have this user index.
    fn packets(&mut self, name: Name, user_index: u64) {
        for queue in self.queues.all.last_mut().into_iter().filter(|queue| queue.name == name) {
            queue.packets = Some(user_index as u32 & INDEX);
        }
    }
}

fn type_name(kind: QpType) -> String {
    let name = match kind {
        QpType::Rc => "RC",
        QpType::Uc => "UC",
        QpType::Ud => "UD",
        QpType::RawPacket => "raw packets",
        QpType::XrcIni => "XRC, sending",
        QpType::XrcTgt => "XRC, receiving",
        QpType::Driver => "DCI or DCT",
    };
    name.to_owned()
}

fn state_name(state: QpState) -> &'static str {
    match state {
        QpState::Reset => "RESET",
        QpState::Init => "INIT",
        QpState::Rtr => "RTR",
        QpState::Rts => "RTS",
        QpState::Sqd => "SQD",
        QpState::Sqe => "SQE",
        QpState::Err => "ERR",
    }
}

#[cfg(test)]
mod tests;
