//! The requests that both sides post.

use mlx5::mkey::{
    BlockSize, Crc, Domain, Escape, Guard, Interleaved, Seed, Signature, SignatureBytes, T10Dif,
};
use mlx5::{MaskedOperands, RemoteAddress, Sge};
use mlx5_prm::signature::SignatureErrorCqe;

use crate::compare::EXTENDED;

mod request;
mod text;

use request::Block;
pub(super) use request::{BadSignature, Batch, KEYS, Layout, Line, Operation, Signing};

/// `count` pieces, all different.
fn pieces(count: u32) -> Vec<Sge> {
    let piece = |n: u32| Sge {
        addr: 0x7f12_3456_0000 + u64::from(n) * 0x1001,
        length: 512 + n * 8,
        lkey: 0x0a0b_0000 + n,
    };
    (0..count).map(piece).collect()
}

/// `count` places, all different, in turns.
fn turns(repeat: u32, count: u32) -> Layout {
    let turn = |n: u32| Interleaved {
        addr: 0x7f65_4321_0000 + u64::from(n) * 0x2003,
        bytes: 64 + n * 4,
        skip: 8 * n,
        lkey: 0x0c0d_0000 + n,
    };
    Layout::Turns(repeat, (0..count).map(turn).collect())
}

/// T10-DIF with every guard, seed and escape.
fn difs() -> Vec<T10Dif> {
    let mut difs = Vec::new();
    for guard in [Guard::Crc, Guard::IpChecksum] {
        for seed in [Seed::Zeros, Seed::Ones] {
            for escape in [Escape::None, Escape::ApplicationTag, Escape::ApplicationAndReferenceTag]
            {
                difs.push(T10Dif {
                    guard,
                    seed,
                    application_tag: 0x1234 + difs.len() as u16,
                    reference_tag: 0x5678_9abc + difs.len() as u32,
                    increment_reference_tag: difs.len() % 2 == 0,
                    escape,
                });
            }
        }
    }
    difs
}

/// Ways to sign: each signature in memory, on the wire and in both, each block size, and pairs of
/// signatures with every reason to copy bytes or not.
fn blocks() -> Vec<Block> {
    let sizes =
        [BlockSize::B512, BlockSize::B520, BlockSize::B4048, BlockSize::B4096, BlockSize::B4160];
    let mut signatures: Vec<_> = difs().into_iter().map(Signature::T10Dif).collect();
    for seed in [Seed::Zeros, Seed::Ones] {
        let crcs = [Crc::Crc32(seed), Crc::Crc32c(seed), Crc::Crc64Xp10(seed)];
        signatures.extend(crcs.map(Signature::Crc));
    }
    let masks = [
        SignatureBytes::ALL,
        SignatureBytes::GUARD,
        SignatureBytes::APPLICATION_TAG | SignatureBytes::REFERENCE_TAG,
        SignatureBytes::CRC32,
        SignatureBytes::empty(),
    ];
    let mut blocks = Vec::new();
    let mut add = |memory, wire, copy| {
        let check = masks[blocks.len() % masks.len()];
        blocks.push(Block { memory, wire, check, copy });
    };
    for (n, signature) in signatures.iter().enumerate() {
        let (signature, block_size) = (*signature, sizes[n % sizes.len()]);
        let domain = Domain { signature, block_size };
        add(Some(domain), None, None);
        add(None, Some(domain), None);
        add(Some(domain), Some(domain), None);
        add(Some(domain), Some(domain), Some(masks[n % masks.len()]));
        // Other signatures, in blocks of the same size and of another.
        for step in [1, 2, 5, 7] {
            let other = signatures[(n + step) % signatures.len()];
            add(Some(domain), Some(Domain { signature: other, block_size }), None);
        }
        let block_size = sizes[(n + 1) % sizes.len()];
        add(Some(domain), Some(Domain { signature, block_size }), None);
    }
    // T10-DIF that differs in one field alone.
    let base = difs()[0];
    let variants = [
        T10Dif { guard: Guard::IpChecksum, ..base },
        T10Dif { seed: Seed::Ones, ..base },
        T10Dif { application_tag: 0, ..base },
        T10Dif { reference_tag: 0, ..base },
        T10Dif { increment_reference_tag: false, ..base },
        T10Dif { escape: Escape::ApplicationTag, ..base },
    ];
    for dif in variants {
        let domain =
            |dif| Domain { signature: Signature::T10Dif(dif), block_size: BlockSize::B512 };
        add(Some(domain(base)), Some(domain(dif)), None);
    }
    blocks
}

const FLAGS: [&str; 2] = ["S", "SF"];

struct Table {
    batches: Vec<Batch>,
    next: u64,
    extended: bool,
}

