//! A service on tokio whose tasks know where their time goes, to hold a trace against.
//!
//! In: a kind of runtime, and a line on standard input. Out: a log with one line a job, of what the job measured
//! itself; or the port of a server whose connections are tasks.

mod beside;
mod http;
mod jobs;
mod measured;

use std::error::Error;
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use tokio::runtime::{Builder, Runtime};

const USAGE: &str = "usage: tasks jobs --runtime multi|current --data DIR --log FILE --jobs N [--beside PAIRS] [--held-ms MS]
       tasks blocking --runtime multi --data DIR --log FILE --jobs N
       tasks http --runtime multi|current
  DIR must be on a disk: in memory, nothing waits for a disk. N is per kind of job; of twenty jobs one panics.
  PAIRS of tasks that are no jobs wake each other a thousand times a second. A job has what others wait for 3 ms long,
  or MS.";

/// Threads of the multi-thread runtime.
const WORKERS: usize = 3;

/// Threads of its blocking pool: one job waits for the other.
const BLOCKING: usize = 1;

/// Result of everything up here: any error ends the program with its message.
type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> ExitCode {
    match run(&std::env::args().skip(1).collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tasks: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &[String]) -> Result<()> {
    // Jobs that panic are expected.
    std::panic::set_hook(Box::new(|_| {}));
    let runtime = runtime(&option(args, "--runtime")?)?;
    match args.first().map(String::as_str) {
        Some("jobs" | "blocking") => run_jobs(&runtime, args),
        Some("http") => http::serve(&runtime),
        _ => Err(USAGE.into()),
    }
}

fn runtime(kind: &str) -> Result<Runtime> {
    let mut builder = match kind {
        "multi" => Builder::new_multi_thread(),
        "current" => Builder::new_current_thread(),
        other => return Err(format!("no runtime `{other}`\n{USAGE}").into()),
    };
    let builder = builder.worker_threads(WORKERS).enable_all();
    Ok(builder.max_blocking_threads(BLOCKING).build()?)
}

fn run_jobs(runtime: &Runtime, args: &[String]) -> Result<()> {
    let data: PathBuf = option(args, "--data")?.into();
    let jobs = option(args, "--jobs")?.parse()?;
    let mut log = File::create(option(args, "--log")?)?;
    let has = |name: &str| args.iter().any(|arg| arg == name);
    let pairs = match has("--beside") {
        true => option(args, "--beside")?.parse()?,
        false => 0,
    };
    if has("--held-ms") {
        jobs::hold_for(option(args, "--held-ms")?.parse()?);
    }
    say("ready")?;
    await_line()?;
    runtime.block_on(beside::start(pairs))?;
    let lines = match args[0].as_str() {
        "blocking" => runtime.block_on(jobs::run_blocking(jobs))?,
        _ => runtime.block_on(jobs::run(&data, jobs))?,
    };
    log.write_all(lines.concat().as_bytes())?;
    say(&format!("{} jobs", lines.len()))?;
    // Stays until it may go: a tracer may still look at this process.
    await_line()
}

fn say(line: &str) -> Result<()> {
    println!("{line}");
    Ok(io::stdout().flush()?)
}

/// Waits for a line on standard input, or its end.
fn await_line() -> Result<()> {
    io::stdin().read_line(&mut String::new())?;
    Ok(())
}

/// The value that follows `name`.
fn option(args: &[String], name: &str) -> Result<String> {
    let at = args.iter().position(|arg| arg == name);
    let value = at.and_then(|at| args.get(at + 1)).cloned();
    value.ok_or_else(|| format!("{name} is missing\n{USAGE}").into())
}
