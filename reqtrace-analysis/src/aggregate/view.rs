//! The model, when it is asked for: everything gathered in; the report out. Nothing is used up, so it
//! can be asked for again.

use reqtrace_base::plain::Plain;
use reqtrace_common::loss::Loss;
use reqtrace_recording::{Ending, TypeTotals};

use super::before::Before;
use super::counted::Counted;
use super::files::Queues;
use super::filter::Filter;
use super::followed::Followed;
use super::lost::Lost;
use super::samples::Samples;
use super::settled::{New, Settled};
use super::sites::Sites;
use super::stacks::SlowStacks;
use super::types::{Arrived, TypeState, kernel_latency, split};
use super::{Aggregator, hints, labels, losses, warnings};
use crate::report::slow::SlowRequests;
use crate::report::{Filtered, Ledger, MarkerInfo, Report, StackKind, TraceInfo, TypeReport};

/// Requests that are open and listed, the longest first; all are counted.
const MAX_OPEN: usize = 1 << 14;
/// Bytes of their stacks; the longest keep theirs.
const MAX_OPEN_BYTES: usize = 16 << 20;

impl Aggregator {
    /// What is known now. `ending` says what is missing in a recording; of a live trace nothing is. A
    /// view changes nothing that a later one shows.
    #[must_use]
    pub fn view(&self, ending: &Ending) -> Report {
        let sites = &mut *self.sites.borrow_mut();
        let unknown_before = sites.unknown_stacks;
        let mut settled = self.settled.clone();
        self.add_unsettled(&mut settled, sites);
        let classes = sites.classifier.names().to_vec();
        let signs = settled.places.signs(&self.open);
        let lengths = settled.lengths.counts(&classes);
        let filtered = self.filter.as_ref().map(filtered);
        let empty = Ledger::of(classes.len(), &self.spots.names);
        let queues = Queues {
            known: self.slow.is_none(),
            longest_known: self.slow.is_none() && self.sums.longest_apart,
        };
        // What the kernel has added up is of nearly the same requests as a part of a trace has, and of all where some were
        // lost.
        let is_part = ending.goes_before || ending.goes_on;
        let lost = self.losses.get(Loss::RingFull.name()).copied();
        let by_records = filtered.is_some() || is_part && lost.unwrap_or(0) + self.malformed == 0;
        let how = How {
            by_records,
            keeps_slow: self.trace.keeps_slow(),
        };
        let mut counted = Counted::default();
        let requests: Vec<_> = self
            .types
            .iter()
            .zip(&settled.by_class)
            .zip(lengths)
            .zip(settled.files.lines(queues))
            .enumerate()
            .map(|(index, (((state, sums), lengths), files))| {
                let totals = self.sums.totals.get(index).unwrap_or(&TypeTotals::ZERO);
                let mut arrived = Arrived::new(&self.cells.of_type(index as u32), &empty);
                counted.add(totals, &arrived);
                let slow = arrived.bands.take().map(|(typical, slowest)| {
                    let longest = &state.longest;
                    SlowRequests {
                        blocks: longest.slower_than(typical.to_ns, sites, &self.trace),
                        typical,
                        slowest,
                        of: arrived.complete.weight,
                    }
                });
                TypeReport {
                    slow,
                    lengths,
                    files,
                    is_keyed: self.spots.is_keyed(index as u32),
                    ignores_inner: self.spots.ignores_inner(index as u32),
                    children: self
                        .spots
                        .has_children(index as u32)
                        .then_some(totals.children),
                    ..type_report(state, &arrived, totals, sums, how)
                }
            })
            .collect();
        let names: Vec<_> = self.types.iter().map(|state| state.name.clone()).collect();
        let ledgers: Vec<Ledger> = requests.iter().map(|of| of.ledger.clone()).collect();
        let all = self.slow.is_none().then_some(ledgers.as_slice());
        let away = self.away.lines(&self.spots, &names, all);
        let blame = self.blame.as_ref().map(|blame| blame.report(sites));
        let stacks = settled.lines.stacks(sites, &names);
        let on_cpu = self.samples.as_ref().map(|samples| {
            let lines = settled.on_cpu.stacks(sites, &names);
            samples.report(lines, &names, all, |tgid| sites.processes.comm(tgid))
        });
        let modules = self.modules.of(sites, &settled.lines.functions());
        let mut open: Vec<_> = self.open.iter().filter(|_| filtered.is_none()).collect();
        open.sort_by_key(|open| std::cmp::Reverse(open.request().latency_ns()));
        let mut room = MAX_OPEN_BYTES;
        let open = open.into_iter().take(MAX_OPEN).filter_map(|open| {
            let mut request = self.open_request(sites, open, self.trace.stop_ns())?;
            if let Some(block) = &mut request.blocked {
                let frames = block.user.iter().chain(&block.kernel);
                let bytes = frames.map(|frame| size_of::<String>() + frame.len()).sum();
                match room.checked_sub(bytes) {
                    Some(left) => room = left,
                    None => (block.user, block.kernel) = (Vec::new(), Vec::new()),
                }
            }
            Some(request)
        });
        let open = open.collect();
        let cost = self.trace.cost();
        let losses = losses::lines(&losses::Counts {
            recorded: &self.losses,
            programs: &cost.programs,
            malformed: self.malformed,
            refused: self.bounds.refused,
            // While it goes on the totals are those of some seconds ago, and a filter keeps no totals. Of a part of a
            // trace they are of nearly the same requests.
            counted: (ending.is_all() && filtered.is_none()).then_some(counted),
            seconds: ending.is_whole().then_some(&self.seconds),
            clock_steps: self.trace.clock_steps(),
            rows_late: self.rows.late,
            unknown_stacks: sites.unknown_stacks,
            merged_stacks: settled.lines.merged() + settled.on_cpu.merged(),
            samples_forgotten: self.samples.as_ref().map_or(0, |samples| samples.forgotten),
            unlisted_processes: sites.processes.unlisted(),
            merged_blame: blame.as_ref().map_or(0, |blame| blame.merged_rows),
            merged_chains: blame.as_ref().map_or(0, |blame| blame.merged_chains),
            forgotten_io_sums: blame.as_ref().map_or(0, |blame| blame.forgotten_io_sums),
            left_out_disk_waits: blame.as_ref().map_or(0, |blame| blame.left_out_disk_waits),
            switches: stacks
                .iter()
                .filter(|line| line.kind != StackKind::RunQueue)
                .map(|line| line.count)
                .sum(),
            ending,
        });
        let mut unwinding = settled.walked.unwinding();
        unwinding.walks.clone_from(&cost.walks);
        let by_group = self.groups.as_ref().zip(self.options.group_by.as_ref());
        let labels = by_group.map_or_else(Vec::new, |(groups, by)| {
            labels::report(groups, by, self.types.len(), classes.len())
        });
        let mut report = Report {
            trace: TraceInfo {
                seconds_checked: self.seconds.checked,
                ..self.trace.info(&sites.processes)
            },
            classes,
            named_waits: sites.classifier.named(),
            places: self.spots.names.clone(),
            attributes: self.attributes.names.clone(),
            requests,
            blame,
            verdict: Vec::new(),
            page: None,
            labels,
            stacks,
            away,
            on_cpu,
            modules,
            open,
            losses,
            programs: cost.programs.clone(),
            unwinding,
            filtered,
            warnings: Vec::new(),
            hints: Vec::new(),
        };
        self.count_markers(&mut report);
        let unmatched = std::mem::take(&mut report.trace.unmatched_waits);
        report.trace.unmatched_waits = sites.without_matches(unmatched);
        if report.filtered.is_none() {
            report.warnings = warnings::of(&report);
        }
        report.hints = hints::of(&report, &signs, sites.kernel_is_nameless());
        // The look-ups of this view are in it, and in no later one.
        sites.unknown_stacks = unknown_before;
        report
    }

