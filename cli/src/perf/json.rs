//! The results of `mlx5 perf` as JSON.

use crate::link::Rate;
use crate::numbers::Times;
use crate::perf::Setting;
use crate::perf::measure::{Measurement, Plan};
use serde_json::{Value, json};

/// Returns the results, with the settings that they were measured with.
pub(crate) fn document(setting: &Setting, plan: &Plan, results: &[Measurement]) -> Value {
    json!({
        "command": "mlx5 perf",
        "version": env!("CARGO_PKG_VERSION"),
        "device": {
            "name": setting.device,
            "part": setting.part,
            "firmware": setting.firmware,
            "simulated": setting.simulated,
            "port": setting.port,
            "link": setting.link,
            "mtu": setting.mtu,
        },
        "loopback": setting.loopback,
        "local": setting.local,
        "remote": setting.remote,
        "operation": plan.op.name(),
        "transport": plan.transport.name(),
        "latency_method": plan.method(),
        "depth": plan.depth,
        "inline": plan.inline,
        "signal_every": plan.pace.signal_every,
        "batch": plan.pace.batch,
        "results": results.iter().map(result).collect::<Vec<_>>(),
    })
}

fn result(result: &Measurement) -> Value {
    json!({
        "size": result.size,
        "latency_ns": result.latency.as_ref().map(latency),
        "rate": result.rate.as_ref().map(|measured| rate(measured, result.size)),
    })
}

fn latency(times: &Times) -> Value {
    json!({
        "samples": times.count(),
        "min": times.quantile(0.0),
        "p50": times.quantile(0.5),
        "p90": times.quantile(0.9),
        "p99": times.quantile(0.99),
        "p99_9": times.quantile(0.999),
        "max": times.quantile(1.0),
        "mean": times.mean(),
        "stdev": times.deviation(),
    })
}

fn rate(rate: &Rate, size: usize) -> Value {
    json!({
        "messages": rate.messages,
        "lost": rate.lost,
        "seconds": rate.elapsed.as_secs_f64(),
        "messages_per_second": rate.per_second(),
        "gbit_per_second": rate.gbits(size),
    })
}
