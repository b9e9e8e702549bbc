//! Chains, slow requests, futexes and intervals, as they are shown.

use super::*;
use crate::report::blame::What;
use crate::report::page::Did;
use crate::report::{IntervalRow, IntervalWaker, StackKind};

/// Thread 1 waits in its request from 200 to 400 for thread 2, which waits for the disk from 250 to 350 in
/// one of its own.
fn behind_a_disk() -> Trace {
    let mut trace = Trace::new(true, Options::default(), false);
    wait_behind_a_disk(&mut trace);
    trace
}

fn wait_behind_a_disk(trace: &mut Trace) {
    let (victim, culprit) = (began(100, 0), began(150, 1));
    trace.blocked(2, Some(culprit), [250, 350, 360], interrupt(DISK));
    let waker = task(2, WakerIs::InRequest(culprit));
    trace.woken_from = Some(WokenFrom {
        space: SPACE,
        user_stack: UNLOCK,
    });
    trace.on_futex(
        1,
        Some(victim),
        [200, 400, 410],
        waker,
        0,
        (0x7000, Holder::Thread(2)),
    );
    trace.request(2, culprit, 450, "login of b", 100);
    trace.request(1, victim, 500, "select 1", 200);
}

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

#[test]
fn a_page_has_the_stack_from_which_a_wait_was_ended() {
    let mut trace = Trace::new(true, Options::default(), false);
    trace.outputs.push(Box::new(TakesPage));
    wait_behind_a_disk(&mut trace);
    let page = trace.finish().page.unwrap();
    let slow = page.slowest.iter().find(|slow| slow.id == 2).unwrap();
    let timeline = slow.timeline.as_ref().unwrap();
    let blocks = timeline.segments.iter();
    let blocks: Vec<_> = blocks
        .filter(|segment| segment.did == Did::Blocked)
        .map(|segment| {
            (
                segment.lane,
                segment.from_ns,
                segment.ns,
                segment.woken_from,
            )
        })
        .collect();
    // The disk is no thread: the other one's own wait has no such stack.
    let [(0, 100, 200, Some(from)), (1, 150, 100, None)] = blocks[..] else {
        panic!("{blocks:?}");
    };
    let stack = &page.stacks[from as usize];
    let names = stack.frames.iter().map(|at| &*page.frames[*at as usize]);
    assert_eq!(names.collect::<Vec<_>>(), ["login", "pthread_mutex_unlock"]);
    assert_eq!(stack.kind, StackKind::OnCpu);
}

#[test]
fn a_chain_has_the_stacks_of_all_who_waited_and_adds_up() {
    let report = behind_a_disk().finish();
    let blame = report.blame.unwrap();
    let chains = blame.chains.iter();
    let mut lines: Vec<(String, u64)> = chains
        .map(|chain| (chain.frames.join(";"), chain.ns))
        .collect();
    let lost = "[stack lost]";
    let stack = format!("{lost};do_futex;futex_wait");
    let reversed = format!("futex_wait;do_futex;{lost}");
    // From there the wait was ended.
    let unlock = "pthread_mutex_unlock;login";
    let mut wanted = [
        (format!("query;{stack};--;[login];{unlock};[on CPU]"), 90),
        (format!("query;{stack};--;[login];{unlock};[run queue]"), 10),
        (format!("query;{stack};--;[login];{reversed};[disk]"), 100),
        (format!("login;{stack};[disk]"), 100),
    ];
    // Chains of one length come in any order of their names.
    wanted.sort();
    lines.sort();
    assert_eq!(lines, wanted);
    assert_eq!(blame.merged_chains, 0);
}

#[test]
fn the_slowest_request_has_the_tree_of_who_held_it_up() {
    let report = behind_a_disk().finish();
    let blame = report.blame.unwrap();
    let [slow] = &blame.types[0].slowest[..] else {
        panic!("{:?}", blame.types[0].slowest);
    };
    assert_eq!((slow.id, slow.latency_ns, slow.blocked_ns), (2, 400, 200));
    let [block] = &slow.parts[..] else {
        panic!("{:?}", slow.parts);
    };
    assert_eq!((block.ns, block.request_id), (200, 0));
    let inner: Vec<_> = block
        .parts
        .iter()
        .map(|part| (part.ns, part.tid, part.request_id, &*part.whose.label))
        .collect();
    let login = "login of b";
    assert_eq!(
        inner,
        [(100, 2, 1, login), (90, 2, 1, login), (10, 2, 1, login)]
    );
    assert!(matches!(block.parts[0].what, What::Waited { .. }));
    assert!(block.parts[0].woken_from.is_empty());
    assert_eq!(block.parts[1].woken_from, ["pthread_mutex_unlock", "login"]);
    let [disk] = &block.parts[0].parts[..] else {
        panic!("{block:?}");
    };
    assert_eq!(
        (&disk.what, disk.ns),
        (&What::Ended(Cause::Disk, None), 100)
    );
}

