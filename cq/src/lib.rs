//! Completion queue polling and arming.
