//! Memory keys that requests configure (`mlx5dv_create_mkey`): a range of addresses from zero on
//! that covers pieces of registered memory, and whose blocks may be signed.
//!
//! A key is created empty, over DEVX. A request sets its layout, rights and signature
//! ([`Mkey::configure`]); later requests on the same queue see the new configuration. If a
//! signature in a transfer does not match, [`Mkey::check`] reports it; the completion of the
//! transfer does not.

mod configure;
mod errors;
mod signature;
mod state;

pub use configure::Configure;
pub use errors::{Side, SignatureError, SignatureErrorKind};
pub use mlx5_wqe::{Interleaved, MAX_MKEY_ENTRIES, MkeyAccess, MkeyLayout, MkeyRefusal};
pub use signature::{
    BlockSize, Crc, Domain, Escape, Guard, Seed, Signature, SignatureBlock, SignatureBytes, T10Dif,
};

use crate::context::{Context, Inner as ContextInner};
use crate::error::{DestroyError, Error};
use crate::memory::ProtectionDomain;
use crate::pools::Signed;
use configure::SignedParts;
use mlx5_prm::cmd::CommandInput;
use mlx5_prm::cmd::mkey::{CreateMkeyIn, CreateMkeyOut, CreatePsvIn, CreatePsvOut, MkeyAccessMode};
use mlx5_prm::signature::{Bsf, SignatureErrorCqe};
use mlx5_prm::wqe::UNIT;
use mlx5_uapi::mlx5::UcontextRespMask;
use mlx5_wqe::{KeptObserver, RemoteAddress, Sge};
use state::{Keeper, KeyState, Signing, State};
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

const VERB: &str = "create_mkey";
const DESTROY: &str = "destroy_mkey";

bitflags::bitflags! {
    /// The signatures that a device supports.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    pub struct SignatureCaps: u8 {
        /// Keys with signed blocks (`MLX5DV_SIG_PROT_CAP_T10DIF` and others).
        const BLOCKS = 1;
        /// CRC-32C.
        const CRC32C = 2;
        /// CRC-64/XP10.
        const CRC64_XP10 = 4;
        /// Blocks of 4048 bytes.
        const BLOCK_4048 = 8;
        /// A send queue that drains on a signature error.
        const PIPELINING = 16;
    }
}

impl Context {
    /// Returns the signatures that the device supports. Needs DEVX.
    pub fn signature_caps(&self) -> Result<SignatureCaps, Error> {
        signature_caps(&self.inner)
    }
}

pub(crate) fn signature_caps(context: &ContextInner) -> Result<SignatureCaps, Error> {
    const VERB: &str = "query_hca_cap (DEVX)";
    let caps = context.hca_cap(VERB)?;
    let mut signatures = SignatureCaps::empty();
    signatures.set(SignatureCaps::BLOCKS, caps.sho() && caps.sigerr_domain_and_sig_type());
    signatures.set(SignatureCaps::CRC32C, caps.sig_crc32c());
    signatures.set(SignatureCaps::CRC64_XP10, caps.sig_crc64_xp10());
    signatures.set(SignatureCaps::BLOCK_4048, caps.sig_block_4048());
    let kernel = context.kernel_can(UcontextRespMask::SQD2RTS);
    signatures.set(SignatureCaps::PIPELINING, caps.drain_sigerr() && kernel);
    Ok(signatures)
}

/// The options of a new key. See [`ProtectionDomain::create_mkey`].
#[derive(Clone, Debug)]
#[must_use = "a builder makes nothing until `build` is called"]
pub struct MkeyBuilder<'a> {
    pd: &'a ProtectionDomain,
    max_entries: u32,
    /// Number of entries for which it has room, if more than a request configures.
    room: u32,
    block_signature: bool,
    remote_invalidate: bool,
    update_tag: bool,
}

impl ProtectionDomain {
    /// Starts building a key for layouts of up to `max_entries` entries (`mlx5dv_create_mkey`). An
    /// interleaved layout needs one more than it has pieces. `max_entries` is rounded up to a
    /// multiple of four; `build` refuses 0, and more than [`MAX_MKEY_ENTRIES`]. Needs DEVX.
    pub fn create_mkey(&self, max_entries: u32) -> MkeyBuilder<'_> {
        MkeyBuilder {
            pd: self,
            max_entries,
            room: 0,
            block_signature: false,
            remote_invalidate: false,
            update_tag: false,
        }
    }
}

