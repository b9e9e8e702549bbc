//! The VM tier: the kernel programs on other kernels than the running one.
//!
//! In: builds of reqtrace and of the example services. Out: the kernels on which tracing those
//! services gave a complete and true result. Needs neither root nor KVM.

pub(crate) mod boot;
mod classes;
mod cpio;
mod disk;
mod features;
mod initramfs;
pub(crate) mod kernels;
mod trials;
mod units;
mod verdict;

use std::{
    cell::RefCell,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use anyhow::{Context as _, Error, Result, bail, ensure};

use crate::{
    process,
    setup::{self, Need},
    workspace::{Binaries, BinaryArgs, Profile, target_dir},
};

/// Begins the last line of a run in which all boots passed; their names follow.
pub(crate) const PASSED: &str = "vm: passed on ";

/// Reads and writes of the disk a second: what is in the host's memory would be there at once, and nobody would wait.
const DISK_IOPS: u32 = 100;

/// One boot of the matrix.
struct Boot {
    /// Names it in `--only` and in the files it leaves.
    name: &'static str,
    /// The series of Debian kernels.
    series: &'static str,
    /// Added to the kernel's command line.
    parameters: &'static str,
    /// What the kernel says at boot when it took the parameter.
    confirmation: Option<&'static str>,
    /// With `--all`: the service is traced also where something is missing, forbidden or elsewhere.
    has_trials: bool,
    /// Only with `--all`, or by its name: another boot has the same kernel.
    is_extra: bool,
}

/// Which boots, and how much in them.
#[derive(Clone, Copy)]
pub(crate) struct Wanted<'a> {
    /// Names of boots; none: all but those that are extra.
    pub(crate) only: &'a [String],
    /// All boots and all services, with the trials, which take three times as long as all else.
    pub(crate) all: bool,
}

/// All boots. `preempt=full` makes the uprobe programs preemptible wherever they run.
const MATRIX: [Boot; 3] = [
    Boot {
        name: "6.1",
        series: "6.1",
        parameters: "",
        confirmation: None,
        has_trials: true,
        is_extra: false,
    },
    Boot {
        name: "6.12",
        series: "6.12",
        parameters: "",
        confirmation: None,
        has_trials: true,
        is_extra: true,
    },
    Boot {
        name: "6.12-preempt-full",
        series: "6.12",
        parameters: "preempt=full",
        confirmation: Some("Dynamic Preempt: full"),
        has_trials: false,
        is_extra: false,
    },
];

/// Options of the VM tier.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only these boots: 6.1, 6.12, 6.12-preempt-full
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    #[command(flatten)]
    binaries: BinaryArgs,
    /// Also 6.12 without `preempt=full`, more services, and the trials, which take three times as long as all else
    #[arg(long)]
    pub(crate) all: bool,
    /// Write what each kernel can do to docs/measured/kernels.md
    #[arg(long, conflicts_with = "only", requires = "all")]
    write: bool,
    /// Also say what set-up finds already there
    #[arg(short, long)]
    verbose: bool,
}

/// `cargo xtask vm-test`.
pub(crate) fn run(args: &Args) -> Result<()> {
    setup::prepare(&[Need::Build, Need::Vm], args.verbose)?;
    let wanted = Wanted {
        only: &args.only,
        all: args.all,
    };
    let passed = run_matrix(&args.binaries, Profile::Release, wanted)?;
    println!("{PASSED}{}", names(&passed).join(", "));
    if args.write {
        features::write(&passed)?;
    }
    Ok(())
}

/// Names of kernels.
pub(crate) fn names(passed: &[Passed]) -> Vec<&str> {
    passed.iter().map(|boot| boot.kernel.as_str()).collect()
}

/// A boot that gave true results.
pub(crate) struct Passed {
    /// Release of the kernel, with its parameters.
    kernel: String,
    /// What `reqtrace doctor` printed.
    doctor: String,
    /// What was checked.
    verdict: String,
    /// What was checked of each runtime.
    units: Vec<units::Checked>,
    /// How the trials went; none when there were none.
    trials: Vec<trials::Tried>,
}

/// Where the VM tier keeps its kernels, images, logs and results.
pub(crate) fn folder() -> PathBuf {
    target_dir().join("vm")
}

