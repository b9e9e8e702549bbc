//! Incidents of each class, by themselves, beside noise, two at once; and services without any.

use reqtrace_base::plain::Plain;

use super::world::{HOLDER, Incident, Kind, MS, OTHER_PID, PID, Scene, TAKER, UPSTREAM};
use crate::report::verdict::{Because, Class, Did, Finding, Unsure, Verdict};
use crate::verdict::judge::is_same;

const EVERY: u64 = 900 * MS;

fn only(scene: &Scene) -> Verdict {
    match scene.findings().as_slice() {
        [Finding::Cause(verdict)] => (**verdict).clone(),
        other => panic!("{scene:?}: {other:#?}"),
    }
}

fn unsure(scene: &Scene) -> Unsure {
    match scene.findings().as_slice() {
        [Finding::NoSingleCause(unsure)] => unsure.clone(),
        other => panic!("{scene:?}: {other:#?}"),
    }
}

/// Worlds with the incident: alone, with noise, sampled, with losses.
fn each(incident: Incident, samples: bool, check: impl Fn(&Verdict)) {
    for seed in 0..4 {
        for (noise, weight, lost) in [(0, 1, 0), (20, 1, 0), (3, 16, 0), (3, 1, 50)] {
            let scene = Scene {
                noise,
                weight,
                lost,
                ..Scene::of(seed, &[incident])
            };
            if weight > 1 && !samples {
                continue;
            }
            let verdict = only(&scene);
            check(&verdict);
            let evidence = verdict.evidence;
            assert!(
                evidence.cause >= 600 && evidence.cause_least >= 500,
                "{verdict:#?}"
            );
            assert!(evidence.not_known <= 200, "{verdict:#?}");
            let Some(cadence) = verdict.cadence else {
                panic!("{scene:?}: {verdict:#?}");
            };
            let every = incident.every_ns + incident.every_ns / 200;
            assert!(
                cadence.period_ns.abs_diff(every) < every / 50,
                "{verdict:#?}"
            );
            assert!(
                verdict.episode_ns.abs_diff(incident.for_ns) < incident.for_ns / 5,
                "{verdict:#?}"
            );
        }
    }
}

fn at_random(incident: Incident) -> Incident {
    Incident {
        at_random: true,
        ..incident
    }
}

#[test]
fn a_connection_that_idles_in_its_transaction() {
    let incident = Incident::of(Kind::IdleHolder, EVERY, 150 * MS);
    each(incident, false, |verdict| {
        assert_eq!(verdict.class, Class::HeldBetweenRequests);
        let culprit = verdict.culprit.as_ref().unwrap();
        assert_eq!((culprit.tid, culprit.comm.as_str()), (HOLDER, "worker"));
        assert_eq!(culprit.start_unix_ns, None);
        assert_eq!(verdict.object.as_str(), "row lock");
        let statements: Vec<&str> = culprit.statements.iter().map(Plain::as_str).collect();
        assert_eq!(
            statements,
            ["select n from t where id = ? for update", "commit"]
        );
        assert!(verdict.evidence.culprit > 990, "{verdict:#?}");
    });
    let verdict = only(&Scene::of(9, &[at_random(incident)]));
    assert_eq!(verdict.cadence, None);
    // A thread between recorded requests may be in one that is not.
    let sampled = Scene {
        weight: 16,
        ..Scene::of(9, &[incident])
    };
    assert!(matches!(unsure(&sampled).because, Because::NotKnown(_)));
}

#[test]
fn a_request_that_holds_a_lock() {
    each(
        Incident::of(Kind::BusyHolder, EVERY, 150 * MS),
        true,
        |verdict| {
            assert_eq!(verdict.class, Class::HeldByRequest);
            let culprit = verdict.culprit.as_ref().unwrap();
            assert_eq!(culprit.tid, HOLDER);
            assert_eq!(culprit.statements[0].as_str(), "alter table t");
        },
    );
}

