//! The tests, tier by tier: lints, unit and golden tests, end-to-end tests, VM tier.
//!
//! Every tier runs even if one before it failed, and a table at the end says where each one ran. All are built by one
//! profile, and the VM tier runs beside lints and unit tests.

use std::{
    env, fmt,
    fs::{self, File},
    io::{BufRead as _, BufReader},
    path::PathBuf,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use clap::ValueEnum;

use crate::{
    dist, kernel, page_checks,
    process::{self, Guard},
    setup::{self, Need},
    vm,
    workspace::{Binaries, BinaryArgs, Profile, cargo, root, target_dir},
};

/// Options of the tests.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only these tiers
    #[arg(long = "tier", value_name = "TIER", value_enum)]
    tiers: Vec<Tier>,
    /// Also the packages in a bare Debian, and servers of the cookbook
    #[arg(long)]
    all: bool,
    /// Also say what set-up finds already there
    #[arg(short, long)]
    verbose: bool,
}

impl Args {
    /// Without names it is every tier but the packages', which builds everything once more.
    fn wants(&self, tier: Tier) -> bool {
        if self.tiers.is_empty() {
            self.all || tier != Tier::Dist
        } else {
            self.tiers.contains(&tier)
        }
    }
}

/// A part of the tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Tier {
    /// Formatting and clippy, of the host's crates and of the kernel programs; types and lints of the page
    Lint,
    /// Unit and golden tests; no root needed
    Unit,
    /// Real services traced on the running kernel
    E2e,
    /// The kernel programs on other kernels, under qemu
    Vm,
    /// The packages, installed in a bare Debian 12; only with --all, or by name
    Dist,
}

impl Tier {
    const ALL: [Self; 5] = [Self::Lint, Self::Unit, Self::E2e, Self::Vm, Self::Dist];

    fn name(self) -> &'static str {
        match self {
            Self::Lint => "lint",
            Self::Unit => "unit",
            Self::E2e => "end-to-end",
            Self::Vm => "vm",
            Self::Dist => "dist",
        }
    }

    fn need(self) -> Need {
        match self {
            Self::Lint => Need::Lint,
            Self::Unit => Need::Build,
            Self::E2e => Need::Test,
            Self::Vm => Need::Vm,
            Self::Dist => Need::Dist,
        }
    }
}

/// How a tier ended.
enum Outcome {
    Passed { on: String },
    Skipped { cause: String },
    Failed { error: anyhow::Error },
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed { on } => write!(f, "passed   {on}"),
            Self::Skipped { cause } => write!(f, "NOT RUN  {cause}"),
            Self::Failed { error } => {
                let text = format!("{error:#}");
                write!(f, "FAILED   {}", text.lines().next().unwrap_or_default())
            }
        }
    }
}

/// `cargo xtask test`.
pub(crate) fn run(args: &Args) -> Result<()> {
    let chosen: Vec<Tier> = Tier::ALL
        .into_iter()
        .filter(|tier| args.wants(*tier))
        .collect();
    let mut needs: Vec<Need> = chosen.iter().map(|tier| tier.need()).collect();
    if args.all {
        needs.push(Need::All);
    }
    setup::prepare(&needs, args.verbose)?;
    let lanes = chosen.contains(&Tier::Vm) && chosen.len() > 1;
    // One CPU emulates the other kernels while lints and unit tests run; nothing else runs beside the end-to-end tests,
    // which trace loaded servers.
    let vm = lanes.then(|| VmLane::start(args.all)).transpose()?;
    let (beside, alone): (Vec<Tier>, Vec<Tier>) = chosen
        .into_iter()
        .filter(|tier| !(lanes && *tier == Tier::Vm))
        .partition(|tier| matches!(tier, Tier::Lint | Tier::Unit));

    let mut rows: Vec<Row> = Vec::new();
    rows.extend(beside.into_iter().map(|tier| one(tier, args.all)));
    if let Some(vm) = vm {
        // So that nothing is left to build when it has ended.
        if alone.contains(&Tier::E2e) {
            process::run(end_to_end_tests().arg("--no-run"))?;
        }
        rows.push(vm.finish()?);
    }
    rows.extend(alone.into_iter().map(|tier| one(tier, args.all)));
    rows.sort_by_key(|(tier, ..)| Tier::ALL.iter().position(|other| other == tier));
    let table = table(&rows);
    println!("\n{table}");
    if args.all {
        write_last_run(&table)?;
    }
    verdict(&rows)
}

