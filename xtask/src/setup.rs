//! Set-up: brings the machine to where reqtrace builds, and the demo, the tests or the VM tier run.
//!
//! Every step looks first, so the second run does nothing; it says what it does while it does it.

use std::{path::PathBuf, process::Command};

use anyhow::{Result, bail};
use clap::ValueEnum;

use crate::{
    environments, linker,
    packages::{Apt, Package},
    page_checks, process, servers,
    toolchain::Choice,
};

/// What to set up for.
#[derive(clap::Args)]
pub struct Args {
    /// What the machine is needed for
    #[arg(long = "for", value_name = "WHAT", value_enum, default_values_t = [Need::Build])]
    needs: Vec<Need>,
    /// Also say what is already there
    #[arg(short, long)]
    verbose: bool,
}

/// What the machine is needed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Need {
    /// Building reqtrace; enough for the demo too
    Build,
    /// Formatting, lints, and the checks of the page's modules
    Lint,
    /// The end-to-end tests: MariaDB, PostgreSQL, Redis, nginx, their load generators, Node, Java, Chromium; no
    /// service is installed or started
    Test,
    /// The engines that rows are sent to, ClickHouse and DuckDB in Python, 1.3 GB: `cargo xtask fleet`
    Fleet,
    /// The engine of a cluster, Spark in Python, 0.5 GB, and a JVM: `cargo xtask fleet --distributed`
    Spark,
    /// The VM tier: qemu, busybox and Go
    Vm,
    /// Packages, and their trial in a bare Debian
    Dist,
    /// All of these, and the further servers of `cargo xtask test --all`
    All,
}

impl Need {
    fn packages(self) -> Vec<Package> {
        match self {
            // The C++ compiler is Rust's linker here, and bpf-linker needs its library. Tests pack
            // symbols by xz.
            Self::Build => vec![
                Package::with_command("g++", "g++"),
                Package::with_command("xz-utils", "xz"),
            ],
            // Types and lints of the page's modules.
            Self::Lint => vec![
                Package::with_command("nodejs", "node"),
                Package::with_command("npm", "npm"),
            ],
            // The -core packages hold the programs without the service that mariadb-server starts.
            Self::Test => vec![
                Package::with_command("mariadb-server-core", "mariadbd"),
                Package::with_command("mariadb-client-core", "mariadb"),
                Package::with_command("sysbench", "sysbench"),
                Package::with_command("apache2-utils", "ab"),
                Package::with_file("tzdata", "/usr/share/zoneinfo/UTC"),
                Package::with_command("sqlite3", "sqlite3"),
                // Another tracer beside ours.
                Package::with_command("bpftrace", "bpftrace"),
                // Delays packets.
                Package::with_command("iproute2", "tc"),
                // Reads what is exported, and builds services in Go; a library of these.
                Package::with_command("golang-go", "go"),
                Package::with_file(
                    "golang-google-grpc-dev",
                    "/usr/share/gocode/src/google.golang.org/grpc/server.go",
                ),
                Package::with_file("python3", "/usr/bin/python3"),
                // The page is looked at in a browser.
                Package::with_command("chromium", "chromium"),
                Package::with_command("chromium-driver", "chromedriver"),
                // Stacks through generated code.
                Package::with_command("nodejs", "node"),
                Package::with_command("default-jdk-headless", "javac"),
            ],
            Self::Fleet => vec![Package::with_file("python3", "/usr/bin/python3")],
            Self::Spark => vec![
                Package::with_file("python3", "/usr/bin/python3"),
                Package::with_command("default-jdk-headless", "java"),
            ],
            Self::Vm => vec![
                Package::with_command("qemu-system-x86", "qemu-system-x86_64"),
                Package::with_command("e2fsprogs", "mke2fs"),
                Package::with_command("busybox-static", "busybox"),
                // Builds the example in Go.
                Package::with_command("golang-go", "go"),
            ],
            Self::Dist => vec![Package::with_command("mmdebstrap", "mmdebstrap")],
            Self::All => vec![
                Package::with_file(
                    "openjdk-17-jdk-headless",
                    "/usr/lib/jvm/java-17-openjdk-amd64/bin/java",
                ),
                Package::with_command("ldap-utils", "ldapsearch"),
            ],
        }
    }
}

/// `cargo xtask setup`.
pub fn run(args: &Args) -> Result<()> {
    prepare(&args.needs, args.verbose)
}

/// Sets the machine up for these needs; building is always among them.
pub fn prepare(needs: &[Need], verbose: bool) -> Result<()> {
    let apt = Apt::default();
    let needs = if needs.contains(&Need::All) {
        Need::value_variants()
    } else {
        needs
    };
    let compiler = Choice::make(&apt, verbose)?;
    let llvm = compiler.llvm();
    let linker_is_ready = linker::is_ready(llvm);
    if linker_is_ready && verbose {
        eprintln!("setup: bpf-linker already there");
    }

    let mut packages = Need::Build.packages();
    let others = needs.iter().filter(|need| **need != Need::Build);
    packages.extend(others.flat_map(|need| need.packages()));
    packages.extend(compiler.packages());
    if !linker_is_ready {
        packages.extend(linker::packages(llvm));
    }
    packages.extend(servers::libraries(&apt, needs));
    packages.extend(environments::packages(needs));
    apt.install(&packages, verbose)?;
    servers::unpack(&apt, needs, verbose)?;
    environments::install(needs, verbose)?;

    compiler.link()?;
    if !linker_is_ready {
        linker::install(llvm)?;
    }
    if needs.contains(&Need::Lint) {
        add_lint_components(verbose)?;
        page_checks::install(verbose)?;
    }
    Ok(())
}

/// rustfmt and clippy, which a minimal toolchain lacks.
fn add_lint_components(verbose: bool) -> Result<()> {
    let sysroot = process::output(Command::new("rustc").args(["--print", "sysroot"]));
    let Some(sysroot) = sysroot else {
        bail!("`rustc --print sysroot` failed");
    };
    let programs = PathBuf::from(sysroot.trim()).join("bin");
    for (component, program) in [("rustfmt", "cargo-fmt"), ("clippy", "cargo-clippy")] {
        if programs.join(program).exists() {
            if verbose {
                eprintln!("setup: {component} already there");
            }
            continue;
        }
        eprintln!("setup: adding {component} (rustup component add)");
        process::run(Command::new("rustup").args(["component", "add", component]))?;
    }
    Ok(())
}
