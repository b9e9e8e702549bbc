//! Follows a trace: records of the ring in, events out, until it ends.

mod members;
mod window;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use log::{debug, warn};
use reqtrace_recording::{BlockedIn, Cost, End, Event, Open, Process, ProcessChange, Request};

use super::backlog::Backlog;
use super::guarding::{Guarding, Turn};
use super::latecomers::Latecomers;
use super::processes::{Processes, Since, first_space};
use super::roster::Changes;
use super::stopper::{Stopper, Waiting};
use super::watched::Watched;
use crate::attach::Running;
use crate::attach::decode::{self, Decoder, Ends, Extras, Malformed, Other, Record, Stamp, Still};
use crate::attach::{Session, Sums};
use crate::events::{Names, Stream, Windows};
use crate::kernel::clock::{self, WallClock};
use reqtrace_base::error::Result;
use reqtrace_common::loss::Loss;
use reqtrace_recording::losses::{MALFORMED, PROCESSES_UNPROBED, UNWIND_TABLES_LEFT_OUT};

/// How often the ring is read when the kernel does not ask for it: each time costs a wake-up, and cold
/// caches.
const TICK: Duration = Duration::from_millis(50);
/// Ticks between two looks of the sink, and at whether the targets still live.
const TICKS_PER_LOOK: u32 = 4;
/// With fewer records in a tick the next one that is needed is that of a look: the kernel asks for more reads when there are
/// many, and a tick that finds little takes some 100 µs of cold caches.
const FEW: usize = 100;
/// Ticks between two writes of a recording: what a trace that is killed may lose.
const TICKS_PER_FLUSH: u32 = 20;
/// Ticks between two looks at what the targets have mapped.
const TICKS_PER_REFRESH: u32 = 20;
/// How long names are looked for when a trace has ended; its report comes then, with what is known.
const NAMING: Duration = Duration::from_secs(10);
/// Ticks between two looks at what the targets have mapped, though it seems to be what it was: a file may be mapped
/// in the place of one of its size.
const TICKS_PER_WHOLE_REFRESH: u32 = 10 * TICKS_PER_REFRESH;
/// How often it is looked whether a program is resolved, which a process may already run.
const HURRY: Duration = Duration::from_millis(2);
/// Records taken at a time, so that signals are not kept waiting.
const BATCH: usize = 20_000;

/// Open requests that are shown to who looks on.
const MAX_RUNNING: usize = 200;

/// Why a trace ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndedBy {
    /// Its time was over.
    Duration,
    /// A [`Stopper`], or its sink.
    Stop,
    /// All traced processes left.
    TargetExited,
    /// It took too much, whatever was left out: see [`Tracer::may_leave_out`](super::Tracer::may_leave_out).
    Dear,
}

impl EndedBy {
    /// The words for it in `summary.json`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Duration => "duration",
            Self::Stop => "interrupted",
            Self::TargetExited => "target exited",
            Self::Dear => "too dear",
        }
    }
}

/// What of the profiles matters to who follows a trace.
#[derive(Clone, Debug, Default)]
pub(super) struct Keyed {
    /// Requests of some type are known by a key.
    pub(super) has_keys: bool,
    /// Where texts end.
    pub(super) ends: Ends,
}

/// Takes records and keeps account of the traced processes.
pub(super) struct Follower<'a> {
    stream: Stream<'a>,
    names: Names,
    decoder: Decoder,
    extras: Extras,
    has_keys: bool,
    windows: Windows,
    /// What was taken out of the kernel's tables, and is not named yet.
    taken: Vec<Sums>,
    request_types: usize,
    processes: Processes,
    latecomers: Latecomers,
    /// What the tracer itself has lost, as it was sent.
    lost: BTreeMap<&'static str, u64>,
    watched: Watched,
    /// Processes of watched programs for which the kernel's table had no room.
    without_room: BTreeSet<u32>,
    changes: Changes,
    stopper: Stopper,
    backlog: Backlog,
    /// Records that were taken since the last tick.
    taken_records: usize,
    clock: WallClock,
    is_suspended: bool,
    /// What is to be done as soon as it can.
    turn: Option<Turn>,
    /// Probes are to be set for each process by itself when nothing else is to be done.
    wants_apart: bool,
}

