//! `cargo xtask bench compare A B`: what has changed between two results.
//!
//! In: two files of `bench --json`. Out: a table of what differs, and whether it is more than noise.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::Result;

use super::model::{Program, Results, Spread, WatcherRuns};

/// The least change of a program's average time that is shown, of the whole; it has no spread.
const PROGRAM_CHANGE: f64 = 0.05;

/// Arguments of `bench compare`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The earlier result
    #[arg(value_name = "A.json")]
    before: PathBuf,
    /// The later one
    #[arg(value_name = "B.json")]
    after: PathBuf,
}

/// Compares.
pub(crate) fn run(args: &Args) -> Result<()> {
    let [before, after] = [Results::read(&args.before)?, Results::read(&args.after)?];
    print!("{}", text(&before, &after)?);
    Ok(())
}

fn text(before: &Results, after: &Results) -> Result<String> {
    let mut text = String::new();
    writeln!(
        text,
        "{} ({} rounds, kernel {}) → {} ({} rounds, kernel {})",
        before.commit, before.rounds, before.kernel, after.commit, after.rounds, after.kernel
    )?;
    writeln!(
        text,
        "A change is called better or worse where the middle halves of both sets of rounds do not overlap.\n"
    )?;
    writeln!(
        text,
        "{:<24} {:<22} {:<34} {:>8} {:>8} {:>8}",
        "LOAD", "WATCHER", "WHAT", "A", "B", "CHANGE"
    )?;
    for load in &after.loads {
        let Some(earlier) = before.load(&load.name) else {
            writeln!(text, "{:<24} only in B", load.name)?;
            continue;
        };
        for watcher in load.watchers.iter().skip(1) {
            let Some(old) = earlier.watcher(&watcher.name) else {
                writeln!(text, "{:<24} {:<22} only in B", load.name, watcher.name)?;
                continue;
            };
            let names = format!("{:<24} {:<22}", load.name, watcher.name);
            let shares = [earlier.shares(old), load.shares(watcher)];
            line(
                &mut text,
                &names,
                "throughput of the untraced",
                &shares,
                true,
            )?;
            let cpu = [earlier.cpu_ratios(old), load.cpu_ratios(watcher)];
            line(&mut text, &names, "server CPU of the untraced", &cpu, false)?;
            let own = [old, watcher].map(|runs| runs.spread(|run| run.tracer_cpu_ns / 1000.0));
            line(&mut text, &names, "tracer CPU, µs/event", &own, false)?;
            programs(&mut text, &names, old, watcher)?;
        }
    }
    Ok(text)
}

fn line(
    text: &mut String,
    names: &str,
    what: &str,
    [old, new]: &[Spread; 2],
    more_is_better: bool,
) -> Result<()> {
    let (a, b) = (old.median(), new.median());
    if a == 0.0 && b == 0.0 {
        return Ok(());
    }
    let ([a_low, a_high], [b_low, b_high]) = (old.quartiles(), new.quartiles());
    let verdict = if a_low <= b_high && b_low <= a_high {
        ""
    } else if (b > a) == more_is_better {
        "  better"
    } else {
        "  worse"
    };
    writeln!(
        text,
        "{names} {what:<34} {a:>8.3} {b:>8.3} {:>+8.3}{verdict}",
        b - a
    )?;
    Ok(())
}

fn programs(text: &mut String, names: &str, old: &WatcherRuns, new: &WatcherRuns) -> Result<()> {
    for program in &new.programs {
        let earlier = old.programs.iter().find(|known| known.name == program.name);
        let (a, b) = (earlier.map_or(0.0, Program::each_ns), program.each_ns());
        if (b - a).abs() > PROGRAM_CHANGE * a.max(b) {
            let what = format!("{}, ns each", program.name);
            writeln!(text, "{names} {what:<34} {a:>8.0} {b:>8.0} {:>+8.0}", b - a)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::model::tests::example;

    #[test]
    fn only_what_lies_apart_is_called_better() {
        let (slow, mut fast) = (example(0.6), example(0.8));
        fast.loads[0].watchers[1].programs[0].ns = 8000;
        let found = text(&slow, &fast).unwrap();
        let line = |what: &str| {
            let line = found.lines().find(|line| line.contains(what));
            line.unwrap_or_else(|| panic!("no {what} in {found}"))
        };
        assert!(
            line("throughput").ends_with("0.600    0.800   +0.200  better"),
            "{found}"
        );
        assert!(
            line("server CPU").ends_with("1.200    1.200   +0.000"),
            "{found}"
        );
        assert!(
            line("sched_switch").ends_with("40       80      +40"),
            "{found}"
        );
        let back = text(&fast, &slow).unwrap();
        assert!(back.contains("-0.200  worse"), "{back}");
        let none = Results::new("x".to_owned(), "6.1".to_owned(), 1);
        assert!(text(&none, &fast).unwrap().contains("only in B"));
    }
}
