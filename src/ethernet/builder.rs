//! Making queues of packets.

use super::buffers::Buffers;
use super::outgoing::{InFlight, Outgoing};
use super::receive::Store;
use super::send::{PACKETS, SendOptions};
use super::{Counters, EthernetQueue, POSTED_AT_ONCE};
use crate::context::Context;
use crate::cq::CompletionChannel;
use crate::error::Error;
use crate::memory::ProtectionDomain;
use crate::qp::QueuePairBuilder;
use mlx5_prm::ethernet::InlineMode;
use mlx5_uapi::HugePages;
use mlx5_uapi::mlx5::MultiPacketSend;
use mlx5_wqe::SendFlags;
use mlx5_wqe::transport::RawPacket;
use std::sync::Arc;

/// The options of a new [`EthernetQueue`]. See [`Context::create_ethernet_queue`].
#[must_use = "a builder makes nothing until `build` is called"]
#[derive(Debug)]
pub struct EthernetQueueBuilder<'a> {
    context: &'a Context,
    port: u8,
    receives: u32,
    frames: u32,
    sends: u32,
    burst: u32,
    buffer_size: u32,
    checksums: bool,
    multi_packet: bool,
    vlan_stripping: bool,
    self_loopback: (bool, bool),
    pd: Option<ProtectionDomain>,
    channel: Option<&'a CompletionChannel>,
    numa_node: Option<u32>,
    huge_pages: HugePages,
}

impl Context {
    /// Starts building a queue of packets on a port. It needs CAP_NET_RAW.
    pub fn create_ethernet_queue(&self, port: u8) -> EthernetQueueBuilder<'_> {
        EthernetQueueBuilder {
            context: self,
            port,
            receives: 512,
            frames: 512,
            sends: 512,
            burst: 64,
            buffer_size: 2048,
            checksums: true,
            multi_packet: true,
            vlan_stripping: false,
            self_loopback: (false, false),
            pd: None,
            channel: None,
            numa_node: None,
            huge_pages: HugePages::None,
        }
    }
}

/// Blocks of a request of [`PACKETS`] packets.
const BLOCKS: u32 = 8;
/// The most buffers of a queue, and bytes of one.
const MOST_BUFFERS: u32 = 1 << 20;
const LARGEST_BUFFER: u32 = 1 << 16;
/// The smallest buffer: a packet of the shortest length on a wire fits.
const SMALLEST_BUFFER: u32 = 64;

impl<'a> EthernetQueueBuilder<'a> {
    /// Number of buffers that wait for packets, as long as there are enough. Default: 512. 0 counts as 1. There
    /// are some more, so that many can be posted with one doorbell.
    pub fn receives(mut self, buffers: u32) -> Self {
        self.receives = buffers;
        self
    }

    /// Number of buffers besides: for packets that the program keeps, and frames that it sends. Default: 512.
    pub fn frames(mut self, buffers: u32) -> Self {
        self.frames = buffers;
        self
    }

    /// Number of frames that can be on their way at a time. Default: 512. 0 counts as 1. Rounded up to a power
    /// of two.
    pub fn sends(mut self, frames: u32) -> Self {
        self.sends = frames;
        self
    }

    /// Most packets of a call of [`EthernetQueue::receive`]. Default: 64. 0 counts as 1.
    pub fn burst(mut self, packets: u32) -> Self {
        self.burst = packets;
        self
    }

    /// Bytes of a buffer. Default: 2048. Rounded up to a power of two, 64 at least; `build` refuses more
    /// than 65536. A packet that is longer is dropped: a port of MTU 9000 needs 16384.
    pub fn buffer_size(mut self, bytes: u32) -> Self {
        self.buffer_size = bytes;
        self
    }

    /// Lets the device compute the checksums of IPv4, TCP and UDP in every frame that is sent. Default: true.
    pub fn checksums(mut self, compute: bool) -> Self {
        self.checksums = compute;
        self
    }

    /// Sends several frames by one request, where the device can
    /// ([`EthernetCaps::multi_packet_send`](crate::EthernetCaps::multi_packet_send)). Default: true.
    pub fn multi_packet(mut self, several: bool) -> Self {
        self.multi_packet = several;
        self
    }

    /// See [`QueuePairBuilder::vlan_stripping`].
    pub fn vlan_stripping(mut self, strip: bool) -> Self {
        self.vlan_stripping = strip;
        self
    }

    /// See [`QueuePairBuilder::self_loopback`].
    pub fn self_loopback(mut self, unicast: bool, multicast: bool) -> Self {
        self.self_loopback = (unicast, multicast);
        self
    }

    /// Lets each of both queues send the frames of the other: they get one protection domain. Both belong
    /// to the same context, or `build` fails.
    pub fn beside(mut self, other: &EthernetQueue) -> Self {
        self.pd = Some(other.store.buffers.pd().clone());
        self
    }

