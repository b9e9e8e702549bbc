//! The verdict in words, and as JSON: findings in; a sentence for each, which the report, the page and `summary.json`
//! have alike, out.

use serde_json::{Value, json};

use reqtrace_analysis::report::verdict::{
    Because, Cadence, Class, Culprit, Did, Evidence, Finding, Meanwhile, Unsure, Verdict,
};
use reqtrace_analysis::report::{TakerKind, TakerName};
use reqtrace_base::figures::{cut, duration, number, size};
use reqtrace_base::names::clean;

use crate::table::NAME;

/// Longest statement in a sentence.
const STATEMENT: usize = 60;

/// What is found, in words: one line.
#[must_use]
pub fn sentence(finding: &Finding) -> String {
    match finding {
        Finding::Cause(verdict) => cause(verdict),
        Finding::NoSingleCause(unsure) => no_single_cause(unsure),
    }
}

/// Which requests it is about.
fn slow(request: &str, evidence: &Evidence) -> String {
    format!(
        "slow `{}` ({} of {}, each at least 5 × the median of {})",
        cut(request, NAME),
        number(evidence.slow),
        number(evidence.requests),
        duration(evidence.median_ns),
    )
}

fn cause(verdict: &Verdict) -> String {
    let Verdict {
        class, evidence, ..
    } = verdict;
    let mut text = format!(
        "{}: {} of {} ",
        slow(&verdict.request, evidence),
        percent(evidence.cause),
        match evidence.of_excess {
            1_000 => "the excess".to_owned(),
            rest => format!("the other {} of the excess", percent(rest)),
        },
    );
    text.push_str(&match (&verdict.culprit, class) {
        (Some(culprit), _) if !verdict.did.is_empty() => behind(verdict, culprit),
        (Some(culprit), Class::Contended) => {
            format!("is {}, which {} had in turn", what(verdict), those(culprit))
        }
        (Some(culprit), _) => because_of(verdict, culprit),
        (None, _) => format!("is {}", what(verdict)),
    });
    text.push_str(&format!(" for {}", duration(verdict.episode_ns)));
    text.push_str(&match (class, verdict.times) {
        // They overlap from the first to the last.
        (Class::Contended, 1) => ", without a break".to_owned(),
        (_, times) => how_often(times, verdict.cadence),
    });
    if let Some(culprit) = &verdict.culprit
        && !culprit.statements.is_empty()
    {
        let whose = if culprit.threads > 0 { "their" } else { "its" };
        let statements: Vec<_> = culprit
            .statements
            .iter()
            .map(|text| cut(&clean(text), STATEMENT))
            .collect();
        text.push_str(&format!("; {whose} statements: {}", statements.join("; ")));
    }
    if !verdict.also.is_empty() {
        text.push_str(&format!("; slow {} too", verdict.also.join(", ")));
    }
    if let Some((requests, ns)) = verdict.stood {
        text.push_str(&format!(
            "; {} requests stood for the same {}",
            number(requests),
            duration(ns)
        ));
    }
    if let Some(used) = &verdict.meanwhile {
        text.push_str(&meanwhile(used));
    }
    if matches!(class, Class::WaitsForCpu) {
        text.push_str(match verdict.knows_takers {
            true => "; no one process had the CPU most of that time",
            false => "; which process had the CPU is not recorded",
        });
    }
    text.push_str(&format!(
        " (at least {} by resampling its episodes; see {})",
        percent(evidence.cause_least),
        section(verdict),
    ));
    text
}

/// Who used the disk at the same time.
fn meanwhile(used: &Meanwhile) -> String {
    let whose = match used.tid {
        0 => format!("{:?} (pid {})", clean(&used.comm), used.pid),
        tid => format!("thread {tid} ({}, pid {})", clean(&used.comm), used.pid),
    };
    let did = [("read", used.read_bytes), ("wrote", used.written_bytes)];
    let did = did.iter().filter(|(_, count)| *count > 0);
    let did: Vec<_> = did
        .map(|(did, count)| format!("{did} {}", size(*count)))
        .collect();
    let statement = match clean(&used.statement).as_str() {
        "" => String::new(),
        statement => format!(" in {}", cut(statement, STATEMENT)),
    };
    format!(
        "; meanwhile {} of the bytes of disks were those of {whose}, which {}{statement}",
        percent(used.share),
        did.join(" and "),
    )
}

