//! Follows a trace: records of the ring in, rows to the exporters out, until it ends.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use log::debug;
use reqtrace_common::record::{ProcessRecord, process_event};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use super::early;
use super::guarding::Watched;
use super::targets::comm;
use crate::aggregate::{Aggregator, StackSource};
use crate::attach::Session;
use crate::decode::Event;
use crate::decode::recording::Recorder;
use crate::decode::records::decode;
use crate::error::{Error, Result};
use crate::kernel::clock;
use crate::report::Exporter;
use crate::symbolize::AddressSpace;
use crate::symbolize::live::LiveSymbolizer;

/// How often the ring is read when the kernel does not ask for it.
const TICK: Duration = Duration::from_millis(20);
/// Ticks between two looks at progress and at whether the targets still live.
const TICKS_PER_LOOK: u32 = 10;
/// Ticks between two looks at what the targets have mapped.
const TICKS_PER_REFRESH: u32 = 50;
/// How often it is looked at what tracing takes.
const SECOND: Duration = Duration::from_secs(1);
/// Records taken at a time, so that signals are not kept waiting.
const BATCH: usize = 20_000;

/// Why a trace ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Its time was over.
    Duration,
    /// Ctrl-C or SIGTERM.
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
}

impl Signals {
    /// From now on they end the trace.
    pub(super) fn take() -> Result<Self> {
        let cannot = |error| Error::failed("signals cannot be waited for").because(error);
        let signals = Self {
            interrupt: signal(SignalKind::interrupt()).map_err(cannot)?,
            terminate: signal(SignalKind::terminate()).map_err(cannot)?,
        };
        early::is_over();
        Ok(signals)
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
pub(super) struct Follower<K: StackSource> {
    aggregator: Aggregator<LiveSymbolizer, K>,
    /// All processes ever traced, by name.
    processes: BTreeMap<u32, String>,
    alive: BTreeSet<u32>,
    /// Processes that had left at the last look: their last records may still be in the ring.
    left: BTreeSet<u32>,
    generations: BTreeMap<u32, u32>,
    record: Vec<u8>,
}

impl<K: StackSource> Follower<K> {
    pub(super) fn new(aggregator: Aggregator<LiveSymbolizer, K>, pids: &[u32]) -> Self {
        let mut follower = Self {
            aggregator,
            processes: BTreeMap::new(),
            alive: BTreeSet::new(),
            left: BTreeSet::new(),
            generations: BTreeMap::new(),
            record: Vec::new(),
        };
        for &pid in pids {
            follower.appear(pid, None);
        }
        follower
    }

    /// All processes that were traced: id and name.
    pub(super) fn processes(&self) -> Vec<(u32, String)> {
        self.processes
            .iter()
            .map(|(&pid, name)| (pid, name.clone()))
            .collect()
    }

    /// Processes that are traced and run.
    pub(super) fn alive(&self) -> &BTreeSet<u32> {
        &self.alive
    }

    pub(super) fn into_aggregator(self) -> Aggregator<LiveSymbolizer, K> {
        self.aggregator
    }

    /// Follows until the time is over, a signal comes, or all targets have left.
    pub(super) async fn run(
        &mut self,
        session: &mut Session,
        exporters: &mut [Box<dyn Exporter>],
        mut recorder: Option<&mut Recorder>,
        duration: Option<Duration>,
        signals: &mut Signals,
        watched: &mut Watched,
    ) -> Result<Outcome> {
        let deadline = duration.map(|duration| Instant::now() + duration);
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut count = 0_u32;
        let mut second = Instant::now();
        let outcome = loop {
            tokio::select! {
                biased;
                _ = signals.interrupt.recv() => break Outcome::Interrupted,
                _ = signals.terminate.recv() => break Outcome::Interrupted,
                () = until(deadline) => break Outcome::Duration,
                ready = session.readable() => ready?,
                _ = ticks.tick() => {
                    count = count.wrapping_add(1);
                    if second.elapsed() >= SECOND {
                        second = Instant::now();
                        let share = watched.guarding.second(session, &self.alive)?;
                        watched.progress.overhead(share);
                    }
                    if count.is_multiple_of(TICKS_PER_LOOK) {
                        let (complete, incomplete) = self.aggregator.requests();
                        watched.progress.update(complete + incomplete, self.aggregator.p99_ns());
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
            self.take(session, exporters, recorder.as_deref_mut(), BATCH)?;
            self.aggregator.advance(clock::monotonic_ns(), exporters)?;
        };
        // A second Ctrl-C ends the program at once; the kernel takes the probes out by itself.
        // SAFETY: the default action is a valid disposition, and no handler of ours is lost that
        // is still wanted.
        unsafe {
            libc::signal(libc::SIGINT, libc::SIG_DFL);
        }
        Ok(outcome)
    }

    /// Takes all records that are left.
    pub(super) fn drain(
        &mut self,
        session: &mut Session,
        exporters: &mut [Box<dyn Exporter>],
        recorder: Option<&mut Recorder>,
    ) -> Result<()> {
        self.take(session, exporters, recorder, usize::MAX)
    }

    fn take(
        &mut self,
        session: &mut Session,
        exporters: &mut [Box<dyn Exporter>],
        mut recorder: Option<&mut Recorder>,
        most: usize,
    ) -> Result<()> {
        let mut record = std::mem::take(&mut self.record);
        for _ in 0..most {
            if !session.next_record(&mut record) {
                break;
            }
            if let Some(recorder) = recorder.as_deref_mut() {
                recorder.ring(&record);
            }
            match decode(&record) {
                Ok(Event::Request(request)) => self.aggregator.request(&request, exporters)?,
                Ok(Event::Process(process)) => self.process(&process, session)?,
                Ok(Event::File(file)) => self.aggregator.file(&file),
                Err(malformed) => self.aggregator.malformed(malformed),
            }
        }
        self.record = record;
        Ok(())
    }

    fn process(&mut self, record: &ProcessRecord, session: &mut Session) -> Result<()> {
        debug!("process {}: event {}", record.tgid, record.event);
        let space = AddressSpace {
            tgid: record.tgid,
            exec_generation: record.exec_generation,
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
                self.aggregator.symbolizer().inherit(space, parent);
                self.appear(record.tgid, Some(record.parent));
            }
            process_event::EXEC => {
                self.generations.insert(record.tgid, record.exec_generation);
                session.refresh(space)?;
                self.aggregator.symbolizer().remember(space);
                self.appear(record.tgid, None);
            }
            process_event::MAPPED => self.look_at(space, session)?,
            // Whether other threads live on without the leader shows at the next look.
            _ => {}
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
        if session.refresh(space)? {
            self.aggregator.symbolizer().look_again(space);
        }
        Ok(())
    }

    /// A process is traced from now on, or has a new name. A child that has left by now had its
    /// parent's name.
    fn appear(&mut self, pid: u32, parent: Option<u32>) {
        self.alive.insert(pid);
        let inherited = || self.processes.get(&parent?).cloned();
        if let Some(name) = comm(pid).or_else(inherited) {
            self.aggregator.process(pid, &name);
            self.processes.insert(pid, name);
        } else {
            self.processes.entry(pid).or_insert_with(|| "?".to_owned());
        }
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
        session.forget(&gone)
    }
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
