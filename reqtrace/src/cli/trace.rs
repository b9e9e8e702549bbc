//! `reqtrace --profile P -p PID`: options in, a report out.
//!
//! Everything that can be wrong is looked at before anything is attached: the profile, the
//! processes, the outputs, the kernel. Then attach, follow, stop, report, detach.

mod ahead;
mod backlog;
mod choice;
mod early;
mod follow;
pub(super) mod gate;
mod guarding;
mod progress;
mod resolved;
mod started;
pub(super) mod targets;
mod tracing;

use std::path::PathBuf;
use std::thread;
use std::time::Instant;

use aya::sys::{Stats, enable_stats};
use log::info;
use reqtrace_recording::{Header, Marker, Recorder};

use super::args::{Stacks, TraceOptions, Unwind};
use crate::aggregate::{self, Aggregator};
use crate::attach::{self, Compiled, KernelTypes, LabelTable, LoadOptions, Loader, ProbePlan};
use crate::capture::{Names, Stream};
use crate::classify::Classifier;
use crate::error::{Error, Result};
use crate::kernel::{Host, clock};
use crate::profile::{At, Profile};
use crate::report::outputs::{self, OutputOptions};
use crate::resolve::{Process, ResolvedMarker, ResolvedProfile};
use crate::symbolize::live::LiveSymbolizer;
use crate::unwind::Registry;

use ahead::Ahead;
use choice::Choice;
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
    super::logger::start(options.outputs.verbose);
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Error::failed("the runtime could not be started").because(error))?
        .block_on(trace(options))
}

async fn trace(options: TraceOptions) -> Result<()> {
    let Choice {
        profile,
        mut processes,
        mut started,
    } = choice::choose(&options)?;
    let mut pids: Vec<u32> = processes.iter().map(|process| process.pid).collect();
    let children = match options.follow {
        true => targets::descendants(&pids),
        false => Vec::new(),
    };
    pids.extend(&children);
    let host = Ahead::begin("the machine", Host::examine);
    let loader = Ahead::begin("the loader", Loader::new);
    let tables = compile_tables(&pids, &processes, started.is_some(), &options);
    let resolved = resolve_all(&profile, &processes);
    // A kernel that cannot be traced on is said first: it may be why nothing was resolved.
    let host = host.wait().flatten()?;
    let types = Ahead::begin("the kernel's types", {
        let host = host.clone();
        move || KernelTypes::read(&host)
    });
    let mut resolved = resolved?;
    if options.labels {
        say_unlabelled(&profile, &resolved)?;
    }
    for child in children {
        resolve_child(&profile, child, &mut processes, &mut resolved);
    }
    let monotonic_to_unix_ns = clock::monotonic_to_unix_ns();

    let mut symbols = LiveSymbolizer::new();
    for process in &processes {
        symbols.remember(follow::first_space(process.pid));
    }
    // A bad path is said before anything is loaded; a trace that is refused opens nothing.
    let classes = Classifier::new(&profile.waits)?.names().to_vec();
    let output_options = OutputOptions {
        private: options.labels,
        asked: Some(early::has_come),
        ..options.outputs.options()
    };
    outputs::check(&output_options)?;

    let mut labels = options.labels.then(LabelTable::default);
    let plans = ProbePlan::of(&resolved, labels.as_mut())?;
    // Counting the programs' time costs some 40 ns a run, so it is done only when it is shown.
    let _stats = (options.outputs.verbose > 0).then(|| enable_stats(Stats::RunTime));
    // What has not begun hits no probe.
    let has_begun = started.is_none();
    let load = || {
        let tables = tables.map(Ahead::wait).transpose()?;
        let load_started = Instant::now();
        let loaded = attach::load(
            &host,
            loader.wait()?,
            || types.wait().flatten(),
            LoadOptions {
                kernel_stacks: true,
                user_stacks: options.outputs.stacks != Stacks::Kernel
                    || needs_user_stacks(&profile),
                preempted_stacks: options.preempted_stacks,
                stack_filter: options.stack_filter,
                histogram: options.outputs.histogram,
                measure_walks: options.outputs.verbose > 0,
                messages: options.outputs.verbose > 0,
                labels: labels.as_ref(),
                probes: Some(&plans),
            },
            tables,
        );
        info!("kernel programs loaded in {:.0?}", load_started.elapsed());
        loaded
    };
    // Both are for the report only, and are there when something is traced: what they take is not
    // taken from the traced processes.
    symbols.read_kernel();
    let unmatched_waits = Ahead::begin("names of waits", {
        let (profile, processes) = (profile.clone(), processes.clone());
        move || unmatched_waits(&profile, &processes)
    });
    // The verifier takes as long as the gate does: both at once. Nothing is attached by either.
    let (gate, loaded) = thread::scope(|scope| {
        let gate = scope.spawn(|| {
            gate::safety(&options, &resolved, &pids)?;
            gate::rate(&options, &plans, &pids, has_begun)
        });
        let loaded = load();
        let panicked = |_| Error::failed("the measurement of the load panicked");
        (gate.join().map_err(panicked).flatten(), loaded)
    });
    let cost = gate?;
    let loaded = loaded?;
    let exporters = outputs::open(&output_options, &classes)?;
    let create = |path| outputs::create("--record", path, options.labels);
    let recording = options.record.as_deref().map(create).transpose()?;
    let attach_started = Instant::now();
    let (mut session, stacks) =
        loaded.attach(&plans, &pids, options.follow, cost, options.sample_every)?;
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
    let mut tracing = Tracing {
        processes: processes
            .iter()
            .map(|process| (process.pid, process.comm.clone()))
            .collect(),
        options,
        profile,
        session,
    };
    let mut signals = Signals::take()?;
    tracing.announce(started.is_some());
    let Tracing {
        options, profile, ..
    } = &tracing;
    let mut header = header(&host, profile, &resolved, monotonic_to_unix_ns);
    header.start_ns = tracing.session.start_ns();
    header.unmatched_waits = unmatched_waits.wait()?;
    header.options = recording_options(options, profile);
    let analysis = Aggregator::new(
        profile,
        &header,
        aggregate::Options {
            slower_than_ns: options.outputs.slower_than_ns(),
            group_by: options.outputs.grouping(),
            histogram: options.outputs.histogram,
            ..aggregate::Options::default()
        },
    )?;
    let mut stream = Stream::new(analysis, exporters);
    if let (Some(file), Some(path)) = (recording, &options.record) {
        let name = path.display().to_string();
        let recorder = Recorder::start(file, &header).map_err(|error| {
            Error::failed(format!("--record {name} cannot be written")).because(error)
        })?;
        stream.record(recorder, &name);
    }
    let names = Names::new(stacks, symbols);
    let follower = Follower::new(stream, names, profile.requests.len(), &pids)?;
    if let Some(started) = &mut started {
        started.release()?;
    }
    let quiet = tracing.options.outputs.quiet;
    let outcome = tracing.follow(follower, &mut signals).await;
    tracing.session.detach();
    match (outcome, started) {
        (Ok(outcome), Some(started)) => started.finish(outcome, quiet),
        (outcome, _) => outcome.map(drop),
    }
}

