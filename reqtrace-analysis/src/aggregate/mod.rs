//! Aggregate: the events of a trace in, ordered rows out while they come; whenever it is
//! asked for, and at the end, a [`Report`].
//!
//! A live trace and the report of a recording are the same from here on: nothing is asked of the
//! kernel, of `/proc` or of a clock. Memory does not grow with the number of requests: cells of requests by time, type and
//! latency, per place of blocking a class and the names of its stacks, the rows of the last 200 ms, samples of requests
//! that have not ended, and with blame the last intervals of threads.

mod attributes;
mod before;
mod blamed;
mod bounds;
mod celled;
mod counted;
mod files;
mod filter;
mod followed;
mod hints;
mod labels;
mod lengths;
mod losses;
mod lost;
mod modules;
mod names;
mod now;
mod one;
mod order;
mod origins;
mod paged;
mod places;
mod processes;
mod profiled;
mod row_filter;
mod samples;
mod settled;
mod signs;
mod sites;
mod stacks;
mod sums;
mod tail;
mod trace;
mod types;
mod unwinding;
mod verdict;
mod view;
mod warnings;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use reqtrace_base::plain::Plain;
use reqtrace_recording::{Ending, Event, Header, Incomplete, Loss, Open, Request, Sample};

use crate::blame::{self, Gatherer};
use crate::cells::{Cells, Groups, GroupsBySecond};
use crate::classify::Classifier;
use crate::error::{Error, Result};
use crate::label::{Texts, label_text, marked};
use crate::page;
use crate::profile::Profiles;
use crate::report::{Exporter, Grouping, Ledger, Report, RequestKey, RequestRow};
use crate::verdict::Collector;

pub use attributes::needs_texts;
pub use filter::FilterOptions;
pub use now::{PlaceNow, StatementNow, TypeNow};
pub use order::WINDOW_NS;
pub use row_filter::RowFilter;

use attributes::Attributes;
use bounds::Bounds;
use counted::Seconds;
use filter::Filter;
use lost::Recorded;
use modules::Modules;
use order::{Row, RowOrder};
use origins::Origins;
use places::{AwaySums, Spots};
use profiled::StacksByPeriod;
use samples::Samples;
use settled::Settled;
use sites::Sites;
use stacks::SlowStacks;
use sums::Sums;
use trace::Trace;
use types::TypeState;

/// How to aggregate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Keep stacks only of requests at or above this latency; they then come from the requests'
    /// records. Totals cover all requests.
    pub slower_than_ns: Option<u64>,
    /// Add requests up by their label.
    pub group_by: Option<Grouping>,
    /// Hand groups over by the second, see [`Exporter::group`], instead of keeping them for the report. Windows that were handed
    /// over are not kept for it, either.
    pub groups_by_second: bool,
    /// Hand stacks over by periods of so many ns, see [`Exporter::stacks`], instead of keeping them for the report.
    pub stacks_every_ns: Option<u64>,
    /// Show the lengths of blocks.
    pub histogram: bool,
    /// Leave requests out. Totals then cover those that are kept, by their records.
    pub filter: FilterOptions,
    /// Find no verdict, although the trace has blame: what it needs of slow requests takes many MB of each type.
    pub without_verdict: bool,
}

