//! Keys with signatures, set up by hand, and the signatures that they should produce.

use mlx5_prm::cqe::CqeOpcode;
use mlx5_prm::signature::{
    Bsf, BsfInline, SetPsvSegment, SignatureErrorCqe, block_format, block_selector, bsf_size,
};
use mlx5_prm::wqe::Opcode;

use super::registration::{Umr, free_config};
use super::rig::{Completion, Pair, Region, Rig, Wqe};
use crate::engine::state::signature::Signatures;
use crate::engine::{Access, MkeyConfig, Transport};

/// Kinds of signatures after each block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// Guard by CRC (or IP checksum), application tag, first reference tag, and whether the seed is
    /// all ones.
    T10 {
        ip: bool,
        application: u16,
        reference: u32,
        ones: bool,
    },
    Crc32,
    Crc32c,
    Crc64,
}

/// The T10-DIF signature of most tests.
pub(super) const T10: Kind =
    Kind::T10 { ip: false, application: 0x5678, reference: 0xffff_fffe, ones: true };

/// Every kind.
pub(super) const KINDS: [Kind; 6] = [
    T10,
    Kind::T10 { ip: false, application: 0, reference: 7, ones: false },
    Kind::T10 { ip: true, application: 0xabcd, reference: 0x0123_4567, ones: false },
    Kind::Crc32,
    Kind::Crc32c,
    Kind::Crc64,
];

/// A CRC bit by bit, the highest power first, over bits in the order of the wire.
fn crc(width: u32, polynomial: u64, seed: u64, reflected: bool, data: &[u8]) -> u64 {
    let mut crc = seed;
    for byte in data {
        for bit in 0..8 {
            let input = if reflected { byte >> bit } else { byte >> (7 - bit) } & 1;
            let top = crc >> (width - 1) & 1;
            crc = crc << 1 & u64::MAX >> (64 - width);
            if top ^ u64::from(input) == 1 {
                crc ^= polynomial;
            }
        }
    }
    if reflected { !crc.reverse_bits() >> (64 - width) << (64 - width) } else { crc }
}

fn reflected(width: u32, polynomial: u64, data: &[u8]) -> u64 {
    let crc = crc(width, polynomial, u64::MAX >> (64 - width), true, data);
    // The reversed value is in the upper bits.
    crc >> (64 - width)
}

impl Kind {
    pub(super) fn bytes(self) -> usize {
        match self {
            Self::T10 { .. } | Self::Crc64 => 8,
            Self::Crc32 | Self::Crc32c => 4,
        }
    }

    /// As a PSV and an entry hold it.
    pub(super) fn value(self, index: usize, data: &[u8]) -> u64 {
        match self {
            Self::Crc32 => reflected(32, 0x04c1_1db7, data) << 32,
            Self::Crc32c => reflected(32, 0x1edc_6f41, data) << 32,
            Self::Crc64 => reflected(64, 0xad93_d235_94c9_3659, data),
            Self::T10 { ip, application, reference, ones } => {
                let seed = if ones { 0xffff } else { 0 };
                let guard = if ip {
                    let words = data.as_chunks::<2>().0.iter();
                    let sum =
                        words.fold(seed, |sum, word| sum + u64::from(u16::from_be_bytes(*word)));
                    // One's complement: all ones are zero, so the sum is taken modulo 65,535.
                    let rest = if sum == 0 { 0 } else { (sum - 1) % 0xffff + 1 };
                    !rest & 0xffff
                } else {
                    crc(16, 0x8bb7, seed, false, data)
                };
                let reference = reference.wrapping_add(index as u32);
                guard << 48 | u64::from(application) << 32 | u64::from(reference)
            }
        }
    }

    pub(super) fn after(self, index: usize, data: &[u8]) -> Vec<u8> {
        let value = self.value(index, data);
        match self {
            Self::T10 { .. } => value.to_be_bytes().to_vec(),
            Self::Crc64 => value.to_le_bytes().to_vec(),
            Self::Crc32 | Self::Crc32c => ((value >> 32) as u32).to_le_bytes().to_vec(),
        }
    }