impl MkeyBuilder<'_> {
    /// Gives the key room for `entries` entries, if that is more: the device may refuse it, and no
    /// request configures more than [`MAX_MKEY_ENTRIES`] of them. Default: no more than requested.
    pub fn room(mut self, entries: u32) -> Self {
        self.room = entries;
        self
    }

    /// Allows signed blocks (`MLX5DV_MKEY_INIT_ATTR_FLAGS_BLOCK_SIGNATURE`). Default: not allowed.
    /// `build` refuses it on a device without [`SignatureCaps::BLOCKS`].
    pub fn block_signature(mut self) -> Self {
        self.block_signature = true;
        self
    }

    /// Allows a peer to invalidate the key (`MLX5DV_MKEY_INIT_ATTR_FLAGS_REMOTE_INVALIDATE`).
    /// Default: not allowed.
    pub fn remote_invalidate(mut self) -> Self {
        self.remote_invalidate = true;
        self
    }

    /// Allows requests to change the variant, the lowest byte of the key
    /// (`MLX5DV_MKEY_INIT_ATTR_FLAGS_UPDATE_TAG`). Default: not allowed. `build` refuses it on a
    /// kernel before Linux 6.1, except stable releases since October 2022.
    pub fn update_tag(mut self) -> Self {
        self.update_tag = true;
        self
    }

    /// Creates the key. It can be used once a request has configured it.
    pub fn build(self) -> Result<Mkey, Error> {
        let context = &self.pd.context;
        context.check(VERB)?;
        let wrong = |what: String| Err(Error::invalid(VERB, what));
        let most = MAX_MKEY_ENTRIES as u32;
        if self.max_entries == 0 || self.max_entries > most {
            let given = self.max_entries;
            return wrong(format!(
                "{given} entries requested; a request can configure 1 to {most}"
            ));
        }
        if !context.has_devx() {
            return Err(Error::no_devx(VERB));
        }
        if self.update_tag && !context.kernel_can(UcontextRespMask::MKEY_UPDATE_TAG) {
            let what = "the kernel does not allow requests to change a key's variant (low byte), as \
                        `update_tag` wants: Linux 6.1, or a stable release since October 2022, is \
                        required";
            return Err(Error::not_supported(VERB, what));
        }
        if self.block_signature && !signature_caps(context)?.contains(SignatureCaps::BLOCKS) {
            let what = "the device does not support signed memory keys: omit `block_signature`";
            return Err(Error::not_supported(VERB, what));
        }
        let psvs = if self.block_signature {
            let memory = Psv::new(self.pd)?;
            Some([memory, Psv::new(self.pd)?])
        } else {
            None
        };
        let in_fours = |entries: u32| entries.checked_next_multiple_of(4).unwrap_or(u32::MAX - 3);
        let max_entries = in_fours(self.max_entries);
        let mut request = CreateMkeyIn::request();
        request
            .mkc_mut()
            .set_access_mode(MkeyAccessMode::KLMS)
            .set_free(true)
            .set_umr_en(true)
            .set_pd(self.pd.pdn())
            .set_translations_octword_size(max_entries.max(in_fours(self.room)))
            .set_lr(true)
            .set_qpn(0xff_ffff)
            .set_en_rinval(self.remote_invalidate);
        if psvs.is_some() {
            request
                .mkc_mut()
                .set_bsf_en(true)
                .set_bsf_octword_size((size_of::<Bsf>() / UNIT) as u32);
        }
        let mut answer = CreateMkeyOut::default();
        // SAFETY: the key is empty. It covers no memory before a request configures it, with keys
        // of the same domain.
        let handle =
            unsafe { context.devx_create(VERB, request.as_bytes(), answer.as_bytes_mut()) }?;
        let index = answer.mkey_index();
        let shape = KeyState { length: None, signing: Signing::Off, variant: 0, error_count: None };
        let signed = psvs.as_ref().map(|[memory, wire]| SignedParts {
            psvs: [memory.index, wire.index],
            errors: errors::Errors::default(),
        });
        let inner = Arc::new(Inner {
            index,
            max_entries,
            update_tag: self.update_tag,
            signed,
            state: State::new(shape),
        });
        inner.state.keep(Arc::clone(&inner) as Keeper);
        if psvs.is_some() {
            context.signed_keys.add(index, Arc::clone(&inner) as Arc<dyn Signed>);
        }
        Ok(Mkey { inner, object: Some(handle), psvs, pd: self.pd.clone() })
    }
}

/// A protection signature variable (PSV): the device's state of one signed domain.
struct Psv {
    pd: ProtectionDomain,
    object: Option<u32>,
    index: u32,
}

