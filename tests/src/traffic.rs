//! Requests of every kind, in both forms.

use crate::pair::{End, Wired};
use mlx5::transport::{Rc, Uc, Ud};
use mlx5::{
    CompletionOpcode, Data, Operation, PostError, RemoteAddress, SendFlags, SendWr, UdAddress,
};

/// The form in which requests are posted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    /// The typed builder.
    Typed,
    /// The list.
    List,
}

impl Form {
    pub(crate) const ALL: [Self; 2] = [Self::Typed, Self::List];
}

/// An operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Op {
    Send,
    SendImm,
    Write,
    WriteImm,
    Read,
}

impl Op {
    /// Whether it takes a receive request at the other side.
    pub(crate) const fn is_received(self) -> bool {
        matches!(self, Self::Send | Self::SendImm | Self::WriteImm)
    }

    /// Whether it carries immediate data.
    pub(crate) const fn has_immediate(self) -> bool {
        matches!(self, Self::SendImm | Self::WriteImm)
    }

    /// The opcode of its completion at the requester.
    pub(crate) const fn completion(self) -> CompletionOpcode {
        match self {
            Self::Send | Self::SendImm => CompletionOpcode::Send,
            Self::Write | Self::WriteImm => CompletionOpcode::RdmaWrite,
            Self::Read => CompletionOpcode::RdmaRead,
        }
    }

    /// The opcode of its completion at the receiver.
    pub(crate) const fn received(self) -> CompletionOpcode {
        match self {
            Self::WriteImm => CompletionOpcode::ReceiveRdmaWithImm,
            _ => CompletionOpcode::Receive,
        }
    }
}

/// A request to post.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Post<'a> {
    pub(crate) op: Op,
    pub(crate) wr_id: u64,
    pub(crate) flags: SendFlags,
    pub(crate) data: Data<'a>,
    pub(crate) remote: RemoteAddress,
    pub(crate) immediate: [u8; 4],
}

impl<'a> Post<'a> {
    /// A signaled request.
    pub(crate) const fn new(op: Op, wr_id: u64, data: Data<'a>) -> Self {
        Self {
            op,
            wr_id,
            flags: SendFlags::SIGNALED,
            data,
            remote: RemoteAddress { addr: 0, rkey: 0 },
            immediate: [0; 4],
        }
    }

    pub(crate) const fn flags(self, flags: SendFlags) -> Self {
        Self { flags, ..self }
    }

    pub(crate) const fn remote(self, remote: RemoteAddress) -> Self {
        Self { remote, ..self }
    }

    pub(crate) const fn immediate(self, immediate: [u8; 4]) -> Self {
        Self { immediate, ..self }
    }

    const fn operation(&self) -> Operation {
        match self.op {
            Op::Send => Operation::Send,
            Op::SendImm => Operation::SendImm(self.immediate),
            Op::Write => Operation::RdmaWrite(self.remote),
            Op::WriteImm => Operation::RdmaWriteImm(self.remote, self.immediate),
            Op::Read => Operation::RdmaRead(self.remote),
        }
    }
}

/// A transport over which cases send.
pub(crate) trait Traffic: Wired {
    /// Its operations.
    const OPS: &'static [Op];
    /// Bytes before the message in a receive buffer.
    const GRH: usize = 0;

    /// Posts in the typed form.
    fn typed(end: &mut End<Self>, posts: &[Post<'_>]) -> Result<(), PostError>;
}

macro_rules! set_data {
    ($request:expr, $data:expr) => {
        match $data {
            Data::Sges(&[sge]) => $request.sge(sge),
            Data::Sges(sges) => $request.sge_list(sges),
            Data::Inline(&[bytes]) => $request.inline_data(bytes),
            Data::Inline(pieces) => $request.inline_data_list(pieces),
            Data::InlineAt(pieces) => $request.inline_data_at(pieces),
            // A raw WQE has its own operation, so no typed request can take it as data: the cases
            // of raw WQEs do not call this.
            Data::Wqe(_) | Data::Segmented(_) => {
                unreachable!("not the data of a typed request")
            }
        }
    };
}

pub(crate) use set_data;

macro_rules! connected {
    ($transport:ident: $($op:ident)* $(, $read:ident)?) => {
        impl Traffic for $transport {
            const OPS: &'static [Op] = &[$(Op::$op,)* $(Op::$read)?];

            fn typed(end: &mut End<Self>, posts: &[Post<'_>]) -> Result<(), PostError> {
                let mut batch = end.qp.wr_start();
                for post in posts {
                    let wr = batch.wr(post.wr_id, post.flags);
                    let (to, immediate) = (post.remote, post.immediate);
                    match post.op {
                        Op::Send => set_data!(wr.send(), post.data),
                        Op::SendImm => set_data!(wr.send_imm(immediate), post.data),
                        Op::Write => set_data!(wr.rdma_write(to), post.data),
                        Op::WriteImm => set_data!(wr.rdma_write_imm(to, immediate), post.data),
                        $(Op::$read => match post.data {
                            Data::Sges(&[sge]) => wr.rdma_read(to).sge(sge),
                            Data::Sges(sges) => wr.rdma_read(to).sge_list(sges),
                            Data::Inline(_) | Data::InlineAt(_) | Data::Wqe(_) | Data::Segmented(_) => panic!("does not compile in the typed form"),
                        },)?
                        #[allow(unreachable_patterns, reason = "not every transport has every operation")]
                        op => panic!("{op:?} does not compile in the typed form"),
                    }
                }
                batch.complete().map_err(|refused| refused.error())
            }
        }
    };
}

connected!(Rc: Send SendImm Write WriteImm, Read);
connected!(Uc: Send SendImm Write WriteImm);

impl Traffic for Ud {
    const OPS: &'static [Op] = &[Op::Send, Op::SendImm];
    const GRH: usize = 40;

    fn typed(end: &mut End<Self>, posts: &[Post<'_>]) -> Result<(), PostError> {
        let peer = end.peer.as_ref().expect("a datagram end has a peer");
        let (to, qp_num, qkey) = (peer.ah.vector(), peer.qp_num, peer.qkey);
        let mut batch = end.qp.wr_start();
        for post in posts {
            let wr = batch.wr(post.wr_id, post.flags);
            match post.op {
                Op::Send => set_data!(wr.send().ud_addr(to, qp_num, qkey), post.data),
                Op::SendImm => {
                    set_data!(wr.send_imm(post.immediate).ud_addr(to, qp_num, qkey), post.data);
                }
                op => panic!("{op:?} does not compile in the typed form"),
            }
        }
        batch.complete().map_err(|refused| refused.error())
    }
}

impl<T: Traffic> End<T> {
    /// Posts requests as one batch or as one list.
    pub(crate) fn post_all(&mut self, form: Form, posts: &[Post<'_>]) -> Result<(), PostError> {
        if form == Form::Typed {
            return T::typed(self, posts);
        }
        let address = self.peer.as_ref().map(|peer| UdAddress {
            vector: peer.ah.vector(),
            qp_num: peer.qp_num,
            qkey: peer.qkey,
        });
        let list: Vec<_> = posts
            .iter()
            .map(|post| SendWr {
                wr_id: post.wr_id,
                flags: post.flags,
                operation: post.operation(),
                data: post.data,
                address,
                ..SendWr::default()
            })
            .collect();
        self.qp.post_send(&list).map_err(|refused| refused.error())
    }

    /// Posts one request.
    pub(crate) fn post(&mut self, form: Form, post: Post<'_>) -> Result<(), PostError> {
        self.post_all(form, &[post])
    }
}
