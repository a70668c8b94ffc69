//! Tests of the function by a machine that reaches it over a socket.

mod commands;
mod events;
mod machine;
mod memory;
mod registers;
