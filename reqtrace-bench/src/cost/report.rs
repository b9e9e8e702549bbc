//! The page of the manual about costs.
//!
//! In: results. Out: its tables.

use std::fmt::Write as _;

use anyhow::Result;

use super::loads;
use super::model::{LoadRuns, Results, Run, Spread, WatcherRuns};
use super::targets;
use super::watchers::{Added, Watcher};

/// Programs that ran less often are left out: of them an average says nothing.
const FEW_RUNS: u64 = 100;

/// With fewer rounds a page says that it is not to be relied on.
const ENOUGH_ROUNDS: u32 = 9;

/// How it was measured, after the first sentence.
const METHOD: &str = "\
All servers and load generators share the machine, and its CPUs are busy: the hardest case. In a round every load \
runs once under every watcher, in an order that changes from round to round; each run is compared with the unwatched \
one of its round. Tables give the median of the rounds and, in brackets, the least and the most. What a generator counts \
within its own time is the throughput. Tracers attach before a load begins, with their defaults; reqtrace writes its five files.

* **empty probes**: a kernel program of two instructions (`return 0`) at each place where reqtrace has a probe \
(`reqtrace check --sites`). What is lost with it is the kernel's own trap. No tracer that uses uprobes at these places \
can cost less.
* **offcputime**: libbpf-tools' `offcputime -p`. It knows no requests, and walks user stacks by frame pointers, which \
these servers do not have. It watches one process: of PostgreSQL and nginx that is the one that serves nobody, so \
there it has next to nothing to do.
* **bpftrace script**: a uprobe and a uretprobe on the profile's function, off-CPU time in between summed by kernel and user \
stack: [the script](../../reqtrace-bench/src/cost/watchers.rs).
";

/// The page.
pub(super) fn page(results: &Results) -> Result<String> {
    let mut text = title("What tracing costs", "cargo xtask bench --write", results)?;
    writeln!(text, "![Throughput and CPU time](../img/cost.svg)\n")?;
    writeln!(text, "{METHOD}")?;
    writeln!(text, "## Targets\n\n{}", targets::table(results)?)?;
    text += &targets::reasons(results);
    throughput(&mut text, results)?;
    server_cpu(&mut text, results)?;
    where_it_goes(&mut text, results)?;
    adds(&mut text, results, Added::Blame)?;
    tracers(&mut text, results)?;
    kernel_programs(&mut text, results)?;
    Ok(text)
}

/// The page of what an option adds.
pub(super) fn page_of(added: Added, results: &Results) -> Result<String> {
    let name = added.name();
    let command = format!("cargo xtask bench tracers --{name} --write");
    let mut text = title(&format!("What --{name} costs"), &command, results)?;
    writeln!(
        text,
        "[What tracing costs](cost.md) says how it is measured, and what a trace without `--{name}` costs beside others.\n"
    )?;
    adds(&mut text, results, added)?;
    throughput(&mut text, results)?;
    server_cpu(&mut text, results)?;
    tracers(&mut text, results)?;
    kernel_programs(&mut text, results)?;
    Ok(text)
}

/// The head of a page that this command writes.
fn title(title: &str, command: &str, results: &Results) -> Result<String> {
    let mut text = format!("# {title}\n\n");
    writeln!(
        text,
        "Written by `{command}`: {} interleaved rounds, {} CPUs, kernel {}, commit {}, {} s in all.\n",
        results.rounds, results.cpus, results.kernel, results.commit, results.took_s
    )?;
    if results.is_given {
        writeln!(
            text,
            "Of a build that was given with `--reqtrace`, which may be no release.\n"
        )?;
    }
    if results.rounds < ENOUGH_ROUNDS {
        writeln!(
            text,
            "**A first look**: fewer than {ENOUGH_ROUNDS} rounds, of which a single one is off by a tenth and more.\n"
        )?;
    }
    Ok(text)
}

