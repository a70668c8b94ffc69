//! Tests of frames: sending, receiving, steering, segmentation.

mod hostile;
mod pace;
mod receive;
mod segments;
mod send;
mod sniffer;
mod steering;
mod striding;
mod vport;
mod wire;

use mlx5_prm::ethernet::EthernetSegment;
use mlx5_prm::wqe::Opcode;

use super::rig::{Completion, Cq, Qp, Region, Rig, Wqe, data};
use crate::config::{LinkLayer, PortConfig, SimConfig};
use crate::engine::ReceiveQueueConfig;

/// Bytes of a receive buffer.
const BUFFER: usize = 2048;

/// A device with a send queue and a receive queue that gets every frame.
struct Nic {
    send_cq: Cq,
    sq: Qp,
    cq: Cq,
    rq: Qp,
    sent: Region,
    received: Region,
}

fn rig(devices: usize) -> Rig {
    Rig::new(SimConfig::new().ports([PortConfig::ROCE]).devices(devices))
}

impl Nic {
    fn new(rig: &Rig, device: usize) -> Self {
        Self::with(rig, device, ReceiveQueueConfig::default())
    }

    fn with(rig: &Rig, device: usize, config: ReceiveQueueConfig) -> Self {
        let (send_cq, cq) = (rig.cq(device, 5, 64), rig.cq(device, 5, 64));
        let sq = rig.sq(device, &send_cq, 7);
        let rq = rig.rq(device, &cq, config);
        let (sent, received) = (rig.region(device, 1 << 19), rig.region(device, 8 * BUFFER));
        rig.everything_to(device, rig.tir(device, rig.direct(&rq)));
        Self { send_cq, sq, cq, rq, sent, received }
    }

    /// Posts `count` receive buffers.
    fn fill(&mut self, count: usize) {
        for _ in 0..count {
            let slot = usize::from(self.rq.receives) % 8;
            let at = self.received.at(slot * BUFFER);
            self.rq.post_receive(&[data(at, BUFFER as u32, self.received.key)]);
        }
    }

    /// Posts a frame from memory.
    fn post(&mut self, frame: &[u8]) -> u16 {
        self.post_with(Opcode::Send, &EthernetSegment::default(), frame)
    }

    fn post_with(&mut self, opcode: Opcode, segment: &EthernetSegment, frame: &[u8]) -> u16 {
        self.sent.memory.write(0, frame);
        let wqe = Wqe::new(opcode).segment(segment);
        let length = frame.len() as u32;
        self.sq.post(&wqe.data(self.sent.at(0), length, self.sent.key))
    }

    /// Posts a frame whose first bytes are in the WQE.
    fn post_inline(
        &mut self,
        opcode: Opcode,
        mut segment: EthernetSegment,
        header: &[u8],
        rest: &[u8],
    ) {
        self.sent.memory.write(0, rest);
        segment.inline_size_or_insert.set(header.len() as u16);
        let (first, more) = header.split_at(header.len().min(2));
        segment.inline_start_or_tag[..first.len()].copy_from_slice(first);
        let mut wqe = Wqe::new(opcode).segment(&segment);
        wqe.body.extend(more);
        wqe.body.resize(wqe.body.len().next_multiple_of(16), 0);
        if !rest.is_empty() {
            wqe = wqe.data(self.sent.at(0), rest.len() as u32, self.sent.key);
        }
        self.sq.post(&wqe);
    }

    /// The next frame received, and its completion.
    #[track_caller]
    fn take(&mut self) -> (Completion, Vec<u8>) {
        let completion = self.cq.expect();
        let slot = usize::from(completion.wqe()) % 8;
        let bytes = self.received.memory.read(slot * BUFFER, completion.bytes() as usize);
        (completion, bytes)
    }

    #[track_caller]
    fn expect(&mut self, frame: &[u8]) -> Completion {
        let (completion, bytes) = self.take();
        assert_eq!(bytes, frame);
        completion
    }
}

fn checksums(flags: u8) -> EthernetSegment {
    EthernetSegment { cs_flags: flags, ..EthernetSegment::default() }
}
