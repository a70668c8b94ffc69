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
    "mlx5" "single" "mkey_configure" Rival::C => 1.000;
    "mlx5" "single" "post_send" FLOOR => 1.209;
    "mlx5" "single" "batch16_inline8" FLOOR => 1.414;
    "mlx5" "single" "batch16_array8" FLOOR => 1.491;
    "mlx5" "single" "batch16_sge" FLOOR => 1.358;
    "mlx5" "single" "post_recv16" FLOOR => 1.505;
    // Beside the floor (benches/asm/poll_one.s): the word that stops a forked child (4), whose queue the
    // CQE is of (3), whether its request is outstanding and starts there (5), the kind in a table, because
    // the operation is asked for (4), the position (3), and a register that is saved (2).
    "mlx5" "single" "poll1" FLOOR => 1.600;
    "mlx5" "single" "empty_poll" FLOOR => 1.236;
    "mlx5" "shared" "poll1" LOCKED_FLOOR => 1.600;
    // The block of the ring, its record, the doorbell record with the gate, the counter that the poller
    // reads, and two of the queue itself: ring, records, register, counters, limits (`HOT` in
    // wqe/src/send/queue.rs).
    "mlx5" "single" "post_inline8_on_10000" Rival::Lines => 6.000;
    // A record more is looked at, for each of sixteen.
    "mlx5" "single" "poll16_sparse2" Rival::Case("poll16") => 1.376;
    "mlx5" "single" "poll16_sparse16" Rival::Case("poll16") => 1.376;
    "mlx5" "single" "poll1_compressed" Rival::Case("poll1") => 1.726;
    "mlx5" "single" "poll16_compressed" Rival::Case("poll16") => 1.942;
    // The gate is asked once more where the batch completes: the queue pair may have left its state.
    "mlx5-verbs-wr" "default" "post_sge" Rival::SameProgram => 0.563;
    "mlx5-verbs-wr" "default" "mkey_configure" Rival::SameProgram => 1.355;
    // A ring in pages that another had is zeroed here; C's are mapped anew, and the kernel zeroes them, whose
    // instructions are not counted.
    "mlx5-verbs-create_qp" "default" "create_destroy_qp" Rival::SameProgram => 1.341;
}
