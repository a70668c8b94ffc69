//! Memory at the peer, as requests name it.

use core::fmt;
use core::hash::{Hash, Hasher};
use core::marker::PhantomData;
use core::ops::{Bound, RangeBounds};
use core::str::FromStr;

/// An address in the peer's memory, with the key that opens it.
///
/// The length of an access is that of the local buffers. [`RemoteSlice`] also has the length of the
/// remote memory, and checks against it.
///
/// The text form and the binary form are the same on every machine:
///
/// ```
/// use mlx5_wqe::RemoteAddress;
///
/// let remote = RemoteAddress { addr: 0x7f00_0000_1000, rkey: 0x1a2b };
/// assert_eq!(remote.to_string(), "addr=0x7f0000001000 rkey=0x1a2b");
/// assert_eq!("addr=0x7f0000001000 rkey=0x1a2b".parse(), Ok(remote));
/// assert_eq!(RemoteAddress::from_bytes(remote.to_bytes()), remote);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct RemoteAddress {
    /// Virtual address.
    pub addr: u64,
    /// Remote key.
    pub rkey: u32,
}

impl RemoteAddress {
    /// Length of the binary form.
    pub const BYTES: usize = 12;

    /// Returns the address `bytes` further on, or `None` past the end of all addresses.
    ///
    /// ```
    /// # use mlx5_wqe::RemoteAddress;
    /// let remote = RemoteAddress { addr: 4096, rkey: 7 };
    /// assert_eq!(remote.offset(64), Some(RemoteAddress { addr: 4160, rkey: 7 }));
    /// assert_eq!(remote.offset(u64::MAX), None);
    /// ```
    #[must_use]
    #[inline]
    pub const fn offset(self, bytes: u64) -> Option<Self> {
        match self.addr.checked_add(bytes) {
            Some(addr) => Some(Self { addr, ..self }),
            None => None,
        }
    }

    /// Returns the binary form: address and key, big-endian.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; Self::BYTES] {
        let [a, b, c, d, e, f, g, h] = self.addr.to_be_bytes();
        let [i, j, k, l] = self.rkey.to_be_bytes();
        [a, b, c, d, e, f, g, h, i, j, k, l]
    }

    /// Decodes the binary form. Every value is an address; whether the peer's device accepts it,
    /// the first access shows.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        let [a, b, c, d, e, f, g, h, i, j, k, l] = bytes;
        Self {
            addr: u64::from_be_bytes([a, b, c, d, e, f, g, h]),
            rkey: u32::from_be_bytes([i, j, k, l]),
        }
    }
}

impl fmt::Display for RemoteAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "addr={:#x} rkey={:#x}", self.addr, self.rkey)
    }
}

/// Reads the words of [`Display`](fmt::Display), in any order. Numbers are decimal, or hexadecimal
/// after `0x`.
impl FromStr for RemoteAddress {
    type Err = RemoteError;

    fn from_str(text: &str) -> Result<Self, RemoteError> {
        let [addr, rkey] = words(text, ["addr", "rkey"])?;
        Ok(Self { addr, rkey: narrow("rkey", rkey)? })
    }
}

