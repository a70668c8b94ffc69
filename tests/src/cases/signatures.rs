//! Keys with signed blocks: signatures that are added, checked, passed on and removed, and the
//! reports of those that do not match. This file computes the signatures once more, bit by bit.

use crate::prelude::*;
use mlx5::mkey::{
    BlockSize, Crc, Domain, Escape, Guard, Mkey, MkeyAccess, Seed, Side, Signature, SignatureBlock,
    SignatureBytes, SignatureCaps, SignatureError, SignatureErrorKind, T10Dif,
};
use mlx5::{MkeyRefusal, Opcode};
use std::time::{Duration, Instant};

pub(crate) const CASES: &[Case] = cases![
    the_checks_of_this_file_are_those_of_the_standards,
    t10_dif_is_added_on_the_way_out: DEVX | SIGNATURES,
    t10_dif_is_checked_and_removed_on_the_way_out: DEVX | SIGNATURES,
    crcs_are_added_in_every_block_size: DEVX | SIGNATURES,
    signatures_are_checked_and_removed_on_the_way_in: DEVX | SIGNATURES,
    a_signature_of_one_kind_becomes_one_of_another: DEVX | SIGNATURES,
    equal_signatures_are_passed_on: DEVX | SIGNATURES,
    bad_guard_is_reported_with_values_and_offset: DEVX | SIGNATURES,
    bad_tags_are_reported_with_values_and_offset: DEVX | SIGNATURES,
    bad_crc_is_reported_in_all_its_bits: DEVX | SIGNATURES,
    unselected_signature_fields_are_not_checked: DEVX | SIGNATURES,
    escaped_blocks_are_not_checked: DEVX | SIGNATURES,
    a_key_finds_errors_again_once_it_is_configured_again: DEVX | SIGNATURES,
    errors_wait_until_they_are_taken_and_none_is_lost: DEVX | SIGNATURES,
    error_of_a_destroyed_key_disturbs_no_other_key: DEVX | SIGNATURES,
    checking_polling_and_destroying_do_not_disturb_each_other: DEVX | SIGNATURES,
    a_signed_configuration_has_one_completion: DEVX | SIGNATURES,
    flushed_signed_configuration_is_reported_once: DEVX | SIGNATURES,
    a_key_that_is_no_longer_signed_carries_what_is_there: DEVX | SIGNATURES,
    signatures_that_cannot_be_are_refused_and_named: DEVX | SIGNATURES,
];

/// Polynomial, and whether bits are taken from the low end.
fn crc(polynomial: u64, width: u32, reflected: bool, seed: u64, data: &[u8]) -> u64 {
    let top = 1 << (width - 1);
    let mask = top | (top - 1);
    let mut crc = seed & mask;
    for byte in data {
        for bit in 0..8 {
            let bit = if reflected { byte >> bit & 1 } else { byte >> (7 - bit) & 1 };
            let out = if reflected { crc & 1 } else { u64::from(crc & top != 0) };
            crc = if reflected { crc >> 1 } else { crc << 1 & mask };
            if out ^ u64::from(bit) != 0 {
                crc ^= polynomial;
            }
        }
    }
    crc
}

fn t10_crc(seed: u16, data: &[u8]) -> u16 {
    crc(0x8bb7, 16, false, seed.into(), data) as u16
}

