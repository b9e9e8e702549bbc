//! Judges what a guest sent: nothing lost, every request there, every request true.
//!
//! In: the guest's files. Out: one line that says what was checked, or what is wrong.

use std::{fs, path::Path};

use anyhow::{Context as _, Result, bail, ensure};
use reqtrace_tests::{
    blamed, brackets,
    chains::{self, Service},
    ledger, reqtrace, rows,
    summary::Summary,
    truth::{bounds, compare::Comparison, moving},
};

use super::boot::read;

/// How many requests of each kind change threads in the guest: `MOVING_REQUESTS` of `guest.sh`.
const MOVING_REQUESTS: u64 = 60;
/// How often the guest calls each kind of request whose culprits are known: `KNOWN_CALLS` of `guest.sh`.
const KNOWN_CALLS: usize = 15;
/// How much of a time has to have its root causes, or what it was behind: beside a busy host a thread that does nothing takes a quarter
/// of the time to do so, and 57 % of what tasks waited for at sockets was known.
pub(super) const KNOWN_SHARE: f64 = 0.5;
/// Samples of the shop's requests, at least: an emulated machine takes seconds for them.
const SAMPLES: u64 = 50;
/// How much of the tracer's error output a failure shows.
const ERROR_BYTES: usize = 4000;

/// The service of [`chains::SERVICES`] that is always traced; the others with `--all`.
const ALWAYS: &str = "locks";

/// Checks the files of one boot, in which all services were traced, or one of each family. `confirmation` is a line that the
/// kernel must have logged.
pub(crate) fn judge(results: &Path, confirmation: Option<&str>, all: bool) -> Result<String> {
    if let Some(words) = confirmation {
        let log = read(results, "dmesg")?;
        ensure!(
            log.contains(words),
            "the kernel did not say {words:?}: parameter not taken"
        );
    }
    for program in [
        "doctor",
        "classes",
        "functions",
        "reqtrace",
        "report",
        "load",
        "shop",
    ] {
        ended_well(results, program)?;
    }
    let under_load = load(results)?;
    let measured = measured(results).context("the example that measures its own waits")?;
    let moved = if all {
        let moved = moved(results).context("the example's requests that change threads")?;
        format!("; {moved}")
    } else {
        String::new()
    };
    let mut kinds = 0;
    for service in chains::SERVICES {
        if all || service.name == ALWAYS {
            known(results, &service).with_context(|| format!("the service {}", service.name))?;
            kinds += service.kinds.len();
        }
    }
    Ok(format!(
        "{under_load}; {measured}{moved}; {kinds} kinds of requests held up by whom they have to be"
    ))
}

/// The files of a service that the guest traced, by their names, if both it and the tracer ended well.
pub(super) fn of_traced(
    results: &Path,
    name: &str,
) -> Result<impl Fn(&str) -> Result<String> + use<>> {
    let folder = results.join(name);
    let of = move |file: &str| read(&folder, file);
    for program in ["reqtrace", "service"] {
        let status = of(&format!("{program}.status"))?;
        ensure!(
            status.trim() == "0",
            "{program} ended with {status}: {}{}",
            of("service.err")?,
            of("reqtrace.err")?
        );
    }
    Ok(of)
}

/// A service whose requests wait because of somebody who is known.
fn known(results: &Path, service: &Service) -> Result<()> {
    let of = of_traced(results, service.name)?;
    let rows = rows::read(&of("trace/requests.csv")?)?;
    let blamed = blamed::read(&of("trace/blame.csv")?)?;
    blamed::check(&rows, &blamed)?;
    chains::check(service.kinds, KNOWN_CALLS, KNOWN_SHARE, &rows, &blamed)
}

/// The shop under load.
fn load(results: &Path) -> Result<String> {
    let load = load_count(&read(results, "load.out")?)?;
    let csv = read(results, "trace/requests.csv")?;
    let summary = Summary::read(&read(results, "trace/summary.json")?)?;

    let lost = summary.lost();
    ensure!(lost == 0, "{lost} lost: {:?}", summary.losses);
    let count: u64 = summary.requests.iter().map(|request| request.count).sum();
    ensure!(
        count == load,
        "reqtrace counted {count} requests, the load sent {load}"
    );
    let unwinding = &summary.unwinding;
    ensure!(
        unwinding.whole_share() >= 0.99,
        "user stacks were not unwound: {unwinding:?}"
    );
    let rows = ledger::check(&csv)?;
    ensure!(
        rows as u64 == count,
        "{rows} rows in requests.csv, {count} requests counted"
    );
    every_order_has_its_label(&csv, load)?;
    let log = read(results, "service.log")?;
    let checked = brackets::check(&log, &csv, summary.trace.monotonic_to_unix_ns)?;
    ensure!(
        checked == rows,
        "{checked} of {rows} requests are in the service's log"
    );
    for name in ["stacks.folded", "flamegraph.svg"] {
        read(results, &format!("trace/{name}"))?;
    }
    let samples = samples(results)?;
    Ok(format!(
        "{count} requests, 0 lost, every ledger closed, every latency within its brackets; {samples}"
    ))
}

