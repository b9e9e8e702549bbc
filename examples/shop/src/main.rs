//! A small shop, as an example of a service to trace.
//!
//! `shop serve` takes orders over TCP, `shop load` places them. Everything worth tracing is in
//! [`service::handle_request`]; `shop.toml` tells reqtrace so.

mod load;
mod payment;
mod server;
mod service;

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

const USAGE: &str = "\
usage: shop serve --listen ADDR:PORT --data DIR --log FILE [--slower stock|payment|journal|courier]
       shop load --connect ADDR:PORT --connections C (--requests N | --seconds S) [--pause MS]";

/// Result of everything up here: any error ends the program with its message.
type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> ExitCode {
    match run(&std::env::args().skip(1).collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("shop: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &[String]) -> Result<()> {
    let (command, options) = args.split_first().ok_or(USAGE)?;
    match command.as_str() {
        "serve" => server::serve(&server::Config {
            listen: required(options, "--listen")?,
            data: required(options, "--data")?.into(),
            log: required(options, "--log")?.into(),
            slower: option(options, "--slower")
                .map(|step| step.parse())
                .transpose()?,
        }),
        "load" => {
            let amount = match (option(options, "--requests"), option(options, "--seconds")) {
                (Some(requests), None) => load::Amount::Requests(requests.parse()?),
                (None, Some(seconds)) => load::Amount::Seconds(seconds.parse()?),
                _ => return Err(USAGE.into()),
            };
            let connections = required(options, "--connections")?.parse()?;
            let pause = option(options, "--pause").map_or(Ok(0), |pause| pause.parse())?;
            let pause = Duration::from_millis(pause);
            load::load(&required(options, "--connect")?, connections, amount, pause)
        }
        _ => Err(USAGE.into()),
    }
}

/// The value that follows `name`.
fn option(options: &[String], name: &str) -> Option<String> {
    let at = options.iter().position(|option| option == name)?;
    options.get(at + 1).cloned()
}

fn required(options: &[String], name: &str) -> Result<String> {
    option(options, name).ok_or_else(|| format!("{name} is missing\n{USAGE}").into())
}
