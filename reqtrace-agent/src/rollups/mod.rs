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

use std::collections::{BTreeMap, VecDeque};
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
        let texts = self.level.text_bytes() + self.build_id.as_ref().map_or(0, String::len);
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
    /// Until then the service is covered, ns since the Unix epoch.
    covered_until: u64,
    /// What is left out from when on, ns since the Unix epoch, in order: windows are closed later.
    sheds: VecDeque<(u64, Shed)>,
    lost: u64,
}

impl Rollups {
    /// Begins at this time, with windows of this length.
    pub(crate) fn new(of: Of, way: Way<Rollup>, begin_unix_ns: u64, window_ns: u64) -> Self {
        Self {
            of: Arc::new(of),
            way,
            window_ns: window_ns.max(1),
            covered_until: begin_unix_ns,
            sheds: VecDeque::new(),
            lost: 0,
        }
    }

    /// So much is left out from this time on, ns since the Unix epoch.
    pub(crate) fn shed(&mut self, shed: Shed, from_unix_ns: u64) {
        self.sheds.push_back((from_unix_ns, shed));
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
                    most_groups: self.of.most_groups.map(|most| most as usize),
                };
                rollups.extend(of.levels().map(|(level, requests)| Rollup {
                    minute_unix_ns,
                    level,
                    build_id: closed.build_id().map(str::to_owned),
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
        let mut minutes: BTreeMap<u64, OfService> = BTreeMap::new();
        let mut at_ns = from_ns;
        while at_ns < until_ns {
            let begin_ns = at_ns - at_ns % self.window_ns;
            let (one_in, until_changed_ns) = self.traced_at(at_ns);
            let end_ns = (begin_ns + self.window_ns)
                .min(until_ns)
                .min(until_changed_ns);
            let of = minutes.entry(self.minute_of(begin_ns)).or_default();
            of.covered_ns += end_ns - at_ns;
            of.traced_ns += (end_ns - at_ns) / one_in;
            at_ns = end_ns;
        }
        while self.sheds.get(1).is_some_and(|(at, _)| *at <= until_ns) {
            self.sheds.pop_front();
        }
        if let Some(mut last) = minutes.last_entry() {
            last.get_mut().lost = std::mem::take(&mut self.lost);
        }
        let rollup = |(minute_unix_ns, of)| Rollup {
            minute_unix_ns,
            level: Level::Service,
            build_id: None,
            figures: Figures::Service(of),
        };
        minutes.into_iter().map(rollup).collect()
    }

    /// Of how many windows one is traced at this time, and until when.
    fn traced_at(&self, at_ns: u64) -> (u64, u64) {
        let next = self.sheds.partition_point(|(from, _)| *from <= at_ns);
        let now = next.checked_sub(1).and_then(|now| self.sheds.get(now));
        let one_in = match now {
            Some((_, Shed::Windows(one_in))) => u64::from(*one_in).max(1),
            _ => 1,
        };
        let until = self.sheds.get(next).map_or(u64::MAX, |(from, _)| *from);
        (one_in, until)
    }

    /// No more come.
    pub(crate) fn end(&self) {
        self.way.ended(&self.of);
    }
}