fn ip_checksum(seed: u16, data: &[u8]) -> u16 {
    let mut sum = u32::from(seed);
    for pair in data.chunks(2) {
        sum += u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| u32::from(*low));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

fn the_checks_of_this_file_are_those_of_the_standards(_: &Bed) -> Outcome {
    const CHECK: &[u8] = b"123456789";
    assert_eq!(t10_crc(0, CHECK), 0xd0db);
    let reflected = |polynomial, width, ones| !crc(polynomial, width, true, ones, CHECK) & ones;
    assert_eq!(reflected(0xedb8_8320, 32, 0xffff_ffff), 0xcbf4_3926);
    assert_eq!(reflected(0x82f6_3b78, 32, 0xffff_ffff), 0xe306_9283);
    assert_eq!(reflected(0x9a6c_9329_ac4b_c9b5, 64, u64::MAX), 0xae8b_1486_0a79_9888);
    // The example of RFC 1071.
    assert_eq!(!ip_checksum(0, &[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), 0xddf2);
    Ok(())
}

/// The signature bytes after the block with number `index`.
fn tuple(signature: Signature, index: u32, data: &[u8]) -> Vec<u8> {
    match signature {
        Signature::T10Dif(dif) => {
            let seed = if dif.seed == Seed::Ones { 0xffff } else { 0 };
            let guard = match dif.guard {
                Guard::Crc => t10_crc(seed, data),
                Guard::IpChecksum => ip_checksum(seed, data),
            };
            let more = if dif.increment_reference_tag { index } else { 0 };
            let tag = dif.reference_tag.wrapping_add(more);
            let tags = [&guard.to_be_bytes()[..], &dif.application_tag.to_be_bytes()];
            [&tags.concat()[..], &tag.to_be_bytes()].concat()
        }
        Signature::Crc(kind) => {
            let (polynomial, width, seed) = match kind {
                Crc::Crc32(seed) => (0xedb8_8320, 32, seed),
                Crc::Crc32c(seed) => (0x82f6_3b78, 32, seed),
                Crc::Crc64Xp10(seed) => (0x9a6c_9329_ac4b_c9b5, 64, seed),
            };
            let start = if seed == Seed::Ones { u64::MAX } else { 0 };
            let value = !crc(polynomial, width, true, start, data);
            // In the order in which RFC 3720 sends them, appendix B.4.
            value.to_le_bytes()[..width as usize / 8].to_vec()
        }
    }
}

/// Data in blocks, each with its signature.
fn signed(domain: Domain, data: &[u8]) -> Vec<u8> {
    let blocks = data.chunks(domain.block_size.bytes() as usize).enumerate();
    blocks
        .flat_map(|(i, block)| [block.to_vec(), tuple(domain.signature, i as u32, block)].concat())
        .collect()
}

const DIF: T10Dif = T10Dif {
    guard: Guard::Crc,
    seed: Seed::Zeros,
    application_tag: 0x5678,
    reference_tag: 0xffff_fffe,
    increment_reference_tag: true,
    escape: Escape::None,
};

const fn t10(dif: T10Dif) -> Domain {
    Domain { signature: Signature::T10Dif(dif), block_size: BlockSize::B512 }
}

const fn of(crc: Crc) -> Domain {
    Domain { signature: Signature::Crc(crc), block_size: BlockSize::B512 }
}

/// Checks that bytes are the expected ones.
///
/// # Panics
/// If they are not; the message names the first byte that differs.
#[track_caller]
fn same(found: &[u8], expected: &[u8], what: impl std::fmt::Debug) {
    assert_eq!(found.len(), expected.len(), "{what:?}");
    if let Some(at) = found.iter().zip(expected).position(|(a, b)| a != b) {
        let (found, expected) = (found[at], expected[at]);
        panic!("{what:?}: byte {at} is {found:#04x} and should be {expected:#04x}");
    }
}

/// Offset of signed data, on both sides.
const AT: usize = 0;
const BLOCKS: usize = 4;

/// A connection, and a key for signed blocks at its first end.
struct Rig<'a> {
    bed: &'a Bed,
    pair: Pair<Rc>,
    key: Mkey,
}

impl<'a> Rig<'a> {
    fn new(bed: &'a Bed) -> Result<Self, Failed> {
        let options = PairOptions::default().mkey_entries(4).memory(64 << 10);
        let pair = bed.pair::<Rc>(&options)?;
        let key = pair.a.pd.create_mkey(4).block_signature().build()?;
        Ok(Self { bed, pair, key })
    }

    /// Configures the key for `length` bytes of memory, signed like `block`.
    fn configure(&mut self, length: usize, block: &SignatureBlock) -> Outcome {
        let pieces = [self.pair.a.mr.sge(AT..AT + length)?];
        let mut batch = self.pair.a.qp.wr_start();
        let access = MkeyAccess::LOCAL_WRITE | MkeyAccess::REMOTE_READ | MkeyAccess::REMOTE_WRITE;
        let key = self.key.configure().access(access).layout_list(&pieces).signature(block);
        batch.wr(100, SendFlags::empty()).mkey_configure(key);
        Ok(batch.complete()?)
    }

    /// Sends `wire` bytes of the key, and returns the bytes that arrive.
    fn send(&mut self, wire: usize) -> Result<Vec<u8>, Failed> {
        let Pair { a, b } = &mut self.pair;
        b.mr.write_at(AT, &vec![0xee; wire])?;
        b.recv(1, AT..AT + wire);
        let mut batch = a.qp.wr_start();
        batch.wr(2, SendFlags::SIGNALED).send().sge(self.key.sge(0, wire as u32));
        batch.complete()?;
        self.bed.poll_good(&mut a.send_cq, 1);
        self.bed.poll_good(b.recv_cq(), 1);
        let mut found = vec![0; wire];
        b.mr.read_at(AT, &mut found)?;
        Ok(found)
    }

    /// Reads `wire` bytes of the other side into the key, and returns the memory.
    fn read(&mut self, wire: &[u8], memory: usize) -> Result<Vec<u8>, Failed> {
        let Pair { a, b } = &mut self.pair;
        b.mr.write_at(AT, wire)?;
        a.mr.write_at(AT, &vec![0xee; memory])?;
        let mut batch = a.qp.wr_start();
        let local = self.key.sge(0, wire.len() as u32);
        batch.wr(2, SendFlags::SIGNALED).rdma_read(b.mr.remote(AT..)?).sge(local);
        batch.complete()?;
        self.bed.poll_good(&mut a.send_cq, 1);
        let mut found = vec![0; memory];
        a.mr.read_at(AT, &mut found)?;
        Ok(found)
    }

    /// The first error that the key knows of.
    fn error(&mut self) -> Result<Option<SignatureError>, Failed> {
        // The device may report an error after the completion of the request in which it found it.
        self.bed.settle();
        self.bed.nothing_yet(&mut self.pair.a.send_cq);
        Ok(self.key.check()?)
    }

    #[track_caller]
    fn no_error(&mut self) {
        let error = self.error().unwrap_or_else(|failed| panic!("{failed:?}"));
        assert_eq!(error, None);
    }
}

/// Every kind of signature that the device supports for blocks of 512 bytes.
fn kinds(bed: &Bed) -> Result<impl Iterator<Item = Signature>, Failed> {
    let caps = bed.context().signature_caps()?;
    let seeds = [Seed::Zeros, Seed::Ones];
    let difs = [Guard::Crc, Guard::IpChecksum].into_iter().flat_map(move |guard| {
        seeds.map(|seed| {
            let increment = (guard == Guard::Crc) != (seed == Seed::Ones);
            let dif = T10Dif { guard, seed, increment_reference_tag: increment, ..DIF };
            Signature::T10Dif(dif)
        })
    });
    let crcs = crcs(caps).flat_map(move |kind| seeds.map(|seed| Signature::Crc(kind(seed))));
    Ok(difs.chain(crcs))
}

/// A kind of CRC that lacks only its seed.
type MakeCrc = fn(Seed) -> Crc;

/// Every CRC that the device supports.
fn crcs(caps: SignatureCaps) -> impl Iterator<Item = MakeCrc> {
    let known: [(SignatureCaps, MakeCrc); 3] = [
        (SignatureCaps::BLOCKS, Crc::Crc32),
        (SignatureCaps::CRC32C, Crc::Crc32c),
        (SignatureCaps::CRC64_XP10, Crc::Crc64Xp10),
    ];
    known.into_iter().filter(move |(cap, _)| caps.contains(*cap)).map(|(_, crc)| crc)
}

fn t10_dif_is_added_on_the_way_out(bed: &Bed) -> Outcome {
    for signature in kinds(bed)? {
        let mut rig = Rig::new(bed)?;
        let data = pattern(3, 512 * BLOCKS);
        rig.pair.a.mr.write_at(AT, &data)?;
        let domain = Domain { signature, block_size: BlockSize::B512 };
        rig.configure(data.len(), &SignatureBlock::new().wire(domain))?;
        let expected = signed(domain, &data);
        same(&rig.send(expected.len())?, &expected, signature);
        rig.no_error();
    }
    Ok(())
}

fn t10_dif_is_checked_and_removed_on_the_way_out(bed: &Bed) -> Outcome {
    for signature in kinds(bed)? {
        let mut rig = Rig::new(bed)?;
        let data = pattern(4, 512 * BLOCKS);
        let domain = Domain { signature, block_size: BlockSize::B512 };
        let memory = signed(domain, &data);
        rig.pair.a.mr.write_at(AT, &memory)?;
        rig.configure(memory.len(), &SignatureBlock::new().memory(domain))?;
        same(&rig.send(data.len())?, &data, signature);
        rig.no_error();
    }
    Ok(())
}

fn crcs_are_added_in_every_block_size(bed: &Bed) -> Outcome {
    let sizes = [
        BlockSize::B512,
        BlockSize::B520,
        BlockSize::B4048,
        BlockSize::B4096,
        BlockSize::B4160,
    ];
    let large = bed.context().signature_caps()?.contains(SignatureCaps::BLOCK_4048);
    for block_size in sizes.into_iter().filter(|size| large || *size != BlockSize::B4048) {
        for signature in [Signature::Crc(Crc::Crc32(Seed::Ones)), Signature::T10Dif(DIF)] {
            let mut rig = Rig::new(bed)?;
            let data = pattern(5, block_size.bytes() as usize * 3);
            rig.pair.a.mr.write_at(AT, &data)?;
            let domain = Domain { signature, block_size };
            rig.configure(data.len(), &SignatureBlock::new().wire(domain))?;
            let expected = signed(domain, &data);
            same(&rig.send(expected.len())?, &expected, block_size);
        }
    }
    Ok(())
}

fn signatures_are_checked_and_removed_on_the_way_in(bed: &Bed) -> Outcome {
    for signature in kinds(bed)? {
        let mut rig = Rig::new(bed)?;
        let data = pattern(6, 512 * BLOCKS);
        let domain = Domain { signature, block_size: BlockSize::B512 };
        rig.configure(data.len(), &SignatureBlock::new().wire(domain))?;
        same(&rig.read(&signed(domain, &data), data.len())?, &data, signature);
        rig.no_error();
    }
    Ok(())
}

fn a_signature_of_one_kind_becomes_one_of_another(bed: &Bed) -> Outcome {
    let mut rig = Rig::new(bed)?;
    let data = pattern(7, 512 * BLOCKS);
    let (from, to) = (t10(DIF), of(Crc::Crc32(Seed::Ones)));
    let memory = signed(from, &data);
    rig.pair.a.mr.write_at(AT, &memory)?;
    rig.configure(memory.len(), &SignatureBlock::new().memory(from).wire(to))?;
    let expected = signed(to, &data);
    same(&rig.send(expected.len())?, &expected, "sent");
    rig.no_error();
    rig.configure(memory.len(), &SignatureBlock::new().memory(from).wire(to))?;
    same(&rig.read(&expected, memory.len())?, &memory, "read");
    rig.no_error();
    Ok(())
}

fn equal_signatures_are_passed_on(bed: &Bed) -> Outcome {
    let mut rig = Rig::new(bed)?;
    let data = pattern(8, 512 * BLOCKS);
    // The guard is wrong for this data, but the key does not check it.
    let mut memory = signed(t10(DIF), &data);
    memory[512] ^= 0xff;
    rig.pair.a.mr.write_at(AT, &memory)?;
    let block = SignatureBlock::new()
        .memory(t10(DIF))
        .wire(t10(DIF))
        .check(SignatureBytes::APPLICATION_TAG | SignatureBytes::REFERENCE_TAG)
        .copy(SignatureBytes::ALL);
    rig.configure(memory.len(), &block)?;
    same(&rig.send(memory.len())?, &memory, "passed on");
    rig.no_error();
    // The tags change, and the guard stays.
    let other = T10Dif { application_tag: 0x1111, reference_tag: 0, ..DIF };
    let block = SignatureBlock::new().memory(t10(DIF)).wire(t10(other));
    memory[512] ^= 0xff;
    rig.pair.a.mr.write_at(AT, &memory)?;
    rig.configure(memory.len(), &block)?;
    same(&rig.send(memory.len())?, &signed(t10(other), &data), "changed");
    rig.no_error();
    Ok(())
}

fn bad_guard_is_reported_with_values_and_offset(bed: &Bed) -> Outcome {
    for bad in 0..BLOCKS {
        let mut rig = Rig::new(bed)?;
        let data = pattern(9, 512 * BLOCKS);
        let mut memory = signed(t10(DIF), &data);
        memory[bad * 520 + 100] ^= 1;
        rig.pair.a.mr.write_at(AT, &memory)?;
        rig.configure(memory.len(), &SignatureBlock::new().memory(t10(DIF)))?;
        // The transfer succeeds: its completion does not report the error.
        rig.send(data.len())?;
        let error = rig.error()?.expect("a bad guard");
        let block = &memory[bad * 520..bad * 520 + 512];
        assert_eq!(error.kind, SignatureErrorKind::Guard);
        assert_eq!(error.side, Side::Memory);
        assert_eq!(error.actual, u64::from(t10_crc(0, block)));
        assert_eq!(error.expected, u64::from(t10_crc(0, &data[bad * 512..bad * 512 + 512])));
        assert_eq!(error.offset / 520, bad as u64, "{error}");
        rig.no_error();
    }
    Ok(())
}

fn bad_tags_are_reported_with_values_and_offset(bed: &Bed) -> Outcome {
    let tags = [
        (2, SignatureErrorKind::ApplicationTag, 0x5778, 0x5678),
        (4, SignatureErrorKind::ReferenceTag, 0xfeff_ffff, 0xffff_ffff),
    ];
    for (byte, kind, expected, actual) in tags {
        let mut rig = Rig::new(bed)?;
        let data = pattern(10, 512 * BLOCKS);
        let mut memory = signed(t10(DIF), &data);
        memory[520 + 512 + byte] ^= 1;
        rig.pair.a.mr.write_at(AT, &memory)?;
        rig.configure(memory.len(), &SignatureBlock::new().memory(t10(DIF)))?;
        rig.send(data.len())?;
        let error = rig.error()?.expect("a bad tag");
        assert_eq!((error.kind, error.expected, error.actual), (kind, expected, actual));
    }
    Ok(())
}

fn bad_crc_is_reported_in_all_its_bits(bed: &Bed) -> Outcome {
    for kind in crcs(bed.context().signature_caps()?) {
        let mut rig = Rig::new(bed)?;
        let domain = of(kind(Seed::Ones));
        let data = pattern(11, 512 * BLOCKS);
        let mut wire = signed(domain, &data);
        let at = 2 * (512 + domain.signature.bytes() as usize);
        wire[at + 7] ^= 0x40;
        rig.configure(data.len(), &SignatureBlock::new().wire(domain))?;
        rig.read(&wire, data.len())?;
        let error = rig.error()?.expect("a bad CRC");
        let number =
            |bytes: Vec<u8>| bytes.iter().rfold(0, |n: u64, byte| n << 8 | u64::from(*byte));
        let found = number(tuple(domain.signature, 2, &data[1024..1536]));
        let right = number(tuple(domain.signature, 2, &wire[at..at + 512]));
        assert_eq!((error.kind, error.side), (SignatureErrorKind::Guard, Side::Wire));
        assert_eq!((error.expected, error.actual), (found, right), "{domain:?}");
    }
    Ok(())
}

fn unselected_signature_fields_are_not_checked(bed: &Bed) -> Outcome {
    let mut rig = Rig::new(bed)?;
    let data = pattern(12, 512 * BLOCKS);
    let mut memory = signed(t10(DIF), &data);
    memory[512 + 4] ^= 1;
    rig.pair.a.mr.write_at(AT, &memory)?;
    let check = SignatureBytes::GUARD | SignatureBytes::APPLICATION_TAG;
    rig.configure(memory.len(), &SignatureBlock::new().memory(t10(DIF)).check(check))?;
    rig.send(data.len())?;
    rig.no_error();
    rig.configure(memory.len(), &SignatureBlock::new().memory(t10(DIF)))?;
    rig.send(data.len())?;
    assert!(rig.error()?.is_some());
    Ok(())
}

fn escaped_blocks_are_not_checked(bed: &Bed) -> Outcome {
    let escapes = [
        (Escape::None, [true, true]),
        (Escape::ApplicationTag, [false, false]),
        (Escape::ApplicationAndReferenceTag, [true, false]),
    ];
    for (escape, found) in escapes {
        for (reference, bad) in [0x1234_5678_u32, u32::MAX].into_iter().zip(found) {
            let mut rig = Rig::new(bed)?;
            let dif = T10Dif { escape, reference_tag: 1, ..DIF };
            let data = pattern(13, 512 * BLOCKS);
            let mut memory = signed(t10(dif), &data);
            memory[512..514].copy_from_slice(&[0xab; 2]);
            memory[514..516].copy_from_slice(&[0xff; 2]);
            memory[516..520].copy_from_slice(&reference.to_be_bytes());
            rig.pair.a.mr.write_at(AT, &memory)?;
            rig.configure(memory.len(), &SignatureBlock::new().memory(t10(dif)))?;
            rig.send(data.len())?;
            assert_eq!(rig.error()?.is_some(), bad, "{escape:?} {reference:#x}");
        }
    }
    Ok(())
}

fn a_key_finds_errors_again_once_it_is_configured_again(bed: &Bed) -> Outcome {
    let mut rig = Rig::new(bed)?;
    let data = pattern(14, 512 * BLOCKS);
    let good = signed(t10(DIF), &data);
    let mut bad = good.clone();
    bad[3] ^= 1;
    let block = SignatureBlock::new().memory(t10(DIF));
    rig.configure(good.len(), &block)?;
    for turn in 0..6 {
        rig.pair.a.mr.write_at(AT, &bad)?;
        rig.send(data.len())?;
        assert!(rig.error()?.is_some(), "turn {turn}");
        if turn % 2 == 0 {
            rig.configure(good.len(), &block)?;
        } else {
            // The key stays signed as before, and its variables start again.
            let mut batch = rig.pair.a.qp.wr_start();
            batch.wr(1, SendFlags::empty()).mkey_configure(rig.key.configure());
            batch.complete()?;
        }
        assert_eq!(rig.key.signature(), Some(block));
        rig.pair.a.mr.write_at(AT, &good)?;
        rig.send(data.len())?;
        rig.no_error();
        // Each transfer begins with the first block.
        rig.configure(good.len(), &block)?;
    }
    Ok(())
}

fn errors_wait_until_they_are_taken_and_none_is_lost(bed: &Bed) -> Outcome {
    let mut rig = Rig::new(bed)?;
    let data = pattern(15, 512 * BLOCKS);
    let memory = signed(t10(DIF), &data);
    let block = SignatureBlock::new().memory(t10(DIF));
    for bad in 0..BLOCKS {
        let mut memory = memory.clone();
        memory[bad * 520] ^= 1;
        rig.pair.a.mr.write_at(AT, &memory)?;
        rig.configure(memory.len(), &block)?;
        rig.send(data.len())?;
        bed.nothing(&mut rig.pair.a.send_cq);
        assert_eq!(rig.key.errors(), bad as u64 + 1);
    }
    for bad in 0..BLOCKS as u64 {
        assert_eq!(rig.key.check()?.expect("kept").offset / 520, bad);
    }
    rig.no_error();
    Ok(())
}

fn error_of_a_destroyed_key_disturbs_no_other_key(bed: &Bed) -> Outcome {
    let mut rig = Rig::new(bed)?;
    let data = pattern(16, 512 * BLOCKS);
    let mut memory = signed(t10(DIF), &data);
    memory[0] ^= 1;
    rig.pair.a.mr.write_at(AT, &memory)?;
    rig.configure(memory.len(), &SignatureBlock::new().memory(t10(DIF)))?;
    let Pair { a, b } = &mut rig.pair;
    b.recv(1, AT..AT + data.len());
    let mut batch = a.qp.wr_start();
    batch.wr(2, SendFlags::SIGNALED).send().sge(rig.key.sge(0, data.len() as u32));
    batch.complete()?;
    bed.poll_good(b.recv_cq(), 1);
    bed.settle();
    rig.key.destroy()?;
    assert_eq!(wr_ids(&bed.poll_good(&mut a.send_cq, 1)), [2]);
    bed.nothing(&mut a.send_cq);
    Ok(())
}

fn checking_polling_and_destroying_do_not_disturb_each_other(bed: &Bed) -> Outcome {
    let mut rig = Rig::new(bed)?;
    let data = pattern(17, 512);
    let mut memory = signed(t10(DIF), &data);
    memory[0] ^= 1;
    rig.pair.a.mr.write_at(AT, &memory)?;
    let block = SignatureBlock::new().memory(t10(DIF));
    for turn in 0..40 {
        rig.configure(memory.len(), &block)?;
        let key = &rig.key;
        let Pair { a, b } = &mut rig.pair;
        b.recv(1, AT..AT + 512);
        let mut batch = a.qp.wr_start();
        batch.wr(turn, SendFlags::SIGNALED).send().sge(key.sge(0, 512));
        batch.complete()?;
        // One thread checks while another polls.
        let found = std::thread::scope(|scope| {
            let checker = scope.spawn(|| {
                let start = Instant::now();
                loop {
                    let error = key.check().expect("a signed key");
                    if error.is_some() || start.elapsed() > Duration::from_secs(20) {
                        return error;
                    }
                    std::thread::yield_now();
                }
            });
            bed.poll_good(&mut a.send_cq, 1);
            bed.poll_good(b.recv_cq(), 1);
            while !checker.is_finished() {
                bed.nothing_yet(&mut a.send_cq);
            }
            checker.join().expect("no panic")
        });
        assert_eq!(found.expect("found").kind, SignatureErrorKind::Guard);
        // One is destroyed while others are in use.
        let next = rig.pair.a.pd.create_mkey(4).block_signature().build()?;
        std::mem::replace(&mut rig.key, next).destroy()?;
    }
    Ok(())
}

fn a_signed_configuration_has_one_completion(bed: &Bed) -> Outcome {
    for all in [false, true] {
        let options = PairOptions::default().mkey_entries(4).sq_sig_all(all);
        let mut pair = bed.pair::<Rc>(&options)?;
        let key = pair.a.pd.create_mkey(4).block_signature().build()?;
        let pieces = [pair.a.mr.sge(0..2048)?];
        let domains = [
            SignatureBlock::new().memory(t10(DIF)),
            SignatureBlock::new().wire(t10(DIF)),
            SignatureBlock::new().memory(t10(DIF)).wire(of(Crc::Crc32(Seed::Zeros))),
        ];
        for (wr_id, block) in (7..).zip(&domains) {
            let mut batch = pair.a.qp.wr_start();
            let flags = if all { SendFlags::empty() } else { SendFlags::SIGNALED };
            batch
                .wr(wr_id, flags)
                .mkey_configure(key.configure().layout_list(&pieces).signature(block));
            assert_eq!(batch.len(), 1);
            batch.complete()?;
            let done = bed.poll_good(&mut pair.a.send_cq, 1)[0];
            let done = done.as_completion();
            assert_eq!((done.wr_id(), done.opcode()), (wr_id, CompletionOpcode::Other(Opcode::Umr)));
            bed.nothing(&mut pair.a.send_cq);
        }
        assert_eq!(pair.a.qp.free_send_blocks(), pair.a.qp.caps().send_blocks);
    }
    Ok(())
}

fn flushed_signed_configuration_is_reported_once(bed: &Bed) -> Outcome {
    let mut rig = Rig::new(bed)?;
    let block = SignatureBlock::new().memory(t10(DIF)).wire(t10(DIF));
    rig.configure(2080, &block)?;
    rig.send(2080)?;
    // Requests after one that fails are flushed.
    let pieces = [rig.pair.a.mr.sge(0..2080)?];
    let mut batch = rig.pair.a.qp.wr_start();
    let bad = Sge { addr: 0, length: 8, lkey: 0xdead_be00 };
    batch.wr(1, SendFlags::SIGNALED).send().sge(bad);
    for wr_id in [2, 3] {
        let key = rig.key.configure().layout_list(&pieces).signature(&block);
        batch.wr(wr_id, SendFlags::SIGNALED).mkey_configure(key);
    }
    batch.wr(4, SendFlags::SIGNALED).nop();
    batch.complete()?;
    let failed = bed.poll(&mut rig.pair.a.send_cq, 4);
    assert_eq!(syndrome(&failed[0]), Some(Syndrome::LocalProtection));
    assert_eq!(flushed(&failed[1..]), [2, 3, 4]);
    bed.nothing(&mut rig.pair.a.send_cq);
    let qp = &rig.pair.a.qp;
    assert_eq!(qp.free_send_blocks(), qp.caps().send_blocks);
    Ok(())
}

fn a_key_that_is_no_longer_signed_carries_what_is_there(bed: &Bed) -> Outcome {
    let mut rig = Rig::new(bed)?;
    let data = pattern(18, 512 * BLOCKS);
    let memory = signed(t10(DIF), &data);
    rig.pair.a.mr.write_at(AT, &memory)?;
    rig.configure(memory.len(), &SignatureBlock::new().memory(t10(DIF)))?;
    same(&rig.send(data.len())?, &data, "stripped");
    let mut batch = rig.pair.a.qp.wr_start();
    batch.wr(1, SendFlags::empty()).mkey_configure(rig.key.configure().reset_signature());
    batch.complete()?;
    assert_eq!(rig.key.signature(), None);
    same(&rig.send(memory.len())?, &memory, "passed on");
    Ok(())
}

fn signatures_that_cannot_be_are_refused_and_named(bed: &Bed) -> Outcome {
    let mut rig = Rig::new(bed)?;
    let plain = rig.pair.a.pd.create_mkey(4).build()?;
    let huge = [Sge { addr: 0, length: 0x7fff_ffff, lkey: 0 }; 3];
    let longest = [0x7fff_ffff, 0x7fff_ffff, 1].map(|length| Sge { addr: 0, length, lkey: 0 });
    let both = SignatureBlock::new().memory(t10(DIF)).wire(of(Crc::Crc32(Seed::Ones)));
    let copied = both.copy(SignatureBytes::ALL);
    let cases = [
        (plain.configure().signature(&both), MkeyRefusal::NotForSignatures),
        (rig.key.configure().signature(&SignatureBlock::new()), MkeyRefusal::NoDomain),
        (rig.key.configure().signature(&copied), MkeyRefusal::CopyMask),
        (rig.key.configure().layout_list(&huge).signature(&both), MkeyRefusal::TooLong),
    ];
    for (configure, refusal) in cases {
        let mut batch = rig.pair.a.qp.wr_start();
        batch.wr(1, SendFlags::empty()).mkey_configure(configure);
        assert_eq!(batch.complete().expect_err("refused").error(), PostError::Mkey(refusal));
    }
    let mut batch = rig.pair.a.qp.wr_start();
    let configure = rig.key.configure().layout_list(&longest).signature(&both);
    batch.wr(1, SendFlags::empty()).mkey_configure(configure);
    assert_eq!(batch.len(), 1, "as much as a signature reaches");
    batch.abort();
    assert_eq!((rig.key.signature(), rig.key.length()), (None, None));
    let error = plain.check().expect_err("no signatures");
    assert!(error.to_string().contains("block_signature"), "{error}");
    Ok(())
}
