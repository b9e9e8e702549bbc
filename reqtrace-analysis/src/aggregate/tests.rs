//! A trace without end: what is kept does not grow. What the kernel has counted has come. What happened lately.

use reqtrace_common::record::FILE_NONE;
use reqtrace_common::sums::off_kind;
use reqtrace_recording::{
    Address, AddressSpace, BlockSite, Comm, NOWHERE, Process, ProcessChange, Slot, Stack, StackSum,
    StackSumKey, SumOf, TypeTotals, Window,
};

use super::*;
use crate::report::WindowRow;

const PROFILE: &str = "[profile]\nname = \"forks\"\n\n[[request]]\nname = \"work\"\nbegin = { function = \"work\" }\n";
/// Processes that fork, block once for 10 ns in a request, and leave.
const PROCESSES: u32 = 60_000;
/// Processes between two windows.
const A_WINDOW: u32 = 1000;

struct Forks {
    aggregator: Aggregator,
    sums: Vec<SumOf>,
}

impl Forks {
    fn event(&mut self, event: &Event<'_>) {
        self.aggregator.event(event, &mut []).unwrap();
    }

    fn process(&mut self, space: AddressSpace, change: ProcessChange, name: &str) {
        self.event(&Event::Process(&Process {
            space,
            change,
            parent: 1,
            time_ns: 0,
            name: name.to_owned(),
        }));
    }

    /// One process, whose code nobody could look at.
    fn fork(&mut self, pid: u32) {
        let space = AddressSpace {
            tgid: pid,
            exec_generation: 0,
        };
        let id = u64::from(pid) + 100;
        self.process(space, ProcessChange::Fork, "worker");
        let offsets = [pid, pid + 1, pid + 2].map(|offset| u64::from(offset) << 12);
        self.event(&Event::Stack(&Stack {
            space: Some(space),
            id,
            stop: 0,
            addresses: offsets
                .map(|offset| Address {
                    object: NOWHERE,
                    offset,
                })
                .to_vec(),
        }));
        self.process(space, ProcessChange::Exit, "");
        let site = BlockSite {
            user_stack: id,
            kernel_stack: reqtrace_common::record::STACK_NONE,
            syscall: 0,
            file: FILE_NONE,
        };
        let slots = [Slot {
            site,
            blocked_ns: 10,
        }];
        self.event(&Event::Request(Request {
            id: u64::from(pid),
            space,
            tid: pid,
            comm: Comm::from("worker"),
            begin_ns: 100,
            end_ns: 120,
            blocked_ns: 10,
            blocks: 1,
            weight: 1,
            slots: &slots,
            ..Request::default()
        }));
        let key = StackSumKey {
            user_stack: id,
            kernel_stack: site.kernel_stack,
            tgid: pid,
            off_kind: off_kind::BLOCK,
            file: FILE_NONE,
            ..StackSumKey::default()
        };
        let sum = StackSum {
            off_ns: 10,
            count: 1,
            ..StackSum::default()
        };
        self.sums.push(SumOf { key, sum });
    }

    fn window(&mut self) {
        let window = Window {
            until_ns: 120,
            totals: vec![TypeTotals::ZERO],
            sums: std::mem::take(&mut self.sums),
            histograms: Vec::new(),
            ..Window::default()
        };
        self.event(&Event::Window(&window));
    }
}

#[test]
fn processes_that_left_take_no_memory_and_lose_no_time() {
    let profile = Profiles::parse([PROFILE], "forks").unwrap();
    let aggregator = Aggregator::new(&profile, &Header::default(), Options::default()).unwrap();
    let mut forks = Forks {
        aggregator,
        sums: Vec::new(),
    };
    let mut most = (0, 0);
    for pid in 2..2 + PROCESSES {
        forks.fork(pid);
        if pid % A_WINDOW == 0 {
            forks.window();
        }
        // As the recorder sends it after so many stacks.
        if pid % (1 << 14) == 0 {
            forks.window();
            forks.event(&Event::StacksAnew);
        }
        let (names, processes) = forks.aggregator.sites.get_mut().kept();
        most = (most.0.max(names), most.1.max(processes));
    }
    forks.window();
    let (names, processes) = most;
    assert!(names <= 3 * ((1 << 14) + 1), "{names} addresses");
    assert!(processes <= (1 << 14) + 1, "{processes} processes");
    let report = forks.aggregator.view(&Ending::default());
    let lines = report.stacks.iter();
    let blocked: u64 = lines.clone().map(|line| line.ns).sum();
    assert_eq!(blocked, 10 * u64::from(PROCESSES));
    assert!(lines.clone().all(|line| line.comm.as_str() == "worker"));
    let listed = report.trace.processes.len() as u64;
    assert_eq!(
        listed + report.trace.unlisted_processes,
        u64::from(PROCESSES)
    );
    let loss = |name: &str| report.losses.iter().find(|loss| loss.name == name);
    assert!(loss("processes_unlisted").is_some_and(|loss| loss.count > 0));
    assert!(loss("stacks_unknown").is_none());
}

