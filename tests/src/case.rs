//! Cases, and what they need.

use crate::bed::Bed;
use crate::failed::Outcome;

bitflags::bitflags! {
    /// What a case needs of the device that it runs on.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub(crate) struct Need: u32 {
        /// Controls that only a simulated device has: faults, counts, another configuration.
        const SIMULATOR = 1 << 0;
        /// A simulated device that moves only when it is stepped.
        const STEP = 1 << 1;
        /// A context with DEVX.
        const DEVX = 1 << 2;
        /// A device with two ports.
        const TWO_PORTS = 1 << 3;
        /// An InfiniBand port.
        const INFINIBAND = 1 << 4;
        /// A RoCE port.
        const ROCE = 1 << 5;
        /// No need, but a wish: to run on every model that is simulated.
        const EVERY_MODEL = 1 << 6;
        /// No other case beside it in the process: it forks, or counts what is the process's.
        const SERIAL = 1 << 7;
        /// A device that matches tags.
        const TAG_MATCHING = 1 << 20;
        /// What it leaves behind, objects or violations, is part of the case: it looks itself.
        const DIRTY = 1 << 8;
        /// A BlueFlame register.
        const BLUEFLAME = 1 << 9;
        /// A kernel that lets requests change the lowest byte of a key.
        const UPDATE_TAG = 1 << 10;
        /// A send queue that drains on a signature error, and a kernel that brings it back to work.
        const PIPELINING = 1 << 11;
        /// Completions that carry the time of day.
        const REAL_TIME = 1 << 12;
    }
}

/// A case: a sentence about the driver, and what shows it.
pub(crate) struct Case {
    /// The sentence, behind the name of its file.
    pub(crate) name: &'static str,
    /// What it needs.
    pub(crate) need: Need,
    /// What shows it.
    pub(crate) run: fn(&Bed) -> Outcome,
}

/// A table of cases: one function a line, and behind a colon what it needs.
macro_rules! cases {
    ($($case:ident $(: $($need:ident)|+)?),* $(,)?) => {
        &[$(
            $crate::case::Case {
                name: concat!(module_path!(), "::", stringify!($case)),
                need: $crate::case::Need::empty()$($(.union($crate::case::Need::$need))+)?,
                run: $case,
            }
        ),*]
    };
}
pub(crate) use cases;
