//! Protection domains.

use super::Held;
use crate::{
    context::{Context, Inner},
    error::{DestroyError, Error},
};
use mlx5_uapi::cmd::pd as command;
use std::{fmt, sync::Arc};

/// A protection domain (`struct ibv_pd`). Queues access only memory of their own domain. Clones
/// share the domain; every object created in it keeps it alive.
#[derive(Clone)]
pub struct ProtectionDomain {
    domain: Arc<Domain>,
    pub(crate) context: Arc<Inner>,
}

struct Domain {
    context: Arc<Inner>,
    pd: command::Pd,
    held: Held,
}

impl Domain {
    fn destroy(&mut self, explicit: bool) -> Result<(), Error> {
        if self.held.destroys(explicit) {
            self.context
                .run_destroy("dealloc_pd", |file| command::dealloc(file, self.pd.handle))?;
            self.held = Held::No;
        }
        Ok(())
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // On failure no memory is at stake, and the kernel destroys the object when the file is
        // closed.
        let _ = self.destroy(false);
    }
}

impl Context {
    /// Allocates a protection domain (`ibv_alloc_pd`).
    pub fn alloc_pd(&self) -> Result<ProtectionDomain, Error> {
        let context = Arc::clone(&self.inner);
        let pd = context.run("alloc_pd", command::alloc)?;
        let domain = Arc::new(Domain { context: Arc::clone(&context), pd, held: Held::Own });
        Ok(ProtectionDomain { domain, context })
    }
}

impl Context {
    /// Imports a protection domain of another part of the same context (`ibv_import_pd`), by the
    /// kernel's handle. Dropping it does not deallocate the domain; [`ProtectionDomain::destroy`]
    /// does.
    ///
    /// # Safety
    /// The domain is not that of an [`EthernetQueue`](crate::ethernet::EthernetQueue): a request of
    /// another queue could change its packets while a program looks at them. Nor is it that of
    /// another object that relies on the exclusive use of its domain.
    pub unsafe fn import_pd(&self, handle: u32) -> Result<ProtectionDomain, Error> {
        let context = Arc::clone(&self.inner);
        let pd = context.run("import_pd", |file| command::query(file, handle))?;
        let domain = Arc::new(Domain { context: Arc::clone(&context), pd, held: Held::Imported });
        Ok(ProtectionDomain { domain, context })
    }
}

impl ProtectionDomain {
    /// Returns the kernel's handle.
    pub(crate) fn handle(&self) -> u32 {
        self.domain.pd.handle
    }

    /// Returns the kernel's handle, for calls that this crate does not wrap. See
    /// [`Context::device_file`].
    pub fn kernel_handle(&self) -> u32 {
        self.handle()
    }

    /// Returns the context that it belongs to.
    pub fn context(&self) -> Context {
        Context { inner: Arc::clone(&self.context) }
    }

    /// Returns the device's number of the domain.
    pub fn pdn(&self) -> u32 {
        self.domain.pd.pdn
    }

    /// Destroys the domain (`ibv_dealloc_pd`). If an object still belongs to it, or the kernel
    /// refuses, the error returns it.
    pub fn destroy(self) -> Result<(), DestroyError<Self>> {
        let Self { domain, context } = self;
        match Arc::try_unwrap(domain) {
            Ok(mut alone) => alone.destroy(true).map_err(|error| {
                DestroyError::new(Self { domain: Arc::new(alone), context }, error)
            }),
            Err(domain) => {
                let error = Error::busy("dealloc_pd", "something still belongs to the domain");
                Err(DestroyError::new(Self { domain, context }, error))
            }
        }
    }
}

impl PartialEq for ProtectionDomain {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.domain, &other.domain)
    }
}

impl Eq for ProtectionDomain {}

impl fmt::Debug for ProtectionDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProtectionDomain").field("pdn", &self.pdn()).finish_non_exhaustive()
    }
}
