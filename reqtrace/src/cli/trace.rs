//! `reqtrace --profile P -p PID`: options in, a report out.
//!
//! Everything that can be wrong is looked at before anything is attached: the profile, the
//! processes, the outputs, the kernel. Then attach, follow, stop, report, detach.

mod early;
mod follow;
pub(super) mod gate;
mod progress;
pub(super) mod targets;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use aya::sys::{Stats, enable_stats};
use log::{debug, info};

use super::args::{GroupBy, Stacks, TraceOptions, Unwind};
use crate::aggregate::{self, Aggregator};
use crate::attach::{self, Compiled, LabelTable, LoadOptions, ProbePlan, Session, StackTable};
use crate::classify::Classifier;
use crate::decode::recording::Recorder;
use crate::error::{Error, Result};
use crate::kernel::{Host, clock};
use crate::profile::{At, Profile, builtin};
use crate::report::outputs::{self, OutputOptions, UntilClosed};
use crate::report::table::TableExporter;
use crate::report::{Exporter, Grouping, MarkerInfo, TraceInfo};
use crate::resolve::{
    Process, ResolvedMarker, ResolvedProfile, Target, resolve, unmatched_without_symbols,
};
use crate::symbolize::live::LiveSymbolizer;
use crate::unwind::Registry;

use follow::{Follower, Signals};

/// Processes named at the start before the rest is only counted.
const MAX_NAMED: usize = 3;

/// Traces.
///
/// # Errors
///
/// Whatever is wrong with the profile, the processes, the outputs or the kernel, before anything
/// is attached; a failed read or write afterwards.
pub fn run(options: TraceOptions) -> Result<()> {
    early::watch();
    super::logger::start(options.verbose);
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Error::failed("the runtime could not be started").because(error))?
        .block_on(trace(options))
}

async fn trace(options: TraceOptions) -> Result<()> {
    let profile = builtin::load(&options.profile)?;
    let pids = targets::pids(&options)?;
    let host = Host::examine()?;
    let mut processes = pids
        .iter()
        .map(|&pid| Process::open(pid))
        .collect::<Result<Vec<_>>>()?;
    let mut resolved = resolve_all(&profile, &processes)?;
    if options.labels {
        say_unlabelled(&profile, &resolved)?;
    }
    let unmatched_waits = unmatched_waits(&profile, &processes);
    let mut pids = pids;
    if options.follow {
        for child in targets::descendants(&pids) {
            pids.push(child);
            resolve_child(&profile, child, &mut processes, &mut resolved);
        }
    }
    let monotonic_to_unix_ns = clock::monotonic_to_unix_ns();

    let mut symbols = LiveSymbolizer::new();
    for process in &processes {
        symbols.remember(follow::first_space(process.pid));
    }
    let aggregate_options = aggregate::Options {
        monotonic_to_unix_ns,
        start_ns: clock::monotonic_ns(),
        slower_than_ns: options.slower_than.map(nanoseconds),
        group_by: options.group_by.map(|by| match by {
            GroupBy::Label => Grouping::Label,
            GroupBy::Fingerprint => Grouping::Fingerprint,
        }),
    };
    // The header of the CSV needs the classes, and the aggregator needs the stacks, which are
    // there only after loading: outputs are opened in between, so that a bad path leaves nothing
    // attached.
    let classes = Classifier::new(&profile.waits)?.names().to_vec();
    let exporters = outputs::open(&output_options(&options), &classes)?;
    let recording = options.record.as_deref().map(targets::create).transpose()?;

    let mut labels = options.labels.then(LabelTable::default);
    let plans = ProbePlan::of(&resolved, labels.as_mut())?;
    gate::safety(&options, &resolved, &pids)?;
    gate::rate(&options, &plans, &pids)?;

    let tables = match options.unwind {
        Unwind::Auto | Unwind::Dwarf => Some(compile_tables(&pids, &options)),
        Unwind::Fp => None,
    };
    // Counting the programs' time costs some 40 ns a run, so it is done only when it is shown.
    let _stats = (options.verbose > 0).then(|| enable_stats(Stats::RunTime));
    let started = Instant::now();
    let loaded = attach::load(
        &host,
        LoadOptions {
            kernel_stacks: true,
            user_stacks: options.stacks != Stacks::Kernel || needs_user_stacks(&profile),
            stack_filter: options.stack_filter,
            histogram: options.histogram,
            measure_walks: options.verbose > 0,
            messages: options.verbose > 0,
            labels: labels.as_ref(),
        },
        tables,
    )?;
    info!("kernel programs loaded in {:.0?}", started.elapsed());
    // The programs that were just loaded are in it.
    symbols.read_kernel();
    let attach_started = Instant::now();
    let (mut session, stacks) = loaded.attach(&plans, &pids, options.follow)?;
    if options.follow {
        // Those that were started before the kernel programs saw forks.
        let late: Vec<u32> = targets::descendants(&pids)
            .into_iter()
            .filter(|pid| !pids.contains(pid))
            .collect();
        for &pid in &late {
            symbols.remember(follow::first_space(pid));
        }
        session.trace_children(&late)?;
        pids.extend(late);
    }
    info!(
        "{} probes attached in {:.0?}; kernel memory {} KiB",
        plans.len(),
        attach_started.elapsed(),
        session.kernel_memory() / 1024
    );
    let aggregator = Aggregator::new(&profile, aggregate_options, symbols, stacks)?;
    let mut trace = trace_info(&host, &profile, &processes, &resolved, monotonic_to_unix_ns);
    trace.unmatched_waits = unmatched_waits;
    trace.stack_filter = super::filter::describe(&options.stack_filter);
    let mut tracing = Tracing {
        options,
        profile,
        session,
        exporters,
        trace,
        recorder: recording.is_some().then(Recorder::new),
    };
    let mut signals = Signals::take()?;
    tracing.announce();
    let follower = Follower::new(aggregator, &pids);
    let report = tracing.follow(follower, &mut signals, recording).await;
    tracing.session.detach();
    report
}