impl Psv {
    fn new(pd: &ProtectionDomain) -> Result<Self, Error> {
        let mut request = CreatePsvIn::request();
        request.set_num_psv(1).set_pd(pd.pdn());
        let mut answer = CreatePsvOut::default();
        // SAFETY: the command names no memory.
        let object = unsafe {
            pd.context.devx_create("create_psv", request.as_bytes(), answer.as_bytes_mut())
        }?;
        Ok(Self { pd: pd.clone(), object: Some(object), index: answer.psv0_index() })
    }

    fn destroy(&mut self) -> Result<(), Error> {
        if let Some(object) = self.object {
            self.pd.context.devx_destroy("destroy_psv", object)?;
            self.object = None;
        }
        Ok(())
    }
}

impl Drop for Psv {
    fn drop(&mut self) {
        // It has no memory that must be kept; the kernel destroys it when the file is closed.
        let _ = self.destroy();
    }
}

/// The part of a key that queues and pollers use.
struct Inner {
    index: u32,
    max_entries: u32,
    update_tag: bool,
    signed: Option<SignedParts>,
    state: State,
}

/// It lives until its last change has ended: its state holds a reference to it. The calls drop that
/// reference when it is no longer needed.
impl KeptObserver for Inner {
    unsafe fn undo(this: NonNull<Self>, change: u64) {
        // SAFETY: the caller promises that the change is pending, so the key's data is still in
        // memory.
        let kept = unsafe { this.as_ref() }.state.undo(change);
        drop(kept);
    }

    unsafe fn settle(this: NonNull<Self>, changes: &[u64]) {
        // SAFETY: the caller promises that the changes are pending, so the key's data is still in
        // memory.
        let kept = unsafe { this.as_ref() }.state.settle(changes);
        drop(kept);
    }

    unsafe fn mark_unknown(this: NonNull<Self>, change: u64) {
        // SAFETY: the caller promises that the change is pending, so the key's data is still in
        // memory.
        let kept = unsafe { this.as_ref() }.state.mark_unknown(change);
        drop(kept);
    }
}

impl Inner {
    /// Returns the key in this state, variant included.
    fn key(&self, state: &KeyState) -> u32 {
        self.index << 8 | u32::from(state.variant)
    }
}

impl Signed for Inner {
    fn signature_error(&self, entry: &SignatureErrorCqe) {
        if let Some(signed) = &self.signed {
            let block = self.state.shape().signature();
            self.state.error_reported(|| signed.errors.add(entry, block.as_ref()));
        }
    }
}

/// A memory key that requests configure.
///
/// Dropping it destroys it. It does not keep the regions that it covers: once a region is
/// deregistered, access through the key fails with an error completion.
pub struct Mkey {
    inner: Arc<Inner>,
    /// The kernel's handle, unless it was destroyed.
    object: Option<u32>,
    psvs: Option<[Psv; 2]>,
    pd: ProtectionDomain,
}

impl Mkey {
    /// Returns the key for requests of this process, as it will be after all posted requests.
    pub fn lkey(&self) -> u32 {
        self.inner.key(&self.inner.state.shape())
    }

    /// Returns the key for peers, which is the same.
    pub fn rkey(&self) -> u32 {
        self.lkey()
    }

    /// Returns the maximum number of entries of a layout.
    pub fn max_entries(&self) -> u32 {
        self.inner.max_entries
    }

    /// Returns the length after all posted requests. `None` if no layout is set, or the length is
    /// unknown because a queue was reset.
    pub fn length(&self) -> Option<u64> {
        self.inner.state.shape().length
    }

    /// Returns how the blocks are signed after all posted requests.
    pub fn signature(&self) -> Option<SignatureBlock> {
        self.inner.state.shape().signature()
    }

    /// Returns an SGE of `length` bytes from byte `offset` of the key on. The device checks the
    /// bounds.
    pub fn sge(&self, offset: u64, length: u32) -> Sge {
        Sge { addr: offset, length, lkey: self.lkey() }
    }

    /// Returns the remote address of byte `offset`, for a peer.
    pub fn remote(&self, offset: u64) -> RemoteAddress {
        RemoteAddress { addr: offset, rkey: self.rkey() }
    }

