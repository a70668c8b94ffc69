//! Histograms of latencies, as bars of characters.

use crate::numbers::{Size, Times, microseconds};
use crate::perf::measure::Measurement;
use std::io::{self, Write};

/// Steps of equal width, from the shortest time to the percentile below which nearly all are.
const STEPS: u64 = 16;
const NEARLY_ALL: f64 = 0.99;
/// The width of the longest bar.
const WIDTH: u64 = 50;

/// The number of times in a step: from its start, in nanoseconds, up to the next step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Step {
    from: u64,
    /// The end, exclusive; the last step has none.
    to: Option<u64>,
    count: u64,
}

/// Writes a histogram for each size.
pub(crate) fn write(out: &mut impl Write, results: &[Measurement]) -> io::Result<()> {
    for result in results {
        let Some(times) = &result.latency else { continue };
        let steps = steps(times);
        let longest = steps.iter().map(|step| step.count).max().unwrap_or(0).max(1);
        writeln!(out, "\n{} bytes: latency in µs, messages", Size(result.size))?;
        for Step { from, to, count } in steps {
            let us = |nanoseconds: u64| microseconds(nanoseconds as f64);
            let to = to.map_or("and more".to_owned(), |to| format!("to {}", us(to)));
            // A bar for every step that has messages.
            let bar = "#".repeat((count * WIDTH).div_ceil(longest) as usize);
            writeln!(out, "{}", format!("{:>9} {to:<10} {count:>9}  {bar}", us(from)).trim_end())?;
        }
    }
    Ok(())
}

fn steps(times: &Times) -> Vec<Step> {
    if times.count() == 0 {
        return Vec::new();
    }
    let (first, last) = (times.quantile(0.0), times.quantile(NEARLY_ALL));
    let width = ((last + 1).saturating_sub(first)).div_ceil(STEPS).max(1);
    let mut steps: Vec<Step> = (0..STEPS)
        .map(|step| first + step * width)
        .take_while(|from| *from <= last)
        .map(|from| Step { from, to: Some(from + width), count: 0 })
        .collect();
    let end = steps.last().and_then(|step| step.to).unwrap_or(first);
    steps.push(Step { from: end, to: None, count: 0 });
    for (time, count) in times.recorded() {
        let step = (time.saturating_sub(first) / width) as usize;
        let step = step.min(steps.len() - 1);
        steps[step].count += count;
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn times(nanoseconds: impl IntoIterator<Item = u64>) -> Times {
        let mut times = Times::new();
        nanoseconds.into_iter().for_each(|time| times.record(Duration::from_nanos(time)));
        times
    }

    #[test]
    fn every_time_is_in_one_step() {
        for all in [
            times([7]),
            times(100..1000),
            times((100..200).chain([1_000_000_000])),
            times([1, 3_600_000_000_000]),
        ] {
            let steps = steps(&all);
            assert!(steps.len() as u64 <= STEPS + 1);
            assert_eq!(steps.iter().map(|step| step.count).sum::<u64>(), all.count());
            assert!(steps.windows(2).all(|two| two[0].to == Some(two[1].from)), "{steps:?}");
            assert_eq!(steps[0].from, all.quantile(0.0));
        }
        assert_eq!(steps(&times([])), []);
    }

    #[test]
    fn few_long_times_do_not_make_the_steps_wide() {
        let steps = steps(&times((100..300).chain([1_000_000_000])));
        assert_eq!(steps.last().map(|step| step.count), Some(1), "{steps:?}");
        assert!(steps[0].to.is_some_and(|to| to < 120), "{steps:?}");
    }

    #[test]
    fn the_longest_bar_has_all_its_width_and_none_is_missing() {
        let times = times(std::iter::repeat_n(10, 10_000).chain([20]));
        let result = Measurement { size: 64, latency: Some(times), rate: None, whole: true };
        let mut text = Vec::new();
        write(&mut text, &[result]).expect("written");
        let text = String::from_utf8(text).expect("text");
        assert!(text.contains("64 bytes: latency"), "{text}");
        assert!(text.contains(&"#".repeat(50)) && !text.contains(&"#".repeat(51)), "{text}");
        assert!(text.lines().filter(|line| line.contains('#')).count() == 2, "{text}");
    }
}
