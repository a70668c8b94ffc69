//! Fuzzes a packet queue with random frames, and with random bytes in their completions.
//!
//! For any input, a packet is never longer than its buffer, each buffer is in exactly one place,
//! frames that the program keeps do not change, and a bad completion leads to a count or to an
//! error that stays. Packets have receives of their own, or share them.

mod striding;

use crate::numbers::Numbers;
use crate::session::device;
use mlx5::ethernet::{EthernetError, EthernetQueue, Frame};
use mlx5::flow::{Ethernet, FlowRule, Rule};
use mlx5::transport::RawPacket;
use mlx5::{
    CompletionQueue, Context, CqeCompression, MemoryRegion, PollError, QueuePair, SendFlags,
    VlanTag,
};
use mlx5_sim::{Fault, PortConfig, SimConfig, Simulator};
use std::error::Error;

/// Number of operations on a queue.
const TURNS: usize = 24;
/// Buffers of the queue: those for receives, and further ones.
const RECEIVES: usize = 12;
const FRAMES: usize = 6;
const BUFFER: usize = 256;
/// Destination of the frames, and of those that are sent back.
const GROUP: [u8; 6] = [0x01, 0, 0x5e, 1, 2, 3];
const BACK: [u8; 6] = [0x01, 0, 0x5e, 1, 2, 4];
/// Length of the longest frame.
const LONGEST: usize = 400;
/// Bytes of an Ethernet header.
const HEADER: usize = 14;

pub(crate) fn run(numbers: &mut Numbers) {
    let config = SimConfig::new().ports([PortConfig::ROCE]).raw_packets(true).step(true);
    let simulator = Simulator::new(config);
    let done = match numbers.one_in(2) {
        true => fuzz(numbers, &simulator),
        false => striding::fuzz(numbers, &simulator),
    };
    if let Err(error) = done {
        panic!("all calls are good, and yet: {error}");
    }
}

/// A queue pair that sends frames to the queue.
struct Sender {
    qp: QueuePair<RawPacket>,
    cq: CompletionQueue,
    memory: MemoryRegion,
}

impl Sender {
    fn new(context: &Context) -> Result<Self, mlx5::Error> {
        let (pd, cq) = (context.alloc_pd()?, context.create_cq(16).build()?);
        let memory = pd.memory(LONGEST).register()?;
        let mut qp = pd.create_qp::<RawPacket>(&cq, &cq).build()?;
        qp.activate(1)?;
        Ok(Self { qp, cq, memory })
    }

    fn send(
        &mut self,
        simulator: &Simulator,
        frame: &[u8],
        flags: SendFlags,
    ) -> Result<(), Box<dyn Error>> {
        self.memory.write_at(0, frame)?;
        let sge = self.memory.sge(..frame.len())?;
        self.qp.post(|batch| batch.wr(0, SendFlags::SIGNALED | flags).send().sge(sge))?;
        simulator.run_until_idle();
        let polled = self.cq.poll(1, |completion| completion.status().expect("a good frame"))?;
        assert_eq!(polled, 1);
        Ok(())
    }
}

/// A frame with UDP or TCP over IPv4 or IPv6, with or without tags, then with random changes, or
/// shorter or longer.
fn frame(numbers: &mut Numbers) -> Vec<u8> {
    let mut bytes = [&GROUP[..], &[2, 0, 0, 0, 0, 1]].concat();
    for _ in 0..numbers.pick(&[0, 0, 0, 1, 2]) {
        bytes.extend(numbers.pick(&[[0x81, 0, 0x20, 5], [0x88, 0xa8, 0, 7]]));
    }
    let udp = numbers.one_in(2);
    let payload = numbers.below(LONGEST - 200);
    let transport = payload as u16 + if udp { 8 } else { 20 };
    if numbers.one_in(2) {
        let [high, low] = (transport + 20).to_be_bytes();
        let protocol = if udp { 17 } else { 6 };
        bytes.extend([8, 0, 0x45, 0, high, low, 0, 1, 0, 0, 64, protocol, 0, 0]);
        bytes.extend([192, 0, 2, 1, 198, 51, 100, 7]);
    } else {
        let [high, low] = transport.to_be_bytes();
        bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0, high, low, if udp { 17 } else { 6 }, 64]);
        bytes.extend([0x20; 32]);
    }
    bytes.extend([0, 9, 0, 7]);
    let [high, low] = transport.to_be_bytes();
    match udp {
        true => bytes.extend([high, low, 0, 0]),
        false => bytes.extend([0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x18, 0x10, 0, 0, 0, 0, 0]),
    }
    bytes.extend((0..payload).map(|n| n as u8));
    if numbers.one_in(2) {
        // The destination stays, since otherwise the queue would not receive the frame.
        numbers.spoil(&mut bytes[GROUP.len()..]);
    }
    if numbers.one_in(4) {
        bytes.truncate(HEADER + numbers.below(bytes.len() - HEADER));
    }
    bytes
}

