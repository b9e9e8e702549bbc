//! The state machine against an oracle that adds up nanosecond by nanosecond, over arbitrary
//! orders of events.

mod sampling;

use proptest::prelude::*;

use super::*;
use crate::cookie::{Frame, Reentry};
use crate::limits::{MAX_LONGEST, MAX_SLOTS};
use crate::record::{
    BlockSite, RequestRecord, STACK_LOST, STACK_NONE, WakerRecord, reason, waker_context,
};

/// One event, a while after the one before.
#[derive(Clone, Debug)]
enum Event {
    Begin {
        request_type: u32,
        reentry: Reentry,
        sp: u64,
    },
    End {
        request_type: u32,
        frame: Frame,
        sp: u64,
    },
    Out {
        preempted: bool,
        prev_state: u32,
        stack: u64,
    },
    Waking,
    In,
}

/// Drives a thread as the kernel programs do, and keeps its own account beside it.
struct Driver {
    thread: Thread,
    now: u64,
    on_cpu: bool,
    flag: bool,
    oracle: Oracle,
    finished: Vec<(RequestRecord, Oracle)>,
    sums: (u64, u64, u64),
}

#[derive(Clone, Copy, Default, Debug)]
struct Oracle {
    on_cpu: u64,
    preempted: u64,
    blocked: u64,
    run_queue: u64,
    intervals: u32,
    out: Option<(u64, bool)>,
    wake: u64,
}

impl Driver {
    fn new() -> Self {
        Self {
            thread: Thread::ZERO,
            now: 1_000,
            on_cpu: true,
            flag: false,
            oracle: Oracle::default(),
            finished: Vec::new(),
            sums: (0, 0, 0),
        }
    }

    fn pass(&mut self, ns: u64) {
        self.now += ns;
        if self.flag && self.on_cpu {
            self.oracle.on_cpu += ns;
        }
    }

    fn finish(&mut self, why: u32) {
        self.thread.close(self.now, why);
        self.flag = false;
        self.finished
            .push((self.thread.request.record, self.oracle));
    }

    fn step(&mut self, event: &Event) {
        match *event {
            Event::Begin {
                request_type,
                reentry,
                sp,
            } if self.on_cpu => {
                let begin = Begin {
                    now: self.now,
                    request_type,
                    reentry,
                    sp,
                    return_address: 0,
                    weight: 1,
                };
                match self.thread.request.on_begin(&begin) {
                    BeginAction::Open => {}
                    BeginAction::CloseThenOpen => self.finish(reason::NO_END),
                    _ => return,
                }
                self.thread.open(&begin);
                self.oracle = Oracle {
                    wake: self.oracle.wake,
                    ..Oracle::default()
                };
                self.flag = true;
            }
            Event::End {
                request_type,
                frame,
                sp,
            } if self.on_cpu
                && self.thread.request.on_end(request_type, frame, sp) == EndAction::Close =>
            {
                self.finish(reason::COMPLETE);
            }
            Event::Out {
                preempted,
                prev_state,
                stack,
            } if self.on_cpu => {
                self.on_cpu = false;
                if self.flag {
                    let site = BlockSite {
                        kernel_stack: stack,
                        ..BlockSite::default()
                    };
                    self.thread
                        .state
                        .switch_out(self.now, preempted, prev_state, site);
                    self.oracle.out = Some((self.now, preempted || prev_state == 0));
                }
            }
            Event::Waking if self.flag => {
                self.thread.state.waking(self.now, &task(7, 8));
                self.oracle.wake = self.now;
            }
            Event::In if !self.on_cpu => {
                self.on_cpu = true;
                if !self.flag {
                    return;
                }
                let (closed, _) = self.thread.switch_in(self.now).expect("a block is open");
                let (out, is_preemption) = self.oracle.out.take().expect("a block is open");
                let total = self.now - out;
                self.oracle.intervals += 1;
                match closed.interval {
                    Interval::Preempted { preempted_ns } => {
                        assert!(is_preemption);
                        assert_eq!(preempted_ns, total);
                        self.oracle.preempted += total;
                        self.sums.0 += preempted_ns;
                    }
                    Interval::Block {
                        blocked_ns,
                        run_queue_ns,
                    } => {
                        assert!(!is_preemption);
                        assert_eq!(blocked_ns + run_queue_ns, total);
                        let woken = self.oracle.wake > out;
                        assert_eq!(blocked_ns, if woken { self.oracle.wake - out } else { 0 });
                        self.oracle.blocked += blocked_ns;
                        self.oracle.run_queue += run_queue_ns;
                        self.sums.1 += blocked_ns;
                        self.sums.2 += run_queue_ns;
                    }
                }
            }
            _ => {}
        }
    }
}

