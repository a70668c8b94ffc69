//! Sessions: what becomes of requests when connections break, against a model.

mod model;
mod steps;
