//! Regions over memory of the program, and peers' writes into regions: elements, atomics, messages.

use crate::prelude::*;
use mlx5::zerocopy::{FromBytes, Immutable, IntoBytes};
use mlx5::{
    AtomicCap, ErrorKind, MessageRing, MessageRingWriter, MessageSlotWriter, MessageSlots,
    RemoteSlice,
};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};

pub(crate) const CASES: &[Case] = cases![
    memory_of_the_program_is_sent_received_and_given_back,
    elements_are_where_the_peer_wrote_them,
    atomics_change_while_the_process_watches,
    flags_of_four_bytes_are_written_by_the_peer,
    a_ring_carries_messages_over_many_laps_in_their_order,
    a_slot_that_a_peer_overwrites_is_read_whole,
    a_region_that_peers_named_by_text_is_written_inside_its_bounds,
];

const RIGHTS: Access = Access::LOCAL_WRITE.union(Access::REMOTE_WRITE).union(Access::REMOTE_READ);

/// Writes bytes to the peer, and waits until that is done.
fn write(bed: &Bed, a: &mut End<Rc>, to: RemoteAddress, bytes: &[u8]) -> Outcome {
    a.mr.write_at(0, bytes)?;
    let mut batch = a.qp.wr_start();
    batch.wr(1, SendFlags::SIGNALED).rdma_write(to).sge(a.mr.sge(..bytes.len())?);
    batch.complete()?;
    bed.poll_good(&mut a.send_cq, 1);
    Ok(())
}

fn memory_of_the_program_is_sent_received_and_given_back(bed: &Bed) -> Outcome {
    let Pair { mut a, b } = bed.pair::<Rc>(&PairOptions::default())?;
    // An odd length, at an address of the allocator's choice.
    let inbox = b.pd.register(vec![0xee_u8; 4097], RIGHTS)?;
    let outbox = a.pd.register(pattern(7, 3000).into_boxed_slice(), Access::empty())?;
    let mut batch = a.qp.wr_start();
    let to = inbox.remote(1000..)?;
    batch.wr(1, SendFlags::SIGNALED).rdma_write(to).sge(outbox.sge(1..3000)?);
    batch.complete()?;
    bed.poll_good(&mut a.send_cq, 1);
    let (sent, got) = (outbox.deregister()?, inbox.deregister()?);
    assert_eq!(got[1000..3999], sent[1..]);
    assert!(got[..1000].iter().chain(&got[3999..]).all(|byte| *byte == 0xee));
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Debug, FromBytes, IntoBytes, Immutable)]
#[zerocopy(crate = "mlx5::zerocopy")]
#[repr(C)]
struct Entry {
    key: u64,
    value: [u8; 24],
}

fn elements_are_where_the_peer_wrote_them(bed: &Bed) -> Outcome {
    let Pair { mut a, b } = bed.pair::<Rc>(&PairOptions::default())?;
    let table = b.pd.memory_of::<Entry>(100).access(RIGHTS).register()?;
    let entries = table.typed::<Entry>()?;
    // The peer gets the table as bytes.
    let remote = RemoteSlice::<Entry>::from_bytes(&entries.remote_slice(..)?.to_bytes())?;
    for index in [0, 1, 57, 99] {
        let entry = Entry { key: index as u64, value: [index as u8 + 1; 24] };
        write(bed, &mut a, remote.at(index)?, entry.as_bytes())?;
        assert_eq!(entries.get(index)?, entry);
    }
    assert_eq!(entries.get(2)?, Entry { key: 0, value: [0; 24] });
    assert!(remote.at(100).is_err());
    Ok(())
}

fn atomics_change_while_the_process_watches(bed: &Bed) -> Outcome {
    let Pair { mut a, b } = bed.pair::<Rc>(&PairOptions::default())?;
    if !b.context.query_device().has_atomics() {
        return Ok(());
    }
    let region = b.pd.memory(64).access(RIGHTS | Access::REMOTE_ATOMIC).register()?;
    let words = region.atomics()?;
    let add = |a: &mut End<Rc>, value| -> Outcome {
        let mut batch = a.qp.wr_start();
        let request = batch.wr(1, SendFlags::SIGNALED);
        request.atomic_fetch_add(region.remote(24..)?, value).sge(a.mr.sge(..8)?);
        batch.complete()?;
        bed.poll_good(&mut a.send_cq, 1);
        Ok(())
    };
    words[3].store(40, Ordering::Release);
    add(&mut a, 2)?;
    assert_eq!(words[3].load(Ordering::Acquire), 42);
    // Processor and device alternate.
    if b.context.query_device().atomic_cap == AtomicCap::Global || bed.is_simulated() {
        words[3].fetch_add(8, Ordering::AcqRel);
        add(&mut a, 50)?;
        assert_eq!(words[3].load(Ordering::Acquire), 100);
    }
    assert!(words.iter().enumerate().all(|(at, word)| at == 3 || word.load(Ordering::Relaxed) == 0));
    Ok(())
}