/// The queue, and its expected state.
struct Bed {
    queue: EthernetQueue,
    _rule: FlowRule,
    /// Frames that the program keeps, and their expected contents.
    kept: Vec<(Frame, Vec<u8>)>,
    /// Total number of buffers.
    buffers: usize,
}

/// Number of receives that are posted, or completed and not received yet.
fn with_device(queue: &EthernetQueue) -> usize {
    (queue.qp().caps().max_recv_wr - queue.qp().free_receives()) as usize
}

impl Bed {
    fn new(context: &Context, numbers: &mut Numbers) -> Result<Self, mlx5::Error> {
        let builder = context.create_ethernet_queue(1).receives(RECEIVES as u32);
        let builder = builder.frames(FRAMES as u32).sends(4).buffer_size(BUFFER as u32);
        let mut builder = builder.burst(numbers.pick(&[1, 3, 64])).checksums(numbers.one_in(2));
        if numbers.one_in(2) {
            let formats =
                [CqeCompression::Hash, CqeCompression::Checksum, CqeCompression::ChecksumStride];
            builder = builder.compression(numbers.pick(&formats));
        }
        let queue = builder.vlan_stripping(numbers.one_in(2)).build()?;
        let rule = queue.attach(&Rule::new().ethernet(Ethernet::new().dst_mac(GROUP)))?;
        let buffers = with_device(&queue) + queue.free_buffers();
        assert!(buffers >= RECEIVES + FRAMES, "{queue:?}");
        Ok(Self { queue, _rule: rule, kept: Vec::new(), buffers })
    }

    /// Receives packets and uses each in a random way. Kept packets are added to `kept`.
    fn receive(&mut self, numbers: &mut Numbers) -> Result<(), EthernetError> {
        let Self { queue, kept, .. } = self;
        queue.receive(|mut packets| {
            while let Some(mut packet) = packets.next() {
                assert!(packet.len() <= BUFFER, "{packet:?}");
                let _ = format!("{:?}", packet.completion());
                let _ = (packet.completion().packet_headers(), packet.completion().rss_hash());
                let bytes = packet.to_vec();
                match numbers.below(4) {
                    0 => drop(packet),
                    1 => kept.push((packet.keep(), bytes)),
                    2 => packet.send_resized(numbers.below(BUFFER + 1)),
                    _ => {
                        if let Some(destination) = packet.get_mut(..6) {
                            destination.copy_from_slice(&BACK);
                        }
                        packet.send();
                    }
                }
            }
        })
    }

    /// Sends or drops kept frames, or new ones.
    fn send(&mut self, numbers: &mut Numbers) -> Result<(), EthernetError> {
        let mut frames = Vec::new();
        for _ in 0..numbers.below(5) {
            let mut frame = match self.queue.frame() {
                Some(frame) if numbers.one_in(2) => frame,
                _ if self.kept.is_empty() => continue,
                _ => {
                    let at = numbers.below(self.kept.len());
                    self.kept.swap_remove(at).0
                }
            };
            frame.resize(numbers.below(BUFFER + 1));
            if numbers.one_in(4) {
                frame.set_vlan(Some(VlanTag::Customer(numbers.next() as u16)));
            }
            frames.push(frame);
        }
        let mut frames = frames.into_iter();
        let left = frames.len();
        let taken = self.queue.send(frames.by_ref())?;
        assert_eq!(taken, left - frames.len());
        Ok(())
    }