/// A line for each tier.
fn table(rows: &[Row]) -> String {
    let mut text = "TIER         SECONDS  RESULT   KERNEL\n".to_owned();
    for (tier, outcome, took) in rows {
        let seconds = took.as_secs_f64();
        text += &format!("{:<12} {seconds:>7.1}  {outcome}\n", tier.name());
    }
    text
}

/// Notes the run of all tests that there are in the manual.
fn write_last_run(table: &str) -> Result<()> {
    let mut git = Command::new("git");
    git.current_dir(root())
        .args(["log", "-1", "--format=%h %s"]);
    let commit = process::output(&mut git).unwrap_or_else(|| "unknown".to_owned());
    let date = process::output(Command::new("date").args(["-u", "+%F %R UTC"]));
    let text = format!(
        "# Tests\n\nThe last `cargo xtask test --all`, written by it: {}, at commit `{}`.\n\n{}",
        date.as_deref().unwrap_or("at an unknown time").trim(),
        commit.trim(),
        indented(table)
    );
    let path = root().join("docs/measured/tests.md");
    fs::write(&path, text).with_context(|| path.display().to_string())
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("    {line}\n")).collect()
}

/// The program of the end-to-end tests.
const E2E: &str = "e2e";

/// End-to-end tests that are tried again, alone, when no more than these failed: one in forty. A machine that has more to do for a
/// while fails several at once.
const TRIED_AGAIN: usize = 10;

/// A tier, how it ended, and how long it took.
type Row = (Tier, Outcome, Duration);

/// Runs one tier.
fn one(tier: Tier, all: bool) -> Row {
    eprintln!("\n==== {} ====", tier.name());
    let begin = Instant::now();
    let outcome = match tier {
        Tier::Lint => passed(lint(), || "-".to_owned()),
        Tier::Unit => passed(unit(all), || "any kernel".to_owned()),
        Tier::E2e => end_to_end(all),
        Tier::Dist => on_this_kernel(|| dist::trial::run(&dist::make()?.deb)),
        Tier::Vm => match vm::run_matrix(
            &BinaryArgs::default(),
            Profile::Tests,
            vm::Wanted { only: &[], all },
        ) {
            Ok(passed) => Outcome::Passed {
                on: vm::names(&passed).join(", "),
            },
            Err(error) => Outcome::Failed { error },
        },
    };
    if let Outcome::Failed { error } = &outcome {
        eprintln!("{} failed: {error:#}", tier.name());
    }
    (tier, outcome, begin.elapsed())
}

/// The VM tier as a process of its own, whose output is shown when it has ended.
struct VmLane {
    process: Guard,
    log: PathBuf,
    begin: Instant,
}

impl VmLane {
    fn start(all: bool) -> Result<Self> {
        // Both lanes want these; built once, before either begins.
        let binaries = BinaryArgs::default().build(Profile::Tests, &Binaries::ALL)?;
        let folder = target_dir().join("vm");
        fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        let log = folder.join("lane.log");
        let output = File::create(&log).with_context(|| log.display().to_string())?;
        let mut command = Command::new(env::current_exe()?);
        command
            .arg("vm-test")
            .args(binaries.arguments())
            .args(all.then_some("--all"))
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output);
        eprintln!("\n==== vm, beside the next tiers: {} ====", log.display());
        Ok(Self {
            process: Guard::spawn(&mut command)?,
            log,
            begin: Instant::now(),
        })
    }

    fn finish(mut self) -> Result<Row> {
        let status = self.process.wait()?;
        let text = fs::read_to_string(&self.log)?;
        eprintln!("\n==== {} ====\n{text}", Tier::Vm.name());
        let kernels = text.lines().find_map(|line| line.strip_prefix(vm::PASSED));
        let outcome = match kernels {
            Some(kernels) if status.success() => Outcome::Passed {
                on: kernels.to_owned(),
            },
            _ => Outcome::Failed {
                // What was wrong, where the table is all that is read.
                error: match text.lines().rfind(|line| line.contains(" failed: ")) {
                    Some(line) => anyhow!("{line}; {}", self.log.display()),
                    None => anyhow!("{status}; {}", self.log.display()),
                },
            },
        };
        Ok((Tier::Vm, outcome, self.begin.elapsed()))
    }
}

