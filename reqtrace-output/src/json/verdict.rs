//! The verdict in `summary.json`: a finding in, its value out.

use serde_json::{Value, json};

use reqtrace_analysis::report::verdict::{Culprit, Did, Finding};

use crate::verdict::sentence;

/// How many requests stood for the same time, and for how long.
pub(super) fn stood((requests, ns): (u64, u64)) -> Value {
    json!({"requests": requests, "ns": ns})
}

/// As it stands in `summary.json`.
pub(crate) fn value(finding: &Finding) -> Value {
    let mut value = match finding {
        Finding::Cause(verdict) => json!({
            "class": verdict.class.name(),
            "request": verdict.request,
            "also": verdict.also,
            "culprit": verdict.culprit.as_ref().map(culprit),
            "did": verdict
                .did
                .iter()
                .map(|(did, share)| match did {
                    Did::Itself(class) => json!({"class": class.name(), "share": mille(*share)}),
                    Did::Waited(class) => json!({"waited_in": class, "share": mille(*share)}),
                })
                .collect::<Vec<_>>(),
            "object": verdict.object,
            "episode_ns": verdict.episode_ns,
            "times": verdict.times,
            "stood": verdict.stood.map(stood),
            "meanwhile": verdict.meanwhile.as_ref().map(|used| json!({
                "pid": used.pid,
                "tid": (used.tid != 0).then_some(used.tid),
                "comm": used.comm,
                "share": mille(used.share),
                "read_bytes": used.read_bytes,
                "written_bytes": used.written_bytes,
                "statement": (!used.statement.is_empty()).then_some(&used.statement),
            })),
            "cadence": verdict.cadence.map(|cadence| json!({
                "period_ns": cadence.period_ns,
                "p": cadence.p,
            })),
        }),
        Finding::NoSingleCause(unsure) => json!({
            "class": "no_single_cause",
            "request": unsure.request,
            "because": unsure.because.name(),
            "object": unsure.object,
            "largest": unsure
                .largest
                .iter()
                .map(|(class, share)| json!({"class": class.name(), "share": mille(*share)}))
                .collect::<Vec<_>>(),
        }),
    };
    let evidence = finding.evidence();
    value["evidence"] = json!({
        "slow": evidence.slow,
        "requests": evidence.requests,
        "median_ns": evidence.median_ns,
        "p99_ns": evidence.p99_ns,
        "episodes": evidence.episodes,
        "excess_ns": evidence.excess_ns,
        "of_excess": mille(evidence.of_excess),
        "cause_share": mille(evidence.cause),
        "cause_share_least": mille(evidence.cause_least),
        "culprit_share": mille(evidence.culprit),
        "not_known_share": mille(evidence.not_known),
    });
    value["text"] = json!(sentence(finding));
    value
}

fn mille(share: u16) -> f64 {
    f64::from(share) / 1_000.0
}

pub(crate) fn culprit(culprit: &Culprit) -> Value {
    let connection = culprit.connection.iter();
    let connection = connection.map(|(name, value)| (name.clone(), json!(value)));
    let mut value = json!({
        "kind": match &culprit.took {
            Some(_) => "process",
            None if culprit.request_unix_ns.is_some() => "request",
            None if !culprit.requests.is_empty() => "requests",
            None if culprit.threads > 0 => "threads",
            None if culprit.tid == 0 => "peer",
            None => "thread",
        },
        "pid": culprit.pid,
        "tid": culprit.tid,
        "start_unix_ns": culprit.start_unix_ns,
        "comm": culprit.comm,
        "connection": connection.collect::<serde_json::Map<_, _>>(),
        "statements": culprit.statements,
    });
    if !culprit.requests.is_empty() {
        value["requests"] = json!(culprit.requests);
        value["request_unix_ns"] = json!(culprit.request_unix_ns);
    }
    if culprit.threads > 0 {
        value["threads"] = json!(culprit.threads);
    }
    if let Some((cpu, name)) = &culprit.took {
        value["cpu"] = json!(cpu);
        value["scheduling"] = json!(name.scheduling());
    }
    value
}