/// Elements of type `T` in the peer's memory: a [`RemoteAddress`] with a length.
///
/// A part of it is checked against the length before it is posted:
///
/// ```
/// use mlx5_wqe::{RemoteAddress, RemoteSlice};
///
/// let start = RemoteAddress { addr: 4096, rkey: 7 };
/// let counters = RemoteSlice::<u64>::new(start, 100)?;
/// assert_eq!(counters.at(3)?.addr, 4096 + 24);
/// assert_eq!(counters.range(90..)?.len(), 10);
/// assert!(counters.at(100).is_err());
/// # Ok::<(), mlx5_wqe::RemoteError>(())
/// ```
///
/// It goes to a peer as text or bytes, which carry the size of an element: both sides must agree.
/// Received bytes are checked, so a corrupt length or address is refused and not posted.
///
/// ```
/// # use mlx5_wqe::{RemoteAddress, RemoteSlice};
/// # let counters = RemoteSlice::<u64>::new(RemoteAddress { addr: 4096, rkey: 7 }, 100)?;
/// let text = counters.to_string();
/// assert_eq!(text, "mlx5-remote/1 addr=0x1000 rkey=0x7 len=100 size=8");
/// assert_eq!(text.parse(), Ok(counters));
/// assert!(text.parse::<RemoteSlice<u32>>().is_err());
/// assert_eq!(RemoteSlice::from_bytes(&counters.to_bytes()), Ok(counters));
/// # Ok::<(), mlx5_wqe::RemoteError>(())
/// ```
pub struct RemoteSlice<T = u8> {
    start: RemoteAddress,
    len: usize,
    element: PhantomData<fn() -> T>,
}

impl<T> Clone for RemoteSlice<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for RemoteSlice<T> {}

impl<T> PartialEq for RemoteSlice<T> {
    fn eq(&self, other: &Self) -> bool {
        (self.start, self.len) == (other.start, other.len)
    }
}

impl<T> Eq for RemoteSlice<T> {}

impl<T> Hash for RemoteSlice<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.start, self.len).hash(state);
    }
}

impl<T> fmt::Debug for RemoteSlice<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RemoteSlice({self})")
    }
}

impl<T> RemoteSlice<T> {
    /// Length of the binary form.
    pub const BYTES: usize = 32;

    const MAGIC: [u8; 8] = *b"mlx5mem\x01";

    const SIZE: usize = {
        assert!(size_of::<T>() > 0, "an element needs a size");
        size_of::<T>()
    };

    /// Creates a slice of `len` elements from `start` on.
    ///
    /// # Errors
    /// If `start` is not aligned for `T`, or the slice goes past the end of all addresses.
    pub const fn new(start: RemoteAddress, len: usize) -> Result<Self, RemoteError> {
        if !start.addr.is_multiple_of(align_of::<T>() as u64) {
            return Err(RemoteError::Unaligned { addr: start.addr, align: align_of::<T>() });
        }
        let fits = match len.checked_mul(Self::SIZE) {
            Some(bytes) => start.addr.checked_add(bytes as u64).is_some(),
            None => false,
        };
        if !fits {
            return Err(RemoteError::PastEnd { addr: start.addr, len, size: Self::SIZE });
        }
        Ok(Self { start, len, element: PhantomData })
    }

    /// Returns the address of the first element.
    #[must_use]
    #[inline]
    pub const fn start(&self) -> RemoteAddress {
        self.start
    }

    /// Returns the number of elements.
    #[must_use]
    #[inline]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no elements.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the length in bytes.
    #[must_use]
    pub const fn byte_len(&self) -> usize {
        self.len * Self::SIZE
    }

    /// Returns the address of an element.
    #[inline]
    pub const fn at(&self, index: usize) -> Result<RemoteAddress, RemoteError> {
        if index >= self.len {
            let end = Some(index as u128 + 1);
            return Err(RemoteError::Outside { start: index as u128, end, len: self.len });
        }
        // Inside the slice, which does not go past the end of all addresses.
        Ok(RemoteAddress { addr: self.start.addr + (index * Self::SIZE) as u64, ..self.start })
    }

    /// Returns a part: `slice.range(8..16)`.
    #[inline]
    pub fn range(&self, range: impl RangeBounds<usize>) -> Result<Self, RemoteError> {
        let start = match range.start_bound() {
            Bound::Included(start) => *start as u128,
            Bound::Excluded(before) => *before as u128 + 1,
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(last) => *last as u128 + 1,
            Bound::Excluded(end) => *end as u128,
            Bound::Unbounded => self.len as u128,
        };
        if start > end || end > self.len as u128 {
            let end = (range.end_bound() != Bound::Unbounded).then_some(end);
            return Err(RemoteError::Outside { start, end, len: self.len });
        }
        let (start, len) = (start as usize, (end - start) as usize);
        let addr = self.start.addr + (start * Self::SIZE) as u64;
        Ok(Self { start: RemoteAddress { addr, ..self.start }, len, element: PhantomData })
    }

