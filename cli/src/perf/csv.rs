//! The results of `mlx5 perf` as CSV: a row for each size.

use crate::perf::measure::{Measurement, Plan};
use std::fmt::Write;

/// The columns. None of their values has a comma or a quotation mark.
const HEAD: &str = "transport,operation,bytes,queue_pairs,threads,bidirectional,\
    samples,min_ns,p50_ns,p90_ns,p99_ns,p99_9_ns,max_ns,mean_ns,stdev_ns,\
    messages,lost,seconds,messages_per_second,gbit_per_second,whole";

/// Columns of a latency, and of a rate.
const LATENCY: usize = 9;
const RATE: usize = 5;

/// Returns the results. Cells without a measurement are empty.
pub(crate) fn table(plan: &Plan, results: &[Measurement]) -> String {
    let mut text = format!("{HEAD}\n");
    for Measurement { size, latency, rate, whole } in results {
        let (transport, op) = (plan.transport_name(), plan.op.name());
        // Writing to a string does not fail.
        let _ = write!(
            text,
            "{transport},{op},{size},{},{},{}",
            plan.qps, plan.threads, plan.bidirectional
        );
        match latency {
            Some(times) => {
                let _ = write!(text, ",{}", times.count());
                for part in [0.0, 0.5, 0.9, 0.99, 0.999, 1.0] {
                    let _ = write!(text, ",{}", times.quantile(part));
                }
                let _ = write!(text, ",{:.1},{:.1}", times.mean(), times.deviation());
            }
            None => text.push_str(&",".repeat(LATENCY)),
        }
        match rate {
            Some(rate) => {
                let (back, elapsed) = match rate.back {
                    Some(back) => (back.messages, back.elapsed.max(rate.out.elapsed)),
                    None => (0, rate.out.elapsed),
                };
                let _ = write!(
                    text,
                    ",{},{},{:.9},{:.1},{:.6}",
                    rate.out.messages + back,
                    rate.lost(),
                    elapsed.as_secs_f64(),
                    rate.per_second(),
                    rate.gbits(*size)
                );
            }
            None => text.push_str(&",".repeat(RATE)),
        }
        let _ = writeln!(text, ",{whole}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::{Flow, Op, Pace, Rate, Transport};
    use crate::numbers::Sizes;
    use std::time::Duration;

    #[test]
    fn the_time_of_both_ways_is_the_longer_one() {
        let plan = Plan {
            op: Op::Send,
            transport: Transport::Rc,
            raw: false,
            sizes: Sizes(vec![64]),
            latencies: None,
            rates: None,
            rates_fixed: false,
            depth: 1,
            inline: 0,
            pace: Pace { signal_every: 1, batch: 1, depth: 1 },
            qps: 1,
            threads: 1,
            bidirectional: true,
        };
        let flow =
            |messages, seconds| Flow { messages, lost: 0, elapsed: Duration::from_secs(seconds) };
        for (out, back) in [(2, 4), (4, 2)] {
            let rate = Rate { out: flow(8, out), back: Some(flow(16, back)) };
            let measured = Measurement { size: 64, latency: None, rate: Some(rate), whole: true };
            let text = table(&plan, &[measured]);
            assert!(text.contains(",24,0,4.000000000,") && text.ends_with(",true\n"), "{text}");
        }
    }
}
