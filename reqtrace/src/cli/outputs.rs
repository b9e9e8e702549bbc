//! What is written and printed, of a trace and of a recording alike: words in, an [`OutputSpec`] out.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PathBufValueParser, TypedValueParser as _};
use clap::{Arg, ArgMatches, Command, FromArgMatches};
use reqtrace_analysis::report::Grouping;
use reqtrace_base::error::{Error, Result};
pub(super) use reqtrace_base::quantity::short_time as with_unit;
use reqtrace_output::csv::Limits;
use reqtrace_output::folded::{FoldedOptions, Part};
use reqtrace_output::formats::{FORMATS, Format, InFolder};
use reqtrace_output::outputs::{OutputSpec, Target};

/// The option that `-f` is for.
const FOLDED: &str = "folded";

/// What to write and print.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
pub struct OutputArgs {
    #[arg(long, value_name = "DIR", help = folder_help(), help_heading = "Output")]
    pub(super) out: Option<PathBuf>,

    #[command(flatten)]
    pub(super) targets: Targets<Format>,

    /// Print folded stacks on standard output, as offcputime -f
    #[arg(short = 'f', help_heading = "Output")]
    folded_stdout: bool,

    /// Put a frame `-` between user and kernel frames
    #[arg(short = 'd', long = "delimited", help_heading = "Stacks")]
    delimited: bool,

    /// Kernel stacks only
    #[arg(short = 'K', long = "kernel-stacks-only", help_heading = "Stacks")]
    pub(super) kernel_only: bool,

    /// User stacks only
    #[arg(short = 'U', long = "user-stacks-only", help_heading = "Stacks")]
    pub(super) user_only: bool,

    /// Leave run queue and preemption out of the stacks; the totals keep them
    #[arg(long, help_heading = "Stacks")]
    blocked_only: bool,

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
    max_rows: Option<u64>,

    /// No more bytes in the CSV than this, such as 500M or 2G; the report says how many rows were left
    /// out
    #[arg(long, value_name = "SIZE", value_parser = size, help_heading = "Output")]
    max_bytes: Option<u64>,

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

/// A format that may have an option of its own.
pub(super) trait OfOption: Sized + 'static {
    /// All that have one: the option without `--`, what it does, the format.
    fn options() -> impl Iterator<Item = (&'static str, &'static str, &'static Self)>;
}

impl OfOption for Format {
    fn options() -> impl Iterator<Item = (&'static str, &'static str, &'static Self)> {
        let with_option = FORMATS.iter().filter(|format| !format.option.is_empty());
        with_option.map(|format| (format.option, format.help, format))
    }
}

/// The options of formats that were given, with where each goes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Targets<F: 'static>(pub(super) Vec<(&'static F, Target)>);

impl<F> Clone for Targets<F> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<F> Default for Targets<F> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl Targets<Format> {
    /// The formats that were asked for by their options.
    pub(super) fn formats(&self) -> impl Iterator<Item = &'static Format> {
        self.0.iter().map(|(format, _)| *format)
    }
}

impl<F: OfOption> clap::Args for Targets<F> {
    fn augment_args(command: Command) -> Command {
        command.args(F::options().map(|(option, help, _)| {
            Arg::new(option)
                .long(option)
                .value_name("FILE")
                .help(help)
                .help_heading("Output")
                .value_parser(PathBufValueParser::new().map(Target::from))
        }))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<F: OfOption> FromArgMatches for Targets<F> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut targets = Self::default();
        targets.update_from_arg_matches(matches)?;
        Ok(targets)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        for (option, _, format) in F::options() {
            let target = matches.get_one::<Target>(option);
            self.0.extend(target.map(|target| (format, target.clone())));
        }
        Ok(())
    }
}

fn folder_help() -> String {
    let names = |folder| {
        let formats = FORMATS.iter().filter(|format| format.folder == folder);
        formats.map(|format| format.file_name).collect::<Vec<_>>()
    };
    let of_blame = names(InFolder::WithBlame);
    format!(
        "Write {} and, of a trace with blame, {} into this folder",
        names(InFolder::Always).join(", "),
        in_words(&of_blame)
    )
}

/// `a, b and c`.
fn in_words(names: &[&str]) -> String {
    match names {
        [before @ .., last] if !before.is_empty() => format!("{} and {last}", before.join(", ")),
        _ => names.concat(),
    }
}

impl OutputArgs {
    /// Checks what clap cannot.
    ///
    /// # Errors
    ///
    /// Usage errors: outputs or stacks that exclude each other.
    pub(super) fn checked(self) -> Result<Self> {
        if self.kernel_only && self.user_only {
            return Err(Error::usage("-K and -U exclude each other")
                .next("leave both out to see user and kernel frames"));
        }
        let folded = self
            .targets
            .0
            .iter()
            .find_map(|(format, target)| (format.option == FOLDED).then_some(target));
        if self.folded_stdout
            && let Some(Target::File(path)) = folded
        {
            return Err(Error::usage(format!(
                "-f prints folded stacks on standard output, and --folded {} writes them there",
                path.display()
            ))
            .next("give one of the two"));
        }
        self.one_stdout()?;
        if self.blocked_only && self.part != Part::OffCpu {
            return Err(Error::usage(format!(
                "--blocked-only leaves out what --stacks {} asks for",
                self.part.name()
            ))
            .next("give one of the two"));
        }
        Ok(self)
    }

    /// Whether an output takes standard output, so that the table must go elsewhere.
    #[must_use]
    pub fn takes_stdout(&self) -> bool {
        let targets = self.targets();
        targets.iter().any(|(_, target)| *target == Target::Stdout)
    }

    /// `--slower-than` in nanoseconds.
    pub(super) fn slower_than_ns(&self) -> Option<u64> {
        self.slower_than.map(nanoseconds)
    }

    /// What to write.
    pub(super) fn spec(&self) -> OutputSpec {
        OutputSpec {
            out: self.out.clone(),
            targets: self.targets(),
            stacks: FoldedOptions {
                delimiter: self.delimited,
                user: !self.kernel_only,
                kernel: !self.user_only,
                blocked_only: self.blocked_only,
                part: self.part,
            },
            rows: Limits {
                slower_than_ns: self.slower_than_ns().unwrap_or(0),
                max_rows: self.max_rows,
                max_bytes: self.max_bytes,
            },
            ..OutputSpec::default()
        }
    }

    fn targets(&self) -> Vec<(&'static Format, Target)> {
        let mut targets = self.targets.0.clone();
        if self.folded_stdout {
            let printed = Format::of(FOLDED).map(|format| (format, Target::Stdout));
            targets.retain(|target| Some(target) != printed.as_ref());
            targets.extend(printed);
        }
        targets
    }

    fn one_stdout(&self) -> Result<()> {
        let name = |format: &Format| match self.folded_stdout && format.option == FOLDED {
            true => "-f".to_owned(),
            false => format.asked_by(),
        };
        let targets = self.targets();
        let taken = targets
            .iter()
            .filter(|(_, target)| *target == Target::Stdout);
        let taken: Vec<String> = taken.map(|(format, _)| name(format)).collect();
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
pub(super) fn grouping(word: &str) -> Result<Grouping, String> {
    word.parse()
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
