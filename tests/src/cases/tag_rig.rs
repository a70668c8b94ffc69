//! A tag-matching queue with its queue pairs, and senders.

use crate::prelude::*;
use mlx5::{
    ConnectOptions, OpsWr, Psn, RendezvousData, TagAdd, TagHandle, TagMatchingQueue, TmMessage,
};
use std::ops::Range;
use std::time::{Duration, Instant};

/// Bytes of a request for messages that match no tag.
pub(crate) const REQUEST: usize = 4096;
/// Offset of the tags' buffers in the memory.
pub(crate) const BUFFERS: usize = 64 * REQUEST;
/// Bytes of the memory.
const MEMORY: usize = BUFFERS + (256 << 10);

/// The options of the rig.
#[derive(Clone, Copy)]
pub(crate) struct RigOptions {
    pub(crate) senders: usize,
    pub(crate) tags: u32,
    pub(crate) ops: u32,
    pub(crate) requests: u32,
    /// Whether the receiving queue pairs keep their send queues.
    pub(crate) keep_send_queue: bool,
    /// The user tag in completions of the queue.
    pub(crate) user_tag: u64,
}

impl Default for RigOptions {
    fn default() -> Self {
        Self { senders: 1, tags: 15, ops: 16, requests: 32, keep_send_queue: false, user_tag: 0 }
    }
}

/// A tag-matching queue, its receiving queue pairs, and senders.
pub(crate) struct TagRig {
    pub(crate) receivers: Vec<QueuePair<Rc>>,
    pub(crate) senders: Vec<End<Rc>>,
    pub(crate) queue: TagMatchingQueue,
    pub(crate) cq: CompletionQueue,
    pub(crate) memory: MemoryRegion,
    pub(crate) context: Context,
    /// Number of unexpected messages, for cases that count them here.
    pub(crate) unexpected: u32,
    simulator: Option<Simulator>,
}

/// The identifier of operations whose completion the rig itself polls.
const ADDED: u64 = 0x0add_0add;

impl TagRig {
    pub(crate) fn new(bed: &Bed, options: RigOptions) -> Result<Self, Failed> {
        let RigOptions { senders, tags, ops, requests, keep_send_queue, user_tag } = options;
        let pair = PairOptions::default().memory(256 << 10);
        let context = bed.context();
        let pd = context.alloc_pd()?;
        let access = Access::LOCAL_WRITE | Access::REMOTE_READ;
        let memory = pd.memory(MEMORY).access(access).register()?;
        let cq = context.create_cq(1024).cqe_size(bed.cqe_size()).build()?;
        let queue = pd.create_tm_srq(&cq, requests).max_num_tags(tags).max_ops(ops);
        let queue = queue.user_tag(user_tag).build()?;
        let port = context.local_port(bed.port(), None)?;
        let connect = ConnectOptions::default();
        let mut rig = Self {
            receivers: Vec::new(),
            senders: Vec::new(),
            queue,
            cq,
            memory,
            context,
            unexpected: 0,
            simulator: bed.is_simulated().then(|| bed.simulator().clone()),
        };
        for n in 0..senders {
            let mut builder = pd.create_qp::<Rc>(&rig.cq, &rig.cq).tm_srq(&rig.queue);
            if keep_send_queue {
                builder = builder.keep_send_queue();
            }
            let mut receiver = builder.build()?;
            let mut sender = bed.end::<Rc>(&pair)?;
            // Near the wrap of the 24-bit sequence number.
            let psn = Psn::wrapping(0xff_fff0 + n as u32);
            let here = receiver.endpoint(&port, psn, &connect);
            let there = sender.endpoint(&pair);
            receiver.connect(&port, psn, &there, &connect)?;
            sender.qp.connect(&sender.port, sender.psn, &here, &connect)?;
            rig.receivers.push(receiver);
            rig.senders.push(sender);
        }
        Ok(rig)
    }

    /// Posts requests for messages that match no tag; the identifier of each is its slot in the
    /// memory.
    #[track_caller]
    pub(crate) fn post_requests(&mut self, places: Range<u64>) {
        for wr_id in places {
            let at = wr_id as usize % 64 * REQUEST;
            let sge = self.memory.sge(at..at + REQUEST).expect("inside the memory");
            self.queue.post_recv(&[ReceiveWr { wr_id, sges: &[sge] }]).expect("room");
        }
    }

    /// A part of the buffers, as a tag's scatter list.
    #[track_caller]
    pub(crate) fn buffer(&self, range: Range<usize>) -> [Sge; 1] {
        [self.memory.sge(BUFFERS + range.start..BUFFERS + range.end).expect("inside the memory")]
    }

    /// Adds a tag whose mask has all bits, and waits until it is on the list.
    #[track_caller]
    pub(crate) fn add(&mut self, tag: u64, recv_wr_id: u64, range: Range<usize>) -> TagHandle {
        let sges = self.buffer(range);
        self.add_with(TagAdd { recv_wr_id, sges: &sges, tag, mask: u64::MAX })
    }

