//! The results of `mlx5 perf` as JSON.

use crate::link::{Flow, Rate};
use crate::numbers::Times;
use crate::perf::measure::{Measurement, Plan};
use crate::perf::{DEBUG, Setting};
use serde_json::{Value, json};

/// Returns the results, with the settings that they were measured with.
pub(crate) fn document(
    setting: &Setting,
    plan: &Plan,
    results: &[Measurement],
    histogram: bool,
    interrupted: bool,
) -> Value {
    json!({
        "command": "mlx5 perf",
        "version": env!("CARGO_PKG_VERSION"),
        "build": if DEBUG { "debug" } else { "release" },
        "interrupted": interrupted,
        "simulated": setting.simulated,
        "device": {
            "name": setting.device,
            "part": setting.part,
            "firmware": setting.firmware,
            "port": setting.port,
            "link": setting.link,
            "mtu": setting.mtu,
        },
        "loopback": setting.loopback,
        "local": setting.local,
        "remote": setting.remote,
        "operation": plan.op.name(),
        "transport": plan.transport_name(),
        "latency_method": plan.method(),
        "depth": plan.depth,
        "inline": plan.inline,
        "signal_every": (!plan.raw).then_some(plan.pace.signal_every),
        "batch": plan.pace.batch,
        "queue_pairs": plan.qps,
        "threads": plan.threads,
        "bidirectional": plan.bidirectional,
        "results": results.iter().map(|one| result(one, histogram)).collect::<Vec<_>>(),
    })
}

fn result(result: &Measurement, histogram: bool) -> Value {
    let mut all = json!({
        "size": result.size,
        "whole": result.whole,
        "latency_ns": result.latency.as_ref().map(latency),
        "rate": result.rate.as_ref().map(|measured| rate(measured, result.size)),
    });
    if let Some(times) = result.latency.as_ref().filter(|_| histogram) {
        // Each measured time, with the number of its samples.
        all["histogram_ns"] = json!(times.recorded().collect::<Vec<_>>());
    }
    all
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
    let flow = |flow: &Flow| {
        json!({
            "messages": flow.messages,
            "lost": flow.lost,
            "seconds": flow.elapsed.as_secs_f64(),
        })
    };
    let mut all = flow(&rate.out);
    all["back"] = json!(rate.back.as_ref().map(flow));
    all["messages_per_second"] = json!(rate.per_second());
    all["gbit_per_second"] = json!(rate.gbits(size));
    all
}
