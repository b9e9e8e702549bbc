//! Services of axum and tonic that know when they handle a request, and clients that load them.
//!
//! In: a service, or the address of one and a load. Out: the service's address; or one line a request, with readings of
//! the clock around it: by the client before, by the handler as it begins and ends, by the client after.

mod asleep;
mod grpc;
mod handler;
mod http;
mod load;
mod upstream;

use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;

use tokio::net::TcpListener;
use tokio::runtime::Builder;

const USAGE: &str = "usage: web axum|tonic --runtime multi|current [--upstream HOST:PORT]
       web upstream
       web load http1|http2|grpc --address HOST:PORT --connections N --streams N --requests N [--close] [--panics]
           [--kind KIND] [--pause MS]
  N requests in all, one after the other on each stream of each connection. --close: a connection a request.
  --panics: of twenty handlers one panics. KIND: works (default), sleeps, holds, locks, asks, at-once; MS between two requests.";

/// Threads of the multi-thread runtime.
const WORKERS: usize = 3;

/// Result of everything up here: any error ends the program with its message.
type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> ExitCode {
    match run(&std::env::args().skip(1).collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("web: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &[String]) -> Result<()> {
    // Handlers that panic are expected.
    std::panic::set_hook(Box::new(|_| {}));
    match args.first().map(String::as_str) {
        Some("axum") => serve(args, http::serve),
        Some("tonic") => serve(args, grpc::serve),
        Some("upstream") => upstream::serve(),
        Some("load") => load::run(&load::Load::read(args)?),
        _ => Err(USAGE.into()),
    }
}

fn serve<F: Future<Output = Result<()>>>(
    args: &[String],
    service: impl FnOnce(TcpListener) -> F,
) -> Result<()> {
    if let Ok(address) = option(args, "--upstream") {
        upstream::is_at(address.parse()?);
    }
    let mut builder = match option(args, "--runtime")?.as_str() {
        "multi" => Builder::new_multi_thread(),
        "current" => Builder::new_current_thread(),
        other => return Err(format!("no runtime `{other}`\n{USAGE}").into()),
    };
    let runtime = builder.worker_threads(WORKERS).enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        println!("listening on {}", listener.local_addr()?);
        io::stdout().flush()?;
        service(listener).await
    })
}

/// The value that follows `name`.
fn option(args: &[String], name: &str) -> Result<String> {
    let at = args.iter().position(|arg| arg == name);
    let value = at.and_then(|at| args.get(at + 1)).cloned();
    value.ok_or_else(|| format!("{name} is missing\n{USAGE}").into())
}
