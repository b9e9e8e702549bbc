//! The verdict in words: findings in; a sentence for each, which the report, the page and `summary.json` have alike, out.

use reqtrace_analysis::report::verdict::{
    Because, Cadence, Class, Culprit, Did, Evidence, Finding, Meanwhile, Unsure, Verdict,
};
use reqtrace_base::figures::{cut, duration, number, size};
use reqtrace_base::names::clean;

use crate::words::{NAME, taker};

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
            let those = those(culprit, &verdict.request);
            format!("is {}, which {those} had in turn", what(verdict))
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
        let are_many = culprit.threads > 0 || !culprit.requests.is_empty();
        let is_one = !are_many || culprit.request_unix_ns.is_some();
        let whose = if is_one { "its" } else { "their" };
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
            "" => match &verdict.culprit {
                Some(culprit) if !culprit.requests.is_empty() => "waiting for another request",
                _ => "waiting for another thread",
            }
            .to_owned(),
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
        // That it is in one goes without saying.
        (None, _) if !culprit.requests.is_empty() => String::new(),
        (None, Some(does)) => format!(", {does}"),
        (None, None) => String::new(),
    };
    format!(
        "is {}, and {} of that is {}{does}",
        what(verdict),
        percent(verdict.evidence.culprit),
        who(culprit, &verdict.request)
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
        who(culprit, &verdict.request),
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

/// `8 threads (mariadbd, pid 7500, user app)`, `other requests of `http` (pid 7500)` where those wait themselves, `one request of
/// `report` (pid 7500)`.
fn those(culprit: &Culprit, request: &str) -> String {
    let mut known = vec![clean(&culprit.comm)];
    known.retain(|comm| !comm.is_empty());
    if culprit.pid != 0 {
        known.push(format!("pid {}", culprit.pid));
    }
    known.extend(connection(culprit));
    let known = match known.is_empty() {
        true => String::new(),
        false => format!(" ({})", known.join(", ")),
    };
    let threads = format!("{} threads", number(culprit.threads));
    if culprit.requests.is_empty() {
        return threads + &known;
    }
    let types = culprit.requests.iter();
    let types: Vec<_> = types.map(|name| format!("`{}`", cut(name, NAME))).collect();
    let is_own = culprit.requests.iter().any(|name| name == request);
    let which = match (culprit.request_unix_ns, is_own) {
        (Some(_), _) => "one request",
        (None, true) => "other requests",
        (None, false) => "requests",
    };
    let requests = format!("{which} of {}", types.join(", "));
    match culprit.threads {
        0 => requests + &known,
        _ => format!("{threads} and {requests}{known}"),
    }
}

/// `thread 7575 (mariadbd, user app, database orders)`.
fn who(culprit: &Culprit, request: &str) -> String {
    let comm = clean(&culprit.comm);
    if let Some((_, name)) = &culprit.took {
        return taker(name);
    }
    if culprit.threads > 0 || !culprit.requests.is_empty() {
        return those(culprit, request);
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

#[cfg(test)]
mod tests;
