//! The trials: the same service where something is missing, forbidden or elsewhere.
//!
//! In: the guest's files. Out: for each trial what came of it, or an error where it is not what has to be. In all
//! of them the doctor and the tracer agree where both ran, what is traced is whole, and what is refused says what is missing.

use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};
use reqtrace_tests::{ledger, rows, summary::Summary};

use super::boot::read;
use super::verdict::load_count;

/// The exit code of what is not permitted, or not in this kernel.
const UNSUPPORTED: &str = "3";

/// One trial of the guest's script.
struct Trial {
    /// Its folder.
    name: &'static str,
    /// What it is, for the table.
    title: &'static str,
    /// What has to come of it.
    wanted: Wanted,
}

/// What has to come of a trial.
enum Wanted {
    /// A trace with all requests.
    Traced(fn(&Path) -> Result<&'static str>),
    /// A refusal that has one of these words.
    Refused(&'static [&'static str]),
    /// One or the other: kernels differ.
    Either(&'static [&'static str]),
}

/// What came of a trial.
pub(super) struct Tried {
    /// What it was.
    pub(super) title: &'static str,
    /// What came of it.
    pub(super) came: String,
}

const CAPABILITIES: &[&str] = &["needs CAP_SYS_ADMIN"];

/// A feature that is taken for lacking, without which there are no right ledgers.
const fn needed(name: &'static str, title: &'static str) -> Trial {
    Trial {
        name,
        title,
        wanted: Wanted::Refused(&["this kernel has no"]),
    }
}

/// A feature that is taken for lacking, without which a trace of the shop is as right.
const fn optional(name: &'static str, title: &'static str) -> Trial {
    Trial {
        name,
        title,
        wanted: Wanted::Traced(shop),
    }
}

const TRIALS: [Trial; 19] = [
    Trial {
        name: "inside",
        title: "a service in its own PID and mount namespaces",
        wanted: Wanted::Traced(inside),
    },
    Trial {
        name: "generated",
        title: "generated code in such namespaces",
        wanted: Wanted::Traced(generated),
    },
    Trial {
        name: "paranoid-1",
        title: "perf_event_paranoid −1, root",
        wanted: Wanted::Traced(shop),
    },
    Trial {
        name: "paranoid2",
        title: "perf_event_paranoid 2, root",
        wanted: Wanted::Traced(shop),
    },
    Trial {
        name: "user2",
        title: "perf_event_paranoid 2, a user with CAP_BPF, CAP_PERFMON, CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH",
        wanted: Wanted::Either(CAPABILITIES),
    },
    Trial {
        name: "user",
        title: "perf_event_paranoid 3, the same user",
        wanted: Wanted::Either(CAPABILITIES),
    },
    Trial {
        name: "clock",
        title: "the wall clock set an hour on and back",
        wanted: Wanted::Traced(clock),
    },
    Trial {
        name: "kptr_restrict",
        title: "kptr_restrict 2",
        wanted: Wanted::Traced(hidden),
    },
    needed("without_tracepoints", "no tracepoints of threads"),
    needed("without_switch-states", "no state in sched_switch"),
    needed("without_helpers", "no helpers"),
    needed("without_task-members", "no members of threads"),
    needed("without_probe-members", "no members of uprobes"),
    Trial {
        name: "without_file-members",
        title: "no members of files",
        wanted: Wanted::Traced(without_files),
    },
    optional(
        "without_sockets",
        "no tracepoints of page faults and sockets",
    ),
    optional(
        "without_ease",
        "no uprobe_multi, maps by descriptor, hits without a lock",
    ),
    Trial {
        name: "no_btf",
        title: "no /sys/kernel/btf",
        wanted: Wanted::Refused(&["/sys/kernel/btf/vmlinux"]),
    },
    Trial {
        name: "integrity",
        title: "lockdown integrity",
        wanted: Wanted::Traced(shop),
    },
    Trial {
        name: "confidentiality",
        title: "lockdown confidentiality",
        wanted: Wanted::Refused(&["confidentiality"]),
    },
];

/// Judges all of them.
pub(super) fn judge(results: &Path) -> Result<Vec<Tried>> {
    let (mut tried, mut failures) = (Vec::new(), Vec::new());
    for trial in &TRIALS {
        let title = trial.title;
        match one(trial, results) {
            Ok(came) => {
                eprintln!("vm:   {title}: {came}");
                tried.push(Tried { title, came });
            }
            Err(error) => failures.push(format!("{title}: {error:#}")),
        }
    }
    ensure!(failures.is_empty(), "{}", failures.join("\n"));
    Ok(tried)
}

