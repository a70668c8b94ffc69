//! Follows the ways through a function and decodes its instructions.

use std::collections::HashSet;
use std::hash::Hash;

use crate::asm::flow::{goes_on, is_panic};
use crate::asm::listing::{Instruction, Listing};

/// The barriers toward a device that the hot functions may contain.
pub(super) const TO_DEVICE: &str = "dmb oshst";
pub(super) const FROM_DEVICE: &str = "dmb oshld";
pub(super) const WRITE_COMBINING: &str = "dsb st";

/// Follows every way from a function's start to its returns. It does not follow calls. `step`
/// returns the state after an instruction, or the fault.
pub(super) fn every_way<S: Copy + Eq + Hash>(
    listing: &Listing,
    start: S,
    mut step: impl FnMut(usize, S) -> Result<S, String>,
) -> Result<(), String> {
    let mut seen = HashSet::from([(0, start)]);
    let mut open = vec![(0, start)];
    while let Some((at, state)) = open.pop() {
        let Some(Instruction { text, jump }) = listing.0.get(at) else { continue };
        let state = step(at, state).map_err(|wrong| format!("{text}: {wrong}"))?;
        let next = (goes_on(text) && !is_panic(text)).then_some(at + 1);
        for next in [*jump, next].into_iter().flatten() {
            if seen.insert((next, state)) {
                open.push((next, state));
            }
        }
    }
    Ok(())
}

/// The barrier, if the instruction is one.
pub(super) fn barrier(text: &str) -> Result<Option<&'static str>, String> {
    if !text.starts_with("dmb") && !text.starts_with("dsb") {
        return Ok(None);
    }
    let known = [TO_DEVICE, FROM_DEVICE, WRITE_COMBINING];
    match known.into_iter().find(|barrier| *barrier == text) {
        Some(barrier) => Ok(Some(barrier)),
        None => Err("is no barrier for a device".into()),
    }
}

/// A load or store.
pub(super) struct Access<'a> {
    pub(super) store: bool,
    /// Size in bytes.
    pub(super) size: u32,
    /// The first register that is loaded or stored.
    pub(super) register: &'a str,
    /// The register with the address.
    pub(super) base: &'a str,
    /// The text in the brackets after it.
    pub(super) offset: &'a str,
}

impl<'a> Access<'a> {
    /// The memory access of an instruction; `None` if it has none or accesses the stack.
    pub(super) fn of(text: &'a str) -> Result<Option<Self>, String> {
        let (name, operands) = text.split_once(' ').unwrap_or((text, ""));
        let store = name.starts_with("st");
        if !store && !name.starts_with("ld") {
            return Ok(None);
        }
        let unknown = || "an access of unknown size".to_owned();
        let (registers, address) = operands.split_once('[').ok_or_else(unknown)?;
        let address = address.split(']').next().unwrap_or(address);
        let (base, offset) = address.split_once(", ").unwrap_or((address, ""));
        if matches!(base, "sp" | "x29") {
            return Ok(None);
        }
        let single = match registers.as_bytes().first() {
            Some(b'w' | b's') => 4,
            Some(b'x' | b'd') => 8,
            Some(b'q') => 16,
            _ => return Err(unknown()),
        };
        let size = match name.as_bytes().last() {
            _ if matches!(name, "ldp" | "stp" | "ldnp" | "stnp") => 2 * single,
            _ if name.ends_with("sw") => 4,
            Some(b'b') => 1,
            Some(b'h') => 2,
            _ => single,
        };
        let register = registers.split(',').next().unwrap_or(registers).trim();
        Ok(Some(Self { store, size, register, base, offset }))
    }
}

/// Whether an instruction writes a register, under any of its names.
pub(super) fn writes(text: &str, register: &str) -> bool {
    let (name, operands) = text.split_once(' ').unwrap_or((text, ""));
    let same = |other: &str| other.get(1..) == register.get(1..) && !other.starts_with('#');
    let mut operand = operands.split(", ");
    let compares = matches!(name, "cmp" | "cmn" | "tst" | "ccmp" | "ccmn" | "dmb" | "dsb");
    // `[x1], #8` and `[x1, #8]!` write the address back.
    let back = operands.split_once('[').is_some_and(|(_, address)| {
        (address.contains("], ") || address.ends_with("]!"))
            && address.split([',', ']']).next().is_some_and(same)
    });
    let first = operand.next().is_some_and(same);
    let second = name.starts_with("ldp") && operand.next().is_some_and(same);
    back || (first || second) && !name.starts_with("st") && !compares
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_access_has_a_size_and_an_address() {
        let of = |text| {
            let access = Access::of(text).expect("known").expect("an access");
            (access.store, access.size, access.register, access.base, access.offset)
        };
        assert_eq!(of("ldr x8, [x19, #56]"), (false, 8, "x8", "x19", "#56"));
        assert_eq!(of("stp w9, w10, [x1]"), (true, 8, "w9", "x1", ""));
        assert_eq!(of("stlrh w2, [x10]"), (true, 2, "w2", "x10", ""));
        assert_eq!(of("str q0, [x9, x23, lsl #4]"), (true, 16, "q0", "x9", "x23, lsl #4"));
        assert!(Access::of("str x1, [sp, #8]").is_ok_and(|access| access.is_none()));
        assert!(Access::of("st1 {v0.16b}, [x1]").is_err());
    }

    #[test]
    fn instructions_that_write_a_register_are_known() {
        for text in ["rev w8, w9", "ldr x8, [x1]", "ldp x9, x8, [x1]", "str x1, [x8], #8"] {
            assert!(writes(text, "x8"), "{text}");
        }
        for text in ["str x8, [x1]", "cmp x8, #8", "ldr x1, [x8, #8]", "mov x18, x8", "ret"] {
            assert!(!writes(text, "x8"), "{text}");
        }
    }
}
