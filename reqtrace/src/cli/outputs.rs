//! What is written and printed, of a trace and of a recording alike: words in, [`Outputs`] out.

use std::path::PathBuf;
use std::time::Duration;

use reqtrace_analysis::report::Grouping;
use reqtrace_base::error::{Error, Result};
use reqtrace_output::csv::Limits;
use reqtrace_output::folded::{FoldedOptions, Part};
use reqtrace_output::outputs::{OutputOptions, Target};

/// The words, as given.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct OutputArgs {
    /// Write report.html, summary.json, requests.csv, stacks.folded, flamegraph.svg and, of a trace with
    /// blame, blame.csv, chains.folded and chains.svg into this folder
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    pub(super) out: Option<PathBuf>,

    /// Write a page to look at: requests by time and latency, flame graphs, who held whom up, what
    /// happened in the slowest (turns --blame on); - is standard output
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(super) html: Option<PathBuf>,

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

    /// Write one row for each time that a request was off the CPU, and who ended that (turns --blame
    /// on); - is standard output
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(super) intervals: Option<PathBuf>,

    /// Write a gzipped profile of the stacks for `go tool pprof` and all that reads its format, with
    /// process, request, class and root cause as labels; - is standard output
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(super) pprof: Option<PathBuf>,

    /// Write a trace for ui.perfetto.dev: a track for each thread, requests and when they were off the
    /// CPU, arrows from who woke to who was woken (turns --blame on); - is standard output
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(super) perfetto: Option<PathBuf>,

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

    /// Which time folded stacks and flame graphs hold: off-cpu; on-cpu, by samples, scaled to the exact
    /// time; or all, the whole latency
    #[arg(
        long = "stacks",
        value_name = "PART",
        default_value = "off-cpu",
        help_heading = "Stacks"
    )]
    pub(super) part: Part,

    /// Print histograms of the lengths of blocks per wait class, as cpudist -O, of requests only
    #[arg(long, help_heading = "Output")]
    pub(super) histogram: bool,

    /// CSV rows only of requests at or above this latency, such as 10ms, 250us or 1s; the totals
    /// always cover all
    #[arg(long, value_name = "LATENCY", value_parser = with_unit, help_heading = "Output")]
    pub(super) slower_than: Option<Duration>,

    /// No more rows in the CSV than this; the report says how many were left out
    #[arg(long, value_name = "ROWS", help_heading = "Output")]
    pub(super) max_rows: Option<u64>,

    /// No more bytes in the CSV than this, such as 500M or 2G; the report says how many rows were left
    /// out
    #[arg(long, value_name = "SIZE", value_parser = size, help_heading = "Output")]
    pub(super) max_bytes: Option<u64>,

    /// Print a second table with one row for each label, for each fingerprint, which is the label with ? for
    /// its numbers and strings, for each value of an attribute (NAME), or for the fingerprints of these
    /// (fingerprint=NAME); turns --labels on, but for attributes that are numbers
    #[arg(long, value_name = "WHAT", value_parser = grouping, help_heading = "Output")]
    pub(super) group_by: Option<Grouping>,

    /// Print no table and no progress, only errors and what was lost
    #[arg(short, long, conflicts_with = "verbose")]
    pub(super) quiet: bool,

    /// Print sizes, costs and what is done; twice for more
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub(super) verbose: u8,
}

/// What to write and print, checked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outputs {
    /// Folder for all files.
    pub out: Option<PathBuf>,
    /// Where the page goes, beside `out`.
    pub html: Option<Target>,
    /// Where `requests.csv` goes, beside `out`.
    pub csv: Option<Target>,
    /// Where folded stacks go, beside `out`.
    pub folded: Option<Target>,
    /// Where the flame graph goes, beside `out`.
    pub flamegraph: Option<Target>,
    /// Where the summary goes, beside `out`.
    pub json: Option<Target>,
    /// Where intervals go.
    pub intervals: Option<Target>,
    /// Where the profile for pprof goes.
    pub pprof: Option<Target>,
    /// Where the trace for Perfetto goes.
    pub perfetto: Option<Target>,
    /// A frame `-` between user and kernel frames.
    pub delimited: bool,
    /// Which stacks.
    pub stacks: Stacks,
    /// Leave run queue and preemption out of the stacks.
    pub blocked_only: bool,
    /// Which time the stacks hold.
    pub part: Part,
    /// Whether the lengths of blocks are shown.
    pub histogram: bool,
    /// CSV rows and stacks only at or above this latency.
    pub slower_than: Option<Duration>,
    /// CSV rows at most.
    pub max_rows: Option<u64>,
    /// Bytes of the CSV at most.
    pub max_bytes: Option<u64>,
    /// A second table of groups.
    pub group_by: Option<Grouping>,
    /// No table, no progress.
    pub quiet: bool,
    /// How often `-v` was given.
    pub verbose: u8,
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

