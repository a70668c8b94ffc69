//! Tests of the engine with hand-written WQEs in plain memory, step by step.

mod atomic;
mod blueflame;
mod completion;
mod compression;
mod connection;
mod datagram;
mod doorbell;
mod drain;
mod errors;
mod ethernet;
mod management;
mod pieces;
mod pipeline;
mod registration;
mod request;
mod rig;
mod shared_receive;
mod signature;
mod signed;
mod thread;
mod travel;
mod umr;
mod window;
mod xrc;
