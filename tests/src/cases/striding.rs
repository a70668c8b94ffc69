//! Receives that several packets share.

use super::altered_kernel::{AlteredKernel, Overrides};
use super::ethernet_queue::{kept, queue_by, runs_in_bursts, send_at_once, send_back};
use crate::frames::{ETHERNET, Flow, plain};
use crate::panics::panic_of;
use crate::prelude::*;
use mlx5::ethernet::{Counts, EthernetQueue, EthernetQueueBuilder, Striding};
use mlx5::flow::{Ethernet, FlowRule, Rule};
use mlx5::{CqeCompression, ErrorKind, HashQueuePair, ProtectionDomain, WorkQueue, devices_on};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

pub(crate) const CASES: &[Case] = cases![
    packets_lie_one_behind_the_other_in_one_receive: RAW_PACKETS | STRIDING | FEW_STRIDES,
    packet_larger_than_the_rest_of_a_receive_goes_to_the_next: RAW_PACKETS | STRIDING | FEW_STRIDES,
    a_packet_beyond_the_memory_of_a_receive_fails_with_its_strides: RAW_PACKETS | STRIDING | FEW_STRIDES | SIMULATOR,
    a_striding_queue_in_error_flushes_its_receives: RAW_PACKETS | STRIDING | FEW_STRIDES,
    a_striding_queue_that_is_reset_begins_at_the_first_stride: RAW_PACKETS | STRIDING | FEW_STRIDES,
    unpolled_packets_are_purged_before_a_striding_queue_starts_again:
        RAW_PACKETS | STRIDING | FEW_STRIDES | SIMULATOR | STEP,
    a_burst_that_is_leaked_or_panics_has_what_it_took_and_no_more: RAW_PACKETS | STRIDING | FEW_STRIDES,
    strides_that_cannot_be_are_refused_by_name: RAW_PACKETS | STRIDING | FEW_STRIDES,
    compressed_completions_say_where_each_packet_lies: RAW_PACKETS | STRIDING | FEW_STRIDES | SIMULATOR | STEP,
    packets_of_many_receives_are_read_where_they_arrived: RAW_PACKETS | STRIDING | FEW_STRIDES,
    a_packet_that_is_kept_keeps_its_receive: RAW_PACKETS | STRIDING | FEW_STRIDES,
    a_queue_whose_receives_are_kept_drops_packets_and_goes_on_later: RAW_PACKETS | STRIDING | FEW_STRIDES,
    a_queue_with_a_few_strides_left_wakes_when_receives_come_back:
        RAW_PACKETS | STRIDING | FEW_STRIDES | SIMULATOR,
    runs_over_many_receives_are_taken_in_bursts: RAW_PACKETS | STRIDING | FEW_STRIDES | SIMULATOR | STEP,
    packets_are_sent_back_from_where_they_lie: RAW_PACKETS | STRIDING | FEW_STRIDES,
    frames_of_a_striding_queue_are_sent_by_it_and_by_one_beside: RAW_PACKETS | STRIDING | FEW_STRIDES,
    a_striding_queue_sends_again_after_a_restart: RAW_PACKETS | STRIDING | FEW_STRIDES | SIMULATOR,
    frames_outlive_their_striding_queue: RAW_PACKETS | STRIDING | FEW_STRIDES,
    receives_of_the_fewest_strides_are_filled_on_every_model: RAW_PACKETS | STRIDING | EVERY_MODEL,
];

/// Bytes of a stride, and strides of a receive.
const STRIDE: usize = 64;
const STRIDES: usize = 8;
/// Bytes of a receive.
const ROOM: usize = STRIDE * STRIDES;
/// Receives of a work queue.
const RECEIVES: usize = 4;

/// Another group, to which packets are sent back.
const BACK: [u8; 6] = [0x01, 0x50, 0x56, 0x19, 0x20, 0xa8];

fn back() -> Rule {
    Rule::new().ethernet(Ethernet::new().dst_mac(BACK))
}

