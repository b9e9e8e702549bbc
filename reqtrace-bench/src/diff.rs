//! `cargo xtask bench diff`: how often a comparison is right, and what it takes.
//!
//! In: nothing. Out: coverage of intervals and power on a simulated service of which the change is known, false rows on
//! recordings of the example shop, which did not change, and the time for a million requests a side; printed and, with
//! `--write`, docs/measured/diff.md.

mod simulated;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use reqtrace_compare::{Options, compare};
use reqtrace_tests::reqtrace::{self, Trace};
use reqtrace_tests::shop::{self, Shop};
use reqtrace_tests::workspace;
use serde_json::Value;

use self::simulated::{MEASURES, Service, judged};
use super::Common;
use super::cost::programs::peak_memory;

/// Arguments of `bench diff`.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Simulations for the coverage of intervals
    #[arg(long, default_value_t = 1_000)]
    simulations: u64,
    /// Simulations for the power
    #[arg(long, default_value_t = 400)]
    runs: u64,
    /// Seconds of the recording that is split
    #[arg(long, default_value_t = 120)]
    seconds: u64,
    /// Recordings of 60 s that are compared one with one and two with two; 0: nothing is recorded, and only simulations are made
    #[arg(long, default_value_t = 8)]
    recordings: usize,
    /// Keeps the recordings in this folder; those that are there are not made again
    #[arg(long)]
    keep: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

/// What services are simulated, and what they are like.
const SERVICES: [(&str, Service); 4] = [
    (
        "seconds alike",
        Service {
            memory: 0.0,
            drift: 0.0,
            incidents: 0.0,
            ..QUIET
        },
    ),
    (
        "moods that last some seconds",
        Service {
            memory: 0.6,
            ..QUIET
        },
    ),
    (
        "20 % slower at the end",
        Service {
            drift: 0.2,
            ..QUIET
        },
    ),
    (
        "moods, drift, and incidents (2 a minute, 1 to 4 s, three times as slow)",
        Service {
            memory: 0.4,
            drift: 0.1,
            incidents: 0.03,
            ..QUIET
        },
    ),
];
const QUIET: Service = Service {
    seconds: 120,
    rate: 100,
    slower: 1.0,
    memory: 0.0,
    drift: 0.0,
    incidents: 0.0,
};

/// Measures.
pub(super) fn run(args: &Args) -> Result<()> {
    let mut text =
        "# Comparisons\n\n`cargo xtask bench diff --write` makes this page.\n".to_owned();
    coverage(args, &mut text)?;
    power(args, &mut text)?;
    million(&mut text)?;
    if args.recordings == 0 {
        return args.common.page("diff.md", &text);
    }
    match &args.common.reqtrace {
        // SAFETY: nothing has started a thread yet.
        Some(program) => unsafe { std::env::set_var("REQTRACE_BIN", program) },
        None => args.common.prepare()?,
    }
    nulls(args, &mut text)?;
    args.common.page("diff.md", &text)
}

fn percent(part: u64, whole: u64) -> String {
    format!("{:.1} %", part as f64 * 100.0 / whole.max(1) as f64)
}

/// How often the interval of 95 % has the change that was made.
fn coverage(args: &Args, text: &mut String) -> Result<()> {
    let each = args.simulations;
    writeln!(
        text,
        "\n## Intervals\n\nA simulated service of {} requests a second for {} s against itself with all latencies 10 % higher, \
         {each} times each: how often the interval of 95 % has these 10 %.\n\n| service | mean | p50 | p99 |\n| --- | ---: | ---: | ---: |",
        QUIET.rate, QUIET.seconds
    )?;
    for (name, service) in SERVICES {
        let mut covered = [0; MEASURES.len()];
        for seed in 0..each {
            let judged = judged(&service.compared(1.1, seed), 0.1);
            covered
                .iter_mut()
                .zip(judged)
                .for_each(|(sum, (covers, _))| *sum += u64::from(covers));
        }
        let [mean, p50, p99] = covered.map(|covered| percent(covered, each));
        writeln!(text, "| {name} | {mean} | {p50} | {p99} |")?;
    }
    Ok(())
}

/// How often a change is found in runs of a minute.
fn power(args: &Args, text: &mut String) -> Result<()> {
    writeln!(
        text,
        "\n## Changes that are found\n\nSimulated services of 500 requests a second, 60 s a side, {} times each: how often a metric is \
         marked as changed. The mean of a second is 10 % above or below that of the others (one standard deviation).\n\n| seconds | \
         change of all latencies | mean | p50 | p99 |\n| --- | ---: | ---: | ---: | ---: |",
        args.runs
    )?;
    for (name, memory) in [("alike", 0.0), ("moods that last", 0.3)] {
        let service = Service {
            seconds: 60,
            rate: 500,
            memory,
            ..QUIET
        };
        for slower in [1.0, 1.05, 1.1, 1.2] {
            let mut clear = [0; MEASURES.len()];
            for seed in 0..args.runs {
                let judged = judged(&service.compared(slower, 5_000 + seed), 0.0);
                clear
                    .iter_mut()
                    .zip(judged)
                    .for_each(|(sum, (_, is_clear))| *sum += u64::from(is_clear));
            }
            let [mean, p50, p99] = clear.map(|clear| percent(clear, args.runs));
            let percent = (slower - 1.0) * 100.0;
            writeln!(
                text,
                "| {name} | +{percent:.0} % | {mean} | {p50} | {p99} |"
            )?;
        }
    }
    Ok(())
}

