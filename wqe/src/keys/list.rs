//! The usual configuration of a memory key: a list of pieces for a key without signatures, built in the
//! ring in one piece, with plenty of room.

use crate::keys::configure::{ConfiguresMkeys, Finished, MkeyRequest};
use crate::keys::umr::{HEAD_UNITS, MAX_MKEY_ENTRIES, Writer, klm};
use crate::keys::update::{ENTRIES_ALIGN, MkeyAccess, in_fours};
use crate::request::flags::SendFlags;
use crate::request::sge::Sge;
use crate::request::transport::Transport;
use crate::send::build::{Cursor, blocks_of, opaque};
use crate::send::journal::Change;
use crate::send::queue::SendQueue;
use crate::send::records::RequestInfo;
use core::ptr::NonNull;
use mlx5_prm::umr::{MkeyContextSegment, UmrControlSegment, mkey_mask, umr_flags};
use mlx5_prm::wqe::{MAX_SGE_LENGTH, Opcode, UNIT};
use mlx5_prm::{U16, U32, U64};

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
        let aligned = pieces.len().next_multiple_of(ENTRIES_ALIGN);
        let blocks = blocks_of(HEAD_UNITS + aligned);
        let usual = pieces.len() <= (capacity as usize).min(MAX_MKEY_ENTRIES)
            && (SendFlags::SIGNALED | SendFlags::FENCE).contains(flags)
            && queue.takes_usual(cursor, blocks);
        if !usual {
            return Err(self);
        }
        let slot = opaque(queue.at(cursor.head));
        let (mut length, mut bits) = (0, 0);
        // SAFETY: there is room for the request, in blocks that the device does not own.
        unsafe {
            let mut to = Writer { to: slot.byte_add(HEAD_UNITS * UNIT) };
            in_fours(pieces, |sge| {
                length += u64::from(sge.length);
                bits |= sge.length;
                to.put(klm(sge));
            });
            to.put_zeros(aligned - pieces.len());
        }
        if bits > MAX_SGE_LENGTH {
            return Err(self);
        }
        let Some((key, change)) = owner.change(length) else { return Err(self) };
        queue.journal.push(cursor.sequence, change);
        let control = queue.default_flags
            | u32::from(flags.bits() | queue.fence_for(flags.bits())) << RequestInfo::CONTROL_SHIFT;
        let place = u64::from(cursor.head as u16) << RequestInfo::FIRST_SHIFT
            | (Opcode::Umr as u64) << RequestInfo::OPCODE_SHIFT;
        let immediate = u64::from(u32::from_le_bytes(key.to_be_bytes())) << 32;
        let words: [[u8; 8]; 2] = [
            (place | queue.qpn | (HEAD_UNITS + aligned) as u64).to_be_bytes(),
            (u64::from(control) | immediate).to_le_bytes(),
        ];
        // SAFETY: as above. The records are alive, and were created for this ring.
        unsafe {
            slot.cast().write(words);
            write_head(slot.byte_add(UNIT), key as u8, access, aligned, length);
            let info = RequestInfo::new(place, control, blocks);
            queue.slots.stage(queue.mask, cursor.sequence, wr_id, info);
        }
        let next = cursor.after(blocks);
        queue.note_keyed(cursor.sequence, next, true);
        Ok(Finished::at(next))
    }
}

impl<T: Transport> SendQueue<T> {
    /// Whether a request of so many blocks can be built at the cursor with nothing to check: it does not
    /// wrap, and leaves room for one of the largest size, so that no run of unsignaled requests fills the
    /// queue.
    #[inline(always)]
    fn takes_usual(&self, cursor: Cursor, blocks: u32) -> bool {
        self.gate.may_send()
            && !self.signed
            && self.in_one_piece(cursor.head, blocks)
            && self.free_at(cursor.head, cursor.sequence) >= blocks + self.max_request_blocks
    }
}

/// Writes the two segments between the control segment and the entries, of which there are `aligned`.
///
/// # Safety
/// There is room for them.
#[inline(always)]
unsafe fn write_head(
    to: NonNull<u8>,
    variant: u8,
    access: Option<MkeyAccess>,
    aligned: usize,
    length: u64,
) {
    let mask = mkey_mask::FREE | mkey_mask::MKEY | mkey_mask::LENGTH;
    let mask = if access.is_some() { mask | mkey_mask::ACCESS } else { mask };
    let mut to = Writer { to };
    // SAFETY: by the contract.
    unsafe {
        to.put(UmrControlSegment {
            flags: umr_flags::INLINE,
            klm_octowords: U16::new(aligned as u16),
            mkey_mask: U64::new(mask),
            ..UmrControlSegment::default()
        });
        to.put(MkeyContextSegment {
            access_flags: access.map_or(0, |access| access.bits()),
            qpn_mkey: U32::new(MkeyContextSegment::ANY_QPN | u32::from(variant)),
            length: U64::new(length),
            ..MkeyContextSegment::default()
        });
    }
}
