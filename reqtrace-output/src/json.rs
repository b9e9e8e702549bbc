//! `summary.json`: a report in, everything of it but rows and stacks out, in a stable form.

mod blamed;
mod labels;
mod on_cpu;
mod read;
mod slow;
pub(crate) mod verdict;

use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};

use serde_json::{Value, json};

use reqtrace_common::filter::least_us;

use reqtrace_analysis::report::{
    LabelGroups, Latency, Ledger, LengthCounts, OpenRequest, Overhead, Report, TraceInfo,
    TypeReport, Unwinding,
};

pub use read::Summary;

/// Version of the form. It grows when a key changes its meaning or goes; new keys do not count.
pub const SCHEMA_VERSION: u32 = 1;

/// Writes `summary.json`.
pub(crate) fn write(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(1 << 16, out);
    serde_json::to_writer_pretty(&mut out, &summary(report))?;
    writeln!(out)?;
    out.flush()
}

/// The summary as a JSON value.
#[must_use]
pub fn summary(report: &Report) -> Value {
    let trace = &report.trace;
    let processes = trace.processes.iter();
    let mut value = json!({
        "schema_version": SCHEMA_VERSION,
        "trace": {
            "reqtrace": trace.version,
            "profile": trace.profile,
            "kernel": trace.kernel,
            "processes": processes.map(|(pid, name)| json!({"pid": pid, "name": name})).collect::<Vec<_>>(),
            "start_unix_ns": trace.start_unix_ns,
            "monotonic_to_unix_ns": trace.monotonic_to_unix_ns,
            "duration_ns": trace.duration_ns,
            "ended_by": trace.ended_by,
            "markers": trace.markers,
            "stack_filter": trace.stack_filter,
            "late_children": trace.late_children,
            "overhead": trace.overhead.as_ref().map(|took| overhead(took, trace)),
            "shed": trace.shed,
            "preempted_stacks": trace.preempted_stacks,
            "keep_slow_ns": trace.keep_slow_ns,
            "one_in": trace.one_in,
            "unmatched_waits": trace
                .unmatched_waits
                .iter()
                .map(|(wait, functions)| json!({"wait": wait, "functions": functions}))
                .collect::<Vec<_>>(),
        },
        "classes": report
            .classes
            .iter()
            .enumerate()
            .map(|(index, name)| json!({"name": name, "named": index < report.named_waits}))
            .collect::<Vec<_>>(),
        "requests": report
            .requests
            .iter()
            .enumerate()
            .map(|(index, request)| type_report(report, request, report.labels.get(index)))
            .collect::<Vec<_>>(),
        "open": report.open.iter().map(open).collect::<Vec<_>>(),
        "losses": report
            .losses
            .iter()
            .map(|loss| json!({"name": loss.name, "count": loss.count, "advice": loss.advice}))
            .collect::<Vec<_>>(),
        "programs": report.programs,
        "unwinding": unwinding(&report.unwinding),
        "warnings": report.warnings,
        "hints": report.hints,
    });
    if trace.seconds_checked > 0 {
        value["trace"]["seconds_checked"] = json!(trace.seconds_checked);
    }
    if let Some(on_cpu) = &report.on_cpu {
        on_cpu::add(&mut value, on_cpu);
    }
    if let Some(blame) = &report.blame {
        value["verdict"] = report.verdict.iter().map(verdict::value).collect();
        value["blame"] = blame.types.iter().map(blamed::value).collect();
    }
    if !report.attributes.is_empty() {
        value["attributes"] = json!(report.attributes);
    }
    if let Some(filtered) = &report.filtered {
        value["filter"] = json!({
            "which": filtered.which,
            "requests": filtered.kept,
            "left_out": filtered.left_out,
            "without_stack_ns": filtered.without_stack_ns,
        });
    }
    value
}

fn overhead(overhead: &Overhead, trace: &TraceInfo) -> Value {
    let mut value = json!(overhead);
    value["share"] = json!(overhead.guarded_share(trace.cold_percent));
    let [least_ns, most_ns] = overhead.inside_ns(trace.cold_percent);
    value["inside_least_ns"] = json!(least_ns);
    value["inside_most_ns"] = json!(most_ns);
    value["untraced"] = json!(trace.untraced);
    value["tracing_ns"] = json!(overhead.tracing_ns());
    value
}

fn unwinding(unwinding: &Unwinding) -> Value {
    let truncated: BTreeMap<_, _> = unwinding.truncated.iter().cloned().collect();
    let mut value = json!({
        "whole_ns": unwinding.whole_ns,
        "frame_pointers_ns": unwinding.frame_pointers_ns,
        "truncated_ns": truncated,
    });
    if let Some(walks) = &unwinding.walks {
        value["walks"] = json!(walks);
    }
    value
}

