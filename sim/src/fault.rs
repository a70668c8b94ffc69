//! Faults that a test can inject into a device.

use std::error::Error;
use std::fmt;
use std::str::FromStr;

use mlx5_prm::cqe::Syndrome;

/// A fault to inject.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Loses the next packets that the device sends.
    DropPackets(u32),
    /// Flips a bit in the data of each of the next packets that the device sends.
    CorruptPackets(u32),
    /// The next signature that is checked under this key, or under any, does not match.
    FailSignature {
        /// The memory key, as a whole; any if `None`.
        mkey: Option<u32>,
    },
    /// The next request of this queue pair, or of any, fails.
    FailRequest {
        /// The queue pair; any if `None`.
        qpn: Option<u32>,
        /// Why it fails.
        syndrome: Syndrome,
        /// The vendor's code in the completion.
        vendor: u8,
    },
    /// Each of the next receives of shared receive queues meets a page fault of on-demand memory.
    /// The receive completes with that error, the queue pair continues, and the message comes
    /// again, which may meet the next page fault.
    FaultReceives(u32),
    /// This number of times, a message takes the second of the waiting receives of a shared receive
    /// queue, and the next message the first. Receives then complete in another order than they
    /// were posted in, as happens when long messages to several queue pairs overlap.
    ReorderReceives(u32),
    /// Reports each of the next asynchronous events twice.
    DuplicateEvents(u32),
    /// Holds back the next asynchronous events until there are this many, then reports them
    /// latest first.
    ReorderEvents(u32),
    /// Overwrites bytes of the next completion entry of this queue, or of any.
    CorruptCqe {
        /// The completion queue; any if `None`.
        cqn: Option<u32>,
        /// Offsets in the 64-byte descriptor, and the bytes to write there.
        patch: Vec<(u8, u8)>,
    },
    /// Puts this completion queue in the state after an overrun; if it does not exist yet, at its
    /// first completion.
    OverrunCq(u32),
    /// The device executes nothing until [`Fault::Resume`].
    Stall,
    /// Ends [`Fault::Stall`].
    Resume,
    /// The device reports a fatal error and executes nothing more.
    Fatal,
    /// The device is removed: as [`Fault::Fatal`], and nothing answers any more.
    Remove,
}

/// The name of a fault, as [`Fault::from_str`] parses it.
struct Name {
    name: &'static str,
    /// Syntax of the value after the name and a colon; empty if there is none.
    takes: &'static str,
    make: fn(&str) -> Option<Fault>,
}

const NAMES: [Name; 14] = [
    Name { name: "drop-packets", takes: "N", make: |n| Some(Fault::DropPackets(n.parse().ok()?)) },
    Name {
        name: "corrupt-packets",
        takes: "N",
        make: |n| Some(Fault::CorruptPackets(n.parse().ok()?)),
    },
    Name {
        name: "fail-signature",
        takes: "",
        make: |none| none.is_empty().then_some(Fault::FailSignature { mkey: None }),
    },
    Name { name: "fail-request", takes: "SYNDROME", make: fail_request },
    Name {
        name: "fault-receives",
        takes: "N",
        make: |n| Some(Fault::FaultReceives(n.parse().ok()?)),
    },
    Name {
        name: "reorder-receives",
        takes: "N",
        make: |n| Some(Fault::ReorderReceives(n.parse().ok()?)),
    },
    Name {
        name: "duplicate-events",
        takes: "N",
        make: |n| Some(Fault::DuplicateEvents(n.parse().ok()?)),
    },
    Name {
        name: "reorder-events",
        takes: "N",
        make: |n| Some(Fault::ReorderEvents(n.parse().ok()?)),
    },
    Name { name: "corrupt-cqe", takes: "OFFSET=BYTE", make: corrupt_cqe },
    Name { name: "overrun-cq", takes: "CQN", make: |cqn| Some(Fault::OverrunCq(word(cqn)?)) },
    Name { name: "stall", takes: "", make: |none| none.is_empty().then_some(Fault::Stall) },
    Name { name: "resume", takes: "", make: |none| none.is_empty().then_some(Fault::Resume) },
    Name { name: "fatal", takes: "", make: |none| none.is_empty().then_some(Fault::Fatal) },
    Name { name: "remove", takes: "", make: |none| none.is_empty().then_some(Fault::Remove) },
];

