//! The bytes of UMR and SET_PSV requests.

use crate::keys::update::{
    BsfUpdate, ENTRIES_ALIGN, Interleaved, MkeyLayout, MkeyUpdate, SizedLayout,
};
use crate::send::batch::blocks_of;
use core::mem::size_of;
use core::ptr::NonNull;
use mlx5_prm::signature::{Bsf, SetPsvSegment};
use mlx5_prm::umr::{
    Klm, MkeyContextSegment, RepeatBlock, RepeatEntry, UmrControlSegment, mkey_mask, umr_flags,
};
use mlx5_prm::wqe::{ControlSegment, MAX_UNITS, UNIT};
use mlx5_prm::zerocopy::{IntoBytes, Unaligned};
use mlx5_prm::{U16, U32, U64};

/// 16-byte units of a UMR before its translation entries.
pub(super) const HEAD_UNITS: usize = (size_of::<ControlSegment>()
    + size_of::<UmrControlSegment>()
    + size_of::<MkeyContextSegment>())
    / UNIT;
pub(super) const BSF_UNITS: usize = size_of::<Bsf>() / UNIT;
pub(super) const PSV_UNITS: usize = 1 + size_of::<SetPsvSegment>() / UNIT;
// A SET_PSV never wraps around the end of the ring.
const _: () = assert!(blocks_of(PSV_UNITS) == 1);
/// The maximum number of translation entries of a request that also sets a signature.
pub const MAX_MKEY_ENTRIES: usize =
    (MAX_UNITS - HEAD_UNITS - BSF_UNITS) / ENTRIES_ALIGN * ENTRIES_ALIGN;

/// Returns the blocks of a request that gives a key `entries` translation entries and, if `signed`,
/// a signature.
pub const fn mkey_update_blocks(entries: usize, signed: bool) -> u32 {
    let entries = entries.next_multiple_of(ENTRIES_ALIGN);
    let umr = HEAD_UNITS + entries + if signed { BSF_UNITS } else { 0 };
    blocks_of(umr) + if signed { 2 * blocks_of(PSV_UNITS) } else { 0 }
}

/// Writes the parts of a WQE one after the other.
pub(super) struct Writer {
    pub(super) to: NonNull<u8>,
}

impl Writer {
    /// # Safety
    /// There is room for `part`.
    #[inline]
    pub(super) unsafe fn put<P: IntoBytes + Unaligned>(&mut self, part: P) {
        // SAFETY: by the caller's contract; `P` needs no alignment.
        unsafe {
            self.to.cast::<P>().write(part);
            self.to = self.to.byte_add(size_of::<P>());
        }
    }

    /// # Safety
    /// There is room for `units` units.
    #[inline]
    pub(super) unsafe fn put_zeros(&mut self, units: usize) {
        for _ in 0..units {
            // SAFETY: by the caller's contract.
            unsafe { self.put([0_u8; UNIT]) };
        }
    }
}

/// Writes the part of a UMR after its control segment, with `entries` translation entries.
///
/// # Safety
/// There is room for it.
#[inline]
pub(super) unsafe fn write_umr(
    to: &mut Writer,
    key: u32,
    update: &MkeyUpdate<'_>,
    entries: usize,
    bsf: Option<&Bsf>,
) {
    let mut mask = mkey_mask::FREE | mkey_mask::MKEY;
    let mut flags_pd = 0;
    let mut bsf_octowords = 0;
    if let Some(signing) = update.signing {
        match signing.bsf {
            BsfUpdate::Keep => {}
            BsfUpdate::Disable => mask |= mkey_mask::BSF_ENABLE,
            BsfUpdate::Set(_) => {
                mask |= mkey_mask::BSF_ENABLE;
                flags_pd |= MkeyContextSegment::BSF_ENABLE;
                bsf_octowords = BSF_UNITS;
            }
        }
        if let Some(count) = signing.error_count {
            mask |= mkey_mask::SIGNATURE_ERROR_COUNT;
            flags_pd |= (count & 1) << MkeyContextSegment::SIGNATURE_ERROR_COUNT_SHIFT;
        }
    }
    if update.access.is_some() {
        mask |= mkey_mask::ACCESS;
    }
    if update.layout.is_some() {
        mask |= mkey_mask::LENGTH;
    }
    let aligned = entries.next_multiple_of(ENTRIES_ALIGN);
    // SAFETY: these parts come first in the room that the caller provides.
    unsafe {
        to.put(UmrControlSegment {
            flags: umr_flags::INLINE,
            klm_octowords: U16::new(aligned as u16),
            offset_or_bsf_octowords: U16::new(bsf_octowords as u16),
            mkey_mask: U64::new(mask),
            ..UmrControlSegment::default()
        });
        to.put(MkeyContextSegment {
            access_flags: update.access.map_or(0, |access| access.bits()),
            qpn_mkey: U32::new(MkeyContextSegment::ANY_QPN | key & 0xff),
            flags_pd: U32::new(flags_pd),
            length: U64::new(update.layout.map_or(0, |sized| sized.length)),
            ..MkeyContextSegment::default()
        });
    }
    match update.layout {
        None => {}
        Some(SizedLayout { layout: MkeyLayout::List(sges), .. }) => {
            for sge in sges {
                // SAFETY: there is room for `entries` entries.
                unsafe {
                    to.put(Klm {
                        byte_count: U32::new(sge.length),
                        mkey: U32::new(sge.lkey),
                        address: U64::new(sge.addr),
                    });
                }
            }
        }
        Some(SizedLayout { layout: MkeyLayout::Interleaved { repeat, entries }, .. }) => {
            // SAFETY: there is room for `entries` entries, which include the repeat block.
            unsafe { write_interleaved(to, repeat, entries) };
        }
    }
    // SAFETY: there is room for the padded entries, and for the BSF if there is one.
    unsafe {
        to.put_zeros(aligned - entries);
        if let Some(bsf) = bsf {
            to.put(*bsf);
        }
    }
}

/// # Safety
/// There is room for one translation entry more than `entries` has.
unsafe fn write_interleaved(to: &mut Writer, repeat: u32, entries: &[Interleaved]) {
    let round: u32 = entries.iter().map(|entry| entry.bytes).sum();
    // SAFETY: by the caller's contract.
    unsafe {
        to.put(RepeatBlock {
            byte_count: U32::new(round),
            op: U32::new(RepeatBlock::OP),
            repeat_count: U32::new(repeat),
            reserved: U16::ZERO,
            num_entries: U16::new(entries.len() as u16),
        });
        for entry in entries {
            to.put(RepeatEntry {
                stride: U16::new((entry.bytes + entry.skip) as u16),
                byte_count: U16::new(entry.bytes as u16),
                mkey: U32::new(entry.lkey),
                address: U64::new(entry.addr),
            });
        }
    }
}
