//! Samples through the whole of the analysis: events in, the report out.

use reqtrace_common::record::STACK_NONE;
use reqtrace_recording::{
    Address, Comm, Ending, Event, Incomplete, Name, Stack, TypeTotals, Window,
};

use super::*;
use crate::aggregate::{Aggregator, FilterOptions, Options};
use crate::error::Result;
use crate::profile::Profiles;
use crate::report::{Exporter, Report};

const PROFILE: &str = "[profile]\nname = \"p\"\n\n[[request]]\nname = \"work\"\nbegin = { function = \"work\" }\n\
                       \n[[request]]\nname = \"other\"\nbegin = { function = \"other\" }\n";
const SPACE: AddressSpace = AddressSpace {
    tgid: 7,
    exec_generation: 0,
};

/// The analysis, and its outputs.
struct Trace(Aggregator, Vec<Box<dyn Exporter>>);

/// An output that takes the page.
struct TakesPage;

impl Exporter for TakesPage {
    fn wants_page(&self) -> bool {
        true
    }

    fn finish(&mut self, _report: &Report) -> Result<()> {
        Ok(())
    }
}

impl Trace {
    fn new(options: Options) -> Self {
        let profile = Profiles::parse([PROFILE], "p").unwrap();
        let header = Header {
            cpu_rate: 199,
            cpu_engine: "cpu-clock".to_owned(),
            ..Header::default()
        };
        let analysis = Aggregator::new(&profile, &header, options).unwrap();
        let mut trace = Self(analysis, Vec::new());
        for id in [2, 4, 6] {
            trace.stack(id);
        }
        trace
    }

    fn event(&mut self, event: &Event<'_>) {
        self.0.event(event, &mut self.1).unwrap();
    }

    /// A stack of the functions `main` and `f` with the number of the stack.
    fn stack(&mut self, id: u64) {
        let addresses = [(id, format!("f{id}")), (1, "main".to_owned())].map(|(offset, name)| {
            let address = Address { object: 2, offset };
            self.event(&Event::Name(&Name {
                address,
                is_return: offset == 1,
                frames: vec![name],
            }));
            address
        });
        self.event(&Event::Stack(&Stack {
            space: Some(SPACE),
            id,
            stop: 0,
            addresses: addresses.to_vec(),
        }));
    }

    fn sample(&mut self, tid: u32, begin_ns: u64, user_stack: StackId) {
        self.event(&Event::Sample(&Sample {
            space: SPACE,
            tid,
            request: RequestOf {
                begin_ns,
                request_type: 0,
            },
            weight: 1,
            at_ns: begin_ns + 1,
            user_stack,
            kernel_stack: STACK_NONE,
        }));
    }

    /// A request that was on a CPU all the time, but for 10 ns each on the run queue and preempted.
    fn request(&mut self, tid: u32, begin_ns: u64, end_ns: u64, incomplete: Option<Incomplete>) {
        self.event(&Event::Request(Request {
            id: begin_ns,
            space: SPACE,
            tid,
            comm: Comm::from("server"),
            incomplete,
            begin_ns,
            end_ns,
            run_queue_ns: 10,
            preempted_ns: 10,
            weight: 1,
            ..Request::default()
        }));
    }

    /// Function and time of each line, the most time first.
    fn on_cpu(&self) -> (OnCpu, Vec<(String, u64)>) {
        let report = self.0.view(&Ending::default());
        let on_cpu = report.on_cpu.unwrap();
        for (of_type, request) in on_cpu.types.iter().zip(&report.requests) {
            let stacks = on_cpu.stacks.iter();
            let mine = stacks.filter(|line| line.request == request.name);
            assert_eq!(mine.map(|line| line.ns).sum::<u64>(), of_type.ns);
        }
        let name = |line: &StackLine| (line.user.last().unwrap().clone(), line.ns);
        let lines = on_cpu.stacks.iter().map(name).collect();
        (on_cpu, lines)
    }
}

fn line(name: &str, ns: u64) -> (String, u64) {
    (name.to_owned(), ns)
}

#[test]
fn on_cpu_time_is_split_by_samples_to_the_last_nanosecond() {
    let mut trace = Trace::new(Options::default());
    trace.sample(1, 100, 2);
    trace.sample(1, 100, 2);
    trace.sample(1, 100, 4);
    // Nothing is known before the request has ended.
    assert_eq!(trace.on_cpu().1, []);
    trace.request(1, 100, 1120, None);
    let (on_cpu, lines) = trace.on_cpu();
    // 1,000 ns by three samples.
    assert_eq!(lines, [line("f2", 667), line("f4", 333)]);
    assert_eq!((on_cpu.types[0].samples, on_cpu.types[0].ns), (3, 1000));
    let hottest = &on_cpu.types[0].hottest[0];
    assert_eq!(
        (hottest.name.as_str(), hottest.ns, hottest.samples),
        ("f2", 667, 2)
    );
    assert_eq!(hottest.callers, ["main"]);
    // One that no sample has met makes the others' stacks wider.
    trace.request(2, 2000, 3020, None);
    assert_eq!(trace.on_cpu().1, [line("f2", 1334), line("f4", 666)]);
}

