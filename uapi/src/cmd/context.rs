//! Opening a context on a device file.

use zerocopy::{FromZeros, IntoBytes};

use crate::{
    Errno, ProbeError,
    call::Call,
    ioctl::{attr, method},
    kernel::DeviceFile,
    mlx5::{AllocUcontextReqV2, AllocUcontextResp, UcontextFlags},
    verbs::CoreSupport,
    write_cmd::WriteCommand,
};

/// The response of GET_CONTEXT.
#[derive(Clone, Copy, Debug)]
pub struct GetContext {
    /// The number of completion vectors.
    pub num_comp_vectors: u32,
    /// The features of the kernel's RDMA core.
    pub core_support: CoreSupport,
    /// The driver's response; zero beyond its `response_length`.
    pub driver: AllocUcontextResp,
    /// Whether the context may use DEVX.
    pub devx: bool,
    /// Whether the kernel received `lib_caps`; if not, there are no dynamic UARs.
    pub lib_caps: bool,
}

/// Checks whether the kernel has the calls that the driver requires.
///
/// The first check is for the ioctl and the commands that it carries: QUERY_DEVICE without a buffer
/// for the response, which a kernel with these commands refuses with `ENOSPC`. The second is for
/// the newest method, QUERY_GID_ENTRY, without its attributes: a kernel that knows the method
/// reports that they are missing, an older one that it does not know the method. The kernel's
/// version is no evidence, because distributions backport.
pub fn probe(file: &dyn DeviceFile) -> Result<(), ProbeError> {
    probe_commands(file)?;
    match Call::new(method::QUERY_GID_ENTRY).make(file) {
        Ok(_) | Err(Errno::EINVAL) => Ok(()),
        Err(Errno::EPROTONOSUPPORT) => Err(ProbeError::TooOld),
        Err(errno) => Err(ProbeError::Kernel(errno)),
    }
}

fn probe_commands(file: &dyn DeviceFile) -> Result<(), ProbeError> {
    let command = u64::from(WriteCommand::QUERY_DEVICE.0);
    let answer = Call::new(method::INVOKE_WRITE)
        .input_u64(attr::invoke_write::WRITE_CMD, command)
        .make(file);
    match answer {
        Ok(_) | Err(Errno::ENOSPC) => Ok(()),
        Err(Errno::ENOTTY | Errno::EPROTONOSUPPORT) => Err(ProbeError::TooOld),
        Err(errno) => Err(ProbeError::Kernel(errno)),
    }
}

/// Opens the context (GET_CONTEXT) with the longest request that the kernel accepts.
///
/// An older kernel refuses a request longer than it knows. A kernel refuses a request for DEVX if
/// it or the device does not offer DEVX. Therefore shorter requests are tried, first with DEVX,
/// then without. If the kernel refuses all of them, the error is that of the first.
pub fn get_context(
    file: &dyn DeviceFile,
    request: &AllocUcontextReqV2,
) -> Result<GetContext, Errno> {
    const LENGTHS: [usize; 3] = [
        size_of::<AllocUcontextReqV2>(),
        core::mem::offset_of!(AllocUcontextReqV2, lib_caps),
        core::mem::offset_of!(AllocUcontextReqV2, max_cqe_version),
    ];
    let devx = UcontextFlags::DEVX.bits();
    let mut first_error = None;
    let mut flags = request.flags;
    loop {
        for length in LENGTHS {
            match get_context_once(file, &AllocUcontextReqV2 { flags, ..*request }, length) {
                Ok(context) => return Ok(context),
                // Errors that a smaller request would not avoid.
                Err(
                    errno @ (Errno::EIO
                    | Errno::ENODEV
                    | Errno::ENOTTY
                    | Errno::ENOMEM
                    | Errno::EMFILE
                    | Errno::ENFILE),
                ) => return Err(errno),
                Err(errno) => {
                    first_error.get_or_insert(errno);
                }
            }
        }
        if flags & devx == 0 {
            return Err(first_error.unwrap_or(Errno::EINVAL));
        }
        flags &= !devx;
    }
}

fn get_context_once(
    file: &dyn DeviceFile,
    request: &AllocUcontextReqV2,
    length: usize,
) -> Result<GetContext, Errno> {
    let mut num_comp_vectors = 0_u32;
    let mut core_support = 0_u64;
    let mut driver = AllocUcontextResp::new_zeroed();
    Call::new(method::GET_CONTEXT)
        .output(attr::get_context::NUM_COMP_VECTORS, &mut num_comp_vectors)
        .output(attr::get_context::CORE_SUPPORT, &mut core_support)
        .driver_input(&request.as_bytes()[..length])
        .driver_output(&mut driver)
        .make(file)?;
    Ok(GetContext {
        num_comp_vectors,
        core_support: CoreSupport::from_bits_retain(core_support),
        driver,
        devx: request.flags & UcontextFlags::DEVX.bits() != 0,
        lib_caps: length == size_of::<AllocUcontextReqV2>(),
    })
}

/// Queries the context that a file already has (QUERY_CONTEXT). The kernel does not report whether
/// the context has DEVX, so the answer's `devx` is false.
pub fn query(file: &dyn DeviceFile) -> Result<GetContext, Errno> {
    let mut num_comp_vectors = 0_u32;
    let mut core_support = 0_u64;
    let mut driver = AllocUcontextResp::new_zeroed();
    Call::new(method::QUERY_CONTEXT)
        .output(attr::query_context::NUM_COMP_VECTORS, &mut num_comp_vectors)
        .output(attr::query_context::CORE_SUPPORT, &mut core_support)
        .output(attr::mlx5_query_context::RESP_UCTX, &mut driver)
        .make(file)?;
    Ok(GetContext {
        num_comp_vectors,
        core_support: CoreSupport::from_bits_retain(core_support),
        driver,
        devx: false,
        lib_caps: driver.tot_bfregs == 0,
    })
}
