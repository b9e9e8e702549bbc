//! Looks at what tracing takes, once a second, and sheds when it is too much: a session in, what its follower is to do and spans
//! of the report out.

mod foreign;
mod windows;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::attach::Session;
use crate::attach::guard::{Guard, Ladder, Shed};
use crate::events::Notices;
use crate::kernel::usage::Usage;
use crate::tracer::processes::Processes;
use reqtrace_base::error::Result;
use reqtrace_base::figures::range;
use reqtrace_recording::{Overhead, ShedSpan};

use foreign::Foreign;
use windows::TracedWindows;

/// How often it looks.
const SECOND: Duration = Duration::from_secs(1);
/// Spans of the report: a trace that swings for days has more, and whoever reads one refuses much longer lists.
const MAX_SPANS: usize = 1000;

/// What may be taken, and what is shed above that.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limit {
    /// In percent.
    pub(super) percent: f64,
    /// See [`Cost::cold_percent`](reqtrace_recording::Cost::cold_percent).
    pub(super) cold_percent: u32,
    /// Length of the windows of which some are not traced; `None`: all time is.
    pub(super) window: Option<Duration>,
    /// Whether requests are not left out one by one.
    pub(super) wants_all: bool,
}

impl Limit {
    /// The share of this time that is held against the limit. A session that lasts takes a share of what the service takes: one
    /// that is watched for minutes may take an idle CPU's time.
    fn share(&self, of: &Overhead) -> f64 {
        match self.window {
            Some(_) => of.lasting_share(self.cold_percent),
            None => of.guarded_share(self.cold_percent),
        }
    }

    /// What a user calls it.
    fn name(&self) -> &'static str {
        match self.window {
            Some(_) => "max-cost",
            None => "--max-overhead",
        }
    }
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Tracing is suspended.
    Off,
    /// It goes on. Each request stands for so many.
    On(u32),
    /// Probes are to be set for each process by itself.
    Apart,
    /// It is given up.
    Over,
}

/// What a trace takes, and what it leaves out because of that.
pub(super) struct Guarding {
    guard: Guard,
    limit: Limit,
    usage: Usage,
    last: Overhead,
    /// Of the last whole second.
    shares: Option<[f64; 2]>,
    next: Instant,
    /// Only while windows are left out.
    windows: Option<TracedWindows>,
    spans: Vec<ShedSpan>,
    foreign: Foreign,
    notices: Notices,
}

impl Guarding {
    pub(super) fn new(limit: Limit, pids: &BTreeSet<u32>, notices: Notices) -> Self {
        let ladder = match limit {
            Limit { window: None, .. } => Ladder::Requests,
            Limit {
                wants_all: true, ..
            } => Ladder::Time,
            _ => Ladder::RequestsAndTime,
        };
        Self {
            guard: Guard::new(limit.percent / 100.0, ladder),
            limit,
            usage: Usage::since_now(pids),
            last: Overhead::default(),
            shares: None,
            next: Instant::now() + SECOND,
            windows: None,
            spans: Vec::new(),
            foreign: Foreign::default(),
            notices,
        }
    }