impl<'a> Follower<'a> {
    /// Begins with these processes.
    pub(super) fn new(
        stream: Stream<'a>,
        names: Names,
        request_types: usize,
        (processes, pids): (Processes, &[u32]),
        (stopper, latecomers, watched, changes): (Stopper, Latecomers, Watched, Changes),
        Keyed { has_keys, ends }: Keyed,
        to_unix_ns: i64,
    ) -> Result<Self> {
        let mut follower = Self {
            stream,
            names,
            decoder: Decoder::default(),
            extras: Extras::new(ends),
            has_keys,
            windows: Windows::new(),
            taken: Vec::new(),
            request_types,
            processes,
            latecomers,
            lost: BTreeMap::new(),
            watched,
            without_room: BTreeSet::new(),
            changes,
            stopper,
            backlog: Backlog::default(),
            taken_records: 0,
            clock: WallClock::new(to_unix_ns),
            is_suspended: false,
            turn: None,
            wants_apart: false,
        };
        for &pid in pids {
            let process = Process {
                space: first_space(pid),
                change: ProcessChange::Start,
                parent: 0,
                time_ns: 0,
                name: String::new(),
            };
            follower.appear(process, Since::Before)?;
        }
        Ok(follower)
    }

    /// So many processes are not traced, as the kernel's table has no room for them.
    pub(super) fn left_out(&mut self, processes: u64) -> Result<()> {
        if processes > 0 {
            self.stream.lost(Loss::ProcessTableFull.name(), processes)?;
        }
        Ok(())
    }

    /// Ends the stream: what the maps hold, what is open, and the end itself.
    pub(super) fn end(
        mut self,
        session: &mut Session,
        stop_ns: u64,
        ended_by: EndedBy,
        cost: Cost,
    ) -> Result<()> {
        self.names.until(Instant::now() + NAMING);
        self.window(session, stop_ns, true)?;
        for sent in session.take_seconds(clock::monotonic_ns(), true)? {
            self.stream.send(&Event::Sent(&sent))?;
        }
        for disk in session.disk_users()? {
            self.stream.send(&Event::Disk(&disk))?;
        }
        let stills = session.open_requests(stop_ns)?;
        self.are_open(stills)?;
        self.own_losses(session)?;
        // Until now some of these may have got theirs.
        let unprobed = self.latecomers.unprobed() + session.unprobed();
        if unprobed > 0 {
            self.stream.lost(PROCESSES_UNPROBED, unprobed)?;
        }
        self.stream.send(&Event::Cost(&cost))?;
        let ended_by = ended_by.name().to_owned();
        self.stream.send(&Event::End(&End {
            stop_ns,
            ended_by,
            late_children: session.late_children(),
        }))
    }

    /// Sends what the tracer itself has lost since it was asked last.
    fn own_losses(&mut self, session: &Session) -> Result<()> {
        let tables = (UNWIND_TABLES_LEFT_OUT, session.tables_left_out());
        for (name, count) in self.names.losses().into_iter().chain([tables]) {
            let sent = self.lost.entry(name).or_default();
            let before = std::mem::replace(sent, count.max(*sent));
            if count > before {
                self.stream.lost(name, count - before)?;
            }
        }
        Ok(())
    }

    /// Sends requests that are open when tracing stops.
    fn are_open(&mut self, stills: Vec<Still>) -> Result<()> {
        for still in stills {
            let mut open = self.whole(still);
            open.request.id = self.stream.next_id();
            self.names.request(&open.request(), &mut self.stream)?;
            if let Some(BlockedIn { site, .. }) = open.blocked_in {
                let space = open.request.space;
                self.names.site(space, site, true, &mut self.stream)?;
            }
            self.stream.send(&Event::Open(&open))?;
        }
        Ok(())
    }

    /// The traced processes.
    pub(super) fn processes(&self) -> &Processes {
        &self.processes
    }

    /// Tells the sink that tracing is over.
    pub(super) fn ended(&mut self) {
        self.stream.ended();
    }

