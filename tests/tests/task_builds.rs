//! Tasks of tokio in builds for release: link-time optimisation, small code, no unwinding, no symbols. Every job once and
//! within its own clocks, or, where no name is left, every task once.
//!
//! Needs root and a kernel with BPF.

use std::fs;

use reqtrace_tests::reqtrace::{self, Outcome};
use reqtrace_tests::task_checks;
use reqtrace_tests::tasks::{self, Build, KINDS};
use reqtrace_tests::workspace;

use crate::tasks::checked;

/// Jobs of each kind.
const JOBS: u64 = 60;

/// As many of which none panics, as that would end a program that cannot unwind.
const BEFORE_A_PANIC: u64 = 10;

/// Tasks that are no jobs: one that spawns those of each kind, but for four that come with others.
const SPAWNERS: u64 = KINDS as u64 - 4;

/// Kinds of jobs of which each is parked for what somebody has, or sleeps for, so long.
const KINDS_PARKED: u64 = 10;
const HELD_NS: u64 = 3_000_000;

/// All tasks of the program, types unknown.
const ALL: &str = "[profile]\nname = \"all\"\n[runtime]\nkind = \"tokio\"\n[[request]]\nname = \"task\"\nunit = \"*\"\n";

const THIN: Build = Build {
    name: "thin",
    settings: &[("LTO", "thin")],
    is_stripped: false,
};

const FAT: Build = Build {
    name: "fat",
    settings: &[("LTO", "fat"), ("CODEGEN_UNITS", "1")],
    is_stripped: false,
};

const SMALL: Build = Build {
    name: "small",
    settings: &[("OPT_LEVEL", "s")],
    is_stripped: false,
};

const SMALLEST: Build = Build {
    name: "smallest",
    settings: &[
        ("OPT_LEVEL", "z"),
        ("LTO", "fat"),
        ("CODEGEN_UNITS", "1"),
        ("PANIC", "abort"),
    ],
    is_stripped: true,
};

const ABORTS: Build = Build {
    name: "aborts",
    settings: &[("LTO", "fat"), ("CODEGEN_UNITS", "1"), ("PANIC", "abort")],
    is_stripped: true,
};

fn every_job_is_a_request(build: &Build) {
    for runtime in ["multi", "current"] {
        let program = build.program().unwrap();
        let profile = tasks::profile("tasks.toml");
        let (outcome, lines) = tasks::trace_of(&program, &profile, runtime, JOBS, &[]).unwrap();
        checked(&outcome, &lines, JOBS);
    }
}

/// Counts of all tasks of a program whose names are gone.
fn every_task_is_a_request(build: &Build, jobs: u64) -> Outcome {
    let folder = workspace::scratch().unwrap();
    let profile = folder.path().join("all.toml");
    fs::write(&profile, ALL).unwrap();
    let program = build.program().unwrap();
    let (outcome, lines) = tasks::trace_of(&program, &profile, "multi", jobs, &[]).unwrap();
    assert_eq!(lines.len() as u64, jobs * KINDS as u64);
    let summary = outcome.checked().unwrap();
    let task = summary.request("task").unwrap();
    // One kind of job has a child.
    let all = jobs * (KINDS as u64 + 1) + SPAWNERS;
    assert_eq!(
        [task.count, task.rows, task.begins, task.ends],
        [all; 4],
        "{}: {}",
        build.name,
        outcome.printed()
    );
    assert_eq!(
        (task.unknown_keys, task.running_elsewhere),
        (Some(0), Some(0))
    );
    let rows = outcome.rows().unwrap();
    let parked: u64 = rows.iter().map(|row| row.parked_ns).sum();
    let least = jobs * KINDS_PARKED * HELD_NS * 9 / 10;
    assert!(parked >= least, "{}: {parked} ns of {least}", build.name);
    outcome
}

#[test]
fn thin_link_time_optimisation_hides_no_job() {
    every_job_is_a_request(&THIN);
}

#[test]
fn fat_link_time_optimisation_hides_no_job() {
    every_job_is_a_request(&FAT);
}

#[test]
fn code_made_small_hides_no_job() {
    every_job_is_a_request(&SMALL);
}

#[test]
fn a_program_without_names_has_every_task() {
    let stripped = |build| Build {
        is_stripped: true,
        ..build
    };
    for build in [stripped(THIN), stripped(FAT), stripped(SMALL)] {
        let outcome = every_task_is_a_request(&build, JOBS);
        let printed = outcome.printed();
        assert!(printed.contains("has its stack and no reason"), "{printed}");
    }
    for build in [ABORTS, SMALLEST] {
        every_task_is_a_request(&build, BEFORE_A_PANIC);
    }
}

#[test]
fn a_type_without_a_name_is_the_address_of_what_polls_it() {
    let build = Build {
        is_stripped: true,
        ..FAT
    };
    let program = build.program().unwrap();
    let folder = workspace::scratch().unwrap();
    let profile = folder.path().join("one.toml");
    let with = |pattern: &str| {
        fs::write(&profile, ALL.replace('*', pattern)).unwrap();
        let mut command = reqtrace::command(["check", "--profile"]).unwrap();
        let output = command.arg(&profile).arg(&program).output().unwrap();
        let printed = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(printed).unwrap())
    };
    let (code, printed) = with("*sleeps*");
    assert_eq!(code, Some(2), "{printed}");
    let (_, addresses) = printed
        .split_once("polls tasks of one type: `")
        .unwrap_or_else(|| panic!("{printed}"));
    let (address, _) = addresses.split_once('`').unwrap();
    assert!(printed.contains("no name tells the types"), "{printed}");
    let (code, printed) = with(address);
    assert_eq!(code, Some(0), "{printed}");
}

/// Those have other names, in older code. Only `cargo xtask test --all` builds them.
#[test]
#[ignore]
fn every_job_is_a_request_by_each_release_of_tokio() {
    let releases = tasks::RELEASES.map(|release| (release, ""));
    let v0 = "-Csymbol-mangling-version=v0";
    let newest = *tasks::RELEASES.last().unwrap();
    for (release, flags) in releases.into_iter().chain([(newest, v0)]) {
        println!("tokio {release} {flags}");
        let program = tasks::built_by_release(release, flags).unwrap();
        let profile = tasks::profile("tasks.toml");
        for runtime in ["multi", "current"] {
            let (outcome, lines) =
                tasks::trace_of(&program, &profile, runtime, JOBS, &["--blame"]).unwrap();
            let traced = checked(&outcome, &lines, JOBS);
            let blamed = outcome.blame().unwrap();
            task_checks::held_up(&traced, &blamed).unwrap();
            task_checks::upstream(&blamed, JOBS).unwrap();
        }
    }
}