/// reqtrace beside its peers on MariaDB, for the README; `None` where a peer was not measured.
pub(super) fn beside_peers(results: &Results) -> Option<String> {
    let load = results.load(loads::MARIADB.name)?;
    let watchers = [Watcher::Offcputime, Watcher::Bpftrace, Watcher::Reqtrace];
    let runs = watchers.map(|watcher| load.watcher(watcher.name()));
    let [Some(offcputime), Some(bpftrace), Some(reqtrace)] = runs else {
        return None;
    };
    let all = [offcputime, bpftrace, reqtrace];
    let row = |what: &str, cells: [String; 3]| format!("| {what} | {} |\n", cells.join(" | "));
    let words = |what: &str, cells: [&str; 3]| row(what, cells.map(str::to_owned));
    let mut text = String::from(
        "| | `offcputime -p` | a bpftrace script | reqtrace |\n| --- | ---: | ---: | ---: |\n",
    );
    text += &words(
        "leaves out time that belongs to no request",
        ["no", "yes", "yes"],
    );
    text += &words(
        "one request: its ledger, which adds up to its latency",
        ["no", "no", "yes"],
    );
    text += &words(
        "run queue and preemption apart from blocking",
        ["no", "no", "yes"],
    );
    text += &words(
        "[user stacks that are whole](docs/measured/stacks.md), of a server without frame pointers",
        ["0 %", "0 %", "100 %"],
    );
    text += &row(
        "[throughput that MariaDB keeps](docs/measured/cost.md)",
        all.map(|runs| format!("{:.0} %", load.shares(runs).median() * 100.0)),
    );
    text += &row(
        "CPU time of MariaDB for a statement",
        all.map(|runs| format!("× {:.2}", load.cpu_ratios(runs).median())),
    );
    text += &row(
        "seconds from Ctrl-C to the end of the report",
        all.map(|runs| {
            let reports = Spread::of(runs.runs.iter().filter_map(|run| run.report_s));
            if reports.is_empty() {
                return "–".to_owned();
            }
            format!("{:.1}", reports.median())
        }),
    );
    Some(text)
}

/// Names of all watchers but nobody, in the order of the first load that has them.
pub(super) fn watcher_names(results: &Results) -> Vec<&str> {
    let mut names = Vec::new();
    for watcher in results
        .loads
        .iter()
        .flat_map(|load| load.watchers.iter().skip(1))
    {
        if !names.contains(&watcher.name.as_str()) {
            names.push(&watcher.name);
        }
    }
    names
}

/// A table with a row for each load and a column for each watcher.
fn by_watcher(
    text: &mut String,
    results: &Results,
    first: &str,
    base: impl Fn(&LoadRuns, &WatcherRuns) -> String,
    cell: impl Fn(&LoadRuns, &WatcherRuns) -> String,
) -> Result<()> {
    let names = watcher_names(results);
    writeln!(text, "| load | {first} | {} |", names.join(" | "))?;
    writeln!(text, "| --- |{}", " ---: |".repeat(names.len() + 1))?;
    for load in &results.loads {
        let Some(nobody) = load.watchers.first() else {
            continue;
        };
        let same = |other: &&LoadRuns| other.command == load.command;
        let server = match results.loads.iter().filter(same).count() {
            0 | 1 => String::new(),
            _ => format!("{}: ", load.name),
        };
        let command = &load.command;
        write!(text, "| {server}`{command}` | {} |", base(load, nobody))?;
        for name in &names {
            let watcher = load.watcher(name);
            let cell = watcher
                .map(|watcher| cell(load, watcher))
                .unwrap_or_default();
            write!(text, " {cell} |")?;
        }
        writeln!(text)?;
    }
    Ok(())
}

fn throughput(text: &mut String, results: &Results) -> Result<()> {
    writeln!(text, "## Throughput\n")?;
    writeln!(text, "As a share of the unwatched run of the same round.\n")?;
    by_watcher(
        text,
        results,
        "nobody",
        |load, nobody| {
            let rate = nobody.spread(|run| run.per_second).median();
            format!("{rate:.0} {}s/s", load.unit)
        },
        |load, watcher| spread(&load.shares(watcher), 2),
    )?;
    writeln!(
        text,
        "\nRedis takes more commands at a turn of its event loop when it is slower: of it only the next table tells.\n"
    )?;
    Ok(())
}