/// By root causes it is half computing and half waiting for a CPU; by who has the lock, one.
#[test]
fn a_request_that_holds_a_lock_and_waits_for_its_cpu() {
    let incident = Incident::of(Kind::PreemptedHolder, EVERY, 150 * MS);
    each(incident, true, |verdict| {
        assert_eq!(verdict.class, Class::HeldByRequest);
        let culprit = verdict.culprit.as_ref().unwrap();
        assert_eq!((culprit.tid, verdict.object.as_str()), (HOLDER, "row lock"));
        assert_eq!(culprit.statements[0].as_str(), "alter table t");
        let did: Vec<Did> = verdict.did.iter().map(|(did, _)| did.clone()).collect();
        assert!(
            did.contains(&Did::Itself(Class::HeldByRequest))
                && did.contains(&Did::Itself(Class::WaitsForCpu)),
            "{verdict:#?}"
        );
        let all: u16 = verdict.did.iter().map(|(_, share)| share).sum();
        assert!((950..=1_001).contains(&all), "{verdict:#?}");
    });
}

/// It has the lock, and waits for its client: what ends that is another one's business.
#[test]
fn a_request_that_holds_a_lock_and_waits_for_its_client() {
    let incident = Incident::of(Kind::SlowReader, EVERY, 150 * MS);
    each(incident, true, |verdict| {
        assert_eq!(verdict.class, Class::HeldByRequest);
        let culprit = verdict.culprit.as_ref().unwrap();
        assert_eq!((culprit.tid, verdict.object.as_str()), (HOLDER, "row lock"));
        let (did, share) = &verdict.did[0];
        assert_eq!(*did, Did::Waited(Plain::of("network")));
        assert!(*share > 900, "{verdict:#?}");
    });
}

/// It waits for the lock as all others do: who has that is not known.
#[test]
fn who_waits_for_the_same_lock_is_no_culprit() {
    let incident = Incident::of(Kind::QueuedHolder, EVERY, 150 * MS);
    let unsure = unsure(&Scene::of(3, &[incident]));
    assert!(matches!(unsure.because, Because::NotKnown(_)));
    assert_eq!(unsure.object.as_str(), "row lock");
}

/// Of few clients that wait for each answer few requests are slow, even where all stand half of the time.
#[test]
fn a_stop_of_all_makes_few_requests_slow() {
    let lock = Incident::of(Kind::BusyHolder, EVERY, 450 * MS);
    let scene = Scene {
        fast: true,
        ..Scene::of(5, &[lock])
    };
    let verdict = only(&scene);
    let evidence = verdict.evidence;
    assert!(evidence.p99_ns < 5 * evidence.median_ns, "{verdict:#?}");
    assert_eq!(verdict.class, Class::HeldByRequest);
}

#[test]
fn an_upstream_that_sleeps() {
    each(
        Incident::of(Kind::Upstream, EVERY, 150 * MS),
        true,
        |verdict| {
            assert_eq!(verdict.class, Class::HeldByThread);
            let culprit = verdict.culprit.as_ref().unwrap();
            assert_eq!((culprit.pid, culprit.tid), (OTHER_PID, UPSTREAM));
            assert_eq!(culprit.start_unix_ns, Some(3_000 * MS));
        },
    );
}

/// None of its threads has enough of it, but all are of one process.
#[test]
fn an_upstream_of_many_threads_that_sleep() {
    each(
        Incident::of(Kind::UpstreamPool, EVERY, 150 * MS),
        true,
        |verdict| {
            assert_eq!(verdict.class, Class::HeldByThread);
            let culprit = verdict.culprit.as_ref().unwrap();
            assert_eq!((culprit.pid, culprit.tid), (OTHER_PID, 0));
            assert!(culprit.threads > 4, "{culprit:?}");
            assert!(verdict.evidence.culprit > 900, "{verdict:#?}");
        },
    );
}

#[test]
fn causes_that_name_nobody() {
    for (kind, class, object) in [
        (Kind::Disk, Class::Disk, "row lock"),
        (Kind::Preempted, Class::WaitsForCpu, ""),
        (Kind::RunQueue, Class::WaitsForCpu, ""),
        (Kind::OnCpu, Class::OnCpu, "update t set n = ?"),
    ] {
        each(Incident::of(kind, EVERY, 150 * MS), true, |verdict| {
            assert_eq!((verdict.class, &verdict.culprit), (class, &None));
            assert_eq!(verdict.object.as_str(), object);
        });
    }
}

