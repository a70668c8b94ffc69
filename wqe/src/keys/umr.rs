//! The bytes of UMR and SET_PSV requests.

use crate::keys::update::{BsfUpdate, ENTRIES_ALIGN, Interleaved, MkeyLayout, MkeyUpdate};
use crate::request::data::write_sge;
use crate::request::segment::Segment;
use crate::request::window::UmrHead;
use crate::send::batch::blocks_of;
use core::mem::size_of;
use core::ptr::NonNull;
use mlx5_prm::signature::{Bsf, SetPsvSegment};
use mlx5_prm::umr::{MkeyContextSegment, RepeatBlock, RepeatEntry, mkey_mask, umr_flags};
use mlx5_prm::wqe::{MAX_UNITS, UNIT};
use mlx5_prm::{U16, U32, U64};

/// 16-byte units of a UMR before its translation entries.
pub(super) const HEAD_UNITS: usize = 1 + UmrHead::UNITS;
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

/// Writes the part of a UMR after its control segment, with `units` units of translation entries.
///
/// # Safety
/// There is room for it.
#[inline]
pub(super) unsafe fn write_umr(
    at: NonNull<u8>,
    key: u32,
    update: &MkeyUpdate<'_>,
    units: usize,
    bsf: Option<&Bsf>,
) {
    let mut head = UmrHead {
        flags: umr_flags::INLINE,
        entries: units as u16,
        mask: mkey_mask::FREE | mkey_mask::MKEY,
        qpn_mkey: MkeyContextSegment::ANY_QPN | key & 0xff,
        ..UmrHead::default()
    };
    if let Some(signing) = update.signing {
        if !matches!(signing.bsf, BsfUpdate::Keep) {
            head.mask |= mkey_mask::BSF_ENABLE;
        }
        if bsf.is_some() {
            head.flags_pd |= MkeyContextSegment::BSF_ENABLE;
            head.bsf = BSF_UNITS as u16;
        }
        if let Some(count) = signing.error_count {
            head.mask |= mkey_mask::SIGNATURE_ERROR_COUNT;
            head.flags_pd |= (count & 1) << MkeyContextSegment::SIGNATURE_ERROR_COUNT_SHIFT;
        }
    }
    if let Some(access) = update.access {
        head.mask |= mkey_mask::ACCESS;
        head.access = access.bits();
    }
    if let Some(sized) = update.layout {
        head.mask |= mkey_mask::LENGTH;
        head.length = sized.length;
    }
    // SAFETY: the head, the padded entries and the signature are what there is room for.
    unsafe {
        head.write(at);
        let list = at.byte_add(UmrHead::UNITS * UNIT);
        let entries = match update.layout.map(|sized| sized.layout) {
            None => 0,
            Some(MkeyLayout::List(sges)) => {
                for (index, sge) in sges.iter().enumerate() {
                    write_sge(list.byte_add(index * UNIT), *sge);
                }
                sges.len()
            }
            Some(MkeyLayout::Interleaved { repeat, entries }) => {
                write_interleaved(list, repeat, entries);
                entries.len() + 1
            }
        };
        for padding in entries..units {
            list.byte_add(padding * UNIT).cast().write([0_u64; UNIT / 8]);
        }
        if let Some(bsf) = bsf {
            list.byte_add(units * UNIT).cast().write(*bsf);
        }
    }
}

/// # Safety
/// There is room for one translation entry more than `entries` has.
unsafe fn write_interleaved(at: NonNull<u8>, repeat: u32, entries: &[Interleaved]) {
    let round: u32 = entries.iter().map(|entry| entry.bytes).sum();
    // SAFETY: by the caller's contract.
    unsafe {
        at.cast().write(RepeatBlock {
            byte_count: U32::new(round),
            op: U32::new(RepeatBlock::OP),
            repeat_count: U32::new(repeat),
            reserved: U16::ZERO,
            num_entries: U16::new(entries.len() as u16),
        });
        for (index, entry) in entries.iter().enumerate() {
            at.byte_add((index + 1) * UNIT).cast().write(RepeatEntry {
                stride: U16::new((entry.bytes + entry.skip) as u16),
                byte_count: U16::new(entry.bytes as u16),
                mkey: U32::new(entry.lkey),
                address: U64::new(entry.addr),
            });
        }
    }
}