    /// Data with a signature after each whole block.
    pub(super) fn sign(self, block: usize, data: &[u8]) -> Vec<u8> {
        let mut signed = Vec::new();
        for (index, part) in data.chunks(block).enumerate() {
            signed.extend_from_slice(part);
            if part.len() == block {
                signed.extend_from_slice(&self.after(index, part));
            }
        }
        signed
    }

    fn seed(self) -> u64 {
        match self {
            Self::T10 { application, reference, ones, .. } => {
                let seed = if ones { 0xffff } else { 0u64 };
                seed << 48 | u64::from(application) << 32 | u64::from(reference)
            }
            _ => u64::MAX,
        }
    }

    fn word(self, psv: u32) -> u32 {
        let format = match self {
            Self::T10 { .. } => 0,
            Self::Crc32 => block_format::CRC32 | block_format::REPEAT,
            Self::Crc32c => block_format::CRC32C | block_format::REPEAT,
            Self::Crc64 => block_format::CRC64_XP10 | block_format::REPEAT,
        };
        u32::from(format) << Bsf::FORMAT_SHIFT | psv
    }

    fn inline(self) -> BsfInline {
        let Self::T10 { ip, application, reference, ones } = self else {
            return BsfInline::default();
        };
        BsfInline {
            valid_refresh: (BsfInline::VALID | BsfInline::REFRESH).into(),
            application_tag: application.into(),
            reference_tag: reference.into(),
            signature_type: if ip { BsfInline::GUARD_IP_CHECKSUM } else { BsfInline::GUARD_CRC },
            repeat_seed: BsfInline::REPEAT | if ones { BsfInline::SEED_ONES } else { 0 },
            increment_escape: BsfInline::INCREMENT_REFERENCE,
            application_tag_mask: 0xffff.into(),
            ..BsfInline::default()
        }
    }
}

pub(super) type Domain = Option<(Kind, u32)>;

/// The signature processing of a key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) memory: Domain,
    pub(super) wire: Domain,
    pub(super) check: u8,
    /// Both have the same blocks, and these bytes are copied.
    pub(super) copy: Option<u8>,
}

impl Plan {
    pub(super) fn new(memory: Domain, wire: Domain) -> Self {
        Self { memory, wire, check: 0xff, copy: None }
    }

    /// The format, with a PSV for each domain.
    pub(super) fn bsf(&self, [memory_psv, wire_psv]: [u32; 2]) -> Bsf {
        let selector = |domain: Domain| {
            let size = domain.map_or(0, |domain| domain.1);
            let sizes = block_selector::SIZES.iter();
            sizes.copied().find(|known| known.1 == size).map_or(block_selector::NONE, |n| n.0)
        };
        let word = |domain: Domain, psv| domain.map_or(0, |(kind, _): (Kind, u32)| kind.word(psv));
        let inline = |domain: Domain| {
            domain.map_or(BsfInline::default(), |(kind, _): (Kind, _)| kind.inline())
        };
        let same = if self.copy.is_some() { Bsf::SAME_BLOCK_STRUCTURE } else { 0 };
        Bsf {
            bsf_size_sbs: bsf_size::WITH_INLINE << Bsf::SIZE_SHIFT | same,
            check_byte_mask: self.check,
            wire_copy_mask_or_block_selector: self.copy.unwrap_or_else(|| selector(self.wire)),
            memory_block_selector: selector(self.memory),
            raw_data_size: u32::MAX.into(),
            memory_format_psv: word(self.memory, memory_psv).into(),
            wire_format_psv: word(self.wire, wire_psv).into(),
            wire: inline(self.wire),
            memory: inline(self.memory),
            ..Bsf::default()
        }
    }
}

pub(super) fn set_psv(psv: u32, transient: u64) -> Wqe {
    Wqe::new(Opcode::SetPsv).segment(&SetPsvSegment {
        psv_index: psv.into(),
        transient_signature: transient.into(),
        ..SetPsvSegment::default()
    })
}

