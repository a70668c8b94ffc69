//! The script that both sides run.
//!
//! One command a line; numbers are hexadecimal. The answers of a side are in parentheses.
//!
//! | command | meaning |
//! |---|---|
//! | `queue NAME TRANSPORT API` | opens the device for a new queue pair (`queue NAME`, then every call) |
//! | `cq ENTRIES VECTOR` | its completion queue |
//! | `mr BYTES ACCESS` | registers memory |
//! | `ah DLID SL BITS RATE GLOBAL GID FLOW SGID HOPS CLASS` | a path; on UD an address handle, too |
//! | `srq REQUESTS ENTRIES` | a shared receive queue (`srq REQUESTS ENTRIES`, as granted) |
//! | `qp BLOCKS RECEIVES SEND-SGES RECV-SGES INLINE SIGNAL-ALL` | makes it (`made QPN BLOCKS RECEIVES STRIDE`) |
//! | `init PORT PKEY ACCESS QKEY`, `rtr MTU DEST PSN READS RNR PATH`, `rts PSN TIMEOUT RETRY RNR READS` | changes its state |
//! | `filler REQUEST` | what `fill` posts |
//! | `post LABEL COUNT`, then `wr REQUEST` | posts a list (`post`, `result`, `record`, `register`, `wqe`…) |
//! | `drain` | the last request completes |
//! | `fill COUNT TIMES` | posts `COUNT` fillers `TIMES` times, and lets them complete |
//! | `overfull` | posts fillers until one is refused (`overfull`, `ring`) |
//! | `recv LABEL COUNT`, then `rwr WR-ID SGES` | posts receives (`recv`, `result`, `record`, `rwqe`…) |
//! | `rdrain`, `rfill COUNT TIMES` | as for sends |
//! | `srecv LABEL COUNT`, then `rwr` | posts to the shared receive queue (`srecv`, …, `swqe`…) |
//! | `sdrain COUNT WHICH…` | the outstanding ones named complete, one after the other |
//!
//! `REQUEST` is `WR-ID OPERATION FLAGS IMMEDIATE ADDRESS RKEY AH QPN QKEY` and then the data: `sges
//! COUNT` with `ADDRESS LENGTH LKEY` each, or `inline PIECES` with a length each; byte `n` of
//! inline data is `7 n + WR-ID`. Keys and addresses are only numbers: no device executes the
//! requests.

use std::fmt;
use std::str::FromStr;

/// Defines an enum with the names of its variants in the script.
macro_rules! names {
    ($(#[$doc:meta])* $type:ident { $($name:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(crate) enum $type { $($name,)* }

        impl FromStr for $type {
            type Err = ();

            fn from_str(text: &str) -> Result<Self, ()> {
                match text { $($text => Ok(Self::$name),)* _ => Err(()) }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Self::$name => $text,)* })
            }
        }
    };
}

names! {
    /// Transports.
    Transport { Rc = "rc", Uc = "uc", Ud = "ud", }
}

names! {
    /// Operations.
    Operation {
        Send = "send",
        SendImm = "send_imm",
        RdmaWrite = "rdma_write",
        RdmaWriteImm = "rdma_write_imm",
        RdmaRead = "rdma_read",
    }
}

impl Operation {
    /// Whether it names memory at the other side.
    pub(crate) fn is_rdma(self) -> bool {
        !matches!(self, Self::Send | Self::SendImm)
    }
}

/// The data of a request: the lengths of its entries, or of its inline pieces.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    Sges(Vec<u32>),
    Inline(Vec<u32>),
}

/// An entry of a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    pub(crate) addr: u64,
    pub(crate) length: u32,
    pub(crate) lkey: u32,
}

/// The data of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Payload {
    Sges(Vec<Entry>),
    Inline(Vec<u32>),
}

/// A send request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Request {
    pub(crate) wr_id: u64,
    pub(crate) operation: Operation,
    /// Letters, or `-`.
    pub(crate) flags: String,
    pub(crate) immediate: u32,
    pub(crate) address: u64,
    pub(crate) rkey: u32,
    pub(crate) ah: usize,
    pub(crate) qpn: u32,
    pub(crate) qkey: u32,
    pub(crate) payload: Payload,
}

/// A receive request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Receive {
    pub(crate) wr_id: u64,
    pub(crate) entries: Vec<Entry>,
}

/// A path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Path {
    pub(crate) dlid: u16,
    pub(crate) sl: u8,
    pub(crate) bits: u8,
    pub(crate) rate: u8,
    pub(crate) global: bool,
    pub(crate) gid: [u8; 16],
    pub(crate) flow: u32,
    pub(crate) sgid: u8,
    pub(crate) hop: u8,
    pub(crate) tclass: u8,
}

/// The sizes of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sizes {
    pub(crate) blocks: u32,
    pub(crate) receives: u32,
    pub(crate) send_sges: u32,
    pub(crate) recv_sges: u32,
    pub(crate) inline: u32,
    pub(crate) signal_all: bool,
}

/// To INIT.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Init {
    pub(crate) port: u8,
    pub(crate) pkey: u16,
    pub(crate) access: u32,
    pub(crate) qkey: u32,
}

