//! Sends and receives packets in batches, one packet per request.

use mlx5::ethernet::{EthernetQueue, Frame, Mode, Striding};
use mlx5::transport::RawPacket;
use mlx5::{CompletionQueue, QueuePair, SendFlags, Sge};

/// Packets in a batch.
pub const BURST: usize = 32;
/// Packets of 64 bytes that one request with copied packets holds: a burst takes three requests.
pub const COPIED: usize = 11;

/// Polls the completion of the previous batch, and posts a batch whose last packet is signaled. The
/// device computes the checksums.
#[inline(never)]
pub fn send(
    qp: &mut QueuePair<RawPacket>,
    cq: &mut CompletionQueue,
    frames: &[Sge; BURST],
    wr_id: u64,
) -> Option<usize> {
    let mut done = 0;
    cq.poll(1, |completion| done += usize::from(completion.status().is_ok())).ok()?;
    let mut batch = qp.wr_start();
    let [rest @ .., last] = frames;
    for (wr_id, &frame) in (wr_id..).zip(rest) {
        batch.wr(wr_id, SendFlags::IP_CSUM).send().sge(frame);
    }
    batch.wr(wr_id, SendFlags::IP_CSUM | SendFlags::SIGNALED).send().sge(*last);
    batch.complete().ok()?;
    Some(done)
}

/// Polls a batch; reads each packet's buffer, length and checksum status; and posts the buffers
/// again.
#[inline(never)]
pub fn receive(
    qp: &mut QueuePair<RawPacket>,
    cq: &mut CompletionQueue,
    buffers: &[Sge],
    wr_id: u64,
    sum: &mut u64,
) -> Option<usize> {
    let received = cq.poll(BURST, |completion| {
        if completion.status().is_ok() {
            let length = completion.byte_len().unwrap_or(0);
            let good = completion.checksum_ok() == Some(true);
            *sum += completion.wr_id() + u64::from(length) + u64::from(good);
        }
    });
    let received = received.ok()?;
    qp.recv_each((wr_id..).zip(buffers.iter().copied())).ok()?;
    Some(received)
}

/// Like [`send`], with one request for all packets.
#[inline(never)]
pub fn send_multi(
    qp: &mut QueuePair<RawPacket>,
    cq: &mut CompletionQueue,
    frames: &[Sge; BURST],
    wr_id: u64,
) -> Option<usize> {
    let mut done = 0;
    cq.poll(1, |completion| done += usize::from(completion.status().is_ok())).ok()?;
    let mut batch = qp.wr_start();
    batch.wr(wr_id, SendFlags::IP_CSUM | SendFlags::SIGNALED).send_packets(frames);
    batch.complete().ok()?;
    Some(done)
}

/// Like [`send`], with the packets copied into few requests. All but the last have [`COPIED`]
/// packets.
#[inline(never)]
pub fn send_inline(
    qp: &mut QueuePair<RawPacket>,
    cq: &mut CompletionQueue,
    packets: &[&[u8]; BURST],
    wr_id: u64,
) -> Option<usize> {
    let mut done = 0;
    cq.poll(1, |completion| done += usize::from(completion.status().is_ok())).ok()?;
    let mut batch = qp.wr_start();
    let (full, last) = packets.as_chunks::<COPIED>();
    for (wr_id, packets) in (wr_id..).zip(full) {
        batch.wr(wr_id, SendFlags::IP_CSUM).send_packets_inline(packets);
    }
    batch.wr(wr_id, SendFlags::IP_CSUM | SendFlags::SIGNALED).send_packets_inline(last);
    batch.complete().ok()?;
    Some(done)
}

/// Sends frames from a queue's own buffers. First polls earlier sends, whose buffers then are free
/// again.
#[inline(never)]
pub fn send_frames(queue: &mut EthernetQueue, frames: &mut Vec<Frame>) -> Option<usize> {
    queue.send(frames.drain(..)).ok()
}

/// The same with frames that packets are copied into.
#[inline(never)]
pub fn fill_frames(
    queue: &mut EthernetQueue,
    frames: &mut Vec<Frame>,
    packets: &[&[u8]; BURST],
) -> Option<usize> {
    for packet in packets {
        let mut frame = queue.frame()?;
        frame.fill(packet);
        frames.push(frame);
    }
    queue.send(frames.drain(..)).ok()
}

/// Reads the position, length and checksum status of each packet of a burst, in receives that
/// packets share.
#[inline(never)]
pub fn receive_multi(queue: &mut EthernetQueue<Striding>, sum: &mut u64) -> Option<usize> {
    let burst = queue.receive(|packets| {
        let mut count = 0;
        packets.for_each(|packet| {
            let good = packet.completion().checksum_ok() == Some(true);
            *sum += (packet.as_ptr().addr() + packet.len()) as u64 + u64::from(good);
            count += 1;
        });
        count
    });
    burst.ok()
}

/// Sends back the packets of a burst, with new addresses.
#[inline(always)]
fn send_back<M: Mode>(queue: &mut EthernetQueue<M>, to: [u8; 6], from: [u8; 6]) -> Option<usize> {
    let burst = queue.receive(|packets| {
        let mut count = 0;
        packets.for_each(|mut packet| {
            if let Some(addresses) = packet.first_chunk_mut::<12>() {
                addresses[..6].copy_from_slice(&to);
                addresses[6..].copy_from_slice(&from);
                packet.send();
                count += 1;
            }
        });
        count
    });
    burst.ok()
}

/// Sends back the packets of a burst; each packet has a receive of its own.
#[inline(never)]
pub fn forward(queue: &mut EthernetQueue, to: [u8; 6], from: [u8; 6]) -> Option<usize> {
    send_back(queue, to, from)
}

/// The same with receives that packets share.
#[inline(never)]
pub fn forward_multi(
    queue: &mut EthernetQueue<Striding>,
    to: [u8; 6],
    from: [u8; 6],
) -> Option<usize> {
    send_back(queue, to, from)
}