#[test]
fn a_process_that_takes_a_cpu() {
    for real_time in [false, true] {
        let incident = Incident::of(Kind::Taken { real_time }, EVERY, 150 * MS);
        each(incident, true, |verdict| {
            assert_eq!(verdict.class, Class::CpuTaken);
            let culprit = verdict.culprit.as_ref().unwrap();
            assert_eq!((culprit.pid, culprit.comm.as_str()), (TAKER, "reindexd"));
            let (cpu, name) = culprit.took.as_ref().unwrap();
            assert_eq!((*cpu, name.is_real_time()), (1, real_time));
            assert_eq!(verdict.object.as_str(), "");
            assert!(verdict.evidence.culprit > 850, "{verdict:#?}");
        });
    }
}

/// A few milliseconds behind others are how a CPU is shared; the same of a disk are an incident.
#[test]
fn short_turns_of_others_are_no_incident() {
    let scene = |kind, ms| Scene::of(3, &[Incident::of(kind, 40 * MS, ms * MS)]);
    for kind in [Kind::RunQueue, Kind::Preempted, Kind::TakenByMany] {
        assert_eq!(scene(kind, 9).findings(), [], "{kind:?}");
        assert_eq!(only(&scene(kind, 14)).class, Class::WaitsForCpu);
    }
    assert_eq!(only(&scene(Kind::Disk, 9)).class, Class::Disk);
}

/// Without a period, and with little of all the time, it counts only if it has real-time priority.
#[test]
fn who_has_its_turn_on_a_busy_machine_is_no_culprit() {
    let scene = |real_time| {
        let incident = Incident {
            hits: 25,
            ..at_random(Incident::of(Kind::Taken { real_time }, EVERY, 40 * MS))
        };
        Scene {
            noise: 0,
            seconds: 40,
            ..Scene::of(5, &[incident])
        }
    };
    let verdict = only(&scene(true));
    assert_eq!((verdict.class, verdict.cadence), (Class::CpuTaken, None));
    assert_eq!(scene(false).findings(), []);
}

#[test]
fn many_who_take_a_cpu_are_no_culprit() {
    each(
        Incident::of(Kind::TakenByMany, EVERY, 150 * MS),
        true,
        |verdict| {
            assert_eq!(
                (verdict.class, &verdict.culprit),
                (Class::WaitsForCpu, &None)
            );
            assert!(verdict.knows_takers);
        },
    );
}

#[test]
fn a_limit_of_cpu_time() {
    each(
        Incident::of(Kind::Limited, EVERY, 150 * MS),
        true,
        |verdict| {
            assert_eq!(
                (verdict.class, &verdict.culprit),
                (Class::CpuLimited, &None)
            );
            assert_eq!(verdict.object.as_str(), "/shop");
            // That of another cgroup is another cause, though neither has a culprit.
            let other = Verdict {
                object: Plain::of("/php"),
                ..verdict.clone()
            };
            assert!(is_same(verdict, verdict) && !is_same(verdict, &other));
        },
    );
}

/// Not one of them is to blame: it is what they do, and what for they take turns.
#[test]
fn many_holders_take_turns() {
    each(
        Incident::of(Kind::ManyHolders, EVERY, 150 * MS),
        false,
        |verdict| {
            assert_eq!(verdict.class, Class::Contended);
            assert_eq!(verdict.object.as_str(), "row lock");
            let culprit = verdict.culprit.as_ref().unwrap();
            assert_eq!((culprit.pid, culprit.tid), (PID, 0));
            assert!(culprit.threads > 20, "{culprit:?}");
            let statements: Vec<&str> = culprit.statements.iter().map(Plain::as_str).collect();
            assert_eq!(statements, ["update t set n = ?", "commit"]);
        },
    );
}

