//! Checks posting: the request is stored before the doorbell record, and the record before the
//! register.

use super::walk::{Access, TO_DEVICE, WRITE_COMBINING, barrier, every_way};
use crate::asm::flow::is_call;
use crate::asm::listing::Listing;

/// A step of a function, in the required order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// One store of this size, and no other store until the next step.
    StoreOnly(u32),
    /// Stores of at least this size, and no smaller one until the next step.
    Stores(u32),
    /// This barrier.
    Barrier(&'static str),
}

/// Request, doorbell record, register.
pub(super) const SEND: [Step; 6] = [
    Step::Stores(1),
    Step::Barrier(TO_DEVICE),
    Step::StoreOnly(4),
    Step::Barrier(WRITE_COMBINING),
    Step::Stores(8),
    Step::Barrier(WRITE_COMBINING),
];

/// Request, doorbell record.
pub(super) const RECEIVE: [Step; 3] =
    [Step::Stores(1), Step::Barrier(TO_DEVICE), Step::StoreOnly(4)];

/// A copy to a register.
pub(super) const COPIES: &[Step] = &[Step::Stores(8)];

/// The register, after the record.
pub(super) const REGISTER: &[Step] = SEND.split_at(3).1;

/// Record and register, after the request.
pub(super) const RING: &[Step] = SEND.split_at(1).1;

/// Functions that perform some of the steps. Each is examined itself.
const CALLED: [(&str, &[Step]); 3] = [
    ("8register11copy_blocks", COPIES),
    ("8register15SharedBlueFlame5write", REGISTER),
    ("8register12SendRegister12ring_wrapped", RING),
];

/// Calls that store nothing for a device: atomic instructions, which may be calls on this
/// architecture, and the wait for a lock.
const OTHER: [&str; 2] = ["__aarch64_", "mlx5_doorbell4lock13Lock"];

/// Checks that every way through a function performs all the steps in order, or none with a
/// barrier, and that at least one way performs them all.
pub(super) fn in_order(listing: &Listing, steps: &[Step]) -> Result<(), String> {
    let mut furthest = 0;
    every_way(listing, 0, |at, done| {
        let text = &listing.0[at].text;
        let begun = steps[..done].iter().any(|step| matches!(step, Step::Barrier(_)));
        let (begun, ends) = (begun && done < steps.len(), text == "ret");
        if begun && ends {
            return Err(format!("follows {:?}, before {:?}", steps[done - 1], steps[done]));
        }
        let done = match event(text)? {
            Some(event) => advance(steps, done, event)?,
            None if begun && is_call(text) && !OTHER.iter().any(|name| text.contains(name)) => {
                return Err(format!("is called after {:?}", steps[done - 1]));
            }
            None => done,
        };
        if ends {
            furthest = furthest.max(done);
        }
        Ok(done)
    })?;
    match steps.get(furthest) {
        None => Ok(()),
        Some(step) => Err(format!("no way gets to {step:?}")),
    }
}