    /// Adds what was counted of each marker, and markers of programs that came later.
    fn count_markers(&self, report: &mut Report) {
        for count in &self.sums.markers {
            let Some(of_type) = self.types.get(count.request as usize) else {
                continue;
            };
            let plain = |text: &str| -> String { Plain::of(text).into() };
            let info = MarkerInfo {
                request: of_type.name.clone(),
                marker: plain(&count.marker),
                place: plain(&count.place),
                object: plain(&count.object),
                probes: usize::try_from(count.probes).unwrap_or(usize::MAX),
                counts: Some(count.counts),
            };
            let is_it = |known: &&mut MarkerInfo| {
                known.counts.is_none()
                    && (&known.request, &known.marker) == (&info.request, &info.marker)
                    && (&known.place, &known.object) == (&info.place, &info.object)
            };
            match report.trace.markers.iter_mut().find(is_it) {
                Some(known) => known.counts = info.counts,
                None => report.trace.markers.push(info),
            }
        }
    }

    /// Adds the sums since the last time that they were settled.
    pub(super) fn add_unsettled(&self, settled: &mut Settled, sites: &mut Sites) {
        let sums = self.sums.stacks();
        let histograms = if self.options.histogram {
            self.sums.histograms()
        } else {
            Vec::new()
        };
        let slow = self.slow.as_ref().map(SlowStacks::sums);
        let samples = self.samples.as_ref().map_or_else(Vec::new, Samples::sums);
        let new = New {
            sums: &sums,
            shown: match &self.stacks {
                Some(_) => &[],
                None => slow.as_ref().unwrap_or(&sums),
            },
            histograms: &histograms,
            samples: &samples,
        };
        settled.add(sites, &new);
    }
}

