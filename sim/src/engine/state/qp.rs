//! Queue pairs: their configuration, attributes and state.

use std::collections::VecDeque;

use mlx5_prm::doorbell::queue_pair_record;
use mlx5_prm::wqe::BLOCK;

use crate::dma::{Buffer, Dma, DmaFault};
use crate::engine::state::codes::FLUSHED;
use crate::engine::state::drain::Drain;
use crate::engine::state::fence::Change;
use crate::engine::state::mkey::{Side, User};
use crate::engine::state::port::{Gid, Mac};
use crate::engine::state::receive::{Inbound, Receive};
use crate::engine::state::tag_message::{Arriving, Rendezvous};
use crate::engine::state::uar::Copied;
use crate::engine::state::wire::Executed;

/// The smallest path MTU that there is.
pub(crate) const MIN_MTU: u32 = 256;

/// The transport service of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transport {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
    /// No wire: registration requests of the kernel's own.
    Umr,
    /// The sending side of an extended reliable connection.
    XrcSend,
    /// The receiving side of one, which uses the shared receive queues of its domain.
    XrcReceive,
    /// The send queue of an Ethernet port.
    Ethernet,
    /// The receive queue of an Ethernet port.
    EthernetReceive,
}

impl Transport {
    /// Whether sends are acknowledged.
    pub(crate) fn is_reliable(self) -> bool {
        matches!(self, Self::Rc | Self::XrcSend | Self::XrcReceive)
    }

    /// The transport of the peer of a connection.
    pub(crate) fn peer(self) -> Self {
        match self {
            Self::XrcSend => Self::XrcReceive,
            Self::XrcReceive => Self::XrcSend,
            same => same,
        }
    }
}

/// The state of a queue pair; the numbers are the QP context's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum QpState {
    /// Reset.
    Reset = 0,
    /// Initialised: receives may be posted.
    Init = 1,
    /// Ready to receive.
    Rtr = 2,
    /// Ready to send.
    Rts = 3,
    /// The send queue failed, the receive queue runs.
    SqError = 4,
    /// The send queue has stopped before a WQE.
    SqDrained = 5,
    /// Failed.
    Error = 6,
    /// Asked to drain, but not drained yet.
    SqDraining = 7,
}

/// One ring of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RingConfig {
    /// Offset of its start in the queue pair's buffer.
    pub offset: u64,
    /// Base-two logarithm of its entries: 64-byte blocks in a send queue.
    pub log_size: u8,
    /// Base-two logarithm of an entry's bytes: 6 in a send queue.
    pub log_stride: u8,
}

impl RingConfig {
    /// Its length in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        1 << (self.log_size + self.log_stride)
    }

    pub(crate) fn mask(&self) -> u32 {
        (1 << self.log_size) - 1
    }
}

/// Configuration of a queue pair.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QpConfig {
    /// Its transport service.
    pub transport: Transport,
    /// Its protection domain.
    pub pd: u32,
    /// Completion queue of its requests.
    pub send_cq: u32,
    /// Completion queue of its receives.
    pub recv_cq: u32,
    /// The shared receive queue that it takes from.
    pub srq: Option<u32>,
    /// The XRC domain whose shared receive queues it takes from.
    pub xrcd: Option<u32>,
    /// Its user index; 0xffffff for none.
    pub user_index: u32,
    /// Memory of its rings.
    pub buffer: Buffer,
    /// Its send queue.
    pub sq: Option<RingConfig>,
    /// Its own receive queue.
    pub rq: Option<RingConfig>,
    /// Bus address of its doorbell record.
    pub record: u64,
    /// The UAR page on which its doorbell rings.
    pub uar: u32,
    /// It does not receive its own multicasts.
    pub block_multicast_loopback: bool,
    /// Format of its completions.
    pub completion: CompletionConfig,
    /// Its requests carry signatures, which are checked (`wq_signature`).
    pub signed: bool,
    /// The device uses its send side to fetch the data of rendezvous.
    pub rendezvous: bool,
}

