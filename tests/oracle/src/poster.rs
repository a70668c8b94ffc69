//! The requests of the script, in the form of this provider's interfaces.

use mlx5::transport::{Rc, Uc, Ud};
use mlx5::{
    AddressHandle, Batch, Data, ListTransport, QpAttributes, QueuePair, QueuePairTransport,
    ReceiveWr, RemoteAddress, SendFlags, SendWr, Sge, UdAddress,
};

use crate::event::Outcome;
use crate::script::{Entry, Operation, Payload, Request};

/// A list of entries.
pub(crate) fn sges(list: &[Entry]) -> Vec<Sge> {
    list.iter().map(|&Entry { addr, length, lkey }| Sge { addr, length, lkey }).collect()
}

fn flags(letters: &str) -> SendFlags {
    let flag = |letter| match letter {
        'S' => SendFlags::SIGNALED,
        'O' => SendFlags::SOLICITED,
        'F' => SendFlags::FENCE,
        _ => SendFlags::empty(),
    };
    letters.chars().map(flag).collect()
}

/// The bytes of a request's inline data.
fn message(request: &Request) -> Vec<u8> {
    let Payload::Inline(pieces) = &request.payload else { return Vec::new() };
    let length = pieces.iter().sum::<u32>() as u64;
    (0..length).map(|n| (n * 7 + request.wr_id) as u8).collect()
}

/// The pieces of a message.
fn parts<'a>(request: &Request, message: &'a [u8]) -> Vec<&'a [u8]> {
    let Payload::Inline(pieces) = &request.payload else { return Vec::new() };
    let mut rest = message;
    let mut take = |length: &u32| {
        let (piece, behind) = rest.split_at(*length as usize);
        rest = behind;
        piece
    };
    pieces.iter().map(&mut take).collect()
}

/// The data of a request, in this provider's terms.
pub(crate) enum Own<'a> {
    Sges(Vec<Sge>),
    Inline(Vec<&'a [u8]>),
}

impl<'a> Own<'a> {
    fn new(request: &Request, message: &'a [u8]) -> Self {
        match &request.payload {
            Payload::Sges(list) => Self::Sges(sges(list)),
            Payload::Inline(_) => Self::Inline(parts(request, message)),
        }
    }
}

/// Sets the data of a request that may have it inline.
macro_rules! set {
    ($request:expr, $data:expr) => {
        match $data {
            Own::Sges(list) => set!(@sges $request, list),
            Own::Inline(pieces) => match &pieces[..] {
                [bytes] => $request.inline_data(bytes),
                pieces => $request.inline_data_list(pieces),
            },
        }
    };
    (@sges $request:expr, $list:expr) => {
        match &$list[..] {
            [sge] => $request.sge(*sge),
            list => $request.sge_list(list),
        }
    };
}

/// A transport whose requests can be built from the script's.
pub(crate) trait Build: QueuePairTransport + ListTransport + Sized {
    fn build(batch: &mut Batch<'_, Self>, request: &Request, data: &Own<'_>, ahs: &[AddressHandle]);
}

macro_rules! connected {
    ($($transport:ident: $read:expr;)*) => { $(
        impl Build for $transport {
            fn build(
                batch: &mut Batch<'_, Self>,
                request: &Request,
                data: &Own<'_>,
                _: &[AddressHandle],
            ) {
                let remote = RemoteAddress { addr: request.address, rkey: request.rkey };
                let immediate = request.immediate.to_be_bytes();
                let read: fn(&mut Batch<'_, Self>, &Request, &Own<'_>) = $read;
                if request.operation == Operation::RdmaRead {
                    return read(batch, request, data);
                }
                let wr = batch.wr(request.wr_id, flags(&request.flags));
                match request.operation {
                    Operation::Send => set!(wr.send(), data),
                    Operation::SendImm => set!(wr.send_imm(immediate), data),
                    Operation::RdmaWrite => set!(wr.rdma_write(remote), data),
                    _ => set!(wr.rdma_write_imm(remote, immediate), data),
                }
            }
        }
    )* };
}

