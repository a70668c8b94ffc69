//! A [`PostError`] as integers.
//!
//! An enum with fields is returned through memory, which even a post that succeeds has to write to.

use crate::gate::QueueState;
use crate::request::error::{MkeyRefusal, PostError, UnsupportedOperation};
use crate::request::flags::SendFlags;

/// A [`PostError`]: the number of its variant, less than 256, and its fields.
pub(crate) struct Packed {
    pub(crate) variant: u32,
    pub(crate) fields: [u32; 2],
}

/// A field as an integer, by its type: a number, a set of flags, or an enum without fields.
macro_rules! bits {
    (u32, $field:expr) => {
        $field
    };
    (SendFlags, $field:expr) => {
        $field.bits() as u32
    };
    ($enum:ident, $field:expr) => {
        $field as u32
    };
}

/// The field of a type that has these bits.
macro_rules! of_bits {
    (u32, $bits:expr) => {
        $bits
    };
    (SendFlags, $bits:expr) => {
        SendFlags::from_bits_retain($bits as u8)
    };
    ($enum:ident, $bits:expr) => {
        $enum::ALL[$bits as usize]
    };
}

/// Up to two integers as two.
macro_rules! two {
    () => {
        [0, 0]
    };
    ($first:expr) => {
        [$first, 0]
    };
    ($first:expr, $second:expr) => {
        [$first, $second]
    };
}

/// Each variant with its number, and its fields in their order.
macro_rules! variants {
    ($(
        $number:literal = $variant:ident $({ $($field:ident: $type:ident),+ })?
            $(($value:ident: $value_type:ident))?;
    )+) => {
        impl Packed {
            #[cfg(test)]
            const NUMBERS: &[u32] = &[$($number),+];

            #[cold]
            #[inline(never)]
            pub(crate) const fn new(error: PostError) -> Self {
                let (variant, fields) = match error {$(
                    PostError::$variant $({ $($field),+ })? $(($value))? => (
                        $number,
                        two!($($(bits!($type, $field)),+)? $(bits!($value_type, $value))?),
                    ),
                )+};
                Self { variant, fields }
            }

            #[cold]
            #[inline(never)]
            pub(crate) fn error(self) -> PostError {
                let mut fields = self.fields.into_iter();
                let mut next = || fields.next().unwrap_or_default();
                match self.variant {
                    $($number => PostError::$variant
                        $({ $($field: of_bits!($type, next())),+ })?
                        $(({ let $value = next(); of_bits!($value_type, $value) }))?,)+
                    number => unreachable!("no variant has number {number}"),
                }
            }
        }
    };
}

variants! {
    1 = QueueFull { free: u32, needed: u32 };
    2 = UnsignaledRun;
    3 = TooManySges { given: u32, max: u32 };
    4 = SgeTooLong { index: u32, length: u32 };
    5 = MessageTooLong { length: u32, max: u32 };
    6 = InlineTooLong { length: u32, max: u32 };
    7 = Flags { refused: SendFlags };
    8 = Unsupported;
    9 = InlineNotAllowed;
    10 = AddressMissing;
    11 = TooManyMkeyEntries { given: u32, max: u32 };
    12 = StrideTooLong { index: u32, length: u32 };
    13 = Mkey(refusal: MkeyRefusal);
    14 = SrqnMissing;
    15 = DataNotAllowed;
    16 = RawWqeRequired;
    17 = AtomicResult { entries: u32, length: u32 };
    18 = NoAtomics;
    19 = UnsupportedByDevice(operation: UnsupportedOperation);
    20 = TsoHeader { length: u32, max: u32 };
    21 = TsoSegmentSize;
    22 = InlineHeaderMissing;
    23 = WindowTooLong { gib: u32 };
    24 = TagListFull { max: u32 };
    25 = StaleTag;
    26 = ForeignTag;
    27 = NoSendQueue;
    28 = State(state: QueueState);
    29 = DeviceGone;
    30 = Forked;
    31 = PacketTooShort { index: u32, length: u32 };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fields that all enums have, and that differ.
    const FIELDS: [u32; 2] = [2, 1];

    fn every() -> impl Iterator<Item = PostError> {
        Packed::NUMBERS.iter().map(|&variant| Packed { variant, fields: FIELDS }.error())
    }

    #[test]
    fn every_error_comes_back() {
        assert_eq!(Packed::NUMBERS.len(), 31);
        for (error, &number) in every().zip(Packed::NUMBERS) {
            let Packed { variant, fields } = Packed::new(error);
            assert_eq!(variant, number);
            assert_eq!(Packed { variant, fields }.error(), error);
        }
    }

    #[test]
    fn fields_come_back_in_their_places() {
        let error = |variant| Packed { variant, fields: FIELDS }.error();
        let number = |error| Packed::new(error).variant;
        for expected in [
            PostError::QueueFull { free: 2, needed: 1 },
            PostError::AtomicResult { entries: 2, length: 1 },
            PostError::WindowTooLong { gib: 2 },
            PostError::State(QueueState::ReadyToReceive),
            PostError::Mkey(MkeyRefusal::CopyMask),
            PostError::UnsupportedByDevice(UnsupportedOperation::AtomicWrite),
            PostError::Flags { refused: SendFlags::from_bits_retain(2) },
        ] {
            assert_eq!(error(number(expected)), expected);
        }
    }

    #[test]
    fn every_choice_comes_back() {
        let states = QueueState::ALL.map(PostError::State);
        let refusals = MkeyRefusal::ALL.map(PostError::Mkey);
        let operations = UnsupportedOperation::ALL.map(PostError::UnsupportedByDevice);
        // Bits without a name, too.
        let flags = (0..=u8::MAX).map(SendFlags::from_bits_retain);
        let flags = flags.map(|refused| PostError::Flags { refused });
        for error in states.into_iter().chain(refusals).chain(operations).chain(flags) {
            assert_eq!(Packed::new(error).error(), error);
        }
    }
}