/// Fails if a tier failed, or if nothing ran the kernel programs although it was asked for.
fn verdict(rows: &[Row]) -> Result<()> {
    let failed: Vec<&str> = rows
        .iter()
        .filter(|(_, outcome, _)| matches!(outcome, Outcome::Failed { .. }))
        .map(|(tier, ..)| tier.name())
        .collect();
    if !failed.is_empty() {
        bail!("failed: {}", failed.join(", "));
    }
    let skipped = rows.iter().find_map(|(_, outcome, _)| match outcome {
        Outcome::Skipped { cause } => Some(cause),
        _ => None,
    });
    let vm_ran = rows
        .iter()
        .any(|(tier, outcome, _)| *tier == Tier::Vm && matches!(outcome, Outcome::Passed { .. }));
    match skipped {
        Some(cause) if !vm_ran => {
            bail!("the kernel programs ran nowhere: {cause}, and the VM tier was not asked for")
        }
        _ => Ok(()),
    }
}

fn passed(result: Result<()>, on: impl FnOnce() -> String) -> Outcome {
    match result {
        Ok(()) => Outcome::Passed { on: on() },
        Err(error) => Outcome::Failed { error },
    }
}

fn lint() -> Result<()> {
    process::run(cargo().args(["fmt", "--all", "--check"]))?;
    let clippy = ["clippy", "--quiet"];
    let deny = ["--", "-D", "warnings"];
    // The end-to-end tests are no target that is tested by itself.
    for targets in [&["--all-targets"][..], &["--test", E2E]] {
        let mut host = cargo();
        host.args(clippy)
            .args(Profile::Tests.arguments())
            .args(Profile::Tests.selection())
            .args(targets)
            .args(deny);
        process::run(&mut host)?;
    }
    // What analyses a recording needs no kernel programs, and none of their toolchain; the demo has no agent.
    let less = ["--package", "reqtrace", "--no-default-features"];
    for features in [&["--all-targets"][..], &["--features", "capture"]] {
        let mut host = cargo();
        host.args(clippy)
            .args(Profile::Tests.arguments())
            .args(less)
            .args(features)
            .args(deny);
        process::run(&mut host)?;
    }
    // The compiler of the kernel programs brings no clippy, so they are checked as if for the host:
    // same code, same pointer width. Without `std` that needs a panic that aborts; its own target
    // directory keeps that profile from rebuilding everything else.
    let mut kernel = cargo();
    kernel
        .args(clippy)
        .args(["--package", "reqtrace-ebpf", "--bins", "--target-dir"])
        .arg(target_dir().join("lint-ebpf"))
        .args(deny)
        .env("CARGO_PROFILE_DEV_PANIC", "abort");
    process::run(&mut kernel)?;
    page_checks::run()
}

fn unit(all: bool) -> Result<()> {
    let mut command = cargo();
    command
        .args(["test", "--no-fail-fast"])
        .args(Profile::Tests.arguments())
        .args(Profile::Tests.selection());
    process::run(&mut command)?;
    if !all {
        return Ok(());
    }
    // Not all tests that are ignored: some are for a process or a file that somebody names.
    let mut fuzzing = cargo();
    fuzzing
        .args(["test", "--package", "reqtrace-fuzz", "--test", "short"])
        .args(Profile::Tests.arguments())
        .args(["--", "--ignored"]);
    process::run(&mut fuzzing)
}

/// The command that runs the end-to-end tests.
fn end_to_end_tests() -> Command {
    let mut command = cargo();
    command
        .arg("test")
        .args(Profile::Tests.arguments())
        .args(Profile::Tests.selection())
        .args(["--test", E2E]);
    command
}