fn type_report(report: &Report, request: &TypeReport, groups: Option<&LabelGroups>) -> Value {
    let incomplete = request
        .incomplete
        .iter()
        .map(|(reason, count)| (reason.reason().to_owned(), json!(count)))
        .collect::<serde_json::Map<_, _>>();
    let mut value = json!({
        "name": request.name,
        "count": request.count,
        "exact_count": request.exact_count,
        "recorded": request.recorded,
        "sent": request.sent,
        "estimated": request.is_estimate,
        "rows": request.rows,
        "incomplete": incomplete,
        "latency": request.latency.as_ref().map(latency),
        "ledger": ledger(report, &request.ledger),
        "files": request
            .files
            .iter()
            .map(|file| json!({
                "path": file.path,
                "blocks": file.blocks,
                "blocked_ns": file.ns,
                "run_queue_ns": file.run_queue_ns,
                "longest_ns": file.longest_ns,
                "longest_run_queue_ns": file.longest_run_queue_ns,
                "bytes": file.bytes,
            }))
            .collect::<Vec<_>>(),
        "block_lengths": request.lengths.iter().map(lengths).collect::<Vec<_>>(),
        "classes_exact": request.classes_exact,
        "slow": request.slow.as_ref().map(|slow| slow::value(slow, report)),
        "begins": request.begins,
        "ends": request.ends,
        "nested": request.nested,
        "other_type": request.other_type,
        "ends_without_begin": request.ends_without_begin,
    });
    if let Some(groups) = groups {
        value["labels"] = labels::value(groups);
    }
    if request.is_keyed {
        value["unknown_keys"] = json!(request.unknown_keys);
        value["running_elsewhere"] = json!(request.running_elsewhere);
    }
    if let Some(children) = request.children {
        value["children"] = json!(children);
    }
    if let Some(waited) = &request.waited_before {
        value["waited_before"] = json!(waited);
    }
    if let Some(lost) = &request.lost {
        value["lost_cpu"] = json!(lost);
    }
    value
}

/// Powers of two that have a block.
fn lengths(lengths: &LengthCounts) -> Value {
    let counted = lengths.counts.iter().enumerate();
    let powers = counted.filter(|(_, count)| **count > 0);
    json!({
        "class": lengths.name,
        "counts": powers
            .map(|(power, count)| json!({"from_us": least_us(power), "count": count}))
            .collect::<Vec<_>>(),
    })
}

fn latency(latency: &Latency) -> Value {
    json!({
        "mean_ns": latency.mean_ns,
        "p50_ns": latency.p50_ns,
        "p90_ns": latency.p90_ns,
        "p95_ns": latency.p95_ns,
        "p99_ns": latency.p99_ns,
        "p999_ns": latency.p999_ns,
        "max_ns": latency.max_ns,
        "from_records": latency.from_records,
    })
}

/// With parked and queued time when a request type has a key.
pub(super) fn ledger(report: &Report, ledger: &Ledger) -> Value {
    let classes = report
        .classes
        .iter()
        .zip(&ledger.classes)
        .map(|(name, ns)| (name.clone(), json!(ns)))
        .collect::<serde_json::Map<_, _>>();
    let mut value = json!({
        "latency_ns": ledger.latency_ns,
        "on_cpu_ns": ledger.on_cpu_ns,
        "run_queue_ns": ledger.run_queue_ns,
        "preempted_ns": ledger.preempted_ns,
        "blocked_ns": ledger.blocked_ns(),
        "unattributed_ns": ledger.unattributed_ns,
        "classes_ns": classes,
    });
    if !report.places.is_empty() {
        value["parked_ns"] = json!(ledger.parked_ns());
        value["queued_ns"] = json!(ledger.queued_ns());
        value["parked_in_ns"] = by_place(&report.places.parked, &ledger.parked);
        value["queued_in_ns"] = by_place(&report.places.queued, &ledger.queued);
    }
    value
}

/// Times by place, of those that have a name.
fn by_place(names: &[String], times: &[u64]) -> Value {
    let named = names.iter().zip(times).filter(|(name, _)| !name.is_empty());
    let named = named.map(|(name, ns)| (name.clone(), json!(ns)));
    Value::Object(named.collect())
}

fn open(open: &OpenRequest) -> Value {
    let mut value = json!({
        "request": open.request,
        "pid": open.pid,
        "tid": open.tid,
        "comm": open.comm,
        "running_ns": open.running_ns,
        "blocked": open.blocked.as_ref().map(|block| json!({
            "for_ns": block.for_ns,
            "class": block.class,
            "user": block.user,
            "kernel": block.kernel,
        })),
    });
    if let Some((place, for_ns)) = &open.place {
        value["place"] = json!({"name": place, "for_ns": for_ns});
    }
    value
}
