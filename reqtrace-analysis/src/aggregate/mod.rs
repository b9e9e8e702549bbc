//! Aggregate: decoded requests in while tracing, ordered rows out; at the end a [`Report`].
//!
//! Memory does not grow with the number of requests: per request type a histogram and sums, per
//! place of blocking a class, and the rows of the last 200 ms.

mod fingerprint;
mod finish;
mod hints;
mod labels;
mod lengths;
mod losses;
mod order;
mod replay;
mod signs;
mod sites;
mod stacks;
mod tail;
mod types;
mod unwinding;

use crate::classify::Classifier;
use crate::decode::records::Malformed;
use crate::decode::{Incomplete, RawRequest, Snapshot};
use crate::error::Result;
use crate::profile::Profile;
use crate::report::{Exporter, Grouping, Ledger, Report, RequestRow, TraceInfo};
use crate::symbolize::{AddressSpace, Symbolizer};

pub use crate::decode::StackSource;
pub use order::WINDOW_NS;
pub use replay::replay;

use labels::Labels;
use order::{Row, RowOrder};
use sites::Sites;
use stacks::SlowStacks;
use types::TypeState;

/// How to aggregate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Add to `CLOCK_MONOTONIC` ns to get Unix ns; the same as [`TraceInfo::monotonic_to_unix_ns`].
    pub monotonic_to_unix_ns: i64,
    /// When tracing started, `CLOCK_MONOTONIC` ns: a request that was running then is counted from
    /// there.
    pub start_ns: u64,
    /// Keep stacks only of requests at or above this latency; they then come from the requests'
    /// records. Totals cover all requests.
    pub slower_than_ns: Option<u64>,
    /// Add requests up by their label.
    pub group_by: Option<Grouping>,
}

/// Gathers requests.
#[derive(Debug)]
pub struct Aggregator<S, K> {
    options: Options,
    sites: Sites<S, K>,
    types: Vec<TypeState>,
    rows: RowOrder,
    slow: Option<SlowStacks>,
    labels: Option<Labels>,
    malformed: u64,
}

impl<S: Symbolizer, K: StackSource> Aggregator<S, K> {
    /// An aggregator for the request types and named waits of a profile.
    ///
    /// # Errors
    ///
    /// [`crate::error::Kind::Usage`] when a named wait is malformed; see [`Classifier::new`].
    pub fn new(profile: &Profile, options: Options, symbols: S, stacks: K) -> Result<Self> {
        let classifier = Classifier::new(&profile.waits)?;
        let classes = classifier.names().len();
        let types = profile
            .requests
            .iter()
            .map(|request| TypeState::new(&request.name, classes))
            .collect();
        Ok(Self {
            options,
            sites: Sites::new(classifier, symbols, stacks),
            types,
            rows: RowOrder::default(),
            labels: options
                .group_by
                .map(|by| Labels::new(by, profile.requests.len(), classes)),
            slow: options.slower_than_ns.map(SlowStacks::new),
            malformed: 0,
        })
    }

    /// Names of all wait classes, in the order of every ledger; exporters need them at their
    /// start.
    #[must_use]
    pub fn classes(&self) -> &[String] {
        self.sites.classifier.names()
    }

    /// The symbolizer, to remember processes with.
    pub fn symbolizer(&mut self) -> &mut S {
        &mut self.sites.symbols
    }

    /// Where stacks are looked up, and the symbolizer.
    pub fn sources(&mut self) -> (&mut K, &mut S) {
        (&mut self.sites.stacks, &mut self.sites.symbols)
    }

    /// Takes the file behind a descriptor: a path, or the kernel's name for it (`socket:[123]`).
    pub fn file(&mut self, space: AddressSpace, fd: i32, path: &str) {
        self.sites.file(space, fd, path);
    }

    /// Takes the name of a process, for the first frame of its stacks.
    pub fn process(&mut self, tgid: u32, name: &str) {
        self.sites.process(tgid, name);
    }

    /// Counts a ring record that could not be decoded.
    pub fn malformed(&mut self, what: Malformed) {
        log::debug!("malformed record: {what}");
        self.malformed += 1;
    }

    /// Requests so far: complete ones, and incomplete ones. For progress.
    #[must_use]
    pub fn requests(&self) -> (u64, u64) {
        let complete = self.types.iter().map(|state| state.complete.rows).sum();
        let incomplete = self
            .types
            .iter()
            .flat_map(|state| state.incomplete.values());
        (complete, incomplete.sum())
    }

