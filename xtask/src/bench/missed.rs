//! Bars that are missed, and by how much: neither by more nor by less than it says here.
//!
//! The functions that are named are in machine code: see `cargo xtask asm`.
//!
//! Of nanoseconds there is no such list, because they differ from run to run. docs/BENCHMARKS.md
//! says what is over its bar there (`OVER_TIME` in report.rs).

use super::rival::Rival;

/// A bar that is missed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Missed {
    pub(super) case: &'static str,
    pub(super) who: &'static str,
    pub(super) mode: &'static str,
    pub(super) rival: Rival,
    /// The ratio that is reached, in instructions.
    pub(super) ratio: f64,
}

/// One a line.
macro_rules! missed {
    ($($who:literal $mode:literal $case:literal $rival:expr => $ratio:literal;)*) => {
        pub(super) const MISSED: &[Missed] = &[$(Missed {
            case: $case,
            who: $who,
            mode: $mode,
            rival: $rival,
            ratio: $ratio,
        }),*];
    };
}

const FLOOR: Rival = Rival::Floor { besides: 0 };
const LOCKED_FLOOR: Rival = Rival::Floor { besides: 12 * 16 };
const LOCKED_BATCH_FLOOR: Rival = Rival::Floor { besides: 12 };

missed! {
    // By one instruction: the function has code for each operation and form of data, and keeps the
    // position in memory.
    "mlx5" "single" "list16_inline8" Rival::C => 0.606;
    // The next request waits for the key, so a batch starts and completes with all checks (141).
    // Queue and key each keep the change until it is known to be executed (123). Lists go through
    // the questions that signatures and interleaved layouts need.
    "mlx5" "single" "mkey_configure" Rival::C => 1.262;
    "mlx5" "single" "mkey_configure" FLOOR => 2.703;
    "mlx5-verbs-wr" "default" "mkey_configure" Rival::SameProgram => 1.633;
    // Requests of one packet, unsignaled: whether the batch is checked (2), the length (3), that a
    // signaled request has room after it (6), and the record of each (9), where the floor has one
    // for the batch.
    "mlx5" "single" "eth_send32" FLOOR => 1.695;
    // In post_inline8. The block of the ring and its record; the doorbell record, which has the
    // gate beside it; the counter that the poller reads, which is alone, or the poller would take
    // the line from the poster with each look; and two of the queue itself (`HOT` in
    // wqe/src/send/queue.rs): seven addresses, four words of the register, and ten counters, masks
    // and limits are 124 bytes. Offsets instead of addresses would have to be added up for each
    // post.
    "mlx5" "single" "post_inline8_on_10000" Rival::Lines => 6.000;
    // In find_completion, whose first part is this case. By 0.1 of an instruction: the record of
    // the block before is looked at, as below.
    "mlx5" "single" "poll_sparse2" Rival::Case("poll1") => 1.302;
    "mlx5" "single" "poll_sparse16" Rival::Case("poll1") => 1.302;
    // In find_completion. A record more is looked at, for each of sixteen: how far the block is
    // ahead (2), that the requests before it are outstanding (4), the record's place (6), the
    // record (2), whether it is of that block (4), and its number, which is retired (1).
    "mlx5" "single" "poll16_sparse2" Rival::Case("poll16") => 1.384;
    "mlx5" "single" "poll16_sparse16" Rival::Case("poll16") => 1.384;
    // In Run_expand and find_completion. A mini CQE becomes a CQE in memory of the poller (32, of
    // which 8 copy the title), which is then polled as one of the ring is; its slot is marked as
    // not written (3), or what it holds would be taken for a CQE on the next lap; the first and the
    // last of a run of 64 take the slow path (11 of each of the 64, and where sixteen are polled
    // what is left of these is polled there too).
    "mlx5" "single" "poll1_compressed" Rival::Case("poll1") => 1.730;
    "mlx5" "single" "poll16_compressed" Rival::Case("poll16") => 1.963;
    // As beside plain completions, in Run_expand: the floor reads a mini CQE where it lies, and
    // asks nothing of the queue. A poller that hands out completions needs a CQE of each, because
    // its fields are read later.
    "mlx5" "single" "poll1_compressed" FLOOR => 2.260;
    "mlx5" "single" "poll16_compressed" FLOOR => 2.264;
    // In each_behind. A packet: that its CQE is of the next stride (5), of this queue (3), that its
    // strides are left (2) and hold it (5). The floor believes the device. Which request it is of
    // (5): without that a device that names another one would be believed.
    "mlx5" "single" "eth_recv32_multi" FLOOR => 1.756;
    // In each_behind_2. Of what stands beside the bar of 120, the floor has not the list of what is
    // to be sent (13), nor whose receives those are and what is being sent (8): it sends all of a
    // burst in the order in which it came, and counts receives, not packets. Nor does it check
    // packets, as above (15).
    "mlx5" "single" "eth_forward32" FLOOR => 3.033;
    // In SharedReceiveQueue_recv_slow and SharedReceiveQueue_extend_run. A post takes 176 where the
    // places of a word were taken, and 73 more where it takes a word: of 1,024 places four that are
    // free share one, of 32,768 each lies alone in its word. Eight marks are looked at on average,
    // at four instructions. With marks that are bits it was 222 beside 193, but each poll took five
    // more, because it sets them.
    "mlx5" "single" "post_srq_recv_random_32768" Rival::Case("post_srq_recv_random_1024") => 1.305;
    // Both kinds of receive queue post by one function: the place of a request is a value, and the
    // room is compared for each request of a list (4), where the floor compares once.
    "mlx5" "single" "post_recv16" FLOOR => 1.557;
    "mlx5" "shared" "post_recv1" LOCKED_FLOOR => 2.572;
    "mlx5" "shared" "post_recv16" LOCKED_BATCH_FLOOR => 1.548;
    // A packet: the room of its new receive, as above.
    "mlx5" "single" "eth_recv32" Rival::C => 0.451;
    "mlx5" "single" "eth_recv32" FLOOR => 1.552;
}
