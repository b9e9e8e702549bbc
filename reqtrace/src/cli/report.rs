//! `reqtrace report FILE`: a recording in, the same outputs as those of a trace out. It needs neither
//! root nor the machine that was traced.

pub(super) mod files;

use std::path::PathBuf;
use std::time::Duration;

use reqtrace_recording::{Ending, Header};

use super::outputs::{OutputArgs, nanoseconds, parse_pids, with_unit};
use super::show;
use reqtrace_analysis::aggregate::{Aggregator, FilterOptions, Options};
use reqtrace_analysis::classify::columns::Columns;
use reqtrace_base::error::{Error, Result};
use reqtrace_output::folded::Part;
use reqtrace_output::formats::Intervals;
use reqtrace_output::outputs::{self, OutputSpec};
use reqtrace_profile::Profiles;

const AFTER_HELP: &str = "\
Every output is the same, byte for byte, as that of the trace that was recorded, with the same
options. A filter leaves requests out of everything; then stacks are those of the requests that are
left, by their own records, and have neither run queue nor preemption.

Exit codes: 0 done, also when the recording is cut or damaged, which is printed; 1 it failed while
running; 2 bad usage, or no recording.";

/// Arguments of `report`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct ReportArgs {
    /// A recording, made with --record; of one with --roll its folder, or some of its files, which are reported as one
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,

    /// What to write and to print.
    #[command(flatten)]
    outputs: OutputArgs,

    /// Only requests of this type; several with commas, or repeat the option
    #[arg(
        long,
        value_name = "TYPE",
        value_delimiter = ',',
        help_heading = "Filter"
    )]
    request: Vec<String>,

    /// Only requests whose whole label matches: * is any text, ? one character
    #[arg(long, value_name = "GLOB", help_heading = "Filter")]
    label: Option<String>,

    /// Only requests whose attribute matches with its whole text, as in requests.csv; repeat the option for
    /// further attributes, which must match too: --attribute status=5?? --attribute 'path=/user/*'
    #[arg(long = "attribute", value_name = "NAME=GLOB", value_parser = named, help_heading = "Filter")]
    attributes: Vec<(String, String)>,

    /// Only requests that began at this time since the start of the trace or later: 10s, 500ms
    #[arg(long, value_name = "TIME", value_parser = time, help_heading = "Filter")]
    from: Option<Duration>,

    /// Only requests that began before this time since the start of the trace
    #[arg(long, value_name = "TIME", value_parser = time, help_heading = "Filter")]
    to: Option<Duration>,

    /// Only requests of this process; several with commas, or repeat the option
    #[arg(
        short,
        long = "pid",
        value_name = "PID[,PID…]",
        value_delimiter = ',',
        help_heading = "Filter"
    )]
    pids: Vec<String>,

    /// Only requests of this thread; several with commas, or repeat the option
    #[arg(
        long = "tid",
        value_name = "TID[,TID…]",
        value_delimiter = ',',
        help_heading = "Filter"
    )]
    tids: Vec<u32>,

    /// Refused, with what to do instead.
    #[arg(long, hide = true)]
    live: bool,
}

/// A time since the start: seconds, or with a unit.
pub(super) fn time(word: &str) -> Result<Duration, String> {
    let seconds = word.parse::<f64>().ok();
    match seconds.map(Duration::try_from_secs_f64) {
        Some(Ok(seconds)) => Ok(seconds),
        _ => with_unit(word),
    }
}

/// A name and a glob.
fn named(word: &str) -> Result<(String, String), String> {
    match word.split_once('=') {
        Some((name, glob)) if !name.is_empty() => Ok((name.to_owned(), glob.to_owned())),
        _ => Err("write it as NAME=GLOB: status=500".to_owned()),
    }
}

