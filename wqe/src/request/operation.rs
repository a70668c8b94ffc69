//! Operations. One declaration each defines the typed builder, the list form and the sizing of
//! queues.

use crate::request::data::DataKind;
use crate::request::flags::SendFlags;
use crate::request::remote::RemoteAddress;
use crate::request::segment::{Atomic, MaskedAtomic, Segment};
use crate::request::transport::{RawPacket, Rc, Transport, Uc, Ud, XrcSend};
use crate::request::window::{UMR_UNITS, UmrHead};
use mlx5_prm::wqe::{MASKED_ATOMIC_8, Opcode};

/// An operation of a send queue.
pub trait SendOperation {
    /// The opcode in the WQE.
    const OPCODE: Opcode;
    /// The opcode in the record, from which the completion's opcode follows. It distinguishes
    /// operations that share a WQE opcode.
    const RECORD: Opcode;
    /// The opcode's modifier.
    const MODIFIER: u8;
    /// The segment between address and data.
    type Remote: Segment;
    /// The flags that the operation supports.
    const FLAGS: SendFlags;
    /// The kind of data.
    const DATA: DataKind;
    /// The set of this operation alone.
    const BIT: SendOps;
}

/// An operation that supports inline data.
pub trait Inline: SendOperation {}

/// A transport that supports operation `O`.
pub trait Supports<O: SendOperation>: Transport {}

const ANY: SendFlags = SendFlags::CONTROL;
const PACKET: SendFlags = ANY.union(SendFlags::IP_CSUM);
const UNSOLICITED: SendFlags = SendFlags::SIGNALED.union(SendFlags::FENCE);

