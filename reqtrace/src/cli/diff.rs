//! `reqtrace diff A B`: recordings of two sides, or their rows, in, what changed between them out. It needs neither root nor the machine
//! that was traced.

mod read;
mod select;

use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use reqtrace_analysis::report::Grouping;
use reqtrace_base::error::{Error, Kind, Result};
use reqtrace_compare::gate::{Answer, Condition};
use reqtrace_compare::{Comparison, Options, Side, compare};
use reqtrace_output::compare::{CompareFormat, FORMATS, render};
use reqtrace_output::outputs::{self, Target};

use self::read::Wanted;
use self::select::{Range, Selected, Selection};
use super::outputs::{OfOption, Targets, grouping, nanoseconds, with_unit};
use super::show;

const AFTER_HELP: &str = "\
Examples:
  reqtrace diff before.rec after.rec                           what changed, and what of it is more than noise
  reqtrace diff a1.rec a2.rec -- b1.rec b2.rec                 several recordings a side: their spread counts too
  reqtrace diff mon.parquet tue.parquet                        the rows of recordings: the same numbers
  reqtrace diff today.rec --from ..60s --against 60s..         two stretches of one recording
  reqtrace diff a.rec b.rec --select type=order --select b:time=10s..
  reqtrace diff a.rec b.rec --fail-if 'order p99 > +10%'       for a pipeline

~ is noise: as much comes about by chance. ? means that too little was recorded to tell.

Exit codes: 0 done; 1 a condition of --fail-if is met, or it failed while running; 2 bad usage, or no recording; 3 it cannot
be told whether a condition of --fail-if is met.";

/// Arguments of `diff`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct DiffArgs {
    /// Two recordings, A and B; or all of A, with those of B behind --; or one with --from and --against. Each is a
    /// file, a folder of --roll, a file of --parquet or a folder of them, or a folder of --out
    #[arg(value_name = "RECORDING", required = true)]
    first: Vec<PathBuf>,

    /// Recordings of B
    #[arg(last = true, value_name = "RECORDING")]
    second: Vec<PathBuf>,

    /// Only these requests: type=NAME, label=GLOB, time=FROM..TO or ATTRIBUTE=GLOB; of one side with a: or b: before it.
    /// Repeat it for more, which must match too
    #[arg(long, value_name = "WHAT", help_heading = "Filter")]
    select: Vec<Selection>,

    /// A is this range of the recording, in time since its start: ..60s, 10s..20s
    #[arg(
        long,
        value_name = "FROM..TO",
        requires = "against",
        help_heading = "Filter"
    )]
    from: Option<Range>,

    /// B is this range of it
    #[arg(
        long,
        value_name = "FROM..TO",
        requires = "from",
        help_heading = "Filter"
    )]
    against: Option<Range>,

    /// Compare the share of requests above this latency too, such as 20ms
    #[arg(long, value_name = "LATENCY", value_parser = with_unit)]
    slo: Option<Duration>,

    /// What makes requests the same: label, fingerprint, the name of an attribute, or fingerprint=NAME
    #[arg(long, value_name = "WHAT", value_parser = grouping, default_value = "fingerprint")]
    group_by: Grouping,

    /// Exit with 1 when this is sure, and with 3 when it cannot be told: 'order p99 > +10%', 'mean > +2ms', 'p99 > 50ms',
    /// 'rate < -5%', 'slow > 1%'. Repeat it for more
    #[arg(long, value_name = "CONDITION")]
    fail_if: Vec<String>,

    /// Show all request types and rows, noise too
    #[arg(long)]
    all: bool,

    #[command(flatten)]
    targets: Targets<CompareFormat>,

    /// Print no table
    #[arg(short, long)]
    quiet: bool,
}

impl OfOption for CompareFormat {
    fn options() -> impl Iterator<Item = (&'static str, &'static str, &'static Self)> {
        let formats = FORMATS.iter();
        formats.map(|format| (format.option, format.help, format))
    }
}