    /// Returns the same memory as elements of another type.
    ///
    /// # Errors
    /// If the memory is not a whole number of such elements, or not aligned for them.
    ///
    /// ```
    /// # use mlx5_wqe::{RemoteAddress, RemoteSlice};
    /// let bytes = RemoteSlice::<u8>::new(RemoteAddress { addr: 4096, rkey: 7 }, 64)?;
    /// assert_eq!(bytes.cast::<u64>()?.len(), 8);
    /// assert!(bytes.range(1..)?.cast::<u64>().is_err());
    /// # Ok::<(), mlx5_wqe::RemoteError>(())
    /// ```
    pub const fn cast<U>(&self) -> Result<RemoteSlice<U>, RemoteError> {
        let (bytes, size) = (self.byte_len(), RemoteSlice::<U>::SIZE);
        if !bytes.is_multiple_of(size) {
            return Err(RemoteError::Partial { bytes, size });
        }
        RemoteSlice::new(self.start, bytes / size)
    }

    /// Returns the binary form. Numbers are big-endian.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; 32] {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&Self::MAGIC);
        bytes[8..16].copy_from_slice(&self.start.addr.to_be_bytes());
        bytes[16..24].copy_from_slice(&(self.len as u64).to_be_bytes());
        bytes[24..28].copy_from_slice(&self.start.rkey.to_be_bytes());
        bytes[28..].copy_from_slice(&(Self::SIZE as u32).to_be_bytes());
        bytes
    }

    /// Decodes the binary form, which must be all of `bytes`.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, RemoteError> {
        let bytes: &[u8; 32] =
            bytes.try_into().map_err(|_| RemoteError::Length { bytes: bytes.len() })?;
        if bytes[..8] != Self::MAGIC {
            return Err(RemoteError::NotRemote);
        }
        let word = |at: usize| {
            bytes[at..at + 4].iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
        };
        let long = |at: usize| word(at) << 32 | word(at + 4);
        Self::decoded([long(8), word(24), long(16), word(28)])
    }

    /// Checks address, key, length and element size.
    fn decoded([addr, rkey, len, size]: [u64; 4]) -> Result<Self, RemoteError> {
        if size != Self::SIZE as u64 {
            return Err(RemoteError::ElementSize { theirs: size, ours: Self::SIZE });
        }
        let rkey = narrow("rkey", rkey)?;
        let len = usize::try_from(len).map_err(|_| RemoteError::Value { field: "len" })?;
        Self::new(RemoteAddress { addr, rkey }, len)
    }
}

const TEXT: &str = "mlx5-remote/1";

impl<T> fmt::Display for RemoteSlice<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{TEXT} {} len={} size={}", self.start, self.len, Self::SIZE)
    }
}

/// Reads the words of [`Display`](fmt::Display); those after the first in any order. Numbers are
/// decimal, or hexadecimal after `0x`.
impl<T> FromStr for RemoteSlice<T> {
    type Err = RemoteError;

    fn from_str(text: &str) -> Result<Self, RemoteError> {
        let rest = text.trim_start().strip_prefix(TEXT).ok_or(RemoteError::NotRemote)?;
        Self::decoded(words(rest, ["addr", "rkey", "len", "size"])?)
    }
}

