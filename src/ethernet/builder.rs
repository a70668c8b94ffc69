//! Builds queues of packets.

use super::buffers::{Buffers, FreeList};
use super::headers::most_inline;
use super::mode::{Inbound, Mode, Receives, Single};
use super::outgoing::{InFlight, Outgoing};
use super::send::{PACKETS, SendOptions};
use super::store::Store;
use super::striding::{Receiver, Shape, Striding};
use super::{Counters, EthernetQueue, POSTED_AT_ONCE, VERB};
use crate::context::Context;
use crate::cq::{CompletionChannel, CompletionQueue};
use crate::error::Error;
use crate::memory::ProtectionDomain;
use mlx5_prm::cqe::MiniFormat;
use mlx5_prm::ethernet::InlineMode;
use mlx5_uapi::HugePages;
use mlx5_uapi::mlx5::MultiPacketSend;
use mlx5_wqe::SendFlags;
use mlx5_wqe::transport::RawPacket;
use std::marker::PhantomData;
use std::sync::Arc;

/// Entries of a striding queue's receive ring beyond those of posted receives.
const FREE_PLACES: u32 = 14;

/// The options of a new [`EthernetQueue`]. See [`Context::create_ethernet_queue`].
#[must_use = "a builder makes nothing until `build` is called"]
#[derive(Debug)]
pub struct EthernetQueueBuilder<'a, M = Single> {
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
    compression: Option<MiniFormat>,
    shape: Shape,
    mode: PhantomData<M>,
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
            compression: None,
            shape: Shape::default(),
            mode: PhantomData,
        }
    }
}

/// Frames in flight for each request. The send ring has blocks for one request of [`PACKETS`]
/// packets, nine blocks with inline headers, for this number of frames. So there are more blocks
/// than frames. No request has more blocks than frames, so that a batch can use all frames whatever
/// its requests are, also if each frame has a tag and therefore a request of its own.
const FRAMES_A_REQUEST: u32 = 8;
/// Maximum number of buffers of a queue.
const MOST_BUFFERS: u32 = 1 << 20;
/// Maximum number of frames in flight: the blocks of a send queue are counted by 16 bits.
const MOST_SENDS: u32 = 1 << 15;
/// Maximum number of packets of a burst.
const LARGEST_BURST: u32 = 1 << 16;
const LARGEST_BUFFER: u32 = 1 << 16;
/// The smallest buffer. A packet of the shortest length on the wire fits.
const SMALLEST_BUFFER: u32 = 64;

impl<'a> EthernetQueueBuilder<'a> {
    /// Lets several packets share a receive ([`Striding`]): each takes as many of its `strides`
    /// strides of `stride` bytes as it needs. Both are powers of two, within
    /// [`EthernetCaps::striding`](field@crate::EthernetCaps::striding), or `build` fails. Every
    /// device accepts 512 strides of 64 bytes. Older devices accept no fewer strides, and no
    /// receive of less than 16 KiB
    /// ([`StridingCaps::fewest_strides`](crate::StridingCaps::fewest_strides)).
    ///
    /// [`receives`](EthernetQueueBuilder::receives) then counts strides, and
    /// [`frames`](EthernetQueueBuilder::frames) counts buffers for frames. A packet may be as long
    /// as a receive.
    ///
    /// ```no_run
    /// # fn f(context: &mlx5::Context) -> Result<(), Box<dyn std::error::Error>> {
    /// // Two thousand small packets wait in 128 KiB. Every device takes this shape.
    /// let mut queue = context.create_ethernet_queue(1).receives(2048).striding(64, 512).build()?;
    /// let bytes: usize = queue.receive(|mut packets| {
    ///     let mut bytes = 0;
    ///     while let Some(packet) = packets.next() {
    ///         bytes += packet.len();
    ///     }
    ///     bytes
    /// })?;
    /// # let _ = bytes;
    /// # Ok(())
    /// # }
    /// ```
    pub fn striding(self, stride: u32, strides: u32) -> EthernetQueueBuilder<'a, Striding> {
        EthernetQueueBuilder {
            context: self.context,
            port: self.port,
            receives: self.receives,
            frames: self.frames,
            sends: self.sends,
            burst: self.burst,
            buffer_size: self.buffer_size,
            checksums: self.checksums,
            multi_packet: self.multi_packet,
            vlan_stripping: self.vlan_stripping,
            self_loopback: self.self_loopback,
            pd: self.pd,
            channel: self.channel,
            numa_node: self.numa_node,
            huge_pages: self.huge_pages,
            compression: self.compression,
            shape: Shape { stride, strides, spares: None },
            mode: PhantomData,
        }
    }
}

