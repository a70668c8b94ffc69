//! Checks polling: the owner bit is read before the rest of the completion, and all of it before
//! the consumer counter is stored.

use super::walk::{Access, FROM_DEVICE, barrier, every_way, writes};
use crate::asm::flow::is_call;
use crate::asm::listing::Listing;

/// Offset of the word with the owner bit in a completion.
const OWNER: &str = "#60";

/// Mask that cuts the consumer counter to the bits that the device reads.
const COUNTER: &str = "#0xffffff";

/// Maximum distance of two instructions that belong together.
const NEAR: usize = 8;

/// The part of a completion that was read since the last barrier.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Read {
    Nothing,
    Owner,
    Rest,
}

/// Checks every way through a function: a barrier comes between the owner bit and the rest of a
/// completion, and between the last read and the consumer counter.
///
/// The state identifies a completion by the base register of the read of its owner bit.
pub(super) fn in_order(listing: &Listing) -> Result<(), String> {
    let (mut rest, mut published) = (false, false);
    every_way(listing, (Read::Nothing, None), |at, (read, completion)| {
        let text = listing.0[at].text.as_str();
        if let Some(barrier) = barrier(text)? {
            let read = if barrier == FROM_DEVICE { Read::Nothing } else { read };
            return Ok((read, completion));
        }
        if is_call(text) && !text.contains("__aarch64_") {
            // A call preserves x19 and the registers after it.
            return Ok((read, completion.filter(|base: &&str| saved(base))));
        }
        if is_publishing(listing, at)? {
            if read != Read::Nothing {
                return Err(format!("the consumer counter follows {read:?} without a barrier"));
            }
            published = true;
        }
        let kept = completion.filter(|base| !writes(text, base));
        match Access::of(text)? {
            Some(access) if is_owner(listing, at, &access) => {
                let kept = Some(access.base).filter(|base| !writes(text, base));
                Ok((Read::Owner, kept))
            }
            Some(access) if !access.store && Some(access.base) == completion => {
                if read == Read::Owner {
                    return Err("is read without a barrier behind the owner bit".into());
                }
                rest = true;
                Ok((Read::Rest, kept))
            }
            _ => Ok((read, kept)),
        }
    })?;
    match (rest, published) {
        (true, true) => Ok(()),
        (false, _) => Err("no owner bit, or nothing behind it, is read".into()),
        (true, false) => Err("no consumer counter is stored".into()),
    }
}

/// Whether a call preserves a register.
fn saved(register: &str) -> bool {
    register[1..].parse::<u32>().is_ok_and(|number| number >= 19)
}

/// Whether the access reads a big-endian word at the offset of the owner bit.
fn is_owner(listing: &Listing, at: usize, access: &Access<'_>) -> bool {
    if access.store || access.size != 4 || access.offset != OWNER {
        return false;
    }
    let near = listing.0[at + 1..].iter().take(NEAR);
    for line in near {
        if line.text.starts_with("rev ") && line.text.ends_with(&format!(", {}", access.register)) {
            return true;
        }
        if writes(&line.text, access.register) || line.jump.is_some() {
            return false;
        }
    }
    false
}

/// Whether the instruction stores a big-endian word with the bits of the consumer counter.
fn is_publishing(listing: &Listing, at: usize) -> Result<bool, String> {
    let Some(store) = Access::of(&listing.0[at].text)? else { return Ok(false) };
    let near = &listing.0[at.saturating_sub(NEAR)..at];
    let swapped = near.iter().rev().find(|line| writes(&line.text, store.register));
    Ok(store.store
        && store.size == 4
        && swapped.is_some_and(|line| line.text.starts_with("rev "))
        && near.iter().any(|line| line.text.ends_with(COUNTER)))
}

#[cfg(test)]
mod tests {
    use super::super::testing::listing;
    use super::*;

    const GOOD: &str = "ldr w1, [x0, #60]; ldr x19, [x0, #120]; ldr w10, [x19, #60]; ldr x9, [x0]; \
                        rev w10, w10; dmb oshld; ldr w2, [x19, #44]; dmb oshld; \
                        and w8, w8, #0xffffff; ldr x9, [x0, #152]; rev w8, w8; str w8, [x9]; ret";

    fn examined(text: &str) -> Result<(), String> {
        in_order(&listing(text))
    }

    #[test]
    fn the_owner_bit_is_read_before_the_rest_and_that_before_the_counter_is_stored() {
        assert_eq!(examined(GOOD), Ok(()));
        let early = GOOD.replacen("dmb oshld; ldr w2, [x19, #44]", "ldr w2, [x19, #44]", 1);
        assert!(examined(&early).is_err_and(|fault| fault.contains("behind the owner bit")));
        let late = "ldr w2, [x19, #44]; dmb oshld; dmb oshld";
        let late = GOOD.replacen("dmb oshld; ldr w2, [x19, #44]; dmb oshld", late, 1);
        assert!(examined(&late).is_err(), "the barrier behind what it is to order");
        let open = GOOD.replacen("dmb oshld; and", "and", 1);
        assert!(examined(&open).is_err_and(|fault| fault.contains("consumer counter")));
    }

    #[test]
    fn a_barrier_among_processors_is_none_for_a_device() {
        for weak in ["dmb ishld", "dmb ish"] {
            assert!(examined(&GOOD.replacen("dmb oshld", weak, 1)).is_err(), "{weak}");
        }
        assert!(examined(&GOOD.replacen("dmb oshld", "dmb oshst", 1)).is_err(), "of stores");
    }

    #[test]
    fn a_function_that_does_none_of_it_is_found() {
        assert!(examined("ret").is_err());
        assert!(examined(&GOOD.replace("rev w10, w10; ", "")).is_err(), "no owner bit");
        assert!(examined(&GOOD.replace("rev w8, w8; ", "")).is_err(), "no counter");
    }

    #[test]
    fn every_way_is_followed() {
        let around = GOOD.replacen("rev w10, w10; dmb", "rev w10, w10; tbnz >7; dmb", 1);
        assert!(examined(&around).is_err(), "around the barrier");
        let empty = GOOD.replacen("rev w10, w10; dmb", "rev w10, w10; tbnz >14; dmb", 1);
        assert_eq!(examined(&format!("{empty}; mov w0, #0x0; ret")), Ok(()));
    }

    #[test]
    fn the_next_completion_is_in_another_register() {
        let on = GOOD.replacen("ldr w2, [x19, #44]", "ldr w2, [x19, #44]; mov x19, x7", 1);
        assert_eq!(examined(&on), Ok(()));
        let other = GOOD.replacen("rev w10, w10; dmb", "rev w10, w10; mov x19, x7; dmb", 1);
        assert!(examined(&other).is_err(), "nothing more of it is read");
    }
}
