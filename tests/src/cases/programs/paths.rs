//! The two ends of a program, for each transport.

use crate::cases::extended::sending_end;
use crate::pair::{Peer, connect_ends};
use crate::prelude::*;
use crate::traffic::set_data;
use mlx5::transport::XrcSend;
use mlx5::{
    Batch, ConnectOptions, Data, ListTransport, LocalPort, Psn, QueuePairTransport,
    SharedReceiveQueue, UdAddress, XrcDomain, XrcTarget,
};
use std::ops::Range;

/// Bytes of a receive.
pub(super) const SLOT: usize = 256;
/// Receives that wait at the same time.
pub(super) const SLOTS: u32 = 256;

fn options(inline: usize) -> PairOptions {
    PairOptions::default().send_wr(5).inline(inline as u32).recv_wr(SLOTS).cq_entries(512)
}

fn reset() -> QpAttributes {
    QpAttributes::new().qp_state(QueueState::Reset)
}

fn entry<'a>((wr_id, flags, data): Message<'a>) -> SendWr<'a> {
    SendWr { wr_id, flags, operation: mlx5::Operation::Send, data, ..SendWr::default() }
}

/// The receiving side of a program.
pub(super) trait Receiver<T: QueuePairTransport> {
    fn recv(&mut self, wr_id: u64, range: Range<usize>);

    fn completions(&mut self) -> &mut CompletionQueue;

    fn memory(&self) -> &MemoryRegion;

    /// Resets this side and connects both again. Returns whether waiting receives survive that.
    fn start_over(&mut self, sender: &mut End<T>) -> Result<bool, Failed>;
}

/// A request's identifier, its flags and its data.
pub(super) type Message<'a> = (u64, SendFlags, Data<'a>);

/// A transport that programs run over.
pub(super) trait Path: QueuePairTransport + ListTransport + Sized {
    type Receiver: Receiver<Self>;
    /// The destination that each request names.
    type To;

    /// Bytes before the message in a receive.
    const GRH: usize = 0;
    /// Units of a request between its control segment and its data.
    const UNITS: usize = 0;

    /// Two connected ends, the first of which has room for `inline` bytes of inline data.
    fn ends(bed: &Bed, inline: usize) -> Result<Ends<Self>, Failed>;

    /// Adds a SEND to a batch.
    fn send(batch: &mut Batch<'_, Self>, to: &Self::To, message: Message<'_>);

    /// The same as an entry of a list.
    fn entry<'a>(to: &'a Self::To, message: Message<'a>) -> SendWr<'a>;
}

/// The ends of a program.
pub(super) struct Ends<T: Path> {
    pub(super) near: End<T>,
    pub(super) far: T::Receiver,
    pub(super) to: T::To,
}

impl<T: Wired> Receiver<T> for End<T> {
    fn recv(&mut self, wr_id: u64, range: Range<usize>) {
        End::recv(self, wr_id, range);
    }

    fn completions(&mut self) -> &mut CompletionQueue {
        self.recv_cq()
    }

    fn memory(&self) -> &MemoryRegion {
        &self.mr
    }

    fn start_over(&mut self, sender: &mut End<T>) -> Result<bool, Failed> {
        self.qp.modify(&reset())?;
        connect_ends(sender, self, &PairOptions::default())?;
        Ok(false)
    }
}

macro_rules! connected {
    ($($transport:ident)+) => {$(
        impl Path for $transport {
            type Receiver = End<Self>;
            type To = ();

            fn ends(bed: &Bed, inline: usize) -> Result<Ends<Self>, Failed> {
                let Pair { a, b } = bed.pair(&options(inline))?;
                Ok(Ends { near: a, far: b, to: () })
            }

            fn send(batch: &mut Batch<'_, Self>, _: &(), (wr_id, flags, data): Message<'_>) {
                set_data!(batch.wr(wr_id, flags).send(), data);
            }

            fn entry<'a>(_: &(), message: Message<'a>) -> SendWr<'a> {
                entry(message)
            }
        }
    )+};
}

