use super::*;
use crate::json::verdict::{culprit, value};
use reqtrace_analysis::report::{TakerKind, TakerName};
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
            requests: Vec::new(),
            request_unix_ns: None,
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
fn tasks_have_the_name_of_their_type_and_no_thread() {
    let mut held = verdict();
    held.class = Class::HeldByRequest;
    let who = held.culprit.as_mut().unwrap();
    *who = Culprit {
        pid: 7_500,
        requests: vec!["report".to_owned()],
        statements: vec![Plain::of("/report")],
        ..Culprit::default()
    };
    let text = cause(&held);
    assert!(
        text.contains("and 99.7 % of that is requests of `report` (pid 7500) for 350 ms, 16 times"),
        "{text}"
    );
    assert!(text.contains("; their statements: /report;"), "{text}");
    let json = |verdict: &Verdict| culprit(verdict.culprit.as_ref().unwrap());
    assert_eq!(json(&held)["kind"], "requests");
    assert_eq!(json(&held)["requests"], serde_json::json!(["report"]));
    held.culprit.as_mut().unwrap().request_unix_ns = Some(5);
    let text = cause(&held);
    assert!(
        text.contains("is one request of `report` (pid 7500) for"),
        "{text}"
    );
    assert!(text.contains("; its statements: /report;"), "{text}");
    assert_eq!(json(&held)["kind"], "request");
    assert_eq!(json(&held)["request_unix_ns"], 5);
    held.class = Class::Contended;
    let who = held.culprit.as_mut().unwrap();
    (who.request_unix_ns, who.pid, who.threads) = (None, 0, 2);
    who.requests = vec!["command".to_owned()];
    let text = cause(&held);
    assert!(
        text.contains("is row lock, which 2 threads and other requests of `command` had in turn"),
        "{text}"
    );
    let who = held.culprit.as_mut().unwrap();
    (who.pid, who.threads) = (7_500, 0);
    who.requests = vec!["report".to_owned()];
    let text = cause(&held);
    assert!(
        text.contains("is row lock, which requests of `report` (pid 7500) had in turn"),
        "{text}"
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
        text.contains("97 % of the excess is the CPU limit of cgroup /shop for 350 ms, 16 times"),
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
    assert_eq!(who(&peer, "command"), "peer 10.0.0.9:3306");
    assert_eq!(culprit(&peer)["kind"], "peer");
}
