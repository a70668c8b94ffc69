//! Memory keys that requests configure: layouts, rights, and the effects of refusals.

use crate::prelude::*;
use mlx5::mkey::{Interleaved, Mkey, MkeyAccess};
use mlx5::{MkeyRefusal, Opcode};

pub(crate) const CASES: &[Case] = cases![
    a_list_gathers_what_lies_apart: DEVX | EVERY_MODEL,
    a_list_scatters_what_arrives: DEVX,
    an_interleaved_layout_takes_a_piece_of_each_in_turn: DEVX,
    a_peer_reads_and_writes_through_a_key_as_its_rights_say: DEVX,
    a_transfer_past_the_end_of_a_key_fails: DEVX,
    configuring_again_replaces_the_layout_and_keeps_the_rights: DEVX,
    a_key_that_was_never_configured_cannot_be_used: DEVX,
    an_invalidated_key_cannot_be_used_until_it_is_configured_again: DEVX,
    a_peer_invalidates_a_key_by_sending: DEVX,
    the_lowest_byte_of_a_key_can_be_changed: DEVX | UPDATE_TAG,
    a_signaled_configuration_has_one_completion: DEVX,
    impossible_layout_of_a_key_is_refused_and_named: DEVX,
    a_refused_or_aborted_batch_leaves_the_key_as_it_was: DEVX | UPDATE_TAG,
    keys_of_many_entries_go_around_the_end_of_the_ring: DEVX,
    a_key_of_a_reset_queue_is_not_taken_for_what_it_may_not_be: DEVX,
];

const ENTRIES: u32 = 8;

fn options() -> PairOptions {
    PairOptions::default().mkey_entries(ENTRIES).memory(64 << 10)
}

/// A connection, and a key at its first end.
struct Rig<'a> {
    bed: &'a Bed,
    pair: Pair<Rc>,
    key: Mkey,
}

impl<'a> Rig<'a> {
    fn new(bed: &'a Bed) -> Result<Self, Failed> {
        let pair = bed.pair::<Rc>(&options())?;
        let key = pair.a.pd.create_mkey(ENTRIES).remote_invalidate().build()?;
        Ok(Self { bed, pair, key })
    }

    /// The same, with a key whose lowest byte can be changed.
    fn tagged(bed: &'a Bed) -> Result<Self, Failed> {
        let mut rig = Self::new(bed)?;
        rig.key = rig.pair.a.pd.create_mkey(ENTRIES).update_tag().build()?;
        Ok(rig)
    }

    fn piece(&self, at: usize, length: usize) -> Result<Sge, Failed> {
        Ok(self.pair.a.mr.sge(at..at + length)?)
    }

    /// Configures the key with a list of pieces.
    fn list(&mut self, access: MkeyAccess, pieces: &[Sge]) -> Outcome {
        let mut batch = self.pair.a.qp.wr_start();
        let key = self.key.configure().access(access).layout_list(pieces);
        batch.wr(100, SendFlags::empty()).mkey_configure(key);
        Ok(batch.complete()?)
    }

    /// Waits until the key is configured, because requests of another queue pair do not wait for
    /// that.
    fn configured(&mut self) -> Outcome {
        let a = &mut self.pair.a;
        let mut batch = a.qp.wr_start();
        batch.wr(3, SendFlags::SIGNALED).nop();
        batch.complete()?;
        self.bed.poll_good(&mut a.send_cq, 1);
        Ok(())
    }

    /// Sends part of the key's memory to the other side, and checks that `expected` arrives.
    fn carries(&mut self, offset: u64, expected: &[u8]) -> Outcome {
        let Pair { a, b } = &mut self.pair;
        b.recv(1, 0..expected.len());
        let mut batch = a.qp.wr_start();
        batch
            .wr(2, SendFlags::SIGNALED)
            .send()
            .sge(self.key.sge(offset, expected.len() as u32));
        batch.complete()?;
        self.bed.poll_good(&mut a.send_cq, 1);
        self.bed.poll_good(b.recv_cq(), 1);
        let mut found = vec![0; expected.len()];
        b.mr.read_at(0, &mut found)?;
        assert_eq!(found, expected);
        Ok(())
    }