/// An effect of an instruction that the device can observe.
#[derive(Clone, Copy)]
enum Event {
    /// A store of this size.
    Store(u32),
    Barrier(&'static str),
    /// A call of a function that performs these steps.
    Call(&'static [Step]),
}

fn event(text: &str) -> Result<Option<Event>, String> {
    if let Some(barrier) = barrier(text)? {
        return Ok(Some(Event::Barrier(barrier)));
    }
    let called = CALLED.iter().find(|(name, _)| is_call(text) && text.contains(name));
    if let Some((_, steps)) = called {
        return Ok(Some(Event::Call(steps)));
    }
    let store = Access::of(text)?.filter(|access| access.store);
    Ok(store.map(|store| Event::Store(store.size)))
}

/// Number of steps that are done after an event, where `done` were before it.
fn advance(steps: &[Step], done: usize, event: Event) -> Result<usize, String> {
    let last = done.checked_sub(1).map(|last| steps[last]);
    let next = steps.get(done).copied();
    match (event, last, next) {
        (Event::Store(size), _, Some(Step::StoreOnly(wanted))) if size == wanted => Ok(done + 1),
        (Event::Store(size), _, Some(Step::Stores(least))) if size >= least => Ok(done + 1),
        (Event::Barrier(barrier), _, Some(Step::Barrier(wanted))) if barrier == wanted => {
            Ok(done + 1)
        }
        (Event::Call(does), _, _) if steps[done..].starts_with(does) => Ok(done + does.len()),
        // Another copy to the register.
        (Event::Call(COPIES), Some(Step::Stores(8)), _) => Ok(done),
        (Event::Store(size), Some(Step::Stores(least)), _) if size >= least => Ok(done),
        // A store after the last step that only the CPU sees.
        (Event::Store(_), Some(Step::StoreOnly(_) | Step::Barrier(_)), None) => Ok(done),
        _ => Err(format!("comes after {last:?}, before {next:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::listing;
    use super::*;

    fn examined(text: &str, steps: &[Step]) -> Result<(), String> {
        in_order(&listing(text), steps)
    }

    const GOOD: &str = "stp x1, x2, [x3]; dmb oshst; str w4, [x5]; dsb st; str q0, [x6]; dsb st; \
                        str x7, [x0]; ret";

    #[test]
    fn a_request_is_ordered_before_the_record_and_that_before_the_register_and_then_flushed() {
        assert_eq!(examined(GOOD, &SEND), Ok(()));
        for left_out in ["dmb oshst; ", "dsb st; ", "str w4, [x5]; ", "str q0, [x6]; "] {
            let verdict = examined(&GOOD.replacen(left_out, "", 1), &SEND);
            assert!(verdict.is_err(), "without {left_out}");
        }
        let unflushed = GOOD.replace("; dsb st; str x7, [x0]; ret", "; str x7, [x0]; ret");
        assert!(examined(&unflushed, &SEND).is_err());
    }

    #[test]
    fn a_receive_request_is_ordered_before_the_record() {
        let good = "str x1, [x3]; dmb oshst; str w4, [x5]; strb w1, [x8]; ret";
        assert_eq!(examined(good, &RECEIVE), Ok(()));
        assert!(examined(&good.replace("dmb oshst; ", ""), &RECEIVE).is_err());
        assert!(examined("str x1, [x3]; str w4, [x5]; dmb oshst; ret", &RECEIVE).is_err());
    }

    #[test]
    fn a_barrier_among_processors_is_none_for_a_device() {
        for weak in ["dmb ishst", "dmb ish", "dsb ishst"] {
            let verdict = examined(&GOOD.replacen("dmb oshst", weak, 1), &SEND);
            assert!(
                verdict.is_err_and(|fault| fault.contains("no barrier for a device")),
                "{weak}"
            );
        }
        assert!(examined(&GOOD.replacen("dsb st", "dmb oshst", 1), &SEND).is_err());
    }

    #[test]
    fn nothing_else_is_stored_or_called_between_the_barriers() {
        for place in ["dmb oshst; ", "dsb st; "] {
            let late = GOOD.replacen(place, &format!("{place}str w9, [x3, #8]; "), 1);
            assert!(examined(&late, &SEND).is_err(), "{late}");
            let called = GOOD.replacen(place, &format!("{place}bl other; "), 1);
            assert!(examined(&called, &SEND).is_err(), "{called}");
            let spilled = GOOD.replacen(place, &format!("{place}str x9, [sp, #8]; "), 1);
            assert_eq!(examined(&spilled, &SEND), Ok(()));
        }
    }

    #[test]
    fn a_register_is_written_by_whole_words() {
        assert!(examined(&GOOD.replace("str q0", "str s0"), &SEND).is_err());
        assert_eq!(
            examined(
                &GOOD.replace("str q0, [x6]", "bl _ZN13mlx5_doorbell8register11copy_blocks"),
                &SEND
            ),
            Ok(())
        );
        assert_eq!(examined("str x1, [x0]; stp x1, x2, [x0]; ret", COPIES), Ok(()));
        for short in ["str w1, [x0]; ret", "str x1, [x0]; strb w1, [x0]; ret", "ret"] {
            assert!(examined(short, COPIES).is_err(), "{short}");
        }
    }

    #[test]
    fn called_function_that_takes_steps_is_followed() {
        let shared = "str x1, [x3]; dmb oshst; str w4, [x5]; \
                      bl mlx5_doorbell8register15SharedBlueFlame5write; ret";
        assert_eq!(examined(shared, &SEND), Ok(()));
        assert!(examined(&shared.replace("str w4, [x5]; ", ""), &SEND).is_err());
        let wrapped = "str x1, [x3]; bl mlx5_doorbell8register12SendRegister12ring_wrapped; ret";
        assert_eq!(examined(wrapped, &SEND), Ok(()));
        assert!(examined(&wrapped.replace("str x1, [x3]", "dmb oshst"), &SEND).is_err());
    }

    #[test]
    fn every_way_is_followed() {
        let around = format!("cbz w1 >3; {GOOD}");
        assert!(examined(&around, &SEND).is_err(), "the record without the first barrier");
        let refused = format!("cbz w1 >9; {GOOD}; mov w0, #0x1; ret");
        assert_eq!(examined(&refused, &SEND), Ok(()));
        let called = format!("cbz w1 >9; {GOOD}; bl push_slow; dmb ish; ret");
        assert!(examined(&called, &SEND).is_err(), "what follows a call is a part of the way");
        let panics = format!("cbz w1 >9; {GOOD}; bl core::panicking; dmb ish; ret");
        assert_eq!(examined(&panics, &SEND), Ok(()), "nothing follows a panic");
        let locked = format!("bl __aarch64_swp1_acq; {GOOD}");
        assert_eq!(examined(&locked, &SEND), Ok(()));
    }
}
