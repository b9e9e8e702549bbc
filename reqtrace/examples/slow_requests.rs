//! Prints each slow request as it ends, with its longest block and where that was.
//!
//!     sudo target/release/examples/slow_requests PROFILE PID MILLISECONDS [SECONDS]
//!
//! Without SECONDS it goes on until the process leaves.

use std::error::Error;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use reqtrace::analysed::Analysed;
use reqtrace_analysis::aggregate::Aggregator;
use reqtrace_base::figures::duration;
use reqtrace_capture::tracer::Tracer;
use reqtrace_profile::builtin;
use reqtrace_recording::{Event, Request};

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [profile, pid, milliseconds, seconds @ ..] = words.as_slice() else {
        return Err("usage: slow_requests PROFILE PID MILLISECONDS [SECONDS]".into());
    };
    let profile = builtin::from_file(Path::new(profile))?;
    let slow = Duration::from_millis(milliseconds.parse()?);
    let mut tracer = Tracer::new(profile).pid(pid.parse()?);
    if let [seconds] = seconds {
        tracer = tracer.duration(Duration::from_secs(seconds.parse()?));
    }
    let finished =
        Analysed::new(tracer)
            .start()?
            .run(|event: &Event<'_>, model: &Aggregator| {
                if let Event::Request(request) = event
                    && Duration::from_nanos(request.latency_ns()) >= slow
                {
                    print(request, model);
                }
                ControlFlow::Continue(())
            })?;
    for request in &finished.report.requests {
        println!("{} × {}", request.count, request.name);
    }
    Ok(())
}

fn print(request: &Request<'_>, model: &Aggregator) {
    let latency = duration(request.latency_ns());
    print!(
        "request {} ({}): {latency}",
        request.id,
        model.request_name(request)
    );
    if let Some(block) = model.longest_blocks(request).first() {
        print!(
            ", of these {} in {}",
            duration(block.blocked_ns),
            block.class
        );
        if let Some(function) = block.user.first().or(block.kernel.first()) {
            print!(": {function}");
        }
        if let Some(waker) = &block.waker {
            print!(", woken by {} ({})", waker.comm, waker.tid);
        }
    }
    println!();
}