fn returned(frame: &[u8]) -> Vec<u8> {
    [&BACK[..], &frame[6..]].concat()
}

/// A work queue with strides that takes the packets to the group.
struct Strided {
    queue: WorkQueue,
    cq: CompletionQueue,
    memory: MemoryRegion,
    pd: ProtectionDomain,
    context: Context,
    _qp: HashQueuePair,
    _rule: FlowRule,
}

impl Strided {
    fn new(bed: &Bed, compression: Option<CqeCompression>) -> Result<Self, Failed> {
        let context = bed.context();
        let pd = context.alloc_pd()?;
        let memory = pd.memory(RECEIVES * ROOM).register()?;
        let cq = context.create_cq(64).cqe_size(bed.cqe_size());
        let cq = match compression {
            Some(format) => cq.compression(format).build()?,
            None => cq.build()?,
        };
        let queue = pd.create_wq(&cq).max_wr(RECEIVES as u32);
        let mut queue = queue.striding(STRIDE as u32, STRIDES as u32).build()?;
        queue.start()?;
        let table = context.create_indirection_table([&queue])?;
        let qp = pd.create_hash_qp(&table).build()?;
        let rule = qp.attach(bed.port(), &to_group())?;
        Ok(Self { queue, cq, memory, pd, context, _qp: qp, _rule: rule })
    }

    fn recv(&mut self, number: usize) -> Outcome {
        let sge = self.memory.sge(number * ROOM..(number + 1) * ROOM)?;
        self.queue.recv(number as u64, sge)?;
        Ok(())
    }

    /// The next completion: its receive, its first stride, the number of strides, and the packet.
    #[track_caller]
    fn next(&mut self, bed: &Bed) -> (u64, u16, u16, Option<Vec<u8>>) {
        let completion = bed.poll_good(&mut self.cq, 1)[0];
        self.fields(&completion)
    }

    fn fields(&self, completion: &OwnedCompletion) -> (u64, u16, u16, Option<Vec<u8>>) {
        let (receive, strides) = (completion.wr_id(), completion.strides());
        let mut packet = vec![0; strides.bytes.into()];
        let at = receive as usize * ROOM + usize::from(strides.first) * STRIDE;
        self.memory.read_at(at, &mut packet).expect("inside the memory");
        (receive, strides.first, strides.count, (!strides.filler).then_some(packet))
    }
}

fn packets_lie_one_behind_the_other_in_one_receive(bed: &Bed) -> Outcome {
    let mut a = bed.station()?;
    let mut b = Strided::new(bed, None)?;
    assert_eq!((b.queue.capacity(), b.queue.max_sge()), (RECEIVES as u32, 1));
    b.recv(0)?;
    b.recv(1)?;
    let mut first = 0;
    // A full stride, one byte more, several strides.
    for (bytes, count) in [(60, 1), (64, 1), (65, 2), (200, 4)] {
        a.send(bed, &plain(bytes));
        assert_eq!(b.queue.free(), 2);
        assert_eq!(b.next(bed), (0, first, count, Some(plain(bytes))));
        first += count;
    }
    // The last stride ends the receive.
    assert_eq!(b.queue.free(), 3);
    let frame = Flow::UDP4.frame(&[7; 400]);
    a.send(bed, &frame);
    let completion = bed.poll_good(&mut b.cq, 1)[0];
    assert_eq!(completion.checksum_ok(), Some(true));
    let count = frame.len().div_ceil(STRIDE) as u16;
    assert_eq!(b.fields(&completion), (1, 0, count, Some(frame)));
    bed.nothing(&mut b.cq);
    Ok(())
}

