//! A trace that is analysed later: events in on the thread that reads the kernel's ring, the report out on another one.
//!
//! That one works where a CPU has nothing else to do, and when tracing is over. So what makes a report takes no CPU from
//! servers that need them all: they are traced for the price of reading and compressing records. What waits is bounded;
//! beyond [`BEHIND`] it is analysed at once.

use std::fs;
use std::ops::ControlFlow;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use reqtrace_analysis::aggregate::Aggregator;
use reqtrace_base::error::{Error, Result};
use reqtrace_capture::events::EventSink;
use reqtrace_output::outputs::{self, BoxedExporter};
use reqtrace_recording::{Deferred, Event, Feeder, deferred};

use super::observer::Watcher;
use super::seen::Seen;
use super::sinks::{Analysed, finish};

/// Bytes of events that wait until a CPU is idle: those of 800,000 requests with blame, of three million without.
const BEHIND: usize = 32 << 20;

/// Bytes of events that may wait at all: then the ring does.
const MOST: usize = 2 * BEHIND;

/// CPUs have nothing else to do while so much of one is idle.
const IDLE: f64 = 0.5;

/// How long that is measured.
const MEASURED: Duration = Duration::from_secs(1);

/// How often is looked whether the report is made.
const LOOKS: Duration = Duration::from_millis(20);

/// Who waits longer for the report gets to know how far it is.
const PATIENCE: Duration = Duration::from_secs(1);

/// Keeps events for the thread that makes the report.
pub(super) struct Later<'a> {
    /// `None` when all has come. It goes before the thread is waited for, which ends with it.
    feeder: Option<Feeder>,
    analyst: Analyst,
    pace: Pace,
    seen: Seen,
    watcher: &'a mut dyn Watcher,
    ended: Option<Instant>,
}

/// The thread that makes the report.
struct Analyst(Option<JoinHandle<Analysed>>);

impl<'a> Later<'a> {
    /// Starts the thread. With `at_once` nothing waits for an idle CPU: somebody reads rows while they are made.
    pub(super) fn start(
        analysis: Aggregator,
        exporters: Vec<BoxedExporter>,
        at_once: bool,
        watcher: &'a mut dyn Watcher,
    ) -> Result<Self> {
        let failed = |error| Error::failed("events cannot be kept for the report").because(error);
        let (feeder, deferred) = deferred(MOST).map_err(failed)?;
        Ok(Self {
            feeder: Some(feeder),
            analyst: Analyst::start(analysis, exporters, deferred).map_err(failed)?,
            pace: Pace::new(at_once),
            seen: Seen::new(watcher.wants_latencies()),
            watcher,
            ended: None,
        })
    }

    /// When tracing was over; `None` while it runs.
    pub(super) fn ended_at(&self) -> Option<Instant> {
        self.ended
    }

    /// Waits for the report.
    ///
    /// # Errors
    ///
    /// When there can be no report.
    pub(super) fn finish(mut self) -> Analysed {
        if let Some(mut feeder) = self.feeder.take() {
            let fed = feeder.finish();
            self.fed(fed)?;
            self.watch(&feeder);
        }
        self.analyst.finish()
    }

    /// Lets the watcher know how far the report is, if that takes long.
    fn watch(&mut self, fed: &Feeder) {
        let (since, all) = (Instant::now(), fed.waiting().max(1));
        while !self.analyst.has_finished() {
            thread::sleep(LOOKS);
            if since.elapsed() > PATIENCE {
                let share = 1.0 - fed.waiting() as f64 / all as f64;
                self.watcher.reporting(share);
            }
        }
    }

    /// Goes on after something was given to the thread.
    fn fed(&mut self, fed: std::io::Result<()>) -> Result<()> {
        let Err(error) = fed else { return Ok(()) };
        self.feeder = None;
        // It leaves before all has come only with an error of its own.
        self.analyst.finish().map(drop)?;
        Err(Error::failed("events cannot be kept for the report").because(error))
    }
}

