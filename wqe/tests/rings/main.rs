//! The rings on plain memory: every byte that a queue writes is compared with bytes written by hand
//! from the PRM.
#![cfg(not(loom))]

mod atomicity;
mod bed;
mod begun;
mod by_hand;
mod bytes;
mod cancel;
mod cancel_model;
mod chosen;
mod extras;
mod handles;
mod inline_at;
mod iterators;
mod key_changes;
mod key_lists;
mod keys;
mod layout;
mod leaked;
mod own_size;
mod packets;
mod receive;
mod recorded;
mod records;
mod refusals;
mod room;
mod sets;
mod shared_receive;
mod signature;
mod tag_records;
mod tags;
mod wrap;
