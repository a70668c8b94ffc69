//! Numbers with fewer bits on the wire or in the device than in Rust.

use std::error::Error;
use std::fmt;
use std::time::Duration;

/// A number that does not fit its field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutOfRange {
    /// The field.
    pub what: &'static str,
    /// The number.
    pub value: u32,
    /// The maximum.
    pub max: u32,
}

impl fmt::Display for OutOfRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, value, max } = self;
        write!(f, "{what} {value} is too large: at most {max}")
    }
}

impl Error for OutOfRange {}

/// One number per row: its type, its maximum, and its name in errors.
macro_rules! limited {
    ($( $(#[$doc:meta])* $name:ident($repr:ty) <= $max:literal, $what:literal; )*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
        pub struct $name($repr);

        impl $name {
            /// The maximum.
            pub const MAX: Self = Self($max);

            /// Checks that the number fits.
            pub const fn new(value: $repr) -> Result<Self, OutOfRange> {
                if value <= $max {
                    Ok(Self(value))
                } else {
                    Err(OutOfRange { what: $what, value: value as u32, max: $max })
                }
            }

            /// Returns the number.
            pub const fn get(self) -> $repr {
                self.0
            }
        }

        impl TryFrom<$repr> for $name {
            type Error = OutOfRange;

            fn try_from(value: $repr) -> Result<Self, OutOfRange> {
                Self::new(value)
            }
        }

        impl From<$name> for $repr {
            fn from(value: $name) -> Self {
                value.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    )* };
}

limited! {
    /// Packet sequence number.
    Psn(u32) <= 0xff_ffff, "packet sequence number";
    /// Number of a queue pair.
    QpNumber(u32) <= 0xff_ffff, "QP number";
    /// The number of retries. As a number of RNR retries, [`RetryCount::MAX`] means without limit.
    RetryCount(u8) <= 7, "retry count";
    /// Time to wait for an acknowledgement: 4.096 µs · 2ⁿ; 0 means without limit.
    /// [`AckTimeout::at_least`] takes a [`Duration`].
    AckTimeout(u8) <= 31, "acknowledge timeout";
    /// Time that a peer waits after it finds no receive posted: a row of the RNR NAK timer table of
    /// the InfiniBand specification (1 is 0.01 ms, 12 is 0.64 ms, 31 is 491.52 ms, and 0 is 655.36
    /// ms).
    RnrTimer(u8) <= 31, "RNR NAK timer";
}

/// Unit of acknowledge timeouts in nanoseconds.
const ACK_UNIT: u64 = 4096;

impl AckTimeout {
    /// Returns the shortest timeout that is not below a time: the next of 8.192 µs, 16.384 µs, and
    /// so on. Fails above [`AckTimeout::MAX`], which is 8796 seconds. Never returns 0, the timeout
    /// without limit.
    ///
    /// ```
    /// use mlx5::{AckTimeout, ConnectOptions};
    /// use std::time::Duration;
    ///
    /// let timeout = AckTimeout::at_least(Duration::from_millis(100))?;
    /// assert_eq!(timeout.get(), 15);
    /// assert_eq!(timeout.duration(), Some(Duration::from_nanos(134_217_728)));
    /// let options = ConnectOptions::default().timeout(timeout);
    /// # Ok::<(), mlx5::OutOfRange>(())
    /// ```
    pub const fn at_least(time: Duration) -> Result<Self, OutOfRange> {
        let mut timeout = 1;
        while timeout <= Self::MAX.0 {
            if (ACK_UNIT << timeout) as u128 >= time.as_nanos() {
                return Ok(Self(timeout));
            }
            timeout += 1;
        }
        let seconds = time.as_secs();
        let value = if seconds > u32::MAX as u64 { u32::MAX } else { seconds as u32 };
        let max = (ACK_UNIT << Self::MAX.0) / 1_000_000_000;
        Err(OutOfRange { what: "acknowledge timeout in seconds", value, max: max as u32 })
    }

    /// Returns the time; `None` without limit.
    pub const fn duration(self) -> Option<Duration> {
        match self.0 {
            0 => None,
            timeout => Some(Duration::from_nanos(ACK_UNIT << timeout)),
        }
    }
}

/// Like [`AckTimeout::at_least`].
impl TryFrom<Duration> for AckTimeout {
    type Error = OutOfRange;

    fn try_from(time: Duration) -> Result<Self, OutOfRange> {
        Self::at_least(time)
    }
}

/// Numbers that can be cut to the bits of their field.
macro_rules! wrapping {
    ($($name:ident($repr:ty): $bits:literal;)*) => { $(
        impl $name {
            #[doc = concat!("Returns the number in the low ", $bits, " bits.")]
            pub const fn wrapping(value: $repr) -> Self {
                Self(value & Self::MAX.0)
            }
        }
    )* };
}

wrapping! {
    Psn(u32): 24;
    RetryCount(u8): 3;
    AckTimeout(u8): 5;
    RnrTimer(u8): 5;
}