/// Format of the completions of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CompletionConfig {
    /// Longest response to a read or an atomic that goes into the completion, in bytes: 0, 32 or 64
    /// (`cs_req`).
    pub inline_answers: usize,
    /// Longest message that goes into the completion of its receive, in bytes: 0, 32 or 64
    /// (`cs_res`).
    pub inline_receives: usize,
    /// Timestamps are the time of day (`ts_format`).
    pub real_time: bool,
}

impl CompletionConfig {
    /// Most bytes that go into the completion of a receive, or of a request.
    pub(crate) fn limit(&self, receive: bool) -> usize {
        if receive { self.inline_receives } else { self.inline_answers }
    }
}

/// The path to the peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AddressPath {
    /// A global route header is sent (InfiniBand; on Ethernet always).
    pub grh: bool,
    /// Destination LID (InfiniBand).
    pub dlid: u16,
    /// Destination GID (with GRH, and on Ethernet).
    pub dgid: Gid,
    /// Destination MAC address (Ethernet).
    pub dmac: Mac,
    /// Index of the source GID.
    pub sgid_index: u8,
    /// Service level.
    pub sl: u8,
    /// Low bits of the source LID.
    pub source_path_bits: u8,
    /// Traffic class.
    pub traffic_class: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Flow label.
    pub flow_label: u32,
    /// UDP source port (RoCE version 2).
    pub udp_sport: u16,
}

/// Attributes that MODIFY commands set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QpAttributes {
    /// Port number, from 1.
    pub port: u8,
    /// Index of its partition key.
    pub pkey_index: u16,
    /// Its Q_Key (UD).
    pub qkey: u32,
    /// Path MTU in bytes (RC, UC).
    pub mtu: u32,
    /// The other side's number (RC, UC).
    pub remote_qpn: u32,
    /// Number of the next packet to send (24 bits).
    pub sq_psn: u32,
    /// Number of the next packet to receive (24 bits).
    pub rq_psn: u32,
    /// Acknowledgement timeout: 4.096 µs × 2 to this power; 0 is infinite.
    pub ack_timeout: u8,
    /// Number of times that an unanswered request is sent again.
    pub retry_count: u8,
    /// Number of times that a request is sent again to a receiver that was not ready; 7 is
    /// infinite.
    pub rnr_retry: u8,
    /// Code of the time that a sender must wait when this side was not ready.
    pub min_rnr_timer: u8,
    /// RDMA reads by the other side are allowed.
    pub remote_read: bool,
    /// RDMA writes by the other side are allowed.
    pub remote_write: bool,
    /// Atomics by the other side are allowed.
    pub remote_atomic: bool,
    /// The send queue stops after a request with a signature error.
    pub drain_sigerr: bool,
    /// Reports the end of a drain that MODIFY asked for.
    pub notify_drained: bool,
    /// The counter set of its counts.
    pub counter_set: u8,
    /// The path to the peer (RC, UC).
    pub path: AddressPath,
}

impl Default for QpAttributes {
    fn default() -> Self {
        Self {
            port: 1,
            pkey_index: 0,
            qkey: 0,
            mtu: 256,
            remote_qpn: 0,
            sq_psn: 0,
            rq_psn: 0,
            ack_timeout: 0,
            retry_count: 0,
            rnr_retry: 0,
            min_rnr_timer: 0,
            remote_read: false,
            remote_write: false,
            remote_atomic: false,
            drain_sigerr: false,
            notify_drained: false,
            counter_set: 0,
            path: AddressPath::default(),
        }
    }
}

/// State that QUERY_QP returns besides the attributes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QpSnapshot {
    /// Its state.
    pub state: QpState,
    /// The first block that is not executed yet.
    pub hw_sq_wqebb_counter: u16,
    /// The send counter in the doorbell record, as last read.
    pub sw_sq_wqebb_counter: u16,
    /// Receive WQEs consumed.
    pub hw_rq_counter: u16,
    /// The receive counter in the doorbell record.
    pub sw_rq_counter: u16,
    /// Number of the next packet to send.
    pub next_send_psn: u32,
    /// Number of the next packet to receive.
    pub next_rcv_psn: u32,
}

