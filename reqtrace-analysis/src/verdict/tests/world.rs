//! A service of eight threads with an incident of a known kind, as events.

use reqtrace_common::record::STACK_NONE;
use reqtrace_recording::{
    Address, AddressSpace, BlockSite, Comm, End, Ending, Event, Header, Holder, Interval,
    IntervalKind, KERNEL, Name, Options as Recorded, Process, ProcessChange, Request, RequestOf,
    Slot, Stack, Thread, Waker, WakerContext, WakerIs,
};

use crate::aggregate::{Aggregator, Options};
use crate::profile::Profiles;
use crate::report::verdict::Finding;
use crate::verdict::random::Random;

pub(super) const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
const PROFILE: &str = "
[profile]
name = \"db\"
[[request]]
name = \"query\"
begin = { function = \"a\" }
end = { function = \"b\" }
[[wait]]
name = \"row lock\"
functions = [\"lock_wait\"]
";
/// The traced process, and another one.
const PID: u32 = 10;
pub(super) const OTHER_PID: u32 = 500;
/// Threads that serve.
const SERVERS: u32 = 8;
/// A thread of the service that holds locks, and one of another process.
pub(super) const HOLDER: u32 = 77;
pub(super) const UPSTREAM: u32 = 501;

/// Stacks.
const LOCK: u64 = 100;
const DISK: u64 = 101;
const TIMER: u64 = 102;
const LOCK_USER: u64 = 103;

/// What stops requests until its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The holder idles in its transaction.
    IdleHolder,
    /// The holder works in a request.
    BusyHolder,
    /// Another of the threads each time.
    ManyHolders,
    /// Somebody takes their CPU.
    Preempted,
    /// They are woken, and wait for a CPU.
    RunQueue,
    Disk,
    /// A process that they ask sleeps.
    Upstream,
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
        }
    }

    /// What the report finds.
    pub(super) fn findings(&self) -> Vec<Finding> {
        let mut world = World::new();
        let mut random = Random::of([self.seed].into_iter());
        let windows = self.windows(&mut random);
        let mut told: Vec<(u64, Told)> = Vec::new();
        for (window, number) in windows.iter().zip(0..) {
            holds(&mut told, window, number);
        }
        for tid in 1..=SERVERS {
            self.serve(tid, &windows, &mut random, &mut told);
        }
        told.sort_by_key(|(at, _)| *at);
        told.into_iter().for_each(|(_, told)| world.tell(&told));
        world.finish()
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
            at += 5 * MS + random.next() % (20 * MS);
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
                tid,
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
                Some(Kind::IdleHolder | Kind::BusyHolder) => meets.map(|window| {
                    let begun = match window.kind {
                        Kind::IdleHolder => window.to - MS / 50,
                        _ => window.from - MS,
                    };
                    task(PID, HOLDER, WakerIs::InRequest(of(begun)))
                }),
                Some(Kind::ManyHolders) => {
                    let holder = 200 + random.below(50) as u32;
                    Some(task(PID, holder, WakerIs::InRequest(of(waits_from - MS))))
                }
                Some(Kind::Upstream) => Some(task(OTHER_PID, UPSTREAM, WakerIs::Helper(1))),
                Some(Kind::NotKnown) => Some(Waker::UNKNOWN),
                Some(Kind::RunQueue) => {
                    request.run_queue = length - MS / 10;
                    Some(interrupt(DISK))
                }
                Some(Kind::Preempted) => {
                    request.preempted = length;
                    None
                }
                Some(Kind::OnCpu) => {
                    at = until;
                    told.push((at, Told::Request(request)));
                    continue;
                }
            };
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

#[derive(Clone, Debug)]
struct Made {
    tid: u32,
    begin: u64,
    end: u64,
    blocked: u64,
    run_queue: u64,
    preempted: u64,
    weight: u32,
    label: &'static str,
}

#[derive(Clone, Debug)]
struct Off {
    tid: u32,
    space: u32,
    request: Option<RequestOf>,
    times: [u64; 3],
    waker: Option<Waker>,
    sequence: u32,
}

#[derive(Clone, Debug)]
enum Told {
    Request(Made),
    Off(Off),
}

/// What the culprit of a window does.
fn holds(told: &mut Vec<(u64, Told)>, window: &Window, number: u32) {
    let mut request = |begin, end, label| {
        let made = Made {
            tid: HOLDER,
            begin,
            end,
            blocked: 0,
            run_queue: 0,
            preempted: 0,
            weight: 1,
            label,
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
        Kind::BusyHolder => request(window.from - MS, window.to + MS / 10, "alter table t"),
        Kind::Upstream => {
            let off = Off {
                tid: UPSTREAM,
                space: OTHER_PID,
                request: None,
                times: [window.from, window.to - 10, window.to - 5],
                waker: Some(interrupt(TIMER)),
                sequence: number,
            };
            told.push((window.to, Told::Off(off)));
        }
        _ => {}
    }
}

const fn of(begin_ns: u64) -> RequestOf {
    RequestOf {
        begin_ns,
        request_type: 0,
    }
}

const fn space(tgid: u32) -> AddressSpace {
    AddressSpace {
        tgid,
        exec_generation: 0,
    }
}

fn task(tgid: u32, tid: u32, is: WakerIs) -> Waker {
    Waker {
        context: WakerContext::Task,
        is,
        tid,
        tgid,
        stack: STACK_NONE,
    }
}

fn interrupt(stack: u64) -> Waker {
    Waker {
        context: WakerContext::Unclear,
        stack,
        ..Waker::UNKNOWN
    }
}

const SITE: BlockSite = BlockSite {
    kernel_stack: LOCK,
    user_stack: LOCK_USER,
    ..BlockSite::PREEMPTED
};

struct World {
    analysis: Aggregator,
    requests: u64,
}

impl World {
    fn new() -> Self {
        let profile = Profiles::parse([PROFILE], "db").unwrap();
        let header = Header {
            blame: true,
            options: Recorded {
                labels: true,
                ..Recorded::default()
            },
            ..Header::default()
        };
        let mut world = Self {
            analysis: Aggregator::new(&profile, &header, Options::default()).unwrap(),
            requests: 0,
        };
        world.event(&Event::Process(&Process {
            space: space(PID),
            change: ProcessChange::Start,
            name: "db".to_owned(),
            ..Process::default()
        }));
        world.event(&Event::Process(&Process {
            space: space(OTHER_PID),
            change: ProcessChange::Fork,
            time_ns: 3 * SECOND,
            name: "upstream".to_owned(),
            ..Process::default()
        }));
        for (tgid, tid, name) in [(PID, HOLDER, "worker"), (OTHER_PID, UPSTREAM, "slow")] {
            world.event(&Event::Thread(&Thread {
                tgid,
                tid,
                name: name.to_owned(),
            }));
        }
        world.stack(None, LOCK, &["futex_wait", "do_futex"]);
        world.stack(Some(space(PID)), LOCK_USER, &["lock_wait", "main"]);
        world.stack(
            None,
            DISK,
            &["try_to_wake_up", "blk_mq_end_request", "__irq_exit_rcu"],
        );
        world.stack(
            None,
            TIMER,
            &[
                "try_to_wake_up",
                "hrtimer_wakeup",
                "__hrtimer_run_queues",
                "hrtimer_interrupt",
            ],
        );
        world
    }

    fn event(&mut self, event: &Event<'_>) {
        self.analysis.event(event, &mut []).unwrap();
    }

    fn stack(&mut self, space: Option<AddressSpace>, id: u64, frames: &[&str]) {
        let mut addresses = Vec::new();
        for (depth, frame) in frames.iter().enumerate() {
            let address = Address {
                object: if space.is_none() { KERNEL } else { 2 },
                offset: id * 100 + depth as u64,
            };
            addresses.push(address);
            self.event(&Event::Name(&Name {
                address,
                is_return: depth > 0,
                frames: vec![(*frame).to_owned()],
            }));
        }
        self.event(&Event::Stack(&Stack {
            space,
            id,
            stop: 0,
            addresses,
        }));
    }

    fn tell(&mut self, told: &Told) {
        match told {
            Told::Off(off) => self.event(&Event::Interval(&Interval {
                space: space(off.space),
                tid: off.tid,
                sequence: off.sequence,
                request: off.request,
                site: SITE,
                out_ns: off.times[0],
                kind: off
                    .waker
                    .map_or(IntervalKind::Preempted, |waker| IntervalKind::Blocked {
                        wake_ns: off.times[1],
                        waker,
                    }),
                in_ns: off.times[2],
                futex: 0,
                holder: Holder::NoFutex,
                woken_from: None,
            })),
            Told::Request(made) => {
                self.requests += 1;
                let slots = [Slot {
                    site: SITE,
                    blocked_ns: made.blocked,
                }];
                let slots = if made.blocked > 0 { &slots[..] } else { &[] };
                self.event(&Event::Request(Request {
                    id: self.requests,
                    space: space(PID),
                    tid: made.tid,
                    comm: Comm::default(),
                    label: made.label.as_bytes(),
                    begin_ns: made.begin,
                    end_ns: made.end,
                    blocked_ns: made.blocked,
                    run_queue_ns: made.run_queue,
                    preempted_ns: made.preempted,
                    weight: made.weight,
                    slots,
                    ..Request::default()
                }));
            }
        }
    }

    fn finish(mut self) -> Vec<Finding> {
        self.event(&Event::End(&End::default()));
        self.analysis
            .finish(&Ending::default(), &mut [])
            .unwrap()
            .verdict
    }
}
