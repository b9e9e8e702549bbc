//! Follows a trace: records of the ring in, events out, until it ends.

mod window;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use log::debug;
use reqtrace_common::record::{ProcessRecord, process_event};
use reqtrace_recording::{Cost, End, Event, Process, ProcessChange};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use super::backlog::Backlog;
use super::early;
use super::guarding::Watched;
use super::targets::comm;
use crate::aggregate::MALFORMED;
use crate::attach::decode::{self, Decoder, Malformed, Record};
use crate::attach::{Session, Sums};
use crate::capture::{Names, Stream, Windows};
use crate::error::{Error, Result};
use crate::kernel::clock;
use crate::report::{Overhead, ShedSpan};
use crate::symbolize::AddressSpace;

/// How often the ring is read when the kernel does not ask for it.
const TICK: Duration = Duration::from_millis(20);
/// Ticks between two looks at progress and at whether the targets still live.
const TICKS_PER_LOOK: u32 = 10;
/// Ticks between two writes of a recording: what a trace that is killed may lose.
const TICKS_PER_FLUSH: u32 = 50;
/// Ticks between two looks at what the targets have mapped.
const TICKS_PER_REFRESH: u32 = 50;
/// How often it is looked at what tracing takes.
const SECOND: Duration = Duration::from_secs(1);
/// How long names are looked for when a trace has ended; its report comes then, with what is known.
const NAMING: Duration = Duration::from_secs(10);
/// A look at what a process has mapped that takes longer than this is a long one: the process has
/// tens of thousands of mappings.
const LONG_LOOK: Duration = Duration::from_millis(5);
/// The pause after a long look is so many times as long, so that looking takes 5 % of a CPU.
const PAUSE_PER_LOOK: u32 = 20;
/// Records taken at a time, so that signals are not kept waiting.
const BATCH: usize = 20_000;

/// Why a trace ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Its time was over.
    Duration,
    /// Ctrl-C, SIGTERM or SIGHUP.
    Interrupted,
    /// All traced processes left.
    TargetExited,
}

impl Outcome {
    /// The words for it in `summary.json`.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Duration => "duration",
            Self::Interrupted => "interrupted",
            Self::TargetExited => "target exited",
        }
    }
}

/// Signals that end a trace early, with a report.
pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// `None` when hang-ups are ignored, as by nohup.
    hangup: Option<Signal>,
}

impl Signals {
    /// From now on they end the trace.
    pub(super) fn take() -> Result<Self> {
        let cannot = |error| Error::failed("signals cannot be waited for").because(error);
        let hangup = (!early::is_ignored(libc::SIGHUP))
            .then(|| signal(SignalKind::hangup()))
            .transpose()
            .map_err(cannot)?;
        let signals = Self {
            hangup,
            interrupt: signal(SignalKind::interrupt()).map_err(cannot)?,
            terminate: signal(SignalKind::terminate()).map_err(cannot)?,
        };
        early::is_over();
        Ok(signals)
    }

