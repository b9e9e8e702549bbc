//! Requests with a key: random pools of threads that begin, park, make ready, go on with and end each
//! other's requests, nanosecond for nanosecond. The truth is what each thread did in each nanosecond.

use std::collections::BTreeSet;

use proptest::prelude::*;
use reqtrace_recording::WakerIs;

use super::super::keyed::{AllKeyed, REQUEST_BYTES};
use super::super::pieces::With;
use super::super::{Away, Sender, Source, WentOn};
use super::*;

/// The request with a key that began then.
const fn keyed(begin_ns: u64) -> RequestOf {
    RequestOf {
        begin_ns,
        request_type: 1,
    }
}

/// What a thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    Runs,
    Preempted,
    Blocked,
    /// Woken, and who did that.
    Queued(By),
}

/// What a thread did in one nanosecond.
#[derive(Clone, Copy, Debug)]
struct Did {
    does: Does,
    request: Option<u64>,
    /// Its intervals are recorded.
    watched: bool,
    /// The number of its block.
    block: usize,
}

#[derive(Debug)]
struct Thread {
    does: Does,
    request: Option<u64>,
    out_ns: u64,
    /// It was watched when it left its CPU.
    recorded: bool,
    /// Since when it is watched.
    since: Option<u64>,
    did: Vec<Did>,
    /// Who ended its blocks; `None` until then.
    blocks: Vec<Option<By>>,
    /// When it took requests up, and whether those had been queued.
    starts: Vec<(u64, bool)>,
}

/// A request that no thread runs.
#[derive(Clone, Copy, Debug)]
struct Parked {
    begin_ns: u64,
    from: u32,
    since_ns: u64,
    is_queued: bool,
}

/// A time in which a request was parked.
#[derive(Clone, Copy, Debug)]
struct WasParked {
    begin_ns: u64,
    since_ns: u64,
    until_ns: u64,
    /// The thread that ended it, and what that was doing.
    by: ThreadId,
    is: WakerIs,
    ready: Ready,
    source: Source,
}

/// A time in which a request was queued, and the thread that then went on with it.
#[derive(Clone, Copy, Debug)]
struct WasQueued {
    begin_ns: u64,
    since_ns: u64,
    until_ns: u64,
    by: ThreadId,
}

/// Where a request was in one nanosecond.
#[derive(Clone, Copy, Debug)]
enum Where {
    /// On this thread.
    Ran(ThreadId),
    Parked,
    Queued,
}

struct Pool {
    threads: Vec<Thread>,
    parked: Vec<Parked>,
    were_parked: Vec<WasParked>,
    were_queued: Vec<WasQueued>,
    /// Begin, end.
    ended: Vec<(u64, u64)>,
    /// Threads for which requests were queued.
    run_units: BTreeSet<ThreadId>,
    /// Blocks of requests: begin of the request, thread, from, until, ended by.
    blocks: Vec<(u64, u32, u64, u64, By)>,
    /// Where requests were, by begin and time.
    were: BTreeMap<(u64, u64), Where>,
    recorded: Recorded,
    dice: u64,
    began: u64,
}

const END_NS: u64 = 600;

impl Pool {
    fn of(seed: u64, threads: usize) -> Self {
        let thread = || Thread {
            does: Does::Runs,
            request: None,
            out_ns: 0,
            recorded: false,
            since: None,
            did: Vec::new(),
            blocks: Vec::new(),
            starts: Vec::new(),
        };
        let mut pool = Self {
            threads: (0..threads).map(|_| thread()).collect(),
            parked: Vec::new(),
            were_parked: Vec::new(),
            were_queued: Vec::new(),
            ended: Vec::new(),
            run_units: BTreeSet::new(),
            blocks: Vec::new(),
            were: BTreeMap::new(),
            recorded: Recorded::new(),
            dice: seed,
            began: 0,
        };
        let mut now = 0;
        while now < END_NS || pool.is_busy() {
            now += 1;
            for number in 0..threads {
                pool.step(number, now);
            }
            for (number, thread) in pool.threads.iter_mut().enumerate() {
                if let Some(begin_ns) = thread.request {
                    let ran = Where::Ran(super::thread(number as u32 + 1));
                    pool.were.insert((begin_ns, now), ran);
                }
                thread.did.push(Did {
                    does: thread.does,
                    request: thread.request,
                    watched: thread.since.is_some(),
                    block: thread.blocks.len().saturating_sub(1),
                });
            }
            for parked in &pool.parked {
                let place = match parked.is_queued {
                    true => Where::Queued,
                    false => Where::Parked,
                };
                pool.were.insert((parked.begin_ns, now), place);
            }
        }
        pool
    }