fn filtered(filter: &Filter) -> Filtered {
    Filtered {
        which: filter.which.clone(),
        kept: filter.kept,
        left_out: filter.left_out,
        without_stack_ns: filter.without_stack_ns,
    }
}

/// What the numbers of a report are from.
#[derive(Clone, Copy)]
struct How {
    /// The records alone: it is filtered, or of a part of a trace.
    by_records: bool,
    /// A record may stand for more requests than the kernel has added up of it.
    keeps_slow: bool,
}

/// A filtered report knows of its requests what their records say, and so does that of a part of a trace.
fn type_report(
    state: &TypeState,
    arrived: &Arrived,
    totals: &TypeTotals,
    sums: &[u64],
    how: How,
) -> TypeReport {
    let rows = arrived.rows;
    let weight = arrived.complete.weight;
    // Then what the records that came stand for is an estimate of what the kernel knows.
    let is_chosen = totals.withheld > 0 || how.keeps_slow && weight != totals.count;
    let classes_exact = how.by_records || !is_chosen && rows >= totals.recorded();
    let (count, exact_count, recorded, sent) = if how.by_records {
        (weight, rows, rows, rows)
    } else if is_chosen {
        let recorded = totals.recorded();
        (totals.count, totals.exact_count(), recorded, totals.sent())
    } else {
        let recorded = totals.recorded().max(rows);
        (
            totals.count.max(weight),
            totals.exact_count().max(rows),
            recorded,
            recorded,
        )
    };
    TypeReport {
        name: state.name.clone(),
        count,
        exact_count,
        recorded,
        sent,
        rows,
        is_estimate: how.by_records && weight != rows,
        incomplete: arrived.incomplete.clone(),
        latency: if classes_exact {
            arrived.latency()
        } else {
            kernel_latency(totals)
        },
        ledger: if classes_exact {
            arrived.complete.ledger.clone()
        } else if is_chosen {
            ledger_by_sums(arrived, totals, sums)
        } else {
            estimated_ledger(arrived, totals, sums)
        },
        classes_exact,
        slow: None,
        lengths: Vec::new(),
        files: Vec::new(),
        begins: totals.begins,
        ends: totals.ends,
        nested: totals.nested,
        other_type: totals.other_type,
        ends_without_begin: totals.ends_without_begin,
        is_keyed: false,
        ignores_inner: false,
        ends_with_next: state.followed.as_ref().is_some_and(Followed::is_most),
        unknown_keys: totals.unknown_keys,
        running_elsewhere: totals.running_elsewhere,
        children: None,
        waited_before: state.before.as_ref().map(Before::report),
        lost: state.lost.as_ref().map(Lost::report),
    }
}

