//! Random events, as no kernel would tell them: everybody wakes everybody at any time, intervals and records
//! are lost, requests are sampled.

use proptest::prelude::*;
use reqtrace_recording::WakerIs;

use super::oracle::{Events, Off, Record, check};
use super::*;

/// What comes next on a thread: how long after the thing before, and what.
#[derive(Clone, Copy, Debug)]
struct Step {
    after: u64,
    blocked: u64,
    queued: u64,
    /// Toggles whether the thread is in a request, instead of an interval.
    turns: bool,
    /// The number of the waker, of the thread's peers; others are interrupts, preemptions or nobody.
    waker: u32,
    /// What is known of a waker in no request.
    says: u64,
    lost: bool,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (
        (0_u64..30, 0_u64..60, 0_u64..20),
        prop::bool::weighted(0.3),
        0_u32..9,
        0_u64..400,
        prop::bool::weighted(0.08),
    );
    let step = step.prop_map(
        |((after, blocked, queued), turns, waker, says, lost)| Step {
            after,
            blocked,
            queued,
            turns,
            waker,
            says,
            lost,
        },
    );
    prop::collection::vec(step, 1..16)
}

/// The events of threads 1, 2, …
fn events(threads: &[Vec<Step>], sampled: bool) -> Events {
    let mut events = Events::default();
    for (tid, steps) in (1..).zip(threads) {
        requests(&mut events, tid, steps);
    }
    if sampled && let Some(record) = events.records.first_mut() {
        record.weight = 4;
    }
    for (tid, steps) in (1..).zip(threads) {
        intervals(&mut events, tid, steps, threads.len() as u32);
    }
    events
}

fn requests(events: &mut Events, tid: u32, steps: &[Step]) {
    let (mut now, mut begun) = (1, None);
    for (number, step) in steps.iter().enumerate() {
        now += step.after + 1;
        if !step.turns {
            now += step.blocked + step.queued + 1;
            continue;
        }
        begun = match begun {
            None => Some(now),
            Some(begin_ns) => {
                events.records.push(Record {
                    tid,
                    begin_ns,
                    end_ns: now,
                    ran_at_start: number % 11 == 10,
                    lost: step.lost,
                    weight: 1,
                });
                None
            }
        };
    }
}

fn intervals(events: &mut Events, tid: u32, steps: &[Step], threads: u32) {
    let (mut now, mut request) = (1, None);
    for step in steps {
        now += step.after + 1;
        if step.turns {
            request = match request {
                None => Some(now),
                Some(_) => None,
            };
            continue;
        }
        let out = now;
        let wake = out + step.blocked;
        now = wake + step.queued + 1;
        let by = match step.waker {
            0 => None,
            waker if waker <= threads => Some(By::Thread(
                thread(waker),
                is(&events.records, waker, wake, step.says),
            )),
            6 => Some(By::Interrupt(Cause::Disk)),
            7 => Some(By::Interrupt(Cause::Timer)),
            _ => Some(By::Nobody(Reason::NoWakeup)),
        };
        events.intervals.push(Off {
            tid,
            request,
            times: [out, if by.is_none() { out } else { wake }, now],
            by,
            lost: step.lost,
        });
    }
}

/// What a thread was doing.
fn is(records: &[Record], tid: u32, at: u64, says: u64) -> WakerIs {
    let current = records
        .iter()
        .find(|record| record.tid == tid && (record.begin_ns..record.end_ns).contains(&at));
    match (current, says) {
        (Some(record), _) if !record.ran_at_start => WakerIs::InRequest(began(record.begin_ns)),
        (Some(_), _) | (None, 0..8) => WakerIs::Unknown,
        (None, 8..12) => WakerIs::NotRecorded,
        (None, 12..120) => WakerIs::BetweenRequests,
        (None, since) => WakerIs::Helper(since),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn the_split_is_what_the_oracle_says(
        threads in prop::collection::vec(steps(), 1..6),
        sampled in prop::bool::weighted(0.1),
    ) {
        check(&events(&threads, sampled));
    }
}
