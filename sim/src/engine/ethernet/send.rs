//! Sending frames: builds the frames of a send WQE, and delivers them to ports.

use mlx5_prm::ethernet::{FRAME_CHECK, InlineMode, checksum_flags};
use mlx5_prm::wqe::Opcode;

use crate::config::LinkLayer;
use crate::engine::ethernet::receive::Sender;
use crate::engine::send::Outcome;
use crate::engine::state::codes::{self, Code};
use crate::engine::state::ethernet::request::FrameRequest;
use crate::engine::state::mkey::Side;
use crate::engine::wqe::{Piece, Request};
use crate::engine::{Device, DeviceId, Engine};
use crate::frame::headers::{ETHERNET, Headers, is_multicast};
use crate::frame::segment::Plan;
use crate::frame::{checksum, tag};

/// The longest packet that the device cuts into segments, without headers; its logarithm is
/// [`LOG_SEGMENTED`].
pub(crate) const LONGEST_SEGMENTED: u64 = 1 << LOG_SEGMENTED;
/// Base-two logarithm of the longest packet that the device cuts into segments.
pub(crate) const LOG_SEGMENTED: u32 = 18;
/// Bytes of the shortest frame on the wire, without its check sequence.
const SHORTEST_ON_WIRE: usize = 60;

impl Engine {
    /// Sends the frames of a request. Each leaves at once, and the sender does not learn whether it
    /// arrived.
    pub(crate) fn send_frames(&mut self, device: DeviceId, qpn: u32, request: &Request) -> Outcome {
        match self.devices[device].frames(qpn, request) {
            Ok(frames) => {
                for frame in frames {
                    self.transmit(device, qpn, frame);
                }
                Outcome::Done(0)
            }
            Err(outcome) => outcome,
        }
    }

    /// Delivers a frame to every port that receives it.
    fn transmit(&mut self, device: DeviceId, qpn: u32, mut frame: Vec<u8>) {
        let this = &mut self.devices[device];
        this.pace(qpn, &frame);
        let number = this.sending_port(qpn);
        let Some(port) = this.port(number) else { return };
        if port.link_layer != LinkLayer::Ethernet
            || !port.active
            || frame.len() + FRAME_CHECK > port.frame as usize
        {
            this.ethernet.counts.not_sent += 1;
            return;
        }
        let own = port.mac;
        this.ethernet.counts.sent += 1;
        this.ethernet.counts.sent_bytes += frame.len() as u64;
        this.ethernet.counts.sent_to.count(&frame);
        this.copy_sent(&frame, qpn);
        if self.loses_packet(device) {
            return;
        }
        let this = &mut self.devices[device];
        this.corrupt_packet(&mut frame);
        let vport = &this.ethernet.vport;
        let multicast = is_multicast(&frame);
        let comes_back = match multicast {
            // A switch loops frames back, by their destination address.
            true => {
                !vport.no_multicast_loopback && (!this.config.vport_filter || vport.listens(&frame))
            }
            // Promiscuous functions receive frames from the wire, not their own.
            false => vport.is_own(own, &frame) && !vport.no_unicast_loopback,
        };
        if comes_back {
            let sender = Sender { sqn: qpn, domain: this.domain(qpn) };
            this.take_frame(number, &frame, Some(sender));
            if !multicast {
                return;
            }
        }
        if frame.len() < SHORTEST_ON_WIRE {
            frame.resize(SHORTEST_ON_WIRE, 0);
        }
        self.devices[device].ethernet.counts.to_wire.count(&frame);
        if let Some(tap) = &mut self.tap {
            tap(self.now_ns, &frame);
        }
        let from = (device, number);
        for target in 0..self.devices.len() {
            if target == device || !self.devices[target].runs() {
                continue;
            }
            let ports = self.devices[target].ports.iter().zip(1..);
            let hear: Vec<u8> = ports
                .filter(|(port, _)| port.active && port.link_layer == LinkLayer::Ethernet)
                .map(|(_, number)| number)
                .collect();
            for number in hear {
                if !self.wire.loses(device, target) {
                    let frame = frame.clone();
                    self.deliver(from, target, frame.len() as u64, move |target| {
                        target.take_frame(number, &frame, None);
                    });
                }
            }
        }
    }
}

impl Device {
    /// The port that sends the frames of a send queue.
    fn sending_port(&self, sqn: u32) -> u8 {
        let tis = self.ethernet.sqs.get(&sqn).map_or(0, |sq| sq.tis);
        self.ethernet.tises.get(tis).map_or(1, |tis| tis.port.max(1))
    }

    /// The transport domain of a send queue.
    fn domain(&self, sqn: u32) -> Option<u32> {
        let tis = self.ethernet.sqs.get(&sqn)?.tis;
        self.ethernet.tises.get(tis).map(|tis| tis.domain)
    }

    /// The frames of a request, complete except for the parts that the wire adds.
    fn frames(&mut self, qpn: u32, request: &Request) -> Result<Vec<Vec<u8>>, Outcome> {
        let Some(ethernet) = &request.frame else {
            return Err(Outcome::Failed(codes::SHORT_FRAME));
        };
        match request.opcode {
            Opcode::Tso => self.segments(qpn, request, ethernet),
            Opcode::EnhancedMpw => self.packets(qpn, request, ethernet),
            _ => {
                let header = ethernet.header.len() as u64;
                let frame = self.frame(qpn, request, ethernet, header + request.length)?;
                Ok(frame.into_iter().collect())
            }
        }
    }

