//! Services of axum and tonic that know when they handle a request, and clients that load them.
//!
//! In: a service, or the address of one and a load. Out: the service's address; or one line a request, with readings of
//! the clock around it: by the client before, by the handler as it begins and ends, by the client after.

mod grpc;
mod http;
mod load;

use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use example_clock::now_ns;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::time::sleep;

const USAGE: &str = "usage: web axum|tonic --runtime multi|current
       web load http1|http2|grpc --address HOST:PORT --connections N --streams N --requests N [--close] [--panics]
  N requests in all, one after the other on each stream of each connection. --close: a connection a request.
  --panics: of twenty handlers one panics.";

/// Threads of the multi-thread runtime.
const WORKERS: usize = 3;

/// How long a handler takes.
const HANDLED: Duration = Duration::from_millis(10);

/// The request of whose number the handler panics ends in this.
const PANICS: u64 = 19;

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
        Some("load") => load::run(&runtime("current")?, &load::Load::read(args)?),
        _ => Err(USAGE.into()),
    }
}

fn serve<F: Future<Output = Result<()>>>(
    args: &[String],
    service: impl FnOnce(TcpListener) -> F,
) -> Result<()> {
    runtime(&option(args, "--runtime")?)?.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        println!("listening on {}", listener.local_addr()?);
        io::stdout().flush()?;
        service(listener).await
    })
}

fn runtime(kind: &str) -> Result<Runtime> {
    let mut builder = match kind {
        "multi" => Builder::new_multi_thread(),
        "current" => Builder::new_current_thread(),
        other => return Err(format!("no runtime `{other}`\n{USAGE}").into()),
    };
    Ok(builder.worker_threads(WORKERS).enable_all().build()?)
}

/// What each handler does: when it began and ended.
///
/// # Panics
///
/// If the number of the request is so.
async fn handle(number: u64) -> (u64, u64) {
    let begin = now_ns();
    sleep(HANDLED).await;
    assert!(number % 20 != PANICS, "as it is to");
    (begin, now_ns())
}

/// The value that follows `name`.
fn option(args: &[String], name: &str) -> Result<String> {
    let at = args.iter().position(|arg| arg == name);
    let value = at.and_then(|at| args.get(at + 1)).cloned();
    value.ok_or_else(|| format!("{name} is missing\n{USAGE}").into())
}
