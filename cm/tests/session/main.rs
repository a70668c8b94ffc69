//! Tests of sessions: the outcome of each request when its connection breaks. `model` and `late`
//! compare random runs with a model of the permitted outcomes.

mod late;
mod model;
mod random;
mod steps;
