//! `cargo xtask fuzz NAME`: a reader of foreign bytes in, inputs that it cannot stand out.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use crate::process;
use crate::setup::{self, Need};
use crate::workspace::{cargo, root, target_dir};

/// After this time libFuzzer calls an input one that hangs, s. The reader's own limit is CPU time, and less.
const HANGS: u32 = 60;
/// Memory that libFuzzer lets a run take, MiB.
const MEMORY: u32 = 4096;
/// The largest input, bytes.
const LARGEST: u32 = 1 << 20;

/// Options of a fuzz run.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// What to fuzz: profile, elf, perf-map, maps, ring, recording or payload (of a recording: what is behind its checksums)
    name: String,
    /// For how many seconds
    #[arg(default_value_t = 600)]
    seconds: u64,
    /// The number that makes the same inputs again
    seed: Option<u64>,
    /// Let libFuzzer make the inputs by the code that they reach; needs cargo-fuzz
    #[arg(long)]
    guided: bool,
}

/// `cargo xtask fuzz`.
pub(crate) fn run(args: &Args) -> Result<()> {
    setup::prepare(&[Need::Build], false)?;
    // A build that fails is no finding.
    let package = ["--release", "--package", "reqtrace-fuzz"];
    process::run(cargo().arg("build").args(package))?;
    let mut command = if args.guided {
        guided(args)?
    } else {
        let mut command = fuzzer();
        command.arg(&args.name).arg(args.seconds.to_string());
        command.args(args.seed.map(|seed| seed.to_string()));
        command
    };
    let status = command.status()?;
    if !status.success() {
        bail!(
            "{} was found to fail: the input is in fuzz/corpus/{0}",
            args.name
        );
    }
    Ok(())
}

/// The program that mutates on its own.
fn fuzzer() -> Command {
    let mut command = cargo();
    command.args(["run", "--release", "--package", "reqtrace-fuzz"]);
    command.args(["--bin", "reqtrace-fuzz", "--"]);
    command
}

/// libFuzzer, with the seeds of the target. What it finds worth keeping stays in `target/fuzz`; only what
/// fails goes into the corpus.
fn guided(args: &Args) -> Result<Command> {
    let has_cargo_fuzz = process::output(cargo().args(["fuzz", "--version"])).is_some();
    ensure!(
        has_cargo_fuzz,
        "--guided needs cargo-fuzz; run: cargo install cargo-fuzz"
    );
    let place = target_dir().join("fuzz").join(&args.name);
    let (corpus, seeds) = (place.join("corpus"), place.join("seeds"));
    let found = root().join("fuzz/corpus").join(&args.name);
    for folder in [&corpus, &found] {
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    process::run(fuzzer().arg("seeds").arg(&args.name).arg(&seeds))?;
    let mut command = cargo();
    // Checks by profile, as a profile can leave out a package; cargo-fuzz's own flag cannot. Without a
    // sanitizer stable Rust will do: the readers are safe code.
    command
        .env("CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS", "true")
        .env("CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS", "true")
        .args(["fuzz", "run", "--release", "--fuzz-dir", "fuzz"])
        .args(["--sanitizer", "none"])
        .args(["--features", "guided", "--target-dir"])
        .arg(target_dir().join("fuzz/build"))
        .arg(&args.name)
        .args([&corpus, &seeds])
        .arg("--")
        .arg(format!("-max_total_time={}", args.seconds))
        .arg(format!("-timeout={HANGS}"))
        .arg(format!("-rss_limit_mb={MEMORY}"))
        .arg(format!("-max_len={LARGEST}"))
        .arg("-print_final_stats=1")
        .arg(prefix(&found));
    command.args(args.seed.map(|seed| format!("-seed={seed}")));
    Ok(command)
}

/// libFuzzer appends the kind and a number to it.
fn prefix(found: &Path) -> String {
    format!("-artifact_prefix={}/found-", found.display())
}
