//! Replaces the kernel's numbers by the order in which they appear.
//!
//! The rule is the same for both sides. It replaces the index of a key that a UMR configures
//! (without its lowest byte), that of the first key that it is built from, the number of its queue
//! pair, and the numbers of signature variables in UMRs and SET_PSVs. Zero, which stands for none,
//! stays, and so does the number that means any queue pair.

use std::mem::offset_of;

use mlx5_prm::signature::{Bsf, SetPsvSegment};
use mlx5_prm::umr::{Klm, MkeyContextSegment, UmrControlSegment, umr_flags};
use mlx5_prm::wqe::{ControlSegment, Opcode, UNIT};

use crate::event::Event;

/// Numbers, in the order in which they appeared.
#[derive(Default)]
struct Order(Vec<[u8; 3]>);

impl Order {
    /// Replaces the three bytes at `at`.
    fn replace(&mut self, wqe: &mut [u8], at: usize) {
        let number: [u8; 3] = wqe[at..at + 3].try_into().expect("three bytes");
        if number == [0; 3] || number == [0xff; 3] {
            return;
        }
        let place = self.0.iter().position(|known| *known == number).unwrap_or_else(|| {
            self.0.push(number);
            self.0.len() - 1
        });
        wqe[at..at + 3].copy_from_slice(&(place as u32 + 1).to_be_bytes()[1..]);
    }
}

#[derive(Default)]
struct Numbers {
    keys: Order,
    variables: Order,
    queue_pairs: Order,
}

impl Numbers {
    fn replace(&mut self, wqe: &mut [u8]) {
        const UMR: usize = size_of::<ControlSegment>();
        let opcode = wqe[3];
        if opcode == Opcode::SetPsv as u8 {
            self.variables.replace(wqe, UMR + offset_of!(SetPsvSegment, psv_index) + 1);
        }
        // A cancelled request is a NOP with its other words unchanged. An invalidation is a UMR,
        // too, but its key is the one in the script.
        let is_umr = [Opcode::Umr as u8, Opcode::Nop as u8].contains(&opcode);
        if !is_umr || wqe.get(UMR).is_none_or(|flags| flags & umr_flags::INLINE == 0) {
            return;
        }
        self.keys.replace(wqe, offset_of!(ControlSegment, immediate));
        const CONTEXT: usize = UMR + size_of::<UmrControlSegment>();
        self.queue_pairs.replace(wqe, CONTEXT + offset_of!(MkeyContextSegment, qpn_mkey));
        const LIST: usize = CONTEXT + size_of::<MkeyContextSegment>();
        if wqe.len() > LIST {
            self.keys.replace(wqe, LIST + offset_of!(Klm, mkey));
        }
        let at = UMR + offset_of!(UmrControlSegment, offset_or_bsf_octowords);
        let units = u16::from_be_bytes([wqe[at], wqe[at + 1]]);
        if units != 0 {
            let bsf = wqe.len() - usize::from(units) * UNIT;
            for field in [offset_of!(Bsf, memory_format_psv), offset_of!(Bsf, wire_format_psv)] {
                self.variables.replace(wqe, bsf + field + 1);
            }
        }
    }
}

/// Replaces the numbers in all requests that a side posted.
pub(super) fn normalise(events: &mut [Event]) {
    let mut numbers = Numbers::default();
    for event in events {
        let Event::Post(_, post) = event else { continue };
        for wqe in &mut post.wqes {
            numbers.replace(wqe);
        }
        // The register has the last request, or its first words, which have none of the numbers.
        if let (Some(rung), Some(last)) = (&mut post.rung, post.wqes.last())
            && rung.bytes.len() >= last.len()
        {
            numbers.replace(&mut rung.bytes[..last.len()]);
        }
    }
}
