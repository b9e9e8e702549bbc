//! Looks at what tracing takes, once a second, and sheds when it is too much: a session in, spans of
//! the report out.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::attach::Session;
use crate::attach::guard::{Guard, Shed};
use crate::events::Notices;
use crate::kernel::usage::Usage;
use crate::tracer::processes::Processes;
use reqtrace_base::error::Result;
use reqtrace_base::figures::range;
use reqtrace_recording::{Overhead, ShedSpan};

/// The most that is shed: fewer requests would say nothing.
const DEEPEST: Shed = Shed::Sample(256);

/// How often it looks.
const SECOND: Duration = Duration::from_secs(1);

/// What a trace takes, and what it leaves out because of that.
pub(super) struct Guarding {
    guard: Guard,
    limit: f64,
    /// See [`Cost::cold_percent`](reqtrace_recording::Cost::cold_percent).
    cold_percent: u32,
    usage: Usage,
    last: Overhead,
    /// Of the last whole second.
    shares: Option<[f64; 2]>,
    next: Instant,
    spans: Vec<ShedSpan>,
    notices: Notices,
}

impl Guarding {
    /// `limit` in percent.
    pub(super) fn new(
        limit: f64,
        cold_percent: u32,
        pids: &BTreeSet<u32>,
        notices: Notices,
    ) -> Self {
        Self {
            guard: Guard::new(limit / 100.0, DEEPEST),
            limit,
            cold_percent,
            usage: Usage::since_now(pids),
            last: Overhead::default(),
            shares: None,
            next: Instant::now() + SECOND,
            spans: Vec::new(),
            notices,
        }
    }

    /// Looks, if a second is over.
    pub(super) fn look(&mut self, session: &mut Session, alive: &BTreeSet<u32>) -> Result<()> {
        if Instant::now() < self.next {
            return Ok(());
        }
        self.next = Instant::now() + SECOND;
        let now = self.measure(session, alive)?;
        let second = now.since(&self.last);
        self.last = now;
        if let Some(span) = self.spans.last_mut()
            && self.guard.shed() != Shed::Nothing
        {
            span.to_ns = now.elapsed_ns;
        }
        if let Some(shed) = self.guard.second(second.guarded_share(self.cold_percent)) {
            session.shed(shed)?;
            self.say(shed, &second, now.elapsed_ns);
            if let Some(what) = left_out(shed) {
                self.spans.push(ShedSpan {
                    what,
                    from_ns: now.elapsed_ns,
                    to_ns: now.elapsed_ns,
                });
            }
        }
        self.shares = Some(second.shares(self.cold_percent));
        Ok(())
    }

    /// Share of the processes' CPU time that tracing took in the last whole second, 0 to 1: at least, and at most.
    pub(super) fn shares(&self) -> Option<[f64; 2]> {
        self.shares
    }

    /// A process is traced from now on that ran before.
    pub(super) fn came(&mut self, pid: u32) {
        self.usage.came(pid);
    }

    /// Processes have left, and their entries in the kernel go next.
    pub(super) fn left(&mut self, session: &Session, pids: &BTreeSet<u32>) {
        for &pid in pids {
            self.usage.left(pid, session.ended_ns(pid));
        }
    }

    /// The trace is over: all that it took, and what was left out when.
    pub(super) fn finish(
        mut self,
        session: &Session,
        processes: &Processes,
    ) -> Result<(Overhead, Vec<ShedSpan>)> {
        self.left(session, processes.leaving());
        let now = self.measure(session, processes.alive())?;
        if let Some(span) = self.spans.last_mut()
            && self.guard.shed() != Shed::Nothing
        {
            span.to_ns = now.elapsed_ns;
        }
        Ok((now, self.spans))
    }

    fn measure(&mut self, session: &Session, alive: &BTreeSet<u32>) -> Result<Overhead> {
        let mut now = session.overhead()?;
        now.processes_ns = self.usage.update(alive).as_nanos() as u64;
        Ok(now)
    }

    fn say(&self, shed: Shed, second: &Overhead, elapsed_ns: u64) {
        let (limit, at) = (self.limit, elapsed_ns as f64 / 1e9);
        let takes = range(second.shares(self.cold_percent));
        let own = second.tracer_ns as f64 * 100.0 / second.elapsed_ns.max(1) as f64;
        let takes = format!(
            "at {at:.1} s tracing takes {takes} of the processes' CPU time, and reqtrace itself {own:.1} % of a CPU"
        );
        match left_out(shed) {
            Some(what) => self.notices.note(format_args!(
                "{takes}; --max-overhead is {limit} %: left out from now on: {what}"
            )),
            None => self
                .notices
                .note(format_args!("{takes}: all is recorded again")),
        }
    }
}

/// The words for what is left out.
fn left_out(shed: Shed) -> Option<String> {
    match shed {
        Shed::Nothing => None,
        Shed::Stacks => Some("stacks".to_owned()),
        Shed::Sample(every) => Some(format!("stacks, and {} of {every} requests", every - 1)),
    }
}
