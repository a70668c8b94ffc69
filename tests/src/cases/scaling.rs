//! Receive-side scaling: a hash spreads packets over work queues.

use crate::frames::{Flow, plain};
use crate::prelude::*;
use mlx5::{
    ErrorKind, HashKey, HashQueuePair, HashedTransport, NetworkHeader, ProtectionDomain,
    PostError, QueueState, RxHashFields, WorkQueue, WqState,
};

pub(crate) const CASES: &[Case] = cases![
    packets_are_spread_by_their_hash: RAW_PACKETS | EVERY_MODEL,
    packets_of_one_flow_stay_together: RAW_PACKETS,
    packets_outside_the_hash_go_to_the_first_queue: RAW_PACKETS,
    a_queue_that_is_not_started_drops_its_packets: RAW_PACKETS,
    a_work_queue_in_error_flushes_its_receives: RAW_PACKETS,
    a_work_queue_that_is_reset_forgets_its_receives_and_starts_again: RAW_PACKETS,
    a_work_queue_strips_tags_if_it_was_made_so: RAW_PACKETS,
    tables_and_hashes_that_cannot_be_are_refused_by_name: RAW_PACKETS,
];

/// Bytes of a receive buffer.
const ROOM: usize = 512;
/// Receives of each queue.
const RECEIVES: usize = 64;

/// Work queues over which a hash spreads the packets that are sent to the stations' group address.
struct Spread {
    queues: Vec<(WorkQueue, CompletionQueue)>,
    memory: MemoryRegion,
    pd: ProtectionDomain,
    context: Context,
    qp: Option<HashQueuePair>,
}

impl Spread {
    fn new(bed: &Bed, count: usize) -> Result<Self, Failed> {
        let context = bed.context();
        let pd = context.alloc_pd()?;
        let memory = pd.memory(count.max(1) * RECEIVES * ROOM).register()?;
        let mut queues = Vec::new();
        for number in 0..count {
            let cq = context.create_cq(RECEIVES as u32).cqe_size(bed.cqe_size()).build()?;
            let queue = pd.create_wq(&cq).max_wr(RECEIVES as u32).user_tag(number as u64).build()?;
            queues.push((queue, cq));
        }
        Ok(Self { queues, memory, pd, context, qp: None })
    }

    fn start(&mut self) -> Outcome {
        for (number, (queue, _)) in self.queues.iter_mut().enumerate() {
            queue.start()?;
            for n in 0..RECEIVES {
                let at = (number * RECEIVES + n) * ROOM;
                queue.recv(at as u64, self.memory.sge(at..at + ROOM)?)?;
            }
        }
        Ok(())
    }

    fn hash(&mut self, fields: RxHashFields) -> Result<mlx5::flow::FlowRule, Failed> {
        let queues = self.queues.iter().map(|(queue, _)| queue);
        let table = self.context.create_indirection_table(queues)?;
        let qp = self.pd.create_hash_qp(&table).fields(fields).build()?;
        let rule = qp.attach(1, &to_group())?;
        self.qp = Some(qp);
        Ok(rule)
    }

    /// Waits until a queue receives `frame`. Returns the number of that queue, and the completion.
    #[track_caller]
    fn next(&mut self, bed: &Bed, frame: &[u8]) -> (usize, OwnedCompletion) {
        let mut found = None;
        bed.until("a packet", || {
            for (number, (_, cq)) in self.queues.iter_mut().enumerate() {
                let _ = cq.poll(1, |completion| found = Some((number, completion.to_owned())));
            }
            found.is_some()
        });
        let (number, completion) = found.expect("found");
        let view = completion.as_completion();
        view.status().expect("a good one");
        assert_eq!(view.user_tag(), number as u64);
        let mut bytes = vec![0; view.byte_len().expect("a length") as usize];
        self.memory.read_at(view.wr_id() as usize, &mut bytes).expect("inside the memory");
        assert_eq!(bytes, frame);
        (number, completion)
    }
}

/// The Toeplitz hash, by its definition: for each set bit of the input, the 32 bits of the key that
/// start at the position of that bit, combined by exclusive or.
fn toeplitz(key: &[u8; 40], input: &[u8]) -> u32 {
    let bit = |bytes: &[u8], at: usize| u32::from(bytes[at / 8] >> (7 - at % 8) & 1);
    (0..input.len() * 8)
        .filter(|at| bit(input, *at) == 1)
        .map(|at| (0..32).fold(0, |word, n| word << 1 | bit(key, at + n)))
        .fold(0, |hash, word| hash ^ word)
}