impl EthernetQueueBuilder<'_, Striding> {
    /// Number of receives besides those that wait for packets. A receive with even one packet that
    /// is kept or being sent is not posted: a spare one takes its place. Default: as many as wait.
    pub fn spares(mut self, receives: u32) -> Self {
        self.shape.spares = Some(receives);
        self
    }
}

impl<'a, M> EthernetQueueBuilder<'a, M> {
    /// Number of buffers that wait for packets, as long as there are enough. Default: 512. 0 counts
    /// as 1. The queue has some more, so that it can post many with one doorbell. For a
    /// [striding](Striding) queue, the number of strides, rounded up to whole receives, at least
    /// two.
    pub fn receives(mut self, buffers: u32) -> Self {
        self.receives = buffers;
        self
    }

    /// Number of additional buffers, for packets that the program keeps and frames that it sends.
    /// Default: 512.
    pub fn frames(mut self, buffers: u32) -> Self {
        self.frames = buffers;
        self
    }

    /// Number of frames that can be in flight. Default: 512. 0 counts as 1. Rounded up to a power
    /// of two; `build` refuses more than 32768. It refuses more than 16384 where [a request sends
    /// several](EthernetQueueBuilder::multi_packet) or the device needs headers in the request
    /// ([`EthernetCaps::inline_mode`](crate::EthernetCaps::inline_mode)), and more than 8192 if it
    /// needs those of IP.
    pub fn sends(mut self, frames: u32) -> Self {
        self.sends = frames;
        self
    }

    /// Maximum number of packets of a call of [`EthernetQueue::receive`]. Default: 64. 0 counts as
    /// 1; `build` refuses more than 65536.
    pub fn burst(mut self, packets: u32) -> Self {
        self.burst = packets;
        self
    }

    /// Size of a buffer in bytes. Default: 2048. Rounded up to a power of two, at least 64; `build`
    /// refuses more than 65536. A longer packet is dropped: a port of MTU 9000 needs 16384. If
    /// packets share receives, this is only the size of frames.
    pub fn buffer_size(mut self, bytes: u32) -> Self {
        self.buffer_size = bytes;
        self
    }

    /// Lets the device compute the checksums of IPv4, TCP and UDP in every frame that is sent.
    /// Default: true.
    pub fn checksums(mut self, compute: bool) -> Self {
        self.checksums = compute;
        self
    }

    /// Sends several frames with one request, if the device can
    /// ([`EthernetCaps::multi_packet_send`](crate::EthernetCaps::multi_packet_send)). Default:
    /// true.
    pub fn multi_packet(mut self, several: bool) -> Self {
        self.multi_packet = several;
        self
    }

    /// See [`QueuePairBuilder::vlan_stripping`](crate::QueuePairBuilder::vlan_stripping).
    pub fn vlan_stripping(mut self, strip: bool) -> Self {
        self.vlan_stripping = strip;
        self
    }

    /// See [`QueuePairBuilder::self_loopback`](crate::QueuePairBuilder::self_loopback).
    pub fn self_loopback(mut self, unicast: bool, multicast: bool) -> Self {
        self.self_loopback = (unicast, multicast);
        self
    }

    /// Lets this queue and `other` send each other's frames: they get one protection domain. Both
    /// must belong to the same context, or `build` fails.
    pub fn beside<O: Mode>(mut self, other: &EthernetQueue<O>) -> Self {
        self.pd = Some(other.store.buffers.pd().clone());
        self
    }

