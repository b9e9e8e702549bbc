//! What a task or a goroutine is, as an attribute of its request: the type of the task's future, or the function that the
//! goroutine starts with. Each is counted as often as the program says.
//!
//! Needs root, a kernel with BPF, and Go.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use reqtrace_tests::goroutines;
use reqtrace_tests::reqtrace::{self, Outcome};
use reqtrace_tests::rows::{self, Row};
use reqtrace_tests::tasks::{self, KINDS, Line};
use reqtrace_tests::workspace;

/// Jobs of each kind.
const JOBS: u64 = 100;

/// Writes a profile of all units with what each of them is, and these attributes.
fn profile(folder: &Path, runtime: &str, more: &str) -> PathBuf {
    let path = folder.join("types.toml");
    let text = format!(
        "[profile]\nname = \"types\"\n[runtime]\nkind = \"{runtime}\"\n[[request]]\nname = \"unit\"\nunit = \"*\"\n\
         [[request.attribute]]\nname = \"is\"\ntype = \"unit\"\n{more}"
    );
    fs::write(&path, text).unwrap();
    path
}

/// The attribute that says which kind of job a task does, as the example's own profile has it.
fn kind_of_job() -> String {
    let text = fs::read_to_string(tasks::profile("tasks.toml")).unwrap();
    let names = text.lines().find(|line| line.starts_with("names = "));
    let read = "function = \"tasks_job\"\narg = 0\ntype = \"unsigned\"\nsize = 8";
    format!(
        "[[request.attribute]]\nname = \"kind\"\n{read}\n{}\n",
        names.unwrap()
    )
}

/// How many requests are of each type.
fn counts(rows: &[Row]) -> BTreeMap<&str, u64> {
    let mut counts = BTreeMap::new();
    for row in rows {
        *counts.entry(row.attributes["is"].as_str()).or_default() += 1;
    }
    counts
}

/// Whether a type is that of the future which a function of this name returns.
fn is_future_of(name: &str, function: &str) -> bool {
    name.contains(&format!("::{function}::{{"))
}

/// How many jobs there are of each kind.
fn kinds(lines: &[Line]) -> BTreeMap<&str, u64> {
    let mut kinds = BTreeMap::new();
    for line in lines {
        *kinds.entry(line.kind.as_str()).or_default() += 1;
    }
    kinds
}

/// The rows that `report` prints of a recording.
fn reported(recording: &Path, options: &[&str]) -> Vec<Row> {
    let mut command = reqtrace::command(["report"]).unwrap();
    command.arg(recording).args(["--csv", "-"]).args(options);
    let outcome = reqtrace::run(command).unwrap();
    assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
    rows::read(&outcome.stdout).unwrap()
}

#[test]
fn a_task_has_the_type_of_its_future() {
    let folder = workspace::scratch().unwrap();
    let profile = profile(folder.path(), "tokio", &kind_of_job());
    let recording = folder.path().join("tasks.rec");
    let record = format!("--record={}", recording.display());
    let program = workspace::tasks().unwrap();
    let more = [record.as_str(), "--group-by", "is"];
    let (outcome, lines) = tasks::trace_of(&program, &profile, "multi", JOBS, &more).unwrap();
    outcome.checked().unwrap();
    let rows = outcome.rows().unwrap();
    let counts = counts(&rows);
    let kinds = kinds(&lines);
    assert_eq!(kinds.len(), KINDS);
    for (kind, jobs) in kinds {
        let of_kind = counts.iter().filter(|(name, _)| is_future_of(name, kind));
        let of_kind: Vec<u64> = of_kind.map(|(_, count)| *count).collect();
        assert_eq!(of_kind, [jobs], "{kind}: {counts:#?}");
    }
    let jobs = rows.iter().filter(|row| !row.attributes["kind"].is_empty());
    for Row { attributes, .. } in jobs {
        let (is, kind) = (&attributes["is"], &attributes["kind"]);
        assert!(is_future_of(is, kind), "{attributes:?}");
    }
    // Nothing of it is a text of a user: no --labels. Not what polls it, which is tokio's.
    let printed = outcome.printed();
    assert!(printed.contains("…alone::sleeps::{"), "{printed}");
    assert!(!counts.keys().any(|name| name.contains("raw::poll")));

    let again = reported(&recording, &[]);
    let types = |rows: &[Row]| -> Vec<String> {
        let types = rows.iter().map(|row| row.attributes["is"].clone());
        types.collect()
    };
    assert_eq!(types(&again), types(&rows));
    let sleeps = reported(&recording, &["--attribute", "is=*::sleeps::*"]);
    assert_eq!(sleeps.len() as u64, JOBS);
}

/// As `unit` takes it, and by fewer probes.
#[test]
fn a_task_without_the_name_of_its_type_has_the_address_of_what_polls_it() {
    let folder = workspace::scratch().unwrap();
    let program = folder.path().join("tasks");
    let mut strip = Command::new(workspace::program("strip").unwrap());
    strip
        .arg("-o")
        .arg(&program)
        .arg(workspace::tasks().unwrap());
    assert!(strip.status().unwrap().success());
    let path = profile(folder.path(), "tokio", "");
    let cheap = PathBuf::from(format!("{}:cheap", path.display()));
    let (outcome, lines) = tasks::trace_of(&program, &cheap, "multi", JOBS, &[]).unwrap();
    outcome.checked().unwrap();
    let rows = outcome.rows().unwrap();
    let counts = counts(&rows);
    assert!(
        counts.keys().all(|name| name.starts_with("0x")),
        "{counts:#?}"
    );
    // One kind has a child.
    let of_jobs = counts.values().filter(|count| **count == JOBS).count();
    assert_eq!(of_jobs, kinds(&lines).len() + 1, "{counts:#?}");
    let address = counts.iter().find(|(_, count)| **count == JOBS).unwrap().0;
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace('*', address)).unwrap();
    let mut check = reqtrace::command(["check", "--profile"]).unwrap();
    let outcome = reqtrace::run({
        check.arg(&path).arg(&program);
        check
    });
    let printed = outcome.unwrap().printed();
    assert!(
        printed.contains(&format!("of the type {address}")),
        "{printed}"
    );
}

fn goroutines_have_their_functions(program: &Path) -> Outcome {
    let folder = workspace::scratch().unwrap();
    let profile = profile(folder.path(), "go", "");
    let (outcome, lines) =
        goroutines::trace_by(&profile, program, JOBS, &["--group-by", "is"]).unwrap();
    outcome.checked().unwrap();
    let rows = outcome.rows().unwrap();
    let counts = counts(&rows);
    let of = |name: &str| counts.get(name).copied();
    // `go func() { … }()` in a function; and `go reply(stream)`, which starts with a closure that calls it.
    assert_eq!(
        of("main.(*service).start.func1"),
        Some(lines.len() as u64),
        "{counts:#?}"
    );
    assert_eq!(of("main.reply"), Some(JOBS), "{counts:#?}");
    assert!(
        !counts.keys().any(|name| name.contains("gowrap")),
        "{counts:#?}"
    );
    outcome
}

#[test]
fn a_goroutine_has_the_function_that_it_starts_with() {
    let outcome = goroutines_have_their_functions(&goroutines::program().unwrap());
    let printed = outcome.printed();
    assert!(printed.contains("main.(*service).start.func1"), "{printed}");
}

#[test]
fn a_goroutine_of_a_stripped_program_has_its_function() {
    goroutines_have_their_functions(&goroutines::stripped().unwrap());
}
