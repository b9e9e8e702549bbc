//! Random worlds: threads that run, wait and wake each other, nanosecond for nanosecond, on CPUs that
//! others take from them. The truth is what each did in each nanosecond; the events are what the kernel
//! programs tell of it.

use std::ops::Range;

use proptest::prelude::*;
use reqtrace_recording::WakerIs;

use super::oracle::{Events, Off, Record, check};
use super::*;

/// What a thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    Runs,
    Preempted,
    /// Waits since then.
    Blocked(u64),
    /// Woken then, at that place of [`Thread::blocks`].
    Queued(usize),
}

/// What a thread did in one nanosecond.
#[derive(Clone, Copy, Debug)]
struct Did {
    does: Does,
    request: Option<u64>,
    /// It has begun a request, now or before.
    served: bool,
    /// Intervals of it are recorded, or nothing needs to be.
    watched: bool,
}

#[derive(Debug)]
struct Thread {
    does: Does,
    out_ns: u64,
    request: Option<u64>,
    served: bool,
    serves: bool,
    since: Option<u64>,
    did: Vec<Did>,
    /// Since when, until when, ended by whom: all blocks.
    blocks: Vec<(u64, u64, By)>,
}

/// A repeatable sequence of numbers.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % most
    }

    /// One time of so many.
    fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }
}

/// When everything comes to its end.
const END_NS: u64 = 500;

struct World {
    threads: Vec<Thread>,
    events: Events,
    dice: Dice,
}

impl World {
    fn of(seed: u64, threads: usize) -> Self {
        let thread = |number: usize| Thread {
            does: Does::Runs,
            out_ns: 0,
            request: None,
            served: false,
            serves: number % 3 != 2,
            since: None,
            did: Vec::new(),
            blocks: Vec::new(),
        };
        let mut world = Self {
            threads: (0..threads).map(thread).collect(),
            events: Events::default(),
            dice: Dice(seed),
        };
        let mut now = 0;
        while now < END_NS || world.is_busy() {
            now += 1;
            for number in 0..threads {
                world.step(number, now);
            }
            for thread in &mut world.threads {
                thread.did.push(Did {
                    does: thread.does,
                    request: thread.request,
                    served: thread.served,
                    watched: thread.served || thread.since.is_some(),
                });
            }
        }
        world
    }

    fn is_busy(&self) -> bool {
        let mut threads = self.threads.iter();
        threads.any(|thread| thread.does != Does::Runs || thread.request.is_some())
    }

    fn step(&mut self, number: usize, now: u64) {
        let ends = now >= END_NS;
        match self.threads[number].does {
            Does::Runs if !ends && self.dice.once_in(30) => {
                self.leave(number, now, Does::Preempted);
            }
            Does::Runs if !ends && self.dice.once_in(9) => {
                self.hand_over(number, now);
                self.leave(number, now, Does::Blocked(now));
            }
            Does::Runs if ends || self.dice.once_in(25) => self.turn(number, now, ends),
            Does::Preempted if self.dice.once_in(6) => self.arrive(number, now, None),
            Does::Blocked(_) if self.dice.once_in(40) => self.wake(number, now, None),
            Does::Queued(block) if self.dice.once_in(5) => self.arrive(number, now, Some(block)),
            _ => {}
        }
    }

    /// A request begins or ends.
    fn turn(&mut self, number: usize, now: u64, ends: bool) {
        let thread = &mut self.threads[number];
        if let Some(begin_ns) = thread.request.take() {
            self.events.records.push(Record {
                tid: number as u32 + 1,
                begin_ns,
                end_ns: now,
                ran_at_start: false,
                lost: false,
                weight: 1,
            });
        } else if thread.serves && !ends {
            thread.request = Some(now);
            thread.served = true;
        }
    }

    fn leave(&mut self, number: usize, now: u64, does: Does) {
        let thread = &mut self.threads[number];
        (thread.does, thread.out_ns) = (does, now);
    }

