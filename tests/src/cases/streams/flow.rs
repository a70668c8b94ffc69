//! Queue pairs whose requests a stream completes.

use super::random::Random;
use crate::prelude::*;
use mlx5::{ConnectOptions, Data, Operation, ProtectionDomain, Psn};
use mlx5_prm::cqe::{Cqe, CqeOpcode};
use mlx5_prm::wqe::Opcode;
use std::collections::VecDeque;

/// Requests outstanding at a queue pair, at most.
const DEPTH: usize = 40;

/// A request that was posted.
pub(super) struct Posted {
    pub(super) wr_id: u64,
    /// Its first block, or the number of the receive.
    pub(super) counter: u16,
    pub(super) opcode: Opcode,
}

/// A queue pair, and its outstanding requests.
pub(super) struct Flow {
    pub(super) qp: QueuePair<Rc>,
    pub(super) sends: VecDeque<Posted>,
    pub(super) receives: VecDeque<Posted>,
    /// Numbers of the lanes on which sends and receives complete.
    pub(super) lanes: [usize; 2],
    next_block: u16,
    next_receive: u16,
    /// Fields that the entries have in common for a while, so that the device can compress them.
    pub(super) common: Cqe,
}

impl Flow {
    /// A queue pair that completes on two of `lanes`, which may be the same.
    pub(super) fn new(
        bed: &Bed,
        pd: &ProtectionDomain,
        lanes: [usize; 2],
        cqs: [&CompletionQueue; 2],
    ) -> Result<Self, Failed> {
        let [send_cq, recv_cq] = cqs;
        let qp = pd
            .create_qp::<Rc>(send_cq, recv_cq)
            .max_send_wr(DEPTH as u32 + 200)
            .max_recv_wr(DEPTH as u32 + 200)
            .max_inline_data(64)
            .build()?;
        let common = bed.simulator().fabric().lock().device(0).completion(
            qp.qp_num(),
            CqeOpcode::Requester,
            0,
            0,
        );
        let (sends, receives) = (VecDeque::new(), VecDeque::new());
        let mut flow =
            Self { qp, sends, receives, lanes, next_block: 0, next_receive: 0, common };
        flow.connect(bed, pd)?;
        Ok(flow)
    }

    /// Connects the queue pair to itself. After [`Flow::reset`], this works once its old
    /// completions are gone from the queues.
    pub(super) fn connect(&mut self, bed: &Bed, pd: &ProtectionDomain) -> Outcome {
        let port = pd.context().local_port(bed.port(), None)?;
        let (options, psn) = (ConnectOptions::default(), Psn::wrapping(7));
        let itself = self.qp.endpoint(&port, psn, &options);
        Ok(self.qp.connect(&port, psn, &itself, &options)?)
    }

    /// Resets the queue pair, which forgets all posted requests.
    pub(super) fn reset(&mut self) -> Outcome {
        self.qp.modify(&QpAttributes::new().qp_state(QueueState::Reset))?;
        self.sends.clear();
        self.receives.clear();
        (self.next_block, self.next_receive) = (0, 0);
        Ok(())
    }


    /// Posts a send and a receive, if there is room.
    pub(super) fn post(&mut self, random: &mut Random, mr: &MemoryRegion, wr_id: u64) -> Outcome {
        if self.sends.len() < DEPTH {
            let remote = mr.remote(..)?;
            let sges = [mr.sge(0..64)?];
            let long: &[&[u8]] = &[&[7; 40]];
            let (operation, opcode, data, blocks) = match random.below(4) {
                0 => (Operation::Send, Opcode::Send, Data::Sges(&sges), 1),
                1 => (Operation::RdmaRead(remote), Opcode::RdmaRead, Data::Sges(&sges), 1),
                2 => (Operation::RdmaWrite(remote), Opcode::RdmaWrite, Data::Sges(&sges), 1),
                _ => (Operation::RdmaWrite(remote), Opcode::RdmaWrite, Data::Inline(long), 2),
            };
            let flags = SendFlags::SIGNALED;
            let wr = SendWr { wr_id, flags, operation, data, ..SendWr::default() };
            self.qp.post_send(&[wr])?;
            self.sends.push_back(Posted { wr_id, counter: self.next_block, opcode });
            self.next_block = self.next_block.wrapping_add(blocks);
        }
        if self.receives.len() < DEPTH {
            let wr_id = wr_id | 1 << 63;
            self.qp.post_recv(&[ReceiveWr { wr_id, sges: &[mr.sge(0..64)?] }])?;
            let opcode = Opcode::Nop;
            self.receives.push_back(Posted { wr_id, counter: self.next_receive, opcode });
            self.next_receive = self.next_receive.wrapping_add(1);
        }
        Ok(())
    }
}