    /// Waits for one of them.
    async fn come(&mut self) {
        let hangup = async {
            match &mut self.hangup {
                Some(hangup) => {
                    hangup.recv().await;
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.interrupt.recv() => (),
            _ = self.terminate.recv() => (),
            () = hangup => (),
        }
    }
}

/// The address space of a process when tracing begins.
pub(super) fn first_space(pid: u32) -> AddressSpace {
    AddressSpace {
        tgid: pid,
        exec_generation: 0,
    }
}

/// Takes records and keeps account of the traced processes.
pub(super) struct Follower {
    stream: Stream,
    names: Names,
    decoder: Decoder,
    windows: Windows,
    /// What was taken out of the kernel's tables, and is not named yet.
    taken: Vec<Sums>,
    request_types: usize,
    /// Names of all processes ever traced.
    processes: BTreeMap<u32, String>,
    alive: BTreeSet<u32>,
    /// Processes that had left at the last look: their last records may still be in the ring.
    left: BTreeSet<u32>,
    generations: BTreeMap<u32, u32>,
    /// Processes that are not looked at before then, for the last look took long.
    resting: BTreeMap<u32, Instant>,
    record: Vec<u8>,
    backlog: Backlog,
}

impl Follower {
    /// Begins with these processes.
    pub(super) fn new(
        stream: Stream,
        names: Names,
        request_types: usize,
        pids: &[u32],
    ) -> Result<Self> {
        let mut follower = Self {
            stream,
            names,
            decoder: Decoder::default(),
            windows: Windows::new(),
            taken: Vec::new(),
            request_types,
            processes: BTreeMap::new(),
            alive: BTreeSet::new(),
            left: BTreeSet::new(),
            generations: BTreeMap::new(),
            resting: BTreeMap::new(),
            record: Vec::new(),
            backlog: Backlog::default(),
        };
        for &pid in pids {
            let process = Process {
                space: first_space(pid),
                change: ProcessChange::Start,
                parent: 0,
                time_ns: 0,
                name: String::new(),
            };
            follower.appear(process)?;
        }
        Ok(follower)
    }

    /// Ends the stream: what the maps hold, what is open, and the end itself.
    pub(super) fn end(
        mut self,
        session: &mut Session,
        stop_ns: u64,
        ended_by: Outcome,
        (overhead, shed): (Overhead, Vec<ShedSpan>),
    ) -> Result<Stream> {
        self.names.until((Instant::now() + NAMING).into_std());
        self.window(session, stop_ns, true)?;
        for mut open in session.open_requests(stop_ns)? {
            open.request.id = self.stream.next_id();
            self.names.request(&open.request(), &mut self.stream)?;
            if let Some((site, _)) = open.blocked_in {
                let space = open.request.space;
                self.names.site(space, site, true, &mut self.stream)?;
            }
            self.stream.send(&Event::Open(&open))?;
        }
        for (name, count) in self.names.losses() {
            if count > 0 {
                self.stream.lost(name, count)?;
            }
        }
        self.stream.send(&Event::Cost(&Cost {
            overhead: Some(overhead),
            shed,
            ..session.cost()?
        }))?;
        let ended_by = ended_by.name().to_owned();
        self.stream.send(&Event::End(&End {
            stop_ns,
            ended_by,
            late_children: session.late_children(),
        }))?;
        Ok(self.stream)
    }

    /// Processes that are traced and run.
    pub(super) fn alive(&self) -> &BTreeSet<u32> {
        &self.alive
    }

    /// Follows until the time is over, a signal comes, or all targets have left.
    pub(super) async fn run(
        &mut self,
        session: &mut Session,
        duration: Option<Duration>,
        signals: &mut Signals,
        watched: &mut Watched,
    ) -> Result<Outcome> {
        let begun_ns = clock::monotonic_ns().saturating_sub(session.start_ns());
        let begun = Duration::from_nanos(begun_ns);
        let deadline = duration.map(|duration| Instant::now() + duration.saturating_sub(begun));
        if let Some(deadline) = deadline {
            self.names.until((deadline + NAMING).into_std());
        }
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut count, mut ticked) = (0_u32, 0_u32);
        let mut second = Instant::now();
        let outcome = loop {
            tokio::select! {
                biased;
                () = signals.come() => break Outcome::Interrupted,
                () = until(deadline) => break Outcome::Duration,
                ready = session.readable() => ready?,
                _ = ticks.tick() => {
                    count = count.wrapping_add(1);
                    if self.stream.is_recording() && self.windows.is_due() {
                        self.window(session, clock::monotonic_ns(), false)?;
                    }
                    if count.is_multiple_of(TICKS_PER_FLUSH) {
                        self.stream.flush();
                    }
                    if second.elapsed() >= SECOND {
                        second = Instant::now();
                        let share = watched.guarding.second(session, &self.alive)?;
                        watched.progress.overhead(share);
                    }
                    if count.is_multiple_of(TICKS_PER_LOOK) {
                        self.names.tick();
                        self.work_off(session)?;
                        watched.progress.update(self.stream.analysis());
                        self.let_go(session)?;
                        if self.alive.is_empty() {
                            break Outcome::TargetExited;
                        }
                    }
                    if count.is_multiple_of(TICKS_PER_REFRESH) {
                        self.refresh(session)?;
                    }
                }
            }
            let now_ns = clock::monotonic_ns();
            let all = self.take(session, BATCH)?;
            if self.names.is_full() || session.tables_fill_up()? {
                self.window(session, clock::monotonic_ns(), false)?;
            } else if self.backlog.is_due() {
                self.work_off(session)?;
            } else {
                continue;
            }
            if all && count.wrapping_sub(ticked) >= TICKS_PER_LOOK {
                ticked = count;
                self.stream.send(&Event::Tick(now_ns))?;
            }
        };
        Ok(outcome)
    }

    /// Takes all records that are left.
    pub(super) fn drain(&mut self, session: &mut Session) -> Result<()> {
        self.take(session, usize::MAX)?;
        self.work_off(session)
    }

    /// Takes records; true when the ring is empty then. Requests wait in the backlog.
    fn take(&mut self, session: &mut Session, most: usize) -> Result<bool> {
        let mut bytes = std::mem::take(&mut self.record);
        let mut empty = false;
        for _ in 0..most {
            if !session.next_record(&mut bytes) {
                empty = true;
                break;
            }
            match decode::record(&bytes) {
                Ok(Record::Request(request)) => self.backlog.push(request),
                Ok(Record::Process(process)) => self.process(&process, session)?,
                Ok(Record::File(file)) => self.stream.send(&Event::File(&file))?,
                Err(malformed) => malformed_record(malformed, &mut self.stream)?,
            }
        }
        self.record = bytes;
        Ok(empty)
    }

    fn process(&mut self, record: &ProcessRecord, session: &mut Session) -> Result<()> {
        debug!("process {}: event {}", record.tgid, record.event);
        let space = AddressSpace {
            tgid: record.tgid,
            exec_generation: record.exec_generation,
        };
        let mut process = Process {
            space,
            change: ProcessChange::Fork,
            parent: record.parent,
            time_ns: record.time_ns,
            name: String::new(),
        };
        match record.event {
            process_event::FORK => {
                let generation = self.generations.get(&record.parent).copied().unwrap_or(0);
                let parent = AddressSpace {
                    tgid: record.parent,
                    exec_generation: generation,
                };
                self.generations.insert(record.tgid, 0);
                session.follow(record.tgid, record.time_ns);
                session.inherit(space, parent)?;
                self.names.symbols().inherit(space, parent);
                self.appear(process)?;
            }
            process_event::EXEC => {
                self.generations.insert(record.tgid, record.exec_generation);
                session.refresh(space)?;
                self.names.symbols().remember(space);
                process.change = ProcessChange::Exec;
                self.appear(process)?;
            }
            process_event::MAPPED => self.look_at(space, session)?,
            // Whether other threads live on without the leader shows at the next look.
            _ => {
                process.change = ProcessChange::Exit;
                self.stream.send(&Event::Process(&process))?;
            }
        }
        Ok(())
    }

    /// Libraries may have been loaded since: their unwind tables and names are wanted.
    fn refresh(&mut self, session: &mut Session) -> Result<()> {
        let alive: Vec<u32> = self.alive.iter().copied().collect();
        for pid in alive {
            let exec_generation = self.generations.get(&pid).copied().unwrap_or(0);
            let space = AddressSpace {
                tgid: pid,
                exec_generation,
            };
            self.look_at(space, session)?;
        }
        Ok(())
    }

    /// What is mapped now may be gone by the report: files are opened at once.
    fn look_at(&mut self, space: AddressSpace, session: &mut Session) -> Result<()> {
        let begun = Instant::now();
        let rests = self.resting.get(&space.tgid);
        if rests.is_some_and(|until| begun < *until) {
            return Ok(());
        }
        if session.refresh(space)? {
            self.names.symbols().look_again(space);
        }
        let took = begun.elapsed();
        if took > LONG_LOOK {
            let until = begun + took * PAUSE_PER_LOOK;
            self.resting.insert(space.tgid, until);
        } else {
            self.resting.remove(&space.tgid);
        }
        Ok(())
    }

    /// A process is traced from now on, or has a new name. A child that has left by now had its
    /// parent's name.
    fn appear(&mut self, mut process: Process) -> Result<()> {
        let pid = process.space.tgid;
        self.alive.insert(pid);
        let inherited = || self.processes.get(&process.parent).cloned();
        if let Some(name) = comm(pid).or_else(inherited) {
            process.name.clone_from(&name);
            self.processes.insert(pid, name);
        }
        self.stream.send(&Event::Process(&process))
    }

    /// Forgets processes that have left. A server that forks for each connection fills the kernel's
    /// tables otherwise.
    fn let_go(&mut self, session: &mut Session) -> Result<()> {
        let mut left = BTreeSet::new();
        self.alive.retain(|&pid| {
            let alive = is_alive(pid);
            if !alive {
                left.insert(pid);
            }
            alive
        });
        let mut gone = std::mem::replace(&mut self.left, left);
        // Another process may have got the number meanwhile.
        gone.retain(|pid| !self.alive.contains(pid) && !is_alive(*pid));
        if gone.is_empty() {
            return Ok(());
        }
        self.resting.retain(|pid, _| !gone.contains(pid));
        session.forget(&gone)
    }
}

fn malformed_record(malformed: Malformed, stream: &mut Stream) -> Result<()> {
    debug!("malformed record: {malformed}");
    stream.lost(MALFORMED, 1)
}

/// Whether a process runs: there, and not only waiting to be reaped. One whose first thread has left
/// looks as if, but for its other threads.
fn is_alive(pid: u32) -> bool {
    let runs = |stat: String| {
        let state = stat
            .rsplit(") ")
            .next()
            .and_then(|rest| rest.chars().next());
        !matches!(state, Some('Z' | 'X') | None)
    };
    let threads = || std::fs::read_dir(format!("/proc/{pid}/task"));
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(runs)
        || threads().is_ok_and(|threads| threads.count() > 1)
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