/// Condition on which a request is tried again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wait {
    /// Nothing to wait for.
    No,
    /// At this time, in nanoseconds.
    Until(u64),
    /// Until the other side is ready, however long that takes.
    Ready,
    /// Never: no answer, and the timeout is infinite.
    Forever,
}

#[derive(Debug)]
pub(crate) struct Qp {
    pub(crate) config: QpConfig,
    pub(crate) attributes: QpAttributes,
    pub(crate) state: QpState,
    /// Send blocks executed.
    pub(crate) sq_executed: u16,
    /// Send blocks posted, according to the last look at the record.
    pub(crate) sq_posted: u16,
    /// Receive WQEs consumed.
    pub(crate) rq_consumed: u16,
    pub(crate) send_psn: u32,
    pub(crate) receive_psn: u32,
    /// Packets of the current request that were answered.
    pub(crate) packets_done: u32,
    pub(crate) retries: u8,
    pub(crate) rnr_retries: u8,
    pub(crate) wait: Wait,
    /// It is in the engine's list of queue pairs with work.
    pub(crate) queued: bool,
    pub(crate) drain: Option<Drain>,
    /// Changes by its requests since the last fence.
    pub(crate) unfenced: Vec<Change>,
    /// The message that is arriving.
    pub(crate) inbound: Inbound,
    /// The shared receive queue that the last XRC message named.
    pub(crate) named_srq: Option<u32>,
    /// The receive WQE that it goes to, between packets.
    pub(crate) held: Option<Receive>,
    /// COMM_EST was reported, or can be no more.
    pub(crate) established: bool,
    /// The message that is arriving for a queue with a tag list.
    pub(crate) arriving: Option<Arriving>,
    /// Number of changes of its tag list when it had no receive WQE for a message.
    pub(crate) refused_at: Option<u64>,
    /// Rendezvous that matched, and whose data the device still has to fetch.
    pub(crate) rendezvous: VecDeque<Rendezvous>,
    /// Blocks that the device executes as a BlueFlame register brought them.
    pub(crate) copies: Vec<Copied>,
    /// Time of arrival of the first request that waits, if it is in flight.
    pub(crate) arrival: Option<u64>,
    /// The request that left last.
    pub(crate) departed: Option<u16>,
    /// Posted blocks by the time of their doorbell, for networks that take time.
    pub(crate) posted: VecDeque<(u16, u64)>,
    /// Executed requests whose acknowledgement is in flight.
    pub(crate) executed: VecDeque<Executed>,
    /// Number of times that the acknowledgement of the first of them was requested again.
    pub(crate) answer_retries: u8,
    /// A doorbell announced blocks that the record does not cover yet.
    pub(crate) ahead: bool,
    /// The vendor's code and the hardware's code of the next flushed request.
    pub(crate) flushed: (u8, u8),
}

impl Qp {
    pub(crate) fn new(config: QpConfig) -> Self {
        Self {
            config,
            attributes: QpAttributes::default(),
            state: QpState::Reset,
            sq_executed: 0,
            sq_posted: 0,
            rq_consumed: 0,
            send_psn: 0,
            receive_psn: 0,
            packets_done: 0,
            retries: 0,
            rnr_retries: 0,
            wait: Wait::No,
            queued: false,
            drain: None,
            unfenced: Vec::new(),
            inbound: Inbound::Idle,
            named_srq: None,
            held: None,
            established: false,
            arriving: None,
            refused_at: None,
            rendezvous: VecDeque::new(),
            copies: Vec::new(),
            arrival: None,
            departed: None,
            posted: VecDeque::new(),
            executed: VecDeque::new(),
            answer_retries: 0,
            ahead: false,
            flushed: (FLUSHED, 0),
        }
    }

