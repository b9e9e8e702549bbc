//! A trace without end: what is kept does not grow.

use reqtrace_common::record::FILE_NONE;
use reqtrace_common::sums::off_kind;
use reqtrace_recording::{
    Address, AddressSpace, BlockSite, Comm, NOWHERE, Process, ProcessChange, Slot, Stack, StackSum,
    StackSumKey, SumOf, TypeTotals, Window,
};

use super::*;

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
        // As who records says it, when so many stacks were said.
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