/// Time and memory for a million requests a side.
fn million(text: &mut String) -> Result<()> {
    let service = Service {
        seconds: 500,
        rate: 2_000,
        ..QUIET
    };
    let own = std::process::id();
    let before = peak_memory(own)?;
    let (a, b) = (service.side(1), service.side(2));
    let begin = Instant::now();
    let comparison = compare(&a, &b, Options::default());
    let took = begin.elapsed().as_secs_f64();
    ensure!(
        comparison.types[0].count == [1_000_000; 2],
        "there are not a million requests"
    );
    let memory = peak_memory(own)?.saturating_sub(before) as f64 / f64::from(1 << 20);
    writeln!(
        text,
        "\n## Time\n\nA million requests against a million, 500 s each: {took:.1} s and {memory:.0} MiB beyond reading them."
    )?;
    Ok(())
}

/// Rows that are marked, and all that could be.
#[derive(Clone, Copy, Default)]
struct Marked {
    comparisons: u64,
    marked: u64,
    rows: u64,
}

impl Marked {
    fn add(&mut self, other: Self) {
        self.comparisons += other.comparisons;
        self.marked += other.marked;
        self.rows += other.rows;
    }

    fn count(&mut self, value: &Value) {
        match value {
            Value::Object(fields) => {
                if let Some(Value::Bool(is_clear)) = fields.get("is_clear") {
                    self.rows += 1;
                    self.marked += u64::from(*is_clear);
                }
                fields.values().for_each(|field| self.count(field));
            }
            Value::Array(all) => all.iter().for_each(|one| self.count(one)),
            _ => {}
        }
    }
}

/// A comparison by the program itself, with noise.
fn marked(sides: [&[&Path]; 2], more: &[String], folder: &Path) -> Result<Marked> {
    let json = folder.join("diff.json");
    let mut command = reqtrace::command(["diff", "-q", "--all", "--json"])?;
    command.arg(&json).args(more);
    command.args(sides[0]).arg("--").args(sides[1]);
    let outcome = reqtrace::run(command)?;
    ensure!(outcome.code == Some(0), "{}", outcome.printed());
    let value: Value = serde_json::from_str(&std::fs::read_to_string(json)?)?;
    let mut marked = Marked {
        comparisons: 1,
        ..Marked::default()
    };
    marked.count(&value);
    ensure!(marked.rows > 0, "nothing was judged");
    Ok(marked)
}

/// Records a shop under load. Each is a new process; all have one journal.
fn record(folder: &Path, name: &str, seconds: u64) -> Result<PathBuf> {
    let recording = folder.join(name);
    if recording.exists() {
        return Ok(recording);
    }
    let shop = Shop::open_at(&folder.join("data"))?;
    let load = shop.start_load_for(3, u32::try_from(seconds)? + 3, 4)?;
    let options = [
        seconds.to_string(),
        "--blame".to_owned(),
        format!("--record={}", recording.display()),
    ];
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let trace = Trace::start(&shop::profile(), shop.pid(), &options)?;
    std::thread::sleep(Duration::from_secs(seconds));
    let outcome = trace.wait()?;
    ensure!(outcome.code == Some(0), "{}", outcome.printed());
    load.finish()?;
    shop.close()?;
    Ok(recording)
}

/// Rows that are marked although nothing changed.
fn nulls(args: &Args, text: &mut String) -> Result<()> {
    let scratch = workspace::scratch()?;
    let folder = args.keep.as_deref().unwrap_or_else(|| scratch.path());
    std::fs::create_dir_all(folder)?;
    let long = record(folder, "long.rec", args.seconds)?;
    let blocks = args.seconds / 5;
    let mut split = Marked::default();
    // Even blocks against odd ones, of the whole and of what is behind its first blocks.
    let splits = (blocks / 4).min(blocks.saturating_sub(14)).max(1);
    for first in 0..splits {
        let side = |side: u64| {
            let own = (first..blocks).filter(|block| block % 2 == side);
            let ranges: Vec<String> = own
                .map(|block| format!("{}..{}", block * 5, block * 5 + 5))
                .collect();
            format!(
                "--select={}:time={}",
                if side == 0 { "a" } else { "b" },
                ranges.join(",")
            )
        };
        split.add(marked([&[&long], &[&long]], &[side(0), side(1)], folder)?);
    }
    let recordings: Vec<PathBuf> = (0..args.recordings)
        .map(|at| record(folder, &format!("{at}.rec"), 60))
        .collect::<Result<_>>()
        .context("a recording of the shop")?;
    let recordings: Vec<&Path> = recordings.iter().map(PathBuf::as_path).collect();
    let (mut pairs, mut several) = (Marked::default(), Marked::default());
    for (at, one) in recordings.iter().enumerate() {
        for other in &recordings[at + 1..] {
            pairs.add(marked([&[one], &[other]], &[], folder)?);
        }
    }
    // Each four in all ways.
    for four in recordings.windows(4) {
        for [one, two, three, other] in [[0, 1, 2, 3], [0, 2, 1, 3], [0, 3, 1, 2]] {
            let sides = [&[four[one], four[two]], &[four[three], four[other]]];
            several.add(marked(sides.map(|side| &side[..]), &[], folder)?);
        }
    }
    let show = |marked: Marked| {
        format!(
            "{} | {} of {} ({})",
            marked.comparisons,
            marked.marked,
            marked.rows,
            percent(marked.marked, marked.rows)
        )
    };
    writeln!(
        text,
        "\n## False rows\n\nThe example shop did not change: rows of all tables that are marked all the same. Each recording of 60 s is of a \
         new process; nothing else of note ran on the machine.\n\n| sides | comparisons | marked |\n| --- | ---: | ---: |\n| one recording of {} s, \
         blocks of 5 s in turns | {} |\n| two of {} recordings of 60 s | {} |\n| two recordings a side, of the same | {} |",
        args.seconds,
        show(split),
        args.recordings,
        show(pairs),
        show(several)
    )?;
    Ok(())
}