fn packets_are_spread_by_their_hash(bed: &Bed) -> Outcome {
    // A test vector that Microsoft published: from 66.9.149.187:2794 to 161.142.100.80:1766.
    let key = HashKey::default().0;
    let vector = [66, 9, 149, 187, 161, 142, 100, 80, 0x0a, 0xea, 0x06, 0xe6];
    assert_eq!((toeplitz(&key, &vector), toeplitz(&key, &vector[..8])), (0x51cc_c178, 0x323e_8fc2));

    let mut a = bed.station()?;
    for (udp, fields) in [
        (
            true,
            RxHashFields::SRC_IPV4
                | RxHashFields::DST_IPV4
                | RxHashFields::SRC_PORT_UDP
                | RxHashFields::DST_PORT_UDP,
        ),
        (
            false,
            RxHashFields::SRC_IPV6
                | RxHashFields::DST_IPV6
                | RxHashFields::SRC_PORT_TCP
                | RxHashFields::DST_PORT_TCP,
        ),
    ] {
        let mut spread = Spread::new(bed, 8)?;
        spread.start()?;
        let _rule = spread.hash(fields)?;
        let mut reached = [0; 8];
        for n in 0..40_u16 {
            let flow = if udp { Flow::UDP4 } else { Flow::TCP6 };
            let flow = Flow { ports: (1000 + n * 37, 80 + n % 3), host: n as u8, ..flow };
            let frame = flow.frame(&[n as u8; 40]);
            a.send(bed, &frame);
            let (number, completion) = spread.next(bed, &frame);
            let addresses = if udp { &frame[26..38] } else { &frame[22..58] };
            let hash = toeplitz(&key, addresses);
            let view = completion.as_completion();
            assert_eq!(view.rss_hash(), Some(hash));
            let hashed = view.hashed_headers().expect("of a packet");
            let (network, transport) = match udp {
                true => (NetworkHeader::Ipv4, HashedTransport::Udp),
                false => (NetworkHeader::Ipv6, HashedTransport::Tcp),
            };
            assert_eq!((hashed.network, hashed.transport), (Some(network), Some(transport)));
            assert_eq!(number, hash as usize % 8);
            reached[number] += 1;
        }
        assert!(reached.iter().filter(|count| **count > 0).count() >= 4, "{reached:?}");
    }
    Ok(())
}

fn packets_of_one_flow_stay_together(bed: &Bed) -> Outcome {
    let mut a = bed.station()?;
    let mut spread = Spread::new(bed, 4)?;
    spread.start()?;
    let _rule = spread.hash(RxHashFields::SRC_IPV4 | RxHashFields::DST_IPV4)?;
    for host in 1..6 {
        let mut at = None;
        for port in 0..5 {
            let frame = Flow { host, ports: (port, 1), ..Flow::UDP4 }.frame(&[port as u8; 40]);
            a.send(bed, &frame);
            let (number, _) = spread.next(bed, &frame);
            assert_eq!(*at.get_or_insert(number), number, "host {host}, port {port}");
        }
    }
    Ok(())
}

fn packets_outside_the_hash_go_to_the_first_queue(bed: &Bed) -> Outcome {
    let mut a = bed.station()?;
    let mut spread = Spread::new(bed, 4)?;
    spread.start()?;
    let _rule = spread.hash(RxHashFields::SRC_IPV4)?;
    for frame in [plain(60), Flow::UDP6.frame(&[1; 60])] {
        a.send(bed, &frame);
        let (number, completion) = spread.next(bed, &frame);
        assert_eq!(number, 0);
        assert_eq!(completion.as_completion().rss_hash(), Some(0));
        let hashed = completion.as_completion().hashed_headers().expect("of a packet");
        assert_eq!((hashed.network, hashed.transport), (None, None));
    }
    Ok(())
}

fn a_queue_that_is_not_started_drops_its_packets(bed: &Bed) -> Outcome {
    let mut a = bed.station()?;
    let mut spread = Spread::new(bed, 1)?;
    let _rule = spread.hash(RxHashFields::empty())?;
    a.send(bed, &plain(60));
    bed.nothing(&mut spread.queues[0].1);
    spread.start()?;
    a.send(bed, &plain(61));
    spread.next(bed, &plain(61));
    Ok(())
}

