//! The parameters of a side that connects or accepts, and its time limit.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use mlx5::QueuePair;
use mlx5::transport::Rc;

use crate::attributes::Prepare;
use crate::error::{Error, ErrorKind};
use crate::param::ConnectParam;
use crate::wait::DEFAULT_TIMEOUT;

/// The parameters of one side, and its time limit.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) timeout: Duration,
    /// The parameters, without the number of a queue pair.
    pub(crate) param: ConnectParam<'static>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { timeout: DEFAULT_TIMEOUT, param: ConnectParam::new(0) }
    }
}

impl Settings {
    /// Returns the parameters for a queue pair.
    pub(crate) fn param(&self, qp: &QueuePair<Rc>) -> ConnectParam<'static> {
        self.param.of(qp.number(), qp.is_shared())
    }
}

/// The setters of the parameters and the time limit, for the types that connect.
macro_rules! setters {
    () => {
        /// Sets the time limit. Default: [`DEFAULT_TIMEOUT`](crate::DEFAULT_TIMEOUT).
        pub fn timeout(mut self, timeout: Duration) -> Self {
            self.settings.timeout = timeout;
            self
        }

        /// Sets the maximum number of the peer's reads and atomics that this end answers at a time:
        /// no more than the peer wants and the device supports. Default: 16.
        pub fn responder_resources(mut self, most: u8) -> Self {
            self.settings.param = self.settings.param.responder_resources(most);
            self
        }

        /// Sets the maximum number of reads and atomics that this end starts at a time: no more
        /// than the peer answers and the device supports. Default: 16.
        pub fn initiator_depth(mut self, most: u8) -> Self {
            self.settings.param = self.settings.param.initiator_depth(most);
            self
        }

        /// Sets how often the peer sends again while this end has no receive posted. Default: 7,
        /// which is without limit: if this end never posts one, the peer's request never completes.
        pub fn rnr_retry_count(mut self, count: RetryCount) -> Self {
            self.settings.param = self.settings.param.rnr_retry_count(count);
            self
        }

        /// Sets how often at most this end sends again while the peer has no receive posted.
        /// Default: the peer's value, mostly 7: without limit. With a lower value, a request to a
        /// peer that is stopped or posts nothing fails.
        pub fn own_rnr_retry_count(mut self, most: RetryCount) -> Self {
            self.settings.param = self.settings.param.own_rnr_retry_count(most);
            self
        }
    };
}
pub(crate) use setters;

/// Tries each address of a name; returns the last error. A malformed name is an invalid argument. A
/// name that is not found may be found later.
pub(crate) fn each<A: ToSocketAddrs, R>(
    operation: &'static str,
    addresses: A,
    mut attempt: impl FnMut(SocketAddr) -> Result<R, Error>,
) -> Result<R, Error> {
    let invalid = |what: String| Error::new(operation, ErrorKind::InvalidArgument, what);
    let addresses = addresses.to_socket_addrs().map_err(|error| match error.kind() {
        io::ErrorKind::InvalidInput => {
            invalid(format!("the address cannot be understood: {error}"))
        }
        _ => {
            let what = format!("the name cannot be found: {error}: check it, and the resolver");
            Error::new(operation, ErrorKind::Unreachable, what)
        }
    })?;
    let mut last = None;
    for address in addresses {
        match attempt(address) {
            Ok(result) => return Ok(result),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| invalid("the name has no address".into())))
}
