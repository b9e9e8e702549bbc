//! The arguments: words in, [`TraceOptions`] and the like out, contradictions refused.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};

use super::check::CheckArgs;
use super::profiles::ProfilesArgs;
use crate::error::{Error, Result};
use crate::text::nearest;

const COMMANDS: &[&str] = &["check", "profiles", "help"];

const BEFORE_HELP: &str = "\
Examples:
  reqtrace --profile mysql -p $(pgrep -x mariadbd) 30          trace for 30 s, print a table
  reqtrace --profile mysql -p 4711 --out trace                 until Ctrl-C; four files in trace/
  reqtrace --profile ./shop.toml --comm shop 5 --csv - -q      one CSV row a request, on stdout
  reqtrace --profile mysql -p 4711 30 -f | flamegraph.pl       folded stacks, as offcputime -f
  reqtrace check --profile mysql -p 4711                       what would be probed
  reqtrace profiles mysql                                      print a built-in profile";

const AFTER_HELP: &str = "\
Exit codes: 0 done; 1 it failed while running; 2 bad usage or bad profile; 3 not permitted, or the
kernel or machine lacks something.";

/// Where the time of requests goes: a request-synchronous off-CPU tracer.
#[derive(Debug, Parser)]
#[command(
    name = "reqtrace",
    version,
    before_help = BEFORE_HELP,
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
    /// List the built-in profiles, or print one
    Profiles(ProfilesArgs),
}

/// The words of a trace, as given.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct TraceArgs {
    /// Seconds to trace, such as 30 or 0.5; until Ctrl-C when left out
    #[arg(value_name = "DURATION")]
    words: Vec<String>,

    /// Profile: the path of a TOML file, or the name of a built-in one
    #[arg(long, value_name = "PROFILE")]
    profile: Option<String>,

    /// Trace this process; several with commas, or repeat the option
    #[arg(short, long = "pid", value_name = "PID[,PID…]", value_delimiter = ',')]
    pids: Vec<String>,

    /// Trace all processes with this name (/proc/PID/comm, 15 characters at most)
    #[arg(long, value_name = "NAME")]
    comm: Vec<String>,

    /// Do not trace the children that traced processes start
    #[arg(long)]
    no_follow: bool,

    /// Write summary.json, requests.csv, stacks.folded and flamegraph.svg into this folder
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    out: Option<PathBuf>,

    /// Write one row for each request; - is standard output
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    csv: Option<PathBuf>,

    /// Write folded stacks; - is standard output
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    folded: Option<PathBuf>,

    /// Write a flame graph (SVG); - is standard output
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    flamegraph: Option<PathBuf>,

    /// Write the summary as JSON; - is standard output
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    json: Option<PathBuf>,

    /// Print folded stacks on standard output, as offcputime -f
    #[arg(short = 'f', help_heading = "Output")]
    folded_stdout: bool,

    /// Put a frame `-` between user and kernel frames
    #[arg(short = 'd', long = "delimited", help_heading = "Stacks")]
    delimited: bool,

    /// Kernel stacks only
    #[arg(short = 'K', long = "kernel-stacks-only", help_heading = "Stacks")]
    kernel_only: bool,

    /// User stacks only
    #[arg(short = 'U', long = "user-stacks-only", help_heading = "Stacks")]
    user_only: bool,

    /// Leave run queue and preemption out of the stacks; the totals keep them
    #[arg(long, help_heading = "Stacks")]
    blocked_only: bool,

    /// How to unwind user stacks
    #[arg(
        long,
        value_name = "HOW",
        default_value = "auto",
        help_heading = "Stacks"
    )]
    unwind: Unwind,

    /// CSV rows only of requests at or above this latency, such as 10ms, 250us or 1s; the totals
    /// always cover all
    #[arg(long, value_name = "LATENCY", value_parser = latency, help_heading = "Output")]
    slower_than: Option<Duration>,

    /// Print no table and no progress, only errors and what was lost
    #[arg(short, long, conflicts_with = "verbose")]
    quiet: bool,

    /// Print sizes, costs and what is done; twice for more
    #[arg(short, long, action = clap::ArgAction::Count)]
    verbose: u8,

    /// Write the event stream as it comes from the kernel, for tests and bug reports
    #[arg(long, value_name = "FILE", hide = true)]
    record: Option<PathBuf>,
}