/// Two connected queue pairs; side `a` has a key with signatures.
pub(super) struct Bench {
    pub(super) rig: Rig,
    pub(super) p: Pair,
    /// The memory under the key.
    pub(super) memory: Region,
    pub(super) key: u32,
    pub(super) psvs: [u32; 2],
    /// Plain memory of the other side.
    pub(super) plain: Region,
}

const ROOM: usize = 1 << 15;

impl Bench {
    pub(super) fn new() -> Self {
        Self::with(crate::SimConfig::new())
    }

    pub(super) fn with(config: crate::SimConfig) -> Self {
        let rig = Rig::new(config);
        let p = rig.pair(Transport::Rc);
        let (memory, plain) = (rig.region(0, ROOM), rig.region(0, ROOM));
        let signatures = Signatures { octwords: 4, ..Signatures::default() };
        let key = rig.key(0, MkeyConfig { signatures, ..free_config(rig.pds[0], 4) });
        let psvs = [0; 2].map(|_| {
            let pd = rig.pds[0];
            rig.lock().device_mut(0).create_psv(pd).expect("a PSV")
        });
        Self { rig, p, memory, key, psvs, plain }
    }

    /// Another key, and PSVs for it.
    pub(super) fn key_beside(&self) -> (u32, [u32; 2]) {
        let pd = self.rig.pds[0];
        let signatures = Signatures { octwords: 4, ..Signatures::default() };
        let key = self.rig.key(0, MkeyConfig { signatures, ..free_config(pd, 4) });
        (key, [0; 2].map(|_| self.rig.lock().device_mut(0).create_psv(pd).expect("a PSV")))
    }

    /// The request that gives the key a plan over `bytes` bytes of its memory.
    pub(super) fn configure(&self, plan: &Plan, bytes: usize) -> Umr {
        Umr::new(self.key)
            .free(false)
            .access(Access::all())
            .range(0, bytes as u64)
            .list(&[(self.memory.key, self.memory.at(0), bytes as u64)])
            .signatures(&plan.bsf(self.psvs))
    }

    /// Executes a request of side `a`.
    #[track_caller]
    pub(super) fn does(&mut self, wqe: &Wqe) {
        self.p.a.post(wqe);
        self.rig.run();
        let done = self.p.cq_a.expect();
        assert_eq!(done.opcode, CqeOpcode::Requester, "{done:?}");
    }

    /// Arms the PSVs for a plan.
    #[track_caller]
    pub(super) fn arm(&mut self, plan: &Plan) {
        for (domain, psv) in [plan.memory, plan.wire].into_iter().zip(self.psvs) {
            if let Some((kind, _)) = domain {
                self.does(&set_psv(psv, kind.seed()));
            }
        }
    }

    /// Gives the key a plan, after `errors` errors.
    #[track_caller]
    pub(super) fn plan(&mut self, plan: &Plan, bytes: usize, errors: u32) {
        let umr = self.configure(plan, bytes).errors_seen(errors);
        self.does(&umr.wqe());
        self.arm(plan);
    }

    pub(super) fn write(&self, bytes: usize) -> Wqe {
        Wqe::new(Opcode::RdmaWrite).remote(self.plain.at(0), self.plain.key).data(
            0,
            bytes as u32,
            self.key,
        )
    }

    pub(super) fn read(&self, bytes: usize) -> Wqe {
        Wqe::new(Opcode::RdmaRead).remote(self.plain.at(0), self.plain.key).data(
            0,
            bytes as u32,
            self.key,
        )
    }
}

/// A signature error, parsed by hand.
#[track_caller]
pub(super) fn error(completion: Option<Completion>) -> SignatureErrorCqe {
    let completion = completion.expect("a completion");
    assert_eq!(completion.opcode, CqeOpcode::SignatureError, "{completion:?}");
    zerocopy::transmute!(completion.cqe)
}

/// The two signatures of an error: the one found, and the one computed from the data.
pub(super) fn values(error: &SignatureErrorCqe) -> (u64, u64) {
    let join = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
    (
        join(error.expected_transaction_signature.get(), error.expected_reference_tag.get()),
        join(error.actual_transaction_signature.get(), error.actual_reference_tag.get()),
    )
}