    /// Adds a tag, with the count of unexpected messages, and waits until it is on the list.
    #[track_caller]
    pub(crate) fn add_with(&mut self, add: TagAdd<'_>) -> TagHandle {
        let wr = OpsWr::add(ADDED, add).synchronised(self.unexpected).signaled();
        let handle = self.post(wr).handle.expect("a handle");
        let start = Instant::now();
        loop {
            let mut added = 0;
            self.cq
                .poll(1, |wc| {
                    assert_eq!((wc.opcode(), wc.wr_id()), (CompletionOpcode::TmAdd, ADDED));
                    added += 1;
                })
                .unwrap_or_else(|error| panic!("{error}"));
            if added == 1 {
                return handle;
            }
            if !self.simulator.as_ref().is_some_and(Simulator::step) {
                assert!(start.elapsed() < Duration::from_secs(20), "the tag is not added");
                std::thread::yield_now();
            }
        }
    }

    /// Posts an operation.
    #[track_caller]
    pub(crate) fn post(&mut self, wr: OpsWr<'_>) -> OpsWr<'static> {
        let mut list = [wr];
        self.queue.post_srq_ops(&mut list).unwrap_or_else(|error| panic!("{error}"));
        let OpsWr { wr_id, flags, unexpected_cnt, handle, .. } = list[0];
        let operation = mlx5::TagOperation::Sync;
        OpsWr { wr_id, flags, unexpected_cnt, operation, handle }
    }

    /// Posts a signaled operation, and returns its completion.
    #[track_caller]
    pub(crate) fn run(&mut self, bed: &Bed, wr: OpsWr<'_>) -> OwnedCompletion {
        self.post(wr.signaled());
        bed.poll_one(&mut self.cq)
    }

    /// Posts an operation that adds a tag, and waits until it is on the list.
    #[track_caller]
    pub(crate) fn run_add(&mut self, bed: &Bed, wr: OpsWr<'_>) -> TagHandle {
        let handle = self.post(wr.signaled()).handle.expect("a handle");
        bed.poll_good(&mut self.cq, 1);
        handle
    }

    /// Sends bytes from the start of a sender's memory, and waits until they are acknowledged.
    #[track_caller]
    pub(crate) fn send(&mut self, bed: &Bed, sender: usize, message: &[u8]) {
        self.send_later(sender, message);
        bed.poll_good(&mut self.senders[sender].send_cq, 1);
    }

    /// Posts the same, without waiting.
    #[track_caller]
    pub(crate) fn send_later(&mut self, sender: usize, message: &[u8]) {
        let end = &mut self.senders[sender];
        end.mr.write_at(0, message).expect("inside the memory");
        let sges = match message.len() {
            0 => Vec::new(),
            length => vec![end.mr.sge(0..length).expect("inside the memory")],
        };
        let mut batch = end.qp.wr_start();
        batch.wr(0, SendFlags::SIGNALED).send().sge_list(&sges);
        batch.complete().expect("room");
    }

    /// Sends an eager message.
    #[track_caller]
    pub(crate) fn eager(&mut self, bed: &Bed, tag: u64, payload: &[u8]) {
        self.send(bed, 0, &eager(tag, 0, payload));
    }

    /// A request to fetch a part of a sender's memory.
    #[track_caller]
    pub(crate) fn rendezvous(&self, sender: usize, tag: u64, range: Range<usize>) -> TmMessage {
        let mr = &self.senders[sender].mr;
        let len = range.len() as u32;
        let at = mr.remote(range.start..).expect("inside the memory");
        TmMessage::Rendezvous {
            tag,
            app_ctx: 0x0102_0304,
            data: RendezvousData { va: at.addr, rkey: at.rkey, len },
        }
    }

    /// The bytes of a request.
    pub(crate) fn request(&self, wr_id: u64, length: u32) -> Vec<u8> {
        let mut bytes = vec![0; length as usize];
        let at = wr_id as usize % 64 * REQUEST;
        self.memory.read_at(at, &mut bytes).expect("inside the memory");
        bytes
    }

    /// Bytes of the buffers.
    pub(crate) fn bytes(&self, range: Range<usize>) -> Vec<u8> {
        let mut bytes = vec![0; range.len()];
        self.memory.read_at(BUFFERS + range.start, &mut bytes).expect("inside the memory");
        bytes
    }
}

/// An eager message.
pub(crate) fn eager(tag: u64, app_ctx: u32, payload: &[u8]) -> Vec<u8> {
    let mut message = TmMessage::Eager { tag, app_ctx }.to_bytes();
    message.extend_from_slice(payload);
    message
}

/// The fields of a completion: opcode, identifier, and whether it is matched, valid, to be
/// synchronised.
pub(crate) type Fields = (CompletionOpcode, u64, bool, bool, bool);

/// The tag-matching fields of a completion.
pub(crate) fn fields(completion: &OwnedCompletion) -> Fields {
    let wc = completion.as_completion();
    (wc.opcode(), wc.wr_id(), wc.tm_match(), wc.tm_data_valid(), wc.tm_sync_required())
}
