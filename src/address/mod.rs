//! Destinations of messages: paths and address handles.

mod handle;
mod path;
mod traffic;

pub use handle::{AddressHandle, Received};
pub use path::{AhAttr, GlobalRoute};
pub use traffic::{Dscp, Ecn, ParseDscpError, TrafficClass, UdpSourcePort};
