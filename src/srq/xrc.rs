//! XRC domains.

use crate::{
    context::{Context, Inner},
    error::{DestroyError, Error},
};
use mlx5_uapi::cmd::xrcd as command;
use mlx5_uapi::verbs::XrcdFlags as OpenFlags;
use std::{fmt, os::fd::BorrowedFd, sync::Arc};

/// An XRC domain (`struct ibv_xrcd`), which connects target queue pairs with shared receive queues.
/// Clones share the domain; every object created in it keeps it alive.
#[derive(Clone)]
pub struct XrcDomain {
    pub(crate) domain: Arc<Domain>,
}

pub(crate) struct Domain {
    pub(crate) context: Arc<Inner>,
    pub(crate) handle: u32,
    /// Whether the domain exists in the kernel.
    live: bool,
}

impl Domain {
    fn destroy(&mut self) -> Result<(), Error> {
        if self.live {
            let handle = self.handle;
            self.context.run_destroy("close_xrcd", |file| command::close(file, handle))?;
            self.live = false;
        }
        Ok(())
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // On failure no memory is at stake, and the kernel destroys the object when the file is
        // closed.
        let _ = self.destroy();
    }
}

/// Whether to open an existing domain or create one. See [`Context::open_xrcd_shared`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum XrcOpen {
    /// Opens an existing domain; fails if there is none.
    Existing,
    /// Opens an existing domain, or creates one.
    Create,
    /// Creates a domain; fails if there is one.
    CreateNew,
}

impl XrcOpen {
    const fn flags(self) -> OpenFlags {
        match self {
            Self::Existing => OpenFlags::empty(),
            Self::Create => OpenFlags::CREATE,
            Self::CreateNew => OpenFlags::CREATE.union(OpenFlags::EXCLUSIVE),
        }
    }
}

impl Context {
    /// Creates an XRC domain for this process only (`ibv_open_xrcd` without a descriptor).
    pub fn open_xrcd(&self) -> Result<XrcDomain, Error> {
        self.open(None, XrcOpen::Create)
    }

    /// Opens the XRC domain of the file that `share` refers to (`ibv_open_xrcd`). All processes
    /// that have that file open share the domain.
    pub fn open_xrcd_shared(
        &self,
        share: BorrowedFd<'_>,
        open: XrcOpen,
    ) -> Result<XrcDomain, Error> {
        self.open(Some(share), open)
    }

    fn open(&self, share: Option<BorrowedFd<'_>>, open: XrcOpen) -> Result<XrcDomain, Error> {
        let context = Arc::clone(&self.inner);
        let handle =
            context.run("open_xrcd", |file| command::open(file, share, open.flags().bits()))?;
        Ok(XrcDomain { domain: Arc::new(Domain { context, handle, live: true }) })
    }
}

impl XrcDomain {
    /// Returns the kernel's handle, for calls that this crate does not wrap. See
    /// [`Context::device_file`].
    pub fn kernel_handle(&self) -> u32 {
        self.domain.handle
    }

    /// Returns the context that it belongs to.
    pub fn context(&self) -> Context {
        Context { inner: Arc::clone(&self.domain.context) }
    }

    pub(crate) fn belongs_to(&self, context: &Arc<Inner>) -> bool {
        Arc::ptr_eq(&self.domain.context, context)
    }

    /// Closes the domain (`ibv_close_xrcd`). If an object of this process still belongs to it, or
    /// the kernel refuses, the error returns it.
    pub fn close(self) -> Result<(), DestroyError<Self>> {
        match Arc::try_unwrap(self.domain) {
            Ok(mut alone) => alone
                .destroy()
                .map_err(|error| DestroyError::new(Self { domain: Arc::new(alone) }, error)),
            Err(domain) => {
                let error = Error::busy("close_xrcd", "something still belongs to the domain");
                Err(DestroyError::new(Self { domain }, error))
            }
        }
    }
}

impl fmt::Debug for XrcDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("XrcDomain")
            .field("device", &self.domain.context.info.name)
            .finish_non_exhaustive()
    }
}
