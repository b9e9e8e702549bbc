//! Typical and slow requests of one type: the model in, JSON out.

use serde_json::{Value, json};

use super::ledger;
use reqtrace_analysis::report::Report;
use reqtrace_analysis::report::slow::{Band, SlowBlock, SlowRequests};

/// As it stands in `summary.json`.
pub(super) fn value(slow: &SlowRequests, report: &Report) -> Value {
    let band = |band: &Band| {
        json!({
            "count": band.count,
            "from_ns": band.from_ns,
            "to_ns": band.to_ns,
            "ledger": ledger(report, &band.ledger),
        })
    };
    let block = |block: &SlowBlock| {
        json!({
            "pid": block.pid,
            "tid": block.tid,
            "comm": block.comm,
            "latency_ns": block.latency_ns,
            "start_unix_ns": block.start_unix_ns,
            "blocked_ns": block.blocked_ns,
            "run_queue_ns": block.run_queue_ns,
            "class": block.class,
            "waker": block.waker.as_ref().map(|waker| json!({
                "pid": waker.pid,
                "tid": waker.tid,
                "comm": waker.comm,
            })),
            "user": block.user,
            "kernel": block.kernel,
        })
    };
    json!({
        "typical": band(&slow.typical),
        "slowest": band(&slow.slowest),
        "longest_blocks": slow.blocks.iter().map(block).collect::<Vec<_>>(),
    })
}
