//! UMR requests, written by hand.

use mlx5_prm::signature::Bsf;
use mlx5_prm::umr::{
    MkeyContextSegment, RepeatBlock, RepeatEntry, UmrControlSegment, mkey_mask, umr_flags,
};
use mlx5_prm::wqe::Opcode;
use zerocopy::IntoBytes;

use super::rig::{Rig, Wqe};
use crate::engine::state::layout::{self, Range};
use crate::engine::{Access, Layout, MkeyConfig, Translation};

/// Granularity of the number of translation entries: one line.
const ENTRIES_IN_LINE: usize = 4;

/// A UMR request.
#[derive(Clone)]
pub(super) struct Umr {
    key: u32,
    pub(super) control: UmrControlSegment,
    pub(super) context: MkeyContextSegment,
    entries: Vec<u8>,
    bsf: Vec<u8>,
}

impl Umr {
    pub(super) fn new(key: u32) -> Self {
        let control =
            UmrControlSegment { flags: umr_flags::INLINE, ..UmrControlSegment::default() };
        let context = MkeyContextSegment::default();
        Self { key, control, context, entries: Vec::new(), bsf: Vec::new() }
    }

    pub(super) fn flags(mut self, flags: u8) -> Self {
        self.control.flags |= flags;
        self
    }

    fn mask(mut self, mask: u64) -> Self {
        self.control.mkey_mask = (self.control.mkey_mask.get() | mask).into();
        self
    }

    pub(super) fn free(mut self, free: bool) -> Self {
        self.context.free = if free { MkeyContextSegment::FREE } else { 0 };
        self.mask(mkey_mask::FREE)
    }

    pub(super) fn tag(mut self, tag: u8) -> Self {
        let word = self.context.qpn_mkey.get() & !0xff | u32::from(tag);
        self.context.qpn_mkey = word.into();
        self.mask(mkey_mask::MKEY)
    }

    pub(super) fn qpn(mut self, qpn: u32) -> Self {
        self.context.qpn_mkey = (self.context.qpn_mkey.get() & 0xff | qpn << 8).into();
        self.mask(mkey_mask::QPN)
    }

    pub(super) fn range(mut self, start: u64, length: u64) -> Self {
        (self.context.start_address, self.context.length) = (start.into(), length.into());
        self.mask(mkey_mask::START_ADDRESS | mkey_mask::LENGTH)
    }

    pub(super) fn access(mut self, access: Access) -> Self {
        self.context.access_flags = access.bits();
        self.mask(mkey_mask::ACCESS)
    }

    pub(super) fn pd(mut self, pd: u32) -> Self {
        self.context.flags_pd = (self.context.flags_pd.get() | pd).into();
        self.mask(mkey_mask::PD)
    }

    /// Translation entries, padded to a full line.
    pub(super) fn entries(mut self, entries: Vec<u8>) -> Self {
        self.entries = entries;
        let octwords = (self.entries.len() / layout::ENTRY).next_multiple_of(ENTRIES_IN_LINE);
        self.entries.resize(octwords * layout::ENTRY, 0);
        self.control.klm_octowords = (octwords as u16).into();
        self
    }

    pub(super) fn list(self, pieces: &[(u32, u64, u64)]) -> Self {
        let range = |(key, address, length): &(u32, u64, u64)| Range {
            key: *key,
            address: *address,
            length: *length,
        };
        self.entries(layout::entries(&pieces.iter().map(range).collect::<Vec<_>>()))
    }

    /// Rounds of (stride, bytes, key, address).
    pub(super) fn interleaved(self, rounds: u32, parts: &[(u16, u16, u32, u64)]) -> Self {
        let bytes: u32 = parts.iter().map(|part| u32::from(part.1)).sum();
        let head = RepeatBlock {
            byte_count: bytes.into(),
            op: RepeatBlock::OP.into(),
            repeat_count: rounds.into(),
            num_entries: (parts.len() as u16).into(),
            ..RepeatBlock::default()
        };
        let mut entries = head.as_bytes().to_vec();
        for (stride, count, key, address) in parts {
            let entry = RepeatEntry {
                stride: (*stride).into(),
                byte_count: (*count).into(),
                mkey: (*key).into(),
                address: (*address).into(),
            };
            entries.extend_from_slice(entry.as_bytes());
        }
        self.entries(entries)
    }

    /// Enables signatures of this format.
    pub(super) fn signatures(mut self, bsf: &Bsf) -> Self {
        self.bsf = bsf.as_bytes().to_vec();
        self.control.offset_or_bsf_octowords = ((self.bsf.len() / layout::ENTRY) as u16).into();
        self.signature_switch(true)
    }

    pub(super) fn signature_switch(mut self, on: bool) -> Self {
        let flag = if on { MkeyContextSegment::BSF_ENABLE } else { 0 };
        let word = self.context.flags_pd.get() & !MkeyContextSegment::BSF_ENABLE | flag;
        self.context.flags_pd = word.into();
        self.mask(mkey_mask::BSF_ENABLE)
    }

    /// The driver has seen `count` signature errors and expects the next.
    pub(super) fn errors_seen(mut self, count: u32) -> Self {
        let bit = ((count + 1) & 1) << MkeyContextSegment::SIGNATURE_ERROR_COUNT_SHIFT;
        self.context.flags_pd = (self.context.flags_pd.get() | bit).into();
        self.mask(mkey_mask::SIGNATURE_ERROR_COUNT)
    }

    /// A window over a piece of a region, bound as the verbs bind it.
    pub(super) fn bind(key: u32, tag: u8, region: (u32, u64, u64), access: Access) -> Self {
        let (_, address, length) = region;
        Self::new(key)
            .flags(umr_flags::TRANSLATION_OFFSET)
            .free(false)
            .tag(tag)
            .range(address, length)
            .access(access)
            .list(&[region])
    }

    /// Frees a key.
    pub(super) fn invalidate(key: u32) -> Self {
        Self::new(key).free(true)
    }

    pub(super) fn wqe(&self) -> Wqe {
        let mut wqe =
            Wqe::new(Opcode::Umr).immediate(self.key).segment(&self.control).segment(&self.context);
        wqe.body.extend_from_slice(&self.entries);
        wqe.body.extend_from_slice(&self.bsf);
        wqe
    }
}

impl Rig {
    /// A key without memory, for a UMR to configure.
    pub(super) fn free_key(&self, device: usize, octwords: u32) -> u32 {
        self.key(device, free_config(self.pds[device], octwords))
    }

    pub(super) fn key(&self, device: usize, config: MkeyConfig) -> u32 {
        self.lock().device_mut(device).create_mkey(config).expect("a key")
    }

    pub(super) fn mkey(&self, device: usize, key: u32) -> MkeyConfig {
        self.lock().device(device).mkey(key >> 8).expect("a key").clone()
    }
}

pub(super) fn free_config(pd: u32, octwords: u32) -> MkeyConfig {
    MkeyConfig {
        pd,
        access: Access::LOCAL_READ,
        translation: Translation::Indirect(Layout::default()),
        translation_octwords: octwords,
        umr: true,
        free: true,
        remote_invalidate: true,
        ..MkeyConfig::default()
    }
}