macro_rules! operations {
    ($(
        $(#[doc = $doc:literal])*
        $name:ident, $bit:ident = $value:expr, $opcode:ident $(/ $modifier:ident)? $(as $record:ident)?: remote $remote:ty, flags $flags:expr,
        data $data:expr, $(inline $inline:tt,)? on $($transport:ident)+;
    )*) => {
        $(
            $(#[doc = $doc])*
            #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
            pub enum $name {}
            impl SendOperation for $name {
                const OPCODE: Opcode = Opcode::$opcode;
                const RECORD: Opcode = operations!(@record $opcode $($record)?);
                const MODIFIER: u8 = 0 $(+ $modifier)?;
                type Remote = $remote;
                const FLAGS: SendFlags = $flags;
                const DATA: DataKind = $data;
                const BIT: SendOps = SendOps::$bit;
            }
            operations!(@inline $name $($inline)?);
            $(impl Supports<$name> for $transport {})+
        )*

        bitflags::bitflags! {
            /// A set of operations, as requested of a queue pair (`send_ops_flags`). The low bits
            /// are those of `enum ibv_qp_create_send_ops_flags`.
            #[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
            pub struct SendOps: u64 {
                $(
                    $(#[doc = $doc])*
                    const $bit = $value;
                )*
                /// Flush. ConnectX does not support it.
                const FLUSH = 1 << 11;
                /// Atomic write. ConnectX does not support it.
                const ATOMIC_WRITE = 1 << 12;
            }
        }

        impl SendOps {
            /// Returns the operations that transport `T` supports.
            pub const fn of<T: Transport>() -> Self {
                let mut has = Self::empty();
                $(if operations!(@has T, $($transport)+) {
                    has = has.union(Self::$bit);
                })*
                has
            }

            /// The operations that require a device with atomics.
            pub const ATOMICS: Self = {
                let mut atomics = Self::empty();
                $(if $data.is_result() {
                    atomics = atomics.union(Self::$bit);
                })*
                atomics
            };

            /// The maximum number of 16-byte units of an operation in the set whose size does not
            /// depend on data.
            pub(crate) const fn fixed_units<T: Transport>(self) -> usize {
                let mut most = 0;
                $(if self.contains(Self::$bit) && operations!(@has T, $($transport)+) {
                    let units = fixed_units::<$name>(T::ADDRESS_UNITS);
                    if units > most {
                        most = units;
                    }
                })*
                most
            }
        }

        /// The maximum number of 16-byte units before the message of an operation of the transport,
        /// control and address segments included.
        pub const fn head_units<T: Transport>() -> usize {
            let mut most = 0;
            $(if matches!($data, DataKind::Message)
                && <<$name as SendOperation>::Remote as Segment>::UNITS > most
                && operations!(@has T, $($transport)+)
            {
                most = <<$name as SendOperation>::Remote as Segment>::UNITS;
            })*
            1 + T::ADDRESS_UNITS + most
        }
    };
    (@inline $name:ident yes) => { impl Inline for $name {} };
    (@inline $name:ident) => {};
    (@record $opcode:ident $record:ident) => { Opcode::$record };
    (@record $opcode:ident) => { Opcode::$opcode };
    (@has $t:ident, $($transport:ident)+) => {
        (false $(|| str_eq(<$t as Transport>::NAME, <$transport as Transport>::NAME))+)
    };
}

/// The 16-byte units of an operation of fixed size; zero if the size depends on data.
const fn fixed_units<O: SendOperation>(address_units: usize) -> usize {
    match O::DATA {
        DataKind::Message => 0,
        DataKind::Result => 1 + address_units + O::Remote::UNITS + 1,
        DataKind::Own(units) => 1 + O::Remote::UNITS + units,
    }
}

/// The 16-byte units that every queue of transport `T` must have room for in one request: the
/// maximum of the operations that the fast path builds.
pub(crate) const fn least_units<T: Transport>() -> usize {
    SendOps::COMPARE_SWAP.union(SendOps::FETCH_ADD).fixed_units::<T>()
}

const fn str_eq(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    if a.len() != b.len() {
        return false;
    }
    let mut i = 0;
    while i < a.len() {
        if a[i] != b[i] {
            return false;
        }
        i += 1;
    }
    true
}

use DataKind::{Message, Own, Result as Returns};

operations! {
    /// Send.
    Send, SEND = 1 << 2, Send: remote (), flags PACKET, data Message, inline yes, on Rc XrcSend Uc Ud RawPacket;
    /// Send with immediate data.
    SendImm, SEND_IMM = 1 << 3, SendImm: remote (), flags ANY, data Message, inline yes, on Rc XrcSend Uc Ud;
    /// Send, and invalidate a key at the peer.
    SendInvalidate, SEND_INV = 1 << 9, SendInvalidate: remote (), flags ANY, data Message, inline yes, on Rc XrcSend Uc;
    /// RDMA write.
    RdmaWrite, RDMA_WRITE = 1 << 0, RdmaWrite: remote RemoteAddress, flags UNSOLICITED, data Message, inline yes, on Rc XrcSend Uc;
    /// RDMA write with immediate data.
    RdmaWriteImm, RDMA_WRITE_IMM = 1 << 1, RdmaWriteImm: remote RemoteAddress, flags ANY, data Message, inline yes, on Rc XrcSend Uc;
    /// RDMA read.
    RdmaRead, RDMA_READ = 1 << 4, RdmaRead: remote RemoteAddress, flags UNSOLICITED, data Message, on Rc XrcSend;
    /// Atomic compare and swap.
    CompareSwap, COMPARE_SWAP = 1 << 5, AtomicCs: remote Atomic, flags UNSOLICITED, data Returns, on Rc XrcSend;
    /// Atomic fetch and add.
    FetchAdd, FETCH_ADD = 1 << 6, AtomicFa: remote Atomic, flags UNSOLICITED, data Returns, on Rc XrcSend;
    /// Bind a memory window.
    BindWindow, BIND_MW = 1 << 8, Umr as Fmr: remote UmrHead, flags UNSOLICITED, data Own(UMR_UNITS), on Rc XrcSend Uc;
    /// Invalidate a memory window.
    LocalInvalidate, LOCAL_INV = 1 << 7, Umr as LocalInvalidate: remote UmrHead, flags UNSOLICITED, data Own(0), on Rc XrcSend Uc;
    /// Send a packet that the device cuts into segments (TCP segmentation offload).
    Tso, TSO = 1 << 10, Tso: remote (), flags PACKET, data Message, on RawPacket;
    /// Send several packets.
    MultiPacket, MULTI_PACKET = 1 << 36, EnhancedMpw as Send: remote (), flags PACKET, data Message, on RawPacket;
    /// No operation.
    Nop, NOP = 1 << 32, Nop: remote (), flags UNSOLICITED, data Own(0), on Rc;
    /// Atomic compare and swap of selected bits.
    MaskedCompareSwap, MASKED_COMPARE_SWAP = 1 << 33, AtomicMaskedCs / MASKED_ATOMIC_8: remote MaskedAtomic, flags UNSOLICITED, data Returns, on Rc;
    /// Atomic addition to several fields.
    MaskedFetchAdd, MASKED_FETCH_ADD = 1 << 34, AtomicMaskedFa / MASKED_ATOMIC_8: remote Atomic, flags UNSOLICITED, data Returns, on Rc;
    /// A WQE that the caller has built.
    Raw, RAW = 1 << 35, Nop: remote (), flags ANY, data Own(0), on Rc XrcSend Uc Ud RawPacket;
}