    /// Mostly a thread wakes another one before it waits again.
    fn hand_over(&mut self, number: usize, now: u64) {
        let other = self.dice.below(self.threads.len() as u64) as usize;
        if matches!(self.threads[other].does, Does::Blocked(_)) {
            self.wake(other, now, Some(number));
        }
    }

    fn wake(&mut self, number: usize, now: u64, by: Option<usize>) {
        let by = self.waker(number, now, by);
        let thread = &mut self.threads[number];
        thread.does = Does::Queued(thread.blocks.len());
        thread.blocks.push((thread.out_ns, now, by));
    }

    /// Whoever ends a wait now: a thread that runs, an interrupt, or somebody unseen.
    fn waker(&mut self, woken: usize, now: u64, by: Option<usize>) -> By {
        let any = self.dice.below(self.threads.len() as u64 + 2) as usize;
        let one = by.unwrap_or(any);
        if let Some(thread) = self
            .threads
            .get(one)
            .filter(|thread| thread.does == Does::Runs)
        {
            let is = if let Some(begin_ns) = thread.request {
                WakerIs::InRequest(began(begin_ns))
            } else if thread.served {
                WakerIs::BetweenRequests
            } else if self.is_recorded(woken) {
                let since = &mut self.threads[one].since;
                WakerIs::Helper(*since.get_or_insert(now))
            } else {
                WakerIs::Unknown
            };
            return By::Thread(super::thread(one as u32 + 1), is);
        }
        match self.dice.below(5) {
            0 => By::Nobody(Reason::NoWakeup),
            1 => By::Interrupt(Cause::Network),
            2 => By::Interrupt(Cause::Timer),
            _ => By::Interrupt(Cause::Disk),
        }
    }

    /// Whether the open interval of a thread will be recorded.
    fn is_recorded(&self, number: usize) -> bool {
        let thread = &self.threads[number];
        let helps = |since| since <= thread.out_ns;
        thread.request.is_some() || !thread.served && thread.since.is_some_and(helps)
    }

    fn arrive(&mut self, number: usize, now: u64, block: Option<usize>) {
        let recorded = self.is_recorded(number);
        let thread = &mut self.threads[number];
        thread.does = Does::Runs;
        let block = block.map(|block| thread.blocks[block]);
        let off = Off {
            tid: number as u32 + 1,
            request: thread.request,
            times: [
                thread.out_ns,
                block.map_or(thread.out_ns, |(_, wake, _)| wake),
                now,
            ],
            by: block.map(|(.., by)| by),
            lost: false,
        };
        if recorded {
            self.events.intervals.push(off);
        }
    }

    /// What the first nanosecond of a wait ended in, from what everybody did.
    fn truth(
        &self,
        victim: (u32, u64),
        by: By,
        time: Range<u64>,
        waits: Culprit,
        depth: u8,
    ) -> Outcome {
        let at = time.start;
        let (waker, is) = match by {
            By::Nobody(reason) => return unknown(reason, depth),
            By::Interrupt(cause) => return outcome(cause, waits, depth),
            By::Thread(..) if depth == 8 => return unknown(Reason::TooDeep, depth),
            By::Thread(waker, is) => (waker, is),
        };
        let depth = depth + 1;
        let thread = &self.threads[waker.tid as usize - 1];
        let did = thread.did[at as usize - 1];
        let whose = match did.request {
            Some(begin_ns) if (waker.tid, begin_ns) == victim => Culprit::Itself,
            Some(begin_ns) => request_of(waker.tid, begin_ns),
            None => Culprit::Thread(waker),
        };
        if is == WakerIs::Unknown {
            return unknown(Reason::WakerNotKnown, depth);
        }
        let serves = did.served || (thread.served && thread.since.is_none());
        if did.request.is_none() && serves {
            return outcome(Cause::BetweenRequests, whose, depth);
        }
        if !did.watched {
            return unknown(Reason::NotYetWatched, depth);
        }
        match did.does {
            Does::Runs => outcome(Cause::OnCpu, whose, depth),
            Does::Preempted => outcome(Cause::Preempted, whose, depth),
            Does::Queued(_) => outcome(Cause::RunQueue, whose, depth),
            Does::Blocked(since) => {
                let slept = thread.blocks.iter().position(|(out, ..)| *out == since);
                let mut block = thread.blocks[slept.unwrap()];
                let until = time.end.min(block.1);
                if did.request.is_none() {
                    let longer = self.waits_longer(waker.tid, slept.unwrap(), &time);
                    block.2 = longer.unwrap_or(block.2);
                }
                self.truth(victim, block.2, at..until, whose, depth)
            }
        }
    }

