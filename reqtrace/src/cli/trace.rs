//! `reqtrace --profile P -p PID`: options in, a report out. The trace itself is [`crate::analysed`]'s.

mod choice;
mod progress;
mod started;
mod targets;

use std::path::PathBuf;

use super::descriptors::raise_descriptors;
use super::options::TraceOptions;
use super::{logger, show, signals};
use crate::analysed::Analysed;
use crate::live::{Live, Title};
use reqtrace_base::error::{Error, Result};
use reqtrace_base::plain::Plain;
use reqtrace_capture::attach::SamplingPlan;
use reqtrace_capture::events::Notice;
use reqtrace_capture::tracer::Tracer;
use reqtrace_output::folded::Part;
use reqtrace_output::outputs::{self, OutputSpec, Target};
use reqtrace_resolve::Process;

use choice::Choice;
use progress::{Compiling, Progress};

/// Processes named at the start before the rest is only counted.
const MAX_NAMED: usize = 3;

/// Traces.
///
/// # Errors
///
/// Whatever is wrong with the profile, the processes, the outputs or the kernel, before anything
/// is attached; a failed read or write afterwards.
pub fn run(options: TraceOptions) -> Result<()> {
    signals::watch();
    logger::start(options.outputs.verbose);
    let quiet = options.outputs.quiet;
    let terminal = options.live.then(Live::prepare).transpose()?;
    let Choice {
        profiles,
        processes,
        mut started,
    } = choice::choose(&options)?;
    // A program that was started has the usual limit: some expect no higher descriptors.
    raise_descriptors();
    let named = named(&processes);
    let names = profiles.names();
    let announcement = announcement(&options, &names, &named, started.is_some());
    let mut tracer = Tracer::new(profiles).processes(processes);
    if started.is_some() {
        tracer = tracer.not_begun();
    }
    tracer = options.programs.iter().fold(tracer, Tracer::program);
    let trace = analysed(&options, tracer)?.start()?;
    signals::stop(trace.stopper());
    let foreign_folders = options.outputs.spec().are_in_foreign_folders();
    trace.give_up_privileges(foreign_folders, started.is_some())?;
    if !quiet {
        reqtrace_base::say!("{announcement}");
    }
    if let Some(started) = &mut started {
        started.release()?;
    }
    // The terminal is given back before anything is printed, an error too.
    let finished = match terminal {
        Some(terminal) => {
            let title = Title {
                profile: names,
                processes: Plain::of(&named).to_string(),
                duration: options.duration,
            };
            let mut live = Live::start(terminal, title, trace.stopper())?;
            trace.run_with(&mut live)
        }
        None => {
            let at_once = options.outputs.spec().are_rows_read_meanwhile();
            trace.run_later(at_once, &mut Progress::new(quiet, options.duration))
        }
    };
    let mut finished = finished?;
    let shown = show::table(&finished.report, &options.outputs);
    if finished.outputs.is_ok() {
        show::written(&options.outputs, &finished.report);
    }
    finished.detach();
    let written = finished.outputs.and(shown).and(finished.recording);
    let ended = started.map_or(Ok(()), |started| started.finish(finished.ended_by, quiet));
    written.and(ended)
}

/// The options of the command line as those of a trace.
fn analysed(options: &TraceOptions, tracer: Tracer) -> Result<Analysed> {
    let wanted = &options.outputs;
    let files = OutputSpec {
        private: options.labels || wanted.group_by.is_some(),
        blame: options.blame,
        asked: Some(signals::has_come),
        taken: recording(options)?,
        ..wanted.spec()
    };
    // A bad path is an error before anything is loaded.
    outputs::check(&files)?;
    let (quiet, compiling) = (wanted.quiet, Compiling::new(wanted.quiet));
    let mut tracer = tracer
        .follow(options.follow)
        .labels(options.labels)
        .histogram(wanted.histogram)
        .blame(options.blame)
        .before(options.before)
        .interrupts(options.interrupts)
        .samples((options.cpu_rate > 0).then_some(SamplingPlan {
            rate_hz: options.cpu_rate,
            engine: options.cpu_engine.into(),
            is_required: wanted.part != Part::OffCpu,
        }))
        .user_stacks(!wanted.kernel_only)
        .preempted_stacks(options.preempted_stacks)
        .stack_filter(options.stack_filter)
        .unwind(options.unwind.into())
        .sample_every(options.sample_every)
        .keep_slow(options.keep_slow)
        .max_probe_rate(options.max_probe_rate)
        .max_overhead(options.max_overhead)
        .memory(options.memory)
        .accept_risk(options.yes)
        .measure_programs(wanted.verbose > 0)
        .on_notice(move |notice| match notice {
            Notice::Note(_) if quiet => {}
            Notice::Warning(text) | Notice::Note(text) => reqtrace_base::say!("reqtrace: {text}"),
            Notice::Compiling(progress) => compiling.update(progress),
        });
    if let Some(duration) = options.duration {
        tracer = tracer.duration(duration);
    }
    let mut analysed = Analysed::new(tracer).outputs(move |columns| outputs::open(&files, columns));
    if let Some(latency) = wanted.slower_than {
        analysed = analysed.slower_than(latency);
    }
    if let Some(by) = wanted.group_by.clone() {
        analysed = analysed.group_by(by);
    }
    if let Some(file) = &options.record {
        analysed = analysed.record(file);
    }
    if let Some(roll) = options.roll {
        analysed = analysed.roll(roll, options.keep);
    }
    Ok(analysed)
}

/// The recording's place, which no output may have.
fn recording(options: &TraceOptions) -> Result<Vec<(&'static str, PathBuf)>> {
    match &options.record {
        Some(path)
            if path.as_os_str() == "-"
                || !options.outputs.quiet && Target::from(path.clone()) == Target::Stdout =>
        {
            Err(Error::usage(format!(
                "--record {}: the report goes to standard output",
                path.display()
            ))
            .next("name a file; or --quiet --record /dev/stdout, for another program"))
        }
        Some(path) => Ok(vec![("--record", path.clone())]),
        None => Ok(Vec::new()),
    }
}

/// What is traced, with what, and for how long.
fn announcement(
    options: &TraceOptions,
    profile: &str,
    processes: &str,
    is_started: bool,
) -> String {
    let how_long = match options.duration {
        Some(duration) => format!("for {} s", duration.as_secs_f64()),
        None if is_started => "until it ends".to_owned(),
        None => "until Ctrl-C".to_owned(),
    };
    format!("tracing {processes} with {profile} {how_long}; probes set")
}

/// Processes by name and PID; of a server with a process for each connection not all.
fn named(processes: &[Process]) -> String {
    let shown = processes.iter().take(MAX_NAMED);
    let mut words: Vec<String> = shown
        .map(|process| format!("{} (pid {})", process.comm, process.pid))
        .collect();
    let more = processes.len().saturating_sub(MAX_NAMED);
    if more > 0 {
        words.push(format!("{more} more"));
    }
    words.join(", ")
}