/// A request whose record was chosen at its end, and one that has none because it was not.
#[test]
fn samples_of_requests_without_a_record_count_and_those_of_a_part_stand_for_it() {
    let header = Header {
        cpu_rate: 199,
        ..Header::default()
    };
    let request = Request {
        space: SPACE,
        tid: 1,
        begin_ns: 100,
        end_ns: 1_120,
        weight: 100,
        ..Request::default()
    };
    let of = |begin_ns| Sample {
        space: SPACE,
        tid: 1,
        request: RequestOf {
            begin_ns,
            request_type: 0,
        },
        weight: 1,
        at_ns: begin_ns + 1,
        user_stack: 2,
        kernel_stack: STACK_NONE,
    };
    let ledger = Ledger::default();
    for (all, wanted) in [(true, 2), (false, 100)] {
        let mut samples = Samples::new(&header, &[true]).unwrap();
        for begin_ns in [100, 500] {
            samples.add(&of(begin_ns), all);
        }
        // It ended on another thread.
        samples.unrecorded(
            &Unrecorded {
                request_type: 0,
                tgid: SPACE.tgid,
                tid: 9,
                comm: Comm::default(),
                begin_ns: 500,
                end_ns: 900,
            },
            all,
        );
        let own = samples.request(&request, Some(&ledger), all).unwrap();
        let places: Vec<u64> = own.places(&request).map(|(_, _, count)| count).collect();
        assert_eq!(places, [100]);
        let sums: Vec<u64> = samples.sums().into_iter().map(|(_, count)| count).collect();
        assert_eq!(sums, [wanted], "{all}");
        assert_eq!(samples.kept, 0);
    }
}

#[test]
fn a_type_without_samples_says_so() {
    let mut trace = Trace::new(Options::default());
    trace.request(1, 100, 1120, None);
    let (on_cpu, lines) = trace.on_cpu();
    assert_eq!(lines, [line(NOT_SAMPLED, 1000)]);
    assert_eq!(on_cpu.types[0].samples, 0);
    assert!(on_cpu.types[0].hottest.is_empty());
    assert_eq!(on_cpu.types[1], OnCpuType::default());
}

#[test]
fn samples_of_incomplete_requests_are_in_no_stack() {
    let mut trace = Trace::new(Options::default());
    trace.sample(1, 100, 2);
    trace.request(1, 100, 1120, Some(Incomplete::NoEnd));
    trace.sample(1, 2000, 4);
    trace.request(1, 2000, 3020, None);
    // Still running.
    trace.sample(1, 5000, 6);
    assert_eq!(trace.on_cpu().1, [line("f4", 1000)]);
}

#[test]
fn a_page_has_the_samples_of_complete_requests_that_are_kept() {
    for (options, wanted) in [
        (Options::default(), vec![("f2", 2), ("f4", 3)]),
        (
            Options {
                filter: FilterOptions {
                    from_ns: Some(1000),
                    ..FilterOptions::default()
                },
                ..Options::default()
            },
            vec![("f4", 3)],
        ),
        // Stacks are those of slow requests then; a page has all.
        (
            Options {
                slower_than_ns: Some(500),
                ..Options::default()
            },
            vec![("f2", 2), ("f4", 3)],
        ),
    ] {
        let mut trace = Trace::new(options);
        trace.1.push(Box::new(TakesPage));
        trace.sample(1, 100, 2);
        trace.sample(1, 100, 2);
        trace.sample(2, 1500, 4);
        trace.request(1, 100, 400, None);
        trace.sample(1, 1600, 6);
        trace.request(1, 1600, 1700, Some(Incomplete::NoEnd));
        trace.sample(2, 1500, 4);
        trace.sample(2, 1500, 4);
        trace.request(2, 1500, 3020, None);
        let report = trace.0.finish(&Ending::default(), &mut trace.1).unwrap();
        let page = report.page.unwrap();
        let mut found: BTreeMap<&str, u64> = BTreeMap::new();
        for (stack, count) in page.cells.iter().flat_map(|cell| &cell.samples) {
            let stack = &page.stacks[*stack as usize];
            assert_eq!((stack.kind, stack.class), (StackKind::OnCpu, None));
            let names = stack.frames.iter().map(|at| &*page.frames[*at as usize]);
            let names: Vec<&str> = names.collect();
            assert_eq!((names.len(), names[0]), (2, "main"));
            *found.entry(names[1]).or_default() += count;
        }
        assert_eq!(found.into_iter().collect::<Vec<_>>(), wanted);
    }
}