/// Gathers events.
#[derive(Debug)]
pub struct Aggregator {
    options: Options,
    trace: Trace,
    /// Behind a cell: a view names stacks, and what is named once is kept.
    sites: RefCell<Sites>,
    modules: Modules,
    origins: Origins,
    types: Vec<TypeState>,
    cells: Cells,
    /// Only when somebody wants them.
    groups: Option<Groups>,
    /// The same for outputs that take them by the second.
    group_windows: Option<GroupsBySecond>,
    sums: Sums,
    settled: Settled,
    rows: RowOrder,
    filter: Option<Filter>,
    /// Where requests are while no thread runs them.
    spots: Spots,
    away: AwaySums,
    attributes: Attributes,
    slow: Option<SlowStacks>,
    /// Only for outputs that take stacks by period.
    stacks: Option<StacksByPeriod>,
    /// Only when the trace takes samples.
    samples: Option<Samples>,
    /// Only when the trace has intervals.
    blame: Option<Gatherer>,
    lost: Recorded,
    /// Requests that held the last one up, if an output asks for them.
    blames: Vec<RequestKey>,
    /// Only with blame, if somebody wants it.
    verdict: Option<Collector>,
    /// Only when an output takes the page.
    page: Option<Box<page::Collector>>,
    losses: BTreeMap<String, u64>,
    open: Vec<Open>,
    bounds: Bounds,
    seconds: Seconds,
    malformed: u64,
    /// Names of threads.
    comms: Texts,
    /// The ledger of the last request, to be used again.
    ledger: Ledger,
}

impl Aggregator {
    /// An aggregator for the request types and named waits of the profiles, which are those of the
    /// header.
    ///
    /// # Errors
    ///
    /// [`crate::error::Kind::Usage`] when a named wait is malformed, see [`Classifier::new`], and
    /// when the options ask for what the trace does not record.
    pub fn new(profiles: &Profiles, header: &Header, options: Options) -> Result<Self> {
        check(&options, header)?;
        let classifier = Classifier::new(profiles)?;
        let spots = Spots::new(profiles);
        let attributes = Attributes::new(profiles, options.group_by.as_ref(), header)?;
        let filter = Filter::new(&options.filter, profiles, &attributes, header)?;
        let class_names = classifier.names().to_vec();
        let classes = class_names.len();
        let empty = Ledger::of(classes, &spots.names);
        let types: Vec<TypeState> = profiles
            .request_names()
            .iter()
            .zip(&spots.keyed)
            .map(|(name, is_keyed)| TypeState::new(name, header, *is_keyed))
            .collect();
        let is_grouped = options.group_by.is_some();
        // What takes groups by the second takes no labels of culprits.
        let of_text = options.group_by.as_ref().map(Grouping::of_text);
        let of_text = of_text.filter(|_| !options.groups_by_second);
        // The kernel's sums cannot be taken apart by request.
        let threshold = options.slower_than_ns.or(filter.as_ref().map(|_| 0));
        Ok(Self {
            trace: Trace::new(header),
            sites: RefCell::new(Sites::new(classifier)),
            modules: Modules::new(),
            origins: Origins::new(profiles, header),
            lost: Recorded::of(header),
            cells: Cells::new(header.monotonic_to_unix_ns, header.blame),
            sums: Sums::new(types.len()),
            settled: Settled::new(types.len(), classes),
            rows: RowOrder::default(),
            filter,
            slow: threshold.map(SlowStacks::new),
            stacks: options
                .stacks_every_ns
                .map(|every_ns| StacksByPeriod::new(every_ns, types.len())),
            samples: Samples::new(header, &spots.keyed),
            groups: (is_grouped && !options.groups_by_second)
                .then(|| Groups::new(header.monotonic_to_unix_ns, header.blame)),
            group_windows: (is_grouped && options.groups_by_second)
                .then(|| GroupsBySecond::by_second(header.monotonic_to_unix_ns, header.blame)),
            blame: header.blame.then(|| {
                let (parked, queued) = (&spots.names.parked, &spots.names.queued);
                let parked_words = (0..parked.len()).map(|place| spots.names.parked_words(place));
                let queued_words = (0..queued.len()).map(|place| spots.names.queued_words(place));
                let names = blame::Names {
                    types: types.iter().map(|state| state.name.clone()).collect(),
                    classes: class_names
                        .iter()
                        .cloned()
                        .chain(parked_words)
                        .chain(queued_words)
                        .collect(),
                    blocks: class_names.len(),
                    parked: parked.len(),
                    keyed: spots.keyed.clone(),
                };
                Gatherer::new(names, of_text, blame::Unseen::of(header))
            }),
            blames: Vec::new(),
            verdict: (header.blame && !options.without_verdict)
                .then(|| Collector::new(types.len())),
            page: None,
            types,
            losses: BTreeMap::new(),
            open: Vec::new(),
            bounds: Bounds::new(header),
            seconds: Seconds::new(header),
            malformed: 0,
            comms: Texts::default(),
            ledger: empty,
            away: AwaySums::new(profiles.requests().count()),
            spots,
            attributes,
            options,
        })
    }

