//! The choice of a session: requests in, those that are chosen in batches on their way to the writer out.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use reqtrace_analysis::report::{Exporter, Report, RequestRow};
use reqtrace_base::error::Result;

use super::row::Row;
use super::waiting::{Fate, Waiting};
use crate::choice::Choice;
use crate::config::Rows;
use crate::ids::Machine;
use crate::metrics::Metrics;
use crate::records::{Message, Of, Way};

/// Rows that are handed over at a time.
const BATCH: usize = 256;
/// Fewer are handed over after this time.
const PATIENCE: Duration = Duration::from_millis(500);

/// Where sessions hand over what they have chosen.
#[derive(Clone, Debug)]
pub(crate) struct Queue {
    pub(super) way: Way<Row>,
    /// What makes the ids of their traces, where slow requests have a span.
    pub(super) traces: Option<Arc<Machine>>,
    pub(super) one_in: u32,
    pub(super) keep_slow_ns: Option<u64>,
}

impl Queue {
    /// Begins with these rows of this machine; `has_spans`: slow requests have a span, too. The writer takes from the other end.
    pub(crate) fn new(
        config: &Rows,
        machine: &Arc<Machine>,
        has_spans: bool,
        metrics: &Arc<Metrics>,
    ) -> (Self, Receiver<Message<Row>>) {
        let (way, from) = Way::new(metrics);
        let nanoseconds = |slow: Duration| u64::try_from(slow.as_nanos()).unwrap_or(u64::MAX);
        let queue = Self {
            way,
            traces: has_spans.then(|| Arc::clone(machine)),
            one_in: config.one_in,
            keep_slow_ns: config.keep_slow.map(nanoseconds),
        };
        (queue, from)
    }

    /// No more come, of no session.
    pub(crate) fn stop(&self) {
        self.way.stop();
    }

    /// Bytes of rows that the writer has not taken.
    #[cfg(feature = "simulated")]
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.way.waiting_bytes()
    }

    fn offer(&self, of: &Arc<Of>, rows: Vec<Row>, slow_ns: Option<u64>) {
        let service = &of.service;
        let traces = self.traces.as_deref().map(|machine| (machine, &**service));
        self.way.offer(of, rows, slow_ns, |rows| {
            let shown = rows.iter().filter_map(|row| row.exemplar(traces));
            self.way.metrics().exemplars(service, shown);
        });
    }
}

/// Requests of a session that were chosen, and not handed over.
#[derive(Debug)]
pub(crate) struct Chosen {
    of: Arc<Of>,
    choice: Choice,
    queue: Queue,
    slow_ns: Option<u64>,
    /// `None`: nobody is blamed, or all are kept.
    waiting: Option<Waiting>,
    rows: Vec<Row>,
    since: Instant,
}

impl Chosen {
    pub(crate) fn new(of: Of, queue: Queue) -> Self {
        let choice = Choice::one_in(queue.one_in);
        let waits = of.has_causes && choice.leaves_out();
        let mut chosen = Self {
            of: Arc::new(of),
            choice,
            waiting: waits.then(Waiting::default),
            slow_ns: None,
            rows: Vec::new(),
            since: Instant::now(),
            queue,
        };
        chosen.read_slo();
        chosen
    }

    /// The configuration may have been read again.
    fn read_slo(&mut self) {
        let slo_ns = self.queue.way.metrics().slo_ns(&self.of.service);
        let slow_ns = slo_ns.or(self.queue.keep_slow_ns);
        if slow_ns != self.slow_ns {
            // A file has rows of one limit.
            self.let_go(true);
            self.hand_over();
            self.slow_ns = slow_ns;
        }
    }

    fn take(&mut self, row: &RequestRow<'_>) {
        let kept = self.choice.of(
            row.id,
            row.ledger.latency_ns,
            row.weight,
            row.incomplete.is_none(),
            self.slow_ns,
        );
        let is_slow = self.is_slow(row.ledger.latency_ns);
        let waits = self.waiting.is_some();
        let Some(fate) = Fate::of(kept, row.weight, is_slow, waits) else {
            return;
        };
        let (Fate::Kept(kept) | Fate::Open { blamed: kept, .. }) = fate;
        let (key, blames) = (row.key(), row.blames);
        let row = Row::of(row, kept, self.of.texts);
        let Some(waiting) = &mut self.waiting else {
            return self.push(row);
        };
        let now = Instant::now();
        if matches!(fate, Fate::Kept(_)) {
            blames.iter().for_each(|key| waiting.blame(key));
        }
        waiting.push(key, row, fate, now);
        self.let_go_of_old(now);
    }

    fn is_slow(&self, latency_ns: u64) -> Option<bool> {
        self.slow_ns.map(|slow_ns| latency_ns > slow_ns)
    }

    /// Rows that have waited are chosen.
    fn let_go_of_old(&mut self, now: Instant) {
        while let Some(row) = self.waiting.as_mut().and_then(|waiting| waiting.next(now)) {
            self.push(row);
        }
        self.count_missed();
    }

    /// The same of all; `is_early`: they could have waited longer.
    fn let_go(&mut self, is_early: bool) {
        let next = |waiting: &mut Waiting| waiting.next_of_all(is_early);
        while let Some(row) = self.waiting.as_mut().and_then(next) {
            self.push(row);
        }
        self.count_missed();
    }

    fn count_missed(&mut self) {
        let missed = self.waiting.as_mut().map(Waiting::take_missed);
        if let Some([early, late]) = missed.filter(|missed| *missed != [0; 2]) {
            self.queue.way.metrics().rows(|of| {
                of.not_waited += early;
                of.blamed_late += late;
            });
        }
    }

    /// A row is chosen.
    fn push(&mut self, row: Row) {
        if self.rows.is_empty() {
            self.since = Instant::now();
        }
        self.rows.push(row);
        if self.rows.len() >= BATCH {
            self.hand_over();
        }
    }

    pub(super) fn hand_over(&mut self) {
        if !self.rows.is_empty() {
            let rows = std::mem::take(&mut self.rows);
            self.queue.offer(&self.of, rows, self.slow_ns);
        }
    }

    /// Some time has passed.
    pub(crate) fn look(&mut self) {
        self.read_slo();
        self.let_go_of_old(Instant::now());
        if self.since.elapsed() >= PATIENCE {
            self.hand_over();
        }
    }

    /// No more come.
    pub(crate) fn end(&mut self) {
        self.let_go(false);
        self.hand_over();
        self.queue.way.ended(&self.of);
    }
}

/// Takes all requests of a session.
pub(crate) struct RowsExporter(pub(crate) Rc<RefCell<Chosen>>);

impl Exporter for RowsExporter {
    fn request(&mut self, row: &RequestRow<'_>) -> Result<()> {
        self.0.borrow_mut().take(row);
        Ok(())
    }

    fn wants_requests(&self) -> bool {
        true
    }

    fn wants_blames_of(&self, latency_ns: u64, is_complete: bool) -> bool {
        let chosen = self.0.borrow();
        let is_slow = chosen.is_slow(latency_ns) == Some(true);
        chosen.waiting.is_some() && (is_slow || !is_complete)
    }

    fn finish(&mut self, _report: &Report) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
#[cfg(feature = "parquet")]
pub(super) mod tests {
    use super::*;

    /// As the exporter of a session does.
    pub(in crate::rows) fn exporter(chosen: &mut Chosen) -> impl FnMut(&RequestRow<'_>) {
        |row| chosen.take(row)
    }
}
