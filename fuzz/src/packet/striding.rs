//! The same for packets that share receives.

use super::{BACK, GROUP, LONGEST, Sender, TURNS, frame};
use crate::numbers::Numbers;
use crate::session::device;
use mlx5::ethernet::{EthernetError, EthernetQueue, Frame, Packet, Striding};
use mlx5::flow::{Ethernet, FlowRule, Rule};
use mlx5::{Context, CqeCompression, PollError, SendFlags};
use mlx5_sim::{Fault, Simulator};
use std::error::Error;

/// Sizes and numbers of strides: a receive holds at least the longest frame.
const STRIDES: [(u32, u32); 3] = [(64, 8), (64, 16), (512, 8)];

/// The queue, and the frames that the program keeps, with their expected contents.
struct Bed {
    queue: EthernetQueue<Striding>,
    _rule: FlowRule,
    kept: Vec<(Frame, Vec<u8>)>,
}

impl Bed {
    fn new(context: &Context, numbers: &mut Numbers) -> Result<Self, mlx5::Error> {
        let (stride, strides) = numbers.pick(&STRIDES);
        let mut builder = context.create_ethernet_queue(1).receives(2 * strides).frames(2);
        builder = builder.sends(8).burst(numbers.pick(&[1, 3, 64])).checksums(numbers.one_in(2));
        if numbers.one_in(2) {
            let formats =
                [CqeCompression::Hash, CqeCompression::Checksum, CqeCompression::ChecksumStride];
            builder = builder.compression(numbers.pick(&formats));
        }
        let builder = builder.vlan_stripping(numbers.one_in(2)).striding(stride, strides);
        let queue = builder.spares(numbers.below(3) as u32).build()?;
        let rule = queue.attach(&Rule::new().ethernet(Ethernet::new().dst_mac(GROUP)))?;
        Ok(Self { queue, _rule: rule, kept: Vec::new() })
    }

    /// Receives packets and uses each in a random way.
    fn receive(&mut self, numbers: &mut Numbers) -> Result<usize, EthernetError> {
        let Self { queue, kept, .. } = self;
        queue.receive(|mut packets| {
            let mut count = 0;
            let one_by_one = numbers.below(4);
            let mut look = |mut packet: Packet<'_, Striding>| {
                count += 1;
                let _ = format!("{:?}", packet.completion());
                let bytes = packet.to_vec();
                match numbers.below(4) {
                    0 => drop(packet),
                    1 => kept.push((packet.keep(), bytes)),
                    2 => {
                        let length = numbers.below(packet.len() + 1);
                        packet.send_resized(length);
                    }
                    _ => {
                        if let Some(destination) = packet.get_mut(..6) {
                            destination.copy_from_slice(&BACK);
                        }
                        packet.send();
                    }
                }
            };
            for _ in 0..one_by_one {
                let Some(packet) = packets.next() else { break };
                look(packet);
            }
            match one_by_one {
                // The next burst gets the packets that this one leaves, even if it is leaked.
                3 => {
                    let _leaked = std::mem::ManuallyDrop::new(packets);
                }
                _ => packets.for_each(look),
            }
            count
        })
    }

    /// Kept frames have their contents, and no two share a byte.
    fn check(&self) {
        let mut places: Vec<_> = Vec::new();
        for (frame, bytes) in &self.kept {
            assert_eq!(**frame, bytes[..], "a frame that is kept");
            places.push((frame.as_ptr().addr(), frame.capacity()));
        }
        places.sort_unstable();
        for pair in places.windows(2) {
            assert!(pair[0].0 + pair[0].1 <= pair[1].0, "two frames at one place: {places:x?}");
        }
    }

    /// Drops all kept frames: the queue receives as before.
    fn recovers(
        &mut self,
        simulator: &Simulator,
        sender: &mut Sender,
    ) -> Result<(), Box<dyn Error>> {
        simulator.run_until_idle();
        self.kept.clear();
        // Packets from before are still waiting.
        while self.queue.receive(|mut packets| packets.next().is_some())? {
            simulator.run_until_idle();
        }
        let mut seen = 0;
        for round in 0..200 {
            let mut bytes = [&GROUP[..], &[2; 54]].concat();
            bytes[20] = round;
            sender.send(simulator, &bytes, SendFlags::empty())?;
            simulator.run_until_idle();
            seen = self.queue.receive(|mut packets| {
                let mut count = 0;
                while let Some(packet) = packets.next() {
                    count += usize::from(*packet == bytes[..]);
                }
                count
            })?;
        }
        assert_eq!(seen, 1, "{:?}", self.queue);
        Ok(())
    }
}

pub(super) fn fuzz(numbers: &mut Numbers, simulator: &Simulator) -> Result<(), Box<dyn Error>> {
    let device = device(simulator.kernel())?;
    let (here, there) = (device.open()?, device.open()?);
    let mut sender = Sender::new(&there)?;
    let mut bed = Bed::new(&here, numbers)?;
    for _ in 0..2 * TURNS {
        match numbers.below(6) {
            0..=2 => {
                let flags = numbers.pick(&[SendFlags::empty(), SendFlags::IP_CSUM]);
                sender.send(simulator, &frame(numbers), flags)?;
            }
            3 => drop(bed.kept.pop()),
            4 if numbers.one_in(12) => bed.queue.restart()?,
            4 if numbers.one_in(12) => return spoiled(numbers, simulator, &mut sender, bed),
            _ => {
                bed.receive(numbers)?;
            }
        }
        simulator.run_until_idle();
        bed.check();
    }
    bed.recovers(simulator, &mut sender)
}

/// Changes bytes of a completion, above all the strides in it.
fn spoiled(
    numbers: &mut Numbers,
    simulator: &Simulator,
    sender: &mut Sender,
    mut bed: Bed,
) -> Result<(), Box<dyn Error>> {
    simulator.run_until_idle();
    let _ = bed.queue.reap();
    for _ in 0..4 {
        let patch = (0..=numbers.below(3)).map(|_| {
            let offset = numbers.pick(&[2, 35, 44, 44, 45, 45, 46, 47, 60, 61, 61, 63]);
            (offset, numbers.pick(&[0, 1, 2, 7, 8, 0x0e, 0x20, 0x2c, 0x7f, 0x80, 0xe0, 0xff]))
        });
        let patch: Vec<_> = patch.collect();
        sender.memory.write_at(0, &frame(numbers))?;
        let sge = sender.memory.sge(..60 + numbers.below(LONGEST - 60))?;
        sender.qp.post(|batch| batch.wr(0, SendFlags::empty()).send().sge(sge))?;
        simulator.inject(0, Fault::CorruptCqe { cqn: None, patch });
        simulator.run_until_idle();
        if let Err(error) = bed.receive(numbers) {
            assert!(matches!(error, EthernetError::Poll(PollError::Corrupt(_))), "{error}");
            let again = [bed.receive(numbers).map(drop), bed.queue.reap().map(drop)];
            assert!(again.contains(&Err(error)), "it stays: {again:?}");
            break;
        }
        // Whatever the completion reports, no two frames have the same strides.
        let places = bed.kept.iter().map(|(frame, _)| (frame.as_ptr().addr(), frame.capacity()));
        let mut places: Vec<_> = places.collect();
        places.sort_unstable();
        assert!(places.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0), "{places:x?}");
    }
    Ok(())
}
