//! Tag matching: a shared receive queue matches messages with its tag list.
//!
//! The list is [`TagList`](crate::engine::state::tags::TagList). [`operation`] executes the
//! operations of the command queue pair, [`arrival`] takes messages, and [`rendezvous`] fetches the
//! data of messages that say where it is.

mod arrival;
mod operation;
mod rendezvous;
