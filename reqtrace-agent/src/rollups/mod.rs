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
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use reqtrace_capture::attach::guard::Shed;
use reqtrace_output::rollups::{Figures, Level, OfService, Rollup};

use crate::metrics::{Closed, Metrics, OfRecords};
use crate::moment::Moment;
use crate::records::{Of, Record, Way};
use crate::spool::{Gone, Kind};
use of_window::OfWindow;

pub(crate) const MINUTE_NS: u64 = 60_000_000_000;
/// By more than this no clock goes wrong between two looks, unless it is set.
const STEP_NS: u64 = 2_000_000_000;

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
    /// Until then the service is covered.
    covered_until: Moment,
    /// What is left out from when on, `CLOCK_MONOTONIC` ns, in order: windows are closed later.
    sheds: VecDeque<(u64, Shed)>,
    lost: u64,
}

impl Rollups {
    /// Begins at this time, with windows of this length.
    pub(crate) fn new(of: Of, way: Way<Rollup>, begin: Moment, window_ns: u64) -> Self {
        Self {
            of: Arc::new(of),
            way,
            window_ns: window_ns.max(1),
            covered_until: begin,
            sheds: VecDeque::new(),
            lost: 0,
        }
    }

    /// So much is left out from this time on, `CLOCK_MONOTONIC` ns.
    pub(crate) fn shed(&mut self, shed: Shed, from_ns: u64) {
        self.sheds.push_back((from_ns, shed));
    }

    pub(crate) fn lost(&mut self, count: u64) {
        self.lost = self.lost.saturating_add(count);
    }

    /// Nothing that ended before `until` comes any more: these are the windows that were closed, by their begin.
    pub(crate) fn closed<'a>(
        &mut self,
        windows: impl Iterator<Item = (u64, &'a BTreeMap<String, Closed>)>,
        until: Moment,
    ) {
        let slow_ns = self.way.metrics().slo_ns(&self.of.service);
        let mut rollups = self.covered(until);
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

    /// The time since the last time, by the wall clock as it is now.
    ///
    /// One that was set, or has gone on while the machine was suspended, shows more or less time than has passed: what has
    /// passed was looked at, and no more.
    fn since(&mut self, until: Moment) -> Range<u64> {
        let from = self.covered_until;
        let passed_ns = until.monotonic_ns.saturating_sub(from.monotonic_ns);
        if passed_ns == 0 {
            return until.unix_ns..until.unix_ns;
        }
        let was_set = until.unix_ns.abs_diff(from.unix_ns + passed_ns) > STEP_NS;
        let from_ns = match was_set {
            true => until.unix_ns.saturating_sub(passed_ns),
            false => from.unix_ns,
        };
        if from_ns < until.unix_ns {
            self.covered_until = until;
        }
        from_ns..until.unix_ns
    }

    /// The time since the last time, by window.
    fn covered(&mut self, until: Moment) -> Vec<Rollup> {
        let Range {
            start: from_ns,
            end: until_ns,
        } = self.since(until);
        let mut minutes: BTreeMap<u64, OfService> = BTreeMap::new();
        let mut at_ns = from_ns;
        while at_ns < until_ns {
            let begin_ns = at_ns - at_ns % self.window_ns;
            let monotonic_ns = until.before(until_ns - at_ns).monotonic_ns;
            let (one_in, for_ns) = self.traced_at(monotonic_ns);
            let end_ns = (begin_ns + self.window_ns)
                .min(until_ns)
                .min(at_ns.saturating_add(for_ns));
            let of = minutes.entry(self.minute_of(begin_ns)).or_default();
            of.covered_ns += end_ns - at_ns;
            of.traced_ns += (end_ns - at_ns) / one_in;
            at_ns = end_ns;
        }
        while self
            .sheds
            .get(1)
            .is_some_and(|(at, _)| *at <= until.monotonic_ns)
        {
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

    /// Of how many windows one is traced at this time, `CLOCK_MONOTONIC` ns, and for how long.
    fn traced_at(&self, at_ns: u64) -> (u64, u64) {
        let next = self.sheds.partition_point(|(from, _)| *from <= at_ns);
        let now = next.checked_sub(1).and_then(|now| self.sheds.get(now));
        let one_in = match now {
            Some((_, Shed::Windows(one_in))) => u64::from(*one_in).max(1),
            _ => 1,
        };
        let next = self.sheds.get(next);
        (one_in, next.map_or(u64::MAX, |(from, _)| *from - at_ns))
    }

    /// No more come.
    pub(crate) fn end(&self) {
        self.way.ended(&self.of);
    }
}
