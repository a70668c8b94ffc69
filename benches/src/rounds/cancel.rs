//! Cancels requests of a drained send queue.

use crate::bed::{Bed, Options};
use crate::operations::cancel;
use crate::round::timed;
use crate::rounds::subject;
use std::hint::black_box;

/// Pending requests for the two cases: single cancels, and the cancel of a set.
const FEW: u64 = 1000;
const ONES: u64 = 16;
const MANY: u64 = 4096;
const SET: u64 = 64;

impl Bed {
    /// Drains the queue, and posts requests after that.
    fn fill(&mut self, count: u64) {
        assert!(self.base.machine.drain(self.qp.qp_num()), "the device drains");
        self.base.machine.settle();
        self.write(0, count);
    }

    /// Resumes the queue.
    fn go_on(&mut self, count: u64) {
        self.qp.resume().expect("resume");
        self.complete(count);
    }
}

subject! {
    |machine| {
        let options = Options { depth: 2 * MANY as u32, entries: 2 * MANY as u32, ..Options::default() };
        (Bed::new(machine, options), ())
    } =>

    "cancel_1_of_1000", Single, cancel::one x ONES, |bed, _given, _first| {
        const STEP: u64 = FEW / ONES;
        bed.fill(FEW);
        let time = timed(ONES as usize, |k| {
            let wr_id = black_box(k as u64 * STEP + STEP / 2);
            cancel::one(&mut bed.qp, wr_id).is_ok_and(|n| n == 1)
        });
        bed.go_on(FEW);
        time
    }
    "cancel_64_of_4096", Single, cancel::set x 1, |bed, _given, _first| {
        const STEP: u64 = MANY / SET;
        bed.fill(MANY);
        let set: [u64; SET as usize] = std::array::from_fn(|i| i as u64 * STEP + STEP / 2);
        let set = black_box(&set);
        let time = timed(1, |_| cancel::set(&mut bed.qp, set).is_ok_and(|n| n == SET as usize));
        bed.go_on(MANY);
        time
    }
}