fn event() -> impl Strategy<Value = Event> {
    let sp = prop_oneof![
        Just(0x7000_u64),
        Just(0x6f00),
        Just(0x7100),
        Just(0xffff_0000)
    ];
    let reentry = prop_oneof![
        Just(Reentry::Nest),
        Just(Reentry::Ignore),
        Just(Reentry::Restart)
    ];
    let frame = prop_oneof![Just(Frame::Unrelated), Just(Frame::Same)];
    prop_oneof![
        2 => (0_u32..2, reentry, prop_oneof![Just(0), sp.clone()])
            .prop_map(|(request_type, reentry, sp)| Event::Begin { request_type, reentry, sp }),
        2 => (0_u32..2, frame, sp)
            .prop_map(|(request_type, frame, sp)| Event::End { request_type, frame, sp }),
        5 => (any::<bool>(), prop_oneof![Just(0_u32), Just(1), Just(2), Just(0x2001)], 0_u64..40)
            .prop_map(|(preempted, prev_state, stack)| Event::Out { preempted, prev_state, stack }),
        4 => Just(Event::Waking),
        5 => Just(Event::In),
    ]
}

fn check(record: &RequestRecord, oracle: &Oracle) {
    // Off-CPU time never exceeds the latency, so the remainder is really time on a CPU.
    assert!(record.off_cpu_ns() <= record.latency_ns());
    assert_eq!(record.on_cpu_ns(), oracle.on_cpu);
    assert_eq!(record.preempted_ns, oracle.preempted);
    assert_eq!(record.run_queue_ns, oracle.run_queue);
    assert_eq!(record.blocked_ns + record.unattributed_ns, oracle.blocked);
    assert_eq!(record.blocks + record.preemptions, oracle.intervals);
    let slots = &record.slots[..record.slots_used as usize];
    assert_eq!(
        slots.iter().map(|slot| slot.blocked_ns).sum::<u64>(),
        record.blocked_ns
    );
    for (index, slot) in slots.iter().enumerate() {
        assert_ne!(slot.site.kernel_stack, STACK_LOST);
        assert!(
            slots[..index].iter().all(|other| other.site != slot.site),
            "a slot twice"
        );
    }
    assert!(record.longest_used <= record.blocks);
    assert_eq!(record.longest_used, record.blocks.min(MAX_LONGEST as u32));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn the_ledger_closes_for_every_order_of_events(
        events in proptest::collection::vec((event(), 0_u64..1_000), 1..200)
    ) {
        let mut driver = Driver::new();
        for (event, wait) in &events {
            driver.pass(*wait);
            driver.step(event);
        }
        for (record, oracle) in &driver.finished {
            check(record, oracle);
        }
        // Nothing is counted twice: what all requests have, and the open one, is what was closed.
        let mut all: Vec<_> = driver.finished.iter().map(|(record, _)| *record).collect();
        if driver.thread.request.is_open() {
            all.push(driver.thread.request.record);
        }
        let sum = |part: fn(&RequestRecord) -> u64| all.iter().map(part).sum::<u64>();
        prop_assert_eq!(sum(|r| r.preempted_ns), driver.sums.0);
        prop_assert_eq!(sum(|r| r.blocked_ns + r.unattributed_ns), driver.sums.1);
        prop_assert_eq!(sum(|r| r.run_queue_ns), driver.sums.2);
    }
}

/// A thread that wakes another.
fn task(tid: u32, tgid: u32) -> WakerRecord {
    WakerRecord {
        tid,
        tgid,
        context: waker_context::TASK,
        ..WakerRecord::default()
    }
}

const CALLER: u64 = 0x5555_0000;