    /// Looks, if a second is over.
    pub(super) fn look(
        &mut self,
        session: &mut Session,
        alive: &BTreeSet<u32>,
    ) -> Result<Option<Turn>> {
        if Instant::now() < self.next {
            return Ok(None);
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
        self.shares = Some(second.shares(self.limit.cold_percent));
        let share = self.limit.share(&second);
        let changed = match &mut self.windows {
            Some(windows) => match windows.second(share) {
                Some(mean) => self.guard.window(mean),
                None => None,
            },
            // A ladder without windows does not ask for the traps.
            None => self.guard.second(share, second.lasting_traps()),
        };
        if let Some(shed) = changed {
            session.shed(shed)?;
            self.say(shed, &second, now.elapsed_ns);
            if let Some(what) = self.left_out(shed) {
                begin_span(&mut self.spans, what, now.elapsed_ns);
            }
        }
        let foreign_ns = session.foreign_ns()?;
        if let Some(share) = self.foreign.second(foreign_ns, second.elapsed_ns) {
            return Ok(self.set_apart(share).or_else(|| self.turn()));
        }
        Ok(self.turn())
    }

    /// Others pay too much. A trace that lasts may set its probes again.
    fn set_apart(&self, share: f64) -> Option<Turn> {
        let takes = format!(
            "probes take {:.1} % of a CPU of other processes that run the same program",
            share * 100.0
        );
        if self.limit.window.is_none() {
            self.notices.warn(format_args!(
                "{takes} and are not traced: trace them too, or a copy of the program"
            ));
            return None;
        }
        self.notices.note(format_args!(
            "{takes} and are not traced: from now on probes are set for each traced process by itself"
        ));
        Some(Turn::Apart)
    }

    /// What the last decision, or the end of a window, asks for.
    fn turn(&mut self) -> Option<Turn> {
        if self.guard.shed() == Shed::All {
            return Some(Turn::Over);
        }
        let Some((of, length)) = self.guard.windows().zip(self.limit.window) else {
            // Windows are left out no longer.
            return self.windows.take().map(|_| Turn::On(1));
        };
        let windows = self.windows.get_or_insert_with(TracedWindows::new);
        windows.next(of, length)
    }

    /// What is shed.
    pub(super) fn shed(&self) -> Shed {
        self.guard.shed()
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
        let (limit, at) = (self.limit.percent, elapsed_ns as f64 / 1e9);
        let takes = range(second.shares(self.limit.cold_percent));
        let own = second.tracer_ns as f64 * 100.0 / second.elapsed_ns.max(1) as f64;
        let takes = format!(
            "at {at:.1} s tracing takes {takes} of the processes' CPU time, and reqtrace itself {own:.1} % of a CPU"
        );
        match self.left_out(shed) {
            Some(what) => self.notices.note(format_args!(
                "{takes}; {} is {limit} %: left out from now on: {what}",
                self.limit.name()
            )),
            None => self
                .notices
                .note(format_args!("{takes}: all is recorded again")),
        }
    }

    /// The words for what is left out.
    fn left_out(&self, shed: Shed) -> Option<String> {
        let length = self.limit.window.unwrap_or_default().as_secs();
        match shed {
            Shed::Nothing => None,
            Shed::Stacks => Some("stacks".to_owned()),
            Shed::Sample(every) => Some(format!("stacks, and {} of {every} requests", every - 1)),
            Shed::Windows(of) => Some(format!(
                "stacks, and {} of {of} windows of {length} s",
                of - 1
            )),
            Shed::All => Some("everything".to_owned()),
        }
    }
}

/// So much is left out from now on, ns from the start. When there are too many spans the last one goes on, and has what is
/// between them too.
fn begin_span(spans: &mut Vec<ShedSpan>, what: String, now_ns: u64) {
    let is_full = spans.len() >= MAX_SPANS;
    let Some(last) = spans.last_mut().filter(|_| is_full) else {
        spans.push(ShedSpan {
            what,
            from_ns: now_ns,
            to_ns: now_ns,
        });
        return;
    };
    last.to_ns = now_ns;
    if !last.what.contains(&what) {
        last.what.push_str(", or ");
        last.what.push_str(&what);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_very_many_spans_has_all_that_comes() {
        let mut spans = Vec::new();
        for at_ns in 0..3000 {
            let what = match at_ns {
                1500 => "stacks, and 3 of 4 requests",
                _ => "stacks",
            };
            begin_span(&mut spans, what.to_owned(), at_ns);
        }
        assert_eq!(spans.len(), MAX_SPANS);
        let last = &spans[MAX_SPANS - 1];
        assert_eq!((last.from_ns, last.to_ns), (999, 2999));
        assert_eq!(last.what, "stacks, or stacks, and 3 of 4 requests");
        assert_eq!((spans[0].to_ns, spans[0].what.as_str()), (0, "stacks"));
    }
}
