//! Transports as types: an operation that a transport does not support does not compile.

use crate::request::flags::SendFlags;

mod sealed {
    pub trait Sealed {
        /// Which transport it is.
        const WHICH: super::Which;
    }
}

/// The transport service of a queue pair.
pub trait Transport: sealed::Sealed + Send + Sync + 'static {
    /// The state of a request once its operation is chosen: what it needs next.
    type Start;
    /// 16-byte units of addressing between control segment and operation.
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
    ($($(#[$doc:meta])* $name:ident: start $start:ident, address $units:literal units, flags $flags:expr;)*) => {
        /// The transports as values.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Which {
            $(#[allow(missing_docs)] $name,)*
        }

        impl Which {
            /// Returns the transport's usual name.
            pub(crate) const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $name::NAME,)*
                }
            }
        }

        $(
            $(#[$doc])*
            #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
            pub enum $name {}
            impl sealed::Sealed for $name {
                const WHICH: Which = Which::$name;
            }
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
    /// Extended reliable connection, sending side: each request names the peer's shared receive
    /// queue.
    XrcSend: start NeedsSrqn, address 1 units, flags SendFlags::CONTROL;
    /// Unreliable connection.
    Uc: start NeedsData, address 0 units, flags SendFlags::SIGNALED.union(SendFlags::SOLICITED);
    /// Unreliable datagram.
    Ud: start NeedsAddress, address 3 units, flags SendFlags::SIGNALED.union(SendFlags::SOLICITED);
}
