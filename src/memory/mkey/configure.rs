//! Requests that configure a key.

use super::errors::Errors;
use super::state::{Before, KeyState, Signing, Update, variant_of};
use super::{Inner, Mkey, SignatureBlock};
use mlx5_wqe::{
    BsfUpdate, Change, ConfigureMkey, ConfiguresMkeys, Finished, Interleaved, MkeyAccess,
    MkeyLayout, MkeyRefusal, MkeyRequest, MkeyUpdate, PostError, PsvUpdate, Sge, SigningUpdate,
};
use std::fmt;
use std::ptr::NonNull;

/// The change of the signature.
#[derive(Clone, Copy, Default, Debug)]
enum SignatureChange {
    #[default]
    Keep,
    Reset,
    Set(SignatureBlock),
}

/// A configuration of a key (`mlx5dv_wr_mkey_configure` and its setters), for
/// [`Wr::mkey_configure`](crate::Wr::mkey_configure). Properties that are not set do not change. A
/// request with a value that the key does not support is refused with the error that the option
/// names.
///
/// ```no_run
/// # fn f(
/// #     qp: &mut mlx5::QueuePair<mlx5::transport::Rc>,
/// #     mkey: &mlx5::mkey::Mkey,
/// #     region: &mlx5::MemoryRegion,
/// # ) -> Result<(), Box<dyn std::error::Error>> {
/// use mlx5::SendFlags;
/// use mlx5::mkey::MkeyAccess;
///
/// let pieces = [region.sge(0..512)?, region.sge(4096..4608)?];
/// let mut batch = qp.wr_start();
/// let key = mkey.configure().access(MkeyAccess::REMOTE_READ).layout_list(&pieces);
/// batch.wr(1, SendFlags::empty()).mkey_configure(key);
/// // The request behind it finds the key configured: 1024 bytes, counted from zero.
/// batch.wr(2, SendFlags::SIGNALED).send().sge(mkey.sge(0, 1024));
/// batch.complete()?;
/// # Ok(())
/// # }
/// ```
#[must_use = "a key is configured by the request that this is given to"]
#[derive(Clone, Copy)]
pub struct Configure<'a> {
    inner: &'a Inner,
    access: Option<MkeyAccess>,
    layout: Option<MkeyLayout<'a>>,
    signature: SignatureChange,
    variant: Option<u8>,
}

impl fmt::Debug for Configure<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Configure")
            .field("access", &self.access)
            .field("layout", &self.layout)
            .field("signature", &self.signature)
            .field("variant", &self.variant)
            .finish_non_exhaustive()
    }
}

impl Mkey {
    /// Starts a configuration of the key.
    #[inline]
    pub fn configure(&self) -> Configure<'_> {
        Configure {
            inner: &self.inner,
            access: None,
            layout: None,
            signature: SignatureChange::Keep,
            variant: None,
        }
    }
}

impl<'a> Configure<'a> {
    /// Replaces all access rights of the key (`mlx5dv_wr_set_mkey_access_flags`). Default: they do
    /// not change; a new key can be read locally.
    #[inline]
    pub fn access(mut self, access: MkeyAccess) -> Self {
        self.access = Some(access);
        self
    }

