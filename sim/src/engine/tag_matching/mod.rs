//! Tag matching: a shared receive queue with a list of tags that messages are matched with.
//!
//! The list is [`TagList`](crate::engine::state::tags::TagList); [`operation`] executes what the
//! command queue pair asks for, [`arrival`] takes messages, and [`rendezvous`] fetches the data of
//! those that say where it is.

mod arrival;
mod operation;
mod rendezvous;