/// What to trace and what to write, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceOptions {
    /// Path or name of the profile.
    pub profile: String,
    /// Processes by id, no duplicates. This and `comms` are not both empty.
    pub pids: Vec<u32>,
    /// Processes by name.
    pub comms: Vec<String>,
    /// Whether children are traced too.
    pub follow: bool,
    /// How long; `None`: until interrupted.
    pub duration: Option<Duration>,
    /// Folder for all four files.
    pub out: Option<PathBuf>,
    /// Where `requests.csv` goes, beside `out`.
    pub csv: Option<Output>,
    /// Where folded stacks go, beside `out`.
    pub folded: Option<Output>,
    /// Where the flame graph goes, beside `out`.
    pub flamegraph: Option<Output>,
    /// Where the summary goes, beside `out`.
    pub json: Option<Output>,
    /// A frame `-` between user and kernel frames.
    pub delimited: bool,
    /// Which stacks.
    pub stacks: Stacks,
    /// Leave run queue and preemption out of the stacks.
    pub blocked_only: bool,
    /// How to unwind user stacks.
    pub unwind: Unwind,
    /// CSV rows only at or above this latency.
    pub slower_than: Option<Duration>,
    /// No table, no progress.
    pub quiet: bool,
    /// How often `-v` was given.
    pub verbose: u8,
    /// Where to write the raw event stream.
    pub record: Option<PathBuf>,
}

/// Where one output goes. At most one is standard output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Standard output.
    Stdout,
    /// A file.
    File(PathBuf),
}

/// Which stacks to collect and print.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stacks {
    /// User and kernel.
    #[default]
    Both,
    /// Kernel only.
    Kernel,
    /// User only.
    User,
}

/// How to unwind user stacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Unwind {
    /// The best way that this version knows.
    #[default]
    Auto,
    /// By frame pointers.
    Fp,
    /// By `.eh_frame`.
    #[value(hide = true)]
    Dwarf,
}

impl TraceOptions {
    /// Whether an output takes standard output, so that the table must go elsewhere.
    #[must_use]
    pub fn takes_stdout(&self) -> bool {
        [&self.csv, &self.folded, &self.flamegraph, &self.json]
            .into_iter()
            .any(|output| *output == Some(Output::Stdout))
    }
}

impl TraceArgs {
    /// Checks what clap cannot.
    ///
    /// # Errors
    ///
    /// Usage errors: nothing to trace, no profile, not a PID or a duration, outputs or stacks
    /// that exclude each other.
    pub fn into_options(self) -> Result<TraceOptions> {
        let pids = parse_pids(&self.pids)?;
        let duration = self.duration()?;
        let Some(profile) = self.profile else {
            return Err(Error::usage("no profile given").next(
                "--profile takes a path or a built-in name; `reqtrace profiles` lists those",
            ));
        };
        if pids.is_empty() && self.comm.is_empty() {
            return Err(Error::usage("nothing to trace: no process given")
                .next("give -p PID, such as -p $(pgrep -d, -x NAME), or --comm NAME"));
        }
        for comm in &self.comm {
            if comm.is_empty() || comm.len() > 15 {
                return Err(Error::usage(format!(
                    "--comm `{comm}`: a process name has 1 to 15 bytes"
                ))
                .next("use the name that /proc/PID/comm has"));
            }
        }
        let stacks = match (self.kernel_only, self.user_only) {
            (true, true) => {
                return Err(Error::usage("-K and -U exclude each other")
                    .next("leave both out to see user and kernel frames"));
            }
            (true, false) => Stacks::Kernel,
            (false, true) => Stacks::User,
            (false, false) => Stacks::Both,
        };
        if self.unwind == Unwind::Dwarf {
            return Err(Error::usage("--unwind dwarf comes with a later version")
                .next("use --unwind fp, or leave it out"));
        }
        let folded = match (self.folded, self.folded_stdout) {
            (Some(path), true) if output(path.clone()) != Output::Stdout => {
                return Err(Error::usage(format!(
                    "-f prints folded stacks on standard output, and --folded {} writes them there",
                    path.display()
                ))
                .next("give one of the two"));
            }
            (_, true) => Some(Output::Stdout),
            (path, false) => path.map(output),
        };
        let options = TraceOptions {
            profile,
            pids,
            comms: self.comm,
            follow: !self.no_follow,
            duration,
            out: self.out,
            csv: self.csv.map(output),
            folded,
            flamegraph: self.flamegraph.map(output),
            json: self.json.map(output),
            delimited: self.delimited,
            stacks,
            blocked_only: self.blocked_only,
            unwind: self.unwind,
            slower_than: self.slower_than,
            quiet: self.quiet,
            verbose: self.verbose,
            record: self.record,
        };
        one_stdout(&options)?;
        Ok(options)
    }