impl EventSink for Later<'_> {
    fn event(&mut self, event: &Event<'_>) -> Result<ControlFlow<()>> {
        self.seen.take(event);
        let fed = self.feeder.as_mut().map(|feeder| feeder.event(event));
        self.fed(fed.unwrap_or(Ok(())))?;
        Ok(ControlFlow::Continue(()))
    }

    fn look(&mut self, overhead: Option<[f64; 2]>) {
        self.watcher.look(&self.seen, overhead);
        let Some(feeder) = &mut self.feeder else {
            return;
        };
        let waiting = feeder.waiting();
        let is_open = self.pace.is_open(waiting);
        feeder.open(is_open);
        // Blocks get full where the thread is behind. If it has left, the next event tells.
        if is_open && waiting == 0 {
            let _ = feeder.flush();
        }
    }

    fn ended(&mut self) {
        self.ended = Some(Instant::now());
        if let Some(feeder) = &mut self.feeder {
            feeder.open(true);
        }
        self.pace.at_once = true;
        self.watcher.ended();
    }
}

impl Drop for Analyst {
    /// A trace that failed has no report, and what was written of it is taken away.
    fn drop(&mut self) {
        let _ = self.0.take().map(JoinHandle::join);
    }
}

impl Analyst {
    fn has_finished(&self) -> bool {
        self.0.as_ref().is_none_or(JoinHandle::is_finished)
    }

    fn start(
        mut analysis: Aggregator,
        exporters: Vec<BoxedExporter>,
        deferred: Deferred,
    ) -> std::io::Result<Self> {
        let work = move || {
            // Files in folders of other users get their names at the end.
            outputs::give_up_privileges_but_files();
            let mut exporters = outputs::settled(exporters);
            let read = deferred.read(|event| analysis.event(&event, &mut exporters));
            let failed = |error| Error::failed("the trace cannot be reported").because(error);
            read.map_err(failed)??;
            finish(analysis, exporters)
        };
        let thread = thread::Builder::new().name("analyst".to_owned());
        Ok(Self(Some(thread.spawn(work)?)))
    }

    fn finish(&mut self) -> Analysed {
        let panicked = || Error::failed("the thread that makes the report has panicked");
        let joined = self.0.take().map(JoinHandle::join);
        joined
            .and_then(Result::ok)
            .unwrap_or_else(|| Err(panicked()))
    }
}

/// Decides when the thread may work.
struct Pace {
    at_once: bool,
    idle: IdleCpus,
    is_idle: bool,
    is_behind: bool,
}

impl Pace {
    fn new(at_once: bool) -> Self {
        Self {
            at_once,
            idle: IdleCpus::new(),
            is_idle: false,
            is_behind: false,
        }
    }

    /// Whether it may while so many bytes wait.
    fn is_open(&mut self, waiting: usize) -> bool {
        self.is_behind = match self.is_behind {
            true => waiting > BEHIND / 2,
            false => waiting > BEHIND,
        };
        if let Some(idle) = self.idle.measure() {
            self.is_idle = idle >= IDLE;
        }
        self.at_once || self.is_behind || self.is_idle
    }
}

/// How many CPUs have had nothing to do.
struct IdleCpus {
    since: Instant,
    /// Of all CPUs since boot, seconds; `None` where that cannot be read.
    idle: Option<f64>,
}

impl IdleCpus {
    fn new() -> Self {
        Self {
            since: Instant::now(),
            idle: idle_seconds(),
        }
    }

    /// In the mean of the last second, once a second. Where that is not known, all have: nothing waits.
    fn measure(&mut self) -> Option<f64> {
        let passed = self.since.elapsed();
        if passed < MEASURED {
            return None;
        }
        let before = std::mem::replace(self, Self::new());
        let more = before.idle.zip(self.idle).map(|(before, now)| now - before);
        Some(more.map_or(f64::INFINITY, |more| more / passed.as_secs_f64()))
    }
}

/// Seconds in which CPUs had nothing to do, since boot: the fields `idle` and `iowait` of `/proc/stat` (proc_stat(5)).
fn idle_seconds() -> Option<f64> {
    const IDLE: usize = 3;
    let stat = fs::read_to_string("/proc/stat").ok()?;
    let all = stat.lines().next()?.strip_prefix("cpu ")?;
    let times = all.split_whitespace().skip(IDLE).take(2);
    let ticks: u64 = times.map(str::parse::<u64>).sum::<Result<_, _>>().ok()?;
    Some(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}