    /// Follows until the time is over, somebody stops it, or all targets have left.
    pub(super) fn run(
        &mut self,
        session: &mut Session,
        duration: Option<Duration>,
        guarding: &mut Guarding,
    ) -> Result<EndedBy> {
        let waiting = Waiting::new(session.ring(), &self.stopper)?;
        let begun_ns = clock::monotonic_ns().saturating_sub(session.start_ns());
        let begun = Duration::from_nanos(begun_ns);
        let deadline = duration.map(|duration| Instant::now() + duration.saturating_sub(begun));
        if let Some(deadline) = deadline {
            self.names.until(deadline + NAMING);
        }
        let mut ticks = Ticks::new();
        let mut all = true;
        // Before it, all records were taken, `CLOCK_MONOTONIC` ns.
        let mut taken_ns = None;
        // They may run another program than when it was looked what they run.
        for pid in self.processes.alive().clone() {
            self.latecomers
                .look_for(pid, session.start_ns(), |_| false, session);
        }
        session.watch(self.watched.files())?;
        self.find_watched(session, guarding)?;
        self.refresh(true, session)?;
        loop {
            let now = Instant::now();
            if deadline.is_some_and(|deadline| deadline <= now) {
                return Ok(EndedBy::Duration);
            }
            let mut until = ticks.next.min(deadline.unwrap_or(ticks.next));
            if self.latecomers.is_busy() {
                until = until.min(now + HURRY);
            }
            let longest = match all {
                true => until.saturating_duration_since(now),
                // What was left is taken at once, but for a stop.
                false => Duration::ZERO,
            };
            if waiting.wait(longest)? || self.stream.is_stopped() {
                return Ok(EndedBy::Stop);
            }
            if ticks.is_due(self.is_quiet()) {
                self.taken_records = 0;
                if let Some(ended_by) = self.tick(session, &ticks, guarding)? {
                    return Ok(ended_by);
                }
                if ticks.is_each(TICKS_PER_LOOK) {
                    self.send_tick(session, taken_ns, &mut ticks)?;
                }
            }
            let now_ns = clock::monotonic_ns();
            all = self.take(session, BATCH)?;
            taken_ns = all.then_some(now_ns);
            self.latecomers.step(session);
            if self.names.is_full() || self.processes.names_are_due() || session.tables_fill_up()? {
                self.window(session, clock::monotonic_ns(), false)?;
            } else if self.backlog.is_due() {
                self.work_off(session)?;
            } else {
                continue;
            }
            if ticks.since_sent() >= TICKS_PER_LOOK {
                self.send_tick(session, taken_ns, &mut ticks)?;
            }
        }
    }

    /// Whether nothing is to be done before the next look.
    fn is_quiet(&self) -> bool {
        self.taken_records < FEW && self.turn.is_none() && !self.is_suspended
    }

    /// Sends how far time has come, when no record waits: all before that were sent.
    fn send_tick(
        &mut self,
        session: &mut Session,
        taken_ns: Option<u64>,
        ticks: &mut Ticks,
    ) -> Result<()> {
        if let Some(now_ns) = taken_ns {
            ticks.sent = ticks.count;
            for sent in session.take_seconds(now_ns, false)? {
                self.stream.send(&Event::Sent(&sent))?;
            }
            self.stream.send(&Event::Tick(now_ns))?;
        }
        Ok(())
    }

