//! Reregistration of memory regions (`ibv_rereg_mr`).

use super::{Access, MemoryRegion, Place, check_access, check_extent, for_kernel, remote_limit};
use crate::{
    error::{Error, ReregisterError},
    memory::ProtectionDomain,
    pools::allocate,
};
use mlx5_uapi::{MemoryRequest, cmd::mr as command, verbs::ReregFlags};
use std::fmt;

const REREG: &str = "rereg_mr";

/// Changes to a region. See [`MemoryRegion::reregister`].
#[must_use = "nothing changes until `apply` is called"]
pub struct Reregistration {
    region: MemoryRegion,
    pd: Option<ProtectionDomain>,
    access: Option<Access>,
    own: Option<usize>,
    foreign: Option<Place>,
    unchecked: bool,
}

impl fmt::Debug for Reregistration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reregistration")
            .field("region", &self.region)
            .field("pd", &self.pd)
            .field("access", &self.access)
            .finish_non_exhaustive()
    }
}

impl MemoryRegion {
    /// Starts changing the region's protection domain, access flags or memory. Its keys may change.
    ///
    /// The old memory is kept until the region is deregistered, whether the change succeeds or not:
    /// outstanding requests may still access it.
    ///
    /// ```no_run
    /// # use mlx5::{Access, Error, MemoryRegion};
    /// # fn f(region: MemoryRegion) -> Result<(), Error> {
    /// let larger = region.reregister().memory(1 << 20).apply()?;
    /// assert_eq!(larger.len(), 1 << 20);
    /// # Ok(())
    /// # }
    /// ```
    pub fn reregister(self) -> Reregistration {
        Reregistration {
            region: self,
            pd: None,
            access: None,
            own: None,
            foreign: None,
            unchecked: false,
        }
    }
}

impl Reregistration {
    /// Changes the protection domain (`IBV_REREG_MR_CHANGE_PD`). Default: unchanged. It must belong
    /// to the region's context.
    pub fn pd(mut self, pd: &ProtectionDomain) -> Self {
        self.pd = Some(pd.clone());
        self
    }

    /// Changes the access flags (`IBV_REREG_MR_CHANGE_ACCESS`). Default: unchanged. The limits are
    /// those of [`MemoryBuilder::access`](super::MemoryBuilder::access); foreign memory may also
    /// have `ON_DEMAND`, and `HUGETLB` together with it.
    pub fn access(mut self, access: Access) -> Self {
        self.access = Some(access);
        self
    }

    /// Replaces the memory by `len` new, zeroed bytes that the region owns
    /// (`IBV_REREG_MR_CHANGE_TRANSLATION`). Default: unchanged. `len` must not be zero. Overrides
    /// an earlier [`Reregistration::foreign`].
    pub fn memory(mut self, len: usize) -> Self {
        (self.own, self.foreign) = (Some(len), None);
        self
    }

    /// Replaces the memory by foreign memory (`IBV_REREG_MR_CHANGE_TRANSLATION`). Default:
    /// unchanged. `len` must not be zero. Overrides an earlier [`Reregistration::memory`].
    ///
    /// # Safety
    /// As for [`ProtectionDomain::reg_mr`]. The contract of the previous memory also remains in
    /// force, until the region is deregistered.
    pub unsafe fn foreign(mut self, start: *mut u8, len: usize) -> Self {
        let start = start.expose_provenance() as u64;
        (self.own, self.foreign) = (None, Some(Place { start, len, iova: start }));
        self
    }

    /// Leaves it to the kernel to check the changes, and whether there are any. Default: this crate
    /// checks them first.
    pub fn unchecked(mut self) -> Self {
        self.unchecked = true;
        self
    }

    /// Applies the changes; at least one is required. On failure the error returns the region. An
    /// error without an [`Error::errno`] leaves the region unchanged. After any other error its
    /// state is unknown, as with `ibv_rereg_mr`: it can only be deregistered.
    pub fn apply(mut self) -> Result<MemoryRegion, ReregisterError<MemoryRegion>> {
        match self.change() {
            Ok(()) => Ok(self.region),
            Err(error) => Err(ReregisterError::new(self.region, error)),
        }
    }

    fn change(&mut self) -> Result<(), Error> {
        let wrong = |what: &str| Err(Error::invalid(REREG, what.to_owned()));
        let region = &mut self.region;
        let context = &region.pd.context;
        context.check(REREG)?;
        if let Some(pd) = &self.pd
            && !std::sync::Arc::ptr_eq(&pd.context, context)
        {
            return wrong("region and protection domain belong to different contexts");
        }
        let access = self.access.unwrap_or(region.access);
        let owned = region.memory.is_some() || self.own.is_some();
        if !self.unchecked {
            check_access(access, owned && self.foreign.is_none())?;
        }
        let mut flags = ReregFlags::empty();
        flags.set(ReregFlags::PD, self.pd.is_some());
        flags.set(ReregFlags::ACCESS, self.access.is_some());
        let mut fresh = None;
        let place = match (self.own, self.foreign.take()) {
            (Some(0), _) => return wrong("the region is empty: give at least one byte"),
            (Some(len), _) => {
                let mapping = allocate(REREG, &*context.file, &MemoryRequest::new(len))?;
                let start = mapping.as_ptr().expose_provenance() as u64;
                fresh = Some(mapping);
                Some(Place { start, len, iova: start })
            }
            (None, Some(place)) => {
                if !self.unchecked {
                    check_extent(place.start, place.len)?;
                }
                Some(place)
            }
            (None, None) => None,
        };
        flags.set(ReregFlags::TRANSLATION, place.is_some());
        if flags.is_empty() && !self.unchecked {
            return wrong("nothing to change: give a domain, access rights or memory");
        }
        let (start, len, iova) = match &place {
            Some(place) => (place.start, place.len, place.iova),
            None => (0, 0, 0),
        };
        let what = command::Registration {
            pd: self.pd.as_ref().unwrap_or(&region.pd).handle(),
            start,
            length: len as u64,
            hca_va: iova,
            access: for_kernel(access, context),
        };
        let handle = region.mr.handle;
        // SAFETY: owned memory, old and new, is kept until the region is deregistered or the file
        // is closed, or forever. For foreign memory the caller of `foreign` promised what `reg_mr`
        // requires.
        let result =
            context.run(REREG, |file| unsafe { command::rereg(file, handle, flags, &what) });
        // After a failure the device may have the new memory and the new rights.
        region.rights |= access;
        match result {
            Ok((lkey, rkey)) => {
                (region.mr.lkey, region.mr.rkey) = (lkey, rkey);
                if let Some(place) = place {
                    (region.addr, region.len) = (place.iova, place.len);
                    region.former.extend(std::mem::replace(&mut region.memory, fresh));
                }
                region.access = access;
                region.remote_limit = remote_limit(access, region.len);
                if let Some(pd) = self.pd.take() {
                    region.pd = pd;
                }
                Ok(())
            }
            Err(error) => {
                region.former.extend(fresh);
                Err(error)
            }
        }
    }
}
