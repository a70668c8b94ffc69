//! User-mode memory registration: requests that change memory keys. They bind windows, set the
//! layout of indirect keys, and invalidate keys.

use mlx5_prm::umr::{MkeyContextSegment, UmrControlSegment, mkey_mask, umr_flags};
use mlx5_prm::wqe::{BLOCK, DataSegment, UNIT};
use zerocopy::FromBytes;

use crate::engine::Device;
use crate::engine::state::codes::{self, Code};
use crate::engine::state::ethernet::Registers;
use crate::engine::state::fence::Change;
use crate::engine::state::layout::ENTRY;
use crate::engine::state::mkey::{Access, MkeyConfig, Side, Translation, User};
use crate::engine::state::qp::Transport;
use crate::engine::state::signature::Format;
use crate::engine::wqe::{Request, SMALLEST_UMR};

/// Offset of the context segment in a WQE.
const CONTEXT: usize = UNIT + size_of::<UmrControlSegment>();
/// The queue pair number that means any.
const ANY_QPN: u32 = MkeyContextSegment::ANY_QPN >> 8;
/// Low bits of a page's address that give its rights.
const PAGE_RIGHTS: u64 = 0xfff;
/// The list of translation entries is a multiple of this number of units of 16 bytes.
const LIST_STEP: usize = BLOCK / UNIT;
/// The right of each mask bit.
const RIGHTS: [(u64, Access); 5] = [
    (mkey_mask::LOCAL_READ, Access::LOCAL_READ),
    (mkey_mask::LOCAL_WRITE, Access::LOCAL_WRITE),
    (mkey_mask::REMOTE_READ, Access::REMOTE_READ),
    (mkey_mask::REMOTE_WRITE, Access::REMOTE_WRITE),
    (mkey_mask::ATOMIC, Access::REMOTE_ATOMIC),
];

impl Device {
    /// Executes a UMR WQE.
    pub(crate) fn umr(&mut self, qpn: u32, request: &Request) -> Result<(), Code> {
        let bytes = request.bytes();
        let (control, _) = UmrControlSegment::read_from_prefix(bytes.get(UNIT..).unwrap_or(&[]))
            .map_err(|_| codes::UMR_SIZE)?;
        let (context, _) =
            MkeyContextSegment::read_from_prefix(bytes.get(CONTEXT..).unwrap_or(&[]))
                .map_err(|_| codes::UMR_SIZE)?;
        let qp = self.qps.get(qpn).ok_or(codes::UMR_KEY)?;
        let (pd, trusted) = (qp.config.pd, qp.config.transport == Transport::Umr);
        let registers = self.ethernet.sqs.get(&qpn).map(|sq| sq.registers);
        let pages = trusted || registers == Some(Registers::Pages);
        let index = request.immediate >> 8;
        let key = self.mkeys.get(index).ok_or(codes::UMR_KEY)?;
        if !key.umr || !trusted && key.pd != pd {
            return Err(codes::UMR_KEY);
        }
        check_state(key, qpn, &control, request.immediate as u8)?;
        let mut next = key.clone();
        let octwords = usize::from(control.klm_octowords.get());
        if !octwords.is_multiple_of(LIST_STEP) {
            return Err(codes::UNALIGNED_LIST);
        }
        let inline = control.flags & umr_flags::INLINE != 0;
        let user = User { qpn, pd, side: Side::Requester };
        let entries =
            self.entries(user, &control, &bytes[SMALLEST_UMR.min(bytes.len())..], octwords)?;
        let behind = SMALLEST_UMR + if inline { octwords * ENTRY } else { 0 };
        let bsf = self.byte_stream_format(pd, &control, bytes.get(behind..).unwrap_or(&[]))?;
        sign(&mut next, &control, &context, bsf)?;
        change(&mut next, &control, &context, trusted)?;
        translate(&mut next, &control, &entries, pages)?;
        if let Some(key) = self.mkeys.get_mut(index) {
            *key = next;
        }
        // A kernel's send queue changes the parts of a key one after the other, without fences.
        if registers != Some(Registers::Pages) {
            self.changed(qpn, request, Change::Mkey(index));
        }
        Ok(())
    }

