//! Awaiting requests on mlx5 queue pairs.
//!
//! A [`Hub`] has one completion queue and the queue pairs that complete there. Its [`Pump`] passes
//! each completion to the future or the stream that waits for it. The package needs no particular
//! runtime: the pump is a thread, or a task of tokio with the feature `tokio`.
//!
//! ```
//! use mlx5::{Access, ConnectOptions, Psn, SendFlags, transport::Rc};
//! use mlx5_async::{AsyncQueuePair, Hub};
//! use mlx5_sim::{SimConfig, Simulator};
//! use std::{error::Error, sync::Arc};
//!
//! # #[cfg(feature = "tokio")]
//! #[tokio::main(flavor = "current_thread")]
//! async fn main() -> Result<(), Box<dyn Error>> {
//!     let simulator = Simulator::new(SimConfig::new());
//!     let context = mlx5::devices_on(simulator.kernel())?.remove(0).open()?;
//!     let pd = context.alloc_pd()?;
//!     let (hub, pump) = Hub::new(&context, 1024)?;
//!     let pump = tokio::spawn(pump.drive());
//!
//!     // Connected to itself.
//!     let mut qp = hub.create_qp::<Rc>(&pd).build()?;
//!     let (port, psn) = (context.local_port(1, None)?, Psn::default());
//!     let options = ConnectOptions::default();
//!     let own = qp.endpoint(&port, psn, &options);
//!     qp.connect(&port, psn, &own, &options)?;
//!     // Each request keeps the region that it uses.
//!     let qp: AsyncQueuePair<Rc, Arc<mlx5::MemoryRegion>> = hub.adopt(qp)?;
//!
//!     let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
//!     let memory = Arc::new(pd.memory(4096).access(access).register()?);
//!     memory.write_at(0, b"8 bytes!")?;
//!     let (from, to) = (memory.sge(0..8)?, memory.remote(1024..)?);
//!     let write = qp
//!         .submit(Arc::clone(&memory), SendFlags::empty(), |wr| wr.rdma_write(to).sge(from))
//!         .await?;
//!     write.await?;
//!     let mut bytes = [0; 8];
//!     memory.read_at(1024, &mut bytes)?;
//!     assert_eq!(&bytes, b"8 bytes!");
//!
//!     hub.shutdown();
//!     pump.await??;
//!     Ok(())
//! }
//! # #[cfg(not(feature = "tokio"))]
//! # fn main() {}
//! ```
//!
//! # Dropped futures
//! Dropping the future of a posted request does not cancel it. Its slot stays taken, and the value
//! that it keeps stays alive, until the request has completed: no other request gets its
//! completion. Dropping a future that waits for room leaves the line, and wakes the next task.
//!
//! A future that is leaked (`std::mem::forget`) leaks its slot and its kept value, but takes no
//! room from others. When the futures of 16 times as many requests as a queue holds have not taken
//! their results, further requests are refused ([`RefusedBecause::Untaken`]). If a future that
//! waits for room is woken but not polled, because it is leaked or its task polls something else,
//! others pass it once the device has no request, or once 128 more requests have completed.
//!
//! Streams are different: a result that a stream does not take keeps its place. A stream that is
//! leaked or not read, including one of [`AsyncSharedReceiveQueue::receives_of`], fills its queue.
//!
//! # Time limits
//! A future waits as long as the device takes; the executor may set a limit, and drop it. A pump
//! has its own limit once its hub is shut down: [`Pump::shutdown_timeout`].
//!
//! # Allocations
//! Slots are created with the queue pair. Posting, completing and awaiting allocate nothing, except
//! for the line of tasks that wait for room, the list of tasks to wake, and additional slots while
//! futures leave the results of a full queue untaken. Line and slots never shrink.
//!
//! # Several tasks
//! Several threads can use all handles at a time. A queue pair is locked while a request is built,
//! and one side of its slots for each step of a request. Wakers and kept values are called and
//! dropped without a lock.
//!
//! # Features
//! `tokio` is off by default. It adds `Pump::drive`, the pump as a future that tokio runs, and
//! `Readable` with its stream `Found`, for any descriptor that a task waits for: a completion
//! channel, a listener, a `DeviceWatcher`. `cargo doc --open --all-features -p mlx5-async` shows
//! them, as docs.rs does.

#![deny(missing_debug_implementations)]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(unsafe_code)]
#![cfg_attr(not(feature = "tokio"), forbid(unsafe_code))]

// Each module imports only from modules listed before it:
//
// error            reasons why a request was not posted, or not done
// wakes            tasks that wait, woken when no lock is held
// line             the line of tasks that wait for room
// slots            requests that wait for their completions
// request          futures and streams       posting     from a slot to a request
// registry         the queues of a hub, by number
// pump             from the completion queue to the waiting tasks
// tokio            the pump as a task
// shared           the state that handles of a queue pair share
// queue_pair       queue pairs               seat        queue pairs that are not connected yet
// shared_receives  shared receive queues
// hub              the whole
mod error;
mod hub;
mod line;
mod posting;
mod pump;
mod queue_pair;
mod registry;
mod request;
mod seat;
mod shared;
mod shared_receives;
mod slots;
#[cfg(feature = "tokio")]
mod tokio;
mod wakes;

pub use error::{Ended, Failed, FailedBecause, Refused, RefusedBecause};
pub use hub::{DeviceEvents, Hub};
pub use pump::{DEFAULT_TIMEOUT, Pump, PumpError, Step};
pub use queue_pair::AsyncQueuePair;
pub use registry::NotAdded;
pub use request::{Completions, Done, Request};
pub use seat::Seat;
pub use shared_receives::AsyncSharedReceiveQueue;
#[cfg(feature = "tokio")]
pub use tokio::{Found, Readable};

/// Compiles and runs the programs of the guide's page about async.
#[cfg(all(doctest, feature = "tokio"))]
#[doc = include_str!("../../docs/guide/src/async.md")]
struct Guide;