impl Table {
    fn line(&mut self, flags: &'static str, operation: Operation) -> Line {
        self.next += 1;
        let srqn = self.extended.then_some(0x00a0_b000 + self.next as u32 % 0xfff);
        Line { wr_id: self.next, flags, srqn, operation }
    }

    fn batch(&mut self, builder: bool, operations: Vec<(&'static str, Operation)>) {
        let lines = operations.into_iter().map(|(flags, one)| self.line(flags, one)).collect();
        self.batches.push(Batch { builder, found: None, lines });
    }

    fn keys(&mut self) {
        let configure =
            |key, access, layout, signing| Operation::Configure { key, access, layout, signing };
        let one = |table: &mut Self, operation| {
            let flags = FLAGS[table.batches.len() % 2];
            table.batch(true, vec![(flags, operation)]);
        };
        // Each key as it is after its creation, and then once more; rights, one by one and
        // together.
        for key in 0..KEYS.len() {
            for _ in 0..2 {
                one(self, configure(key, Some(7), Layout::Keep, Signing::Keep));
            }
            for bits in 0..16 {
                one(self, configure(key, Some(bits), Layout::Keep, Signing::Keep));
            }
            one(self, configure(key, None, Layout::Keep, Signing::Keep));
            one(self, configure(key, None, Layout::Keep, Signing::Reset));
        }
        // Layouts of every number of entries, so that requests of many sizes meet the ring's end.
        for (key, (entries, _)) in KEYS.into_iter().enumerate() {
            for count in 1..=entries {
                let list = Layout::List(pieces(count));
                one(self, configure(key, Some(1), list, Signing::Keep));
            }
            for count in 1..entries {
                let layout = turns(count * 3, count);
                one(self, configure(key, None, layout, Signing::Keep));
            }
        }
        // Signatures: set with a layout and without, kept, set again, reset.
        for (n, block) in blocks().into_iter().enumerate() {
            let set = Signing::Set(block);
            let count = n as u32 % 16 + 1;
            one(self, configure(1, Some(n as u32 % 16), Layout::List(pieces(count)), set));
            one(self, configure(2, None, Layout::Keep, set));
            match n % 4 {
                0 => one(self, configure(1, Some(5), Layout::Keep, Signing::Keep)),
                1 => one(self, configure(1, None, Layout::List(pieces(3)), Signing::Keep)),
                2 => one(self, configure(1, None, turns(7, 3), Signing::Reset)),
                _ => one(self, configure(2, None, turns(9, 2), set)),
            }
        }
        // Together with requests that wait for them.
        for (n, block) in blocks().into_iter().enumerate().step_by(13) {
            let first = ["-", "F"][n % 2];
            let layout = Layout::List(pieces(2));
            let set = configure(1, Some(1), layout.clone(), Signing::Set(block));
            let plain = configure(0, Some(7), layout, Signing::Keep);
            let send = || Operation::Send(pieces(1));
            self.batch(true, vec![(first, set), (FLAGS[n / 13 % 2], send())]);
            self.batch(true, vec![("-", send()), (first, plain), ("-", send()), ("S", send())]);
        }
    }

    fn operations(&mut self, builder: bool) {
        let remote = RemoteAddress { addr: 0x1122_3344_5566_7788, rkey: 0x99aa_bbcc };
        let to = [Sge { addr: 0x7f00_0000_1000, length: 8, lkey: 0x0102_0304 }];
        let (compare, swap) = (0x0123_4567_89ab_cdef, 0x0fed_cba9_8765_4321);
        for flags in ["S", "SF"] {
            let mut all = vec![
                Operation::CompareSwap { remote, compare, swap, to },
                Operation::FetchAdd { remote, add: 0x1234_5678_9abc_def0 & (u64::MAX >> 1), to },
                Operation::LocalInvalidate(0x0badcafe),
            ];
            all.extend((0..=8).map(|n| Operation::SendInvalidate(0x1234_5600 + n, pieces(n))));
            for operation in all {
                self.batch(builder, vec![(flags, operation)]);
            }
        }
        self.batch(builder, vec![("SO", Operation::SendInvalidate(7, pieces(2)))]);
        self.batch(builder, vec![("SOF", Operation::SendInvalidate(7, pieces(2)))]);
        for flags in ["-", "F"] {
            // Requests after an invalidation, which wait for it.
            self.batch(
                builder,
                vec![
                    (flags, Operation::LocalInvalidate(0x0000_0700)),
                    (flags, Operation::SendInvalidate(9, pieces(1))),
                    (flags, Operation::FetchAdd { remote, add: 1, to }),
                    ("S", Operation::CompareSwap { remote, compare: 0, swap: 1, to }),
                ],
            );
        }
    }

    /// Signs a key, has the device find a bad signature, and uses the key again: as it was, signed
    /// again, or no longer signed. Then once more without an error, because the device reports an
    /// error count only once.
    fn bad_signatures(&mut self) {
        let configure =
            |key, access, layout, signing| Operation::Configure { key, access, layout, signing };
        let syndromes = [
            SignatureErrorCqe::GUARD,
            SignatureErrorCqe::REFERENCE_TAG,
            SignatureErrorCqe::APPLICATION_TAG,
            SignatureErrorCqe::GUARD | SignatureErrorCqe::APPLICATION_TAG,
            SignatureErrorCqe::REFERENCE_TAG | SignatureErrorCqe::APPLICATION_TAG,
        ];
        for (n, block) in blocks().into_iter().enumerate() {
            let (key, set) = (1 + n % 2, Signing::Set(block));
            let layout = Layout::List(pieces(3));
            self.batch(true, vec![("S", configure(key, Some(1), layout, set))]);
            let again = match n % 5 {
                0 => configure(key, Some(3), Layout::Keep, Signing::Keep),
                1 => configure(key, None, Layout::Keep, set),
                2 => configure(key, None, Layout::List(pieces(2)), Signing::Keep),
                3 => configure(key, None, Layout::Keep, Signing::Reset),
                _ => configure(key, Some(1), turns(5, 2), set),
            };
            self.batch(true, vec![(FLAGS[n % 2], again)]);
            // The domain has a signature. Each of the entry's words has another value, so that a
            // swap would show.
            let memory = block.memory.is_some() && (block.wire.is_none() || n % 3 == 0);
            let words = (0..4).flat_map(|word| {
                (0xa0b1_c2d3_u32 + n as u32 * 7 + word * 0x0101_0101).to_be_bytes()
            });
            let mut entry = vec![0; 16];
            entry.extend(words);
            entry.extend(syndromes[n % syndromes.len()].to_be_bytes());
            entry.extend([0, u8::from(memory), 0, 0, 0, 0]);
            entry.extend((n as u64 * 520).to_be_bytes());
            entry.resize(63, 0);
            let last = self.batches.last_mut().expect("one was added");
            last.found = Some(BadSignature { key, entry });
            let after = configure(key, Some(7), Layout::Keep, Signing::Keep);
            self.batch(true, vec![("S", after)]);
        }
    }

    /// Windows of both types: every right, places and lengths that differ, and requests that wait
    /// for them.
    fn windows(&mut self, builder: bool) {
        let mut n = 0;
        for rights in 0..16 {
            for range in [0..4096, 1..2, 8 * rights as usize..4000] {
                n += 1;
                let flags = FLAGS[n % 2];
                self.batch(builder, vec![(flags, Operation::Bind(range, rights))]);
            }
        }
        for flags in ["-", "F"] {
            let bind = |rights| Operation::Bind(16..64, rights);
            let send = || Operation::Send(pieces(2));
            let mut batch = vec![
                (flags, bind(2)),
                ("-", send()),
                (flags, Operation::LocalInvalidate(0x700)),
                ("S", send()),
            ];
            // A list cannot bind a window twice: the caller has to change its key between lists.
            if builder {
                batch.splice(2..2, [(flags, bind(4)), ("F", bind(6))]);
            }
            self.batch(builder, batch);
        }
        if builder {
            return;
        }
        for rights in 0..16 {
            let call = Operation::BindCall(rights as usize..2048, rights);
            self.batch(false, vec![(FLAGS[rights as usize % 2], call)]);
        }
        for flags in FLAGS {
            self.batch(false, vec![(flags, Operation::BindCall(0..0, 0))]);
        }
    }

    /// Operations that rdma-core has no requests for.
    fn masked(&mut self) {
        let remote = RemoteAddress { addr: 0x1122_3344_5566_7788, rkey: 0x99aa_bbcc };
        let to = [Sge { addr: 0x7f00_0000_1000, length: 8, lkey: 0x0102_0304 }];
        let operands = MaskedOperands {
            compare: 0x0123_4567_89ab_cdef,
            compare_mask: 0xffff_0000_ff00_f0f0,
            swap: 0x0fed_cba9_8765_4321,
            swap_mask: 0x00ff_00ff_0f0f_ffff,
        };
        let (add, boundary) = (0x1234_5678_9abc_def0, 0x8000_8000_0000_8080);
        for flags in FLAGS {
            let all = [
                Operation::MaskedCompareSwap { remote, operands, to },
                Operation::MaskedFetchAdd { remote, add, boundary, to },
            ];
            for operation in all {
                self.batch(true, vec![(flags, operation)]);
            }
        }
    }

    /// All operations of an extended connection, of every size, each for a queue of its own.
    fn extended(&mut self, builder: bool) {
        let remote = RemoteAddress { addr: 0x1122_3344_5566_7788, rkey: 0x99aa_bbcc };
        let to = [Sge { addr: 0x7f00_0000_1000, length: 8, lkey: 0x0102_0304 }];
        let (compare, swap) = (0x0123_4567_89ab_cdef, 0x0fed_cba9_8765_4321);
        for flags in FLAGS {
            for n in 0..=8 {
                let all = [
                    Operation::Send(pieces(n)),
                    Operation::SendImm(0x0a0b_0c00 + n, pieces(n)),
                    Operation::SendInvalidate(0x1234_5600 + n, pieces(n)),
                    Operation::Write(remote, pieces(n)),
                    Operation::WriteImm(remote, 0x0d0e_0f00 + n, pieces(n)),
                    Operation::Read(remote, pieces(n)),
                ];
                all.into_iter().for_each(|one| self.batch(builder, vec![(flags, one)]));
            }
            for length in [1, 4, 12, 13, 28, 32, 60, 100, 256] {
                let bytes = (0..length).map(|n| n as u8 ^ 0x5a).collect();
                self.batch(builder, vec![(flags, Operation::SendInline(bytes))]);
            }
            let atomics = [
                Operation::CompareSwap { remote, compare, swap, to },
                Operation::FetchAdd { remote, add: 0x1234_5678_9abc_def0, to },
            ];
            atomics.into_iter().for_each(|one| self.batch(builder, vec![(flags, one)]));
        }
        self.batch(builder, vec![("SO", Operation::SendImm(7, pieces(2)))]);
        self.batch(
            builder,
            vec![
                ("-", Operation::Send(pieces(1))),
                ("F", Operation::Read(remote, pieces(3))),
                ("-", Operation::FetchAdd { remote, add: 1, to }),
                ("S", Operation::Write(remote, pieces(1))),
            ],
        );
    }

    fn raw(&mut self) {
        // NOPs of 1 to 8 units, with all fields that posting does not change.
        for units in 1..=8_u8 {
            for flags in FLAGS {
                let mut wqe = vec![0x5a; usize::from(units) * 16];
                wqe[..16].fill(0);
                wqe[7] = units;
                wqe[11] = 8;
                self.batch(true, vec![(flags, Operation::Raw(wqe))]);
            }
        }
    }
}

/// The requests that one queue pair posts, in order.
pub(super) struct Section {
    pub(super) name: &'static str,
    /// Whether it is an extended connection.
    pub(super) extended: bool,
    pub(super) batches: Vec<Batch>,
    /// The identifiers of the requests to cancel at the end, in this order, each once, because
    /// rdma-core refuses one that it has cancelled. No completion may have come before.
    pub(super) cancels: Vec<u64>,
}

/// All sections.
pub(super) fn sections() -> [Section; 4] {
    let mut table = Table { batches: Vec::new(), next: 0, extended: false };
    table.keys();
    for builder in [true, false] {
        table.operations(builder);
        table.windows(builder);
    }
    table.raw();
    table.masked();
    let (batches, cancels) = (table.batches, Vec::new());
    let operations = Section { name: "operations", extended: false, batches, cancels };

    let mut table = Table { batches: Vec::new(), next: 0, extended: false };
    table.bad_signatures();
    let (batches, cancels) = (table.batches, Vec::new());
    let signatures = Section { name: "bad-signatures", extended: false, batches, cancels };

    let mut table = Table { batches: Vec::new(), next: 0, extended: true };
    for builder in [true, false] {
        table.extended(builder);
    }
    let (batches, cancels) = (table.batches, Vec::new());
    let extended = Section { name: EXTENDED, extended: true, batches, cancels };

    let mut table = Table { batches: Vec::new(), next: 0, extended: false };
    let to = [Sge { addr: 0x7f00_0000_1000, length: 8, lkey: 0x0102_0304 }];
    let remote = RemoteAddress { addr: 0x1122_3344_5566_7788, rkey: 0x99aa_bbcc };
    let configure = |key| Operation::Configure {
        key,
        access: Some(1),
        layout: Layout::List(pieces(3)),
        signing: Signing::Keep,
    };
    table.batch(
        true,
        vec![
            ("-", Operation::Send(pieces(1))),
            ("S", configure(0)),
            ("SF", Operation::SendInvalidate(7, pieces(6))),
            ("-", Operation::LocalInvalidate(0x700)),
            ("-", Operation::FetchAdd { remote, add: 1, to }),
            ("SO", Operation::Send(pieces(8))),
            ("-", configure(1)),
            ("S", Operation::CompareSwap { remote, compare: 0, swap: 1, to }),
            // A batch that ends with a signaled request would complete.
            ("-", Operation::Send(pieces(1))),
        ],
    );
    table.batch(true, vec![("-", Operation::Send(pieces(2)))]);
    let cancels = vec![6, 2, 3, 8, 1, 4, 5, 7, 9, 10, 1000];
    let batches = table.batches;
    [
        operations,
        signatures,
        extended,
        Section { name: "cancelled", extended: false, batches, cancels },
    ]
}