/// Unwind tables, if stacks are walked by them. A program that has not begun has mapped nothing yet:
/// then its files are given.
fn compile_tables(
    pids: &[u32],
    processes: &[Process],
    is_started: bool,
    options: &TraceOptions,
) -> Option<Ahead<Compiled>> {
    if options.unwind == Unwind::Fp {
        return None;
    }
    let progress = progress::Compiling::new(options.outputs.quiet);
    let mut registry = Registry::new().with_progress(move |now| progress.update(now));
    if options.unwind == Unwind::Auto {
        registry = registry.with_frame_pointers();
    }
    let files = processes.iter().flat_map(|process| &process.objects);
    let files: Vec<PathBuf> = files.map(|file| file.open.clone()).collect();
    let spaces: Vec<_> = pids.iter().map(|&pid| follow::first_space(pid)).collect();
    Some(Ahead::begin("the unwind tables", move || {
        if is_started {
            Compiled::ahead_of(registry, &files)
        } else {
            Compiled::of(registry, &spaces)
        }
    }))
}

fn needs_user_stacks(profile: &Profile) -> bool {
    profile.waits.iter().any(|wait| !wait.functions.is_empty())
}

/// What a recording needs to know of the options.
fn recording_options(options: &TraceOptions, profile: &Profile) -> reqtrace_recording::Options {
    reqtrace_recording::Options {
        labels: options.labels,
        histogram: options.outputs.histogram,
        no_user_stacks: options.outputs.stacks == Stacks::Kernel && !needs_user_stacks(profile),
        no_kernel_stacks: false,
        stack_filter: super::filter::describe(&options.stack_filter),
        preempted_stacks: options.preempted_stacks,
    }
}

fn header(
    host: &Host,
    profile: &Profile,
    resolved: &[ResolvedProfile],
    monotonic_to_unix_ns: i64,
) -> Header {
    let marker = |request: &str, name: &str, marker: &ResolvedMarker| Marker {
        request: request.to_owned(),
        marker: name.to_owned(),
        place: match (marker.at, marker.is_function) {
            (At::Return, _) => format!("{} at return", marker.symbol),
            (At::Entry, true) => format!("{} at entry", marker.symbol),
            (At::Entry, false) if marker.symbol.starts_with("0x") => {
                format!("offset {}", marker.symbol)
            }
            (At::Entry, false) => marker.symbol.clone(),
        },
        object: marker.object_shown.clone(),
        probes: marker.sites.len() as u64,
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
    Header {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        host: host.name.clone(),
        kernel: host.release.clone(),
        monotonic_to_unix_ns,
        profile: profile.name.clone(),
        profile_text: profile.text.clone(),
        markers,
        ..Header::default()
    }
}
