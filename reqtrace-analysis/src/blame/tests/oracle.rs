//! The slow oracle: for one nanosecond of a block it looks through all events, and follows the definition.

use std::collections::BTreeMap;
use std::ops::Range;

use reqtrace_recording::WakerIs;

use super::*;

/// An interval, as it was recorded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Off {
    pub(super) tid: u32,
    pub(super) request: Option<u64>,
    pub(super) times: [u64; 3],
    pub(super) by: Option<By>,
    /// It was lost.
    pub(super) lost: bool,
}

/// A request's record, as it was recorded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    pub(super) tid: u32,
    pub(super) begin_ns: u64,
    pub(super) end_ns: u64,
    pub(super) ran_at_start: bool,
    pub(super) lost: bool,
    pub(super) weight: u32,
}

/// All that was recorded of threads. Intervals of a thread are in order.
#[derive(Debug, Default)]
pub(super) struct Events {
    pub(super) intervals: Vec<Off>,
    pub(super) records: Vec<Record>,
}

impl Events {
    /// Tells them.
    pub(super) fn recorded(&self) -> Recorded {
        let mut recorded = Recorded::new();
        for off in &self.intervals {
            if off.lost {
                recorded.lose(off.tid);
            } else {
                recorded.interval(off.tid, off.request, off.times, off.by);
            }
        }
        for record in self.records.iter().filter(|record| !record.lost) {
            let incomplete = record.ran_at_start.then_some(Incomplete::RunningAtStart);
            recorded.record(
                record.tid,
                record.begin_ns,
                record.end_ns,
                incomplete,
                record.weight,
            );
        }
        recorded
    }

    fn arrived(&self) -> impl Iterator<Item = &Off> {
        self.intervals.iter().filter(|off| !off.lost)
    }

    fn of_thread(&self, tid: u32) -> impl Iterator<Item = &Off> {
        self.arrived().filter(move |off| off.tid == tid)
    }

    /// Requests of a thread: begin, until when it ran, what is known of it.
    fn requests(&self, tid: u32) -> Vec<(u64, u64, Option<&Record>)> {
        let mut requests: BTreeMap<u64, (u64, Option<&Record>)> = BTreeMap::new();
        let mut ran = |begin, until: u64| {
            let entry = requests.entry(begin).or_insert((begin, None));
            entry.0 = until.max(entry.0);
        };
        for off in self.of_thread(tid) {
            if let Some(begin) = off.request {
                ran(begin, off.times[2]);
            }
        }
        for off in self.arrived() {
            if let Some(By::Thread(waker, WakerIs::InRequest(of))) = off.by
                && waker.tid == tid
            {
                ran(of.begin_ns, off.times[1]);
            }
        }
        for record in self.records.iter().filter(|r| r.tid == tid && !r.lost) {
            let entry = requests.entry(record.begin_ns).or_default();
            *entry = (record.end_ns.max(entry.0), Some(record));
        }
        let known = requests.into_iter();
        known
            .map(|(begin, (until, record))| (begin, until, record))
            .collect()
    }

    /// Blame of a request, nanosecond for nanosecond.
    pub(super) fn blame(&self, tid: u32, begin_ns: u64) -> BTreeMap<Outcome, u64> {
        let mut sums = BTreeMap::new();
        let victim = (tid, begin_ns);
        for off in self
            .of_thread(tid)
            .filter(|off| off.request == Some(begin_ns))
        {
            let Some(by) = off.by else { continue };
            for at in off.times[0]..off.times[1] {
                let time = at..off.times[1];
                let outcome = self.ended(victim, by, time, Culprit::OwnInterrupt, 0);
                *sums.entry(outcome).or_default() += 1;
            }
        }
        sums
    }

    /// The first nanosecond of a time at whose end somebody woke.
    fn ended(
        &self,
        victim: (u32, u64),
        by: By,
        time: Range<u64>,
        waits: Culprit,
        depth: u8,
    ) -> Outcome {
        match by {
            By::Nobody(reason) => unknown(reason, depth),
            By::Interrupt(cause) => outcome(cause, waits, depth),
            By::Thread(..) if depth == MAX_DEPTH => unknown(Reason::TooDeep, depth),
            By::Thread(_, WakerIs::Unknown) => unknown(Reason::WakerNotKnown, depth + 1),
            By::Thread(_, WakerIs::NotRecorded) => unknown(Reason::NotRecorded, depth + 1),
            By::Thread(thread, is) => self.did(victim, thread.tid, is, time, depth + 1),
        }
    }