    /// Makes the key cover these pieces, one after the other (`mlx5dv_wr_set_mkey_layout_list`).
    /// Default: the layout does not change. At most [`Mkey::max_entries`](super::Mkey::max_entries)
    /// pieces ([`PostError::TooManyMkeyEntries`]).
    #[inline]
    pub fn layout_list<'b>(self, pieces: &'b [Sge]) -> Configure<'b>
    where
        'a: 'b,
    {
        Configure { layout: Some(MkeyLayout::List(pieces)), ..self }
    }

    /// Makes the key cover a piece of each of `entries` in turn, `repeat` times
    /// (`mlx5dv_wr_set_mkey_layout_interleaved`). Default: the layout does not change. At most one
    /// entry fewer than [`Mkey::max_entries`](super::Mkey::max_entries)
    /// ([`PostError::TooManyMkeyEntries`]), each of at most 65,535 bytes with its gap
    /// ([`PostError::StrideTooLong`]).
    #[inline]
    pub fn layout_interleaved<'b>(self, repeat: u32, entries: &'b [Interleaved]) -> Configure<'b>
    where
        'a: 'b,
    {
        Configure { layout: Some(MkeyLayout::Interleaved { repeat, entries }), ..self }
    }

    /// Signs the key (`mlx5dv_wr_set_mkey_sig_block`). Default: the signature does not change. Only
    /// for keys created with [`block_signature`](super::MkeyBuilder::block_signature)
    /// ([`MkeyRefusal::NotForSignatures`]), shorter than 4 GiB ([`MkeyRefusal::TooLong`]).
    #[inline]
    pub fn signature(mut self, block: &SignatureBlock) -> Self {
        self.signature = SignatureChange::Set(*block);
        self
    }

    /// Removes the signature, if the key has one (`MLX5DV_MKEY_CONF_FLAG_RESET_SIG_ATTR`). Default:
    /// it does not change.
    #[inline]
    pub fn reset_signature(mut self) -> Self {
        self.signature = SignatureChange::Reset;
        self
    }

    /// Sets the variant, the lowest byte of the key, so that the old key can no longer be used.
    /// Only for keys created with [`update_tag`](super::MkeyBuilder::update_tag)
    /// ([`MkeyRefusal::Variant`]). Default: the variant does not change; a new key has 0.
    #[inline]
    pub fn tag(mut self, tag: u8) -> Self {
        self.variant = Some(tag);
        self
    }

    /// Plans the change of a key that was created for signatures. The request must not rely on an
    /// earlier request that can still be cancelled.
    fn plan(
        &self,
        signed: &SignedParts,
        before: &Before<'_>,
        length: Option<u64>,
    ) -> Result<(Update, SigningUpdate), MkeyRefusal> {
        let shape = before.shape();
        let mut delta = Update { length, variant: self.variant, ..Update::default() };
        let mut update = SigningUpdate { bsf: BsfUpdate::Keep, error_count: None, psvs: [None; 2] };
        let count = signed.errors.count();
        let certain = before.is_certain();
        let tell = !certain || shape.error_count != Some(count);
        if tell {
            update.error_count = Some(count);
            delta.error_count = Some(count);
        }
        let block = match (self.signature, shape.signing) {
            (SignatureChange::Set(block), _) => block,
            (SignatureChange::Reset, _) | (_, Signing::Off) => {
                update.bsf = BsfUpdate::Disable;
                delta.signing = Some(Signing::Off);
                return Ok((delta, update));
            }
            (_, Signing::Unknown) => return Err(MkeyRefusal::Unknown),
            (_, Signing::On(block)) => block,
        };
        let set = matches!(self.signature, SignatureChange::Set(_)) || !certain;
        let max_length = if set { length.or_else(|| before.max_length()) } else { length };
        if max_length.is_some_and(|length| length > u32::MAX.into()) {
            return Err(MkeyRefusal::TooLong);
        }
        if set {
            update.bsf = BsfUpdate::Set(block.encode(signed.psvs)?);
            delta.signing = Some(Signing::On(block));
        }
        // A PSV that met an error stays in error until it is set again.
        if set || tell {
            update.psvs = arm(&block, signed.psvs);
        }
        Ok((delta, update))
    }

    /// Whether the variant is to be changed of a key whose variant requests cannot change.
    fn refuses_variant(&self, shape: &KeyState) -> bool {
        !self.inner.update_tag && self.variant.is_some_and(|variant| variant != shape.variant)
    }

    /// Notes the change in the key state. Returns its number, and the change of the signature.
    fn plan_change(
        &self,
        length: Option<u64>,
    ) -> Result<(u64, Option<SigningUpdate>), MkeyRefusal> {
        self.inner.state.change(|before| {
            if self.refuses_variant(before.shape()) {
                return Err(MkeyRefusal::Variant);
            }
            let (delta, signing) = match (&self.inner.signed, self.signature) {
                (Some(signed), _) => {
                    let (delta, signing) = self.plan(signed, &before, length)?;
                    (delta, Some(signing))
                }
                (None, SignatureChange::Set(_)) => return Err(MkeyRefusal::NotForSignatures),
                (None, _) => (Update { length, variant: self.variant, ..Update::default() }, None),
            };
            Ok((delta, signing))
        })
    }
}

impl ConfigureMkey for Configure<'_> {
    fn configure<'q, T: ConfiguresMkeys>(self, request: MkeyRequest<'q, T>) -> Finished<'q> {
        let layout = match self.layout.map(MkeyLayout::sized).transpose() {
            Ok(layout) => layout,
            Err(error) => return request.refuse(error),
        };
        let length = layout.map(|sized| sized.length());
        // The usual change: another length of a key without signatures.
        let usual = match (length, self.signature, &self.inner.signed) {
            (Some(length), SignatureChange::Keep, None) => {
                self.inner.state.change_length(length, self.variant)
            }
            _ => None,
        };
        let mut signing = None;
        let number = match usual {
            Some(number) => number,
            None => match self.plan_change(length) {
                Ok((number, update)) => {
                    signing = update;
                    number
                }
                Err(refusal) => return request.refuse(PostError::Mkey(refusal)),
            },
        };
        let (capacity, access) = (self.inner.max_entries, self.access);
        let update = MkeyUpdate { capacity, access, layout, signing: signing.as_ref() };
        // SAFETY: the change is pending, and its number is given away here alone. A key's state
        // keeps the key's data while a change is pending.
        let change = unsafe { Change::of_kept(NonNull::from(self.inner), number) };
        let key = self.inner.index << 8 | u32::from(variant_of(number));
        request.build(update, move || (key, change))
    }
}

/// Returns the PSVs to set: those of the domains that are signed.
fn arm(block: &SignatureBlock, psvs: [u32; 2]) -> [Option<PsvUpdate>; 2] {
    let [memory, wire] = psvs;
    [(block.memory, memory), (block.wire, wire)].map(|(domain, index)| {
        let transient_signature = domain?.signature.transient();
        Some(PsvUpdate { index, transient_signature })
    })
}

/// The parts of a key that was created for signatures.
pub(super) struct SignedParts {
    /// PSVs of memory and wire domain.
    pub(super) psvs: [u32; 2],
    pub(super) errors: Errors,
}
