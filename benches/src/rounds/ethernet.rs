//! Sends and receives packets in batches, one packet per request.

use crate::bed::{Base, DEPTH};
use crate::machine::Machine;
use crate::operations::ethernet::BURST;
use crate::round::ROUND;
use mlx5::flow::{Ethernet, FlowRule, Rule};
use mlx5::transport::RawPacket;
use mlx5::{CompletionQueue, MemoryRegion, QueuePair, SendFlags, Sge};

/// Bytes of a packet.
const PACKET: usize = 64;
/// Number of posted receives.
const RECEIVES: usize = 128;
/// Ethernet, IPv4 and UDP headers of a packet, without checksums: the device computes them.
const HEADERS: [u8; 42] = [
    3, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 1, 8,
    0, // The destination's last bytes are the queue pair's number.
    0x45, 0, 0, 50, 0, 0, 0x40, 0, 64, 17, 0, 0, 192, 0, 2, 1, 198, 51, 100, 7, //
    0x30, 0x39, 0, 7, 0, 30, 0, 0,
];

/// A queue pair that sends packets to itself.
struct Packets {
    base: Base,
    qp: QueuePair<RawPacket>,
    send_cq: CompletionQueue,
    recv_cq: CompletionQueue,
    memory: MemoryRegion,
    sum: u64,
    group: [u8; 6],
    _rule: FlowRule,
}

/// Frames to send, and buffers for received packets.
struct Pieces {
    frames: [Sge; BURST],
    /// Contents of each frame.
    frame: [u8; PACKET],
    buffers: [Sge; ROUND as usize],
}

impl Packets {
    fn new(machine: &Machine, sges: u32, inline: u32) -> (Self, Pieces) {
        let base = Base::new(machine);
        let port = machine.ethernet_port().expect("an Ethernet port");
        let (send_cq, recv_cq) = (base.cq(1024), base.cq(1024));
        let qp = base.pd.create_qp::<RawPacket>(&send_cq, &recv_cq).max_send_wr(DEPTH);
        let qp = qp.max_recv_wr(DEPTH).max_send_sge(sges).max_inline_data(inline);
        let qp = qp.self_loopback(false, true).build();
        let mut qp = qp.expect("create_qp");
        qp.activate(port).expect("activate");
        // A multicast group of its own, since other queues of this device run in turn.
        let mut frame = [0; PACKET];
        frame[..HEADERS.len()].copy_from_slice(&HEADERS);
        frame[3..6].copy_from_slice(&qp.qp_num().to_be_bytes()[1..]);
        let group: [u8; 6] = std::array::from_fn(|at| frame[at]);
        let rule = Rule::new().ethernet(Ethernet::new().dst_mac(group));
        let rule = qp.attach(port, &rule).expect("create_flow");
        let pieces = BURST + ROUND as usize;
        let memory = base.pd.memory(pieces * PACKET).register().expect("register");
        let piece = |at: usize| memory.sge(at * PACKET..(at + 1) * PACKET).expect("inside");
        for at in 0..BURST {
            memory.write_at(at * PACKET, &frame).expect("inside");
        }
        let given = Pieces {
            frames: std::array::from_fn(piece),
            frame,
            buffers: std::array::from_fn(|at| piece(BURST + at)),
        };
        let mut packets = Self { base, qp, send_cq, recv_cq, memory, sum: 0, group, _rule: rule };
        for at in 0..RECEIVES {
            packets.qp.recv(0, given.buffers[at % ROUND as usize]).expect("room");
        }
        // Each call polls the completions of the previous one.
        packets.send(&given);
        packets.receive(BURST, &given);
        (packets, given)
    }

    /// Sends a batch; its completion is polled later.
    fn send(&mut self, given: &Pieces) {
        self.send_cq.poll(1, |one| one.status().expect("success")).expect("poll");
        let post = self.qp.post(|batch| {
            for (wr_id, frame) in (1..).zip(given.frames) {
                let last = wr_id == BURST as u64;
                let signaled = if last { SendFlags::SIGNALED } else { SendFlags::empty() };
                batch.wr(wr_id, SendFlags::IP_CSUM | signaled).send().sge(frame);
            }
        });
        post.expect("room");
        self.base.machine.settle();
    }