    /// What a thread did in the first nanosecond of a time at whose end it woke somebody.
    fn did(
        &self,
        victim: (u32, u64),
        tid: u32,
        is: WakerIs,
        time: Range<u64>,
        depth: u8,
    ) -> Outcome {
        let at = time.start;
        let in_request = |begin| {
            if (tid, begin) == victim {
                Culprit::Itself
            } else {
                request_of(tid, begin)
            }
        };
        let inside = |off: &&Off| (off.times[0]..off.times[2]).contains(&at);
        if let Some(off) = self.of_thread(tid).find(inside) {
            let whose = off.request.map_or(Culprit::Thread(thread(tid)), in_request);
            return match off.by {
                None => outcome(Cause::Preempted, whose, depth),
                Some(_) if at >= off.times[1] => outcome(Cause::RunQueue, whose, depth),
                Some(by) => {
                    let by = self.waits_longer(off, &time).unwrap_or(by);
                    let time = at..time.end.min(off.times[1]);
                    self.ended(victim, by, time, whose, depth)
                }
            };
        }
        let lost = self.is_in_gap(tid, at);
        let requests = self.requests(tid);
        let current = requests
            .iter()
            .find(|(begin, until, _)| (*begin..*until).contains(&at));
        if let Some((begin, _, record)) = current {
            return if record.is_some_and(|record| record.ran_at_start) {
                unknown(Reason::NotRecorded, depth)
            } else if lost {
                unknown(Reason::Lost, depth)
            } else {
                outcome(Cause::OnCpu, in_request(*begin), depth)
            };
        }
        let helps_since = |off: &Off| match off.by {
            Some(By::Thread(waker, WakerIs::Helper(since))) if waker.tid == tid => Some(since),
            _ => None,
        };
        let before_all = requests.first().is_some_and(|(begin, ..)| at < *begin);
        let since = match is {
            WakerIs::Helper(since) => Some(since),
            _ if before_all => self.arrived().filter_map(helps_since).last(),
            _ => None,
        };
        let before = requests.iter().rev().find(|(_, until, _)| *until <= at);
        let sampled = self
            .records
            .iter()
            .any(|record| !record.lost && record.weight > 1)
            || self
                .arrived()
                .any(|off| matches!(off.by, Some(By::Thread(_, WakerIs::NotRecorded))));
        let whose = Culprit::Thread(thread(tid));
        match since {
            Some(since) if at < since => unknown(Reason::NotYetWatched, depth),
            Some(_) if lost => unknown(Reason::Lost, depth),
            Some(_) => outcome(Cause::OnCpu, whose, depth),
            None if before.is_some_and(|(.., record)| record.is_none()) => {
                unknown(Reason::Lost, depth)
            }
            None if sampled => unknown(Reason::NotRecorded, depth),
            None => outcome(Cause::BetweenRequests, whose, depth),
        }
    }

    /// Who ended the wait after this one in which the thread, in no request, would have been otherwise: for what
    /// another one had already, in a request, until a device or a timer let it go on.
    fn waits_longer(&self, slept: &Off, time: &Range<u64>) -> Option<By> {
        let after = |off: &&Off| off.times[0] >= slept.times[2] && slept.request.is_none();
        let mut waits = 0;
        for off in self.of_thread(slept.tid).filter(after) {
            if off.times[0] >= time.end || self.is_in_gap(off.tid, off.times[0]) || waits == 8 {
                return None;
            }
            waits += u32::from(off.by.is_some());
            let Some(By::Thread(other, WakerIs::InRequest(_))) = off.by else {
                continue;
            };
            let had = self
                .of_thread(other.tid)
                .find(|had| had.times[0] <= off.times[0] && off.times[0] < had.times[1]);
            let Some(had) = had.filter(|had| had.request.is_some() && off.request.is_none()) else {
                continue;
            };
            let alone = [Cause::Disk, Cause::Timer].map(|cause| Some(By::Interrupt(cause)));
            let in_time = had.times[0] <= slept.times[1] && had.times[1] <= off.times[1];
            if alone.contains(&had.by) && in_time {
                // Before the other one had it, the thread slept.
                return off.by.filter(|_| time.start >= had.times[0]);
            }
        }
        None
    }

    /// Whether intervals were lost between the ones that came before and after this time.
    fn is_in_gap(&self, tid: u32, at: u64) -> bool {
        let mut lost = false;
        for off in self.intervals.iter().filter(|off| off.tid == tid) {
            if off.lost {
                lost = true;
            } else if off.times[2] <= at {
                lost = false;
            } else {
                return lost;
            }
        }
        false
    }
}

/// Whether the split of each request of these events is what the oracle says.
pub(super) fn check(events: &Events) {
    let recorded = events.recorded();
    let tids: std::collections::BTreeSet<u32> =
        events.intervals.iter().map(|off| off.tid).collect();
    for tid in tids {
        for (begin_ns, until_ns, _) in events.requests(tid) {
            let blame = recorded.blame(tid, begin_ns, until_ns);
            assert_eq!(
                blame,
                events.blame(tid, begin_ns),
                "{tid}: {begin_ns} of {events:#?}"
            );
            let of = |off: &&Off| off.request == Some(begin_ns) && off.by.is_some();
            let blocked = events.of_thread(tid).filter(of);
            let blocked: u64 = blocked.map(|off| off.times[1] - off.times[0]).sum();
            assert_eq!(blame.values().sum::<u64>(), blocked);
        }
    }
}
