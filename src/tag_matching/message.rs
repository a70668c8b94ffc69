//! The header of messages to a tag-matching queue.

use mlx5_prm::wqe::{RendezvousHeader, TagMatchingHeader, TagMessage};
use mlx5_prm::zerocopy::{FromBytes, IntoBytes};

/// The location of rendezvous data (`struct ibv_rvh`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RendezvousData {
    /// Address at the sender.
    pub va: u64,
    /// Key of the sender's region, which allows remote reads.
    pub rkey: u32,
    /// Length.
    pub len: u32,
}

/// The header of a message to a tag-matching queue (`struct ibv_tmh`, `struct ibv_rvh`). The sender
/// puts it before the data; the receiver of an unmatched message finds it in the buffer.
///
/// ```
/// use mlx5::TmMessage;
/// let head = TmMessage::Eager { tag: 0x1234, app_ctx: 7 };
/// let bytes = head.to_bytes();
/// assert_eq!(bytes.len(), 16);
/// assert_eq!(TmMessage::parse(&bytes), Some((head, &[][..])));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TmMessage {
    /// A message without a tag (`IBV_TMH_NO_TAG`). The device reads only one byte of its header,
    /// which has 16 bytes here.
    NoTag,
    /// The data follows (`IBV_TMH_EAGER`).
    Eager {
        /// The tag.
        tag: u64,
        /// The sender's own word.
        app_ctx: u32,
    },
    /// The receiver must fetch the data (`IBV_TMH_RNDV`). More bytes may follow, for software.
    Rendezvous {
        /// The tag.
        tag: u64,
        /// The sender's own word.
        app_ctx: u32,
        /// The location of the data.
        data: RendezvousData,
    },
    /// The data of a rendezvous was fetched (`IBV_TMH_FIN`): the sender may reuse its memory.
    Finished {
        /// The tag of the rendezvous.
        tag: u64,
        /// Its sender's word.
        app_ctx: u32,
        /// The data that was fetched.
        data: RendezvousData,
    },
}

impl TmMessage {
    fn kind(&self) -> TagMessage {
        match self {
            Self::NoTag => TagMessage::NoTag,
            Self::Eager { .. } => TagMessage::Eager,
            Self::Rendezvous { .. } => TagMessage::Rendezvous,
            Self::Finished { .. } => TagMessage::Finished,
        }
    }

    /// Returns the tag, if the message has one.
    pub fn tag(&self) -> Option<u64> {
        match *self {
            Self::NoTag => None,
            Self::Eager { tag, .. } | Self::Rendezvous { tag, .. } | Self::Finished { tag, .. } => {
                Some(tag)
            }
        }
    }

    /// Returns the bytes of the header.
    pub fn to_bytes(&self) -> Vec<u8> {
        let (tag, app_ctx, data) = match *self {
            Self::NoTag => (0, 0, None),
            Self::Eager { tag, app_ctx } => (tag, app_ctx, None),
            Self::Rendezvous { tag, app_ctx, data } | Self::Finished { tag, app_ctx, data } => {
                (tag, app_ctx, Some(data))
            }
        };
        let header = TagMatchingHeader {
            opcode: self.kind() as u8,
            reserved: [0; 3],
            app_ctx: app_ctx.into(),
            tag: tag.into(),
        };
        let mut bytes = header.as_bytes().to_vec();
        if let Some(RendezvousData { va, rkey, len }) = data {
            let header = RendezvousHeader { va: va.into(), rkey: rkey.into(), len: len.into() };
            bytes.extend_from_slice(header.as_bytes());
        }
        bytes
    }

    /// Parses the header of a message and returns it with the rest; `None` if the header is
    /// incomplete.
    pub fn parse(message: &[u8]) -> Option<(Self, &[u8])> {
        let (header, rest) = TagMatchingHeader::read_from_prefix(message).ok()?;
        let (tag, app_ctx) = (header.tag.get(), header.app_ctx.get());
        let data = || -> Option<(RendezvousData, &[u8])> {
            let (header, rest) = RendezvousHeader::read_from_prefix(rest).ok()?;
            let RendezvousHeader { va, rkey, len } = header;
            Some((RendezvousData { va: va.get(), rkey: rkey.get(), len: len.get() }, rest))
        };
        Some(match TagMessage::from_bits(header.opcode)? {
            TagMessage::NoTag => (Self::NoTag, rest),
            TagMessage::Eager => (Self::Eager { tag, app_ctx }, rest),
            TagMessage::Rendezvous => {
                let (data, rest) = data()?;
                (Self::Rendezvous { tag, app_ctx, data }, rest)
            }
            TagMessage::Finished => {
                let (data, rest) = data()?;
                (Self::Finished { tag, app_ctx, data }, rest)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATA: RendezvousData =
        RendezvousData { va: 0x0102_0304_0506_0708, rkey: 0x1112_1314, len: 0x2122_2324 };

    #[test]
    fn tm_headers_are_those_of_the_verbs() {
        let bytes = TmMessage::Rendezvous { tag: 0xa1a2_a3a4_a5a6_a7a8, app_ctx: 7, data: DATA };
        let expected = [
            1, 0, 0, 0, 0, 0, 0, 7, 0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7, 0xa8, // ibv_tmh
            1, 2, 3, 4, 5, 6, 7, 8, 0x11, 0x12, 0x13, 0x14, 0x21, 0x22, 0x23, 0x24, // ibv_rvh
        ];
        assert_eq!(bytes.to_bytes(), expected);
        assert_eq!(TmMessage::Eager { tag: 0, app_ctx: 0 }.to_bytes()[0], 3);
        assert_eq!(TmMessage::NoTag.to_bytes(), [0; 16]);
    }

    #[test]
    fn tm_headers_are_read_as_they_were_written() {
        for head in [
            TmMessage::NoTag,
            TmMessage::Eager { tag: 5, app_ctx: 6 },
            TmMessage::Rendezvous { tag: 5, app_ctx: 6, data: DATA },
            TmMessage::Finished { tag: 5, app_ctx: 6, data: DATA },
        ] {
            let mut bytes = head.to_bytes();
            for short in 0..bytes.len() {
                assert_eq!(TmMessage::parse(&bytes[..short]), None);
            }
            bytes.push(9);
            assert_eq!(TmMessage::parse(&bytes), Some((head, &[9][..])));
        }
        assert_eq!(TmMessage::parse(&[4; 32]), None);
    }
}
