//! Live: what happens while a trace runs in; a screen that is drawn each second out.
//!
//! The thread that reads the kernel's ring makes a [`Snapshot`] each second, of sums that are there
//! anyway, and goes on. Another thread draws it and reads keys.

mod draw;
mod recent;
mod screen;
mod snapshot;
mod stacks;
mod state;
pub(crate) mod terminal;
mod verdict;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use reqtrace_analysis::aggregate::Aggregator;
use reqtrace_recording::Event;

use crate::analysed::Observer;
use reqtrace_base::error::Result;
use reqtrace_capture::attach::Running;
use reqtrace_capture::tracer::Stopper;

use recent::Recent;
use screen::Screen;
use snapshot::Snapshot;
use stacks::StackCache;
pub(crate) use terminal::Prepared;
use verdict::VerdictCache;

/// What is traced, for the first line.
#[derive(Clone, Debug, Default)]
pub(crate) struct Title {
    /// Name of the profile.
    pub(crate) profile: String,
    /// Processes by name and PID.
    pub(crate) processes: String,
    /// How long it is to last.
    pub(crate) duration: Option<Duration>,
}

/// Looks on, and shows.
pub(crate) struct Live {
    title: Arc<Title>,
    screen: Screen,
    recent: Recent,
    stacks: StackCache,
    verdict: VerdictCache,
    started: Instant,
    overhead: Option<[f64; 2]>,
}

impl Live {
    /// Looks whether the terminal can show it. Call it early: see [`Prepared`].
    ///
    /// # Errors
    ///
    /// [`reqtrace_base::error::Kind::Usage`] when it cannot, with what to do.
    pub(crate) fn prepare() -> Result<Prepared> {
        Prepared::new()
    }

    /// Takes the terminal, until it is dropped or the trace ends. `stopper` ends the trace when the user
    /// wants that.
    ///
    /// # Errors
    ///
    /// When the terminal cannot be used.
    pub(crate) fn start(terminal: Prepared, title: Title, stopper: Stopper) -> Result<Self> {
        Ok(Self {
            title: Arc::new(title),
            screen: Screen::start(terminal, stopper)?,
            recent: Recent::default(),
            stacks: StackCache::default(),
            verdict: VerdictCache::default(),
            started: Instant::now(),
            overhead: None,
        })
    }
}

impl Observer for Live {
    fn event(&mut self, event: &Event<'_>, model: &Aggregator) -> ControlFlow<()> {
        if let Event::Request(request) = event {
            self.recent.request(request, model);
        }
        ControlFlow::Continue(())
    }

    fn look(&mut self, _model: &Aggregator, overhead: Option<[f64; 2]>) {
        self.overhead = overhead;
    }

    fn wants_running(&self) -> bool {
        true
    }

    fn running(&mut self, requests: &[Running], all: usize, now_ns: u64, model: &Aggregator) {
        let now = Instant::now();
        self.recent.turn(now, model);
        let wanted = self.screen.wants_stacks();
        let running = snapshot::running(requests, now_ns, model);
        let held = model.held_now(now_ns);
        let held = held.map(|held| (snapshot::held(&held, &model.classes()), held.1));
        let held = held.into_iter().chain(snapshot::holds(&running));
        let snapshot = Snapshot {
            title: Arc::clone(&self.title),
            elapsed: now.duration_since(self.started),
            overhead: self.overhead,
            losses: model.losses_now(),
            notices: reqtrace_base::say::held(),
            verdict: self.verdict.of(model),
            held: held.max_by_key(|(_, ns)| *ns).map(|(sentence, _)| sentence),
            types: self.recent.types(requests),
            running,
            all_running: all,
            statements: self.recent.statements(model),
            ended: self.recent.ended(),
            slowest: self.recent.slowest(now),
            stacks: self.stacks.of(wanted, model),
        };
        self.screen.show(snapshot);
    }

    fn ended(&mut self) {
        self.screen.leave();
    }
}
