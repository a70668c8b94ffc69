//! Requests that configure memory keys.

pub(crate) mod configure;
pub(crate) mod umr;
pub(crate) mod update;
