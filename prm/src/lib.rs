//! The ConnectX device's words: layouts of WQE segments, CQEs, doorbell records and commands.
