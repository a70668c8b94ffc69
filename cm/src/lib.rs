//! Connection management: finding a peer by its address, and connecting a queue pair to its.
//!
//! Two ways lead to a connected queue pair:
//!
//! * The kernel's connection manager, the one below C's librdmacm, with which this package also
//!   connects to programs in C. [`Listener::bind`] and [`connect`] are enough for reliable
//!   connections. Below them, [`EventChannel`] and [`Id`] have the rest of the kernel's interface:
//!   events, datagrams, extended connections, multicast groups, options. Above them, a [`Session`]
//!   reconnects after a loss, and a thread watches a [`Watched`] connection for its end.
//! * [`bootstrap`]: endpoints and regions over TCP, without a connection manager.
//!
//! A server and a client, here over a simulated device in one process:
//!
//! ```
//! use mlx5::{ProtectionDomain, QueuePair, transport::Rc};
//! use mlx5_cm as cm;
//! use std::{net::SocketAddr, thread};
//!
//! # type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;
//! # let config = mlx5_sim::SimConfig::new().ports([mlx5_sim::PortConfig::ROCE]);
//! # let simulator = mlx5_sim::Simulator::new(config);
//! # let kernel = simulator.kernel();
//! /// A queue pair on the device that the connection manager chose.
//! fn queue_pair(device: &mlx5::Device) -> Result<QueuePair<Rc>> {
//!     let context = device.open()?;
//!     let cq = context.create_cq(16).build()?;
//!     let pd = context.alloc_pd()?;
//!     Ok(pd.create_qp::<Rc>(&cq, &cq).max_send_wr(4).max_recv_wr(4).build()?)
//! }
//!
//! // With the running kernel: `Listener::bind(address)` and `connect(address)`.
//! let mut listener = cm::Listener::bind_on(kernel.clone(), "10.0.0.1:7471")?;
//! let address: SocketAddr = listener.local_addr()?;
//! let server = thread::spawn(move || -> Result<()> {
//!     let request = listener.next(None)?;
//!     assert!(request.private_data().starts_with(b"hello"));
//!     let qp = queue_pair(&request.device()?)?;
//!     let mut connection = request.accept(qp, b"welcome")?;
//!     connection.wait_disconnected(None)?;
//!     Ok(())
//! });
//!
//! let peer = cm::connect_on(kernel, address)?;
//! let qp = queue_pair(&peer.device()?)?;
//! let mut connection = peer.connect(qp, b"hello")?;
//! assert!(connection.private_data().starts_with(b"welcome"));
//! assert_eq!(connection.qp_mut().state(), mlx5::QueueState::ReadyToSend);
//! connection.disconnect()?;
//! # server.join().unwrap()?;
//! # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
//! ```
//!
//! Every wait has a time limit. Resolving, connecting and accepting have [`DEFAULT_TIMEOUT`],
//! unless another is set. So has stopping a [`Session`], which waits for the device. A wait for a
//! request, an event or the end of a connection takes its limit as an argument; only `None` is
//! without limit. The system's resolver looks names up, with its own limits. An [`Error`] says what
//! failed, why, and what to do. Dropping an [`Id`] or a [`Connection`] ends it and notifies its
//! peer.
//!
//! In a child process after a fork, calls fail with [`ErrorKind::Forked`], and drops do nothing:
//! the parent's connections continue.

#![deny(missing_debug_implementations)]

// Each module imports only from modules listed before it:
//
// address, data, error
// param         parameters of connections
// attributes    attributes of queue pairs
// channel       event channels
// id            identifiers
// event         the kernel's events
// wait          waiting for them
// settings      parameters and time limits of a side
// connection    connected queue pairs
// connect       connecting                listen  listening and accepting
// session       reconnecting              watch   connections that a thread watches
// bootstrap     connecting over TCP
mod address;
mod attributes;
pub mod bootstrap;
mod channel;
mod connect;
mod connection;
mod data;
mod error;
mod event;
mod id;
mod listen;
mod param;
mod session;
mod settings;
mod wait;
mod watch;

pub use address::{Address, IbAddress};
pub use attributes::Prepare;
pub use channel::{EventChannel, IdKey};
pub use connect::{Resolved, connect, connect_on};
pub use connection::{Connection, ConnectionFailed, Link};
pub use data::PrivateData;
pub use error::{Error, ErrorKind, Rejection};
pub use event::{Event, EventKind, UdPeer};
pub use id::{Group, Id};
pub use listen::{Accepting, Listener, Request};
pub use mlx5_uapi::rdma_cm::{JoinFlag, PortSpace, private_data, reject_reason};
pub use param::{ConnectParam, Remote};
pub use session::{Session, SessionState, StopFailed};
pub use wait::DEFAULT_TIMEOUT;
pub use watch::{WatchFailed, Watched};

/// Compiles and runs the programs of the guide's page about addresses.
#[cfg(doctest)]
#[doc = include_str!("../../docs/guide/src/addresses.md")]
struct Guide;