/// What the slow requests did.
fn what(verdict: &Verdict) -> String {
    let object = clean(&verdict.object);
    let at = |text: &str| match object.as_str() {
        "" => text.to_owned(),
        object => format!("{text} ({})", cut(object, STATEMENT)),
    };
    match verdict.class {
        Class::HeldBetweenRequests
        | Class::HeldByRequest
        | Class::HeldByThread
        | Class::Contended => match object.as_str() {
            "" => "waiting for another thread".to_owned(),
            object => object.to_owned(),
        },
        Class::WaitsForCpu | Class::CpuTaken => "waiting for a CPU".to_owned(),
        Class::CpuLimited => match object.as_str() {
            "" => "the CPU limit of a cgroup that is not known".to_owned(),
            cgroup => format!("the CPU limit of cgroup {}", cut(cgroup, STATEMENT)),
        },
        Class::Disk => at("disk"),
        Class::Network => at("network"),
        Class::Timer => at("a timer of their own"),
        Class::OnCpu => at("their own computing"),
        Class::Queued => "waiting for a thread of the service".to_owned(),
        Class::OtherInterrupt => at("an interrupt"),
        Class::NotKnown => "not known".to_owned(),
    }
}

/// What the culprit did meanwhile.
fn does(class: Class) -> Option<&'static str> {
    match class {
        Class::HeldBetweenRequests => Some("idle between its requests"),
        Class::HeldByRequest => Some("in a request of its own"),
        Class::HeldByThread => Some("in no request"),
        _ => None,
    }
}

/// `is row lock, and 99 % of that is thread 7575 (…), idle between its requests`.
fn because_of(verdict: &Verdict, culprit: &Culprit) -> String {
    let does = match (&culprit.took, does(verdict.class)) {
        (Some((cpu, _)), _) => format!(", which took CPU {cpu}"),
        (None, Some(does)) => format!(", {does}"),
        (None, None) => String::new(),
    };
    format!(
        "is {}, and {} of that is {}{does}",
        what(verdict),
        percent(verdict.evidence.culprit),
        who(culprit)
    )
}

/// `stood behind thread 7575 (…), in a request of its own (53 % waiting for a CPU, …), mostly in row lock,`.
fn behind(verdict: &Verdict, culprit: &Culprit) -> String {
    let does = does(verdict.class).map_or_else(String::new, |does| format!(", {does}"));
    let place = match clean(&verdict.object).as_str() {
        "" => String::new(),
        object => format!(" mostly in {},", cut(object, STATEMENT)),
    };
    format!(
        "stood behind {}{does}{},{place}",
        who(culprit),
        did(verdict)
    )
}

/// ` (53 % waiting for a CPU, 44 % computing or asleep)`.
fn did(verdict: &Verdict) -> String {
    let did: Vec<_> = verdict
        .did
        .iter()
        .map(|(did, share)| {
            let words = match did {
                Did::Itself(Class::HeldBetweenRequests) => "idle".to_owned(),
                Did::Itself(Class::HeldByRequest | Class::HeldByThread) => {
                    "computing or asleep".to_owned()
                }
                Did::Itself(class) => words(*class).to_owned(),
                Did::Waited(class) => format!("waiting in {}", clean(class)),
            };
            format!("{} {words}", percent(*share))
        })
        .collect();
    match did.is_empty() {
        true => String::new(),
        false => format!(" ({})", did.join(", ")),
    }
}

/// `8 threads (mariadbd, pid 7500, user app)`.
fn those(culprit: &Culprit) -> String {
    let mut known = vec![clean(&culprit.comm)];
    known.retain(|comm| !comm.is_empty());
    if culprit.pid != 0 {
        known.push(format!("pid {}", culprit.pid));
    }
    known.extend(connection(culprit));
    let threads = format!("{} threads", number(culprit.threads));
    match known.is_empty() {
        true => threads,
        false => format!("{threads} ({})", known.join(", ")),
    }
}

