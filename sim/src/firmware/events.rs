//! Event queues in host memory, and their interrupts.
//!
//! Only a door whose driver reads event queues starts [`EventRings`]; other doors use the engine's
//! [events](Event) directly.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mlx5_prm::event::{Eqe, EventType};

use crate::dma::{Buffer, Dma, DmaFault};
use crate::engine::Event;

/// Bits of a consumer counter in an event queue's doorbell; the number of the queue is above.
const COUNTER_BITS: u32 = 24;
const COUNTER_MASK: u32 = (1 << COUNTER_BITS) - 1;
/// Offset of the ownership byte in an entry.
const OWNER: u64 = Eqe::BYTES as u64 - 1;

/// Raises an interrupt vector.
pub(super) type Interrupt = Box<dyn FnMut(u32) + Send>;

/// A ring of event queue entries.
#[derive(Debug)]
struct Ring {
    buffer: Buffer,
    log_size: u32,
    vector: u32,
    events: [u64; 4],
    produced: u32,
    consumed: u32,
    armed: bool,
}

impl Ring {
    fn takes(&self, kind: EventType) -> bool {
        self.events.get(kind.0 as usize / 64).is_some_and(|mask| mask >> (kind.0 % 64) & 1 != 0)
    }

    fn is_full(&self) -> bool {
        self.produced.wrapping_sub(self.consumed) & COUNTER_MASK >= 1 << self.log_size
    }

    /// Writes an entry. The ownership byte is written last, for the host may read at any time.
    fn write(&mut self, dma: &dyn Dma, entry: &Eqe) -> Result<(), DmaFault> {
        let slot = u64::from(self.produced & ((1 << self.log_size) - 1)) * Eqe::BYTES as u64;
        let owner = (self.produced >> self.log_size & 1) as u8;
        self.buffer.write(dma, slot, &entry.as_bytes()[..OWNER as usize])?;
        let (at, _) =
            self.buffer.translate(slot + OWNER).ok_or(DmaFault { address: slot, length: 1 })?;
        dma.store_byte(at, owner)?;
        self.produced = self.produced.wrapping_add(1);
        Ok(())
    }
}

struct Rings {
    dma: Arc<dyn Dma>,
    rings: BTreeMap<u32, Ring>,
    interrupt: Interrupt,
    lost: u64,
}

impl Rings {
    fn push(&mut self, eqn: u32, entry: &Eqe) {
        let Some(ring) = self.rings.get_mut(&eqn) else { return };
        if ring.is_full() || ring.write(&*self.dma, entry).is_err() {
            self.lost += 1;
            return;
        }
        if std::mem::take(&mut ring.armed) {
            (self.interrupt)(ring.vector);
        }
    }

    /// Writes an entry to the queue for events of its kind. Returns whether there is one.
    fn push_kind(&mut self, entry: &Eqe) -> bool {
        let kind = EventType(entry.event_type());
        let Some(eqn) = self.rings.iter().find(|(_, r)| r.takes(kind)).map(|(eqn, _)| *eqn) else {
            return false;
        };
        self.push(eqn, entry);
        true
    }
}

/// The event queues of one device, as it writes them. Clones are handles of the same queues: one
/// takes the engine's events, another the commands.
#[derive(Clone)]
pub struct EventRings {
    rings: Arc<Mutex<Rings>>,
}

impl std::fmt::Debug for EventRings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EventRings").field("rings", &self.lock().rings).finish_non_exhaustive()
    }
}

impl EventRings {
    /// Makes rings without queues, in `dma`'s memory. `interrupt` raises an interrupt vector.
    pub fn new(dma: Arc<dyn Dma>, interrupt: impl FnMut(u32) + Send + 'static) -> Self {
        let interrupt: Interrupt = Box::new(interrupt);
        let rings = Rings { dma, rings: BTreeMap::new(), interrupt, lost: 0 };
        Self { rings: Arc::new(Mutex::new(rings)) }
    }

    /// Locks a mutex, poisoned or not: the data is consistent even after a panic.
    fn lock(&self) -> MutexGuard<'_, Rings> {
        self.rings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(
        &self,
        eqn: u32,
        buffer: Buffer,
        log_size: u32,
        vector: u32,
        events: [u64; 4],
    ) {
        let ring =
            Ring { buffer, log_size, vector, events, produced: 0, consumed: 0, armed: false };
        self.lock().rings.insert(eqn, ring);
    }

    pub(super) fn remove(&self, eqn: u32) {
        self.lock().rings.remove(&eqn);
    }

    /// Forgets every queue.
    pub fn clear(&self) {
        self.lock().rings.clear();
    }

    /// Handles a write to an event queue's doorbell: the driver's consumer counter, and with `arm`
    /// the request for an interrupt at the next event.
    pub fn doorbell(&self, word: u32, arm: bool) {
        let mut rings = self.lock();
        let Rings { rings, interrupt, .. } = &mut *rings;
        let Some(ring) = rings.get_mut(&(word >> COUNTER_BITS)) else { return };
        ring.consumed = word & COUNTER_MASK;
        if arm {
            // Events from before the arming raise the interrupt at once.
            let waiting = ring.produced & COUNTER_MASK != ring.consumed;
            ring.armed = !waiting;
            if waiting {
                interrupt(ring.vector);
            }
        }
    }

    /// Events that were lost, because their queue was full or its memory gone.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lock().lost
    }

    /// Whether a queue takes events of a kind.
    #[must_use]
    pub fn takes(&self, kind: EventType) -> bool {
        self.lock().rings.values().any(|ring| ring.takes(kind))
    }

    /// Reports that the commands of some entries are done, if a queue takes such events.
    pub fn commands_done(&self, vector: u32) {
        let mut entry = Eqe::default();
        entry.set_event_type(EventType::CMD.0).command_mut().set_vector(vector);
        self.lock().push_kind(&entry);
    }

    /// Requests pages, or offers some back if the number is negative. Returns whether a queue takes
    /// the request.
    pub(super) fn request_pages(&self, pages: i32) -> bool {
        let mut entry = Eqe::default();
        let request = entry.set_event_type(EventType::PAGE_REQUEST.0).page_request_mut();
        request.set_num_pages(pages.cast_unsigned());
        self.lock().push_kind(&entry)
    }

    /// Takes an event of the engine.
    pub fn event(&self, event: Event) {
        let Some(entry) = event.entry() else { return };
        let mut rings = self.lock();
        match event {
            Event::Completion { eqn, .. } => rings.push(eqn, &entry),
            // Events that no queue takes are lost.
            _ => _ = rings.push_kind(&entry),
        }
    }
}