/// A thread that runs tasks holds nobody up: those are the requests of another type that it runs, or one of them.
#[test]
fn tasks_that_hold_locks_are_named_and_not_their_threads() {
    for (kind, is_one) in [(Kind::BusyHolder, false), (Kind::LongHolder, true)] {
        for seed in 0..4 {
            let scene = Scene {
                is_keyed: true,
                ..Scene::of(seed, &[Incident::of(kind, EVERY, 150 * MS)])
            };
            let verdict = only(&scene);
            assert_eq!(verdict.class, Class::HeldByRequest, "{verdict:#?}");
            let culprit = verdict.culprit.as_ref().unwrap();
            assert_eq!((culprit.pid, culprit.tid, culprit.threads), (PID, 0, 0));
            assert_eq!(culprit.requests, ["report"]);
            assert_eq!(culprit.request_unix_ns.is_some(), is_one, "{culprit:?}");
            if !is_one {
                let statements: Vec<&str> = culprit.statements.iter().map(Plain::as_str).collect();
                assert_eq!(statements, ["alter table t"]);
            }
        }
    }
    let threads = Scene::of(1, &[Incident::of(Kind::LongHolder, EVERY, 150 * MS)]);
    let verdict = only(&threads);
    let culprit = verdict.culprit.unwrap();
    assert_eq!((culprit.tid, culprit.requests.len()), (HOLDER, 0));
}

/// Two services of one profile have the same types: one that waits for the other does not wait for itself.
#[test]
fn tasks_of_another_process_hold_up_and_take_no_turns() {
    for seed in 0..4 {
        let scene = Scene {
            is_keyed: true,
            ..Scene::of(seed, &[Incident::of(Kind::ForeignHolder, EVERY, 150 * MS)])
        };
        let verdict = only(&scene);
        assert_eq!(verdict.class, Class::HeldByRequest, "{verdict:#?}");
        let culprit = verdict.culprit.as_ref().unwrap();
        assert_eq!(
            (culprit.pid, culprit.requests.as_slice()),
            (OTHER_PID, &["query".to_owned()][..])
        );
        let statements: Vec<&str> = culprit.statements.iter().map(Plain::as_str).collect();
        assert_eq!(statements, ["select ?"]);
    }
}

/// One task has most of it, and others of its type have the rest at other times: episodes, length and culprit are those of the one.
#[test]
fn the_times_of_one_task_are_not_those_of_others() {
    let long = Incident::of(Kind::LongHolder, EVERY, 150 * MS);
    let few = Incident::of(Kind::BusyHolder, 4_700 * MS, 40 * MS);
    let scene = Scene {
        is_keyed: true,
        ..Scene::of(2, &[long, few])
    };
    let findings = scene.findings();
    let Some(Finding::Cause(verdict)) = findings.first() else {
        panic!("{findings:#?}");
    };
    let culprit = verdict.culprit.as_ref().unwrap();
    assert!(culprit.request_unix_ns.is_some(), "{verdict:#?}");
    let windows = 20_000 / 900;
    assert!(verdict.times.abs_diff(windows) <= 2, "{verdict:#?}");
    assert!(
        verdict.episode_ns.abs_diff(150 * MS) < 10 * MS,
        "{verdict:#?}"
    );
}

#[test]
fn tasks_take_turns_and_not_their_threads() {
    for seed in 0..4 {
        let scene = Scene {
            is_keyed: true,
            ..Scene::of(seed, &[Incident::of(Kind::ManyHolders, EVERY, 150 * MS)])
        };
        let verdict = only(&scene);
        assert_eq!(verdict.class, Class::Contended, "{verdict:#?}");
        let culprit = verdict.culprit.as_ref().unwrap();
        assert_eq!((culprit.pid, culprit.tid, culprit.threads), (PID, 0, 0));
        assert_eq!(
            (culprit.requests.as_slice(), culprit.request_unix_ns),
            (&["query".to_owned()][..], None)
        );
    }
}

#[test]
fn what_nobody_knows_is_no_verdict() {
    let scene = Scene::of(3, &[Incident::of(Kind::NotKnown, EVERY, 150 * MS)]);
    assert!(matches!(unsure(&scene).because, Because::NotKnown(share) if share > 800));
}

