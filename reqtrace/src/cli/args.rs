//! The arguments: words in, typed options out. `options` checks what clap cannot.

use std::ffi::OsString;
#[cfg(feature = "capture")]
use std::path::PathBuf;

use clap::{CommandFactory as _, Parser, Subcommand};
#[cfg(feature = "capture")]
use reqtrace_base::quantity::{bytes, percent};
#[cfg(feature = "capture")]
use reqtrace_common::limits::{MAX_CPU_RATE, MAX_ONE_IN, MAX_SAMPLE_EVERY};

#[cfg(feature = "agent")]
use super::agent::{AgentArgs, AgentAttacherArgs, AgentWorkerArgs};
#[cfg(feature = "capture")]
use super::check::CheckArgs;
use super::diff::DiffArgs;
#[cfg(feature = "capture")]
use super::doctor::DoctorArgs;
#[cfg(feature = "capture")]
use super::filter::FilterArgs;
#[cfg(feature = "capture")]
use super::functions::FunctionsArgs;
#[cfg(feature = "capture")]
pub use super::outputs::OutputArgs;
use super::profiles::ProfilesArgs;
use super::report::ReportArgs;
#[cfg(feature = "ship")]
use super::ship::ShipArgs;
#[cfg(feature = "capture")]
pub use super::values::{CpuEngine, Limits, Unwind};
#[cfg(feature = "capture")]
use super::values::{keep, roll, slow};
#[cfg(feature = "capture")]
pub use reqtrace_capture::tracer::CPU_RATE;

#[cfg(feature = "capture")]
const BEFORE_HELP: &str = "\
Examples:
  reqtrace --profile mysql 30                                  trace the running server for 30 s
  reqtrace -p $(pgrep -x mariadbd) 30                          the same: the profile is found by its program
  reqtrace --profile php-fpm --profile mysql --blame 30        two services: who waits for whom
  reqtrace --profile mysql -p 4711 --out trace                 until Ctrl-C; five files in trace/
  reqtrace --profile ./shop.toml --comm shop 5 --csv - -q      one CSV row a request, on stdout
  reqtrace --profile mysql -p 4711 30 -f | flamegraph.pl       folded stacks, as offcputime -f
  reqtrace --profile ./shop.toml -- ./shop --port 80           start a program, trace it to its end
  reqtrace --profile mysql --exe /usr/sbin/mariadbd 3600       the server, and what it is restarted as
  reqtrace check --profile mysql -p 4711                       what would be probed
  reqtrace functions -p 4711 handle --count 5                  what is called, and how often
  reqtrace doctor                                              what works on this machine
  reqtrace profiles mysql                                      print a profile
  reqtrace --profile mysql -p 4711 30 --record trace.rec       record, to report it later
  reqtrace report trace.rec --slower-than 10ms --out slow      any report, without root
  reqtrace --profile mysql --exe /usr/sbin/mariadbd --record rec --roll 10m --keep 24h
                                                               record for months, a file for each 10 minutes
  reqtrace agent --config /etc/reqtrace/agent.toml             trace services for months; figures for Prometheus
  reqtrace ship --config /etc/reqtrace/ship.toml               send the agent's rows to ClickHouse or S3";

#[cfg(feature = "capture")]
const USAGE: &str = "\
reqtrace [--profile PROFILE] -p PID[,PID…] [OPTIONS] [DURATION]
       reqtrace --profile PROFILE [--profile PROFILE]… [OPTIONS] [DURATION]
       reqtrace [--profile PROFILE] [OPTIONS] [DURATION] -- PROGRAM [ARGUMENTS]
       reqtrace <COMMAND>";

#[cfg(feature = "capture")]
const AFTER_HELP: &str = "\
DURATION is in seconds, or has a unit: 30, 0.5, 2s, 500ms. Without it a trace lasts until Ctrl-C,
which ends it early and still reports. Without --profile each process takes the first profile that is made
for its executable; without -p, --comm, --exe and -- it is the one running server that each profile is made
for. A program behind -- runs as the user who runs reqtrace, so as root under sudo.

Exit codes: 0 done; 1 it failed while running, or the program behind -- did; 2 bad usage or bad profile; 3 not permitted, or the
kernel or machine lacks something.";

/// Where the time of requests goes: a request-synchronous off-CPU tracer.
#[derive(Debug, Parser)]
#[command(
    name = "reqtrace",
    version,
    args_conflicts_with_subcommands = true,
    max_term_width = 100
)]
#[cfg_attr(
    feature = "capture",
    command(before_help = BEFORE_HELP, override_usage = USAGE, after_help = AFTER_HELP)
)]
pub struct Args {
    /// A command; without one, reqtrace traces.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Options of a trace.
    #[cfg(feature = "capture")]
    #[command(flatten)]
    pub trace: TraceArgs,
}

