//! A service of eight threads with an incident of a known kind, as events.

use reqtrace_recording::{Comm, CpuWait, RequestOf, Runner, Waker, WakerIs};

use super::events::{
    CLIENT, DISK, Made, Off, SITE, TIMER, Told, World, interrupt, of, space, task,
};
use crate::report::verdict::Finding;
use crate::verdict::random::Random;

pub(super) const MS: u64 = 1_000_000;
/// Tasks that have a lock in turn.
const HOLDERS: usize = 3;
/// When the long request of the holder begins.
const LONG_FROM: u64 = SECOND / 2;
pub(super) const SECOND: u64 = 1_000 * MS;
/// The traced process, and another one.
pub(super) const PID: u32 = 10;
pub(super) const OTHER_PID: u32 = 500;
/// A process that takes CPUs.
pub(super) const TAKER: u32 = 991;
/// Threads that serve.
const SERVERS: u32 = 8;
/// A thread of the service that holds locks, and one of another process.
pub(super) const HOLDER: u32 = 77;
pub(super) const UPSTREAM: u32 = 501;

/// What stops requests until its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The holder idles in its transaction.
    IdleHolder,
    /// The holder works in a request.
    BusyHolder,
    /// All of them in one request.
    LongHolder,
    /// A request of the same type in another process, each time another one.
    ForeignHolder,
    /// The same, and it waits for its CPU half of the time.
    PreemptedHolder,
    /// It waits for its client; nobody knows what ends that.
    SlowReader,
    /// It waits for the same lock; nobody knows who has that.
    QueuedHolder,
    /// Another of the threads each time.
    ManyHolders,
    /// Somebody takes their CPU.
    Preempted,
    /// They are woken, and wait for a CPU.
    RunQueue,
    /// Another process takes their CPU, with real-time priority or without.
    Taken {
        real_time: bool,
    },
    /// Another process each time.
    TakenByMany,
    /// They have used up what their cgroup may.
    Limited,
    Disk,
    /// A process that they ask sleeps.
    Upstream,
    /// The same in another process, each time in another of its threads.
    UpstreamPool,
    /// They compute.
    OnCpu,
    /// Nobody knows who woke them.
    NotKnown,
}

/// Something that goes wrong.
#[derive(Clone, Copy, Debug)]
pub(super) struct Incident {
    pub(super) kind: Kind,
    pub(super) every_ns: u64,
    pub(super) for_ns: u64,
    /// Its times are irregular.
    pub(super) at_random: bool,
    /// It hits so many of 100 requests that meet it.
    pub(super) hits: usize,
}

impl Incident {
    pub(super) const fn of(kind: Kind, every_ns: u64, for_ns: u64) -> Self {
        Self {
            kind,
            every_ns,
            for_ns,
            at_random: false,
            hits: 100,
        }
    }
}

/// What a trace is of.
#[derive(Clone, Debug)]
pub(super) struct Scene {
    pub(super) seed: u64,
    pub(super) seconds: u64,
    pub(super) incidents: Vec<Incident>,
    /// So many requests of 1,000 take ten times as long for a reason of their own.
    pub(super) noise: usize,
    /// Each stands for so many.
    pub(super) weight: u32,
    /// Of 1,000 records so many are lost.
    pub(super) lost: usize,
    /// Clients send the next request at once.
    pub(super) fast: bool,
    /// Requests are tasks, and those of the holder of another type.
    pub(super) is_keyed: bool,
}

impl Scene {
    pub(super) fn of(seed: u64, incidents: &[Incident]) -> Self {
        Self {
            seed,
            seconds: 20,
            incidents: incidents.to_vec(),
            noise: 3,
            weight: 1,
            lost: 0,
            fast: false,
            is_keyed: false,
        }
    }

