//! Requests that configure memory keys.

pub(crate) mod configure;
