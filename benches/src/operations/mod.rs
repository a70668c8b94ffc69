//! The operations that are counted, each as a user would write it, in a function of its own.

pub(crate) mod cancel;
pub(crate) mod control;
pub(crate) mod mkey;
pub(crate) mod poll;
pub(crate) mod post;
pub(crate) mod receive;
