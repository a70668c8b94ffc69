//! The library's guarantees to C programs: the tests call its functions by their Rust names, on a
//! simulated device.
//!
//! A program calls some functions by symbols, others through tables, as the inline functions of the
//! header do: see [`header`]. Each test is a sentence about such a program.

mod bed;
mod completion_queues;
mod devices;
mod direct;
mod domains;
mod forked;
mod handed_over;
mod header;
mod hostile;
mod machine;
mod memory;
mod packets;
mod posting;
mod queue_pairs;
mod random;
mod sessions;
mod shared_receive;
