//! Doorbell registers of send queues, and thread domains.

use super::{DoorbellChoice, DoorbellMode, Place, Uars};
use crate::error::Error;
use mlx5_doorbell::{SendRegister, SharedBlueFlame};
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The doorbell register of a send queue. Dropping it frees an exclusive register for the next
/// queue.
pub(crate) struct SendUar {
    uars: Arc<Uars>,
    place: Place,
    page_id: u32,
    given: AtomicBool,
    /// Whether no other queue may get the register until the context closes.
    kept: AtomicBool,
    /// The thread domain that owns the register, if any.
    domain: Option<ThreadDomain>,
}

/// A BlueFlame register for the send queues of one thread (`struct ibv_td`). All of them share this
/// one register, and no queue outside the domain rings it. A lock makes it safe to move a queue to
/// another thread; while one thread uses the domain, the lock is never contended. Clones share the
/// domain.
#[derive(Clone)]
pub struct ThreadDomain(Arc<DomainRegister>);

struct DomainRegister {
    shared: SharedBlueFlame,
    uar: SendUar,
}

impl ThreadDomain {
    /// Sets a register of `uars` apart.
    pub(crate) fn new(uars: &Arc<Uars>) -> Result<Self, Error> {
        let uar = uars.acquire(DoorbellChoice::BlueFlame)?;
        let shared = SharedBlueFlame::new(uar.address());
        Ok(Self(Arc::new(DomainRegister { shared, uar })))
    }

    /// Returns the register for a send queue of a context with these `uars`.
    pub(crate) fn send_uar(&self, uars: &Arc<Uars>) -> Result<SendUar, Error> {
        let uar = &self.0.uar;
        if !Arc::ptr_eq(&uar.uars, uars) {
            let what = "thread domain and protection domain belong to different contexts";
            return Err(Error::invalid("create_qp", what.into()));
        }
        Ok(SendUar::new(uars, Place::Shared, uar.page_id, Some(self.clone())))
    }
}

impl fmt::Debug for ThreadDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadDomain").field("page", &self.0.uar.page_id).finish_non_exhaustive()
    }
}

impl SendUar {
    pub(super) fn new(
        uars: &Arc<Uars>,
        place: Place,
        page_id: u32,
        domain: Option<ThreadDomain>,
    ) -> Self {
        Self {
            uars: Arc::clone(uars),
            place,
            page_id,
            given: AtomicBool::new(false),
            kept: AtomicBool::new(false),
            domain,
        }
    }

    /// Returns the device's number of the page, for CREATE_QP.
    pub(crate) fn page_id(&self) -> u32 {
        self.page_id
    }

    /// Returns the mode.
    pub(crate) fn mode(&self) -> DoorbellMode {
        match self.place {
            Place::Own(_) => DoorbellMode::BlueFlame,
            Place::Shared => DoorbellMode::SharedBlueFlame,
            Place::Plain => DoorbellMode::Doorbell,
        }
    }

    /// Returns the register. May be called only once; the result must not outlive `self`.
    pub(crate) fn register(&self) -> SendRegister {
        assert!(!self.given.swap(true, Relaxed), "the register was given out before");
        if let Some(domain) = &self.domain {
            let size = self.uars.registers.blueflame_size;
            // SAFETY: only `shared` accesses the domain's register. `shared` is in an `Arc`: it
            // stays at its address as long as the domain, to which `self` holds a reference.
            return unsafe { SendRegister::shared_blueflame((&domain.0.shared).into(), size) };
        }
        self.uars.registers.send_register(self.place)
    }

    /// Returns the first byte of the register, and the offset of its page in the device's file.
    pub(in crate::pools) fn raw_address(&self) -> (NonNull<u8>, u64) {
        match &self.domain {
            Some(domain) => domain.0.uar.raw_address(),
            None => self.uars.registers.raw_address(self.place),
        }
    }

    /// Whether no other queue rings the register, and it is a BlueFlame register.
    pub(in crate::pools) fn is_exclusive(&self) -> bool {
        matches!(self.place, Place::Own(_))
    }

    /// Returns the length of each half of a BlueFlame register.
    pub(in crate::pools) fn half_size(&self) -> usize {
        self.uars.registers.blueflame_size / 2
    }

    /// Returns the first byte of an exclusive register.
    fn address(&self) -> NonNull<u8> {
        let registers = &self.uars.registers;
        match self.place {
            Place::Own(which) => registers.blueflame_register(&registers.state(), which).1,
            _ => unreachable!("a register of its own was asked for"),
        }
    }

    /// Takes the register out of use until the context closes: the queue was not destroyed.
    pub(crate) fn keep(self) {
        self.uars.keep();
        let register = self.domain.as_ref().map_or(&self, |domain| &domain.0.uar);
        register.kept.store(true, Relaxed);
    }
}

impl Drop for SendUar {
    fn drop(&mut self) {
        // After a fork, a thread that does not exist in the child may hold the lock.
        if *self.kept.get_mut() || self.uars.link.forked() {
            return;
        }
        match self.place {
            Place::Own(which) => self.uars.registers.state().free.push(which),
            Place::Shared if self.domain.is_none() => self.uars.registers.state().sharers -= 1,
            _ => {}
        }
    }
}