    fn below(&mut self, most: u64) -> u64 {
        self.dice = self.dice.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.dice;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % most
    }

    fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    fn is_busy(&self) -> bool {
        let mut threads = self.threads.iter();
        !self.parked.is_empty()
            || threads.any(|thread| thread.does != Does::Runs || thread.request.is_some())
    }

    fn step(&mut self, number: usize, now: u64) {
        let does = self.threads[number].does;
        match does {
            Does::Runs if now < END_NS && self.once_in(30) => {
                self.leave(number, now, Does::Preempted);
            }
            Does::Runs if now < END_NS && self.once_in(10) => {
                let other = self.below(self.threads.len() as u64) as usize;
                if self.threads[other].does == Does::Blocked {
                    self.wake(other, now, Some(number));
                }
                self.leave(number, now, Does::Blocked);
            }
            Does::Runs if self.once_in(6) => self.mark(number, now),
            Does::Preempted if self.once_in(6) => self.arrive(number, now, None),
            Does::Blocked if self.once_in(40) => self.wake(number, now, None),
            Does::Queued(by) if self.once_in(5) => self.arrive(number, now, Some(by)),
            _ => {}
        }
    }

    /// A marker is hit.
    fn mark(&mut self, number: usize, now: u64) {
        let ends = now >= END_NS;
        let tid = number as u32 + 1;
        if let Some(begin_ns) = self.threads[number].request {
            if ends || self.once_in(4) {
                self.ran(number);
                self.recorded.keyed_record(tid, begin_ns, now);
                self.ended.push((begin_ns, now));
            } else if self.once_in(2) {
                self.parked.push(Parked {
                    begin_ns,
                    from: tid,
                    since_ns: now,
                    is_queued: false,
                });
                self.ran(number);
            } else if self.threads[number].since.is_some() {
                self.ready(number, now);
            }
            return;
        }
        if !self.parked.is_empty() && (ends || self.once_in(2)) {
            let any = self.below(self.parked.len() as u64) as usize;
            let parked = self.parked.remove(any);
            self.was_away(parked, number, now, false);
            self.threads[number].request = Some(parked.begin_ns);
            self.threads[number].starts.push((now, parked.is_queued));
        } else if !ends && self.began < now && self.once_in(2) {
            self.began = now;
            self.threads[number].request = Some(now);
            self.threads[number].starts.push((now, false));
        } else if self.threads[number].since.is_some() {
            return self.ready(number, now);
        } else {
            return;
        }
        self.threads[number].since.get_or_insert(now);
    }

    /// The thread leaves its request.
    fn ran(&mut self, number: usize) {
        self.threads[number].request = None;
    }

    /// The event of a parked request has come.
    fn ready(&mut self, number: usize, now: u64) {
        let waiting = self.parked.iter().position(|parked| !parked.is_queued);
        if let Some(at) = waiting {
            let parked = self.parked[at];
            self.was_away(parked, number, now, true);
            self.parked[at] = Parked {
                is_queued: true,
                since_ns: now,
                ..parked
            };
        }
    }

    /// What a request goes on with that was parked since then: now and then data that a thread has sent.
    fn source(&mut self, since_ns: u64, now: u64) -> Source {
        let nobody = Source::NotKnown(Reason::NoRead);
        if now == since_ns || self.once_in(3) {
            return nobody;
        }
        let at_ns = since_ns + self.below(now - since_ns);
        let number = self.below(self.threads.len() as u64) as usize;
        let sender = &self.threads[number];
        let Some(did) = sender.did.get(at_ns as usize - 1) else {
            return nobody;
        };
        let is = match (did.request, sender.since) {
            (Some(begin_ns), _) => WakerIs::InRequest(keyed(begin_ns)),
            (None, Some(since)) if did.watched => WakerIs::Helper(since),
            _ => return nobody,
        };
        if did.does != Does::Runs {
            return nobody;
        }
        let sender = thread(number as u32 + 1);
        Source::Data {
            sent_ns: at_ns,
            arrived_ns: at_ns + self.below(now - at_ns),
            sender: Sender::Thread(sender, is),
        }
    }

