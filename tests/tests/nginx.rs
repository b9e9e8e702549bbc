//! nginx under ab: requests against the number that the load was told to make, and against
//! nginx's own access log.
//!
//! Needs root, a kernel with BPF, nginx and apache2-utils.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::Path;

use reqtrace_tests::nginx::Nginx;
use reqtrace_tests::reqtrace::{Outcome, Trace};
use reqtrace_tests::rows;

const REQUESTS: u64 = 1000;

/// Requests of a good trace.
fn count(outcome: &Outcome, request: &str) -> u64 {
    let summary = outcome.checked().unwrap();
    summary.request(request).unwrap().count
}

#[test]
fn one_request_per_http_request_of_all_workers() {
    let nginx = Nginx::start(2).unwrap();
    fs::write(nginx.documents().join("page"), [b'x'; 4096]).unwrap();
    let trace = Trace::start(Path::new("nginx"), nginx.pid(), &["--labels"]).unwrap();
    // Over connections that are kept, and over one for each request.
    for keep in [&["-k"][..], &[]] {
        nginx.ab("/page?with=arguments", REQUESTS, 8, keep).unwrap();
    }
    // Not found is a request too, and so is a header that nginx refuses, which has no path.
    nginx.ab("/nothing", 1, 1, &[]).unwrap();
    nginx.ab("/page", 1, 1, &["-H", "Host: no/host"]).unwrap();
    let outcome = trace.finish().unwrap();

    assert_eq!(count(&outcome, "request"), 2 * REQUESTS + 2);
    assert_eq!(nginx.logged().unwrap(), 2 * REQUESTS + 2);
    let rows = outcome.rows().unwrap();
    let labelled = |label: &str| {
        rows.iter()
            .filter(|row| row.attributes["path"] == label)
            .count() as u64
    };
    assert_eq!(labelled("/page"), 2 * REQUESTS);
    assert_eq!(labelled("/nothing"), 1);
    assert_eq!(labelled(""), 1);
    let status = |status: &str| {
        rows.iter()
            .filter(|row| row.attributes["status"] == status)
            .count() as u64
    };
    assert_eq!(
        (status("200"), status("404"), status("400")),
        (2 * REQUESTS, 1, 1)
    );
    // Both workers are children of the process that was named.
    assert!(rows.iter().all(|row| row.pid != nginx.pid()));
}

#[test]
fn a_file_that_is_not_in_memory_holds_up_its_worker() {
    let nginx = Nginx::start(1).unwrap();
    let path = nginx.documents().join("large");
    fs::write(&path, vec![1; 8 << 20]).unwrap();
    let file = File::open(&path).unwrap();
    file.sync_all().unwrap();
    let trace = Trace::start(Path::new("nginx"), nginx.pid(), &[]).unwrap();
    for _ in 0..20 {
        // SAFETY: the descriptor is open.
        unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
        nginx.ab("/large", 1, 1, &[]).unwrap();
    }
    let outcome = trace.finish().unwrap();
    assert_eq!(count(&outcome, "request"), 20);
    let rows = outcome.rows().unwrap();
    rows::check_other(&rows).unwrap();
    let read = rows::sum(&rows, "file_read");
    let blocked: u64 = rows.iter().map(|row| row.blocked_ns).sum();
    assert!(read > 0 && 2 * read > blocked, "{read} of {blocked} ns");
}

#[test]
fn a_turn_of_the_event_loop_holds_no_waiting() {
    let nginx = Nginx::start(1).unwrap();
    fs::write(nginx.documents().join("page"), "x").unwrap();
    let trace = Trace::start(Path::new("nginx-event-loop"), nginx.pid(), &[]).unwrap();
    // One client on one connection: each request comes alone, after the answer to the one before.
    nginx.ab("/page", REQUESTS, 1, &["-k"]).unwrap();
    let outcome = trace.finish().unwrap();
    let turns = count(&outcome, "turn");
    // More than one a request: connecting, closing, and a new connection after every hundredth.
    assert!((REQUESTS..REQUESTS * 11 / 10).contains(&turns), "{turns}");
    let rows = outcome.rows().unwrap();
    assert_eq!(rows::sum(&rows, "poll"), 0);
    let folded = outcome.folded().unwrap();
    assert!(!folded.contains("ep_poll"), "{folded}");
}
