//! The stacks of a period have the time of its cells, whatever happens to ids, names, clocks and weights.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use reqtrace_recording::{
    Address, Away, BlockSite, ClockStep, Ending, Event, Header, Incomplete, KERNEL, Name, PARKED,
    Park, Slot, Stack,
};

use super::*;
use crate::aggregate::Options;
use crate::profile::Profiles;
use crate::report::{Report, WindowRow};

const PROFILE: &str = "[profile]\nname = \"two\"\n\n[[request]]\nname = \"work\"\nbegin = { function = \"work\" }\n\n\
    [[request]]\nname = \"job\"\nkey = { arg = 0 }\nbegin = { function = \"job\" }\npark = { function = \"park\" }\n\
    resume = { function = \"resume\" }\nend = { function = \"done\" }\n";
const SECOND_NS: u64 = 1_000_000_000;
const PERIOD_NS: u64 = 5 * SECOND_NS;
/// Unix time is not in step with the other clock.
const TO_UNIX_NS: i64 = 1_000_000_400_000_000;

/// What came out.
#[derive(Clone, Default)]
struct Taken(Rc<RefCell<Seen>>);

#[derive(Default)]
struct Seen {
    /// Off the CPU, latency, requests and incomplete ones of the cells, by period and type.
    cells: BTreeMap<(u64, String), [u64; 4]>,
    stacks: Vec<Arc<StacksRow>>,
}

impl Exporter for Taken {
    fn window(&mut self, row: &WindowRow<'_>) -> Result<()> {
        let begin_ns = row.start_unix_ns - row.start_unix_ns % PERIOD_NS;
        let (sum, mut seen) = (&row.cell.sum, self.0.borrow_mut());
        let all = seen.cells.entry((begin_ns, row.request.to_owned()));
        let latency_ns = sum.ledger.latency_ns;
        let more = [
            latency_ns - sum.ledger.on_cpu_ns,
            latency_ns,
            sum.weight,
            row.incomplete,
        ];
        let all = all.or_default();
        *all = std::array::from_fn(|at| all[at] + more[at]);
        Ok(())
    }

    fn stacks(&mut self, row: &Arc<StacksRow>) -> Result<()> {
        self.0.borrow_mut().stacks.push(Arc::clone(row));
        Ok(())
    }

    fn wants_windows(&self) -> bool {
        true
    }

    fn finish(&mut self, _report: &Report) -> Result<()> {
        Ok(())
    }
}

struct Model {
    aggregator: Aggregator,
    exporters: Vec<Box<dyn Exporter>>,
    taken: Taken,
    id: u64,
}

const SPACE: AddressSpace = AddressSpace {
    tgid: 7,
    exec_generation: 0,
};

impl Model {
    fn new() -> Self {
        let profiles = Profiles::parse([PROFILE], "two").unwrap();
        let options = Options {
            stacks_every_ns: Some(PERIOD_NS),
            ..Options::default()
        };
        let header = Header {
            monotonic_to_unix_ns: TO_UNIX_NS,
            ..Header::default()
        };
        let taken = Taken::default();
        Self {
            aggregator: Aggregator::new(&profiles, &header, options).unwrap(),
            exporters: vec![Box::new(taken.clone())],
            taken,
            id: 0,
        }
    }

    fn event(&mut self, event: &Event<'_>) {
        self.aggregator.event(event, &mut self.exporters).unwrap();
    }

    /// A stack of one function, by an id of its own.
    fn stack(&mut self, id: StackId, is_kernel: bool, name: &str) {
        let address = Address {
            object: if is_kernel { KERNEL } else { 2 },
            // The same function has the same address, whatever its stack is called.
            offset: name.bytes().fold(7, |sum, byte| sum * 31 + u64::from(byte)),
        };
        self.event(&Event::Name(&Name {
            address,
            is_return: false,
            frames: vec![name.to_owned()],
        }));
        self.event(&Event::Stack(&Stack {
            space: (!is_kernel).then_some(SPACE),
            id,
            stop: 0,
            addresses: vec![address],
        }));
    }

