//! Results on the screen.

use crate::numbers::{Size, microseconds, significant};
use crate::perf::measure::{Measurement, Plan};
use crate::perf::{DEBUG, Setting};
use crate::table::{Align, Table};
use std::io::{self, Write};

/// The reported percentiles, with their names.
pub(crate) const PERCENTILES: [(f64, &str); 4] =
    [(0.5, "50 %"), (0.9, "90 %"), (0.99, "99 %"), (0.999, "99.9 %")];

/// Writes the results, and the conditions of the measurement.
pub(crate) fn table(
    out: &mut impl Write,
    setting: &Setting,
    plan: &Plan,
    results: &[Measurement],
) -> io::Result<()> {
    writeln!(out, "{} on {}", operation(plan), place(setting))?;
    if plan.qps > 1 {
        match plan.threads {
            1 => writeln!(out, "{} queue pairs", plan.qps)?,
            threads => writeln!(out, "{} queue pairs in {threads} threads", plan.qps)?,
        }
    }
    if let Some(amount) = plan.latencies {
        let each = if plan.threads > 1 { " in each thread" } else { "" };
        writeln!(out, "latency in µs: {}, {amount}, one by one{each}", plan.method())?;
    }
    if plan.rates.is_some() {
        let each = if plan.qps > 1 { " on each queue pair" } else { "" };
        write!(out, "rate: {} requests outstanding{each}", plan.depth)?;
        if !plan.raw {
            write!(out, ", one completion in {}", plan.pace.signal_every)?;
        }
        if plan.pace.batch > 1 {
            write!(out, ", {} requests a doorbell", plan.pace.batch)?;
        }
        writeln!(out, "{}", if plan.bidirectional { ", both ways, added" } else { "" })?;
    }
    writeln!(out)?;
    let mut columns = vec![("bytes", Align::Right)];
    if plan.latencies.is_some() {
        columns.push(("min", Align::Right));
        columns.extend(PERCENTILES.iter().map(|(_, name)| (*name, Align::Right)));
        columns.extend([("max", Align::Right), ("mean", Align::Right)]);
    }
    let lossy = results.iter().any(|result| result.rate.is_some_and(|rate| rate.lost() > 0));
    if plan.rates.is_some() {
        columns.extend([("Mmsg/s", Align::Right), ("Gbit/s", Align::Right)]);
        if lossy {
            columns.push(("lost", Align::Right));
        }
    }
    let mut table = Table::new(&columns);
    for result in results {
        let mut row = vec![Size(result.size).to_string()];
        if let Some(times) = &result.latency {
            let us = |nanoseconds: u64| microseconds(nanoseconds as f64);
            row.push(us(times.quantile(0.0)));
            row.extend(PERCENTILES.iter().map(|(at, _)| us(times.quantile(*at))));
            row.extend([us(times.quantile(1.0)), microseconds(times.mean())]);
        }
        if let Some(rate) = &result.rate {
            row.push(significant(rate.per_second() / 1e6));
            row.push(significant(rate.gbits(result.size)));
            if lossy {
                row.push(rate.lost().to_string());
            }
        }
        table.row(row);
    }
    table.write(out, 0)
}

/// The measured operation: `RC send`.
pub(crate) fn operation(plan: &Plan) -> String {
    if plan.raw {
        return "raw packets".to_owned();
    }
    format!("{} {}", plan.transport.name().to_uppercase(), plan.op.name())
}

/// The device and the conditions of the measurement, in a line.
pub(crate) fn place(setting: &Setting) -> String {
    let simulated = if setting.simulated { "simulated " } else { "" };
    let part = setting.part.unwrap_or("device");
    let other = if setting.loopback { "both ends in one process" } else { "between two processes" };
    let mtu = setting.mtu.map_or_else(String::new, |mtu| format!("MTU {mtu}, "));
    let build = if DEBUG { ", not optimized" } else { "" };
    format!(
        "{} port {}: {simulated}{part}, {}, {mtu}{other}{build}",
        setting.device, setting.port, setting.link
    )
}