/// The words of a command line with the command before its options: `-v` may come first.
#[must_use]
pub fn in_order(mut words: Vec<OsString>) -> Vec<OsString> {
    let is_verbose = |word: &OsString| {
        let word = word.to_str().unwrap_or("");
        let letters = word.strip_prefix('-').unwrap_or("");
        word == "--verbose" || !letters.is_empty() && letters.chars().all(|letter| letter == 'v')
    };
    let before = words.iter().skip(1).take_while(|word| is_verbose(word));
    let at = 1 + before.count();
    let is_command = |word: &OsString| {
        let word = word.to_str().unwrap_or("");
        Args::command().find_subcommand(word).is_some()
    };
    if words.get(at).is_some_and(is_command) {
        words[1..=at].rotate_right(1);
    }
    words
}

/// Commands besides tracing.
#[derive(Debug, Subcommand)]
pub enum Command {
    #[cfg(feature = "agent")]
    /// Trace services for months by the rules of a file, and serve their figures to Prometheus
    Agent(AgentArgs),
    #[cfg(feature = "agent")]
    /// The part of `agent` that writes, sends and listens, without privileges; `agent` starts it
    #[command(hide = true)]
    AgentWorker(AgentWorkerArgs),
    #[cfg(feature = "agent")]
    /// The part of `agent` that attaches and opens, with privileges; `agent` starts it
    #[command(hide = true)]
    AgentAttacher(AgentAttacherArgs),
    #[cfg(feature = "capture")]
    /// Resolve a profile in a process or a program: what would be probed. Attaches nothing
    Check(CheckArgs),
    #[cfg(feature = "capture")]
    /// Say what works on this machine, and what to do where it does not
    Doctor(DoctorArgs),
    #[cfg(feature = "capture")]
    /// Find functions and USDT probes to write a profile with; count their calls
    Functions(FunctionsArgs),
    #[cfg(feature = "capture")]
    /// Print the kernel functions of each wait class, and how many of them this kernel has
    #[command(hide = true)]
    Classes,
    /// List the profiles that have a name, and where they are, or print one
    Profiles(ProfilesArgs),
    /// Report a recording (--record), all of it or some of its requests. Needs no root
    Report(Box<ReportArgs>),
    /// Compare recordings: what changed from A to B, where, and whether it is more than noise. Needs no root
    Diff(Box<DiffArgs>),
    #[cfg(feature = "ship")]
    /// Send an agent's rows to ClickHouse or S3, each file at least once. Needs no privileges
    Ship(ShipArgs),
}