    /// A request that is blocked at these user stacks, on the run queue for 7 ns, and on a CPU for 5 ns.
    fn request(&mut self, end_ns: u64, weight: u32, slots: &[(StackId, StackId, u64)]) {
        let slots: Vec<Slot> = slots
            .iter()
            .map(|(user_stack, kernel_stack, blocked_ns)| Slot {
                site: BlockSite {
                    user_stack: *user_stack,
                    kernel_stack: *kernel_stack,
                    syscall: 0,
                    file: 0,
                },
                blocked_ns: *blocked_ns,
            })
            .collect();
        let blocked_ns = slots.iter().map(|slot| slot.blocked_ns).sum();
        self.of_type(Request {
            begin_ns: end_ns - blocked_ns - 12,
            end_ns,
            blocked_ns,
            run_queue_ns: 7,
            weight,
            slots: &slots,
            ..Request::default()
        });
    }

    fn of_type(&mut self, request: Request<'_>) {
        self.id += 1;
        self.event(&Event::Request(Request {
            id: self.id,
            space: SPACE,
            tid: 7,
            ..request
        }));
    }

    fn tick(&mut self, now_ns: u64) {
        self.event(&Event::Tick(now_ns));
    }

    fn take(&mut self, until_ns: u64) {
        let until_unix_ns = until_ns.saturating_add_signed(TO_UNIX_NS);
        self.aggregator
            .close_stacks(until_unix_ns, &mut self.exporters)
            .unwrap();
    }

    /// Ends the trace: each period of each type has the time of its cells.
    fn end(mut self) -> Vec<Arc<StacksRow>> {
        let ending = Ending {
            ended: true,
            ..Ending::default()
        };
        self.aggregator
            .finish(&ending, &mut self.exporters)
            .unwrap();
        let seen = self.taken.0.take();
        let mut by_stacks = BTreeMap::new();
        for row in &seen.stacks {
            let off_ns: u64 = row.stacks.iter().map(|line| line.ns).sum();
            assert_eq!(off_ns + row.on_cpu_ns, row.latency_ns);
            assert!(row.stacks.iter().all(|line| line.request == row.request));
            let more = [off_ns, row.latency_ns, row.requests, row.incomplete];
            let key = (row.start_unix_ns, row.request.clone());
            assert!(by_stacks.insert(key, more).is_none(), "once: {row:#?}");
        }
        let cells = seen.cells.into_iter().filter(|(_, of)| of[2] > 0);
        assert_eq!(by_stacks, cells.collect());
        seen.stacks
    }
}

#[test]
fn a_period_has_the_time_of_its_cells_and_is_taken_when_it_is_over() {
    let mut model = Model::new();
    model.stack(10, false, "commit");
    model.stack(20, true, "schedule");
    for second in 0..12 {
        model.request(second * SECOND_NS + SECOND_NS / 2, 4, &[(10, 20, 100)]);
    }
    model.tick(12 * SECOND_NS + SECOND_NS / 2);
    // Unix time is 0.4 s further: the period ends in the second that begins at 5 s, and has it not.
    model.take(4 * SECOND_NS);
    assert!(model.taken.0.borrow().stacks.is_empty());
    model.take(5 * SECOND_NS);
    let first = Arc::clone(&model.taken.0.borrow().stacks[0]);
    assert_eq!((first.requests, first.recorded), (20, 5));
    assert_eq!(
        (first.start_unix_ns, first.length_ns),
        (1_000_000 * SECOND_NS, PERIOD_NS)
    );
    let [blocked, queue] = &first.stacks[..] else {
        panic!("{first:#?}");
    };
    assert_eq!((blocked.ns, blocked.count), (2_000, 20));
    assert_eq!(
        [&blocked.user[..], &blocked.kernel[..]],
        [["commit".to_owned()], ["schedule".to_owned()]]
    );
    assert_eq!((queue.kind, queue.ns), (StackKind::RunQueue, 140));
    assert_eq!(model.end().len(), 3);
}

#[test]
fn ids_that_mean_something_else_later_keep_their_names() {
    let mut model = Model::new();
    model.stack(20, true, "schedule");
    for (second, name) in ["read", "write"].into_iter().enumerate() {
        model.stack(10, false, name);
        model.request(second as u64 * SECOND_NS + 1_000, 1, &[(10, 20, 30)]);
        model.event(&Event::StacksAnew);
        model.stack(20, true, "schedule");
    }
    let rows = model.end();
    let mut names: Vec<&str> = rows[0]
        .stacks
        .iter()
        .flat_map(|line| &line.user)
        .map(String::as_str)
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["read", "write"]);
}

