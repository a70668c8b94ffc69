//! Creating a queue pair from the builder's options.

use super::{QueuePairBuilder, QueuePairCaps, QueuePairTransport, Tags, pipelining};
use crate::context::Context;
use crate::error::{Error, ErrorKind, RAW_PACKETS};
use crate::link::Watched;
use crate::pools::{QueueBuffer, QueuePairRecords, ReceiveSide, RecordSlot};
use crate::qp::{ControlHalf, PacketObjects, QpInner, QueuePair, ReceiveHalf, SendHalf};
use mlx5_cq::UserTag;
use mlx5_doorbell::QueuePairRecord;
use mlx5_prm::ethernet::InlineMode;
use mlx5_uapi::cmd::qp as command;
use mlx5_uapi::mlx5::{CreateQp, QpFlags};
use mlx5_uapi::page_size;
use mlx5_uapi::verbs::{QpCap, QpCreateFlags};
use mlx5_wqe::{
    Gate, QueueState, ReceiveLayout, ReceiveQueue, SendLayout, SendOps, SendParts, SendQueue,
};
use std::sync::{Arc, Mutex, atomic::AtomicBool};

const VERB: &str = "create_qp";

impl<T: QueuePairTransport> QueuePairBuilder<'_, T> {
    /// Refuses operations that the transport or the device lacks.
    fn check_ops(&self) -> Result<(), Error> {
        let lacks = |what: &str, ops: SendOps| {
            let names: Vec<_> = ops.iter_names().map(|(name, _)| name).collect();
            let cause = format!("{what} does not have {}", names.join(", "));
            Err(Error::new(VERB, ErrorKind::NotSupported, cause))
        };
        let missing = self.send_ops.difference(SendOps::of::<T>());
        if !missing.is_empty() {
            return lacks(T::NAME, missing);
        }
        let atomics = self.send_ops & SendOps::ATOMICS;
        if !atomics.is_empty() && !self.pd.context.has_atomics() {
            return lacks("the device", atomics);
        }
        Ok(())
    }

    fn layouts(&self) -> Result<(SendLayout, ReceiveLayout), Error> {
        let context = &self.pd.context;
        let limits = &context.limits;
        let (sges, inline) = (self.max_send_sge, self.max_inline_data);
        let (requests, header) = (self.max_send_wr, self.packet.max_tso_header);
        let layout = SendLayout::with_tso::<T>(requests, sges, inline, self.send_ops, header)
            .and_then(|layout| layout.holding(requests, self.mkey_blocks));
        let send = layout.filter(|layout| {
            layout.max_request_bytes() <= usize::from(limits.max_sq_desc_sz)
                && layout.blocks <= limits.max_send_wqebb
        });
        let Some(send) = send else {
            let what = format!(
                "{} send requests with {sges} entries{} or {inline} bytes of inline data do not \
                 fit: a request has at most {} bytes, and the queue {} blocks of 64",
                self.max_send_wr,
                if header == 0 { String::new() } else { format!(" and {header} bytes of headers") },
                limits.max_sq_desc_sz,
                limits.max_send_wqebb
            );
            return Err(Error::invalid(VERB, what));
        };
        let shared = self.srq.is_some() || self.tags.is_some();
        let requests = if shared || !T::RECEIVES { 0 } else { self.max_recv_wr };
        let receive = ReceiveLayout::new(requests, self.max_recv_sge, 0).filter(|layout| {
            layout.requests <= limits.max_recv_wr
                && (layout.requests == 0 || layout.stride <= u32::from(limits.max_rq_desc_sz))
        });
        let Some(receive) = receive else {
            let what = format!(
                "{requests} receive requests with {} entries do not fit: the device supports {} \
                 requests of {} bytes",
                self.max_recv_sge, limits.max_recv_wr, limits.max_rq_desc_sz
            );
            return Err(Error::invalid(VERB, what));
        };
        Ok((send, receive))
    }

    /// Refuses options that exclude each other.
    fn check(&self) -> Result<(), Error> {
        let context = &self.pd.context;
        for cq in [&self.send_cq, &self.recv_cq] {
            if !Arc::ptr_eq(&cq.inner.context, context) {
                let what = "completion queue and protection domain belong to different contexts";
                return Err(Error::invalid(VERB, what.into()));
            }
        }
        if self.srq.as_ref().is_some_and(|srq| !Arc::ptr_eq(srq.context(), context)) {
            let what = "shared receive queue and protection domain belong to different contexts";
            return Err(Error::invalid(VERB, what.into()));
        }
        let shares = self.srq.is_some() || self.tags.is_some();
        if self.wqe_signature && T::RECEIVES && !shares && self.max_recv_wr != 0 {
            let what = "a queue pair with signed requests cannot have a receive queue of its own: \
                        use a shared one, or `max_recv_wr(0)`";
            return Err(Error::invalid(VERB, what.into()));
        }
        if self.pipelining {
            pipelining::check(context)?;
        }
        if let Some(Tags { srq, .. }) = &self.tags {
            if !Arc::ptr_eq(srq.context(), context) {
                let what = "tag-matching queue and protection domain belong to different contexts";
                return Err(Error::invalid(VERB, what.into()));
            }
            if !srq.completes_on(&self.recv_cq.inner) {
                let what = "messages to a tag-matching queue complete on its completion queue: \
                            create the queue pair with that one";
                return Err(Error::invalid(VERB, what.into()));
            }
            if self.srq.is_some() {
                let what = "a queue pair receives from either a shared receive queue or a \
                            tag-matching queue, not both";
                return Err(Error::invalid(VERB, what.into()));
            }
        }
        if T::SEPARATE {
            self.check_packet()?;
        }
        if shares && !T::RECEIVES {
            let what = format!("{} queue pairs have no receive queue", T::NAME);
            return Err(Error::invalid(VERB, what));
        }
        self.check_ops()
    }

    /// Refuses options that raw packet queue pairs lack.
    fn check_packet(&self) -> Result<(), Error> {
        let refused = |what: &str| Err(Error::invalid(VERB, what.into()));
        if self.srq.is_some() {
            return refused("a raw packet queue pair has no shared receive queue");
        }
        if self.wqe_signature {
            return refused("requests of raw packet queue pairs cannot be signed");
        }
        if self.flags.contains(QpCreateFlags::BLOCK_MULTICAST_LOOPBACK) {
            return refused(
                "`self_loopback` says what a raw packet queue pair receives of its own",
            );
        }
        let context = Context { inner: Arc::clone(&self.pd.context) };
        if context.inner.limits.cqe_version == 0 {
            return refused("the kernel creates no raw packet queue pair for CQEs of version 0");
        }
        self.packet.check(VERB, &context, self.flags)
    }

    /// Creates the queue pair, in state RESET.
    pub fn build(self) -> Result<QueuePair<T>, Error> {
        let context = &self.pd.context;
        context.check(VERB)?;
        self.check()?;
        let device_sends =
            !self.keep_send_queue && self.tags.as_ref().is_some_and(|tags| tags.device_sends);
        let (send_layout, receive_layout) = self.layouts()?;
        let send_offset = match T::SEPARATE {
            // The kernel maps each queue for itself, by whole pages.
            true => receive_layout.bytes().next_multiple_of(page_size()),
            false => receive_layout.bytes(),
        };
        let buffer =
            QueueBuffer::new(&context.buffers, send_offset + send_layout.bytes(), &self.memory)?;
        let slot = RecordSlot::new(&context.records, self.memory.allocator.as_ref())?;
        let uar = match &self.domain {
            Some(domain) => domain.send_uar(&context.uars)?,
            None => context.uars.acquire(self.doorbell)?,
        };

        let receive_records = match T::SEPARATE {
            true => context.user_indexes.receive_records_in_order(receive_layout.requests),
            false => context.user_indexes.receive_records(receive_layout.requests),
        };
        let receive_side = match &self.srq {
            Some(srq) => ReceiveSide::Shared(srq.records()),
            None => ReceiveSide::Own(Arc::clone(&receive_records)),
        };
        let records = QueuePairRecords {
            send: context.user_indexes.send_records(send_layout.blocks),
            receive: receive_side,
            tags: self.tags.as_ref().map(|tags| Arc::clone(&tags.records)),
            user_tag: UserTag::new(self.user_tag),
            lent: AtomicBool::new(false),
        };
        let rings = [self.send_cq.inner.ring_id(), self.recv_cq.inner.ring_id()];
        let Some(index) = context.user_indexes.register(records, rings) else {
            return Err(Error::invalid(VERB, "all user indexes are in use".into()));
        };
        let index = Arc::new(index);

        let mut driver_flags = QpFlags::UAR_PAGE_INDEX;
        driver_flags.set(QpFlags::SIGNATURE, self.wqe_signature);
        let scatter = QpFlags::SCATTER_CQE | QpFlags::ALLOW_SCATTER_CQE;
        driver_flags.set(scatter, self.scatter_to_cqe && !T::SEPARATE);
        driver_flags |= self.packet.flags;
        let id = context.next_handle_id();
        let has_receive = receive_layout.requests != 0;
        let request = command::CreateQp {
            qp_type: T::QP_TYPE,
            pd: Some(self.pd.handle()),
            xrcd: None,
            send_cq: self.send_cq.inner.handle(),
            recv_cq: self.recv_cq.inner.handle().filter(|_| T::RECEIVES),
            srq: match &self.tags {
                Some(tags) => tags.srq.handle(),
                None => self.srq.as_ref().and_then(|srq| srq.handle()),
            },
            user_handle: id,
            cap: QpCap {
                max_send_wr: if device_sends { 0 } else { send_layout.max_size_requests },
                max_recv_wr: receive_layout.requests,
                max_send_sge: send_layout.max_sge,
                max_recv_sge: receive_layout.max_sge,
                max_inline_data: send_layout.max_inline,
            },
            flags: if self.signal_all {
                self.flags | QpCreateFlags::SQ_SIG_ALL
            } else {
                self.flags
            },
            source_qpn: None,
            async_events: Some(context.async_fd()),
            driver: CreateQp {
                buf_addr: buffer.addr(),
                db_addr: slot.addr(),
                // If this is zero, the device uses the send queue.
                sq_wqe_count: if device_sends { 0 } else { send_layout.blocks },
                rq_wqe_count: receive_layout.requests,
                rq_wqe_shift: if has_receive { receive_layout.stride.trailing_zeros() } else { 0 },
                flags: driver_flags.bits(),
                uidx: index.get(),
                bfreg_index: uar.page_id(),
                sq_buf_addr: if T::SEPARATE { buffer.addr() + send_offset as u64 } else { 0 },
                ..CreateQp::default()
            },
        };
        // SAFETY: buffer and record live until the queue pair is destroyed, or until the file is
        // closed.
        let made = match unsafe { command::create(&*context.file, &request) } {
            Ok(made) => made,
            Err(errno) => {
                let kind = match T::SEPARATE {
                    true => RAW_PACKETS.into(),
                    false => format!("{} queue pairs", T::NAME),
                };
                let error = context.fail(VERB, errno).asked_for(&kind);
                if error.in_doubt() {
                    buffer.keep();
                    slot.keep();
                    uar.keep();
                }
                return Err(error);
            }
        };

        // SAFETY: the slot lives as long as the queue pair, and nothing else uses its record and
        // word.
        let (record, gate) =
            unsafe { (QueuePairRecord::new(slot.record()), Gate::new(slot.word())) };
        let send_gate = match device_sends {
            // SAFETY: the slot lives as long as the queue pair, and nothing else uses its second
            // word.
            true => unsafe { Gate::shut(slot.second_word()) },
            false => gate,
        };
        let mode = uar.mode();
        let parts = SendParts {
            // SAFETY: the buffer holds both rings, the send ring from this offset on.
            ring: unsafe { buffer.as_non_null().byte_add(send_offset) },
            layout: send_layout,
            qpn: made.qp_num,
            max_message: context.max_message(),
            signal_all: self.signal_all,
            atomics: context.has_atomics(),
            gate: send_gate,
            record,
            register: uar.register(),
            records: index.send_records(),
        };
        // SAFETY: the ring has the size of the layout. Its address is page-aligned plus a multiple
        // of 64. It lives as long as `inner`, to which the half holds a reference.
        let mut send = unsafe { SendQueue::new(parts) };
        if self.wqe_signature {
            send.sign_requests();
        }
        if T::SEPARATE {
            let caps = Context { inner: Arc::clone(context) }.query_device().ethernet;
            if caps.inline_mode != InlineMode::None {
                send.require_inline_header();
            }
            send.take_segmented(&send_layout, caps.max_tso);
        }
        let receive = has_receive.then(|| {
            let ring = buffer.as_non_null();
            // SAFETY: the ring starts the page-aligned buffer, which has the size of the layout and
            // lives as long as `inner`, to which the half holds a reference.
            unsafe { ReceiveQueue::new(ring, receive_layout, gate, record, receive_records) }
        });
        let caps = QueuePairCaps {
            max_send_wr: if device_sends { 0 } else { send_layout.max_size_requests },
            send_blocks: if device_sends { 0 } else { send_layout.blocks },
            max_wr_blocks: send_layout.max_request_blocks,
            max_recv_wr: receive_layout.requests,
            max_send_sge: send_layout.max_sge,
            max_recv_sge: receive_layout.max_sge,
            max_inline_data: send_layout.max_inline,
        };
        let inner = Arc::new(QpInner {
            watch: context.watch(Watched::Queue(gate)),
            context: Arc::clone(context),
            handle: Mutex::new(Some(made.handle)),
            qp_num: made.qp_num,
            qp_type: T::QP_TYPE,
            id,
            caps,
            receive_layout,
            send_offset,
            pipelining: self.pipelining,
            packet: PacketObjects::new(&made.driver),
            mode,
            gate,
            index,
            drain_epoch: Default::default(),
            memory: Mutex::new(Some((buffer, slot, uar))),
            has_other_writer: AtomicBool::new(device_sends),
            started: AtomicBool::new(false),
            send_cq: Arc::clone(&self.send_cq.inner),
            recv_cq: Arc::clone(&self.recv_cq.inner),
            srq: match self.tags {
                Some(tags) => Some(tags.srq),
                None => self.srq,
            },
            pd: self.pd.clone(),
        });
        Ok(QueuePair {
            send: SendHalf { queue: send, inner: Arc::clone(&inner) },
            receive: receive.map(|queue| ReceiveHalf { queue, inner: Arc::clone(&inner) }),
            control: ControlHalf { inner, state: QueueState::Reset },
            was_reset: false,
        })
    }
}