fn packet_larger_than_the_rest_of_a_receive_goes_to_the_next(bed: &Bed) -> Outcome {
    let mut a = bed.station()?;
    let mut b = Strided::new(bed, None)?;
    for number in 0..RECEIVES {
        b.recv(number)?;
    }
    // Goes around the ring, and posts a new receive for each that ends.
    for round in 0..20_usize {
        let number = (round % RECEIVES) as u64;
        a.send(bed, &plain(300));
        a.send(bed, &plain(70 + round));
        a.send(bed, &plain(350));
        assert_eq!(b.next(bed), (number, 0, 5, Some(plain(300))));
        assert_eq!(b.next(bed), (number, 5, 2, Some(plain(70 + round))));
        let (receive, first, count, packet) = b.next(bed);
        assert_eq!((receive, first, count, packet), (number, 7, 1, None), "what is skipped");
        let next = (number + 1) % RECEIVES as u64;
        assert_eq!(b.next(bed), (next, 0, 6, Some(plain(350))));
        a.send(bed, &plain(128));
        assert_eq!(b.next(bed), (next, 6, 2, Some(plain(128))));
        b.recv(number as usize)?;
        b.recv(next as usize)?;
        // The next round starts with the next receive.
        a.send(bed, &plain(ROOM));
        let behind = (number + 2) % RECEIVES as u64;
        assert_eq!(b.next(bed), (behind, 0, STRIDES as u16, Some(plain(ROOM))));
        b.recv(behind as usize)?;
        let last = (number + 3) % RECEIVES as u64;
        a.send(bed, &plain(ROOM));
        assert_eq!(b.next(bed), (last, 0, STRIDES as u16, Some(plain(ROOM))));
        b.recv(last as usize)?;
        a.send(bed, &plain(ROOM));
        assert_eq!(b.next(bed), (number, 0, STRIDES as u16, Some(plain(ROOM))));
        b.recv(number as usize)?;
    }
    Ok(())
}

/// As drivers that run on silicon expect: the device continues after the strides of the packet.
fn a_packet_beyond_the_memory_of_a_receive_fails_with_its_strides(bed: &Bed) -> Outcome {
    let mut a = bed.station()?;
    let mut b = Strided::new(bed, None)?;
    b.queue.recv(0, b.memory.sge(..3 * STRIDE)?)?;
    b.recv(1)?;
    for length in [100, 100, 60, 150, 90] {
        a.send(bed, &plain(length));
    }
    assert_eq!(b.next(bed), (0, 0, 2, Some(plain(100))));
    for (strides, free) in [(2, 2), (1, 2), (3, 3)] {
        let failed = bed.poll(&mut b.cq, 1)[0];
        assert_eq!((failed.wr_id(), syndrome(&failed)), (0, Some(Syndrome::LocalLength)));
        assert!(!failed.status().expect_err("an error").stops_receives());
        assert_eq!((failed.strides().count, b.queue.free()), (strides, free));
    }
    assert_eq!(b.next(bed), (1, 0, 2, Some(plain(90))));
    // The device drops a packet for which every receive is too short.
    a.send(bed, &plain(ROOM + 1));
    bed.nothing(&mut b.cq);
    let counts = bed.simulator().fabric().lock().device(0).frame_counts();
    assert_eq!((counts.too_long, counts.out_of_buffer), (4, 0));
    Ok(())
}

fn a_striding_queue_in_error_flushes_its_receives(bed: &Bed) -> Outcome {
    let mut a = bed.station()?;
    let mut b = Strided::new(bed, None)?;
    for number in 0..RECEIVES {
        b.recv(number)?;
    }
    a.send(bed, &plain(100));
    assert_eq!(b.next(bed), (0, 0, 2, Some(plain(100))));
    b.queue.to_error()?;
    let rest = bed.poll(&mut b.cq, RECEIVES);
    assert_eq!(flushed(&rest), [0, 1, 2, 3]);
    assert_eq!(b.queue.free(), RECEIVES as u32);
    Ok(())
}

fn a_striding_queue_that_is_reset_begins_at_the_first_stride(bed: &Bed) -> Outcome {
    let mut a = bed.station()?;
    let mut b = Strided::new(bed, None)?;
    for _ in 0..3 {
        b.recv(0)?;
        a.send(bed, &plain(100));
        assert_eq!(b.next(bed), (0, 0, 2, Some(plain(100))));
        b.queue.reset()?;
        assert_eq!(b.queue.purge(&mut b.cq)?, 0);
        b.queue.start()?;
    }
    Ok(())
}