    /// Reports arriving packets as events on a channel, so that [`EthernetQueue::wait`] can sleep.
    /// Default: none.
    pub fn channel(mut self, channel: &'a CompletionChannel) -> Self {
        self.channel = Some(channel);
        self
    }

    /// Lets the device compress the completions of similar packets: it writes less over the bus,
    /// but each packet takes more work, and the packets of a run have no timestamps. Default: none.
    /// See [`CompletionQueueBuilder::compression`](crate::CompletionQueueBuilder::compression).
    pub fn compression(mut self, format: MiniFormat) -> Self {
        self.compression = Some(format);
        self
    }

    /// NUMA node of the buffers. Default: `None`, the process's policy. See
    /// [`MemoryBuilder::numa_node`](crate::MemoryBuilder::numa_node).
    pub fn numa_node(mut self, node: impl Into<Option<u32>>) -> Self {
        self.numa_node = node.into();
        self
    }

    /// Page size of the buffers. Default: [`HugePages::None`]. See
    /// [`MemoryBuilder::huge_pages`](crate::MemoryBuilder::huge_pages). In a forked child, an
    /// access to the bytes of a [`Frame`](super::Frame) in huge pages ends the child by SIGSEGV.
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
        for (count, most, what) in [
            (self.sends, MOST_SENDS, "frames that are sent at a time"),
            (self.burst, LARGEST_BURST, "packets of a burst"),
        ] {
            if count > most {
                return Err(Error::invalid(VERB, format!("{count} {what}: {most} at most")));
            }
        }
        if let Some(pd) = &self.pd
            && !Arc::ptr_eq(&pd.context, &self.context.inner)
        {
            let what = "the queue beside which it is to be belongs to a different context";
            return Err(Error::invalid(VERB, what.into()));
        }
        Ok(())
    }

    /// Creates the completion queue of received packets.
    fn recv_cq(&self, receives: u32) -> Result<CompletionQueue, Error> {
        let recv_cq = match self.compression {
            None => self.context.create_cq(receives),
            Some(format) => {
                // A compressed run frees its CQEs only when all of it was polled, but receives are
                // posted before.
                let run = self.context.query_device().completions.max_compressed;
                self.context.create_cq(receives.saturating_add(run)).compression(format)
            }
        };
        match self.channel {
            Some(channel) => recv_cq.channel(channel).build(),
            None => recv_cq.build(),
        }
    }

    /// Returns the protection domain. By default it is the queue's own, so that no other queue can
    /// write to buffers that a program reads.
    fn domain(&self) -> Result<ProtectionDomain, Error> {
        match &self.pd {
            Some(pd) => Ok(pd.clone()),
            None => self.context.alloc_pd(),
        }
    }

    /// Bytes of a buffer.
    fn size(&self) -> u32 {
        self.buffer_size.max(SMALLEST_BUFFER).next_power_of_two()
    }

    /// Makes a queue of these parts, which posts nothing yet. The queue pair has room for
    /// `receives` receives.
    fn assemble(
        self,
        (buffers, mode): (Buffers, M),
        (receiver, receives): (M::Receiver, u32),
        recv_cq: CompletionQueue,
    ) -> Result<EthernetQueue<M>, Error>
    where
        M: Mode,
    {
        let context = self.context;
        let sends = self.sends.max(1).next_power_of_two();
        let burst = self.burst.max(1);
        let send_cq = context.create_cq(sends).build()?;
        let caps = context.query_device().ethernet;
        let inline = caps.inline_mode;
        let enhanced = caps.multi_packet_send.contains(MultiPacketSend::ENHANCED);
        let multi_packet = self.multi_packet && enhanced && inline == InlineMode::None;
        // Blocks for each frame: a ring has a power of two of them.
        let (most, why) = match inline {
            InlineMode::None if multi_packet => {
                (MOST_SENDS / 2, ", unless each has a request of its own (`multi_packet(false)`)")
            }
            InlineMode::None => (MOST_SENDS, ""),
            InlineMode::L2 => (MOST_SENDS / 2, ", because the device needs headers in requests"),
            InlineMode::Ip | InlineMode::TcpUdp => {
                (MOST_SENDS / 4, ", because the device needs headers in requests")
            }
        };
        if sends > most {
            let what = format!("{sends} frames that are sent at a time: {most} at most{why}");
            return Err(Error::invalid(VERB, what));
        }
        let builder = buffers.pd().create_qp::<RawPacket>(&send_cq, &recv_cq);
        let builder = builder.max_inline_data(most_inline(inline) as u32);
        let builder = match multi_packet {
            true => builder.max_send_wr(sends / FRAMES_A_REQUEST).max_send_sge(PACKETS as u32),
            false => builder.max_send_wr(sends),
        };
        let (unicast, multicast) = self.self_loopback;
        let builder = builder.vlan_stripping(self.vlan_stripping).self_loopback(unicast, multicast);
        let qp = builder.max_recv_wr(receives).build()?;
        let flags = if self.checksums { SendFlags::IP_CSUM } else { SendFlags::empty() };
        let mut queue = EthernetQueue {
            qp,
            receiver,
            recv_cq,
            send_cq,
            in_flight: InFlight::new::<M>(sends),
            store: Store {
                outgoing: Outgoing::new(burst as usize, buffers.lkey()),
                buffers: Arc::new(buffers),
                mode,
                counters: Counters::default(),
            },
            options: SendOptions { flags, inline, multi_packet },
            burst,
            port: self.port,
        };
        queue.qp.activate(self.port)?;
        Ok(queue)
    }
}