    /// Resets everything except its configuration.
    pub(crate) fn reset(&mut self) {
        let queued = self.queued;
        *self = Self { queued, ..Self::new(self.config.clone()) };
    }

    /// The user for whom it accesses memory.
    pub(crate) fn user(&self, qpn: u32, side: Side) -> User {
        User { qpn, pd: self.config.pd, side }
    }

    /// Whether it is an Ethernet queue.
    pub(crate) fn is_ethernet(&self) -> bool {
        matches!(self.config.transport, Transport::Ethernet | Transport::EthernetReceive)
    }

    pub(crate) fn receives(&self) -> bool {
        use QpState::{Rtr, Rts, SqDrained, SqDraining, SqError};
        matches!(self.state, Rtr | Rts | SqError | SqDraining | SqDrained)
    }

    /// Send blocks that wait.
    pub(crate) fn sq_waiting(&self) -> u16 {
        self.sq_posted.wrapping_sub(self.sq_executed)
    }

    /// Time at which the request at a block was posted, if noted.
    pub(crate) fn posted_at(&mut self, index: u16) -> Option<u64> {
        while let Some((end, time)) = self.posted.front() {
            if end.wrapping_sub(index).cast_signed() > 0 {
                return Some(*time);
            }
            self.posted.pop_front();
        }
        None
    }

    /// Takes back requests that were executed but not acknowledged, so that they are flushed with
    /// those after them.
    pub(crate) fn take_back(&mut self) {
        if let Some(first) = self.executed.front() {
            self.sq_executed = first.index;
        }
        self.executed.clear();
    }

    /// Whether its requester has work.
    pub(crate) fn has_requests(&self) -> bool {
        self.sq_waiting() > 0 || !self.rendezvous.is_empty()
    }

    /// Whether its doorbells have an effect. Before RTS the record still belongs to the driver,
    /// which initializes it; and a kernel that resets a process's queues cannot stop the process
    /// from ringing.
    pub(crate) fn heeds_doorbells(&self) -> bool {
        !matches!(self.state, QpState::Reset | QpState::Init | QpState::Rtr)
    }

    /// The send counter in the doorbell record.
    pub(crate) fn sq_record(&self, dma: &dyn Dma) -> Result<u16, DmaFault> {
        Ok(dma.load_u32(self.config.record + queue_pair_record::SEND as u64)? as u16)
    }

    /// The receive counter in the doorbell record.
    pub(crate) fn rq_record(&self, dma: &dyn Dma) -> Result<u16, DmaFault> {
        Ok(dma.load_u32(self.config.record + queue_pair_record::RECEIVE as u64)? as u16)
    }

    /// Copies from the send ring, from a block on, around its end.
    pub(crate) fn read_sq(&self, dma: &dyn Dma, block: u16, to: &mut [u8]) -> Result<(), DmaFault> {
        let Some(ring) = self.config.sq else {
            return Err(DmaFault { address: 0, length: to.len() as u64 });
        };
        let start = u64::from(u32::from(block) & ring.mask()) * BLOCK as u64;
        let before_end = usize::try_from(ring.bytes() - start).unwrap_or(usize::MAX);
        let (head, tail) = to.split_at_mut(before_end.min(to.len()));
        self.config.buffer.read(dma, ring.offset + start, head)?;
        self.config.buffer.read(dma, ring.offset, tail)?;
        if let Some((_, copy)) = self.copies.iter().find(|(index, _)| *index == block) {
            let copied = copy.len().min(to.len());
            to[..copied].copy_from_slice(&copy[..copied]);
        }
        Ok(())
    }

    /// The bytes of its buffer that its rings cover.
    pub(crate) fn buffer_bytes(&self) -> u64 {
        let end = |ring: RingConfig| ring.offset + ring.bytes();
        self.config.sq.map_or(0, end).max(self.config.rq.map_or(0, end))
    }
}