    fn gathered(
        &mut self,
        qpn: u32,
        request: &Request,
        offset: u64,
        to: &mut [u8],
    ) -> Result<(), Outcome> {
        let Some(user) = self.qps.get(qpn).map(|qp| qp.user(qpn, Side::Requester)) else {
            return Err(Outcome::Later);
        };
        let gathered = self.gather(user, request, offset, to);
        gathered.map_err(|error| Outcome::Failed(Code::gather(error)))
    }

    /// The longest frame of a send queue's port.
    fn longest(&self, qpn: u32) -> u64 {
        self.port(self.sending_port(qpn)).map_or(0, |port| port.frame.into())
    }

    /// One frame, unless it is too long to be sent.
    fn frame(
        &mut self,
        qpn: u32,
        request: &Request,
        ethernet: &FrameRequest,
        length: u64,
    ) -> Result<Option<Vec<u8>>, Outcome> {
        if ethernet.segment_size != 0 {
            return Err(Outcome::Failed(codes::SEGMENTS));
        }
        let header = ethernet.header.len();
        if length < ETHERNET as u64 {
            return Err(Outcome::Failed(codes::SHORT_FRAME));
        }
        if (1..ETHERNET).contains(&header) {
            return Err(Outcome::Failed(codes::INLINE));
        }
        if length > self.longest(qpn) {
            self.ethernet.counts.not_sent += 1;
            return Ok(None);
        }
        let mut frame = ethernet.header.clone();
        frame.resize(length as usize, 0);
        self.gathered(qpn, request, 0, &mut frame[header..])?;
        if header < needed(self.config.inline_mode, &frame) {
            return Err(Outcome::Failed(codes::INLINE));
        }
        finish(&mut frame, ethernet);
        Ok(Some(frame))
    }

    /// The segments of a packet.
    fn segments(
        &mut self,
        qpn: u32,
        request: &Request,
        ethernet: &FrameRequest,
    ) -> Result<Vec<Vec<u8>>, Outcome> {
        if request.length > LONGEST_SEGMENTED {
            return Err(Outcome::Failed(codes::LONG_PACKET));
        }
        let plan = Plan::new(&ethernet.header, ethernet.segment_size)
            .map_err(|_| Outcome::Failed(codes::SEGMENTS))?;
        let mut payload = vec![0; request.length as usize];
        self.gathered(qpn, request, 0, &mut payload)?;
        let segments = (0..plan.count(payload.len())).map(|index| {
            let mut frame = plan.segment(&payload, index);
            finish(&mut frame, ethernet);
            frame
        });
        Ok(segments.collect())
    }

    /// The packets of a request with several: one for each of its pieces.
    fn packets(
        &mut self,
        qpn: u32,
        request: &Request,
        ethernet: &FrameRequest,
    ) -> Result<Vec<Vec<u8>>, Outcome> {
        // `allow_multi_pkt_send_wqe` is for an older kind of request: mlx5e sends these without it.
        if !ethernet.header.is_empty() || self.config.inline_mode != InlineMode::None {
            return Err(Outcome::Failed(codes::MULTI));
        }
        let mut frames = Vec::new();
        let mut offset = 0;
        for length in request.pieces.iter().map(Piece::length) {
            if ethernet.segment_size != 0 || length < ETHERNET as u64 {
                return Err(Outcome::Failed(codes::SHORT_FRAME));
            }
            if length > self.longest(qpn) {
                self.ethernet.counts.not_sent += 1;
            } else {
                let mut frame = vec![0; length as usize];
                self.gathered(qpn, request, offset, &mut frame)?;
                finish(&mut frame, ethernet);
                frames.push(frame);
            }
            offset += length;
        }
        Ok(frames)
    }
}

/// Inserts the tag, and computes the requested checksums.
fn finish(frame: &mut Vec<u8>, ethernet: &FrameRequest) {
    if let Some(headers) = Headers::of(frame).filter(|_| ethernet.checksums != 0) {
        let asks = |flag: u8| ethernet.checksums & flag != 0;
        // The inner checksums go first: the outer transport's covers them.
        if let Some(inner) = &headers.inner {
            if asks(checksum_flags::L3_INNER) {
                checksum::fill_network(frame, inner);
            }
            if asks(checksum_flags::L4_INNER) {
                checksum::fill_transport(frame, inner);
            }
        }
        if asks(checksum_flags::L3) {
            checksum::fill_network(frame, &headers.outer);
        }
        if asks(checksum_flags::L4) {
            checksum::fill_transport(frame, &headers.outer);
        }
    }
    if let Some(added) = ethernet.tag {
        tag::insert(frame, added.kind, added.control);
    }
}

/// Bytes of a frame that its WQE must contain.
fn needed(mode: InlineMode, frame: &[u8]) -> usize {
    let Some(layers) = Headers::of(frame).map(|headers| headers.outer) else { return 0 };
    let link = ETHERNET + 4 * layers.tags.len();
    let network = layers.network.map_or(link, |network| network.payload.start);
    match mode {
        InlineMode::None => 0,
        InlineMode::L2 => link,
        InlineMode::Ip => network,
        InlineMode::TcpUdp => layers.transport.map_or(network, |transport| transport.end),
    }
}
