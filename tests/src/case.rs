//! Cases, and what they need.

use crate::bed::Bed;
use crate::failed::Outcome;
use mlx5::mkey::SignatureCaps;
use mlx5::{Context, Error};
use mlx5_sim::SimConfig;

bitflags::bitflags! {
    /// The features that a case needs of its device.
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
        /// A wish, not a need: to run on every model that is simulated.
        const EVERY_MODEL = 1 << 6;
        /// No other case at the same time in the process: the case forks, or counts things of the
        /// process.
        const SERIAL = 1 << 7;
        /// Rules that give a queue pair copies of all packets of a port.
        const SNIFFER = 1 << 17;
        /// A device that matches tags.
        const TAG_MATCHING = 1 << 20;
        /// The case itself checks the objects and violations that it leaves.
        const DIRTY = 1 << 8;
        /// A BlueFlame register.
        const BLUEFLAME = 1 << 9;
        /// Memory keys with signed blocks.
        const SIGNATURES = 1 << 10;
        /// Signatures of CRC-32C.
        const CRC32C = 1 << 11;
        /// Send queues that drain on signature errors.
        const PIPELINING = 1 << 12;
        /// Memory keys whose variant (low byte) a request can change.
        const UPDATE_TAG = 1 << 13;
        /// Completions with real-time timestamps.
        const REAL_TIME = 1 << 14;
        /// Raw packet queue pairs, and the right to use them, on an Ethernet port.
        const RAW_PACKETS = 1 << 15;
        /// Work queues whose receives packets share.
        const STRIDING = 1 << 16;
        /// Work queues whose receives have as few as eight strides of 64 bytes.
        const FEW_STRIDES = 1 << 18;
        /// No need: the case waits until requests to a peer that is gone have failed, which takes
        /// a card seconds.
        const TIMEOUTS = 1 << 19;
    }
}

/// The features that a device may lack, each with the reason why its cases are skipped.
const LACKING: [(Need, &str); 10] = [
    (Need::DEVX, "the kernel grants no DEVX"),
    (Need::TAG_MATCHING, "the device does not support tag matching"),
    (Need::SIGNATURES, "the device does not support signed memory keys"),
    (Need::CRC32C, "the device does not support CRC-32C signatures"),
    (Need::PIPELINING, "kernel or device does not drain a send queue on a signature error"),
    (Need::UPDATE_TAG, "the kernel does not allow requests to change a key's variant (low byte)"),
    (Need::REAL_TIME, "the device has no real-time timestamps"),
    (Need::RAW_PACKETS, "the device has no raw packet queue pairs"),
    (Need::STRIDING, "the device has no work queues with strides"),
    (Need::FEW_STRIDES, "the device has no receives as short as eight strides of 64 bytes"),
];

impl Need {
    /// The features in [`LACKING`].
    pub(crate) fn capabilities() -> Self {
        LACKING.iter().fold(Self::empty(), |all, (need, _)| all.union(*need))
    }

    /// The reason for the first of these needs that is not in `there`.
    pub(crate) fn lacking(self, there: Self) -> Option<&'static str> {
        let missing = |need: Self| self.contains(need) && !there.contains(need);
        LACKING.iter().find(|(need, _)| missing(*need)).map(|(_, words)| *words)
    }

    /// The features of a simulated device, from its configuration. The driver is not asked: if it
    /// does not find a feature that is there, the case shall fail.
    pub(crate) fn of_simulated(config: &SimConfig) -> Self {
        let has = &config.capabilities;
        let mut there = Self::UPDATE_TAG;
        there.set(Self::DEVX, config.devx);
        there.set(Self::TAG_MATCHING, config.log_tags() > 0);
        there.set(Self::SIGNATURES, has.block_signatures);
        there.set(Self::CRC32C, has.crc32c);
        there.set(Self::PIPELINING, has.drain_sigerr);
        there.set(Self::REAL_TIME, has.real_time);
        there.set(Self::RAW_PACKETS, config.raw_packets);
        there.set(Self::STRIDING, config.raw_packets);
        there.set(Self::FEW_STRIDES, config.raw_packets && has.few_strides);
        there
    }

    /// The features of a real device, from what it and its kernel report. A feature whose absence a
    /// call would report by name counts as present: the case that asks for it gets the better
    /// error.
    pub(crate) fn of_real(context: &Context) -> Result<Self, Error> {
        let mut there = Self::PIPELINING | Self::UPDATE_TAG | Self::REAL_TIME | Self::RAW_PACKETS;
        there.set(Self::DEVX, context.has_devx());
        let striding = context.query_device().ethernet.striding;
        there.set(Self::STRIDING, striding.is_some());
        there.set(Self::FEW_STRIDES, striding.is_some_and(|caps| caps.takes(64, 8)));
        there.set(Self::TAG_MATCHING, context.query_device().tag_matching.max_num_tags > 0);
        if context.has_devx() {
            let caps = context.signature_caps()?;
            there.set(Self::SIGNATURES, caps.contains(SignatureCaps::BLOCKS));
            there.set(Self::CRC32C, caps.contains(SignatureCaps::CRC32C));
        }
        Ok(there)
    }
}

/// A case: a sentence about the driver, and the function that checks it.
pub(crate) struct Case {
    /// The sentence, after the name of its file.
    pub(crate) name: &'static str,
    /// The features that it needs.
    pub(crate) need: Need,
    /// The function that checks the sentence.
    pub(crate) run: fn(&Bed) -> Outcome,
}

/// A table of cases: one function a line, with its needs after a colon.
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