/// Reads each key's number once, in any order, and nothing else.
fn words<const N: usize>(text: &str, keys: [&'static str; N]) -> Result<[u64; N], RemoteError> {
    let mut values = [None; N];
    for word in text.split_ascii_whitespace() {
        let (key, value) = word.split_once('=').ok_or(RemoteError::NotRemote)?;
        let index = keys.iter().position(|known| *known == key).ok_or(RemoteError::NotRemote)?;
        let field = keys[index];
        let value = number(value).ok_or(RemoteError::Value { field })?;
        if values[index].replace(value).is_some() {
            return Err(RemoteError::Twice { field });
        }
    }
    let mut numbers = [0; N];
    for (index, value) in values.into_iter().enumerate() {
        numbers[index] = value.ok_or(RemoteError::Missing { field: keys[index] })?;
    }
    Ok(numbers)
}

fn number(text: &str) -> Option<u64> {
    let (digits, radix) = match text.strip_prefix("0x") {
        Some(digits) => (digits, 16),
        None => (text, 10),
    };
    // `from_str_radix` accepts a sign, which is not allowed here.
    if digits.starts_with(['+', '-']) {
        return None;
    }
    u64::from_str_radix(digits, radix).ok()
}

fn narrow(field: &'static str, number: u64) -> Result<u32, RemoteError> {
    u32::try_from(number).map_err(|_| RemoteError::Value { field })
}

/// Why remote memory is not what it was taken for: a part outside of it, or text or bytes that do
/// not name any.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum RemoteError {
    /// A range is not inside the slice.
    Outside {
        /// Index of the first element.
        start: u128,
        /// Index after the last element; `None` of a range without an end.
        end: Option<u128>,
        /// Number of elements of the slice.
        len: usize,
    },
    /// The address is not aligned for the type of the elements.
    Unaligned {
        /// The address.
        addr: u64,
        /// The alignment.
        align: usize,
    },
    /// The memory goes past the end of all addresses.
    PastEnd {
        /// The address.
        addr: u64,
        /// Number of elements.
        len: usize,
        /// Bytes in an element.
        size: usize,
    },
    /// The memory is not a whole number of elements.
    Partial {
        /// Bytes of memory.
        bytes: usize,
        /// Bytes in an element.
        size: usize,
    },
    /// The peer's elements have another size.
    ElementSize {
        /// Bytes in an element of the peer.
        theirs: u64,
        /// Bytes in an element here.
        ours: usize,
    },
    /// The binary form has another length.
    Length {
        /// The number of bytes.
        bytes: usize,
    },
    /// Text or bytes do not name remote memory, or in another version.
    NotRemote,
    /// The text lacks a field.
    Missing {
        /// The field.
        field: &'static str,
    },
    /// The text has a field twice.
    Twice {
        /// The field.
        field: &'static str,
    },
    /// The value of a field is not a number, or too large.
    Value {
        /// The field.
        field: &'static str,
    },
}

impl fmt::Display for RemoteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Outside { start, end, len } => {
                write!(f, "elements {start}..")?;
                end.map_or(Ok(()), |end| write!(f, "{end}"))?;
                write!(f, " are not inside the remote memory of {len} elements")
            }
            Self::Unaligned { addr, align } => {
                write!(f, "remote address {addr:#x} is not a multiple of {align}")
            }
            Self::PastEnd { addr, len, size } => write!(
                f,
                "{len} elements of {size} bytes from remote address {addr:#x} on go past the end \
                 of all addresses"
            ),
            Self::Partial { bytes, size } => {
                write!(f, "{bytes} bytes are not a whole number of elements of {size} bytes")
            }
            Self::ElementSize { theirs, ours } => write!(
                f,
                "the peer's elements have {theirs} bytes, here they have {ours}: use the same type \
                 on both sides"
            ),
            Self::Length { bytes } => write!(f, "remote memory has 32 bytes, not {bytes}"),
            Self::NotRemote => {
                f.write_str("this does not name remote memory, or in the form of another release")
            }
            Self::Missing { field } => {
                write!(f, "the remote memory has no {field}: was it cut off?")
            }
            Self::Twice { field } => write!(f, "the remote memory has two {field}"),
            Self::Value { field } => {
                write!(f, "the remote memory's {field} is not a number, or too large")
            }
        }
    }
}

impl core::error::Error for RemoteError {}

#[cfg(test)]
mod tests;