/// The ledger of all complete requests when some records did not come.
///
/// Everything but the classes is the kernel's and exact. The blocked time of the requests that
/// arrived is known by class; the rest is split like the kernel's sums per stack less everything
/// that arrived. That is exact when only complete requests were lost.
fn estimated_ledger(state: &Arrived, totals: &TypeTotals, sums: &[u64]) -> Ledger {
    let arrived = &state.complete.ledger;
    let rest = totals.blocked_ns.saturating_sub(arrived.blocked_ns());
    let weights: Vec<_> = sums
        .iter()
        .zip(&state.all.classes)
        .map(|(all, seen)| all.saturating_sub(*seen))
        .collect();
    let mut ledger = Ledger {
        classes: arrived.classes.clone(),
        parked: with_rest(&arrived.parked, totals.parked_ns),
        queued: with_rest(&arrived.queued, totals.queued_ns),
        ..kernel_ledger(totals)
    };
    match split(rest, &weights).or_else(|| split(rest, &arrived.classes)) {
        Some(parts) => {
            for (class, part) in ledger.classes.iter_mut().zip(parts) {
                *class += part;
            }
        }
        None => ledger.unattributed_ns += rest,
    }
    closed(ledger)
}

/// The same when records were withheld: what came stands for more than itself. Blocked time is split by the kernel's sums per
/// stack, which are of all requests, less the incomplete ones, which all have records; and time without a thread by what came.
fn ledger_by_sums(state: &Arrived, totals: &TypeTotals, sums: &[u64]) -> Ledger {
    let arrived = &state.complete.ledger;
    let incomplete = state.all.classes.iter().zip(&arrived.classes);
    let incomplete = incomplete.map(|(all, complete)| all.saturating_sub(*complete));
    let complete = sums.iter().zip(incomplete);
    let weights: Vec<_> = complete
        .map(|(all, less)| all.saturating_sub(less))
        .collect();
    let mut ledger = kernel_ledger(totals);
    let blocked = split(totals.blocked_ns, &weights);
    match blocked.or_else(|| split(totals.blocked_ns, &arrived.classes)) {
        Some(classes) => ledger.classes = classes,
        None => {
            ledger.classes = vec![0; arrived.classes.len()];
            ledger.unattributed_ns += totals.blocked_ns;
        }
    }
    let places = |of: &[u64], all_ns| {
        split(all_ns, of).unwrap_or_else(|| with_rest(&vec![0; of.len()], all_ns))
    };
    ledger.parked = places(&arrived.parked, totals.parked_ns);
    ledger.queued = places(&arrived.queued, totals.queued_ns);
    closed(ledger)
}

/// What the kernel has added up itself, without classes and places.
fn kernel_ledger(totals: &TypeTotals) -> Ledger {
    Ledger {
        latency_ns: totals.latency_ns,
        run_queue_ns: totals.run_queue_ns,
        preempted_ns: totals.preempted_ns,
        unattributed_ns: totals.unattributed_ns,
        ..Ledger::default()
    }
}

/// With the time that is left on the CPU.
fn closed(mut ledger: Ledger) -> Ledger {
    let off_cpu =
        ledger.run_queue_ns + ledger.preempted_ns + ledger.held_up_ns() + ledger.queued_ns();
    ledger.on_cpu_ns = ledger.latency_ns.saturating_sub(off_cpu);
    ledger
}

/// Time by place of the requests that arrived, and of all others up to `all_ns`: these are split alike.
fn with_rest(arrived: &[u64], all_ns: u64) -> Vec<u64> {
    let mut places = arrived.to_vec();
    let rest = all_ns.saturating_sub(arrived.iter().sum());
    match split(rest, arrived) {
        Some(parts) => {
            for (place, part) in places.iter_mut().zip(parts) {
                *place += part;
            }
        }
        // The last one stands for time without a name.
        None => {
            if let Some(last) = places.last_mut() {
                *last += rest;
            }
        }
    }
    places
}
