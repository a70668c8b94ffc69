//! Opening a device.

use super::{Caps, Link, kept::Kept, watch::Watchers};
use crate::error::{Error, ErrorKind};
use mlx5_uapi::{
    DeviceFile, Kernel,
    cmd::{
        context::{self, GetContext},
        event,
    },
    mlx5::{AllocUcontextReqV2, AllocUcontextResp, LibCaps, UcontextFlags},
    process::Origin,
    sysfs::DeviceInfo,
};
use std::sync::{Arc, OnceLock, atomic::AtomicU64};

pub(crate) const OPEN: &str = "open_device";
const IMPORT: &str = "import_device";

/// Maximum size of a send WQE in bytes: the control segment counts units in six bits.
const LONGEST_REQUEST: u16 = (mlx5_prm::wqe::MAX_UNITS * mlx5_prm::wqe::UNIT) as u16;

/// Whether a context uses DEVX, the kernel's interface to firmware commands. Cancelling, mkeys and
/// signature pipelining need it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum Devx {
    /// Uses DEVX if the kernel grants it.
    #[default]
    Auto,
    /// Requires DEVX: opening fails without it.
    Require,
    /// Does not request DEVX.
    Off,
}

impl Link {
    /// Opens a device. On failure, closing the file undoes the earlier steps.
    pub(crate) fn open(
        kernel: Arc<dyn Kernel>,
        info: &DeviceInfo,
        devx: Devx,
    ) -> Result<Self, Error> {
        let refused = |errno| Error::kernel(OPEN, errno);
        let file = kernel.open(&info.uverbs, info.dev).map_err(refused)?;
        context::probe(&*file).map_err(|error| Error::probe(OPEN, error))?;
        let context = get_context(&*file, devx)?;
        Self::on(kernel, info, file, &context)
    }

    /// Joins a context that is already open, in this or another process. It has DEVX if a firmware
    /// command succeeds.
    pub(crate) fn import(
        kernel: Arc<dyn Kernel>,
        info: &DeviceInfo,
        file: Arc<dyn DeviceFile>,
    ) -> Result<Self, Error> {
        let mut context = context::query(&*file).map_err(|errno| Error::kernel(IMPORT, errno))?;
        check(IMPORT, &context)?;
        let mut link = {
            context.devx = true;
            Self::on(kernel, info, file, &context)?
        };
        link.devx = link.hca_cap(IMPORT).is_ok();
        Ok(link)
    }

    fn on(
        kernel: Arc<dyn Kernel>,
        info: &DeviceInfo,
        file: Arc<dyn DeviceFile>,
        context: &GetContext,
    ) -> Result<Self, Error> {
        let refused = |errno| Error::kernel(OPEN, errno);
        let caps = Caps::query(&*file, context).map_err(refused)?;
        let async_file = event::alloc_async(&*file).map_err(refused)?;
        let watchers = Watchers::new().map_err(refused)?;
        Ok(Self {
            kernel,
            info: info.clone(),
            limits: AllocUcontextResp {
                // The device may allow more than a control segment can count.
                max_sq_desc_sz: context.driver.max_sq_desc_sz.min(LONGEST_REQUEST),
                ..context.driver
            },
            caps,
            devx: context.devx,
            log_striding_bytes: OnceLock::new(),
            process: Origin::here(),
            watchers,
            ids: AtomicU64::new(1),
            async_file: async_file.into(),
            file,
            kept: Kept::default(),
        })
    }
}

/// Issues GET_CONTEXT.
fn get_context(file: &dyn DeviceFile, wish: Devx) -> Result<GetContext, Error> {
    let flags = if wish == Devx::Off { UcontextFlags::empty() } else { UcontextFlags::DEVX };
    let request = AllocUcontextReqV2 {
        // Only kernels without dynamic UARs, which are too old, use these two counts; but all
        // kernels refuse a total of zero.
        total_num_bfregs: 2,
        num_low_latency_bfregs: 1,
        flags: flags.bits(),
        max_cqe_version: 1,
        lib_caps: LibCaps::all().bits(),
        ..AllocUcontextReqV2::default()
    };
    let context = context::get_context(file, &request).map_err(|e| Error::kernel(OPEN, e))?;
    check(OPEN, &context)?;
    if wish == Devx::Require && !context.devx {
        return Err(Error::no_devx(OPEN));
    }
    Ok(context)
}

/// Checks that the driver can work with the kernel's context.
fn check(operation: &'static str, context: &GetContext) -> Result<(), Error> {
    if !context.lib_caps || context.driver.tot_bfregs != 0 {
        return Err(Error::too_old(operation));
    }
    if context.driver.cqe_version != 1 {
        let cause = "the device's completions carry no user index (CQE version 0), which this \
                     driver needs; newer firmware may help";
        return Err(Error::new(operation, ErrorKind::NotSupported, cause));
    }
    Ok(())
}
