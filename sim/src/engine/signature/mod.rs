//! Keys with signatures at work: PSVs and the errors that they report, and data on its way.

mod psv;
mod transfer;