fn fail_request(syndrome: &str) -> Option<Fault> {
    let syndrome = Syndrome::from_bits(byte(syndrome)?)?;
    Some(Fault::FailRequest { qpn: None, syndrome, vendor: 0 })
}

fn corrupt_cqe(patch: &str) -> Option<Fault> {
    let (offset, value) = patch.split_once('=')?;
    let offset = byte(offset).filter(|offset| *offset < 64)?;
    Some(Fault::CorruptCqe { cqn: None, patch: vec![(offset, byte(value)?)] })
}

/// A number in decimal, or in hexadecimal after `0x`.
fn word(text: &str) -> Option<u32> {
    match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

fn byte(text: &str) -> Option<u8> {
    word(text)?.try_into().ok()
}

/// A text that names no [`Fault`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownFault {
    text: String,
}

impl fmt::Display for UnknownFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = NAMES.map(|Name { name, takes, .. }| match takes {
            "" => name.to_owned(),
            takes => format!("{name}:{takes}"),
        });
        write!(f, "\"{}\" is not a fault; known are {}", self.text, known.join(", "))
    }
}

impl Error for UnknownFault {}

/// Parses the name of a fault: `drop-packets:3`, `corrupt-packets:N`, `fail-signature`,
/// `fail-request:0x15` (the syndrome that the completion reports), `fault-receives:N`,
/// `reorder-receives:N`, `duplicate-events:N`, `reorder-events:N`, `corrupt-cqe:OFFSET=BYTE`,
/// `overrun-cq:CQN`, `stall`, `resume`, `fatal`, `remove`. A fault that is given by name strikes
/// any queue pair, key or queue. The queue to overrun has a number, and need not exist yet: then
/// its first completion overruns it.
///
/// ```
/// assert_eq!("drop-packets:3".parse(), Ok(mlx5_sim::Fault::DropPackets(3)));
/// ```
impl FromStr for Fault {
    type Err = UnknownFault;

    fn from_str(text: &str) -> Result<Self, UnknownFault> {
        let (name, value) = text.split_once(':').unwrap_or((text, ""));
        let known = NAMES.iter().find(|known| known.name == name);
        let fault = known.and_then(|known| (known.make)(value));
        fault.ok_or_else(|| UnknownFault { text: text.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_has_a_name() {
        for (text, fault) in [
            ("drop-packets:3", Fault::DropPackets(3)),
            ("corrupt-packets:1", Fault::CorruptPackets(1)),
            ("fail-signature", Fault::FailSignature { mkey: None }),
            (
                "fail-request:0x15",
                Fault::FailRequest { qpn: None, syndrome: Syndrome::RetryExceeded, vendor: 0 },
            ),
            ("fault-receives:2", Fault::FaultReceives(2)),
            ("reorder-receives:2", Fault::ReorderReceives(2)),
            ("duplicate-events:2", Fault::DuplicateEvents(2)),
            ("reorder-events:4", Fault::ReorderEvents(4)),
            ("corrupt-cqe:63=0xff", Fault::CorruptCqe { cqn: None, patch: vec![(63, 255)] }),
            ("stall", Fault::Stall),
            ("resume", Fault::Resume),
            ("fatal", Fault::Fatal),
            ("remove", Fault::Remove),
            ("overrun-cq:0x405", Fault::OverrunCq(0x405)),
        ] {
            // A new variant must be added to the list above, too.
            match &fault {
                Fault::DropPackets(_)
                | Fault::CorruptPackets(_)
                | Fault::FailSignature { .. }
                | Fault::FailRequest { .. }
                | Fault::FaultReceives(_)
                | Fault::ReorderReceives(_)
                | Fault::DuplicateEvents(_)
                | Fault::ReorderEvents(_)
                | Fault::CorruptCqe { .. }
                | Fault::OverrunCq(_)
                | Fault::Stall
                | Fault::Resume
                | Fault::Fatal
                | Fault::Remove => {}
            }
            assert_eq!(text.parse(), Ok(fault));
        }
    }

    #[test]
    fn a_fault_that_is_not_understood_is_told_what_is() {
        for text in [
            "",
            "drop",
            "drop-packets",
            "drop-packets:x",
            "stall:1",
            "remove:0",
            "overrun-cq",
            "fail-request:0xee",
            "corrupt-cqe:64=0",
        ] {
            let error = text.parse::<Fault>().expect_err(text).to_string();
            assert!(error.contains(text) && error.contains("drop-packets:N"), "{error}");
        }
    }
}