#[test]
fn records_that_are_lost_are_not_known() {
    let lock = Incident::of(Kind::IdleHolder, EVERY, 150 * MS);
    let few = Scene {
        lost: 50,
        ..Scene::of(3, &[lock])
    };
    assert_eq!(only(&few).class, Class::HeldBetweenRequests);
}

/// The rest of the excess has a cause of its own.
#[test]
fn a_larger_and_a_smaller_incident_are_both_named() {
    let disk = Incident::of(Kind::Disk, 1_130 * MS, 90 * MS);
    for seed in 0..4 {
        for (kind, tid) in [(Kind::IdleHolder, HOLDER), (Kind::Upstream, UPSTREAM)] {
            let incidents = [Incident::of(kind, EVERY, 180 * MS), disk];
            let findings = Scene::of(seed, &incidents).findings();
            let [Finding::Cause(larger), Finding::Cause(smaller)] = findings.as_slice() else {
                panic!("{findings:#?}");
            };
            let culprit = larger.culprit.as_ref().unwrap();
            assert_eq!((culprit.tid, larger.evidence.of_excess), (tid, 1_000));
            assert_eq!(smaller.class, Class::Disk);
            assert_eq!(smaller.culprit, None);
            assert!(
                (100..400).contains(&smaller.evidence.of_excess),
                "{smaller:#?}"
            );
            assert!(smaller.evidence.cause > 900, "{smaller:#?}");
        }
    }
}

/// Both, or no single cause: never a culprit who is not one.
#[test]
fn two_incidents_at_once() {
    let kinds = [
        Kind::IdleHolder,
        Kind::Disk,
        Kind::Preempted,
        Kind::Upstream,
        Kind::OnCpu,
    ];
    let mut unsure = 0;
    for (number, one) in kinds.iter().enumerate() {
        for other in &kinds[number + 1..] {
            let incidents = [
                Incident::of(*one, EVERY, 150 * MS),
                Incident::of(*other, 1_130 * MS, 180 * MS),
            ];
            match Scene::of(5, &incidents).findings().as_slice() {
                [Finding::NoSingleCause(two)] => {
                    assert!(two.largest.len() >= 2, "{two:#?}");
                    unsure += 1;
                }
                // More than the share that is asked for is one's.
                [Finding::Cause(verdict)] => {
                    assert!(verdict.evidence.cause < 800, "{verdict:#?}");
                    let holds = [Kind::IdleHolder, Kind::Upstream];
                    let named = verdict.culprit.as_ref().map(|culprit| culprit.tid);
                    let guilty = [*one, *other]
                        .into_iter()
                        .filter(|kind| holds.contains(kind));
                    let guilty: Vec<u32> = guilty
                        .map(|kind| {
                            if kind == Kind::Upstream {
                                UPSTREAM
                            } else {
                                HOLDER
                            }
                        })
                        .collect();
                    assert!(
                        named.is_none_or(|tid| guilty.contains(&tid)),
                        "{verdict:#?}"
                    );
                }
                other => panic!("{other:#?}"),
            }
        }
    }
    assert!(unsure >= 5, "{unsure}");
}

#[test]
fn a_healthy_service_has_no_verdict() {
    for seed in 0..50 {
        let scene = Scene {
            noise: [0, 3, 10, 30, 60][seed as usize % 5],
            ..Scene::of(seed, &[])
        };
        assert_eq!(scene.findings(), [], "{scene:?}");
    }
}

/// A machine that is full all the time: the ledger has that, and nobody can be stopped.
#[test]
fn a_load_is_no_incident() {
    for kind in [Kind::RunQueue, Kind::Disk] {
        let load = at_random(Incident {
            hits: 30,
            ..Incident::of(kind, 60 * MS, 20 * MS)
        });
        assert_eq!(Scene::of(5, &[load]).findings(), []);
    }
}

#[test]
fn one_long_stop_is_no_pattern() {
    let once = Incident::of(Kind::IdleHolder, 12_000 * MS, 900 * MS);
    assert_eq!(Scene::of(5, &[once]).findings(), []);
}