    /// Reports arriving packets as events on a channel, so that [`EthernetQueue::wait`] sleeps. Default: none.
    pub fn channel(mut self, channel: &'a CompletionChannel) -> Self {
        self.channel = Some(channel);
        self
    }

    /// NUMA node of the buffers. Default: `None`, the process's policy. See
    /// [`MemoryBuilder::numa_node`](crate::MemoryBuilder::numa_node).
    pub fn numa_node(mut self, node: impl Into<Option<u32>>) -> Self {
        self.numa_node = node.into();
        self
    }

    /// Page size of the buffers. Default: [`HugePages::None`]. See
    /// [`MemoryBuilder::huge_pages`](crate::MemoryBuilder::huge_pages).
    pub fn huge_pages(mut self, huge_pages: HugePages) -> Self {
        self.huge_pages = huge_pages;
        self
    }

    fn check(&self) -> Result<(), Error> {
        if self.buffer_size > LARGEST_BUFFER {
            let what = format!("a buffer of {} bytes: {LARGEST_BUFFER} at most", self.buffer_size);
            return Err(Error::invalid(VERB, what));
        }
        let buffers = u64::from(self.receives.max(1)) + u64::from(self.frames);
        if buffers > MOST_BUFFERS.into() {
            let what = format!("{buffers} buffers: {MOST_BUFFERS} at most");
            return Err(Error::invalid(VERB, what));
        }
        if let Some(pd) = &self.pd
            && !Arc::ptr_eq(&pd.context, &self.context.inner)
        {
            let what = "the queue beside which it is to be belongs to a different context";
            return Err(Error::invalid(VERB, what.into()));
        }
        Ok(())
    }

    fn tune<'b>(
        &self,
        builder: QueuePairBuilder<'b, RawPacket>,
    ) -> QueuePairBuilder<'b, RawPacket> {
        let (unicast, multicast) = self.self_loopback;
        builder.vlan_stripping(self.vlan_stripping).self_loopback(unicast, multicast)
    }

    /// Creates the queue. It receives as soon as a rule is attached.
    pub fn build(self) -> Result<EthernetQueue, Error> {
        self.check()?;
        let context = self.context;
        let worth_a_doorbell = (self.receives / 4).clamp(1, POSTED_AT_ONCE);
        let receives = self.receives.max(1) + worth_a_doorbell - 1;
        let sends = self.sends.max(1).next_power_of_two();
        let burst = self.burst.max(1) as usize;
        // A domain of its own: no other queue can write to buffers that a program looks at.
        let pd = match &self.pd {
            Some(pd) => pd.clone(),
            None => context.alloc_pd()?,
        };
        let recv_cq = context.create_cq(receives);
        let recv_cq = match self.channel {
            Some(channel) => recv_cq.channel(channel).build()?,
            None => recv_cq.build()?,
        };
        let send_cq = context.create_cq(sends).build()?;
        let size = self.buffer_size.max(SMALLEST_BUFFER).next_power_of_two();
        let (buffers, free) =
            Buffers::new(&pd, (receives + self.frames, size), self.numa_node, self.huge_pages)?;
        let builder = pd.create_qp::<RawPacket>(&send_cq, &recv_cq);
        let caps = context.query_device().ethernet;
        let inline_header = caps.inline_mode != InlineMode::None;
        let enhanced = caps.multi_packet_send.contains(MultiPacketSend::ENHANCED);
        let multi_packet = self.multi_packet && enhanced && !inline_header;
        // A request with several packets takes no more blocks than as many requests with one.
        let builder = match multi_packet {
            true => builder.max_send_wr(sends / BLOCKS).max_send_sge(PACKETS as u32),
            false => builder.max_send_wr(sends),
        };
        let qp = self.tune(builder.max_recv_wr(receives)).build()?;
        let flags = if self.checksums { SendFlags::IP_CSUM } else { SendFlags::empty() };
        let mut queue = EthernetQueue {
            qp,
            recv_cq,
            send_cq,
            in_flight: InFlight::new(sends),
            store: Store {
                buffers: Arc::new(buffers),
                free,
                outgoing: Outgoing::new(burst),
                counters: Counters::default(),
            },
            options: SendOptions { flags, inline_header, multi_packet },
            receives: receives as usize,
            worth_a_doorbell: worth_a_doorbell as usize,
            burst,
            port: self.port,
        };
        queue.qp.activate(self.port)?;
        let posted = queue.post_receives(receives as usize);
        posted.map_err(|error| Error::invalid(VERB, error.to_string()))?;
        Ok(queue)
    }
}

const VERB: &str = "create_ethernet_queue";
