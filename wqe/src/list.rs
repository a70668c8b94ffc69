//! The list form (`ibv_post_send`): operations chosen at run time.

use crate::batch::Batch;
use crate::error::{BatchError, ListError, PostError};
use crate::operation::SendFlags;
use crate::segment::Datagram;
use crate::send::SendQueue;
use crate::sge::{RemoteAddress, Sge};
use crate::transport::{Rc, Transport, Uc, Ud};

/// What a request of the list form does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Operation {
    /// Send.
    Send,
    /// Send with immediate data.
    SendImm([u8; 4]),
    /// RDMA write.
    RdmaWrite(RemoteAddress),
    /// RDMA write with immediate data.
    RdmaWriteImm(RemoteAddress, [u8; 4]),
    /// RDMA read.
    RdmaRead(RemoteAddress),
}

/// The data of a request.
#[derive(Clone, Copy, Debug)]
pub enum Data<'a> {
    /// Pieces of local memory, one after the other.
    Sges(&'a [Sge]),
    /// Bytes that are copied into the request (`IBV_SEND_INLINE`), from several places.
    Inline(&'a [&'a [u8]]),
}

/// A request of the list form (`struct ibv_send_wr`).
#[derive(Clone, Copy, Debug)]
pub struct SendWr<'a> {
    /// Comes back with the completion.
    pub wr_id: u64,
    /// Flags.
    pub flags: SendFlags,
    /// What is to be done.
    pub operation: Operation,
    /// With what.
    pub data: Data<'a>,
    /// For whom; needed on datagram queue pairs, not looked at on others.
    pub address: Option<Datagram<'a>>,
}

/// A transport whose requests can be posted in the list form.
pub trait ListTransport: Transport {
    /// Adds `wr` to `batch`; an error is latched there.
    #[doc(hidden)]
    fn push(batch: &mut Batch<'_, Self>, wr: &SendWr<'_>)
    where
        Self: Sized;
}

/// Sets the data of a request in the typed form.
macro_rules! set_data {
    ($request:expr, $data:expr) => {
        match $data {
            Data::Sges(&[sge]) => $request.sge(sge),
            Data::Sges(sges) => $request.sge_list(sges),
            Data::Inline(&[bytes]) => $request.inline_data(bytes),
            Data::Inline(pieces) => $request.inline_data_list(pieces),
        }
    };
}

macro_rules! connected {
    ($($transport:ident $([$read:ident])?),+) => {$(
        impl ListTransport for $transport {
            #[inline(always)]
            fn push(batch: &mut Batch<'_, Self>, wr: &SendWr<'_>) {
                let request = batch.wr(wr.wr_id, wr.flags);
                match wr.operation {
                    Operation::Send => set_data!(request.send(), wr.data),
                    Operation::SendImm(imm) => set_data!(request.send_imm(imm), wr.data),
                    Operation::RdmaWrite(to) => set_data!(request.rdma_write(to), wr.data),
                    Operation::RdmaWriteImm(to, imm) => {
                        set_data!(request.rdma_write_imm(to, imm), wr.data)
                    }
                    $(Operation::RdmaRead(from) => match wr.data {
                        Data::Sges(&[sge]) => request.$read(from).sge(sge),
                        Data::Sges(sges) => request.$read(from).sge_list(sges),
                        Data::Inline(_) => batch.refuse(PostError::InlineNotAllowed),
                    },)?
                    #[allow(unreachable_patterns, reason = "a transport with every operation has none left")]
                    _ => batch.refuse(PostError::Unsupported),
                }
            }
        }
    )+};
}

connected!(Rc[rdma_read], Uc);

impl ListTransport for Ud {
    #[inline(always)]
    fn push(batch: &mut Batch<'_, Self>, wr: &SendWr<'_>) {
        let Some(Datagram { vector, qp_num, qkey }) = wr.address else {
            return batch.refuse(PostError::AddressMissing);
        };
        let request = batch.wr(wr.wr_id, wr.flags);
        match wr.operation {
            Operation::Send => set_data!(request.send().ud_addr(vector, qp_num, qkey), wr.data),
            Operation::SendImm(imm) => {
                set_data!(request.send_imm(imm).ud_addr(vector, qp_num, qkey), wr.data)
            }
            _ => batch.refuse(PostError::Unsupported),
        }
    }
}

impl<T: ListTransport> SendQueue<T> {
    /// Posts a list of requests (`ibv_post_send`). What comes before the first bad one is posted,
    /// with one doorbell; the error says which one that is, and what is wrong with it.
    #[inline]
    pub fn post_send(&mut self, list: &[SendWr<'_>]) -> Result<(), ListError> {
        // What a batch that was leaked was refused for is not this list's fault.
        self.abort();
        let mut batch = self.wr_start();
        for wr in list {
            T::push(&mut batch, wr);
            if let Some(BatchError { index, error }) = batch.error() {
                batch.complete_good().map_err(ListError::from)?;
                return Err(ListError { index, error });
            }
        }
        batch.complete().map_err(ListError::from)
    }
}
