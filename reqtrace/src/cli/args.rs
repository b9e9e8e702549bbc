//! The arguments: words in, typed options out. `options` checks what clap cannot.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};

use super::check::CheckArgs;
use super::doctor::DoctorArgs;
use super::filter::FilterArgs;
use super::functions::FunctionsArgs;
pub use super::options::{Stacks, TraceOptions};
use super::profiles::ProfilesArgs;
const BEFORE_HELP: &str = "\
Examples:
  reqtrace --profile mysql -p $(pgrep -x mariadbd) 30          trace for 30 s, print a table
  reqtrace --profile mysql -p 4711 --out trace                 until Ctrl-C; four files in trace/
  reqtrace --profile ./shop.toml --comm shop 5 --csv - -q      one CSV row a request, on stdout
  reqtrace --profile mysql -p 4711 30 -f | flamegraph.pl       folded stacks, as offcputime -f
  reqtrace check --profile mysql -p 4711                       what would be probed
  reqtrace functions -p 4711 handle --count 5                  what is called, and how often
  reqtrace doctor                                              what works on this machine
  reqtrace profiles mysql                                      print a built-in profile";

const USAGE: &str = "\
reqtrace --profile PROFILE -p PID[,PID…] [OPTIONS] [DURATION]
       reqtrace <COMMAND>";

const AFTER_HELP: &str = "\
DURATION is in seconds, or has a unit: 30, 0.5, 2s, 500ms. Without it a trace lasts until Ctrl-C,
which ends it early and still reports.

Exit codes: 0 done; 1 it failed while running; 2 bad usage or bad profile; 3 not permitted, or the
kernel or machine lacks something.";

/// Where the time of requests goes: a request-synchronous off-CPU tracer.
#[derive(Debug, Parser)]
#[command(
    name = "reqtrace",
    version,
    before_help = BEFORE_HELP,
    override_usage = USAGE,
    after_help = AFTER_HELP,
    args_conflicts_with_subcommands = true,
    max_term_width = 100
)]
pub struct Args {
    /// A command; without one, reqtrace traces.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Options of a trace.
    #[command(flatten)]
    pub trace: TraceArgs,
}

/// Commands besides tracing.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Resolve a profile in a process or a program: what would be probed. Attaches nothing
    Check(CheckArgs),
    /// Say what works on this machine, and what to do where it does not
    Doctor(DoctorArgs),
    /// Find functions and USDT probes to write a profile with; count their calls
    Functions(FunctionsArgs),
    /// Print the kernel functions of each wait class, and how many of them this kernel has
    #[command(hide = true)]
    Classes,
    /// List the built-in profiles, or print one
    Profiles(ProfilesArgs),
}

