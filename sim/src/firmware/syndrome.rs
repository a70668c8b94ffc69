//! Syndromes: the numbers by which the firmware says why a command failed.
//!
//! The syndromes of a ConnectX are not documented. These are the simulated device's own, one for
//! each reason to refuse a command.

macro_rules! syndromes {
    ($( $(#[$doc:meta])* $name:ident = $number:literal; )*) => {
        $( $(#[$doc])* pub const $name: u32 = $number; )*

        /// Returns the name of a syndrome, or `None` if no syndrome has this number.
        #[must_use]
        pub const fn name(syndrome: u32) -> Option<&'static str> {
            match syndrome {
                $( $number => Some(stringify!($name)), )*
                _ => None,
            }
        }
    };
}

syndromes! {
    /// No command has this opcode.
    UNKNOWN_OPCODE = 0x0001_0001;
    /// The input ends before the fixed part of the command does.
    SHORT_INPUT = 0x0001_0002;
    /// The output has no room for the fixed part of the answer.
    SHORT_OUTPUT = 0x0001_0003;
    /// The command does not support this operation modifier.
    UNKNOWN_MODIFIER = 0x0001_0004;
    /// After a fatal error, the device carries out only commands that end an object.
    DEVICE_FAILED = 0x0001_0005;
    /// No object has this number.
    NO_SUCH_OBJECT = 0x0002_0001;
    /// Other objects use this one.
    IN_USE = 0x0002_0002;
    /// The device has no more objects of this kind.
    TOO_MANY_OBJECTS = 0x0002_0003;
    /// The device does not support the value of a field.
    INVALID_VALUE = 0x0002_0004;
    /// The state of the object or of the device does not permit the command.
    WRONG_STATE = 0x0002_0005;
    /// An access to memory failed.
    UNREACHABLE_MEMORY = 0x0002_0006;
    /// The command has fewer page addresses than the object needs.
    TOO_FEW_PAGES = 0x0003_0001;
    /// A page address has low bits set.
    UNALIGNED_PAGE = 0x0003_0002;
    /// The address of the doorbell record is not a multiple of eight.
    UNALIGNED_RECORD = 0x0003_0003;
    /// The device does not support this size of entries.
    ENTRY_SIZE = 0x0004_0001;
    /// The event queue does not exist.
    NO_SUCH_EQ = 0x0004_0002;
    /// More completions wait than the new ring has entries.
    RING_TOO_SMALL = 0x0004_0003;
    /// The transport service is not supported.
    TRANSPORT = 0x0005_0001;
    /// The transition does not start from the queue pair's state.
    TRANSITION = 0x0005_0002;
    /// The device has no port with this number.
    PORT_NUMBER = 0x0005_0003;
    /// The P_Key index is outside the port's table.
    PKEY_INDEX = 0x0005_0004;
    /// The path MTU is no valid MTU, or is larger than the port's MTU.
    PATH_MTU = 0x0005_0005;
    /// The GID table has no entry at this index.
    GID_INDEX = 0x0005_0006;
    /// The command asks for more outstanding reads and atomics than the device supports.
    READ_DEPTH = 0x0005_0007;
    /// The queue pair is not a datagram queue pair; no other kind can join a multicast group.
    NOT_A_DATAGRAM_QP = 0x0005_0008;
    /// The type of a work queue is not supported, or contradicts other fields.
    RECEIVE_QUEUE = 0x0005_0009;
    /// The access mode of the key is not supported.
    ACCESS_MODE = 0x0006_0001;
    /// The address range of the key wraps around.
    ADDRESS_RANGE = 0x0006_0002;
    /// No register has this number.
    UNKNOWN_REGISTER = 0x0007_0001;
    /// The function does not manage a switch, so it can use neither other functions nor the table
    /// by which functions share a port.
    NO_SWITCH = 0x0008_0001;
    /// The list has more entries than the capabilities allow.
    LIST_TOO_LONG = 0x0008_0002;
}