/// `thread 7575 (mariadbd, user app, database orders)`.
fn who(culprit: &Culprit) -> String {
    let comm = clean(&culprit.comm);
    if let Some((_, name)) = &culprit.took {
        return taker(name);
    }
    if culprit.threads > 0 {
        return those(culprit);
    }
    if culprit.tid == 0 {
        return format!("peer {comm}");
    }
    let mut known = vec![comm];
    if culprit.tid != culprit.pid {
        known.push(format!("pid {}", culprit.pid));
    }
    known.extend(connection(culprit));
    format!("thread {} ({})", culprit.tid, known.join(", "))
}

/// `user app`, `database orders`.
fn connection(culprit: &Culprit) -> impl Iterator<Item = String> {
    let connection = culprit.connection.iter();
    connection.map(|(name, value)| format!("{name} {}", clean(value)))
}

/// `"reindexd" (pid 991, SCHED_FIFO 10)`.
pub(crate) fn taker(name: &TakerName) -> String {
    let comm = clean(&name.comm);
    match name.kind {
        TakerKind::Process | TakerKind::Service => {
            format!("\"{comm}\" (pid {}, {})", name.pid, name.scheduling())
        }
        TakerKind::Limit if comm.is_empty() => "CPU limit of a cgroup that is not known".to_owned(),
        TakerKind::Limit => format!("CPU limit of cgroup {comm}"),
        TakerKind::Idle => "idle CPU that had to wake up".to_owned(),
        TakerKind::Others => "others".to_owned(),
    }
}

/// `, 16 times, every 1.25 s`.
fn how_often(times: u64, cadence: Option<Cadence>) -> String {
    let times = format!(", {} times", number(times));
    match cadence {
        Some(cadence) => format!(
            "{times}, every {} (p ≤ {:.4})",
            duration(cadence.period_ns),
            cadence.p
        ),
        None => times,
    }
}

/// Where the report has the numbers.
fn section(verdict: &Verdict) -> String {
    let request = cut(&verdict.request, NAME);
    match verdict.class {
        Class::CpuTaken | Class::CpuLimited => format!("who had the CPU of `{request}`"),
        Class::OnCpu | Class::WaitsForCpu | Class::Queued => {
            format!("where the time of `{request}` went")
        }
        _ => format!("who held `{request}` up"),
    }
}

fn no_single_cause(unsure: &Unsure) -> String {
    let why = match unsure.because {
        Because::NotKnown(share) => format!("{} is not known or lost", percent(share)),
        Because::SeveralCauses => "no cause has 60 % of the excess".to_owned(),
        Because::FewEpisodes(least) => {
            format!(
                "by its few episodes only {} of the excess is sure",
                percent(least)
            )
        }
        Because::SeveralCulprits(share) => {
            format!("no culprit has more than {} of it", percent(share))
        }
    };
    let largest = unsure.largest.iter();
    let largest: Vec<_> = largest
        .map(|(class, share)| format!("{} {}", percent(*share), words(*class)))
        .collect();
    let place = match clean(&unsure.object).as_str() {
        "" => String::new(),
        place => format!("; most of it in {}", cut(place, STATEMENT)),
    };
    format!(
        "no single cause: {}: {why}{place}; of the excess {}",
        slow(&unsure.request, &unsure.evidence),
        largest.join(", ")
    )
}

const fn words(class: Class) -> &'static str {
    match class {
        Class::HeldBetweenRequests => "held up between requests",
        Class::HeldByRequest => "held up by other requests",
        Class::HeldByThread => "held up by threads in no request",
        Class::Contended => "waiting for each other",
        Class::WaitsForCpu => "waiting for a CPU",
        Class::CpuTaken => "CPUs that other processes had",
        Class::CpuLimited => "CPU limits",
        Class::Disk => "disk",
        Class::Network => "network",
        Class::Timer => "timers",
        Class::OnCpu => "computing",
        Class::Queued => "waiting for a thread",
        Class::OtherInterrupt => "other interrupts",
        Class::NotKnown => "not known",
    }
}

/// A share in per mille.
fn percent(share: u16) -> String {
    match share {
        0..=99 | 990..=999 => format!("{}.{} %", share / 10, share % 10),
        _ => format!("{} %", (share + 5) / 10),
    }
}