    fn was_away(&mut self, parked: Parked, number: usize, now: u64, is_ready: bool) {
        let by_request = self.threads[number].request;
        let is = by_request.map_or(WakerIs::BetweenRequests, |begin| {
            WakerIs::InRequest(keyed(begin))
        });
        let tid = number as u32 + 1;
        let ready = match is_ready {
            true if self.below(2) == 0 => Ready::ByTask,
            true => Ready::Yes,
            false => Ready::No,
        };
        let ready = match ready {
            Ready::Yes if self.once_in(2) => Ready::ByDriver,
            ready => ready,
        };
        let source = match is_ready && self.once_in(2) {
            true => Source::NotKnown(Reason::SourceNotKnown),
            false => self.source(parked.since_ns, now),
        };
        let kind = if parked.is_queued {
            self.run_units.insert(thread(tid));
            self.were_queued.push(WasQueued {
                begin_ns: parked.begin_ns,
                since_ns: parked.since_ns,
                until_ns: now,
                by: thread(tid),
            });
            Away::Queued
        } else {
            self.were_parked.push(WasParked {
                begin_ns: parked.begin_ns,
                since_ns: parked.since_ns,
                until_ns: now,
                by: thread(tid),
                is,
                ready,
                source,
            });
            Away::Parked
        };
        let times = [parked.since_ns, now];
        self.recorded.away(
            parked.from,
            parked.begin_ns,
            times,
            kind,
            by(tid, is),
            (ready, thread(tid)),
        );
        let of = keyed(parked.begin_ns);
        let timelines = &mut self.recorded.timelines;
        assert!(kind == Away::Queued || timelines.source(thread(1), of, now, source));
    }

    fn leave(&mut self, number: usize, now: u64, does: Does) {
        let thread = &mut self.threads[number];
        thread.recorded = thread.since.is_some();
        (thread.does, thread.out_ns) = (does, now);
        if does == Does::Blocked {
            thread.blocks.push(None);
        }
    }

    fn wake(&mut self, number: usize, now: u64, waker: Option<usize>) {
        let any = self.below(self.threads.len() as u64 + 2) as usize;
        let one = waker.unwrap_or(any);
        let runs = |thread: &&Thread| thread.does == Does::Runs;
        let recorded = self.threads[number].recorded;
        let by = if self.threads.get(one).filter(runs).is_some() {
            let thread = &mut self.threads[one];
            let is = match (thread.request, thread.since) {
                (Some(begin_ns), _) => WakerIs::InRequest(keyed(begin_ns)),
                (None, Some(since)) => WakerIs::Helper(since),
                (None, None) if recorded => WakerIs::Helper(*thread.since.insert(now)),
                (None, None) => WakerIs::Unknown,
            };
            By::Thread(super::thread(one as u32 + 1), is)
        } else {
            match self.below(4) {
                0 => By::Nobody(Reason::NoWakeup),
                1 => By::Interrupt(Cause::Network),
                _ => By::Interrupt(Cause::Disk),
            }
        };
        let thread = &mut self.threads[number];
        *thread.blocks.last_mut().unwrap() = Some(by);
        thread.does = Does::Queued(by);
        if let Some(begin_ns) = thread.request {
            let block = (begin_ns, number as u32 + 1, thread.out_ns, now, by);
            self.blocks.push(block);
        }
    }

    fn arrive(&mut self, number: usize, now: u64, by: Option<By>) {
        let thread = &mut self.threads[number];
        thread.does = Does::Runs;
        if !thread.recorded {
            return;
        }
        let woken_ns = thread
            .did
            .iter()
            .rev()
            .take_while(|did| matches!(did.does, Does::Queued(_)));
        let wake_ns = match by {
            Some(_) => now - woken_ns.count() as u64,
            None => thread.out_ns,
        };
        let times = [thread.out_ns, wake_ns, now];
        let request = thread.request;
        self.recorded
            .interval_of(number as u32 + 1, request.map(keyed), times, by);
    }

