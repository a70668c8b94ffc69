//! Follows the ways through a function.

use std::collections::{HashMap, HashSet, VecDeque};

use super::listing::{self, Instruction, Listing};

/// Limits for a way.
#[derive(Clone, Copy)]
pub(super) struct Allowed {
    pub(super) locks: usize,
    pub(super) calls: usize,
}

/// Finds the shortest way from a function's start past a landmark to its return with no more locks
/// and calls than are allowed; returns its number of instructions. Fails if reachable code can
/// panic or divide.
pub(super) fn examine(
    listing: &Listing,
    landmark: impl Fn(&str) -> bool,
    allowed: Allowed,
) -> Result<usize, String> {
    if let Some(panic) = reachable(listing).find(|line| is_panic(&line.text)) {
        return Err(format!("may panic: {}", panic.text));
    }
    if let Some(division) = reachable(listing).find(|line| is_division(&line.text)) {
        return Err(format!("divides: {}", division.text));
    }
    // The state: current instruction, landmark passed, locks taken, calls made.
    let mut seen: HashMap<(usize, bool, usize, usize), usize> = HashMap::new();
    let mut open = VecDeque::from([((0, false, 0, 0), 1)]);
    while let Some((state, length)) = open.pop_front() {
        let (at, passed, locks, calls) = state;
        let Some(Instruction { text, jump }) = listing.0.get(at) else { continue };
        let passed = passed || landmark(text);
        let locks = locks + usize::from(is_lock(text));
        // A jump to another function is a call, and then a return.
        let named = text.starts_with("jmp _") || text.starts_with("b _");
        let last = jump.is_none() && named;
        let calls = calls + usize::from(is_call(text) || last);
        if text.starts_with("ud") || locks > allowed.locks || calls > allowed.calls {
            continue;
        }
        if text.starts_with("ret") || last {
            if passed {
                return Ok(length);
            }
            continue;
        }
        let next = goes_on(text).then_some(at + 1);
        for next in [*jump, next].into_iter().flatten() {
            let state = (next, passed, locks, calls);
            if seen.insert(state, length).is_none() {
                open.push_back((state, length + 1));
            }
        }
    }
    let Allowed { locks, calls } = allowed;
    Err(format!("no way to succeed with at most {locks} locks and {calls} calls"))
}

/// Maximum number of stores after the second barrier: the half of the register to use next, the
/// register's lock, and results that are returned through memory.
const STORES_AFTER: usize = 4;

/// Checks that on every path without a call the doorbell is last: a store (the doorbell record)
/// comes before the first `barrier`, another one (the doorbell) before the second, and at most
/// [`STORES_AFTER`] after that.
pub(super) fn rings_last(listing: &Listing, barrier: impl Fn(&str) -> bool) -> Result<(), String> {
    // The state: current instruction, barriers passed, whether a store came since the last one, and
    // stores after the second one.
    let start = (0, 0, false, 0);
    let (mut seen, mut open) = (HashSet::from([start]), vec![start]);
    while let Some((at, barriers, stored, after)) = open.pop() {
        let Some(Instruction { text, jump }) = listing.0.get(at) else { continue };
        if is_call(text) || text.starts_with("ud") {
            continue;
        }
        let (mut barriers, mut stored, mut after) = (barriers, stored, after);
        if barrier(text) {
            if !stored {
                return Err(format!("barrier {} has no store before it", barriers + 1));
            }
            (barriers, stored) = (barriers + 1, false);
        } else if is_store(text) {
            stored = true;
            after += usize::from(barriers == 2);
        }
        if barriers > 2 || after > STORES_AFTER {
            return Err(format!("goes on after the doorbell: {text}"));
        }
        if text.starts_with("ret") && barriers == 1 {
            return Err("returns between a doorbell and the barrier after it".into());
        }
        let next = goes_on(text).then_some(at + 1);
        for next in [*jump, next].into_iter().flatten() {
            let state = (next, barriers, stored, after);
            if seen.insert(state) {
                open.push(state);
            }
        }
    }
    Ok(())
}

/// Instructions that a function's own jumps reach from its start; landing pads of unwinding are not
/// among them.
fn reachable(listing: &Listing) -> impl Iterator<Item = &Instruction> {
    let mut seen = vec![false; listing.len()];
    let mut open = vec![0];
    while let Some(at) = open.pop() {
        if let Some(false) = seen.get(at).copied() {
            seen[at] = true;
            let Instruction { text, jump } = &listing.0[at];
            open.extend(*jump);
            open.extend((goes_on(text) && !is_panic(text)).then_some(at + 1));
        }
    }
    listing.0.iter().zip(seen).filter(|(_, seen)| *seen).map(|(line, _)| line)
}

/// Whether execution may continue with the next instruction.
pub(crate) fn goes_on(text: &str) -> bool {
    let name = text.split(' ').next().unwrap_or(text);
    !matches!(name, "jmp" | "b" | "br") && !text.starts_with("ret") && !text.starts_with("ud")
}

