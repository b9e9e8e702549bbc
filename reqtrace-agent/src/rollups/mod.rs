//! Roll-ups: closed windows of sessions in; the same figures, as [records](crate::records) that are added up by minute, out.
//!
//! ```text
//! session ──► sink: window closed ──┬──► metrics
//!                                   └──► records: way (bounded) ══► writer: Σ by minute, level, type and group
//! ```
//!
//! A window goes on its way when the metrics have it, so that a killed agent loses no window that they had. They become a row of
//! their minute when the file is made: the journal has windows.

mod of_window;
#[cfg(feature = "parquet")]
mod table;
#[cfg(test)]
#[cfg(feature = "parquet")]
mod tests;

use std::collections::BTreeMap;
use std::mem::size_of;
use std::sync::Arc;
use std::time::Duration;

use reqtrace_capture::attach::guard::Shed;
use reqtrace_output::rollups::{Figures, Level, OfService, Rollup};

use crate::metrics::{Closed, Metrics, OfRecords};
use crate::records::{Of, Record, Way};
use crate::spool::{Gone, Kind};
use of_window::OfWindow;

pub(crate) const MINUTE_NS: u64 = 60_000_000_000;

/// Files of roll-ups.
pub(crate) const KIND: Kind = Kind {
    section: "[rows] rollups",
    start: "rollups",
    end: ".parquet",
    contents,
};

#[cfg(feature = "parquet")]
fn contents(path: &std::path::Path) -> Option<Gone> {
    let file = reqtrace_output::parquet::RollupsFile::open(path).ok()?;
    Some(Gone {
        count: file.rows(),
        span_ns: file.meta().duration_ns,
    })
}

/// Nobody writes any.
#[cfg(not(feature = "parquet"))]
fn contents(_: &std::path::Path) -> Option<Gone> {
    None
}

impl Record for Rollup {
    #[cfg(feature = "parquet")]
    type Table = table::RollupsTable;

    const KIND: &'static Kind = &KIND;
    /// Windows of the last minute come when they are closed: up to 20 s later with blame, and a window has up to 5 minutes, behind
    /// which there is another minute.
    const PATIENCE: Duration = Duration::from_secs(120);

    fn count(metrics: &Metrics, change: impl FnOnce(&mut OfRecords)) {
        metrics.rollups(change);
    }

    fn end_unix_ns(&self) -> u64 {
        self.minute_unix_ns + (MINUTE_NS - 1)
    }

    fn bytes(&self) -> usize {
        let texts = match &self.level {
            Level::Service => 0,
            Level::Type(request) => request.len(),
            Level::Group(request, group) => request.len() + group.len(),
        };
        let figures = match &self.figures {
            Figures::Service(_) => 0,
            Figures::Requests(of) => {
                let ledger = &of.ledger;
                let lists = [
                    &ledger.classes,
                    &ledger.parked,
                    &ledger.queued,
                    &of.histogram,
                ];
                let numbers: usize = lists.iter().map(|list| list.len()).sum();
                size_of_val(&**of) + numbers * size_of::<u64>()
            }
        };
        size_of::<Self>() + texts + figures
    }
}

/// What a session makes of its windows.
#[derive(Debug)]
pub(crate) struct Rollups {
    of: Arc<Of>,
    way: Way<Rollup>,
    window_ns: u64,
    most_groups: Option<usize>,
    /// Until then the service is covered, ns since the Unix epoch.
    covered_until: u64,
    /// What is left out.
    shed: Shed,
    lost: u64,
}

impl Rollups {
    /// Begins at this time, with windows of this length. Of each type so many groups are told apart; `None`: there are none.
    pub(crate) fn new(
        of: Of,
        way: Way<Rollup>,
        begin_unix_ns: u64,
        window_ns: u64,
        most_groups: Option<usize>,
    ) -> Self {
        Self {
            of: Arc::new(of),
            way,
            window_ns: window_ns.max(1),
            most_groups,
            covered_until: begin_unix_ns,
            shed: Shed::Nothing,
            lost: 0,
        }
    }

    pub(crate) fn shed(&mut self, shed: Shed) {
        self.shed = shed;
    }

    pub(crate) fn lost(&mut self, count: u64) {
        self.lost = self.lost.saturating_add(count);
    }

    /// Nothing that ended before `until_ns` comes any more: these are the windows that were closed, by their begin.
    pub(crate) fn closed<'a>(
        &mut self,
        windows: impl Iterator<Item = (u64, &'a BTreeMap<String, Closed>)>,
        until_ns: u64,
    ) {
        let slow_ns = self.way.metrics().slo_ns(&self.of.service);
        let mut rollups = self.covered(until_ns);
        for (begin_ns, types) in windows {
            let minute_unix_ns = self.minute_of(begin_ns);
            for (request, closed) in types {
                let of = OfWindow {
                    request,
                    closed,
                    slow_ns,
                    most_groups: self.most_groups,
                };
                rollups.extend(of.levels().map(|(level, requests)| Rollup {
                    minute_unix_ns,
                    level,
                    figures: Figures::Requests(Box::new(requests)),
                }));
            }
        }
        if !rollups.is_empty() {
            self.way.offer(&self.of, rollups, slow_ns, |_| {});
        }
    }

    /// The minute in which the window ends that begins then: a window that ends at a full minute is one of the minute before.
    fn minute_of(&self, begin_ns: u64) -> u64 {
        let last_ns = begin_ns + self.window_ns - 1;
        last_ns - last_ns % MINUTE_NS
    }

    /// The time since the last time, by window.
    fn covered(&mut self, until_ns: u64) -> Vec<Rollup> {
        // The wall clock may have been set back: that time was covered already.
        let until_ns = until_ns.max(self.covered_until);
        let from_ns = std::mem::replace(&mut self.covered_until, until_ns);
        let one_in = match self.shed {
            Shed::Windows(one_in) => u64::from(one_in).max(1),
            _ => 1,
        };
        let mut minutes: BTreeMap<u64, OfService> = BTreeMap::new();
        let mut at_ns = from_ns;
        while at_ns < until_ns {
            let begin_ns = at_ns - at_ns % self.window_ns;
            let end_ns = (begin_ns + self.window_ns).min(until_ns);
            let of = minutes.entry(self.minute_of(begin_ns)).or_default();
            of.covered_ns += end_ns - at_ns;
            of.traced_ns += (end_ns - at_ns) / one_in;
            at_ns = end_ns;
        }
        if let Some(mut last) = minutes.last_entry() {
            last.get_mut().lost = std::mem::take(&mut self.lost);
        }
        let rollup = |(minute_unix_ns, of)| Rollup {
            minute_unix_ns,
            level: Level::Service,
            figures: Figures::Service(of),
        };
        minutes.into_iter().map(rollup).collect()
    }

    /// No more come.
    pub(crate) fn end(&self) {
        self.way.ended(&self.of);
    }
}