    fn ended_in(&self, victim: u64, by: By, at: u64, waits: Culprit, depth: u8) -> Outcome {
        match by {
            By::Nobody(reason) => unknown(reason, depth),
            By::Interrupt(cause) => outcome(cause, waits, depth),
            By::Thread(..) if depth == MAX_DEPTH => unknown(Reason::TooDeep, depth),
            By::Thread(_, WakerIs::Unknown) => unknown(Reason::WakerNotKnown, depth + 1),
            By::Thread(one, WakerIs::InRequest(of)) if of.begin_ns <= at => {
                self.was(victim, one, of.begin_ns, at, depth + 1)
            }
            By::Thread(one, _) => {
                let did = self.threads[one.tid as usize - 1].did[at as usize - 1];
                let whose = Self::whose(victim, one, did.request);
                self.did(victim, one, at, whose, depth + 1)
            }
        }
    }

    fn whose(victim: u64, one: ThreadId, request: Option<u64>) -> Culprit {
        match request {
            Some(begin_ns) if begin_ns == victim => Culprit::Itself,
            Some(begin_ns) => Culprit::Request(one, 1, begin_ns),
            None => Culprit::Thread(one),
        }
    }

    /// What a request was in one nanosecond, of which a thread was known to run it later.
    fn was(&self, victim: u64, one: ThreadId, begin_ns: u64, at: u64, depth: u8) -> Outcome {
        let whose = Self::whose(victim, one, Some(begin_ns));
        match self.were[&(begin_ns, at)] {
            Where::Ran(ran_on) => self.did(victim, ran_on, at, whose, depth),
            Where::Queued => outcome(Cause::RunQueue, whose, depth),
            Where::Parked => {
                let lies_in = |was: &&WasParked| was.begin_ns == begin_ns && was.is_at(at);
                let was = self.were_parked.iter().find(lies_in).unwrap();
                self.parked(victim, was, at, whose, depth)
            }
        }
    }

    fn parked(&self, victim: u64, was: &WasParked, at: u64, waits: Culprit, depth: u8) -> Outcome {
        let no_request = |thread| Outcome {
            culprit: Culprit::Thread(thread),
            ..unknown(Reason::NoRequest, depth + 1)
        };
        let by_loop = was.is == WakerIs::BetweenRequests && self.is_loop(was.by);
        let by = match (was.ready, was.source) {
            (Ready::ByTask, _) if by_loop => return no_request(was.by),
            (Ready::Yes | Ready::ByTask, _) if !by_loop => By::Thread(was.by, was.is),
            (Ready::Yes, _) => return unknown(Reason::SourceNotKnown, depth),
            (_, Source::NotKnown(reason)) => return unknown(reason, depth),
            (
                _,
                Source::Data {
                    sent_ns,
                    sender: Sender::Thread(sender, is),
                    ..
                },
            ) if at < sent_ns => match is {
                WakerIs::Helper(_) if self.run_units.contains(&sender) => {
                    return no_request(sender);
                }
                is => By::Thread(sender, is),
            },
            (_, Source::Data { arrived_ns, .. }) if at < arrived_ns => {
                return outcome(Cause::Network, waits, depth);
            }
            (_, Source::Data { .. }) => By::Thread(was.by, was.is),
        };
        self.ended_in(victim, by, at, waits, depth)
    }

    fn is_loop(&self, thread: ThreadId) -> bool {
        let mut did = self.threads[thread.tid as usize - 1].did.iter();
        did.any(|did| did.request.is_some())
    }

    fn did(&self, victim: u64, one: ThreadId, at: u64, whose: Culprit, depth: u8) -> Outcome {
        let of = &self.threads[one.tid as usize - 1];
        let did = of.did[at as usize - 1];
        if !did.watched {
            return unknown(Reason::NotYetWatched, depth);
        }
        match did.does {
            Does::Runs => outcome(Cause::OnCpu, whose, depth),
            Does::Preempted => outcome(Cause::Preempted, whose, depth),
            Does::Queued(_) => outcome(Cause::RunQueue, whose, depth),
            Does::Blocked => {
                let by = of.blocks[did.block].unwrap();
                self.ended_in(victim, by, at, whose, depth)
            }
        }
    }