fn compile_tables(pids: &[u32], options: &TraceOptions) -> Compiled {
    let progress = progress::Compiling::new(options.quiet);
    let mut registry = Registry::new().with_progress(move |now| progress.update(now));
    if options.unwind == Unwind::Auto {
        registry = registry.with_frame_pointers();
    }
    let spaces: Vec<_> = pids.iter().map(|&pid| follow::first_space(pid)).collect();
    Compiled::of(registry, &spaces)
}

/// A trace with everything attached.
struct Tracing {
    options: TraceOptions,
    profile: Profile,
    session: Session,
    exporters: Vec<Box<dyn Exporter>>,
    trace: TraceInfo,
    recorder: Option<Recorder>,
}

impl Tracing {
    fn announce(&self) {
        if self.options.quiet {
            return;
        }
        let how_long = match self.options.duration {
            Some(duration) => format!("for {} s", duration.as_secs_f64()),
            None => "until Ctrl-C".to_owned(),
        };
        eprintln!(
            "tracing {} with {} {how_long}",
            named(&self.trace.processes),
            self.profile.name
        );
    }

    /// Follows until the end, then reports; the probes are still in.
    async fn follow(
        &mut self,
        mut follower: Follower<StackTable>,
        signals: &mut Signals,
        recording: Option<std::fs::File>,
    ) -> Result<()> {
        let start_ns = self.session.start_ns();
        let mut progress = progress::Progress::new(self.options.quiet, self.options.duration);
        let outcome = follower
            .run(
                &mut self.session,
                &mut self.exporters,
                self.recorder.as_mut(),
                self.options.duration,
                signals,
                &mut progress,
            )
            .await?;
        progress.finish();
        let reporting = Instant::now();
        let stop_ns = self.session.stop()?;
        follower.drain(
            &mut self.session,
            &mut self.exporters,
            self.recorder.as_mut(),
        )?;
        self.trace.processes = follower.processes();
        let mut aggregator = follower.into_aggregator();
        let snapshot =
            self.session
                .snapshot(aggregator.sources().0, stop_ns, self.profile.requests.len())?;
        let mut trace = self.trace.clone();
        trace.start_unix_ns = unix(start_ns, trace.monotonic_to_unix_ns);
        trace.duration_ns = stop_ns.saturating_sub(start_ns);
        outcome.name().clone_into(&mut trace.ended_by);
        if let (Some(recorder), Some(file)) = (self.recorder.take(), recording) {
            let (stacks, symbols) = aggregator.sources();
            let text = targets::profile_text(&self.profile)?;
            let recording = recorder.finish(text, trace.clone(), &snapshot, stacks, symbols);
            targets::write(file, &recording.to_json()?)?;
        }
        let report = aggregator.finish(snapshot, trace, &mut self.exporters)?;
        for exporter in &mut self.exporters {
            exporter.finish(&report)?;
        }
        self.print_table(&report)?;
        info!(
            "reported in {:.0?}; user memory at most {} KiB",
            reporting.elapsed(),
            peak_memory()
        );
        Ok(())
    }

