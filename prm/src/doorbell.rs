//! Doorbell records in host memory and doorbell registers in a UAR page.
//!
//! PRM, "UARs and doorbells"; Linux `include/linux/mlx5/doorbell.h`, `cq.h`, `driver.h`.

/// Bytes in a UAR page; newer devices keep 4 KiB pages whatever the host's page size.
pub const UAR_PAGE: usize = 4096;

/// Offset in a UAR page of the doorbell that arms completion queues.
pub const CQ_DOORBELL: usize = 0x20;

/// Offset in a UAR page of the event queue doorbell that also arms the queue
/// (`MLX5_EQ_DOORBEL_OFFSET`).
pub const EQ_ARM: usize = 0x40;
/// Offset in a UAR page of the event queue doorbell that does not arm the queue, eight bytes after
/// [`EQ_ARM`].
pub const EQ_UPDATE: usize = 0x48;

/// Offset in a UAR page of the first BlueFlame register (`MLX5_BF_OFFSET`).
pub const BLUEFLAME: usize = 0x800;

/// The number of BlueFlame registers in a UAR page that user space may use
/// (`MLX5_NON_FP_BFREGS_PER_UAR`).
pub const BLUEFLAME_REGISTERS: usize = 2;

/// Bytes in a unit of a BlueFlame write: a WQE is copied to the register in whole units.
pub const BLUEFLAME_UNIT: usize = 64;

/// The doorbell record of a queue pair: producer indices, in basic blocks (send) and requests
/// (receive).
pub mod queue_pair_record {
    /// Offset of the receive counter (`MLX5_RCV_DBR` × 4).
    pub const RECEIVE: usize = 0;
    /// Offset of the send counter (`MLX5_SND_DBR` × 4).
    pub const SEND: usize = 4;
}

/// The doorbell record of a completion queue.
pub mod completion_queue_record {
    /// Offset of the consumer index (24 bits).
    pub const CONSUMER: usize = 0;
    /// Offset of the arm word.
    pub const ARM: usize = 4;
    /// Mask of the bits of the consumer index that the device reads.
    pub const CONSUMER_MASK: u32 = 0xff_ffff;
    /// Position in the arm word of the two-bit arm sequence number.
    pub const ARM_SEQUENCE_SHIFT: u32 = 28;
    /// Arm command: the next completion causes an event (`MLX5_CQ_DB_REQ_NOT`).
    pub const ARM_NEXT: u32 = 0;
    /// Arm command: the next solicited completion or error causes an event
    /// (`MLX5_CQ_DB_REQ_NOT_SOL`).
    pub const ARM_SOLICITED: u32 = 1 << 24;
}

/// Bytes of any doorbell record.
pub const RECORD: usize = 8;