    /// Sends from the key, and checks that this fails.
    fn cannot_be_used(mut self) -> Outcome {
        let Pair { a, b } = &mut self.pair;
        b.recv(1, 0..64);
        let mut batch = a.qp.wr_start();
        batch.wr(2, SendFlags::SIGNALED).send().sge(self.key.sge(0, 8));
        batch.complete()?;
        let failed = self.bed.poll_one(&mut a.send_cq);
        assert_eq!(syndrome(&failed), Some(Syndrome::LocalProtection));
        Ok(())
    }
}

/// Bytes of the pieces, one after the other.
fn gathered(mr: &MemoryRegion, pieces: &[(usize, usize)]) -> Result<Vec<u8>, Failed> {
    let mut bytes = Vec::new();
    for &(at, length) in pieces {
        let start = bytes.len();
        bytes.resize(start + length, 0);
        mr.read_at(at, &mut bytes[start..])?;
    }
    Ok(bytes)
}

fn a_list_gathers_what_lies_apart(bed: &Bed) -> Outcome {
    let mut rig = Rig::new(bed)?;
    fill(&rig.pair.a.mr, 0, 7, 16384)?;
    let places = [(9000, 100), (17, 1), (4096, 512), (0, 16)];
    let pieces: Result<Vec<_>, _> =
        places.iter().map(|&(at, length)| rig.piece(at, length)).collect();
    rig.list(MkeyAccess::empty(), &pieces?)?;
    assert_eq!(rig.key.length(), Some(629));
    let bytes = gathered(&rig.pair.a.mr, &places)?;
    rig.carries(0, &bytes)?;
    rig.carries(99, &bytes[99..103])?;
    rig.carries(613, &bytes[613..])
}

fn a_list_scatters_what_arrives(bed: &Bed) -> Outcome {
    let mut rig = Rig::new(bed)?;
    let pieces = [rig.piece(5000, 30)?, rig.piece(100, 50)?];
    rig.list(MkeyAccess::LOCAL_WRITE, &pieces)?;
    rig.configured()?;
    let Pair { a, b } = &mut rig.pair;
    fill(&b.mr, 0, 3, 80)?;
    let into = [rig.key.sge(0, 80)];
    a.qp.post_recv(&[ReceiveWr { wr_id: 9, sges: &into }])?;
    let mut batch = b.qp.wr_start();
    batch.wr(1, SendFlags::SIGNALED).send().sge(b.mr.sge(0..80)?);
    batch.complete()?;
    bed.poll_good(a.recv_cq(), 1);
    bed.poll_good(&mut b.send_cq, 1);
    let bytes = pattern(3, 80);
    assert_eq!(gathered(&a.mr, &[(5000, 30), (100, 50)])?, bytes);
    untouched(&a.mr, 150..4900);
    Ok(())
}

fn an_interleaved_layout_takes_a_piece_of_each_in_turn(bed: &Bed) -> Outcome {
    let mut rig = Rig::new(bed)?;
    fill(&rig.pair.a.mr, 0, 11, 32768)?;
    let (data, tags) = (rig.piece(0, 8192)?, rig.piece(20000, 64)?);
    let entries = [
        Interleaved { addr: data.addr, bytes: 512, skip: 512, lkey: data.lkey },
        Interleaved { addr: tags.addr, bytes: 8, skip: 0, lkey: tags.lkey },
    ];
    let mut batch = rig.pair.a.qp.wr_start();
    let key = rig.key.configure().layout_interleaved(4, &entries);
    batch.wr(1, SendFlags::empty()).mkey_configure(key);
    batch.complete()?;
    assert_eq!(rig.key.length(), Some(4 * 520));
    let places: Vec<_> = (0..4).flat_map(|i| [(i * 1024, 512), (20000 + i * 8, 8)]).collect();
    let bytes = gathered(&rig.pair.a.mr, &places)?;
    rig.carries(0, &bytes)?;
    // From within one round into the next.
    rig.carries(515, &bytes[515..1100])
}