    /// What the report finds.
    pub(super) fn findings(&self) -> Vec<Finding> {
        let mut world = World::new(self.is_keyed);
        let mut random = Random::of([self.seed].into_iter());
        let windows = self.windows(&mut random);
        let mut told: Vec<(u64, Told)> = Vec::new();
        for (window, number) in windows.iter().zip(0..) {
            holds(&mut told, window, number, self.of_holder(0).request_type);
            if self.is_keyed && window.kind == Kind::ManyHolders {
                for of in window.holders() {
                    let held = Made {
                        end: window.to + MS / 10,
                        ..holder_made(of, "update t set n = 7")
                    };
                    told.push((of.begin_ns, Told::Off(ran(of))));
                    told.push((held.end, Told::Request(held)));
                }
            }
        }
        let has_long = windows.iter().any(|window| window.kind == Kind::LongHolder);
        if has_long {
            let of = self.of_holder(LONG_FROM);
            let long = Made {
                end: self.seconds * SECOND,
                ..holder_made(of, "alter table t")
            };
            told.push((LONG_FROM, Told::Off(ran(of))));
            told.push((long.end, Told::Request(long)));
        }
        for tid in 1..=SERVERS {
            self.serve(tid, &windows, &mut random, &mut told);
        }
        told.sort_by_key(|(at, _)| *at);
        told.into_iter().for_each(|(_, told)| world.tell(&told));
        world.finish()
    }

    fn of_holder(&self, begin_ns: u64) -> RequestOf {
        RequestOf {
            begin_ns,
            request_type: u32::from(self.is_keyed),
        }
    }

    fn windows(&self, random: &mut Random) -> Vec<Window> {
        let mut all = Vec::new();
        for incident in &self.incidents {
            let mut at = SECOND + incident.every_ns;
            while at + incident.for_ns < self.seconds * SECOND {
                all.push(Window {
                    kind: incident.kind,
                    from: at,
                    to: at + incident.for_ns,
                    hits: incident.hits,
                });
                let next = match incident.at_random {
                    true => (-(1.0 - random.fraction()).ln() * incident.every_ns as f64) as u64,
                    false => incident.every_ns + random.next() % (incident.every_ns / 100),
                };
                at += next.max(incident.for_ns + MS);
            }
        }
        all.sort_by_key(|window| window.from);
        all
    }