    /// What is done now and then; why the trace has ended, if it has.
    fn tick(
        &mut self,
        session: &mut Session,
        ticks: &Ticks,
        guarding: &mut Guarding,
    ) -> Result<Option<EndedBy>> {
        let is_due = self.stream.wants_windows() && self.windows.is_due();
        if is_due || self.stream.wants_window_now() {
            self.window(session, clock::monotonic_ns(), false)?;
        }
        if ticks.is_each(TICKS_PER_FLUSH) {
            self.stream.flush();
        }
        self.change(session, guarding)?;
        match guarding.look(session, self.processes.alive())? {
            Some(Turn::Over) => return Ok(Some(EndedBy::Dear)),
            Some(Turn::Apart) => self.wants_apart = true,
            Some(turn) => self.turn = Some(turn),
            None => {}
        }
        self.suspend_or_go_on(session)?;
        session.forward_messages();
        if ticks.is_each(TICKS_PER_LOOK) {
            self.names.tick();
            self.work_off(session)?;
            if let Some(step) = self.clock.step() {
                warn!(
                    "the wall clock was set, or the machine was suspended: times of day go on from there"
                );
                self.stream.send(&Event::Clock(&step))?;
            }
            self.stream.look(guarding.shares(), guarding.shed());
            self.let_go(ticks.is_each(TICKS_PER_REFRESH), session, guarding)?;
            let may_come = self.changes.has_roster || !self.watched.is_empty();
            if self.processes.alive().is_empty() && !may_come {
                return Ok(Some(EndedBy::TargetExited));
            }
        }
        if ticks.is_each(TICKS_PER_REFRESH) {
            self.refresh(ticks.is_each(TICKS_PER_WHOLE_REFRESH), session)?;
            if let Some(now) = self.watched.others() {
                // Of those that began to run the old file some may still be in the ring.
                self.take(session, usize::MAX)?;
                self.watched.replace(now);
                session.watch(self.watched.files())?;
            }
            self.find_watched(session, guarding)?;
            for program in self.watched.over(self.processes.alive()) {
                self.forget_program(&program, session)?;
            }
            if ticks.is_each(TICKS_PER_WHOLE_REFRESH) {
                self.find_unannounced(session)?;
                let (alive, watched) = (self.processes.alive(), self.watched.files());
                for program in self.latecomers.over(alive, watched) {
                    self.forget_program(&program, session)?;
                }
            }
            self.show_running(session)?;
        }
        Ok(None)
    }

    /// Suspends tracing, or goes on with it once all probes are out: markers would be hit twice otherwise.
    fn suspend_or_go_on(&mut self, session: &mut Session) -> Result<()> {
        match self.turn {
            Some(Turn::Off) if !self.is_suspended => self.suspend(session)?,
            None if self.wants_apart => {
                self.wants_apart = false;
                // What was forked by now is known.
                self.drain(session)?;
                session.set_apart(self.processes.alive())?;
                session.watch(self.watched.files())?;
                // Else that is so once it goes on.
                if !self.is_suspended {
                    self.suspend(session)?;
                    self.turn = Some(Turn::On(self.stream.stands_for()));
                    return Ok(());
                }
            }
            Some(Turn::On(_)) if self.is_suspended && !session.is_suspended() => return Ok(()),
            Some(Turn::On(stands_for)) => {
                self.drain(session)?;
                if self.is_suspended {
                    session.resume(self.processes.alive())?;
                    self.is_suspended = false;
                }
                self.stream.stand_for(stands_for);
            }
            _ => {}
        }
        self.turn = None;
        Ok(())
    }

    fn suspend(&mut self, session: &mut Session) -> Result<()> {
        let stills = session.suspend(self.processes.alive())?;
        // All of this window counts as those before.
        self.drain(session)?;
        for still in stills {
            self.ended_by_us(still, session)?;
        }
        self.is_suspended = true;
        Ok(())
    }

    /// Sends a request that is open when nobody looks at it any more.
    fn ended_by_us(&mut self, still: Still, session: &mut Session) -> Result<()> {
        let open = self.whole(still);
        let request = open.request();
        self.names.request(&request, &mut self.stream)?;
        session.sent_by_us(request.end_ns, request.latency_ns());
        let attributes = open.attributes();
        self.stream.request(Request {
            attributes: &attributes,
            ..request
        })
    }

    /// Shows the requests that are open to who wants them.
    fn show_running(&mut self, session: &Session) -> Result<()> {
        if !self.stream.wants_running() {
            return Ok(());
        }
        let now_ns = clock::monotonic_ns();
        let (mut running, all) = session.running(now_ns, MAX_RUNNING)?;
        for running in &mut running {
            let Running {
                open,
                stamp,
                holder,
                ..
            } = running;
            *holder = self.names.holder(open.request.space.tgid, *holder);
            complete(open, *stamp, &self.extras, &mut self.names);
            let request = open.request();
            self.names.request(&request, &mut self.stream)?;
            if let Some(BlockedIn { site, .. }) = open.blocked_in {
                self.names
                    .site(request.space, site, false, &mut self.stream)?;
            }
        }
        self.stream.running(&running, all, now_ns);
        Ok(())
    }