    /// Receives packets, and posts as many receives again.
    fn receive(&mut self, count: usize, given: &Pieces) {
        let mut received = 0;
        while received < count {
            let poll = self.recv_cq.poll(count, |one| one.status().expect("success"));
            received += poll.expect("poll");
            self.base.machine.settle();
        }
        assert_eq!(received, count);
        for at in 0..count {
            self.qp.recv(0, given.buffers[at]).expect("room");
        }
        // The received bytes are the sent ones, with checksums.
        let mut last = [0; PACKET];
        self.memory.read_at((BURST + count - 1) * PACKET, &mut last).expect("inside");
        assert_eq!(last[26..34], HEADERS[26..34]);
        assert_ne!(last[24..26], [0; 2], "the checksum that was computed");
    }
}

/// One packet per request.
pub(super) mod one {
    use super::{BURST, Packets};
    use crate::operations::ethernet;
    use crate::round::{ROUND, timed};
    use crate::rounds::subject;
    use std::hint::black_box;

    subject! {
        |machine| Packets::new(machine, 1, 0) =>

        "eth_send32", Single, ethernet::send x 32, |bed, given, first| {
            let (qp, cq) = (&mut bed.qp, &mut bed.send_cq);
            let time = timed(1, |_| ethernet::send(qp, cq, &given.frames, first) == Some(1));
            bed.base.machine.settle();
            bed.receive(BURST, given);
            time
        }
        "eth_recv32", Single, ethernet::receive x 64, |bed, given, first| {
            for _ in 0..ROUND as usize / BURST {
                bed.send(given);
            }
            let lists = black_box(&given.buffers).as_chunks::<BURST>().0;
            let (qp, cq, sum) = (&mut bed.qp, &mut bed.recv_cq, &mut bed.sum);
            timed(2, |k| ethernet::receive(qp, cq, &lists[k], first, sum) == Some(BURST))
        }
    }
}

/// Requests with several packets.
pub(super) mod multi {
    use super::{BURST, Packets};
    use crate::operations::ethernet;
    use crate::round::timed;
    use crate::rounds::subject;

    subject! {
        |machine| Packets::new(machine, BURST as u32, 0) =>

        "eth_send32_multi", Single, ethernet::send_multi x 32, |bed, given, first| {
            let (qp, cq) = (&mut bed.qp, &mut bed.send_cq);
            let time = timed(1, |_| ethernet::send_multi(qp, cq, &given.frames, first) == Some(1));
            bed.base.machine.settle();
            bed.receive(BURST, given);
            time
        }
    }
}

/// Requests with copies of several packets.
pub(super) mod copied {
    use super::{BURST, PACKET, Packets};
    use crate::operations::ethernet::{self, COPIED};
    use crate::round::timed;
    use crate::rounds::subject;
    use std::hint::black_box;

    /// Bytes of a packet in a request, with its length in front.
    const ROOM: usize = (4 + PACKET).next_multiple_of(16);

    subject! {
        |machine| Packets::new(machine, 1, (COPIED * ROOM - 4) as u32) =>

        "eth_send32_inline", Single, ethernet::send_inline x 32, |bed, given, first| {
            let packets = black_box([&given.frame[..]; BURST]);
            let (qp, cq) = (&mut bed.qp, &mut bed.send_cq);
            let time = timed(1, |_| ethernet::send_inline(qp, cq, &packets, first) == Some(1));
            bed.base.machine.settle();
            bed.receive(BURST, given);
            time
        }
    }
}

/// A queue with buffers of its own.
pub(super) mod queue {
    use super::{BURST, PACKET, Packets, Pieces};
    use crate::machine::Machine;
    use crate::operations::ethernet;
    use crate::round::timed;
    use crate::rounds::subject;
    use mlx5::ethernet::{EthernetQueue, EthernetQueueBuilder, Frame, Mode, Single, Striding};
    use mlx5::flow::{Ethernet, FlowRule, Rule};

    /// Destination of forwarded packets: no station has this address.
    const NEXT: [u8; 6] = [2, 0, 0, 0, 0, 2];
    const OWN: [u8; 6] = [2, 0, 0, 0, 0, 1];
    /// Size and number of strides, as other drivers choose them for packets of an MTU of 1500.
    const STRIDE: u32 = 2048;
    const STRIDES: u32 = 64;

    /// A queue that sends packets, and one that receives them as well.
    struct Beside<M: Mode> {
        packets: Packets,
        given: Pieces,
        queue: EthernetQueue<M>,
        sum: u64,
        _rule: FlowRule,
    }

