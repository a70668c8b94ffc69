//! Devices: finding and opening them, their properties, events and clock.
//!
//! A context is an open device: a link to it, and the pools that its queues are made from.

mod clock;
mod device;
mod event;
mod gid;
mod guid;
mod query;
mod watch;

pub use clock::{Clock, ClockRelation, real_time_ns};
pub use device::{
    Device, OpenOptions, devices, devices_on, open, skipped_devices, skipped_devices_on,
};
pub use event::{AsyncEvent, AsyncEvents, DetachedEvents};
pub use gid::Gid;
pub use guid::Guid;
pub use query::{
    CompletionCaps, DeviceAttr, EthernetCaps, GidEntry, LinkSpeed, OnDemandCaps, PhysicalState,
    PortAttr, QueueLimits, StridingCaps, TagMatchingCaps, mtu_bytes,
};
pub use watch::{DeviceEvent, DeviceWatcher};

use crate::{
    error::Error,
    link::{Link, OPEN},
    pools::{Buffers, Records, SignedKeys, ThreadDomain, Uars, UserIndexes},
};
use mlx5_uapi::{DeviceFile, Kernel, mlx5::AllocUcontextResp, sysfs::DeviceInfo};
use std::{fmt, ops::Deref, sync::Arc};

/// An open device (`struct ibv_context`). Clones share the context; every object created from it
/// keeps it open.
#[derive(Clone)]
pub struct Context {
    pub(crate) inner: Arc<Inner>,
}

/// The shared state of a context, which all its objects keep alive.
pub(crate) struct Inner {
    pub(crate) link: Arc<Link>,
    pub(crate) user_indexes: Arc<UserIndexes>,
    pub(crate) uars: Arc<Uars>,
    pub(crate) records: Arc<Records>,
    pub(crate) buffers: Arc<Buffers>,
    pub(crate) signed_keys: Arc<SignedKeys>,
}

impl Inner {
    /// Opens a device.
    pub(crate) fn open(
        kernel: Arc<dyn Kernel>,
        info: &DeviceInfo,
        options: &OpenOptions,
    ) -> Result<Arc<Self>, Error> {
        Self::on(Link::open(kernel, info, options.devx)?, options)
    }

    pub(crate) fn on(link: Link, options: &OpenOptions) -> Result<Arc<Self>, Error> {
        let refused = |errno| Error::kernel(OPEN, errno);
        let link = Arc::new(link);
        let blueflame_size = if options.blueflame { link.limits.bf_reg_size } else { 0 };
        let pages = options.max_blueflame_pages as usize;
        let uars = Uars::new(&link, blueflame_size, pages).map_err(refused)?;
        let records = Records::new(&link)
            .map_err(|error| Error::allocate(OPEN, mlx5_uapi::page_size(), error))?;
        Ok(Arc::new(Self {
            buffers: Buffers::new(&link),
            link,
            user_indexes: Arc::default(),
            uars,
            records,
            signed_keys: Arc::default(),
        }))
    }
}

/// A context is a link with pools: code that makes calls gets the link.
impl Deref for Inner {
    type Target = Link;

    fn deref(&self) -> &Link {
        &self.link
    }
}

impl Context {
    /// Returns the open device file, for calls that this crate does not wrap.
    ///
    /// `mlx5_uapi::cmd` has a function for each call of the kernel's driver, which names objects by
    /// the kernel's handles (`kernel_handle` of each).
    ///
    /// # Safety
    /// Calls on the file neither destroy nor change an object that this crate has made, unless the
    /// object's owner here allows it, and do not let the device use an object's memory for anything
    /// else: queues and regions rely on exclusive use.
    pub unsafe fn device_file(&self) -> &Arc<dyn DeviceFile> {
        &self.inner.file
    }

    /// Returns the device's name, such as `mlx5_0`.
    pub fn name(&self) -> &str {
        &self.inner.info.name
    }

    /// Returns the device, to open it again or to read its [counters](Device::hw_counter): as it
    /// was when the context was opened.
    pub fn device(&self) -> Device {
        Device { kernel: Arc::clone(&self.inner.kernel), info: self.inner.info.clone() }
    }

    /// Returns the kernel driver's answer to opening the device. Only `max_sq_desc_sz` is changed:
    /// it is at most the maximum size of a request.
    pub fn driver_limits(&self) -> &AllocUcontextResp {
        &self.inner.limits
    }

    /// Returns the number of completion vectors, over which completion queues spread their
    /// interrupts.
    pub fn num_comp_vectors(&self) -> u32 {
        self.inner.num_comp_vectors()
    }

    /// Returns the number of ports, which are counted from 1.
    pub fn num_ports(&self) -> u32 {
        self.inner.num_ports() as u32
    }

    /// Whether DEVX was granted. Cancelling, mkeys and signature pipelining need it.
    pub fn has_devx(&self) -> bool {
        self.inner.has_devx()
    }

    /// Whether the device is known to be gone. Then calls and posts fail, and polls fail when no
    /// CQE is left.
    pub fn is_gone(&self) -> bool {
        self.inner.is_gone()
    }

    /// Number of memory areas that are kept because the kernel did not destroy the object for which
    /// the device uses them, or because creating the object failed with [`Error::in_doubt`].
    ///
    /// They are freed when the context closes, after its last handle is gone: closing the file
    /// destroys every object. Two kinds stay until the process ends, and [`leaked`](crate::leaked)
    /// counts them: memory of a [`QueueAllocator`](crate::QueueAllocator), and all memory if a
    /// [`Kernel`] implementation keeps the file open.
    pub fn leaked(&self) -> usize {
        self.inner.kept()
    }

    /// Closes the device. While a clone or an object of it still uses it, the context is returned
    /// as the error.
    pub fn close(self) -> Result<(), Self> {
        match Arc::try_unwrap(self.inner) {
            Ok(inner) => {
                drop(inner);
                Ok(())
            }
            Err(inner) => Err(Self { inner }),
        }
    }

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
        ThreadDomain::new(&self.inner.uars)
    }
}

impl PartialEq for Context {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

impl Eq for Context {}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("device", &self.inner.info.name)
            .field("firmware", &self.inner.info.fw_version)
            .field("gone", &self.inner.is_gone())
            .finish_non_exhaustive()
    }
}