    /// The translation entries of a UMR, from the WQE or from memory.
    fn entries(
        &mut self,
        user: User,
        control: &UmrControlSegment,
        behind: &[u8],
        octwords: usize,
    ) -> Result<Vec<u8>, Code> {
        let length = octwords * ENTRY;
        if control.flags & umr_flags::INLINE != 0 || octwords == 0 {
            return behind.get(..length).map(<[u8]>::to_vec).ok_or(codes::UMR_SIZE);
        }
        let (segment, _) = DataSegment::read_from_prefix(behind).map_err(|_| codes::UMR_SIZE)?;
        let (key, address) = (segment.lkey.get(), segment.address.get());
        let mut entries = vec![0; length];
        if (segment.byte_count.get() as usize) < length {
            return Err(codes::UMR_SIZE);
        }
        self.read_key(user, key, address, &mut entries, Access::LOCAL_READ)
            .map_err(|_| codes::UMR_SIZE)?;
        Ok(entries)
    }

    /// The byte stream format that a UMR brings, with its length in units of 16 bytes.
    fn byte_stream_format(
        &self,
        pd: u32,
        control: &UmrControlSegment,
        behind: &[u8],
    ) -> Result<Option<(Format, u32)>, Code> {
        let octwords = match control.flags & umr_flags::TRANSLATION_OFFSET {
            0 => control.offset_or_bsf_octowords.get(),
            _ => 0,
        };
        if octwords == 0 {
            return Ok(None);
        }
        let bytes = behind.get(..usize::from(octwords) * UNIT).ok_or(codes::UMR_REFUSED)?;
        let known = &self.config().capabilities;
        let format = Format::parse(bytes).filter(|format| format.is_known_to(known));
        let format = format.ok_or(codes::UMR_REFUSED)?;
        if format.psvs().any(|psv| self.psvs.get(&psv).is_none_or(|psv| psv.pd != pd)) {
            return Err(codes::UMR_REFUSED);
        }
        Ok(Some((format, octwords.into())))
    }

    /// Frees a key for its own side.
    pub(crate) fn invalidate_local(&mut self, qpn: u32, request: &Request) -> Result<(), Code> {
        let key = request.immediate;
        let pd = self.qps.get(qpn).ok_or(codes::UMR_KEY)?.config.pd;
        let mkey = self.mkeys.get_mut(key >> 8).ok_or(codes::UMR_KEY)?;
        if !mkey.umr || mkey.pd != pd {
            return Err(codes::UMR_KEY);
        }
        if mkey.free || mkey.tag != key as u8 {
            return Err(codes::UMR_KEY);
        }
        if mkey.qpn.is_some_and(|bound| bound != qpn) {
            return Err(codes::UMR_KEY);
        }
        mkey.free = true;
        self.changed(qpn, request, Change::Mkey(key >> 8));
        Ok(())
    }

    /// Invalidates a key for the peer's SEND_INVAL and returns whether that is allowed.
    pub(crate) fn invalidate_remote(&mut self, user: User, key: u32) -> bool {
        let Some(mkey) = self.mkeys.get_mut(key >> 8) else { return false };
        let allowed = mkey.remote_invalidate && mkey.serves(user, key);
        mkey.free |= allowed;
        allowed
    }
}

fn check_state(
    key: &MkeyConfig,
    qpn: u32,
    control: &UmrControlSegment,
    tag: u8,
) -> Result<(), Code> {
    let asks = |flag| control.flags & flag != 0;
    if asks(umr_flags::CHECK_FREE) && !key.free || asks(umr_flags::CHECK_NOT_FREE) && key.free {
        return Err(codes::UMR_KEY);
    }
    // A free key has no valid tag to compare.
    if !key.free && key.tag != tag {
        return Err(codes::UMR_KEY);
    }
    if asks(umr_flags::CHECK_QPN) && key.qpn.is_some_and(|bound| bound != qpn) {
        return Err(codes::UMR_KEY);
    }
    Ok(())
}