fn server_cpu(text: &mut String, results: &Results) -> Result<()> {
    writeln!(text, "## CPU time of the server\n")?;
    writeln!(
        text,
        "For each event that the generator counts, as a multiple of the unwatched run of the same round. Traps and \
         kernel programs are in it, the tracer's own process is not.\n"
    )?;
    by_watcher(
        text,
        results,
        "nobody",
        |load, nobody| {
            let ns = nobody.spread(|run| run.server_cpu_ns).median();
            format!("{:.1} µs/{}", ns / 1000.0, load.unit)
        },
        |load, watcher| spread(&load.cpu_ratios(watcher), 2),
    )?;
    writeln!(text)?;
    Ok(())
}

/// What the server's CPU time consists of, of loads under reqtrace and under empty probes.
fn where_it_goes(text: &mut String, results: &Results) -> Result<()> {
    let mut rows = String::new();
    for load in &results.loads {
        let [empty, reqtrace] = [Watcher::Empty, Watcher::Reqtrace].map(|w| load.watcher(w.name()));
        let (Some(nobody), Some(empty), Some(reqtrace)) = (load.watchers.first(), empty, reqtrace)
        else {
            continue;
        };
        // Of two watchers, round by round, in µs an event.
        let more = |more: &WatcherRuns, than: &WatcherRuns| {
            let rounds = more.runs.iter().zip(&than.runs);
            let apart = rounds.map(|(more, than)| (more.server_cpu_ns - than.server_cpu_ns) / 1e3);
            mean_and_error(&apart.collect::<Vec<_>>())
        };
        let (added, added_error) = more(reqtrace, nobody);
        let (traps, traps_error) = more(empty, nobody);
        let programs = reqtrace.net_programs_ns(empty.program_ns("").unwrap_or_default()) / 1e3;
        let (beyond, rest_error) = more(reqtrace, empty);
        let tracer = reqtrace.spread(|run| run.tracer_cpu_ns).median() / 1e3;
        writeln!(
            rows,
            "| {} | {:.1} | {added:.1} ± {added_error:.1} | {traps:.1} ± {traps_error:.1} | {programs:.1} | {:.1} ± {rest_error:.1} | \
             {tracer:.1} |",
            load.name,
            nobody.spread(|run| run.server_cpu_ns).median() / 1e3,
            beyond - programs,
        )?;
    }
    if rows.is_empty() {
        return Ok(());
    }
    writeln!(
        text,
        "## Where it goes\n\nµs of CPU time an event: means of what the runs of a round have more than the unwatched one, ± their standard \
         errors. What is added = traps (empty probes) + kernel programs + rest. Kernel programs are those of the table below, \
         without the kernel's clock and the start of a program, which an empty one has too; their runs at switches of the load generator \
         are among them, and are in no server's time. The interrupts of the sampling clock, caches that were \
         evicted, and the ring's notices are in the rest. The tracer's process is beside it.\n\n\
         | load | untraced | added | traps | kernel programs | rest | tracer's process |\n\
         | --- | ---: | ---: | ---: | ---: | ---: | ---: |\n{rows}"
    )?;
    Ok(())
}

