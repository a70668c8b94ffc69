//! Ranges of a region, and the errors of ranges that are not inside it.

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

/// A range in error texts, whose end follows the last byte or element.
pub(super) struct Shown {
    start: u128,
    end: Option<u128>,
}

impl Shown {
    pub(super) fn new(range: &impl RangeBounds<usize>) -> Self {
        let start = match range.start_bound() {
            Bound::Included(start) => *start as u128,
            Bound::Excluded(before) => *before as u128 + 1,
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(last) => Some(*last as u128 + 1),
            Bound::Excluded(end) => Some(*end as u128),
            Bound::Unbounded => None,
        };
        Self { start, end }
    }

    /// The range of `len` bytes or elements at `offset`.
    pub(super) fn at(offset: usize, len: usize) -> Self {
        Self { start: offset as u128, end: Some(offset as u128 + len as u128) }
    }

    /// Returns the error that the range is not inside the `len` elements that `unit` names.
    #[cold]
    pub(super) fn outside(self, operation: &'static str, unit: &str, len: usize) -> Error {
        Error::invalid(
            operation,
            format!("{unit} {self} are not inside the region of {len} {unit}"),
        )
    }
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.end {
            Some(end) => write!(f, "{}..{end}", self.start),
            None => write!(f, "{}..", self.start),
        }
    }
}
