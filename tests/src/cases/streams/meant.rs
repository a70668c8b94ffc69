//! The meaning of a completion, from the entry that the device wrote.

use crate::prelude::*;
use mlx5::{CqeCompression, WorkCompletion};
use mlx5_prm::cqe::{Cqe, CqeOpcode, ErrorCqe, Format, OPCODE_SHIFT, SOLICITED};
use mlx5_prm::fields::{FromBytes, IntoBytes};
use mlx5_prm::wqe::Opcode;

/// The expected content of a completion.
pub(super) struct Meant {
    pub(super) wr_id: u64,
    pub(super) qp_num: u32,
    pub(super) cqe: Cqe,
    pub(super) sent: Option<Opcode>,
    pub(super) message: Vec<u8>,
}

impl Meant {
    fn opcode(&self) -> CqeOpcode {
        CqeOpcode::from_bits(self.cqe.op_own >> OPCODE_SHIFT).expect("an opcode")
    }

    /// Compares a completion with it, field by field.
    #[track_caller]
    pub(super) fn check(&self, wc: &WorkCompletion<'_>, compression: Option<CqeCompression>) {
        let cqe = &self.cqe;
        assert_eq!(wc.wr_id(), self.wr_id, "in order: {wc:?}");
        assert_eq!(wc.qp_num(), self.qp_num);
        let failed = matches!(self.opcode(), CqeOpcode::RequesterError | CqeOpcode::ResponderError);
        let expected = match (self.sent, self.opcode()) {
            (Some(Opcode::Send), _) => CompletionOpcode::Send,
            (Some(Opcode::RdmaRead), _) => CompletionOpcode::RdmaRead,
            (Some(_), _) => CompletionOpcode::RdmaWrite,
            (None, CqeOpcode::ResponderWriteImm) => CompletionOpcode::ReceiveRdmaWithImm,
            (None, _) => CompletionOpcode::Receive,
        };
        assert_eq!(wc.opcode(), expected);
        if failed {
            let error = ErrorCqe::read_from_bytes(cqe.as_bytes()).expect("64 bytes");
            let found = wc.status().expect_err("failed");
            let syndrome = Syndrome::from_bits(error.syndrome).expect("a syndrome");
            assert_eq!(found.kind, CompletionErrorKind::Known(syndrome));
            assert_eq!(found.vendor, error.vendor_err_synd);
            assert_eq!((wc.byte_len(), wc.imm_data(), wc.src_qp()), (None, None, None));
            assert_eq!((wc.timestamp(), wc.is_compressed()), (None, false));
            assert_eq!((wc.vlan(), wc.checksum_ok(), wc.flow_tag()), (None, None, None));
            assert_eq!((wc.invalidated_rkey(), wc.pkey_index(), wc.slid()), (None, None, None));
            assert!(wc.inline_data().is_none() && !wc.cancelled());
            return;
        }
        assert_eq!(wc.status(), Ok(()));
        let format = Format::of(cqe.op_own);
        let received = self.sent.is_none();
        let has_length = received || self.sent == Some(Opcode::RdmaRead);
        assert_eq!(wc.byte_len(), has_length.then(|| cqe.byte_count.get()));
        let time = (!wc.is_compressed()).then(|| cqe.timestamp.get());
        assert_eq!(wc.timestamp(), time);
        assert_eq!(wc.solicited(), cqe.op_own & SOLICITED != 0);
        let word = cqe.imm_inval_pkey.get();
        let opcode = self.opcode();
        let has_immediate =
            matches!(opcode, CqeOpcode::ResponderWriteImm | CqeOpcode::ResponderSendImm);
        assert_eq!(wc.imm_data(), has_immediate.then(|| word.to_be_bytes()));
        let invalidates = opcode == CqeOpcode::ResponderSendInvalidate;
        assert_eq!(wc.invalidated_rkey(), invalidates.then_some(word));
        let has_pkey = opcode == CqeOpcode::ResponderSend;
        assert_eq!(wc.pkey_index(), has_pkey.then_some(word as u16));
        // A message in the first half of the entry takes the place of the packet's fields.
        let packet = received && format != Format::Inline32;
        let flags = cqe.flags_rqpn.get();
        assert_eq!(wc.src_qp(), packet.then_some(flags & 0xff_ffff));
        assert_eq!(wc.service_level(), packet.then_some((flags >> 24 & 0xf) as u8));
        assert_eq!(wc.has_grh(), packet.then_some(flags >> 28 & 3 != 0));
        assert_eq!(wc.slid(), packet.then_some(cqe.slid.get()));
        assert_eq!(wc.dlid_path_bits(), packet.then_some(cqe.ml_path & 0x7f));
        let own_hash = !wc.is_compressed() || compression == Some(CqeCompression::Hash);
        let own_sum = !wc.is_compressed() || compression != Some(CqeCompression::Hash);
        assert_eq!(wc.rss_hash(), (packet && own_hash).then(|| cqe.rss_hash_result.get()));
        assert_eq!(wc.checksum(), (packet && own_sum).then(|| cqe.check_sum.get()));
        // Bits 1 and 2: the checksums of layers 3 and 4 are good; layer 3 is IPv4.
        let good = cqe.hds_ip_ext & 6 == 6 && cqe.l4_l3_hdr_type >> 2 & 3 == 2;
        assert_eq!(wc.checksum_ok(), packet.then_some(good));
        assert_eq!(wc.flow_tag(), received.then_some(cqe.sop_drop_qpn.get() & 0xff_ffff));
        let vlan = packet && cqe.l4_l3_hdr_type & 1 != 0;
        assert_eq!(wc.vlan(), vlan.then(|| cqe.vlan_info.get()));
        let message = wc.inline_data().map(|data| data.bytes().collect::<Vec<u8>>());
        assert_eq!(message, (format != Format::Plain).then(|| self.message.clone()));
    }
}
