//! A small bakery, as an example of a service with a thread pool to trace.
//!
//! `bakery serve` takes orders over TCP, `bakery load` places them. An order is taken on one thread, waits in a
//! queue, and is baked on another: start with [`server`]. `bakery.toml` tells reqtrace so.

mod load;
mod queue;
mod server;

use std::error::Error;
use std::process::ExitCode;

const USAGE: &str = "\
usage: bakery serve --listen ADDR:PORT --bakers B
       bakery load --connect ADDR:PORT --customers C --orders N";

/// Result of everything up here: any error ends the program with its message.
type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> ExitCode {
    match run(&std::env::args().skip(1).collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bakery: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &[String]) -> Result<()> {
    let (command, options) = args.split_first().ok_or(USAGE)?;
    let option = |name: &str| {
        let at = options.iter().position(|option| option == name);
        let value = at.and_then(|at| options.get(at + 1));
        value.ok_or_else(|| format!("{name} is missing\n{USAGE}"))
    };
    match command.as_str() {
        "serve" => server::serve(option("--listen")?, option("--bakers")?.parse()?),
        "load" => load::load(
            option("--connect")?,
            option("--customers")?.parse()?,
            option("--orders")?.parse()?,
        ),
        _ => Err(USAGE.into()),
    }
}
