//! Bars that are missed, and by how much: neither by more nor by less than it says here.

use super::rival::Rival;

/// A bar that is missed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Missed {
    pub(super) case: &'static str,
    pub(super) who: &'static str,
    pub(super) mode: &'static str,
    pub(super) rival: Rival,
    /// What is reached, in instructions.
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
const LOCKED_FLOOR: Rival = Rival::Floor { besides: 12 };

missed! {
    // 159 of 581 note what the request changes of the key until it is executed, because one that is lost,
    // cancelled or aborted changes nothing; C has no such note. Without them it would be 0.72: 310 of the
    // rest check the pieces and write the blocks, as C's do, and 38 copy these to the register.
    "mlx5" "single" "mkey_configure" Rival::C => 0.993;
    // Beside the floor, in benches/asm/poll_one.s: the word that stops a forked child, which has no CQEs to
    // look at (4); whose queue the CQE is of, where the floor has one queue (4); whether its request is
    // outstanding (4) and begins at the block that the CQE names (4), where the floor believes the device;
    // the operation, from a table, because a request's kind is not the CQE's (3); the consumer index for
    // threads that destroy queues (2); a register that is saved (2), and a second one for the result (1).
    // The block as the lowest bits of a record would save 2 here, and take 4 in a list of requests.
    "mlx5" "single" "poll1" FLOOR => 1.575;
    "mlx5" "shared" "poll1" LOCKED_FLOOR => 1.575;
    // The block of the ring and its record; the doorbell record, which has the gate beside it; the counter
    // that the poller reads, which is alone, or the poller would take the line from the poster with each
    // look; and two of the queue itself (`HOT` in wqe/src/send/queue.rs): seven addresses, four words of
    // the register, and ten counters, masks and limits are 124 bytes. Offsets instead of addresses would
    // have to be added up for each post.
    "mlx5" "single" "post_inline8_on_10000" Rival::Lines => 6.000;
    // By 0.1 of an instruction: the record of the block before is looked at, as below.
    "mlx5" "single" "poll_sparse2" Rival::Case("poll1") => 1.302;
    "mlx5" "single" "poll_sparse16" Rival::Case("poll1") => 1.302;
    // A record more is looked at, for each of sixteen: how far the block is ahead (2), that so many requests
    // are outstanding (4), the record's place (6), the record (2), whether it is of that block (4), and its
    // number, which is retired (1).
    "mlx5" "single" "poll16_sparse2" Rival::Case("poll16") => 1.384;
    "mlx5" "single" "poll16_sparse16" Rival::Case("poll16") => 1.384;
    // A mini CQE becomes a CQE in memory of the poller (32, of which 8 copy the title), which is then polled
    // as one of the ring is; its slot is marked as not written (3), or what it holds would be taken for a CQE
    // on the next lap; the first and the last of a run of 64 take the slow path (11 of each of the 64, and
    // where sixteen are polled what is left of these is polled there too).
    "mlx5" "single" "poll1_compressed" Rival::Case("poll1") => 1.730;
    "mlx5" "single" "poll16_compressed" Rival::Case("poll16") => 1.963;
    // By half an instruction. The gate is asked once more where the batch completes (4): the queue pair may have
    // left its state.
    "mlx5-verbs-wr" "default" "post_sge" Rival::SameProgram => 0.552;
    // As above, and 211 of the door itself: a call for each setter, and a list that is copied between them.
    "mlx5-verbs-wr" "default" "mkey_configure" Rival::SameProgram => 1.355;
    // A ring in pages that another had is zeroed here; C's are mapped anew, and the kernel zeroes them, whose
    // instructions are not counted.
    "mlx5-verbs-create_qp" "default" "create_destroy_qp" Rival::SameProgram => 1.341;
}