fn unpolled_packets_are_purged_before_a_striding_queue_starts_again(bed: &Bed) -> Outcome {
    let formats =
        [CqeCompression::Hash, CqeCompression::Checksum, CqeCompression::ChecksumStride].map(Some);
    for format in [None].into_iter().chain(formats) {
        let mut a = bed.station()?;
        let mut b = Strided::new(bed, format)?;
        // Resets the queue after none or some of the completions were polled, inside or outside a
        // run, up to the middle of the second receive.
        for polled in 0..=STRIDES + 2 {
            for number in 0..RECEIVES {
                b.recv(number)?;
            }
            send_at_once(bed, &mut a, &[60; 2 * STRIDES].map(plain))?;
            for n in 0..polled {
                let (receive, first) = ((n / STRIDES) as u64, (n % STRIDES) as u16);
                assert_eq!(b.next(bed), (receive, first, 1, Some(plain(60))));
            }
            b.queue.reset()?;
            assert_eq!(b.queue.start().expect_err("packets wait").kind(), ErrorKind::Busy);
            assert_eq!(b.queue.purge(&mut b.cq)? as usize, 2 * STRIDES - polled, "{format:?}");
            b.queue.start()?;
            assert_eq!(b.queue.free(), RECEIVES as u32);
            b.recv(3)?;
            a.send(bed, &plain(100));
            assert_eq!(b.next(bed), (3, 0, 2, Some(plain(100))), "{format:?}, {polled} polled");
            b.queue.reset()?;
            b.queue.start()?;
        }
    }
    Ok(())
}

/// A completion names strides, not their receive. If the queue did not record how many strides a
/// burst took, it would take the next completions for another receive.
fn a_burst_that_is_leaked_or_panics_has_what_it_took_and_no_more(bed: &Bed) -> Outcome {
    let mut a = bed.station()?;
    let (mut queue, _rule) = queue_with(bed, |builder| builder.receives(16 * STRIDES as u32))?;
    let mut turn = 0;
    for round in 0..40 {
        // A burst that panics posts no receives, so an empty burst does.
        queue.receive(|_| {})?;
        let lengths = Vec::from_iter((0..6).map(|n| 60 + 6 * round + n));
        lengths.iter().for_each(|&length| a.send(bed, &plain(length)));
        bed.settle();
        let mut seen = Vec::new();
        bed.until("all of them", || {
            turn += 1;
            let burst = AssertUnwindSafe(|| {
                queue.receive(|mut packets| {
                    for _ in 0..2 {
                        let Some(packet) = packets.next() else { break };
                        assert_eq!(*packet, plain(packet.len())[..]);
                        seen.push(packet.len());
                    }
                    match turn % 4 {
                        0 => { let _leaked = std::mem::ManuallyDrop::new(packets); }
                        1 => resume_unwind(Box::new("a panic")),
                        2 => packets.for_each(|packet| {
                            seen.push(packet.len());
                            resume_unwind(Box::new("a panic, while it has a packet"));
                        }),
                        _ => packets.for_each(|packet| seen.push(packet.len())),
                    }
                })
            });
            if let Ok(burst) = catch_unwind(burst) {
                burst.expect("a queue that can be polled");
            }
            seen.len() >= lengths.len()
        });
        assert_eq!(seen, lengths);
    }
    assert_eq!(queue.counts(), Counts { received: 240, ..Counts::default() });
    Ok(())
}