fn flags_of_four_bytes_are_written_by_the_peer(bed: &Bed) -> Outcome {
    let Pair { mut a, b } = bed.pair::<Rc>(&PairOptions::default())?;
    let flags = b.pd.memory(64).access(RIGHTS).register_atomics::<AtomicU32>()?;
    let remote = flags.remote_slice(..)?;
    for index in [0, 7, 15] {
        write(bed, &mut a, remote.at(index)?, &(index as u32 + 1).to_ne_bytes())?;
        assert_eq!(flags[index].load(Ordering::Acquire), index as u32 + 1);
    }
    assert_eq!(flags[8].load(Ordering::Acquire), 0);
    flags.deregister()?;
    Ok(())
}

fn a_ring_carries_messages_over_many_laps_in_their_order(bed: &Bed) -> Outcome {
    let mut pair = bed.pair::<Rc>(&PairOptions::default())?;
    let a = &mut pair.a;
    let region = pair.b.pd.memory(7 * 48).access(RIGHTS).register()?;
    let mut ring = MessageRing::<[u64; 4], _>::new(region)?;
    let mut writer = MessageRingWriter::new(ring.remote_slice()?);
    let (mut sent, mut outstanding) = (0_u64, VecDeque::new());
    for _ in 0..40 {
        let mut batch = a.qp.wr_start();
        let mut posted = 0;
        while let Some((to, frame)) = writer.push([sent, sent * 3, !sent, 0]) {
            let at = writer.written() as usize % 7 * 48;
            a.mr.write_at(at, frame.as_bytes())?;
            batch.wr(sent, SendFlags::SIGNALED).rdma_write(to).sge(a.mr.sge(at..at + 48)?);
            outstanding.push_back(sent);
            sent += 1;
            posted += 1;
        }
        batch.complete()?;
        // Takes each message as soon as it is there, before the writes are polled.
        while let Some(expected) = outstanding.pop_front() {
            let mut message = None;
            bed.until("a message arrives", || {
                message = ring.take().expect("the writer keeps to the rules");
                message.is_some()
            });
            assert_eq!(message, Some([expected, expected * 3, !expected, 0]));
        }
        bed.poll_good(&mut a.send_cq, posted);
        assert_eq!(ring.take()?, None);
        writer.taken(ring.taken())?;
    }
    assert_eq!((sent, ring.taken()), (280, 280));
    Ok(())
}

fn a_slot_that_a_peer_overwrites_is_read_whole(bed: &Bed) -> Outcome {
    let Pair { mut a, b } = bed.pair::<Rc>(&PairOptions::default())?;
    let region = b.pd.memory(4096).access(RIGHTS).register()?;
    let slots = MessageSlots::<[u64; 100], _>::new(&region)?;
    let mut writer = MessageSlotWriter::new(slots.remote_slice()?, 2)?;
    let mut seen = 0;
    for value in 1..=50 {
        let (to, frame) = writer.push([value; 100]);
        a.mr.write_at(0, frame.as_bytes())?;
        let mut batch = a.qp.wr_start();
        batch.wr(1, SendFlags::SIGNALED).rdma_write(to).sge(a.mr.sge(..frame.as_bytes().len())?);
        batch.complete()?;
        bed.until("the value arrives", || {
            if let Some((version, read)) = slots.read(2).expect("the slot exists") {
                assert!(version >= seen);
                assert_eq!(read, [version; 100]);
                seen = version;
            }
            seen == value
        });
        bed.poll_good(&mut a.send_cq, 1);
    }
    assert_eq!(slots.read(1)?, None);
    Ok(())
}

fn a_region_that_peers_named_by_text_is_written_inside_its_bounds(bed: &Bed) -> Outcome {
    let Pair { mut a, b } = bed.pair::<Rc>(&PairOptions::default())?;
    let region = b.pd.memory(4096).access(RIGHTS).register()?;
    let text = region.remote_slice(1024..2048)?.to_string();
    let remote: RemoteSlice = text.parse()?;
    assert_eq!(remote.len(), 1024);
    write(bed, &mut a, remote.range(1000..)?.start(), b"twenty-four bytes inside")?;
    let mut bytes = [0; 24];
    region.read_at(2024, &mut bytes)?;
    assert_eq!(&bytes, b"twenty-four bytes inside");
    let error = mlx5::Error::from(remote.range(1000..1025).expect_err("a byte too many"));
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("1000..1025"), "{error}");
    Ok(())
}
