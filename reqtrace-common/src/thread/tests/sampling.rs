//! Sampling against a machine that records everything: the same events in, the same requests seen,
//! and of those that are recorded the same records.

use proptest::prelude::*;

use super::super::*;
use super::{Event, event, task};
use crate::record::{BlockSite, RequestRecord, reason};

const EVERY: u32 = 8;

/// What a marker was taken for.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    Begin(BeginAction),
    End(EndAction),
}

/// A thread as the kernel programs drive it.
struct Machine {
    thread: Thread,
    now: u64,
    on_cpu: bool,
    /// The scheduler programs look at it.
    recorded: bool,
    seen: Vec<Seen>,
    /// Closed requests; `None` for one that was not recorded.
    closed: Vec<Option<RequestRecord>>,
}

impl Machine {
    fn new() -> Self {
        Self {
            thread: Thread::ZERO,
            now: 1_000,
            on_cpu: true,
            recorded: false,
            seen: Vec::new(),
            closed: Vec::new(),
        }
    }

    fn close(&mut self, why: u32) {
        let sampled = self.thread.request.is_sampled();
        self.recorded = false;
        self.thread.close(self.now, why);
        self.closed
            .push(sampled.then_some(self.thread.request.record));
    }

    fn step(&mut self, event: &Event, weight: u32) {
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
                    weight,
                };
                let action = self.thread.request.on_begin(&begin);
                self.seen.push(Seen::Begin(action));
                match action {
                    BeginAction::Open => {}
                    BeginAction::CloseThenOpen => self.close(reason::NO_END),
                    _ => return,
                }
                if weight == 0 {
                    self.thread.open_unsampled(&begin);
                } else {
                    self.thread.open(&begin);
                    self.recorded = true;
                }
            }
            Event::End {
                request_type,
                frame,
                sp,
            } if self.on_cpu => {
                let action = self.thread.request.on_end(request_type, frame, sp);
                self.seen.push(Seen::End(action));
                if action == EndAction::Close {
                    self.close(reason::COMPLETE);
                }
            }
            Event::Out {
                preempted,
                prev_state,
                stack,
            } if self.on_cpu => {
                self.on_cpu = false;
                if self.recorded {
                    let site = BlockSite {
                        kernel_stack: stack,
                        ..BlockSite::default()
                    };
                    self.thread
                        .state
                        .switch_out(self.now, preempted, prev_state, site);
                }
            }
            Event::Waking if self.recorded => self.thread.state.waking(self.now, &task(7, 8)),
            Event::In if !self.on_cpu => {
                self.on_cpu = true;
                if self.recorded {
                    self.thread.switch_in(self.now);
                }
            }
            _ => {}
        }
    }
}

proptest! {
    #[test]
    fn sampling_changes_nothing_but_which_requests_are_recorded(
        events in prop::collection::vec((event(), 1_u64..1_000, any::<bool>()), 0..200)
    ) {
        let (mut all, mut some) = (Machine::new(), Machine::new());
        for (event, ns, drawn) in &events {
            all.now += ns;
            some.now += ns;
            all.step(event, 1);
            some.step(event, if *drawn { EVERY } else { 0 });
        }
        prop_assert_eq!(&all.seen, &some.seen);
        prop_assert_eq!(all.closed.len(), some.closed.len());
        for (exact, sampled) in all.closed.iter().zip(&some.closed) {
            let exact = exact.expect("everything is recorded");
            if let Some(sampled) = sampled {
                prop_assert_eq!(sampled.weight, EVERY);
                // What is behind the used entries is left over from requests before.
                let in_use = |record: &RequestRecord| {
                    let slots = record.slots[..record.slots_used as usize].to_vec();
                    let longest = record.longest[..record.longest_used as usize].to_vec();
                    let times = [
                        record.begin_ns, record.end_ns, record.run_queue_ns,
                        record.preempted_ns, record.blocked_ns, record.unattributed_ns,
                    ];
                    let counts = [
                        record.request_type, record.reason, record.blocks,
                        record.preemptions, record.max_depth,
                    ];
                    (times, counts, slots, longest)
                };
                prop_assert_eq!(in_use(&exact), in_use(sampled));
            }
        }
    }
}
