//! Doorbell registers of send queues, and thread domains.

use super::{DoorbellChoice, DoorbellMode, Place};
use crate::context::{Context, Inner};
use crate::error::Error;
use mlx5_doorbell::{SendRegister, SharedBlueFlame};
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The doorbell register of a send queue. Dropping it frees an exclusive register for the next
/// queue.
pub(crate) struct SendUar {
    context: Arc<Inner>,
    place: Place,
    page_id: u32,
    given: AtomicBool,
    /// Whether no other queue may have the register until the context closes.
    kept: AtomicBool,
    /// The thread domain whose register this is, if it is one's.
    domain: Option<ThreadDomain>,
}

/// A BlueFlame register for the send queues of one thread (`struct ibv_td`). All of them share this
/// one register, and no queue outside the domain rings it. A lock keeps it safe to move a queue to
/// another thread; while one thread uses the domain, the lock is never contended. Clones share the
/// domain.
#[derive(Clone)]
pub struct ThreadDomain(Arc<DomainRegister>);

struct DomainRegister {
    shared: SharedBlueFlame,
    uar: SendUar,
}

impl Context {
    /// Sets a BlueFlame register apart for the queues of one thread (`ibv_alloc_td`), for
    /// [`thread_domain`](crate::QueuePairBuilder::thread_domain). The register is freed once the
    /// domain and its queue pairs are gone. Fails if no register is left.
    ///
    /// ```no_run
    /// # use mlx5::{CompletionQueue, Error, ProtectionDomain, transport::Rc};
    /// # fn f(pd: &ProtectionDomain, cq: &CompletionQueue) -> Result<(), Error> {
    /// let mine = pd.context().alloc_td()?;
    /// let first = pd.create_qp::<Rc>(cq, cq).thread_domain(&mine).build()?;
    /// let second = pd.create_qp::<Rc>(cq, cq).thread_domain(&mine).build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn alloc_td(&self) -> Result<ThreadDomain, Error> {
        self.inner.check("alloc_td")?;
        let uar = self.inner.acquire_send_uar(DoorbellChoice::BlueFlame)?;
        let shared = SharedBlueFlame::new(uar.address());
        Ok(ThreadDomain(Arc::new(DomainRegister { shared, uar })))
    }
}

impl ThreadDomain {
    /// Returns the register for a send queue of `context`.
    pub(crate) fn send_uar(&self, context: &Arc<Inner>) -> Result<SendUar, Error> {
        let uar = &self.0.uar;
        if !Arc::ptr_eq(&uar.context, context) {
            let what = "thread domain and protection domain belong to different contexts";
            return Err(Error::invalid("create_qp", what.into()));
        }
        Ok(SendUar {
            context: Arc::clone(context),
            place: Place::Shared,
            page_id: uar.page_id,
            given: AtomicBool::new(false),
            kept: AtomicBool::new(false),
            domain: Some(self.clone()),
        })
    }
}

impl fmt::Debug for ThreadDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadDomain").field("page", &self.0.uar.page_id).finish_non_exhaustive()
    }
}

impl SendUar {
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

    /// Returns the register. Call it once; the result must not outlive `self`.
    pub(crate) fn register(&self) -> SendRegister {
        assert!(!self.given.swap(true, Relaxed), "the register was given out before");
        if let Some(domain) = &self.domain {
            let size = self.context.uars.blueflame_size;
            // SAFETY: only `shared` accesses the domain's register. `shared` is in an `Arc`: it
            // stays at its address as long as the domain, which `self` keeps.
            return unsafe { SendRegister::shared_blueflame((&domain.0.shared).into(), size) };
        }
        self.context.uars.send_register(self.place)
    }

    /// Returns the first byte of an exclusive register.
    fn address(&self) -> NonNull<u8> {
        let uars = &self.context.uars;
        match self.place {
            Place::Own(which) => uars.blueflame_register(&uars.state(), which).1,
            _ => unreachable!("a register of its own was asked for"),
        }
    }

    /// Takes the register out of use until the context closes: the queue was not destroyed.
    pub(crate) fn keep(self) {
        if !self.context.forked() {
            self.context.uars.state().leaked = true;
        }
        let register = self.domain.as_ref().map_or(&self, |domain| &domain.0.uar);
        register.kept.store(true, Relaxed);
    }
}

impl Drop for SendUar {
    fn drop(&mut self) {
        // After a fork, a thread that does not exist in the child may hold the lock.
        if *self.kept.get_mut() || self.context.forked() {
            return;
        }
        match self.place {
            Place::Own(which) => self.context.uars.state().free.push(which),
            Place::Shared if self.domain.is_none() => self.context.uars.state().sharers -= 1,
            _ => {}
        }
    }
}

impl Inner {
    /// Assigns a register to a send queue.
    pub(crate) fn acquire_send_uar(
        self: &Arc<Self>,
        choice: DoorbellChoice,
    ) -> Result<SendUar, Error> {
        let place = self
            .uars
            .acquire(&*self.file, choice)
            .map_err(|errno| self.fail("alloc_uar", errno))?;
        let page_id = self.uars.page_id(place);
        let context = Arc::clone(self);
        Ok(SendUar {
            context,
            place,
            page_id,
            given: AtomicBool::new(false),
            kept: AtomicBool::new(false),
            domain: None,
        })
    }
}
