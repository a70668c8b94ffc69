//! The conformance suite, against the public API, on any device.