fn aggregator() -> Aggregator {
    let profile = Profiles::parse([PROFILE], "work").unwrap();
    Aggregator::new(&profile, &Header::default(), Options::default()).unwrap()
}

fn request(id: u64, end_ns: u64, latency_ns: u64, label: &str) -> Event<'_> {
    Event::Request(Request {
        id,
        begin_ns: end_ns - latency_ns,
        end_ns,
        weight: 1,
        label: label.as_bytes(),
        ..Request::default()
    })
}

/// What is not accounted for when the kernel has counted so many requests, and this has become of one of them.
fn unaccounted(all: u64, of_one: impl Fn(&mut Aggregator, Event<'_>)) -> [u64; 2] {
    let mut aggregator = aggregator();
    let mut totals = TypeTotals::ZERO;
    for id in 1..=all {
        let (end_ns, latency_ns) = (id * 1_000, 100 + id % 77);
        totals.count += 1;
        totals.latency_ns += latency_ns;
        let event = request(id, end_ns, latency_ns, "");
        match id {
            7_777 => of_one(&mut aggregator, event),
            _ => aggregator.event(&event, &mut []).unwrap(),
        }
        if id % 5_000 == 0 {
            let window = Window {
                until_ns: end_ns,
                totals: vec![std::mem::replace(&mut totals, TypeTotals::ZERO)],
                ..Window::default()
            };
            aggregator.event(&Event::Window(&window), &mut []).unwrap();
        }
    }
    let ending = Ending {
        ended: true,
        ..Ending::default()
    };
    let losses = aggregator.view(&ending).losses;
    ["requests_unaccounted", "latency_unaccounted_ns"].map(|name| {
        let loss = losses.iter().find(|loss| loss.name == name);
        loss.map_or(0, |loss| loss.count)
    })
}

#[test]
fn one_record_of_a_million_that_is_dropped_or_changed_is_found() {
    let came = unaccounted(10_000, |aggregator, event| {
        aggregator.event(&event, &mut []).unwrap();
    });
    assert_eq!(came, [0, 0]);
    assert_eq!(unaccounted(1_000_000, |_, _| {}), [1, 0]);
    let lost = unaccounted(10_000, |aggregator, _| {
        let loss = Loss {
            name: reqtrace_common::loss::Loss::RingFull.name().to_owned(),
            count: 1,
        };
        aggregator.event(&Event::Loss(&loss), &mut []).unwrap();
    });
    assert_eq!(lost, [0, 0]);
    let longer = unaccounted(10_000, |aggregator, event| {
        let Event::Request(mut request) = event else {
            panic!("{event:?}");
        };
        request.begin_ns -= 3;
        let event = Event::Request(request);
        aggregator.event(&event, &mut []).unwrap();
    });
    assert_eq!(longer, [0, 3]);
}

#[test]
fn percentiles_ledgers_and_statements_are_those_of_the_last_seconds() {
    let mut aggregator = aggregator();
    aggregator.keep_groups();
    let mut id = 0;
    for second in 0..=10 {
        for number in 0..100 {
            let (latency_ns, label) = match (second, number) {
                (0, _) => (400_000_000, "select 1"),
                (_, 0) => (50_000_000, "update 2"),
                _ => (10_000, "select 3"),
            };
            id += 1;
            let event = request(id, second * 1_000_000_000 + 500_000_000, latency_ns, label);
            aggregator.event(&event, &mut []).unwrap();
        }
    }
    assert_eq!(aggregator.types_now(10)[0].complete, 1_100);
    aggregator
        .event(&Event::Tick(11_300_000_000), &mut [])
        .unwrap();
    let now = aggregator.types_now(10).remove(0);
    assert_eq!(
        (now.complete, now.per_second, now.causes),
        (1_100, 100.0, None)
    );
    let latency = now.latency.unwrap();
    assert!((10_000..10_020).contains(&latency.p50_ns), "{latency:?}");
    assert!((10_000..10_020).contains(&latency.p99_ns), "{latency:?}");
    assert_eq!(latency.max_ns, 50_000_000);
    assert_eq!(now.ledger.latency_ns, 10 * (99 * 10_000 + 50_000_000));
    let statements = aggregator.statements_now(60).into_iter();
    let shown: Vec<_> = statements
        .map(|of| (of.statement.unwrap().to_string(), of.count, of.max_ns))
        .collect();
    let wanted = [
        ("select ?", 1_090, 400_000_000),
        ("update ?", 10, 50_000_000),
    ];
    assert_eq!(
        shown,
        wanted.map(|(text, count, ns)| (text.to_owned(), count, ns))
    );
    // Nothing happens any more.
    aggregator
        .event(&Event::Tick(100_000_000_000), &mut [])
        .unwrap();
    let now = aggregator.types_now(10).remove(0);
    assert_eq!(
        (now.complete, now.per_second, now.latency),
        (1_100, 0.0, None)
    );
    assert_eq!(aggregator.statements_now(60), []);
}

/// Adds the requests of windows up.
#[derive(Clone, Default)]
struct TakesWindows(std::rc::Rc<std::cell::Cell<u64>>);

impl Exporter for TakesWindows {
    fn window(&mut self, row: &WindowRow<'_>) -> Result<()> {
        self.0.set(self.0.get() + row.cell.count);
        Ok(())
    }

    fn wants_windows(&self) -> bool {
        true
    }

    fn finish(&mut self, _report: &Report) -> Result<()> {
        Ok(())
    }
}

/// An agent's session lasts for months, and nobody asks for its report.
#[test]
fn windows_that_were_handed_over_are_not_kept() {
    const SECONDS: u64 = 600;
    const SECOND_NS: u64 = 1_000_000_000;
    let profile = Profiles::parse([PROFILE], "forks").unwrap();
    let options = Options {
        groups_by_second: true,
        ..Options::default()
    };
    let mut aggregator = Aggregator::new(&profile, &Header::default(), options).unwrap();
    let taken = TakesWindows::default();
    let mut exporters: Vec<Box<dyn Exporter>> = vec![Box::new(taken.clone())];
    let mut most = 0;
    for second in 1..=SECONDS {
        for number in 0..20 {
            let end_ns = second * SECOND_NS + number * 1_000_000;
            let request = Request {
                id: second * 100 + number,
                // Each in a cell of its own.
                begin_ns: end_ns - (1_000 << number),
                end_ns,
                weight: 1,
                ..Request::default()
            };
            let event = Event::Request(request);
            aggregator.event(&event, &mut exporters).unwrap();
        }
        let tick = Event::Tick(second * SECOND_NS + SECOND_NS / 2);
        aggregator.event(&tick, &mut exporters).unwrap();
        most = most.max(aggregator.cells().windows().count());
    }
    assert!(most < 10, "{most} windows");
    aggregator
        .finish(&Ending::default(), &mut exporters)
        .unwrap();
    assert_eq!(taken.0.get(), SECONDS * 20);
}

/// So that an agent's session ends long before.
#[test]
fn sums_are_half_full_before_anything_is_refused() {
    let mut aggregator = aggregator();
    // A fourth of what fits, and a bit, in each.
    let mut request = |id| {
        let request = Request {
            id,
            end_ns: 1 << 59,
            weight: 4,
            ..Request::default()
        };
        aggregator.event(&Event::Request(request), &mut []).unwrap();
        (aggregator.is_half_full(), aggregator.bounds.refused)
    };
    let seen: Vec<_> = (1..=4).map(&mut request).collect();
    assert_eq!(seen, [(false, 0), (true, 0), (true, 0), (true, 1)]);
}

/// Of processes that are let go of in months.
#[test]
fn requests_that_were_open_fill_it_as_well() {
    let mut aggregator = aggregator();
    let open = Open::default();
    let mut until_half = 0;
    while !aggregator.is_half_full() {
        aggregator.event(&Event::Open(&open), &mut []).unwrap();
        until_half += 1;
    }
    assert_eq!((until_half, aggregator.bounds.refused), (65_537, 0));
}

/// Of 1,500 records a third, whatever each stands for.
#[test]
fn the_part_that_was_lost_is_of_records() {
    let mut aggregator = aggregator();
    for id in 1..=1_000 {
        let request = Request {
            id,
            end_ns: id * 1_000,
            weight: 16,
            ..Request::default()
        };
        aggregator.event(&Event::Request(request), &mut []).unwrap();
    }
    let loss = Loss {
        name: reqtrace_common::loss::Loss::RingFull.name().to_owned(),
        count: 500,
    };
    aggregator.event(&Event::Loss(&loss), &mut []).unwrap();
    let types = aggregator.types_so_far();
    assert_eq!((types[0].rows, types[0].sent), (1_000, 1_500));
}

#[test]
fn nothing_is_kept_for_a_verdict_that_nobody_asks_for() {
    let profile = Profiles::parse([PROFILE], "work").unwrap();
    let header = Header {
        blame: true,
        ..Header::default()
    };
    for without_verdict in [false, true] {
        let options = Options {
            without_verdict,
            ..Options::default()
        };
        let aggregator = Aggregator::new(&profile, &header, options).unwrap();
        assert_eq!(aggregator.verdict.is_none(), without_verdict);
        assert!(aggregator.blame.is_some());
    }
}
