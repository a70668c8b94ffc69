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

/// What GET_CONTEXT answered.
#[derive(Clone, Copy, Debug)]
pub struct GetContext {
    /// Completion vectors.
    pub num_comp_vectors: u32,
    /// What the kernel's core supports.
    pub core_support: CoreSupport,
    /// What the driver answered; zero beyond its `response_length`.
    pub driver: AllocUcontextResp,
    /// Whether the context may use DEVX.
    pub devx: bool,
    /// Whether the kernel was told of `lib_caps`; without it there are no dynamic UARs.
    pub lib_caps: bool,
}

/// Finds out whether the kernel has the calls that the provider cannot do without.
///
/// First the ioctl and the commands carried by it: QUERY_DEVICE without room for its answer, upon
/// which a kernel that has them says `ENOSPC`. Then the youngest of the methods, QUERY_GID_ENTRY,
/// without its attributes: a kernel that knows it finds them missing, an older one does not know the
/// method. The version that a kernel names says nothing, for distributions backport.
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

/// GET_CONTEXT, in the longest form that the kernel takes.
///
/// An older kernel refuses a request longer than it knows, and one without DEVX, or a user without
/// the right to it, a request for DEVX: shorter forms are tried, first with DEVX, then without. If
/// none is taken, the answer to the first form is the error.
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
                // Nothing that a smaller request would change.
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
