//! Numbers on the command line and in the output.

use hdrhistogram::Histogram;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
const GIB: usize = 1 << 30;

/// The largest message that can be measured.
pub(crate) const LARGEST: usize = 1 << 30;

/// Reads a size: `64`, `64k`, `8m`, `1g`.
pub(crate) fn parse_size(text: &str) -> Result<usize, String> {
    let text = text.trim();
    let lower = text.to_ascii_lowercase();
    let units = [('k', KIB), ('m', MIB), ('g', GIB)];
    let (digits, unit) = units
        .iter()
        .find_map(|(letter, unit)| Some((lower.strip_suffix(*letter)?, *unit)))
        .unwrap_or((lower.as_str(), 1));
    let size = digits.parse::<usize>().ok().and_then(|number| number.checked_mul(unit));
    match size {
        Some(size) if size <= LARGEST => Ok(size),
        Some(_) => Err(format!("{text} is more than the largest message, 1g")),
        None => Err(format!("{text:?} is not a size: write 64, 64k or 8m, up to 1g")),
    }
}

/// Reads a number from `least` to `most`.
pub(crate) fn count<T>(
    least: u64,
    most: u64,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static
where
    T: TryFrom<u64> + Clone + Send + Sync + 'static,
{
    move |text| {
        let number = text.trim().parse().ok().filter(|number| (least..=most).contains(number));
        number.and_then(|number: u64| number.try_into().ok()).ok_or_else(|| match most {
            u64::MAX => format!("{text:?} is not a number from {least} on"),
            _ => format!("{text:?} is not a number from {least} to {most}"),
        })
    }
}

/// Reads a time in seconds: `10`, `0.5`.
pub(crate) fn parse_seconds(text: &str) -> Result<Duration, String> {
    const LONGEST: f64 = 86400.0;
    match text.trim().parse::<f64>() {
        Ok(seconds) if (0.001..=LONGEST).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        Ok(_) => Err("a time is from 0.001 to 86400 seconds".to_owned()),
        Err(_) => Err(format!("{text:?} is not a time in seconds: write 10, or 0.5")),
    }
}

/// Formats a size: `64`, `64k`, `8m`, `1g`.
pub(crate) struct Size(pub(crate) usize);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self.0 {
            size if size >= GIB && size % GIB == 0 => format!("{}g", size / GIB),
            size if size >= MIB && size % MIB == 0 => format!("{}m", size / MIB),
            size if size >= KIB && size % KIB == 0 => format!("{}k", size / KIB),
            size => size.to_string(),
        };
        f.pad(&text)
    }
}

/// Message sizes, in ascending order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Sizes(pub(crate) Vec<usize>);

impl Sizes {
    /// Powers of two from `first` on, and `last`.
    pub(crate) fn sweep(first: usize, last: usize) -> Self {
        let mut sizes = vec![first];
        let mut next = (first + 1).next_power_of_two();
        while next <= last {
            sizes.push(next);
            next *= 2;
        }
        sizes.push(last);
        sizes.dedup();
        Self(sizes)
    }

    /// The largest.
    pub(crate) fn largest(&self) -> usize {
        self.0.iter().copied().max().unwrap_or(0)
    }
}

impl FromStr for Sizes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut sizes = Vec::new();
        for part in text.split(',') {
            match part.split_once("..") {
                Some((first, last)) => {
                    let (first, last) = (parse_size(first)?, parse_size(last)?);
                    if first > last {
                        return Err(format!("{part} runs backwards: write {last}..{first}"));
                    }
                    sizes.extend(Self::sweep(first, last).0);
                }
                None => sizes.push(parse_size(part)?),
            }
        }
        sizes.sort_unstable();
        sizes.dedup();
        Ok(Self(sizes))
    }
}

/// Durations, and their percentiles.
pub(crate) struct Times(Histogram<u64>);

impl Times {
    /// No times yet. They are kept with three digits; times longer than an hour count as one hour.
    pub(crate) fn new() -> Self {
        const HOUR: u64 = 3_600_000_000_000;
        match Histogram::new_with_bounds(1, HOUR, 3) {
            Ok(times) => Self(times),
            Err(_) => unreachable!("the bounds are right"),
        }
    }

    /// Adds one.
    pub(crate) fn record(&mut self, time: Duration) {
        self.0.saturating_record(time.as_nanos().try_into().unwrap_or(u64::MAX));
    }

    /// Adds all of `other`.
    pub(crate) fn merge(&mut self, other: &Self) {
        // It fails only for values outside the bounds, which are the same.
        let _ = self.0.add(&other.0);
    }

    /// Nanoseconds, in ascending order, and how often they were recorded.
    pub(crate) fn recorded(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.0.iter_recorded().map(|at| (at.value_iterated_to(), at.count_at_value()))
    }

    /// Number of the times.
    pub(crate) fn count(&self) -> u64 {
        self.0.len()
    }

    /// The time in nanoseconds that this part of them does not exceed: 0.5 for the median, 0 for
    /// the shortest and 1 for the longest.
    pub(crate) fn quantile(&self, part: f64) -> u64 {
        match part {
            0.0 => self.0.min(),
            1.0 => self.0.max(),
            part => self.0.value_at_quantile(part),
        }
    }

    /// Their mean, in nanoseconds.
    pub(crate) fn mean(&self) -> f64 {
        self.0.mean()
    }

