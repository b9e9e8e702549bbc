//! `reqtrace --profile P -p PID`: options in, a report out.
//!
//! Everything that can be wrong is looked at before anything is attached: the profile, the
//! processes, the outputs, the kernel. Then attach, follow, stop, report, detach.

mod early;
mod follow;
pub(super) mod gate;
mod progress;
mod resolved;
pub(super) mod targets;
mod tracing;

use std::time::{Duration, Instant};

use aya::sys::{Stats, enable_stats};
use log::info;

use super::args::{GroupBy, Stacks, TraceOptions, Unwind};
use crate::aggregate::{self, Aggregator};
use crate::attach::{self, Compiled, LabelTable, LoadOptions, ProbePlan};
use crate::classify::Classifier;
use crate::decode::recording::Recorder;
use crate::error::{Error, Result};
use crate::kernel::{Host, clock};
use crate::profile::{At, Profile, builtin};
use crate::report::outputs::{self, OutputOptions};
use crate::report::{Grouping, MarkerInfo, TraceInfo};
use crate::resolve::{Process, ResolvedMarker, ResolvedProfile};
use crate::symbolize::live::LiveSymbolizer;
use crate::unwind::Registry;

use follow::{Follower, Signals};
use resolved::{resolve_all, resolve_child, say_unlabelled, unmatched_waits};
use tracing::Tracing;

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
            preempted_stacks: options.preempted_stacks,
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
    let aggregate_options = aggregate::Options {
        monotonic_to_unix_ns,
        start_ns: session.start_ns(),
        slower_than_ns: options.slower_than.map(nanoseconds),
        group_by: options.group_by.map(|by| match by {
            GroupBy::Label => Grouping::Label,
            GroupBy::Fingerprint => Grouping::Fingerprint,
        }),
    };
    let aggregator = Aggregator::new(&profile, aggregate_options, symbols, stacks)?;
    let mut trace = trace_info(&host, &profile, &processes, &resolved, monotonic_to_unix_ns);
    trace.unmatched_waits = unmatched_waits;
    trace.stack_filter = super::filter::describe(&options.stack_filter);
    trace.preempted_stacks = options.preempted_stacks;
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

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
