//! A connection whose send queue drains on command, and whose messages show which requests were
//! executed.

use crate::prelude::*;
use mlx5::{AsyncEvent, Cancelled, Data, Drained};
use mlx5_sim::engine::DrainAt;

/// Bytes of the identifier at the start of every message.
pub(crate) const MESSAGE: usize = 8;
/// Bytes of a receive.
pub(crate) const SLOT: usize = 512;
/// Receives, and the offset of the memory after them.
pub(crate) const SLOTS: usize = 256;
pub(crate) const BEHIND: usize = SLOTS * SLOT;

/// A connection whose requests send their identifiers to the other side.
pub(crate) struct Rig<'a> {
    pub(crate) bed: &'a Bed,
    pub(crate) pair: Pair<Rc>,
    /// Receives posted at the other side.
    pub(crate) receives: usize,
}

impl<'a> Rig<'a> {
    pub(crate) fn new(bed: &'a Bed) -> Result<Self, Failed> {
        Self::with(bed, PairOptions::default())
    }

    pub(crate) fn with(bed: &'a Bed, options: PairOptions) -> Result<Self, Failed> {
        let options = options.recv_wr(SLOTS as u32).cq_entries(1024).memory(BEHIND + 4096);
        let pair = bed.pair::<Rc>(&options)?;
        let mut rig = Self { bed, pair, receives: 0 };
        rig.refill();
        Ok(rig)
    }

    /// Posts receives until the queue is full.
    pub(crate) fn refill(&mut self) {
        while self.pair.b.qp.free_receives() > 0 {
            let at = self.receives % SLOTS * SLOT;
            self.pair.b.recv(self.receives as u64, at..at + SLOT);
            self.receives += 1;
        }
    }

    /// Posts a send of `blocks` blocks with the message `wr_id`.
    pub(crate) fn send(
        &mut self,
        wr_id: u64,
        flags: SendFlags,
        blocks: usize,
    ) -> Result<(), PostError> {
        let message = wr_id.to_ne_bytes();
        let fill = [0_u8; 64];
        // The first block has room for 44 bytes after the control segment, each other block for 64.
        let rest = if blocks > 1 { (blocks - 1) * 64 } else { 0 };
        let mut pieces = vec![&message[..]];
        for _ in 0..rest / 64 {
            pieces.push(&fill);
        }
        let post = Post::new(Op::Send, wr_id, Data::Inline(&pieces)).flags(flags);
        self.pair.a.post(Form::Typed, post)
    }

    /// Posts signaled sends of one block.
    pub(crate) fn send_all(&mut self, wr_ids: impl IntoIterator<Item = u64>) -> Outcome {
        for wr_id in wr_ids {
            self.send(wr_id, SendFlags::SIGNALED, 1)?;
        }
        Ok(())
    }

    /// Makes the device drain the queue, after `executed` more requests.
    pub(crate) fn drain(&self, executed: u32) -> Result<Drained, Failed> {
        let qp = &self.pair.a.qp;
        self.bed
            .simulator()
            .drain_qp(0, qp.qp_num(), DrainAt::After(executed))
            .map_err(|error| format!("{error:?}"))?;
        self.bed.settle();
        let events = self.pair.a.context.async_events();
        assert_eq!(events.next()?, Some(AsyncEvent::SqDrained(qp.id())));
        Ok(qp.drained()?)
    }

    /// The identifiers of the pending requests.
    pub(crate) fn pending(&self, drained: &Drained) -> Result<Vec<u64>, Failed> {
        Ok(self.pair.a.qp.pending(drained)?.map(|request| request.wr_id).collect())
    }

    pub(crate) fn resume(&mut self) -> Outcome {
        self.pair.a.qp.resume()?;
        self.bed.settle();
        Ok(())
    }

    /// The identifiers that arrived at the other side since the last call, in order.
    #[track_caller]
    pub(crate) fn executed(&mut self) -> Vec<u64> {
        self.bed.settle();
        let mut slots = Vec::new();
        let cq = self.pair.b.recv_cq.as_mut().expect("two queues");
        while cq.poll(64, |one| {
            assert!(one.is_success(), "{one:?}");
            slots.push(one.wr_id());
        }) != Ok(0)
        {}
        let message = |slot: u64| {
            let mut message = [0; MESSAGE];
            let at = slot as usize % SLOTS * SLOT;
            self.pair.b.mr.read_at(at, &mut message).expect("inside");
            u64::from_ne_bytes(message)
        };
        let found = slots.into_iter().map(message).collect();
        self.refill();
        found
    }

    /// The completions since the last call: identifier, and whether the request was cancelled.
    #[track_caller]
    pub(crate) fn completed(&mut self) -> Vec<(u64, bool)> {
        self.bed.settle();
        let mut found = Vec::new();
        while self.pair.a.send_cq.poll(64, |one| {
            assert!(one.is_success(), "{one:?}");
            assert_eq!(one.opcode(), CompletionOpcode::Send);
            found.push((one.wr_id(), one.cancelled()));
        }) != Ok(0)
        {}
        found
    }
}

/// The identifiers of the cancelled requests.
pub(crate) fn ids(cancelled: &Cancelled) -> Vec<u64> {
    let ids: Vec<u64> = cancelled.requests().iter().map(|request| request.wr_id).collect();
    assert_eq!(ids.len(), cancelled.count());
    ids
}