fn a_peer_reads_and_writes_through_a_key_as_its_rights_say(bed: &Bed) -> Outcome {
    for (access, write, allowed) in [
        (MkeyAccess::REMOTE_READ, false, true),
        (MkeyAccess::REMOTE_WRITE | MkeyAccess::LOCAL_WRITE, true, true),
        (MkeyAccess::REMOTE_READ, true, false),
        (MkeyAccess::LOCAL_WRITE, false, false),
    ] {
        let mut rig = Rig::new(bed)?;
        fill(&rig.pair.a.mr, 0, 5, 4096)?;
        let pieces = [rig.piece(1000, 40)?, rig.piece(10, 24)?];
        rig.list(access, &pieces)?;
        rig.configured()?;
        let Pair { a, b } = &mut rig.pair;
        let before = gathered(&a.mr, &[(1000, 40), (10, 24)])?;
        fill(&b.mr, 0, 6, 64)?;
        let (remote, local) = (rig.key.remote(0), b.mr.sge(0..64)?);
        let mut batch = b.qp.wr_start();
        let request = batch.wr(1, SendFlags::SIGNALED);
        if write {
            request.rdma_write(remote).sge(local);
        } else {
            request.rdma_read(remote).sge(local);
        }
        batch.complete()?;
        let one = bed.poll_one(&mut b.send_cq);
        let after = gathered(&a.mr, &[(1000, 40), (10, 24)])?;
        match (allowed, write) {
            (true, true) => assert_eq!((syndrome(&one), after), (None, pattern(6, 64))),
            (true, false) => {
                assert_eq!(syndrome(&one), None);
                assert_eq!(gathered(&b.mr, &[(0, 64)])?, before);
            }
            (false, _) => {
                assert_eq!((syndrome(&one), after), (Some(Syndrome::RemoteAccess), before));
            }
        }
    }
    Ok(())
}

fn a_transfer_past_the_end_of_a_key_fails(bed: &Bed) -> Outcome {
    for (offset, length) in [(0, 65), (64, 1), (63, 2), (u64::MAX, 1)] {
        let mut rig = Rig::new(bed)?;
        let pieces = [rig.piece(0, 40)?, rig.piece(100, 24)?];
        rig.list(MkeyAccess::empty(), &pieces)?;
        let Pair { a, b } = &mut rig.pair;
        b.recv(1, 0..128);
        let mut batch = a.qp.wr_start();
        batch.wr(2, SendFlags::SIGNALED).send().sge(rig.key.sge(offset, length));
        batch.complete()?;
        let failed = bed.poll_one(&mut a.send_cq);
        assert_eq!(syndrome(&failed), Some(Syndrome::LocalProtection), "{offset} {length}");
    }
    Ok(())
}

fn configuring_again_replaces_the_layout_and_keeps_the_rights(bed: &Bed) -> Outcome {
    let mut rig = Rig::new(bed)?;
    fill(&rig.pair.a.mr, 0, 8, 4096)?;
    let first = [rig.piece(0, 32)?];
    rig.list(MkeyAccess::REMOTE_READ, &first)?;
    let second = [rig.piece(2000, 16)?, rig.piece(3000, 16)?];
    let mut batch = rig.pair.a.qp.wr_start();
    batch.wr(1, SendFlags::SIGNALED).mkey_configure(rig.key.configure().layout_list(&second));
    batch.complete()?;
    bed.poll_good(&mut rig.pair.a.send_cq, 1);
    let Pair { a, b } = &mut rig.pair;
    let mut batch = b.qp.wr_start();
    batch.wr(1, SendFlags::SIGNALED).rdma_read(rig.key.remote(0)).sge(b.mr.sge(0..32)?);
    batch.complete()?;
    bed.poll_good(&mut b.send_cq, 1);
    assert_eq!(gathered(&b.mr, &[(0, 32)])?, gathered(&a.mr, &[(2000, 16), (3000, 16)])?);
    Ok(())
}

fn a_key_that_was_never_configured_cannot_be_used(bed: &Bed) -> Outcome {
    let rig = Rig::new(bed)?;
    assert_eq!(rig.key.length(), None);
    rig.cannot_be_used()
}

fn an_invalidated_key_cannot_be_used_until_it_is_configured_again(bed: &Bed) -> Outcome {
    let mut rig = Rig::new(bed)?;
    fill(&rig.pair.a.mr, 0, 8, 64)?;
    let pieces = [rig.piece(0, 64)?];
    rig.list(MkeyAccess::empty(), &pieces)?;
    rig.carries(0, &pattern(8, 64))?;
    let mut batch = rig.pair.a.qp.wr_start();
    batch.wr(5, SendFlags::SIGNALED).local_inv(rig.key.rkey());
    batch.complete()?;
    bed.poll_good(&mut rig.pair.a.send_cq, 1);
    rig.list(MkeyAccess::empty(), &pieces)?;
    rig.carries(0, &pattern(8, 64))?;
    let mut batch = rig.pair.a.qp.wr_start();
    batch.wr(5, SendFlags::SIGNALED).local_inv(rig.key.rkey());
    batch.complete()?;
    bed.poll_good(&mut rig.pair.a.send_cq, 1);
    rig.cannot_be_used()
}

