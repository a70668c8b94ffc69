//! The cases, one file a subject.

mod altered_kernel;
mod tag_rig;

use crate::case::Case;

/// One file a line.
macro_rules! subjects {
    ($($subject:ident)*) => {
        $(mod $subject;)*

        /// Every case.
        pub(crate) fn all() -> impl Iterator<Item = &'static Case> {
            [$($subject::CASES),*].into_iter().flatten()
        }
    };
}

subjects! {
    completions
    streams
    wraps
    cqe_forms
    overruns
    waiting
    full
    lengths
    operations
    paths
    protection
    retries
    rings
    polling
    user_tags
    posting
    threads
    shared
    states
    flush
    doorbells
    datagrams
    packets
    ethernet_queue
    striding
    segments
    steering
    scaling
    rough_frames
    devices
    memory
    views
    queue_pairs
    handles
    transitions
    completion_queues
    shared_receive
    atomics
    windows
    extended
    reregistered
    tag_extended
    tag_list
    tag_messages
    tag_model
    tag_phases
    addresses
    events
    lifetime
    faults
    hostile
    cancel
    drained
    mkeys
    signatures
    pipelining
    pipelined_keys
    pipelining_model
    weaknesses
    safety
    programs
    process
}
