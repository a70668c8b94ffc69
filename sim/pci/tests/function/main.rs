//! The function as a machine meets it, over a socket.

mod commands;
mod events;
mod machine;
mod memory;
mod registers;