    fn duration(&self) -> Result<Option<Duration>> {
        match self.words.as_slice() {
            [] => Ok(None),
            [one] => parse_duration(one).map(Some),
            many if many.iter().all(|word| word.parse::<f64>().is_ok()) => {
                let last = &many[many.len() - 1];
                let pids: Vec<&str> = self
                    .pids
                    .iter()
                    .map(String::as_str)
                    .chain(many[..many.len() - 1].iter().map(String::as_str))
                    .collect();
                Err(Error::usage(format!(
                    "{} numbers where one duration is expected: {}",
                    many.len(),
                    many.join(" ")
                ))
                .next(format!(
                    "several PIDs need commas: -p {} {last}; `pgrep -d,` writes them so",
                    pids.join(",")
                )))
            }
            many => Err(Error::usage(format!(
                "one duration is expected, not `{}`",
                many.join(" ")
            ))
            .next("see reqtrace --help")),
        }
    }
}

fn parse_duration(word: &str) -> Result<Duration> {
    let seconds = word
        .parse::<f64>()
        .ok()
        .filter(|seconds| *seconds > 0.0)
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.ok_or_else(|| {
        let error = Error::usage(format!("`{word}` is neither a command nor a duration"));
        match nearest(word, COMMANDS.iter().copied(), 1).first() {
            Some(command) => error.next(format!("did you mean `reqtrace {command}`?")),
            None => error.next("a duration is in seconds, above 0, such as 30 or 0.5"),
        }
    })
}

/// PIDs as given to `-p`.
pub(super) fn parse_pids(words: &[String]) -> Result<Vec<u32>> {
    let mut pids = Vec::new();
    for word in words {
        // `-p "1 2 3"` is what a quoted `$(pgrep …)` makes.
        let many = word.split_whitespace().count() > 1;
        let pid = word.trim().parse::<u32>().ok().filter(|pid| *pid > 0);
        let Some(pid) = pid else {
            let error = Error::usage(format!("`{word}` is not a PID"));
            return Err(if many {
                error.next("several PIDs need commas: `pgrep -d,` writes them so")
            } else {
                error.next("use --comm NAME to choose processes by name, or -p $(pgrep -d, NAME)")
            });
        };
        if !pids.contains(&pid) {
            pids.push(pid);
        }
    }
    Ok(pids)
}

fn one_stdout(options: &TraceOptions) -> Result<()> {
    let taken: Vec<&str> = [
        ("--csv", &options.csv),
        ("--folded (or -f)", &options.folded),
        ("--flamegraph", &options.flamegraph),
        ("--json", &options.json),
    ]
    .into_iter()
    .filter(|(_, output)| **output == Some(Output::Stdout))
    .map(|(name, _)| name)
    .collect();
    if taken.len() > 1 {
        return Err(Error::usage(format!(
            "{} would both go to standard output",
            taken.join(" and ")
        ))
        .next("send all but one of them to a file"));
    }
    Ok(())
}

fn output(path: PathBuf) -> Output {
    if path.as_os_str() == "-" {
        Output::Stdout
    } else {
        Output::File(path)
    }
}

/// A latency with its unit: ns, us (or µs), ms, s.
fn latency(word: &str) -> Result<Duration, String> {
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

#[cfg(test)]
mod tests;
