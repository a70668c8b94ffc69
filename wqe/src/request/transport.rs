//! Transports as types: an operation that a transport lacks does not compile.

use crate::request::flags::SendFlags;

mod sealed {
    pub trait Sealed {}
}

/// A service of a queue pair.
pub trait Transport: sealed::Sealed + Send + Sync + 'static {
    /// The setter that the first builder call leads to.
    type Start;
    /// 16-byte units of addressing between control segment and operation.
    const ADDRESS_UNITS: usize;
    /// The flags that mean something.
    const FLAGS: SendFlags;
    /// The transport's usual name.
    const NAME: &'static str;
}

/// State of a request that is to be given the receiver's address.
pub enum NeedsAddress {}

/// State of a request that is to be given the shared receive queue at the other side.
pub enum NeedsSrqn {}

/// State of a request that is to be given its data.
pub enum NeedsData {}

/// One transport a line.
macro_rules! transports {
    ($($(#[$doc:meta])* $name:ident: start $start:ident, address $units:literal units, flags $flags:expr;)*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
            pub enum $name {}
            impl sealed::Sealed for $name {}
            impl Transport for $name {
                type Start = $start;
                const ADDRESS_UNITS: usize = $units;
                const FLAGS: SendFlags = $flags;
                const NAME: &'static str = stringify!($name);
            }
        )*
    };
}

transports! {
    /// Reliable connection.
    Rc: start NeedsData, address 0 units, flags SendFlags::CONTROL;
    /// Extended reliable connection, the side that sends: each request names the shared receive
    /// queue that is to take it.
    XrcSend: start NeedsSrqn, address 1 units, flags SendFlags::CONTROL;
    /// Unreliable connection.
    Uc: start NeedsData, address 0 units, flags SendFlags::SIGNALED.union(SendFlags::SOLICITED);
    /// Unreliable datagram.
    Ud: start NeedsAddress, address 3 units, flags SendFlags::SIGNALED.union(SendFlags::SOLICITED);
}
