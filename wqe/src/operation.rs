//! Operations: one declaration each, from which the typed builder, the list form and the sizing of
//! queues follow.

use crate::segment::Segment;
use crate::sge::RemoteAddress;
use crate::transport::{Rc, Transport, Uc, Ud};
use mlx5_prm::wqe::{Opcode, control_flags};

bitflags::bitflags! {
    /// Flags of a send request. The bits are those of the control segment.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
    pub struct SendFlags: u8 {
        /// Ask for a completion.
        const SIGNALED = control_flags::COMPLETION;
        /// Cause an event at the receiver's completion queue, if it is armed for these.
        const SOLICITED = control_flags::SOLICITED;
        /// Start only when all earlier reads and atomics of this queue are done.
        const FENCE = control_flags::FENCE;
    }
}

/// An operation of a send queue.
pub trait SendOperation {
    /// What the device is asked for.
    const OPCODE: Opcode;
    /// What it has between addressing and data.
    type Remote: Segment;
    /// The flags that mean something with it.
    const FLAGS: SendFlags;
}

/// An operation that can carry its data in the request.
pub trait Inline: SendOperation {}

/// A transport that has operation `O`.
pub trait Supports<O: SendOperation>: Transport {}

const ANY: SendFlags = SendFlags::all();
const UNSOLICITED: SendFlags = SendFlags::SIGNALED.union(SendFlags::FENCE);

macro_rules! operations {
    ($(
        $(#[$doc:meta])*
        $name:ident = $opcode:ident: remote $remote:ty, flags $flags:expr, $(inline $inline:tt,)? on $($transport:ident)+;
    )*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
            pub enum $name {}
            impl SendOperation for $name {
                const OPCODE: Opcode = Opcode::$opcode;
                type Remote = $remote;
                const FLAGS: SendFlags = $flags;
            }
            operations!(@inline $name $($inline)?);
            $(impl Supports<$name> for $transport {})+
        )*

        /// The most 16-byte units that an operation of a transport has before its data, addressing
        /// and control segment included.
        pub const fn head_units<T: Transport>() -> usize {
            let mut most = 0;
            $(if <<$name as SendOperation>::Remote as Segment>::UNITS > most && operations!(@has T, $($transport)+) {
                most = <<$name as SendOperation>::Remote as Segment>::UNITS;
            })*
            1 + T::ADDRESS_UNITS + most
        }
    };
    (@inline $name:ident yes) => { impl Inline for $name {} };
    (@inline $name:ident) => {};
    (@has $t:ident, $($transport:ident)+) => {
        (false $(|| str_eq(<$t as Transport>::NAME, <$transport as Transport>::NAME))+)
    };
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

operations! {
    /// Send.
    Send = Send: remote (), flags ANY, inline yes, on Rc Uc Ud;
    /// Send with immediate data.
    SendImm = SendImm: remote (), flags ANY, inline yes, on Rc Uc Ud;
    /// RDMA write.
    RdmaWrite = RdmaWrite: remote RemoteAddress, flags UNSOLICITED, inline yes, on Rc Uc;
    /// RDMA write with immediate data.
    RdmaWriteImm = RdmaWriteImm: remote RemoteAddress, flags ANY, inline yes, on Rc Uc;
    /// RDMA read.
    RdmaRead = RdmaRead: remote RemoteAddress, flags UNSOLICITED, on Rc;
}