impl OutputArgs {
    /// Checks what clap cannot.
    ///
    /// # Errors
    ///
    /// Usage errors: outputs or stacks that exclude each other.
    pub(super) fn into_outputs(self) -> Result<Outputs> {
        let stacks = match (self.kernel_only, self.user_only) {
            (true, true) => {
                return Err(Error::usage("-K and -U exclude each other")
                    .next("leave both out to see user and kernel frames"));
            }
            (true, false) => Stacks::Kernel,
            (false, true) => Stacks::User,
            (false, false) => Stacks::Both,
        };
        let folded = match (self.folded, self.folded_stdout) {
            (Some(path), true) if Target::from(path.clone()) != Target::Stdout => {
                return Err(Error::usage(format!(
                    "-f prints folded stacks on standard output, and --folded {} writes them there",
                    path.display()
                ))
                .next("give one of the two"));
            }
            (_, true) => Some(Target::Stdout),
            (path, false) => path.map(Target::from),
        };
        let outputs = Outputs {
            out: self.out,
            html: self.html.map(Target::from),
            csv: self.csv.map(Target::from),
            folded,
            flamegraph: self.flamegraph.map(Target::from),
            json: self.json.map(Target::from),
            intervals: self.intervals.map(Target::from),
            pprof: self.pprof.map(Target::from),
            perfetto: self.perfetto.map(Target::from),
            delimited: self.delimited,
            stacks,
            blocked_only: self.blocked_only,
            part: self.part,
            histogram: self.histogram,
            slower_than: self.slower_than,
            max_rows: self.max_rows,
            max_bytes: self.max_bytes,
            group_by: self.group_by,
            quiet: self.quiet,
            verbose: self.verbose,
        };
        outputs.one_stdout()?;
        if outputs.blocked_only && outputs.part != Part::OffCpu {
            return Err(Error::usage(format!(
                "--blocked-only leaves out what --stacks {} asks for",
                outputs.part.name()
            ))
            .next("give one of the two"));
        }
        Ok(outputs)
    }
}

impl Outputs {
    /// Whether an output takes standard output, so that the table must go elsewhere.
    #[must_use]
    pub fn takes_stdout(&self) -> bool {
        self.named()
            .iter()
            .any(|(_, output)| **output == Some(Target::Stdout))
    }

    /// `--slower-than` in nanoseconds.
    pub(super) fn slower_than_ns(&self) -> Option<u64> {
        self.slower_than.map(nanoseconds)
    }

    /// How requests are grouped.
    pub(super) fn grouping(&self) -> Option<Grouping> {
        self.group_by.clone()
    }

    /// For the exporters.
    pub(super) fn options(&self) -> OutputOptions {
        OutputOptions {
            out: self.out.clone(),
            blame: false,
            html: self.html.clone(),
            csv: self.csv.clone(),
            folded: self.folded.clone(),
            folded_on_stdout: false,
            flamegraph: self.flamegraph.clone(),
            json: self.json.clone(),
            intervals: self.intervals.clone(),
            pprof: self.pprof.clone(),
            perfetto: self.perfetto.clone(),
            stacks: FoldedOptions {
                delimiter: self.delimited,
                user: self.stacks != Stacks::Kernel,
                kernel: self.stacks != Stacks::User,
                blocked_only: self.blocked_only,
                part: self.part,
            },
            rows: Limits {
                slower_than_ns: self.slower_than_ns().unwrap_or(0),
                max_rows: self.max_rows,
                max_bytes: self.max_bytes,
            },
            private: false,
            asked: None,
        }
    }

    fn named(&self) -> [(&'static str, &Option<Target>); 8] {
        [
            ("--html", &self.html),
            ("--csv", &self.csv),
            ("--folded (or -f)", &self.folded),
            ("--flamegraph", &self.flamegraph),
            ("--json", &self.json),
            ("--intervals", &self.intervals),
            ("--pprof", &self.pprof),
            ("--perfetto", &self.perfetto),
        ]
    }

    fn one_stdout(&self) -> Result<()> {
        let taken: Vec<&str> = self
            .named()
            .into_iter()
            .filter(|(_, output)| **output == Some(Target::Stdout))
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
}

/// What rows of the second table stand for: `label`, `fingerprint`, the name of an attribute, or
/// `fingerprint=` and that.
fn grouping(word: &str) -> Result<Grouping, String> {
    match (word, word.strip_prefix("fingerprint=")) {
        ("label", _) => Ok(Grouping::Label),
        ("fingerprint", _) | (_, Some("label")) => Ok(Grouping::Fingerprint),
        ("", _) | (_, Some("")) => {
            Err("give label, fingerprint, the name of an attribute, or fingerprint=NAME".to_owned())
        }
        (_, Some(name)) => Ok(Grouping::FingerprintOf(name.to_owned())),
        (name, None) => Ok(Grouping::Attribute(name.to_owned())),
    }
}

/// In nanoseconds; what is longer than 584 years is that long.
pub(super) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
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

/// A number of bytes: alone, or with K, M, G or T for powers of 1,024.
fn size(word: &str) -> Result<u64, String> {
    let digits = word
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(word.len());
    let (number, unit) = word.split_at(digits);
    let shift = match unit.trim_end_matches("iB").trim_end_matches('B') {
        "" => Some(0),
        "K" | "k" => Some(10),
        "M" => Some(20),
        "G" => Some(30),
        "T" => Some(40),
        _ => None,
    };
    let bytes = number.parse::<u64>().ok();
    bytes
        .zip(shift)
        .and_then(|(bytes, shift)| bytes.checked_mul(1 << shift))
        .ok_or_else(|| "give a number of bytes, such as 1000000, 500M or 2G".to_owned())
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