    /// 99th percentile of the latency of all complete requests so far, ns: the highest over the
    /// request types. For progress.
    #[must_use]
    pub fn p99_ns(&self) -> Option<u64> {
        let of = |state: &TypeState| state.latency().map(|latency| latency.p99_ns);
        self.types.iter().filter_map(of).max()
    }

    /// Takes a finished request, and hands the rows that are due to the exporters.
    ///
    /// # Errors
    ///
    /// When an output cannot be written.
    pub fn request(
        &mut self,
        request: &RawRequest,
        exporters: &mut [Box<dyn Exporter>],
    ) -> Result<()> {
        if request.request_type >= self.types.len() {
            self.malformed(Malformed::RequestType(
                u32::try_from(request.request_type).unwrap_or(u32::MAX),
            ));
            return Ok(());
        }
        let from_start;
        let request = if request.incomplete == Some(Incomplete::RunningAtStart) {
            from_start = RawRequest {
                begin_ns: self.options.start_ns.min(request.end_ns),
                ..request.clone()
            };
            &from_start
        } else {
            request
        };
        let ledger = self.ledger(request);
        self.sites.thread(request.tgid, &request.comm);
        if let Some(slow) = &mut self.slow {
            slow.add(request);
        }
        let state = &mut self.types[request.request_type];
        state.add(request, &ledger);
        if request.incomplete.is_none() {
            state.tail.add(request, &ledger, &mut self.sites);
        }
        if let Some(labels) = &mut self.labels {
            labels.add(request, &ledger);
        }
        let end_ns = request.end_ns;
        if let Some(late) = self.rows.push(end_ns, Row::new(request, ledger)) {
            self.write(&late, exporters)?;
        }
        self.write_due(end_ns, exporters)
    }

    /// Writes rows whose window has passed at `now_ns` (`CLOCK_MONOTONIC`); to be called now and
    /// then, so that rows also appear when no request ends.
    ///
    /// # Errors
    ///
    /// When an output cannot be written.
    pub fn advance(&mut self, now_ns: u64, exporters: &mut [Box<dyn Exporter>]) -> Result<()> {
        self.write_due(now_ns, exporters)
    }

    /// Takes what the maps held at the end, writes all rows that are left, and makes the report.
    /// The exporters' `finish` is the caller's.
    ///
    /// # Errors
    ///
    /// When an output cannot be written.
    pub fn finish(
        mut self,
        snapshot: Snapshot,
        trace: TraceInfo,
        exporters: &mut [Box<dyn Exporter>],
    ) -> Result<Report> {
        for (tgid, name) in &trace.processes {
            self.sites.process(*tgid, name);
        }
        for request in &snapshot.open {
            self.request(request, exporters)?;
        }
        self.write_due(u64::MAX, exporters)?;
        Ok(self.report(snapshot, trace))
    }

    /// The ledger of a request: slots whose stack is not known any more are unattributed.
    fn ledger(&mut self, request: &RawRequest) -> Ledger {
        if request.incomplete == Some(Incomplete::RunningAtStart) {
            // Nothing is known of it but that it ended.
            return Ledger {
                latency_ns: request.latency_ns(),
                unattributed_ns: request.latency_ns(),
                classes: vec![0; self.classes().len()],
                ..Ledger::default()
            };
        }
        let mut ledger = Ledger {
            latency_ns: request.latency_ns(),
            on_cpu_ns: request.on_cpu_ns(),
            run_queue_ns: request.run_queue_ns,
            preempted_ns: request.preempted_ns,
            unattributed_ns: request.unattributed_ns,
            classes: vec![0; self.classes().len()],
        };
        let space = request.space();
        for slot in &request.slots {
            match self.sites.class(space, &slot.site) {
                Some(class) => ledger.classes[class] += slot.blocked_ns,
                None => ledger.unattributed_ns += slot.blocked_ns,
            }
        }
        ledger
    }

    fn write_due(&mut self, now_ns: u64, exporters: &mut [Box<dyn Exporter>]) -> Result<()> {
        while let Some(row) = self.rows.pop_due(now_ns) {
            self.write(&row, exporters)?;
        }
        Ok(())
    }

    fn write(&self, row: &Row, exporters: &mut [Box<dyn Exporter>]) -> Result<()> {
        let row = RequestRow {
            start_unix_ns: row
                .begin_ns
                .saturating_add_signed(self.options.monotonic_to_unix_ns),
            request: &self.types[row.request_type].name,
            pid: row.pid,
            tid: row.tid,
            comm: &row.comm,
            label: &row.label,
            ledger: &row.ledger,
            blocks: row.blocks,
            preemptions: row.preemptions,
            incomplete: row.incomplete,
        };
        exporters
            .iter_mut()
            .try_for_each(|exporter| exporter.request(&row))
    }
}
