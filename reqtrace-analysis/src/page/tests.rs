use reqtrace_base::plain::Plain;
use reqtrace_common::record::{FILE_NONE, StackId};

use super::*;
use crate::blame::{Place, ThreadId};
use crate::report::NOT_SAMPLED;
use crate::report::page::StatementSum;

/// Names without any event: a stack is one frame that has its number.
#[derive(Default)]
struct Numbers {
    texts: Vec<String>,
}

impl Naming for Numbers {
    fn comm(&self, _thread: ThreadId) -> Plain {
        Plain::default()
    }

    fn frames(&mut self, _place: &Place) -> [Vec<String>; 2] {
        [Vec::new(), Vec::new()]
    }

    fn user_frames(&mut self, _space: AddressSpace, _stack: StackId) -> Vec<String> {
        Vec::new()
    }

    fn texts(&mut self, space: Option<AddressSpace>, id: StackId) -> Vec<u32> {
        match space {
            Some(_) => vec![self.number(&format!("f{id}"))],
            None => Vec::new(),
        }
    }

    fn number(&mut self, text: &str) -> u32 {
        let known = self.texts.iter().position(|known| known == text);
        known.unwrap_or_else(|| {
            self.texts.push(text.to_owned());
            self.texts.len() - 1
        }) as u32
    }

    fn text(&self, number: u32) -> &str {
        &self.texts[number as usize]
    }
}

fn site(user: u64) -> BlockSite {
    BlockSite {
        kernel_stack: 1,
        user_stack: user,
        syscall: 0,
        file: FILE_NONE,
    }
}

/// A request that was blocked for so long in a stack, of which 5 ns have no stack.
fn add(collector: &mut Collector, naming: &mut Numbers, id: u64, stack: u64, blocked_ns: u64) {
    let ledger = Ledger {
        latency_ns: blocked_ns + 36,
        on_cpu_ns: 10,
        run_queue_ns: 20,
        preempted_ns: 1,
        unattributed_ns: 5,
        classes: vec![0, blocked_ns],
        ..Ledger::default()
    };
    let space = AddressSpace::default();
    let blocked = collector.blocked_in(naming, space, &site(stack), Some(1));
    let sampled = collector.sampled_in(naming, space, &site(stack + 1));
    let stacks = OwnStacks {
        blocked: [(blocked, blocked_ns)].into(),
        parks: Box::default(),
        samples: [(sampled, id % 3)].into(),
    };
    let label = format!("select {id}");
    let one = One {
        id,
        request: 0,
        pid: 1,
        tid: 2,
        comm: Comm::default(),
        label: label.as_bytes(),
        begin_ns: 1_000 + id * 300_000,
        ledger: &ledger,
        weight: 2,
        stacks: &stacks,
    };
    collector.request(&one, None, std::iter::empty(), naming);
}

#[test]
fn stacks_of_a_cell_add_up_to_its_ledger() {
    let mut naming = Numbers::default();
    let mut collector = Collector::new(1, 1_000, None);
    for id in 0..1_000 {
        add(&mut collector, &mut naming, id, 1 + id % 7, 1_000 + id * 13);
    }
    let page = collector.finish(300_000_000, |_| Holding::default(), &mut naming);
    assert!(page.cells.len() > 100);
    let (mut requests, mut samples) = (0, 0);
    for cell in &page.cells {
        let ledger = &cell.ledger;
        let stacks: u64 = cell.stacks.iter().map(|(_, ns)| ns).sum();
        assert_eq!(stacks, ledger.latency_ns - ledger.on_cpu_ns);
        let of_kind = |kind| {
            let of = cell.stacks.iter();
            let of = of.filter(|(stack, _)| page.stacks[*stack as usize].kind == kind);
            of.map(|(_, ns)| ns).sum::<u64>()
        };
        assert_eq!(of_kind(StackKind::RunQueue), ledger.run_queue_ns);
        assert_eq!(of_kind(StackKind::Preempted), ledger.preempted_ns);
        let statements: Vec<StatementSum> = cell.statements.iter().map(|(_, sum)| *sum).collect();
        assert_eq!(statements.len(), 1);
        assert_eq!(statements[0].latency_ns, ledger.latency_ns);
        for (stack, count) in &cell.samples {
            assert_eq!(page.stacks[*stack as usize].kind, StackKind::OnCpu);
            samples += count;
        }
        requests += cell.count;
    }
    // Each stands for two, and so do its samples already.
    assert_eq!(
        (requests, samples),
        (2_000, (0..1_000).map(|id| id % 3).sum())
    );
    let not_sampled = &page.stacks[page.not_sampled as usize];
    let name = &page.frames[not_sampled.frames[0] as usize];
    assert_eq!(
        (name.as_str(), not_sampled.kind),
        (NOT_SAMPLED, StackKind::OnCpu)
    );
    assert_eq!(page.statements[2], "select ?");
    assert_eq!(page.rows.map(|rows| rows.len()), Some(1_000));
}