/// Runs the boots and returns the kernels that ran.
pub(crate) fn run_matrix(
    binaries: &BinaryArgs,
    profile: Profile,
    wanted: Wanted<'_>,
) -> Result<Vec<Passed>> {
    let only = wanted.only;
    for name in only {
        let names = MATRIX.map(|boot| boot.name);
        ensure!(
            names.contains(&name.as_str()),
            "no boot {name:?}; there are {}",
            names.join(", ")
        );
    }
    let binaries = binaries.build(profile, &Binaries::ALL)?;
    fs::create_dir_all(folder()).with_context(|| folder().display().to_string())?;
    let initramfs = folder().join("initramfs.cpio");
    initramfs::build(&binaries, &initramfs)?;

    let mut names = classes::Names::default();
    let mut passed = Vec::new();
    let mut failures = Vec::new();
    for boot in MATRIX {
        let is_wanted = match only {
            [] => wanted.all || !boot.is_extra,
            names => names.iter().any(|name| name == boot.name),
        };
        if !is_wanted {
            continue;
        }
        // An emulated machine beside a busy host is slower than any real one: what is wrong in it is wrong twice.
        let guest = Guest {
            boot: &boot,
            initramfs: &initramfs,
            all: wanted.all,
            tried: RefCell::default(),
        };
        let tried = guest.run(&mut names).or_else(|error| {
            eprintln!(
                "vm: {} failed, and is tried once more: {error:#}",
                boot.name
            );
            guest.run(&mut names)
        });
        match tried {
            Ok(boot) => passed.push(boot),
            Err(error) => {
                eprintln!("vm: {} failed: {error:#}", boot.name);
                failures.push(boot.name);
            }
        }
    }
    if !failures.is_empty() {
        bail!(
            "vm: failed on {}; passed on {} others",
            failures.join(", "),
            passed.len()
        );
    }
    if only.is_empty() {
        let own = Command::new(&binaries.reqtrace).arg("classes").output()?;
        if own.status.success() {
            names.add(&String::from_utf8_lossy(&own.stdout))?;
        }
        names.judge()?;
    }
    Ok(passed)
}

/// A boot with what it is to do.
struct Guest<'a> {
    boot: &'a Boot,
    initramfs: &'a Path,
    /// As in [`Wanted`].
    all: bool,
    /// The trials that an earlier boot has passed.
    tried: RefCell<Option<Vec<trials::Tried>>>,
}

impl Guest<'_> {
    /// Boots it and judges what it sent.
    fn run(&self, names: &mut classes::Names) -> Result<Passed> {
        let boot = self.boot;
        let kernel = kernels::get(boot.series, &folder().join("kernels"))?;
        eprintln!("vm: booting {}", kernel_name(boot, &kernel));
        let begin = Instant::now();
        let machine = boot::Machine {
            kernel: &kernel.image,
            initramfs: Some(self.initramfs),
            disk: disk::make(&folder().join(format!("{}.disk", boot.name)))?,
            disk_iops: Some(DISK_IOPS),
            memory: "1G",
            parameters: &self.parameters(),
            console: folder().join(format!("{}.log", boot.name)),
            results: folder().join(format!("{}.tar.gz", boot.name)),
        };
        machine.run()?;
        fs::remove_file(&machine.disk).with_context(|| machine.disk.display().to_string())?;
        let took = begin.elapsed();
        let results = unpack(boot, &machine)?;
        let explain = |error: Error| {
            machine.explain(&error.context(format!("results: {}", results.display())))
        };
        // They take most of the time, and have nothing to do with what else may fail.
        if self.wants_trials() {
            let tried = trials::judge(&results).map_err(explain)?;
            self.tried.replace(Some(tried));
        }
        let verdict = verdict::judge(&results, boot.confirmation, self.all).map_err(explain)?;
        let units = units::judge(&results, self.all).map_err(explain)?;
        names.add(&boot::read(&results, "classes.txt")?)?;
        eprintln!(
            "vm: {} passed in {:.1} s: {verdict}",
            boot.name,
            took.as_secs_f64()
        );
        for checked in &units {
            eprintln!("vm: {}: {}", checked.title, checked.verdict);
        }
        Ok(Passed {
            kernel: kernel_name(boot, &kernel),
            doctor: boot::read(&results, "doctor.txt")?,
            verdict,
            units,
            trials: self.tried.take().unwrap_or_default(),
        })
    }

    fn wants_trials(&self) -> bool {
        self.all && self.boot.has_trials && self.tried.borrow().is_none()
    }

    fn parameters(&self) -> String {
        let mut parameters = self.boot.parameters.to_owned();
        if self.all {
            parameters += " reqtrace.all";
        }
        if self.wants_trials() {
            parameters += " reqtrace.trials";
        }
        parameters
    }
}

fn kernel_name(boot: &Boot, kernel: &kernels::Kernel) -> String {
    if boot.parameters.is_empty() {
        kernel.release.clone()
    } else {
        format!("{} ({})", kernel.release, boot.parameters)
    }
}

/// Unpacks what the guest sent.
fn unpack(boot: &Boot, machine: &boot::Machine<'_>) -> Result<PathBuf> {
    let results = folder().join(boot.name);
    if results.exists() {
        fs::remove_dir_all(&results).with_context(|| results.display().to_string())?;
    }
    fs::create_dir_all(&results).with_context(|| results.display().to_string())?;
    let mut tar = Command::new("tar");
    tar.arg("-xzmf")
        .arg(&machine.results)
        .arg("-C")
        .arg(&results);
    process::run(&mut tar)
        .map_err(|error| machine.explain(&error.context("the guest sent no results")))?;
    Ok(results)
}