/// What an option takes more than a trace without it.
fn adds(text: &mut String, results: &Results, added: Added) -> Result<()> {
    let pairs = results.loads.iter().filter_map(|load| {
        let [more, than] = [added.watcher(), Watcher::Reqtrace].map(|w| load.watcher(w.name()));
        Some((load, more?, than?))
    });
    let mut rows = String::new();
    for (load, more, than) in pairs {
        let points: Vec<f64> = load
            .taken_more(more, than)
            .iter()
            .map(|share| share * 100.0)
            .collect();
        let median = Spread::of(points.iter().copied()).median();
        let (mean, error) = mean_and_error(&points);
        let process = |runs: &WatcherRuns| runs.spread(|run| run.tracer_cpu_ns).median() / 1e3;
        writeln!(
            rows,
            "| {} | {mean:.1} ± {error:.1} | {median:.1} | {:.2} | {:.2} |",
            load.name,
            (more.programs_ns() - than.programs_ns()) / 1e3,
            process(more) - process(than),
        )?;
    }
    if rows.is_empty() {
        return Ok(());
    }
    writeln!(
        text,
        "## What `--{}` adds\n\nPoints are hundredths of the unwatched throughput of the same round; ± is the standard error of the mean \
         of all rounds. A time in kernel programs holds the kernel's own clock, some 40 ns for each run.\n\n\
         | load | points, mean | median | µs/event in kernel programs | µs/event of the tracer's process |\n\
         | --- | ---: | ---: | ---: | ---: |\n{rows}",
        added.name()
    )?;
    Ok(())
}

/// The mean, and its standard error; 0 of one value.
fn mean_and_error(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count.max(1.0);
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let variance = squares / (count - 1.0).max(1.0);
    (mean, (variance / count.max(1.0)).sqrt())
}

fn tracers(text: &mut String, results: &Results) -> Result<()> {
    writeln!(text, "## The tracer's process\n")?;
    writeln!(
        text,
        "Medians. CPU time is that of the process alone, in CPUs and for each event; its kernel programs are in the \
         server's. Memory is the process's greatest, and that of its maps in the kernel. Seconds are from Ctrl-C to its \
         end; PostgreSQL's after all three loads; peers' once, at most 60 s.\n"
    )?;
    writeln!(
        text,
        "| load | tracer | CPUs | µs/event | memory | maps | seconds to the report |\n\
         | --- | --- | ---: | ---: | ---: | ---: | ---: |"
    )?;
    for load in &results.loads {
        let processes = load
            .watchers
            .iter()
            .filter(|watcher| watcher.runs.iter().any(|run| run.memory > 0));
        for watcher in processes {
            let median = |value: fn(&Run) -> f64| watcher.spread(value).median();
            let reports = Spread::of(watcher.runs.iter().filter_map(|run| run.report_s));
            let report = if reports.is_empty() {
                String::new()
            } else {
                format!("{:.2}", reports.median())
            };
            writeln!(
                text,
                "| {} | {} | {:.2} | {:.2} | {:.0} MB | {:.1} MB | {report} |",
                load.name,
                watcher.name,
                median(|run| run.tracer_cpus),
                median(|run| run.tracer_cpu_ns) / 1000.0,
                median(|run| run.memory as f64) / 1e6,
                median(|run| run.maps as f64) / 1e6,
            )?;
        }
    }
    writeln!(text)?;
    Ok(())
}

fn kernel_programs(text: &mut String, results: &Results) -> Result<()> {
    writeln!(text, "## Time in kernel programs\n")?;
    writeln!(
        text,
        "From one more run with `kernel.bpf_stats_enabled`, averaged over all runs of a program; the kernel's clock itself \
         adds some 40 ns to each. `sched_switch` runs at every switch of the machine.\n"
    )?;
    if let Some(bystander) = &results.bystander {
        writeln!(
            text,
            "A switch between threads of a process that is not traced: {:.0} ns, an empty program at the same place \
             {:.0} ns.\n",
            bystander.switch_ns, bystander.empty_ns
        )?;
    }
    writeln!(
        text,
        "| load | watcher | program | runs | ns each | ns/event |\n\
         | --- | --- | --- | ---: | ---: | ---: |"
    )?;
    for load in &results.loads {
        for watcher in &load.watchers {
            let programs = watcher.programs.iter();
            for program in programs.filter(|program| program.runs > FEW_RUNS) {
                writeln!(
                    text,
                    "| {} | {} | {} | {} | {:.0} | {:.0} |",
                    load.name,
                    watcher.name,
                    program.name,
                    program.runs,
                    program.each_ns(),
                    program.per_event_ns()
                )?;
            }
        }
    }
    Ok(())
}