    /// Takes an event, and hands the rows that are due to the exporters.
    ///
    /// # Errors
    ///
    /// When an output cannot be written.
    pub fn event(&mut self, event: &Event<'_>, exporters: &mut [Box<dyn Exporter>]) -> Result<()> {
        if !self.bounds.take(event) {
            return Ok(());
        }
        match event {
            Event::Request(request) => {
                self.seconds.request(request);
                self.request(request, exporters)?;
            }
            Event::Open(open) => {
                let attributes = open.attributes();
                let request = Request {
                    attributes: &attributes,
                    ..open.request()
                };
                self.request(&request, exporters)?;
                self.open.push((*open).clone());
            }
            Event::Tick(now_ns) => {
                self.trace.seen(*now_ns);
                self.rows.advance(*now_ns);
                self.write_due(exporters)?;
            }
            Event::Sent(sent) => self.seconds.sent(sent),
            Event::Clock(step) => self.clock(step),
            Event::Process(process) => {
                if let Some(verdict) = &mut self.verdict {
                    verdict.process(process);
                }
                if let Some(blame) = &mut self.blame {
                    blame.process(process);
                }
                let processes = &mut self.sites.get_mut().processes;
                processes.change(process);
                if processes.is_full() {
                    self.forget_processes();
                }
            }
            Event::File(file) => self.sites.get_mut().file(file.file, &file.path),
            Event::Thread(thread) => self.sites.get_mut().thread(thread),
            Event::Stack(stack) => self.sites.get_mut().stack(stack),
            Event::Name(name) => self.sites.get_mut().name(name),
            Event::Window(window) => {
                self.trace.seen(window.until_ns);
                self.sums.add(window);
                if self.sums.is_full() {
                    self.settle();
                }
            }
            Event::StacksAnew => {
                self.settle();
                self.name_stacks();
                if let Some(blame) = &mut self.blame {
                    blame.settle(self.sites.get_mut());
                    blame.forget_stacks();
                }
                let slow = self.types.iter().flat_map(|state| state.longest.places());
                let sampled = self.samples.iter().flat_map(Samples::places);
                self.sites.get_mut().forget_stacks(slow.chain(sampled));
            }
            Event::Loss(Loss { name, count }) => {
                *self.losses.entry(Plain::of(name).into()).or_default() += count;
            }
            Event::Cost(cost) => self.trace.set_cost((*cost).clone()),
            Event::End(end) => self.trace.end(end),
            Event::Interval(interval) => self.interval(interval),
            Event::Away(away) => self.away(away),
            Event::CpuWait(wait) => self.cpu_wait(wait),
            Event::Disk(disk) => self.disk(disk),
            Event::Unrecorded(request) => self.unrecorded(request),
            Event::Origin(origin) => self.origin(origin),
            Event::Futex(futex) => {
                if let Some(blame) = &mut self.blame {
                    blame.futex(futex);
                }
            }
            Event::Sample(sample) => self.sample(sample),
            Event::Object(object) => {
                self.modules.object(object);
                self.origins.object(object);
            }
            // It has where an address lies; the name comes in another event.
            Event::Mapping(_) => {}
        }
        Ok(())
    }

    /// Whether its sums are half full. Events that find no room any more are refused, and the sums last for 50 days of a
    /// thousand requests at a time: whoever traces for longer begins a new one then.
    #[must_use]
    pub fn is_half_full(&self) -> bool {
        self.bounds.is_half_full()
    }

