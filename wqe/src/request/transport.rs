//! Transports as types: an operation that a transport does not support does not compile.

use crate::request::ethernet::Ethernet;
use crate::request::flags::SendFlags;
use crate::request::segment::Segment;

mod sealed {
    pub trait Sealed {}
}

/// The transport service of a queue pair.
pub trait Transport: sealed::Sealed + Send + Sync + 'static {
    /// The state of a request once its operation is chosen: what it needs next.
    type Start;
    /// The address segment of a request that names no address.
    #[doc(hidden)]
    type Bare: Segment;
    /// Returns it, for a request with these flags.
    #[doc(hidden)]
    fn bare(flags: SendFlags) -> Self::Bare;
    /// The most 16-byte units between control segment and operation.
    const ADDRESS_UNITS: usize;
    /// The supported flags.
    const FLAGS: SendFlags;
    /// The transport's usual name.
    const NAME: &'static str;
}

/// State of a request that needs the receiver's address.
#[derive(Debug)]
pub enum NeedsAddress {}

/// State of a request that needs the peer's shared receive queue.
#[derive(Debug)]
pub enum NeedsSrqn {}

/// State of a request that needs its data.
#[derive(Debug)]
pub enum NeedsData {}

/// One transport per line.
macro_rules! transports {
    ($($(#[$doc:meta])* $name:ident: start $start:ident, address $units:literal units $(else $bare:ident)?, flags $flags:expr;)*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
            pub enum $name {}
            impl sealed::Sealed for $name {}
            impl Transport for $name {
                type Start = $start;
                transports!(@bare $($bare)?);
                const ADDRESS_UNITS: usize = $units;
                const FLAGS: SendFlags = $flags;
                const NAME: &'static str = stringify!($name);
            }
        )*
    };
    (@bare) => {
        type Bare = ();
        #[inline]
        fn bare(_: SendFlags) {}
    };
    (@bare $bare:ident) => {
        type Bare = $bare;
        #[inline]
        fn bare(flags: SendFlags) -> $bare {
            $bare::new(flags)
        }
    };
}

transports! {
    /// Reliable connection.
    Rc: start NeedsData, address 0 units, flags SendFlags::CONTROL;
    /// Extended reliable connection, sending side: each request names the peer's shared receive
    /// queue.
    XrcSend: start NeedsSrqn, address 1 units, flags SendFlags::CONTROL;
    /// Unreliable connection.
    Uc: start NeedsData, address 0 units, flags SendFlags::SIGNALED.union(SendFlags::SOLICITED);
    /// Unreliable datagram.
    Ud: start NeedsAddress, address 3 units, flags SendFlags::SIGNALED.union(SendFlags::SOLICITED);
    /// Raw Ethernet packets: the data is the packet, from its destination MAC address on.
    RawPacket: start NeedsData, address 2 units else Ethernet, flags SendFlags::SIGNALED.union(SendFlags::IP_CSUM);
}