    impl<M: Mode> Beside<M> {
        fn new(
            machine: &Machine,
            build: impl FnOnce(EthernetQueueBuilder<'_>) -> Result<EthernetQueue<M>, mlx5::Error>,
        ) -> (Self, ()) {
            let (packets, given) = Packets::new(machine, 1, 0);
            let port = machine.ethernet_port().expect("an Ethernet port");
            let builder = packets.base.context.create_ethernet_queue(port);
            let builder = builder.receives(128).sends(128).self_loopback(false, true);
            let queue = build(builder).expect("create_ethernet_queue");
            // Both queues receive the sender's packets.
            let rule = Rule::new().ethernet(Ethernet::new().dst_mac(packets.group));
            let rule = queue.attach(&rule).expect("create_flow");
            (Self { packets, given, queue, sum: 0, _rule: rule }, ())
        }

        /// Sends a burst that then waits in the queue.
        fn send(&mut self) {
            self.packets.send(&self.given);
            self.packets.receive(BURST, &self.given);
        }
    }

    fn shared(machine: &Machine) -> (Beside<Striding>, ()) {
        Beside::new(machine, |builder| builder.striding(STRIDE, STRIDES).build())
    }

    /// A receive for each packet.
    pub(in crate::rounds) mod single {
        use super::*;

        subject! {
            |machine| Beside::new(machine, |builder| builder.build()) =>

            "eth_forward32_single", Single, ethernet::forward x 32, |bed, _given, _first| {
                bed.send();
                let queue = &mut bed.queue;
                let time = timed(1, |_| ethernet::forward(queue, NEXT, OWN) == Some(BURST));
                bed.packets.base.machine.settle();
                assert_eq!(bed.queue.counts().not_sent, 0);
                time
            }
        }
    }

    /// The sender of frames, and its next frames.
    struct Frames {
        beside: Beside<Single>,
        frame: [u8; PACKET],
        frames: Vec<Frame>,
    }

    impl Frames {
        fn new(machine: &Machine) -> (Self, ()) {
            // One half is being sent while the other half is filled.
            let build =
                |builder: EthernetQueueBuilder<'_>| builder.frames(2 * BURST as u32).build();
            let (beside, ()) = Beside::new(machine, build);
            let mut frame = beside.given.frame;
            frame[..6].copy_from_slice(&NEXT);
            (Self { beside, frame, frames: Vec::with_capacity(BURST) }, ())
        }

        fn make(&mut self) {
            for _ in 0..BURST {
                let mut frame = self.beside.queue.frame().expect("a buffer");
                frame.fill(&self.frame);
                self.frames.push(frame);
            }
        }

        fn settle(&self) {
            self.beside.packets.base.machine.settle();
            let counts = self.beside.queue.counts();
            assert_eq!((counts.not_sent, counts.failed), (0, 0));
        }
    }

    /// Frames.
    pub(in crate::rounds) mod frames {
        use super::*;
        use std::hint::black_box;

        subject! {
            Frames::new =>

            "eth_send32_frames", Single, ethernet::send_frames x 32, |bed, _given, _first| {
                bed.make();
                let (queue, frames) = (&mut bed.beside.queue, &mut bed.frames);
                let time = timed(1, |_| ethernet::send_frames(queue, frames) == Some(BURST));
                bed.settle();
                time
            }
            "eth_fill32_frames", Single, ethernet::fill_frames x 32, |bed, _given, _first| {
                let packets = black_box([&bed.frame[..]; BURST]);
                let (queue, frames) = (&mut bed.beside.queue, &mut bed.frames);
                let time = timed(1, |_| ethernet::fill_frames(queue, frames, &packets) == Some(BURST));
                bed.settle();
                time
            }
        }
    }

    /// Receives that packets share.
    pub(in crate::rounds) mod striding {
        use super::*;

        subject! {
            shared =>

            "eth_recv32_multi", Single, ethernet::receive_multi x 32, |bed, _given, _first| {
                bed.send();
                let (queue, sum) = (&mut bed.queue, &mut bed.sum);
                timed(1, |_| ethernet::receive_multi(queue, sum) == Some(BURST))
            }
            "eth_forward32", Single, ethernet::forward_multi x 32, |bed, _given, _first| {
                bed.send();
                let queue = &mut bed.queue;
                let time = timed(1, |_| ethernet::forward_multi(queue, NEXT, OWN) == Some(BURST));
                bed.packets.base.machine.settle();
                assert_eq!(bed.queue.counts().not_sent, 0);
                time
            }
        }
    }
}
