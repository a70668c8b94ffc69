//! Domains of extended connections.

use crate::{
    context::{Context, Inner},
    error::Error,
};
use mlx5_uapi::cmd::xrcd as command;
use mlx5_uapi::verbs::XrcdFlags as OpenFlags;
use std::{fmt, os::fd::BorrowedFd, sync::Arc};

/// An XRC domain (`struct ibv_xrcd`): what joins target queue pairs and shared receive queues.
/// Clones are the same domain; everything made in it keeps it.
#[derive(Clone)]
pub struct XrcDomain {
    pub(crate) domain: Arc<Domain>,
}

pub(crate) struct Domain {
    pub(crate) context: Arc<Inner>,
    pub(crate) handle: u32,
    /// Whether the kernel has it.
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
        // It has no memory; the kernel takes it back when the device is closed.
        let _ = self.destroy();
    }
}

/// Whether a domain is to be there already. See [`Context::open_xrcd_shared`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum XrcOpen {
    /// It must be.
    Existing,
    /// It is made if it is not.
    Create,
    /// It must not be: it is made.
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
    /// Makes an XRC domain of this process alone (`ibv_open_xrcd` without a descriptor).
    pub fn open_xrcd(&self) -> Result<XrcDomain, Error> {
        self.open(None, XrcOpen::Create)
    }

    /// Opens the XRC domain that all processes share which have the file behind `share` open
    /// (`ibv_open_xrcd`).
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
    /// The context that it belongs to.
    pub fn context(&self) -> Context {
        Context { inner: Arc::clone(&self.domain.context) }
    }

    pub(crate) fn belongs_to(&self, context: &Arc<Inner>) -> bool {
        Arc::ptr_eq(&self.domain.context, context)
    }

    /// Closes it (`ibv_close_xrcd`). Fails, and gives it back, while something of this process
    /// belongs to it or when the kernel refuses.
    pub fn close(self) -> Result<(), (Self, Error)> {
        match Arc::try_unwrap(self.domain) {
            Ok(mut alone) => {
                alone.destroy().map_err(|error| (Self { domain: Arc::new(alone) }, error))
            }
            Err(domain) => {
                let error = Error::busy("close_xrcd", "something still belongs to the domain");
                Err((Self { domain }, error))
            }
        }
    }
}

impl fmt::Debug for XrcDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("XrcDomain").finish_non_exhaustive()
    }
}