/// Compares recordings.
///
/// # Errors
///
/// Files that are no recordings; options that exclude each other or ask for what was not recorded; an output that cannot be
/// written; conditions that are met, or that cannot be told.
pub fn run(args: DiffArgs) -> Result<()> {
    let conditions = args.fail_if.iter().map(|words| Condition::parse(words));
    let conditions = conditions.collect::<Result<Vec<_>>>()?;
    let paths = sides(&args)?;
    let targets = args.targets.0.iter();
    let asked = |option: &str| format!("--{option}");
    let all = targets.clone();
    outputs::check_apart(all.map(|(format, target)| (asked(format.option), target.clone())))?;
    for (format, target) in targets {
        if let Target::File(path) = target {
            outputs::check_file(&asked(format.option), path, format.file_name)?;
        }
    }
    let takes_stdout = args.targets.0.iter().any(|(_, to)| *to == Target::Stdout);
    let slo_ns = args.slo.map(nanoseconds);
    let ranges = [args.from, args.against];
    let side = &|number: usize| {
        let selected = Selected::of(number, &args.select, ranges[number])
            .map_err(|why| Error::usage(format!("--select: {why}")))?;
        let wanted = Wanted {
            selected,
            group_by: args.group_by.clone(),
        };
        let add = |side, path: &PathBuf| read::add(side, path, &wanted);
        paths[number].iter().try_fold(Side::new(slo_ns), add)
    };
    // Reading takes longest by far. The reader of Parquet may panic on a damaged file.
    let [a, b] = thread::scope(|scope| {
        let threads = [0, 1].map(|number| scope.spawn(move || side(number)));
        threads.map(|thread| thread.join().unwrap_or_else(|_| Err(damaged())))
    });
    let (a, b) = (a?, b?);
    let options = Options {
        slo_ns,
        keeps_noise: args.all,
        ..Options::default()
    };
    let comparison = compare(&a, &b, options);
    for (format, target) in &args.targets.0 {
        outputs::write_now(&format!("--{}", format.option), target, |out| {
            (format.write)(&comparison, out)
        })?;
    }
    if !args.quiet {
        let text = |columns: Option<u16>| {
            render(
                &comparison,
                args.all,
                columns.map_or(usize::MAX, usize::from),
            )
        };
        show::text(takes_stdout, text)?;
    }
    decide(&conditions, &comparison)
}

fn damaged() -> Error {
    Error::usage("a file is damaged in a way that its reader does not expect")
        .next("make it again; the message above says where the reader stopped")
}

/// The recordings of each side.
fn sides(args: &DiffArgs) -> Result<[Vec<PathBuf>; 2]> {
    match (args.first.as_slice(), args.second.as_slice(), args.from) {
        ([_], [], Some(_)) => Ok([args.first.clone(), args.first.clone()]),
        (.., Some(_)) => Err(Error::usage(
            "--from and --against are two ranges of one recording, and there are several",
        )
        .next(
            "select times of each side with --select a:time=FROM..TO and --select b:time=FROM..TO",
        )),
        ([a, b], [], None) => Ok([vec![a.clone()], vec![b.clone()]]),
        ([_], [], None) => Err(Error::usage(
            "there is only one recording, and nothing to compare it with",
        )
        .next("give another one, or two ranges of this one: --from ..60s --against 60s..")),
        (_, [], None) => Err(Error::usage(format!(
            "which of these {} recordings are A, and which are B?",
            args.first.len()
        ))
        .next("put -- between them: reqtrace diff A1 A2 -- B1 B2")),
        (a, b, None) => Ok([a.to_vec(), b.to_vec()]),
    }
}

/// Reports what conditions come to. One that is met comes before one that cannot be told.
fn decide(conditions: &[Condition], comparison: &Comparison) -> Result<()> {
    let (mut met, mut open) = (Vec::new(), Vec::new());
    let mut seconds = Some(0);
    for condition in conditions {
        for answer in condition.of(comparison)? {
            match answer {
                Answer::Passes(words) => {
                    reqtrace_base::say!("reqtrace: passed: {words}; not '{condition}'");
                }
                Answer::Fails(words) => met.push(format!("{words}: '{condition}'")),
                Answer::CannotTell(words, needed) => {
                    seconds = seconds.zip(needed).map(|(most, needed)| needed.max(most));
                    open.push(format!("{words}: whether '{condition}'"));
                }
            }
        }
    }
    if !met.is_empty() {
        return Err(Error::failed(format!("failed: {}", met.join("; "))));
    }
    if open.is_empty() {
        return Ok(());
    }
    let next = match seconds {
        Some(seconds) => format!("record some {seconds} s of each side"),
        None => "no length of recording would tell: the change is about as large as the bound, or one side has no request".to_owned(),
    };
    Err(Error::new(Kind::Undecided, format!("cannot tell: {}", open.join("; "))).next(next))
}