    fn serve(
        &self,
        tid: u32,
        windows: &[Window],
        random: &mut Random,
        told: &mut Vec<(u64, Told)>,
    ) {
        let mut at = SECOND + random.next() % MS;
        let mut sequence = 0;
        while at < self.seconds * SECOND {
            at += match self.fast {
                true => MS / 5,
                false => 5 * MS + random.next() % (20 * MS),
            };
            let begin = at;
            let computes = MS / 2 + random.next() % (MS / 2);
            let waits_from = begin + computes;
            let meets = windows
                .iter()
                .find(|window| (window.from..window.to).contains(&waits_from));
            let meets = meets.filter(|window| random.below(100) < window.hits);
            let mut own_wait = MS / 5 + random.next() % (MS / 3);
            if random.below(1_000) < self.noise {
                own_wait *= 10;
            }
            let mut request = Made {
                pid: PID,
                tid,
                request_type: 0,
                begin,
                end: waits_from + own_wait,
                blocked: 0,
                run_queue: 0,
                preempted: 0,
                weight: self.weight,
                label: "update t set n = 5",
            };
            let until = meets.map_or(request.end, |window| window.to + random.next() % (MS / 20));
            request.end = until;
            let length = until - waits_from;
            let waker = match meets.map(|window| window.kind) {
                None | Some(Kind::Disk) => Some(interrupt(DISK)),
                Some(
                    Kind::IdleHolder
                    | Kind::BusyHolder
                    | Kind::LongHolder
                    | Kind::PreemptedHolder
                    | Kind::SlowReader
                    | Kind::QueuedHolder,
                ) => meets.map(|window| {
                    let begun = match window.kind {
                        Kind::IdleHolder => window.to - MS / 50,
                        Kind::LongHolder => LONG_FROM,
                        _ => window.from - MS,
                    };
                    task(PID, HOLDER, WakerIs::InRequest(self.of_holder(begun)))
                }),
                Some(Kind::ManyHolders) if self.is_keyed => meets.map(|window| {
                    let one = window.holders()[random.below(HOLDERS)];
                    task(PID, HOLDER, WakerIs::InRequest(one))
                }),
                Some(Kind::ManyHolders) => {
                    let holder = 200 + 10 * tid + random.below(5) as u32;
                    let times = [waits_from - MS, until - MS / 50];
                    for (begin, label) in times.into_iter().zip(["update t set n = 7", "commit"]) {
                        let held = Made {
                            tid: holder,
                            begin,
                            end: begin + MS / 20,
                            label,
                            ..request.clone()
                        };
                        told.push((held.end, Told::Request(held)));
                    }
                    Some(task(PID, holder, WakerIs::InRequest(of(times[1]))))
                }
                Some(Kind::ForeignHolder) => meets.map(|window| {
                    let begun = of(window.from - MS);
                    task(OTHER_PID, UPSTREAM, WakerIs::InRequest(begun))
                }),
                Some(Kind::Upstream) => Some(task(OTHER_PID, UPSTREAM, WakerIs::Helper(1))),
                Some(Kind::UpstreamPool) => meets.map(|window| {
                    let tid = window.of_pool();
                    task(OTHER_PID, tid, WakerIs::Helper(1))
                }),
                Some(Kind::NotKnown) => Some(Waker::UNKNOWN),
                Some(Kind::RunQueue) => {
                    request.run_queue = length.saturating_sub(MS / 10);
                    Some(interrupt(DISK))
                }
                Some(Kind::Taken { .. } | Kind::TakenByMany | Kind::Limited | Kind::Preempted) => {
                    request.preempted = length;
                    None
                }
                Some(Kind::OnCpu) => {
                    at = until;
                    told.push((at, Told::Request(request)));
                    continue;
                }
            };
            if let Some(window) = meets {
                let wait = cpu_wait(tid, window.kind, [waits_from, until], random);
                told.extend(wait.map(|wait| (until - 1, Told::CpuWait(wait))));
            }
            let wake = until - request.run_queue;
            if waker.is_some() {
                request.blocked = wake - waits_from;
            }
            let off = Off {
                tid,
                space: PID,
                request: Some(of(begin)),
                times: [waits_from, wake, until],
                waker,
                sequence,
                site: SITE,
            };
            sequence += 1;
            told.push((until, Told::Off(off)));
            at = until + MS / 20;
            request.end = at;
            if random.below(1_000) >= self.lost {
                told.push((at, Told::Request(request)));
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Window {
    kind: Kind,
    from: u64,
    to: u64,
    hits: usize,
}

impl Window {
    /// Those that have a lock in turn, where they are tasks.
    fn holders(&self) -> [RequestOf; HOLDERS] {
        std::array::from_fn(|at| of(self.from - MS + at as u64 * 1_000))
    }

    /// Which thread of the pool it is.
    const fn of_pool(&self) -> u32 {
        UPSTREAM + (self.from / SECOND % 8) as u32
    }
}

/// Who has the CPU that a thread waits for.
fn cpu_wait(tid: u32, kind: Kind, times: [u64; 2], random: &mut Random) -> Option<CpuWait> {
    let [from_ns, until_ns] = times;
    let all_ns = until_ns - from_ns;
    let runner = |tgid, real_time, ns| Runner {
        tgid,
        tid: tgid,
        policy: u32::from(real_time),
        priority: if real_time { 89 } else { 120 },
        comm: Comm::from("reindexd"),
        ns,
    };
    let wait = CpuWait {
        space: space(PID),
        tid,
        cpu: 1,
        from_ns,
        until_ns,
        ..CpuWait::default()
    };
    // Beside it a thread of the service itself has some of it.
    let own = runner(PID, false, all_ns / 20);
    let most = all_ns - all_ns / 10;
    match kind {
        Kind::Taken { real_time } => Some(CpuWait {
            runners: vec![own, runner(TAKER, real_time, most)],
            ..wait
        }),
        Kind::TakenByMany => Some(CpuWait {
            runners: vec![own, runner(1_000 + random.below(50) as u32, false, most)],
            ..wait
        }),
        Kind::Limited => Some(CpuWait {
            limited_ns: all_ns,
            cgroup: "/shop".to_owned(),
            ..wait
        }),
        _ => None,
    }
}

fn holder_made(of: RequestOf, label: &'static str) -> Made {
    Made {
        pid: PID,
        tid: HOLDER,
        request_type: of.request_type,
        begin: of.begin_ns,
        end: of.begin_ns,
        blocked: 0,
        run_queue: 0,
        preempted: 0,
        weight: 1,
        label,
    }
}

/// The holder loses its CPU for a moment at the begin of a request.
fn ran(of: RequestOf) -> Off {
    Off {
        tid: HOLDER,
        space: PID,
        request: Some(of),
        times: [of.begin_ns + 10, of.begin_ns + 10, of.begin_ns + 20],
        waker: None,
        sequence: (of.begin_ns / 1_000) as u32,
        site: SITE,
    }
}

/// What the culprit of a window does.
fn holds(told: &mut Vec<(u64, Told)>, window: &Window, number: u32, request_type: u32) {
    let mut request = |begin_ns, end, label| {
        let of = RequestOf {
            begin_ns,
            request_type,
        };
        // What runs a task is known by what is known of it.
        if request_type > 0 {
            told.push((begin_ns, Told::Off(ran(of))));
        }
        let made = Made {
            end,
            ..holder_made(of, label)
        };
        told.push((end, Told::Request(made)));
    };
    match window.kind {
        Kind::IdleHolder => {
            request(
                window.from - MS,
                window.from,
                "select n from t where id = 7 for update",
            );
            request(window.to - MS / 50, window.to + MS / 10, "commit");
        }
        Kind::ForeignHolder => {
            let of = of(window.from - MS);
            let ran = Off {
                tid: UPSTREAM,
                space: OTHER_PID,
                ..ran(of)
            };
            told.push((of.begin_ns, Told::Off(ran)));
            let held = Made {
                pid: OTHER_PID,
                tid: UPSTREAM,
                end: window.to + MS / 10,
                ..holder_made(of, "select 1")
            };
            told.push((held.end, Told::Request(held)));
        }
        Kind::BusyHolder | Kind::PreemptedHolder => {
            request(window.from - MS, window.to + MS / 10, "alter table t");
            if window.kind == Kind::PreemptedHolder {
                let half = (window.to - window.from) / 2;
                let off = Off {
                    tid: HOLDER,
                    space: PID,
                    request: Some(of(window.from - MS)),
                    times: [window.from, window.from, window.from + half],
                    waker: None,
                    sequence: number,
                    site: SITE,
                };
                told.push((window.from + half, Told::Off(off)));
            }
        }
        Kind::SlowReader | Kind::QueuedHolder => {
            let begun = window.from - MS;
            request(begun, window.to + MS / 10, "select n from t");
            let off = Off {
                tid: HOLDER,
                space: PID,
                request: Some(of(begun)),
                times: [window.from, window.to - MS, window.to - MS],
                waker: Some(Waker::UNKNOWN),
                sequence: number,
                site: match window.kind {
                    Kind::SlowReader => CLIENT,
                    _ => SITE,
                },
            };
            told.push((window.to - MS, Told::Off(off)));
        }
        Kind::Upstream | Kind::UpstreamPool => {
            let off = Off {
                tid: match window.kind {
                    Kind::Upstream => UPSTREAM,
                    _ => window.of_pool(),
                },
                space: OTHER_PID,
                request: None,
                times: [window.from, window.to - 10, window.to - 5],
                waker: Some(interrupt(TIMER)),
                sequence: number,
                site: SITE,
            };
            told.push((window.to, Told::Off(off)));
        }
        _ => {}
    }
}