/// The words of a trace, as given.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct TraceArgs {
    /// Words that are no options: one duration, if they are right
    #[arg(value_name = "DURATION", hide = true, allow_negative_numbers = true)]
    pub(super) words: Vec<String>,

    /// Profile: the path of a TOML file, or the name of a built-in one
    #[arg(long, value_name = "PROFILE")]
    pub(super) profile: Option<String>,

    /// Trace this process; several with commas, or repeat the option
    #[arg(short, long = "pid", value_name = "PID[,PID…]", value_delimiter = ',')]
    pub(super) pids: Vec<String>,

    /// Trace all processes with this name (/proc/PID/comm, 15 characters at most)
    #[arg(long, value_name = "NAME")]
    pub(super) comm: Vec<String>,

    /// Do not trace the children that traced processes start
    #[arg(long)]
    pub(super) no_follow: bool,

    /// Write summary.json, requests.csv, stacks.folded and flamegraph.svg into this folder
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    pub(super) out: Option<PathBuf>,

    /// Write one row for each request; - is standard output
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(super) csv: Option<PathBuf>,

    /// Write folded stacks; - is standard output
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(super) folded: Option<PathBuf>,

    /// Write a flame graph (SVG); - is standard output
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(super) flamegraph: Option<PathBuf>,

    /// Write the summary as JSON; - is standard output
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(super) json: Option<PathBuf>,

    /// Print folded stacks on standard output, as offcputime -f
    #[arg(short = 'f', help_heading = "Output")]
    pub(super) folded_stdout: bool,

    /// Put a frame `-` between user and kernel frames
    #[arg(short = 'd', long = "delimited", help_heading = "Stacks")]
    pub(super) delimited: bool,

    /// Kernel stacks only
    #[arg(short = 'K', long = "kernel-stacks-only", help_heading = "Stacks")]
    pub(super) kernel_only: bool,

    /// User stacks only
    #[arg(short = 'U', long = "user-stacks-only", help_heading = "Stacks")]
    pub(super) user_only: bool,

    /// Leave run queue and preemption out of the stacks; the totals keep them
    #[arg(long, help_heading = "Stacks")]
    pub(super) blocked_only: bool,

    /// Record stacks of preemptions too; without this a preemption is only timed, and is
    /// [preempted] in the stacks
    #[arg(long, help_heading = "Stacks")]
    pub(super) preempted_stacks: bool,

    /// Which blocks.
    #[command(flatten)]
    pub(super) filter: FilterArgs,

    /// Print histograms of the lengths of blocks per wait class, as cpudist -O, of requests only
    #[arg(long, help_heading = "Output")]
    pub(super) histogram: bool,

    /// How to unwind user stacks
    #[arg(
        long,
        value_name = "HOW",
        default_value = "auto",
        help_heading = "Stacks"
    )]
    pub(super) unwind: Unwind,

    /// CSV rows only of requests at or above this latency, such as 10ms, 250us or 1s; the totals
    /// always cover all
    #[arg(long, value_name = "LATENCY", value_parser = with_unit, help_heading = "Output")]
    pub(super) slower_than: Option<Duration>,

    /// Record the label that the profile names: query text, a key, a path. It may hold secrets
    #[arg(long, help_heading = "Output")]
    pub(super) labels: bool,

    /// Print a second table with one row for each label, or for each fingerprint: the label with ?
    /// for its numbers and strings (turns --labels on)
    #[arg(long, value_name = "WHAT", help_heading = "Output")]
    pub(super) group_by: Option<GroupBy>,

    /// Print no table and no progress, only errors and what was lost
    #[arg(short, long, conflicts_with = "verbose")]
    pub(super) quiet: bool,

    /// Print sizes, costs and what is done; twice for more
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub(super) verbose: u8,

    /// Refuse to trace when the probes would take more than this share of the process's CPU time,
    /// measured for half a second before anything else is attached; 100 does not measure
    #[arg(
        long,
        value_name = "PERCENT",
        default_value = "50",
        value_parser = percent,
        help_heading = "Safety"
    )]
    pub(super) max_probe_rate: f64,

    /// Trace although it costs more than --max-probe-rate, or may not fit the program; measures
    /// nothing
    #[arg(short, long, help_heading = "Safety")]
    pub(super) yes: bool,

    /// Write the event stream as it comes from the kernel, for tests and bug reports
    #[arg(long, value_name = "FILE", hide = true)]
    pub(super) record: Option<PathBuf>,
}

/// What rows of the second table stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum GroupBy {
    /// Requests with one label.
    Label,
    /// Requests whose labels differ by numbers and quoted strings only: one statement, one path.
    Fingerprint,
}

/// How to unwind user stacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Unwind {
    /// By .eh_frame, and by frame pointers through code that has none.
    #[default]
    Auto,
    /// By frame pointers, for programs built with them.
    Fp,
    /// By .eh_frame only: a stack ends at code that has none.
    Dwarf,
}

/// A share from above 0 to 100, with or without a percent sign.
fn percent(word: &str) -> Result<f64, String> {
    word.trim_end_matches('%')
        .parse()
        .ok()
        .filter(|percent| *percent > 0.0 && *percent <= 100.0)
        .ok_or_else(|| "give a share in percent, above 0 and up to 100, such as 30".to_owned())
}

/// A length of time with its unit: ns, us (or µs), ms, s.
pub(super) fn with_unit(word: &str) -> Result<Duration, String> {
    const UNITS: &[(&str, f64)] = &[
        ("ns", 1e-9),
        ("us", 1e-6),
        ("µs", 1e-6),
        ("ms", 1e-3),
        ("s", 1.0),
    ];
    let digits = word
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(word.len());
    let (number, unit) = word.split_at(digits);
    UNITS
        .iter()
        .find(|(name, _)| *name == unit)
        .and_then(|(_, seconds)| {
            Duration::try_from_secs_f64(number.parse::<f64>().ok()? * seconds).ok()
        })
        .ok_or_else(|| "give a number and its unit, such as 10ms, 250us or 1s".to_owned())
}