#[test]
fn who_is_between_requests_is_shown_with_the_last_one() {
    let mut trace = Trace::new(true, Options::default(), false);
    let victim = began(100, 0);
    trace.request(2, began(50, 1), 90, "begin; update", 0);
    trace.blocked(
        1,
        Some(victim),
        [200, 400, 410],
        task(2, WakerIs::InRequest(began(390, 1))),
    );
    trace.request(2, began(390, 1), 450, "commit", 0);
    trace.request(1, victim, 500, "select 1", 200);
    let blame = trace.finish().blame.unwrap();
    let [block] = &blame.types[0].slowest[0].parts[..] else {
        panic!("{blame:?}");
    };
    let idle = &block.parts[0];
    assert_eq!(
        (&idle.what, idle.ns),
        (&What::Ended(Cause::BetweenRequests, None), 190)
    );
    let after = idle.after.as_ref().unwrap();
    assert_eq!((after.request_id, &*after.label), (1, "begin; update"));
    // What ran then is told by itself.
    assert_eq!((block.parts[1].request_id, block.parts[1].ns), (2, 10));
    assert!(block.parts[1].after.is_none());
}

#[test]
fn blocks_on_one_futex_that_follow_each_other_are_one_wait() {
    const SOON: u64 = 40_000;
    const LATE: u64 = 60_000;
    let mut trace = Trace::new(true, Options::default(), false);
    let victim = began(100, 0);
    let holder = began(50, 1);
    let mut now = 1_000;
    for (sequence, (pause, futex)) in [(0, 1), (SOON, 1), (LATE, 1), (10, 2)]
        .into_iter()
        .enumerate()
    {
        let out_ns = now + pause;
        now = out_ns + 200;
        let waker = task(2, WakerIs::InRequest(holder));
        trace.on_futex(
            1,
            Some(victim),
            [out_ns, now, now],
            waker,
            sequence as u32,
            (
                futex,
                if futex == 1 {
                    Holder::Thread(2)
                } else {
                    Holder::NotTold
                },
            ),
        );
    }
    trace.request(2, holder, now + 50, "", 0);
    trace.request(1, victim, now + 100, "", 800);
    let blame = trace.finish().blame.unwrap();
    let locks = &blame.types[0].locks;
    let [first, second] = &locks[..] else {
        panic!("{locks:?}");
    };
    assert_eq!((first.address, first.waits, first.again), (1, 2, 1));
    assert_eq!((first.ns, first.longest_ns), (600, 400));
    assert_eq!(first.held_by.len(), 1);
    assert_eq!(
        (first.held_by[0].0.request.as_str(), first.held_by[0].1),
        ("login", 600)
    );
    assert_eq!((second.address, second.waits, second.again), (2, 1, 0));
    assert!(second.held_by.is_empty());
}

/// Intervals as they are written: id, kind of waker.
type Intervals = Rc<RefCell<Vec<(u64, u64, Option<IntervalWaker>, u32, u64)>>>;

struct Takes(Intervals);

impl Exporter for Takes {
    fn interval(&mut self, row: &IntervalRow<'_>) -> Result<()> {
        self.0.borrow_mut().push((
            row.request_id,
            row.off_ns + row.run_queue_ns,
            row.waker,
            row.holder_tid,
            row.holder_request_id,
        ));
        Ok(())
    }

    fn wants_intervals(&self) -> bool {
        true
    }

    fn finish(&mut self, _report: &Report) -> Result<()> {
        Ok(())
    }
}

#[test]
fn intervals_come_with_their_request_their_waker_and_the_holder() {
    let seen = Intervals::default();
    let mut trace = behind_a_disk();
    trace.outputs.push(Box::new(Takes(Rc::clone(&seen))));
    trace.finish();
    let by = IntervalWaker::Thread {
        pid: 1,
        tid: 2,
        in_request: true,
        request_id: 1,
    };
    assert_eq!(
        *seen.borrow(),
        [
            (1, 110, Some(IntervalWaker::Interrupt(Cause::Disk)), 0, 0),
            (2, 210, Some(by), 2, 1),
        ]
    );
}
