//! Sessions: the outcome of requests when connections break, against a model.

mod late;
mod model;
mod random;
mod steps;