    /// What a request was queued behind, from the truth.
    fn behind(&self, begin_ns: u64) -> BTreeMap<With, u64> {
        let mut sums = BTreeMap::new();
        let queued = self.were_queued.iter();
        for was in queued.filter(|was| was.begin_ns == begin_ns) {
            for at in was.since_ns..was.until_ns {
                let by = &self.threads[was.by.tid as usize - 1];
                let did = by.did[at as usize - 1];
                let mut later = by.starts.iter().filter(|start| start.0 > at);
                let is_proven = later.next().is_none_or(|start| start.1);
                let with = match did.does {
                    _ if did.request.is_some() => With::Request(1),
                    _ if !did.watched => With::NotKnown,
                    Does::Runs if is_proven => With::NoRequest,
                    Does::Runs => With::NotKnown,
                    Does::Blocked => With::Asleep,
                    Does::Preempted | Does::Queued(_) => With::NoCpu,
                };
                *sums.entry(with).or_default() += 1;
            }
        }
        sums
    }

    /// Blame of a request, from the truth.
    fn blame(&self, begin_ns: u64) -> BTreeMap<Outcome, u64> {
        let mut sums = BTreeMap::new();
        let blocks = self.blocks.iter().filter(|block| block.0 == begin_ns);
        for &(_, _, from, until, by) in blocks {
            for at in from..until {
                let what = self.ended_in(begin_ns, by, at, Culprit::OwnInterrupt, 0);
                *sums.entry(what).or_default() += 1;
            }
        }
        let parked = self.were_parked.iter();
        for was in parked.filter(|was| was.begin_ns == begin_ns) {
            for at in was.since_ns..was.until_ns {
                let what = self.parked(begin_ns, was, at, Culprit::OwnInterrupt, 0);
                *sums.entry(what).or_default() += 1;
            }
        }
        sums
    }
}

impl WasParked {
    const fn is_at(&self, at: u64) -> bool {
        self.since_ns <= at && at < self.until_ns
    }
}

impl Recorded {
    pub(super) fn keyed_record(&mut self, tid: u32, begin_ns: u64, end_ns: u64) {
        self.timelines.request(&Request {
            id: begin_ns,
            request_type: 1,
            space: AddressSpace {
                tgid: 1,
                exec_generation: 0,
            },
            tid,
            begin_ns,
            end_ns,
            weight: 1,
            label: b"it",
            ..Request::default()
        });
    }

    fn away(
        &mut self,
        tid: u32,
        begin_ns: u64,
        times: [u64; 2],
        kind: Away,
        by: Option<By>,
        (ready, resumed_by): (Ready, ThreadId),
    ) {
        let is_parked = kind == Away::Parked;
        let follows = self.timelines.away(Kept {
            thread: thread(tid),
            sequence: 0,
            request: Some(keyed(begin_ns)),
            class: Some(7),
            place: Place {
                space: AddressSpace::default(),
                site: BlockSite::PREEMPTED,
                period: 0,
            },
            futex: 0,
            holder: Holder::NoFutex,
            out_ns: times[0],
            wake_ns: if is_parked { times[1] } else { times[0] },
            in_ns: times[1],
            by: by.filter(|_| is_parked),
            woken_from: None,
            away: Some(kind),
            went_on: Some(Box::new(WentOn {
                ready,
                resumed_by: (!is_parked).then_some(resumed_by),
                ..WentOn::NOT_KNOWN
            })),
            after_gap: false,
        });
        assert!(follows);
    }
}

/// Unknown for whatever reason.
fn without_reasons(sums: BTreeMap<Outcome, u64>) -> BTreeMap<Outcome, u64> {
    let mut all = BTreeMap::new();
    for (outcome, ns) in sums {
        let key = match outcome.cause {
            Cause::Unknown => unknown(Reason::Lost, 0),
            _ => outcome,
        };
        *all.entry(key).or_default() += ns;
    }
    all
}

