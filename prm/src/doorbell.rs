//! Doorbell records in host memory and doorbell registers in a UAR page.
//!
//! PRM, "UARs and doorbells"; Linux `include/linux/mlx5/doorbell.h`, `cq.h`, `driver.h`.

/// Bytes in a UAR page; newer devices keep 4 KiB pages whatever the host's page size is.
pub const UAR_PAGE: usize = 4096;

/// Offset in a UAR page of the doorbell of completion queues (arming).
pub const CQ_DOORBELL: usize = 0x20;

/// Offsets in a UAR page of the doorbells of event queues: with and without arming
/// (`MLX5_EQ_DOORBEL_OFFSET`, and eight bytes on).
pub const EQ_ARM: usize = 0x40;
/// See [`EQ_ARM`].
pub const EQ_UPDATE: usize = 0x48;

/// Offset in a UAR page of its first BlueFlame register (`MLX5_BF_OFFSET`).
pub const BLUEFLAME: usize = 0x800;

/// BlueFlame registers of a UAR page that user space may use (`MLX5_NON_FP_BFREGS_PER_UAR`).
pub const BLUEFLAME_REGISTERS: usize = 2;

/// A WQE is written to a BlueFlame register in whole units of this many bytes.
pub const BLUEFLAME_UNIT: usize = 64;

/// A doorbell record of a queue pair: two counters of 64-byte (send) or stride (receive) units.
pub mod queue_pair_record {
    /// Offset of the receive counter (`MLX5_RCV_DBR` × 4).
    pub const RECEIVE: usize = 0;
    /// Offset of the send counter (`MLX5_SND_DBR` × 4).
    pub const SEND: usize = 4;
}

/// A doorbell record of a completion queue.
pub mod completion_queue_record {
    /// Offset of the consumer counter (24 bits).
    pub const CONSUMER: usize = 0;
    /// Offset of the arm word.
    pub const ARM: usize = 4;
    /// Bits of the consumer counter that the device reads.
    pub const CONSUMER_MASK: u32 = 0xff_ffff;
    /// Where the two-bit arm sequence number starts in the arm word.
    pub const ARM_SEQUENCE_SHIFT: u32 = 28;
    /// Arm command: any completion causes an event (`MLX5_CQ_DB_REQ_NOT`).
    pub const ARM_NEXT: u32 = 0;
    /// Arm command: a solicited completion or an error causes an event (`MLX5_CQ_DB_REQ_NOT_SOL`).
    pub const ARM_SOLICITED: u32 = 1 << 24;
}

/// Bytes of any doorbell record.
pub const RECORD: usize = 8;
