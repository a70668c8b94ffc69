//! The firmware's own failure codes.
//!
//! A ConnectX does not document its syndromes; these are the simulated device's, one for each
//! reason to refuse a command.

macro_rules! syndromes {
    ($( $(#[$doc:meta])* $name:ident = $number:literal; )*) => {
        $( $(#[$doc])* pub const $name: u32 = $number; )*

        /// The name of a syndrome; `None` for a number that is none.
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
    /// The modifier of the operation is not known.
    UNKNOWN_MODIFIER = 0x0001_0004;
    /// The device met a fatal error.
    DEVICE_FAILED = 0x0001_0005;
    /// No object has this number.
    NO_SUCH_OBJECT = 0x0002_0001;
    /// Other objects use this one.
    IN_USE = 0x0002_0002;
    /// The device has no more of these.
    TOO_MANY_OBJECTS = 0x0002_0003;
    /// A value that the device cannot have.
    INVALID_VALUE = 0x0002_0004;
    /// The object is not in a state for this.
    WRONG_STATE = 0x0002_0005;
    /// Memory did not answer.
    UNREACHABLE_MEMORY = 0x0002_0006;
    /// Fewer page addresses than the object needs.
    TOO_FEW_PAGES = 0x0003_0001;
    /// A page address has low bits set.
    UNALIGNED_PAGE = 0x0003_0002;
    /// The address of the doorbell record is not a multiple of eight.
    UNALIGNED_RECORD = 0x0003_0003;
    /// The entry size is none that the device has.
    ENTRY_SIZE = 0x0004_0001;
    /// The event queue does not exist.
    NO_SUCH_EQ = 0x0004_0002;
    /// More completions wait than the new ring has entries.
    RING_TOO_SMALL = 0x0004_0003;
    /// The transport service is not supported.
    TRANSPORT = 0x0005_0001;
    /// The transition does not start from the queue pair's state.
    TRANSITION = 0x0005_0002;
    /// The port number is none of the device's.
    PORT_NUMBER = 0x0005_0003;
    /// The P_Key index is outside the table.
    PKEY_INDEX = 0x0005_0004;
    /// The path MTU is not an MTU, or larger than the port's.
    PATH_MTU = 0x0005_0005;
    /// The index of the source GID names no entry.
    GID_INDEX = 0x0005_0006;
    /// More outstanding reads and atomics than the device can have.
    READ_DEPTH = 0x0005_0007;
    /// Only a datagram queue pair joins a multicast group.
    NOT_A_DATAGRAM_QP = 0x0005_0008;
    /// The receive queue's type and its other fields contradict each other.
    RECEIVE_QUEUE = 0x0005_0009;
    /// The access mode of the key is not supported.
    ACCESS_MODE = 0x0006_0001;
    /// The address range of the key wraps around.
    ADDRESS_RANGE = 0x0006_0002;
    /// No register has this number.
    UNKNOWN_REGISTER = 0x0007_0001;
    /// The function manages no switch: neither other functions nor the table by which they share a
    /// port.
    NO_SWITCH = 0x0008_0001;
    /// The list has more entries than the capabilities say.
    LIST_TOO_LONG = 0x0008_0002;
}