connected! {
    Rc: |batch, request, data| {
        let remote = RemoteAddress { addr: request.address, rkey: request.rkey };
        let wr = batch.wr(request.wr_id, flags(&request.flags)).rdma_read(remote);
        match data {
            Own::Sges(list) => set!(@sges wr, list),
            Own::Inline(_) => panic!("the builder has no inline reads"),
        }
    };
    Uc: |_, _, _| panic!("the transport has no reads");
}

impl Build for Ud {
    fn build(
        batch: &mut Batch<'_, Self>,
        request: &Request,
        data: &Own<'_>,
        ahs: &[AddressHandle],
    ) {
        let wr = batch.wr(request.wr_id, flags(&request.flags));
        let vector = ahs[request.ah].vector();
        let immediate = request.immediate.to_be_bytes();
        match request.operation {
            Operation::Send => {
                set!(wr.send().ud_addr(vector, request.qpn, request.qkey), data);
            }
            Operation::SendImm => {
                set!(wr.send_imm(immediate).ud_addr(vector, request.qpn, request.qkey), data);
            }
            _ => panic!("the transport has no remote memory"),
        }
    }
}

/// A queue pair of any transport.
pub(crate) trait Poster {
    /// Posts a list. Returns the request at which the queue refused it, if any.
    fn post(&mut self, list: &[Request], builder: bool, ahs: &[AddressHandle]) -> Outcome;
    fn post_recv(&mut self, list: &[ReceiveWr<'_>]) -> Outcome;
    fn modify(&mut self, attributes: &QpAttributes) -> Result<(), mlx5::Error>;
    fn qp_num(&self) -> u32;
}

impl<T: Build> Poster for QueuePair<T> {
    fn post(&mut self, list: &[Request], builder: bool, ahs: &[AddressHandle]) -> Outcome {
        let messages: Vec<_> = list.iter().map(message).collect();
        let data: Vec<_> = list
            .iter()
            .zip(&messages)
            .map(|(request, message)| Own::new(request, message))
            .collect();
        if builder {
            let mut batch = self.wr_start();
            for (request, data) in list.iter().zip(&data) {
                T::build(&mut batch, request, data, ahs);
            }
            // A refused batch posts none of its requests.
            return batch.complete().map_or(Outcome::Refused(0), |()| Outcome::Posted);
        }
        let wrs: Vec<_> = list
            .iter()
            .zip(&data)
            .map(|(request, data)| {
                let remote = RemoteAddress { addr: request.address, rkey: request.rkey };
                let immediate = request.immediate.to_be_bytes();
                SendWr {
                    wr_id: request.wr_id,
                    flags: flags(&request.flags),
                    operation: match request.operation {
                        Operation::Send => mlx5::Operation::Send,
                        Operation::SendImm => mlx5::Operation::SendImm(immediate),
                        Operation::RdmaWrite => mlx5::Operation::RdmaWrite(remote),
                        Operation::RdmaWriteImm => mlx5::Operation::RdmaWriteImm(remote, immediate),
                        Operation::RdmaRead => mlx5::Operation::RdmaRead(remote),
                    },
                    data: match data {
                        Own::Sges(list) => Data::Sges(list),
                        Own::Inline(pieces) => Data::Inline(pieces),
                    },
                    address: ahs.get(request.ah).map(|ah| UdAddress {
                        vector: ah.vector(),
                        qp_num: request.qpn,
                        qkey: request.qkey,
                    }),
                    ..SendWr::default()
                }
            })
            .collect();
        self.post_send(&wrs)
            .map_or_else(|error| Outcome::Refused(error.index()), |()| Outcome::Posted)
    }

    fn post_recv(&mut self, list: &[ReceiveWr<'_>]) -> Outcome {
        self.post_recv(list)
            .map_or_else(|error| Outcome::Refused(error.index()), |()| Outcome::Posted)
    }

    fn modify(&mut self, attributes: &QpAttributes) -> Result<(), mlx5::Error> {
        self.modify(attributes)
    }

    fn qp_num(&self) -> u32 {
        self.qp_num()
    }
}
