//! Signature pipelining: the device drains the send queue on a signature error, so that the
//! requests after the transfer can be cancelled (`MLX5DV_QP_CREATE_SIG_PIPELINING`).

use super::QueuePairBuilder;
use crate::context::Inner;
use crate::error::Error;
use crate::qp::ControlHalf;
use mlx5_prm::cmd::CommandInput;
use mlx5_prm::cmd::qp::{Init2InitQpIn, Init2InitQpOut};
use mlx5_uapi::mlx5::UcontextRespMask;
use mlx5_wqe::transport::Rc;
use mlx5_wqe::{MAX_MKEY_ENTRIES, mkey_update_blocks};

/// Bit of INIT2INIT_QP's `opt_param_mask` that marks `drain_sigerr` as changed (PRM,
/// "INIT2INIT_QP").
const DRAIN_SIGERR: u32 = 1 << 11;

impl QueuePairBuilder<'_, Rc> {
    /// Drains the send queue when a transfer in it has a signature error. Default: off. Requests
    /// that the device has not begun, from the next fenced one on, stay in the queue, and
    /// [`AsyncEvent::SqDrained`](crate::AsyncEvent::SqDrained) reports it. They can be cancelled,
    /// and [`QueuePair::resume`](crate::QueuePair::resume) resumes the queue.
    ///
    /// ```no_run
    /// # use mlx5::{AsyncEvent, CompletionQueue, Context, QueuePair, mkey::Mkey, transport::Rc};
    /// # fn f(context: &Context, qp: &mut QueuePair<Rc>, cq: &mut CompletionQueue,
    /// #     open: &[(Mkey, u64)]) -> Result<(), Box<dyn std::error::Error>> {
    /// if let Some(AsyncEvent::SqDrained(_)) = context.async_events().wait(None)? {
    ///     // Everything that completed, and with it every error.
    ///     while cq.poll(64, |completion| println!("{completion:?}"))? != 0 {}
    ///     let drained = qp.drained()?;
    ///     for (key, response) in open {
    ///         if let Some(error) = key.check()? {
    ///             let cancelled = qp.cancel(&drained, *response)?;
    ///             println!("{error}: {} responses will not go out", cancelled.count());
    ///         }
    ///     }
    ///     qp.resume()?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Needs DEVX, Linux 5.13, and a ConnectX-6 Dx or later
    /// ([`SignatureCaps::PIPELINING`](crate::mkey::SignatureCaps::PIPELINING)). Otherwise `build`
    /// returns [`NoDevx`](crate::ErrorKind::NoDevx) or
    /// [`NotSupported`](crate::ErrorKind::NotSupported), with a text that names what is missing.
    pub fn signature_pipelining(mut self) -> Self {
        self.pipelining = true;
        self
    }

    /// Sizes the queue so that each send request may configure a memory key with `entries`
    /// translation entries and, if `signed`, a signature. Default: not sized for it; such requests
    /// can still be posted, and take the room of several. `entries` is capped at
    /// [`MAX_MKEY_ENTRIES`]. The queue's limits apply as for [`max_send_wr`](Self::max_send_wr).
    pub fn mkey_configure(mut self, entries: u32, signed: bool) -> Self {
        let entries = (entries as usize).min(MAX_MKEY_ENTRIES);
        self.mkey_blocks = mkey_update_blocks(entries, signed);
        self
    }
}

/// Refuses signature pipelining if the device or the kernel lacks it.
pub(super) fn check(context: &Inner) -> Result<(), Error> {
    const VERB: &str = "create_qp (signature pipelining)";
    let drains = context.hca_cap(VERB)?.drain_sigerr();
    if !drains {
        let what = "the device cannot drain a send queue on a signature error, as \
                    `signature_pipelining` wants: ConnectX-6 Dx or later is required";
        return Err(Error::not_supported(VERB, what));
    }
    if !context.kernel_can(UcontextRespMask::SQD2RTS) {
        let what = "the kernel cannot resume a drained send queue: Linux 5.13 is required";
        return Err(Error::not_supported(VERB, what));
    }
    Ok(())
}

impl ControlHalf {
    /// Makes the device drain the send queue on signature errors. The queue pair must be in INIT.
    pub(in crate::qp) fn drain_on_signature_error(&self) -> Result<(), Error> {
        let inner = &self.inner;
        let mut request = Init2InitQpIn::request();
        request.set_qpn(inner.qp_num).set_opt_param_mask(DRAIN_SIGERR);
        request.qpc_mut().set_drain_sigerr(true);
        let mut answer = Init2InitQpOut::default();
        let handle = inner.live_handle("modify_qp")?;
        // SAFETY: the command names no memory, and its queue pair is the one of the handle.
        unsafe {
            inner.context.devx_modify(
                "modify_qp (drain on signature error)",
                handle,
                request.as_bytes(),
                answer.as_bytes_mut(),
            )
        }
    }
}
