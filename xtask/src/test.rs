//! The tests, tier by tier: lints, unit and golden tests, end-to-end tests, VM tier.
//!
//! Every tier runs even if one before it failed, and a table at the end says where each one ran.

use std::{
    fmt,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use clap::ValueEnum;

use crate::{
    dist, kernel, page_checks, process,
    setup::{self, Need},
    vm,
    workspace::{BinaryArgs, cargo, target_dir},
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

    let mut rows: Vec<(Tier, Outcome, Duration)> = Vec::new();
    for tier in chosen {
        eprintln!("\n==== {} ====", tier.name());
        let begin = Instant::now();
        let outcome = match tier {
            Tier::Lint => passed(lint(), || "-".to_owned()),
            Tier::Unit => passed(unit(), || "any kernel".to_owned()),
            Tier::E2e => end_to_end(args.all),
            Tier::Dist => on_this_kernel(|| dist::trial::run(&dist::make()?.deb)),
            Tier::Vm => match vm::run_matrix(&BinaryArgs::default(), &[]) {
                Ok(passed) => Outcome::Passed {
                    on: vm::names(&passed).join(", "),
                },
                Err(error) => Outcome::Failed { error },
            },
        };
        if let Outcome::Failed { error } = &outcome {
            eprintln!("{} failed: {error:#}", tier.name());
        }
        rows.push((tier, outcome, begin.elapsed()));
    }
    println!("\nTIER         SECONDS  RESULT   KERNEL");
    for (tier, outcome, took) in &rows {
        println!("{:<12} {:>7.1}  {outcome}", tier.name(), took.as_secs_f64());
    }
    verdict(&rows)
}

/// Fails if a tier failed, or if nothing ran the kernel programs although it was asked for.
fn verdict(rows: &[(Tier, Outcome, Duration)]) -> Result<()> {
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
    let host = ["--workspace", "--exclude", "reqtrace-ebpf", "--all-targets"];
    process::run(cargo().args(clippy).args(host).args(deny))?;
    // What analyses a recording needs no kernel programs, and none of their toolchain.
    let no_capture = [
        "--package",
        "reqtrace",
        "--no-default-features",
        "--all-targets",
    ];
    process::run(cargo().args(clippy).args(no_capture).args(deny))?;
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

fn unit() -> Result<()> {
    let apart = ["--exclude", "reqtrace-ebpf", "--exclude", "reqtrace-tests"];
    process::run(
        cargo()
            .args(["test", "--workspace", "--no-fail-fast"])
            .args(apart),
    )
}

fn end_to_end(all: bool) -> Outcome {
    on_this_kernel(|| {
        let binaries = BinaryArgs::default().build()?;
        let mut command = cargo();
        command
            // One failure should not hide the next.
            .args(["test", "--release", "--no-fail-fast"])
            .args(["--package", "reqtrace-tests"])
            .env("REQTRACE_BIN", &binaries.reqtrace)
            .env("SHOP_BIN", &binaries.shop)
            .env("TRUTH_BIN", &binaries.truth);
        if all {
            command.args(["--", "--include-ignored"]);
        }
        process::run(&mut command)
    })
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
    fn a_failed_tier_fails_the_run() {
        let failed = Outcome::Failed {
            error: anyhow!("one\ntwo"),
        };
        assert_eq!(failed.to_string(), "FAILED   one");
        let error = verdict(&[row(Tier::Lint, failed), row(Tier::Vm, good())]).unwrap_err();
        assert_eq!(error.to_string(), "failed: lint");
    }
}