fn a_peer_invalidates_a_key_by_sending(bed: &Bed) -> Outcome {
    let mut rig = Rig::new(bed)?;
    let pieces = [rig.piece(0, 64)?];
    let mut batch = rig.pair.a.qp.wr_start();
    let key = rig.key.configure().access(MkeyAccess::REMOTE_READ).layout_list(&pieces);
    batch.wr(1, SendFlags::SIGNALED).mkey_configure(key);
    batch.complete()?;
    let Pair { a, b } = &mut rig.pair;
    bed.poll_good(&mut a.send_cq, 1);
    a.recv(1, 1000..1100);
    let mut batch = b.qp.wr_start();
    batch.wr(1, SendFlags::SIGNALED).send_inv(rig.key.rkey()).inline_data(b"done");
    batch.complete()?;
    bed.poll_good(&mut b.send_cq, 1);
    let received = bed.poll_good(a.recv_cq(), 1)[0];
    assert_eq!(received.as_completion().invalidated_rkey(), Some(rig.key.rkey()));
    let mut batch = b.qp.wr_start();
    batch.wr(2, SendFlags::SIGNALED).rdma_read(rig.key.remote(0)).sge(b.mr.sge(0..8)?);
    batch.complete()?;
    let failed = bed.poll_one(&mut b.send_cq);
    assert_eq!(syndrome(&failed), Some(Syndrome::RemoteAccess));
    Ok(())
}

fn the_lowest_byte_of_a_key_can_be_changed(bed: &Bed) -> Outcome {
    let mut rig = Rig::tagged(bed)?;
    fill(&rig.pair.a.mr, 0, 8, 64)?;
    let pieces = [rig.piece(0, 64)?];
    let old = rig.key.lkey();
    assert_eq!(old & 0xff, 0);
    let mut batch = rig.pair.a.qp.wr_start();
    let key = rig.key.configure().tag(0x5a).layout_list(&pieces);
    batch.wr(1, SendFlags::empty()).mkey_configure(key);
    assert_eq!(rig.key.lkey(), old | 0x5a);
    batch.complete()?;
    rig.carries(0, &pattern(8, 64))?;
    let Pair { a, b } = &mut rig.pair;
    b.recv(1, 0..64);
    let mut batch = a.qp.wr_start();
    batch.wr(2, SendFlags::SIGNALED).send().sge(Sge { addr: 0, length: 8, lkey: old });
    batch.complete()?;
    let failed = bed.poll_one(&mut a.send_cq);
    assert_eq!(syndrome(&failed), Some(Syndrome::LocalProtection));
    Ok(())
}

fn a_signaled_configuration_has_one_completion(bed: &Bed) -> Outcome {
    let mut rig = Rig::new(bed)?;
    let pieces = [rig.piece(0, 64)?];
    for flags in [SendFlags::SIGNALED, SendFlags::SIGNALED | SendFlags::FENCE] {
        let mut batch = rig.pair.a.qp.wr_start();
        batch.wr(77, flags).mkey_configure(rig.key.configure().layout_list(&pieces));
        assert_eq!(batch.len(), 1);
        batch.complete()?;
        let done = bed.poll_good(&mut rig.pair.a.send_cq, 1)[0];
        let done = done.as_completion();
        assert_eq!((done.wr_id(), done.opcode()), (77, CompletionOpcode::Other(Opcode::Umr)));
        bed.nothing(&mut rig.pair.a.send_cq);
    }
    Ok(())
}