    /// Their standard deviation, in nanoseconds.
    pub(crate) fn deviation(&self) -> f64 {
        self.0.stdev()
    }
}

/// Shows nanoseconds as microseconds, with the decimals that are significant.
pub(crate) fn microseconds(nanoseconds: f64) -> String {
    match nanoseconds / 1000.0 {
        us if us < 100.0 => format!("{us:.2}"),
        us if us < 1000.0 => format!("{us:.1}"),
        us => format!("{us:.0}"),
    }
}

/// Shows a number with three significant digits, or all that are before the point.
pub(crate) fn significant(number: f64) -> String {
    match number {
        0.0 => "0".to_owned(),
        n if n < 0.01 => format!("{n:.4}"),
        n if n < 1.0 => format!("{n:.3}"),
        n if n < 10.0 => format!("{n:.2}"),
        n if n < 100.0 => format!("{n:.1}"),
        n => format!("{n:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_binary_units() {
        assert_eq!(parse_size("0"), Ok(0));
        assert_eq!(parse_size("64k"), Ok(65536));
        assert_eq!(parse_size("8M"), Ok(8 << 20));
        assert_eq!((parse_size("1g"), parse_size("1G")), (Ok(1 << 30), Ok(1 << 30)));
        assert!(parse_size("2g").unwrap_err().contains("largest"));
        assert!(parse_size("8x").unwrap_err().contains("not a size"));
        assert!(parse_size("-1").unwrap_err().contains("not a size"));
        assert!(parse_size("99999m").unwrap_err().contains("largest"));
        assert!(parse_size("99999999999999999999m").unwrap_err().contains("not a size"));
        for (size, text) in
            [(0, "0"), (1023, "1023"), (1536, "1536"), (65536, "64k"), (1 << 30, "1g")]
        {
            assert_eq!(Size(size).to_string(), text);
        }
    }

    #[test]
    fn a_count_says_what_it_may_be() {
        assert_eq!(count::<u32>(1, 64)("64"), Ok(64));
        for text in ["0", "65", "-1", "many", "", "99999999999999999999"] {
            let reported = count::<u32>(1, 64)(text).unwrap_err();
            assert!(reported.ends_with("is not a number from 1 to 64"), "{reported}");
        }
        assert!(count::<u64>(1, u64::MAX)("1k").unwrap_err().ends_with("from 1 on"));
        assert!(count::<u8>(1, 300)("300").is_err(), "none of its type");
    }

    #[test]
    fn a_range_goes_through_the_powers_of_two() {
        let sizes = |text: &str| text.parse::<Sizes>().map(|sizes| sizes.0);
        assert_eq!(sizes("8..64"), Ok(vec![8, 16, 32, 64]));
        assert_eq!(sizes("3..20"), Ok(vec![3, 4, 8, 16, 20]));
        assert_eq!(sizes("0..2"), Ok(vec![0, 1, 2]));
        assert_eq!(sizes("64"), Ok(vec![64]));
        assert_eq!(sizes("1k,8,1..2,8"), Ok(vec![1, 2, 8, 1024]));
        assert!(sizes("8..4").unwrap_err().contains("backwards"));
        assert!(sizes("").is_err() && sizes("1,,2").is_err() && sizes("..").is_err());
    }

    #[test]
    fn times_keep_three_digits_however_long_they_are() {
        let mut times = Times::new();
        for nanoseconds in [1_000, 2_000, 3_000_000_000] {
            times.record(Duration::from_nanos(nanoseconds));
        }
        assert_eq!(times.count(), 3);
        let close = |got: u64, wanted: u64| got.abs_diff(wanted) * 1000 <= wanted;
        assert!(close(times.quantile(0.0), 1_000));
        assert!(close(times.quantile(0.5), 2_000));
        assert!(close(times.quantile(1.0), 3_000_000_000));
        assert!(close(times.mean() as u64, 1_000_001_000));
        times.record(Duration::MAX);
        assert_eq!(times.count(), 4);
    }

    #[test]
    fn a_run_takes_a_millisecond_to_a_day() {
        assert_eq!(parse_seconds("10"), Ok(Duration::from_secs(10)));
        assert_eq!(parse_seconds("0.25"), Ok(Duration::from_millis(250)));
        for text in ["0", "-1", "86401", "inf", "nan", "0.0001"] {
            assert!(parse_seconds(text).unwrap_err().contains("86400"), "{text}");
        }
        assert!(parse_seconds("10s").unwrap_err().contains("write 10"));
    }

    #[test]
    fn times_of_two_are_one_histogram() {
        let (mut one, mut other) = (Times::new(), Times::new());
        for nanoseconds in [100, 100, 300] {
            one.record(Duration::from_nanos(nanoseconds));
        }
        other.record(Duration::from_nanos(200));
        one.merge(&other);
        assert_eq!(one.recorded().collect::<Vec<_>>(), [(100, 2), (200, 1), (300, 1)]);
    }

    #[test]
    fn numbers_keep_what_means_something() {
        assert_eq!(microseconds(1234.0), "1.23");
        assert_eq!(microseconds(123_456.0), "123.5");
        assert_eq!(microseconds(1_234_567.0), "1235");
        assert_eq!(significant(0.1234), "0.123");
        assert_eq!(significant(12.34), "12.3");
        assert_eq!(significant(1234.5), "1234");
    }
}