/// Reports a recording.
///
/// # Errors
///
/// A file that is no recording, or one of a newer version; options that ask for what was not
/// recorded; an output that cannot be written.
pub fn run(args: ReportArgs) -> Result<()> {
    if args.live {
        return Err(Error::usage(
            "--live shows a trace while it runs, and a recording is over",
        )
        .next(
            "leave out --live for the report, or look at the recording along time with --html FILE",
        ));
    }
    let filter = FilterOptions {
        requests: args.request,
        label: args.label,
        attributes: args.attributes,
        from_ns: args.from.map(nanoseconds),
        to_ns: args.to.map(nanoseconds),
        ranges: Vec::new(),
        pids: parse_pids(&args.pids)?,
        tids: args.tids,
    };
    let outputs = args.outputs.checked()?;
    #[cfg(feature = "capture")]
    super::logger::start(outputs.verbose);
    let given = files::open(&args.files)?;
    let header = given.series.header().clone();
    check(&outputs, &header)?;
    let profiles = Profiles::parse(
        header.profile_texts(),
        &format!("profile of {}", given.name),
    )?;
    let options = Options {
        slower_than_ns: outputs.slower_than_ns(),
        group_by: outputs.group_by.clone(),
        histogram: outputs.histogram,
        filter,
        ..Options::default()
    };
    let mut analysis = Aggregator::new(&profiles, &header, options)?;
    let columns = Columns::of(&profiles)?
        .with_before(header.before)
        .with_lost(header.interrupts);
    let spec = OutputSpec {
        private: header.options.labels,
        blame: header.blame,
        // No output may replace what is read.
        taken: given
            .files
            .iter()
            .map(|file| ("the recording", file.canonicalize().unwrap_or(file.clone())))
            .collect(),
        ..outputs.spec()
    };
    let mut exporters = outputs::settled(outputs::open(&spec, &columns)?);
    let read = given
        .series
        .read(|event| analysis.event(&event, &mut exporters));
    let mut ending = read.map_err(|(path, error)| files::not_reported(&path, error))??;
    ending.missing_files = ending.missing_files.max(given.unreadable);
    say(&given.name, &ending);
    let mut report = analysis.finish(&ending, &mut exporters)?;
    let complete = outputs::finish(&mut report, &mut exporters);
    let shown = show::table(&report, &outputs);
    if complete.is_ok() {
        show::written(&outputs, &report);
    }
    complete.and(shown)
}

/// Refuses what was not recorded.
fn check(outputs: &OutputArgs, header: &Header) -> Result<()> {
    if outputs.user_only && header.options.no_user_stacks {
        return Err(Error::usage(
            "-U: the recording has kernel stacks only, as it was made with -K",
        )
        .next("record without -K"));
    }
    check_part(outputs.part, header)?;
    for format in outputs.targets.formats().filter(|_| !header.blame) {
        let option = format.asked_by();
        match format.intervals {
            Intervals::Needed => {
                let error = Error::usage(format!("{option}: the recording has no intervals"));
                return Err(error.next("record with --blame"));
            }
            Intervals::Better(Some(what)) => reqtrace_base::say!(
                "reqtrace: the recording has no intervals: the file of {option} {what}; record with --blame"
            ),
            Intervals::Better(None) | Intervals::Unused => {}
        }
    }
    Ok(())
}

/// Refuses time that was not recorded.
fn check_part(part: Part, header: &Header) -> Result<()> {
    if part == Part::OffCpu {
        return Ok(());
    }
    let part = part.name();
    if header.cpu_rate == 0 {
        return Err(Error::usage(format!(
            "--stacks {part}: the recording has no samples of requests on their CPUs"
        ))
        .next("record with a --cpu-rate above 0, where the kernel allows it"));
    }
    let filter = &header.options.stack_filter;
    if !filter.is_empty() {
        return Err(Error::usage(format!(
            "--stacks {part}: the recording has stacks only of blocks {filter}"
        ))
        .next("record without -m, -M and --state"));
    }
    Ok(())
}

/// Says on standard error that something is missing; the report's losses have the counts.
pub(super) fn say(name: &str, ending: &Ending) {
    if ending.is_whole() {
        return;
    }
    if ending.missing_files > 0 {
        reqtrace_base::say!(
            "reqtrace: {} files of {name} are missing; the report has the others",
            ending.missing_files
        );
    }
    if ending.unwritten_blocks > 0 {
        reqtrace_base::say!(
            "reqtrace: {} blocks of {name} could not be written while tracing; the report has the others",
            ending.unwritten_blocks
        );
    }
    if ending.damaged_bytes > 0 || ending.damaged_blocks > 0 {
        reqtrace_base::say!(
            "reqtrace: {name} is damaged: {} bytes are unreadable, {} blocks are missing; the \
             report has the rest",
            ending.damaged_bytes,
            ending.damaged_blocks
        );
    }
    if !ending.ended {
        reqtrace_base::say!(
            "reqtrace: {name} has no end: it is being written, or reqtrace was killed, or could not write; the report has \
             what is in its {} whole blocks{}",
            ending.blocks,
            match ending.cut_bytes {
                0 => String::new(),
                bytes => format!(", and leaves out {bytes} bytes of one that is not"),
            }
        );
    }
}