fn end_to_end(all: bool) -> Outcome {
    on_this_kernel(|| {
        let binaries = BinaryArgs::default().build(Profile::Tests, &Binaries::ALL)?;
        let tests = || {
            let mut command = end_to_end_tests();
            command
                .env("REQTRACE_BIN", &binaries.reqtrace)
                .env("SHOP_BIN", &binaries.shop)
                .env("TRUTH_BIN", &binaries.truth)
                .env("TASKS_BIN", &binaries.tasks)
                .arg("--");
            if all {
                // `golden` records into the workspace.
                command.args(["--include-ignored", "--skip", "golden::"]);
            }
            command
        };
        let failed = failed_tests(&mut tests())?;
        if failed.is_empty() {
            return Ok(());
        }
        // Two tests run at a time, and a machine of two CPUs may be too full for one that counts on a free CPU.
        ensure!(
            failed.len() <= TRIED_AGAIN,
            "{} tests failed: {}",
            failed.len(),
            failed.join(", ")
        );
        eprintln!(
            "\n==== failed, and tried once more alone: {} ====",
            failed.join(", ")
        );
        process::run(tests().args(["--test-threads=1", "--exact"]).args(&failed))
    })
}

/// Runs tests, and gives the names of those that failed; an error if they failed otherwise.
fn failed_tests(command: &mut Command) -> Result<Vec<String>> {
    let line = process::line(command);
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let mut failed = Vec::new();
    for line in child
        .stdout
        .take()
        .into_iter()
        .flat_map(|out| BufReader::new(out).lines())
    {
        let line = line?;
        println!("{line}");
        failed.extend(failed_test(&line).map(str::to_owned));
    }
    let status = child.wait()?;
    ensure!(
        status.success() || !failed.is_empty(),
        "`{line}` failed: {status}"
    );
    Ok(failed)
}

/// The name in the line that a test's failure leaves.
fn failed_test(line: &str) -> Option<&str> {
    line.strip_prefix("test ")?.strip_suffix(" ... FAILED")
}

/// Runs what traces on the running kernel, if that can be done here.
fn on_this_kernel(tier: impl FnOnce() -> Result<()>) -> Outcome {
    if let Some(cause) = kernel::no_bpf() {
        eprintln!(
            "**************************************************************************\n\
             These tests DO NOT RUN: {cause}\n\
             They need root and a kernel with BPF. Only the VM tier can vouch for the\n\
             kernel programs now, and this run fails without it.\n\
             **************************************************************************"
        );
        return Outcome::Skipped { cause };
    }
    passed(tier(), kernel::release)
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn packages_are_tried_only_when_asked_for() {
        let wants = |tiers: Vec<Tier>, all| {
            let args = Args {
                tiers,
                all,
                verbose: false,
            };
            Tier::ALL.map(|tier| args.wants(tier))
        };
        assert_eq!(wants(Vec::new(), false), [true, true, true, true, false]);
        assert_eq!(wants(Vec::new(), true), [true; 5]);
        let dist = wants(vec![Tier::Dist], false);
        assert_eq!(dist, [false, false, false, false, true]);
    }

    fn row(tier: Tier, outcome: Outcome) -> (Tier, Outcome, Duration) {
        (tier, outcome, Duration::ZERO)
    }

    fn skipped() -> Outcome {
        Outcome::Skipped {
            cause: "no BTF".to_owned(),
        }
    }

    fn good() -> Outcome {
        Outcome::Passed {
            on: "6.1".to_owned(),
        }
    }

    #[test]
    fn a_skipped_tier_fails_unless_the_vm_tier_ran() {
        assert!(verdict(&[row(Tier::E2e, good())]).is_ok());
        assert!(verdict(&[row(Tier::E2e, skipped()), row(Tier::Vm, good())]).is_ok());
        let error = verdict(&[row(Tier::Unit, good()), row(Tier::E2e, skipped())]).unwrap_err();
        assert!(error.to_string().contains("no BTF"), "{error}");
    }

    #[test]
    fn a_failed_test_is_known_by_its_line() {
        assert_eq!(failed_test("test gate::a ... FAILED"), Some("gate::a"));
        for line in ["test gate::a ... ok", "test result: FAILED. 1 passed"] {
            assert_eq!(failed_test(line), None);
        }
    }

    #[test]
    fn a_failed_tier_fails_the_run() {
        let failed = Outcome::Failed {
            error: anyhow!("one\ntwo"),
        };
        assert_eq!(failed.to_string(), "FAILED   one");
        let error = verdict(&[row(Tier::Lint, failed), row(Tier::Vm, good())]).unwrap_err();
        assert_eq!(error.to_string(), "failed: lint");
    }
}
