//! Ranges of a region, and the errors of those that are not inside.

use crate::error::Error;
use std::{
    fmt,
    ops::{Bound, RangeBounds},
};

/// Returns start and end of a range in memory of `len` bytes or elements. `None` if a bound
/// overflows. The range may lie outside.
#[inline]
pub(super) fn bounds(range: &impl RangeBounds<usize>, len: usize) -> Option<(usize, usize)> {
    let start = match range.start_bound() {
        Bound::Included(start) => *start,
        Bound::Excluded(before) => before.checked_add(1)?,
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(last) => last.checked_add(1)?,
        Bound::Excluded(end) => *end,
        Bound::Unbounded => len,
    };
    Some((start, end))
}

/// A range as people write it, with the end that follows the last byte or element.
pub(super) struct Shown {
    start: u128,
    end: u128,
}

impl Shown {
    pub(super) fn new(range: &impl RangeBounds<usize>, len: usize) -> Self {
        let start = match range.start_bound() {
            Bound::Included(start) => *start as u128,
            Bound::Excluded(before) => *before as u128 + 1,
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(last) => *last as u128 + 1,
            Bound::Excluded(end) => *end as u128,
            // An open range that starts behind the end shows where that is.
            Bound::Unbounded => len as u128,
        };
        Self { start, end }
    }

    /// `len` bytes or elements at `offset`.
    pub(super) fn at(offset: usize, len: usize) -> Self {
        Self { start: offset as u128, end: offset as u128 + len as u128 }
    }

    /// The error that the range is not inside `len` of what `unit` names.
    #[cold]
    pub(super) fn outside(self, operation: &'static str, unit: &str, len: usize) -> Error {
        Error::invalid(operation, format!("{unit} {self} of a region of {len} {unit}"))
    }
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.start, self.end)
    }
}