#[test]
fn too_many_stacks_lose_their_names_and_no_time() {
    let mut naming = Numbers::default();
    let mut collector = Collector::new(1, 1_000, None);
    let mut all = 0;
    for id in 0..20_000 {
        // The names are looked up one by one: few texts, many stacks.
        let stack = collector.stacks.number(
            &mut naming,
            AddressSpace::default(),
            &site(1 + id % 50),
            StackKind::Blocked,
            Some(id as u32),
        );
        let sampled = collector.stacks.number(
            &mut naming,
            AddressSpace::default(),
            &site(1 + id % 50),
            StackKind::OnCpu,
            Some(id as u32),
        );
        let stacks = OwnStacks {
            blocked: [(stack, 100)].into(),
            parks: Box::default(),
            samples: [(sampled, 1)].into(),
        };
        let ledger = Ledger {
            latency_ns: 100,
            classes: vec![100],
            ..Ledger::default()
        };
        let one = One {
            id,
            request: 0,
            pid: 1,
            tid: 2,
            comm: Comm::default(),
            label: b"",
            begin_ns: 1_000,
            ledger: &ledger,
            weight: 1,
            stacks: &stacks,
        };
        collector.request(&one, None, std::iter::empty(), &mut naming);
        all += 100;
    }
    let page = collector.finish(300_000_000, |_| Holding::default(), &mut naming);
    assert!(page.merged.stacks > 3_000, "{:?}", page.merged);
    let sum: u64 = page
        .cells
        .iter()
        .flat_map(|cell| &cell.stacks)
        .map(|(_, ns)| ns)
        .sum();
    assert_eq!(sum, all);
    let samples = page.cells.iter().flat_map(|cell| &cell.samples);
    assert_eq!(samples.map(|(_, count)| count).sum::<u64>(), 20_000);
}

#[test]
fn rows_are_given_up_when_there_are_too_many() {
    let mut naming = Numbers::default();
    let mut collector = Collector::new(1, 1_000, None);
    collector.rows = Some(vec![PageRow::default(); MAX_ROWS]);
    add(&mut collector, &mut naming, 1, 1, 10);
    let page = collector.finish(300_000_000, |_| Holding::default(), &mut naming);
    assert_eq!(page.rows, None);
    assert_eq!(page.slowest.len(), 1);
}

#[test]
fn the_slowest_of_each_type_are_kept() {
    let mut slowest = Slowest::new(2, 100);
    let one = |id, request, latency_ns| SlowRequest {
        id,
        request,
        pid: 0,
        tid: 0,
        comm: Plain::default(),
        label: Plain::default(),
        statement: 0,
        begin_ns: 0,
        ledger: Ledger {
            latency_ns,
            ..Ledger::default()
        },
        causes: None,
        timeline: None,
    };
    for id in 0..500 {
        for request in 0..2 {
            let latency = (id * 7919) % 500;
            if slowest.takes(request, latency) {
                slowest.add(one(id, request, latency));
            }
        }
    }
    let kept = slowest.finish();
    let of = |request| kept.iter().filter(move |one| one.request == request);
    for request in 0..2 {
        let latencies: Vec<u64> = of(request).map(|one| one.ledger.latency_ns).collect();
        assert_eq!(latencies, (450..500).rev().collect::<Vec<u64>>());
    }
}
