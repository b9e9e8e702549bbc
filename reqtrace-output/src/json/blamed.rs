//! Blame of a request type as JSON.

use serde_json::{Map, Value, json};

use reqtrace_analysis::report::blame::{
    Busy, Cause, CpuTaken, CulpritName, DiskUser, DiskWaits, HeldRequest, Holder, Lock, Part,
    QueuedBehind, Reason, TakerKind, TypeBlame, What,
};

use super::verdict::stood;
use crate::table::disk_lines;
use crate::words::{behind_words, taken_words};

/// Who held requests up: so many, the most time first. `blame.csv` has all.
const HOLDERS: usize = 100;

pub(super) fn value(blame: &TypeBlame) -> Value {
    let causes = Cause::ALL.map(|cause| (cause.name().to_owned(), json!(blame.causes.get(cause))));
    let unknown = blame.unknown.iter();
    let unknown = unknown.map(|(reason, ns)| (reason.name().to_owned(), json!(ns)));
    let mut value = json!({
        "request": blame.request,
        "requests": blame.requests,
        "blocked_ns": blame.causes.sum(),
        "causes_ns": Map::from_iter(causes),
        "unknown_ns": unknown.collect::<Map<_, _>>(),
        "held_up_by": blame.holders.iter().take(HOLDERS).map(holder).collect::<Vec<_>>(),
        "slowest": blame.slowest.iter().map(slow).collect::<Vec<_>>(),
        "locks": blame.locks.iter().map(lock).collect::<Vec<_>>(),
    });
    if !blame.takers.is_empty() {
        value["cpu"] = json!({
            "waited_ns": blame.cpu_ns,
            "had_by": blame.takers.iter().take(HOLDERS).map(taker).collect::<Vec<_>>(),
        });
    }
    if !blame.queue.is_empty() {
        value["queue"] = json!({
            "queued_ns": blame.queued_ns,
            "behind": blame.queue.iter().map(behind).collect::<Vec<_>>(),
        });
    }
    if let Some(waits) = &blame.disk {
        value["disk"] = disk(waits, &blame.request);
    }
    value
}

fn disk(waits: &DiskWaits, request: &str) -> Value {
    let lines = disk_lines(waits, request).into_iter();
    let lines = lines.map(|(title, text)| title.trim_start().to_owned() + &text);
    let user = |user: &DiskUser| {
        json!({
            "pid": user.pid,
            "comm": user.comm,
            "is_kernel": user.is_kernel,
            "disk": user.disk,
            "read_bytes": user.read_bytes,
            "written_bytes": user.written_bytes,
            "flushes": user.flushes,
            "count": user.count,
        })
    };
    json!({
        "waited_ns": waits.waited_ns,
        "own_ns": waits.own_ns,
        "journal_ns": waits.journal_ns,
        "others_ns": waits.others_ns,
        "not_bound_ns": waits.not_bound_ns(),
        "queued_ns": waits.queued_ns,
        "served_ns": waits.served_ns,
        "count": waits.count,
        "disks": waits.disks,
        "used_by": waits.users.iter().map(user).collect::<Vec<_>>(),
        "stalls": waits.stalls,
        "longest_stall": waits.longest_stall.map(stood),
        "text": lines.collect::<Vec<_>>().join("; "),
    })
}

fn behind(behind: &QueuedBehind) -> Value {
    json!({
        "kind": behind.with.name(),
        "request": match &behind.with {
            Busy::Request(name) => Some(name),
            Busy::NoRequest | Busy::Asleep | Busy::NoCpu | Busy::NotKnown => None,
        },
        "ns": behind.ns,
        "longest_ns": behind.longest_ns,
        "requests": behind.requests,
        "text": behind_words(behind),
    })
}

fn taker(taken: &CpuTaken) -> Value {
    let by = &taken.by;
    json!({
        "waited": taken.cause.name(),
        "kind": by.kind.name(),
        "pid": by.pid,
        "tid": by.tid,
        "comm": by.comm,
        "scheduling": match by.kind {
            TakerKind::Process | TakerKind::Service => by.scheduling(),
            _ => String::new(),
        },
        "cpu": taken.cpu,
        "ns": taken.ns,
        "longest_ns": taken.longest_ns,
        "requests": taken.requests,
        "text": taken_words(taken),
    })
}

