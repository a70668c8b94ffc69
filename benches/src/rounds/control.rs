//! Creates and destroys queues.

use crate::bed::{Base, DEPTH};
use crate::operations::control;
use crate::round::timed;
use crate::rounds::subject;

subject! {
    |machine| {
        let base = Base::new(machine);
        let cq = base.cq(1024);
        (base, cq)
    } =>

    "create_destroy_qp", Single, control::create_destroy_qp x 4, |bed, given, _first| {
        let time = timed(4, |_| control::create_destroy_qp(&bed.pd, given, DEPTH).is_ok());
        bed.machine.settle();
        time
    }
}
