//! Blame of a request type as JSON.

use serde_json::{Map, Value, json};

use crate::report::blame::{Cause, Holder, TypeBlame};

/// Who held requests up: so many, the most time first. `blame.csv` has all.
const HOLDERS: usize = 100;

pub(super) fn value(blame: &TypeBlame) -> Value {
    let causes = Cause::ALL.map(|cause| (cause.name().to_owned(), json!(blame.causes.get(cause))));
    let unknown = blame.unknown.iter();
    let unknown = unknown.map(|(reason, ns)| (reason.name().to_owned(), json!(ns)));
    json!({
        "request": blame.request,
        "requests": blame.requests,
        "blocked_ns": blame.causes.sum(),
        "causes_ns": Map::from_iter(causes),
        "unknown_ns": unknown.collect::<Map<_, _>>(),
        "held_up_by": blame.holders.iter().take(HOLDERS).map(holder).collect::<Vec<_>>(),
    })
}

fn holder(holder: &Holder) -> Value {
    let culprit = &holder.culprit;
    json!({
        "root_cause": holder.cause.name(),
        "culprit_kind": culprit.kind.name(),
        "culprit_request": culprit.request,
        "culprit_label": culprit.label.as_str(),
        "culprit_comm": culprit.comm.as_str(),
        "ns": holder.ns,
        "requests": holder.requests,
        "wait_class": holder.wait_class,
    })
}