    /// Returns the first signature error that was not returned yet (`mlx5dv_mkey_check`). Call it
    /// once for each transfer, when the transfer's completion queue was polled empty, because
    /// pollers report the errors. After an error, configure the key again before its next transfer.
    ///
    /// A reported error is kept until this returns it, whatever is polled, checked or destroyed
    /// meanwhile. But after an error of a key the device reports no other one until a request that
    /// is built after the error was polled re-arms the key. A transfer that was posted after a
    /// second configuration of the key, but before the error was polled, can be bad without a
    /// report. For each such configuration this returns [`SignatureErrorKind::Unchecked`], after
    /// the reported errors, so that `None` always means that the data was good. The device does not
    /// report which of the transfers a reported error belongs to: treat all of them as failed.
    ///
    /// If more than 256 errors are waiting, the later ones are [`SignatureErrorKind::Lost`]: bad,
    /// without details.
    ///
    /// Unchecked transfers that were executed are forgotten when the key is configured again: call
    /// this before.
    pub fn check(&self) -> Result<Option<SignatureError>, Error> {
        match &self.inner.signed {
            Some(signed) => Ok(signed.errors.take().or_else(|| {
                self.inner.state.take_unchecked().then_some(SignatureError::UNCHECKED)
            })),
            None => {
                let what = "the key was created without `block_signature`";
                Err(Error::invalid("mkey_check", what.into()))
            }
        }
    }

    /// Returns how many errors [`Mkey::check`] will return, including unchecked transfers.
    pub fn errors(&self) -> u64 {
        let reported = self.inner.signed.as_ref().map_or(0, |signed| signed.errors.waiting());
        reported + self.inner.state.unchecked() as u64
    }

    /// Returns the protection domain.
    pub fn pd(&self) -> &ProtectionDomain {
        &self.pd
    }

    fn close(&mut self) -> Result<(), Error> {
        let context = &self.pd.context;
        if let Some(object) = self.object {
            context.devx_destroy(DESTROY, object)?;
            self.object = None;
            if self.psvs.is_some() {
                // Not before: until now the device could report errors of the key.
                context.signed_keys.remove(self.inner.index);
            }
        }
        for psv in self.psvs.iter_mut().flatten() {
            psv.destroy()?;
        }
        Ok(())
    }

    /// Destroys the key (`mlx5dv_destroy_mkey`). Fails, and gives it back, when the kernel refuses.
    pub fn destroy(mut self) -> Result<(), DestroyError<Self>> {
        self.close().map_err(|error| DestroyError::new(self, error))
    }
}

impl Drop for Mkey {
    fn drop(&mut self) {
        // It has no memory that must be kept; the kernel destroys it when the file is closed.
        let _ = self.close();
        // Not in a forked child: a thread that only the parent has may have locked the state
        // forever.
        if !self.pd.context.forked() {
            drop(self.inner.state.close());
        }
    }
}

impl fmt::Debug for Mkey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut key = f.debug_struct("Mkey");
        match self.inner.state.try_shape() {
            Some(shape) => key
                .field("lkey", &format_args!("{:#x}", self.inner.key(&shape)))
                .field("max_entries", &self.max_entries())
                .field("length", &shape.length)
                .field("signature", &shape.signature()),
            None => key
                .field("lkey", &format_args!("<locked>"))
                .field("max_entries", &self.max_entries()),
        };
        key.finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mlx5_wqe::Change;

    /// A key that is destroyed while requests that configure it are outstanding: its data stays
    /// until the last of their changes has ended, and no longer.
    #[test]
    fn the_data_of_a_key_outlives_its_changes_and_nothing_else() {
        type End = unsafe fn(NonNull<Inner>, u64);
        let ends: [End; 4] = [
            |this, change| {
                // SAFETY: the caller below passes a pending change.
                unsafe { Inner::settle(this, &[change]) }
            },
            Inner::undo,
            Inner::mark_unknown,
            |this, change| {
                // SAFETY: the caller below passes a pending change, whose number is used only here.
                drop(unsafe { Change::of_kept(this, change) });
            },
        ];
        for end in ends {
            let shape =
                KeyState { length: None, signing: Signing::Off, variant: 0, error_count: None };
            let state = State::new(shape);
            let inner = Arc::new(Inner {
                index: 7,
                max_entries: 4,
                update_tag: false,
                signed: None,
                state,
            });
            inner.state.keep(Arc::clone(&inner) as Keeper);
            let weak = Arc::downgrade(&inner);
            let changes = [1, 2].map(|length| inner.state.change_length(length, None).unwrap());
            let this = NonNull::from(&*inner);
            // `Mkey` does the same when it is dropped.
            drop(inner.state.close());
            drop(inner);
            for (change, left) in changes.into_iter().zip([1, 0]) {
                // SAFETY: the change has not ended.
                unsafe { end(this, change) };
                assert_eq!(weak.strong_count(), left);
            }
        }
    }
}
