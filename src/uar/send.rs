//! Where send queues ring, and domains of threads that share a register.

use super::{DoorbellChoice, DoorbellMode, Place};
use crate::context::{Context, Inner};
use crate::error::Error;
use mlx5_doorbell::{SendRegister, SharedBlueFlame};
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Where a send queue rings. Dropping it makes a register of its own free for the next queue.
pub(crate) struct SendUar {
    context: Arc<Inner>,
    place: Place,
    page_id: u32,
    given: AtomicBool,
    /// No other queue may have it until the context closes.
    kept: AtomicBool,
    /// Whose register it is, if it is not its own.
    domain: Option<ThreadDomain>,
}

/// A BlueFlame register for the send queues of one thread (`struct ibv_td`). However many they are,
/// they take no more than this one, and no queue outside the domain rings there: the lock that keeps
/// it safe to move a queue to another thread is never found taken. Clones are the same domain.
#[derive(Clone)]
pub struct ThreadDomain(Arc<DomainRegister>);

struct DomainRegister {
    shared: SharedBlueFlame,
    uar: SendUar,
}

impl Context {
    /// Sets a BlueFlame register apart for the queues of one thread (`ibv_alloc_td`), for
    /// [`thread_domain`](crate::QueuePairBuilder::thread_domain). It is free again once the domain and
    /// its queue pairs are gone.
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
    /// A place to ring for a send queue of `context`.
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
    /// The device's number of the page, which CREATE_QP is told.
    pub(crate) fn page_id(&self) -> u32 {
        self.page_id
    }

    /// Which kind it is.
    pub(crate) fn mode(&self) -> DoorbellMode {
        match self.place {
            Place::Own(_) => DoorbellMode::BlueFlame,
            Place::Shared => DoorbellMode::SharedBlueFlame,
            Place::Plain => DoorbellMode::Doorbell,
        }
    }

    /// The register. To be asked for once, and used no longer than `self` lives.
    pub(crate) fn register(&self) -> SendRegister {
        assert!(!self.given.swap(true, Relaxed), "the register was given out before");
        if let Some(domain) = &self.domain {
            let size = self.context.uars.blueflame_size;
            // SAFETY: the register is the domain's, and only `shared` reaches it, which stays where
            // it is as long as the domain, which `self` keeps.
            return unsafe { SendRegister::shared_blueflame((&domain.0.shared).into(), size) };
        }
        self.context.uars.send_register(self.place)
    }

    /// The first byte of a register of its own.
    fn address(&self) -> NonNull<u8> {
        let uars = &self.context.uars;
        match self.place {
            Place::Own(which) => uars.blueflame_register(&uars.state(), which).1,
            _ => unreachable!("a register of its own was asked for"),
        }
    }

    /// Never gives the register to another queue: this one could not be destroyed.
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
        // In a child the lock may be held by a thread that is not there.
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
    /// A place to ring for a send queue.
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