    /// The table goes to standard output, or to standard error when an output has taken that.
    fn print_table(&self, report: &crate::report::Report) -> Result<()> {
        let verbose = self.options.verbose > 0;
        if self.options.quiet {
            for loss in &report.losses {
                eprintln!("reqtrace: {} × {}: {}", loss.count, loss.name, loss.advice);
            }
            return Ok(());
        }
        let out: Box<dyn std::io::Write> = if self.options.takes_stdout() {
            Box::new(std::io::stderr())
        } else {
            Box::new(std::io::stdout())
        };
        TableExporter::new(Box::new(UntilClosed::new(out)), verbose).finish(report)?;
        if let Some(out) = &self.options.out {
            eprintln!(
                "wrote {0}/summary.json, {0}/requests.csv, {0}/stacks.folded, {0}/flamegraph.svg",
                out.display()
            );
        }
        Ok(())
    }
}

/// Processes by name and PID; of a server with a process for each connection not all.
fn named(processes: &[(u32, String)]) -> String {
    let shown = processes.iter().take(MAX_NAMED);
    let mut words: Vec<String> = shown
        .map(|(pid, comm)| format!("{comm} (pid {pid})"))
        .collect();
    let more = processes.len().saturating_sub(MAX_NAMED);
    if more > 0 {
        words.push(format!("{more} more"));
    }
    words.join(", ")
}

/// Adds the probes of a child that was there before: none when it runs the same files as a process
/// that was resolved, or a program that the profile does not fit.
fn resolve_child(
    profile: &Profile,
    pid: u32,
    processes: &mut Vec<Process>,
    resolved: &mut Vec<ResolvedProfile>,
) {
    // It may have left, and it is nothing that the user named: no error.
    let Ok(process) = Process::open(pid) else {
        return;
    };
    let shown = |process: &Process| -> Vec<String> {
        let files = process.objects.iter();
        files.map(|file| file.shown.clone()).collect()
    };
    let known = processes.iter().any(|known| {
        known.executable.shown == process.executable.shown && shown(known) == shown(&process)
    });
    if !known {
        match resolve(profile, &process) {
            Ok(found) => resolved.push(found),
            Err(error) => debug!("child {pid} ({}) has no markers: {error}", process.comm),
        }
    }
    processes.push(process);
}

fn resolve_all(profile: &Profile, processes: &[Process]) -> Result<Vec<ResolvedProfile>> {
    let mut all = Vec::new();
    let mut warnings = BTreeMap::new();
    for process in processes {
        let resolved = resolve(profile, process)
            .map_err(|error| error.within(format!("process {} ({})", process.pid, process.comm)))?;
        for warning in &resolved.warnings {
            warnings.insert(warning.clone(), ());
        }
        for note in &resolved.notes {
            info!("{note}");
        }
        all.push(resolved);
    }
    for warning in warnings.keys() {
        eprintln!("reqtrace: {warning}");
    }
    for request in all.iter().flat_map(|profile| &profile.requests) {
        debug!(
            "request {}: begin {} ({} probes), end {} ({} probes)",
            request.name,
            request.begin.symbol,
            request.begin.sites.len(),
            request.end.symbol,
            request.end.sites.len()
        );
    }
    Ok(all)
}

