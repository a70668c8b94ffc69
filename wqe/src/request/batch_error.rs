//! The errors of a batch and of a list.

use crate::request::error::PostError;
use core::fmt;

/// Why a batch was refused as a whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchError {
    index: u32,
    error: PostError,
}

// It is returned in registers.
const _: () = assert!(size_of::<Result<(), BatchError>>() == 16);

impl BatchError {
    /// Creates the error.
    pub const fn new(index: u32, error: PostError) -> Self {
        Self { index, error }
    }

    /// Returns the index of the bad request in the batch.
    pub const fn index(&self) -> u32 {
        self.index
    }

    /// Returns what is wrong with it.
    pub const fn error(&self) -> PostError {
        self.error
    }
}

impl core::error::Error for BatchError {}

/// Why the rest of a list was refused; the requests before the bad one were posted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ListError {
    index: u32,
    error: PostError,
}

impl ListError {
    /// Creates the error.
    pub const fn new(index: u32, error: PostError) -> Self {
        Self { index, error }
    }

    /// Returns the index of the first request that was not posted (`bad_wr`).
    pub const fn index(&self) -> u32 {
        self.index
    }

    /// Returns what is wrong with it.
    pub const fn error(&self) -> PostError {
        self.error
    }
}

impl core::error::Error for ListError {}

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
    #[inline]
    fn from(BatchError { index, error }: BatchError) -> Self {
        Self { index, error }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