impl EthernetQueueBuilder<'_> {
    /// Creates the queue. It receives as soon as a rule is attached.
    pub fn build(self) -> Result<EthernetQueue, Error> {
        self.check()?;
        let worth_a_doorbell = (self.receives / 4).clamp(1, POSTED_AT_ONCE);
        let receives = self.receives.max(1) + worth_a_doorbell - 1;
        let pd = self.domain()?;
        let recv_cq = self.recv_cq(receives)?;
        let count = receives + self.frames;
        let buffers = Buffers::new(&pd, (count, self.size()), self.numa_node, self.huge_pages)?;
        let mode = Single { free: FreeList::of(buffers.addresses(0..count)) };
        let receiver =
            Receives { most: receives as usize, worth_a_doorbell: worth_a_doorbell as usize };
        let mut queue = self.assemble((buffers, mode), (receiver, receives), recv_cq)?;
        let posted = queue.post_receives(receives as usize);
        posted.map_err(|error| Error::invalid(VERB, error.to_string()))?;
        Ok(queue)
    }
}

impl EthernetQueueBuilder<'_, Striding> {
    /// Creates the queue. It receives as soon as a rule is attached.
    pub fn build(self) -> Result<EthernetQueue<Striding>, Error> {
        self.check()?;
        let Shape { stride, strides, .. } = self.shape;
        let layout = self.shape.layout(self.receives, self.frames, self.size())?;
        let pd = self.domain()?;
        let recv_cq = self.recv_cq(layout.posted.saturating_mul(strides))?;
        // With entries that stay free, posting seldom has to look for ones that have become free.
        let most = self.context.inner.limits.max_recv_wr;
        let places = layout.posted.saturating_add(FREE_PLACES).min(most).max(layout.posted);
        let work_queue = pd.create_wq(&recv_cq).max_wr(places).striding(stride, strides);
        let mut work_queue = work_queue.vlan_stripping(self.vlan_stripping).build()?;
        work_queue.start()?;
        let table = self.context.create_indirection_table([&work_queue])?;
        let (unicast, multicast) = self.self_loopback;
        let spread = pd.create_hash_qp(&table).self_loopback(unicast, multicast).build()?;
        let pages = (self.numa_node, self.huge_pages);
        let buffers = Buffers::new(&pd, (layout.slots, stride), pages.0, pages.1)?;
        let receiver = Receiver { spread, work_queue, posted: layout.posted };
        let mode = Striding::new(&layout, buffers.start());
        let mut queue = self.assemble((buffers, mode), (receiver, 0), recv_cq)?;
        Inbound::refill(&mut queue).map_err(|error| Error::invalid(VERB, error.to_string()))?;
        Ok(queue)
    }
}