pub(crate) fn is_panic(text: &str) -> bool {
    let panics = ["panic", "unwrap_failed", "expect_failed", "handle_alloc_error"];
    is_call(text) && panics.iter().any(|of| text.contains(of))
}

pub(crate) fn is_call(text: &str) -> bool {
    text.split(' ').next().is_some_and(listing::is_call)
}

fn is_division(text: &str) -> bool {
    let name = text.split(' ').next().unwrap_or(text);
    matches!(name, "div" | "idiv" | "udiv" | "sdiv")
}

/// Whether an instruction stores to memory other than the stack.
fn is_store(text: &str) -> bool {
    let (name, operands) = text.split_once(' ').unwrap_or((text, ""));
    let to = operands.split(',').next().unwrap_or(operands);
    let moves = name.starts_with("mov") && to.contains('[') && !to.contains("[rsp");
    let aarch64 = name.starts_with("st") && operands.contains('[') && !operands.contains("[sp");
    moves || aarch64
}

fn is_lock(text: &str) -> bool {
    let exclusive = ["ldxr", "ldaxr", "cas", "swp", "ldadd", "ldset", "ldclr"];
    text.starts_with("lock ")
        || text.starts_with("xchg") && text.contains('[')
        || exclusive.iter().any(|of| text.starts_with(of))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(lines: &[(&str, Option<usize>)]) -> Listing {
        let line = |&(text, jump): &(&str, _)| Instruction { text: text.into(), jump };
        Listing(lines.iter().map(line).collect())
    }

    fn examined(lines: &[(&str, Option<usize>)], locks: usize) -> Result<usize, String> {
        examine(&listing(lines), |text| text == "sfence", Allowed { locks, calls: 0 })
    }

    #[test]
    fn the_shortest_way_past_the_landmark_counts() {
        let lines =
            [("je", Some(4)), ("mov", None), ("sfence", None), ("ret", None), ("call x", None)];
        assert_eq!(examined(&lines, 0), Ok(4));
    }

    #[test]
    fn a_way_around_the_landmark_is_none() {
        let lines = [("je", Some(3)), ("call x", None), ("sfence", None), ("ret", None)];
        assert!(examined(&lines, 0).is_err());
    }

    #[test]
    fn calls_are_counted() {
        let of = |lines, calls| {
            examine(&listing(lines), |text| text == "sfence", Allowed { locks: 0, calls })
        };
        let lines: &[_] = &[("call x", None), ("sfence", None), ("ret", None)];
        assert!(of(lines, 0).is_err());
        assert_eq!(of(lines, 1), Ok(3));
        let lines: &[_] = &[("sfence", None), ("jmp _x", None)];
        assert!(of(lines, 0).is_err());
        assert_eq!(of(lines, 1), Ok(2));
    }

    #[test]
    fn locks_are_counted() {
        let lines = [("lock cmpxchg [rdi],cl", None), ("sfence", None), ("ret", None)];
        assert!(examined(&lines, 0).is_err());
        assert_eq!(examined(&lines, 1), Ok(3));
    }

    #[test]
    fn a_panic_is_a_fault_wherever_it_is() {
        let lines =
            [("je", Some(3)), ("sfence", None), ("ret", None), ("call core::panicking", None)];
        assert!(examined(&lines, 0).is_err_and(|fault| fault.contains("may panic")));
    }

    #[test]
    fn a_division_is_a_fault() {
        let lines = [("div rcx", None), ("sfence", None), ("ret", None)];
        assert!(examined(&lines, 0).is_err_and(|fault| fault.contains("divides")));
    }

    #[test]
    fn the_doorbell_is_between_two_barriers_and_last() {
        const STORE: (&str, Option<usize>) = ("mov DWORD PTR [rdi+0x8],eax", None);
        const FENCE: (&str, Option<usize>) = ("sfence", None);
        const RETURN: (&str, Option<usize>) = ("ret", None);
        let checked = |lines: &[_]| rings_last(&listing(lines), |text| text == "sfence");
        let good = [STORE, FENCE, STORE, STORE, FENCE, STORE, RETURN];
        assert_eq!(checked(&good), Ok(()));
        assert!(checked(&[FENCE, STORE, FENCE, RETURN]).is_err(), "no record");
        assert!(checked(&[STORE, FENCE, FENCE, RETURN]).is_err(), "no doorbell");
        assert!(checked(&[STORE, FENCE, STORE, RETURN]).is_err(), "no flush");
        let more = [&good[..6], &[STORE; 5], &[RETURN]].concat();
        assert!(checked(&more).is_err(), "the WQE is written after the doorbell");
        assert_eq!(checked(&[("call x", None), STORE, FENCE, RETURN]), Ok(()), "a cold path");
    }

    #[test]
    fn blocks_reached_by_unwinding_alone_are_left_out() {
        let lines = [("sfence", None), ("ret", None), ("call core::panicking", None)];
        assert_eq!(examined(&lines, 0), Ok(2));
    }
}