fn impossible_layout_of_a_key_is_refused_and_named(bed: &Bed) -> Outcome {
    let mut rig = Rig::new(bed)?;
    let piece = rig.piece(0, 64)?;
    let many = [piece; 9];
    let long = [piece, Sge { length: 1 << 31, ..piece }];
    let wide = [Interleaved { addr: piece.addr, bytes: 40_000, skip: 30_000, lkey: piece.lkey }];
    let plain = rig.pair.a.pd.create_mkey(4).build()?;
    let one = [piece];
    let mut refused = |configure: mlx5::mkey::Configure<'_>, flags| {
        let mut batch = rig.pair.a.qp.wr_start();
        batch.wr(1, SendFlags::empty()).nop();
        batch.wr(2, flags).mkey_configure(configure);
        let error = batch.complete().expect_err("refused");
        assert_eq!(error.index(), 1);
        error.error()
    };
    let (key, none) = (&rig.key, SendFlags::empty());
    assert_eq!(
        refused(key.configure().layout_list(&many), none),
        PostError::TooManyMkeyEntries { given: 9, max: 8 }
    );
    assert_eq!(
        refused(key.configure().layout_list(&long), none),
        PostError::SgeTooLong { index: 1, length: 1 << 31 }
    );
    assert_eq!(
        refused(key.configure().layout_interleaved(2, &wide), none),
        PostError::StrideTooLong { index: 0, length: 70_000 }
    );
    assert_eq!(
        refused(plain.configure().tag(1).layout_list(&one), none),
        PostError::Mkey(MkeyRefusal::Variant)
    );
    assert_eq!(
        refused(key.configure().layout_list(&one), SendFlags::SOLICITED),
        PostError::Flags { refused: SendFlags::SOLICITED }
    );
    assert_eq!(key.length(), None);
    Ok(())
}

fn a_refused_or_aborted_batch_leaves_the_key_as_it_was(bed: &Bed) -> Outcome {
    let mut rig = Rig::tagged(bed)?;
    fill(&rig.pair.a.mr, 0, 8, 64)?;
    let (first, other) = ([rig.piece(0, 64)?], [rig.piece(8, 16)?]);
    rig.list(MkeyAccess::empty(), &first)?;
    let (key, before) = (rig.key.lkey(), rig.key.length());
    for refuse in [false, true] {
        let mut batch = rig.pair.a.qp.wr_start();
        for tag in 1..4 {
            batch
                .wr(1, SendFlags::empty())
                .mkey_configure(rig.key.configure().tag(tag).layout_list(&other));
        }
        assert_eq!((rig.key.lkey(), rig.key.length()), (key | 3, Some(16)));
        if refuse {
            batch.wr(1, SendFlags::empty()).send().sge_list(&[other[0]; 40]);
            assert_eq!(batch.complete().expect_err("too many").index(), 3);
        } else {
            batch.abort();
        }
        assert_eq!((rig.key.lkey(), rig.key.length()), (key, before));
        rig.carries(0, &pattern(8, 64))?;
    }
    Ok(())
}

fn keys_of_many_entries_go_around_the_end_of_the_ring(bed: &Bed) -> Outcome {
    let mut rig = Rig::new(bed)?;
    fill(&rig.pair.a.mr, 0, 8, 4096)?;
    for turn in 0..200usize {
        let places: Vec<_> = (0..=turn % 8).map(|i| ((turn * 7 + i * 40) % 4000, i + 1)).collect();
        let pieces: Result<Vec<_>, _> =
            places.iter().map(|&(at, length)| rig.piece(at, length)).collect();
        rig.list(MkeyAccess::empty(), &pieces?)?;
        let bytes = gathered(&rig.pair.a.mr, &places)?;
        rig.carries(0, &bytes)?;
    }
    Ok(())
}

fn a_key_of_a_reset_queue_is_not_taken_for_what_it_may_not_be(bed: &Bed) -> Outcome {
    let mut rig = Rig::new(bed)?;
    let (first, other) = ([rig.piece(0, 64)?], [rig.piece(8, 16)?]);
    rig.list(MkeyAccess::empty(), &first)?;
    rig.carries(0, &[0; 64])?;
    assert_eq!(rig.key.length(), Some(64));
    rig.list(MkeyAccess::empty(), &other)?;
    assert_eq!(rig.key.length(), Some(16));
    // There is no completion, so the driver cannot know whether the device executed the request.
    let Pair { a, b } = &mut rig.pair;
    let remote = b.endpoint(&options());
    a.qp.modify(&QpAttributes::new().qp_state(QueueState::Reset))?;
    Rc::wire(a, &remote, &options())?;
    assert_eq!(rig.key.length(), None);
    Ok(())
}
