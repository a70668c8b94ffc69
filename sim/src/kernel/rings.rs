//! The sizes of rings and the user indexes, common to queue pairs and work queues.

use mlx5_uapi::Errno;
use mlx5_uapi::mlx5;
use mlx5_uapi::verbs::QpCap;

use crate::kernel::hca::Hca;

/// The user index of a queue whose completions have its number.
pub(crate) const NO_USER_INDEX: u32 = 0xff_ffff;
/// Bits of a user index.
const USER_INDEX_MASK: u32 = 0xff_ffff;
/// Logarithm of a send block, of the smallest receive stride, and bytes of a scatter entry.
const LOG_BLOCK: u32 = 6;
pub(crate) const LOG_SMALLEST_STRIDE: u32 = 4;
const SGE: u32 = 16;
/// The largest receive stride that a context can name, as a logarithm.
const LOG_LARGEST_STRIDE: u32 = LOG_SMALLEST_STRIDE + 7;

/// The user index for completions, as required by the version of the CQEs.
pub(crate) fn user_index(cqe_version: u8, wanted: u32) -> Result<u32, Errno> {
    if cqe_version == 0 {
        return if wanted == NO_USER_INDEX { Ok(NO_USER_INDEX) } else { Err(Errno::EINVAL) };
    }
    if wanted == NO_USER_INDEX || wanted & !USER_INDEX_MASK != 0 {
        return Err(Errno::EINVAL);
    }
    Ok(wanted)
}

/// The rings that the driver asks for: blocks, receive WQEs, and the logarithm of their stride.
pub(crate) struct Rings {
    pub(crate) send_blocks: u32,
    pub(crate) receive_wqes: u32,
    pub(crate) log_stride: u32,
}

impl Rings {
    pub(crate) fn new(
        hca: &Hca,
        driver: &mlx5::CreateQp,
        cap: &QpCap,
        has_rq: bool,
    ) -> Result<Self, Errno> {
        let most = 1 << hca.caps.log_max_qp_sz();
        let (send_blocks, receive_wqes) = (driver.sq_wqe_count, driver.rq_wqe_count);
        if cap.max_recv_wr > most || send_blocks > most {
            return Err(Errno::EINVAL);
        }
        if send_blocks != 0 && !send_blocks.is_power_of_two() {
            return Err(Errno::EINVAL);
        }
        if !has_rq {
            return Ok(Self { send_blocks, receive_wqes: 0, log_stride: 0 });
        }
        let log_stride = driver.rq_wqe_shift;
        if !(LOG_SMALLEST_STRIDE..=LOG_LARGEST_STRIDE).contains(&log_stride)
            || !receive_wqes.is_power_of_two()
            || receive_wqes > most
        {
            return Err(Errno::EINVAL);
        }
        Ok(Self { send_blocks, receive_wqes, log_stride })
    }

    pub(crate) fn bytes(&self) -> u64 {
        (u64::from(self.receive_wqes) << self.log_stride)
            + (u64::from(self.send_blocks) << LOG_BLOCK)
    }

    pub(crate) fn receive_sges(&self) -> u32 {
        if self.receive_wqes == 0 { 0 } else { (1 << self.log_stride) / SGE }
    }
}
