//! Apache under ab, in two MPMs, and PHP-FPM under a client of ours: requests against the number that
//! was made, and against Apache's own access log.
//!
//! Needs root, a kernel with BPF, apache2-bin, php8.2-fpm and apache2-utils.

use std::fs;
use std::path::Path;

use reqtrace_tests::apache::Apache;
use reqtrace_tests::http::ab;
use reqtrace_tests::php_fpm::PhpFpm;
use reqtrace_tests::reqtrace::{Outcome, Trace};
use reqtrace_tests::rows::{self, Row};

const REQUESTS: u64 = 500;

/// Rows of a good trace, and the number of its requests.
fn requests(outcome: &Outcome, request: &str) -> (Vec<Row>, u64) {
    let summary = outcome.checked().unwrap();
    let count = summary.request(request).unwrap().count;
    (outcome.rows().unwrap(), count)
}

fn labelled(rows: &[Row], label: &str) -> u64 {
    rows.iter().filter(|row| row.label == label).count() as u64
}

#[test]
fn apache_has_one_request_per_http_request_in_every_mpm() {
    for mpm in ["event", "prefork"] {
        let apache = Apache::start(mpm).unwrap();
        fs::write(apache.documents().join("page"), [b'x'; 4096]).unwrap();
        let trace = Trace::start(Path::new("apache"), apache.pid(), &["--labels"]).unwrap();
        // Over connections that are kept, and over one for each request.
        for keep in [&["-k"][..], &[]] {
            ab(apache.port(), "/page?with=arguments", REQUESTS, 8, keep).unwrap();
        }
        ab(apache.port(), "/nothing", 1, 1, &[]).unwrap();
        let outcome = trace.finish().unwrap();

        let (rows, count) = requests(&outcome, "request");
        assert_eq!(count, 2 * REQUESTS + 1, "{mpm}");
        assert_eq!(apache.logged().unwrap(), count, "{mpm}");
        assert_eq!(labelled(&rows, "/page"), 2 * REQUESTS, "{mpm}");
        assert_eq!(labelled(&rows, "/nothing"), 1, "{mpm}");
        // A connection that is kept waits outside of its requests.
        assert_eq!(rows::sum(&rows, "poll"), 0, "{mpm}");
    }
}

#[test]
fn php_fpm_has_one_request_per_script() {
    let server = PhpFpm::start(2).unwrap();
    let hello = server.script("hello.php", "echo 'hello';").unwrap();
    let code = "usleep(2000); register_shutdown_function(function () { usleep(3000); });";
    let slow = server.script("slow.php", code).unwrap();
    let fails = server.script("fails.php", "no_such_function();").unwrap();
    let [hello, slow, fails] = [hello, slow, fails].map(|path| path.display().to_string());
    let trace = Trace::start(Path::new("php-fpm"), server.pid(), &["--labels"]).unwrap();
    for _ in 0..REQUESTS {
        assert!(server.get(&hello).unwrap().ends_with("\r\n\r\nhello"));
    }
    for _ in 0..10 {
        server.get(&slow).unwrap();
        assert!(server.get(&fails).unwrap().contains("no_such_function"));
    }
    // Nothing is run for this one.
    assert!(
        server
            .get("/nothing.php")
            .unwrap()
            .contains("404 Not Found")
    );
    server.idle().unwrap();
    let outcome = trace.finish().unwrap();

    let (rows, count) = requests(&outcome, "script");
    assert_eq!(count, REQUESTS + 20);
    assert_eq!(labelled(&rows, &hello), REQUESTS);
    assert_eq!(labelled(&rows, &fails), 10);
    let slow: Vec<&Row> = rows.iter().filter(|row| row.label == slow).collect();
    assert_eq!(slow.len(), 10);
    // What runs at shutdown is part of it. The kernel may hide a thread's return to its CPU: that sleep counts as on CPU.
    assert!(slow.iter().all(|row| row.latency_ns > 4_900_000));
    let slept = slow.iter().filter(|row| row.classes["sleep"] > 4_900_000);
    assert!(slept.count() >= 8, "{slow:#?}");
    assert!(rows.iter().all(|row| row.pid != server.pid()));
}