fn check(pool: &Pool) {
    for &(begin_ns, end_ns) in &pool.ended {
        let timelines = &pool.recorded.timelines;
        let parts = split(timelines, thread(1), keyed(begin_ns), end_ns);
        let mut sums = BTreeMap::new();
        for piece in &parts.pieces {
            *sums.entry(piece.outcome).or_default() += piece.ns;
        }
        let mut behind = BTreeMap::new();
        for part in &parts.behind {
            *behind.entry(part.with).or_default() += part.ns;
        }
        assert_eq!(behind, pool.behind(begin_ns), "{begin_ns}");
        let truth = pool.blame(begin_ns);
        assert_eq!(sums.values().sum::<u64>(), truth.values().sum::<u64>());
        assert_eq!(without_reasons(sums), without_reasons(truth), "{begin_ns}");
        assert_eq!(timelines.request_id(thread(9), keyed(begin_ns)), begin_ns);
        assert_eq!(timelines.label(thread(9), keyed(begin_ns)), b"it");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_request_that_changes_threads_is_split_as_it_was(seed: u64, threads in 2_usize..7) {
        check(&Pool::of(seed, threads));
    }
}

#[test]
fn pools_have_everything() {
    let mut causes = BTreeSet::new();
    let (mut parked, mut deepest, mut ended) = (0, 0, 0);
    for seed in 0..60 {
        let pool = Pool::of(seed, 5);
        for (begin_ns, _) in &pool.ended {
            for outcome in pool.blame(*begin_ns).keys() {
                causes.insert((outcome.cause, outcome.reason));
                deepest = outcome.depth.max(deepest);
            }
        }
        parked += pool.were_parked.len();
        ended += pool.ended.len();
    }
    assert!(causes.len() >= 6, "{causes:?}");
    assert!(
        deepest >= 3 && parked > 300 && ended > 300,
        "{deepest} {parked} {ended}"
    );
}

#[test]
fn what_is_forgotten_is_bounded_and_said() {
    let mut all = AllKeyed::new(vec![false, true], 100 * REQUEST_BYTES);
    for begin_ns in 1..=1_000 {
        all.ran(thread(1), keyed(begin_ns), begin_ns + 1, begin_ns + 2);
    }
    assert_eq!(all.kept(), (100, 0));
    assert!(all.has_forgotten((1, 900)) && !all.has_forgotten((1, 901)));
    assert!(all.get((1, 901)).is_some() && all.get((1, 900)).is_none());
}

#[test]
fn a_thread_of_which_nothing_is_known_is_not_blamed() {
    let mut recorded = Recorded::new();
    let parked = by(2, WakerIs::BetweenRequests);
    recorded.away(
        1,
        10,
        [20, 30],
        Away::Parked,
        parked,
        (Ready::Yes, thread(2)),
    );
    recorded.keyed_record(3, 10, 40);
    let parts = split(&recorded.timelines, thread(3), keyed(10), 40);
    let wanted = [unknown(Reason::WakerNotKnown, 1)];
    let outcomes = parts.pieces.iter().map(|piece| piece.outcome);
    assert_eq!(outcomes.collect::<Vec<_>>(), wanted);
}

#[test]
fn a_request_that_held_another_one_up_many_times_is_known_each_time() {
    const WAITS: u64 = 300;
    let mut recorded = Recorded::new();
    for at in 0..2 * WAITS {
        let since_ns = 100 + 10 * at;
        recorded.away(
            2,
            10,
            [since_ns, since_ns + 5],
            Away::Parked,
            Some(By::Interrupt(Cause::Timer)),
            (Ready::Yes, thread(2)),
        );
    }
    let producer = WakerIs::InRequest(keyed(10));
    for at in 0..WAITS {
        let out_ns = 100 + 20 * at;
        let times = [out_ns, out_ns + 15, out_ns + 15];
        recorded.interval(1, Some(50), times, by(2, producer));
    }
    let sums = recorded.blame(1, 50, 100 + 20 * WAITS);
    assert_eq!(sums.values().sum::<u64>(), 15 * WAITS);
    let timer: u64 = sums
        .iter()
        .filter(|(outcome, _)| outcome.cause == Cause::Timer)
        .map(|(_, ns)| ns)
        .sum();
    assert_eq!(timer, 10 * WAITS, "{sums:?}");
}