    /// Writes all rows that are left, and makes the report. `ending` says what is missing; of a live
    /// trace nothing is. The exporters' `finish` is the caller's.
    ///
    /// # Errors
    ///
    /// When an output cannot be written.
    pub fn finish(
        mut self,
        ending: &Ending,
        exporters: &mut [Box<dyn Exporter>],
    ) -> Result<Report> {
        while let Some(row) = self.rows.pop() {
            self.write(&row, exporters)?;
            self.rows.written(row);
        }
        if exporters.iter().any(|exporter| exporter.wants_windows()) {
            self.close_windows(u64::MAX / 2, exporters)?;
        }
        self.close_stacks(u64::MAX, exporters)?;
        let mut report = self.view(ending);
        report.verdict = self.findings_of(&report);
        report.page = self.finish_page(exporters);
        Ok(report)
    }

    /// Gives the sums so far their names.
    fn settle(&mut self) {
        let mut settled = std::mem::replace(&mut self.settled, Settled::new(0, 0));
        self.add_unsettled(&mut settled, &mut self.sites.borrow_mut());
        self.settled = settled;
        self.sums.forget();
        if let Some(slow) = &mut self.slow {
            slow.forget();
        }
        if let Some(samples) = &mut self.samples {
            samples.forget();
        }
    }

    /// Forgets processes that have left, of which nothing is shown any more but sums by name.
    fn forget_processes(&mut self) {
        self.settle();
        self.name_stacks();
        let shown = self
            .types
            .iter()
            .flat_map(|state| state.longest.processes());
        let shown: BTreeSet<u32> = shown.collect();
        self.sites.get_mut().processes.forget(&shown);
    }

    fn request(
        &mut self,
        request: &Request<'_>,
        exporters: &mut [Box<dyn Exporter>],
    ) -> Result<()> {
        let Some(index) = self.type_of(request) else {
            self.malformed += 1;
            return Ok(());
        };
        let label = marked(request.label);
        let mut request = Request {
            label: &label,
            ..*request
        };
        if request.incomplete == Some(Incomplete::RunningAtStart) {
            request.begin_ns = self.trace.start_ns().min(request.end_ns);
        }
        self.trace.seen(request.end_ns);
        let sites = self.sites.get_mut();
        sites.processes.any_thread(request.space.tgid, request.comm);
        sites.serves(request.space.tgid, request.tid, request.comm);
        self.rows.ended(request.end_ns);
        let group = self.attributes.group(&request);
        if let Some(blame) = &mut self.blame {
            blame.request(&Request {
                label: group.as_deref().unwrap_or(request.label),
                ..request
            });
        }
        if self
            .filter
            .as_mut()
            .is_none_or(|filter| filter.keeps(&request, &mut self.attributes))
        {
            self.keep(&request, group, index, exporters);
        } else if let Some(samples) = &mut self.samples {
            samples.request(&request, None, false);
        }
        self.write_due(exporters)
    }

    fn sample(&mut self, sample: &Sample) {
        self.trace.seen(sample.at_ns);
        let shows_all = self.slow.is_none();
        if let Some(samples) = &mut self.samples {
            samples.add(sample, shows_all);
        }
    }

    /// Takes a request; `group` stands for it in groups in place of its label.
    fn keep(
        &mut self,
        request: &Request<'_>,
        group: Option<Vec<u8>>,
        index: usize,
        exporters: &[Box<dyn Exporter>],
    ) {
        let mut ledger = std::mem::take(&mut self.ledger);
        one::fill(&mut ledger, request, self.sites.get_mut(), &self.spots);
        if let Some(slow) = &mut self.slow {
            slow.add(request);
            if slow.is_full() {
                self.settle();
            }
        }
        let threshold_ns = self.slow.as_ref().map_or(0, SlowStacks::threshold_ns);
        let is_shown = request.incomplete.is_none() && request.latency_ns() >= threshold_ns;
        if is_shown {
            let sites = self.sites.get_mut();
            self.away.add(request, &ledger, &self.spots, sites);
        }
        let mut sampled = None;
        let shows_all = self.slow.is_none();
        if let Some(samples) = &mut self.samples {
            sampled = samples.request(request, is_shown.then_some(&ledger), shows_all);
            if samples.is_full() {
                self.settle();
            }
        }
        let home = self.count(request, group.as_deref(), index, &ledger);
        if let Some(stacks) = &mut self.stacks {
            let sites = self.sites.get_mut();
            stacks.add(home.window, request, &ledger, sites, &self.spots);
        }
        if self.blame.is_some() || is_wanted(exporters) {
            let mut row = self.rows.row(request, &ledger);
            row.home = home;
            row.stacks = self.page_stacks(request, sampled.as_ref(), exporters);
            self.attributes.texts(request, &mut row.attributes);
            row.group = group;
            self.rows.push(row);
        }
        self.ledger = ledger;
    }