fn strides_that_cannot_be_are_refused_by_name(bed: &Bed) -> Outcome {
    let b = Strided::new(bed, None)?;
    let caps = b.context.query_device().ethernet.striding.expect("a device with strides");
    let ((least, most), (fewest, many)) = (caps.stride, caps.strides);
    for (stride, strides) in
        [(least / 2, fewest), (most * 2, fewest), (least, fewest / 2), (least, many * 2), (96, fewest)]
    {
        let made = b.pd.create_wq(&b.cq).striding(stride, strides).build();
        let error = made.expect_err("strides that the device does not have");
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(error.to_string().contains("powers of two"), "{error}");
    }
    for (stride, strides) in [(least, fewest), (most, many)] {
        b.pd.create_wq(&b.cq).striding(stride, strides).build()?;
    }
    let queue = || b.context.create_ethernet_queue(bed.port());
    for refused in [
        queue().striding(96, 8).build(),
        queue().striding(64, 0).build(),
        queue().receives(1 << 20).frames(0).striding(1 << 13, 1 << 12).spares(u32::MAX).build(),
        queue().sends(u32::MAX).striding(64, 8).build(),
        queue().burst(u32::MAX).striding(64, 8).build(),
    ] {
        assert_eq!(refused.expect_err("impossible").kind(), ErrorKind::InvalidArgument);
    }
    Ok(())
}

fn compressed_completions_say_where_each_packet_lies(bed: &Bed) -> Outcome {
    for format in [CqeCompression::Hash, CqeCompression::Checksum, CqeCompression::ChecksumStride] {
        let mut a = bed.station()?;
        let mut b = Strided::new(bed, Some(format))?;
        for number in 0..RECEIVES {
            b.recv(number)?;
        }
        let lengths = [60, 61, 100, 62, 130, 60, 60, 64, 63, 65, 66, 67, 68, 69, 300, 60];
        send_at_once(bed, &mut a, &lengths.map(plain))?;
        let (mut packets, mut compressed) = (Vec::new(), 0);
        let mut place = (0, 0);
        while packets.len() < lengths.len() {
            let completion = bed.poll_good(&mut b.cq, 1)[0];
            compressed += usize::from(completion.is_compressed());
            let (receive, first, count, packet) = b.fields(&completion);
            assert_eq!((receive, first), place, "{format:?}");
            place = match first + count == STRIDES as u16 {
                true => (receive + 1, 0),
                false => (receive, first + count),
            };
            packets.extend(packet);
        }
        assert_eq!(packets, lengths.map(plain), "{format:?}");
        assert!(compressed > 8, "{compressed} with {format:?}");
        bed.nothing(&mut b.cq);
    }
    Ok(())
}

type Builder<'a> = EthernetQueueBuilder<'a, Striding>;