fn begin_at(sp: u64, reentry: Reentry) -> Begin {
    Begin {
        now: 100,
        request_type: 0,
        reentry,
        sp,
        return_address: CALLER,
        weight: 1,
    }
}

fn opened(sp: u64, reentry: Reentry) -> Thread {
    let mut thread = Thread::ZERO;
    let begin = begin_at(sp, reentry);
    assert_eq!(thread.request.on_begin(&begin), BeginAction::Open);
    thread.open(&begin);
    thread
}

#[test]
fn a_recursion_ends_with_its_outermost_return() {
    let mut thread = opened(0x7000, Reentry::Nest);
    assert_eq!(
        thread.request.on_begin(&begin_at(0x6f80, Reentry::Nest)),
        BeginAction::Nested
    );
    assert_eq!(
        thread.request.on_begin(&begin_at(0x6f00, Reentry::Nest)),
        BeginAction::Nested
    );
    assert_eq!(
        thread.request.on_end(0, Frame::Same, 0x6f00),
        EndAction::Inner
    );
    // The middle one is left by an exception: its end never comes.
    assert_eq!(
        thread.request.on_end(0, Frame::Same, 0x7000),
        EndAction::Close
    );
    assert_eq!(thread.request.record.max_depth, 3);
}

#[test]
fn without_a_common_frame_depth_decides() {
    let mut thread = opened(0, Reentry::Nest);
    assert_eq!(
        thread.request.on_begin(&begin_at(0, Reentry::Nest)),
        BeginAction::Nested
    );
    assert_eq!(
        thread.request.on_end(0, Frame::Unrelated, 0x6f00),
        EndAction::Inner
    );
    assert_eq!(
        thread.request.on_end(0, Frame::Unrelated, 0x6e00),
        EndAction::Close
    );
}

#[test]
fn a_begin_in_the_place_of_the_open_request_means_that_it_was_left() {
    let mut thread = opened(0x7000, Reentry::Nest);
    assert_eq!(
        thread.request.on_begin(&begin_at(0x7000, Reentry::Nest)),
        BeginAction::CloseThenOpen
    );
    assert_eq!(
        thread.request.on_begin(&begin_at(0x7040, Reentry::Nest)),
        BeginAction::CloseThenOpen
    );
    // Another stack proves nothing.
    assert_eq!(
        thread
            .request
            .on_begin(&begin_at(0x7fff_0000, Reentry::Nest)),
        BeginAction::Nested
    );
}

#[test]
fn reentry_is_as_the_profile_says() {
    let mut thread = opened(0, Reentry::Ignore);
    assert_eq!(
        thread.request.on_begin(&begin_at(0, Reentry::Ignore)),
        BeginAction::Ignored
    );
    assert_eq!(
        thread.request.on_end(0, Frame::Unrelated, 0),
        EndAction::Close
    );
    let mut thread = opened(0, Reentry::Restart);
    assert_eq!(
        thread.request.on_begin(&begin_at(0, Reentry::Restart)),
        BeginAction::CloseThenOpen
    );
    let other = Begin {
        request_type: 1,
        ..begin_at(0, Reentry::Restart)
    };
    assert_eq!(thread.request.on_begin(&other), BeginAction::OtherType);
    assert_eq!(
        thread.request.on_end(1, Frame::Unrelated, 0),
        EndAction::NoRequest
    );
}

#[test]
fn a_frame_is_gone_when_its_return_address_is() {
    let thread = opened(0x7000, Reentry::Nest);
    assert!(!thread.request.frame_is_gone(0x6f00, Some(CALLER)));
    assert!(!thread.request.frame_is_gone(0x6f00, None));
    // At its own return, and in a uretprobe behind it.
    assert!(!thread.request.frame_is_gone(0x7000, Some(CALLER)));
    assert!(!thread.request.frame_is_gone(0x7008, None));
    // The caller has called something else, or blocks by itself.
    assert!(thread.request.frame_is_gone(0x6f80, Some(CALLER + 0x40)));
    assert!(thread.request.frame_is_gone(0x7010, Some(CALLER)));
    // A signal stack.
    assert!(!thread.request.frame_is_gone(0x7fff_0000, Some(CALLER)));
}