connected!(Rc Uc);

impl Path for Ud {
    type Receiver = End<Self>;
    type To = Peer;
    const GRH: usize = 40;
    const UNITS: usize = 3;

    fn ends(bed: &Bed, inline: usize) -> Result<Ends<Self>, Failed> {
        let Pair { mut a, b } = bed.pair(&options(inline))?;
        let to = a.peer.take().ok_or("a datagram end has a peer")?;
        Ok(Ends { near: a, far: b, to })
    }

    fn send(batch: &mut Batch<'_, Self>, to: &Peer, (wr_id, flags, data): Message<'_>) {
        let wr = batch.wr(wr_id, flags).send();
        set_data!(wr.ud_addr(to.ah.vector(), to.qp_num, to.qkey), data);
    }

    fn entry<'a>(to: &'a Peer, message: Message<'a>) -> SendWr<'a> {
        let Peer { ah, qp_num, qkey } = to;
        let address = UdAddress { vector: ah.vector(), qp_num: *qp_num, qkey: *qkey };
        SendWr { address: Some(address), ..entry(message) }
    }
}

/// The far side of an extended connection.
pub(super) struct Extended {
    target: XrcTarget,
    srq: SharedReceiveQueue,
    cq: CompletionQueue,
    mr: MemoryRegion,
    port: LocalPort,
    _domain: XrcDomain,
}

impl Extended {
    fn connect(&mut self, sender: &mut End<XrcSend>) -> Outcome {
        let (options, connect) = (PairOptions::default(), ConnectOptions::default());
        let psn = Psn::wrapping(0xff_fff0);
        let at_sender = sender.endpoint(&options);
        let here = self.target.endpoint(&self.port, psn, &connect);
        self.target.connect(&self.port, psn, &at_sender, &connect)?;
        Ok(sender.qp.connect(&sender.port, sender.psn, &here, &connect)?)
    }
}

impl Receiver<XrcSend> for Extended {
    fn recv(&mut self, wr_id: u64, range: Range<usize>) {
        let sge = self.mr.sge(range).expect("inside the memory");
        self.srq.post_recv(&[ReceiveWr { wr_id, sges: &[sge] }]).expect("a receive posted");
    }

    fn completions(&mut self) -> &mut CompletionQueue {
        &mut self.cq
    }

    fn memory(&self) -> &MemoryRegion {
        &self.mr
    }

    fn start_over(&mut self, sender: &mut End<XrcSend>) -> Result<bool, Failed> {
        self.target.modify(&reset())?;
        self.connect(sender)?;
        Ok(true)
    }
}

impl Path for XrcSend {
    type Receiver = Extended;
    /// The number of the shared receive queue.
    type To = u32;
    const UNITS: usize = 1;

    fn ends(bed: &Bed, inline: usize) -> Result<Ends<Self>, Failed> {
        let options = options(inline);
        let context = bed.context();
        let domain = context.open_xrcd()?;
        let pd = context.alloc_pd()?;
        let mr = pd.allocate(options.memory)?;
        let cq = context.create_cq(options.cq_entries).build()?;
        let srq = pd.create_srq(SLOTS).xrc(&domain, &cq).build()?;
        let (target, port) = (domain.create_target()?, context.local_port(bed.port(), None)?);
        let to = srq.srqn();
        let mut far = Extended { target, srq, cq, mr, port, _domain: domain };

        let mut near = sending_end(bed, &bed.context(), &options)?;
        far.connect(&mut near)?;
        Ok(Ends { near, far, to })
    }

    fn send(batch: &mut Batch<'_, Self>, to: &u32, (wr_id, flags, data): Message<'_>) {
        set_data!(batch.wr(wr_id, flags).send().xrc_srqn(*to), data);
    }

    fn entry<'a>(to: &u32, message: Message<'a>) -> SendWr<'a> {
        SendWr { xrc_srqn: Some(*to), ..entry(message) }
    }
}
