//! Userspace driver for ConnectX NICs.
