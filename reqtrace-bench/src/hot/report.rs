//! The page of `bench hot`: turns of tracers in, medians with their spread out.

use std::fmt::Write as _;

use anyhow::Result;

use super::{Args, SAMPLE, Tracer, Turn};
use crate::cost::model::Spread;
use xtask::kernel;

/// A row of the table: what it is, and what it is of a turn.
type Row = (&'static str, fn(&Turn) -> f64);

/// What is shown.
const ROWS: [Row; 10] = [
    ("begin", |turn| turn.begin),
    ("end", |turn| turn.end),
    ("begin + end", |turn| turn.begin + turn.end),
    ("begin, cold", |turn| turn.cold_begin),
    ("end, cold", |turn| turn.cold_end),
    ("begin + end, cold", |turn| turn.cold_begin + turn.cold_end),
    (
        "a thread in a request leaves its CPU and comes back",
        |turn| turn.switch,
    ),
    ("the same, cold", |turn| turn.cold_switch),
    ("a switch between threads that are not traced", |turn| {
        turn.foreign
    }),
    ("a marker of tokio, by a task that is no request", |turn| {
        turn.unit
    }),
];

pub(super) fn page(args: &Args, tracers: &[Tracer]) -> Result<String> {
    let mut text = String::new();
    writeln!(text, "# The hot path\n")?;
    writeln!(
        text,
        "Written by `cargo xtask bench hot --write`: {} rounds, {} CPUs, kernel {}, in which the tracers take turns on one \
         [process](../../tests/fixtures/tight.cpp) whose requests do next to nothing.\n",
        args.rounds,
        std::thread::available_parallelism().map_or(0, usize::from),
        kernel::release(),
    )?;
    writeln!(
        text,
        "Nanoseconds of one run of a kernel program by the kernel's own statistics, less what an empty program \
         (`return 0`) took at the same places in the same turn: {}. Medians of the rounds and, in brackets, the \
         middle half of them. `sampled` is `--sample {SAMPLE}`: one pair in 64 is recorded, and is in the mean.\n",
        empty(tracers)
    )?;
    writeln!(
        text,
        "Warm: a thread for each CPU, bound to it, one request after the other. Cold: 64 threads that go to another CPU \
         for each request, and 4 MB are read before each begin and each end; or 64 that sleep in their requests, and \
         read 4 MB between. Where a thread came back after another one had run in between, out and in are two runs. Tasks that \
         are no request: [the jobs of an example](../../examples/tasks) on three workers, beside a profile of another job.\n"
    )?;
    write!(text, "| ns |")?;
    for tracer in tracers {
        write!(text, " {} |", tracer.name)?;
    }
    writeln!(text, "\n| --- |{}", " ---: |".repeat(tracers.len()))?;
    for (name, value) in ROWS {
        write!(text, "| {name} |")?;
        for tracer in tracers {
            write!(text, " {} |", shown(&spread(tracer, value)))?;
        }
        writeln!(text)?;
    }
    Ok(text)
}

fn spread(tracer: &Tracer, value: fn(&Turn) -> f64) -> Spread {
    Spread::of(tracer.turns.iter().map(value))
}

fn shown(spread: &Spread) -> String {
    let [lower, upper] = spread.quartiles();
    format!("{:.0} ({lower:.0}–{upper:.0})", spread.median())
}

fn empty(tracers: &[Tracer]) -> String {
    let all = |value: fn(&Turn) -> f64| {
        let turns = tracers.iter().flat_map(|tracer| &tracer.turns);
        Spread::of(turns.map(value)).median()
    };
    format!(
        "{:.0} ns at a marker, {:.0} ns at a switch",
        all(|turn| turn.empty_marker),
        all(|turn| turn.empty_switch)
    )
}
