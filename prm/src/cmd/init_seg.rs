//! Delivery of commands to a PCI function: initialization segment, command queue, mailboxes.

use crate::U32;
use crate::fields::{codes, layouts};

/// Offsets of the initialization segment's registers, each a big-endian dword. The segment is at
/// the start of BAR 0. `struct mlx5_init_seg`, `device.h`.
pub mod offset {
    /// Firmware revision: minor in the high half, major in the low.
    pub const FW_REV: usize = 0x00;
    /// Command interface revision in the high half, firmware sub-minor in the low.
    pub const CMDIF_REV_FW_SUB: usize = 0x04;
    /// Command queue address, high half.
    pub const CMDQ_ADDR_H: usize = 0x10;
    /// Command queue address bits 31:12, NIC interface 9:8, log size 7:4, log stride 3:0.
    pub const CMDQ_ADDR_L_SZ: usize = 0x14;
    /// Doorbell: one bit per entry of the command queue.
    pub const CMD_DBELL: usize = 0x18;
    /// Bit 31 is set until the firmware has initialized.
    pub const INITIALIZING: usize = 0x1fc;
    /// The health buffer.
    pub const HEALTH: usize = 0x200;
    /// Timeout of a command, set by the firmware.
    pub const CMD_EXEC_TO: usize = 0xff8;
    /// Timeout of the command queue's set-up, set by the firmware.
    pub const CMD_Q_INIT_TO: usize = 0xffc;
    /// Free-running clock, high half.
    pub const INTERNAL_TIMER_H: usize = 0x1000;
    /// Free-running clock, low half.
    pub const INTERNAL_TIMER_L: usize = 0x1004;
    /// Counter that advances while the firmware is healthy.
    pub const HEALTH_COUNTER: usize = 0x1010;
    /// Wall clock, seconds.
    pub const REAL_TIME_H: usize = 0x1040;
    /// Wall clock, nanoseconds.
    pub const REAL_TIME_L: usize = 0x1044;
    /// IEEE 1588 clock.
    pub const IEEE1588_CLK: usize = 0x2000;
    /// IEEE 1588 clock type.
    pub const IEEE1588_CLK_TYPE: usize = 0x2008;
    /// Clears a pending legacy interrupt.
    pub const CLR_INTX: usize = 0x200c;
    /// Size of the segment.
    pub const SIZE: usize = 0x2010;
}

/// `CommandQueueEntry::transport` of commands over PCI. `MLX5_PCI_CMD_XPORT`, `device.h`.
pub const PCI_CMD_XPORT: u32 = 7;

/// Data bytes in a mailbox block. `MLX5_CMD_DATA_BLOCK_SIZE`, `device.h`.
pub const CMD_DATA_BLOCK_SIZE: usize = 512;

/// The largest number of entries in a command queue. `MLX5_MAX_COMMANDS`, `device.h`.
pub const MAX_COMMANDS: usize = 32;