    /// Every buffer is in exactly one place.
    fn check(&self) {
        for (frame, bytes) in &self.kept {
            assert_eq!(**frame, bytes[..], "a frame that is kept");
        }
        let used = self.kept.len() + self.queue.sending() + with_device(&self.queue);
        assert_eq!(used + self.queue.free_buffers(), self.buffers, "{:?}", self.queue);
    }
}

fn fuzz(numbers: &mut Numbers, simulator: &Simulator) -> Result<(), Box<dyn Error>> {
    let device = device(simulator.kernel())?;
    let (here, there) = (device.open()?, device.open()?);
    let mut sender = Sender::new(&there)?;
    let mut bed = Bed::new(&here, numbers)?;
    for _ in 0..TURNS {
        match numbers.below(6) {
            0 | 1 => {
                let flags = numbers.pick(&[SendFlags::empty(), SendFlags::IP_CSUM]);
                sender.send(simulator, &frame(numbers), flags)?;
            }
            2 => bed.send(numbers)?,
            3 => drop(bed.kept.pop()),
            4 if numbers.one_in(12) => {
                bed.queue.restart()?;
            }
            4 if numbers.one_in(12) => return spoiled(numbers, simulator, &mut sender, bed),
            _ => bed.receive(numbers)?,
        }
        simulator.run_until_idle();
        bed.check();
    }
    Ok(())
}

/// Changes bytes of a completion. The completion's contents may be wrong from then on, but the
/// queue's invariants hold.
fn spoiled(
    numbers: &mut Numbers,
    simulator: &Simulator,
    sender: &mut Sender,
    mut bed: Bed,
) -> Result<(), Box<dyn Error>> {
    // A pending send would take the fault.
    simulator.run_until_idle();
    let _ = bed.queue.reap();
    for _ in 0..4 {
        let patch = (0..=numbers.below(3)).map(|_| {
            let offset = numbers.pick(&[2, 28, 29, 35, 44, 45, 46, 47, 60, 61, 63]);
            (offset, numbers.pick(&[0, 1, 2, 0x0e, 0x20, 0x2c, 0x7f, 0xe0, 0xff]))
        });
        let patch: Vec<_> = patch.collect();
        sender.memory.write_at(0, &frame(numbers))?;
        let sge = sender.memory.sge(..60)?;
        // The send is unsignaled: otherwise its completion would come first and take the fault.
        sender.qp.post(|batch| batch.wr(0, SendFlags::empty()).send().sge(sge))?;
        simulator.inject(0, Fault::CorruptCqe { cqn: None, patch });
        simulator.run_until_idle();
        match bed.receive(numbers) {
            Ok(()) => {}
            Err(error) => {
                assert!(matches!(error, EthernetError::Poll(PollError::Corrupt(_))), "{error}");
                // The error may belong to either completion queue.
                let again = [bed.receive(numbers), bed.queue.reap().map(drop)];
                assert!(again.contains(&Err(error)), "it stays: {again:?}");
                break;
            }
        }
    }
    // Whatever the device reported, no buffer is in two places, and the program has no buffer that
    // the device still writes to.
    for _ in 0..RECEIVES {
        // Unsignaled, because a fault may still wait for a completion.
        sender.memory.write_at(0, &frame(numbers))?;
        let sge = sender.memory.sge(..60)?;
        sender.qp.post(|batch| batch.wr(0, SendFlags::empty()).send().sge(sge))?;
        simulator.run_until_idle();
    }
    let known = bed.kept.len() + bed.queue.sending() + bed.queue.free_buffers();
    assert!(known <= bed.buffers, "{:?}", bed.queue);
    for (frame, bytes) in &bed.kept {
        assert_eq!(**frame, bytes[..], "a frame that is kept");
    }
    Ok(())
}