fn one(trial: &Trial, results: &Path) -> Result<String> {
    let folder = results.join("trials").join(trial.name);
    if trial.title.starts_with("lockdown ") {
        let mode = read(results, trial.name)?;
        let wanted = format!("[{}]", trial.name);
        ensure!(mode.contains(&wanted), "the kernel is in {mode:?}");
    }
    let code = |program: &str| -> Result<String> {
        Ok(read(&folder, &format!("{program}.status"))?
            .trim()
            .to_owned())
    };
    let tracer = code("reqtrace")?;
    let doctor = code("doctor")?;
    let printed = read(&folder, "reqtrace.err")?;
    let all_said = || -> Result<String> {
        let doctor = read(&folder, "doctor.txt")? + &read(&folder, "doctor.err")?;
        Ok(format!(
            "\n--- doctor ---\n{doctor}--- reqtrace ---\n{printed}"
        ))
    };
    ensure!(
        doctor == tracer,
        "the doctor ended with {doctor}, the tracer with {tracer}{}",
        all_said()?
    );
    match (&trial.wanted, tracer.as_str()) {
        (Wanted::Traced(check), "0") => {
            Ok(check(&folder).with_context(|| printed.clone())?.to_owned())
        }
        (Wanted::Either(_), "0") => Ok(shop(&folder).with_context(|| printed.clone())?.to_owned()),
        (Wanted::Refused(words) | Wanted::Either(words), UNSUPPORTED) => {
            let error = printed
                .lines()
                .find(|line| words.iter().any(|word| line.contains(word)))
                .with_context(|| {
                    format!(
                        "none of {words:?} is named{}",
                        all_said().unwrap_or_default()
                    )
                })?;
            let error = error
                .trim()
                .trim_start_matches("reqtrace: ")
                .trim_start_matches("error: ");
            Ok(format!("refused, exit code 3: {error}"))
        }
        _ => bail!("ended with exit code {tracer}{}", all_said()?),
    }
}

/// Every order of the load, whole.
fn shop(folder: &Path) -> Result<&'static str> {
    let load = load_count(&read(folder, "load.out")?)?;
    let summary = Summary::read(&read(folder, "trace/summary.json")?)?;
    ensure!(summary.lost() == 0, "lost: {:?}", summary.losses);
    let count = summary.request("order")?.count;
    ensure!(count == load, "{count} requests of {load}");
    let rows = ledger::check(&read(folder, "trace/requests.csv")?)?;
    ensure!(rows as u64 == load, "{rows} rows of {load} requests");
    Ok("traced, every request, none lost")
}

/// Each order begins by the wall clock as it was then, and both steps are counted.
fn clock(folder: &Path) -> Result<&'static str> {
    const HOUR_NS: u64 = 3_600_000_000_000;
    let loads = ["load.out.before", "load.out"].map(|name| load_count(&read(folder, name)?));
    let [before, after] = loads;
    let (before, after) = (before?, after?);
    let csv = read(folder, "trace/requests.csv")?;
    ledger::check(&csv)?;
    let rows = rows::read(&csv)?;
    let begins = rows.iter().map(|row| row.start_unix_ns);
    let first_ns = begins.min().context("no rows")?;
    let since = |row: &rows::Row| row.start_unix_ns - first_ns;
    let late = rows.iter().filter(|row| since(row) >= HOUR_NS).count() as u64;
    ensure!(
        (rows.len() as u64 - late, late) == (before, after),
        "{late} of {} requests begin an hour later, of {before} and {after}",
        rows.len()
    );
    let longest = rows.iter().map(since).max().unwrap_or(0);
    ensure!(
        longest < HOUR_NS + HOUR_NS / 2,
        "one begins after {longest} ns"
    );
    let summary = Summary::read(&read(folder, "trace/summary.json")?)?;
    let steps = summary
        .losses
        .iter()
        .find(|loss| loss.name == "clock_steps");
    let steps = steps.map_or(0, |loss| loss.count);
    ensure!(
        steps == 2,
        "{steps} steps of the clock: {:?}",
        summary.losses
    );
    Ok("traced, every request by the wall clock of its begin; both steps are counted")
}

/// Its names are found in its own root, and its files have the names that it gives them.
fn inside(folder: &Path) -> Result<&'static str> {
    shop(folder)?;
    let folded = read(folder, "trace/stacks.folded")?;
    for function in ["shop::service::handle_request", "fdatasync"] {
        ensure!(folded.contains(function), "no {function} in\n{folded}");
    }
    let rows = rows::read(&read(folder, "trace/requests.csv")?)?;
    ensure!(
        rows::sum(&rows, "journal") > 0,
        "nobody waited for the journal:\n{folded}"
    );
    Ok(
        "traced, every request, none lost; names of functions and of the file that it waits for are right",
    )
}

/// The perf map is in the service's own `/tmp`, by the number that it has there.
fn generated(folder: &Path) -> Result<&'static str> {
    let folded = read(folder, "trace/stacks.folded")?;
    let name = "call;Generated::code: of a request;block";
    ensure!(folded.contains(name), "no {name} in\n{folded}");
    let summary = Summary::read(&read(folder, "trace/summary.json")?)?;
    ensure!(summary.lost() == 0, "lost: {:?}", summary.losses);
    ensure!(
        summary.request("request")?.count > 10,
        "{:?}",
        summary.requests
    );
    Ok("traced, with the names of its perf map")
}

/// Nothing waits for a file that has a name, and that is printed.
fn without_files(folder: &Path) -> Result<&'static str> {
    shop(folder)?;
    let printed = read(folder, "reqtrace.err")?;
    ensure!(
        printed.contains("the files that threads wait for are missing"),
        "that is not printed:\n{printed}"
    );
    Ok("traced, every request, none lost; files that it waits for have no names, which is printed")
}

/// Kernel frames have no names, and that is printed.
fn hidden(folder: &Path) -> Result<&'static str> {
    shop(folder)?;
    let summary = read(folder, "trace/summary.json")?;
    ensure!(
        summary.contains("hides its addresses"),
        "that is not printed:\n{summary}"
    );
    let folded = read(folder, "trace/stacks.folded")?;
    ensure!(
        folded.contains("[kernel+0x"),
        "kernel frames have names:\n{folded}"
    );
    Ok("traced, every request, none lost; frames of the kernel have no names, which is printed")
}
