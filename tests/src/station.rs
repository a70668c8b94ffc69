//! Stations on an Ethernet: raw packet queue pairs with frames to send and buffers to receive in.

use crate::bed::Bed;
use crate::failed::Failed;
use crate::frames::GROUP;
use mlx5::flow::{Ethernet, FlowRule, Rule};
use mlx5::transport::RawPacket;
use mlx5::{
    CompletionQueue, Context, MemoryRegion, OwnedCompletion, ProtectionDomain, QueuePair,
    QueuePairBuilder, SendFlags, Sge,
};

/// Bytes of a receive buffer.
pub(crate) const SLOT: usize = 2048;
/// Offset of the receive buffers; frames to be sent are before it.
const RECEIVES: usize = 512 << 10;
/// Receive buffers.
pub(crate) const SLOTS: usize = 128;
/// Bytes of a station's memory.
const MEMORY: usize = RECEIVES + SLOTS * SLOT;

/// A raw packet queue pair in RTS, in a context of its own.
pub(crate) struct Station {
    pub(crate) qp: QueuePair<RawPacket>,
    pub(crate) send_cq: CompletionQueue,
    pub(crate) recv_cq: CompletionQueue,
    pub(crate) memory: MemoryRegion,
    pub(crate) pd: ProtectionDomain,
    pub(crate) context: Context,
    pub(crate) port: u8,
    /// Number of posted receives.
    posted: usize,
}

/// A frame that was received.
pub(crate) struct Received {
    pub(crate) frame: Vec<u8>,
    completion: OwnedCompletion,
}

impl Received {
    pub(crate) fn completion(&self) -> mlx5::WorkCompletion<'_> {
        self.completion.as_completion()
    }

    pub(crate) fn tag(&self) -> u32 {
        self.completion().flow_tag().expect("a received frame")
    }
}

/// The rule for frames to the group.
pub(crate) fn to_group() -> Rule {
    Rule::new().ethernet(Ethernet::new().dst_mac(GROUP))
}

impl Station {
    /// A station on a port of a device that is open.
    pub(crate) fn on(
        bed: &Bed,
        context: Context,
        port: u8,
        tune: impl FnOnce(QueuePairBuilder<'_, RawPacket>) -> QueuePairBuilder<'_, RawPacket>,
    ) -> Result<Self, Failed> {
        let cq = || context.create_cq(1024).cqe_size(bed.cqe_size()).build();
        let (send_cq, recv_cq) = (cq()?, cq()?);
        let pd = context.alloc_pd()?;
        let memory = pd.memory(MEMORY).register()?;
        let builder = pd
            .create_qp::<RawPacket>(&send_cq, &recv_cq)
            .max_send_wr(64)
            .max_send_sge(4)
            .max_inline_data(64)
            .max_recv_wr(SLOTS as u32);
        let mut qp = tune(builder).build()?;
        qp.activate(port)?;
        Ok(Self { qp, send_cq, recv_cq, memory, pd, context, port, posted: 0 })
    }

    /// Writes a frame to be sent into the memory, and returns its address there.
    pub(crate) fn at(&self, offset: usize, frame: &[u8]) -> Sge {
        self.memory.write_at(offset, frame).expect("inside the memory");
        self.memory.sge(offset..offset + frame.len()).expect("inside the memory")
    }

    /// Sends a frame, and waits for its completion.
    #[track_caller]
    pub(crate) fn send(&mut self, bed: &Bed, frame: &[u8]) {
        self.send_with(bed, frame, SendFlags::empty());
    }

    /// The same, with flags.
    #[track_caller]
    pub(crate) fn send_with(&mut self, bed: &Bed, frame: &[u8], flags: SendFlags) {
        let sge = self.at(0, frame);
        self.qp
            .post(|batch| batch.wr(1, SendFlags::SIGNALED | flags).send().sge(sge))
            .expect("a frame posted");
        bed.poll_good(&mut self.send_cq, 1);
    }

    /// The receive buffer of a request.
    pub(crate) fn slot(&self, wr_id: u64) -> usize {
        RECEIVES + wr_id as usize % SLOTS * SLOT
    }

    /// Posts receives of `bytes` bytes each.
    #[track_caller]
    pub(crate) fn recv_short(&mut self, count: usize, bytes: usize) {
        for _ in 0..count {
            let at = self.slot(self.posted as u64);
            let sge = self.memory.sge(at..at + bytes).expect("inside the memory");
            self.qp.recv(self.posted as u64, sge).expect("a receive posted");
            self.posted += 1;
        }
    }

    /// Posts receives.
    #[track_caller]
    pub(crate) fn recv(&mut self, count: usize) {
        self.recv_short(count, SLOT);
    }

    /// The next frame, which must come.
    #[track_caller]
    pub(crate) fn next(&mut self, bed: &Bed) -> Received {
        let completion = bed.poll_good(&mut self.recv_cq, 1)[0];
        self.received(completion)
    }

    /// The frame of a completion.
    #[track_caller]
    pub(crate) fn received(&self, completion: OwnedCompletion) -> Received {
        let view = completion.as_completion();
        let mut frame = vec![0; view.byte_len().expect("a length") as usize];
        self.memory.read_at(self.slot(view.wr_id()), &mut frame).expect("inside the memory");
        Received { frame, completion }
    }

    /// Checks that no frame comes.
    #[track_caller]
    pub(crate) fn hears_nothing(&mut self, bed: &Bed) {
        bed.nothing(&mut self.recv_cq);
    }
}

/// A sender and a receiver that gets the frames to the group.
pub(crate) struct Stations {
    pub(crate) a: Station,
    pub(crate) b: Station,
    pub(crate) rule: FlowRule,
}

impl Bed {
    /// A station in a context of its own.
    pub(crate) fn station(&self) -> Result<Station, Failed> {
        Station::on(self, self.context(), self.port(), |builder| builder)
    }

    /// Two stations in contexts of their own: on two devices if there are two, otherwise on one,
    /// which returns the sender's frames to the receiver.
    pub(crate) fn stations(&self) -> Result<Stations, Failed> {
        self.stations_with(|builder| builder, |builder| builder)
    }

    /// The same; `sender` and `receiver` change how the queue pairs are made.
    pub(crate) fn stations_with(
        &self,
        sender: impl FnOnce(QueuePairBuilder<'_, RawPacket>) -> QueuePairBuilder<'_, RawPacket>,
        receiver: impl FnOnce(QueuePairBuilder<'_, RawPacket>) -> QueuePairBuilder<'_, RawPacket>,
    ) -> Result<Stations, Failed> {
        let other = self.other();
        let a = Station::on(self, self.context(), self.port(), sender)?;
        let b = Station::on(self, other.device.open()?, other.port, receiver)?;
        let rule = b.qp.attach(b.port, &to_group())?;
        Ok(Stations { a, b, rule })
    }
}