    fn type_of(&self, request: &Request<'_>) -> Option<usize> {
        let index = request.request_type as usize;
        (index < self.types.len()).then_some(index)
    }

    fn write_due(&mut self, exporters: &mut [Box<dyn Exporter>]) -> Result<()> {
        while let Some(row) = self.rows.pop_due() {
            self.write(&row, exporters)?;
            self.rows.written(row);
        }
        self.advance_cells(exporters)
    }

    fn write(&mut self, row: &Row, exporters: &mut [Box<dyn Exporter>]) -> Result<()> {
        let (latency_ns, is_complete) = (row.ledger.latency_ns, row.incomplete.is_none());
        let mut takers = exporters.iter();
        let wants_blames = takers.any(|of| of.wants_blames_of(latency_ns, is_complete));
        let causes = self.resolve(row, wants_blames);
        if let Some(causes) = causes.filter(|_| row.incomplete.is_none()) {
            self.book(row, &causes);
        }
        self.page_row(row, causes);
        self.write_intervals(row, exporters)?;
        if !is_wanted(exporters) {
            return Ok(());
        }
        let row = RequestRow {
            id: row.id,
            origin: self.origins.of(row.request_type),
            start_unix_ns: self.trace.unix_ns(row.begin_ns),
            since_start_ns: self.trace.since_start_ns(row.begin_ns),
            request: &self.types[row.request_type].name,
            pid: row.pid,
            tid: row.tid,
            comm: self.comms.text(row.comm.bytes()),
            label: &label_text(&row.label),
            attributes: &row.attributes,
            ledger: &row.ledger,
            blocks: row.blocks,
            preemptions: row.preemptions,
            incomplete: row.incomplete,
            weight: row.weight,
            slow: None,
            waited_before_ns: row.waited_before_ns,
            lost: self.lost.row(row.lost),
            is_keyed: self.spots.is_keyed(row.request_type as u32),
            causes,
            blames: &self.blames,
            kept: None,
        };
        exporters
            .iter_mut()
            .try_for_each(|exporter| exporter.request(&row))
    }
}

/// Whether an output takes requests.
fn is_wanted(exporters: &[Box<dyn Exporter>]) -> bool {
    let mut exporters = exporters.iter();
    exporters.any(|exporter| exporter.wants_requests() || exporter.wants_page())
}

/// Refuses what the trace does not record.
fn check(options: &Options, header: &Header) -> Result<()> {
    let by_label = options
        .group_by
        .as_ref()
        .is_some_and(|by| by.attribute().is_none());
    if by_label && !header.options.labels {
        return Err(
            Error::usage("--group-by: the recording has no labels to group by")
                .next("record with --labels, or trace with --group-by"),
        );
    }
    if options.histogram && !header.options.histogram {
        return Err(
            Error::usage("--histogram: the lengths of blocks were not recorded")
                .next("record with --histogram"),
        );
    }
    if options.histogram && options.filter != FilterOptions::default() {
        return Err(Error::usage(
            "--histogram counts the blocks of all requests, and cannot be filtered",
        )
        .next("leave out --histogram, or the filter"));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