fn queue_with(
    bed: &Bed,
    tune: impl FnOnce(Builder<'_>) -> Builder<'_>,
) -> Result<(EthernetQueue<Striding>, FlowRule), Failed> {
    queue_by(bed, |builder| {
        let builder = builder.receives(16).frames(4).sends(16).burst(8).buffer_size(512);
        tune(builder.striding(STRIDE as u32, STRIDES as u32)).build()
    })
}

/// Sends a packet, and checks that the queue receives it.
#[track_caller]
fn passes(bed: &Bed, a: &mut Station, queue: &mut EthernetQueue<Striding>, bytes: usize) {
    a.send(bed, &plain(bytes));
    let mut seen = 0;
    bed.until("a packet", || {
        let burst = queue.receive(|mut packets| {
            while let Some(packet) = packets.next() {
                assert_eq!(*packet, plain(bytes)[..]);
                seen += 1;
            }
        });
        burst.expect("a queue that can be polled");
        seen != 0
    });
    assert_eq!(seen, 1);
}

/// Older devices need receives of at least 512 strides and 16 KiB.
fn receives_of_the_fewest_strides_are_filled_on_every_model(bed: &Bed) -> Outcome {
    let mut a = bed.station()?;
    let caps = bed.context().query_device().ethernet.striding.expect("a device with strides");
    let shapes = [64, 1024].map(|stride| (stride, caps.fewest_strides(stride)));
    for (stride, strides) in shapes.into_iter().chain([(64, Some(512))]) {
        let strides = strides.expect("strides of this size");
        assert!(caps.takes(stride, strides) && !caps.takes(stride, strides / 2 * 3));
        assert!(strides == 512 || !caps.takes(stride, strides / 2), "{strides} of {stride} bytes");
        let (mut queue, _rule) = queue_by(bed, |builder| {
            let builder = builder.receives(2 * strides).frames(4).sends(16).burst(8);
            builder.striding(stride, strides).build()
        })?;
        let longest = (stride as usize * strides as usize).min(1400);
        let packets = 5 * strides as usize / longest.div_ceil(stride as usize);
        for n in 0..packets {
            passes(bed, &mut a, &mut queue, longest - n % 60);
        }
        let counts = Counts { received: packets as u64, ..Counts::default() };
        assert_eq!(queue.counts(), counts);
    }
    Ok(())
}

fn packets_of_many_receives_are_read_where_they_arrived(bed: &Bed) -> Outcome {
    let mut a = bed.station()?;
    let (mut queue, _rule) = queue_with(bed, |builder| builder.receives(64))?;
    for round in 0..40 {
        for bytes in [60, 64, 65 + round, ROOM - round, 200, 128] {
            passes(bed, &mut a, &mut queue, bytes);
        }
    }
    assert_eq!(queue.counts(), Counts { received: 240, ..Counts::default() });
    assert!(queue.receive(|mut packets| packets.next().is_none())?);
    // The device drops a packet for which every receive is too short.
    a.send(bed, &plain(ROOM + 1));
    bed.settle();
    passes(bed, &mut a, &mut queue, 60);
    // Packets that a burst leaves belong to the next one, in order.
    for n in 0..12 {
        a.send(bed, &plain(60 + n));
    }
    bed.settle();
    let mut lengths = Vec::new();
    bed.until("all of them", || {
        let before = lengths.len();
        let burst = queue.receive(|packets| packets.for_each(|packet| lengths.push(packet.len())));
        burst.expect("a queue that can be polled");
        assert!(lengths.len() <= before + 8, "a burst is as long as it may be");
        lengths.len() == 12
    });
    assert_eq!(lengths, Vec::from_iter(60..72));
    Ok(())
}

fn a_packet_that_is_kept_keeps_its_receive(bed: &Bed) -> Outcome {
    let mut a = bed.station()?;
    let (mut queue, _rule) = queue_with(bed, |builder| builder)?;
    a.send(bed, &plain(100));
    let mut keep = kept(bed, &mut queue, 1);
    for n in 0..60 {
        passes(bed, &mut a, &mut queue, 200 + n);
    }
    assert_eq!(*keep[0], plain(100)[..]);
    // The packet's own strides may be written, and no more.
    assert_eq!(keep[0].capacity(), 2 * STRIDE);
    keep[0].fill(&[5; 2 * STRIDE]);
    // More than its strides.
    panic_of(|| keep[0].resize(2 * STRIDE + 1));
    std::thread::scope(|scope| scope.spawn(|| drop(keep)).join().expect("no panic"));
    for n in 0..60 {
        passes(bed, &mut a, &mut queue, 300 + n);
    }
    assert_eq!(queue.counts().starved, 0);
    Ok(())
}

fn a_queue_whose_receives_are_kept_drops_packets_and_goes_on_later(bed: &Bed) -> Outcome {
    let mut a = bed.station()?;
    let (mut queue, _rule) = queue_with(bed, |builder| builder.spares(1))?;
    // Three receives; each packet keeps one.
    let mut keep = Vec::new();
    for n in 0..6 {
        a.send(bed, &plain(ROOM - n));
        bed.settle();
        queue.receive(|packets| packets.for_each(|packet| keep.push(packet.keep())))?;
    }
    assert_eq!(keep.len(), 3);
    for (n, frame) in keep.iter().enumerate() {
        assert_eq!(**frame, plain(ROOM - n)[..]);
    }
    assert!(queue.counts().starved != 0, "{queue:?}");
    if bed.is_simulated() {
        let counts = bed.simulator().fabric().lock().device(0).frame_counts();
        assert_eq!(counts.out_of_buffer, 3);
    }
    keep.remove(1);
    queue.receive(|mut packets| assert!(packets.next().is_none()))?;
    for n in 0..10 {
        passes(bed, &mut a, &mut queue, 100 + n);
    }
    assert_eq!(*keep[1], plain(ROOM - 2)[..]);
    drop(keep);
    queue.receive(|mut packets| assert!(packets.next().is_none()))?;
    for n in 0..30 {
        passes(bed, &mut a, &mut queue, 400 + n);
    }
    Ok(())
}

fn a_queue_with_a_few_strides_left_wakes_when_receives_come_back(bed: &Bed) -> Outcome {
    let mut a = bed.station()?;
    let (kernel, calls) = AlteredKernel::before(bed.simulator().kernel(), Overrides::default());
    let context = devices_on(kernel)?[0].open()?;
    let channel = context.create_comp_channel()?;
    let builder = context.create_ethernet_queue(bed.port()).receives(16).frames(1).sends(8);
    let builder = builder.channel(&channel).striding(STRIDE as u32, STRIDES as u32).spares(0);
    let mut queue = builder.build()?;
    let _rule = queue.attach(&to_group())?;
    // Of the two receives, one is used up and kept, and one has a stride left.
    for bytes in [ROOM, ROOM - STRIDE] {
        a.send(bed, &plain(bytes));
    }
    let frames = kept(bed, &mut queue, 2);
    assert!(!queue.arm()?, "no packet of two strides can arrive");
    let before = calls.reads.load(Relaxed);
    let awake = std::thread::scope(|scope| {
        let waits = scope.spawn(|| queue.wait(Some(Duration::from_secs(10))));
        // The wait reads events only after it has slept, so this loop waits for the first read.
        while calls.reads.load(Relaxed) == before && !waits.is_finished() {
            std::thread::yield_now();
        }
        drop(frames);
        // Packets that come before the receives are posted are dropped.
        while !waits.is_finished() {
            a.send(bed, &plain(ROOM));
        }
        waits.join().expect("no panic")
    })?;
    assert!(awake, "a packet waits");
    Ok(())
}

/// A run ends with its receive, but a burst may end inside a run.
fn runs_over_many_receives_are_taken_in_bursts(bed: &Bed) -> Outcome {
    for format in [CqeCompression::Hash, CqeCompression::ChecksumStride] {
        let (mut queue, _rule) = queue_with(bed, |builder| {
            builder.receives(7 * STRIDES as u32).burst(5).compression(format)
        })?;
        runs_in_bursts(bed, &mut queue, 7 * STRIDES, STRIDES)?;
    }
    Ok(())
}

fn packets_are_sent_back_from_where_they_lie(bed: &Bed) -> Outcome {
    let mut a = bed.station()?;
    let _rule = a.qp.attach(a.port, &back())?;
    let (mut queue, _rule) = queue_with(bed, |builder| builder.receives(64).checksums(false))?;
    let mut count = 0;
    for burst in [1, 8, 3, 8, 8, 5, 2, 8, 7] {
        a.recv(burst);
        let frames: Vec<_> = (0..burst).map(|n| plain(60 + 37 * n)).collect();
        frames.iter().for_each(|frame| a.send(bed, frame));
        send_back(bed, &mut queue, burst);
        for frame in &frames {
            assert_eq!(a.next(bed).frame, returned(frame));
        }
        count += burst as u64;
    }
    bed.until("frames are sent", || {
        queue.reap().expect("a queue that can be polled");
        queue.sending() == 0
    });
    assert_eq!(queue.counts(), Counts { received: count, sent: count, ..Counts::default() });
    Ok(())
}

fn frames_of_a_striding_queue_are_sent_by_it_and_by_one_beside(bed: &Bed) -> Outcome {
    let mut a = bed.station()?;
    let _rule = a.qp.attach(a.port, &back())?;
    let context = bed.context();
    let builder = context.create_ethernet_queue(bed.port()).receives(16).frames(2).sends(8);
    let mut near = builder.buffer_size(100).striding(64, 8).build()?;
    let builder = context.create_ethernet_queue(bed.port()).receives(8).frames(0).sends(8);
    let mut far = builder.beside(&near).build()?;
    let _rule = near.attach(&to_group())?;
    a.recv(8);
    // Frames that were filled.
    let mut frames = vec![near.frame().expect("a buffer"), near.frame().expect("a buffer")];
    assert!(near.frame().is_none());
    assert_eq!((frames[0].capacity(), near.free_buffers()), (128, 0));
    frames[0].fill(&returned(&plain(128)));
    frames[1].fill(&returned(&plain(ETHERNET + 1)));
    near.send(frames)?;
    assert_eq!(a.next(bed).frame, returned(&plain(128)));
    assert_eq!(a.next(bed).frame[..ETHERNET + 1], returned(&plain(ETHERNET + 1)));
    bed.until("frames are sent", || {
        near.reap().expect("a queue that can be polled");
        near.sending() == 0
    });
    assert_eq!(near.free_buffers(), 2);
    // Packets that the other queue received.
    for round in 0..20 {
        a.recv(3);
        for n in 0..3 {
            a.send(bed, &plain(60 + 50 * n + round));
        }
        let mut frames = kept(bed, &mut near, 3);
        frames.iter_mut().for_each(|frame| frame[..6].copy_from_slice(&BACK));
        assert_eq!(far.send(frames)?, 3);
        bed.until("frames are sent", || {
            far.reap().expect("a queue that can be polled");
            far.sending() == 0
        });
        for n in 0..3 {
            assert_eq!(a.next(bed).frame, returned(&plain(60 + 50 * n + round)));
        }
    }
    Ok(())
}

fn a_striding_queue_sends_again_after_a_restart(bed: &Bed) -> Outcome {
    let mut a = bed.station()?;
    let _rule = a.qp.attach(a.port, &back())?;
    let (mut queue, _rule) = queue_with(bed, |builder| builder)?;
    a.recv(4);
    let fault = Fault::FailRequest {
        qpn: Some(queue.qp().qp_num()),
        syndrome: Syndrome::LocalQpOperation,
        vendor: 0,
    };
    bed.simulator().inject(0, fault);
    let frame = |queue: &mut EthernetQueue<Striding>, bytes| {
        let mut frame = queue.frame().expect("a free buffer");
        frame.fill(&returned(&plain(bytes)));
        frame
    };
    let refused = [frame(&mut queue, 60), frame(&mut queue, 61)];
    queue.send(refused)?;
    bed.until("frames are refused", || {
        queue.reap().expect("a queue that can be polled");
        queue.sending() == 0
    });
    assert_eq!((queue.counts().sent, queue.counts().failed), (0, 2));
    // The queue still receives, and the waiting packets are not lost.
    passes(bed, &mut a, &mut queue, 70);
    a.send(bed, &plain(71));
    bed.settle();
    queue.restart()?;
    assert_eq!(*kept(bed, &mut queue, 1)[0], plain(71)[..]);
    let again = frame(&mut queue, 72);
    queue.send([again])?;
    assert_eq!(a.next(bed).frame, returned(&plain(72)));
    for n in 0..40 {
        passes(bed, &mut a, &mut queue, 100 + n);
    }
    Ok(())
}

fn frames_outlive_their_striding_queue(bed: &Bed) -> Outcome {
    let mut a = bed.station()?;
    let (mut queue, rule) = queue_with(bed, |builder| builder)?;
    a.send(bed, &plain(321));
    let keep = kept(bed, &mut queue, 1);
    drop(queue);
    // The rule keeps the work queue alive, so it still receives.
    for _ in 0..10 {
        a.send(bed, &plain(99));
    }
    bed.settle();
    assert_eq!(*keep[0], plain(321)[..]);
    drop(rule);
    assert_eq!(*keep[0], plain(321)[..]);
    Ok(())
}