/// `0.91 (0.88–0.95)`.
fn spread(spread: &Spread, digits: usize) -> String {
    format!(
        "{:.digits$} ({:.digits$}–{:.digits$})",
        spread.median(),
        spread.least(),
        spread.most()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::model::Program;
    use crate::cost::model::tests::example;

    #[test]
    fn the_page_has_every_table() {
        let text = page(&example(0.8)).unwrap();
        assert!(
            text.contains("| `redis-benchmark` | 100 commands/s | 0.80 (0.50–0.80) |"),
            "{text}"
        );
        assert!(
            text.contains("| `redis-benchmark` | 1.0 µs/command | 1.20 (1.20–1.20) |"),
            "{text}"
        );
        assert!(text.contains("**A first look**"), "{text}");
        assert!(
            !text.contains("Where it goes"),
            "without empty probes: {text}"
        );
        // Peers were not measured.
        assert!(beside_peers(&example(0.8)).is_none());
        // 100 runs are few.
        assert!(
            !text.contains("| Redis GET | reqtrace | sched_switch |"),
            "{text}"
        );
    }

    #[test]
    fn what_is_added_is_the_sum_of_its_parts() {
        let mut results = example(0.8);
        let load = &mut results.loads[0];
        let mut empty = load.watchers[1].clone();
        empty.name = Watcher::Empty.name().to_owned();
        for run in &mut empty.runs {
            run.server_cpu_ns = 1050.0;
        }
        let program = |runs, ns| Program {
            name: "request_begin".to_owned(),
            runs,
            ns,
            events: 100,
        };
        empty.programs = vec![program(200, 10_000)];
        load.watchers[1].programs = vec![program(100, 12_000)];
        for run in &mut load.watchers[1].runs {
            run.server_cpu_ns = 1400.0;
        }
        load.watchers.push(empty);
        let text = page(&results).unwrap();
        // 120 ns a run, of which an empty program has 50.
        let row = "| Redis GET | 1.0 | 0.4 ± 0.0 | 0.1 ± 0.0 | 0.1 | 0.3 ± 0.0 |";
        assert!(text.contains(row), "{text}");
    }

    #[test]
    fn what_blame_adds_is_compared_round_by_round() {
        let mut results = example(0.8);
        assert!(!page(&results).unwrap().contains("What `--blame` adds"));
        let load = &mut results.loads[0];
        let mut blame = load.watchers[1].clone();
        blame.name = Watcher::Blame.name().to_owned();
        for (run, per_second) in blame.runs.iter_mut().zip([70.0, 77.0, 45.0]) {
            run.per_second = per_second;
            run.tracer_cpu_ns = 1500.0;
        }
        blame.programs[0].ns += 5000;
        load.watchers.push(blame);
        let text = page(&results).unwrap();
        assert!(
            text.contains("| Redis GET | 6.7 ± 3.3 | 10.0 | 0.10 | 1.50 |"),
            "{text}"
        );
    }

    #[test]
    fn the_readme_has_reqtrace_beside_its_peers() {
        let mut results = example(0.8);
        let load = &mut results.loads[0];
        load.name = loads::MARIADB.name.to_owned();
        for peer in [Watcher::Offcputime, Watcher::Bpftrace] {
            let runs = load.watchers[1].runs.clone();
            load.watchers.push(WatcherRuns {
                name: peer.name().to_owned(),
                runs,
                programs: Vec::new(),
            });
        }
        load.watchers[1].runs[0].report_s = Some(0.26);
        let text = beside_peers(&results).unwrap();
        assert!(
            text.contains("| CPU time of MariaDB for a statement | × 1.20 | × 1.20 | × 1.20 |"),
            "{text}"
        );
        assert!(text.contains("| – | – | 0.3 |"), "{text}");
    }
}
