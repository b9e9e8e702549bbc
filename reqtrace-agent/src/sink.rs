//! What a session makes of its model: windows and requests in, as the analysis gives them; figures of the metrics and
//! of roll-ups, rows and spans out. Nothing here asks the kernel or a clock.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use reqtrace_analysis::classify::columns::Columns;
use reqtrace_analysis::report::{Exporter, Ledger, Places};
use reqtrace_base::error::Result;
use reqtrace_capture::attach::guard::Shed;
use reqtrace_output::pprof::NamesOfTimes;
use reqtrace_output::rollups::Rollup;
use reqtrace_profile::Profiles;

use crate::metrics::{Closed, Metrics, Shown, parts};
use crate::moment::Moment;
use crate::open_windows::{Open, Windows};
use crate::otlp::{self, About, Spans, SpansExporter};
use crate::profiles::{self, StacksExporter};
use crate::records::{Of, Way};
use crate::rollups::Rollups;
use crate::rows::{Chosen, Queue, RowsExporter};

/// Windows that begin so long after the one that is open were named before the clock was set back: no more come.
const AHEAD_NS: u64 = 60_000_000_000;

/// Where its figures and rows go.
#[derive(Clone, Debug)]
pub(crate) struct Outputs {
    pub(crate) metrics: Arc<Metrics>,
    /// `None`: no rows are kept.
    pub(crate) rows: Option<Queue>,
    /// `None`: there are no roll-ups.
    pub(crate) rollups: Option<Way<Rollup>>,
    /// `None`: no spans are sent.
    pub(crate) spans: Option<otlp::Queue>,
    /// `None`: no profiles are made.
    pub(crate) stacks: Option<profiles::Queue>,
}

/// What a session is about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Served<'a> {
    pub(crate) service: &'a str,
    /// The profile's name.
    pub(crate) profile: &'a str,
    /// `uname -r`.
    pub(crate) kernel: &'a str,
    pub(crate) profiles: &'a Profiles,
    /// Root causes are found.
    pub(crate) has_causes: bool,
    /// Rows and spans have texts.
    pub(crate) texts: bool,
    pub(crate) window: Duration,
    /// When it began.
    pub(crate) begin: Moment,
    /// How many groups are distinguished; `None`: requests are in none.
    pub(crate) most_groups: Option<u32>,
}

/// Hands on what comes of a model.
pub(crate) struct Sink {
    service: String,
    metrics: Arc<Metrics>,
    classes: Vec<String>,
    places: Places,
    most_groups: Option<u32>,
    begin: Moment,
    window_ns: u64,
    open: Rc<RefCell<Open>>,
    chosen: Option<Rc<RefCell<Chosen>>>,
    rollups: Option<RefCell<Rollups>>,
    spans: Option<Rc<RefCell<Spans>>>,
    exporters: Vec<Box<dyn Exporter>>,
}

impl Sink {
    /// Begins one: its request types are shown from now on.
    ///
    /// # Errors
    ///
    /// When a wait of the profiles is malformed.
    pub(crate) fn new(served: &Served<'_>, outputs: &Outputs) -> Result<Self> {
        let columns = Columns::of(served.profiles)?;
        let (classes, places) = (columns.classes.clone(), columns.places.clone());
        let empty = Ledger::of(classes.len(), &places);
        let names: Vec<String> = parts(&empty, &classes, &places)
            .map(|(name, _)| name)
            .collect();
        let (service, types) = (served.service, served.profiles.request_names());
        let metrics = Arc::clone(&outputs.metrics);
        let shown = Shown {
            parts: &names,
            has_causes: served.has_causes,
            has_groups: served.most_groups.is_some(),
        };
        metrics.begin(service, &types, &shown);
        let window_ns = u64::try_from(served.window.as_nanos()).unwrap_or(u64::MAX);
        let open = Rc::default();
        let mut exporters: Vec<Box<dyn Exporter>> = vec![Box::new(Windows {
            window_ns,
            open: Rc::clone(&open),
            has_groups: served.most_groups.is_some(),
        })];
        let spans = outputs.spans.as_ref().map(|queue| {
            let about = About {
                service: service.to_owned(),
                classes: classes.clone(),
                places: places.clone(),
                attributes: columns.attributes.clone(),
                texts: served.texts,
            };
            Rc::new(RefCell::new(Spans::new(about, queue.clone())))
        });
        if let Some(queue) = &outputs.stacks {
            let about = profiles::About {
                service: service.to_owned(),
                names: NamesOfTimes {
                    classes: classes.clone(),
                    places: places.clone(),
                },
            };
            exporters.push(Box::new(StacksExporter::new(about, queue.clone())));
        }
        let of = Of {
            service: service.to_owned(),
            profile: served.profile.to_owned(),
            kernel: served.kernel.to_owned(),
            columns,
            has_causes: served.has_causes,
            texts: served.texts,
            most_groups: served.most_groups,
        };
        let rollups = outputs.rollups.as_ref().map(|way| {
            RefCell::new(Rollups::new(
                of.clone(),
                way.clone(),
                served.begin,
                window_ns,
            ))
        });
        let chosen = outputs
            .rows
            .as_ref()
            .map(|queue| Rc::new(RefCell::new(Chosen::new(of, queue.clone()))));
        if let Some(chosen) = &chosen {
            exporters.push(Box::new(RowsExporter(Rc::clone(chosen))));
        }
        if let Some(spans) = &spans {
            exporters.push(Box::new(SpansExporter(Rc::clone(spans))));
        }
        Ok(Self {
            service: service.to_owned(),
            metrics,
            classes,
            places,
            most_groups: served.most_groups,
            begin: served.begin,
            window_ns,
            open,
            chosen,
            rollups,
            spans,
            exporters,
        })
    }