fn slow(request: &HeldRequest) -> Value {
    let mut value = json!({
        "id": request.id,
        "pid": request.pid,
        "tid": request.tid,
        "comm": request.comm,
        "label": request.label,
        "start_unix_ns": request.start_unix_ns,
        "latency_ns": request.latency_ns,
        "blocked_ns": request.blocked_ns,
        "run_queue_ns": request.run_queue_ns,
        "preempted_ns": request.preempted_ns,
        "parts": request.parts.iter().map(|one| part(one, 1)).collect::<Vec<_>>(),
    });
    if request.parked_ns + request.queued_ns > 0 {
        value["parked_ns"] = json!(request.parked_ns);
        value["queued_ns"] = json!(request.queued_ns);
    }
    value
}

/// So many parts lie in each other: readers of JSON go some 128 levels down, and each part is two.
const MAX_NESTED: usize = 48;

/// A part at a level, with those in it: of what lies too deep only where it ends.
fn part(part: &Part, level: usize) -> Value {
    let inner: Vec<Value> = if level < MAX_NESTED {
        let inner = part.parts.iter();
        inner.map(|one| self::part(one, level + 1)).collect()
    } else {
        let ends = part.parts.iter().flat_map(ends);
        ends.map(|one| self::part(one, level + 1)).collect()
    };
    let mut value = json!({
        "culprit_kind": part.whose.kind.name(),
        "culprit_request": part.whose.request,
        "culprit_label": part.whose.label,
        "culprit_comm": part.whose.comm,
        "tid": part.tid,
        "request_id": part.request_id,
        "after": part.after.as_ref().map(|after| json!({
            "request_id": after.request_id,
            "request": after.request,
            "label": after.label,
        })),
        "ns": part.ns,
        "parts": inner,
    });
    match &part.what {
        What::Waited {
            class,
            user,
            kernel,
        } => {
            value["wait_class"] = json!(class);
            value["user"] = json!(user);
            value["kernel"] = json!(kernel);
        }
        What::Ended(cause, reason) => {
            value["woken_from"] = json!(part.woken_from);
            value["root_cause"] = json!(cause.name());
            value["unknown_because"] = json!(reason.map(Reason::name));
        }
    }
    value
}

/// Where a part ends: itself or those in it that have none in them.
fn ends(part: &Part) -> Vec<&Part> {
    match part.parts.as_slice() {
        [] => vec![part],
        inner => inner.iter().flat_map(ends).collect(),
    }
}

fn lock(lock: &Lock) -> Value {
    let by = |whose: &[(CulpritName, u64)]| -> Vec<Value> {
        let named = whose.iter().map(|(culprit, ns)| {
            json!({
                "culprit_kind": culprit.kind.name(),
                "culprit_request": culprit.request,
                "culprit_comm": culprit.comm,
                "ns": ns,
            })
        });
        named.collect()
    };
    json!({
        "pid": lock.pid,
        "address": format!("{:#x}", lock.address),
        "object": lock.object,
        "waits": lock.waits,
        "again": lock.again,
        "ns": lock.ns,
        "longest_ns": lock.longest_ns,
        "wait_class": lock.class,
        "user": lock.user,
        "woken_by": by(&lock.woken_by),
        "held_by": by(&lock.held_by),
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

#[cfg(test)]
mod tests {
    use super::*;
    use reqtrace_analysis::report::blame::CulpritName;

    /// As many requests as a service has connections may wait for each other.
    #[test]
    fn a_long_chain_can_be_read_and_keeps_its_end() {
        let of = |what, ns, parts| Part {
            whose: CulpritName::default(),
            tid: 0,
            request_id: 0,
            after: None,
            what,
            woken_from: Vec::new(),
            ns,
            parts,
        };
        let mut chain = of(What::Ended(Cause::Disk, None), 7, Vec::new());
        for ns in 0..2 * MAX_NESTED as u64 {
            let waited = What::Waited {
                class: "lock".to_owned(),
                user: Vec::new(),
                kernel: Vec::new(),
            };
            chain = of(waited, ns, vec![chain]);
        }
        let text = part(&chain, 1).to_string();
        let read: Value = serde_json::from_str(&text).unwrap();
        let inner = |value: &Value| value["parts"].get(0).cloned();
        let all: Vec<Value> = std::iter::successors(Some(read), inner).collect();
        assert_eq!(all.len(), MAX_NESTED + 1);
        assert_eq!(all[MAX_NESTED]["root_cause"], "disk");
    }
}