/// Sets the signatures of a key.
fn sign(
    key: &mut MkeyConfig,
    control: &UmrControlSegment,
    context: &MkeyContextSegment,
    format: Option<(Format, u32)>,
) -> Result<(), Code> {
    let (mask, flags_pd) = (control.mkey_mask.get(), context.flags_pd.get());
    if let Some((format, octwords)) = format {
        if octwords > key.signatures.octwords {
            return Err(codes::UMR_REFUSED);
        }
        key.signatures.format = Some(format);
    }
    if mask & mkey_mask::BSF_ENABLE != 0 {
        let enabled = flags_pd & MkeyContextSegment::BSF_ENABLE != 0;
        if enabled && key.signatures.octwords == 0 {
            return Err(codes::UMR_REFUSED);
        }
        key.signatures.enabled = enabled;
    }
    if mask & mkey_mask::SIGNATURE_ERROR_COUNT != 0 {
        key.signatures.expected =
            flags_pd >> MkeyContextSegment::SIGNATURE_ERROR_COUNT_SHIFT & 1 == 1;
    }
    Ok(())
}

/// Sets the parts of the context that the mask names.
fn change(
    key: &mut MkeyConfig,
    control: &UmrControlSegment,
    context: &MkeyContextSegment,
    trusted: bool,
) -> Result<(), Code> {
    let mask = control.mkey_mask.get();
    let flags_pd = context.flags_pd.get();
    let has = |bit| mask & bit != 0;
    if has(mkey_mask::PD | mkey_mask::PAGE_SIZE) && !trusted {
        return Err(codes::UMR_REFUSED);
    }
    if has(mkey_mask::FREE) {
        key.free = context.free & MkeyContextSegment::FREE != 0;
    }
    if has(mkey_mask::MKEY) {
        key.tag = context.qpn_mkey.get() as u8;
    }
    if has(mkey_mask::QPN) {
        let qpn = context.qpn_mkey.get() >> 8;
        key.qpn = (qpn != ANY_QPN).then_some(qpn);
    }
    if has(mkey_mask::START_ADDRESS) {
        key.start = context.start_address.get();
    }
    if has(mkey_mask::LENGTH) {
        let whole = flags_pd & MkeyContextSegment::LENGTH_64 != 0;
        key.length = if whole { u64::MAX } else { context.length.get() };
    }
    if has(mkey_mask::PD) {
        key.pd = flags_pd & 0xff_ffff;
    }
    if has(mkey_mask::REMOTE_INVALIDATE) {
        key.remote_invalidate = flags_pd & MkeyContextSegment::REMOTE_INVALIDATE != 0;
    }
    for (bit, right) in RIGHTS {
        if has(bit) {
            key.access.set(right, context.access_flags & right.bits() != 0);
        }
    }
    if let Translation::Buffer(buffer) = &mut key.translation {
        let log = if has(mkey_mask::PAGE_SIZE) {
            context.log_page_size & 0x1f
        } else {
            buffer.log_page_size()
        };
        if has(mkey_mask::PAGE_SIZE | mkey_mask::START_ADDRESS) {
            buffer.set_shape(log, key.start & ((1 << log) - 1));
        }
    }
    Ok(())
}

/// Sets translation entries.
fn translate(
    key: &mut MkeyConfig,
    control: &UmrControlSegment,
    entries: &[u8],
    pages_allowed: bool,
) -> Result<(), Code> {
    if entries.is_empty() {
        return Ok(());
    }
    let offset = if control.flags & umr_flags::TRANSLATION_OFFSET != 0 {
        u64::from(control.translation_offset_high.get()) << 16
            | u64::from(control.offset_or_bsf_octowords.get())
    } else {
        0
    };
    let end = offset + (entries.len() / ENTRY) as u64;
    if end > u64::from(key.translation_octwords) {
        return Err(codes::UMR_SIZE);
    }
    match &mut key.translation {
        Translation::Indirect(layout) => layout.set(offset as usize, entries),
        // Only the kernel's own queues may name bus addresses.
        Translation::Buffer(buffer) if pages_allowed => {
            let words = entries.as_chunks::<8>().0.iter();
            let pages: Vec<u64> =
                words.map(|word| u64::from_be_bytes(*word) & !PAGE_RIGHTS).collect();
            let first = offset as usize * 2;
            buffer.set_pages(first, &pages).ok_or(codes::UMR_SIZE)?;
        }
        _ => return Err(codes::UMR_REFUSED),
    }
    Ok(())
}

// A UMR's control segments fill its first block.
const _: () = assert!(CONTEXT == BLOCK);
