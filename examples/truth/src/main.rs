//! A service that knows where its time goes, to hold a trace against.
//!
//! In: a folder on a disk, and a line on standard input. Out: a log with one line a request, of what
//! the service measured itself. Everything worth tracing is in [`request::handle_request`].

mod company;
mod kinds;
mod log;
mod measure;
mod moving;
mod partner;
mod request;
mod waits;

use std::error::Error;
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use kinds::{KINDS, Kind, Place};

const USAGE: &str = "usage: truth --data DIR --log FILE --requests N --wait-ms MS
       truth --moving --log FILE --requests N
  DIR must be on a disk: in memory, nothing waits for a disk. N is per kind of request,
  MS how long a wait lasts that somebody ends.";

/// Result of everything up here: any error ends the program with its message.
type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Its options.
struct Config {
    place: Place,
    log: PathBuf,
    requests: u64,
}

fn main() -> ExitCode {
    match run(&std::env::args().skip(1).collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("truth: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &[String]) -> Result<()> {
    if args.iter().any(|arg| arg == "--moving") {
        return run_moving(args);
    }
    let config = Config {
        place: Place {
            data: option(args, "--data")?.into(),
            wait: Duration::from_millis(option(args, "--wait-ms")?.parse()?),
        },
        log: option(args, "--log")?.into(),
        requests: option(args, "--requests")?.parse()?,
    };
    std::fs::create_dir_all(&config.place.data)?;
    let mut log = File::create(&config.log)?;
    say("ready")?;
    await_line()?;
    for kind in &KINDS {
        log.write_all(run_kind(kind, &config)?.as_bytes())?;
    }
    say(&format!(
        "{} requests",
        config.requests * KINDS.len() as u64
    ))?;
    // Stays until it is told to go: a tracer may still want to look at this process.
    await_line()
}

/// The requests that change threads.
fn run_moving(args: &[String]) -> Result<()> {
    let mut log = File::create(option(args, "--log")?)?;
    let requests = option(args, "--requests")?.parse()?;
    say("ready")?;
    await_line()?;
    let logs = moving::run(requests)?;
    for text in &logs {
        log.write_all(text.as_bytes())?;
    }
    say(&format!("{} requests", requests * logs.len() as u64))?;
    await_line()
}

/// One kind after the other, each on a thread of its own, so that they do not disturb each other.
fn run_kind(kind: &'static Kind, config: &Config) -> Result<String> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().name(format!("t-{}", kind.name));
        let requests = thread.spawn_scoped(scope, || -> Result<String> {
            request::run(kind, &config.place, config.requests)
        })?;
        requests.join().map_err(|_| "a thread panicked")?
    })
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
