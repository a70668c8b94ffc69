//! Requests that configure a key.

use super::errors::Errors;
use super::state::{Delta, Shape, Signing};
use super::{Inner, Mkey, SignatureBlock};
use mlx5_wqe::{
    BsfUpdate, Change, Changed, Interleaved, MkeyAccess, MkeyLayout, MkeyRefusal, MkeyUpdate,
    PostError, PsvUpdate, Sge,
};
use std::sync::Arc;

/// What becomes of the signature.
#[derive(Clone, Copy, Default)]
enum SignatureChange {
    #[default]
    Keep,
    Reset,
    Set(SignatureBlock),
}

/// What a request is to make of a key (`mlx5dv_wr_mkey_configure` and its setters). Given to
/// [`Wr::mkey_configure`](crate::Wr::mkey_configure). What is not set stays as it is.
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
    inner: &'a Arc<Inner>,
    access: Option<MkeyAccess>,
    layout: Option<MkeyLayout<'a>>,
    signature: SignatureChange,
    variant: Option<u8>,
}

impl Mkey {
    /// Starts to say what a request is to make of the key.
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
    /// Who may do what; in place of all rights that it had (`mlx5dv_wr_set_mkey_access_flags`).
    pub fn access(mut self, access: MkeyAccess) -> Self {
        self.access = Some(access);
        self
    }

    /// The key leads to these pieces, one after the other (`mlx5dv_wr_set_mkey_layout_list`).
    pub fn layout_list<'b>(self, pieces: &'b [Sge]) -> Configure<'b>
    where
        'a: 'b,
    {
        Configure { layout: Some(MkeyLayout::List(pieces)), ..self }
    }

    /// The key leads to a piece from each of `entries` in turn, `repeat` times
    /// (`mlx5dv_wr_set_mkey_layout_interleaved`).
    pub fn layout_interleaved<'b>(self, repeat: u32, entries: &'b [Interleaved]) -> Configure<'b>
    where
        'a: 'b,
    {
        Configure { layout: Some(MkeyLayout::Interleaved { repeat, entries }), ..self }
    }

    /// The key is signed like this (`mlx5dv_wr_set_mkey_sig_block`).
    pub fn signature(mut self, block: &SignatureBlock) -> Self {
        self.signature = SignatureChange::Set(*block);
        self
    }

    /// The key is not signed (`MLX5DV_MKEY_CONF_FLAG_RESET_SIG_ATTR`).
    pub fn reset_signature(mut self) -> Self {
        self.signature = SignatureChange::Reset;
        self
    }

    /// The lowest byte of the key changes to this, so that who knows the old one can no longer use
    /// it. For keys made with [`update_tag`](super::MkeyBuilder::update_tag).
    pub fn tag(mut self, tag: u8) -> Self {
        self.variant = Some(tag);
        self
    }

    fn plan(&self, shape: &Shape, length: Option<u64>) -> Result<(Delta, Plan), MkeyRefusal> {
        let mut delta = Delta { length, variant: self.variant, ..Delta::default() };
        let mut plan = Plan::of_layout(self.variant.unwrap_or(shape.variant));
        if self.variant.is_some_and(|variant| variant != shape.variant) && !self.inner.update_tag {
            return Err(MkeyRefusal::Variant);
        }
        let Some(signed) = &self.inner.signed else {
            return match self.signature {
                SignatureChange::Set(_) => Err(MkeyRefusal::NotForSignatures),
                _ => Ok((delta, plan)),
            };
        };
        let count = signed.errors.count();
        let errors = shape.told != Some(count);
        if errors {
            plan.error_count = Some(count);
            delta.told = Some(count);
        }
        match (self.signature, shape.signing) {
            (SignatureChange::Set(block), _) => {
                if length.or(shape.length).is_some_and(|length| length > u32::MAX.into()) {
                    return Err(MkeyRefusal::TooLong);
                }
                plan.bsf = BsfUpdate::Set(block.encode(signed.psvs)?);
                plan.psvs = arm(&block, signed.psvs);
                delta.signing = Some(Signing::On(block));
            }
            (SignatureChange::Reset, _) | (_, Signing::Off) => {
                plan.bsf = BsfUpdate::Disable;
                delta.signing = Some(Signing::Off);
            }
            (_, Signing::Unknown) => return Err(MkeyRefusal::Unknown),
            (_, Signing::On(block)) => {
                if length.is_some_and(|length| length > u32::MAX.into()) {
                    return Err(MkeyRefusal::TooLong);
                }
                // A variable that met an error stays in it until it is set again.
                if errors {
                    plan.psvs = arm(&block, signed.psvs);
                }
            }
        }
        Ok((delta, plan))
    }

    fn update(self) -> Result<MkeyUpdate<'a>, PostError> {
        let length = self.layout.map(|layout| layout.length()).transpose()?;
        let inner = self.inner;
        let (number, plan) =
            inner.state.change(|shape| self.plan(shape, length)).map_err(PostError::Mkey)?;
        let state: Arc<dyn Changed> = Arc::clone(inner) as Arc<dyn Changed>;
        let Plan { bsf, psvs, error_count, variant } = plan;
        Ok(MkeyUpdate {
            key: inner.index << 8 | u32::from(variant),
            capacity: inner.max_entries,
            access: self.access,
            layout: self.layout,
            bsf,
            error_count,
            psvs,
            change: Some(Change::new(state, number)),
        })
    }
}

/// What a request does besides layout and rights.
struct Plan {
    bsf: BsfUpdate,
    psvs: [Option<PsvUpdate>; 2],
    error_count: Option<u32>,
    variant: u8,
}

impl Plan {
    /// Nothing besides.
    fn of_layout(variant: u8) -> Self {
        Self { bsf: BsfUpdate::Keep, psvs: [None; 2], error_count: None, variant }
    }
}

/// Sets the variables of the domains that are signed.
fn arm(block: &SignatureBlock, psvs: [u32; 2]) -> [Option<PsvUpdate>; 2] {
    let [memory, wire] = psvs;
    [(block.memory, memory), (block.wire, wire)].map(|(domain, index)| {
        let transient_signature = domain?.signature.transient();
        Some(PsvUpdate { index, transient_signature })
    })
}

impl<'a> From<Configure<'a>> for Result<MkeyUpdate<'a>, PostError> {
    fn from(configure: Configure<'a>) -> Self {
        configure.update()
    }
}

/// What a key that is made for signatures has besides.
pub(super) struct SignedParts {
    /// Variables of memory and wire.
    pub(super) psvs: [u32; 2],
    pub(super) errors: Errors,
}