#[test]
fn an_abandoned_request_ends_where_it_was_left() {
    let mut thread = opened(0x7000, Reentry::Nest);
    thread.request.abandon(500);
    assert!(!thread.request.is_open());
    assert_eq!(
        thread.request.on_end(0, Frame::Same, 0x7000),
        EndAction::NoRequest
    );
    assert_eq!(
        thread.request.on_begin(&begin_at(0x7000, Reentry::Nest)),
        BeginAction::CloseThenOpen
    );
    thread.close(900, reason::NO_END);
    assert_eq!(
        (thread.request.record.begin_ns, thread.request.record.end_ns),
        (100, 500)
    );
    assert_eq!(thread.request.status, status::NONE);
}

#[test]
fn the_preempt_flag_wins_over_the_thread() {
    assert!(is_preemption(true, 1));
    assert!(is_preemption(false, 0));
    assert!(!is_preemption(false, 1));
    // TASK_INTERRUPTIBLE | TASK_FREEZABLE, since 6.1.
    assert!(!is_preemption(false, 0x2001));
}

#[test]
fn a_waking_that_raced_with_the_switch_leaves_only_run_queue_time() {
    let mut thread = opened(0, Reentry::Nest);
    thread.state.waking(190, &task(5, 5));
    thread.state.switch_out(
        200,
        false,
        1,
        BlockSite {
            kernel_stack: 9,
            ..BlockSite::default()
        },
    );
    let (closed, _) = thread.switch_in(260).expect("open");
    assert_eq!(
        closed.interval,
        Interval::Block {
            blocked_ns: 0,
            run_queue_ns: 60
        }
    );
    assert_eq!(thread.request.record.longest[0].waker_tid, 0);
}

#[test]
fn the_longest_blocks_stay() {
    let mut thread = opened(0, Reentry::Nest);
    let mut now = 1_000;
    for length in [5, 50, 10, 40, 30, 20, 60] {
        let site = BlockSite {
            kernel_stack: STACK_NONE,
            ..BlockSite::default()
        };
        thread.state.switch_out(now, false, 1, site);
        now += length;
        thread.state.waking(now, &task(3, 3));
        thread.switch_in(now).expect("open");
        now += 1;
    }
    let mut kept: Vec<_> = thread
        .request
        .record
        .longest
        .iter()
        .map(|block| block.blocked_ns)
        .collect();
    kept.sort_unstable();
    assert_eq!(kept, [30, 40, 50, 60]);
    assert_eq!(thread.request.record.slots_used, 1);
    assert_eq!(thread.request.record.blocked_ns, 215);
}

#[test]
fn sites_beyond_the_slots_are_unattributed() {
    let mut thread = opened(0, Reentry::Nest);
    let mut lost = 0;
    for stack in 0..40_u64 {
        let now = 1_000 + stack * 10;
        let site = BlockSite {
            kernel_stack: stack + 2,
            ..BlockSite::default()
        };
        thread.state.switch_out(now, false, 1, site);
        thread.state.waking(now + 5, &task(3, 3));
        lost += thread.switch_in(now + 5).expect("open").1;
    }
    assert_eq!(thread.request.record.slots_used as usize, MAX_SLOTS);
    assert_eq!(thread.request.record.blocked_ns, 5 * MAX_SLOTS as u64);
    assert_eq!(
        thread.request.record.unattributed_ns,
        5 * (40 - MAX_SLOTS as u64)
    );
    assert_eq!(lost, thread.request.record.unattributed_ns);
}

#[test]
fn a_switch_in_that_was_not_seen_shows_at_the_next_thing_the_thread_does() {
    let site = BlockSite::default();
    let mut thread = opened(0, Reentry::Nest);
    assert!(!thread.state.is_off_cpu());
    thread.state.switch_out(1_000, true, 0, site);
    // Here it came back.
    assert!(thread.state.is_off_cpu());
    thread.state.switch_out(1_500, true, 0, site);
    thread.switch_in(1_600).expect("open");
    assert!(!thread.state.is_off_cpu());
    assert_eq!(thread.request.record.preempted_ns, 100);
    assert_eq!(thread.request.record.preemptions, 1);
}
