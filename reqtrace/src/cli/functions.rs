//! `reqtrace functions`: finds functions and USDT probes to write a profile with. A process or a
//! program and a pattern in; a list, counts of hits, or a starter profile out.

mod count;
mod evidence;
mod find;
mod listing;
mod measure;
mod proposal;
mod proposed;
mod starter;
mod tasks;
mod units;
mod watch;
mod written;

use std::path::{Path, PathBuf};

use super::outputs::parse_pids;
use super::profiles::print;
use find::Findings;
use measure::Limits;
use reqtrace_base::error::{Error, Result};
use reqtrace_base::quantity::percent;
use reqtrace_resolve::{Process, Target};
use watch::Watched;

/// Matches listed before the rest is only counted, unless `--limit` says otherwise.
const LISTED: usize = 100;

/// Arguments of `functions`.
#[derive(Clone, Debug, clap::Args)]
#[command(override_usage = "\
reqtrace functions [OPTIONS] -p PID PATTERN
       reqtrace functions [OPTIONS] BINARY PATTERN
       reqtrace functions --as-profile -p PID|BINARY")]
pub struct FunctionsArgs {
    /// Program or library to search, unless -p is given; then what to look for: any part of a
    /// name, or a glob with * and ? over whole names. Case counts if the pattern has an upper case
    /// letter
    #[arg(value_name = "BINARY] [PATTERN", num_args = 0..=2, hide_possible_values = true)]
    pub words: Vec<String>,

    /// Search the program and the libraries of this process; several with commas
    #[arg(short, long = "pid", value_name = "PID[,PID…]", value_delimiter = ',')]
    pub pids: Vec<String>,

    /// Search only this object: a file name, a path, or a glob over either
    #[arg(long, value_name = "OBJECT")]
    pub object: Option<String>,

    /// List at most so many matches; of counted ones those with most hits
    #[arg(long, value_name = "N", default_value_t = LISTED)]
    pub limit: usize,

    /// Count for so many seconds how often each match is hit; with --as-profile also look for a key, an argument
    /// or result that comes back on other threads or after others
    #[arg(long, value_name = "SECONDS")]
    pub count: Option<String>,

    /// Stop counting when that takes more than this share of the CPU time; 100 never stops
    #[arg(
        long,
        value_name = "PERCENT",
        default_value = "50",
        value_parser = percent,
        requires = "count"
    )]
    pub max_probe_rate: f64,

    /// Count although it costs more than --max-probe-rate
    #[arg(short, long, requires = "count")]
    pub yes: bool,

    /// Print a profile to start from, with one request type for each match; with --count also with one for
    /// functions that may work on the same requests, distinguished by a key. Without a pattern, of a program on tokio or in
    /// Go, a profile in which each task or goroutine is a request
    #[arg(long, conflicts_with = "limit")]
    pub as_profile: bool,
}

/// Where to search, and for what.
struct Search {
    pids: Vec<u32>,
    binary: Option<PathBuf>,
    pattern: String,
}

/// Runs it.
///
/// # Errors
///
/// Nothing to search or to look for, nothing found, too many matches for `--count` or
/// `--as-profile`, or not permitted to count.
pub fn run(args: &FunctionsArgs) -> Result<()> {
    if args.as_profile && args.count.is_none() && args.object.is_none() {
        match (args.words.as_slice(), args.pids.as_slice()) {
            ([], [_]) => {
                let pid = parse_pids(&args.pids)?[0];
                let process = Process::open(pid)?;
                let where_ = format!("-p {pid}");
                return print(&units::profile(&Target::Process(&process), &where_)?);
            }
            ([binary], []) if Path::new(binary).is_file() => {
                return print(&units::profile(&Target::file(Path::new(binary)), binary)?);
            }
            _ => {}
        }
    }
    let search = search(args)?;
    let findings = Findings::of(&search, args.object.as_deref())?;
    let limits = args.count.as_deref().map(|seconds| Limits {
        seconds,
        allowed: if args.yes { 100.0 } else { args.max_probe_rate },
    });
    if args.as_profile {
        let watched = match limits {
            Some(limits) => Some(Watched::of(&search, &findings, limits)?),
            None => None,
        };
        let starter = starter::profile(&search, &findings, watched.as_ref())?;
        print(&starter.text)?;
        let stopped = watched.and_then(|watched| watched.stopped);
        return stopped.or(starter.lacks).map_or(Ok(()), Err);
    }
    if let Some(limits) = limits {
        return count::run(&search, &findings, limits, args.limit);
    }
    print(&listing::text(&findings, args.limit))
}

fn search(args: &FunctionsArgs) -> Result<Search> {
    let pids = parse_pids(&args.pids)?;
    let (binary, pattern) = match (args.words.as_slice(), pids.is_empty()) {
        ([pattern], false) => (None, pattern),
        ([binary, pattern], true) => (Some(PathBuf::from(binary)), pattern),
        ([], false) => {
            return Err(Error::usage("no pattern given")
                .next("give part of a name, such as `command`, or '*' for everything"));
        }
        ([], true) => {
            return Err(Error::usage("nothing to search")
                .next("reqtrace functions -p PID PATTERN, or reqtrace functions BINARY PATTERN"));
        }
        ([one], true) => {
            return Err(Error::usage(format!(
                "`{one}` alone: a program to search and a pattern are needed"
            ))
            .next(format!(
                "reqtrace functions -p PID '{one}', or reqtrace functions BINARY '{one}'"
            )));
        }
        (many, _) => {
            return Err(Error::usage(format!(
                "one pattern is expected after -p PID, not `{}`",
                many.join(" ")
            ))
            .next("quote a pattern with * or ?, or the shell replaces it by names of files"));
        }
    };
    if pattern.is_empty() {
        return Err(Error::usage("the pattern is empty").next("'*' is everything"));
    }
    Ok(Search {
        pids,
        binary,
        pattern: pattern.clone(),
    })
}