/// How many requests stood for the same time, and for how long.
pub(crate) fn stood((requests, ns): (u64, u64)) -> Value {
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

fn culprit(culprit: &Culprit) -> Value {
    let connection = culprit.connection.iter();
    let connection = connection.map(|(name, value)| (name.clone(), json!(value)));
    let mut value = json!({
        "kind": match &culprit.took {
            Some(_) => "process",
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
    if culprit.threads > 0 {
        value["threads"] = json!(culprit.threads);
    }
    if let Some((cpu, name)) = &culprit.took {
        value["cpu"] = json!(cpu);
        value["scheduling"] = json!(name.scheduling());
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use reqtrace_base::plain::Plain;

    fn verdict() -> Verdict {
        Verdict {
            class: Class::HeldBetweenRequests,
            request: "command".to_owned(),
            also: vec!["login".to_owned()],
            culprit: Some(Culprit {
                pid: 7_500,
                tid: 7_575,
                threads: 0,
                start_unix_ns: None,
                comm: Plain::of("mariadbd"),
                connection: vec![("user".to_owned(), Plain::of("app"))],
                statements: vec![Plain::of("select k for update"), Plain::of("commit")],
                took: None,
            }),
            did: Vec::new(),
            object: Plain::of("row lock"),
            episode_ns: 350_000_000,
            times: 16,
            cadence: Some(Cadence {
                period_ns: 1_250_000_000,
                p: 0.0005,
            }),
            stood: None,
            meanwhile: None,
            knows_takers: false,
            evidence: Evidence {
                slow: 63,
                requests: 6_469,
                median_ns: 1_200_000,
                cause: 970,
                cause_least: 950,
                culprit: 997,
                of_excess: 1_000,
                ..Evidence::default()
            },
        }
    }

    #[test]
    fn a_verdict_is_one_sentence_with_its_evidence() {
        assert_eq!(
            cause(&verdict()),
            "slow `command` (63 of 6,469, each at least 5 × the median of 1.20 ms): 97 % of the excess is row lock, and \
             99.7 % of that is thread 7575 (mariadbd, pid 7500, user app), idle between its requests for 350 ms, 16 \
             times, every 1.25 s (p ≤ 0.0005); its statements: select k for update; commit; slow login too (at least \
             95 % by resampling its episodes; see who held `command` up)"
        );
    }

    #[test]
    fn what_explains_the_rest_says_of_how_much() {
        let mut rest = verdict();
        rest.evidence.of_excess = 280;
        let text = cause(&rest);
        assert!(
            text.contains(": 97 % of the other 28 % of the excess is row lock"),
            "{text}"
        );
    }

    #[test]
    fn who_used_a_disk_is_named_without_blame() {
        let used = Meanwhile {
            pid: 7500,
            tid: 7577,
            comm: Plain::of("mariadbd"),
            share: 870,
            read_bytes: 512 << 20,
            written_bytes: 0,
            statement: Plain::of("select count(*) from big"),
        };
        let disk = |meanwhile| {
            cause(&Verdict {
                class: Class::Disk,
                culprit: None,
                meanwhile: Some(meanwhile),
                ..verdict()
            })
        };
        let text = disk(used.clone());
        let thread = "; meanwhile 87 % of the bytes of disks were those of thread 7577 (mariadbd, pid 7500), which read 512 \
                      MiB in select count(*) from big";
        assert!(text.contains(thread), "{text}");
        let text = disk(Meanwhile {
            tid: 0,
            written_bytes: 3 << 20,
            statement: Plain::default(),
            ..used
        });
        let process = "those of \"mariadbd\" (pid 7500), which read 512 MiB and wrote 3.00 MiB (at";
        assert!(text.contains(process), "{text}");
    }

    #[test]
    fn nobody_is_named_who_is_not_recorded() {
        let text = cause(&Verdict {
            class: Class::WaitsForCpu,
            also: Vec::new(),
            culprit: None,
            object: Plain::default(),
            cadence: None,
            ..verdict()
        });
        assert!(
            text.contains("97 % of the excess is waiting for a CPU for 350 ms, 16 times; which process had the CPU is not recorded (at"),
            "{text}"
        );
        assert!(
            text.ends_with("see where the time of `command` went)"),
            "{text}"
        );
    }

    #[test]
    fn who_took_a_cpu_is_named_with_its_priority() {
        let name = TakerName {
            kind: TakerKind::Process,
            pid: 991,
            tid: 992,
            comm: Plain::of("reindexd"),
            policy: 1,
            priority: 89,
        };
        let taken = Verdict {
            class: Class::CpuTaken,
            also: Vec::new(),
            culprit: Some(Culprit {
                pid: 991,
                tid: 992,
                comm: name.comm.clone(),
                took: Some((1, name)),
                ..Culprit::default()
            }),
            object: Plain::default(),
            episode_ns: 60_000_000,
            ..verdict()
        };
        let text = cause(&taken);
        assert!(
            text.contains(
                "97 % of the excess is waiting for a CPU, and 99.7 % of that is \"reindexd\" (pid 991, SCHED_FIFO 10), \
                 which took CPU 1 for 60.0 ms, 16 times, every 1.25 s (p ≤ 0.0005) (at least"
            ),
            "{text}"
        );
        assert!(
            text.ends_with("see who had the CPU of `command`)"),
            "{text}"
        );
        let json = value(&Finding::Cause(Box::new(taken)));
        assert_eq!(json["culprit"]["kind"], "process");
        assert_eq!(json["culprit"]["scheduling"], "SCHED_FIFO 10");
        assert_eq!(json["culprit"]["cpu"], 1);
    }

    #[test]
    fn a_limit_is_named_by_its_cgroup() {
        let limited = |cgroup| {
            cause(&Verdict {
                class: Class::CpuLimited,
                culprit: None,
                object: Plain::of(cgroup),
                ..verdict()
            })
        };
        let text = limited("/shop");
        assert!(
            text.contains(
                "97 % of the excess is the CPU limit of cgroup /shop for 350 ms, 16 times"
            ),
            "{text}"
        );
        assert!(limited("").contains("the CPU limit of a cgroup that is not known for"));
    }

    #[test]
    fn one_behind_whom_they_stood_did_several_things() {
        let finding = Finding::Cause(Box::new(Verdict {
            class: Class::HeldByRequest,
            did: vec![
                (Did::Waited(Plain::of("client network")), 700),
                (Did::Itself(Class::HeldByRequest), 290),
            ],
            ..verdict()
        }));
        let text = sentence(&finding);
        assert!(
            text.contains("97 % of the excess stood behind thread 7575 ("),
            "{text}"
        );
        assert!(
            text.contains(
                "), in a request of its own (70 % waiting in client network, 29 % computing or asleep), mostly in row lock, for 350 ms"
            ),
            "{text}"
        );
        let value = value(&finding);
        assert_eq!(value["did"][0]["waited_in"], "client network");
        assert_eq!(value["did"][1]["class"], "held_by_request");
    }

    #[test]
    fn why_no_cause_is_sure() {
        let unsure = |because| {
            let finding = Finding::NoSingleCause(Unsure {
                request: "command".to_owned(),
                because,
                largest: vec![(Class::Disk, 450), (Class::HeldByRequest, 5)],
                object: Plain::of("parked: client"),
                evidence: verdict().evidence,
            });
            assert_eq!(value(&finding)["class"], "no_single_cause");
            sentence(&finding)
        };
        for (because, wanted) in [
            (
                Because::NotKnown(300),
                "30 % is not known or lost; most of it in parked: client;",
            ),
            (Because::SeveralCauses, "no cause has 60 % of the excess;"),
            (
                Because::FewEpisodes(410),
                "only 41 % of the excess is sure;",
            ),
            (
                Because::SeveralCulprits(120),
                "no culprit has more than 12 % of it;",
            ),
        ] {
            let text = unsure(because);
            assert!(
                text.starts_with("no single cause: slow `command`"),
                "{text}"
            );
            assert!(text.contains(wanted), "{text}");
            assert!(
                text.ends_with("45 % disk, 0.5 % held up by other requests"),
                "{text}"
            );
        }
    }

    #[test]
    fn a_peer_has_no_thread() {
        let peer = Culprit {
            comm: Plain::of("10.0.0.9:3306"),
            ..Culprit::default()
        };
        assert_eq!(who(&peer), "peer 10.0.0.9:3306");
        assert_eq!(culprit(&peer)["kind"], "peer");
    }
}
