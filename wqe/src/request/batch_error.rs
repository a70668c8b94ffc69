//! The errors of a batch and of a list.

use crate::request::error::PostError;
use crate::request::packed::Packed;
use core::fmt;
use core::num::NonZeroU64;

/// Which request was refused, and why, in two words: a `Result` of it is returned in registers.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Refused {
    /// The first field of the [`PostError`]; the index.
    low: u64,
    /// The second field; the variant; a bit that is set, so that no other word tells that there is
    /// an error.
    high: NonZeroU64,
}

const _: () = assert!(size_of::<Result<(), BatchError>>() == 16);

impl Refused {
    const HALF: u32 = 32;
    const VARIANT_SHIFT: u32 = 8;

    const fn new(index: u32, error: PostError) -> Self {
        let Packed { variant, fields: [first, second] } = Packed::new(error);
        let high = (second as u64) << Self::HALF | (variant as u64) << Self::VARIANT_SHIFT;
        let Some(high) = NonZeroU64::new(high | 1) else { unreachable!() };
        Self { low: (first as u64) << Self::HALF | index as u64, high }
    }

    const fn index(self) -> u32 {
        self.low as u32
    }

    #[cold]
    fn error(self) -> PostError {
        let (low, high) = (self.low, self.high.get());
        let variant = high as u32 >> Self::VARIANT_SHIFT;
        let fields = [low, high].map(|word| (word >> Self::HALF) as u32);
        Packed { variant, fields }.error()
    }
}

/// One error a paragraph: what it is, and what its index is of.
macro_rules! errors {
    ($($(#[$doc:meta])* $name:ident, $(#[$index:meta])*;)+) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq)]
        pub struct $name(Refused);

        impl $name {
            /// Creates the error.
            pub const fn new(index: u32, error: PostError) -> Self {
                Self(Refused::new(index, error))
            }

            $(#[$index])*
            pub const fn index(&self) -> u32 {
                self.0.index()
            }

            /// Returns what is wrong with it.
            pub fn error(&self) -> PostError {
                self.0.error()
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name))
                    .field("index", &self.index())
                    .field("error", &self.error())
                    .finish()
            }
        }

        impl core::error::Error for $name {}
    )+};
}

errors! {
    /// Why a batch was refused as a whole.
    BatchError,
    /// Returns the index of the bad request in the batch.
    ;

    /// Why the rest of a list was refused; the requests before the bad one were posted.
    ListError,
    /// Returns the index of the first request that was not posted (`bad_wr`).
    ;
}

impl fmt::Display for BatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (index, error) = (self.index(), self.error());
        write!(f, "batch refused, nothing posted: request {index}: {error}")
    }
}

impl fmt::Display for ListError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (index, error) = (self.index(), self.error());
        write!(f, "request {index} and those after it not posted: {error}")
    }
}

impl From<BatchError> for ListError {
    #[inline(always)]
    fn from(BatchError(refused): BatchError) -> Self {
        Self(refused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn index_and_fields_do_not_mix() {
        let all = u32::MAX;
        for (index, free, needed) in [(0, 0, 0), (all, 0, 0), (0, all, 0), (0, 0, all)] {
            let error = PostError::QueueFull { free, needed };
            let refused = BatchError::new(index, error);
            assert_eq!((refused.index(), refused.error()), (index, error));
            let refused = ListError::from(refused);
            assert_eq!((refused.index(), refused.error()), (index, error));
            assert_eq!(refused, ListError::new(index, error));
        }
        assert_ne!(
            BatchError::new(1, PostError::DeviceGone),
            BatchError::new(1, PostError::Forked)
        );
    }

    #[test]
    fn an_error_says_which_request_and_why() {
        let error = PostError::UnsignaledRun;
        assert_eq!(
            format!("{:?}", BatchError::new(7, error)),
            "BatchError { index: 7, error: UnsignaledRun }"
        );
        let text = ListError::new(7, error).to_string();
        assert!(
            text.starts_with("request 7 and those after it") && text.ends_with(&error.to_string())
        );
    }
}
