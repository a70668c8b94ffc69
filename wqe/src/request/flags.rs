//! Flags of requests.

use mlx5_prm::wqe::control_flags;

bitflags::bitflags! {
    /// Flags of a send request. Their bits are those of the control segment, where it has them.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
    pub struct SendFlags: u8 {
        /// Report a completion.
        const SIGNALED = control_flags::COMPLETION;
        /// Cause an event at the peer's completion queue, if it is armed for solicited completions.
        const SOLICITED = control_flags::SOLICITED;
        /// Start only after all earlier reads and atomics of this queue are done.
        const FENCE = control_flags::FENCE;
        /// Let the device fill in the checksums of IPv4, TCP and UDP headers. Only raw packet
        /// queues support it.
        const IP_CSUM = 1 << 4;
    }
}

impl SendFlags {
    /// The flags that are bits of the control segment.
    pub(crate) const CONTROL: Self = Self::SIGNALED.union(Self::SOLICITED).union(Self::FENCE);
}