/// A label that was asked for and cannot be had is said, not left out silently.
fn say_unlabelled(profile: &Profile, resolved: &[ResolvedProfile]) -> Result<()> {
    if profile
        .requests
        .iter()
        .all(|request| request.labels.is_empty())
    {
        return Err(Error::usage(format!(
            "--labels: the profile `{}` does not say where a label is",
            profile.name
        ))
        .next(format!(
            "give a request a label, such as label = {{ arg = 0 }}: docs/profile-reference.md; \
             built-in profiles with labels: {}",
            builtin::with_labels().join(", ")
        )));
    }
    let mut said = Vec::new();
    for request in resolved.iter().flat_map(|profile| &profile.requests) {
        if let Some(why) = &request.unlabelled
            && !said.contains(&why)
        {
            eprintln!("reqtrace: {why}");
            said.push(why);
        }
    }
    Ok(())
}

fn needs_user_stacks(profile: &Profile) -> bool {
    profile.waits.iter().any(|wait| !wait.functions.is_empty())
}

fn output_options(options: &TraceOptions) -> OutputOptions {
    OutputOptions {
        out: options.out.clone(),
        csv: options.csv.clone(),
        folded: options.folded.clone(),
        folded_on_stdout: false,
        flamegraph: options.flamegraph.clone(),
        json: options.json.clone(),
        stacks: crate::report::folded::FoldedOptions {
            delimiter: options.delimited,
            user: options.stacks != Stacks::Kernel,
            kernel: options.stacks != Stacks::User,
            blocked_only: options.blocked_only,
        },
        slower_than_ns: options.slower_than.map_or(0, nanoseconds),
    }
}

fn trace_info(
    host: &Host,
    profile: &Profile,
    processes: &[Process],
    resolved: &[ResolvedProfile],
    monotonic_to_unix_ns: i64,
) -> TraceInfo {
    let marker = |request: &str, name: &str, marker: &ResolvedMarker| MarkerInfo {
        request: request.to_owned(),
        marker: name.to_owned(),
        place: format!(
            "{} at {}",
            marker.symbol,
            match marker.at {
                At::Entry => "entry",
                At::Return => "return",
            }
        ),
        object: marker.object_shown.clone(),
        probes: marker.sites.len(),
    };
    let markers = resolved.first().map_or_else(Vec::new, |profile| {
        profile
            .requests
            .iter()
            .flat_map(|request| {
                [
                    marker(&request.name, "begin", &request.begin),
                    marker(&request.name, "end", &request.end),
                ]
            })
            .collect()
    });
    TraceInfo {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        profile: profile.name.clone(),
        processes: processes
            .iter()
            .map(|process| (process.pid, process.comm.clone()))
            .collect(),
        kernel: host.release.clone(),
        monotonic_to_unix_ns,
        markers,
        ..TraceInfo::default()
    }
}

/// Of the first process's executable; what cannot be read now could be read before, and is no reason
/// to end.
fn unmatched_waits(profile: &Profile, processes: &[Process]) -> Vec<(String, Vec<String>)> {
    let Some(process) = processes.first() else {
        return Vec::new();
    };
    unmatched_without_symbols(profile, &Target::Process(process)).unwrap_or_else(|error| {
        debug!("named waits are not checked: {error}");
        Vec::new()
    })
}

fn unix(monotonic_ns: u64, offset: i64) -> u64 {
    monotonic_ns.saturating_add_signed(offset)
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Peak of this process's resident memory in KiB.
fn peak_memory() -> u64 {
    std::fs::read_to_string("/proc/self/status")
        .ok()
        .and_then(|status| {
            let line = status
                .lines()
                .find_map(|line| line.strip_prefix("VmHWM:"))?;
            line.trim().trim_end_matches("kB").trim().parse().ok()
        })
        .unwrap_or(0)
}
