//! Flags of requests.

use mlx5_prm::wqe::control_flags;

bitflags::bitflags! {
    /// Flags of a send request. The bits are those of the control segment, where it has them.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
    pub struct SendFlags: u8 {
        /// Ask for a completion.
        const SIGNALED = control_flags::COMPLETION;
        /// Cause an event at the receiver's completion queue, if it is armed for these.
        const SOLICITED = control_flags::SOLICITED;
        /// Start only when all earlier reads and atomics of this queue are done.
        const FENCE = control_flags::FENCE;
        /// Let the device fill in the checksums of IPv4, TCP and UDP. Only a queue of raw packets
        /// can; no transport here has it.
        const IP_CSUM = 1 << 4;
    }
}

impl SendFlags {
    /// Those that stand in the control segment.
    pub(crate) const CONTROL: Self = Self::SIGNALED.union(Self::SOLICITED).union(Self::FENCE);
}
