//! The demo: the example service under load, traced for some seconds with its profile.
//!
//! Out: the report on standard output, the five files in `target/demo`.

use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow, bail, ensure};

use crate::{
    kernel,
    process::{self, Guard},
    setup::{self, Need},
    workspace::{BinaryArgs, Profile, shop_profile, target_dir},
};

/// The files that `--out` leaves.
const OUTPUTS: [&str; 5] = [
    "report.html",
    "summary.json",
    "requests.csv",
    "stacks.folded",
    "flamegraph.svg",
];
/// Connections, and how long each waits between two requests, ms: a service that is not saturated, as most are.
const CONNECTIONS: u32 = 8;
const PAUSE_MS: u32 = 20;
/// How long the service may take to listen.
const START_LIMIT: Duration = Duration::from_secs(10);
/// How long attaching, reporting and detaching may take together.
const REPORT_LIMIT: Duration = Duration::from_secs(120);
/// The load runs until the trace has ended; this is only what stops it if we cannot.
const LOAD_SECONDS: u64 = 300;

/// Options of the demo.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// How long to trace
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Where to leave the files [default: target/demo]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    #[command(flatten)]
    binaries: BinaryArgs,
    /// Also say what set-up finds already there
    #[arg(short, long)]
    verbose: bool,
}

/// `cargo xtask demo`.
pub(crate) fn run(args: &Args) -> Result<()> {
    setup::prepare(&[Need::Build], args.verbose)?;
    let binaries = args.binaries.build(Profile::Demo, &["reqtrace", "shop"])?;
    let out = args
        .out
        .clone()
        .unwrap_or_else(|| target_dir().join("demo"));
    if let Some(cause) = kernel::no_bpf() {
        bail!(
            "the demo traces with BPF, which does not work here: {cause}. It needs root and a \
             kernel with BTF and the BPF of 5.18; `cargo xtask vm-test` runs in a VM instead"
        );
    }
    process::survive_interrupt();
    let work = Scratch::create(&target_dir().join("demo-service"))?;
    fs::create_dir_all(&out).with_context(|| out.display().to_string())?;
    for name in OUTPUTS {
        // What an earlier demo left must not pass for this one's.
        let _ = fs::remove_file(out.join(name));
    }

    let service = Service::start(&binaries.shop, &work.0)?;
    eprintln!(
        "demo: shop serves on {} (pid {})",
        service.address,
        service.guard.pid()
    );
    let mut load = Command::new(&binaries.shop);
    load.args(["load", "--connect", &service.address])
        .args(["--connections", &CONNECTIONS.to_string()])
        .args(["--pause", &PAUSE_MS.to_string()])
        .args(["--seconds", &LOAD_SECONDS.to_string()])
        .stdout(Stdio::null());
    let mut load = Guard::spawn(&mut load)?;

    let mut trace = Command::new(&binaries.reqtrace);
    trace
        .arg("--profile")
        .arg(shop_profile())
        .args([
            "-p",
            &service.guard.pid().to_string(),
            &args.seconds.to_string(),
        ])
        .arg("--out")
        .arg(&out);
    eprintln!("demo: {}", process::line(&trace));
    Guard::spawn(&mut trace)?.finish(Duration::from_secs(args.seconds) + REPORT_LIMIT)?;
    if let Some(status) = load.poll()? {
        ensure!(
            process::interrupted(),
            "the load ended before the trace did: {status}"
        );
    }
    drop(load);
    drop(service);

    for name in OUTPUTS {
        let file = out.join(name);
        ensure!(file.is_file(), "reqtrace left no {}", file.display());
    }
    println!(
        "\nThe files are in {}: {}",
        out.display(),
        OUTPUTS.join(", ")
    );
    Ok(())
}

/// The example service, running.
struct Service {
    guard: Guard,
    address: String,
}

impl Service {
    /// Starts it on a free port of the loopback address and waits until it listens.
    fn start(shop: &Path, work: &Path) -> Result<Self> {
        let mut command = Command::new(shop);
        // What it says about the load's end is of no use to a reader of the report.
        let errors = work.join("service.err");
        let error_file = File::create(&errors).with_context(|| errors.display().to_string())?;
        command
            .args(["serve", "--listen", "127.0.0.1:0", "--data"])
            .arg(work.join("data"))
            .arg("--log")
            .arg(work.join("service.log"))
            .stdout(Stdio::piped())
            .stderr(error_file);
        let mut guard = Guard::spawn(&mut command)?;
        let stdout = guard
            .child()
            .stdout
            .take()
            .context("the service has no output")?;
        let (send, lines) = mpsc::channel();
        // Keeps reading, so that a service that prints more never blocks on a full pipe.
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let _ = send.send(line);
            }
        });
        let line = lines.recv_timeout(START_LIMIT).map_err(|_| {
            let printed = fs::read_to_string(&errors).unwrap_or_default();
            anyhow!(
                "the service did not say where it listens: {}",
                printed.trim_end()
            )
        })?;
        let address = line.strip_prefix("listening on ").with_context(|| {
            format!("the service's first line is {line:?}, not \"listening on ADDRESS\"")
        })?;
        Ok(Self {
            guard,
            address: address.trim().to_owned(),
        })
    }
}

/// A folder for the service's data, taken away at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn create(folder: &Path) -> Result<Self> {
        if folder.exists() {
            fs::remove_dir_all(folder).with_context(|| folder.display().to_string())?;
        }
        fs::create_dir_all(folder.join("data")).with_context(|| folder.display().to_string())?;
        Ok(Self(folder.to_owned()))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // It lies in the target directory: what stays is cleaned by the next run.
        let _ = fs::remove_dir_all(&self.0);
    }
}