/// Samples of the shop's requests on their CPUs, from a recording: their sum is that of the ledgers, and their stacks
/// are whole.
fn samples(results: &Path) -> Result<String> {
    let summary = read(results, "trace/summary.json")?;
    let summary: serde_json::Value = serde_json::from_str(&summary)?;
    let engine = summary.pointer("/trace/samples/engine");
    ensure!(
        engine.and_then(|engine| engine.as_str()) == Some("cpu-clock"),
        "samples were taken by {engine:?}"
    );
    let sum = |path: &str| -> u64 {
        let requests = summary["requests"].as_array().into_iter().flatten();
        requests
            .filter_map(|request| request.pointer(path)?.as_u64())
            .sum()
    };
    let samples = sum("/on_cpu/samples");
    ensure!(samples >= SAMPLES, "only {samples} samples");
    let on_cpu_us = sum("/ledger/on_cpu_ns") / 1000;
    let folded = read(results, "on-cpu.folded")?;
    let (mut all_us, mut cut_us) = (0, 0);
    for line in folded.lines() {
        let (frames, us) = line.rsplit_once(' ').context("a line without a number")?;
        let us: u64 = us.parse()?;
        all_us += us;
        if frames.contains("[truncated") || frames.contains("[stack lost]") {
            cut_us += us;
        }
    }
    let lines = folded.lines().count() as u64;
    ensure!(
        all_us.abs_diff(on_cpu_us) <= lines,
        "{all_us} µs in stacks, {on_cpu_us} µs on CPUs"
    );
    ensure!(
        cut_us * 50 <= all_us,
        "{cut_us} of {all_us} µs are in stacks that are not whole"
    );
    Ok(format!("{samples} samples of them on their CPUs"))
}

/// The example that measures its own waits: every kind of them in its wait class.
fn measured(results: &Path) -> Result<String> {
    let of = of_traced(results, "truth")?;
    let summary = Summary::read(&of("trace/summary.json")?)?;
    let lost = summary.lost();
    ensure!(lost == 0, "{lost} lost: {:?}", summary.losses);
    let comparison = Comparison::of(
        &of("log")?,
        &of("trace/requests.csv")?,
        summary.trace.monotonic_to_unix_ns,
    )?;
    // Not against the CPU clock: an emulated machine's scheduler keeps another time than its clock.
    bounds::check(&comparison, summary.unseen())?;
    bounds::check_company(&comparison)?;
    // With -v they are all walked again; one that is another would be a loss.
    let printed = of("reqtrace.err")?;
    let remembered = reqtrace::remembered(&printed).context("no stack was remembered")?;
    ensure!(
        remembered.user > 0 && remembered.kernel > 0,
        "{remembered:?}"
    );
    Ok(format!(
        "{} kinds of requests as measured by themselves; {} user and {} kernel stacks remembered rightly",
        comparison.kinds.len(),
        remembered.user,
        remembered.kernel
    ))
}

/// The example's requests that change threads: every one of them as it measured itself.
fn moved(results: &Path) -> Result<String> {
    let of = of_traced(results, "moving")?;
    let summary = Summary::read(&of("trace/summary.json")?)?;
    let lost = summary.lost();
    ensure!(lost == 0, "{lost} lost: {:?}", summary.losses);
    moving::check_counts(&summary, MOVING_REQUESTS)?;
    let csv = of("trace/requests.csv")?;
    ledger::check(&csv)?;
    let lines = moving::read(&of("log")?)?;
    let offset = summary.trace.monotonic_to_unix_ns;
    moving::check(&lines, &rows::read(&csv)?, offset)?;
    Ok(format!(
        "{} requests on the move as measured by themselves",
        lines.len()
    ))
}

/// The load numbers its orders from 0, and the label of a request is its number.
fn every_order_has_its_label(csv: &str, load: u64) -> Result<()> {
    let mut labels: Vec<u64> = rows::read(csv)?
        .iter()
        .map(|row| {
            row.label
                .parse()
                .with_context(|| format!("label {:?}", row.label))
        })
        .collect::<Result<_>>()?;
    labels.sort_unstable();
    ensure!(
        labels.iter().copied().eq(0..load),
        "the labels are not the numbers of the {load} orders: {labels:?}"
    );
    Ok(())
}

/// Fails unless a guest's program ended with exit code 0.
fn ended_well(results: &Path, program: &str) -> Result<()> {
    let status = read(results, &format!("{program}.status"));
    let cause = match &status {
        Ok(status) if status.trim() == "0" => return Ok(()),
        Ok(status) => format!("{program} ended with exit code {}", status.trim()),
        Err(error) => format!("{program} did not run: {error}"),
    };
    let mut printed = String::new();
    for name in [
        "doctor.txt",
        "doctor.err",
        "classes.err",
        "functions.err",
        "reqtrace.err",
        "report.txt",
        "serve.err",
        "load.out",
    ] {
        let text = fs::read(results.join(name)).unwrap_or_default();
        let text =
            String::from_utf8_lossy(&text[text.len().saturating_sub(ERROR_BYTES)..]).into_owned();
        if !text.trim().is_empty() {
            printed.push_str(&format!("\n--- {name} ---\n{}", text.trim_end()));
        }
    }
    bail!("{cause}{printed}")
}

/// The number in the load's line `N requests`.
pub(super) fn load_count(output: &str) -> Result<u64> {
    let mut lines = output.lines();
    lines
        .find_map(|line| line.strip_suffix(" requests")?.trim().parse().ok())
        .with_context(|| format!("the load printed no line \"N requests\" but {output:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loads_count_is_found() {
        assert_eq!(
            load_count("400 requests\nmean latency 2 us\n").unwrap(),
            400
        );
        assert!(load_count("").is_err());
        assert!(load_count("many requests\n").is_err());
    }
}
