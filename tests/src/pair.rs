//! Two connected queue pairs, with all objects that they need.

use crate::bed::Bed;
use crate::failed::{Failed, Outcome};
use mlx5::transport::{Rc, Uc, Ud};
use mlx5::{
    Access, AddressHandle, CompletionQueue, ConnectOptions, Connected, Context, CqeCompression,
    DoorbellChoice, Endpoint, ListTransport, LocalPort, MemoryRegion, ProtectionDomain, Psn,
    QueuePair, QueuePairBuilder, QueuePairTransport, ReceiveWr, Timestamps,
};
use std::ops::Range;

/// One option a line: name, type, default.
macro_rules! options {
    ($($(#[$doc:meta])* $name:ident: $type:ty = $default:expr;)*) => {
        /// The options of a pair's ends.
        #[derive(Clone, Copy, Debug)]
        pub(crate) struct PairOptions {
            $($(#[$doc])* pub(crate) $name: $type,)*
        }

        impl Default for PairOptions {
            fn default() -> Self {
                Self { $($name: $default,)* }
            }
        }

        #[allow(dead_code, reason = "each option has its setter")]
        impl PairOptions {
            $($(#[$doc])*
            #[must_use]
            pub(crate) const fn $name(mut self, $name: $type) -> Self {
                self.$name = $name;
                self
            })*
        }
    };
}

/// Every right that a region can give a peer.
pub(crate) const ALL_ACCESS: Access =
    Access::LOCAL_WRITE.union(Access::REMOTE_WRITE).union(Access::REMOTE_READ);

options! {
    /// Send requests.
    send_wr: u32 = 64;
    /// Receive requests.
    recv_wr: u32 = 64;
    /// Gather entries.
    send_sge: u32 = 4;
    /// Scatter entries.
    recv_sge: u32 = 4;
    /// Bytes of inline data.
    inline: u32 = 64;
    /// Entries of each completion queue.
    cq_entries: u32 = 256;
    /// Bytes of each end's memory.
    memory: usize = 64 << 10;
    /// One completion queue for sends and receives.
    one_cq: bool = false;
    /// Both ends in one context.
    one_context: bool = false;
    /// Whether every request is signaled.
    sq_sig_all: bool = false;
    /// Rights of the memory.
    access: Access = ALL_ACCESS;
    /// The doorbell of the queue pairs.
    doorbell: DoorbellChoice = DoorbellChoice::Auto;
    /// Entries of memory keys for whose configuration requests have room.
    mkey_entries: u32 = 0;
    /// Whether the send queue drains on signature errors.
    pipelining: bool = false;
    /// Whether completions are compressed, and the field that those of receives keep.
    compression: Option<CqeCompression> = None;
    /// The unit of timestamps.
    timestamps: Timestamps = Timestamps::Cycles;
    /// Number of completions that the queues count as consumed before (simulated devices only).
    consumed: u32 = 0;
    /// Whether the device ignores overruns.
    ignore_overrun: bool = false;
    /// Whether short messages go into completions.
    scatter_to_cqe: bool = false;
    /// The options of the connection.
    connect: Option<ConnectOptions> = None;
}

impl PairOptions {
    fn connect_options(&self) -> ConnectOptions {
        self.connect.unwrap_or_default()
    }
}

/// The destination of datagrams to the other end.
pub(crate) struct Peer {
    pub(crate) ah: AddressHandle,
    pub(crate) qp_num: u32,
    pub(crate) qkey: u32,
}

/// A queue pair with its completion queues and some memory.
pub(crate) struct End<T: QueuePairTransport> {
    pub(crate) qp: QueuePair<T>,
    pub(crate) send_cq: CompletionQueue,
    /// The completion queue of receives, if it is not that of sends.
    pub(crate) recv_cq: Option<CompletionQueue>,
    pub(crate) mr: MemoryRegion,
    pub(crate) peer: Option<Peer>,
    pub(crate) port: LocalPort,
    pub(crate) psn: Psn,
    pub(crate) pd: ProtectionDomain,
    pub(crate) context: Context,
}

impl<T: QueuePairTransport> End<T> {
    /// The completion queue of receives.
    pub(crate) fn recv_cq(&mut self) -> &mut CompletionQueue {
        self.recv_cq.as_mut().unwrap_or(&mut self.send_cq)
    }

    /// Posts a receive into a part of the memory.
    #[track_caller]
    pub(crate) fn recv(&mut self, wr_id: u64, range: Range<usize>) {
        let sge = self.mr.sge(range).expect("inside the memory");
        self.qp.post_recv(&[ReceiveWr { wr_id, sges: &[sge] }]).expect("a receive posted");
    }

    /// The facts about this end that the other side needs.
    pub(crate) fn endpoint(&self, options: &PairOptions) -> Endpoint {
        self.qp.endpoint(&self.port, self.psn, &options.connect_options())
    }
}

/// Two connected ends.
pub(crate) struct Pair<T: QueuePairTransport> {
    pub(crate) a: End<T>,
    pub(crate) b: End<T>,
}

/// A transport whose ends can be connected.
pub(crate) trait Wired: QueuePairTransport + ListTransport + Sized {
    /// Brings `end` to RTS, towards `remote`.
    fn wire(end: &mut End<Self>, remote: &Endpoint, options: &PairOptions) -> Outcome;

    /// Sets the options that only this transport has.
    fn tune<'a>(
        builder: QueuePairBuilder<'a, Self>,
        _: &PairOptions,
    ) -> QueuePairBuilder<'a, Self> {
        builder
    }
}

fn connect<T: Connected>(end: &mut End<T>, remote: &Endpoint, options: &PairOptions) -> Outcome {
    Ok(end.qp.connect(&end.port, end.psn, remote, &options.connect_options())?)
}

impl Wired for Rc {
    fn wire(end: &mut End<Self>, remote: &Endpoint, options: &PairOptions) -> Outcome {
        connect(end, remote, options)
    }

    fn tune<'a>(
        builder: QueuePairBuilder<'a, Self>,
        options: &PairOptions,
    ) -> QueuePairBuilder<'a, Self> {
        let builder = match options.mkey_entries {
            0 => builder,
            entries => builder.mkey_configure(entries, true),
        };
        if options.pipelining { builder.signature_pipelining() } else { builder }
    }
}

impl Wired for Uc {
    fn wire(end: &mut End<Self>, remote: &Endpoint, options: &PairOptions) -> Outcome {
        connect(end, remote, options)
    }
}

impl Wired for Ud {
    fn wire(end: &mut End<Self>, remote: &Endpoint, options: &PairOptions) -> Outcome {
        let connect = options.connect_options();
        end.qp.activate(&end.port, end.psn, &connect)?;
        end.peer = Some(Peer {
            ah: end.pd.create_ah_to(&end.port, remote, &connect)?,
            qp_num: remote.qp_num.get(),
            qkey: remote.qkey.ok_or("a datagram endpoint without a Q_Key")?,
        });
        Ok(())
    }
}

impl Bed {
    /// A queue pair in RESET with completion queues and memory, in a context of its own.
    pub(crate) fn end<T: Wired>(&self, options: &PairOptions) -> Result<End<T>, Failed> {
        self.end_in(&self.context(), options)
    }

    /// The same, in an existing context.
    pub(crate) fn end_in<T: Wired>(
        &self,
        context: &Context,
        options: &PairOptions,
    ) -> Result<End<T>, Failed> {
        self.end_at(context, self.port(), options)
    }

    /// The same, on a port of that context's device.
    fn end_at<T: Wired>(
        &self,
        context: &Context,
        port: u8,
        options: &PairOptions,
    ) -> Result<End<T>, Failed> {
        let cq = || -> Result<_, Failed> {
            let mut cq = context
                .create_cq(options.cq_entries)
                .cqe_size(self.cqe_size())
                .timestamps(options.timestamps)
                .ignore_overrun(options.ignore_overrun)
                .consumed(options.consumed);
            if let Some(format) = options.compression {
                cq = cq.compression(format);
            }
            let cq = cq.build()?;
            self.count_on(&cq, options.consumed);
            Ok(cq)
        };
        let pd = context.alloc_pd()?;
        let mr = pd.memory(options.memory).access(options.access).register()?;
        let send_cq = cq()?;
        let recv_cq = if options.one_cq { None } else { Some(cq()?) };
        let builder = pd
            .create_qp::<T>(&send_cq, recv_cq.as_ref().unwrap_or(&send_cq))
            .max_send_wr(options.send_wr)
            .max_recv_wr(options.recv_wr)
            .max_send_sge(options.send_sge)
            .max_recv_sge(options.recv_sge)
            .max_inline_data(options.inline)
            .signal_all(options.sq_sig_all)
            .scatter_to_cqe(options.scatter_to_cqe)
            .doorbell(options.doorbell);
        let qp = T::tune(builder, options).build()?;
        // Near the wrap of the 24-bit sequence number, so that it wraps early.
        let psn = Psn::wrapping(0xff_ff00 ^ qp.qp_num());
        let port = context.local_port(port, None)?;
        let context = context.clone();
        Ok(End { qp, send_cq, recv_cq, mr, peer: None, port, psn, pd, context })
    }

    /// Two connected ends, in RTS.
    pub(crate) fn pair<T: Wired>(&self, options: &PairOptions) -> Result<Pair<T>, Failed> {
        let mut a = self.end(options)?;
        let mut b = match options.one_context {
            true => self.end_in(&a.context, options)?,
            false => {
                let other = self.other();
                self.end_at(&other.device.open()?, other.port, options)?
            }
        };
        connect_ends(&mut a, &mut b, options)?;
        Ok(Pair { a, b })
    }
}

/// Connects two ends.
pub(crate) fn connect_ends<T: Wired>(
    a: &mut End<T>,
    b: &mut End<T>,
    options: &PairOptions,
) -> Outcome {
    let (at_a, at_b) = (a.endpoint(options), b.endpoint(options));
    T::wire(a, &at_b, options)?;
    T::wire(b, &at_a, options)
}