    /// The request that a thread waited for after a block in none, if that one was blocked by itself since before `time` began
    /// and until it woke the thread: had the thread slept less, it would have waited longer.
    fn waits_longer(&self, tid: u32, slept: usize, time: &Range<u64>) -> Option<By> {
        let thread = &self.threads[tid as usize - 1];
        let is_recorded = |(out, ..): &&(u64, u64, By)| {
            let did = thread.did[*out as usize - 1];
            did.request.is_some() || !did.served
        };
        let later = thread.blocks[slept + 1..].iter();
        for &(out, wake, by) in later.filter(is_recorded).take(8) {
            if out >= time.end {
                break;
            }
            let By::Thread(other, WakerIs::InRequest(_)) = by else {
                continue;
            };
            let other = &self.threads[other.tid as usize - 1];
            let mut blocks = other.blocks.iter();
            let had = blocks.find(|had| (had.0..had.1).contains(&out));
            let Some(&(since, until, By::Interrupt(Cause::Disk | Cause::Timer))) = had else {
                continue;
            };
            let in_none = thread.did[out as usize - 1].request.is_none();
            let in_one = other.did[since as usize - 1].request.is_some();
            if in_none && in_one && until <= wake && since <= thread.blocks[slept].1 {
                return (since <= time.start).then_some(by);
            }
        }
        None
    }

    /// Blame of a request, from the truth.
    fn blame(&self, tid: u32, begin_ns: u64) -> BTreeMap<Outcome, u64> {
        let thread = &self.threads[tid as usize - 1];
        let mut sums = BTreeMap::new();
        for &(out, wake, by) in &thread.blocks {
            if thread.did[out as usize - 1].request == Some(begin_ns) {
                for at in out..wake {
                    let what = self.truth((tid, begin_ns), by, at..wake, Culprit::OwnInterrupt, 0);
                    *sums.entry(what).or_default() += 1;
                }
            }
        }
        sums
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn the_split_is_what_happened(seed: u64, threads in 2_usize..7) {
        let world = World::of(seed, threads);
        let recorded = world.events.recorded();
        prop_assert!(!world.events.records.is_empty() || threads < 7);
        for record in &world.events.records {
            let split = recorded.blame(record.tid, record.begin_ns, record.end_ns);
            let truth = world.blame(record.tid, record.begin_ns);
            prop_assert_eq!(split, truth, "thread {} from {}", record.tid, record.begin_ns);
        }
        check(&world.events);
    }

    #[test]
    fn what_was_lost_is_unknown_and_the_rest_stays(seed: u64, threads in 2_usize..7) {
        let mut world = World::of(seed, threads);
        for off in &mut world.events.intervals {
            off.lost = world.dice.once_in(10);
        }
        for record in &mut world.events.records {
            record.lost = world.dice.once_in(10);
        }
        check(&world.events);
    }
}

#[test]
fn worlds_have_everything() {
    let mut causes = std::collections::BTreeSet::new();
    let mut deepest = 0;
    for seed in 0..60 {
        let world = World::of(seed, 6);
        for record in &world.events.records {
            for outcome in world.blame(record.tid, record.begin_ns).keys() {
                causes.insert((outcome.cause, outcome.reason));
                deepest = outcome.depth.max(deepest);
            }
        }
    }
    assert!(causes.len() >= 9, "{causes:?}");
    assert!(deepest >= 3, "{deepest}");
}
