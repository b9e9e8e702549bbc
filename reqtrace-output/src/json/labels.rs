//! Requests by label, as JSON.

use serde_json::{Value, json};

use reqtrace_analysis::report::{LabelGroup, LabelGroups};

/// The groups of a request type.
pub(super) fn value(groups: &LabelGroups) -> Value {
    let group = |group: &LabelGroup| {
        let mut value = json!({
            "label": group.label,
            "count": group.count,
            "latency_ns": group.ledger.latency_ns,
            "max_ns": group.max_ns,
            "on_cpu_ns": group.ledger.on_cpu_ns,
            "run_queue_ns": group.ledger.run_queue_ns,
            "preempted_ns": group.ledger.preempted_ns,
            "blocked_ns": group.ledger.blocked_ns(),
            "unattributed_ns": group.ledger.unattributed_ns,
        });
        if !group.ledger.parked.is_empty() {
            value["parked_ns"] = json!(group.ledger.parked_ns());
            value["queued_ns"] = json!(group.ledger.queued_ns());
        }
        value
    };
    json!({
        "by": groups.by.to_string(),
        "shown": groups.shown.iter().map(group).collect::<Vec<_>>(),
        "rest": group(&groups.rest),
        "rest_labels": groups.rest_labels,
        "table_full": groups.table_full,
    })
}