#[test]
fn a_request_whose_record_was_lost_has_its_samples() {
    let mut trace = Trace::new(Options::default());
    trace.sample(1, 100, 2);
    // The next request of the thread; the kernel has counted both.
    trace.sample(1, 2000, 4);
    trace.request(1, 2000, 3020, None);
    let totals = TypeTotals {
        count: 2,
        latency_ns: 2040,
        run_queue_ns: 20,
        preempted_ns: 20,
        ..TypeTotals::ZERO
    };
    trace.event(&Event::Window(&Window {
        until_ns: 4000,
        totals: vec![totals, TypeTotals::ZERO],
        ..Window::default()
    }));
    assert_eq!(trace.on_cpu().1, [line("f2", 1000), line("f4", 1000)]);
}

#[test]
fn of_slow_requests_all_time_is_there() {
    for options in [
        Options {
            slower_than_ns: Some(1000),
            ..Options::default()
        },
        Options {
            filter: FilterOptions {
                from_ns: Some(1000),
                ..FilterOptions::default()
            },
            ..Options::default()
        },
    ] {
        let mut trace = Trace::new(options);
        trace.sample(1, 100, 2);
        trace.request(1, 100, 200, None);
        trace.sample(1, 2000, 4);
        trace.request(1, 2000, 3020, None);
        let (on_cpu, lines) = trace.on_cpu();
        assert_eq!(lines, [line("f4", 1000)]);
        let beside: Vec<_> = on_cpu
            .beside
            .iter()
            .map(|line| (line.kind, line.ns))
            .collect();
        assert_eq!(
            beside,
            [(StackKind::RunQueue, 10), (StackKind::Preempted, 10)]
        );
        // A lost record is in none of the records that these are made of.
        trace.sample(1, 5000, 6);
        trace.sample(1, 6000, 4);
        assert_eq!(trace.on_cpu().1, [line("f4", 1000)]);
    }
}

#[test]
fn a_request_that_goes_on_keeps_its_stacks_when_all_are_sent_again() {
    let mut trace = Trace::new(Options::default());
    trace.sample(1, 100, 2);
    trace.sample(2, 150, 4);
    trace.request(2, 150, 1170, None);
    trace.event(&Event::StacksAnew);
    trace.request(1, 100, 1120, None);
    assert_eq!(trace.on_cpu().1, [line("f2", 1000), line("f4", 1000)]);
    let report = trace.0.view(&Ending::default());
    assert!(
        report
            .losses
            .iter()
            .all(|loss| loss.name != "stacks_unknown")
    );
}

#[test]
fn what_is_too_much_is_counted() {
    let mut trace = Trace::new(Options::default());
    let most = MAX_WAITING as u64;
    for id in 0..most + 5 {
        trace.sample((id % 100) as u32, 100, 1000 + 2 * id);
    }
    // A stack that is known takes no room.
    trace.sample(0, 100, 1000);
    let lost = |trace: &Trace| {
        let losses = trace.0.view(&Ending::default()).losses;
        let found = losses.iter().find(|loss| loss.name == "samples_forgotten");
        found.map(|loss| loss.count)
    };
    assert_eq!(lost(&trace), Some(5));
    let samples = trace.0.samples.as_ref().unwrap();
    assert_eq!(samples.kept, MAX_WAITING);
    for tid in 0..100 {
        trace.request(tid, 100, 1120, None);
    }
    let samples = trace.0.samples.as_ref().unwrap();
    assert_eq!((samples.kept, samples.waiting.len()), (0, 0));
}

#[test]
fn requests_of_threads_that_are_gone_make_room() {
    let mut trace = Trace::new(Options::default());
    for tid in 0..MAX_WAITING as u32 {
        trace.sample(tid, 100, 2);
    }
    // Their records were lost, and for a minute nothing has come of their threads.
    trace.sample(MAX_WAITING as u32, 100 + SILENT_NS, 4);
    let samples = trace.0.samples.as_ref().unwrap();
    let ended = MAX_WAITING / 2;
    assert_eq!((samples.kept, samples.forgotten), (ended + 1, 0));
    assert_eq!(samples.types[0].samples, ended as u64);
}

#[test]
fn a_trace_without_samples_has_no_such_part() {
    let profile = Profiles::parse([PROFILE], "p").unwrap();
    let aggregator = Aggregator::new(&profile, &Header::default(), Options::default()).unwrap();
    assert_eq!(aggregator.view(&Ending::default()).on_cpu, None);
}
