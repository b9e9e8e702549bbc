//! The program: parses, runs, prints the error chain, sets the exit code.

use std::error::Error as _;
use std::process::ExitCode;

use clap::Parser as _;
use reqtrace::cli::{
    self,
    args::{Args, in_order},
};
use reqtrace_base::error::Error;

fn main() -> ExitCode {
    match cli::run(Args::parse_from(in_order(std::env::args_os().collect()))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print(&error);
            ExitCode::from(error.exit_code())
        }
    }
}

fn print(error: &Error) {
    reqtrace_base::say!("reqtrace: {error}");
    let mut source = error.source();
    while let Some(cause) = source {
        reqtrace_base::say!("  because: {cause}");
        source = cause.source();
    }
    if let Some(advice) = error.advice() {
        reqtrace_base::say!("  next: {advice}");
    }
}
