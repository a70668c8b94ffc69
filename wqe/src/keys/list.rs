//! The usual configuration of a memory key: a list of pieces for a key without signatures, built in the
//! ring in one piece, with plenty of room.

use crate::keys::configure::{ConfiguresMkeys, Finished, MkeyRequest};
use crate::keys::umr::{HEAD_UNITS, MAX_MKEY_ENTRIES, Writer, klm_and_length};
use crate::keys::update::{ENTRIES_ALIGN, MkeyAccess, in_fours};
use crate::request::flags::SendFlags;
use crate::request::sge::Sge;
use crate::send::build::{Cursor, blocks_of, opaque};
use crate::send::journal::Change;
use crate::send::queue::SendQueue;
use crate::send::records::RequestInfo;
use core::mem::{offset_of, size_of};
use core::ptr::NonNull;
use mlx5_prm::umr::{MkeyContextSegment, UmrControlSegment, mkey_mask, umr_flags};
use mlx5_prm::wqe::{MAX_SGE_LENGTH, Opcode, UNIT};

/// The owner of a key without signatures.
pub trait ListOwner {
    /// Notes that the key is to have this length, once nothing else can refuse the request. Returns the
    /// key, variant included, and the change of the owner's view of the key, or nothing if it refuses.
    fn change(&self, length: u64) -> Option<(u32, Change)>;
}

impl<'q, T: ConfiguresMkeys> MkeyRequest<'q, T> {
    /// Builds a request that gives a key without signatures these pieces, if nothing of it is unusual.
    /// Otherwise returns it, for [`MkeyRequest::build`]. `capacity` is that of the key.
    #[inline(always)]
    pub fn build_list(
        self,
        capacity: u32,
        access: Option<MkeyAccess>,
        pieces: &[Sge],
        owner: &impl ListOwner,
    ) -> Result<Finished<'q>, Self> {
        let (cursor, wr_id, flags) = (self.cursor, self.wr_id, self.flags);
        let queue = &mut *self.queue;
        let entries = pieces.len().next_multiple_of(ENTRIES_ALIGN);
        let blocks = blocks_of(HEAD_UNITS + entries);
        if pieces.len() > MAX_MKEY_ENTRIES || pieces.len() > capacity as usize {
            return Err(self);
        }
        if !(SendFlags::SIGNALED | SendFlags::FENCE).contains(flags) || !queue.gate.may_send() {
            return Err(self);
        }
        queue.forget_leaked(cursor);
        let room = queue.has_list_room(cursor.head, blocks);
        if !room && !queue.find_list_room(cursor, blocks) {
            return Err(self);
        }
        // Brings the owner's view of its keys up to date.
        queue.settle_changes();
        let slot = opaque(queue.at(cursor.head));
        let (mut length, mut bits) = (0, 0);
        // SAFETY: there is room for the request, in blocks that the device does not own.
        unsafe {
            let mut to = Writer { to: slot.byte_add(HEAD_UNITS * UNIT) };
            in_fours(pieces, |sge| {
                let (entry, both) = klm_and_length(sge);
                length += both & u64::from(u32::MAX);
                bits |= both;
                to.put(entry);
            });
            to.put_zeros(entries - pieces.len());
        }
        if bits as u32 > MAX_SGE_LENGTH {
            return Err(self);
        }
        let Some((key, change)) = owner.change(length) else { return Err(self) };
        queue.journal.push(cursor.sequence, change);
        let control = queue.default_control()
            | u32::from(flags.bits() | queue.fence_for(flags.bits())) << RequestInfo::CONTROL_SHIFT;
        let place = u64::from(cursor.head as u16) << RequestInfo::FIRST_SHIFT
            | (Opcode::Umr as u64) << RequestInfo::OPCODE_SHIFT;
        let immediate = u64::from(u32::from_le_bytes(key.to_be_bytes())) << 32;
        let words: [[u8; 8]; 2] = [
            (place | queue.qpn | (HEAD_UNITS + entries) as u64).to_be_bytes(),
            (u64::from(control) | immediate).to_le_bytes(),
        ];
        // SAFETY: as above. The records are alive, and were created for this ring.
        unsafe {
            slot.cast().write(words);
            write_head(slot.byte_add(UNIT), key as u8, access, entries, length);
            let info = RequestInfo::new(place, control, blocks);
            queue.slots.stage(queue.mask, cursor.sequence, wr_id, info);
        }
        let next = cursor.after(blocks);
        queue.wait_for_list(cursor.sequence, next);
        Ok(Finished::at(next))
    }
}

impl<T: ConfiguresMkeys> SendQueue<T> {
    /// As [`SendQueue::let_next_wait`], for a list: a batch of it alone may be completed by the fast path,
    /// and what room is left for lists is known.
    #[inline(always)]
    fn wait_for_list(&mut self, sequence: u32, next: Cursor) {
        (self.fence_next, self.noted) = (true, sequence);
        self.fast_limit = self.head.wrapping_sub(1);
        self.note_fence_at(next);
    }
}

/// Writes the two segments between the control segment and the entries, in words.
///
/// # Safety
/// There is room for them.
#[inline(always)]
unsafe fn write_head(
    to: NonNull<u8>,
    variant: u8,
    access: Option<MkeyAccess>,
    entries: usize,
    length: u64,
) {
    const {
        assert!(offset_of!(UmrControlSegment, klm_octowords) == 4 && MAX_MKEY_ENTRIES < 256);
        assert!(offset_of!(UmrControlSegment, mkey_mask) == 8);
        assert!(size_of::<UmrControlSegment>() == 48);
        assert!(offset_of!(MkeyContextSegment, access_flags) == 2);
        assert!(offset_of!(MkeyContextSegment, qpn_mkey) == 4);
        assert!(offset_of!(MkeyContextSegment, length) == 24);
        assert!(size_of::<MkeyContextSegment>() == 64);
    }
    // The number of entries has 16 bits, of which the second byte is all.
    let umr = u64::from(umr_flags::INLINE) | (entries as u64) << 40;
    let mask = mkey_mask::FREE | mkey_mask::MKEY | mkey_mask::LENGTH;
    let mask = if access.is_some() { mask | mkey_mask::ACCESS } else { mask };
    let rights = access.map_or(0, |access| u64::from(access.bits()) << 16);
    let any = u64::from(MkeyContextSegment::ANY_QPN.swap_bytes()) << 32;
    let key = rights | any | u64::from(variant) << 56;
    const NONE: [u64; 2] = [0; 2];
    // SAFETY: by the contract. The words need no alignment.
    unsafe {
        to.cast::<[u64; 2]>().write_unaligned([umr.to_le(), mask.to_be()]);
        let segment = to.byte_add(48).cast::<[u64; 2]>();
        for at in 1..3 {
            to.cast::<[u64; 2]>().add(at).write_unaligned(NONE);
        }
        segment.write_unaligned([key.to_le(), 0]);
        segment.add(1).write_unaligned([0, length.to_be()]);
        segment.add(2).write_unaligned(NONE);
        segment.add(3).write_unaligned(NONE);
    }
}