    /// Whose it is.
    pub(crate) fn service(&self) -> &str {
        &self.service
    }

    /// What takes its windows and requests.
    pub(crate) fn exporters(&mut self) -> &mut [Box<dyn Exporter>] {
        &mut self.exporters
    }

    /// Something of its service was lost.
    pub(crate) fn lost(&self, cause: &str, count: u64) {
        self.metrics.lost(&self.service, cause, count);
        if let Some(rollups) = &self.rollups {
            rollups.borrow_mut().lost(count);
        }
    }

    /// Tracing takes so much of its service's CPU time now.
    pub(crate) fn cost(&self, share: f64) {
        self.metrics.cost(&self.service, share);
    }

    /// So much is left out from this time on, `CLOCK_MONOTONIC` ns, because tracing took too much.
    pub(crate) fn shed(&self, shed: Shed, from_ns: u64) {
        self.metrics.shed(&self.service, shed);
        if let Some(rollups) = &self.rollups {
            rollups.borrow_mut().shed(shed, from_ns);
        }
    }

    /// So many requests are open now, the first since so long.
    pub(crate) fn open(&self, count: u64, oldest_ns: u64) {
        self.metrics.open(&self.service, count, oldest_ns);
    }

    /// Some time has passed.
    pub(crate) fn look(&self) {
        if let Some(chosen) = &self.chosen {
            chosen.borrow_mut().look();
        }
        if let Some(spans) = &self.spans {
            spans.borrow_mut().look();
        }
    }

    /// Closes windows that end until then: nothing that ended before comes any more.
    pub(crate) fn close(&self, until: Moment) {
        let until = until.before(until.unix_ns % self.window_ns);
        let next_ns = until.unix_ns;
        let mut open = self.open.borrow_mut();
        let mut later = open.split_off(&next_ns);
        let ahead_ns = next_ns.saturating_add(self.window_ns + AHEAD_NS);
        let ahead = later.split_off(&ahead_ns);
        let mut closed = std::mem::replace(&mut *open, later);
        closed.extend(ahead);
        // Before it began the session of before was there.
        if !closed.is_empty() || until.monotonic_ns > self.begin.monotonic_ns {
            self.hand_over(closed, until);
        }
    }

    /// Closes all windows: no more come.
    pub(crate) fn close_all(&self, until: Moment) {
        self.hand_over(self.open.take(), until);
    }

    fn hand_over(&self, closed: Open, until: Moment) {
        if let Some(rollups) = &self.rollups {
            let windows = closed.iter().map(|(begin_ns, types)| (*begin_ns, types));
            rollups.borrow_mut().closed(windows, until);
        }
        let mut types: Vec<(String, Closed)> = closed.into_values().flatten().collect();
        for (_, of_type) in &mut types {
            of_type.name_parts(&self.classes, &self.places);
        }
        let types = types.iter().map(|(name, closed)| (name, closed));
        let most_groups = self.most_groups.unwrap_or(0) as usize;
        self.metrics
            .closed(&self.service, until.unix_ns, most_groups, types);
    }

    /// No more rows come.
    pub(crate) fn end(self) {
        if let Some(chosen) = &self.chosen {
            chosen.borrow_mut().end();
        }
        if let Some(rollups) = &self.rollups {
            rollups.borrow().end();
        }
    }
}