#[cfg(feature = "capture")]
/// The words of a trace, as given.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct TraceArgs {
    /// Words that are no options: one duration, if they are right
    #[arg(value_name = "DURATION", hide = true, allow_negative_numbers = true)]
    pub(super) words: Vec<String>,

    /// The same as DURATION
    #[arg(long, value_name = "DURATION", hide = true)]
    pub(super) duration: Option<String>,

    /// The program to start and trace from its first instruction, with its arguments
    #[arg(last = true, value_name = "PROGRAM", hide = true)]
    pub(super) command: Vec<OsString>,

    /// Profile: the path of a TOML file, with a slash in it, or a name that `reqtrace profiles` lists. Repeat it to trace
    /// several services at once: each process takes the one whose `executables` fit. NAME:cheap has fewer probes, for tokio, Go and nginx
    #[arg(long = "profile", value_name = "PROFILE")]
    pub(super) profiles: Vec<String>,

    /// Trace this process; several with commas, or repeat the option
    #[arg(short, long = "pid", value_name = "PID[,PID…]", value_delimiter = ',')]
    pub(super) pids: Vec<String>,

    /// Trace all processes with this name (/proc/PID/comm, 15 characters at most)
    #[arg(long, value_name = "NAME")]
    pub(super) comm: Vec<String>,

    /// Trace all processes that run this program, also those that begin while the trace runs: a service that is
    /// restarted. Without a duration the trace lasts until Ctrl-C
    #[arg(long, value_name = "PATH")]
    pub(super) exe: Vec<PathBuf>,

    /// With --comm: only processes of this user, a name or a number. Without it they have to be of
    /// one user: anybody can give a program any name
    #[arg(long, value_name = "USER", requires = "comm")]
    pub(super) user: Option<String>,

    /// With --comm or --exe: wait for a process of that name or program, if there is none yet
    #[arg(long)]
    pub(super) wait: bool,

    /// Do not trace the children that traced processes start
    #[arg(long)]
    pub(super) no_follow: bool,

    /// What to write and to print.
    #[command(flatten)]
    pub(super) outputs: OutputArgs,

    /// Record stacks of preemptions too; without this a preemption is only timed, and is
    /// [preempted] in the stacks
    #[arg(long, help_heading = "Stacks")]
    pub(super) preempted_stacks: bool,

    /// Which blocks.
    #[command(flatten)]
    pub(super) filter: FilterArgs,

    #[cfg(feature = "capture")]
    /// How to unwind user stacks
    #[arg(
        long,
        value_name = "HOW",
        default_value = "auto",
        help_heading = "Stacks"
    )]
    pub(super) unwind: Unwind,

    /// Record the label that the profile names: query text, a key, a path. It may hold secrets
    #[arg(long, help_heading = "Output")]
    pub(super) labels: bool,

    /// Find out because of whom requests waited: what the thread that ended a wait did meanwhile, and
    /// who kept that one waiting
    #[arg(long, help_heading = "Output")]
    pub(super) blame: bool,

    /// Find out how long a request's data, or its connection, had been waiting at the socket when the
    /// request began
    #[arg(long, help_heading = "Output")]
    pub(super) before: bool,

    /// Find out how much CPU time interrupts, softirqs and the hypervisor took from requests while they ran
    #[arg(long, help_heading = "Output")]
    pub(super) interrupts: bool,

    /// Samples a second and CPU of what requests do on their CPUs, 1 to 999; 0: none. Only threads in a
    /// request have their stacks walked
    #[arg(
        long,
        value_name = "HZ",
        default_value_t = CPU_RATE,
        value_parser = cpu_rate,
        help_heading = "Stacks"
    )]
    pub(super) cpu_rate: u32,

    /// What takes these samples: cpu-clock, the kernel's timer; or cycles, counted by the CPU, which see
    /// the kernel with interrupts off too. Where there are none to count it is cpu-clock
    #[arg(
        long,
        value_name = "ENGINE",
        default_value = "cpu-clock",
        help_heading = "Stacks"
    )]
    pub(super) cpu_engine: CpuEngine,
    /// Show on this terminal what happens while it happens: request types, where their time goes, what
    /// runs and waits now; the report follows. ? shows the keys
    #[arg(long, conflicts_with_all = ["quiet", "verbose"], help_heading = "Output")]
    pub(super) live: bool,

    /// Record one of N requests, drawn at random at its begin; all are counted, and what is summed up
    /// is estimated
    #[arg(long, value_name = "1/N", value_parser = one_of, help_heading = "Safety")]
    pub(super) sample: Option<u64>,

    /// Keep a record of each request that takes this long, such as 20ms, and of one in so many of the others (--one-in), drawn at
    /// random at its end. Totals, percentiles and stacks are of all; what comes from records is estimated
    #[arg(long, value_name = "LATENCY", value_parser = slow, help_heading = "Safety")]
    pub(super) keep_slow: Option<std::time::Duration>,

    /// With --keep-slow: how many of the requests that are not slow one record stands for
    #[arg(
        long,
        value_name = "N",
        default_value_t = 100,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_ONE_IN)),
        requires = "keep_slow",
        help_heading = "Safety"
    )]
    pub(super) one_in: u32,

    /// Refuse to trace when the probes would take more than this share of the process's CPU time,
    /// measured for up to half a second before anything else is attached; 100 does not measure
    #[arg(
        long,
        value_name = "PERCENT",
        default_value = "50",
        value_parser = percent,
        help_heading = "Safety"
    )]
    pub(super) max_probe_rate: f64,

    /// Record less while tracing takes more than this share of the CPU time: no stacks, then one request of
    /// 4, 16, 64 or 256, as with --sample; all are counted, and the report says when. 100: never
    #[arg(
        long,
        value_name = "PERCENT",
        default_value = "50",
        value_parser = percent,
        help_heading = "Safety"
    )]
    pub(super) max_overhead: f64,

    /// Kernel memory for the tables of threads, processes, stacks and sums, such as 200MB; without it they have room for
    /// 4,096 threads at once
    #[arg(long, value_name = "SIZE", value_parser = bytes, help_heading = "Safety")]
    pub(super) memory: Option<u64>,

    /// Trace although it costs more than --max-probe-rate, or may not fit the program; measures
    /// nothing
    #[arg(short, long, help_heading = "Safety")]
    pub(super) yes: bool,

    /// Write a recording while tracing: `reqtrace report FILE` makes any report of it later, without
    /// root and on any machine. With --labels it holds the labels
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(super) record: Option<PathBuf>,

    /// Make --record a folder, with another file whenever one is so old or so large: 10m, 64MB, or 10m,64MB.
    /// `reqtrace report FOLDER` reports all files as one, and each file alone
    #[arg(long, value_name = "TIME,SIZE", value_parser = roll, requires = "record", help_heading = "Output")]
    pub(super) roll: Option<Limits>,

    /// Remove the oldest files of --roll when they are so old, or all have more bytes than this: 24h, 10GB, or
    /// 24h,10GB. Without it all stay
    #[arg(long, value_name = "TIME,SIZE", value_parser = keep, requires = "roll", help_heading = "Output")]
    pub(super) keep: Option<Limits>,
}

/// A rate of samples; 0 is none.
#[cfg(feature = "capture")]
fn cpu_rate(word: &str) -> Result<u32, String> {
    word.parse()
        .ok()
        .filter(|rate| *rate <= MAX_CPU_RATE)
        .ok_or_else(|| {
            format!("give samples a second, 1 to {MAX_CPU_RATE}, such as 199; or 0 for none")
        })
}

/// `1/N`, or N alone.
#[cfg(feature = "capture")]
fn one_of(word: &str) -> Result<u64, String> {
    word.strip_prefix("1/")
        .unwrap_or(word)
        .parse()
        .ok()
        .filter(|every| (1..=MAX_SAMPLE_EVERY).contains(every))
        .ok_or_else(|| {
            format!("give one of how many requests to record, from 1/1 to 1/{MAX_SAMPLE_EVERY}, such as 1/8")
        })
}