/// To RTR.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Rtr {
    pub(crate) mtu: u8,
    pub(crate) dest: u32,
    pub(crate) psn: u32,
    pub(crate) reads: u8,
    pub(crate) rnr: u8,
    pub(crate) path: usize,
}

/// To RTS.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Rts {
    pub(crate) psn: u32,
    pub(crate) timeout: u8,
    pub(crate) retry: u8,
    pub(crate) rnr: u8,
    pub(crate) reads: u8,
}

/// A command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Command {
    Queue { name: String, transport: Transport, builder: bool, shared_door: bool },
    Cq { entries: u32, vector: u32 },
    Mr { bytes: usize, access: u32 },
    Ah(Path),
    Srq { requests: u32, entries: u32 },
    Qp(Sizes),
    Init(Init),
    Rtr(Rtr),
    Rts(Rts),
    Filler(Request),
    Post(String, Vec<Request>),
    Drain,
    Fill { count: u32, times: u32 },
    Overfull,
    Recv(String, Vec<Receive>),
    ReceiveDrain,
    ReceiveFill { count: u32, times: u32 },
    SharedRecv(String, Vec<Receive>),
    SharedDrain(Vec<usize>),
}

fn entries(f: &mut fmt::Formatter<'_>, list: &[Entry]) -> fmt::Result {
    write!(f, "{:x}", list.len())?;
    list.iter()
        .try_for_each(|Entry { addr, length, lkey }| write!(f, " {addr:x} {length:x} {lkey:x}"))
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { wr_id, operation, flags, immediate, address, rkey, ah, qpn, qkey, payload } =
            self;
        write!(f, "{wr_id:x} {operation} {flags} {immediate:x} {address:x} {rkey:x} ")?;
        write!(f, "{ah:x} {qpn:x} {qkey:x} ")?;
        match payload {
            Payload::Sges(list) => {
                f.write_str("sges ")?;
                entries(f, list)
            }
            Payload::Inline(list) => {
                write!(f, "inline {:x}", list.len())?;
                list.iter().try_for_each(|length| write!(f, " {length:x}"))
            }
        }
    }
}

fn receives(f: &mut fmt::Formatter<'_>, kind: &str, label: &str, list: &[Receive]) -> fmt::Result {
    write!(f, "{kind} {label} {:x}", list.len())?;
    list.iter().try_for_each(|receive| {
        write!(f, "\nrwr {:x} ", receive.wr_id)?;
        entries(f, &receive.entries)
    })
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Queue { name, transport, builder, .. } => {
                write!(f, "queue {name} {transport} {}", if *builder { "builder" } else { "list" })
            }
            Self::Cq { entries, vector } => write!(f, "cq {entries:x} {vector:x}"),
            Self::Mr { bytes, access } => write!(f, "mr {bytes:x} {access:x}"),
            Self::Ah(path) => {
                let Path { dlid, sl, bits, rate, global, gid, flow, sgid, hop, tclass } = path;
                let gid = u128::from_be_bytes(*gid);
                write!(f, "ah {dlid:x} {sl:x} {bits:x} {rate:x} {:x} ", u8::from(*global))?;
                write!(f, "{gid:032x} {flow:x} {sgid:x} {hop:x} {tclass:x}")
            }
            Self::Srq { requests, entries } => write!(f, "srq {requests:x} {entries:x}"),
            Self::Qp(sizes) => {
                let Sizes { blocks, receives, send_sges, recv_sges, inline, signal_all } = sizes;
                write!(f, "qp {blocks:x} {receives:x} {send_sges:x} {recv_sges:x} {inline:x} ")?;
                write!(f, "{:x}", u8::from(*signal_all))
            }
            Self::Init(Init { port, pkey, access, qkey }) => {
                write!(f, "init {port:x} {pkey:x} {access:x} {qkey:x}")
            }
            Self::Rtr(Rtr { mtu, dest, psn, reads, rnr, path }) => {
                write!(f, "rtr {mtu:x} {dest:x} {psn:x} {reads:x} {rnr:x} {path:x}")
            }
            Self::Rts(Rts { psn, timeout, retry, rnr, reads }) => {
                write!(f, "rts {psn:x} {timeout:x} {retry:x} {rnr:x} {reads:x}")
            }
            Self::Filler(request) => write!(f, "filler {request}"),
            Self::Post(label, list) => {
                write!(f, "post {label} {:x}", list.len())?;
                list.iter().try_for_each(|request| write!(f, "\nwr {request}"))
            }
            Self::Drain => f.write_str("drain"),
            Self::Fill { count, times } => write!(f, "fill {count:x} {times:x}"),
            Self::Overfull => f.write_str("overfull"),
            Self::Recv(label, list) => receives(f, "recv", label, list),
            Self::ReceiveDrain => f.write_str("rdrain"),
            Self::ReceiveFill { count, times } => write!(f, "rfill {count:x} {times:x}"),
            Self::SharedRecv(label, list) => receives(f, "srecv", label, list),
            Self::SharedDrain(list) => {
                write!(f, "sdrain {:x}", list.len())?;
                list.iter().try_for_each(|which| write!(f, " {which:x}"))
            }
        }
    }
}