    /// Takes all records that are left.
    pub(super) fn drain(&mut self, session: &mut Session) -> Result<()> {
        self.take(session, usize::MAX)?;
        self.work_off(session)
    }

    /// Takes records; true when the ring is empty then. Requests, intervals and samples wait in the backlog.
    fn take(&mut self, session: &mut Session, most: usize) -> Result<bool> {
        for _ in 0..most {
            let backlog = &mut self.backlog;
            let other = session.next_record(|bytes| match decode::record(bytes) {
                Ok(Record::Other(other)) => Some(Ok(other)),
                Ok(_) => {
                    backlog.push(bytes);
                    None
                }
                Err(malformed) => Some(Err(malformed)),
            });
            self.taken_records += usize::from(other.is_some());
            match other {
                None => return Ok(true),
                Some(None) => {}
                Some(Some(Ok(Other::Process(process)))) => self.process(&process, session)?,
                Some(Some(Ok(Other::Thread(thread)))) => {
                    self.names.named_thread(&thread, &mut self.stream)?;
                }
                Some(Some(Ok(Other::File(file)))) => self.names.file(&file, &mut self.stream)?,
                Some(Some(Err(malformed))) => malformed_record(malformed, &mut self.stream)?,
            }
        }
        Ok(false)
    }

    /// An open request with its texts.
    fn whole(&mut self, Still { mut open, stamp }: Still) -> Open {
        complete(&mut open, stamp, &self.extras, &mut self.names);
        open
    }
}

/// Gives an open request its texts.
fn complete(open: &mut Open, stamp: Stamp, extras: &Extras, names: &mut Names) {
    open.texts = extras.texts_of(stamp);
    let of = (open.request.space, open.request.request_type);
    names.symbols_of(of, &mut open.numbers, &mut open.texts);
}

fn malformed_record(malformed: Malformed, stream: &mut Stream<'_>) -> Result<()> {
    debug!("malformed record: {malformed}");
    stream.lost(MALFORMED, 1)
}

/// The beat of a trace.
struct Ticks {
    next: Instant,
    count: u32,
    /// What the count will be then.
    due: u32,
    /// The count when it was last sent how far time has come.
    sent: u32,
}

impl Ticks {
    fn new() -> Self {
        Self {
            next: Instant::now() + TICK,
            count: 0,
            due: 1,
            sent: 0,
        }
    }

    /// Whether it is time for the next tick, which then has come. In a quiet trace the next one is that of a look.
    fn is_due(&mut self, is_quiet: bool) -> bool {
        let now = Instant::now();
        let is_due = now >= self.next;
        if is_due {
            self.count = self.due;
            let ticks = match is_quiet {
                true => TICKS_PER_LOOK - self.count % TICKS_PER_LOOK,
                false => 1,
            };
            self.due = self.count.wrapping_add(ticks);
            self.next = now + TICK * ticks;
        }
        is_due
    }

    fn is_each(&self, ticks: u32) -> bool {
        self.count.is_multiple_of(ticks)
    }

    fn since_sent(&self) -> u32 {
        self.count.wrapping_sub(self.sent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quiet_trace_ticks_for_its_looks_only() {
        let mut ticks = Ticks::new();
        let mut tick = |is_quiet| {
            assert!(!ticks.is_due(is_quiet));
            let begin = Instant::now();
            ticks.next = begin;
            assert!(ticks.is_due(is_quiet));
            (
                ticks.count,
                ticks.next - begin >= TICK * (ticks.due - ticks.count),
            )
        };
        let of = [false, true, false, true, true, false, false].map(|is_quiet| tick(is_quiet).0);
        assert_eq!(of, [1, 2, 4, 5, 8, 12, 13]);
        assert!(tick(true).1);
        // No number that is looked for is left out.
        for each in [TICKS_PER_FLUSH, TICKS_PER_REFRESH, TICKS_PER_WHOLE_REFRESH] {
            assert!(each.is_multiple_of(TICKS_PER_LOOK));
        }
    }
}