fn a_work_queue_in_error_flushes_its_receives(bed: &Bed) -> Outcome {
    let mut a = bed.station()?;
    let mut spread = Spread::new(bed, 2)?;
    spread.start()?;
    let _rule = spread.hash(RxHashFields::SRC_IPV4 | RxHashFields::SRC_PORT_UDP)?;
    spread.queues[0].0.to_error()?;
    let rest = bed.poll(&mut spread.queues[0].1, RECEIVES);
    assert_eq!(flushed(&rest).len(), RECEIVES);
    // The other queue still works.
    let mut received = 0;
    for port in 0..16 {
        let frame = Flow { ports: (port, 1), ..Flow::UDP4 }.frame(&[7; 40]);
        a.send(bed, &frame);
        bed.settle();
        received += spread.queues[1].1.poll(4, |_| {})?;
        bed.nothing_yet(&mut spread.queues[0].1);
    }
    assert!((1..16).contains(&received), "{received} of 16");
    Ok(())
}

fn a_work_queue_that_is_reset_forgets_its_receives_and_starts_again(bed: &Bed) -> Outcome {
    let mut a = bed.station()?;
    let mut spread = Spread::new(bed, 1)?;
    spread.start()?;
    let _rule = spread.hash(RxHashFields::empty())?;
    let frame = Flow::UDP4.frame(&[7; 40]);
    a.send(bed, &frame);
    bed.settle();
    let (queue, cq) = &mut spread.queues[0];
    assert!(queue.purge(cq).unwrap_err().to_string().contains("reset it before"));
    queue.reset()?;
    assert_eq!(queue.state(), WqState::Reset);
    let sge = spread.memory.sge(0..ROOM)?;
    assert_eq!(queue.recv(1, sge), Err(PostError::State(QueueState::Reset)));
    // Without a purge, completions from before the reset could be mistaken for new ones.
    let error = queue.start().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy);
    assert!(error.to_string().contains("`purge`"), "{error}");
    assert_eq!(queue.purge(cq)?, 1);
    spread.start()?;
    assert_eq!(spread.queues[0].0.free(), 0, "all places are free after a reset");
    for _ in 0..RECEIVES {
        a.send(bed, &frame);
        spread.next(bed, &frame);
    }
    // A reset from the error state needs no purge, because the flushed receives were polled.
    let (queue, cq) = &mut spread.queues[0];
    for _ in 0..3 {
        queue.recv(1, sge)?;
    }
    queue.to_error()?;
    assert_eq!(flushed(&bed.poll(cq, 3)).len(), 3);
    queue.reset()?;
    spread.start()?;
    a.send(bed, &frame);
    spread.next(bed, &frame);
    // VLAN stripping can be enabled on a running queue.
    let (queue, _) = &mut spread.queues[0];
    queue.set_vlan_stripping(true)?;
    a.send(bed, &crate::frames::tagged(&frame, 0x2abc));
    let (_, completion) = spread.next(bed, &frame);
    assert_eq!(completion.as_completion().vlan(), Some(0x2abc));
    Ok(())
}

fn a_work_queue_strips_tags_if_it_was_made_so(bed: &Bed) -> Outcome {
    let mut a = bed.station()?;
    let mut spread = Spread::new(bed, 0)?;
    let cq = spread.context.create_cq(64).cqe_size(bed.cqe_size()).build()?;
    let queue = spread.pd.create_wq(&cq).vlan_stripping(true).build()?;
    spread.queues.push((queue, cq));
    spread.start()?;
    let _rule = spread.hash(RxHashFields::empty())?;
    let frame = Flow::UDP4.frame(&[7; 60]);
    a.send(bed, &crate::frames::tagged(&frame, 0x2abc));
    let (_, completion) = spread.next(bed, &frame);
    assert_eq!(completion.as_completion().vlan(), Some(0x2abc));
    Ok(())
}

fn tables_and_hashes_that_cannot_be_are_refused_by_name(bed: &Bed) -> Outcome {
    let spread = Spread::new(bed, 3)?;
    let queues = || spread.queues.iter().map(|(queue, _)| queue);
    let error = spread.context.create_indirection_table(queues()).expect_err("three entries");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert!(error.to_string().contains("power of two"), "{error}");
    let table = spread.context.create_indirection_table(queues().take(2))?;
    for (fields, what) in [
        (RxHashFields::empty(), "table of one entry"),
        (RxHashFields::SRC_IPV4 | RxHashFields::DST_IPV6, "IPv4 or IPv6"),
        (RxHashFields::SRC_IPV4 | RxHashFields::SRC_PORT_TCP | RxHashFields::DST_PORT_UDP, "TCP or UDP"),
        (RxHashFields::SRC_IPV4 | RxHashFields::INNER, "tunnel_offloads"),
    ] {
        let error = spread.pd.create_hash_qp(&table).fields(fields).build().expect_err(what);
        assert!(error.to_string().contains(what), "{error}");
    }
    Ok(())
}
