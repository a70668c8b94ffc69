//! Bars that are missed, and by how much. Nothing may miss its bar by more.

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
    "mlx5" "single" "mkey_configure" Rival::C => 0.992;
    "mlx5" "single" "post_inline8" FLOOR => 1.440;
    "mlx5" "single" "post_sge" FLOOR => 1.274;
    "mlx5" "single" "post_send" FLOOR => 1.298;
    "mlx5" "single" "batch16_inline8" FLOOR => 1.925;
    "mlx5" "single" "batch16_sge" FLOOR => 1.480;
    "mlx5" "single" "post_ud" FLOOR => 1.277;
    // Beside the floor (benches/asm/poll_one.s): the word that stops a forked child (4), whose queue the
    // CQE is of (3), whether its request is outstanding and starts there (5), the kind in a table, because
    // the operation is asked for (4), the position (3), and a register that is saved (2).
    "mlx5" "single" "poll1" FLOOR => 1.600;
    "mlx5" "single" "poll16" FLOOR => 1.350;
    "mlx5" "single" "empty_poll" FLOOR => 1.236;
    "mlx5" "shared" "post_inline8" LOCKED_FLOOR => 1.467;
    "mlx5" "shared" "post_sge" LOCKED_FLOOR => 1.274;
    "mlx5" "shared" "post_send" LOCKED_FLOOR => 1.268;
    "mlx5" "shared" "poll1" LOCKED_FLOOR => 1.618;
    // 232 instructions became 221, and those of one queue pair 187 became 175.
    "mlx5" "single" "round_inline8_on_10000" Rival::Case("round_inline8_on_1") => 1.258;
    "mlx5" "single" "poll1_compressed" Rival::Case("poll1") => 1.718;
    "mlx5" "single" "poll16_compressed" Rival::Case("poll16") => 1.932;
    "mlx5-verbs-wr" "default" "mkey_configure" Rival::SameProgram => 1.980;
}