layouts! {
    /// The initialization segment up to and including the command doorbell.
    ///
    /// `mlx5_ifc_initial_seg_bits`.
    pub struct InitSegHead [0xe0] {
        fw_rev_minor, set_fw_rev_minor: 0x0, 16;
        fw_rev_major, set_fw_rev_major: 0x10, 16;
        cmd_interface_rev, set_cmd_interface_rev: 0x20, 16;
        fw_rev_subminor, set_fw_rev_subminor: 0x30, 16;
        cmdq_phy_addr_63_32, set_cmdq_phy_addr_63_32: 0x80, 32;
        cmdq_phy_addr_31_12, set_cmdq_phy_addr_31_12: 0xa0, 20;
        nic_interface, set_nic_interface: 0xb6, 2;
        log_cmdq_size, set_log_cmdq_size: 0xb8, 4;
        log_cmdq_stride, set_log_cmdq_stride: 0xbc, 4;
        command_doorbell_vector, set_command_doorbell_vector: 0xc0, 32;
    }

    /// The health buffer. `struct health_buffer`, `device.h`.
    pub struct HealthBuffer [0x200] {
        assert_var, assert_var_mut: 0x0 => [U32; 6];
        assert_exit_ptr, set_assert_exit_ptr: 0x100, 32;
        assert_callra, set_assert_callra: 0x120, 32;
        time, set_time: 0x160, 32;
        fw_ver, set_fw_ver: 0x180, 32;
        hw_id, set_hw_id: 0x1a0, 32;
        rfr_severity, set_rfr_severity: 0x1c0, 8;
        irisc_index, set_irisc_index: 0x1e0, 8;
        synd, set_synd: 0x1e8, 8;
        ext_synd, set_ext_synd: 0x1f0, 16;
    }

    /// An entry of the command queue. `mlx5_ifc_cmd_queue_entry_bits`.
    pub struct CommandQueueEntry [0x200] {
        transport, set_transport: 0x0, 8;
        input_length, set_input_length: 0x20, 32;
        input_mailbox_pointer_63_32, set_input_mailbox_pointer_63_32: 0x40, 32;
        input_mailbox_pointer_31_9, set_input_mailbox_pointer_31_9: 0x60, 23;
        command_input_inline_data, command_input_inline_data_mut: 0x80 => [u8; 16];
        command_output_inline_data, command_output_inline_data_mut: 0x100 => [u8; 16];
        output_mailbox_pointer_63_32, set_output_mailbox_pointer_63_32: 0x180, 32;
        output_mailbox_pointer_31_9, set_output_mailbox_pointer_31_9: 0x1a0, 23;
        output_length, set_output_length: 0x1c0, 32;
        token, set_token: 0x1e0, 8;
        signature, set_signature: 0x1e8, 8;
        status, set_status: 0x1f8, 7;
        ownership, set_ownership: 0x1ff, 1;
    }
    overlay {
        input_mailbox_pointer, set_input_mailbox_pointer: 0x40, 64;
        output_mailbox_pointer, set_output_mailbox_pointer: 0x180, 64;
    }

    /// A mailbox block. `struct mlx5_cmd_prot_block`, `device.h`.
    pub struct MailboxBlock [0x1200] {
        data, data_mut: 0x0 => [u8; 512];
        next, set_next: 0x1180, 64;
        block_num, set_block_num: 0x11c0, 32;
        token, set_token: 0x11e8, 8;
        ctrl_sig, set_ctrl_sig: 0x11f0, 8;
        sig, set_sig: 0x11f8, 8;
    }
}

codes! {
    /// `CommandQueueEntry::status`: whether the command was delivered. Only then does the output
    /// hold a status of its own. `MLX5_CMD_DELIVERY_STAT_*`, the kernel's `cmd.c`.
    pub struct DeliveryStatus {
        OK = 0x00;
        SIGNAT_ERR = 0x01;
        TOK_ERR = 0x02;
        BAD_BLK_NUM_ERR = 0x03;
        OUT_PTR_ALIGN_ERR = 0x04;
        IN_PTR_ALIGN_ERR = 0x05;
        FW_ERR = 0x06;
        IN_LENGTH_ERR = 0x07;
        OUT_LENGTH_ERR = 0x08;
        RES_FLD_NOT_CLR_ERR = 0x09;
        CMD_DESCR_ERR = 0x10;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_given_to_the_device_by_its_last_bit() {
        let mut entry = CommandQueueEntry::default();
        entry.set_transport(PCI_CMD_XPORT).set_input_mailbox_pointer(0x1_2345_6600);
        entry.set_ownership(true).set_token(0x5a).set_signature(0xa5);
        assert_eq!(entry.as_bytes()[0], 7);
        assert_eq!(entry.as_bytes()[60..], [0x5a, 0xa5, 0, 1]);
        assert_eq!(entry.input_mailbox_pointer_63_32(), 1);
        assert_eq!(entry.input_mailbox_pointer_31_9() << 9, 0x2345_6600);
        assert_eq!(CommandQueueEntry::BYTES, 64);
    }

    #[test]
    fn a_mailbox_block_is_data_and_a_tail_of_64_bytes() {
        let mut block = MailboxBlock::default();
        block.set_next(0x1000).set_block_num(2).set_sig(0xff);
        assert_eq!(block.data().len(), CMD_DATA_BLOCK_SIZE);
        assert_eq!(block.as_bytes()[560..572], [0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 2]);
        assert_eq!(block.as_bytes()[575], 0xff);
        assert_eq!(MailboxBlock::BYTES, 576);
    }
}