#[test]
fn time_without_a_stack_says_why() {
    let mut model = Model::new();
    model.stack(10, false, "commit");
    model.stack(20, true, "schedule");
    let not_taken = (STACK_NONE, STACK_NONE, 50);
    let lost = (10, STACK_LOST, 30);
    model.request(SECOND_NS, 3, &[not_taken, lost, (10, 20, 20)]);
    let rows = model.end();
    let time = |frames: &[&str]| {
        let of = rows[0].stacks.iter().find(|line| {
            let all = line.user.iter().chain(&line.kernel);
            all.eq(frames)
        });
        of.map(|line| (line.ns, line.count))
    };
    assert_eq!(time(&[STACK_NOT_TAKEN]), Some((150, 3)));
    assert_eq!(time(&["commit", "[stack lost]"]), Some((90, 3)));
    assert_eq!(time(&["commit", "schedule"]), Some((60, 3)));
}

#[test]
fn parked_time_has_its_stack_and_incomplete_requests_have_none() {
    let mut model = Model::new();
    model.stack(30, false, "poll_read");
    let away = [Away {
        place: PARKED,
        count: 3,
        ns: 90,
    }];
    let parks = [Park {
        stack: 30,
        place: PARKED,
        count: 2,
        ns: 60,
    }];
    let request = Request {
        request_type: 1,
        begin_ns: SECOND_NS,
        end_ns: SECOND_NS + 100,
        weight: 2,
        away: &away,
        parks: &parks,
        ..Request::default()
    };
    model.of_type(request);
    model.of_type(Request {
        incomplete: Some(Incomplete::RunningAtStart),
        ..request
    });
    let rows = model.end();
    assert_eq!(
        (rows.len(), rows[0].incomplete, rows[0].on_cpu_ns),
        (1, 2, 20)
    );
    let lines: Vec<_> = rows[0]
        .stacks
        .iter()
        .map(|line| (line.user.len(), line.ns))
        .collect();
    assert_eq!(lines, [(2, 120), (1, 60)]);
    assert_eq!(rows[0].stacks[0].user[0], "poll_read");
}

#[test]
fn more_stacks_than_there_is_room_for_lose_frames_and_no_time() {
    let mut model = Model::new();
    let stacks = 3 * MAX_LINES as u64;
    for number in 0..stacks {
        model.stack(1_000 + number, false, &format!("f{number}"));
        let end_ns = SECOND_NS + number * SECOND_NS / stacks;
        model.request(end_ns, 1, &[(1_000 + number, STACK_NONE, 1 + number)]);
    }
    let rows = model.end();
    assert!(
        rows[0].stacks.len() <= MAX_LINES,
        "{}",
        rows[0].stacks.len()
    );
    assert!(
        rows[0]
            .stacks
            .iter()
            .any(|line| line.user == ["[other stacks]"])
    );
    let longest = rows[0].stacks.iter().find(|line| line.ns == stacks);
    assert_eq!(longest.unwrap().user, [format!("f{}", stacks - 1)]);
}

#[test]
fn a_clock_that_is_set_and_a_reader_that_never_takes_lose_nothing() {
    let mut model = Model::new();
    model.stack(10, false, "commit");
    model.stack(20, true, "schedule");
    for second in 0..60 {
        model.request(second * SECOND_NS + SECOND_NS / 2, 1, &[(10, 20, 100)]);
        model.tick(second * SECOND_NS + SECOND_NS / 2);
        let step = match second {
            13 => TO_UNIX_NS + 3_600_000_000_000,
            30 => TO_UNIX_NS - 3_600_000_000_000,
            _ => continue,
        };
        model.event(&Event::Clock(&ClockStep {
            at_ns: second * SECOND_NS + SECOND_NS / 3,
            to_unix_ns: step,
        }));
    }
    let ending = Ending::default();
    model
        .aggregator
        .finish(&ending, &mut model.exporters)
        .unwrap();
    let seen = model.taken.0.take();
    assert!(seen.stacks.len() <= MAX_PERIODS, "{}", seen.stacks.len());
    let off_ns = |row: &Arc<StacksRow>| row.stacks.iter().map(|line| line.ns).sum::<u64>();
    let all: u64 = seen.stacks.iter().map(off_ns).sum();
    assert_eq!(all, seen.cells.values().map(|of| of[0]).sum::<u64>());
}
