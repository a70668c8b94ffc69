//! The firmware's own failure codes.
//!
//! A ConnectX does not document its syndromes; these are the simulated device's, one for each
//! reason to refuse a command.

/// No command has this opcode.
pub const UNKNOWN_OPCODE: u32 = 0x0001_0001;
/// The input ends before the fixed part of the command does.
pub const SHORT_INPUT: u32 = 0x0001_0002;
/// The output has no room for the fixed part of the answer.
pub const SHORT_OUTPUT: u32 = 0x0001_0003;
/// The modifier of the operation is not known.
pub const UNKNOWN_MODIFIER: u32 = 0x0001_0004;
/// The device met a fatal error.
pub const DEVICE_FAILED: u32 = 0x0001_0005;
/// No object has this number.
pub const NO_SUCH_OBJECT: u32 = 0x0002_0001;
/// Other objects use this one.
pub const IN_USE: u32 = 0x0002_0002;
/// The device has no more of these.
pub const TOO_MANY_OBJECTS: u32 = 0x0002_0003;
/// A value that the device cannot have.
pub const INVALID_VALUE: u32 = 0x0002_0004;
/// The object is not in a state for this.
pub const WRONG_STATE: u32 = 0x0002_0005;
/// Memory did not answer.
pub const UNREACHABLE_MEMORY: u32 = 0x0002_0006;
/// Fewer page addresses than the object needs.
pub const TOO_FEW_PAGES: u32 = 0x0003_0001;
/// A page address has low bits set.
pub const UNALIGNED_PAGE: u32 = 0x0003_0002;
/// The address of the doorbell record is not a multiple of eight.
pub const UNALIGNED_RECORD: u32 = 0x0003_0003;
/// The entry size is none that the device has.
pub const ENTRY_SIZE: u32 = 0x0004_0001;
/// The event queue does not exist.
pub const NO_SUCH_EQ: u32 = 0x0004_0002;
/// More completions wait than the new ring has entries.
pub const RING_TOO_SMALL: u32 = 0x0004_0003;
/// The transport service is not supported.
pub const TRANSPORT: u32 = 0x0005_0001;
/// The transition does not start from the queue pair's state.
pub const TRANSITION: u32 = 0x0005_0002;
/// The port number is none of the device's.
pub const PORT_NUMBER: u32 = 0x0005_0003;
/// The P_Key index is outside the table.
pub const PKEY_INDEX: u32 = 0x0005_0004;
/// The path MTU is not an MTU, or larger than the port's.
pub const PATH_MTU: u32 = 0x0005_0005;
/// The index of the source GID names no entry.
pub const GID_INDEX: u32 = 0x0005_0006;
/// More outstanding reads and atomics than the device can have.
pub const READ_DEPTH: u32 = 0x0005_0007;
/// Only a datagram queue pair joins a multicast group.
pub const NOT_A_DATAGRAM_QP: u32 = 0x0005_0008;
/// The receive queue's type and its other fields contradict each other.
pub const RECEIVE_QUEUE: u32 = 0x0005_0009;
/// The access mode of the key is not supported.
pub const ACCESS_MODE: u32 = 0x0006_0001;
/// The address range of the key wraps around.
pub const ADDRESS_RANGE: u32 = 0x0006_0002;
/// No register has this number.
pub const UNKNOWN_REGISTER: u32 = 0x0007_0001;
